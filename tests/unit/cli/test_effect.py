"""``escudo effect``: the answer with its interval, what it rests on, and refusals that name the path."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from commands import refusal, run, working_in
from escudo.causal import CausalGraph, asia
from escudo.cli import _causal
from escudo.errors import InputError, NotIdentifiableError, SchemaError
from escudo.privacy import Ledger
from escudo.table import Schema

app = typer.Typer()
app.command("effect")(_causal.effect)
app.command("other")(lambda: None)
ASK = ["effect", "visits.csv", "bronc", "dysp", "--schema", "visits.toml", "--epsilon", "0.5"]
GRAPH = ["--graph", "clinic.dot"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, clinic = tmp_path_factory.mktemp("clinic"), asia()
    clinic.sample_frame(5000, rng=np.random.default_rng(0)).write_csv(folder / "visits.csv")
    Schema.from_dict({name: list(levels) for name, levels in clinic.levels.items()}).write(folder / "visits.toml")
    clinic.graph.write(folder / "clinic.dot")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in made.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return working_in(tmp_path, monkeypatch)


def test_the_answer_comes_with_its_interval_and_what_it_rests_on(folder: Path) -> None:
    shown = run(*ASK, *GRAPH, "--report", "effect.html").output
    assert "Setting bronc from no to yes raises the share of rows with dysp = yes by 0.6" in shown
    assert "95% interval 0.6" in shown
    assert "adjusted for either   (back-door)" in shown
    assert "do(bronc = yes)" in shown
    assert "What it means: Changing one person's row" in shown
    assert "Written to effect.html" in shown
    assert "What bronc does to dysp" in (folder / "effect.html").read_text()


def test_refuters_robustness_and_overlap_are_shown_and_charged(folder: Path) -> None:
    refute = ["--refute", "placebo", "--refute", "random-cause", "--seed", "1"]
    shown = run(*ASK, *GRAPH, *refute, "--report", "effect.html").output
    assert "placebo: dysp by a coin by either" in shown
    assert "random cause: dysp by bronc by either, a coin" in shown
    assert "placebo treatment: " in shown
    assert "random common cause: 0.6" in shown
    assert "(E-values)" in shown
    assert "Both bronc = no and yes are seen where" in shown
    page = (folder / "effect.html").read_text()
    assert "Placebo treatment: " in page
    assert "Overlap: the arms in the largest strata" in page
    data = json.loads(run(*ASK, *GRAPH, *refute, "--joint", "--json").output)
    assert [one["kind"] for one in data["refutations"]] == ["placebo", "random-cause"]
    assert data["guarantee"]["epsilon"] == pytest.approx(0.5)
    assert data["contrasts"][0]["e_value"]["limit"] > 3
    assert data["overlap"]["compared"] > 0.9
    assert data["joint"] is True
    assert "placebo" in str(refusal(*ASK, *GRAPH, "--refute", "bootstrap"))


def test_json_carries_everything(folder: Path) -> None:
    data = json.loads(run(*ASK, *GRAPH, "--seed", "1", "--json").output)
    assert data["interval"][0] < 0.668 < data["interval"][1]
    assert data["adjustment"] == ["either"]
    assert data["for_release"] is False
    assert data["guarantee"]["epsilon"] == pytest.approx(0.5)


def test_a_level_of_the_outcome_and_the_pair_to_compare_can_be_named(folder: Path) -> None:
    arguments = ["effect", "visits.csv", "bronc", "dysp=no", *ASK[4:], *GRAPH, "--compare", "yes,no", "--json"]
    data = json.loads(run(*arguments).output)
    assert (data["control"], data["treated"]) == ("yes", "no")
    assert data["interval"][0] < 0.668 < data["interval"][1]


def test_stated_columns_and_trials_need_no_graph(folder: Path) -> None:
    assert json.loads(run(*ASK, "--adjust", "smoke", "--json").output)["adjustment"] == ["smoke"]
    assert json.loads(run(*ASK, "--trial", "--json").output)["method"] == "trial"


def test_the_plan_forecasts_and_spends_nothing(folder: Path) -> None:
    book = Ledger(f"sqlite:///{folder / 'escudo-ledger.db'}")
    book.open("visits", epsilon=1.0, delta=1e-6)
    shown = run(*ASK, *GRAPH, "--dataset", "visits", "--plan", "--public-rows", "5000").output
    assert "if rows spread evenly" in shown
    assert "visits: 0.0 % of ε = 1.00 used; this asks for " in shown
    assert book.account("visits").total().epsilon == 0.0
    run(*ASK, *GRAPH, "--dataset", "visits")
    assert book.account("visits").total().epsilon == pytest.approx(0.5, rel=1e-4)
    book.close()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ([], InputError, "give a graph"),
        (["--trial", *GRAPH], InputError, "leave graph and adjust out"),
        ([*GRAPH, "--compare", "yes"], InputError, "two levels"),
        ([*GRAPH, "--compare", "yes,maybe"], InputError, "no level 'maybe'"),
        (["--adjust", "smok"], SchemaError, "smoke"),
        ([*GRAPH, "--report", "visits.csv"], InputError, "not a report of escudo"),
        ([*GRAPH, "--report", "no/effect.html"], InputError, "does not exist"),
    ],
    ids=["nothing", "trial and graph", "one level", "no level", "unknown column", "not a report", "no folder"],
)
def test_bad_arguments_are_refused(folder: Path, arguments: list[str], error: type[Exception], match: str) -> None:
    found = refusal(*ASK, *arguments)
    assert isinstance(found, error)
    assert match in str(found)


def test_an_answer_that_is_paid_for_is_shown_even_if_its_page_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise InputError("no space left")

    monkeypatch.setattr("escudo.report.write", full_disk)
    result = CliRunner().invoke(app, [*ASK, *GRAPH, "--report", "page.html"])
    assert isinstance(result.exception, InputError)
    assert "95% interval" in result.output
    assert "Written to" not in result.output


def test_an_unidentified_effect_names_the_open_path(folder: Path) -> None:
    graph = CausalGraph.from_edges([("genes", "bronc"), ("genes", "dysp"), ("bronc", "dysp")], latents=["genes"])
    graph.write("hidden.dot")
    found = refusal(*ASK, "--graph", "hidden.dot")
    assert isinstance(found, NotIdentifiableError)
    assert "bronc ← genes → dysp" in str(found)
