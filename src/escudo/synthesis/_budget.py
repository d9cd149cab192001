"""How a budget is shared out among the parts of one release, such as a graph that is found and the tables along it.

Shares are of inverse variance: of the squared μ that Gaussian noise of the whole budget has, which adds up over parts.
"""

from __future__ import annotations

import math

from escudo.errors import InputError
from escudo.privacy import Budget, gdp_to_epsilon

GRAPH_SHARE = 0.25
"""Of the budget, as inverse variance: for a graph that is found before the tables along it are measured."""


def above_zero(budget: Budget) -> Budget:
    """Return a budget, or say that a δ is needed: every generator adds Gaussian noise.

    Raises:
        InputError: If δ is 0.
    """
    if budget.delta == 0:
        raise InputError("delta must be above 0: Gaussian noise needs a delta, such as 1e-6.")
    return budget


def epsilon_of_share(share: float, budget: Budget) -> float:
    """Return the ε of Gaussian noise that takes this share of the squared μ that a budget allows.

    >>> round(epsilon_of_share(0.25, Budget(1.0, 1e-6)), 2)
    0.48
    """
    epsilon, delta = budget.epsilon, budget.delta
    low, high = 0.0, 1.0
    while gdp_to_epsilon(high, delta) < epsilon:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp_to_epsilon(middle, delta) < epsilon else (low, middle)
    return gdp_to_epsilon(math.sqrt(share) * high, delta)
