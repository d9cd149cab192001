"""Levels that are counted together: no neighbour moves a merged table further than any contingency table moves."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from escudo.privacy import Relation
from escudo.synthesis._merging import groups_of, merge, spread
from escudo.table import count_sensitivity

SIZES = (5, 4)
CELLS = list(itertools.product(*map(range, SIZES)))
CELL = st.sampled_from(CELLS)
RELATIONS: list[Relation] = ["add_remove", "replace_one"]
COUNTS = st.lists(st.floats(0, 1000), min_size=2, max_size=12).map(np.array)


@st.composite
def merged(draw: Any) -> dict[str, NDArray[np.int64]]:
    """Return groups of one column or of both, whatever they may be made from."""
    found = {}
    for name, size in zip("ab", SIZES, strict=True):
        if steps := draw(st.none() | st.lists(st.booleans(), min_size=size - 1, max_size=size - 1)):
            found[name] = np.cumsum([0, *steps])
    return found


def table(rows: list[tuple[int, int]]) -> NDArray[np.int64]:
    counts = np.zeros(SIZES, dtype=np.int64)
    for cell in rows:
        counts[cell] += 1
    return counts


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("most", [None, 3])
@given(rows=st.lists(CELL, max_size=8), old=st.lists(CELL, max_size=3), new=st.lists(CELL, max_size=3), merged=merged())
def test_one_row_or_person_moves_a_merged_table_no_further_than_the_plan_says(
    relation: Relation, most: int | None, rows: Any, old: Any, new: Any, merged: Any
) -> None:
    """A row counts once and a person up to three times; adding is replacing nothing."""
    old, new = (old[:1] or [(0, 0)], new[:1] or [(1, 1)]) if most is None else (old, new)
    old = old if relation == "replace_one" else []
    apart = merge(("a", "b"), table([*rows, *old]), merged) - merge(("a", "b"), table([*rows, *new]), merged)
    unit: Any = "row" if most is None else "person"
    bound = count_sensitivity(1, relation=relation, unit=unit, max_rows_per_person=most)
    assert np.abs(apart).sum() <= bound.l1
    assert np.linalg.norm(apart) <= bound.l2 * (1 + 1e-12)
    if bound.changed_cells is not None:
        assert np.count_nonzero(apart) <= bound.changed_cells


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_bounds_are_reached_also_when_levels_are_merged(relation: Relation) -> None:
    groups = {"a": np.array([0, 0, 1, 1, 1]), "b": np.array([0, 0, 0, 1])}
    bound = count_sensitivity(1, relation=relation, unit="row", max_rows_per_person=None)
    lengths = []
    for old, new in itertools.product(CELLS, CELLS):
        before = [old] if relation == "replace_one" else []
        apart = merge(("a", "b"), table(before), groups) - merge(("a", "b"), table([new]), groups)
        lengths.append(float(np.linalg.norm(apart)))
    assert max(lengths) == pytest.approx(bound.l2)


@given(margin=COUNTS, missing=st.booleans(), noise=st.floats(0.1, 1e4))
def test_groups_are_neighbours_at_least_two_and_a_missing_value_is_nobodys_neighbour(
    margin: NDArray[np.float64], missing: bool, noise: float
) -> None:
    ordered = margin.size - missing
    groups = groups_of(margin, ordered, noise)
    assert groups[0] == 0
    assert set(np.diff(groups).tolist()) <= {0, 1}
    if missing:
        assert groups[-1] == groups[-2] + 1
    if margin[:ordered].sum() > 0.5 * margin.sum() or margin.sum() == 0:
        assert margin.sum() == 0 or ordered < 2 or groups[ordered - 1] >= 1
    most = max((margin.sum() / (2 * noise)) ** 0.5, 2.0)
    assert groups[ordered - 1] <= max(most, ordered - 1 if most >= ordered else 0)


@given(margin=COUNTS, noise=st.floats(0.1, 1e4))
def test_no_group_of_several_levels_holds_much_more_than_its_part(margin: NDArray[np.float64], noise: float) -> None:
    """The middles of its first and last level lie within one part; half of each of them may stick out."""
    groups = groups_of(margin, margin.size, noise)
    part = margin.sum() / max((margin.sum() / (2 * noise)) ** 0.5, 2.0)
    for group in range(int(groups[-1]) + 1):
        inside = margin[groups == group]
        if inside.size > 1:
            assert inside.sum() - (inside[0] + inside[-1]) / 2 <= part * (1 + 1e-9)


@given(first=COUNTS, second=COUNTS, noise=st.floats(0.1, 1e3), seed=st.integers(0, 99))
def test_what_is_spread_has_the_counts_of_the_groups_and_the_shares_of_the_columns(
    first: NDArray[np.float64], second: NDArray[np.float64], noise: float, seed: int
) -> None:
    margins = {"a": first + 1.0, "b": second + 1.0}
    merged = {name: groups_of(margin, margin.size, noise) for name, margin in margins.items()}
    shape = [int(merged[name][-1]) + 1 for name in "ab"]
    counts = np.random.default_rng(seed).random(shape) * 100
    found = spread(("a", "b"), counts, margins, merged)
    np.testing.assert_allclose(merge(("a", "b"), found, merged), counts)
    rows = merge(("b",), found.sum(axis=0), merged)
    np.testing.assert_allclose(
        found.sum(axis=0) * merge(("b",), margins["b"], merged)[merged["b"]], margins["b"] * rows[merged["b"]]
    )
