r"""Generator ``linear``: the linear Gaussian structural causal model of a table of numbers, from one noisy matrix.

Each column is a linear function of its parents and Gaussian noise of its own, :math:`x_i = a_i + \sum_j w_{ij} x_j +
e_i`. All of it is in the second moments of the rows, so one release serves every column and every graph.

**Statistic.** Columns are mapped from their public bounds to [-1, 1]. A row becomes z = (1, x), in whole steps of
:math:`2^{-14}`, and is shrunk to l2 norm C where it is longer. Released is :math:`S = \sum z z^T`, both triangles, with
Gaussian noise on every entry; the mean of the triangles is a symmetric matrix whose noise has the same law in every
orthonormal basis. Sums of whole numbers are exact, so neither the order of the rows nor the engine can change S.

**Sensitivity**, in the Frobenius norm: that of one contingency table times :math:`C^2`, for either relation and for
persons. The proof is in :mod:`escudo.mechanisms._second_moments`.

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

**Guarantee.** One discrete Gaussian event, shown in the plan.

**Reference.** *Causally Constrained Data Synthesis for Private Data Release*, section 3, for the model; Y.-X. Wang
(2018), "Revisiting differentially private linear regression", UAI, for regression from noisy moments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo._validate import positive
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Seed, as_planned, bounded_rows, gaussian_event, second_moments
from escudo.privacy import Account, GaussianEvent, Guarantee, Plan, Relation, calibrate
from escudo.synthesis._linear_model import LinearConditional, LinearModel, numeric_columns
from escudo.synthesis._structure import Structure, structure_of
from escudo.table import PrivateTable, Schema, count_sensitivity

__all__ = ["Linear", "PreparedLinear", "row_steps", "squared_steps"]

Floats = NDArray[np.float64]

STEPS = 2**14
"""Steps from 0 to 1: products of two numbers add up exactly, in float64 over a batch and in int64 over 2³³ rows."""

_BATCH = 2**16
_MAX_COLUMNS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLinear:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns, all numeric.
        structure: The arrows stated, and those left open.
        limit: The largest squared norm of a row, in squared steps.
        event: The release of the matrix, in squared steps.
        delta: The δ at which the plan is stated.
        public_rows: The number of rows, where it is public.
    """

    schema: Schema
    structure: Structure
    limit: int
    event: GaussianEvent
    delta: float
    public_rows: int | None

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

    def fit(self, table: PrivateTable, *, account: Account, seed: Seed, guarantee: Guarantee) -> LinearModel:
        """Measure and estimate; charges ``account`` for what the plan shows, before noise is drawn."""
        exact = _second_moments(table, self.limit)
        noisy = as_planned(exact, self.event, account=account, seed=seed, purpose="second moments").value
        noise = self.event.scale / STEPS**2
        measured = np.asarray(noisy, dtype=np.float64) / STEPS**2
        moments = _nearest_semidefinite(measured)
        weight = max(float(measured[0, 0]), float(moments[0, 0]), noise)
        parents = self.structure.with_tree(self.structure.open_arrows)
        if self.public_rows is not None:
            rows = self.public_rows
        elif guarantee.relation == "replace_one" and guarantee.unit == "row":  # then their number is public
            rows = table.record_count()
        else:
            rows = max(round(weight), 1)
        return LinearModel(
            schema=self.schema,
            graph=self.structure.fitted_graph(parents),
            conditionals=_equations(moments / weight, parents, noise=noise / weight),
            guarantee=guarantee,
            generator=Linear.name,
            plan=self.plan,
            details={
                "rows": rows,
                "l2_clip_norm": self._clip,
                "noise": noise,
                "weight_of_rows": weight,
                "stated_arrows": [list(arrow) for arrow in self.structure.arrows],
            },
        )

    @property
    def _clip(self) -> float:
        return math.sqrt(self.limit) / STEPS


class Linear:
    """Linear Gaussian equations along the graph, from a noisy second-moment matrix of clipped rows.

    Args:
        clip: The l2 norm to which rows (1, x), with x in [-1, 1] for each column, are clipped: a public number. Small
            ones mean less noise and more bias. None takes the default of this module.
    """

    name = "linear"

    def __init__(self, *, clip: float | None = None):
        self.clip = None if clip is None else positive("clip", clip)

    def prepare(
        self,
        schema: Schema,
        graph: CausalGraph | None,
        *,
        epsilon: float,
        delta: float,
        relation: Relation = "replace_one",
        public_rows: int | None = None,
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
        moved = limit * _counts_sensitivity(schema, relation) * (1 + 2.0**-50)

        def event(level: float) -> GaussianEvent:
            return gaussian_event(
                (columns + 1) ** 2,
                l2_sensitivity=moved,
                scale=level * moved,
                integers=True,
                relation=relation,
                unit=schema.unit,
                max_rows_per_person=schema.max_rows_per_person,
            )

        level = calibrate(event, epsilon=epsilon, delta=delta)
        return PreparedLinear(
            schema=schema,
            structure=structure_of(schema, graph),
            limit=limit,
            event=event(level),
            delta=delta,
            public_rows=public_rows,
        )


def _counts_sensitivity(schema: Schema, relation: Relation) -> float:
    rows = schema.max_rows_per_person
    return count_sensitivity(1, relation=relation, unit=schema.unit, max_rows_per_person=rows).l2


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
    batches = (row_steps(batch, limit) for batch in table.batches(_BATCH, encode="scaled"))
    return second_moments(batches, len(table.columns) + 1)


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
