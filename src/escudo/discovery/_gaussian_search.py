r"""Graphs of linear effects from a correlation matrix: the penalised likelihood, and the search for its best graph.

With v(x | P) the variance that a regression of x on its parents P leaves, and n the number of rows that would say as
much without noise (``Moments.effective_rows``), a column's score is

.. math:: -\tfrac{n}{2} \ln v(x \mid P) - γ\, \tfrac{\ln n}{2}\, |P| .

It is the same for all equivalent graphs. Up to twelve columns the best graph of all is found (``_exact``); beyond, a
good one by hill climbing with perturbations. The gains of all arrows into a column are one vector: given P, an arrow
from y adds :math:`-\tfrac n2 \ln(1 - r^2)`, r the partial correlation of x and y.

**Reference.** G. Schwarz (1978), "Estimating the dimension of a model"; D. Chickering (2002), "Optimal structure
identification with greedy search", JMLR 3, for why the best score is right with enough rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._constraints import Constraints
from escudo.discovery._exact import best_graph
from escudo.discovery._local import ancestors

__all__ = ["LinearScore", "searched"]

Floats = NDArray[np.float64]
Parents = tuple[tuple[int, ...], ...]

_EXACT = 12  # columns
_MUST = 1e9  # what an arrow that is known to be there adds to the score: more than any evidence against it
_GAIN = 1e-9


class LinearScore:
    """The score of each column with any parents, under what is known.

    Args:
        matrix: The correlations.
        rows: The number of rows they are worth.
        strictness: γ; larger for fewer arrows.
        constraints: What is known of the columns.
        most_parents: The most parents of a column; 1 makes a forest, 0 leaves what is known.
    """

    def __init__(
        self,
        matrix: Floats,
        rows: float,
        *,
        strictness: float,
        constraints: Constraints,
        most_parents: int = 8,
    ):
        self._matrix, self._rows, self.most_parents = matrix, rows, most_parents
        self._penalty = strictness * math.log(max(rows, 2.0)) / 2
        self.allowed = constraints.allowed
        self.bonus = np.zeros(matrix.shape)
        for tail, head in constraints.required:
            self.bonus[tail, head] = _MUST
        for a, b in map(tuple, constraints.joined):
            self.bonus[a, b] = self.bonus[b, a] = _MUST
        self._rows_known: dict[tuple[int, frozenset[int]], Floats] = {}

    def of(self, column: int, parents: Sequence[int]) -> float:
        """Return the score of a column with these parents."""
        several = sorted(parents)
        left = self._matrix[column, column]
        if several:
            across = self._matrix[several, column]
            left -= across @ np.linalg.solve(self._matrix[np.ix_(several, several)], across)
        worth = -self._rows / 2 * math.log(max(float(left), 1e-12)) - self._penalty * len(several)
        return worth + float(self.bonus[several, column].sum())

    def gains(self, column: int, parents: frozenset[int]) -> Floats:
        """Return what each other column would add as one more parent; minus infinity where it may not be one."""
        key = (column, parents)
        if key not in self._rows_known:
            several = sorted(parents)
            matrix, across = self._matrix, self._matrix[:, several]
            along = (
                np.linalg.solve(matrix[np.ix_(several, several)], across.T) if several else np.zeros((0, len(matrix)))
            )
            left = np.maximum(np.diag(matrix) - np.einsum("ij,ji->i", across, along), 1e-12)
            shared = matrix[column] - across[column] @ along
            squared = np.clip(shared**2 / (left * left[column]), 0.0, 1 - 1e-12)
            gain = -self._rows / 2 * np.log1p(-squared) - self._penalty + self.bonus[:, column]
            gain[[column, *several]] = -math.inf
            gain[~self.allowed[:, column]] = -math.inf
            if len(several) >= self.most_parents:
                gain[gain < _MUST / 2] = -math.inf
            self._rows_known[key] = gain
        return self._rows_known[key]

    def table(self) -> Floats:
        """Return all scores at [column, parents as bits], for the exact search."""
        count = len(self._matrix)
        sets = np.arange(1 << count)
        members = (sets[:, None] >> np.arange(count)) & 1
        sizes = members.sum(axis=1)
        logs = np.zeros(1 << count)
        for size in range(1, count + 1):
            chosen = sets[sizes == size]
            places = np.argsort(-members[chosen], axis=1, kind="stable")[:, :size]
            logs[chosen] = np.linalg.slogdet(self._matrix[places[:, :, None], places[:, None, :]])[1]
        scores = np.full((count, 1 << count), -math.inf)
        for column in range(count):
            banned = sum(1 << other for other in range(count) if not self.allowed[other, column]) | 1 << column
            must = int((self.bonus[:, column] > 0).sum())
            fits = sets[(sets & banned == 0) & (sizes <= max(self.most_parents, must))]
            change = logs[fits | 1 << column] - logs[fits]
            scores[column, fits] = -self._rows / 2 * change - self._penalty * sizes[fits]
            scores[column, fits] += members[fits] @ self.bonus[:, column]
        return scores


def searched(score: LinearScore, *, rounds: int, start: Parents | None = None) -> Parents:
    """Return each column's parents in the best graph, or in a good one of many columns.

    Args:
        score: The scores.
        rounds: How many perturbations, where the search is not exact.
        start: Where climbing begins; no arrows by default.
    """
    count = len(score.allowed)
    if count <= _EXACT:
        return best_graph(score.table())
    rng = np.random.default_rng(0)  # of the search alone
    best = now = _climbed(score, [set(some) for some in start] if start else [set() for _ in range(count)])
    best_worth = now_worth = _worth(score, best)
    for _ in range(rounds):
        found = _climbed(score, _shaken(score, now, rng))
        worth = _worth(score, found)
        if worth >= now_worth:
            now, now_worth = found, worth
        if worth > best_worth + _GAIN:
            best, best_worth = found, worth
    return tuple(tuple(sorted(some)) for some in best)


def _worth(score: LinearScore, graph: list[set[int]]) -> float:
    return sum(score.of(column, sorted(parents)) for column, parents in enumerate(graph))


def _climbed(score: LinearScore, start: list[set[int]]) -> list[set[int]]:
    """Add, delete or turn the arrow that gains most, until none gains."""
    graph = [set(some) for some in start]
    while True:
        best, change = _GAIN, None
        above = ancestors(graph)  # at [a, b] whether a → b would close a cycle
        for head, parents in enumerate(graph):
            gains = np.where(above[:, head], -math.inf, score.gains(head, frozenset(parents)))
            tail = int(np.argmax(gains))
            if gains[tail] > best:
                best, change = float(gains[tail]), {head: parents | {tail}}
            for tail in parents:
                rest = parents - {tail}
                lost = -float(score.gains(head, frozenset(rest))[tail])
                if lost > best:
                    best, change = lost, {head: rest}
                turned = lost + float(score.gains(tail, frozenset(graph[tail]))[head])
                if turned > best and not any(above[other, tail] for other in rest):
                    best, change = turned, {head: rest, tail: graph[tail] | {head}}
        if change is None:
            return graph
        for head, parents in change.items():
            graph[head] = parents


def _shaken(score: LinearScore, graph: list[set[int]], rng: np.random.Generator) -> list[set[int]]:
    """Return the graph with some arrows taken out at random, apart from those that must be there."""
    arrows = [(a, b) for b, some in enumerate(graph) for a in sorted(some) if score.bonus[a, b] == 0]
    left = [set(some) for some in graph]
    if arrows:
        for place in rng.choice(len(arrows), size=min(len(arrows), max(2, len(arrows) // 6)), replace=False):
            tail, head = arrows[int(place)]
            left[head].discard(tail)
    return left
