"""Where a ledger's rows live: a SQLite file or a PostgreSQL database, through SQLAlchemy.

A writer first locks: SQLite by BEGIN IMMEDIATE, PostgreSQL by SELECT ... FOR UPDATE on the head record. A commit is on
disk before it returns (SQLite: write-ahead log with synchronous=FULL; PostgreSQL: synchronous_commit is never off; that
the server itself waits for the disk, fsync and full_page_writes, is for its owner to see to, who is warned if not).

In one transaction what is read is checked, and what is added follows what is there. Three tables: ``escudo_ledger``
(the rows), ``escudo_ledger_account`` (one record per account, as it stands) and ``escudo_ledger_head`` (one record:
format, id of the ledger, number of rows, hash of the last one), written in the same transaction.

Whatever else hangs on these tables and could undo a row behind our back (triggers, rules, views, further indexes, row
security, children) is refused by the next writer.

On PostgreSQL rows are added by a function that runs with its owner's rights, so that the role that spends needs no
right to write a table: it can add rows, and can neither change, remove nor lower anything (``Store.grant``).

What goes wrong with a database is said in words: which ledger, what happened, what to do.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, quote_plus

import sqlalchemy as sa

from escudo.errors import LedgerCorruptError, LedgerError, LedgerWarning
from escudo.privacy._account import now
from escudo.privacy._filter import Charge
from escudo.privacy._ledger_chain import (
    ACCOUNT_COLUMNS,
    FIRST_GENESIS,
    ROW_COLUMNS,
    AccountRecord,
    Kind,
    LedgerRow,
    canonical_json,
    charge_text,
    genesis,
    require_whole,
    sealed,
    state_of,
)
from escudo.privacy._ledger_witness import KEPT, NOTHING, Seen, Witness


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


FORMAT = 2
"""Version of the tables and of the hash; a reader refuses any other."""


ROWS, ACCOUNTS, HEAD = "escudo_ledger", "escudo_ledger_account", "escudo_ledger_head"
_INDEX = "escudo_ledger_by_dataset"
MAKE = {
    ROWS: f"CREATE TABLE {ROWS} (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, "
    "payload TEXT NOT NULL, charge TEXT NOT NULL, state TEXT NOT NULL, recorded_at TEXT NOT NULL, "
    "previous TEXT NOT NULL, hash TEXT NOT NULL)",
    _INDEX: f"CREATE INDEX {_INDEX} ON {ROWS} (dataset, kind, sequence)",
    ACCOUNTS: f"CREATE TABLE {ACCOUNTS} (dataset TEXT PRIMARY KEY, opened INTEGER NOT NULL, opened_at TEXT NOT NULL, "
    "last INTEGER NOT NULL, terms TEXT NOT NULL, pure TEXT, renyi TEXT NOT NULL, slack TEXT NOT NULL, "
    "spends INTEGER NOT NULL, failed INTEGER NOT NULL, not_for_release INTEGER NOT NULL, trainings TEXT NOT NULL)",
    HEAD: f"CREATE TABLE {HEAD} (id INTEGER PRIMARY KEY, format INTEGER NOT NULL, ledger_id TEXT NOT NULL, "
    "rows INTEGER NOT NULL, hash TEXT NOT NULL)",
}
_ROW_COLUMNS, _ACCOUNT_COLUMNS = ", ".join(ROW_COLUMNS), ", ".join(ACCOUNT_COLUMNS)
_READ_ROWS = f"SELECT {_ROW_COLUMNS} FROM {ROWS}"
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in ACCOUNT_COLUMNS[1:])


# Adding a row on PostgreSQL, for whoever may call it: it must follow the last one, and no sum may fall.
POSTGRESQL = (
    f"""CREATE FUNCTION {ROWS}_lock() RETURNS SETOF {HEAD} LANGUAGE sql SECURITY DEFINER SET search_path = {{schema}},
    pg_temp AS $$ SELECT * FROM {HEAD} FOR UPDATE $$""",
    f"""CREATE FUNCTION {ROWS}_append(r json, a json) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = {{schema}}, pg_temp AS $$
    DECLARE h RECORD; o RECORD;
    BEGIN
      SELECT * INTO STRICT h FROM {HEAD} FOR UPDATE;
      IF h.rows + 1 <> (r->>'sequence')::bigint OR h.hash <> r->>'previous' THEN
        RAISE EXCEPTION 'the row does not follow the last one' USING ERRCODE = 'check_violation';
      END IF;
      INSERT INTO {ROWS} SELECT (r->>'sequence')::bigint, r->>'kind', r->>'dataset', r->>'payload', r->>'charge',
        r->>'state', r->>'recorded_at', r->>'previous', r->>'hash';
      IF a IS NOT NULL THEN
        SELECT * INTO o FROM {ACCOUNTS} WHERE dataset = a->>'dataset';
        IF FOUND AND (o.terms <> a->>'terms' OR o.opened <> (a->>'opened')::bigint OR (a->>'last')::bigint <= o.last
            OR (a->>'renyi')::numeric < o.renyi::numeric OR (a->>'slack')::numeric < o.slack::numeric
            OR (a->>'pure')::numeric < o.pure::numeric OR (o.pure IS NULL AND a->>'pure' IS NOT NULL)
            OR (a->>'spends')::bigint < o.spends) THEN
          RAISE EXCEPTION 'a sum would fall' USING ERRCODE = 'check_violation';
        END IF;
        INSERT INTO {ACCOUNTS} SELECT a->>'dataset', (a->>'opened')::bigint, a->>'opened_at', (a->>'last')::bigint,
          a->>'terms', a->>'pure', a->>'renyi', a->>'slack', (a->>'spends')::bigint, (a->>'failed')::bigint,
          (a->>'not_for_release')::bigint, a->>'trainings'
          ON CONFLICT (dataset) DO UPDATE SET {_CHANGED};
      END IF;
      UPDATE {HEAD} SET rows = h.rows + 1, hash = r->>'hash';
    END $$""",
    f"REVOKE ALL ON FUNCTION {ROWS}_lock(), {ROWS}_append(json, json) FROM PUBLIC",
)


# What hangs on our tables on PostgreSQL, one row each; nothing should.
_FOREIGN_POSTGRESQL = f"""
    WITH ours AS (SELECT oid, relname, relkind, relpersistence, relrowsecurity FROM pg_class
                  WHERE oid IN (to_regclass('{ROWS}'), to_regclass('{ACCOUNTS}'), to_regclass('{HEAD}')))
    SELECT 'the trigger ' || tgname FROM pg_trigger, ours WHERE tgrelid = ours.oid AND NOT tgisinternal
    UNION ALL SELECT 'the rule ' || rulename FROM pg_rewrite, ours WHERE ev_class = ours.oid
    UNION ALL SELECT 'a table that inherits from ' || relname FROM pg_inherits, ours WHERE inhparent = ours.oid
    UNION ALL SELECT relname || ', which is no plain table' FROM ours
              WHERE relkind <> 'r' OR relpersistence <> 'p' OR relrowsecurity
"""
_BATCH = 1000


class Session:
    """One transaction on the store: reads what is there, and appends.

    Attributes:
        ledger_id: Which ledger it is.
        rows_recorded: How many rows there are, those added here included.
        head: The hash of the last of them.
        accounts: Every account by dataset, as the last row says.
        added: The rows that were added here.
    """

    def __init__(self, connection: sa.Connection, *, for_update: bool, whole: bool = True):
        self._connection = connection
        self._postgresql = connection.dialect.name == "postgresql"
        self._driver = connection.connection.driver_connection
        self.added: list[LedgerRow] = []
        if for_update:
            self.require_nothing_foreign()
        lock = for_update and self._postgresql
        records = self._run(f"SELECT * FROM {ROWS}_lock()" if lock else f"SELECT * FROM {HEAD}")
        if len(records) != 1:
            raise LedgerCorruptError(f"the head record is {'missing' if not records else 'there more than once'}.")
        if type(records[0][1]) is not int:
            raise LedgerCorruptError("the head record was edited.")
        if records[0][1] != FORMAT:
            how = (
                "Bring it up to date with: escudo ledger upgrade."
                if records[0][1] == 1
                else "Install the escudo that wrote it."
            )
            raise LedgerError(f"it is in format {records[0][1]!r:.20}; this escudo reads format {FORMAT}. {how}")
        if [type(value) for value in records[0]] != [int, int, str, int, str]:
            raise LedgerCorruptError("the head record was edited.")
        self.ledger_id: str = records[0][2]
        self.rows_recorded: int = records[0][3]
        self.head: str = records[0][4]
        self.accounts: dict[str, AccountRecord] = {}
        self._digests: dict[str, str] = {}
        if whole:
            self._read_state()

    def _read_state(self) -> None:
        """Read all accounts and check them against the last row, and that against the head."""
        self.read_accounts()
        try:
            self._digests = {name: record.digest for name, record in self.accounts.items()}
        except (TypeError, ValueError):
            raise LedgerCorruptError("an account was edited: it is no record that escudo writes.") from None
        rows = self.rows_recorded
        end = [_row(row) for row in self._run(f"{_READ_ROWS} WHERE sequence >= ? ORDER BY sequence LIMIT 2", (rows,))]
        if end and end[-1].sequence > rows:
            raise LedgerCorruptError(f"row {rows + 1} was added by other means than escudo.")
        if not rows:
            if self.accounts or self.head not in (genesis(self.ledger_id), FIRST_GENESIS):
                raise LedgerCorruptError("row 1 is missing: all rows were removed.")
            return
        if not end:
            there = self._run(f"SELECT max(sequence) FROM {ROWS}")[0][0] or 0
            raise LedgerCorruptError(f"row {there + 1} is missing: the rows at the end were removed.")
        last = end[0]
        require_whole(last, sequence=rows)
        if last.hash != self.head:
            raise LedgerCorruptError(f"row {rows} is not the one that the head record names.")
        if last.state != state_of(self._digests):
            raise LedgerCorruptError(f"row {rows} says another state of the accounts: an account was edited.")

    def read_accounts(self) -> None:
        """Read all accounts as they are stored, without checking them."""
        found = self._run(f"SELECT {_ACCOUNT_COLUMNS} FROM {ACCOUNTS}")
        self.accounts = {record[0]: _account(record) for record in found}

    def require_nothing_foreign(self) -> None:
        """Raise if something that is not ours hangs on the tables: it could undo a spend after it was granted."""
        if self._postgresql:
            found = [str(record[0]) for record in self._run(_FOREIGN_POSTGRESQL)]
        else:
            there = {(name, sql) for _, name, sql in self._run("SELECT type, name, sql FROM sqlite_master")}
            ours = {*MAKE.items(), (f"sqlite_autoindex_{ACCOUNTS}_1", None)}
            if {name for name, _ in there} < set(MAKE):
                return  # older, or damaged: the head tells
            found = sorted(f"{name!r:.60}" for name, _ in there ^ ours)
        if found:
            raise LedgerCorruptError(
                f"something that escudo did not make hangs on its tables, or a part of them is gone: {found[0]}. It "
                "could undo a spend after it was granted. Remove it, and check the ledger with: escudo ledger verify."
            )

    def _run(self, statement: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        if not self._postgresql:  # the driver itself: it takes a tenth of the time
            return cast(sqlite3.Connection, self._driver).execute(statement, parameters).fetchall()
        given = (statement.replace("?", "%s"), parameters) if parameters else (statement,)
        result = self._connection.exec_driver_sql(*given)
        return list(result.fetchall()) if result.returns_rows else []

    def rows(self, after: int = 0, dataset: str | None = None, kind: Kind | None = None) -> Iterator[LedgerRow]:
        """Yield the rows numbered above ``after`` in order, of one dataset or of all, of one kind or of all."""
        given = [("dataset", dataset), ("kind", kind)]
        where = "".join(f" AND {name} = ?" for name, value in given if value is not None)
        values = tuple(value for _, value in given if value is not None)
        query = f"{_READ_ROWS} WHERE sequence > ?{where} ORDER BY sequence LIMIT {_BATCH}"
        while batch := self._run(query, (after, *values)):
            for record in batch:
                yield _row(record)
            after = batch[-1][0]

    def row(self, sequence: int) -> LedgerRow | None:
        """Return one row, or None if there is no such row."""
        found = self._run(f"{_READ_ROWS} WHERE sequence = ?", (sequence,))
        return _row(found[0]) if found else None

    def account(self, dataset: str) -> AccountRecord | None:
        """Return one account as it is stored now."""
        found = self._run(f"SELECT {_ACCOUNT_COLUMNS} FROM {ACCOUNTS} WHERE dataset = ?", (dataset,))
        return _account(found[0]) if found else None

    def seed(self, accounts: Mapping[str, AccountRecord]) -> None:
        """Write the accounts of a ledger that had none."""
        self.accounts = dict(accounts)
        self._digests = {name: record.digest for name, record in accounts.items()}
        for record in accounts.values():
            self._run(_INSERT_ACCOUNT, tuple(record.as_stored().values()))

    def next_row(self, kind: Kind, dataset: str, payload: Mapping[str, Any], charge: Charge | None = None) -> LedgerRow:
        """Return the row that comes next, for :meth:`append`, which says what it follows and what comes of it."""
        return LedgerRow(
            sequence=self.rows_recorded + 1,
            kind=kind,
            dataset=dataset,
            text=canonical_json(payload),
            charge="" if charge is None else charge_text(charge),
            state="",
            recorded_at=now(),
            previous="",
            hash="",
        )

    def append(self, row: LedgerRow, account: AccountRecord | None = None) -> LedgerRow:
        """Add a row at the end, which counts once the transaction is committed, and move account and head to it.

        Args:
            row: What comes next.
            account: The account after it.
        """
        if account is not None:
            self.accounts[row.dataset], self._digests[row.dataset] = account, account.digest
        whole = sealed(row, self.head, state_of(self._digests))
        self.put(whole, account)
        return whole

    def put(self, row: LedgerRow, account: AccountRecord | None) -> None:
        """Add a row as it is, with the account after it."""
        if self._postgresql:
            record = None if account is None else json.dumps(account.as_stored())
            self._run(f"SELECT {ROWS}_append(?::json, ?::json)", (json.dumps(row.as_stored()), record))
        else:
            self._run(f"INSERT INTO {ROWS} ({_ROW_COLUMNS}) VALUES ({marks(9)})", tuple(row.as_stored().values()))
            if account is not None:
                there = f" ON CONFLICT (dataset) DO UPDATE SET {_CHANGED}"
                self._run(_INSERT_ACCOUNT + there, tuple(account.as_stored().values()))
            move = f"UPDATE {HEAD} SET rows = ?, hash = ? WHERE rows = ? AND hash = ?"
            values = (row.sequence, row.hash, row.sequence - 1, row.previous)
            if cast(sqlite3.Connection, self._driver).execute(move, values).rowcount != 1:
                raise LedgerCorruptError("the head record changed while it was locked.")
        self.rows_recorded, self.head = row.sequence, row.hash
        self.added.append(row)


def marks(count: int) -> str:
    return ", ".join("?" * count)


_INSERT_ACCOUNT = f"INSERT INTO {ACCOUNTS} ({_ACCOUNT_COLUMNS}) VALUES ({marks(12)})"


def _account(record: Any) -> AccountRecord:
    return AccountRecord.from_stored(dict(zip(ACCOUNT_COLUMNS, record, strict=True)))


def _row(record: Any) -> LedgerRow:
    return LedgerRow.from_stored(dict(zip(ROW_COLUMNS, record, strict=True)))


def first_rows(connection: sa.Connection) -> list[LedgerRow]:
    found = connection.exec_driver_sql(
        f"SELECT sequence, kind, dataset, payload, '', '', recorded_at, previous, hash FROM {ROWS} ORDER BY sequence"
    )
    return [_row(record) for record in found.fetchall()]


_LOCKED = KEPT.replace("{who}", "another process has")
_READ_ONLY = f"it cannot be written: the file, its folder or its disk is read-only for you. {NOTHING}"
_FULL = f"the disk is full. {NOTHING} Free some space and try again."
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
        f"it cannot be opened: the file or its folder is missing, or may not be read and written by you. {NOTHING}",
    ),
    sqlite3.SQLITE_PERM: (LedgerError, _READ_ONLY),
    sqlite3.SQLITE_FULL: (LedgerError, _FULL),
    sqlite3.SQLITE_IOERR: (LedgerError, f"the disk could not be read or written; it may be full. {NOTHING}"),
    sqlite3.SQLITE_CORRUPT: (LedgerCorruptError, DAMAGED),
    sqlite3.SQLITE_NOTADB: (LedgerCorruptError, DAMAGED),
    sqlite3.SQLITE_ERROR: (LedgerCorruptError, _TABLES),
    sqlite3.SQLITE_CONSTRAINT: (LedgerCorruptError, _BEHIND),
}


# By PostgreSQL's SQLSTATE, whole or its class.
_POSTGRESQL: dict[str, tuple[type[LedgerError], str]] = {
    "55P03": (LedgerError, _LOCKED),
    "57014": (LedgerError, _LOCKED),
    "25006": (LedgerError, f"the database is read-only. {NOTHING}"),
    "42501": (LedgerError, f"this user may not do that: {{detail}}. {NOTHING}"),
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
        return LedgerError, _READ_ONLY if isinstance(error, PermissionError) else f"{{detail}}. {NOTHING}"
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:  # raised by Python: a text that is not UTF-8
            return LedgerCorruptError, _TABLES
        return _SQLITE.get(code & 0xFF, (LedgerError, f"{{detail}}. {NOTHING}"))
    state = getattr(error, "sqlstate", None) or ""
    for key in (state, state[:2]):
        if key in _POSTGRESQL:
            return _POSTGRESQL[key]
    return LedgerError, f"{{detail}}. {NOTHING}"


def _without(secrets: Sequence[str], text: str) -> str:
    for secret in secrets:
        for form in (secret, quote(secret), quote_plus(secret)):
            text = text.replace(form, "***")
    return text


_CREATION_LOCK = 0x65736375646F  # any fixed number: only escudo's table creation takes this PostgreSQL advisory lock
_SMALLEST_DATABASE = 512
_DURABLE = ["fsync", "full_page_writes", "synchronous_commit"]  # settings of PostgreSQL without which commits get lost


class Store:
    """A ledger's database. Nothing is opened before it is used, and nothing is created but by ``create``.

    One lock serialises the threads of a process; the database serialises processes. A fork waits for that lock and
    closes the connections, because neither SQLite's nor PostgreSQL's survive in two processes.

    Args:
        url: ``sqlite:///path``, ``postgresql://...`` or ``postgres://...``.
        timeout: Seconds to wait for another writer.
    """

    def __init__(self, url: str, *, timeout: float):
        self._timeout = timeout
        self._url, self.path = parse_url(url)
        if self._url is None:
            self.name, self._secrets = f"sqlite:///{self.path}", []
        else:
            # The query may hold a password too, so it is never shown.
            self.name = self._url.set(drivername="postgresql", password=None, query={}).render_as_string()
            self._secrets = [str(value) for value in (self._url.password, self._url.query.get("password")) if value]
        place = self.name if self._url is None else self._url.set(password=None).render_as_string()
        self.witness = Witness(_without_secrets(place, self._secrets))
        self.lock = threading.RLock()
        self._engine: sa.Engine | None = None
        self._file: tuple[int, int] | None = None
        self._checked = False
        self._lax: list[str] = []  # what the server should have switched on
        self._warned = False
        _STORES.add(self)

    def exists(self) -> bool:
        """Return whether there is a ledger; an empty file is none yet."""
        with self.lock, self._explained():
            if self.path is not None and not self._file_size():
                return False
            if not self._checked:
                with self._transaction() as connection:
                    self._checked = self._has_tables(connection)
            return self._checked

    def create(self, ledger_id: str | None = None, *, head: str | None = None) -> None:
        """Make the tables unless they are there.

        Args:
            ledger_id: The id of a ledger that is put back; a new one by default.
            head: What its first row follows, then.
        """
        if self.exists():
            return
        with self.lock, self._explained():
            if self.path is not None:
                _make_private_file(self.path)
                self._use_write_ahead_log()
            with self._transaction(write=True) as connection:
                if self.path is None:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
                if not self._has_tables(connection):
                    self._make_tables(connection, ledger_id or secrets.token_hex(16), head)
            self._checked = True

    def _make_tables(self, connection: sa.Connection, ledger_id: str, head: str | None, rows: int = 0) -> None:
        for name, statement in MAKE.items():
            if self.path is None:
                statement = statement.replace("INTEGER", "BIGINT")
                statement += {HEAD: " WITH (fillfactor = 20)", ACCOUNTS: " WITH (fillfactor = 50)"}.get(name, "")
            connection.exec_driver_sql(statement)
        mark = "?" if self.path is not None else "%s"
        connection.exec_driver_sql(
            f"INSERT INTO {HEAD} VALUES (1, {FORMAT}, {mark}, {mark}, {mark})",
            (ledger_id, rows, genesis(ledger_id) if head is None else head),
        )
        if self.path is None:
            schema = connection.exec_driver_sql("SELECT quote_ident(current_schema())").scalar()
            for function in POSTGRESQL:
                connection.exec_driver_sql(function.format(schema=schema))
        if not rows:
            self.witness.start(ledger_id, Seen(0, genesis(ledger_id)))  # whoever sees the tables finds it

    def grant(self, role: str) -> None:
        """Let a PostgreSQL role read and spend, and nothing else.

        Raises:
            LedgerError: On SQLite, where the file's permissions decide.
        """
        if self.path is not None:
            raise LedgerError(
                "roles are PostgreSQL's; who may spend from a SQLite ledger is decided by the file's permissions."
            )
        with self.lock, self._explained(), self._transaction(write=True) as connection:
            name = connection.exec_driver_sql("SELECT quote_ident(%s)", (role,)).scalar()
            schema = connection.exec_driver_sql("SELECT quote_ident(current_schema())").scalar()
            connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
            connection.exec_driver_sql(f"GRANT SELECT ON {ROWS}, {ACCOUNTS}, {HEAD} TO {name}")
            connection.exec_driver_sql(f"GRANT EXECUTE ON FUNCTION {ROWS}_lock(), {ROWS}_append(json, json) TO {name}")

    def first_format(self) -> list[LedgerRow] | None:
        """Return all rows of a ledger of format 1, or None if it is of another."""
        with self.lock, self._explained(), self._transaction() as connection:
            if connection.exec_driver_sql(f"SELECT * FROM {HEAD}").fetchall()[0][1] != 1:
                return None
            return first_rows(connection)

    @contextmanager
    def upgrading(self, ledger_id: str) -> Iterator[Session]:
        """Give a session on tables of the present format that hold the rows of format 1, in one transaction."""
        with self._explained(), self._alone() as connection:
            old = first_rows(connection)
            for table in (ROWS, HEAD):
                connection.exec_driver_sql(f"DROP TABLE {table}")
            self._make_tables(connection, ledger_id, old[-1].hash if old else None, len(old))
            places = marks(9) if self.path is not None else marks(9).replace("?", "%s")
            for row in old:
                connection.exec_driver_sql(f"INSERT INTO {ROWS} VALUES ({places})", tuple(row.as_stored().values()))
            yield Session(connection, for_update=False, whole=False)

    @contextmanager
    def reading(self, *, whole: bool = True) -> Iterator[Session]:
        """Give a session that sees one consistent state.

        Args:
            whole: Whether to read the accounts and check them; False for a ledger that may be broken.
        """
        with self.lock, self._explained(), self._transaction() as connection:
            yield Session(connection, for_update=False, whole=whole)

    @contextmanager
    def held(self, deadline: float | None = None) -> Iterator[float]:
        """Let no other thread of this process in; give the time, by ``time.monotonic``, until which to wait for others.

        Args:
            deadline: Until when to wait, also for other threads; the store's timeout from now on by default.
        """
        deadline = time.monotonic() + self._timeout if deadline is None else deadline
        if not self.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            with self._explained():
                raise LedgerError(KEPT.format(who="other threads have", timeout=self._timeout))
        try:
            yield deadline
        finally:
            self.lock.release()

    @contextmanager
    def writing(self, deadline: float | None = None) -> Iterator[Session]:
        """Give a session that no other writer overlaps; it is committed durably at the end, or not at all.

        Other threads, the queue of processes and the database's lock are waited for one after the other, all of it
        until one deadline.
        """
        with self._explained(), self._alone(deadline) as connection:
            yield Session(connection, for_update=True)

    @contextmanager
    def _alone(self, deadline: float | None = None) -> Iterator[sa.Connection]:
        with self.held(deadline) as until:
            queue = self.witness.queue(until, self._timeout) if self.path is not None else nullcontext()
            with queue, self._transaction(write=True, until=until) as connection:
                yield connection

    @contextmanager
    def _transaction(self, *, write: bool = False, until: float | None = None) -> Iterator[sa.Connection]:
        if self.path is not None:
            self._file_size()
        if self._engine is None:
            self._engine = self._sqlite_engine(self.path) if self.path is not None else self._postgresql_engine()
            # A ledger that nobody closes is closed when it is collected; so the engine must not know the store.
            self._closed = weakref.finalize(self, self._engine.dispose)
        options: dict[str, Any] = {"escudo_write": write, "escudo_until": until}
        if self.path is None:
            options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            self._warn_of_lax_server()
            yield connection

    def _warn_of_lax_server(self) -> None:
        """Say, once, that the server may lose what it has confirmed."""
        if self._lax and not self._warned:
            self._warned = True
            off, on = (", ".join(f"{name} = {state}" for name in self._lax) for state in ("off", "on"))
            orders = " ".join(f"ALTER SYSTEM SET {name} = on;" for name in self._lax)
            warnings.warn(
                f"The PostgreSQL server of the ledger {self.name} runs with {off}: a power cut can take back spends "
                "that were granted, and their releases are out by then. This machine's witness would notice, but only "
                f"when the ledger is next used. Have the server run with {on} ({orders} SELECT pg_reload_conf();).",
                LedgerWarning,
                stacklevel=2,
            )

    def _file_size(self) -> int:
        """Return the size of the SQLite file, 0 if there is none, and let go of a file that was deleted or replaced.

        An open connection would go on writing to such a file, and what it writes would be lost. The file itself is
        never opened here: closing it again would drop the locks that SQLite holds on it for this process.

        Raises:
            LedgerCorruptError: If the file is too short for a database; SQLite would take it for an empty one.
        """
        assert self.path is not None, "this is a SQLite store"
        try:
            status = self.path.stat()
        except FileNotFoundError:
            status = None
        file = None if status is None else (status.st_dev, status.st_ino)
        if file != self._file:
            self.close()
            self._file = file
        size = 0 if status is None else status.st_size
        if 0 < size < _SMALLEST_DATABASE:
            raise LedgerCorruptError(DAMAGED)
        return size

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.name, secrets=self._secrets, timeout=self._timeout)

    def _has_tables(self, connection: sa.Connection) -> bool:
        tables = set(sa.inspect(connection).get_table_names())
        ours = {ROWS, HEAD}
        if tables >= ours:
            return True
        if tables & ours:
            raise LedgerCorruptError(f"the table {min(ours - tables)!r} was removed.")
        if tables and self.path is not None:
            raise LedgerError("this is another SQLite database, not a ledger. Name another file.")
        return False

    def _sqlite_engine(self, path: Path) -> sa.Engine:
        timeout = self._timeout

        def connect() -> sqlite3.Connection:
            # mode=rw: a file that is not there is an error, never created on the way.
            connection = sqlite3.connect(
                f"file:{quote(os.fsencode(path))}?mode=rw",
                uri=True,
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA trusted_schema = OFF")
            except BaseException:
                connection.close()
                raise
            return connection

        engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.QueuePool)

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            options = connection.get_execution_options()
            driver = cast(sqlite3.Connection, connection.connection.driver_connection)
            until = options.get("escudo_until")
            wait = timeout if until is None else max(0.0, until - time.monotonic())
            driver.execute(f"PRAGMA busy_timeout = {round(1000 * wait)}")
            driver.execute("BEGIN IMMEDIATE" if options.get("escudo_write") else "BEGIN")

        return engine

    def _use_write_ahead_log(self) -> None:
        """Switch an empty file to the write-ahead log; processes that create it at once may have to wait in turn."""
        deadline = time.monotonic() + self._timeout
        while True:
            with self._transaction() as connection:
                self._has_tables(connection)  # refuses another program's file before it is touched
            raw = cast(sa.Engine, self._engine).raw_connection()
            driver = cast(sqlite3.Connection, raw.driver_connection)
            try:
                driver.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            finally:
                raw.close()

    def _postgresql_engine(self) -> sa.Engine:
        try:
            import psycopg  # noqa: F401 - only to say what is missing
        except ImportError:
            raise LedgerError("it needs the PostgreSQL driver: pip install 'escudo[postgresql]'.") from None
        assert self._url is not None, "this is no SQLite store"
        arguments = {} if "connect_timeout" in self._url.query else {"connect_timeout": max(2, round(self._timeout))}
        engine = sa.create_engine(self._url, connect_args=arguments, pool_pre_ping=True)
        lax, wait = self._lax, max(1, round(self._timeout * 1000))

        @sa.event.listens_for(engine, "connect")
        def settings(connection: Any, _: object) -> None:
            cursor = connection.cursor()
            cursor.execute("SELECT name FROM pg_settings WHERE setting = 'off' AND name = ANY(%s)", [_DURABLE])
            off = {name for (name,) in cursor.fetchall()}
            if "synchronous_commit" in off:  # which is this connection's to decide
                cursor.execute("SET synchronous_commit = on")
            lax[:] = sorted(off - {"synchronous_commit"})
            # Waiting for a row that others change one after the other is many waits: the whole of it is bounded.
            cursor.execute(f"SET lock_timeout = {wait}")
            cursor.execute(f"SET statement_timeout = {wait}")
            connection.commit()

        return engine

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self.lock:
            if self._engine is not None:
                self._closed()
                self._engine = None

    def pause(self) -> None:
        """Wait for the transaction under way, close the connections, and let no thread start another."""
        self.lock.acquire()
        self.close()

    def resume(self) -> None:
        """Let threads go on."""
        self.lock.release()


def _make_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read, unless there is one; SQLite gives its side files the same mode.

    It gets its name once it is closed, because closing it later would drop the locks of a thread that uses it already.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(path.parent)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".escudo-")
    os.close(descriptor)
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _without_secrets(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "").replace(quote(secret), "")
    return text


_STORES: weakref.WeakSet[Store] = weakref.WeakSet()
_HELD: list[Store] = []


def _before_fork() -> None:
    for store in list(_STORES):
        store.pause()
        _HELD.append(store)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().resume()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
