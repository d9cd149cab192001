"""Repair of ``marginals``: what the plan shows is what is spent, and dependence nobody stated comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import ExponentialEvent, guarantee_of
from escudo.privacy._totals import leaves
from escudo.synthesis import CausalModel, _estimation, prepare, synthesize
from escudo.synthesis._estimation import NoisyTable, TableFits
from escudo.synthesis._marginals import average_repeats, candidate_pairs
from escudo.table import PrivateTable, Schema

YES_NO = ["no", "yes"]
NAMES = "abcdef"
SCHEMA = Schema.from_dict({name: YES_NO for name in NAMES})
GRAPH = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("d", "e"), ("e", "f")])
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def frame(rows: int = 20_000) -> pl.DataFrame:
    """Return two chains as the graph says, and a hidden cause of a and f that it does not know."""
    rng = np.random.default_rng(0)

    def copied(column: Any, share: float = 0.15) -> Any:
        return column ^ (rng.random(rows) < share)

    hidden = rng.random(rows) < 0.5
    a, d = copied(hidden, 0.05), rng.random(rows) < 0.3
    b, e = copied(a), copied(d)
    columns = {"a": a, "b": b, "c": copied(b), "d": d, "e": e, "f": copied(hidden, 0.05)}
    return pl.DataFrame({name: np.where(column, "yes", "no") for name, column in columns.items()})


def fitted(**options: Any) -> CausalModel:
    model = synthesize(PrivateTable(frame(), SCHEMA), GRAPH, seed=1, **{**BUDGET, "repair": True, **options})
    assert isinstance(model, CausalModel)
    return model


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("edges", ["full", "none"])
def test_every_leaf_of_the_plan_is_spent_once_and_nothing_else(relation: str, edges: str, spy: Any) -> None:
    prepared = prepare(SCHEMA, GRAPH if edges == "full" else None, relation=relation, repair=True, **BUDGET)
    prepared.run(
        PrivateTable(frame(500), SCHEMA),
        Purse(spy, np.random.default_rng(0), plan=prepared.plan, guarantee=prepared.plan.guarantee()),
    )
    assert prepared.plan.event is not None
    planned = [leaf for leaf, count in leaves(prepared.plan.event) for _ in range(count)]
    assert sorted(map(repr, spy.events)) == sorted(map(repr, planned))
    assert sum(isinstance(event, ExponentialEvent) for event in planned) >= 10
    assert guarantee_of(planned, delta=1e-6).epsilon == pytest.approx(1.0, rel=2e-3)


def test_dependence_nobody_stated_comes_back_in_the_rows() -> None:
    true = frame()
    with_repair, without = fitted().sample(20_000, seed=0), fitted(repair=False).sample(20_000, seed=0)
    apart = (true["a"] == true["f"]).mean()
    assert apart == pytest.approx(0.9, abs=0.02)
    assert (without["a"] == without["f"]).mean() == pytest.approx(0.5, abs=0.05)
    assert (with_repair["a"] == with_repair["f"]).mean() == pytest.approx(apart, abs=0.03)
    assert (with_repair["b"] == with_repair["c"]).mean() == pytest.approx(0.85, abs=0.02)


def test_what_was_picked_is_never_an_arrow_and_no_intervention_travels_along_it() -> None:
    model = fitted()
    assert set(model.graph.edges) == set(GRAPH.edges)
    free = model.probability(["f"])
    assert model.probability(["f"], do={"a": "yes"}) == pytest.approx(free, abs=1e-6)
    assert abs(model.probability(["f"], given={"a": "yes"}) - free).max() > 0.2
    assert model.probability(["b"], do={"a": "yes"})[1] == pytest.approx(0.85, abs=0.03)


def test_the_plan_says_what_repair_may_buy() -> None:
    text = str(prepare(SCHEMA, GRAPH, repair=True, **BUDGET).plan)
    assert "pick a pair the model gets wrong" in text
    assert "tables of picked pairs" in text
    assert "repair" not in str(prepare(SCHEMA, GRAPH, **BUDGET).plan)


def test_where_no_pair_is_left_there_is_nothing_to_repair() -> None:
    schema = Schema.from_dict({name: YES_NO for name in "abc"})
    graph = CausalGraph.from_edges([("a", "c"), ("b", "c")])
    assert "repair" not in str(prepare(schema, graph, repair=True, **BUDGET).plan)


def test_a_true_graph_loses_little_by_repair() -> None:
    schema = Schema.from_dict({name: YES_NO for name in "abcde"})
    graph = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("d", "e")])
    table = PrivateTable(frame().select("a", "b", "c", "d", "e"), schema)
    drawn = synthesize(table, graph, repair=True, seed=1, **BUDGET).sample(20_000, seed=0)
    assert (drawn["a"] == drawn["b"]).mean() == pytest.approx(0.85, abs=0.02)
    assert (drawn["a"] == drawn["d"]).mean() == pytest.approx((frame()["a"] == frame()["d"]).mean(), abs=0.02)


def test_large_families_stay_as_they_are_under_repair() -> None:
    names = [f"p{i:02}" for i in range(16)]
    schema = Schema.from_dict({name: [0, 1] for name in [*names, "child"]})
    rng = np.random.default_rng(0)
    codes = (rng.random((2000, 17)) < 0.4).astype(int)
    graph = CausalGraph.from_edges([(name, "child") for name in names])
    table = PrivateTable(pl.DataFrame(codes, schema=[*names, "child"]), schema)
    model = synthesize(table, graph, repair=True, seed=1, **BUDGET)
    assert isinstance(model, CausalModel)
    assert not model.observed
    assert model.sample(100, seed=0).height == 100


def test_where_the_observed_law_is_full_families_are_measured_again(monkeypatch: pytest.MonkeyPatch, spy: Any) -> None:
    monkeypatch.setattr(_estimation, "_MAX_TOTAL", 30)  # the two chains have 20 cells, and with a pair 24 at least
    prepared = prepare(SCHEMA, GRAPH, repair=True, **BUDGET)
    table = PrivateTable(frame(), SCHEMA)
    purse = Purse(spy, np.random.default_rng(0), plan=prepared.plan, guarantee=prepared.plan.guarantee())
    model = prepared.run(table, purse)
    assert isinstance(model, CausalModel)
    assert model.observed
    assert prepared.plan.event is not None
    planned = [leaf for leaf, count in leaves(prepared.plan.event) for _ in range(count)]
    assert sorted(map(repr, spy.events)) == sorted(map(repr, planned))


def test_room_is_looked_for_once_a_round_and_once_a_pick(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    plain = TableFits.given

    def counted(fits: TableFits, pairs: Any) -> Any:
        nonlocal asked
        asked += 1
        return plain(fits, pairs)

    monkeypatch.setattr(TableFits, "given", counted)
    fitted()
    candidates, picks, rounds = 11, 11, 4
    assert asked <= rounds * (candidates + 1) + picks + 1


def test_too_many_pairs_are_refused_with_a_way_out() -> None:
    schema = Schema.from_dict({f"c{i}": YES_NO for i in range(100)})
    graph = CausalGraph.from_edges([("c0", "c1")], nodes=schema.names)
    with pytest.raises(InputError, match=r"4,949 pairs.*moments"):
        prepare(schema, graph, repair=True, **BUDGET)


def test_repair_is_true_or_false() -> None:
    with pytest.raises(InputError, match="repair must be true or false"):
        prepare(SCHEMA, GRAPH, repair="maybe", **BUDGET)


def test_candidates_are_the_pairs_that_no_table_holds() -> None:
    schema = Schema.from_dict({"a": YES_NO, "b": YES_NO, "one": ["x"], "c": YES_NO})
    assert candidate_pairs(schema, [("a", "b"), ("c",)]) == [("a", "c"), ("b", "c")]


def test_two_releases_of_a_table_are_averaged_by_their_precision() -> None:
    tables = [NoisyTable(("a",), np.array([10.0, 0.0]), 1.0), NoisyTable(("a",), np.array([0.0, 10.0]), 2.0)]
    (one,) = average_repeats(tables)
    assert one.counts.tolist() == pytest.approx([8.0, 2.0])
    assert one.scale == pytest.approx((1 + 1 / 4) ** -0.5)
