"""The paper's own networks: as printed, under a budget or without any promise, which then nothing hides."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from escudo import release
from escudo.causal import CausalGraph
from escudo.errors import BudgetExceededError, InputError, NotIdentifiableError, RefusedError
from escudo.privacy import Guarantee, Ledger, MemoryAccount
from escudo.synthesis import load, prepare, synthesize
from escudo.synthesis.neural._network import Unit, printed
from escudo.table import PrivateTable, Schema

NAMES = ("a", "b", "c", "d")
SCHEMA = Schema.from_dict({name: ["0", "1"] for name in NAMES})
GRAPH = CausalGraph.from_edges([("a", "b"), ("b", "c"), ("b", "d")])
SMALL: dict[str, Any] = {"generator": "vae", "latent": 2, "encoder": (8,), "decoder": (8,), "epochs": 20}
OPEN: dict[str, Any] = {"epsilon": None, "no_privacy": True, "seed": 1, **SMALL}
SIZES = {"latent": 2, "encoder": (8,), "decoder": (8,)}


def table(**more: Any) -> PrivateTable:
    import polars as pl

    rng = np.random.default_rng(5)
    a = rng.random(400) < 0.5
    b = np.where(rng.random(400) < 0.9, a, ~a)
    columns = {"a": a, "b": b, "c": np.where(rng.random(400) < 0.8, b, ~b), "d": rng.random(400) < 0.2}
    return PrivateTable(pl.DataFrame({k: np.where(v, "1", "0") for k, v in columns.items()}), SCHEMA, **more)


def shapes(architecture: str) -> dict[tuple[str, str], tuple[int, ...]]:
    return {(layer, name): shape for layer, name, shape in printed(SCHEMA, GRAPH, architecture, SIZES)[0].shapes}


def test_the_networks_are_those_that_are_printed():
    pain, eedi = (printed(SCHEMA, GRAPH, name, SIZES)[0] for name in ("pain", "eedi"))
    assert pain.units == eedi.units == (Unit((0, 1), ()), Unit((2, 3), (0, 1)))  # x1: what has children
    assert pain.hidden == (128, 64)
    assert not pain.has_direct
    assert (shapes("pain")["encode 0", "w"], shapes("pain")["decode out", "w"]) == ((4, 8), (8, 4))
    assert (shapes("eedi")["encode 0", "w"], shapes("eedi")["decode out", "w"]) == ((2, 8), (8, 2))
    assert printed(SCHEMA, None, "plain", SIZES)[0].units == (Unit((0, 1, 2, 3), ()),)
    assert printed(SCHEMA, GRAPH, "columns", SIZES)[0].hidden == (16, 16)


def test_z_of_eedi_leaves_the_first_columns_alone():
    network = printed(SCHEMA, GRAPH, "eedi", SIZES)[0]
    made = network.start(np.random.default_rng(0))
    made["decode out"]["w"] += 1.0
    added = network.from_latent(made, np.random.default_rng(1).normal(size=(50, 2)))
    assert not added[:, :2].any()
    assert (added[:, 2:] != 0).any(axis=0).all()


def test_under_a_budget_it_is_paid_for_like_any_other():
    account = MemoryAccount(epsilon=3.0, delta=1e-5)
    asked = {**SMALL, "architecture": "columns", "epsilon": 3.0, "delta": 1e-5}
    model = synthesize(table(ledger=account), GRAPH, seed=1, **asked)
    assert len(account.receipts) == 1
    assert model.guarantee.epsilon <= 3.0
    assert not model.guarantee.none
    assert model.details["architecture"] == "columns"
    assert model.details["start"] == "random"
    prepared = prepare(SCHEMA, GRAPH, public_rows=400, **asked)
    assert prepared.training.sampling_probability == 0.25
    assert prepared.training.steps == 80
    with pytest.raises(BudgetExceededError):
        synthesize(table(ledger=account), GRAPH, seed=1, **asked)


@pytest.mark.parametrize("option", ["start", "pretraining", "direct", "start_share", "checkpoint"])
def test_what_does_not_go_with_a_random_start_is_refused(option):
    value = {"start": "levels", "pretraining": 3, "direct": False, "start_share": 0.5, "checkpoint": "x"}[option]
    with pytest.raises(InputError, match=option):
        prepare(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, architecture="pain", **{**SMALL, option: value})


def test_its_rows_must_be_public_under_a_budget():
    with pytest.raises(InputError, match="how many rows"):
        prepare(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, relation="add_remove", architecture="pain", **SMALL)


def test_a_condensed_graph_says_nothing_of_single_columns():
    model = synthesize(table(), GRAPH, architecture="pain", **OPEN)
    with pytest.raises(NotIdentifiableError, match="several columns"):
        model.sample(5, do={"a": "1"})
    assert model.sample(5, given={"a": "1"}, seed=0)["a"].to_list() == ["1"] * 5


# ---- without privacy


def test_an_epsilon_that_is_missing_never_means_no_privacy():
    with pytest.raises(InputError, match="no_privacy=True"):
        synthesize(table(), GRAPH, epsilon=None, generator="vae", architecture="columns")
    with pytest.raises(InputError, match="epsilon must be None"):
        synthesize(table(), GRAPH, epsilon=1.0, no_privacy=True, generator="vae", architecture="columns")
    with pytest.raises(InputError, match="no delta"):
        synthesize(table(), GRAPH, delta=1e-6, architecture="columns", **OPEN)


@pytest.mark.parametrize("options", [{"generator": "marginals"}, {"generator": "vae"}, {"generator": "autoregressive"}])
def test_no_other_generator_is_fitted_without_privacy(options):
    asked = table()
    with pytest.raises(InputError, match="architecture"):
        synthesize(asked, GRAPH, epsilon=None, no_privacy=True, **options)
    asked.account.total()  # nothing was given up


def test_where_a_promise_was_made_it_is_kept(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.open("people", epsilon=1.0, delta=1e-6)
    kept = {
        "ledger": table(ledger=ledger, dataset="people"),
        "cap": table(ledger=MemoryAccount(epsilon=1.0)),
        "charged": table(),
    }
    synthesize(kept["charged"], GRAPH, epsilon=1.0, delta=1e-6)
    for why, asked in kept.items():
        with pytest.raises(RefusedError, match=why):
            synthesize(asked, GRAPH, architecture="columns", **OPEN)


def test_no_private_question_is_counted_after_it():
    asked = table()
    synthesize(asked, GRAPH, architecture="columns", **OPEN)
    with pytest.raises(RefusedError, match="without privacy"):
        synthesize(asked, GRAPH, epsilon=1.0, delta=1e-6)
    with pytest.raises(RefusedError, match="without privacy"):
        asked.account.total()
    assert "given up" in repr(asked.account)


def test_it_learns_the_rows_without_noise_and_says_so_everywhere(tmp_path):
    model = synthesize(table(), GRAPH, architecture="columns", **{**OPEN, "epochs": 200})
    made = model.codes(4000, seed=0)
    real = np.concatenate(list(table().batches(1000)))
    assert np.abs(made.mean(axis=0) - real.mean(axis=0)).max() < 0.05
    assert np.corrcoef(made.T)[0, 1] == pytest.approx(np.corrcoef(real.T)[0, 1], abs=0.1)
    promise = model.guarantee
    assert promise.none
    assert not promise.for_release
    assert promise.epsilon is None
    assert promise.epsilon_at(1e-6) == np.inf
    assert promise.delta_at(100.0) == 1.0
    assert "WITHOUT PRIVACY" in repr(model)
    assert "Nothing is promised" in str(model)
    assert "Nothing is promised" in model._repr_html_()
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.guarantee == promise
    stored = json.loads((tmp_path / "model" / "model.json").read_text())["guarantee"]
    assert stored["none"] is True
    assert not {"epsilon", "delta"} & set(stored)
    with pytest.raises(RefusedError, match="no account"):
        _ = promise.event
    with pytest.raises(RefusedError, match="no account"):
        MemoryAccount().spend(promise)


def test_a_file_cannot_make_a_promise_of_none():
    told = Guarantee(none=True, for_release=False).to_json()
    for change in ({"for_release": True}, {"epsilon": 1.0}, {"none": 1}, {"none": False}):
        with pytest.raises(InputError):
            Guarantee.from_json({**told, **change})


def test_the_folder_says_it_on_every_page_and_in_its_record(tmp_path):
    files = release(table(), tmp_path / "out", GRAPH, architecture="eedi", **OPEN)
    record = json.loads(files.record.read_text())
    assert record["version"] == 4
    assert record["guarantee"]["none"] is True
    assert "Nothing is promised" in record["warnings"][0]
    page = files.report.read_text()
    assert "Not for release: made without privacy" in page
    assert "Nobody is protected by this one." in page
    for claim in ("seeded", "e<sup>ε</sup>", "Differentially private", "budget was fixed", "∞", "large δ"):
        assert claim not in page, claim
    with pytest.raises(InputError, match="evaluation is paid"):
        release(table(), tmp_path / "other", GRAPH, architecture="eedi", evaluate=0.1, **OPEN)
    assert not (tmp_path / "other").exists()
