r"""The most that samples can show: for known laws, what the best of all tests would find.

A method whose bound is right with probability 1 - α at every ε is, for each ε, a test of level α of "ε holds". Against
the true laws P₀, P₁ no such test has more power than the likelihood ratio test of one pair (Q₀, Q₁) for which ε holds
(Neyman and Pearson); the pair nearest to the truth is taken, the one whose log likelihood ratio is the truth's clipped
at ±ε, up to norming. So the chance that *any* method's bound reaches ε is at most that power, and the ceiling, the ε
at which the power is one half, is the largest median of any bound. Laws are exact up to a fine grid, powers up to the
central limit theorem for ten million runs; it does not matter how a method chooses events, or bets by the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, expon, laplace, norm

Floats = NDArray[np.float64]

GRID = np.linspace(-750.0, 750.0, 15_001)
STEP = float(GRID[1] - GRID[0])
Pair = tuple[Floats, Floats]


def ceiling(laws: Pair, *, runs: int, confidence: float) -> float:
    """Return the largest ε that a lower bound can reach with probability one half."""
    low, high = 0.0, 20.0
    laws = by_ratio(laws)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if power(laws, middle, runs=runs, confidence=confidence) >= 0.5 else (low, middle)
    return low


def power(laws: Pair, epsilon: float, *, runs: int, confidence: float) -> float:
    """Return the largest chance that any lower bound of this confidence reaches ``epsilon``."""
    first, second = laws
    null = nearest_private(laws, epsilon)
    steps = [np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300)) for p, q in zip(laws, null, strict=True)]

    def moments(one: Floats, other: Floats) -> tuple[float, float]:
        mean = 0.5 * float(one @ steps[0] + other @ steps[1])
        spread = 0.5 * float(one @ steps[0] ** 2 + other @ steps[1] ** 2) - mean**2
        return runs * mean, math.sqrt(max(runs * spread, 1e-300))

    (mean, spread), (null_mean, null_spread) = moments(first, second), moments(*null)
    if mean < 1e-3:  # nats in all: nothing can tell the two apart
        return 1 - confidence
    return float(norm.cdf((mean - null_mean - norm.ppf(confidence) * null_spread) / spread))


def nearest_private(laws: Pair, epsilon: float) -> Pair:
    """Return the two laws for which ``epsilon`` holds that are nearest to the given ones in likelihood.

    Where the ratio is allowed, both are scaled by constants; where it is too large, the two share their mass at the
    largest ratio allowed. The constants make both add up to 1.
    """
    first, second = laws
    most, one, two = math.exp(epsilon), 1.0, 1.0
    for _ in range(500):
        up, down = second / two > most * first / one, first / one > most * second / two
        low = np.where(up, (first + second) / (two * most + one), first / one)
        high = np.where(down, (first + second) / (two + one * most), second / two)
        low, high = np.where(down, most * high, low), np.where(up, most * low, high)
        one, two = one * float(low.sum()), two * float(high.sum())
        if abs(low.sum() - 1) + abs(high.sum() - 1) < 1e-13:
            break
    return low / low.sum(), high / high.sum()


def by_ratio(laws: Pair) -> Pair:
    """Return two laws over cells of like ratio, which lose nothing that a test could use."""
    first, second = (law.ravel() / law.sum() for law in laws)
    some = first + second > 1e-15
    first, second = first[some], second[some]
    ratio = np.clip(np.log((second + 1e-300) / (first + 1e-300)), -25, 25)
    _, place = np.unique(np.round(ratio / 1e-4), return_inverse=True)
    return np.bincount(place, weights=first), np.bincount(place, weights=second)


def both(one: Floats, other: Floats) -> Floats:
    """Return the law of two independent outputs."""
    return np.asarray(np.outer(one, other).ravel())


def laplace_law(mean: float, scale: float) -> Floats:
    """Return one number with Laplace noise."""
    return np.asarray(laplace.pdf(GRID - mean, scale=scale) * STEP)


def snapped_law(mean: float, scale: float, *, grid: float, bound: float) -> Floats:
    """Return one number with Laplace noise, rounded to a grid and clamped."""
    values = np.arange(-round(bound / grid), round(bound / grid) + 1) * grid  # nothing differs beyond the bound
    edges = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    return np.asarray(np.diff(laplace.cdf(edges, loc=mean, scale=scale)))


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
