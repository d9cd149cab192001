"""The six comparisons behind the ten definitions, for counts of exchangeable binary points: cost grows with n, not 2^n.

Databases with the same number of ones are one case, so a population is the law of that number (all databases with the
same number equally likely), and every comparison is between rows of the count table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from escudo.effects._comparisons import Comparison
from escudo.effects._effect import Witness
from escudo.effects._mechanism import CountMechanism
from escudo.effects._ratios import Array, average, largest_log_ratio, log_of, probabilities, spread
from escudo.errors import InputError

__all__ = ["CountComparisons"]


class CountComparisons:
    """Comparisons of a count mechanism; see :class:`escudo.effects._comparisons.TableComparisons` for their meaning."""

    def __init__(self, mechanism: CountMechanism) -> None:
        self.mechanism = mechanism
        self.log = mechanism.log
        self.n = mechanism.n

    def population(self, values: Any) -> Array:
        """Check a law of the number of ones."""
        population = probabilities("population", values, axis=None)
        if population.shape != (self.n + 1,):
            raise InputError(
                f"for a count mechanism, population is the law of the number of ones: {self.n + 1} probabilities; "
                f"got shape {population.shape}."
            )
        return population

    def neighbours(self, population: Array | None = None) -> Comparison:
        """Compare counts that differ by one; with a population, only where both have positive probability."""
        allowed = np.ones(self.n, dtype=bool)
        if population is not None:
            allowed = (population[1:] > 0) & (population[:-1] > 0)
        return self._rows(np.arange(self.n)[allowed], np.arange(1, self.n + 1)[allowed])

    def all_pairs(self) -> Comparison:
        """Compare any two counts."""
        return self._comparison(*largest_log_ratio(self.log[None]))

    def near_or_far(self) -> Comparison:
        """Compare counts of databases that differ in one point or in at least three: Definition 4 as printed.

        Counts c and c' belong to databases at distance h if and only if h has the parity of c - c' and
        |c - c'| <= h <= min(c + c', 2n - c - c'). So only a difference of two needs a look: distance 4 allows it.
        """
        low = np.arange(max(self.n - 1, 0))
        low = low[np.minimum(2 * low + 2, 2 * self.n - 2 * low - 2) >= 4]
        near = max(self.neighbours(), self._rows(low, low + 2), key=lambda found: found.epsilon)
        if self.n < 3:
            return near
        # A difference of three or more: each row against the extremes of all rows at least three before it.
        later = self.log[3:]
        top, bottom = np.maximum.accumulate(self.log[:-3]), np.minimum.accumulate(self.log[:-3])
        falls, rises = spread(top, np.minimum(later, top)), spread(later, np.minimum(bottom, later))
        found = np.maximum(falls, rises)
        row, o = (int(i) for i in np.unravel_index(int(found.argmax()), found.shape))
        if found[row, o] <= near.epsilon:
            return near
        before = self.log[: row + 1, o]
        pair = (int(before.argmax()), row + 3) if falls[row, o] >= rises[row, o] else (row + 3, int(before.argmin()))
        return self._comparison(float(found[row, o]), (0, *pair, o))

    def set_one(self, population: Array) -> Comparison:
        """Compare do(Di = 1) with do(Di = 0), the others distributed as in the population."""
        counts = np.arange(self.n)
        others = population[:-1] * (self.n - counts) / self.n + population[1:] * (counts + 1) / self.n
        weights = log_of(others)
        return self._values(np.stack([average(weights, self.log[:-1]), average(weights, self.log[1:])]), (0, 1))

    def see_one(self, population: Array) -> Comparison:
        """Compare conditioning on Di = 1 with Di = 0, wherever both have positive probability."""
        share = np.arange(self.n + 1) / self.n
        weights = np.stack([population * (1 - share), population * share])
        marginal = weights.sum(axis=1)
        seen = np.flatnonzero(marginal > 0)
        laws = [average(log_of(weights[v] / marginal[v]), self.log) for v in seen]
        return self._values(np.stack(laws), tuple(seen.tolist()))

    def _rows(self, first: Any, second: Any) -> Comparison:
        """Compare rows ``first[k]`` and ``second[k]``, both ways."""
        if len(first) == 0:
            return Comparison(epsilon=0.0, persons=(0.0,) * self.n, witness=None)
        epsilon, (k, one, two, o) = largest_log_ratio(np.stack([self.log[first], self.log[second]], axis=1))
        rows = (int(first[k]), int(second[k]))
        return self._comparison(epsilon, (0, rows[one], rows[two], o))

    def _comparison(self, epsilon: float, place: tuple[int, int, int, int]) -> Comparison:
        _, c1, c2, o = place
        witness = Witness(
            y={"O": self.mechanism.outputs[o]},
            x1={"count": c1},
            x2={"count": c2},
            probabilities=(float(np.exp(self.log[c1, o])), float(np.exp(self.log[c2, o]))),
        )
        return Comparison(epsilon=epsilon, persons=(epsilon,) * self.n, witness=witness if epsilon > 0 else None)

    def _values(self, logs: Array, values: tuple[int, ...]) -> Comparison:
        epsilon, (_, v, w, o) = largest_log_ratio(logs[None])
        witness = Witness(
            y={"O": self.mechanism.outputs[o]},
            x1={"D1": values[v]},
            x2={"D1": values[w]},
            probabilities=(float(np.exp(logs[v, o])), float(np.exp(logs[w, o]))),
        )
        return Comparison(epsilon=epsilon, persons=(epsilon,) * self.n, witness=witness if epsilon > 0 else None)
