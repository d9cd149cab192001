r"""Learnt scores: from a whole output to one number that is large where the second dataset is likelier.

All of them estimate the log likelihood ratio of the two datasets, each under other assumptions; which one is used is
decided on runs they were not fitted on (:mod:`escudo.auditing._views`).

* :class:`Additive`: the sum of one table per column (exact where columns are independent); columns that behave alike
  lend each other strength, by shrinking each table towards their mean as far as noise explains the difference.
* :class:`Linear`: Fisher's discriminant, for correlated noise.
* :class:`Boosted`: small trees on all columns, for outputs whose parts depend on each other.
* :class:`Logistic`: steps of columns, fitted together by ridge logistic regression, for dependent columns:
  :math:`\sum_j f_j(x_j) + \sum_{j<k} f_{jk}(x_j, x_k)`, where each f is a step function: a sum of jumps at quantiles of
  its column, and a jump of its own where there is no number. A normal prior on the jumps makes neighbouring steps
  alike, so that a slope or a threshold costs few runs to learn; unlike a sum of single tables it stays right where
  columns depend on each other. How large jumps may be is decided on runs that were not fitted on.
* :class:`Stratified`: tables of the other columns for every value of a discrete one. Many mechanisms say *which* and
  *how much*: the place of an answer and its value. Given the discrete part d, the columns are taken as independent, so
  that the log ratio is :math:`g(d) + \sum_c f_c(x_c \mid d)`; each table is a posterior under some steps
  (:func:`~escudo.auditing._calibration.along_cells`), so that values of d with few runs claim little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import along_cells, cell_by_cell
from escudo.auditing._cells import Cells, Column, Cut, cut, runs_per_cell
from escudo.auditing._outputs import Encoded, Labels, Sample

Floats = NDArray[np.float64]

_DEPTH = 3  # of a tree,
_ROUNDS = 60  # how many trees,
_RATE = 0.15  # what part of its answer each adds,
_NUMBERS_A_ROUND = 1_500_000  # and how many numbers it is fitted to
_JUMPS = (0.003, 0.02, 0.1, 0.5)  # how large jumps of the log ratio may be, as a standard deviation
_PARTS = (0.1, 0.4, 1.0)  # and jumps that need two columns at once, as a part of that
_FEATURES = 240  # most jumps that are fitted
_CROSSED = 4  # up to so many columns every two are looked at together
_COUNTED = 100_000  # up to so many cells of all columns together, rows are counted instead of kept
_MOST_ROWS = 600_000  # that are fitted to, where they are not counted
_CURVATURE_ROWS = 150_000
_CHUNK = 40_000  # rows at a time
_NEWTON = 5  # steps
_MOST_STRATA = 32  # values of a discrete column,
_STRATA_COLUMNS = 6  # columns,
_STRATA_CELLS = 40  # and cells of each


# ---- a table per column


@dataclass(frozen=True, slots=True, eq=False)
class Additive:
    """The sum of one table per column."""

    columns: tuple[Column, ...]
    cuts: tuple[Cut, ...]
    tables: tuple[Floats, ...]
    name: str = "sum of scores of single columns"

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""
        total = np.zeros(len(outputs))
        for column, cells, table in zip(self.columns, self.cuts, self.tables, strict=True):
            total += table[cells(column(outputs))]
        return total


def fit_additive(columns: Sequence[Column], sample: Sample, cells: int) -> Additive:
    """Return the sum of per-column log ratios, shrunk towards what columns have in common and towards nothing."""
    labels = sample.labels
    numbers = [column(sample.outputs) for column in columns]
    cuts = [cut(values, cells) for values in numbers]
    tables, noises = [], []
    ones = int(np.count_nonzero(labels))
    for values, chosen in zip(numbers, cuts, strict=True):
        counts = runs_per_cell(chosen(values), labels, chosen.cells) + 0.5
        tables.append(np.log(counts[:, 1] / counts[:, 0]) - np.log(max(ones, 1) / max(labels.size - ones, 1)))
        noises.append(1 / counts[:, 0] + 1 / counts[:, 1])
    for size in {table.size for table in tables}:
        alike = [i for i, table in enumerate(tables) if table.size == size]
        found, noise = np.array([tables[i] for i in alike]), np.array([noises[i] for i in alike])
        for i, table in zip(alike, _shrunk(found, noise), strict=True):
            tables[i] = table
    return Additive(tuple(columns), tuple(cuts), tuple(tables))


def _shrunk(tables: Floats, noise: Floats) -> Floats:
    """Return James-Stein estimates: each table towards their mean, and the mean towards 0."""
    weights = 1 / noise
    mean = (tables * weights).sum(axis=0) / weights.sum(axis=0)
    own = 1 / weights.sum(axis=0)
    signal = max(0.0, float(np.average(mean**2 - own, weights=1 / own)))
    mean = mean * (signal / (signal + own))
    if len(tables) < 3:
        signals = np.maximum(0.0, np.average(tables**2 - noise, weights=weights, axis=1))[:, None]
        return np.asarray(tables * signals / (signals + noise))
    apart = max(0.0, float(np.average((tables - mean) ** 2 - noise, weights=weights)))
    return np.asarray(mean + (tables - mean) * apart / (apart + noise))


# ---- a weighted sum


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A weighted sum of the output's numbers, each kept within the range where most are, and a constant."""

    weights: Floats
    constant: float
    low: Floats
    high: Floats
    name: str = "weighted sum of entries"

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""
        values = outputs.widened(self.weights.size).values[:, : self.weights.size]
        return np.asarray(np.nan_to_num(np.clip(values, self.low, self.high)) @ self.weights + self.constant)


def fit_linear(sample: Sample) -> Linear | None:
    """Return Fisher's discriminant, or None where the two means do not differ at all."""
    with np.errstate(all="ignore"):
        some = sample.outputs.values[:20_000]
        some = np.where(np.isnan(some).all(axis=0), 0.0, some)
        low, high = np.nanquantile(some, [0.005, 0.995], axis=0)
    values = np.nan_to_num(np.clip(sample.outputs.values, low, high))
    first, second = values[~sample.labels], values[sample.labels]
    if len(first) < 10 or len(second) < 10:
        return None
    means = first.mean(axis=0), second.mean(axis=0)
    gap = means[1] - means[0]
    spread = np.cov(values.T).reshape(gap.size, gap.size)
    ridge = 1e-6 * max(np.trace(spread) / gap.size, 1e-300)
    weights = np.linalg.solve(spread + ridge * np.eye(gap.size), gap)
    constant = -float(weights @ (means[0] + means[1])) / 2
    return Linear(weights, constant, low, high) if np.isfinite(weights).all() and weights.any() else None


# ---- trees


@dataclass(frozen=True, slots=True, eq=False)
class Boosted:
    """A sum of small trees; all nodes of one level ask the same question, so a leaf is a short binary number."""

    columns: tuple[Column, ...]
    cuts: tuple[Cut, ...]
    questions: NDArray[np.int64]  # (trees, depth, 2): column, cell
    leaves: Floats  # (trees, 2 ** depth)
    name: str = "learnt trees"

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""
        total = np.zeros(len(outputs))
        cells = [
            chosen(column(outputs)).astype(np.uint8) for column, chosen in zip(self.columns, self.cuts, strict=True)
        ]
        for questions, leaves in zip(self.questions, self.leaves, strict=True):
            leaf = np.zeros(len(outputs), dtype=np.uint8)
            for depth, (column, cell) in enumerate(questions):
                leaf |= (cells[column] >= cell).view(np.uint8) << depth
            total += leaves[leaf]
        return total


def fit_boosted(columns: Sequence[Column], sample: Sample, rng: np.random.Generator, cells: int = 32) -> Boosted:
    """Return trees fitted to the labels by gradient boosting of the logistic loss, on random parts of the rows."""
    labels = sample.labels
    numbers = [column(sample.outputs) for column in columns]
    cuts = [cut(values[:20_000], cells) for values in numbers]
    binned = np.stack([chosen(values).astype(np.uint8) for chosen, values in zip(cuts, numbers, strict=True)])
    bins = max(chosen.cells for chosen in cuts)
    wanted = labels.astype(np.float64)
    rows = max(20_000, _NUMBERS_A_ROUND // len(columns))
    logits = np.zeros(labels.size)
    questions = np.zeros((_ROUNDS, _DEPTH, 2), dtype=np.int64)
    leaves = np.zeros((_ROUNDS, 2**_DEPTH))
    for tree in range(_ROUNDS):
        chosen_rows = rng.integers(labels.size, size=rows) if labels.size > rows else slice(None)
        part = binned[:, chosen_rows]
        gradient = wanted[chosen_rows] - 1 / (1 + np.exp(-logits[chosen_rows]))
        leaf = np.zeros(part.shape[1], dtype=np.int64)
        for depth in range(_DEPTH):
            column, cell = _best_question(part, leaf, gradient, bins, 2**depth)
            questions[tree, depth] = column, cell
            leaf += (part[column] >= cell).astype(np.int64) << depth
        sums = np.bincount(leaf, weights=gradient, minlength=2**_DEPTH)
        sizes = np.bincount(leaf, minlength=2**_DEPTH)
        leaves[tree] = _RATE * sums / (sizes / 4 + 10)
        everywhere = np.zeros(labels.size, dtype=np.int64)
        for depth, (column, cell) in enumerate(questions[tree]):
            everywhere += (binned[column] >= cell).astype(np.int64) << depth
        logits += leaves[tree][everywhere]
    used = sorted(set(questions[:, :, 0].ravel().tolist()))
    place = {column: i for i, column in enumerate(used)}
    questions[:, :, 0] = np.vectorize(place.__getitem__)(questions[:, :, 0])
    return Boosted(tuple(columns[i] for i in used), tuple(cuts[i] for i in used), questions, leaves)


def _best_question(
    part: NDArray[np.uint8], leaf: NDArray[np.int64], gradient: Floats, bins: int, leaves: int
) -> tuple[int, int]:
    """Return the column and cell that split all leaves best, by the sum of squared gradients over sizes."""
    best, answer = -np.inf, (0, 1)
    for column in range(len(part)):
        where = leaf * bins + part[column]
        sums = np.bincount(where, weights=gradient, minlength=leaves * bins).reshape(leaves, bins)
        sizes = np.bincount(where, minlength=leaves * bins).reshape(leaves, bins)
        left, left_size = np.cumsum(sums, axis=1)[:, :-1], np.cumsum(sizes, axis=1)[:, :-1]
        right, right_size = sums.sum(axis=1, keepdims=True) - left, sizes.sum(axis=1, keepdims=True) - left_size
        worth = (left**2 / (left_size / 4 + 10) + right**2 / (right_size / 4 + 10)).sum(axis=0)
        cell = int(worth.argmax())
        if worth[cell] > best:
            best, answer = float(worth[cell]), (column, cell + 1)
    return answer


# ---- steps of columns, fitted together


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """Step functions of single columns and of two at once, added up."""

    columns: tuple[Column, ...]
    cuts: tuple[Cut, ...]
    tables: tuple[Floats, ...]
    couples: tuple[tuple[int, int, Floats], ...]
    name: str = "score of all entries"

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""
        cells = [chosen(column(outputs)) for column, chosen in zip(self.columns, self.cuts, strict=True)]
        total = np.zeros(len(outputs))
        for table, where in zip(self.tables, cells, strict=True):
            total += table[where]
        for i, j, both in self.couples:
            total += both.ravel()[cells[i] * both.shape[1] + cells[j]]
        return total


def fit_logistic(columns: Sequence[Column], sample: Sample, *, crossed: bool) -> Logistic | None:
    """Return the score that predicts the labels best on a fourth of the rows, fitted to all or to the others.

    If ``crossed``, steps of two columns at once are tried too, where there are few columns.
    """
    labels = sample.labels
    numbers = [column(sample.outputs) for column in columns]
    if len(columns) > _CROSSED and labels.size > _MOST_ROWS:
        numbers, labels = [values[:_MOST_ROWS] for values in numbers], labels[:_MOST_ROWS]
    judged = np.arange(labels.size) % 4 == 2
    best, answer = -math.inf, None
    for couples in _couples(len(columns) if crossed else 0):
        each = _steps_of(len(columns), len(couples))
        cuts = [_steps(values, each) for values in numbers]
        design = _Design([chosen.edges.size for chosen in cuts], couples)
        if design.width < len(columns) + 2:
            continue
        cells = [chosen(values) for chosen, values in zip(cuts, numbers, strict=True)]
        fitting, checking = _rows(design, cells, labels, ~judged), _rows(design, cells, labels, judged)
        small = fitting.runs.size < _COUNTED
        weights = np.zeros(design.width)
        for jump, part in [(j, p) for j in _JUMPS for p in (_PARTS if couples else (1.0,))]:
            weights = _fit(design, fitting, weights, jump, part)
            score = design.score(checking.cells, weights)
            wrong = checking.second @ np.logaddexp(0.0, -score) + (checking.runs - checking.second) @ np.logaddexp(
                0.0, score
            )
            if -wrong > best:
                every = _rows(design, cells, labels, np.ones(labels.size, dtype=bool)) if small else None
                best, answer = -float(wrong), (design, cuts, weights, jump, part, every)
    if answer is None:
        return None
    design, cuts, weights, jump, part, every = answer
    if every is not None:
        weights = _fit(design, every, weights, jump, part)
    return Logistic(tuple(columns), tuple(cuts), *design.tables(weights))


def _couples(columns: int) -> list[list[tuple[int, int]]]:
    """Return which columns are looked at two at a time: none, any two of few, or all twos."""
    if not 2 <= columns <= _CROSSED:
        return [[]]
    every = list(combinations(range(columns), 2))
    return [[], *([two] for two in every), *([every] if len(every) > 1 else [])]


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows to fit to: the cell of each in every column, how often it occurred, and how often with label 1."""

    cells: list[Cells]
    runs: Floats
    second: Floats


def _rows(design: _Design, cells: Sequence[Cells], labels: Labels, part: Labels) -> _Rows:
    """Return part of the rows, like ones counted together where there are few kinds."""
    chosen, known = [c[part] for c in cells], labels[part]
    shape = tuple(n + 2 for n in design.steps)
    if math.prod(shape) > _COUNTED:
        return _Rows(chosen, np.ones(known.size), known.astype(np.float64))
    where = np.ravel_multi_index(chosen, shape)
    counts = runs_per_cell(where, known, math.prod(shape))
    full = np.flatnonzero(counts.sum(axis=1))
    kept = counts[full]
    return _Rows([np.asarray(c) for c in np.unravel_index(full, shape)], kept.sum(axis=1), kept[:, 1])


def _steps_of(columns: int, couples: int) -> int:
    """Return how many steps a column may have so that all features together are not too many."""
    for steps in (24, 18, 15, 12, 9, 7, 5, 3):
        if columns * (steps + 1) + couples * steps**2 <= (_FEATURES if columns <= _CROSSED else _FEATURES * 2 // 3):
            return steps
    return 1


def _steps(values: Floats, most: int) -> Cut:
    """Return cells that end at quantiles, equally far in log odds, or at every value where there are few."""
    seen = values[np.isfinite(values)][:200_000]
    if not seen.size:
        return Cut(np.empty(0))
    distinct = np.unique(seen)
    if distinct.size <= most + 1:
        return Cut(distinct[1:])
    odds = np.linspace(-1, 1, most) * min(5.0, 0.6 * most)
    return Cut(np.unique(np.quantile(seen, 1 / (1 + np.exp(-odds)))))


class _Design:
    """Which features a row has: an intercept, steps of columns, absences, and products of steps of two columns."""

    def __init__(self, steps: Sequence[int], couples: Sequence[tuple[int, int]]) -> None:
        self.steps, self.couples = list(steps), list(couples)
        self.single = 1 + sum(n + 1 for n in steps)
        self.width = self.single + sum(steps[i] * steps[j] for i, j in couples)

    def rows(self, cells: Sequence[Cells]) -> NDArray[np.float32]:
        """Return the features of some rows."""
        size = cells[0].size
        found = np.empty((size, self.width), dtype=np.float32)
        found[:, 0] = 1
        at = 1
        ups = []
        for n, where in zip(self.steps, cells, strict=True):
            up = ((where[:, None] > np.arange(n)) & (where <= n)[:, None]).astype(np.float32)
            found[:, at : at + n] = up
            found[:, at + n] = where > n
            ups.append(up)
            at += n + 1
        for i, j in self.couples:
            both = ups[i][:, :, None] * ups[j][:, None, :]
            width = both.shape[1] * both.shape[2]
            found[:, at : at + width] = both.reshape(size, width)
            at += width
        return found

    def tables(self, weights: Floats) -> tuple[tuple[Floats, ...], tuple[tuple[int, int, Floats], ...]]:
        """Return the same score as tables per cell; the intercept is in the first."""
        at, tables, couples = 1, [], []
        for n in self.steps:
            tables.append(np.concatenate([[0.0], np.cumsum(weights[at : at + n]), [weights[at + n]]]))
            at += n + 1
        tables[0] += weights[0]
        for i, j in self.couples:
            n, m = self.steps[i], self.steps[j]
            both = np.zeros((n + 2, m + 2))
            both[1 : n + 1, 1 : m + 1] = weights[at : at + n * m].reshape(n, m).cumsum(axis=0).cumsum(axis=1)
            couples.append((i, j, both))
            at += n * m
        return tuple(tables), tuple(couples)

    def score(self, cells: Sequence[Cells], weights: Floats) -> Floats:
        """Return the score of some rows."""
        tables, couples = self.tables(weights)
        total = np.zeros(cells[0].size)
        for table, where in zip(tables, cells, strict=True):
            total += table[where]
        for i, j, both in couples:
            total += both.ravel()[cells[i] * both.shape[1] + cells[j]]
        return total


def _fit(design: _Design, rows: _Rows, start: Floats, jump: float, part: float) -> Floats:
    """Return the weights of largest posterior density, by Newton's steps with the curvature of part of the rows."""
    prior = np.full(design.width, 1 / jump**2)
    prior[design.single :] = 1 / (jump * part) ** 2
    prior[0] = 1e-3
    weights, curvature, move = start, None, start
    for _ in range(_NEWTON):
        chance = 1 / (1 + np.exp(-design.score(rows.cells, weights)))
        left = (rows.second - rows.runs * chance).astype(np.float32)
        pull = -prior * weights
        for at in range(0, left.size, _CHUNK):
            pull += design.rows([c[at : at + _CHUNK] for c in rows.cells]).T @ left[at : at + _CHUNK]
        if curvature is None or np.abs(move).max() > 0.2:
            curvature = _curvature(design, rows, rows.runs * chance * (1 - chance))
        move = np.asarray(np.linalg.solve(curvature + np.diag(prior), pull), dtype=np.float64)
        weights = weights + move
        if np.abs(move).max() < 0.1 * jump:
            break
    return weights


def _curvature(design: _Design, rows: _Rows, weight: Floats) -> Floats:
    total, size = np.zeros((design.width, design.width)), min(weight.size, _CURVATURE_ROWS)
    for at in range(0, size, _CHUNK):
        part = slice(at, min(at + _CHUNK, size))
        found = design.rows([c[part] for c in rows.cells])
        total += (found * weight[part, None].astype(np.float32)).T @ found
    return total * (float(weight.sum()) / max(float(weight[:size].sum()), 1e-300))


# ---- tables by a discrete column


@dataclass(frozen=True, slots=True, eq=False)
class Stratified:
    """The sum of one table per column, each with a row per cell of the discrete column."""

    by: Column
    strata: Cut
    base: Floats
    columns: tuple[Column, ...]
    cuts: tuple[Cut, ...]
    tables: tuple[Floats, ...]
    name: str = "score of entries by one of them"

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""
        stratum = self.strata(self.by(outputs))
        total = self.base[stratum]
        for column, cells, table in zip(self.columns, self.cuts, self.tables, strict=True):
            total = total + table[stratum, cells(column(outputs))]
        return total


def fit_stratified(columns: Sequence[Column], sample: Sample) -> list[Stratified]:
    """Return a score for every column that has few values, the others given it; none where there are many columns."""
    if not 2 <= len(columns) <= _STRATA_COLUMNS:
        return []
    labels = sample.labels
    numbers = [column(sample.outputs) for column in columns]
    cuts = [cut(values, _STRATA_CELLS) for values in numbers]
    cells = [chosen(values) for chosen, values in zip(cuts, numbers, strict=True)]
    found = []
    for place, (chosen, values) in enumerate(zip(cuts, numbers, strict=True)):
        if chosen.cells > _MOST_STRATA or np.unique(values[:1000]).size > _MOST_STRATA:
            continue
        base = cell_by_cell(runs_per_cell(cells[place], labels, chosen.cells)).level
        others = [i for i in range(len(columns)) if i != place]
        tables = []
        for i in others:
            size = cuts[i].cells
            both = runs_per_cell(cells[place] * size + cells[i], labels, chosen.cells * size).reshape(-1, size, 2)
            tables.append(np.array([along_cells(part).level for part in both]) - base[:, None])
        named = tuple(columns[i] for i in others), tuple(cuts[i] for i in others)
        found.append(Stratified(columns[place], chosen, base, *named, tuple(tables)))
    return found
