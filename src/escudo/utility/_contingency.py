"""What two-way tables say: how much columns depend on each other, and how far two tables are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo.table import PrivateTable, Schema

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "cells",
    "cramers_v",
    "dependence",
    "independence_gap",
    "sampling_error",
    "synthetic_table",
    "total_variation",
]

Floats = NDArray[np.float64]
Counts = NDArray[Any]

_MOST_ROWS = 50_000


def synthetic_table(frame: pl.DataFrame, schema: Schema) -> PrivateTable:
    """Return a synthetic frame as a table that can be counted; its rows are nobody's, so no person has several."""
    return PrivateTable(frame, replace(schema, person_id=None, max_rows_per_person=None))


def cells(table: PrivateTable, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the first 50,000 rows of a synthetic table as cells, of shape (rows, columns)."""
    return next(iter(table.batches(_MOST_ROWS, list(names)))).astype(np.int64)


def dependence(codes: NDArray[np.int64], sizes: Sequence[int]) -> tuple[Floats, Floats]:
    """Return, for each pair of columns, Cramér's V and the gap to independence, as two symmetric matrices."""
    columns = len(sizes)
    strength, gap = np.zeros((columns, columns)), np.zeros((columns, columns))
    for i, j in combinations(range(columns), 2):
        pair = np.bincount(codes[:, i] * sizes[j] + codes[:, j], minlength=sizes[i] * sizes[j])
        table = pair.reshape(sizes[i], sizes[j])
        strength[i, j] = strength[j, i] = cramers_v(table)
        gap[i, j] = gap[j, i] = independence_gap(table)
    return strength, gap


def cramers_v(table: Counts) -> float:
    """Return Cramér's V of a two-way table of counts, from 0 (independent) to 1, without its upward bias.

    Reference:
        W. Bergsma (2013), "A bias-correction for Cramér's V and Tschuprow's T", Journal of the Korean Statistical
        Society 42(3).

    >>> cramers_v(np.array([[50, 0], [0, 50]])), cramers_v(np.array([[25, 25], [25, 25]]))
    (1.0, 0.0)
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(np.float64)
    total, (rows, columns) = table.sum(), table.shape
    if min(rows, columns) < 2 or total < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / total
    phi = float(((table - expected) ** 2 / expected).sum() / total)
    unbiased = max(0.0, phi - (rows - 1) * (columns - 1) / (total - 1))
    side = min(rows - (rows - 1) ** 2 / (total - 1), columns - (columns - 1) ** 2 / (total - 1)) - 1
    return min(1.0, float(np.sqrt(unbiased / side))) if side > 0 else 0.0


def independence_gap(table: Counts) -> float:
    """Return the share of rows that a two-way table would have elsewhere if its columns were independent.

    >>> float(independence_gap(np.array([[50, 0], [0, 50]])))
    0.5
    """
    return total_variation(table, np.outer(table.sum(axis=1), table.sum(axis=0)))


def total_variation(one: Counts, other: Counts) -> float:
    r"""Return :math:`\tfrac12 \sum |p - q|` of two tables of counts: the share of rows in the wrong cell.

    >>> total_variation(np.array([1, 3]), np.array([2, 2]))
    0.25
    """
    return float(np.abs(one / max(one.sum(), 1) - other / max(other.sum(), 1)).sum() / 2)


def sampling_error(table: Counts, rows: int) -> float:
    r"""Return about what total variation a fresh sample of ``rows`` rows from the same population would have.

    For each cell :math:`E|\hat p - \hat q| \approx \sqrt{2 p (1 - p) (1/n + 1/m) / \pi}`, and never above 2p.
    """
    counted = max(int(table.sum()), 1)
    share = table / counted
    spread = np.sqrt(2 / np.pi * share * (1 - share) * (1 / counted + 1 / max(rows, 1)))
    return float(np.minimum(spread, 2 * share).sum() / 2)
