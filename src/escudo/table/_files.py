"""Data as a lazy frame, from files or from any dataframe engine, and its errors without private values.

Data named on a command line are a file; several files that are one table, as a folder or a pattern; a sheet of a
workbook; a Delta or an Iceberg table; standard input; a table of a DuckDB or PostgreSQL database that is counted
where it is; or one of SQLite. Text files are read by ``_text_files``. Sheets, tables of SQLite and standard input are
copied into a folder that only their owner can read, which is gone when the program ends: sheets and tables as text, so
that no cell decides how its column is read.
"""

from __future__ import annotations

import atexit
import csv
import glob
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import narwhals as nw
from narwhals.dtypes import DType

from escudo._validate import did_you_mean, one_of
from escudo.errors import EscudoError, InputError
from escudo.table._schema import Schema
from escudo.table._text_files import (
    COPIES,
    LINE_END,
    MERGED,
    MIDNIGHT,
    Dialect,
    joined,
    one_file,
    recognised,
    scan_json,
    stated_texts,
    typed_texts,
)

if TYPE_CHECKING:
    import polars as pl

    from escudo.table._lakes import Lake

SEPARATED = (".csv", ".tsv")
JSON_LINES = (".ndjson", ".jsonl")
ENDINGS = (*SEPARATED, ".parquet", ".arrow", ".feather", *JSON_LINES)
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
STANDARD_INPUT = "-"
_MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"PK\x03\x04": ".xlsx", b"{": ".ndjson"}
_BLOCK = 2**20
_SQLITE = "sqlite:"
_LINE_ENDS = rf"[\r\n{MIDNIGHT}]+"
_MOST_FILES = 10_000
_DELTA_LOG = "_delta_log"
_ICEBERG_METADATA, _NEWEST_IN_POLARS = ".metadata.json", 2


def scan(path: str | PathLike[str], schema: Schema | None = None) -> pl.LazyFrame:
    """Open data files as a lazy polars frame, in the format that their ending names.

    One file; or a folder or a pattern such as ``visits/*.parquet``, whose files, in the order of their names, are one
    table; or the folder of a Delta table, of which the newest version is read; or the metadata file of an Iceberg table
    that its catalogue names, or its folder, if a ``version-hint.text`` in it names that; or a sheet of a workbook,
    ``visits.xlsx`` or ``visits.xlsx#Sheet2``, whose first row names the columns; or ``-`` for standard input, whose
    format is recognised by its first bytes.

    CSV, TSV, Parquet, Arrow/Feather and newline-delimited JSON. In a text file **every line is one row**, and what is
    in a line never changes how another is read:

    * a line ends at a line feed, with a carriage return before it or not; one that is empty is a row of missing values,
      since a row that could vanish would change the number of rows. The first line of CSV and TSV names the columns,
      unless the schema's ``header`` does;
    * a field that begins with a quote ends at the next single quote, or else at the end of the line; two quotes in it
      stand for one, and text between its last quote and the separator belongs to it. Elsewhere a quote is a character;
    * a line that is too long or too short is cut or filled up with missing values, and an empty field that is not
      quoted is missing. Bytes that the encoding does not have become U+FFFD, and a person id
      with one in it is none, since different ids may have become the same;
    * in CSV and TSV what stands between fields, the encoding and the decimal sign are what the schema says: by default
      a comma (a tab in TSV), UTF-8 and a point. A file in another encoding is held in memory. JSON is UTF-8;
    * a line that is no JSON object is a row of missing values. Of a key that comes twice the last one counts, and a
      list or an object in one is missing.

    Only if ``schema.quoted_newlines`` says so may a quoted field hold line feeds. Whoever says it vouches that the
    program that wrote the file closed all its quotes, and quoted each value with a quote in it, as programs that write
    CSV do. Then each record is read by itself, whatever is in the others, and no value is an error. A file that breaks
    it is refused where that shows, always where one quote is open, and nothing is promised about it if it does not.

    **Why an open quote is refused.** It joins the rows after it, of whomever they are, and no limit on a value's lines,
    beyond which its quote would be a character, bounds how many. *Proof.* Let each row hold ``,x`` with a line feed,
    and ``y``: it is the two lines ``",x`` and ``",y``. Somebody's row be the line ``",y`` alone, with its quote open.
    Then every record after it is ``",y`` and ``",x``, well formed and of two lines like those before, and no row that
    follows is what it was. Nor does a reader help that decides where a row begins by a few lines on either side: rows
    of ``,y`` with a line feed, and ``x``, are the same lines in the same order, so it would read one of two files
    wrongly whose quotes are all closed, and a value in them would move its neighbours. So the error stays: that
    somebody's quote is open is what it tells, and it tells it of files alone about which nothing was to be promised.

    Args:
        path: The file, folder or pattern.
        schema: What is public about it. Given, the schema decides how a text file is read: what is no number in a
            column of numbers is missing, and in JSON what is no text in a column of text. Otherwise types, encoding,
            delimiter and decimal sign are recognised from the whole file, so that a single private value decides
            whether a column is one of numbers: good enough for the custodian's own eyes, not for a release.

    Raises:
        InputError: If the file is missing, of another format, or damaged; no value in it is shown.
    """
    import polars as pl

    if is_delta(path):
        return _delta(fspath(path))
    if is_iceberg(path):
        return _iceberg(fspath(path))
    files = data_files(path)
    ending, which = files[0].suffix.lower(), fspath(path)
    with hide_values(f"'{which}' is not a readable {ending[1:]} file. Is it damaged, empty or of another format?"):
        if ending == ".parquet":
            frame = joined([pl.scan_parquet(one_file(file)) for file in files], files)
        elif ending in (".arrow", ".feather"):
            frame = joined([pl.scan_ipc(one_file(file)) for file in files], files)
        elif ending not in SEPARATED:
            frame = joined([scan_json(file, schema) for file in files], files)
        elif schema is None:
            frame = typed_texts(files, alike(files))
        else:
            frame = stated_texts(files, schema)
        frame.collect_schema()
    return frame


def _book(text: str) -> tuple[str, str]:
    """Return the file and the sheet that a name may stand for."""
    book, _, sheet = text.rpartition("#") if "#" in text and not os.path.exists(text) else (text, "", "")
    return book, sheet


def is_workbook(data: object) -> bool:
    """Return whether data are named as a workbook, or a sheet of one."""
    return isinstance(data, str | PathLike) and Path(_book(fspath(data))[0]).suffix.lower() in SHEETS


def is_sqlite(data: object) -> bool:
    """Return whether data are named as a table of SQLite."""
    return isinstance(data, str) and data.startswith(_SQLITE)


def data_files(path: str | PathLike[str]) -> tuple[Path, ...]:
    """Return the files that a name stands for: itself, those of a folder or a pattern, or a copy that can be read.

    Raises:
        InputError: If there are none, they are of several formats or of one that is unknown, or cannot be opened.
    """
    text = fspath(path)
    if text == STANDARD_INPUT:
        return (_standard_input(),)
    if is_sqlite(text):
        return (_sqlite(text),)
    if is_workbook(text):
        return (_sheet(*_book(text)),)
    if os.path.isdir(text):
        found = sorted(file for file in Path(text).rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
        named = [file for file in found if not file.relative_to(text).as_posix().startswith((".", "_"))]
        what = f"the folder '{text}' holds no data"
    elif any(sign in text for sign in "*?[") and not os.path.exists(text):
        named = sorted(Path(file) for file in glob.glob(text, recursive=True) if os.path.isfile(file))
        what = f"no file is called like '{text}'"
    else:
        return (readable(path),)
    if not named:
        raise InputError(f"{what}: expected files ending in {', '.join(ENDINGS)}.")
    if len(named) > _MOST_FILES:
        raise InputError(f"'{text}' is {len(named):,} files, more than {_MOST_FILES:,}. Put them into fewer.")
    _refuse_parts(named, text)
    kinds = sorted({file.suffix.lower() for file in named})
    if len(kinds) > 1:
        raise InputError(f"'{text}' is files of several formats ({', '.join(kinds)}); name those of one.")
    return tuple(readable(file) for file in named)


def is_delta(data: object) -> bool:
    """Return whether data are named as the folder of a Delta table."""
    return isinstance(data, str | PathLike) and os.path.isdir(os.path.join(fspath(data), _DELTA_LOG))


def is_iceberg(data: object) -> bool:
    """Return whether data are named as the folder or a metadata file of an Iceberg table."""
    if not isinstance(data, str | PathLike):
        return False
    return Path(data).name.endswith(_ICEBERG_METADATA) or _is_iceberg_folder(Path(data))


def _is_iceberg_folder(folder: Path) -> bool:
    return any((folder / "metadata").glob(f"*{_ICEBERG_METADATA}"))


def is_lake(data: object) -> bool:
    """Return whether data are named as a table whose files also hold rows that were deleted."""
    return is_delta(data) or is_iceberg(data)


def _delta(folder: str) -> pl.LazyFrame:
    """Open the newest version of a Delta table: the rows that were deleted from it are in its files still."""
    import polars as pl

    with _as_delta(folder):
        from escudo.table._lakes import delta_table, open_delta

        place = os.path.realpath(folder)
        if quote(place) != place:  # blanks and the like, with which polars does not find the files
            return open_delta(folder).scan()
        frame = pl.scan_delta(delta_table(folder))
        frame.collect_schema()
    return frame


def _iceberg(name: str) -> pl.LazyFrame:
    """Open the version of an Iceberg table that a metadata file describes: rows deleted in it are in its files still.

    polars reads versions 1 and 2 with deletes by place; what is newer, or deleted by values, is read part by part.
    """
    import polars as pl

    with _as_iceberg(name):
        from escudo.table._lakes import iceberg_table, open_iceberg

        table, lake = iceberg_table(name), open_iceberg(name)
        if table.format_version > _NEWEST_IN_POLARS or lake.by_value:
            return lake.scan()
        # Of deletes in several files at once polars 2.0 makes an empty table.
        if lake.by_place and tuple(map(int, pl.__version__.split(".")[:2])) < (2, 1):
            raise InputError(
                f"'{name}' is an Iceberg table with rows that were deleted by their place, for which polars must be "
                f"2.1 or newer; this is {pl.__version__}: pip install --upgrade polars."
            )
        frame = pl.scan_iceberg(table)
        frame.collect_schema()
    return frame


def open_lake(name: str) -> Lake:
    """Open a Delta or Iceberg table as the files that hold its rows, for workers that see the same paths.

    Raises:
        InputError: If it cannot be read, or the library that knows its format is missing; no value in it is shown.
    """
    delta = is_delta(name)
    with _as_delta(name) if delta else _as_iceberg(name):
        from escudo.table._lakes import open_delta, open_iceberg

        return open_delta(name) if delta else open_iceberg(name)


@contextmanager
def _as_delta(folder: str) -> Iterator[None]:
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise InputError(f"'{folder}' is a Delta table, which needs: pip install 'escudo[delta]'.") from None
    with hide_values(
        f"'{folder}' cannot be read as a Delta table. Is its log damaged, or does it use a feature that is not "
        "supported here? Then read it by Spark with the package for Delta (spark:///FOLDER?format=delta), or write its "
        "rows to Parquet."
    ):
        yield


@contextmanager
def _as_iceberg(name: str) -> Iterator[None]:
    if os.path.isdir(name) and not os.path.isfile(os.path.join(name, "metadata", "version-hint.text")):
        raise InputError(_of_iceberg(name))
    try:
        import pyiceberg.table  # noqa: F401
    except ImportError:
        raise InputError(f"'{name}' is an Iceberg table, which needs: pip install 'escudo[iceberg]'.") from None
    os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # or polars warns that there is a faster one
    with hide_values(
        f"'{name}' cannot be read as an Iceberg table. Is it damaged or was it moved, or does it use a feature that is "
        "not supported here? Then read it by Spark (spark:///?table=NAME), or write its rows to Parquet."
    ):
        yield


def _of_iceberg(place: object) -> str:
    return (
        f"'{place}' is an Iceberg table, whose files also hold rows that were deleted. Which of its versions holds is "
        f"for its catalogue to say: name that one's metadata file ('{place}/metadata/...{_ICEBERG_METADATA}'), read it "
        "by Spark (spark:///?table=NAME), or write its rows to Parquet."
    )


def _refuse_parts(files: Sequence[Path], text: str) -> None:
    """Refuse files of Delta and Iceberg tables by themselves: they also hold rows that were deleted."""
    for place in {place for file in files for place in file.parents}:
        if (place / _DELTA_LOG).is_dir():
            raise InputError(
                f"'{text}' is part of a Delta table, whose files also hold rows that were deleted: name the table's "
                f"own folder, '{place}'."
            )
        if _is_iceberg_folder(place):
            raise InputError(_of_iceberg(place))


@cache
def _private_folder() -> Path:
    """Return a folder that only its owner can read, and that is gone when the program ends."""
    folder = tempfile.mkdtemp(prefix="escudo-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _standard_input() -> Path:
    """Return a copy of what comes in by standard input, which can be read once only."""
    stream = sys.stdin.buffer
    if stream.isatty():
        raise InputError(
            "'-' reads the data from standard input, and nothing is sent there; name a file, or use a pipe."
        )
    first = stream.read(_BLOCK)
    if not first:
        raise InputError("'-' reads the data from standard input, and nothing came in.")
    ending = next((ending for magic, ending in _MAGIC.items() if first.lstrip().startswith(magic)), ".csv")
    copy = _private_folder() / f"standard-input{ending}"
    with copy.open("wb") as file:
        file.write(first)
        shutil.copyfileobj(stream, file, _BLOCK)
    return _sheet(str(copy), "") if ending in SHEETS else copy


def _state(file: Path) -> tuple[str, int, int]:
    """Return which file this is and what tells that it was changed: another one is copied anew, whatever its name."""
    known = _openable(file).stat()
    return os.path.realpath(file), known.st_mtime_ns, known.st_size


def _sheet(book: str, name: str) -> Path:
    """Return a copy of a workbook's sheet as CSV: every cell as text, so that none decides how its column is read."""
    return _copied_sheet(book, name, _state(Path(book)))


@cache
def _copied_sheet(book: str, name: str, _: object) -> Path:
    try:
        import fastexcel
        import polars as pl
    except ImportError:
        raise InputError("a workbook needs: pip install 'escudo[excel]'.") from None
    with hide_values(f"'{book}' is not a readable workbook. Is it damaged, locked by a password or of another format?"):
        sheets = fastexcel.read_excel(book).sheet_names
        listed = ", ".join(f"'{book}#{sheet}'" for sheet in sheets[:6])
        if not name and len(sheets) > 1:
            raise InputError(f"'{book}' has {len(sheets)} sheets; say which: {listed}.")
        if name and name not in sheets:
            raise InputError(f"'{book}' has no sheet {name!r}.{did_you_mean(name, sheets)} It has: {listed}.")
        read = pl.read_excel(
            book,
            sheet_name=name or sheets[0],
            engine="calamine",
            has_header=False,  # its first row names the columns, as the first line of a text file does
            drop_empty_rows=False,
            drop_empty_cols=False,
            read_options={"dtypes": "string"},
        )
    if not read.width:
        raise InputError(f"'{book}' has nothing in sheet {name or sheets[0]!r}, not even a row that names the columns.")
    plain = read.select(map(_cell_of_sheet, read.columns))
    copy = _new_copy()
    plain.write_csv(copy, include_header=False)
    return copy


def _cell_of_sheet(name: str) -> pl.Expr:
    """Return the cells of a column as they are copied: one may hold line ends, and a line of text may not.

    Numbers in a sheet are floats. Large ones are written out exactly, or by 17 digits at most and zeros; what is
    written in another way was a text.
    """
    import polars as pl

    text = pl.col(name).cast(pl.String)
    size, whole = text.cast(pl.Float64, strict=False).abs(), text.cast(pl.Int128, strict=False)
    exact = (whole == whole.cast(pl.Float64).cast(pl.Int128, strict=False)).fill_null(value=True)  # or far too large
    short = text.str.strip_chars_start("-").str.strip_chars_end("0").str.len_chars() <= 17
    a_float = exact | (short & (size >= 2.0**63))
    merged = text.str.contains(r"^-?[1-9][0-9]*$") & (size >= 2.0**53) & a_float
    shown = text.str.replace_all(_LINE_ENDS, LINE_END).str.replace(r" 00:00:00$", MIDNIGHT)
    return pl.when(merged).then(text + MERGED).otherwise(shown).alias(name)


def _new_copy() -> Path:
    opened, name = tempfile.mkstemp(".csv", dir=_private_folder())  # a name that no process forked from this one has
    os.close(opened)
    copy = Path(name)
    COPIES.add(copy)
    return copy


def _sqlite(text: str) -> Path:
    """Return a copy of a table of SQLite as CSV: any cell may hold a value of any kind there, so all are text."""
    url, settings = _parts(text)
    name = settings.pop("table", "")
    if not name or settings or url.netloc:
        raise InputError("the SQLite URL must be sqlite:///FILE?table=NAME, four slashes before an absolute path.")
    file = Path(unquote(url.path.removeprefix("/")))
    log = Path(f"{file}-wal")  # which may hold the newest rows
    return _copied_table(file, name, (_state(file), _state(log) if log.exists() else None))


@cache
def _copied_table(file: Path, name: str, _: object) -> Path:
    place = f"file:{quote(str(file.absolute()))}?mode=ro"
    damaged = f"'{file}' cannot be read as a SQLite database. Is it one, and is no program writing to it?"
    with hide_values(damaged), closing(sqlite3.connect(place, uri=True)) as connection:
        connection.text_factory = lambda held: held.decode("utf-8", "replace")
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        known = [row[0] for row in listed]
        if name not in known:
            raise _no_table(name, f"'{file}'", known)
        rows = connection.execute(f"SELECT * FROM {_quoted_name(name)}")
        copy = _new_copy()
        with copy.open("w", encoding="utf-8", newline="") as written:
            writer = csv.writer(written, lineterminator="\n")
            writer.writerow(column[0] for column in rows.description)
            writer.writerows(map(_cell, row) for row in rows)
    return copy


def _cell(value: object) -> object:
    """Return a value of SQLite as one field of a line; bytes are none."""
    if isinstance(value, float) and abs(value) >= 2.0**53:
        return f"{value!r}{MERGED}"
    if isinstance(value, str):
        return re.sub(_LINE_ENDS, LINE_END, value)
    return None if isinstance(value, bytes) else value


def alike(files: Sequence[Path], known: Mapping[str, Any] = MappingProxyType({})) -> Dialect:
    """Return how CSV or TSV files are written, from all of them: for the custodian's own eyes.

    Raises:
        InputError: If they are written differently: no schema could say how to read them.
    """
    first, *others = (recognised(file, known) for file in files)
    for file, other in zip(files[1:], others, strict=True):
        if (other.delimiter, other.encoding) != (first.delimiter, first.encoding):
            raise InputError(
                f"the files are written differently: '{files[0]}' with {first}, '{file}' with {other}. Convert them, "
                "or say how with delimiter and encoding."
            )
    return replace(
        first,
        decimal="," if any(each.decimal == "," for each in (first, *others)) else first.decimal,
        quoted_newlines=any(each.quoted_newlines for each in (first, *others)),
    )


def text_files(data: Any) -> tuple[Path, ...]:
    """Return the paths of CSV or TSV files; nothing for all other data."""
    files = data_files(data) if isinstance(data, str | PathLike) and not is_lake(data) else ()
    return files if files and files[0].suffix.lower() in SEPARATED else ()


def readable(path: str | PathLike[str]) -> Path:
    """Return the path of a data file, or raise if its format is unknown or it cannot be opened."""
    file = Path(fspath(path))
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"cannot tell the format of '{file}': expected a file ending in {', '.join((*ENDINGS, SHEETS[0]))}."
            + _INSTEAD.get(ending, did_you_mean(ending, (*ENDINGS, *SHEETS)))
        )
    return _openable(file)


_PACKED = " Unpack it, or give its content by standard input: zcat FILE | escudo ... -"
_STORED = " A table in a database is named by its address, such as sqlite:///FILE?table=NAME."
_INSTEAD = {".gz": _PACKED, ".bz2": _PACKED, ".xz": _PACKED, ".zip": _PACKED, ".db": _STORED, ".sqlite": _STORED}


def _openable(file: Path) -> Path:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror or 'unknown reason'}.") from None
    except ValueError:  # a NUL in the name
        raise InputError("cannot read the data: the path is not usable.") from None
    return file


def as_lazy(data: Any, dialect: Dialect | None = None, schema: Schema | None = None) -> tuple[nw.LazyFrame[Any], str]:
    """Return data as a lazy narwhals frame, and what to call it in messages.

    Args:
        data: A path, or a frame of any engine that narwhals takes.
        dialect: How the CSV or TSV file of that path is written, if it is known; the types are still the file's.
        schema: What decides how the file of that path is read, if it states no types.

    Raises:
        InputError: If it is neither, or a column's name is not text.
    """
    if isinstance(data, str | PathLike):
        if dialect is None:
            return nw.from_native(scan(data, schema)), f"'{fspath(data)}'"
        with hide_values(f"'{fspath(data)}' cannot be read. Is it damaged, empty or of another format?"):
            return nw.from_native(typed_texts(data_files(data), dialect)), f"'{fspath(data)}'"
    expected = "expected a path or a dataframe (pandas, polars, pyarrow, DuckDB, ...)"
    with hide_values(f"{expected} with distinct column names; got {type(data).__name__}."):
        frame = nw.from_native(data).lazy()
        names = list(frame.collect_schema())
    if not all(isinstance(name, str) for name in names):
        raise InputError("the table has a column whose name is not text; rename it.")
    return frame, "the table"


def unreadable(file: Path, *, spanning: bool) -> str:
    """Return what to say of a text file that cannot be read; the custodian is asked after quotes that span lines."""
    quotes = " Or is a quote not closed? By quoted_newlines, all are; without it, each line is a row."
    return f"'{file}' is not a readable text file. Is it damaged or empty?{quotes if spanning else ''}"


@contextmanager
def hide_values(message: str) -> Iterator[None]:
    """Turn whatever an engine raises into ``InputError(message)``: its own words may quote private values."""
    try:
        yield
    except (EscudoError, MemoryError):
        raise
    except BaseException as error:
        # A crash inside polars derives from BaseException.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        told = InputError(message)
        try:
            raise told from None
        finally:
            told.__context__ = None  # or it would lead back to the engine's own message


_FORMS = (
    "sqlite:///FILE?table=NAME, duckdb:///FILE?table=NAME, postgresql://USER@HOST/DATABASE?table=NAME or "
    "spark://HOST:PORT/FOLDER"
)
_OPENERS = {
    "sqlite": "SQLite",
    "duckdb": "DuckDB",
    "postgresql": "PostgreSQL",
    "postgres": "PostgreSQL",
    "spark": "Spark",
}
_READ_ONLY = "-c default_transaction_read_only=on"


def open_data(text: str, schema: Schema | None = None, *, engine: str | None = None) -> Any:
    """Open what a person names: data files, or a table in a database, read-only.

    Args:
        text: A path, folder, pattern or ``-`` as for :func:`scan`; ``duckdb:///relative.db?table=visits`` (four slashes
            for an absolute path); or ``postgresql://user:password@host/database?table=visits``, with further settings
            of libpq in the query. A password that is left out comes from ``PGPASSWORD`` or the password file.
            ``&schema=clinic`` names the table's schema. ``sqlite:///relative.db?table=visits``, which is copied as
            text. ``spark:///folder`` or ``spark://host:port/folder``, or ``spark:///?table=catalog.visits``, is read by
            Spark (``&format=delta``, ``iceberg`` or ``orc``, if it is
            not Parquet).
        schema: How to read a file that states no types (see :func:`scan`).
        engine: ``"spark"`` for a path whose files the workers of Spark read: Parquet, or a Delta or Iceberg table.

    Returns:
        A frame that is not read yet and that :class:`PrivateTable` takes. Where something is counted, the rows of
        PostgreSQL and Spark stay there: only counts leave. Nobody should write to the table while it is counted.

    Raises:
        InputError: If it cannot be opened, or what reads it is not installed. No message holds a password.
    """
    chosen = one_of("engine", engine or "polars", ("polars", "spark"))
    if chosen == "spark" and not text.startswith("spark:"):
        return _on_spark(text, schema)
    if "://" not in text or is_sqlite(text):
        return scan(text, schema)
    url, settings = _parts(text)
    if url.scheme not in _OPENERS:
        raise InputError(
            f"data in {url.scheme!r} cannot be opened; use a file, or {_FORMS}.{did_you_mean(url.scheme, _OPENERS)}"
        )
    if url.scheme == "spark":
        from escudo.table._spark import open_spark

        return open_spark(url, settings, schema)
    name, home = settings.pop("table", ""), settings.pop("schema", None)
    if not name:
        raise InputError(f"the URL does not say which table of the database; write {_FORMS}.")
    if _OPENERS[url.scheme] == "DuckDB":
        return _open_duckdb(url, name, home, settings)
    return _open_postgresql(url, name, home, settings)


def _parts(text: str) -> tuple[SplitResult, dict[str, str]]:
    """Return a URL, and its settings."""
    try:
        url = urlsplit(text)
        return url, dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
    except ValueError:
        raise InputError(f"the data's URL cannot be read; write {_FORMS}, with special characters as %XX.") from None


def _on_spark(text: str, schema: Schema | None) -> Any:
    """Open a path by Spark, in the session that is configured where the command runs."""
    from escudo.table._spark import open_spark

    known = os.path.isdir(text) or text.endswith(".parquet") or is_lake(text)
    if "://" in text or not known:
        raise InputError(
            "engine='spark' reads a folder or file of Parquet, or a Delta or Iceberg table, by its path; this is none. "
            f"For data that only Spark sees, write {_FORMS.rpartition(' ')[2]}."
        )
    return open_spark(urlsplit("spark:"), {"path": os.path.abspath(text)}, schema)


def _open_duckdb(url: SplitResult, name: str, schema: str | None, settings: dict[str, str]) -> Any:
    try:
        import duckdb
    except ImportError:
        raise InputError("a DuckDB database needs: pip install 'escudo[duckdb]'.") from None
    if settings or url.netloc:
        raise InputError(f"the DuckDB URL has something that is not understood; write {_FORMS}, three slashes and all.")
    file = Path(unquote(url.path.removeprefix("/")))
    if not file.is_file():
        raise InputError(f"cannot read '{file}': there is no such file.")
    try:
        connection = duckdb.connect(str(file), read_only=True)
        tables = connection.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
        tables += connection.execute("SELECT schema_name, view_name FROM duckdb_views()").fetchall()
    except duckdb.Error as error:
        kind = type(error).__name__
        raise InputError(
            f"'{file}' cannot be opened as a DuckDB database ({kind}). Is it one, and is no program writing to it?"
        ) from None
    known = [table for home, table in tables if home == (schema or "main")]
    if name not in known:
        raise _no_table(name, f"'{file}'", known)
    return connection.sql(f"SELECT * FROM {_quoted_name(schema or 'main')}.{_quoted_name(name)}")


def _open_postgresql(url: SplitResult, name: str, schema: str | None, settings: dict[str, str]) -> Any:
    try:
        import ibis
        import psycopg
    except ImportError:
        raise InputError("a PostgreSQL database needs: pip install 'escudo[database]'.") from None
    shown = _shown(url)
    settings["options"] = f"{settings.get('options', '')} {_READ_ONLY}".strip()
    target = url._replace(scheme="postgresql", query=urlencode(settings, quote_via=quote)).geturl()
    kind = None
    try:
        connection = psycopg.connect(target, autocommit=True)
        backend = ibis.postgres.from_connection(connection)
        weakref.finalize(backend, connection.close)  # the frame keeps the backend, and the backend the connection
        known = backend.list_tables(database=schema)
    except (psycopg.Error, ValueError, UnicodeError) as error:
        kind = type(error).__name__
    if kind is not None:  # outside the handler: the driver's own message may quote the URL, and the password in it
        raise InputError(
            f"cannot connect to {shown} ({kind}). Is the server running, and are user, password, database and schema "
            "right?"
        )
    if name not in known:
        raise _no_table(name, shown, known)
    return backend.table(name, database=schema)


def _no_table(name: str, place: str, known: list[str]) -> InputError:
    return InputError(f"{place} has no table {name!r} that can be read.{did_you_mean(name, known)}")


def _shown(url: SplitResult) -> str:
    """Return the URL without password and query, which may hold one too."""
    user, at, place = url.netloc.rpartition("@")
    return f"'postgresql://{user.partition(':')[0]}{at}{place}{url.path}'"


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_HELD = 2**22  # values of columns that are drafted together


def some_at_a_time(
    frame: nw.LazyFrame[Any], rows: int, names: Sequence[str]
) -> Iterator[tuple[str, DType, nw.LazyFrame[Any]]]:
    """Yield the columns, each with a frame that holds it: of files, as many in memory at once as are small together.

    Else a wide text file would be read anew for every question about every column.
    """
    import polars as pl

    types = frame.collect_schema()
    many = max(_HELD // max(rows, 1), 1)
    native = frame.to_native()
    for start in range(0, len(names), many):
        some = names[start : start + many]
        held = frame
        if isinstance(native, pl.LazyFrame) and len(some) > 1:
            held = nw.from_native(native.select(some).collect(engine="streaming").lazy())
        yield from ((name, types[name], held) for name in some)
