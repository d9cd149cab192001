"""What a graph states about a table, and what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.errors import GraphError, NotIdentifiableError
from escudo.privacy import Guarantee, Plan, PureEvent
from escudo.synthesis import CausalModel
from escudo.synthesis._laws import TableConditional
from escudo.synthesis._structure import check_settled, refusals_of, structure_of
from escudo.table import Schema

YES_NO = ["no", "yes"]


def schema_of(*names: str) -> Schema:
    return Schema.from_dict({name: YES_NO for name in names})


def test_a_full_graph_states_all_its_arrows_and_leaves_nothing_open() -> None:
    structure = structure_of(schema_of("a", "b", "c"), CausalGraph.from_edges([("a", "b"), ("a", "c")]))
    assert structure.parents == {"a": (), "b": ("a",), "c": ("a",)}
    assert structure.open_arrows == ()
    assert len(structure.open_effects) == 0


def test_without_a_graph_every_pair_is_open_in_schema_order() -> None:
    structure = structure_of(schema_of("a", "b", "c"), None)
    assert set(structure.open_arrows) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert len(structure.open_effects) == 2


def test_a_column_the_graph_leaves_out_is_open_as_an_effect_of_the_others() -> None:
    structure = structure_of(schema_of("a", "b", "late"), CausalGraph.from_edges([("a", "b")]))
    assert set(structure.open_arrows) == {("a", "late"), ("b", "late")}
    assert len(structure.open_effects) == 1


def test_a_forbidden_arrow_is_never_open() -> None:
    graph = CausalGraph.from_edges([("a", "b")], nodes=["late"], forbidden=[("a", "late")])
    structure = structure_of(schema_of("a", "b", "late"), graph)
    assert ("a", "late") not in structure.open_arrows


def test_a_latent_joins_its_children_from_earlier_to_later() -> None:
    graph = CausalGraph.from_edges([("u", "a"), ("u", "b"), ("a", "c")], latents=["u"])
    structure = structure_of(schema_of("a", "b", "c"), graph)
    joined = {pair for pair in structure.arrows if set(pair) == {"a", "b"}}
    assert len(joined) == 1
    assert ("a", "c") in structure.arrows


def test_arrows_between_groups_are_open_in_the_groups_direction_only() -> None:
    graph = CausalGraph.from_edges([("causes", "effects")], groups={"causes": ["a", "b"], "effects": ["c", "d"]})
    structure = structure_of(schema_of("a", "b", "c", "d"), graph)
    assert structure.arrows == ()
    assert {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")} <= set(structure.open_arrows)
    assert not {("c", "a"), ("d", "b")} & set(structure.open_arrows)
    assert len(structure.open_effects) == 3


def test_undirected_edges_get_some_direction() -> None:
    structure = structure_of(schema_of("a", "b"), CausalGraph.from_edges([], undirected=[("a", "b")]))
    assert len(structure.arrows) == 1


def test_a_node_outside_the_schema_is_named_with_the_remedy() -> None:
    with pytest.raises(GraphError, match=r"smoek.*latent"):
        structure_of(schema_of("smoke", "lung"), CausalGraph.from_edges([("smoek", "lung")]))


def test_open_arrows_and_stated_arrows_together_have_no_cycle() -> None:
    graph = CausalGraph.from_edges([("c", "a")], groups={"g": ["d", "e"]})
    structure = structure_of(schema_of("a", "b", "c", "d", "e"), graph)
    CausalGraph.from_edges([*structure.arrows, *structure.open_arrows])  # raises on a cycle


# -- what may be said under do()


def members(pattern: CausalGraph) -> Iterator[CausalGraph]:
    """Every graph that a pattern stands for."""
    for flips in product([False, True], repeat=len(pattern.undirected_edges)):
        turned = [(b, a) if flip else (a, b) for (a, b), flip in zip(pattern.undirected_edges, flips, strict=True)]
        try:
            graph = CausalGraph.from_edges([*pattern.edges, *turned], nodes=pattern.nodes)
        except GraphError:
            continue
        if graph.cpdag() == pattern:
            yield graph


def law_under(graph: CausalGraph, joint: NDArray[np.float64], names: Sequence[str], other: str) -> NDArray[np.float64]:
    """P(other | do(names = 1)) by the truncated factorisation of a law that the graph has; columns have two levels."""
    axes = {node: place for place, node in enumerate(graph.nodes)}

    def over(kept: list[str]) -> NDArray[np.float64]:
        return joint.sum(axis=tuple(place for node, place in axes.items() if node not in kept), keepdims=True)

    law = np.ones_like(joint)
    for node in graph.nodes:
        if node not in names:
            parents = list(graph.parents(node))
            law = law * over([node, *parents]) / over(parents)
    for name in names:
        law = np.take(law, [1], axis=axes[name])
    answer: NDArray[np.float64] = law.sum(axis=tuple(place for node, place in axes.items() if node != other)).ravel()
    return answer


def model_of(graph: CausalGraph, joint: NDArray[np.float64], stated: CausalGraph) -> CausalModel:
    """A model with this law, of which another graph is claimed."""
    laws = {}
    for node in graph.nodes:
        parents = graph.parents(node)
        table = np.einsum(joint, [*range(4)], [graph.nodes.index(name) for name in (*parents, node)])
        laws[node] = TableConditional(parents, table / table.sum(axis=-1, keepdims=True))
    return CausalModel(
        schema=schema_of(*graph.nodes),
        graph=graph,
        stated=stated,
        conditionals=laws,
        guarantee=Guarantee(epsilon=1.0),
        generator="marginals",
        plan=Plan("marginals", PureEvent(epsilon=1.0)),
    )


@pytest.mark.parametrize("seed", range(25))
def test_what_may_be_said_is_what_every_graph_of_the_class_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c", "d"]
    order = list(rng.permutation(names))
    arrows = [(order[i], order[j]) for j in range(4) for i in range(j) if rng.random() < 0.6]
    true = CausalGraph.from_edges(arrows, nodes=names)
    joint = np.ones((2,) * 4)
    for node in names:  # a law that has this graph, and generic numbers
        scope = [name in (node, *true.parents(node)) for name in names]
        table = rng.uniform(0.1, 0.9, [2 if here else 1 for here in scope])
        joint = joint * table / table.sum(axis=names.index(node), keepdims=True)
    pattern = true.cpdag()
    sets = [(name,) for name in names] + list(combinations(names, 2))
    for together, other in product(sets, names):
        if other in together:
            continue
        laws = [law_under(graph, joint, together, other) for graph in members(pattern)]
        agree = all(np.allclose(law, laws[0]) for law in laws)
        try:
            check_settled(pattern, together, [*together, other])  # what is set is no question
        except NotIdentifiableError:
            assert not agree, (together, other)
        else:
            assert agree, (together, other)
        if len(together) == 1:
            found = model_of(true, joint, pattern).effect_range(*together, other)
            allowed = {tuple(np.round(law, 9)) for law in laws}
            assert {tuple(np.round(effect.law[1], 9)) for effect in found.effects} == allowed, (together, other)


@pytest.mark.parametrize(
    ("graph", "asked", "why"),
    [
        (CausalGraph.from_edges([]), ["b"], "made without a causal graph"),
        (CausalGraph.from_edges([("a", "b")]), ["b", "c"], "to 'c' cannot be said: the graph does not name 'c'"),
        (CausalGraph.from_edges([("c", "b")]), ["b"], "setting 'a' does cannot be said: the graph does not name 'a'"),
        (CausalGraph.from_edges([], undirected=[("a", "b")]), ["b"], "direction of a — b"),
        (CausalGraph.from_edges([("b", "c")], undirected=[("a", "b")]), ["c"], "direction of a — b"),
        (CausalGraph.from_edges([("g", "c")], groups={"g": ["a", "b"]}), ["c"], "'g' stands for several columns"),
        (CausalGraph.from_edges([("g", "c")], groups={"g": ["a", "b"]}), ["b"], "'g' stands for several columns"),
        (CausalGraph.from_edges([("a", "g")], groups={"g": ["b", "c"]}), ["c"], "'g' stands for several columns"),
    ],
)
def test_do_is_refused_where_the_graph_leaves_its_answer_open(graph: CausalGraph, asked: list[str], why: str) -> None:
    with pytest.raises(NotIdentifiableError, match=why):
        check_settled(graph, ["a"], asked)


@pytest.mark.parametrize(
    ("graph", "asked"),
    [
        (CausalGraph.from_edges([("a", "b")]), ["b"]),  # whatever the graph says of others, or does not
        (CausalGraph.from_edges([("a", "b")], undirected=[("b", "c")]), ["b", "c"]),
        (CausalGraph.from_edges([("a", "b"), ("g", "b")], groups={"g": ["c", "d"]}), ["b", "c"]),
        (CausalGraph.from_edges([("b", "a")], undirected=[("a", "c")]), ["b"]),
    ],
)
def test_do_is_answered_where_nothing_open_decides(graph: CausalGraph, asked: list[str]) -> None:
    check_settled(graph, ["a"], asked)


def test_undirected_edges_are_followed_and_not_stated() -> None:
    graph = CausalGraph.from_edges([("a", "c")], undirected=[("a", "b")])
    structure = structure_of(schema_of("a", "b", "c"), graph)
    assert len(structure.arrows) == 2
    assert structure.stated_arrows == [["a", "c"]]
    assert structure.stated == graph
    assert structure_of(schema_of("a"), None).stated.nodes == ()


def test_what_a_graph_would_refuse_is_told_before_a_model_is_there() -> None:
    schema = Schema.from_dict({name: ["no", "yes"] for name in "abc"})
    hidden = CausalGraph.from_edges([("a", "b"), ("u", "a"), ("u", "b")], nodes=["a", "b", "c", "u"], latents=["u"])
    told = refusals_of(schema, hidden)
    assert "the unobserved 'u' acts on it" in told["a"]
    assert told["b"] == told["c"] == ""


def test_a_hidden_cause_of_nothing_changes_nothing() -> None:
    schema = Schema.from_dict({name: ["no", "yes"] for name in "ab"})
    alone = CausalGraph.from_edges([("a", "b")], nodes=["a", "b", "u"], latents=["u"])
    structure = structure_of(schema, alone)
    assert structure.fitted_graph(structure.parents).latents == frozenset()
    assert refusals_of(schema, alone) == {"a": "", "b": ""}
