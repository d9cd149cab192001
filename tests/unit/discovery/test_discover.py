"""The verb as a whole: graphs that are right, plans that are kept, and refusals."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph, Network
from escudo.discovery import Discovery, discover, prepare
from escudo.errors import BudgetExceededError, GraphError, InputError, RefusedError
from escudo.privacy import MemoryAccount, plan
from escudo.table import Numeric, PrivateTable, Schema

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def random_network(columns: int, seed: int, levels: int = 2) -> Network:
    rng = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(columns)]
    parents = {names[i]: tuple(names[j] for j in rng.choice(i, size=min(i, 1), replace=False)) for i in range(columns)}
    tables = {}
    for name in names:
        rows = levels ** len(parents[name])
        strong = np.eye(levels)[np.arange(rows) % levels] * 0.7 + rng.dirichlet(np.ones(levels), size=rows) * 0.3
        tables[name] = strong.reshape([levels] * (len(parents[name]) + 1))
    return Network(levels={name: [str(v) for v in range(levels)] for name in names}, parents=parents, tables=tables)


def table_of(network: Network, rows: int, seed: int = 0, **schema: object) -> PrivateTable:
    described = Schema.from_dict({name: list(levels) for name, levels in network.levels.items()}, **schema)
    return PrivateTable(network.sample_frame(rows, rng=np.random.default_rng(seed)), described)


@pytest.mark.parametrize("method", ["auto", "exact", "two-stage", "joint"])
def test_every_method_finds_a_graph_whose_directions_can_all_be_told(method, collider, collider_table):
    found = discover(collider_table, **BUDGET, method=method, seed=1)
    assert found.graph == collider.graph
    assert set(collider.graph.adjacencies) <= set(found.generating_graph.adjacencies)
    assert found.generating_graph.is_dag
    assert min(found.edge_confidence.values()) > 0.8
    assert found.cannot_tell == ""
    assert found.rows == 20_000
    assert found.method == ("exact" if method == "auto" else method)


def test_the_account_is_charged_once_for_the_plan_that_was_shown(collider_table):
    shown = plan(discover, collider_table, **BUDGET)
    found = discover(collider_table, **BUDGET, seed=1)
    (receipt,) = collider_table.account.receipts
    assert receipt.event == shown.event
    assert found.plan == shown
    assert 0.99 < found.guarantee.epsilon <= 1.0
    assert not found.guarantee.for_release


def test_a_release_without_a_seed_is_for_release(collider_table):
    found = discover(collider_table, **BUDGET)
    assert found.guarantee.for_release
    assert set(found.graph.adjacencies) == {("a", "c"), ("b", "c"), ("c", "d")}


def test_the_same_seed_gives_the_same_graph_and_confidence(collider_rows, collider_schema):
    first, second = (
        discover(PrivateTable(collider_rows, collider_schema), epsilon=0.2, delta=1e-6, seed=3) for _ in range(2)
    )
    assert first.to_json() == second.to_json()


def test_over_budget_nothing_is_spent_and_nothing_is_counted(collider_rows, collider_schema, monkeypatch):
    account = MemoryAccount(epsilon=0.5, delta=1e-6)
    table = PrivateTable(collider_rows, collider_schema, account)
    monkeypatch.setattr(PrivateTable, "counts", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(BudgetExceededError):
        discover(table, **BUDGET)
    assert account.receipts == ()


def test_independent_columns_give_an_empty_graph_that_says_it_cannot_tell():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({name: rng.choice(["x", "y", "z"], size=5_000) for name in "abcde"})
    schema = Schema.from_dict({name: ["x", "y", "z"] for name in "abcde"})
    found = discover(PrivateTable(frame, schema), **BUDGET, seed=1)
    assert found.graph.adjacencies == ()
    assert "noise" in found.cannot_tell


@pytest.mark.parametrize("seed", range(4))
def test_too_few_rows_give_a_forest_without_directions_never_a_dense_graph(seed):
    network = random_network(9, seed, levels=3)
    found = discover(table_of(network, 600, seed), epsilon=0.3, delta=1e-6, seed=seed)
    assert found.cannot_tell
    assert found.graph.edges == ()
    assert len(found.graph.adjacencies) <= 8


def test_many_columns_are_searched_in_two_stages():
    network = random_network(21, 3)
    prepared = prepare(table_of(network, 10).schema, **BUDGET)
    assert [leaf.name for leaf in prepared.plan.leaves()] == [
        "all tables of up to two columns",
        "three-way tables that matter",
    ]
    found = discover(table_of(network, 20_000), **BUDGET, seed=1)
    assert found.method == "two-stage"
    assert found.graph.skeleton_f1(network.graph) > 0.85


@pytest.mark.parametrize(
    ("columns", "epsilon", "rows", "releases"),
    [(12, 0.1, None, 1), (13, 0.1, None, 2), (20, 1.0, None, 1), (20, 0.1, 1_000_000, 1), (21, 1.0, None, 2)],
    ids=["few", "poor", "rich", "rich by rows", "many"],
)
def test_one_release_or_two_is_chosen_from_public_facts(columns, epsilon, rows, releases):
    schema = Schema.from_dict({f"v{i}": ["a", "b"] for i in range(columns)})
    prepared = prepare(schema, epsilon=epsilon, delta=1e-6, public_rows=rows)
    assert len(prepared.plan.leaves()) == releases


def test_rows_that_are_not_public_are_measured(collider_rows, collider_schema, collider):
    table = PrivateTable(collider_rows, collider_schema, MemoryAccount(relation="add_remove"))
    found = discover(table, **BUDGET, seed=2)
    assert found.rows != 20_000
    assert found.rows == pytest.approx(20_000, rel=0.02)
    assert found.graph == collider.graph
    assert found.guarantee.relation == "add_remove"
    given = discover(
        PrivateTable(collider_rows, collider_schema, MemoryAccount(relation="add_remove"), rows=19_000),
        **BUDGET,
        seed=2,
    )
    assert given.rows == 19_000


def test_a_person_with_several_rows_is_protected_as_a_whole(collider_rows):
    frame = collider_rows.with_columns(who=pl.int_range(pl.len()) // 2)
    schema = Schema.from_dict({name: ["no", "yes"] for name in "abcd"}, person_id="who", max_rows_per_person=2)
    found = discover(PrivateTable(frame, schema), epsilon=2.0, delta=1e-6, seed=1)
    assert found.guarantee.unit == "person"
    assert found.guarantee.max_rows_per_person == 2
    assert set(found.graph.adjacencies) == {("a", "c"), ("b", "c"), ("c", "d")}
    for_rows = prepare(Schema.from_dict({name: ["no", "yes"] for name in "abcd"}), **BUDGET)
    for_people = prepare(schema, **BUDGET)
    assert for_people.method.first.scale == pytest.approx(for_rows.method.first.scale), (
        "in units of the sensitivity, which doubles"
    )


def test_constant_columns_and_levels_that_never_occur_do_no_harm(collider_rows):
    frame = collider_rows.with_columns(always=pl.lit("x"))
    levels = {name: ["no", "never", "yes"] for name in "abcd"}
    schema = Schema.from_dict({"always": ["x"], **levels})
    found = discover(PrivateTable(frame, schema), **BUDGET, seed=1)
    assert "always" in found.graph.nodes
    assert set(found.graph.adjacencies) == {("a", "c"), ("b", "c"), ("c", "d")}
    assert any("always" in note for note in found.notes)


def test_copies_and_functions_of_columns_are_found_without_a_dense_graph():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, 20_000), rng.integers(0, 3, 20_000)
    codes = {"a": a, "b": b, "copy": a, "both": a & (b > 0)}
    frame = pl.DataFrame({name: [str(v) for v in values] for name, values in codes.items()})
    schema = Schema.from_dict({name: [str(v) for v in range(values.max() + 1)] for name, values in codes.items()})
    found = discover(PrivateTable(frame, schema), **BUDGET, seed=1)
    assert ("a", "copy") in found.graph.adjacencies
    assert len(found.graph.adjacencies) <= 4


def test_numbers_are_looked_at_in_merged_bins():
    rng = np.random.default_rng(2)
    cause = rng.normal(50, 10, 20_000)
    effect = cause + rng.normal(0, 8, 20_000)
    ill = np.where(rng.random(20_000) < 1 / (1 + np.exp(-(effect - 50) / 4)), "yes", "no")
    frame = pl.DataFrame({"cause": cause, "effect": effect, "ill": ill})
    number = {"type": "numeric", "lower": 0, "upper": 100, "bins": 25}
    schema = Schema.from_dict({"cause": number, "effect": number, "ill": ["no", "yes"]})
    found = discover(PrivateTable(frame, schema), **BUDGET, seed=1)
    assert next(leaf.name for leaf in found.plan.leaves()) == "one-way tables of wide columns"
    assert {("cause", "effect"), ("effect", "ill")} <= set(found.graph.adjacencies)
    assert found.notes == ("cause: 25 cells merged into 7.", "effect: 25 cells merged into 8.")


def test_an_unconfirmed_schema_is_refused(collider_rows):
    from escudo.table import Categorical

    schema = Schema((Categorical("a", ("no", "yes"), confirmed=False), Categorical("b", ("no", "yes"))))
    with pytest.raises(RefusedError):
        discover(PrivateTable(collider_rows, schema), **BUDGET)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.5}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"method": "magic"}, "method"),
        ({"seed": -1}, "seed"),
    ],
    ids=["epsilon", "delta", "zero-delta", "method", "seed"],
)
def test_bad_arguments_are_named_and_cost_nothing(arguments, words, collider_table):
    with pytest.raises(InputError, match=words):
        discover(collider_table, **{**BUDGET, **arguments})
    assert collider_table.account.receipts == ()


def test_one_column_is_nothing_to_discover(collider_rows):
    schema = Schema.from_dict({"a": ["no", "yes"]})
    with pytest.raises(InputError, match="two columns"):
        discover(PrivateTable(collider_rows, schema), **BUDGET)


def test_too_many_columns_at_once_are_sent_to_two_stages():
    schema = Schema.from_dict({f"v{i}": list("abcdefgh") for i in range(40)})
    with pytest.raises(InputError, match="two-stage"):
        prepare(schema, **BUDGET, method="exact")


class TestKnowledge:
    def test_required_and_forbidden_arrows_are_respected(self, collider_table):
        known = CausalGraph.from_edges(
            [("a", "d")], nodes=list("abcd"), required=[("b", "a")], forbidden=[("c", "d"), ("d", "c")]
        )
        found = discover(collider_table, **BUDGET, knowledge=known, seed=1)
        assert ("a", "d") in found.graph.edges
        assert ("b", "a") in found.graph.edges
        assert ("c", "d") not in found.graph.adjacencies
        assert {("a", "d"), ("b", "a")} <= set(found.generating_graph.edges)

    def test_tiers_settle_directions_that_the_data_leave_open(self):
        network = random_network(4, 1)
        table = table_of(network, 20_000)
        open_ones = discover(table, **BUDGET, seed=1).graph
        assert open_ones.undirected_edges
        tiers = [[name] for name in network.graph.topological_order()]
        known = CausalGraph.from_edges([], nodes=network.nodes, tiers=tiers)
        found = discover(table, **BUDGET, knowledge=known, seed=1)
        assert found.graph.undirected_edges == ()
        assert set(found.graph.edges) == set(network.graph.edges)

    def test_undirected_edges_are_there_in_some_direction(self, collider_table):
        known = CausalGraph.from_edges([], nodes=list("abcd"), undirected=[("a", "b")])
        found = discover(collider_table, **BUDGET, knowledge=known, seed=1)
        assert ("a", "b") in found.graph.adjacencies

    def test_more_required_parents_than_are_scored_are_kept(self, collider_rows, collider_schema):
        known = CausalGraph.from_edges([("a", "d"), ("b", "d"), ("c", "d")])
        found = discover(PrivateTable(collider_rows, collider_schema), **BUDGET, knowledge=known, seed=1)
        assert {("a", "d"), ("b", "d"), ("c", "d")} <= set(found.graph.edges)

    @pytest.mark.parametrize(
        "known",
        [
            CausalGraph.from_edges([("a", "b")], nodes=list("abcd"), required=[("b", "c"), ("c", "a")]),
            CausalGraph.from_edges(
                [],
                nodes=list("abcd"),
                undirected=[("a", "b"), ("b", "c"), ("c", "a")],
                forbidden=[("b", "a"), ("c", "b"), ("a", "c")],
            ),
        ],
        ids=["arrows and required arrows", "edges that can go one way only"],
    )
    def test_knowledge_that_goes_round_in_a_circle_is_refused_before_anything_is_spent(self, collider_table, known):
        with pytest.raises(GraphError, match="a → b → c → a"):
            discover(collider_table, **BUDGET, knowledge=known)
        assert collider_table.account.receipts == ()

    def test_unknown_columns_are_named_with_a_suggestion(self, collider_table):
        with pytest.raises(GraphError, match="'dd'"):
            discover(collider_table, **BUDGET, knowledge=CausalGraph.from_edges([("a", "dd")]))
        assert collider_table.account.receipts == ()


def test_repr_and_json_say_what_was_found(collider_table):
    found = discover(collider_table, **BUDGET, seed=1)
    assert repr(found).startswith("<Discovery (exact): ")
    told = found.to_json()
    assert {(edge["from"], edge["to"]) for edge in told["edges"]} == set(found.graph.edges)
    assert found.confidence("c", "a") == found.edge_confidence["a", "c"]
    assert found.confidence("a", "d") == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edge_confidence": {}}, "edge_confidence"),
        ({"edge_confidence": {("a", "b"): 1.5}}, "between 0 and 1"),
        ({"direction_confidence": {("b", "a"): 0.5}}, "direction_confidence"),
        ({"generating_graph": CausalGraph.from_edges([], undirected=[("a", "b")])}, "generating_graph"),
    ],
    ids=["missing", "range", "direction", "open"],
)
def test_a_discovery_that_contradicts_itself_is_refused(change, words, collider_table):
    shown = plan(discover, collider_table, **BUDGET)
    graph = CausalGraph.from_edges([("a", "b")])
    good = {
        "graph": graph,
        "generating_graph": graph,
        "edge_confidence": {("b", "a"): 0.9},
        "method": "exact",
        "plan": shown,
        "guarantee": shown.guarantee(),
        "rows": 5,
    }
    assert Discovery(**good).confidence("a", "b") == 0.9
    with pytest.raises(InputError, match=words):
        Discovery(**{**good, **change})


def test_numbers_on_a_plain_scale_are_first_tried_for_linear_effects():
    plain = Schema.from_dict({name: {"type": "numeric", "lower": 0, "upper": 1, "bins": 8} for name in "abc"})
    curved = Schema(tuple(Numeric(name, 0.0, 1.0, edges=(0.0, 0.01, 0.1, 1.0)) for name in "abc"))
    mixed = Schema.from_dict({"a": [0, 1], "b": {"type": "numeric", "lower": 0, "upper": 1, "bins": 8}})
    assert "gaussian" in prepare(plain, epsilon=1.0, delta=1e-6).plan.name
    for schema in (curved, mixed):
        assert "gaussian" not in prepare(schema, epsilon=1.0, delta=1e-6).plan.name
    assert "gaussian" not in prepare(plain, epsilon=1.0, delta=1e-6, method="exact").plan.name
