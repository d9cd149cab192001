r"""How often levels occur, from noisy counts of them: what each was seen to be, and what levels are like in the table.

Where rows are few for the noise, most of what a count shows of a rare level is noise. All levels of all columns
together show how rare levels are here, and that tells of each of them. Post-processing: nothing is released for it.

**A law of shares** (:func:`likely_shares`), learnt from all levels. What is alike in columns of few and of many levels
is how many times as large as an even share one is: so the law is one of log-odds less those of 1/k, with k the levels
of the column. It is a histogram in bins of a fifth, found by expectation maximisation and smoothed in each step, so
that it does not settle on what a few levels happened to show; a normal law counts as eight levels besides. A level has
the mean share under that law given what was seen of it. (The most likely share under a law that is fixed had been three
to five times too large for what is rare: log-odds of -1 and of -8 are far apart for such a law, and the same for a
noisy count.)

**Limits** (:func:`likely_margins`). A level that is unlike the others would be taken for one of them. In a column of k
levels no share is therefore moved further than cσ from what was seen, with σ its noise and

.. math:: c = \max(1, Φ^{-1}(1 - 4/k)),

but for what is below -cσ, which becomes 0 (Efron and Morris: *limited translation*). Up to 25 levels c is 1; in larger
columns it is so that of k levels without rows no more than about four are seen above cσ. So the mean of a share over
many releases is off by no more than

.. math:: cσ + \mathrm{E}(-y - cσ)_+ \le 1.09\,cσ

whatever the law is, and hardly ever by as much. Within their limits, shares of a column are then moved until they add
up to 1, each in proportion to the variance that is left in it. Where even the lowest limits add up to more, shares are
lowered by the same, down to 0.

**Reference.** B. Efron, C. Morris (1971, 1972), "Limiting the risk of Bayes and empirical Bayes estimators", JASA;
B. Silverman et al. (1990), "A smoothed EM approach to indirect estimation problems", JRSS B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

Floats: TypeAlias = NDArray[np.float64]

_EDGES = np.linspace(-12.0, 12.0, 121)  # of bins of log-odds less those of an even share; shares are even in each
_FIRST = 2.0  # standard deviation of these before any share is seen,
_FIRST_KNOWN = 8.0  # which counts as so many levels
_SMOOTH = 0.4  # standard deviation
_ROUNDS = 60
_TOGETHER = 2**14
_FAR = 5.0  # standard deviations
_ABOVE = 4.0  # levels without rows that are seen above the limit
_HALVINGS = 100


def likely_shares(seen: Floats, noise: Floats, sizes: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the mean share of each level given its noisy one, and the variance left, under a law learnt from all.

    Args:
        seen: The noisy shares, of any sign.
        noise: The standard deviation of the noise in each, above 0.
        sizes: How many levels its column has, two or more.

    >>> rare, _ = likely_shares(np.array([0.03, -0.04, 0.01, -0.01, 0.02, 0.4]), np.full(6, 0.03), np.full(6, 2))
    >>> bool(rare[:5].max() < 0.03), bool(0.35 < rare[5] < 0.42)
    (True, True)
    """
    near, even = np.clip(seen, -_FAR * noise, 1.0 + _FAR * noise), -np.log(sizes - 1.0)
    middle = (_EDGES[1:] + _EDGES[:-1]) / 2
    law = first = _of_one(np.exp(-((middle / _FIRST) ** 2) / 2))
    smooth = _of_one(np.exp(-(((middle[:, None] - middle) / _SMOOTH) ** 2) / 2))
    some = np.unique(np.linspace(0, seen.size - 1, _TOGETHER).astype(np.int64)) if seen.size else np.arange(0)
    told, _, _ = _in_bins(near[some], noise[some], even[some])
    free = 1 - 1 / sizes[some]  # of two levels that add up to 1, each is half a number
    for _ in range(_ROUNDS):
        each = free / (told @ law)
        law = (_FIRST_KNOWN * first + smooth @ (law * (each @ told))) / (_FIRST_KNOWN + free.sum())
    mean, left = np.empty(seen.size), np.empty(seen.size)
    for start in range(0, seen.size, _TOGETHER):
        part = slice(start, start + _TOGETHER)
        told, means, within = _in_bins(near[part], noise[part], even[part])
        joint = told * law
        joint /= joint.sum(axis=1, keepdims=True)
        mean[part] = (joint * means).sum(axis=1)
        left[part] = (joint * ((means - mean[part, None]) ** 2 + within)).sum(axis=1)
    return mean, left


def _of_one(weights: Floats) -> Floats:
    scaled: Floats = weights / weights.sum(axis=0)
    return scaled


def _in_bins(seen: Floats, noise: Floats, even: Floats) -> tuple[Floats, Floats, Floats]:
    """Return how likely each noisy share is if the share is in a bin, to a factor; its mean then, about its variance.

    ``even`` has the log-odds of an even share.
    """
    edges = expit(_EDGES + even[:, None])
    edges[:, 0], edges[:, -1] = 0.0, 1.0
    from_seen = (edges - seen[:, None]) / noise[:, None]
    low, high = from_seen[:, :-1], from_seen[:, 1:]
    upper = low > 0  # the far side of a normal law is exact only by its own tail
    mass = np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    density = np.exp(-(from_seen**2) / 2) / math.sqrt(2 * math.pi)
    fall = density[:, :-1] - density[:, 1:]
    means = seen[:, None] + noise[:, None] * np.divide(fall, mass, out=np.zeros_like(fall), where=mass > 0)
    width = np.diff(edges)
    within = np.minimum(width**2 / 12, noise[:, None] ** 2)
    return mass / width, np.clip(means, edges[:, :-1], edges[:, 1:]), within


def likely_margins(sums: Mapping[str, Floats], noise: Mapping[str, Floats], total: float) -> dict[str, Floats]:
    """Return how many rows have each level of each column: not negative, and for each column the total.

    Args:
        sums: The noisy counts of the levels of each column.
        noise: The standard deviation of the noise in each of them, above 0, as if all were independent.
        total: The number of rows.

    >>> seen = {"a": np.array([60.0, 45.0, -5.0]), "b": np.array([40.0, 64.0])}
    >>> found = likely_margins(seen, {"a": np.full(3, 10.0), "b": np.full(2, 10.0)}, total=100.0)
    >>> {name: margin.round(1).tolist() for name, margin in found.items()}
    {'a': [55.5, 41.3, 3.2], 'b': [37.9, 62.1]}
    """
    found = {name: np.array([total]) for name, levels in sums.items() if levels.size == 1}
    names = [name for name in sums if name not in found]
    if not names:
        return found
    sizes = np.array([sums[name].size for name in names])
    starts, column = np.cumsum(sizes) - sizes, np.repeat(np.arange(sizes.size), sizes)
    levels = sizes[column]

    def added(shares: Floats) -> Floats:
        each: Floats = np.add.reduceat(shares, starts)[column]
        return each

    # What columns add up to is known: that takes its part of the noise.
    rows = max(total, 1.0)
    seen = np.concatenate([sums[name] for name in names]) / rows
    seen = seen + (1 - added(seen)) / levels
    sigma = np.concatenate([noise[name] for name in names]) / rows * np.sqrt(1 - 1 / levels)
    mean, left = likely_shares(seen, sigma, levels)
    nearest = np.concatenate([nearest_margins(part[None], 1.0)[0] for part in np.split(seen, starts[1:])])
    limit = sigma * np.maximum(ndtri(1 - np.minimum(_ABOVE / levels, 0.5)), 1.0)
    least, most = np.minimum(np.maximum(seen - limit, 0.0), nearest), np.maximum(seen + limit, 0.0)
    left = np.maximum(left, 1e-6 * sigma**2)
    low, high = -added(1 / left), added(1 / left)
    for _ in range(_HALVINGS):
        shift = (low + high) / 2
        above = added(np.clip(mean + shift * left, least, most)) > 1
        low, high = np.where(above, low, shift), np.where(above, shift, high)
    shares = np.clip(mean + high * left, least, most)
    parts = np.split(total * shares / added(shares), starts[1:])
    found |= zip(names, parts, strict=True)
    return {name: found[name] for name in sums}


def nearest_margins(sums: Floats, total: float) -> Floats:
    """Return for each row of sums the nearest that is not negative and adds up to the total."""
    nearest: Floats = np.maximum(sums - shifts_of(sums, np.full(len(sums), total))[:, None], 0.0)
    return nearest


def shifts_of(rows: Floats, sums: Floats) -> Floats:
    """Return for each row the number that, subtracted before what is negative is cut off, leaves it this sum."""
    falling = -np.sort(-rows, axis=1)
    above = (np.cumsum(falling, axis=1) - sums[:, None]) / np.arange(1, rows.shape[1] + 1)
    last = np.maximum((falling > above).sum(axis=1), 1) - 1
    found: Floats = above[np.arange(len(rows)), last]
    return found
