r"""Gaussian noise on the sum of a Poisson sample, as in DP-SGD: the event and its exact curve.

Every row is drawn with probability q by itself; the drawn rows' vectors, each of length at most C, are summed, and
Gaussian noise of standard deviation σC is added to each coordinate. Lengths are in units of σC from here on, so that
the noise is standard normal, and a row's vector has length at most m = 1/σ.

**Worst case.** Let r rows change. Given which of the other rows are drawn, the output is :math:`P = \sum_j b_j
N(g_j)` for one table and :math:`Q = \sum_j b_j N(g'_j)` for the other, where :math:`b_j` is the binomial probability
that j of the r rows are drawn, :math:`\|g_j\|, \|g'_j\| \le jm`, and a common shift is left out (sets of drawn rows of
equal size are averaged over; what follows holds for each). Under ``add_remove`` all :math:`g'_j` are 0. For a set A of
mass a under N(0), Neyman and Pearson give

.. math:: N(g)(A) \le Φ(Φ^{-1}(a) + \|g\|), \qquad N(g)(A) \ge Φ(Φ^{-1}(a) - \|g\|),

both with equality for a half-line in one dimension. So P(A) - e^ε Q(A) is at most what the half-line of mass a gives
for the pair on the line

.. math:: P^* = \sum_j b_j N(jm, 1), \qquad Q^* = N(0, 1) \;\text{or}\; \sum_j b_j N(-jm, 1),

for every real ε, and in both orders. Hence this pair dominates the step, for the relation ``add_remove`` or
``replace_one``, and composition of steps is composition of this pair (Zhu, Dong, Wang 2022, Theorem 10). Mixing over
the other rows' draws does not raise it, by joint convexity.

**Curve.** log(P*/Q*) grows along the line, so the best set is a half-line {x > t} (or {x < t} in the other order) that
ends where the loss is ε: δ(ε) is a difference of normal tails. For one row t has a closed form.

**References.** M. Abadi et al. (2016), "Deep learning with differential privacy", CCS; Y. Zhu, J. Dong, Y.-X. Wang
(2022), "Optimal accounting of differential privacy via characteristic function", AISTATS; I. Mironov, K. Talwar,
L. Zhang (2019), "Rényi differential privacy of the sampled Gaussian mechanism", arXiv:1908.10530.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self, cast

import numpy as np

from escudo._validate import positive, probability
from escudo.errors import InputError
from escudo.privacy._conversions import FloatArray
from escudo.privacy._event import MAX_EPSILON, Event, check_count, put

__all__ = ["SampledGaussianEvent", "SampledPair"]

_TAIL = 10.8  # standard deviations that are exceeded with probability below 1e-26
_POINTS = 6_000  # of the quadrature for Rényi divergences, at most
_MAX_ORDER = 256.0
_MAX_ROWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussianEvent(Event):
    """Gaussian noise was added to the sum of clipped vectors over a Poisson sample of the rows.

    Attributes:
        noise_multiplier: Standard deviation of the noise on each coordinate, over the bound on a row's vector.
        sampling_probability: The chance with which each row was drawn, independently of all others.
        rows: How many rows change between neighbours: 1, or all that a person or a group may have; by default
            ``max_rows_per_person``, or 1.
    """

    kind: ClassVar[str] = "sampled_gaussian"

    noise_multiplier: float
    sampling_probability: float
    rows: int = cast(int, None)  # one person's, unless more are given

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        one = self.max_rows_per_person or 1
        put(
            self,
            noise_multiplier=positive("noise_multiplier", self.noise_multiplier),
            sampling_probability=probability("sampling_probability", self.sampling_probability, allow_one=True),
            rows=one if self.rows is None else check_count("rows", self.rows),
        )
        if self.rows < one:
            raise InputError(
                f"rows must be at least max_rows_per_person ({one}): all rows of one person change; got {self.rows}."
            )
        if self.rows > _MAX_ROWS:
            raise InputError(f"rows must be at most {_MAX_ROWS:,}: nothing useful is promised to larger groups.")
        if self.rows > self.noise_multiplier * MAX_EPSILON:
            raise InputError(
                f"noise_multiplier must be at least {self.rows / MAX_EPSILON:g} where {self.rows} rows change: less "
                "would protect nobody."
            )

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times as many rows changing."""
        return replace(self, rows=self.rows * check_count("steps", steps))

    def _replacing(self) -> SampledGaussianEvent:
        # Removing r rows and adding r others is, in place, r rows replaced.
        return replace(self, relation="replace_one")

    @property
    def pair(self) -> SampledPair:
        """The pair of distributions that dominates the release."""
        return SampledPair(
            shift=1 / self.noise_multiplier * (1 + 1e-15),
            q=self.sampling_probability,
            rows=self.rows,
            both=self.relation == "replace_one",
        )


@dataclass(frozen=True, slots=True)
class SampledPair:
    """P* and Q* on the line: mixtures of normals, j shifts to the right, and none or j to the left.

    Attributes:
        shift: How far one drawn row moves the output, in standard deviations of the noise.
        q: The chance that a row is drawn.
        rows: How many rows may be.
        both: Whether the other table has as many rows in their place (``replace_one``).
    """

    shift: float
    q: float
    rows: int
    both: bool

    @property
    def gaussian_mu(self) -> float:
        """The distance between the tables' outputs where all rows are drawn."""
        return self.shift * self.rows * (2 if self.both else 1)

    @property
    def top(self) -> float:
        """A loss that is exceeded with negligible probability, in either order."""
        far = self._loss(np.array([self._centres[-1] + _TAIL]))[0]
        back = -self._loss(np.array([-self._centres[-1] * self.both - _TAIL]))[0]
        return float(max(far, back)) * (1 + 1e-9)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Return the larger δ(ε) of the two orders."""
        if self.both:
            return self.forward(epsilons)
        return np.maximum(self.forward(epsilons), self.backward(epsilons))

    def forward(self, epsilons: FloatArray) -> FloatArray:
        """Return δ(ε) for P* against Q*, for any real ε; never below the truth."""
        from scipy.special import ndtr  # slow to import

        t = self._end(epsilons)
        upper = _mixed(self._weights, ndtr(self._centres[:, None] - t))
        lower = _mixed(self._weights, ndtr(-self._centres[:, None] - t)) if self.both else ndtr(-t)
        return _difference(upper, epsilons, lower)

    def backward(self, epsilons: FloatArray) -> FloatArray:
        """Return δ(ε) for Q* against P*, for any real ε; never below the truth."""
        from scipy.special import ndtr

        if self.both:
            return self.forward(epsilons)  # mirrored, they are each other
        t = self._end(-epsilons)
        return _difference(ndtr(t), epsilons, _mixed(self._weights, ndtr(t - self._centres[:, None])))

    def renyi(self, orders: FloatArray) -> FloatArray:
        r"""Return the larger Rényi divergence of the two orders at each α, by the trapezoidal rule.

        :math:`(α - 1) D_α = \log \int Q^{1-α} P^{α}`, with an integrand that is analytic in a strip of half-width π/m,
        so the rule's error falls like :math:`e^{-2π^2/(mh)}`. Orders too large for that get the divergence without
        sampling, :math:`αμ^2/2`: mixing lowers it.
        """
        whole = orders * (self.gaussian_mu**2 / 2)
        step = min(0.25, 0.25 / self._centres[-1]) if self.rows > 1 else min(0.25, 0.4 / self.shift)
        reach = self._centres[-1]
        largest = min(_MAX_ORDER, (step * _POINTS - 4 * _TAIL) / reach)
        some = orders < largest
        if not some.any():
            return whole
        near = orders[some]
        x = np.arange(-2 * reach - 2 * _TAIL, near.max() * reach + 2 * _TAIL, step)
        loss = self._loss(x)
        log_q = -(x**2) / 2 - math.log(2 * math.pi) / 2
        if self.both:
            log_q = log_q + self._log_ratio(-x)
        scale = math.log(step)
        there = _log_sum(near[:, None] * loss + log_q) + scale
        back = _log_sum((1 - near)[:, None] * loss + log_q) + scale
        found = whole.copy()
        # The sums are close to 1 where little is lost: their logarithm is known to 1e-13 or so.
        found[some] = np.minimum((np.maximum(there, back) + 1e-12) / (near - 1), whole[some])
        return np.maximum(found, 0.0)

    @property
    def _weights(self) -> FloatArray:
        """The chance of each number of drawn rows."""
        if self.rows == 1:
            return np.array([1 - self.q, self.q])
        from scipy.stats import binom

        weights = np.asarray(binom.pmf(np.arange(self.rows + 1), self.rows, self.q), dtype=np.float64)
        total: FloatArray = weights / weights.sum()
        return total

    @property
    def _centres(self) -> FloatArray:
        return np.arange(self.rows + 1, dtype=np.float64) * self.shift

    def _log_ratio(self, x: FloatArray) -> FloatArray:
        """Return log(P*/N(0, 1)) at x."""
        with np.errstate(divide="ignore"):
            terms = np.log(self._weights)[:, None] + self._centres[:, None] * (x - self._centres[:, None] / 2)
        return _log_sum(terms.T)

    def _loss(self, x: FloatArray) -> FloatArray:
        """Return log(P*/Q*) at x; it grows with x."""
        found = self._log_ratio(x)
        return found - self._log_ratio(-x) if self.both else found

    def _end(self, epsilons: FloatArray) -> FloatArray:
        """Return where the loss is ε; -∞ where it is above ε everywhere. In logarithms, because e^{-m²/2} may be 0."""
        m, q = self.shift, self.q
        if self.rows > 1:
            return self._searched(epsilons)
        size = np.abs(epsilons)
        with np.errstate(divide="ignore", invalid="ignore"):
            if not self.both:
                # e^{mx - m²/2} = (e^ε - (1 - q)) / q: 1 + (e^ε - 1)/q where that is near 1, else without overflow.
                near = np.log1p(np.expm1(np.minimum(epsilons, 1.0)) / q)
                far = size - math.log(q) + np.log1p(-(1 - q) * np.exp(-size))
                odds = np.where(epsilons < 1, near, far)
                return np.where(np.isnan(odds), -np.inf, odds / m + m / 2)
            # c y² - b y - c e^ε = 0 for y = e^{mx}, b = (1 - q)(e^ε - 1) and c = q e^{-m²/2}; mirrored for ε < 0.
            b, c = math.log1p(-q) + size + np.log(-np.expm1(-size)), math.log(q) - m * m / 2
            y = np.logaddexp(b, np.logaddexp(2 * b, math.log(4) + 2 * c + size) / 2) - math.log(2) - c
            return np.sign(epsilons) * y / m

    def _searched(self, epsilons: FloatArray) -> FloatArray:
        """Return where the loss is ε, by Newton's method from a table; an error there counts squared in δ."""
        ends = 3 * _TAIL + self._centres[-1]
        table = np.linspace(-ends, ends, 2**14)
        losses = self._loss(table)
        x = np.interp(epsilons, losses, table)
        h = 1e-5
        for _ in range(3):
            slope = (self._loss(x + h) - self._loss(x - h)) / (2 * h)
            x = np.clip(x - (self._loss(x) - epsilons) / np.maximum(slope, 1e-12), -ends, ends)
        return np.where(epsilons <= losses[0], -np.inf, x)


def _mixed(weights: FloatArray, tails: FloatArray) -> FloatArray:
    mixed: FloatArray = weights @ tails
    return mixed


def _difference(upper: FloatArray, epsilons: FloatArray, lower: FloatArray) -> FloatArray:
    """Return upper - e^ε lower, rounded up and within [0, 1]."""
    taken = np.exp(np.minimum(epsilons, 700.0)) * lower
    error = 4e-15 * (upper + np.minimum(taken, upper)) * (1 + np.abs(epsilons))
    deltas: FloatArray = np.clip(upper - taken + error, 0.0, 1.0)
    return deltas


def _log_sum(terms: FloatArray) -> FloatArray:
    """Return log Σ exp over the last axis."""
    top = terms.max(axis=-1, keepdims=True)
    total: FloatArray = np.log(np.exp(terms - top).sum(axis=-1)) + top[..., 0]
    return total
