"""From a DAG to what it claims: the arrows that all equivalent graphs share, given what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from escudo.causal import CausalGraph
from escudo.discovery._constraints import Constraints

__all__ = ["closed", "dag", "oriented", "pattern"]

Parents = Sequence[Sequence[int]]


def dag(names: Sequence[str], parents: Parents, constraints: Constraints | None = None) -> CausalGraph:
    """Return the graph with these parents for each column, carrying what is known."""
    arrows = [(names[a], names[x]) for x, several in enumerate(parents) for a in several]
    known = None if constraints is None else constraints.knowledge()
    graph = CausalGraph.from_edges(arrows, nodes=names)
    return graph if not known else CausalGraph(nodes=graph.nodes, edges=graph.edges, knowledge=known)


def pattern(names: Sequence[str], parents: Parents, constraints: Constraints | None = None) -> CausalGraph:
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
    arrows, lines = oriented(arrows, lines)
    return CausalGraph(
        nodes=tuple(names),
        edges=tuple(
            sorted(((names[a], names[b]) for a, b in arrows), key=lambda edge: (place[edge[0]], place[edge[1]]))
        ),
        undirected_edges=tuple(sorted((names[a], names[b]) for a, b in map(sorted, lines))),
        knowledge=constraints.knowledge(),
    )


def closed(graph: CausalGraph) -> CausalGraph:
    """Return a partially directed graph with every arrow that its own arrows imply, by Meek's rules.

    Raises:
        GraphError: If what they imply makes a cycle or is against the knowledge.
    """
    names = graph.nodes
    place = {name: number for number, name in enumerate(names)}
    arrows, lines = oriented(
        {(place[a], place[b]) for a, b in graph.edges},
        {frozenset((place[a], place[b])) for a, b in graph.undirected_edges},
    )
    return replace(
        graph,
        edges=tuple((names[a], names[b]) for a, b in sorted(arrows)),
        undirected_edges=tuple((names[a], names[b]) for a, b in sorted(map(sorted, lines))),
    )


def oriented(
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
