r"""How sure: the same search on re-noised measurements, and what its answers have been worth.

Fresh noise of the released scale is added to the released residuals, the search is run again, and for each edge it is
noted how often it came back. That costs no privacy: only released numbers are used. A frequency f is no probability by
itself (the second noise comes on top of the first), so it is turned into one by a logistic curve,

.. math:: P(\text{true}) = \operatorname{logistic}(a + b \operatorname{logit} f).

Its two numbers were fitted once, on simulated networks of 4 to 10 columns with 3,000 to 100,000 rows at ε from 0.1 to 3
(``benchmarks/discovery.py --calibrate``), and are tested on others (``tests/statistical/test_edge_confidence.py``). For
edges the fit was within its error of a = 0, b = 1, the frequency itself, smoothed by half a run; directions are less
sure than they look. Networks that break the assumptions (hidden causes, unfaithful laws) are not covered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from escudo._progress import tracking
from escudo.causal import CausalGraph
from escudo.discovery._discovery import Edge

__all__ = ["REPEATS", "Recurrence", "edge_confidences", "recurrence"]

REPEATS = 20
_EDGE = (0.0, 1.0)
_DIRECTION = (-0.1, 0.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """How often edges and arrows came back under fresh noise."""

    repeats: int
    edges: Mapping[Edge, int]
    arrows: Mapping[Edge, int]


def recurrence(again: Callable[[np.random.Generator], CausalGraph], *, repeats: int = REPEATS) -> Recurrence:
    """Run a search several times under fresh noise and count what comes back.

    Args:
        again: Adds noise from the generator to what was measured and returns the pattern found.
        repeats: How often.
    """
    rng = np.random.default_rng(0)  # of public noise on released numbers
    edges: dict[Edge, int] = {}
    arrows: dict[Edge, int] = {}
    with tracking("Asking again", total=repeats) as advance:
        for _ in range(repeats):
            graph = again(rng)
            for edge in graph.adjacencies:
                edges[edge] = edges.get(edge, 0) + 1
            for arrow in graph.edges:
                arrows[arrow] = arrows.get(arrow, 0) + 1
            advance(1)
    return Recurrence(repeats=repeats, edges=edges, arrows=arrows)


def edge_confidences(graph: CausalGraph, seen: Recurrence) -> tuple[dict[Edge, float], dict[Edge, float]]:
    """Return the confidence of each edge of a graph, and of each arrow's direction.

    An arrow that came back as an undirected edge counts half for each direction.

    Args:
        graph: The pattern that is reported.
        seen: What came back under fresh noise.
    """
    sure = {edge: _probability(_EDGE, seen.edges.get(edge, 0), seen.repeats) for edge in graph.adjacencies}
    ways = {}
    for tail, head in graph.edges:
        forward, backward = seen.arrows.get((tail, head), 0), seen.arrows.get((head, tail), 0)
        both = seen.edges.get((min(tail, head), max(tail, head)), 0)
        ways[tail, head] = _probability(_DIRECTION, forward + (both - forward - backward) / 2, both)
    return sure, ways


def _probability(curve: tuple[float, float], count: float, total: float) -> float:
    log_odds = math.log((count + 0.5) / (total - count + 0.5))
    return 1 / (1 + math.exp(-curve[0] - curve[1] * log_odds))
