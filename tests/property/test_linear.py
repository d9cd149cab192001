"""The linear generator under attack: no row or person moves the statistic further than stated, no sample escapes."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.causal import CausalGraph
from escudo.privacy import Guarantee, Plan
from escudo.synthesis import prepare
from escudo.synthesis._linear import STEPS, LinearConditional, LinearModel, _second_moments, row_steps, squared_steps
from escudo.table import PrivateTable, Schema

UNIT = st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 1.0])
ANY = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-20, 20) | st.none()
CLIPS = st.none() | st.floats(0.05, 10)


def schema_of(columns: int, rows_per_person: int | None) -> Schema:
    spec: dict[str, object] = {f"x{i}": {"type": "numeric", "lower": -3 * i - 1, "upper": 7} for i in range(columns)}
    return Schema.from_dict(
        spec, person_id=None if rows_per_person is None else "id", max_rows_per_person=rows_per_person
    )


@given(data=st.data(), columns=st.integers(1, 6), clip=CLIPS)
def test_no_row_is_longer_than_the_limit(data: st.DataObject, columns: int, clip: float | None) -> None:
    scaled = np.array(data.draw(st.lists(st.tuples(*[UNIT] * columns), min_size=1, max_size=5)))
    limit = squared_steps(columns, clip)
    rows = row_steps(scaled, limit)
    assert (rows == np.rint(rows)).all()
    assert max(sum(int(step) ** 2 for step in row) for row in rows) <= limit


@given(
    data=st.data(),
    columns=st.integers(1, 4),
    person_rows=st.none() | st.integers(1, 3),
    clip=CLIPS,
    relation=st.sampled_from(["replace_one", "add_remove"]),
)
def test_one_row_or_person_never_moves_the_statistic_further_than_the_event_says(
    data: st.DataObject, columns: int, person_rows: int | None, clip: float | None, relation: str
) -> None:
    schema = schema_of(columns, person_rows)
    most = 1 if person_rows is None else person_rows + 2  # more rows than are let in
    one = st.lists(st.tuples(*[ANY] * columns), min_size=1, max_size=most)
    others = [("other", *data.draw(st.tuples(*[ANY] * columns))) for _ in range(2)]
    before = [("me", *row) for row in data.draw(one)]
    after = [("me", *row) for row in data.draw(one)] if relation == "replace_one" else []

    names = {"id": pl.String} | {name: pl.Float64 for name in schema.names}
    prepared = prepare(schema, None, epsilon=1.0, delta=1e-6, generator="linear", relation=relation, clip=clip)
    exact = [
        _second_moments(PrivateTable(pl.DataFrame(rows, schema=names, orient="row"), schema), prepared.limit)
        for rows in (others + before, others + after)
    ]
    distance = math.sqrt(sum(int(entry) ** 2 for entry in (exact[0] - exact[1]).ravel()))
    assert distance <= prepared.event.l2_sensitivity


@pytest.mark.parametrize("person_rows", [None, 2])
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_the_stated_sensitivity_is_attained(person_rows: int | None, relation: str) -> None:
    schema = schema_of(1, person_rows)
    copies = person_rows or 1

    def moments(*values: float) -> np.ndarray:
        frame = pl.DataFrame({"id": ["other"] + ["me"] * (len(values) - 1), "x0": values})
        return _second_moments(PrivateTable(frame, schema), prepared.limit)

    prepared = prepare(schema, None, epsilon=1.0, delta=1e-6, generator="linear", relation=relation)
    replaced = moments(5.0, *[-1.0] * copies) if relation == "replace_one" else moments(5.0)
    distance = np.linalg.norm((moments(5.0, *[7.0] * copies) - replaced).astype(float))
    assert distance == pytest.approx(prepared.event.l2_sensitivity, rel=1e-9)
    assert prepared.limit == 2 * STEPS**2


NUMBERS = st.floats(-50, 50)


@given(data=st.data(), columns=st.integers(1, 4), integer=st.booleans())
def test_no_sample_leaves_the_schema(data: st.DataObject, columns: int, integer: bool) -> None:
    bounds = {"type": "numeric", "lower": -2.5, "upper": 11.25, "integer": integer}
    names = [f"x{i}" for i in range(columns)]
    equations = {
        name: LinearConditional(
            tuple(names[:place]),
            data.draw(NUMBERS),
            np.array([data.draw(NUMBERS) for _ in range(place)]),
            data.draw(st.floats(1e-6, 50)),
        )
        for place, name in enumerate(names)
    }
    model = LinearModel(
        schema=Schema.from_dict(dict.fromkeys(names, bounds)),
        graph=CausalGraph.from_edges([(a, b) for i, b in enumerate(names) for a in names[:i]], nodes=names),
        conditionals=equations,
        guarantee=Guarantee(epsilon=1.0),
        generator="linear",
        plan=Plan("linear"),
    )
    known = {name: data.draw(st.integers(-2, 11)) for name in data.draw(st.sets(st.sampled_from(names)))}
    observed = {name: known.pop(name) for name in list(known) if data.draw(st.booleans())}
    drawn = model.sample(20, do=known, given=observed, seed=0)
    assert drawn.columns == names
    for name in names:
        assert drawn[name].is_between(-2.5, 11.25).all()
        assert drawn[name].dtype == (pl.Int64 if integer else pl.Float64)
        if name in (known | observed):
            assert set(drawn[name].to_list()) == {(known | observed)[name]}
