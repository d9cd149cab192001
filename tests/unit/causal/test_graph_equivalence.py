"""CPDAG, extension, SHD and skeleton F1 against brute force over every graph on four nodes."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, product

import numpy as np
import pytest

from escudo.causal import CausalGraph
from escudo.errors import GraphError

Edge = tuple[str, str]
NODES = "abcd"


def _acyclic(edges: frozenset[Edge]) -> bool:
    left = set(NODES)
    while left:
        sources = {node for node in left if not any(head == node and tail in left for tail, head in edges)}
        if not sources:
            return False
        left -= sources
    return True


def _all_dags() -> list[frozenset[Edge]]:
    found = []
    for choice in product((None, 0, 1), repeat=6):
        pairs = zip(combinations(NODES, 2), choice, strict=True)
        edges = frozenset(pair if way == 0 else pair[::-1] for pair, way in pairs if way is not None)
        if _acyclic(edges):
            found.append(edges)  # type: ignore[arg-type]
    return found


def _class_of(edges: frozenset[Edge]) -> tuple[frozenset[frozenset[str]], frozenset[tuple[str, frozenset[str]]]]:
    """Skeleton and v-structures, which decide Markov equivalence."""
    skeleton = frozenset(map(frozenset, edges))
    colliders = frozenset(
        (head, frozenset((a, b)))
        for (a, head), (b, other) in product(edges, edges)
        if head == other and a != b and frozenset((a, b)) not in skeleton
    )
    return skeleton, colliders


@pytest.fixture(scope="module")
def classes() -> dict[object, list[frozenset[Edge]]]:
    found = defaultdict(list)
    for edges in _all_dags():
        found[_class_of(edges)].append(edges)
    return found


def _graph(edges: frozenset[Edge]) -> CausalGraph:
    return CausalGraph.from_edges(sorted(edges), nodes=list(NODES))


def test_there_are_543_graphs_and_185_classes(classes: dict[object, list[frozenset[Edge]]]) -> None:
    assert sum(map(len, classes.values())) == 543
    assert len(classes) == 185


def test_the_cpdag_has_exactly_the_arrows_that_all_equivalent_graphs_share(
    classes: dict[object, list[frozenset[Edge]]],
) -> None:
    for members in classes.values():
        shared = frozenset.intersection(*members)
        for edges in members:
            cpdag = _graph(edges).cpdag()
            assert set(cpdag.edges) == shared
            assert cpdag.adjacencies == _graph(edges).adjacencies


def test_the_extension_of_a_cpdag_is_in_its_class(classes: dict[object, list[frozenset[Edge]]]) -> None:
    for members in classes.values():
        extended = _graph(members[0]).cpdag().extension()
        assert frozenset(extended.edges) in members


def test_d_separations_are_the_same_within_a_class_and_differ_between(
    classes: dict[object, list[frozenset[Edge]]],
) -> None:
    def separations(edges: frozenset[Edge]) -> frozenset[object]:
        graph = _graph(edges)
        questions = (
            (a, b, given)
            for a, b in combinations(NODES, 2)
            for size in range(3)
            for given in combinations([node for node in NODES if node not in (a, b)], size)
        )
        return frozenset(question for question in questions if graph.d_separated(*question))

    seen = {}
    for name, members in classes.items():
        found = {separations(edges) for edges in members}
        assert len(found) == 1
        seen[name] = found.pop()
    assert len(set(seen.values())) == len(seen)


def test_extension_refuses_what_has_none() -> None:
    square = CausalGraph.from_edges([], undirected=[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    with pytest.raises(GraphError, match="without a cycle or a new v-structure"):
        square.extension()


def test_extension_follows_knowledge_first() -> None:
    graph = CausalGraph.from_edges([], undirected=[("a", "b"), ("b", "c")], required=[("c", "b")])
    assert set(graph.extension().edges) == {("c", "b"), ("b", "a")}
    tiers = CausalGraph.from_edges([], undirected=[("a", "b"), ("b", "c")], tiers=[["c"], ["b"], ["a"]])
    assert set(tiers.extension().edges) == {("c", "b"), ("b", "a")}


class TestDistance:
    TRUTH = CausalGraph.from_edges([("a", "b"), ("b", "c")], nodes=["d"])

    @pytest.mark.parametrize(
        ("edges", "undirected", "distance"),
        [
            ([("a", "b"), ("b", "c")], [], 0),
            ([("a", "b")], [], 1),  # missing
            ([("a", "b"), ("b", "c"), ("c", "d")], [], 1),  # extra
            ([("a", "b"), ("c", "b")], [], 1),  # reversed
            ([("a", "b")], [("b", "c")], 1),  # no direction
            ([("c", "b")], [("a", "d")], 3),
            ([], [], 2),
        ],
    )
    def test_each_pair_that_differs_counts_one(self, edges: list[Edge], undirected: list[Edge], distance: int) -> None:
        other = CausalGraph.from_edges(edges, nodes=list("abcd"), undirected=undirected)
        assert self.TRUTH.shd(other) == other.shd(self.TRUTH) == distance

    def test_skeleton_f1_ignores_directions(self) -> None:
        other = CausalGraph.from_edges([("b", "a"), ("c", "d")])
        assert self.TRUTH.skeleton_f1(other) == pytest.approx(2 * 1 / (2 + 2))
        assert self.TRUTH.skeleton_f1(self.TRUTH.cpdag()) == 1.0
        empty = CausalGraph.from_edges([], nodes=list("abcd"))
        assert empty.skeleton_f1(empty) == 1.0
        assert empty.skeleton_f1(self.TRUTH) == 0.0

    def test_graphs_over_other_nodes_are_refused(self) -> None:
        with pytest.raises(GraphError, match="'d' is in the first alone"):
            self.TRUTH.shd(CausalGraph.from_edges([("a", "b"), ("b", "c")]))
        with pytest.raises(GraphError, match="same nodes"):
            CausalGraph.from_edges([("a", "b")]).skeleton_f1(self.TRUTH)


def test_each_independence_that_a_graph_implies_is_a_separation() -> None:
    rng = np.random.default_rng(3)
    names = list("abcdef")
    for _ in range(20):
        edges = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :] if rng.random() < 0.4]
        graph = CausalGraph.from_edges(edges, nodes=names)
        implied = graph.independences()
        assert all(graph.d_separated(one, other, given=given) for one, other, given in implied)
        assert len(implied) == 15 - len(edges)
    hidden = CausalGraph.from_edges([("u", "x"), ("u", "y")], nodes=["u", "x", "y"], latents=["u"])
    assert hidden.independences() == ()
