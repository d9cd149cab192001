"""Every result draws itself, in words, and shows no more than it says."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.attacks import attack
from escudo.auditing import Audit, History
from escudo.causal import AncestralGraph, CausalGraph
from escudo.discovery import AncestralDiscovery, Discovery, effect_of
from escudo.errors import InputError
from escudo.orientation import direction
from escudo.privacy import Guarantee
from escudo.synthesis import EffectRange, ModelEffect
from escudo.utility import evaluate

SCHEMA = escudo.Schema.from_dict(
    {
        "dose": ["low", "high"],
        "ward": ["$a$", "b", "c"],
        "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 5},
    }
)
GRAPH = CausalGraph.from_edges([("dose", "ward"), ("dose", "age"), ("ward", "age")])


def rows(seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    dose = rng.integers(0, 2, 400)
    ward = np.where(rng.random(400) < 0.6, dose, rng.integers(0, 3, 400))
    return pl.DataFrame(
        {
            "dose": np.array(["low", "high"])[dose],
            "ward": np.array(["$a$", "b", "c"])[ward],
            "age": np.clip(30 * dose + 15 * ward + rng.normal(20, 8, 400), 0, 100),
        }
    )


def table() -> escudo.PrivateTable:
    return escudo.PrivateTable(rows(1), SCHEMA)


@cache
def model() -> Any:
    return escudo.synthesize(table(), GRAPH, epsilon=2.0, delta=1e-6, seed=1)


@cache
def discovery() -> Discovery:
    graph = CausalGraph.from_edges([("dose", "age"), ("ward", "age")], undirected=[("dose", "ward")])
    return Discovery(
        graph=graph,
        generating_graph=GRAPH,
        edge_confidence={("age", "dose"): 0.9, ("age", "ward"): 0.8, ("dose", "ward"): 0.6},
        direction_confidence={("dose", "age"): 0.7},
        method="exact",
        plan=model().plan,
        guarantee=model().guarantee,
        rows=400,
    )


@cache
def ancestral() -> AncestralDiscovery:
    return AncestralDiscovery(
        graph=AncestralGraph(nodes=("a", "b", "c"), edges=(("a", "o->", "b"), ("b", "<->", "c"), ("a", "o-o", "c"))),
        edge_confidence={("a", "b"): 0.9, ("b", "c"): 0.75, ("a", "c"): 0.66},
        method="exact",
        plan=model().plan,
        guarantee=model().guarantee,
        rows=400,
    )


@cache
def effect() -> Any:
    return effect_of(table(), "dose", "age", graph=GRAPH, epsilon=2.0, seed=1)


@cache
def verdict() -> Any:
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 1, 4000)
    schema = escudo.Schema.from_dict({name: {"type": "numeric", "lower": -1, "upper": 3} for name in ("x", "y")})
    made = escudo.PrivateTable(pl.DataFrame({"x": x, "y": x**3 + x + rng.uniform(-0.2, 0.2, 4000)}), schema)
    return direction(made, "x", "y", epsilon=2.0, method="gap", score="spearman", seed=1)


@cache
def evaluation() -> Any:
    return evaluate(rows(1), rows(2), rows(3), SCHEMA, targets=["dose", "ward"], learners=["logistic"])


@cache
def attacked() -> Any:
    def draw(real: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        return real.sample(40, with_replacement=True, seed=int(rng.integers(2**31)))

    attacks = (("naive", "logistic"), ("histogram", "logistic"))
    return attack(
        draw, rows(1)[:40], SCHEMA, claim=Guarantee(epsilon=1.0), choose=[3], attacks=attacks, shadows=8, trials=12
    )


def audit(claim: Guarantee | None = None) -> Audit:
    bounds = np.array([0.0, 0.3, 1.31])
    history = History(runs=np.array([50, 100, 1000]), log_wealth=np.array([0.0, 1.0, 3.1]), epsilon_lower=bounds)
    promised = claim or Guarantee(epsilon=1.0)
    return Audit(epsilon_lower=1.31, violated=True, runs=1000, claim=promised, confidence=0.95, history=history)


@cache
def ranged() -> EffectRange:
    one = ModelEffect(
        treatment="dose",
        outcome="ward",
        levels=("low", "high"),
        outcome_levels=("$a$", "b"),
        law=((0.9, 0.1), (0.75, 0.25)),
        means=None,
    )
    return EffectRange(effects=(one, one), causes=((), ("age",)))


KINDS: dict[str, Callable[[], Callable[..., Any]]] = {
    "discovery": lambda: discovery().plot,
    "ancestral discovery": lambda: ancestral().plot,
    "contrasts": lambda: effect().plot,
    "arms": lambda: lambda **more: effect().plot("arms", **more),
    "direction": lambda: verdict().plot,
    "evaluation": lambda: evaluation().plot,
    "attack": lambda: attacked().plot,
    "audit": lambda: audit().plot,
    "effect range": lambda: lambda **more: ranged().plot("high", "low", "b", **more),
}


def words(axes: Any) -> str:
    """Return all that is written on a figure, once it has been drawn."""
    file = io.BytesIO()
    axes.figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    from matplotlib.text import Text

    return " | ".join(text.get_text() for text in axes.figure.findobj(Text) if text.get_text())


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_draws_itself_in_words(kind):
    draw = KINDS[kind]()
    axes = draw()
    assert axes.get_title()
    assert words(axes)
    if "discovery" not in kind:
        assert len(axes.get_xlabel()) > 5 or axes.get_xlabel() == "ε"
        assert axes.get_ylabel()
    assert draw(axes=axes) is axes


@pytest.mark.parametrize("kind", KINDS)
def test_without_matplotlib_the_extra_is_named(kind, monkeypatch):
    draw = KINDS[kind]()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"escudo\[plot\]"):
        draw()


def test_figures_say_what_results_say():
    assert {"60%", "80%", "90%, direction 70%"} <= set(words(discovery().plot()).split(" | "))
    assert {"90%", "75%", "66%", "a", "b", "c"} <= set(words(ancestral().plot()).split(" | "))
    found = effect()
    drawn = found.plot()
    assert [tick.get_text() for tick in drawn.get_yticklabels()] == ["low to high"]
    assert drawn.lines[0].get_xdata()[0] == found.value
    assert [end[0] for end in drawn.collections[0].get_segments()[0]] == pytest.approx(list(found.interval))
    arms = found.plot("arms")
    assert [line.get_xdata()[0] for line in arms.lines] == [arm.mean for arm in found.arms]
    told = verdict()
    middle, half = told.margin, told.noise_scale * np.log(20)
    ends = told.plot().collections[0].get_segments()[0]
    assert [end[0] for end in ends] == pytest.approx([middle - half, middle + half])
    bound, claim = audit().plot().lines
    assert list(bound.get_ydata()) == [0.0, 0.3, 1.31]
    assert set(claim.get_ydata()) == {1.0}
    assert len(audit(Guarantee(rho=0.1)).plot().lines) == 1  # a bound on ε says nothing beside a ρ
    assert [line.get_xdata()[0] for line in ranged().plot("high", "low", "b").lines[:2]] == pytest.approx([0.15, 0.15])


def test_figures_for_the_custodian_say_so():
    assert "Custodian only" in words(evaluation().plot())
    drawn = attacked().plot()
    assert "Custodian only" in words(drawn)
    assert drawn.lines[-1].get_xdata()[0] == pytest.approx(100 * attacked().ceiling.accuracy)


def test_a_model_shows_each_column_also_where_one_is_set():
    axes = model().plot(rows=2000, seed=1)
    assert [each.get_title() for each in axes] == ["dose", "ward", "age"]
    for each in axes:
        assert sum(bar.get_height() for bar in each.patches) == pytest.approx(100)
        assert each.get_ylabel() == "share of the rows, %"
    assert r"\$a\$" in words(axes[0])  # as it is called, and no formula
    (dose,) = model().plot(["dose"], do={"dose": "high"}, rows=500, seed=1)
    assert [bar.get_height() for bar in dose.patches][2:] == [0.0, 100.0]
    assert "do(dose)" in words(dose)


def test_missing_values_are_shown_as_such():
    from escudo._plot import shares

    drawn = shares(None, "ward", {"as it is": ["a", None, "a", "b"]}, ["a", "b"])
    assert [bar.get_height() for bar in drawn.patches] == [50.0, 25.0, 25.0]
    assert "missing" in words(drawn)
    drawn = shares(None, "age", {"as it is": [1.0, None, 3.0, 4.0], "do(x)": [2.0, 2.0, 2.0, 2.0]}, None)
    assert "as it is (25.0% missing)" in words(drawn)
    assert sum(bar.get_height() for bar in drawn.patches) == pytest.approx(175)


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(InputError, match="Nothing was released"):
        direction(table(), "age", "dose", epsilon=1.0, method="gap", score="spearman", seed=1).plot()
    with pytest.raises(InputError, match="of"):
        effect().plot("legs")
    with pytest.raises(InputError, match="no level"):
        ranged().plot("high", "low", "z")
    with pytest.raises(InputError, match="no number"):
        ranged().plot("high", "low")


def test_tables_come_as_pandas_frames():
    edges = discovery().to_pandas()
    assert list(edges.columns) == ["from", "to", "directed", "confidence", "direction_confidence"]
    assert list(edges["confidence"]) == [0.9, 0.8, 0.6]
    assert ancestral().to_pandas()["kind"].tolist() == [kind for _, kind, _ in ancestral().graph.edges]
    lost = evaluation().to_pandas()
    assert lost["learner"].tolist() == ["logistic", "all"]
    assert lost["change"].tolist() == [one.change for one in evaluation().changes]
    assert len(ranged().to_pandas()) == 2 * 2 * 2
    found, told = effect(), effect().to_pandas()
    assert list(zip(told["control"], told["treated"], strict=True)) == [(c.control, c.treated) for c in found.contrasts]
    assert list(zip(told["low"], told["value"], told["high"], strict=True)) == [
        (c.interval[0], c.value, c.interval[1]) for c in found.contrasts
    ]
    doubts = [c.e_value for c in found.contrasts]
    assert told["e_value"].tolist() == [doubt.estimate for doubt in doubts]
    assert told["e_value_of_interval"].tolist() == [doubt.limit for doubt in doubts]
    trial = effect_of(table(), "dose", "age", trial=True, epsilon=2.0, seed=1).to_pandas()
    assert trial["e_value"].isna().all()
    scores = attacked().to_pandas()
    assert scores["auc"].tolist() == [score.auc for score in attacked().ranked]
