"""One transaction on a ledger's tables: what it reads is checked, and what it adds follows what is there.

Three tables: ``escudo_ledger`` (the rows), ``escudo_ledger_account`` (one record per account, as it stands) and
``escudo_ledger_head`` (one record: format, id of the ledger, number of rows, hash of the last one), written in the same
transaction.

Whatever else hangs on these tables and could undo a row behind our back (triggers, rules, views, further indexes, row
security, children) is refused by the next writer.

On PostgreSQL rows are added by a function that runs with its owner's rights, so that the role that spends needs no
right to write a table: it can add rows, and can neither change, remove nor lower anything (``Store.grant``).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

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

__all__ = ["ACCOUNTS", "FORMAT", "HEAD", "MAKE", "POSTGRESQL", "ROWS", "Session", "first_rows", "marks"]

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
_ROW_COLUMNS = "sequence, kind, dataset, payload, charge, state, recorded_at, previous, hash"
_READ_ROWS = f"SELECT {_ROW_COLUMNS} FROM {ROWS}"
_ACCOUNT_COLUMNS = (
    "dataset, opened, opened_at, last, terms, pure, renyi, slack, spends, failed, not_for_release, trainings"
)
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in _ACCOUNT_COLUMNS.split(", ")[1:])

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

    def rows(self, *, after: int = 0, dataset: str | None = None, kind: Kind | None = None) -> Iterator[LedgerRow]:
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
            self._run(f"INSERT INTO {ACCOUNTS} ({_ACCOUNT_COLUMNS}) VALUES ({marks(12)})", _values(record))

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
            self._run(f"SELECT {ROWS}_append(?::json, ?::json)", (json.dumps(row.as_stored()), record))
        else:
            self._run(f"INSERT INTO {ROWS} ({_ROW_COLUMNS}) VALUES ({marks(9)})", tuple(row.as_stored().values()))
            if account is not None:
                self._run(
                    f"INSERT INTO {ACCOUNTS} ({_ACCOUNT_COLUMNS}) VALUES ({marks(12)}) "
                    f"ON CONFLICT (dataset) DO UPDATE SET {_CHANGED}",
                    _values(account),
                )
            move = f"UPDATE {HEAD} SET rows = ?, hash = ? WHERE rows = ? AND hash = ?"
            values = (row.sequence, row.hash, row.sequence - 1, row.previous)
            if cast(sqlite3.Connection, self._driver).execute(move, values).rowcount != 1:
                raise LedgerCorruptError("the head record changed while it was locked.")
        self.rows_recorded, self.head = row.sequence, row.hash
        self.added.append(row)


_NAMES = _ACCOUNT_COLUMNS.split(", ")


def marks(count: int) -> str:
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


def first_rows(connection: sa.Connection) -> list[LedgerRow]:
    found = connection.exec_driver_sql(
        f"SELECT sequence, kind, dataset, payload, '', '', recorded_at, previous, hash FROM {ROWS} ORDER BY sequence"
    )
    return [_row(record) for record in found.fetchall()]
