"""One person moves count tables of linked tables by no more than is stated, whatever their history is."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.discovery._effect_of import EffectQuestion
from escudo.discovery._linked_effect import LinkedEffect
from escudo.privacy import Budget, GaussianEvent
from escudo.table import LinkedSchema, LinkedTable, PrivateTables

LEVELS = ["a", "b"]


def schema_of(most: int, *, levels: int = 2) -> LinkedSchema:
    """Return people with a sex, and visits with a state."""
    return LinkedSchema.from_dict({
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "id", "origin": "entry", "columns": {"sex": ["f", "m"]}},
            "visits": {
                **{"parent": "people", "foreign_key": "id", "order": "day", "most": most},
                **{"start_edges": [0, 5, 50], "gap_edges": [0, 2, 50]},
                "columns": {"state": [f"s{level}" for level in range(levels)], "done": ["no", "yes"]},
            },
        },
    })  # fmt: skip


def tables_of(
    schema: LinkedSchema, histories: list[tuple[str, Any, list[tuple[Any, str, Any]]]], done: Any = pl.String
) -> PrivateTables:
    """Return the private tables of people: each a sex, a day of entry and visits (day, state, done)."""
    people = pl.DataFrame(
        {"id": range(len(histories)), "sex": [sex for sex, _, _ in histories], "entry": [e for _, e, _ in histories]},
        schema={"id": pl.Int64, "sex": pl.String, "entry": pl.Float64},
    )
    rows = [(place, *visit) for place, (_, _, visits) in enumerate(histories) for visit in visits]
    visits = pl.DataFrame(
        rows, schema={"id": pl.Int64, "day": pl.Float64, "state": pl.String, "done": done}, orient="row"
    )
    return PrivateTables({"people": people, "visits": visits}, schema)


CORE = ("visits.state@prev", "visits.state")
TABLES = [
    LinkedTable(view="people", columns=("people.sex", "visits.count")),
    LinkedTable(view="people", columns=("visits.@count",)),
    LinkedTable(view="first", table="visits", columns=("visits.state", "visits.start", "visits.count")),
    LinkedTable(view="all", table="visits", columns=("visits.state", "people.sex")),
    LinkedTable(view="next", table="visits", columns=(*CORE, "visits.gap", "visits.count")),
    LinkedTable(view="all", table="visits", columns=("visits.state", "visits.done"), core=("visits.state",)),
    LinkedTable(view="next", table="visits", columns=(*CORE, "visits.done@prev"), core=CORE),
]


def moved(schema: LinkedSchema, one: Any, other: Any) -> list[float]:
    """Return by how much each table moves where one person stands in another's place; None for nobody."""
    someone = ("f", 0.0, [(1.0, "s0", "no")])
    here, there = ([someone] + ([] if each is None else [each]) for each in (one, other))
    a, b = (tables_of(schema, each).counts(TABLES) for each in (here, there))
    return [float(np.linalg.norm((x - y).ravel())) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_history_of_few_rows_reaches_further_than_stated_and_the_bound_is_attained(most: int) -> None:
    schema = schema_of(most)
    used = [table for table in TABLES if table.view != "next" or most > 1]
    histories: list[Any] = []
    for length in range(most + 1):
        for states in itertools.product(["s0", "s1"], repeat=length):
            histories.append(("f", 0.0, [(float(10 * day), state, "no") for day, state in enumerate(states)]))
    histories.append(("m", 0.0, [(0.0, "s1", "yes")] * (most + 2)))
    counted = []
    for history in histories:
        counted.append([table.astype(float) for table in tables_of(schema, [history]).counts(used)])
    for place, table in enumerate(used):
        vectors = [each[place].ravel() for each in counted]
        alone = max(float(np.linalg.norm(vector)) for vector in vectors)
        apart = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(vectors, 2))
        assert alone <= table.sensitivity("add_remove").l2
        assert apart <= table.sensitivity("replace_one").l2
        assert alone >= table.sensitivity("add_remove").l2 * 0.99
        assert apart >= table.sensitivity("replace_one").l2 * 0.99, table
        assert max(float(vector.sum()) for vector in vectors) <= table.sensitivity("add_remove").l1
        changed = table.sensitivity("replace_one").changed_cells
        if changed is not None:
            assert max(int((a != b).sum()) for a, b in itertools.combinations(vectors, 2)) <= changed


visit = st.tuples(
    st.one_of(st.none(), st.integers(-3, 12).map(float), st.just(float("nan")), st.just(1e300), st.floats(0, 9)),
    st.sampled_from(["s0", "s1", "s2", "?"]),
    st.sampled_from(["no", "yes"]),
)
person = st.tuples(
    st.sampled_from(["f", "m", "?"]), st.one_of(st.none(), st.floats(-2, 5)), st.lists(visit, max_size=12)
)


@given(one=st.one_of(st.none(), person), other=person, most=st.integers(1, 6))
def test_whoever_comes_goes_or_is_replaced_moves_no_table_further_than_stated(one: Any, other: Any, most: int) -> None:
    schema = schema_of(most, levels=3)
    relation = "add_remove" if one is None else "replace_one"
    for table, far in zip(TABLES, moved(schema, one, other), strict=True):
        assert far <= table.sensitivity(relation).l2


NUMBERS = LinkedSchema.from_dict({
    "linked": {"people": "people", "dates": "days"},
    "tables": {
        "people": {"key": "id", "origin": "entry", "columns": {"sex": ["f", "m"]}},
        "visits": {
            **{"parent": "people", "foreign_key": "id", "order": "day", "most": 5},
            **{"start_edges": [0, 5, 50], "gap_edges": [0, 2, 50]},
            "columns": {"state": ["s0", "s1", "s2"], "done": {"type": "numeric", "lower": 0, "upper": 1, "bins": 2}},
        },
    },
})  # fmt: skip
QUESTIONS = [
    EffectQuestion("visits.state@prev", "visits.done", trial=True),
    EffectQuestion("visits.state@prev", "visits.gap", adjust=["people.sex"]),
    EffectQuestion("visits.state", "visits.done", adjust=["people.sex"]),
    EffectQuestion("people.sex", "visits.state", trial=True, outcome_level="s1"),
    EffectQuestion("people.sex", "visits.count", trial=True),
]


measured = st.tuples(
    st.sampled_from(["f", "m"]),
    st.just(0.0),
    st.lists(st.tuples(st.floats(0, 60), st.sampled_from(["s0", "s1", "s2"]), st.floats(-1, 2)), max_size=7),
)


@given(st.one_of(st.none(), measured), measured, st.sampled_from(QUESTIONS), st.sampled_from([0.0, 1e-6]))
def test_nobody_moves_an_adjustment_table_further_than_its_event_says(
    one: Any, other: Any, asked: EffectQuestion, delta: float
) -> None:
    relation = "add_remove" if one is None else "replace_one"
    question = LinkedEffect(asked).prepare(NUMBERS, NUMBERS.neighbours(relation=relation), Budget(1.0, delta))
    table, someone = question.inside.table, ("f", 0.0, [(1.0, "s0", 0.5)])
    here, there = (
        table.sums(question.counts(tables_of(NUMBERS, [someone, *each], done=pl.Float64)))
        for each in ([] if one is None else [one], [other])
    )
    apart = (here - there).astype(np.float64).ravel()
    if isinstance(table.event, GaussianEvent):
        assert np.linalg.norm(apart) <= table.event.l2_sensitivity
    else:
        assert np.abs(apart).sum() <= table.event.l1_sensitivity


@given(st.lists(person, max_size=5), st.randoms(use_true_random=False), st.integers(1, 4))
def test_the_order_of_rows_in_the_frames_says_nothing(people: list[Any], random: Any, most: int) -> None:
    schema = schema_of(most, levels=3)
    tables = tables_of(schema, people)
    shuffled = {}
    for name, source in tables._sources.items():
        frame = source.frame.to_native()
        order = list(range(frame.height))
        random.shuffle(order)
        shuffled[name] = frame[order]
    again = PrivateTables(shuffled, schema)
    for a, b in zip(tables.counts(TABLES), again.counts(TABLES), strict=True):
        np.testing.assert_array_equal(a, b)


@given(st.lists(person, min_size=1, max_size=4), st.integers(1, 4))
def test_everybody_s_counts_add_up_whoever_else_is_there(people: list[Any], most: int) -> None:
    schema = schema_of(most, levels=3)
    together = tables_of(schema, people).counts(TABLES)
    alone = [tables_of(schema, [each]).counts(TABLES) for each in people]
    for place, table in enumerate(together):
        np.testing.assert_array_equal(table, sum(each[place] for each in alone))


def test_a_voice_has_the_same_weight_however_many_rows_it_has() -> None:
    schema = schema_of(40)
    for rows in (1, 2, 3, 7, 39, 40, 60):
        tables = tables_of(schema, [("f", 0.0, [(float(day), "s1", "no") for day in range(rows)])])
        whole, after = tables.counts([TABLES[3], TABLES[4]])
        assert whole.sum() == 4096
        assert after.sum() == (4096 if rows > 1 else 0)


def test_a_table_that_lacks_the_core_is_not_counted_with_its_weights() -> None:
    tables = tables_of(schema_of(3), [("f", 0.0, [(0.0, "s1", "no")])])
    with pytest.raises(AssertionError, match="core"):
        tables.counts([LinkedTable(view="all", table="visits", columns=("visits.done",), core=("visits.state",))])


def test_a_norm_of_the_family_would_not_bound_its_coarser_tables() -> None:
    """The trap of the weighting: it would be 2 here, where 1 was promised."""
    rows = [(1, 0), (0, 1), (1, 1), (0, 0)]  # one visit in each cell of the family
    weight = 1 / math.sqrt(sum(1 for _ in rows))
    coarse = [weight * len(rows)]
    assert np.linalg.norm(coarse) == 2.0
