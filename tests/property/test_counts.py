"""Counts obey the schema and the unit whatever the data hold."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import numpy as np
import polars as pl
from hypothesis import assume, given
from hypothesis import strategies as st

from escudo.errors import SchemaError
from escudo.table._columns import Categorical, Numeric
from escudo.table._counts import count_sensitivity
from escudo.table._schema import Schema
from escudo.table._table import PrivateTable

_CONNECTION = duckdb.connect()


def _both_engines(frame: pl.DataFrame) -> list[Any]:
    return [frame, _CONNECTION.from_arrow(frame.to_arrow())]


finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def numeric_columns(draw: st.DrawFn) -> Numeric:
    missing = draw(st.booleans())
    try:
        if draw(st.booleans()):
            edges = sorted(draw(st.sets(finite, min_size=2, max_size=12)))
            return Numeric("x", edges=edges, missing=missing)
        lower, upper = sorted((draw(finite), draw(finite)))
        return Numeric("x", lower, upper, draw(st.integers(1, 2000)), missing=missing)
    except SchemaError:
        assume(False)
        raise


def _floats_away(number: float, steps: int) -> float:
    for _ in range(abs(steps)):
        number = math.nextafter(number, math.copysign(math.inf, steps))
    return number


@given(column=numeric_columns(), data=st.data())
def test_numbers_fall_into_the_bin_of_the_reference(column: Numeric, data: st.DataObject) -> None:
    boundaries = column.boundaries
    near = st.integers(0, len(boundaries) - 1).flatmap(
        lambda i: st.integers(-3, 3).map(lambda steps: _floats_away(float(boundaries[i]), steps))
    )
    between = st.floats(float(boundaries[0]), float(boundaries[-1]))
    values = data.draw(st.lists(st.one_of(near, between, st.floats(), st.none()), min_size=1, max_size=60))
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Float64)})
    wanted = column.encode(values)
    for source in _both_engines(frame):
        table = PrivateTable(source, Schema((column,)))
        cells = next(table.batches()).ravel()
        np.testing.assert_array_equal(cells, wanted, err_msg=table.engine)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)


@st.composite
def categorical_columns(draw: st.DrawFn) -> tuple[Categorical, Any, Any]:
    """Return a column, the values to draw for it, and the type to hold them."""
    whole = draw(st.booleans())
    values = st.integers(-130, 130) if whole else texts
    levels = draw(st.lists(values, min_size=1, max_size=6, unique=True))
    other = draw(st.sampled_from([None, *levels]))
    column = Categorical("x", levels, missing=draw(st.booleans()), other=other)
    inside = st.one_of(st.sampled_from(levels), values, st.none())
    return column, inside, draw(st.sampled_from([pl.Int16, pl.Int64, pl.Float64])) if whole else pl.String


@given(made=categorical_columns(), data=st.data())
def test_values_fall_into_the_cell_of_the_reference(made: Any, data: st.DataObject) -> None:
    column, inside, dtype = made
    values = data.draw(st.lists(inside, min_size=1, max_size=40))
    frame = pl.DataFrame({"x": pl.Series(values, dtype=dtype, strict=False)})
    wanted = np.bincount(column.encode(values), minlength=column.size)
    for source in _both_engines(frame):
        counts = PrivateTable(source, Schema((column,))).counts("x")
        np.testing.assert_array_equal(counts, wanted)


rows_of = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["u", "v", "?", None])), max_size=7)
FIELDS = (Categorical("a", [0, 1], missing=True), Categorical("b", ["u", "v"]))
TABLES = [("a",), ("b", "a"), ("b",)]


def _counted(people: dict[int, list[tuple[int, str | None]]], rows: int, seed: int, engine: int) -> Any:
    listed = [(person, *row) for person, own in people.items() for row in own]
    made = pl.DataFrame(listed, schema={"id": pl.Int64, "a": pl.Int64, "b": pl.String}, orient="row")
    frame = _both_engines(made)[engine] if listed else made.lazy()
    schema = Schema(FIELDS, person_id="id", max_rows_per_person=rows)
    counts = PrivateTable(frame, schema, sample_seed=seed).counts(TABLES)
    return np.concatenate([table.ravel() for table in counts])


@given(
    people=st.dictionaries(st.integers(-(2**40), 2**40), rows_of, min_size=1, max_size=4),
    replacement=st.tuples(st.integers(2**41, 2**42), rows_of),
    rows=st.integers(1, 4),
    seed=st.integers(0, 5),
    engine=st.integers(0, 1),
)
def test_one_person_moves_counts_by_no_more_than_the_sensitivity(
    people: dict[int, Any], replacement: tuple[int, Any], rows: int, seed: int, engine: int
) -> None:
    before = _counted(people, rows, seed, engine)
    gone = next(iter(people))
    without = {person: own for person, own in people.items() if person != gone}
    after_removal = _counted(without, rows, seed, engine)
    after_replacement = _counted({**without, replacement[0]: replacement[1]}, rows, seed, engine)
    for relation, after in (("add_remove", after_removal), ("replace_one", after_replacement)):
        allowed = count_sensitivity(len(TABLES), relation=relation, unit="person", max_rows_per_person=rows)
        change = before - after
        assert np.abs(change).sum() <= allowed.l1
        assert math.sqrt((change**2).sum()) <= allowed.l2
        if allowed.changed_cells is not None:
            assert (change != 0).sum() <= allowed.changed_cells
    # Stronger: what is left of the others is exactly what it was.
    alone = _counted({gone: people[gone]}, rows, seed, engine)
    np.testing.assert_array_equal(before, after_removal + alone)
    assert alone.sum() == min(rows, len(people[gone])) * len(TABLES)
