"""Guesses: in which cells to say "second dataset", in which "first", and what that is worth."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._stakes import sets_of

__all__ = ["best_guesses", "worth_of"]

Floats = NDArray[np.float64]
Guess = NDArray[np.int8]


def best_guesses(counts: Floats, order: NDArray[np.intp], *, delta: float, caution: float) -> tuple[float, Guess]:
    """Return what promises the largest log ratio less ``caution`` standard errors: that promise, and a guess per cell.

    "First" is guessed at the lower end of the order and "second" at the upper; with δ > 0, at one of the two ends.

    Args:
        counts: Runs per cell and dataset, shape (cells, 2), in the cells' own numbering.
        order: The cells in the order in which ends are made of them.
        delta: The δ of the claim.
        caution: How many standard errors to subtract.
    """
    guess = np.zeros(len(counts), dtype=np.int8)
    if delta:
        members, first, second = sets_of(counts[order])
        n_first, n_second = counts.sum(axis=0)
        up = _log_ratio(second, first, n_second, n_first, delta, caution)
        down = _log_ratio(first, second, n_first, n_second, delta, caution)
        side, found = (1, up) if up.max() >= down.max() else (-1, down)
        guess[order[members[int(found.argmax())]]] = side
        return float(found.max()), guess
    cells = len(counts)
    below = np.concatenate([np.zeros((1, 2)), np.cumsum(counts[order], axis=0)])  # runs in the first k cells
    above = below[-1] - below
    right = below[:, None, 0] + above[None, :, 1]  # "first" below cell i, "second" from cell j on
    wrong = below[:, None, 1] + above[None, :, 0]
    worth = np.log((right + 0.5) / (wrong + 0.5)) - caution * np.sqrt(1 / (right + 0.5) + 1 / (wrong + 0.5))
    ends = np.arange(cells + 1)
    worth[ends[:, None] > ends[None, :]] = -math.inf
    low, high = np.unravel_index(int(worth.argmax()), worth.shape)
    guess[order[:low]], guess[order[high:]] = -1, 1
    return float(worth[low, high]), guess


def worth_of(guess: Guess, counts: Floats, *, delta: float, caution: float) -> float:
    """Return the log ratio of guesses in some runs, less ``caution`` standard errors."""
    up, down = counts[guess > 0].sum(axis=0), counts[guess < 0].sum(axis=0)
    right, wrong = float(up[1] + down[0]), float(up[0] + down[1])
    if not delta:
        return math.log((right + 0.5) / (wrong + 0.5)) - caution * math.sqrt(1 / (right + 0.5) + 1 / (wrong + 0.5))
    totals = counts.sum(axis=0)[[1, 0] if (guess > 0).any() else [0, 1]]
    return float(_log_ratio(np.array(right), np.array(wrong), float(totals[0]), float(totals[1]), delta, caution))


def _log_ratio(right: Floats, wrong: Floats, n_right: float, n_wrong: float, delta: float, caution: float) -> Floats:
    rate = np.maximum((right + 0.5) / (n_right + 1) - delta, 1e-300)
    ratio = np.log(rate) - np.log((wrong + 0.5) / (n_wrong + 1))
    return np.asarray(ratio - caution * np.sqrt(1 / (right + 0.5) + 1 / (wrong + 0.5)))
