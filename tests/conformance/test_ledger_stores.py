"""One suite for every store of the ledger: SQLite, and a real PostgreSQL server where one can be started."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from escudo.cli import main
from escudo.errors import BudgetExceededError, InputError, LedgerCorruptError, LedgerError, LedgerWarning
from escudo.privacy import GaussianEvent, Guarantee, Ledger, PureEvent, RepeatedEvent, _ledger_store
from escudo.privacy._ledger_chain import FIRST_GENESIS, Replay, canonical_json

STRICT = ["-W", "error", "-W", "ignore:The PostgreSQL server of the ledger"]  # as pytest here
STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


def new_database(server: sa.URL, *settings: str) -> sa.URL:
    name = f"ledger_{secrets.token_hex(6)}"
    with sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool).connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
        for setting in settings:
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET {setting}")
    return server.set(drivername="postgresql", database=name)


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger that does not exist yet, on each store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: sa.URL = request.getfixturevalue("server")
    schema = f"s_{secrets.token_hex(6)}"  # a schema is made and removed much faster than a database
    with sa.create_engine(server, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    own = server.set(drivername="postgresql", query={"options": f"-csearch_path={schema}"})
    return own.render_as_string(hide_password=False)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger(url) as ledger:
        yield ledger


@pytest.fixture
def tamper(url: str) -> Callable[..., None]:
    """Write to the database by other means than escudo."""

    def run(*statements: str) -> None:
        raw = url.replace("postgresql://", "postgresql+psycopg://", 1)
        engine = sa.create_engine(raw, poolclass=sa.NullPool)
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    return run


def spend_some(ledger: Ledger, count: int = 4) -> None:
    ledger.open("visits", epsilon=1.0, delta=1e-6)
    for number in range(count):
        ledger.spend("visits", PureEvent(epsilon=0.125), purpose=f"number {number}")


# -- one process


def test_a_spend_is_there_for_the_next_process(ledger: Ledger, url: str) -> None:
    ledger.open("visits", epsilon=1.0)
    receipt = ledger.spend("visits", PureEvent(epsilon=0.25), purpose="größer → ε", for_release=False)
    with Ledger(url) as other:
        row = other.history("visits")[-1]
        assert (row.sequence, row.hash, row.event) == (receipt.sequence, receipt.hash, receipt.event)
        assert row.payload["purpose"] == "größer → ε"
        assert row.payload["for_release"] is False
        assert other.total("visits").epsilon == 0.25
        assert other.head == ledger.head == receipt.hash
        assert other.verify().ok


def test_two_ledgers_on_one_store_see_each_others_spends(ledger: Ledger, url: str) -> None:
    ledger.open("visits", epsilon=1.0)
    with Ledger(url) as other:
        for spender, seen_by in ((ledger, other), (other, ledger)) * 2:
            before = spender.total("visits").epsilon
            spender.spend("visits", PureEvent(epsilon=0.25))
            assert seen_by.total("visits").epsilon == before + 0.25
        assert not other.fits("visits", PureEvent(epsilon=0.25))
        with pytest.raises(BudgetExceededError):
            ledger.spend("visits", PureEvent(epsilon=0.25))


def test_over_the_cap_nothing_changes(ledger: Ledger) -> None:
    spend_some(ledger, 7)
    head = ledger.head
    with pytest.raises(BudgetExceededError) as refused:
        ledger.spend("visits", PureEvent(epsilon=0.5))
    assert ledger.head == head
    assert refused.value.requested == pytest.approx(0.5, abs=1e-5)
    assert refused.value.cap == 1.0
    assert refused.value.spent <= 0.875
    assert refused.value.left >= 0.125
    assert ledger.verify().rows == 8


def test_what_remains_can_be_spent(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0, delta=1e-6)
    ledger.spend("visits", RepeatedEvent(event=GaussianEvent(l2_sensitivity=1.0, scale=60.0, grid=1.0), count=30))
    remaining = ledger.remaining("visits")
    assert 0 < remaining.epsilon < 0.8
    ledger.spend("visits", remaining)
    assert ledger.verify().ok
    assert ledger.remaining("visits").epsilon < 0.05 * remaining.epsilon


def test_a_failed_spend_stays_spent_and_is_marked_once(ledger: Ledger, url: str) -> None:
    ledger.open("visits", epsilon=1.0)
    receipt = ledger.spend("visits", PureEvent(epsilon=0.5))
    ledger.fail(receipt, "TimeoutError")
    ledger.fail(receipt, "again")
    with Ledger(url) as other:
        assert other.total("visits").epsilon == 0.5
        assert [row.kind for row in other.history()] == ["open", "spend", "failed"]
        assert other.history()[-1].payload == {"spend": receipt.sequence, "reason": "TimeoutError"}
        assert other.info("visits").failed == 1
        assert other.verify().ok


def test_opening_again_is_the_same_account_or_refused(ledger: Ledger, url: str) -> None:
    ledger.open("visits", epsilon=1.0, delta=1e-6)
    with Ledger(url) as other:
        assert other.open("visits", epsilon=1.0, delta=1e-6, relation="bounded").terms.epsilon == 1.0
        with pytest.raises(InputError, match=r"cap ε = 1.00, δ = 1e-06, replace one row"):
            other.open("visits", epsilon=2.0, delta=1e-6)
        assert other.verify().rows == 1


def test_a_reader_does_not_create_a_ledger(url: str) -> None:
    ledger = Ledger(url)
    for look in (lambda: ledger.head, ledger.verify, ledger.history, ledger.datasets, ledger.export):
        with pytest.raises(LedgerError, match="no ledger at"):
            look()
    with pytest.raises(LedgerError, match="no ledger at"):
        ledger.spend("visits", PureEvent(epsilon=1.0))
    ledger.open("visits", epsilon=1.0)
    assert ledger.verify().rows == 1
    ledger.close()


def test_the_password_is_shown_nowhere(ledger: Ledger) -> None:
    shown = [repr(ledger), ledger.name]
    with pytest.raises(LedgerError) as missing:
        ledger.verify()
    shown += [str(missing.value), repr(missing.value)]
    account = ledger.open("visits", epsilon=1.0)
    with pytest.raises(InputError) as unknown:
        ledger.account("visit")
    shown += [str(unknown.value), repr(account), ledger._repr_html_()]
    assert not [text for text in shown if "pa:ss" in text or "pa%3Ass" in text or "w/rd" in text]


# -- tampering


TAMPERINGS = {
    "edited payload": (["UPDATE escudo_ledger SET payload = replace(payload, '0.125', '0.001') WHERE sequence = 3"], 3),
    "edited time": (["UPDATE escudo_ledger SET recorded_at = '2020-01-01' WHERE sequence = 2"], 2),
    "moved to another dataset": (["UPDATE escudo_ledger SET dataset = 'other' WHERE sequence = 4"], 4),
    "unknown kind": (["UPDATE escudo_ledger SET kind = 'gift' WHERE sequence = 4"], 4),
    "removed": (["DELETE FROM escudo_ledger WHERE sequence = 3"], 3),
    "removed and renumbered": (
        [
            "DELETE FROM escudo_ledger WHERE sequence = 3",
            "UPDATE escudo_ledger SET sequence = 3 WHERE sequence = 4",
            "UPDATE escudo_ledger SET sequence = 4 WHERE sequence = 5",
            "UPDATE escudo_ledger_head SET rows = 4",
        ],
        3,
    ),
    "reordered": (
        [
            "UPDATE escudo_ledger SET sequence = 99 WHERE sequence = 3",
            "UPDATE escudo_ledger SET sequence = 3 WHERE sequence = 4",
            "UPDATE escudo_ledger SET sequence = 4 WHERE sequence = 99",
        ],
        3,
    ),
    "inserted": (
        [
            "INSERT INTO escudo_ledger SELECT 6, kind, dataset, payload, charge, state, recorded_at, previous, hash "
            "FROM escudo_ledger WHERE sequence = 5"
        ],
        6,
    ),
    "first removed": (["DELETE FROM escudo_ledger WHERE sequence = 1"], 1),
    "tail cut": (["DELETE FROM escudo_ledger WHERE sequence > 3"], 4),
    "emptied": (["DELETE FROM escudo_ledger"], 1),
    "head moved back": (["UPDATE escudo_ledger_head SET rows = 3"], 4),
    "head of another ledger": ([f"UPDATE escudo_ledger_head SET hash = '{'0' * 64}'"], 5),
}
# Other rows than the last are found by verify alone: a spend reads none of them.
FOUND_BY_A_SPEND = {"inserted", "tail cut", "emptied", "head moved back", "head of another ledger"} | {
    "removed and renumbered"
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_verify_finds_tampering_and_names_the_first_row(
    ledger: Ledger, url: str, tamper: Callable[..., None], what: str
) -> None:
    spend_some(ledger)
    assert ledger.verify().ok
    statements, row = TAMPERINGS[what]
    tamper(*statements)
    for reader in (ledger, Ledger(url)):
        found = reader.verify()
        assert not found.ok
        assert f"row {row} " in str(found.problem)
        reader.close()
    if what in FOUND_BY_A_SPEND:
        with Ledger(url) as fresh, pytest.raises(LedgerCorruptError):
            fresh.spend("visits", PureEvent(epsilon=0.125))


@pytest.mark.parametrize(
    "change",
    ["renyi = '0'", "pure = '0'", "spends = 0", "last = 2", "terms = replace(terms, '1.0', '9.0')", "trainings = '[]'"],
)
def test_an_edited_account_is_found_by_the_next_spend_and_by_verify(
    ledger: Ledger, url: str, tamper: Callable[..., None], change: str
) -> None:
    spend_some(ledger)
    tamper(f"UPDATE escudo_ledger_account SET {change} WHERE dataset = 'visits'")
    with Ledger(url) as fresh:
        with pytest.raises(LedgerCorruptError, match="an account was edited"):
            fresh.spend("visits", PureEvent(epsilon=0.125))
        assert "is not what its rows add up to" in str(fresh.verify().problem)


def triggers(url: str) -> dict[str, list[str]]:
    """Things that hang on the tables and undo a spend, or could."""
    undo = (
        "UPDATE escudo_ledger_account SET pure = '0', renyi = '0', spends = 0; "
        "UPDATE escudo_ledger_head SET rows = OLD.rows, hash = OLD.hash; DELETE FROM escudo_ledger WHERE sequence > 1;"
    )
    if url.startswith("sqlite"):
        return {
            "trigger": [f"CREATE TRIGGER t AFTER UPDATE OF rows ON escudo_ledger_head BEGIN {undo} END"],
            "view": ["CREATE VIEW v AS SELECT * FROM escudo_ledger"],
            "index": ["CREATE INDEX i ON escudo_ledger (hash)"],
            "index gone": ["DROP INDEX escudo_ledger_by_dataset"],
            "column": ["ALTER TABLE escudo_ledger ADD COLUMN more TEXT"],
        }
    function = (
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NEW.rows > OLD.rows THEN {undo} END IF; RETURN NULL; END $$"
    )
    return {
        "trigger": [function, "CREATE TRIGGER t AFTER UPDATE ON escudo_ledger_head FOR EACH ROW EXECUTE FUNCTION f()"],
        "deferred trigger": [
            function,
            "CREATE CONSTRAINT TRIGGER t AFTER UPDATE ON escudo_ledger_head DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION f()",
        ],
        "rule": ["CREATE RULE r AS ON UPDATE TO escudo_ledger_head DO INSTEAD NOTHING"],
        "child": ["CREATE TABLE child () INHERITS (escudo_ledger)"],
        "row security": ["ALTER TABLE escudo_ledger ENABLE ROW LEVEL SECURITY"],
    }


@pytest.mark.parametrize(
    "what",
    ["trigger", "deferred trigger", "rule", "child", "row security", "view", "index", "index gone", "column"],
)
def test_what_hangs_on_the_tables_is_refused_by_the_next_spend(
    ledger: Ledger, url: str, tamper: Callable[..., None], what: str
) -> None:
    spend_some(ledger, 1)
    ledger.close()
    if what not in triggers(url):
        pytest.skip("the other store's")
    tamper(*triggers(url)[what])
    with Ledger(url) as fresh:
        for _ in range(2):
            with pytest.raises(LedgerCorruptError, match=r"hangs on its tables|may not|tables are not"):
                fresh.spend("visits", PureEvent(epsilon=0.125))
        assert not fresh.verify().ok


def test_a_spend_that_is_undone_behind_the_check_is_noticed_before_its_receipt(
    ledger: Ledger, url: str, tamper: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spend_some(ledger, 1)
    monkeypatch.setattr(_ledger_store.Session, "require_nothing_foreign", lambda self: None)
    tamper(*triggers(url)["trigger" if url.startswith("sqlite") else "deferred trigger"])
    with pytest.raises(LedgerCorruptError, match="undoes spends"):
        ledger.spend("visits", PureEvent(epsilon=0.125))


def test_an_older_copy_is_noticed_by_a_process_that_never_saw_more(
    ledger: Ledger, url: str, tamper: Callable[..., None]
) -> None:
    spend_some(ledger)
    rows = ledger.history()
    account = rows[2]
    # As a copy from before the last two spends would be: with everything in it fitting.
    with ledger._store.reading() as session:
        record = session.accounts["visits"]
    older = Replay(ledger.anchor["ledger_id"])
    for row in rows[:3]:
        older.apply(row)
    then = older.accounts["visits"]
    tamper(
        "DELETE FROM escudo_ledger WHERE sequence > 3",
        f"UPDATE escudo_ledger_head SET rows = 3, hash = '{account.hash}'",
        f"UPDATE escudo_ledger_account SET last = 3, spends = 2, pure = '{then.spent.pure}', "
        f"renyi = '{then.spent.renyi}', slack = '{then.spent.slack}'",
    )
    assert record != then
    with Ledger(url) as fresh:
        for use in (lambda: fresh.spend("visits", PureEvent(epsilon=0.125)), lambda: fresh.total("visits")):
            with pytest.raises(LedgerCorruptError, match=r"row 4 was there before and is missing.*ledger recover"):
                use()
        assert "this machine's witness has seen" in str(fresh.verify().problem)
        assert fresh.recover() == 2
        assert fresh.recover() == 0
        assert fresh.verify().ok
        assert [row.hash for row in fresh.history()] == [row.hash for row in rows]
        assert fresh.info("visits").spends == 4


def test_a_backup_is_restored_elsewhere_with_what_the_witness_saw_later(
    ledger: Ledger, url: str, tmp_path: Path, state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend_some(ledger, 2)
    assert ledger.backup(tmp_path / "kept") == 3
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError, match="exists already"):
        ledger.backup(tmp_path / "kept")
    ledger.spend("visits", PureEvent(epsilon=0.125))
    with pytest.raises(LedgerError, match="a ledger here already"):
        ledger.restore(tmp_path / "kept")
    with Ledger(f"sqlite:///{tmp_path / 'new.db'}") as new:
        assert new.restore(tmp_path / "kept") == 4
        assert new.head == ledger.head
        assert new.verify().ok
        assert new.total("visits").epsilon == pytest.approx(0.375, rel=1e-4)
    # On a machine without the witness, only what the backup has.
    monkeypatch.setenv("ESCUDO_STATE", str(tmp_path / "elsewhere"))
    with Ledger(f"sqlite:///{tmp_path / 'other.db'}") as other:
        assert other.restore(tmp_path / "kept") == 3
        assert other.verify().ok
        assert not other.verify(expected_head=ledger_head(url, state_folder, monkeypatch)).ok
    (tmp_path / "kept").write_text("{}\n")
    with (
        Ledger(f"sqlite:///{tmp_path / 'third.db'}") as third,
        pytest.raises(InputError, match="no row of a ledger"),
    ):
        third.restore(tmp_path / "kept")


def ledger_head(url: str, state: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ESCUDO_STATE", str(state))
    with Ledger(url) as ledger:
        return ledger.head


@pytest.mark.parametrize("end", [b"not JSON", b'{"sequence": "?", "hash": ""}', b"[]", b"{}"])
def test_a_witness_that_is_damaged_at_its_end_is_named(
    end: bytes, ledger: Ledger, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend_some(ledger, 1)
    monkeypatch.setenv("ESCUDO_STATE", str(tmp_path / "another machine"))
    with Ledger(url) as there, pytest.warns(UserWarning, match="no witness of the ledger"):
        there.spend("visits", PureEvent(epsilon=0.125))
    (witness,) = (tmp_path / "another machine").rglob("*.witness")
    witness.write_bytes(witness.read_bytes().rstrip(b"\0") + end + b"\n")
    with Ledger(url) as there, pytest.raises(LedgerError, match=rf"witness .*{witness.name} is damaged at its end"):
        there.spend("visits", PureEvent(epsilon=0.125))


def test_a_machine_without_a_witness_says_so_once_and_starts_one(
    ledger: Ledger, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend_some(ledger, 2)
    monkeypatch.setenv("ESCUDO_STATE", str(tmp_path / "another machine"))
    with Ledger(url) as there:
        with pytest.warns(UserWarning, match="no witness of the ledger .* starts one at row 3"):
            there.spend("visits", PureEvent(epsilon=0.125))
        there.spend("visits", PureEvent(epsilon=0.125))
    (witness,) = (tmp_path / "another machine").rglob("*.witness")
    lines = witness.read_text().rstrip("\0").splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [3, 4, 5]
    assert witness.stat().st_mode & 0o777 == 0o600
    with Ledger(url) as there:
        assert there.verify().ok


FIRST_FORMAT = [
    "CREATE TABLE escudo_ledger (sequence BIGINT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, "
    "payload TEXT NOT NULL, recorded_at TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE escudo_ledger_head (id INTEGER NOT NULL PRIMARY KEY, format INTEGER NOT NULL, rows BIGINT NOT NULL, "
    "hash TEXT NOT NULL)",
]


def first_format(spends: int = 2) -> list[str]:
    """Return the statements that make a ledger as escudo 0.1 did."""
    open_terms = {"epsilon": 1.0, "delta": 1e-6, "relation": "replace_one", "unit": "person", "max_rows_per_person": 2}
    event = {"kind": "pure", "version": 1, "relation": "replace_one", "unit": "person", "epsilon": 0.25}
    spend = {"event": event, "purpose": "", "for_release": True}
    rows, previous = [], FIRST_GENESIS
    for number, payload in enumerate([open_terms, *[spend] * spends, {"spend": 2, "reason": "x"}], start=1):
        kind = "open" if number == 1 else "failed" if "reason" in payload else "spend"
        parts = [previous, number, kind, "visits", canonical_json(payload), "2026-01-01T00:00:00+00:00"]
        digest = hashlib.sha256(canonical_json(parts).encode()).hexdigest()
        rows.append(
            f"INSERT INTO escudo_ledger VALUES ({number}, '{kind}', 'visits', '{parts[4]}', '{parts[5]}', "
            f"'{previous}', '{digest}')"
        )
        previous = digest
    return [*FIRST_FORMAT, *rows, f"INSERT INTO escudo_ledger_head VALUES (1, 1, {len(rows)}, '{previous}')"]


def test_a_ledger_of_format_1_is_upgraded_and_keeps_its_accounts(
    ledger: Ledger, url: str, tamper: Callable[..., None]
) -> None:
    tamper(*first_format())
    with pytest.raises(LedgerError, match=r"in format 1.*escudo ledger upgrade"):
        ledger.spend("visits", PureEvent(epsilon=0.125))
    assert ledger.upgrade() == 4
    with pytest.raises(InputError, match="up to date"):
        ledger.upgrade()
    info = ledger.info("visits")
    assert (info.spending, info.spends, info.failed) == ("planned", 2, 1)
    assert info.total.epsilon == pytest.approx(0.5, rel=1e-4)
    event = PureEvent(epsilon=0.375, unit="person", max_rows_per_person=2)
    ledger.spend("visits", event)
    with pytest.raises(BudgetExceededError):
        ledger.spend("visits", event)
    ledger.open("other", epsilon=1.0)
    with Ledger(url) as fresh:
        assert fresh.verify().ok
        assert [row.kind for row in fresh.history()] == ["open", "spend", "spend", "failed", "upgrade", "spend", "open"]
        assert fresh.history()[1].event == PureEvent(epsilon=0.25, unit="person", max_rows_per_person=2)


def test_a_broken_ledger_of_format_1_is_not_upgraded(ledger: Ledger, tamper: Callable[..., None]) -> None:
    tamper(*first_format(), "UPDATE escudo_ledger SET payload = replace(payload, '0.25', '0.01') WHERE sequence = 3")
    for _ in range(2):
        with pytest.raises(LedgerCorruptError, match="row 3 was edited"):
            ledger.upgrade()


# -- trainings that are kept in files


def test_a_checkpoint_is_resumed_once_and_a_training_ends_once(ledger: Ledger, url: str) -> None:
    account = ledger.open("visits", epsilon=1.0)
    receipt = account.spend(PureEvent(epsilon=0.25))
    one, two = "1" * 64, "2" * 64
    with pytest.raises(InputError, match="knows no checkpoint"):
        account.resume(receipt, 1, one)
    account.mark(receipt, 1, one)
    account.mark(receipt, 2, two)
    with Ledger(url) as other:  # after a crash
        again = other.account("visits")
        found = again.receipt(receipt.sequence)
        assert found == receipt
        with pytest.raises(InputError, match="not the newest checkpoint"):
            again.resume(found, 1, one)
        with pytest.raises(InputError, match="not the newest checkpoint"):
            again.resume(found, 2, one)
        nonce = again.resume(found, 2, two)
        with pytest.raises(InputError, match="was resumed before"):
            account.resume(receipt, 2, two)  # a copy of the file
        for act in (lambda: account.mark(receipt, 3, one), lambda: account.finish(receipt)):  # the run from before
            with pytest.raises(InputError, match="was resumed elsewhere"):
                act()
        again.mark(found, 3, one, nonce=nonce)
        newest = account.resume(receipt, 3, one)
        with pytest.raises(InputError, match="was resumed elsewhere"):
            again.finish(found, nonce=nonce)
        account.finish(receipt, nonce=newest)
        for act in (
            lambda: account.finish(receipt, nonce=newest),
            lambda: again.mark(found, 4, two, nonce=newest),
            lambda: again.resume(found, 3, one),
        ):
            with pytest.raises(InputError, match="is finished"):
                act()
        assert other.verify().ok
    assert [row.kind for row in ledger.history()][2:] == ["mark", "mark", "resume", "mark", "resume", "finish"]
    assert ledger.total("visits").epsilon == 0.25


def test_a_mark_needs_a_spend_of_this_account_and_a_digest(ledger: Ledger) -> None:
    account, other = ledger.open("visits", epsilon=1.0), ledger.open("other", epsilon=1.0)
    receipt = account.spend(PureEvent(epsilon=0.25))
    with pytest.raises(InputError, match="no spend of dataset 'other'"):
        other.receipt(receipt.sequence)
    with pytest.raises(InputError, match="no spend"):
        account.receipt(1)
    for number, digest in ((0, "0" * 64), (1, "xyz"), (1, ""), (1.5, "0" * 64)):
        with pytest.raises(InputError):
            account.mark(receipt, number, digest)  # type: ignore[arg-type]
    account.mark(receipt, 2, "0" * 64)
    with pytest.raises(InputError, match="has checkpoint 2 already"):
        account.mark(receipt, 2, "1" * 64)
    with pytest.raises(InputError, match="not of this ledger"):
        account.mark(replace(receipt, sequence=1), 3, "0" * 64)


@pytest.mark.parametrize(
    "statement", ["DELETE FROM escudo_ledger_head", "DROP TABLE escudo_ledger", "DROP TABLE escudo_ledger_head"]
)
def test_a_missing_head_or_table_is_found(
    ledger: Ledger, url: str, tamper: Callable[..., None], statement: str
) -> None:
    spend_some(ledger)
    ledger.close()
    tamper(statement + (" CASCADE" if statement.startswith("DROP") and url.startswith("postgres") else ""))
    with Ledger(url) as fresh:
        assert not fresh.verify().ok
        with pytest.raises(LedgerCorruptError):
            fresh.spend("visits", PureEvent(epsilon=0.125))
        with pytest.raises(LedgerCorruptError):
            fresh.open("visits", epsilon=1.0, delta=1e-6)


def test_a_cut_end_with_a_fitting_head_is_found_by_a_kept_fingerprint(
    ledger: Ledger, url: str, tamper: Callable[..., None]
) -> None:
    spend_some(ledger)
    kept, earlier = ledger.head, ledger.history()[2].hash
    tamper(
        "DELETE FROM escudo_ledger WHERE sequence > 3",
        "UPDATE escudo_ledger_head SET rows = 3, hash = (SELECT hash FROM escudo_ledger WHERE sequence = 3)",
    )
    with Ledger(url) as fresh:
        assert not fresh.verify().ok
        assert not fresh.verify(expected_head=earlier).ok
        assert not fresh.verify(expected_head=kept).ok
    # The process that saw more knows better, and goes on knowing.
    for _ in range(2):
        with pytest.raises(LedgerCorruptError, match="row 3 says another state of the accounts"):
            ledger.spend("visits", PureEvent(epsilon=0.125))
    assert not ledger.verify().ok


def test_a_newer_format_is_refused_and_left_alone(ledger: Ledger, url: str, tamper: Callable[..., None]) -> None:
    spend_some(ledger, 1)
    ledger.close()
    tamper("UPDATE escudo_ledger_head SET format = 3")
    with Ledger(url) as fresh:
        for use in (lambda: fresh.head, lambda: fresh.spend("visits", PureEvent(epsilon=0.1)), fresh.verify):
            with pytest.raises(LedgerError, match="in format 3") as refused:
                use()
            assert not isinstance(refused.value, LedgerCorruptError)


# -- many at once


def test_threads_racing_for_the_last_budget_never_pass_the_cap(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    receipts, refusals, barrier = [], [], threading.Barrier(8)

    def race() -> None:
        barrier.wait()
        for _ in range(4):
            try:
                receipts.append(ledger.spend("visits", PureEvent(epsilon=0.0625)))
            except BudgetExceededError as error:
                refusals.append(error)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(receipts), len(refusals)) == (16, 16)
    assert {receipt.sequence for receipt in receipts} == {*range(2, 18)}
    assert ledger.total("visits").epsilon == 1.0
    assert ledger.verify().ok


RACE = """
import json, os, sys
from escudo.errors import BudgetExceededError
from escudo.privacy import Ledger, PureEvent

url, processes, tries = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ledger = Ledger(url)
ledger.open("warm", epsilon=1.0)  # so that every child starts from a ledger in use
children = []
start_read, start_write = os.pipe()
for _ in range(processes):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(start_write)
        os.read(start_read, 1)  # all start at once
        # Opening is part of the race.
        ledger.open("visits", epsilon=1.0)
        done = []
        for _ in range(tries):
            try:
                done.append(ledger.spend("visits", PureEvent(epsilon=0.0625)).hash)
            except BudgetExceededError:
                done.append(None)
        os.write(write, json.dumps(done).encode())
        os._exit(0)
    os.close(write)
    children.append((pid, read))
os.close(start_write)
results = []
for pid, read in children:
    results += json.loads(os.fdopen(read).read())
    assert os.waitpid(pid, 0)[1] == 0
print(json.dumps(results))
"""


def run_script(script: str, *arguments: object) -> str:
    command = [sys.executable, *STRICT, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_racing_for_the_last_budget_lose_nothing_and_never_pass_the_cap(ledger: Ledger, url: str) -> None:
    results = json.loads(run_script(RACE, url, 8, 4))
    receipts = [digest for digest in results if digest is not None]
    assert len(receipts) == 16
    assert {row.hash for row in ledger.history("visits") if row.kind == "spend"} == set(receipts)
    assert ledger.total("visits").epsilon == 1.0
    assert ledger.verify().ok


FORKS = """
import os, sys, threading, warnings
from escudo.privacy import Ledger, PureEvent

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of what is tested here
ledger = Ledger(sys.argv[1])
account = ledger.open("visits", epsilon=100.0)
threads = [
    threading.Thread(target=lambda: [account.spend(PureEvent(epsilon=0.01)) for _ in range(15)]) for _ in range(2)
]
for thread in threads:
    thread.start()
children = []
for _ in range(6):
    pid = os.fork()
    if pid == 0:
        account.spend(PureEvent(epsilon=0.01))
        os._exit(0)
    children.append(pid)
for thread in threads:
    thread.join()
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
print(ledger.verify().rows)
"""


def test_a_ledger_in_use_by_threads_survives_a_fork(url: str) -> None:
    assert int(run_script(FORKS, url)) == 1 + 30 + 6


KILLS = """
import os, random, signal, sys, time
from escudo.privacy import Ledger, PureEvent

url, kills = sys.argv[1], int(sys.argv[2])
rng = random.Random(7)
ledger = Ledger(url)
ledger.open("visits", epsilon=1000.0)
seen = []
for number in range(kills):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        while True:
            receipt = ledger.spend("visits", PureEvent(epsilon=0.001))
            os.write(write, (receipt.hash + "\\n").encode())
    os.close(write)
    with os.fdopen(read) as pipe:
        if number % 3:  # else it is killed on its way to the first spend
            seen.append(pipe.readline().strip())
        time.sleep(rng.uniform(0.0, 0.04))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seen += pipe.read().split()
    with Ledger(url) as fresh:
        found = fresh.verify()
        assert found.ok, found.problem
        recorded = {row.hash for row in fresh.history()}
        missing = set(seen) - recorded
        assert not missing, f"{len(missing)} receipts are not in the ledger"
print(len(seen))
"""


def test_a_killed_process_loses_no_receipt(ledger: Ledger, url: str) -> None:
    seen = int(run_script(KILLS, url, 15))
    assert seen >= 10
    # A spend may be recorded without its receipt having been seen; never the other way round.
    assert seen <= ledger.info("visits").spends <= seen + 15
    assert ledger.verify().ok


def test_a_locked_ledger_is_an_error_after_the_timeout(ledger: Ledger, url: str) -> None:
    spend_some(ledger, 1)
    raw = url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = sa.create_engine(raw, poolclass=sa.NullPool)
    with engine.connect() as holder, Ledger(url, timeout=0.2) as waiting:
        if url.startswith("sqlite"):
            holder.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            holder.exec_driver_sql("SELECT * FROM escudo_ledger_head FOR UPDATE")
        with pytest.raises(LedgerError, match=r"locked for 0.2 s.*Nothing was recorded"):
            waiting.spend("visits", PureEvent(epsilon=0.125))
        holder.rollback()
        waiting.spend("visits", PureEvent(epsilon=0.125))
    assert ledger.verify().rows == 3


# -- what differs between the stores


@pytest.mark.postgresql
def test_postgresql_commits_reach_the_disk_even_where_the_server_says_otherwise(server: sa.URL) -> None:
    lazy = new_database(server, "synchronous_commit = off").set(drivername="postgres")
    with Ledger(lazy.render_as_string(hide_password=False)) as ledger:
        ledger.open("visits", epsilon=1.0)
        with ledger._store.reading() as session:
            assert session._connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


@pytest.mark.postgresql
def test_postgresql_connection_errors_are_clear_and_hide_the_password(server: sa.URL) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed_port = free.getsockname()[1]
    secret = "s3cret-" + "x" * 8
    for wrong in (
        server.set(password=secret),
        server.set(password=secret, port=closed_port),
        server.set(database="not_there"),
        server.set(password=None, query={"password": secret}),
        server.set(query={"no_such_option": secret}),
    ):
        ledger = Ledger(wrong.set(drivername="postgresql").render_as_string(hide_password=False), timeout=2)
        with pytest.raises(LedgerError) as error:
            ledger.open("visits", epsilon=1.0)
        assert not isinstance(error.value, LedgerCorruptError)
        for text in (str(error.value), repr(ledger)):
            assert secret not in text
            assert "pa:ss" not in text
        assert error.value.__cause__ is None


@pytest.mark.postgresql
def test_a_postgresql_user_without_rights_is_told_so(server: sa.URL) -> None:
    role, own = f"reader_{secrets.token_hex(4)}", new_database(server)
    with Ledger(own.render_as_string(hide_password=False)) as ledger:
        spend_some(ledger, 1)
    with sa.create_engine(server.set(database=own.database), poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'r'")
        connection.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    theirs = own.set(username=role, password="r").render_as_string(hide_password=False)
    with Ledger(theirs) as reader:
        assert reader.verify().ok
        assert isinstance(reader.total("visits"), Guarantee)
        with pytest.raises(LedgerError, match="may not do that"):
            reader.spend("visits", PureEvent(epsilon=0.125))


@pytest.mark.postgresql
def test_a_postgresql_role_with_the_documented_grants_can_spend_and_cannot_change_anything(server: sa.URL) -> None:
    role, own = f"spender_{secrets.token_hex(4)}", new_database(server)
    with Ledger(own.render_as_string(hide_password=False)) as ledger:
        spend_some(ledger, 1)
        with sa.create_engine(server.set(database=own.database), poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'r'")
        ledger.grant(role)
    theirs = own.set(username=role, password="r")
    with Ledger(theirs.render_as_string(hide_password=False)) as spender:
        spender.open("own", epsilon=1.0)
        receipt = spender.spend("visits", PureEvent(epsilon=0.125))
        spender.fail(receipt, "a reason")
        with pytest.raises(BudgetExceededError):
            spender.spend("visits", PureEvent(epsilon=0.875))
        assert spender.verify().ok
    raw = sa.create_engine(theirs.set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    row = '{"sequence": 6, "previous": "HEAD", "hash": "x", "kind": "spend", "dataset": "visits", "payload": "{}", '
    row += '"charge": "", "state": "", "recorded_at": ""}'
    account = (
        '{"dataset": "visits", "terms": "TERMS", "opened": 1, "opened_at": "", "last": 6, "pure": "0", "renyi": "0", '
    )
    account += '"slack": "0", "spends": 9, "failed": 0, "not_for_release": 0, "trainings": "{}"}'
    for statement in (
        "UPDATE escudo_ledger SET payload = '{}'",
        "DELETE FROM escudo_ledger",
        "TRUNCATE escudo_ledger",
        "UPDATE escudo_ledger_account SET renyi = '0'",
        "UPDATE escudo_ledger_head SET rows = 0",
        "INSERT INTO escudo_ledger VALUES (9, 'spend', 'visits', '{}', '', '', '', '', '')",
        "ALTER TABLE escudo_ledger ADD COLUMN more TEXT",
        "CREATE TRIGGER t AFTER UPDATE ON escudo_ledger_head FOR EACH ROW "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        f"SELECT escudo_ledger_append('{row}'::json, NULL)",
        f"SELECT escudo_ledger_append(replace('{row}', 'HEAD', (SELECT hash FROM escudo_ledger_head))::json, "
        f"replace('{account}', '\"TERMS\"', (SELECT to_json(terms)::text FROM escudo_ledger_account WHERE "
        "dataset = 'visits'))::json)",
    ):
        with pytest.raises(sa.exc.DBAPIError) as refused, raw.begin() as connection:
            connection.execute(sa.text(statement.replace(":", "\\:")))
        assert re.search("permission denied|must be owner|does not follow|a sum would fall", str(refused.value))
    with Ledger(own.render_as_string(hide_password=False)) as ledger:
        assert ledger.verify().ok
        assert ledger.info("visits").spends == 2


def test_roles_are_not_for_sqlite(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        ledger.open("visits", epsilon=1.0)
        with pytest.raises(LedgerError, match="file's permissions"):
            ledger.grant("someone")


LOST_LOG = """
import os, signal, sys
from escudo.privacy import Ledger, PureEvent

ledger = Ledger(sys.argv[1])
ledger.open("visits", epsilon=1.0)
ledger.close()  # everything so far is in the file itself
for _ in range(5):
    ledger.spend("visits", PureEvent(epsilon=0.125))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["log deleted", "file copied"])
def test_losing_the_write_ahead_log_after_a_crash_is_noticed_and_made_good(tmp_path: Path, how: str) -> None:
    path = tmp_path / "ledger.db"
    done = subprocess.run([sys.executable, "-c", LOST_LOG, f"sqlite:///{path}"], capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr
    if how == "log deleted":
        for side in ("-wal", "-shm"):
            path.with_name(f"ledger.db{side}").unlink()
    else:
        kept = path.read_bytes()
        for file in list(tmp_path.iterdir()):
            file.unlink()
        path.write_bytes(kept)
    with Ledger(f"sqlite:///{path}") as ledger:
        assert "witness has seen" in str(ledger.verify().problem)
        with pytest.raises(LedgerCorruptError, match="row 2 was there before and is missing"):
            ledger.spend("visits", PureEvent(epsilon=0.125))
        assert ledger.recover() == 5
        assert ledger.verify().ok
        assert ledger.total("visits").epsilon == 0.625


@pytest.mark.postgresql
def test_a_lost_postgresql_connection_is_replaced(server: sa.URL) -> None:
    with Ledger(new_database(server).render_as_string(hide_password=False)) as ledger:
        spend_some(ledger, 1)
        with sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool).connect() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'ledger_%%'"
            )
        ledger.spend("visits", PureEvent(epsilon=0.125))
        assert ledger.verify().rows == 3


@pytest.mark.postgresql
def test_a_server_that_does_not_wait_for_the_disk_is_warned_of_once(
    server: sa.URL, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = new_database(server).render_as_string(hide_password=False)  # ours has fsync off
    with warnings.catch_warnings(record=True) as caught, Ledger(url) as ledger:
        warnings.simplefilter("always")
        ledger.open("visits", epsilon=1.0)
        ledger.close()
        ledger.spend("visits", PureEvent(epsilon=0.25))
    (said,) = [str(one.message) for one in caught if issubclass(one.category, LedgerWarning)]
    assert re.search(r"runs with fsync = off: .*run with fsync = on \(ALTER SYSTEM SET fsync = on; SELECT", said)
    assert "full_page_writes" not in said
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for words in (["ledger", "verify"], ["doctor"]):
            monkeypatch.setattr("sys.argv", ["escudo", *words, "--ledger", url])
            with pytest.raises(SystemExit) as end:
                main()
            shown = capsys.readouterr()
            assert end.value.code == 0
            assert f"Warning: {said}" in (shown.err if words[0] == "ledger" else shown.out).replace("\n", " ")
