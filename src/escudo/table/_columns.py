"""Columns as public facts: which values a column may hold, and the cell each value falls into.

A column never looks at data. It fixes, once and for every dataframe engine, which of ``size`` cells a value belongs
to, so that the same table gives the same counts to the last unit wherever it lives. :meth:`Categorical.encode` and
:meth:`Numeric.encode` are the reference that every engine's own expressions are tested against.

Categorical columns have finitely many public levels, ordered or not; numeric ones public bounds, cut into bins by a
rule that all engines compute alike. Single values are read in one way, the same for every engine.

**As plain data**, the form that TOML, JSON and ``Schema.from_dict`` share: a list is short for the levels of a
categorical column. Everything else is a mapping with a ``type``:

=============  ==========================================================================================
type           keys beside ``missing``, ``confirmed``
=============  ==========================================================================================
categorical    ``levels``, ``other``, ``loose``, ``recode``, ``prefix``
ordinal        ``levels`` in their order, ``other``, ``loose``, ``recode``, ``prefix``
boolean        ``other``; the levels are false and true
numeric        ``lower``, ``upper``, ``bins`` (a number or "private") or ``edges``; ``integer``, ``format``, ``fill``,
               ``from``, ``unit``
date           ``lower``, ``upper``, ``bins`` or ``edges``, all of them days; ``format``, ``fill``
=============  ==========================================================================================
"""

from __future__ import annotations

import datetime as dt
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import did_you_mean, finite
from escudo.errors import InputError, RefusedError, SchemaError
from escudo.table._values import (
    DAYS_OF_A_YEAR,
    ISO,
    as_dates,
    as_day,
    as_float,
    as_numbers,
    as_python,
    as_real,
    as_text,
    date_of,
    days_in_texts,
    encodable,
    is_null,
    loosely,
    numbers_in_texts,
    one_dimensional,
)

if TYPE_CHECKING:
    import polars as pl

MAX_CELLS = 10_000_000
"""The most levels or bins one column may have."""


PRIVATE_BINS = 20
"""How many bins a release chooses for a column of numbers that nobody cut."""


_MOST_LETTERS = 1000  # that a prefix may have


MISSING_LABEL = "(missing)"
"""How the missing cell is shown to people."""


def check_name(name: object) -> None:
    """Raise unless ``name`` can name a column."""
    if not isinstance(name, str) or not name:
        raise SchemaError("a column's name must be text and not empty; rename the column in the table.")
    if not encodable(name):
        raise SchemaError("a column's name is not valid Unicode text; rename the column in the table.")


def check_flags(column: Any, *flags: str) -> None:
    """Raise unless the named attributes of a column are booleans and its note is text."""
    for flag in flags:
        if not isinstance(getattr(column, flag), bool):
            raise SchemaError(f"column {column.name!r}: {flag} must be true or false.")
    if not isinstance(column.note, str) or not encodable(column.note):
        raise SchemaError(f"column {column.name!r}: note must be text.")


def listed(name: str, attribute: str, value: object) -> list[Any]:
    """Return ``value`` as a list, or raise if it is no collection of items."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise SchemaError(f"column {name!r}: {attribute} must be a list.")
    return list(value)


def checked_codes(name: str, codes: ArrayLike, size: int) -> NDArray[np.int64]:
    """Return cell numbers as an array, or raise unless all lie in ``range(size)``."""
    cells = np.asarray(codes)
    if cells.size and (cells.dtype.kind not in "iu" or cells.min() < 0 or cells.max() >= size):
        raise InputError(f"column {name!r}: codes must be whole numbers in 0 ... {size - 1}.")
    return cells.astype(np.int64)


Level: TypeAlias = str | int | bool
_Number = TypeVar("_Number", bound=Any)


_EXACT = 2**53  # From here on, engines that compare as float64 would confuse neighbouring whole numbers.


class _Described:
    """What both kinds of columns have in common."""

    __slots__ = ()

    name: str
    missing: bool
    confirmed: bool
    _learnt: ClassVar[str]

    @property
    def summary(self) -> str:
        """The column in a few words, without anything that was read from data and not confirmed."""
        missing = " + missing" if self.missing else ""
        return f"{self._told()}{missing}" if self.confirmed else f"{self._sort()}{missing}, not confirmed"

    @property
    @abstractmethod
    def open(self) -> bool:
        """Whether its levels or bounds are still to be learnt."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of cells, the missing one included."""

    @property
    def missing_code(self) -> int | None:
        """The cell of missing values, the last one, or None if they have no cell of their own."""
        return self.size - 1 if self.missing else None

    def encode(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the cell of each value of a one-dimensional array; no value is an error.

        Args:
            values: A sequence or array of shape (n,), of any type.

        Returns:
            Cells in ``range(size)``, of shape (n,).
        """
        return self._cells_of(one_dimensional(self.name, values))

    @abstractmethod
    def _sort(self) -> str: ...  # in a word

    @abstractmethod
    def _told(self) -> str: ...  # its cells, in a few words

    @abstractmethod
    def _cells_of(self, array: NDArray[Any]) -> NDArray[np.int64]: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {self.summary})"

    def _error(self, problem: str) -> SchemaError:
        return SchemaError(f"column {self.name!r}: {problem}")

    def _settled(self) -> Self:
        if self.open:
            raise RefusedError(
                f"column {self.name!r} has no {self._learnt} yet; state them in the schema, "
                "or learn them privately with 'escudo schema learn'."
            )
        return self


@dataclass(frozen=True, slots=True, repr=False)
class Categorical(_Described):
    """A column that takes one of finitely many public levels.

    A value falls into the cell of the level it equals: text by exact characters unless ``loose``, numbers and booleans
    by value (``1``, ``1.0``, ``True`` and ``Decimal(1)`` are equal), and text never equals a number. Null and NaN fall
    into the missing cell if ``missing`` is true, else where unknown values go. A value that is no level, of whatever
    kind, goes to the level ``other`` if one is named, else to the missing cell if there is one, else to the *first*
    level.

    Args:
        name: The column's name in the table.
        levels: Distinct strings, whole numbers (below 2^53 in size) or booleans, all of one kind. Empty only
            for an unconfirmed column whose levels are still to be learnt.
        ordered: Whether the levels have an order (an ordinal column).
        missing: Whether missing values have a cell of their own, which comes last.
        other: The level that unknown values count as.
        loose: Whether texts, those of levels and ``recode`` too, are compared without the blanks around them (space,
            tab, line ends and feeds) and the letters A to Z as a to z. No other letter has another case: ``É`` is
            not ``é``. This comes before ``recode`` and ``prefix``.
        recode: Texts that count as a level, or as missing (``"(missing)"``): other spellings, trailing blanks, markers.
        prefix: How many letters of a text count, where codes stand for others that begin alike: of ``E11.9`` the first
            three. Levels but ``other`` are then such beginnings; a longer text in ``recode`` is one value as a whole.
        confirmed: Whether a person vouched that the levels are public; false for those read from data.
        note: A remark for people, written as a comment; no part of the column's identity.

    Raises:
        SchemaError: If the levels are not distinct, of mixed kinds or absent, ``other`` is none of them, or ``recode``
            speaks of a level or for what is none; with ``loose``, if two levels or spellings become the same.

    >>> smoke = Categorical("smoke", ["no", "yes"], missing=True)
    >>> smoke.size, smoke.labels
    (3, ('no', 'yes', '(missing)'))
    >>> smoke.encode(["yes", None, "no", "sometimes"]).tolist()
    [1, 2, 0, 2]
    >>> Categorical("sex", ["F", "M"], recode={"F ": "F", "female": "F"}).encode(["female", "M", "F "]).tolist()
    [0, 1, 0]
    >>> Categorical("sex", ["F", "M"], loose=True, recode={"female": "F"}).encode([" Female", "m", "f "]).tolist()
    [0, 1, 0]
    >>> Categorical("diagnosis", ["E11", "I10"], prefix=3, missing=True).encode(["I10.0", "E11.65", "E1"]).tolist()
    [1, 0, 2]
    """

    _learnt: ClassVar[str] = "levels"

    name: str
    levels: tuple[Level, ...] = ()
    _: KW_ONLY
    ordered: bool = False
    missing: bool = False
    other: Level | None = None
    loose: bool = False
    recode: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    prefix: int | None = None
    confirmed: bool = True
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_flags(self, "ordered", "missing", "confirmed", "loose")
        levels = tuple(as_python(level) for level in listed(self.name, "levels", self.levels))
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "other", as_python(self.other))
        if not levels and self.confirmed:
            raise self._error(
                "a confirmed column needs at least one level; list them, or say confirmed = false to learn them."
            )
        if len(levels) >= MAX_CELLS:
            raise self._error(f"more than {MAX_CELLS:,} levels; group them, or leave the column out.")
        self._check_levels(levels)
        if self.other is not None and not (self.other in levels and type(self.other) is type(levels[0])):
            raise self._error("other must be one of the levels; add it to them, or name another.")
        self._check_recode()
        if self.loose:
            self._check_loose()
        if self.prefix is not None:
            self._check_prefix(self.prefix)

    def _check_loose(self) -> None:
        if self.kind != "string":
            raise self._error("loose goes with levels that are texts; leave it out, or state the levels as texts.")
        seen: dict[str, str] = {}
        for what, texts in (("level {}", self.levels), ("entry {} of recode", dict(self.recode))):
            for position, text in enumerate(texts):
                named = what.format(position + 1)
                if (first := seen.setdefault(loosely(str(text)), named)) != named:
                    raise self._error(
                        f"{first} and {named} differ in case and blanks only, which do not count with loose = true; "
                        "take one of them out."
                    )
        if self.missing and MISSING_LABEL in map(loosely, map(str, self.levels)):
            raise self._error(f"{MISSING_LABEL!r} is how the missing cell is shown; rename the level that reads so.")

    def _check_prefix(self, prefix: object) -> None:
        if isinstance(prefix, bool) or not isinstance(prefix, int | np.integer) or not 1 <= prefix <= _MOST_LETTERS:
            raise self._error(f"prefix must be a whole number of letters from 1 to {_MOST_LETTERS:,}.")
        object.__setattr__(self, "prefix", int(prefix))
        if self.kind not in ("string", "open"):
            raise self._error("prefix goes with levels that are texts; write codes as texts, such as '01234'.")
        for position, (level, text) in enumerate(zip(self.levels, self._compared.levels, strict=True)):
            if len(str(text)) > prefix and level != self.other:
                raise self._error(f"level {position + 1} is longer than prefix: no value counts as it.")

    def _check_recode(self) -> None:
        """Check other spellings, and keep them in an order that does not depend on who wrote them down."""
        try:
            pairs = sorted(dict(self.recode).items())
        except (TypeError, ValueError):
            raise self._error("recode must say for each text which level it counts as.") from None
        object.__setattr__(self, "recode", tuple(pairs))
        if pairs and self.kind != "string":
            raise self._error("recode goes with levels that are texts; leave it out, or write the levels as texts.")
        targets = {*self.levels, *((MISSING_LABEL,) if self.missing else ())}
        for position, (text, level) in enumerate(pairs):
            if not isinstance(text, str) or not encodable(text):
                raise self._error(f"entry {position + 1} of recode is no text that a table can hold.")
            if text in self.levels:
                raise self._error(f"entry {position + 1} of recode is a level itself; take one of them out.")
            if not isinstance(level, str) or level not in targets:
                hint = "" if self.missing else f" ({MISSING_LABEL!r} needs missing = true)"
                raise self._error(f"entry {position + 1} of recode must count as one of the levels{hint}.")

    @property
    def _compared(self) -> Categorical:
        """The column with its texts as values are compared with them; itself, unless it is loose."""
        if not self.loose:
            return self
        return replace(
            self,
            levels=tuple(loosely(str(level)) for level in self.levels),
            other=None if self.other is None else loosely(str(self.other)),
            recode={loosely(text): loosely(level) for text, level in dict(self.recode).items()},
            loose=False,
        )

    @property
    def spellings(self) -> dict[str, tuple[str, ...]]:
        """The texts that count as each level, or as :data:`MISSING_LABEL`, besides itself."""
        found: dict[str, tuple[str, ...]] = {}
        for text, level in dict(self.recode).items():
            found[level] = (*found.get(level, ()), text)
        return found

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

    @property
    def kind(self) -> Literal["string", "integer", "boolean", "open"]:
        """What the levels are; ``"open"`` while they are still to be learnt."""
        if not self.levels:
            return "open"
        if isinstance(self.levels[0], str):
            return "string"
        return "boolean" if isinstance(self.levels[0], bool) else "integer"

    def _sort(self) -> str:
        return "ordinal" if self.ordered else "categorical"

    def _told(self) -> str:
        count = f"{len(self.levels):,} {'ordered ' if self.ordered else ''}level"
        return f"{count}{'' if len(self.levels) == 1 else 's'}"

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
    def other_code(self) -> int:
        """The cell that values outside the levels fall into."""
        if self.other is not None:
            return self.levels.index(self.other)
        return len(self.levels) if self.missing else 0

    @property
    def _uncut(self) -> tuple[str, ...]:
        """The texts of ``recode``, and ``other``, that are longer than ``prefix``: each stands for itself, uncut."""
        texts = [*dict(self.recode), *([] if self.other is None else [str(self.other)])]
        return tuple(text for text in texts if self.prefix is not None and len(text) > self.prefix)

    def _cut(self, text: str) -> str:
        """Return what counts of a text: its beginning, or all of it."""
        return text if text in self._uncut else text[: self.prefix]

    def _reader(self) -> Callable[[str], str]:
        """Return how a text is read before it is compared with those of :attr:`_compared`."""
        like = self._compared
        return (lambda text: like._cut(loosely(text))) if self.loose else like._cut

    @property
    def null_code(self) -> int:
        """The cell that null and NaN fall into."""
        return len(self.levels) if self.missing else self.other_code

    def _cells_of(self, array: NDArray[Any]) -> NDArray[np.int64]:
        if array.dtype.kind in "OmMV":  # times and records would turn into plain numbers in a list
            return self._cells(array)
        distinct, inverse = np.unique(array, return_inverse=True)
        return self._cells(distinct.tolist())[inverse]

    def _cells(self, values: Iterable[Any]) -> NDArray[np.int64]:
        like = self._compared
        codes: dict[Any, int] = {**like.codes}
        codes |= {text: codes.get(level, self.null_code) for text, level in dict(like.recode).items()}
        null, other = self.null_code, self.other_code
        read: Callable[[Any], Any] = as_text if self.kind == "string" else as_real
        if self.prefix is not None or self.loose:
            as_compared = self._reader()

            def read(value: Any) -> str | None:
                text = as_text(value)
                return None if text is None else as_compared(text)

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


@dataclass(frozen=True, slots=True, repr=False)
class Numeric(_Described):
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

    **Private bins.** Where nobody says how to cut, whole numbers of which there are up to 20 have a bin each. For all
    others ``bins`` is ``"private"``: every generator chooses 20 bins privately, out of its own budget, as its plan
    shows. What else counts such a column (``discover``, say) cuts it into 20 bins of equal width.

    **Derived columns.** With ``derived``, a column is not read but computed, in the engine: the difference of two other
    columns of the schema, in days or in years of 365.25 days where these are dates, rounded down where it is whole. In
    synthetic rows the difference is drawn, and one of the two columns follows from it and the other.

    Args:
        name: The column's name in the table.
        lower: The smallest value; smaller ones are clamped to it.
        upper: The largest value; larger ones are clamped to it.
        bins: How many bins of equal width; or ``"private"``, for bins that are chosen by a release.
        edges: Bin boundaries instead of ``bins``, increasing, from ``lower`` to ``upper``.
        integer: Whether the values are whole numbers.
        missing: Whether missing values have a cell of their own, which comes last.
        fill: What missing values count as when they have no cell of their own.
        date: How text writes a day, such as ``"%d.%m.%Y"``, if the values are dates: ``"%Y-%m-%d"`` also
            where they have a type of their own. Bounds, edges and fill are then dates, kept as the days since
            1970-01-01; a point in time counts as its day, in UTC if it has a zone.
        form: How text writes the number 1234.5, if the values are texts such as ``"$12,300"``: ``"$1,234.5"``,
            ``"1.234,5 kg"``. What stands before and after the digits may be left out, whatever its case and the blanks
            there, and so may what stands between thousands; a power of ten may follow, as in ``"1.5E-3 kg"``. A text
            that is no number written so is missing. Numbers are read as they are. Percent are read as the form writes
            them: with ``"1234.5%"`` the text ``"12%"`` is 12, with ``"123450.0%"`` it is 0.12, and bounds go with that.
        confirmed: Whether a person vouched that the bounds are public; false for those read from data.
        private: Whether bins are to be chosen by a release; said by ``bins="private"``.
        derived: The two columns of which this one is the difference, such as ``("visit", "birth")``.
        unit: In what that is counted, if they are dates: ``"days"`` or ``"years"``.
        note: A remark for people, written as a comment; no part of the column's identity.

    Raises:
        SchemaError: If the bounds are not finite and increasing, or the bins too many or too narrow.

    >>> age = Numeric("age", 0, 110, 22)
    >>> age.labels[0], age.labels[-1]
    ('[0, 5)', '[105, 110]')
    >>> age.encode([-3, 0, 4.999, 5, 110, 200, None]).tolist()
    [0, 0, 0, 1, 21, 21, 11]
    >>> visit = Numeric("visit", "2024-01-01", "2024-12-31", 12, date="%Y-%m-%d")
    >>> visit.labels[0], visit.encode([dt.date(2024, 12, 24)]).tolist()
    ('2024-01-01 to 2024-01-31', [11])
    >>> Numeric("price", 0, 20_000, 2, form="$1,234.5", missing=True).encode(["$ 12,300", "7.5", "none"]).tolist()
    [1, 0, 2]
    >>> Numeric("share", 0, 1, form="123450.0%").read("12.5 %"), Numeric("share", 0, 100, form="1234.5%").read("12.5 %")
    (0.125, 12.5)
    """

    _learnt: ClassVar[str] = "lower and upper"

    name: str
    lower: Any = None  # Any: a number, or what can be read as a date; a float once it is checked, like all of these
    upper: Any = None
    bins: Any = "private"  # a number once it is checked
    _: KW_ONLY
    edges: tuple[Any, ...] | None = None
    integer: bool = False
    missing: bool = False
    fill: Any = None
    date: str | None = None
    form: str | None = None
    confirmed: bool = True
    private: bool = False
    derived: tuple[str, str] | None = None
    unit: str | None = None
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_flags(self, "integer", "missing", "confirmed", "private")
        if self.date is not None:
            self._check_format(self.date)
        if self.form is not None:
            self._check_form(self.form)
        self._check_derived()
        if self.edges is not None:
            self._check_edges(self.edges)
        elif self.private or self.bins == "private":
            self._check_private()
        if isinstance(self.bins, bool) or not isinstance(self.bins, int | np.integer):
            raise self._error('bins must be a whole number, or "private" for bins that a release chooses.')
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
        if self.date is not None and upper - lower < self.bins:
            raise self._error("each bin must hold a day; take fewer bins.")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        if self.fill is not None:
            object.__setattr__(self, "fill", self._number("fill", self.fill))
            if not lower <= self.fill <= upper:
                raise self._error("fill must lie between lower and upper.")

    def _check_edges(self, edges: Sequence[float]) -> None:
        numbers = tuple(self._number("each of edges", edge) for edge in listed(self.name, "edges", edges))
        if len(numbers) < 2 or not all(a < b for a, b in pairwise(numbers)):
            raise self._error(f"edges must be at least two increasing {'numbers' if self.date is None else 'dates'}.")
        for bound, given, implied in (("lower", self.lower, numbers[0]), ("upper", self.upper, numbers[-1])):
            if given is not None and self._number(bound, given) != implied:
                raise self._error(f"{bound} is not the {'first' if bound == 'lower' else 'last'} edge; leave it out.")
        object.__setattr__(self, "edges", numbers)
        object.__setattr__(self, "lower", numbers[0])
        object.__setattr__(self, "upper", numbers[-1])
        object.__setattr__(self, "bins", len(numbers) - 1)
        object.__setattr__(self, "private", False)

    def _check_derived(self) -> None:
        if self.unit is not None and (self.derived is None or self.unit not in ("days", "years")):
            raise self._error("unit must be 'days' or 'years', and goes with a column that is derived from two dates.")
        if self.derived is None:
            return
        names = tuple(listed(self.name, "derived", self.derived))
        if len(names) != 2 or not all(isinstance(name, str) and name for name in names) or self.name in names:
            raise self._error("derived must name two other columns, such as 'visit - birth'.")
        if self.date is not None:
            raise self._error("a difference of two columns is a number, no date.")
        object.__setattr__(self, "derived", names)

    def difference(self, later: _Number, earlier: _Number, floor: Callable[[_Number], _Number]) -> _Number:
        """Return a derived column from the two that it is derived from, as numbers or expressions of numbers."""
        apart: _Number = later - earlier
        apart = apart / DAYS_OF_A_YEAR if self.unit == "years" else apart
        return floor(apart) if self.integer else apart

    def distance(self, value: _Number, before: _Number, floor: Callable[[_Number], _Number]) -> _Number:
        """Return how far two columns lie apart whose difference is this: what :meth:`difference` gives back.

        Args:
            value: The difference, in the units of this column.
            before: How far they lie apart now: of whole years it says how much of another one is over.
            floor: What rounds down.
        """
        if self.unit != "years":
            return value if self.unit is None else floor(value)
        if not self.integer:
            return floor(value * DAYS_OF_A_YEAR + 0.5)
        years = before / DAYS_OF_A_YEAR
        days: _Number = -floor(-(value * DAYS_OF_A_YEAR)) + floor((years - floor(years)) * 365)
        return days

    def _check_private(self) -> None:
        """Leave the bins to a release, unless there are so few whole numbers that each can have one."""
        if self.bins not in ("private", PRIVATE_BINS):
            raise self._error("bins are chosen privately or stated, not both; leave one of them out.")
        private, bins = True, PRIVATE_BINS
        if self.lower is not None and self.upper is not None:
            lower, upper = self._number("lower", self.lower), self._number("upper", self.upper)
            # Whole numbers from one to the other: one bin each, if these are few.
            if self.integer and 1 <= upper - lower < bins:
                private, bins = False, int(upper - lower) + (self.date is None)
        object.__setattr__(self, "private", private)
        object.__setattr__(self, "bins", bins)

    def _check_format(self, form: object) -> None:
        """Check that a day survives being written so and read again."""
        tried = dt.datetime(2017, 11, 23, 12, tzinfo=dt.UTC)
        try:
            if not isinstance(form, str) or dt.datetime.strptime(tried.strftime(form), form).date() != tried.date():
                raise ValueError
        except ValueError:
            raise self._error(
                "format must say how a day is written, such as '%Y-%m-%d' or '%d.%m.%Y': %Y, %m (or %b, %B) and %d."
            ) from None
        object.__setattr__(self, "integer", True)

    def _check_form(self, form: object) -> None:
        """Check that 1234.5 is written so, and that numbers are read from texts at all."""
        if self.date is not None or self.derived is not None:
            raise self._error("form is how text writes numbers: it goes with no date, and no column that is derived.")
        try:
            if not isinstance(form, str) or not encodable(form):
                raise ValueError
            numbers_in_texts([form], form)
        except ValueError:
            raise self._error(
                "format must show how text writes the number 1234.5, such as '$1,234.5', '1.234,5 €' or '1234.5 kg'; "
                "'1234.5%' where 12% are 12, '123450.0%' where they are 0.12."
            ) from None

    def _number(self, field: str, value: object) -> float:
        if self.date is not None:
            return self._day(field, value)
        try:
            return finite(field, value) + 0.0  # -0.0 and 0.0 are one number
        except (InputError, OverflowError, TypeError):
            raise self._error(f"{field} must be a finite number.") from None

    def _day(self, field: str, value: object) -> float:
        try:
            return self.day(value)
        except ValueError:
            raise self._error(f"{field} must be a day, such as '2024-12-31'.") from None

    def day(self, value: object) -> float:
        """Return a date, or a text in ISO's form or the column's own, as the days since 1970-01-01.

        Raises:
            ValueError: If it is none.
        """
        found = math.nan
        if not isinstance(value, str):
            found = as_day(value)
        else:
            for form in (ISO, self.date or ISO):
                with suppress(ValueError):
                    found = as_day(dt.datetime.strptime(value.strip(), form))
                    break
        if not (found.is_integer() and as_day(dt.date.min) <= found <= as_day(dt.date.max)):
            raise ValueError("not a day")
        return found

    def shown(self, number: float) -> str:
        """Return one of the column's numbers for people: a date, where it holds dates."""
        return f"{number:g}" if self.date is None else date_of(number).isoformat()

    @property
    def kind(self) -> Literal["number"]:
        """What the values are."""
        return "number"

    def _sort(self) -> str:
        return "numeric" if self.date is None else "date"

    def _told(self) -> str:
        bins = f"{self.bins:,} {'private ' if self.private else ''}bin{'' if self.bins == 1 else 's'}"
        if self.date is not None:
            first, last = map(self.shown, self.bounds)
            return f"{bins} of days from {first} to {last}"
        return f"{bins} on [{self.lower:g}, {self.upper:g}]"

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
        return int(self._settled().bins) + self.missing

    @property
    def labels(self) -> tuple[str, ...]:
        """What to call each cell when showing it to people, such as ``[0, 5)``."""
        boundaries = self.boundaries.tolist()
        if self.date is not None:
            first = [date_of(math.ceil(boundary)) for boundary in boundaries[:-1]]
            last = [date_of(math.ceil(boundary) - 1) for boundary in boundaries[1:-1]] + [date_of(boundaries[-1])]
            days = [f"{low} to {high}" if low < high else f"{low}" for low, high in zip(first, last, strict=True)]
            return (*days, *((MISSING_LABEL,) if self.missing else ()))
        for digits in range(12, 18):  # as short as 12 digits allow, yet all different
            texts = [f"{boundary:.{digits}g}" for boundary in boundaries]
            if len(set(texts)) == len(texts):
                break
        bins = [f"[{low}, {high})" for low, high in pairwise(texts)]
        bins[-1] = bins[-1][:-1] + "]"
        return (*bins, *((MISSING_LABEL,) if self.missing else ()))

    @property
    def null_code(self) -> int:
        """The cell that null, NaN and values that are no numbers fall into."""
        if self.missing:
            return int(self._settled().bins)
        return int(np.searchsorted(self.boundaries[1:-1], self.fill_value, side="right"))

    def _cells_of(self, array: NDArray[Any]) -> NDArray[np.int64]:
        if array.dtype.kind in "biuf":
            numbers = array.astype(np.float64)
        elif array.dtype.kind in "Oc" or (array.dtype.kind == "M" and self.date is not None):
            numbers = self._read(list(array))
        elif array.dtype.kind == "U" and self._reads_text:
            numbers = self._read(array.tolist())
        else:
            numbers = np.full(array.shape, math.nan)
        cells = np.searchsorted(self.boundaries[1:-1], numbers, side="right").astype(np.int64)
        cells[np.isnan(numbers)] = self.null_code
        return cells

    def read(self, value: Any) -> float:
        """Read one value as a number, or as a day where the column holds dates; NaN if it is none."""
        return float(self._read([value])[0])

    def _read(self, values: Sequence[Any]) -> NDArray[np.float64]:
        one = as_float if self.date is None else as_day
        numbers = np.fromiter(map(one, values), dtype=np.float64, count=len(values))
        if not self._reads_text:
            return numbers
        texts = numbers_in_texts(values, self.form) if self.form else days_in_texts(values, self.date or ISO)
        return np.where(np.isnan(numbers), texts, numbers)

    @property
    def _reads_text(self) -> bool:
        """Whether texts are read, too: as days, or as numbers with signs and units."""
        return self.date is not None or self.form is not None

    def _in_text(self, text: pl.Expr) -> pl.Expr:
        """Return what texts of polars say: numbers, or days since 1970-01-01; null where they say neither."""
        import polars as pl

        if self.form is not None:
            return as_numbers(text, self.form)
        return as_dates(text, self.date or ISO).cast(pl.Int32)

    def decode(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Return the middle of each bin, NaN for the missing cell.

        Raises:
            InputError: If a code is not in ``range(size)``.
        """
        cells = checked_codes(self.name, codes, self.size)
        boundaries = self.boundaries
        return np.append(boundaries[:-1] / 2 + boundaries[1:] / 2, math.nan)[cells]


Column: TypeAlias = Categorical | Numeric


Spec = dict[str, Any]


_COMMON = ("type", "missing", "confirmed")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "categorical": (*_COMMON, "levels", "other", "loose", "recode", "prefix"),
    "ordinal": (*_COMMON, "levels", "other", "loose", "recode", "prefix"),
    "boolean": (*_COMMON, "other"),
    "numeric": (*_COMMON, "lower", "upper", "bins", "edges", "integer", "format", "fill", "from", "unit"),
    "date": (*_COMMON, "lower", "upper", "bins", "edges", "format", "fill"),
}
_AS_A = {kind: f"{'an' if kind == 'ordinal' else 'a'} {kind}" for kind in _KEYS}
_BOOLEAN = (False, True)


def column_from_spec(name: str, spec: object) -> Column:
    """Build a column from its plain form.

    Raises:
        SchemaError: If a key is unknown, a value is of the wrong kind, or the column is inconsistent.

    >>> column_from_spec("age", {"type": "numeric", "lower": 0, "upper": 110, "bins": 22}).size
    22
    """
    if isinstance(spec, list | tuple):
        return Categorical(name, tuple(spec))
    if not isinstance(spec, Mapping):
        raise SchemaError(f"column {name!r}: expected a list of levels, or a table with a 'type'.")
    kind = spec.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        hint = did_you_mean(kind, _KEYS) if isinstance(kind, str) else ""
        raise SchemaError(f"column {name!r}: type must be one of {', '.join(map(repr, _KEYS))}.{hint}")
    for key in spec:
        if key not in _KEYS[kind]:
            allowed = ", ".join(_KEYS[kind])
            raise SchemaError(
                f"column {name!r}: {_AS_A[kind]} column has no key {key!r:.60}; it may have {allowed}."
                + did_you_mean(str(key)[:60], _KEYS[kind])
            )
    options = {key: value for key, value in spec.items() if key != "type"}
    if kind == "date":
        return _numeric(name, {"date": options.pop("format", ISO), **options})
    if kind == "numeric":
        return _numeric(name, {("form" if key == "format" else key): value for key, value in options.items()})
    if kind == "boolean":
        return Categorical(name, _BOOLEAN, **options)
    if "levels" not in options:
        raise SchemaError(
            f"column {name!r}: {_AS_A[kind]} column needs levels; list them, such as levels = ['no', 'yes']."
        )
    return Categorical(name, ordered=kind == "ordinal", **options)


def _numeric(name: str, options: dict[str, Any]) -> Numeric:
    if "edges" in options and "bins" in options:
        raise SchemaError(f"column {name!r}: edges and bins say the same thing twice; leave one out.")
    if "from" in options:
        told = options.pop("from")
        names = [part.strip() for part in told.split(" - ")] if isinstance(told, str) else []
        if len(names) != 2 or not all(names):
            raise SchemaError(f"column {name!r}: from must name two columns, such as 'visit - birth'.")
        options["derived"] = tuple(names)
    return Numeric(name, **options)


def spec_of_column(column: Column) -> Spec:
    """Return the plain form of a column, leaving out what is as by default.

    >>> spec_of_column(Categorical("smoke", ["no", "yes"]))
    {'type': 'categorical', 'levels': ['no', 'yes']}
    """
    spec: Spec
    if isinstance(column, Categorical):
        if column.levels == _BOOLEAN and column.kind == "boolean" and not column.ordered:
            spec = {"type": "boolean"}
        else:
            spec = {"type": "ordinal" if column.ordered else "categorical", "levels": list(column.levels)}
        if column.other is not None:
            spec["other"] = column.other
        if column.loose:
            spec["loose"] = True
        if column.recode:
            spec["recode"] = dict(column.recode)
        if column.prefix is not None:
            spec["prefix"] = column.prefix
    else:
        spec = {"type": "numeric" if column.date is None else "date"}
        written: Callable[[float], object] = _short if column.date is None else column.shown
        if column.date not in (None, ISO):
            spec["format"] = column.date
        if column.form is not None:
            spec["format"] = column.form
        if column.edges is not None:
            spec["edges"] = [written(edge) for edge in column.edges]
        else:
            if column.lower is not None and column.upper is not None:
                spec |= {"lower": written(column.lower), "upper": written(column.upper)}
            spec["bins"] = "private" if column.private else column.bins
        if column.integer and column.date is None:
            spec["integer"] = True
        if column.fill is not None:
            spec["fill"] = written(column.fill)
        if column.derived is not None:
            spec["from"] = " - ".join(column.derived)
        if column.unit is not None:
            spec["unit"] = column.unit
    if column.missing:
        spec["missing"] = True
    if not column.confirmed:
        spec["confirmed"] = False
    return spec


def levels_to_learn(name: str, missing: bool = True) -> Categorical:
    """Return a column whose levels nobody has stated."""
    return Categorical(name, missing=missing, confirmed=False, note="levels: state or learn them")


_BEYOND = {"<": -0.5, "≤": -0.5, "<=": -0.5, ">": 0.5, "≥": 0.5, ">=": 0.5}  # where such levels have their place


def in_order(levels: Iterable[Level]) -> tuple[Level, ...]:
    """Return levels as people list them: numbers, also those that are text, by value; other texts by numbers in them.

    >>> in_order(["10", "2", "-1"]), in_order(["10-14", "5-9", "<5", ">14"]), in_order(["I10", "E11", "I9"])
    (('-1', '2', '10'), ('<5', '5-9', '10-14', '>14'), ('E11', 'I9', 'I10'))
    """
    listed = sorted(levels)  # the levels of a column are of one kind
    if not all(isinstance(level, str) for level in listed):
        return tuple(listed)
    if all(re.fullmatch(r"[+-]?[0-9]{1,300}([.,][0-9]+)?", str(level)) for level in listed):
        return tuple(sorted(listed, key=lambda level: float(str(level).replace(",", "."))))

    # Texts and numbers take turns in what is split, the former first: like is compared with like.
    def key(level: Level) -> list[Any]:
        parts: list[Any] = [int(p) if n % 2 else p for n, p in enumerate(re.split(r"([0-9]{1,300})", str(level)))]
        beyond = _BEYOND.get(parts[0].strip()) if len(parts) > 1 else None
        return parts if beyond is None else ["", parts[1] + beyond, *parts[2:]]

    return tuple(sorted(listed, key=key))


def bounds_to_learn(name: str, integer: bool, missing: bool = True) -> Numeric:
    """Return a column whose bounds nobody has stated."""
    return Numeric(name, integer=integer, missing=missing, confirmed=False, note="lower and upper: state or learn them")


def _short(number: float) -> float | int:
    """Write 5.0 as 5: the same float64 when read back, and easier on the eye."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
