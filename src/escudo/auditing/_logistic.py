r"""A smooth likelihood ratio: ridge logistic regression on steps of every column, and of two columns at once.

The score is :math:`\sum_j f_j(x_j) + \sum_{j<k} f_{jk}(x_j, x_k)`, where each f is a step function: a sum of jumps at
quantiles of its column, and a jump of its own where there is no number. A normal prior on the jumps makes neighbouring
steps alike, so that a slope or a threshold costs few runs to learn; unlike a sum of single tables it stays right where
columns depend on each other. How large jumps may be is decided on runs that were not fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._columns import Column, Cut
from escudo.auditing._outputs import Encoded

__all__ = ["Logistic", "fit_logistic"]

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]
Cells = NDArray[np.intp]

_JUMPS = (0.003, 0.02, 0.1, 0.5)  # how large jumps of the log ratio may be, as a standard deviation
_PARTS = (0.1, 0.4, 1.0)  # and jumps that need two columns at once, as a part of that
_FEATURES = 240  # most jumps that are fitted
_CROSSED = 4  # up to so many columns every two are looked at together
_TABLE = 100_000  # up to so many cells of all columns together, rows are counted instead of kept
_MOST_ROWS = 600_000  # that are fitted to, where they are not counted
_CURVATURE_ROWS = 150_000
_CHUNK = 40_000
_STEPS = 5


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


def fit_logistic(columns: Sequence[Column], outputs: Encoded, labels: Labels, *, crossed: bool) -> Logistic | None:
    """Return the score that predicts the labels best on a fourth of the rows, fitted to all or to the others.

    Args:
        columns: Which columns.
        outputs: Earlier outputs.
        labels: Whether each came from the second dataset.
        crossed: Whether steps of two columns at once are tried too; only where there are few columns.
    """
    numbers = [column(outputs) for column in columns]
    if len(columns) > _CROSSED and labels.size > _MOST_ROWS:
        numbers, labels = [values[:_MOST_ROWS] for values in numbers], labels[:_MOST_ROWS]
    judged = np.arange(labels.size) % 4 == 2
    best, answer = -math.inf, None
    for couples in _couples(len(columns), crossed=crossed):
        each = _steps_of(len(columns), len(couples))
        cuts = [_steps(values, each) for values in numbers]
        design = _Design([chosen.edges.size for chosen in cuts], couples)
        if design.width < len(columns) + 2:
            continue
        cells = [chosen(values) for chosen, values in zip(cuts, numbers, strict=True)]
        fitting, checking = _rows(design, cells, labels, ~judged), _rows(design, cells, labels, judged)
        small = fitting.runs.size < _TABLE
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


def _couples(columns: int, *, crossed: bool) -> list[list[tuple[int, int]]]:
    """Return which columns are looked at two at a time: none, any two of few, or all twos."""
    if not crossed or not 2 <= columns <= _CROSSED:
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
    if math.prod(shape) > _TABLE:
        return _Rows(chosen, np.ones(known.size), known.astype(np.float64))
    where = np.ravel_multi_index(chosen, shape)
    counts = np.bincount(where * 2 + known, minlength=2 * math.prod(shape)).reshape(-1, 2)
    full = np.flatnonzero(counts.sum(axis=1))
    kept = counts[full].astype(np.float64)
    return _Rows([np.asarray(c) for c in np.unravel_index(full, shape)], kept.sum(axis=1), kept[:, 1])


def _steps_of(columns: int, couples: int) -> int:
    """Return how many steps a column may have so that all features together are not too many."""
    for steps in (24, 18, 15, 12, 9, 7, 5, 3):
        if columns * (steps + 1) + couples * steps**2 <= (_FEATURES if columns <= _CROSSED else _FEATURES * 2 // 3):
            return steps
    return 1


def _steps(values: Floats, most: int) -> Cut:
    """Return cells that end at quantiles, equally far in log odds, or at every value where there are few."""
    seen = values[~np.isnan(values)][:200_000]
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
    for _ in range(_STEPS):
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
