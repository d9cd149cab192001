"""Whether effects are linear: a first look at squares and at an odd wave, and the graph from counts where not."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from escudo.causal import CausalGraph
from escudo.discovery import discover
from escudo.discovery._gaussian import STEPS, Curvature, bent_limit, bent_rows, curvature_of, prepare
from escudo.mechanisms import Purse, second_moments
from escudo.privacy import Budget, MemoryAccount, plan
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


def levelling(count: int, seed: int = 1) -> pl.DataFrame:
    """The same causes as ``rows``, by effects that level off, and a linear one."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=count)
    b, c = (2 * np.clip(2 * a, -1, 1) + rng.normal(size=count) for _ in "bc")
    return pl.DataFrame({"a": a, "b": b, "c": c, "d": c + rng.normal(size=count)})


def table_of(frame: pl.DataFrame) -> PrivateTable:
    columns = {
        name: {"type": "numeric", "lower": -7 * float(frame[name].std()), "upper": 8 * float(frame[name].std())}
        for name in NAMES
    }
    return PrivateTable(frame, Schema.from_dict(columns))


def exact(frame: pl.DataFrame) -> Curvature:
    return curvature_of(sums_of(frame), float(len(frame)), noise=0.0)


def sums_of(frame: pl.DataFrame) -> np.ndarray:
    values = frame.to_numpy()
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    return second_moments([bent_rows(standard, bent_limit(4))], 13) / STEPS**2


def noisy(sums: np.ndarray, seed: int, scale: float) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(0, scale, sums.shape)
    return (2 * sums + drawn + drawn.T) / 2


def test_a_square_is_seen_and_a_line_is_not() -> None:
    assert exact(rows(20_000, bent=True)).seen
    assert not exact(rows(20_000, bent=False)).seen


def test_what_levels_off_is_seen_by_the_odd_wave_alone() -> None:
    found = exact(levelling(20_000))
    assert found.seen
    assert np.abs(found.share[0]).max() < 0.05
    assert found.least(4.0)[1][0, 1] > 0.08


def test_normal_columns_do_not_bend_however_closely_they_go_together() -> None:
    for strength in (0.3, 1.0, 3.0):
        found = exact(rows(100_000, bent=False, strength=strength))
        assert np.abs(found.share[1]).max() < 0.04  # half of what would speak against lines: cutting off bends a little
        assert not found.seen


def test_noise_alone_bends_nothing_however_large_it_is() -> None:
    sums = sums_of(rows(500, bent=False))
    for scale in (30.0, 100.0, 300.0, 1_000.0, 10_000.0):
        assert not any(curvature_of(noisy(sums, seed, scale), 500.0, noise=scale).seen for seed in range(60))


def test_the_noise_is_as_planned_and_neither_two_thirds_nor_three_halves_of_it() -> None:
    error_rate = 1e-9
    frame = rows(500, bent=False)
    table = table_of(frame)
    event = prepare(table.schema, table.neighbours, Budget(1.0, 1e-6), knowledge=None).events[1]
    exact_sums = (sums_of(frame) * STEPS**2).astype(np.int64)
    released = [np.asarray(Purse(None, seed).add(exact_sums, event, "curvature")) for seed in range(8)]
    drawn = (np.array(released) - exact_sums).ravel() / event.scale

    def plausible(factor: float) -> bool:
        chance = stats.chi2(drawn.size).cdf(float(((drawn / factor) ** 2).sum()))
        return bool(error_rate / 2 < chance < 1 - error_rate / 2)

    assert plausible(1.0)
    assert not plausible(2 / 3)
    assert not plausible(3 / 2)


def test_a_skewed_law_alone_does_not_bend_a_line() -> None:
    found = exact(rows(100_000, bent=False, skewed=True, strength=0.4))
    assert np.abs(found.share[0]).max() > 0.2  # seen from the effect, it does
    assert not found.seen


def test_its_error_is_that_of_chance_and_noise() -> None:
    chance, measured = [], []
    for seed in range(120):
        sums = sums_of(rows(1_000, bent=False, seed=seed))
        chance.append(curvature_of(sums, 1_000.0, noise=0.0).share)
        measured.append(curvature_of(noisy(sums, seed, 30.0), 1_000.0, noise=30.0).share)
    off = ~np.eye(4, dtype=bool)
    for seen, noise in ((chance, 0.0), (measured, 30.0)):
        for kind in (0, 1):
            stated = curvature_of(sums, 1_000.0, noise=noise).error[kind][off]
            spread = np.std(seen, axis=0)[kind][off]
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


def test_auto_counts_where_effects_level_off_and_confidences_of_moments_allow_for_it() -> None:
    table = table_of(levelling(100_000))
    found = discover(table, epsilon=1.0, delta=1e-6, seed=1)
    assert found.method == "exact"
    assert "bends with" in found.notes[0]
    moments = discover(table, epsilon=1.0, delta=1e-6, method="gaussian", seed=1)
    assert ("b", "c") in moments.graph.adjacencies  # a line in a leaves something that both have
    assert moments.confidence("b", "c") < 0.6
    assert moments.confidence("a", "b") > 0.9
    assert any("confidences allow for it" in note for note in moments.notes)


def slightly(count: int, seed: int = 1) -> pl.DataFrame:
    """The same causes as ``rows``, by rates that a first look takes for lines."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=count)
    b, c = (3 * np.exp(0.35 * np.clip(a, -4, 4)) + rng.normal(size=count) for _ in "bc")
    return pl.DataFrame({"a": a, "b": b, "c": c, "d": c + rng.normal(size=count)})


def test_what_slight_curves_of_a_third_column_join_is_claimed_less() -> None:
    found = exact(slightly(100_000))
    assert not found.seen
    assert found.parted[1, 2] > 0.8
    assert exact(slightly(3_000)).parted[1, 2] == 0.0  # so few rows tell it neither from a line nor from nothing
    moments = discover(table_of(slightly(100_000)), epsilon=3.0, delta=1e-6, seed=1)
    assert moments.method == "gaussian"
    assert ("b", "c") in moments.graph.adjacencies
    assert moments.confidence("b", "c") < 0.6
    assert moments.confidence("a", "b") > 0.9


@pytest.mark.parametrize("law", ["exponential", "uniform", "normal"])
def test_lines_with_any_noise_are_not_parted(law: str) -> None:
    rng = np.random.default_rng(3)
    a, *noise = (getattr(rng, law)(size=100_000) for _ in NAMES)
    b, c = a + noise[0], a + noise[1]
    found = exact(pl.DataFrame({"a": a, "b": b, "c": c, "d": c + noise[2]}))
    assert found.parted.max() < 0.1
    assert not found.seen


def test_an_edge_that_curves_could_have_made_is_claimed_less() -> None:
    frame = rows(30_000, bent=False)
    sums, line = sums_of(frame), CausalGraph.from_edges([("a", "b")], nodes=NAMES)
    correlation = np.corrcoef(frame.to_numpy().T)
    quiet, loud = (
        curvature_of(noisy(sums, 1, scale), 30_000.0, noise=scale).about(correlation, NAMES, line)["a", "b"]
        for scale in (1.0, 3_000.0)
    )
    assert quiet[0] == loud[0] == 0.0
    assert quiet[1] < 0.05
    assert loud[1] > 0.5


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
