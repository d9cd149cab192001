"""Which database a ledger's URL names."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from escudo.errors import LedgerError

__all__ = ["parse_url"]


def parse_url(url: str) -> tuple[sa.URL | None, Path | None]:
    """Return the URL of a PostgreSQL database, or the path of a SQLite file; the other is None.

    Messages never repeat the URL, because it may hold a password.
    """
    forms = "Use sqlite:///path/to/ledger.db or postgresql://user:password@host/database."
    if not isinstance(url, str):
        raise LedgerError(f"A ledger is named by a URL; got {type(url).__name__}. {forms}")
    if not url.isprintable():
        raise LedgerError(f"The ledger's URL holds characters that cannot be shown; name the ledger otherwise. {forms}")
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise LedgerError(f"A ledger is named by a URL, not by a path. {forms}")
    scheme = scheme.lower()
    if scheme == "sqlite":
        return None, _sqlite_path(rest)
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise LedgerError(f"A ledger lives in SQLite or PostgreSQL, not {scheme!r:.30}. {forms}")
    try:
        return sa.make_url(f"postgresql+psycopg://{rest}"), None
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError(f"The ledger's URL cannot be read. {forms}") from None


def _sqlite_path(rest: str) -> Path:
    """Return the path after ``sqlite://``, taken literally and made absolute: it outlives a change of folder."""
    if rest and not rest.startswith("/"):
        raise LedgerError("A SQLite URL has three slashes before the path: sqlite:///ledger.db.")
    path = rest.removeprefix("/")
    if "?" in path:
        raise LedgerError("A SQLite ledger takes no options after '?': sqlite:///ledger.db.")
    if path in ("", ":memory:"):
        raise LedgerError(
            "A ledger must outlive the process; a SQLite database in memory does not. Name a file, "
            "sqlite:///ledger.db, or leave the ledger out to use an in-memory account."
        )
    return Path(path).absolute()
