"""What was asked about two columns: every public argument, checked once, as each method gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from escudo._validate import did_you_mean, positive
from escudo.errors import InputError
from escudo.privacy import Relation, Unit
from escudo.table import Schema

__all__ = ["Asked", "Score", "check_options", "check_width"]

Score = str | Callable[..., Any]

_NARROWEST = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question about two columns of a table.

    Attributes:
        schema: The table's schema; both columns were checked: numeric, or categorical with an order.
        x: One column.
        y: The other column.
        epsilon: What the answer may cost.
        delta: At this probability aside.
        score: Which score; ``"committee"`` stands for the method's own default.
        relation: Which tables are neighbours.
        rows: The public number of rows (of people, for the person unit); None if nobody stated it.
        options: Whatever else the caller gave; an unknown one is an InputError that lists those there are.
    """

    schema: Schema
    x: str
    y: str
    epsilon: float
    delta: float
    score: Score
    relation: Relation
    rows: int | None
    options: Mapping[str, Any]

    @property
    def unit(self) -> Unit:
        """Whose data differs between neighbours."""
        return self.schema.unit


def check_options(method: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with defaults filled in, or raise with the list of those there are."""
    if unknown := sorted(set(options) - set(known)):
        raise InputError(
            f"method {method!r} has no option {unknown[0]!r}; it has {', '.join(known)}."
            + did_you_mean(unknown[0], known)
        )
    return {**known, **options}


def check_width(value: object) -> float:
    """Return the width of kernels on [-1, 1], or raise: narrower ones need more grid points than they are worth."""
    width = positive("width", value, at_most=2.0)
    if width < _NARROWEST:
        raise InputError(f"width must be at least {_NARROWEST} on the scale [-1, 1]; got {width!r}.")
    return width
