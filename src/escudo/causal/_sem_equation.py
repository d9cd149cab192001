"""One structural equation: how a variable's value comes about from its parents', possibly with chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from typing import Protocol

import numpy as np

from escudo.causal._inference import MAX_CELLS, Array, Factor, Lookup, contract
from escudo.causal._sem_values import (
    Value,
    arrange,
    as_range,
    as_table,
    as_value,
    as_weight,
    check_name,
    normalised,
    show,
)
from escudo.errors import InputError

__all__ = ["Definition", "Equation", "Function", "Table", "constant", "from_table", "read_definition"]

MAX_CALLS = 2**20  # how many combinations of parents' values a Python function is asked about


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Equation:
    """``name := F(parents)`` as one table, or as several when a single one would be too wide.

    An equation such as ``O := mechanism(count(D1, …, D1000 = pos))`` has 2¹⁰⁰⁰ rows; it is kept as a chain of running
    counts, hidden variables that only this equation sees, followed by the mechanism's table.

    Attributes:
        name: The variable it sets.
        parents: The variables it reads.
        parts: Factors and lookups whose product, summed over hidden names, is ``F[parents…, value]``. Each sets its
            last name from the names before it, in an order where names are set before they are read.
        text: The right-hand side in the text format, where it was written that way.
    """

    name: str
    parents: tuple[str, ...]
    parts: tuple[Factor | Lookup, ...]
    text: str | None = None

    @property
    def table(self) -> Array:
        """``F[parents…, value]``, each row summing to 1; raises InputError if that table would be too large."""
        return contract(self.parts, (*self.parents, self.name))

    @property
    def log_table(self) -> Array:
        """Natural logarithms of :attr:`table`, right also where the probability is too small for a float."""
        return contract(self.parts, (*self.parents, self.name), log=True)

    @property
    def deterministic(self) -> bool:
        """True where the parents' values decide the value."""
        return all(isinstance(part, Lookup) for part in self.parts)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the hidden variables, in the order they are set."""
        return tuple(part.names[-1] for part in self.parts if part.names[-1] != self.name)

    def reading(self, names: Mapping[str, str]) -> tuple[Factor | Lookup, ...]:
        """Return the parts with some parents replaced by other variables of the same range."""
        return tuple(part.rename(names) for part in self.parts) if names else self.parts

    def same_as(self, other: Equation) -> bool:
        """Return True if both have the same parents and exactly the same numbers."""
        if (self.name, self.parents, len(self.parts)) != (other.name, other.parents, len(other.parts)):
            return False
        return all(_same_part(mine, theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))


class Definition(Protocol):
    """A right-hand side that becomes an equation once its parents' ranges are known."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The variables it reads."""

    def compile(self, name: str, ranges: Mapping[str, tuple[Value, ...]]) -> tuple[tuple[Value, ...], Equation]:
        """Return the variable's range and its equation."""


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An equation given as a Python function of the parents' values.

    Attributes:
        parents: The variables whose values the function receives, in this order.
        function: Returns the value, or a mapping from values to probabilities.
    """

    parents: tuple[str, ...]
    function: Callable[..., object]

    def compile(self, name: str, ranges: Mapping[str, tuple[Value, ...]]) -> tuple[tuple[Value, ...], Equation]:
        """Ask the function about every combination of parents' values."""
        sizes = [len(ranges[parent]) for parent in self.parents]
        if math.prod(sizes) > MAX_CALLS:
            raise InputError(
                f"The function for {name!r} would be asked about {math.prod(sizes):.3g} combinations of its parents' "
                f"values (limit {MAX_CALLS:,}). Write it as text with count(...), sum(...), min(...) or max(...)."
            )
        rows = [self.function(*values) for values in combinations(*(ranges[parent] for parent in self.parents))]
        return _from_rows(name, self.parents, sizes, rows)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """An equation given as a table.

    Attributes:
        parents: The variables that choose the row.
        rows: Either a mapping from the parents' values (a tuple, or the bare value of a single parent) to a value or to
            a mapping from values to probabilities; or an array ``[parents…, value]``.
        values: The variable's range; needed with an array, optional with a mapping.
    """

    parents: tuple[str, ...]
    rows: Mapping[object, object] | Array
    values: tuple[Value, ...] | None = None

    def compile(self, name: str, ranges: Mapping[str, tuple[Value, ...]]) -> tuple[tuple[Value, ...], Equation]:
        """Lay the rows out in the order of the parents' ranges."""
        sizes = [len(ranges[parent]) for parent in self.parents]
        if not isinstance(self.rows, Mapping):
            return self._from_array(name, sizes)
        wanted = {values: None for values in combinations(*(ranges[parent] for parent in self.parents))}
        given = {key if key in wanted else (key,): row for key, row in self.rows.items()}
        missing = [values for values in wanted if values not in given]
        if missing:
            raise InputError(f"The table for {name!r} has no row for {', '.join(self.parents)} = {show(missing[0])}.")
        if len(given) > len(wanted):
            spare = next(key for key in given if key not in wanted)
            raise InputError(f"The table for {name!r} has a row for {spare!r}, which its parents never take.")
        return _from_rows(name, self.parents, sizes, [given[values] for values in wanted], self.values)

    def _from_array(self, name: str, sizes: Sequence[int]) -> tuple[tuple[Value, ...], Equation]:
        table = np.asarray(self.rows, dtype=np.float64)
        values = self.values if self.values is not None else tuple(range(table.shape[-1] if table.ndim else 0))
        expected = (*sizes, len(values))
        if table.shape != expected:
            raise InputError(f"The table for {name!r} has shape {table.shape}; its parents and values need {expected}.")
        ordered = arrange(name, values)
        table = normalised(f"The table for {name!r}", table)[..., [values.index(value) for value in ordered]]
        return ordered, from_table(name, self.parents, table)


def constant(name: str, position: int, size: int, *, text: str | None = None) -> Equation:
    """Return the equation that an intervention puts in place: one value, no parents."""
    part = Lookup((), name, np.asarray(position, dtype=np.intp), size)
    return Equation(name=name, parents=(), parts=(part,), text=text)


def from_table(name: str, parents: tuple[str, ...], table: Array, *, text: str | None = None) -> Equation:
    """Return the equation with this table; a table of zeros and ones becomes a lookup."""
    if np.all((table == 0.0) | (table == 1.0)):
        part: Factor | Lookup = Lookup(parents, name, np.asarray(np.argmax(table, axis=-1)), table.shape[-1])
    else:
        part = Factor((*parents, name), table)
    return Equation(name=name, parents=parents, parts=(part,), text=text)


def read_definition(name: str, given: object, variables: Collection[str]) -> Definition:
    """Return the definition a user wrote in Python: text, or parents with a function, a mapping or an array."""
    if isinstance(given, str):
        from escudo.causal._sem_text import expression

        return expression(given, variables, source=f"equation of {name}")
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise InputError(
            f"The equation of {name!r} must be text such as 'count(D1, D2 = pos)', or (parents, function), or "
            "(parents, {parents' values: value or probabilities}), or (parents, array, values)."
        )
    single = isinstance(given[0], str) or not isinstance(given[0], Iterable)
    parents = (given[0],) if single else tuple(given[0])
    parents = tuple(check_name(parent) for parent in parents)
    if len(set(parents)) < len(parents):
        raise InputError(f"The equation of {name!r} lists a parent twice.")
    values = as_range(name, given[2]) if len(given) == 3 else None
    if callable(given[1]) and values is None:
        return Function(parents, given[1])
    rows = given[1] if isinstance(given[1], Mapping) else as_table(f"The table for {name!r}", given[1])
    return Table(parents, rows, values)


def _from_rows(
    name: str,
    parents: tuple[str, ...],
    sizes: Sequence[int],
    rows: Sequence[object],
    values: tuple[Value, ...] | None = None,
) -> tuple[tuple[Value, ...], Equation]:
    laws: list[dict[Value, float]] = [
        {as_value(value): as_weight(f"The equation of {name!r}", weight) for value, weight in row.items()}
        if isinstance(row, Mapping)
        else {as_value(row): 1.0}
        for row in rows
    ]
    found = arrange(name, (value for law in laws for value in law))
    values = found if values is None else arrange(name, values)
    position = {value: index for index, value in enumerate(values)}
    unknown = [value for value in found if value not in position]
    if unknown:
        raise InputError(
            f"The equation of {name!r} gives {unknown[0]!r}, which is not among its values {show(values)}."
        )
    if math.prod(sizes) * len(values) > MAX_CELLS:
        raise InputError(f"The table for {name!r} would have more than {MAX_CELLS:,} cells.")
    table = np.zeros((len(laws), len(values)))
    for row, law in zip(table, laws, strict=True):
        for value, weight in law.items():
            row[position[value]] = weight
    table = normalised(f"The equation of {name!r}", table)
    return values, from_table(name, parents, table.reshape(*sizes, len(values)))


def _same_part(mine: Factor | Lookup, theirs: Factor | Lookup) -> bool:
    if mine.names != theirs.names:
        return False
    if isinstance(mine, Lookup) and isinstance(theirs, Lookup):
        return np.array_equal(mine.index, theirs.index) and mine.size == theirs.size
    return isinstance(mine, Factor) and isinstance(theirs, Factor) and np.array_equal(mine.log, theirs.log)
