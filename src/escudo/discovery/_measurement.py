r"""What the discrete methods measure: counts of merged columns as residuals, with noise, and tables made from them.

**Levels.** A table of three columns with twenty bins each has 8,000 cells, most of them below the noise. Columns of
more than ``MOST_LEVELS`` cells are therefore merged: neighbouring bins of numbers and ordered levels into groups of
about equal size, other levels into the most frequent ones and a rest. What is frequent is read off noisy one-way
tables, which are charged like all else; the merged column is a function of the column, so that a guarantee for its
counts is one for the table. Missing values keep a cell of their own. There are as many groups as three-way tables can
pay for after noise, from eight down to three.

**Residuals.** Write a contingency table over columns U in the orthonormal basis :math:`\bigotimes_{i \in U} Q_i`, where
the first vector of :math:`Q_i` is constant and the others, :math:`H_i` (Helmert), add up to 0. The coefficients that
are constant in :math:`U \setminus S` are those of the table over S, so the *residuals*

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

Where the number of rows is not public it is measured too, as the residual of the empty set, with weight :math:`p_0 =
Δ_+^2/50`: it adds :math:`p_0` to :math:`Δ_+^2`, and nothing to replacing a row.

**Tables** are made from noisy residuals, many of one shape at a time, all agreeing on what they share.

**Reference.** Y. Xiao, G. He, D. Zhang, D. Kifer (2023), "An optimal and scalable matrix mechanism for noisy marginals
under convex loss functions", for residuals; the replace-one maximum is checked against all pairs of records in
``tests/property/test_discovery.py``.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.mechanisms import Purse, gaussian_event
from escudo.privacy import GaussianEvent, Neighbours, Relation
from escudo.table import Categorical, Column, PrivateTable, Schema

Floats = NDArray[np.float64]
Scope = tuple[int, ...]
Axes = tuple[int, ...]


# ---- which columns, at which levels

MOST_LEVELS = 8
"""Columns with more cells than this are merged."""


def varying(schema: Schema) -> tuple[str, ...]:
    """Return the columns with more than one cell: only they can have causes or effects."""
    return tuple(name for name in schema.names if schema[name].size > 1)


def wide(schema: Schema) -> tuple[str, ...]:
    """Return the columns whose levels are merged."""
    return tuple(name for name in varying(schema) if schema[name].size > MOST_LEVELS)


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The columns as discovery sees them.

    Attributes:
        names: The columns.
        cells: How many cells the schema gives each.
        groups: For merged columns, the group of each cell.
    """

    names: tuple[str, ...]
    cells: tuple[int, ...]
    groups: Mapping[int, NDArray[np.int64]]

    @classmethod
    def of(cls, schema: Schema, counts: Mapping[str, Floats], most: int = MOST_LEVELS) -> Levels:
        """Return the levels of a schema's columns, the wide ones merged into at most so many by their noisy counts."""
        names = varying(schema)
        groups = {names.index(name): _groups(schema[name], noisy, most) for name, noisy in counts.items()}
        return cls(names, schema.shape(names), groups)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many levels each column has after merging."""
        return tuple(int(self.groups[i].max()) + 1 if i in self.groups else size for i, size in enumerate(self.cells))

    def raw_cells(self, scope: Scope) -> int:
        """Return how many cells are counted for a scope, before merging."""
        return math.prod(self.cells[i] for i in scope)

    def merged(self, table: NDArray[np.int64], scope: Sequence[int]) -> NDArray[np.int64]:
        """Return a table of counts with its wide columns merged."""
        for axis, column in enumerate(scope):
            if column in self.groups:
                ends = np.moveaxis(table, axis, 0)
                summed = np.zeros((self.sizes[column], *ends.shape[1:]), dtype=np.int64)
                np.add.at(summed, self.groups[column], ends)
                table = np.moveaxis(summed, 0, axis)
        return table


def _groups(column: Column, noisy: Floats, most: int) -> NDArray[np.int64]:
    """Return the group of each cell, from 0 up, at most so many of them besides the one for missing values."""
    counts = np.maximum(np.asarray(noisy, dtype=np.float64), 1.0)
    inner = column.size - (1 if column.missing else 0)
    room = min(most, MOST_LEVELS - (1 if column.missing else 0))
    if isinstance(column, Categorical) and not column.ordered:
        top = np.argsort(-counts[:inner], kind="stable")[: room - 1]
        found = np.full(inner, room - 1, dtype=np.int64)
        found[top] = np.arange(top.size)
    else:
        middle = np.cumsum(counts[:inner]) - counts[:inner] / 2
        found = np.minimum(middle / counts[:inner].sum() * room, room - 1).astype(np.int64)
    found = np.unique(found, return_inverse=True)[1].reshape(-1)
    return np.append(found, found.max() + 1) if column.missing else found


# ---- residuals, and how far one record moves them

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


@dataclass(frozen=True, slots=True, eq=False)
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
    _: KW_ONLY
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
        return replace(self, starts=starts, values=np.concatenate(values), scales=scales)

    def noise(self, rng: np.random.Generator) -> Floats:
        """Return a vector of fresh noise of the same scales, for asking what other noise would have done."""
        spread = np.zeros(self.values.size)  # what was averaged with a second release is no longer used
        for scope, start in self.starts.items():
            spread[start : start + math.prod(self.sizes[i] - 1 for i in scope)] = self.scales[scope]
        return rng.normal(size=spread.size) * spread


# ---- measuring

MOST_NUMBERS = 2**20
"""The most numbers in one release; they cost about 10 µs each."""

# Releases are stated in units of their sensitivity, on this grid: so coarse that the rounding of sums over 10⁸ rows
# stays below half a step, so fine that a million rounded numbers cost less than one part in 2,000.
_GRID = 2.0**-22
CELLS_AT_ONCE = 2**24


def l2_sensitivity(
    sizes: Sequence[int],
    scopes: Sequence[Scope],
    between: Neighbours | GaussianEvent,
    *,
    count_rows: bool = False,
    voiced: bool = False,
) -> tuple[float, float]:
    """Return the l2 sensitivity of residuals between some tables, each of weight 1, and the weight of the row count.

    Args:
        sizes: How many levels each column has.
        scopes: Which sets of columns are measured.
        between: Between which tables.
        count_rows: Whether the number of rows is measured too.
        voiced: Whether each person has one voice, whatever rows they have.
    """
    weights = dict.fromkeys(scopes, 1.0)
    rows = ROWS_SHARE * squared_sensitivity(sizes, weights, relation="add_remove") if count_rows else 0.0
    squared = squared_sensitivity(sizes, weights, relation=between.relation, rows_weight=rows)
    together = 1 if voiced else between.max_rows_per_person or 1
    return together * math.sqrt(squared) * (1 + 1e-12), rows


def release_event(scale: float, neighbours: Neighbours, *, numbers: int) -> GaussianEvent:
    """Return the event of one release of at most so many numbers, in units of their sensitivity.

    The l2 sensitivity is 1 and what rounding adds: two grid steps for each number (``escudo.mechanisms._noise``).
    """
    return gaussian_event(numbers, l2_sensitivity=1.0, scale=scale, grid=_GRID, **neighbours.stated)


def measure(
    table: PrivateTable,
    levels: Levels,
    scopes: Sequence[Scope],
    event: GaussianEvent,
    purse: Purse,
    rows: float | None,
    voice: int | None = None,
) -> Residuals:
    r"""Release the residuals of some scopes in one go.

    Args:
        table: The private table.
        levels: Its columns, merged where they are wide.
        scopes: Sets of columns, each sorted.
        event: What was planned for it; at most ``MOST_NUMBERS`` numbers.
        purse: Pays the event, and draws the noise.
        rows: The number of rows, if it is public or was measured before; None to measure it here.
        voice: Where each person has one voice: the steps of it that counts are in (``_linked_discovery``).

    **Guarantee.** Gaussian noise of ``event.scale`` times the l2 sensitivity Δ of the residuals (above): with
    the vector in units of Δ the l2 sensitivity is 1, so the release is ρ-zCDP with ρ as the event says. Which scopes
    and levels are measured must not depend on the table except through what was released before.
    """
    counting = rows is None
    step = 1 if voice is None else voice
    limit, rows_weight = l2_sensitivity(levels.sizes, scopes, event, count_rows=counting, voiced=voice is not None)
    parts: dict[Scope, Floats] = {}
    wanted = set(scopes)
    total = 0
    for scope, counts in _count_tables(table, levels, scopes):
        total = int(counts.sum()) // step  # whole voices
        for inner in _inside(scope, wanted, parts):
            axes = tuple(axis for axis, column in enumerate(scope) if column not in inner)
            parts[inner] = coefficients(counts.sum(axis=axes) / step).ravel()
    vector = np.concatenate(
        [parts[scope] for scope in scopes] + ([[math.sqrt(rows_weight) * total]] if counting else [])
    )
    assert event.l2_sensitivity >= 1 + 2 * _GRID * math.sqrt(vector.size), "more numbers than were planned"
    noisy = purse.add(vector / limit, event, purpose="residual tables")
    values = np.asarray(noisy, dtype=np.float64) * limit
    if rows is None:
        rows = max(float(values[-1]) / math.sqrt(rows_weight), 1.0)
        values = values[:-1]
    ends = itertools.accumulate((parts[scope].size for scope in scopes), initial=0)
    return Residuals(
        levels.sizes,
        dict(zip(scopes, ends, strict=False)),
        values,
        scales=dict.fromkeys(scopes, event.scale * limit),
        rows=rows,
    )


def _count_tables(
    table: PrivateTable, levels: Levels, scopes: Sequence[Scope]
) -> Iterator[tuple[Scope, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]]:
    """Yield tables that hold all scopes, the largest first, a few at a time."""
    parts = portions(levels, scopes)
    with tracking("Counting", total=sum(map(len, parts))) as advance:
        for few in parts:
            wanted = [[levels.names[i] for i in scope] for scope in few]
            for scope, counts in zip(few, table.counts(wanted), strict=True):
                yield scope, levels.merged(counts, scope)
            advance(len(few))


def portions(levels: Levels, scopes: Sequence[Scope]) -> list[list[Scope]]:
    """Return the tables that hold all scopes, the largest first: those that are counted in one pass together."""
    held: set[Scope] = set()
    found: list[list[Scope]] = []
    room = 0
    for scope in sorted(scopes, key=len, reverse=True):
        if scope in held:
            continue
        for order in range(1, len(scope) + 1):
            held.update(itertools.combinations(scope, order))
        if not found or levels.raw_cells(scope) > room:
            found.append([])
            room = CELLS_AT_ONCE
        found[-1].append(scope)
        room -= levels.raw_cells(scope)
    return found


def _inside(scope: Scope, wanted: Set[Scope], done: Mapping[Scope, object]) -> list[Scope]:
    """Return the wanted scopes within this one that are still to do."""
    subsets = (inner for order in range(1, len(scope) + 1) for inner in itertools.combinations(scope, order))
    return [inner for inner in subsets if inner in wanted and inner not in done]


# ---- tables from residuals


@dataclass(frozen=True, slots=True, eq=False)
class TableBatch:
    """How to make the tables of several scopes of one shape out of a vector of residuals.

    Attributes:
        scopes: The sets of columns.
        shape: The number of levels along each axis.
        places: For each scope and coefficient, where it is in the vector; one past the end for what was not measured.
        factors: What each coefficient is multiplied with.
        noise: For each set of axes, the variance that the residual of those columns gives each cell of *their own*
            table, for each scope; 0 where it was not measured.
    """

    scopes: tuple[Scope, ...]
    shape: tuple[int, ...]
    places: NDArray[np.int64]
    factors: Floats
    noise: Mapping[Axes, Floats]

    def tables(self, values: Floats, rows: float) -> Floats:
        """Return the tables, of shape (scopes, *shape), unprojected: cells may be negative.

        Of several vectors of residuals, one a row, there are as many, along a first axis.
        """
        lead = values.shape[:-1]
        padded = np.concatenate([values, np.zeros((*lead, 1))], axis=-1)
        flat = padded[..., self.places] * self.factors
        flat[..., 0] = rows / math.sqrt(math.prod(self.shape))
        found: Floats = flat.reshape(*lead, len(self.scopes), *self.shape)
        for size in self.shape:  # take the first table axis, put it last: after all axes the order is as before
            found = np.tensordot(found, basis(size), axes=(values.ndim, 1))
        return found


def table_batches(residuals: Residuals, scopes: Sequence[Scope]) -> list[TableBatch]:
    """Return how to make the tables of these scopes, grouped by shape."""
    sizes, starts = residuals.sizes, residuals.starts
    absent = residuals.values.size
    groups: dict[tuple[int, ...], list[Scope]] = defaultdict(list)
    for scope in scopes:
        groups[tuple(sizes[i] for i in scope)].append(scope)
    made = []
    for shape, members in groups.items():
        places = np.full((len(members), *shape), absent, dtype=np.int64)
        factors = np.zeros(shape)
        noise = {}
        for order in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), order):
                block = tuple(slice(1, None) if axis in axes else 0 for axis in range(len(shape)))
                inner = [shape[axis] - 1 for axis in axes]
                factors[block] = math.prod(1 / math.sqrt(shape[axis]) for axis in range(len(shape)) if axis not in axes)
                count = np.arange(math.prod(inner)).reshape(inner)
                noise[axes] = np.zeros(len(members))
                for row, scope in enumerate(members):
                    part = tuple(scope[axis] for axis in axes)
                    if part in starts:
                        places[(row, *block)] = starts[part] + count
                        keep = math.prod(1 - 1 / sizes[i] for i in part)
                        noise[axes][row] = residuals.scales[part] ** 2 * keep
        flat = (len(members), math.prod(shape))
        made.append(TableBatch(tuple(members), shape, places.reshape(flat), factors.reshape(1, -1), noise))
    return made


def on_simplex(tables: Floats, total: float) -> Floats:
    """Return the nearest tables (the first axis numbers them) without negative cells that add up to ``total``."""
    flat = tables.reshape(len(tables), -1)
    ordered = np.sort(flat, axis=1)[:, ::-1]
    excess = (np.cumsum(ordered, axis=1) - total) / np.arange(1, flat.shape[1] + 1)
    last = (ordered > excess).sum(axis=1) - 1
    cut = excess[np.arange(len(flat)), last]
    projected: Floats = np.maximum(flat - cut[:, None], 0.0).reshape(tables.shape)
    return projected
