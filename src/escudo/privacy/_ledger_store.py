"""Where a ledger's rows live: a SQLite file or a PostgreSQL database, through SQLAlchemy.

A writer first locks: SQLite by BEGIN IMMEDIATE, PostgreSQL by SELECT ... FOR UPDATE on the head record. A commit is on
disk before it returns (SQLite: write-ahead log with synchronous=FULL; PostgreSQL: synchronous_commit is never off; that
the server itself waits for the disk, fsync and full_page_writes, is for its owner to see to, who is warned if not).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import sqlalchemy as sa

from escudo.errors import LedgerCorruptError, LedgerError, LedgerWarning
from escudo.privacy._ledger_chain import (
    LedgerRow,
    genesis,
)
from escudo.privacy._ledger_errors import DAMAGED, KEPT, explained
from escudo.privacy._ledger_session import (
    ACCOUNTS,
    FORMAT,
    HEAD,
    MAKE,
    POSTGRESQL,
    ROWS,
    Session,
    first_rows,
    marks,
)
from escudo.privacy._ledger_url import parse_url
from escudo.privacy._ledger_witness import Seen, Witness

__all__ = ["Store"]

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
                    self._make_tables(connection, ledger_id or secrets.token_hex(16), head=head)
            self._checked = True

    def _make_tables(self, connection: sa.Connection, ledger_id: str, rows: int = 0, head: str | None = None) -> None:
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
        with (
            self._explained(),
            self.held() as until,
            self._queued(until),
            self._transaction(write=True, until=until) as connection,
        ):
            old = first_rows(connection)
            for table in (ROWS, HEAD):
                connection.exec_driver_sql(f"DROP TABLE {table}")
            self._make_tables(connection, ledger_id, len(old), old[-1].hash if old else None)
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
        with (
            self._explained(),
            self.held(deadline) as until,
            self._queued(until),
            self._transaction(write=True, until=until) as connection,
        ):
            yield Session(connection, for_update=True)

    def _queued(self, until: float) -> AbstractContextManager[None]:
        return self.witness.queue(until, self._timeout) if self.path is not None else nullcontext()

    @contextmanager
    def _transaction(self, *, write: bool = False, until: float | None = None) -> Iterator[sa.Connection]:
        if self.path is not None:
            self._file_size()
        if self._engine is None:
            self._engine = self._sqlite_engine(self.path) if self.path is not None else self._postgresql_engine()
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
        def connect() -> sqlite3.Connection:
            # mode=rw: a file that is not there is an error, never created on the way.
            connection = sqlite3.connect(
                f"file:{quote(os.fsencode(path))}?mode=rw",
                uri=True,
                timeout=self._timeout,
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
            wait = self._timeout if until is None else max(0.0, until - time.monotonic())
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

        @sa.event.listens_for(engine, "connect")
        def settings(connection: Any, _: object) -> None:
            cursor = connection.cursor()
            cursor.execute("SELECT name FROM pg_settings WHERE setting = 'off' AND name = ANY(%s)", [_DURABLE])
            off = {name for (name,) in cursor.fetchall()}
            if "synchronous_commit" in off:  # which is this connection's to decide
                cursor.execute("SET synchronous_commit = on")
            self._lax = sorted(off - {"synchronous_commit"})
            # Waiting for a row that others change one after the other is many waits: the whole of it is bounded.
            cursor.execute(f"SET lock_timeout = {max(1, round(self._timeout * 1000))}")
            cursor.execute(f"SET statement_timeout = {max(1, round(self._timeout * 1000))}")
            connection.commit()

        return engine

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self.lock:
            if self._engine is not None:
                self._engine.dispose()
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
