"""CausalGraph: which column causes which, as a value that is checked once and never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from escudo._validate import one_of
from escudo.causal import _equivalence, formats
from escudo.causal._edges import (
    Edge,
    Knowledge,
    checked_edges,
    checked_groups,
    checked_lines,
    checked_names,
    first_cycle,
    known_names,
    reach,
)
from escudo.causal.formats._source import flags_of
from escudo.errors import GraphError

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    import numpy.typing as npt

    from escudo.causal._ancestral import AncestralGraph

Names = str | Iterable[str]

_FLAGS = (("latents", "latent"), ("exposures", "exposure"), ("outcomes", "outcome"))


class _Known(TypedDict, total=False):
    """What :class:`Knowledge` is made of, as anybody may give it."""

    required: Iterable[Edge]
    forbidden: Iterable[Edge]
    tiers: Iterable[Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CausalGraph:
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
            put(flag, _set_of(getattr(self, flag)))
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

    # -- making one ----------------------------------------------------------------------------------------------------

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
        **known: Unpack[_Known],
    ) -> CausalGraph:
        """Make a graph from (cause, effect) pairs; nodes are those given, then those the edges and groups name.

        What is known beforehand is given as :class:`Knowledge` takes it: ``required``, ``forbidden`` and ``tiers``.

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
            latents=_set_of(latents),
            exposures=_set_of(exposures),
            outcomes=_set_of(outcomes),
            groups={
                name: checked_names(f"The columns of group {name!r}", group) for name, group in (groups or {}).items()
            },
            knowledge=Knowledge(**known),  # type: ignore[arg-type] # it makes tuples of them
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
        with formats.naming(source):
            return cls.from_edges(**draft.arguments())

    @classmethod
    def read(cls, path: str | Path, format: formats.FormatName | None = None) -> CausalGraph:
        """Read a graph from a file; its name's ending tells the format (``.gz`` is unpacked), else its content does."""
        text, format, name = formats.read_file(path, format)
        return cls.parse(text, format, source=name)

    @classmethod
    def from_networkx(cls, graph: nx.Graph[Any]) -> CausalGraph:
        """Make a graph from a networkx one: arrows from a DiGraph, undirected edges from a Graph; names become text."""
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
        return cls.from_edges(
            [(a, b) for a, b, data in pairs if directed and data.get("undirected") is not True],
            list(names.values()),
            undirected=lines,
            **{key: {name for name, found in flags.items() if flag in found} for key, flag in _FLAGS},
            groups={names[node]: data["columns"] for node, data in graph.nodes(data=True) if "columns" in data},
            required=knowledge.required,
            forbidden=knowledge.forbidden,
            tiers=knowledge.tiers,
        )

    @classmethod
    def from_adjacency(cls, matrix: npt.ArrayLike, nodes: Sequence[str]) -> CausalGraph:
        """Make a graph from a 0/1 matrix: ``matrix[i, j] = 1`` is i → j, and 1 both ways an undirected edge.

        Weights are refused: they are not edges.
        """
        import numpy as np

        names = list(nodes)
        if len(set(names)) < len(names):
            raise GraphError("nodes must be different names; one is given twice.")
        try:
            array = np.asarray(matrix, dtype=float)
        except (TypeError, ValueError):
            raise GraphError("matrix must be a square table of 0 and 1.") from None
        if array.shape != (len(names), len(names)):
            raise GraphError(
                f"matrix must be {len(names)} x {len(names)}, one row and column per node; got {array.shape}."
            )
        if not np.isin(array, (0.0, 1.0)).all():
            raise GraphError(
                "matrix must hold only 0 and 1. For weights pass matrix != 0; for the -1 and 1 of causal-learn pass "
                "matrix == -1, which is true at [i, j] for i → j."
            )
        one = array == 1.0
        if one.diagonal().any():
            raise GraphError(f"{names[int(one.diagonal().argmax())]!r} has an edge to itself; the diagonal must be 0.")
        found = [(int(i), int(j)) for i, j in np.argwhere(one)]
        return cls.from_edges(
            [(names[i], names[j]) for i, j in found if not one[j, i]],
            names,
            undirected=[(names[i], names[j]) for i, j in found if one[j, i] and i < j],
        )

    # -- what it says --------------------------------------------------------------------------------------------------

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

    # -- what it implies, and how it differs from another --------------------------------------------------------------

    def markov_blanket(self, node: str) -> tuple[str, ...]:
        """Return parents, children and the children's other parents: given these, a node tells nothing of the rest."""
        self._need_dag("markov_blanket")
        return _equivalence.markov_blanket(self, self._known(node))

    def d_separated(self, x: Names, y: Names, given: Names = ()) -> bool:
        """Return whether ``given`` blocks every path between ``x`` and ``y``, so that the graph implies independence.

        Latents count like any node; leave them out of ``given`` to ask about what can be observed.
        """
        self._need_dag("d_separated")
        return _equivalence.d_separated(self, self._several(x), self._several(y), self._several(given))

    def independences(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        """Return what the graph implies: a column is unrelated to all before it that are no causes, given its causes.

        From these all other independences of a DAG follow. Of a graph with undirected edges it is read off one of the
        graphs that it stands for, which all have the same; pairs with a latent are left out, and so is every column
        that a latent acts on, where the statement need not hold.

        >>> CausalGraph.from_edges([("smoke", "lung"), ("smoke", "bronc")]).independences()
        (('bronc', 'lung', ('smoke',)),)
        """
        return _equivalence.independences(self.extension())

    def shd(self, other: CausalGraph) -> int:
        """Return the structural Hamming distance: how many pairs of nodes the two graphs treat differently.

        A missing edge, an extra edge, a reversed arrow, and an arrow against an undirected edge each count 1.
        """
        return _equivalence.structural_hamming_distance(self, other)

    def skeleton_f1(self, other: CausalGraph) -> float:
        """Return the F1 score of the adjacencies, directions ignored; 1.0 where neither graph has an edge."""
        return _equivalence.skeleton_f1(self, other)

    # -- graphs made from it -------------------------------------------------------------------------------------------

    def skeleton(self) -> CausalGraph:
        """Return the graph with every arrow made undirected."""
        return replace(self, edges=(), undirected_edges=self.adjacencies, knowledge=Knowledge())

    def moral(self) -> CausalGraph:
        """Return the moral graph: parents of a common child are joined, then directions are dropped."""
        self._need_dag("moral")
        return replace(self, edges=(), undirected_edges=_equivalence.moral_edges(self), knowledge=Knowledge())

    def cpdag(self) -> CausalGraph:
        """Return the completed partially directed graph: an arrow stays where every Markov-equivalent graph has it."""
        self._need_dag("cpdag")
        edges, undirected = _equivalence.cpdag_edges(self)
        return replace(self, edges=edges, undirected_edges=undirected)

    def pag(self) -> AncestralGraph:
        """Return what the observed nodes can tell of causes where latents are hidden: the partial ancestral graph.

        Example:
            >>> hidden = CausalGraph.from_edges([("a", "b"), ("u", "b"), ("u", "c"), ("d", "c")], latents="u")
            >>> print(hidden.pag())
            a o→ b
            b ↔ c
            d o→ c
        """
        from escudo.causal._ancestral import AncestralGraph, ancestral_marks

        self._need_dag("pag")
        return AncestralGraph.from_marks(*ancestral_marks(self))

    def extension(self) -> CausalGraph:
        """Return a graph with every undirected edge given a direction, adding no cycle and no v-structure.

        Raises:
            GraphError: There is no such graph.
        """
        if self.is_dag:
            return self
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
        return replace(
            self,
            edges=tuple(edge for edge in self.edges if edge[1] not in cut),
            knowledge=replace(self.knowledge, required=tuple(edge for edge in self.required if edge[1] not in cut)),
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
        return replace(
            self, edges=_equivalence.perturbed_edges(self, add, remove, reverse, seed), knowledge=Knowledge()
        )

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
        members = {node: self.groups.get(node, (node,)) for node in self.nodes}

        def across(edges: Sequence[Edge]) -> tuple[Edge, ...]:
            return tuple((a, b) for tail, head in edges for a in members[tail] for b in members[head])

        def flat(names: frozenset[str]) -> frozenset[str]:
            return frozenset(column for name in names for column in members[name])

        inside = tuple(pair for columns in members.values() for pair in combinations(columns, 2))
        return CausalGraph(
            nodes=tuple(column for columns in members.values() for column in columns),
            edges=across(self.edges) + (inside if within == "ordered" else ()),
            undirected_edges=across(self.undirected_edges) + (inside if within == "undirected" else ()),
            latents=self.latents,
            exposures=flat(self.exposures),
            outcomes=flat(self.outcomes),
            knowledge=Knowledge(
                required=across(self.required),
                forbidden=across(self.forbidden),
                tiers=tuple(tuple(column for name in tier for column in members[name]) for tier in self.tiers),
            ),
        )

    # -- writing it out ------------------------------------------------------------------------------------------------

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
        """Return a networkx DiGraph; an undirected edge becomes a pair of edges with ``undirected=True``.

        Nodes have the flags ``latent``, ``exposure``, ``outcome`` and ``columns``; knowledge is kept on the graph.
        """
        import networkx as nx

        made: nx.DiGraph[str] = nx.DiGraph()
        for node in self.nodes:
            flags: dict[str, object] = {flag: True for names, flag in _FLAGS if node in getattr(self, names)}
            if node in self.groups:
                flags["columns"] = self.groups[node]
            made.add_node(node, **flags)
        made.add_edges_from(self.edges)
        for a, b in self.undirected_edges:
            made.add_edge(a, b, undirected=True)
            made.add_edge(b, a, undirected=True)
        if self.knowledge:
            made.graph["knowledge"] = self.knowledge
        return made

    def adjacency_matrix(self) -> npt.NDArray[np.int8]:
        """Return the 0/1 matrix in node order: 1 at [i, j] for i → j, and both ways for an undirected edge."""
        import numpy as np

        place = {node: number for number, node in enumerate(self.nodes)}
        matrix = np.zeros((len(place), len(place)), dtype=np.int8)
        for tail, head in self.edges:
            matrix[place[tail], place[head]] = 1
        for a, b in self.undirected_edges:
            matrix[place[a], place[b]] = matrix[place[b], place[a]] = 1
        return matrix

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

    # -- inside --------------------------------------------------------------------------------------------------------

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
        found = reach(start, step).difference(start)
        return tuple(name for name in self.nodes if name in found)

    def _need_dag(self, method: str) -> None:
        if not self.is_dag:
            edge = " — ".join(self.undirected_edges[0])
            raise GraphError(
                f"{method} needs a direction on every edge, and {edge} has none. "
                "Take graph.extension() for a graph of the same equivalence class."
            )


def _set_of(names: Names) -> frozenset[str]:
    return frozenset([names] if isinstance(names, str) else names)


def _restore(*values: Any) -> CausalGraph:  # Any: the values of __reduce__, in the order of the fields
    names = ("nodes", "edges", "undirected_edges", "latents", "exposures", "outcomes", "groups", "knowledge")
    return CausalGraph(**dict(zip(names, values, strict=True)))
