"""Claims about ``escudo attack``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from escudo.causal import asia
from escudo.cli import app
from escudo.table import Schema

SMALL = ["--epsilon", "1", "--targets", "1", "--shadows", "6", "--trials", "6", "--jobs", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("attack")
    network = asia()
    network.sample_frame(80, rng=np.random.default_rng(1)).write_csv(place / "clinic.csv")
    network.graph.write(place / "clinic.dot")
    Schema.from_dict({name: list(network.levels[name]) for name in network.nodes}).write(place / "clinic.toml")
    return place


def run(folder, *arguments):
    start = ["attack", str(folder / "clinic.csv"), "--schema", str(folder / "clinic.toml")]
    return CliRunner().invoke(app, [*start, "--graph", str(folder / "clinic.dot"), *arguments])


def test_it_prints_the_verdict_and_what_the_promise_allows(folder):
    result = run(folder, *SMALL)
    assert result.exit_code == 0, result.output
    assert "No violation found" in result.output
    assert "For the custodian only" in result.output


def test_json_and_the_page(folder, tmp_path):
    page = tmp_path / "attack.html"
    result = run(folder, *SMALL, "--row", "3", "--json", "--out", str(page))
    body = json.loads(result.stdout)
    assert [target["label"] for target in body["targets"]] == ["row 3"]
    assert body["ceiling"]["accuracy"] < 0.6
    html = page.read_text(encoding="utf-8")
    assert html.count("Custodian only, not for release") >= 3
    assert "heuristic" in html
    assert "formal" in html


def test_a_broken_generator_ends_with_code_5(folder, tmp_path, monkeypatch):
    from escudo import attacks

    def accused(*_, **__):
        class Found:
            violated, verdict, ranked, ceiling = True, "VIOLATED: it leaks.", (), None

            def to_json(self):
                return {"violated": True}

        return Found()

    monkeypatch.setattr(attacks, "attack", accused)
    assert run(folder, *SMALL).exit_code == 5


def test_a_release_is_attacked_as_it_was_made_and_its_own_report_stays(folder, tmp_path):
    made, terms = tmp_path / "made", ["--epsilon", "1", "--seed", "1"]
    start = [str(folder / "clinic.csv"), "--schema", str(folder / "clinic.toml"), "--graph", str(folder / "clinic.dot")]
    released = CliRunner().invoke(app, ["release", *start, *terms, "--out", str(made)])
    assert released.exit_code == 0, released.output
    before = (made / "report.html").read_bytes()
    result = CliRunner().invoke(
        app, ["attack", str(folder / "clinic.csv"), "--release", str(made), *SMALL[2:], "--json"]
    )
    assert result.exit_code == 0, result.output
    body = json.loads(result.stdout)
    assert body["claim"]["epsilon"] == pytest.approx(1.0, abs=0.01)
    assert (made / "report.html").read_bytes() == before
    copy = tmp_path / "made-custodian.html"
    assert body["custodian"] == str(copy)
    assert copy.stat().st_mode & 0o077 == 0
    assert copy.read_text(encoding="utf-8").count("<!-- section attack -->") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--release", "nowhere"], "holds no release"),
        (["--schema", "clinic.toml"], "--epsilon is missing"),
        (["--epsilon", "1"], "--schema is missing"),
        (["--release", "made", "--epsilon", "1"], "--epsilon is what the release says"),
        (["--release", "made", "--delta", "1e-6"], "--delta is what the release says"),
        (["--release", "made", "--generator", "vae"], "--generator is what the release says"),
        (["--release", "made", "--relation", "add_remove"], "--relation is what the release says"),
    ],
    ids=["no release", "no epsilon", "no schema", "epsilon twice", "delta twice", "generator twice", "relation twice"],
)
def test_what_is_missing_or_said_twice_is_named(folder, words, said):
    result = CliRunner().invoke(app, ["attack", str(folder / "clinic.csv"), *words])
    assert result.exception is not None
    assert said in str(result.exception)


def test_the_finding_is_shown_although_its_page_cannot_be_written(folder, tmp_path, monkeypatch):
    import escudo.report
    from escudo.errors import InputError

    def full(html, path):
        raise InputError("the disk is full.")

    monkeypatch.setattr(escudo.report, "write", full)
    result = run(folder, *SMALL, "--out", str(tmp_path / "attack.html"))
    assert "No violation found" in result.output
    assert isinstance(result.exception, InputError)


def test_figures_that_there_are_not_are_a_dash(folder):
    result = run(folder, *SMALL[:4], "--shadows", "2", "--trials", "2", "--jobs", "1", "--seed", "4")
    assert result.exit_code == 0, result.output
    assert "nan" not in result.output
