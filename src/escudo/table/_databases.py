"""Data named on a command line: a file, or a table of a DuckDB or PostgreSQL database that is counted where it is."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from escudo._validate import did_you_mean
from escudo.errors import InputError
from escudo.table._files import scan
from escudo.table._schema import Schema

__all__ = ["open_data"]

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
    return connection.sql(f"SELECT * FROM {_quoted(schema or 'main')}.{_quoted(name)}")


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
