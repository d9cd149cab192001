"""What goes wrong with a database, said in words: which ledger, what happened, what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

import sqlalchemy as sa

from escudo.errors import LedgerCorruptError, LedgerError

__all__ = ["DAMAGED", "KEPT", "explained"]

_NOTHING = "Nothing was recorded and nothing was released."
KEPT = f"{{who}} kept it locked for {{timeout:g}} s. {_NOTHING} Try again."
_LOCKED = KEPT.replace("{who}", "another process has")
_READ_ONLY = f"it cannot be written: the file, its folder or its disk is read-only for you. {_NOTHING}"
_FULL = f"the disk is full. {_NOTHING} Free some space and try again."
DAMAGED = "it is not a SQLite database, or it is damaged. Restore it from a backup, and count what was spent since."
_TABLES = "its tables are not those that escudo made."
_BEHIND = "a row was added to it by other means than escudo."
_LOST = (
    "the database cannot be reached: {detail}. Nothing was released. If the connection broke during a spend, "
    "'escudo ledger history' shows whether it was recorded."
)

# By SQLite's primary result code.
_SQLITE: dict[int, tuple[type[LedgerError], str]] = {
    sqlite3.SQLITE_BUSY: (LedgerError, _LOCKED),
    sqlite3.SQLITE_LOCKED: (LedgerError, _LOCKED),
    sqlite3.SQLITE_READONLY: (LedgerError, _READ_ONLY),
    sqlite3.SQLITE_CANTOPEN: (
        LedgerError,
        f"it cannot be opened: the file or its folder is missing, or may not be read and written by you. {_NOTHING}",
    ),
    sqlite3.SQLITE_PERM: (LedgerError, _READ_ONLY),
    sqlite3.SQLITE_FULL: (LedgerError, _FULL),
    sqlite3.SQLITE_IOERR: (LedgerError, f"the disk could not be read or written; it may be full. {_NOTHING}"),
    sqlite3.SQLITE_CORRUPT: (LedgerCorruptError, DAMAGED),
    sqlite3.SQLITE_NOTADB: (LedgerCorruptError, DAMAGED),
    sqlite3.SQLITE_ERROR: (LedgerCorruptError, _TABLES),
    sqlite3.SQLITE_CONSTRAINT: (LedgerCorruptError, _BEHIND),
}

# By PostgreSQL's SQLSTATE, whole or its class.
_POSTGRESQL: dict[str, tuple[type[LedgerError], str]] = {
    "55P03": (LedgerError, _LOCKED),
    "57014": (LedgerError, _LOCKED),
    "25006": (LedgerError, f"the database is read-only. {_NOTHING}"),
    "42501": (LedgerError, f"this user may not do that: {{detail}}. {_NOTHING}"),
    "53100": (LedgerError, _FULL),
    "08": (LedgerError, _LOST),
    "28": (LedgerError, _LOST),
    "3D": (LedgerError, _LOST),
    "57": (LedgerError, _LOST),
    "42": (LedgerCorruptError, _TABLES),
    "23": (LedgerCorruptError, _BEHIND),
    "": (LedgerError, _LOST),  # the driver's own: no connection
}


@contextmanager
def explained(name: str, *, secrets: Sequence[str], timeout: float) -> Iterator[None]:
    """Turn a database's errors into ledger errors that name the ledger and never show its password."""
    try:
        yield
    except LedgerError as error:
        raise type(error)(f"Ledger {name}: {error}") from error.__cause__
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        kind, message = _explanation(getattr(error, "orig", None) or error)
        detail = _without(secrets, " ".join(str(getattr(error, "orig", None) or error).split()).rstrip("."))
        # The cause is left out: a driver's own message is shown above, cleaned.
        raise kind(f"Ledger {name}: " + message.format(detail=detail, timeout=timeout)) from None


def _explanation(error: object) -> tuple[type[LedgerError], str]:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return LedgerError, "its folder does not exist. Make the folder first."
    if isinstance(error, IsADirectoryError):
        return LedgerError, "this is a folder. Name a file in it."
    if isinstance(error, OSError):
        return LedgerError, _READ_ONLY if isinstance(error, PermissionError) else f"{{detail}}. {_NOTHING}"
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:  # raised by Python: a text that is not UTF-8
            return LedgerCorruptError, _TABLES
        return _SQLITE.get(code & 0xFF, (LedgerError, f"{{detail}}. {_NOTHING}"))
    state = getattr(error, "sqlstate", None) or ""
    for key in (state, state[:2]):
        if key in _POSTGRESQL:
            return _POSTGRESQL[key]
    return LedgerError, f"{{detail}}. {_NOTHING}"


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        for form in (secret, quote(secret), quote_plus(secret)):
            text = text.replace(form, "***")
    return text
