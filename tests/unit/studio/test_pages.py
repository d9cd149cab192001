"""The studio's pages as answers: asked in this process, without a browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient

from escudo.causal import CausalGraph
from escudo.privacy import Ledger
from escudo.report import write_release
from escudo.studio._server import STEPS, Opening, Studio, application
from escudo.synthesis import synthesize
from escudo.table import PrivateTable, Schema

ORIGIN = "http://127.0.0.1:8642"
VISITS: dict[str, Any] = {
    "income": {"type": "numeric", "lower": 0, "upper": 1_000_000, "format": "$1,234.5"},
    "dose": {"type": "numeric", "edges": [0, 5, 20, 100], "fill": 5},
    "admission": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31", "bins": 8},
    "discharge": {"type": "date", "lower": "2020-01-01", "upper": "2022-12-31", "bins": 8},
    "stay": {"type": "numeric", "lower": 0, "upper": 400, "bins": 8, "from": "discharge - admission", "unit": "days"},
    "code": {"type": "categorical", "levels": ["A0", "B1", "other"], "other": "other", "prefix": 5},
    "smoker": {"type": "categorical", "levels": ["no", "yes"], "loose": True, "recode": {"nein": "no"}},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entered(studio: Studio) -> TestClient:
    """Return somebody who was let in."""
    client = TestClient(application(studio), base_url=ORIGIN, headers={"origin": ORIGIN})
    assert client.get(f"/open?token={studio.door.token}").status_code == 200
    return client


@pytest.fixture
def demo(home: Path) -> Iterator[tuple[Studio, TestClient]]:
    studio = Studio(Opening(demo=True), ORIGIN)
    yield studio, entered(studio)
    studio.close()


def test_every_page_is_there_before_a_table_is_and_says_what_to_do(home: Path) -> None:
    studio = Studio(Opening(), ORIGIN)
    client = entered(studio)
    for step, _ in STEPS:
        assert client.get(f"/{step}").status_code == 200, step
    assert "Open a table" in client.get("/table").text
    assert "open one first" in client.get("/release").text
    assert "open one first" in client.post("/api/budget", json={"terms": {}}).json()["problem"]
    assert "open one first" in client.post("/table/confirm").text
    assert "no such file or folder" in client.post("/table/open", data={"place": "nowhere.csv"}).text
    assert "name a file" in client.post("/table/open", data={"place": ""}).text
    studio.close()
    assert not studio.folder.exists()


def test_the_budget_page_asks_for_the_promise_the_forecast_and_the_plan(demo: tuple[Studio, TestClient]) -> None:
    _, client = demo
    assert client.get("/budget").status_code == 200
    told = client.post("/api/forecast", json={"terms": {"epsilon": "2"}}).json()
    assert "e^2.00" in told["sentence"]
    assert len(told["forecast"]["columns"]) == len(told["forecast"]["pairs"]) == 8
    found = client.post("/api/budget", json={"terms": {"epsilon": "2"}}).json()
    assert len(found["who"]) == 4
    assert found["ledger"] is None
    assert found["command"].endswith("--epsilon=2.0 --out=release -- clinic.csv")
    assert "there is no option" in client.post("/api/budget", json={"terms": {"nonsense": 1}}).json()["problem"]
    assert "must be a number" in client.post("/api/forecast", json={"terms": {"epsilon": "much"}}).json()["problem"]


def test_an_account_is_opened_shown_and_verified(demo: tuple[Studio, TestClient]) -> None:
    _, client = demo
    assert client.get("/accounts").status_code == 200
    assert not Path("escudo-ledger.db").exists()  # looking makes none
    asked = {"dataset": "clinic", "epsilon": "0.5", "delta": "1e-6"}
    assert client.post("/accounts/open", data=asked, follow_redirects=False).status_code == 303
    with Ledger("sqlite:///escudo-ledger.db") as book:
        assert [info.dataset for info in book.datasets()] == ["clinic"]
    assert "holds good" in client.get("/accounts?verify=yes").text
    standing = client.post("/api/budget", json={"terms": {"epsilon": "1"}}).json()["ledger"]
    assert (standing["dataset"], standing["fits"]) == ("clinic", False)


def test_a_graph_is_kept_read_and_written_and_a_cycle_is_refused(demo: tuple[Studio, TestClient]) -> None:
    _, client = demo
    assert len(client.get("/api/graph").json()["edges"]) == 8
    drawn: dict[str, Any] = {"nodes": ["smoke", "lung"], "edges": [["smoke", "lung"], ["lung", "smoke"]]}
    assert "cycle" in client.post("/api/graph", json=drawn).json()["problem"]
    drawn["edges"] = [["smoke", "lung"]]
    assert "1 arrow" in client.post("/api/graph", json=drawn).json()["says"]["summary"]
    read = client.post("/api/graph/read", json={"text": "dag { smoke -> xray }"}).json()
    assert read["edges"] == [["smoke", "xray"]]
    for form in ("dot", "dagitty", "gml", "bif", "csv"):
        text = client.get(f"/causes/as/{form}")
        assert text.status_code == 200
        assert "smoke" in text.text
    assert client.get("/causes/as/nonsense").status_code == 400


@pytest.fixture
def visits(home: Path) -> Iterator[tuple[Studio, TestClient]]:
    Schema.from_dict(VISITS).write(home / "visits.toml")
    (home / "visits.csv").write_text(f"{','.join(VISITS)}\n")
    studio = Studio(Opening(data="visits.csv", schema=home / "visits.toml"), ORIGIN)
    yield studio, entered(studio)
    studio.close()


def form_of(page: str, name: str) -> dict[str, str]:
    """Return what a browser would send if nothing of a column's form were touched."""
    form = page.split(f'name="name" value="{name}"')[1].split("</form>")[0]
    fields = dict(re.findall(r'<input name="(\w+)"[^>]* value="([^"]*)"', form))
    fields |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>([^<]*)</textarea>', form))
    fields |= {box: "on" for box in re.findall(r'type="checkbox" name="(\w+)" checked', form)}
    selected = re.search(r'<option value="(\w+)" selected', form)
    assert selected is not None
    return {key: value.replace("&gt;", ">") for key, value in fields.items()} | {"name": name, "kind": selected[1]}


def test_a_form_that_is_saved_untouched_changes_nothing(visits: tuple[Studio, TestClient]) -> None:
    """Bins that a release chooses stay its to choose; edges, differences, fills, formats and prefixes are not lost."""
    studio, client = visits
    page = client.get("/table").text
    assert "bins chosen by the release, written as $1,234.5" in page
    assert "2 levels, whatever the case and the blanks around them: no, yes" in page
    for name in VISITS:
        assert client.post("/table/column", data=form_of(page, name)).status_code == 200
    schema = studio.case.schema()
    assert schema == Schema.from_dict(VISITS)


def test_what_is_changed_in_a_form_is_kept(visits: tuple[Studio, TestClient]) -> None:
    studio, client = visits
    page = client.get("/table").text
    client.post("/table/column", data=form_of(page, "income") | {"bins": "12"})
    client.post("/table/column", data=form_of(page, "dose") | {"upper": "200"})
    client.post("/table/column", data=form_of(page, "smoker") | {"recode": "oui => yes"})
    client.post("/table/column", data=form_of(page, "code") | {"leave-out": "yes"})
    client.post("/table/protect", data={"person": "who", "rows": "3"})
    schema = studio.case.schema()
    assert schema is not None
    kept = schema.to_dict()["columns"]
    assert kept["income"]["bins"] == 12
    assert (kept["dose"]["upper"], kept["dose"]["bins"]) == (200, "private")
    assert kept["smoker"]["recode"] == {"oui": "yes"}
    assert kept["smoker"]["loose"]
    assert "code" not in kept
    assert (schema.person_id, schema.max_rows_per_person) == ("who", 3)
    refused = client.post("/table/column", data=form_of(page, "income") | {"upper": "-1"})
    assert refused.status_code == 400
    assert "lower must be below upper" in refused.text


def test_of_a_wide_model_the_columns_to_show_are_chosen(home: Path) -> None:
    names = [f"c{number}" for number in range(61)]
    schema = Schema.from_dict({name: ["no", "yes"] for name in names})
    graph = CausalGraph.from_edges([("c0", "c60")], nodes=names)
    frame = pl.DataFrame({name: ["no", "yes"] * 20 for name in names})
    model = synthesize(PrivateTable(frame, schema), graph, epsilon=5.0, generator="moments", seed=1)
    write_release(model, home / "wide", rows=20)
    studio = Studio(Opening(), ORIGIN)
    client = entered(studio)

    def shown(query: str = "") -> list[str]:
        page = client.get(f"/what-if/0{query}")
        assert page.status_code == 200
        return re.findall(r'<div class="card"><h3>(\w+)</h3>', page.text)

    assert client.post("/what-if/open", data={"place": "wide"}).status_code == 200
    assert shown() == names[:30]
    assert shown("?show=C60,%20c4") == ["c4", "c60", *(f"c4{number}" for number in range(10))]
    assert shown("?how=do&column=c0&value=yes")[:2] == ["c0", "c60"]  # what is set, and what it affects
    page = client.get("/what-if/0?show=nothing").text
    assert "No column has “nothing” in its name" in page
    assert "No lines for the noise are drawn here" in page
    studio.close()


def test_work_that_is_started_is_told_and_can_be_stopped(demo: tuple[Studio, TestClient]) -> None:
    studio, client = demo
    assert client.post("/attacks/start", data={"shadows": "10000"}, follow_redirects=False).status_code == 303
    assert "one is running already" in client.post("/attacks/start", data={}).text
    told = client.get("/api/jobs/1").json()
    assert (told["kind"], told["state"]) == ("attack", "running")
    client.post("/api/jobs/1/stop")
    studio.work[1].process.wait(120)
    assert client.get("/api/jobs/1").json()["state"] == "cancelled"
    assert "Cancelled." in client.get("/attacks").text
    assert client.get("/pages/1").status_code == 400
    assert client.get("/api/jobs/7").json()["problem"] == "there is no such work."


def test_recipes_are_files_that_say_the_same(demo: tuple[Studio, TestClient]) -> None:
    _, client = demo
    page = client.get("/release").text
    offered = re.findall(r"/release/recipe/([\w.]+)", page)
    assert {"release.sh", "release.toml", "release.py", "release.ipynb", "schema.toml", "graph.dot"} == set(offered)
    assert json.loads(client.get("/release/recipe/release.ipynb").text)["nbformat"] == 4
    assert client.get("/release/recipe/nonsense").status_code == 400


def test_starting_and_ending_the_application_removes_its_folder(home: Path) -> None:
    studio = Studio(Opening(), ORIGIN)

    async def lived() -> None:
        app = application(studio)
        async with app.router.lifespan_context(app):
            assert studio.folder.exists()

    asyncio.run(lived())
    assert not studio.folder.exists()
