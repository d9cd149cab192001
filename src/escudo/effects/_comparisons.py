"""The six comparisons behind the ten definitions, for mechanisms given as full tables.

Each returns a :class:`Comparison`: the largest log ratio per data point, and where the largest of all is attained. They
are closed forms: "for all populations" is never sampled. ``README.md`` in this folder says why they are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from escudo.effects._effect import Witness
from escudo.effects._mechanism import Mechanism
from escudo.effects._ratios import Array, average, largest_log_ratio, log_of, probabilities, spread
from escudo.errors import InputError

__all__ = ["Comparison", "TableComparisons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The largest log ratio, for each data point, and a witness of the largest of all (None if nothing differs)."""

    epsilon: float
    persons: tuple[float, ...]
    witness: Witness | None


_Found = tuple[float, Witness | None]


class TableComparisons:
    """Comparisons of a mechanism's table over all databases."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism
        self.log = mechanism.log
        self.n = self.log.ndim - 1

    def population(self, values: Any) -> Array:
        """Check a joint table over databases."""
        population = probabilities("population", values, axis=None)
        if population.shape != self.log.shape[:-1]:
            raise InputError(
                f"population must have one entry per database, shape {self.log.shape[:-1]}; got {population.shape}."
            )
        return population

    def neighbours(self, population: Array | None = None) -> Comparison:
        """Compare databases that differ in one point; with a population, only where both have positive probability."""

        def person(i: int) -> _Found:
            top = low = np.moveaxis(self.log, i, -2)  # (others, v, o)
            if population is not None:
                inside = np.moveaxis(population, i, -1)[..., None] > 0
                top, low = np.where(inside, top, -np.inf), np.where(inside, low, np.inf)
            found = spread(top.max(axis=-2), low.min(axis=-2))
            *others, o = (int(k) for k in np.unravel_index(int(found.argmax()), found.shape))
            at = tuple(others)
            v, w = int(top[at][:, o].argmax()), int(low[at][:, o].argmin())
            first, second = (*others[:i], v, *others[i:]), (*others[:i], w, *others[i:])
            return float(found[(*others, o)]), self._between(first, second, o)

        return _worst(range(self.n), person)

    def all_pairs(self, only: int | None = None) -> Comparison:
        """Compare any two databases that differ in the person's point, the others arbitrary; of one person ``only``."""

        def person(i: int) -> _Found:
            logs = np.moveaxis(self.log, i, 0)
            rest = logs.shape[1:-1]
            flat = logs.reshape(logs.shape[0], -1, logs.shape[-1])  # (v, others, o)
            high, low = flat.max(axis=1), flat.min(axis=1)
            best: _Found = (0.0, None)
            for v, w in ((v, w) for v in range(len(flat)) for w in range(len(flat)) if v != w):
                found = spread(high[v], low[w])
                o = int(found.argmax())
                if found[o] > best[0]:
                    d = np.unravel_index(int(flat[v, :, o].argmax()), rest)
                    e = np.unravel_index(int(flat[w, :, o].argmin()), rest)
                    best = float(found[o]), self._between((*d[:i], v, *d[i:]), (*e[:i], w, *e[i:]), o)
            return best

        return _worst(range(self.n) if only is None else [only], person)

    def near_or_far(self) -> Comparison:
        """Compare databases that differ in exactly one point or in at least three: Definition 4 as printed.

        Pairwise conditional independence allows two-point populations on databases at distance 1 or >= 3, but not 2.
        """
        databases = np.stack([axis.ravel() for axis in np.indices(self.log.shape[:-1])], axis=1)
        logs = self.log.reshape(len(databases), -1)

        def person(i: int) -> _Found:
            best: _Found = (0.0, None)
            for o, column in enumerate(logs.T):
                for d in np.argsort(-column):  # from the most likely down, until no partner could beat the best
                    if spread(column[d], column.min()) <= best[0]:
                        break
                    distance = (databases != databases[d]).sum(axis=1)
                    allowed = ((distance == 1) | (distance >= 3)) & (databases[:, i] != databases[d, i])
                    if not allowed.any():
                        continue
                    e = int(np.where(allowed, column, np.inf).argmin())
                    if (value := float(spread(column[d], column[e]))) > best[0]:
                        best = value, self._between(databases[d], databases[e], o)
            return best

        return _worst(range(self.n), person)

    def set_one(self, population: Array) -> Comparison:
        """Compare do(Di = v) with do(Di = w), the other points distributed as in the population."""

        def person(i: int) -> _Found:
            others = log_of(population.sum(axis=i).ravel())
            logs = np.moveaxis(self.log, i, 0).reshape(self.log.shape[i], others.size, -1)
            return self._within(i, np.stack([average(others, row) for row in logs]), range(self.log.shape[i]))

        return _worst(range(self.n), person)

    def see_one(self, population: Array) -> Comparison:
        """Compare conditioning on Di = v with Di = w, wherever both have positive probability."""

        def person(i: int) -> _Found:
            weights = np.moveaxis(population, i, 0).reshape(self.log.shape[i], -1)
            logs = np.moveaxis(self.log, i, 0).reshape(*weights.shape, -1)
            marginal = weights.sum(axis=1)
            seen = np.flatnonzero(marginal > 0)
            laws = [average(log_of(weights[v] / marginal[v]), logs[v]) for v in seen]
            return self._within(i, np.stack(laws), seen.tolist())

        return _worst(range(self.n), person)

    def _within(self, i: int, logs: Array, values: Sequence[int]) -> _Found:
        epsilon, (_, v, w, o) = largest_log_ratio(logs[None])
        name, labels = self.mechanism.points[i], self.mechanism.values[i]
        return epsilon, Witness(
            y={"O": self.mechanism.outputs[o]},
            x1={name: labels[values[v]]},
            x2={name: labels[values[w]]},
            probabilities=(float(np.exp(logs[v, o])), float(np.exp(logs[w, o]))),
        )

    def _between(self, first: Iterable[Any], second: Iterable[Any], o: int) -> Witness:
        d, e = tuple(map(int, first)), tuple(map(int, second))
        return Witness(
            y={"O": self.mechanism.outputs[o]},
            x1=self.mechanism.database(d),
            x2=self.mechanism.database(e),
            probabilities=(float(np.exp(self.log[(*d, o)])), float(np.exp(self.log[(*e, o)]))),
        )


def _worst(people: Iterable[int], person: Callable[[int], _Found]) -> Comparison:
    found = [person(i) for i in people]
    epsilon, witness = max(found, key=lambda one: one[0])
    return Comparison(epsilon=epsilon, persons=tuple(f[0] for f in found), witness=witness if epsilon > 0 else None)
