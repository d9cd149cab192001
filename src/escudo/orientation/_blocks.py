r"""Blocks of records: every block runs a procedure on its own records and votes, and none ever raises.

Equal blocks are computed at once, as arrays of shape (blocks, records). A :class:`Blocks` holds both columns;
``forward`` is the hypothesis x->y and ``backward`` y->x, each a :class:`Hypothesis` with a cause and an effect.
Whatever several procedures need (standardised columns, ranks, Legendre polynomials, residuals) is computed once and
shared.

Inside a block everything may depend on the data: :math:`z` is the column less its mean over its standard deviation,
:math:`b` the column stretched to [-1, 1] by the block's own smallest and largest value, and :math:`u = 2 (\mathrm{rank}
- 1/2)/n - 1` with average ranks. None of that costs privacy, because a block's only output is one vote
(``mechanisms.votes``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from escudo._card import tracking

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

Preference = Callable[["Blocks"], Floats]
"""Above 0 where a block prefers x->y, below 0 for y->x; one number per block, each a function of that block alone."""

SMALLEST = 32
"""Records in a block, planned; a block that has fewer than half of these complete votes 0."""

FEWEST_DISTINCT = 8
"""A block votes 0 where a column has fewer different values: scores see the steps then, not the direction."""

DEPENDENT = 0.05
"""A block votes 0 unless its columns are dependent; of blocks whose columns are not, at most about this part vote."""

EQUAL = 1e-10
"""Preferences closer to 0 than this come from rounding errors, and make no vote."""

_AT_ONCE = 2**15  # records: the arrays of one go stay within the processor's cache


# ---- votes


def cast(prefer: Preference, records: Floats) -> NDArray[np.int64]:
    """Return the vote of every block: 1 for x->y, -1 for y->x, 0 where it cannot tell.

    A block votes 0 if fewer than half of ``SMALLEST`` of its records are complete, a column has fewer than
    ``FEWEST_DISTINCT`` different values, its columns are not seen to depend on each other (:meth:`Blocks.dependent`),
    the procedure fails, or its preference is no number or within 1e-10 of 0.

    Args:
        prefer: The procedure.
        records: Shape (blocks, records, 2); NaN where a value is missing or a seat is empty.

    **Guarantee.** Vote j is a function of block j's records alone, the reasons for a 0 among them: blocks are computed
    side by side, but where one of them makes the procedure fail, all of that go are done again one by one. So records
    of one block move one vote, from -1 to 1 at the farthest: by at most 2, however many values between them there are.
    """
    complete: NDArray[np.bool_] = np.logical_not(np.isnan(records).any(axis=2))
    counts = complete.sum(axis=1)
    votes = np.zeros(len(records), dtype=np.int64)
    with tracking("Blocks voting", total=len(records)) as advance:
        for chosen, size in _groups(counts):
            kept = records[chosen][complete[chosen]].reshape(len(chosen), size, 2)
            votes[chosen] = _cast(prefer, np.ascontiguousarray(kept[:, :, 0]), np.ascontiguousarray(kept[:, :, 1]))
            advance(len(chosen))
    return votes


def one_by_one(function: Callable[[Floats, Floats], float]) -> Preference:
    """Return the preference of a user's own function, called once per block with copies of its x and y.

    The function must judge each block by its records alone: one that remembers earlier blocks would let a record move
    more than its own vote.
    """

    def judged(x: Floats, y: Floats) -> float:
        try:
            return float(function(x, y))
        except Exception:  # its block votes 0, and the others are not asked again
            return np.nan

    def prefer(blocks: Blocks) -> Floats:
        pairs = zip(blocks.x.values, blocks.y.values, strict=True)
        return np.array([judged(x.copy(), y.copy()) for x, y in pairs])

    return prefer


def _groups(counts: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield blocks with equally many complete records, not too many at once."""
    for size in np.unique(counts[2 * counts >= SMALLEST]).tolist():
        alike = np.flatnonzero(counts == size)
        step = max(1, _AT_ONCE // size)
        for start in range(0, len(alike), step):
            yield alike[start : start + step], size


def _cast(prefer: Preference, x: Floats, y: Floats) -> NDArray[np.int64]:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning may quote values
            blocks = Blocks(x, y)
            preference = np.asarray(prefer(blocks), dtype=np.float64).reshape(len(x))
            clear = np.isfinite(preference) & (np.abs(preference) >= EQUAL)
            told = clear & ~blocks.coarse(FEWEST_DISTINCT) & blocks.dependent
            return np.where(told, np.sign(preference), 0.0).astype(np.int64)
    except Exception:  # whatever a procedure does, its block votes 0: an error would tell something about its records
        if len(x) == 1:
            return np.zeros(1, dtype=np.int64)
        return np.concatenate([_cast(prefer, x[[j]], y[[j]]) for j in range(len(x))])


# ---- what a block knows

DEGREE = 5
"""The highest degree of the polynomials."""

HARMONICS = 5
"""How many cosines describe a column of ranks."""

_TINY = 1e-12


class Blocks:
    """Both columns of every block, and the two hypotheses about them.

    Args:
        x: Shape (blocks, records), complete.
        y: The same shape.
    """

    def __init__(self, x: Floats, y: Floats):
        self.x, self.y = Column(x), Column(y)
        self.forward = Hypothesis(self.x, self.y)
        self.backward = Hypothesis(self.y, self.x)

    @property
    def count(self) -> int:
        """How many blocks."""
        return len(self.x.values)

    def coarse(self, fewest: int) -> NDArray[np.bool_]:
        """Return which blocks have a column with fewer than ``fewest`` different values."""
        return np.minimum(self.x.distinct, self.y.distinct) < fewest

    @cached_property
    def dependence(self) -> Floats:
        r"""Four rank correlations of every block, times :math:`\sqrt{n - 1}`, shape (blocks, 4).

        Spearman's between x or its distance from its median, and y or its distance from its median: what rises, bends
        and widens. Each is about standard normal where the columns are independent.
        """
        pairs = [(x, y) for x in (self.x.u, self.x.distance_ranks) for y in (self.y.u, self.y.distance_ranks)]
        root = (self.forward.n - 1) ** 0.5
        scores: Floats = root * np.stack([_correlation(first, second) for first, second in pairs], axis=1)
        return scores

    @cached_property
    def dependent(self) -> NDArray[np.bool_]:
        """Which blocks have columns that depend on each other: the largest of four correlations, by Bonferroni."""
        told: NDArray[np.bool_] = np.abs(self.dependence).max(axis=1) > ndtri(1 - DEPENDENT / 8)
        return told


class Hypothesis:
    """The hypothesis that one column of the blocks causes the other."""

    def __init__(self, cause: Column, effect: Column):
        self.cause, self.effect = cause, effect

    @property
    def n(self) -> int:
        """Records in a block."""
        return int(self.cause.values.shape[1])

    @property
    def ridge(self) -> float:
        """How strongly fits are drawn to zero, per record."""
        return 3e-3 if self.n < 300 else 3e-4

    @cached_property
    def basis(self) -> Floats:
        """Legendre polynomials of the stretched cause, shape (blocks, degrees + 1, records)."""
        return _legendre(self.cause.b)

    @cached_property
    def gram(self) -> Floats:
        """Products of the polynomials, shape (blocks, degrees + 1, degrees + 1)."""
        return self.basis @ self.basis.transpose(0, 2, 1)

    @cached_property
    def _products(self) -> Floats:
        targets = np.stack([self.effect.z, self.effect.b], axis=2)
        return self.basis @ targets

    def fit(self, target: str, degree: int) -> Floats:
        """Return the fit of the effect (``"z"`` standardised, ``"b"`` stretched) by a polynomial in the cause."""
        products = self._products[:, : degree + 1, "zb".index(target)]
        return _predict(self.basis, self.gram, products, self.ridge * self.n, degree)

    @cached_property
    def residual3(self) -> Floats:
        """What a cubic in the cause leaves of the standardised effect."""
        return self.effect.z - self.fit("z", 3)

    @cached_property
    def residual5(self) -> Floats:
        """What a polynomial of degree 5 in the cause leaves of the standardised effect."""
        return self.effect.z - self.fit("z", DEGREE)

    @cached_property
    def spread5(self) -> Floats:
        """How wide the noise is at each record, from the residuals of degree 5."""
        return self.spread_of(self.residual5)

    @cached_property
    def rank_residual(self) -> Floats:
        """What a polynomial of degree 5 in the cause's ranks leaves of the effect's ranks."""
        basis = _legendre(self.cause.u)
        gram = basis @ basis.transpose(0, 2, 1)
        products = (basis @ self.effect.u[:, :, None])[:, :, 0]
        return self.effect.u - _predict(basis, gram, products, self.ridge * self.n, DEGREE)

    @cached_property
    def sorted_effect(self) -> Floats:
        """The standardised effect in the order of the cause."""
        return np.take_along_axis(self.effect.z, self.cause.order, axis=1)

    @cached_property
    def sorted_ranks(self) -> Floats:
        """The effect's ranks in the order of the cause."""
        return np.take_along_axis(self.effect.u, self.cause.order, axis=1)

    def spread_of(self, residual: Floats) -> Floats:
        r"""Return the scale s(x) of residuals: the exponential of a cubic fit to their log squares.

        It is kept within :math:`e^{\pm 2}` of its middle and set so that (residual / s)² has mean 1.
        """
        square = residual * residual
        level = np.log(square + 0.02 * square.mean(axis=1, keepdims=True) + 1e-9)
        fitted = self.smooth(level, 3, 3 * self.ridge)
        middle = fitted.mean(axis=1, keepdims=True)
        spread = np.exp(np.clip(fitted, middle - 4.0, middle + 4.0) / 2)
        scaled: Floats = spread * np.sqrt((square / spread**2).mean(axis=1, keepdims=True))
        return scaled

    def weighted_fit(self, weights: Floats, target: Floats, degree: int, ridge: float) -> Floats:
        """Return the weighted fit of any target, the ridge scaled by the mean weight."""
        basis = self.basis[:, : degree + 1]
        weighted = basis * weights[:, None, :]
        gram = weighted @ basis.transpose(0, 2, 1)
        products = (weighted @ target[:, :, None])[:, :, 0]
        scale = ridge * self.n * weights.mean(axis=1)
        return _predict(basis, gram, products, scale[:, None, None], degree)

    def smooth(self, target: Floats, degree: int, ridge: float) -> Floats:
        """Return the fit of any target by a polynomial in the cause."""
        products = (self.basis[:, : degree + 1] @ target[:, :, None])[:, :, 0]
        return _predict(self.basis, self.gram, products, ridge * self.n, degree)


class Column:
    """One column of every block, with what is known about it alone; arrays are in the order of the column's ``owner``.

    Args:
        values: Shape (blocks, records).
    """

    def __init__(self, values: Floats):
        self.values = values

    @cached_property
    def order(self) -> Indices:
        """The records of each block from the smallest value to the largest."""
        return np.argsort(self.values, axis=1, kind="stable")

    @cached_property
    def ordered(self) -> Floats:
        """The values of each block, increasing."""
        return np.take_along_axis(self.values, self.order, axis=1)

    @cached_property
    def distinct(self) -> Indices:
        """How many different values each block holds."""
        counts: Indices = 1 + np.count_nonzero(np.diff(self.ordered, axis=1) > 0, axis=1)
        return counts

    @cached_property
    def z(self) -> Floats:
        """Standardised values; zeros where the column is constant."""
        centred = self.values - self.values.mean(axis=1, keepdims=True)
        spread = np.sqrt(np.mean(centred * centred, axis=1, keepdims=True))
        standard: Floats = centred / np.where(spread > _TINY, spread, 1.0)
        return standard

    @cached_property
    def b(self) -> Floats:
        """Values stretched to [-1, 1] by the block's extremes."""
        low, high = self.ordered[:, :1], self.ordered[:, -1:]
        width = high - low
        return (self.values - low) * (2.0 / np.where(width > _TINY, width, 1.0)) - 1.0

    @cached_property
    def u(self) -> Floats:
        """Average ranks, mapped to (-1, 1)."""
        blocks, n = self.values.shape
        places = np.broadcast_to(np.arange(n, dtype=np.float64), (blocks, n))
        if (self.distinct < n).any():
            places = _average_places(self.ordered)
        scaled = np.empty((blocks, n))
        np.put_along_axis(scaled, self.order, (2.0 * places + 1.0) / n - 1.0, axis=1)
        return scaled

    @cached_property
    def distance_ranks(self) -> Floats:
        """Average ranks of the values' distances from the block's median, mapped to (-1, 1)."""
        return Column(np.abs(self.values - np.median(self.values, axis=1, keepdims=True))).u

    @cached_property
    def waves(self) -> Floats:
        """Cosines of the ranks, shape (blocks, harmonics, records)."""
        return cosines((self.u + 1) / 2)

    @cached_property
    def entropy(self) -> Floats:
        """Entropy of the standardised values, by spacings."""
        return entropy(np.take_along_axis(self.z, self.order, axis=1))


def entropy(ordered: Floats) -> Floats:
    r"""Return the entropy of increasing values by m-spacings, bounded below so that ties do not send it to -∞.

    .. math:: H = \frac1{n-m} \sum_i \log \max\Bigl(\frac{n+1}{m} (v_{(i+m)} - v_{(i)}),\; 0.02\Bigr),
              \qquad m = \max(2, \mathrm{round}(0.7 \sqrt n))
    """
    n = ordered.shape[1]
    m = max(2, round(0.7 * n**0.5))
    gaps = (ordered[:, m:] - ordered[:, :-m]) * ((n + 1) / m)
    mean: Floats = np.log(np.maximum(gaps, 0.02)).mean(axis=1)
    return mean


def cosines(u: Floats) -> Floats:
    """Return cos(jπu) for j = 1, 2, ..., shape (blocks, harmonics, records)."""
    first = np.cos(np.pi * u)
    waves = np.empty((u.shape[0], HARMONICS, u.shape[1]))
    waves[:, 0] = first
    waves[:, 1] = 2 * first * first - 1
    for j in range(2, HARMONICS):
        waves[:, j] = 2 * first * waves[:, j - 1] - waves[:, j - 2]
    return waves


def _correlation(first: Floats, second: Floats) -> Floats:
    """Return the correlation of two centred columns in every block, 0 where one is constant."""
    products = (first * second).mean(axis=1)
    scales = np.sqrt((first * first).mean(axis=1) * (second * second).mean(axis=1))
    correlation: Floats = products / np.where(scales > _TINY, scales, np.inf)
    return correlation


def _average_places(ordered: Floats) -> Floats:
    """Return the mean place of each run of equal values, for every place."""
    blocks, n = ordered.shape
    places = np.arange(n)
    new = np.ones((blocks, n), dtype=bool)
    new[:, 1:] = np.diff(ordered, axis=1) > 0
    first = np.maximum.accumulate(np.where(new, places, 0), axis=1)
    ends = np.ones((blocks, n), dtype=bool)
    ends[:, :-1] = new[:, 1:]
    last = np.minimum.accumulate(np.where(ends, places, n)[:, ::-1], axis=1)[:, ::-1]
    return (first + last) / 2


def _legendre(t: Floats) -> Floats:
    blocks, n = t.shape
    basis = np.empty((blocks, DEGREE + 1, n))
    basis[:, 0] = 1.0
    basis[:, 1] = t
    for m in range(1, DEGREE):
        basis[:, m + 1] = ((2 * m + 1) / (m + 1)) * t * basis[:, m] - (m / (m + 1)) * basis[:, m - 1]
    return basis


def _predict(basis: Floats, gram: Floats, products: Floats, ridge: float | Floats, degree: int) -> Floats:
    terms = degree + 1
    system = gram[:, :terms, :terms] + ridge * np.eye(terms)
    weights = np.linalg.solve(system, products[:, :terms, None])
    predicted: Floats = (weights.transpose(0, 2, 1) @ basis[:, :terms])[:, 0]
    return predicted
