"""What a structural equation model is made of: values and their ranges, equations, and populations.

An equation says how a variable's value comes about from its parents', possibly with chance; it may be given as text, as
a Python function or as a table, in any order, and is compiled once its parents' ranges are known. A population is the
joint law of the exogenous variables, as a product of laws of disjoint groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from numbers import Real
from typing import Protocol, TypeAlias

import numpy as np

from escudo._validate import did_you_mean
from escudo.causal._inference import MAX_CELLS, Array, Factor, Lookup, contract, product
from escudo.errors import GraphError, InputError

Value: TypeAlias = "str | int | bool | tuple[Value, ...]"
Ranges: TypeAlias = "Mapping[str, tuple[Value, ...]]"
MAX_WHOLE = 2**53  # the largest whole number of the text format
MAX_CALLS = 2**20  # how many combinations of parents' values a Python function is asked about
ROW_TOLERANCE = 1e-9  # how far written probabilities may miss 1 in total
_ROUNDING = 1e-12  # below this a miss is float rounding, and the numbers stay as written
FUNCTIONS = ("abs", "all", "any", "count", "max", "min", "sum", "tuple")
_GRAMMAR = ("and", "or", "not", "if", "else", "in", "true", "false", "True", "False", "_")
_CONSTANTS = ("ln", "exp", "sqrt")
_CHANCE = (
    *("bernoulli", "choose", "coin", "exponential_mechanism", "kary_response", "randomised_response"),
    *("randomized_response", "report_noisy_max", "truncated_geometric"),
)
# These cannot name a variable, and a level of that name needs quotes.
WORDS = frozenset((*FUNCTIONS, *_GRAMMAR, *_CONSTANTS, *_CHANCE))


# ---- values and ranges


def as_value(value: object) -> Value:
    """Return ``value`` as a plain Python str, int, bool or tuple of these, or raise."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return tuple(as_value(part) for part in value)
    if isinstance(value, (str, int)):
        return value
    raise InputError(f"A variable's values are text, whole numbers, booleans or tuples of these; got {value!r}.")


def as_range(name: str, values: Iterable[object]) -> tuple[Value, ...]:
    """Return the range of a variable, checked: at least one value, no two that Python takes for equal."""
    result = tuple(as_value(value) for value in values)
    if not result:
        raise InputError(f"Variable {name!r} needs at least one value.")
    if len(set(result)) < len(result):
        raise InputError(f"Variable {name!r} lists a value twice (True and 1 count as equal, False and 0 too).")
    return result


def arrange(name: str, values: Iterable[Value]) -> tuple[Value, ...]:
    """Return the distinct values in the order a range shows them: numbers and booleans sorted, others as met."""
    distinct = list({typed(value): value for value in values}.values())
    if all(isinstance(value, int) for value in distinct):
        distinct.sort()
    return as_range(name, distinct)


def typed(value: Value) -> object:
    """Return a key under which 1 and True differ."""
    return tuple(typed(part) for part in value) if isinstance(value, tuple) else (type(value).__name__, value)


def as_weight(what: str, weight: object) -> float:
    """Return a probability that a user wrote as a float, or raise if it is no number; its size is checked later."""
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise InputError(f"{what} needs numbers as probabilities; got {weight!r:.60}.")
    return float(weight)


def as_table(what: str, given: object) -> Array:
    """Return what a user gave as an array of floats, or raise if it is none."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be an array of numbers.") from None


def check_name(name: object) -> str:
    """Return a variable's name, or raise unless it is a plain word that the text format can write."""
    if not isinstance(name, str) or not name.isidentifier() or name in WORDS:
        raise InputError(f"A variable's name is one word of letters, digits and _ that is not reserved; got {name!r}.")
    return name


def show(values: Sequence[Value], *, most: int = 8) -> str:
    """Return a short list of values for a message."""
    shown = [_show(value) for value in values[:most]]
    return ", ".join(shown) + (f", … ({len(values)} values)" if len(values) > most else "")


def _show(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"({', '.join(_show(part) for part in value)})"
    return str(value)


def normalise(what: str, table: Array) -> Array:
    """Check that each row along the last axis is a probability law, and return it adding up to 1.

    Totals may miss 1 by up to 1e-9, as when thirds are typed with ten digits; such rows are divided by their total.
    Misses below 1e-12 are float rounding: those rows stay exactly as given.
    """
    if np.isnan(table).any() or (table < 0).any():
        raise InputError(f"{what}: probabilities must be numbers of at least 0.")
    rows = table.reshape(-1, table.shape[-1])
    totals = np.array([math.fsum(row) for row in rows]) if rows.size <= 2**16 else rows.sum(axis=1)
    worst = int(np.argmax(np.abs(totals - 1.0))) if len(totals) else 0
    if len(totals) and not abs(totals[worst] - 1.0) <= ROW_TOLERANCE:
        raise InputError(f"{what}: probabilities add up to {totals[worst]:.10g}; they must add up to 1.")
    if np.all(np.abs(totals - 1.0) <= _ROUNDING):
        return table
    scale = np.where(np.abs(totals - 1.0) <= _ROUNDING, 1.0, totals)
    return (rows / scale[:, None]).reshape(table.shape)


# ---- equations


@dataclass(frozen=True, slots=True, eq=False)
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


def _same_part(mine: Factor | Lookup, theirs: Factor | Lookup) -> bool:
    if mine.names != theirs.names:
        return False
    if isinstance(mine, Lookup) and isinstance(theirs, Lookup):
        return np.array_equal(mine.index, theirs.index) and mine.size == theirs.size
    return isinstance(mine, Factor) and isinstance(theirs, Factor) and np.array_equal(mine.log, theirs.log)


def constant(name: str, position: int, size: int, *, text: str | None = None) -> Equation:
    """Return the equation that an intervention puts in place: one value, no parents."""
    part = Lookup((), name, np.asarray(position, dtype=np.intp), size)
    return Equation(name, (), (part,), text)


def from_table(name: str, parents: tuple[str, ...], table: Array, *, text: str | None = None) -> Equation:
    """Return the equation with this table; a table of zeros and ones becomes a lookup."""
    if np.all((table == 0.0) | (table == 1.0)):
        part: Factor | Lookup = Lookup(parents, name, np.asarray(np.argmax(table, axis=-1)), table.shape[-1])
    else:
        part = Factor((*parents, name), table)
    return Equation(name, parents, (part,), text)


# ---- definitions


class Definition(Protocol):
    """A right-hand side that becomes an equation once its parents' ranges are known."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The variables it reads."""

    def compile(self, name: str, ranges: Ranges) -> tuple[tuple[Value, ...], Equation]:
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

    def compile(self, name: str, ranges: Ranges) -> tuple[tuple[Value, ...], Equation]:
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

    def compile(self, name: str, ranges: Ranges) -> tuple[tuple[Value, ...], Equation]:
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
        table = normalise(f"The table for {name!r}", table)[..., [values.index(value) for value in ordered]]
        return ordered, from_table(name, self.parents, table)


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
    table = normalise(f"The equation of {name!r}", table)
    return values, from_table(name, parents, table.reshape(*sizes, len(values)))


def assemble(
    ranges: Ranges, definitions: Mapping[str, Definition]
) -> tuple[dict[str, tuple[Value, ...]], dict[str, Equation]]:
    """Compile definitions, parents first; return the ranges of all variables and the equations."""
    known = dict(ranges)
    for name, definition in definitions.items():
        if name in known:
            raise InputError(f"Variable {name!r} is defined twice.")
        for parent in definition.parents:
            if parent not in known and parent not in definitions:
                raise InputError(
                    f"The equation of {name!r} reads {parent!r}, which is not defined."
                    + did_you_mean(parent, {**known, **definitions})
                )
    order = parents_first({**dict.fromkeys(known, ()), **{name: item.parents for name, item in definitions.items()}})
    equations: dict[str, Equation] = {}
    for name in order:
        if name in definitions:
            known[name], equations[name] = definitions[name].compile(name, known)
    return {name: known[name] for name in (*ranges, *definitions)}, equations


def parents_first(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names with parents before children, otherwise in the given order; raise on a cycle.

    A model shows, writes and draws its variables in this order, as a graph does in its own ``topological_order``.
    """
    order: list[str] = []
    state: dict[str, bool] = {}  # False while its ancestors are being placed, True once it is placed
    for start in parents:
        stack = [start]
        while stack:
            name = stack[-1]
            if name not in state:
                state[name] = False
                for parent in reversed(parents[name]):
                    if state.get(parent) is False:
                        raise CycleError(
                            [placed for placed in stack[stack.index(parent) :] if state.get(placed) is False]
                        )
                    if parent not in state:
                        stack.append(parent)
            else:
                stack.pop()
                if not state[name]:
                    state[name] = True
                    order.append(name)
    return order


class CycleError(GraphError):
    """The equations form a cycle."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        shown = [*cycle[:6], "…", cycle[-1]] if len(cycle) > 8 else cycle
        super().__init__("Variables cannot cause themselves: " + " → ".join((*shown, cycle[0])) + ".")


# ---- populations

Population: TypeAlias = "Array | Sequence[Factor] | Mapping[str | tuple[str, ...], object]"


def read_exogenous(given: Mapping[str | tuple[str, ...], object]) -> tuple[dict[str, tuple[Value, ...]], list[Factor]]:
    """Return ranges and laws from ``{"R": {"neg": 0.9, "pos": 0.1}}``; a list of values gives a range without a law."""
    ranges: dict[str, tuple[Value, ...]] = {}
    laws: list[Factor] = []
    for key, law in given.items():
        names = tuple(check_name(name) for name in (key if isinstance(key, tuple) else (key,)))
        for name in names:
            if name in ranges or names.count(name) > 1:
                raise InputError(f"Exogenous variable {name!r} is given twice.")
        listed = law if isinstance(law, Iterable) and not isinstance(law, str) else ()
        keys = [values if len(names) > 1 else (values,) for values in listed]
        if not keys or any(not isinstance(values, tuple) or len(values) != len(names) for values in keys):
            raise InputError(
                f"Give {', '.join(names)} as {{{'(value, value)' if len(names) > 1 else 'value'}: probability}}."
            )
        for axis, name in enumerate(names):
            ranges[name] = arrange(name, (as_value(values[axis]) for values in keys))
        if isinstance(law, Mapping):
            laws.append(law_of(names, law, ranges))
    return ranges, laws


def law_of(names: tuple[str, ...], given: object, ranges: Ranges) -> Factor:
    """Return the joint law of ``names`` from ``{value or tuple of values: probability}`` or an array."""
    shape = tuple(len(ranges[name]) for name in names)
    if not isinstance(given, Mapping):
        return check_law(Factor(names, _shaped(names, given, shape)))
    table = np.zeros(shape)
    for values, weight in given.items():
        table[_position(names, values, ranges)] = as_weight(f"The population of {', '.join(names)}", weight)
    return check_law(Factor(names, table))


def check_law(law: Factor) -> Factor:
    """Return the factor with probabilities checked and adding up to 1 over all axes."""
    table = normalise(f"The population of {', '.join(law.names)}", law.array.reshape(-1)).reshape(law.array.shape)
    return law if table is law.array else Factor(law.names, table)


def marginal(population: Iterable[Factor], without: Iterable[str]) -> tuple[Factor, ...]:
    """Return the joint law of the variables that are left when ``without`` are summed out."""
    gone = set(without)
    laws = []
    for law in population:
        names = tuple(name for name in law.names if name not in gone)
        if names:
            laws.append(law if names == law.names else product([law], names))
    return tuple(laws)


def replace_laws(
    population: Sequence[Factor], exogenous: tuple[str, ...], ranges: Ranges, given: Population
) -> tuple[Factor, ...]:
    """Return the population in which the variables that ``given`` names have its law, the others their own marginal."""
    if isinstance(given, Mapping):
        laws = []
        for key, law in given.items():
            names = key if isinstance(key, tuple) else (key,)
            _known(names, exogenous)
            laws.append(law_of(names, law, ranges))
    elif isinstance(given, (list, tuple)) and given and all(isinstance(law, Factor) for law in given):
        laws = []
        for law in given:
            _known(law.names, exogenous)
            shape = tuple(len(ranges[name]) for name in law.names)
            laws.append(check_law(Factor(law.names, _shaped(law.names, law.array, shape))))
    else:
        laws = [law_of(exogenous, given, ranges)]
    named = [name for law in laws for name in law.names]
    if len(set(named)) < len(named):
        raise InputError("The population names a variable twice.")
    return (*marginal(population, named), *laws)


def _known(names: tuple[str, ...], exogenous: tuple[str, ...]) -> None:
    for name in names:
        if name not in exogenous:
            raise InputError(
                f"The population is a law of exogenous variables; {name!r} is not one of {show(exogenous)}."
                + did_you_mean(str(name), exogenous)
            )


def _shaped(names: tuple[str, ...], given: object, shape: tuple[int, ...]) -> Array:
    table = as_table(f"The population of {', '.join(names)}", given)
    if table.shape != shape:
        raise InputError(f"The population of {', '.join(names)} has shape {table.shape}; their ranges need {shape}.")
    return table


def _position(names: tuple[str, ...], values: object, ranges: Ranges) -> tuple[int, ...]:
    point = values if isinstance(values, tuple) and len(names) > 1 else (values,)
    if len(point) != len(names):
        raise InputError(f"The population of {', '.join(names)} needs {len(names)} values per entry; got {values!r}.")
    for name, value in zip(names, point, strict=True):
        if value not in ranges[name]:
            raise InputError(f"{name!r} never takes the value {value!r}; its values are {show(ranges[name])}.")
    return tuple(ranges[name].index(value) for name, value in zip(names, point, strict=True))
