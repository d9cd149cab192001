"""Adversarial neighbours: hypothesis looks for inputs on which a mechanism promises more than it keeps."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from escudo.errors import InputError
from escudo.mechanisms import (
    gaussian,
    laplace,
    quantile_cells,
    quantiles,
    read_log_iqr,
    stable_histogram,
    stable_threshold,
)
from escudo.mechanisms._noise import laplace_cutoff, laplace_tail, read_statistic
from escudo.mechanisms._selection import cell_utilities

PARTS = 2**20
reals = st.floats(-1e6, 1e6)
grids = st.integers(-12, 4).map(lambda power: 2.0**power)


def moved(first, second, grid):
    before, after = read_statistic("v", np.array(first)), read_statistic("v", np.array(second))
    return np.abs(after.steps(grid) - before.steps(grid))


@given(st.lists(st.tuples(reals, st.floats(-3, 3)), min_size=1, max_size=6), grids)
@example([(0.5, 1.0)], 1.0)  # rounding halves to even would move this by two steps
@example([(0.49999999999999994, 1e-16)], 1.0)
@example([(1.5, -1.0), (0.5, 1.0)], 1.0)
def test_rounding_never_moves_neighbours_further_than_the_stated_sensitivity(pairs, grid):
    first = [value for value, _ in pairs]
    second = [value + shift for value, shift in pairs]
    exact = [abs(Fraction(a) - Fraction(b)) for a, b in zip(first, second, strict=True)]
    assume(any(exact))
    statistic = read_statistic("v", np.array(first))
    steps = moved(first, second, grid)
    for norm, length, after in (
        ("l1", float(sum(exact)), steps.sum()),
        ("l2", math.sqrt(sum(e * e for e in exact)), np.linalg.norm(steps)),
        ("linf", float(max(exact)), steps.max()),
    ):
        assert after <= statistic.sensitivity_in_steps(max(length, 1e-300), grid, norm) * (1 + 1e-12)


@given(
    st.lists(reals, min_size=1, max_size=5),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 50.0),
    st.one_of(st.none(), st.integers(-6, 0).map(lambda power: 2.0**power)),
)
def test_laplace_keeps_the_epsilon_asked_for_whatever_the_grid(values, sensitivity, epsilon, grid):
    release = laplace(values, sensitivity=sensitivity, epsilon=epsilon, grid=grid, seed=0)
    event = release.event
    assert Fraction(event.l1_sensitivity) <= Fraction(epsilon) * Fraction(event.scale)
    assert event.l1_sensitivity >= sensitivity
    on_grid = release.value / event.grid
    assert np.array_equal(on_grid, np.rint(on_grid))


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=5), st.floats(1, 1e3), st.floats(1e-6, 50.0))
def test_gaussian_keeps_the_rho_asked_for(values, sensitivity, rho):
    event = gaussian(values, l2_sensitivity=sensitivity, rho=rho, seed=0).event
    assert Fraction(event.l2_sensitivity) ** 2 <= 2 * Fraction(rho) * Fraction(event.scale) ** 2


counts = st.lists(st.integers(0, 40), min_size=1, max_size=8)


@given(counts, st.data(), st.integers(0, PARTS))
def test_no_neighbouring_histogram_moves_a_quantile_utility_by_more_than_one(cells, data, part):
    table = np.array(cells)
    occupied = np.flatnonzero(table)
    assume(occupied.size)
    left = data.draw(st.sampled_from(occupied.tolist()))
    entered = data.draw(st.one_of(st.none(), st.integers(0, table.size - 1)))  # None: it became missing
    removed = table - np.eye(table.size, dtype=int)[left]
    replaced = removed if entered is None else removed + np.eye(table.size, dtype=int)[entered]
    original = cell_utilities(table, part)
    assert np.abs(cell_utilities(replaced, part) - original).max() <= PARTS
    assert np.abs(cell_utilities(removed, part) - original).max() <= max(part, PARTS - part)


@given(counts.filter(any), st.floats(0, 1))
def test_the_cell_that_holds_the_quantile_is_among_the_best(cells, probability):
    values = np.repeat(np.arange(len(cells)), cells)
    part = round(probability * PARTS)
    exact = values[min(max(math.ceil(part / PARTS * values.size) - 1, 0), values.size - 1)]
    assert cell_utilities(np.array(cells), part)[exact] == 0


@given(
    st.lists(st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=3), st.booleans()), max_size=20),
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_no_value_makes_a_quantile_fail_or_leave_the_bounds(values, probabilities):
    found = quantiles(values, probabilities, lower=-3.0, upper=7.5, epsilon=1.0, cells=16, seed=0).value
    assert found.shape == (len(probabilities),)
    assert ((found >= -3.0) & (found <= 7.5)).all()


@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=30),
    st.data(),
    st.floats(0.05, 3.0),
)
def test_no_changed_record_moves_an_iqr_distance_by_more_than_one_or_a_stable_value_out_of_its_bin(values, data, width):
    position = data.draw(st.integers(0, len(values) - 1))
    changed = list(values)
    changed[position] = data.draw(st.one_of(st.floats(-8, 8), st.sampled_from(values), st.just(math.nan)))
    before, after = (read_log_iqr(table, lower=-8, upper=8, width=width) for table in (values, changed))
    for first, second in zip(before.distances, after.distances, strict=True):
        assert abs(first - second) <= 1
        if max(first, second) >= 2:
            assert abs(before.value - after.value) < width * (1 + 1e-12)


@given(st.floats(1e-3, 1e4), st.floats(1e-12, 0.999))
def test_the_cutoff_is_rare_enough_and_no_larger_than_needed(scale, probability):
    cutoff = laplace_cutoff(probability, scale)
    assert laplace_tail(cutoff, scale) <= probability
    assert cutoff == 0 or laplace_tail(cutoff - 1, scale) > probability * (1 - 1e-9)


@given(
    st.floats(0.05, 20.0),
    st.floats(1e-9, 0.5),
    st.integers(1, 12),
    st.sampled_from(["replace_one", "add_remove"]),
    st.data(),
)
def test_no_split_of_a_persons_rows_over_new_keys_is_shown_more_often_than_delta(epsilon, delta, rows, relation, data):
    threshold = stable_threshold(epsilon=epsilon, delta=delta, relation=relation, max_rows_per_person=rows)
    left, split = rows, []
    while left:
        split.append(data.draw(st.integers(1, left)))
        left -= split[-1]
    hidden = math.prod(1 - laplace_tail(threshold.least - count, threshold.scale) for count in split)
    assert 1 - hidden <= delta * (1 + 1e-9)


@given(st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.none(), st.booleans()), st.integers(0, 10**6)))
def test_the_order_of_the_table_never_shows(counts):
    items = list(counts.items())
    forwards, backwards = (
        stable_histogram(dict(order), epsilon=1.0, delta=1e-6, seed=0).value for order in (items, items[::-1])
    )
    assert list(forwards.items()) == list(backwards.items())


@given(
    st.one_of(st.floats(), st.text(max_size=3), st.none(), st.booleans(), st.integers(-5, 5)),
    st.one_of(st.floats(), st.none(), st.integers(-5, 5)),
)
def test_odd_arguments_give_a_clear_error_or_an_answer_and_never_another_exception(epsilon, sensitivity):
    for call in (
        lambda: laplace([1, 2], sensitivity=sensitivity, epsilon=epsilon, seed=0),
        lambda: laplace(0.5, sensitivity=sensitivity, epsilon=epsilon, seed=0),
        lambda: gaussian(0.5, l2_sensitivity=sensitivity, rho=epsilon, seed=0),
        lambda: quantile_cells([1, 2], 0.5, epsilon=epsilon, seed=0),
    ):
        with suppress(InputError):  # anything else would be a bug
            call()


@pytest.mark.parametrize("grid", [2.0**-12, 1.0, 16.0])
def test_the_search_itself_would_catch_rounding_to_even(grid):
    """The example above does separate the two rules: halves to even move by two where the truth moves by one."""
    first, second = 0.5 * grid, 1.5 * grid
    assert abs(np.rint(second / grid) - np.rint(first / grid)) == 2
    assert moved([first], [second], grid)[0] == 1
