"""Whether effects are linear: a first look at squares, and the graph from counts where they are not."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.discovery import discover
from escudo.discovery._gaussian import STEPS, Curvature, bent_limit, bent_rows, curvature_of
from escudo.mechanisms import second_moments
from escudo.privacy import MemoryAccount, plan
from escudo.table import PrivateTable, Schema

NAMES = ("a", "b", "c", "d")
TRUE = CausalGraph.from_edges([("a", "b"), ("a", "c"), ("c", "d")])


def rows(count: int, *, bent: bool, skewed: bool = False, strength: float = 1.2, seed: int = 1) -> pl.DataFrame:
    """a acts on b and c by its square, so that these are correlated and not adjacent; or all of it is linear."""
    rng = np.random.default_rng(seed)

    def noise() -> np.ndarray:
        return rng.exponential(size=count) - 1 if skewed else rng.normal(size=count)

    def effect(x: np.ndarray) -> np.ndarray:
        return (x * x - 1) if bent else strength * x

    a = noise()
    b, c = effect(a) + noise(), effect(a) + noise()
    return pl.DataFrame({"a": a, "b": b, "c": c, "d": c + noise()})


def table_of(frame: pl.DataFrame) -> PrivateTable:
    columns = {
        name: {"type": "numeric", "lower": -7 * float(frame[name].std()), "upper": 8 * float(frame[name].std())}
        for name in NAMES
    }
    return PrivateTable(frame, Schema.from_dict(columns))


def exact(frame: pl.DataFrame) -> Curvature:
    values = frame.to_numpy()
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    sums = second_moments([bent_rows(standard, bent_limit(4))], 9) / STEPS**2
    return curvature_of(sums, float(len(values)), noise=0.0)


def test_a_square_is_seen_and_a_line_is_not() -> None:
    assert exact(rows(20_000, bent=True)).seen
    assert not exact(rows(20_000, bent=False)).seen


def test_a_skewed_law_alone_does_not_bend_a_line() -> None:
    found = exact(rows(100_000, bent=False, skewed=True, strength=0.4))
    assert np.abs(found.share).max() > 0.2  # seen from the effect, it does
    assert not found.seen


def test_its_error_is_that_of_chance_and_noise() -> None:
    chance, noisy = [], []
    for seed in range(120):
        frame = rows(1_000, bent=False, seed=seed)
        values = frame.to_numpy()
        standard = (values - values.mean(axis=0)) / values.std(axis=0)
        sums = second_moments([bent_rows(standard, bent_limit(4))], 9) / STEPS**2
        chance.append(curvature_of(sums, 1_000.0, noise=0.0).share)
        drawn = np.random.default_rng(seed).normal(0, 60.0, sums.shape)
        noisy.append(curvature_of((2 * sums + drawn + drawn.T) / 2, 1_000.0, noise=60.0).share)
    off = ~np.eye(4, dtype=bool)
    for seen, noise in ((chance, 0.0), (noisy, 60.0)):
        stated = curvature_of(sums, 1_000.0, noise=noise).error[off]
        spread = np.std(seen, axis=0)[off]
        assert (spread < 1.5 * stated).all()
        assert 0.4 < spread.mean() / stated.mean() < 1.2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_auto_counts_where_effects_bend_and_finds_what_moments_miss(seed: int) -> None:
    table = table_of(rows(30_000, bent=True))
    found = discover(table, epsilon=1.0, delta=1e-6, seed=seed)
    assert found.method == "exact"
    assert "bends with" in found.notes[0]
    assert set(TRUE.adjacencies) <= set(found.graph.adjacencies)
    moments = discover(table, epsilon=1.0, delta=1e-6, method="gaussian", seed=seed)
    assert ("a", "b") not in moments.graph.adjacencies  # no correlation, so no edge
    assert ("b", "c") in moments.graph.adjacencies  # a false edge, whose confidence allows for it
    assert moments.confidence("b", "c") < 0.85
    assert any("confidences allow for it" in note for note in moments.notes)


def test_auto_keeps_to_moments_where_effects_are_linear() -> None:
    for skewed in (False, True):
        found = discover(table_of(rows(30_000, bent=False, skewed=skewed)), epsilon=1.0, delta=1e-6, seed=1)
        assert found.method == "gaussian"
        assert found.graph.skeleton_f1(TRUE) == 1.0
        assert min(found.edge_confidence.values()) > 0.9


@pytest.mark.parametrize("bent", [False, True], ids=["moments", "counts"])
def test_whichever_it_is_the_plan_is_charged_once_and_costs_what_was_asked(bent: bool) -> None:
    account = MemoryAccount(epsilon=1.0, delta=1e-6)
    table = table_of(rows(20_000, bent=bent)).with_account(account)
    shown = plan(discover, table, epsilon=0.9, delta=1e-6)
    assert [leaf.name for leaf in shown.leaves()] == [
        "scales",
        "curvature",
        "whitening, or tables",
        "second moments, or tables",
    ]
    assert shown.guarantee().epsilon == pytest.approx(0.9, rel=1e-3)
    assert shown.guarantee().epsilon <= 0.9 * (1 + 1e-9)
    found = discover(table, epsilon=0.9, delta=1e-6)
    assert [receipt.event for receipt in account.receipts] == [shown.event]
    assert (found.method == "exact") == bent


def test_text_shows_how_sure_an_edge_is_and_how_sure_its_direction() -> None:
    found = discover(table_of(rows(30_000, bent=False)), epsilon=1.0, delta=1e-6, seed=1)
    assert str(found).count("direction") == len(found.graph.adjacencies)
    assert "direction open" in str(found)
    assert "of the direction" in found._repr_html_()
