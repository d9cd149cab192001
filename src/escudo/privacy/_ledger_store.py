"""Where a ledger's rows live: a SQLite file or a PostgreSQL database, through SQLAlchemy.

Two tables: ``escudo_ledger`` (the rows) and ``escudo_ledger_head`` (one record: format, number of rows, hash of the
last one), written in the same transaction. A writer first locks: SQLite by BEGIN IMMEDIATE, PostgreSQL by SELECT ...
FOR UPDATE on the head record. A commit is on disk before it returns (SQLite: write-ahead log with synchronous=FULL;
PostgreSQL: synchronous_commit is never off).
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import sqlalchemy as sa

from escudo.errors import LedgerCorruptError, LedgerError
from escudo.privacy._account import now
from escudo.privacy._ledger_chain import GENESIS, Kind, LedgerRow, make_row
from escudo.privacy._ledger_errors import DAMAGED, explained
from escudo.privacy._ledger_url import parse_url

__all__ = ["FORMAT", "Session", "Store"]

FORMAT = 1
"""Version of the tables and of the hash; a reader refuses any other."""

_METADATA = sa.MetaData()
_ROWS = sa.Table(
    "escudo_ledger",
    _METADATA,
    sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("recorded_at", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
_HEAD = sa.Table(
    "escudo_ledger_head",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
# Built once: composing a statement takes longer than running it.
_READ_HEAD = sa.select(_HEAD.c.format, _HEAD.c.rows, _HEAD.c.hash)
_LOCK_HEAD = _READ_HEAD.with_for_update()
_ADD_ROW = sa.insert(_ROWS)
_MOVE_HEAD = (
    sa.update(_HEAD)
    .where(_HEAD.c.rows == sa.bindparam("rows_before"), _HEAD.c.hash == sa.bindparam("hash_before"))
    .values(rows=sa.bindparam("rows_now"), hash=sa.bindparam("hash_now"))
)
_CREATION_LOCK = 0x65736375646F  # any fixed number: only escudo's table creation takes this PostgreSQL advisory lock
_BATCH = 1000
_SMALLEST_DATABASE = 512


class Session:
    """One transaction on the store: reads what is there, and appends.

    Attributes:
        rows_recorded: How many rows there are, those added here included.
        head: The hash of the last of them.
        added: The rows that were added here.
    """

    def __init__(self, connection: sa.Connection, *, for_update: bool):
        self._connection = connection
        self.added: list[LedgerRow] = []
        records = connection.execute(_LOCK_HEAD if for_update else _READ_HEAD).all()
        if len(records) != 1:
            raise LedgerCorruptError(f"the head record is {'missing' if not records else 'there more than once'}.")
        version, self.rows_recorded, self.head = records[0]
        if [type(value) for value in records[0]] != [int, int, str]:
            raise LedgerCorruptError("the head record was edited.")
        if version != FORMAT:
            raise LedgerError(
                f"it is in format {version}; this escudo reads format {FORMAT}. Install the escudo that wrote it."
            )

    def rows(self, *, after: int = 0, dataset: str | None = None) -> Iterator[LedgerRow]:
        """Yield the rows numbered above ``after`` in order, of one dataset or of all."""
        query = sa.select(_ROWS).order_by(_ROWS.c.sequence).limit(_BATCH)
        if dataset is not None:
            query = query.where(_ROWS.c.dataset == dataset)
        while batch := self._connection.execute(query.where(_ROWS.c.sequence > after)).all():
            for record in batch:
                yield _row(record)
            after = batch[-1].sequence

    def row(self, sequence: int) -> LedgerRow | None:
        """Return one row, or None if there is no such row."""
        record = self._connection.execute(sa.select(_ROWS).where(_ROWS.c.sequence == sequence)).one_or_none()
        return None if record is None else _row(record)

    def append(self, kind: Kind, dataset: str, payload: Mapping[str, Any]) -> LedgerRow:
        """Add a row at the end, which counts once the transaction is committed, and move the head to it."""
        row = make_row(
            previous=self.head,
            sequence=self.rows_recorded + 1,
            kind=kind,
            dataset=dataset,
            payload=payload,
            recorded_at=now(),
        )
        self._connection.execute(_ADD_ROW, row.as_stored())
        moved = self._connection.execute(
            _MOVE_HEAD,
            {
                "rows_before": row.sequence - 1,
                "hash_before": row.previous,
                "rows_now": row.sequence,
                "hash_now": row.hash,
            },
        )
        assert moved.rowcount == 1, "a writer holds the lock on the head it read"
        self.rows_recorded, self.head = row.sequence, row.hash
        self.added.append(row)
        return row


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
        self.lock = threading.RLock()
        self._engine: sa.Engine | None = None
        self._file: tuple[int, int] | None = None
        self._checked = False
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

    def create(self) -> None:
        """Make the tables unless they are there."""
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
                    _METADATA.create_all(connection)
                    connection.execute(sa.insert(_HEAD), {"id": 1, "format": FORMAT, "rows": 0, "hash": GENESIS})
            self._checked = True

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session that sees one consistent state."""
        with self.lock, self._explained(), self._transaction() as connection:
            yield Session(connection, for_update=False)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session that no other writer overlaps; it is committed durably at the end, or not at all."""
        with self.lock, self._explained(), self._transaction(write=True) as connection:
            yield Session(connection, for_update=True)

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[sa.Connection]:
        if self.path is not None:
            self._file_size()
        if self._engine is None:
            self._engine = self._sqlite_engine(self.path) if self.path is not None else self._postgresql_engine()
        options: dict[str, Any] = {"escudo_write": write}
        if self.path is None:
            options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

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
        ours = {_ROWS.name, _HEAD.name}
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
                connection.execute("PRAGMA foreign_keys = ON")
            except BaseException:
                connection.close()
                raise
            return connection

        engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.QueuePool)

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            write = connection.get_execution_options().get("escudo_write")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

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
            cursor.execute("SHOW synchronous_commit")
            if cursor.fetchone()[0] == "off":
                cursor.execute("SET synchronous_commit = on")
            cursor.execute(f"SET lock_timeout = {max(1, round(self._timeout * 1000))}")
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


def _row(record: sa.Row[Any]) -> LedgerRow:
    return LedgerRow(
        sequence=record.sequence,
        kind=cast(Kind, record.kind),
        dataset=record.dataset,
        text=record.payload,
        recorded_at=record.recorded_at,
        previous=record.previous,
        hash=record.hash,
    )


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
