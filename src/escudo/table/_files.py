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

__all__ = ["ENDINGS", "as_lazy", "hide_values", "scan"]

ENDINGS = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".ndjson", ".jsonl")


def scan(path: str | PathLike[str]) -> pl.LazyFrame:
    """Open a data file as a lazy polars frame, in the format that its ending names.

    CSV, TSV, Parquet, Arrow/Feather and newline-delimited JSON. The types of a text file's columns come from the
    whole file, so that a late row cannot fail to parse; an empty field is a missing value.

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
            # Types that were only inferred would be inferred again for every question: state them.
            frame = _scan_text(name, ending, _scan_text(name, ending, None).collect_schema())
        frame.collect_schema()
    return frame


def _scan_text(name: str, ending: str, schema: pl.Schema | None) -> pl.LazyFrame:
    import polars as pl

    if ending in (".csv", ".tsv"):
        separator = "\t" if ending == ".tsv" else ","
        return pl.scan_csv(name, separator=separator, schema=schema, infer_schema_length=None)
    return pl.scan_ndjson(name, schema=schema, infer_schema_length=None)


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
