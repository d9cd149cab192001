"""Data as a lazy frame, from a file or from any dataframe engine, and its errors without private values.

Data named on a command line are a file, or a table of a DuckDB or PostgreSQL database that is counted where it is. Text
files are read by ``_text_files``.
"""

from __future__ import annotations

import glob
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import narwhals as nw

from escudo._validate import did_you_mean
from escudo.errors import EscudoError, InputError
from escudo.table._schema import Schema
from escudo.table._text_files import Dialect, recognised, scan_json, stated_texts, typed_texts

if TYPE_CHECKING:
    import polars as pl

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
      quoted is missing. Bytes that the encoding does not have become U+FFFD, and a person id
      with one in it is none, since different ids may have become the same;
    * in CSV and TSV what stands between fields, the encoding and the decimal sign are what the schema says: by default
      a comma (a tab in TSV), UTF-8 and a point. A file in another encoding is held in memory. JSON is UTF-8;
    * a line that is no JSON object is a row of missing values. Of a key that comes twice the last one counts, and a
      list or an object in one is missing.

    Only if ``schema.quoted_newlines`` says so may a quoted field hold line feeds. Whoever says it vouches that the
    program that wrote the file closed all its quotes: one that is open joins the rows after it, of whomever they are.

    Args:
        path: The file.
        schema: What is public about it. Given, the schema decides how a text file is read: what is no number in a
            column of numbers is missing, and in JSON what is no text in a column of text. Otherwise types, encoding,
            delimiter and decimal sign are recognised from the whole file, so that a single private value decides
            whether a column is one of numbers: good enough for the custodian's own eyes, not for a release.

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
        elif ending not in SEPARATED:
            frame = scan_json(file, schema)
        elif schema is None:
            frame = typed_texts(file, recognised(file))
        else:
            frame = stated_texts(file, schema)
        frame.collect_schema()
    return frame


def text_file(data: Any) -> Path | None:
    """Return the path of a CSV or TSV file, None for all other data."""
    file = readable(data) if isinstance(data, str | PathLike) else None
    return file if file is not None and file.suffix.lower() in SEPARATED else None


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


def as_lazy(data: Any, dialect: Dialect | None = None) -> tuple[nw.LazyFrame[Any], str]:
    """Return data as a lazy narwhals frame, and what to call it in messages.

    Args:
        data: A path, or a frame of any engine that narwhals takes.
        dialect: How the CSV or TSV file of that path is written, if it is known; the types are still the file's.

    Raises:
        InputError: If it is neither, or a column's name is not text.
    """
    if isinstance(data, str | PathLike):
        if dialect is None:
            return nw.from_native(scan(data)), f"'{fspath(data)}'"
        with hide_values(f"'{fspath(data)}' cannot be read. Is it damaged, empty or of another format?"):
            return nw.from_native(typed_texts(readable(data), dialect)), f"'{fspath(data)}'"
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


_FORMS = "duckdb:///FILE?table=NAME or postgresql://USER@HOST/DATABASE?table=NAME"
_OPENERS = {"duckdb": "DuckDB", "postgresql": "PostgreSQL", "postgres": "PostgreSQL"}
_READ_ONLY = "-c default_transaction_read_only=on"


def open_data(text: str, schema: Schema | None = None) -> Any:
    """Open what a person names: a data file, or a table in a database, read-only.

    Args:
        text: A path as for :func:`scan`; ``duckdb:///relative.db?table=visits`` (four slashes for an absolute path); or
            ``postgresql://user:password@host/database?table=visits``, with further settings of libpq in the query. A
            password that is left out comes from ``PGPASSWORD`` or the password file. ``&schema=clinic`` names the
            table's schema.
        schema: How to read a file that states no types (see :func:`scan`).

    Returns:
        A frame that is not read yet and that :class:`PrivateTable` takes. The rows of a database stay in it: only
        counts leave. Nobody should write to the table while it is counted.

    Raises:
        InputError: If it cannot be opened, or what reads it is not installed. No message holds a password.
    """
    if "://" not in text:
        return scan(text, schema)
    try:
        url = urlsplit(text)
        settings = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
    except ValueError:
        raise InputError(f"the data's URL cannot be read; write {_FORMS}, with special characters as %XX.") from None
    if url.scheme not in _OPENERS:
        raise InputError(
            f"data in {url.scheme!r} cannot be opened; use a file, or {_FORMS}.{did_you_mean(url.scheme, _OPENERS)}"
        )
    name, home = settings.pop("table", ""), settings.pop("schema", None)
    if not name:
        raise InputError(f"the URL does not say which table of the database; write {_FORMS}.")
    if _OPENERS[url.scheme] == "DuckDB":
        return _open_duckdb(url, name, home, settings)
    return _open_postgresql(url, name, home, settings)


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
