"""What a reader has gathered from a file, before it is checked and becomes a graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from escudo.causal.formats._source import Source, shown

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["MAX_EDGES", "Draft", "extras_of", "flags_of"]

MAX_EDGES = 1_000_000
"""The most edges one file may state: ``{a b c} -> {d e f}`` multiplies, so a short text can ask for a great many."""

_YES = {"", "1", "true", "yes", "y", "on"}
_NO = {"0", "false", "no", "n", "off"}
_CONFOUNDER_LABEL = "unobserved confounders"  # how DoWhy marks a latent node


@dataclass(slots=True)
class Draft:
    """Nodes, edges and flags in the order met; duplicates and contradictions are left to the graph's own checks."""

    source: Source
    nodes: dict[str, None] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    undirected: dict[tuple[str, str], None] = field(default_factory=dict)
    bidirected: dict[tuple[str, str], None] = field(default_factory=dict)
    latents: set[str] = field(default_factory=set)
    exposures: set[str] = field(default_factory=set)
    outcomes: set[str] = field(default_factory=set)
    extras: dict[str, Any] = field(default_factory=dict)
    stated: int = 0

    def add_node(self, name: str, attributes: Mapping[str, str], at: int) -> None:
        """Add a node, reading its latent, exposure and outcome flags from its attributes."""
        if not name.strip():
            raise self.source.error("a node's name is empty", at)
        self.nodes.setdefault(name)
        for flag in flags_of(attributes):
            {"latent": self.latents, "exposure": self.exposures, "outcome": self.outcomes}[flag].add(name)

    def add_edge(self, tail: str, head: str, *, arrow_at_tail: bool, arrow_at_head: bool, at: int) -> None:
        """Add an edge by its two ends: one arrowhead is a cause, none is undirected, two are a latent common cause."""
        if tail == head:
            raise self.source.error(f"an edge from {shown(tail)} to itself; nothing causes itself", at)
        if arrow_at_tail and not arrow_at_head:
            tail, head = head, tail
        kind = self.edges if arrow_at_tail != arrow_at_head else self.bidirected if arrow_at_tail else self.undirected
        kind.setdefault((tail, head))
        self.stated += 1
        if self.stated > MAX_EDGES:
            raise self.source.error(f"this file states more than {MAX_EDGES:,} edges", at)

    def read_extras(self, text: str, at: int) -> None:
        """Read groups and knowledge from the JSON text that :func:`extras_of` writes."""
        try:
            extras = json.loads(text)
            if not isinstance(extras, dict):
                raise ValueError
            self.extras = {
                "groups": {str(name): tuple(map(_name, columns)) for name, columns in extras.get("groups", {}).items()},
                "required": [_pair(pair) for pair in extras.get("required", [])],
                "forbidden": [_pair(pair) for pair in extras.get("forbidden", [])],
                "tiers": [tuple(map(_name, tier)) for tier in extras.get("tiers", [])],
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self.source.error(
                "the 'escudo' attribute must be JSON with groups, required, forbidden and tiers, as escudo writes it",
                at,
            ) from None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``CausalGraph.from_edges``; each ``a <-> b`` has become a latent cause of both."""
        nodes, edges, latents = dict(self.nodes), dict(self.edges), set(self.latents)
        for a, b in self.bidirected:
            if (b, a) in self.bidirected and (b, a) < (a, b):
                continue
            name, number = f"U_{a}_{b}", 1
            while name in nodes:
                number += 1
                name = f"U_{a}_{b}_{number}"
            nodes[name] = None
            latents.add(name)
            edges[name, a] = edges[name, b] = None
        return {
            "edges": list(edges),
            "nodes": list(nodes),
            "undirected": list(self.undirected),
            "latents": latents,
            "exposures": self.exposures,
            "outcomes": self.outcomes,
            **self.extras,
        }


def flags_of(attributes: Mapping[str, object]) -> Iterator[str]:
    """Yield ``latent``, ``exposure`` or ``outcome`` for each attribute that says so, in any tool's way of saying it."""
    for name, raw in attributes.items():
        key, value = name.lower(), str(raw).strip().lower()
        if (
            (key in ("latent", "unobserved", "hidden") and value in _YES)
            or (key == "observed" and value in _NO)
            or (key == "label" and value == _CONFOUNDER_LABEL)
        ):
            yield "latent"
        elif key in ("exposure", "outcome") and value in _YES:
            yield key


def extras_of(graph: CausalGraph) -> str | None:
    """Return the graph's groups and knowledge as JSON for one attribute, or None where it has neither."""
    extras: dict[str, object] = {
        "groups": {name: list(columns) for name, columns in graph.groups.items()},
        "required": graph.required,
        "forbidden": graph.forbidden,
        "tiers": graph.tiers,
    }
    kept = {key: value for key, value in extras.items() if value}
    return json.dumps(kept, ensure_ascii=False) if kept else None


def _pair(value: Iterable[object]) -> tuple[str, str]:
    tail, head = value
    return _name(tail), _name(head)


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a name must be text")
    return value
