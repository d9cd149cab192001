r"""How far one point moves the parameters of a causal model, and of one that knows no causes: a measurement.

*Causally Constrained Data Synthesis* compares two linear models of the same standardised columns. Each predicts every
column :math:`x_i` by least squares: the causal one from its parents, :math:`\hat β = (P^T P)^{-1} P^T x`, the
associational one from the features of another structure, :math:`\hat γ = (H^T H)^{-1} H^T x`. The true equation is
:math:`x = P β + e`, with bounded, symmetric errors.

**Lemma 1 and Theorem 1.** An adversary adds one point that obeys the true equation, with inputs as large as they like.
Far out, such a point pulls the parameters of the parents to β, within what its own error allows; so they move by

.. math:: |\hat β - β| = |(P^T P)^{-1} P^T e| \quad\text{and}\quad |\hat γ_P - β|

beyond that. With infinite data the first is zero and the second is not. With finite data the first is the smaller one
*if the parents are much less correlated with the errors than the features are*, :math:`P^T e \ll H^T e`. That is the
finite-sample condition; it fails where the extra features hardly depend on the column.

**Counter-examples.** A table with :math:`\sum x_2^2 \sum x_1 e = \sum x_1 x_2 \sum x_2 e` has :math:`\hat γ_1 = β`
exactly while :math:`\hat β \ne β`; and a child that is determined by the column, :math:`x_2 = c x_3`, makes an
associational model without error, which no point of the true model can move at all. (The paper puts both into one
table. That works only for β = 0: with a determined child the least squares solution is :math:`\hat γ = (0, 1/c)`.)

**Why no ε is ever made smaller by this.** The theorem speaks of points *that the true model could have made*, and takes
the databases that it can make for all there are. Differential privacy speaks of every point the schema allows. They,
too, move the causal model less where it was measured (``experiments/results/stability.md``: in 18 of 18 settings); but
both changes grow with the points' reach, and a table whose columns are nearly collinear is unstable for either model:
no bound over all tables follows. Escudo's sensitivities are such bounds, proved in the docstring of each mechanism.

**Reference.** *Causally Constrained Data Synthesis for Private Data Release*, Theorem 1, Lemma 1, Assumption 1 and the
remark on counter-examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import CUSTODIAN_ONLY, card
from escudo._validate import did_you_mean, finite, positive, whole
from escudo.causal import CausalGraph
from escudo.errors import GraphError, InputError, SchemaError

Floats = NDArray[np.float64]

_MUCH_LESS = 0.25


def stability(
    graph: CausalGraph,
    data: Any,  # Any: whatever frame narwhals reads, or a mapping of arrays
    *,
    against: CausalGraph | None = None,
    truth: Mapping[tuple[str, str], float] | None = None,
    reach: float = 10.0,
    seed: int = 0,
) -> Stability:
    """Measure how far one point moves the parameters of a causal model, and of an associational one, on raw data.

    **Reads raw data and protects nobody.** It is for the custodian, who holds the data anyway; its result is not to be
    published, and no guarantee is computed from it (see the module for why).

    Args:
        graph: Which column causes which; a DAG. A latent is left out of the predictors, which is right where it is
            independent of the other parents (the paper's Assumption 1).
        data: A frame of numbers (polars, pandas, pyarrow, ...), or a mapping of names to arrays; nothing missing.
        against: The associational model's structure, a DAG over the same columns; by default every column is predicted
            from all that come after it in causal order: a model that fits the same joint law, and knows no causes.
        truth: The true weight of each arrow (cause, effect), in the units of the data, where it is known: in
            simulations. Without it the true equations are estimated from one half of the rows, and everything else is
            measured on the other half; the residuals of one fit could not tell, as they are orthogonal to its parents
            by construction.
        reach: How far from the mean added points may lie, in standard deviations. The paper sets no bound.
        seed: Of the split into halves and the search for added points.

    Returns:
        The measurement. ``possible`` and ``anything`` are the largest changes that a search has found, so lower bounds;
        ``distance`` and ``removed`` are exact.

    Raises:
        GraphError: If a graph is no DAG over columns of the data.
        InputError: If a column is constant or not made of finite numbers, there are too few rows, or predictors are
            linear combinations of each other.

    >>> rng = np.random.default_rng(0)
    >>> cause = rng.uniform(-1, 1, 1000)
    >>> effect = cause + rng.uniform(-1, 1, 1000)
    >>> later = effect + rng.uniform(-0.3, 0.3, 1000)
    >>> graph = CausalGraph.from_edges([("cause", "effect"), ("effect", "later")])
    >>> measured = stability(graph, {"cause": cause, "effect": effect, "later": later})
    >>> measured.causal.possible < measured.associational.possible
    True
    """
    names = _columns(graph)
    other = _saturated(names) if against is None else against
    if set(_columns(other)) != set(names):
        raise GraphError("against must be a graph over the same columns as graph.")
    bound, rng = positive("reach", reach), np.random.default_rng(whole("seed", seed))
    values = _matrix(data, names)
    most = max(len({*_observed(graph, name), *_observed(other, name)}) for name in names)
    if len(values) < 4 * (most + 1):
        raise InputError(f"data has too few rows for columns with {most} predictors; {4 * (most + 1)} are needed.")
    spread = values.std(axis=0)
    if not spread.all():
        constant = names[int(np.flatnonzero(spread == 0)[0])]
        raise InputError(f"column {constant!r} is constant, so nothing depends on it; leave it out.")
    standard = (values - values.mean(axis=0)) / spread
    held_out, measured = standard, standard
    if truth is None:
        held_out, measured = np.array_split(standard[rng.permutation(len(standard))], 2)
    nodes = []
    for here, name in enumerate(names):
        used = _observed(graph, name), _observed(other, name)
        places = [[names.index(predictor) for predictor in several] for several in used]
        if truth is None:
            weights = Regression.fit(name, held_out[:, places[0]], held_out[:, here]).weights
        else:
            weights = _true_weights(truth, name, used[0]) * spread[places[0]] / spread[here]
        equation = Equation(name, here, tuple(places[0]), weights)
        changes = [change_of(equation, measured, several, bound, rng) for several in places]
        with_error = [correlation(measured[:, several], equation.errors(measured)) for several in places]
        nodes.append(
            NodeStability(
                column=name,
                parents=used[0],
                features=used[1],
                causal=changes[0],
                associational=changes[1],
                parents_with_error=with_error[0],
                features_with_error=with_error[1],
            )
        )
    return Stability(nodes=tuple(nodes), rows=len(measured), reach=bound, truth_known=truth is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """What was measured; made from raw data, so for the custodian's eyes only.

    Attributes:
        nodes: Column by column.
        rows: How many rows the models were fitted to.
        reach: How far from the mean added points may lie, in standard deviations.
        truth_known: Whether the true equations were given; otherwise they were estimated from other rows.
    """

    nodes: tuple[NodeStability, ...]
    rows: int
    reach: float
    truth_known: bool

    @property
    def causal(self) -> ParameterChange:
        """The largest change over all columns, in the causal model."""
        return _largest([node.causal for node in self.nodes])

    @property
    def associational(self) -> ParameterChange:
        """The largest change over all columns, in the associational model."""
        return _largest([node.associational for node in self.nodes])

    @property
    def summary(self) -> str:
        """The result in plain words."""
        compared = [node for node in self.nodes if node.comparable]
        held = sum(node.condition for node in compared)
        causal, other = self.causal, self.associational
        return (
            f"One more point that obeys the true equations moves a parameter of the causal model by up to "
            f"{causal.possible:.2g} and of the associational one by up to {other.possible:.2g}; any point at all, by "
            f"up to {causal.anything:.2g} and {other.anything:.2g}. Leaving out one row moves them by up to "
            f"{causal.removed:.2g} and {other.removed:.2g}. The paper's finite-sample condition holds for {held} of "
            f"{len(compared)} columns whose predictors differ. Measured on {self.rows:,} raw rows, for the custodian "
            "only: this is no guarantee, and no ε is made smaller by it."
        )

    def __str__(self) -> str:
        return self.summary

    def _repr_html_(self) -> str:
        return card("How far one point moves a model", self.summary, note=CUSTODIAN_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStability:
    """One column in both models.

    Attributes:
        column: The column that is predicted.
        parents: Its observed causes: what the causal model predicts it from.
        features: What the associational model predicts it from.
        causal: What one point does to the causal model.
        associational: What one point does to the associational model.
        parents_with_error: The largest correlation, in size, of a parent with the errors of the true equation.
        features_with_error: The same for the features.
    """

    column: str
    parents: tuple[str, ...]
    features: tuple[str, ...]
    causal: ParameterChange
    associational: ParameterChange
    parents_with_error: float
    features_with_error: float

    @property
    def comparable(self) -> bool:
        """Whether the two models differ here, and the causal one has parameters at all."""
        return bool(self.parents) and set(self.parents) != set(self.features)

    @property
    def condition(self) -> bool:
        """Whether the finite-sample condition holds: the parents' correlation is at most a quarter of the features'."""
        return self.parents_with_error <= _MUCH_LESS * self.features_with_error


def _largest(changes: Sequence[ParameterChange]) -> ParameterChange:
    kinds = [kind.name for kind in fields(ParameterChange)]
    return ParameterChange(**{kind: max(getattr(change, kind) for change in changes) for kind in kinds})


def _columns(graph: CausalGraph) -> tuple[str, ...]:
    if not graph.is_dag or graph.groups:
        raise GraphError("A model has a direction for every arrow and no groups; give a DAG over single columns.")
    return tuple(name for name in graph.topological_order() if name not in graph.latents)


def _observed(graph: CausalGraph, name: str) -> tuple[str, ...]:
    return tuple(parent for parent in graph.parents(name) if parent not in graph.latents)


def _saturated(names: Sequence[str]) -> CausalGraph:
    """Return the graph in which every column is an effect of all that come after it in causal order."""
    arrows = [(later, earlier) for place, earlier in enumerate(names) for later in names[place + 1 :]]
    return CausalGraph.from_edges(arrows, nodes=tuple(names))


def _true_weights(truth: Mapping[tuple[str, str], float], name: str, parents: Sequence[str]) -> Floats:
    for parent in parents:
        if (parent, name) not in truth:
            raise InputError(f"truth has no weight for the arrow {parent!r} → {name!r}.")
    return np.array([finite(f"truth of {parent!r} → {name!r}", truth[parent, name]) for parent in parents])


def _matrix(data: Any, names: Sequence[str]) -> Floats:
    """Return the named columns as an array of shape (rows, columns)."""
    import narwhals as nw

    columns: Mapping[str, Any]
    if isinstance(data, Mapping):
        columns = data
    else:
        try:
            frame = nw.from_native(data)
        except TypeError:
            raise InputError(f"data must be a frame or a mapping of arrays; got {type(data).__name__}.") from None
        eager = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        columns = {name: eager[name].to_numpy() for name in names if name in eager.columns}
    found = []
    for name in names:
        if name not in columns:
            raise SchemaError(f"data has no column {name!r}, which the graph names.{did_you_mean(name, columns)}")
        try:
            numbers = np.asarray(columns[name], dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"column {name!r} is not made of numbers.") from None
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise InputError(f"column {name!r} must be one-dimensional, without missing or infinite values.")
        found.append(numbers)
    if len({len(numbers) for numbers in found}) != 1:
        raise InputError("the columns of data are not equally long.")
    return np.column_stack(found)


# ---- one column: exactly for the rows of a table, by search for other points


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


@dataclass(frozen=True, slots=True, eq=False)
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
    equation: Equation, rows: Floats, features: list[int], reach: float, rng: np.random.Generator
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
