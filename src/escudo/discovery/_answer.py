"""What discovery answers: a graph that says how sure it is of each edge, and what it cost.

:class:`Discovery` where everything that matters was measured, :class:`AncestralDiscovery` where causes may be hidden.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType
from typing import Any, TypedDict

from escudo._files import listed
from escudo._plot import Drawn
from escudo.causal import AncestralGraph, CausalGraph, plot_graph, show_marked
from escudo.discovery._measurement import Levels, Residuals
from escudo.discovery._pattern import Edge
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Guarantee, Plan

_SHOWN, _DRAWN = 12, 60  # edges listed, and columns drawn, in a notebook


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The noisy residuals that a discovery rests on, and the levels they are about."""

    levels: Levels
    residuals: Residuals


class Told(TypedDict):
    """What every answer says of how it was found, and what that cost."""

    method: str
    plan: Plan
    guarantee: Guarantee
    rows: int
    notes: Sequence[str]


def told_by(purse: Purse, method: str, rows: float, notes: Sequence[str]) -> Told:
    """Return what an answer says that was paid from a purse; rows are as many as were measured, one at least."""
    return {
        "method": method,
        "plan": purse.plan,
        "guarantee": purse.guarantee,
        "rows": max(round(rows), 1),
        "notes": notes,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer(Drawn):
    """What both kinds of answers have: edges that are more or less sure, and what they cost."""

    graph: CausalGraph | AncestralGraph
    edge_confidence: Mapping[Edge, float]
    method: str
    plan: Plan
    guarantee: Guarantee
    rows: int
    cannot_tell: str = ""
    notes: Sequence[str] = ()

    _title = ""
    _about = ("", "")  # what the last part of a line is about, in text and as the head of a column

    def _settle(self, about: str, marks: Mapping[Edge, float]) -> None:
        """Check confidences, and keep copies that nobody changes; ``about`` names those of single marks."""
        sure = {(min(pair), max(pair)): float(value) for pair, value in self.edge_confidence.items()}
        if set(sure) != set(self.graph.adjacencies):
            raise InputError("edge_confidence must name the edges of graph, each once.")
        kept = {(a, b): float(value) for (a, b), value in marks.items()}
        if any(not 0 <= value <= 1 for value in (*sure.values(), *kept.values())):
            raise InputError("confidences must lie between 0 and 1.")
        object.__setattr__(self, "edge_confidence", MappingProxyType(sure))
        object.__setattr__(self, about, MappingProxyType(kept))
        object.__setattr__(self, "notes", tuple(self.notes))

    def confidence(self, first: str, second: str) -> float:
        """Return how likely two columns have an edge, in whatever order; 0 where the graph has none."""
        return self.edge_confidence.get((min(first, second), max(first, second)), 0.0)

    @property
    @abstractmethod
    def told(self) -> tuple[tuple[str, str, str], ...]:
        """Each edge as it is shown, the surest first: what it is, how sure it is, and how sure of its marks."""

    @abstractmethod
    def _edge_texts(self) -> dict[Edge, str]:
        """What a picture says beside each edge."""

    def _draw(self, axes: Any) -> Any:
        return plot_graph(self.graph, self._edge_texts(), title="Discovered graph", axes=axes)

    def _cost(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "rows": self.rows,
            "cannot_tell": self.cannot_tell,
            "notes": list(self.notes),
            "guarantee": self.guarantee.to_json(),
            "plan": self.plan.to_json(),
        }

    def __repr__(self) -> str:
        said = f"; cannot tell: {self.cannot_tell}" if self.cannot_tell else ""
        return f"<{type(self).__name__} ({self.method}): {self.graph.summary}{said}>"

    def __str__(self) -> str:
        wide = max((len(name) for name, _, _ in self.told), default=0)
        lines = [f"  {name:<{wide}}   {sure:>5}   {self._about[0]} {way}" for name, sure, way in self.told]
        return "\n".join([repr(self)[1:-1], *lines])

    def _repr_html_(self) -> str:
        pairs = self.told
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{sure}</td><td>{escape(way)}</td></tr>"
            for name, sure, way in pairs[:_SHOWN]
        )
        more = f"<p>and {len(pairs) - _SHOWN} more</p>" if len(pairs) > _SHOWN else ""
        heads = f"<tr><th>edge</th><th>sure</th><th>{self._about[1]}</th></tr>"
        table = f"<table><thead>{heads}</thead><tbody>{rows}</tbody></table>{more}"
        said = f"<p>Cannot tell more: {escape(self.cannot_tell)}.</p>" if self.cannot_tell else ""
        picture = self.graph.to_svg() if len(self.graph) <= _DRAWN else ""
        return (
            f"<div><strong>{self._title}</strong> ({escape(self.method)}): {escape(self.graph.summary)}{said}{picture}"
            f"{table if pairs else ''}<p>{escape(str(self.guarantee))}</p></div>"
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Discovery(_Answer):
    """A causal graph learnt from a private table.

    ``plot`` draws the graph; beside each edge, how sure it is, and of an arrow how sure of its direction.

    Attributes:
        graph: What the data support and no more: arrows where every equivalent graph has them (or where knowledge
            settles them), undirected edges where the direction cannot be told.
        generating_graph: A denser DAG from the same measurements, for synthesis: the reported edges, in their
            directions, and others that help to imitate the data but are not sure enough to be reported.
        edge_confidence: For each edge of ``graph``, as a sorted pair of names: the estimated probability that the two
            columns are adjacent in the true graph.
        direction_confidence: For each arrow of ``graph``: the estimated probability that it points the right way,
            given that the edge is there.
        method: What found it: ``"exact"``, ``"two-stage"``, ``"joint"`` or ``"gaussian"``.
        plan: The budget tree that was spent.
        guarantee: What was promised to the people in the table.
        rows: How many rows the table has: exactly where that is public, else noisy.
        cannot_tell: Why the data are too few for the budget, or an empty text. The graph is then a forest or empty.
        notes: Public remarks, such as columns that were merged or left out.
        tables: What was measured, for reuse by a generator: ``Measured`` residuals; None for other statistics.
    """

    graph: CausalGraph
    generating_graph: CausalGraph
    direction_confidence: Mapping[Edge, float] = field(default_factory=dict)
    tables: Measured | None = None

    _title = "Discovery"
    _about = ("direction", "of the direction")

    def __post_init__(self) -> None:
        if not self.generating_graph.is_dag:
            raise InputError("generating_graph must have a direction on every edge.")
        if not set(self.direction_confidence) <= set(self.graph.edges):
            raise InputError("direction_confidence must name arrows of graph.")
        self._settle("direction_confidence", self.direction_confidence)

    @property
    def told(self) -> tuple[tuple[str, str, str], ...]:
        """Each edge as it is shown, the surest first: what it is, how sure it is, and how sure of its direction."""
        pairs = [(pair, "→") for pair in self.graph.edges] + [(pair, "—") for pair in self.graph.undirected_edges]
        pairs.sort(key=lambda one: -self.confidence(*one[0]))

        def way(pair: Edge, mark: str) -> str:
            known = self.direction_confidence.get(pair)
            return "open" if mark == "—" else "given" if known is None else f"{100 * known:.0f} %"

        return tuple(
            (f"{a} {mark} {b}", f"{100 * self.confidence(a, b):.0f} %", way((a, b), mark)) for (a, b), mark in pairs
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values: edges with their confidence, the guarantee and the plan."""
        edges = [
            {
                "from": a,
                "to": b,
                "directed": directed,
                "confidence": round(self.confidence(a, b), 4),
                "direction_confidence": round(self.direction_confidence[a, b], 4)
                if (a, b) in self.direction_confidence
                else None,
            }
            for pairs, directed in ((self.graph.edges, True), (self.graph.undirected_edges, False))
            for a, b in pairs
        ]
        return {
            "columns": list(self.graph.nodes),
            "edges": edges,
            "generating_edges": [list(edge) for edge in self.generating_graph.edges],
            **self._cost(),
        }

    def to_pandas(self) -> Any:
        """Return the edges as a pandas frame: from, to, whether directed, and how sure of both.

        Raises:
            InputError: If pandas is not installed.
        """
        heads = ["from", "to", "directed", "confidence", "direction_confidence"]
        return listed([[edge[head] for head in heads] for edge in self.to_json()["edges"]], heads)

    def _edge_texts(self) -> dict[Edge, str]:
        notes = {pair: f"{self.confidence(*pair):.0%}" for pair in (*self.graph.edges, *self.graph.undirected_edges)}
        notes.update({pair: f"{notes[pair]}, direction {sure:.0%}" for pair, sure in self.direction_confidence.items()})
        return notes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AncestralDiscovery(_Answer):
    """What a private table says of causes, where some of them may be hidden.

    ``plot`` draws the graph with its marks, and beside each edge how sure it is.

    Attributes:
        graph: The partial ancestral graph: an arrow or a tail where one could be told, a circle where not.
        edge_confidence: For each edge, as a sorted pair of names: the estimated probability that the two columns depend
            on each other whatever other columns are given.
        mark_confidence: For (a, b), the estimated probability that the mark at b of their edge is right: of an arrow,
            that b is no cause of a; of a tail, that it is one. Circles, and marks that were known, have none.
        method: What measured it: ``"exact"``, ``"two-stage"`` or ``"gaussian"``.
        plan: The budget tree that was spent.
        guarantee: What was promised to the people in the table.
        rows: How many rows the table has: exactly where that is public, else noisy.
        cannot_tell: Why the data are too few for the budget, or an empty text.
        notes: Public remarks, such as columns that were merged or left out.
    """

    graph: AncestralGraph
    mark_confidence: Mapping[Edge, float] = field(default_factory=dict)

    _title = "Discovery with hidden causes"
    _about = ("marks", "of its marks")

    def __post_init__(self) -> None:
        if any(self.graph.kind(a, b)[-1:] in ("", "o") for a, b in self.mark_confidence):
            raise InputError("mark_confidence must name arrows and tails of graph.")
        self._settle("mark_confidence", self.mark_confidence)

    @property
    def told(self) -> tuple[tuple[str, str, str], ...]:
        """Each edge as it is shown, the surest first: what it is, how sure it is, and how sure of its marks."""
        ranked = sorted(self.graph.edges, key=lambda edge: -self.confidence(edge[0], edge[2]))

        def marks(a: str, kind: str, b: str) -> str:
            said = []
            for other, end, mark in ((b, a, kind[0]), (a, b, kind[-1])):
                known = self.mark_confidence.get((other, end))
                if mark != "o":
                    said.append(f"{end} {'given' if known is None else f'{100 * known:.0f} %'}")
            return ", ".join(said) or "open"

        return tuple(
            (show_marked(edge), f"{100 * self.confidence(edge[0], edge[2]):.0f} %", marks(*edge)) for edge in ranked
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values: edges with their marks and confidences, the guarantee and the plan."""

        def end(other: str, name: str, mark: str) -> dict[str, Any]:
            sure = self.mark_confidence.get((other, name))
            return {"column": name, "mark": mark, "confidence": None if sure is None else round(sure, 4)}

        words = {"o": "circle", ">": "arrow", "<": "arrow", "-": "tail"}
        return {
            "columns": list(self.graph.nodes),
            "hidden_causes": True,
            "edges": [
                {
                    "ends": [end(b, a, words[kind[0]]), end(a, b, words[kind[-1]])],
                    "kind": kind,
                    "confidence": round(self.confidence(a, b), 4),
                }
                for a, kind, b in self.graph.edges
            ],
            **self._cost(),
        }

    def to_pandas(self) -> Any:
        """Return the edges as a pandas frame: both columns, the marks between them, and how sure the edge is.

        Raises:
            InputError: If pandas is not installed.
        """
        rows = [(a, kind, b, self.confidence(a, b)) for a, kind, b in self.graph.edges]
        return listed(rows, ["first", "kind", "second", "confidence"])

    def _edge_texts(self) -> dict[Edge, str]:
        return {(a, b): f"{self.confidence(a, b):.0%}" for a, _, b in self.graph.edges}
