"""Rows of rows: one person moves count tables by no more than is stated, and nobody else decides which rows count."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.table import LinkedSchema, LinkedTable, PrivateTables, _linked

Visit = tuple[Any, Any, str]
"""Key, day and state."""

Drug = tuple[Any, Any, str, str]
"""Key of the visit, day, drug and dose."""

Person = tuple[str, Any, list[Visit], list[Drug]]
"""Sex, day of entry, visits and drugs."""


def schema_of(most: int, each: int, *, timed: bool = True) -> LinkedSchema:
    """Return people with a sex, visits with a state, and drugs of visits."""
    days: dict[str, Any] = {"order": "day", "start_edges": [0, 5, 50], "gap_edges": [0, 2, 50]}
    return LinkedSchema.from_dict({
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "id", "origin": "entry", "columns": {"sex": ["f", "m"]}},
            "drugs": {
                **{"parent": "visits", "foreign_key": "id", "row_key": "of", "most": each, **(days if timed else {})},
                "columns": {"drug": ["x", "y"], "dose": ["low", "high"]},
            },
            "visits": {
                **{"parent": "people", "foreign_key": "id", "key": "visit", "most": most, **days},
                "columns": {"state": ["a", "b"]},
            },
        },
    })  # fmt: skip


def frames_of(people: list[Person]) -> dict[str, pl.DataFrame]:
    """Return the frames of people; what visits are called says nothing of whose they are."""
    persons = [(place, sex, entry) for place, (sex, entry, _, _) in enumerate(people)]
    visits = [(place, *visit) for place, (_, _, several, _) in enumerate(people) for visit in several]
    drugs = [(place, *drug) for place, (_, _, _, several) in enumerate(people) for drug in several]
    key, day = pl.Int64, pl.Float64
    return {
        "people": pl.DataFrame(persons, schema={"id": key, "sex": pl.String, "entry": day}, orient="row"),
        "visits": pl.DataFrame(
            visits, schema={"id": key, "visit": key, "day": day, "state": pl.String}, orient="row"
        ),
        "drugs": pl.DataFrame(
            drugs, schema={"id": key, "of": key, "day": day, "drug": pl.String, "dose": pl.String}, orient="row"
        ),
    }  # fmt: skip


def tables_of(schema: LinkedSchema, people: list[Person]) -> PrivateTables:
    """Return the private tables of people."""
    return PrivateTables(frames_of(people), schema)


def _of_drugs(view: str, *columns: str, core: tuple[str, ...] | None = None) -> LinkedTable:
    return LinkedTable(view=view, table="drugs", parent="visits", columns=columns, core=core)  # type: ignore[arg-type]


CORE = ("drugs.drug@prev", "drugs.drug")
TABLES = [
    LinkedTable(view="all", table="visits", columns=("visits.state", "drugs.count")),
    LinkedTable(view="all", table="visits", columns=("drugs.@count",)),
    LinkedTable(view="next", table="visits", columns=("visits.state@prev", "drugs.count")),
    LinkedTable(view="all", table="visits", columns=("people.sex", "drugs.count"), core=("drugs.count",)),
    _of_drugs("first", "visits.state", "drugs.drug", "people.sex"),
    _of_drugs("first", "drugs.start", "drugs.count"),
    _of_drugs("all", "drugs.drug", "drugs.dose", "visits.count", "visits.number"),
    _of_drugs("next", *CORE, "drugs.gap", "drugs.count"),
    _of_drugs("next", *CORE, "visits.state", core=CORE),
    _of_drugs("all", "drugs.dose", "drugs.@count", core=("drugs.dose",)),
    _of_drugs("first", "drugs.drug", "visits.state", core=("drugs.drug",)),
]
UNTIMED = [table for table in TABLES if not {"drugs.start", "drugs.gap"} & set(table.columns)]


# ---- the grid


@pytest.mark.parametrize("steps", [1, 2, 5, 12, 4096])
def test_what_a_row_hands_on_is_exactly_what_it_has_on_every_grid(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """All histories of up to four visits with up to three drugs each, also on grids with fewer steps than rows."""
    monkeypatch.setattr(_linked, "STEPS", steps)
    schema = schema_of(4, 3)
    numbers = [many for n in range(5) for many in itertools.product(range(4), repeat=n)]
    people: list[Person] = [
        (
            "f",
            0.0,
            [(visit, float(visit), "a") for visit in range(len(many))],
            [(visit, float(visit + nth), "x", "low") for visit, m in enumerate(many) for nth in range(m)],
        )
        for many in numbers
    ]
    everybody = tables_of(schema, people).histories()
    visits, drugs = everybody.rows["visits"], everybody.rows["drugs"]
    whole = everybody._voices("visits", np.arange(visits.number.size), "all")
    assert drugs.row is not None
    for view, least in (("first", 1), ("all", 1), ("next", 2)):
        chosen = np.flatnonzero({"first": drugs.number == 1, "next": drugs.number > 1}.get(view, drugs.number > 0))
        handed = np.bincount(
            drugs.row[chosen],
            weights=everybody._voices("drugs", chosen, view),
            minlength=visits.number.size,  # type: ignore[arg-type]
        )
        np.testing.assert_array_equal(handed, np.where(drugs.count >= least, whole, 0))
        of_person = np.bincount(drugs.person[chosen], weights=everybody._voices("drugs", chosen, view))  # type: ignore[arg-type]
        assert of_person.max() <= steps
    together = np.bincount(visits.person, weights=whole, minlength=len(people))
    np.testing.assert_array_equal(together, np.where(visits.count > 0, steps, 0))


# ---- how far one person reaches


def _histories(most: int, each: int) -> list[Person]:
    """Return everybody there can be with up to so many visits and drugs, each of two kinds, days apart."""
    found: list[Person] = []
    drugs = [kinds for m in range(each + 1) for kinds in itertools.product("xy", repeat=m)]
    for n in range(most + 1):
        for several in itertools.product(itertools.product("ab", drugs), repeat=n):
            visits = [(place, 10.0 * place, state) for place, (state, _) in enumerate(several)]
            rows = [
                (place, 10.0 * place + nth, kind, "low")
                for place, (_, kinds) in enumerate(several)
                for nth, kind in enumerate(kinds)
            ]
            found.append(("f", 0.0, visits, rows))
    return found


@pytest.mark.parametrize(("most", "each"), [(1, 1), (2, 2), (1, 3)])
def test_no_history_reaches_further_than_stated_and_the_bound_is_attained(most: int, each: int) -> None:
    schema = schema_of(most, each)
    used = [table for table in TABLES if not (table.view == "next" and (each if table.parent else most) == 1)]
    people = _histories(most, each)
    constant: list[Person] = [
        (sex, 0.0, [(k, day, state) for k in range(most)], [(k, 2 * day, drug, dose) for k in range(most)] * many)
        for sex, day, state, drug, dose, many in (
            ("f", 0.0, "a", "x", "low", 1), ("f", 0.0, "a", "x", "low", each), ("m", 7.0, "b", "y", "high", each)
        )
    ]  # fmt: skip
    everybody = tables_of(schema, [*people, *constant]).histories()
    alone_each = [everybody.of_people(np.array([place])) for place in range(everybody.size)]
    for table in used:
        vectors = np.array([one.counts(table).ravel() for one in alone_each], dtype=np.float64)
        squares = (vectors**2).sum(axis=1)
        alone = float(np.sqrt(squares.max()))
        apart = float(np.sqrt((squares[:, None] + squares[None, :] - 2 * vectors @ vectors.T).max()))
        for relation, far in (("add_remove", alone), ("replace_one", apart)):
            stated = table.sensitivity(relation).l2  # type: ignore[arg-type]
            assert far <= stated, (table, relation)
            rounding = 1.0 if table.core is None else 0.95
            assert far >= 0.999 * rounding * stated, (table, relation)


level = st.sampled_from(["a", "b", "?"])
days = st.one_of(st.sampled_from([None, -1.0, 0.0, 1.0, 1.5, 3.0]), st.floats(-2, 30))  # of which some are the same
visit = st.tuples(st.one_of(st.none(), st.integers(0, 3)), days, level)
drug = st.tuples(
    st.one_of(st.none(), st.integers(0, 4)),
    days,
    st.sampled_from(["x", "y", "?"]),
    st.sampled_from(["low", "high"]),
)
person = st.tuples(
    st.sampled_from(["f", "m", "?"]),
    st.one_of(st.none(), st.floats(-2, 5)),
    st.lists(visit, max_size=6),
    st.lists(drug, max_size=12),
)
shape = st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans())


@given(one=st.one_of(st.none(), person), other=person, shape=shape)
def test_whoever_comes_goes_or_is_replaced_moves_no_table_further_than_stated(one: Any, other: Any, shape: Any) -> None:
    schema, tables = schema_of(*shape[:2], timed=shape[2]), TABLES if shape[2] else UNTIMED
    someone: Person = ("f", 0.0, [(0, 1.0, "a"), (1, 2.0, "b")], [(0, 1.0, "x", "low"), (1, 4.0, "y", "high")])
    relation = "add_remove" if one is None else "replace_one"
    here, there = (
        tables_of(schema, [someone, *([] if each is None else [each])]).counts(tables) for each in (one, other)
    )
    for table, a, b in zip(tables, here, there, strict=True):
        apart = (a - b).astype(np.float64).ravel()
        stated = table.sensitivity(relation)  # type: ignore[arg-type]
        assert np.linalg.norm(apart) <= stated.l2
        assert np.abs(apart).sum() <= stated.l1


# ---- which rows count


def _plainly(schema: LinkedSchema, someone: Person) -> tuple[list[Visit], list[list[Drug]]]:
    """Return the visits and drugs of somebody that count, worked out one by one by the stated rules."""
    _, entry, visits, drugs = someone
    timed = schema.child("drugs").order is not None

    def day_of(value: Any) -> float | None:
        return None if value is None else float(np.floor(value))

    def cell(column: str, level: str) -> int:
        return int(schema.column(column).encode([level])[0])

    origin = day_of(entry)
    dated = [(day_of(day), state, key) for key, day, state in visits if day is not None]
    kept = [row for row in dated if origin is None or row[0] >= origin]  # type: ignore[operator]
    kept.sort(key=lambda row: (row[0], cell("visits.state", row[1]), row[2] is not None, row[2] or 0))
    kept = kept[: schema.child("visits").most]
    found: list[list[Drug]] = [[] for _ in kept]
    for of, day, drug, dose in drugs:
        named = [nth for nth, row in enumerate(kept) if of is not None and row[2] == of]
        if named and (not timed or (day is not None and day_of(day) >= kept[named[0]][0])):  # type: ignore[operator]
            found[named[0]].append((of, day_of(day) if timed else 0, drug, dose))
    cut = [
        sorted(own, key=lambda row: (row[1], cell("drugs.drug", row[2]), row[3] != "low"))[: schema.child("drugs").most]
        for own in found
    ]
    return [(key, day, state) for day, state, key in kept], cut


@given(someone=person, shape=shape)
def test_rows_count_as_the_rules_say(someone: Person, shape: Any) -> None:
    schema = schema_of(*shape[:2], timed=shape[2])
    visits, drugs = _plainly(schema, someone)
    counted = tables_of(schema, [someone]).histories()
    assert counted.rows["visits"].count.tolist() == [len(visits)]
    assert counted.rows["drugs"].count.tolist() == [len(own) for own in drugs]
    table = _of_drugs("all", "visits.number", "drugs.dose")
    wanted: Counter[tuple[int, int]] = Counter()
    for nth, own in enumerate(drugs):
        share = (nth + 1) * 4096 // len(visits) - nth * 4096 // len(visits)
        for place, row in enumerate(own):
            number = int(schema.column("visits.number").encode([nth + 1])[0])
            steps = (place + 1) * share // len(own) - place * share // len(own)
            wanted[number, 0 if row[3] == "low" else 1] += steps
    assert {(int(i), int(j)): int(c) for (i, j), c in np.ndenumerate(counted.counts(table)) if c} == {
        cell: many for cell, many in wanted.items() if many
    }


@given(st.lists(person, min_size=1, max_size=4), shape)
def test_everybody_s_counts_add_up_whoever_else_is_there(people: list[Any], shape: Any) -> None:
    """Visits of different people are called alike here, and no drug finds its way to somebody else's."""
    schema, tables = schema_of(*shape[:2], timed=shape[2]), TABLES if shape[2] else UNTIMED
    histories = tables_of(schema, people).histories()
    alone = [tables_of(schema, [each]).counts(tables) for each in people]
    places = np.arange(0, len(people), 2)
    some = histories.of_people(places)
    for place, table in enumerate(tables):
        np.testing.assert_array_equal(histories.counts(table), sum(each[place] for each in alone))
        np.testing.assert_array_equal(some.counts(table), sum(alone[one][place] for one in places))


@given(st.lists(person, max_size=4), st.randoms(use_true_random=False), shape)
def test_the_order_of_rows_in_the_frames_says_nothing(people: list[Any], random: Any, shape: Any) -> None:
    schema, tables = schema_of(*shape[:2], timed=shape[2]), TABLES if shape[2] else UNTIMED
    frames = frames_of(people)
    shuffled = {}
    for name, frame in frames.items():
        order = list(range(frame.height))
        random.shuffle(order)
        shuffled[name] = frame[order]
    here, there = (PrivateTables(each, schema).counts(tables) for each in (frames, shuffled))
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a, b)


@given(st.lists(person, max_size=3), shape)
def test_keys_as_texts_count_as_whole_numbers_do(people: list[Any], shape: Any) -> None:
    schema, tables = schema_of(*shape[:2], timed=shape[2]), TABLES if shape[2] else UNTIMED
    frames = frames_of(people)
    texts = {
        **frames,
        "visits": frames["visits"].with_columns((pl.col("visit") * 5).cast(pl.String)),
        "drugs": frames["drugs"].with_columns((pl.col("of") * 5).cast(pl.String)),
    }
    for a, b in zip(
        PrivateTables(frames, schema).counts(tables), PrivateTables(texts, schema).counts(tables), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_what_is_left_out_is_told_the_custodian() -> None:
    schema = schema_of(2, 2)
    someone: Person = (
        "f",
        0.0,
        [(7, 1.0, "a"), (7, 3.0, "b"), (8, 5.0, "a"), (None, 9.0, "a")],
        [
            *((7, 3.0, "x", "low") for _ in range(3)),  # of the first visit called 7, one beyond the most
            (8, 6.0, "x", "low"),  # of a visit beyond the most
            (9, 6.0, "x", "low"),  # of none
            (None, 6.0, "x", "low"),
            (7, None, "x", "low"),
            (7, 0.0, "x", "low"),  # before the visit
        ],
    )
    histories = tables_of(schema, [someone]).histories()
    tally = histories.tally
    assert histories.rows["drugs"].count.tolist() == [2, 0]
    told = (tally.orphans, tally.no_key, tally.no_day, tally.early, tally.beyond)
    assert [each["drugs"] for each in told] == [2, 1, 1, 1, 1]
    assert tally.beyond["visits"] == 2


@pytest.mark.parametrize("turned", [False, True])
def test_visits_alike_in_all_but_their_rows_are_put_in_order_by_their_keys(turned: bool) -> None:
    """The second of them is beyond the most, and its drugs with it, whichever came first in the frame."""
    visits: list[Visit] = [(9, 1.0, "a"), (10, 1.0, "a"), (None, 1.0, "a")]
    someone: Person = ("f", 0.0, visits[::-1] if turned else visits, [(9, 1.0, "x", "low"), (10, 1.0, "y", "low")])
    frames = frames_of([someone])
    texts = {name: frame.with_columns(pl.col("^(visit|of)$").cast(pl.String)) for name, frame in frames.items()}
    for each in (frames, texts):
        counted = PrivateTables(each, schema_of(2, 1)).counts([_of_drugs("all", "drugs.drug", "visits.number")])
        assert counted[0].tolist() == [[0, 2048], [0, 0]]  # none comes first, then 9


@pytest.mark.parametrize("keys", [(-1, 5), (-300, -2), (15, 16), (-1, 0)])
def test_the_type_of_a_column_of_keys_does_not_change_their_order(keys: tuple[int, int]) -> None:
    """It may be of floats because somebody's key is missing, and must not decide which of others' visits count."""
    someone: Person = ("f", 0.0, [(keys[1], 1.0, "a"), (keys[0], 1.0, "a")], [(keys[0], 1.0, "x", "low")])
    frames = frames_of([someone])
    floats = {name: frame.with_columns(pl.col("^(visit|of)$").cast(pl.Float64)) for name, frame in frames.items()}
    for each in (frames, floats):
        counted = PrivateTables(each, schema_of(1, 1)).counts([_of_drugs("all", "drugs.drug")])
        assert counted[0].tolist() == [4096, 0]


def test_a_table_that_does_not_say_whose_rows_they_are_is_not_counted() -> None:
    tables = tables_of(schema_of(2, 2), [("f", 0.0, [(1, 1.0, "a")], [(1, 1.0, "x", "low")])])
    with pytest.raises(AssertionError, match="whose rows"):
        tables.counts([LinkedTable(view="first", table="drugs", columns=("drugs.drug",))])
