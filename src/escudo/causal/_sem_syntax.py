"""The pieces that reading a model's text leads to: expressions and definitions, each with its place in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from escudo.causal._sem_values import Value

__all__ = [
    "Assign",
    "Conditional",
    "Draw",
    "Entry",
    "Exogenous",
    "Node",
    "Operation",
    "Row",
    "Statement",
    "Val",
    "Word",
    "words",
]


@dataclass(frozen=True, slots=True)
class Val:
    """A value written out: a number, true or false, or quoted text."""

    value: Value
    offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Word:
    """A bare word: a variable where there is one of that name, otherwise a level."""

    name: str
    offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """A deterministic operation on other expressions, such as ``+``, ``if`` or ``count``."""

    kind: str
    arguments: tuple[Node, ...]
    offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Draw:
    """A randomised operation.

    Attributes:
        kind: The mechanism's name, or ``choose``.
        arguments: What it reads.
        labels: The candidates, for mechanisms that choose between some; empty otherwise.
        parameters: Numbers and words by name; for ``choose``, the weights are ``weight 0``, ``weight 1``, …
        offset: Where it stands.
    """

    kind: str
    arguments: tuple[Node, ...]
    labels: tuple[Value, ...]
    parameters: tuple[tuple[str, float | str], ...]
    offset: int = field(compare=False)


Node: TypeAlias = "Val | Word | Operation | Draw"


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``value: probability`` of a law."""

    value: Value
    weight: float
    offset: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a conditional table; None stands for any value."""

    pattern: tuple[Value | None, ...]
    entries: tuple[Entry, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Exogenous:
    """``R1, R2 ~ (a, b): 0.5, …``."""

    names: tuple[str, ...]
    entries: tuple[Entry, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Conditional:
    """``X | A, B ~`` followed by rows."""

    name: str
    parents: tuple[Word, ...]
    rows: tuple[Row, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Assign:
    """``X := expression``."""

    name: str
    expression: Node
    offset: int


Statement: TypeAlias = "Exogenous | Conditional | Assign"


def words(node: Node) -> Iterator[Word]:
    """Yield every bare word of an expression, from left to right."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Word):
            yield current
        elif not isinstance(current, Val):
            stack += reversed(current.arguments)
