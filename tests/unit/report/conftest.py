"""Small released models, made by hand so that no test waits for a fit, and a reader of pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from browsing import browser, visiting
from escudo.causal import CausalGraph
from escudo.privacy import ExponentialEvent, GaussianEvent, Guarantee, Plan, guarantee_of
from escudo.synthesis import CausalModel, TableConditional
from escudo.table import Schema
from escudo.utility import PrivateEvaluation

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CLINIC: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 0, "upper": 110, "bins": 22, "integer": True, "missing": True},
    "smoke": ["no", "yes"],
    "lung": ["no", "yes"],
    "region": [f"region {number}" for number in range(12)],
}
ARROWS = (("age", "smoke"), ("smoke", "lung"), ("age", "lung"))


def make_model(
    columns: Mapping[str, Any] = CLINIC,
    arrows: Sequence[tuple[str, str]] = ARROWS,
    *,
    latents: Sequence[str] = (),
    seeded: bool = False,
    relation: Any = "replace_one",
    person: int | None = None,
    picks: int = 0,
    details: Mapping[str, Any] | None = None,
    scale: float = 20.0,
) -> CausalModel:
    """Return a model of random tables under a plan of Gaussian counts."""
    rng = np.random.default_rng(7)
    schema = Schema.from_dict(dict(columns), person_id=None if person is None else "person", max_rows_per_person=person)
    graph = CausalGraph.from_edges(arrows, nodes=schema.names, latents=latents)
    laws = {}
    for name in schema.names:
        parents = tuple(parent for parent in graph.parents(name) if parent in schema)
        table = rng.gamma(1.0, size=schema.shape([*parents, name])) + 0.01
        laws[name] = TableConditional(parents, table / table.sum(axis=-1, keepdims=True))
    l2 = (math.sqrt(2) if relation == "replace_one" else 1.0) * (person or 1)
    rows = schema.max_rows_per_person
    noise = GaussianEvent(
        l2_sensitivity=l2, scale=scale, grid=1.0, relation=relation, unit=schema.unit, max_rows_per_person=rows
    )
    children = [Plan(name, noise, buys=f"{law.table.size} cells") for name, law in laws.items()]
    plan = [Plan("family tables", children=children), Plan("sampling")]
    if picks:
        pick = ExponentialEvent(epsilon=0.05, relation=relation, unit=schema.unit, max_rows_per_person=rows)
        plan.insert(0, Plan("pick a tree", pick, count=picks))
    tree = Plan("marginals", children=plan)
    assert tree.event is not None
    return CausalModel(
        schema=schema,
        graph=graph,
        conditionals=laws,
        guarantee=replace(guarantee_of(tree.event, delta=1e-6, max_rows_per_person=person), for_release=not seeded),
        generator="marginals",
        plan=tree,
        details=details or {},
    )


class Outline(HTMLParser):
    """What a page would load, its visible text, and whether its tags are closed."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts = 0
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data", "action", "style")]
        self.loads += [name for name, _ in attrs if name.startswith("on")]
        self.scripts += tag == "script"
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\N{NO-BREAK SPACE}", " ").split())


@pytest.fixture(scope="session")
def model_of() -> Callable[..., CausalModel]:
    return make_model


@pytest.fixture(scope="session")
def model() -> CausalModel:
    return make_model(details={"rows": 10_000, "stated_arrows": [list(arrow) for arrow in ARROWS]})


@pytest.fixture(scope="session")
def paid() -> PrivateEvaluation:
    """Figures that somebody paid for."""
    return PrivateEvaluation(
        one_way=0.012,
        two_way=0.034,
        three_way=0.056,
        accuracy=0.789,
        baseline=0.61,
        deviation=0.002,
        targets=("smoke", "lung"),
        guarantee=Guarantee(rho=0.0028, source=GaussianEvent(l2_sensitivity=1.0, scale=13.363, grid=1.0)),
        intervals={
            "one_way": (0.008, 0.016),
            "two_way": (0.03, 0.038),
            "three_way": (0.052, 0.06),
            "accuracy": (0.785, 0.793),
            "baseline": (0.606, 0.614),
        },
        chance={"one_way": 0.005, "two_way": 0.011, "three_way": 0.02},
    )


@pytest.fixture(scope="session")
def outline() -> type[Outline]:
    return Outline


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    """Start a browser."""
    with browser() as one:
        yield one


@pytest.fixture
def page(started: Browser, address: str) -> Iterator[Page]:
    """Open the page at the address that a file of tests gives; its faults are errors."""
    with visiting(started, own="file:", accept_downloads=True) as tab:
        tab.goto(address)
        yield tab
