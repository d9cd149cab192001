"""What synthetic data look like: each column by itself, how columns depend on each other, and pairs of them.

Everything here is made from a synthetic table. Only the custodian's report passes real counts as well, to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo.report._svg import Axis, Panel, bars, histogram, pair_plot, percent
from escudo.table import Categorical, Numeric, Schema, where_rows_are
from escudo.utility import Rows, dependence, synthetic_table

if TYPE_CHECKING:
    import polars as pl
    from markupsafe import Markup

MOST_CARDS = 30
MOST_MAPPED = 60
MAP_CELLS = 24
_MOST_PAIRED = 10
_MOST_BARS = 8
_MOST_BINS = 60
_MOST_POINTS = 220
_MOST_COUNTED = 50_000
_PANEL_CELLS = 12
_FEW = 4
MISSING = "∅"
"""What stands for missing values where there is no room for a word."""
_ENOUGH = 10

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def column_card(column: Categorical | Numeric, counts: Integers, real: Integers | None = None) -> dict[str, Any]:
    """Return a column's name, what its chart shows in words, and the chart.

    Args:
        column: Its public description.
        counts: Synthetic rows in each of its cells.
        real: Real rows in each of its cells, for the custodian's report.
    """
    shares = counts / max(counts.sum(), 1)
    other = None if real is None else real / max(real.sum(), 1)
    if isinstance(column, Numeric):
        note, chart = _numbers(column, shares, other)
    elif in_order(column) and column.size > _MOST_BARS:
        note = _most_often(column.labels, shares)
        edges, title = np.arange(column.size + 1.0), f"{column.name}: {note}"
        last = column.labels[-1] if column.missing_code is None else f"{column.labels[-2]} {MISSING}"
        chart = histogram(edges, shares, title, ends=(column.labels[0], last), real=other)
    else:
        note, chart = _levels(column, shares, other)
    return {"name": column.name, "note": note, "chart": chart}


def column_cards(
    schema: Schema, frame: pl.DataFrame, beside: pl.DataFrame | None = None, *, names: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the cards of some columns of synthetic rows, the first by default, beside others if they are given."""
    names = list((schema.names if names is None else names)[:MOST_CARDS])
    several = [
        synthetic_table(rows, schema).counts([[name] for name in names]) for rows in (frame, beside) if rows is not None
    ]
    return [column_card(schema[name], *counts) for name, *counts in zip(names, *several, strict=True)]


def in_order(column: Categorical) -> bool:
    """Return whether a column's levels are shown as they come: they have an order, or are codes that rise.

    >>> in_order(Categorical("grade", (1, 2, 3))), in_order(Categorical("colour", ("red", "blue")))
    (True, False)
    """
    codes = [level for level in column.levels if isinstance(level, int) and not isinstance(level, bool)]
    return column.ordered or (len(codes) == len(column.levels) and codes == sorted(codes))


def pairs_of(
    schema: Schema, names: Sequence[str], frame: pl.DataFrame, codes: Integers, strength: Floats
) -> tuple[list[str], Markup]:
    """Return the pair plot of up to ten columns, those that depend most on others, and their names.

    Args:
        schema: The columns.
        names: Which columns ``codes`` and ``strength`` are about.
        frame: Synthetic rows.
        codes: The same rows as cells.
        strength: How much each pair depends on each other.
    """
    places = _most_dependent(strength)
    shown = [names[place] for place in places]
    columns = [schema[name] for name in shown]
    few = [
        merge_cells(column, codes[:, place], most=_PANEL_CELLS) for column, place in zip(columns, places, strict=True)
    ]
    panels = _panels(columns, few, [_scaled(column, frame) for column in columns])
    axes = [_axis(column, *cells) for column, cells in zip(columns, few, strict=True)]
    return shown, pair_plot(axes, panels, title=f"Pairs of {', '.join(shown)} in the synthetic data")


def pairs_beside(real: object, synthetic: Rows) -> tuple[list[str], Markup] | None:
    """Return the pair plot of up to ten columns with real rows beside synthetic ones, and the columns' names.

    Args:
        real: Real rows, or a frame of them, which is looked at where it lies: what is drawn is private.
        synthetic: Synthetic rows of the same schema.

    Returns:
        None if there is only one column.
    """
    from markupsafe import Markup

    found = _drawn_beside(real, synthetic, synthetic.schema)
    return None if found is None else (found[0], Markup(found[1]))  # a picture of our own


@where_rows_are("frame")
def _drawn_beside(frame: object, synthetic: Rows, schema: Schema) -> tuple[list[str], str] | None:
    real = Rows.read(frame, schema)
    count = min(len(schema), MOST_MAPPED)
    if count < 2:
        return None
    rng = np.random.default_rng(0)
    both = [rows.at_most(_MOST_COUNTED, rng) for rows in (synthetic, real)]
    sizes = [min(column.size, MAP_CELLS) for column in schema.fields[:count]]
    strength = np.zeros((count, count))
    for rows in both:
        few = [merge_cells(schema.fields[place], rows.codes[:, place], most=MAP_CELLS)[0] for place in range(count)]
        strength = np.maximum(strength, dependence(np.column_stack(few), sizes)[0])
    places = _most_dependent(strength)
    columns = [schema.fields[place] for place in places]
    # Rare levels are those of both tables together, so that cells mean the same on both sides.
    together = [np.concatenate([rows.codes[:, place] for rows in both]) for place in places]
    cells = [merge_cells(column, codes, most=_PANEL_CELLS) for column, codes in zip(columns, together, strict=True)]
    first = len(both[0])
    parts = [[(codes[part], size) for codes, size in cells] for part in (slice(0, first), slice(first, None))]
    values = [[_numbers_of(rows, place) for place in places] for rows in both]
    ours, theirs = (_panels(columns, few, some) for few, some in zip(parts, values, strict=True))
    axes = [
        replace(_axis(column, *made), real=_axis(column, *seen).heights)
        for column, made, seen in zip(columns, *parts, strict=True)
    ]
    shown = [column.name for column in columns]
    title = f"Pairs of {', '.join(shown)}: synthetic at the left, real at the right"
    return shown, pair_plot(axes, ours, title, real=theirs)


def _most_dependent(strength: Floats) -> list[int]:
    """Return the places of up to ten columns that depend most on others, in their own order."""
    ranked = np.argsort(-strength.sum(axis=0), kind="stable")[:_MOST_PAIRED]
    return sorted(int(place) for place in ranked)


def _panels(
    columns: Sequence[Categorical | Numeric], few: Sequence[tuple[Integers, int]], values: Sequence[Floats | None]
) -> dict[tuple[int, int], Panel]:
    """Return a panel for each pair: points of two numeric columns, else the shares of cells."""
    panels = {}
    for across, down in combinations(range(len(columns)), 2):
        x, y = values[across], values[down]
        if x is not None and y is not None:
            known = np.isfinite(x) & np.isfinite(y)
            panels[down, across] = Panel(points=np.column_stack([x[known], y[known]]))
        else:
            shades = _given_across(few[down], few[across])
            panels[down, across] = Panel(shades=shades[::-1] if isinstance(columns[down], Numeric) else shades)
    return panels


def _levels(column: Categorical, shares: Floats, real: Floats | None) -> tuple[str, Markup]:
    labels, heights, others = list(column.labels), shares, real
    if column.size > _MOST_BARS:
        first = np.argsort(-shares, kind="stable")[: _MOST_BARS - 1]
        rest = f"{column.size - first.size} others"
        labels = [*(labels[place] for place in first), rest]
        heights = np.append(shares[first], 1 - shares[first].sum())
        others = None if real is None else np.append(real[first], 1 - real[first].sum())
    said = ", ".join(f"{label} {percent(share)}" for label, share in zip(labels, heights, strict=True))
    compared = None if others is None else others.tolist()
    chart = bars(labels, heights.clip(0).tolist(), title=f"{column.name}: {said}", real=compared)
    return _most_often(column.labels, shares), chart


def _most_often(labels: Sequence[str], shares: Floats) -> str:
    top = int(np.argmax(shares))
    return f"most often {labels[top]}, {percent(float(shares[top]))}"


def _numbers(column: Numeric, shares: Floats, real: Floats | None) -> tuple[str, Markup]:
    low, high = (column.shown(bound) if column.date else _number(bound) for bound in column.bounds)
    present = shares[: column.bins]
    note = ""
    if present.sum() > 0:
        quarters = np.interp([0.25, 0.75], np.r_[0, np.cumsum(present) / present.sum()], column.boundaries)
        nothing = 1e-9 * (column.bounds[1] - column.bounds[0])  # a bin for one number alone, such as zero, is as wide
        quarters = np.where(np.abs(quarters) < nothing, 0.0, quarters)
        low_quarter, high_quarter = (
            column.shown(round(quarter))
            if column.date
            else _number(round(quarter))
            if column.integer
            else _number(quarter, digits=3)
            for quarter in quarters
        )
        note = f"half lie between {low_quarter} and {high_quarter}"
    if column.missing:
        note += f"; missing {percent(float(shares[-1]))}" if note else f"missing {percent(float(shares[-1]))}"
    step = -(-column.bins // _MOST_BINS)
    starts = np.arange(0, column.bins, step)
    edges = np.append(column.boundaries[starts], column.boundaries[-1])
    heights = np.add.reduceat(present, starts)
    other = None if real is None else np.add.reduceat(real[: column.bins], starts)
    return note, histogram(edges, heights, title=f"{column.name}: {note}", ends=(low, high), real=other)


def merge_cells(column: Categorical | Numeric, codes: Integers, *, most: int) -> tuple[Integers, int]:
    """Return the cells put together until there are at most so many, and their number; missing stays on its own.

    Neighbours go together where there is an order, and rare levels where there is none.
    """
    if column.size <= most:
        return codes, column.size
    missing = column.missing_code
    room = most - (missing is not None)
    levels = column.size - (missing is not None)
    if isinstance(column, Numeric) or in_order(column):
        target = np.arange(levels) * room // levels
    else:
        rank = np.empty(levels, dtype=np.int64)
        rank[np.argsort(-np.bincount(codes, minlength=column.size)[:levels], kind="stable")] = np.arange(levels)
        target = np.minimum(rank, room - 1)
    return (target if missing is None else np.append(target, room))[codes], most


def _axis(column: Categorical | Numeric, cells: Integers, count: int) -> Axis:
    heights = np.bincount(cells, minlength=count) / max(len(cells), 1)
    if isinstance(column, Numeric):
        low, high = _short_days(column) if column.date else map(_short_number, column.bounds)
        if column.missing_code is None:
            return Axis(column.name, heights, across=[(0.0, low), (1.0, high)], down=[(0.0, high), (1.0, low)])
        cell = 1 / count  # the last one is for missing values; numbers go up, so that it is on top at the side
        return Axis(
            column.name,
            heights,
            across=[(0.0, low), (0.92 - cell, high), (1 - 0.5 * cell, MISSING)],
            down=[(0.5 * cell, MISSING), (1.5 * cell, high), (1.0, low)],
        )
    named: list[tuple[float, str]] = []
    labels = list(column.labels)
    if column.size <= _FEW:
        named = [((place + 0.5) / column.size, label) for place, label in enumerate(labels)]
    elif in_order(column):
        named = [(0.0, labels[0]), (1.0, labels[-1])]
        if column.missing_code is not None:
            named = [(0.0, labels[0]), (1 - 1.5 / count, labels[-2]), (1 - 0.5 / count, MISSING)]
    elif column.missing_code is not None:
        named = [(1 - 0.5 / count, MISSING)]
    return Axis(column.name, heights, across=named, down=named)


def _given_across(down: tuple[Integers, int], across: tuple[Integers, int]) -> Floats:
    """Return the share of each cell down among rows of each cell across, and nothing where these are very few."""
    (rows, tall), (columns, wide) = down, across
    table = np.bincount(rows * wide + columns, minlength=tall * wide).reshape(tall, wide).astype(np.float64)
    total = table.sum(axis=0, keepdims=True)
    shares: Floats = np.where(total >= _ENOUGH, table / np.maximum(total, 1.0), 0.0)
    if tall > _FEW:  # shares of many cells are all small
        shares = shares / max(float(shares.max()), 1e-12)
    return shares


def _scaled(column: Categorical | Numeric, frame: pl.DataFrame) -> Floats | None:
    if not isinstance(column, Numeric):
        return None
    import polars as pl

    low, high = column.bounds
    values: Floats = frame[column.name].head(_MOST_POINTS).to_physical().cast(pl.Float64).to_numpy()
    return (values - low) / (high - low)


def _numbers_of(rows: Rows, place: int) -> Floats | None:
    """Return the values of some rows on [0, 1]; None for a column of levels."""
    if not isinstance(rows.schema.fields[place], Numeric):
        return None
    values: Floats = (rows.numbers[:_MOST_POINTS, place] + 1) / 2
    return values


def _number(value: float, digits: int = 6) -> str:
    """Return a number for people, with so many digits.

    >>> _number(95_934.2, digits=3), _number(0.25), _number(250_000.0)
    ('95,900', '0.25', '250,000')
    """
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if 1000 <= abs(rounded) < 1e15 and rounded.is_integer() else f"{rounded:,.{digits}g}"


def _short_days(column: Numeric) -> tuple[str, str]:
    """Return the first and last day in as little room as possible: their years, or days of the one year."""
    first, last = map(column.shown, column.bounds)
    return (first[:-6], last[:-6]) if first[:-6] != last[:-6] else (first[-5:], last[-5:])


def _short_number(value: float) -> str:
    """Return a number in as little room as possible.

    >>> _short_number(250_000), _short_number(1_200_000), _short_number(12.5)
    ('250k', '1.2M', '12.5')
    """
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{sign}"
    return f"{value:.3g}"
