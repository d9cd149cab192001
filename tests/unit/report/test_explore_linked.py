"""explore.html of linked tables: people and rows as Python draws them, from one file that loads nothing."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import escudo
from browsing import NEEDED, faults, overflow, visiting
from escudo.causal import CausalGraph
from escudo.report import LinkedWriting, explorable, explore_page
from escudo.synthesis import LinkedModel, clinic
from escudo.synthesis._linked_model import Drawn
from escudo.table import LinkedSchema, PrivateTables

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NASTY = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def model() -> LinkedModel:
    made = clinic(1500, seed=1)
    return escudo.synthesize(PrivateTables(made.frames, made.schema), made.graph, epsilon=20.0, delta=1e-6, seed=1)


def test_a_release_holds_it_and_its_record_names_it(model: LinkedModel, tmp_path: Path) -> None:
    files = LinkedWriting(people=20, dataset="clinic", seed=1).write(model, tmp_path / "out")
    assert files.explore == files.directory / "explore.html"
    assert '"explore.html"' in files.record.read_text(encoding="utf-8")
    assert "explore.html" in files.report.read_text(encoding="utf-8")


def test_names_and_levels_stay_words(outline: Any) -> None:
    schema = LinkedSchema.from_dict(
        {
            "linked": {"people": "p", "dates": "days"},
            "tables": {
                "p": {"key": "id", "origin_day": 0, "columns": {NASTY.replace("/", " "): [NASTY, "x"]}},
                "v": {
                    **{"parent": "p", "foreign_key": "id", "order": "day", "most": 3},
                    **{"start_edges": [0, 9], "gap_edges": [0, 9], "columns": {"ill": [NASTY, "no"]}},
                },
            },
        }
    )
    frames = {"p": {"id": [1, 2], NASTY.replace("/", " "): ["x", "x"]}, "v": {"id": [1], "day": [1], "ill": ["no"]}}
    tables = PrivateTables({name: pl.DataFrame(columns) for name, columns in frames.items()}, schema)
    page = outline(explore_page(escudo.synthesize(tables, None, epsilon=1.0, delta=1e-6, seed=1), dataset=NASTY))
    assert page.scripts == 2
    assert page.loads == ["data:,"]


def test_a_model_too_wide_for_a_browser_has_none(model: LinkedModel, tmp_path: Path) -> None:
    import escudo.report._explore as explore

    wide = replace(model)
    assert explorable(wide)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore, "MOST_COLUMNS", 3)
        assert not explorable(wide)
        assert LinkedWriting(people=5, seed=1).write(wide, tmp_path / "out").explore is None
    assert not (tmp_path / "out" / "explore.html").exists()


@pytest.fixture(scope="module")
def address(model: LinkedModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("explore") / "explore.html"
    path.write_text(explore_page(model, dataset="clinic"), encoding="utf-8")
    return path.as_uri()


QUESTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"patients.smoke": "current"}, {}),
    ({"visits.treat": {"1": "no", "2-": "yes"}}, {}),
    ({"visits.severity": {"3-5": "severe"}, "visits.gap": 200, "visits.count": 7}, {}),
    ({"visits.treat": "yes"}, {"patients.smoke": "never", "patients.age": 45}),
]


class TestInABrowser:
    pytestmark = NEEDED

    @pytest.mark.parametrize(("do", "given"), QUESTIONS)
    def test_people_and_rows_have_the_laws_of_pythons_sample(
        self, page: Page, model: LinkedModel, do: dict[str, Any], given: dict[str, Any]
    ) -> None:
        """By the number of the row, and from row to row."""
        ours_size, size = 10_000, 3000
        ours = Drawn.joined(model.codes(ours_size, do=do, given=given, seed=1))
        fixed = [[name, cells] for name, cells in model._settings("do", do).items()]
        seen = [[name, cells[0][2]] for name, cells in model._settings("given", given).items()]
        told = page.evaluate(  # as one text: a list would be sent number by number
            "([count, fixed, seen]) => {"
            " const { people, rows } = escudo.model.draw(count, new Map(fixed), new Map(seen), 3);"
            " const of = (codes) => Object.fromEntries([...codes].map(([name, cells]) => [name, [...cells]]));"
            " const { person, number, codes } = rows.get('visits');"
            " return JSON.stringify({ people: of(people), person, number, codes: of(codes) }); }",
            [size, fixed, seen],
        )
        found = json.loads(told)
        worth = 10 if given else 1  # resampled people are worth at least a tenth of their number

        def close(what: str, mine: Any, theirs: Any, cells: int) -> None:
            a, b = (np.bincount(np.asarray(x, dtype=int), minlength=cells) for x in (mine, theirs))
            if min(a.sum(), b.sum()) < 50:
                return
            p = (a + b) / (a.sum() + b.sum())
            error = 5 * np.sqrt(p * (1 - p) * (1 / a.sum() + worth / b.sum())) + 2 / b.sum()  # 1e-6 for each comparison
            assert (np.abs(a / a.sum() - b / b.sum()) <= error).all(), what

        for name, codes in ours.people.items():
            close(name, codes, found["people"][name], model.schema.columns[name].size)
        rows, number = ours.rows["visits"], np.array(found["number"])
        close(
            "visits each",
            np.bincount(rows.person, minlength=ours_size),
            np.bincount(found["person"], minlength=size),
            21,
        )
        for name, codes in rows.codes.items():
            theirs, cells = np.array(found["codes"][name]), model.schema.columns[name].size
            numbers = {"visits.start": [1], "visits.gap": [2, 3, 4]}.get(name, [1, 2, 3, 6])
            for nth in numbers:
                close(f"{name} {nth}", codes[rows.number == nth], theirs[number == nth], cells)
            if name == "visits.start":
                continue
            third, theirs_third = np.flatnonzero(rows.number == 3), np.flatnonzero(number == 3)
            close(
                f"{name} from row to row",
                codes[third - 1] * cells + codes[third],
                theirs[theirs_third - 1] * cells + theirs[theirs_third],
                cells * cells,
            )

    def test_of_rows_of_rows_their_number_is_drawn_as_python_draws_it(self, started: Browser, tmp_path: Path) -> None:
        made = clinic(600, prescriptions=True, seed=1)
        tables = PrivateTables(made.frames, made.schema)
        model = escudo.synthesize(tables, made.graph, epsilon=20.0, delta=1e-6, seed=1)
        (tmp_path / "explore.html").write_text(explore_page(model), encoding="utf-8")
        with visiting(started, own="file:") as tab:
            tab.goto((tmp_path / "explore.html").as_uri())
            tab.get_by_text("Of prescriptions, which are rows of visits, only their number is shown here.").wait_for()
            told = tab.evaluate(
                "() => { const set = new Map([['visits.severity', [[1, 20, 3]]]]);"
                " const { codes } = escudo.model.draw(3000, set, new Map(), 3).rows.get('visits');"
                " return JSON.stringify(codes.get('prescriptions.count')); }"
            )
            assert faults(tab) == []
        ours = Drawn.joined(model.codes(6000, do={"visits.severity": "severe"}, seed=1)).rows["visits"]
        mine, theirs = (
            np.bincount(codes, minlength=4) / len(codes)
            for codes in (ours.codes["prescriptions.count"], json.loads(told))
        )
        assert np.abs(mine - theirs).max() < 0.04

    def test_what_does_not_respond_stays_as_it_was_to_the_last_person(self, page: Page) -> None:
        same = page.evaluate(
            "[['visits.pain', 1], ['visits.treat', 1]].map(([name, cell]) => {"
            " const once = escudo.model.draw(500, new Map(), new Map(), 1).rows.get('visits');"
            " const set = escudo.model.draw(500, new Map([[name, [[1, 20, cell]]]]), new Map(), 1).rows.get('visits');"
            " return once.codes.get('visits.severity').join() === set.codes.get('visits.severity').join(); })"
        )
        assert same == [True, False]

    def test_a_reader_sets_a_column_from_a_row_on_and_saves_what_it_does(self, page: Page, model: LinkedModel) -> None:
        for row, value in (("1", "no"), ("2", "yes")):
            page.locator("#column").select_option("visits.treat")
            page.locator("#value").select_option(label=value)
            page.locator("#from").fill(row)
            if row == "1":
                page.locator("#to").fill("1")
            page.get_by_role("button", name="Show").click()
        page.get_by_text("set: visits.treat = no, row 1").wait_for()
        page.get_by_text("set: visits.treat = yes, from row 2 on").wait_for()
        assert page.locator("#histories .card").count() == 6
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save figures as CSV").click()
        rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8"))))
        treated = {
            row["row"]: float(row["now"]) for row in rows if (row["column"], row["value"]) == ("visits.treat", "yes")
        }
        assert (treated["1"], treated["2"], treated["8"]) == (0.0, 1.0, 1.0)
        out = model.sample(8000, do={"visits.treat": {"1": "no", "2-": "yes"}}, seed=5)["visits"]
        fifth = out.filter(out["number"] == 5)["severity"]
        said = next(
            row for row in rows if (row["column"], row["row"], row["value"]) == ("visits.severity", "5", "severe")
        )
        assert abs(float(said["now"]) - float((fifth == "severe").mean() or 0)) < 0.05
        assert float(said["as it was"]) > float(said["now"])
        tables = {}
        with page.expect_event("download", lambda file: "visits" in file.suggested_filename) as waiting:
            page.on("download", lambda file: tables.update({file.suggested_filename: file}))
            page.get_by_role("button", name="Save 1,000 people").click()
        assert set(tables) == {"what-if-patients.csv", "what-if-visits.csv"}
        text = Path(waiting.value.path()).read_text(encoding="utf-8")
        by_row = {(row["row"] == "1", row["visits.treat"]) for row in csv.DictReader(io.StringIO(text))}
        assert by_row == {(True, "no"), (False, "yes")}
        page.get_by_role("button", name="Start again").click()
        assert page.locator("#asked li").count() == 0

    def test_what_the_graph_does_not_name_is_not_offered_and_refused(
        self, started: Browser, model: LinkedModel, tmp_path: Path
    ) -> None:
        silent = replace(model, graph=CausalGraph.from_edges([("patients.age", "visits.severity")]))
        (tmp_path / "explore.html").write_text(explore_page(silent), encoding="utf-8")
        with visiting(started, own="file:") as tab:
            tab.goto((tmp_path / "explore.html").as_uri())
            assert tab.locator("#column option").all_inner_texts() == ["patients.age", "visits.severity"]
            tab.evaluate("escudo.page.set('visits.treat', 1, 1, 20)")
            assert "The graph does not name ‘visits.treat’" in tab.locator("#refusal").inner_text()

    @pytest.mark.parametrize("colours", ["light", "dark"])
    def test_it_fits_a_phone_and_has_no_serious_fault(self, started: Browser, address: str, colours: str) -> None:
        with visiting(started, own="file:", viewport={"width": 390, "height": 800}, color_scheme=colours) as tab:
            tab.goto(address)
            tab.evaluate("escudo.page.set('visits.treat', 1, 2, 20)")
            assert overflow(tab) == 0
            assert faults(tab) == []
