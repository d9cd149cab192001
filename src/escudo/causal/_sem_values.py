"""The values that variables of a structural equation model take, and the ranges they form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TypeAlias

import numpy as np

from escudo.causal._inference import Array
from escudo.causal._sem_lexer import WORDS
from escudo.errors import InputError

__all__ = [
    "ROW_TOLERANCE",
    "Value",
    "arrange",
    "as_range",
    "as_table",
    "as_value",
    "as_weight",
    "check_name",
    "normalised",
    "show",
    "typed",
]

Value: TypeAlias = "str | int | bool | tuple[Value, ...]"

ROW_TOLERANCE = 1e-9  # how far written probabilities may miss 1 in total
_ROUNDING = 1e-12  # below this a miss is float rounding, and the numbers stay as written


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


def normalised(what: str, table: Array) -> Array:
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
