"""The cap as a filter: its numbers, its forms, and adversaries who choose amounts by what they have seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from escudo.errors import BudgetExceededError, InputError
from escudo.privacy import (
    ApproximateEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    Ledger,
    MemoryAccount,
    PureEvent,
    RepeatedEvent,
    RunningTotal,
    SampledGaussianEvent,
    ZCDPEvent,
    gdp_to_delta,
)
from escudo.privacy._filter import NOTHING, Charge, Filter, Paid, best_order, filter_of

EPSILON, DELTA = 3.0, 1e-6
STEP = SampledGaussianEvent(noise_multiplier=1.1, sampling_probability=0.01, relation="add_remove")


def opened(epsilon: float = EPSILON, delta: float = DELTA, share: float = 0.5) -> Filter:
    return filter_of(epsilon, delta, share, best_order(epsilon, delta, share))


# -- numbers


@pytest.mark.parametrize(("epsilon", "order"), [(0.01, 1365.0), (0.1, 178.0), (1.0, 23.25), (3.0, 9.25), (8.0, 4.5)])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
def test_the_room_is_the_divergence_at_which_the_cap_holds_rounded_down(epsilon, order, share):
    made = filter_of(epsilon, DELTA, share, order)
    if share == 0.5:
        assert best_order(epsilon, DELTA, share) == order
    with mpmath.workdps(60):
        slack = -mpmath.log(1 - mpmath.mpf("1e-6") * mpmath.mpf(str(share)))
        rest = mpmath.mpf("1e-6") - (1 - mpmath.exp(-mpmath.mpf(made.cap.slack) / 10**30))
        alpha, cap = mpmath.mpf(order), mpmath.mpf(str(epsilon))
        room = cap - mpmath.log(1 - 1 / alpha) + (mpmath.log(rest) + mpmath.log(alpha)) / (alpha - 1)
        assert 0 <= room * 10**18 - made.cap.renyi < 2
        assert 0 <= made.cap.slack - slack * 10**30 < 2
    assert made.cap.pure == round(epsilon * 10**18)


def test_charges_are_rounded_up_and_sums_are_exact():
    made = opened()
    alpha = mpmath.mpf("9.25")
    with mpmath.workdps(40):
        pure = (mpmath.log(mpmath.cosh((alpha - 0.5) * 0.1)) - mpmath.log(mpmath.cosh(mpmath.mpf(0.1) / 2))) / (
            alpha - 1
        )
        assert 0 < made.charge(PureEvent(epsilon=0.1)).renyi / (pure * 10**18) - 1 < 1e-11
    assert made.charge(PureEvent(epsilon=0.1)).pure == 10**17
    assert 0 < made.charge(ZCDPEvent(rho=0.125)).renyi / (9.25 * 0.125e18) - 1 < 1e-11
    assert made.charge(ZCDPEvent(rho=0.125)).pure is None
    own = made.charge(ApproximateEvent(epsilon=0.1, delta=5e-7))
    assert own.slack == made.cap.slack  # just fits
    ten = made.charge(RepeatedEvent(event=PureEvent(epsilon=0.1), count=10))
    assert ten == Charge(10**18, 10 * made.charge(PureEvent(epsilon=0.1)).renyi, 0)
    assert ten.plus(made.charge(ZCDPEvent(rho=0.1))).pure is None


@pytest.mark.parametrize(
    ("event", "most"),
    [
        (LaplaceEvent(l1_sensitivity=1.0, scale=100.0, grid=0.0), 3530),
        (LaplaceEvent(l1_sensitivity=1.0, scale=10.0, grid=0.0), 40),
        (ExponentialEvent(epsilon=0.1), 140),
        (STEP, 2305),
        (PureEvent(epsilon=0.1), 39),
        (ZCDPEvent(rho=0.001), 175),
        (PureEvent(epsilon=3.0), 1),
    ],
)
def test_as_many_releases_fit_as_the_documentation_says(event: Event, most: int):
    made, spent = opened(), NOTHING
    for _ in range(most):
        paid = made.charge(event)
        assert made.admits(spent, paid)
        spent = spent.plus(paid)
    assert not made.admits(spent, made.charge(event))
    assert 0.95 < made.used(spent) <= 1


def test_without_delta_only_pure_losses_count():
    made = filter_of(1.0, 0.0, None, None)
    assert made.admits(NOTHING, made.charge(PureEvent(epsilon=1.0)))
    assert not made.admits(NOTHING, made.charge(PureEvent(epsilon=1.00001)))
    assert made.pay(ZCDPEvent(rho=1e-9), NOTHING) is None
    assert made.pay(ApproximateEvent(epsilon=0.1, delta=1e-12), NOTHING) is None


def test_a_cap_too_small_for_any_order_leaves_the_basic_filter():
    made = filter_of(1e-5, 1e-9, 0.5, 2.0)
    assert made.cap.renyi == 0
    assert made.admits(NOTHING, made.charge(PureEvent(epsilon=1e-5)))
    assert not made.admits(NOTHING, made.charge(ZCDPEvent(rho=1e-15)))


def test_the_order_can_be_tuned_for_what_will_be_spent():
    plan = RepeatedEvent(event=STEP, count=1000)
    plain, tuned = (
        MemoryAccount(epsilon=1.0, delta=1e-6, relation="add_remove", order=order) for order in (None, plan)
    )
    assert plain.terms.order != tuned.terms.order

    def steps(account: MemoryAccount) -> int:
        made = account.terms.filter
        assert made is not None
        return made.cap.renyi // made.charge(STEP).renyi

    assert steps(tuned) >= steps(plain)
    for bad in (1.0, 0.5, math.nan, 1e7, "9"):
        with pytest.raises(InputError, match="order"):
            MemoryAccount(epsilon=1.0, delta=1e-6, order=bad)  # type: ignore[arg-type]
    for bad in (1.0, -0.1, math.nan):
        with pytest.raises(InputError, match="slack_share"):
            MemoryAccount(epsilon=1.0, delta=1e-6, slack_share=bad)
    for terms in ({"spending": "planned", "order": 9.0}, {"delta": 0.0, "order": 9.0}, {"epsilon": None, "order": 9.0}):
        with pytest.raises(InputError, match="order go with adaptive spending"):
            MemoryAccount(**{"epsilon": 1.0, "delta": 1e-6, **terms})
    with pytest.raises(InputError, match="costs something"):
        MemoryAccount(epsilon=1.0, delta=1e-6, order=PureEvent(epsilon=0.0))
    with pytest.raises(InputError, match="spending must be one of"):
        MemoryAccount(epsilon=1.0, spending="hasty")  # type: ignore[arg-type]


# -- forms


def test_one_spend_may_be_charged_as_one_statement_by_the_best_accountant():
    made = opened()
    before = made.charge(PureEvent(epsilon=1.0))
    parts, together = GDPEvent(mu=0.37), GDPEvent(mu=0.42)
    assert made.pay(parts, before) == Paid(made.charge(parts))
    paid = made.pay(together, before)
    assert paid is not None
    assert paid.form == "together"
    assert 0 < paid.delta <= 5e-7
    assert gdp_to_delta(0.42, paid.charge.pure / 1e18) <= paid.delta  # type: ignore[operator]
    assert paid.charge.renyi == made.charge(PureEvent(epsilon=paid.charge.pure / 1e18)).renyi  # type: ignore[operator]
    assert paid.charge.slack == pytest.approx(-math.log1p(-paid.delta) * 1e30, rel=1e-12)
    assert before.plus(paid.charge).slack <= made.cap.slack
    assert made.repaid(together, "together", paid.delta) == paid.charge
    # With more spent before, or no slack left for it, it is refused.
    assert made.pay(together, made.charge(PureEvent(epsilon=1.2))) is None
    assert made.pay(together, before._replace(slack=made.cap.slack)) is None
    for form, delta in (("other", 0.0), ("together", 0.0), ("together", 1.0)):
        with pytest.raises(ValueError, match="no such form"):
            made.repaid(together, form, delta)
    with pytest.raises(ValueError, match="no such form"):
        made.repaid(GDPEvent(mu=2.0), "everything", 0.0)


def test_a_first_spend_may_take_the_whole_account_and_nothing_after_it():
    account = MemoryAccount(epsilon=1.0, delta=1e-6)
    rho = 0.024  # (0.993, 1e-6) by the best accountant, more than (1, 1e-6) in the other forms
    assert 0.9 < RunningTotal.of(ZCDPEvent(rho=rho)).epsilon(1e-6) <= 1.0
    assert opened(1.0).pay(ZCDPEvent(rho=rho), NOTHING) == Paid(opened(1.0).cap, "everything")
    account.spend(ZCDPEvent(rho=rho))
    assert account.used() == 1.0
    assert account.remaining().epsilon == 0.0  # type: ignore[union-attr]
    for event in (PureEvent(epsilon=1e-6), ZCDPEvent(rho=1e-9), ApproximateEvent(epsilon=0.0, delta=1e-12)):
        assert not account.fits(event)
    account.spend(PureEvent(epsilon=0.0))
    second = MemoryAccount(epsilon=1.0, delta=1e-6)
    second.spend(PureEvent(epsilon=1e-3))
    assert not second.fits(ZCDPEvent(rho=rho))  # not the first any more: what it asks may depend on an answer


def test_a_small_spend_never_takes_the_whole_account():
    account = MemoryAccount(epsilon=10.0, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        account.spend(ApproximateEvent(epsilon=0.1, delta=9e-7))
    assert account.used() == 0.0


def test_what_was_charged_is_recorded_and_replayed(tmp_path: Path):
    with Ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        terms: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "relation": "add_remove"}
        ledger.open("together", **terms)
        ledger.open("everything", **terms)
        ledger.open("planned", **terms, spending="planned")
        ledger.spend("together", PureEvent(epsilon=1.0, relation="add_remove"))
        ledger.spend("together", GDPEvent(mu=0.42, relation="add_remove"))
        ledger.spend("everything", GDPEvent(mu=0.64, relation="add_remove"))
        ledger.spend("planned", GDPEvent(mu=0.64, relation="add_remove"))
        forms = [row.payload.get("form") for row in ledger.history() if row.kind == "spend"]
        assert forms == [None, "together", "everything", None]
        live = [(info.used, info.remaining.epsilon) for info in ledger.datasets()]
        with Ledger(ledger.name) as again:
            assert [(info.used, info.remaining.epsilon) for info in again.datasets()] == live
            assert again.verify()
            assert again.info("planned").spending == "planned"
            assert "provided that every amount was settled" in again.info("planned").promise
            assert "Rényi filter of order 9.25" in again.info("together").promise
        with pytest.raises(InputError, match="with other terms"):
            ledger.open("planned", **terms)


# -- adversaries


def test_the_best_accountants_total_is_no_cap_for_amounts_chosen_by_answers_and_the_filter_is():
    """Twenty randomised responses of 0.1, then one spend chosen by the sum of their losses."""
    one = PureEvent(epsilon=0.1)
    last: list[tuple[Callable[[float], bool], Event, Callable[[float], float]]] = [
        (
            lambda loss: loss < 0.9,
            ApproximateEvent(epsilon=1.0, delta=1e-6),
            lambda e: 1e-6 + (1 - 1e-6) * flip(1.0, e),
        ),
        (lambda loss: 0.9 < loss < 1.7, GDPEvent(mu=0.484), lambda e: gdp_to_delta(0.484, e)),
        (lambda loss: loss > 1.7, PureEvent(epsilon=1.217), lambda e: flip(1.217, e)),
    ]

    def flip(epsilon: float, at: float) -> float:
        """Return δ of randomised response, at any ε."""
        truth = 1 / (1 + math.exp(-epsilon))
        return max(0.0, truth - math.exp(at) * (1 - truth)) if at > -epsilon else 1 - math.exp(at)

    def delta(account: MemoryAccount) -> float:
        for _ in range(20):
            account.spend(one)
        truth, total = 1 / (1 + math.exp(-0.1)), 0.0
        for right in range(21):
            chance = math.comb(20, right) * truth**right * (1 - truth) ** (20 - right)
            loss = 0.1 * (2 * right - 20)
            left = EPSILON - loss
            worst = max(0.0, 1 - math.exp(left))
            for here, event, curve in last:
                if here(loss) and account.fits(event):
                    worst = curve(left)
            total += chance * worst
        return total

    planned = MemoryAccount(epsilon=EPSILON, delta=DELTA, spending="planned")
    assert delta(planned) == pytest.approx(2.78e-6, rel=0.01)  # nearly three times what was promised
    assert delta(MemoryAccount(epsilon=EPSILON, delta=DELTA)) < DELTA


@pytest.mark.parametrize("units", [(1, 10), (2, 10), (1, 4), (1, 2)])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_no_adversary_who_plans_ahead_beats_the_filter(units: tuple[int, int], share: float):
    """Dynamic programming: two randomised responses, of so many times 0.05, in the worst order for every answer."""
    made = opened(share=share)
    amounts = [0.05 * unit for unit in units]
    charges = [made.charge(PureEvent(epsilon=amount)) for amount in amounts]
    truths = [1 / (1 + math.exp(-amount)) for amount in amounts]
    limits = [0, 0]
    for kind in (0, 1):
        spent = NOTHING
        while made.admits(spent, charges[kind]):
            spent, limits[kind] = spent.plus(charges[kind]), limits[kind] + 1
    reach = sum(limit * unit for limit, unit in zip(limits, units, strict=True))
    losses = 0.05 * np.arange(-reach, reach + 1)
    stop = np.maximum(0.0, 1 - np.exp(np.minimum(EPSILON - losses, 0.0)))

    def sums(first: int, second: int) -> Charge:
        total = NOTHING
        for charge, count in zip(charges, (first, second), strict=True):
            total = total.plus(Charge((charge.pure or 0) * count, charge.renyi * count, 0))
        return total

    # The value of stopping, or of going on with either: what the loss above ε comes to, as δ counts it.
    values: dict[tuple[int, int], NDArray[np.float64]] = {}
    for first in range(limits[0], -1, -1):
        for second in range(limits[1], -1, -1):
            best = stop
            for kind, after in ((0, (first + 1, second)), (1, (first, second + 1))):
                if after in values and made.admits(sums(first, second), charges[kind]):
                    best = np.maximum(best, _after(values[after], units[kind], truths[kind]))
            values[first, second] = best
    worst = float(values[0, 0][reach])
    assert 0 < worst <= DELTA * (1 - share)
    assert share * DELTA + worst <= DELTA


def _after(value: NDArray[np.float64], unit: int, truth: float) -> NDArray[np.float64]:
    """Return the mean of a value after one more answer, whose loss is ± so many units."""
    up, down = np.full_like(value, value[-1]), np.full_like(value, value[0])
    up[:-unit], down[unit:] = value[unit:], value[:-unit]
    return truth * up + (1 - truth) * down


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_what_the_filter_admits_is_within_the_cap_by_the_best_accountant_too(delta: float):
    rng = np.random.default_rng(5)
    kinds: list[Callable[[float], Event]] = [
        lambda size: PureEvent(epsilon=size),
        lambda size: LaplaceEvent(l1_sensitivity=1.0, scale=1 / size, grid=1.0),
        lambda size: ZCDPEvent(rho=size**2 / 2),
        lambda size: GaussianEvent(l2_sensitivity=1.0, scale=1 / size, grid=0.0),
        lambda size: ApproximateEvent(epsilon=size, delta=delta / 7),
    ]
    for _ in range(6):
        account = MemoryAccount(epsilon=float(rng.uniform(0.3, 3)), delta=delta)
        for _ in range(12):
            event = kinds[rng.integers(len(kinds))](float(rng.uniform(0.02, 0.6)))
            if account.fits(event):
                account.spend(event)
        total = RunningTotal.of([receipt.event for receipt in account.receipts])
        assert account.terms.epsilon is not None
        assert total.epsilon(delta) <= account.terms.epsilon * (1 + 1e-3)  # the accountant's orders are 5% apart
        assert account.used() <= 1
