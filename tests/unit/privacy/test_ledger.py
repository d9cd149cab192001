"""The ledger on SQLite: what it records, what it refuses, and what happens when the file or the disk is bad."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from escudo.errors import BudgetExceededError, InputError, LedgerCorruptError, LedgerError
from escudo.privacy import Account, ApproximateEvent, GaussianEvent, Guarantee, Ledger, LedgerAccount, PureEvent
from escudo.privacy._ledger_chain import GENESIS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{path}") as ledger:
        yield ledger


def again(ledger: Ledger) -> Ledger:
    """The same ledger as another process would open it."""
    ledger.close()
    return Ledger(ledger.name)


# -- what is recorded


def test_an_account_of_a_ledger_is_an_account(ledger: Ledger) -> None:
    account = ledger.open("visits", epsilon=1.0, unit="person", max_rows_per_person=3, relation="unbounded")
    assert isinstance(account, Account)
    assert (account.relation, account.unit, account.max_rows_per_person) == ("add_remove", "person", 3)
    assert account.dataset == "visits"
    found = ledger.account("visits")
    assert isinstance(found, LedgerAccount)
    assert found.terms == account.terms
    receipt = found.spend(PureEvent(epsilon=0.5, relation="add_remove", unit="person"))
    found.fail(receipt, "no reason")
    assert account.total().epsilon == 0.5
    assert account.remaining().epsilon == 0.5
    assert account.total().max_rows_per_person == 3
    assert account.fits(PureEvent(epsilon=0.5, relation="add_remove", unit="person"))
    assert not account.fits(PureEvent(epsilon=0.6, relation="add_remove", unit="person"))
    assert repr(account).startswith("account 'visits' in Ledger('sqlite:///")
    assert "cap ε = 1.00, add or remove one person (at most 3 rows)" in repr(account)


def test_the_receipt_is_the_recorded_row(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    receipt = ledger.spend("visits", PureEvent(epsilon=0.5), purpose=" two\nlines\x00 ", for_release=False)
    row = ledger.history()[-1]
    assert (row.sequence, row.hash, row.recorded_at) == (receipt.sequence, receipt.hash, receipt.recorded_at)
    assert row.event == receipt.event == PureEvent(epsilon=0.5)
    assert row.payload["purpose"] == receipt.purpose == "two lines?"
    assert row.payload["for_release"] is receipt.for_release is False
    assert len(ledger.spend("visits", PureEvent(epsilon=0.1), purpose="x" * 2000).purpose) == 500


def test_numbers_of_any_library_are_recorded_as_plain_numbers(ledger: Ledger) -> None:
    terms = {"epsilon": np.float32(0.5), "delta": np.float64(1e-6), "unit": "person", "max_rows_per_person": np.int8(3)}
    account = ledger.open("visits", **terms)
    assert ledger.open("visits", epsilon=0.5, delta=1e-6, unit="person", max_rows_per_person=3).terms == account.terms
    assert again(ledger).account("visits").terms == account.terms


def test_a_seeded_spend_counts_and_is_listed_as_not_for_release(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.75), for_release=False)
    info = ledger.info("visits")
    assert (info.spends, info.not_for_release, info.failed) == (1, 1, 0)
    assert info.total.epsilon == 0.75
    with pytest.raises(BudgetExceededError):
        ledger.spend("visits", PureEvent(epsilon=0.5))


def test_datasets_are_listed_in_order_and_do_not_share_a_budget(ledger: Ledger) -> None:
    for name in ("b", "a", "Ä ö [red]"):
        ledger.open(name, epsilon=1.0)
    ledger.spend("a", PureEvent(epsilon=1.0))
    assert [info.dataset for info in ledger.datasets()] == ["b", "a", "Ä ö [red]"]
    assert [info.remaining.epsilon for info in ledger.datasets()] == [1.0, 0.0, 1.0]
    assert [row.dataset for row in ledger.history("a")] == ["a", "a"]
    assert len(ledger.history()) == 4
    assert "<td>Ä ö [red]</td>" in ledger._repr_html_()


def test_ten_spends_of_a_tenth_fit_a_cap_of_one(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    for _ in range(10):
        ledger.spend("visits", PureEvent(epsilon=0.1))
    assert ledger.total("visits").epsilon == 1.0
    assert ledger.remaining("visits") == Guarantee(epsilon=0.0)
    with pytest.raises(BudgetExceededError, match="Nothing is left"):
        ledger.spend("visits", PureEvent(epsilon=0.001))


def test_an_add_remove_event_is_recorded_as_what_it_means_for_replace_one(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    receipt = ledger.spend("visits", PureEvent(epsilon=0.25, relation="add_remove"))
    assert receipt.event == PureEvent(epsilon=0.5)
    row = again(ledger).history()[-1]
    assert row.event == PureEvent(epsilon=0.5)
    assert row.payload["converted_from"] == "add_remove"
    assert ledger.total("visits").epsilon == 0.5


@pytest.mark.parametrize(
    ("terms", "event", "why"),
    [
        ({"relation": "add_remove"}, PureEvent(epsilon=0.1), "stated for replace_one"),
        ({"unit": "person", "max_rows_per_person": 2}, PureEvent(epsilon=0.1), "stated per row"),
        ({}, PureEvent(epsilon=0.1, unit="person"), "accounted per row"),
        ({}, 0.1, "A bare number"),
        ({}, {"kind": "pure", "epsilon": 0.1}, "Spend an event"),
        (
            {"unit": "person", "max_rows_per_person": 2},
            Guarantee(epsilon=0.1, unit="person", max_rows_per_person=3),
            "3 rows per person",
        ),
    ],
)
def test_an_event_that_says_nothing_about_the_account_is_refused(
    ledger: Ledger, terms: dict[str, Any], event: Any, why: str
) -> None:
    ledger.open("visits", epsilon=1.0, **terms)
    with pytest.raises(InputError, match=why):
        ledger.spend("visits", event)
    assert ledger.verify().rows == 1


def test_a_guarantee_can_be_spent_and_keeps_its_mark(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0, delta=1e-5)
    receipt = ledger.spend("visits", Guarantee(epsilon=0.5, delta=1e-6, for_release=False))
    assert receipt.event == ApproximateEvent(epsilon=0.5, delta=1e-6)
    assert receipt.for_release is False


# -- refusals


def test_a_refusal_names_cap_spent_left_and_asked(ledger: Ledger) -> None:
    ledger.open("visits 2026", epsilon=3.0)
    ledger.spend("visits 2026", PureEvent(epsilon=2.4))
    with pytest.raises(BudgetExceededError) as refused:
        ledger.spend("visits 2026", PureEvent(epsilon=1.0))
    assert str(refused.value) == (
        "the budget of dataset 'visits 2026' does not allow it.\n"
        "  cap ε = 3.00   spent 2.40   left 0.60   asked 1.00   (replace one row)\n"
        "  Ask for at most ε = 0.60, or ask the owner of the ledger (escudo ledger show 'visits 2026').\n"
        "Nothing was spent."
    )
    assert (refused.value.dataset, refused.value.cap) == ("visits 2026", 3.0)
    assert refused.value.left == pytest.approx(0.6)


@pytest.mark.parametrize(
    "event", [GaussianEvent(l2_sensitivity=1.0, scale=50.0, grid=1.0), ApproximateEvent(epsilon=0.1, delta=1e-9)]
)
def test_an_event_without_any_epsilon_at_the_delta_is_refused_with_the_reason(ledger: Ledger, event: Any) -> None:
    ledger.open("visits", epsilon=1.0)
    with pytest.raises(BudgetExceededError, match=r"asked ∞[\s\S]*No ε holds for this event at δ = 0"):
        ledger.spend("visits", event)
    assert not ledger.fits("visits", event)
    assert ledger.verify().rows == 1


def test_an_unknown_dataset_is_refused_with_the_nearest_name_and_the_command(ledger: Ledger) -> None:
    ledger.open("visits-2026", epsilon=1.0)
    for use in (ledger.account, ledger.total, ledger.remaining, ledger.history, ledger.info):
        with pytest.raises(
            InputError, match=r"'visits-2025' has no account.*Did you mean 'visits-2026'\?.*ledger open"
        ):
            use("visits-2025")


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "nul\x00", "\ud800", "x" * 201, 7, None])
def test_a_bad_dataset_name_is_refused_and_nothing_is_created(ledger: Ledger, path: Path, name: Any) -> None:
    with pytest.raises(InputError, match="dataset must be a name of 1 to 200 printable characters"):
        ledger.open(name, epsilon=1.0)
    assert not path.exists()


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": float("nan")},
        {"epsilon": float("inf")},
        {"epsilon": 1e9},
        {"epsilon": 10**400},
        {"epsilon": "1"},
        {"epsilon": None},
        {"epsilon": True},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": -1e-9},
        {"epsilon": 1.0, "delta": float("nan")},
        {"epsilon": 1.0, "relation": "neighbours"},
        {"epsilon": 1.0, "unit": "household"},
        {"epsilon": 1.0, "unit": "person"},
        {"epsilon": 1.0, "unit": "person", "max_rows_per_person": 0},
        {"epsilon": 1.0, "max_rows_per_person": 2},
    ],
)
def test_bad_terms_are_refused_and_nothing_is_created(ledger: Ledger, path: Path, terms: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ledger.open("visits", **terms)
    assert not path.exists()


def test_a_receipt_of_another_ledger_cannot_be_marked(ledger: Ledger, tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path / 'other.db'}") as other:
        for book in (ledger, other):
            book.open("visits", epsilon=1.0)
        receipt = other.spend("visits", PureEvent(epsilon=0.5))
        ledger.spend("visits", PureEvent(epsilon=0.5))
        with pytest.raises(InputError, match="not of this ledger"):
            ledger.fail(receipt)
    assert ledger.verify().rows == 2


def test_texts_must_be_texts(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    with pytest.raises(InputError, match="purpose must be a text"):
        ledger.spend("visits", PureEvent(epsilon=0.1), purpose=b"bytes")  # type: ignore[arg-type]
    assert ledger.verify().rows == 1


# -- checking


def test_the_hash_is_as_documented_so_that_anyone_can_check_it(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.5), purpose="größer")
    exported = json.loads(json.dumps(ledger.export()))
    previous = GENESIS
    for row in exported["rows"]:
        parts = [previous, row["sequence"], row["kind"], row["dataset"], row["payload"], row["recorded_at"]]
        text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
        previous = hashlib.sha256(text.encode()).hexdigest()
        assert row["hash"] == previous
    assert exported["head"] == previous == ledger.head
    assert exported["problem"] is None


def test_an_earlier_head_is_still_found_in_a_ledger_that_grew(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    kept = ledger.head
    ledger.spend("visits", PureEvent(epsilon=0.5))
    for head in (kept, ledger.head, GENESIS):
        assert ledger.verify(expected_head=head).ok
    assert not ledger.verify(expected_head="0" * 64).ok
    for malformed in ("", "xyz", "0" * 63):
        with pytest.raises(InputError, match="64 hexadecimal digits"):
            ledger.verify(expected_head=malformed)


def test_a_verification_says_what_it_found_in_words(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    found = ledger.verify()
    assert found
    assert str(found) == f"ledger holds good: 1 row, head {ledger.head}"
    assert str(ledger.verify("0" * 64)).startswith(f"Ledger {ledger.name}: no row has the fingerprint that you expect")


def forge(ledger: Ledger, kind: Any, payload: Any, dataset: str = "visits") -> None:
    """Append a row with a fitting hash but arbitrary contents, as someone with the code at hand could."""
    with ledger._writing() as writer:
        writer.append(kind, dataset, payload)
        writer.rows.clear()


def spend_of(epsilon: float) -> dict[str, Any]:
    return {"event": PureEvent(epsilon=epsilon).to_json(), "purpose": "", "for_release": True}


def test_verify_finds_a_spend_beyond_the_cap_and_names_its_row(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    for _ in range(5):
        forge(ledger, "spend", spend_of(0.3))
    found = again(ledger).verify()
    assert "row 5 passes the cap of dataset 'visits'" in str(found.problem)
    assert "ε = 1.50" in str(found.problem)


@pytest.mark.parametrize(
    ("kind", "payload", "dataset"),
    [
        ("open", {"epsilon": 5.0}, "visits"),
        ("open", {"epsilon": -5.0}, "other"),
        ("open", {"epsilon": None}, "other"),
        ("open", {"epsilon": 1.0, "dataset": "visits"}, "other"),
        ("open", {"epsilon": 5.0, "surprise": 1}, "other"),
        ("spend", spend_of(0.1), "other"),
        ("spend", {"event": 5, "purpose": ""}, "visits"),
        ("spend", [], "visits"),
        ("spend", spend_of(0.1) | {"event": PureEvent(epsilon=0.1, relation="add_remove").to_json()}, "visits"),
        ("failed", {"spend": 1, "reason": ""}, "visits"),
        ("failed", {"spend": 17, "reason": ""}, "visits"),
        ("failed", {}, "visits"),
    ],
)
def test_rows_that_make_no_sense_are_found_even_with_fitting_hashes(
    ledger: Ledger, kind: str, payload: Any, dataset: str
) -> None:
    ledger.open("visits", epsilon=1.0)
    forge(ledger, kind, payload, dataset)
    fresh = again(ledger)
    if kind == "spend" and payload == {"event": 5, "purpose": ""}:
        with pytest.raises(LedgerError, match="row 2 holds an event that this escudo cannot read"):
            fresh.verify()
        return
    assert "row 2 " in str(fresh.verify().problem)
    with pytest.raises(LedgerCorruptError, match="row 2 "):
        fresh.total("visits")


def test_an_event_of_a_newer_escudo_is_an_error_but_no_corruption(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    newer = spend_of(0.1)
    newer["event"]["version"] = 2
    forge(ledger, "spend", newer)
    with pytest.raises(LedgerError, match="newer escudo") as error:
        again(ledger).total("visits")
    assert not isinstance(error.value, LedgerCorruptError)


def test_a_broken_ledger_can_still_be_exported(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.5))
    ledger.close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE escudo_ledger SET payload = 'not JSON' WHERE sequence = 2")
    raw.close()
    exported = Ledger(ledger.name).export()
    assert "row 2 " in exported["problem"]
    assert exported["rows"][1]["payload"] == "not JSON"


def test_a_payload_nested_beyond_reason_is_found(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    forge(ledger, "spend", {"event": deep, "purpose": "", "for_release": True})
    with pytest.raises(LedgerError, match="row 2 "):
        again(ledger).total("visits")


@pytest.mark.parametrize("assignment", ["rows = 'many'", "hash = x'00ff'", "format = 'one'", "rows = 1.5"])
def test_an_edited_head_record_is_found(ledger: Ledger, path: Path, assignment: str) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"UPDATE escudo_ledger_head SET {assignment}")
    raw.close()
    assert "the head record was edited" in str(Ledger(ledger.name).verify().problem)


@pytest.mark.parametrize("value", [None, 5, 2.5, b"\xff\x00"])
@pytest.mark.parametrize("column", ["kind", "dataset", "payload", "recorded_at", "previous", "hash"])
def test_values_of_any_type_are_found(ledger: Ledger, path: Path, column: str, value: Any) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.close()
    raw = sqlite3.connect(path)
    # A hostile editor is not held back by the table's constraints.
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE name = 'escudo_ledger'")
    raw.commit()
    raw.close()
    raw = sqlite3.connect(path)
    raw.execute(f"UPDATE escudo_ledger SET {column} = ?", [value])
    raw.commit()
    raw.close()
    assert "row 1 was edited" in str(Ledger(ledger.name).verify().problem)


# -- the file


def test_the_file_is_private_from_the_start(path: Path, ledger: Ledger) -> None:
    before = os.umask(0)
    try:
        ledger.open("visits", epsilon=1.0)
        names = {file.name for file in path.parent.iterdir()}
        assert names == {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    finally:
        os.umask(before)
    ledger.close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]


def test_every_commit_waits_for_the_disk(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    with ledger._store.reading() as session:
        settings = {
            name: session._connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


LEAVE_WAL = """
import sqlite3, sys
try:
    print(sqlite3.connect(sys.argv[1], timeout=0.1).execute("PRAGMA journal_mode = DELETE").fetchone()[0])
except sqlite3.OperationalError as error:
    print(error)
"""


def test_looking_never_drops_the_locks_that_protect_an_open_ledger(ledger: Ledger, path: Path) -> None:
    # Closing any descriptor of a file drops all of the process's POSIX locks on it, so only SQLite may open the file.
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.1))
    other = Ledger(ledger.name)
    other.open("visits", epsilon=1.0)
    for look in (lambda: ledger.head, lambda: other.head, other.verify, other.close):
        look()
        done = subprocess.run([sys.executable, "-c", LEAVE_WAL, path], capture_output=True, text=True, timeout=30)
        assert done.stdout.strip() == "database is locked"


def test_spending_takes_as_many_statements_however_long_the_ledger_is(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1000.0)
    ledger.spend("visits", PureEvent(epsilon=0.1))
    statements: list[str] = []
    sa.event.listen(ledger._store._engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    ledger.spend("visits", PureEvent(epsilon=0.1))
    short = list(statements)
    with ledger._writing() as writer:
        for _ in range(3000):
            writer.append("spend", "visits", spend_of(0.001))
    statements.clear()
    ledger.spend("visits", PureEvent(epsilon=0.1))
    assert statements == short
    assert len(short) == 4
    assert again(ledger).total("visits").epsilon == pytest.approx(3.3)


def test_the_ledger_stays_the_same_file_when_the_process_changes_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger("sqlite:///here.db") as ledger:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ledger.open("visits", epsilon=1.0)
    assert (tmp_path / "here.db").exists()


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    odd = tmp_path / "a b#ä%20'd.db"
    with Ledger(f"sqlite:///{odd}") as ledger:
        ledger.open("visits", epsilon=1.0)
    assert list(tmp_path.iterdir()) == [odd]


def test_a_deleted_ledger_is_noticed(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.5))
    for file in list(path.parent.iterdir()):
        file.unlink()
    with pytest.raises(LedgerError):
        ledger.spend("visits", PureEvent(epsilon=0.5))
    assert list(path.parent.iterdir()) == []


def test_an_older_copy_put_in_place_is_noticed(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.close()
    shutil.copy(path, path.with_suffix(".old"))
    ledger.spend("visits", PureEvent(epsilon=0.5))
    ledger.close()
    ledger.head  # noqa: B018 - an open connection to the file that is about to be replaced
    path.with_suffix(".old").replace(path)
    for _ in range(2):
        with pytest.raises(LedgerCorruptError, match="older copy"):
            ledger.spend("visits", PureEvent(epsilon=0.5))


def test_two_first_users_make_one_ledger(path: Path) -> None:
    barrier, problems = threading.Barrier(6), []

    def first_use(number: int) -> None:
        barrier.wait()
        try:
            with Ledger(f"sqlite:///{path}") as ledger:
                ledger.open("visits", epsilon=1.0)
                ledger.open(f"own {number}", epsilon=1.0)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=first_use, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with Ledger(f"sqlite:///{path}") as ledger:
        assert len(ledger.datasets()) == 7
        assert ledger.verify().rows == 7


# -- bad files, bad disks, bad names


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Root may write everything; a test of permissions must not be root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_read_only_ledger_is_a_clear_error_and_left_as_it_was(public_folder: Path, folder_mode: int) -> None:
    path = public_folder / "ledger.db"
    with Ledger(f"sqlite:///{path}") as ledger:
        ledger.open("visits", epsilon=1.0)
    before = path.read_bytes()
    path.chmod(0o444)
    public_folder.chmod(folder_mode)
    with as_ordinary_user(), Ledger(f"sqlite:///{path}") as ledger:
        with pytest.raises(LedgerError, match="Nothing was recorded") as error:
            ledger.spend("visits", PureEvent(epsilon=0.5))
        assert not isinstance(error.value, LedgerCorruptError)
    assert path.read_bytes() == before


def test_a_folder_that_may_not_be_written_is_a_clear_error(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with as_ordinary_user(), pytest.raises(LedgerError, match="read-only for you"):
        Ledger(f"sqlite:///{public_folder / 'ledger.db'}").open("visits", epsilon=1.0)
    assert list(public_folder.iterdir()) == []


def test_a_missing_folder_or_a_folder_for_a_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="folder does not exist"):
        Ledger(f"sqlite:///{tmp_path / 'missing' / 'ledger.db'}").open("visits", epsilon=1.0)
    with pytest.raises(LedgerError, match=r"folder|cannot be opened"):
        Ledger(f"sqlite:///{tmp_path}").open("visits", epsilon=1.0)
    assert list(tmp_path.iterdir()) == []


def uses(ledger: Ledger) -> list[Callable[[], object]]:
    return [
        lambda: ledger.open("visits", epsilon=1.0),
        lambda: ledger.spend("visits", PureEvent(epsilon=0.1)),
        lambda: ledger.total("visits"),
    ]


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + b"\xff" * 4096, b"\x00" * 5000, b"x"])
def test_a_file_of_garbage_is_a_clear_error_and_left_as_it_was(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for use in uses(Ledger(f"sqlite:///{path}")):
        with pytest.raises(LedgerCorruptError, match="not a SQLite database, or it is damaged"):
            use()
    assert path.read_bytes() == content
    assert not Ledger(f"sqlite:///{path}").verify().ok


def test_a_truncated_file_is_a_clear_error(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1000.0)
    with ledger._writing() as writer:
        for _ in range(200):
            writer.append("spend", "visits", spend_of(0.001))
    ledger.close()
    whole = path.read_bytes()
    for part in (0.9, 0.5, 0.1):
        path.write_bytes(whole[: int(len(whole) * part)])
        fresh = Ledger(f"sqlite:///{path}")
        with pytest.raises(LedgerCorruptError):
            fresh.spend("visits", PureEvent(epsilon=0.1))
        assert not fresh.verify().ok
        fresh.close()


def test_another_programs_database_is_refused_and_left_as_it_was(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE patients (name TEXT)")
    raw.close()
    before = path.read_bytes()
    for use in uses(Ledger(f"sqlite:///{path}")):
        with pytest.raises(LedgerError, match="another SQLite database"):
            use()
    assert path.read_bytes() == before


def test_an_empty_file_is_no_ledger_until_an_account_is_opened(ledger: Ledger, path: Path) -> None:
    path.touch()
    with pytest.raises(LedgerError, match="no ledger at"):
        ledger.verify()
    assert path.stat().st_size == 0
    ledger.open("visits", epsilon=1.0)
    assert ledger.verify().ok


DISK_FULL = """
import os, resource, sys
from escudo.errors import LedgerCorruptError, LedgerError
from escudo.privacy import Ledger, PureEvent

path = sys.argv[1]
ledger = Ledger(f"sqlite:///{path}")
ledger.open("visits", epsilon=100.0)
receipts = [ledger.spend("visits", PureEvent(epsilon=0.01)).hash]
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 20_000, hard))
try:
    for _ in range(100):
        receipts.append(ledger.spend("visits", PureEvent(epsilon=0.01)).hash)
    sys.exit("the disk never became full")
except LedgerError as error:
    assert not isinstance(error, LedgerCorruptError)
    message = str(error)
assert "full" in message and "Nothing was recorded" in message, message
recorded = [row.hash for row in ledger.history() if row.kind == "spend"]
assert recorded == receipts, "a refused spend was recorded"
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
receipts.append(ledger.spend("visits", PureEvent(epsilon=0.01)).hash)
fresh = Ledger(f"sqlite:///{path}")
assert fresh.verify().ok
assert [row.hash for row in fresh.history() if row.kind == "spend"] == receipts
print(len(receipts))
"""


def test_a_full_disk_during_a_spend_records_nothing_and_breaks_nothing(path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", DISK_FULL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1


def test_a_database_at_its_size_limit_records_nothing(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=100.0)
    with ledger._store.reading() as session:
        session._connection.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite takes the present size instead
    spends = 0
    try:
        while spends < 100:
            ledger.spend("visits", PureEvent(epsilon=0.01), purpose="x" * 400)
            spends += 1
    except LedgerError as error:
        assert "the disk is full" in str(error)  # noqa: PT017 - how many spends fit first is SQLite's business
    assert spends < 100
    fresh = again(ledger)
    assert fresh.verify().ok
    assert fresh.info("visits").spends == spends


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ledger.db", "not by a path"),
        ("", "not by a path"),
        (None, "named by a URL"),
        ("sqlite://", "must outlive the process"),
        ("sqlite:///", "must outlive the process"),
        ("sqlite:///:memory:", "must outlive the process"),
        ("sqlite://ledger.db", "three slashes"),
        ("sqlite:///ledger.db?mode=ro", "no options"),
        ("mysql://user:s3cret@host/db", "not 'mysql'"),
        ("postgresql://user:s3cret@host:port/db", "cannot be read"),
        ("://", "not ''"),
    ],
)
def test_a_bad_url_is_refused_without_repeating_it(url: Any, why: str) -> None:
    with pytest.raises(LedgerError, match=why) as error:
        Ledger(url)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1"])
def test_a_bad_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(InputError, match="timeout"):
        Ledger("sqlite:///x.db", timeout=timeout)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_missing_postgresql_driver_names_the_install_command(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    ledger = Ledger(f"{scheme}://owner:s3cret@localhost/books?password=s3cret")
    with pytest.raises(LedgerError, match=r"pip install 'escudo\[postgresql\]'") as error:
        ledger.open("visits", epsilon=1.0)
    assert "s3cret" not in str(error.value) + repr(ledger)
    assert ledger.name == "postgresql://owner:***@localhost/books"


def test_showing_a_ledger_that_is_not_there_is_no_error(ledger: Ledger, path: Path) -> None:
    assert "no ledger at" in ledger._repr_html_()
    assert repr(ledger) == f"Ledger('sqlite:///{path}')"
    assert not path.exists()
