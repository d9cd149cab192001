"""The generator for wide tables: what it recovers, how it repairs a graph, and what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.privacy import MemoryAccount
from escudo.synthesis import Model, prepare, synthesize
from escudo.table import PrivateTable, Schema

YES_NO = ["no", "yes"]
ROWS = 40_000
CAUSES = [f"cause{i}" for i in range(6)]
STRENGTHS = np.array([0.7, 0.5, 0.4, 0.3, 0.2, 0.1])
GRAPH = CausalGraph.from_edges([(name, "effect") for name in CAUSES])
SCHEMA = Schema.from_dict({name: YES_NO for name in (*CAUSES, "effect")})


def firing_table(seed: int = 0) -> PrivateTable:
    """Six independent causes, each of which sets off the effect with the largest strength among those present."""
    rng = np.random.default_rng(seed)
    on = rng.random((ROWS, 6)) < 0.3
    effect = rng.random(ROWS) < np.max(np.where(on, STRENGTHS, 0.0), axis=1)
    columns = {name: on[:, i] for i, name in enumerate(CAUSES)} | {"effect": effect}
    frame = pl.DataFrame({name: np.where(values, "yes", "no") for name, values in columns.items()})
    return PrivateTable(frame, SCHEMA, MemoryAccount())


def share(model: Model, **do: str) -> float:
    return float((model.sample(20_000, do=do, seed=1)["effect"] == "yes").mean())


def true_share(first: bool) -> float:
    """P(effect | do(cause0)): the mean of the largest strength over all combinations of the other causes."""
    total = 0.0
    for others in itertools.product([0, 1], repeat=5):
        weight = np.prod([0.3 if on else 0.7 for on in others])
        total += weight * max(STRENGTHS[0] * first, *(STRENGTHS[1:] * others))
    return float(total)


@pytest.mark.parametrize("form", ["max", "noisy-or", "logit"])
def test_interventions_on_one_cause_follow_the_truth(form: str) -> None:
    model = synthesize(firing_table(), GRAPH, epsilon=3.0, delta=1e-6, generator="moments", seed=0, form=form)
    assert abs(share(model, cause0="yes") - true_share(True)) < 0.03
    assert abs(share(model, cause0="no") - true_share(False)) < 0.03


def test_the_right_form_also_gets_rare_combinations_right() -> None:
    model = synthesize(firing_table(), GRAPH, epsilon=3.0, delta=1e-6, generator="moments", seed=0, form="max")
    assert abs(share(model, **(dict.fromkeys(CAUSES, "no") | {"cause0": "yes"})) - 0.7) < 0.05
    assert share(model, **dict.fromkeys(CAUSES, "no")) < 0.05


def test_repair_finds_the_arrow_that_the_graph_misses() -> None:
    arrows = [(name, "effect") for name in CAUSES[1:]]
    partial = CausalGraph.from_edges(arrows, nodes=["cause0"], tiers=[CAUSES, ["effect"]])
    settings = {"epsilon": 3.0, "delta": 1e-6, "generator": "moments", "form": "max", "seed": 0}
    plain = synthesize(firing_table(), partial, **settings)
    repaired = synthesize(firing_table(), partial, repair=True, **settings)
    assert ("cause0", "effect") not in plain.graph.edges
    assert ("cause0", "effect") in repaired.graph.edges
    assert share(repaired, cause0="yes") - share(repaired, cause0="no") > 0.3


def test_levels_ordinals_and_missing_values_are_modelled() -> None:
    rng = np.random.default_rng(3)
    grade = rng.integers(0, 3, ROWS)
    answer = np.where(rng.random(ROWS) < 0.2 + 0.3 * grade, "agree", "differ").astype(object)
    answer[rng.random(ROWS) < 0.1] = None
    schema = Schema.from_dict(
        {
            "grade": {"type": "ordinal", "levels": ["low", "middle", "high"]},
            "answer": {"type": "categorical", "levels": ["agree", "differ"], "missing": True},
        }
    )
    frame = pl.DataFrame({"grade": np.array(["low", "middle", "high"])[grade], "answer": answer.tolist()})
    graph = CausalGraph.from_edges([("grade", "answer")])
    model = synthesize(PrivateTable(frame, schema), graph, epsilon=3.0, delta=1e-6, generator="moments", seed=0)
    drawn = model.sample(20_000, do={"grade": "high"}, seed=1)["answer"]
    assert abs(drawn.null_count() / 20_000 - 0.1) < 0.02
    assert abs((drawn == "agree").sum() / 20_000 - 0.9 * 0.8) < 0.03


def test_the_one_way_baseline_measures_no_arrow() -> None:
    leaves = prepare(SCHEMA, GRAPH, epsilon=1.0, delta=1e-6, generator="one-way").plan.leaves()
    assert not any("arrow" in leaf.buys and "0 arrows" not in leaf.buys for leaf in leaves)


def test_the_independent_baseline_follows_no_arrow() -> None:
    model = synthesize(firing_table(), GRAPH, epsilon=1.0, delta=1e-6, generator="independent", seed=0)
    assert model.graph.edges == ()
    assert abs(share(model, cause0="yes") - share(model, cause0="no")) < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "or"}, "form"),
        ({"form": {"efect": "max"}}, "effect"),
        ({"clip": 0.5}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"most_added": -1}, "most_added"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_spent(options: dict[str, object], message: str) -> None:
    table = firing_table()
    with pytest.raises(InputError, match=message):
        synthesize(table, GRAPH, epsilon=1.0, delta=1e-6, generator="moments", **options)
    assert table.account.receipts == ()


def test_a_family_too_large_for_its_table_is_fitted_by_moments_and_the_plan_says_so() -> None:
    names = [f"c{i}" for i in range(16)]
    schema = Schema.from_dict({name: YES_NO for name in (*names, "effect")})
    graph = CausalGraph.from_edges([(name, "effect") for name in names])
    plan = str(prepare(schema, graph, epsilon=0.5, delta=1e-6, public_rows=2000).plan)
    assert "effect" in plan
    assert "sums" in plan or "moments" in plan
