"""Totals against closed forms, dp-accounting's own accountants, and mechanisms small enough to enumerate."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import mpmath
import numpy as np
import pytest

from escudo.errors import InputError, UnsupportedEventError
from escudo.privacy import (
    ApproximateEvent,
    ComposedEvent,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    ParallelEvent,
    PureEvent,
    RepeatedEvent,
    RunningTotal,
    SampledGaussianEvent,
    ZCDPEvent,
    gdp_to_epsilon,
    guarantee_of,
    within,
)
from escudo.privacy import _losses as pld
from escudo.privacy._curves import curve_of
from escudo.privacy._totals import leaves

GAUSSIAN = GaussianEvent(l2_sensitivity=1, scale=1, grid=0, relation="add_remove")
LAPLACE = LaplaceEvent(l1_sensitivity=1, scale=2, grid=0)


def convolved(event, count, delta):
    """Epsilon by loss distributions alone, whatever other accountants would say."""
    curve = curve_of(event)
    reach = RunningTotal(event.relation).add(event, count).quick_epsilon(1e-15)
    return pld.compose([(curve.exact, curve.times * count)], reach=reach).epsilon(delta)


# --- Known numbers ---------------------------------------------------------------------------------------------------


def test_a_gaussian_release_costs_its_closed_form_and_replacing_doubles_the_sensitivity():
    assert guarantee_of(GAUSSIAN, delta=1e-5).epsilon == pytest.approx(4.377, abs=1e-3)
    assert guarantee_of(GAUSSIAN, delta=1e-5, relation="replace_one").epsilon == pytest.approx(9.997, abs=1e-3)
    assert convolved(GAUSSIAN, 1, 1e-5) == pytest.approx(4.377, abs=1e-3)
    assert convolved(GAUSSIAN.under("replace_one"), 1, 1e-5) == pytest.approx(9.997, abs=1e-3)


def test_a_hundred_selections_do_not_come_out_as_one():
    event = ExponentialEvent(epsilon=1.0)
    counted = RunningTotal().add(event, 100)
    assert counted.epsilon(1e-6) == pytest.approx(37.4, abs=0.1)
    assert convolved(event, 100, 1e-6) == pytest.approx(41.50, abs=0.01)
    assert RunningTotal.of(ExponentialEvent(epsilon=0.0)).epsilon(1e-6) == 0.0


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_the_curve_of_a_selection_bounds_every_selection_and_is_reached(epsilon):
    curve = curve_of(ExponentialEvent(epsilon=epsilon)).exact
    at = np.linspace(0, 1.2 * epsilon, 25)
    bound = curve.deltas(at)
    rng = np.random.default_rng(0)
    for _ in range(200):
        scores = rng.normal(0, 3, size := rng.integers(2, 6))
        moved = scores + rng.choice([-1.0, 1.0], size) * rng.choice([1.0, rng.random()])
        chance, other = (np.exp(each * epsilon / 2) / np.exp(each * epsilon / 2).sum() for each in (scores, moved))
        found = np.maximum(chance[None, :] - np.exp(at)[:, None] * other[None, :], 0).sum(axis=1)
        assert (found <= bound + 1e-12).all()
    for x, delta in zip(at, bound, strict=True):
        if x < epsilon:  # two outcomes whose losses are at the ends of the range, at the worst place of it
            top = (epsilon + x) / 2
            share = (math.exp(epsilon) - math.exp(top)) / math.expm1(epsilon)
            assert share * -math.expm1(x - top) == pytest.approx(delta, rel=1e-9)
        else:
            assert delta < 1e-15


BY_NOISE = {
    "laplace": lambda s: LaplaceEvent(l1_sensitivity=1, scale=s, grid=0),
    "laplace on integers": lambda s: LaplaceEvent(l1_sensitivity=1, scale=s, grid=1),
    "laplace on a fine grid": lambda s: LaplaceEvent(l1_sensitivity=1, scale=s, grid=2.0**-20),
    "laplace on an array": lambda s: LaplaceEvent(l1_sensitivity=1, scale=s, grid=1, dimensions=5),
    "gaussian": lambda s: GaussianEvent(l2_sensitivity=1, scale=s, grid=0),
    "gaussian on integers": lambda s: GaussianEvent(l2_sensitivity=1, scale=s, grid=1),
    "gaussian on counts": lambda s: GaussianEvent(l2_sensitivity=2, scale=s, grid=1, changed_cells=2),
    "sampled gaussian": lambda s: SampledGaussianEvent(noise_multiplier=s, sampling_probability=0.01),
    "exponential": lambda s: ExponentialEvent(epsilon=1 / s),
    "approximate": lambda s: ApproximateEvent(epsilon=1 / s, delta=1e-9),
}


@pytest.mark.parametrize("kind", BY_NOISE)
@pytest.mark.parametrize("count", [1, 3])
def test_more_noise_never_costs_more_from_absurdly_little_to_plenty(kind, count):
    costs = []
    for noise in np.geomspace(2e-3, 1e4, 12):
        event = BY_NOISE[kind](float(noise))
        costs.append(RunningTotal().add(event, count).epsilon(1e-6))
    assert costs[0] > 100
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in itertools.pairwise(costs))


def test_ten_tenths_make_one():
    total = RunningTotal()
    for _ in range(10):
        total = total.add(PureEvent(epsilon=0.1))
    assert total.epsilon(0.0) == 1.0
    assert RunningTotal().add(PureEvent(epsilon=0.1), 3).epsilon(0.0) == 0.3


def test_pure_losses_add_up_exactly_whatever_the_order_and_never_below_the_sum():
    losses = [0.1, 0.35, 1e-3, 1 / 3, 2 / 7, 1e-17, 0.7]
    totals = {
        RunningTotal.of([PureEvent(epsilon=e) for e in order]).epsilon(0.0) for order in itertools.permutations(losses)
    }
    assert len(totals) == 1
    assert totals.pop() >= mpmath.fsum(mpmath.mpf(repr(e)) for e in losses) - mpmath.mpf(10) ** -17


def test_the_last_spend_of_a_budget_fits_in_spite_of_rounding():
    assert RunningTotal.of(LaplaceEvent(l1_sensitivity=1, scale=1 / 0.35, grid=0)).epsilon(0.0) > 0.35
    assert within(0.35000000000000003, 0.35)
    assert not within(0.3501, 0.35)


def test_gaussian_releases_add_their_squares():
    total = RunningTotal.of([GDPEvent(mu=3.0), RepeatedEvent(event=GDPEvent(mu=2.0), count=4)])
    assert total.bound(1e-6).accountant == "GDP"
    assert total.epsilon(1e-6) == pytest.approx(gdp_to_epsilon(5.0, 1e-6), rel=1e-8)
    assert total.epsilon(1e-6) >= gdp_to_epsilon(5.0, 1e-6)


def test_without_a_delta_only_pure_events_have_an_epsilon():
    assert RunningTotal.of([PureEvent(epsilon=0.5), LAPLACE]).epsilon(0.0) == 1.0
    for event in (GAUSSIAN, ZCDPEvent(rho=0.1), GDPEvent(mu=0.1), ApproximateEvent(epsilon=0.1, delta=1e-9)):
        assert RunningTotal.of(event).epsilon(0.0) == math.inf


def test_the_deltas_of_events_are_taken_out_of_the_total_delta():
    event = ApproximateEvent(epsilon=0.5, delta=4e-7)
    two = RunningTotal().add(event, 2)
    assert two.epsilon(8e-7) <= 1.0
    assert two.epsilon(7e-7) == math.inf
    assert RunningTotal.of(event).epsilon(4e-7) == 0.5
    assert two.delta(1.0) == pytest.approx(1 - (1 - 4e-7) ** 2, rel=1e-9)
    assert two.delta(0.2) > 8e-7


def test_one_release_is_read_off_its_exact_curve():
    total = RunningTotal.of(LAPLACE)
    bound = total.bound(0.1)
    assert bound.accountant == "closed form"
    assert bound.value == pytest.approx(0.5 + 2 * math.log(0.9), rel=1e-9)  # from 1 - e^{(ε' - ε)/2} = δ
    assert total.delta(bound.value) == pytest.approx(0.1, rel=1e-9)


# --- Convolutions against exact references ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mu", "count", "delta"),
    [
        *itertools.product([1.0], [2], [1e-3, 1e-6, 1e-10]),
        *itertools.product([3.0], [3], [1e-3, 1e-6, 1e-10]),
        *itertools.product([0.1], [100], [1e-3, 1e-6, 1e-9]),
        *itertools.product([0.01], [10_000], [1e-3, 1e-6, 1e-8]),
        *itertools.product([0.003], [100_000], [1e-3, 1e-6]),
    ],
)
def test_convolved_gaussians_are_just_above_the_closed_form(mu, count, delta):
    truth = gdp_to_epsilon(mu * math.sqrt(count), delta)
    found = convolved(GDPEvent(mu=mu), count, delta)
    assert found >= truth * (1 - 1e-12)
    assert found <= truth * 1.03


def composed_response(epsilon, count, at):
    """δ of ``count`` randomised responses, by the binomial sum (Kairouz, Oh, Viswanath 2015, Theorem 3.3)."""
    with mpmath.workdps(60):
        e, x = mpmath.mpf(epsilon), mpmath.mpf(at)
        p = 1 / (1 + mpmath.exp(-e))
        return mpmath.fsum(
            mpmath.binomial(count, k)
            * max(p ** (count - k) * (1 - p) ** k - mpmath.exp(x) * (1 - p) ** (count - k) * p**k, 0)
            for k in range(count + 1)
        )


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 2), (1.0, 10), (0.1, 100), (0.03, 1000), (0.37, 30)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-9])
@pytest.mark.parametrize("kind", [PureEvent, "laplace"])
def test_convolved_responses_are_just_above_the_binomial_sum(epsilon, count, delta, kind):
    # Laplace noise on a grid, one step apart, has exactly the curve of randomised response.
    event = (
        PureEvent(epsilon=epsilon) if kind is PureEvent else LaplaceEvent(l1_sensitivity=1, scale=1 / epsilon, grid=1)
    )
    found = convolved(event, count, delta)
    assert composed_response(epsilon, count, found) <= delta
    if found > 0.05:
        assert composed_response(epsilon, count, found * 0.995) > delta


def test_two_cells_of_a_table_are_just_above_the_sum_over_their_joint_distribution():
    sigma, delta = 1.0, 1e-5
    event = GaussianEvent(l2_sensitivity=math.sqrt(2), scale=sigma, grid=1, changed_cells=2)
    found = RunningTotal.of(event).bound(delta)
    assert found.accountant == "PLD"

    def joint_delta(epsilon):
        x = np.arange(-40, 42, dtype=np.float64)
        p, q = np.exp(-(x**2) / (2 * sigma**2)), np.exp(-((x - 1) ** 2) / (2 * sigma**2))
        p, q = p / p.sum(), q / q.sum()
        return np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0).sum()

    assert joint_delta(found.value) <= delta
    assert joint_delta(found.value * 0.999) > delta


def test_many_convolutions_leave_room_for_their_rounding_and_give_up_below_it():
    """Without that room, 10,000 convolved Gaussians at δ = 1e-10 came out below the closed form."""
    event = GDPEvent(mu=0.01)
    assert convolved(event, 10_000, 1e-8) >= gdp_to_epsilon(1.0, 1e-8)
    assert convolved(event, 10_000, 1e-10) == math.inf
    assert pld.compose([(curve_of(event).exact, pld.MAX_COUNT + 1)], reach=1.0) is None


def test_dp_accounting_agrees_under_add_remove():
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    theirs = [
        (LAPLACE, LAPLACE, dp_event.LaplaceDpEvent(2.0)),
        (GDPEvent(mu=0.5), ZCDPEvent(rho=0.125), dp_event.GaussianDpEvent(2.0)),
    ]
    for event, same_divergences, their_event in theirs:
        accountant = PLDAccountant()
        accountant.compose(their_event, 20)
        assert convolved(event, 20, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)
        rdp = RdpAccountant()
        rdp.compose(their_event, 20)
        quick = RunningTotal().add(same_divergences, 20).quick_epsilon(1e-6)
        assert quick == pytest.approx(rdp.get_epsilon(1e-6), rel=5e-3)


def test_a_mixture_of_kinds_is_better_convolved_than_added():
    total = RunningTotal.of([LAPLACE] * 10 + [GaussianEvent(l2_sensitivity=1, scale=5, grid=0)] * 10)
    bound = total.bound(1e-6)
    assert bound.accountant == "PLD"
    assert bound.value < 0.97 * total.quick_epsilon(1e-6)
    assert total.delta(bound.value) == pytest.approx(1e-6, rel=1e-3)


def test_an_event_without_exact_curve_leaves_renyi_divergences_to_decide():
    total = RunningTotal.of([LAPLACE, LAPLACE, ZCDPEvent(rho=0.01)])
    assert total.bound(1e-6).accountant == "RDP"
    assert total.delta(total.epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-6)


def test_the_work_for_many_different_events_is_bounded_and_the_total_still_sound(monkeypatch):
    sizes = []
    compose = pld.compose
    monkeypatch.setattr(
        "escudo.privacy._totals.compose", lambda parts, *how: sizes.append(len(parts)) or compose(parts, *how)
    )
    monkeypatch.setattr("escudo.privacy._totals._MOST_DISTINCT", 5)
    many = RunningTotal.of([PureEvent(epsilon=0.2 + i / 1000) for i in range(20)])
    few = RunningTotal.of([PureEvent(epsilon=0.219 - i / 1000) for i in range(5)])
    assert few.epsilon(0.01) + sum(0.2 + i / 1000 for i in range(15)) >= many.epsilon(0.01) >= few.epsilon(0.01)
    many.epsilon(1e-9)
    assert max(sizes) == 5


def test_many_gaussians_are_convolved_as_one():
    gaussians = RunningTotal.of([GDPEvent(mu=0.1 + i / 1000) for i in range(200)])
    mu = math.sqrt(sum((0.1 + i / 1000) ** 2 for i in range(200)))
    mixed = gaussians.add(PureEvent(epsilon=0.5), 4)
    together = RunningTotal.of(GDPEvent(mu=mu)).add(PureEvent(epsilon=0.5), 4)
    assert mixed.bound(1e-6).accountant == "PLD"
    assert mixed.epsilon(1e-6) == pytest.approx(together.epsilon(1e-6), rel=1e-6)
    assert gaussians.epsilon(1e-6) < mixed.epsilon(1e-6) < gaussians.epsilon(1e-6) + 2.0


# --- Structure -------------------------------------------------------------------------------------------------------


def test_structure_multiplies_out_to_counts():
    a, b = PureEvent(epsilon=0.1), ZCDPEvent(rho=0.1)
    nested = RepeatedEvent(event=ComposedEvent(events=(a, b, RepeatedEvent(event=a, count=3))), count=5)
    assert dict(leaves(nested)) == {a: 20, b: 5}
    assert RunningTotal.of(nested).events == {a: 20, b: 5}


def test_counts_beyond_reason_are_refused():
    event = PureEvent(epsilon=0.1)
    for _ in range(2):
        event = RepeatedEvent(event=event, count=10**9)
    with pytest.raises(InputError, match="more than 1e\\+15 times"):
        RunningTotal.of(event)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="count"):
            RunningTotal().add(PureEvent(epsilon=0.1), bad)


def test_a_total_keeps_to_its_relation_and_unit():
    with pytest.raises(InputError, match=r"event.under\('replace_one'\)"):
        RunningTotal().add(PureEvent(epsilon=1.0, relation="add_remove"))
    with pytest.raises(InputError, match="per row and the event is stated per person"):
        RunningTotal().add(PureEvent(epsilon=1.0, unit="person", max_rows_per_person=2))
    with pytest.raises(InputError, match="at most 3 rows per person and the event for 2"):
        RunningTotal(unit="person", max_rows_per_person=3).add(
            PureEvent(epsilon=1.0, unit="person", max_rows_per_person=2)
        )
    with pytest.raises(InputError, match="delta"):
        RunningTotal().epsilon(1.0)
    with pytest.raises(InputError, match="epsilon"):
        RunningTotal().delta(-1.0)


def test_adding_leaves_the_old_total_as_it_was():
    before = RunningTotal.of(PureEvent(epsilon=0.5))
    after = before.add(PureEvent(epsilon=0.5))
    assert (before.epsilon(0.0), after.epsilon(0.0)) == (0.5, 1.0)
    assert before.events == {PureEvent(epsilon=0.5): 1}


def test_an_event_of_unknown_kind_is_refused_before_it_is_counted():
    class Mystery(PureEvent):
        kind = "mystery"

    with pytest.raises(UnsupportedEventError, match="mystery"):
        RunningTotal().add(Mystery(epsilon=1.0))


def test_the_quick_total_loads_neither_dp_accounting_nor_sqlalchemy():
    code = """
import sys
from escudo.privacy import PureEvent, RunningTotal, guarantee_of
total = RunningTotal().add(PureEvent(epsilon=0.1), 50)
assert total.quick_epsilon(1e-6) > total.quick_epsilon(1e-3) > 0
assert guarantee_of(PureEvent(epsilon=0.1), delta=1e-6).epsilon <= 0.1
loaded = {"dp_accounting", "sqlalchemy", "opendp", "scipy.stats", "polars"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Parallel composition, by enumeration ----------------------------------------------------------------------------


def answer(flag, epsilon):
    """Distribution of a randomised response to a yes/no fact, as {answer: probability}."""
    truth = 1 / (1 + math.exp(-epsilon))
    return {flag: truth, not flag: 1 - truth}


def joint(answers):
    """Distribution of independent answers, as {tuple: probability}."""
    return {
        tuple(value for value, _ in combination): math.prod(p for _, p in combination)
        for combination in itertools.product(*(a.items() for a in answers))
    }


def worst_delta(pairs, epsilon):
    return max(sum(max(p[o] - math.exp(epsilon) * q[o], 0) for o in p) for p, q in pairs)


LOSSES = (0.9, 0.5, 0.2)
ROWS = [table for size in range(3) for table in itertools.product(range(3), repeat=size)]


def is_replaced(a, b):
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1


def is_added(a, b):
    large, small = sorted((a, b), key=len, reverse=True)
    return len(large) == len(small) + 1 and any(large[:i] + large[i + 1 :] == small for i in range(len(large)))


def by_value(table):
    """Part v holds the rows with value v and says, noisily, whether it is empty."""
    return joint([answer(table.count(v) > 0, LOSSES[v]) for v in range(3)])


def by_position(table):
    """Block i holds the i-th row and says, noisily, whether its value is 0."""
    return joint([answer(value == 0, LOSSES[i]) for i, value in enumerate(table)])


GRID = [0.0, 0.05, 0.2, 0.4, 0.7, 0.9, 1.2, 1.39]


def assert_bounds(total, pairs, tight_at):
    assert pairs
    for epsilon in GRID:
        assert total.delta(epsilon) >= worst_delta(pairs, epsilon) - 1e-15
    largest = max(abs(math.log(p[o] / q[o])) for p, q in pairs for o in p)
    assert total.epsilon(0.0) >= largest - 1e-12
    assert largest == pytest.approx(tight_at, rel=1e-9)


def test_parts_by_position_cost_the_worst_part():
    event = ParallelEvent(events=[PureEvent(epsilon=e) for e in LOSSES], by="position")
    tables = itertools.product(range(2), repeat=3)
    pairs = [
        (by_position(a), by_position(b)) for a, b in itertools.product(list(tables), repeat=2) if is_replaced(a, b)
    ]
    total = RunningTotal.of(event)
    assert_bounds(total, pairs, tight_at=0.9)
    assert total.epsilon(0.0) == 0.9


def test_parts_by_value_cost_the_worst_part_when_a_row_is_added():
    event = ParallelEvent(events=[PureEvent(epsilon=e, relation="add_remove") for e in LOSSES], by="value")
    pairs = [(by_value(a), by_value(b)) for a, b in itertools.permutations(ROWS, 2) if is_added(a, b)]
    total = RunningTotal.of(event)
    assert_bounds(total, pairs, tight_at=0.9)
    assert total.epsilon(0.0) == 0.9


def test_parts_by_value_cost_the_worst_two_when_a_row_moves():
    pairs = [(by_value(a), by_value(b)) for a, b in itertools.permutations(ROWS, 2) if is_replaced(a, b)]
    total = RunningTotal.of(ParallelEvent(events=[PureEvent(epsilon=e) for e in LOSSES], by="value"))
    assert_bounds(total, pairs, tight_at=0.9 + 0.5)
    assert total.epsilon(0.0) == pytest.approx(1.4, rel=1e-12)


def test_parts_by_value_stated_for_one_row_cost_two_steps_of_the_worst_part():
    pairs = [(by_value(a), by_value(b)) for a, b in itertools.permutations(ROWS, 2) if is_replaced(a, b)]
    parts = [PureEvent(epsilon=e, relation="add_remove") for e in LOSSES]
    whole = ParallelEvent(events=parts, by="value").under("replace_one")
    assert whole == ParallelEvent(events=parts, by="value", relation="replace_one")
    assert_bounds(RunningTotal.of(whole), pairs, tight_at=1.4)
    assert RunningTotal.of(whole).epsilon(0.0) == pytest.approx(1.8, rel=1e-12)


def test_equal_parts_are_counted_as_one_or_two_of_them():
    part = GaussianEvent(l2_sensitivity=1, scale=2, grid=0)
    assert dict(leaves(ParallelEvent(events=[part] * 50, by="position"))) == {part: 1}
    assert dict(leaves(ParallelEvent(events=[part], by="value"))) == {part: 1}
    for delta in (1e-9, 1e-3):
        assert RunningTotal.of(ParallelEvent(events=[part] * 50, by="value")).epsilon(delta) == pytest.approx(
            RunningTotal().add(part, 2).epsilon(delta), rel=1e-8
        )


def test_different_parts_are_bounded_notion_by_notion():
    parts = [PureEvent(epsilon=0.5), GDPEvent(mu=0.3), ZCDPEvent(rho=0.02), ApproximateEvent(epsilon=0.1, delta=1e-7)]
    one = RunningTotal.of(ParallelEvent(events=parts, by="position"))
    two = RunningTotal.of(ParallelEvent(events=parts, by="value"))
    for delta in (1e-6, 1e-3):
        single = max(RunningTotal.of(part).epsilon(delta) for part in parts)
        pair = max(RunningTotal.of(pair).epsilon(delta) for pair in itertools.combinations(parts, 2))
        everything = RunningTotal.of(parts).epsilon(delta)
        assert single <= one.epsilon(delta) <= everything
        assert pair <= two.epsilon(delta)
        assert one.epsilon(delta) <= two.epsilon(delta)


def test_stretching_parts_covers_steps_spread_over_them():
    """The lemma in ``ParallelEvent``: k steps anywhere cost at most k steps in the worst part."""
    parts = [
        PureEvent(epsilon=0.4),
        GDPEvent(mu=0.3),
        LaplaceEvent(l1_sensitivity=1, scale=2, grid=1),
        LaplaceEvent(l1_sensitivity=0.3, scale=1, grid=0),
        ExponentialEvent(epsilon=0.7),
        ZCDPEvent(rho=0.05),
        ApproximateEvent(epsilon=0.2, delta=1e-8),
    ]
    whole = ParallelEvent(events=parts, by="position").stretched(4)
    for delta in (1e-9, 1e-5, 1e-2):
        total = RunningTotal.of(whole).quick_epsilon(delta)
        for a, b in itertools.combinations(parts, 2):
            for steps in (1, 2, 3):
                spread = RunningTotal.of([a.stretched(steps), b.stretched(4 - steps)])
                assert spread.quick_epsilon(delta) <= total * (1 + 1e-9)


@pytest.mark.parametrize(
    "part",
    [
        PureEvent(epsilon=0.3),
        GDPEvent(mu=0.3),
        LaplaceEvent(l1_sensitivity=1, scale=4, grid=1),
        LaplaceEvent(l1_sensitivity=0.5, scale=1, grid=0.125),
        LaplaceEvent(l1_sensitivity=0.3, scale=1, grid=0),
        ApproximateEvent(epsilon=0.2, delta=1e-9),
    ],
    ids=repr,
)
def test_steps_in_two_equal_parts_cost_at_most_their_sum_in_one(part):
    """The second lemma in ``ParallelEvent``, on exact curves."""
    for a, b in ((1, 1), (3, 1), (2, 5)):
        spread, together = (
            RunningTotal.of([part.stretched(a), part.stretched(b)]),
            RunningTotal.of(part.stretched(a + b)),
        )
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
            assert spread.delta(epsilon) <= together.delta(epsilon) + 1e-12


# --- Guarantees of events --------------------------------------------------------------------------------------------


def test_a_guarantee_of_nothing_is_zero():
    for relation in (None, "add_remove"):
        g = guarantee_of([], relation=relation)
        assert (g.epsilon, g.delta, g.relation) == (0.0, 0.0, relation or "replace_one")


def test_a_guarantee_of_events_carries_what_proved_it():
    g = guarantee_of([LAPLACE] * 20, delta=1e-6)
    assert (g.delta, g.accountant, g.relation, g.unit) == (1e-6, "PLD", "replace_one", "row")
    assert g.epsilon_at(0.0) == 10.0
    assert g.epsilon_at(1e-3) < g.epsilon < 10.0
    assert g.delta_at(g.epsilon) == pytest.approx(1e-6, rel=1e-3)
    assert g.event == ComposedEvent(events=(LAPLACE,) * 20)


def test_noise_on_no_grid_is_not_float_safe():
    grid, none = LaplaceEvent(l1_sensitivity=1, scale=2, grid=1), LAPLACE
    assert guarantee_of(grid).float_safe
    for event in (none, RepeatedEvent(event=none, count=2), ParallelEvent(events=[grid, none], by="position")):
        assert not guarantee_of(event).float_safe
    assert guarantee_of(none, float_safe=True).float_safe
    assert not guarantee_of(grid, for_release=False).for_release


def test_a_guarantee_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="no finite epsilon at delta=0"):
        guarantee_of(GAUSSIAN)
    with pytest.raises(InputError, match="no finite epsilon at delta=1e-09"):
        guarantee_of(ApproximateEvent(epsilon=1.0, delta=1e-6), delta=1e-9)
    with pytest.raises(InputError, match="says nothing about add_remove"):
        guarantee_of(PureEvent(epsilon=1.0), relation="add_remove")
    person = PureEvent(epsilon=1.0, unit="person", max_rows_per_person=3)
    assert guarantee_of(person).max_rows_per_person == 3
    with pytest.raises(InputError, match="stated for 3 rows per person, not 2"):
        guarantee_of(person, max_rows_per_person=2)
    with pytest.raises(InputError, match="stated for no number of rows per person, not 2"):
        guarantee_of(PureEvent(epsilon=1.0), max_rows_per_person=2)


def test_what_promises_nothing_has_a_delta_of_one():
    nothing = GDPEvent(mu=1e3)
    assert RunningTotal.of(nothing).delta(0.0) == 1.0
    assert RunningTotal.of([nothing, ApproximateEvent(epsilon=1.0, delta=0.5)]).delta(0.0) == 1.0
