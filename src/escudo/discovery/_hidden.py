r"""Graphs where causes may be hidden: a partial ancestral graph from the same noisy numbers that a causal graph is.

Nothing else is measured and nothing more is spent: the search reads what was released for :func:`discover`, and gives
up the assumption that no common cause of two columns is missing from the table.

**The search** is FCI by noisy evidence. Two columns start as adjacent if their evidence (``_evidence.py``; of moments,
the penalised likelihood ratio of a partial correlation) is above 0. An edge goes if given one column, or two, it is
not: columns that are adjacent to one of the two, then those on paths of common effects and triangles from them
(possible d-separation sets). One column that separates two others is tied to both at least as strongly as they are to
each other (data processing), so that others are not tried. No more columns are given than tables were measured for:
FCI that stops early keeps some edges that further columns would explain away, and what its marks say stays true
("anytime FCI").

**Marks need something seen.** With a column b between a and c, which are not adjacent, FCI asks whether b belongs to
what separates them; but where a and c hardly depend on each other at all, noise answers. So b is a common effect only
if a and c are seen to depend on each other given b (and what separated them), and it is none only if they are seen to
depend on each other without it. Where neither is seen nothing is concluded, and the marks stay circles (as in
conservative FCI). All other marks follow by Zhang's rules (``escudo.causal``).

**How sure.** The search is repeated on numbers with fresh noise and other rows drawn again, as in ``_pattern.py``, and
what came back how often becomes a probability by logistic curves: of an edge, that no measured columns explain it away;
of an arrow at b of the edge with a, that b is no cause of a; of a tail, that it is one. They were fitted once, on 600
simulated tables of 6 to 12 columns with up to three of them hidden, 2,000 to 100,000 rows and ε from 0.3 to 3
(``benchmarks/hidden_causes.py --fit``), and are measured on others (``benchmarks/results/hidden_causes.md``). A mark
less likely than ``_LEAST_MARK`` is shown as a circle: that claims nothing. So is a tail that did not come back every
time. A tail, that one column is a cause of the other, hangs on two columns not being adjacent; where hidden causes join
nearly all columns, noise hides some of their edges, and the simulated tables, which are sparse, do not show how often:
on Child, with four columns hidden, none of six such tails was true.

**Knowledge.** A stated arrow a → b says that a is a cause of b; tiers, that no column is a cause of an earlier one, not
even through others. That an arrow is forbidden says nothing of ancestry, and is refused.

**Reference.** P. Spirtes (2001), "An anytime algorithm for causal inference", AISTATS; D. Colombo, M. Maathuis, M.
Kalisch, T. Richardson (2012), "Learning high-dimensional directed acyclic graphs with latent and selection variables",
Annals of Statistics 40, for possible d-separation sets; J. Ramsey, J. Zhang, P. Spirtes (2006), "Adjacency-faithfulness
and conservative causal inference", UAI; J. Zhang (2008), see ``escudo.causal``.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.causal import (
    ARROW,
    CIRCLE,
    TAIL,
    AncestralGraph,
    CausalGraph,
    Marks,
    first_cycle,
    marks_of,
    reach,
)
from escudo.discovery._evidence import Evidence
from escudo.discovery._measurement import Floats
from escudo.discovery._pattern import REPEATS, Constraints, Edge, Parents, calibrated
from escudo.errors import InputError

STRICTNESS, SOFTER = 0.8, 0.5
"""γ of the evidence of pairs from counts, and what each column that is given multiplies it with."""

LINEAR_STRICTNESS = 1.0
"""γ of the evidence of partial correlations."""

_LEAST_EDGE = 0.5  # an edge less sure than this is not shown
_LEAST_MARK = 0.75  # a mark less sure than this is shown as a circle

# a and b of the logistic curves, and what it adds to the log-odds to have come back every time.
CURVES = {"edge": (-0.15, 0.9, 1.7), "arrow": (0.55, 0.15, 1.25), "tail": (1.8, 0.5, 0.0)}

Given = tuple[int, ...]
Dependence = Callable[[int, int, Given], float | None]
"""Evidence that two columns depend on each other given others, above 0 if they do; None where it is not known."""


# ---- evidence given other columns


def of_counts(evidence: Evidence) -> Dependence:
    """Return the dependence of columns given up to two others, from tables of counts."""
    places = {pair: number for number, pair in enumerate(itertools.combinations(range(4), 2))}

    def dependence(x: int, y: int, given: Given) -> float | None:
        if not given:
            return float(evidence.pair[x, y])
        if len(given) == 1:
            found = float(evidence.given[x, y, given[0]])
            return found if math.isfinite(found) else None
        scope = tuple(sorted((x, y, *given)))
        several = evidence.given_two.get(scope)
        if several is None:
            return None
        a, b = sorted((scope.index(x), scope.index(y)))
        return several[places[a, b]]

    return dependence


def of_correlations(matrix: Floats, rows: float) -> Dependence:
    """Return the dependence of columns given any others, from correlations that are worth so many rows."""
    price = LINEAR_STRICTNESS * math.log(max(rows, 2.0)) / 2

    def dependence(x: int, y: int, given: Given) -> float | None:
        several = [x, y, *given]
        precision = np.linalg.inv(matrix[np.ix_(several, several)])
        squared = min(float(precision[0, 1] ** 2 / (precision[0, 0] * precision[1, 1])), 1 - 1e-12)
        return -rows / 2 * math.log1p(-squared) - price

    return dependence


# ---- the search


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known beforehand, as the search uses it.

    Attributes:
        marks: Marks by (other end, end).
        joined: Pairs that are adjacent whatever the evidence says.
    """

    marks: Mapping[tuple[int, int], int]
    joined: frozenset[frozenset[int]]

    @classmethod
    def of(cls, constraints: Constraints) -> Known:
        """Return what knowledge says of ancestry: who is a cause of whom, and who is not."""
        d = len(constraints.names)
        marks = {(a, b): ARROW for a in range(d) for b in range(d) if a != b and not constraints.allowed[b, a]}
        marks.update({(b, a): TAIL for a, b in constraints.required})
        return cls(marks, constraints.joined | {frozenset(pair) for pair in constraints.required})


def check_knowledge(knowledge: CausalGraph | None) -> None:
    """Refuse knowledge that says nothing of ancestry.

    Raises:
        InputError: If it forbids arrows one by one.
    """
    if knowledge is not None and knowledge.forbidden:
        a, b = knowledge.forbidden[0]
        raise InputError(
            f"That {a} → {b} is forbidden does not say that {a!r} is no cause of {b!r} through something hidden, so "
            "with hidden causes it cannot be used. Say it by tiers, or leave it out."
        )


def find_marks(columns: int, dependence: Dependence, known: Known, *, most: int, within: Parents | None) -> Marks:
    """Return the marks of the graph that the evidence supports.

    Args:
        columns: How many.
        dependence: The evidence.
        known: What is known beforehand.
        most: The most columns that are given at once.
        within: Parents by which alone pairs may be adjacent, where three columns together say nothing: then all marks
            stay open.
    """
    search = _Search(columns, dependence, known, most)
    if within is not None:
        return marks_of((search.adjacent & _adjacent(within)).tolist(), lambda a, c, b: None, known.marks)
    search.remove(search.next_to)
    colliders = marks_of(
        search.joined(), lambda a, c, b: None if search.separates(a, c, b) else search.separates(a, c, b)
    )
    around = [_possibly_separating(colliders, x) for x in range(columns)]
    search.remove(lambda x, y: sorted((around[x] | around[y]) - {x, y}))
    return marks_of(search.joined(), search.separates, known.marks)


def _adjacent(parents: Parents) -> NDArray[np.bool_]:
    found = np.zeros((len(parents), len(parents)), dtype=np.bool_)
    for x, several in enumerate(parents):
        found[x, list(several)] = found[list(several), x] = True
    return found


class _Search:
    def __init__(self, columns: int, dependence: Dependence, known: Known, most: int):
        self._columns, self._dependence, self._known, self._most = range(columns), dependence, known, most
        self._separators: dict[frozenset[int], Given] = {}
        self.adjacent = np.zeros((columns, columns), dtype=np.bool_)
        for x, y in itertools.combinations(self._columns, 2):
            if self._seen(x, y, ()) or frozenset((x, y)) in known.joined:
                self.adjacent[x, y] = self.adjacent[y, x] = True
            else:
                self._separators[frozenset((x, y))] = ()

    def joined(self) -> list[list[bool]]:
        found: list[list[bool]] = self.adjacent.tolist()
        return found

    def next_to(self, x: int, y: int) -> list[int]:
        """Return the columns that are adjacent to one of two."""
        return [z for z in self._columns if z not in (x, y) and (self.adjacent[x, z] or self.adjacent[y, z])]

    def remove(self, near: Callable[[int, int], Iterable[int]]) -> None:
        """Take out the edges between columns that some near to them separate, fewest given first."""
        for size in range(1, self._most + 1):
            pairs = [pair for pair in itertools.combinations(self._columns, 2) if self.adjacent[pair]]
            around = {pair: list(near(*pair)) for pair in pairs if frozenset(pair) not in self._known.joined}
            for (x, y), those in around.items():
                least = 0.0
                for given in itertools.combinations(those, size):
                    if size == 1 and not self._tied(x, y, given[0]):
                        continue
                    value = self._dependence(x, y, given)
                    if value is not None and value < least:
                        least = value
                        self.adjacent[x, y] = self.adjacent[y, x] = False
                        self._separators[frozenset((x, y))] = given

    def separates(self, a: int, c: int, b: int) -> bool | None:
        """Return whether b belongs to what separates a and c, if that can be seen."""
        without = tuple(z for z in self._separators[frozenset((a, c))] if z != b)
        apart, together = (self._seen(a, c, given) for given in (without, tuple(sorted((*without, b)))))
        return None if apart == together or apart is None or together is None else apart

    def _seen(self, x: int, y: int, given: Given) -> bool | None:
        value = self._dependence(x, y, given) if len(given) <= max(self._most, 2) else None
        return None if value is None else value > 0

    def _tied(self, x: int, y: int, z: int) -> bool:
        """Return whether z is tied to both x and y at least as strongly as they are to each other."""
        own, first, second = (self._dependence(*pair, ()) for pair in ((x, y), (x, z), (y, z)))
        return own is not None and first is not None and second is not None and min(first, second) >= own


def _possibly_separating(marks: Marks, x: int) -> set[int]:
    """Return the columns on paths from x on which each column is a common effect or in a triangle with its sides."""
    steps = {(x, b) for b, mark in enumerate(marks[x]) if mark}
    waiting = list(steps)
    while waiting:
        a, b = waiting.pop()
        for c, mark in enumerate(marks[b]):
            met = marks[a][c] or (marks[a][b] == ARROW and marks[c][b] == ARROW)
            if mark and met and c not in (a, x) and (b, c) not in steps:
                steps.add((b, c))
                waiting.append((b, c))
    return {b for _, b in steps}


# ---- how sure


@dataclass(frozen=True, slots=True, eq=False)
class MarkedResult:
    """The graph to report, and how sure it is."""

    graph: AncestralGraph
    edge_confidence: dict[Edge, float]
    mark_confidence: dict[Edge, float]


def judged(names: Sequence[str], marks: Marks, again: Iterator[Marks], known: Known) -> MarkedResult:
    """Return the graph of what is sure enough, after the search was repeated on other noise and rows.

    Args:
        names: The columns.
        marks: What was found.
        again: What is found in each repeat.
        known: What was known beforehand: it is there without a confidence.
    """
    edges, seen = Counter[frozenset[int]](), Counter[tuple[int, int, int]]()
    ends = [(a, b) for a, b in itertools.permutations(range(len(names)), 2) if marks[a][b]]
    with tracking("Asking again", total=REPEATS) as advance:
        for other in itertools.islice(again, REPEATS):
            edges.update(frozenset((a, b)) for a, b in ends if a < b and other[a][b])
            seen.update((a, b, other[a][b]) for a, b in ends if other[a][b])
            advance(1)
    left = [[0] * len(names) for _ in names]
    sure: dict[Edge, float] = {}
    likely: dict[tuple[int, int], float] = {}
    for a, b in ends:
        times = edges[frozenset((a, b))]
        edge = _worth("edge", times, REPEATS)
        if edge < _LEAST_EDGE and frozenset((a, b)) not in known.joined:
            continue
        sure[min(names[a], names[b]), max(names[a], names[b])] = edge
        mark = marks[a][b]
        if mark != CIRCLE and known.marks.get((a, b)) != mark:
            came_back = seen[a, b, mark]
            likely[a, b] = _worth("arrow" if mark == ARROW else "tail", came_back, times)
            doubtful = likely[a, b] < _LEAST_MARK or (mark == TAIL and came_back < times)
            mark = CIRCLE if doubtful else mark
        left[a][b] = mark
    graph = _consistent(names, left, likely)
    shown = {(names[a], names[b]): value for (a, b), value in likely.items() if left[a][b] not in (0, CIRCLE)}
    return MarkedResult(graph, sure, shown)


def _worth(kind: str, count: int, total: int) -> float:
    a, b, always = CURVES[kind]
    return calibrated((a + always * (count == total), b), count, total)


def _consistent(names: Sequence[str], marks: Marks, likely: Mapping[tuple[int, int], float]) -> AncestralGraph:
    """Return the graph after marks that cannot all be right became circles; they do so in place.

    A tail stands with an arrow at the other end. The least likely tails go until arrows make no cycle; then the arrows
    against what the others say is a cause.
    """
    columns = range(len(names))
    for a, b in itertools.permutations(columns, 2):
        if marks[a][b] == TAIL and marks[b][a] != ARROW:
            marks[a][b] = CIRCLE

    def arrows() -> list[tuple[int, int]]:
        return [(b, a) for a, b in itertools.permutations(columns, 2) if marks[a][b] == TAIL]

    for a, b in sorted((pair for pair in likely if marks[pair[0]][pair[1]] == TAIL), key=lambda pair: likely[pair]):
        if not first_cycle((names[cause], names[effect]) for cause, effect in arrows()):
            break
        marks[a][b] = CIRCLE
    known = arrows()
    for cause in columns:
        below = reach([cause], lambda a: (b for c, b in known if c == a))
        for effect in below - {cause}:
            if marks[effect][cause] == ARROW:
                marks[effect][cause] = CIRCLE
    return AncestralGraph.from_marks(names, marks)
