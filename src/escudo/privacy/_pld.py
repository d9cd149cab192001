"""Composition by privacy loss distributions: dp-accounting's convolutions over our exact curves.

Each event's exact curve δ(ε) is read at whole multiples of a small interval and joined by chords ("connect the dots",
Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022). The true curve is convex in e^ε, so the chords lie above it, and
they are the curve of a pair of distributions whose losses are multiples of the interval. That pair dominates the event,
so convolving the loss distributions bounds any adaptive composition.

The curves are ours because they are stated for the event's own sensitivity and relation; dp-accounting's events read
"replace one" in their own way. dp-accounting is loaded on first use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from escudo.privacy._conversions import FloatArray
from escudo.privacy._curves import HockeyStick

__all__ = ["LossDistribution", "compose"]

_POINTS = 2**15
"""Points per unit of the total's range: errors of the chords shrink with its square, costs grow with it."""
_FEW_POINTS = 2**12
"""Enough for one part in 10⁵, at a tenth of the cost: to search with."""
_MANY = 256
"""Above so many convolutions, whose errors add up, four times as many points are taken, or eight times to search."""
_LARGEST = 2**19
"""Most points on either side of 0 for one event; dp-accounting keeps them in a dictionary while it builds one."""
_MOST_LOSS = 600.0
"""Largest loss: beyond it e^ε leaves the floats that dp-accounting computes with, and the other bounds say enough."""
_FFT_ERROR = 1e-13
"""Probability set aside per convolution for the rounding of fast Fourier transforms.

The error vector e of one transform of length N obeys ‖e‖₂ ≤ 7u·log₂(N)·‖x‖₂ with u = 2⁻⁵³ (Higham 2002, "Accuracy and
stability of numerical algorithms", Theorem 24.2), and a probability vector has ‖x‖₂ ≤ 1. So the errors in a sum over
many points, signs at random, have a standard deviation below 2e-14 per convolution; 1e-13 leaves a factor of five.
"""
MAX_COUNT = 10**6


class LossDistribution:
    """The composed loss distribution of several events, in dp-accounting's form."""

    def __init__(self, distribution: Any, convolutions: int):
        self._distribution = distribution
        self._reserve = _FFT_ERROR * convolutions

    def epsilon(self, delta: float) -> float:
        """Return an ε such that the composition is (ε, δ)-DP, or infinity where rounding hides the answer."""
        try:
            with np.errstate(over="ignore"):
                found = float(self._distribution.get_epsilon_for_delta(max(0.0, delta - self._reserve)))
        except OverflowError:  # losses add up under composition: some may be past what e^x can be taken of
            return math.inf
        return found * (1 + 1e-9)

    def delta(self, epsilon: float) -> float:
        """Return a δ such that the composition is (ε, δ)-DP."""
        return min(1.0, float(self._distribution.get_delta_for_epsilon(epsilon)) * (1 + 1e-9) + self._reserve)


def compose(parts: Iterable[tuple[HockeyStick, int]], *, reach: float, coarse: bool = False) -> LossDistribution | None:
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
    with np.errstate(over="ignore"):  # dp-accounting tries orders whose moments are infinite
        return LossDistribution(_composed(tuple(counted), interval), convolutions)


@lru_cache(maxsize=4)  # a plan is priced when it is made, shown and spent
def _composed(parts: tuple[tuple[HockeyStick, int], ...], interval: float) -> Any:
    total: Any = None
    for curve, count in parts:
        part = _repeated(curve, count, interval)
        total = part if total is None else total.compose(part)
    return total


@lru_cache(maxsize=32)
def _repeated(curve: HockeyStick, count: int, interval: float) -> Any:
    one = _discretised(curve, interval)
    return one if count == 1 else one.self_compose(count)


def _discretised(curve: HockeyStick, interval: float) -> Any:
    """Return a loss distribution on multiples of ``interval`` that dominates the curve."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if curve.knots is None:
        reach = math.ceil(curve.top / interval)
        points = np.arange(-reach, reach + 1, dtype=np.float64)
        one_order = [_both_signs(curve, points * interval)]
        orders = one_order if curve.orders is None else [order(points * interval) for order in curve.orders]
        masses, *back = (
            pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -reach, reach, deltas) for deltas in orders
        )
        if back:
            return privacy_loss_distribution.PrivacyLossDistribution(masses.to_dense_pmf(), back[0].to_dense_pmf())
    else:
        rounded = {step(knot / interval) for knot in curve.knots for step in (math.floor, math.ceil)}
        points = np.array(sorted(rounded), dtype=np.float64)
        masses = pld_pmf.create_pmf_pessimistic_connect_dots(interval, points, _both_signs(curve, points * interval))
    return privacy_loss_distribution.PrivacyLossDistribution(masses.to_dense_pmf())


def _both_signs(curve: HockeyStick, epsilons: FloatArray) -> FloatArray:
    """Return δ for losses of either sign: for a symmetric pair, δ(-ε) = 1 - e^{-ε} + e^{-ε} δ(ε)."""
    positive = curve.deltas(np.abs(epsilons))
    shrink = np.exp(-np.abs(epsilons))
    deltas: FloatArray = np.where(epsilons < 0, (1 - shrink) + shrink * positive, positive)
    return np.clip(deltas, 0.0, 1.0)
