"""Drawing rows from a structural equation model, one column at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from escudo.causal._inference import Array, Factor, IntArray, Lookup
from escudo.causal._sem_values import Value

if TYPE_CHECKING:
    from escudo.causal._sem import SEM

__all__ = ["draw"]

_CHUNK = 2**20  # cells of the row-by-value table held at once


def draw(sem: SEM, rows: int, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Return ``rows`` independent draws, one column of values per variable."""
    columns: dict[str, IntArray] = {}
    for law in sem.population:
        cell = _choose(law.array.reshape(1, -1), np.zeros(rows, dtype=np.intp), rng)
        columns.update(zip(law.names, np.unravel_index(cell, law.array.shape), strict=True))
    for name in sem.endogenous:
        for part in sem.equation(name).parts:
            columns[part.names[-1]] = _step(part, columns, rows, rng)
    return {name: _values(sem.ranges[name], columns[name]) for name in sem.variables}


def _step(part: Factor | Lookup, columns: dict[str, IntArray], rows: int, rng: np.random.Generator) -> IntArray:
    where = tuple(columns[name] for name in part.names[:-1])
    if isinstance(part, Lookup):
        return np.asarray(part.index[where]) if where else np.full(rows, part.index)
    shape = part.array.shape[:-1]
    row = np.ravel_multi_index(where, shape) if where else np.zeros(rows, dtype=np.intp)
    return _choose(part.array.reshape(-1, part.array.shape[-1]), row, rng)


def _choose(table: Array, row: IntArray, rng: np.random.Generator) -> IntArray:
    """Return one column of ``table`` per entry of ``row``, with that row's probabilities."""
    steps = np.cumsum(table, axis=1)
    steps /= steps[:, -1:]
    chosen = np.empty(len(row), dtype=np.intp)
    size = max(1, _CHUNK // table.shape[1])
    for start in range(0, len(row), size):
        block = slice(start, start + size)
        # u < 1 and the last step is exactly 1; a cell of probability zero repeats the step before it and is never hit.
        chosen[block] = (rng.random(len(row[block]))[:, None] >= steps[row[block]]).sum(axis=1)
    return chosen


def _values(values: tuple[Value, ...], column: IntArray) -> np.ndarray[Any, Any]:
    if any(isinstance(value, tuple) for value in values) or len({type(value) for value in values}) > 1:
        labels = np.empty(len(values), dtype=object)
        labels[:] = values
    else:
        labels = np.array(values)
    return np.asarray(labels[column])
