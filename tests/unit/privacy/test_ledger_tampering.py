"""What a check of the ledger finds: edited rows, forged rows with fitting hashes, spends beyond the cap."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from escudo.errors import InputError, LedgerCorruptError, LedgerError
from escudo.privacy import Ledger, PureEvent
from escudo.privacy._filter import Charge, Paid
from escudo.privacy._ledger_chain import _below, genesis, terms_of


def test_the_hash_is_as_documented_so_that_anyone_can_check_it(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.5), purpose="größer")
    exported = json.loads(json.dumps(ledger.export()))
    previous = genesis(exported["ledger_id"])
    assert previous == hashlib.sha256(f"escudo ledger, format 2, {exported['ledger_id']}".encode()).hexdigest()
    for row in exported["rows"]:
        names = ["sequence", "kind", "dataset", "payload", "charge", "state", "recorded_at"]
        parts = [previous, *(row[name] for name in names)]
        text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
        previous = hashlib.sha256(text.encode()).hexdigest()
        assert row["hash"] == previous
    assert exported["head"] == previous == ledger.head
    assert exported["problem"] is None


def test_an_earlier_head_is_still_found_in_a_ledger_that_grew(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0)
    kept = ledger.head
    ledger.spend("visits", PureEvent(epsilon=0.5))
    for head in (kept, ledger.head, genesis(ledger.anchor["ledger_id"])):
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
    """Append a row with fitting hash, charge and state but arbitrary contents, as someone with the code could."""
    with ledger._store.writing() as session:
        account, paid = session.accounts.get(dataset), None
        if account is not None and kind == "spend":
            amount = payload["event"]["epsilon"] if isinstance(payload, dict) and type(payload["event"]) is dict else 0
            rule = terms_of(dataset, account.terms).filter
            assert rule is not None
            paid = Paid(rule.charge(PureEvent(epsilon=amount)))
            account = replace(account, spent=account.spent.plus(paid.charge), spends=account.spends + 1)
        if account is not None and kind == "failed":
            account = replace(account, failed=account.failed + 1)
        row = session.next_row(kind, dataset, payload, None if paid is None else paid.charge)
        session.append(row, None if account is None else replace(account, last=row.sequence))


def spend_of(epsilon: float) -> dict[str, Any]:
    return {"event": PureEvent(epsilon=epsilon).to_json(), "purpose": "", "for_release": True}


def test_verify_finds_a_spend_beyond_the_cap_and_names_its_row(ledger: Ledger, again: Callable[[], Ledger]) -> None:
    ledger.open("visits", epsilon=1.0)
    for _ in range(5):
        forge(ledger, "spend", spend_of(0.3))
    found = again().verify()
    assert "row 5 passes the cap of dataset 'visits'" in str(found.problem)
    assert "120.0 % of ε = 1.00" in str(found.problem)


@pytest.mark.parametrize(
    ("kind", "payload", "dataset"),
    [
        ("open", {"epsilon": 5.0}, "visits"),
        ("open", {"epsilon": -5.0}, "other"),
        ("open", {"epsilon": None}, "other"),
        ("open", {"epsilon": 1.0, "dataset": "visits"}, "other"),
        ("open", {"epsilon": 5.0, "surprise": 1}, "other"),
        ("spend", spend_of(0.1), "other"),
        ("spend", {"event": 5, "purpose": "", "for_release": True}, "visits"),
        ("spend", [], "visits"),
        ("spend", spend_of(0.1) | {"event": PureEvent(epsilon=0.1, relation="add_remove").to_json()}, "visits"),
        ("failed", {"spend": 1, "reason": ""}, "visits"),
        ("failed", {"spend": 17, "reason": ""}, "visits"),
        ("failed", {}, "visits"),
    ],
)
def test_rows_that_make_no_sense_are_found_even_with_fitting_hashes(
    ledger: Ledger, again: Callable[[], Ledger], kind: str, payload: Any, dataset: str
) -> None:
    ledger.open("visits", epsilon=1.0)
    forge(ledger, kind, payload, dataset)
    fresh = again()
    if kind == "spend" and payload == {"event": 5, "purpose": "", "for_release": True}:
        with pytest.raises(LedgerError, match="row 2 holds an event that this escudo cannot read"):
            fresh.verify()
        return
    assert "row 2 " in str(fresh.verify().problem)


def test_an_event_of_a_newer_escudo_is_an_error_but_no_corruption(ledger: Ledger, again: Callable[[], Ledger]) -> None:
    ledger.open("visits", epsilon=1.0)
    newer = spend_of(0.1)
    newer["event"]["version"] = 3
    forge(ledger, "spend", newer)
    with pytest.raises(LedgerError, match="newer escudo") as error:
        again().total("visits")
    assert not isinstance(error.value, LedgerCorruptError)


def test_a_broken_ledger_can_still_be_exported(ledger: Ledger, path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.5))
    ledger.close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE escudo_ledger SET payload = 'not JSON' WHERE sequence = 2")
    raw.close()
    exported = Ledger(ledger.name).export()
    assert "row 2 " in exported["problem"]
    assert exported["rows"][1]["payload"] == "not JSON"


def test_a_payload_nested_beyond_reason_is_found(ledger: Ledger, again: Callable[[], Ledger], path: Path) -> None:
    ledger.open("visits", epsilon=1.0)
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    forge(ledger, "spend", {"event": deep, "purpose": "", "for_release": True})
    with pytest.raises(LedgerError, match="row 2 "):
        again().total("visits")


@pytest.mark.parametrize("assignment", ["rows = 'many'", "hash = x'00ff'", "format = 'one'", "rows = 1.5"])
def test_an_edited_head_record_is_found(ledger: Ledger, path: Path, assignment: str) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"UPDATE escudo_ledger_head SET {assignment}")
    raw.close()
    assert "the head record was edited" in str(Ledger(ledger.name).verify().problem)


def test_rows_that_are_gone_are_missed_although_the_head_record_says_that_there_were_none(
    ledger: Ledger, path: Path
) -> None:
    ledger.open("visits", epsilon=1.0)
    ledger.spend("visits", PureEvent(epsilon=0.9))
    first = genesis(ledger.anchor["ledger_id"])
    ledger.close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DELETE FROM escudo_ledger")
        raw.execute("UPDATE escudo_ledger_head SET rows = 0, hash = ?", [first])
    raw.close()
    again = Ledger(ledger.name)
    assert not again.verify().ok
    with pytest.raises(LedgerCorruptError, match="all rows were removed"):
        again.spend("visits", PureEvent(epsilon=0.9))


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


@pytest.mark.parametrize("part", ["pure", "renyi", "slack"])
def test_a_charge_is_too_small_if_one_part_of_it_is(part: str) -> None:
    worth = Charge(pure=10**18, renyi=10**18, slack=10**18)
    assert _below(worth._replace(**{part: 10**18 - 10**10}), worth)
    assert not _below(worth._replace(**{part: 10**18 - 10**8}), worth)  # the last digits of another processor
    assert not _below(worth._replace(**{part: 2 * 10**18}), worth)


def test_a_bounded_loss_is_too_small_where_the_event_has_none() -> None:
    worth = Charge(pure=None, renyi=10**18, slack=0)
    assert _below(worth._replace(pure=10**30), worth)
    assert not _below(worth, worth)
