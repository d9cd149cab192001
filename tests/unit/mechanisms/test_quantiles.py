"""Quantiles: their sensitivity by exhaustion, their answers, and that they always answer."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms import quantile_cells, quantiles
from escudo.mechanisms._selection import cell_utilities
from escudo.privacy import ExponentialEvent, RepeatedEvent

PARTS = 2**20


def tables(records, cells):
    """All histograms of at most so many records (those missing are in no cell)."""
    for placed in itertools.combinations_with_replacement(range(cells + 1), records):
        yield np.bincount(placed, minlength=cells + 1)[:cells]


def furthest(pairs, part):
    return max(int(np.abs(cell_utilities(a, part) - cell_utilities(b, part)).max()) for a, b in pairs)


@pytest.mark.parametrize("part", [0, 1, PARTS // 3, PARTS // 2, 3 * PARTS // 4, PARTS])
@pytest.mark.parametrize("rows", [1, 2])
class TestSensitivity:
    """Exhausts tables of 3 fixed rows in 3 cells or none, and a unit with up to ``rows`` rows."""

    def test_under_replace_one_it_is_the_rows_of_a_unit(self, part, rows):
        pairs = (
            (fixed + old, fixed + new) for fixed in tables(3, 3) for old in tables(rows, 3) for new in tables(rows, 3)
        )
        assert furthest(pairs, part) == rows * PARTS  # attained

    def test_under_add_remove_it_is_the_larger_side_of_the_quantile(self, part, rows):
        pairs = ((fixed, fixed + new) for fixed in tables(3, 3) for new in tables(rows, 3))
        assert furthest(pairs, part) == rows * max(part, PARTS - part)


def test_utility_is_minus_the_distance_to_the_cells_ranks():
    # 10 records: cells hold ranks [0, 2], [2, 2], [2, 9], [9, 10]
    utilities = cell_utilities(np.array([2, 0, 7, 1]), PARTS // 2) / PARTS
    assert utilities.tolist() == [-3.0, -3.0, 0.0, -4.0]


def test_an_empty_cell_has_the_classical_utility():
    generator = np.random.default_rng(0)
    values = generator.normal(size=50)
    grid = np.sort(generator.normal(size=30))
    # Every candidate point gets an empty cell of its own between the records.
    counts = np.zeros(61, dtype=np.int64)
    counts[::2] = np.bincount(np.searchsorted(grid, values), minlength=31)
    found = cell_utilities(counts, PARTS // 4)[1::2] / PARTS
    assert np.allclose(found, [-abs((values < q).sum() - 50 / 4) for q in grid])


def test_quantiles_of_plenty_of_data_are_near_the_truth():
    values = np.random.default_rng(1).normal(50, 10, size=20_000)
    found = quantiles(values, [0.05, 0.5, 0.95], lower=0, upper=100, epsilon=1.0).value
    assert np.allclose(found, np.quantile(values, [0.05, 0.5, 0.95]), atol=1.0)


def test_a_heavy_atom_is_found_and_not_the_gap_beside_it():
    values = np.concatenate([np.full(50, -1.0), np.zeros(900), np.full(50, 100.0)])
    assert abs(quantiles(values, 0.5, lower=-128, upper=128, epsilon=1.0, cells=256, seed=0).value[0]) <= 1


def test_larger_probabilities_never_get_smaller_numbers():
    for seed in range(20):
        found = quantiles([1.0, 2.0], [0.9, 0.1, 0.5], lower=0, upper=9, epsilon=0.1, seed=seed).value
        assert found[1] <= found[2] <= found[0]


@pytest.mark.parametrize(
    "values", [[], [math.nan] * 3, [None, "x", math.inf], np.array([1e300, -1e300, math.inf, -math.inf])]
)
def test_it_always_answers_within_the_bounds(values):
    found = quantiles(values, [0.0, 0.5, 1.0], lower=-1, upper=1, epsilon=1.0).value
    assert found.shape == (3,)
    assert (np.abs(found) <= 1).all()


def test_events_share_the_budget():
    assert quantile_cells([1, 2], 0.5, epsilon=0.5, seed=0).event == ExponentialEvent(epsilon=0.5)
    event = quantile_cells([1, 2], [0.1, 0.5, 0.9], epsilon=0.7, seed=0).event
    assert event == RepeatedEvent(event=ExponentialEvent(epsilon=event.event.epsilon), count=3)
    assert event.event.epsilon == pytest.approx(0.7 / 3)
    assert event.event.epsilon * 3 <= 0.7


def test_a_person_with_more_rows_needs_more_noise(monkeypatch):
    scales = []
    from escudo.mechanisms import _noise

    monkeypatch.setattr(_noise.SeededNoise, "gumbel_argmax", lambda self, steps, scale: scales.append(scale) or 0)
    quantile_cells([1, 2], 0.25, epsilon=1.0, seed=0)
    quantile_cells([1, 2], 0.25, epsilon=1.0, unit="person", max_rows_per_person=5, seed=0)
    quantile_cells([1, 2], 0.25, epsilon=1.0, relation="add_remove", seed=0)
    assert np.allclose(np.array(scales) / scales[0], [1, 5, 0.75])


def test_a_person_needs_a_bound_on_rows():
    with pytest.raises(InputError, match="max_rows_per_person"):
        quantile_cells([1, 2], 0.5, epsilon=1.0, unit="person")


@pytest.mark.parametrize("counts", [[], [-1, 2], [1.5], [[1]], [2**43], 3])
def test_unusable_counts_are_refused(counts):
    with pytest.raises(InputError, match="counts"):
        quantile_cells(counts, 0.5, epsilon=1.0)


@pytest.mark.parametrize("probabilities", [[], -0.1, 1.1, [0.5, math.nan], "half"])
def test_unusable_probabilities_are_refused(probabilities):
    with pytest.raises(InputError, match="probabilities"):
        quantile_cells([1, 2], probabilities, epsilon=1.0)


@pytest.mark.parametrize(("lower", "upper"), [(1, 1), (2, 1), (math.nan, 1), (0, math.inf), (1.0, 1.0 + 1e-15)])
def test_unusable_bounds_are_refused(lower, upper):
    with pytest.raises(InputError):
        quantiles([1.0], 0.5, lower=lower, upper=upper, epsilon=1.0)


@pytest.mark.parametrize("cells", [0, -5, 2.5, 10**9])
def test_unusable_numbers_of_cells_are_refused(cells):
    with pytest.raises(InputError):
        quantiles([1.0], 0.5, lower=0, upper=1, epsilon=1.0, cells=cells)
