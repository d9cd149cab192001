"""The ledger on SQLite: what it records and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from escudo.errors import BudgetExceededError, InputError
from escudo.privacy import (
    Account,
    ApproximateEvent,
    GaussianEvent,
    Guarantee,
    Ledger,
    LedgerAccount,
    PureEvent,
    RepeatedEvent,
)


def test_an_account_of_a_ledger_is_an_account(ledger: Ledger) -> None:
    account = ledger.open("visits", epsilon=1.0, unit="person", max_rows_per_person=3, relation="unbounded")
    person: dict[str, Any] = {"relation": "add_remove", "unit": "person", "max_rows_per_person": 3}
    assert isinstance(account, Account)
    assert (account.relation, account.unit, account.max_rows_per_person) == ("add_remove", "person", 3)
    assert account.dataset == "visits"
    found = ledger.account("visits")
    assert isinstance(found, LedgerAccount)
    assert found.terms == account.terms
    receipt = found.spend(PureEvent(epsilon=0.5, **person))
    found.fail(receipt, "no reason")
    assert account.total().epsilon == 0.5
    assert account.remaining().epsilon == 0.5
    assert account.total().max_rows_per_person == 3
    assert account.fits(PureEvent(epsilon=0.5, **person))
    assert not account.fits(PureEvent(epsilon=0.6, **person))
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


def test_numbers_of_any_library_are_recorded_as_plain_numbers(ledger: Ledger, again: Callable[[], Ledger]) -> None:
    terms = {"epsilon": np.float32(0.5), "delta": np.float64(1e-6), "unit": "person", "max_rows_per_person": np.int8(3)}
    account = ledger.open("visits", **terms)
    assert ledger.open("visits", epsilon=0.5, delta=1e-6, unit="person", max_rows_per_person=3).terms == account.terms
    assert again().account("visits").terms == account.terms


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


def test_an_add_remove_event_is_recorded_as_what_it_means_for_replace_one(
    ledger: Ledger, again: Callable[[], Ledger]
) -> None:
    ledger.open("visits", epsilon=1.0)
    receipt = ledger.spend("visits", PureEvent(epsilon=0.25, relation="add_remove"))
    assert receipt.event == PureEvent(epsilon=0.5)
    row = again().history()[-1]
    assert row.event == PureEvent(epsilon=0.5)
    assert row.payload["converted_from"] == "add_remove"
    assert ledger.total("visits").epsilon == 0.5


@pytest.mark.parametrize(
    ("terms", "event", "why"),
    [
        ({"relation": "add_remove"}, PureEvent(epsilon=0.1), "stated for replace_one"),
        ({"unit": "person", "max_rows_per_person": 2}, PureEvent(epsilon=0.1), "stated per row"),
        ({}, PureEvent(epsilon=0.1, unit="person", max_rows_per_person=2), "accounted per row"),
        ({}, 0.1, "A bare number"),
        ({}, {"kind": "pure", "epsilon": 0.1}, "Spend an event"),
        (
            {"unit": "person", "max_rows_per_person": 2},
            Guarantee(epsilon=0.1, unit="person", max_rows_per_person=1),
            "at most 1 rows, but dataset 'visits' protects persons with up to 2",
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


def test_an_event_for_fewer_rows_per_person_is_refused_and_one_for_more_is_taken(ledger: Ledger) -> None:
    ledger.open("visits", epsilon=1.0, unit="person", max_rows_per_person=5)
    one = PureEvent(epsilon=0.1).for_person(1)
    with pytest.raises(InputError, match="at most 1 rows, but dataset 'visits' protects persons with up to 5"):
        ledger.spend("visits", one)
    with pytest.raises(InputError, match="at most 4 rows"):
        ledger.spend("visits", RepeatedEvent(event=PureEvent(epsilon=0.01).for_person(4), count=2))
    assert ledger.total("visits").epsilon == 0.0
    kept = ledger.spend("visits", PureEvent(epsilon=0.01).for_person(20)).event
    assert kept == PureEvent(epsilon=0.2, unit="person", max_rows_per_person=5)
    assert ledger.verify()


def test_spends_recorded_without_the_bound_are_read_with_the_accounts(ledger: Ledger, again: Any) -> None:
    ledger.open("visits", epsilon=1.0, unit="person", max_rows_per_person=5)
    event = {"kind": "pure", "version": 1, "relation": "replace_one", "unit": "person", "epsilon": 0.25}
    with ledger._writing() as session:
        session.append("spend", "visits", {"event": event, "purpose": "", "for_release": True})
    old = again()
    assert old.history("visits")[-1].event == PureEvent(epsilon=0.25, unit="person", max_rows_per_person=5)
    assert old.total("visits").epsilon == 0.25
    assert old.verify()


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
        "  cap ε = 3.00   used 80.0 %   left ε = 0.60   this asks for 33.4 % of it   (replace one row)\n"
        "  The largest pure spend that fits is ε = 0.60, or ask the owner of the ledger (escudo ledger show "
        "'visits 2026').\n"
        "Nothing was spent."
    )
    assert (refused.value.dataset, refused.value.cap) == ("visits 2026", 3.0)
    assert refused.value.left == pytest.approx(0.6)


@pytest.mark.parametrize(
    "event", [GaussianEvent(l2_sensitivity=1.0, scale=50.0, grid=1.0), ApproximateEvent(epsilon=0.1, delta=1e-9)]
)
def test_an_event_without_any_epsilon_at_the_delta_is_refused_with_the_reason(ledger: Ledger, event: Any) -> None:
    ledger.open("visits", epsilon=1.0)
    with pytest.raises(BudgetExceededError, match=r"No ε holds for this event at δ = 0"):
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


@pytest.mark.parametrize("form", ["visité ", " visité", "visite\u0301", "\uff56isité", "visité\u3000"])
def test_a_name_in_another_form_is_the_same_account(ledger: Ledger, form: str) -> None:
    ledger.open("visité", epsilon=1.0)
    assert ledger.open(form, epsilon=1.0).dataset == "visité"
    assert ledger.spend(form, PureEvent(epsilon=0.75)).dataset == "visité"
    with pytest.raises(BudgetExceededError):
        ledger.spend("visité", PureEvent(epsilon=0.75))
    assert [info.dataset for info in ledger.datasets()] == ["visité"]
    assert len(ledger.history(form)) == 2


@pytest.mark.parametrize(
    "twin",
    ["Visits-26", "VISITS-26", "vi\u0455its-26", "visits\u201326", "v\u0456sits-26", "visits-26\ufe0f", "visıts-26"],
)
def test_a_name_that_looks_like_another_opens_no_second_budget(ledger: Ledger, twin: str) -> None:
    ledger.open("visits-26", epsilon=1.0)
    for act in (lambda: ledger.open(twin, epsilon=1.0), lambda: ledger.spend(twin, PureEvent(epsilon=0.1))):
        with pytest.raises(InputError, match="looks like that of 'visits-26'"):
            act()
    assert len(ledger.history()) == 1
    ledger.open("visits-27", epsilon=1.0)


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "nul\x00", "\ud800", "x" * 201, "\ufdfa" * 30, 7, None])
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
    with pytest.raises(InputError, match="purpose must be text"):
        ledger.spend("visits", PureEvent(epsilon=0.1), purpose=b"bytes")  # type: ignore[arg-type]
    assert ledger.verify().rows == 1
