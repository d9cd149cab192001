"""Generators ``independent`` and ``one-way``: single columns are right, and nothing is known that was not said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import GraphError, InputError, NotIdentifiableError
from escudo.privacy import MemoryAccount, plan
from escudo.synthesis import CausalModel, MaxConditional, NoisyOrConditional, load, synthesize
from escudo.table import PrivateTable, Schema

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "seed": 1}
SCHEMA = Schema.from_dict({"a": [0, 1], "b": [0, 1], "both": [0, 1], "kind": ["x", "y", "z"]})
GRAPH = CausalGraph.from_edges([("a", "both"), ("b", "both"), ("both", "kind")])
SHARES = {"a": 0.3, "b": 0.2, "both": 0.4 * (1 - 0.7 * 0.8) + 0.02}


def frame(rows: int = 20_000) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    a, b = rng.random(rows) < 0.3, rng.random(rows) < 0.2
    both = rng.random(rows) < np.where(a | b, 0.45, 0.02)
    kind = np.where(both, rng.choice(["x", "y"], rows), "z")
    return pl.DataFrame({"a": a.astype(int), "b": b.astype(int), "both": both.astype(int), "kind": kind})


def fitted(generator: str, **options: Any) -> CausalModel:
    model = synthesize(PrivateTable(frame(), SCHEMA), GRAPH, generator=generator, **{**BUDGET, **options})
    assert isinstance(model, CausalModel)
    return model


@pytest.mark.parametrize(
    ("generator", "options"), [("independent", {}), ("one-way", {}), ("one-way", {"form": "max"})], ids=str
)
def test_single_columns_are_right(generator: str, options: dict[str, Any]) -> None:
    drawn, true = fitted(generator, **options).sample(20_000, seed=0), frame()
    for name in ("a", "b", "both"):
        assert drawn[name].mean() == pytest.approx(true[name].mean(), abs=0.02)
    for level in "xyz":
        assert (drawn["kind"] == level).mean() == pytest.approx((true["kind"] == level).mean(), abs=0.02)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("generator", ["independent", "one-way"])
def test_nothing_is_paid_for_arrows_and_the_plan_is_kept(generator: str, relation: str) -> None:
    account = MemoryAccount(relation=relation)
    table = PrivateTable(frame(2000), SCHEMA, account)
    model = synthesize(table, GRAPH, generator=generator, **BUDGET)
    assert "5 sums: 4 columns, 0 arrows" in str(model.plan)
    assert model.generator == generator == model.plan.name
    assert model.guarantee.epsilon is not None
    assert 0.999 < model.guarantee.epsilon <= 1.0
    assert account.failed == {}


def test_independent_knows_of_no_dependence() -> None:
    model = fitted("independent")
    assert model.graph.edges == ()
    drawn = model.sample(20_000, seed=0)
    assert abs(np.corrcoef(drawn["a"], drawn["both"])[0, 1]) < 0.03
    assert drawn.equals(drawn)


def test_one_way_knows_the_graph_and_the_form_and_no_arrow_apart_from_another() -> None:
    model = fitted("one-way", form="max")
    assert set(model.graph.edges) == set(GRAPH.edges)
    law = model.conditionals["both"]
    assert isinstance(law, MaxConditional)
    assert law.strengths[0][1] == law.strengths[1][1] == pytest.approx(0.45, abs=0.06)
    assert 0 < law.leak < 0.05
    drawn = model.sample(20_000, seed=0)
    assert np.corrcoef(drawn["a"], drawn["both"])[0, 1] > 0.3


def test_one_way_takes_a_form_by_column() -> None:
    model = fitted("one-way", form={"both": "noisy-or"})
    law = model.conditionals["both"]
    assert isinstance(law, NoisyOrConditional)
    assert law.strengths[0][1] == law.strengths[1][1]


def test_one_way_under_a_logit_does_not_guess_which_way_an_arrow_acts() -> None:
    drawn = fitted("one-way").sample(20_000, seed=0)
    assert abs(np.corrcoef(drawn["a"], drawn["both"])[0, 1]) < 0.1


@pytest.mark.parametrize("generator", ["independent", "one-way"])
def test_a_public_clip_bound_costs_nothing(generator: str) -> None:
    made = str(plan(synthesize, SCHEMA, GRAPH, generator=generator, clip=2.0, **BUDGET))
    assert "clip bound" not in made
    assert "length 2" in made


@pytest.mark.parametrize("generator", ["independent", "one-way"])
def test_a_graph_over_other_columns_is_refused(generator: str) -> None:
    with pytest.raises(GraphError, match="no column"):
        synthesize(PrivateTable(frame(10), SCHEMA), CausalGraph.from_edges([("a", "e")]), generator=generator, **BUDGET)


def test_independent_takes_no_form() -> None:
    with pytest.raises(InputError, match="no option 'form'; it has clip"):
        fitted("independent", form="max")


@pytest.mark.parametrize("form", ["logit", "max"])
def test_one_way_measured_no_arrow_so_it_does_not_say_what_setting_a_column_does(form: str, tmp_path: Path) -> None:
    fitted("one-way", form=form).save(tmp_path / "model")
    for model in (fitted("one-way", form=form), load(tmp_path / "model")):
        with pytest.raises(NotIdentifiableError, match="does not follow it"):
            model.effect("a", "both")
        with pytest.raises(NotIdentifiableError, match="does not follow it"):
            model.sample(10, do={"a": 1})
        assert model.sample(10, given={"a": 1}, seed=0)["a"].to_list() == [1] * 10
