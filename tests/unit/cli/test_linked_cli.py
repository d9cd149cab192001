"""``escudo schema``, ``release`` and ``sample`` with linked tables: what people see, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

from escudo.cli import app
from escudo.privacy import Ledger
from escudo.synthesis import clinic
from escudo.table import LinkedSchema

DATA = ["patients.csv", "visits.csv"]
RELEASE = ["release", *DATA, "--schema", "clinic.toml", "--graph", "clinic.dot", "--epsilon", "2", "--delta", "1e-5"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, simulated = tmp_path_factory.mktemp("clinic"), clinic(800, seed=1)
    for name, frame in simulated.frames.items():
        frame.write_csv(folder / f"{name}.csv")
    simulated.schema.write(folder / "clinic.toml")
    simulated.graph.write(folder / "clinic.dot")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.listdir(made):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def failed(*args: str) -> str:
    result = run(*args)
    assert result.exit_code != 0, result.output
    return f"{result.output} {result.exception}"


def test_people_and_visits_are_released_together_and_sampled_again(folder: Path) -> None:
    result = run(*RELEASE, "--seed", "1", "--out", "release", "--json", "--csv")
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    assert told["rows"]["patients"] == 800
    files = {
        path.relative_to(folder / "release").as_posix() for path in (folder / "release").rglob("*") if path.is_file()
    }
    assert files == {
        *("synthetic/patients.parquet", "synthetic/visits.parquet", "synthetic/patients.csv", "synthetic/visits.csv"),
        *("model/model.json", "model/parameters.safetensors", "release.json", "report.html", "explore.html"),
    }
    record = json.loads((folder / "release" / "release.json").read_text())
    assert record["version"] == 5
    assert {entry["path"] for entry in record["files"]} == files - {"release.json"}
    page = (folder / "release" / "report.html").read_text()
    assert "one person of patients with all rows in visits" in page
    assert "<script" not in page
    visits = pl.read_parquet("release/synthetic/visits.parquet")
    assert set(visits["patient"]) <= set(pl.read_parquet("release/synthetic/patients.parquet")["patient"])
    again = run("sample", "release/model", "--people", "40", "--do", "visits.treat=1:no,2-:yes", "--out", "drawn")
    assert again.exit_code == 0, again.output
    drawn = pl.read_parquet("drawn/visits.parquet")
    assert set(drawn.filter(pl.col("number") == 1)["treat"]) == {"no"}
    assert set(drawn.filter(pl.col("number") > 1)["treat"]) == {"yes"}
    shown = run("sample", "release/model", "--people", "3", "--seed", "1", "--json")
    assert set(json.loads(shown.output)["tables"]) == {"patients", "visits"}
    assert run(*RELEASE, "--seed", "1", "--out", "release", "--force").exit_code == 0
    assert "holds a release already" in failed(*RELEASE, "--seed", "1", "--out", "release")


def test_a_graph_is_found_and_figures_are_paid_for_under_one_charge(folder: Path) -> None:
    ledger = Ledger("sqlite:///ledger.db")
    ledger.open("clinic", epsilon=9.0, delta=1e-4, unit="person", max_rows_per_person=21)
    asked = [*RELEASE, "--graph", "discover", "--evaluate", "0.1", "--epsilon", "6"]
    charged = [*asked, "--ledger", "sqlite:///ledger.db", "--dataset", "clinic"]
    shown = run(*charged, "--plan")
    assert shown.exit_code == 0, shown.output
    for words in ("graph", "count tables along it", "private evaluation", "Reads the rows 3 times"):
        assert words in shown.output
    before = len(ledger.history("clinic"))
    result = run(*charged, "--out", "release", "--json")
    assert result.exit_code == 0, result.output
    assert len(ledger.history("clinic")) == before + 1
    told = json.loads(result.output)
    assert told["guarantee"]["epsilon"] <= 6.0
    arrows = {(edge["from"], edge["to"]) for edge in told["graph"]["edges"]}
    assert ("visits.severity@prev", "visits.severity") in arrows
    assert set(told["evaluation"]["figures"]) >= {"people", "rows", "transitions", "counts"}
    record = json.loads((folder / "release" / "release.json").read_text())
    assert record["generator"]["details"]["discovery"] == told["graph"]
    assert record["evaluation"]["paid"]["figures"] == told["evaluation"]["figures"]
    page = (folder / "release" / "report.html").read_text()
    assert "The graph was found, not given" in page
    assert "How close the synthetic people are" in page
    assert run("sample", "release/model", "--people", "3").exit_code == 0
    words = run(*asked, "--seed", "2", "--out", "other")
    assert "Discovered graph" in words.output
    assert "How good it is, paid for" in words.output


def test_the_plan_is_shown_and_the_account_charged_once(folder: Path) -> None:
    ledger = Ledger("sqlite:///ledger.db")
    ledger.open("clinic", epsilon=5.0, delta=1e-4, unit="person", max_rows_per_person=21)
    charged = [*RELEASE, "--ledger", "sqlite:///ledger.db", "--dataset", "clinic"]
    shown = run(*charged, "--plan")
    assert shown.exit_code == 0, shown.output
    assert "visits.severity" in shown.output
    before = len(ledger.history("clinic"))
    assert run(*charged, "--out", "release", "--json").exit_code == 0
    assert len(ledger.history("clinic")) == before + 1
    assert "patients" not in str(ledger.history("clinic")[-1])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--generator", "vae"], "take the generator 'marginals'"),
        (["--evaluate", "1.5"], "must lie between 0 and 1"),
        (["--knowledge", "clinic.dot"], "knowledge goes with a graph that is to be discovered"),
        (["--custodian"], "--custodian is not taken with linked tables"),
        (["--graph", "discover", "--option", "method=gaussian"], "'exact' or 'two-stage'"),
        (["--public-rows", "9"], "--public-rows is about one table"),
        (["--option", "depth=3"], "no option 'depth'"),
    ],
)
def test_what_linked_tables_do_not_take_is_said(folder: Path, more: list[str], words: str) -> None:
    assert words in failed(*RELEASE, "--out", "release", *more)
    assert not (folder / "release").exists()


def test_a_graph_over_them_is_drawn_as_plates_and_checked(folder: Path) -> None:
    shown = run("graph", "show", "clinic.dot", "--schema", "clinic.toml", "--svg", "clinic.svg")
    assert shown.exit_code == 0, shown.output
    drawn = (folder / "clinic.svg").read_text()
    assert drawn.count('class="plate"') == 2
    assert 'class="edge lagged"' in drawn
    checked = run("graph", "check", "clinic.dot", "--schema", "clinic.toml")
    assert "linked tables of clinic.toml can follow it" in checked.output
    (folder / "back.edges").write_text("visits.severity -> patients.age\n")
    assert "leads from rows to people" in failed("graph", "check", "back.edges", "--schema", "clinic.toml")
    converted = run("graph", "convert", "clinic.dot", "clinic.gml")
    assert converted.exit_code == 0, converted.output


def test_tables_are_told_by_their_names(folder: Path) -> None:
    (folder / "visits.csv").rename(folder / "all of 2020.csv")
    assert "say NAME=FILE" in failed("release", "patients.csv", "all of 2020.csv", *RELEASE[3:], "--out", "release")
    assert "lacks 'visits'" in failed("release", "patients.csv", *RELEASE[3:], "--out", "release")
    named = run("release", "patients.csv", "visits=all of 2020.csv", *RELEASE[3:], "--seed", "1", "--out", "release")
    assert named.exit_code == 0, named.output


def test_verbs_of_one_table_refuse_linked_ones_in_a_sentence(folder: Path) -> None:
    line = ["direction", "visits.csv", "severity", "treat", "--schema", "clinic.toml", "--epsilon", "1"]
    assert "linked tables" in failed(*line)
    assert "the schema describes one" in failed("schema", "check", *DATA, "--schema", str(_one(folder)))


def test_the_effect_on_the_next_visit_is_told_with_a_page_and_can_be_run_again(folder: Path) -> None:
    names = ["visits.treat@prev", "visits.severity=severe"]
    line = ["effect", *DATA, *names, "--schema", "clinic.toml", "--graph", "clinic.dot", "--epsilon", "2"]
    done = run(*line, "--seed", "1", "--report", "page.html", "--save-config", "run.toml", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["adjustment"] == ["patients.age", "visits.severity@prev"]
    assert "people, about" in (folder / "page.html").read_text()
    again = json.loads(run("run", "run.toml", "--json").output)
    assert again["value"] == told["value"]
    assert "about" in run(*line, "--seed", "1").output
    assert "lacks 'patients'" in failed("effect", "visits.csv", *line[3:])
    assert "the schema describes one" in failed("effect", *DATA, "a", "b", "-s", str(_one(folder)), "-e", "1")


def test_a_custodian_evaluates_and_attacks_a_release(folder: Path) -> None:
    assert run(*RELEASE, "--seed", "1", "--out", "release", "--csv").exit_code == 0
    for name in ("train", "test"):
        (folder / name).mkdir()
        for file in DATA:
            (folder / name / file).write_bytes((folder / file).read_bytes())
    done = run("evaluate", "train", "test", "--release", "release", "--out", "page.html", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["custodian_only"] is True
    assert told["floor"]["rows"] == 0
    assert told["effects"][0]["treatment"] == "visits.treat@prev"
    assert "Keep this page to yourself" in (folder / "page.html").read_text()
    few = ["--targets", "1", "--shadows", "2", "--trials", "2", "--jobs", "1"]
    attacked = run("attack", *DATA, "--release", "release", *few, "--out", "attack.html", "--json")
    assert attacked.exit_code == 0, attacked.output
    assert json.loads(attacked.output)["targets"][0]["label"].startswith("person ")
    assert (folder / "attack.html").exists()
    assert "the schema describes one" in failed("attack", *DATA, "-s", str(_one(folder)), "-e", "1")
    other = run("evaluate", "train", "test", "release/synthetic", "--schema", "clinic.toml")
    assert "For the custodian only" in other.output
    assert "'visits.csv' is no folder" in failed("evaluate", "visits.csv", "test", "--release", "release")
    (folder / "test" / "visits.csv").unlink()
    assert "no file of the table 'visits'" in failed("evaluate", "train", "test", "--release", "release")


def test_a_graph_is_found_that_a_release_takes(folder: Path) -> None:
    line = ["discover", *DATA, "--schema", "clinic.toml", "--epsilon", "20", "--delta", "1e-5", "--seed", "1"]
    done = run(*line, "--out", "found.dot", "--report", "page.html", "--json")
    assert done.exit_code == 0, done.output
    assert ["visits.severity@prev", "visits.severity"] in [
        [e["from"], e["to"]] for e in json.loads(done.output)["edges"]
    ]
    assert "visits.severity@prev" in (folder / "page.html").read_text()
    assert "visits, row by row" in run(*line, "--plan").output
    taken = run("release", *DATA, "-s", "clinic.toml", "-g", "found.dot", "-e", "2", "-d", "1e-5", "--plan")
    assert taken.exit_code == 0, taken.output
    assert "the schema describes one" in failed("discover", *DATA, "-s", str(_one(folder)), "-e", "1", "-o", "x.dot")


def _one(folder: Path) -> Path:
    from escudo.table import Schema

    Schema.from_dict({"smoke": ["never", "former", "current"]}).write(folder / "one.toml")
    return folder / "one.toml"


def test_a_schema_is_drafted_checked_shown_and_confirmed(folder: Path) -> None:
    drafted = run("schema", "draft", *DATA, "--people", "patients", "--out", "draft.toml")
    assert drafted.exit_code == 0, drafted.output
    schema = LinkedSchema.read("draft.toml")
    assert (schema.key, schema.origin, schema.child("visits").order) == ("patient", "entry", "date")
    assert not schema.confirmed
    assert "visits" in schema.unconfirmed
    assert oct((folder / "draft.toml").stat().st_mode)[-2:] == "00"
    assert "not confirmed" in failed("release", *DATA, "--schema", "draft.toml", "--epsilon", "1", "--out", "release")
    checked = run("schema", "check", *DATA, "--schema", "draft.toml")
    assert checked.exit_code == 0, checked.output
    assert "800 people" in checked.output
    assert run("schema", "show", "draft.toml").exit_code == 0
    assert "pass --all" in failed("schema", "confirm", "draft.toml")
    assert run("schema", "confirm", "draft.toml", "visits", "visits.severity").exit_code == 0
    assert "visits" not in LinkedSchema.read("draft.toml").unconfirmed
    assert run("schema", "confirm", "draft.toml", "--all").exit_code == 0
    assert LinkedSchema.read("draft.toml").confirmed
    out = run("release", *DATA, "--schema", "draft.toml", "--epsilon", "2", "--seed", "1", "--out", "release")
    assert out.exit_code == 0, out.output


def test_a_schema_is_learnt_privately_and_charged(folder: Path) -> None:
    assert run("schema", "draft", *DATA, "--people", "patients", "--out", "draft.toml").exit_code == 0
    ledger = Ledger("sqlite:///ledger.db")
    ledger.open("clinic", epsilon=9.0, delta=1e-4, unit="person", max_rows_per_person=21)
    learn = ["schema", "learn", *DATA, "--schema", "draft.toml", "--epsilon", "8", "--delta", "1e-5"]
    account = ["--ledger", "sqlite:///ledger.db", "--dataset", "clinic"]
    assert "--most visits=40" in failed(*learn, *account)
    assert "takes a table and a number" in failed(*learn, *account, "--most", "visits")
    assert "lacks 'visits'" in failed(*learn[:3], *learn[4:], "--most", "visits=20")
    assert "are for linked tables" in failed("schema", "learn", *DATA, "--schema", str(_one(folder)), "--epsilon", "1")
    before = len(ledger.history("clinic"))
    learnt = run(*learn, *account, "--most", "visits=20", "--out", "learnt.toml")
    assert learnt.exit_code == 0, learnt.output
    assert "taken as public" in learnt.output
    assert len(ledger.history("clinic")) == before + 1
    schema = LinkedSchema.read("learnt.toml")
    assert schema.confirmed
    assert schema.child("visits").most == 20
    assert "nothing to learn" in failed("schema", "learn", *DATA, "--schema", "learnt.toml", "--epsilon", "1")


def test_a_check_counts_what_takes_no_part(folder: Path) -> None:
    visits = pl.read_csv("visits.csv")
    odd = visits.head(3).with_columns(
        pl.Series("patient", [99999, None, 1]), pl.Series("date", ["2021-01-01", None, ""])
    )
    pl.concat([visits, odd, visits.head(1).with_columns(pl.lit("1999-01-01").alias("date"))]).write_csv("visits.csv")
    result = run("schema", "check", *DATA, "--schema", "clinic.toml", "--json")
    findings = " ".join(json.loads(result.output)["findings"])
    for words in ("not among people", "have no key", "have no day", "before the person's origin"):
        assert f"visits: 1 of {visits.height + 4:,} rows {words}" in findings or words in findings


def test_drafts_need_a_key_and_dates(folder: Path) -> None:
    pl.DataFrame({"other": [1, 2], "x": ["a", "b"]}).write_csv("loose.csv")
    assert "have no key" in failed("schema", "draft", "patients.csv", "loose.csv", "--people", "patients")
    pl.DataFrame({"patient": [1, 2], "x": ["a", "b"]}).write_csv("undated.csv")
    assert "no column of dates" in failed("schema", "draft", "patients.csv", "undated.csv", "--people", "patients")
    assert "--people says which" in failed("schema", "draft", *DATA)
    assert "no table is called" in failed("schema", "draft", *DATA, "--people", "nobody")


def test_a_model_of_one_table_takes_no_people(folder: Path, tmp_path: Path) -> None:
    import escudo

    frame: Any = pl.read_csv("patients.csv")
    table = escudo.PrivateTable(frame, escudo.Schema.read(_one(folder)))
    escudo.synthesize(table, None, epsilon=1.0, delta=1e-6, seed=1).save(tmp_path / "model")
    assert "say --rows" in failed("sample", str(tmp_path / "model"), "--people", "3")
