"""Graphs over linked tables: what time says is kept, what is there is found, and linked tables can follow them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import escudo
from escudo.causal import CausalGraph, Knowledge
from escudo.discovery._linked_discovery import LinkedGraphQuestion, _Voices
from escudo.discovery._measurement import Levels, l2_sensitivity, measure
from escudo.errors import EscudoError
from escudo.mechanisms import Purse
from escudo.privacy import Budget
from escudo.table import LinkedSchema, PrivateTables, check_linked_graph

SCHEMA = LinkedSchema.from_dict({
    "linked": {"people": "people", "dates": "days"},
    "tables": {
        "people": {"key": "id", "origin_day": 0, "columns": {"old": ["no", "yes"], "sex": ["f", "m"]}},
        "visits": {
            **{"parent": "people", "foreign_key": "id", "order": "day", "most": 5},
            **{"start_edges": [0, 9], "gap_edges": [0, 9]},
            "columns": {"ill": ["no", "yes"], "drug": ["no", "yes"], "rash": ["no", "yes"]},
        },
    },
})  # fmt: skip
TRUE = {
    *(("people.old", "visits.ill"), ("visits.ill@prev", "visits.ill"), ("visits.drug@prev", "visits.ill")),
    *(("visits.ill", "visits.drug"), ("visits.drug", "visits.rash"), ("people.old", "visits.count")),
}
GIVEN = {(f"visits.{name}@prev", f"visits.{name}") for name in ("ill", "drug", "rash")}


def frames(people: int, seed: int) -> dict[str, pl.DataFrame]:
    """Return people whose illness goes on, the more so if they took a drug that is given to the ill."""
    rng = np.random.default_rng(seed)
    old, sex = rng.random(people) < 0.5, rng.random(people) < 0.5
    count = 2 + rng.binomial(3, np.where(old, 0.8, 0.3))
    ill, drug = np.zeros(people, dtype=bool), np.zeros(people, dtype=bool)
    parts = []
    for number in range(5):
        went_on = 0.1 + 0.25 * old + (0.3 * ill + 0.3 * drug if number else 0)
        ill = rng.random(people) < went_on
        drug = rng.random(people) < np.where(ill, 0.7, 0.1)
        rash = rng.random(people) < np.where(drug, 0.5, 0.1)
        here = np.flatnonzero(count > number)
        told = {"ill": ill, "drug": drug, "rash": rash}
        words = {name: np.where(cells[here], "yes", "no") for name, cells in told.items()}
        parts.append(pl.DataFrame({"id": here, "day": number, **words}))
    persons = pl.DataFrame({"id": np.arange(people), "old": np.where(old, "yes", "no"), "sex": np.where(sex, "m", "f")})
    return {"people": persons, "visits": pl.concat(parts)}


@pytest.fixture(scope="module")
def tables() -> PrivateTables:
    return PrivateTables(frames(8_000, 1), SCHEMA)


@pytest.mark.parametrize("method", ["exact", "two-stage"])
def test_what_is_there_is_found_and_points_with_time(tables: PrivateTables, method: str) -> None:
    found = escudo.discover(tables, epsilon=5.0, delta=1e-6, method=method, seed=1)
    assert set(found.graph.edges) >= TRUE - {("visits.drug", "visits.rash"), ("visits.ill", "visits.drug")}
    skeleton = {frozenset(edge) for edge in found.graph.edges}
    assert {frozenset(edge) for edge in TRUE | GIVEN} <= skeleton
    assert len(skeleton - {frozenset(edge) for edge in TRUE | GIVEN}) <= 1
    assert not found.graph.undirected_edges
    assert set(found.graph.edges) <= set(found.generating_graph.edges)
    for graph in (found.graph, found.generating_graph):
        check_linked_graph(SCHEMA, graph)
    assert found.rows == 8_000
    assert found.guarantee.unit == "person"
    model = escudo.synthesize(tables, found.graph, epsilon=1.0, delta=1e-6, seed=1)
    assert model.sample(5, seed=1)["visits"].columns[0] == "id"


def test_open_directions_are_told_as_even_and_what_is_known_is_kept(tables: PrivateTables) -> None:
    arrow = ("visits.rash", "visits.drug")
    knowledge = CausalGraph(
        nodes=(*arrow, "people.sex", "visits.ill"),
        edges=(arrow,),
        knowledge=Knowledge(forbidden=(("visits.ill", "visits.drug"),)),
    )
    found = escudo.discover(tables, epsilon=5.0, delta=1e-6, knowledge=knowledge, seed=1)
    assert arrow in found.graph.edges
    assert ("visits.ill", "visits.drug") not in found.generating_graph.edges
    told = " ".join(found.notes)
    for edge, sure in found.direction_confidence.items():
        assert (sure == 0.5) == (f"{edge[0]} → {edge[1]}" in told)


def test_a_plan_is_one_tree_for_people_and_rows() -> None:
    tree = escudo.plan(escudo.discover, SCHEMA, epsilon=1.0, delta=1e-6, people=8_000)
    assert [child.name for child in tree.children] == ["people", "visits, row by row"]
    assert tree.guarantee().epsilon == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"method": "gaussian"}, "method is 'auto'"),
        ({"hidden_causes": True}, "with one row for each person"),
        ({"directions": 0.5}, "ask one table"),
        ({"delta": 0.0}, "delta must be above 0"),
        ({"knowledge": CausalGraph.from_edges([("visits.ill", "people.old")])}, "leads from rows to people"),
    ],
)
def test_what_is_not_taken_is_said_before_anything_is_spent(
    tables: PrivateTables, how: dict[str, Any], words: str
) -> None:
    before = len(tables.account.receipts)  # type: ignore[attr-defined]
    with pytest.raises(EscudoError, match=words):
        escudo.discover(tables, **{"epsilon": 1.0, "delta": 1e-6, "seed": 1, **how})
    assert len(tables.account.receipts) == before  # type: ignore[attr-defined]


visit = st.tuples(st.integers(0, 30), *[st.sampled_from(["no", "yes"])] * 3)
person = st.tuples(st.sampled_from(["no", "yes"]), st.sampled_from(["f", "m"]), st.lists(visit, max_size=8))


class _Seen(Purse):
    """A purse that keeps what noise would be added to, and adds none."""

    def add(self, values: Any, event: Any, *, purpose: str = "") -> Any:
        self.exact = np.asarray(values, dtype=np.float64)
        return self.exact


@given(st.one_of(st.none(), person), person)
def test_nobody_moves_what_is_measured_further_than_one_row_would(one: Any, other: Any) -> None:
    relation = "add_remove" if one is None else "replace_one"
    question = LinkedGraphQuestion().prepare(SCHEMA, SCHEMA.neighbours(relation=relation), Budget(1.0, 1e-6))
    someone = ("no", "f", [(1, "no", "no", "no"), (2, "yes", "no", "no")])
    for part in question.parts:
        method, seen = part.method, []
        for people in ([someone] if one is None else [someone, one], [someone, other]):
            persons = [(place, *each[:2]) for place, each in enumerate(people)]
            rows = [(place, *row) for place, each in enumerate(people) for row in each[2]]
            kinds = dict.fromkeys(("ill", "drug", "rash"), pl.String)
            made = {
                "people": pl.DataFrame(persons, {"id": pl.Int64, "old": pl.String, "sex": pl.String}, orient="row"),
                "visits": pl.DataFrame(rows, {"id": pl.Int64, "day": pl.Int64, **kinds}, orient="row"),
            }
            purse = _Seen(seed=1)
            levels = Levels.of(method.schema, {})
            scopes = [(0,), (1,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
            voices: Any = _Voices(cast(Any, PrivateTables(made, SCHEMA)), part.view, method.design.neighbours)
            measure(voices, levels, scopes, method.first, purse, None, method.design.voice)
            seen.append(purse.exact)
        # In units of the sensitivity, which is that of one row.
        assert np.linalg.norm(seen[0] - seen[1]) <= 1 + 1e-9
        assert l2_sensitivity(levels.sizes, scopes, method.first, voiced=True)[0] > 0
