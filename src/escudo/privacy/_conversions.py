r"""Conversions between privacy notions, each with its proof, each rounded against ourselves.

Notation: P and Q are the output distributions on two neighbouring tables. ε-DP bounds log(P/Q) everywhere; (ε, δ)-DP
says P(S) ≤ e^ε Q(S) + δ for every set S; ρ-zCDP bounds the Rényi divergence D_α(P‖Q) by ρα for every α > 1; μ-GDP says
that P and Q are as hard to tell apart as N(0, 1) and N(μ, 1). The smallest δ for an ε is the hockey-stick divergence
H_ε(P‖Q) = sup_S P(S) - e^ε Q(S).

Every function returns a bound that is never better than the truth: a loss is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from escudo._validate import finite, positive, positive_integer, probability
from escudo.errors import InputError

FloatArray = NDArray[np.float64]

_ROUND_UP = 1 + 1e-12
"""Covers the rounding of a handful of floating-point operations."""


# --- Rényi divergence and zCDP ---------------------------------------------------------------------------------------


def renyi_to_epsilon(orders: FloatArray, divergences: FloatArray, delta: float) -> float:
    r"""Return an ε such that the mechanism is (ε, δ)-DP, from its Rényi divergences at some orders.

    .. math:: ε = \min_α\; D_α + \log\frac{α-1}{α} - \frac{\log δ + \log α}{α-1}, \quad\text{and at least } 0.

    **Proof.** With the loss Z = log(P/Q) under P, H_ε = E[max(0, 1 - e^{ε-Z})]. For t > 0, (1 - e^{-t})e^{-(α-1)t} is
    largest where e^{-t} = 1 - 1/α, and there it is c = (1/α)(1 - 1/α)^{α-1}. So max(0, 1 - e^{ε-Z}) ≤ c·e^{(α-1)(Z-ε)}
    whatever Z is. Take expectations: H_ε ≤ c·e^{(α-1)(D_α-ε)}; set the right side to δ and solve for ε. Every order
    gives a valid ε, so the smallest is valid.

    **Reference.** Canonne, Kamath, Steinke (2020), "The discrete Gaussian for differential privacy", Proposition 12;
    also Balle et al. (2020), Theorem 21.

    Args:
        orders: Orders α > 1.
        divergences: D_α at each order, the larger of both directions.
        delta: In (0, 1).
    """
    _open_delta(delta)
    epsilons = divergences + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(epsilons.min()) * _ROUND_UP)


def renyi_to_delta(orders: FloatArray, divergences: FloatArray, epsilon: float) -> float:
    """Return a δ such that the mechanism is (ε, δ)-DP: the bound of ``renyi_to_epsilon``, solved for δ."""
    logs = (orders - 1) * (divergences - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    best = float(logs.min())
    # A logarithm of size x is known to about x machine precisions.
    return min(1.0, math.exp(best + 1e-12 * (1 + abs(best)))) if best > -700 else 1e-300


def zcdp_to_epsilon(rho: float, delta: float) -> float:
    """Return an ε such that every ρ-zCDP mechanism is (ε, δ)-DP.

    The divergences are D_α = ρα; ``renyi_to_epsilon`` proves the bound for every α, and the best α is searched. It
    improves on the textbook ε = ρ + 2√(ρ log(1/δ)) for every δ.

    >>> round(zcdp_to_epsilon(0.5, 1e-5), 3)
    4.728
    """
    rho = _spent("rho", rho, delta)
    if rho == 0:
        return 0.0
    orders = _many_orders()
    return renyi_to_epsilon(orders, rho * orders, delta)


def zcdp_to_delta(rho: float, epsilon: float) -> float:
    """Return a δ such that every ρ-zCDP mechanism is (ε, δ)-DP; see ``zcdp_to_epsilon``."""
    rho = positive("rho", rho, allow_zero=True)
    epsilon = positive("epsilon", epsilon, allow_zero=True)
    if rho == 0:
        return 0.0
    orders = _many_orders()
    return renyi_to_delta(orders, rho * orders, epsilon)


def pure_to_zcdp(epsilon: float) -> float:
    """Return the ρ = ε²/2 for which every ε-DP mechanism is ρ-zCDP.

    **Proof.** Among ε-DP mechanisms randomised response has the largest Rényi divergence of every order (``PureEvent``
    in the accountant), D_α = (log cosh((α - 1/2)ε) - log cosh(ε/2)) / (α - 1). As (log cosh u)″ ≤ 1 and
    (log cosh u)′ = tanh u ≤ u, log cosh(u) - log cosh(v) ≤ (u² - v²)/2 for u ≥ v ≥ 0; here u² - v² = α(α - 1)ε², so
    D_α ≤ αε²/2.

    **Reference.** Bun, Steinke (2016), "Concentrated differential privacy", Proposition 1.4.
    """
    return round_up(Fraction(positive("epsilon", epsilon, allow_zero=True)) ** 2 / 2)


# --- Gaussian differential privacy -----------------------------------------------------------------------------------


def gdp_to_delta(mu: float, epsilon: float) -> float:
    r"""Return the δ for which every μ-GDP mechanism is (ε, δ)-DP; exact for Gaussian noise.

    .. math:: δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2).

    **Proof.** For P = N(μ, 1), Q = N(0, 1) the loss log(P/Q)(x) = μx - μ²/2 grows in x, so the set that attains
    sup_S P(S) - e^ε Q(S) is {x > ε/μ + μ/2}; take its probability under both. μ-GDP makes every mechanism's δ(ε) at
    most that of this pair (Dong, Roth, Su 2019, "Gaussian differential privacy", Corollary 2.13).

    Args:
        mu: At least 0.
        epsilon: Any finite number; negative ones serve the accountant.
    """
    mu = positive("mu", mu, allow_zero=True)
    epsilon = finite("epsilon", epsilon)
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    return float(gdp_deltas(mu, np.array([epsilon]))[0])


def gdp_deltas(mu: float, epsilons: FloatArray) -> FloatArray:
    """Return ``gdp_to_delta`` for an array of epsilons and μ > 0."""
    from scipy.special import log_ndtr  # slow to import

    log_upper, log_lower = log_ndtr(mu / 2 - epsilons / mu), log_ndtr(-mu / 2 - epsilons / mu)
    upper, lower = np.exp(log_upper), np.exp(np.minimum(epsilons + log_lower, 0.0))
    # exp(x) is known to about |x| machine precisions, and the difference to no better.
    error = 1e-15 * upper * (10 + np.minimum(np.abs(log_upper) + np.abs(log_lower), 1e6))
    deltas: FloatArray = np.clip(upper - lower + error, 0.0, 1.0)
    return deltas


def gdp_to_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε for which every μ-GDP mechanism is (ε, δ)-DP; exact for Gaussian noise.

    It inverts ``gdp_to_delta``, which decreases in ε, by bisection, and returns the upper end.

    >>> round(gdp_to_epsilon(1.0, 1e-5), 3)
    4.377
    """
    mu = _spent("mu", mu, delta)
    if mu == 0:
        return 0.0
    # Above it, Φ(-ε/μ + μ/2) alone is below δ: Gaussian tail bound Φ(-t) ≤ e^{-t²/2}.
    highest = mu * (mu / 2 + math.sqrt(2 * -math.log(delta)))
    return smallest_epsilon(lambda epsilon: gdp_to_delta(mu, epsilon), delta, highest)


def pure_to_gdp(epsilon: float) -> float:
    """Return the μ = 2Φ⁻¹(e^ε / (1 + e^ε)) for which every ε-DP mechanism is μ-GDP.

    **Proof.** Randomised response, which answers truly with probability p = e^ε/(1 + e^ε), dominates every ε-DP
    mechanism (Kairouz, Oh, Viswanath 2015). Its trade-off curve between false alarms and misses is the polygon through
    (0, 1), (1 - p, 1 - p), (1, 0). The Gaussian curve Φ(Φ⁻¹(1 - x) - μ) is convex, ends in the same corners, and passes
    through (1 - p, 1 - p) exactly when Φ⁻¹(p) - μ = Φ⁻¹(1 - p) = -Φ⁻¹(p). So it lies below the polygon, which is what
    μ-GDP asks.
    """
    from scipy.special import ndtri_exp  # slow to import

    epsilon = positive("epsilon", epsilon, allow_zero=True)
    if epsilon == 0:
        return 0.0
    log_miss = -epsilon - math.log1p(math.exp(-epsilon))  # log(1 - p), where p itself would round to 1
    return -2 * float(ndtri_exp(log_miss)) * _ROUND_UP + 1e-15  # the inverse is known to machine precision


# --- Group privacy: a path of k neighbours ---------------------------------------------------------------------------


def pure_for_group(epsilon: float, steps: int) -> float:
    """Return kε: a mechanism that is ε-DP for neighbours is kε-DP for tables k steps apart.

    **Proof.** Along the path the log-ratios of probabilities add up.
    """
    k = positive_integer("steps", steps)
    return round_up(Fraction(positive("epsilon", epsilon, allow_zero=True)) * k)


def approximate_for_group(epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    """Return (kε, δ(1 + e^ε + … + e^{(k-1)ε})): what (ε, δ)-DP gives for tables k steps apart.

    **Proof.** P₀(S) ≤ e^ε P₁(S) + δ ≤ e^ε(e^ε P₂(S) + δ) + δ ≤ …, k times. For k = 2, the step from ``add_remove`` to
    ``replace_one``, it is (2ε, δ(1 + e^ε)).

    Raises:
        InputError: If δ grows past 1, where nothing is promised any more.
    """
    k = positive_integer("steps", steps)
    if k == 1:
        return epsilon, delta
    total = pure_for_group(epsilon, k)
    # The geometric sum, as a logarithm so that a large epsilon does not overflow.
    log_sum = math.log(k) if epsilon == 0 else _log_expm1(total) - _log_expm1(epsilon)
    log_delta = -math.inf if probability("delta", delta) == 0 else math.log(delta) + log_sum
    if log_delta >= 0:
        raise InputError(
            f"An (epsilon={epsilon:g}, delta={delta:g}) guarantee promises nothing {k} steps away: delta grows past 1. "
            "Use a smaller epsilon or delta."
        )
    return total, min(math.exp(log_delta) * (1 + 1e-13 * (1 + abs(log_sum))), math.nextafter(1.0, 0.0))


def zcdp_for_group(rho: float, steps: int) -> float:
    """Return k²ρ: what ρ-zCDP gives for tables k steps apart.

    **Proof.** Rényi divergence satisfies a triangle inequality with larger orders, D_{α}(P₀‖P_k) ≤ ρk²α
    (Bun, Steinke 2016, Proposition 1.9). For Gaussian noise it is plain: k times the sensitivity.
    """
    k = positive_integer("steps", steps)
    return round_up(Fraction(positive("rho", rho, allow_zero=True)) * k**2)


def gdp_for_group(mu: float, steps: int) -> float:
    """Return kμ: what μ-GDP gives for tables k steps apart.

    **Reference.** Dong, Roth, Su (2019), "Gaussian differential privacy", Theorem 2.14: a chain of k trade-off curves
    composes to 1 - (1 - G_μ)∘…∘(1 - G_μ), and x ↦ 1 - G_μ(x) = Φ(Φ⁻¹(x) + μ) shifts by μ each time.
    """
    k = positive_integer("steps", steps)
    return round_up(Fraction(positive("mu", mu, allow_zero=True)) * k)


# --- Shared numerics -------------------------------------------------------------------------------------------------


def smallest_epsilon(delta_fn: Callable[[float], float], delta: float, highest: float) -> float:
    """Return an ε in [0, ``highest``] with δ(ε) ≤ ``delta``, the smallest to 1 part in 10¹², by bisection from above.

    Args:
        delta_fn: δ as a decreasing function of ε.
        delta: The target.
        highest: An ε known to be enough; returned if nothing smaller is.
    """
    if delta_fn(0.0) <= delta:
        return 0.0
    low, high = 0.0, highest
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if not low < middle < high:  # no number lies between them: ``highest`` is next to 0
            break
        if delta_fn(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def _many_orders() -> FloatArray:
    """Return orders so dense that the best of them is the best of all to a few parts in a million."""
    return 1 + np.geomspace(1e-5, 1e9, 20_001)


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))


def round_up(exact: Fraction) -> float:
    """Return the smallest float at or above an exact number."""
    number = float(exact)
    return number if Fraction(number) >= exact else math.nextafter(number, math.inf)


def _spent(name: str, value: float, delta: float) -> float:
    """Return a parameter that is stated without a δ, once it and the δ to state it at make sense."""
    value = positive(name, value, allow_zero=True)
    _open_delta(delta)
    return value


def _open_delta(delta: float) -> None:
    if probability("delta", delta) == 0:
        raise InputError("delta must be greater than 0, such as 1e-6: this notion allows no guarantee without it.")
