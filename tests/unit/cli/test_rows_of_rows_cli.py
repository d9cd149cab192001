"""The command line with rows of rows: prescriptions of visits are drafted, checked, released, drawn and judged."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

from escudo.cli import app
from escudo.privacy import Ledger
from escudo.synthesis import clinic
from escudo.table import LinkedSchema

DATA = ["patients.csv", "visits.csv", "prescriptions.csv"]
RELEASE = ["release", *DATA, "--schema", "clinic.toml", "--graph", "clinic.dot", "--epsilon", "3", "--delta", "1e-5"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = clinic(400, prescriptions=True, seed=1)
    monkeypatch.chdir(tmp_path)
    for name, frame in made.frames.items():
        frame.write_csv(f"{name}.csv")
    made.schema.write("clinic.toml")
    made.graph.write("clinic.dot")
    return tmp_path


def run(*args: str) -> Result:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return result


def test_prescriptions_are_released_with_their_visits_and_drawn_again(folder: Path) -> None:
    ledger = Ledger("sqlite:///ledger.db")
    ledger.open("clinic", epsilon=5.0, delta=1e-4, unit="person", max_rows_per_person=101)
    charged = [*RELEASE, "--ledger", "sqlite:///ledger.db", "--dataset", "clinic"]
    assert "rows of prescriptions in each of visits" in run(*charged, "--plan").output
    told = json.loads(run(*charged, "--out", "release", "--csv", "--json").output)
    assert set(told["rows"]) == {"patients", "visits", "prescriptions"}
    run("sample", "release/model", "--people", "60", "--do", "prescriptions.drug=1:steroid", "--out", "drawn")
    drugs, visits = (pl.read_parquet(f"drawn/{name}.parquet") for name in ("prescriptions", "visits"))
    assert set(drugs.filter(pl.col("number") == 1)["drug"]) == {"steroid"}
    assert drugs.join(visits, on=["patient", "visit"], how="anti").height == 0
    for name in ("train", "test"):
        (folder / name).mkdir()
        for file in DATA:
            (folder / name / file).write_bytes((folder / file).read_bytes())
    judged = json.loads(run("evaluate", "train", "test", "--release", "release", "--out", "page.html", "--json").output)
    assert judged["floor"]["row_pairs"] == 0
    assert judged["fidelity"][0]["row_pairs"] > 0
    assert "pairs of columns of a row and of its rows" in (folder / "page.html").read_text()
    few = ["--targets", "1", "--shadows", "2", "--trials", "2", "--jobs", "1", "--choose", "canary"]
    run("attack", *DATA, "--release", "release", *few, "--out", "attack.html")


def test_their_schema_is_drafted_checked_shown_and_learnt(folder: Path) -> None:
    run("schema", "draft", *DATA, "--people", "patients", "--out", "draft.toml")
    assert LinkedSchema.read("draft.toml").child("prescriptions").parent == "visits"
    learn = ["schema", "learn", *DATA, "--schema", "draft.toml", "--most", "visits=20", "--most", "prescriptions=4"]
    run(*learn, "--epsilon", "9", "--delta", "1e-5", "--out", "learnt.toml")
    assert LinkedSchema.read("learnt.toml").confirmed
    run("schema", "confirm", "draft.toml", "--all")
    assert LinkedSchema.read("draft.toml").confirmed
    assert "4 of prescriptions in each of visits" in run("schema", "show", "clinic.toml").output
    pl.read_csv("prescriptions.csv").with_columns(visit=pl.col("visit") + 50).write_csv("prescriptions.csv")
    checked = run("schema", "check", *DATA, "--schema", "clinic.toml").output
    assert "name no row of visits of the same person that counts" in " ".join(checked.split())


def test_a_graph_over_them_is_checked_and_drawn(folder: Path) -> None:
    run("graph", "show", "clinic.dot", "--schema", "clinic.toml", "--svg", "clinic.svg")
    assert (folder / "clinic.svg").read_text().count('class="plate"') == 3
    assert "can follow it" in run("graph", "check", "clinic.dot", "--schema", "clinic.toml").output
