"""Edge confidence: what comes back under fresh noise, and doubtful edges left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from escudo.causal import CausalGraph, Knowledge
from escudo.discovery import _pattern, discover
from escudo.discovery._pattern import LINEAR, Line, Recurrence, edge_confidences, recurrence, settled
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


def sure_of(back: int, **known: float) -> float:
    """Return the confidence of an edge of linear effects that came back so many times out of 20."""
    line = Line(**{"parted": 0.0, "made": 0.1, "strength": 0.3, **known})
    seen = Recurrence(repeats=20, edges={("a", "b"): back}, arrows={})
    return edge_confidences(CausalGraph.from_edges([("a", "b")]), seen, LINEAR, {("a", "b"): line})[0]["a", "b"]


def test_a_strong_edge_that_came_back_counts_more_than_a_weak_one_or_one_that_curves_may_have_made():
    assert sure_of(20, strength=0.5) > sure_of(20, strength=0.1) > sure_of(20, strength=0.02)
    assert sure_of(20, made=0.02) > sure_of(20, made=0.3) > sure_of(20, made=1.0)
    assert sure_of(20) > sure_of(20, parted=0.5)
    assert sure_of(10, strength=0.5) == pytest.approx(sure_of(10, strength=0.02))  # half of the time is no sign


@pytest.mark.parametrize("name", ["COUNTED", "BINNED", "LINEAR"])
def test_the_curves_are_those_that_were_fitted(name: str):
    """``benchmarks/confidence.py --fit`` keeps them beside what was measured with them."""
    record = Path(__file__).parents[3] / "benchmarks" / "results" / "confidence.json"
    fitted, curves = json.loads(record.read_text())["fitted"]["curves"], getattr(_pattern, name)
    edge = [*curves.edge, curves.parted, curves.made, curves.strong]
    assert [*fitted[f"{name} edge"], 0, 0, 0][:5] == edge
    assert fitted[f"{name} direction"] == [*curves.direction, curves.crowded, curves.meeting]


@pytest.mark.parametrize("made", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("strength", [0.0, 0.02, 0.2, 1.0])
def test_coming_back_more_often_never_makes_an_edge_less_sure(made: float, strength: float):
    stated = [sure_of(back, made=made, strength=strength) for back in range(21)]
    assert stated == sorted(stated)
    assert 0.05 < stated[0] + stated[-1] < 2


def test_directions_that_came_back_open_count_half():
    graph = CausalGraph.from_edges([("a", "b")])
    edges = {("a", "b"): 20}

    def way(forward: int, backward: int) -> float:
        seen = Recurrence(repeats=20, edges=edges, arrows={("a", "b"): forward, ("b", "a"): backward})
        return edge_confidences(graph, seen)[1]["a", "b"]

    assert way(20, 0) > way(16, 0) > way(12, 0) > way(0, 0)
    assert way(14, 0) == pytest.approx(way(17, 3))
    assert way(0, 0) == way(0, 20) == 0.5  # of an edge that is there, no direction is worse than a coin


def came_back(graph: CausalGraph, **arrows: int) -> CausalGraph:
    """Return what is settled of a graph whose edges always come back, and whose arrows (as ``ac=12``) so often."""
    seen = Recurrence(
        repeats=20, edges=dict.fromkeys(graph.adjacencies, 20), arrows={(*name,): n for name, n in arrows.items()}
    )
    return settled(graph, seen)


def test_arrows_that_most_repeats_do_not_have_stay_open():
    met = CausalGraph.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
    assert came_back(met, ac=11, bc=11, cd=11) == met
    assert came_back(met, ac=10, bc=10, cd=10) == met.skeleton()


def test_an_arrow_stays_where_the_others_imply_it_or_its_reverse():
    met = CausalGraph.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
    assert came_back(met, ac=20, bc=20, cd=0) == met  # d → c would be a third cause that nobody saw
    assert came_back(met, ac=20, bc=0, cd=20) == met  # a → c — b would be read as c → b


def test_one_of_two_places_where_causes_meet_may_be_settled():
    edges = [("a", "c"), ("b", "c"), ("e", "g"), ("f", "g")]
    found = came_back(CausalGraph.from_edges(edges), ac=19, bc=18, eg=9, fg=10)
    assert set(found.edges) == {("a", "c"), ("b", "c")}
    assert set(found.undirected_edges) == {("e", "g"), ("f", "g")}


def test_arrows_that_were_known_stay_however_often_they_came_back():
    known = Knowledge(required=(("a", "c"),), forbidden=(("c", "b"),))
    graph = CausalGraph(nodes=("a", "b", "c"), edges=(("a", "c"), ("b", "c")), knowledge=known)
    assert came_back(graph) == graph


def test_all_arrows_stay_where_no_directed_graph_would_fit_without_them():
    square = CausalGraph.from_edges([("b", "a"), ("d", "a")], undirected=[("b", "c"), ("c", "d")])
    assert came_back(square) == square  # a circle of four without a chord needs two causes that meet


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
