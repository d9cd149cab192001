r"""Graph and model together: of several graphs, the one whose fitted model explains everything that was measured.

A score adds up families, and each family sees its own tables only. Noise makes that narrow: a chain x → y → z is also
supported by the table of x and z, which no family of the chain looks at. So candidates (graphs found at several
strictnesses, and under fresh noise) are fitted, and each model's residuals are held against *all* measured ones,

.. math:: \frac12 \sum_S \sum_{\text{cells}} \frac{\big(H_S (R_S - R_S(\text{model}))\big)^2}{E + v_S}
          \;+\; \frac{k}{2} \ln(1 + \text{rows worth}),

with :math:`H_S` the contrasts (from residuals back to cells), E the model's count in a cell, :math:`v_S` the noise that
the residual of S gives it, and k the model's parameters. The model is the same as a generator's, so the graph that is
chosen is one that generates well. All of it is post-processing of released numbers.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from escudo._progress import tracking
from escudo.discovery._evidence import Weights
from escudo.discovery._residuals import Floats, Residuals, Scope, basis, coefficients
from escudo.discovery._search import Parents
from escudo.discovery._tables import batches, on_simplex

__all__ = ["best_explanation"]

Law = tuple[Scope, Floats]
Tables = Callable[[Scope], Floats]

_MOST_CELLS = 2**18  # of the joint table, up to which the model's tables are exact
_SIMULATED = 2**16
_MOST_CANDIDATES = 12


def best_explanation(residuals: Residuals, weights: Weights, candidates: Iterable[Parents]) -> Parents:
    """Return the candidate whose model explains the measured residuals best, for its number of parameters.

    Of many candidates, those that were named most often are looked at.
    """
    several = [parents for parents, _ in Counter(candidates).most_common(_MOST_CANDIDATES)]
    price = math.log1p(weights.rows_worth) / 2
    cost = {}
    with tracking("Comparing models", total=len(several)) as advance:
        for parents in several:
            cost[parents] = _misfit(residuals, weights, parents) + price * _parameters(residuals.sizes, parents)
            advance(1)
    return min(cost, key=lambda parents: cost[parents])


def _parameters(sizes: tuple[int, ...], parents: Parents) -> int:
    return sum((sizes[x] - 1) * math.prod(sizes[a] for a in several) for x, several in enumerate(parents))


def _misfit(residuals: Residuals, weights: Weights, parents: Parents) -> float:
    """Return half the squared distance between measured residuals and the model's, in units of their variance."""
    sizes, rows = residuals.sizes, residuals.rows
    laws = [_law(residuals, weights, x, several) for x, several in enumerate(parents)]
    exact = math.prod(sizes) <= _MOST_CELLS
    table_of = _joint_tables(sizes, laws) if exact else _simulated_tables(sizes, laws, parents)
    spread = 1.0 if exact else 1 + rows / _SIMULATED  # simulated tables vary themselves
    total = 0.0
    for scope in residuals.starts:
        expected = rows * table_of(scope)
        gap = coefficients(expected) - residuals.part(scope)
        for i in scope:  # from coefficients to cells, axis by axis
            gap = np.tensordot(gap, basis(sizes[i])[:, 1:], axes=(0, 1))
        noise = residuals.scales[scope] ** 2 * math.prod(1 - 1 / sizes[i] for i in scope)
        total += float((gap**2 / (spread * np.maximum(expected, 0.0) + noise + 1e-9)).sum())
    return total / 2


def _law(residuals: Residuals, weights: Weights, x: int, parents: tuple[int, ...]) -> Law:
    """Return the columns of a family, x last, and p(x | parents) with axes in that order."""
    scope = tuple(sorted((x, *parents)))
    counts = np.moveaxis(_table(residuals, weights, scope), scope.index(x), -1)
    above = counts.sum(axis=-1, keepdims=True)
    law = np.divide(counts, above, out=np.full_like(counts, 1 / counts.shape[-1]), where=above > 0)
    return (*(i for i in scope if i != x), x), law


def _table(residuals: Residuals, weights: Weights, scope: Scope) -> Floats:
    """Return a family's table: as measured, or of greatest entropy with what was measured of it."""
    (batch,) = batches(residuals, [scope])
    if scope in residuals.starts or len(scope) <= 2:
        found: Floats = on_simplex(batch.tables(residuals.values, residuals.rows), residuals.rows)[0]
        return found
    sides = {side: _table(residuals, weights, side) for side in itertools.combinations(scope, len(scope) - 1)}
    fitted: Floats = weights.greatest_entropy(batch, sides)[0]
    return fitted


def _joint_tables(sizes: tuple[int, ...], laws: list[Law]) -> Tables:
    joint = np.ones([1] * len(sizes))
    for columns, law in laws:
        shape = [sizes[i] if i in columns else 1 for i in range(len(sizes))]
        joint = joint * np.transpose(law, np.argsort(columns)).reshape(shape)

    last = len(sizes) - 1
    spans = {(0, last): joint}

    def span(first: int, end: int) -> Floats:
        """Return the table of all columns from one to another, made from the next larger one."""
        if (first, end) not in spans:
            larger = span(first, end + 1).sum(axis=-1) if end < last else span(first - 1, end).sum(axis=0)
            spans[first, end] = larger
        return spans[first, end]

    def table_of(scope: Scope) -> Floats:
        whole = span(scope[0], scope[-1])
        return np.asarray(whole.sum(axis=tuple(i for i in range(whole.ndim) if i + scope[0] not in scope)))

    return table_of


def _simulated_tables(sizes: tuple[int, ...], laws: list[Law], parents: Parents) -> Tables:
    rng = np.random.default_rng(0)  # the model is public: any generator does
    codes: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    while len(codes) < len(sizes):
        for x, several in enumerate(parents):
            if x not in codes and all(a in codes for a in several):
                columns, law = laws[x]
                place = np.zeros(_SIMULATED, dtype=np.int64)
                for a in columns[:-1]:
                    place = place * sizes[a] + codes[a]
                steps = law.reshape(-1, sizes[x]).cumsum(axis=1)[:, :-1]
                codes[x] = (rng.random(_SIMULATED)[:, None] > steps[place]).sum(axis=1)

    def table_of(scope: Scope) -> Floats:
        shape = [sizes[i] for i in scope]
        place = np.ravel_multi_index([codes[i] for i in scope], shape)
        return np.bincount(place, minlength=math.prod(shape)).reshape(shape) / _SIMULATED

    return table_of
