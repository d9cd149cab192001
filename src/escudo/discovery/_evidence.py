r"""What noisy tables say for and against an edge, knowing the noise.

**One comparison.** Are x and y independent given h (columns or none)? In the table over x, y, h let T be the counts and
:math:`E = T_{xh} T_{yh} / T_h` what independence predicts from the same table. A cell of T - E varies by E from
sampling and by v from the noise that was added, with

.. math:: v = v_{xy} + u_y^2 v_x + u_x^2 v_y + u_x^2 u_y^2 v_h, \qquad u_x = p(x \mid h) - 1/n_x,

where :math:`v_{xy}` comes from the residuals of sets that hold both x and y, :math:`v_x` of those with x and not y, and
so on (the derivative of T - E along a residual: noise in :math:`T_{xh}` is spread evenly over y in T, but by p(y | h)
in E). Counts plus noise are close to a Poisson variable of mean E + v that was shifted by v, so the comparison weighs

.. math:: \mathrm{evidence}(x, y \mid h) = \sum_{\text{cells}} (T+v) \ln\frac{T+v}{E+v} - (T - E)
          \;-\; \frac{γ}{2} \, κ \sum_{\text{cells}} \ln\Big(1 + \frac{n E}{E + v}\Big),

the log-likelihood ratio less what its :math:`κ \cdot \text{cells} = (n_x - 1)(n_y - 1) n_h` parameters are worth: BIC
with the number of rows that each cell is worth after noise. Without noise it is BIC (for γ = 1). Where noise swamps a
cell, both sums fade: such a cell says nothing, and costs nothing.

**Sets of columns.** By the chain rule a set's total dependence is a sum of comparisons. Of three columns it is the
evidence of two pairs and of the third pair given the column between them; the third is the weakest, so that strong
dependence is read off two-way tables, where there is less noise. (A three-way table that was not measured is the one of
greatest entropy with the measured pairs.) Of four columns (whose table is the one of greatest entropy with the measured
three-way tables) it is that of two triples less the pair they share, and of the remaining pair given the shared one; of
the six ways to do so the least is taken, since a third parent needs to be beyond doubt. The score of x with parents P
is total(P + x) - total(P): the same for equivalent graphs.

**Graph and model together.** Of several graphs, the one is chosen whose fitted model explains everything that was
measured. A score adds up families, and each family sees its own tables only. Noise makes that narrow: a chain x → y → z
is also supported by the table of x and z, which no family of the chain looks at. So candidates (graphs found at several
strictnesses, and under fresh noise) are fitted, and each model's residuals are held against *all* measured ones,

.. math:: \frac12 \sum_S \sum_{\text{cells}} \frac{\big(H_S (R_S - R_S(\text{model}))\big)^2}{E + v_S}
          \;+\; \frac{k}{2} \ln(1 + \text{rows worth}),

with :math:`H_S` the contrasts (from residuals back to cells), E the model's count in a cell, :math:`v_S` the noise that
the residual of S gives it, and k the model's parameters. The model is the same as a generator's, so the graph that is
chosen is one that generates well. All of it is post-processing of released numbers.

**Reference.** G. Schwarz (1978), "Estimating the dimension of a model"; D. Snyder, A. Hammoud, R. White (1993), "Image
recovery from data acquired with a charge-coupled-device camera", for counts with Gaussian noise as shifted Poisson.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.discovery._measurement import (
    Axes,
    Floats,
    Residuals,
    Scope,
    TableBatch,
    basis,
    coefficients,
    on_simplex,
    table_batches,
)
from escudo.discovery._pattern import Parents

UNKNOWN = -1e8
"""The evidence of what was not looked at: never chosen, unless knowledge asks for it."""

_TINY = 1e-9
_SWEEPS = 10  # of proportional fitting
_AT_ONCE = 2**20  # numbers of one kind that are worked on together
_AROUND = 7  # neighbours of a column that may be its parents three at a time


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """How strongly sets of columns depend on each other, in nats, less what that costs.

    Attributes:
        pair: Evidence of each pair.
        triple: Total dependence of each three columns, in any order; ``UNKNOWN`` where it was not looked at.
        given: Evidence of the pair (x, y) given z, at [x, y, z]; infinity where it was not looked at.
        four: Total dependence of four columns, by their sorted indices, where it was looked at.
        given_two: Evidence of each pair given the other two of four columns, in the order of their combinations; only
            where it was asked for.
    """

    pair: Floats
    triple: Floats
    given: Floats
    four: dict[Scope, float]
    given_two: dict[Scope, tuple[float, ...]] = field(default_factory=dict)

    def score(self, column: int, parents: Sequence[int]) -> float:
        """Return the score of a column with these parents, at most three."""
        if not parents:
            return 0.0
        if len(parents) == 1:
            return float(self.pair[column, parents[0]])
        if len(parents) == 2:
            a, b = parents
            return float(self.triple[column, a, b] - self.pair[a, b])
        if len(parents) == 3:
            a, b, c = parents
            return self.four.get(tuple(sorted((column, *parents))), 10 * UNKNOWN) - float(self.triple[a, b, c])
        raise ValueError("families of more than three parents are not scored")

    def of_pairs(self) -> Evidence:
        """Return the evidence of pairs alone: the best graph by it is a forest, known arrows aside."""
        return Evidence(self.pair, np.full_like(self.triple, UNKNOWN), np.full_like(self.given, math.inf), {})

    def explained(self) -> NDArray[np.bool_]:
        """Return which pairs are independent given one other column that is tied to both at least as strongly.

        Noise splits what one edge says over several noisy views of it, so that a graph with an edge too many can score
        better than the true one. Such an edge goes by this test, as in the PC algorithm.
        """
        d = len(self.pair)
        if d < 3:
            return np.zeros((d, d), dtype=np.bool_)
        pair = self.pair
        stronger = (pair[:, None, :] >= pair[:, :, None]) & (pair[None, :, :] >= pair[:, :, None])
        found: NDArray[np.bool_] = (stronger & (self.given < 0)).any(axis=2) & (pair > 0)
        return found


class Weights:
    """Makes evidence out of residuals; built once for what was measured, used again for other noise.

    Args:
        residuals: What was measured.
        given_two: Whether to keep what four columns say of each two of them given the others.
        softer: What each column that is given multiplies γ with.
    """

    def __init__(self, residuals: Residuals, *, given_two: bool = False, softer: float = 1.0):
        self._residuals, self._given_two, self._softer = residuals, given_two, softer
        self.columns = len(residuals.sizes)
        self._pairs = table_batches(residuals, [scope for scope in residuals.starts if len(scope) == 2])
        self._measured = table_batches(residuals, [scope for scope in residuals.starts if len(scope) == 3])
        self._pairwise: list[TableBatch] | None = None  # triples whose table was not measured
        self._fours: list[TableBatch] = []
        self._noises: dict[tuple[TableBatch, Axes, Axes], Floats] = {}

    @property
    def rows_worth(self) -> float:
        """How many rows a three-way table is worth after noise: n E / (E + v) for even cells, the median over tables.

        Where no three-way table was measured, that of the pairs.
        """
        rows, found = self._residuals.rows, []
        for batch in self._measured or self._pairs:
            even = rows / math.prod(batch.shape)
            axes = tuple(range(len(batch.shape)))
            noise = _noise(batch, axes[:2], axes[2:]).ravel()
            found += (rows * even / (even + noise)).tolist()
        return float(np.median(found)) if found else 0.0

    def of(self, values: Floats, strictness: float) -> Evidence:
        """Return the evidence of pairs, triples and promising sets of four.

        Which triples and fours are looked at is settled by the first values this is called with.

        Args:
            values: Residuals in the order of those this was built for.
            strictness: γ, the weight of parameters.
        """
        return self._of(values[None], strictness)[0]

    def several(self, values: Floats, strictness: float) -> Iterator[Evidence]:
        """Yield the evidence of each of several vectors of residuals, one a row: like :meth:`of`, a few at a time."""
        cells = max((batch.places.size for batch in (*self._pairs, *self._measured, *self._fours)), default=1)
        few = max(1, _AT_ONCE // max(cells, self.columns**3))
        for first in range(0, len(values), few):
            yield from self._of(values[first : first + few], strictness)

    def _of(self, values: Floats, strictness: float) -> list[Evidence]:
        d, rows, many = self.columns, self._residuals.rows, len(values)
        pair = np.full((many, d, d), UNKNOWN / 10)
        pair[:, range(d), range(d)] = 0.0
        triple, given = np.full((many, d, d, d), UNKNOWN), np.full((many, d, d, d), math.inf)
        tables: dict[Scope, Floats] = {}

        # Tables have their own axes first, then one for the vectors and one for the scopes: sums over a few levels of
        # many tables are then sums of long vectors.
        def made(batch: TableBatch) -> Floats:
            flat = batch.tables(values, rows).reshape(-1, *batch.shape)
            found = on_simplex(flat, rows).reshape(many, len(batch.scopes), *batch.shape)
            found = np.ascontiguousarray(np.moveaxis(found, (0, 1), (-2, -1)))
            keep(batch, found)
            return found

        def keep(batch: TableBatch, found: Floats) -> None:
            tables.update((scope, found[..., place]) for place, scope in enumerate(batch.scopes))

        for batch in self._pairs:
            at = np.array(batch.scopes)
            weighed = self._comparison(made(batch), batch, 0, 1, strictness)
            pair[:, at[:, 0], at[:, 1]] = pair[:, at[:, 1], at[:, 0]] = weighed
        evidence = [Evidence(pair[one], triple[one], given[one], {}) for one in range(many)]
        for batch in self._measured:
            self._weigh_triples(pair, triple, given, batch, made(batch), strictness)
        if self._pairwise is None:
            self._settle(evidence[0])
        assert self._pairwise is not None
        for batch in self._pairwise:
            found = self.greatest_entropy(batch, tables)
            keep(batch, found)
            self._weigh_triples(pair, triple, given, batch, found, strictness)
        for batch in self._fours:
            least, given_two = self._weigh_fours(pair, triple, batch, self.greatest_entropy(batch, tables), strictness)
            for place, one in enumerate(evidence):
                one.four.update(zip(batch.scopes, least[place].tolist(), strict=True))
                if self._given_two:
                    one.given_two.update(
                        zip(batch.scopes, zip(*given_two[:, place].tolist(), strict=True), strict=True)
                    )
        return evidence

    def _settle(self, evidence: Evidence) -> None:
        """Choose the triples and fours to look at beyond what was measured: those that pairs make interesting."""
        pair, d = evidence.pair, self.columns
        measured = {scope for batch in self._measured for scope in batch.scopes}
        near = [[int(a) for a in np.flatnonzero(pair[x] > 0) if a != x] for x in range(d)]
        wanted = {_triple(x, a, b) for x in range(d) for a, b in itertools.combinations(near[x], 2)}
        apart = evidence.explained()
        fours: dict[Scope, None] = {}
        for x in range(d):
            close = [
                int(a) for a in np.argsort(-pair[x], kind="stable") if pair[x, a] > 0 and a != x and not apart[x, a]
            ]
            for three in itertools.combinations(close[:_AROUND], 3):
                fours[tuple(sorted((x, *three)))] = None
        known = {scope for batch in self._pairs for scope in batch.scopes}
        fours = {f: None for f in fours if all(two in known for two in itertools.combinations(f, 2))}
        wanted.update(_triple(*three) for scope in fours for three in itertools.combinations(scope, 3))
        missing = [t for t in wanted - measured if all(two in known for two in itertools.combinations(t, 2))]
        self._pairwise = table_batches(self._residuals, sorted(missing))
        self._fours = table_batches(self._residuals, list(fours))

    def _weigh_triples(
        self, pair: Floats, triple: Floats, given: Floats, batch: TableBatch, tables: Floats, strictness: float
    ) -> None:
        at = np.array(batch.scopes).T
        ends = [(1, 2), (0, 2), (0, 1)]  # the pair that is compared given each axis in turn
        conditional = np.array([self._comparison(tables, batch, *both, strictness) for both in ends])
        single = np.array([pair[:, at[a], at[b]] for a, b in ends])
        weakest = single.argmin(axis=0)[None]
        swapped = np.take_along_axis(conditional, weakest, axis=0) - np.take_along_axis(single, weakest, axis=0)
        total = single.sum(axis=0) + swapped[0]
        for order in itertools.permutations(range(3)):
            triple[:, at[order[0]], at[order[1]], at[order[2]]] = total
        for h, (a, b) in enumerate(ends):
            given[:, at[a], at[b], at[h]] = given[:, at[b], at[a], at[h]] = conditional[h]

    def _weigh_fours(
        self, pair: Floats, triple: Floats, batch: TableBatch, tables: Floats, strictness: float
    ) -> tuple[Floats, Floats]:
        """Return the total dependence of each four columns, and of each two of them given the others."""
        at = np.array(batch.scopes).T
        least = np.full(tables.shape[-2:], math.inf)
        given_two = []
        for x, y in itertools.combinations(range(4), 2):
            a, b = (axis for axis in range(4) if axis not in (x, y))
            given_two.append(self._comparison(tables, batch, x, y, strictness))
            total = triple[:, at[x], at[a], at[b]] + triple[:, at[y], at[a], at[b]]
            least = np.minimum(least, total - pair[:, at[a], at[b]] + given_two[-1])
        return least, np.array(given_two)

    def _comparison(self, tables: Floats, batch: TableBatch, x: int, y: int, strictness: float) -> Floats:
        """Return the evidence, for each table of a batch, that axes x and y depend on each other given all others."""
        shape = batch.shape
        hub = tuple(axis for axis in range(len(shape)) if axis not in (x, y))
        with_x, with_y = tables.sum(axis=y, keepdims=True), tables.sum(axis=x, keepdims=True)
        alone = with_x.sum(axis=x, keepdims=True)
        p_x = np.divide(with_x, alone, out=np.full_like(with_x, 1 / shape[x]), where=alone > 0)
        p_y = np.divide(with_y, alone, out=np.full_like(with_y, 1 / shape[y]), where=alone > 0)
        expected = p_x * with_y
        uneven_x, uneven_y = (p_x - 1 / shape[x]) ** 2, (p_y - 1 / shape[y]) ** 2
        both, of_x, of_y, neither = (self._noise(batch, ends, hub) for ends in ((x, y), (x,), (y,), ()))
        noise = (of_y + neither * uneven_y) * uneven_x
        noise += both + of_x * uneven_y
        level = expected + noise
        level += _TINY
        noise += tables
        seen = np.maximum(noise, _TINY, out=noise)
        cells = tuple(range(len(shape)))
        expected /= level
        expected *= self._residuals.rows
        worth = np.log1p(expected, out=expected).sum(axis=cells)
        # Both tables have the same total, so that T - E adds up to 0.
        np.divide(seen, level, out=level)
        np.log(level, out=level)
        level *= seen
        share = (1 - 1 / shape[x]) * (1 - 1 / shape[y])
        found: Floats = level.sum(axis=cells) - strictness * self._softer ** len(hub) / 2 * share * worth
        return found

    def _noise(self, batch: TableBatch, ends: Axes, hub: Axes) -> Floats:
        """Return what ``_noise`` does, which is the same whatever the values are."""
        key = batch, ends, hub
        if key not in self._noises:
            self._noises[key] = _noise(batch, ends, hub).ravel()
        return self._noises[key]

    def greatest_entropy(self, batch: TableBatch, tables: Mapping[Scope, Floats]) -> Floats:
        """Return the tables with the known tables of one column less, and no more than they say.

        Args:
            batch: Which tables.
            tables: The known ones, each along one last axis more where there are several of each.

        Returns:
            The tables along a last axis, one for each scope.
        """
        axes = range(len(batch.shape))
        sides = [
            np.stack(
                [tables[tuple(c for place, c in enumerate(scope) if place != axis)] for scope in batch.scopes], axis=-1
            )
            for axis in axes
        ]
        many = sides[0].shape[len(batch.shape) - 1 :]
        found = np.full((*batch.shape, *many), self._residuals.rows / math.prod(batch.shape))
        for _ in range(_SWEEPS):
            for axis, side in enumerate(sides):
                now = found.sum(axis)
                ratio = np.divide(side, now, out=np.zeros_like(side), where=now > 0)
                found *= np.expand_dims(ratio, axis)
        return found


def _triple(*columns: int) -> Scope:
    return tuple(sorted(columns))


def _noise(batch: TableBatch, ends: Axes, hub: Axes) -> Floats:
    """Return the variance in a cell of the table over ``ends`` and ``hub`` from residuals that hold all of ``ends``."""
    found = np.zeros(len(batch.scopes))
    for order in range(len(hub) + 1):
        for some in itertools.combinations(hub, order):
            axes = tuple(sorted((*ends, *some)))
            if axes and axes in batch.noise:
                found = found + batch.noise[axes] / math.prod(
                    batch.shape[axis] ** 2 for axis in hub if axis not in some
                )
    return found.reshape(-1, *(1 for _ in batch.shape))


# ---- graph and model together

Law = tuple[Scope, Floats]
Codes = NDArray[np.int64]
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
    (batch,) = table_batches(residuals, [scope])
    if scope in residuals.starts or len(scope) <= 2:
        found: Floats = on_simplex(batch.tables(residuals.values, residuals.rows), residuals.rows)[0]
        return found
    sides = {side: _table(residuals, weights, side) for side in itertools.combinations(scope, len(scope) - 1)}
    fitted: Floats = weights.greatest_entropy(batch, sides)[..., 0]
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


def _simulated_rows(sizes: tuple[int, ...], laws: list[Law], parents: Parents, rows: int) -> dict[int, Codes]:
    """Return each column of so many rows drawn from a model."""
    rng = np.random.default_rng(0)  # the model is public: any generator does
    codes: dict[int, Codes] = {}
    while len(codes) < len(sizes):
        for x, several in enumerate(parents):
            if x not in codes and all(a in codes for a in several):
                columns, law = laws[x]
                place = np.zeros(rows, dtype=np.int64)
                for a in columns[:-1]:
                    place = place * sizes[a] + codes[a]
                steps = law.reshape(-1, sizes[x]).cumsum(axis=1)[:, :-1]
                codes[x] = (rng.random(rows)[:, None] > steps[place]).sum(axis=1)
    return codes


def _simulated_tables(sizes: tuple[int, ...], laws: list[Law], parents: Parents) -> Tables:
    codes = _simulated_rows(sizes, laws, parents, _SIMULATED)

    def table_of(scope: Scope) -> Floats:
        shape = [sizes[i] for i in scope]
        place = np.ravel_multi_index([codes[i] for i in scope], shape)
        return np.bincount(place, minlength=math.prod(shape)).reshape(shape) / _SIMULATED

    return table_of


# ---- what other rows would have shown

_LIKE = 2048  # rows of the model that stand for all rows


def chance(residuals: Residuals, weights: Weights, parents: Parents, rng: np.random.Generator, repeats: int) -> Floats:
    r"""Return how far residuals would lie from their mean in other tables drawn like this one, one row for each table.

    With rows :math:`x_1, …, x_m` drawn from the fitted model, of which each adds the vector h(x) to the residuals, and
    independent normal g that add up to 0, :math:`\sqrt{n/m} \sum_k g_k h(x_k)` has the covariance of the residuals of n
    rows, for all sets of columns together.

    Args:
        residuals: What was measured.
        weights: What makes tables out of it.
        parents: The graph of the model.
        rng: Draws g; public, as it sees released numbers only.
        repeats: How many tables.
    """
    sizes = residuals.sizes
    laws = [_law(residuals, weights, x, several) for x, several in enumerate(parents)]
    codes = _simulated_rows(sizes, laws, parents, _LIKE)
    drawn = rng.standard_normal((repeats, _LIKE))
    drawn = (drawn - drawn.mean(axis=1, keepdims=True)) * math.sqrt(max(residuals.rows, 0.0) / _LIKE)
    which = np.repeat(np.arange(repeats), _LIKE)
    found = np.zeros((repeats, residuals.values.size))
    for scope, start in residuals.starts.items():
        shape = [sizes[i] for i in scope]
        cells = math.prod(shape)
        place = np.zeros(_LIKE, dtype=np.int64)
        for i in scope:
            place = place * sizes[i] + codes[i]
        tables = np.bincount(which * cells + np.tile(place, repeats), drawn.ravel(), repeats * cells)
        part: Floats = tables.reshape(repeats, *shape).astype(np.float64)
        for size in shape:
            part = np.tensordot(part, basis(size)[:, 1:], axes=(1, 0))
        part = part.reshape(repeats, -1)
        found[:, start : start + part.shape[1]] = part
    return found
