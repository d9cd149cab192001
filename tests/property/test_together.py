"""Columns that are released together: no neighbour moves them further than their event states."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.mechanisms import Purse
from escudo.privacy import Neighbours
from escudo.synthesis._residuals import Unit
from escudo.synthesis._together import Lengths, Together, bins_of_lengths, factor_of
from escudo.table import PrivateTable, Schema

SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=9)


def lengths(rows: list[list[int]], sizes: list[int], usual: list[int]) -> Lengths:
    names = [f"x{i}" for i in range(len(sizes))]
    schema = Schema.from_dict(
        {name: [str(level) for level in range(size)] for name, size in zip(names, sizes, strict=True)}
    )
    frame = pl.DataFrame(np.array(rows, dtype=np.int64).reshape(-1, len(sizes)), schema=names).cast(pl.String)
    table = PrivateTable(frame, schema, relation="add_remove")
    return Lengths.read(table, dict(zip(names, usual, strict=True)), schema.sizes)


@given(sizes=SIZES, person=st.integers(1, 3), most=st.integers(1, 9), data=st.data())
def test_no_person_moves_the_vector_or_the_lengths_further_than_the_event_states(
    sizes: list[int], person: int, most: int, data: st.DataObject
) -> None:
    terms = {} if person == 1 else {"unit": "person", "max_rows_per_person": person}
    unit = Unit.of(Neighbours(relation="add_remove", **terms), 3.0)
    row = st.tuples(*(st.integers(0, size - 1) for size in sizes)).map(list)
    others, own = data.draw(st.lists(row, max_size=4)), data.draw(st.lists(row, max_size=person))
    usual = data.draw(st.tuples(*(st.integers(0, size - 1) for size in sizes)).map(list))
    here, there = lengths(others, sizes, usual), lengths(others + own, sizes, usual)
    limit, factor = int(unit.event.l2_sensitivity) ** 2, unit.steps // 2**20
    moved = (there.clipped(most) - here.clipped(most)).astype(object) * factor
    assert sum(int(each) ** 2 for each in moved) <= limit
    bins = bins_of_lengths(len(sizes))
    counted = (there.binned(bins) - here.binned(bins)).astype(object) * unit.steps
    assert sum(int(each) ** 2 for each in counted) <= limit


@given(length=st.integers(1, 400), most=st.integers(1, 400))
def test_a_row_is_as_long_as_it_may_be_from_the_bound_on(length: int, most: int) -> None:
    square = length * factor_of(length, most) ** 2
    assert square <= 2**40
    if length >= most:
        assert square >= 0.999 * 2**40


@given(sizes=SIZES, seed=st.integers(0, 99))
def test_without_noise_and_clipping_what_levels_hold_comes_back(sizes: list[int], seed: int, quiet: Purse) -> None:
    rng = np.random.default_rng(seed)
    rows = np.array([rng.integers(0, size, 30) for size in sizes]).T
    unit = Unit.of(Neighbours(relation="add_remove"), 3.0)
    read = lengths(rows.tolist(), sizes, [0] * len(sizes))
    found = Together(unit, read, most=len(sizes), kept=1.0).measure(2, 30, quiet)
    for place, table in enumerate(found):
        assert table.counts == pytest.approx(np.bincount(rows[:, place], minlength=sizes[place]), abs=1e-3)
        assert table.inner
