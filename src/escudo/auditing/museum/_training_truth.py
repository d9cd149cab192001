"""What is true of the trainings in the museum, where no closed form in μ says it."""

from __future__ import annotations

import math
from functools import cache

__all__ = ["poisson_epsilon", "poisson_front", "unequal_gaussians_epsilon"]

_FRONT_EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


@cache
def _accountant(noise_multiplier: float, sample_rate: float, steps: int):  # type: ignore[no-untyped-def]
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = dp_accounting.PoissonSampledDpEvent(sample_rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    return accountant.compose(event, steps)


def poisson_epsilon(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """Return ε at δ of T Poisson-sampled Gaussian steps, one record added or removed."""
    return float(_accountant(noise_multiplier, sample_rate, steps).get_epsilon(delta))


@cache
def poisson_front(noise_multiplier: float, sample_rate: float, steps: int) -> tuple[tuple[float, float], ...]:
    """Return points (ε, δ) of the guarantee of T Poisson-sampled Gaussian steps."""
    accountant = _accountant(noise_multiplier, sample_rate, steps)
    points = [(epsilon, float(accountant.get_delta(epsilon))) for epsilon in _FRONT_EPSILONS]
    return tuple((epsilon, delta) for epsilon, delta in points if delta > 1e-9)


def unequal_gaussians_epsilon(mean1: float, scale1: float, mean2: float, scale2: float, delta: float) -> float:
    """Return the least ε such that two Gaussians are (ε, δ)-close in both directions.

    >>> unequal_gaussians_epsilon(1.0, 1.0, 0.0, 1.0, 1e-5) - 4.377 < 1e-3  # the Gaussian mechanism with mu = 1
    True
    """
    from scipy.optimize import brentq

    first, second = (mean1, scale1), (mean2, scale2)

    def excess(epsilon: float) -> float:
        return max(_hockey_stick(first, second, epsilon), _hockey_stick(second, first, epsilon)) - delta

    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high))


def _hockey_stick(p: tuple[float, float], q: tuple[float, float], epsilon: float) -> float:
    """Return sup over events of P(E) - e^ε Q(E) for Gaussians P and Q: the event where the log-ratio exceeds ε."""
    from scipy.special import ndtr

    (m1, s1), (m2, s2) = p, q
    # log p/q = a x² + b x + c, and the event is a x² + b x + c > ε
    a = 0.5 / s2**2 - 0.5 / s1**2
    b = m1 / s1**2 - m2 / s2**2
    c = math.log(s2 / s1) + m2**2 / (2 * s2**2) - m1**2 / (2 * s1**2) - epsilon

    def below(x: float) -> float:
        return float(ndtr((x - m1) / s1) - math.exp(epsilon) * ndtr((x - m2) / s2))

    whole = 1 - math.exp(epsilon)
    if abs(a) < 1e-12:
        return (whole - below(-c / b)) if b > 0 else below(-c / b)
    root = b * b - 4 * a * c
    if root <= 0:
        return max(whole, 0.0) if a > 0 else 0.0
    low, high = sorted(((-b - math.sqrt(root)) / (2 * a), (-b + math.sqrt(root)) / (2 * a)))
    inside = below(high) - below(low)
    return whole - inside if a > 0 else inside
