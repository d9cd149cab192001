"""How far a hidden cause is from a causal pair: ``experiments/nearly_causal.py`` against what it bounds."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROWS_OF_A_BLOCK = 95


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "experiments"))
    import nearly_causal

    return nearly_causal


def squares(z: np.ndarray) -> np.ndarray:
    return (z - 1) ** 2 / 2.5


def test_lines_with_normal_noise_are_the_causal_pair_either_way_round(near):
    for backward in (False, True):
        assert near.Laws.of(0.5, 0.7, lambda z: 0.8 * z, backward=backward).information < 1e-6


@pytest.mark.parametrize("backward", [False, True])
def test_the_quadrature_agrees_with_rows(near, backward):
    laws = near.Laws.of(0.45, 0.2, lambda z: (z**3 + z) / 5, backward=backward)
    x, y = laws.draw(np.random.default_rng(1), 400_000).T
    inside = (x > laws.cause[0]) & (x < laws.cause[-1])
    x, y = x[inside], y[inside]
    left = (y - np.interp(x, laws.cause, laws.mean)) / np.interp(x, laws.cause, laws.spread)
    assert left.mean() == pytest.approx(0, abs=0.01)
    assert left.std() == pytest.approx(1, abs=0.01)
    cells = 24  # of equal counts each way: what is seen of the information, less what chance adds to it
    places = [np.argsort(np.argsort(one)) * cells // one.size for one in (x, left)]
    part = np.bincount(places[0] * cells + places[1], minlength=cells**2) / x.size
    seen = float((part * np.log(np.maximum(part, 1e-12) * cells**2)).sum()) - (cells - 1) ** 2 / (2 * x.size)
    assert 0.5 * laws.information < seen < 1.02 * laws.information + 5e-4


def test_the_bound_is_that_of_normal_laws_one_apart(near):
    # Two normal laws with means d apart: divergence d² / 2, total variation 2 Φ(d / 2) - 1.
    for apart in (0.01, 0.1, 0.5, 1.0, 3.0):
        exact = math.erf(apart / math.sqrt(8))
        assert exact <= near.most_apart(apart**2 / 2, 1) <= min(1.0, 1.3 * exact + 0.05)
    assert near.most_apart(0.0, 1_000) == 0
    assert near.most_apart(0.1, 10_000) == pytest.approx(1.0)


def test_a_column_that_is_nearly_the_cause_makes_a_block_hardly_different(near):
    apart = [
        near.most_apart(near.Laws.of(sigma, 0.45, squares).information, ROWS_OF_A_BLOCK) for sigma in (0.4, 0.2, 0.1)
    ]
    assert apart[0] > apart[1] > apart[2]
    assert apart[1] < 0.1
    # and of this law not even all of a table of 10,000 rows always tells
    assert near.most_apart(near.Laws.of(0.2, 0.45, squares).information, 10_000) < 0.5


def test_blocks_vote_on_a_hidden_cause_as_on_the_causal_pair_next_to_it(near):
    laws = near.Laws.of(0.2, 0.2, squares)
    found = near.votes(laws, 2, np.random.default_rng(5))
    assert found["rows of a block"] == ROWS_OF_A_BLOCK
    chance = 4 * math.sqrt(0.25 * 2 / found["blocks"])
    apart = near.most_apart(laws.information, found["rows of a block"])
    assert found["causal"]["for"] > 0.7  # it is a pair with a direction, and that is told
    assert abs(found["hidden"]["for"] - found["causal"]["for"]) <= apart + chance
    assert found["hidden"]["verdicts"] == found["causal"]["verdicts"] == 2


def test_where_noise_is_not_small_blocks_may_tell(near):
    laws = near.Laws.of(1.0, 0.2, lambda z: np.tanh(2 * z))
    found = near.votes(laws, 2, np.random.default_rng(5))
    assert near.most_apart(laws.information, found["rows of a block"]) > 0.99
    assert found["hidden"]["against"] - found["causal"]["against"] > 0.1


def test_the_largest_noise_that_is_still_alike_is_where_the_bound_says_so_and_falls_with_the_rows(near):
    found = [near.alike(squares, 0.45, rows) for rows in (500, 10_000, 100_000)]
    assert found[0] > found[1] > found[2] > 0.05
    for sigma, rows in zip(found, (500, 10_000, 100_000), strict=True):
        below, above = (near.most_apart(near.Laws.of(s * sigma, 0.45, squares).information, rows) for s in (1, 1.05))
        assert below <= near.ALIKE < above


def test_the_gate_that_was_tried_tells_what_depends(near):
    rng = np.random.default_rng(2)
    x = rng.normal(size=10_000)
    assert not near.depends(x, x**2 + (0.3 + 0.1 * np.abs(x)) * rng.normal(size=x.size))
    assert near.depends(x, x**2 + np.where(x > 0, rng.exponential(size=x.size), -rng.exponential(size=x.size)))
