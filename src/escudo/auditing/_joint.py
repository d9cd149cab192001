"""Whole outputs as cells: one for each distinct output, or for groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import cell_by_cell
from escudo.auditing._columns import Cut, cut
from escudo.auditing._outputs import Encoded

__all__ = ["MOST_CELLS", "JointCells", "joint_cells", "keys_of", "mean_levels", "shown_output"]

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]

MOST_CELLS = 144
_ODD = np.random.default_rng(3).integers(1, 2**62, size=300, dtype=np.uint64) * 2 + 1


@dataclass(frozen=True, slots=True, eq=False)
class JointCells:
    """One cell per distinct output, or groups of distinct outputs of like ratio; new outputs have the last cell."""

    keys: NDArray[np.uint64]  # sorted
    cell: NDArray[np.intp]
    cells: int
    learnt: bool
    shown: tuple[str, ...]
    ordered: bool = False
    levels: Floats | None = None

    def __call__(self, outputs: Encoded) -> NDArray[np.intp]:
        keys = keys_of(outputs)
        place = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[place] == keys, self.cell[place], self.cells - 1)

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words: some of the outputs in them."""
        inside = [text for text, c in zip(self.shown, self.cell.tolist(), strict=True) if cells[c]]
        return (
            "output is " + " or ".join(inside[:4]) + (f" or one of {len(inside) - 4} more" if len(inside) > 4 else "")
        )


def keys_of(outputs: Encoded) -> NDArray[np.uint64]:
    """Return a 64-bit key per output; equal outputs have equal keys, others differ but for bad luck."""
    values = outputs.values + 0.0  # so that -0.0 is 0.0
    bits = np.where(np.isnan(values), 7.0, values).view(np.uint64) + np.isnan(values).astype(np.uint64)
    filled = ~np.isnan(values)
    mixed = (bits ^ (bits >> np.uint64(29))) * _ODD[: values.shape[1]]
    mixed ^= mixed >> np.uint64(31)
    total = (mixed * filled).sum(axis=1, dtype=np.uint64)  # a missing number counts nothing, whatever the width
    return np.asarray(total + (outputs.codes.astype(np.uint64) + np.uint64(1)) * _ODD[-1])


def mean_levels(scores: Floats, cells: Cut) -> Floats:
    """Return the mean score in each cell; in an empty one, of those nearest to it."""
    where = cells(scores)
    runs = np.bincount(where, minlength=cells.cells)
    mean = np.bincount(where, weights=scores, minlength=cells.cells) / np.maximum(runs, 1)
    full = np.flatnonzero(runs)
    return np.asarray(np.interp(np.arange(cells.cells), full, mean[full]))


def joint_cells(
    outputs: Encoded, labels: Labels, fitting: NDArray[np.bool_], structures: Sequence[str]
) -> JointCells | None:
    """Return one cell per distinct output where outputs repeat, in order if they are single numbers; else None."""
    keys = keys_of(outputs)
    distinct, first, place, times = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if distinct.size > max(4, min(4096, labels.size // 8)) or distinct.size < 2:
        return None
    shown = tuple(shown_output(outputs, int(i), structures) for i in first)
    if distinct.size < MOST_CELLS:
        numbers = outputs.values.shape[1] == 1 and not outputs.codes.any()
        order = np.argsort(outputs.values[first, 0], kind="stable") if numbers else np.arange(distinct.size)
        return JointCells(distinct, np.argsort(order), distinct.size + 1, False, shown, ordered=numbers)
    counts = np.bincount(place[fitting] * 2 + labels[fitting], minlength=2 * distinct.size).reshape(-1, 2)
    levels = cell_by_cell(counts.astype(np.float64)).level
    groups = cut(np.repeat(levels, np.minimum(times, 50)), MOST_CELLS - 2)
    cell = groups(levels)
    claims = np.append(
        mean_levels(np.repeat(levels, np.minimum(times, 50)), groups), 0.0
    )  # nothing is known of new outputs
    return JointCells(distinct, cell, groups.cells + 1, True, shown, levels=claims)


def shown_output(outputs: Encoded, row: int, structures: Sequence[str]) -> str:
    numbers = [f"{v:.6g}" for v in outputs.values[row] if not np.isnan(v)]
    structure = structures[int(outputs.codes[row])]
    if structure == "#":
        text = numbers[0] if len(numbers) == 1 else "(" + ", ".join(numbers) + ")"
    else:
        left = iter(numbers)
        text = "".join(next(left, "#") if mark == "#" else mark for mark in structure)
    return text if len(text) <= 60 else text[:57] + "..."
