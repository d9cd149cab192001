"""The studio in a real browser: the whole journey, by mouse and by keyboard, on a phone and in the dark."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from browsing import NEEDED, faults, overflow, visiting
from escudo.causal import asia
from escudo.cli import app

if TYPE_CHECKING:
    from conftest import Served
    from playwright.sync_api import Browser, Page

pytestmark = NEEDED

MESSY = "patient;Alter;Größe;smoker;postcode;Lohn\n" + "".join(
    f"{100 + n // 2};{20 + n % 61};{150 + n % 50},5;{['ja', 'nein', 'Ja', ''][n % 4]};SECRET{n % 7};{n}.000,50 EUR\n"
    for n in range(400)
)


@pytest.fixture
def page(studio: Served, started: Browser, entered: Any) -> Iterator[Page]:
    tall = {"width": 1280, "height": 1200}
    with visiting(started, own=studio.origin, storage_state=entered, viewport=tall) as tab:
        tab.goto(f"{studio.origin}/table")
        yield tab


def open_clinic(page: Page, studio: Served) -> None:
    page.goto(f"{studio.origin}/table")
    page.get_by_role("button", name="simulated clinic").click()
    page.get_by_role("heading", name="8 columns, 0 to confirm").wait_for()


def settled(page: Page, act: Any) -> None:
    """Do something to the graph, and wait until the studio has said what it thinks of it."""
    before = page.evaluate("Number(document.body.dataset.settled ?? 0)")
    act()
    page.locator(f"body[data-settled='{before + 1}']").wait_for()


def draw(page: Page, cause: str, effect: str) -> None:
    """Draw an arrow by name, with nothing but the keyboard."""
    page.locator("#from").focus()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type(cause)
    page.keyboard.press("Tab")
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type(effect)
    settled(page, lambda: page.keyboard.press("Enter"))


def edges(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.evaluate("escudoGraph.drawn.edges")
    return found


def in_folder(folder: Path) -> AbstractContextManager[None]:
    from contextlib import chdir

    return chdir(folder)


def test_the_whole_journey(page: Page, studio: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """From the table to what if; and the command, script, notebook and configuration give the same plan."""
    open_clinic(page, studio)
    page.get_by_role("link", name="Next: causes").click()
    page.locator("body[data-ready]").wait_for()
    assert len(edges(page)) == 8
    assert "What setting any column does is answered." in page.locator("#answered").inner_text()
    page.get_by_role("link", name="Next: budget").click()
    page.locator("#epsilon").fill("2")
    page.locator("""body[data-budget*='"epsilon":"2"']""").wait_for()
    page.locator("""body[data-forecast*='"epsilon":"2"']""").wait_for()
    assert "7.39 times" in page.locator("#sentence").inner_text()
    assert page.locator("#forecast-columns tr").count() == 8
    assert page.locator("#who tr").count() == 4
    page.get_by_role("link", name="Next: release").click()
    page.get_by_label("Folder for the release").fill("journey")
    page.get_by_role("button", name="Release, and spend").click()
    page.get_by_role("heading", name="Released", exact=True).wait_for(timeout=180_000)
    plan = page.get_by_label("The plan").inner_text().strip()
    release, recipe = studio.home / "journey", studio.home / "journey-recipe"
    assert {"report.html", "explore.html", "release.json"} <= {path.name for path in release.iterdir()}
    assert json.loads((release / "release.json").read_text())["guarantee"]["epsilon"] == pytest.approx(2.0, rel=0.01)

    asia().sample_frame(20_000, rng=np.random.default_rng(1988)).write_csv(recipe / "clinic.csv")
    with in_folder(recipe):
        command = shlex.split((recipe / "release.sh").read_text().splitlines()[-1])[1:]
        for words in (["release", "--plan", *command[1:]], ["run", "release.toml", "--plan"]):
            said = CliRunner().invoke(app, words)
            assert said.exit_code == 0, said.output
            assert said.output.startswith(plan)
        script = (recipe / "release.py").read_text()
        capsys.readouterr()
        exec(script[: script.index("files = ")], {})
        assert capsys.readouterr().out.startswith(plan)
        cells = json.loads((recipe / "release.ipynb").read_text())["cells"]
        assert (
            "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code").split()
            == script.split("\n", 1)[1].split()
        )

    page.get_by_role("link", name="Ask it what if").click()
    page.locator("#column").select_option("smoke")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("set: smoke = yes").wait_for()
    assert page.locator(".card").count() == 8


def test_a_messy_file_is_drafted_hidden_and_confirmed(page: Page, studio: Served, tmp_path: Path) -> None:
    path = tmp_path / "messy file.csv"
    path.write_text(MESSY, encoding="cp1252")
    page.locator("#upload").set_input_files(path)
    page.locator(".column-name", has_text="Größe").wait_for(timeout=120_000)
    page.get_by_role("heading", name=re.compile("[1-9] to confirm")).wait_for()
    assert "SECRET" not in page.content()
    assert page.locator(".brand").inner_text().endswith("messy file.csv")
    page.get_by_text("Left out 'patient': it seems to identify people.").wait_for()
    page.get_by_text("Read with semicolons between fields").wait_for()
    page.get_by_text("which shows how 1234.5 is written: 'Lohn' as 1.234,5 EUR.").wait_for()
    assert page.get_by_text("(hidden)").count() >= 3
    assert page.locator(".marking").count() == 0
    page.get_by_role("button", name="Custodian: show values").click()
    page.locator(".marking").wait_for()
    assert "SECRET3" in page.content()
    page.locator("#person").fill("patient")
    page.get_by_label("Rows per person").fill("2")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="All of these are public").click()
    page.get_by_role("heading", name="0 to confirm").wait_for()
    page.get_by_role("button", name="Hide values").click()
    smoker = page.locator("details", has_text="smoker")
    smoker.locator("summary").click()
    assert set(smoker.locator("textarea[name=levels]").input_value().split("\n")) >= {"Ja", "nein"}
    page.goto(f"{studio.origin}/budget")
    page.locator("body[data-budget]").wait_for()
    assert page.locator("#rows-per-person").input_value() == "2"
    assert "single columns" in page.locator("#plan").inner_text()

    def said(place: str) -> str:
        return page.locator(place).inner_text()

    page.locator("input[name='public-rows']").fill("400")
    page.locator("""body[data-forecast*='"public-rows":"400"']""").wait_for()
    page.locator("""body[data-budget*='"public-rows":"400"']""").wait_for()
    before = said("#forecast-columns")
    assert before
    page.locator("#rows-per-person-slider").focus()
    page.keyboard.press("End")  # a hundred rows, by the slider
    assert page.locator("#rows-per-person").input_value() == "100"
    page.locator("""body[data-forecast*='"rows-per-person":"100"']""").wait_for()
    page.locator("""body[data-budget*='"rows-per-person":"100"']""").wait_for()
    assert said("#forecast-columns") not in ("", before)
    assert page.locator("#refused").is_hidden()
    page.locator("#rows-per-person").fill("3")  # and by number
    page.locator("""body[data-budget*='"rows-per-person":"3"']""").wait_for()
    page.goto(f"{studio.origin}/table")
    assert page.get_by_label("Rows per person").input_value() == "3"


def test_a_folder_and_a_database_are_opened_by_their_address(page: Page, studio: Served, tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "visits").mkdir()
    for part in range(2):
        rows = pl.DataFrame({"smoker": ["no", "yes"] * 20, "hospital": [f"h{part}"] * 40})
        rows.write_parquet(tmp_path / "visits" / f"part-{part}.parquet")
    with duckdb.connect(str(tmp_path / "clinic.db")) as database:
        database.execute("create table stays as select range % 2 = 0 as alone, range % 50 + 0.5 as days from range(60)")
    for place, columns in (
        (str(tmp_path / "visits"), ["smoker", "hospital"]),
        (f"duckdb:///{tmp_path / 'clinic.db'}?table=stays", ["alone", "days"]),
    ):
        page.goto(f"{studio.origin}/table")
        page.get_by_label("A file, folder or database on this machine").fill(place)
        page.get_by_role("button", name="Open", exact=True).click()
        page.locator(".column-name", has_text=columns[0]).wait_for(timeout=180_000)
        assert page.locator(".column-name").all_inner_texts() == columns
    assert str(tmp_path) not in page.locator(".brand").inner_text()  # an address may hold a password


def test_a_mechanism_of_the_museum_is_audited(page: Page, studio: Served) -> None:
    page.goto(f"{studio.origin}/audits")
    museum = page.get_by_label("Or one of the museum of broken mechanisms")
    assert museum.input_value() == "missing-bounds"  # one that takes seconds
    page.get_by_role("button", name="Audit", exact=True).last.click()
    page.locator("[data-job]").wait_for()
    page.get_by_text("That it breaks its promise was found.").wait_for(timeout=300_000)
    page.get_by_text("Nothing was found against it.").wait_for()
    page.get_by_text("Done.", exact=True).wait_for()


def test_the_graph_is_drawn_by_mouse_and_a_cycle_is_named(page: Page, studio: Served) -> None:
    open_clinic(page, studio)
    page.goto(f"{studio.origin}/causes")
    page.locator("body[data-ready]").wait_for()

    def click(name: str) -> None:
        place = page.evaluate("(name) => escudoGraph.cy.getElementById(name).renderedPosition()", name)
        box = page.locator("#canvas").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + place["x"], box["y"] + place["y"])

    click("asia")
    settled(page, lambda: click("smoke"))
    assert ["asia", "smoke"] in edges(page)
    click("dysp")
    settled(page, lambda: click("smoke"))
    assert "The graph has a cycle: " in page.locator("#cycle").inner_text()
    assert len(edges(page)) == 9
    settled(page, page.get_by_role("button", name="Undo").click)
    assert len(edges(page)) == 8
    box = page.locator("#canvas").bounding_box()
    assert box is not None
    before = page.evaluate("escudoGraph.cy.getElementById('xray').position()")
    place = page.evaluate("escudoGraph.cy.getElementById('xray').renderedPosition()")
    page.mouse.move(box["x"] + place["x"], box["y"] + place["y"])
    page.mouse.down()
    page.mouse.move(box["x"] + place["x"] + 60, box["y"] + place["y"] + 5, steps=4)
    page.mouse.up()
    assert page.evaluate("escudoGraph.cy.getElementById('xray').position()")["x"] > before["x"] + 20
    settled(page, page.get_by_role("button", name="Add hidden cause").click)
    assert page.evaluate("escudoGraph.drawn.latents") == ["hidden 1"]
    kept = page.evaluate("fetch('/api/graph').then((answer) => answer.json())")
    assert kept["latents"] == ["hidden 1"]
    assert len(kept["edges"]) == 8


def test_the_graph_is_drawn_by_keyboard_in_every_kind_of_edge(page: Page, studio: Served) -> None:
    open_clinic(page, studio)
    page.goto(f"{studio.origin}/causes")
    page.locator("body[data-ready]").wait_for()
    draw(page, "asia", "smoke")
    assert ["asia", "smoke"] in edges(page)
    page.locator("#tool").select_option("line")
    draw(page, "xray", "dysp")
    assert page.evaluate("escudoGraph.drawn.lines") == [["xray", "dysp"]]
    assert "which nobody has stated" in page.locator("#refused").inner_text()
    page.locator("#tool").select_option("forbid")
    draw(page, "dysp", "asia")
    assert page.evaluate("escudoGraph.drawn.forbidden") == [["dysp", "asia"]]
    settled(page, page.get_by_role("button", name="xray causes dysp").click)
    assert ["xray", "dysp"] in edges(page)
    page.locator("#canvas").focus()
    settled(page, lambda: page.keyboard.press("ControlOrMeta+z"))
    assert page.evaluate("escudoGraph.drawn.lines") == [["xray", "dysp"]]
    with page.expect_download() as waiting:
        page.get_by_role("link", name="DOT").click()
    text = Path(waiting.value.path()).read_text()
    path = Path(waiting.value.path()).with_name("again.dot")
    path.write_text(text.replace("smoke", "tobacco"))
    page.locator("#import").set_input_files(path)
    page.get_by_text("names 'tobacco', which is no column").wait_for()
    assert page.evaluate("escudoGraph.drawn.forbidden") == [["dysp", "asia"]]
    path.write_text("smoke -> xray")
    page.locator("#import").set_input_files(path)
    page.get_by_text("2 nodes, 1 arrow").wait_for()
    assert edges(page) == [["smoke", "xray"]]


def test_a_budget_beyond_the_cap_is_refused(page: Page, studio: Served) -> None:
    open_clinic(page, studio)
    page.goto(f"{studio.origin}/accounts")
    page.get_by_label("Name of the dataset").fill("small")
    page.get_by_label("Cap, ε").fill("0.5")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("heading", name="small").wait_for()
    page.get_by_role("link", name="Verify").click()
    page.get_by_text("The ledger holds good").wait_for()
    page.goto(f"{studio.origin}/budget")
    page.locator("body[data-budget]").wait_for()
    assert "would be refused" in page.locator("#ledger-said").inner_text()
    page.goto(f"{studio.origin}/release")
    page.get_by_label("Folder for the release").fill("refused")
    page.get_by_role("button", name="Release, and spend").click()
    page.get_by_text("Refused.", exact=True).wait_for(timeout=180_000)
    assert not (studio.home / "refused").exists()
    page.goto(f"{studio.origin}/budget")
    page.locator("select[name=dataset]").select_option("")
    page.locator("""body[data-forecast*='"dataset":""']""").wait_for()


def test_a_release_is_cancelled(page: Page, studio: Served) -> None:
    """Told to end while it starts, which takes longer than a click."""
    open_clinic(page, studio)
    page.goto(f"{studio.origin}/release")
    page.get_by_label("Folder for the release").fill("cancelled")
    page.get_by_role("button", name="Release, and spend").click(no_wait_after=True)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled.", exact=True).wait_for(timeout=180_000)
    assert not (studio.home / "cancelled").exists()


def test_causes_are_found_out_and_drawn(page: Page, studio: Served) -> None:
    open_clinic(page, studio)
    page.goto(f"{studio.origin}/causes")
    page.locator("body[data-ready]").wait_for()
    page.get_by_label("ε for finding out").fill("5")
    page.get_by_role("button", name="Find out").click()
    page.get_by_role("button", name="Draw what was found").click(timeout=300_000)
    page.locator("body[data-ready]").wait_for()
    assert len(edges(page)) >= 8  # what was drawn was known


def test_work_survives_a_closed_tab_and_is_cancelled(page: Page, studio: Served) -> None:
    open_clinic(page, studio)
    page.goto(f"{studio.origin}/attacks")
    page.get_by_label("Fits to learn from").fill("10000")
    page.get_by_role("button", name="Attack, at").click()
    page.locator("[data-job]").wait_for()
    page.goto("about:blank")  # the tab is closed, as far as the studio can tell
    page.goto(f"{studio.origin}/attacks")
    page.locator("[data-job]").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled.", exact=True).wait_for(timeout=180_000)
    assert page.locator("[data-job]").count() == 0


STEPS = ("table", "causes", "budget", "release", "what-if", "accounts", "audits", "attacks")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_page_fits_a_phone_and_has_no_serious_fault(
    studio: Served, started: Browser, entered: Any, colours: str
) -> None:
    settings: dict[str, Any] = {"storage_state": entered, "color_scheme": colours}
    with visiting(started, own=studio.origin, viewport={"width": 390, "height": 800}, **settings) as tab:
        open_clinic(tab, studio)
        for step in STEPS:
            tab.goto(f"{studio.origin}/{step}")
            if step == "budget":
                tab.locator("body[data-budget]").wait_for()
            assert overflow(tab) == 0, step
            assert faults(tab) == [], step
            tab.evaluate("document.querySelector('.brand span').remove()")  # as where no table is open
            name, steps = (tab.locator(part).bounding_box() for part in (".brand", "nav"))
            assert name is not None
            assert steps is not None
            assert steps["y"] >= name["y"] + name["height"]


def test_a_graph_of_222_columns_is_drawn_and_moved(page: Page, studio: Served, tmp_path: Path) -> None:
    names = [f"column {number}" for number in range(222)]
    rows = "\n".join(",".join("ab"[(row * (place + 1)) % 2] for place in range(222)) for row in range(4))
    (tmp_path / "wide.csv").write_text(f"{','.join(names)}\n{rows}\n")
    page.locator("#upload").set_input_files(tmp_path / "wide.csv")
    page.get_by_role("heading", name="222 columns").wait_for(timeout=180_000)
    page.goto(f"{studio.origin}/causes")
    page.locator("body[data-ready]").wait_for()
    (tmp_path / "wide.edges").write_text("\n".join(f"{names[n // 2]} -> {names[n]}" for n in range(1, 222)))
    page.locator("#import").set_input_files(tmp_path / "wide.edges")
    page.get_by_text("222 nodes, 221 arrows").wait_for()
    before = page.evaluate("escudoGraph.cy.pan().x")
    page.locator("#canvas").focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate("escudoGraph.cy.pan().x") == pytest.approx(before + 300)
