r"""AncestralGraph: what can be said of causes where some of them may not have been measured.

A *partial ancestral graph* (PAG) stands for all graphs, with any hidden common causes, that imply the same
independences among the measured columns. An edge has a mark at each end:

====== ============ =========================================================================
edge   in words     what every such graph says
====== ============ =========================================================================
a → b  tail, arrow  a is a cause of b (through others, perhaps), and b is none of a
a ↔ b  two arrows   neither is a cause of the other: a hidden cause acts on both
a o→ b circle       b is no cause of a; whether a is one of b is open
a o—o b two circles nothing but that no measured columns explain the dependence away
====== ============ =========================================================================

Columns are taken to be in the table whatever their values are (no selection), so that there are no other kinds.

**From independences to marks.** :func:`marks_of` sets the marks that follow from who is adjacent and which columns
separate the others: common effects first, then Zhang's rules R1 to R4 and R8 to R10, which are sound and complete
(R5 to R7 are about selection). :func:`ancestral_marks` asks them of a causal graph with latents: in it, two measured
columns are adjacent if and only if their measured ancestors do not separate them, and a column belongs to what
separates two others if and only if it is an ancestor of one of them.

**Visible edges.** a → b is *visible* if some c that is not adjacent to b has an edge into a, or a path into a on which
every inner column has arrows on both sides and is a cause of b. Then no hidden cause acts on a and b at once; of
another arrow a → b it may be that a causes b and that a hidden cause acts on both.

**Adjustment.** A set Z gives the effect of x on y in every graph of the class if and only if all paths that may be
causal leave x by a visible arrow, Z holds nothing that may descend from such a path, and Z blocks every other path of
which each column's status (common effect or not) is definite. If any set will do, so does that of all possible
ancestors of x and y that are not ruled out; columns it can do without are dropped from it.

**Reference.** J. Zhang (2008), "On the completeness of orientation rules for causal discovery in the presence of latent
confounders and selection bias", Artificial Intelligence 172, section 4; T. Richardson, P. Spirtes (2002), "Ancestral
graph Markov models", Annals of Statistics 30, theorem 4.2; E. Perković, J. Textor, M. Kalisch, M. Maathuis (2018),
"Complete graphical characterization and construction of adjustment sets", JMLR 18:220, definition 3 and theorem 12.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo.causal import formats
from escudo.causal._edges import Edge, checked_names, first_cycle, known_names, reach
from escudo.errors import GraphError, InputError, NotIdentifiableError

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph
    from escudo.causal.formats._source import Draft

MarkedEdge = tuple[str, str, str]
"""An edge as (one end, kind, other end), such as ``("smoke", "o->", "lung")``."""

KINDS = ("->", "<->", "o->", "o-o")
"""The kinds of edges, by their marks: tail and arrow, two arrows, circle and arrow, two circles."""

CIRCLE, ARROW, TAIL = 1, 2, 3
"""The marks at an end of an edge; 0 where there is no edge."""

Marks = list[list[int]]
"""At [a][b] the mark at b of the edge between columns a and b."""

_KIND_OF = {(TAIL, ARROW): "->", (ARROW, ARROW): "<->", (CIRCLE, ARROW): "o->", (CIRCLE, CIRCLE): "o-o"}
_MARKS_OF = {kind: marks for marks, kind in _KIND_OF.items()}
_SIGNS = {"->": "→", "<->": "↔", "o->": "o→", "o-o": "o—o"}
_MOST_STEPS = 200_000  # along paths, when looking for one that an adjustment leaves open


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AncestralGraph:
    """A partial ancestral graph over columns: who is a cause of whom, as far as hidden causes leave it to be told.

    Two graphs are equal if they say the same, in whatever order.

    Args:
        nodes: Names in the order they will be shown.
        edges: (one end, kind, other end), the kind one of ``->``, ``<->``, ``o->`` and ``o-o``; ``<-`` and ``<-o`` are
            turned round.

    Raises:
        GraphError: A name that is not a node, a pair given twice, arrows that make a cycle, or two columns with a
            hidden common cause and neither a cause of the other of which one is.

    Example:
        >>> graph = AncestralGraph.from_edges([("a", "o->", "b"), ("c", "o->", "b"), ("b", "->", "d")])
        >>> graph.descendants("b"), graph.possible_descendants("a"), graph.visible("b", "d")
        (('d',), ('b', 'd'), True)
        >>> print(graph)
        a o→ b
        c o→ b
        b → d
    """

    nodes: tuple[str, ...] = ()
    edges: tuple[MarkedEdge, ...] = ()
    _marks: dict[str, dict[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        nodes = checked_names("nodes", self.nodes)
        object.__setattr__(self, "nodes", nodes)
        marks: dict[str, dict[str, int]] = {name: {} for name in nodes}
        kept = []
        for edge in self.edges:
            a, kind, b = _checked(edge)
            known_names("edges", (a, b), nodes)
            if a == b:
                raise GraphError(f"edges has an edge from {a!r} to itself; nothing causes itself.")
            if b in marks[a]:
                raise GraphError(f"{a!r} and {b!r} have two edges. Keep one.")
            marks[b][a], marks[a][b] = _MARKS_OF[kind]
            kept.append((a, kind, b))
        object.__setattr__(self, "edges", tuple(kept))
        object.__setattr__(self, "_marks", marks)
        if cycle := first_cycle((a, b) for a, kind, b in kept if kind == "->"):
            raise GraphError(f"The arrows make a cycle: {cycle}. No column is a cause of itself; remove one of them.")
        for a, kind, b in kept:
            for cause, effect in ((a, b), (b, a)):
                if kind != "->" and marks[effect][cause] == ARROW and effect in self.descendants(cause):
                    raise GraphError(
                        f"{cause!r} is a cause of {effect!r} along arrows, and their edge says that it is none."
                    )

    @classmethod
    def from_edges(cls, edges: Iterable[MarkedEdge], nodes: Iterable[str] = ()) -> AncestralGraph:
        """Make a graph from marked edges; nodes are those given, then those the edges name."""
        listed = [_checked(edge) for edge in edges]
        named = dict.fromkeys([nodes] if isinstance(nodes, str) else nodes)
        for a, _, b in listed:
            named.update(dict.fromkeys((a, b)))
        return cls(nodes=tuple(named), edges=tuple(listed))

    @classmethod
    def from_marks(cls, nodes: Iterable[str], marks: Marks) -> AncestralGraph:
        """Make a graph from the mark at each end of each edge, by number; a mark alone says that there is no edge."""
        names = tuple(nodes)
        edges = []
        for a, b in combinations(range(len(names)), 2):
            if not marks[a][b] or not marks[b][a]:
                continue
            first, second = (a, b) if (marks[b][a], marks[a][b]) in _KIND_OF else (b, a)
            kind = _KIND_OF.get((marks[second][first], marks[first][second]))
            if kind is None:
                raise GraphError(f"{names[a]!r} and {names[b]!r} have an edge with a tail, and no arrow at its end.")
            edges.append((names[first], kind, names[second]))
        return cls(nodes=names, edges=tuple(edges))

    @classmethod
    def parse(cls, text: str, format: formats.FormatName | None = None, *, source: str = "text") -> AncestralGraph:
        """Read a graph from DOT, with ``odot`` for circles, or from dagitty's ``pag { a @-> b }``.

        Raises:
            ParseError: The text cannot be read, with its line and column.
            GraphError: The text is readable but no partial ancestral graph.
        """
        draft = formats.read_draft(text, format, source, ancestral=True)
        with formats.naming(source):
            edges = [(a, _kind(draft, a, b, *ends), b) for (a, b), ends in draft.marked.items()]
            return cls.from_edges(edges, nodes=draft.nodes)

    @classmethod
    def read(cls, path: str | Path, format: formats.FormatName | None = None) -> AncestralGraph:
        """Read a graph from a file; its name's ending tells the format (``.gz`` is unpacked), else its content does."""
        text, format, name = formats.read_file(path, format)
        return cls.parse(text, format, source=name)

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def adjacencies(self) -> tuple[Edge, ...]:
        """Every adjacent pair once, as a sorted tuple of sorted pairs."""
        return tuple(sorted((min(a, b), max(a, b)) for a, _, b in self.edges))

    def neighbours(self, node: str) -> tuple[str, ...]:
        """Return the nodes that are adjacent to one, in node order."""
        around = self._around(node)
        return tuple(name for name in self.nodes if name in around)

    def kind(self, first: str, second: str) -> str:
        """Return the edge between two nodes as seen from the first: ``"->"``, ``"<-o"``, ...; empty where none is."""
        if second not in self._around(first):
            return ""
        at_first, at_second = self._marks[second][first], self._marks[first][second]
        return {CIRCLE: "o", ARROW: "<", TAIL: ""}[at_first] + "-" + {CIRCLE: "o", ARROW: ">", TAIL: ""}[at_second]

    def descendants(self, node: str) -> tuple[str, ...]:
        """Return what a node is certainly a cause of: all that arrows lead to."""
        return self._reached(node, lambda a, b: self._marks[b][a] == TAIL)

    def possible_descendants(self, node: str) -> tuple[str, ...]:
        """Return what a node may be a cause of: all that edges lead to which have no arrow on the way back."""
        return self._reached(node, self._may_lead)

    def visible(self, cause: str, effect: str) -> bool:
        """Return whether cause → effect says that no hidden cause acts on both of them as well."""
        if self.kind(cause, effect) != "->":
            return False
        found, waiting = {cause}, [cause]
        while waiting:
            here = waiting.pop()
            for other in self._marks[here]:
                if other in found or other == effect or self._marks[other][here] != ARROW:
                    continue
                if effect not in self._marks[other]:
                    return True
                if self._marks[here][other] == ARROW and self._marks[effect][other] == TAIL:
                    found.add(other)
                    waiting.append(other)
        return False

    @property
    def summary(self) -> str:
        """A short description: how many nodes and edges of each kind."""
        counted = [(len(self.nodes), "node", "nodes")]
        for kind, one in (("->", "arrow"), ("<->", "hidden common cause"), ("o->", "half open"), ("o-o", "open")):
            many = one if kind.startswith("o") else f"{one}s"
            counted.append((sum(edge[1] == kind for edge in self.edges), one, many))
        return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counted if n or one in ("node", "arrow"))

    def __contains__(self, node: object) -> bool:
        return node in self._marks

    def __len__(self) -> int:
        return len(self.nodes)

    def skeleton_f1(self, other: AncestralGraph) -> float:
        """Return the F1 score of the adjacencies, marks ignored; 1.0 where neither graph has an edge."""
        ours, theirs = set(self.adjacencies), set(other.adjacencies)
        return 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 1.0

    # -- adjusting for other columns -----------------------------------------------------------------------------------

    def adjustment(self, treatment: str, outcome: str, usable: Collection[str] | None = None) -> tuple[str, ...]:
        """Return columns that, adjusted for, give the effect of one column on another in every graph of the class.

        Args:
            treatment: The cause.
            outcome: The effect.
            usable: The columns that may be adjusted for; all by default.

        Raises:
            NotIdentifiableError: If no such set exists; says which edge or path leaves it open.
            InputError: If the treatment cannot be a cause of the outcome.
        """
        question = _Adjustment(self, treatment, outcome)
        found = question.largest(self.nodes if usable is None else usable)
        question.check(found)
        for name in sorted(found, key=self.nodes.index, reverse=True):
            if question.open_path(found - {name}) is None:
                found = found - {name}
        return tuple(name for name in self.nodes if name in found)

    def check_adjustment(self, treatment: str, outcome: str, columns: Collection[str]) -> None:
        """Raise unless adjusting for these columns gives the effect in every graph of the class.

        Raises:
            NotIdentifiableError: Says which edge, column or path is in the way.
            InputError: If the treatment cannot be a cause of the outcome.
            GraphError: If the graph does not have one of the columns.
        """
        known_names("adjust", columns, self.nodes)
        _Adjustment(self, treatment, outcome).check(set(columns))

    # -- writing it out ------------------------------------------------------------------------------------------------

    def to_text(self, format: formats.FormatName = "dot") -> str:
        """Return the graph as text: DOT, with ``odot`` for circles, or dagitty's ``pag { }``.

        Raises:
            GraphError: The format has no circles.
        """
        return formats.write_ancestral(self, format)

    def write(self, path: str | Path, format: formats.FormatName | None = None) -> None:
        """Write the graph to a file, replacing it if it exists; the name's ending tells the format."""
        path = Path(path)
        formats.write_text(path, self.to_text(format or formats.format_of(path)))

    def to_svg(self, **options: Any) -> str:  # Any: the options are typed where they are documented
        """Return a layered drawing as SVG text; the options are those of :func:`escudo.causal.draw`."""
        from escudo.causal._draw import draw

        return draw(self, **options)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __str__(self) -> str:
        return "\n".join(map(show_marked, self.edges))

    def __repr__(self) -> str:
        return f"<AncestralGraph: {self.summary}>"

    def _content(self) -> tuple[object, ...]:
        marks = frozenset((a, b, mark) for a, around in self._marks.items() for b, mark in around.items())
        return frozenset(self.nodes), marks

    def __eq__(self, other: object) -> bool:
        return self._content() == other._content() if isinstance(other, AncestralGraph) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _around(self, node: str) -> dict[str, int]:
        if node not in self._marks:
            known_names("The question", [node], self.nodes)
        return self._marks[node]

    def _may_lead(self, a: str, b: str) -> bool:
        """Return whether the edge between a and b may be passed from a to b by causes: no arrow at a."""
        return self._marks[b][a] != ARROW

    def _reached(self, node: str, passes: Callable[[str, str], bool]) -> tuple[str, ...]:
        self._around(node)
        found = reach([node], lambda a: (b for b in self._marks[a] if passes(a, b)))
        return tuple(name for name in self.nodes if name in found and name != node)


def as_graph(graph: Any) -> Any:  # Any: what a user hands over, and the graph that it is
    """Return a graph as a verb takes it: one of networkx as a :class:`CausalGraph`, ours and None as they are.

    Raises:
        GraphError: If it is none of them.
    """
    from escudo.causal._graph import CausalGraph

    if graph is None or isinstance(graph, CausalGraph | AncestralGraph):
        return graph
    if hasattr(graph, "is_directed"):
        return CausalGraph.from_networkx(graph)
    raise GraphError(
        f"graph must be a CausalGraph or a networkx graph; got {type(graph).__name__}. CausalGraph.read takes a file, "
        "CausalGraph.parse a text and CausalGraph.from_edges pairs of names."
    )


def read_graph(path: str | Path) -> CausalGraph | AncestralGraph:
    """Read a causal graph from a file, or a partial ancestral graph where the file states one."""
    from escudo.causal._graph import CausalGraph

    return (AncestralGraph if formats.states_ancestry(formats.read_text(Path(path))) else CausalGraph).read(path)


def show_marked(edge: MarkedEdge) -> str:
    """Return ``a o→ b``."""
    return f"{edge[0]} {_SIGNS[edge[1]]} {edge[2]}"


def _checked(edge: object) -> MarkedEdge:
    """Return a marked edge with its kind as one of ``KINDS``, or raise if it is none."""
    if not isinstance(edge, tuple | list) or len(edge) != 3 or not all(isinstance(part, str) for part in edge):
        raise GraphError(f"edges must hold triples such as ('smoke', 'o->', 'lung'); got {edge!r:.60}.")
    a, kind, b = edge
    if kind in ("<-", "<-o"):
        a, kind, b = b, {"<-": "->", "<-o": "o->"}[kind], a
    if kind not in KINDS:
        raise GraphError(
            f"an edge between {a!r:.40} and {b!r:.40} must be one of {', '.join(KINDS)}; got {kind!r:.40}. Other marks "
            "say that rows were selected by their values, which is not allowed for."
        )
    return a, kind, b


def _kind(draft: Draft, a: str, b: str, at_a: str, at_b: str) -> str:
    """Return the kind of an edge of a file."""
    left = {"arrow": "<", "circle": "o", "tail": ""}[at_a]
    right = {"arrow": ">", "circle": "o", "tail": ""}[at_b]
    if left + right in ("", "o"):
        raise draft.source.error(
            f"the edge between {a!r:.40} and {b!r:.40} has a tail without an arrow at its other end, as if rows had "
            "been selected by their values, which is not allowed for"
        )
    return f"{left}-{right}"


class _Adjustment:
    """Whether columns may be adjusted for, to learn the effect of one column on another."""

    def __init__(self, graph: AncestralGraph, treatment: str, outcome: str):
        self._graph, self._treatment, self._outcome = graph, treatment, outcome
        marks = graph._marks
        known_names("The question", (treatment, outcome), graph.nodes)
        after = set(graph.possible_descendants(treatment))
        if outcome not in after:
            raise InputError(
                f"The graph says that {treatment!r} is no cause of {outcome!r}: no path leads from one to the other "
                "without an arrow against it. There is no effect to estimate."
            )
        before = reach(
            [outcome], lambda b: (a for a in marks[b] if a != treatment and graph._may_lead(a, b) and a in after)
        )
        self._first = [name for name in marks[treatment] if name in before and graph._may_lead(treatment, name)]
        self._forbidden = {treatment, outcome}
        for name in before:
            self._forbidden.update((name, *graph.possible_descendants(name)))

    def largest(self, usable: Collection[str]) -> set[str]:
        """Return all columns that may be adjusted for: possible causes of either that are not ruled out."""
        graph, ends = self._graph, (self._treatment, self._outcome)
        possible = reach(ends, lambda b: (a for a in graph._marks[b] if graph._may_lead(a, b)))
        return {name for name in possible if name in usable and name not in self._forbidden}

    def check(self, columns: Collection[str]) -> None:
        """Raise unless these columns will do."""
        treatment, outcome = self._treatment, self._outcome
        for name in self._first:
            kind = self._graph.kind(treatment, name)
            if kind != "->":
                raise NotIdentifiableError(
                    f"The effect of {treatment!r} on {outcome!r} depends on what the graph leaves open: "
                    f"{treatment} {kind} {name} may be a cause, or a hidden cause of both. Measure more columns, state "
                    "what is known (knowledge=), or, if the treatment was assigned by chance, say so (trial=True)."
                )
            if not self._graph.visible(treatment, name):
                raise NotIdentifiableError(
                    f"The effect of {treatment!r} on {outcome!r} is not identified: {treatment} → {name} may have a "
                    "hidden cause of both beside it, and nothing in the graph rules that out."
                )
        if bad := sorted(set(columns) & (self._forbidden - {treatment, outcome})):
            raise NotIdentifiableError(
                f"Adjusting for {bad[0]!r} would hide part of the effect of {treatment!r} on {outcome!r}: it may lie "
                "on a causal path between them, or be an effect of one. Leave it out of adjust."
            )
        if path := self.open_path(columns):
            raise NotIdentifiableError(
                f"The effect of {treatment!r} on {outcome!r} is not identified by adjusting for "
                f"{', '.join(sorted(columns)) or 'nothing'}: the path {' '.join(path)} stays open."
            )

    def open_path(self, columns: Collection[str]) -> list[str] | None:
        """Return a path that is not causal and stays open given some columns, with its marks; None if none does.

        Only paths count of which every column is certainly a common effect, or certainly none.
        """
        graph, marks = self._graph, self._graph._marks
        given = set(columns)
        above = {name for name in graph.nodes if name in given or given.intersection(graph.descendants(name))}
        steps = 0

        def onwards(path: list[str]) -> Iterator[list[str]]:
            nonlocal steps
            here = path[-1]
            for after in marks[here]:
                steps += 1
                if after in path:
                    continue
                if len(path) > 1:
                    before = path[-2]
                    into = marks[before][here], marks[after][here]
                    collider = into == (ARROW, ARROW)
                    plain = TAIL in into or (into == (CIRCLE, CIRCLE) and after not in marks[before])
                    if not (here in above if collider else plain and here not in given):
                        continue
                yield [*path, after]

        waiting = [[self._treatment]]
        while waiting:
            if steps > _MOST_STEPS:
                raise NotIdentifiableError(
                    f"The graph has too many paths between {self._treatment!r} and {self._outcome!r} to check what to "
                    "adjust for. State the columns yourself, without a graph (adjust=[...])."
                )
            for path in onwards(waiting.pop()):
                if path[-1] != self._outcome:
                    waiting.append(path)
                elif not all(graph._may_lead(a, b) for a, b in pairwise(path)):
                    shown = [path[0]]
                    for a, b in pairwise(path):
                        shown += [graph.kind(a, b), b]
                    return shown
        return None


# ---- from independences to marks


def ancestral_marks(graph: CausalGraph) -> tuple[tuple[str, ...], Marks]:
    """Return the observed nodes of a DAG and the marks of its partial ancestral graph."""
    import networkx as nx

    names = graph.observed
    whole = graph.to_networkx()
    observed = set(names)
    above = {name: {*graph.ancestors(name), name} & observed for name in names}
    separators: dict[frozenset[int], frozenset[int]] = {}
    place = {name: number for number, name in enumerate(names)}
    adjacent = [[False] * len(names) for _ in names]
    for a, b in combinations(names, 2):
        between = (above[a] | above[b]) - {a, b}
        i, j = place[a], place[b]
        if nx.is_d_separator(whole, {a}, {b}, between):
            separators[frozenset((i, j))] = frozenset(place[name] for name in between)
        else:
            adjacent[i][j] = adjacent[j][i] = True
    return names, marks_of(adjacent, lambda a, c, b: b in separators[frozenset((a, c))])


def marks_of(
    adjacent: Collection[Collection[bool]],
    separates: Callable[[int, int, int], bool | None],
    known: Mapping[tuple[int, int], int] | None = None,
) -> Marks:
    """Return the marks that follow from who is adjacent and what separates the others, by Zhang's rules.

    Args:
        adjacent: Which columns are adjacent.
        separates: Of columns a and c that are not adjacent, and a third b: whether b belongs to what separates them;
            None where that cannot be told, and then nothing is concluded from it.
        known: Marks that are known beforehand, by (other end, end).
    """
    rules = _Rules([[CIRCLE if joined else 0 for joined in row] for row in adjacent], separates)
    for (a, b), mark in (known or {}).items():
        rules.put(a, b, mark)
    return rules.all_marks()


class _Rules:
    """Zhang's orientation rules on the marks at both ends of each edge; each fills circles and nothing else."""

    def __init__(self, marks: Marks, separates: Callable[[int, int, int], bool | None]):
        self.marks, self._separates = marks, separates
        self._columns = range(len(marks))
        self._near = [[b for b in self._columns if marks[a][b]] for a in self._columns]

    def put(self, a: int, b: int, mark: int) -> bool:
        """Set the mark at b of the edge between a and b, if it is open."""
        if self.marks[a][b] != CIRCLE:
            return False
        self.marks[a][b] = mark
        return True

    def all_marks(self) -> Marks:
        """Apply the rules until none adds a mark."""
        m = self.marks
        for b in self._columns:
            for a, c in combinations(self._near[b], 2):
                if not m[a][c] and self._separates(a, c, b) is False:
                    self.put(a, b, ARROW)
                    self.put(c, b, ARROW)
        while any([self._first(), self._second(), self._third(), self._fourth()]):
            pass
        while any([self._eighth(), self._ninth(), self._tenth()]):
            pass
        return m

    def _first(self) -> bool:
        """A *→ b o—* c without a, c adjacent, b no common effect: b → c."""
        m, changed = self.marks, False
        for b in self._columns:
            for a in self._near[b]:
                for c in self._near[b] if m[a][b] == ARROW else ():
                    if c != a and not m[a][c] and m[c][b] == CIRCLE and self._separates(a, c, b):
                        changed |= self.put(c, b, TAIL) | self.put(b, c, ARROW)
        return changed

    def _second(self) -> bool:
        """A → b *→ c or a *→ b → c, and a *—o c: a *→ c."""
        m, changed = self.marks, False
        for a in self._columns:
            for c in self._near[a]:
                for b in self._near[a] if m[a][c] == CIRCLE else ():
                    if m[a][b] == ARROW and m[b][c] == ARROW and (m[b][a] == TAIL or m[c][b] == TAIL):
                        changed |= self.put(a, c, ARROW)
        return changed

    def _third(self) -> bool:
        """A *→ b ←* c, a *—o d o—* c, a and c not adjacent, d *—o b: d *→ b."""
        m, changed = self.marks, False
        for b in self._columns:
            for d in self._near[b]:
                if m[d][b] != CIRCLE:
                    continue
                ends = [a for a in self._near[b] if m[a][b] == ARROW and m[a][d] == CIRCLE]
                if any(not m[a][c] and self._separates(a, c, d) for a, c in combinations(ends, 2)):
                    changed |= self.put(d, b, ARROW)
        return changed

    def _fourth(self) -> bool:
        """A path (t, ..., a, b, c) on which all between t and b are common effects and causes of c, t and c apart.

        If b belongs to what separates t and c it is a cause of c, otherwise a common effect of a and c.
        """
        m, changed = self.marks, False
        for b in self._columns:
            for c in self._near[b]:
                if m[c][b] != CIRCLE:
                    continue
                for a in self._near[b]:
                    if a == c or m[b][a] != ARROW or m[a][c] != ARROW or m[c][a] != TAIL:
                        continue
                    end = self._discriminated(a, b, c)
                    cause = None if end is None else self._separates(end, c, b)
                    if cause:
                        changed |= self.put(c, b, TAIL) | self.put(b, c, ARROW)
                    elif cause is False:
                        changed |= self.put(a, b, ARROW) | self.put(c, b, ARROW) | self.put(b, c, ARROW)
        return changed

    def _discriminated(self, a: int, b: int, c: int) -> int | None:
        """Return the far end of a shortest path that discriminates b, with a next to it; None if there is none."""
        m, found, waiting = self.marks, {a, b, c}, [a]
        for here in waiting:  # grows as it goes: breadth first
            for other in self._near[here]:
                if other in found or m[other][here] != ARROW:
                    continue
                if not m[other][c]:
                    return other
                if m[here][other] == ARROW and m[other][c] == ARROW and m[c][other] == TAIL:
                    found.add(other)
                    waiting.append(other)
        return None

    def _eighth(self) -> bool:
        """A → b → c and a o→ c: a → c."""
        m, changed = self.marks, False
        for a, c in self._half_open():
            if any(
                m[a][b] == ARROW and m[b][a] == TAIL and m[b][c] == ARROW and m[c][b] == TAIL for b in self._near[a]
            ):
                changed |= self.put(c, a, TAIL)
        return changed

    def _ninth(self) -> bool:
        """A o→ c, and an uncovered path (a, b, ..., c) that may be directed, b and c not adjacent: a → c."""
        changed = False
        for a, c in self._half_open():
            starts = [b for b in self._near[a] if b != c and not self.marks[b][c] and self._may_lead(a, b)]
            if any(c in self._uncovered(a, b) for b in starts):
                changed |= self.put(c, a, TAIL)
        return changed

    def _tenth(self) -> bool:
        """A o→ c, b → c ← d, uncovered paths from a to b and to d that start apart: a → c."""
        m, changed = self.marks, False
        for a, c in self._half_open():
            parents = {b for b in self._near[c] if b != a and m[b][c] == ARROW and m[c][b] == TAIL}
            starts = [b for b in self._near[a] if b != c and self._may_lead(a, b)]
            ends = {b: parents & self._uncovered(a, b) for b in starts}
            for one, other in combinations(starts, 2):
                if not m[one][other] and any(b != d for b in ends[one] for d in ends[other]):
                    changed |= self.put(c, a, TAIL)
        return changed

    def _half_open(self) -> list[tuple[int, int]]:
        m = self.marks
        return [(a, c) for a in self._columns for c in self._near[a] if m[a][c] == ARROW and m[c][a] == CIRCLE]

    def _may_lead(self, a: int, b: int) -> bool:
        return self.marks[b][a] != ARROW and self.marks[a][b] != TAIL

    def _uncovered(self, a: int, b: int) -> set[int]:
        """Return where uncovered paths lead that may be directed and begin with the edge from a to b."""
        found, waiting = {(a, b)}, [(a, b)]
        while waiting:
            before, here = waiting.pop()
            for after in self._near[here]:
                step = (here, after)
                if step in found or after in (before, a) or self.marks[before][after] or not self._may_lead(*step):
                    continue
                found.add(step)
                waiting.append(step)
        return {end for _, end in found}
