"""Families whose table the data cannot pay for get their law from moments: by a public rule, and said in the plan."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.mechanisms import Purse
from escudo.privacy._totals import leaves
from escudo.synthesis import CausalModel, LogitConditional, TableConditional, prepare, synthesize
from escudo.synthesis._marginals import MAX_CELLS, why_too_large
from escudo.table import PrivateTable, Schema

NAMES = [f"p{i:02}" for i in range(16)]
SCHEMA = Schema.from_dict({**{name: [0, 1] for name in NAMES}, "child": [0, 1], "leaf": [0, 1]})
GRAPH = CausalGraph.from_edges([*((name, "child") for name in NAMES), ("child", "leaf")])
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
STRENGTH = 1.2


def frame(rows: int = 20_000) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    parents = rng.random((rows, len(NAMES))) < 0.25
    odds = np.exp(-3 + STRENGTH * parents.sum(axis=1))
    child = rng.random(rows) < odds / (1 + odds)
    leaf = child ^ (rng.random(rows) < 0.1)
    return pl.DataFrame(np.column_stack([parents, child, leaf]).astype(int), schema=[*NAMES, "child", "leaf"])


def test_the_rule_reads_cells_noise_and_public_rows() -> None:
    assert why_too_large(MAX_CELLS, 1e9, None) == ""
    assert "more than 20,000" in why_too_large(MAX_CELLS + 1, 1.0, None)
    assert why_too_large(1000, 10.0, 20_000) == ""
    assert "20,000 rows" in why_too_large(1001, 10.0, 20_000)
    assert "more than 16,777,216" in why_too_large(2**25, 1e-9, 10**12)


@pytest.mark.parametrize("public_rows", [None, 20_000])
def test_a_family_beyond_its_table_gets_a_logit_and_the_others_keep_their_tables(public_rows: int | None) -> None:
    model = synthesize(PrivateTable(frame(), SCHEMA, rows=public_rows), GRAPH, seed=1, **BUDGET)
    assert isinstance(model, CausalModel)
    assert isinstance(model.conditionals["child"], LogitConditional)
    assert model.conditionals["child"].parents == tuple(NAMES)
    assert isinstance(model.conditionals["leaf"], TableConditional)
    weights = [weight[1, 1] for weight in model.conditionals["child"].weights]
    assert np.mean(weights) == pytest.approx(STRENGTH, abs=0.3)  # the prior draws them to 0, the less the more budget
    drawn, true = model.sample(20_000, seed=0), frame()
    assert drawn["child"].mean() == pytest.approx(true["child"].mean(), abs=0.02)
    assert (drawn["child"] == drawn["leaf"]).mean() == pytest.approx(0.9, abs=0.02)
    for name in NAMES[:4]:
        found, right = (np.corrcoef(table[name], table["child"])[0, 1] for table in (drawn, true))
        assert found == pytest.approx(right, abs=0.05)


def test_the_plan_names_the_family_and_the_reason() -> None:
    made = str(prepare(SCHEMA, GRAPH, public_rows=20_000, **BUDGET).plan)
    assert "moments of large families" in made
    assert "logit of child | p00, p01" in made
    assert "no table: 131,072 cells with noise" in made
    assert "rows pay for" in made
    assert "child | " not in [line for line in made.splitlines() if "cells" in line and "no table" not in line]


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_every_leaf_of_the_plan_is_spent_once_and_nothing_else(relation: str, spy: Any) -> None:
    prepared = prepare(SCHEMA, GRAPH, relation=relation, **BUDGET)
    prepared.run(
        PrivateTable(frame(500), SCHEMA),
        Purse(spy, np.random.default_rng(0), plan=prepared.plan, guarantee=prepared.plan.guarantee()),
    )
    assert prepared.plan.event is not None
    assert sorted(map(repr, spy.events)) == sorted(
        repr(leaf) for leaf, count in leaves(prepared.plan.event) for _ in range(count)
    )


def test_the_guarantee_is_what_was_asked_for() -> None:
    table = PrivateTable(frame(500), SCHEMA, relation="add_remove", rows=500)
    model = synthesize(table, GRAPH, seed=1, **BUDGET)
    assert model.guarantee.epsilon is not None
    assert 0.999 < model.guarantee.epsilon <= 1.0


def test_more_budget_or_more_rows_keep_a_family_in_its_table() -> None:
    names = NAMES[:8]
    schema = Schema.from_dict({name: [0, 1] for name in [*names, "child"]})
    graph = CausalGraph.from_edges([(name, "child") for name in names])

    def moved(**options: Any) -> bool:
        plan = str(prepare(schema, graph, **{**BUDGET, **options}).plan)
        assert "large families" not in plan  # 512 cells: in pairs
        return "in pairs, no table: 512 cells" in plan

    assert moved(public_rows=500, epsilon=0.1)
    assert not moved(public_rows=2000, epsilon=20.0)
    assert not moved(public_rows=1_000_000, epsilon=0.1)
    assert not moved(epsilon=0.1)  # 512 cells; without public rows only the number of cells counts


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_a_family_in_pairs_has_the_law_of_its_pairs_and_costs_what_the_plan_says(relation: str, spy: Any) -> None:
    names = NAMES[:8]
    schema = Schema.from_dict({name: [0, 1] for name in [*names, "child"]})
    graph = CausalGraph.from_edges([(name, "child") for name in names])
    data = frame().select(*names, "child")
    prepared = prepare(schema, graph, relation=relation, public_rows=20_000, epsilon=0.1, delta=1e-6)
    assert "in pairs, no table" in str(prepared.plan)
    model = prepared.run(
        PrivateTable(data, schema),
        Purse(spy, np.random.default_rng(0), plan=prepared.plan, guarantee=prepared.plan.guarantee()),
    )
    assert prepared.plan.event is not None
    assert Counter(spy.events) <= Counter(dict(leaves(prepared.plan.event)))
    assert isinstance(model, CausalModel)
    law = model.conditionals["child"]
    assert law.parents == tuple(names)
    few, many = law.probabilities(np.array([[0] * 8, [1] * 5 + [0] * 3]))[:, 1]
    assert few < 0.5  # not near 0: there are eight other causes
    assert many > 0.9
    drawn = model.sample(20_000, seed=0)
    for name in names:
        found, right = (np.corrcoef(table[name], table["child"])[0, 1] for table in (drawn, data))
        assert found == pytest.approx(right, abs=0.05)


def test_families_of_one_parent_are_never_moved() -> None:
    schema = Schema.from_dict({name: [str(level) for level in range(200)] for name in "ab"})
    made = str(prepare(schema, CausalGraph.from_edges([("a", "b")]), public_rows=10, **BUDGET).plan)
    assert "large families" not in made


def test_open_arrows_into_a_large_family_are_candidates_and_not_dropped() -> None:
    schema = Schema.from_dict({**{name: [0, 1] for name in NAMES}, "child": [0, 1], "g1": [0, 1], "g2": [0, 1]})
    graph = CausalGraph.from_edges(
        [*((name, "child") for name in NAMES), ("group", "child")], groups={"group": ["g1", "g2"]}
    )
    rng = np.random.default_rng(3)
    data = frame().drop("leaf").with_columns(g1=pl.Series(rng.integers(0, 2, 20_000)), g2=pl.col("child"))
    model = synthesize(PrivateTable(data, schema), graph, seed=1, **BUDGET)
    assert "g2" in model.graph.parents("child")
    assert "g1" not in model.graph.parents("child")
    drawn = model.sample(5000, seed=0)
    assert (drawn["g2"] == drawn["child"]).mean() > 0.85


def test_a_family_measured_by_moments_is_not_paid_for_in_pairs_as_well() -> None:
    schema = Schema.from_dict({**{name: [str(level) for level in range(30)] for name in "aby"}, "g": [0, 1]})
    graph = CausalGraph.from_edges([("a", "y"), ("b", "y"), ("group", "y")], groups={"group": ["g", "a2"]})
    wider = Schema.from_dict({**{name: list(schema[name].levels) for name in schema.names}, "a2": [0, 1]})
    made = prepare(wider, graph, public_rows=3000, **BUDGET).plan
    names = [leaf.name for leaf in made.leaves()]
    assert "sums of levels and pairs" in names
    assert "a, y" not in names
    assert "b, y" not in names
