"""Effects read off a model: those of the true network where the model is true, and errors that say what is missing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from escudo.causal import CausalGraph, Network
from escudo.cli import app
from escudo.errors import InputError, NotIdentifiableError
from escudo.privacy import Guarantee, Plan, PureEvent
from escudo.synthesis import CausalModel, LinearModel, TableConditional, synthesize
from escudo.synthesis import _model_effects as effect_module
from escudo.synthesis._model_effects import ModelEffect
from escudo.table import PrivateTable, Schema

Law = Callable[..., NDArray[np.float64]]
BUDGET: dict[str, Any] = {"epsilon": 100.0, "delta": 1e-6, "seed": 1}


def test_the_effect_is_the_true_networks(clinic: Network, clinic_model: CausalModel, true_law: Law) -> None:
    for treatment, outcome in (("smoke", "dysp"), ("either", "xray"), ("xray", "lung"), ("tub", "smoke")):
        effect = clinic_model.effect(treatment, outcome)
        assert (effect.treatment, effect.outcome, effect.exact) == (treatment, outcome, True)
        assert effect.levels == tuple(clinic.levels[treatment])
        for level, row in zip(effect.levels, effect.law, strict=True):
            assert row == pytest.approx(true_law([outcome], do={treatment: level}))
    assert effect.shifts("yes", "no") == pytest.approx({"yes": 0.0, "no": 0.0})  # smoking is no effect of tub


def test_a_model_as_a_network_has_its_probabilities_and_its_interventions(
    clinic: Network, clinic_model: CausalModel, tmp_path: Path
) -> None:
    clinic_model.network().write(tmp_path / "model.bif")
    read = Network.read(tmp_path / "model.bif")
    assert read.graph.edges == clinic.graph.edges
    for name in clinic.nodes:
        assert read.table(name) == pytest.approx(clinic.table(name))
    clinic_model.save(tmp_path / "model")
    asked = ["graph", "convert", str(tmp_path / "model"), str(tmp_path / "again.bif")]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert Network.read(tmp_path / "again.bif") == read
    wrong = CliRunner().invoke(app, [*asked[:3], str(tmp_path / "again.dot")])
    assert "only BIF can hold" in str(wrong.exception)


def test_a_network_with_bins_and_missing_values_is_read_by_pgmpy(tmp_path: Path) -> None:
    readers = pytest.importorskip("pgmpy.readwrite")
    number = {"type": "numeric", "lower": -10, "upper": 10, "bins": 4, "missing": True}
    odd = {"type": "categorical", "levels": ["Bonn, Beuel", "Köln (Nord)", "Köln [Nord]"], "missing": True}
    schema = Schema.from_dict({"a": number, "b": odd})
    rows = pl.DataFrame(
        {"a": [-7.0, None, 3.0, 8.0] * 50, "b": ["Bonn, Beuel", None, "Köln (Nord)", "Köln [Nord]"] * 50}
    )
    model = synthesize(PrivateTable(rows, schema), CausalGraph.from_edges([("a", "b")]), **BUDGET)
    model.network().write(tmp_path / "model.bif")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pgmpy's own
        read = readers.BIFReader(str(tmp_path / "model.bif")).get_model()
        assert read.check_model()
        values = read.get_cpds("b").values
    assert model.network().levels["a"] == ("-10 to -5", "-5 to 0", "0 to 5", "5 to 10", "[missing]")
    assert model.network().levels["b"] == ("Bonn; Beuel", "Köln [Nord]", "Köln [Nord]_", "[missing]")
    assert np.allclose(values.T, model.network().table("b"))


def test_a_model_without_stated_causes_is_no_causal_network() -> None:
    schema = Schema.from_dict({"a": ["x", "y"], "b": ["x", "y"]})
    table = PrivateTable(pl.DataFrame({"a": ["x", "y"] * 50, "b": ["x", "y"] * 50}), schema)
    with pytest.raises(NotIdentifiableError, match="without a causal graph"):
        synthesize(table, None, **BUDGET).network()


def test_a_text_outcome_has_shares_and_no_mean(clinic_model: CausalModel) -> None:
    effect = clinic_model.effect("smoke", "lung")
    assert effect.means is None
    assert effect.shifts("yes", "no")["yes"] == pytest.approx(0.09)
    with pytest.raises(InputError, match=r"'lung' is no number.*shifts"):
        effect.difference("yes", "no")
    with pytest.raises(InputError, match="was not set to 'maybe'; it was set to"):
        effect.shifts("maybe", "no")


@pytest.fixture(scope="module")
def ward() -> CausalModel:
    """dose (0-10, 5 bins) -> pressure (whole numbers 100-159, 6 bins, may be missing), dose -> better (a flag)."""
    rng = np.random.default_rng(0)
    rows = 40_000
    dose = rng.random(rows) * 10
    pressure = np.clip(np.rint(150 - 3 * dose + rng.normal(0, 4, rows)), 100, 159)
    better = rng.random(rows) < dose / 10
    frame = pl.DataFrame(
        {
            "dose": dose,
            "pressure": pl.Series(np.where(rng.random(rows) < 0.1, np.nan, pressure), nan_to_null=True).cast(pl.Int64),
            "better": better,
        }
    )
    schema = Schema.from_dict(
        {
            "dose": {"type": "numeric", "lower": 0, "upper": 10, "bins": 5},
            "pressure": {"type": "numeric", "lower": 100, "upper": 159, "bins": 6, "integer": True, "missing": True},
            "better": {"type": "boolean"},
        }
    )
    graph = CausalGraph.from_edges([("dose", "pressure"), ("dose", "better")])
    model = synthesize(PrivateTable(frame, schema), graph, **BUDGET)
    assert isinstance(model, CausalModel)
    return model


def test_a_number_has_a_mean_for_each_bin_of_the_treatment(ward: CausalModel) -> None:
    effect = ward.effect("dose", "pressure")
    assert effect.means is not None
    assert len(effect.levels) == 5
    assert effect.means == pytest.approx([147, 141, 135, 129, 123], abs=1)
    assert effect.difference(effect.levels[4], effect.levels[0]) == pytest.approx(-24, abs=1)
    assert len(effect.outcome_levels) == 7  # with the missing value, which takes no part in the mean
    assert effect.law[0][6] == pytest.approx(0.1, abs=0.01)


def test_a_flag_counts_as_nought_and_one(ward: CausalModel) -> None:
    effect = ward.effect("dose", "better")
    assert effect.means == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=0.02)
    assert ward.effect("better", "dose").difference("True", "False") == pytest.approx(0.0, abs=1e-9)


def test_a_model_too_large_to_add_up_is_drawn_from(ward: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = ward.effect("dose", "better")

    def too_large(*_: Any, **__: Any) -> Any:
        raise InputError("too large")

    monkeypatch.setattr(CausalModel, "probability", too_large)
    monkeypatch.setattr(effect_module, "_DRAWN", 20_000)
    drawn = ward.effect("dose", "better")
    assert not drawn.exact
    assert "drawn from the model" in str(drawn)
    assert drawn.means == pytest.approx(exact.means, abs=0.01)
    assert drawn == ward.effect("dose", "better")


def test_it_reads_as_text_and_as_json(clinic_model: CausalModel) -> None:
    effect = clinic_model.effect("smoke", "lung")
    assert str(effect).splitlines() == [
        "lung under do(smoke = ...)",
        "  yes: yes 10.0%, no 90.0%",
        "  no: yes 1.0%, no 99.0%",
    ]
    told = effect.to_json()
    assert told["law"] == [pytest.approx([0.1, 0.9]), pytest.approx([0.01, 0.99])]
    assert (told["treatment"], told["outcome"], told["means"], told["exact"]) == ("smoke", "lung", None, True)


def test_an_effect_that_a_latent_hides_is_refused_by_name() -> None:
    fair = np.array([0.5, 0.5])
    graph = CausalGraph.from_edges([("u", "x"), ("u", "y"), ("x", "y")], latents=["u"])
    model = CausalModel(
        schema=Schema.from_dict({"x": ["no", "yes"], "y": ["no", "yes"]}),
        graph=graph,
        conditionals={"x": TableConditional((), fair), "y": TableConditional(("x",), np.stack([fair, fair]))},
        guarantee=Guarantee(epsilon=1.0),
        generator="marginals",
        plan=Plan("marginals", PureEvent(epsilon=1.0)),
    )
    with pytest.raises(NotIdentifiableError, match="'u'"):
        model.effect("x", "y")
    assert model.effect("y", "x").law == (pytest.approx((0.5, 0.5)), pytest.approx((0.5, 0.5)))


@pytest.mark.parametrize(
    ("treatment", "outcome", "expected"),
    [("smok", "lung", "Did you mean 'smoke'"), ("smoke", "lungs", "Did you mean 'lung'"), ("lung", "lung", "both")],
)
def test_a_wrong_column_is_named(clinic_model: CausalModel, treatment: str, outcome: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        clinic_model.effect(treatment, outcome)


def test_a_linear_model_has_a_slope_and_means_at_the_bounds() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(5, 1.5, 20_000).clip(0, 10)
    y = (20 + 2 * x + rng.normal(0, 1, 20_000)).clip(0, 50)
    schema = Schema.from_dict(
        {
            "x": {"type": "numeric", "lower": 0, "upper": 10, "bins": 10},
            "y": {"type": "numeric", "lower": 0, "upper": 50, "bins": 10},
        }
    )
    table = PrivateTable(pl.DataFrame({"x": x, "y": y}), schema)
    model = synthesize(table, CausalGraph.from_edges([("x", "y")]), generator="linear", **BUDGET)
    assert isinstance(model, LinearModel)
    effect = model.effect("x", "y")
    assert isinstance(effect, ModelEffect)
    assert effect.slope == pytest.approx(2.0, abs=0.05)
    assert effect.means == pytest.approx([20, 40], abs=0.5)
    assert effect.difference(10, 0) == pytest.approx(10 * effect.slope)
    assert "per unit: +2" in str(effect)
    with pytest.raises(InputError, match="no levels in a linear model"):
        effect.shifts("10", "0")
