"""The report of a discovery: the drawn graph, how sure it is of each edge, what it cost, what it does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escudo.report._page import render
from escudo.report._promise import promise_sentence

if TYPE_CHECKING:
    from escudo.causal import CausalGraph
    from escudo.discovery import Discovery

__all__ = ["discovery_page"]

_MOST_NODES, _MOST_EDGES = 120, 400
_THIN, _THICK = 0.8, 4.2


def discovery_page(found: Discovery, *, dataset: str = "", known: CausalGraph | None = None) -> str:
    """Return the report of a discovery as one HTML page.

    Args:
        found: What was found; nothing on the page reads the private table again.
        dataset: What the table is called.
        known: What was known beforehand, for the picture's caption.
    """
    from markupsafe import Markup

    graph, guarantee = found.graph, found.guarantee
    drawable = len(graph) <= _MOST_NODES and len(graph.adjacencies) <= _MOST_EDGES
    widths = {
        pair: _THIN + (_THICK - _THIN) * found.confidence(*pair) for pair in (*graph.edges, *graph.undirected_edges)
    }
    notes = {pair: f"{100 * found.confidence(*pair):.0f} %" for pair in widths} if len(widths) <= 25 else {}
    return render(
        "discovery.html.j2",
        kind="Discovery",
        title=f"What causes what in {dataset}" if dataset else "What causes what in a private table",
        lead=_lead(found),
        source="",
        for_release=guarantee.for_release,
        cannot_tell=_sentence(found.cannot_tell),
        picture=Markup(graph.to_svg(edge_width=widths, edge_labels=notes)) if drawable else "",  # names are escaped
        known=_known(known),
        edges=_edges(found),
        promise=promise_sentence(guarantee),
        plan=str(found.plan),
        notes=found.notes,
        dot=graph.to_text("dot"),
        generating="\n".join(f"{a} -> {b}" for a, b in found.generating_graph.edges) or "no arrows",
        guarantee=str(guarantee),
        method=found.method,
        rows=f"{found.rows:,}",
    )


def _lead(found: Discovery) -> str:
    graph = found.graph
    if not graph.adjacencies:
        return "No edge stands out from the noise."
    count = len(graph.adjacencies)
    sure = sum(found.confidence(*pair) >= 0.9 for pair in graph.adjacencies)
    joined = f"{count} pair{'s' if count > 1 else ''} of {len(graph)} columns"
    told = f"{len(graph.edges)} of them with a direction" if graph.edges else "none of them with a direction"
    return f"{joined} depend on each other directly, {told}; {sure} with a confidence of 90 % or more."


def _edges(found: Discovery) -> list[dict[str, Any]]:
    ranked = [(pair, "→") for pair in found.graph.edges] + [(pair, "—") for pair in found.graph.undirected_edges]
    lines = []
    for (a, b), mark in sorted(ranked, key=lambda one: -found.confidence(*one[0])):
        sure, way = found.confidence(a, b), found.direction_confidence.get((a, b))
        lines.append(
            {
                "text": f"{a} {mark} {b}",
                "sure": f"{100 * sure:.1f}",
                "share": sure,
                "way": "" if way is None else f"{100 * way:.1f}",
                "open": "open" if mark == "—" else "known, or voted",
            }
        )
    return lines


def _known(known: CausalGraph | None) -> str:
    if known is None:
        return ""
    stated = len({*known.edges, *known.required})
    parts = [f"{stated} arrow{'s' if stated > 1 else ''} stated"] if stated else []
    parts += [f"{len(known.forbidden)} forbidden"] if known.forbidden else []
    parts += [f"{len(known.tiers)} tiers"] if known.tiers else []
    return f"Known beforehand: {', '.join(parts)}" if parts else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
