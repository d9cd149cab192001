"""Residuals of tables: no neighbour moves them further than their event states, and nothing they say is lost."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.discovery._measurement import coefficients
from escudo.mechanisms import Purse
from escudo.privacy import Neighbours
from escudo.privacy._curves import curve_of
from escudo.synthesis._adaptive import largeness
from escudo.synthesis._residuals import Unit, contracted, integer_contrasts, length_of_a_row

SHAPES = st.lists(st.integers(2, 6), min_size=1, max_size=3).map(tuple)


def statistic(cells: list[tuple[int, ...]], shape: tuple[int, ...], steps: int) -> np.ndarray:
    """Return the integers that noise is added to, for rows in these cells."""
    counts = np.zeros(shape, dtype=np.int64)
    for cell in cells:
        counts[cell] += 1
    return contracted(integer_contrasts(shape, steps), counts, steps)


def squared(moved: np.ndarray) -> int:
    return sum(int(each) ** 2 for each in moved.ravel())


@given(shape=SHAPES, person=st.integers(1, 3), data=st.data())
def test_no_person_moves_a_residual_further_than_the_event_states(
    shape: tuple[int, ...], person: int, data: st.DataObject
) -> None:
    """Of all rows that a person may have, none move it by more; and k equal rows move it as far as that, nearly."""
    if person == 1:
        neighbours = Neighbours(relation="add_remove")
    else:
        neighbours = Neighbours(relation="add_remove", unit="person", max_rows_per_person=person)
    unit = Unit.of(neighbours, 3.0)
    limit = int(unit.event.l2_sensitivity) ** 2
    assert unit.event.changed_cells is None
    cell = st.tuples(*(st.integers(0, size - 1) for size in shape))
    others = data.draw(st.lists(cell, max_size=5))
    own = data.draw(st.lists(cell, max_size=person))
    here, there = statistic(others, shape, unit.steps), statistic([*others, *own], shape, unit.steps)
    assert squared(here - there) <= limit
    every = list(itertools.product(*map(range, shape)))
    worst = max(squared(statistic([one] * person, shape, unit.steps)) for one in every)
    assert 0.97 * limit <= worst <= limit


@given(shape=SHAPES, seed=st.integers(0, 99))
def test_a_whole_table_in_steps_moves_no_further(shape: tuple[int, ...], seed: int) -> None:
    unit = Unit.of(Neighbours(relation="add_remove"), 3.0)
    counts = np.zeros(shape, dtype=np.int64)
    counts[tuple(np.random.default_rng(seed).integers(0, shape))] = 1
    assert squared(counts * unit.steps) <= int(unit.event.l2_sensitivity) ** 2


@given(shape=SHAPES)
def test_contrasts_add_up_to_nothing_and_are_orthogonal(shape: tuple[int, ...]) -> None:
    for size, each in zip(shape, integer_contrasts(shape, 2**30), strict=True):
        assert each.shape == (size, size - 1)
        assert not each.sum(axis=0).any()
        products = each.T @ each
        assert not (products - np.diag(np.diag(products))).any()


@given(shape=SHAPES, seed=st.integers(0, 99))
def test_without_noise_the_residual_comes_back(shape: tuple[int, ...], seed: int, quiet: Purse) -> None:
    counts = np.random.default_rng(seed).integers(0, 50, shape)
    unit = Unit.of(Neighbours(relation="add_remove"), 3.0)
    found = unit.measure(tuple("abc"[: len(shape)]), counts, quiet)
    assert found.inner
    assert np.allclose(coefficients(found.counts), coefficients(counts.astype(float)), atol=1e-4)
    for axis in range(len(shape)):
        assert np.allclose(found.counts.sum(axis=axis), 0, atol=1e-4)
    assert found.scale == pytest.approx(3.0 * length_of_a_row(shape), rel=0.02)
    assert found.scale == pytest.approx(unit.noise(shape), rel=0.02)


def test_a_replaced_row_is_counted_in_whole_tables() -> None:
    """Its residuals move as far as the whole: a half of the noise would not be enough for two levels."""
    unit = Unit.of(Neighbours(relation="replace_one", rows=10), 3.0)
    assert (unit.inner, unit.steps, unit.event.changed_cells) == (False, 1, 2)
    steps = 2**30
    every = list(itertools.product(range(2), range(3)))
    far = max(
        squared(statistic([one], (2, 3), steps) - statistic([other], (2, 3), steps)) for one in every for other in every
    )
    most = 2 * (1 - 1 / 3) / length_of_a_row((2, 3)) ** 2  # of cells in one row of the table
    assert math.sqrt(far) / steps == pytest.approx(math.sqrt(most), rel=1e-3)


@pytest.mark.parametrize(("levels", "inner"), [(2, True), (4, True), (5, False), (12, False)])
def test_columns_of_many_levels_are_counted_in_whole_tables(levels: int, inner: bool) -> None:
    unit = Unit.of(Neighbours(relation="add_remove"), 3.0, largeness([levels] * 6))
    assert unit.inner == inner
    assert (unit.event.changed_cells is None) == inner


@pytest.mark.parametrize("scale", [4.0, 40.0, 1e6, 1e9])
def test_noise_is_many_steps_and_no_more_than_numbers_hold(scale: float) -> None:
    unit = Unit.of(Neighbours(relation="add_remove"), scale)
    assert unit.scale == pytest.approx(scale)
    assert 2**30 <= unit.event.scale <= 2**52
    assert curve_of(unit.event).exact is not None


@pytest.mark.parametrize("shape", [(2,), (2, 2), (3, 40), (2, 3, 4)])
@pytest.mark.parametrize("rows", [10**6, 10**9, 10**11, 10**13])
def test_however_many_rows_there_are_no_number_overflows(shape: tuple[int, ...], rows: int) -> None:
    """Against integers of any size; beyond 2⁶² they are held there, which moves them no further."""
    steps = Unit.of(Neighbours(relation="add_remove"), 1.0).steps
    contrasts = integer_contrasts(shape, steps)
    counts = np.zeros(shape, dtype=np.int64)
    counts[(0,) * len(shape)], counts[(-1,) * len(shape)] = rows, rows // 3
    told = contracted(contrasts, counts, steps)
    for place in itertools.product(*(range(size - 1) for size in shape)):
        exact = sum(
            int(counts[cell])
            * math.prod(int(each[level, k]) for each, level, k in zip(contrasts, cell, place, strict=True))
            for cell in itertools.product(*map(range, shape))
            if counts[cell]
        )
        assert int(told[place]) == min(max(exact, -(2**62)), 2**62)
    assert told.dtype == np.int64
