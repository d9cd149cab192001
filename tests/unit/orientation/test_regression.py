"""Regressions: that they fit, that they equal what they approximate, and which records they see."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.errors import InputError
from escudo.orientation._direction import DirectionQuestion
from escudo.orientation._regression import (
    Pair,
    fit_histogram,
    fit_kernel_ridge,
    fit_polynomial,
    halves,
    paper_residual_change,
    public_pair,
    residual_change,
    split_pair,
)
from escudo.table import Schema

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, 400)
Y = 0.6 * np.sin(2 * X) + RNG.normal(0, 0.05, 400)
T = np.linspace(-0.9, 0.9, 50)
SCHEMA = Schema.from_dict(
    {"a": {"type": "numeric", "lower": 0, "upper": 10}, "b": {"type": "numeric", "lower": -5, "upper": 5}}
)


class TestFits:
    def test_a_polynomial_follows_the_curve(self) -> None:
        assert np.abs(fit_polynomial(X, Y)(T) - 0.6 * np.sin(2 * T)).max() < 0.03

    def test_predictions_stay_within_the_public_scale(self) -> None:
        wild = fit_polynomial(X[:3], np.array([1.0, -1.0, 1.0]), ridge=1e-9)
        assert np.abs(wild(np.linspace(-1, 1, 99))).max() <= 1.0
        assert np.abs(fit_kernel_ridge(X, 5 * Y, regularisation=1e-6, width=0.1)(T)).max() <= 1.0

    @pytest.mark.parametrize("regularisation", [1e-3, 0.1, 1.0])
    def test_kernel_ridge_equals_the_exact_one(self, regularisation: float) -> None:
        gram = np.exp(-((X[:, None] - X) ** 2) / (2 * 0.3**2))
        dual = np.linalg.solve(gram + 400 * regularisation / 2 * np.eye(400), Y)
        exact = np.exp(-((T[:, None] - X) ** 2) / (2 * 0.3**2)) @ dual
        assert fit_kernel_ridge(X, Y, regularisation=regularisation, width=0.3)(T) == pytest.approx(exact, abs=2e-3)

    def test_it_minimises_the_objective_of_the_paper(self) -> None:
        fit = fit_kernel_ridge(X, Y, regularisation=0.1, width=0.3)
        rows = fit.features(X)

        def objective(w: np.ndarray) -> float:
            return float(0.05 * w @ w + np.mean((rows @ w - Y) ** 2))

        for seed in range(5):
            step = np.random.default_rng(seed).normal(0, 1e-3, len(fit.weights))
            assert objective(fit.weights) < objective(fit.weights + step)

    def test_a_histogram_without_noise_is_enough_for_the_curve(self) -> None:
        x = np.random.default_rng(0).uniform(-1, 1, 20_000)
        counts = np.histogram2d(x, 0.6 * np.sin(2 * x), bins=16, range=((-1, 1), (-1, 1)))[0]
        assert np.abs(fit_histogram(counts, noise=1.0)(T) - 0.6 * np.sin(2 * T)).max() < 0.08

    def test_pure_noise_makes_a_regression_that_is_finite(self) -> None:
        for seed in range(5):
            noise = np.random.default_rng(seed).laplace(0, 50, (8, 8))
            assert np.isfinite(fit_histogram(noise, noise=70.0)(T)).all()

    def test_an_empty_histogram_predicts_0(self) -> None:
        assert np.abs(fit_histogram(np.zeros((8, 8)), noise=0.0)(T)).max() == 0.0

    def test_nothing_fitted_or_read_shows_its_numbers(self) -> None:
        shown = [
            repr(one)
            for one in (fit_polynomial(X, Y), fit_kernel_ridge(X, Y, regularisation=0.1, width=0.3), Pair(X, Y))
        ]
        assert all("array" not in text and "[" not in text for text in shown)
        assert shown[2] == "Pair(400 records)"


class TestChange:
    @pytest.mark.parametrize(
        ("regularisation", "expected"), [(0.003, 9562), (0.01, 1704), (0.1, 74.9), (1.0, 4.71)], ids=str
    )
    def test_it_is_the_table_of_proposition_10(self, regularisation: float, expected: float) -> None:
        assert residual_change(1, regularisation) == pytest.approx(expected, rel=2e-3)

    def test_it_falls_with_the_number_of_records(self) -> None:
        assert residual_change(1000, 0.1) == pytest.approx(residual_change(1, 0.1) / 1000)
        assert paper_residual_change(10, 0.25) == pytest.approx(8 / (10 * 0.125))


class TestRecords:
    def test_halves_share_no_record_and_lose_none(self) -> None:
        pair = Pair(np.arange(101.0), -np.arange(101.0))
        train, test = split_pair(pair, shuffle=5)
        assert (len(train.x), len(test.x)) == halves(101) == (50, 51)
        assert sorted([*train.x, *test.x]) == list(range(101))
        assert (train.x == -train.y).all()

    def test_the_split_looks_at_no_value(self) -> None:
        one, _ = split_pair(Pair(np.arange(50.0), np.zeros(50)), shuffle=1)
        two, _ = split_pair(Pair(np.arange(50.0) ** 2, np.ones(50)), shuffle=1)
        assert (one.x**2 == two.x).all()

    def test_public_records_are_scaled_by_the_schema(self) -> None:
        for records in ({"a": [0, 10, 25], "b": [0, 5, -9]}, pl.DataFrame({"a": [0, 10, 25], "b": [0, 5, -9]})):
            pair = public_pair(SCHEMA, DirectionQuestion("a", "b", "gap", options={"train": records}), "train")
            assert (pair.x.tolist(), pair.y.tolist()) == ([-1, 1, 1], [0, 1, -1])

    @pytest.mark.parametrize(
        "records",
        [{"a": [1.0, 2.0]}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": [1.0], "b": [1.0]}, 7, pl.DataFrame({"a": [1.0]})],
        ids=["a column missing", "lengths differ", "one record", "no frame", "frame lacks a column"],
    )
    def test_unusable_public_records_are_named(self, records: object) -> None:
        with pytest.raises(InputError, match="train"):
            public_pair(SCHEMA, DirectionQuestion("a", "b", "gap", options={"train": records}), "train")
