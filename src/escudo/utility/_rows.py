"""Rows in the form that learners and comparisons read: cells, and the values of numeric columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.table import Numeric, PrivateTable, Schema

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BATCH = 65_536
EVALUATION_PURPOSE = "private evaluation"
"""What the plan and the ledger call noisy figures of how good rows are."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Rows:
    """Rows of one table, encoded by its schema; they show how many they are, and nothing else.

    Attributes:
        schema: The public description of the columns, without persons: here a row is a row.
        codes: The cell of each column, of shape (rows, columns).
        numbers: The values of numeric columns on [-1, 1], NaN where missing or categorical, of the same shape.
    """

    schema: Schema
    codes: Integers
    numbers: Floats
    noun: ClassVar[str] = "row"

    @classmethod
    def read(cls, frame: object, schema: Schema, *, argument: str = "frame") -> Rows:
        """Encode a frame of any engine. One on a cluster is brought here: :func:`evaluate` takes it where it is.

        Raises:
            InputError: If it is no frame, has no rows, or lacks a column.
        """
        if isinstance(frame, Rows):
            return frame
        if isinstance(frame, PrivateTable):
            refuse_private(argument, "PrivateTable", "frame")
        plain = replace(schema, person_id=None, max_rows_per_person=None)
        table = PrivateTable(_in_memory(frame, argument), plain)
        codes = [batch.astype(np.int64) for batch in table.batches(_BATCH)]
        if not codes:
            raise InputError(f"{argument} has no rows; there is nothing to compare.")
        cells = np.concatenate(codes)
        numbers = np.full(cells.shape, np.nan)
        numeric = [place for place, column in enumerate(plain.fields) if isinstance(column, Numeric)]
        if numeric:
            names = [plain.names[place] for place in numeric]
            numbers[:, numeric] = np.concatenate(list(table.batches(_BATCH, names, encode="scaled")))
        return cls(schema=plain, codes=cells, numbers=numbers)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"Rows({len(self):,} of {len(self.schema)} columns)"

    def take(self, chosen: NDArray[Any]) -> Rows:
        """Return some of the rows."""
        return Rows(schema=self.schema, codes=self.codes[chosen], numbers=self.numbers[chosen])

    def at_most(self, count: int, rng: np.random.Generator) -> Rows:
        """Return all rows, or ``count`` of them drawn without replacement."""
        return self if len(self) <= count else self.take(np.sort(rng.permutation(len(self))[:count]))

    @cached_property
    def _features(self) -> tuple[Floats, Integers]:
        """All columns as numbers for a learner, and which column each came from."""
        parts: list[Floats] = []
        owners: list[int] = []
        for place, column in enumerate(self.schema.fields):
            codes = self.codes[:, place]
            if isinstance(column, Numeric):
                values = self.numbers[:, [place]]
                gaps = np.isnan(values)
                part = np.hstack([np.where(gaps, 0.0, values), gaps]) if column.missing else np.nan_to_num(values)
            else:
                part = (codes[:, None] == np.arange(1, column.size)).astype(np.float64)
            parts.append(part)
            owners.extend([place] * part.shape[1])
        return np.hstack(parts), np.array(owners)

    def inputs(self, *, without: str | None = None) -> Floats:
        """Return the columns as numbers for a learner: indicators of levels, values on [-1, 1], flags of missing ones.

        Args:
            without: A column to leave out, because it is to be predicted.
        """
        features, owners = self._features
        if without is None:
            return features
        return features[:, owners != self.schema.names.index(without)]


def refuse_private(argument: str, kind: str, made_from: str) -> NoReturn:
    """Refuse rows behind an account, where a comparison needs what they were made from.

    Raises:
        InputError: Always.
    """
    raise InputError(
        f"{argument} is a {kind}, which keeps its rows to itself; pass the {made_from} it was made from. "
        "What comes out of this comparison is private."
    )


def _in_memory(frame: object, argument: str) -> Any:
    """Return the frame with its rows in one fixed order, as reading it twice must give the same rows."""
    import narwhals as nw

    try:
        wrapped = nw.from_native(frame)  # type: ignore[call-overload]  # anything may come
    except TypeError:
        raise InputError(
            f"{argument} must be a frame (pandas, polars, pyarrow, DuckDB, ...); got {type(frame).__name__}."
        ) from None
    return wrapped.collect().to_native() if isinstance(wrapped, nw.LazyFrame) else frame
