"""Plates: frames around nodes that are there several times, one below another, with arrows that run into them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from browsing import NEEDED, browser, visiting
from escudo.causal import CausalGraph, Plates, formats
from escudo.errors import GraphError
from escudo.synthesis import clinic
from escudo.table import LinkedSchema, linked_picture

Box = tuple[float, float, float, float]


def rectangles(svg: str, kind: str) -> dict[str, Box]:
    """Return left, top, right and bottom of what is drawn, by its title or caption."""
    found = {}
    for group in re.findall(rf'<g class="{kind}[^"]*">.*?</g>', svg, re.DOTALL):
        x, y, width, height = (
            float(re.search(rf'<rect [^>]*\b{key}="([-\d.]+)"', group)[1])  # type: ignore[index]
            for key in ("x", "y", "width", "height")
        )
        name = re.findall(r">([^<>]+)</(?:title|text)>", group)[0]
        found[name] = (x, y, x + width, y + height)
    return found


def within(inner: Box, outer: Box) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def apart(one: Box, other: Box) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def tables(*names: str) -> LinkedSchema:
    rows = {
        **{"parent": "patients", "foreign_key": "id", "order": "day", "most": 4},
        **{"start_edges": [0, 9], "gap_edges": [0, 9], "columns": {"a": ["x", "y"], "b": ["x", "y"]}},
    }
    people = {"key": "id", "origin_day": 0, "columns": {"age": ["x", "y"], "sex": ["x", "y"]}}
    return LinkedSchema.from_dict(
        {
            "linked": {"people": "patients", "dates": "days"},
            "tables": {"patients": people, **{name: {**rows} for name in names}},
        }
    )


def test_each_table_has_its_plate_inside_that_of_people() -> None:
    graph = CausalGraph.from_edges(
        [
            ("patients.sex", "patients.age"),
            ("patients.age", "labs.a"),
            ("patients.age", "visits.b"),
            ("patients.sex", "visits.count"),
            ("labs.a@prev", "labs.a"),
            ("labs.a", "labs.b"),
            ("visits.a@prev", "visits.b"),
        ],
        nodes=["visits.gap"],
    )
    svg = linked_picture(tables("visits", "labs"), graph)
    plates, nodes = rectangles(svg, "plate"), rectangles(svg, "node")
    assert set(plates) == {"each of patients", "each row of visits, in order", "each row of labs, in order"}
    assert all(within(box, plates["each of patients"]) for box in [*plates.values(), *nodes.values()])
    assert apart(plates["each row of visits, in order"], plates["each row of labs, in order"])
    for name, box in nodes.items():
        for table in ("visits", "labs"):
            plate = plates[f"each row of {table}, in order"]
            mine = name.startswith(f"{table}.") and name != f"{table}.count"
            assert within(box, plate) if mine else apart(box, plate), name
    width, height = (float(size) for size in re.search(r'width="(\d+)" height="(\d+)"', svg).groups())  # type: ignore[union-attr]
    left, top = (float(size) for size in re.search(r'viewBox="([-\d.]+) ([-\d.]+)', svg).groups())  # type: ignore[union-attr]
    assert within(plates["each of patients"], (left, top, left + width, top + height))


def test_rows_of_rows_have_a_plate_inside_that_of_their_rows() -> None:
    made = clinic(10, prescriptions=True)
    for graph in (made.graph, CausalGraph.from_edges([("patients.age", "prescriptions.drug")])):
        svg = linked_picture(made.schema, graph)
        plates, nodes = rectangles(svg, "plate"), rectangles(svg, "node")
        people, visits, drugs = (plates[name] for name in plates)
        assert list(plates) == [
            "each of patients",
            "each row of visits, in order",
            "each row of prescriptions, in order",
        ]
        assert within(visits, people)
        assert within(drugs, visits)
        assert drugs != visits
        for name, box in nodes.items():
            mine = name.startswith("prescriptions.") and name != "prescriptions.count"
            assert within(box, drugs) if mine else apart(box, drugs), name
        if "prescriptions.count" in nodes:
            assert within(nodes["prescriptions.count"], visits)


def test_what_comes_from_the_row_before_is_shown_as_such() -> None:
    made = clinic(10)
    svg = linked_picture(made.schema, made.graph)
    lagged = re.findall(r'<g class="edge lagged"><title>([^<]+)<', svg)
    assert sorted(lagged) == sorted(f"{a} → {b}" for a, b in made.graph.edges if a.endswith("@prev"))
    before = re.findall(r'<g class="node before"><title>([^<]+)<', svg)
    assert set(before) == {"visits.severity@prev", "visits.treat@prev"}
    assert svg.count(">row before<") == 2


def test_without_plates_a_picture_is_as_it_was() -> None:
    graph = CausalGraph.from_edges([("a", "b"), ("c", "d")])
    assert "plate" not in graph.to_svg()
    framed = graph.to_svg(plates=Plates(around={"left": ("a", "b"), "right": ("c", "d")}))
    assert apart(*rectangles(framed, "plate").values())
    assert framed == graph.to_svg(plates=Plates(around={"left": ("a", "b"), "right": ("c", "d")}))


@pytest.mark.parametrize("direction", ["down", "right"])
def test_a_caption_stays_text(direction: str) -> None:
    svg = CausalGraph.from_edges([("a", "b")]).to_svg(
        plates=Plates(around={"<b>each</b> one": ("b",)}), direction=direction
    )
    assert "&lt;b&gt;each&lt;/b&gt; one" in svg


@NEEDED[0]
@NEEDED[1]
def test_a_caption_keeps_inside_its_plate_in_a_browser() -> None:
    """Captions are bold, and wider than the text that other sizes are reckoned by."""
    graph = CausalGraph.from_edges([("a", "b")])
    svg = graph.to_svg(plates=Plates(around={"each row of prescriptions, in order": ("b",)}))
    with browser() as started, visiting(started, own="about:") as page:
        page.set_content(svg)
        ends = page.evaluate(
            "[...document.querySelectorAll('.plate > *')].map(each => each.getBoundingClientRect().right)"
        )
    frame, caption = ends
    assert caption < frame


def test_plates_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(GraphError, match="overlap"):
        Plates(around={"one": ("a", "b"), "two": ("b", "c")})
    graph = CausalGraph.from_edges([("a", "b")])
    with pytest.raises(GraphError, match="leads back"):
        graph.to_svg(plates=Plates(around={"one": ("b",), "two": ("a",)}))
    with pytest.raises(GraphError, match="plates names"):
        graph.to_svg(plates=Plates(around={"one": ("c",)}))
    with pytest.raises(GraphError, match="turn it round"):
        linked_picture(tables("visits"), CausalGraph.from_edges([("visits.a", "patients.age")]))


@pytest.mark.parametrize("format", list(formats.FORMATS))
def test_every_format_carries_a_graph_over_linked_tables(format: formats.FormatName, tmp_path: Path) -> None:
    made = clinic(10, prescriptions=True)
    text = made.graph.to_text(format)
    assert CausalGraph.parse(text, format) == CausalGraph.parse(text) == made.graph
    path = tmp_path / f"clinic{formats.FORMATS[format].endings[0]}"
    made.graph.write(path)
    assert CausalGraph.read(path) == made.graph
