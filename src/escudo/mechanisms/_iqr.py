r"""How far a table is from a different interquartile range: the exact distances behind propose-test-release.

For m records, :math:`H = \ln(v_{(h)} - v_{(l)})` with :math:`l = \lceil m/4 \rceil`, :math:`h = \lceil 3m/4 \rceil`.
The log scale is cut into bins :math:`[iw + o, (i+1)w + o)`, for the offsets o = 0 and o = w/2. The distance A_o is
the least number of records to change so that H leaves its bin.

**Exact.** After at most k changes the smallest reachable range is :math:`\min_{0 \le i \le k} v_{(h-k+i)} - v_{(l+i)}`
(move i records from below v_(l) and k-i from above v_(h) into the middle; 0 once k ≥ h - l), the largest is
:math:`\max_{0 \le i \le k} v_{(h+i)} - v_{(l-k+i)}` (move i records from the middle to the top and k-i to the bottom),
with the public bounds in place of ranks past the ends. Both are monotone in k, so bisection finds A_o.

**Sensitivity 1.** If D and a neighbour D′ are in the same bin, a way out for one is a way out for the other with at
most one change more. If they are not, one change leads out for each, so both distances are 1.

**Degenerate ranges.** A range of 0, or below the lowest edge, belongs to no bin: its distance is 1, and so is that of
every neighbour in a bin, because one change leads out of that bin.

Comparisons are made on the range itself, against the edges :math:`e^{iw+o}` as float64 numbers; float64 subtraction is
monotone, so all of the above holds for the numbers as computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import finite
from escudo.errors import InputError

__all__ = ["LogIqr", "read_log_iqr"]

_DEEP = 50.0  # bins reach down to e^-50 of the public range


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIqr:
    """A private log interquartile range and how many records must change to move it out of its two bins.

    Attributes:
        value: ln IQR, or None where the range is 0.
        distances: The distance for the offsets 0 and w/2, each of sensitivity 1.
        records: How many records there are, which is public under ``replace_one``.
    """

    value: float | None
    distances: tuple[int, int]
    records: int


def read_log_iqr(values: ArrayLike, *, lower: float, upper: float, width: float) -> LogIqr:
    """Return the log interquartile range of a column and its distances; all of it is private.

    Args:
        values: The column, shape (m,), m ≥ 1; clamped to [lower, upper], NaN counts as the middle.
        lower: Public lower bound.
        upper: Public upper bound.
        width: Width of the bins on the natural log scale, from 0.001 to 10.

    Raises:
        InputError: If the column is empty or not made of numbers, or an argument is out of range.
    """
    low, high = finite("lower", lower), finite("upper", upper)
    if not low < high or not math.isfinite(high - low):
        raise InputError("lower must be below upper, by a finite amount.")
    if not 1e-3 <= finite("width", width) <= 10:
        raise InputError(f"width must lie between 0.001 and 10; got {width!r}.")
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iuf":
        raise InputError("each column must be a one-dimensional array of numbers with at least one record.")
    clamped = np.nan_to_num(array.astype(np.float64), nan=low / 2 + high / 2, posinf=high, neginf=low)
    ordered = _Ordered(np.sort(np.clip(clamped, low, high)), low, high)
    spread = ordered.smallest(0)
    first, second = (_distance(ordered, _edges(low, high, width, offset)) for offset in (0.0, width / 2))
    return LogIqr(value=math.log(spread) if spread > 0 else None, distances=(first, second), records=array.size)


class _Ordered:
    """Sorted values within public bounds, and the ranges that k changes can reach."""

    def __init__(self, values: NDArray[np.float64], lower: float, upper: float) -> None:
        count = values.size
        self.values = values
        self.first, self.third = math.ceil(count / 4) - 1, math.ceil(3 * count / 4) - 1
        # Ranks past an end mean records moved to the public bound.
        self.padded = np.concatenate([np.full(count, lower), values, np.full(count, upper)])

    def smallest(self, changes: int) -> float:
        """Return the smallest interquartile range that at most ``changes`` changed records can bring about."""
        if changes > 0 and changes >= self.third - self.first:
            return 0.0
        low = self.values[self.first : self.first + changes + 1]
        high = self.values[self.third - changes : self.third + 1]
        return float(np.min(high - low))

    def largest(self, changes: int) -> float:
        """Return the largest interquartile range that at most ``changes`` changed records can bring about."""
        count = self.values.size
        low = self.padded[count + self.first - changes : count + self.first + 1]
        high = self.padded[count + self.third : count + self.third + changes + 1]
        return float(np.max(high - low))


def _edges(low: float, high: float, width: float, offset: float) -> NDArray[np.float64]:
    top = math.log(high - low)
    indices = np.arange(math.floor((top - _DEEP) / width), math.ceil(top / width) + 2)
    edges: NDArray[np.float64] = np.maximum.accumulate(np.exp(indices * width + offset))
    return edges


def _bin(edges: NDArray[np.float64], spread: float) -> int:
    return int(np.searchsorted(edges, spread, side="right"))


def _distance(ordered: _Ordered, edges: NDArray[np.float64]) -> int:
    home = _bin(edges, ordered.smallest(0))
    if home == 0:  # below the lowest edge
        return 1
    stays, leaves = 0, ordered.third - ordered.first  # with that many changes the range can be 0
    while leaves - stays > 1:
        middle = (stays + leaves) // 2
        if _bin(edges, ordered.smallest(middle)) == home == _bin(edges, ordered.largest(middle)):
            stays = middle
        else:
            leaves = middle
    return leaves
