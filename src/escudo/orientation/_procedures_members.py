r"""Scores of a hypothesis that the committees are made of, and information geometry.

Every score judges one :class:`Hypothesis` (cause, effect) and is lower where it fits better.

**Reference.** Design note "pairs"; P. Blöbaum et al. (2018), "Cause-effect inference by comparing regression errors";
D. Janzing et al. (2012), "Information-geometric approach to inferring causal directions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from escudo.orientation._blocks import DEGREE, Blocks, Hypothesis, entropy
from escudo.orientation._casting import EQUAL

__all__ = ["MEMBERS", "Score", "binned", "difference", "igci", "mean", "mean_square", "signs"]

Floats = NDArray[np.float64]
Score = Callable[[Hypothesis], Floats]
"""One number per block, lower where the hypothesis fits better."""

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def anm_entropy(h: Hypothesis) -> Floats:
    """Return the entropy of the cause plus that of what a cubic leaves of the effect, both standardised."""
    return h.cause.entropy + entropy(np.sort(h.residual3, axis=1))


def regression_error(h: Hypothesis) -> Floats:
    """Return the mean squared residual of a cubic, both columns stretched to [-1, 1]."""
    return mean_square(h.effect.b - h.fitted("b", 3))


def rank_regression_error(h: Hypothesis) -> Floats:
    """Return the mean squared residual of a polynomial of degree 5 between ranks."""
    return mean_square(h.rank_residual)


def location_scale(h: Hypothesis) -> Floats:
    r"""Return the mean log size of the noise in :math:`y = f(x) + s(x) e`, f of degree 5 and log s of degree 3.

    The mean is fitted once more with weights 1/s², at most 20 times their mean, and the size once more to that.
    """
    weights = h.spread5**-2
    weights = np.minimum(weights / weights.mean(axis=1, keepdims=True), 20.0)
    residual = h.effect.z - h.refitted(weights, h.effect.z, DEGREE, h.ridge)
    return mean(np.log(h.spread_of(residual)))


def binned_quantiles(h: Hypothesis) -> Floats:
    """Return the mean pinball loss of five quantiles of the effect within bins of equally many causes.

    The losses come from running sums of the sorted effects: a quantile q with value v leaves q Σ(above - v) + (1 - q)
    Σ(v - below).
    """
    bins = int(np.clip(round(0.75 * h.n**0.45), 3, 24))
    cells = np.sort(binned(h.sorted_effect, bins), axis=2)
    size = cells.shape[2]
    sums = np.cumsum(cells, axis=2)
    loss = np.zeros(len(cells))
    for q in QUANTILES:
        low = int(q * (size - 1))
        high = min(low + 1, size - 1)
        value = cells[:, :, low] + (q * (size - 1) - low) * (cells[:, :, high] - cells[:, :, low])
        below, count = sums[:, :, low], low + 1
        above = sums[:, :, -1] - below
        loss += mean(q * (above - (size - count) * value) + (1 - q) * (count * value - below))
    average: Floats = loss / (len(QUANTILES) * size)
    return average


def binned(ordered: Floats, bins: int) -> Floats:
    """Return records, in the order of the cause, in bins of equal size; the surplus is cut from both ends."""
    size = ordered.shape[1] // bins
    start = (ordered.shape[1] - bins * size) // 2
    return ordered[:, start : start + bins * size].reshape(-1, bins, size)


def igci(h: Hypothesis) -> Floats:
    """Return the entropy of the effect less that of the cause, both stretched to [-1, 1]."""
    effect, cause = (entropy(np.take_along_axis(c.b, c.order, axis=1)) for c in (h.effect, h.cause))
    return effect - cause


def difference(score: Score, blocks: Blocks) -> Floats:
    """Return score(y->x) - score(x->y): above 0 where x->y fits better."""
    return score(blocks.backward) - score(blocks.forward)


def signs(differences: Floats) -> Floats:
    """Return the signs, 0 for what is within rounding errors of 0."""
    return np.where(np.abs(differences) < EQUAL, 0.0, np.sign(differences))


def mean(values: Floats) -> Floats:
    """Return the mean of every block."""
    means: Floats = values.mean(axis=1)
    return means


def mean_square(values: Floats) -> Floats:
    """Return the mean square of every block."""
    return mean(values * values)


MEMBERS: dict[str, Score] = {
    "entropy": anm_entropy,
    "regression": regression_error,
    "ranks": rank_regression_error,
    "location-scale": location_scale,
    "quantiles": binned_quantiles,
}
"""The scores of the committees: all five of them, or the first three."""
