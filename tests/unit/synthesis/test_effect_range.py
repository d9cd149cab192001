"""Ranges of effects with intervals: what they need, and where they are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.causal import CausalGraph
from escudo.errors import InputError, NotIdentifiableError
from escudo.privacy import Plan
from escudo.synthesis import _model_effects, load

OPEN = CausalGraph.from_edges([("x", "y"), ("z", "y")], undirected=[("z", "x")])
SCHEMA = escudo.Schema.from_dict({name: [0, 1] for name in "zxy"})
NUMBER = {"type": "numeric", "lower": 0, "upper": 9}
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "seed": 1}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_model_effects, "REFITS", 5)


def table(schema: escudo.Schema = SCHEMA, **more: object) -> escudo.PrivateTable:
    rng = np.random.default_rng(0)
    z, x, y = rng.integers(0, 2, size=(3, 2_000))
    frame = pl.DataFrame({"z": z, "x": x | z, "y": y & x, **more})
    return escudo.PrivateTable(frame, schema)


def test_intervals_hold_the_range_and_are_the_same_again(tmp_path) -> None:
    model = escudo.synthesize(table(), OPEN, **BUDGET)
    plain, ranges = model.effect_range("x", "y"), model.effect_range("x", "y", confidence=0.9)
    assert plain.effects == ranges.effects
    low, high = ranges.interval(1, 0)
    least, most = ranges.difference(1, 0)
    assert low < least <= most < high
    assert len(ranges.intervals(1, 0)) == 2
    assert ranges.interval(1, 0, "1") == pytest.approx((low, high))
    assert ranges.interval(1, 0, "0") == pytest.approx((-high, -low))
    wide = model.effect_range("x", "y", confidence=0.99).interval(1, 0)
    assert wide[0] < low
    assert wide[1] > high
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").effect_range("x", "y", confidence=0.9) == ranges


def test_where_nothing_is_open_the_one_effect_has_an_interval() -> None:
    settled = CausalGraph.from_edges([("z", "x"), ("x", "y"), ("z", "y")])
    ranges = escudo.synthesize(table(), settled, **BUDGET).effect_range("x", "y", confidence=0.9)
    ((low, high),) = ranges.intervals(1, 0)
    assert low < ranges.effects[0].difference(1, 0) < high


def test_a_release_that_chose_bins_and_paid_for_figures_has_intervals_of_its_own_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are beside what is measured, whose budget is found again; drafts and the tutorial make such releases."""
    schema = escudo.Schema.from_dict({"z": [0, 1], "x": [0, 1], "y": [0, 1], "n": NUMBER})
    data = table(schema, n=np.random.default_rng(0).uniform(0, 9, 2_000))
    escudo.release(data, tmp_path / "release", OPEN, evaluate=0.1, **BUDGET)
    model, plans, branches_of = load(tmp_path / "release" / "model"), [], _model_effects._branches

    def seen(plan: Plan) -> Sequence[Plan]:
        plans.append(plan)
        return branches_of(plan)

    monkeypatch.setattr(_model_effects, "_branches", seen)
    low, high = model.effect_range("x", "y", confidence=0.9).interval(1, 0)
    assert low < high < 1
    made, again = ({leaf.name: leaf.once for leaf in plan.leaves()} for plan in (plans[0], plans[-1]))
    assert set(made) - set(again) == {"n, roughly", "n, finely", "private evaluation"}
    assert again["x"].scale == pytest.approx(made["x"].scale, rel=0.02)


def test_what_cannot_be_repeated_is_refused_in_words() -> None:
    model = escudo.synthesize(table(), OPEN, **BUDGET)
    with pytest.raises(InputError, match="No intervals were asked for"):
        model.effect_range("x", "y").interval(1, 0)
    with pytest.raises(InputError, match="is no level of the outcome"):
        model.effect_range("x", "y", confidence=0.9).interval(1, 0, "2")
    for confidence in (0.0, 1.0, 2.0, float("nan")):
        with pytest.raises(InputError, match="confidence"):
            model.effect_range("x", "y", confidence=confidence)
    with pytest.raises(NotIdentifiableError):
        escudo.synthesize(table(), None, **BUDGET).effect_range("x", "y", confidence=0.9)
    people = escudo.Schema.from_dict({name: [0, 1] for name in "zxy"}, person_id="id", max_rows_per_person=1)
    persons = escudo.synthesize(table(people, id=range(2_000)), OPEN, **BUDGET)
    with pytest.raises(InputError, match="persons with several rows"):
        persons.effect_range("x", "y", confidence=0.9)
    found = escudo.synthesize(table(), OPEN, generator="moments", **BUDGET)
    assert found.effect_range("x", "y", confidence=0.9).interval(1, 0)[0] < 1
