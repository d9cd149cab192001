"""What a graph implies, and how it compares with others.

D-separation, Markov blankets and the moral graph (networkx underneath); the class of graphs that no observation can
tell apart, and one member of it; distances between two graphs; and graphs with errors for experiments: arrows added,
removed and turned round, always without a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from escudo._validate import whole
from escudo.causal._edges import Edge, reach
from escudo.errors import GraphError

if TYPE_CHECKING:
    import numpy as np

    from escudo.causal._graph import CausalGraph


# ---- what a graph implies about independence


def d_separated(graph: CausalGraph, x: Iterable[str], y: Iterable[str], given: Iterable[str]) -> bool:
    """Return whether every path between x and y is blocked by ``given``.

    A path is blocked if it has a non-collider in ``given``, or a collider that is neither in ``given`` nor has a
    descendant there.

    Reference:
        Pearl, "Causality", 2nd edition, 2009, definition 1.2.3.
    """
    import networkx as nx

    left, right, blocked = set(x), set(y), set(given)
    if not left or not right:
        raise GraphError("d_separated needs at least one node on each side.")
    for first, second in ((left, right), (left, blocked), (right, blocked)):
        if shared := first & second:
            raise GraphError(f"{min(shared)!r} is named twice; x, y and given must have no node in common.")
    return bool(nx.is_d_separator(graph.to_networkx(), left, right, blocked))


def independences(graph: CausalGraph) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return (column, earlier column, causes of the first) for each pair that a DAG says is unrelated given these."""
    found = []
    order = [name for name in graph.topological_order() if name not in graph.latents]
    for place, name in enumerate(order):
        parents = graph.parents(name)
        if graph.latents.isdisjoint(parents):
            found += [(name, other, parents) for other in order[:place] if other not in parents]
    return tuple(found)


def markov_blanket(graph: CausalGraph, node: str) -> tuple[str, ...]:
    """Return parents, children and the children's other parents of a node, in node order."""
    blanket = {*graph.parents(node), *graph.children(node)}
    for child in graph.children(node):
        blanket.update(graph.parents(child))
    blanket.discard(node)
    return tuple(name for name in graph.nodes if name in blanket)


def moral_edges(graph: CausalGraph) -> tuple[Edge, ...]:
    """Return the edges of the moral graph as sorted pairs."""
    import networkx as nx

    return tuple(sorted((min(pair), max(pair)) for pair in nx.moral_graph(graph.to_networkx()).edges))


# ---- graphs that no observation can tell apart


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


# ---- distances between graphs


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


# ---- graphs with errors, for experiments


def perturbed_edges(graph: CausalGraph, add: int, remove: int, reverse: int, seed: int) -> tuple[Edge, ...]:
    """Return the arrows after removing some, turning some of the others round, and adding some new ones, at random.

    Removed, reversed and added arrows are different pairs of nodes. An arrow is turned round only if that makes no
    cycle, and added only between observed nodes that had no edge, in a direction that makes no cycle.

    Raises:
        GraphError: There are not so many arrows or pairs of nodes that this can be done to.
    """
    import numpy as np

    counts = {"add": whole("add", add), "remove": whole("remove", remove), "reverse": whole("reverse", reverse)}
    rng = np.random.default_rng(whole("seed", seed))
    edges = list(graph.edges)
    if counts["remove"] > len(edges):
        raise GraphError(f"remove asks for {counts['remove']} arrows, and the graph has {len(edges)}.")
    gone = {edges[place] for place in rng.choice(len(edges), counts["remove"], replace=False)} if edges else set()
    kept = [edge for edge in edges if edge not in gone]
    touched = {frozenset(edge) for edge in (*edges, *graph.undirected_edges)}
    turned = 0
    for edge in _shuffled(rng, kept):
        if turned == counts["reverse"]:
            break
        others = [other for other in kept if other != edge]
        if not _reaches(others, *edge):  # else turning it round closes a circle
            kept[kept.index(edge)] = (edge[1], edge[0])
            turned += 1
    if turned < counts["reverse"]:
        raise GraphError(f"reverse asks for {counts['reverse']} arrows; only {turned} can be turned round.")
    observed = [name for name in graph.nodes if name not in graph.latents]
    pairs = [(a, b) for place, a in enumerate(observed) for b in observed[place + 1 :]]
    added = 0
    for a, b in _shuffled(rng, pairs):
        if added == counts["add"]:
            break
        if frozenset((a, b)) in touched:
            continue
        choices = [edge for edge in ((a, b), (b, a)) if not _reaches(kept, edge[1], edge[0])]
        kept.append(choices[int(rng.integers(len(choices)))])
        added += 1
    if added < counts["add"]:
        raise GraphError(f"add asks for {counts['add']} arrows; only {added} pairs of nodes have none.")
    return tuple(kept)


def _shuffled(rng: np.random.Generator, items: Sequence[Edge]) -> list[Edge]:
    return [items[place] for place in rng.permutation(len(items))]


def _reaches(edges: Iterable[Edge], start: str, end: str) -> bool:
    """Return whether arrows lead from one node to another."""
    after: dict[str, list[str]] = {}
    for cause, effect in edges:
        after.setdefault(cause, []).append(effect)
    return end in reach([start], lambda node: after.get(node, ()))
