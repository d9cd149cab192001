"""Noisy tables that contradict each other become tables that agree, and laws close to the truth."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import nnls

from escudo.causal import Network
from escudo.synthesis._estimation import NoisyTable, agreeing, laws_of, margins_of, sums_of, total_of

Floats = NDArray[np.float64]
SCALE = 30.0


def noisy_clinic(clinic: Network, *, rows: int, seed: int, scale: float = SCALE) -> list[NoisyTable]:
    """Return the family tables of the clinic with Gaussian noise, those inside others left out."""
    codes = clinic.sample(rows, rng=np.random.default_rng(1))
    rng = np.random.default_rng(seed)
    tables = []
    for child in ("tub", "lung", "bronc", "either", "xray", "dysp"):
        columns = (*clinic.parents[child], child)
        counts = np.zeros([2] * len(columns))
        np.add.at(counts, tuple(codes[name] for name in columns), 1)
        tables.append(NoisyTable(columns, counts + rng.normal(0, scale, counts.shape), scale))
    return tables


def estimate(sizes: Any, parents: Any, tables: list[NoisyTable], *, total: float | None) -> dict[str, Any]:
    """Return each column's law given its parents, as generators find it."""
    rows = total_of(tables)[0] if total is None else total
    return dict(laws_of(sizes, parents, agreeing(tables, total=rows)))


def sums(table: NoisyTable, columns: tuple[str, ...]) -> Floats:
    kept = [name for name in table.columns if name in columns]
    total = table.counts.sum(axis=tuple(i for i, name in enumerate(table.columns) if name not in columns))
    return np.transpose(total, [kept.index(name) for name in columns])


def by_active_sets(tables: list[NoisyTable], total: float) -> list[Floats]:
    """Solve the same problem by Lawson and Hanson's algorithm, with every constraint written out at a high price."""
    starts = np.cumsum([0, *(table.counts.size for table in tables)])
    wanted = np.concatenate([table.counts.ravel() for table in tables])
    precision = np.concatenate([np.full(table.counts.size, 1 / table.scale) for table in tables])

    def split(flat: Floats) -> list[NoisyTable]:
        parts = np.split(flat, starts[1:-1])
        return [
            NoisyTable(table.columns, part.reshape(table.counts.shape), table.scale)
            for table, part in zip(tables, parts, strict=True)
        ]

    def constrained(flat: Floats) -> Floats:
        parts = split(flat)
        found = [sums(part, (name,)) for part in parts for name in part.columns]
        for a, b in itertools.combinations(parts, 2):
            shared = tuple(sorted(set(a.columns) & set(b.columns)))
            if len(shared) > 1:
                found.append((sums(a, shared) - sums(b, shared)).ravel())
        return np.concatenate(found)

    margins = margins_of(tables, total=total)
    matrix = np.stack([constrained(unit) for unit in np.eye(wanted.size)], axis=1)
    fixed = np.concatenate([margins[name] for table in tables for name in table.columns])
    goal = np.concatenate([fixed, np.zeros(len(matrix) - fixed.size)])
    price = 1e4
    solved, _ = nnls(
        np.concatenate([np.diag(precision), price * matrix]), np.concatenate([precision * wanted, price * goal])
    )
    return [part.counts for part in split(solved)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (1.0, 5.0, 0.3)], ids=["even", "uneven"])
@pytest.mark.parametrize("last", [("a", "c", "d"), ("a", "b", "d")], ids=["apart", "sharing a pair"])
def test_the_agreeing_tables_are_the_nearest_ones(seed: int, scales: tuple[float, ...], last: tuple[str, ...]) -> None:
    rng = np.random.default_rng(seed)
    shape = [3 if name == "b" else 2 for name in last]
    tables = [
        NoisyTable(("a", "b"), rng.normal(2, 4, (2, 3)), scales[0]),
        NoisyTable(("c", "b"), rng.normal(2, 4, (2, 3)), scales[1]),
        NoisyTable(last, rng.normal(1, 4, shape), scales[2]),
    ]
    found = agreeing(tables, total=15.0)
    for table, wanted in zip(found, by_active_sets(tables, 15.0), strict=True):
        np.testing.assert_allclose(table.counts, wanted, atol=0.02)


def test_agreeing_tables_agree_and_hold_nothing_negative(clinic: Network) -> None:
    noisy = noisy_clinic(clinic, rows=2000, seed=0)
    assert min(table.counts.min() for table in noisy) < 0
    found = agreeing(noisy, total=2000.0)
    assert min(table.counts.min() for table in found) >= 0
    for a, b in itertools.combinations(found, 2):
        shared = tuple(sorted(set(a.columns) & set(b.columns)))
        np.testing.assert_allclose(sums(a, shared), sums(b, shared), atol=0.1 * SCALE)
    for table in found:
        assert table.counts.sum() == pytest.approx(2000, abs=0.1 * SCALE)


def test_tables_that_agree_already_stay_as_they_are(clinic: Network) -> None:
    exact = noisy_clinic(clinic, rows=5000, seed=0, scale=0.0)
    tables = [NoisyTable(table.columns, table.counts, 1e-6) for table in exact]
    for table, wanted in zip(agreeing(tables, total=5000.0), exact, strict=True):
        np.testing.assert_allclose(table.counts, wanted.counts, atol=1e-9)


def test_margins_are_averaged_before_anything_is_cut() -> None:
    """A large table that is mostly noise does not lift what is rare: cutting comes after adding up."""
    rng = np.random.default_rng(0)
    truth = np.outer([0.952, 0.048], np.full(50, 1 / 50)) * 1000
    shares = []
    for _ in range(50):
        noisy = [NoisyTable(("rare", "many"), truth + rng.normal(0, 20, truth.shape), 20.0)]
        shares.append(agreeing(noisy, total=1000.0)[0].counts[1].sum() / 1000)
    assert np.mean(shares) == pytest.approx(0.048, abs=4 * 0.001 * 20 * math.sqrt(25) / math.sqrt(50))
    precise = NoisyTable(("a",), np.array([7.0, 3.0]), 1.0)
    vague = NoisyTable(("a", "b"), np.full((2, 8), 1.25 / 2), 1.0)
    sums, noise = sums_of([precise, vague], {})
    assert sums["a"] == pytest.approx([5 + 2 * 8 / 9, 5 - 2 * 8 / 9])
    assert noise["a"] == pytest.approx(math.sqrt(8 / 9))


def test_the_total_weighs_tables_by_their_precision() -> None:
    sharp, blurred = NoisyTable(("a",), np.array([4.0, 6.0]), 1.0), NoisyTable(("b",), np.array([40.0, 60.0]), 100.0)
    assert total_of([sharp, blurred]) == pytest.approx((10, math.sqrt(2)), abs=0.01)
    alike = [NoisyTable(("a",), np.zeros(2), 1.0), NoisyTable(("b",), np.full(8, 1.0), 1.0)]
    assert total_of(alike) == pytest.approx((8 * (1 / 8) / (1 / 2 + 1 / 8), (1 / 2 + 1 / 8) ** -0.5))


def test_laws_of_exact_tables_are_the_conditionals(clinic: Network) -> None:
    exact = noisy_clinic(clinic, rows=400_000, seed=0, scale=0.0)
    tables = [NoisyTable(table.columns, table.counts, 1e-6) for table in exact]
    laws = estimate(dict.fromkeys(clinic.nodes, 2), clinic.parents, tables, total=400_000)
    for name in clinic.nodes:
        assert laws[name].parents == clinic.parents[name]
        np.testing.assert_allclose(laws[name].table, clinic.table(name), atol=0.02)


def test_tables_correct_each_other(clinic: Network) -> None:
    """What the others say of a column takes noise off it: the mean error falls against each family by itself."""
    truth = noisy_clinic(clinic, rows=20_000, seed=0, scale=0.0)
    alone, together = [], []
    for seed in range(20):
        noisy = noisy_clinic(clinic, rows=20_000, seed=seed)
        for before, after, wanted in zip(noisy, agreeing(noisy, total=20_000.0), truth, strict=True):
            alone.append(np.abs(before.counts - wanted.counts).mean())
            together.append(np.abs(after.counts - wanted.counts).mean())
    assert np.mean(together) < 0.75 * np.mean(alone)


def test_rare_configurations_are_drawn_towards_the_law_with_fewer_parents() -> None:
    counts = np.array([[[500.0, 500.0], [1.0, 0.0]], [[300.0, 700.0], [0.0, 0.0]]])
    agreed = [NoisyTable(("a", "b", "c"), counts, 50.0)]
    laws = laws_of({"a": 2, "b": 2, "c": 2}, {"c": ("a", "b")}, agreed)
    law = laws["c"].table
    np.testing.assert_allclose(law[0, 0], [0.5, 0.5], atol=0.01)
    assert 0.2 < law[0, 1, 0] < 0.9  # one person does not make a certainty
    assert 0.1 < law[1, 1, 0] < 0.9  # and nobody does not either
    np.testing.assert_allclose(law.sum(axis=-1), 1.0)


def test_columns_of_one_cell_need_no_table() -> None:
    table = NoisyTable(("a", "b"), np.array([[30.0, 10.0], [20.0, 40.0]]), 1.0)
    parents: dict[str, tuple[str, ...]] = {"a": ("single",), "b": ("a", "single"), "single": ("a",)}
    laws = estimate({"a": 2, "b": 2, "single": 1}, parents, [table], total=100.0)
    assert [laws[name].table.shape for name in parents] == [(1, 2), (2, 1, 2), (2, 1)]
    np.testing.assert_allclose(laws["b"].table[:, 0, 0], [0.75, 1 / 3], atol=0.01)


@pytest.mark.parametrize("total", [None, 0.0, 1.0])
def test_noise_alone_still_gives_laws(total: float | None) -> None:
    rng = np.random.default_rng(0)
    tables = [NoisyTable(("a", "b"), rng.normal(0, 9, (3, 3)), 9.0), NoisyTable(("b", "c"), -np.ones((3, 2)), 9.0)]
    laws = estimate({"a": 3, "b": 3, "c": 2}, {"a": (), "b": ("a",), "c": ("b",)}, tables, total=total)
    for law in laws.values():
        np.testing.assert_allclose(law.table.sum(axis=-1), 1.0)


def test_many_tables_are_settled_in_little_time() -> None:
    rng = np.random.default_rng(0)
    names = [f"c{i:03}" for i in range(150)]
    tables = []
    for place in range(2, 150):
        columns = (*(names[i] for i in rng.choice(place, 2, replace=False)), names[place])
        tables.append(NoisyTable(columns, rng.normal(50, 20, (2, 2, 2)), 20.0))
    found = agreeing(tables, total=400.0)
    assert max(abs(table.counts.sum() - 400) for table in found) < 20


def test_private_pgm_finds_the_same_laws(clinic: Network) -> None:
    """The peer's mirror descent over a junction tree, on the same noisy tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jax
        from mbi import Domain, LinearMeasurement
        from mbi.estimation import MirrorDescent

        noisy = noisy_clinic(clinic, rows=20_000, seed=3)
        with jax.enable_x64(True):
            peer: Any = MirrorDescent().estimate(
                Domain(clinic.nodes, [2] * 8),
                [LinearMeasurement(table.counts.ravel(), table.columns, stddev=table.scale) for table in noisy],
                known_total=20_000.0,
                iters=20_000,
                tol=1e-12,
            )
            theirs = [np.asarray(peer.project(table.columns).datavector(flatten=False)) for table in noisy]
    for table, other in zip(agreeing(noisy, total=20_000.0), theirs, strict=True):
        assert np.abs(table.counts - other).max() < 0.2 * SCALE  # the tables form a loop, so a little may differ
