"""The adjustment table under attack: no row or person moves it further than the event says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.discovery._adjustment import STEPS
from escudo.discovery._effect_of import prepare_effect
from escudo.privacy import GaussianEvent
from escudo.table import PrivateTable, Schema

NAMES = ("age", "drug", "score", "well")
ROW = st.tuples(
    st.sampled_from(["young", "old", "??", None]),
    st.sampled_from(["no", "yes", None]),
    st.floats(allow_nan=True, allow_infinity=True) | st.floats(-5, 15) | st.sampled_from([0.0, 5.0, 10.0]) | st.none(),
    st.sampled_from(["no", "yes", None]),
)


def schema_of(rows_per_person: int | None, missing: bool) -> Schema:
    two = {"type": "categorical", "levels": ["no", "yes"], "missing": missing}
    columns = {
        "age": ["young", "old"],
        "drug": two,
        "score": {"type": "numeric", "lower": 0, "upper": 10, "missing": missing},
        "well": two,
    }
    return Schema.from_dict(
        columns, person_id=None if rows_per_person is None else "id", max_rows_per_person=rows_per_person
    )


@given(
    data=st.data(),
    person_rows=st.none() | st.integers(1, 3),
    relation=st.sampled_from(["replace_one", "add_remove"]),
    outcome=st.sampled_from(["score", "well"]),
    delta=st.sampled_from([0.0, 1e-6]),
    missing=st.booleans(),
    refute=st.sampled_from([None, "placebo", "random-cause"]),
)
def test_one_row_or_person_never_moves_the_table_further_than_the_event_says(
    data: st.DataObject,
    person_rows: int | None,
    relation: str,
    outcome: str,
    delta: float,
    missing: bool,
    refute: str | None,
) -> None:
    schema = schema_of(person_rows, missing)
    asked = prepare_effect(
        schema,
        "drug",
        outcome,
        adjust=["age"],
        epsilon=1.0,
        delta=delta,
        relation=relation,
        refute=[refute] if refute else [],
    )
    prepared = asked.refuters[0][1] if refute else asked.table
    one = st.lists(ROW, min_size=1, max_size=1 if person_rows is None else person_rows + 2)
    others = [("other", *data.draw(ROW)) for _ in range(2)]
    before = [("me", *row) for row in data.draw(one)]
    after = [("me", *row) for row in data.draw(one)] if relation == "replace_one" else []
    dtypes = {"id": pl.String, "age": pl.String, "drug": pl.String, "score": pl.Float64, "well": pl.String}
    exact = [
        prepared.sums(prepared.count(PrivateTable(pl.DataFrame(rows, schema=dtypes, orient="row"), schema)))
        for rows in (others + before, others + after)
    ]
    moved = [int(entry) for entry in (exact[0] - exact[1]).ravel()]
    if isinstance(prepared.event, GaussianEvent):
        assert sum(entry**2 for entry in moved) <= prepared.event.l2_sensitivity**2
    else:
        assert sum(map(abs, moved)) <= prepared.event.l1_sensitivity


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
@pytest.mark.parametrize(("outcome", "worst"), [("well", "yes"), ("score", 10.0), ("score", 5.0)])
def test_the_stated_sensitivity_is_attained_or_nearly(relation: str, delta: float, outcome: str, worst: object) -> None:
    schema = schema_of(None, False)
    prepared = prepare_effect(
        schema, "drug", outcome, adjust=["age"], epsilon=1.0, delta=delta, relation=relation
    ).table

    def table(*rows: tuple[object, ...]) -> np.ndarray:
        frame = pl.DataFrame(list(rows), schema=list(NAMES), orient="row", strict=False)
        return prepared.sums(prepared.count(PrivateTable(frame, schema)))

    stay = ("young", "no", 0.0, "no")
    row = ("old", "yes", worst if outcome == "score" else 0.0, worst if outcome == "well" else "no")
    other = [("young", "no", 0.0, "no")] if relation == "replace_one" else []
    moved = (table(stay, row) - table(stay, *other)).ravel().astype(float)
    if isinstance(prepared.event, GaussianEvent):
        # Half-way outcomes leave room in length 1 only for what V takes: √(1/2 + 8/16) = 1.
        assert np.linalg.norm(moved) == pytest.approx(prepared.event.l2_sensitivity, rel=1e-3)
    else:
        unit = 1 if outcome == "well" else STEPS
        full = prepared.event.l1_sensitivity
        assert np.abs(moved).sum() >= full - (2 if relation == "replace_one" else 1) * unit / 16 - 2


@given(weights=st.lists(st.integers(0, STEPS), min_size=1, max_size=20))
def test_the_spread_of_outcomes_costs_nothing_in_length(weights: list[int]) -> None:
    schema = schema_of(None, False)
    prepared = prepare_effect(schema, "drug", "score", trial=True, epsilon=1.0, delta=1e-6).table
    for a, spread in zip(prepared.outcome.weights.tolist(), prepared._spread.tolist(), strict=True):
        assert a**2 + (STEPS - a) ** 2 + spread**2 <= STEPS**2
    for a in weights:
        spread = int(np.floor(2.828 * (float(a) * (STEPS - a) / STEPS)))
        assert a**2 + (STEPS - a) ** 2 + spread**2 <= STEPS**2
