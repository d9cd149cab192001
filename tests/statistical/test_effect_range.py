"""Intervals of ``model.effect_range`` hold the effect of each reading of the graph about as often as they say."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.causal import CausalGraph
from escudo.synthesis import _model_effects

TABLES, CONFIDENCE = 60, 0.9
LEAST = 45  # of 60: below it with probability 3e-4 if intervals hold 90 %, and 0.97 if they are half as wide
MOST = 0.999  # of the width of no information
GRAPH = CausalGraph.from_edges([("x", "y"), ("z", "y")], undirected=[("z", "x")])
SCHEMA = escudo.Schema.from_dict({name: [0, 1] for name in "zxy"})
# By adding up: P(z) = 0.4, P(x | z) = 0.3, 0.7, P(y | x, z) = 0.2 + 0.3 x + 0.2 z.
ADJUSTED = 0.3
PLAIN = 0.3 + 0.2 * (0.28 / (0.28 + 0.18) - 0.12 / (0.12 + 0.42))


def rows(count: int, rng: np.random.Generator) -> pl.DataFrame:
    z = rng.random(count) < 0.4
    x = rng.random(count) < np.where(z, 0.7, 0.3)
    y = rng.random(count) < 0.2 + 0.3 * x + 0.2 * z
    return pl.DataFrame({"z": z.astype(int), "x": x.astype(int), "y": y.astype(int)})


@pytest.fixture(scope="module")
def found() -> list[tuple[tuple[float, float], ...]]:
    rng = np.random.default_rng(3)
    ends = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_model_effects, "REFITS", 20)
        patch.setattr(_model_effects, "_POOL", 20_000)
        for seed in range(TABLES):
            table = escudo.PrivateTable(rows(1_500, rng), SCHEMA)
            model = escudo.synthesize(table, GRAPH, epsilon=0.5, delta=1e-6, seed=seed)
            ranges = model.effect_range("x", "y", confidence=CONFIDENCE)
            assert ranges.causes == ((), ("z",))
            ends.append(ranges.intervals(1, 0))
    return ends


def held(ends: list[tuple[float, float]], truth: float, width: float = 1.0) -> int:
    middles = [((low + high) / 2, width * (high - low) / 2) for low, high in ends]
    return sum(abs(truth - middle) <= half for middle, half in middles)


@pytest.mark.parametrize(("reading", "truth"), [(0, PLAIN), (1, ADJUSTED)])
def test_each_readings_interval_holds_its_effect(found, reading: int, truth: float) -> None:
    ends = [one[reading] for one in found]
    assert held(ends, truth) >= LEAST
    assert held(ends, truth, 0.5) < LEAST  # half of it would not do
    assert max(high - low for low, high in ends) < MOST


def test_whichever_reading_is_right_the_whole_range_holds_it(found) -> None:
    hulls = [(min(low for low, _ in one), max(high for _, high in one)) for one in found]
    for truth in (PLAIN, ADJUSTED):
        assert sum(low <= truth <= high for low, high in hulls) >= LEAST
