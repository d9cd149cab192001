r"""Which pairs of columns are measured besides what a graph states: picked privately, round by round.

A graph made by hand leaves dependence out, and no graph leaves out all of it. So part of the budget is kept for pairs
of columns that the model, as fitted so far, gets wrong. Pairs enter the observed law and are never arrows: nothing is
claimed to cause another because the two go together.

**One plan, whatever is found.** Gaussian noise is bought in equal *units*: a table measured with m of them is released
m times, each with the same noise σ, and averaged, so that it has noise σ/√m. How many units there are, what one costs,
how many picks there are and what each costs is fixed by the schema, the graph and the budget. Only which tables they go
to is decided on the way, by what was released before: an adaptive composition of mechanisms that were settled
beforehand, which is what loss distributions bound. No number of rows is in the plan, so none has to be released or told
for it; what depends on the number of rows below takes it from the first tables.

**What is released** of a table, where neighbours have a row more or less and columns few levels, is only what smaller
tables do not say, with far less noise for the same cost (``_residuals``). Else it is all of its counts.

**A score** for each pair of columns, and for each larger table of the graph, measured before or not,

.. math:: u_t = \|c_t - \hat n\, \hat p_t\|_1 - \sqrt{2/π} \sum_{cells} \min(f_t σ_t, \hat n\, \hat p_t),

how far its counts are from the model's in l1, less what would still be missed once it is measured: noise, but in cells
that the model knows to be nearly empty no more than what is there. σ_t is the noise it would then have, together with
what it was measured before; where it was, the score is no more than the part of its noise that is taken away, of how
far it is. Smaller tables tell its sums, so that of its noise (in each direction) only the part along its own
:math:`\prod (c_i - 1)` of :math:`\prod c_i` directions stays, :math:`f_t^2 = \prod (1 - 1/c_i)`. Model, number of rows
and σ are public by then, so the score moves no further than the l1 norm of one contingency table, Δ. The exponential
mechanism picks one of them, or *none*, whose score is :math:`(Δ/ε_{pick}) \ln(\text{candidates})`, half of what the
largest of so many noises adds: nothing is measured for a score that noise alone may well have made.

**Triples.** Pairs do not say how two columns act together on a third. Where x below is small, three columns whose pairs
were all measured may be picked as one table, if it has at most 2 % of the rows as cells. Where no graph says what acts
together and residuals are released, two measured pairs are enough, since two causes may be unrelated but for what they
do together; the third pair is then measured with the triple. Measuring a triple does not take away the noise of its
columns and pairs, so that what would still be missed is, for it, :math:`\sqrt{2/π} \sqrt{\sum_s E_s^2}` over it and all
its smaller tables, with :math:`E_s = \sum_{cells} \min(f_s σ_s, \hat n\, \hat p_s)`. And there are many of them, each
of which helps few others: a triple that was not measured yet scores less by what *none* does, a public number.

**Rounds.** A pick for every fourth column (for more of them in wide tables), then everything is fitted again. Within a
round no cycle of pairs is closed: a pair between columns that a round has joined already looks wrong only until the
model is fitted again. A picked table gets its part of the units that are left, and at least m of them, m = 1 to begin
with. *None* ends the round and doubles m; three of them are the end. What is left goes to tables measured before: half
of it to those of single columns, or, where residuals are released, to whatever it helps most (``_balance``).

**How many picks** are used is a public rule of the rows: with L the noise of one table that had the whole budget, n̂
the rows and w the columns, x = L√w/n̂, and there are w·clip(0.2/√x, 0.75, 4) picks. The first 2w of them are louder
than the others: few rows need few picks that are right, many rows need many. So at a small n̂·ε hardly anything but
single columns and a few pairs is measured. Where residuals are released, L is the noise of one of those, s times as
much, s being the mean of 1 - 1/c. Tables of few cells have room for more: with y = x·r², r the mean of
√(c(c - 1)) over the columns' levels c, about the noise in the whole of a pair's table, there are up to 4w·clip(0.004/y,
1, 2), but with them no more than 128: these are faint, and enough for nearly all pairs of 16 columns, while telling
more pairs than that apart would need louder ones.

**Levels.** Once single columns are measured, neighbouring levels of ordered columns are counted together beside other
columns (``_merging``), for the noise that the first tables picked will have. Every table and score of several columns
from there on is one of groups, with as many cells as there are groups in all that is said above; the events stay what
they were, as they ask for no number of cells.

**Single columns** are always measured. Where columns have few levels, pairs of them count them as well, so that single
columns get little of the budget; where they have many (:func:`largeness`), up to 15 % of it, and so many of the units
that their mean error, :math:`\sqrt{2/π} σ c/2n̂`, is at most 0.6 %, but no more than 30 % of the budget; where their
median error is above 10 % even so, as many as bring it there, or all: who does not know the columns learns nothing from
pairs. Their mean would not do, as one column of very many levels that no units tell would keep all others from being
learnt. Where pairs are released without their columns, these get as many units as help them more than they would help
pairs (``_balance``). Those that are at one level in most rows, by what was measured of them first, are then released
together, as one vector that is short in most rows (``_together``), which is far less noisy: of forty rare yes/no
columns, single columns have half the noise for what they cost one by one.

**The number of rows**, where it is not public, is what the first tables add up to. Residuals say nothing of it, and a
column of which one level has nearly all rows is missed in nearly all by what that number is; so it gets units of its
own, as a table of one cell, while these help more than they would help a column (``_balance``).

**Columns that stay unknown.** Where tables are released whole, no pair is offered, but for those of a graph, with a
column of whose rows more than half are below its noise, :math:`\sum \min(σ, \hat n\, \hat p) > \hat n/2` over its
levels, or its groups of them. The cells of its pairs hold a row or none, which is far from whatever a model says, so
that these would be picked first; and their noise would be all that they say. By how much a column is known is public
by then.

**Guarantee.** A composition of discrete Gaussian and exponential events, shown in the plan.

**Reference.** R. McKenna, B. Mullins, D. Sheldon, G. Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data", VLDB, for rounds of picks by what the model gets wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from heapq import heapify, heapreplace
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Event, ExponentialEvent, GaussianEvent, Neighbours, Passes, Plan
from escudo.synthesis._balance import AT_A_TIME, ROWS, TOGETHER, Needed, columns_first, counted, error_of
from escudo.synthesis._estimation import Columns, NoisyTable, TableFits, margins_of, sums_of, total_of
from escudo.synthesis._laws import Conditional, Floats, draw
from escudo.synthesis._merging import Merged, merge
from escudo.synthesis._residuals import Unit
from escudo.synthesis._shares import likely_margins
from escudo.synthesis._together import (
    FEWEST,
    Lengths,
    Together,
    bins_of_lengths,
    lengths_of,
    units_for_lengths,
    usual_levels,
)
from escudo.table import CountSensitivity, PrivateTable, Schema, add_pairs, count_sensitivity, level_places

UNITS_PER_COLUMN, RESIDUALS_PER_COLUMN = 9, 18
"""Releases for each column: of whole tables, or of residuals, which say more and need not be as loud."""

FEWEST_PICKS, LOUD_PICKS, MOST_PICKS = 0.75, 2.0, 4.0
"""Picks for each column: those that are used at least, the loud ones, and all but the faint ones."""

ONE_WAYS, _MOST_ONE_WAYS = 0.15, 0.45
"""Of the budget, for single columns with many levels: at first, and with the units given to them."""

_PICKS = 0.2  # over √x
_MANY_ROWS, _WITH_FAINT = 0.004, 128  # y from which on faint picks are used, and how many picks there are with them
_TRIPLES, _FULL, _SMALL = 0.003, 0.02, 64  # x, and cells: for each row, or in any case
_ONE_WAY_ERROR, _NO_MORE = 0.006, 0.1  # of single columns: enough, and too much for anything else to be measured
_UNKNOWN = 0.5  # of the rows, below the noise of their levels: nothing is learnt of how such a column goes with others
_NONES = 3
_NONE = 0.5  # of what the largest of so many noises adds
_BATCH = 0.25  # picks for each column, before everything is fitted again
_SIMULATED, _WIDE_SIMULATED = 2**16, 2**14
_AT_ONCE = 2**20  # cells whose scores are computed together
_WIDE = 60  # columns: from here on pairs are counted by bits, and room for them is bounded, not looked for
_MOST_LEVELS = 6000  # of all columns together
_SEED = 20_220_901  # any fixed number: the same release always gives the same model

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Adaptive:
    """What may be picked and measured: public, and fixed before a row is read.

    Attributes:
        unit: One release of a table.
        units: How many there are.
        picks: What a pick costs, and how many there are, loud ones first and faint ones last.
        level: The noise of one table that had the whole budget.
        rest: What part of it the units are.
    """

    unit: Unit
    units: int
    picks: tuple[tuple[ExponentialEvent, int], ...]
    _: KW_ONLY
    level: float
    rest: float

    @property
    def plan(self) -> Plan:
        """The part of the budget tree."""
        names = ("pick a table the model gets wrong", "pick another", "pick more, where rows are many")
        return Plan(
            "what goes together",
            children=[
                *(
                    Plan(name, event, count=count, buys="dependence nobody stated")
                    for name, (event, count) in zip(names, self.picks, strict=False)
                ),
                Plan("units of noise for picked tables", self.unit.event, count=self.units, buys="several for a table"),
            ],
        )

    @property
    def events(self) -> list[tuple[GaussianEvent | ExponentialEvent, int]]:
        """Everything that may be released, each with how often."""
        return [*self.picks, (self.unit.event, self.units)]

    def passes(self, width: int) -> Passes:
        """Return how often the rows are read beside the first time, for so many columns that vary or not."""
        together = Passes(0, 1 if self.unit.inner and width >= FEWEST else 0, "columns that are released together")
        if width >= _WIDE:
            return together
        rounds = math.ceil(sum(count for _, count in self.picks) / max(round(_BATCH * width), 1))
        return Passes(0, rounds, "each round in which triples of columns may be picked") + together

    def for_columns(self, scales: Mapping[str, float], sizes: Mapping[str, int], rows: float) -> list[str]:
        """Return the single columns that get a unit, one after the other: public, once the number of rows is.

        Args:
            scales: The noise of each single column that is measured.
            sizes: Cells of each column.
            rows: The number of rows.
        """
        varying = [size for size in sizes.values() if size > 1]
        if self.unit.inner:
            unknown = {name: np.full(sizes[name], np.inf) for name in scales}
            found, least = self.columns_first(scales, unknown, unknown, rows)
            return [name for (name,) in found[:least]]
        most = math.floor((_MOST_ONE_WAYS - ONE_WAYS) * largeness(varying) / (self.rest / self.units))
        scale, given = dict(scales), list[str]()
        while len(given) < self.units and scale:
            errors = [noise * sizes[name] for name, noise in scale.items()]
            first = len(given) < most
            error, enough = (np.mean(errors), _ONE_WAY_ERROR) if first else (np.median(errors), _NO_MORE)
            if math.sqrt(2 / math.pi) * float(error) / 2 <= enough * rows:
                break
            given.append(max(scale, key=lambda name: _need(sizes[name], scale[name])))
            scale[given[-1]] = (scale[given[-1]] ** -2.0 + self.unit.scale**-2.0) ** -0.5
        return given

    def columns_first(
        self,
        scales: Mapping[str, float],
        levels: Mapping[str, Floats],
        groups: Mapping[str, Floats],
        rows: float,
        *,
        together: Together | None = None,
        off: float = 0.0,
    ) -> tuple[list[Columns], int]:
        """Return what gets a unit at most before pairs are picked, where residuals are released, and how many at least.

        Args:
            scales: The noise that is in each column so far.
            levels: What each level of each column holds; infinity where nothing is known.
            groups: The same for the groups of levels that pairs count together.
            rows: The number of rows.
            together: The columns that are released together.
            off: The noise in the number of rows; 0 where it is public.
        """
        picks = self.used_picks([each.size for each in groups.values()], rows)
        units = self.units if together is None else self.units - units_for_lengths(self.units)
        return columns_first(self.unit, units, picks, scales, levels, groups, together=together, off=off)

    def used_picks(self, sizes: Sequence[int], rows: float) -> int:
        """Return how many picks are used at most, for columns with so many levels and so many rows."""
        new = sum(1 - 1 / size for size in sizes) / len(sizes) if self.unit.inner else 1.0
        wanted = picks_wanted(self.shortage(len(sizes), rows), sizes, new=new)
        return min(sum(count for _, count in self.picks), wanted)

    def shortage(self, width: int, rows: float) -> float:
        """Return x: how few rows there are for so many columns."""
        return self.level * math.sqrt(width) / rows

    def picks_triples(self, width: int, rows: float) -> bool:
        """Return whether triples of so many columns may be picked: a public rule of the rows."""
        return width < _WIDE and self.shortage(width, rows) < _TRIPLES

    def run(
        self,
        exact: ExactCounts,
        released: Sequence[NoisyTable],
        fits: TableFits,
        purse: Purse,
        *,
        candidates: Sequence[Columns],
        advance: Callable[[int], None],
    ) -> tuple[list[NoisyTable], list[Columns], TableFits]:
        """Pick and measure.

        Args:
            exact: The private table's counts, those of ``released`` and ``candidates`` among them.
            released: What is measured already.
            fits: How laws follow from tables.
            purse: What noise is drawn from.
            candidates: What may be picked from the start: pairs, and larger tables among those that were released.
            advance: Called with the units that were used.

        Returns:
            All tables, each once, the columns of those that were not there before, and how laws follow from them now.
        """
        tables = {each.columns: each for each in average_repeats(released)}
        wider = [each for each in candidates if len(each) > 1]
        run = _Run(self, exact, fits, purse, advance, tables, wider)
        run.measure_columns()
        run.merge()
        run.leave_out_unknown()
        run.pick()
        run.use_up()
        return list(run.tables.values()), run.picked, run.fits


def stays_unknown(name: str, held: Floats, noise: Floats, merged: Merged, *, rows: float) -> bool:
    """Return whether more than half of a column's rows are below its noise: no pair with it is offered then.

    Args:
        name: The column.
        held: How many rows have each level, as far as is known.
        noise: The noise in each.
        merged: Which levels are counted together.
        rows: The number of rows.
    """
    loud = np.sqrt(merge((name,), noise**2, merged))
    return bool(np.minimum(loud, merge((name,), held, merged)).sum() > _UNKNOWN * rows)


@dataclass(eq=False, repr=False)
class _Run:
    """One run: what is measured so far and what is left to spend.

    Attributes:
        tables: What is measured so far, by its columns.
        candidates: What may be picked.
        picked: What was.
        room: Triples that were thought of, and whether there was room.
        kept: Of what is left, for what turns out to need it most.
        together: The columns that are released together; None where none are.
    """

    terms: Adaptive
    exact: ExactCounts
    fits: TableFits
    purse: Purse
    advance: Callable[[int], None]
    tables: dict[Columns, NoisyTable]
    candidates: list[Columns]
    picked: list[Columns] = field(default_factory=list)
    room: dict[Columns, bool] = field(default_factory=dict)
    kept: int = 0
    together: Together | None = None

    def __post_init__(self) -> None:
        self.left = self.terms.units
        self.columns = [name for name, size in self.fits.sizes.items() if size > 1]

    def measure_columns(self) -> None:
        """Give single columns the units they need, the neediest first."""
        scales = {name: self.tables[name,].scale for name in self.columns if (name,) in self.tables}
        for table in self.tables.values() if self.terms.unit.inner else ():
            for name, size in zip(table.columns, table.counts.shape, strict=True) if len(table.columns) > 1 else ():
                told = size / (table.counts.size * table.scale**2)
                scales[name] = (scales[name] ** -2.0 + told) ** -0.5
        sizes, rows = self.fits.sizes, self.fits.total
        if not self.terms.unit.inner:
            for name in self.terms.for_columns(scales, sizes, rows):
                self.measure((name,), 1)
            return
        tables = list(self.tables.values())
        levels = margins_of(tables, total=rows)
        noise = self.terms.unit.scale * math.sqrt(self.used_picks() / self.left)
        merged = self.fits.merging(tables, noise).merged
        groups = {name: merge((name,), levels[name], merged) for name in scales}
        self.look_at_lengths({name: levels[name] for name in scales})
        given, least = self.terms.columns_first(scales, levels, groups, rows, together=self.together, off=self.fits.off)
        few = given[:least]
        self.measure_rows(few.count(ROWS))
        for columns in few:
            if columns not in (ROWS, TOGETHER):
                self.measure(columns, 1)
        self.measure_together(few.count(TOGETHER))
        self.kept = min(len(given) - least, self.left)
        self.left -= self.kept

    def measure_rows(self, times: int) -> None:
        """Release the number of rows so many times, and average."""
        if not times:
            return
        columns, rows = ("number of rows",), np.array([self.exact[self.columns[0],].sum()])
        fresh = self.terms.unit.measure_each([(columns, rows, True)] * times, self.purse)
        known = NoisyTable(columns, np.array([float(self.fits.total)]), self.fits.off)
        total, off = total_of([known, *fresh])
        self.fits = replace(self.fits, total=max(round(total), 1), off=off)
        self.left -= times
        self.advance(times)

    def look_at_lengths(self, levels: Mapping[str, Floats]) -> None:
        """Settle which columns are released together, if any: measure how long rows of them are, where it may pay."""
        if len(self.columns) < FEWEST or not (usual := usual_levels(levels)):
            return
        unit, rows, times = self.terms.unit, self.fits.total, units_for_lengths(self.terms.units)
        lengths, bins = self.exact.lengths(usual, self.fits.sizes), bins_of_lengths(len(usual))
        asked = [(("lengths of rows",), lengths.binned(bins), True)] * times
        (seen,) = average_repeats(unit.measure_each(asked, self.purse))
        self.left -= times
        self.advance(times)
        sums, loud = sums_of(list(self.tables.values()), {})
        usually = sum(sums[name][place] + (rows - sums[name].sum()) / sums[name].size for name, place in usual.items())
        off = math.sqrt(sum(loud[name][place] ** 2 * (1 - 1 / sums[name].size) for name, place in usual.items()))
        mean = max(len(usual) - float(usually) / rows, 0.0)
        law = lengths_of(seen.counts, seen.scale, bins, mean, off / rows)
        self.together = Together.of(unit, lengths, law, units=max(self.left // 2, 1), rows=rows)

    def measure_together(self, times: int) -> None:
        """Release the columns that are released together so many times."""
        if self.together is None or not times:
            return
        for fresh in self.together.measure(times, self.fits.total, self.purse):
            (self.tables[fresh.columns],) = average_repeats([self.tables[fresh.columns], fresh])
        self.left -= times
        self.advance(times)

    def merge(self) -> None:
        """Settle which levels are counted together beside other columns, for the noise of the first tables picked."""
        units = max(self.left // self.used_picks(), 1)
        self.fits = self.fits.merging(list(self.tables.values()), self.terms.unit.scale / math.sqrt(units))
        self.exact.merge(self.fits.merged)

    def leave_out_unknown(self) -> None:
        """Offer no pair with a column that is not known, but for those that are measured anyway."""
        if self.terms.unit.inner:
            return
        sums, noise = sums_of(list(self.tables.values()), {})
        held, merged = likely_margins(sums, noise, self.fits.total), self.fits.merged
        unknown = set[str]()
        for name in sums:
            if stays_unknown(name, held[name], noise[name], merged, rows=self.fits.total):
                unknown.add(name)
        self.candidates = [each for each in self.candidates if each in self.tables or unknown.isdisjoint(each)]

    def used_picks(self) -> int:
        """Return how many picks are used at most."""
        return self.terms.used_picks([self.fits.cells[name] for name in self.columns], self.fits.total)

    def pick(self) -> None:
        """Pick and measure, round by round."""
        events = [event for event, count in self.terms.picks for _ in range(count)]
        picks = self.used_picks()
        waiting = iter(events[:picks])
        least, nones = 1, 0
        while picks and self.left and nones < _NONES and self.candidates:
            units = min(self.left, max(least, self.left // picks))
            holds = self.fits.has_room(self.picked, exactly=len(self.columns) < _WIDE)
            offered = [*filter(holds, self.candidates), *self.triples()]
            scores = self.scores(offered, units)
            ends, left = self.ends(offered), np.ones(len(offered), dtype=bool)
            unknown = np.array([each not in self.tables and self.room.get(each, False) for each in offered])
            joined: dict[str, str] = {}
            batch = _BATCH * min(max(len(self.columns) / _WIDE, 1.0), 4.0)
            for event in islice(waiting, max(round(batch * len(self.columns)), 1)):
                picks -= 1
                roots = {name: place for place, name in enumerate(self.columns)}
                group = np.array([*(roots[_root(joined, name)] for name in self.columns), -1])
                left &= (group[ends[0]] != group[ends[1]]) | (ends[1] < 0)
                places = np.flatnonzero(left)
                none = _NONE * 2 * moved(event).l1 / event.epsilon * math.log(max(places.size, 2))
                offsets = none * np.append(-1.0 * unknown[places], 1.0)
                picked = self.purse.choose(
                    np.append(scores[places], 0.0) + offsets,
                    event,
                    sensitivity=moved(event).l1,
                    purpose="pick a table",
                )
                if picked == places.size:
                    nones, least = nones + 1, 2 * least
                    break
                left[places[picked]] = False
                columns = offered[places[picked]]
                if len(columns) == 2 or self.room.get(columns, False):
                    for name in columns[1:]:
                        joined[_root(joined, name)] = _root(joined, columns[0])
                if columns not in self.tables and not self.fits.still_holds(self.picked, columns):
                    self.room[columns] = False
                    continue  # what was picked before it took its room
                units = max(least, self.left // max(picks, 1))
                for each in (*self.missing(columns), columns):
                    if self.left:
                        self.measure(each, min(self.left, units))
                if not self.left:
                    break

    def ends(self, offered: Sequence[Columns]) -> NDArray[np.int64]:
        """Return which columns are the two of each pair, by their places; -1 for those of larger tables."""
        place = {name: number for number, name in enumerate(self.columns)}
        pairs = [(place[each[0]], place[each[1]]) if len(each) == 2 else (-1, -1) for each in offered]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2).T

    def missing(self, columns: Columns) -> list[Columns]:
        """Return the pairs of a triple that may be picked that were not measured."""
        pairs = combinations(columns, 2) if self.room.get(columns, False) else ()
        return [pair for pair in pairs if pair not in self.tables and pair[::-1] not in self.tables]

    def triples(self) -> list[Columns]:
        """Return the triples that may be picked: of measured pairs, with few cells, that have room."""
        if not self.terms.picks_triples(len(self.columns), self.fits.total) or self.fits.follows_arrows:
            return []
        place = {name: number for number, name in enumerate(self.columns)}
        beside: dict[str, set[str]] = {name: set() for name in self.columns}
        for first, second in (each for each in self.tables if len(each) == 2):
            beside[first].add(second)
            beside[second].add(first)
        two = self.terms.unit.inner and all(len(each) == 1 for each in self.fits.tables)
        found = sorted(
            {
                tuple(sorted((first, second, third), key=place.__getitem__))
                for first in self.columns
                for second, third in combinations(beside[first], 2)
                if two or third in beside[second]
            },
            key=lambda triple: [place[name] for name in triple],
        )
        most, cells = max(_SMALL, _FULL * self.fits.total), self.fits.cells
        held = [set(each) for each in self.tables if len(each) > 2 and each not in self.room]
        for triple in found:
            if triple not in self.room:
                small = math.prod(cells[name] for name in triple) <= most
                apart = small and not any(each.issuperset(triple) for each in held)
                self.room[triple] = apart and self.fits.still_holds(self.picked, triple)
        kept = [triple for triple in found if self.room[triple]]
        self.exact.read(kept)
        return kept

    def use_up(self) -> None:
        """Give what is left to what was measured: half of it to single columns, or what helps most."""
        if self.terms.unit.inner:
            self.settle()
            return
        singles = Needs(each for each in self.tables.values() if len(each.columns) == 1)
        others = Needs(each for each in self.tables.values() if len(each.columns) > 1)
        for place in range(self.left):
            among = (singles if place % 2 else others) or singles or others
            columns = among.neediest
            self.measure(columns, 1)
            among.renew(self.tables[columns])

    def settle(self) -> None:
        """Give what is left, and what was kept, to what needs it most, by the model as it is now."""
        self.left, self.kept = self.left + self.kept, 0
        laws = self.fits.drawable(list(self.tables.values()), self.picked)
        drawn = draw(laws, {}, _WIDE_SIMULATED, np.random.default_rng(_SEED))
        drawn |= {name: groups[drawn[name]] for name, groups in self.fits.merged.items()}
        tables, rows = list(self.tables.values()), self.fits.total
        margins = margins_of(tables, total=rows, merged=self.fits.merged)
        unit, known, given = self.terms.unit, dict(self.tables), list[tuple[Columns, Counts, bool]]()
        together = self.together
        needed = Needed(
            tables, self.columns, drawn, self.fits.cells, margins, rows, None if together is None else (together, unit)
        )
        left, joint = self.left, 0
        while left:  # who gets a unit hangs on how loud tables are, and on no noise that is still to come
            columns = needed.neediest
            if columns == TOGETHER and together is not None:
                times = min(max(self.terms.units // AT_A_TIME, 1), left)
                joint, left = joint + times, left - times
                fresh = together.noise / math.sqrt(times)
                known |= {
                    each: replace(known[each], scale=joint_scale([known[each].scale, fresh])) for each in needed.joint
                }
                needed.renew(*(known[each] for each in needed.joint))
                continue
            table = known[columns]
            whole = stays_whole(table)
            scale = joint_scale([table.scale, unit.measured(table.counts.shape, whole=whole)])
            known[columns] = replace(table, scale=scale)
            given.append((columns, self.exact[columns], whole))
            left -= 1
            needed.renew(known[columns])
        for again in unit.measure_each(given, self.purse):
            (self.tables[again.columns],) = average_repeats([self.tables[again.columns], again])
        self.advance(len(given))
        self.left -= len(given)
        self.measure_together(joint)

    def measure(self, columns: Columns, units: int) -> None:
        """Release a table so many times, and average."""
        unit, counts, again = self.terms.unit, self.exact[columns], units
        if columns not in self.tables:
            self.picked.append(columns)
            self.tables[columns], again = unit.measure(columns, counts, self.purse), units - 1
        self.tables[columns] = measured_again(self.tables[columns], counts, unit, self.purse, times=again)
        self.left -= units
        self.advance(units)

    def scores(self, offered: Sequence[Columns], units: int) -> Floats:
        """Return how much is to be gained by measuring each of these tables with so many units."""
        laws = self.fits.drawable(list(self.tables.values()), self.picked)
        unit, cells = self.terms.unit, self.fits.cells
        noise, gain = np.empty(len(offered)), np.ones(len(offered))
        for place, each in enumerate(offered):
            table = self.tables.get(each)
            whole = table is not None and not table.inner
            precision = units / (unit.scale if whole else unit.noise(tuple(cells[name] for name in each))) ** 2
            known = 0.0 if table is None else table.scale**-2.0
            noise[place] = (precision + known) ** -0.5
            gain[place] = 1 - noise[place] * math.sqrt(known)
        smaller = {
            part: self.noise_of(part, units)
            for each in offered
            if self.room.get(each, False)
            for part in smaller_than(each)
        }
        return scores(laws, {each: self.exact[each] for each in offered}, noise, gain, self.fits, smaller)

    def noise_of(self, columns: Columns, units: int) -> float:
        """Return the noise of a column or a pair in its own directions: as it was measured, or with so many units."""
        if (table := self.tables.get(columns) or self.tables.get(columns[::-1])) is not None:
            return table.scale
        return self.terms.unit.noise(tuple(self.fits.cells[name] for name in columns)) / math.sqrt(units)


def scores(
    laws: Mapping[str, Conditional],
    exact: Mapping[Columns, Counts],
    noise: Floats,
    gain: Floats,
    fits: TableFits,
    smaller: Mapping[Columns, float] | None = None,
) -> Floats:
    """Return the score of each table: how far its counts are from the model's, less what noise would still miss.

    Args:
        laws: The model, in an order to draw rows: public.
        exact: The counts of each table: private.
        noise: What noise each would have, once it is measured: public.
        gain: And what part of its noise that takes away, at most 1: public.
        fits: How many columns there are, of what sizes, with which levels merged, and how many rows: public.
        smaller: The noise of the columns and pairs of triples, which stays when these are measured: public.

    **Sensitivity.** The l1 sensitivity of one contingency table: the model's counts and the part that is subtracted are
    the same for neighbours, and |‖c - e‖ - ‖c' - e‖| ≤ ‖c - c'‖. A part of that moves less, and the smaller of two
    numbers no further than the one of them that moves more.
    """
    width = sum(size > 1 for size in fits.sizes.values())
    simulated = _SIMULATED if width < _WIDE else _WIDE_SIMULATED
    drawn = draw(laws, {}, simulated, np.random.default_rng(_SEED))
    drawn |= {name: groups[drawn[name]] for name, groups in fits.merged.items()}
    predicted = _predicted(drawn, exact, fits.cells, width)
    shapes: dict[tuple[int, ...], list[tuple[int, Columns]]] = {}
    for place, (columns, counts) in enumerate(exact.items()):
        shapes.setdefault(counts.shape, []).append((place, columns))
    squares = {}
    for columns, loud in (smaller or {}).items():
        held = counted(drawn, columns, fits.cells).astype(np.float64) * (fits.total / simulated)
        squares[columns] = error_of(tuple(fits.cells[name] for name in columns), loud, held) ** 2
    found = np.empty(len(exact))
    for shape, listed in shapes.items():
        cells = math.prod(shape)
        stays = math.sqrt(math.prod(1 - 1 / size for size in shape))
        together = max(_AT_ONCE // cells, 1)
        for start in range(0, len(listed), together):
            places, tables = zip(*listed[start : start + together], strict=True)
            expected = predicted(tables).reshape(-1, cells) * (fits.total / simulated)
            rows = np.concatenate([exact[columns] for columns in tables]).reshape(-1, cells)
            missed = np.minimum(expected, (noise[[*places]] * stays)[:, None]).sum(axis=1)
            if len(shape) == 3 and squares:
                below = [sum(squares.get(part, 0.0) for part in smaller_than(columns)) for columns in tables]
                missed = np.sqrt(missed**2 + np.array(below))
            apart = np.abs(rows - expected).sum(axis=1)
            found[[*places]] = np.minimum(apart - math.sqrt(2 / math.pi) * missed, gain[[*places]] * apart)
    return found


def smaller_than(triple: Columns) -> list[Columns]:
    """Return the columns and the pairs of three columns."""
    return [part for size in (1, 2) for part in combinations(triple, size)]


def picks_wanted(shortage: float, sizes: Sequence[int], *, new: float = 1.0) -> int:
    """Return how many picks are used, given x, the levels of each column, and what part of its noise a residual has.

    >>> [picks_wanted(x, [2] * 16) for x in (0.1, 0.01, 0.001, 0.0004)], picks_wanted(0.001, [9] * 16)
    ([12, 32, 101, 128], 64)
    """
    noise = shortage * (sum(math.sqrt(size * (size - 1)) for size in sizes) / len(sizes)) ** 2
    most = MOST_PICKS * min(max(_MANY_ROWS / noise, 1.0), 2.0)
    picks = _PICKS / math.sqrt(shortage * new)
    return max(round(len(sizes) * min(max(picks, FEWEST_PICKS), most)), 1)


def faint_picks(width: int) -> int:
    """Return how many faint picks a plan has for so many columns.

    >>> faint_picks(10), faint_picks(20), faint_picks(40)
    (40, 48, 0)
    """
    most = round(MOST_PICKS * width)
    return max(min(2 * most, _WITH_FAINT) - most, 0)


def largeness(sizes: Sequence[int]) -> float:
    """Return whether columns have few levels, 0, so that pairs of them count them as well, or many, 1.

    >>> largeness([2, 2, 2]), largeness([5]), largeness([20, 2])
    (0.0, 0.5, 1.0)
    """
    return min(max((sum(sizes) / len(sizes) - 2) / 6, 0.0), 1.0)


def _predicted(
    drawn: Mapping[str, Counts], exact: Mapping[Columns, Counts], sizes: Mapping[str, int], width: int
) -> Callable[[Sequence[Columns]], Counts]:
    """Return what counts the cells of tables of one shape among drawn rows."""

    def one_by_one(tables: Sequence[Columns]) -> Counts:
        return np.concatenate([counted(drawn, columns, sizes) for columns in tables])

    pairs = [columns for columns in exact if len(columns) == 2]
    if width < _WIDE or len(pairs) < width:  # counting all pairs by bits would cost more
        return one_by_one
    named = {name: sizes[name] for name in dict.fromkeys(name for columns in pairs for name in columns)}
    start, levels = {name: place.start for name, place in level_places(named).items()}, sum(named.values())
    products = np.zeros((levels, levels), dtype=np.int64)
    add_pairs(products, [drawn[name] for name in named], list(named.values()))

    def crossed(tables: Sequence[Columns]) -> Counts:
        first, second = (
            np.array([start[columns[axis]] for columns in tables])[:, None] + np.arange(sizes[tables[0][axis]])
            for axis in (0, 1)
        )
        found: Counts = products[first[:, :, None], second[:, None, :]]
        return found

    return lambda tables: crossed(tables) if len(tables[0]) == 2 else one_by_one(tables)


def _root(joined: dict[str, str], name: str) -> str:
    """Return what stands for all columns that one is joined with."""
    while joined.setdefault(name, name) != name:
        name = joined[name]
    return name


# ---- tables


class ExactCounts:
    """Counts of a private table, for noise to be added to: read together, and each of them once."""

    def __init__(self, table: PrivateTable):
        self._table = table
        self._known: dict[Columns, Counts] = {}
        self._merged: Merged = {}
        self._grouped: dict[Columns, Counts] = {}

    def merge(self, merged: Merged) -> None:
        """Count levels together from now on, in tables of several columns."""
        self._merged, self._grouped = merged, {}

    def read(self, wanted: Iterable[Columns]) -> None:
        """Count what is not known yet of these tables, in one pass over the rows if there is anything."""
        known = self._known
        if new := [each for each in dict.fromkeys(wanted) if each not in known and each[::-1] not in known]:
            self._known |= zip(new, self._table.counts(new), strict=True)

    def __getitem__(self, columns: Columns) -> Counts:
        if columns in self._grouped:
            return self._grouped[columns]
        if columns not in self._known:
            self.read([columns])
        counts = self._known[columns] if columns in self._known else self._known[columns[::-1]].T
        if len(columns) == 1 or not self._merged or self._merged.keys().isdisjoint(columns):
            return counts
        self._grouped[columns] = merge(columns, counts, self._merged)
        return self._grouped[columns]

    def lengths(self, usual: Mapping[str, int], sizes: Mapping[str, int]) -> Lengths:
        """Return what rows hold beside usual levels, in one pass."""
        return Lengths.read(self._table, usual, sizes)

    def __repr__(self) -> str:
        return f"ExactCounts({len(self._known)} tables)"


def measure(columns: Columns, counts: Counts, event: GaussianEvent, purse: Purse) -> NoisyTable:
    """Return a table's counts with the noise that was planned for them."""
    (found,) = measure_each({columns: counts}, event, purse)
    return found


def measure_each(tables: Mapping[Columns, Counts], event: GaussianEvent, purse: Purse) -> list[NoisyTable]:
    """Return the counts of several tables, each with the noise that was planned for it."""
    noisy = purse.add_each(list(tables.values()), event, [f"table of {', '.join(columns)}" for columns in tables])
    return [
        NoisyTable(columns, np.asarray(each, dtype=np.float64), event.scale)
        for columns, each in zip(tables, noisy, strict=True)
    ]


def measured_again(table: NoisyTable, counts: Counts, unit: Unit, purse: Purse, *, times: int = 1) -> NoisyTable:
    """Return a table averaged with more releases of it: whole ones, where it is one of several columns and whole.

    Of a single column only what is beside the number of rows is measured again, where that costs less: nothing else of
    it is used, as the number of rows is fixed (``_estimation``).
    """
    fresh = unit.measure_each([(table.columns, counts, stays_whole(table))] * times, purse)
    (found,) = average_repeats([table, *fresh])
    return found


def stays_whole(table: NoisyTable) -> bool:
    """Return whether a table is released whole when it is measured again."""
    return len(table.columns) > 1 and not table.inner


def moved(between: Neighbours | Event) -> CountSensitivity:
    """Return how far one row or person moves one contingency table, between the tables of which something is stated."""
    rows = between.max_rows_per_person
    return count_sensitivity(1, relation=between.relation, unit=between.unit, max_rows_per_person=rows)


def average_repeats(tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return each table once: releases of the same columns are averaged by their precision."""
    several: dict[Columns, list[NoisyTable]] = {}
    for table in tables:
        several.setdefault(table.columns, []).append(table)
    result = []
    for columns, same in several.items():
        precision = np.array([table.scale**-2.0 for table in same])
        counts = sum(weight * table.counts for weight, table in zip(precision, same, strict=True)) / precision.sum()
        inner = all(table.inner for table in same)
        result.append(NoisyTable(columns, np.asarray(counts), joint_scale([table.scale for table in same]), inner))
    return result


def joint_scale(scales: Sequence[float]) -> float:
    """Return the noise of a table that is averaged, by their precision, of some with this noise."""
    return float(np.array([scale**-2.0 for scale in scales]).sum() ** -0.5)


class Needs:
    """Tables by how much more precision helps them: weights in the budget are as they are where √c σ³ is equal."""

    def __init__(self, tables: Iterable[NoisyTable]):
        self._waiting = [(-_need(each.counts.size, each.scale), place, each) for place, each in enumerate(tables)]
        heapify(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def neediest(self) -> Columns:
        """The table that it helps most; the first of them."""
        return self._waiting[0][2].columns

    def renew(self, table: NoisyTable) -> None:
        """Say what the neediest table has become."""
        heapreplace(self._waiting, (-_need(table.counts.size, table.scale), self._waiting[0][1], table))

    def __repr__(self) -> str:
        return f"Needs({len(self._waiting)} tables)"


def _need(cells: int, scale: float) -> float:
    return math.sqrt(cells) * scale**3


def candidate_tables(schema: Schema, tables: Sequence[Columns]) -> list[Columns]:
    """Return what may be picked: larger tables that are measured anyway, and all pairs of columns that are in none.

    Raises:
        InputError: If there are too many to count.
    """
    varying = [name for name in schema.names if schema[name].size > 1]
    if (levels := sum(schema[name].size for name in varying)) > _MOST_LEVELS:
        raise InputError(
            f"The columns have {levels:,} levels together, more than {_MOST_LEVELS:,}: counting all pairs would be too "
            "slow. Use fewer levels or bins, or generator='moments'."
        )
    larger = [each for each in tables if len(each) > 2]
    held = {frozenset(pair) for columns in larger for pair in combinations(columns, 2)}
    known = {frozenset(each): each for each in tables if len(each) == 2}
    pairs = [known.get(frozenset(pair), pair) for pair in combinations(varying, 2) if frozenset(pair) not in held]
    return [*pairs, *larger]
