"""Conversions against high-precision arithmetic: right, never optimistic, and monotone."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.errors import InputError
from escudo.privacy import (
    approximate_for_group,
    gdp_for_group,
    gdp_to_delta,
    gdp_to_epsilon,
    pure_for_group,
    pure_to_gdp,
    pure_to_zcdp,
    zcdp_for_group,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from escudo.privacy._conversions import smallest_epsilon

losses = st.floats(1e-4, 50)
deltas = st.floats(1e-12, 0.5)
steps = st.integers(1, 20)


def true_gdp_delta(mu, epsilon):
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.e**epsilon * mpmath.ncdf(-mu / 2 - epsilon / mu)


@given(losses, st.floats(0, 60))
def test_gdp_to_delta_is_the_analytic_gaussian_rounded_up(mu, epsilon):
    with mpmath.workdps(50):
        truth = true_gdp_delta(mu, epsilon)
        found = gdp_to_delta(mu, epsilon)
        assert found >= truth * (1 - mpmath.mpf(10) ** -16) - mpmath.mpf(10) ** -300
        assert found <= truth * (1 + mpmath.mpf(10) ** -6) + mpmath.mpf(10) ** -14


@given(losses, deltas)
def test_gdp_to_epsilon_is_enough_and_hardly_more(mu, delta):
    epsilon = gdp_to_epsilon(mu, delta)
    with mpmath.workdps(50):
        assert true_gdp_delta(mu, epsilon) <= delta
        if epsilon > 1e-6:
            assert true_gdp_delta(mu, epsilon * (1 - 1e-6)) > delta * (1 - 1e-5)


def test_the_gaussian_mechanism_of_the_books():
    assert gdp_to_epsilon(1.0, 1e-5) == pytest.approx(4.3772, abs=1e-4)
    assert gdp_to_epsilon(2.0, 1e-5) == pytest.approx(9.9973, abs=1e-4)


@given(losses, deltas)
def test_zcdp_dominates_the_gaussian_mechanism_and_improves_on_the_textbook(rho, delta):
    epsilon = zcdp_to_epsilon(rho, delta)
    mu = math.sqrt(2 * rho)  # Gaussian noise with this mu is rho-zCDP
    assert epsilon >= gdp_to_epsilon(mu, delta) * (1 - 1e-9)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@given(losses, deltas)
def test_zcdp_to_delta_undoes_zcdp_to_epsilon(rho, delta):
    epsilon = zcdp_to_epsilon(rho, delta)
    if epsilon > 0:
        assert zcdp_to_delta(rho, epsilon) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("excess", [0.1, 1.0, 10.0])
def test_zcdp_to_delta_is_the_minimum_of_its_bound(rho, excess):
    epsilon = rho + excess * math.sqrt(rho)
    with mpmath.workdps(30):

        def slope(order):  # of the logarithm of the bound
            return rho * (2 * order - 1) - epsilon + mpmath.log(1 - 1 / order)

        best = mpmath.findroot(slope, (1 + mpmath.mpf(10) ** -9, mpmath.mpf(10) ** 9), solver="anderson", tol=1e-20)
        log_delta = (best - 1) * (rho * best - epsilon + mpmath.log(1 - 1 / best)) - mpmath.log(best)
        assert zcdp_to_delta(rho, epsilon) == pytest.approx(float(mpmath.exp(log_delta)), rel=1e-5)
        assert zcdp_to_delta(rho, epsilon) >= mpmath.exp(log_delta)


@given(st.floats(1e-6, 100), st.floats(1.001, 1e4))
def test_pure_to_zcdp_bounds_randomised_response(epsilon, order):
    with mpmath.workdps(50):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        a = mpmath.mpf(order)
        divergence = mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
        assert divergence <= mpmath.mpf(pure_to_zcdp(epsilon)) * a


@given(st.floats(1e-9, 900), st.floats(0, 1))
def test_pure_to_gdp_lies_below_randomised_response_and_touches_it(epsilon, alarm):
    mu = pure_to_gdp(epsilon)
    with mpmath.workdps(60):
        m = mpmath.mpf(mu)
        miss = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        touch = mpmath.ncdf(-m / 2)
        assert touch <= miss
        assert touch >= miss * (1 - mpmath.mpf("1e-7"))
        if epsilon < 20 and 0.001 < alarm < 0.999:
            x = mpmath.mpf(alarm)
            polygon = max(1 - mpmath.exp(mpmath.mpf(epsilon)) * x, mpmath.exp(-mpmath.mpf(epsilon)) * (1 - x))
            quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * x)
            assert mpmath.ncdf(quantile - m) <= polygon + mpmath.mpf(10) ** -15


@given(losses, losses, deltas)
def test_conversions_grow_with_the_loss(first, second, delta):
    low, high = sorted((first, second))
    assert zcdp_to_epsilon(low, delta) <= zcdp_to_epsilon(high, delta)
    assert gdp_to_epsilon(low, delta) <= gdp_to_epsilon(high, delta)
    assert zcdp_to_delta(low, 1.0) <= zcdp_to_delta(high, 1.0)
    assert gdp_to_delta(low, 1.0) <= gdp_to_delta(high, 1.0) * (1 + 1e-12)
    assert pure_to_zcdp(low) <= pure_to_zcdp(high)
    assert pure_to_gdp(low) <= pure_to_gdp(high)


@given(losses, deltas, deltas)
def test_a_smaller_delta_needs_a_larger_epsilon(loss, first, second):
    low, high = sorted((first, second))
    assert zcdp_to_epsilon(loss, low) >= zcdp_to_epsilon(loss, high)
    assert gdp_to_epsilon(loss, low) >= gdp_to_epsilon(loss, high)


@given(st.floats(0, 10), st.floats(1e-15, 1e-3), steps)
def test_group_privacy_is_never_below_the_exact_product(loss, delta, k):
    exact = mpmath.mpf(loss)
    with mpmath.workdps(40):
        assert exact * k <= pure_for_group(loss, k) <= exact * k * (1 + 1e-15)
        assert exact * k <= gdp_for_group(loss, k) <= exact * k * (1 + 1e-15)
        assert exact * k**2 <= zcdp_for_group(loss, k) <= exact * k**2 * (1 + 1e-15)
        grown = mpmath.mpf(delta) * mpmath.fsum(mpmath.exp(i * exact) for i in range(k))
        if grown >= 0.999:
            return
        epsilon, found = approximate_for_group(loss, delta, k)
        assert epsilon == pure_for_group(loss, k)
        assert grown * (1 - mpmath.mpf(10) ** -16) <= found <= grown * (1 + mpmath.mpf("1e-9"))


def test_group_privacy_of_the_gaussian_mechanism_is_exact():
    """k rows move the statistic k times as far: the noise multiplier shrinks k-fold."""
    for k in (1, 2, 5):
        assert gdp_to_epsilon(gdp_for_group(0.3, k), 1e-6) == pytest.approx(gdp_to_epsilon(0.3 * k, 1e-6), rel=1e-9)


def test_group_privacy_that_promises_nothing_is_refused():
    with pytest.raises(InputError, match="promises nothing 100 steps away"):
        approximate_for_group(1.0, 1e-6, 100)
    with pytest.raises(InputError, match="promises nothing"):
        approximate_for_group(900.0, 1e-300, 2)


def test_nothing_stays_nothing():
    assert zcdp_to_epsilon(0.0, 1e-6) == gdp_to_epsilon(0.0, 1e-6) == 0.0
    assert zcdp_to_delta(0.0, 0.0) == gdp_to_delta(0.0, 0.0) == 0.0
    assert pure_to_zcdp(0.0) == pure_to_gdp(0.0) == 0.0
    assert approximate_for_group(0.0, 0.0, 5) == (0.0, 0.0)
    assert approximate_for_group(0.5, 1e-6, 1) == (0.5, 1e-6)


@pytest.mark.parametrize("convert", [zcdp_to_epsilon, gdp_to_epsilon])
def test_without_a_delta_there_is_no_epsilon(convert):
    with pytest.raises(InputError, match="delta must be greater than 0"):
        convert(1.0, 0.0)
    for bad in (1.0, -0.1, math.nan, math.inf):
        with pytest.raises(InputError, match="delta"):
            convert(1.0, bad)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1", None, True])
def test_losses_are_checked(bad):
    for convert in (pure_to_zcdp, pure_to_gdp):
        with pytest.raises(InputError, match="epsilon"):
            convert(bad)
    for convert, name in (
        (zcdp_to_epsilon, "rho"),
        (gdp_to_epsilon, "mu"),
        (zcdp_to_delta, "rho"),
        (gdp_to_delta, "mu"),
    ):
        with pytest.raises(InputError, match=name):
            convert(bad, 0.5)
    for group, name in ((pure_for_group, "epsilon"), (zcdp_for_group, "rho"), (gdp_for_group, "mu")):
        with pytest.raises(InputError, match=name):
            group(bad, 2)
        with pytest.raises(InputError, match="steps"):
            group(1.0, 0)


def test_conversions_return_plain_floats():
    for value in (zcdp_to_epsilon(0.5, 1e-6), zcdp_to_delta(0.5, 1.0), gdp_to_epsilon(np.float64(1), 1e-6)):
        assert type(value) is float


def test_the_smallest_epsilon_is_found_also_next_to_zero():
    assert smallest_epsilon(lambda epsilon: 0.0 if epsilon > 0 else 1.0, 0.5, 5e-324) == 5e-324
