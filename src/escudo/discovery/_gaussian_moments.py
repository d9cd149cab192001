r"""Second moments of a table of numbers, measured where noise does the least harm: after whitening.

Noise on a covariance matrix is the same in every direction, while the data are not: where columns nearly determine each
other, what is left of one given the others is small, and noise drowns it first. So the matrix is measured twice, the
first time to learn which way the data lie, the second time in coordinates in which they lie alike:

1. *Scales.* Each column's histogram in 64 cells of its range gives its middle and spread.
2. *Whitening.* Rows x, in units of the spread, are brought to length 1; released is :math:`\sum x x^T / \|x\|^2`. This
   takes the least noise, and its eigenvectors are those of the covariance Σ; the eigenvalues follow from
   :math:`δ_i = \tfrac{λ_i}{2} \int_0^\infty (1 + λ_i t)^{-1} \prod_j (1 + λ_j t)^{-1/2} dt`. Lifted to the noise where
   they are below, they give the map W with :math:`W Σ W^T ≈ I`.
3. *Moments.* Rows z = (½, W x) are shrunk to length C where they are longer; released is :math:`\sum z z^T`. Now every
   partial correlation, whatever it is given, has about the same noise: that of one entry of this matrix.

**Clip bound.** :math:`C^2 = d + \sqrt{2d} + \tfrac14`, one standard deviation above the mean squared length of white
rows. Clipping white rows shrinks the matrix evenly and pulls what is left of Σ - I towards zero by a factor that is
known for normal rows, and taken off. What remains is small against the noise, for skewed and heavy tails as well
(``benchmarks/gaussian_discovery.py``); unit rows throughout would take less noise, but mistake skewness for dependence.

**Sensitivity.** Histograms of d columns: that of d tables of counts. Each matrix, in the Frobenius norm: that of one
table of counts times C² (1 in the first), as :mod:`escudo.mechanisms._second_moments` proves. Rows enter as whole
numbers of steps of 2⁻¹². A row with a missing value enters none of the three.

**Reference.** D. Tyler (1987), "A distribution-free M-estimator of multivariate scatter", and A. Dürre, D. Tyler, D.
Vogel (2016), "On the eigenvalues of the spatial sign covariance matrix in more than two dimensions", for unit rows. The
clipped matrix is that of C. Dwork, K. Talwar, A. Thakurta, L. Zhang (2014), "Analyze Gauss"; the second look after
whitening is the idea of G. Kamath, J. Li, V. Singhal, J. Ullman (2019), "Privately learning high-dimensional
distributions", COLT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms import Seed, as_planned, bounded_rows, second_moments
from escudo.privacy import Account, GaussianEvent
from escudo.table import PrivateTable

__all__ = ["Moments", "clipped_rows", "histograms", "measured", "squared_limit", "turned_rows", "unit_rows"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CELLS = 64
"""Cells of a column's range, to find its middle and spread."""

STEPS = 2**12
"""Steps from 0 to 1: products of two entries add up exactly, in float64 over a batch and in int64 over 2³³ rows."""

_CONSTANT = 0.5
_CLEAR = 4.0  # standard deviations of the noise
_BATCH = 2**15
_SHRINK = 1 - 2.0**-40  # outweighs the rounding errors of the factor that shrinks a row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """A covariance matrix of standardised columns as it was measured.

    Attributes:
        white: The covariance in whitened coordinates, near the identity; shape (columns, columns).
        back: The map from whitened coordinates to standardised columns.
        noise: The standard deviation of the noise on the diagonal of ``white``; off it, it is smaller by √2.
        rows: How many rows there are; noisy where their number is private.
    """

    white: Floats
    back: Floats
    noise: float
    rows: float

    @property
    def correlation(self) -> Floats:
        """The correlations of the columns, positive definite."""
        return self._mapped()[0]

    def effective_rows(self, *, alone: bool = False) -> float:
        r"""Return how many rows without noise would say as much: one over the variance of a partial correlation.

        With residuals a and b of two columns given all others, in whitened coordinates, the noise on their product has
        variance :math:`\tfrac{τ^2}{2}(\|a\|^2 \|b\|^2 + (a \cdot b)^2)`; the mean over all pairs is taken, and what
        clipping costs beside.

        Args:
            alone: Whether correlations are meant that are given nothing; they stand more noise.
        """
        matrix, back = self._mapped()
        d = len(matrix)
        left, residuals = np.ones(d), back
        if not alone:
            precision = np.linalg.inv(matrix)
            left = 1 / np.diag(precision)
            residuals = (precision * left[:, None]) @ back
        inner = residuals @ residuals.T
        size = np.diag(inner)
        spread = (np.outer(size, size) + inner**2) / np.outer(left, left)
        mean = float(spread[np.triu_indices(d, 1)].mean())
        return 1 / ((1 + 2 / d) / max(self.rows, 1.0) + self.noise**2 / 2 * mean)

    def renoised(self, rng: np.random.Generator) -> Moments:
        """Return what could have been measured if this were the truth: chance and noise drawn anew; public."""
        d = len(self.white)
        chance = math.sqrt(2 * (1 + 2 / d) / max(self.rows, 1.0))
        drawn = self.white + math.hypot(chance, self.noise) * _symmetric(rng.standard_normal((d, d)))
        return Moments(white=drawn, back=self.back, noise=self.noise, rows=self.rows)

    def _mapped(self) -> tuple[Floats, Floats]:
        """Return the correlations, and the map to them from whitened coordinates."""
        # Below a share of its own noise an eigenvalue says nothing; where the noise is small, nothing is lifted.
        floor = min(max(self.noise, 1e-4), 0.5)
        matrix = self.back @ _lifted(self.white, floor) @ self.back.T
        scale = np.sqrt(np.diag(matrix))[:, None]
        return matrix / scale / scale.T, self.back / scale


def measured(
    table: PrivateTable,
    names: tuple[str, ...],
    events: tuple[GaussianEvent, GaussianEvent, GaussianEvent],
    *,
    public_rows: int | None,
    account: Account,
    seed: Seed,
) -> Moments:
    """Release histograms and both matrices; charges ``account`` before noise is drawn, once for each."""
    d = len(names)

    def released(exact: Integers, event: GaussianEvent, purpose: str) -> Floats:
        noisy = as_planned(exact, event, account=account, seed=seed, purpose=purpose).value
        return np.asarray(noisy, dtype=np.float64)

    counts = released(histograms(_complete(table, names), d), events[0], "scales")
    rows = float(public_rows) if public_rows is not None else max(float(counts.sum()) / d, 1.0)
    read = [_middle_and_spread(column, rows, noise=events[0].scale) for column in counts]
    middle, spread = np.array(read).T

    batches = ((batch - middle) / spread for batch in _complete(table, names))
    sums = released(second_moments(map(unit_rows, batches), d), events[1], "whitening") / STEPS**2
    noise = events[1].scale / STEPS**2 / rows
    values, vectors = np.linalg.eigh(_symmetric(sums) / rows)
    # The largest eigenvalue of d × d such noise is near sqrt(2 d) times its standard deviation.
    roots = np.sqrt(_unshrunk(np.maximum(values, min(noise * math.sqrt(2 * d), 1 / d))))
    turn, back = (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T
    limit = squared_limit(d)
    batches = ((batch - middle) / spread for batch in _complete(table, names))
    exact = second_moments((clipped_rows(turned_rows(batch, turn), limit) for batch in batches), d + 1)
    sums = released(exact, events[2], "second moments") / STEPS**2
    second, noise = _covariance(_symmetric(sums), rows, noise=events[2].scale / STEPS**2)
    size = max(float(np.trace(second)) / d, noise)
    slope = _slope(d)
    white = np.eye(d) + (second / size - np.eye(d)) * slope
    return Moments(white=white, back=back, noise=noise / size * slope, rows=rows)


def squared_limit(columns: int) -> int:
    """Return the largest squared length of a row, in squared steps."""
    return math.floor((columns + math.sqrt(2 * columns) + _CONSTANT**2) * STEPS**2)


def turned_rows(rows: Floats, turn: Floats) -> Floats:
    """Return W x for each row, by steps that treat every row alike.

    A matrix product may round a row differently depending on where it stands among others, and one row more or less
    would then move them all by a hair.
    """
    found = np.zeros(rows.shape)
    for place in range(rows.shape[1]):
        found += rows[:, place, None] * turn[:, place]
    return found


def clipped_rows(rows: Floats, limit: int) -> Floats:
    """Return (½, x) for each row in whole steps, with a squared length of at most ``limit``, exactly."""
    steps: Floats = np.column_stack([np.full(len(rows), _CONSTANT), np.clip(rows, -1e6, 1e6)]) * STEPS
    return bounded_rows(steps, limit)


def unit_rows(rows: Floats) -> Floats:
    """Return each row brought to length 1, in whole steps, with a squared length of at most STEPS², exactly."""
    within = np.clip(rows, -1e6, 1e6)
    length = np.maximum(np.sqrt((within * within).sum(axis=1)), 1e-9)
    found: Floats = np.trunc(within * (STEPS * _SHRINK / length)[:, None])
    return found


def histograms(batches: Iterator[Floats], columns: int) -> Integers:
    """Return how many rows lie in each cell of each column's range, shape (columns, cells)."""
    found = np.zeros((columns, CELLS), dtype=np.int64)
    for batch in batches:
        cells = np.clip(((batch + 1) * (CELLS / 2)).astype(np.int64), 0, CELLS - 1)
        for place in range(columns):
            found[place] += np.bincount(cells[:, place], minlength=CELLS)
    return found


def _complete(table: PrivateTable, names: tuple[str, ...]) -> Iterator[Floats]:
    for batch in table.batches(_BATCH, list(names), encode="scaled"):
        yield batch[~np.isnan(batch).any(axis=1)]


def _covariance(sums: Floats, rows: float, *, noise: float) -> tuple[Floats, float]:
    """Return the covariance from sums of (½, x)(½, x)ᵀ, and the noise on its diagonal."""
    weight = max(float(sums[0, 0]) / _CONSTANT**2, rows / 4, 1.0)
    mean = sums[0, 1:] / _CONSTANT / weight
    return sums[1:, 1:] / weight - np.outer(mean, mean), noise / weight


def _unshrunk(unit: Floats) -> Floats:
    """Return the eigenvalues of Σ from those of the matrix of unit rows, scaled to mean 1, by fixed-point steps."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    share = (nodes + 1) / 2
    goal: Floats = unit / unit.sum()
    found: Floats = goal * len(goal)
    for _ in range(200):
        scale = math.exp(-float(np.log(found).mean()))
        at = scale * (share / (1 - share)) ** 2  # from (0, 1) to (0, ∞)
        width = weights / 2 * scale * 2 * share / (1 - share) ** 3
        fall = np.exp(-np.log1p(np.outer(at, found)).sum(axis=1) / 2)
        shrunk = found / 2 * ((width * fall)[:, None] / (1 + np.outer(at, found))).sum(axis=0)
        step: Floats = goal / shrunk
        found = found * step * (len(goal) / float((found * step).sum()))
        if np.abs(step - 1).max() < 1e-6:
            break
    return found


def _middle_and_spread(counts: Floats, rows: float, *, noise: float) -> tuple[float, float]:
    """Return a column's middle and spread on [-1, 1] from a noisy histogram.

    Cells that stand out from the noise give a mean and a standard deviation, whatever the law, but lose its tails. The
    normal law nearest in squares uses all cells, but sees one of two humps only. The larger spread is taken; and where
    little stands out, the normal law alone.
    """
    from scipy.special import ndtr

    edges = np.linspace(-1, 1, CELLS + 1)
    edges[0], edges[-1] = -np.inf, np.inf  # what lies beyond the range was counted in the outer cells
    middles = np.linspace(-1, 1, 4 * CELLS + 1)
    best, found = -math.inf, (0.0, 1.0)
    for spread in np.geomspace(0.5 / CELLS, 1.0, 40):
        shares = np.diff(ndtr((edges - middles[:, None]) / spread), axis=1)
        # Least squares: |counts - n p|², without what does not depend on p.
        match = shares @ counts - rows / 2 * (shares * shares).sum(axis=1)
        place = int(np.argmax(match))
        if match[place] > best:
            best, found = float(match[place]), (float(middles[place]), float(spread))
    clear = np.where(counts > _CLEAR * noise, counts, 0.0)
    if clear.sum() < rows / 3:
        return found
    centres = (np.arange(CELLS) + 0.5) * (2 / CELLS) - 1
    mean = float(centres @ clear / clear.sum())
    return mean, max(found[1], math.sqrt(float((centres - mean) ** 2 @ clear / clear.sum())))


def _slope(columns: int) -> float:
    r"""Return by how much to stretch what is left of a clipped white covariance beside the identity.

    For normal z with squared length r and weight w = min(1, C²/r) the matrix's diagonal is :math:`E[w r]/d`, and an
    entry δ off the diagonal becomes :math:`δ\, E[w r^2] / d(d + 2)`, by the derivative of the density in δ.
    """
    from scipy.special import gammaincinv

    share = (np.arange(4000) + 0.5) / 4000
    squared = 2 * gammaincinv(columns / 2, share)
    weight = np.minimum(1.0, squared_limit(columns) / STEPS**2 / (squared + _CONSTANT**2))
    return float((columns + 2) * (weight * squared).mean() / (weight * squared**2).mean())


def _lifted(matrix: Floats, floor: float) -> Floats:
    values, vectors = np.linalg.eigh(_symmetric(matrix))
    return _symmetric((vectors * np.maximum(values, floor)) @ vectors.T)


def _symmetric(matrix: Floats) -> Floats:
    mean: Floats = (matrix + matrix.T) / 2
    return mean
