"""Claims about ``escudo evaluate``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from escudo.causal import asia
from escudo.cli import app
from escudo.table import Schema

SMALL = ["--target", "lung", "--target", "bronc", "--learner", "logistic", "--jobs", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("evaluate")
    network = asia()
    for seed, name in enumerate(("train", "test", "made", "again")):
        network.sample_frame(400, rng=np.random.default_rng(seed)).write_csv(place / f"{name}.csv")
    Schema.from_dict({name: list(network.levels[name]) for name in network.nodes}).write(place / "clinic.toml")
    return place


def run(folder, *arguments):
    files = [str(folder / name) for name in ("train.csv", "test.csv")]
    return CliRunner().invoke(app, ["evaluate", *files, *arguments, "--schema", str(folder / "clinic.toml")])


def test_it_prints_a_table_and_whom_it_is_for(folder):
    result = run(folder, str(folder / "made.csv"), *SMALL)
    assert result.exit_code == 0, result.output
    assert "logistic" in result.output
    assert "For the custodian only" in result.output


def test_several_synthetic_tables_and_json(folder):
    result = run(folder, str(folder / "made.csv"), str(folder / "again.csv"), *SMALL, "--json")
    body = json.loads(result.output)
    assert body["custodian_only"] is True
    assert len(body["fidelity"]) == 2
    assert {change["over"] for change in body["changes"]} == {"tables"}


def test_the_page_is_marked_on_the_screen_and_in_print(folder, tmp_path):
    page = tmp_path / "evaluation.html"
    assert run(folder, str(folder / "made.csv"), *SMALL, "--out", str(page)).exit_code == 0
    html = page.read_text(encoding="utf-8")
    assert html.count("Custodian only, not for release") >= 3
    assert "://" not in html.replace("http://www.w3.org", "")
    assert run(folder, str(folder / "made.csv"), *SMALL, "--out", str(folder / "train.csv")).exit_code != 0
