r"""Which query? The sparse vector technique and the noisy maximum, done right and as published wrong.

The input is a vector of query answers; in a neighbour every answer may move by at most 1, in either direction.

*Sparse vector*: which queries lie above a threshold? Noise on the threshold hides all answers of one kind at the price
of one; the broken versions spend that trick where it does not hold. Numbers follow Lyu, Su and Li, *Understanding the
Sparse Vector Technique for Differential Privacy*, PVLDB 10(6), 2017, figure 1. Where the true ε is given, two facts
prove it. (1) Shifting the threshold's noise by 1 costs :math:`e^{\epsilon_1}` and makes every answer "below" at least
as likely. (2) A Laplace tail of scale b changes by at most :math:`e^{1/b}` when its answer moves by 1, and by exactly
that far out; so where nothing stops all k answers from lying far out, k of them give :math:`e^{k/b}`, approached as the
answers move away from the threshold.

*Noisy maximum*: which of several queries has the largest answer? The index may be released, the value may not.
Reference: Ding, Wang, Wang, Zhang and Kifer, *Detecting Violations of Differential Privacy*, CCS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing.museum._piece import PurePiece, answers_of, snap

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_LYU = "Lyu, Su, Li, PVLDB 10(6), 2017"
_DING = "Ding, Wang, Wang, Zhang, Kifer, CCS 2018"


class _HalfForEachQuery(PurePiece):
    """A piece of which each query costs as much as the first: a Laplace tail that moves by ε/2."""

    unbounded = "no ε holds for every number of queries"

    def true_epsilon_of(self, queries: int) -> float:
        """Return kε/2 for k queries: k tails move by ε/2 each; unbounded in k."""
        return queries * self.epsilon / 2


@dataclass(frozen=True, kw_only=True)
class _SparseVector(PurePiece):
    """What all versions share.

    Attributes:
        cutoff: Answers "above" after which it stops.
        threshold: The public threshold.
    """

    cutoff: int = 1
    threshold: float = 0.0


class SparseVector1(_SparseVector):
    """Algorithm 1: threshold noise 1/ε₁ and query noise 2c/ε₂, stops after c answers "above". Correct.

    The output has c columns: the places of the first queries above, NaN where there are fewer. It costs ε₁ for the
    threshold and 2c · ε₂/2c for c answers above; ε is approached as in algorithm 4.
    """

    source = f"{_LYU}, algorithm 1"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        half = self.epsilon / 2
        above = _above(self, dataset, count, rng, threshold_scale=1 / half, query_scale=2 * self.cutoff / half)[0]
        return _places(above, self.cutoff)


class SparseVector2(_SparseVector):
    """Algorithm 2: as algorithm 1, but with c times the threshold noise, drawn anew after each "above". Correct."""

    source = f"{_LYU}, algorithm 2 (Dwork and Roth 2014)"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        half, answers = self.epsilon / 2, answers_of(dataset)
        noisy = answers + rng.laplace(scale=2 * self.cutoff / half, size=(count, answers.size))
        level = self.threshold + rng.laplace(scale=self.cutoff / half, size=count)
        above = np.empty(noisy.shape, dtype=bool)
        for place in range(answers.size):
            above[:, place] = noisy[:, place] >= level
            fresh = self.threshold + rng.laplace(scale=self.cutoff / half, size=count)
            level = np.where(above[:, place], fresh, level)
        return _places(above, self.cutoff)


class SparseVector3(_SparseVector):
    """Algorithm 3: releases the noisy answers that were compared, in c columns after the c places."""

    bug = "The noisy answer that passed the threshold is released, which bounds the threshold's noise from above."
    source = f"{_LYU}, algorithm 3 (Roth's lecture notes 2011)"
    unbounded = "no ε holds for every number of queries"

    def true_epsilon_of(self, queries: int) -> float:
        """Return kε/2c for k queries: far below the threshold, all k tails move by ε/2c each; unbounded in k."""
        return queries * self.epsilon / (2 * self.cutoff)

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        half = self.epsilon / 2
        scales = {"threshold_scale": 1 / half, "query_scale": self.cutoff / half}
        above, noisy = _above(self, dataset, count, rng, **scales)
        return _places_and_values(above, noisy, self.cutoff)


class SparseVector4(_SparseVector):
    """Algorithm 4: query noise 1/ε₂ however many answers "above" are given."""

    bug = "The noise on the queries does not grow with the number of answers above the threshold."
    source = f"{_LYU}, algorithm 4 (Lee and Clifton 2014)"

    @property
    def true_epsilon(self) -> float:
        """(1 + 6c)/4 · ε: ε/4 for the threshold, and 2 · 3ε/4 for each of c answers above.

        Approached when several answers far above the threshold come out below it, and then c far below come out above.
        """
        return (1 + 6 * self.cutoff) / 4 * self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        quarter = self.epsilon / 4
        above = _above(self, dataset, count, rng, threshold_scale=1 / quarter, query_scale=1 / (3 * quarter))[0]
        return _places(above, self.cutoff)


class SparseVector5(_SparseVector):
    """Algorithm 5: no noise on the queries, and no end. The output is 1 above, 0 below."""

    bug = "Only the threshold is noisy, so that two queries with different answers show which one is larger."
    source = f"{_LYU}, algorithm 5 (Stoddard, Chen, Machanavajjhala 2014)"
    unbounded = "answers (0, 1) can give 'below, above', and answers (1, 0) cannot"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.int8]:
        answers = answers_of(dataset)
        level = self.threshold + rng.laplace(scale=2 / self.epsilon, size=(count, 1))
        return (answers >= level).astype(np.int8)


class SparseVector6(_HalfForEachQuery, _SparseVector):
    """Algorithm 6: query noise 1/ε₂, and never stops. The output is 1 above, 0 below."""

    bug = "It never stops, so that every answer above the threshold costs as much as the first."
    source = f"{_LYU}, algorithm 6 (Chen, Xiao, Zhang, Xu 2015)"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.int8]:
        half = self.epsilon / 2
        return _above(self, dataset, count, rng, threshold_scale=1 / half, query_scale=1 / half)[0].astype(np.int8)


class NumericSparseVector(_SparseVector):
    """Answers above the threshold are released with noise of their own, in c columns after the places. Correct.

    A third of ε each for the threshold, the comparisons and the values released.
    """

    source = "Wang, Ding, Wang, Kifer, Zhang, PLDI 2019 (NumericalSVT)"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        third = self.epsilon / 3
        above, noisy = _above(self, dataset, count, rng, threshold_scale=1 / third, query_scale=2 * self.cutoff / third)
        fresh = answers_of(dataset) + rng.laplace(scale=self.cutoff / third, size=noisy.shape)
        return _places_and_values(above, fresh, self.cutoff)


def _above(
    piece: _SparseVector,
    dataset: Any,
    count: int,
    rng: np.random.Generator,
    *,
    threshold_scale: float,
    query_scale: float,
) -> tuple[Flags, Floats]:
    """Return which noisy answers reach the noisy threshold, of shape (count, queries), and those answers."""
    answers = answers_of(dataset)
    level = piece.threshold + rng.laplace(scale=threshold_scale, size=(count, 1))
    noisy = answers + rng.laplace(scale=query_scale, size=(count, answers.size))
    return noisy >= level, noisy


def _places(above: Flags, cutoff: int) -> Floats:
    """Return the places of the first ``cutoff`` queries above, in order, NaN where there are fewer."""
    queries = above.shape[1]
    order = np.argsort(~above, axis=1, kind="stable")[:, :cutoff]
    found = np.arange(order.shape[1]) < above.sum(axis=1, keepdims=True)
    places = np.where(found, order, np.nan)
    return np.pad(places, ((0, 0), (0, max(cutoff - queries, 0))), constant_values=np.nan)


def _places_and_values(above: Flags, values: Floats, cutoff: int) -> Floats:
    places = _places(above, cutoff)
    where = np.nan_to_num(places).astype(np.intp)
    found = np.take_along_axis(snap(values), where, axis=1)
    return np.concatenate([places, np.where(np.isnan(places), np.nan, found)], axis=1)


class _NoisyMax(PurePiece):
    """What all versions share: noise of scale 2/ε on every answer, Laplace or exponential."""

    def with_laplace(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        answers = answers_of(dataset)
        return answers + rng.laplace(scale=2 / self.epsilon, size=(count, answers.size))

    def with_exponential(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        answers = answers_of(dataset)
        return answers + rng.exponential(scale=2 / self.epsilon, size=(count, answers.size))


class NoisyMaxLaplace(_NoisyMax):
    """Releases the index of the largest answer with Laplace noise. Correct.

    With the other noises held fixed, the winner's noise shifts by 2 at most; ε is attained far apart.
    """

    source = f"{_DING}, report noisy max"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
        return np.asarray(np.argmax(self.with_laplace(dataset, count, rng), axis=1))


class NoisyMaxExponential(_NoisyMax):
    """Releases the index of the largest answer with exponential noise. Correct."""

    source = f"{_DING}, report noisy max with exponential noise"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
        return np.asarray(np.argmax(self.with_exponential(dataset, count, rng), axis=1))


class NoisyMaxValueLaplace(_HalfForEachQuery, _NoisyMax):
    """Releases the largest noisy answer itself, Laplace noise: it is below v when all answers are."""

    bug = "The largest noisy answer is released instead of its index, and all answers have moved it."
    source = f"{_DING}, noisy max that returns the value"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        return snap(np.max(self.with_laplace(dataset, count, rng), axis=1))


class NoisyMaxValueExponential(_NoisyMax):
    """Releases the largest noisy answer itself, exponential noise."""

    bug = "The largest noisy answer is released, and exponential noise never lies below the largest true answer."
    source = f"{_DING}, noisy max with exponential noise that returns the value"
    unbounded = "values between the largest answers of two neighbours are possible under one of them only"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        return snap(np.max(self.with_exponential(dataset, count, rng), axis=1))
