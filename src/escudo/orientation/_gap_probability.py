r"""How likely noisy scores name the right direction: the paper's Theorems 2 and 4 in closed form.

γ is the private margin, score(wrong) - score(right); every released number carries Laplace noise of scale σ of its
own.

* Two numbers (Theorem 2): the difference of two Laplace variables has the tail (γ + 2σ)/(4σ) e^{-γ/σ}.
* Four numbers (Theorem 4): with z = γ/σ the sum of four has the tail e^{-z}(48 + 33z + 9z² + z³)/96. The paper's
  γ = Q_y + Q_{r_X} - Q_x + Q_{r_Y} lacks brackets: it is (Q_y + Q_{r_X}) - (Q_x + Q_{r_Y}).
* One number (the gap): ½ e^{-γ/σ}.

For γ < 0 the noise has to help: the probability is the tail itself at \|γ\|.

**After the release** γ is not known, but the noisy margin v is, and so is the largest size G that γ can have. If all
margins in [-G, G] were equally likely beforehand, the probability that γ has the sign of v is, with the distribution
function F of the noise,

.. math:: \frac{F(|v|) - F(|v| - G)}{F(|v| + G) - F(|v| - G)},

which stays near 1/2 where the noise is larger than any margin, however large v is.

Reference: M. Kusner et al. (2016), "Private Causal Inference", Theorems 2 and 4; design note "sensitivities",
Proposition 14.
"""

from __future__ import annotations

import math

from escudo._validate import finite, positive
from escudo.errors import InputError

__all__ = ["LARGEST_GAP", "certainty", "probability_of_direction"]

LARGEST_GAP = {"sqrt_hsic": 0.5, "hsic": 0.25, "spearman": 1.0, "kendall": 1.0}
"""The largest size of a gap of two scores: no score is below 0, and none above this (up to one part in m)."""

_TAILS = {1: (48.0,), 2: (48.0, 24.0), 4: (48.0, 33.0, 9.0, 1.0)}  # over 96, in powers of z


def probability_of_direction(margin: float, scale: float, *, noises: int = 2) -> float:
    """Return the probability that the noisy scores are in the order of the margin's sign: above 0 is right.

    Args:
        margin: γ, the private margin; above 0 if the scores without noise are in the right order.
        scale: σ, of each Laplace variable.
        noises: How many there are: 1 for a gap, 2 for two scores (Theorem 2), 4 for four log IQRs (Theorem 4).

    Raises:
        InputError: If the scale is not above 0, or ``noises`` is none of these.

    >>> [round(probability_of_direction(2.0, 1.0, noises=k), 4) for k in (1, 2, 4)]
    [0.9323, 0.8647, 0.7773]
    """
    if noises not in _TAILS:
        raise InputError(f"noises must be 1, 2 or 4; got {noises!r}.")
    z = abs(finite("margin", margin)) / positive("scale", scale)
    tail = math.exp(-z) * sum(part * z**power for power, part in enumerate(_TAILS[noises])) / 96 if z < 700 else 0.0
    return 1 - tail if margin > 0 else tail


def certainty(released: float, scale: float, *, noises: int = 1, largest: float = math.inf) -> float:
    """Return how sure the sign of a released margin is: see "After the release" above.

    Args:
        released: The noisy margin.
        scale: Of each Laplace variable in it.
        noises: How many there are: 1, 2 or 4.
        largest: The largest size the margin can have without noise.

    >>> round(certainty(3.0, 1.0), 4), round(certainty(300.0, 100.0, largest=0.25), 4)
    (0.9751, 0.5006)
    """
    size = abs(released)
    if math.isinf(largest):
        return probability_of_direction(size, scale, noises=noises)
    size = min(size, largest + 500 * scale)  # beyond, tails only shrink together

    def above(value: float) -> float:
        return probability_of_direction(-value, scale, noises=noises)

    low, middle, high = above(size - largest), above(size), above(size + largest)
    return min(1.0, max(0.5, (low - middle) / (low - high)))
