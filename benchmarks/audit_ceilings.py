"""The most that samples can show: for known laws, what the best test with the best event known beforehand would find.

A lower bound on ε from n runs cannot, in expectation, exceed the log ratio of some event's probabilities by less than
its standard error times the quantile of the confidence: that ceiling holds for every method. Laws are exact up to a
fine grid; the event is the best of all sets of largest likelihood ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, expon, laplace, norm

Floats = NDArray[np.float64]

GRID = np.linspace(-1500.0, 1500.0, 30_001)
STEP = float(GRID[1] - GRID[0])


def ceiling(first: Floats, second: Floats, *, runs: int, confidence: float) -> float:
    """Return the largest bound to expect from two laws over the same outcomes, half of the runs under each."""
    z, best = float(norm.ppf(confidence)), 0.0
    for one, other in ((first, second), (second, first)):
        order = np.argsort(-np.log((one + 1e-300) / (other + 1e-300)))
        likely, rare = np.cumsum(one[order]), np.cumsum(other[order])
        enough = likely * runs / 2 > 50  # so that a standard error means something
        ratio = np.log(likely[enough] / np.maximum(rare[enough], 1e-12))
        error = np.sqrt(2 / runs * (1 / likely[enough] + 1 / np.maximum(rare[enough], 2 / runs)))
        best = max(best, float((ratio - z * error).max(initial=0.0)))
    return best


def laplace_law(mean: float, scale: float) -> Floats:
    """Return one number with Laplace noise."""
    return np.asarray(laplace.pdf(GRID - mean, scale=scale) * STEP)


def signs_law(count: int, epsilon: float, *, second: bool) -> Floats:
    """Return how many of ``count`` independent outputs, each worth ±ε, point to the second dataset."""
    right = 1 / (1 + math.exp(-epsilon))
    return np.asarray(binom.pmf(np.arange(count + 1), count, right if second else 1 - right))


def argmax_law(answers: Sequence[float], scale: float, *, exponential: bool = False) -> Floats:
    """Return which of several noisy answers is the largest."""
    noise = expon if exponential else laplace
    below = np.array([noise.cdf(GRID - answer, scale=scale) for answer in answers])
    found = []
    for place, answer in enumerate(answers):
        others = np.delete(below, place, axis=0).prod(axis=0)
        found.append(float((noise.pdf(GRID - answer, scale=scale) * others).sum() * STEP))
    return np.array(found)


def maximum_law(answers: Sequence[float], scale: float) -> Floats:
    """Return the largest of several answers with Laplace noise."""
    below = np.array([laplace.cdf(GRID - answer, scale=scale) for answer in answers]).prod(axis=0)
    return np.diff(below, prepend=0.0)


def sparse_vector_law(
    answers: Sequence[float],
    threshold_scale: float,
    query_scale: float,
    *,
    value_scale: float | None = None,
    compared: bool = False,
) -> Floats:
    """Return which answer is the first above a noisy threshold, with its value where one is released.

    Args:
        answers: The answers.
        threshold_scale: Noise on the threshold.
        query_scale: Noise on the answers.
        value_scale: Noise of its own on the value released; None if none is.
        compared: Whether the value released is the one that was compared.
    """
    level = laplace.pdf(GRID, scale=threshold_scale) * STEP
    all_below, found = np.ones_like(GRID), []
    for answer in answers:
        below = laplace.cdf(GRID - answer, scale=query_scale)
        if compared:
            found.append(np.cumsum(level * all_below) * laplace.pdf(GRID - answer, scale=query_scale) * STEP)
        else:
            chance = float((level * all_below * (1 - below)).sum())
            value = np.ones(1) if value_scale is None else laplace_law(answer, value_scale)
            found.append(chance * value)
        all_below = all_below * below
    return np.concatenate([*found, [float((level * all_below).sum())]])
