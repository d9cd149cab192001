r"""Dependence scores of ranks: Spearman and Kendall, with tie rules under which their sensitivities are exact.

Both scores are absolute values in [0, 1]: 0 for columns that do not rise or fall together, 1 for columns that
always do. They look at m pairs (a_i, b_i). Neighbours: one pair is replaced by any other, m is fixed and public.

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
most 4/m, and so does \|τ_a\|. *Proof.* A pair of points is in m - 1 of the m(m-1)/2 comparisons; each moves by at
most 2.

The tie-corrected ρ and τ_b, which most libraries compute, have no such bound: a spike at one value makes them jump
by 1.

Reference:
    Design note "sensitivities", Propositions 1 and 2; M. Kusner et al. (2016), "Private Causal Inference", Theorem 1,
    which has 30/m and 4/m.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "inversions",
    "kendall",
    "kendall_sensitivity",
    "signed_kendall",
    "signed_spearman",
    "spearman",
    "spearman_sensitivity",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
