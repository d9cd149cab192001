"""Rows of bounded length: never longer than the limit, each by itself, and summed exactly."""

from __future__ import annotations

import numpy as np
import pytest

from escudo.mechanisms import bounded_rows, second_moments


@pytest.mark.parametrize("limit", [1, 50, 2**24 + 3, 2**40])
def test_no_row_is_longer_than_the_limit_and_short_whole_ones_stay(limit):
    rng = np.random.default_rng(limit)
    length = np.sqrt(limit)
    directions = rng.normal(size=(400, 3))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    # At the limit to the last bit, a hair on either side of it, far beyond, and within.
    factors = rng.choice([1.0, np.nextafter(1, 2), np.nextafter(1, 0), 1e9, 0.3], size=(400, 1))
    rows = directions * length * factors
    found = bounded_rows(rows, limit)
    assert (found == np.rint(found)).all()
    assert max(sum(int(step) ** 2 for step in row) for row in found) <= limit
    assert (np.abs(found) <= np.abs(rows)).all()
    whole = np.trunc(rows[factors[:, 0] < 0.5])
    assert (bounded_rows(whole, limit) == whole).all()


def test_a_row_does_not_depend_on_the_rows_around_it():
    rows = np.random.default_rng(0).normal(size=(50, 7)) * 1000
    together = bounded_rows(rows, 10**6)
    for place in range(50):
        assert (bounded_rows(rows[place : place + 1], 10**6) == together[place]).all()


def test_moments_are_exact_whatever_the_order_and_the_batches():
    rows = np.random.default_rng(1).integers(-(2**16), 2**16, size=(5000, 4)).astype(np.float64)
    exact = sum(np.outer(row, row) for row in rows.astype(object))
    assert (second_moments([rows], 4) == exact).all()
    assert (second_moments(np.array_split(rows[::-1], 7), 4) == exact).all()
    assert (second_moments([], 4) == 0).all()


def test_orthogonal_rows_at_the_limit_attain_the_sensitivity():
    here, there = np.array([[3.0, 4.0]]), np.array([[4.0, -3.0]])
    moved = second_moments([here], 2) - second_moments([there], 2)
    assert (moved**2).sum() == 2 * 25**2
