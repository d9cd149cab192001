"""What the paper's method does with the data: Algorithm 1, then noisy scores, stable ranks, or stable ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from escudo.mechanisms import Seed, laplace, propose_test_release, publishable
from escudo.orientation._answer import Direction
from escudo.orientation._gap import WIDTH
from escudo.orientation._gap_answer import Question
from escudo.orientation._gap_probability import LARGEST_GAP, certainty
from escudo.orientation._pair import PairData
from escudo.orientation._paper_constants import (
    Constants,
    Role,
    distance_to_instability,
    drift,
    iqr_looks,
    score_sensitivity,
)
from escudo.orientation._regression import Floats, fit_kernel_ridge
from escudo.orientation._regression_data import Pair, check_rows, in_two, scaled
from escudo.orientation._scores import kendall, spearman
from escudo.orientation._scores_iqr import interquartile_range, log_iqr_with_drift
from escudo.orientation._scores_kernel import GridFeatures, sqrt_hsic
from escudo.privacy import Account, LaplaceEvent, Plan

__all__ = ["PaperPrepared", "Residuals", "residuals", "two_scores"]

RIDGE_WIDTH = 0.3
"""Width of the regressions' kernel on [-1, 1]; the paper names none."""

_BIN = 1.0  # width of the bins of log IQR: a factor e, as in the paper
_EXACT = 1e-9  # where ranks are stable they move by 0, so any number above it bounds them; it only costs noise
_EXACT_SHARE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Residuals:
    """The test records with their residuals: private."""

    x: Floats
    y: Floats
    of_y: Floats
    of_x: Floats


def residuals(train: Pair, test: Pair, *, regularisation: float, width: float = RIDGE_WIDTH) -> Residuals:
    """Return Algorithm 1 up to its residuals: both regressions on ``train``, both residuals on ``test``."""
    f = fit_kernel_ridge(train.x, train.y, regularisation=regularisation, width=width)
    g = fit_kernel_ridge(train.y, train.x, regularisation=regularisation, width=width)
    return Residuals(x=test.x, y=test.y, of_y=test.y - f(test.x), of_x=test.x - g(test.y))


def two_scores(score: str, found: Residuals, *, width: float = WIDTH) -> tuple[float, float]:
    """Return s(x, r_Y) and s(y, r_X) for a score other than ``"iqr"``: private; lower means more likely the cause."""
    if score in ("spearman", "kendall"):
        measure = spearman if score == "spearman" else kendall
        return measure(found.x, found.of_y), measure(found.y, found.of_x)
    inputs, outputs = GridFeatures(-1.0, 1.0, width), GridFeatures(-2.0, 2.0, width)
    return sqrt_hsic(found.x, found.of_y, inputs, outputs) ** 2, sqrt_hsic(found.y, found.of_x, inputs, outputs) ** 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperPrepared:
    """The paper's method with everything chosen from public facts; ``_paper.py`` says what it promises.

    Attributes:
        question: What was asked, with the plan.
        epsilon: The paper's claim, for the whole answer.
        delta: The paper's claim, for the whole answer.
        rows: The public number of rows.
        role: What the private records are used for.
        public: The public records, or None with role ``"both"``.
        shuffle: Public seed of the split.
        regularisation: λ.
        width: Width of the kernels of HSIC.
        constants: The paper's, or the corrected ones.
    """

    question: Question
    epsilon: float
    delta: float
    rows: int
    role: Role
    public: Pair | None
    shuffle: int
    regularisation: float
    width: float
    constants: Constants

    @property
    def plan(self) -> Plan:
        """All that ``run`` will spend."""
        return self.question.plan

    def run(self, pairs: PairData, *, account: Account, seed: Seed) -> Direction:
        """Read the pairs and answer; the account is charged for the whole plan before noise is drawn.

        Raises:
            InputError: If the table, or the public records, are not as many as was stated.
        """
        if self.plan.event is None:
            return self.question.no_answer("Nothing was spent.", seed=seed)
        check_rows(self.rows, pairs.rows)
        private = scaled(pairs)
        if self.public is None:
            train, test = in_two(private, shuffle=self.shuffle)
        else:
            train, test = (self.public, private) if self.role == "test" else (private, self.public)
        found = residuals(train, test, regularisation=self.regularisation)
        account.spend(self.plan.event, purpose="direction (paper)", for_release=publishable(seed))
        if self.question.score == "iqr":
            return self._ranges(found, len(train.x), seed)
        if self.role == "train" and self.question.score != "hsic":
            return self._stable_ranks(found, len(train.x), seed)
        return self._noisy_scores(found, len(train.x), seed)

    def _noisy_scores(self, found: Residuals, n: int, seed: Seed) -> Direction:
        event = self.plan.event
        assert isinstance(event, LaplaceEvent)
        released = laplace(
            np.array(two_scores(self.question.score, found, width=self.width)),
            sensitivity=2 * self._sensitivity(n, len(found.x)),
            epsilon=self.epsilon,
            seed=seed,
        )
        assert released.event == event
        forward, backward = np.asarray(released.value, dtype=np.float64).tolist()
        return self._answer(forward, backward, event.scale, 2, seed)

    def _stable_ranks(self, found: Residuals, n: int, seed: Seed) -> Direction:
        change = drift(n, self.regularisation, self.constants)
        scores = two_scores(self.question.score, found, width=self.width)
        released = [
            propose_test_release(
                value,
                1 + distance_to_instability(_smallest_gap(values), change, self.constants),
                sensitivity=_EXACT,
                epsilon=self.epsilon / 2,
                delta=self.delta / 2,
                release_share=_EXACT_SHARE,
                seed=seed,
            ).value
            for value, values in zip(scores, (found.of_y, found.of_x), strict=True)
        ]
        forward, backward = released
        if forward is None or backward is None:
            return self.question.no_answer(
                "One record of the training set could change the ranks of the residuals: no score is released.",
                seed=seed,
            )
        return self._answer(forward, backward, 2 * _EXACT / (_EXACT_SHARE * self.epsilon), 2, seed)

    def _ranges(self, found: Residuals, n: int, seed: Seed) -> Direction:
        looks, parts = iqr_looks(self.role, self.constants)
        change = 0.0 if self.role == "test" else drift(n, self.regularisation, self.constants)
        logs: list[float] = []
        for values, bound, moved in (
            (found.x, 1.0, 0.0),
            (found.of_y, 2.0, change),
            (found.y, 1.0, 0.0),
            (found.of_x, 2.0, change),
        ):
            if looks == 2 and bound == 1.0:  # of public records
                logs.append(math.log(max(interquartile_range(values), 1e-3)))
                continue
            read = log_iqr_with_drift(
                values, lower=-bound, upper=bound, width=_BIN, drift=moved, values_private=self.role != "train"
            )
            log = propose_test_release(
                read.value,
                read.distances,
                sensitivity=_BIN,
                epsilon=self.epsilon / parts,
                delta=self.delta / parts,
                seed=seed,
            ).value
            if log is None:
                why = "An interquartile range is not stable enough at this ε and δ: it is not released."
                return self.question.no_answer(why, seed=seed)
            logs.append(log)
        x, of_y, y, of_x = logs
        return self._answer(x + of_y, y + of_x, 3 * parts * _BIN / self.epsilon, looks, seed)

    def _answer(self, forward: float, backward: float, scale: float, noises: int, seed: Seed) -> Direction:
        asked = self.question
        margin = backward - forward
        return asked.answer(
            margin,
            noise_scale=scale * math.sqrt(noises),  # of one Laplace variable with as large a variance
            certainty=certainty(margin, scale, noises=noises, largest=LARGEST_GAP.get(asked.score, math.inf)),
            scores={f"{asked.x}->{asked.y}": forward, f"{asked.y}->{asked.x}": backward},
            scores_mean=f"{asked.score} of each direction, with noise: lower is more likely the right one",
            seed=seed,
        )

    def _sensitivity(self, n: int, m: int) -> float:
        return score_sensitivity(
            self.question.score,
            self.role,
            n=n,
            m=m,
            regularisation=self.regularisation,
            width=self.width,
            constants=self.constants,
        )


def _smallest_gap(values: Floats) -> float:
    return float(np.min(np.diff(np.sort(values))))
