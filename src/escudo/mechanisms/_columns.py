"""Columns on their way to being learnt: stripped of what was read from data, counted, and filled in again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from escudo.mechanisms._noise import Integers, laplace_cutoff
from escudo.table import Categorical, Column, Level, Numeric, PrivateTable, Schema
from escudo.table._values import MISSING_LABEL, encodable

__all__ = [
    "CELLS",
    "between",
    "bounded",
    "cell_counts",
    "level_counts",
    "levelled",
    "occupied",
    "stripped",
    "tail_probability",
    "unbounded",
    "wide",
]

CELLS = 256
"""How many equal cells the bounds are looked for in, once their powers of four are known."""

OTHER = "(other)"
"""The level that learnt text columns have for all levels that were not learnt."""

_BINS = 20
_MISTAKEN = 1e-3  # chance that noise makes any empty power of four look occupied
_SURE = 5.0  # an end lands beyond the data with probability at most e^-5, and then still within the power of four
_MOST_CUT = 0.2  # rather than cut more off an end, keep the power of four
_BEYOND = 2**53  # whole numbers from here on are no levels
_POWERS = tuple(4.0**power for power in range(-16, 33))  # 2e-10 ... 2e19, beyond every 64-bit integer


def stripped(column: Column, dtype: nw.dtypes.DType) -> Column:
    """Return an unconfirmed column without anything that may have been read from data.

    Its name, whether it is numeric or categorical, an order of levels and the bins of an open column remain; levels,
    bounds, and whether values are missing or whole go. What is whole is said by the type in the table, and missing
    values get a cell in any case. A boolean type leaves nothing to be learnt.
    """
    if isinstance(column, Numeric):
        bins = column.bins if column.open else _BINS
        return Numeric(column.name, bins=bins, integer=dtype.is_integer(), missing=True, confirmed=False)
    if dtype == nw.Boolean:
        return Categorical(column.name, (False, True), missing=True)
    return Categorical(column.name, ordered=column.ordered, missing=True, confirmed=False)


def wide(column: Numeric) -> Numeric:
    """Return the column cut at 0 and at the powers of four with either sign: a public grid for numbers of any scale."""
    powers = [power for power in _POWERS if power >= 1 or not column.integer]
    return Numeric(column.name, edges=(*(-power for power in reversed(powers)), 0.0, *powers), missing=True)


def occupied(noisy: Integers, scale: float) -> range:
    """Return the span of cells whose noisy counts are too large for noise of this scale alone; it may be empty."""
    (found,) = np.nonzero(noisy >= laplace_cutoff(_MISTAKEN / noisy.size, scale))
    return range(found[0], found[-1] + 1) if found.size else range(0)


def tail_probability(tails: float, noisy_rows: int, scale: float) -> float | None:
    """Return which quantile to ask for at each end: ``tails``, or more where noise of this scale demands it, or None.

    An empty cell beyond the data is worth exp(-rows cut off / scale) of the right one; there are at most ``CELLS`` of
    them. So scale · (ln CELLS + 5) rows must be cut off for the answer to be within the data almost surely.
    """
    needed = scale * (math.log(CELLS) + _SURE) / max(noisy_rows, 1)
    share = max(tails, needed)
    return share if share <= max(tails, _MOST_CUT) else None


def between(column: Numeric, cells: range) -> Numeric:
    """Return the column between the ends of some of its cells, cut into equal ones."""
    lower, upper = float(column.boundaries[cells.start]), float(column.boundaries[cells.stop])
    return Numeric(column.name, lower, upper, CELLS, missing=True)


def bounded(column: Numeric, found: Numeric) -> Numeric:
    """Return the column with the bounds that were found, widened to round numbers."""
    assert found.lower is not None
    assert found.upper is not None
    lower, upper, bins = found.lower, found.upper, column.bins
    if column.integer:
        lower, upper = math.floor(lower), math.ceil(upper)
        bins = min(bins, upper - lower)
    else:
        digits = 2 - math.floor(math.log10(upper - lower))  # about a hundredth of the length
        step = 10.0**-digits
        lower = min(lower, round(math.floor(lower / step) * step, digits))
        upper = max(upper, round(math.ceil(upper / step) * step, digits))
    return replace(column, lower=lower, upper=upper, bins=bins, confirmed=True, note="bounds learnt privately")


def unbounded(column: Numeric) -> Numeric:
    """Return the column still open, with a note that says why."""
    return replace(column, note="too few values to learn bounds with this budget; state lower and upper")


def levelled(column: Categorical, shown: Sequence[Level]) -> Categorical:
    """Return the column with the levels that were shown, or still open if there is none."""
    if not shown:
        return replace(column, note="no level was common enough to be learnt with this budget; state the levels")
    note = "levels learnt privately"
    if not isinstance(shown[0], str):
        return replace(column, levels=tuple(shown), confirmed=True, note=note)
    levels = (*(level for level in shown if level != OTHER), OTHER)
    return replace(column, levels=levels, other=OTHER, confirmed=True, note=note)


def cell_counts(frame: object, schema: Schema, columns: Sequence[Numeric]) -> list[Integers]:
    """Return the private counts of each column's cells, without the missing one, for the schema's unit."""
    if not columns:
        return []
    table = PrivateTable(frame, _schema(schema, columns))
    return [counts[:-1] for counts in table.counts([[column.name] for column in columns])]


def level_counts(frame: object, schema: Schema, name: str) -> Mapping[Level, int]:
    """Return the private counts of a column's values, for the schema's unit.

    Levels are text in columns of text, and whole numbers in columns of numbers; what could be no level is left out.
    Each row has one value, so left-out rows only lower the counts.
    """
    dtype = nw.from_native(frame).collect_schema()[name]  # type: ignore[call-overload]
    read = _number if dtype.is_numeric() else _text
    counts: dict[Level, int] = {}
    for value, rows in PrivateTable(frame, _schema(schema, [schema[name]])).value_counts(name):
        level = read(value)
        if level is not None:
            counts[level] = counts.get(level, 0) + rows
    if schema.unit == "row" or not counts:
        return counts
    # Bounding what a person contributes is the table's business; the levels seen serve it as a schema, in here only.
    levels = sorted(counts)
    column = Categorical(name, tuple(levels), missing=True)
    kept = PrivateTable(frame, _schema(schema, [column])).counts(name)
    return dict(zip(levels, kept.tolist(), strict=False))  # the last cell is of missing values


def _schema(schema: Schema, columns: Sequence[Column]) -> Schema:
    return Schema(tuple(columns), person_id=schema.person_id, max_rows_per_person=schema.max_rows_per_person)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value != MISSING_LABEL and encodable(value) else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        return None
    whole = int(value)
    return whole if whole == value and abs(whole) < _BEYOND else None
