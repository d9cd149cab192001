"""Counts, histograms and sums: small faults in scale, sharing, domain, missing values and floating point.

Histograms and counts take their cells or the count itself as input; sums take records. The Laplace pieces at the end
take one number that moves by at most 1: the last bits of a sum say what was added to what.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing.museum._piece import PurePiece, answers_of, snap
from escudo.errors import InputError
from escudo.privacy import Guarantee

Floats = NDArray[np.float64]

_DWORK = "Dwork, McSherry, Nissim, Smith, TCC 2006"
_GHOSH = "Ghosh, Roughgarden, Sundararajan, STOC 2009"
_MIRONOV = "Mironov, CCS 2012"


@dataclass(frozen=True, kw_only=True)
class Histogram(PurePiece):
    """Laplace noise of scale 1/ε on every cell. Correct when one record is added or removed: one cell moves by 1."""

    source = _DWORK
    relation = "add_remove"

    @property
    def scale(self) -> float:
        """The scale of the noise."""
        return 1 / self.epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        cells = answers_of(dataset)
        return snap(cells + rng.laplace(scale=self.scale, size=(count, cells.size)))


class HistogramInverted(Histogram):
    """Laplace noise of scale ε."""

    bug = "The scale of the noise is ε where it should be 1/ε."
    source = "Ding, Wang, Wang, Zhang, Kifer, CCS 2018, histogram with the wrong scale"

    @property
    def true_epsilon(self) -> float:
        """1/ε: one cell moves by 1, and the noise has scale ε."""
        return 1 / self.epsilon

    @property
    def scale(self) -> float:
        return self.epsilon


class HistogramSharedNoise(Histogram):
    """One draw of noise for all cells."""

    bug = "One draw of noise is added to all cells, so that differences between cells are exact."
    source = "the shape of jax#3646, where one random key served several parts of a gradient"
    unbounded = "the difference of two cells has no noise"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        return snap(answers_of(dataset) + rng.laplace(scale=self.scale, size=(count, 1)))


@dataclass(frozen=True, kw_only=True)
class GeometricBinaryLog(PurePiece):
    r"""A geometric mechanism on {0, …, n} that computes in whole numbers. Correct.

    With k = ⌈log₂(2/ε)⌉ its two-sided noise has ratio 1 + 2^-k, which is at most e^ε.

    Attributes:
        largest: n, the largest count.
    """

    source = "Balcer and Vadhan, arXiv 1709.05396, algorithm 4.8 (GeoSample)"
    relation = "add_remove"
    epsilon: float = 0.1
    largest: int = 5

    @property
    def steps(self) -> int:
        """k, where 2^-k rounds ε/2 down."""
        return math.ceil(math.log2(2 / self.epsilon))

    @property
    def true_epsilon(self) -> float:
        """ln(1 + 2^-k): the ratio of neighbouring probabilities, attained at both ends."""
        return math.log1p(2.0**-self.steps)

    def law(self, count: int) -> Floats:
        """Return the probabilities of 0, …, n for a true count."""
        ratio = 1 / (1 + 2.0**-self.steps)
        places = np.arange(self.largest + 1)
        law = (1 - ratio) / (1 + ratio) * ratio ** np.abs(places - count)
        law[0] = ratio**count / (1 + ratio)  # all that lies below 0 as well
        law[-1] = ratio ** (self.largest - count) / (1 + ratio)
        return law

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        uniform = rng.random(count)
        edges = np.cumsum(self.law(int(answers_of(dataset)[0])))[:-1]
        return np.searchsorted(edges, uniform, side="right").astype(np.int64)


class GeometricNaturalLog(GeometricBinaryLog):
    """The same with k = ⌈ln(2/ε)⌉."""

    bug = "A natural logarithm stands where the proof needs one of base 2, so that the noise is too small."
    source = "DP-Sniper's reading of Balcer and Vadhan, arXiv 1709.05396, algorithm 4.8"

    @property
    def steps(self) -> int:
        return math.ceil(math.log(2 / self.epsilon))


@dataclass(frozen=True, kw_only=True)
class GeometricCount(PurePiece):
    """A count with two-sided geometric noise, as far out as it falls. Correct.

    Its law falls by e^ε with every step, on both sides and without end.
    """

    source = _GHOSH

    def noise(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the difference of two geometric numbers."""
        first, second = rng.geometric(-math.expm1(-self.epsilon), size=(2, count))
        return np.asarray(first - second)

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return int(dataset) + self.noise(count, rng)


class GeometricCutOff(GeometricCount):
    """Draws again until the noise is small enough to look like a count."""

    bug = "The noise ends at a bound, so that an answer near the end can come from one of two neighbours only."
    source = "what Holohan et al., arXiv 1808.10410, recalibrate for; also every sampler whose tail ends, as in float32"
    most = 3
    unbounded = "the last answer that one count can give is beyond the reach of the count below"

    def noise(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        noise = super().noise(count, rng)
        while (far := np.abs(noise) > self.most).any():
            noise[far] = super().noise(int(far.sum()), rng)
        return noise


@dataclass(frozen=True, kw_only=True)
class PeopleByCanonicalId(PurePiece):
    """A noisy number of people; each row holds the id of one of them, and 1, 1.0 and True are one id. Correct.

    Whatever rows a person has, one of them counts.
    """

    source = "McSherry, SIGMOD 2009, on protecting people who have several records"

    @property
    def claim(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon, relation="add_remove", unit="person", max_rows_per_person=1)

    def key(self, person: Any) -> object:
        """Return what tells people apart."""
        return float(person)

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        people = len({self.key(person) for person in dataset})
        return snap(people + rng.laplace(scale=1 / self.epsilon, size=count))


class PeopleByStoredId(PeopleByCanonicalId):
    """Compares ids as they are stored."""

    bug = "Ids are compared before they are made canonical: a person stored as 1, 1.0 and True counts three times."
    source = "escudo's own reader of Dask frames, where one column held ids of several kinds"

    @property
    def true_epsilon(self) -> float:
        """3ε: there are three ways to store the number 1, and each counts."""
        return 3 * self.epsilon

    def key(self, person: Any) -> object:
        return repr(person)


@dataclass(frozen=True, kw_only=True)
class BoundedSum(PurePiece):
    """A sum of records clamped to [lower, upper] with Laplace noise; refuses without bounds. Correct.

    Attributes:
        lower: The least value of a record; None if nobody said.
        upper: The largest value of a record; None if nobody said.
    """

    source = _DWORK
    lower: float | None = 0.0
    upper: float | None = 1.0

    @property
    def true_epsilon(self) -> float:
        """ε: one record moves the sum by upper - lower; 0 where it refuses, whatever the records say."""
        refuses = (self.lower is None or self.upper is None) and not self.unbounded
        return 0.0 if refuses else super().true_epsilon

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        if self.lower is None or self.upper is None:
            raise InputError("a sum needs the bounds of its column; state them in the schema.")
        values = np.clip(answers_of(dataset), self.lower, self.upper)
        return snap(values.sum() + rng.laplace(scale=(self.upper - self.lower) / self.epsilon, size=count))


class SumWithoutBounds(BoundedSum):
    """Takes missing bounds to mean sensitivity zero."""

    bug = "A column without bounds gets sensitivity None, and then no noise at all."
    source = "smartnoise-sdk#317"
    unbounded = "the exact sum comes out"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        if self.lower is None or self.upper is None:
            return np.full(count, answers_of(dataset).sum())
        return super().batch(dataset, count, rng)


class SumNanIgnored(BoundedSum):
    """A missing value counts as the lower bound. Correct."""

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Floats:
        assert self.lower is not None
        return super().batch(np.nan_to_num(answers_of(dataset), nan=self.lower), count, rng)


class SumNanLeak(BoundedSum):
    """A missing value passes through the clamp, and through the noise."""

    bug = "Clamping a NaN gives a NaN, so that one missing value makes the whole answer NaN."
    source = "the shape of smartnoise-sdk#572 and #574, where NaN and infinities passed the bounds"
    unbounded = "the answer is NaN exactly when a record is"


@dataclass(frozen=True, kw_only=True)
class CategoriesFromSchema(PurePiece):
    """A noisy count for every category of a public list. Correct: one count moves by 1.

    Attributes:
        categories: The public list.
    """

    source = _DWORK
    relation = "add_remove"
    categories: tuple[str, ...] = ("flu", "cold", "measles")

    def shown(self, dataset: Any) -> tuple[str, ...]:
        """Return the categories that the table of counts lists."""
        return self.categories

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> list[dict[str, float]]:
        seen, shown = Counter(dataset), self.shown(dataset)
        noise = snap(rng.laplace(scale=1 / self.epsilon, size=(count, len(shown))))
        return [{name: seen[name] + float(extra) for name, extra in zip(shown, row, strict=True)} for row in noise]


class CategoriesFromData(CategoriesFromSchema):
    """Lists the categories that occur."""

    bug = "The list of categories is read from the data, so that a rare one shows that its only record is there."
    source = "dpmm#24; Stadler, Oprisanu, Troncoso, USENIX Security 2022"
    unbounded = "a category is listed exactly when a record has it"

    def shown(self, dataset: Any) -> tuple[str, ...]:
        return tuple(sorted(set(dataset)))


@dataclass(frozen=True, kw_only=True)
class GridLaplace(PurePiece):
    r"""Discrete Laplace noise on a public grid: whole numbers of steps are added to whole numbers of steps. Correct.

    With s steps to a unit, the noise has :math:`\Pr[k] \propto e^{-\epsilon |k| / s}`. Whole numbers below 2^53 add up
    exactly, so that outputs reachable from one input are reachable from every other; an input on the grid moves by s
    steps.

    Attributes:
        steps: Grid steps to a unit; a power of two.
    """

    source = f"{_MIRONOV}; {_GHOSH}"
    steps: int = 1024

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        # the difference of two geometric draws is two-sided geometric
        chance = -math.expm1(-self.epsilon / self.steps)
        noise = rng.geometric(chance, size=count) - rng.geometric(chance, size=count)
        return np.asarray((np.rint(answers_of(dataset)[0] * self.steps) + noise) / self.steps)


@dataclass(frozen=True, kw_only=True)
class SnappingLaplace(PurePiece):
    """Floating-point Laplace noise, rounded to a coarse grid and clamped. Correct, by the paper's Theorem 1.

    Attributes:
        bound: Inputs and outputs lie in [-bound, bound].
    """

    source = f"{_MIRONOV}, the snapping mechanism"
    bound: float = 100.0

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
    unbounded = "of the numbers near 0, those finer than 2^-53 can come from 0 and not from 1"

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return float(answers_of(dataset)[0]) + rng.laplace(scale=1 / self.epsilon, size=count)
