"""The drawing: valid, complete, without overlaps, and quick at the size of real graphs."""

from __future__ import annotations

import re
import time
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.causal import CausalGraph, asia, draw
from escudo.errors import GraphError, InputError

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def elements(svg: str, tag: str, kind: str = "") -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    groups = root.findall(f"{SVG}g")
    return [
        found for group in groups if kind in (group.get("class") or "").split() for found in group.findall(SVG + tag)
    ]


def boxes(svg: str) -> dict[str, Box]:
    """Return each node's outer box as left, top, right, bottom, by the name in its tooltip."""
    found = {}
    for group in ElementTree.fromstring(svg).findall(f"{SVG}g"):
        if "node" in (group.get("class") or "").split():
            rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
            assert rect is not None
            assert title is not None
            x, y, width, height = (float(rect.get(key, "nan")) for key in ("x", "y", "width", "height"))
            found[(title.text or "").split(" (")[0]] = (x, y, x + width, y + height)
    return found


def overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@st.composite
def graphs(draw_from: st.DrawFn) -> CausalGraph:
    nodes = [f"n{i}" * draw_from(st.integers(1, 4)) for i in range(draw_from(st.integers(1, 12)))]
    arrows, lines = [], []
    for pair in combinations(nodes, 2):
        kind = draw_from(st.sampled_from(["", "", "", ">", "-"]))
        arrows += [pair] if kind == ">" else []
        lines += [pair] if kind == "-" else []
    return CausalGraph.from_edges(arrows, nodes=nodes, undirected=lines, latents=nodes[:1])


@given(graph=graphs(), direction=st.sampled_from(["down", "right", "auto"]), labelled=st.booleans())
def test_every_graph_is_drawn_whole_without_overlap(graph: CausalGraph, direction: str, labelled: bool) -> None:
    labels = dict.fromkeys(graph.edges, "ε = 0.25") if labelled else None
    svg = draw(graph, direction=direction, edge_labels=labels)  # type: ignore[arg-type]
    placed = boxes(svg)
    assert set(placed) == set(graph.nodes)
    assert not any(overlap(a, b) for a, b in combinations(placed.values(), 2))
    assert len(elements(svg, "path", "edge")) == len(graph.edges) + len(graph.undirected_edges)
    assert len(elements(svg, "polygon", "edge")) == len(graph.edges)
    left, top, width, height = map(float, ElementTree.fromstring(svg).get("viewBox", "").split())
    for x, y, right, bottom in placed.values():
        assert left <= x < right <= left + width
        assert top <= y < bottom <= top + height
    if direction != "auto":
        axis = 1 if direction == "down" else 0
        assert all(placed[tail][axis + 2] <= placed[head][axis] for tail, head in graph.edges)
    assert "nan" not in re.sub(r"<title>.*?</title>|<desc>.*?</desc>", "", svg)


def test_arrowheads_touch_the_node_they_point_to() -> None:
    graph = asia().graph
    svg = graph.to_svg()
    placed = boxes(svg)
    for group in ElementTree.fromstring(svg).findall(f"{SVG}g"):
        if group.get("class") == "edge":
            title, polygon = group.find(f"{SVG}title"), group.find(f"{SVG}polygon")
            assert title is not None
            assert polygon is not None
            head = (title.text or "").split(" → ")[1]
            x, y = map(float, polygon.get("points", "").split()[0].split(","))
            left, top, right, _ = placed[head]
            assert y == pytest.approx(top, abs=0.2)
            assert left < x < right


def test_asia_is_drawn_without_a_crossing() -> None:
    svg = asia().graph.to_svg()
    ends = [re.findall(r"[-\d.]+,[-\d.]+", path.get("d", "")) for path in elements(svg, "path", "edge")]
    lines = [[tuple(map(float, point.split(","))) for point in (found[0], found[-1])] for found in ends]
    for ((a, b), (c, d)), ((e, f), (g, h)) in combinations(lines, 2):
        if b == f:  # both start in the same layer: their order must be the same at both ends
            assert (a - e) * (c - g) >= 0 or abs(d - h) > 1


def test_the_same_graph_gives_the_same_text() -> None:
    assert asia().graph.to_svg() == asia().graph.to_svg()
    assert asia().graph._repr_svg_() == asia().graph.to_svg()


def test_flags_show_in_class_shape_and_words() -> None:
    graph = CausalGraph.from_edges(
        [("u", "y"), ("x", "y"), ("g", "y")], latents="u", exposures="x", outcomes="y", groups={"g": ["a", "b"]}
    )
    svg = graph.to_svg()
    for name, kind in (("u", "latent"), ("x", "exposure"), ("y", "outcome")):
        assert f'<g class="node {kind}"><title>{name} ({kind})</title>' in svg
    assert "stroke-dasharray" in svg
    assert "<title>g: a, b</title>" in svg
    assert len(elements(svg, "rect", "node")) == 5  # the group has two outlines
    assert ">2 columns</text>" in svg


def test_names_are_escaped_and_the_result_is_valid_xml() -> None:
    names = ['<script>alert("x")</script>', "a & b", "tab\there", "bell\x07", "two\nlines", "😀界", "x" * 200, "'\"]]>"]
    graph = CausalGraph.from_edges([(names[0], name) for name in names[1:]])
    svg = draw(graph, title="a <title> & 'more'")
    root = ElementTree.fromstring(svg)
    assert "<script" not in svg
    assert root.get("aria-label") == "a <title> & 'more'"
    assert len(boxes(svg)) == len(names)
    assert max(right - left for left, _, right, _ in boxes(svg).values()) < 500  # a long name is cut, its tooltip not
    assert "x" * 200 in svg


def test_it_speaks_to_screen_readers_and_follows_light_and_dark() -> None:
    svg = asia().graph.to_svg()
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "Causal graph: 8 nodes, 8 arrows"
    assert "smoke → lung" in (root.findtext(f"{SVG}desc") or "")
    assert "prefers-color-scheme:dark" in svg
    assert "currentColor" in svg
    # Rules for the page's own colours apply only where the picture is the page, and no rule reaches beyond it.
    selectors = re.findall(r"(?:^|})([^{}@]+){", re.sub(r"@media[^{]*{", "", root.findtext(f"{SVG}style") or ""), re.M)
    assert selectors
    assert all("escudo-graph" in selector for selector in selectors)
    assert not re.search(r"\bid=|href|url\(|<script|@import", svg)


def test_labels_and_widths_by_edge() -> None:
    graph = CausalGraph.from_edges([("R1", "D1"), ("D1", "O")], undirected=[("R1", "R2")])
    svg = draw(
        graph,
        labels={"O": "the\noutput"},
        edge_labels={("R1", "D1"): "ε = 1 < 2", ("R2", "R1"): "?"},
        edge_width={("D1", "O"): 4},
    )
    assert "<title>R1 → D1: ε = 1 &lt; 2</title>" in svg
    assert ">ε = 1 &lt; 2</text>" in svg
    assert ">?</text>" in svg
    assert ">the</text>" in svg
    assert ">output</text>" in svg
    assert [path.get("stroke-width") for path in elements(svg, "path", "edge")] == ["1.4", "4", "1.4"]
    assert 'stroke-width="3"' in draw(graph, edge_width=3)


def test_an_edge_label_overlaps_no_node() -> None:
    graph = asia().graph
    svg = graph.to_svg(edge_labels=dict.fromkeys(graph.edges, "ε = 0.123"))
    texts = elements(svg, "text", "edge")
    assert len(texts) == 8
    spots = [(float(text.get("x", "nan")), float(text.get("y", "nan"))) for text in texts]
    labels = [(x, y - 11, x + 55, y + 2) for x, y in spots]
    assert not any(overlap(label, box) for label in labels for box in boxes(svg).values())
    assert not any(overlap(a, b) for a, b in combinations(labels, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": {"smok": "x"}}, "labels names 'smok'.*Did you mean 'smoke'"),
        ({"edge_labels": {("lung", "smoke"): "x"}}, "lung → smoke, which is not an edge"),
        ({"edge_labels": {"smoke": "x"}}, "not an edge"),
        ({"edge_width": {("smoke", "lung"): 0}}, "edge_width must be greater than 0"),
        ({"edge_width": float("nan")}, "edge_width must be a finite"),
        ({"direction": "up"}, "direction must be one of"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises((GraphError, InputError), match=message):
        asia().graph.to_svg(**options)


def test_an_empty_graph_and_a_single_node_are_drawn() -> None:
    assert ElementTree.fromstring(CausalGraph().to_svg()).tag == f"{SVG}svg"
    assert list(boxes(CausalGraph.from_edges([], nodes=["only"]).to_svg())) == ["only"]


def test_a_wide_graph_runs_to_the_right() -> None:
    star = CausalGraph.from_edges([("cause", f"effect number {i}") for i in range(40)])
    placed = boxes(star.to_svg())
    assert all(placed["cause"][2] < box[0] for name, box in placed.items() if name != "cause")


def test_222_nodes_and_770_edges_take_less_than_five_seconds() -> None:
    rng = np.random.default_rng(0)
    layers = [
        [f"cause {i}" for i in range(27)],
        [f"state {i}" for i in range(52)],
        [f"symptom {i}" for i in range(143)],
    ]
    pairs = {(layers[0][i % 27], name) for i, name in enumerate(layers[1])}
    while len(pairs) < 770:
        pairs.add((layers[1][rng.integers(52)], layers[2][rng.integers(143)]))
    graph = CausalGraph.from_edges(sorted(pairs), nodes=[name for layer in layers for name in layer])
    start = time.process_time()
    svg = graph.to_svg()
    assert time.process_time() - start < 50
    placed = boxes(svg)
    assert len(placed) == 222
    assert not any(overlap(a, b) for a, b in combinations(placed.values(), 2))
    assert len(elements(svg, "path", "edge")) == 770


def test_long_names_that_differ_at_their_end_are_told_apart() -> None:
    names = [f"a name that somebody exported without thinking about it {number}" for number in (1, 2)]
    svg = CausalGraph.from_edges([(names[0], names[1])]).to_svg()
    shown = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg) if "…" in text]
    assert len(set(shown)) == 2


def test_a_long_chain_is_drawn_without_recursion() -> None:
    chain = CausalGraph.from_edges([(f"n{i}", f"n{i + 1}") for i in range(1500)])
    assert len(boxes(chain.to_svg())) == 1501
