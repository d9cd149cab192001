"""explore.html: the same answers and refusals as in Python, from one file that loads nothing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from browsing import NEEDED, faults, overflow, visiting
from escudo.causal import CausalGraph
from escudo.cli._release import _print_release
from escudo.errors import GraphError, InputError, NotIdentifiableError
from escudo.privacy import GaussianEvent, Plan
from escudo.report import explorable, explore_page, write_release
from escudo.report._explore import _graph
from escudo.synthesis import CausalModel, LogitConditional, MaxConditional, NoisyOrConditional, TableConditional
from escudo.synthesis._structure import check_identified, check_settled, graph_of
from escudo.table import Schema

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NASTY = "</script><script>alert(1)</script>"
RNG = np.random.default_rng(5)


def random_table(*shape: int) -> np.ndarray:
    table = RNG.gamma(1.0, size=shape) + 0.01
    return table / table.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def clinic(model: CausalModel) -> CausalModel:
    """One column of each kind of law, observed laws beside the graph's, a missing cell, an open edge, a known noise."""
    schema = Schema.from_dict(
        {
            "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 5, "integer": True, "missing": True},
            "smoke": ["no", "yes"],
            "gene": ["a", "b", "c"],
            "lung": ["no", "yes"],
            "cough": ["no", "yes"],
            "visits": [0, 1, 2],
            NASTY: ["x", "y"],
        }
    )
    laws: dict[str, Any] = {
        "age": TableConditional((), random_table(6)),
        "smoke": TableConditional(("age",), random_table(6, 2)),
        "gene": LogitConditional(("age",), RNG.normal(size=3), (RNG.normal(size=(6, 3)),)),
        "lung": NoisyOrConditional(("smoke", "gene"), 0.05, (np.array([0.0, 0.3]), np.array([0.0, 0.1, 0.2]))),
        "cough": MaxConditional(("lung",), 0.1, (np.array([0.05, 0.7]),)),
        "visits": TableConditional(("lung", "cough"), random_table(2, 2, 3)),
        NASTY: TableConditional(("visits",), random_table(3, 2)),
    }
    graph = graph_of({name: law.parents for name, law in laws.items()})
    observed = laws | {
        "cough": TableConditional(("lung", "age"), random_table(2, 6, 2)),
        "smoke": TableConditional(("age", "gene"), random_table(6, 3, 2)),
    }
    noise = GaussianEvent(l2_sensitivity=2**0.5, scale=20.0, grid=1.0)
    names = ["age", "smoke", "smoke | age", "visits | lung, cough"]
    plan = Plan("marginals", children=[Plan(name, noise) for name in names], delta=1e-6)
    lines = ((NASTY, "visits"),)
    kept = tuple(edge for edge in graph.edges if edge != ("visits", NASTY))
    return CausalModel(
        schema=schema,
        graph=graph,
        conditionals=laws,
        observed=observed,
        guarantee=model.guarantee,
        generator="marginals",
        plan=plan,
        details={"rows": 5000},
        stated=replace(graph, edges=kept, undirected_edges=lines),
    )


@pytest.fixture(scope="module")
def ruled(clinic: CausalModel) -> CausalModel:
    """The same, with rules of every kind: values that never meet, parts of bins, a missing cell, an ordering."""
    numbers = {"type": "numeric", "lower": 0, "upper": 90, "bins": 3}
    columns = clinic.schema.to_dict()["columns"] | {"seen": numbers}
    rules = ["smoke = yes -> age >= 30", "gene = a | b -> lung = no", "visits = 2 -> age != (missing)", "seen <= age"]
    laws = dict(clinic.conditionals) | {"seen": TableConditional(("cough",), random_table(2, 3))}
    return replace(
        clinic,
        schema=Schema.from_dict({"columns": columns, "table": {"rules": rules}}),
        graph=graph_of({name: law.parents for name, law in laws.items()}),
        conditionals=laws,
        observed=dict(clinic.observed) | {"seen": TableConditional(("cough", "visits"), random_table(2, 3, 3))},
        stated=None,
    )


class TestTheFile:
    def test_a_release_holds_it_and_its_record_names_it(self, clinic: CausalModel, tmp_path: Path) -> None:
        files = write_release(clinic, tmp_path / "out", rows=20)
        assert files.explore == files.directory / "explore.html"
        listed = json.loads(files.record.read_text(encoding="utf-8"))["files"]
        assert "explore.html" in [entry["path"] for entry in listed]
        assert "explore.html" in files.report.read_text(encoding="utf-8")

    def test_a_model_too_wide_for_a_browser_has_none(
        self, model_of: Callable[..., CausalModel], tmp_path: Path
    ) -> None:
        sixty = {f"c{number}": ["no", "yes"] for number in range(60)}
        assert explorable(model_of(sixty, []))
        wide = model_of(sixty | {"one more": ["no", "yes"]}, [])
        assert not explorable(wide)
        files = write_release(wide, tmp_path / "out", rows=10)
        assert files.explore is None
        assert not (files.directory / "explore.html").exists()

    def test_laws_of_too_many_numbers_have_none(self, model_of: Callable[..., CausalModel]) -> None:
        many = {name: [f"level {number}" for number in range(70)] for name in ("a", "b", "c")}
        assert not explorable(model_of(many, [("a", "c"), ("b", "c")]))

    def test_a_column_worked_out_from_others_has_none_and_the_release_says_why(
        self, model_of: Callable[..., CausalModel], tmp_path: Path
    ) -> None:
        numbers = {"type": "numeric", "lower": 0, "upper": 100, "bins": 5}
        columns = {"start": numbers, "end": numbers, "length": numbers | {"from": "end - start"}}
        model = model_of(columns, [("start", "end")], details={"rows": 100})
        assert not explorable(model)
        files = write_release(model, tmp_path / "out", rows=10)
        assert files.explore is None
        said = io.StringIO()
        _print_release(Console(file=said, width=200), tmp_path, files, 1.0)
        assert "no explore.html     length is worked out from end and start" in said.getvalue()

    def test_names_and_levels_stay_words(self, clinic: CausalModel, outline: Any) -> None:
        page = outline(explore_page(clinic, dataset=NASTY))
        assert page.scripts == 2
        assert page.loads == ["data:,"]

    def test_a_seeded_model_is_marked(self, model_of: Callable[..., CausalModel]) -> None:
        assert "Not for release: the noise was seeded" in explore_page(model_of(seeded=True))
        assert "Not for release" not in explore_page(model_of())


@pytest.fixture(scope="module")
def address(clinic: CausalModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("explore") / "explore.html"
    path.write_text(explore_page(clinic, dataset="clinic"), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def asked(started: Browser, address: str) -> Iterator[Page]:
    """The page, opened once for questions that leave it as it is."""
    with visiting(started, own="file:") as tab:
        tab.goto(address)
        yield tab


@pytest.fixture(scope="module")
def asked_with_rules(started: Browser, ruled: CausalModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("ruled") / "explore.html"
    path.write_text(explore_page(ruled), encoding="utf-8")
    with visiting(started, own="file:") as tab:
        tab.goto(path.as_uri())
        yield tab


def cells(model: CausalModel, values: dict[str, object]) -> list[list[Any]]:
    return [[name, model._read("do", name, value)] for name, value in values.items()]


QUESTIONS: list[tuple[dict[str, object], dict[str, object]]] = [
    ({}, {}),
    ({"smoke": "yes"}, {}),
    ({"age": 30, "gene": "b"}, {}),
    ({}, {"cough": "yes", "age": 95}),
    ({"lung": "yes"}, {"visits": 2}),
    ({}, {"age": None}),
]


class TestInABrowser:
    pytestmark = NEEDED

    @pytest.mark.parametrize(("do", "given"), QUESTIONS)
    def test_exact_answers_are_pythons(
        self, asked: Page, clinic: CausalModel, do: dict[str, object], given: dict[str, object]
    ) -> None:
        names = [name for name in clinic.schema.names if name != NASTY or not do]
        found = asked.evaluate(
            "([fixed, seen, names]) => names.map((name) => "
            "[...escudo.model.marginals(new Map(fixed), new Map(seen), [name]).laws.get(name)])",
            [cells(clinic, do), cells(clinic, given), names],
        )
        for name, law in zip(names, found, strict=True):
            known = {**do, **given}
            expected = (
                np.eye(clinic.schema[name].size)[clinic._read("do", name, known[name])]
                if name in known
                else clinic.probability([name], do=do, given=given)
            )
            assert law == pytest.approx(expected, abs=1e-7)

    @pytest.mark.parametrize(("do", "given"), QUESTIONS[1:])
    def test_drawn_rows_have_the_law_of_pythons_sample(
        self, asked: Page, clinic: CausalModel, do: dict[str, object], given: dict[str, object]
    ) -> None:
        names = [name for name in clinic.schema.names if name != NASTY]
        rows, count = 20_000, 4000
        drawn = clinic.codes(rows, do=do, given=given, columns=names, seed=1)
        found = asked.evaluate(
            "([fixed, seen, names, count]) => {"
            " const rows = escudo.model.rows(count, new Map(fixed), new Map(seen), 3);"
            " return names.map((name) => [...rows.get(name)]); }",
            [cells(clinic, do), cells(clinic, given), names, count],
        )
        for place, name in enumerate(names):
            size = clinic.schema[name].size
            ours = np.bincount(drawn[:, place], minlength=size) / rows
            theirs = np.bincount(found[place], minlength=size) / count
            # Ours are stratified; resampled rows are worth at least a tenth of their number. 1e-6 for each comparison.
            error = 5 * np.sqrt(ours * (1 - ours) * (1 / rows + (10 if given else 1) / count)) + 1 / rows + 1 / count
            assert (np.abs(ours - theirs) <= error).all(), name

    @pytest.mark.parametrize(("do", "given"), QUESTIONS)
    def test_rules_hold_as_they_do_in_python(
        self, asked_with_rules: Page, ruled: CausalModel, do: dict[str, object], given: dict[str, object]
    ) -> None:
        """Added up, the answers are Python's; so is the law of drawn rows, of which none breaks a rule."""
        count = 4000
        names = [name for name in ruled.schema.names if name not in {**do, **given}]
        exact, rows = asked_with_rules.evaluate(
            "([fixed, seen, names, count]) => {"
            " const [held, known] = [new Map(fixed), new Map(seen)];"
            " const rows = escudo.model.rows(count, held, known, 3);"
            " const exact = names.map((name) => escudo.model.marginals(held, known, [name]));"
            " return [exact.map((one, place) => [one.exact, [...one.laws.get(names[place])]]),"
            "   Object.fromEntries([...rows].map(([name, codes]) => [name, [...codes]]))]; }",
            [cells(ruled, do), cells(ruled, given), names, count],
        )
        free = replace(ruled, schema=replace(ruled.schema, rules=()))
        moved = 0.0
        for name, (added_up, law) in zip(names, exact, strict=True):
            expected = ruled.probability([name], do=do, given=given)
            moved = max(moved, np.abs(expected - free.probability([name], do=do, given=given)).max())
            assert added_up
            assert law == pytest.approx(expected, abs=1e-7)
            shares = np.bincount(rows[name], minlength=len(law)) / count
            # Resampled rows are worth at least a tenth of their number. 1e-6 for each comparison.
            assert (np.abs(shares - law) <= 5 * np.sqrt(10 * expected * (1 - expected) / count) + 1 / count).all(), name
        assert moved > 0.01  # the rules say something
        for rule in ruled.schema.checked_rules:
            one, other = rule.columns
            assert (rule.shares(ruled.schema.columns)[rows[one], rows[other]] > 0).all(), str(rule)

    def test_what_the_rules_leave_no_row_for_is_said(
        self, started: Browser, model_of: Callable[..., CausalModel], tmp_path: Path
    ) -> None:
        made = model_of()
        schema = replace(made.schema, rules=("smoke = yes -> lung = yes", "smoke = yes -> region = region 1"))
        (tmp_path / "explore.html").write_text(explore_page(replace(made, schema=schema)), encoding="utf-8")
        with visiting(started, own="file:") as tab:
            tab.goto((tmp_path / "explore.html").as_uri())
            tab.evaluate("escudo.page.set('do', 'smoke', 1)")
            assert tab.locator("#refusal").is_hidden()
            tab.evaluate("escudo.page.set('do', 'lung', 0)")
            assert "the rules of the table leave no row" in tab.locator("#refusal").inner_text()

    def test_the_same_seed_draws_the_same_rows(self, asked: Page) -> None:
        once, again, other = asked.evaluate(
            "[1, 1, 2].map((seed) => [...escudo.model.rows(50, new Map(), new Map(), seed).get('age')])"
        )
        assert once == again != other

    def test_do_is_refused_where_python_refuses_it(self, page: Page) -> None:
        """Random graphs with open edges, groups and hidden causes: both say yes to the same questions."""
        rng = np.random.default_rng(11)
        cases, expected = [], []
        while len(cases) < 150:
            stated, fitted = random_graph(rng, lines=True), random_graph(rng, latents=True)
            columns = [c for node in stated.nodes for c in stated.groups.get(node, (node,))]
            if "a" not in columns or "a" in fitted.latents:
                continue
            do = ["a", *(["b"] if "b" in columns and "b" not in fitted.latents and rng.random() < 0.4 else [])]
            asked = [
                str(name) for name in rng.choice(["c", "d", "e", "nobody"], 2, replace=False, p=[0.4, 0.4, 0.15, 0.05])
            ]
            try:
                check_settled(stated, do, asked)
                check_identified(fitted, do)
                expected.append(True)
            except NotIdentifiableError:
                expected.append(False)
            cases.append([_graph(stated), _graph(fitted), do, asked])
        answered = page.evaluate(
            """(cases) => cases.map(([stated, graph, intervened, asked]) => {
                const model = Object.create(ExploredModel.prototype);
                model.data = { stated, graph };
                return model.refusal(new Map(intervened.map((name) => [name, 0])), new Map(), asked) === "";
            })""",
            cases,
        )
        assert answered == expected
        assert 20 < sum(expected) < 130

    def test_noise_has_the_size_that_the_plan_says(self, page: Page, clinic: CausalModel) -> None:
        """Counts of 5,000 rows meet noise of 20: a share's deviation is 20 / 5000, less what totals take away."""
        law = clinic.probability(["age"])
        noise = 20 / 5000
        # Shares of a total with noise of its own: (N_i + e_i) / (n + sum e).
        expected = noise * np.sqrt((1 - law) ** 2 + (len(law) - 1) * law**2)
        for scale, fits in ((1.0, True), (2 / 3, False), (3 / 2, False)):
            found = page.evaluate(
                """(scale) => {
                    const told = JSON.parse(document.getElementById("model").textContent);
                    told.noise.age.family *= scale;
                    return new ExploredModel(told).noisy().map((laws) => [...laws.get("age").table]);
                }""",
                scale,
            )
            deviation = np.std(np.array(found), axis=0, ddof=1)
            ratio = float(np.sqrt(np.mean((deviation / expected) ** 2)))
            assert (0.8 < ratio < 1.25) == fits, (scale, ratio)

    def test_a_reader_sets_a_column_and_saves_what_it_does(self, page: Page, clinic: CausalModel) -> None:
        page.locator("#column").select_option("smoke")
        page.locator("#value").select_option(label="yes")
        page.get_by_role("button", name="Show").click()
        page.get_by_text("set: smoke = yes").wait_for()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save figures as CSV").click()
        rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8"))))
        now = {row["value"]: float(row["now"]) for row in rows if row["column"] == "lung"}
        assert now["yes"] == pytest.approx(clinic.probability(["lung"], do={"smoke": "yes"})[1], abs=1e-7)
        for name, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
            with page.expect_download() as waiting:
                page.get_by_role("button", name=f"Save as {name}").click()
            assert Path(waiting.value.path()).read_bytes().startswith(start)
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save 1,000 rows").click()
        drawn = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8"))))
        assert len(drawn) == 1000
        assert {row["smoke"] for row in drawn} == {"yes"}

    def test_what_the_graph_leaves_open_is_refused_and_the_rest_answered(self, page: Page) -> None:
        page.evaluate("escudo.page.set('do', 'visits', 0)")
        assert "which nobody has stated" in page.locator("#refusal").inner_text()
        assert page.locator(".card.refused").count() == 1
        page.get_by_role("button", name="Start again").click()
        assert page.locator("#refusal").is_hidden()
        page.locator("#treatment").select_option("visits")
        page.locator("#outcome").select_option(NASTY)
        assert "which nobody has stated" in page.locator("#effect-refusal").inner_text()

    @pytest.mark.parametrize("colours", ["light", "dark"])
    def test_it_fits_a_phone_and_has_no_serious_fault(self, started: Browser, address: str, colours: str) -> None:
        with visiting(started, own="file:", viewport={"width": 390, "height": 800}, color_scheme=colours) as tab:
            tab.goto(address)
            tab.evaluate("escudo.page.set('given', 'smoke', 1)")
            assert overflow(tab) == 0
            assert faults(tab) == []


def random_graph(rng: np.random.Generator, *, lines: bool = False, latents: bool = False) -> CausalGraph:
    names = [str(name) for name in rng.permutation(list("abcde"))]
    edges, open_edges = [], []
    for place, cause in enumerate(names):
        for effect in names[place + 1 :]:
            kind = rng.random()
            if kind < 0.25:
                edges.append((cause, effect))
            elif lines and kind < 0.4:
                open_edges.append((cause, effect))
    hidden = [name for name in names[:2] if latents and name not in "a"]
    groups = {"e": ("e", "f")} if lines and rng.random() < 0.3 else None
    try:
        return CausalGraph.from_edges(edges, nodes=names, undirected=open_edges, latents=hidden, groups=groups)
    except (GraphError, InputError):
        return random_graph(rng, lines=lines, latents=latents)
