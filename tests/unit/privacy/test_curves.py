"""Curves of single events against distributions that are written out and summed, point by point."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from escudo.errors import UnsupportedEventError
from escudo.privacy import (
    ApproximateEvent,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    PureEvent,
    RepeatedEvent,
    SampledGaussianEvent,
    ZCDPEvent,
)
from escudo.privacy._conversions import gdp_deltas
from escudo.privacy._curves import ORDERS, PrivacyCurve, curve_of

EPSILONS = np.array([0.0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0])
SOME = np.arange(0, len(ORDERS), 13)
# How much a curve may exceed the truth: rounding up, and no more.
RELATIVE, ABSOLUTE = 1e-9, 1e-14


def hockey_stick(p, q, epsilon):
    """H_ε(P‖Q) of two lists of masses, in high precision."""
    factor = mpmath.e ** mpmath.mpf(float(epsilon))
    return mpmath.fsum(max(a - factor * b, mpmath.mpf(0)) for a, b in zip(p, q, strict=True))


def renyi(p, q, order):
    """D_α(P‖Q) of two lists of positive masses, in high precision."""
    alpha = mpmath.mpf(float(order))
    moment = mpmath.fsum(b * (a / b) ** alpha for a, b in zip(p, q, strict=True))
    return mpmath.log(moment) / (alpha - 1)


def assert_just_above(values, truths, *, absolute=ABSOLUTE):
    for value, truth in zip(values, truths, strict=True):
        assert value >= truth * (1 - mpmath.mpf(10) ** -15) - mpmath.mpf(10) ** -30
        assert value <= truth * (1 + RELATIVE) + absolute


def exact_deltas(curve: PrivacyCurve) -> np.ndarray:
    assert curve.exact is not None
    return curve.exact.deltas(EPSILONS)


@pytest.mark.parametrize("epsilon", [1e-7, 0.01, 1.0, 5.0, 30.0])
def test_a_pure_event_is_randomised_response(epsilon):
    with mpmath.workdps(60):
        truth = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        p, q = [truth, 1 - truth], [1 - truth, truth]
        curve = curve_of(PureEvent(epsilon=epsilon))
        assert curve.pure == epsilon
        assert_just_above(exact_deltas(curve), [hockey_stick(p, q, e) for e in EPSILONS])
        assert_just_above(curve.renyi[SOME], [renyi(p, q, order) for order in ORDERS[SOME]])


def discrete_laplace_pair(steps: int, step_loss: float):
    """Masses around both centres, far enough out that the rest is below 1e-30."""
    reach = math.ceil(70 / step_loss)
    q = mpmath.exp(-mpmath.mpf(step_loss))
    weight = (1 - q) / (1 + q)
    support = range(-reach, steps + reach + 1)
    return [weight * q ** abs(x) for x in support], [weight * q ** abs(x - steps) for x in support]


@pytest.mark.parametrize(("steps", "step_loss"), [(1, 1.0), (1, 4.0), (2, 0.7), (3, 0.25), (7, 0.1), (5, 1.5)])
def test_laplace_noise_on_a_grid_matches_its_masses(steps, step_loss):
    with mpmath.workdps(60):
        p, q = discrete_laplace_pair(steps, step_loss)
        grid = 0.25
        event = LaplaceEvent(l1_sensitivity=steps * grid, scale=grid / step_loss, grid=grid)
        curve = curve_of(event)
        assert curve.pure == pytest.approx(steps * step_loss, rel=1e-12)
        assert_just_above(exact_deltas(curve), [hockey_stick(p, q, e) for e in EPSILONS], absolute=2e-13)
        assert_just_above(curve.renyi[SOME], [renyi(p, q, order) for order in ORDERS[SOME]])


@pytest.mark.parametrize(("steps", "scale"), [(1, 0.25312279824866213), (1, 0.1), (3, 0.7), (5, 0.3), (2, 49.1)])
def test_laplace_noise_on_a_grid_is_not_below_the_truth_at_its_largest_losses(steps, scale):
    """Where δ is small beside what it is the difference of, and where the loss itself was rounded."""
    curve = curve_of(LaplaceEvent(l1_sensitivity=steps, scale=scale, grid=1))
    epsilons = steps / scale * (1 - 0.1 ** np.arange(1, 17))
    with mpmath.workdps(60):
        ratio = 1 / mpmath.mpf(scale)
        q = mpmath.exp(-ratio)

        def truth(epsilon):
            x = max(mpmath.ceil((steps - mpmath.mpf(epsilon) / ratio) / 2) - 1, 0)
            return max(1 - (q ** (x + 1) + mpmath.exp(mpmath.mpf(epsilon)) * q ** (steps - x)) / (1 + q), 0)

        assert curve.exact is not None
        assert_just_above(curve.exact.deltas(epsilons), [truth(float(e)) for e in epsilons])
        assert curve.exact.top >= steps * ratio


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 4.0])
def test_continuous_laplace_noise_matches_its_integrals(epsilon):
    with mpmath.workdps(40):
        e = mpmath.mpf(epsilon)
        curve = curve_of(LaplaceEvent(l1_sensitivity=epsilon, scale=1.0, grid=0))
        deltas = [max(1 - mpmath.exp((mpmath.mpf(float(x)) - e) / 2), 0) for x in EPSILONS]
        assert_just_above(exact_deltas(curve), deltas)

        def moment(order):
            a = mpmath.mpf(float(order))
            return mpmath.quad(
                lambda x: mpmath.exp(-a * abs(x) - (1 - a) * abs(x - e)) / 2, [-mpmath.inf, 0, e, mpmath.inf]
            )

        few = np.array([0, 100, 180, 200])
        truths = [mpmath.log(moment(order)) / (mpmath.mpf(float(order)) - 1) for order in ORDERS[few]]
        assert_just_above(curve.renyi[few], truths)


def test_a_fine_grid_approaches_continuous_noise():
    smooth = curve_of(LaplaceEvent(l1_sensitivity=1, scale=1, grid=0))
    fine = curve_of(LaplaceEvent(l1_sensitivity=1, scale=1, grid=2.0**-30))
    np.testing.assert_allclose(exact_deltas(fine), exact_deltas(smooth), atol=1e-8)
    np.testing.assert_allclose(fine.renyi, smooth.renyi, rtol=1e-7)


def test_a_vector_with_laplace_noise_is_accounted_as_pure():
    vector = curve_of(LaplaceEvent(l1_sensitivity=1, scale=2, grid=1, dimensions=4))
    pure = curve_of(PureEvent(epsilon=0.5))
    assert vector.pure == pure.pure
    np.testing.assert_array_equal(vector.renyi, pure.renyi)


def test_a_statistic_that_moves_less_than_a_step_is_accounted_as_pure():
    curve = curve_of(LaplaceEvent(l1_sensitivity=0.5, scale=1, grid=1))
    np.testing.assert_array_equal(curve.renyi, curve_of(PureEvent(epsilon=0.5)).renyi)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 4.0])
def test_continuous_gaussian_noise_matches_its_integrals(mu):
    with mpmath.workdps(60):
        m = mpmath.mpf(mu)
        deltas = [
            mpmath.ncdf(m / 2 - mpmath.mpf(float(e)) / m)
            - mpmath.e ** mpmath.mpf(float(e)) * mpmath.ncdf(-m / 2 - mpmath.mpf(float(e)) / m)
            for e in EPSILONS
        ]
        for event in (GDPEvent(mu=mu), GaussianEvent(l2_sensitivity=mu, scale=1.0, grid=0)):
            curve = curve_of(event)
            assert_just_above(exact_deltas(curve), deltas)
            np.testing.assert_allclose(curve.renyi, ORDERS * mu**2 / 2, rtol=1e-9)
            assert curve.mu == mu
            assert curve.pure == math.inf


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.5, 10.0])
def test_gaussian_noise_on_a_grid_matches_its_masses(sigma):
    with mpmath.workdps(60):
        reach = math.ceil(14 * sigma) + 4
        support = range(-reach, reach + 2)
        masses = [
            mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for x in range(-reach - 1, reach + 2)
        ]
        total = mpmath.fsum(masses)
        weight = {x: mass / total for x, mass in zip(range(-reach - 1, reach + 2), masses, strict=True)}
        p, q = [weight[x] for x in support], [weight[x - 1] for x in support]
        grid = 0.5
        curve = curve_of(GaussianEvent(l2_sensitivity=grid, scale=sigma * grid, grid=grid, changed_cells=1))
        assert_just_above(exact_deltas(curve), [hockey_stick(p, q, e) for e in EPSILONS])
        for order, divergence in zip(ORDERS[SOME][:10], curve.renyi[SOME][:10], strict=True):
            assert divergence >= renyi(p, q, order) * (1 - mpmath.mpf(10) ** -15)  # zCDP bounds it


@pytest.mark.parametrize(
    "event",
    [
        *(GaussianEvent(l2_sensitivity=1, scale=scale, grid=1, changed_cells=1) for scale in (0.2, 0.4, 0.7, 3.0)),
        *(
            SampledGaussianEvent(noise_multiplier=noise, sampling_probability=probability, relation=relation)
            for noise, probability in ((0.6, 0.01), (2.0, 0.5), (60.0, 1 - 1e-9))
            for relation in ("add_remove", "replace_one")
        ),
    ],
)
def test_losses_above_the_top_hardly_ever_occur(event):
    exact = curve_of(event).exact
    assert exact is not None
    both = exact.orders or (exact.deltas,)
    assert max(float(deltas(np.array([exact.top]))[0]) for deltas in both) < 1e-20


def test_gaussian_noise_on_a_grid_without_cells_has_only_its_renyi_divergences():
    curve = curve_of(GaussianEvent(l2_sensitivity=1, scale=2, grid=0.25))
    assert curve.exact is None
    assert curve.mu == math.inf
    np.testing.assert_allclose(curve.renyi, ORDERS / 8, rtol=1e-9)


def test_changed_cells_sharpen_a_loose_sensitivity_and_are_copies_of_one_cell():
    curve = curve_of(GaussianEvent(l2_sensitivity=9, scale=4, grid=1, changed_cells=4))
    np.testing.assert_allclose(curve.renyi, ORDERS * 4 / (2 * 16), rtol=1e-9)
    assert curve.times == 4


def test_enormous_noise_in_grid_steps_is_accounted_by_renyi_divergences_alone():
    curve = curve_of(GaussianEvent(l2_sensitivity=1, scale=1e7, grid=1, changed_cells=1))
    assert curve.exact is None
    np.testing.assert_allclose(curve.renyi, ORDERS / 2e14, rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
def test_bounded_range_dominates_every_two_point_mechanism_of_that_range(epsilon):
    curve = curve_of(ExponentialEvent(epsilon=epsilon))
    assert np.all(curve.renyi <= ORDERS * epsilon**2 / 8 * (1 + 1e-9))
    assert np.all(curve.renyi <= curve_of(PureEvent(epsilon=epsilon)).renyi)
    with mpmath.workdps(50):
        for share in (0.01, 0.2, 0.5, 0.8, 0.99):
            high = mpmath.mpf(share * epsilon)  # losses are high and high - epsilon
            low = high - mpmath.mpf(epsilon)
            weight = (1 - mpmath.exp(low)) / (mpmath.exp(high) - mpmath.exp(low))
            q = [weight, 1 - weight]
            p = [weight * mpmath.exp(high), (1 - weight) * mpmath.exp(low)]
            for order, divergence in zip(ORDERS[SOME], curve.renyi[SOME], strict=True):
                assert divergence >= renyi(p, q, order) * (1 - mpmath.mpf(10) ** -15)


def test_noise_on_a_fine_grid_is_as_good_as_continuous_noise_and_on_a_coarse_one_is_not_taken_for_it():
    epsilons = np.array([0.0, 0.1, 0.5, 2.0])
    for mu in (0.01, 0.3, 2.0):
        fine = curve_of(GaussianEvent(l2_sensitivity=mu * 2**30, scale=2.0**30, grid=1.0))
        assert fine.exact is not None
        deltas, continuous = fine.exact.deltas(epsilons), gdp_deltas(mu, epsilons)
        assert np.all(deltas > continuous)
        assert deltas == pytest.approx(continuous, rel=1e-6, abs=1e-8)
        assert deltas[0] >= continuous[0] + 1e-9 * (1 - 1e-6)  # all of the loss, where ε leaves no room for it
        assert math.isinf(fine.mu)  # it is not μ-GDP: sums of squares would leave out what is added
        coarse = curve_of(GaussianEvent(l2_sensitivity=mu * 2**29, scale=2.0**29, grid=1.0))
        assert coarse.exact is None
        assert np.array_equal(coarse.renyi, fine.renyi)


def test_what_a_fine_grid_adds_covers_what_it_does_on_a_grid_that_can_be_summed():
    """The claim's own bound, for one coordinate and few steps, against both laws summed up."""
    sigma, shift = 60.0, 30
    x = np.arange(-1500, 1501)
    noise = np.exp(-(x**2) / (2 * sigma**2))
    noise /= noise.sum()
    moved = np.roll(noise, shift)
    mu = shift / sigma
    loss = (5 + 800 + 2 * mu**2) / (24 * sigma**2)
    for epsilon in (0.02, 0.2, 0.6):
        summed = np.maximum(moved - np.exp(epsilon) * noise, 0).sum()
        assert summed <= np.exp(loss) * gdp_deltas(mu, np.array([epsilon - loss]))[0] + np.exp(-100)
    left = np.arange(-360, 1)  # as on the right; there, differences of a distribution function lose their digits
    rounded = np.diff(stats.norm.cdf(np.append(left - 0.5, 0.5) / sigma))
    ratio = noise[1500 - 360 : 1501] / rounded
    assert np.all(ratio <= np.exp(1 / (24 * sigma**2)) * (1 + 1e-9))
    assert np.all(ratio >= np.exp(-(left**2) / (24 * sigma**4)) * (1 - 1e-9))


def test_zcdp_is_linear_in_the_order():
    curve = curve_of(ZCDPEvent(rho=0.3))
    np.testing.assert_allclose(curve.renyi, 0.3 * ORDERS, rtol=1e-9)
    assert curve.pure == curve.mu == math.inf


def test_an_approximate_event_is_a_pure_one_with_slack():
    curve = curve_of(ApproximateEvent(epsilon=0.5, delta=1e-3))
    assert curve.pure == 0.5
    assert -math.expm1(-curve.slack) == pytest.approx(1e-3, rel=1e-12)
    np.testing.assert_array_equal(curve.renyi, curve_of(PureEvent(epsilon=0.5)).renyi)


@pytest.mark.parametrize(
    "event",
    [
        LaplaceEvent(l1_sensitivity=1000, scale=1, grid=1),
        LaplaceEvent(l1_sensitivity=1, scale=1, grid=1e300),
        LaplaceEvent(l1_sensitivity=1e300, scale=1e300, grid=1e300),
        LaplaceEvent(l1_sensitivity=1e-300, scale=1e-300, grid=0),
        LaplaceEvent(l1_sensitivity=5e-324, scale=1, grid=0),
        LaplaceEvent(l1_sensitivity=1, scale=1e300, grid=1e-300),
        GaussianEvent(l2_sensitivity=1000, scale=1, grid=0),
        GaussianEvent(l2_sensitivity=1000, scale=1, grid=1000, changed_cells=1),
        GaussianEvent(l2_sensitivity=1e-200, scale=1, grid=0),
        PureEvent(epsilon=1000),
        PureEvent(epsilon=5e-324),
        ExponentialEvent(epsilon=1000),
        GDPEvent(mu=1000),
        ZCDPEvent(rho=1e5),
    ],
    ids=repr,
)
def test_extreme_numbers_give_numbers(event):
    curve = curve_of(event)
    assert np.all(curve.renyi >= 0)
    assert not np.isnan(curve.renyi).any()
    assert np.all(np.diff(curve.renyi) >= -1e-9 * curve.renyi[1:])  # divergences grow with the order
    if curve.exact is not None:
        deltas = curve.exact.deltas(np.array([0.0, 1e-9, 1.0, 800.0, 5000.0]))
        assert np.all((deltas >= 0) & (deltas <= 1))
        assert np.all(np.diff(deltas) <= 0)


def test_the_curves_cannot_be_changed_by_their_readers():
    curve = curve_of(PureEvent(epsilon=1.0))
    with pytest.raises(ValueError, match="read-only"):
        curve.renyi[0] = 0.0


def test_a_structured_event_has_no_curve_of_its_own():
    with pytest.raises(UnsupportedEventError, match="No privacy curve is known for events of kind 'repeated'"):
        curve_of(RepeatedEvent(event=PureEvent(epsilon=1.0), count=2))
