"""Which records fit the regressions and which are scored: public rules that look at no value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError, SchemaError
from escudo.orientation._pair import PairData
from escudo.table import PrivateTable, Schema

__all__ = ["Pair", "check_rows", "halves", "in_two", "public_pair", "scaled"]

Floats = NDArray[np.float64]


class Pair(NamedTuple):
    """Two columns on [-1, 1]."""

    x: Floats
    y: Floats

    def __repr__(self) -> str:
        return f"Pair({len(self.x)} records)"  # which may be private


def scaled(pairs: PairData) -> Pair:
    """Return the pairs on [-1, 1], from the public bounds; rows that lack a value are at (0, 0)."""
    return Pair(2.0 * pairs.x - 1.0, 2.0 * pairs.y - 1.0)


def public_pair(schema: Schema, x: str, y: str, records: object, *, option: str) -> Pair:
    """Return public records, scaled by the same bounds as the private ones.

    Args:
        schema: The private table's schema.
        x: One column.
        y: The other one.
        records: A frame of any engine, or a mapping from the two names to sequences.
        option: What the caller calls them.

    Raises:
        InputError: If they are no such thing, lack a column, or are fewer than two.
    """
    frame: Any = records
    if isinstance(records, Mapping):
        import polars as pl

        try:
            frame = pl.DataFrame({name: records[name] for name in (x, y)})
        except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
            raise InputError(f"{option} must hold the columns {x!r} and {y!r}, of equal length.") from None
    try:
        pair = scaled(PairData(PrivateTable(frame, schema.select([x, y])), x, y))
    except (InputError, SchemaError) as error:
        raise InputError(f"{option} must be a frame of public records with columns {x!r} and {y!r}: {error}") from None
    if len(pair.x) < 2:
        raise InputError(f"{option} needs at least two records.")
    return pair


def halves(rows: int) -> tuple[int, int]:
    """Return how many of the rows fit regressions, and how many are scored."""
    return rows // 2, rows - rows // 2


def in_two(pair: Pair, *, shuffle: int) -> tuple[Pair, Pair]:
    """Return the training and the test half, by position alone: a shuffle of row numbers from a public seed."""
    order = np.random.default_rng(shuffle).permutation(len(pair.x))
    first = halves(len(pair.x))[0]
    train, test = order[:first], order[first:]
    return Pair(pair.x[train], pair.y[train]), Pair(pair.x[test], pair.y[test])


def check_rows(stated: int, counted: int | None) -> None:
    """Raise unless the table has as many rows as sensitivities were computed for; under replace_one that is public."""
    if counted is not None and counted != stated:
        raise InputError(
            f"rows was stated as {stated:,}, but the table has {counted:,}: sensitivities depend on it. Leave rows "
            "out; it is counted for you."
        )
