"""The pages on discoveries and effects: complete, self-contained, escaped, and marked where they must be."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from escudo._card import text_width
from escudo.causal import CausalGraph
from escudo.discovery import Discovery
from escudo.discovery._effect_of import effect_of
from escudo.discovery._treatment import TreatmentEffect
from escudo.privacy import Plan, PureEvent
from escudo.report._causal_pages import discovery_page, interval_chart, treatment_page
from escudo.table import PrivateTable, Schema

NASTY = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """Checks that tags are closed, and collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href") and value != "data:,"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.loads == []
    assert "script" not in reader.tags
    return reader


def found(graph: CausalGraph, *, cannot_tell: str = "", seeded: bool = False) -> Discovery:
    plan = Plan("discovery (exact)", PureEvent(epsilon=0.5))
    return Discovery(
        graph=graph,
        generating_graph=graph.extension(),
        edge_confidence={pair: 0.95 - 0.3 * place for place, pair in enumerate(graph.adjacencies)},
        direction_confidence={edge: 0.8 for edge in graph.edges[:1]},
        method="exact",
        plan=plan,
        guarantee=replace(plan.guarantee(), for_release=not seeded),
        rows=1234,
        cannot_tell=cannot_tell,
        notes=["age: 22 levels were merged to 8."],
    )


GRAPH = CausalGraph.from_edges([("smoke", "lung"), ("age", "lung")], undirected=[("smoke", "drink")])


def test_the_page_shows_graph_confidence_promise_and_limits() -> None:
    page = discovery_page(found(GRAPH), dataset="visits", known=CausalGraph.from_edges([("age", "lung")]))
    read(page)
    for text in (
        "What causes what in visits",
        "3 pairs of 4 columns depend on each other directly, 2 of them with a direction",
        "smoke → lung",
        "smoke — drink",
        "Known beforehand: 1 arrow stated",
        "e<sup>0.50</sup>",
        "common cause of two columns that is not in the table",
        "22 levels were merged",
        "about 1,234",
    ):
        assert text in page, text
    assert "Not for release" not in page


def test_wider_lines_are_surer() -> None:
    page = discovery_page(found(GRAPH))
    widths = {
        edge: float(width)
        for edge, width in re.findall(
            r'<g class="edge"><title>([^<:]+): \d+ %</title><path d="[^"]+" stroke-width="([^"]+)"', page
        )
    }
    assert widths["age → lung"] > widths["smoke — drink"] > widths["smoke → lung"]


def test_a_seeded_discovery_is_marked_and_an_empty_one_says_so() -> None:
    empty = CausalGraph.from_edges([], nodes=["a", "b"])
    page = discovery_page(found(empty, cannot_tell="no dependence stands out", seeded=True))
    read(page)
    assert "Not for release: the noise was seeded" in page
    assert "No edge stands out from the noise." in page
    assert "No dependence stands out." in page


def test_names_cannot_break_out_of_the_pages() -> None:
    read(discovery_page(found(CausalGraph.from_edges([(NASTY, "b")])), dataset=NASTY))
    frame = pl.DataFrame({NASTY: [True, False] * 500, "y": [True, False, False, False] * 250})
    schema = Schema.from_dict({NASTY: {"type": "boolean"}, "y": {"type": "boolean"}})
    effect = effect_of(PrivateTable(frame, schema), NASTY, "y", trial=True, epsilon=1.0, seed=1)
    page = treatment_page(effect, graph=CausalGraph.from_edges([(NASTY, "y")]), dataset=NASTY)
    read(page)
    assert NASTY not in page


def test_a_large_graph_is_listed_instead_of_drawn() -> None:
    names = [f"c{i}" for i in range(130)]
    page = discovery_page(found(CausalGraph.from_edges([("c0", "c1")], nodes=names)))
    read(page)
    assert "too large to draw" in page


@pytest.fixture(scope="module")
def effect() -> TreatmentEffect:
    rng = np.random.default_rng(0)
    age = rng.random(6000) < 0.5
    dose = np.where(rng.random(6000) < 0.3 + 0.3 * age, rng.integers(1, 3, 6000), 0)
    well = rng.random(6000) < 0.3 + 0.2 * (dose > 0) - 0.1 * age
    frame = pl.DataFrame({"old": age, "dose": np.array(["none", "low", "high"])[dose], "well": well})
    schema = Schema.from_dict(
        {"old": {"type": "boolean"}, "dose": ["none", "low", "high"], "well": {"type": "boolean"}}
    )
    return effect_of(PrivateTable(frame, schema), "dose", "well", adjust=["old"], epsilon=1.0)


def test_the_effect_page_answers_first_and_says_what_it_rests_on(effect: TreatmentEffect) -> None:
    graph = CausalGraph.from_edges([("old", "dose"), ("old", "well"), ("dose", "well")])
    page = treatment_page(effect, graph=graph, dataset="trial")
    reader = read(page)
    for text in (
        "What dose does to well",
        "If everybody had the same dose",
        "Differences between levels",
        "none → high",
        "adjusted for",
        "e<sup>1.00</sup>",
        "The estimand",
    ):
        assert text in page, text
    assert reader.tags.count("svg") == 3
    assert effect.verdict.split(" by ")[0].replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}") in page


def test_warnings_are_in_sight(effect: TreatmentEffect) -> None:
    page = treatment_page(replace(effect, warnings=("About 30% of the rows lie where …",)))
    read(page)
    assert "About 30% of the rows" in page
    assert "Too few rows to compare" in page


def test_a_chart_keeps_every_interval_on_its_scale() -> None:
    chart = str(interval_chart([("a", 0.0, (-1.0, 1.0)), ("b", 5.0, (4.0, 9.0))], title="two", zero=True))
    places = [float(x) for x in re.findall(r"[MH](\d+\.\d)", chart)]
    assert all(0 <= x <= 760 for x in places)
    assert 'aria-label="two"' in chart
    assert 'class="zero"' in chart


def test_bold_names_have_room_on_the_left() -> None:
    name = "none → moderate"
    chart = str(interval_chart([(name, 0.0, (-1.0, 1.0)), ("low", 5.0, (4.0, 9.0))], title="two"))
    ends = [float(x) for x in re.findall(r'<text x="([0-9.]+)" y="[0-9.]+" class="end name">', chart)]
    assert name in chart
    assert min(ends) >= 1.2 * text_width(name, 13.0)
