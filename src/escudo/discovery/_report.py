"""From residuals to what is reported: the graph, how sure it is, and where it must say that it cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from escudo.causal import CausalGraph
from escudo.discovery._confidence import edge_confidences, recurrence
from escudo.discovery._constraints import Constraints
from escudo.discovery._discovery import Edge
from escudo.discovery._evidence import Weights
from escudo.discovery._joint import best_explanation
from escudo.discovery._pattern import pattern
from escudo.discovery._residuals import Floats, Residuals
from escudo.discovery._search import Parents, found_graph

__all__ = ["DENSE", "LEAST_ROWS", "STRICTNESS", "Found", "search"]

STRICTNESS, DENSE = 1.2, 0.3
"""γ of the graph that is reported, and of the one that generates: chosen on simulated networks."""

LEAST_ROWS = 200
"""Three-way tables worth fewer rows than this tell no directions: the graph is a forest."""

_ROUNDS, _ROUNDS_AGAIN = 600, 4  # perturbations of the local search, at first and under fresh noise
_LEAST_SURE = 0.5  # an edge less sure than this is not reported
_TRIES = 4  # searches without the edges that were not sure enough
_OTHERS = (0.8, 1.0, 1.5, 2.0, 3.0)  # strictnesses that offer candidates to the joint choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcome of a search on released numbers."""

    graph: CausalGraph
    dense: Parents
    edge_confidence: Mapping[Edge, float]
    direction_confidence: Mapping[Edge, float]
    cannot_tell: str


def search(names: Sequence[str], residuals: Residuals, known: Constraints, *, joint: bool) -> Found:
    """Find the graph to report and the one to generate from.

    Args:
        names: The columns.
        residuals: What was measured.
        known: What is known beforehand.
        joint: Whether to choose among several graphs the one whose model explains all that was measured.
    """
    weights, values = Weights(residuals), residuals.values
    forest = weights.rows_worth < LEAST_ROWS
    parents = found_graph(weights, values, known, strictness=STRICTNESS, rounds=_ROUNDS, forest=forest)
    heard: list[Parents] = []

    def again(rng: np.random.Generator) -> CausalGraph:
        found = found_graph(
            weights,
            values + residuals.noise(rng),
            known,
            strictness=STRICTNESS,
            rounds=_ROUNDS_AGAIN,
            forest=forest,
            start=parents,
        )
        heard.append(found)
        return pattern(names, found, known)

    seen = recurrence(again)
    if joint and not forest:
        others = [
            found_graph(weights, values, known, strictness=other, rounds=_ROUNDS_AGAIN, start=parents)
            for other in _OTHERS
        ]
        parents = best_explanation(residuals, weights, [parents, *others, *heard])
    allowed = known
    for _ in range(_TRIES):
        graph = pattern(names, parents, known)
        sure, ways = edge_confidences(graph, seen)
        doubtful = [edge for edge, value in sure.items() if value < _LEAST_SURE and not _stated(names, known, edge)]
        if not doubtful:
            break
        allowed = _without(names, allowed, doubtful)
        start = tuple(tuple(a for a in several if allowed.allowed[a, x]) for x, several in enumerate(parents))
        parents = found_graph(
            weights, values, allowed, strictness=STRICTNESS, rounds=_ROUNDS_AGAIN, forest=forest, start=start
        )
    else:
        graph, sure, ways = _sure_part(graph, sure, ways, doubtful)
    return Found(
        graph=graph,
        dense=_denser(weights, values, _with(names, known, graph), parents),
        edge_confidence=sure,
        direction_confidence=ways,
        cannot_tell=_cannot_tell(graph, weights.rows_worth, forest=forest),
    )


def _denser(weights: Weights, values: Floats, known: Constraints, start: Parents) -> Parents:
    """Return a graph to generate from: all that is reported, in its directions, and what else helps."""
    held = tuple(tuple(a for a in several if known.allowed[a, x]) for x, several in enumerate(start))
    return found_graph(weights, values, known, strictness=DENSE, rounds=_ROUNDS, explained=False, start=held)


def _cannot_tell(graph: CausalGraph, worth: float, *, forest: bool) -> str:
    if not graph.adjacencies:
        return "no dependence between two columns stands out from the noise; take more rows or a larger epsilon"
    if forest:
        return (
            f"after noise, tables of three columns are worth about {worth:.0f} rows, so that only the strongest pairs "
            "are shown and no directions; take more rows or a larger epsilon"
        )
    return ""


def _stated(names: Sequence[str], known: Constraints, edge: Edge) -> bool:
    a, b = names.index(edge[0]), names.index(edge[1])
    return (a, b) in known.required or (b, a) in known.required or frozenset((a, b)) in known.joined


def _without(names: Sequence[str], known: Constraints, edges: Sequence[Edge]) -> Constraints:
    allowed = known.allowed.copy()
    for first, second in edges:
        a, b = names.index(first), names.index(second)
        allowed[a, b] = allowed[b, a] = False
    return replace(known, allowed=allowed)


def _with(names: Sequence[str], known: Constraints, graph: CausalGraph) -> Constraints:
    """Return what is known once a pattern is: its arrows must be there, and its edges in some direction."""
    place = {name: number for number, name in enumerate(names)}
    allowed = known.allowed.copy()
    arrows = {(place[a], place[b]) for a, b in graph.edges}
    for a, b in arrows:
        allowed[b, a] = False
    lines = {frozenset((place[a], place[b])) for a, b in graph.undirected_edges}
    return replace(known, allowed=allowed, required=known.required | arrows, joined=known.joined | lines)


def _sure_part(
    graph: CausalGraph, sure: Mapping[Edge, float], ways: Mapping[Edge, float], doubtful: Sequence[Edge]
) -> tuple[CausalGraph, dict[Edge, float], dict[Edge, float]]:
    """Return the graph without doubtful edges; directions that they may have given become open."""
    gone = set(doubtful)
    left = tuple(edge for edge in graph.adjacencies if edge not in gone)
    kept = tuple(edge for edge in graph.required if (min(edge), max(edge)) in left)
    lines = tuple(edge for edge in left if edge not in kept and edge[::-1] not in kept)
    plain = replace(graph, edges=kept, undirected_edges=lines)
    return plain, {edge: sure[edge] for edge in left}, {edge: ways[edge] for edge in kept if edge in ways}
