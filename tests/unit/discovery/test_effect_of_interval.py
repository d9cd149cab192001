"""Intervals: equal to a slow, obvious profile; wide where there is nothing to see; never narrower than chance alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from escudo.discovery._adjustment import Strata, contrast_interval, contrast_value, holds

CRITICAL = 3.8415
SIGNS = np.array([-1.0, 1.0])


def strata_of(measured: object, noise: float, rest: object = None, rest_variance: float = 0.0) -> Strata:
    cells = np.array(measured, dtype=float)
    covariance = np.zeros((*cells.shape, 2))
    for kind in (0, 1):
        covariance[..., kind, kind] = np.maximum(cells[..., kind], 0) + 1 + noise**2
    others = np.zeros(len(cells)) if rest is None else np.array(rest, dtype=float)
    return Strata(
        measured=cells,
        covariance=covariance,
        rest=others,
        rest_variance=np.full(len(cells), rest_variance),
        spread=np.zeros(cells.shape[:2]),
    )


def slow_distance(strata: Strata, contrast: float) -> float:
    """Minimise over rows, means and the rest at once, with the constraint stated as such, from many starts."""
    count = len(strata.rest)
    weight = np.linalg.inv(strata.covariance)
    free = bool(strata.rest_variance.any())

    def parts(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, means = theta[: 2 * count].reshape(count, 2), theta[2 * count : 4 * count].reshape(count, 2)
        return rows, means, theta[4 * count :] if free else strata.rest

    def distance(theta: np.ndarray) -> float:
        rows, means, rest = parts(theta)
        off = strata.measured - rows[..., None] * np.stack([means, 1 - means], axis=2)
        total = float(np.einsum("zti,ztij,ztj->", off, weight, off))
        return total + (float(((rest - strata.rest) ** 2 / strata.rest_variance).sum()) if free else 0.0)

    def gap(theta: np.ndarray) -> float:
        rows, means, rest = parts(theta)
        return float(((rows.sum(axis=1) + rest) * (means @ SIGNS - contrast)).sum()) / 100

    within = zip(*(ends.ravel() for ends in strata.bounds), strict=True)
    bounds = [*[(None, None)] * (2 * count), *within, *[(None, None)] * (count if free else 0)]
    rng = np.random.default_rng(0)
    best = np.inf
    for _ in range(3):
        start = np.concatenate([strata.rows.ravel(), rng.random(2 * count), strata.rest if free else []])
        limit = {"type": "eq", "fun": gap}
        found = minimize(distance, start, bounds=bounds, constraints=[limit], method="SLSQP", options={"maxiter": 400})
        if found.success and abs(gap(found.x)) < 1e-4:
            best = min(best, float(found.fun))
    return best


CASES = {
    "clear": strata_of([[[300, 700], [600, 400]], [[200, 100], [450, 350]]], 8.0),
    "one arm thin": strata_of([[[300, 700], [600, 400]], [[200, 100], [9, 4]]], 8.0),
    "one arm lost": strata_of([[[300, 700], [600, 400]], [[200, 100], [-6, 4]]], 8.0),
    "with a rest": strata_of([[[300, 700], [600, 400]], [[20, 10], [45, 35]]], 6.0, [50, 900], 400.0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_ends_are_where_the_slow_profile_crosses_the_critical_value(name: str) -> None:
    strata = CASES[name]
    least = slow_distance(strata, contrast_value(strata, SIGNS))
    low, high = contrast_interval(strata, SIGNS, critical=CRITICAL)
    width = high - low
    for end, inwards in ((low, 1), (high, -1)):
        # Just inside, the slow distance is below the critical value; the interval may be a little too wide, not narrow.
        assert slow_distance(strata, end + inwards * 0.08 * width) - least < CRITICAL * 1.02
        assert slow_distance(strata, end - inwards * 0.03 * width) - least > CRITICAL * 0.9


def test_without_strata_it_is_the_usual_interval_of_a_difference() -> None:
    strata = strata_of([[[300, 700], [600, 400]]], 0.0)
    low, high = contrast_interval(strata, SIGNS, critical=CRITICAL)
    usual = 1.96 * np.sqrt(0.3 * 0.7 / 1000 + 0.6 * 0.4 / 1000)
    assert (high - low) / 2 == pytest.approx(usual, rel=0.03)
    assert (low + high) / 2 == pytest.approx(0.3, abs=0.002)


def test_noise_widens_it_as_its_variance_says() -> None:
    low, high = contrast_interval(strata_of([[[5000, 5000], [5000, 5000]]], 400.0), SIGNS, critical=CRITICAL)
    usual = 1.96 * np.sqrt(2 * (0.25 / 10_000 + 400**2 / 2 / 10_000**2))
    assert (high - low) / 2 == pytest.approx(usual, rel=0.03)


def test_an_empty_table_says_nothing() -> None:
    strata = strata_of([[[0, 0], [0, 0]], [[3, -2], [-4, 1]]], 10.0)
    assert contrast_interval(strata, SIGNS, critical=CRITICAL) == (-1.0, 1.0)
    assert contrast_interval(strata.only([0]), np.array([1.0]), critical=CRITICAL) == (0.0, 1.0)


def test_many_empty_strata_add_no_rows_that_are_not_there() -> None:
    rng = np.random.default_rng(4)
    full = np.array([[[30_000, 10_000], [25_000, 15_000]]], dtype=float)
    values = []
    for _ in range(40):
        empty = rng.normal(0, 50, (40, 2, 2))
        strata = strata_of(np.concatenate([full, empty]), 50.0)
        values.append(holds(strata, SIGNS, -0.125, critical=CRITICAL))
    assert np.mean(values) >= 0.9


def test_a_second_stratum_without_comparison_adds_its_whole_share() -> None:
    strata = strata_of([[[3000, 7000], [6000, 4000]], [[5000, 5000], [0, 0]]], 1.0)
    low, high = contrast_interval(strata, SIGNS, critical=CRITICAL)
    # A third of the rows: their treated mean may be anything in [0, 1], against one half in the control.
    assert low == pytest.approx(0.2 - 0.5 / 3, abs=0.02)
    assert high == pytest.approx(0.2 + 0.5 / 3, abs=0.02)


def test_exchanging_the_arms_turns_the_interval_round() -> None:
    strata = CASES["one arm thin"]
    low, high = contrast_interval(strata, SIGNS, critical=CRITICAL)
    other = contrast_interval(strata.only([1, 0]), SIGNS, critical=CRITICAL)
    assert other == pytest.approx((-high, -low), abs=0.02 * (high - low))


@pytest.mark.parametrize("name", CASES)
def test_asking_for_one_value_agrees_with_the_ends(name: str) -> None:
    strata = CASES[name]
    low, high = contrast_interval(strata, SIGNS, critical=CRITICAL)
    width = high - low
    assert holds(strata, SIGNS, low + 0.02 * width, critical=CRITICAL)
    assert holds(strata, SIGNS, high - 0.02 * width, critical=CRITICAL)
    assert not holds(strata, SIGNS, low - 0.01 * width, critical=CRITICAL)
    assert not holds(strata, SIGNS, high + 0.01 * width, critical=CRITICAL)


def test_more_confidence_is_wider() -> None:
    widths = [np.diff(contrast_interval(CASES["clear"], SIGNS, critical=c))[0] for c in (1.0, 2.7, 3.84, 6.6)]
    assert widths == sorted(widths)


def test_a_rare_event_in_many_strata_is_not_pulled_away_from_none() -> None:
    """Noise makes outcomes negative in some strata; holding each of these at none would add outcomes to all."""
    rng = np.random.default_rng(6)
    shares = np.clip(rng.gamma(2, 0.01, 100), 0, 1)
    rows = np.column_stack([rng.poisson(200, 100), rng.poisson(100, 100)])
    means = np.column_stack([shares, shares / 2])
    truth = float((rows.sum(axis=1) / rows.sum()) @ (means @ SIGNS))
    held, values = [], []
    for _ in range(100):
        seen = np.stack([rng.poisson(rows * means), rng.poisson(rows * (1 - means))], axis=2)
        strata = strata_of(seen + rng.normal(0, 6.4, seen.shape), 6.4)
        held.append(holds(strata, SIGNS, truth, critical=CRITICAL))
        values.append(contrast_value(strata, SIGNS))
    assert np.mean(held) >= 0.9
    assert np.mean(values) == pytest.approx(truth, abs=0.003)


def test_a_lost_arm_is_estimated_by_its_stratum_and_the_effect_elsewhere() -> None:
    # In the second stratum, where the outcome is rare, hardly anybody is treated.
    strata = strata_of([[[500, 500], [700, 300]], [[100, 900], [1, 3]]], 5.0)
    assert strata.means[1, 1] == pytest.approx(0.1 + 0.2, abs=0.01)
    assert contrast_value(strata, SIGNS) == pytest.approx(0.2, abs=0.01)
    arms = [contrast_value(strata.only([place]), np.array([1.0])) for place in (0, 1)]
    assert arms[1] - arms[0] == pytest.approx(contrast_value(strata, SIGNS))
    nothing = strata_of([[[1, -2], [3, 1]], [[0, 2], [1, -3]]], 9.0)
    assert np.isfinite(nothing.means).all()
