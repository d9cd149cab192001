"""Log ratios of probabilities, with the conventions for zeros that ``a <= e^eps * b`` itself implies.

``a > 0 = b`` is infinite, ``0 / 0`` is skipped (nothing to compare), ``0 / b`` is never the maximum. Zero means exactly
zero: nothing is rounded or thresholded. Laws are kept as natural logarithms, where a probability such as e^-1000 is
small and not zero, and where a ratio is a difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError

__all__ = ["Array", "average", "largest_log_ratio", "log_of", "probabilities", "spread"]

Array = NDArray[np.float64]

_SUM_TOLERANCE = 1e-9


def spread(top: Array, low: Array) -> Array:
    """Return ``top - low`` entrywise for logarithms ``top >= low``, and 0 where both probabilities are zero."""
    with np.errstate(invalid="ignore"):
        return np.where(top > -np.inf, top - low, 0.0)


def largest_log_ratio(logs: Array) -> tuple[float, tuple[int, int, int, int]]:
    """Return the largest ``logs[k, x1, y] - logs[k, x2, y]`` and its ``(k, x1, x2, y)``.

    Args:
        logs: Shape (alternatives, x, y): for each alternative and each x, the logarithms of a law over y. Only laws of
            the same alternative are compared.
    """
    if logs.size == 0:
        return 0.0, (0, 0, 0, 0)
    found = spread(logs.max(axis=1), logs.min(axis=1))
    k, y = (int(i) for i in np.unravel_index(int(found.argmax()), found.shape))
    return float(found[k, y]), (k, int(logs[k, :, y].argmax()), int(logs[k, :, y].argmin()), y)


def average(log_weights: Array, logs: Array) -> Array:
    """Return ``log sum_r w[r] p[r, o]`` for every o, from logarithms and back to them."""
    peak, high = log_weights.max(), logs.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.where(high > -np.inf, np.exp(logs - high), 0.0)
        result = np.asarray(np.log(np.exp(log_weights - peak) @ scaled) + peak + high)
    # Where weights and laws are far apart even the scaled products underflow: those sums are done term by term.
    for o in np.flatnonzero(~(result > peak + high - 600.0)):
        result[o] = np.logaddexp.reduce(log_weights + logs[:, o])
    return result


def log_of(values: Array) -> Array:
    """Return natural logarithms, minus infinity for zero."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def probabilities(name: str, values: Any, *, axis: int | None) -> Array:
    """Return ``values`` as floats, or raise unless they are probabilities that sum to 1 over ``axis`` (None: all).

    Fractions are accepted; the array is a read-only copy.
    """
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}.") from None
    if array.ndim == 0 or array.size == 0 or not np.isfinite(array).all():
        raise InputError(f"{name} must be a non-empty array of finite numbers; got shape {array.shape}.")
    if (array < 0).any():
        raise InputError(f"{name} has a negative entry ({array.min():g}); probabilities are at least 0.")
    sums = np.asarray(array.sum(axis=axis))
    worst = np.unravel_index(int(np.abs(sums - 1).argmax()), sums.shape)
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        where = f" in row {tuple(int(i) for i in worst)}" if sums.ndim else ""
        raise InputError(f"{name} must sum to 1{where}; it sums to {sums[worst]:.12g}.")
    array.flags.writeable = False
    return array
