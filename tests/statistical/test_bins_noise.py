"""The noise in both rounds of private bins is what the plan states, no less and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from escudo.mechanisms import Purse
from escudo.mechanisms._noise import watching
from escudo.privacy import Budget
from escudo.synthesis import Synthesis
from escudo.synthesis._bins import PreparedBinned, choose_bins
from escudo.table import PrivateTable, Schema

ERROR_RATE = 1e-9  # of each assertion, over the choice of the seeds
RUNS = 25
SCHEMA = Schema.from_dict({
    "income": {"type": "numeric", "lower": 0, "upper": 1_000_000, "missing": True},
    "gift": {"type": "numeric", "lower": 0, "upper": 500_000, "integer": True},
    "hours": {"type": "numeric", "lower": 0, "upper": 60, "integer": True},
})  # fmt: skip


class Seen:
    """Keeps what is counted and what is released in its place."""

    for_release = False

    def __init__(self) -> None:
        self.source: Any = None
        self.noise: list[tuple[float, np.ndarray]] = []
        self.event: Any = None

    def watch(self, source: Any, event: Any) -> Seen:
        self.source, self.event = source, event
        return self

    def add_gaussian(self, integers: np.ndarray, scale: float) -> Any:
        released = self.source.add_gaussian(integers, scale)
        self.noise.append((self.event.scale / self.event.grid, np.asarray(released, dtype=np.float64) - integers))
        return released


@pytest.fixture(scope="module")
def distances() -> list[np.ndarray]:
    """Return how far each count of each round is from the exact one, in standard deviations that were planned."""
    rng = np.random.default_rng(3)
    frame = pl.DataFrame({
        "income": np.exp(rng.normal(10, 1, 300)),
        "gift": np.where(rng.random(300) < 0.7, 0, rng.integers(1, 5_000, 300)),
        "hours": rng.integers(0, 61, 300),
    })  # fmt: skip
    table = PrivateTable(frame, SCHEMA)
    prepared = Synthesis(None, "one-way").prepare(SCHEMA, table.neighbours, Budget(1.0, 1e-6))
    assert isinstance(prepared, PreparedBinned)
    rounds: list[list[np.ndarray]] = []
    for seed in range(RUNS):
        seen = Seen()
        with watching(seen.watch):
            choose_bins(table, prepared.events, Purse(None, np.random.default_rng(seed)))
        rounds.append([noise / scale for scale, noise in seen.noise])
    return [np.concatenate(several) for several in zip(*rounds, strict=True)]


@pytest.mark.parametrize(
    "place", range(5), ids=["income roughly", "gift roughly", "hours", "income finely", "gift finely"]
)
def test_the_noise_of_a_round_is_as_planned_and_neither_two_thirds_nor_three_halves_of_it(
    distances: list[np.ndarray], place: int
) -> None:
    assert len(distances) == 5
    seen = distances[place]

    def plausible(factor: float) -> bool:
        chance = stats.chi2(seen.size).cdf(float(((seen / factor) ** 2).sum()))
        return bool(ERROR_RATE / 2 < chance < 1 - ERROR_RATE / 2)

    assert plausible(1.0)
    assert not plausible(2 / 3)
    assert not plausible(3 / 2)
    assert abs(seen.mean()) < stats.norm.isf(ERROR_RATE / 2) / np.sqrt(seen.size)
