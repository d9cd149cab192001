"""The noisy maximum: which of several queries has the largest answer? The index may be released, the value may not.

The input is a vector of k query answers; in a neighbour every answer may move by at most 1, in either direction.
Reference: Ding, Wang, Wang, Zhang and Kifer, *Detecting Violations of Differential Privacy*, CCS 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing.museum._piece import Piece, answers_of, snapped
from escudo.privacy import Guarantee

__all__ = ["NoisyMaxExponential", "NoisyMaxLaplace", "NoisyMaxValueExponential", "NoisyMaxValueLaplace"]

_DING = "Ding, Wang, Wang, Zhang, Kifer, CCS 2018"


@dataclass(frozen=True, kw_only=True)
class _NoisyMax(Piece):
    """What all versions share: noise of scale 2/ε on every answer.

    Attributes:
        epsilon: The claim.
    """

    epsilon: float = 1.0

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon)


class NoisyMaxLaplace(_NoisyMax):
    """Releases the index of the largest answer with Laplace noise. Correct."""

    source = f"{_DING}, report noisy max"

    @property
    def true_epsilon(self) -> float:
        """ε: with the other noises held fixed, the winner's noise shifts by 2 at most; attained far apart."""
        return self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
        return np.asarray(np.argmax(_with_laplace(self, dataset, count, rng), axis=1))


class NoisyMaxExponential(_NoisyMax):
    """Releases the index of the largest answer with exponential noise. Correct."""

    source = f"{_DING}, report noisy max with exponential noise"

    @property
    def true_epsilon(self) -> float:
        return self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
        return np.asarray(np.argmax(_with_exponential(self, dataset, count, rng), axis=1))


class NoisyMaxValueLaplace(_NoisyMax):
    """Releases the largest noisy answer itself, Laplace noise."""

    bug = "The largest noisy answer is released instead of its index, and all answers have moved it."
    source = f"{_DING}, noisy max that returns the value"

    def true_epsilon_of(self, queries: int) -> float:
        """Return kε/2 for k queries: the maximum is below v when all are, and each of k tails moves by ε/2."""
        return queries * self.epsilon / 2

    @property
    def true_epsilon(self) -> float:
        """No ε holds for every number of queries."""
        return math.inf

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return snapped(np.max(_with_laplace(self, dataset, count, rng), axis=1))


class NoisyMaxValueExponential(_NoisyMax):
    """Releases the largest noisy answer itself, exponential noise."""

    bug = "The largest noisy answer is released, and exponential noise never lies below the largest true answer."
    source = f"{_DING}, noisy max with exponential noise that returns the value"

    @property
    def true_epsilon(self) -> float:
        """Infinite: values between the largest answers of two neighbours are possible under one of them only."""
        return math.inf

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return snapped(np.max(_with_exponential(self, dataset, count, rng), axis=1))


def _with_laplace(piece: _NoisyMax, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    answers = answers_of(dataset)
    return answers + rng.laplace(scale=2 / piece.epsilon, size=(count, answers.size))


def _with_exponential(piece: _NoisyMax, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    answers = answers_of(dataset)
    return answers + rng.exponential(scale=2 / piece.epsilon, size=(count, answers.size))
