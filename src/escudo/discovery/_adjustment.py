r"""How much one column changes another: the table that is measured for it, its intervals, and what would refute it.

**The adjustment table** holds what is measured about each stratum and arm. A row lies in one stratum z (the cells of
the columns adjusted for) and one arm t (its treatment). Its outcome becomes a weight w in [0, 1]: one or zero where an
event is asked for, and where the outcome is a number its place between the schema's bounds. Released are, for each
stratum and arm,

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

**Intervals** come from noisy strata by profile likelihood, with sampling and privacy noise in one. In stratum z and arm
t the release gives :math:`X_{zt} ≈ (A, B)`: the outcome's share of the rows and the rest of them, so that :math:`N_{zt}
= A + B` is their number and :math:`m_{zt} = A / N_{zt}` their mean outcome in [0, 1]; and :math:`R_z`, the rows of the
stratum in neither arm. All of them carry known noise beside chance (counts are taken as Poisson: shares of them do not
depend on the total). The contrast τ solves

.. math:: g(τ) = \sum_z N_z \left( \sum_t s_t m_{zt} - τ \right) = 0, \qquad N_z = \sum_t N_{zt} + R_z,

with signs s of +1 for the treated arm and -1 for the control arm (one arm alone gives its mean). The interval holds all
τ for which some table with g(τ) = 0 and means within bounds lies within the critical distance of what was measured,

.. math:: D(τ) = \min_{g(τ) = 0} \sum_z D_z, \qquad D(τ) - \min D \le χ^2_1(\text{confidence}),

where D_z is the squared distance in units of the noise. Nothing is divided by a noisy count, so small strata do no harm
but widen the interval: where an arm is lost in the noise its mean may be anything in [0, 1], at little cost in D.
Numbers of rows may come out negative: forcing each of them up to zero would add rows that are not there, and these add
up. So do outcomes: where an event is rare and the noise makes A negative, a mean held at 0 adds about 0.4 standard
deviations of the noise in every such stratum, all to the same side. So the bounds of an arm that stands out from the
noise leave room for one standard deviation of A below 0, and of B above 1, which leaves 0.08 of them; the contrast
itself stays within what means in [0, 1] allow. What is left adds up over very many strata, and so do the means of lost
arms, which [0, 1] pulls to its middle: with hundreds of strata of a few dozen rows intervals hold less than they say.

**The estimate** takes arms that stand out as they are. One that is lost in the noise of its stratum gets what stratum
and arm say by themselves: the means of the others are fitted by a number for each stratum plus one for each arm, rows
as weights. The mean of the arm over all strata, in its place, would bring back what is adjusted for.

**Computation.** g is a sum over strata, so for a multiplier η each stratum is minimised by itself: closed forms in N
and R for given means, and in the means for given N and R. Whatever η is, this bounds D(τ) from below (weak duality), so
a multiplier that is not quite right makes an interval wider, never narrower.

**An unmeasured cause.** Let a cause that nobody measured raise the chance of the treatment, and that of the outcome, by
at most the factors a and b, given all that is adjusted for. It can move a risk ratio R by at most a b / (a + b - 1), so
it explains R away only if both reach the *E-value* :math:`R + \sqrt{R (R - 1)}` (of 1/R, if R is below 1). It is given
for the estimate and for the end of the interval that is nearest to no effect. A ratio r of the arms' means solves the
equation g(0) = 0 with signs (1, -r), so its interval is that of a contrast, noise and chance in one. For the mean of a
number, R is taken as :math:`e^{0.91 d}`, d the effect in standard deviations of the outcome; these come from A, B and
V, and for the end of the interval they are taken two standard errors larger than measured.

**Refuters** ask a question whose answer is known, with the same columns, strata and intervals.

* *Placebo*: the treatment is replaced by a coin, so the effect is 0.
* *Random cause*: a coin is adjusted for beside the rest, so the effect is what it was.

The coin of the r-th row of a cell (a stratum, a level of the treatment and a cell of the outcome) is a public function
of the cell and of r alone. Rows of one cell are alike, so it does not matter which of them is the r-th: this is a fair
coin for each row. A row more or less in a cell adds or takes away one coin and changes no other, so that the table with
coins moves by a row at one place for each row that comes or goes: its sensitivity is that of the table without them.
*Proof.* A cell of n rows gives the vector :math:`\sum_{r \le n} e_{coin(r)}`. For neighbours the cells' numbers of rows
differ by the rows that leave and come, and the vectors by as many unit vectors (times the row's own, which is the same
for all rows of a cell): not negative and of length at most 1 each, which is all that the proof above uses. ∎ Where
people share a voice between their rows (``_linked_effect``) what comes and goes are steps of 1/M of a voice, and every
M of them in a cell, in turn, share a coin: that is still a public function of the cell and of which step it is.

**Reference.** E. C. Fieller (1954), "Some problems in interval estimation", for ratios without division; S. A. Murphy,
A. W. van der Vaart (2000), "On profile likelihood", JASA 95, for the χ² limit; P. Ding, T. VanderWeele (2016),
"Sensitivity analysis without assumptions", Epidemiology 27, and T. VanderWeele, P. Ding (2017), "Sensitivity analysis
in observational research: introducing the E-value", Annals of Internal Medicine 167, for unmeasured causes; A. Sharma,
E. Kiciman (2020), "DoWhy: an end-to-end library for causal inference", for refuters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._treatment import EValue, Refuter, e_value
from escudo.errors import InputError
from escudo.mechanisms import Purse, gaussian_event, laplace_event
from escudo.privacy import Budget, GaussianEvent, LaplaceEvent, Neighbours, calibrate
from escudo.table import Categorical, CountSensitivity, Numeric, PrivateTable, Schema, count_sensitivity

Interval = tuple[float, float]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# ---- the adjustment table

STEPS = 2**16
"""Steps from weight 0 to weight 1, where the outcome is a number."""

_FINE, _COARSE = 4096, 64
_ROOM = 2**22
_MOST_CELLS = 2**20
_NEGATIVE = {"no", "false", "0", "n", "none", "never", "absent", "negative", "control", "placebo"}
_SPREAD = {"gaussian": 2.828, "laplace": 0.25}  # c; the first is a hair below √8


Coin = Literal["", "arm", "stratum"]
"""Where a row's coin goes: nowhere, in place of its arm, or beside its stratum."""

_COINS: dict[Refuter, Coin] = {"placebo": "arm", "random-cause": "stratum"}
REFUTERS: tuple[Refuter, ...] = tuple(_COINS)
REFUTER_SHARE = 0.2
"""What each refuter gets of the budget: of ε with Laplace noise, of ρ with Gaussian."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one row or person moves counts of rows.

    Attributes:
        moved: By so much, in steps.
        steps: How many steps of the counts make one row, or one person's voice.
    """

    moved: CountSensitivity
    steps: int = 1


@dataclass(frozen=True, slots=True)
class AdjustmentTable:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The table's schema.
        treatment: The column whose levels are the arms.
        outcome: The outcome as weights.
        adjustment: The columns whose cells are the strata.
        event: The release.
        coin: Where a row's coin goes, in the table of a refuter.
        voice: How many steps of the counts make one row, or one person's voice.
    """

    schema: Schema
    treatment: str
    outcome: OutcomeWeights
    adjustment: tuple[str, ...]
    event: GaussianEvent | LaplaceEvent
    coin: Coin = ""
    voice: int = 1

    @property
    def strata(self) -> int:
        """How many strata there are."""
        return math.prod(self.schema.shape(self.adjustment)) * (2 if self.coin == "stratum" else 1)

    @property
    def arms(self) -> tuple[str, ...]:
        """The levels of the treatment, as they are shown; of a coin, its sides."""
        if self.coin == "arm":
            return ("heads", "tails")
        return self.schema[self.treatment].labels[: _arms(self.schema, self.treatment)]

    @property
    def noise_variance(self) -> float:
        """The variance of the noise on each number, in rows."""
        if isinstance(self.event, GaussianEvent):
            return (self.event.scale / self._one) ** 2
        step = 1 / self.event.scale  # of the discrete law: 2 e^-step / (1 - e^-step)²
        return 2 * math.exp(-step) / math.expm1(-step) ** 2 / self._one**2

    @property
    def _one(self) -> int:
        """The steps that make one row of weight 1."""
        return self.outcome.steps * self.voice

    def count(self, table: PrivateTable) -> Integers:
        """Return the rows in each stratum, cell of the treatment and cell of the outcome: exact, so still private."""
        # The same table with the outcome in finer cells: the engine counts it like any other.
        fine = table.with_columns(self.outcome.column)
        counts = fine.counts((*self.adjustment, self.treatment, self.outcome.column.name))
        return counts.reshape(math.prod(self.schema.shape(self.adjustment)), -1, self.outcome.column.size)

    def sums(self, counts: Integers) -> Integers:
        """Return the numbers to release, in steps: for each stratum those of each arm, and missing rows last."""
        outcome, arms = self.outcome, len(self.arms)
        if self.coin == "arm":
            counts = np.moveaxis(with_coins(counts, salt=1, voice=self.voice).sum(axis=1), -1, 1)
        elif self.coin == "stratum":
            tossed = with_coins(counts, salt=2, voice=self.voice)
            counts = np.moveaxis(tossed, -1, 1).reshape(self.strata, *counts.shape[1:])
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

    def measure(self, table: PrivateTable, purse: Purse) -> Strata:
        """Count, release and return the numbers with their variances."""
        return self.release(self.sums(self.count(table)), purse)

    def release(self, exact: Integers, purse: Purse) -> Strata:
        """Return these numbers with noise."""
        noisy = purse.add(exact, self.event, purpose="adjustment table")
        return self._strata_of(np.asarray(noisy, dtype=np.float64) / self._one)

    def _strata_of(self, noisy: Floats) -> Strata:
        """Return what was measured, in rows, with the variance of chance and noise together.

        Chance alone has variance A and B as in counts of a Poisson law, less what V says outcomes vary less; k rows of
        a person may all be alike, which makes it k times as large.
        """
        arms, noise = len(self.arms), self.noise_variance
        spread, scale = np.zeros((self.strata, arms)), 1.0
        together = self.schema.max_rows_per_person or 1
        kinds = 2 if self.outcome.counts else 3
        parts = noisy[:, :-1].reshape(self.strata, arms, kinds)
        # One more than was seen: seeing none does not mean that there can be none.
        likely = np.maximum(parts[..., :2], 0.0) + 1.0
        covariance = np.zeros((self.strata, arms, 2, 2))
        covariance[..., 0, 0], covariance[..., 1, 1] = likely[..., 0] * together, likely[..., 1] * together
        if kinds == 3:
            scale = _SPREAD["gaussian" if isinstance(self.event, GaussianEvent) else "laplace"]
            spread = parts[..., 2] / scale
            rows = likely.sum(axis=-1)
            most = likely[..., 0] * likely[..., 1] / rows
            inner = np.clip((parts[..., 2] - math.sqrt(noise)) / scale, 0.0, 0.999 * most) * together
            covariance += inner[..., None, None] * np.array([[-1.0, 1.0], [1.0, -1.0]])
        covariance += noise * np.eye(2)
        rest = noisy[:, -1]
        gone = self.schema[self.treatment].missing and self.coin != "arm"
        possible = gone or self.outcome.column.missing
        return Strata(
            parts[..., :2],
            covariance,
            rest=rest if possible else np.zeros(self.strata),
            rest_variance=np.maximum(rest, 0.0) * together + noise if possible else np.zeros(self.strata),
            spread=spread,
            spread_variance=0.0 if kinds == 2 else noise / scale**2,
        )


def adjustment_tables(
    schema: Schema,
    treatment: str,
    outcome: str,
    adjustment: tuple[str, ...],
    neighbours: Neighbours,
    budget: Budget,
    level: object,
    refuters: Sequence[Refuter] = (),
    reach: Reach | None = None,
) -> tuple[AdjustmentTable, ...]:
    """Return the table of the effect and that of each refuter, with their noise: Laplace where δ is 0, else Gaussian.

    How far a row or person reaches is that of one table of counts, unless ``reach`` says otherwise.

    Raises:
        InputError: If a table would have too many cells.
    """
    strata, arms = math.prod(schema.shape(adjustment)), _arms(schema, treatment)
    weights = outcome_weights(schema[outcome], level, strata * (arms + 1))
    kinds = 2 if weights.counts else 3
    coins: list[Coin] = ["", *(_COINS[one] for one in refuters)]
    cells = {
        "": strata * (arms * kinds + 1),
        "arm": strata * (2 * kinds + 1),
        "stratum": strata * 2 * (arms * kinds + 1),
    }
    most = max(cells[coin] for coin in coins)
    if most > _MOST_CELLS:
        raise InputError(
            f"the table of {treatment!r}, {outcome!r} and {', '.join(map(repr, adjustment))} would have {most:,} "
            f"numbers, more than {_MOST_CELLS:,}; give these columns fewer levels or bins in the schema."
        )
    stated = neighbours.stated
    reach = reach or Reach(count_sensitivity(1, **stated))
    moved, one = reach.moved, weights.steps * reach.steps
    shares = [1 - REFUTER_SHARE * len(refuters), *(REFUTER_SHARE for _ in refuters)]
    events: Sequence[GaussianEvent | LaplaceEvent]
    if budget.delta == 0:
        l1 = moved.l1 * (1 if weights.counts else STEPS * (1 + _SPREAD["laplace"] / 4))
        events = [
            laplace_event(cells[coin], sensitivity=l1, epsilon=budget.epsilon * share, integers=True, **stated)
            for coin, share in zip(coins, shares, strict=True)
        ]
    else:

        def at(noise: float) -> list[GaussianEvent]:
            return [
                gaussian_event(
                    cells[coin],
                    l2_sensitivity=moved.l2 * weights.steps,
                    scale=noise * one / math.sqrt(share),
                    changed_cells=moved.changed_cells if weights.counts else None,
                    integers=True,
                    **stated,
                )
                for coin, share in zip(coins, shares, strict=True)
            ]

        events = at(calibrate(at, budget))
    return tuple(
        AdjustmentTable(schema, treatment, weights, adjustment, event, coin, reach.steps)
        for event, coin in zip(events, coins, strict=True)
    )


_ROWS_AT_ONCE = 2**22


def with_coins(counts: Integers, *, salt: int, voice: int = 1) -> Integers:
    """Return how many rows of each cell have a coin on either side: one axis more, of length 2.

    The coin of the r-th row of a cell is a public function of the cell and r, so a row more or less in a cell adds or
    takes away one coin and changes no other.

    Args:
        counts: How many rows each cell has, or steps of people's voices.
        salt: Which coins: other salts give others, independent of these.
        voice: How many of them, in turn, share a coin.
    """
    flat = counts.reshape(-1)
    tosses = -(-flat // voice)
    ends = np.cumsum(tosses)
    heads = np.zeros(flat.size, dtype=np.int64)
    for first in range(0, int(ends[-1]), _ROWS_AT_ONCE):
        toss = np.arange(first, min(first + _ROWS_AT_ONCE, int(ends[-1])))
        cell = np.searchsorted(ends, toss, side="right")
        rank = toss - (ends - tosses)[cell]
        bits = _mixed(_mixed(cell.astype(np.uint64), salt) + rank.astype(np.uint64) * np.uint64(_ODD), salt)
        rows = np.minimum(flat[cell] - rank * voice, voice)  # the last coin of a cell may have fewer
        np.add.at(heads, cell, rows * (bits >> np.uint64(63)).astype(np.int64))
    return np.stack([heads, flat - heads], axis=-1).reshape(*counts.shape, 2)


_ODD = 0x9E3779B97F4A7C15


def _mixed(numbers: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """Return the numbers with their bits mixed (G. Steele, D. Lea, C. Flood, "Fast splittable generators", 2014)."""
    found = numbers + np.uint64(_ODD * (salt + 1) % 2**64)  # modulo 2⁶⁴, like the products below
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


def _arms(schema: Schema, treatment: str) -> int:
    column = schema[treatment]
    return column.size - column.missing


@dataclass(frozen=True, slots=True)
class OutcomeWeights:
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


def outcome_weights(column: Categorical | Numeric, level: object, places: int) -> OutcomeWeights:
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
        return _number_weights(column, places)
    if level is None and len(column.levels) > 2:
        if column.kind != "integer":
            raise InputError(
                f"outcome {column.name!r} has {len(column.levels)} levels; say whose share is asked for, such as "
                f"outcome_level={column.levels[-1]!r} (on the command line: {column.name}={column.levels[-1]})."
            )
        values = np.array([float(number) for number in column.levels])
        return _scaled_weights(column, values, float(values.min()), float(np.ptp(values)))
    chosen = usual_levels(column)[1] if level is None else level_of(column, level, "outcome_level")
    counted = (np.arange(len(column.levels)) == chosen).astype(np.int64)
    meaning = f"the share of rows with {column.name} = {column.labels[chosen]}"
    return OutcomeWeights(column, counted, 1, 0.0, 1.0, meaning)


def level_of(column: Categorical | Numeric, value: object, what: str) -> int:
    """Return the cell of a level, given as itself or as shown; for a number or day, of any value within its bounds."""
    labels = column.labels[: column.size - column.missing]
    if isinstance(column, Categorical) and value in column.levels:
        return column.levels.index(value)
    if str(value) in labels:
        return labels.index(str(value))
    if isinstance(column, Numeric):
        try:
            number = float(str(value)) if column.date is None else column.day(value)
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


def _number_weights(column: Numeric, places: int) -> OutcomeWeights:
    lower, upper = column.bounds
    room = int((upper - lower) / (16 * math.ulp(max(abs(lower), abs(upper)))))  # floating point has no finer ones
    bins = min(_FINE, max(_ROOM // places, _COARSE), max(room, 1))
    whole = column.integer and lower.is_integer() and upper.is_integer() and upper - lower < bins
    if whole:  # bin j of these holds lower + j and no other whole number
        bins = int(upper - lower) + 1
    fine = replace(column, bins=bins, edges=None, private=False)
    values = lower + np.arange(bins, dtype=np.float64) if whole else fine.decode(np.arange(bins))
    return _scaled_weights(fine, values, lower, upper - lower)


def _scaled_weights(column: Categorical | Numeric, values: Floats, lower: float, span: float) -> OutcomeWeights:
    steps = np.rint((values - lower) / span * STEPS).astype(np.int64)
    return OutcomeWeights(column, steps, STEPS, lower, span, f"the mean of {column.name}")


# ---- intervals

_CLEAR = 6.0  # an arm this many standard deviations away from no rows has one optimum, near its own mean
_SEEN = 2.0  # and this many stand out
_ROOM_BELOW = 1.0  # standard deviations of A below none, and of B, that an arm which stands out may have
_FITS = 20  # of strata and arms in turn
_STARTS = (0.0, 0.5, 1.0)
_TINY = 1e-300
_NEXT_TO_NOTHING = 1e-12


@dataclass(frozen=True, slots=True)
class Strata:
    """What was measured about two groups of rows in each stratum, with its variances.

    Attributes:
        measured: The outcome's share and the rest, shape (strata, arms, 2).
        covariance: Of both, shape (strata, arms, 2, 2), sampling and noise together.
        rest: Rows in no arm, shape (strata,).
        rest_variance: Of these, shape (strata,); zeros where there is nothing to measure.
        spread: The sum of w (1 - w), shape (strata, arms): zeros where an event is counted.
        spread_variance: Of the noise in each of these.
        fitted: Means of arms where some were taken out of a larger table; None for what this one says itself.
    """

    measured: Floats
    covariance: Floats
    _: KW_ONLY
    rest: Floats
    rest_variance: Floats
    spread: Floats
    spread_variance: float = 0.0
    fitted: Floats | None = None

    @property
    def rows(self) -> Floats:
        """Rows by stratum and arm, noisy."""
        found: Floats = self.measured.sum(axis=2)
        return found

    @property
    def rows_deviation(self) -> Floats:
        """Standard deviations of ``rows``."""
        found: Floats = np.sqrt(self.covariance.sum(axis=(2, 3)))
        return found

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether each arm stands out from the noise in each stratum."""
        found: NDArray[np.bool_] = self.rows > _SEEN * self.rows_deviation
        return found

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Between which numbers the mean of each arm may lie in each stratum."""
        rows = np.where(self.seen, self.rows, np.inf)
        below, above = (_ROOM_BELOW * np.sqrt(self.covariance[..., place, place]) / rows for place in (0, 1))
        return -below, 1 + above

    @property
    def means(self) -> Floats:
        """The mean of each arm in each stratum; of one lost in the noise, by stratum and arm."""
        if self.fitted is not None:
            return self.fitted
        seen = self.seen
        weights = np.where(seen, self.rows, 0.0)
        low, high = self.bounds
        found = np.clip(self.measured[..., 0] / np.where(seen, self.rows, 1.0), low, high)
        if seen.all() or not seen.any():
            return found if seen.all() else np.broadcast_to(_share(self.measured.sum(axis=0)), found.shape)
        of_arm = np.zeros(found.shape[1])
        usual = np.average(found, weights=weights)
        for _ in range(_FITS):
            of_stratum = _weighted(found - of_arm, weights, 1, usual)
            of_arm = _weighted(found - of_stratum[:, None], weights, 0, 0.0)
        return np.where(seen, found, np.clip(of_stratum[:, None] + of_arm, 0.0, 1.0))

    def only(self, arms: list[int]) -> Strata:
        """Return the strata with these arms, in this order; the rows of the others join the rest."""
        others = [arm for arm in range(self.measured.shape[1]) if arm not in arms]
        return Strata(
            measured=self.measured[:, arms],
            covariance=self.covariance[:, arms],
            rest=self.rest + self.rows[:, others].sum(axis=1),
            rest_variance=self.rest_variance + self.covariance[:, others].sum(axis=(1, 2, 3)),
            spread=self.spread[:, arms],
            spread_variance=self.spread_variance,
            fitted=self.means[:, arms],
        )


def _weighted(values: Floats, weights: Floats, axis: int, otherwise: float) -> Floats:
    """Return weighted means, and another number where all weights are zero."""
    total = weights.sum(axis)
    found: Floats = np.where(total > 0, (values * weights).sum(axis) / np.where(total > 0, total, 1.0), otherwise)
    return found


def contrast_value(strata: Strata, signs: Floats) -> float:
    """Return the adjusted contrast itself, within what means in [0, 1] allow.

    Strata count by their measured rows.
    """
    weights = strata.rows.sum(axis=1) + strata.rest
    total = float(weights.sum())
    shares = weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
    least, most = float(signs[signs < 0].sum()), float(signs[signs > 0].sum())
    return float(np.clip(shares @ (strata.means @ signs), least, most))


def contrast_interval(strata: Strata, signs: Floats, critical: float) -> tuple[float, float]:
    """Return the ends of the interval of the contrast, within what means in [0, 1] allow.

    Args:
        strata: What was measured, with as many arms as there are signs.
        signs: +1 for the arm whose mean is added, -1 for that which is taken off.
        critical: The largest distance D(τ) - min D.
    """
    profile = _Profile(strata, signs)
    middle = contrast_value(strata, signs)
    step = max(math.sqrt(critical) * profile.deviation(), 1e-9)
    least, most = float(signs[signs < 0].sum()), float(signs[signs > 0].sum())
    return (
        _end(profile, critical, middle, -step, least),
        _end(profile, critical, middle, step, most),
    )


def holds(strata: Strata, signs: Floats, contrast: float, *, critical: float) -> bool:
    """Return whether a contrast lies in the interval, without looking for the ends."""
    return _Profile(strata, signs).distance(contrast) <= critical


def _end(profile: _Profile, critical: float, middle: float, step: float, limit: float) -> float:
    """Return where D - min D crosses the critical value on one side of the middle, erring outwards."""

    def excess(at: float) -> float:
        return profile.distance(at) - critical

    def beyond(at: float) -> bool:
        return at >= limit if step > 0 else at <= limit

    if not profile.clear and excess(limit) <= 0:
        return limit
    inside, low = middle, -critical
    outside = middle + step
    while not beyond(outside) and (high := excess(outside)) <= 0:
        inside, low = outside, high
        step *= 1.6
        outside = inside + step
    if beyond(outside):
        outside = limit
        if (high := excess(limit)) <= 0:
            return limit
    for turn in range(40):
        if abs(outside - inside) <= 0.01 * abs(outside - middle):
            break
        # The square root of D is nearly straight where strata are clear, so the secant goes there; where D is flat and
        # then steep, halving does.
        a, b = math.sqrt(max(low + critical, 0.0)), math.sqrt(high + critical)
        straight = min(max((math.sqrt(critical) - a) / max(b - a, 1e-12) * 1.004, 0.05), 0.95)
        at = inside + (straight if turn % 3 < 2 else 0.5) * (outside - inside)
        found = excess(at)
        if found <= 0:
            inside, low = at, found
        else:
            outside, high = at, found
    return outside


class _Profile:
    """The least distance to tables with a given contrast."""

    def __init__(self, strata: Strata, signs: Floats):
        self._strata, self._signs = strata, signs
        clear: NDArray[np.bool_] = np.all(strata.rows > _CLEAR * strata.rows_deviation, axis=1)
        self.clear = bool(clear.all())
        arms = len(signs)
        own = _share(strata.measured)
        starts = np.array(np.meshgrid(*[_STARTS] * arms)).reshape(arms, -1).T
        self._parts = [_Part(strata, signs, clear, own[clear][None])] if clear.any() else []
        if not clear.all():
            vague = own[~clear]
            tried = np.broadcast_to(starts[:, None, :], (len(starts), *vague.shape))
            self._parts.append(_Part(strata, signs, np.logical_not(clear), np.concatenate([vague[None], tried])))
        self._least = sum(part.minimum(0.0, 0.0)[0] for part in self._parts)
        self._multiplier = 0.0

    def deviation(self) -> float:
        """Return about the standard deviation of the contrast, by its derivative in every measured number."""
        strata, signs = self._strata, self._signs
        means, rows = _share(strata.measured), np.maximum(strata.rows, strata.rows_deviation)
        weights = np.maximum(rows.sum(axis=1) + strata.rest, 1.0)
        total = weights.sum()
        off = means @ signs - contrast_value(strata, signs)
        slopes = np.stack([1 - means, -means], axis=2) * (signs * weights[:, None] / rows)[:, :, None]
        slopes += off[:, None, None]
        variance = np.einsum("zti,ztij,ztj->", slopes, strata.covariance, slopes) + off**2 @ strata.rest_variance
        return float(math.sqrt(max(variance, 0.0)) / total)

    def distance(self, contrast: float) -> float:
        """Return a lower bound on D(τ) - min D, exact where strata are clear."""

        def at(multiplier: float) -> tuple[float, float]:
            found = [part.minimum(multiplier, contrast) for part in self._parts]
            return sum(value for value, _ in found), sum(slope for _, slope in found)

        best, slope = at(0.0)
        if slope == 0:
            return best - self._least
        towards = math.copysign(1.0, slope)
        last = abs(self._multiplier)  # where D was flat it says nothing of how far to go
        reach = last if last > _NEXT_TO_NOTHING else self._first(slope)
        low, low_slope, high, high_slope = 0.0, slope, 0.0, slope
        for _ in range(80):
            high = towards * reach
            value, high_slope = at(high)
            best = max(best, value)
            if high_slope * towards <= 0:
                break
            low, low_slope = high, high_slope
            reach *= 2.0
        for _ in range(12):
            if high_slope == low_slope:
                break
            # The slope is nearly straight; kept away from the ends of the bracket, the secant cannot stall.
            share = min(max(low_slope / (low_slope - high_slope), 0.05), 0.95)
            middle = low + share * (high - low)
            value, between = at(middle)
            settled = value - best <= 2e-3 and abs(between) <= 0.02 * abs(slope)
            best = max(best, value)
            if between * towards > 0:
                low, low_slope = middle, between
            else:
                high, high_slope = middle, between
            if settled:
                break
        self._multiplier = (low + high) / 2
        return best - self._least

    def _first(self, slope: float) -> float:
        weights = self._strata.rows.sum(axis=1) + self._strata.rest
        total = max(float(weights.sum()), 1.0)
        return max(abs(slope) / max((total * self.deviation()) ** 2, 1.0), _NEXT_TO_NOTHING)


class _Part:
    """Some of the strata, minimised together from several starting means each."""

    def __init__(self, strata: Strata, signs: Floats, kept: NDArray[np.bool_], starts: Floats):
        self._signs, self._starts = signs, starts
        self._x = strata.measured[kept]
        self._low, self._high = (ends[kept] for ends in strata.bounds)
        self._rest, self._rest_variance = strata.rest[kept], strata.rest_variance[kept]
        weight = np.linalg.inv(strata.covariance[kept])
        self._wx = np.einsum("ztij,ztj->zti", weight, self._x)
        self._xwx = np.einsum("zti,zti->zt", self._x, self._wx)
        self._aa, self._ab, self._bb = weight[:, :, 0, 0], weight[:, :, 0, 1], weight[:, :, 1, 1]
        self._across = self._aa - 2 * self._ab + self._bb  # the curvature along (1, -1)
        self._rounds = 3 if len(starts) == 1 else 6

    def minimum(self, multiplier: float, contrast: float) -> tuple[float, float]:
        """Return the least Σ (D_z + 2 η g_z), and Σ g_z there: half the derivative in η."""
        means = self._starts
        for _ in range(self._rounds):
            value, gap, rows, weights = self._given(means, multiplier, contrast)
            # With x = N (0, 1) + N m (1, -1), the objective is a parabola in m.
            wy = self._wx[:, :, 0] - self._wx[:, :, 1] - rows * (self._ab - self._bb)
            top = rows * wy - multiplier * weights[..., None] * self._signs
            under = rows * rows * self._across
            best = np.where(under > _TINY, top / np.maximum(under, _TINY), np.sign(top))
            means = np.clip(best, self._low, self._high)
        value, gap, rows, weights = self._given(means, multiplier, contrast)
        if len(value) > 1:
            chosen = np.argmin(value, axis=0)[None]
            value = np.take_along_axis(value, chosen, axis=0)
            gap = np.take_along_axis(gap * weights, chosen, axis=0)
            return float(value.sum()), float(gap.sum())
        return float(value.sum()), float((gap * weights).sum())

    def _given(self, means: Floats, multiplier: float, contrast: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the objective with the best N and R for these means, m₁ - m₀ - τ, and those N and N_z."""
        gap = means @ self._signs - contrast
        other = 1 - means
        square = means * means * self._aa + 2 * means * other * self._ab + other * other * self._bb
        inner = means * self._wx[:, :, 0] + other * self._wx[:, :, 1] - (multiplier * gap)[..., None]
        rows = inner / square
        pull = multiplier * gap
        value = (self._xwx - inner * rows).sum(axis=-1) + 2 * pull * self._rest - pull * pull * self._rest_variance
        weights = rows.sum(axis=-1) + self._rest - pull * self._rest_variance
        return value, gap, rows, weights


def _share(measured: Floats) -> Floats:
    """Return the outcome's share, brought into [0, 1]; one half where there are no rows."""
    rows = measured.sum(axis=-1)
    safe = np.where(rows > 0, rows, 1.0)
    found: Floats = np.where(rows > 0, np.clip(measured[..., 0] / safe, 0.0, 1.0), 0.5)
    return found


# ---- an unmeasured cause

_PER_DEVIATION = 0.91  # the logarithm of a risk ratio for one standard deviation of the outcome
_LARGEST = 20.0  # the largest such logarithm that is told


def e_value_of_shares(strata: Strata, shares: tuple[float, float], *, critical: float, sign_known: bool) -> EValue:
    """Return the E-value of two shares.

    Args:
        strata: What was measured about control and treated.
        shares: Their shares under do(); brought half a row away from none.
        critical: As for the interval.
        sign_known: Whether the interval of their difference leaves out 0, and so that of their ratio 1.
    """
    least = 0.5 / max(float(strata.rows.sum()), 1.0)
    control, treated = (max(share, least) for share in shares)
    ratio = treated / control
    if not sign_known or ratio == 1:
        return EValue(estimate=e_value(ratio), limit=1.0)

    def excess(log_ratio: float) -> float:
        signs = np.array([-math.exp(log_ratio), 1.0])
        return math.sqrt(max(_Profile(strata, signs).distance(0.0), 0.0)) - math.sqrt(critical)

    outside, inside = 0.0, math.log(ratio)
    high, low = max(excess(outside), 1e-9), -math.sqrt(critical)
    for turn in range(16):
        if abs(inside - outside) <= 0.01 * abs(inside):
            break
        at = outside + (0.5 if turn % 3 == 2 else min(max(high / (high - low), 0.05), 0.95)) * (inside - outside)
        found = excess(at)
        if found > 0:
            outside, high = at, found
        else:
            inside, low = at, found
    return EValue(estimate=e_value(ratio), limit=e_value(math.exp(outside)))


def e_value_of_means(strata: Strata, difference: float, nearest: float) -> EValue:
    """Return the E-value of a difference between means, by their distance in standard deviations.

    Args:
        strata: What was measured about control and treated.
        difference: Between the means of weights.
        nearest: The end of its interval that is nearest to 0; 0 if the interval holds 0.
    """
    rows = max(float(strata.rows.sum()), 1.0)
    mean = min(max(float(strata.measured[..., 0].sum()) / rows, 0.0), 1.0)
    varied = min(max(mean * (1 - mean) - max(float(strata.spread.sum()), 0.0) / rows, 0.0), 0.25)
    error = math.sqrt(strata.spread.size * strata.spread_variance + float(strata.covariance.sum())) / rows
    largest = math.sqrt(min(varied + 2 * error, 0.25))
    usual = min(max(math.sqrt(varied), math.sqrt(error)), largest)
    return EValue(
        estimate=e_value(math.exp(min(_PER_DEVIATION * abs(difference) / usual, _LARGEST))),
        limit=e_value(math.exp(min(_PER_DEVIATION * abs(nearest) / largest, _LARGEST))),
    )
