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

A model is written as text that reads back as the same model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np

from escudo._validate import did_you_mean
from escudo.causal._inference import Factor
from escudo.causal._sem import SEM
from escudo.causal._sem_compile import LARGEST, compile_expression
from escudo.causal._sem_equations import (
    WORDS,
    CycleError,
    Definition,
    Equation,
    Ranges,
    Value,
    arrange,
    assemble,
    from_table,
    law_of,
    normalise,
    show,
)
from escudo.causal._sem_parser import (
    COUNTING,
    Assign,
    Conditional,
    Draw,
    Entry,
    Exogenous,
    Node,
    Operation,
    Row,
    Val,
    Word,
    read_expression,
    read_statements,
    words,
)
from escudo.causal.formats._source import NamedText
from escudo.errors import InputError

# ---- reading


def parse(text: str, source: str = "text") -> SEM:
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
    origin = NamedText(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), source)
    statements, reader = read_statements(origin)
    if not statements:
        raise origin.mark("the text defines no variables; write definitions such as 'X ~ a: 0.5, b: 0.5'.", 0)
    places: dict[str, int] = {}
    for statement in statements:
        for name in statement.names if isinstance(statement, Exogenous) else (statement.name,):
            if name in places:
                raise origin.mark(f"{name!r} is defined twice; each variable has one definition.", statement.at)
            places[name] = statement.at
    for level, at in reader.bare.items():
        if level in places:
            raise origin.mark(f'{level!r} is a variable; to use the word as a value, write "{level}".', at)
    ranges: dict[str, tuple[Value, ...]] = {}
    laws: list[Factor] = []
    definitions: dict[str, Definition] = {}
    for statement in statements:
        if isinstance(statement, Exogenous):
            laws.append(_population(statement, ranges, origin))
        elif isinstance(statement, Assign):
            definitions[statement.name] = _expression(statement.expression, places, reader.levels, origin)
        else:
            definitions[statement.name] = _conditional(statement, places, origin)
    try:
        known, equations = assemble(ranges, definitions)
    except CycleError as error:
        raise origin.mark(str(error), places[error.cycle[0]]) from None
    return SEM(ranges=known, equations=equations, population=tuple(laws))


def expression(text: str, variables: Collection[str], *, source: str) -> Definition:
    """Return the definition that ``X := text`` would give in a model with these variables."""
    origin = NamedText(text, source)
    node, reader = read_expression(origin)
    return _expression(node, variables, reader.levels, origin)


@dataclass(frozen=True, slots=True, eq=False)
class _Expression:
    parents: tuple[str, ...]
    node: Node
    levels: Collection[str]
    variables: Collection[str]
    source: NamedText

    def compile(self, name: str, ranges: Ranges) -> tuple[tuple[Value, ...], Equation]:
        known: set[str] | None = None
        for word in words(self.node):
            if word.name in self.variables or word.name in self.levels:
                continue
            known = _levels(ranges) if known is None else known
            if word.name not in known:
                raise self.source.mark(
                    f"there is no variable or level {word.name!r}."
                    + did_you_mean(word.name, [*self.variables, *self.levels, *known])
                    + f' A new value is written in quotes: "{word.name}".',
                    word.at,
                )
        return compile_expression(name, self.node, ranges, self.parents, self.source, write_expression(self.node))


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    parents: tuple[str, ...]
    rows: tuple[Row, ...]
    source: NamedText
    at: int

    def compile(self, name: str, ranges: Ranges) -> tuple[tuple[Value, ...], Equation]:
        values = arrange(name, (entry.value for row in self.rows for entry in row.entries))
        shape = tuple(len(ranges[parent]) for parent in self.parents)
        if math.prod(shape) * len(values) > LARGEST:
            raise self.source.mark(f"this table would have more than {LARGEST:,} cells.", self.at)
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
                raise self.source.mark("the rows above already cover this one; the first match counts.", row.at)
            table[fresh] = _weights(row.entries, values, self.source, row.at)
            open_cells &= ~fresh
        if open_cells.any():
            cell = np.argwhere(open_cells)[0]
            missing = [ranges[parent][place] for parent, place in zip(self.parents, cell, strict=True)]
            raise self.source.mark(
                f"this table has no row for {', '.join(self.parents)} = {show(missing)}. Add it, or a row with _.",
                self.at,
            )
        return values, from_table(name, self.parents, table)

    def _places(self, parent: str, value: Value | None, values: tuple[Value, ...], row: Row) -> list[int]:
        if value is None:
            return list(range(len(values)))
        if value not in values:
            raise self.source.mark(
                f"{parent!r} never takes the value {show([value])}; its values are {show(values)}."
                + did_you_mean(show([value]), [show([known]) for known in values]),
                row.at,
            )
        return [values.index(value)]


def _expression(node: Node, variables: Collection[str], levels: Collection[str], source: NamedText) -> _Expression:
    parents = tuple(dict.fromkeys(word.name for word in words(node) if word.name in variables))
    return _Expression(parents, node, levels, variables, source)


def _conditional(statement: Conditional, variables: Collection[str], source: NamedText) -> _Table:
    for position, word in enumerate(statement.parents):
        if word.name not in variables:
            raise source.mark(f"there is no variable {word.name!r}.{did_you_mean(word.name, variables)}", word.at)
        if word.name in [other.name for other in statement.parents[:position]]:
            raise source.mark(f"{word.name!r} is listed twice.", word.at)
    parents = tuple(word.name for word in statement.parents)
    return _Table(parents, statement.rows, source, statement.at)


def _population(statement: Exogenous, ranges: dict[str, tuple[Value, ...]], source: NamedText) -> Factor:
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
        raise source.mark(str(error), statement.at) from None


def _weights(entries: tuple[Entry, ...], values: tuple[Value, ...], source: NamedText, at: int) -> list[float]:
    given = {entry.value: entry.weight for entry in entries}
    row = np.array([given.get(value, 0.0) for value in values])
    try:
        return list(normalise("this row", row))
    except InputError as error:
        raise source.mark(str(error), at) from None


def _levels(ranges: Ranges) -> set[str]:
    found: set[str] = set()
    stack: list[Value] = [value for values in ranges.values() for value in values]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, tuple):
            stack += value
    return found


# ---- writing

_TIGHTNESS = {"if": 0, "or": 1, "and": 2, "not": 3, "=": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4}
_TIGHTNESS |= {"+": 5, "*": 6, "//": 6, "%": 6, "neg": 7}
_ATOM = 8
_SHORTEST_RUN = 4


def to_text(sem: SEM) -> str:
    """Return the model's definitions, parents first."""
    lines = list(_populations(sem))
    for name in sem.endogenous:
        equation = sem.equation(name)
        if equation.text is not None:
            lines.append(f"{name} := {equation.text}")
        elif not equation.parents:
            law = zip(sem.range(name), equation.table, strict=True)
            lines.append(
                f"{name} := choose({', '.join(f'{_quoted(value)}: {_number(weight)}' for value, weight in law)})"
            )
        else:
            lines += _table(sem, name)
    return "\n".join(lines) + "\n"


def write_expression(node: Node) -> str:
    """Return an expression as text."""
    if isinstance(node, Val):
        return _quoted(node.value)
    if isinstance(node, Word):
        return node.name
    if isinstance(node, Draw):
        return _draw(node)
    if node.kind in _TIGHTNESS:
        return _operator(node)
    if node.kind == "tuple":
        parts = ", ".join(write_expression(argument) for argument in node.arguments)
        return f"({parts}{',' if len(node.arguments) == 1 else ''})"
    arguments = _tests(node.arguments) if node.kind in COUNTING else _list(node.arguments)
    return f"{node.kind}({', '.join(arguments)})"


def _operator(node: Operation) -> str:
    level = _TIGHTNESS[node.kind]
    first, *others = node.arguments
    if node.kind == "if":
        test, yes, no = node.arguments
        return f"{_inside(yes, 1)} if {_inside(test, 1)} else {_inside(no, 0)}"
    if node.kind == "neg":
        return f"-{_inside(first, _ATOM)}"
    if node.kind == "not":
        return f"not {_inside(first, 4)}"
    # Operands on the right need brackets at the same level: a // (b // c). So do comparisons on either side.
    text = _inside(first, level + 1 if level == 4 or node.kind in ("or", "and", "+") else level)
    for other in others:
        if node.kind == "+" and isinstance(other, Operation) and other.kind == "neg":
            text += f" - {_inside(other.arguments[0], 6)}"
        else:
            text += f" {node.kind} {_inside(other, level + 1)}"
    return text


def _inside(node: Node, level: int) -> str:
    text = write_expression(node)
    loose = isinstance(node, Operation) and _TIGHTNESS.get(node.kind, _ATOM) < level
    return f"({text})" if loose else text


def _draw(node: Draw) -> str:
    arguments = [write_expression(argument) for argument in node.arguments]
    parameters = [(name, value if isinstance(value, str) else _number(value)) for name, value in node.parameters]
    if node.kind == "choose":
        shown = [f"{text}: {weight}" for text, (_, weight) in zip(arguments, parameters, strict=True)]
    elif node.kind in ("coin", "bernoulli"):
        shown = [weight for _, weight in parameters]
    else:
        labels = [f"{_quoted(label)}: " for label in node.labels] or [""] * len(arguments)
        shown = [label + text for label, text in zip(labels, arguments, strict=True)]
        shown += [f"{name} = {value}" for name, value in parameters]
    return f"{node.kind}({', '.join(shown)})"


def _list(arguments: Sequence[Node]) -> list[str]:
    """Write arguments, with runs of numbered names as families."""
    written: list[str] = []
    position = 0
    while position < len(arguments):
        node, run = arguments[position], 1
        while position + run < len(arguments) and _follows(node, arguments[position + run], run):
            run += 1
        if run >= _SHORTEST_RUN and isinstance(node, Word):
            written.append(_family(node.name, run))
            position += run
        else:
            written.append(write_expression(node))
            position += 1
    return written


def _follows(first: Node, other: Node, steps: int) -> bool:
    return isinstance(first, Word) and isinstance(other, Word) and _numbered(first.name, other.name, steps)


def _tests(arguments: Sequence[Node]) -> list[str]:
    """Write conditions, with one test for all names that share it."""
    written: list[str] = []
    position = 0
    while position < len(arguments):
        node = arguments[position]
        group = _same_test(arguments[position:])
        if len(group) > 1 and isinstance(node, Operation):
            names = _list([argument.arguments[0] for argument in group])
            written.append(f"{', '.join(names)} {node.kind} {_inside(node.arguments[1], 5)}")
        else:
            text = write_expression(node)
            # Brackets keep a lone name, or a comparison of one, from joining its neighbours.
            written.append(f"({text})" if isinstance(node, Word) else text)
        position += max(1, len(group))
    return written


def _same_test(arguments: Sequence[Node]) -> list[Operation]:
    group: list[Operation] = []
    for argument in arguments:
        if not isinstance(argument, Operation) or _TIGHTNESS.get(argument.kind) != 4:
            break
        left, right = argument.arguments
        if not isinstance(left, Word) or not isinstance(right, (Word, Val)):
            break
        if group and (argument.kind, right) != (group[0].kind, group[0].arguments[1]):
            break
        group.append(argument)
    return group


def _split(name: str) -> tuple[str, int] | None:
    match = re.fullmatch(r"(.*?)(0|[1-9][0-9]*)", name)
    if match is None or not match[1].isidentifier() or match[1] in WORDS or len(match[2]) > 9:
        return None
    return match[1], int(match[2])


def _numbered(first: str, other: str, steps: int) -> bool:
    """Return True if ``other`` is ``first`` with a number that is ``steps`` higher, as D7 is to D5."""
    start, end = _split(first), _split(other)
    return start is not None and end == (start[0], start[1] + steps)


def _family(name: str, length: int) -> str:
    stem, first = _split(name) or ("", 0)
    return f"{stem}[{first}..{first + length - 1}]"


def _populations(sem: SEM) -> Iterable[str]:
    laws = sem.population
    position = 0
    while position < len(laws):
        law, run = laws[position], 1
        while position + run < len(laws) and _same_law(sem, law, laws[position + run], run):
            run += 1
        run = run if run >= _SHORTEST_RUN else 1
        named = _family(law.names[0], run) if run > 1 else ", ".join(law.names)
        yield f"{named} ~ {_law(sem, law)}"
        position += run


def _same_law(sem: SEM, first: Factor, other: Factor, steps: int) -> bool:
    return (
        len(first.names) == len(other.names) == 1
        and _numbered(first.names[0], other.names[0], steps)
        and sem.range(first.names[0]) == sem.range(other.names[0])
        and np.array_equal(first.array, other.array)
    )


def _law(sem: SEM, law: Factor) -> str:
    """Write a law; values of probability zero are named where the range would otherwise lose them or their order."""
    ranges = [sem.range(name) for name in law.names]
    longest = max(len(values) for values in ranges)
    # Cells along the diagonal name every value of every variable once, in the order of the ranges.
    diagonal = [tuple(min(step, len(values) - 1) for values in ranges) for step in range(longest)]
    cells = dict.fromkeys(diagonal) | dict.fromkeys(map(tuple, np.argwhere(law.array > 0).tolist()))
    entries = []
    for cell in cells:
        point = [_level(values[place], sem.ranges) for values, place in zip(ranges, cell, strict=True)]
        shown = f"({', '.join(point)})" if len(point) > 1 else point[0]
        entries.append(f"{shown}: {_number(law.array[cell])}")
    return ", ".join(entries)


def _table(sem: SEM, name: str) -> Iterable[str]:
    equation = sem.equation(name)
    yield f"{name} | {', '.join(equation.parents)} ~"
    values = [_level(value, sem.ranges) for value in sem.range(name)]
    table = equation.table.reshape(-1, len(values))
    points = combinations(*(sem.range(parent) for parent in equation.parents))
    for row, (point, weights) in enumerate(zip(points, table, strict=True)):
        shown = [
            f"{value}: {_number(weight)}"
            for value, weight in zip(values, weights, strict=True)
            if weight > 0 or row == 0
        ]
        yield f"    {', '.join(_level(value, sem.ranges) for value in point)} -> {', '.join(shown)}"


def _level(value: Value, variables: Collection[str]) -> str:
    """Write a value as a level of a law: words bare where they can be."""
    if isinstance(value, tuple):
        return f"({', '.join(_level(part, variables) for part in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, str) and re.fullmatch(r"[^\W\d]\w*", value) and value not in WORDS and value not in variables:
        return value
    return _quoted(value)


def _quoted(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"({', '.join(_quoted(part) for part in value)}{',' if len(value) == 1 else ''})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _number(value: float) -> str:
    text = repr(float(value))
    return text.removesuffix(".0")
