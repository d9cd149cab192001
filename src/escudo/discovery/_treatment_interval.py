r"""Intervals for an adjusted effect from noisy strata: profile likelihood, with sampling and privacy noise in one.

In stratum z and arm t the release gives :math:`X_{zt} ≈ (A, B)`: the outcome's share of the rows and the rest of them,
so that :math:`N_{zt} = A + B` is their number and :math:`m_{zt} = A / N_{zt}` their mean outcome in [0, 1]; and
:math:`R_z`, the rows of the stratum in neither arm. All of them carry known noise beside chance (counts are taken as
Poisson: shares of them do not depend on the total). The contrast τ solves

.. math:: g(τ) = \sum_z N_z \left( \sum_t s_t m_{zt} - τ \right) = 0, \qquad N_z = \sum_t N_{zt} + R_z,

with signs s of +1 for the treated arm and -1 for the control arm (one arm alone gives its mean). The interval holds all
τ for which some table with g(τ) = 0 and means in [0, 1] lies within the critical distance of what was measured,

.. math:: D(τ) = \min_{g(τ) = 0} \sum_z D_z, \qquad D(τ) - \min D \le χ^2_1(\text{confidence}),

where D_z is the squared distance in units of the noise. Nothing is divided by a noisy count, so small strata do no harm
but widen the interval: where an arm is lost in the noise its mean may be anything in [0, 1], at no cost in D. Numbers
of rows may come out negative: forcing each of them up to zero would add rows that are not there, and these add up.

**Computation.** g is a sum over strata, so for a multiplier η each stratum is minimised by itself: closed forms in N
and R for given means, and in the means for given N and R. Whatever η is, this bounds D(τ) from below (weak duality), so
a multiplier that is not quite right makes an interval wider, never narrower.

**Reference.** E. C. Fieller (1954), "Some problems in interval estimation", for ratios without division; S. A. Murphy,
A. W. van der Vaart (2000), "On profile likelihood", JASA 95, for the χ² limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Strata", "contrast_interval", "contrast_value", "holds"]

Floats = NDArray[np.float64]

_CLEAR = 6.0  # an arm this many standard deviations away from no rows has one optimum, near its own mean
_STARTS = (0.0, 0.5, 1.0)
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Strata:
    """What was measured about two groups of rows in each stratum, with its variances.

    Attributes:
        measured: The outcome's share and the rest, shape (strata, arms, 2).
        covariance: Of both, shape (strata, arms, 2, 2), sampling and noise together.
        rest: Rows in no arm, shape (strata,).
        rest_variance: Of these, shape (strata,); zeros where there is nothing to measure.
    """

    measured: Floats
    covariance: Floats
    rest: Floats
    rest_variance: Floats

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

    def only(self, arms: list[int]) -> Strata:
        """Return the strata with these arms, in this order; the rows of the others join the rest."""
        others = [arm for arm in range(self.measured.shape[1]) if arm not in arms]
        return Strata(
            measured=self.measured[:, arms],
            covariance=self.covariance[:, arms],
            rest=self.rest + self.rows[:, others].sum(axis=1),
            rest_variance=self.rest_variance + self.covariance[:, others].sum(axis=(1, 2, 3)),
        )


def contrast_value(strata: Strata, signs: Floats) -> float:
    """Return the adjusted contrast itself, between -1 and 1.

    Strata count by their measured rows. An arm within two standard deviations of no rows gets the mean of that arm
    over all strata; its uncertainty is the interval's business.
    """
    rows = strata.rows
    weights = rows.sum(axis=1) + strata.rest
    total = float(weights.sum())
    shares = weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
    overall = _share(strata.measured.sum(axis=0))
    means = np.where(rows > 2 * strata.rows_deviation, _share(strata.measured), overall)
    return float(np.clip(shares @ (means @ signs), -1.0, 1.0))


def contrast_interval(strata: Strata, signs: Floats, *, critical: float) -> tuple[float, float]:
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
        reach = abs(self._multiplier) or self._first(slope)
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
        return max(abs(slope) / max((total * self.deviation()) ** 2, 1.0), 1e-12)


class _Part:
    """Some of the strata, minimised together from several starting means each."""

    def __init__(self, strata: Strata, signs: Floats, kept: NDArray[np.bool_], starts: Floats):
        self._signs, self._starts = signs, starts
        self._x = strata.measured[kept]
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
            means = np.clip(np.where(under > _TINY, top / np.maximum(under, _TINY), np.sign(top)), 0.0, 1.0)
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
