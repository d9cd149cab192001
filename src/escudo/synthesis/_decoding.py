r"""From cells back to values: levels for categories, numbers inside their bins, nulls for the missing cell.

Inside a bin of height h with neighbours of heights a and b the density is taken as linear, rising from
:math:`h(1-s)` to :math:`h(1+s)` with :math:`s = (b - a) / 4h` held to [-1, 1]: it keeps the bin's mass, follows the
slope of the histogram and is never negative. A bin without such evidence is uniform. Everything is computed from drawn
cells, never from data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from escudo.synthesis._conditionals import Codes
from escudo.table import Categorical, Numeric, Schema

if TYPE_CHECKING:
    import polars as pl

__all__ = ["as_integers", "decode"]


def decode(schema: Schema, codes: Mapping[str, Codes], *, rng: np.random.Generator) -> pl.DataFrame:
    """Return the rows as a polars frame, columns in schema order, with values the schema allows and no others."""
    import polars as pl

    columns: list[pl.Series] = []
    for name, column in schema.columns.items():
        if isinstance(column, Categorical):
            kind = {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean}[column.kind]
            levels = pl.Series(name, [*column.levels, None], dtype=kind)
            columns.append(levels.gather(codes[name]).alias(name))
        else:
            columns.append(_numbers(column, codes[name], rng))
    return pl.DataFrame(columns)


def _numbers(column: Numeric, codes: Codes, rng: np.random.Generator) -> pl.Series:
    import polars as pl

    present = codes < column.bins
    drawn = _inside_bins(column, codes[present], rng)
    if not column.integer:
        values = np.full(codes.shape, np.nan)
        values[present] = drawn
        return pl.Series(column.name, values, nan_to_null=True)
    whole = np.zeros(codes.shape, dtype=np.int64)
    whole[present] = as_integers(drawn)
    return pl.select(pl.when(pl.Series(present)).then(pl.Series(whole)).alias(column.name)).to_series()


def as_integers(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole numbers as integers; those that a schema allows but 64 bits do not hold are moved to their ends."""
    return np.clip(numbers, -(2.0**63), 2.0**63 - 1024).astype(np.int64)


def _inside_bins(column: Numeric, codes: Codes, rng: np.random.Generator) -> NDArray[np.float64]:
    boundaries = column.boundaries
    low, width = boundaries[:-1], np.diff(boundaries)
    heights = np.bincount(codes, minlength=column.bins) / width
    before, after = np.r_[heights[:1], heights[:-1]], np.r_[heights[1:], heights[-1:]]
    slope = np.divide(after - before, 4 * heights, out=np.zeros_like(heights), where=heights > 0).clip(-1, 1)
    uniform, s = rng.random(codes.size), slope[codes]
    # The share of the bin below t is (1 - s) t + s t², so t solves a quadratic; this form has no cancellation.
    share = 2 * uniform / ((1 - s) + np.sqrt((1 - s) ** 2 + 4 * s * uniform))
    share = np.where(uniform == 0, 0.0, share)
    if not column.integer:
        values = low[codes] + share * width[codes]
        inner = np.nextafter(boundaries[1:], -np.inf)
        inner[-1] = boundaries[-1]
        return np.minimum(values, inner[codes])
    first = np.ceil(boundaries[:-1])
    last = np.ceil(boundaries[1:]) - 1
    last[-1] = np.floor(boundaries[-1])
    count = last - first + 1
    whole = first[codes] + np.minimum(np.floor(share * count[codes]), count[codes] - 1)
    middle = np.round(low + width / 2).clip(np.ceil(boundaries[0]), np.floor(boundaries[-1]))
    return np.where(count[codes] > 0, whole, middle[codes])
