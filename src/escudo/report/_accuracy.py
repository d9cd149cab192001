"""How far off a release may be: the noise of its tables, and the error that is expected to be left of it.

Both are public: the noise is known from the plan, and what it leaves follows from the model alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from escudo.privacy import Event, GaussianEvent, Guarantee, LaplaceEvent, Plan

if TYPE_CHECKING:
    from escudo.synthesis import Forecast, Model

_MOST_EXPECTED = 12


@dataclass(frozen=True, slots=True)
class Noise:
    """How loud the noise on one released table is: known beforehand, so public.

    Attributes:
        what: The table, as the plan names it.
        buys: What the plan says it is good for.
        count: How many tables of this kind were released.
        deviation: Standard deviation of the noise on a number, over the most that one record moves the table (l2 norm).
        rows: The same in rows, where every number is a count of rows; None otherwise.
        share: ``rows`` as a share of the table's rows; None where ``rows`` is.
    """

    what: str
    buys: str
    count: int
    deviation: float
    rows: float | None
    share: float | None


def noise_of(model: Model, rows: int) -> list[Noise]:
    """Return the noise of every table in the plan, without a look at any of them.

    Args:
        model: The released model. Where its details say how many rows the table has (public, or estimated from what was
            released), shares are of those.
        rows: Taken as the number of rows otherwise.
    """
    stated = model.details.get("rows")
    total = float(stated) if isinstance(stated, int | float) and stated > 0 else float(rows)
    found = []
    for leaf, count in _leaves(model.plan):
        event = leaf.once
        moved = _moved_by_a_record(event, model.guarantee)
        if event is None or moved is None:
            continue
        deviation, record, row, grid = moved
        counted = grid > 0 and math.isclose(row, grid, rel_tol=1e-6)
        in_rows = deviation / grid if counted else None
        found.append(
            Noise(
                leaf.name, leaf.buys, count, deviation / record, in_rows, None if in_rows is None else in_rows / total
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Expected:
    """The error that noise leaves of each column and arrow: as foretold from public facts, and by the noise drawn.

    Attributes:
        foretold: The error of each column, or of each pair along an arrow, as the plan's forecast had it,
        stated: and by the noise that every table has got, in the released law.
    """

    foretold: Mapping[tuple[str, ...], float]
    stated: Mapping[tuple[str, ...], float]

    @classmethod
    def of(cls, model: Model, forecast: Forecast | None) -> Expected | None:
        """Return what is known of both, without a look at the private table; None where nothing is."""
        from escudo.synthesis import CausalModel, stated_errors

        drawn = stated_errors(model) if isinstance(model, CausalModel) else None
        foretold: dict[tuple[str, ...], float] = {}
        if forecast is not None:
            foretold = {(name,): error for name, error in forecast.columns.items()}
            foretold |= {} if forecast.picked else {tuple(pair): error for pair, error in forecast.pairs.items()}
        stated: dict[tuple[str, ...], float] = {}
        if drawn is not None:
            columns, pairs = drawn
            stated = {(name,): error for name, error in columns.items()}
            stated |= {tuple(pair): error for pair, error in pairs.items()}
        return cls(foretold, stated) if foretold or stated else None

    def to_json(self) -> list[dict[str, Any]]:
        """Return both for each column and arrow, as JSON values."""
        return [
            {"columns": list(columns), "forecast": self.foretold.get(columns), "stated": self.stated.get(columns)}
            for columns in dict.fromkeys((*self.foretold, *self.stated))
        ]

    def shown(self) -> dict[str, Any]:
        """Return the rows of a table, the means, then what errs most; and which of the two errors there are at all."""
        every = dict.fromkeys((*self.foretold, *self.stated))
        kinds = {"all columns, on average": 1, "all arrows, on average": 2}
        rows = []
        for title, width in kinds.items():
            figures = [
                [error for columns, error in errors.items() if len(columns) == width]
                for errors in (self.foretold, self.stated)
            ]
            if any(figures):
                rows.append((title, *(_hundredths(sum(each) / len(each)) if each else "" for each in figures)))
        falling = sorted(every, key=lambda columns: -self.stated.get(columns, self.foretold.get(columns, 0.0)))
        for columns in falling[:_MOST_EXPECTED]:
            both = (errors.get(columns) for errors in (self.foretold, self.stated))
            rows.append((" → ".join(columns), *("" if error is None else _hundredths(error) for error in both)))
        there = {"foretold": bool(self.foretold), "stated": bool(self.stated)}
        return {"rows": rows, "left": len(falling) - _MOST_EXPECTED, **there}


def _hundredths(share: float) -> str:
    return f"{100 * share:.2f}"


def _leaves(plan: Plan, times: int = 1) -> Iterator[tuple[Plan, int]]:
    times *= plan.count
    if not plan.children:
        yield plan, times
    for child in plan.children:
        yield from _leaves(child, times)


def _moved_by_a_record(event: Event | None, guarantee: Guarantee) -> tuple[float, float, float, float] | None:
    """Return a number's noise, the most a record moves, the most one row adds, and the grid; None for other events.

    Replacing a row takes one contribution away and adds another. Contributions are not negative, so in l2 norm this is
    at most the square root of 2 times one of them, and in l1 norm twice.
    """
    many = guarantee.max_rows_per_person or 1
    replacing = event is not None and event.relation == "replace_one"
    if isinstance(event, GaussianEvent) and event.l2_sensitivity > 0:
        row = event.l2_sensitivity / (math.sqrt(2) if replacing else 1.0) / many
        return event.scale, event.l2_sensitivity, row, event.grid
    if isinstance(event, LaplaceEvent) and event.l1_sensitivity > 0:
        row = event.l1_sensitivity / (2.0 if replacing else 1.0) / many
        return event.scale * math.sqrt(2), event.l1_sensitivity, row, event.grid
    return None
