"""The picture of a causal graph, as one self-contained SVG: no script, no font, no graphviz.

Where to draw each node and edge follows the four steps of Sugiyama, Tagawa and Toda ("Methods for visual understanding
of hierarchical system structures", 1981): layers from causes to effects; dummy points where an edge passes a layer; an
order within each layer by barycentres, for few crossings; coordinates, here by exact least squares per layer, for
straight long edges. Everything is deterministic. In a layout, "along" is the direction arrows run in, "across" the
other; a drawing whose arrows run to the right swaps the two.
"""

from __future__ import annotations

import html
import math
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from escudo._card import fitted, room_for, text_width
from escudo._plot import axes_for, literal
from escudo._validate import did_you_mean, one_of, positive
from escudo.causal._edges import Edge, first_cycle, known_names, show_edge
from escudo.causal._plates import PLATE_STYLE, Frame, Plates, frames
from escudo.errors import GraphError

if TYPE_CHECKING:
    from escudo.causal._ancestral import AncestralGraph
    from escudo.causal._graph import CausalGraph


Ends = tuple[str, str]
Point = tuple[float, float]
_T = TypeVar("_T")
_K = TypeVar("_K")
_MARGIN = 10.0
_FONT = 13.0
_LINE = 16.0
_WIDEST = 300.0
_MANY = 60  # nodes, above which the drawing is set tighter
_MANY_EDGES = 200  # edges, above which they are drawn fainter
_COMFORTABLE = 1000.0  # wider than this, arrows that run to the right may fit better
_OPEN = 'fill="none" stroke="currentColor" stroke-opacity=".75"'
_SIGNS = {
    ("tail", "tail"): "—",
    ("tail", "arrow"): "→",
    ("arrow", "arrow"): "↔",
    ("circle", "arrow"): "o→",
    ("circle", "circle"): "o—o",
}
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
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
    graph: CausalGraph | AncestralGraph,
    *,
    labels: Mapping[str, str] | None = None,
    edge_labels: Mapping[Edge, str] | None = None,
    edge_width: float | Mapping[Edge, float] | None = None,
    direction: Literal["auto", "down", "right"] = "auto",
    title: str | None = None,
    plates: Plates | None = None,
) -> str:
    """Return a layered drawing of a graph as SVG text, causes before their effects.

    Latent nodes are dashed, groups are double, exposures green, outcomes orange; an undirected edge has no head, and of
    a partial ancestral graph an end that is open has a circle. The same graph always gives the same text, and the text
    may be set into an HTML page as it is.

    Args:
        graph: The graph.
        labels: What to write in a node instead of its name; a line break starts a new line.
        edge_labels: What to write beside an edge, such as ``{("R1", "D1"): "ε = 1"}``.
        edge_width: Line width in pixels, for all edges or by edge (1.4 where not given).
        direction: Where arrows run; ``"auto"`` is down, or right where that fits a page better.
        title: What a screen reader says first; by default the number of nodes and edges.
        plates: Frames around nodes that are there several times, one below another.

    Raises:
        GraphError: An option names a node or an edge that the graph does not have, or an arrow leads back from a plate.

    Example:
        >>> from escudo.causal import CausalGraph
        >>> draw(CausalGraph.from_edges([("smoke", "lung")])).startswith("<svg")
        True
    """
    one_of("direction", direction, ("auto", "down", "right"))
    summary = graph.summary
    graph, ends = _with_ends(graph)
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

    edges = _forward_edges(graph)
    bands = None if plates is None else plates.bands(graph.nodes, edges)
    sizes, layout, flat = _placed(texts, edges, notes, direction, bands)
    body = [
        _edge(layout, edge, flat, note=notes.get(key), width=widths.get(key, usual), ends=_seen_from(edge, ends))
        for edge, key in edges.items()
    ]
    body += [
        _node(graph, name, lines, _turned(layout.places[name], flat), sizes[name]) for name, lines in texts.items()
    ]
    width, height = _turned((layout.across + 2 * _MARGIN, layout.along + 2 * _MARGIN), flat)
    said = [_told(edge, ends[edge]) for edge in (*graph.edges, *graph.undirected_edges)]
    name = title or f"Causal graph: {summary}"
    if plates is None:
        return _page(said, body, (-_MARGIN, -_MARGIN, width, height), name)
    places = {node: _turned(place, flat) for node, place in layout.places.items()}
    routes = {edge: [_turned(point, flat) for point in route] for edge, route in layout.routes.items()}
    around = frames(plates, {node: (places[node], sizes[node]) for node in places}, routes)
    outer = Frame.around([Frame(0, 0, width - 2 * _MARGIN, height - 2 * _MARGIN), *around.values()]).wider(_MARGIN)
    drawn = [frame.svg(_text(caption)) for caption, frame in around.items()]
    whole = (outer.left, outer.top, outer.right - outer.left, outer.bottom - outer.top)
    return _page(said, [f"<style>{PLATE_STYLE}</style>", *drawn, *plates.marked(body, edges, texts)], whole, name)


def plot_graph(
    graph: CausalGraph | AncestralGraph, edge_labels: Mapping[Edge, str], *, title: str, axes: Any = None
) -> Any:
    """Draw a graph with matplotlib as :func:`draw` does, with a text beside each edge, and return the axes.

    Raises:
        InputError: If matplotlib is not installed.
    """
    graph, ends = _with_ends(graph)
    texts, edges = _node_texts(graph, {}), _forward_edges(graph)
    sizes, layout, flat = _placed(texts, edges, edge_labels, "auto")
    width, height = _turned((layout.across + 2 * _MARGIN, layout.along + 2 * _MARGIN), flat)
    inches = max(3.2, min(width / 72, 40.0)), max(1.6, min(height / 72 + 0.5, 40.0))
    drawn = axes_for(axes, title=title, across="", up="", size=inches)
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch  # axes_for has told where it is not installed
    from matplotlib.path import Path

    drawn.set(xlim=(-_MARGIN, width - _MARGIN), ylim=(height - _MARGIN, -_MARGIN), aspect="equal")
    drawn.set_axis_off()
    room = drawn.get_window_extent()
    point = min(room.width / width, room.height / height, 1.0) * 72 / drawn.figure.dpi
    ink = "#30363d"
    for edge, key in edges.items():
        marks = _seen_from(edge, ends)
        route = layout.routes[edge]
        points = [_turned(each, flat) for each in (route[0], *(each for step in _curves(route) for each in step))]
        shape = ("<|-" if marks[0] == "arrow" else "-") + ("|>" if marks[1] == "arrow" else "")
        course = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
        drawn.add_patch(FancyArrowPatch(path=course, arrowstyle=shape, mutation_scale=12, color=ink, linewidth=1.1))
        for mark, (x, y) in zip(marks, (points[0], points[-1]), strict=True):
            if mark == "circle":
                drawn.plot([x], [y], marker="o", markersize=6, color="white", markeredgecolor=ink, zorder=3)
        if edge in layout.labels:
            x, y = _turned(layout.labels[edge], flat)
            drawn.text(x + 4, y, literal(edge_labels[key]), fontsize=11 * point, va="center", color=ink)
    for name, lines in texts.items():
        (x, y), (wide, tall) = _turned(layout.places[name], flat), sizes[name]
        box = FancyBboxPatch((x - wide / 2, y - tall / 2), wide, tall, boxstyle="round,pad=0,rounding_size=8")
        box.set(facecolor="#e4f3fc", edgecolor="#3a8bc2", zorder=2)
        drawn.add_patch(box)
        drawn.text(x, y, literal("\n".join(lines)), fontsize=_FONT * point, ha="center", va="center", zorder=4)
    return drawn


def _placed(
    texts: Mapping[str, list[str]],
    edges: Mapping[Edge, Edge],
    notes: Mapping[Edge, str],
    direction: str,
    bands: Mapping[str, int] | None = None,
) -> tuple[dict[str, Point], Placement, bool]:
    """Return the size of each node, where everything goes, and whether arrows run to the right."""
    sizes = {name: _size(lines, dense=len(texts) > _MANY) for name, lines in texts.items()}
    note_sizes = {edge: (text_width(notes[key], 12.0) + 10.0, 18.0) for edge, key in edges.items() if key in notes}
    flat = direction == "right"
    layout = _layout(sizes, edges, note_sizes, flat, bands)
    if direction == "auto" and layout.across > _COMFORTABLE:
        turned = _layout(sizes, edges, note_sizes, True, bands)
        flat = turned.along < layout.across
        layout = turned if flat else layout
    if direction == "auto" and not flat and bands is None and layout.along > max(_TALL, 5 * layout.across):
        layout = _folded(layout)
    return sizes, layout, flat


def _with_ends(graph: CausalGraph | AncestralGraph) -> tuple[CausalGraph, dict[Edge, Ends]]:
    """Return a graph to lay out, and the marks at both ends of each of its edges."""
    from escudo.causal._graph import CausalGraph

    if isinstance(graph, CausalGraph):
        arrows = dict.fromkeys(graph.edges, ("tail", "arrow"))
        return graph, {**arrows, **dict.fromkeys(graph.undirected_edges, ("tail", "tail"))}
    shown = {
        "->": ("tail", "arrow"),
        "<->": ("arrow", "arrow"),
        "o->": ("circle", "arrow"),
        "o-o": ("circle", "circle"),
    }
    ends = {(a, b): shown[kind] for a, kind, b in graph.edges}
    # Layers follow the arrows, and half open edges as long as those make no cycle with them.
    forward = [(a, b) for a, kind, b in graph.edges if kind == "->"]
    for a, kind, b in graph.edges:
        if kind == "o->" and not first_cycle([*forward, (a, b)]):
            forward.append((a, b))
    kept = set(forward)
    return CausalGraph(
        nodes=graph.nodes,
        edges=tuple(edge for edge in ends if edge in kept),
        undirected_edges=tuple(edge for edge in ends if edge not in kept),
    ), ends


def _seen_from(edge: Edge, ends: Mapping[Edge, Ends]) -> Ends:
    """Return the marks at the ends of an edge in the direction it is drawn in."""
    return ends[edge] if edge in ends else ends[edge[1], edge[0]][::-1]


def _told(edge: Edge, ends: Ends) -> str:
    """Return an edge in words."""
    if ends[0] == "arrow" and ends[1] != "arrow":
        return _told((edge[1], edge[0]), (ends[1], ends[0]))
    return f"{edge[0]} {_SIGNS[ends]} {edge[1]}"


def _layout(
    sizes: Mapping[str, Point],
    edges: Mapping[Edge, Edge],
    note_sizes: Mapping[Edge, Point],
    flat: bool,
    bands: Mapping[str, int] | None,
) -> Placement:
    if not flat:
        return lay_out(_Boxes(sizes, list(edges), note_sizes, 22.0, bands))
    gap = 6.0 if len(sizes) > _MANY else 14.0
    return lay_out(_Boxes(_swapped(sizes), list(edges), _swapped(note_sizes), gap, bands))


def _page(said: list[str], body: list[str], whole: tuple[float, float, float, float], name: str) -> str:
    left, top, width, height = whole
    told = "; ".join(said[:60]) + (f"; and {len(said) - 60} more" if len(said) > 60 else "")
    kind = "escudo-graph many" if len(said) > _MANY_EDGES else "escudo-graph"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" role="img" aria-label={_attribute(name)} '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="{left:g} {top:g} {width:.0f} {height:.0f}" '
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


def _edge(layout: Placement, edge: Edge, flat: bool, *, note: str | None, width: float, ends: Ends) -> str:
    first, *between, tip = layout.routes[edge]
    radius = 2.6 + width
    long = {"arrow": 5.0 + 2.2 * width, "circle": 2 * radius + width, "tail": 0.0}
    points = [(first[0], first[1] + long[ends[0]]), *between, (tip[0], tip[1] - long[ends[1]])]
    path = [f"M{_at(points[0], flat)}", *(f"C{' '.join(_at(each, flat) for each in step)}" for step in _curves(points))]
    told = _told(edge, ends)
    parts = [f'<g class="edge"><title>{_text(told if note is None else f"{told}: {note}")}</title>']
    parts.append(f'<path d="{"".join(path)}" stroke-width="{width:g}"/>')
    for mark, (x, y), way in ((ends[0], first, 1.0), (ends[1], tip, -1.0)):
        if mark == "arrow":
            half, back = 2.2 + 1.3 * width, way * (long[mark] + 1)
            corners = ((x, y), (x - half, y + back), (x + half, y + back))
            parts.append(f'<polygon points="{" ".join(_at(corner, flat) for corner in corners)}"/>')
        elif mark == "circle":
            u, v = _turned((x, y + way * (radius + width / 2)), flat)
            parts.append(f'<circle cx="{u:.1f}" cy="{v:.1f}" r="{radius:.1f}" stroke-width="{width:g}" {_OPEN}/>')
    if note is not None:
        x, y = _turned(layout.labels[edge], flat)
        if flat:
            parts.append(f'<text x="{x:.1f}" y="{y + 14:.1f}" text-anchor="middle">{_text(note)}</text>')
        else:
            parts.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}">{_text(note)}</text>')
    return "".join([*parts, "</g>"])


def _curves(points: list[Point]) -> list[tuple[Point, Point, Point]]:
    """Return a Bézier curve from each point to the next, as two points to bend to and the end."""
    slopes = _slopes(points)
    found = []
    for (x, y), (u, v), leave, arrive in zip(points, points[1:], slopes, slopes[1:], strict=False):
        bend = (v - y) * (0.45 if leave == arrive == 0 else 1 / 3)
        found.append(((x + leave * bend, y + bend), (u - arrive * bend, v - bend), (u, v)))
    return found


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
        lines = [fitted(line, _WIDEST, _FONT) for line in str(labels.get(name, name)).splitlines() or [""]]
        if name in graph.groups:
            count = len(graph.groups[name])
            lines.append(f"{count} column{'s' if count > 1 else ''}")
        texts[name] = lines
    return texts


def _size(lines: list[str], *, dense: bool) -> Point:
    width = max(text_width(line, _FONT) for line in lines) + (16.0 if dense else 24.0)
    return max(44.0, width, *(room_for(line, _FONT) + 8.0 for line in lines)), (6.0 if dense else 14.0) + _LINE * len(
        lines
    )


def _swapped(sizes: Mapping[_K, Point]) -> dict[_K, Point]:
    return {key: (height, width) for key, (width, height) in sizes.items()}


def _turned(point: Point, flat: bool) -> Point:
    return (point[1], point[0]) if flat else point


def _at(point: Point, flat: bool) -> str:
    x, y = _turned(point, flat)
    return f"{x:.1f},{y:.1f}"


def _text(text: str) -> str:
    return html.escape(_legal(text), quote=False)


def _attribute(text: str) -> str:
    return f'"{html.escape(_legal(text))}"'


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


# ---- where things go

_LINE_GAP = 14.0
_TALL = 2400.0  # from here on a drawing that is narrow is folded
_LAYER_GAP = 46.0
_COMPONENT_GAP = 36.0
_SWEEPS = 24


@dataclass(slots=True)
class Placement:
    """Positions as (across, along): node centres, edge routes from end to end, and the points edge labels stand at."""

    across: float = 0.0
    along: float = 0.0
    places: dict[str, Point] = field(default_factory=dict)
    routes: dict[Edge, list[Point]] = field(default_factory=dict)
    labels: dict[Edge, Point] = field(default_factory=dict)

    def add(self, part: Placement, across: float, along: float) -> None:
        """Take over a part, moved by so much."""
        self.places.update({name: (x + across, y + along) for name, (x, y) in part.places.items()})
        self.labels.update({edge: (x + across, y + along) for edge, (x, y) in part.labels.items()})
        self.routes.update({edge: [(x + across, y + along) for x, y in route] for edge, route in part.routes.items()})
        self.across, self.along = max(self.across, across + part.across), max(self.along, along + part.along)


@dataclass(slots=True)
class _Item:
    """A node, or the point where an edge passes a layer; it may reach further after its anchor than before it."""

    before: float
    after: float
    depth: float
    name: str | None = None
    edge: Edge | None = None
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Boxes:
    """What is to be laid out.

    Attributes:
        sizes: The nodes, with their sizes across and along.
        edges: Between them; no cycle.
        label_sizes: Of the edges that have a label.
        gap: Between nodes beside each other.
        bands: Which nodes come before which, if that is settled.
    """

    sizes: Mapping[str, Point]
    edges: Sequence[Edge]
    label_sizes: Mapping[Edge, Point]
    gap: float
    bands: Mapping[str, int] | None

    def part(self, nodes: Iterable[str]) -> _Boxes:
        """Return some of the nodes, which no edge joins to others."""
        sizes = {name: self.sizes[name] for name in nodes}
        return replace(self, sizes=sizes, edges=[edge for edge in self.edges if edge[0] in sizes])


def lay_out(boxes: _Boxes) -> Placement:
    """Place nodes so that all edges run along.

    Parts that no edge connects are laid out alone and set side by side in rows, single nodes last. Where ``bands`` says
    which nodes come before which, all stay together, those of one band after those of the bands before it.
    """
    if boxes.bands is not None:
        return _lay_out_connected(boxes)
    return _pack([_lay_out_connected(boxes.part(nodes)) for nodes in _components(boxes.sizes, boxes.edges)])


def _folded(layout: Placement) -> Placement:
    """Set a long and narrow layout in columns side by side, like a newspaper's; edges go on at the top of the next.

    It is cut between layers only, so that no node is.
    """
    heights = sorted({y for _, y in layout.places.values()})
    gutter = _COMPONENT_GAP + _LINE_GAP
    columns = max(round((layout.along / (layout.across + gutter)) ** 0.5), 2)
    starts = [0.0]
    for above, below in pairwise(heights):
        if (above + below) / 2 - starts[-1] >= layout.along / columns:
            starts.append((above + below) / 2)

    def column(y: float) -> int:
        return bisect_right(starts, y) - 1

    crossing = [
        {edge for edge, route in layout.routes.items() if column(route[0][1]) <= number < column(route[-1][1])}
        for number in range(len(starts) - 1)
    ]
    offsets = [0.0]
    for edges in crossing:
        offsets.append(offsets[-1] + layout.across + gutter + _LINE_GAP * len(edges))
    tracks = [{edge: track for track, edge in enumerate(sorted(edges))} for edges in crossing]

    def moved(point: Point, number: int) -> Point:
        return point[0] + offsets[number], point[1] - starts[number]

    made = Placement(across=offsets[-1] + layout.across)
    made.places = {name: moved(place, column(place[1])) for name, place in layout.places.items()}
    made.labels = {edge: moved(place, column(place[1])) for edge, place in layout.labels.items()}
    made.along = max([*(b - a for a, b in pairwise(starts)), layout.along - starts[-1]]) + _LINE_GAP
    for edge, route in layout.routes.items():
        points = [moved(route[0], column(route[0][1]))]
        for before, after in pairwise(route):
            for number in range(column(before[1]), column(after[1])):
                x = offsets[number] + layout.across + gutter / 2 + _LINE_GAP * tracks[number][edge]
                foot = starts[number + 1] - starts[number] + _LINE_GAP / 2
                entry = after[0] + offsets[number + 1]
                points += [(points[-1][0], foot), (x, foot), (x, -_LINE_GAP / 2), (entry, -_LINE_GAP / 2)]
            points.append(moved(after, column(after[1])))
        made.routes[edge] = points
    return made


def _components(sizes: Mapping[str, Point], edges: Sequence[Edge]) -> list[dict[str, None]]:
    adjacent: dict[str, list[str]] = {name: [] for name in sizes}
    for a, b in edges:
        adjacent[a].append(b)
        adjacent[b].append(a)
    found: list[dict[str, None]] = []
    seen: set[str] = set()
    for name in sizes:
        if name in seen:
            continue
        part, queue = {name}, [name]
        while queue:
            for other in adjacent[queue.pop()]:
                if other not in part:
                    part.add(other)
                    queue.append(other)
        seen |= part
        found.append({node: None for node in sizes if node in part} if len(part) > 1 else {name: None})
    return found


def _pack(parts: list[Placement]) -> Placement:
    """Set parts side by side, in rows no wider than the widest part or a comfortable shape."""
    if len(parts) == 1:
        return parts[0]
    area = sum((part.across + _COMPONENT_GAP) * (part.along + _COMPONENT_GAP) for part in parts)
    limit = max([*(part.across for part in parts), (1.6 * area) ** 0.5])
    whole, across, along, deepest = Placement(), 0.0, 0.0, 0.0
    singles = False
    for part in sorted(parts, key=lambda part: (not part.routes, -part.along)):
        first_single = not part.routes and not singles
        if across and (across + part.across > limit or first_single):
            across, along, deepest = 0.0, along + deepest + _COMPONENT_GAP, 0.0
        singles = not part.routes
        whole.add(part, across, along)
        across, deepest = across + part.across + _COMPONENT_GAP, max(deepest, part.along)
    return whole


def _lay_out_connected(boxes: _Boxes) -> Placement:
    sizes, edges, label_sizes, bands = boxes.sizes, boxes.edges, boxes.label_sizes, boxes.bands
    step = 2 if any(edge in label_sizes for edge in edges) else 1  # room for a label between two layers
    depth = _layers(list(sizes), edges) if bands is None else _banded_layers(edges, bands)
    items: list[_Item] = []
    layers: list[list[int]] = [[] for _ in range(step * max(depth.values(), default=0) + 1)]
    number: dict[str, int] = {}
    for name, (width, height) in sizes.items():
        number[name] = len(items)
        items.append(_Item(width / 2, width / 2, height, name))
        layers[step * depth[name]].append(number[name])
    chains: dict[Edge, list[int]] = {}
    for edge in edges:
        first, last = step * depth[edge[0]], step * depth[edge[1]]
        labelled = (first + last) // 2 | 1 if edge in label_sizes else -1
        chain = [number[edge[0]]]
        for layer in range(first + 1, last):
            width, height = label_sizes[edge] if layer == labelled else (0.0, 0.0)
            items.append(_Item(2.0, 2.0 + width, height, edge=edge))
            layers[layer].append(len(items) - 1)
            chain.append(len(items) - 1)
        chain.append(number[edge[1]])
        for above, below in pairwise(chain):
            items[above].down.append(below)
            items[below].up.append(above)
        chains[edge] = chain
    _reduce_crossings(items, layers)
    across = _coordinates(items, layers, boxes.gap)
    along, thickness = _depths(items, layers, across, _LAYER_GAP if step == 1 else 0.62 * _LAYER_GAP)
    return _assemble(items, chains, across, along, thickness)


def _banded_layers(edges: Sequence[Edge], bands: Mapping[str, int]) -> dict[str, int]:
    """Return layers of which each band has its own, with an empty one before the next."""
    found: dict[str, int] = {}
    start = 0
    for band in sorted(set(bands.values())):
        own = [name for name, other in bands.items() if other == band]
        inside = _layers(own, [(a, b) for a, b in edges if bands[a] == bands[b] == band])
        found |= {name: start + layer for name, layer in inside.items()}
        start += max(inside.values()) + 2
    return found


def _layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return a layer for each node so that every edge runs forward and the edges are as short as can be in total.

    The linear program min Σ (layer of head − layer of tail), each difference at least 1, has a totally unimodular
    matrix, so the corner that the simplex method ends in has whole numbers. A graph with few edges does without scipy,
    which takes longer to load than that takes to solve.
    """
    if not edges:
        return dict.fromkeys(nodes, 0)
    if len(edges) <= _MANY_EDGES:
        return _few_layers(nodes, edges)
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    place = {name: number for number, name in enumerate(nodes)}
    tails, heads = [place[tail] for tail, _ in edges], [place[head] for _, head in edges]
    rows, ones = range(len(edges)), np.ones(len(edges))
    matrix = coo_array(
        (np.r_[ones, -ones], (np.r_[rows, rows], np.r_[tails, heads])), shape=(len(edges), len(nodes))
    ).tocsr()
    cost = np.bincount(heads, minlength=len(nodes)) - np.bincount(tails, minlength=len(nodes))
    found = linprog(cost, A_ub=matrix, b_ub=-ones, bounds=(0, len(nodes)), method="highs-ds").x
    layers = np.rint(found).astype(int)
    return dict(zip(nodes, (layers - layers.min()).tolist(), strict=True))


def _few_layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return such layers, each as early as can be: all as early as possible first, then some later while that helps.

    The total length is L♮-convex in the layers, so it is least where moving no set of nodes by one layer lowers it, and
    from the earliest layers the way there only leads later (Murota 2003, "Discrete convex analysis", chapter 10).
    """
    depth = dict.fromkeys(nodes, 0)
    for _ in nodes:
        late = {head: depth[tail] + 1 for tail, head in edges if depth[head] <= depth[tail]}
        if not late:
            break
        depth.update(late)
    while moved := _better_later(depth, edges):
        for name in moved:
            depth[name] += 1
    first = min(depth.values())
    return {name: layer - first for name, layer in depth.items()}


def _better_later(depth: Mapping[str, int], edges: Sequence[Edge]) -> set[str]:
    """Return the least set of nodes that had better be one layer later; edges with no room to spare move as one.

    Moving a node gains an edge's length for each arrow that leaves it and loses one for each that enters it. The best
    set is a closure of most gain: what gains sends flow along tight edges to what loses, and what is still reached when
    no more can be sent is the set (Picard 1976).
    """
    gain = dict.fromkeys(depth, 0)
    flow: dict[str, dict[str, float]] = {name: {} for name in depth}  # what can still be sent from node to node
    for tail, head in edges:
        gain[tail] += 1
        gain[head] -= 1
        if depth[head] == depth[tail] + 1:
            flow[tail][head] = math.inf
            flow[head].setdefault(tail, 0)
    while True:
        before: dict[str, str | None] = {name: None for name, left in gain.items() if left > 0}
        waiting = list(before)
        for name in waiting:
            if gain[name] < 0:
                break
            for other, room in flow[name].items():
                if room > 0 and other not in before:
                    before[other] = name
                    waiting.append(other)
        else:
            return set(before)
        gain[name] += 1
        while (last := before[name]) is not None:
            flow[last][name] -= 1
            flow[name][last] += 1
            name = last
        gain[name] -= 1


def _reduce_crossings(items: list[_Item], layers: list[list[int]]) -> None:
    """Reorder each layer in place: sweeps by barycentre, then exchanges of neighbours, keeping the best order seen."""
    best, fewest, since = [list(layer) for layer in layers], _crossings(items, layers), 0
    for sweep in range(_SWEEPS):
        if not fewest or since == 6:
            break
        downwards = sweep % 2 == 0
        for number in range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1):
            fixed = layers[number - 1 if downwards else number + 1]
            _sort_by_barycentre(items, layers[number], fixed, upwards=downwards, flip=sweep % 4 >= 2)
        if len(items) <= 400:
            _exchange(items, layers)
        crossings = _crossings(items, layers)
        since += 1
        if crossings < fewest:
            best, fewest, since = [list(layer) for layer in layers], crossings, 0
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order


def _sort_by_barycentre(items: list[_Item], layer: list[int], fixed: list[int], *, upwards: bool, flip: bool) -> None:
    place = {item: number for number, item in enumerate(fixed)}
    scale = len(fixed) / max(len(layer), 1)
    centre = {}
    for number, item in enumerate(layer):
        near = [place[other] for other in (items[item].up if upwards else items[item].down)]
        centre[item] = sum(near) / len(near) if near else number * scale
    if flip:  # ties in reverse: a way out of an order that two equal sweeps would keep
        layer.reverse()
    layer.sort(key=centre.__getitem__)


def _exchange(items: list[_Item], layers: list[list[int]]) -> None:
    places = [{item: number for number, item in enumerate(layer)} for layer in layers]
    for number, layer in enumerate(layers):
        above = places[number - 1] if number else {}
        below = places[number + 1] if number + 1 < len(layers) else {}
        ends = {
            item: (sorted(above[other] for other in items[item].up), sorted(below[other] for other in items[item].down))
            for item in layer
        }
        for left in range(len(layer) - 1):
            a, b = ends[layer[left]], ends[layer[left + 1]]
            now = _inversions(a[0], b[0]) + _inversions(a[1], b[1])
            if now > _inversions(b[0], a[0]) + _inversions(b[1], a[1]):
                layer[left], layer[left + 1] = layer[left + 1], layer[left]
        places[number] = {item: at for at, item in enumerate(layer)}


def _inversions(left: list[int], right: list[int]) -> int:
    return sum(bisect_left(right, end) for end in left)


def _crossings(items: list[_Item], layers: list[list[int]]) -> int:
    total = 0
    for upper, lower in pairwise(layers):
        place = {item: number for number, item in enumerate(lower)}
        seen: list[int] = []
        for item in upper:
            ends = sorted(place[other] for other in items[item].down)
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _coordinates(items: list[_Item], layers: list[list[int]], gap: float) -> list[float]:
    """Return each item's place across: near its neighbours, in the layer's order, with room between.

    One layer at a time with the others fixed, minimising Σ w (x − mean of neighbours)² subject to x_{i+1} − x_i ≥ gap,
    which is an isotonic regression. Long edges weigh more, so that they run straight.
    """
    across = [0.0] * len(items)
    offsets: list[list[float]] = []
    for layer in layers:
        reach = [0.0]
        for left, right in pairwise(layer):
            lines = items[left].name is None and items[right].name is None
            reach.append(reach[-1] + items[left].after + items[right].before + (_LINE_GAP if lines else gap))
        offsets.append(reach)
        for item, place in zip(layer, reach, strict=False):
            across[item] = place - reach[-1] / 2

    def weight(a: int, b: int) -> float:
        return (16.0, 2.0, 1.0)[(items[a].name is not None) + (items[b].name is not None)]

    def settle(number: int, near: Callable[[_Item], list[int]]) -> None:
        layer = layers[number]
        wanted, weights = [], []
        for item in layer:
            others = [(weight(item, other), across[other]) for other in near(items[item])]
            total = sum(w for w, _ in others)
            wanted.append(sum(w * x for w, x in others) / total if total else across[item])
            weights.append(total or 1e-3)
        for item, place in zip(layer, _isotonic(wanted, weights, offsets[number]), strict=True):
            across[item] = place

    for _ in range(_SWEEPS):
        for number in range(1, len(layers)):
            settle(number, lambda item: item.up)
        for number in range(len(layers) - 2, -1, -1):
            settle(number, lambda item: item.down)
    for number in [*range(len(layers)), *reversed(range(len(layers)))] * 6:
        settle(number, lambda item: item.up + item.down)
    start = min((across[item] - items[item].before for layer in layers for item in layer), default=0.0)
    return [place - start for place in across]


def _isotonic(wanted: list[float], weights: list[float], offsets: list[float]) -> list[float]:
    """Return the weighted least-squares places with differences of at least those of ``offsets`` (pool adjacent)."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for want, weight, offset in zip(wanted, weights, offsets, strict=False):
        mean, total, length = want - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            earlier, mass, count = blocks.pop()
            mean = (mean * total + earlier * mass) / (total + mass)
            total, length = total + mass, length + count
        blocks.append((mean, total, length))
    means = [mean for mean, _, length in blocks for _ in range(length)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


def _depths(
    items: list[_Item], layers: list[list[int]], across: list[float], gap: float
) -> tuple[list[float], list[float]]:
    """Return each item's place along and its layer's thickness; layers joined by wide edges stand further apart."""
    along, thickness = [0.0] * len(items), [0.0] * len(items)
    edge = 0.0
    for number, layer in enumerate(layers):
        thick = max((items[item].depth for item in layer), default=0.0)
        for item in layer:
            along[item], thickness[item] = edge + thick / 2, thick
        spans = sorted(abs(across[item] - across[other]) for item in layer for other in items[item].down)
        wide = spans[len(spans) * 9 // 10] if spans else 0.0
        edge += thick + (min(max(gap, 0.24 * wide), 320.0) if number + 1 < len(layers) else 0.0)
    return along, thickness


def _assemble(
    items: list[_Item],
    chains: Mapping[Edge, list[int]],
    across: list[float],
    along: list[float],
    thickness: list[float],
) -> Placement:
    made = Placement(
        across=max(across[number] + item.after for number, item in enumerate(items)),
        along=max(along[number] + item.depth / 2 for number, item in enumerate(items)),
        places={item.name: (across[n], along[n]) for n, item in enumerate(items) if item.name is not None},
    )
    leaving: dict[int, list[tuple[float, Edge]]] = {}
    entering: dict[int, list[tuple[float, Edge]]] = {}
    for edge, chain in chains.items():
        leaving.setdefault(chain[0], []).append((across[chain[1]], edge))
        entering.setdefault(chain[-1], []).append((across[chain[-2]], edge))
    starts, ends = _ports(items, leaving), _ports(items, entering)
    for edge, chain in chains.items():
        first, last = chain[0], chain[-1]
        start = (across[first] + starts[edge], along[first] + items[first].depth / 2)
        end = (across[last] + ends[edge], along[last] - items[last].depth / 2)
        stops = [start, *((across[number], along[number]) for number in chain[1:-1]), end]
        # A node thinner than its layer is left and reached straight, so that no edge cuts a thicker neighbour.
        route = [start]
        if thickness[first] > items[first].depth:
            route.append((start[0], along[first] + thickness[first] / 2))
        for number, before, (x, y), after in zip(chain[1:-1], stops, stops[1:], stops[2:], strict=False):
            half = thickness[number] / 2
            lean = 0.0 if items[number].depth else _lean(before, (x, y), after, half)
            route += [(x - lean, y - half), (x + lean, y + half)] if half else [(x, y)]
            if items[number].depth:
                made.labels[edge] = (x, y)
        if thickness[last] > items[last].depth:
            route.append((end[0], along[last] - thickness[last] / 2))
        made.routes[edge] = [*route, end]
    return made


def _lean(before: Point, at: Point, after: Point, half: float) -> float:
    """Return how far aside an edge may move while it passes a layer: with its course, but clear of its neighbours."""
    into, out = (at[0] - before[0]) / (at[1] - before[1]), (after[0] - at[0]) / (after[1] - at[1])
    if into * out <= 0:
        return 0.0
    slope = 2 * into * out / (into + out)
    return max(-_LINE_GAP / 2, min(slope * half, _LINE_GAP / 2))


def _ports(items: list[_Item], sides: Mapping[int, list[tuple[float, Edge]]]) -> dict[Edge, float]:
    """Return how far from its node's middle each edge ends, so that edges arrive side by side in their own order."""
    offsets = {}
    for number, ends in sides.items():
        room = max(items[number].before + items[number].after - 20.0, 0.0)
        step = min(14.0, room / max(len(ends) - 1, 1))
        for place, (_, edge) in enumerate(sorted(ends)):
            offsets[edge] = (place - (len(ends) - 1) / 2) * step
    return offsets
