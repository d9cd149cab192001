"""Edge confidence: what comes back under fresh noise, and doubtful edges left out."""

from __future__ import annotations

import numpy as np
import pytest

from escudo.causal import CausalGraph
from escudo.discovery import discover
from escudo.discovery._pattern import Recurrence, edge_confidences, recurrence
from escudo.table import PrivateTable


def test_recurrence_counts_edges_and_arrows():
    graphs = iter(
        [
            CausalGraph.from_edges([("b", "a")]),
            CausalGraph.from_edges([], undirected=[("a", "b")]),
            CausalGraph.from_edges([], nodes=["a", "b"]),
        ]
    )
    seen = recurrence(lambda: next(graphs), repeats=3)
    assert seen.edges == {("a", "b"): 2}
    assert seen.arrows == {("b", "a"): 1}


def test_confidence_rises_with_how_often_an_edge_came_back():
    graph = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
    edges = {("a", "b"): 20, ("b", "c"): 10}
    sure, _ = edge_confidences(graph, Recurrence(repeats=20, edges=edges, arrows={}))
    assert 1 > sure["a", "b"] > 0.9 > sure["b", "c"] > 0.3 > sure["c", "d"] > 0


def test_directions_that_came_back_open_count_half():
    graph = CausalGraph.from_edges([("a", "b")])
    edges = {("a", "b"): 20}

    def way(forward: int, backward: int) -> float:
        seen = Recurrence(repeats=20, edges=edges, arrows={("a", "b"): forward, ("b", "a"): backward})
        return edge_confidences(graph, seen)[1]["a", "b"]

    assert way(20, 0) > way(10, 0) > way(0, 0) > way(0, 20)
    assert way(0, 0) == pytest.approx(way(10, 10))


def test_edges_below_one_half_are_not_reported(collider_rows, collider_schema):
    for seed in range(6):
        table = PrivateTable(collider_rows.head(3_000), collider_schema)
        found = discover(table, epsilon=0.15, delta=1e-6, seed=seed)
        assert all(value >= 0.5 for value in found.edge_confidence.values())
        assert set(found.edge_confidence) == set(found.graph.adjacencies)


def test_less_budget_means_less_confidence(collider_rows, collider_schema):
    def mean(epsilon: float) -> float:
        sure = []
        for seed in range(4):
            found = discover(PrivateTable(collider_rows, collider_schema), epsilon=epsilon, delta=1e-6, seed=seed)
            sure += [found.confidence(*edge) for edge in (("a", "c"), ("b", "c"), ("c", "d"))]
        return float(np.mean(sure))

    assert mean(0.01) < mean(1.0) - 0.1
