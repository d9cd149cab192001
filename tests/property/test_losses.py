"""Composed loss distributions against dp-accounting's, from the same curves on the same grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escudo.privacy import ExponentialEvent, GaussianEvent, LaplaceEvent, PureEvent, SampledGaussianEvent
from escudo.privacy._curves import HockeyStick, curve_of
from escudo.privacy._losses import compose

RELATION = "add_remove"
sizes = st.floats(0.01, 1.5)
events = st.one_of(
    sizes.map(lambda size: PureEvent(epsilon=size, relation=RELATION)),
    sizes.map(lambda size: ExponentialEvent(epsilon=size, relation=RELATION)),
    sizes.map(lambda size: LaplaceEvent(l1_sensitivity=size, scale=1, grid=0, relation=RELATION)),
    sizes.map(lambda size: GaussianEvent(l2_sensitivity=size, scale=1, grid=0, relation=RELATION)),
    st.builds(
        lambda noise, q: SampledGaussianEvent(noise_multiplier=noise, sampling_probability=q, relation=RELATION),
        st.floats(0.6, 4.0),
        st.floats(0.001, 0.4),
    ),
)
counted = st.tuples(events.map(lambda event: curve_of(event).exact), st.sampled_from([1, 2, 7, 40]))


def theirs(parts: list[tuple[HockeyStick, int]], interval: float):
    """Return dp-accounting's composition of the curves, read at the same multiples of the interval."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    total = None
    for curve, count in parts:
        if curve.knots is None:
            reach = math.ceil(curve.top / interval)
            steps = np.arange(-reach, reach + 1)
        else:
            ends = {rounded(knot / interval) for knot in curve.knots for rounded in (math.floor, math.ceil)}
            steps = np.array(sorted(ends))
        losses = steps * interval
        size, at = np.exp(-np.abs(losses)), curve.deltas(np.abs(losses))
        once = [np.where(losses < 0, 1 - size + size * at, at)]
        both = once if curve.orders is None else [order(losses) for order in curve.orders]
        made = [
            pld_pmf.create_pmf_pessimistic_connect_dots(interval, steps, np.clip(deltas, 0, 1)).to_dense_pmf()
            for deltas in both
        ]
        one = PrivacyLossDistribution(*made).self_compose(count)
        total = one if total is None else total.compose(one)
    return total


@settings(deadline=None)
@given(st.lists(counted, min_size=1, max_size=3), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_dp_accounting_composes_the_same_losses_to_the_same_answer(parts, delta):
    reach = sum(count * curve.top for curve, count in parts)
    ours = compose(parts, reach=min(reach, 500.0), coarse=True)
    if ours is None:
        return
    peer = theirs(parts, ours.interval)
    assert ours.epsilon(delta) == pytest.approx(peer.get_epsilon_for_delta(delta - ours.reserve), rel=1e-6, abs=1e-9)
    halfway = ours.epsilon(delta) / 2
    assert ours.delta(halfway) == pytest.approx(peer.get_delta_for_epsilon(halfway) + ours.reserve, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("count", [3, 50])
def test_repeated_randomised_response_costs_what_the_binomial_law_says(count):
    """Losses of k times ε each way: δ(e) = Σ (P - e^e Q)⁺ over the number of true answers, summed term by term."""
    size = 0.25
    truth = math.exp(size) / (1 + math.exp(size))
    weights = [math.comb(count, k) * truth**k * (1 - truth) ** (count - k) for k in range(count + 1)]
    losses = [(2 * k - count) * size for k in range(count + 1)]
    ours = compose([(curve_of(PureEvent(epsilon=size)).exact, count)], reach=count * size)
    for at in (0.0, size, 2.5 * size):
        exact = sum(w * -math.expm1(at - loss) for w, loss in zip(weights, losses, strict=True) if loss > at)
        assert exact <= ours.delta(at) <= exact * (1 + 1e-6) + 1e-10


def test_what_the_circle_folds_over_is_paid_for(monkeypatch):
    """With a circle that is far too short for its tails, the bound holds all the same: their mass counts as lost."""
    from escudo.privacy import _losses

    parts = [(curve_of(GaussianEvent(l2_sensitivity=1, scale=1, grid=0, relation=RELATION)).exact, 4)]
    right = compose(parts, reach=20.0).delta(3.0)
    _losses._composed.cache_clear()
    monkeypatch.setattr(_losses, "_TAIL", 1e-3)
    folded = compose(parts, reach=20.0).delta(3.0)
    _losses._composed.cache_clear()
    assert right < folded < right + 3e-3
