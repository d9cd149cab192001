r"""Scores for outputs of mixed kind: one table per column for every value of a discrete one.

Many mechanisms say *which* and *how much*: the place of an answer and its value. Given the discrete part d, the columns
are taken as independent, so that the log ratio is :math:`g(d) + \sum_c f_c(x_c \mid d)`; each table is a posterior
under some steps (:func:`~escudo.auditing._calibration.along_cells`), so that values of d with few runs claim little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import along_cells, cell_by_cell
from escudo.auditing._columns import Column, Cut, cut
from escudo.auditing._outputs import Encoded

__all__ = ["Stratified", "fit_stratified"]

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]

_MOST_STRATA = 32
_MOST_COLUMNS = 6
_CELLS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Stratified:
    """The sum of one table per column, each with a row per cell of the discrete column."""

    by: Column
    strata: Cut
    base: Floats
    columns: tuple[Column, ...]
    cuts: tuple[Cut, ...]
    tables: tuple[Floats, ...]
    name: str = "score of entries by one of them"

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""
        stratum = self.strata(self.by(outputs))
        total = self.base[stratum]
        for column, cells, table in zip(self.columns, self.cuts, self.tables, strict=True):
            total = total + table[stratum, cells(column(outputs))]
        return total


def fit_stratified(columns: Sequence[Column], outputs: Encoded, labels: Labels) -> list[Stratified]:
    """Return a score for every column that has few values, the others given it; none where there are many columns."""
    if not 2 <= len(columns) <= _MOST_COLUMNS:
        return []
    numbers = [column(outputs) for column in columns]
    cuts = [cut(values, _CELLS) for values in numbers]
    cells = [chosen(values) for chosen, values in zip(cuts, numbers, strict=True)]
    found = []
    for place, (chosen, values) in enumerate(zip(cuts, numbers, strict=True)):
        if chosen.cells > _MOST_STRATA or np.unique(values[:1000]).size > _MOST_STRATA:
            continue
        base = cell_by_cell(_table(cells[place], labels, chosen.cells)).level
        others = [i for i in range(len(columns)) if i != place]
        tables = []
        for i in others:
            size = cuts[i].cells
            both = _table(cells[place] * size + cells[i], labels, chosen.cells * size).reshape(-1, size, 2)
            tables.append(np.array([along_cells(part).level for part in both]) - base[:, None])
        named = tuple(columns[i] for i in others), tuple(cuts[i] for i in others)
        found.append(Stratified(columns[place], chosen, base, *named, tuple(tables)))
    return found


def _table(cells: NDArray[np.intp], labels: Labels, size: int) -> Floats:
    return np.bincount(cells * 2 + labels, minlength=2 * size).reshape(-1, 2).astype(np.float64)
