"""Guesses: in which cells to say "second dataset", in which "first", and what that is worth."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import Belief

__all__ = ["Guess", "best_guesses", "cautious_worth", "seen_worth"]

Floats = NDArray[np.float64]
Guess = NDArray[np.int8]

_NOW = 0.7  # standard errors of what is believed now,
_THEN = 1.4  # and of what will be counted in the end, by which the log ratio of guesses is lowered


def best_guesses(belief: Belief, order: NDArray[np.intp], *, delta: float, ahead: float) -> tuple[float, Guess]:
    """Return a guess per cell that promises the best bound after ``ahead`` more runs, and the bound that it promises.

    "First" is guessed at the lower end of the order and "second" at the upper; with δ > 0, at one of the two ends.

    Args:
        belief: What is believed of the cells, in their own numbering.
        order: The cells in the order in which ends are made of them.
        delta: The δ of the claim.
        ahead: How many runs the bound will have.
    """
    runs, level = belief.runs[order], belief.level[order]
    cells, total = runs.size, max(float(runs.sum()), 1.0)
    share = 1 / (1 + np.exp(-level))
    later = runs * (ahead / total)
    below = np.concatenate([np.zeros((1, 2)), np.cumsum(np.stack([later * (1 - share), later * share], 1), axis=0)])
    above = below[-1] - below
    # How the counts of a set move with the levels of its cells.
    moved = later * share * (1 - share)
    square = np.zeros((cells + 1, cells + 1))
    square[1:, 1:] = (moved[:, None] * belief.spread[np.ix_(order, order)] * moved).cumsum(axis=0).cumsum(axis=1)
    lower = np.diag(square)
    upper = square[-1, -1] - 2 * square[-1] + lower
    guess = np.zeros(cells, dtype=np.int8)
    if delta:
        up = _worth(above[:, 1], above[:, 0], upper, delta * ahead / 2)
        down = _worth(below[:, 0], below[:, 1], lower, delta * ahead / 2)
        side, found = (1, up) if up.max() >= down.max() else (-1, down)
        at = int(found.argmax())
        guess[order[at:] if side > 0 else order[:at]] = side
        return float(found.max()), guess
    right = below[:, None, 0] + above[None, :, 1]  # "first" below cell i, "second" from cell j on
    wrong = below[:, None, 1] + above[None, :, 0]
    across = square[:, -1:] - square  # of the cells below i with those from j on
    worth = _worth(right, wrong, lower[:, None] + upper[None, :] - 2 * across, 0.0)
    ends = np.arange(cells + 1)
    worth[ends[:, None] > ends[None, :]] = -math.inf
    low, high = np.unravel_index(int(worth.argmax()), worth.shape)
    guess[order[:low]], guess[order[high:]] = -1, 1
    return float(worth[low, high]), guess


def cautious_worth(belief: Belief, guess: Guess, *, delta: float, ahead: float, errors: float) -> float:
    """Return the bound that a guess per cell promises, lowered by more standard errors than in :func:`best_guesses`.

    Args:
        belief: What is believed of the cells.
        guess: What is guessed in each.
        delta: The δ of the claim.
        ahead: How many runs the bound will have.
        errors: Standard errors of what is believed now.
    """
    share = 1 / (1 + np.exp(-belief.level))
    later = belief.runs * (ahead / max(float(belief.runs.sum()), 1.0))
    second, first = later * share, later * (1 - share)
    up, down = guess > 0, guess < 0
    right, wrong = second[up].sum() + first[down].sum(), first[up].sum() + second[down].sum()
    moved = guess * later * share * (1 - share)
    slack = delta * ahead / 2
    return float(_worth(right, wrong, moved @ belief.spread @ moved, slack, now=errors))


def seen_worth(right: float, wrong: float, *, runs: float, delta: float, ahead: float, errors: float) -> float:
    """Return the bound that guesses promise which were right and wrong so often in runs that did not choose them.

    Args:
        right: How many were right.
        wrong: How many were wrong.
        runs: Of so many runs.
        delta: The δ of the claim.
        ahead: How many runs the bound will have.
        errors: Standard errors of what was seen by which it is lowered.
    """
    later = ahead / max(runs, 1.0)
    square = (right + 0.5) * (wrong + 0.5) / (right + wrong + 1) * later**2  # the variance of guesses that are right
    return float(_worth(right * later, wrong * later, square, delta * ahead / 2, now=errors))


def _worth(
    right: Floats | float, wrong: Floats | float, square: Floats | float, slack: float, *, now: float = _NOW
) -> Floats:
    """Return the log ratio of right to wrong guesses less standard errors, those of what is believed and of counts."""
    left = np.maximum(right - slack, 1e-9) + 0.5
    other = wrong + 0.5
    unsure = (1 / left + 1 / other) * np.sqrt(np.maximum(square, 0.0))
    counted = np.sqrt((right + 0.5) / left**2 + 1 / other)
    worth = np.log(left / other) - now * unsure - _THEN * counted
    return np.where(right + wrong > 0, worth, -math.inf)
