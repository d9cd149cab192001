r"""Dependence scores: ranks, HSIC and interquartile ranges, each with how far one replaced record can move it.

**Ranks.** Spearman and Kendall, with tie rules under which their sensitivities are exact. Both are absolute values in
[0, 1]: 0 for columns that do not rise or fall together, 1 for columns that always do. They look at m pairs (a_i, b_i).
Neighbours: one pair is replaced by any other, m is fixed and public.

**Proposition 1 (Spearman).** With midranks R_i, S_i and the *fixed* denominator

.. math:: ρ = \frac{12}{m(m^2-1)} \sum_i \bigl(R_i - \tfrac{m+1}2\bigr)\bigl(S_i - \tfrac{m+1}2\bigr),

neighbours differ by at most 6/(m+1) in ρ and in \|ρ\|; attained for every m ≥ 2 by ρ and m ≥ 5 by \|ρ\|. *Proof.*
Without ties first. Let n = m - 1, A_i = 2R_i - m - 1, B_i likewise, so that ρ = 3/(m(m²-1)) ΣA_iB_i. Among the n
common points the values A°, B° are -(n-1), -(n-3), ..., n-1. A new point adds σ_i = ±1, τ_i = ±1 to them and has s
= -Σσ, t = -Στ itself: ΣAB = const + T, T = Σσ B° + Στ A° + Σστ + st. Between two insertions σ changes by 2 on w
points that are consecutive in rank, τ on z points. (i) ΣB° over w points is at most w(n-w) in size; (ii) Σστ
changes by at most 2(w+z); (iii) st, with s, t in [-n, n], changes by at most 2n(w+z) - 4wz. With v = w + z the sum
is at most 2w(n-w) + 2z(n-z) + 2v + 2nv - 4wz = 2v(2n+1-v) ≤ 2n(n+1). *Ties:* break them by independent uniform
orders for a and b, coupled on the common points; midranks are means of ranks, so ρ is the mean of the tie-free ρ,
and means move no more.

**Proposition 2 (Kendall).** τ_a = Σ_{i≠j} sgn(a_i - a_j) sgn(b_i - b_j) / (m(m-1)), where ties count 0, moves by at
most 4/m, and so does \|τ_a\|. *Proof.* A pair of points is in m - 1 of the m(m-1)/2 comparisons; each moves by at most
2.

The tie-corrected ρ and τ_b, which most libraries compute, have no such bound: a spike at one value makes them jump by
1.

**HSIC** and its square root come from a few grid features, at linear cost and with a sensitivity of √6/m that needs no
certificate.

*Features.* For the Gaussian kernel k of width σ with feature map φ, and a public grid z of step 0.8σ, let P be the
projection on the span of φ(z_j). The features of a value t are

.. math:: \hat φ(t) = \bigl(k(t, z)\, K_{zz}^{-1/2},\; ρ(t)\bigr), \qquad ρ(t) = \lVert (I - P) φ(t) \rVert
          = \sqrt{1 - k(t, z) K_{zz}^{-1} k(z, t)}.

**Lemma.** k̂(s, t) = ⟨φ̂(s), φ̂(t)⟩ has k̂(t, t) = 1 and 0 ≤ k̂ ≤ 1, and \|φ̂(s) - φ̂(t)\| ≤ \|φ(s) - φ(t)\|. *Proof.*
⟨Pφ(s), Pφ(t)⟩ = k(s, t) - ⟨(I-P)φ(s), (I-P)φ(t)⟩ ≥ k(s, t) - ρ(s)ρ(t), so k̂ ≥ k ≥ 0; unit vectors give k̂ ≤ 1. And
\|ρ(s) - ρ(t)\| ≤ \|(I-P)(φ(s) - φ(t))\|, so both parts together are at most \|φ(s) - φ(t)\|². ∎ One extra feature thus
buys exact bounds for kernels in [0, 1] with unit diagonal; k̂ differs from k by at most 2 max ρ², below 0.005.

*The score.* S = ‖Φᵀ H Ψ‖ / (m - 1) = √tr(KHLH) / (m - 1), and HSIC = S². It costs O(m) for fixed widths.

**Proposition 3 (identity).** With means a, b and cross-covariance C₀ (weights 1/(m-1)) of the m - 1 other records, u =
φ_k - a, v = ψ_k - b: S = ‖C₀ + u⊗v/m‖ exactly.

**Proposition 4.** Replacing one pair moves S by at most √6/m. *Proof.* By the identity by at most ‖u⊗v - u'⊗v'‖/m. Let
P = \|u\|², G = ⟨u, u'⟩, Q, H for v; then F = PQ + P'Q' - 2GH. As a is a mean of features with inner products ≥ 0, P ≤
2, and \|u - u'\|² ≤ 2 gives G ≥ (P+P')/2 - 1. If G, H ≥ 0: for P + P' ≤ 2, F ≤ PQ + P'Q' ≤ 4, likewise for Q; else F is
largest at the least G and H, and then affine in (P, P') on the triangle (2, 0), (0, 2), (2, 2) with values 2Q, 2Q', Q +
Q' + 2 ≤ 6. If G < 0 ≤ H: F ≤ 2(P+P') + 4(1 - (P+P')/2) = 4. If both are negative, F ≤ PQ + P'Q' ≤ 4. ∎ Reached as m
grows.

**Proposition 6.** HSIC moves by at most 2.0556/m + 4/m². *Proof.* HSIC - HSIC' = (2/m)⟨C₀, u⊗v - u'⊗v'⟩ + (\|u\|²\|v\|²
- \|u'\|²\|v'\|²)/m². With s = \|a\|², t = \|b\|²: k² ≤ k gives ‖C_φφ‖² ≤ s(1-s), so ‖C₀‖² ≤ √(s(1-s)t(1-t)); and
Proposition 4 with P ≤ 1 + s, Q ≤ 1 + t gives F ≤ 2(1+s+t). The product is log-concave and symmetric, so largest at s =
t: 2√(2s(1-s)(1+2s)) ≤ 2.0556. ∎ In particular S ≤ m/(2(m-1)).

**Proposition 11.** If every b_i moves by at most R, S moves by at most (m/(m-1)) √(1 - e^{-R²/2σ²}) and HSIC by at most
m/(m-1) times that. *Proof.* \|S - S'\| ≤ ‖HΦ‖ ‖Ψ - Ψ'‖ / (m-1), where ‖HΦ‖² = m λ_max(C_φφ) ≤ m/2 and, by the lemma,
each row of Ψ - Ψ' has square at most 2(1 - e^{-R²/2σ²}); HSIC - HSIC' = (S - S')(S + S').  ∎

Floating point: features err by some 1e-7 (a square root near 0), so sensitivities carry a factor 1 + 1e-5.

**Interquartile ranges.** The score is log IQR(a) + log IQR(b); what counts is how far it is from another value, in
changed records. For m values, IQR = v_(h) - v_(l) with l = ⌈m/4⌉, h = ⌈3m/4⌉; H = ln IQR. The log scale is cut into
bins of width w, for two offsets. The distance A is a lower bound on the number of records to change so that H leaves
its bin, where a record is one of the m values, or a *training* record that moves every value by at most R (``drift``),
or either.

**Definition.** A = least k ≥ 1 with smallest(k) - 2Rk or largest(k) + 2Rk outside the bin of H, where smallest(k) and
largest(k) are the extreme ranges after k of the m values are changed (both are the range itself if the values are
public). A = 1 where the range is 0 or below the lowest edge.

**Proposition (sensitivity 1; if some A ≥ 2, neighbours share that bin).** Let D' be a neighbour of D. If a value was
changed, smallest_{k-1}(D') ≥ smallest_k(D), because k changes lead from D wherever k - 1 lead from D'. If a training
record was changed, every order statistic moves by at most R, so smallest_{k-1}(D') ≥ smallest_{k-1}(D) - 2R ≥
smallest_k(D) - 2R. Either way smallest_{k-1}(D') - 2R(k-1) ≥ smallest_k(D) - 2Rk; likewise for largest. So if D and D'
share the bin, whatever k leaves room for D, k - 1 leaves room for D': A(D') ≥ A(D) - 1. If they do not share it, k = 1
already leads out of both, and both distances are 1. ∎ With ``drift`` 0 it is the exact distance of
``escudo.mechanisms``.

Reference:
    Design note "sensitivities", Propositions 1 to 6, 8 and 11; the feature ρ, which removes its constant η, is new
    here. M. Kusner et al. (2016), "Private Causal Inference", Theorem 1, which has 30/m and 4/m for ranks, and Sections
    4.3 and 5.3; C. Dwork, J. Lei (2009), "Differential privacy and robust statistics", Section 3, for ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms import LogIqr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# ---- ranks


def signed_spearman(a: Floats, b: Floats) -> float:
    """Return ρ in [-1, 1], midranks for ties, never corrected for them; 0 for fewer than two pairs."""
    m = len(a)
    if m < 2:
        return 0.0
    products = float(np.dot(_centred_ranks(a), _centred_ranks(b)))
    return max(-1.0, min(products * 3.0 / (float(m) * (float(m) ** 2 - 1)), 1.0))


def spearman(a: Floats, b: Floats) -> float:
    """Return the absolute rank correlation of :func:`signed_spearman`.

    >>> spearman(np.arange(5.0), np.array([0.0, 1, 4, 9, 16])), spearman(np.zeros(5), np.arange(5.0))
    (1.0, 0.0)
    """
    return abs(signed_spearman(a, b))


def spearman_sensitivity(m: int) -> float:
    """Return how far :func:`spearman` can move when one of ``m`` pairs is replaced (Proposition 1)."""
    return 6.0 / (m + 1)


def signed_kendall(a: Floats, b: Floats) -> float:
    """Return Kendall's τ_a in [-1, 1], where ties count 0; exact, in O(m log m); 0 for fewer than two pairs."""
    m = len(a)
    if m < 2:
        return 0.0
    first, second = _dense_ranks(a), _dense_ranks(b)
    both = first * (int(second.max()) + 1) + second
    order = np.argsort(both, kind="stable")
    untied = m * (m - 1) // 2 - _tied_pairs(first) - _tied_pairs(second) + _tied_pairs(both)
    return (untied - 2 * inversions(second[order])) / (m * (m - 1) // 2)


def kendall(a: Floats, b: Floats) -> float:
    """Return the absolute value of :func:`signed_kendall`.

    >>> kendall(np.arange(4.0), np.array([0.0, 1, 3, 2])), kendall(np.zeros(4), np.arange(4.0))
    (0.6666666666666666, 0.0)
    """
    return abs(signed_kendall(a, b))


def kendall_sensitivity(m: int) -> float:
    """Return how far :func:`kendall` can move when one of ``m`` pairs is replaced (Proposition 2)."""
    return 4.0 / m


def inversions(values: Integers) -> int:
    """Return the number of i < j with values[i] > values[j], for whole numbers of at least 0, in O(m log m).

    Bit by bit from the top: among numbers that agree above a bit, in their order, an inversion at this bit is a 1
    before a 0.

    >>> inversions(np.array([3, 1, 2, 1]))
    4
    """
    ordered, total = np.asarray(values, dtype=np.int64), 0
    for bit in range(int(ordered.max(initial=0)).bit_length() - 1, -1, -1):
        ones = (ordered >> bit) & 1
        group = ordered >> (bit + 1)
        seen = np.cumsum(ones)
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        before = np.repeat(seen[starts] - ones[starts], np.diff(np.r_[starts, len(ordered)]))
        total += int(((seen - before) * (1 - ones)).sum())
        ordered = ordered[np.argsort(ordered >> bit, kind="stable")]
    return total


def _dense_ranks(values: Floats) -> Integers:
    ranks: Integers = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return ranks


def _centred_ranks(values: Floats) -> Floats:
    """Return 2 (midrank) - m - 1, whole numbers as floats."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    doubled = 2 * upto - counts + 1
    centred: Floats = (doubled - len(values) - 1).astype(np.float64)[inverse.reshape(-1)]
    return centred


def _tied_pairs(codes: Integers) -> int:
    counts = np.unique(codes, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


# ---- HSIC

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


# ---- interquartile ranges

_DEEP = 50.0  # bins reach down to e^-50 of the public range


def interquartile_range(values: Floats) -> float:
    """Return v_(⌈3m/4⌉) - v_(⌈m/4⌉).

    >>> interquartile_range(np.arange(1.0, 9.0))
    4.0
    """
    low, high = _quartiles(len(values))
    parted = np.partition(values, (low, high))
    return float(parted[high] - parted[low])


def log_iqr_with_drift(
    values: Floats, *, lower: float, upper: float, width: float, drift: float, values_private: bool
) -> LogIqr:
    """Return the log interquartile range and its distances for both offsets; all of it is private.

    Args:
        values: The column, clamped to [lower, upper].
        lower: Public lower bound.
        upper: Public upper bound.
        width: Width of the bins on the log scale.
        drift: Most that one training record moves any value; 0 if none does.
        values_private: Whether the records behind the values are private themselves.
    """
    ordered = np.sort(np.clip(values, lower, upper))
    count = len(ordered)
    low, high = _quartiles(count)
    spread = float(ordered[high] - ordered[low])
    padded = np.concatenate([np.full(count, lower), ordered, np.full(count, upper)])

    def stays(changes: int, floor: float, ceiling: float) -> bool:
        least = most = spread
        if values_private:
            if changes >= high - low:
                return False
            least = float(np.min(ordered[high - changes : high + 1] - ordered[low : low + changes + 1]))
            top = padded[count + high : count + high + changes + 1]
            most = float(np.max(top - padded[count + low - changes : count + low + 1]))
        return floor <= least - 2 * drift * changes and most + 2 * drift * changes < ceiling

    def distance(offset: float) -> int:
        """Return the distance A of the module's docstring for one way of cutting the log scale."""
        edges = _edges(upper - lower, width, offset)
        home = int(np.searchsorted(edges, spread, side="right"))
        if home == 0:
            return 1
        floor, ceiling = float(edges[home - 1]), float(edges[home]) if home < len(edges) else math.inf
        farthest = high - low if values_private else 2**53
        if drift > 0:
            farthest = min(farthest, math.ceil(min((spread - floor) / (2 * drift), 2.0**52)) + 1)
        inside, outside = 0, max(farthest, 1)
        while outside - inside > 1:
            middle = (inside + outside) // 2
            inside, outside = (middle, outside) if stays(middle, floor, ceiling) else (inside, middle)
        return outside

    return LogIqr(
        value=math.log(spread) if spread > 0 else None,
        distances=(distance(0.0), distance(width / 2)),
        records=count,
    )


def _quartiles(count: int) -> tuple[int, int]:
    return math.ceil(count / 4) - 1, math.ceil(3 * count / 4) - 1


def _edges(span: float, width: float, offset: float) -> Floats:
    top = math.log(span)
    indices = np.arange(math.floor((top - _DEEP) / width), math.ceil(top / width) + 2)
    edges: Floats = np.maximum.accumulate(np.exp(indices * width + offset))
    return edges


# ---- all of them but interquartile ranges, by name


class Dependence(NamedTuple):
    """A dependence score of an input on [-1, 1] and a residual on [-2, 2].

    Attributes:
        measure: The score, for kernels of a width if it has any.
        sensitivity: How far it can move when one of so many pairs is replaced.
        largest: The most it can be, of many pairs.
    """

    measure: Callable[[float], Callable[[Floats, Floats], float]]
    sensitivity: Callable[[int], float]
    largest: float


def _by_kernels(width: float, power: int) -> Callable[[Floats, Floats], float]:
    inputs, residuals = GridFeatures(-1.0, 1.0, width), GridFeatures(-2.0, 2.0, width)
    return lambda a, b: sqrt_hsic(a, b, inputs, residuals) ** power


DEPENDENCE: dict[str, Dependence] = {
    "sqrt_hsic": Dependence(lambda width: _by_kernels(width, 1), sqrt_hsic_sensitivity, 0.5),
    "hsic": Dependence(lambda width: _by_kernels(width, 2), hsic_sensitivity, 0.25),
    "spearman": Dependence(lambda _: spearman, spearman_sensitivity, 1.0),
    "kendall": Dependence(lambda _: kendall, kendall_sensitivity, 1.0),
}
"""Every score that the gap of two can be taken of, the default first."""


def dependence(score: str, width: float) -> Callable[[Floats, Floats], float]:
    """Return one of ``DEPENDENCE``, by kernels of this width if it has any."""
    return DEPENDENCE[score].measure(width)
