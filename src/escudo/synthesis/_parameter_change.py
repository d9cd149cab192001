"""How far one point moves the weights of a least squares fit: exactly for the rows of a table, by search for others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError

__all__ = ["Equation", "ParameterChange", "Regression", "change_of", "correlation"]

Floats = NDArray[np.float64]

_PATTERNS = 5  # all points with coordinates -1, 0 and 1 are tried for up to so many columns
_RANDOM = 512
_HALVINGS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterChange:
    """How far one point moves the parameters of a model: the largest change of any, on the standardised scale.

    Attributes:
        distance: Between the fitted parameters of the parents and the true ones: Lemma 1, less the part that is the
            same for every model; 0 if no parent is among the predictors.
        removed: If one row of the table is left out; exact.
        possible: If a point is added that obeys the column's true equation, with every value within reach.
        anything: If any point within reach is added, as differential privacy has it.
    """

    distance: float
    removed: float
    possible: float
    anything: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Equation:
    """The true equation of a column, or what stands for it.

    Attributes:
        name: The column's name.
        column: Its place in the data.
        parents: The places of its parents.
        weights: Their weights.
    """

    name: str
    column: int
    parents: tuple[int, ...]
    weights: Floats

    def errors(self, rows: Floats) -> Floats:
        """Return what the equation leaves unexplained."""
        left: Floats = rows[:, self.column] - rows[:, self.parents] @ self.weights
        return left


@dataclass(frozen=True, slots=True, eq=False)
class Regression:
    """Least squares, with what is needed to add or take away a point: (FᵀF)⁻¹."""

    weights: Floats
    inverse: Floats

    @classmethod
    def fit(cls, name: str, features: Floats, target: Floats) -> Regression:
        """Fit ``target`` to ``features``, without an intercept.

        Raises:
            InputError: If the features are linearly dependent.
        """
        gram = features.T @ features
        if gram.size and np.linalg.matrix_rank(gram, hermitian=True) < len(gram):
            raise InputError(f"the predictors of column {name!r} are linear combinations of each other; drop one.")
        inverse: Floats = np.linalg.inv(gram).astype(np.float64)
        return cls(inverse @ (features.T @ target), inverse)

    def moved(self, points: Floats, targets: Floats, *, removed: bool = False) -> float:
        """Return the largest change of a weight if one of these points is added, or taken away (Sherman-Morrison)."""
        if not (self.weights.size and len(points)):
            return 0.0
        pulled = points @ self.inverse
        leverage = np.einsum("ij,ij->i", pulled, points)
        divisor = np.maximum(1 - leverage, 1e-12) if removed else 1 + leverage
        change = np.abs(pulled).max(axis=1) * np.abs(targets - points @ self.weights) / divisor
        return float(change.max())


def change_of(
    equation: Equation, rows: Floats, features: list[int], *, reach: float, rng: np.random.Generator
) -> ParameterChange:
    """Measure how far one point moves the parameters of a column's regression on ``features``.

    Args:
        equation: The column's true equation.
        rows: The standardised data.
        features: The places of the predictors.
        reach: The largest value of an added point.
        rng: For the search.
    """
    fitted = Regression.fit(equation.name, rows[:, features], rows[:, equation.column])
    distances = [
        abs(float(fitted.weights[features.index(place)] - weight))
        for place, weight in zip(equation.parents, equation.weights, strict=True)
        if place in features
    ]
    inputs = sorted({*features, *equation.parents})
    tried = _points(len(inputs), rng) * reach
    points = np.zeros((len(tried), rows.shape[1]))
    points[:, inputs] = tried
    exact = points[:, equation.parents] @ equation.weights
    most = float(np.abs(equation.errors(rows)).max())
    possible = 0.0
    for targets in (exact - most, exact + most):
        within = np.abs(targets) <= reach
        possible = max(possible, fitted.moved(points[within][:, features], targets[within]))
    # The change is convex in the target, so its largest value is at an end.
    ends = [np.full(len(points), end) for end in (-reach, reach)]
    return ParameterChange(
        distance=max(distances, default=0.0),
        removed=fitted.moved(rows[:, features], rows[:, equation.column], removed=True),
        possible=possible,
        anything=max(fitted.moved(points[:, features], end) for end in ends),
    )


def correlation(features: Floats, errors: Floats) -> float:
    """Return the largest correlation, in size, of a feature with the errors; 0 without features or errors."""
    size = math.sqrt(float(errors @ errors))
    if not features.shape[1] or size == 0:
        return 0.0
    sizes = np.sqrt((features * features).sum(axis=0))
    return float(np.abs(features.T @ errors / (sizes * size)).max())


def _points(columns: int, rng: np.random.Generator) -> Floats:
    """Return points of the cube [-1, 1]^columns: corners, faces and random ones, near and far from its centre."""
    signs = rng.choice([-1.0, 0.0, 1.0], size=(_RANDOM, columns))
    if columns <= _PATTERNS:
        signs = np.array(list(product([-1.0, 0.0, 1.0], repeat=columns)))
    uneven = rng.choice([-1.0, 1.0], size=(_RANDOM, columns)) * 2.0 ** -rng.uniform(0, _HALVINGS, (_RANDOM, columns))
    shapes = np.concatenate([signs, np.eye(columns), uneven])
    return np.concatenate([shapes * 2.0**-power for power in range(_HALVINGS + 1)])
