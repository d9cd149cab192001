"""The same rows with one record more, less or another: counted once, moved many times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo.privacy import Guarantee, MemoryAccount
from escudo.table import Numeric, PrivateTable
from escudo.utility import Rows

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RowsWithRecord"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowsWithRecord:
    """Rows that everybody shares, and one record that is there or not.

    Attributes:
        rest: All other rows.
        record: The one in question, a single row; None if nobody stands there.
        counted: Counts of the rest that were asked for before, shared by all that have the same rest.
    """

    rest: Rows
    record: Rows | None
    counted: dict[tuple[str, ...], NDArray[np.int64]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RowsWithRecord({len(self.rest):,} rows and {'one' if self.record is not None else 'no'} record)"

    def frame(self) -> pl.DataFrame:
        """Return all rows as a frame, the record last."""
        import polars as pl

        rows = [self.rest] if self.record is None else [self.rest, self.record]
        return pl.concat([_decoded(part) for part in rows])

    def table(self, claim: Guarantee) -> PrivateTable:
        """Return all rows as a table whose counts are those of the rest, with the record's cells moved.

        Where the claim is about people, every row is a person of their own: each of them is protected at least as well
        as one with more rows.

        Args:
            claim: What the table's account is stated for.
        """
        return _MovedTable(self, claim)


class _MovedTable(PrivateTable):
    """A table that counts its shared rows once."""

    __slots__ = ("_rows",)

    def __init__(self, rows: RowsWithRecord, claim: Guarantee):
        super().__init__(_decoded(rows.rest), rows.rest.schema)
        self._account = MemoryAccount(
            relation=claim.relation, unit=claim.unit, max_rows_per_person=claim.max_rows_per_person
        )
        self._rows = rows

    def record_count(self) -> int:
        """Return how many rows there are, with the record."""
        return len(self._rows.rest) + (self._rows.record is not None)

    def counts(self, columns: Any) -> Any:
        """Return counts as :meth:`PrivateTable.counts` does."""
        single = isinstance(columns, str) or all(isinstance(name, str) for name in columns)
        asked = [([columns] if isinstance(columns, str) else list(columns))] if single else [list(c) for c in columns]
        new = [names for names in asked if tuple(names) not in self._rows.counted]
        for names, counts in zip(new, super().counts(new), strict=True) if new else ():
            self._rows.counted[tuple(names)] = counts
        found = [self._with_record(names) for names in asked]
        return found[0] if single else found

    def _with_record(self, names: Sequence[str]) -> NDArray[np.int64]:
        counts = self._rows.counted[tuple(names)]
        record = self._rows.record
        if record is None:
            return counts
        moved = counts.copy()
        moved[tuple(record.codes[0, self.columns.index(name)] for name in names)] += 1
        return moved

    def batches(
        self, size: int = 65_536, columns: Sequence[str] | None = None, *, encode: Any = "codes"
    ) -> Iterator[NDArray[Any]]:
        """Return batches as :meth:`PrivateTable.batches` does, the record in the last one."""
        record = self._rows.record
        if record is None:
            return super().batches(size, columns, encode=encode)
        whole = PrivateTable(self._rows.frame(), self.schema)
        return whole.batches(size, columns, encode=encode)


def _decoded(rows: Rows) -> pl.DataFrame:
    """Return rows as a frame: levels, and the values of numeric columns."""
    import polars as pl

    columns: dict[str, pl.Series] = {}
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            lower, upper = column.bounds
            values = lower + (rows.numbers[:, place] + 1) / 2 * (upper - lower)
            series = pl.Series(column.name, values).fill_nan(None)
            columns[column.name] = series.round().cast(pl.Int64) if column.integer else series
        else:
            levels = [*column.levels, *([None] if column.missing else [])]
            columns[column.name] = pl.Series(column.name, levels).gather(rows.codes[:, place])
    return pl.DataFrame(columns)
