r"""Regressions on [-1, 1]: kernel ridge with a proven bound on one record's influence, and Legendre polynomials.

Which records fit and which are scored follows public rules that look at no value (:func:`split_pair`,
:func:`public_pair`). Predictions are clamped to [-1, 1], so that residuals lie in [-2, 2]; clamping moves nothing
further apart.

**Kernel ridge regression** minimises λ/2 ‖w‖² + (1/n) Σ (w·φ_i - y_i)², \|y\| ≤ 1, with the unit features of
:class:`~escudo.orientation._scores.GridFeatures`: w = (ΦᵀΦ + nλ/2)⁻¹ Φᵀy.

**Proposition 9.** ‖w‖² ≤ 1/(2λ). *Proof.* λ‖w‖² = -(2/n) Σ r_i (r_i + y_i) ≤ (2/n) Σ y_i²/4, with r = w·φ - y. ∎

**Proposition 10.** Replacing one of n records moves every prediction by at most

.. math:: R = \frac{4}{nλ} \sqrt{1 - s^2}\,(W s + 1), \quad W = \frac1{\sqrt{2λ}}, \quad
          s = \frac{\sqrt{1 + 8W^2} - 1}{4W}.

*Proof.* With A = λI + (2/n) Σ φφᵀ ≥ λI, w̃ - w = (2/n) A⁻¹ [(φφᵀ - φ̃φ̃ᵀ) w̃ - (yφ - ỹφ̃)] exactly. For unit vectors at
angle α (at most 90° up to signs, which y absorbs) the first norm is at most W sin α by Proposition 9, the second at
most 2 cos(α/2). With s = sin(α/2) the sum is 2√(1-s²)(Ws + 1), largest where W(1 - 2s²) = s. ∎ Attained as n grows.

The paper's Theorem 5, 8/(nλ^{3/2}) for λ ≤ 1, is true, and 1.7 (λ = 1) to 5.7 (λ → 0) times as large.

Reference: Design note "sensitivities", Propositions 9 and 10; M. Kusner et al. (2016), "Private Causal Inference",
Theorem 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError, SchemaError
from escudo.orientation._direction import DirectionQuestion, PairData, slices
from escudo.orientation._scores import GridFeatures
from escudo.table import Numeric, PrivateTable, Schema, held, with_sources

Floats = NDArray[np.float64]
Half = Literal["train", "test"]
_CHUNK = 8_192  # of which the rows that are read at a time are a multiple: sums are the same wherever rows lie


# ---- which records fit and which are scored


class Pair(NamedTuple):
    """Two columns on [-1, 1]."""

    x: Floats
    y: Floats

    def __repr__(self) -> str:
        return f"Pair({len(self.x)} records)"  # which may be private


def pair_of(shares: Floats) -> Pair:
    """Return pairs on [-1, 1] from shares of the public bounds; rows that lack a value are at (0, 0)."""

    def scaled(column: int) -> Iterator[Floats]:
        for part in (shares[rows] for rows in slices(len(shares))):
            yield np.where(np.isnan(part).any(axis=1), 0.0, 2.0 * part[:, column] - 1.0)

    return Pair(column_of(scaled(0)), column_of(scaled(1)))


def column_of(parts: Iterable[Floats]) -> Floats:
    """Return one column, of which some rows come at a time: beyond the memory for rows, mapped from a file."""
    return held((part[:, None] for part in parts), np.empty((0, 1)))[:, 0]


def residual_of(values: Floats, predictors: Floats, predict: Callable[[Floats], Floats]) -> Floats:
    """Return what a regression leaves of some values."""
    return column_of(values[rows] - predict(predictors[rows]) for rows in slices(len(values)))


def public_pair(schema: Schema, asked: DirectionQuestion, option: str) -> Pair:
    """Return public records, scaled by the same bounds as the private ones.

    Args:
        schema: The private table's schema.
        asked: The question; the records are among its options,
        option: under this name: a frame of any engine, or a mapping from the two columns (of a derived one, what it
            is computed from) to sequences.

    Raises:
        InputError: If they are no such thing, lack a column, or are fewer than two.
    """
    x, y, frame = asked.x, asked.y, asked.options[option]
    columns = with_sources(schema, [x, y])
    computed = {column.name for column in columns.fields if isinstance(column, Numeric) and column.derived is not None}
    if isinstance(frame, Mapping):
        import polars as pl

        try:
            frame = pl.DataFrame({name: frame[name] for name in columns.names if name not in computed})
        except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
            raise InputError(f"{option} must hold the columns {x!r} and {y!r}, of equal length.") from None
    try:
        parts = PairData(PrivateTable(frame, columns), x, y).batches()
        pair = pair_of(held((batch.values for batch in parts), np.empty((0, 2))))
    except (InputError, SchemaError) as error:
        raise InputError(f"{option} must be a frame of public records with columns {x!r} and {y!r}: {error}") from None
    if len(pair.x) < 2:
        raise InputError(f"{option} needs at least two records.")
    return pair


def halves(rows: int) -> tuple[int, int]:
    """Return how many of the rows fit regressions, and how many are scored."""
    return rows // 2, rows - rows // 2


def split_pair(pair: Pair, *, shuffle: int) -> tuple[Pair, Pair]:
    """Return the training and the test half, by position alone: a shuffle of row numbers from a public seed."""
    places = _places(len(pair.x), shuffle)
    return _taken(pair, places[0]), _taken(pair, places[1])


def half_of(pair: Pair, half: Half, *, shuffle: int) -> Pair:
    """Return one of the halves of :func:`split_pair`, without making the other one."""
    return _taken(pair, _places(len(pair.x), shuffle)[half == "test"])


def _places(rows: int, shuffle: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order, first = np.random.default_rng(shuffle).permutation(rows), halves(rows)[0]
    return order[:first], order[first:]


def _taken(pair: Pair, places: NDArray[np.int64]) -> Pair:
    return Pair(*(column_of(values[places[rows]] for rows in slices(len(places))) for values in pair))


# ---- regressions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Polynomial:
    """A polynomial in Legendre's basis, clamped to [-1, 1]."""

    coefficients: Floats

    def __call__(self, values: Floats) -> Floats:
        """Return the predictions."""
        clamped: Floats = np.clip(np.polynomial.legendre.legval(values, self.coefficients), -1.0, 1.0)
        return clamped


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KernelRidge:
    """A kernel ridge regression, clamped to [-1, 1]."""

    features: GridFeatures
    weights: Floats

    def __call__(self, values: Floats) -> Floats:
        """Return the predictions."""
        parts = [self.features(values[i : i + _CHUNK]) @ self.weights for i in range(0, len(values), _CHUNK)]
        clamped: Floats = np.clip(np.concatenate([np.empty(0), *parts]), -1.0, 1.0)
        return clamped


def fit_polynomial(x: Floats, y: Floats, *, degree: int = 7, ridge: float = 1e-4) -> Polynomial:
    """Return the polynomial that predicts y from x, with a little ridge; no privacy of its own.

    >>> t = np.linspace(-1, 1, 101)
    >>> float(np.abs(fit_polynomial(t, t**3)(t) - t**3).max()) < 0.01
    True
    """
    gram, target = np.zeros((degree + 1, degree + 1)), np.zeros(degree + 1)
    for start in range(0, len(x), _CHUNK):
        basis = np.polynomial.legendre.legvander(x[start : start + _CHUNK], degree)
        gram += basis.T @ basis
        target += basis.T @ y[start : start + _CHUNK]
    gram[np.diag_indices(degree + 1)] += ridge * max(len(x), 1)
    return Polynomial(coefficients=_solve(gram, target))


def fit_histogram(counts: Floats, noise: float, *, degree: int = 5, penalty: float = 0.2) -> Polynomial:
    """Return the polynomial that predicts the second axis from the first, from noisy counts: post-processing.

    The normal equations are sums over cells, taken at their middles; counts stay as they came, negative ones too, so
    that noise averages out. Negative eigenvalues of the Gram matrix are raised to 0, and the ridge follows the noise.

    Args:
        counts: Noisy counts on equal cells of [-1, 1]², shape (cells, cells).
        noise: Standard deviation of the noise in a cell.
        degree: Of the polynomial.
        penalty: Ridge, in units of noise times cells.
    """
    cells = counts.shape[0]
    middles = (np.arange(cells) + 0.5) * (2.0 / cells) - 1.0
    basis = np.polynomial.legendre.legvander(middles, degree)
    values, vectors = np.linalg.eigh((basis * counts.sum(axis=1)[:, None]).T @ basis)
    gram = (vectors * np.maximum(values, 0.0)) @ vectors.T
    gram[np.diag_indices(degree + 1)] += penalty * noise * cells + 1e-9
    return Polynomial(coefficients=_solve(gram, basis.T @ (counts @ middles)))


def fit_kernel_ridge(x: Floats, y: Floats, regularisation: float, width: float) -> KernelRidge:
    """Return the kernel ridge regression of y on x, both in [-1, 1], in time linear in their length."""
    features = GridFeatures(-1.0, 1.0, width)
    gram, target = np.zeros((features.count, features.count)), np.zeros(features.count)
    for start in range(0, len(x), _CHUNK):
        rows = features(x[start : start + _CHUNK])
        gram += rows.T @ rows
        target += rows.T @ y[start : start + _CHUNK]
    gram[np.diag_indices(features.count)] += len(x) * regularisation / 2
    return KernelRidge(features, _solve(gram, target))


def _solve(gram: Floats, target: Floats) -> Floats:
    solution: Floats = np.linalg.solve(gram, target).astype(np.float64)
    return solution


# ---- how far one record moves them


def residual_change(n: int, regularisation: float) -> float:
    """Return R of Proposition 10: how far one of ``n`` training records can move a residual.

    >>> [round(residual_change(1, λ), 2) for λ in (0.01, 0.1, 1.0)]
    [1703.79, 74.94, 4.71]
    """
    reach = 1 / math.sqrt(2 * regularisation)
    s = (math.sqrt(1 + 8 * reach**2) - 1) / (4 * reach)
    return 4 / (n * regularisation) * math.sqrt(1 - s * s) * (reach * s + 1)


def paper_residual_change(n: int, regularisation: float) -> float:
    """Return the bound of the paper's Theorem 5, 8/(nλ^{3/2}), which it states for λ ≤ 1."""
    return 8 / (n * regularisation * math.sqrt(regularisation))
