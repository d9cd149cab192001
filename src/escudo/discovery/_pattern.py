r"""What a found graph may claim: what was known before it, the arrows that all equivalent graphs share, and how sure.

:class:`Constraints` is what is known beforehand, as a search uses it: which arrows may be, which must be.
:func:`pattern` leads from a DAG to what all graphs equivalent to it share, given what is known.

**How sure**: by the same search on measurements drawn again, and by what its answers have been worth. Fresh noise of
the released scale is added to the released numbers, and the chance of which rows are in the table is drawn again from a
model of them (``chance`` in ``_evidence.py``, ``Moments.renoise``). The search is run once more, and for each edge it
is noted how often it came back. That costs no privacy: only released numbers are used. A frequency f is no probability
by itself (the second noise comes on top of the first, and models are not the truth), so it is turned into one by a
logistic curve,

.. math:: P(\text{true}) = \operatorname{logistic}(a - c\, κ + \max(0, b - d \log(κ' + 0.02) + e \log(ρ + 0.01))
    \operatorname{logit} f),

where the last three terms are there only where effects are taken as linear: κ is the part of an edge that curves of a
third column take away, κ' the part that they might have made for all that is known (``Curvature`` in ``_gaussian.py``),
and ρ the partial correlation of its columns given all others. That a weak edge always comes back says little, since
slight curves make such edges; so does it of one that the budget and the rows do not let one tell from a curve. Of
directions fewer are certain in a dense graph, and one that meets another counts for more: it is seen in the tables of
its own columns, where others only follow from such. None is stated below one half, since an edge that is there has one
of two. The numbers were fitted on simulated tables of 4 to 10 columns with up to 4 parents, 500 to 100,000 rows and ε
from 0.3 to 10, of fourteen families that count alike (``benchmarks/confidence.py --fit`` fits them again). What enters
was chosen by how well it says what is true in a family that is left out, among some 70 sets of features for edges of
linear effects, 25 for other edges and 15 for directions, and before that some 105 on fewer families. They are measured
on other tables, also of kinds that nothing was fitted on (``benchmarks/results/confidence.md``,
``tests/statistical/test_edge_confidence.py``). *Families differ*: a doubtful edge is truer where every column has
causes than where few have, and what was measured does not say which of these a table is. Networks that break the
assumptions (hidden causes, unfaithful laws) are not covered.

**Arrows that are shown** are those that more than half of the repeats have (:func:`settled`): two rules were tried, and
this one opened a fiftieth of the arrows and took a third of those away that networks without directions had got
(tables of other seeds than those of ``confidence.md``, where it is measured).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import did_you_mean
from escudo.causal import CausalGraph, Knowledge, first_cycle
from escudo.errors import GraphError
from escudo.table import Schema

Edge = tuple[str, str]
"""Two columns by name: an arrow, or an undirected edge in order."""

Parents = tuple[tuple[int, ...], ...]
"""The parents of each column, by number."""


# ---- what is known beforehand


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """Knowledge over columns by number.

    Attributes:
        names: The columns.
        allowed: At [a, b] whether a → b may be.
        required: Arrows (a, b) that must be.
        joined: Pairs that must be adjacent, in whatever direction.
    """

    names: tuple[str, ...]
    allowed: NDArray[np.bool_]
    required: frozenset[tuple[int, int]]
    joined: frozenset[frozenset[int]]

    @property
    def known(self) -> bool:
        """Whether anything is known at all."""
        return bool(self.required or self.joined) or not bool(self.allowed[~np.eye(len(self.names), dtype=bool)].all())

    def knowledge(self) -> Knowledge:
        """Return the required and forbidden arrows by name, for the graph that is reported."""
        names, d = self.names, len(self.names)
        ruled_out = [(names[a], names[b]) for a in range(d) for b in range(d) if a != b and not self.allowed[a, b]]
        return Knowledge(
            required=tuple(sorted((names[a], names[b]) for a, b in self.required)), forbidden=tuple(ruled_out)
        )

    def restricted(self, names: Sequence[str]) -> Constraints:
        """Return what is known of some of the columns, in this order."""
        place = {self.names.index(name): number for number, name in enumerate(names)}
        kept = [self.names.index(name) for name in names]
        return Constraints(
            names=tuple(names),
            allowed=self.allowed[np.ix_(kept, kept)],
            required=frozenset((place[a], place[b]) for a, b in self.required if a in place and b in place),
            joined=frozenset(frozenset(place[i] for i in pair) for pair in self.joined if pair <= place.keys()),
        )


def constraints_of(schema: Schema, knowledge: CausalGraph | None) -> Constraints:
    """Return what a graph says about a schema's columns.

    Its arrows and required arrows must be there, its undirected edges in some direction (in the only one, where the
    other is ruled out); forbidden arrows, those against the tiers, and those against a stated arrow must not. An arrow
    between groups of columns rules out arrows the other way. Latents are left aside.

    Raises:
        GraphError: If the graph names a column that the schema does not have, or cannot be obeyed without a cycle.
    """
    names = schema.names
    place = {name: number for number, name in enumerate(names)}
    allowed = ~np.eye(len(names), dtype=np.bool_)
    if knowledge is None:
        return Constraints(names, allowed, frozenset(), frozenset())
    members: dict[str, tuple[str, ...]] = {}
    for node in knowledge.nodes:
        if node in knowledge.latents:
            continue
        members[node] = tuple(knowledge.groups.get(node, (node,)))
        for name in members[node]:
            if name not in place:
                raise GraphError(
                    f"The knowledge names {name!r}, which is no column of the schema.{did_you_mean(name, names)} "
                    "Take it out, or mark it as latent."
                )
    required: set[tuple[int, int]] = set()
    joined: set[frozenset[int]] = set()
    for a, b in dict.fromkeys((*knowledge.edges, *knowledge.required)):
        if a in members and b in members:
            for cause in members[a]:
                for effect in members[b]:
                    allowed[place[effect], place[cause]] = False
            if len(members[a]) == len(members[b]) == 1:
                required.add((place[members[a][0]], place[members[b][0]]))
    for a, b in knowledge.undirected_edges:
        if a in members and b in members and len(members[a]) == len(members[b]) == 1:
            joined.add(frozenset((place[members[a][0]], place[members[b][0]])))
    for a in members:
        for b in members:
            if a != b and knowledge.knowledge.forbids(a, b):
                for cause in members[a]:
                    for effect in members[b]:
                        allowed[place[cause], place[effect]] = False
    for pair in list(joined):
        first, second = sorted(pair)
        if not (allowed[first, second] and allowed[second, first]):  # it may go one way only, so that way it must be
            joined.discard(pair)
            required.add((first, second) if allowed[first, second] else (second, first))
    if cycle := first_cycle((names[a], names[b]) for a, b in sorted(required)):
        raise GraphError(f"What the knowledge asks for makes a cycle: {cycle}. Drop one of these arrows or edges.")
    return Constraints(names, allowed, frozenset(required), frozenset(joined))


# ---- what a graph claims


def dag(names: Sequence[str], parents: Sequence[Sequence[int]], constraints: Constraints | None = None) -> CausalGraph:
    """Return the graph with these parents for each column, carrying what is known."""
    arrows = [(names[a], names[x]) for x, several in enumerate(parents) for a in several]
    known = None if constraints is None else constraints.knowledge()
    graph = CausalGraph.from_edges(arrows, nodes=names)
    return graph if not known else CausalGraph(nodes=graph.nodes, edges=graph.edges, knowledge=known)


def pattern(
    names: Sequence[str], parents: Sequence[Sequence[int]], constraints: Constraints | None = None
) -> CausalGraph:
    """Return the graph of a DAG's equivalence class, with every arrow that knowledge then implies.

    Without knowledge it is the CPDAG. With it, undirected edges that may go one way only get that direction, and
    Meek's four rules add what follows.

    Reference:
        Meek, "Causal inference and causal explanation with background knowledge", UAI 1995, theorem 4.
    """
    found = dag(names, parents).cpdag()
    if constraints is None or not constraints.known:
        return found
    place = {name: number for number, name in enumerate(names)}
    arrows = {(place[a], place[b]) for a, b in found.edges}
    lines = {frozenset((place[a], place[b])) for a, b in found.undirected_edges}
    for line in list(lines):
        a, b = sorted(line)
        for tail, head in ((a, b), (b, a)):
            if (tail, head) in constraints.required or not constraints.allowed[head, tail]:
                arrows.add((tail, head))
                lines.discard(line)
    arrows, lines = meek_orientation(arrows, lines)
    return CausalGraph(
        nodes=tuple(names),
        edges=tuple(
            sorted(((names[a], names[b]) for a, b in arrows), key=lambda edge: (place[edge[0]], place[edge[1]]))
        ),
        undirected_edges=tuple(sorted((names[a], names[b]) for a, b in map(sorted, lines))),
        knowledge=constraints.knowledge(),
    )


def meek_closure(graph: CausalGraph) -> CausalGraph:
    """Return a partially directed graph with every arrow that its own arrows imply, by Meek's rules.

    Raises:
        GraphError: If what they imply makes a cycle or is against the knowledge.
    """
    names = graph.nodes
    place = {name: number for number, name in enumerate(names)}
    arrows, lines = meek_orientation(
        {(place[a], place[b]) for a, b in graph.edges},
        {frozenset((place[a], place[b])) for a, b in graph.undirected_edges},
    )
    return replace(
        graph,
        edges=tuple((names[a], names[b]) for a, b in sorted(arrows)),
        undirected_edges=tuple((names[a], names[b]) for a, b in sorted(map(sorted, lines))),
    )


def meek_orientation(
    arrows: set[tuple[int, int]], lines: set[frozenset[int]]
) -> tuple[set[tuple[int, int]], set[frozenset[int]]]:
    """Return arrows and undirected edges after Meek's rules 1 to 4 have added all that follows."""
    arrows, lines = set(arrows), set(lines)
    adjacent: dict[int, set[int]] = {}
    for a, b in [*arrows, *map(tuple, lines)]:
        adjacent.setdefault(a, set()).add(b)
        adjacent.setdefault(b, set()).add(a)

    def implied(a: int, b: int) -> bool:
        """Whether a — b must be a → b."""
        into_a, into_b = {p for p, q in arrows if q == a}, {p for p, q in arrows if q == b}
        if any(p != b and p not in adjacent[b] for p in into_a):
            return True  # rule 1: p → a — b would become a new v-structure
        if any((a, c) in arrows for c in into_b):
            return True  # rule 2: a → c → b would become a cycle
        ends = [c for c in adjacent[a] if frozenset((a, c)) in lines and c != b]
        if any(d not in adjacent[c] for c, d in combinations([c for c in ends if c in into_b], 2)):
            return True  # rule 3: a — c → b, a — d → b
        # rule 4: a — d → c → b with a, c adjacent and d, b not
        return any(
            (d, c) in arrows and d not in adjacent[b] for c in into_b if c in adjacent[a] for d in ends if d != c
        )

    changed = True
    while changed:
        changed = False
        for line in sorted(map(sorted, lines)):
            a, b = line
            for tail, head in ((a, b), (b, a)):
                if implied(tail, head):
                    arrows.add((tail, head))
                    lines.discard(frozenset(line))
                    changed = True
                    break
    return arrows, lines


# ---- how sure

REPEATS = 20


@dataclass(frozen=True, slots=True)
class Curves:
    """What frequencies are worth: log-odds of being true are a + b times log-odds of coming back, and what follows.

    Attributes:
        edge: a and b of edges.
        direction: a and b of directions.
        crowded: By how much each edge per column lowers the log-odds of a direction: in a dense graph few are certain.
        meeting: What it adds that an arrow meets another one whose tail is not adjacent to its own: others only follow.
        parted: Where effects are taken as linear, by how much the part of an edge that curves take away lowers its
            log-odds.
        made: By how much less it counts that an edge comes back, the larger the part that curves might have made.
        strong: By how much more it counts, the larger the partial correlation is.
    """

    edge: tuple[float, float]
    direction: tuple[float, float]
    crowded: float
    meeting: float
    parted: float = 0.0
    made: float = 0.0
    strong: float = 0.0


COUNTED = Curves(edge=(0.14, 1.21), direction=(-0.08, 0.5), crowded=0.23, meeting=0.58)
"""For counts of categories."""

BINNED = Curves(edge=(0.37, 0.95), direction=(0.51, 0.3), crowded=0.76, meeting=0.72)
"""For counts of numbers too: what varies within bins is not seen, and can look like an effect."""

LINEAR = Curves(
    edge=(-0.37, 1.04), direction=(0.07, 0.66), crowded=0.09, meeting=-0.09, parted=2.09, made=0.31, strong=0.41
)
"""For moments of numbers."""


class Line(NamedTuple):
    """What is known of an edge where effects are taken as linear.

    Attributes:
        parted: The part of it that curves of a third column take away.
        made: The part that they might have made, for all that is known.
        strength: The partial correlation of its columns given all others, without its sign.
    """

    parted: float
    made: float
    strength: float


@dataclass(frozen=True, slots=True)
class Recurrence:
    """How often edges and arrows came back under fresh noise."""

    repeats: int
    edges: Mapping[Edge, int]
    arrows: Mapping[Edge, int]


def recurrence(again: Callable[[], CausalGraph], *, repeats: int = REPEATS) -> Recurrence:
    """Run a search several times under fresh noise and count what comes back.

    Args:
        again: Adds other noise each time to what was measured and returns the pattern found.
        repeats: How often.
    """
    edges, arrows = Counter[Edge](), Counter[Edge]()
    with tracking("Asking again", total=repeats) as advance:
        for _ in range(repeats):
            graph = again()
            edges.update(graph.adjacencies)
            arrows.update(graph.edges)
            advance(1)
    return Recurrence(repeats, edges, arrows)


def edge_confidences(
    graph: CausalGraph,
    seen: Recurrence,
    curves: Curves = COUNTED,
    lines: Mapping[Edge, Line] | None = None,
) -> tuple[dict[Edge, float], dict[Edge, float]]:
    """Return the confidence of each edge of a graph, and of each arrow's direction.

    An arrow that came back as an undirected edge counts half for each direction.

    Args:
        graph: The pattern that is reported.
        seen: What came back under fresh noise.
        curves: What that is worth.
        lines: What is known of each edge where effects are taken as linear.
    """
    sure = {}
    for edge in graph.adjacencies:
        a, b = curves.edge
        if lines is not None:
            line = lines[edge]
            a -= curves.parted * line.parted
            b += curves.strong * log_strength(line) - curves.made * log_made(line)
        sure[edge] = calibrated((a, max(b, 0.0)), seen.edges.get(edge, 0), seen.repeats)
    ways, meeting = {}, {(tail, head) for tails, head in colliders(graph) for tail in tails}
    for tail, head in graph.edges:
        a, b = curves.direction
        a -= curves.crowded * len(graph.adjacencies) / len(graph)
        a += curves.meeting * ((tail, head) in meeting)
        forward, backward = seen.arrows.get((tail, head), 0), seen.arrows.get((head, tail), 0)
        both = seen.edges.get((min(tail, head), max(tail, head)), 0)
        told = calibrated((a, b), forward + (both - forward - backward) / 2, both)
        ways[tail, head] = max(told, 0.5)  # of an edge that is there, no direction is worse than a coin
    return sure, ways


def log_strength(line: Line) -> float:
    """Return the logarithm of an edge's partial correlation, as confidences take it."""
    return math.log(line.strength + 0.01)


def log_made(line: Line) -> float:
    """Return the logarithm of the part of an edge that curves might have made, as confidences take it."""
    return math.log(line.made + 0.02)


def colliders(graph: CausalGraph) -> set[tuple[frozenset[str], str]]:
    """Return the v-structures: pairs of causes of one column that are not adjacent."""
    joined = set(map(frozenset, graph.adjacencies))
    return {
        (frozenset((a, b)), name)
        for name in graph.nodes
        for a in graph.parents(name)
        for b in graph.parents(name)
        if a < b and frozenset((a, b)) not in joined
    }


def settled(graph: CausalGraph, seen: Recurrence) -> CausalGraph:
    """Return the graph with only those arrows that more than half of the repeats have; the other edges stay open.

    An arrow is there because two causes of one column are not adjacent, or because it follows from such. Where no
    column has two causes, no direction can be known, and an arrow is an error about some edge: one that chance or noise
    made, or hid, and that is gone in other repeats. An arrow stays if those that are left imply it, and if without it
    they would imply the other direction, so that open it would not be (Meek's rule 1). If no directed graph fits what
    is left, all stay.

    Args:
        graph: The pattern that was found.
        seen: What came back under fresh noise.
    """
    names, found = graph.nodes, set(graph.edges)
    place = {name: number for number, name in enumerate(names)}
    kept = {arrow for arrow in found if 2 * seen.arrows.get(arrow, 0) > seen.repeats}
    kept.update(arrow for arrow in found if arrow in graph.required or graph.knowledge.forbids(*arrow[::-1]))
    while kept != found:
        lines = [edge for edge in graph.adjacencies if edge not in kept and edge[::-1] not in kept]
        arrows = {(place[a], place[b]) for a, b in kept}
        implied, _ = meek_orientation(arrows, {frozenset((place[a], place[b])) for a, b in lines})
        follow = {(names[a], names[b]) for a, b in implied - arrows}
        if not follow:
            plain = replace(
                graph, edges=tuple(arrow for arrow in graph.edges if arrow in kept), undirected_edges=tuple(lines)
            )
            return plain if _can_be_directed(plain) else graph
        more = found & (follow | {arrow[::-1] for arrow in follow})
        if not more:
            return graph
        kept |= more
    return graph


def _can_be_directed(graph: CausalGraph) -> bool:
    try:
        graph.extension()
    except GraphError:
        return False
    return True


def calibrated(curve: tuple[float, float], count: float, total: float) -> float:
    """Return the probability that a curve gives to what came back so many times out of so many."""
    log_odds = math.log((count + 0.5) / (total - count + 0.5))
    return 1 / (1 + math.exp(-curve[0] - curve[1] * log_odds))
