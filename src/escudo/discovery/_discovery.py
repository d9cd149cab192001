"""Discovery: a private causal graph, how sure it is of each edge, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType
from typing import Any, Protocol

from escudo.causal import CausalGraph
from escudo.discovery._levels import Levels
from escudo.discovery._residuals import Residuals
from escudo.errors import InputError
from escudo.mechanisms import Seed
from escudo.privacy import Account, Guarantee, Plan
from escudo.table import PrivateTable

__all__ = ["Discovery", "Edge", "Measured", "Prepared"]

Edge = tuple[str, str]

_SHOWN, _DRAWN = 12, 60  # edges listed, and columns drawn, in a notebook


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The noisy residuals that a discovery rests on, and the levels they are about."""

    levels: Levels
    residuals: Residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """A causal graph learnt from a private table.

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
    edge_confidence: Mapping[Edge, float]
    direction_confidence: Mapping[Edge, float] = field(default_factory=dict)
    method: str
    plan: Plan
    guarantee: Guarantee
    rows: int
    cannot_tell: str = ""
    notes: Sequence[str] = ()
    tables: Measured | None = None

    def __post_init__(self) -> None:
        if not self.generating_graph.is_dag:
            raise InputError("generating_graph must have a direction on every edge.")
        sure = {(min(pair), max(pair)): float(value) for pair, value in self.edge_confidence.items()}
        if set(sure) != set(self.graph.adjacencies):
            raise InputError("edge_confidence must name the edges of graph, each once.")
        ways = {(a, b): float(value) for (a, b), value in self.direction_confidence.items()}
        if not set(ways) <= set(self.graph.edges):
            raise InputError("direction_confidence must name arrows of graph.")
        if any(not 0 <= value <= 1 for value in (*sure.values(), *ways.values())):
            raise InputError("confidences must lie between 0 and 1.")
        object.__setattr__(self, "edge_confidence", MappingProxyType(sure))
        object.__setattr__(self, "direction_confidence", MappingProxyType(ways))
        object.__setattr__(self, "notes", tuple(self.notes))

    def confidence(self, first: str, second: str) -> float:
        """Return how likely two columns are adjacent, in whatever order; 0 where the graph has no such edge."""
        return self.edge_confidence.get((min(first, second), max(first, second)), 0.0)

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
            "method": self.method,
            "rows": self.rows,
            "cannot_tell": self.cannot_tell,
            "notes": list(self.notes),
            "guarantee": self.guarantee.to_json(),
            "plan": self.plan.to_json(),
        }

    def __repr__(self) -> str:
        said = f"; cannot tell: {self.cannot_tell}" if self.cannot_tell else ""
        return f"<Discovery ({self.method}): {self.graph.summary}{said}>"

    def _repr_html_(self) -> str:
        pairs = [(pair, "→") for pair in self.graph.edges] + [(pair, "—") for pair in self.graph.undirected_edges]
        pairs.sort(key=lambda one: -self.confidence(*one[0]))
        rows = "".join(
            f"<tr><td>{escape(f'{a} {mark} {b}')}</td><td>{self.confidence(a, b):.0%}</td></tr>"
            for (a, b), mark in pairs[:_SHOWN]
        )
        more = f"<p>and {len(pairs) - _SHOWN} more</p>" if len(pairs) > _SHOWN else ""
        table = f"<table><thead><tr><th>edge</th><th>sure</th></tr></thead><tbody>{rows}</tbody></table>{more}"
        said = f"<p>Cannot tell more: {escape(self.cannot_tell)}.</p>" if self.cannot_tell else ""
        picture = self.graph.to_svg() if len(self.graph) <= _DRAWN else ""
        return (
            f"<div><strong>Discovery</strong> ({escape(self.method)}): {escape(self.graph.summary)}{said}{picture}"
            f"{table if pairs else ''}<p>{escape(str(self.guarantee))}</p></div>"
        )


class Prepared(Protocol):
    """A method that knows what it will measure and how loudly, before any row is read.

    ``_gaussian.py`` offers ``prepare(schema, knowledge, *, epsilon, delta, relation, public_rows) -> Prepared``, and so
    does ``_discrete.py``. :func:`~escudo.discovery.discover` charges the plan, runs it, and puts the guarantee of the
    charge in place of the one that ``run`` filled in.
    """

    @property
    def plan(self) -> Plan:
        """The budget tree, stated at the δ asked for: all that ``run`` will spend."""
        ...

    def run(self, table: PrivateTable, account: Account, seed: Seed) -> Discovery:
        """Measure what the plan shows, charging ``account`` before noise is drawn, and search."""
        ...
