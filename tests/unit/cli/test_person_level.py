"""A table in which people have several rows goes through every command, with an account for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from escudo.causal import CausalGraph
from escudo.cli import app
from escudo.table import Schema

ROWS, PEOPLE, MOST = 1200, 500, 3
ACCOUNT = ["--ledger", "sqlite:///ledger.db", "--dataset", "visits"]


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESCUDO_LEDGER", raising=False)
    draw = np.random.default_rng(5)
    smoke = draw.random(ROWS) < 0.4
    ill = draw.random(ROWS) < np.where(smoke, 0.6, 0.2)
    people = draw.integers(PEOPLE, size=ROWS)
    frame = pl.DataFrame({"who": people, "smoke": smoke, "ill": ill, "age": draw.integers(18, 90, size=ROWS)})
    frame = frame.with_columns(pressure=100 + frame["age"] / 2 + draw.normal(size=ROWS))
    frame = frame.with_columns(
        pl.col("smoke", "ill").replace_strict({True: "yes", False: "no"}, return_dtype=pl.String)
    )
    frame.write_csv("visits.csv")
    frame.head(800).write_csv("train.csv")
    frame.tail(400).write_csv("test.csv")
    levels: dict[str, Any] = {"smoke": ["no", "yes"], "ill": ["no", "yes"]}
    levels["pressure"] = {"type": "numeric", "lower": 90, "upper": 160, "bins": 4}
    levels["age"] = {"type": "numeric", "lower": 18, "upper": 90, "bins": 4, "integer": True}
    Schema.from_dict(levels, person_id="who", max_rows_per_person=MOST).write("visits.toml")
    CausalGraph.from_edges([("smoke", "ill"), ("age", "ill"), ("age", "pressure")]).write("clinic.dot")
    run("ledger", "open", "visits", "--epsilon", "20", "--delta", "1e-5", "--unit", "person",
        "--max-rows-per-person", str(MOST), "--ledger", "sqlite:///ledger.db")  # fmt: skip
    return tmp_path


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exception is None, (result.output, result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_paid_command_charges_an_account_for_people(clinic: Path) -> None:
    asked = [
        ["release", "visits.csv", "--graph", "clinic.dot", "--out", "released"],
        ["discover", "visits.csv", "--out", "found.dot"],
        ["effect", "visits.csv", "smoke", "ill", "--graph", "clinic.dot"],
        ["direction", "visits.csv", "age", "pressure", "--option", "abstain=0"],  # else too few people to spend on
    ]
    for words in asked:
        terms = ["--schema", "visits.toml", "--epsilon", "1", "--delta", "1e-7", *ACCOUNT]
        planned = run(*words, *terms, "--plan")
        assert planned["ledger"]["fits"], words
        run(*words, *terms)
    shown = run("ledger", "show", "visits", "--ledger", "sqlite:///ledger.db")
    assert json.dumps(shown).count(f'"max_rows_per_person": {MOST}') >= 1
    history = run("ledger", "history", "visits", "--ledger", "sqlite:///ledger.db")
    assert json.dumps(history).count('"spend"') == len(asked)
    assert "one person" in (clinic / "released" / "report.html").read_text(encoding="utf-8")


def test_what_is_for_the_custodian_alone_reads_it_too(clinic: Path) -> None:
    terms = ["--schema", "visits.toml"]
    run("release", "visits.csv", *terms, "--graph", "clinic.dot", "--epsilon", "1", "--delta", "1e-7", "--out", "made")
    quick = ["--targets", "1", "--jobs", "1"]
    judged = run("evaluate", "train.csv", "test.csv", "made/synthetic.parquet", *terms, *quick, "--learner", "logistic")
    assert judged["custodian_only"]
    attacked = run("attack", "visits.csv", *terms, "--graph", "clinic.dot", "--epsilon", "1", "--delta", "1e-7",
                   "--shadows", "10", "--trials", "10", *quick)  # fmt: skip
    assert attacked["claim"]["unit"] == "person"
