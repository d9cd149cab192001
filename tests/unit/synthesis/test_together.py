"""Columns that are at one level in most rows are released together, which is less noisy than one by one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.mechanisms import Purse
from escudo.privacy import ExponentialEvent, Neighbours
from escudo.privacy._totals import leaves
from escudo.synthesis import _adaptive, prepare
from escudo.synthesis._residuals import Unit
from escudo.synthesis._together import Lengths, Together, bins_of_lengths, lengths_of, units_for_lengths, usual_levels
from escudo.table import PrivateTable, Schema

ROWS, WIDTH = 3000, 30
NAMES = [f"x{i}" for i in range(WIDTH)]
UNIT = Unit.of(Neighbours(relation="add_remove"), 50.0)


OFTEN = 0.005 + 0.1 * (np.arange(WIDTH) / WIDTH) ** 2
HAS = np.random.default_rng(3).random((ROWS, WIDTH)) < OFTEN


def table() -> PrivateTable:
    frame = pl.DataFrame({name: HAS[:, i] for i, name in enumerate(NAMES)})
    return PrivateTable(frame, Schema.from_dict({name: {"type": "boolean"} for name in NAMES}), relation="add_remove")


def missed(epsilon: float) -> float:
    """Return the mean error of columns over three models."""
    models = [escudo.synthesize(table(), None, epsilon=epsilon, delta=1e-6, seed=seed) for seed in range(3)]
    shares = np.array([[model.probability([name])[1] for name in NAMES] for model in models])
    return float(np.abs(shares - HAS.mean(axis=0)).mean())


@pytest.mark.parametrize(("epsilon", "of_it"), [(0.3, 0.75), (1.0, 0.8)])
def test_rare_levels_are_known_better_than_one_by_one(
    epsilon: float, of_it: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = missed(epsilon)
    monkeypatch.setattr(_adaptive, "usual_levels", lambda _: {})
    assert together < of_it * missed(epsilon)


def test_columns_that_are_even_are_measured_one_by_one() -> None:
    even = {name: np.array([400.0, 600.0]) for name in NAMES}
    assert usual_levels(even) == {}
    assert usual_levels({name: np.array([10.0, 990.0]) for name in NAMES[:7]}) == {}  # too few
    found = usual_levels({**even, **{f"rare {name}": np.array([10.0, 985.0, 5.0]) for name in NAMES}})
    assert found == {f"rare {name}": 1 for name in NAMES}


def test_what_is_spent_is_what_the_plan_shows(spy: Any) -> None:
    private = table()
    prepared = prepare(private.schema, None, relation="add_remove", epsilon=1.0, delta=1e-6)
    prepared.run(private, Purse(spy, np.random.default_rng(0), plan=prepared.plan, guarantee=prepared.plan.guarantee()))
    planned, spent = Counter(dict(leaves(prepared.plan.event))), Counter(spy.events)
    assert spent <= planned
    assert all(isinstance(event, ExponentialEvent) for event in planned - spent)


def test_lengths_are_what_was_seen_where_noise_is_small_and_a_law_where_it_is_not() -> None:
    bins = bins_of_lengths(20)
    true = np.zeros(21)
    true[[0, 1, 2, 15]] = 0.5, 0.3, 0.1, 0.1  # nothing like a negative binomial law
    seen = np.bincount(bins, weights=true) * 10_000
    found = lengths_of(seen, 1.0, bins, float(true @ np.arange(21)), 0.1)
    assert found.sum() == pytest.approx(1.0)
    assert np.bincount(bins, weights=found) == pytest.approx(seen / 10_000, abs=2e-3)
    loud = lengths_of(seen, 3000.0, bins, 2.0, 0.5)
    assert (np.diff(np.bincount(bins, weights=loud)[:6]) < 0.1).all()


def test_rows_are_clipped_where_noise_is_large_and_kept_where_it_is_small() -> None:
    law = 0.5 ** np.arange(WIDTH + 1.0)
    law /= law.sum()
    lengths = Lengths(dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 2), np.zeros((WIDTH + 1, 2 * WIDTH + 1), np.int64))
    loud, quiet = (Together.of(UNIT, lengths, law, units=100, rows=rows) for rows in (100.0, 1e3))
    assert loud is not None
    assert quiet is not None
    assert loud.most < quiet.most
    assert loud.kept < quiet.kept <= 1.0
    long = np.zeros(WIDTH + 1)
    long[[0, WIDTH]] = 0.5  # all or none: what looked short is long
    assert Together.of(UNIT, lengths, long, units=100, rows=1e6) is None


def test_what_clipping_takes_away_is_weighed_with_noise_by_the_root_of_squares() -> None:
    law = 0.8 ** np.arange(WIDTH + 1.0)
    law /= law.sum()
    lengths = Lengths(dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 2), np.zeros((WIDTH + 1, 2 * WIDTH + 1), np.int64))
    held, one = law * np.arange(WIDTH + 1), math.sqrt(2 / math.pi) * WIDTH * UNIT.scale / math.sqrt(100)
    alone, apart_by_sums = one * math.sqrt(WIDTH / 4), 0
    most = np.arange(1, WIDTH + 1)
    kept = np.minimum(1, np.sqrt(most[:, None] / np.maximum(np.arange(WIDTH + 1), 1))) @ held / held.sum()
    for rows in np.geomspace(1e2, 1e5, 40):
        noise, clipped = one * np.sqrt(most) / kept, 0.5 * (1 - kept) * held.sum() * rows
        together = np.hypot(noise, clipped).min() < alone
        assert (Together.of(UNIT, lengths, law, units=100, rows=rows) is not None) == together
        apart_by_sums += together and (noise + clipped).min() >= alone
    assert apart_by_sums > 0


def test_long_rows_that_come_together_are_seen() -> None:
    """A twentieth of the rows, spread over lengths of 8 to 17."""
    bins, lengths, noise = bins_of_lengths(30), np.arange(31), 35.0
    true = 0.6 ** np.arange(31.0)
    true *= 0.95 / true.sum()
    true[8:18] += 0.005
    kept = [lengths_of(np.bincount(bins, weights=true) * 10_000, noise, bins, 2.0, 0.05) @ lengths]
    rng = np.random.default_rng(0)
    for _ in range(20):
        seen = np.bincount(bins, weights=true) * 10_000 + rng.normal(0, noise, bins[-1] + 1)
        kept.append(lengths_of(seen, noise, bins, 2.0, 0.05) @ lengths)
    assert np.mean(kept) == pytest.approx(true @ lengths, rel=0.05)
    assert units_for_lengths(400) == 20
