"""``escudo discover``: a graph, a page, one charge; refusals before anything is spent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from commands import refusal, run, working_in
from escudo.causal import AncestralGraph, CausalGraph
from escudo.cli import _causal
from escudo.errors import BudgetExceededError, InputError
from escudo.privacy import Ledger
from escudo.table import Schema

app = typer.Typer()
app.command("discover")(_causal.discover)
app.command("other")(lambda: None)  # with one command alone typer would drop its name
ASK = ["discover", "num.csv", "--schema", "num.toml", "--method", "gaussian", "--epsilon", "1"]
NAMES = ("age", "diet", "dose", "pressure")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    age, diet = rng.normal(size=(2, 8000))
    dose = age + rng.normal(size=8000)
    frame = pl.DataFrame({"age": age, "diet": diet, "dose": dose, "pressure": dose - diet + rng.normal(size=8000)})
    frame.write_csv(tmp_path / "num.csv")
    Schema.from_dict({name: {"type": "numeric", "lower": -9, "upper": 9} for name in NAMES}).write(
        tmp_path / "num.toml"
    )
    return working_in(tmp_path, monkeypatch)


def test_the_graph_is_written_and_shown_with_how_sure_it_is(folder: Path) -> None:
    shown = run(*ASK, "--seed", "1", "--out", "graph.dot", "--report", "graph.html").output
    graph = CausalGraph.read("graph.dot")
    assert set(graph.edges) == {("dose", "pressure"), ("diet", "pressure")}
    assert graph.undirected_edges == (("age", "dose"),)
    assert "dose → pressure" in shown
    assert re.search(r"dose → pressure +edge +\d+ %   direction \d+ %", shown)
    assert re.search(r"age — dose +edge +\d+ %   direction open", shown)
    assert "second moments" in shown
    assert "NOT FOR RELEASE" in shown
    assert "Written to graph.dot; open graph.html" in shown
    assert "What causes what" in (folder / "graph.html").read_text()


def test_json_carries_edges_guarantee_and_plan(folder: Path) -> None:
    data = json.loads(run(*ASK, "--out", "graph.dot", "--json").output)
    assert data["method"] == "gaussian"
    assert data["file"] == "graph.dot"
    assert data["for_release"] is True
    assert {frozenset((edge["from"], edge["to"])) for edge in data["edges"]} == {
        frozenset(("dose", "pressure")),
        frozenset(("diet", "pressure")),
        frozenset(("age", "dose")),
    }
    assert all(0 < edge["confidence"] <= 1 for edge in data["edges"])
    assert data["guarantee"]["epsilon"] <= 1


def test_the_plan_spends_and_writes_nothing(folder: Path) -> None:
    shown = run(*ASK, "--plan").output
    assert "Nothing was spent" in shown
    assert sorted(path.name for path in folder.iterdir()) == ["num.csv", "num.toml"]


def test_knowledge_settles_a_direction(folder: Path) -> None:
    CausalGraph.from_edges([("age", "dose")], nodes=NAMES).write("known.dot")
    run(*ASK, "--seed", "1", "--out", "graph.dot", "--knowledge", "known.dot")
    assert ("age", "dose") in CausalGraph.read("graph.dot").edges


@pytest.mark.parametrize("name", ["graph.csv", "graph.edges", "graph.dagitty", "graph.gml"])
def test_a_graph_that_was_paid_for_is_written_in_every_format_that_holds_its_edges(folder: Path, name: str) -> None:
    CausalGraph.from_edges([("age", "dose")], nodes=NAMES, tiers=[["diet"], ["pressure"]]).write("known.dot")
    run(*ASK, "--seed", "1", "--out", name, "--knowledge", "known.dot")
    assert ("age", "dose") in CausalGraph.read(name).edges


def test_the_ledger_is_charged_once_and_refuses_the_second(folder: Path) -> None:
    book = Ledger(f"sqlite:///{folder / 'book.db'}")
    book.open("trial", epsilon=1.2, delta=1e-6)
    options = ["--ledger", f"sqlite:///{folder / 'book.db'}", "--dataset", "trial"]
    assert "trial: 0.0 % of ε = 1.20 used" in run(*ASK, *options, "--plan").output
    run(*ASK, *options, "--out", "graph.dot")
    assert book.account("trial").total().epsilon == pytest.approx(1.0, rel=1e-2)
    assert isinstance(refusal(*ASK, *options, "--out", "other.dot"), BudgetExceededError)
    assert not (folder / "other.dot").exists()
    book.close()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ([], InputError, "--out says where"),
        (["--out", "graph.xyz"], InputError, "xyz"),
        (["--out", "no/graph.dot"], InputError, "does not exist"),
        (["--out", "graph.bif"], InputError, "BIF cannot hold edges without a direction"),
        (["--out", f"{'g' * 300}.dot"], InputError, "cannot be written: File name too long"),
        (["--out", "num.csv"], InputError, "exists; choose another name, or pass --force"),
        (["--out", "g.dot", "--report", "num.csv"], InputError, "not a report of escudo"),
        (["--out", "g.dot", "--report", "."], InputError, "'.' is a folder; name a file in it."),
        (["--out", "g.dot", "--ledger", "sqlite:///book.db"], InputError, "--dataset"),
        (["--out", "g.dot", "--method", "magic"], InputError, "method"),
    ],
    ids=[
        "no out",
        "format",
        "folder",
        "no undirected edges",
        "long name",
        "exists",
        "report",
        "folder as a report",
        "dataset",
        "method",
    ],
)
def test_bad_arguments_are_refused_before_anything_is_spent(
    folder: Path, arguments: list[str], error: type[Exception], match: str
) -> None:
    found = refusal(*ASK, *arguments)
    assert isinstance(found, error)
    assert match in str(found)
    assert not (folder / "g.dot").exists()


def test_an_answer_that_is_paid_for_is_shown_even_if_its_files_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise InputError("no space left")

    monkeypatch.setattr("escudo.report.write", full_disk)
    result = CliRunner().invoke(app, [*ASK, "--seed", "1", "--out", "graph.dot", "--report", "page.html", "--json"])
    assert isinstance(result.exception, InputError)
    assert json.loads(result.output)["file"] is None
    assert len(json.loads(result.output)["edges"]) == 3
    result = CliRunner().invoke(app, [*ASK, "--seed", "1", "--out", "other.dot", "--report", "page.html"])
    assert "dose → pressure" in result.output
    assert "Written to" not in result.output


def test_an_existing_graph_is_replaced_on_request(folder: Path) -> None:
    (folder / "graph.dot").write_text("mine")
    run(*ASK, "--seed", "1", "--out", "graph.dot", "--force")
    assert CausalGraph.read("graph.dot").nodes == NAMES


def test_a_share_for_directions_is_in_the_plan(folder: Path) -> None:
    shown = run(*ASK, "--directions", "0.25", "--plan").output
    assert "directions of open edges" in shown
    assert "ε = 0.25" in shown
    assert isinstance(refusal(*ASK, "--directions", "2", "--plan"), InputError)


def test_with_hidden_causes_a_partial_ancestral_graph_is_written(folder: Path) -> None:
    asked = [*ASK, "--hidden-causes", "--seed", "1"]
    shown = run(*asked, "--out", "graph.dot", "--report", "graph.html").output
    graph = AncestralGraph.read("graph.dot")
    assert graph.kind("dose", "pressure") in ("o->", "->")
    assert graph.kind("diet", "pressure") in ("o->", "->")
    assert " %   marks" in shown
    assert "<circle" in (folder / "graph.html").read_text()
    told = json.loads(run(*asked, "--out", "graph.dagitty", "--json").output)
    assert told["hidden_causes"] is True
    assert AncestralGraph.read("graph.dagitty") == graph


def test_a_format_without_circles_is_refused_before_anything_is_spent(folder: Path) -> None:
    answer = refusal(
        *ASK, "--hidden-causes", "--out", "graph.gml", "--ledger", "sqlite:///ledger.db", "--dataset", "visits"
    )
    assert "cannot carry the marks" in str(answer)
    assert not (folder / "ledger.db").exists()
