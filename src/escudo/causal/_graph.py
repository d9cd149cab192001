"""CausalGraph: which column causes which, as a value that is checked once and never changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from escudo._validate import one_of
from escudo.causal import _convert, _equivalence, _perturb, _separation, formats
from escudo.causal._check import (
    Edge,
    checked_edges,
    checked_groups,
    checked_lines,
    checked_names,
    checked_tiers,
    first_cycle,
    known_names,
)
from escudo.causal._knowledge import Knowledge
from escudo.causal._questions import Names, Questions
from escudo.errors import GraphError

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    import numpy.typing as npt

__all__ = ["CausalGraph"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CausalGraph(Questions):
    """A causal graph over columns: arrows from causes to effects, without a cycle.

    Edges may also be undirected (a partially directed graph: the direction is not known), so that the result of a
    discovery method is the same kind of value. Two graphs are equal if they say the same, in whatever order.

    Args:
        nodes: Names in the order they will be shown; any text that is not blank.
        edges: Arrows as (cause, effect) pairs.
        undirected_edges: Pairs that are adjacent in a direction not known.
        latents: Nodes that are not observed.
        exposures: Nodes flagged as the cause under study (kept from and for dagitty files).
        outcomes: Nodes flagged as the effect under study.
        groups: Nodes that stand for several columns each (a condensed graph): node name to its columns.
        knowledge: Required and forbidden arrows, and tiers.

    Raises:
        GraphError: A cycle, an unknown or blank name, an edge from a node to itself, an edge against the knowledge.

    Example:
        >>> graph = CausalGraph.from_edges([("smoke", "lung"), ("smoke", "bronc"), ("lung", "xray")])
        >>> graph.parents("lung"), graph.descendants("smoke")
        (('smoke',), ('lung', 'bronc', 'xray'))
        >>> graph.d_separated("bronc", "xray", given="smoke")
        True
        >>> CausalGraph.from_edges([("a", "b"), ("b", "c"), ("c", "a")])
        Traceback (most recent call last):
        escudo.errors.GraphError: The graph has a cycle: a → b → c → a. A causal graph must be acyclic; remove one of \
these arrows.
    """

    nodes: tuple[str, ...] = ()
    edges: tuple[Edge, ...] = ()
    undirected_edges: tuple[Edge, ...] = ()
    latents: frozenset[str] = frozenset()
    exposures: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    knowledge: Knowledge = field(default_factory=Knowledge)
    _parents: dict[str, tuple[str, ...]] = field(init=False)
    _children: dict[str, tuple[str, ...]] = field(init=False)
    _neighbours: dict[str, tuple[str, ...]] = field(init=False)
    _order: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("nodes", checked_names("nodes", self.nodes))
        put("edges", checked_edges("edges", self.edges))
        put("undirected_edges", checked_lines(self.undirected_edges))
        for flag in ("latents", "exposures", "outcomes"):
            names = getattr(self, flag)
            put(flag, frozenset([names] if isinstance(names, str) else names))
            known_names(flag, getattr(self, flag), self.nodes)
        known_names("edges", (name for edge in self.edges for name in edge), self.nodes)
        known_names("undirected_edges", (name for edge in self.undirected_edges for name in edge), self.nodes)
        put("groups", MappingProxyType(checked_groups(self.groups, self.nodes, self.latents)))
        directed = set(self.edges)
        for a, b in self.undirected_edges:
            if (a, b) in directed or (b, a) in directed:
                raise GraphError(f"{a!r} and {b!r} have both an arrow and an undirected edge. Keep one.")
        self.knowledge.check(self.nodes, self.edges, self.undirected_edges)
        put("_parents", self._index((head, tail) for tail, head in self.edges))
        put("_children", self._index(self.edges))
        put("_neighbours", self._index(pair for a, b in self.undirected_edges for pair in ((a, b), (b, a))))
        if cycle := first_cycle(self.edges):
            raise GraphError(
                f"The graph has a cycle: {cycle}. A causal graph must be acyclic; remove one of these arrows."
            )
        put("_order", tuple(TopologicalSorter(self._parents).static_order()))

    def _index(self, pairs: Iterable[Edge]) -> dict[str, tuple[str, ...]]:
        """Return for each node the second names of its pairs, in node order."""
        place = {name: number for number, name in enumerate(self.nodes)}
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for key, value in pairs:
            found[key].append(value)
        return {name: tuple(sorted(others, key=place.__getitem__)) for name, others in found.items()}

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[Edge],
        nodes: Iterable[str] = (),
        *,
        undirected: Iterable[Edge] = (),
        latents: Names = (),
        exposures: Names = (),
        outcomes: Names = (),
        groups: Mapping[str, Sequence[str]] | None = None,
        required: Iterable[Edge] = (),
        forbidden: Iterable[Edge] = (),
        tiers: Iterable[Iterable[str]] = (),
    ) -> CausalGraph:
        """Make a graph from (cause, effect) pairs; nodes are those given, then those the edges and groups name.

        Example:
            >>> CausalGraph.from_edges([("a", "b")], nodes=["z"]).nodes
            ('z', 'a', 'b')
        """
        arrows, lines = checked_edges("edges", edges), checked_edges("undirected", undirected)
        named = dict.fromkeys([nodes] if isinstance(nodes, str) else nodes)
        for edge in (*arrows, *lines):
            named.update(dict.fromkeys(edge))
        named.update(dict.fromkeys(groups or ()))
        return cls(
            nodes=tuple(named),
            edges=arrows,
            undirected_edges=lines,
            latents=frozenset([latents] if isinstance(latents, str) else latents),
            exposures=frozenset([exposures] if isinstance(exposures, str) else exposures),
            outcomes=frozenset([outcomes] if isinstance(outcomes, str) else outcomes),
            groups={
                name: checked_names(f"The columns of group {name!r}", group) for name, group in (groups or {}).items()
            },
            knowledge=Knowledge(required=tuple(required), forbidden=tuple(forbidden), tiers=checked_tiers(tiers)),
        )

    @classmethod
    def parse(cls, text: str, format: formats.FormatName | None = None, *, source: str = "text") -> CausalGraph:
        """Read a graph from text in one of the formats of :mod:`escudo.causal.formats`; by default it is recognised.

        Example:
            >>> CausalGraph.parse('digraph { smoke -> lung -> xray; u [latent=true]; u -> {smoke lung} }').edges
            (('smoke', 'lung'), ('lung', 'xray'), ('u', 'smoke'), ('u', 'lung'))

        Raises:
            ParseError: The text breaks off or cannot be read, with its line and column.
            GraphError: The text is readable but no causal graph, such as one with a cycle.
        """
        draft = formats.read_draft(text, format, source)
        try:
            return cls.from_edges(**draft.arguments())
        except GraphError as error:
            raise GraphError(f"{source}: {error}") from None

    @classmethod
    def read(cls, path: str | Path, format: formats.FormatName | None = None) -> CausalGraph:
        """Read a graph from a file; its name's ending tells the format (``.gz`` is unpacked), else its content does."""
        path = Path(path)
        text = formats.read_text(path)
        return cls.parse(text, format or formats.format_of(path, text), source=path.name)

    @classmethod
    def from_networkx(cls, graph: nx.Graph[Any]) -> CausalGraph:
        """Make a graph from a networkx one: arrows from a DiGraph, undirected edges from a Graph; names become text."""
        return cls.from_edges(**_convert.networkx_arguments(graph))

    @classmethod
    def from_adjacency(cls, matrix: npt.ArrayLike, nodes: Sequence[str]) -> CausalGraph:
        """Make a graph from a 0/1 matrix: ``matrix[i, j] = 1`` is i → j, and 1 both ways an undirected edge."""
        return cls.from_edges(**_convert.adjacency_arguments(matrix, nodes))

    def markov_blanket(self, node: str) -> tuple[str, ...]:
        """Return parents, children and the children's other parents: given these, a node tells nothing of the rest."""
        self._need_dag("markov_blanket")
        return _separation.markov_blanket(self, self._known(node))

    def d_separated(self, x: Names, y: Names, given: Names = ()) -> bool:
        """Return whether ``given`` blocks every path between ``x`` and ``y``, so that the graph implies independence.

        Latents count like any node; leave them out of ``given`` to ask about what can be observed.
        """
        self._need_dag("d_separated")
        return _separation.d_separated(self, self._several(x), self._several(y), self._several(given))

    def shd(self, other: CausalGraph) -> int:
        """Return the structural Hamming distance: how many pairs of nodes the two graphs treat differently.

        A missing edge, an extra edge, a reversed arrow, and an arrow against an undirected edge each count 1.
        """
        return _equivalence.structural_hamming_distance(self, other)

    def skeleton_f1(self, other: CausalGraph) -> float:
        """Return the F1 score of the adjacencies, directions ignored; 1.0 where neither graph has an edge."""
        return _equivalence.skeleton_f1(self, other)

    def skeleton(self) -> CausalGraph:
        """Return the graph with every arrow made undirected."""
        return replace(self, edges=(), undirected_edges=self.adjacencies, knowledge=Knowledge())

    def moral(self) -> CausalGraph:
        """Return the moral graph: parents of a common child are joined, then directions are dropped."""
        self._need_dag("moral")
        return replace(self, edges=(), undirected_edges=_separation.moral_edges(self), knowledge=Knowledge())

    def cpdag(self) -> CausalGraph:
        """Return the completed partially directed graph: an arrow stays where every Markov-equivalent graph has it."""
        self._need_dag("cpdag")
        edges, undirected = _equivalence.cpdag_edges(self)
        return replace(self, edges=edges, undirected_edges=undirected)

    def extension(self) -> CausalGraph:
        """Return a graph with every undirected edge given a direction, adding no cycle and no v-structure.

        Raises:
            GraphError: There is no such graph.
        """
        return replace(self, edges=_equivalence.extension_edges(self), undirected_edges=())

    def subgraph(self, nodes: Iterable[str]) -> CausalGraph:
        """Return the graph on some of the nodes, with the edges among them and what is known of them."""
        kept = set(self._several(nodes))
        return CausalGraph(
            nodes=tuple(name for name in self.nodes if name in kept),
            edges=tuple(edge for edge in self.edges if kept.issuperset(edge)),
            undirected_edges=tuple(edge for edge in self.undirected_edges if kept.issuperset(edge)),
            latents=self.latents & kept,
            exposures=self.exposures & kept,
            outcomes=self.outcomes & kept,
            groups={name: columns for name, columns in self.groups.items() if name in kept},
            knowledge=self.knowledge.restrict(kept),
        )

    def do(self, nodes: Names) -> CausalGraph:
        """Return the graph after an intervention on some nodes: nothing causes them any more.

        What was required of their causes is dropped with the arrows.
        """
        self._need_dag("do")
        cut = set(self._several(nodes))
        required = tuple(edge for edge in self.required if edge[1] not in cut)
        return replace(
            self,
            edges=tuple(edge for edge in self.edges if edge[1] not in cut),
            knowledge=replace(self.knowledge, required=required),
        )

    def perturb(self, *, add: int = 0, remove: int = 0, reverse: int = 0, seed: int = 0) -> CausalGraph:
        """Return the graph with errors: so many arrows added, removed and turned round at random, without a cycle.

        For experiments on what a wrong graph costs. What was required or forbidden, and tiers, are dropped.

        Args:
            add: Arrows between observed nodes that had no edge.
            remove: Arrows taken away.
            reverse: Arrows turned round, out of those that stay.
            seed: Which ones.

        Raises:
            GraphError: There are not so many arrows or pairs of nodes that this can be done to.

        Example:
            >>> graph = CausalGraph.from_edges([("a", "b"), ("b", "c")])
            >>> graph.perturb(remove=1, add=1, seed=1).shd(graph)
            2
        """
        edges = _perturb.perturbed_edges(self, add=add, remove=remove, reverse=reverse, seed=seed)
        return replace(self, edges=edges, knowledge=Knowledge())

    def expand(self, within: Literal["undirected", "ordered", "independent"] = "undirected") -> CausalGraph:
        """Return the graph over columns that a condensed graph stands for.

        An arrow between groups says p(group | parent groups) with the columns of a group taken together, so it becomes
        an arrow from every column of the one to every column of the other. Inside a group nothing is claimed:

        Args:
            within: ``"undirected"`` joins the columns of a group by undirected edges (no direction is claimed);
                ``"ordered"`` by arrows in column order, which is the same factorisation by the chain rule and gives a
                DAG, though its arrows inside a group are not causal; ``"independent"`` leaves them apart, which claims
                that they are independent given their parents (what a decoder with independent outputs assumes).

        Reference:
            "Causally Constrained Data Synthesis for Private Data Release", sections 4.1 and 5.2.3, appendix D.
        """
        one_of("within", within, ("undirected", "ordered", "independent"))
        return _convert.expanded(self, within)

    def to_text(self, format: formats.FormatName = "dot", *, lossy: bool = False) -> str:
        """Return the graph as text in one of the formats of :mod:`escudo.causal.formats`.

        Raises:
            GraphError: The format cannot carry something this graph has, and ``lossy`` is false.
        """
        return formats.write_graph(self, format, lossy=lossy)

    def write(self, path: str | Path, format: formats.FormatName | None = None, *, lossy: bool = False) -> None:
        """Write the graph to a file, replacing it if it exists; the name's ending tells the format."""
        path = Path(path)
        formats.write_text(path, self.to_text(format or formats.format_of(path), lossy=lossy))

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a networkx DiGraph; an undirected edge becomes a pair of edges with ``undirected=True``."""
        return _convert.to_networkx(self)

    def adjacency_matrix(self) -> npt.NDArray[np.int8]:
        """Return the 0/1 matrix in node order: 1 at [i, j] for i → j, and both ways for an undirected edge."""
        return _convert.adjacency_matrix(self)

    def to_svg(self, **options: Any) -> str:  # Any: the options are typed where they are documented
        """Return a layered drawing as SVG text; the options are those of :func:`escudo.causal.draw`."""
        from escudo.causal._draw import draw

        return draw(self, **options)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _content(self) -> tuple[object, ...]:
        lines = frozenset(map(frozenset, self.undirected_edges))
        known = (frozenset(self.required), frozenset(self.forbidden), tuple(map(frozenset, self.tiers)))
        flags = (self.latents, self.exposures, self.outcomes)
        return (frozenset(self.nodes), frozenset(self.edges), lines, flags, frozenset(self.groups.items()), known)

    def __eq__(self, other: object) -> bool:
        return self._content() == other._content() if isinstance(other, CausalGraph) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (
            *(self.nodes, self.edges, self.undirected_edges, self.latents, self.exposures, self.outcomes),
            *(dict(self.groups), self.knowledge),
        )

    def __repr__(self) -> str:
        return f"<CausalGraph: {self.summary}>"


def _restore(*values: Any) -> CausalGraph:  # Any: the values of __reduce__, in the order of the fields
    names = ("nodes", "edges", "undirected_edges", "latents", "exposures", "outcomes", "groups", "knowledge")
    return CausalGraph(**dict(zip(names, values, strict=True)))
