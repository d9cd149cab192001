r"""Neighbouring levels of ordered columns that tables of several columns count together.

A table of two numbers with 30 bins each has 900 cells. Neighbouring bins behave alike, so that most of its noise is
spent on telling apart what hardly differs. Single columns are measured first, level by level; once they are known,
tables of several columns count neighbouring levels of a number or an ordinal column in one cell, a *group*.

**Which.** With n̂ rows and σ the noise that a picked table will have, levels are cut in their order into
:math:`g = \sqrt{n̂ / 2σ}` groups of about equal shares, and at least two: a cell of a table of two such columns then
holds 2σ rows. Shares are those that were measured, so a level with more than a group's share has hardly any company,
and bins that are nearly empty are counted with their neighbours. A missing value is no neighbour of any. A column with
fewer levels than groups is left as it is; so is one without an order, where nothing says which levels are alike (with
its rare levels counted together, errors were 6 % smaller to 3 % larger), and one with a stated arrow: what it says of a
level was asked for. ``benchmarks/ordered.py`` compares the same rows with and without their order; in a table made so
that neighbours are unlike the rule does harm, and such columns are better declared without an order.

**Back again** (:func:`spread`). Within its group a level gets the part of each cell that it has of the group in its
column. That is the most even law with the measured tables: the entropy of levels is at most that of the groups plus
those of each level given its group, which single columns fix, and this law reaches both.

**Guarantee.** That of the tables without groups. Groups depend on the rows only through what was released before, so
that for neighbours they are the same whenever the releases before were. Given them, a table of groups is the
contingency table of columns that are coded anew: each row is in one of its cells, and one row or person moves it no
further in l1 and in l2, and changes no more of its cells, than :func:`~escudo.table.count_sensitivity` says of any
contingency table, however many cells it has. The events that were planned before a row was read are those of any such
table, and so are the scores that picks are made by. Two rows that a replacement tells apart may even be in one group,
and then nothing moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.table import Categorical, Schema

Groups = NDArray[np.int64]
"""The group of each level: from 0 up, never falling."""

Merged = Mapping[str, Groups]
"""The groups of the columns of which some levels are counted together."""

Floats = NDArray[np.float64]

_FULL = 2.0  # times the noise: the rows in a cell of a table of two columns


def ordered_levels(schema: Schema) -> dict[str, int]:
    """Return how many levels of each ordered column have an order: all but the cell of missing values.

    >>> from escudo.table import Schema
    >>> schema = Schema.from_dict({"a": ["x", "y"], "b": {"type": "numeric", "lower": 0, "upper": 9, "bins": 3}})
    >>> ordered_levels(schema)
    {'b': 3}
    """
    return {
        column.name: column.size - column.missing
        for column in schema.fields
        if not isinstance(column, Categorical) or column.ordered
    }


def groups_of(margin: Floats, ordered: int, noise: float) -> Groups:
    """Return the group of each level of a column.

    Args:
        margin: How many rows have each level: none is negative, all together are the rows.
        ordered: How many of the levels have an order; the others, after them, stay by themselves.
        noise: What noise a table with other columns will have.

    >>> groups_of(np.array([10.0, 30.0, 20.0, 20.0, 10.0, 10.0]), 5, noise=3.0).tolist()
    [0, 1, 2, 2, 3, 4]
    """
    rows = float(margin.sum())
    several = max(math.sqrt(rows / (_FULL * noise)), 2.0)
    if several >= ordered:
        return np.arange(margin.size)
    shares = margin[:ordered] / max(rows, 1e-300)
    place = np.floor(several * (np.cumsum(shares) - shares / 2))
    groups = np.cumsum(np.diff(place, prepend=place[0]) > 0)
    return np.append(groups, groups[-1] + 1 + np.arange(margin.size - ordered))


def merge(columns: tuple[str, ...], counts: NDArray[Any], merged: Merged) -> NDArray[Any]:
    """Return a table with levels counted together.

    >>> merge(("a", "b"), np.array([[1, 2], [3, 4], [5, 6]]), {"a": np.array([0, 0, 1])}).tolist()
    [[4, 6], [5, 6]]
    """
    for axis, name in enumerate(columns):
        if name in merged:
            counts = np.add.reduceat(counts, np.flatnonzero(np.diff(merged[name], prepend=-1)), axis)
    return counts


def spread(columns: tuple[str, ...], counts: Floats, margins: Mapping[str, Floats], merged: Merged) -> Floats:
    """Return a table of groups with a cell for each level again, as its column's margin says.

    >>> spread(("a",), np.array([8.0, 5.0]), {"a": np.array([3.0, 1.0, 6.0])}, {"a": np.array([0, 0, 1])}).tolist()
    [6.0, 2.0, 5.0]
    """
    for axis, name in enumerate(columns):
        if name in merged:
            groups, margin = merged[name], margins[name]
            whole = np.bincount(groups, weights=margin)[groups]
            part = np.divide(margin, whole, out=np.zeros(margin.size), where=whole > 0)
            shape = [-1 if each == axis else 1 for each in range(len(columns))]
            counts = np.take(counts, groups, axis) * part.reshape(shape)
    return counts
