"""What is looked at in an output: its numbers, what they add up to, how they differ, and their last bits.

A :class:`Column` computes one number per output; :class:`Cut` puts numbers into cells. The *grain* of a number is the
exponent of its lowest set bit: noise added in floating point to f(D) rounds to the grain of f(D), so that some outputs
can only come from one of two datasets.

Reference:
    I. Mironov (2012), "On significance of the least significant bits for differential privacy".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._outputs import Encoded

__all__ = ["Column", "Cut", "columns_of", "cut", "grain"]

Floats = NDArray[np.float64]

_ALL_PAIRS = 8  # up to so many numbers every pairwise difference is looked at
_GRAINS = 4  # so many numbers have their last bits looked at
_SAMPLE = 300_000


@dataclass(frozen=True, slots=True)
class Column:
    """One number per output, with its name in words."""

    name: str
    compute: Callable[[Encoded], Floats]

    def __call__(self, outputs: Encoded) -> Floats:
        return self.compute(outputs)


def columns_of(sample: Encoded, references: Sequence[Floats] = (), *, last_bits: bool = True) -> list[Column]:
    """Return the columns worth looking at in outputs like these.

    Args:
        sample: Outputs seen so far.
        references: Noiseless answers of the two datasets, where known.
        last_bits: Whether the last bits of floats are looked at.
    """
    width = sample.values.shape[1]
    empty = np.isnan(sample.values)
    used = [i for i in range(width) if not empty[:, i].all()]
    found = [_value(i, width) for i in used]
    if sample.codes.any():
        found.append(Column("structure", lambda o: o.codes.astype(np.float64)))
    if empty[:, used].any():
        found.append(Column("count of numbers", lambda o: (~np.isnan(o.values)).sum(axis=1).astype(np.float64)))
    couples = list(combinations(used, 2) if len(used) <= _ALL_PAIRS else pairwise(used))
    found += [_difference(i, j) for i, j in couples]
    if len(used) > 1:
        found += [
            Column("sum", lambda o: np.nansum(o.values, axis=1)),
            Column("largest", lambda o: np.fmax.reduce(o.values, axis=1)),
            Column("smallest", lambda o: np.fmin.reduce(o.values, axis=1)),
            Column("place of the largest", lambda o: np.nan_to_num(o.values, nan=-np.inf).argmax(axis=1) + 1.0),
        ]
    for i in used[:_GRAINS] if last_bits else ():
        seen = sample.values[:2000, i]
        seen = seen[np.isfinite(seen)]
        if seen.size and (seen != np.round(seen)).mean() > 0.2:
            found.append(_grain(i, 0.0, "last bit of", width))
            for which, reference in enumerate(references):
                if i < reference.size and np.isfinite(reference[i]) and reference[i]:
                    found.append(
                        _grain(i, float(reference[i]), f"last bit over noiseless answer {which + 1} of", width)
                    )
    return found


def grain(numbers: Floats) -> Floats:
    """Return the exponent of the lowest set bit of each number; NaN for 0, infinities and NaN.

    >>> grain(np.array([1.0, 0.75, 12.0]))
    array([ 0., -2.,  2.])
    """
    bits = np.ascontiguousarray(numbers).view(np.int64)
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    exponent = (bits >> 52) & 0x7FF
    lowest = mantissa & -mantissa
    found = np.log2(lowest.astype(np.float64)) + exponent - 1075
    usable = np.isfinite(numbers) & (exponent > 0)
    return np.where(usable, found, np.nan)


def _value(i: int, width: int) -> Column:
    return Column("output" if width == 1 else f"entry {i + 1}", lambda o: o.values[:, i])


def _difference(i: int, j: int) -> Column:
    def compute(outputs: Encoded) -> Floats:
        difference = outputs.values[:, i] - outputs.values[:, j]
        # Shared noise cancels up to rounding: what is left must fall into one cell.
        return np.round(difference, 9)

    return Column(f"entry {i + 1} minus entry {j + 1}", compute)


def _grain(i: int, reference: float, words: str, width: int) -> Column:
    what = "the output" if width == 1 else f"entry {i + 1}"
    return Column(f"{words} {what}", lambda o: grain(o.values[:, i] - reference))


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Cells of the real line: cell j is [edges[j-1], edges[j]); NaN has the last cell."""

    edges: Floats
    missing: bool = False  # whether the sample held NaN

    @property
    def cells(self) -> int:
        """How many cells there are, that of NaN included."""
        return self.edges.size + 2

    def __call__(self, numbers: Floats) -> NDArray[np.intp]:
        cells = np.searchsorted(self.edges, numbers, side="right")
        missing = np.isnan(numbers)
        if missing.any():
            cells[missing] = self.edges.size + 1
        return cells


def cut(numbers: Floats, most: int, points: Sequence[float] = ()) -> Cut:
    """Return at most about ``most`` cells: equally full ones, ever rarer ones at both ends, and one per frequent value.

    Args:
        numbers: A sample.
        most: The number of cells.
        points: Further edges, where something is known to happen.
    """
    absent = np.isnan(numbers)
    missing = bool(absent.any())
    finite = np.sort((numbers[~absent] if missing else numbers)[:_SAMPLE])
    if not finite.size:
        return Cut(np.empty(0), missing)
    distinct = (
        finite[np.flatnonzero(np.diff(finite, prepend=-np.inf) > 0)] if np.isfinite(finite[0]) else np.unique(finite)
    )
    if distinct.size <= most:
        return Cut(distinct[1:], missing)
    count = finite.size
    # Half of the cells are equally full; the others get ever rarer towards both ends, by a constant factor.
    body = np.linspace(0, 1, max(most // 2, 2) + 1)[1:-1]
    rarest = max(20 / count, 2e-5)
    rare = np.geomspace(rarest, 1 / max(most // 2, 2), most // 4) if rarest * most < 1 else np.empty(0)
    places = (np.concatenate([rare, body, 1 - rare]) * (count - 1)).astype(np.int64)
    found, times = np.unique(finite[np.sort(places)], return_counts=True)
    atoms = np.nextafter(found[times > 1], np.inf)
    inside = [p for p in points if finite[0] < p < finite[-1]]
    return Cut(np.unique(np.concatenate([found, atoms, inside, np.nextafter(inside, np.inf)])), missing)
