"""Rounding to the grid is exact, and the sensitivity after it is never understated."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms._noise import default_grid, read_statistic, rounded_up


def steps(value, grid=1.0):
    return read_statistic("values", float(value)).steps(grid)[0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 1),
        (1.5, 2),
        (-0.5, 0),
        (-1.5, -1),
        (0.49999999999999994, 0),  # floor(x + 0.5) would say 1
        (-0.49999999999999994, 0),
        (-0.5000000000000001, -1),
        (4503599627370495.5, 4503599627370496),
        (2.0**53 + 2, 2**53 + 2),
        (-1e-20, 0),
    ],
)
def test_halves_are_rounded_up_exactly(value, expected):
    assert steps(value) == expected


def test_rounding_agrees_with_exact_arithmetic():
    generator = np.random.default_rng(0)
    values = np.concatenate([generator.normal(size=300), generator.normal(size=300) * 1e9, np.arange(-9, 9) / 16])
    for grid in (2.0**-10, 0.125, 1.0, 8.0):
        found = read_statistic("values", values).steps(grid)
        exact = [math.floor(Fraction(value) / Fraction(grid) + Fraction(1, 2)) for value in values.tolist()]
        assert found.tolist() == exact


def test_values_beyond_the_range_are_clamped_and_raise_nothing():
    assert read_statistic("values", [1e300, -1e300]).steps(2.0**-30).tolist() == [2**62, -(2**62)]
    assert read_statistic("values", [2**63 - 1]).steps(1.0).tolist() == [2**62]
    assert read_statistic("values", np.array([2**64 - 1], dtype=np.uint64)).steps(1.0).tolist() == [2**62]


def furthest_move(shift):
    """How many steps apart two values can land that are ``shift`` apart, each with an error of at most half a step."""
    places, errors = np.arange(0, 1, 1 / 16), (-0.5, 0.0, 0.5)
    return max(
        int(
            np.abs(
                read_statistic("v", places + e).steps(1.0) - read_statistic("v", places + shift + f).steps(1.0)
            ).max()
        )
        for e in errors
        for f in errors
    )


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_neighbours_are_further_apart_after_rounding_than_claimed(norm, size):
    lengths = {"l1": np.sum, "l2": np.linalg.norm, "linf": np.max}
    distance = 1.25
    moves = {shift: furthest_move(shift) for shift in np.arange(0, distance + 1 / 32, 1 / 16).tolist()}
    worst = max(
        float(lengths[norm]([moves[shift] for shift in shifts]))
        for shifts in itertools.combinations_with_replacement(moves, size)
        if lengths[norm](shifts) <= distance
    )
    claimed = read_statistic("values", np.zeros(size)).sensitivity_in_steps(distance, 1.0, norm)
    assert worst <= claimed
    if norm != "l2" or size == 1:
        assert worst == claimed  # attained: nothing is left to gain


def test_integers_keep_their_sensitivity():
    counts = read_statistic("values", np.array([1, 2, 3]))
    assert counts.sensitivity_in_steps(2, 1.0, "l1") == 2
    assert counts.sensitivity_in_steps(2.9, 1.0, "l1") == 2  # integers move by whole steps
    assert counts.sensitivity_in_steps(math.sqrt(2), 1.0, "l2") == math.sqrt(2)


def test_the_default_grid_ignores_the_values():
    for first, second in [(0.0, 1e12), (1e-12, -3.3)]:
        grids = {
            default_grid(read_statistic("values", value), sensitivity=0.1, scale=2.0, norm="l1", grid=None)
            for value in (first, second)
        }
        assert len(grids) == 1


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("size", [1, 10, 10_000])
@pytest.mark.parametrize("sensitivity", [1e-9, 0.3, 4.0, 1e9])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0])
def test_the_default_grid_costs_less_than_one_part_in_a_hundred_thousand(norm, size, sensitivity, epsilon):
    statistic = read_statistic("values", np.zeros(size))
    grid = default_grid(statistic, sensitivity=sensitivity, scale=sensitivity / epsilon, norm=norm, grid=None)
    assert math.frexp(grid)[0] == 0.5
    after = statistic.sensitivity_in_steps(sensitivity, grid, norm) * grid
    assert sensitivity < after < sensitivity * (1 + 1e-5)


@pytest.mark.parametrize("grid", [0.1, 3.0, 0.0, -1.0, math.nan, math.inf])
def test_a_grid_that_is_no_power_of_two_is_refused(grid):
    with pytest.raises(InputError, match="grid"):
        default_grid(read_statistic("values", 1.0), sensitivity=1.0, scale=1.0, norm="l1", grid=grid)


def test_integers_take_no_other_grid():
    with pytest.raises(InputError, match="grid must be 1"):
        default_grid(read_statistic("values", 1), sensitivity=1.0, scale=1.0, norm="l1", grid=0.5)


def test_an_integer_statistic_that_never_moves_is_a_slip():
    with pytest.raises(InputError, match="at least 1"):
        default_grid(read_statistic("values", 1), sensitivity=0.5, scale=1.0, norm="l1", grid=None)


@pytest.mark.parametrize("values", [[], np.zeros((0, 3)), ["a"], [None], [True], [1 + 2j], [2**70]])
def test_what_is_no_array_of_numbers_is_refused(values):
    with pytest.raises(InputError, match="values"):
        read_statistic("values", values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_are_refused_without_showing_the_values(bad):
    with pytest.raises(InputError) as caught:
        read_statistic("values", [123.25, bad])
    assert "123.25" not in str(caught.value)


def test_values_come_back_in_their_own_type_and_shape():
    assert type(read_statistic("v", 3).restored(np.array([5]), 1.0)) is int
    assert type(read_statistic("v", 3.0).restored(np.array([5]), 0.5)) is float
    table = read_statistic("v", np.zeros((2, 3), dtype=np.int32)).restored(np.arange(6), 1.0)
    assert table.shape == (2, 3)
    assert table.dtype == np.int64


def test_rounding_up_is_up_and_hardly_so():
    for value in (1e-300, 1 / 3, 1.0, 7e200):
        assert value < rounded_up(value) < value * (1 + 1e-14)
