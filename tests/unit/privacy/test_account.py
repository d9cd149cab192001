"""Accounts in memory, and the arithmetic every account shares."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from escudo.errors import BudgetExceededError, InputError
from escudo.privacy import (
    Account,
    ApproximateEvent,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    MemoryAccount,
    PureEvent,
    Receipt,
)
from escudo.privacy._tally import shown_down, shown_up

GAUSSIAN = GaussianEvent(l2_sensitivity=1.0, scale=20.0, grid=1.0)


def test_an_in_memory_account_is_an_account_and_says_that_it_is_not_recorded() -> None:
    account = MemoryAccount()
    assert isinstance(account, Account)
    assert repr(account) == "in-memory account (not recorded anywhere): 0 spends, no cap, replace one row"
    account.spend(PureEvent(epsilon=1.0))
    assert "1 spend," in repr(account)
    capped = MemoryAccount(epsilon=2.0, delta=1e-6, relation="unbounded", unit="person", max_rows_per_person=4)
    assert repr(capped).endswith("cap ε = 2.00, δ = 1e-06, add or remove one person (at most 4 rows)")
    assert (capped.relation, capped.unit, capped.max_rows_per_person) == ("add_remove", "person", 4)


@pytest.mark.parametrize("unknown", ["dataset", "rows", "relations"])
def test_an_in_memory_account_takes_what_it_is_opened_with_and_nothing_else(unknown: str) -> None:
    with pytest.raises(TypeError, match=unknown):
        MemoryAccount(epsilon=1.0, **{unknown: "visits"})  # type: ignore[call-overload, arg-type]


def test_without_a_cap_everything_fits_and_is_counted() -> None:
    account = MemoryAccount()
    for _ in range(3):
        account.spend(PureEvent(epsilon=100.0))
    assert account.fits(PureEvent(epsilon=1000.0))
    assert account.total().epsilon == 300.0
    assert account.remaining() is None


def test_a_total_without_finite_epsilon_at_the_delta_is_an_error_that_says_so() -> None:
    account = MemoryAccount()
    account.spend(GAUSSIAN)
    with pytest.raises(InputError, match="no finite epsilon at delta=0"):
        account.total()
    assert 0 < account.total(1e-6).epsilon < 1


def test_a_receipt_tells_what_was_counted() -> None:
    account = MemoryAccount(epsilon=2.0)
    first = account.spend(PureEvent(epsilon=0.5), purpose="a\tcount", for_release=False)
    second = account.spend(Guarantee(epsilon=0.25, relation="add_remove"))
    assert account.receipts == (first, second)
    assert (first.sequence, first.purpose, first.for_release, first.hash) == (1, "a count", False, "")
    assert second.event == PureEvent(epsilon=0.5)
    assert account.total().epsilon == 1.0


def test_over_the_cap_nothing_changes() -> None:
    account = MemoryAccount(epsilon=1.0)
    account.spend(PureEvent(epsilon=0.75))
    with pytest.raises(BudgetExceededError) as refused:
        account.spend(PureEvent(epsilon=0.5))
    assert (refused.value.spent, refused.value.left, refused.value.requested, refused.value.cap) == (0.75, 0.25, 0.5, 1)
    assert "the in-memory account does not allow it" in str(refused.value)
    assert "escudo ledger" not in str(refused.value)
    assert len(account.receipts) == 1
    assert account.total().epsilon == 0.75


def test_nothing_left_is_said_as_nothing() -> None:
    account = MemoryAccount(epsilon=1.0)
    account.spend(PureEvent(epsilon=1.0))
    assert account.remaining() == Guarantee(epsilon=0.0)
    with pytest.raises(BudgetExceededError, match=r"left ε = 0.00 [\s\S]*Nothing is left"):
        account.spend(PureEvent(epsilon=0.1))
    account.spend(PureEvent(epsilon=0.0))


@pytest.mark.parametrize("event", [GAUSSIAN, LaplaceEvent(l1_sensitivity=1.0, scale=5.0, grid=0.5)])
def test_what_remains_after_planned_noise_can_be_spent_as_pure_epsilon(event: Any) -> None:
    account = MemoryAccount(epsilon=1.0, delta=1e-6, spending="planned")
    account.spend(event)
    account.spend(event)
    remaining = account.remaining()
    assert remaining is not None
    assert remaining.delta == 0.0
    assert account.total().epsilon + remaining.epsilon == pytest.approx(1.0, abs=1e-2)
    assert not account.fits(PureEvent(epsilon=1.002 * remaining.epsilon))
    account.spend(remaining)


def test_delta_adds_up_as_well() -> None:
    account = MemoryAccount(epsilon=10.0, delta=1e-6, spending="planned")
    account.spend(ApproximateEvent(epsilon=0.1, delta=6e-7))
    with pytest.raises(BudgetExceededError):
        account.spend(ApproximateEvent(epsilon=0.1, delta=6e-7))
    account.spend(ApproximateEvent(epsilon=0.1, delta=3e-7))
    adaptive = MemoryAccount(epsilon=10.0, delta=1e-6)
    with pytest.raises(BudgetExceededError, match=r"a δ of its own, and of the part of δ for such .* 0 is used"):
        adaptive.spend(ApproximateEvent(epsilon=0.1, delta=6e-7))
    adaptive.spend(ApproximateEvent(epsilon=0.1, delta=3e-7))
    with pytest.raises(BudgetExceededError, match=r"\(5e-07\) 3e-07 is used"):
        adaptive.spend(ApproximateEvent(epsilon=0.1, delta=3e-7))
    adaptive.spend(ApproximateEvent(epsilon=0.1, delta=2e-7))
    roomy = MemoryAccount(epsilon=10.0, delta=1e-6, slack_share=0.75)
    roomy.spend(ApproximateEvent(epsilon=0.1, delta=6e-7))


def test_a_spend_is_marked_failed_once_and_stays_spent() -> None:
    account = MemoryAccount()
    receipt = account.spend(PureEvent(epsilon=0.5))
    account.fail(receipt, "first")
    account.fail(receipt, "second")
    assert account.failed == {1: "first"}
    assert account.total().epsilon == 0.5


def test_a_foreign_receipt_cannot_be_marked() -> None:
    account, other = MemoryAccount(), MemoryAccount()
    account.spend(PureEvent(epsilon=0.5))
    foreign = other.spend(PureEvent(epsilon=0.25))
    none = Receipt(dataset="", sequence=0, event=foreign.event, recorded_at="")
    for receipt in (foreign, none):
        with pytest.raises(InputError, match="not of this in-memory account"):
            account.fail(receipt)


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 1.0},
        {"delta": -0.1},
        {"relation": "twins"},
        {"unit": "person"},
        {"max_rows_per_person": 3},
    ],
)
def test_bad_terms_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        MemoryAccount(**terms)


def test_threads_never_pass_the_cap() -> None:
    account, barrier, refused = MemoryAccount(epsilon=1.0), threading.Barrier(8), []

    def race() -> None:
        barrier.wait()
        for _ in range(50):
            try:
                account.spend(PureEvent(epsilon=0.01))
            except BudgetExceededError as error:
                refused.append(error)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(account.receipts), len(refused)) == (100, 300)
    assert [receipt.sequence for receipt in account.receipts] == [*range(1, 101)]
    assert account.total().epsilon == 1.0


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.0, "0.00", "0.00"),
        (2.4, "2.40", "2.40"),
        (0.1 + 0.2, "0.30", "0.30"),
        (1.23456, "1.235", "1.234"),
        (0.000123456, "0.0001235", "0.0001234"),
        (1234.5678, "1234.57", "1234.56"),
        (1000.0, "1000.00", "1000.00"),
        (math.inf, "∞", "∞"),
        (None, "—", "—"),
    ],
)
def test_losses_are_shown_rounded_up_and_budgets_rounded_down(value: float | None, up: str, down: str) -> None:
    assert (shown_up(value), shown_down(value)) == (up, down)


def test_a_training_kept_in_files_ends_once_also_in_memory() -> None:
    account, digest = MemoryAccount(), "0" * 64
    receipt = account.spend(PureEvent(epsilon=0.5))
    assert account.receipt(1) == receipt
    account.mark(receipt, 1, digest)
    nonce = account.resume(receipt, 1, digest)
    for act in (lambda: account.resume(receipt, 1, digest), lambda: account.finish(receipt)):
        with pytest.raises(InputError, match="was resumed"):
            act()
    account.mark(receipt, 2, digest, nonce=nonce)
    account.finish(receipt, nonce=nonce)
    with pytest.raises(InputError, match="is finished"):
        account.finish(receipt, nonce=nonce)
    with pytest.raises(InputError, match="has no spend 2"):
        account.receipt(2)
    with pytest.raises(InputError, match="not of this in-memory account"):
        account.mark(MemoryAccount().spend(PureEvent(epsilon=0.25)), 1, digest)
