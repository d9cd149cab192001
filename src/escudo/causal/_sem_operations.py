"""The deterministic operations of the text format: what each needs and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from escudo.causal._sem_values import Value, show, typed
from escudo.errors import InputError

__all__ = ["OPERATIONS", "Rule"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One operation.

    Attributes:
        sign: How messages call it.
        needs: What every operand must be: ``"numbers"``, ``"truth"`` or ``"anything"``; ``"test"`` is truth for the
            first one only.
        function: The operation on values; of two of them where it folds a list from the left.
        folds: True if it takes any number of operands.
        each: Where it folds: what every operand becomes before they are put together.
        vector: The same operation on integer arrays.
    """

    sign: str
    needs: str
    function: Callable[..., Any]  # on values of the kind it needs
    folds: bool = False
    each: Callable[[Any], Any] | None = None
    vector: np.ufunc | None = None

    def problem(self, values: tuple[Value, ...], position: int) -> str | None:
        """Say what is wrong with an operand that takes these values, or return None."""
        if self.needs == "numbers" and any(type(value) is not int for value in values):
            wrong = [value for value in values if type(value) is not int]
            return (
                f"{self.sign} needs whole numbers; this takes {show(wrong)}. Use count(... = value) to count a value."
            )
        if (self.needs == "truth" or (self.needs == "test" and position == 0)) and any(
            type(value) is not bool for value in values
        ):
            return f"{self.sign} needs true or false; this takes {show(values)}. Compare it, as in 'X = value'."
        return None


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise InputError("this divides by zero for some values.")
    return a // b


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise InputError("this divides by zero for some values.")
    return a % b


OPERATIONS: Mapping[str, Rule] = {
    "+": Rule("'+'", "numbers", lambda a, b: a + b, folds=True, vector=np.add),
    "sum": Rule("sum", "numbers", lambda a, b: a + b, folds=True, vector=np.add),
    "*": Rule("'*'", "numbers", lambda a, b: a * b),
    "//": Rule("'//'", "numbers", _divide),
    "%": Rule("'%'", "numbers", _remainder),
    "neg": Rule("'-'", "numbers", lambda a: -a),
    "abs": Rule("abs", "numbers", abs),
    "min": Rule("min", "numbers", min, folds=True, vector=np.minimum),
    "max": Rule("max", "numbers", max, folds=True, vector=np.maximum),
    "count": Rule("count", "truth", lambda a, b: a + b, folds=True, each=int, vector=np.add),
    "and": Rule("'and'", "truth", lambda a, b: a and b, folds=True),
    "all": Rule("all", "truth", lambda a, b: a and b, folds=True),
    "or": Rule("'or'", "truth", lambda a, b: a or b, folds=True),
    "any": Rule("any", "truth", lambda a, b: a or b, folds=True),
    "not": Rule("'not'", "truth", lambda a: not a),
    "<": Rule("'<'", "numbers", lambda a, b: a < b),
    "<=": Rule("'<='", "numbers", lambda a, b: a <= b),
    ">": Rule("'>'", "numbers", lambda a, b: a > b),
    ">=": Rule("'>='", "numbers", lambda a, b: a >= b),
    "=": Rule("'='", "anything", lambda a, b: typed(a) == typed(b)),
    "!=": Rule("'!='", "anything", lambda a, b: typed(a) != typed(b)),
    "if": Rule("'if'", "test", lambda test, a, b: a if test else b),
    "tuple": Rule("tuple", "anything", lambda a, b: a + b, folds=True, each=lambda a: (a,)),
}
