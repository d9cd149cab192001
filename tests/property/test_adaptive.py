"""What tables are picked by: no neighbouring table moves a score further than the sensitivity its noise is made for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from escudo.privacy import Relation
from escudo.synthesis import TableConditional, _adaptive
from escudo.synthesis._estimation import TableFits
from escudo.table import Schema, count_sensitivity

SIZES = {"a": 2, "b": 3, "c": 2}
SCHEMA = Schema.from_dict({name: [str(level) for level in range(size)] for name, size in SIZES.items()})
PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")]  # and their triple
GAIN = {("a", "b"): 1.0, ("a", "c"): 1.0, ("b", "c"): 0.3, ("a", "b", "c"): 1.0}  # b and c were measured before
SMALLER = {part: 2.0 for part in _adaptive.smaller_than(("a", "b", "c"))}
ROW = st.tuples(*(st.integers(0, size - 1) for size in SIZES.values()))

Codes = NDArray[np.int64]


@pytest.fixture(autouse=True)
def few_simulated_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_adaptive, "_SIMULATED", 64)


def scores(rows: list[tuple[int, ...]], seed: int, total: float) -> dict[tuple[str, ...], float]:
    """Return the scores of all pairs and their triple under some model that does not depend on the rows."""
    rng = np.random.default_rng(seed)
    laws = {name: TableConditional((), rng.dirichlet(np.ones(size))) for name, size in SIZES.items()}
    names, codes = list(SIZES), np.array(rows, dtype=np.int64).reshape(-1, len(SIZES))
    exact = {}
    for columns in PAIRS:
        counts = np.zeros([SIZES[name] for name in columns], dtype=np.int64)
        np.add.at(counts, tuple(codes[:, names.index(name)] for name in columns), 1)
        exact[columns] = counts
    fits = TableFits(SIZES, {}, [], int(total))
    found = _adaptive.scores(laws, exact, np.full(len(PAIRS), 3.0), np.array([*GAIN.values()]), fits, SMALLER)
    return dict(zip(PAIRS, found.tolist(), strict=True))


@pytest.mark.parametrize("rows", [[], [(0, 0, 0), (1, 2, 1), (1, 0, 1)], [(0, 1, 1)] * 30])
def test_scores_of_wide_tables_are_the_same_as_those_of_narrow_ones(
    rows: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs are counted by matrix products there, and cells some at a time."""
    narrow = scores(rows, 5, 20.0)
    monkeypatch.setattr(_adaptive, "_WIDE", 1)
    monkeypatch.setattr(_adaptive, "_WIDE_SIMULATED", 64)
    assert scores(rows, 5, 20.0) == narrow
    monkeypatch.setattr(_adaptive, "_AT_ONCE", 1)
    assert scores(rows, 5, 20.0) == narrow


@given(rows=st.lists(ROW, max_size=12), other=ROW, seed=st.integers(0, 99), total=st.floats(1.0, 40.0))
def test_adding_or_replacing_a_row_moves_no_score_by_more_than_its_sensitivity(
    rows: list[tuple[int, ...]], other: tuple[int, ...], seed: int, total: float
) -> None:
    neighbours: list[tuple[Relation, list[tuple[int, ...]]]] = [("add_remove", [*rows, other])]
    neighbours += [("replace_one", [*rows[:place], other, *rows[place + 1 :]]) for place in range(len(rows))]
    for relation, neighbour in neighbours:
        most = count_sensitivity(1, relation=relation, unit="row", max_rows_per_person=None).l1
        here, there = (scores(table, seed, total) for table in (rows, neighbour))
        assert all(abs(here[pair] - there[pair]) <= most + 1e-9 for pair in PAIRS)


def test_the_bounds_are_reached() -> None:
    """A worse neighbour would have been found: some pair's score moves by the whole of its sensitivity."""
    few, more = scores([(0, 0, 0)] * 9, 1, 1.0), scores([(0, 0, 0)] * 10, 1, 1.0)
    assert max(abs(few[pair] - more[pair]) for pair in PAIRS) == pytest.approx(1.0)
    most = [(0, 0, 0)] * 40  # more than the model expects, while of some other row it expects at least one
    here = scores([*most, (0, 0, 0)], 1, 30.0)
    moves = []
    for last in itertools.product(*map(range, SIZES.values())):
        there = scores([*most, last], 1, 30.0)
        moves += [abs(here[pair] - there[pair]) for pair in PAIRS]
    assert max(moves) == pytest.approx(2.0)
