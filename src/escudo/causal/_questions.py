"""What a causal graph says: the questions that need no other graph to be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from escudo.causal._check import Edge, known_names
from escudo.causal._knowledge import Knowledge
from escudo.errors import GraphError

__all__ = ["Names", "Questions"]

Names = str | Iterable[str]


class Questions:
    """The read-only half of :class:`CausalGraph`, which holds the fields named here."""

    __slots__ = ()

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    undirected_edges: tuple[Edge, ...]
    latents: frozenset[str]
    groups: Mapping[str, tuple[str, ...]]
    knowledge: Knowledge
    _parents: dict[str, tuple[str, ...]]
    _children: dict[str, tuple[str, ...]]
    _neighbours: dict[str, tuple[str, ...]]
    _order: tuple[str, ...]

    @property
    def is_dag(self) -> bool:
        """Whether every edge has a direction."""
        return not self.undirected_edges

    @property
    def adjacencies(self) -> tuple[Edge, ...]:
        """Every adjacent pair once, as a sorted tuple of sorted pairs."""
        return tuple(sorted((min(pair), max(pair)) for pair in (*self.edges, *self.undirected_edges)))

    @property
    def required(self) -> tuple[Edge, ...]:
        """Arrows that must be there."""
        return self.knowledge.required

    @property
    def forbidden(self) -> tuple[Edge, ...]:
        """Arrows that must not be there."""
        return self.knowledge.forbidden

    @property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Names in tiers, earliest first."""
        return self.knowledge.tiers

    @property
    def observed(self) -> tuple[str, ...]:
        """Nodes that are not latent."""
        return tuple(name for name in self.nodes if name not in self.latents)

    @property
    def columns(self) -> tuple[str, ...]:
        """The table columns the graph speaks of: observed nodes, each group replaced by its columns."""
        return tuple(column for name in self.observed for column in self.groups.get(name, (name,)))

    def parents(self, node: str) -> tuple[str, ...]:
        """Return the direct causes of a node."""
        return self._parents[self._known(node)]

    def children(self, node: str) -> tuple[str, ...]:
        """Return the direct effects of a node."""
        return self._children[self._known(node)]

    def neighbours(self, node: str) -> tuple[str, ...]:
        """Return the nodes joined to a node by an undirected edge."""
        return self._neighbours[self._known(node)]

    def ancestors(self, nodes: Names) -> tuple[str, ...]:
        """Return all causes, direct or not, of a node or of any of several nodes (these left out), in node order."""
        return self._reach(nodes, self._parents.__getitem__)

    def descendants(self, nodes: Names) -> tuple[str, ...]:
        """Return all effects, direct or not, of a node or of any of several nodes (these left out), in node order."""
        return self._reach(nodes, self._children.__getitem__)

    def topological_order(self) -> tuple[str, ...]:
        """Return the nodes with every cause before its effects."""
        return self._order

    @property
    def summary(self) -> str:
        """A short description: how many nodes and edges of each kind."""
        counts = (
            (len(self.nodes), "node", "nodes"),
            (len(self.edges), "arrow", "arrows"),
            (len(self.undirected_edges), "undirected edge", "undirected edges"),
            (len(self.latents), "latent", "latents"),
            (len(self.groups), "group", "groups"),
            (len(self.required), "required arrow", "required arrows"),
            (len(self.forbidden), "forbidden arrow", "forbidden arrows"),
            (len(self.tiers), "tier", "tiers"),
        )
        return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n or one in ("node", "arrow"))

    def __contains__(self, node: object) -> bool:
        return node in self._parents

    def __len__(self) -> int:
        return len(self.nodes)

    def _known(self, node: str) -> str:
        if not isinstance(node, str) or node not in self._parents:
            known_names("The question", [node], self.nodes)
        return node

    def _several(self, nodes: Names) -> tuple[str, ...]:
        names = (nodes,) if isinstance(nodes, str) else tuple(nodes)
        for name in names:
            self._known(name)
        return names

    def _reach(self, nodes: Names, step: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        start = self._several(nodes)
        found, queue = set(start), list(start)
        while queue:
            for name in step(queue.pop()):
                if name not in found:
                    found.add(name)
                    queue.append(name)
        found.difference_update(start)
        return tuple(name for name in self.nodes if name in found)

    def _need_dag(self, method: str) -> None:
        if not self.is_dag:
            edge = " — ".join(self.undirected_edges[0])
            raise GraphError(
                f"{method} needs a direction on every edge, and {edge} has none. "
                "Take graph.extension() for a graph of the same equivalence class."
            )
