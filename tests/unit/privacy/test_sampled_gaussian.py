"""The event of DP-SGD: its curve against brute force, dp-accounting and closed forms, for both relations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from escudo.errors import InputError
from escudo.privacy import (
    Budget,
    ComposedEvent,
    GaussianEvent,
    ParallelEvent,
    RepeatedEvent,
    RunningTotal,
    SampledGaussianEvent,
    calibrate,
    gdp_to_epsilon,
    guarantee_of,
)
from escudo.privacy._curves import ORDERS, SampledPair, curve_of

SETTINGS = [(0.8, 0.01, 1000), (1.0, 0.02, 2000), (2.0, 0.1, 500), (5.0, 0.3, 100)]
by_setting = pytest.mark.parametrize(("noise", "q", "steps"), SETTINGS)
by_relation = pytest.mark.parametrize("relation", ["add_remove", "replace_one"])


def event(noise: float, q: float, relation: str = "add_remove", rows: int = 1) -> SampledGaussianEvent:
    return SampledGaussianEvent(noise_multiplier=noise, sampling_probability=q, rows=rows, relation=relation)


def log_densities(made: SampledGaussianEvent, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both tables' outputs on the line, written down without the module under test."""
    q, m = made.sampling_probability, 1 / made.noise_multiplier
    chances = [math.comb(made.rows, j) * q**j * (1 - q) ** (made.rows - j) for j in range(made.rows + 1)]
    sign = -1 if made.relation == "replace_one" else 0
    first = logsumexp([math.log(c) + norm.logpdf(x - j * m) for j, c in enumerate(chances)], axis=0)
    return first, logsumexp([math.log(c) + norm.logpdf(x - sign * j * m) for j, c in enumerate(chances)], axis=0)


@by_relation
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("noise", "q"), [(0.7, 0.05), (2.0, 0.5)])
def test_the_curve_is_the_hockey_stick_divergence_of_the_two_tables(noise, q, rows, relation):
    made = event(noise, q, relation, rows)
    x = np.linspace(-14 - 3 / noise, 14 + 3 * rows / noise, 400_001)
    first, second = map(np.exp, log_densities(made, x))
    width = x[1] - x[0]
    for epsilon in (-2.0, -0.3, 0.0, 0.4, 1.5):
        there = np.maximum(first - math.exp(epsilon) * second, 0).sum() * width
        back = np.maximum(second - math.exp(epsilon) * first, 0).sum() * width
        at = np.array([epsilon])
        assert made.pair.forward(at)[0] == pytest.approx(there, abs=1e-9)
        assert made.pair.backward(at)[0] == pytest.approx(back, abs=1e-9)
        assert made.pair.deltas(at)[0] == pytest.approx(max(there, back), abs=1e-9)


@by_relation
@pytest.mark.parametrize("rows", [1, 4])
def test_the_renyi_divergences_are_those_of_the_two_tables(rows, relation):
    made = event(1.5, 0.1, relation, rows)
    x = np.linspace(-60, 160, 100_001)
    first, second = log_densities(made, x)
    log_width = math.log(x[1] - x[0])
    for alpha in (1.5, 4.0, 12.0):
        place = int(np.argmin(np.abs(ORDERS - alpha)))
        order = ORDERS[place]
        there = (logsumexp(order * first + (1 - order) * second) + log_width) / (order - 1)
        back = (logsumexp(order * second + (1 - order) * first) + log_width) / (order - 1)
        assert curve_of(made).renyi[place] == pytest.approx(max(there, back), rel=1e-6)


@by_setting
def test_composed_steps_cost_what_dp_accountings_own_accountants_say(noise, q, steps):
    import dp_accounting
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    theirs = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(noise)), steps)
    for relation, name in (("add_remove", "ADD_OR_REMOVE_ONE"), ("replace_one", "REPLACE_ONE")):
        ours = RunningTotal.of(RepeatedEvent(event=event(noise, q, relation), count=steps))
        peer = PLDAccountant(dp_accounting.NeighboringRelation[name]).compose(theirs)
        assert ours.bound(1e-5).accountant == "PLD"
        assert ours.epsilon(1e-5) == pytest.approx(peer.get_epsilon(1e-5), rel=3e-4)
    slow = RdpAccountant(orders=np.linspace(1.5, 60, 200).tolist()).compose(theirs)
    quick = RunningTotal.of(RepeatedEvent(event=event(noise, q), count=steps)).quick_epsilon(1e-5)
    assert quick == pytest.approx(slow.get_epsilon(1e-5), rel=5e-3)


@by_relation
def test_drawing_every_row_is_plain_gaussian_noise(relation):
    made = RepeatedEvent(event=event(4.0, 1.0, relation), count=9)
    shift = 2 if relation == "replace_one" else 1
    plain = GaussianEvent(l2_sensitivity=shift, scale=4.0, grid=0.0, relation=relation)
    assert RunningTotal.of(made).epsilon(1e-6) == pytest.approx(gdp_to_epsilon(shift * 3 / 4, 1e-6), rel=1e-6)
    assert RunningTotal.of(made).epsilon(1e-6) == pytest.approx(
        RunningTotal.of(RepeatedEvent(event=plain, count=9)).epsilon(1e-6), rel=1e-9
    )


@by_setting
def test_sampling_costs_less_than_none_and_replacing_more_than_removing(noise, q, steps):
    removing, replacing = (
        RunningTotal.of(event(noise, q, relation)).epsilon(1e-5) for relation in ("add_remove", "replace_one")
    )
    assert 0 <= removing <= replacing <= 2 * gdp_to_epsilon(1 / noise, 1e-5) + 1e-9
    assert removing < gdp_to_epsilon(1 / noise, 1e-5)


def test_a_step_beside_other_releases_is_composed_in_both_orders():
    count = GaussianEvent(l2_sensitivity=1, scale=8.0, grid=1.0, changed_cells=1, relation="add_remove")
    steps = RepeatedEvent(event=event(2.0, 0.1), count=100)
    both = RunningTotal.of(ComposedEvent(events=(count, steps))).epsilon(1e-6)
    alone = RunningTotal.of(steps).epsilon(1e-6)
    assert alone < both < alone + RunningTotal.of(count).epsilon(1e-6) + 1e-6


def test_the_calibrated_noise_meets_the_budget_and_hardly_more():
    def steps(noise: float) -> RepeatedEvent:
        return RepeatedEvent(event=event(noise, 0.1), count=200)

    noise = calibrate(steps, Budget(1.0, 1e-5))
    assert 0.999 < RunningTotal.of(steps(noise)).epsilon(1e-5) <= 1.0
    assert RunningTotal.of(steps(noise * 0.99)).epsilon(1e-5) > 1.0


def test_groups_and_persons_cost_more_the_more_rows_they_have():
    one = event(2.0, 0.1)
    epsilons = [RunningTotal.of(one.stretched(k)).epsilon(1e-6) for k in (1, 2, 5)]
    assert epsilons[0] < epsilons[1] < epsilons[2]
    assert one.stretched(2).stretched(3) == one.stretched(6)
    person = one.for_person(4)
    assert (person.rows, person.unit, person.max_rows_per_person) == (4, "person", 4)
    assert (
        SampledGaussianEvent(noise_multiplier=2.0, sampling_probability=0.1, unit="person", max_rows_per_person=4).rows
        == 4
    )
    with pytest.raises(InputError, match=r"rows must be at least max_rows_per_person \(4\)"):
        SampledGaussianEvent(
            noise_multiplier=2.0, sampling_probability=0.1, unit="person", max_rows_per_person=4, rows=3
        )
    assert person.stretched(2).rows == 8
    assert one.under("replace_one") == event(2.0, 0.1, "replace_one")


def test_the_guarantee_says_that_the_noise_is_not_safe_in_floating_point():
    assert not guarantee_of(RepeatedEvent(event=event(2.0, 0.1), count=10), delta=1e-6).float_safe


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise_multiplier", 0.0),
        ("noise_multiplier", math.nan),
        ("noise_multiplier", 1e-9),
        ("sampling_probability", 1.5),
        ("sampling_probability", -0.1),
        ("sampling_probability", True),
        ("rows", 0),
        ("rows", 10**6),
    ],
    ids=["no noise", "NaN", "hardly noise", "above 1", "below 0", "truth value", "no row", "too many rows"],
)
def test_a_number_out_of_range_is_refused(field, value):
    with pytest.raises(InputError, match=field):
        SampledGaussianEvent(**{"noise_multiplier": 1.0, "sampling_probability": 0.1, field: value})


def test_parallel_events_do_not_take_it_since_their_lemmas_do_not_cover_it():
    with pytest.raises(InputError, match="sampled_gaussian"):
        ParallelEvent(events=(RepeatedEvent(event=event(1.0, 0.1), count=2),), by="value")


@by_relation
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("noise", [0.004, 0.02, 0.026, 0.05])
def test_hardly_any_noise_is_never_taken_for_privacy(noise, rows, relation):
    # e^{-m²/2} is 0 in floats for such shifts m, while a drawn row is seen for certain.
    total = RunningTotal.of(event(noise, 0.01, relation, rows))
    assert total.delta(1.0) == pytest.approx(1 - 0.99**rows, rel=1e-6)
    assert total.epsilon(1e-6) > 100
    assert RunningTotal.of(RepeatedEvent(event=event(noise, 0.01, relation, rows), count=3)).epsilon(1e-6) > 100


@pytest.mark.parametrize("shift", [1e-3, 0.1, 1.0, 10.0, 500.0])
@pytest.mark.parametrize("q", [1e-8, 0.01, 0.999])
@pytest.mark.parametrize("both", [True, False], ids=["replace_one", "add_remove"])
def test_half_lines_end_where_the_loss_is_epsilon(shift, q, both):
    pair = SampledPair(shift=shift, q=q, rows=1, both=both)
    lowest = -5.0 if both else math.log1p(-q) * 0.9  # under add_remove the loss is above log(1 - q) everywhere
    epsilons = np.array([lowest, lowest / 2, 0.0, 1e-9, 1e-3, 0.5, 1.0, 3.0, 30.0, 300.0, 900.0])
    assert pair._loss(pair._end(epsilons)) == pytest.approx(epsilons, rel=1e-9, abs=1e-9 * max(1.0, shift))
    if not both:
        assert pair._end(np.array([2 * math.log1p(-q)]))[0] == -math.inf
