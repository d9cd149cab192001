"""Two columns of a private table as pairs of numbers in [0, 1]: what every method gets to see."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from escudo.orientation._reading import BATCH_ROWS, Batch, batches_of
from escudo.privacy import Unit
from escudo.table import PrivateTable

__all__ = ["PairData"]

Floats = NDArray[np.float64]


class PairData:
    """Two columns of a private table, scaled by their public bounds; nothing is read before it is asked for.

    Numbers are mapped from [lower, upper] to [0, 1], ordered levels 0, ..., m - 1 to code / (m - 1). Both maps look at
    one record at a time, so they raise no sensitivity.

    **Missing values.** The number of rows never depends on them: a row that lacks x or y stays in its place. ``x`` and
    ``y`` put it at the public midpoint (0.5, 0.5); ``complete`` says which rows have both; ``batches`` shows NaN.

    Args:
        table: The private table.
        x: One column.
        y: The other one.
    """

    def __init__(self, table: PrivateTable, x: str, y: str):
        self._table = table
        self.names = (x, y)

    @property
    def unit(self) -> Unit:
        """Whom the table's guarantees protect."""
        return self._table.unit

    @property
    def max_rows_per_person(self) -> int | None:
        """The most rows of one person that count; None if the unit is the row."""
        return self._table.max_rows_per_person

    @property
    def x(self) -> Floats:
        """The first column, in the table's order, rows that lack a value at the midpoint."""
        return self._filled[:, 0]

    @property
    def y(self) -> Floats:
        """The second column, in the table's order, rows that lack a value at the midpoint."""
        return self._filled[:, 1]

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which rows have both values."""
        return np.logical_not(np.isnan(self._values).any(axis=1))

    @property
    def rows(self) -> int:
        """How many rows were read; public under ``replace_one`` for the row unit only."""
        return len(self._values)

    def batches(self, size: int = BATCH_ROWS) -> Iterator[Batch]:
        """Yield the rows in the table's order without holding all of them."""
        return batches_of(self._table, self.names, size)

    def __repr__(self) -> str:
        return f"PairData{self.names}"

    @cached_property
    def _values(self) -> Floats:
        return np.concatenate([np.empty((0, 2)), *(batch.values for batch in self.batches())])

    @cached_property
    def _filled(self) -> Floats:
        return np.where(self.complete[:, None], self._values, 0.5)
