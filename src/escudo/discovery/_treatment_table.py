r"""The adjustment table: what is measured about each stratum and arm, in which steps, and its sensitivity.

A row lies in one stratum z (the cells of the columns adjusted for) and one arm t (its treatment). Its outcome becomes a
weight w in [0, 1]: one or zero where an event is asked for, and where the outcome is a number its place between the
schema's bounds. Released are, for each stratum and arm,

.. math:: A = \sum w, \qquad B = \sum (1 - w), \qquad V = c \sum w (1 - w)

and for each stratum the number of rows whose treatment or outcome is missing. So A + B counts rows, A / (A + B) is
their mean outcome, and V, measured for numbers only, says how much outcomes vary within: it makes intervals sharper.

**Sensitivity.** One row adds a vector with entries not negative to one place. Its length is

.. math:: \|(w, 1-w, c\,w(1-w))\|_2^2 = 1 - 2 w (1-w) + c^2 w^2 (1-w)^2 \le 1 \quad\text{if } c^2 \le 8,

as :math:`w (1-w) \le 1/4`. So with Gaussian noise V costs nothing, and the sensitivity is that of one table of counts
(:func:`~escudo.table.count_sensitivity`), for either relation and for persons: the proof there uses only that vectors
are not negative and of length at most 1. In the l1 norm V adds :math:`c/4`; with Laplace noise c is 1/4, and that 1/16.

Numbers are taken in bins of 1/4096 of their range (fewer for very many strata; whole numbers exactly where they fit),
and weights in whole steps of :math:`2^{-16}`, so sums are exact and the engine counts as in any other table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._treatment_interval import Strata
from escudo.errors import InputError
from escudo.mechanisms import Seed, as_planned, gaussian_event, laplace_event
from escudo.privacy import Account, GaussianEvent, LaplaceEvent, Relation, calibrate
from escudo.table import Categorical, Numeric, PrivateTable, Schema, count_sensitivity

__all__ = ["AdjustmentTable", "Weights", "level_of", "usual_levels", "weights_of"]

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

STEPS = 2**16
"""Steps from weight 0 to weight 1, where the outcome is a number."""

_FINE, _COARSE = 4096, 64
_ROOM = 2**22
_MOST_CELLS = 2**20
_NEGATIVE = {"no", "false", "0", "n", "none", "never", "absent", "negative", "control", "placebo"}
_SPREAD = {"gaussian": 2.828, "laplace": 0.25}  # c; the first is a hair below √8


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The outcome as a weight between 0 and 1 for each of its cells.

    Attributes:
        column: The outcome, in cells fine enough to be taken as numbers.
        weights: In steps, one for each cell; a missing cell, which comes last, has none.
        steps: How many steps make weight 1; 1 where an event is counted.
        lower: What weight 0 stands for, in the outcome's own units.
        span: What lies between weight 0 and weight 1.
        meaning: What the mean is, in words.
    """

    column: Categorical | Numeric
    weights: Integers
    steps: int
    lower: float
    span: float
    meaning: str

    @property
    def counts(self) -> bool:
        """Whether weights are 0 and 1, so that sums are counts."""
        return self.steps == 1


def weights_of(column: Categorical | Numeric, *, level: object, places: int) -> Weights:
    """Return the outcome as weights.

    Args:
        column: The outcome.
        level: For a categorical outcome, whose share is asked for; None takes the last of two levels, or the mean of
            levels that are numbers.
        places: How many strata and arms there are, which bounds how finely a number can be counted in each.

    Raises:
        InputError: If several levels are no numbers and none is chosen, or a level is chosen of a number.
    """
    if isinstance(column, Numeric):
        if level is not None:
            raise InputError(f"outcome {column.name!r} is a number; its mean is taken, so leave outcome_level out.")
        return _number(column, places)
    if level is None and len(column.levels) > 2:
        if column.kind != "integer":
            raise InputError(
                f"outcome {column.name!r} has {len(column.levels)} levels; say whose share is asked for, such as "
                f"outcome_level={column.levels[-1]!r} (on the command line: {column.name}={column.levels[-1]})."
            )
        values = np.array([float(number) for number in column.levels])
        return _scaled(column, values, float(values.min()), float(np.ptp(values)))
    chosen = usual_levels(column)[1] if level is None else level_of(column, level, "outcome_level")
    return Weights(
        column=column,
        weights=(np.arange(len(column.levels)) == chosen).astype(np.int64),
        steps=1,
        lower=0.0,
        span=1.0,
        meaning=f"the share of rows with {column.name} = {column.labels[chosen]}",
    )


def level_of(column: Categorical | Numeric, value: object, what: str) -> int:
    """Return the cell of a level, given as itself or as it is shown; for a number, of any value within its bounds."""
    labels = column.labels[: column.size - column.missing]
    if isinstance(column, Categorical) and value in column.levels:
        return column.levels.index(value)
    if str(value) in labels:
        return labels.index(str(value))
    if isinstance(column, Numeric):
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if column.bounds[0] <= number <= column.bounds[1]:
            return int(column.encode([number])[0])
    shown = ", ".join(labels[:6]) + (", …" if len(labels) > 6 else "")
    raise InputError(f"{what}: {column.name!r} has no level {str(value)[:60]!r}; it has {shown}.")


def usual_levels(column: Categorical | Numeric) -> tuple[int, int]:
    """Return the levels that people compare: the first and the last, or if these are called yes and no, no and yes.

    Of a number, the bins a quarter of the way in from either end: the outermost are often empty.
    """
    labels = column.labels[: column.size - column.missing]
    first, last = 0, len(labels) - 1
    if isinstance(column, Numeric) and len(labels) > 3:
        return len(labels) // 4, last - len(labels) // 4
    return (
        (last, first) if labels[last].lower() in _NEGATIVE and labels[first].lower() not in _NEGATIVE else (first, last)
    )


def _number(column: Numeric, places: int) -> Weights:
    lower, upper = column.bounds
    room = int((upper - lower) / (16 * math.ulp(max(abs(lower), abs(upper)))))  # floating point has no finer ones
    bins = min(_FINE, max(_ROOM // places, _COARSE), max(room, 1))
    whole = column.integer and lower.is_integer() and upper.is_integer() and upper - lower < bins
    if whole:  # bin j of these holds lower + j and no other whole number
        bins = int(upper - lower) + 1
    fine = replace(column, bins=bins, edges=None)
    values = lower + np.arange(bins, dtype=np.float64) if whole else fine.decode(np.arange(bins))
    return _scaled(fine, values, lower, upper - lower)


def _scaled(column: Categorical | Numeric, values: Floats, lower: float, span: float) -> Weights:
    steps = np.rint((values - lower) / span * STEPS).astype(np.int64)
    return Weights(
        column=column, weights=steps, steps=STEPS, lower=lower, span=span, meaning=f"the mean of {column.name}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustmentTable:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The table's schema.
        treatment: The column whose levels are the arms.
        outcome: The outcome as weights.
        adjustment: The columns whose cells are the strata.
        event: The release.
    """

    schema: Schema
    treatment: str
    outcome: Weights
    adjustment: tuple[str, ...]
    event: GaussianEvent | LaplaceEvent

    @classmethod
    def prepare(
        cls,
        schema: Schema,
        treatment: str,
        outcome: str,
        adjustment: tuple[str, ...],
        *,
        level: object,
        epsilon: float,
        delta: float,
        relation: Relation,
    ) -> AdjustmentTable:
        """Choose the noise: Laplace where δ is 0, else Gaussian.

        Raises:
            InputError: If the table would have too many cells.
        """
        strata, arms = math.prod(schema.shape(adjustment)), _arms(schema, treatment)
        weights = weights_of(schema[outcome], level=level, places=strata * (arms + 1))
        kinds = 2 if weights.counts else 3
        cells = strata * (arms * kinds + 1)
        if cells > _MOST_CELLS:
            raise InputError(
                f"the table of {treatment!r}, {outcome!r} and {', '.join(map(repr, adjustment))} would have {cells:,} "
                f"numbers, more than {_MOST_CELLS:,}; give these columns fewer levels or bins in the schema."
            )
        moved = count_sensitivity(
            1, relation=relation, unit=schema.unit, max_rows_per_person=schema.max_rows_per_person
        )
        event: GaussianEvent | LaplaceEvent
        if delta == 0:
            l1 = moved.l1 * (1 if weights.counts else STEPS * (1 + _SPREAD["laplace"] / 4))
            event = laplace_event(
                cells,
                sensitivity=l1,
                epsilon=epsilon,
                integers=True,
                relation=relation,
                unit=schema.unit,
                max_rows_per_person=schema.max_rows_per_person,
            )
        else:

            def at(noise: float) -> GaussianEvent:
                return gaussian_event(
                    cells,
                    l2_sensitivity=moved.l2 * weights.steps,
                    scale=noise * weights.steps,
                    changed_cells=moved.changed_cells if weights.counts else None,
                    integers=True,
                    relation=relation,
                    unit=schema.unit,
                    max_rows_per_person=schema.max_rows_per_person,
                )

            event = at(calibrate(at, epsilon=epsilon, delta=delta))
        return cls(schema=schema, treatment=treatment, outcome=weights, adjustment=adjustment, event=event)

    @property
    def strata(self) -> int:
        """How many strata there are."""
        return math.prod(self.schema.shape(self.adjustment))

    @property
    def arms(self) -> tuple[str, ...]:
        """The levels of the treatment, as they are shown."""
        return self.schema[self.treatment].labels[: _arms(self.schema, self.treatment)]

    @property
    def noise_variance(self) -> float:
        """The variance of the noise on each number, in rows."""
        if isinstance(self.event, GaussianEvent):
            return (self.event.scale / self.outcome.steps) ** 2
        step = 1 / self.event.scale  # of the discrete law: 2 e^-step / (1 - e^-step)²
        return 2 * math.exp(-step) / math.expm1(-step) ** 2 / self.outcome.steps**2

    def counted(self, table: PrivateTable) -> Integers:
        """Return the rows in each stratum, cell of the treatment and cell of the outcome: exact, so still private."""
        # The same table with the outcome in finer cells: the engine counts it like any other.
        fine = table.with_columns(self.outcome.column)
        counts = fine.counts((*self.adjustment, self.treatment, self.outcome.column.name))
        return counts.reshape(self.strata, -1, self.outcome.column.size)

    def summed(self, counts: Integers) -> Integers:
        """Return the numbers to release, in steps: for each stratum those of each arm, and missing rows last."""
        outcome, arms = self.outcome, len(self.arms)
        known = counts[:, :arms, : len(outcome.weights)]
        kept = [known @ outcome.weights, known @ (outcome.steps - outcome.weights)]
        if not outcome.counts:
            kept.append(known @ self._spread)
        rest = (counts.sum(axis=(1, 2)) - known.sum(axis=(1, 2))) * outcome.steps
        return np.column_stack([np.stack(kept, axis=2).reshape(self.strata, -1), rest])

    @property
    def _spread(self) -> Integers:
        """Return c w (1 - w) in steps, rounded down, for each cell of the outcome."""
        a = self.outcome.weights.astype(np.float64)
        scale = _SPREAD["gaussian" if isinstance(self.event, GaussianEvent) else "laplace"]
        return np.floor(scale * (a * (STEPS - a) / STEPS)).astype(np.int64)

    def measure(self, table: PrivateTable, *, account: Account, seed: Seed) -> Strata:
        """Count, release and return the numbers with their variances; charges ``account`` before noise is drawn."""
        return self.release(self.summed(self.counted(table)), account=account, seed=seed)

    def release(self, exact: Integers, *, account: Account | None, seed: Seed) -> Strata:
        """Return these numbers with noise."""
        release = as_planned(exact, self.event, account=account, seed=seed, purpose="adjustment table")
        return self._strata_of(np.asarray(release.value, dtype=np.float64) / self.outcome.steps)

    def _strata_of(self, noisy: Floats) -> Strata:
        """Return what was measured, in rows, with the variance of chance and noise together.

        Chance alone has variance A and B as in counts of a Poisson law, less what V says outcomes vary less; k rows of
        a person may all be alike, which makes it k times as large.
        """
        arms, noise = len(self.arms), self.noise_variance
        together = self.schema.max_rows_per_person or 1
        kinds = 2 if self.outcome.counts else 3
        parts = noisy[:, :-1].reshape(self.strata, arms, kinds)
        # One more than was seen: seeing none does not mean that there can be none.
        likely = np.maximum(parts[..., :2], 0.0) + 1.0
        covariance = np.zeros((self.strata, arms, 2, 2))
        covariance[..., 0, 0], covariance[..., 1, 1] = likely[..., 0] * together, likely[..., 1] * together
        if kinds == 3:
            scale = _SPREAD["gaussian" if isinstance(self.event, GaussianEvent) else "laplace"]
            rows = likely.sum(axis=-1)
            most = likely[..., 0] * likely[..., 1] / rows
            inner = np.clip((parts[..., 2] - math.sqrt(noise)) / scale, 0.0, 0.999 * most) * together
            covariance += inner[..., None, None] * np.array([[-1.0, 1.0], [1.0, -1.0]])
        covariance += noise * np.eye(2)
        rest = noisy[:, -1]
        possible = self.schema[self.treatment].missing or self.outcome.column.missing
        return Strata(
            measured=parts[..., :2],
            covariance=covariance,
            rest=rest if possible else np.zeros(self.strata),
            rest_variance=np.maximum(rest, 0.0) * together + noise if possible else np.zeros(self.strata),
        )


def _arms(schema: Schema, treatment: str) -> int:
    column = schema[treatment]
    return column.size - column.missing
