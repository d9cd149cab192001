r"""Generator ``linear``: the linear Gaussian structural causal model of a table of numbers, from one noisy matrix.

Each column is a linear function of its parents and Gaussian noise of its own, :math:`x_i = a_i + \sum_j w_{ij} x_j +
e_i`. All of it is in the second moments of the rows, so one release serves every column and every graph.

**Statistic.** Columns are mapped from their public bounds to [-1, 1]. A row becomes z = (1, x), in whole steps of
:math:`2^{-14}`, and is shrunk to l2 norm C where it is longer. Model is :math:`S = \sum z z^T`, both triangles, with
Gaussian noise on every entry; the mean of the triangles is a symmetric matrix whose noise has the same law in every
orthonormal basis. Sums of whole numbers are exact, so neither the order of the rows nor the engine can change S.

**Sensitivity**, in the Frobenius norm: that of one contingency table times :math:`C^2`, for either relation and for
persons. The proof is in :func:`escudo.mechanisms.second_moments`.

**Clip bound.** By default :math:`C^2 = 1 + \min(d, \tfrac13 d + \tfrac23 \sqrt d)` for d columns. Rows of independent
columns that are uniform over their bounds have squared norms of mean :math:`1 + d/3` and standard deviation :math:`0.3
\sqrt d`: the bound is two of these above the mean, and columns that keep away from their bounds have shorter rows. A
single column is never clipped. Many columns that come near their bounds together are, which draws the fit inwards; a
``clip`` of :math:`\sqrt{1 + d}` never does that, at up to three times the noise.

**Fit**, all of it post-processing. The matrix is projected to the nearest positive semidefinite one of the same trace
(with such noise, the one of largest likelihood). Each column is regressed on its parents with a ridge :math:`t^2 /
\max(λ, t)`, where t is the size of the noise in the parents' covariance and λ that covariance's least eigenvalue: as
large as the noise where the noise rules, and gone where it does not. A variance that the release cannot tell from
nothing is lifted to what it can.

**Graph.** Columns and pairs that the graph leaves open are all joined, in the order of ``_structure``: the matrix holds
them anyway, so they cost nothing. Their directions are that order's, and so is the meaning of ``do`` along them.

**Model** (:class:`LinearModel`): an equation per column, sampled exactly under interventions and conditions.

**Guarantee.** One discrete Gaussian event, shown in the plan.

**Reference.** *Causally Constrained Data Synthesis for Private Data Release*, section 3, for the model; Y.-X. Wang
(2018), "Revisiting differentially private linear regression", UAI, for regression from noisy moments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from escudo._validate import positive
from escudo.causal import CausalGraph
from escudo.errors import InputError, SchemaError
from escudo.mechanisms import Purse, bounded_rows, gaussian_event, second_moments
from escudo.privacy import Budget, GaussianEvent, Neighbours, Passes, Plan, calibrate
from escudo.synthesis._laws import as_integers
from escudo.synthesis._model import (
    BLOCK,
    Model,
    anchor_of,
    column_of,
    number_within,
    public_rows,
    stored_laws,
)
from escudo.synthesis._model_effects import ModelEffect
from escudo.synthesis._structure import Structure, check_graph, graph_of, structure_of
from escudo.table import Numeric, PrivateTable, Schema, count_sensitivity

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]

STEPS = 2**14
"""Steps from 0 to 1: products of two numbers add up exactly, in float64 over a batch and in int64 over 2³³ rows."""

_BATCH = 2**16
_MAX_COLUMNS = 500


class Linear:
    """Linear Gaussian equations along the graph, from a noisy second-moment matrix of clipped rows.

    Args:
        clip: The l2 norm to which rows (1, x), with x in [-1, 1] for each column, are clipped: a public number. Small
            ones mean less noise and more bias. None takes the default of this module.
    """

    name = "linear"
    found_by = "gaussian"
    cuts = False

    def __init__(self, *, clip: float | None = None):
        self.clip = None if clip is None else positive("clip", clip)

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedLinear:
        """Choose the noise from public facts alone; the number of rows is not needed for it.

        Raises:
            SchemaError: If a column is not numeric, or keeps missing values apart.
        """
        columns = len(numeric_columns(schema))
        if columns > _MAX_COLUMNS:
            raise InputError(
                f"The schema has {columns:,} columns; generator 'linear' releases a number per pair and takes at most "
                f"{_MAX_COLUMNS:,}. Leave some out, or use generator='marginals'."
            )
        limit = squared_steps(columns, self.clip)
        # A row's matrix has norm at most the limit, where its cell in a table of counts has norm 1. The last factor
        # outweighs the rounding of the product.
        moved = limit * count_sensitivity(1, **neighbours.stated).l2 * (1 + 2.0**-50)

        def event(level: float) -> GaussianEvent:
            return gaussian_event(
                (columns + 1) ** 2, l2_sensitivity=moved, scale=level * moved, integers=True, **neighbours.stated
            )

        level = calibrate(event, budget)
        return PreparedLinear(
            schema,
            structure_of(schema, graph),
            limit,
            event=event(level),
            neighbours=neighbours,
            delta=budget.delta,
        )

    def awaiting(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedLinear:
        """Choose the noise for a graph that is not known yet: the same as for any."""
        return self.prepare(schema, None, neighbours, budget)


@dataclass(frozen=True, slots=True)
class PreparedLinear:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns, all numeric.
        structure: The arrows stated, and those left open.
        limit: The largest squared norm of a row, in squared steps.
        event: The release of the matrix, in squared steps.
        neighbours: Which tables are neighbours, and what is public about them.
        delta: The δ at which the plan is stated.
    """

    schema: Schema
    structure: Structure
    limit: int
    _: KW_ONLY
    event: GaussianEvent
    neighbours: Neighbours
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        side = len(self.schema.names) + 1
        return Plan(
            "linear",
            children=[
                Plan("second moments", self.event, buys=f"{side} × {side} matrix, rows clipped to {self._clip:.3g}"),
                Plan("fitting each column on its parents"),
                Plan("sampling"),
            ],
            delta=self.delta,
        )

    @property
    def passes(self) -> Passes:
        """How often the rows are read."""
        return Passes(1)

    def along(self, structure: Structure) -> PreparedLinear:
        """Return the same release, its equations along these arrows: the matrix does not depend on them."""
        return replace(self, structure=structure)

    def run(self, table: PrivateTable, purse: Purse) -> LinearModel:
        """Measure and estimate."""
        noisy = purse.add(_second_moments(table, self.limit), self.event, purpose="second moments")
        noise = self.event.scale / STEPS**2
        measured = np.asarray(noisy, dtype=np.float64) / STEPS**2
        moments = _nearest_semidefinite(measured)
        weight = max(float(measured[0, 0]), float(moments[0, 0]), noise)
        parents = self.structure.with_tree(self.structure.open_arrows)
        return LinearModel(
            schema=self.schema,
            graph=self.structure.fitted_graph(parents),
            stated=self.structure.stated,
            conditionals=_equations(moments / weight, parents, noise=noise / weight),
            guarantee=purse.guarantee,
            generator=Linear.name,
            plan=self.plan,
            details={
                "rows": public_rows(self.neighbours, table) or max(round(weight), 1),
                "l2_clip_norm": self._clip,
                "noise": noise,
                "weight_of_rows": weight,
                "stated_arrows": self.structure.stated_arrows,
                **anchor_of(purse),
            },
        )

    @property
    def _clip(self) -> float:
        return math.sqrt(self.limit) / STEPS


def squared_steps(columns: int, clip: float | None = None) -> int:
    """Return the largest squared norm of a row of ``columns`` numbers, in squared steps.

    >>> squared_steps(1) / STEPS**2, squared_steps(9) / STEPS**2
    (2.0, 6.0)
    """
    usual = 1 + columns / 3 + math.sqrt(columns) * 2 / 3
    squared = min(1 + columns, usual if clip is None else clip * clip)
    return max(math.floor(squared * STEPS**2), 1)


def row_steps(scaled: Floats, limit: int) -> Floats:
    """Return the rows (1, x) as whole numbers of steps, each with a squared norm of at most ``limit``, exactly.

    Args:
        scaled: Rows with values in [-1, 1], of shape (rows, columns).
        limit: The largest squared norm, in squared steps.

    Returns:
        Whole numbers as float64, of shape (rows, columns + 1): all that follows is exact arithmetic on them.
    """
    return bounded_rows(np.rint(np.column_stack([np.ones(len(scaled)), scaled]) * STEPS), limit)


def _second_moments(table: PrivateTable, limit: int) -> NDArray[np.int64]:
    """Return the sum of z zᵀ over the clipped rows."""
    side = len(table.columns) + 1
    return table.sums(
        lambda batches: second_moments((row_steps(batch, limit) for batch in batches), side), _BATCH, encode="scaled"
    )


# ---- the fit


def _nearest_semidefinite(noisy: Floats) -> Floats:
    """Return the positive semidefinite matrix of the same trace nearest to the mean of the two triangles.

    Noise leaves the trace as it is, on average. Without keeping it, cutting off the negative eigenvalues that noise
    makes would leave too much variance.
    """
    values, vectors = np.linalg.eigh((noisy + noisy.T) / 2)
    total = max(float(values.sum()), 0.0)
    falling = values[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    kept = max(int((falling > excess).sum()), 1)
    nearest: Floats = (vectors * np.maximum(values - excess[kept - 1], 0.0)) @ vectors.T
    return nearest


def _equations(moments: Floats, parents: dict[str, tuple[str, ...]], *, noise: float) -> dict[str, LinearConditional]:
    """Return each column's equation from E[z zᵀ], whose entries were measured with this noise on the diagonal."""
    names = list(parents)
    mean = moments[0, 1:]
    covariance = moments[1:, 1:] - np.outer(mean, mean)
    equations = {}
    for child, several in parents.items():
        here, places = names.index(child), [names.index(parent) for parent in several]
        among, across = covariance[np.ix_(places, places)], covariance[places, here]
        weights = _ridge(among, across, noise) if places else np.zeros(0)
        left = float(covariance[here, here] - 2 * weights @ across + weights @ among @ weights)
        # A value in [-1, 1] varies by at most 1; what the noise hides is lifted to the noise.
        hidden = noise * (1 + float(weights @ weights))
        intercept = float(mean[here] - weights @ mean[places])
        equations[child] = LinearConditional(several, intercept, weights, min(max(left, hidden), 1.0))
    return equations


def _ridge(among: Floats, across: Floats, noise: float) -> Floats:
    """Return the weights of a regression whose covariances carry this noise."""
    # The largest eigenvalue of a symmetric p × p matrix of such noise is near sqrt(2 p) times the noise.
    size = noise * math.sqrt(2 * len(across))
    ridge = size**2 / max(float(np.linalg.eigvalsh(among)[0]), size)
    weights: Floats = np.linalg.solve(among + ridge * np.eye(len(across)), across).astype(np.float64)
    return weights


# ---- the model


@dataclass(frozen=True, slots=True, eq=False)
class LinearConditional:
    r"""A linear equation with Gaussian noise: :math:`x = a + \sum_j w_j\, pa_j + e`, :math:`e \sim N(0, v)`.

    All numbers are on the scale where each column's bounds are -1 and 1.

    Args:
        parents: The parents' names.
        intercept: a.
        weights: w, one number per parent.
        variance: v, above 0.
    """

    parents: tuple[str, ...]
    intercept: float
    weights: Floats
    variance: float
    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.shape != (len(self.parents),):
            raise InputError("A linear equation needs one weight per parent.")
        if not (np.isfinite([self.intercept, *weights]).all() and 0 < self.variance < math.inf):
            raise InputError("A linear equation must hold finite numbers and a variance above 0.")
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "intercept", float(self.intercept))
        object.__setattr__(self, "variance", float(self.variance))

    def arrays(self) -> dict[str, Floats]:
        """Return everything the equation is made of, to be stored."""
        return {"numbers": np.array([self.intercept, self.variance]), "weights": self.weights}

    @classmethod
    def from_arrays(cls, parents: tuple[str, ...], arrays: Mapping[str, Floats]) -> LinearConditional:
        """Rebuild the equation that :meth:`arrays` took apart.

        Raises:
            InputError: If an array is missing or not usable.
        """
        try:
            (intercept, variance), weights = arrays["numbers"].tolist(), arrays["weights"]
        except (KeyError, TypeError, ValueError):
            raise InputError("A 'linear' equation lacks one of its numbers; the model file is damaged.") from None
        return cls(parents, intercept, weights, variance)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LinearModel(Model):
    r"""A linear Gaussian structural causal model, fitted under a guarantee.

    Its rows are drawn from the equations; values beyond the bounds are moved to them, after everything else, and
    whole-number columns are rounded. Conditions are exact: draw x from the model without them and add
    :math:`Σ_{\cdot E} Σ_{EE}^{-1} (e - x_E)`: the sum is Gaussian, has the conditional mean and covariance, and has
    :math:`x_E = e`.

    Attributes:
        schema: The public description of the columns it makes, all numeric.
        graph: The DAG it follows, over the schema's columns (and latents, which it does not model).
        conditionals: The equation of each column.
        guarantee: What was promised to the people in the table.
        generator: The generator's name.
        plan: The budget tree that was spent.
        details: Public facts about the fit, for the report.
    """

    conditionals: Mapping[str, LinearConditional]

    def __post_init__(self) -> None:
        for name in numeric_columns(self.schema):
            if name not in self.conditionals:
                raise InputError(f"The model has no equation for column {name!r}.")
            for parent in self.conditionals[name].parents:
                if parent not in self.schema.columns:
                    raise InputError(f"The equation of column {name!r} has a parent {parent!r} that is no column.")
        check_graph(self.graph, self.schema)
        _ = self.order  # raises on a cycle

    @property
    def order(self) -> tuple[str, ...]:
        """The columns with parents before children."""
        return graph_of({name: self.conditionals[name].parents for name in self.schema.names}).topological_order()

    def _frames(
        self, rows: int, fixed: dict[str, float], evidence: dict[str, float], rng: np.random.Generator
    ) -> Iterator[pl.DataFrame]:
        for start in range(0, max(rows, 1), BLOCK):
            yield self._frame(min(BLOCK, rows - start), fixed, evidence, rng)

    def _frame(
        self, rows: int, fixed: dict[str, float], evidence: dict[str, float], rng: np.random.Generator
    ) -> pl.DataFrame:
        import polars as pl

        # A damaged file may hold numbers too large to add up; that must not end in a warning and a wrong table.
        with np.errstate(over="ignore", invalid="ignore"):
            drawn = self._draw(rows, fixed, rng)
            if evidence:
                drawn += self._correction(drawn, fixed, evidence)
        _check_finite(drawn)
        known = {**fixed, **evidence}
        series = []
        for place, (name, column) in enumerate(numeric_columns(self.schema).items()):
            lower, upper = column.bounds
            values = lower + (upper - lower) * ((drawn[:, place].clip(-1.0, 1.0) + 1.0) / 2.0)
            if name in known:
                values = np.full(rows, known[name])
            if column.integer:
                whole_numbers = np.rint(values).clip(math.ceil(lower), math.floor(upper))
                found = pl.Series(name, as_integers(whole_numbers))
                series.append(found if column.date is None else found.cast(pl.Date))
            else:
                series.append(pl.Series(name, values.clip(lower, upper)))
        return pl.DataFrame(series)

    def effect(self, treatment: str, outcome: str) -> ModelEffect:
        r"""Return the average effect of one column on another, in the units of the table; free.

        .. math:: \text{slope} = \frac{∂}{∂c} E[y \mid do(x = c)],

        the sum over all directed paths of the product of their weights. The means are those of the equations, at the
        bounds of the treatment, before anything is moved to the outcome's bounds.

        Raises:
            InputError: If one is no column, or both are the same.
            NotIdentifiableError: If the effect depends on something that the stated graph leaves open, or a latent acts
                on the treatment and on what it affects.
        """
        source, target = self._column("treatment", treatment), self._column("outcome", outcome)
        if treatment == outcome:
            raise InputError(f"treatment and outcome are both {treatment!r}; name two columns.")
        self.check_do([treatment], [outcome])
        names = self.schema.names
        here, there = names.index(treatment), names.index(outcome)
        responses = self._responses({treatment: 0.0})[there]
        lower, upper = target.bounds
        means = []
        for end in (-1.0, 1.0):
            levels = np.array([self.conditionals[name].intercept for name in names])
            levels[here] = end
            means.append(lower + (upper - lower) * (float(responses @ levels) + 1.0) / 2.0)
        width = source.bounds[1] - source.bounds[0]
        return ModelEffect(
            treatment=treatment,
            outcome=outcome,
            levels=tuple(f"{bound:g}" for bound in source.bounds),
            outcome_levels=(),
            law=(),
            means=(means[0], means[1]),
            slope=float(responses[here]) * (upper - lower) / width,
        )

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the equations."""
        laws, arrays = stored_laws({name: self.conditionals[name] for name in self.schema.names})
        return {"laws": laws, "observed": []}, arrays

    def _draw(self, rows: int, fixed: Mapping[str, float], rng: np.random.Generator) -> Floats:
        """Return rows on the scale of the equations, column by column along the graph."""
        from scipy.special import ndtri

        place = {name: number for number, name in enumerate(self.schema.names)}
        drawn = np.empty((rows, len(place)))
        for name in self.order:
            if name in fixed:
                drawn[:, place[name]] = self._scaled(name, fixed[name])
                continue
            equation = self.conditionals[name]
            # One draw from each of ``rows`` slices of the normal law, shuffled: it shows the model, not the dice.
            share = (rng.permutation(rows) + rng.random(rows)) / max(rows, 1)
            noise = ndtri(np.clip(share, 2.0**-54, 1 - 2.0**-53)) * math.sqrt(equation.variance)
            causes = drawn[:, [place[parent] for parent in equation.parents]]
            drawn[:, place[name]] = equation.intercept + causes @ equation.weights + noise
        return drawn

    def _responses(self, fixed: Mapping[str, float]) -> Floats:
        """Return how much each column (row) moves per unit of another's noise (column), with ``fixed`` ones cut."""
        names = self.schema.names
        direct = np.zeros((len(names), len(names)))
        for here, name in enumerate(names):
            if name not in fixed:
                equation = self.conditionals[name]
                direct[here, [names.index(parent) for parent in equation.parents]] = equation.weights
        responses: Floats = np.linalg.inv(np.eye(len(names)) - direct).astype(np.float64)
        return responses

    def _correction(self, drawn: Floats, fixed: Mapping[str, float], evidence: Mapping[str, float]) -> Floats:
        names = self.schema.names
        variances = [0.0 if name in fixed else self.conditionals[name].variance for name in names]
        responses = self._responses(fixed)
        covariance = (responses * variances) @ responses.T
        _check_finite(covariance)
        seen = [names.index(name) for name in evidence]
        gain = np.linalg.lstsq(covariance[np.ix_(seen, seen)], covariance[seen])[0]
        values = np.array([self._scaled(name, value) for name, value in evidence.items()])
        correction: Floats = (values - drawn[:, seen]) @ gain
        return correction

    def _column(self, argument: str, name: str) -> Numeric:
        column = column_of(self.schema, argument, name)
        assert isinstance(column, Numeric), "as when the model was made"
        return column

    def _read(self, argument: str, name: str, value: object) -> float:
        """Return a value as a number, or say what the schema allows."""
        column = self._column(argument, name)
        number = number_within(column, argument, value)
        if column.integer and number != round(number):
            raise SchemaError(f"{argument}: column {name!r} takes whole numbers; got {value!r}.")
        return number

    def _scaled(self, name: str, value: float) -> float:
        lower, upper = numeric_columns(self.schema)[name].bounds
        return 2.0 * (value - lower) / (upper - lower) - 1.0


def _check_finite(numbers: Floats) -> None:
    if not np.isfinite(numbers).all():
        raise InputError("The model's equations leave the range of floating point; the model file is damaged.")


def numeric_columns(schema: Schema) -> dict[str, Numeric]:
    """Return the columns, which must all be numbers that are never missing.

    Raises:
        SchemaError: Names the first column that is something else, and what to do.
    """
    columns = {}
    for name, column in schema.columns.items():
        if not isinstance(column, Numeric):
            raise SchemaError(
                f"column {name!r} is categorical, and generator 'linear' takes numbers only; use "
                "generator='marginals', or leave the column out of the schema."
            )
        if column.missing:
            raise SchemaError(
                f"column {name!r} keeps missing values apart, and generator 'linear' has no place for them; say "
                "missing = false and a public fill in the schema, or use generator='marginals'."
            )
        lower, upper = column.bounds
        if column.integer and math.ceil(lower) > math.floor(upper):
            raise SchemaError(f"column {name!r} is of whole numbers, but there is none between its bounds.")
        columns[name] = column
    return columns
