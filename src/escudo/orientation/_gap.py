r"""The gap method: one noisy number, score(y->x) - score(x->y), with noise as small as the proofs allow.

For an additive noise model y = f(x) + noise, the residual of y is independent of x, and that of x not of y. A score
measures dependence; lower is better; the gap is above 0 where x->y fits better. Only the gap is released, because two
noisy scores at the same total ε err more often (``escudo.mechanisms.gap_sign`` has the proof).

| score | sensitivity of one score | where proved |
|---|---|---|
| ``sqrt_hsic`` (default) | √6/m | ``_scores_kernel.py`` |
| ``hsic`` | 2.0556/m + 4/m² | ``_scores_kernel.py`` |
| ``spearman``, ``kendall`` | 6/(m+1), 4/m | ``_scores.py`` |
| ``iqr`` | none; quartiles by the exponential mechanism | ``escudo.mechanisms.quantiles`` |

The gap moves by at most twice as much. Everything else is fixed beforehand: the bounds of the schema, widths,
degrees.

**Whose privacy.** The regressions are fitted on records, too. There are two ways, and both protect the *whole* table:

* ``train=records``: public records of the same two columns fit the regressions; every private row is scored.
* otherwise the table is cut in two by row number. One half becomes a histogram of 8 × 8 cells with Laplace noise of
  scale 2/ε, and both regressions are computed from it alone; the other half gives the gap, with noise for ε. One
  record lies in one half, so the two do not add up: if M₁(train) is ε-private and M₂(test, o) is ε-private for
  every o, then for neighbours that differ in the training half the second factor is the same, and conversely. ∎
  (``ParallelEvent``)

``probability_correct`` is the posterior probability that the private gap has the released sign, if all possible
gaps were equally likely beforehand (``_gap_probability.py``). For ``iqr`` it supposes bell-shaped columns.

Reference:
    Design note "sensitivities", Propositions 4, 7, 8 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive, whole
from escudo.mechanisms import Seed, gap_sign, laplace, laplace_event, publishable, quantile_event, quantiles
from escudo.orientation._answer import Direction
from escudo.orientation._asked import Asked, check_options, check_width
from escudo.orientation._gap_answer import ABSTAIN, Question, check_question
from escudo.orientation._gap_probability import LARGEST_GAP, certainty
from escudo.orientation._pair import PairData
from escudo.orientation._regression import fit_histogram, fit_polynomial
from escudo.orientation._regression_data import Pair, check_rows, halves, in_two, public_pair, scaled
from escudo.orientation._scores import Floats, kendall, kendall_sensitivity, spearman, spearman_sensitivity
from escudo.orientation._scores_kernel import GridFeatures, hsic_sensitivity, sqrt_hsic, sqrt_hsic_sensitivity
from escudo.privacy import Account, Event, LaplaceEvent, ParallelEvent, Plan, RepeatedEvent

__all__ = ["SCORES", "WIDTH", "GapPrepared", "cell_counts", "gap_of", "gap_sensitivity", "noisy_regressions", "prepare"]

SCORES = ("sqrt_hsic", "hsic", "spearman", "kendall", "iqr")
"""Every dependence score, the default first."""

WIDTH = 0.15
"""Width of the kernels on [-1, 1]: the sensitivity does not depend on it, and small widths see more."""

LEAST_SKETCH = 800
"""Least ε times training rows for which the histogram's regressions can be trusted: below, a poor fit does not make a
coin but a systematic error, private and confidently wrong (``experiments/simulated_directions.py``)."""

_CELLS = 8
_FINENESS = 2.0**-11  # grid step, as a part of the sensitivity: rounding costs 0.1 %, and float errors stay far below
_TYPICAL = 0.08  # a clear gap of √HSIC, from simulated pairs
_LEAST = 1e-3  # interquartile ranges below this count as this

Regression = Callable[[Floats], Floats]


def gap_sensitivity(score: str, m: int) -> float:
    """Return how far the gap of two scores over ``m`` pairs can move when one pair is replaced: twice one score."""
    one: Callable[[int], float] = {
        "sqrt_hsic": sqrt_hsic_sensitivity,
        "hsic": hsic_sensitivity,
        "spearman": spearman_sensitivity,
        "kendall": kendall_sensitivity,
    }[score]
    return 2 * one(m)


def gap_of(score: str, pair: Pair, f: Regression, g: Regression, *, width: float = WIDTH) -> float:
    """Return score(y->x) - score(x->y) without noise: private.

    Args:
        score: One of ``SCORES`` but ``"iqr"``.
        pair: The pairs, on [-1, 1].
        f: Predicts y from x.
        g: Predicts x from y.
        width: Width of the kernels, for the scores that have one.
    """
    forward, backward = pair.y - f(pair.x), pair.x - g(pair.y)
    measure = _measure(score, width)
    return measure(pair.y, backward) - measure(pair.x, forward)


def _measure(score: str, width: float) -> Callable[[Floats, Floats], float]:
    if score == "spearman":
        return spearman
    if score == "kendall":
        return kendall
    inputs, residuals = GridFeatures(-1.0, 1.0, width), GridFeatures(-2.0, 2.0, width)
    power = 2 if score == "hsic" else 1
    return lambda a, b: sqrt_hsic(a, b, inputs, residuals) ** power


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GapPrepared:
    """The gap method with everything chosen from public facts; see the module's docstring.

    Attributes:
        question: What was asked, with the plan.
        epsilon: What the answer may cost.
        rows: The public number of rows.
        train: Public training records, or None to split the table.
        shuffle: Public seed of the split.
        width: Width of the kernels.
    """

    question: Question
    epsilon: float
    rows: int
    train: Pair | None
    shuffle: int
    width: float

    @property
    def plan(self) -> Plan:
        """All that ``run`` will spend."""
        return self.question.plan

    def run(self, pairs: PairData, *, account: Account, seed: Seed) -> Direction:
        """Read the pairs and answer; the account is charged for the whole plan before noise is drawn.

        Raises:
            InputError: If the table has another number of rows than was stated.
        """
        asked = self.question
        if self.plan.event is None:
            return asked.no_answer(_needs(asked.score, self.epsilon, split=self.train is None), seed=seed)
        check_rows(self.rows, pairs.rows)
        pair, known = scaled(pairs), self.train
        account.spend(self.plan.event, purpose="direction (gap)", for_release=publishable(seed))
        f: Regression
        g: Regression
        if known is not None:
            f, g, test = fit_polynomial(known.x, known.y), fit_polynomial(known.y, known.x), pair
        else:
            half, test = in_two(pair, shuffle=self.shuffle)
            f, g = noisy_regressions(half, epsilon=self.epsilon, seed=seed)
        if asked.score == "iqr":
            return self._by_quartiles(test, f, g, seed)
        released = gap_sign(
            gap_of(asked.score, test, f, g, width=self.width),
            sensitivity=gap_sensitivity(asked.score, len(test.x)),
            epsilon=self.epsilon,
            grid=_grid(gap_sensitivity(asked.score, len(test.x))),
            seed=seed,
        )
        event = released.event
        assert isinstance(event, LaplaceEvent)
        margin = released.value.value
        return asked.answer(
            margin,
            noise_scale=event.scale,
            certainty=certainty(margin, event.scale, largest=LARGEST_GAP[asked.score]),
            scores={"gap": margin},
            scores_mean=(
                f"gap: dependence left in the wrong direction minus that left in the right one, if {asked.x} is the "
                f"cause ({asked.score} of {asked.y}->{asked.x} minus that of {asked.x}->{asked.y}), with noise"
            ),
            seed=seed,
        )

    def _by_quartiles(self, test: Pair, f: Regression, g: Regression, seed: Seed) -> Direction:
        asked = self.question
        columns = {
            asked.x: (test.x, 1.0),
            f"residual of {asked.y}": (test.y - f(test.x), 2.0),
            asked.y: (test.y, 1.0),
            f"residual of {asked.x}": (test.x - g(test.y), 2.0),
        }
        logs = {}
        for name, (values, bound) in columns.items():
            low, high = quantiles(
                values, [0.25, 0.75], lower=-bound, upper=bound, epsilon=self.epsilon / 4, seed=seed
            ).value
            logs[f"log IQR of {name}"] = math.log(max(float(high - low), _LEAST))
        one, two, three, four = logs.values()
        margin = (three + four) - (one + two)
        # A quartile errs by about 16/ε ranks; at a normal density of 0.43/IQR per rank that is this part of the IQR.
        each = 16 / self.epsilon / (0.43 * len(test.x))
        spread = math.sqrt(8) * each
        return asked.answer(
            margin,
            noise_scale=spread,
            certainty=0.5 * (1 + math.erf(abs(margin) / (2 * spread))),
            scores={**logs, "gap": margin},
            scores_mean=(
                f"log interquartile ranges by the exponential mechanism; the gap adds {asked.y} and the residual of "
                f"{asked.x}, and takes off {asked.x} and the residual of {asked.y}"
            ),
            seed=seed,
            notes=("How sure the sign is supposes bell-shaped columns: quartiles have no closed form.",),
        )


def prepare(asked: Asked) -> GapPrepared:
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
    count = check_question("gap", asked)
    chosen = check_options("gap", asked.options, {"train": None, "abstain": ABSTAIN, "shuffle": 0, "width": WIDTH})
    named = one_of("score", SCORES[0] if asked.score == "committee" else asked.score, SCORES)
    width = check_width(chosen["width"])
    split = chosen["train"] is None
    tested = halves(count)[1] if split else count
    return GapPrepared(
        question=Question(
            x=asked.x,
            y=asked.y,
            method="gap",
            score=named,
            plan=_plan(named, asked.epsilon, tested, split=split),
            abstain=positive("abstain", chosen["abstain"], allow_zero=True),
            notes=(_covers(count, tested, split=split),),
        ),
        epsilon=asked.epsilon,
        rows=count,
        train=None if split else public_pair(asked.schema, asked.x, asked.y, chosen["train"], option="train"),
        shuffle=whole("shuffle", chosen["shuffle"]),
        width=width,
    )


def noisy_regressions(half: Pair, *, epsilon: float, seed: Seed) -> tuple[Regression, Regression]:
    """Return regressions of y on x and x on y from one noisy histogram; charging is left to the caller.

    **Guarantee.** ε-differentially private for the records of ``half``: a replaced record leaves one cell and enters
    another, so the counts move by 2 in l1 norm; the regressions are functions of the noisy counts.
    """
    counts = laplace(cell_counts(half), sensitivity=2, epsilon=epsilon, seed=seed).value
    noisy = np.asarray(counts, dtype=np.float64)
    noise = math.sqrt(2) * 2 / epsilon
    return fit_histogram(noisy, noise=noise), fit_histogram(noisy.T, noise=noise)


def cell_counts(pair: Pair) -> NDArray[np.int64]:
    """Return how many pairs lie in each of 8 × 8 equal cells of [-1, 1]²: private; x counts the rows."""
    x, y = (np.clip(((v + 1) * (_CELLS / 2)).astype(np.int64), 0, _CELLS - 1) for v in pair)
    return np.bincount(x * _CELLS + y, minlength=_CELLS**2).reshape(_CELLS, _CELLS)


def _plan(score: str, epsilon: float, tested: int, *, split: bool) -> Plan:
    name = f"direction (gap of {score})"
    if split and epsilon * (tested - 1) < LEAST_SKETCH:
        return Plan(name, buys="nothing: too few rows to fit regressions privately")
    if score == "iqr":
        if tested < 8:
            return Plan(name, buys="nothing: too few rows")
        gap: Event = RepeatedEvent(event=quantile_event(count=2, epsilon=epsilon / 4), count=4)
    else:
        if tested < 2 or gap_sensitivity(score, tested) / epsilon > LARGEST_GAP[score]:
            return Plan(name, buys="nothing: the noise would be larger than any gap")
        size = gap_sensitivity(score, tested)
        gap = laplace_event(1, sensitivity=size, epsilon=epsilon, grid=_grid(size))
    if not split:
        return Plan(name, gap, buys=f"the gap over all {tested:,} rows; regressions from public records")
    sketch = laplace_event(_CELLS**2, sensitivity=2, epsilon=epsilon, integers=True)
    return Plan(
        name,
        ParallelEvent(events=(sketch, gap), by="position"),
        buys="a noisy histogram of one half for the regressions, the gap over the other half",
    )


def _grid(sensitivity: float) -> float:
    return math.ldexp(1.0, math.frexp(sensitivity * _FINENESS)[1] - 1)


def _covers(rows: int, tested: int, *, split: bool) -> str:
    if not split:
        return f"Covers all {rows:,} private rows; the regressions come from records stated to be public."
    return (
        f"Covers all {rows:,} rows: {rows - tested:,} behind a noisy histogram, {tested:,} behind the noisy gap; "
        "nobody is in both."
    )


def _needs(score: str, epsilon: float, *, split: bool) -> str:
    """Return about how many rows would do, for a gap of the usual size."""
    if split:
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
