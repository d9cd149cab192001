r"""The best graph of all, by dynamic programming over sets of columns.

The best graph over a set has a column without children in it, so
:math:`V(M) = \max_{x \in M} V(M - x) + \max_{P \subseteq M - x} \mathrm{score}(x, P)`. All sets are worked through as
bits of a number, a whole layer at a time: 2^d · d² steps, a few milliseconds for ten columns and a second for sixteen.

**Reference.** T. Silander, P. Myllymäki (2006), "A simple approach for finding the globally optimal Bayesian network
structure", UAI.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._residuals import Floats

__all__ = ["MOST_COLUMNS", "best_graph"]

MOST_COLUMNS = 16


def best_graph(scores: Floats) -> tuple[tuple[int, ...], ...]:
    """Return each column's parents in a graph of the highest total score.

    Args:
        scores: At [x, m] the score of column x with the parents in the bits of m; minus infinity where not allowed.
            The best graph must have a finite score.
    """
    d = len(scores)
    sets = np.arange(1 << d)
    best = scores.copy()
    chosen = np.broadcast_to(sets, (d, 1 << d)).astype(np.int32)
    for bit in range(d):
        shape = (d, -1, 2, 1 << bit)  # the middle axis is whether the bit is set
        values, parents = best.reshape(shape), chosen.reshape(shape)
        better = values[:, :, 0] > values[:, :, 1]
        values[:, :, 1] = np.where(better, values[:, :, 0], values[:, :, 1])
        parents[:, :, 1] = np.where(better, parents[:, :, 0], parents[:, :, 1])
    total = np.full(1 << d, -np.inf)
    total[0] = 0.0
    last = np.zeros(1 << d, dtype=np.int8)
    for members in _layers(d):
        for x in range(d):
            held = members[(members >> x) & 1 == 1]
            without = held ^ (1 << x)
            value = total[without] + best[x, without]
            better = value > total[held]
            total[held] = np.where(better, value, total[held])
            last[held] = np.where(better, x, last[held])
    found: list[tuple[int, ...]] = [()] * d
    left = (1 << d) - 1
    while left:
        x = int(last[left])
        left ^= 1 << x
        bits = int(chosen[x, left])
        found[x] = tuple(column for column in range(d) if bits >> column & 1)
    return tuple(found)


def _layers(d: int) -> list[NDArray[np.int64]]:
    """Return all sets but the empty one, by how many members they have."""
    sets = np.arange(1 << d)
    members = np.zeros(1 << d, dtype=np.int64)
    for bit in range(d):
        members += sets >> bit & 1
    return [np.flatnonzero(members == count) for count in range(1, d + 1)]
