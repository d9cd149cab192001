"""What a graph implies about independence: d-separation, Markov blankets, the moral graph (networkx underneath)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from escudo.causal._check import Edge
from escudo.errors import GraphError

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["d_separated", "markov_blanket", "moral_edges"]


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
