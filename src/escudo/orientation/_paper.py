r"""The method of *Private Causal Inference*, as published: kernel ridge regression, a split, two noisy scores.

Algorithm 1: fit f̂ (x to y) and ĝ (y to x) on training records; on test records compute residuals r_Y = y - f̂(x) and
r_X = x - ĝ(y); score s(x, r_Y) and s(y, r_X); the lower score names the direction. Scores: ``hsic`` (default),
``spearman``, ``kendall``, ``iqr``. Noise by the paper's theorems with corrected constants, or, with
``constants="paper"``, with those printed; the table below compares the two. ε and δ are totals for the whole answer
(the paper's ε is that of one score).

**Whose privacy.** The paper protects either the test set or the training set. Here the private table always is
protected as a whole, so one says what it is:

* ``train=records``: public records train, every private row is a test record (the paper's Section 4). Two scores
  with Laplace noise of scale 2Δ/ε each; four log IQRs by propose-test-release.
* ``test=records``: public records are scored, every private row trains (Section 5). HSIC with Laplace noise; ranks
  as they are, if the table is far enough from one where a rank could change (Dwork & Roth, Algorithm 13); two log
  IQRs by propose-test-release, with distances by how far one record moves a residual.
* neither: the table is cut in two by row number and both halves are private. A record is in one half, so the larger
  of the two sensitivities holds for the whole (:func:`score_sensitivity`); distances of IQRs count
  changes in either half (``_scores.py``). Rank scores are refused: one test record can bring two residuals as
  close together as it likes, so no table is ever far from instability, and the answer would always be "no answer".

**Guarantee.** Laplace: ε-differentially private. Algorithm 13: (ε, δ): the distance d̂ has sensitivity 1; where d̂ ≥ 1
the score is the same for all neighbours; where d̂ = 0 on both of two neighbours, each answers with probability at most
δ. Log IQRs: 4 (test, both) or 2 (train) runs of propose-test-release at (3e₀, δ₀), by
:func:`escudo.mechanisms.propose_test_release`.

**Constants.** The paper's sensitivities as printed, and the corrected ones, side by side.

| score, one record replaced | the paper | corrected | is the paper's bound true? |
|---|---|---|---|
| Spearman, test record | 30/m (Theorem 1) | 6/(m+1) | yes, 5 times too large |
| Kendall, test record | 4/m (Theorem 1) | 4/m | yes; its proof is not |
| HSIC, test record | (12m-11)/(m-1)² (Theorem 3) | 2.0556/m + 4/m² | yes, 5.8 times too large |
| residual, training record | 8/(nλ^{3/2}), λ ≤ 1 (Theorem 5) | Proposition 10 | yes, 1.7 to 5.7 times too large |
| HSIC, training record | 32 L √m/n · 8/λ^{3/2} (Theorem 7) | Proposition 11 | yes; it even exceeds the range of HSIC |
| distance to instability | ⌊nγλ^{3/2}/16⌋ | ⌈γ/2R⌉ - 1 | yes, as a lower bound |
| four log IQRs, test record | "three looks": (9e₀, 3δ₀) | (12e₀, 4δ₀) | **no**: one record moves all four |
| two log IQRs, training record | (6e₀, 2δ₀) | (6e₀, 2δ₀) | yes |

So with ``constants="paper"`` only the interquartile ranges cost more than the paper says: 4/3 of ε and δ. What is
charged is always what is proved.

The paper's first bound for HSIC, (16m-8)/(m-1)², is larger still and not used.

Reference: M. Kusner, Y. Sun, K. Sridharan, K. Weinberger (2016), "Private Causal Inference", AISTATS. C. Dwork, A. Roth
(2014), "The algorithmic foundations of differential privacy", Algorithm 13. Design note "sensitivities".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Literal

import numpy as np

from escudo._validate import one_of, positive, whole
from escudo.errors import InputError, RefusedError
from escudo.mechanisms import Purse, laplace_event, release_if_stable
from escudo.orientation._direction import Direction, DirectionQuestion, check_options
from escudo.orientation._gap import ABSTAIN, LARGEST_GAP, WIDTH, Margin, Wording, certainty, check_width, public_count
from escudo.orientation._regression import (
    Floats,
    Pair,
    fit_kernel_ridge,
    halves,
    paper_residual_change,
    public_pair,
    residual_change,
    residual_of,
    split_pair,
)
from escudo.orientation._scores import (
    dependence,
    hsic_sensitivity,
    hsic_training_sensitivity,
    interquartile_range,
    kendall_sensitivity,
    log_iqr_with_drift,
    spearman_sensitivity,
)
from escudo.privacy import ApproximateEvent, Budget, LaplaceEvent, Neighbours, Plan, RepeatedEvent
from escudo.table import PrivateTable, Schema

SCORES = ("hsic", "spearman", "kendall", "iqr")
"""Every dependence score of the paper, the default first."""

RIDGE_WIDTH = 0.3
"""Width of the regressions' kernel on [-1, 1]; the paper names none."""

_BIN = 1.0  # width of the bins of log IQR: a factor e, as in the paper
_EXACT = 1e-9  # where ranks are stable they move by 0, so any number above it bounds them; it only costs noise
_EXACT_SHARE = 1e-3


def prepare(asked: DirectionQuestion, schema: Schema, neighbours: Neighbours, budget: Budget) -> PaperPrepared:
    """Choose what the paper's method will release, from public facts alone.

    The relation must be ``"replace_one"`` and the unit ``"row"``. With ``constants="paper"`` ε is what the paper says
    that the answer costs. A δ is needed for ``iqr``, and for ranks of private training records. Scores: one of
    ``SCORES``.

    Options:
        train: Public records to fit the regressions on.
        test: Public records to score, instead.
        constants: ``"corrected"`` or ``"paper"``.
        regularisation: λ; 0.001 with public training records, else 0.3.
        width: Of HSIC's kernels, on [-1, 1].
        shuffle: Public seed of the split.
        abstain: In noise scales; 1.6 by default.

    Raises:
        InputError: If an argument is out of range.
        RefusedError: If the relation or unit is not covered, or no mechanism is known.
    """
    count = public_count("paper", neighbours)
    known = {
        "train": None,
        "test": None,
        "constants": "corrected",
        "regularisation": None,
        "width": WIDTH,
        "shuffle": 0,
        "abstain": ABSTAIN,
    }
    chosen = check_options("paper", asked.options, known)
    named = one_of("score", SCORES[0] if asked.score == "committee" else asked.score, SCORES)
    if chosen["train"] is not None and chosen["test"] is not None:
        raise InputError("train and test are both public: then nothing is private. Give one of them.")
    role: Role = "test" if chosen["train"] is not None else "train" if chosen["test"] is not None else "both"
    public = None if role == "both" else public_pair(schema, asked, "train" if role == "test" else "test")
    _check_known(named, role, budget.delta)
    lam = 1e-3 if role == "test" else 0.3
    lam = lam if chosen["regularisation"] is None else positive("regularisation", chosen["regularisation"])
    constants: Constants = one_of("constants", chosen["constants"], CONSTANTS)
    if constants == "paper" and lam > 1:
        raise InputError("constants='paper' holds for a regularisation of at most 1.")
    notes = _notes(role, named, constants, count)
    prepared = PaperPrepared(
        schema,
        Wording(asked, named, positive("abstain", chosen["abstain"], allow_zero=True), notes),
        budget,
        Algorithm(role, public, shuffle=whole("shuffle", chosen["shuffle"]), regularisation=lam),
        rows=count,
        width=check_width(chosen["width"]),
        constants=constants,
    )
    if min(prepared.records) < 4:
        raise InputError("the table needs at least 8 rows, 4 with public records beside it.")
    return prepared


def _by_laplace(score: str, role: Role) -> bool:
    return score == "hsic" or (score != "iqr" and role == "test")


def _check_known(score: str, role: Role, delta: float) -> None:
    """Raise where no mechanism is known, or one that needs a δ has none."""
    if score in ("spearman", "kendall") and role == "both":
        raise RefusedError(
            f"no private release of {score} is known when both halves are private: one test record can bring two "
            "residuals together, so no table is far from instability. Give public train records, or use score='hsic', "
            "method='gap' or method='votes'. Nothing was spent."
        )
    if delta == 0 and not _by_laplace(score, role):
        raise InputError(f"score {score!r} needs a delta above 0 here, such as 1e-6.")


def _notes(role: Role, score: str, constants: Constants, rows: int) -> tuple[str, ...]:
    covers = {
        "test": f"Covers all {rows:,} private rows, the test set; the training records are stated to be public.",
        "train": f"Covers all {rows:,} private rows, the training set; the test records are stated to be public.",
        "both": f"Covers all {rows:,} rows, training and test half alike.",
    }[role]
    if constants == "corrected":
        return (covers,)
    if score == "iqr" and role != "train":
        claim = (
            "The paper's constants: it counts three looks at a record where there are four, so what was charged is "
            "4/3 of the ε and δ it claims."
        )
    else:
        claim = "The paper's constants: true here, and larger than needed."
    return covers, claim


@dataclass(frozen=True, slots=True, eq=False)
class PaperPrepared:
    """The paper's method with everything chosen from public facts; the module says what it promises.

    Attributes:
        schema: The columns of the table.
        wording: How a released margin is told.
        budget: The paper's claim, for the whole answer.
        algorithm: What is done with the pairs, and what the private ones are used for.
        rows: The public number of rows.
        width: Width of the kernels of HSIC.
        constants: The paper's, or the corrected ones.
    """

    schema: Schema
    wording: Wording
    budget: Budget
    algorithm: Algorithm
    _: KW_ONLY
    rows: int
    width: float
    constants: Constants

    @property
    def role(self) -> Role:
        """What the private records are used for."""
        return self.algorithm.role

    @property
    def records(self) -> tuple[int, int]:
        """How many records train, and how many are scored."""
        public = self.algorithm.public
        if public is None:
            return halves(self.rows)
        return (len(public.x), self.rows) if self.role == "test" else (self.rows, len(public.x))

    @property
    def plan(self) -> Plan:
        """All that ``run`` will spend; free where no gap would stand out."""
        score, epsilon, delta = self.wording.score, self.budget.epsilon, self.budget.delta
        name = f"direction (paper, {score})"
        if _by_laplace(score, self.role):
            one = self._one_score(*self.records)
            if 2 * one / epsilon > LARGEST_GAP[score]:
                return Plan(name, buys="nothing: the noise would be larger than any gap")
            return Plan(name, laplace_event(2, sensitivity=2 * one, epsilon=epsilon), buys="two scores")
        released, parts = iqr_looks(self.role, self.constants) if score == "iqr" else (2, 2)
        return Plan(
            name,
            RepeatedEvent(event=ApproximateEvent(epsilon=epsilon / parts, delta=delta / parts), count=released),
            buys="log interquartile ranges, where stable" if score == "iqr" else "two scores, where stable",
            delta=delta * released / parts,
        )

    def _one_score(self, n: int, m: int) -> float:
        return score_sensitivity(
            self.wording.score,
            self.role,
            n=n,
            m=m,
            regularisation=self.algorithm.regularisation,
            width=self.width,
            constants=self.constants,
        )

    def _needs(self) -> str:
        """Return about how many private rows would do, for a clear gap: a tenth of the largest."""
        (n, m), role, epsilon, factor = self.records, self.role, self.budget.epsilon, 1
        clear = LARGEST_GAP[self.wording.score] / 10 / math.log(10)

        def sensitivity(factor: int) -> float:
            return self._one_score(n if role == "test" else n * factor, m if role == "train" else m * factor)

        while 2 * sensitivity(factor) / epsilon > clear:
            factor *= 2
        rows = factor * {"test": m, "train": n, "both": n + m}[role]
        return f"At ε = {epsilon:g} the noise is larger than any gap of two scores; it needs about N = {rows:,} rows."

    def run(self, table: PrivateTable, purse: Purse) -> Direction:
        """Read the pairs and answer.

        Raises:
            InputError: If the table, or the public records, are not as many as was stated.
        """
        asked, event = self.wording, self.plan.event
        if event is None:
            return asked.no_answer(purse, self._needs(), "Nothing was spent.")
        ranks = self.role == "train" and asked.score not in ("hsic", "iqr")
        read: Callable[[Residuals], Floats] = partial(two_scores, asked.score, width=self.width)
        if asked.score == "iqr":
            read = partial(four_ranges, role=self.role, change=0.0 if self.role == "test" else self._drift)
        elif ranks:
            read = partial(scores_and_gaps, asked.score, width=self.width)
        with asked.pairs(table, self.rows) as find:
            found = find(partial(self.algorithm.found, read=read))
        paid = purse.within(event, purpose="direction (paper)")
        if asked.score == "iqr":
            return self._ranges(found, paid)
        return self._stable_ranks(found, paid) if ranks else self._noisy_scores(found, paid)

    @property
    def _drift(self) -> float:
        return drift(self.records[0], self.algorithm.regularisation, self.constants)

    def _noisy_scores(self, scores: Floats, purse: Purse) -> Direction:
        event = self.plan.event
        assert isinstance(event, LaplaceEvent)
        noisy = purse.add(scores, event)
        forward, backward = np.asarray(noisy, dtype=np.float64).tolist()
        return self._answer(forward, backward, event.scale, 2, purse)

    def _part(self) -> ApproximateEvent:
        """Return what one number costs that is released where it is stable: all of them are such parts of the plan."""
        event = self.plan.event
        assert isinstance(event, RepeatedEvent)
        assert isinstance(event.event, ApproximateEvent)
        return event.event

    def _stable_ranks(self, found: Floats, purse: Purse) -> Direction:
        forward, backward = (
            release_if_stable(
                value,
                1 + distance_to_instability(smallest_gap, self._drift, self.constants),
                self._part(),
                purse,
                sensitivity=_EXACT,
                release_share=_EXACT_SHARE,
            )
            for value, smallest_gap in found.tolist()
        )
        if forward is None or backward is None:
            why = "One record of the training set could change the ranks of the residuals: no score is released."
            return self.wording.no_answer(purse, why)
        return self._answer(forward, backward, 2 * _EXACT / (_EXACT_SHARE * self.budget.epsilon), 2, purse)

    def _ranges(self, found: Floats, purse: Purse) -> Direction:
        looks, parts = iqr_looks(self.role, self.constants)
        logs: list[float] = []
        for place, (value, *distances) in enumerate(found.tolist()):
            if looks == 2 and place % 2 == 0:  # of public records
                logs.append(value)
                continue
            there, steps = None if math.isnan(value) else value, [int(each) for each in distances]
            log = release_if_stable(there, steps, self._part(), purse, sensitivity=_BIN)
            if log is None:
                why = "An interquartile range is not stable enough at this ε and δ: it is not released."
                return self.wording.no_answer(purse, why)
            logs.append(log)
        x, of_y, y, of_x = logs
        return self._answer(x + of_y, y + of_x, 3 * parts * _BIN / self.budget.epsilon, looks, purse)

    def _answer(self, forward: float, backward: float, scale: float, noises: int, purse: Purse) -> Direction:
        asked = self.wording
        margin = backward - forward
        released = Margin(
            margin,
            noise_scale=scale * math.sqrt(noises),  # of one Laplace variable with as large a variance
            certainty=certainty(margin, scale, noises, largest=LARGEST_GAP.get(asked.score, math.inf)),
            scores={f"{asked.x}->{asked.y}": forward, f"{asked.y}->{asked.x}": backward},
            scores_mean=f"{asked.score} of each direction, with noise: lower is more likely the right one",
        )
        return asked.answer(released, purse)


# ---- Algorithm 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Residuals:
    """The test records with their residuals: private."""

    x: Floats
    y: Floats
    of_y: Floats
    of_x: Floats


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Algorithm:
    """Algorithm 1, to be taken to where the private pairs are, which may be on a worker.

    Attributes:
        role: What the private pairs are used for.
        public: The public ones, or None with role ``"both"``.
        shuffle: Public seed of the split.
        regularisation: λ.
    """

    role: Role
    public: Pair | None
    _: KW_ONLY
    shuffle: int
    regularisation: float

    def found(self, private: Pair, *, read: Callable[[Residuals], Floats]) -> Floats:
        """Return what is read of the residuals: private."""
        if self.public is None:
            train, test = split_pair(private, shuffle=self.shuffle)
        else:
            train, test = (self.public, private) if self.role == "test" else (private, self.public)
        return read(residuals(train, test, regularisation=self.regularisation))


def residuals(train: Pair, test: Pair, *, regularisation: float, width: float = RIDGE_WIDTH) -> Residuals:
    """Return Algorithm 1 up to its residuals: both regressions on ``train``, both residuals on ``test``."""
    f = fit_kernel_ridge(train.x, train.y, regularisation, width)
    g = fit_kernel_ridge(train.y, train.x, regularisation, width)
    return Residuals(x=test.x, y=test.y, of_y=residual_of(test.y, test.x, f), of_x=residual_of(test.x, test.y, g))


def two_scores(score: str, found: Residuals, *, width: float = WIDTH) -> Floats:
    """Return s(x, r_Y) and s(y, r_X) for a score other than ``"iqr"``: private; lower means more likely the cause."""
    measure = dependence(score, width)
    return np.array([measure(found.x, found.of_y), measure(found.y, found.of_x)])


def scores_and_gaps(score: str, found: Residuals, *, width: float) -> Floats:
    """Return for each direction its score, and how far the two residuals are apart that are closest: private."""
    gaps = [float(np.min(np.diff(np.sort(values)))) for values in (found.of_y, found.of_x)]
    return np.column_stack([two_scores(score, found, width=width), gaps])


def four_ranges(found: Residuals, *, role: Role, change: float) -> Floats:
    """Return the log interquartile range of x, r_Y, y and r_X, NaN for none, and its two distances: private.

    Args:
        found: The columns.
        role: With ``"train"`` the columns themselves are public: then their ranges are at least 0.001 each.
        change: How far one training record can move a residual.
    """
    rows: list[tuple[float, ...]] = []
    columns, residuals = (1.0, 0.0), (2.0, change)
    for values, (bound, moved) in zip(
        (found.x, found.of_y, found.y, found.of_x), (columns, residuals, columns, residuals), strict=True
    ):
        if role == "train" and bound == 1.0:
            rows.append((math.log(max(interquartile_range(values), 1e-3)), 0, 0))
            continue
        read = log_iqr_with_drift(
            values, lower=-bound, upper=bound, width=_BIN, drift=moved, values_private=role != "train"
        )
        rows.append((math.nan if read.value is None else read.value, *read.distances))
    return np.array(rows, dtype=np.float64)  # distances are at most 2**53


# ---- constants

Constants = Literal["corrected", "paper"]
CONSTANTS: tuple[Constants, ...] = ("corrected", "paper")

Role = Literal["test", "train", "both"]
"""Which part of the data the private table is; with ``both`` it is cut in two."""

_FLOAT = 1 + 1e-6  # residuals as computed may move by rounding errors more


def score_sensitivity(
    score: str, role: Role, *, n: int, m: int, regularisation: float, width: float, constants: Constants
) -> float:
    """Return how far one score can move when one private record is replaced.

    Args:
        score: ``"hsic"``; or, for role ``"test"`` only, ``"spearman"`` or ``"kendall"``.
        role: What the private records are used for. With ``"both"``, a record is in one part, so the larger of the
            two sensitivities holds (split by position; design note, Proposition 12).
        n: Training records.
        m: Test records.
        regularisation: λ.
        width: Of the kernel of the residuals.
        constants: The paper's, or the corrected ones.
    """
    printed = constants == "paper"
    if score == "spearman":
        return 30 / m if printed else spearman_sensitivity(m)
    if score == "kendall":
        return 4 / m if printed else kendall_sensitivity(m)
    change = drift(n, regularisation, constants)
    lipschitz = math.exp(-0.5) / width
    testing = (12 * m - 11) / (m - 1) ** 2 if printed else hsic_sensitivity(m)
    training = 32 * lipschitz * math.sqrt(m) * change if printed else hsic_training_sensitivity(m, change, width)
    return {"test": testing, "train": training, "both": max(testing, training)}[role]


def drift(n: int, regularisation: float, constants: Constants) -> float:
    """Return how far one of ``n`` training records can move a residual."""
    change = residual_change if constants == "corrected" else paper_residual_change
    return change(n, regularisation) * _FLOAT


def distance_to_instability(smallest_gap: float, change: float, constants: Constants) -> int:
    r"""Return a lower bound, of sensitivity 1, on the training records to change before one more can move a rank.

    Ranks stay while every two residuals are more than 2R apart; k changes bring them closer by 2kR at most.

    >>> distance_to_instability(1.0, 0.1, "corrected"), distance_to_instability(0.1, 0.1, "corrected")
    (4, 0)
    """
    steps = smallest_gap / (2 * change)
    return max(0, math.ceil(steps) - 1) if constants == "corrected" else math.floor(steps)


def iqr_looks(role: Role, constants: Constants) -> tuple[int, int]:
    """Return how many log IQRs are released, and by how many the budget is divided for each."""
    if role == "train":
        return 2, 2
    return 4, 3 if constants == "paper" else 4
