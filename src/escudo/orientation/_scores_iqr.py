r"""Interquartile ranges: the score log IQR(a) + log IQR(b), and how far from another value it is, in changed records.

For m values, IQR = v_(h) - v_(l) with l = ⌈m/4⌉, h = ⌈3m/4⌉; H = ln IQR. The log scale is cut into bins of width w,
for two offsets. :func:`distance` is a lower bound on the number of records to change so that H leaves its bin,
where a record is one of the m values, or a *training* record that moves every value by at most R (``drift``), or
either.

**Definition.** A = least k ≥ 1 with smallest(k) - 2Rk or largest(k) + 2Rk outside the bin of H, where smallest(k) and
largest(k) are the extreme ranges after k of the m values are changed (both are the range itself if the values are
public). A = 1 where the range is 0 or below the lowest edge.

**Proposition (sensitivity 1; if some A ≥ 2, neighbours share that bin).** Let D' be a neighbour of D. If a value
was changed, smallest_{k-1}(D') ≥ smallest_k(D), because k changes lead from D wherever k - 1 lead from D'. If a
training record was changed, every order statistic moves by at most R, so smallest_{k-1}(D') ≥ smallest_{k-1}(D) -
2R ≥ smallest_k(D) - 2R. Either way smallest_{k-1}(D') - 2R(k-1) ≥ smallest_k(D) - 2Rk; likewise for largest. So if
D and D' share the bin, whatever k leaves room for D, k - 1 leaves room for D': A(D') ≥ A(D) - 1. If they do not
share it, k = 1 already leads out of both, and both distances are 1. ∎ With ``drift`` 0 it is the exact distance of
``escudo.mechanisms``.

Reference: C. Dwork, J. Lei (2009), "Differential privacy and robust statistics", Section 3; M. Kusner et al.
(2016), "Private Causal Inference", Sections 4.3 and 5.3; design note "sensitivities", Proposition 8.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms import LogIqr

__all__ = ["distance", "interquartile_range", "iqr_score", "log_iqr_with_drift"]

Floats = NDArray[np.float64]

_DEEP = 50.0  # bins reach down to e^-50 of the public range


def interquartile_range(values: Floats) -> float:
    """Return v_(⌈3m/4⌉) - v_(⌈m/4⌉).

    >>> interquartile_range(np.arange(1.0, 9.0))
    4.0
    """
    low, high = _quartiles(len(values))
    parted = np.partition(values, (low, high))
    return float(parted[high] - parted[low])


def iqr_score(a: Floats, b: Floats, *, least: float = 1e-3) -> float:
    """Return log IQR(a) + log IQR(b), ranges below ``least`` counting as that; lower speaks for a as the cause."""
    return math.log(max(interquartile_range(a), least)) + math.log(max(interquartile_range(b), least))


def log_iqr_with_drift(
    values: Floats, *, lower: float, upper: float, width: float, drift: float, values_private: bool
) -> LogIqr:
    """Return the log interquartile range and its distances for both offsets; all of it is private.

    Args:
        values: The column, clamped to [lower, upper].
        lower: Public lower bound.
        upper: Public upper bound.
        width: Width of the bins on the log scale.
        drift: Most that one training record moves any value; 0 if none does.
        values_private: Whether the records behind the values are private themselves.
    """
    ordered = np.sort(np.clip(values, lower, upper))
    low, high = _quartiles(len(ordered))
    spread = float(ordered[high] - ordered[low])
    first, second = (
        distance(
            ordered, lower=lower, upper=upper, width=width, offset=offset, drift=drift, values_private=values_private
        )
        for offset in (0.0, width / 2)
    )
    return LogIqr(value=math.log(spread) if spread > 0 else None, distances=(first, second), records=len(ordered))


def distance(
    ordered: Floats, *, lower: float, upper: float, width: float, offset: float, drift: float, values_private: bool
) -> int:
    """Return the distance A of the module's docstring for one way of cutting the log scale; ``ordered`` is sorted."""
    count = len(ordered)
    low, high = _quartiles(count)
    spread = float(ordered[high] - ordered[low])
    edges = _edges(upper - lower, width, offset)
    home = int(np.searchsorted(edges, spread, side="right"))
    if home == 0:
        return 1
    floor, ceiling = float(edges[home - 1]), float(edges[home]) if home < len(edges) else math.inf
    padded = np.concatenate([np.full(count, lower), ordered, np.full(count, upper)])

    def stays(changes: int) -> bool:
        least = most = spread
        if values_private:
            if changes >= high - low:
                return False
            least = float(np.min(ordered[high - changes : high + 1] - ordered[low : low + changes + 1]))
            top = padded[count + high : count + high + changes + 1]
            most = float(np.max(top - padded[count + low - changes : count + low + 1]))
        return floor <= least - 2 * drift * changes and most + 2 * drift * changes < ceiling

    farthest = high - low if values_private else 2**53
    if drift > 0:
        farthest = min(farthest, math.ceil(min((spread - floor) / (2 * drift), 2.0**52)) + 1)
    inside, outside = 0, max(farthest, 1)
    while outside - inside > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if stays(middle) else (inside, middle)
    return outside


def _quartiles(count: int) -> tuple[int, int]:
    return math.ceil(count / 4) - 1, math.ceil(3 * count / 4) - 1


def _edges(span: float, width: float, offset: float) -> Floats:
    top = math.log(span)
    indices = np.arange(math.floor((top - _DEEP) / width), math.ceil(top / width) + 2)
    edges: Floats = np.maximum.accumulate(np.exp(indices * width + offset))
    return edges
