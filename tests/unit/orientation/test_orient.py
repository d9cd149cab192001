"""The verb ``orient``: the undirected edges of a graph, or all pairs, under one budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import BudgetExceededError, GraphError, InputError, SchemaError
from escudo.orientation import CANNOT_TELL, direction, orient
from escudo.privacy import GaussianEvent, LaplaceEvent, MemoryAccount, plan
from escudo.table import PrivateTable, Schema

BOUNDS = {"type": "numeric", "lower": -3.0, "upper": 3.0}


def frame(rows: int = 4000) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, rows)
    b = np.tanh(3 * a) + 0.2 * rng.uniform(-1, 1, rows)
    c = np.exp(2 * b) / 3 + 0.3 * rng.uniform(-1, 1, rows)
    kind = rng.choice(["p", "q", "r"], rows)
    return pl.DataFrame({"a": a, "b": b, "c": c, "kind": kind})


def table(rows: int = 4000, **options: Any) -> PrivateTable:
    columns: dict[str, Any] = {"a": BOUNDS, "b": BOUNDS, "c": {**BOUNDS, "upper": 5.0}, "kind": ["p", "q", "r"]}
    return PrivateTable(frame(rows), Schema.from_dict(columns), **options)


CHAIN = CausalGraph.from_edges([], undirected=[("b", "a"), ("b", "c")])


def test_every_undirected_edge_gets_its_arrow() -> None:
    found = orient(table(), CHAIN, epsilon=2.0, seed=0)
    assert found.graph is not None
    assert set(found.graph.edges) == {("a", "b"), ("b", "c")}
    assert found.graph.undirected_edges == ()
    assert [answer.verdict for answer in found.directions] == ["a->b", "b->c"]


def test_arrows_that_are_known_stay_and_edges_that_cannot_be_told_stay_undirected() -> None:
    graph = CausalGraph.from_edges([("a", "c")], undirected=[("a", "b")])
    coin = np.random.default_rng(0)
    found = orient(table(), graph, epsilon=1.0, score=lambda x, y: coin.normal(), seed=0)
    assert found.graph == graph
    assert found.directions[0].verdict == CANNOT_TELL


def test_an_arrow_that_would_close_a_cycle_stays_undirected_and_is_named() -> None:
    graph = CausalGraph.from_edges([("b", "a")], undirected=[("a", "c"), ("b", "c")])
    # The first column of a pair is b only once, and then it is to be the effect: b → a → c → b.
    wanted = {("a", "c"): 1.0, ("b", "c"): -1.0}
    private = table()
    pairs = iter([wanted[pair] for pair in graph.undirected_edges])
    blocks = 20
    answers = [answer for answer in pairs for _ in range(blocks)]
    found = orient(private, graph, epsilon=8.0, score=lambda x, y: answers.pop(0), blocks=blocks, seed=0)
    assert {answer.verdict for answer in found.directions} == {"a->c", "c->b"}
    assert found.graph is not None
    assert len(found.graph.edges) == 2
    assert len(found.graph.undirected_edges) == 1
    assert "would close a cycle" in found.notes[-1]


def test_an_arrow_against_stated_knowledge_stays_undirected_and_is_named() -> None:
    graph = CausalGraph.from_edges([], undirected=[("a", "b")], forbidden=[("a", "b")])
    found = orient(table(), graph, epsilon=1.0, seed=0)
    assert found.graph == graph
    assert "a->b would close a cycle or break stated knowledge" in str(found)


def test_all_pairs_are_judged_without_a_graph_and_columns_without_an_order_are_named() -> None:
    found = orient(table(), epsilon=3.0, seed=0)
    assert [(answer.x, answer.y) for answer in found.directions] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found.graph is None
    assert "kind" in found.notes[0]
    margins = found.margins()
    assert found.columns == ("a", "b", "c")
    assert np.isnan(np.diag(margins)).all()
    assert np.array_equal(np.nan_to_num(margins), -np.nan_to_num(margins.T))
    assert margins[0, 1] > 0


def test_answers_show_themselves_in_a_notebook_with_names_escaped() -> None:
    data = frame().select("a", "b").rename({"a": "<i>", "b": "b"})
    private = PrivateTable(data, Schema.from_dict({"<i>": BOUNDS, "b": BOUNDS}))
    shown = orient(private, epsilon=1.0, seed=0)._repr_html_()
    assert "&lt;i&gt;-&gt;b" in shown
    assert "<i>" not in shown


def test_the_budget_is_shared_and_charged_once() -> None:
    account = MemoryAccount(epsilon=1.0)
    private = table(ledger=account)
    planned = plan(orient, private, CHAIN, epsilon=0.8)
    found = orient(private, CHAIN, epsilon=0.8)
    assert isinstance(planned.event, LaplaceEvent)
    assert (planned.event.l1_sensitivity, planned.event.dimensions) == (4.0, 2)
    assert [receipt.event for receipt in account.receipts] == [planned.event]
    assert found.guarantee.epsilon == pytest.approx(0.8)
    assert all(answer.guarantee == found.guarantee for answer in found.directions)
    with pytest.raises(BudgetExceededError):
        orient(private, CHAIN, epsilon=0.8)


def test_many_pairs_are_cheaper_with_a_delta() -> None:
    rng = np.random.default_rng(1)
    data = pl.DataFrame({f"x{i}": rng.uniform(-1, 1, 6000) for i in range(10)})
    private = PrivateTable(data, Schema.from_dict(dict.fromkeys(data.columns, BOUNDS)))
    pure = plan(orient, private, epsilon=1.0, abstain=0.0)
    relaxed = plan(orient, private, epsilon=1.0, delta=1e-6, abstain=0.0)
    assert isinstance(pure.event, LaplaceEvent)
    assert isinstance(relaxed.event, GaussianEvent)
    assert relaxed.event.scale < pure.event.scale
    assert relaxed.guarantee().epsilon_at(1e-6) <= 1.0
    assert relaxed.event.l2_sensitivity == pytest.approx(2 * np.sqrt(45))


def test_with_few_pairs_a_delta_is_left_unused() -> None:
    assert isinstance(plan(orient, table(), CHAIN, epsilon=1.0, delta=1e-6).event, LaplaceEvent)


def test_gaussian_margins_are_released_within_the_plan() -> None:
    rng = np.random.default_rng(1)
    data = pl.DataFrame({f"x{i}": rng.uniform(-1, 1, 800) for i in range(7)})
    private = PrivateTable(data, Schema.from_dict(dict.fromkeys(data.columns, BOUNDS)))
    found = orient(private, epsilon=1.0, delta=1e-5, abstain=0.0, score=lambda x, y: 1.0, seed=0)
    assert isinstance(found.plan.event, GaussianEvent)
    assert found.guarantee.delta == 1e-5
    assert all(answer.largest_margin == found.directions[0].largest_margin for answer in found.directions)


def test_where_the_shared_budget_suffices_for_nothing_nothing_is_spent() -> None:
    private = table(400)
    found = orient(private, epsilon=0.1)
    assert {answer.verdict for answer in found.directions} == {CANNOT_TELL}
    assert private.account.receipts == ()
    assert found.guarantee.epsilon == 0.0


def test_one_edge_alone_is_what_direction_says() -> None:
    graph = CausalGraph.from_edges([], undirected=[("a", "b")])
    together = orient(table(), graph, epsilon=1.0, seed=7).directions[0]
    alone = direction(table(), "a", "b", epsilon=1.0, seed=7)
    assert (together.margin, together.verdict) == (alone.margin, alone.verdict)


@pytest.mark.parametrize(
    ("graph", "error"),
    [
        (CausalGraph.from_edges([("a", "b")]), GraphError),
        (CausalGraph.from_edges([], undirected=[("a", "kind")]), SchemaError),
        (CausalGraph.from_edges([], undirected=[("a", "unknown")]), SchemaError),
    ],
    ids=["nothing-open", "no-order", "unknown"],
)
def test_what_cannot_be_oriented_is_refused_before_anything_is_spent(graph: CausalGraph, error: type) -> None:
    private = table()
    with pytest.raises(error):
        orient(private, graph, epsilon=1.0)
    assert private.account.receipts == ()


def test_a_table_without_a_pair_is_refused() -> None:
    private = PrivateTable(frame().select("a", "kind"), table().schema.select(["a", "kind"]))
    with pytest.raises(InputError, match="no pair to orient"):
        orient(private, epsilon=1.0)


@pytest.mark.parametrize("ask", [direction, orient], ids=["direction", "orient"])
def test_people_too_few_for_any_verdict_are_told_so_free_of_charge(ask: Any) -> None:
    rows = frame(160).with_columns(who=pl.Series(list(range(80)) * 2))
    schema = Schema.from_dict({"a": BOUNDS, "b": BOUNDS}, person_id="who", max_rows_per_person=2)
    people = PrivateTable(rows, schema)
    found = ask(people, "a", "b", epsilon=0.01) if ask is direction else ask(people, epsilon=0.01)
    assert people.account.receipts == ()
    assert (found.guarantee.epsilon, found.guarantee.unit, found.guarantee.max_rows_per_person) == (0.0, "person", 2)


def test_an_answer_that_costs_nothing_still_names_whom_it_is_about() -> None:
    found = orient(table(70).under(relation="add_remove", rows=70), epsilon=0.01, seed=1)
    assert not any(answer.released for answer in found.directions)
    assert found.guarantee.relation == "add_remove"


def test_the_graph_may_come_before_the_table_for_one_version() -> None:
    expected = orient(table(), CHAIN, epsilon=2.0, seed=0)
    with pytest.warns(DeprecationWarning, match="the table comes first"):
        found = orient(CHAIN, table(), epsilon=2.0, seed=0)
    assert found == expected
    with pytest.warns(DeprecationWarning, match="the table comes first"):
        assert plan(orient, CHAIN, table(), epsilon=2.0) == expected.plan


def test_an_option_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    private = table()
    with pytest.raises(InputError, match="Did you mean 'abstain'"):
        orient(private, CHAIN, epsilon=2.0, abstein=0.1)
    assert private.account.receipts == ()
