"""Corners: outputs of which two numbers are far out at once, each at one of its ends.

Noise hides what one number says; where several noisy numbers have to be low (or high) together, as in the sparse vector
technique, the likelihood ratio grows with how far out they are, and such outputs are rare. A corner is two numbers,
an end of each, and how much further out one of them is than the other; what is left is one number, how far out an
output is, so that little has to be learnt and much can be told in words.

Reference:
    J. Friedman, N. Fisher (1999), "Bump hunting in high-dimensional data".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import with_trend
from escudo.auditing._columns import Column, Cut, cut
from escudo.auditing._guesses import best_guesses
from escudo.auditing._outputs import Encoded

__all__ = ["CornerCells", "fit_corners"]

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]

_MOST_COLUMNS = 6
_CELLS = 60
_ASPECTS = (0.2, 0.33, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)  # how much further out the first number is than the second
_OUTSIDE = -1.0  # how far out an output is that lacks a number


@dataclass(frozen=True, slots=True, eq=False)
class CornerCells:
    """Cells by how far out an output is: the smaller of two depths, where a depth is minus the log of a tail's mass."""

    columns: tuple[Column, Column]
    high: tuple[bool, bool]  # which end of each
    cuts: tuple[Cut, Cut]
    depths: tuple[Floats, Floats]  # of each cell of each column
    chosen: Cut
    learnt: bool = False
    ordered: bool = True
    levels: Floats | None = None

    @property
    def cells(self) -> int:
        """How many cells."""
        return self.chosen.cells

    def __call__(self, outputs: Encoded) -> NDArray[np.intp]:
        return self.chosen(self.depth(outputs))

    def depth(self, outputs: Encoded) -> Floats:
        """Return how far out each output is."""
        first, second = (
            depth[cells(column(outputs))]
            for column, cells, depth in zip(self.columns, self.cuts, self.depths, strict=True)
        )
        return np.minimum(first, second)

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words: the corner that it is, or its bounds if it is none."""
        inside = np.flatnonzero(cells[:-1])
        if not inside.size:
            return "nothing"
        edges = np.concatenate([[-np.inf], self.chosen.edges])
        outer = self._corner(float(edges[inside[0]]))
        if inside[-1] == self.chosen.edges.size:
            return outer
        return f"{outer}, but not {self._corner(float(self.chosen.edges[inside[-1]]))}"

    def _corner(self, depth: float) -> str:
        """Return in words where both depths are at least ``depth``."""
        parts = []
        for column, high, chosen, depths in zip(self.columns, self.high, self.cuts, self.depths, strict=True):
            far = np.flatnonzero(depths[:-1] >= depth)
            if not far.size:
                return "nothing"
            if high and far[0] > 0:
                parts.append(f"{column.name} ≥ {chosen.edges[far[0] - 1]:.6g}")
            elif not high and far[-1] < chosen.edges.size:
                parts.append(f"{column.name} < {chosen.edges[far[-1]]:.6g}")
        return " and ".join(parts) or "any output"


def fit_corners(
    columns: Sequence[Column], outputs: Encoded, labels: Labels, *, delta: float, ahead: float
) -> list[CornerCells]:
    """Return the corner that promises most, if there are few columns.

    Args:
        columns: Which columns; two of them make a corner.
        outputs: Earlier outputs.
        labels: Whether each came from the second dataset.
        delta: The δ of the claim.
        ahead: How many runs are still to come.
    """
    if not 2 <= len(columns) <= _MOST_COLUMNS:
        return []
    numbers = [column(outputs) for column in columns]
    cuts = [cut(values, _CELLS) for values in numbers]
    places = [chosen(values) for chosen, values in zip(cuts, numbers, strict=True)]
    best, answer = -np.inf, None
    for i, j in combinations(range(len(columns)), 2):
        sizes = cuts[i].cells, cuts[j].cells
        where = (places[i] * sizes[1] + places[j]) * 2 + labels
        both = np.bincount(where, minlength=2 * sizes[0] * sizes[1]).reshape(-1, 2).astype(np.float64)
        masses = both.reshape(*sizes, 2).sum(axis=2)
        for high, other_high, aspect in product((True, False), (True, False), _ASPECTS):
            depths = _depths(masses.sum(axis=1), high), aspect * _depths(masses.sum(axis=0), other_high)
            depth = np.minimum(depths[0][:, None], depths[1][None, :]).ravel()
            chosen = _cut_depths(depth, both.sum(axis=1))
            counts = np.zeros((chosen.cells, 2))
            np.add.at(counts, chosen(depth), both)
            belief, order = with_trend(counts), np.arange(chosen.cells)
            worth = max(best_guesses(belief, way, delta=delta, ahead=ahead)[0] for way in (order, order[::-1]))
            if worth > best:
                named = (columns[i], columns[j]), (high, other_high), (cuts[i], cuts[j])
                best, answer = worth, CornerCells(*named, depths, chosen)
    return [] if answer is None else [answer]


def _depths(masses: Floats, high: bool) -> Floats:
    """Return minus the log of the mass from each cell of a column to its end; the last cell is that of no number."""
    body = masses[:-1]
    tail = np.cumsum(body[::-1])[::-1] if high else np.cumsum(body)
    depths = -np.log(np.maximum(tail, 0.5) / max(float(body.sum()), 1.0))
    return np.append(depths, _OUTSIDE)


def _cut_depths(depth: Floats, masses: Floats) -> Cut:
    """Return cells of depths: about equally many log units of mass each."""
    order = np.argsort(depth)
    beyond = np.cumsum(masses[order][::-1])[::-1]
    level = np.floor(_CELLS / 2 * np.log(np.maximum(beyond, 0.5) / beyond[0]) / np.log(0.5 / beyond[0]))
    starts = np.flatnonzero(np.diff(level, prepend=-1.0) > 0)
    return Cut(np.unique(depth[order][starts])[1:])
