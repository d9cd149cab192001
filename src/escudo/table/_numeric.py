"""Numeric columns: public bounds, cut into bins by a rule that all engines compute alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import finite
from escudo.errors import InputError, RefusedError, SchemaError
from escudo.table._values import (
    MAX_CELLS,
    MISSING_LABEL,
    as_float,
    check_flags,
    check_name,
    checked_codes,
    listed,
    one_dimensional,
)

__all__ = ["Numeric"]


@dataclass(frozen=True, slots=True, repr=False)
class Numeric:
    r"""A column of numbers with public bounds, cut into bins.

    With ``boundaries`` :math:`b_0 < b_1 < \dots < b_m`, all float64, a value :math:`x` taken as float64 falls into

    .. math:: \mathrm{cell}(x) = \#\{\, 1 \le j \le m - 1 : x \ge b_j \,\}.

    Values below ``lower`` or above ``upper``, infinities included, are thereby clamped to the first and last bin,
    and the last bin is closed. Comparing two float64 numbers is exact on every engine, so all engines agree. Unless
    ``edges`` are given, :math:`b_j = \mathrm{lower} + j \cdot \mathrm{width}` in float64 with
    :math:`\mathrm{width} = (\mathrm{upper} - \mathrm{lower}) / m`, so an engine may also start from
    :math:`\lfloor (x - \mathrm{lower}) / \mathrm{width} \rfloor` and correct by one step against :math:`b_j`.

    Null, NaN and values that are no numbers fall into the missing cell if ``missing`` is true, else into the bin of
    ``fill``, a public value that is the middle of [lower, upper] unless stated.

    Args:
        name: The column's name in the table.
        lower: The smallest value; smaller ones are clamped to it.
        upper: The largest value; larger ones are clamped to it.
        bins: How many bins of equal width.
        edges: Bin boundaries instead of ``bins``, increasing, from ``lower`` to ``upper``.
        integer: Whether the values are whole numbers.
        missing: Whether missing values have a cell of their own, which comes last.
        fill: What missing values count as when they have no cell of their own.
        confirmed: Whether a person vouched that the bounds are public; false for those read from data.
        note: A remark for people, written as a comment; no part of the column's identity.

    Raises:
        SchemaError: If the bounds are not finite and increasing, or the bins too many or too narrow.

    >>> age = Numeric("age", 0, 110, 22)
    >>> age.labels[0], age.labels[-1]
    ('[0, 5)', '[105, 110]')
    >>> age.encode([-3, 0, 4.999, 5, 110, 200, None]).tolist()
    [0, 0, 0, 1, 21, 21, 11]
    """

    name: str
    lower: float | None = None
    upper: float | None = None
    bins: int = 20
    _: KW_ONLY
    edges: tuple[float, ...] | None = None
    integer: bool = False
    missing: bool = False
    fill: float | None = None
    confirmed: bool = True
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_flags(self, "integer", "missing", "confirmed")
        if self.edges is not None:
            self._check_edges(self.edges)
        if isinstance(self.bins, bool) or not isinstance(self.bins, int | np.integer):
            raise self._error("bins must be a whole number.")
        if not 1 <= self.bins < MAX_CELLS:
            raise self._error(f"bins must lie between 1 and {MAX_CELLS - 1:,}.")
        object.__setattr__(self, "bins", int(self.bins))
        if (self.lower is None) != (self.upper is None):
            raise self._error("lower and upper belong together; give both.")
        if self.lower is None or self.upper is None:
            if self.confirmed:
                raise self._error("give lower and upper, or say confirmed = false to learn them.")
            if self.fill is not None:
                raise self._error("fill needs lower and upper.")
            return
        lower, upper = self._number("lower", self.lower), self._number("upper", self.upper)
        if not lower < upper:
            raise self._error("lower must be below upper.")
        # A few units in the last place keep neighbouring boundaries apart after rounding.
        if not 8 * math.ulp(max(abs(lower), abs(upper))) < (upper - lower) / self.bins < math.inf:
            raise self._error("the bins are too narrow or too wide for floating point; change bins, lower or upper.")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        if self.fill is not None:
            object.__setattr__(self, "fill", self._number("fill", self.fill))
            if not lower <= self.fill <= upper:
                raise self._error("fill must lie between lower and upper.")

    def _check_edges(self, edges: Sequence[float]) -> None:
        numbers = tuple(self._number("each of edges", edge) for edge in listed(self.name, "edges", edges))
        if len(numbers) < 2 or not all(a < b for a, b in pairwise(numbers)):
            raise self._error("edges must be at least two increasing numbers.")
        for bound, given, implied in (("lower", self.lower, numbers[0]), ("upper", self.upper, numbers[-1])):
            if given is not None and self._number(bound, given) != implied:
                raise self._error(f"{bound} is not the {'first' if bound == 'lower' else 'last'} edge; leave it out.")
        object.__setattr__(self, "edges", numbers)
        object.__setattr__(self, "lower", numbers[0])
        object.__setattr__(self, "upper", numbers[-1])
        object.__setattr__(self, "bins", len(numbers) - 1)

    def _number(self, field: str, value: object) -> float:
        try:
            return finite(field, value) + 0.0  # -0.0 and 0.0 are one number
        except (InputError, OverflowError, TypeError):
            raise self._error(f"{field} must be a finite number.") from None

    def _error(self, problem: str) -> SchemaError:
        return SchemaError(f"column {self.name!r}: {problem}")

    def _settled(self) -> Numeric:
        if self.open:
            raise RefusedError(
                f"column {self.name!r} has no lower and upper yet; state them in the schema, "
                "or learn them privately with 'escudo schema learn'."
            )
        return self

    @property
    def kind(self) -> Literal["number"]:
        """What the values are."""
        return "number"

    @property
    def summary(self) -> str:
        """The column in a few words, without anything that was read from data and not confirmed."""
        missing = " + missing" if self.missing else ""
        if not self.confirmed:
            return f"numeric{missing}, not confirmed"
        return f"{self.bins:,} bin{'' if self.bins == 1 else 's'} on [{self.lower:g}, {self.upper:g}]{missing}"

    def __repr__(self) -> str:
        return f"Numeric({self.name!r}: {self.summary})"

    @property
    def open(self) -> bool:
        """Whether the bounds are still to be learnt."""
        return self.lower is None

    @property
    def bounds(self) -> tuple[float, float]:
        """``lower`` and ``upper``, known to be stated.

        Raises:
            RefusedError: If they are still to be learnt.
        """
        column = self._settled()
        assert column.lower is not None
        assert column.upper is not None
        return column.lower, column.upper

    @property
    def boundaries(self) -> NDArray[np.float64]:
        """The ``bins + 1`` bin boundaries, increasing, as float64."""
        lower, upper = self.bounds
        if self.edges is not None:
            return np.array(self.edges, dtype=np.float64)
        # The last one as stated: bins times the width may round past it, beyond the largest float even.
        return np.append(lower + np.arange(self.bins, dtype=np.float64) * ((upper - lower) / self.bins), upper)

    @property
    def fill_value(self) -> float:
        """What missing values count as when they have no cell of their own: ``fill``, else the middle."""
        lower, upper = self.bounds
        return lower / 2 + upper / 2 if self.fill is None else self.fill

    @property
    def size(self) -> int:
        """The number of cells, the missing one included."""
        return self._settled().bins + self.missing

    @property
    def labels(self) -> tuple[str, ...]:
        """What to call each cell when showing it to people, such as ``[0, 5)``."""
        boundaries = self.boundaries.tolist()
        for digits in range(12, 18):  # as short as 12 digits allow, yet all different
            texts = [f"{boundary:.{digits}g}" for boundary in boundaries]
            if len(set(texts)) == len(texts):
                break
        bins = [f"[{low}, {high})" for low, high in pairwise(texts)]
        bins[-1] = bins[-1][:-1] + "]"
        return (*bins, *((MISSING_LABEL,) if self.missing else ()))

    @property
    def missing_code(self) -> int | None:
        """The cell of missing values, the last one, or None if they have no cell of their own."""
        return self._settled().bins if self.missing else None

    @property
    def null_code(self) -> int:
        """The cell that null, NaN and values that are no numbers fall into."""
        if self.missing:
            return self._settled().bins
        return int(np.searchsorted(self.boundaries[1:-1], self.fill_value, side="right"))

    def encode(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the cell of each value of a one-dimensional array; no value is an error.

        Args:
            values: A sequence or array of shape (n,), of any type.

        Returns:
            Cells in ``range(size)``, of shape (n,).
        """
        array = one_dimensional(self.name, values)
        if array.dtype.kind in "biuf":
            numbers = array.astype(np.float64)
        elif array.dtype.kind in "Oc":
            numbers = np.fromiter(map(as_float, array), dtype=np.float64, count=array.size)
        else:
            numbers = np.full(array.shape, math.nan)
        cells = np.searchsorted(self.boundaries[1:-1], numbers, side="right").astype(np.int64)
        cells[np.isnan(numbers)] = self.null_code
        return cells

    def decode(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Return the middle of each bin, NaN for the missing cell.

        Raises:
            InputError: If a code is not in ``range(size)``.
        """
        cells = checked_codes(self.name, codes, self.size)
        boundaries = self.boundaries
        return np.append(boundaries[:-1] / 2 + boundaries[1:] / 2, math.nan)[cells]
