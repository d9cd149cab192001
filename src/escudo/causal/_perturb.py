"""Graphs with errors, for experiments: arrows added, removed and turned round, always without a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from escudo._validate import whole
from escudo.causal._check import Edge
from escudo.errors import GraphError

if TYPE_CHECKING:
    import numpy as np

    from escudo.causal._graph import CausalGraph

__all__ = ["perturbed_edges"]


def perturbed_edges(graph: CausalGraph, *, add: int, remove: int, reverse: int, seed: int) -> tuple[Edge, ...]:
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
    seen, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        if node == end:
            return True
        fresh = [effect for effect in after.get(node, ()) if effect not in seen]
        seen.update(fresh)
        waiting += fresh
    return False
