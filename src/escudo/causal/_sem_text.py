"""The text format of structural equation models, which looks like the programs in papers.

One definition per line, in any order; ``#`` starts a comment; a line goes on while a bracket is open or after a comma::

    R1 ~ neg: 0.9, pos: 0.1                    # exogenous, with its law
    R2, R3 ~ (neg, neg): 1/2, (pos, pos): 1/2  # exogenous and correlated: a joint law
    D1 := R1                                   # an equation
    D2 := randomised_response(R2, epsilon = ln(3))
    W | D1, D2 ~                               # an equation as a table; _ stands for any value, the first match counts
        neg, neg -> low: 0.8, high: 0.2
        _, _     -> low: 0.3, high: 0.7
    O := truncated_geometric(count(D1, D2 = pos), epsilon = 1)

Values are words, whole numbers, ``true`` and ``false``, quoted text, and tuples. A word in an expression is a variable
if there is one of that name; otherwise it must be a level that occurs in some law, or in quotes somewhere. Anything
else is taken for a misspelling.

Expressions: ``a if test else b``, ``or``, ``and``, ``not``, ``= != < <= > >=``, ``+ - * // %``, ``min max abs sum``,
``count(A, B = level)`` (a test after several names applies to each), ``any``, ``all``, tuples ``(A, B)``. These have
chance of their own, each time they are written: ``coin(p)`` (true or false), ``bernoulli(p)`` (0 or 1), ``choose(a: p,
b: q)``, ``randomised_response(X, epsilon = …)``, ``kary_response``, ``truncated_geometric(number, epsilon = …,
sensitivity = 1, lower = …, upper = …)``, ``exponential_mechanism(a: score, b: score, epsilon = …)`` and
``report_noisy_max(…)``. Probabilities and parameters are numbers such as ``0.1``, ``1/3``, ``ln(2)`` or ``exp(-1)``.

Families: ``D[1..1000] ~ neg: 0.9, pos: 0.1`` defines D1 to D1000; ``D[i in 2..9] := D[i-1]`` reads its neighbour;
``count(D[1..1000] = pos)`` counts all of them.

Probabilities of a row must add up to 1 within 1e-9; rows that miss it by more than float rounding are divided by their
total. A variable's values are kept in the order written, numbers sorted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from escudo._validate import did_you_mean
from escudo.causal._inference import Factor
from escudo.causal._sem import SEM
from escudo.causal._sem_build import CycleError, assemble
from escudo.causal._sem_equation import Definition, Equation, from_table
from escudo.causal._sem_expressions import LARGEST, compile_expression
from escudo.causal._sem_lexer import Source
from escudo.causal._sem_parser import read_expression, read_statements
from escudo.causal._sem_population import law_of
from escudo.causal._sem_syntax import Assign, Conditional, Entry, Exogenous, Node, Row, words
from escudo.causal._sem_values import Value, arrange, normalised, show
from escudo.causal._sem_writer import write_expression
from escudo.errors import InputError

__all__ = ["expression", "parse"]


def parse(text: str, *, source: str = "text") -> SEM:
    r"""Read a model from text.

    Args:
        text: The definitions.
        source: What errors call the text, such as a file's name.

    Returns:
        The model.

    Raises:
        ParseError: With line, column, the line itself and what to do.

    Example:
        >>> parse("R ~ no: 0.8, yes: 0.2\nO := count(R = yes) + 1").probability("O")
        Distribution(O: {1: 0.8, 2: 0.2})
    """
    if not isinstance(text, str):
        raise InputError(f"A model is parsed from text; got {type(text).__name__}.")
    # What editors on other systems leave in a file: a mark at its start, and line ends of their own.
    origin = Source(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), source)
    statements, reader = read_statements(origin)
    if not statements:
        raise origin.error(0, "the text defines no variables; write definitions such as 'X ~ a: 0.5, b: 0.5'.")
    places: dict[str, int] = {}
    for statement in statements:
        for name in statement.names if isinstance(statement, Exogenous) else (statement.name,):
            if name in places:
                raise origin.error(statement.offset, f"{name!r} is defined twice; each variable has one definition.")
            places[name] = statement.offset
    for level, offset in reader.bare.items():
        if level in places:
            raise origin.error(offset, f'{level!r} is a variable; to use the word as a value, write "{level}".')
    ranges: dict[str, tuple[Value, ...]] = {}
    laws: list[Factor] = []
    definitions: dict[str, Definition] = {}
    for statement in statements:
        if isinstance(statement, Exogenous):
            laws.append(_population(statement, ranges, origin))
        elif isinstance(statement, Assign):
            definitions[statement.name] = _expression(statement.expression, places, reader.levels, origin)
        else:
            definitions[statement.name] = _table(statement, places, origin)
    try:
        known, equations = assemble(ranges, definitions)
    except CycleError as error:
        raise origin.error(places[error.cycle[0]], str(error)) from None
    return SEM(ranges=known, equations=equations, population=tuple(laws))


def expression(text: str, variables: Collection[str], *, source: str) -> Definition:
    """Return the definition that ``X := text`` would give in a model with these variables."""
    origin = Source(text, source)
    node, reader = read_expression(origin)
    return _expression(node, variables, reader.levels, origin)


@dataclass(frozen=True, slots=True, eq=False)
class _Expression:
    parents: tuple[str, ...]
    node: Node
    levels: Collection[str]
    variables: Collection[str]
    source: Source

    def compile(self, name: str, ranges: Mapping[str, tuple[Value, ...]]) -> tuple[tuple[Value, ...], Equation]:
        known: set[str] | None = None
        for word in words(self.node):
            if word.name in self.variables or word.name in self.levels:
                continue
            known = _levels(ranges) if known is None else known
            if word.name not in known:
                raise self.source.error(
                    word.offset,
                    f"there is no variable or level {word.name!r}."
                    + did_you_mean(word.name, [*self.variables, *self.levels, *known])
                    + f' A new value is written in quotes: "{word.name}".',
                )
        text = write_expression(self.node)
        return compile_expression(name, self.node, ranges, parents=self.parents, source=self.source, text=text)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    parents: tuple[str, ...]
    rows: tuple[Row, ...]
    source: Source
    offset: int

    def compile(self, name: str, ranges: Mapping[str, tuple[Value, ...]]) -> tuple[tuple[Value, ...], Equation]:
        values = arrange(name, (entry.value for row in self.rows for entry in row.entries))
        shape = tuple(len(ranges[parent]) for parent in self.parents)
        if math.prod(shape) * len(values) > LARGEST:
            raise self.source.error(self.offset, f"this table would have more than {LARGEST:,} cells.")
        table = np.zeros((*shape, len(values)))
        open_cells = np.ones(shape, dtype=bool)
        for row in self.rows:
            where = tuple(
                self._places(parent, value, ranges[parent], row)
                for parent, value in zip(self.parents, row.pattern, strict=True)
            )
            block = np.ix_(*where)
            fresh = np.zeros(shape, dtype=bool)
            fresh[block] = open_cells[block]
            if not fresh.any():
                raise self.source.error(row.offset, "the rows above already cover this one; the first match counts.")
            table[fresh] = _weights(row.entries, values, self.source, row.offset)
            open_cells &= ~fresh
        if open_cells.any():
            cell = np.argwhere(open_cells)[0]
            missing = [ranges[parent][place] for parent, place in zip(self.parents, cell, strict=True)]
            raise self.source.error(
                self.offset,
                f"this table has no row for {', '.join(self.parents)} = {show(missing)}. Add it, or a row with _.",
            )
        return values, from_table(name, self.parents, table)

    def _places(self, parent: str, value: Value | None, values: tuple[Value, ...], row: Row) -> list[int]:
        if value is None:
            return list(range(len(values)))
        if value not in values:
            raise self.source.error(
                row.offset,
                f"{parent!r} never takes the value {show([value])}; its values are {show(values)}."
                + did_you_mean(show([value]), [show([known]) for known in values]),
            )
        return [values.index(value)]


def _expression(node: Node, variables: Collection[str], levels: Collection[str], source: Source) -> _Expression:
    parents = tuple(dict.fromkeys(word.name for word in words(node) if word.name in variables))
    return _Expression(parents, node, levels, variables, source)


def _table(statement: Conditional, variables: Collection[str], source: Source) -> _Table:
    for position, word in enumerate(statement.parents):
        if word.name not in variables:
            raise source.error(word.offset, f"there is no variable {word.name!r}.{did_you_mean(word.name, variables)}")
        if word.name in [other.name for other in statement.parents[:position]]:
            raise source.error(word.offset, f"{word.name!r} is listed twice.")
    parents = tuple(word.name for word in statement.parents)
    return _Table(parents, statement.rows, source, statement.offset)


def _population(statement: Exogenous, ranges: dict[str, tuple[Value, ...]], source: Source) -> Factor:
    """Return the law of an exogenous statement and add the ranges of its variables."""
    names = statement.names
    # With several names the parser has made sure that every value is a tuple of that length.
    points = [
        entry.value if isinstance(entry.value, tuple) and len(names) > 1 else (entry.value,)
        for entry in statement.entries
    ]
    try:
        for axis, name in enumerate(names):
            ranges[name] = arrange(name, (point[axis] for point in points))
        if math.prod(len(ranges[name]) for name in names) > LARGEST:
            raise InputError(f"a joint law is limited to {LARGEST:,} cells.")
        return law_of(names, {entry.value: entry.weight for entry in statement.entries}, ranges)
    except InputError as error:
        raise source.error(statement.offset, str(error)) from None


def _weights(entries: tuple[Entry, ...], values: tuple[Value, ...], source: Source, offset: int) -> list[float]:
    given = {entry.value: entry.weight for entry in entries}
    row = np.array([given.get(value, 0.0) for value in values])
    try:
        return list(normalised("this row", row))
    except InputError as error:
        raise source.error(offset, str(error)) from None


def _levels(ranges: Mapping[str, tuple[Value, ...]]) -> set[str]:
    found: set[str] = set()
    stack: list[Value] = [value for values in ranges.values() for value in values]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, tuple):
            stack += value
    return found
