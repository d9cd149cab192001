"""The matrices behind linear discovery under attack: no row or person moves them further than the events say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from escudo.discovery import _gaussian
from escudo.discovery._gaussian import (
    CELLS,
    STEPS,
    _sums,
    bent_limit,
    bent_rows,
    clipped_rows,
    histograms,
    squared_limit,
    turned_rows,
    unit_rows,
)
from escudo.mechanisms import second_moments
from escudo.privacy import Budget
from escudo.table import PrivateTable, Schema

ANY = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-20, 20) | st.none()


@cache
def prepared_for(
    columns: int, person_rows: int | None, relation: str, rows: int | None = None
) -> _gaussian.PreparedGaussian:
    spec = {f"x{i}": {"type": "numeric", "lower": -3 * i - 1, "upper": 7, "missing": i == 0} for i in range(columns)}
    schema = Schema.from_dict(spec, person_id=None if person_rows is None else "id", max_rows_per_person=person_rows)
    return _gaussian.prepare(schema, schema.neighbours(relation=relation, rows=rows), Budget(1.0, 1e-6), knowledge=None)


@given(data=st.data(), columns=st.integers(1, 6), wide=st.floats(1, 5))
def test_no_row_is_longer_than_its_limit(data: st.DataObject, columns: int, wide: float) -> None:
    number = st.floats(-1e9, 1e9) | st.floats(-3, 3) | st.sampled_from([0.0, 1.0, -1.0])
    rows = np.array(data.draw(st.lists(st.tuples(*[number] * columns), min_size=1, max_size=5)))
    for steps, limit in (
        (clipped_rows(rows, squared_limit(columns, wide)), squared_limit(columns, wide)),
        (bent_rows(rows, bent_limit(columns)), bent_limit(columns)),
        (unit_rows(rows), STEPS**2),
    ):
        assert (steps == np.rint(steps)).all()
        assert max(sum(int(step) ** 2 for step in row) for row in steps) <= limit


def test_curvature_reaches_its_limit_and_each_of_its_entries_is_under_attack() -> None:
    """Over a grid of rows some come within a thousandth of the limit, none beyond, and entries of each kind move."""
    grid = np.linspace(-4, 4, 41)
    limit = bent_limit(2)
    steps = bent_rows(np.array(np.meshgrid(grid, grid)).reshape(2, -1).T, limit)
    lengths = (steps**2).sum(axis=1)
    assert 0.999 * limit < lengths.max() <= limit
    assert (np.ptp(steps[:, 1:], axis=0) > STEPS).all()
    distances = np.sqrt(np.maximum(lengths[:, None] ** 2 + lengths**2 - 2 * (steps @ steps.T) ** 2, 0.0))
    assert 0.99 * math.sqrt(2) * limit < distances.max()
    assert distances.max() <= prepared_for(2, None, "replace_one").events[1].l2_sensitivity


@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(1, 9), rows=st.integers(2, 40))
def test_a_turned_row_does_not_depend_on_the_rows_around_it(seed: int, columns: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    values, turn = rng.normal(size=(rows, columns)), rng.normal(size=(columns, columns))
    together = turned_rows(values, turn)
    assert np.allclose(together, values @ turn.T)
    for place in range(rows):
        assert (turned_rows(values[place : place + 1], turn) == together[place]).all()
    limit = squared_limit(columns)
    bent = bent_limit(columns)
    for some in (
        lambda x: turned_rows(x, turn),
        unit_rows,
        lambda x: clipped_rows(3 * x, limit),
        lambda x: bent_rows(3 * x, bent),
    ):
        assert (some(values[1:]) == some(values)[1:]).all()
        assert (some(values[:1]) == some(values)[:1]).all()


@given(
    data=st.data(),
    columns=st.integers(2, 4),
    person_rows=st.none() | st.integers(1, 3),
    relation=st.sampled_from(["replace_one", "add_remove"]),
    many=st.none() | st.sampled_from([10**4, 10**9]),  # with so many public rows the clip bound is wider
)
def test_one_row_or_person_never_moves_a_release_further_than_its_event_says(
    data: st.DataObject, columns: int, person_rows: int | None, relation: str, many: int | None
) -> None:
    prepared = prepared_for(columns, person_rows, relation, many)
    schema = prepared.schema
    one = st.lists(st.tuples(*[ANY] * columns), min_size=1, max_size=1 if person_rows is None else person_rows + 2)
    others = [("other", *data.draw(st.tuples(*[ANY] * columns))) for _ in range(2)]
    before = [("me", *row) for row in data.draw(one)]
    after = [("me", *row) for row in data.draw(one)] if relation == "replace_one" else []
    turn = np.array(data.draw(st.lists(st.floats(-9, 9), min_size=columns**2, max_size=columns**2))).reshape(
        columns, -1
    )
    units = data.draw(st.sampled_from([1.0, 2.5, 4.0, 1e6]))  # of the spread, across half of a column's range
    names = {"id": pl.String} | {name: pl.Float64 for name in schema.names}

    def releases(rows: list[tuple[object, ...]]) -> list[np.ndarray]:
        table = PrivateTable(pl.DataFrame(rows, schema=names, orient="row"), schema)
        limit, bent = squared_limit(columns, prepared.wide), bent_limit(columns)

        def summed(add_up: Callable[[Iterator[np.ndarray]], np.ndarray]) -> np.ndarray:
            return _sums(table, schema.names, add_up)

        return [
            summed(lambda rows: histograms(rows, columns)),
            summed(lambda rows: second_moments((bent_rows(b * units, bent) for b in rows), 3 * columns + 1)),
            summed(lambda rows: second_moments(map(unit_rows, rows), columns)),
            summed(lambda rows: second_moments((clipped_rows(turned_rows(b, turn), limit) for b in rows), columns + 1)),
        ]

    for event, first, second in zip(prepared.events, releases(others + before), releases(others + after), strict=True):
        distance = math.sqrt(sum(int(entry) ** 2 for entry in (first - second).ravel()))
        assert distance <= event.l2_sensitivity * (1 + 1e-12)
    assert [first.shape for first in releases(others + before)] == [
        (columns, CELLS),
        (3 * columns + 1, 3 * columns + 1),
        (columns, columns),
        (columns + 1, columns + 1),
    ]
