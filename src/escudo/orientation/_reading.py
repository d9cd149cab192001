"""Columns of a private table as numbers in [0, 1], read in its own engine, one batch at a time.

For the person unit a public hash of the person id comes with each row, so that all rows of a person can be sent to one
block. A person's rows are bounded as everywhere (``table/_rows.py``); rows without a person id take no part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo.errors import SchemaError
from escudo.privacy import Relation
from escudo.table import Categorical, Column, PrivateTable, Schema

__all__ = ["BATCH_ROWS", "Batch", "batches_of", "public_rows", "scored_column"]

BATCH_ROWS = 65_536


class Batch(NamedTuple):
    """Some rows, in the table's order.

    Attributes:
        values: Shape (rows, columns), in [0, 1]; NaN where missing.
        person: For the person unit, a public hash of whose row it is, shape (rows,); else None.
    """

    values: NDArray[np.float64]
    person: NDArray[np.int64] | None


def scored_column(schema: Schema, name: str, *, fewest: int = 2) -> Column:
    """Return a column whose values have an order, and so can be put on a scale.

    Args:
        schema: The table's schema.
        name: The column's name.
        fewest: How many different values the column must be able to take.

    Raises:
        SchemaError: If there is no such column, it is categorical without an order, or its public values are too few.
    """
    column = schema[name]
    if isinstance(column, Categorical):
        values = float(len(column.levels))
        if values > 2 and not column.ordered:
            raise SchemaError(
                f"column {name!r} is categorical without an order, so it has no scale on which a direction could show; "
                "state that its levels are ordered in the schema if they are, or choose another column."
            )
    else:
        lower, upper = column.bounds
        values = upper - lower + 1 if column.integer else math.inf
    if values < fewest:
        raise SchemaError(
            f"column {name!r} can take {values:g} different values only, and at least {fewest} are needed to see a "
            "direction; choose a finer column."
        )
    return column


def public_rows(table: PrivateTable, relation: Relation) -> int | None:
    """Return how many rows (people, for the person unit) the table has where neighbours share it, else None.

    Replacing one row leaves the number of rows as it was, replacing one person the number of people: under
    ``replace_one`` these are public. Adding or removing one changes them: they are private, and not counted.
    """
    return table.record_count() if relation == "replace_one" else None


def batches_of(table: PrivateTable, names: Sequence[str], size: int = BATCH_ROWS) -> Iterator[Batch]:
    """Yield the named columns in the table's order, without holding all rows; batches have ``size`` rows.

    Raises:
        SchemaError: If a column has no order.
    """
    for name in names:
        scored_column(table.schema, name)
    if table.unit == "row":
        for values in table.batches(size, names, encode="shares"):
            yield Batch(values, None)
    else:
        for values, person in table.person_batches(size, names, encode="shares"):
            yield Batch(values, person)
