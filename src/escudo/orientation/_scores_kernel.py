r"""HSIC and its square root from a few grid features: linear cost, and a sensitivity of √6/m that needs no certificate.

**Features.** For the Gaussian kernel k of width σ with feature map φ, and a public grid z of step 0.8σ, let P be the
projection on the span of φ(z_j). The features of a value t are

.. math:: \hat φ(t) = \bigl(k(t, z)\, K_{zz}^{-1/2},\; ρ(t)\bigr), \qquad ρ(t) = \lVert (I - P) φ(t) \rVert
          = \sqrt{1 - k(t, z) K_{zz}^{-1} k(z, t)}.

**Lemma.** k̂(s, t) = ⟨φ̂(s), φ̂(t)⟩ has k̂(t, t) = 1 and 0 ≤ k̂ ≤ 1, and \|φ̂(s) - φ̂(t)\| ≤ \|φ(s) - φ(t)\|.
*Proof.* ⟨Pφ(s), Pφ(t)⟩ = k(s, t) - ⟨(I-P)φ(s), (I-P)φ(t)⟩ ≥ k(s, t) - ρ(s)ρ(t), so k̂ ≥ k ≥ 0; unit vectors give k̂
≤ 1. And \|ρ(s) - ρ(t)\| ≤ \|(I-P)(φ(s) - φ(t))\|, so both parts together are at most \|φ(s) - φ(t)\|². ∎ One extra
feature thus buys exact bounds for kernels in [0, 1] with unit diagonal; k̂ differs from k by at most 2 max ρ²,
below 0.005.

**The score.** S = ‖Φᵀ H Ψ‖ / (m - 1) = √tr(KHLH) / (m - 1), and HSIC = S². It costs O(m) for fixed widths.

**Proposition 3 (identity).** With means a, b and cross-covariance C₀ (weights 1/(m-1)) of the m - 1 other records,
u = φ_k - a, v = ψ_k - b: S = ‖C₀ + u⊗v/m‖ exactly.

**Proposition 4.** Replacing one pair moves S by at most √6/m. *Proof.* By the identity by at most ‖u⊗v - u'⊗v'‖/m.
Let P = \|u\|², G = ⟨u, u'⟩, Q, H for v; then F = PQ + P'Q' - 2GH. As a is a mean of features with inner products ≥
0, P ≤ 2, and \|u - u'\|² ≤ 2 gives G ≥ (P+P')/2 - 1. If G, H ≥ 0: for P + P' ≤ 2, F ≤ PQ + P'Q' ≤ 4, likewise for
Q; else F is largest at the least G and H, and then affine in (P, P') on the triangle (2, 0), (0, 2), (2, 2) with
values 2Q, 2Q', Q + Q' + 2 ≤ 6. If G < 0 ≤ H: F ≤ 2(P+P') + 4(1 - (P+P')/2) = 4. If both are negative, F ≤ PQ + P'Q'
≤ 4. ∎ Reached as m grows.

**Proposition 6.** HSIC moves by at most 2.0556/m + 4/m². *Proof.* HSIC - HSIC' = (2/m)⟨C₀, u⊗v - u'⊗v'⟩ +
(\|u\|²\|v\|² - \|u'\|²\|v'\|²)/m². With s = \|a\|², t = \|b\|²: k² ≤ k gives ‖C_φφ‖² ≤ s(1-s), so ‖C₀‖² ≤
√(s(1-s)t(1-t)); and Proposition 4 with P ≤ 1 + s, Q ≤ 1 + t gives F ≤ 2(1+s+t). The product is log-concave and
symmetric, so largest at s = t: 2√(2s(1-s)(1+2s)) ≤ 2.0556. ∎ In particular S ≤ m/(2(m-1)).

**Proposition 11.** If every b_i moves by at most R, S moves by at most (m/(m-1)) √(1 - e^{-R²/2σ²}) and HSIC by at
most m/(m-1) times that. *Proof.* \|S - S'\| ≤ ‖HΦ‖ ‖Ψ - Ψ'‖ / (m-1), where ‖HΦ‖² = m λ_max(C_φφ) ≤ m/2 and, by the
lemma, each row of Ψ - Ψ' has square at most 2(1 - e^{-R²/2σ²}); HSIC - HSIC' = (S - S')(S + S').  ∎

Floating point: features err by some 1e-7 (a square root near 0), so sensitivities carry a factor 1 + 1e-5.

Reference:
    Design note "sensitivities", Propositions 3-6 and 11; the feature ρ, which removes its constant η, is new here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GridFeatures",
    "hsic_sensitivity",
    "hsic_training_sensitivity",
    "sqrt_hsic",
    "sqrt_hsic_sensitivity",
    "sqrt_hsic_training_sensitivity",
]

Floats = NDArray[np.float64]

STEP = 0.8
"""Step of the grid, in widths: the Gram matrix of the grid then has a condition number of some 1,000."""

_CHUNK = 8_192  # rows at once: their features stay in the cache
_FLOAT = 1 + 1e-5


@dataclass(frozen=True)
class GridFeatures:
    """Unit features of a Gaussian kernel on an interval, from a grid that is fixed before data are seen.

    Args:
        lower: Values are clamped to at least this.
        upper: Values are clamped to at most this.
        width: The kernel is exp(-(s - t)² / 2 width²).
    """

    lower: float
    upper: float
    width: float

    @cached_property
    def points(self) -> Floats:
        """The grid."""
        count = math.ceil((self.upper - self.lower) / (STEP * self.width)) + 1
        return np.linspace(self.lower, self.upper, max(count, 2))

    @cached_property
    def whitening(self) -> Floats:
        """The matrix K_zz^{-1/2} of the grid."""
        values, vectors = np.linalg.eigh(self._kernel(self.points))
        whitened: Floats = (vectors / np.sqrt(values)) @ vectors.T
        return whitened

    @property
    def count(self) -> int:
        """How many features there are."""
        return len(self.points) + 1

    def __call__(self, values: Floats) -> Floats:
        """Return the features of each value, shape (n, count), rows of length 1 with inner products of at least 0."""
        features = np.empty((len(values), self.count))
        np.matmul(self._kernel(np.clip(values, self.lower, self.upper)), self.whitening, out=features[:, :-1])
        left = 1.0 - np.einsum("ij,ij->i", features[:, :-1], features[:, :-1])
        np.sqrt(np.maximum(left, 0.0), out=features[:, -1])
        return features

    def _kernel(self, values: Floats) -> Floats:
        apart = values[:, None] - self.points
        apart *= apart
        apart *= -0.5 / self.width**2
        kernel: Floats = np.exp(apart, out=apart)
        return kernel


def sqrt_hsic(a: Floats, b: Floats, first: GridFeatures, second: GridFeatures) -> float:
    """Return S = √HSIC of two columns of equal length, linear in it; 0 (up to rounding) if one is constant.

    >>> on = GridFeatures(-1.0, 1.0, 0.15)
    >>> t = np.linspace(-1, 1, 200)
    >>> sqrt_hsic(t, t, on, on) > 0.2, sqrt_hsic(t, np.zeros(200), on, on) < 1e-12
    (True, True)
    """
    m = len(a)
    if m < 2:
        return 0.0
    cross = np.zeros((first.count, second.count))
    sums = np.zeros(first.count), np.zeros(second.count)
    # Features about the first row's: centring changes nothing, and a constant column gives exactly 0.
    origins = first(a[:1]), second(b[:1])
    for start in range(0, m, _CHUNK):
        rows = slice(start, start + _CHUNK)
        left, right = first(a[rows]) - origins[0], second(b[rows]) - origins[1]
        cross += left.T @ right
        sums[0][:] += left.sum(axis=0)
        sums[1][:] += right.sum(axis=0)
    return float(np.linalg.norm(cross - np.outer(*sums) / m)) / (m - 1)


def sqrt_hsic_sensitivity(m: int) -> float:
    """Return how far S can move when one of ``m`` pairs is replaced (Proposition 4)."""
    return math.sqrt(6.0) / m * _FLOAT


def hsic_sensitivity(m: int) -> float:
    """Return how far HSIC can move when one of ``m`` pairs is replaced (Proposition 6)."""
    return (2.0556 / m + 4.0 / m**2) * _FLOAT


def sqrt_hsic_training_sensitivity(m: int, change: float, width: float) -> float:
    """Return how far S can move when every residual moves by at most ``change`` (Proposition 11)."""
    return m / (m - 1) * math.sqrt(-math.expm1(-((change / width) ** 2) / 2)) * _FLOAT


def hsic_training_sensitivity(m: int, change: float, width: float) -> float:
    """Return how far HSIC can move when every residual moves by at most ``change`` (Proposition 11)."""
    return m / (m - 1) * sqrt_hsic_training_sensitivity(m, change, width)
