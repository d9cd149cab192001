"""report.html: what it says, to whom, and that it is one safe file."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import escudo
from browsing import NEEDED, visiting
from escudo.causal import CausalGraph
from escudo.privacy import GaussianEvent, Guarantee, Plan, SampledGaussianEvent, guarantee_of
from escudo.report import release_page
from escudo.report._page import promise_picture, promise_sentence, who_gets_what
from escudo.report._release_report import FileEntry, limits_of
from escudo.synthesis import CausalModel, TableConditional, synthesize
from escudo.table import PrivateTable, Schema
from escudo.utility import PrivateEvaluation

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MADE = datetime(2026, 11, 5, 12, 30, tzinfo=UTC)
ENTRIES = [FileEntry(path="synthetic.parquet", bytes=12_345, sha256="ab" * 32)]
NASTY = "<script>alert('x')</script> & \"more\" \x07"
TWO_MEGABYTES = 2_000_000


def page_of(model: Any, rows: int = 400, **options: Any) -> str:
    return release_page(model, model.sample(rows, seed=2), made=MADE, **{"entries": ENTRIES, **options})


@pytest.fixture(scope="module")
def page(model: CausalModel) -> str:
    return page_of(model, dataset="clinic-2026")


@pytest.fixture(scope="module")
def wide(model_of: Callable[..., CausalModel]) -> str:
    rng = np.random.default_rng(1)
    names = [f"a rather long symptom name {number}" for number in range(222)]
    arrows = [(names[i], names[j]) for j in range(60, 222) for i in rng.choice(60, size=5, replace=False)]
    return page_of(model_of({name: ["no", "yes"] for name in names}, arrows))


def test_a_name_that_a_shell_would_read_as_a_command_is_quoted(model: CausalModel) -> None:
    paid = {"anchor": {"ledger_id": "ab", "rows": 2, "head": "cd"}}
    page = page_of(replace(model, details={**model.details, **paid}), dataset="visits; rm -rf ~")
    assert f"escudo ledger history {escape(chr(39))}visits; rm -rf ~{escape(chr(39))}" in page.replace(
        "&#39;", "&#x27;"
    )


class TestWhatItSays:
    def test_a_page_speaks_of_a_ledger_only_if_one_paid(self, model: CausalModel, page: str) -> None:
        assert "anchor" not in model.details
        assert "No ledger keeps what it cost" in page
        assert "escudo ledger" not in page
        assert "refuses what goes beyond its cap" not in page
        paid = {"anchor": {"ledger_id": "ab", "rows": 2, "head": "cd"}}
        other = page_of(replace(model, details={**model.details, **paid}), dataset="clinic-2026")
        assert "escudo ledger verify --expect release.json" in other
        assert "refuses what goes beyond its cap" in other
        assert "No ledger" not in other

    def test_lines_are_explained_only_where_some_are_drawn(self, page: str, model: CausalModel) -> None:
        assert "Lines join columns" not in page
        assert "with arrows into" in " ".join(page.split())
        arrows = [list(edge) for edge in model.graph.edges]
        some = page_of(replace(model, details={**model.details, "stated_arrows": arrows[1:]}))
        assert "Lines join columns" in some
        assert "One of its lines was stated by nobody" in some

    def test_sections_come_in_the_order_of_a_leaflet(self, page: str) -> None:
        headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
        assert headings == [
            "What was released",
            "What it promises",
            "What it cost",
            "The causes it assumes",
            "What the synthetic data look like",
            "How far off it may be",
            "What it does not protect",
            "What the data cannot tell",
            "Check it, and cite it",
            "For statisticians",
        ]

    def test_the_promise_comes_first_in_one_sentence(self, page: str, model: CausalModel, outline: Any) -> None:
        lead = outline(page).text.split("What was released")[0]
        times = math.ceil(math.exp(model.guarantee.epsilon or 0) * 100) / 100
        assert f"Whatever your row says, it makes nothing in this release more than {times} times" in lead
        assert "except with probability 1 in 1,000,000" in lead

    def test_epsilon_stands_on_the_arrow_of_the_causal_picture(self, model: CausalModel) -> None:
        svg = promise_picture(model.guarantee)
        assert re.search(r"ε ≤ \d\.\d\d, δ = 10⁻⁶", svg)
        for name in ("one person", "their row", "everybody else", "measured, with noise"):
            assert name in svg

    def test_the_budget_tree_shows_every_step(self, page: str, model: CausalModel, outline: Any) -> None:
        cost = outline(page).text.split("What it cost")[1].split("The causes it assumes")[0]
        for leaf in model.plan.leaves():
            assert leaf.name in cost
            assert leaf.buys in cost
        assert "sampling free" in cost

    def test_noisy_gradients_have_their_bar_too(self, model: CausalModel) -> None:
        training = SampledGaussianEvent(noise_multiplier=3.0, sampling_probability=0.2)
        whole = replace(model, plan=Plan("vae", children=[*model.plan.children, Plan("training", training, count=50)]))
        line = page_of(whole).split("50 × training", 1)[1].split("</tr>", 1)[0]
        assert float(re.findall(r"width:([\d.]+)%", line)[0]) > 50

    def test_every_column_has_its_chart_and_every_pair_its_square(self, page: str, model: CausalModel) -> None:
        names = model.schema.names
        for name in names:
            assert f"<h3>{name}</h3>" in page
        squares = re.findall(r"<title>(\w+), (\w+): \d\.\d\d</title>", page)
        assert len(squares) == math.comb(len(names), 2)

    def test_noise_is_given_in_rows_and_per_cent_of_the_rows(self, page: str, outline: Any) -> None:
        text = outline(page).text
        assert "age 23 cells 20 .0 0 .20" in text  # 20 of the 10,000 rows that the details state
        assert "Groups of fewer than about 200 rows are too small" in text

    def test_it_can_be_checked_and_cited(self, page: str, outline: Any) -> None:
        text = outline(page).text
        assert "sha256sum --check" in text
        assert f"{'ab' * 32} synthetic.parquet" in text
        assert "Synthetic data from clinic-2026, 2026. Differentially private release" in text
        assert "escudo sample model --rows 1000 --do smoke=no" in text

    def test_numbers_for_statisticians_are_one_fold_below(self, page: str, model: CausalModel, outline: Any) -> None:
        folded = page.split("For statisticians</h2>")[1]
        for title in ("The guarantee in full", "Events behind the budget", "Schema", "Arrows of the graph"):
            assert f"<summary>{title}</summary>" in folded
        assert model.schema.fingerprint in folded
        assert "smoke -&gt; lung" in folded
        assert "&#34;kind&#34;: &#34;gaussian&#34;" in folded

    def test_the_same_release_gives_the_same_page(self, page: str, model: CausalModel) -> None:
        assert page_of(model, dataset="clinic-2026") == page

    def test_one_column_without_arrows_is_a_release_too(self, model_of: Callable[..., CausalModel]) -> None:
        alone = page_of(model_of({"smoke": ["no", "yes"]}, []))
        assert "Which columns go together" not in alone
        assert "escudo sample model --rows 1000</pre>" in alone

    def test_a_linear_model_has_a_report(self, outline: Any) -> None:
        rng = np.random.default_rng(3)
        height = rng.normal(170, 10, 4000)
        frame = pl.DataFrame({"height": height, "weight": 0.9 * height - 80 + rng.normal(0, 8, 4000)})
        bounds = {"height": (120, 220), "weight": (20, 160)}
        schema = Schema.from_dict(
            {name: {"type": "numeric", "lower": low, "upper": high} for name, (low, high) in bounds.items()}
        )
        fitted = synthesize(PrivateTable(frame, schema), None, epsilon=1.0, delta=1e-6, generator="linear", seed=1)
        text = outline(page_of(fitted)).text
        assert "times the most that one record can change" in text
        assert "linear function of its causes" in text
        assert "half lie between" in text


class TestWarnings:
    def test_a_seeded_run_is_marked_on_the_screen_and_on_every_printed_page(
        self, model_of: Callable[..., CausalModel], page: str
    ) -> None:
        seeded = page_of(model_of(seeded=True))
        assert '<div class="marking">Not for release: the noise was seeded</div>' in seeded
        assert '@page { @top-center { content: "Not for release' in seeded
        assert '<div class="watermark"' in seeded
        assert "A trial run. Made without a seed it would promise" in seeded
        assert "Not for release" not in page

    def test_noise_in_floating_point_is_admitted(self, model: CausalModel, page: str) -> None:
        unsafe = replace(model, guarantee=replace(model.guarantee, float_safe=False))
        assert "Floating-point noise" in page_of(unsafe)
        assert "Floating-point noise" not in page

    def test_latents_and_arrows_nobody_stated_are_named(
        self, model_of: Callable[..., CausalModel], outline: Any
    ) -> None:
        arrows = [("genes", "smoke"), ("genes", "lung"), ("age", "lung")]
        made = model_of(arrows=arrows, latents=["genes"], picks=1, details={"stated_arrows": []})
        text = outline(page_of(made)).text
        assert "The graph names genes as unobserved" in text
        assert "1 of 3 were picked privately, by how much the columns depend on each other: age → lung" in text
        assert "One of its lines was stated by nobody but picked privately" in text
        assert "2 causal arrows, 1 line" in text
        assert "Lines join columns that go together" in text

    def test_what_is_public_depends_on_the_relation(self, model_of: Callable[..., CausalModel]) -> None:
        def public(made: CausalModel) -> str:
            return dict(limits_of(made, noise=[], added=None)["What it does not protect"])["What counts as public"]

        assert "how many rows" in public(model_of())
        assert "how many rows" not in public(model_of(relation="add_remove"))
        assert "how many rows" not in public(model_of(person=2))


class TestWhoGetsWhat:
    def test_groups_get_the_stretched_events_at_the_same_delta(self, model: CausalModel) -> None:
        rows = who_gets_what(model.guarantee)
        event = model.plan.event
        assert event is not None
        for row, steps in zip(rows[1:], (2, 4, 10), strict=True):
            exact = guarantee_of(event.stretched(steps), delta=1e-6).epsilon
            assert exact is not None
            assert 0 <= float(row["epsilon"]) - exact < 0.0101  # rounded up
        assert float(rows[0]["epsilon"]) >= (model.guarantee.epsilon or 0)

    def test_the_even_guess_is_the_bound_of_the_trade_off(self) -> None:
        (row, *_) = who_gets_what(Guarantee(epsilon=math.log(3)))
        assert row["guess"] == "75.0"
        assert row["times"] == "3.00"
        (row, *_) = who_gets_what(Guarantee(epsilon=0.0, delta=0.5))
        assert row["guess"] == "75.0"  # (1 + 0.5) / 2

    def test_the_best_guess_is_what_the_promise_allows_an_attack(self, model: CausalModel) -> None:
        from escudo.attacks import ceiling_of

        (row, *_) = who_gets_what(model.guarantee)
        ceiling = ceiling_of(model.guarantee, "replace_one").accuracy
        assert 100 * ceiling - 0.02 < float(row["guess"]) < 100 * ceiling + 0.3  # fewer points of the curve, rounded up
        assert float(row["guess"]) < 60 < 100 * (math.e + 1e-6) / (1 + math.e)

    def test_a_person_with_many_rows_is_the_unit_where_the_schema_says_so(
        self, model_of: Callable[..., CausalModel], outline: Any
    ) -> None:
        made = model_of(person=5, relation="add_remove")
        text = outline(page_of(made)).text
        assert "A person with all of their rows at most 5 of their rows count" in text
        assert "Whether or not your rows are in the table" in text
        assert "their rows, at most 5" in promise_picture(made.guarantee)

    def test_where_nothing_is_left_it_says_so(self) -> None:
        rows = who_gets_what(Guarantee(epsilon=5.0, delta=1e-3))
        assert rows[-1]["epsilon"] == "∞"
        assert rows[-1]["guess"] == "100.0"

    @pytest.mark.parametrize(
        ("guarantee", "words"),
        [
            (Guarantee(epsilon=1.0), "2.72 times (e^1.00) as likely."),
            (Guarantee(epsilon=1.0, delta=1e-5), "except with probability 1 in 100,000."),
            (Guarantee(rho=0.5), "except with probability 1 in 1,000,000."),
            (Guarantee(epsilon=30.0), "more than e^30.00 times as likely"),
            (Guarantee(epsilon=0.001), "1.0011 times (e^0.0010)"),
            (Guarantee(epsilon=1.0, relation="add_remove"), "Whether or not your row is in the table"),
        ],
    )
    def test_the_sentence_fits_the_guarantee(self, guarantee: Guarantee, words: str) -> None:
        assert words in promise_sentence(guarantee)


class TestAnEvaluation:
    def test_it_says_what_was_paid_and_what_came_out_with_intervals(
        self, model: CausalModel, paid: PrivateEvaluation, outline: Any
    ) -> None:
        html = page_of(model, evaluation=paid)
        text = outline(html).text.split("How good it is, measured on the real rows")[1].split("What it does not")[0]
        assert "Part of the budget (ρ = 0.002801)" in text
        assert "one column at a time 1 .2 0.8 to 1.6 0 .5" in text
        assert "three columns together 5 .6 5.2 to 6.0 2 .0" in text
        assert "Each of smoke, lung was predicted from all other columns" in text
        assert "learners trained on the synthetic rows 78 .9 78.5 to 79.3" in text
        assert "17.9 points better than knowing nothing" in text
        assert "noise of ± 0.2 of 100" in text

    def test_figures_that_there_are_none_of_are_left_out(
        self, model: CausalModel, paid: PrivateEvaluation, outline: Any
    ) -> None:
        few = replace(paid, three_way=None, accuracy=None, baseline=None)
        text = outline(page_of(model, evaluation=few)).text
        assert "two columns together" in text
        assert "three columns together" not in text
        assert "Learning from it" not in text

    @pytest.mark.parametrize(
        ("accuracy", "said"),
        [(0.612, "The noise is too large to tell"), (0.5, "They do worse than knowing nothing, by 11.0 points")],
    )
    def test_it_does_not_flatter(
        self, model: CausalModel, paid: PrivateEvaluation, outline: Any, accuracy: float, said: str
    ) -> None:
        assert said in outline(page_of(model, evaluation=replace(paid, accuracy=accuracy))).text

    def test_its_noise_is_not_listed_among_the_tables(self, model: CausalModel, paid: PrivateEvaluation) -> None:
        leaf = Plan("private evaluation", GaussianEvent(l2_sensitivity=2.0, scale=80.0, grid=1.0))
        whole = replace(model, plan=Plan("marginals", children=[*model.plan.children, leaf]))
        html = page_of(whole, evaluation=paid)
        far = html.split("How far off it may be</h2>")[1].split("<h2>")[0]
        assert "private evaluation" not in far
        assert "private evaluation" in html.split("What it cost</h2>")[1].split("<h2>")[0]


class TestTheGraph:
    EDGES = (
        {"from": "smoke", "to": "lung", "directed": True, "confidence": 0.97, "direction_confidence": 0.8},
        {"from": "age", "to": "smoke", "directed": False, "confidence": 0.61, "direction_confidence": None},
    )

    def found(self, model_of: Callable[..., CausalModel]) -> CausalModel:
        told = {"method": "exact", "edges": list(self.EDGES), "cannot_tell": "", "notes": []}
        return model_of(details={"rows": 9000, "discovery": told, "stated_arrows": [["smoke", "lung"]]})

    def test_one_that_was_found_says_so_and_how_sure_each_edge_is(
        self, model_of: Callable[..., CausalModel], outline: Any
    ) -> None:
        html = page_of(self.found(model_of))
        text = outline(html).text
        assert "Nobody stated this graph." in text
        assert "smoke → lung 97 .0 80 .0" in text
        assert "age — smoke 61 .0 open" in text
        assert "97 %" in html.split("<svg")[2]  # at its arrow in the drawing
        assert "1 of 2 edges are there with a confidence of 90 % or more, and 1 of 2 have a direction" in text
        assert "2 of the 3 arrows drawn only help to imitate the table" in text
        for wrong in ("The graph is an assumption", "the order of the columns", "stated by nobody but"):
            assert wrong not in text

    def test_one_without_an_edge_says_that_nothing_stood_out(
        self, model_of: Callable[..., CausalModel], outline: Any
    ) -> None:
        told = {"method": "exact", "edges": [], "cannot_tell": "too few rows", "notes": []}
        text = outline(page_of(model_of(arrows=[], details={"discovery": told, "stated_arrows": []}))).text
        assert "No edge stood out from the noise." in text

    def test_one_that_was_given_is_an_assumption(self, page: str, outline: Any) -> None:
        text = outline(page).text
        assert "The graph is an assumption" in text
        assert "and on nothing else" in text
        assert "Nobody stated this graph" not in text

    def test_what_goes_together_without_an_arrow_is_told_apart_from_causes(
        self, model: CausalModel, outline: Any
    ) -> None:
        laws = dict(model.conditionals)
        shape = model.schema.shape(["smoke", "region"])
        laws["region"] = TableConditional(("smoke",), np.full(shape, 1 / shape[-1]))
        text = outline(page_of(replace(model, observed=laws))).text
        assert "these columns were seen to go together, without an arrow between them. That claims no cause" in text
        assert "smoke — region" in text
        assert "Given its causes, and the columns it was seen to go with" in text
        assert "and on nothing else" not in text


class TestOneSafeFile:
    ALLOWED = re.compile(r"data:,|(width|font-size|max-width|margin-left):[\w.%;:-]*")

    def test_it_loads_nothing_and_runs_nothing(self, page: str, outline: Any) -> None:
        found = outline(page)
        assert found.scripts == 0
        assert [load for load in found.loads if not self.ALLOWED.fullmatch(load)] == []
        assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)

    def test_every_text_is_escaped(self, model_of: Callable[..., CausalModel], outline: Any) -> None:
        columns = {NASTY: [NASTY, "plain"], "number": {"type": "numeric", "lower": 0, "upper": 9}, "last": ["a", "b"]}
        made = model_of(
            columns, [(NASTY, "number"), ("number", "last")], details={NASTY: NASTY, "stated_arrows": [["a", NASTY]]}
        )
        found = outline(page_of(made, dataset=NASTY))
        assert found.scripts == 0
        assert [load for load in found.loads if not self.ALLOWED.fullmatch(load)] == []
        assert found.text.count("<script>alert(") > 5  # as words to read

    def test_an_evaluations_words_are_escaped_too(
        self, model: CausalModel, paid: PrivateEvaluation, outline: Any
    ) -> None:
        found = outline(page_of(model, evaluation=replace(paid, targets=(NASTY,))))
        assert found.scripts == 0
        assert [load for load in found.loads if not self.ALLOWED.fullmatch(load)] == []

    def test_222_columns_stay_under_two_megabytes(self, wide: str) -> None:
        assert len(wide.encode("utf-8")) < TWO_MEGABYTES
        assert wide.count('<div class="card">') == 30
        assert "The first 60 of 222 columns." in wide
        assert "The other" in wide

    def test_a_column_of_many_levels_or_bins_stays_small(self, model_of: Callable[..., CausalModel]) -> None:
        columns = {
            "postcode": [f"code {number}" for number in range(5000)],
            "income": {"type": "numeric", "lower": 0, "upper": 1e6, "bins": 4000},
            "ordered": {"type": "ordinal", "levels": [f"grade {number}" for number in range(300)]},
        }
        large = page_of(model_of(columns, []))
        assert len(large.encode("utf-8")) < TWO_MEGABYTES
        assert "4993 others" in large
        assert "the rest is in release.json" in large


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium binary, none is on this machine")
class TestInABrowser:
    def test_no_error_and_nothing_is_asked_for(self, page: str, tmp_path: Path) -> None:
        dom, log = browse(page, tmp_path)
        assert "Synthetic data from clinic-2026" in dom
        assert "CONSOLE" not in log

    def test_the_browser_would_tell(self, page: str, tmp_path: Path) -> None:
        tampered = page.replace("</main>", '<img src="https://example.invalid/x.png"></main>')
        assert "CONSOLE" in browse(tampered, tmp_path)[1]

    def test_it_fits_a_phone_without_sideways_scrolling(
        self, model: CausalModel, paid: PrivateEvaluation, wide: str, tmp_path: Path
    ) -> None:
        page = page_of(model, evaluation=paid)
        for number, one in enumerate((page, wide)):
            assert scroll_width(one, 390, tmp_path / str(number)) == 390
        broken = page.replace("</main>", '<div style="width:800px">too wide</div></main>')
        assert scroll_width(broken, 390, tmp_path / "broken") > 800


def scroll_width(page: str, width: int, folder: Path) -> int:
    """Return how wide a page wants to be in a window of this width, asked from outside by a page that may."""
    folder.mkdir()
    probe = folder / "probe.html"
    frame = f'<iframe id="page" style="width:{width}px;height:800px;border:0" srcdoc="{escape(page)}"></iframe>'
    probe.write_text(
        frame + '<p id="said"></p>'
        "<script>onload = () => { said.textContent = "
        "'wide:' + document.getElementById('page').contentDocument.documentElement.scrollWidth }</script>",
        encoding="utf-8",
    )
    found = re.search(r"wide:(\d+)", run(["--dump-dom", "--hide-scrollbars"], probe, folder).stdout)
    assert found is not None
    return int(found[1])


def browse(page: str, folder: Path) -> tuple[str, str]:
    """Return what a browser makes of a page, and what it logs."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    done = run(["--enable-logging=stderr", "--dump-dom"], path, folder)
    return done.stdout, done.stderr


def run(options: list[str], path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"]
    flags += ["disable-component-update", "disable-sync", f"user-data-dir={folder / 'profile'}"]
    command = [CHROMIUM, *(f"--{flag}" for flag in flags), *options, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


# ---- the error that is expected, before and after


@pytest.fixture(scope="module")
def expected_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of releases that had a forecast, and of one that had none."""
    home, schema = tmp_path_factory.mktemp("expected"), Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
    graph = CausalGraph.from_edges([("smoke", "ill")])
    table = PrivateTable(pl.DataFrame({"smoke": ["no", "yes"] * 500, "ill": ["no", "no", "yes", "yes"] * 250}), schema)
    both = escudo.release(table, home / "both", graph=graph, epsilon=1.0, delta=1e-6, seed=1)
    model = escudo.synthesize(table, graph, epsilon=1.0, delta=1e-6, seed=1)
    return {"both": both.report, "drawn": escudo.report.write_release(model, home / "drawn", rows=100, seed=1).report}


def test_a_forecast_that_there_was_not_has_no_column(expected_pages: dict[str, Path]) -> None:
    both, drawn = (expected_pages[name].read_text(encoding="utf-8") for name in ("both", "drawn"))
    for told in (both, drawn):
        assert "by the<br>noise drawn</th>" in told
        assert "by the noise that every table got in the end" in told
    assert "foretold</th>" in both
    assert "foretold from public facts" in both
    assert "foretold" not in drawn


class TestOnAPhone:
    pytestmark = NEEDED

    @pytest.mark.parametrize("name", ["both", "drawn"])
    def test_the_table_of_expected_errors_is_not_cut_off(
        self, started: Browser, expected_pages: dict[str, Path], name: str
    ) -> None:
        with visiting(started, own="file:", viewport={"width": 390, "height": 800}) as tab:
            tab.goto(expected_pages[name].as_uri())
            ends = tab.evaluate(
                "[...document.querySelectorAll('table.noise')].map(x => x.getBoundingClientRect().right)"
            )
            assert ends
            assert max(ends) <= 371  # where the text ends
