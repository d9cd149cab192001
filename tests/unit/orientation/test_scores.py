"""Dependence scores: what they measure, and that they agree with their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from escudo.orientation._scores import (
    GridFeatures,
    hsic_sensitivity,
    interquartile_range,
    inversions,
    kendall,
    log_iqr_with_drift,
    signed_kendall,
    signed_spearman,
    spearman,
    sqrt_hsic,
    sqrt_hsic_sensitivity,
    sqrt_hsic_training_sensitivity,
)

ON = GridFeatures(-1.0, 1.0, 0.15)
RNG = np.random.default_rng(11)
X = RNG.uniform(-1, 1, 300)
Y = RNG.uniform(-1, 1, 300)


class TestRanks:
    def test_without_ties_they_are_the_usual_coefficients(self) -> None:
        noisy = X + 0.5 * Y
        assert signed_spearman(X, noisy) == pytest.approx(stats.spearmanr(X, noisy).statistic, abs=1e-12)
        assert signed_kendall(X, noisy) == pytest.approx(stats.kendalltau(X, noisy).statistic, abs=1e-12)

    def test_the_sign_is_left_out(self) -> None:
        assert spearman(X, -X) == kendall(X, -X) == 1.0
        assert signed_spearman(X, -X) == signed_kendall(X, -X) == -1.0

    @pytest.mark.parametrize("score", [spearman, kendall], ids=["spearman", "kendall"])
    def test_a_constant_column_scores_0(self, score) -> None:
        assert score(np.zeros(50), X[:50]) == score(X[:50], np.ones(50)) == score(np.zeros(50), np.zeros(50)) == 0.0

    @pytest.mark.parametrize("score", [spearman, kendall], ids=["spearman", "kendall"])
    def test_fewer_than_two_records_score_0(self, score) -> None:
        assert score(np.zeros(1), np.zeros(1)) == score(np.zeros(0), np.zeros(0)) == 0.0

    def test_inversions_are_counted_as_by_hand(self) -> None:
        for seed in range(20):
            values = np.random.default_rng(seed).integers(0, 30, 40)
            assert inversions(values) == sum(values[i] > values[j] for i in range(40) for j in range(i + 1, 40))

    def test_a_million_records_do_not_overflow(self) -> None:
        line = np.arange(1_000_000.0)
        assert spearman(line, line) == pytest.approx(1.0)
        assert kendall(line[:200_000], -line[:200_000]) == 1.0


class TestKernels:
    def test_it_is_close_to_hsic_with_the_exact_kernel(self) -> None:
        r = 0.4 * Y + 0.3 * X**2
        centred = np.eye(300) - 1 / 300
        grams = [np.exp(-((v[:, None] - v) ** 2) / (2 * 0.15**2)) for v in (X, r)]
        exact = math.sqrt(np.trace(grams[0] @ centred @ grams[1] @ centred)) / 299
        assert sqrt_hsic(X, r, ON, GridFeatures(-2.0, 2.0, 0.15)) == pytest.approx(exact, rel=5e-3)

    def test_dependence_scores_higher_than_independence(self) -> None:
        assert sqrt_hsic(X, X**2, ON, ON) > 3 * sqrt_hsic(X, Y, ON, ON)

    def test_a_constant_column_scores_0(self) -> None:
        assert sqrt_hsic(X, np.full(300, 0.3), ON, ON) == pytest.approx(0.0, abs=1e-12)
        assert sqrt_hsic(X[:1], Y[:1], ON, ON) == 0.0

    def test_the_order_of_records_and_the_size_of_chunks_change_nothing(self) -> None:
        many = np.tile(X, 60), np.tile(X**2, 60)
        order = np.random.default_rng(0).permutation(len(many[0]))
        whole = sqrt_hsic(*many, ON, ON)
        assert sqrt_hsic(many[0][order], many[1][order], ON, ON) == pytest.approx(whole, abs=1e-12)

    def test_values_outside_are_clamped(self) -> None:
        assert sqrt_hsic(X * 5, Y, ON, ON) == sqrt_hsic(np.clip(X * 5, -1, 1), Y, ON, ON)

    def test_the_grid_has_as_many_points_as_its_step_says(self) -> None:
        assert (len(ON.points), len(GridFeatures(-2.0, 2.0, 0.15).points)) == (18, 35)

    def test_sensitivities_are_those_of_the_propositions(self) -> None:
        assert sqrt_hsic_sensitivity(1000) == pytest.approx(math.sqrt(6) / 1000, rel=2e-5)
        assert hsic_sensitivity(1000) == pytest.approx(2.0596e-3, rel=1e-4)
        assert sqrt_hsic_training_sensitivity(10**6, 0.01, 0.15) == pytest.approx(0.04711, abs=2e-4)

    def test_half_a_million_records_need_no_matrix_of_pairs(self) -> None:
        many = np.resize(X, 500_000)  # all pairs of them would need 2,000 GB
        assert sqrt_hsic(many, np.resize(Y, 500_000), ON, ON) == pytest.approx(sqrt_hsic(X, Y, ON, ON), rel=1e-2)


class TestRanges:
    def test_the_quartiles_are_order_statistics(self) -> None:
        assert interquartile_range(np.array([4.0, 1.0, 3.0, 2.0])) == 2.0
        assert interquartile_range(np.array([7.0])) == 0.0

    def test_drift_brings_instability_closer(self) -> None:
        values = np.random.default_rng(0).normal(0, 0.3, 2000)
        near, far = (
            log_iqr_with_drift(values, lower=-2.0, upper=2.0, width=1.0, drift=drift, values_private=True)
            for drift in (1e-3, 0.0)
        )
        assert near.value == far.value
        assert all(a < b for a, b in zip(near.distances, far.distances, strict=True))

    def test_a_range_of_0_has_no_logarithm_and_distance_1(self) -> None:
        found = log_iqr_with_drift(np.zeros(20), lower=-1.0, upper=1.0, width=1.0, drift=0.01, values_private=False)
        assert (found.value, found.distances) == (None, (1, 1))
