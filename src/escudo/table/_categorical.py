"""Categorical columns: finitely many public levels, ordered or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo.errors import RefusedError, SchemaError
from escudo.table._values import (
    MAX_CELLS,
    MISSING_LABEL,
    as_real,
    as_text,
    check_flags,
    check_name,
    checked_codes,
    encodable,
    is_null,
    listed,
    one_dimensional,
    plain,
)

__all__ = ["Categorical", "Level"]

Level: TypeAlias = str | int | bool

_EXACT = 2**53  # From here on, engines that compare as float64 would confuse neighbouring whole numbers.


@dataclass(frozen=True, slots=True, repr=False)
class Categorical:
    """A column that takes one of finitely many public levels.

    A value falls into the cell of the level it equals: text by exact characters, numbers and booleans by value
    (``1``, ``1.0``, ``True`` and ``Decimal(1)`` are equal), and text never equals a number. Null and NaN fall into
    the missing cell if ``missing`` is true, else where unknown values go. A value that is no level, of whatever kind,
    goes to the level ``other`` if one is named, else to the missing cell if there is one, else to the *first* level.

    Args:
        name: The column's name in the table.
        levels: Distinct strings, whole numbers (below 2^53 in size) or booleans, all of one kind. Empty only
            for an unconfirmed column whose levels are still to be learnt.
        ordered: Whether the levels have an order (an ordinal column).
        missing: Whether missing values have a cell of their own, which comes last.
        other: The level that unknown values count as.
        confirmed: Whether a person vouched that the levels are public; false for those read from data.
        note: A remark for people, written as a comment; no part of the column's identity.

    Raises:
        SchemaError: If the levels are not distinct, of mixed kinds or absent, or ``other`` is none of them.

    >>> smoke = Categorical("smoke", ["no", "yes"], missing=True)
    >>> smoke.size, smoke.labels
    (3, ('no', 'yes', '(missing)'))
    >>> smoke.encode(["yes", None, "no", "sometimes"]).tolist()
    [1, 2, 0, 2]
    """

    name: str
    levels: tuple[Level, ...] = ()
    _: KW_ONLY
    ordered: bool = False
    missing: bool = False
    other: Level | None = None
    confirmed: bool = True
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_flags(self, "ordered", "missing", "confirmed")
        levels = tuple(plain(level) for level in listed(self.name, "levels", self.levels))
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "other", plain(self.other))
        if not levels and self.confirmed:
            raise self._error(
                "a confirmed column needs at least one level; list them, or say confirmed = false to learn them."
            )
        if len(levels) >= MAX_CELLS:
            raise self._error(f"more than {MAX_CELLS:,} levels; group them, or leave the column out.")
        self._check_levels(levels)
        if self.other is not None and not (self.other in levels and type(self.other) is type(levels[0])):
            raise self._error("other must be one of the levels; add it to them, or name another.")

    def _check_levels(self, levels: tuple[Level, ...]) -> None:
        # Positions instead of values: the levels of an unconfirmed column were read from private data.
        seen: dict[Level, int] = {}
        for position, level in enumerate(levels):
            if not isinstance(level, str | int):
                raise self._error(f"level {position + 1} is not a string, a whole number or a boolean.")
            if type(level) is not type(levels[0]):
                raise self._error(f"levels 1 and {position + 1} are of different kinds; make them all of one kind.")
            if isinstance(level, str) and not encodable(level):
                raise self._error(f"level {position + 1} is not valid Unicode text.")
            if isinstance(level, int) and abs(level) >= _EXACT:
                raise self._error(f"level {position + 1} is 2^53 or more in size; write the levels as strings.")
            if level in seen:
                raise self._error(f"levels {seen[level] + 1} and {position + 1} are the same; remove one.")
            seen[level] = position
        if self.missing and MISSING_LABEL in seen:
            raise self._error(f"{MISSING_LABEL!r} is how the missing cell is shown; rename that level.")

    def _error(self, problem: str) -> SchemaError:
        return SchemaError(f"column {self.name!r}: {problem}")

    def _settled(self) -> Categorical:
        if self.open:
            raise RefusedError(
                f"column {self.name!r} has no levels yet; state them in the schema, "
                "or learn them privately with 'escudo schema learn'."
            )
        return self

    @property
    def kind(self) -> Literal["string", "integer", "boolean", "open"]:
        """What the levels are; ``"open"`` while they are still to be learnt."""
        if not self.levels:
            return "open"
        if isinstance(self.levels[0], str):
            return "string"
        return "boolean" if isinstance(self.levels[0], bool) else "integer"

    @property
    def summary(self) -> str:
        """The column in a few words, without anything that was read from data and not confirmed."""
        missing = " + missing" if self.missing else ""
        if not self.confirmed:
            return f"{'ordinal' if self.ordered else 'categorical'}{missing}, not confirmed"
        count = f"{len(self.levels):,} {'ordered ' if self.ordered else ''}level"
        return f"{count}{'' if len(self.levels) == 1 else 's'}{missing}"

    def __repr__(self) -> str:
        return f"Categorical({self.name!r}: {self.summary})"

    @property
    def open(self) -> bool:
        """Whether the levels are still to be learnt."""
        return not self.levels

    @property
    def size(self) -> int:
        """The number of cells, the missing one included."""
        return len(self._settled().levels) + self.missing

    @property
    def labels(self) -> tuple[str, ...]:
        """What to call each cell when showing it to people."""
        return (*map(str, self._settled().levels), *((MISSING_LABEL,) if self.missing else ()))

    @property
    def codes(self) -> dict[Level, int]:
        """The cell of each level."""
        return {level: code for code, level in enumerate(self._settled().levels)}

    @property
    def missing_code(self) -> int | None:
        """The cell of missing values, the last one, or None if they have no cell of their own."""
        return len(self._settled().levels) if self.missing else None

    @property
    def other_code(self) -> int:
        """The cell that values outside the levels fall into."""
        if self.other is not None:
            return self.levels.index(self.other)
        return len(self.levels) if self.missing else 0

    @property
    def null_code(self) -> int:
        """The cell that null and NaN fall into."""
        return len(self.levels) if self.missing else self.other_code

    def encode(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the cell of each value of a one-dimensional array; no value is an error.

        Args:
            values: A sequence or array of shape (n,), of any type.

        Returns:
            Cells in ``range(size)``, of shape (n,).
        """
        array = one_dimensional(self.name, values)
        if array.dtype.kind in "OmMV":  # times and records would turn into plain numbers in a list
            return self._cells(array)
        distinct, inverse = np.unique(array, return_inverse=True)
        return self._cells(distinct.tolist())[inverse]

    def _cells(self, values: Iterable[Any]) -> NDArray[np.int64]:
        codes: dict[Any, int] = {**self.codes}
        null, other = self.null_code, self.other_code
        read = as_text if self.kind == "string" else as_real

        def cell(value: Any) -> int:
            # Equal numbers hash alike across int, float, Decimal and Fraction: one lookup is the docstring's rule.
            found = codes.get(read(value), -1)
            return found if found >= 0 else null if is_null(value) else other

        return np.fromiter(map(cell, values), dtype=np.int64)

    def decode(self, codes: ArrayLike) -> NDArray[np.object_]:
        """Return the level of each cell, None for the missing cell.

        Raises:
            InputError: If a code is not in ``range(size)``.
        """
        cells = checked_codes(self.name, codes, self.size)
        values = np.empty(len(self.levels) + 1, dtype=object)
        values[:-1] = self.levels
        return values[cells]
