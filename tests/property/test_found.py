"""Sums along a graph that was found: whichever it is, they cost what was planned before it was known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.privacy import Budget, Relation
from escudo.synthesis._moment_statistics import table_sums
from escudo.synthesis._moments import Moments
from escudo.synthesis._structure import Structure, graph_of
from escudo.table import PrivateTable, Schema

SIZES = {"a": 2, "b": 3, "c": 4, "d": 2}
SCHEMA = Schema.from_dict({name: list(range(size)) for name, size in SIZES.items()})
ROW = st.tuples(*(st.integers(0, size - 1) for size in SIZES.values()))


@st.composite
def structures(draw: Any) -> Structure:
    """Return any graph over the columns."""
    order = draw(st.permutations(list(SIZES)))
    kept = [pair for pair in itertools.combinations(order, 2) if draw(st.booleans())]
    parents = {name: tuple(a for a, b in kept if b == name) for name in SIZES}
    return Structure(parents, (), graph_of(parents))


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@given(
    structure=structures(),
    rows=st.lists(ROW, min_size=1, max_size=6),
    old=ROW,
    new=ROW,
    clip=st.none() | st.floats(1.0, 5.0),
    square=st.integers(4, 40),
)
def test_one_row_moves_the_sums_no_further_than_was_planned_before_the_graph(
    relation: Relation, structure: Structure, rows: Any, old: Any, new: Any, clip: float | None, square: int
) -> None:
    neighbours = SCHEMA.neighbours(relation=relation)
    before = Moments(clip=clip).awaiting(SCHEMA, neighbours, Budget(1.0, 1e-6))
    along = before.along(structure)
    assert set(along.design.layout.pairs) == set(structure.arrows)
    assert (along.sums, along.again, along.count) == (before.sums, None, before.count)
    assert isinstance(along.clip, int) or along.clip == before.clip
    bound = along.clip if isinstance(along.clip, int) else square

    def sums(some: list[Any]) -> Any:
        frame = pl.DataFrame(some, schema=list(SIZES), orient="row")
        return table_sums(PrivateTable(frame, SCHEMA), along.design.layout, bound)[0]

    first = [*rows, old] if relation == "replace_one" else rows
    moved = np.linalg.norm((sums([*rows, new]) - sums(first)).astype(np.float64))
    assert moved <= before.sums.l2_sensitivity * (1 + 1e-12)
