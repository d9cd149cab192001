"""Writing structural equation models as text that reads back as the same model."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import product as combinations
from typing import TYPE_CHECKING

import numpy as np

from escudo.causal._sem_expression_parser import COUNTING
from escudo.causal._sem_lexer import WORDS
from escudo.causal._sem_syntax import Draw, Node, Operation, Val, Word
from escudo.causal._sem_values import Value

if TYPE_CHECKING:
    from escudo.causal._inference import Factor
    from escudo.causal._sem import SEM

__all__ = ["to_text", "write_expression"]

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
