"""Contingency tables from noisy residuals: many of one shape at a time, all agreeing on what they share."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._residuals import Floats, Residuals, Scope, basis

__all__ = ["Axes", "Batch", "batches", "on_simplex"]

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
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
        """Return the tables, of shape (scopes, *shape), unprojected: cells may be negative."""
        padded = np.append(values, 0.0)
        flat = padded[self.places] * self.factors
        flat[:, 0] = rows / math.sqrt(math.prod(self.shape))
        found: Floats = flat.reshape(len(self.scopes), *self.shape)
        for size in self.shape:  # take the first table axis, put it last: after all axes the order is as before
            found = np.tensordot(found, basis(size), axes=(1, 1))
        return found


def batches(residuals: Residuals, scopes: Sequence[Scope]) -> list[Batch]:
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
        made.append(Batch(tuple(members), shape, places.reshape(flat), factors.reshape(1, -1), noise))
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
