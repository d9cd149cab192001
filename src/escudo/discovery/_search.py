r"""Search: from evidence and knowledge to the parents of each column.

**The best graph of all**, by dynamic programming over sets of columns. The best graph over a set has a column without
children in it, so :math:`V(M) = \max_{x \in M} V(M - x) + \max_{P \subseteq M - x} \mathrm{score}(x, P)`. All sets are
worked through as bits of a number, a whole layer at a time: 2^d · d² steps, a few milliseconds for ten columns and a
second for sixteen.

**A good graph over many columns**: hill climbing from several starts, with perturbations in between. One move adds,
deletes or turns an arrow, or exchanges one parent for another. The gain of every move is kept in arrays of one row per
column, and only the rows whose column got other parents are computed again. When no move gains, a few random arrows are
taken out or turned, and the climb starts again from there; the best graph is kept.

**A graph of linear effects**: the best of all or a good one likewise, by the scores of :class:`LinearScore`, which come
from correlations.

**Reference.** T. Silander, P. Myllymäki (2006), "A simple approach for finding the globally optimal Bayesian network
structure", UAI; H. Lourenço, O. Martin, T. Stützle (2003), "Iterated local search"; I. Tsamardinos, L. Brown, C.
Aliferis (2006), "The max-min hill-climbing Bayesian network structure learning algorithm", for climbing among
candidates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._evidence import Evidence
from escudo.discovery._measurement import Floats
from escudo.discovery._pattern import Constraints, Parents

_MUST = 1e12  # worth more than any evidence: what is known is there
_SEED = 9  # of the perturbations; they are public


def find_graph(
    evidence: Evidence,
    constraints: Constraints,
    *,
    rounds: int,
    explained: bool = True,
    forest: bool = False,
    start: Parents | None = None,
) -> Parents:
    """Return the parents of each column in the best graph found.

    Args:
        evidence: What was measured says.
        constraints: What is known.
        rounds: Perturbations of the local search, where there are too many columns for an exact one.
        explained: Whether to leave out edges that one other column explains.
        forest: Whether to go by pairs alone.
        start: Where the local search begins.
    """
    if forest:
        evidence = evidence.of_pairs()
    allowed = constraints.allowed.copy()
    if explained:
        allowed &= ~evidence.explained()
    bonus = np.zeros(allowed.shape)
    for a, b in constraints.required:
        allowed[a, b] = True
        bonus[a, b] = _MUST
    for pair in constraints.joined:
        a, b = sorted(pair)
        allowed[a, b] |= constraints.allowed[a, b]
        allowed[b, a] |= constraints.allowed[b, a]
        bonus[a, b] = bonus[b, a] = _MUST
    fixed = _many_required(constraints)
    for x in fixed:
        allowed[:, x] = False
    if len(allowed) <= MOST_COLUMNS:
        return best_graph(_scores(evidence, allowed, bonus, fixed))
    return good_graph(evidence, allowed, bonus, rounds, np.random.default_rng(_SEED), start, fixed)


def _many_required(constraints: Constraints) -> dict[int, tuple[int, ...]]:
    """Return the columns with more known parents than are scored: they get those and no others."""
    known: dict[int, list[int]] = {}
    for a, b in sorted(constraints.required):
        known.setdefault(b, []).append(a)
    return {x: tuple(several) for x, several in known.items() if len(several) > 2}


def _scores(evidence: Evidence, allowed: NDArray[np.bool_], bonus: Floats, fixed: dict[int, tuple[int, ...]]) -> Floats:
    """Return the score of each column with each set of parents, as bits."""
    d = len(allowed)
    scores = np.full((d, 1 << d), -math.inf)
    for x in range(d):
        if x in fixed:
            scores[x, _bits(fixed[x])] = 0.0
            continue
        may = [a for a in range(d) if allowed[a, x]]
        for count in range(min(len(may), 3) + 1):
            for parents in itertools.combinations(may, count):
                scores[x, _bits(parents)] = evidence.score(x, parents) + bonus[list(parents), x].sum()
    return scores


def _bits(columns: Sequence[int]) -> int:
    return sum(1 << a for a in columns)


# ---- the best graph of all

MOST_COLUMNS = 16


def best_graph(scores: Floats) -> tuple[tuple[int, ...], ...]:
    """Return each column's parents in a graph of the highest total score.

    Args:
        scores: At [x, m] the score of column x with the parents in the bits of m; minus infinity where not allowed.
            The best graph must have a finite score.
    """
    d = len(scores)
    sets = np.arange(1 << d)
    best = scores.copy()
    chosen = np.broadcast_to(sets, (d, 1 << d)).astype(np.int32)
    for bit in range(d):
        shape = (d, -1, 2, 1 << bit)  # the middle axis is whether the bit is set
        values, parents = best.reshape(shape), chosen.reshape(shape)
        better = values[:, :, 0] > values[:, :, 1]
        values[:, :, 1] = np.where(better, values[:, :, 0], values[:, :, 1])
        parents[:, :, 1] = np.where(better, parents[:, :, 0], parents[:, :, 1])
    total = np.full(1 << d, -np.inf)
    total[0] = 0.0
    last = np.zeros(1 << d, dtype=np.int8)
    for members in _layers(d):
        for x in range(d):
            held = members[(members >> x) & 1 == 1]
            without = held ^ (1 << x)
            value = total[without] + best[x, without]
            better = value > total[held]
            total[held] = np.where(better, value, total[held])
            last[held] = np.where(better, x, last[held])
    found: list[tuple[int, ...]] = [()] * d
    left = (1 << d) - 1
    while left:
        x = int(last[left])
        left ^= 1 << x
        bits = int(chosen[x, left])
        found[x] = tuple(column for column in range(d) if bits >> column & 1)
    return tuple(found)


def _layers(d: int) -> list[NDArray[np.int64]]:
    """Return all sets but the empty one, by how many members they have."""
    sets = np.arange(1 << d)
    members = np.zeros(1 << d, dtype=np.int64)
    for bit in range(d):
        members += sets >> bit & 1
    return [np.flatnonzero(members == count) for count in range(1, d + 1)]


# ---- a good graph over many columns

_GAIN = 1e-9
_PATIENCE = 4


def good_graph(
    evidence: Evidence,
    allowed: NDArray[np.bool_],
    bonus: Floats,
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
        self._beside: dict[tuple[int, ...], list[int]] = {}  # who is the fourth of three columns
        for scope in evidence.four:
            for place, c in enumerate(scope):
                self._beside.setdefault((*scope[:place], *scope[place + 1 :]), []).append(c)
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
                    a, b = listed
                    for c in self._beside.get(tuple(sorted((x, a, b))), ()):
                        row[c] = e.four[tuple(sorted((x, a, b, c)))] - e.triple[a, b, c]
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
    d = len(parents)
    above = [0] * d  # as bits; 0 where it is still to be found

    def visit(x: int) -> int:
        found = 1 << x
        for a in parents[x]:
            found |= above[a] or visit(a)
        above[x] = found
        return found

    for x in range(d):
        if not above[x]:
            visit(x)
    wide = (d + 7) // 8
    packed = np.frombuffer(b"".join(bits.to_bytes(wide, "little") for bits in above), dtype=np.uint8).reshape(d, wide)
    return np.unpackbits(packed, axis=1, count=d, bitorder="little").astype(np.bool_)


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


# ---- the search for a graph of linear effects

_EXACT = 12  # columns
_GIVEN = 1e9  # what an arrow that is known to be there adds to the score: more than any evidence against it


class LinearScore:
    """The score of each column with any parents, under what is known.

    Args:
        matrix: The correlations.
        rows: The number of rows they are worth.
        strictness: γ; larger for fewer arrows.
        constraints: What is known of the columns.
        most_parents: The most parents of a column; 1 makes a forest, 0 leaves what is known.
    """

    def __init__(self, matrix: Floats, rows: float, strictness: float, constraints: Constraints, most_parents: int = 8):
        self._matrix, self._rows, self.most_parents = matrix, rows, most_parents
        self._penalty = strictness * math.log(max(rows, 2.0)) / 2
        self.allowed = constraints.allowed
        self.bonus = np.zeros(matrix.shape)
        for tail, head in constraints.required:
            self.bonus[tail, head] = _GIVEN
        for a, b in map(tuple, constraints.joined):
            self.bonus[a, b] = self.bonus[b, a] = _GIVEN
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
                gain[gain < _GIVEN / 2] = -math.inf
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


def search_linear(score: LinearScore, rounds: int, start: Parents | None = None) -> Parents:
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
    best = now = _climb(score, [set(some) for some in start] if start else [set() for _ in range(count)])
    best_worth = now_worth = _worth(score, best)
    for _ in range(rounds):
        found = _climb(score, _shake(score, now, rng))
        worth = _worth(score, found)
        if worth >= now_worth:
            now, now_worth = found, worth
        if worth > best_worth + _GAIN:
            best, best_worth = found, worth
    return tuple(tuple(sorted(some)) for some in best)


def _worth(score: LinearScore, graph: list[set[int]]) -> float:
    return sum(score.of(column, sorted(parents)) for column, parents in enumerate(graph))


def _climb(score: LinearScore, start: list[set[int]]) -> list[set[int]]:
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


def _shake(score: LinearScore, graph: list[set[int]], rng: np.random.Generator) -> list[set[int]]:
    """Return the graph with some arrows taken out at random, apart from those that must be there."""
    arrows = [(a, b) for b, some in enumerate(graph) for a in sorted(some) if score.bonus[a, b] == 0]
    left = [set(some) for some in graph]
    if arrows:
        for place in rng.choice(len(arrows), size=min(len(arrows), max(2, len(arrows) // 6)), replace=False):
            tail, head = arrows[int(place)]
            left[head].discard(tail)
    return left
