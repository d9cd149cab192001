"""Which columns take part, and the coarser levels at which wide ones are looked at.

A table of three columns with twenty bins each has 8,000 cells, most of them below the noise. Columns of more than
``MOST_LEVELS`` cells are therefore merged: neighbouring bins of numbers and ordered levels into groups of about equal
size, other levels into the most frequent ones and a rest. What is frequent is read off noisy one-way tables, which are
charged like all else; the merged column is a function of the column, so that a guarantee for its counts is one for the
table. Missing values keep a cell of their own. There are as many groups as three-way tables can pay for after noise,
from eight down to three.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._residuals import Floats, Scope
from escudo.table import Categorical, Column, Schema

__all__ = ["MOST_LEVELS", "Levels", "varying", "wide"]

MOST_LEVELS = 8
"""Columns with more cells than this are merged."""


def varying(schema: Schema) -> tuple[str, ...]:
    """Return the columns with more than one cell: only they can have causes or effects."""
    return tuple(name for name in schema.names if schema[name].size > 1)


def wide(schema: Schema) -> tuple[str, ...]:
    """Return the columns whose levels are merged."""
    return tuple(name for name in varying(schema) if schema[name].size > MOST_LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """The columns as discovery sees them.

    Attributes:
        names: The columns.
        cells: How many cells the schema gives each.
        groups: For merged columns, the group of each cell.
    """

    names: tuple[str, ...]
    cells: tuple[int, ...]
    groups: Mapping[int, NDArray[np.int64]]

    @classmethod
    def of(cls, schema: Schema, counts: Mapping[str, Floats], *, most: int = MOST_LEVELS) -> Levels:
        """Return the levels of a schema's columns, the wide ones merged into at most so many by their noisy counts."""
        names = varying(schema)
        groups = {names.index(name): _groups(schema[name], noisy, most) for name, noisy in counts.items()}
        return cls(names=names, cells=schema.shape(names), groups=groups)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many levels each column has after merging."""
        return tuple(int(self.groups[i].max()) + 1 if i in self.groups else size for i, size in enumerate(self.cells))

    def raw_cells(self, scope: Scope) -> int:
        """Return how many cells are counted for a scope, before merging."""
        return math.prod(self.cells[i] for i in scope)

    def merged(self, table: NDArray[np.int64], scope: Sequence[int]) -> NDArray[np.int64]:
        """Return a table of counts with its wide columns merged."""
        for axis, column in enumerate(scope):
            if column in self.groups:
                ends = np.moveaxis(table, axis, 0)
                summed = np.zeros((self.sizes[column], *ends.shape[1:]), dtype=np.int64)
                np.add.at(summed, self.groups[column], ends)
                table = np.moveaxis(summed, 0, axis)
        return table


def _groups(column: Column, noisy: Floats, most: int) -> NDArray[np.int64]:
    """Return the group of each cell, from 0 up, at most so many of them besides the one for missing values."""
    counts = np.maximum(np.asarray(noisy, dtype=np.float64), 1.0)
    inner = column.size - (1 if column.missing else 0)
    room = min(most, MOST_LEVELS - (1 if column.missing else 0))
    if isinstance(column, Categorical) and not column.ordered:
        top = np.argsort(-counts[:inner], kind="stable")[: room - 1]
        found = np.full(inner, room - 1, dtype=np.int64)
        found[top] = np.arange(top.size)
    else:
        middle = np.cumsum(counts[:inner]) - counts[:inner] / 2
        found = np.minimum(middle / counts[:inner].sum() * room, room - 1).astype(np.int64)
    found = np.unique(found, return_inverse=True)[1].reshape(-1)
    return np.append(found, found.max() + 1) if column.missing else found
