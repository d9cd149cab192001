"""A graph as a networkx graph, as a matrix, and as the graph over columns that a condensed graph stands for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from escudo.causal._check import Edge
from escudo.causal._knowledge import Knowledge
from escudo.causal.formats._draft import flags_of
from escudo.errors import GraphError

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    import numpy.typing as npt

    from escudo.causal._graph import CausalGraph

__all__ = ["adjacency_arguments", "adjacency_matrix", "expanded", "networkx_arguments", "to_networkx"]

_FLAGS = (("latents", "latent"), ("exposures", "exposure"), ("outcomes", "outcome"))


def to_networkx(graph: CausalGraph) -> nx.DiGraph[str]:
    """Return a DiGraph with node flags ``latent``, ``exposure``, ``outcome``, ``columns``; knowledge on the graph."""
    import networkx as nx

    made: nx.DiGraph[str] = nx.DiGraph()
    for node in graph.nodes:
        flags: dict[str, object] = {flag: True for names, flag in _FLAGS if node in getattr(graph, names)}
        if node in graph.groups:
            flags["columns"] = graph.groups[node]
        made.add_node(node, **flags)
    made.add_edges_from(graph.edges)
    for a, b in graph.undirected_edges:
        made.add_edge(a, b, undirected=True)
        made.add_edge(b, a, undirected=True)
    if graph.knowledge:
        made.graph["knowledge"] = graph.knowledge
    return made


def networkx_arguments(graph: nx.Graph[Any]) -> dict[str, Any]:
    """Return the arguments of ``CausalGraph.from_edges`` for a networkx graph of any kind."""
    try:
        names = {node: str(node) for node in graph.nodes}
        directed = graph.is_directed()
        pairs = [(names[a], names[b], data) for a, b, data in graph.edges(data=True)]
    except (AttributeError, TypeError):
        raise GraphError(f"from_networkx needs a networkx graph; got {type(graph).__name__}.") from None
    if len(set(names.values())) < len(names):
        raise GraphError("Two nodes have the same name once names are text, such as 1 and '1'. Rename one of them.")
    knowledge = graph.graph.get("knowledge")
    if not isinstance(knowledge, Knowledge):
        knowledge = Knowledge()
    lines = [(a, b) for a, b, data in pairs if not directed or data.get("undirected") is True]
    flags = {names[node]: set(flags_of(data)) for node, data in graph.nodes(data=True)}
    return {
        "edges": [(a, b) for a, b, data in pairs if directed and data.get("undirected") is not True],
        "nodes": list(names.values()),
        "undirected": lines,
        **{key: {name for name, found in flags.items() if flag in found} for key, flag in _FLAGS},
        "groups": {names[node]: data["columns"] for node, data in graph.nodes(data=True) if "columns" in data},
        "required": knowledge.required,
        "forbidden": knowledge.forbidden,
        "tiers": knowledge.tiers,
    }


def adjacency_matrix(graph: CausalGraph) -> npt.NDArray[np.int8]:
    """Return 1 at [i, j] for an arrow i → j, and at both [i, j] and [j, i] for an undirected edge."""
    import numpy as np

    place = {node: number for number, node in enumerate(graph.nodes)}
    matrix = np.zeros((len(place), len(place)), dtype=np.int8)
    for tail, head in graph.edges:
        matrix[place[tail], place[head]] = 1
    for a, b in graph.undirected_edges:
        matrix[place[a], place[b]] = matrix[place[b], place[a]] = 1
    return matrix


def adjacency_arguments(matrix: npt.ArrayLike, nodes: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of ``CausalGraph.from_edges`` for a 0/1 matrix; refuses weights, which are not edges."""
    import numpy as np

    names = list(nodes)
    if len(set(names)) < len(names):
        raise GraphError("nodes must be different names; one is given twice.")
    try:
        array = np.asarray(matrix, dtype=float)
    except (TypeError, ValueError):
        raise GraphError("matrix must be a square table of 0 and 1.") from None
    if array.shape != (len(names), len(names)):
        raise GraphError(f"matrix must be {len(names)} x {len(names)}, one row and column per node; got {array.shape}.")
    if not np.isin(array, (0.0, 1.0)).all():
        raise GraphError(
            "matrix must hold only 0 and 1. For weights pass matrix != 0; for the -1 and 1 of causal-learn pass "
            "matrix == -1, which is true at [i, j] for i → j."
        )
    one = array == 1.0
    if one.diagonal().any():
        raise GraphError(f"{names[int(one.diagonal().argmax())]!r} has an edge to itself; the diagonal must be 0.")
    found = [(int(i), int(j)) for i, j in np.argwhere(one)]
    return {
        "edges": [(names[i], names[j]) for i, j in found if not one[j, i]],
        "nodes": names,
        "undirected": [(names[i], names[j]) for i, j in found if one[j, i] and i < j],
    }


def expanded(graph: CausalGraph, within: str) -> CausalGraph:
    """Return the graph over columns; see ``CausalGraph.expand``."""
    members = {node: graph.groups.get(node, (node,)) for node in graph.nodes}

    def across(edges: Sequence[Edge]) -> tuple[Edge, ...]:
        return tuple((a, b) for tail, head in edges for a in members[tail] for b in members[head])

    def flat(names: frozenset[str]) -> frozenset[str]:
        return frozenset(column for name in names for column in members[name])

    inside = tuple(pair for columns in members.values() for pair in combinations(columns, 2))
    return type(graph)(
        nodes=tuple(column for columns in members.values() for column in columns),
        edges=across(graph.edges) + (inside if within == "ordered" else ()),
        undirected_edges=across(graph.undirected_edges) + (inside if within == "undirected" else ()),
        latents=graph.latents,
        exposures=flat(graph.exposures),
        outcomes=flat(graph.outcomes),
        knowledge=Knowledge(
            required=across(graph.required),
            forbidden=across(graph.forbidden),
            tiers=tuple(tuple(column for name in tier for column in members[name]) for tier in graph.tiers),
        ),
    )
