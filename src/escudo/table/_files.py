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

if TYPE_CHECKING:
    import polars as pl

    from escudo.table._schema import Schema

__all__ = ["ENDINGS", "as_lazy", "hide_values", "scan"]

ENDINGS = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".ndjson", ".jsonl")


def scan(path: str | PathLike[str], schema: Schema | None = None) -> pl.LazyFrame:
    """Open a data file as a lazy polars frame, in the format that its ending names.

    CSV, TSV, Parquet, Arrow/Feather and newline-delimited JSON; an empty field is a missing value.

    Args:
        path: The file.
        schema: What is public about it. Given, the schema decides how a text file is read: what is no number in a
            column of numbers is missing, and a line that is too long or too short is cut or filled up. Otherwise types
            come from the whole file, so that a single private value decides whether a column is one of numbers: good
            enough for the custodian's own eyes, not for a release.

    Raises:
        InputError: If the file is missing, of another format, or damaged; no value in it is shown.
    """
    import polars as pl

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
    with hide_values(f"'{file}' is not a readable {ending[1:]} file. Is it damaged, empty or of another format?"):
        # A name is one file, whatever brackets and stars are in it.
        name = glob.escape(str(file))
        if ending == ".parquet":
            frame = pl.scan_parquet(name)
        elif ending in (".arrow", ".feather"):
            frame = pl.scan_ipc(name)
        else:
            frame = _scan_by(name, ending, schema) if schema is not None else _scan_inferred(name, ending)
        frame.collect_schema()
    return frame


def _scan_by(name: str, ending: str, schema: Schema) -> pl.LazyFrame:
    """Read every column as text, and those that the schema has as numbers or booleans then as numbers."""
    import polars as pl

    if ending in (".csv", ".tsv"):
        separator = "\t" if ending == ".tsv" else ","
        frame = pl.scan_csv(
            name, separator=separator, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy"
        )
    else:
        # Which keys there are is up to each line; one that is in no line is missing everywhere.
        names = [*schema.names, *(() if schema.person_id is None else (schema.person_id,))]
        frame = pl.scan_ndjson(name, schema=dict.fromkeys(names, pl.String))
    columns = frame.collect_schema().names()
    numbers = []
    for column in schema.fields:
        if column.name not in columns or column.kind in ("string", "open"):
            continue
        value = pl.col(column.name).str.strip_chars()
        if column.kind == "boolean":
            value = value.str.to_lowercase().replace({"true": "1", "false": "0"})
        numbers.append(value.cast(pl.Float64, strict=False))
    return frame.with_columns(numbers)


def _scan_inferred(name: str, ending: str) -> pl.LazyFrame:
    """Read columns as the types that the whole file suggests."""
    import polars as pl

    def scanned(types: pl.Schema | None) -> pl.LazyFrame:
        if ending in (".csv", ".tsv"):
            separator = "\t" if ending == ".tsv" else ","
            return pl.scan_csv(name, separator=separator, schema=types, infer_schema_length=None)
        return pl.scan_ndjson(name, schema=types, infer_schema_length=None)

    # Types that were only inferred would be inferred again for every question: state them.
    return scanned(scanned(None).collect_schema())


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
