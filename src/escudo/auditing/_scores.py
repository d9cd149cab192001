"""Learnt scores: from a whole output to one number that is large where the second dataset is likelier.

All of them estimate the log likelihood ratio of the two datasets, each under other assumptions; which one is used is
decided on runs they were not fitted on (:mod:`escudo.auditing._views`).

* :class:`Additive`: the sum of one table per column (exact where columns are independent); columns that behave alike
  lend each other strength, by shrinking each table towards their mean as far as noise explains the difference.
* :class:`~escudo.auditing._logistic.Logistic`: steps of columns, fitted together, for dependent columns.
* :class:`~escudo.auditing._strata.Stratified`: tables of the other columns for every value of a discrete one.
* :class:`Linear`: Fisher's discriminant, for correlated noise.
* :class:`Boosted`: small trees on all columns, for outputs whose parts depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._columns import Column, Cut, cut
from escudo.auditing._outputs import Encoded

__all__ = ["Additive", "Boosted", "Linear", "Score", "fit_additive", "fit_boosted", "fit_linear"]

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]

_DEPTH = 3
_ROUNDS = 60
_RATE = 0.15
_NUMBERS_A_ROUND = 1_500_000


class Score(Protocol):
    """One number per output."""

    @property
    def name(self) -> str:
        """What it is, in words."""

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""


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


def fit_additive(
    columns: Sequence[Column], outputs: Encoded, labels: Labels, *, cells: int, rows: Sequence[Floats] | None = None
) -> Additive:
    """Return the sum of per-column log ratios, shrunk towards what columns have in common and towards nothing.

    Args:
        columns: Which columns.
        outputs: Earlier outputs.
        labels: Whether each came from the second dataset.
        cells: How many cells a column is cut into.
        rows: The columns' values, if they are already there.
    """
    numbers = rows if rows is not None else [column(outputs) for column in columns]
    cuts = [cut(values, cells) for values in numbers]
    tables, noises = [], []
    ones = int(np.count_nonzero(labels))
    for values, chosen in zip(numbers, cuts, strict=True):
        counts = np.bincount(chosen(values) * 2 + labels, minlength=2 * chosen.cells).reshape(-1, 2) + 0.5
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
        values = _padded(outputs.values, self.weights.size)
        return np.asarray(np.nan_to_num(np.clip(values, self.low, self.high)) @ self.weights + self.constant)


def fit_linear(outputs: Encoded, labels: Labels) -> Linear | None:
    """Return Fisher's discriminant, or None where the two means do not differ at all."""
    with np.errstate(all="ignore"):
        sample = outputs.values[:20_000]
        sample = np.where(np.isnan(sample).all(axis=0), 0.0, sample)
        low, high = np.nanquantile(sample, [0.005, 0.995], axis=0)
    values = np.nan_to_num(np.clip(outputs.values, low, high))
    first, second = values[~labels], values[labels]
    if len(first) < 10 or len(second) < 10:
        return None
    means = first.mean(axis=0), second.mean(axis=0)
    gap = means[1] - means[0]
    spread = np.cov(values.T).reshape(gap.size, gap.size)
    ridge = 1e-6 * max(np.trace(spread) / gap.size, 1e-300)
    weights = np.linalg.solve(spread + ridge * np.eye(gap.size), gap)
    constant = -float(weights @ (means[0] + means[1])) / 2
    return Linear(weights, constant, low, high) if np.isfinite(weights).all() and weights.any() else None


def _padded(values: Floats, width: int) -> Floats:
    if values.shape[1] >= width:
        return values[:, :width]
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=np.nan)


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


def fit_boosted(
    columns: Sequence[Column], outputs: Encoded, labels: Labels, *, rng: np.random.Generator, cells: int = 32
) -> Boosted:
    """Return trees fitted to the labels by gradient boosting of the logistic loss, on random parts of the rows."""
    numbers = [column(outputs) for column in columns]
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
