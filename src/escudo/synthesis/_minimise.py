r"""The least value of a function with a known slope: L-BFGS, for thousands of small problems in a row.

The step length is found by bisection until it meets the weak Wolfe conditions, which also works where the slope jumps,
as that of a maximum does. Written here because the same in scipy spends most of its time outside the function, and its
BLAS starts threads for matrices of 20 × 20: on a busy machine that made a fit twenty times slower.

**Reference.** J. Nocedal, S. Wright (2006), *Numerical Optimization*, Algorithm 7.4; A. Lewis, M. Overton (2013),
"Nonsmooth optimization via quasi-Newton methods", Algorithm 2.6, for the step length.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["minimise"]

Floats: TypeAlias = NDArray[np.float64]
Sloped: TypeAlias = Callable[[Floats], tuple[float, Floats]]

_MEMORY = 10
_ITERATIONS = 500
_BISECTIONS = 30
_DECREASE, _FLATTENING = 1e-4, 0.9
_STOP = 1e-10  # of the value, between two steps
_FLAT = 1e-6  # of the slope


def minimise(function: Sloped, start: Floats) -> Floats:
    """Return where ``function`` is least, as far as going down from ``start`` leads.

    Args:
        function: Takes a point of shape (n,), gives the value there and the slope, of shape (n,).
        start: Where to begin.

    >>> minimise(lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3)), np.zeros(2)).round(6)
    array([3., 3.])
    """
    point = np.array(start, dtype=np.float64)
    value, slope = function(point)
    steps: deque[tuple[Floats, Floats, float]] = deque(maxlen=_MEMORY)
    for _ in range(_ITERATIONS):
        if np.abs(slope).max(initial=0.0) <= _FLAT:
            break
        direction = -_flattened(slope, steps)
        found = _step(function, point, value, slope, direction)
        if found is None:
            break
        change, (new_value, new_slope) = found
        turn = new_slope - slope
        curvature = float(change @ turn)
        if curvature > 0:
            steps.append((change, turn, curvature))
        done = value - new_value <= _STOP * max(abs(value), 1.0)
        point, value, slope = point + change, new_value, new_slope
        if done:
            break
    return point


def _flattened(slope: Floats, steps: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Return the slope times the inverse curvature that the last steps showed."""
    if not steps:
        return slope / max(float(np.linalg.norm(slope)), 1.0)
    left, shares = slope.copy(), []
    for change, turn, curvature in reversed(steps):
        share = float(change @ left) / curvature
        left -= share * turn
        shares.append(share)
    _, turn, curvature = steps[-1]
    left *= curvature / float(turn @ turn)
    for (change, turn, curvature), share in zip(steps, reversed(shares), strict=True):
        left += (share - float(turn @ left) / curvature) * change
    return left


def _step(
    function: Sloped, point: Floats, value: float, slope: Floats, direction: Floats
) -> tuple[Floats, tuple[float, Floats]] | None:
    """Return how far to go along ``direction``, and value and slope there; None if nothing goes down."""
    along = float(direction @ slope)
    low, high, length = 0.0, math.inf, 1.0
    best: tuple[Floats, tuple[float, Floats]] | None = None
    for _ in range(_BISECTIONS):
        there = function(point + length * direction)
        if there[0] > value + _DECREASE * length * along:
            high = length
        else:
            best = length * direction, there
            if float(there[1] @ direction) >= _FLATTENING * along:
                break
            low = length
        length = 2 * low if high == math.inf else (low + high) / 2
    return best
