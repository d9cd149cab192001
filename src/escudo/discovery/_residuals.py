r"""Residual tables: what the discrete methods measure, and how far one record moves it.

Write a contingency table over columns U in the orthonormal basis :math:`\bigotimes_{i \in U} Q_i`, where the first
vector of :math:`Q_i` is constant and the others, :math:`H_i` (Helmert), add up to 0. The coefficients that are constant
in :math:`U \setminus S` are those of the table over S, so the *residuals*

.. math:: R_S = \Big(\bigotimes_{i \in S} H_i\Big)^{\!\top} \mathrm{table}_S, \qquad \textstyle\prod_{i \in S}(n_i - 1)
          \text{ numbers},

for all S up to some size hold every table of that size once, without repetition: tables made from them agree on what
they share. Each gets the weight :math:`\sqrt{p_S}`, all numbers together get Gaussian noise of one scale.

**Sensitivity.** A record x adds the vector with parts :math:`\sqrt{p_S} \bigotimes_{i \in S} H_i^\top e_{x_i}`. As
:math:`H_i H_i^\top = I - J/n_i`, the inner product of the parts of x and y is :math:`p_S \prod_{i \in S} z_i` with
:math:`z_i = 1 - 1/n_i` where they agree in column i and :math:`z_i = -1/n_i` where they differ (F: where). So

* adding or removing a row: :math:`Δ_+^2 = \sum_S p_S c_S` with :math:`c_S = \prod_{i \in S} (1 - 1/n_i)`, for any row;
* replacing one: :math:`Δ_\pm^2 = \max_F 2 \sum_S p_S (c_S - \prod_{i \in S} z_i)`. Where all sets of a size are
  measured alike, the sum depends only on how many columns of each number of levels differ, and the maximum is found by
  trying all these numbers (elementary symmetric sums by Newton's identities). Other sets are bounded one by one.
* a person with at most k rows: k times as much. *Proof.* Pair the rows that leave with rows that come, at most
  :math:`Δ_\pm` each. A row left over moves it by :math:`Δ_+`, and the count of rows (below) by :math:`\sqrt{p_0}`;
  :math:`Δ_+^2 + p_0 \le 2Δ_+^2 \le Δ_\pm^2`, because a y drawn uniformly gives :math:`2Δ_+^2` on average and
  :math:`p_0 \le Δ_+^2`.

Where the number of rows is not public it is measured too, as the residual of the empty set, with weight
:math:`p_0 = Δ_+^2/50`: it adds :math:`p_0` to :math:`Δ_+^2`, and nothing to replacing a row.

**Reference.** Y. Xiao, G. He, D. Zhang, D. Kifer (2023), "An optimal and scalable matrix mechanism for noisy marginals
under convex loss functions", for residuals; the replace-one maximum is checked against all pairs of records in
``tests/property/test_discovery.py``.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from escudo.privacy import Relation

__all__ = ["ROWS_SHARE", "Floats", "Residuals", "Scope", "basis", "coefficients", "squared_sensitivity"]

Floats = NDArray[np.float64]
Scope = tuple[int, ...]

ROWS_SHARE = 0.02
"""Of the squared add/remove sensitivity: the weight of the number of rows, where it is not public."""

_MOST_PATTERNS = 300_000


@cache
def basis(size: int) -> Floats:
    """Return the orthogonal matrix whose first column is constant and whose others are the Helmert contrasts."""
    matrix = np.zeros((size, size))
    matrix[:, 0] = 1 / math.sqrt(size)
    for column in range(1, size):
        norm = math.sqrt(column * (column + 1))
        matrix[:column, column] = 1 / norm
        matrix[column, column] = -column / norm
    matrix.flags.writeable = False
    return matrix


def coefficients(table: Floats) -> Floats:
    """Return the residual of a table's own columns: its coefficients that are constant in none of them."""
    found = np.asarray(table, dtype=np.float64)
    for size in table.shape:  # the first axis goes, its contrasts come last: after all axes the order is as before
        found = np.tensordot(found, basis(size)[:, 1:], axes=(0, 0))
    return found


def squared_sensitivity(
    sizes: Sequence[int], scopes: Mapping[Scope, float], *, relation: Relation, rows_weight: float = 0.0
) -> float:
    """Return Δ² of the residuals of these scopes for one row, an upper bound that is exact for complete families.

    Args:
        sizes: How many levels each column has.
        scopes: Which sets of columns are measured, with their weights p.
        relation: Which tables are neighbours.
        rows_weight: The weight of the number of rows, 0 if it is not measured; replacing a row does not move it.
    """
    keep = {scope: math.prod(1 - 1 / sizes[i] for i in scope) for scope in scopes}
    added = sum(weight * keep[scope] for scope, weight in scopes.items())
    if relation == "add_remove":
        return added + rows_weight
    varying = [size for size in sizes if size > 1]
    by_order: dict[int, list[Scope]] = defaultdict(list)
    for scope in scopes:
        by_order[len(scope)].append(scope)
    alike: dict[int, float] = {}
    least = 0.0
    for order, members in by_order.items():
        weights = {scopes[scope] for scope in members}
        if order <= 3 and len(weights) == 1 and len(members) == math.comb(len(varying), order):
            alike[order] = weights.pop()
        else:
            least += sum(scopes[scope] * _least_product([sizes[i] for i in scope]) for scope in members)
    least += _least_symmetric_sum(varying, alike)
    return 2 * (added - least)


def _least_product(sizes: Sequence[int]) -> float:
    """Return the least product of z over the columns, each at 1 - 1/n (agree) or -1/n (differ)."""
    choices = itertools.product(*((1 - 1 / size, -1 / size) for size in sizes))
    return min(math.prod(choice) for choice in choices)


def _least_symmetric_sum(sizes: Sequence[int], weights: Mapping[int, float]) -> float:
    """Return the least over F of Σ_k weights[k] · e_k(z), or a lower bound where there are too many patterns to try."""
    if not weights:
        return 0.0
    groups = [(size, sizes.count(size)) for size in sorted(set(sizes))]
    if math.prod(count + 1 for _, count in groups) > _MOST_PATTERNS:
        return sum(
            weight * sum(_least_product(scope) for scope in itertools.combinations(sizes, order))
            for order, weight in weights.items()
        )
    differ = np.meshgrid(*(np.arange(count + 1.0) for _, count in groups), indexing="ij")
    counted = list(zip(groups, differ, strict=True))
    power = [
        sum((count - f) * (1 - 1 / size) ** k + f * (-1 / size) ** k for (size, count), f in counted) for k in (1, 2, 3)
    ]
    sums = {
        1: power[0],
        2: (power[0] ** 2 - power[1]) / 2,
        3: (power[0] ** 3 - 3 * power[0] * power[1] + 2 * power[2]) / 6,
    }
    return float(np.min(sum(weight * sums[order] for order, weight in weights.items())))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residuals:
    """Noisy residuals: one vector, and where each scope's part starts in it.

    Attributes:
        sizes: How many levels each column has.
        starts: For each scope, the place of its first number.
        values: The noisy numbers, in units of counts.
        scales: For each scope, the standard deviation of the noise in each of its numbers.
        rows: The number of rows, exact where public, else noisy.
    """

    sizes: tuple[int, ...]
    starts: Mapping[Scope, int]
    values: Floats
    scales: Mapping[Scope, float]
    rows: float

    def part(self, scope: Scope) -> Floats:
        """Return the numbers of one scope, an axis for each of its columns."""
        shape = [self.sizes[i] - 1 for i in scope]
        start = self.starts[scope]
        return self.values[start : start + math.prod(shape)].reshape(shape)

    def joined(self, other: Residuals) -> Residuals:
        """Return both together; where both hold a scope, its mean weighted by precision."""
        starts, values, scales = dict(self.starts), [self.values], dict(self.scales)
        place = self.values.size
        for scope in other.starts:
            new, noise = other.part(scope).ravel(), other.scales[scope]
            if scope in self.starts:
                share = self.scales[scope] ** 2 / (self.scales[scope] ** 2 + noise**2)
                new = share * new + (1 - share) * self.part(scope).ravel()
                noise = self.scales[scope] * noise / math.hypot(self.scales[scope], noise)
            starts[scope], scales[scope] = place, noise
            values.append(new)
            place += new.size
        return Residuals(sizes=self.sizes, starts=starts, values=np.concatenate(values), scales=scales, rows=self.rows)

    def noise(self, rng: np.random.Generator) -> Floats:
        """Return a vector of fresh noise of the same scales, for asking what other noise would have done."""
        spread = np.empty(self.values.size)
        for scope, start in self.starts.items():
            spread[start : start + math.prod(self.sizes[i] - 1 for i in scope)] = self.scales[scope]
        return rng.normal(size=spread.size) * spread
