"""Where a ledger's rows live: a SQLite file or a PostgreSQL database, through SQLAlchemy.

Three tables: ``escudo_ledger`` (the rows), ``escudo_ledger_account`` (one record per account, as it stands) and
``escudo_ledger_head`` (one record: format, id of the ledger, number of rows, hash of the last one), written in the same
transaction. A writer first locks: SQLite by BEGIN IMMEDIATE, PostgreSQL by SELECT ... FOR UPDATE on the head record. A
commit is on disk before it returns (SQLite: write-ahead log with synchronous=FULL; PostgreSQL: synchronous_commit is
never off).

Whatever else hangs on these tables and could undo a row behind our back (triggers, rules, views, further indexes, row
security, children) is refused by the next writer.

On PostgreSQL rows are added by a function that runs with its owner's rights, so that the role that spends needs no
right to write a table: it can add rows, and can neither change, remove nor lower anything (``Store.grant``).
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import sqlalchemy as sa

from escudo.errors import LedgerCorruptError, LedgerError
from escudo.privacy._account import now
from escudo.privacy._filter import Charge
from escudo.privacy._ledger_chain import (
    FIRST_GENESIS,
    AccountRecord,
    Kind,
    LedgerRow,
    genesis,
    make_row,
    require_whole,
    state_of,
)
from escudo.privacy._ledger_errors import DAMAGED, explained
from escudo.privacy._ledger_url import parse_url
from escudo.privacy._ledger_witness import Seen, Witness

__all__ = ["FORMAT", "Session", "Store"]

FORMAT = 2
"""Version of the tables and of the hash; a reader refuses any other."""

_ROWS, _ACCOUNTS, _HEAD = "escudo_ledger", "escudo_ledger_account", "escudo_ledger_head"
_INDEX = "escudo_ledger_by_dataset"
_MAKE = {
    _ROWS: f"CREATE TABLE {_ROWS} (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, "
    "payload TEXT NOT NULL, charge TEXT NOT NULL, state TEXT NOT NULL, recorded_at TEXT NOT NULL, "
    "previous TEXT NOT NULL, hash TEXT NOT NULL)",
    _INDEX: f"CREATE INDEX {_INDEX} ON {_ROWS} (dataset, kind, sequence)",
    _ACCOUNTS: f"CREATE TABLE {_ACCOUNTS} (dataset TEXT PRIMARY KEY, opened INTEGER NOT NULL, opened_at TEXT NOT NULL, "
    "last INTEGER NOT NULL, terms TEXT NOT NULL, pure TEXT, renyi TEXT NOT NULL, slack TEXT NOT NULL, "
    "spends INTEGER NOT NULL, failed INTEGER NOT NULL, not_for_release INTEGER NOT NULL, trainings TEXT NOT NULL)",
    _HEAD: f"CREATE TABLE {_HEAD} (id INTEGER PRIMARY KEY, format INTEGER NOT NULL, ledger_id TEXT NOT NULL, "
    "rows INTEGER NOT NULL, hash TEXT NOT NULL)",
}
_ROW_COLUMNS = "sequence, kind, dataset, payload, charge, state, recorded_at, previous, hash"
_ACCOUNT_COLUMNS = (
    "dataset, opened, opened_at, last, terms, pure, renyi, slack, spends, failed, not_for_release, trainings"
)
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in _ACCOUNT_COLUMNS.split(", ")[1:])

# Adding a row on PostgreSQL, for whoever may call it: it must follow the last one, and no sum may fall.
_POSTGRESQL = (
    f"""CREATE FUNCTION {_ROWS}_lock() RETURNS SETOF {_HEAD} LANGUAGE sql SECURITY DEFINER SET search_path = {{schema}},
    pg_temp AS $$ SELECT * FROM {_HEAD} FOR UPDATE $$""",
    f"""CREATE FUNCTION {_ROWS}_append(r json, a json) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = {{schema}}, pg_temp AS $$
    DECLARE h RECORD; o RECORD;
    BEGIN
      SELECT * INTO STRICT h FROM {_HEAD} FOR UPDATE;
      IF h.rows + 1 <> (r->>'sequence')::bigint OR h.hash <> r->>'previous' THEN
        RAISE EXCEPTION 'the row does not follow the last one' USING ERRCODE = 'check_violation';
      END IF;
      INSERT INTO {_ROWS} SELECT (r->>'sequence')::bigint, r->>'kind', r->>'dataset', r->>'payload', r->>'charge',
        r->>'state', r->>'recorded_at', r->>'previous', r->>'hash';
      IF a IS NOT NULL THEN
        SELECT * INTO o FROM {_ACCOUNTS} WHERE dataset = a->>'dataset';
        IF FOUND AND (o.terms <> a->>'terms' OR o.opened <> (a->>'opened')::bigint OR (a->>'last')::bigint <= o.last
            OR (a->>'renyi')::numeric < o.renyi::numeric OR (a->>'slack')::numeric < o.slack::numeric
            OR (a->>'pure')::numeric < o.pure::numeric OR (o.pure IS NULL AND a->>'pure' IS NOT NULL)
            OR (a->>'spends')::bigint < o.spends) THEN
          RAISE EXCEPTION 'a sum would fall' USING ERRCODE = 'check_violation';
        END IF;
        INSERT INTO {_ACCOUNTS} SELECT a->>'dataset', (a->>'opened')::bigint, a->>'opened_at', (a->>'last')::bigint,
          a->>'terms', a->>'pure', a->>'renyi', a->>'slack', (a->>'spends')::bigint, (a->>'failed')::bigint,
          (a->>'not_for_release')::bigint, a->>'trainings'
          ON CONFLICT (dataset) DO UPDATE SET {_CHANGED};
      END IF;
      UPDATE {_HEAD} SET rows = h.rows + 1, hash = r->>'hash';
    END $$""",
    f"REVOKE ALL ON FUNCTION {_ROWS}_lock(), {_ROWS}_append(json, json) FROM PUBLIC",
)
# What hangs on our tables on PostgreSQL, one row each; nothing should.
_FOREIGN_POSTGRESQL = f"""
    WITH ours AS (SELECT oid, relname, relkind, relpersistence, relrowsecurity FROM pg_class
                  WHERE oid IN (to_regclass('{_ROWS}'), to_regclass('{_ACCOUNTS}'), to_regclass('{_HEAD}')))
    SELECT 'the trigger ' || tgname FROM pg_trigger, ours WHERE tgrelid = ours.oid AND NOT tgisinternal
    UNION ALL SELECT 'the rule ' || rulename FROM pg_rewrite, ours WHERE ev_class = ours.oid
    UNION ALL SELECT 'a table that inherits from ' || relname FROM pg_inherits, ours WHERE inhparent = ours.oid
    UNION ALL SELECT relname || ', which is no plain table' FROM ours
              WHERE relkind <> 'r' OR relpersistence <> 'p' OR relrowsecurity
"""
_CREATION_LOCK = 0x65736375646F  # any fixed number: only escudo's table creation takes this PostgreSQL advisory lock
_BATCH = 1000
_SMALLEST_DATABASE = 512


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
        records = self._run(f"SELECT * FROM {_ROWS}_lock()" if lock else f"SELECT * FROM {_HEAD}")
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
        beyond = self._run(f"SELECT max(sequence) FROM {_ROWS}")[0][0]
        if (beyond or 0) > rows:
            raise LedgerCorruptError(f"row {rows + 1} was added by other means than escudo.")
        if not rows:
            if self.accounts or self.head not in (genesis(self.ledger_id), FIRST_GENESIS):
                raise LedgerCorruptError("row 1 is missing: all rows were removed.")
            return
        last = self.row(rows)
        if last is None:
            raise LedgerCorruptError(f"row {(beyond or 0) + 1} is missing: the rows at the end were removed.")
        require_whole(last, sequence=rows)
        if last.hash != self.head:
            raise LedgerCorruptError(f"row {rows} is not the one that the head record names.")
        if last.state != state_of(self._digests):
            raise LedgerCorruptError(f"row {rows} says another state of the accounts: an account was edited.")

    def read_accounts(self) -> None:
        """Read all accounts as they are stored, without checking them."""
        found = self._run(f"SELECT {_ACCOUNT_COLUMNS} FROM {_ACCOUNTS}")
        self.accounts = {record[0]: _account(record) for record in found}

    def require_nothing_foreign(self) -> None:
        """Raise if something that is not ours hangs on the tables: it could undo a spend after it was granted."""
        if self._postgresql:
            found = [str(record[0]) for record in self._run(_FOREIGN_POSTGRESQL)]
        else:
            there = {(name, sql) for _, name, sql in self._run("SELECT type, name, sql FROM sqlite_master")}
            ours = {*_MAKE.items(), (f"sqlite_autoindex_{_ACCOUNTS}_1", None)}
            if {name for name, _ in there} < set(_MAKE):
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

    def rows(self, *, after: int = 0, dataset: str | None = None, kind: Kind | None = None) -> Iterator[LedgerRow]:
        """Yield the rows numbered above ``after`` in order, of one dataset or of all, of one kind or of all."""
        given = [("dataset", dataset), ("kind", kind)]
        where = "".join(f" AND {name} = ?" for name, value in given if value is not None)
        values = tuple(value for _, value in given if value is not None)
        query = f"SELECT {_ROW_COLUMNS} FROM {_ROWS} WHERE sequence > ?{where} ORDER BY sequence LIMIT {_BATCH}"
        while batch := self._run(query, (after, *values)):
            for record in batch:
                yield _row(record)
            after = batch[-1][0]

    def row(self, sequence: int) -> LedgerRow | None:
        """Return one row, or None if there is no such row."""
        found = self._run(f"SELECT {_ROW_COLUMNS} FROM {_ROWS} WHERE sequence = ?", (sequence,))
        return _row(found[0]) if found else None

    def account(self, dataset: str) -> AccountRecord | None:
        """Return one account as it is stored now."""
        found = self._run(f"SELECT {_ACCOUNT_COLUMNS} FROM {_ACCOUNTS} WHERE dataset = ?", (dataset,))
        return _account(found[0]) if found else None

    def seed(self, accounts: Mapping[str, AccountRecord]) -> None:
        """Write the accounts of a ledger that had none."""
        self.accounts = dict(accounts)
        self._digests = {name: record.digest for name, record in accounts.items()}
        for record in accounts.values():
            self._run(f"INSERT INTO {_ACCOUNTS} ({_ACCOUNT_COLUMNS}) VALUES ({_marks(12)})", _values(record))

    def append(
        self,
        kind: Kind,
        dataset: str,
        payload: Mapping[str, Any],
        *,
        account: AccountRecord | None = None,
        charge: Charge | None = None,
        recorded_at: str | None = None,
    ) -> LedgerRow:
        """Add a row at the end, which counts once the transaction is committed, and move account and head to it.

        Args:
            kind: What it is.
            dataset: Name of the account.
            payload: What it says.
            account: The account after it; its ``last`` is set here.
            charge: What a spend is charged with.
            recorded_at: When; now by default.
        """
        sequence = self.rows_recorded + 1
        if account is not None:
            account = replace(account, last=sequence)
            self.accounts[dataset], self._digests[dataset] = account, account.digest
        row = make_row(
            previous=self.head,
            sequence=sequence,
            kind=kind,
            dataset=dataset,
            payload=payload,
            charge=charge,
            state=state_of(self._digests),
            recorded_at=recorded_at or now(),
        )
        self.put(row, account)
        return row

    def put(self, row: LedgerRow, account: AccountRecord | None) -> None:
        """Add a row as it is, with the account after it."""
        if self._postgresql:
            record = None if account is None else json.dumps(dict(zip(_NAMES, _values(account), strict=True)))
            self._run(f"SELECT {_ROWS}_append(?::json, ?::json)", (json.dumps(row.as_stored()), record))
        else:
            self._run(f"INSERT INTO {_ROWS} ({_ROW_COLUMNS}) VALUES ({_marks(9)})", tuple(row.as_stored().values()))
            if account is not None:
                self._run(
                    f"INSERT INTO {_ACCOUNTS} ({_ACCOUNT_COLUMNS}) VALUES ({_marks(12)}) "
                    f"ON CONFLICT (dataset) DO UPDATE SET {_CHANGED}",
                    _values(account),
                )
            move = f"UPDATE {_HEAD} SET rows = ?, hash = ? WHERE rows = ? AND hash = ?"
            values = (row.sequence, row.hash, row.sequence - 1, row.previous)
            if cast(sqlite3.Connection, self._driver).execute(move, values).rowcount != 1:
                raise LedgerCorruptError("the head record changed while it was locked.")
        self.rows_recorded, self.head = row.sequence, row.hash
        self.added.append(row)


_NAMES = _ACCOUNT_COLUMNS.split(", ")


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _values(account: AccountRecord) -> tuple[object, ...]:
    pure, renyi, slack = account.spent
    return (
        account.dataset,
        account.opened,
        account.opened_at,
        account.last,
        account.terms,
        None if pure is None else str(pure),
        str(renyi),
        str(slack),
        account.spends,
        account.failed,
        account.not_for_release,
        account.trainings,
    )


def _account(record: Any) -> AccountRecord:
    dataset, opened, opened_at, last, terms, pure, renyi, slack, *counts, trainings = record
    try:
        spent = Charge(None if pure is None else int(pure), int(renyi), int(slack))
        spends, failed, not_for_release = (int(count) for count in counts)
    except (TypeError, ValueError):
        raise LedgerCorruptError("an account was edited: it is no record that escudo writes.") from None
    return AccountRecord(
        dataset=dataset,
        opened=opened,
        opened_at=opened_at,
        last=last,
        terms=terms,
        spent=spent,
        spends=spends,
        failed=failed,
        not_for_release=not_for_release,
        trainings=trainings,
    )


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
        for name, statement in _MAKE.items():
            if self.path is None:
                statement = statement.replace("INTEGER", "BIGINT")
                statement += {_HEAD: " WITH (fillfactor = 20)", _ACCOUNTS: " WITH (fillfactor = 50)"}.get(name, "")
            connection.exec_driver_sql(statement)
        mark = "?" if self.path is not None else "%s"
        connection.exec_driver_sql(
            f"INSERT INTO {_HEAD} VALUES (1, {FORMAT}, {mark}, {mark}, {mark})",
            (ledger_id, rows, genesis(ledger_id) if head is None else head),
        )
        if self.path is None:
            schema = connection.exec_driver_sql("SELECT quote_ident(current_schema())").scalar()
            for function in _POSTGRESQL:
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
            connection.exec_driver_sql(f"GRANT SELECT ON {_ROWS}, {_ACCOUNTS}, {_HEAD} TO {name}")
            connection.exec_driver_sql(
                f"GRANT EXECUTE ON FUNCTION {_ROWS}_lock(), {_ROWS}_append(json, json) TO {name}"
            )

    def first_format(self) -> list[LedgerRow] | None:
        """Return all rows of a ledger of format 1, or None if it is of another."""
        with self.lock, self._explained(), self._transaction() as connection:
            if connection.exec_driver_sql(f"SELECT * FROM {_HEAD}").fetchall()[0][1] != 1:
                return None
            return _first_rows(connection)

    @contextmanager
    def upgrading(self, ledger_id: str) -> Iterator[Session]:
        """Give a session on tables of the present format that hold the rows of format 1, in one transaction."""
        with self.lock, self._explained(), self._queued(), self._transaction(write=True) as connection:
            old = _first_rows(connection)
            for table in (_ROWS, _HEAD):
                connection.exec_driver_sql(f"DROP TABLE {table}")
            self._make_tables(connection, ledger_id, len(old), old[-1].hash if old else None)
            marks = _marks(9) if self.path is not None else _marks(9).replace("?", "%s")
            for row in old:
                connection.exec_driver_sql(f"INSERT INTO {_ROWS} VALUES ({marks})", tuple(row.as_stored().values()))
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
    def writing(self) -> Iterator[Session]:
        """Give a session that no other writer overlaps; it is committed durably at the end, or not at all."""
        with self.lock, self._explained(), self._queued(), self._transaction(write=True) as connection:
            yield Session(connection, for_update=True)

    def _queued(self) -> AbstractContextManager[None]:
        return self.witness.queue(self._timeout) if self.path is not None else nullcontext()

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
        ours = {_ROWS, _HEAD}
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


def _row(record: Any) -> LedgerRow:
    sequence, kind, dataset, payload, charge, state, recorded_at, previous, digest = record
    return LedgerRow(
        sequence=sequence,
        kind=kind,
        dataset=dataset,
        text=payload,
        charge=charge,
        state=state,
        recorded_at=recorded_at,
        previous=previous,
        hash=digest,
    )


def _first_rows(connection: sa.Connection) -> list[LedgerRow]:
    found = connection.exec_driver_sql(
        f"SELECT sequence, kind, dataset, payload, '', '', recorded_at, previous, hash FROM {_ROWS} ORDER BY sequence"
    )
    return [_row(record) for record in found.fetchall()]


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
