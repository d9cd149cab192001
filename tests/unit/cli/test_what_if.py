"""``escudo what-if``: effects in a released model, as a range where directions are open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

import escudo
from escudo.causal import CausalGraph
from escudo.cli import app
from escudo.errors import EscudoError
from escudo.synthesis import _model_effects, load

SCHEMA = escudo.Schema.from_dict({"z": [0, 1], "x": [0, 1], "y": ["no", "yes"], "w": [0, 1]})
GRAPH = CausalGraph.from_edges([("x", "y"), ("z", "y")], nodes=[*"zxyw"], undirected=[("z", "x")])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    z = rng.random(4_000) < 0.4
    x = rng.random(4_000) < np.where(z, 0.7, 0.3)
    y = rng.random(4_000) < 0.2 + 0.3 * x + 0.2 * z
    columns = {"z": z.astype(int), "x": x.astype(int), "y": np.where(y, "yes", "no"), "w": rng.integers(0, 2, 4_000)}
    table = escudo.PrivateTable(pl.DataFrame(columns), SCHEMA)
    folder: Path = tmp_path_factory.mktemp("released") / "model"
    escudo.synthesize(table, GRAPH, epsilon=2.0, delta=1e-6, seed=1).save(folder)
    return str(folder)


def run(*words: str) -> Result:
    found = CliRunner().invoke(app, ["what-if", *words])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_where_an_edge_is_open_it_is_a_range_over_the_readings(model: str) -> None:
    told = json.loads(run(model, "x", "y", "--json").stdout)
    found = load(model).effect_range("x", "y")
    changes = [effect.shifts(1, 0)["yes"] for effect in found.effects]
    assert told["changes"] == pytest.approx(changes)
    assert told["range"] == pytest.approx([min(changes), max(changes)])
    assert changes[0] > changes[1] + 0.04  # without z it is taken for more than it is
    assert (told["control"], told["treated"], told["level"], told["interval"]) == ("0", "1", "yes", None)
    shown = run(model, "x", "y").stdout
    assert "if its causes are z" in shown
    assert f"the share of y = yes by {min(changes):+.3g} to {max(changes):+.3g}, over 2 readings of the graph." in shown


def test_values_and_levels_are_chosen_and_intervals_allow_for_noise(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_model_effects, "REFITS", 5)
    there = json.loads(run(model, "x", "y", "--json", "--confidence", "0.9").stdout)
    back = json.loads(run(model, "x", "y=no", "--compare", "1, 0", "--json", "--confidence", "0.9").stdout)
    assert there["interval"][0] < there["range"][0] <= there["range"][1] < there["interval"][1]
    assert back["interval"] == pytest.approx(there["interval"])
    assert "(90% interval)" in run(model, "x", "y", "--confidence", "0.9").stdout


def test_where_nothing_is_open_it_is_one_number_and_a_mean_where_there_is_one(model: str) -> None:
    told = json.loads(run(model, "x", "w", "--json").stdout)
    assert told["level"] is None
    assert told["changes"] == [0.0]
    assert "the mean of w by +0." in run(model, "x", "w").stdout


def test_a_number_is_compared_by_its_bin_and_a_missing_value_is_no_outcome_to_ask_about(tmp_path: Path) -> None:
    a = np.random.default_rng(2).uniform(0, 10, 3_000)
    frame = pl.DataFrame({"a": a, "b": np.where(a < 5, "low", None)})
    schema = escudo.Schema.from_dict(
        {
            "a": {"type": "numeric", "lower": 0, "upper": 10, "bins": 10},
            "b": {"type": "categorical", "levels": ["other", "low"], "missing": True},
        }
    )
    graph = CausalGraph.from_edges([("a", "b")])
    table = escudo.PrivateTable(frame, schema)
    escudo.synthesize(table, graph, epsilon=3.0, delta=1e-6, seed=1).save(tmp_path / "model")
    told = json.loads(run(str(tmp_path / "model"), "a", "b", "--compare", "7.2, 1", "--json").stdout)
    assert (told["control"], told["treated"], told["level"]) == ("[7, 8)", "[1, 2)", "low")
    assert told["range"][0] == told["range"][1] > 0.8
    usual = json.loads(run(str(tmp_path / "model"), "a", "b", "--json").stdout)
    assert (usual["control"], usual["treated"]) == ("[2, 3)", "[7, 8)")  # as escudo effect compares
    with pytest.raises(EscudoError, match="takes numbers from 0 to 10; got '11'"):
        run(str(tmp_path / "model"), "a", "b", "--compare", "1,11")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x", "nothing"), "outcome must be one of"),
        (("x", "y=perhaps"), "no level of 'y'"),
        (("x", "y", "--compare", "1"), "takes two values"),
        (("x", "y", "--compare", "0,7"), "was not set to '7'"),
        (("x", "x"), "name two columns"),
    ],
)
def test_mistakes_are_told(model: str, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(EscudoError, match=said):
        run(model, *words)


def test_what_no_graph_says_is_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"z": [0, 1] * 50, "x": [0, 1] * 50, "y": ["no", "yes"] * 50, "w": [0] * 100})
    escudo.synthesize(escudo.PrivateTable(frame, SCHEMA), None, epsilon=1.0, delta=1e-6, seed=1).save(tmp_path / "m")
    with pytest.raises(EscudoError, match="without a causal graph"):
        run(str(tmp_path / "m"), "x", "y")


def test_a_linear_model_gives_its_slope_and_a_network_is_drawn_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=3_000)
    frame = pl.DataFrame({"a": a, "b": 2 * a + rng.normal(size=3_000)})
    schema = escudo.Schema.from_dict(
        {"a": {"type": "numeric", "lower": -5, "upper": 5}, "b": {"type": "numeric", "lower": -15, "upper": 15}}
    )
    table, graph = escudo.PrivateTable(frame, schema), CausalGraph.from_edges([("a", "b")])
    budget: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "seed": 1}
    escudo.synthesize(table, graph, generator="linear", **budget).save(tmp_path / "linear")
    told = json.loads(run(str(tmp_path / "linear"), "a", "b", "--json").stdout)
    assert told["range"][0] == told["range"][1] == pytest.approx(20, abs=2)
    with pytest.raises(EscudoError, match="leave out --confidence"):
        run(str(tmp_path / "linear"), "a", "b", "--confidence", "0.9")
    escudo.synthesize(table, graph, generator="autoregressive", steps=2, **budget).save(tmp_path / "network")
    with pytest.raises(EscudoError, match="is drawn from and not added up"):
        run(str(tmp_path / "network"), "a", "b")


def test_no_effect_is_said_to_be_the_graphs_claim(model: str) -> None:
    assert (
        "No arrow leads from x to w in the model's graph, and that alone makes it nothing"
        in run(model, "x", "w").stdout
    )
    assert "No arrow" not in run(model, "x", "y").stdout
