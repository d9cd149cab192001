"""Graphs that no observation can tell apart, and distances between graphs."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from escudo.causal._check import Edge
from escudo.errors import GraphError

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["cpdag_edges", "extension_edges", "skeleton_f1", "structural_hamming_distance"]


def cpdag_edges(graph: CausalGraph) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
    """Return the arrows and the undirected edges of the completed partially directed graph of a DAG.

    Two DAGs are Markov equivalent if and only if they have the same adjacencies and the same v-structures a → c ← b
    with a, b not adjacent (Verma and Pearl 1990). So v-structures keep their arrows, and Meek's rules add every arrow
    that all graphs of the class then share; for an equivalence class rules 1 to 3 suffice.

    Reference:
        Meek, "Causal inference and causal explanation with background knowledge", UAI 1995, theorem 3.
    """
    adjacent = {node: {*graph.parents(node), *graph.children(node)} for node in graph.nodes}
    parents: dict[str, set[str]] = {node: set() for node in graph.nodes}
    children: dict[str, set[str]] = {node: set() for node in graph.nodes}
    for node in graph.nodes:
        for a, b in combinations(graph.parents(node), 2):
            if b not in adjacent[a]:
                parents[node].update((a, b))
                children[a].add(node)
                children[b].add(node)

    def implied(a: str, b: str) -> bool:
        """Whether a — b must be a → b, by Meek's rule 1, 2 or 3."""
        if any(other != b and other not in adjacent[b] for other in parents[a]):
            return True  # p → a — b without p, b adjacent: b → a would make a new v-structure
        if not children[a].isdisjoint(parents[b]):
            return True  # a → c → b: b → a would make a cycle
        open_ends = [c for c in parents[b] if c in adjacent[a] and c not in parents[a] and c not in children[a]]
        return any(d not in adjacent[c] for c, d in combinations(open_ends, 2))

    undirected = [edge for edge in graph.edges if edge[0] not in parents[edge[1]]]
    changed = True
    while changed:
        changed = False
        remaining = []
        for tail, head in undirected:
            # Only the graph's own direction can be implied, since the graph is itself a member of the class.
            if implied(tail, head):
                parents[head].add(tail)
                children[tail].add(head)
                changed = True
            else:
                remaining.append((tail, head))
        undirected = remaining
    arrows = tuple(edge for edge in graph.edges if edge[0] in parents[edge[1]])
    return arrows, tuple((min(edge), max(edge)) for edge in undirected)


def extension_edges(graph: CausalGraph) -> tuple[Edge, ...]:
    """Return arrows for every edge of a partially directed graph, with no new cycle or v-structure.

    Edges whose direction the knowledge settles are given it first; v-structures that it asks for are its own. Then a
    node that could be last (no arrow leaves it, and its undirected neighbours are adjacent to all its other neighbours)
    takes its edges as incoming and is removed, until none is left.

    Reference:
        Dor and Tarsi, "A simple algorithm to construct a consistent extension of a partially oriented graph", 1992.
    """
    parents = {node: set(graph.parents(node)) for node in graph.nodes}
    children = {node: set(graph.children(node)) for node in graph.nodes}
    lines = {node: set(graph.neighbours(node)) for node in graph.nodes}
    arrows = dict.fromkeys(graph.edges)
    knowledge, required = graph.knowledge, set(graph.required)
    for a, b in graph.undirected_edges:
        for tail, head in ((a, b), (b, a)):
            if (tail, head) in required or knowledge.forbids(head, tail):
                arrows[tail, head] = None
                lines[tail].discard(head)
                lines[head].discard(tail)
                parents[head].add(tail)
                children[tail].add(head)

    def can_be_last(node: str) -> bool:
        around = parents[node] | lines[node]
        return not children[node] and all(
            around - {other} <= parents[other] | children[other] | lines[other] for other in lines[node]
        )

    left = dict.fromkeys(reversed(graph.topological_order()))
    while left:
        last = next((node for node in left if can_be_last(node)), None)
        if last is None:
            stuck = ", ".join(sorted(left)[:6]) + (", …" if len(left) > 6 else "")
            raise GraphError(
                "The undirected edges cannot all be given a direction without a cycle or a new v-structure "
                f"(stuck among {stuck}). Direct some of them yourself."
            )
        arrows.update(dict.fromkeys((other, last) for other in sorted(lines[last])))
        for other in parents[last]:
            children[other].discard(last)
        for other in lines[last]:
            lines[other].discard(last)
        del left[last]
    return tuple(arrows)


def structural_hamming_distance(first: CausalGraph, second: CausalGraph) -> int:
    """Return the number of node pairs on which two graphs over the same nodes differ.

    Each pair counts once, whatever the difference: missing, extra, reversed, or directed in one graph only.

    Reference:
        Tsamardinos, Brown and Aliferis, "The max-min hill-climbing Bayesian network structure learning algorithm",
        Machine Learning 65, 2006, algorithm 4.
    """
    _same_nodes(first, second)
    ours, theirs = _pairs(first), _pairs(second)
    return sum(ours.get(pair) != theirs.get(pair) for pair in ours.keys() | theirs.keys())


def skeleton_f1(first: CausalGraph, second: CausalGraph) -> float:
    """Return 2 |A ∩ B| / (|A| + |B|) for the adjacencies A and B of two graphs over the same nodes."""
    _same_nodes(first, second)
    ours, theirs = set(first.adjacencies), set(second.adjacencies)
    if not ours and not theirs:
        return 1.0
    return 2 * len(ours & theirs) / (len(ours) + len(theirs))


def _pairs(graph: CausalGraph) -> dict[frozenset[str], str]:
    """Return for each adjacent pair the name its arrow points to, or an empty text for an undirected edge."""
    found = {frozenset(edge): edge[1] for edge in graph.edges}
    found.update({frozenset(edge): "" for edge in graph.undirected_edges})
    return found


def _same_nodes(first: CausalGraph, second: CausalGraph) -> None:
    if different := set(first.nodes) ^ set(second.nodes):
        name = min(different)
        where = "first" if name in first else "second"
        raise GraphError(
            f"Two graphs can be compared only over the same nodes; {name!r} is in the {where} alone. "
            "Take graph.subgraph(...) of each first."
        )
