"""A good graph over many columns: hill climbing from several starts, with perturbations in between.

One move adds, deletes or turns an arrow, or exchanges one parent for another. The gain of every move is kept in arrays
of one row per column, and only the rows whose column got other parents are computed again. When no move gains, a few
random arrows are taken out or turned, and the climb starts again from there; the best graph is kept.

**Reference.** H. Lourenço, O. Martin, T. Stützle (2003), "Iterated local search"; I. Tsamardinos, L. Brown, C. Aliferis
(2006), "The max-min hill-climbing Bayesian network structure learning algorithm", for climbing among candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._evidence import Evidence
from escudo.discovery._residuals import Floats

__all__ = ["ancestors", "good_graph"]

_GAIN = 1e-9
_PATIENCE = 4


def good_graph(
    evidence: Evidence,
    allowed: NDArray[np.bool_],
    bonus: Floats,
    *,
    rounds: int,
    rng: np.random.Generator,
    start: Sequence[Sequence[int]] | None = None,
    fixed: Mapping[int, Sequence[int]] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Return each column's parents, at most three, in a graph of high total score.

    Args:
        evidence: Scores of columns with up to two parents, and some with three.
        allowed: At [a, b] whether a → b may be.
        bonus: At [a, b] what a → b adds to the score by itself: large where it must be.
        rounds: How many perturbations at most; a quarter of them in vain ends it.
        rng: Where they come from.
        start: Where to begin; no arrows by default.
        fixed: Columns whose parents are not searched for.
    """
    climb = _Climb(evidence, allowed, bonus, dict(fixed or {}))
    begin = [set(several) for several in start] if start else [set() for _ in allowed]
    for x, several in (fixed or {}).items():
        begin[x] = set(several)
    best = climb.top(begin)
    best_score = climb.total(best)
    now, now_score = best, best_score
    in_vain = 0
    for _ in range(rounds):
        found = climb.top(climb.shaken(now, rng))
        score = climb.total(found)
        if score >= now_score - _GAIN:
            now, now_score = found, score
        in_vain += 1
        if score > best_score + _GAIN:
            best, best_score, in_vain = found, score, 0
        if in_vain >= max(rounds // 4, _PATIENCE):
            break
    return tuple(tuple(sorted(several)) for several in best)


class _Climb:
    def __init__(
        self, evidence: Evidence, allowed: NDArray[np.bool_], bonus: Floats, fixed: Mapping[int, Sequence[int]]
    ):
        self._evidence, self._bonus, self._fixed = evidence, bonus, fixed
        self._allowed = allowed & ~np.eye(len(allowed), dtype=np.bool_)
        self._d = len(allowed)
        self._threes: dict[tuple[int, int, int], list[tuple[int, float]]] = {}
        for scope, total in evidence.four.items():
            for x in scope:
                for c in scope:
                    if c != x:
                        a, b = (i for i in scope if i not in (x, c))
                        value = total - float(evidence.triple[a, b, c])
                        self._threes.setdefault((x, a, b), []).append((c, value))
        # Gains below what rounding leaves of large scores are none: they could go round in a circle for ever.
        largest = max(
            float(np.abs(evidence.pair[np.isfinite(evidence.pair)]).max(initial=0.0)), float(np.abs(bonus).max())
        )
        self._least = max(_GAIN, 1e-14 * largest)
        self._rows: dict[tuple[int, frozenset[int]], Floats] = {}
        self._scores: dict[tuple[int, frozenset[int]], float] = {}

    def score(self, x: int, parents: set[int] | frozenset[int]) -> float:
        key = (x, frozenset(parents))
        if key not in self._scores:
            listed = sorted(parents)
            known = 0.0 if x in self._fixed else self._evidence.score(x, listed)
            self._scores[key] = known + float(self._bonus[listed, x].sum())
        return self._scores[key]

    def total(self, graph: Sequence[set[int]]) -> float:
        return sum(self.score(x, parents) for x, parents in enumerate(graph))

    def row(self, x: int, parents: frozenset[int]) -> Floats:
        """Return the score of x with each other column as one more parent."""
        key = (x, parents)
        if key not in self._rows:
            e, listed = self._evidence, sorted(parents)
            if not listed:
                row = e.pair[x].copy()
            elif len(listed) == 1:
                row = e.triple[x, listed[0]] - e.pair[listed[0]]
            else:
                row = np.full(self._d, -math.inf)
                if len(listed) == 2:
                    for c, value in self._threes.get((x, listed[0], listed[1]), ()):
                        row[c] = value
            row = row + self._bonus[:, x] + float(self._bonus[listed, x].sum())
            row[~self._allowed[:, x]] = -math.inf
            row[[x, *listed]] = -math.inf
            self._rows[key] = row
        return self._rows[key]

    def top(self, graph: Sequence[set[int]]) -> list[set[int]]:
        """Climb until no move gains."""
        d = self._d
        parents = [set(several) for several in graph]
        scores = np.array([self.score(x, parents[x]) for x in range(d)])
        add = np.array([self.row(x, frozenset(parents[x])) for x in range(d)]) - scores[:, None]  # at [x, new parent]
        while True:
            closed = ancestors(parents).T  # at [x, a]: whether a → x makes a cycle
            best = self._best_move(parents, scores, add, closed)
            if best is None:
                return parents
            gain = sum(self.score(x, several) - scores[x] for x, several in best.items())
            if gain <= self._least:  # the two ways of computing a score differ by rounding
                return parents
            for x, several in best.items():
                parents[x] = several
                scores[x] = self.score(x, several)
                add[x] = self.row(x, frozenset(several)) - scores[x]

    def _best_move(
        self, parents: list[set[int]], scores: Floats, add: Floats, closed: NDArray[np.bool_]
    ) -> dict[int, set[int]] | None:
        open_add = np.where(closed, -math.inf, add)
        place = int(open_add.argmax())
        gain = float(open_add.flat[place])
        x, a = divmod(place, self._d)
        move: dict[int, set[int]] | None = {x: parents[x] | {a}} if gain > self._least else None
        gain = max(gain, self._least)
        for x, several in enumerate(parents):
            for a in () if x in self._fixed else several:
                rest = several - {a}
                lost = self.score(x, rest) - scores[x]
                if lost > gain:
                    gain, move = lost, {x: rest}
                turned = lost + float(add[a, x])
                if turned > gain and not _reaches(parents, a, x, rest):
                    gain, move = turned, {x: rest, a: parents[a] | {x}}
        return move or self._best_exchange(parents, scores, closed)

    def _best_exchange(
        self, parents: list[set[int]], scores: Floats, closed: NDArray[np.bool_]
    ) -> dict[int, set[int]] | None:
        """Return the best exchange of one parent for another, looked for only where no simpler move gains."""
        gain, move = self._least, None
        for x, several in enumerate(parents):
            for a in () if x in self._fixed else several:
                rest = several - {a}
                others = np.where(closed[x], -math.inf, self.row(x, frozenset(rest)) - scores[x])
                others[a] = -math.inf
                best = int(others.argmax())
                if others[best] > gain:
                    gain, move = float(others[best]), {x: rest | {best}}
        return move

    def shaken(self, graph: Sequence[set[int]], rng: np.random.Generator) -> list[set[int]]:
        """Return the graph with a few arrows taken out or turned at random, still without a cycle."""
        parents = [set(several) for several in graph]
        arrows = [(a, x) for x, several in enumerate(parents) if x not in self._fixed for a in sorted(several)]
        if not arrows:
            return parents
        few = min(len(arrows), max(2, len(arrows) // 6))
        for number in rng.choice(len(arrows), size=few, replace=False):
            a, x = arrows[number]
            parents[x].discard(a)
            turn = rng.random() < 0.5 and self._allowed[x, a] and not _reaches(parents, a, x, parents[x])
            if turn and a not in self._fixed and len(parents[a]) < 2:
                parents[a].add(x)
        return parents


def ancestors(parents: Sequence[set[int]]) -> NDArray[np.bool_]:
    """Return at [x, a] whether a is x or an ancestor of it."""
    above = np.eye(len(parents), dtype=np.bool_)
    done = [False] * len(parents)

    def visit(x: int) -> None:
        for a in parents[x]:
            if not done[a]:
                visit(a)
            above[x] |= above[a]
        done[x] = True

    for x in range(len(parents)):
        if not done[x]:
            visit(x)
    return above


def _reaches(parents: Sequence[set[int]], start: int, end: int, into_end: set[int]) -> bool:
    """Return whether a path of arrows leads from ``start`` to ``end``, which has the parents ``into_end``."""
    seen, waiting = set(into_end), list(into_end)
    while waiting:
        x = waiting.pop()
        if x == start:
            return True
        for a in parents[x] - seen:
            seen.add(a)
            waiting.append(a)
    return False
