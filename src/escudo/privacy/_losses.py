r"""Several events together: their privacy loss distributions, convolved.

**Discretisation.** Each event's exact curve δ(ε) is read at whole multiples of a small interval and joined by chords
("connect the dots", Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022). The true curve is convex in x = e^ε, so the
chords lie above it, and they are the curve of a pair of distributions P, Q whose losses are multiples of the interval:
a curve is :math:`\sum_l (1 - x e^{-l})_+ P(l) + P(\infty)`, whose slope in x grows at :math:`e^l` by :math:`Q(l) =
e^{-l} P(l)`. With :math:`d_k = δ_{k+1} - δ_k` across a gap g of losses, the chord's slope is :math:`d_k e^{-l_k} /
(e^g - 1)`, so

.. math:: P(l_k) = \frac{d_{k-1}}{e^{-g} - 1} + \frac{d_k}{e^g - 1}, \qquad P(\infty) = δ_{last},

and the lowest loss has what is left of 1. That pair dominates the event, so convolving the loss distributions bounds
any adaptive composition (Zhu, Dong, Wang 2022, Theorem 10).

**Convolution.** All at once: Fourier transforms are multiplied, each to the power of its count, on a circle of N
points. A circle folds losses that are N steps apart onto each other. Chernoff's bound, :math:`P(L > a) \le e^{-ta} E
e^{tL}` for the very masses that are convolved, says where the total ends but for probability τ on either side: what
lies above and is folded down to small losses has mass at most τ, which is added to P(∞); what lies below and is folded
up only raises the answer. Rounding of the transforms is set aside in δ (``_FFT_ERROR``), whatever its sign.

**Reading.** Between two multiples of the interval δ(ε) is A - e^ε B, with A and B the sums of P(l) and P(l) e^{-l}
over the losses above: solved for ε exactly.

dp-accounting computes the same by a chain of convolutions, and the tests compare with it. It is not used here because
loading it, with half of scipy, takes longer than a small release.

**References.** V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi (2022), "Connect the dots: tighter discrete
approximations of privacy loss distributions", PoPETs; Y. Zhu, J. Dong, Y.-X. Wang (2022), "Optimal accounting of
differential privacy via characteristic function", AISTATS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from escudo.privacy._conversions import FloatArray
from escudo.privacy._curves import HockeyStick

_POINTS = 2**15
"""Points per unit of the total's range: errors of the chords shrink with its square, costs grow with it."""
_FEW_POINTS = 2**12
"""Enough for one part in 10⁵, at a tenth of the cost: to search with."""
_MANY = 256
"""Above so many convolutions, whose errors add up, four times as many points are taken, or eight times to search."""
_LARGEST = 2**19
"""Most points on either side of 0 for one event."""
_CIRCLE = 2**23
"""Most points for all of them together, 64 MiB."""
_MOST_LOSS = 600.0
"""Largest loss: beyond it e^ε leaves the floats, and the other bounds say enough."""
_TAIL = 1e-15
"""Mass that may be folded over at either end of the circle; it is paid for."""
_FFT_ERROR = 1e-13
"""Probability set aside per convolution for the rounding of fast Fourier transforms.

The error vector e of one transform of length N obeys ‖e‖₂ ≤ 7u·log₂(N)·‖x‖₂ with u = 2⁻⁵³ (Higham 2002, "Accuracy and
stability of numerical algorithms", Theorem 24.2), and a probability vector has ‖x‖₂ ≤ 1. So the errors in a sum over
many points, signs at random, have a standard deviation below 2e-14 per convolution; 1e-13 leaves a factor of five.
"""
MAX_COUNT = 10**6


@dataclass(frozen=True)
class LossDistribution:
    """The composed loss distribution of several events, made when it is first asked."""

    parts: tuple[tuple[HockeyStick, int], ...]
    interval: float

    def epsilon(self, delta: float) -> float:
        """Return an ε such that the composition is (ε, δ)-DP, or infinity where rounding hides the answer."""
        return _epsilon(self, delta)

    def delta(self, epsilon: float) -> float:
        """Return a δ such that the composition is (ε, δ)-DP."""
        found = max(total.delta(epsilon) for total in _composed(self.parts, self.interval))
        return min(1.0, found * (1 + 1e-9) + self.reserve)

    @property
    def reserve(self) -> float:
        """Probability set aside for rounding."""
        return _FFT_ERROR * sum(count for _, count in self.parts)


@lru_cache(
    maxsize=512
)  # a search prices what it priced before; a number is kept where a distribution would be too large
def _epsilon(losses: LossDistribution, delta: float) -> float:
    left = max(0.0, delta - losses.reserve)
    return max(total.epsilon(left) for total in _composed(losses.parts, losses.interval)) * (1 + 1e-9)


def compose(parts: Iterable[tuple[HockeyStick, int]], reach: float, coarse: bool = False) -> LossDistribution | None:
    """Return the composed loss distribution of curves, each taken so many times.

    Args:
        parts: Exact curves with their counts.
        reach: A loss that the total exceeds with negligible probability; it sets the resolution.
        coarse: Whether to take fewer points: faster, and the bound a little larger.

    Returns:
        The distribution, or None where counts or losses are beyond what this accountant computes well.
    """
    counted = list(parts)
    if max(reach, *(curve.top for curve, _ in counted)) > _MOST_LOSS:
        return None
    convolutions = sum(count for _, count in counted)
    points = _FEW_POINTS if coarse else _POINTS
    if convolutions > _MANY:
        points *= 8 if coarse else 4
    # A power of two, so that totals of about the same size share their parts' distributions.
    interval = 2.0 ** math.ceil(math.log2(reach)) / points
    if convolutions > MAX_COUNT or any(curve.top / interval > _LARGEST for curve, _ in counted):
        return None
    return LossDistribution(tuple(counted), interval)


@dataclass(frozen=True, slots=True, eq=False)
class _Losses:
    """Masses of losses that are multiples of an interval.

    Attributes:
        interval: The unit of losses.
        steps: The losses, in intervals, growing.
        masses: Their probabilities.
        infinite: The probability that everything is given away.
    """

    interval: float
    steps: FloatArray
    masses: FloatArray
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return the δ at which losses above ε stop to count."""
        losses = self.steps * self.interval
        above = losses > epsilon
        return self.infinite + float(-np.expm1(epsilon - losses[above]) @ self.masses[above])

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 from which on δ(ε) is at most δ; infinity if there is none."""
        if self.infinite > delta:
            return math.inf
        above = self.steps > 0
        losses = self.steps[above] * self.interval
        # What lies at a loss or above it: A and B of the interval that ends there, and its δ at the lower end.
        mass = np.cumsum(self.masses[above][::-1])[::-1] + self.infinite
        shrunk = np.cumsum((self.masses[above] * np.exp(-losses))[::-1])[::-1]
        starts = np.concatenate(([0.0], losses[:-1]))
        too_low = np.flatnonzero(mass - np.exp(starts) * shrunk > delta)
        if not too_low.size:
            return 0.0
        last = too_low[-1]
        found = math.log((mass[last] - delta) / shrunk[last]) if shrunk[last] > 0 else math.inf
        return min(max(found, float(starts[last])), float(losses[last]))


@lru_cache(maxsize=4)  # a plan is priced when it is made, shown and spent
def _composed(parts: tuple[tuple[HockeyStick, int], ...], interval: float) -> tuple[_Losses, ...]:
    """Return the total's losses: of both orders of the tables, if any part tells them apart."""
    discrete = [(_discretised(curve, interval), count) for curve, count in parts]
    orders = max(len(both) for both, _ in discrete)
    return tuple(_convolved([(both[order % len(both)], count) for both, count in discrete]) for order in range(orders))


def _convolved(parts: list[tuple[_Losses, int]]) -> _Losses:
    """Return the losses of all parts together, each taken so many times."""
    interval = parts[0][0].interval
    highest, lowest = max(0, _end(parts, 1)), min(0, -_end(parts, -1))
    circle = 2 ** math.ceil(math.log2(highest - lowest + 2))
    if circle > _CIRCLE:
        return _Losses(interval, np.zeros(1), np.zeros(1), 1.0)  # nothing is promised by this accountant
    transform: np.ndarray[tuple[int, ...], np.dtype[np.complex128]] = np.ones(circle // 2 + 1, dtype=np.complex128)
    for part, count in parts:
        at = part.steps.astype(np.int64) % circle
        transform *= np.fft.rfft(np.bincount(at, weights=part.masses, minlength=circle)) ** count
    masses = np.roll(np.fft.irfft(transform, circle), -lowest)
    spared = sum(count * (math.log1p(-part.infinite) if part.infinite < 1 else -math.inf) for part, count in parts)
    steps = np.arange(lowest, lowest + circle, dtype=np.float64)
    # A loss is cut off where e^ε would leave the floats: it counts as everything.
    far = steps * interval > _MOST_LOSS + 50
    infinite = min(1.0, -math.expm1(spared) + _TAIL + max(0.0, float(masses[far].sum())))
    return _Losses(interval, steps[~far], masses[~far], infinite)


def _end(parts: list[tuple[_Losses, int]], sign: int) -> int:
    r"""Return how many intervals the total (or its negative) exceeds with probability at most ``_TAIL``.

    Chernoff: :math:`(\sum_i c_i \log E e^{tL_i} + \log 1/τ) / t` for any t > 0. As a function of t this has one valley,
    which is searched by golden section; any t is a bound.
    """
    most = sum(count * max(0.0, float((sign * part.steps).max())) for part, count in parts)
    if most == 0:
        return 0

    present = [(part.steps[part.masses > 0], np.log(part.masses[part.masses > 0]), count) for part, count in parts]

    def bound(log_t: float) -> float:
        t, total = math.exp(log_t), -math.log(_TAIL)
        for steps, logs, count in present:
            exponents = steps * (sign * t) + logs
            top = float(exponents.max())
            total += count * (top + math.log(float(np.exp(exponents - top).sum())))
        return total / t

    low, high = math.log(-math.log(_TAIL) / most), math.log(1e7 / most)
    return math.ceil(min(most, _least(bound, low, high)))


_GOLDEN = (math.sqrt(5) - 1) / 2


def _least(value: Callable[[float], float], low: float, high: float) -> float:
    """Return about the least value of a function with one valley between two points."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(10):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value(right)
    return min(at_left, at_right)


@lru_cache(maxsize=32)
def _discretised(curve: HockeyStick, interval: float) -> tuple[_Losses, ...]:
    """Return losses on multiples of ``interval`` that dominate the curve: once, or in each of the two orders."""
    if curve.knots is None:
        reach = math.ceil(curve.top / interval)
        steps = np.arange(-reach, reach + 1, dtype=np.float64)
    else:
        steps = np.array(
            sorted({rounded(knot / interval) for knot in curve.knots for rounded in (math.floor, math.ceil)}),
            dtype=float,
        )
    epsilons = steps * interval
    orders = [_both_signs(curve, epsilons)] if curve.orders is None else [order(epsilons) for order in curve.orders]
    return tuple(_joined(interval, steps, deltas) for deltas in orders)


def _joined(interval: float, steps: FloatArray, deltas: FloatArray) -> _Losses:
    """Return the losses whose curve joins the given points by chords."""
    falling = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    gaps, differences = np.diff(steps) * interval, np.diff(falling)
    masses = np.append(1 - falling[0], differences / np.expm1(-gaps)) + np.append(differences / np.expm1(gaps), 0.0)
    return _Losses(interval, steps, np.maximum(masses, 0.0), float(falling[-1]))


def _both_signs(curve: HockeyStick, epsilons: FloatArray) -> FloatArray:
    """Return δ for losses of either sign: for a symmetric pair, δ(-ε) = 1 - e^{-ε} + e^{-ε} δ(ε)."""
    positive = curve.deltas(np.abs(epsilons))
    shrink = np.exp(-np.abs(epsilons))
    deltas: FloatArray = np.where(epsilons < 0, (1 - shrink) + shrink * positive, positive)
    return np.clip(deltas, 0.0, 1.0)
