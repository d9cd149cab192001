r"""The gap method: one noisy number, score(y->x) - score(x->y), with noise as small as the proofs allow.

For an additive noise model y = f(x) + noise, the residual of y is independent of x, and that of x not of y. A score
measures dependence; lower is better; the gap is above 0 where x->y fits better. Only the gap is released, because two
noisy scores at the same total ε err more often (``escudo.mechanisms.gap_sign`` has the proof).

| score | sensitivity of one score | where proved |
|---|---|---|
| ``sqrt_hsic`` (default) | √6/m | ``_scores.py`` |
| ``hsic`` | 2.0556/m + 4/m² | ``_scores.py`` |
| ``spearman``, ``kendall`` | 6/(m+1), 4/m | ``_scores.py`` |
| ``iqr`` | none; quartiles by the exponential mechanism | ``escudo.mechanisms.quantiles`` |

The gap moves by at most twice as much. Everything else is fixed beforehand: the bounds of the schema, widths, degrees.

**Whose privacy.** The regressions are fitted on records, too. There are two ways, and both protect the *whole* table:

* ``train=records``: public records of the same two columns fit the regressions; every private row is scored.
* otherwise the table is cut in two by row number. One half becomes a histogram of 8 × 8 cells with Laplace noise of
  scale 2/ε, and both regressions are computed from it alone; the other half gives the gap, with noise for ε. One
  record lies in one half, so the two do not add up: if M₁(train) is ε-private and M₂(test, o) is ε-private for
  every o, then for neighbours that differ in the training half the second factor is the same, and conversely. ∎
  (``ParallelEvent``)

``stability`` is the posterior probability that the private gap has the released sign, if all possible gaps
were equally likely beforehand (below). For ``iqr`` it supposes bell-shaped columns.

**How likely noisy scores name the right direction**: the paper's Theorems 2 and 4 in closed form. γ is the private
margin, score(wrong) - score(right); every released number carries Laplace noise of scale σ of its own.

* Two numbers (Theorem 2): the difference of two Laplace variables has the tail (γ + 2σ)/(4σ) e^{-γ/σ}.
* Four numbers (Theorem 4): with z = γ/σ the sum of four has the tail e^{-z}(48 + 33z + 9z² + z³)/96. The paper's
  γ = Q_y + Q_{r_X} - Q_x + Q_{r_Y} lacks brackets: it is (Q_y + Q_{r_X}) - (Q_x + Q_{r_Y}).
* One number (the gap): ½ e^{-γ/σ}.

For γ < 0 the noise has to help: the probability is the tail itself at \|γ\|.

**After the release** γ is not known, but the noisy margin v is, and so is the largest size G that γ can have. If all
margins in [-G, G] were equally likely beforehand, the probability that γ has the sign of v is, with the distribution
function F of the noise,

.. math:: \frac{F(|v|) - F(|v| - G)}{F(|v| + G) - F(|v| - G)},

which stays near 1/2 where the noise is larger than any margin, however large v is.

A :class:`Wording` makes an answer of a released margin, here and for ``paper``.

Reference: M. Kusner et al. (2016), "Private Causal Inference", Theorems 2 and 4; design note "sensitivities",
Propositions 4, 7, 8, 12 and 14.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import finite, one_of, positive, whole
from escudo.errors import InputError, RefusedError
from escudo.mechanisms import Purse, choose_quantiles, gap_event, laplace_event, quantile_counts, quantile_event
from escudo.orientation._direction import (
    CANNOT_TELL,
    Direction,
    DirectionQuestion,
    arrow,
    check_options,
    check_rows,
    slices,
)
from escudo.orientation._regression import (
    Pair,
    fit_histogram,
    fit_polynomial,
    half_of,
    halves,
    pair_of,
    public_pair,
    residual_of,
)
from escudo.orientation._scores import DEPENDENCE, Floats, dependence
from escudo.privacy import Budget, Event, LaplaceEvent, Neighbours, ParallelEvent, Plan, RepeatedEvent
from escudo.table import PrivateTable, Schema

SCORES = (*DEPENDENCE, "iqr")
"""Every dependence score, the default first."""

WIDTH = 0.15
"""Width of the kernels on [-1, 1]: the sensitivity does not depend on it, and small widths see more."""

LEAST_SKETCH = 800
"""Least ε times training rows for which the histogram's regressions can be trusted: below, a poor fit does not make a
coin but a systematic error, private and confidently wrong (``experiments/simulated_directions.py``)."""

_NARROWEST = 0.02
_CELLS = 8
_FINENESS = 2.0**-11  # grid step, as a part of the sensitivity: rounding costs 0.1 %, and float errors stay far below
_TYPICAL = 0.08  # a clear gap of √HSIC, from simulated pairs
_BOUNDS = (1.0, 2.0, 1.0, 2.0)  # of x, the residual of y, y and the residual of x
_LEAST = 1e-3  # interquartile ranges below this count as this
Regression = Callable[[Floats], Floats]
PairWork = Callable[[Pair], NDArray[Any]]


def prepare(asked: DirectionQuestion, schema: Schema, neighbours: Neighbours, budget: Budget) -> GapPrepared:
    """Choose what the gap method will release, from public facts alone.

    The relation must be ``"replace_one"`` and the unit ``"row"``; a δ is not needed. Scores: one of ``SCORES``.

    Options:
        train: Public records to fit the regressions on.
        abstain: In noise scales; 1.6 by default.
        shuffle: Public seed of the split.
        width: Of the kernels, on [-1, 1].

    Raises:
        InputError: If an argument is out of range.
        RefusedError: If the relation or unit is not covered.

    **Guarantee.** ε-differentially private for the whole table, replace one row: see the module's docstring.
    """
    count = public_count("gap", neighbours)
    chosen = check_options("gap", asked.options, {"train": None, "abstain": ABSTAIN, "shuffle": 0, "width": WIDTH})
    named = one_of("score", SCORES[0] if asked.score == "committee" else asked.score, SCORES)
    if chosen["train"] is not None:
        covers = f"Covers all {count:,} private rows; the regressions come from records stated to be public."
    else:
        fitted, tested = halves(count)
        covers = (
            f"Covers all {count:,} rows: {fitted:,} behind a noisy histogram, {tested:,} behind the noisy gap; "
            "nobody is in both."
        )
    return GapPrepared(
        schema,
        Wording(asked, named, positive("abstain", chosen["abstain"], allow_zero=True), (covers,)),
        budget.epsilon,
        rows=count,
        train=None if chosen["train"] is None else public_pair(schema, asked, "train"),
        shuffle=whole("shuffle", chosen["shuffle"]),
        width=check_width(chosen["width"]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class GapPrepared:
    """The gap method with everything chosen from public facts; see the module's docstring.

    Attributes:
        schema: The columns of the table.
        wording: How a released margin is told.
        epsilon: What the answer may cost.
        rows: The public number of rows.
        train: Public training records, or None to split the table.
        shuffle: Public seed of the split.
        width: Width of the kernels.
    """

    schema: Schema
    wording: Wording
    epsilon: float
    _: KW_ONLY
    rows: int
    train: Pair | None
    shuffle: int
    width: float

    @property
    def tested(self) -> int:
        """How many of the private rows are scored."""
        return halves(self.rows)[1] if self.train is None else self.rows

    @property
    def plan(self) -> Plan:
        """All that ``run`` will spend; free where no gap would stand out."""
        score, split, tested = self.wording.score, self.train is None, self.tested
        name = f"direction (gap of {score})"
        if split and self.epsilon * (tested - 1) < LEAST_SKETCH:
            return Plan(name, buys="nothing: too few rows to fit regressions privately")
        if score == "iqr":
            if tested < 8:
                return Plan(name, buys="nothing: too few rows")
            gap: Event = RepeatedEvent(event=quantile_event(count=2, epsilon=self.epsilon / 4), count=4)
        else:
            if tested < 2 or gap_sensitivity(score, tested) / self.epsilon > LARGEST_GAP[score]:
                return Plan(name, buys="nothing: the noise would be larger than any gap")
            gap = self._gap_event(tested)
        if not split:
            return Plan(name, gap, buys=f"the gap over all {tested:,} rows; regressions from public records")
        return Plan(
            name,
            ParallelEvent(events=(_sketch_event(self.epsilon), gap), by="position"),
            buys="a noisy histogram of one half for the regressions, the gap over the other half",
        )

    def _gap_event(self, tested: int) -> LaplaceEvent:
        size = gap_sensitivity(self.wording.score, tested)
        power = math.frexp(size * _FINENESS)[1] - 1
        return gap_event(sensitivity=size, epsilon=self.epsilon, grid=math.ldexp(1.0, power))

    def _needs(self) -> str:
        """Return about how many rows would do, for a gap of the usual size."""
        score, epsilon = self.wording.score, self.epsilon
        if self.train is None:
            needed = f"N = {math.ceil(2 * LEAST_SKETCH / epsilon):,} rows"
            return (
                f"At ε = {epsilon:g} the regressions would be mostly noise and could point the wrong way; method 'gap' "
                f"needs about {needed}, or public train records. Method 'votes' needs fewer. Nothing was spent."
            )
        rows = 2
        gap = _TYPICAL if score == "sqrt_hsic" else LARGEST_GAP.get(score, 1.0) / 5
        while score in LARGEST_GAP and gap_sensitivity(score, rows) / epsilon * math.log(10) > gap:
            rows *= 2
        noise = f"At ε = {epsilon:g} the noise is larger than any gap here"
        return f"{noise}; it needs about N = {max(rows, 16):,} rows. Nothing was spent."

    def run(self, table: PrivateTable, purse: Purse) -> Direction:
        """Read the pairs and answer.

        Raises:
            InputError: If the table has another number of rows than was stated.
        """
        asked, event = self.wording, self.plan.event
        if event is None:
            return asked.no_answer(purse, self._needs())
        with asked.pairs(table, self.rows, once=self.train is not None) as found:
            paid = purse.within(event, purpose="direction (gap)")
            if self.train is not None:
                x, y = self.train
                tested = Tested(fit_polynomial(x, y), fit_polynomial(y, x))
            else:
                cells = found(partial(half_counts, shuffle=self.shuffle))
                tested = Tested(*_regressions(cells, paid, epsilon=self.epsilon), shuffle=self.shuffle)
            if asked.score == "iqr":
                return self._by_quartiles(found(tested.quartile_counts), paid)
            gap = found(partial(tested.gap, score=asked.score, width=self.width))
        law = self._gap_event(self.tested)
        margin = float(paid.add(float(gap), law))
        released = Margin(
            margin,
            noise_scale=law.scale,
            certainty=certainty(margin, law.scale, largest=LARGEST_GAP[asked.score]),
            scores={"gap": margin},
            scores_mean=(
                f"gap: dependence left in the wrong direction minus that left in the right one, if {asked.x} is the "
                f"cause ({asked.score} of {asked.y}->{asked.x} minus that of {asked.x}->{asked.y}), with noise"
            ),
        )
        return asked.answer(released, purse)

    def _by_quartiles(self, counts: NDArray[np.int64], purse: Purse) -> Direction:
        asked = self.wording
        names = asked.x, f"residual of {asked.y}", asked.y, f"residual of {asked.x}"
        logs = {}
        event = quantile_event(count=2, epsilon=self.epsilon / 4)
        for name, counted, bound in zip(names, counts, _BOUNDS, strict=True):
            low, high = choose_quantiles(counted, [0.25, 0.75], event, purse, lower=-bound, upper=bound)
            logs[f"log IQR of {name}"] = math.log(max(float(high - low), _LEAST))
        one, two, three, four = logs.values()
        margin = (three + four) - (one + two)
        # A quartile errs by about 16/ε ranks; at a normal density of 0.43/IQR per rank that is this part of the IQR.
        each = 16 / self.epsilon / (0.43 * self.tested)
        spread = math.sqrt(8) * each
        released = Margin(
            margin,
            noise_scale=spread,
            certainty=0.5 * (1 + math.erf(abs(margin) / (2 * spread))),
            scores={**logs, "gap": margin},
            scores_mean=(
                f"log interquartile ranges by the exponential mechanism; the gap adds {asked.y} and the residual of "
                f"{asked.x}, and takes off {asked.x} and the residual of {asked.y}"
            ),
            notes=("How sure the sign is supposes bell-shaped columns: quartiles have no closed form.",),
        )
        return asked.answer(released, purse)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tested:
    """What is found of the pairs that are scored, where they are, which may be on a worker: private.

    Attributes:
        f: Predicts y from x.
        g: Predicts x from y.
        shuffle: Public seed of the split; None where all pairs are scored.
    """

    f: Regression
    g: Regression
    shuffle: int | None = None

    def gap(self, pair: Pair, *, score: str, width: float) -> NDArray[np.float64]:
        """Return the gap of a score."""
        return np.array(gap_of(score, self._part(pair), self.f, self.g, width=width))

    def quartile_counts(self, pair: Pair) -> NDArray[np.int64]:
        """Return the counts that quartiles are found by: of x, the residual of y, y and the residual of x."""
        x, y = part = self._part(pair)
        values = x, residual_of(y, x, self.f), y, residual_of(*part, self.g)
        counted = (quantile_counts(one, lower=-bound, upper=bound) for one, bound in zip(values, _BOUNDS, strict=True))
        return np.stack(list(counted))

    def _part(self, pair: Pair) -> Pair:
        return pair if self.shuffle is None else half_of(pair, "test", shuffle=self.shuffle)


# ---- scores and regressions


def _sketch_event(epsilon: float) -> LaplaceEvent:
    return laplace_event(_CELLS**2, sensitivity=2, epsilon=epsilon, integers=True)


def gap_sensitivity(score: str, m: int) -> float:
    """Return how far the gap of two scores over ``m`` pairs can move when one pair is replaced: twice one score."""
    return 2 * DEPENDENCE[score].sensitivity(m)


def gap_of(score: str, pair: Pair, f: Regression, g: Regression, *, width: float = WIDTH) -> float:
    """Return score(y->x) - score(x->y) without noise: private.

    Args:
        score: One of ``SCORES`` but ``"iqr"``.
        pair: The pairs, on [-1, 1].
        f: Predicts y from x.
        g: Predicts x from y.
        width: Width of the kernels, for the scores that have one.
    """
    measure = dependence(score, width)
    return measure(pair.y, residual_of(pair.x, pair.y, g)) - measure(pair.x, residual_of(pair.y, pair.x, f))


def noisy_regressions(half: Pair, purse: Purse, *, epsilon: float) -> tuple[Regression, Regression]:
    """Return regressions of y on x and x on y from one noisy histogram.

    **Guarantee.** ε-differentially private for the records of ``half``: a replaced record leaves one cell and enters
    another, so the counts move by 2 in l1 norm; the regressions are functions of the noisy counts.
    """
    return _regressions(cell_counts(half), purse, epsilon=epsilon)


def _regressions(counts: NDArray[np.int64], purse: Purse, *, epsilon: float) -> tuple[Regression, Regression]:
    noisy = np.asarray(purse.add(counts, _sketch_event(epsilon)), dtype=np.float64)
    noise = math.sqrt(2) * 2 / epsilon
    return fit_histogram(noisy, noise), fit_histogram(noisy.T, noise)


def half_counts(pair: Pair, *, shuffle: int) -> NDArray[np.int64]:
    """Return the counts of the training half: private."""
    return cell_counts(half_of(pair, "train", shuffle=shuffle))


def cell_counts(pair: Pair) -> NDArray[np.int64]:
    """Return how many pairs lie in each of 8 × 8 equal cells of [-1, 1]²: private; x counts the rows."""
    counts = np.zeros(_CELLS**2, dtype=np.int64)
    for rows in slices(len(pair.x)):
        x, y = (np.clip(((v[rows] + 1) * (_CELLS / 2)).astype(np.int64), 0, _CELLS - 1) for v in pair)
        counts += np.bincount(x * _CELLS + y, minlength=_CELLS**2)
    return counts.reshape(_CELLS, _CELLS)


# ---- what gap and paper share

ABSTAIN = 1.6
"""By default there is a verdict only where the margin exceeds so many noise scales: its sign is then 90 % sure."""


UNMEASURED = (
    "How often such verdicts are right is not known, and where there is no direction to be seen this method gives one "
    "all the same: compare method votes."
)


@dataclass(frozen=True, slots=True)
class Margin:
    """A released margin, and what is known of it.

    Attributes:
        value: Above 0 for x->y.
        noise_scale: Of the noise in it.
        certainty: How sure its sign is.
        scores: The released numbers that it was made of.
        scores_mean: What they mean.
        notes: What people should know about it.
    """

    value: float
    noise_scale: float
    certainty: float
    scores: Mapping[str, float]
    scores_mean: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wording:
    """How a released margin becomes an answer: all that is known of it before a row is read.

    Attributes:
        asked: The question.
        score: The dependence score.
        abstain: The verdict is "cannot tell" unless the margin is larger than so many noise scales.
        notes: What people should know about the way it was asked.
    """

    asked: DirectionQuestion
    score: str
    abstain: float
    notes: tuple[str, ...]

    @property
    def x(self) -> str:
        """One column."""
        return self.asked.x

    @property
    def y(self) -> str:
        """The other one."""
        return self.asked.y

    @contextmanager
    def pairs(self, table: PrivateTable, rows: int, *, once: bool = True) -> Iterator[Callable[[PairWork], Any]]:
        """Give what finds something of all private pairs, where they are: here or on a worker.

        Args:
            table: The private table.
            rows: As many pairs as sensitivities were computed for: if there are others, that is an InputError.
            once: Whether one thing is to be found; else their order must be the same each time.
        """
        with table.in_one_place((self.x, self.y), encode="shares", once=once) as whole:
            yield lambda work: whole.found(partial(_found_of, rows=rows, work=work), in_order=not once)

    def answer(self, margin: Margin, purse: Purse) -> Direction:
        """Return the answer for a released margin."""
        threshold, note = self.abstain * margin.noise_scale, UNMEASURED
        verdict = arrow(self.x, self.y) if margin.value > 0 else arrow(self.y, self.x)
        if abs(margin.value) <= threshold:
            verdict = CANNOT_TELL
            note = f"The margin is inside the noise (±{threshold:.2g}): a larger ε or more rows could tell."
        return replace(
            self.no_answer(purse, *margin.notes, note),
            verdict=verdict,
            margin=margin.value,
            stability=margin.certainty,
            scores=margin.scores,
            scores_mean=margin.scores_mean,
            noise_scale=margin.noise_scale,
            threshold=threshold,
        )

    def no_answer(self, purse: Purse, *why: str) -> Direction:
        """Return "cannot tell", with the reason."""
        return Direction(
            x=self.x,
            y=self.y,
            verdict=CANNOT_TELL,
            margin=0.0,
            stability=0.5,
            guarantee=purse.guarantee,
            method=self.asked.method,
            score=self.score,
            plan=purse.plan,
            notes=(*self.notes, *why, *((purse.plan.warning,) if purse.plan.warning else ())),
        )


def _found_of(shares: Floats, *, rows: int, work: PairWork) -> NDArray[Any]:
    check_rows(rows, len(shares))
    return work(pair_of(shares))


def public_count(method: str, neighbours: Neighbours) -> int:
    """Return the public number of rows, or raise where the method's sensitivities do not hold.

    Raises:
        RefusedError: If neighbours may differ in the number of rows, or in several rows of one person.
        InputError: If the number of rows is not known.
    """
    if neighbours.relation != "replace_one":
        raise RefusedError(
            f"method {method!r} divides by the number of rows, which must be public: it holds for "
            "relation='replace_one' only. Use method='votes' for 'add_remove'. Nothing was spent."
        )
    if neighbours.unit != "row":
        raise RefusedError(
            f"method {method!r} protects one row; for a person with several rows use method='votes'. Nothing was spent."
        )
    if neighbours.rows is None:
        raise InputError(f"method {method!r} needs the public number of rows; give rows=....")
    return neighbours.rows


def check_width(value: object) -> float:
    """Return the width of kernels on [-1, 1], or raise: narrower ones need more grid points than they are worth."""
    width = positive("width", value, at_most=2.0)
    if width < _NARROWEST:
        raise InputError(f"width must be at least {_NARROWEST} on the scale [-1, 1]; got {width!r}.")
    return width


# ---- how likely the sign is right

LARGEST_GAP = {name: score.largest for name, score in DEPENDENCE.items()}
"""The largest size of a gap of two scores: no score is below 0, and none above this (up to one part in m)."""

_TAILS = {1: (48.0,), 2: (48.0, 24.0), 4: (48.0, 33.0, 9.0, 1.0)}  # over 96, in powers of z


def probability_of_direction(margin: float, scale: float, noises: int = 2) -> float:
    """Return the probability that the noisy scores are in the order of the margin's sign: above 0 is right.

    Args:
        margin: γ, the private margin; above 0 if the scores without noise are in the right order.
        scale: σ, of each Laplace variable.
        noises: How many there are: 1 for a gap, 2 for two scores (Theorem 2), 4 for four log IQRs (Theorem 4).

    Raises:
        InputError: If the scale is not above 0, or ``noises`` is none of these.

    >>> [round(probability_of_direction(2.0, 1.0, noises=k), 4) for k in (1, 2, 4)]
    [0.9323, 0.8647, 0.7773]
    """
    if noises not in _TAILS:
        raise InputError(f"noises must be 1, 2 or 4; got {noises!r}.")
    z = abs(finite("margin", margin)) / positive("scale", scale)
    tail = math.exp(-z) * sum(part * z**power for power, part in enumerate(_TAILS[noises])) / 96 if z < 700 else 0.0
    return 1 - tail if margin > 0 else tail


def certainty(released: float, scale: float, noises: int = 1, *, largest: float = math.inf) -> float:
    """Return how sure the sign of a released margin is: see "After the release" above.

    Args:
        released: The noisy margin.
        scale: Of each Laplace variable in it.
        noises: How many there are: 1, 2 or 4.
        largest: The largest size the margin can have without noise.

    >>> round(certainty(3.0, 1.0), 4), round(certainty(300.0, 100.0, largest=0.25), 4)
    (0.9751, 0.5006)
    """
    size = abs(released)
    if math.isinf(largest):
        return probability_of_direction(size, scale, noises)
    size = min(size, largest + 500 * scale)  # beyond, tails only shrink together

    def above(value: float) -> float:
        return probability_of_direction(-value, scale, noises)

    low, middle, high = above(size - largest), above(size), above(size + largest)
    return min(1.0, max(0.5, (low - middle) / (low - high)))
