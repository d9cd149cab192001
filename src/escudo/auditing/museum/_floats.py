"""Laplace noise in floating point: the last bits of a sum say what was added to what.

The input is one number that moves by at most 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing.museum._piece import Piece, answers_of
from escudo.privacy import Guarantee

__all__ = ["GridLaplace", "NaiveLaplace", "SnappingLaplace"]

_MIRONOV = "Mironov, CCS 2012"


@dataclass(frozen=True, kw_only=True)
class GridLaplace(Piece):
    r"""Discrete Laplace noise on a public grid: whole numbers of steps are added to whole numbers of steps. Correct.

    With s steps to a unit, the noise has :math:`\Pr[k] \propto e^{-\epsilon |k| / s}`. Whole numbers below 2^53 add up
    exactly, so that outputs reachable from one input are reachable from every other.

    Attributes:
        epsilon: The claim.
        steps: Grid steps to a unit; a power of two.
    """

    source = f"{_MIRONOV}; Ghosh, Roughgarden, Sundararajan, STOC 2009"
    epsilon: float = 1.0
    steps: int = 1024

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon)

    @property
    def true_epsilon(self) -> float:
        """ε: an input on the grid moves by ``steps`` steps."""
        return self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        # the difference of two geometric draws is two-sided geometric
        chance = -math.expm1(-self.epsilon / self.steps)
        noise = rng.geometric(chance, size=count) - rng.geometric(chance, size=count)
        return np.asarray((np.rint(answers_of(dataset)[0] * self.steps) + noise) / self.steps)


@dataclass(frozen=True, kw_only=True)
class SnappingLaplace(Piece):
    """Floating-point Laplace noise, rounded to a coarse grid and clamped. Correct.

    Attributes:
        epsilon: The claim.
        bound: Inputs and outputs lie in [-bound, bound].
    """

    source = f"{_MIRONOV}, the snapping mechanism"
    epsilon: float = 1.0
    bound: float = 100.0

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon)

    @property
    def true_epsilon(self) -> float:
        """At most ε by the paper's Theorem 1."""
        return self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        scale = (1 + self.bound * 2.0**-49) / self.epsilon
        grid = 2.0 ** math.ceil(math.log2(scale))
        value = float(np.clip(answers_of(dataset)[0], -self.bound, self.bound))
        sign = 2.0 * rng.integers(2, size=count) - 1
        noisy = value + sign * scale * np.log1p(-rng.random(count))
        return np.asarray(np.clip(np.rint(noisy / grid) * grid, -self.bound, self.bound))


class NaiveLaplace(SnappingLaplace):
    """Floating-point Laplace noise by inversion, as it comes."""

    bug = "Noise drawn and added in floating point reaches different sets of numbers from different true answers."
    source = f"{_MIRONOV}; Casacuberta et al., CCS 2022"

    @property
    def true_epsilon(self) -> float:
        """Infinite: of the numbers near 0, those finer than 2^-53 can come from 0 and not from 1."""
        return math.inf

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return float(answers_of(dataset)[0]) + rng.laplace(scale=1 / self.epsilon, size=count)
