"""How far two tables are apart: tables of few columns, moments, correlations, and whether a learner can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import CUSTODIAN_ONLY, card
from escudo.table import Categorical, Numeric
from escudo.utility._contingency import total_variation
from escudo.utility._learners import auc, learner_of, scores_of
from escudo.utility._rows import Rows

__all__ = ["Fidelity", "counted", "fidelity", "marginal_errors", "subsets"]

Columns = tuple[str, ...]
Floats = NDArray[np.float64]

_MOST_CELLS = 2**16
_MOST_SUBSETS = {1: 2000, 2: 2000, 3: 500}
_DETECTED_ROWS = 4000
_WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How far one table is from another.

    Attributes:
        one_way: Mean total variation over columns: the share of rows in the wrong cell.
        two_way: The same over pairs of columns; None if there is no pair.
        three_way: The same over triples, at most 500 of them, drawn at random; None if there is no triple.
        worst: The pairs that are furthest off, with their total variation.
        correlation: Mean absolute difference of the correlations between columns with an order.
        mean: Mean absolute difference of the columns' means, in parts of the column's range.
        deviation: The same for standard deviations.
        detection: How well the better of a forest and a logistic regression tells the tables apart on rows it has not
            seen, as AUC: 0.5 if not at all, 1 if always. None if it was not tried.
    """

    one_way: float
    two_way: float | None
    three_way: float | None
    worst: tuple[tuple[Columns, float], ...]
    correlation: float | None
    mean: float | None
    deviation: float | None
    detection: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "one_way": self.one_way,
            "two_way": self.two_way,
            "three_way": self.three_way,
            "worst": [[list(pair), error] for pair, error in self.worst],
            "correlation": self.correlation,
            "mean": self.mean,
            "deviation": self.deviation,
            "detection": self.detection,
        }

    def _repr_html_(self) -> str:
        figures = {name: value for name, value in self.to_json().items() if isinstance(value, float)}
        rows = [(name.replace("_", " "), f"{value:.4f}") for name, value in figures.items()]
        return card("How far two tables are apart", rows=rows, note=CUSTODIAN_ONLY)


def fidelity(real: Rows, other: Rows, *, seed: int = 0, detect: bool = True) -> Fidelity:
    """Compare two tables of the same schema.

    Args:
        real: One table.
        other: The other.
        seed: Decides which triples are looked at and how rows are split for detection.
        detect: Whether learners try to tell the tables apart.

    Guarantee:
        None: the figures are exact.
    """
    rng = np.random.default_rng(seed)
    errors = {
        size: marginal_errors(real, other, subsets(real, size, rng)) for size in range(1, min(3, len(real.schema)) + 1)
    }
    means = {size: float(np.mean(list(found.values()))) if found else None for size, found in errors.items()}
    pairs = errors.get(2, {})
    correlation, mean, deviation = _moments(real, other)
    return Fidelity(
        one_way=means[1] or 0.0,
        two_way=means.get(2),
        three_way=means.get(3),
        worst=tuple(sorted(pairs.items(), key=lambda item: -item[1])[:_WORST]),
        correlation=correlation,
        mean=mean,
        deviation=deviation,
        detection=_detection(real, other, rng) if detect else None,
    )


def subsets(rows: Rows, size: int, rng: np.random.Generator) -> list[Columns]:
    """Return the sets of ``size`` columns whose table is small enough, a random share of them if they are many."""
    names = rows.schema.names
    most = _MOST_SUBSETS[size]
    if math.comb(len(names), size) <= 4 * most:
        chosen = [columns for columns in combinations(names, size) if _cells(rows, columns) <= _MOST_CELLS]
        kept = rng.permutation(len(chosen))[:most] if len(chosen) > most else range(len(chosen))
        return [chosen[place] for place in sorted(kept)]
    drawn: set[Columns] = set()
    for _ in range(4 * most):  # so many sets that drawing beats listing them
        columns = tuple(names[place] for place in np.sort(rng.choice(len(names), size, replace=False)))
        if _cells(rows, columns) <= _MOST_CELLS:
            drawn.add(columns)
        if len(drawn) == most:
            break
    return sorted(drawn)


def marginal_errors(real: Rows, other: Rows, chosen: Sequence[Columns]) -> dict[Columns, float]:
    """Return the total variation between the tables of each set of columns."""
    return {columns: total_variation(counted(real, columns), counted(other, columns)) for columns in chosen}


def _cells(rows: Rows, columns: Columns) -> int:
    return math.prod(rows.schema[name].size for name in columns)


def counted(rows: Rows, columns: Columns) -> NDArray[np.int64]:
    """Return how many rows are in each cell of the columns' table, flattened."""
    places = [rows.schema.names.index(name) for name in columns]
    sizes = [rows.schema[name].size for name in columns]
    flat = np.ravel_multi_index(tuple(rows.codes[:, place] for place in places), sizes)
    return np.bincount(flat, minlength=math.prod(sizes))


def _moments(real: Rows, other: Rows) -> tuple[float | None, float | None, float | None]:
    """Return the mean differences of correlations, means and deviations over the columns that have an order."""
    ordered = [
        place
        for place, column in enumerate(real.schema.fields)
        if isinstance(column, Numeric) or (isinstance(column, Categorical) and (column.ordered or column.size == 2))
    ]
    if not ordered:
        return None, None, None
    ours, theirs = _values(real, ordered), _values(other, ordered)
    mean = float(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).mean())
    deviation = float(np.abs(ours.std(axis=0) - theirs.std(axis=0)).mean())
    if len(ordered) < 2:
        return None, mean, deviation
    upper = np.triu_indices(len(ordered), 1)
    return float(np.abs(_correlations(ours)[upper] - _correlations(theirs)[upper]).mean()), mean, deviation


def _values(rows: Rows, places: Sequence[int]) -> Floats:
    """Return columns on [0, 1], missing values at the column's mean."""
    found = np.empty((len(rows), len(places)))
    for index, place in enumerate(places):
        column = rows.schema.fields[place]
        if isinstance(column, Numeric):
            values = (rows.numbers[:, place] + 1) / 2
        else:
            codes = rows.codes[:, place].astype(np.float64)
            values = codes / max(column.size - 1 - column.missing, 1)
            if column.missing:
                values[rows.codes[:, place] == column.missing_code] = np.nan
        gaps = np.isnan(values)
        found[:, index] = np.where(gaps, values[~gaps].mean() if not gaps.all() else 0.5, values)
    return found


def _correlations(values: Floats) -> Floats:
    centred = values - values.mean(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0))
    scaled: Floats = centred / np.where(lengths > 0, lengths, 1.0)
    return scaled.T @ scaled


def _detection(real: Rows, other: Rows, rng: np.random.Generator) -> float | None:
    """Return the AUC of the better of two learners on the half of the rows that it did not learn from."""
    size = min(len(real), len(other), _DETECTED_ROWS)
    if size < 20:
        return None
    half = size // 2
    ours, theirs = (rows.take(rng.permutation(len(rows))[:size]).inputs() for rows in (real, other))
    inputs = np.vstack([ours[:half], theirs[:half]])
    tested = np.vstack([ours[half:], theirs[half:]])
    truth = np.repeat([False, True], [half, half])
    asked = np.repeat([False, True], [size - half, size - half])
    found = []
    for name in ("forest", "logistic"):
        learner = learner_of(name, "class", int(rng.integers(2**31))).fit(inputs, truth)
        found.append(auc(asked, scores_of(learner, tested)[:, 1]))
    return max(found)
