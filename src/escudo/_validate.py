"""Argument checks shared by every package: each names the argument, what came, and what is expected."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TypeVar

from escudo.errors import InputError

_T = TypeVar("_T", bound=str)


def finite(name: str, value: object) -> float:
    """Return ``value`` as a float, or raise if it is not a finite number."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # a whole number beyond the range of floats
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number; got {_show(value)}.")
    return number


def positive(name: str, value: object, *, allow_zero: bool = False, at_most: float = math.inf) -> float:
    """Return ``value`` as a float, or raise unless it is finite, above zero and at most ``at_most``."""
    number = finite(name, value)
    if number < 0 or (number == 0 and not allow_zero):
        raise InputError(f"{name} must be {'at least' if allow_zero else 'greater than'} 0; got {_show(value)}.")
    if number > at_most:
        raise InputError(f"{name} must be at most {at_most:g}; got {_show(value)}.")
    return number


def probability(name: str, value: object, *, allow_zero: bool = True, allow_one: bool = False) -> float:
    """Return ``value`` as a float, or raise unless it lies in [0, 1), ends as stated."""
    number = finite(name, value)
    low_ok = number > 0 or (allow_zero and number == 0)
    high_ok = number < 1 or (allow_one and number == 1)
    if not (low_ok and high_ok):
        interval = f"{'[' if allow_zero else '('}0, 1{']' if allow_one else ')'}"
        raise InputError(f"{name} must lie in {interval}; got {_show(value)}.")
    return number


def whole(name: str, value: object, *, minimum: int = 0) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}; got {_show(value)}.")
    return int(value)


def positive_integer(name: str, value: object) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number of at least 1."""
    return whole(name, value, minimum=1)


def yes_or_no(name: str, value: object) -> bool:
    """Return ``value`` if it is true or false."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false; got {value!r:.60}.")
    return value


def one_of(name: str, value: object, choices: Iterable[_T]) -> _T:
    """Return ``value``, or raise with the nearest allowed choice if it is not one of ``choices``."""
    allowed = list(choices)
    for choice in allowed:
        if isinstance(value, str) and value == choice:  # an array would compare item by item
            return choice
    hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
    raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {_show(value)}.{hint}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest known name, or an empty string."""
    close = get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _show(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes out no whole number of more than 4,300 digits
        return f"{type(value).__name__} beyond what can be shown"
    return text if len(text) <= 60 else text[:57] + "..."
