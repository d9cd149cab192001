"""Laws of accounting that hold for any events: counting, replay, order, growth, and never below the truth."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escudo.privacy import (
    ApproximateEvent,
    ComposedEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    ParallelEvent,
    PureEvent,
    RepeatedEvent,
    RunningTotal,
    ZCDPEvent,
    gdp_to_epsilon,
    guarantee_of,
)
from escudo.privacy import _losses as pld
from escudo.privacy._curves import curve_of
from escudo.privacy._totals import CostSum

# Loss distributions live on a grid that follows the size of the total, so their totals are this smooth and no smoother.
GRAIN = 2e-3
# Each example of the slow laws convolves a few distributions.
SLOW = settings(max_examples=settings.default.max_examples // 2)

sizes = st.floats(1e-3, 3.0)
counts = st.integers(1, 30)
deltas = st.sampled_from([1e-9, 1e-6, 1e-4, 1e-2])


def gaussian_tables(cells, sigma):
    return GaussianEvent(l2_sensitivity=math.sqrt(cells), scale=sigma, grid=1.0, changed_cells=cells)


def laplace(loss, grid):
    return LaplaceEvent(l1_sensitivity=1.0, scale=1.0 / loss, grid=grid)


LEAVES: dict[str, st.SearchStrategy[Event]] = {
    "laplace": st.builds(laplace, sizes, st.sampled_from([0.0, 1.0, 0.25])),
    "gaussian": st.builds(lambda mu: GaussianEvent(l2_sensitivity=mu, scale=1.0, grid=0.0), sizes),
    "gaussian on a grid": st.builds(lambda mu: GaussianEvent(l2_sensitivity=mu, scale=1.0, grid=0.125), sizes),
    "gaussian table": st.builds(gaussian_tables, st.integers(1, 3), st.floats(0.5, 50.0)),
    "exponential": st.builds(lambda e: ExponentialEvent(epsilon=e), sizes),
    "pure": st.builds(lambda e: PureEvent(epsilon=e), sizes),
    "approximate": st.builds(lambda e, d: ApproximateEvent(epsilon=e, delta=d), sizes, st.floats(0, 1e-11)),
    "zcdp": st.builds(lambda r: ZCDPEvent(rho=r), sizes),
    "gdp": st.builds(lambda m: GDPEvent(mu=m), sizes),
}
leaf_events = st.one_of(*LEAVES.values())


def wrapped(parts: st.SearchStrategy[Event]) -> st.SearchStrategy[Event]:
    some = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda e, n: RepeatedEvent(event=e, count=n), parts, st.integers(1, 5)),
        st.builds(lambda es: ComposedEvent(events=tuple(es)), some),
        st.builds(lambda es, by: ParallelEvent(events=tuple(es), by=by), some, st.sampled_from(["position", "value"])),
    )


any_event = st.recursive(leaf_events, wrapped, max_leaves=5)
any_events = st.lists(any_event, min_size=1, max_size=4)


def total_of(*events: Event) -> RunningTotal:
    return RunningTotal.of(list(events))


# --- Counting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEAVES)
@given(data=st.data(), count=counts, delta=deltas)
def test_counted_composition_is_repeated_composition_for_sums(kind, data, count, delta):
    event = data.draw(LEAVES[kind])
    repeated = RunningTotal()
    for _ in range(count):
        repeated = repeated.add(event)
    for counted in (RunningTotal().add(event, count), total_of(RepeatedEvent(event=event, count=count))):
        assert counted.events == repeated.events
        for at in (0.0, delta):
            assert counted.quick_epsilon(at) == pytest.approx(repeated.quick_epsilon(at), rel=1e-11)


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "gaussian table", "exponential", "pure", "approximate", "gdp"])
@settings(max_examples=settings.default.max_examples // 6)
@given(data=st.data(), count=st.integers(2, 4), delta=st.sampled_from([1e-6, 1e-3]))
def test_counted_composition_is_repeated_composition_for_convolutions(kind, data, count, delta):
    event = data.draw(LEAVES[kind])
    curve = curve_of(event)
    assert curve.exact is not None
    reach = CostSum.of([(event, count)]).bound(1e-15).value
    counted = pld.compose([(curve.exact, curve.times * count)], reach=reach)
    repeated = pld.compose([(curve.exact, curve.times)] * count, reach=reach)
    assert counted is not None
    assert repeated is not None
    assert counted.epsilon(delta) == pytest.approx(repeated.epsilon(delta), rel=1e-4, abs=1e-6)


@given(any_events, deltas, st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(events, delta, random):
    shuffled = random.sample(events, len(events))
    assert total_of(*shuffled).quick_epsilon(delta) == pytest.approx(total_of(*events).quick_epsilon(delta), rel=1e-9)
    assert total_of(*shuffled).epsilon(0.0) == total_of(*events).epsilon(0.0)


@given(any_events, deltas)
def test_composing_is_the_same_as_adding_one_by_one(events, delta):
    one_by_one = RunningTotal()
    for event in events:
        one_by_one = one_by_one.add(event)
    together = total_of(ComposedEvent(events=tuple(events)))
    assert together.events == one_by_one.events
    assert together.quick_epsilon(delta) == pytest.approx(one_by_one.quick_epsilon(delta), rel=1e-9)


@given(any_events, deltas)
def test_replay_from_json_is_the_live_total(events, delta):
    live = RunningTotal()
    lines = []
    for event in events:
        lines.append(json.dumps(event.to_json()))
        live = live.add(event)
    replayed = total_of(*(Event.from_json(json.loads(line)) for line in lines))
    assert replayed.events == live.events
    for at in (0.0, delta):
        assert replayed.quick_epsilon(at) == live.quick_epsilon(at)


# --- Growth ----------------------------------------------------------------------------------------------------------


@given(any_events, any_event, deltas)
def test_adding_an_event_never_lowers_the_quick_total(events, event, delta):
    before = total_of(*events)
    after = before.add(event)
    for at in (0.0, delta):
        assert after.quick_epsilon(at) >= before.quick_epsilon(at) * (1 - 1e-12)


@SLOW
@given(any_events, leaf_events, deltas)
def test_adding_an_event_never_lowers_the_total_beyond_its_grain(events, event, delta):
    before = total_of(*events)
    assert before.add(event).epsilon(delta) >= before.epsilon(delta) * (1 - GRAIN)


@given(any_events, st.floats(0, 3), deltas)
def test_a_pure_event_raises_the_quick_total_by_at_most_its_epsilon(events, epsilon, delta):
    before = total_of(*events)
    after = before.add(PureEvent(epsilon=epsilon))
    for at in (0.0, delta):
        assert after.quick_epsilon(at) <= (before.quick_epsilon(at) + epsilon) * (1 + 1e-9)


@SLOW
@given(any_events, st.floats(0.01, 3), deltas)
def test_a_pure_event_raises_the_total_by_at_most_its_epsilon_and_the_grain(events, epsilon, delta):
    before = total_of(*events)
    after = before.add(PureEvent(epsilon=epsilon))
    assert after.epsilon(delta) <= (before.epsilon(delta) + epsilon) * (1 + GRAIN)


@given(any_events, deltas, deltas)
def test_a_larger_delta_never_costs_more(events, first, second):
    low, high = sorted((first, second))
    total = total_of(*events)
    assert total.quick_epsilon(high) <= total.quick_epsilon(low) <= total.quick_epsilon(0.0)


@given(sizes, sizes, counts, deltas, st.sampled_from(["pure", "exponential", "laplace", "zcdp", "gdp"]))
def test_a_larger_loss_never_costs_less(first, second, count, delta, kind):
    make = {
        "pure": lambda x: PureEvent(epsilon=x),
        "exponential": lambda x: ExponentialEvent(epsilon=x),
        "laplace": lambda x: laplace(x, 0.0),
        "zcdp": lambda x: ZCDPEvent(rho=x),
        "gdp": lambda x: GDPEvent(mu=x),
    }[kind]
    low, high = sorted((first, second))
    cheap, dear = RunningTotal().add(make(low), count), RunningTotal().add(make(high), count)
    assert cheap.quick_epsilon(delta) <= dear.quick_epsilon(delta) * (1 + 1e-9)


@given(any_event, st.integers(1, 4), deltas)
def test_more_steps_apart_never_cost_less(event, steps, delta):
    near, far = total_of(event), total_of(event.stretched(steps))
    for at in (0.0, delta):
        assert far.quick_epsilon(at) >= near.quick_epsilon(at) * (1 - 1e-9)


# --- Against the truth -----------------------------------------------------------------------------------------------


@SLOW
@given(any_events, deltas)
def test_the_quick_total_is_never_below_the_exact_one(events, delta):
    total = total_of(*events)
    assert total.quick_epsilon(delta) >= total.epsilon(delta) >= 0


@SLOW
@given(any_events, deltas)
def test_epsilon_and_delta_undo_each_other(events, delta):
    total = total_of(*events)
    epsilon = total.epsilon(delta)
    if 0 < epsilon < math.inf:
        assert total.delta(epsilon) <= delta * (1 + 1e-6) + 1e-10
        assert total.delta(epsilon * (1 + GRAIN)) <= delta * (1 + 1e-6)


@SLOW
@given(
    st.lists(st.tuples(st.floats(0.05, 2.0), st.integers(1, 20)), min_size=1, max_size=3), st.sampled_from([1e-8, 1e-5])
)
def test_convolved_gaussians_are_never_below_the_closed_form(parts, delta):
    mu = math.sqrt(sum(count * size**2 for size, count in parts))
    curves = [(curve_of(GDPEvent(mu=size)).exact, count) for size, count in parts]
    losses = pld.compose([(curve, count) for curve, count in curves if curve], reach=gdp_to_epsilon(mu, 1e-15))
    assert losses is not None
    truth = gdp_to_epsilon(mu, delta)
    assert truth * (1 - 1e-12) <= losses.epsilon(delta) <= truth * 1.01 + 1e-3


@given(any_event, deltas)
def test_the_total_is_at_least_what_its_gaussian_part_costs(event, delta):
    total = total_of(event, GDPEvent(mu=0.7))
    assert total.quick_epsilon(delta) >= gdp_to_epsilon(0.7, delta) * (1 - 1e-9)


@SLOW
@given(any_event, deltas)
def test_a_guarantee_of_an_event_is_its_total(event, delta):
    total = total_of(event).epsilon(delta)
    if total <= 1000:
        assert guarantee_of(event, delta=delta).epsilon == total
