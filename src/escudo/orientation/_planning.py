r"""What a noisy sum of votes is worth, and what would be needed: from public numbers alone.

The k blocks' own margin V (votes for x->y minus votes for y->x) is somewhere in {-k, ..., k}; released is v = V + Z
with noise such as discrete Laplace, :math:`P(Z = z) \propto e^{-|z|/b}`. Before anything is known about the pair every
V counts as equally likely, and then

.. math:: P(V > 0 \mid v) + \tfrac12 P(V = 0 \mid v), \qquad P(V \mid v) \propto e^{-|v - V|/b}

is how sure the sign of v is. A huge v does not help: V is at most k, and where b is as large as k every v leaves doubt.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from escudo._validate import finite, positive, positive_integer

Law = Literal["laplace", "gaussian"]

__all__ = [
    "CONFIDENCE",
    "SMALLEST",
    "TYPICAL_MARGIN",
    "Law",
    "blocks_needed",
    "epsilon_needed",
    "least_margin",
    "rows_needed",
    "sign_probability",
]

CONFIDENCE = 0.9
"""By default a verdict is given only where its sign is at least this sure."""

SMALLEST = 32
"""Records in a block, planned; a block that has fewer than half of these complete votes 0."""

TYPICAL_MARGIN = 0.6
"""The part of the blocks that a clear pair leaves as margin, for "how many rows would be needed"."""


def sign_probability(margin: float, blocks: int, scale: float, *, law: Law = "laplace") -> float:
    """Return the probability that the blocks' own margin has the sign of the released one.

    Args:
        margin: The released margin.
        blocks: How many blocks voted.
        scale: Scale of the noise: of the Laplace law, or the Gaussian's standard deviation.
        law: Which of the two.

    Raises:
        InputError: If a number is out of range.

    >>> round(sign_probability(18.0, 20, 2.0), 4), round(sign_probability(18.0, 20, 40.0), 2)
    (0.9999, 0.62)
    """
    positive_integer("blocks", blocks)
    positive("scale", scale)
    size = min(math.floor(abs(finite("margin", margin))), blocks)  # beyond the largest margin nothing changes any more
    if law == "laplace":  # geometric sums over V > 0, V = 0 and V < 0, all times 1 - e^(-1/b)
        ratio = math.exp(-1 / scale)
        above = -math.expm1(-size / scale) - ratio * math.expm1(-(blocks - size) / scale)
        zero = -math.exp(-size / scale) * math.expm1(-1 / scale)
        below = -math.exp(-(size + 1) / scale) * math.expm1(-blocks / scale)
    else:
        weights = np.exp(-(((size - np.arange(-blocks, blocks + 1)) / scale) ** 2) / 2)
        below, zero, above = (float(part.sum()) for part in np.split(weights, (blocks, blocks + 1)))
    return (above + zero / 2) / (above + zero + below)


def least_margin(blocks: int, scale: float, *, law: Law = "laplace", confidence: float = CONFIDENCE) -> int | None:
    """Return the least whole margin whose sign is sure enough, or None if there is none.

    >>> least_margin(20, 2.0), least_margin(20, 40.0)
    (4, None)
    """
    if sign_probability(blocks, blocks, scale, law=law) < confidence:
        return None
    low, high = 0, blocks
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sign_probability(middle, blocks, scale, law=law) >= confidence else (middle, high)
    return high


def blocks_needed(epsilon: float, *, sensitivity: float = 2.0) -> int:
    """Return how many blocks a clear pair needs for a verdict at this ε."""
    scale = sensitivity / positive("epsilon", epsilon)
    count = 4
    while sign_probability(TYPICAL_MARGIN * count, count, scale) < CONFIDENCE:
        count = count + 1 + count // 16
    return count


def rows_needed(epsilon: float, *, sensitivity: float = 2.0) -> int:
    """Return about how many rows a clear pair needs for a verdict at this ε.

    >>> rows_needed(1.0), rows_needed(0.1)
    (224, 1984)
    """
    return SMALLEST * blocks_needed(epsilon, sensitivity=sensitivity)


def epsilon_needed(rows: int, *, sensitivity: float = 2.0) -> float:
    """Return about which ε a clear pair of this many rows needs for a verdict, rounded up to two digits."""
    positive_integer("rows", rows)
    low, high = 1e-6, 100.0
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if rows_needed(middle, sensitivity=sensitivity) <= rows else (middle, high)
    step = 10.0 ** (math.floor(math.log10(high)) - 1)
    return math.ceil(high / step) * step
