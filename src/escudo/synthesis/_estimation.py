r"""From noisy tables to one law per column: first tables that agree, then conditionals, and the observed law.

**Total.** It is fixed beforehand, at what is public or at the tables' precision-weighted mean: cutting off negative
counts would otherwise raise it, and everything rare with it.

**Margins first** (:func:`margins_of`). Cells of large tables are mostly noise, and what is cut off below zero there
adds up: where columns are counted by such tables after cutting, a share of 4.8 % came out as 9.7 %. So each column is
counted before anything is cut. Every table that holds it is summed over its other columns, negative counts and all; the
sums are unbiased, with noise σ² times the cells summed, and are averaged by their precision. What is likely by them
and by what levels are like in the table, not negative and adding up to the total (``_shares``), is then *fixed*: no
cell of a larger table moves it any more.

Tables of several columns may count neighbouring levels together (``_merging``): their sums then speak for groups of
levels, and correct all levels of a group alike. Groups are what has to agree below; levels come back at its end.

**Agreement** (:func:`agreeing`). Noisy tables contradict each other where they share columns, and hold negative counts.
They are replaced by the nearest tables, in units of their noise, that could come from one set of rows: not negative,
with the fixed margins, and with equal sums over what they share,

.. math:: \min_z \sum_t \frac{\|z_t - y_t\|^2}{σ_t^2} \quad \text{subject to} \quad z_t \ge 0, \;
          \text{sums over each column fixed, over } C_s \cap C_t \text{ equal}.

A table that shares no two columns with another is settled by itself: the minimum is :math:`z = (y - \sum_a λ_a)_+` with
one number λ for each level of each column, and these are found column by column, each time exactly, until all margins
hold (coordinate ascent on the dual). What a last sweep misses is scaled away. Tables that share two columns or more are
brought together by Dykstra's algorithm: project onto one shared set of columns after the other (the mean of the tables'
sums, weighted by their precision, is spread evenly over the cells that add up to it), cut off what is negative, and
give back next time what was cut. Where the tables form loops this asks for agreement of tables in pairs only, which
hardly changes the laws (``benchmarks/estimation.py``).

**Conditionals** (:func:`laws_of`). A configuration of the parents that few people share is drawn towards the law with
one parent less, down to the column's own: :math:`p(x \mid pa) = (z(pa, x) + k\,p(x \mid pa')) / (z(pa) + k)`, with k a
tenth of the noise in a row of the table. A family that no table holds as a whole has the most even table that agrees
with them.

**The observed law** (:func:`observed_laws`). A family's table also counts how parents go together. The laws along the
arrows drop that where the graph says that parents are unrelated, and a graph made by hand says so too often. So each
column gets a second law, given columns it goes with; the product of these laws is what rows are drawn from without an
intervention. It claims no arrow. What happens under do() is said by the stated arrows (``_laws``).

*Given what.* Columns that a table holds together are joined; then one column after the other is taken out, whichever
makes the smallest table with those it is joined to, and these are joined to each other (:func:`arrange`). A column is
given what it was joined to when it went: all of these lie together in the table of one of them, so that the tables
form a junction tree. Where a table has more than ``_MAX_CELLS`` cells, or all together more than ``_MAX_TOTAL``, rows
follow the laws along the arrows. All that is public. The law is the most even one that has the agreed tables as its
sums, by iterative proportional fitting: each table in turn corrects the tree's table it lies in, and what changed is
passed on to the neighbours. Where there are few rows, no law may have them all: one table has no rows where others
together want some, and rows that are corrected to nothing come never back. Where a table is missed by a tenth of the
rows in the end, a little of each is spread as if its columns were unrelated, and the fit begins anew with corrections
that become fainter, f to the power 1/(1 + k/3) in sweep k, so that it comes to rest between the tables. Each is
followed by one to the margins, and the last sweeps are to these alone, so that they stay as they were fixed.

**Reference.** R. McKenna, D. Sheldon, G. Miklau (2019), "Graphical-model based estimation and inference for
differential privacy", ICML; W. Qardaji, W. Yang, N. Li (2014), "PriView: practical differentially private release of
marginal contingency tables", SIGMOD, for agreement by averages; J. Boyle, R. Dykstra (1986), "A method for finding
projections onto the intersection of convex sets in Hilbert spaces"; S. Lauritzen, D. Spiegelhalter (1988), "Local
computations with probabilities on graphical structures", for the tree; R. Jiroušek, S. Přeučil (1995), "On the
effective implementation of the iterative proportional fitting procedure", for the fit on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from escudo.synthesis._laws import Conditional, Floats, TableConditional
from escudo.synthesis._merging import Groups, Merged, groups_of, merge, spread
from escudo.synthesis._shares import likely_margins, shifts_of
from escudo.synthesis._structure import graph_of

Columns = tuple[str, ...]
Pair = tuple[str, str]

_SWEEPS, _FEW_SWEEPS = 500, 30
_STOP = 1e-3  # a part of the noise: no cell moves further in the last sweep
_FITS, _MISSED = 50, 1e-4  # sweeps, and what part of the rows no table is missed by in the last one
_PULL = 0.1  # a part of the noise in a row of a table
_MAX_CELLS = 2**18
_MAX_TOTAL = 2**20
_TREE_SWEEPS, _FEW_TREE_SWEEPS = 30, 6
_TREE_STOP = 1e-4  # a part of the rows: no table is missed by more in the last sweep
_CONTRADICTED = 0.1  # a part of the rows: tables that are missed by more contradict each other
_FILLED, _FIRM = 0.03, 3  # what part of them is then filled, and after how many sweeps they count for half
_LAST = 4  # sweeps, to the margins alone


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTable:
    """A released contingency table: its columns, the noisy counts, and the standard deviation of the noise.

    Of one column it has a cell for each level; of several, for each group of those that are merged (``_merging``).

    Attributes:
        columns: Its columns.
        counts: The noisy counts.
        scale: The standard deviation of the noise, in each direction that was measured.
        inner: Whether only its residual was (``_residuals``): its sums over fewer columns say nothing.
    """

    columns: Columns
    counts: Floats
    scale: float
    inner: bool = False


@dataclass(frozen=True)
class TableFits:
    """How laws follow from tables.

    Attributes:
        sizes: Cells of each column.
        parents: Each column's parents.
        tables: The columns of each table released for them.
        total: The number of rows.
        off: The noise in that; 0 where it is public.
        settled: Laws that do not come from tables, by column.
        open_arrows: Pairs (cause, effect) that nobody stated and that laws may follow.
        ordered: How many levels have an order, of the columns that have one.
        merged: The groups of the columns of which tables of several count some levels together.
    """

    sizes: Mapping[str, int]
    parents: Mapping[str, Columns]
    tables: Sequence[Columns]
    total: int
    off: float = 0.0
    settled: Mapping[str, Conditional] = field(default_factory=dict)
    open_arrows: frozenset[Pair] = frozenset()
    ordered: Mapping[str, int] = field(default_factory=dict)
    merged: Merged = field(default_factory=dict)

    @property
    def order(self) -> Columns:
        """The causal order."""
        return graph_of(self.parents).topological_order()

    @property
    def cells(self) -> dict[str, int]:
        """How many cells each column has in tables of several."""
        return {**self.sizes, **{name: int(groups[-1]) + 1 for name, groups in self.merged.items()}}

    def merging(self, tables: Sequence[NoisyTable], noise: float) -> TableFits:
        """Return the same with neighbouring levels merged from now on, for tables with this noise (``_merging``).

        A column that is in a table of several already, or that the arrows name, stays as it is.
        """
        named = {name for columns in self.tables if len(columns) > 1 for name in columns}
        named |= {name for child, several in self.parents.items() if several for name in (child, *several)}
        margins = margins_of(tables, self.total)
        groups = {
            name: groups_of(margins[name], levels, noise)
            for name, levels in self.ordered.items()
            if name in margins and name not in named
        }
        return replace(self, merged={name: each for name, each in groups.items() if each[-1] + 1 < each.size})

    def agreed(self, tables: Sequence[NoisyTable], *, roughly: bool = False) -> list[NoisyTable]:
        """Return the tables brought to agreement; roughly, where only a score is made of them."""
        return agreeing(tables, self.total, sweeps=_FEW_SWEEPS if roughly else _SWEEPS, merged=self.merged)

    def completed(self, tables: Sequence[NoisyTable]) -> list[NoisyTable]:
        """Return the tables with the sums that others say they have, where only their residuals were measured."""
        margins = margins_of(tables, total=self.total, merged=self.merged)
        return completed(tables, {name: merge((name,), margin, self.merged) for name, margin in margins.items()})

    def laws(self, agreed: Sequence[NoisyTable]) -> dict[str, Conditional]:
        """Return each column's law given its parents."""
        counted = {name: several for name, several in self.parents.items() if name not in self.settled}
        return {**laws_of(self.sizes, counted, agreed), **self.settled}

    def along(self, arrows: Iterable[Pair]) -> TableFits:
        """Return the same with more arrows that laws follow."""
        names = list(self.parents)
        more: dict[str, set[str]] = {name: set(several) for name, several in self.parents.items()}
        for cause, effect in arrows:
            more[effect].add(cause)
        return replace(self, parents={name: tuple(sorted(several, key=names.index)) for name, several in more.items()})

    def given(self, pairs: Sequence[Columns]) -> dict[str, Columns] | None:
        """Return what each column is given in the observed law, in an order to draw them; None if it has none."""
        return None if self.settled else arrange(self.sizes, [*self.tables, *pairs])

    @cached_property
    def follows_arrows(self) -> bool:
        """Whether rows follow the laws along the arrows: some come from no table, or the observed law has no room."""
        return bool(self.settled) or arrange(self.sizes, self.tables) is None

    def has_room(self, pairs: Sequence[Columns], *, exactly: bool) -> Callable[[Columns], bool]:
        """Return what says whether a table may be picked beside these pairs.

        Where rows follow the arrows, pairs are open arrows: one for each effect.
        """
        if not self.follows_arrows:
            return Room(self, pairs, exactly).holds
        taken, known = {pair[1] for pair in pairs}, set(self.tables)
        return lambda columns: columns in known or (columns in self.open_arrows and columns[1] not in taken)

    def still_holds(self, pairs: Sequence[Columns], table: Columns) -> bool:
        """Return whether one more table may be picked beside these."""
        if self.follows_arrows:
            return self.has_room(pairs, exactly=True)(table)
        return self.given([*pairs, table]) is not None

    def observed(self, agreed: Sequence[NoisyTable], pairs: Sequence[Columns]) -> dict[str, Conditional]:
        """Return the observed law of each column, in an order to draw them; nothing where the arrows say it all."""
        families = [{name, *several} for name, several in self.parents.items()]
        tables = [*self.tables, *pairs]
        if max(map(len, families)) <= 2 and all(any(family.issuperset(each) for family in families) for each in tables):
            return {}
        given = self.given(pairs)
        return {} if given is None else observed_laws(self.sizes, given, agreed)

    def drawable(self, tables: Sequence[NoisyTable], pairs: Sequence[Columns]) -> dict[str, Conditional]:
        """Return about what laws rows follow without an intervention, in an order to draw them."""
        agreed = self.agreed(tables, roughly=True)
        if self.follows_arrows:
            followed = self.along((pair[0], pair[1]) for pair in pairs)
            laws = followed.laws(agreed)
            return {name: laws[name] for name in followed.order}
        given = self.given(pairs)
        assert given is not None
        return observed_laws(self.sizes, given, agreed, sweeps=_FEW_TREE_SWEEPS)


def total_of(tables: Sequence[NoisyTable]) -> tuple[float, float]:
    """Return the number of rows that all tables together speak for, and the noise in it.

    It is the mean of their sums, weighted by precision.
    """
    weights = np.array([1 / (table.counts.size * table.scale**2) for table in tables])
    sums = np.array([table.counts.sum() for table in tables])
    return float(weights @ sums / weights.sum()), float(weights.sum() ** -0.5)


# ---- tables that agree


def margins_of(tables: Sequence[NoisyTable], total: float, merged: Merged | None = None) -> dict[str, Floats]:
    """Return how many rows have each level of each column, by all tables and by what levels are like (``_shares``).

    Args:
        tables: Noisy tables; of merged columns, one of each by itself.
        total: The number of rows.
        merged: The groups of merged columns.

    >>> one = NoisyTable(("a",), np.array([7.0, 3.0]), 1.0)
    >>> two = NoisyTable(("b", "a"), np.array([[6.0, -1.0], [3.0, 4.0]]), 1.0)
    >>> margins_of([one, two], total=10.0)["a"].round(2).tolist()
    [7.34, 2.66]
    """
    return likely_margins(*sums_of(tables, merged or {}), total)


def sums_of(tables: Sequence[NoisyTable], merged: Merged) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the counts of the levels of each column, averaged before anything is cut, and the noise in each.

    A sum of merged levels corrects each of them by the same number.

    >>> one = NoisyTable(("a",), np.array([7.0, 3.0]), 1.0)
    >>> two = NoisyTable(("b", "a"), np.array([[6.0, -1.0], [3.0, 4.0]]), 1.0)
    >>> sums, noise = sums_of([one, two], {})
    >>> sums["a"].round(2).tolist(), noise["a"].round(2).tolist()
    ([7.67, 3.0], [0.82, 0.82])
    """
    sums: dict[str, list[tuple[float, Floats]]] = {}
    for table in tables:
        for name in () if table.inner and len(table.columns) > 1 else table.columns:
            part = sums_over(table.columns, table.counts, (name,))
            sums.setdefault(name, []).append((part.size / (table.counts.size * table.scale**2), part))
    means, noise = dict[str, Floats](), dict[str, Floats]()
    for name, parts in sums.items():
        means[name], noise[name] = _with_groups(parts, merged.get(name))
    return means, noise


def weighted_mean(parts: Sequence[tuple[float, Floats]]) -> tuple[float, Floats]:
    """Return the precision of the mean of some counts, and the mean, given the precision of each."""
    precision = sum(weight for weight, _ in parts)
    return precision, np.asarray(sum(weight * part for weight, part in parts) / precision)


def _with_groups(parts: Sequence[tuple[float, Floats]], groups: Groups | None) -> tuple[Floats, Floats]:
    """Return counts of levels and the noise in each, given counts of them and of their groups: by least squares.

    A group of k levels, each with variance 1/p, is missed by its sum with variance k/p. Of what its own count, with
    precision q, differs from that sum, each level takes t = (1/p)/(k/p + 1/q) = q/(kq + p), which leaves (1 - t)/p.
    """
    precision, levels = weighted_mean([each for each in parts if groups is None or each[1].size == groups.size])
    taken: Floats = np.zeros(levels.size)
    if groups is not None and (sums := [each for each in parts if each[1].size != groups.size]):
        more, counted = weighted_mean(sums)
        taken = np.asarray((more / (more * np.bincount(groups) + precision))[groups])
        levels = levels + taken * (counted - np.bincount(groups, weights=levels))[groups]
    return levels, np.sqrt((1 - taken) / precision)


def agreeing(
    tables: Sequence[NoisyTable], total: float, *, sweeps: int = _SWEEPS, merged: Merged | None = None
) -> list[NoisyTable]:
    """Return the nearest tables that hold nothing negative, have the fixed margins, and agree on what they share.

    Args:
        tables: Noisy tables, each of other columns.
        total: The number of rows.
        sweeps: How long to look for them; fewer are enough where nothing is published.
        merged: The groups of merged columns. What is returned has a cell for each level again.

    >>> one = NoisyTable(("a",), np.array([7.0, 3.0]), 1.0)
    >>> two = NoisyTable(("b", "a"), np.array([[6.0, -1.0], [3.0, 4.0]]), 1.0)
    >>> [table.counts.round(2).tolist() for table in agreeing([one, two], total=10.0)]
    [[7.34, 2.66], [[3.95, 0.0], [3.39, 2.66]]]
    """
    merged = merged or {}
    levels = margins_of(tables, total, merged)
    margins = {name: merge((name,), margin, merged) for name, margin in levels.items()}
    tables = completed(tables, margins)
    shared = _shared([table.columns for table in tables])
    joined = {place for _, holders in shared for place in holders}
    found = [t.counts if place in joined else _settled(t, margins, sweeps) for place, t in enumerate(tables)]
    together = sorted(joined)
    if together:
        _join(found, tables, together, shared, margins, sweeps)
    return [
        NoisyTable(table.columns, spread(table.columns, counts, levels, merged), table.scale)
        for table, counts in zip(tables, found, strict=True)
    ]


def completed(tables: Sequence[NoisyTable], margins: Mapping[str, Floats]) -> list[NoisyTable]:
    """Return the tables with what smaller ones say put in where only residuals were measured.

    Args:
        tables: Noisy tables, each of other columns.
        margins: How many rows each group of levels of each column has.

    Of two columns, the sums are those of the margins; of three, interactions of pairs are those of their tables.
    """
    if not any(table.inner for table in tables):
        return list(tables)
    known = {frozenset(table.columns): table for table in tables}
    found = []
    for table in tables:
        if not table.inner or len(table.columns) == 1:
            found.append(table)
            continue
        counts = table.counts
        for axes in range(len(table.columns)):
            for part in combinations(table.columns, axes):
                if (told := _own(part, known, margins)) is not None:
                    shape = [
                        size if name in part else 1 for name, size in zip(table.columns, counts.shape, strict=True)
                    ]
                    counts = counts + told.reshape(shape) * (told.size / counts.size)
        found.append(replace(table, counts=counts))
    return found


def _own(columns: Columns, known: Mapping[frozenset[str], NoisyTable], margins: Mapping[str, Floats]) -> Floats | None:
    """Return what a table says that no smaller one does, of all its cells; None where nothing is known."""
    if len(columns) == 0:
        return np.array(next(iter(margins.values())).sum())
    if len(columns) == 1:
        counts = margins[columns[0]]
    elif (table := known.get(frozenset(columns))) is not None:
        counts = table.counts.transpose([table.columns.index(name) for name in columns])
    else:
        return None
    for axis in range(counts.ndim):
        counts = counts - counts.mean(axis=axis, keepdims=True)
    return counts


def _settled(table: NoisyTable, margins: Mapping[str, Floats], sweeps: int) -> Floats:
    """Return the nearest table that has these margins and holds nothing negative."""
    wanted = [margins[name] for name in table.columns]
    if len(wanted) == 1:
        return wanted[0]
    (found,) = settled(table.counts[None], table.scale, [margin[None] for margin in wanted], sweeps)
    return np.asarray(found)


def settled(counts: Floats, scale: float, wanted: Sequence[Floats], sweeps: int) -> Floats:
    """Return the nearest tables that have these margins and hold nothing negative, each by itself.

    Args:
        counts: Noisy tables of the same columns, one after the other along the first axis.
        scale: The standard deviation of their noise.
        wanted: The margins of each table, by column.
        sweeps: How long to look for them.
    """
    several, shape = len(counts), counts.shape[1:]
    places = range(len(shape))
    along = [[several, *(-1 if other == axis else 1 for other in places)] for axis in places]
    first = [[0, 1 + axis, *(1 + other for other in places if other != axis)] for axis in places]
    shifts = [np.zeros((several, size)) for size in shape]
    close = _STOP * scale * math.prod(shape)
    unsettled = np.ones(several, dtype=bool)
    for _ in range(sweeps):
        for axis, sums in enumerate(wanted):
            rest = counts
            for other, shift in enumerate(shifts):
                if other != axis:
                    rest = rest - shift.reshape(along[other])
            rows = rest.transpose(first[axis]).reshape(several, shape[axis], -1)
            if axis == 0:
                now = np.maximum(rows - shifts[0][:, :, None], 0.0).sum(axis=2)
                unsettled &= np.abs(now - sums).sum(axis=1) > close
                if not unsettled.any():
                    break
            found = shifts_of(rows.reshape(several * shape[axis], -1), sums.ravel()).reshape(several, -1)
            shifts[axis] = np.where(unsettled[:, None], found, shifts[axis])
        if not unsettled.any():
            break
    for axis, shift in enumerate(shifts):
        counts = counts - shift.reshape(along[axis])
    counts = np.maximum(counts, 0.0)
    unsettled, least = np.ones(several, dtype=bool), _MISSED * wanted[0].sum(axis=1)
    for _ in range(_FITS):
        missed, fitted = np.zeros(several), counts
        for axis, sums in enumerate(wanted):
            now = np.add.reduce(fitted, axis=tuple(1 + other for other in places if other != axis))
            factor = np.divide(sums, now, out=np.zeros_like(now), where=now > 0)
            fitted = fitted * factor.reshape(along[axis])
            missed = np.maximum(missed, np.abs(now - sums).sum(axis=1))
        counts = np.where(unsettled.reshape(several, *(1 for _ in shape)), fitted, counts)
        unsettled &= missed > least
        if not unsettled.any():
            break
    return counts


def _join(
    found: list[Floats],
    tables: Sequence[NoisyTable],
    together: Sequence[int],
    shared: Sequence[tuple[Columns, list[int]]],
    margins: Mapping[str, Floats],
    sweeps: int,
) -> None:
    """Bring the tables that share two columns or more to agreement, in place."""
    cut = {place: np.zeros_like(found[place]) for place in together}
    alone: dict[Columns, list[int]] = {}
    for place in together:
        for name in tables[place].columns:
            alone.setdefault((name,), []).append(place)
    seen = [
        (_views(found, tables, columns, holders), margins[columns[0]] if len(columns) == 1 else None)
        for columns, holders in (*alone.items(), *shared)
    ]
    for _ in range(sweeps):
        before = {place: found[place] for place in together}
        for views, fixed in seen:
            _bring_together(found, views, fixed)
        for place in together:
            lifted = found[place] + cut[place]
            found[place] = np.maximum(lifted, 0.0)
            cut[place] = lifted - found[place]
        if all(np.abs(found[place] - before[place]).max() < _STOP * tables[place].scale for place in together):
            break


def _shared(scopes: Sequence[Columns]) -> list[tuple[Columns, list[int]]]:
    """Return the sets of two columns or more that tables share, small ones first, each with the tables that hold it.

    >>> _shared([("a", "b"), ("b", "c"), ("c", "b", "a")])
    [(('a', 'b'), [0, 2]), (('b', 'c'), [1, 2])]
    """
    holders: dict[Columns, list[int]] = {}
    for place, scope in enumerate(scopes):
        for pair in combinations(sorted(scope), 2):
            holders.setdefault(pair, []).append(place)
    sets = {
        tuple(sorted(set(scopes[one]) & set(scopes[other])))
        for places in holders.values()
        for one, other in combinations(places, 2)
    }
    listed = sorted(sets, key=lambda columns: (len(columns), columns))
    return [
        (columns, [place for place in holders[columns[0], columns[1]] if set(columns) <= set(scopes[place])])
        for columns in listed
    ]


class _View(NamedTuple):
    """A table, seen by some of its columns.

    Attributes:
        place: Which table.
        others: The axes of its other columns, which are summed over.
        order: Where each of the columns is among the axes that are left, and back: in which order these are columns.
        shape: The shape of the sums, beside the table.
        cells: How many cells of the table go into a sum.
        weight: How precise a sum is.
    """

    place: int
    others: tuple[int, ...]
    order: tuple[list[int], list[int]]
    shape: list[int]
    cells: float
    weight: float


def _views(
    found: Sequence[Floats], tables: Sequence[NoisyTable], columns: Columns, holders: Sequence[int]
) -> list[_View]:
    """Return how the tables that hold them are seen by some columns."""
    views = []
    for place in holders:
        scope = tables[place].columns
        left = [name for name in scope if name in columns]
        others = tuple(axis for axis, name in enumerate(scope) if name not in columns)
        order = [left.index(name) for name in columns], [columns.index(name) for name in left]
        shape = [size if name in columns else 1 for name, size in zip(scope, found[place].shape, strict=True)]
        cells = found[place].size / math.prod(shape)
        views.append(_View(place, others, order, shape, cells, 1 / (tables[place].scale ** 2 * cells)))
    return views


def _bring_together(found: list[Floats], views: Sequence[_View], fixed: Floats | None) -> None:
    """Project onto the tables whose sums over the columns in view are as fixed, or, where they are not, equal."""
    sums = [np.add.reduce(found[view.place], axis=view.others).transpose(view.order[0]) for view in views]
    if (common := fixed) is None:
        mean = sum(view.weight * part for view, part in zip(views, sums, strict=True))
        common = np.asarray(mean / sum(view.weight for view in views))
    for view, part in zip(views, sums, strict=True):
        change = ((common - part) / view.cells).transpose(view.order[1])
        found[view.place] = found[view.place] + change.reshape(view.shape)


def sums_over(scope: Columns, counts: Floats, columns: Columns) -> Floats:
    """Return a table summed over all but ``columns``, with axes in their order."""
    left = tuple(name for name in scope if name in columns)
    sums: Floats = np.add.reduce(counts, axis=tuple(axis for axis, name in enumerate(scope) if name not in columns))
    return sums if left == columns else sums.transpose([left.index(name) for name in columns])


def _corrected(
    scope: Columns, counts: Floats, columns: Columns, wanted: Floats, power: float = 1.0
) -> tuple[Floats, float]:
    """Return a table scaled to the sums that are wanted over some of its columns, and by how much it missed them.

    With a ``power`` below 1 it is scaled by less.
    """
    now = sums_over(scope, counts, columns)
    factor = np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
    if power < 1:
        factor = factor**power
    shape = [size if name in columns else 1 for name, size in zip(scope, counts.shape, strict=True)]
    return counts * factor.reshape(shape), float(np.abs(now - wanted).sum())


def _filled(columns: Columns, counts: Floats) -> Floats:
    """Return a table a little of which is spread as if its columns were unrelated."""
    total = max(float(counts.sum()), 1e-300)
    apart: Floats = np.array(total)
    for name in columns:
        apart = np.multiply.outer(apart, sums_over(columns, counts, (name,)) / total)
    return (1 - _FILLED) * counts + _FILLED * apart


# ---- the law of a column given its parents


def laws_of(
    sizes: Mapping[str, int], parents: Mapping[str, Columns], agreed: Sequence[NoisyTable]
) -> dict[str, TableConditional]:
    """Return each column's law given its parents, from tables that agree."""
    laws = {}
    holding: dict[str, list[NoisyTable]] = {}
    for table in agreed:
        for column in table.columns:
            holding.setdefault(column, []).append(table)
    for name, several in parents.items():
        shape = [sizes[column] for column in (*several, name)]
        if sizes[name] == 1:
            laws[name] = TableConditional(several, np.ones(shape))
            continue
        family = tuple(column for column in (*several, name) if sizes[column] > 1)
        holders = [table for table in holding.get(name, ()) if set(family) <= set(table.columns)]
        if holders:
            table = min(holders, key=lambda table: table.counts.size)
            counts = sums_over(table.columns, table.counts, family)
            scale = table.scale * math.sqrt(table.counts.size / counts.size)  # cells are added up in each cell
        else:
            counts, scale = _most_even(family, [sizes[column] for column in family], agreed)
        laws[name] = TableConditional(several, _law(counts.reshape(shape), scale))
    return laws


def _most_even(columns: Columns, shape: Sequence[int], agreed: Sequence[NoisyTable]) -> tuple[Floats, float]:
    """Return the most even table that has the sums of all others over what they share with it, and its noise.

    By iterative proportional fitting. The law in it has no more interactions between causes than tables hold.
    """
    parts: dict[Columns, NoisyTable] = {}
    for table in agreed:
        part = tuple(column for column in columns if column in table.columns)
        if part and (part not in parts or table.counts.size < parts[part].counts.size):
            parts[part] = table
    parts = {part: table for part, table in parts.items() if not any(set(part) < set(other) for other in parts)}
    wanted = {part: sums_over(table.columns, table.counts, part) for part, table in parts.items()}
    total = float(agreed[0].counts.sum())
    counts = fitted_to(columns, np.full(shape, total / math.prod(shape)), wanted, total)
    return counts, max(table.scale for table in parts.values())


def fitted_to(columns: Columns, counts: Floats, wanted: Mapping[Columns, Floats], total: float) -> Floats:
    """Return a table brought to the sums that are wanted over some of its columns, by iterative proportional fitting.

    Of all tables with these sums it is the one nearest to where it started, by relative entropy.
    """
    for _ in range(_FITS):
        missed = 0.0
        for part, sums in wanted.items():
            counts, off = _corrected(columns, counts, part, sums)
            missed = max(missed, off)
        if missed <= _MISSED * total:
            break
    return counts


def law_from(counts: Floats, scale: float) -> Floats:
    """Return p(x | parents) from a fitted table [parents..., x] and the noise in its cells."""
    return _law(counts, scale)


def _law(counts: Floats, scale: float) -> Floats:
    """Return p(x | parents) from a table [parents..., x] without negative counts, backing off one parent at a time."""
    size = counts.shape[-1]
    if counts.ndim == 1:
        total = counts.sum()
        return counts / total if total > 0 else np.full(size, 1.0 / size)
    # Leave out the first parent: its axis is summed, and with it the noise of its levels.
    backoff = _law(counts.sum(axis=0), scale * math.sqrt(counts.shape[0]))[None, ...]
    pull = _PULL * scale * math.sqrt(size)
    law: Floats = (counts + pull * backoff) / (counts.sum(axis=-1, keepdims=True) + pull)
    return law


# ---- the observed law


def arrange(sizes: Mapping[str, int], tables: Iterable[Columns]) -> dict[str, Columns] | None:
    """Return what each column is given in the observed law, in an order to draw them; None if that is too much.

    Args:
        sizes: Cells of each column.
        tables: The columns of each table.

    >>> arrange(dict.fromkeys("abc", 2), [("a", "b"), ("b", "c")])
    {'c': (), 'b': ('c',), 'a': ('b',)}
    """
    joined: dict[str, set[str]] = {name: {name} for name in sizes}
    for columns in tables:
        for name in columns:
            joined[name].update(columns)
    cells = {name: math.prod(sizes[each] for each in together) for name, together in joined.items()}
    first = {name: number for number, name in enumerate(cells)}
    waiting = [(size, first[name], name) for name, size in cells.items()]
    heapify(waiting)
    taken: list[tuple[str, set[str]]] = []
    total = 0
    while cells:
        size, _, name = heappop(waiting)
        if cells.get(name) != size:
            continue  # it has changed since, and waits as what it is now
        del cells[name]
        others = joined.pop(name) - {name}
        total += size
        if size > _MAX_CELLS or total > _MAX_TOTAL:
            return None
        taken.append((name, others))
        for other in others:
            new = others - joined[other]
            joined[other] |= new
            joined[other].remove(name)
            cells[other] = cells[other] // sizes[name] * math.prod(sizes[each] for each in new)
            heappush(waiting, (cells[other], first[other], other))
    place = {name: number for number, (name, _) in enumerate(reversed(taken))}
    return {name: tuple(sorted(others, key=place.__getitem__)) for name, others in reversed(taken)}


class Room:
    """Which pairs the observed law still has room for.

    Args:
        fits: How laws follow from tables.
        pairs: The pairs and triples that it holds already.
        exactly: Whether a pair for which no room is seen at once is tried by arranging everything anew.
    """

    def __init__(self, fits: TableFits, pairs: Sequence[Columns], exactly: bool):
        self._fits, self._pairs, self._exactly = fits, list(pairs), exactly
        given = fits.given(pairs)
        assert given is not None
        self._cliques = {name: (*several, name) for name, several in given.items()}
        self._cells = {name: math.prod(fits.sizes[each] for each in scope) for name, scope in self._cliques.items()}
        self._left = _MAX_TOTAL - sum(self._cells.values())
        self._beside: dict[str, list[str]] = {name: [] for name in given}
        self._within: dict[str, list[str]] = {name: [] for name in given}
        for name, several in given.items():
            for each in self._cliques[name]:
                self._within[each].append(name)
            if several:
                self._beside[name].append(several[-1])
                self._beside[several[-1]].append(name)
        self._reached: dict[str, set[str]] = {}
        self._known = set(fits.tables)

    def holds(self, columns: Columns) -> bool:
        """Return whether the columns have room together."""
        if len(columns) != 2 or columns in self._known:
            return True
        first, second = columns
        if second in self._reach(first) or first in self._reach(second):
            return True
        return self._exactly and self._fits.given([*self._pairs, (first, second)]) is not None

    def _reach(self, name: str) -> set[str]:
        """Return the columns that one has room with: it is put into every table on the way to them."""
        if name in self._reached:
            return self._reached[name]
        size = self._fits.sizes[name]
        reached = {each for clique in self._within[name] for each in self._cliques[clique]}
        waiting = [(0, clique) for clique in self._within[name]]
        seen = set(self._within[name])
        for spent, clique in waiting:
            for other in self._beside[clique]:
                cost = spent + self._cells[other] * (size - 1)
                if other not in seen and cost <= self._left and self._cells[other] * size <= _MAX_CELLS:
                    seen.add(other)
                    reached.update(self._cliques[other])
                    waiting.append((cost, other))
        # In another tree, there is nothing on the way.
        home = self._tree(next(iter(self._within[name])))
        reached.update(
            each for each in self._cliques if each not in home and size * self._fits.sizes[each] <= self._left
        )
        self._reached[name] = reached
        return reached

    def _tree(self, name: str) -> set[str]:
        found, waiting = {name}, [name]
        while waiting:
            for other in self._beside[waiting.pop()]:
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        return found


def observed_laws(
    sizes: Mapping[str, int],
    given: Mapping[str, Columns],
    agreed: Sequence[NoisyTable],
    *,
    sweeps: int = _TREE_SWEEPS,
) -> dict[str, Conditional]:
    """Return the observed law of each column, in an order to draw them.

    Args:
        sizes: Cells of each column.
        given: What each column is given, as :func:`arrange` said.
        agreed: The released tables, brought to agreement.
        sweeps: How often each of them corrects the law at most.
    """
    tree = _Tree(sizes, given, total=float(agreed[0].counts.sum()))
    tree.fit(agreed, sweeps)
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
        self._missed, self._power = 0.0, 1.0

    def fit(self, agreed: Sequence[NoisyTable], sweeps: int) -> None:
        """Bring the tree's tables to the sums that these tables have."""
        scopes: dict[str, list[set[str]]] = {}
        for table in agreed:
            for name in table.columns:
                scopes.setdefault(name, []).append(set(table.columns))
        within: dict[str, list[str]] = {}
        for name, columns in self._scope.items():
            for each in columns:
                within.setdefault(each, []).append(name)
        for table in agreed:
            scope, first = set(table.columns), table.columns[0]
            if not any(scope < other for other in scopes[first]):
                holders = [name for name in within[first] if scope <= set(self._scope[name])]
                holder = min(holders, key=lambda name: self.tables[name].size)
                ordered = tuple(each for each in self._scope[holder] if each in scope)
                self._wanted[holder].append((ordered, sums_over(table.columns, table.counts, ordered)))
        self._sweep_all([1.0] * sweeps)
        if self._missed > _CONTRADICTED * self._total:
            self._begin_between()
            self._sweep_all([*(1 / (1 + number / _FIRM) for number in range(sweeps)), *[0.0] * _LAST])
        for name in self._scope:  # parents come before children
            for child in self._children[name]:
                self._pass(name, child, self._scope[child][:-1])

    def _begin_between(self) -> None:
        """Begin anew with tables that have rows everywhere: no law has those that were wanted."""
        for table in self.tables.values():
            table.fill(self._total / table.size)
        for several in self._wanted.values():
            several[:] = [(columns, _filled(columns, wanted)) for columns, wanted in several]

    def _sweep_all(self, powers: Iterable[float]) -> None:
        for self._power in powers:
            self._missed = 0.0
            for tour in self._tours:
                self._sweep(tour)
            if self._missed <= _TREE_STOP * self._total:
                break

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
        scope = self._scope[name]
        for columns, wanted in self._wanted[name]:
            self.tables[name], off = _corrected(scope, self.tables[name], columns, wanted, self._power)
            self._missed = max(self._missed, off)
            for each in columns if self._power < 1 else ():
                self.tables[name], _ = _corrected(
                    scope, self.tables[name], (each,), sums_over(columns, wanted, (each,))
                )

    def _pass(self, source: str, target: str, shared: Columns) -> None:
        """Give ``target`` the sums over the shared columns that ``source`` has."""
        ordered = tuple(each for each in self._scope[target] if each in shared)
        wanted = sums_over(self._scope[source], self.tables[source], ordered)
        self.tables[target], _ = _corrected(self._scope[target], self.tables[target], ordered, wanted)
