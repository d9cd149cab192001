"""How much noise a budget needs: the inverse of accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from escudo._validate import positive, probability
from escudo.errors import InputError
from escudo.privacy._accounting import RunningTotal
from escudo.privacy._events import Event

__all__ = ["calibrate"]

_TOLERANCE = 2e-4  # a part of the noise: what stopping early may waste
_TRIALS = 12  # the slow accountants are asked at most this often
_WIDEST = 2.0**60


def calibrate(build: Callable[[float], Event | Sequence[Event]], *, epsilon: float, delta: float) -> float:
    r"""Return the least noise (to 1 part in 5,000) at which a release costs at most (ε, δ).

    Args:
        build: The events of the release at a noise level t > 0: every scale proportional to t (or every ε to 1/t), so
            that the cost falls as t grows.
        epsilon: What it may cost.
        delta: At this δ.

    Returns:
        A noise level whose cost was computed by the accountant and found to be at most (ε, δ): the search may stop
        early, but never on the wrong side.

    Raises:
        InputError: If no noise level within reach meets the budget, as for Gaussian noise at δ = 0.

    >>> from escudo.privacy import LaplaceEvent
    >>> round(calibrate(lambda t: LaplaceEvent(l1_sensitivity=2, scale=t, grid=1.0), epsilon=0.5, delta=0.0), 2)
    4.0
    """
    budget, at = positive("epsilon", epsilon), probability("delta", delta)

    def quick(noise: float) -> float:
        return RunningTotal.of(build(noise)).quick_epsilon(at)

    high = 1.0
    while quick(high) > budget:
        high *= 2
        if high > _WIDEST:
            raise InputError(
                f"No amount of noise meets epsilon = {epsilon:g} at delta = {delta:g} here; Gaussian noise needs a "
                "delta above 0, such as 1e-6, and mechanisms with a delta of their own need a larger one."
            )
    low = high / 2
    while quick(low) <= budget and low > 1 / _WIDEST:
        high, low = low, low / 2
    while high / low > 1 + _TOLERANCE / 4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if quick(middle) <= budget else (middle, high)

    def rough(noise: float) -> float:
        return RunningTotal.of(build(noise)).bound(at, coarse=True).value

    noise = _sharpened(rough, high, budget)
    # The search was a hair too bold, if at all; and the same events in another order may differ in their last digits.
    while RunningTotal.of(build(noise)).epsilon(at) * (1 + 1e-9) > budget:
        noise *= 1 + _TOLERANCE / 8
    return noise


def _sharpened(cost_of: Callable[[float], float], noise: float, budget: float) -> float:
    """Lower a sufficient noise level as far as the slow accountants allow, by the secant rule in logarithms."""
    best, cost = noise, cost_of(noise)
    too_low = 0.0
    slope = 1.0  # of log cost against log noise, at first: cost ∝ 1 / noise
    for _ in range(_TRIALS):
        if cost <= 0 or best / max(too_low, best * (cost / budget) ** (1 / slope)) < 1 + _TOLERANCE:
            break
        # Aim a hair above the estimate, so that rounding lands on the safe side.
        trial = max(best * (cost / budget) ** (1 / slope) * (1 + _TOLERANCE / 4), too_low * (1 + _TOLERANCE / 4))
        if trial >= best:
            break
        found = cost_of(trial)
        if found > cost:
            slope = max(math.log(found / cost) / math.log(best / trial), 0.25)
        if found <= budget:
            best, cost = trial, found
        else:
            too_low = trial
    return best
