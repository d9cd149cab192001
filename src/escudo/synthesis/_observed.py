r"""The observed law: what tables say of columns beyond the arrows, as a second law of each column.

A family's table also counts how parents go together. The laws along the arrows drop that where the graph says that
parents are unrelated, and a graph made by hand says so too often. So each column gets a second law, given columns it
goes with; the product of these laws is what rows are drawn from without an intervention. It claims no arrow. What
happens under do() is said by the stated arrows (``_intervention``).

**Given what.** Columns that a table holds together are joined; then one column after the other is taken out, whichever
makes the smallest table with those it is joined to, and these are joined to each other (:func:`arranged`). A column is
given what it was joined to when it went: all of these lie together in the table of one of them, so that the tables form
a junction tree. Where a table has more than ``_MAX_CELLS`` cells, or all together more than ``_MAX_TOTAL``, rows
follow the laws along the arrows. All that is public.

**Laws** (:func:`observed_laws`). The most even law that has the agreed tables as its sums, by iterative proportional
fitting: each table in turn corrects the tree's table it lies in, and what changed is passed on to the neighbours.

**Reference.** S. Lauritzen, D. Spiegelhalter (1988), "Local computations with probabilities on graphical structures",
for the tree; R. Jiroušek, S. Přeučil (1995), "On the effective implementation of the iterative proportional fitting
procedure", for the fit on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from escudo.synthesis._conditionals import Conditional, Floats, TableConditional
from escudo.synthesis._estimation import NoisyTable, sums_over

__all__ = ["Columns", "Pair", "arranged", "observed_laws"]

_MAX_CELLS = 2**18
_MAX_TOTAL = 2**20
_SWEEPS = 30
_STOP = 1e-4  # a part of the rows: no table is missed by more in the last sweep

Columns = tuple[str, ...]
Pair = tuple[str, str]


def arranged(sizes: Mapping[str, int], tables: Iterable[Columns]) -> dict[str, Columns] | None:
    """Return what each column is given in the observed law, in an order to draw them; None if that is too much.

    Args:
        sizes: Cells of each column.
        tables: The columns of each table.

    >>> arranged(dict.fromkeys("abc", 2), [("a", "b"), ("b", "c")])
    {'c': (), 'b': ('c',), 'a': ('b',)}
    """
    joined: dict[str, set[str]] = {name: {name} for name in sizes}
    for columns in tables:
        for name in columns:
            joined[name].update(columns)
    cells = {name: math.prod(sizes[each] for each in together) for name, together in joined.items()}
    taken: list[tuple[str, set[str]]] = []
    total = 0
    while cells:
        name = min(cells, key=cells.__getitem__)
        size, others = cells.pop(name), joined.pop(name) - {name}
        total += size
        if size > _MAX_CELLS or total > _MAX_TOTAL:
            return None
        taken.append((name, others))
        for other in others:
            new = others - joined[other]
            joined[other] |= new
            joined[other].remove(name)
            cells[other] = cells[other] // sizes[name] * math.prod(sizes[each] for each in new)
    place = {name: number for number, (name, _) in enumerate(reversed(taken))}
    return {name: tuple(sorted(others, key=place.__getitem__)) for name, others in reversed(taken)}


def observed_laws(
    sizes: Mapping[str, int],
    given: Mapping[str, Columns],
    agreed: Sequence[NoisyTable],
) -> dict[str, Conditional]:
    """Return the observed law of each column, in an order to draw them.

    Args:
        sizes: Cells of each column.
        given: What each column is given, as :func:`arranged` said.
        agreed: The released tables, brought to agreement.
    """
    tree = _Tree(sizes, given, total=float(agreed[0].counts.sum()))
    tree.fit(agreed)
    found: dict[str, Conditional] = {}
    for name, rows in tree.tables.items():
        seen = rows.sum(axis=-1, keepdims=True)
        # What never happens in the tables is never drawn; any law will do.
        law = np.where(seen > 0, rows / np.where(seen > 0, seen, 1.0), 1.0 / sizes[name])
        found[name] = TableConditional(given[name], law)
    return found


class _Tree:
    """A junction tree: for each column a table of it and of what it is given, its parent the last of these.

    Attributes:
        tables: The law, times the rows, of a column (last axis) and of what it is given.
    """

    def __init__(self, sizes: Mapping[str, int], given: Mapping[str, Columns], *, total: float):
        self._scope = {name: (*several, name) for name, several in given.items()}
        self._parent = {name: several[-1] for name, several in given.items() if several}
        self._children: dict[str, list[str]] = {name: [] for name in given}
        for name, parent in self._parent.items():
            self._children[parent].append(name)
        self._tours = [self._tour(name) for name in given if name not in self._parent]
        self._total = total
        shapes = {name: [sizes[each] for each in scope] for name, scope in self._scope.items()}
        self.tables = {name: np.full(shape, total / math.prod(shape)) for name, shape in shapes.items()}
        self._wanted: dict[str, list[tuple[Columns, Floats]]] = {name: [] for name in given}
        self._missed = 0.0

    def fit(self, agreed: Sequence[NoisyTable]) -> None:
        """Bring the tree's tables to the sums that these tables have."""
        scopes = [set(table.columns) for table in agreed]
        for table, scope in zip(agreed, scopes, strict=True):
            if not any(scope < other for other in scopes):
                holders = [name for name, columns in self._scope.items() if scope <= set(columns)]
                holder = min(holders, key=lambda name: self.tables[name].size)
                ordered = tuple(each for each in self._scope[holder] if each in scope)
                self._wanted[holder].append((ordered, sums_over(table.columns, table.counts, ordered)))
        for _ in range(_SWEEPS):
            self._missed = 0.0
            for tour in self._tours:
                self._sweep(tour)
            if self._missed <= _STOP * self._total:
                break
        for name in self._scope:  # parents come before children
            for child in self._children[name]:
                self._pass(name, child, self._scope[child][:-1])

    def _tour(self, root: str) -> list[str]:
        """Return the columns as a walk through a tree meets them, down every branch and back up.

        Not by recursion: a chain of a thousand columns is a tree that deep.
        """
        tour, above = list[str](), [(root, iter(self._children[root]))]
        while above:
            name, left = above[-1]
            tour.append(name)
            child = next(left, None)
            if child is None:
                above.pop()
            else:
                above.append((child, iter(self._children[child])))
        return tour

    def _sweep(self, tour: Sequence[str]) -> None:
        """Correct each table of a tree once it knows what those before it became, and tell the others on the way."""
        self._correct(tour[0])
        for source, target in pairwise(tour):
            down = self._parent.get(target) == source
            self._pass(source, target, self._scope[target if down else source][:-1])
            if down:
                self._correct(target)

    def _correct(self, name: str) -> None:
        for columns, wanted in self._wanted[name]:
            now = sums_over(self._scope[name], self.tables[name], columns)
            self._missed = max(self._missed, float(np.abs(now - wanted).sum()))
            self._scale(name, columns, now, wanted)

    def _pass(self, source: str, target: str, shared: Columns) -> None:
        """Give ``target`` the sums over the shared columns that ``source`` has."""
        ordered = tuple(each for each in self._scope[target] if each in shared)
        now, wanted = (sums_over(self._scope[each], self.tables[each], ordered) for each in (target, source))
        self._scale(target, ordered, now, wanted)

    def _scale(self, name: str, columns: Columns, now: Floats, wanted: Floats) -> None:
        factor = np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
        shape = [
            size if each in columns else 1
            for each, size in zip(self._scope[name], self.tables[name].shape, strict=True)
        ]
        self.tables[name] = self.tables[name] * factor.reshape(shape)
