r"""Public rules: which values can never stand in one row, and which number is never below another.

A rule is public knowledge, like a level or a bound, and written into the schema:

* ``pregnant = yes -> sex = female``: where the first holds, the second does (a structural zero). Several values are
  joined by ``|``, ``!=`` is the opposite of ``=``, numbers and dates are compared by ``<``, ``<=``, ``>``, ``>=``, and
  ``(missing)`` is the value that is not there.
* ``discharge >= admission``: an ordering of two columns of numbers, or of two of dates.

A name or value that holds one of these signs is put in double quotes.

**In synthetic rows** every rule holds, whatever generator made them and whatever was set or observed: a row that breaks
one is never shown, and another is drawn in its place, so that rows follow the model's law *given the rules*. That is
post-processing of public facts and costs nothing. A rule about a value that is missing says nothing, unless it names
``(missing)``. Under do() it is the same: rows in which the intervention is impossible are left out, so that
do(pregnant = yes) shows women only. Where no row is left, that is an error.

**In the private table** a rule changes nothing: a row that breaks it, by a slip of the pen or because the rule is
wrong, is counted as it is, and neither an error nor anything released depends on whether there is one. ``escudo schema
check`` counts them, for the custodian.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo._validate import did_you_mean
from escudo.errors import SchemaError
from escudo.table._columns import MISSING_LABEL, Categorical, Column, Level, Numeric

Floats = NDArray[np.float64]

_MOST_RULES, _MOST_LETTERS = 1000, 2000
_SIGN = r"->|<=|>=|!=|<|>|=|\|"
_TOKEN = re.compile(rf'\s*("(?:[^"\\]|\\.)*"|{_SIGN}|[^\s"<>=!|][^"<>=!|]*?(?=\s*(?:{_SIGN}|"|$)))')
_SIGNS = ("->", "<=", ">=", "!=", "<", ">", "=", "|")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FORM = "write one as 'pregnant = yes -> sex = female' or 'discharge >= admission'"
_GRID = 32  # points in a bin, to see how much of it fulfils an ordering


@dataclass(frozen=True, slots=True)
class Condition:
    """A column compared with values of its own.

    Attributes:
        column: The column.
        sign: How it is compared.
        values: With what, as written; several only for ``=`` and ``!=``.
    """

    column: str
    sign: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{_quoted(self.column)} {self.sign} {' | '.join(map(_quoted, self.values))}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One public rule: an implication of two conditions, or an ordering of two columns.

    Attributes:
        first: The condition of an implication; the first column of an ordering.
        second: What then holds; the second column.
        sign: ``"->"``, or how the columns are ordered.

    >>> str(Rule.read("pregnant=yes->sex=female"))
    'pregnant = yes -> sex = female'
    """

    first: Condition | str
    second: Condition | str
    sign: str = "->"

    @classmethod
    def read(cls, text: object) -> Rule:
        """Read a rule as it is written.

        Raises:
            SchemaError: If it is none; says how one looks.
        """
        if isinstance(text, Rule):
            return text
        if not isinstance(text, str) or len(text) > _MOST_LETTERS:
            raise SchemaError(f"a rule must be a text; {_FORM}.")
        tokens, place, rest = [], 0, text.rstrip()
        while place < len(rest):
            found = _TOKEN.match(rest, place)
            if found is None:
                raise SchemaError(f"rule {text[:80]!r} cannot be read from letter {place + 1} on; {_FORM}.")
            tokens.append(found[1])
            place = found.end()
        if tokens.count("->") > 1:
            raise SchemaError(f"rule {text[:80]!r} has more than one '->'; write two rules.")
        if "->" in tokens:
            middle = tokens.index("->")
            return cls(_condition(tokens[:middle], text), _condition(tokens[middle + 1 :], text))
        if len(tokens) == 3 and tokens[1] in _COMPARE and not {tokens[0], tokens[2]} & set(_SIGNS):
            return cls(_plain(tokens[0]), _plain(tokens[2]), tokens[1])
        raise SchemaError(f"rule {text[:80]!r} is neither an implication nor an ordering of two columns; {_FORM}.")

    @property
    def columns(self) -> tuple[str, str]:
        """The two columns that it is about."""
        first, second = (part.column if isinstance(part, Condition) else part for part in (self.first, self.second))
        return first, second

    def __str__(self) -> str:
        first, second = (_quoted(part) if isinstance(part, str) else str(part) for part in (self.first, self.second))
        return f"{first} {self.sign} {second}"

    def check(self, columns: Mapping[str, Column]) -> None:
        """Raise unless the columns are there, and can be compared so.

        Raises:
            SchemaError: Names the rule, the column, and what to do.
        """
        for name in self.columns:
            if name not in columns:
                raise self._error(f"names {name!r}, which is no column", did_you_mean(name, columns))
        if self.columns[0] == self.columns[1]:
            raise self._error("is about one column only; it needs two")
        if isinstance(self.first, Condition) and isinstance(self.second, Condition):
            for condition in (self.first, self.second):
                self._check_condition(condition, columns[condition.column])
            return
        one, other = (columns[name] for name in self.columns)
        if not isinstance(one, Numeric) or not isinstance(other, Numeric):
            odd = one if not isinstance(one, Numeric) else other
            raise self._error(f"orders column {odd.name!r}, which holds no numbers and no dates")
        if (one.date is None) != (other.date is None):
            raise self._error("orders a number and a date; both must be of one kind")

    def _check_condition(self, condition: Condition, column: Column) -> None:
        for value in condition.values:
            if value == MISSING_LABEL:
                if condition.sign not in ("=", "!=") or not column.missing:
                    raise self._error(f"asks whether {column.name!r} is missing, which it never is in this schema")
            elif isinstance(column, Categorical):
                if condition.sign in _COMPARE:
                    raise self._error(f"orders the levels of {column.name!r}; list them with = and |")
                if not column.open and not any(_is(level, value) for level in column.levels):
                    hint = did_you_mean(value, column.labels)
                    raise self._error(f"names {value!r}, which is no level of {column.name!r}", hint)
            elif number_of(column, value) is None:
                kind = "number" if column.date is None else "date"
                raise self._error(f"compares {column.name!r} with {value!r}, which is no {kind}")

    def _error(self, problem: str, hint: str = "") -> SchemaError:
        return SchemaError(f"rule {str(self)[:120]!r} {problem}.{hint}")

    # ---- what holds

    def broken(self, columns: Mapping[str, Column], value: Callable[[str], nw.Expr]) -> nw.Expr:
        """Return an expression that is true for the rows that break the rule.

        Args:
            columns: The schema's columns.
            value: A column's values: texts, or numbers for all else; null where missing.
        """
        if isinstance(self.first, Condition) and isinstance(self.second, Condition):
            first = _true(self.first, columns[self.first.column], value(self.first.column))
            second = _true(self.second, columns[self.second.column], value(self.second.column))
            return first & ~second & _known(self.second, value(self.second.column))
        one, other = (value(name) for name in self.columns)
        ordered: nw.Expr = _COMPARE[self.sign](one, other)
        return ~one.is_null() & ~other.is_null() & ~ordered

    def shares(self, columns: Mapping[str, Column]) -> Floats:
        """Return which part of each pair of cells of the two columns fulfils the rule, values spread evenly in bins."""
        one, other = (columns[name] for name in self.columns)
        if isinstance(self.first, Condition) and isinstance(self.second, Condition):
            first, second = _truth(self.first, one)[0], _truth(self.second, other)[1]
            return np.asarray(1 - first[:, None] * (1 - second[None, :]))
        assert isinstance(one, Numeric)
        assert isinstance(other, Numeric)
        x, y = _points(one), _points(other)
        held = _COMPARE[self.sign](x[:, None, :, None], y[None, :, None, :]).mean(axis=(2, 3))
        ends = _possible(self.sign, one, other)
        found = np.ones((one.size, other.size))
        found[: one.bins, : other.bins] = np.where(ends, np.maximum(held, 1e-6), 0.0)
        return found


def _condition(tokens: Sequence[str], text: str) -> Condition:
    signs = [token for token in tokens if token in _SIGNS]
    values = tokens[2::2]
    alternating = len(tokens) >= 3 and all((token in _SIGNS) == bool(place % 2) for place, token in enumerate(tokens))
    if not alternating or len(tokens) % 2 == 0 or signs[0] == "|" or any(sign != "|" for sign in signs[1:]):
        raise SchemaError(f"rule {text[:80]!r} has a side that compares no column with a value; {_FORM}.")
    if len(values) > 1 and signs[0] in _COMPARE:
        raise SchemaError(f"rule {text[:80]!r} joins values by '|' that are not compared by '='; {_FORM}.")
    return Condition(_plain(tokens[0]), signs[0], tuple(map(_plain, values)))


def _plain(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1]) if token.startswith('"') else token.strip()


def _quoted(text: str) -> str:
    plain = text and text == text.strip() and not re.search(r'["<>=!|\\]|->', text)
    return text if plain else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def number_of(column: Numeric, value: str) -> float | None:
    """Return a number or day that a rule names; None if it is none."""
    try:
        number = float(value) if column.date is None else column.day(value)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _is(level: Level, value: str) -> bool:
    """Return whether a value that a rule names is this level; true and false in any case."""
    return str(level).lower() == value.lower() if isinstance(level, bool) else str(level) == value


def _levels(condition: Condition, column: Categorical) -> list[Any]:
    """Return the levels that a condition names, as engines compare them."""
    named = [level for level in column.levels if any(_is(level, value) for value in condition.values)]
    return named if column.kind == "string" else [int(level) for level in named]


def _true(condition: Condition, column: Column, value: nw.Expr) -> nw.Expr:
    """Return whether a condition is known to hold, row by row."""
    opposite = condition.sign == "!="
    absent = MISSING_LABEL in condition.values
    if isinstance(column, Categorical):
        named = value.is_in(_levels(condition, column))
    else:
        numbers = [number_of(column, each) for each in condition.values if each != MISSING_LABEL]
        ordering = _COMPARE.get(condition.sign)
        named = value.is_in(numbers) if ordering is None else ordering(value, numbers[0])
    there = ~value.is_null()
    if opposite:
        return there & ~named
    return ((there & named) | value.is_null()) if absent else (there & named)


def _known(condition: Condition, value: nw.Expr) -> nw.Expr:
    """Return whether a condition is known to hold or not: a missing value leaves it open, unless it is named."""
    return nw.lit(True) if MISSING_LABEL in condition.values else ~value.is_null()


def _truth(condition: Condition, column: Column) -> tuple[Floats, Floats]:
    """Return which part of each cell surely holds a condition, and which part may: they differ where it is missing."""
    opposite = condition.sign == "!="
    if isinstance(column, Categorical):
        named = [any(_is(level, value) for value in condition.values) for level in column.levels]
        held: Floats = np.array(named, dtype=np.float64)
    else:
        points = _points(column)
        numbers = [number for each in condition.values if (number := number_of(column, each)) is not None]
        if condition.sign in _COMPARE:
            held = _COMPARE[condition.sign](points, numbers[0]).mean(axis=1)
        else:
            cells = column.encode(numbers) if numbers else np.zeros(0, dtype=np.int64)
            held = np.where(np.isin(np.arange(column.bins), cells), np.where(_single(column), 1.0, 1e-6), 0.0)
    held = 1 - held if opposite else held
    if not column.missing:
        return held, held
    if MISSING_LABEL in condition.values:
        there = 0.0 if opposite else 1.0
        return np.append(held, there), np.append(held, there)
    return np.append(held, 0.0), np.append(held, 1.0)


def _single(column: Numeric) -> NDArray[np.bool_]:
    """Return which bins hold one number only."""
    least = 1 if column.integer else 1e-9 * (column.bounds[1] - column.bounds[0])
    return np.asarray(np.diff(column.boundaries) <= least)


def _points(column: Numeric) -> Floats:
    """Return numbers spread evenly in each bin."""
    low, high = column.boundaries[:-1], column.boundaries[1:]
    points = low[:, None] + (np.arange(_GRID) + 0.5) / _GRID * (high - low)[:, None]
    return np.asarray(np.floor(points).clip(np.ceil(low)[:, None], None) if column.integer else points)


def _possible(sign: str, one: Numeric, other: Numeric) -> NDArray[np.bool_]:
    """Return which bins of two columns hold numbers in this order at all."""
    a, b = one.boundaries, other.boundaries
    if sign in ("<", "<="):
        return np.asarray(a[:-1, None] <= b[None, 1:]) if sign == "<=" else np.asarray(a[:-1, None] < b[None, 1:])
    return np.asarray(a[1:, None] >= b[None, :-1]) if sign == ">=" else np.asarray(a[1:, None] > b[None, :-1])


# ---- several rules


def checked(rules: object, columns: Mapping[str, Column]) -> tuple[Rule, ...]:
    """Return the rules of a schema, each read and checked, and all of them together.

    Raises:
        SchemaError: If one cannot be read or names what is not there, or no row could hold all of them.
    """
    if isinstance(rules, str | bytes | Mapping) or not isinstance(rules, Iterable):
        raise SchemaError(f"rules must be a list of texts; {_FORM}.")
    listed = list(rules)
    if len(listed) > _MOST_RULES:
        raise SchemaError(f"there are {len(listed):,} rules, more than {_MOST_RULES:,}.")
    found = tuple(dict.fromkeys(Rule.read(rule) for rule in listed))
    for rule in found:
        rule.check(columns)
    _check_circles(found)
    _check_together(found, columns)
    return found


def _check_circles(rules: Sequence[Rule]) -> None:
    """Refuse orderings that go round in a circle."""
    above: dict[str, set[str]] = {}
    for rule in rules:
        if rule.sign != "->":
            low, high = rule.columns if rule.sign in ("<", "<=") else rule.columns[::-1]
            above.setdefault(low, set()).add(high)
    for start in above:
        reached, waiting = set[str](), [start]
        while waiting:
            for name in above.get(waiting.pop(), ()):
                if name == start:
                    raise SchemaError(f"the orderings among the rules lead from {start!r} back to it; take one out.")
                if name not in reached:
                    reached.add(name)
                    waiting.append(name)


def _check_together(rules: Sequence[Rule], columns: Mapping[str, Column]) -> None:
    """Refuse rules that leave a column without any value: each is cut back by the others until nothing changes."""
    named = [rule for rule in rules if not any(columns[name].open for name in rule.columns)]
    left = {name: np.ones(columns[name].size, dtype=bool) for rule in named for name in rule.columns}
    masks: dict[tuple[str, str], NDArray[np.bool_]] = {}
    for rule in named:
        one, other = sorted(rule.columns)
        mask = rule.shares(columns) > 0
        mask = mask if rule.columns == (one, other) else mask.T
        masks[one, other] = mask & masks.get((one, other), True)
    changed = True
    while changed:
        changed = False
        for (one, other), mask in masks.items():
            for name, kept in (
                (one, (mask & left[other][None, :]).any(axis=1)),
                (other, (mask & left[one][:, None]).any(axis=0)),
            ):
                if (left[name] & ~kept).any():
                    left[name] = left[name] & kept
                    changed = True
                if not left[name].any():
                    raise SchemaError(
                        f"the rules contradict each other or the bounds: with those about {one!r} and {other!r} no "
                        f"value is left for column {name!r}; take one out."
                    )


def broken_rows(rules: Sequence[Rule], columns: Mapping[str, Column], value: Callable[[str], nw.Expr]) -> nw.Expr:
    """Return an expression that is true for the rows that break at least one rule."""
    found = rules[0].broken(columns, value)
    for rule in rules[1:]:
        found = found | rule.broken(columns, value)
    return found


def plain_values(columns: Mapping[str, Column]) -> Callable[[str], nw.Expr]:
    """Return a column's values in a frame of synthetic rows: texts, or numbers for all else."""

    def value(name: str) -> nw.Expr:
        column = columns[name]
        if isinstance(column, Numeric):
            return nw.col(name).cast(nw.Int32) if column.date is not None else nw.col(name)
        return nw.col(name) if column.kind == "string" else nw.col(name).cast(nw.Int64)

    return value
