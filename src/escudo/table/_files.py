"""Data as a lazy frame, from a file or from any dataframe engine, and its errors without private values."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from escudo._validate import did_you_mean
from escudo.errors import EscudoError, InputError
from escudo.table._text_files import as_number, legible, scan_json, scan_texts, typed_texts

if TYPE_CHECKING:
    import polars as pl

    from escudo.table._schema import Schema

__all__ = ["ENDINGS", "SEPARATED", "as_lazy", "hide_values", "readable", "scan"]

SEPARATED = (".csv", ".tsv")
ENDINGS = (*SEPARATED, ".parquet", ".arrow", ".feather", ".ndjson", ".jsonl")


def scan(path: str | PathLike[str], schema: Schema | None = None) -> pl.LazyFrame:
    """Open a data file as a lazy polars frame, in the format that its ending names.

    CSV, TSV, Parquet, Arrow/Feather and newline-delimited JSON. In a text file **every line is one row**, and what is
    in a line never changes how another is read:

    * a line ends at a line feed, with a carriage return before it or not; one that is empty is a row of missing values,
      since a row that could vanish would change the number of rows. The first line of CSV and TSV names the columns;
    * a field that begins with a quote ends at the next single quote, or else at the end of the line; two quotes in it
      stand for one, and text between its last quote and the separator belongs to it. Elsewhere a quote is a character;
    * a line that is too long or too short is cut or filled up with missing values, and an empty field that is not
      quoted is missing. Bytes that are no UTF-8 become U+FFFD, and a person id
      with one in it is none, since different ids may have become the same;
    * a line that is no JSON object is a row of missing values. Of a key that comes twice the last one counts, and a
      list or an object in one is missing.

    Only if ``schema.quoted_newlines`` says so may a quoted field hold line feeds. Whoever says it vouches that the
    program that wrote the file closed all its quotes: one that is open joins the rows after it, of whomever they are.

    Args:
        path: The file.
        schema: What is public about it. Given, the schema decides how a text file is read: what is no number in a
            column of numbers is missing, and in JSON what is no text in a column of text. Otherwise types come from the
            whole file, so that a single private value decides whether a column is one of numbers: good enough for the
            custodian's own eyes, not for a release.

    Raises:
        InputError: If the file is missing, of another format, or damaged; no value in it is shown.
    """
    import polars as pl

    file = readable(path)
    ending = file.suffix.lower()
    with hide_values(f"'{file}' is not a readable {ending[1:]} file. Is it damaged, empty or of another format?"):
        # A name is one file, whatever brackets and stars are in it.
        if ending == ".parquet":
            frame = pl.scan_parquet(glob.escape(str(file)))
        elif ending in (".arrow", ".feather"):
            frame = pl.scan_ipc(glob.escape(str(file)))
        elif ending in SEPARATED:
            texts = scan_texts(file, quoted_newlines=schema is not None and schema.quoted_newlines)
            frame = typed_texts(texts) if schema is None else texts.with_columns(_readings(texts, schema))
        else:
            frame = scan_json(file, schema)
        frame.collect_schema()
    return frame


def readable(path: str | PathLike[str]) -> Path:
    """Return the path of a data file, or raise if its format is unknown or it cannot be opened."""
    file = Path(fspath(path))
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"cannot tell the format of '{file}': expected a file ending in {', '.join(ENDINGS)}."
            + did_you_mean(ending, ENDINGS)
        )
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror or 'unknown reason'}.") from None
    except ValueError:  # a NUL in the name
        raise InputError("cannot read the data: the path is not usable.") from None
    return file


def _readings(frame: pl.LazyFrame, schema: Schema) -> list[pl.Expr]:
    """Return the columns of text that are read as something else: numbers, booleans and the person id."""
    import polars as pl

    columns = frame.collect_schema().names()
    kinds = {column.name: column.kind for column in schema.fields if column.kind not in ("string", "open")}
    read = [
        as_number(pl.col(name), boolean=kind == "boolean").alias(name)
        for name, kind in kinds.items()
        if name in columns
    ]
    return read if schema.person_id not in columns else [*read, legible(pl.col(schema.person_id))]


def as_lazy(data: Any) -> tuple[nw.LazyFrame[Any], str]:
    """Return data as a lazy narwhals frame, and what to call it in messages.

    Args:
        data: A path, or a frame of any engine that narwhals takes.

    Raises:
        InputError: If it is neither, or a column's name is not text.
    """
    if isinstance(data, str | PathLike):
        return nw.from_native(scan(data)), f"'{fspath(data)}'"
    expected = "expected a path or a dataframe (pandas, polars, pyarrow, DuckDB, ...)"
    with hide_values(f"{expected} with distinct column names; got {type(data).__name__}."):
        frame = nw.from_native(data).lazy()
        names = list(frame.collect_schema())
    if not all(isinstance(name, str) for name in names):
        raise InputError("the table has a column whose name is not text; rename it.")
    return frame, "the table"


@contextmanager
def hide_values(message: str) -> Iterator[None]:
    """Turn whatever an engine raises into ``InputError(message)``: its own words may quote private values."""
    try:
        yield
    except EscudoError:
        raise
    except MemoryError:
        raise
    except Exception:
        raise InputError(message) from None  # or a traceback would go on to print the engine's own message
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # a crash inside polars derives from BaseException
            raise InputError(message) from None
        raise
