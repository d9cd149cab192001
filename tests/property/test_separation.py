"""Separation and equivalence by property, against their definitions written out the slow way."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from escudo.causal import CausalGraph
from escudo.errors import GraphError

NAMES = "abcdefg"


@st.composite
def dags(draw: st.DrawFn, most: int = 6) -> CausalGraph:
    nodes = draw(st.permutations(NAMES[: draw(st.integers(2, most))]))
    pairs = list(combinations(nodes, 2))
    kept = draw(st.lists(st.sampled_from(pairs), unique=True))
    return CausalGraph.from_edges(kept, nodes=nodes)


def blocked_by_definition(graph: CausalGraph, x: str, y: str, given: set[str]) -> bool:
    """Walk every simple path and apply Pearl's definition to each inner node."""
    opened_colliders = {*given, *graph.ancestors(given)} if given else set()
    around = {node: {*graph.parents(node), *graph.children(node)} for node in graph.nodes}

    def open_path(path: list[str]) -> bool:
        if path[-1] == y:
            return all(
                (node in opened_colliders)
                if before in graph.parents(node) and after in graph.parents(node)
                else (node not in given)
                for before, node, after in zip(path, path[1:], path[2:], strict=False)
            )
        return any(open_path([*path, step]) for step in around[path[-1]] if step not in path)

    return not open_path([x])


@given(graph=dags(), data=st.data())
def test_d_separation_is_its_definition(graph: CausalGraph, data: st.DataObject) -> None:
    x, y, *rest = data.draw(st.permutations(graph.nodes))
    given_nodes = set(data.draw(st.lists(st.sampled_from(rest), unique=True))) if rest else set()
    expected = blocked_by_definition(graph, x, y, given_nodes)
    assert graph.d_separated(x, y, given_nodes) is expected
    assert graph.d_separated(y, x, given_nodes) is expected


@given(graph=dags())
def test_a_node_is_separated_from_the_rest_by_its_blanket_and_from_nondescendants_by_its_parents(
    graph: CausalGraph,
) -> None:
    for node in graph.nodes:
        blanket = graph.markov_blanket(node)
        rest = [other for other in graph.nodes if other != node and other not in blanket]
        assert not rest or graph.d_separated(node, rest, given=blanket)
        for member in blanket:  # and no smaller set will do
            assert not graph.d_separated(node, member, given=[other for other in blanket if other != member])
        before = [
            other
            for other in graph.nodes
            if other != node and other not in graph.descendants(node) and other not in graph.parents(node)
        ]
        assert not before or graph.d_separated(node, before, given=graph.parents(node))


@given(graph=dags())
def test_separation_in_the_moral_graph_of_the_ancestors_is_d_separation(graph: CausalGraph) -> None:
    x, y = graph.nodes[:2]
    given_nodes = set(graph.nodes[2::2])
    ancestral = {x, y, *given_nodes, *graph.ancestors([x, y, *given_nodes])}
    moral = graph.subgraph(ancestral).moral()
    reached, queue = {x}, [x]
    while queue:
        for other in moral.neighbours(queue.pop()):
            if other not in reached and other not in given_nodes:
                reached.add(other)
                queue.append(other)
    assert graph.d_separated(x, y, given_nodes) is (y not in reached)


@given(graph=dags())
def test_ancestors_and_descendants_mirror_each_other(graph: CausalGraph) -> None:
    for node in graph.nodes:
        assert all(node in graph.descendants(other) for other in graph.ancestors(node))
        assert all(node in graph.ancestors(other) for other in graph.descendants(node))
        step = {*graph.parents(node)}
        for parent in graph.parents(node):
            step.update(graph.ancestors(parent))
        assert set(graph.ancestors(node)) == step


@given(graph=dags())
def test_the_cpdag_is_a_fixed_point_of_extending_and_completing(graph: CausalGraph) -> None:
    cpdag = graph.cpdag()
    assert cpdag.extension().cpdag() == cpdag
    assert cpdag.shd(graph) == len(cpdag.undirected_edges)
    assert cpdag.skeleton_f1(graph) == 1.0


@given(data=st.data())
def test_shd_is_a_metric_and_counts_single_changes(data: st.DataObject) -> None:
    nodes = list(NAMES[:4])

    def one() -> CausalGraph:
        arrows, lines = [], []
        for a, b in combinations(nodes, 2):
            kind = data.draw(st.sampled_from(["", ">", "-"]))
            arrows += [(a, b)] if kind == ">" else []
            lines += [(a, b)] if kind == "-" else []
        return CausalGraph.from_edges(arrows, nodes=nodes, undirected=lines)

    first, second, third = one(), one(), one()
    assert first.shd(second) == second.shd(first)
    assert (first.shd(second) == 0) is (first == second)
    assert first.shd(third) <= first.shd(second) + second.shd(third)
    if first.edges:
        tail, head = first.edges[0]
        rest = first.edges[1:]
        lines = first.undirected_edges
        assert CausalGraph.from_edges(rest, nodes=nodes, undirected=lines).shd(first) == 1
        assert CausalGraph.from_edges(rest, nodes=nodes, undirected=[*lines, (tail, head)]).shd(first) == 1
        with suppress(GraphError):  # reversing an arrow may close a cycle
            assert CausalGraph.from_edges([*rest, (head, tail)], nodes=nodes, undirected=lines).shd(first) == 1


@given(graph=dags())
def test_an_intervention_leaves_what_is_not_downstream_alone(graph: CausalGraph) -> None:
    for node in graph.nodes:
        done = graph.do(node)
        assert done.parents(node) == ()
        for other in graph.nodes:
            if other != node:
                assert done.parents(other) == graph.parents(other)
                assert done.d_separated(node, other) is (other not in graph.descendants(node))
