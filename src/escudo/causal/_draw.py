"""The picture of a causal graph, as one self-contained SVG: no script, no font, no graphviz."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeVar
from unicodedata import combining, east_asian_width
from xml.sax.saxutils import escape, quoteattr

from escudo._validate import did_you_mean, one_of, positive
from escudo.causal._check import Edge, known_names, show_edge
from escudo.causal._layout import Layout, Point, lay_out
from escudo.errors import GraphError

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["draw"]

_T = TypeVar("_T")
_K = TypeVar("_K")

_MARGIN = 10.0
_FONT = 13.0
_LINE = 16.0
_LONGEST = 36
_MANY = 60  # nodes, above which the drawing is set tighter
_MANY_EDGES = 200  # edges, above which they are drawn fainter
_COMFORTABLE = 1000.0  # wider than this, arrows that run to the right may fit better
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_NARROW, _WIDE = set("fijlrtI.,:;'|!()[]{} "), set("mwMW@%&")

# Blue, orange and green from Okabe and Ito's palette, which stay apart for colour-blind readers; latents are dashed and
# groups double as well, so that nothing hangs on colour. Text and arrows take the page's own colour; a picture that is
# a page of its own follows the reader's light or dark setting.
_STYLE = """
.escudo-graph text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:currentColor}
.escudo-graph .node rect{fill:#56b4e9;fill-opacity:.16;stroke:#3a8bc2;stroke-width:1.3}
.escudo-graph .node text{text-anchor:middle}
.escudo-graph .exposure rect{fill:#009e73;fill-opacity:.24;stroke:#009e73;stroke-width:2}
.escudo-graph .outcome rect{fill:#e69f00;fill-opacity:.28;stroke:#d08700;stroke-width:2}
.escudo-graph .latent rect{fill:none;stroke:currentColor;stroke-opacity:.6;stroke-dasharray:4 3}
.escudo-graph .latent text{font-style:italic}
.escudo-graph .node .columns{font-size:11px;fill-opacity:.7}
.escudo-graph .edge path{fill:none;stroke:currentColor;stroke-opacity:.62}
.escudo-graph .edge polygon{fill:currentColor;fill-opacity:.75}
.escudo-graph.many .edge path{stroke-opacity:.38}
.escudo-graph .edge text{font-size:12px}
.escudo-graph .edge:hover path{stroke:#d55e00;stroke-opacity:1}
.escudo-graph .edge:hover polygon{fill:#d55e00;fill-opacity:1}
svg.escudo-graph:root{color:#1f2328;background:#fff}
@media (prefers-color-scheme:dark){svg.escudo-graph:root{color:#e6edf3;background:#0d1117}}
""".strip()


def draw(
    graph: CausalGraph,
    *,
    labels: Mapping[str, str] | None = None,
    edge_labels: Mapping[Edge, str] | None = None,
    edge_width: float | Mapping[Edge, float] | None = None,
    direction: Literal["auto", "down", "right"] = "auto",
    title: str | None = None,
) -> str:
    """Return a layered drawing of a graph as SVG text, causes before their effects.

    Latent nodes are dashed, groups are double, exposures green, outcomes orange; an undirected edge has no head. The
    same graph always gives the same text, and the text may be set into an HTML page as it is.

    Args:
        graph: The graph.
        labels: What to write in a node instead of its name; a line break starts a new line.
        edge_labels: What to write beside an edge, such as ``{("R1", "D1"): "ε = 1"}``.
        edge_width: Line width in pixels, for all edges or by edge (1.4 where not given).
        direction: Where arrows run; ``"auto"`` is down, or right where that fits a page better.
        title: What a screen reader says first; by default the number of nodes and edges.

    Raises:
        GraphError: An option names a node or an edge that the graph does not have.

    Example:
        >>> from escudo.causal import CausalGraph
        >>> draw(CausalGraph.from_edges([("smoke", "lung")])).startswith("<svg")
        True
    """
    one_of("direction", direction, ("auto", "down", "right"))
    texts = _node_texts(graph, labels or {})
    notes = {
        edge: " ".join(str(note).split()) for edge, note in _by_edge(graph, "edge_labels", edge_labels or {}).items()
    }
    each = edge_width if isinstance(edge_width, Mapping) else {}
    widths = {
        edge: positive("edge_width", width, at_most=40) for edge, width in _by_edge(graph, "edge_width", each).items()
    }
    if edge_width is None or isinstance(edge_width, Mapping):
        usual = 1.4 if len(graph.edges) <= _MANY_EDGES else 1.0
    else:
        usual = positive("edge_width", edge_width, at_most=40)

    sizes = {name: _size(lines, dense=len(graph) > _MANY) for name, lines in texts.items()}
    edges = _forward_edges(graph)
    note_sizes = {edge: (_text_width(notes[key], 12.0) + 10.0, 18.0) for edge, key in edges.items() if key in notes}
    flat = direction == "right"
    layout = _layout(sizes, edges, note_sizes, flat=flat)
    if direction == "auto" and layout.across > _COMFORTABLE:
        turned = _layout(sizes, edges, note_sizes, flat=True)
        flat = turned.along < layout.across
        layout = turned if flat else layout
    arrows = set(graph.edges)
    body = [
        _edge(layout, edge, flat=flat, note=notes.get(key), width=widths.get(key, usual), headed=key in arrows)
        for edge, key in edges.items()
    ]
    body += [
        _node(graph, name, lines, _turned(layout.places[name], flat), sizes[name]) for name, lines in texts.items()
    ]
    width, height = _turned((layout.across + 2 * _MARGIN, layout.along + 2 * _MARGIN), flat)
    return _page(graph, body, width, height, title)


def _layout(
    sizes: Mapping[str, Point], edges: Mapping[Edge, Edge], note_sizes: Mapping[Edge, Point], *, flat: bool
) -> Layout:
    if not flat:
        return lay_out(sizes, list(edges), note_sizes, gap=22.0)
    return lay_out(_swapped(sizes), list(edges), _swapped(note_sizes), gap=6.0 if len(sizes) > _MANY else 14.0)


def _page(graph: CausalGraph, body: list[str], width: float, height: float, title: str | None) -> str:
    name = title or f"Causal graph: {graph.summary}"
    said = [show_edge(edge) for edge in graph.edges] + [f"{a} — {b}" for a, b in graph.undirected_edges]
    told = "; ".join(said[:60]) + (f"; and {len(said) - 60} more" if len(said) > 60 else "")
    kind = "escudo-graph many" if len(said) > _MANY_EDGES else "escudo-graph"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" role="img" aria-label={_attribute(name)} '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:.0f} {height:.0f}" '
        f'style="max-width:100%;height:auto">\n<title>{_text(name)}</title>\n<desc>{_text(told)}</desc>\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _node(graph: CausalGraph, name: str, lines: list[str], middle: Point, size: Point) -> str:
    roles = [role for role in ("latent", "exposure", "outcome") if name in getattr(graph, f"{role}s")]
    columns = graph.groups.get(name, ())
    (x, y), (width, height) = middle, size
    told = name + (f" ({', '.join(roles)})" if roles else "") + (f": {', '.join(columns)}" if columns else "")
    parts = [f'<g class="{" ".join(["node", *roles])}"><title>{_text(told)}</title>']
    for inset in (0.0, 3.0) if columns else (0.0,):
        parts.append(
            f'<rect x="{x - width / 2 + inset:.1f}" y="{y - height / 2 + inset:.1f}" width="{width - 2 * inset:.1f}" '
            f'height="{height - 2 * inset:.1f}" rx="{10 - inset:g}"/>'
        )
    top = y - (len(lines) - 1) * _LINE / 2 + 4.5
    for number, line in enumerate(lines):
        small = ' class="columns"' if columns and number == len(lines) - 1 else ""
        parts.append(f'<text x="{x:.1f}" y="{top + number * _LINE:.1f}"{small}>{_text(line)}</text>')
    return "".join([*parts, "</g>"])


def _edge(layout: Layout, edge: Edge, *, flat: bool, note: str | None, width: float, headed: bool) -> str:
    *start, tip = layout.routes[edge]
    head = 5.0 + 2.2 * width if headed else 0.0
    points = [*start, (tip[0], tip[1] - head)]
    path = [f"M{_at(points[0], flat)}"]
    slopes = _slopes(points)
    for (x, y), (u, v), leave, arrive in zip(points, points[1:], slopes, slopes[1:], strict=False):
        bend = (v - y) * (0.45 if leave == arrive == 0 else 1 / 3)
        path.append(
            f"C{_at((x + leave * bend, y + bend), flat)} {_at((u - arrive * bend, v - bend), flat)} {_at((u, v), flat)}"
        )
    told = show_edge(edge) if headed else f"{edge[0]} — {edge[1]}"
    parts = [f'<g class="edge"><title>{_text(told if note is None else f"{told}: {note}")}</title>']
    parts.append(f'<path d="{"".join(path)}" stroke-width="{width:g}"/>')
    if headed:
        half = 2.2 + 1.3 * width
        corners = ((tip[0], tip[1]), (tip[0] - half, tip[1] - head - 1), (tip[0] + half, tip[1] - head - 1))
        parts.append(f'<polygon points="{" ".join(_at(corner, flat) for corner in corners)}"/>')
    if note is not None:
        x, y = _turned(layout.labels[edge], flat)
        if flat:
            parts.append(f'<text x="{x:.1f}" y="{y + 14:.1f}" text-anchor="middle">{_text(note)}</text>')
        else:
            parts.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}">{_text(note)}</text>')
    return "".join([*parts, "</g>"])


def _slopes(points: list[Point]) -> list[float]:
    """Return the course at each point, as across per along: straight at both ends, and never overshooting between."""
    steps = [(u - x) / (v - y) if v > y else 0.0 for (x, y), (u, v) in pairwise(points)]
    inner = [2 * a * b / (a + b) if a * b > 0 else 0.0 for a, b in pairwise(steps)]
    return [0.0, *inner, 0.0]


def _forward_edges(graph: CausalGraph) -> dict[Edge, Edge]:
    """Return for each edge, in the direction to draw it in, its key in the graph; together they have no cycle."""
    try:
        forward = set(graph.extension().edges)
    except GraphError:
        order = {name: place for place, name in enumerate(graph.topological_order())}
        forward = {(a, b) if order[a] < order[b] else (b, a) for a, b in graph.undirected_edges}
    found = {edge: edge for edge in graph.edges}
    found.update({(a, b) if (a, b) in forward else (b, a): (a, b) for a, b in graph.undirected_edges})
    return found


def _by_edge(graph: CausalGraph, what: str, given: Mapping[Edge, _T]) -> dict[Edge, _T]:
    """Return an option by the graph's own edges; an undirected edge may be named either way round."""
    known = {edge: edge for edge in graph.edges}
    for a, b in graph.undirected_edges:
        known[a, b] = known[b, a] = (a, b)
    names = {show_edge(edge): edge for edge in known}
    found = {}
    for edge, value in given.items():
        if edge not in known:
            shown = show_edge(edge) if isinstance(edge, tuple) and len(edge) == 2 else repr(edge)
            raise GraphError(f"{what} names {shown}, which is not an edge of the graph." + did_you_mean(shown, names))
        found[known[edge]] = value
    return found


def _node_texts(graph: CausalGraph, labels: Mapping[str, str]) -> dict[str, list[str]]:
    known_names("labels", labels, graph.nodes)
    texts = {}
    for name in graph.nodes:
        lines = [_cut(line) for line in str(labels.get(name, name)).splitlines() or [""]]
        if name in graph.groups:
            count = len(graph.groups[name])
            lines.append(f"{count} column{'s' if count > 1 else ''}")
        texts[name] = lines
    return texts


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _size(lines: list[str], *, dense: bool) -> Point:
    width = max(_text_width(line, _FONT) for line in lines)
    return max(44.0, width + (16.0 if dense else 24.0)), (6.0 if dense else 14.0) + _LINE * len(lines)


def _text_width(text: str, size: float) -> float:
    """Return about how wide a text is drawn, a little on the safe side; the reader's font is not known."""
    ems = 0.0
    for char in text:
        if combining(char):
            continue
        if east_asian_width(char) in "WF":
            ems += 1.0
        else:
            ems += 0.34 if char in _NARROW else 0.9 if char in _WIDE else 0.7 if char.isupper() else 0.57
    return ems * size


def _swapped(sizes: Mapping[_K, Point]) -> dict[_K, Point]:
    return {key: (height, width) for key, (width, height) in sizes.items()}


def _turned(point: Point, flat: bool) -> Point:
    return (point[1], point[0]) if flat else point


def _at(point: Point, flat: bool) -> str:
    x, y = _turned(point, flat)
    return f"{x:.1f},{y:.1f}"


def _text(text: str) -> str:
    return escape(_ILLEGAL.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_ILLEGAL.sub("\ufffd", text))
