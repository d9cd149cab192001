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

**A score** for each pair of columns, and for each larger table of the graph, measured before or not,

.. math:: u_t = \|c_t - \hat n\, \hat p_t\|_1 - \sqrt{2/π} \sum_{cells} \min(σ_t, \hat n\, \hat p_t),

how far its counts are from the model's in l1, less what would still be missed once it is measured: noise, but in cells
that the model knows to be nearly empty no more than what is there. σ_t is the noise it would then have, together with
what it was measured before; where it was, the score is no more than the part of its noise that is taken away, of how
far it is. Model, number of rows and σ are public by then, so the score moves no further than the l1
norm of one contingency table, Δ. The exponential mechanism picks one of them, or *none*, whose score is
:math:`(Δ/ε_{pick}) \ln(\text{candidates})`, half of what the largest of so many noises adds: nothing is measured for a
score that noise alone may well have made.

**Rounds.** A pick for every fourth column (for more of them in wide tables), then everything is fitted again. Within a
round no cycle of pairs is closed: a pair between columns that a round has joined already looks wrong only until the
model is fitted again. A picked table gets its part of the units that are left, and at least m of them, m = 1 to begin
with. *None* ends the round and doubles m; three of them are the end. What is left goes to tables measured before, half
of it to those of single columns.

**How many picks** are used is a public rule of the rows: with L the noise of one table that had the whole budget, n̂
the rows and w the columns, x = L√w/n̂, and there are w·clip(0.2/√x, 0.75, 4) picks. The first 2w of them are louder
than the others: few rows need few picks that are right, many rows need many. So at a small n̂·ε hardly anything but
single columns and a few pairs is measured.

**Single columns** are always measured. Where columns have few levels, pairs of them count them as well, so that single
columns get little of the budget; where they have many (:func:`largeness`), up to 15 % of it, and so many of the units
that their mean error, :math:`\sqrt{2/π} σ c/2n̂`, is at most 0.6 %, but no more than 30 % of the budget.

**Guarantee.** A composition of discrete Gaussian and exponential events, shown in the plan.

**Reference.** R. McKenna, B. Mullins, D. Sheldon, G. Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data", VLDB, for rounds of picks by what the model gets wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Event, ExponentialEvent, GaussianEvent, Neighbours, Plan
from escudo.synthesis._estimation import Columns, NoisyTable, Pair, TableFits
from escudo.synthesis._laws import Conditional, draw
from escudo.table import CountSensitivity, PrivateTable, Schema, count_sensitivity

UNITS_PER_COLUMN = 6
FEWEST_PICKS, LOUD_PICKS, MOST_PICKS = 0.75, 2.0, 4.0
"""Picks for each column: those that are used at least, the loud ones, and all of them."""

ONE_WAYS, _MOST_ONE_WAYS = 0.15, 0.45
"""Of the budget, for single columns with many levels: at first, and with the units given to them."""

_PICKS = 0.2  # over √x
_ONE_WAY_ERROR = 0.006
_NONES = 3
_NONE = 0.5  # of what the largest of so many noises adds
_BATCH = 0.25  # picks for each column, before everything is fitted again
_SIMULATED, _WIDE_SIMULATED = 2**16, 2**14
_WIDE = 60  # columns: from here on pairs are counted by matrix products, and room for them is bounded, not looked for
_MOST_LEVELS = 6000  # of all columns together
_SEED = 20_220_901  # any fixed number: the same release always gives the same model

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """What may be picked and measured: public, and fixed before a row is read.

    Attributes:
        unit: One release of a table.
        units: How many there are.
        picks: What a pick costs, and how many there are, loud ones first.
        level: The noise of one table that had the whole budget.
        rest: What part of it the units are.
    """

    unit: GaussianEvent
    units: int
    picks: tuple[tuple[ExponentialEvent, int], ...]
    level: float
    rest: float

    @property
    def plan(self) -> Plan:
        """The part of the budget tree."""
        names = ("pick a table the model gets wrong", "pick another")
        return Plan(
            "what goes together",
            children=[
                *(
                    Plan(name, event, count=count, buys="dependence nobody stated")
                    for name, (event, count) in zip(names, self.picks, strict=False)
                ),
                Plan("units of noise for picked tables", self.unit, count=self.units, buys="several for a table"),
            ],
        )

    @property
    def events(self) -> list[tuple[GaussianEvent | ExponentialEvent, int]]:
        """Everything that may be released, each with how often."""
        return [*self.picks, (self.unit, self.units)]

    def run(
        self,
        table: PrivateTable,
        released: Sequence[NoisyTable],
        fits: TableFits,
        purse: Purse,
        *,
        candidates: Sequence[Columns],
        advance: Callable[[int], None],
    ) -> tuple[list[NoisyTable], list[Pair]]:
        """Pick and measure.

        Args:
            table: The private table.
            released: What is measured already.
            fits: How laws follow from tables.
            purse: What noise is drawn from.
            candidates: What may be picked: pairs, and larger tables among those that were released.
            advance: Called with the units that were used.

        Returns:
            All tables, each once, and the pairs among them that were not there before.
        """
        run = _Run(self, table, released, fits, purse, candidates, advance)
        run.measure_columns()
        run.pick()
        run.use_up()
        return list(run.tables.values()), run.pairs


class _Run:
    """One run: what is measured so far and what is left to spend."""

    def __init__(
        self,
        terms: Adaptive,
        table: PrivateTable,
        released: Sequence[NoisyTable],
        fits: TableFits,
        purse: Purse,
        candidates: Sequence[Columns],
        advance: Callable[[int], None],
    ):
        self.terms, self.table, self.fits, self.purse, self.advance = terms, table, fits, purse, advance
        self.tables = {each.columns: each for each in average_repeats(released)}
        self.pairs: list[Pair] = []
        self.left = terms.units
        self.columns = [name for name, size in fits.sizes.items() if size > 1]
        self.exact = counts_of(table, dict.fromkeys([*self.tables, *candidates]))
        self.candidates = [each for each in candidates if len(each) > 1]
        self.shortage = terms.level * math.sqrt(len(self.columns)) / fits.total

    def measure_columns(self) -> None:
        """Give single columns the units they need, the neediest first."""
        singles = [(name,) for name in self.columns if (name,) in self.tables]
        unit = self.terms.rest / self.terms.units
        more = (_MOST_ONE_WAYS - ONE_WAYS) * largeness([self.fits.sizes[name] for name in self.columns])
        most = math.floor(more / unit)
        for _ in range(min(most, self.left)):
            errors = [self.tables[name].scale * self.tables[name].counts.size for name in singles]
            if not errors or math.sqrt(2 / math.pi) * float(np.mean(errors)) / 2 <= _ONE_WAY_ERROR * self.fits.total:
                break
            self.measure(neediest([self.tables[name] for name in singles]), 1)

    def pick(self) -> None:
        """Pick and measure, round by round."""
        events = [event for event, count in self.terms.picks for _ in range(count)]
        wanted = len(self.columns) * min(max(_PICKS / math.sqrt(self.shortage), FEWEST_PICKS), MOST_PICKS)
        waiting = iter(events[: max(round(wanted), 1)])
        picks = min(len(events), max(round(wanted), 1))
        least, nones = 1, 0
        while picks and self.left and nones < _NONES and self.candidates:
            units = min(self.left, max(least, self.left // picks))
            holds = self.fits.has_room(self.pairs, exactly=len(self.columns) < _WIDE)
            offered = [each for each in self.candidates if holds(each)]
            scores = self.scores(offered, units)
            joined: dict[str, str] = {}
            batch = _BATCH * min(max(len(self.columns) / _WIDE, 1.0), 4.0)
            for event in islice(waiting, max(round(batch * len(self.columns)), 1)):
                picks -= 1
                group = {name: _root(joined, name) for name in self.columns}
                offered = [each for each in offered if len(each) > 2 or group[each[0]] != group[each[1]]]
                each = [scores[columns] for columns in offered]
                none = _NONE * 2 * moved(event).l1 / event.epsilon * math.log(max(len(offered), 2))
                picked = self.purse.choose(
                    np.array([*each, none]), event, sensitivity=moved(event).l1, purpose="pick a table"
                )
                if picked == len(offered):
                    nones, least = nones + 1, 2 * least
                    break
                columns = offered.pop(picked)
                if len(columns) == 2:
                    joined[group[columns[0]]] = group[columns[1]]
                if columns not in self.tables:
                    pair = (columns[0], columns[1])
                    if not self.fits.still_holds(self.pairs, pair):
                        continue  # the pairs picked before it took its room
                    self.pairs.append(pair)
                self.measure(columns, min(self.left, max(least, self.left // max(picks, 1))))
                if not self.left:
                    break

    def use_up(self) -> None:
        """Give what is left to what was measured: half of it to single columns."""
        singles = [each for each in self.tables if len(each) == 1]
        others = [each for each in self.tables if len(each) > 1]
        for place in range(self.left):
            among = (singles if place % 2 else others) or singles or others
            self.measure(neediest([self.tables[each] for each in among]), 1)

    def measure(self, columns: Columns, units: int) -> None:
        """Release a table so many times, and average."""
        fresh = [measure(columns, self.exact[columns], self.terms.unit, self.purse) for _ in range(units)]
        known = [self.tables[columns]] if columns in self.tables else []
        (self.tables[columns],) = average_repeats([*known, *fresh])
        self.left -= units
        self.advance(units)

    def scores(self, offered: Sequence[Columns], units: int) -> dict[Columns, float]:
        """Return how much is to be gained by measuring each of these tables with so many units."""
        laws = self.fits.drawable(list(self.tables.values()), self.pairs)
        precision = units / self.terms.unit.scale**2
        known = {each: self.tables[each].scale ** -2.0 for each in offered if each in self.tables}
        noise = {each: (precision + known.get(each, 0.0)) ** -0.5 for each in offered}
        gain = {each: 1 - noise[each] * math.sqrt(known.get(each, 0.0)) for each in offered}
        exact = {each: self.exact[each] for each in offered}
        return scores(laws, exact, noise, gain, self.fits.total, len(self.columns))


def scores(
    laws: Mapping[str, Conditional],
    exact: Mapping[Columns, Counts],
    noise: Mapping[Columns, float],
    gain: Mapping[Columns, float],
    rows: float,
    width: int,
) -> dict[Columns, float]:
    """Return the score of each table: how far its counts are from the model's, less what noise would still miss.

    Args:
        laws: The model, in an order to draw rows: public.
        exact: The counts of each table: private.
        noise: What noise a table would have, once it is measured: public.
        gain: And what part of its noise that takes away, at most 1: public.
        rows: The number of rows: public.
        width: The number of columns.

    **Sensitivity.** The l1 sensitivity of one contingency table: the model's counts and the part that is subtracted are
    the same for neighbours, and |‖c - e‖ - ‖c' - e‖| ≤ ‖c - c'‖. A part of that moves less, and the smaller of two
    numbers no further than the one of them that moves more.
    """
    simulated = _SIMULATED if width < _WIDE else _WIDE_SIMULATED
    drawn = draw(laws, {}, simulated, np.random.default_rng(_SEED))
    predicted = _predicted(drawn, exact, width)
    found = {}
    for columns, counts in exact.items():
        expected = predicted(columns) * (rows / simulated)
        missed = math.sqrt(2 / math.pi) * float(np.minimum(expected, noise[columns]).sum())
        apart = float(np.abs(counts.ravel() - expected).sum())
        found[columns] = min(apart - missed, gain[columns] * apart)
    return found


def largeness(sizes: Sequence[int]) -> float:
    """Return whether columns have few levels, 0, so that pairs of them count them as well, or many, 1.

    >>> largeness([2, 2, 2]), largeness([5]), largeness([20, 2])
    (0.0, 0.5, 1.0)
    """
    return min(max((sum(sizes) / len(sizes) - 2) / 6, 0.0), 1.0)


def _predicted(
    drawn: Mapping[str, Counts], exact: Mapping[Columns, Counts], width: int
) -> Callable[[Columns], NDArray[np.int64]]:
    """Return what counts the cells of a table among drawn rows."""

    def one_by_one(columns: Columns) -> NDArray[np.int64]:
        cells = drawn[columns[0]]
        for name, size in zip(columns[1:], exact[columns].shape[1:], strict=True):
            cells = cells * size + drawn[name]
        return np.bincount(cells, minlength=exact[columns].size)

    if width < _WIDE:
        return one_by_one
    sizes: dict[str, int] = {}
    for columns, counts in exact.items():
        sizes.update(zip(columns, counts.shape, strict=True))
    starts = np.concatenate([[0], np.cumsum(list(sizes.values()))])
    place = {
        name: slice(int(start), int(start) + size) for (name, size), start in zip(sizes.items(), starts, strict=False)
    }
    products = one_hot_products([np.stack([drawn[name] for name in sizes], axis=1)], starts)
    return lambda columns: (
        products[place[columns[0]], place[columns[1]]].ravel() if len(columns) == 2 else one_by_one(columns)
    )


def _root(joined: dict[str, str], name: str) -> str:
    """Return what stands for all columns that one is joined with."""
    while joined.setdefault(name, name) != name:
        name = joined[name]
    return name


# ---- tables


def measure(columns: Columns, counts: Counts, event: GaussianEvent, purse: Purse) -> NoisyTable:
    """Return a table's counts with the noise that was planned for them."""
    noisy = purse.add(counts, event, purpose=f"table of {', '.join(columns)}")
    return NoisyTable(columns, np.asarray(noisy, dtype=np.float64), event.scale)


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
        result.append(NoisyTable(columns, np.asarray(counts), float(precision.sum() ** -0.5)))
    return result


def neediest(tables: Sequence[NoisyTable]) -> Columns:
    """Return the table that more precision helps most: weights in the budget are as they are where √c σ³ is equal."""
    return max(tables, key=lambda table: math.sqrt(table.counts.size) * table.scale**3).columns


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


def counts_of(table: PrivateTable, wanted: Iterable[Columns]) -> dict[Columns, Counts]:
    """Return the counts of each of these tables; many pairs are counted by matrix products."""
    listed = list(wanted)
    pairs = [each for each in listed if len(each) == 2]
    if len(table.schema.names) < _WIDE or not pairs:
        return dict(zip(listed, table.counts([list(each) for each in listed]), strict=True))
    others = [each for each in listed if len(each) != 2]
    found = dict(zip(others, table.counts([list(each) for each in others]), strict=True)) if others else {}
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    sizes = [table.schema[name].size for name in names]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = max(2**24 // int(starts[-1]), 256)
    products = one_hot_products(table.batches(rows, columns=names), starts)
    place = {name: slice(int(starts[i]), int(starts[i + 1])) for i, name in enumerate(names)}
    return found | {(a, b): products[place[a], place[b]] for a, b in pairs}


def one_hot_products(batches: Iterable[NDArray[Any]], starts: Counts) -> Counts:
    """Return how many rows have each pair of levels, of all columns: exact while a batch has fewer than 2²⁴ rows."""
    total = np.zeros((int(starts[-1]), int(starts[-1])), dtype=np.int64)
    for codes in batches:
        present = np.zeros((len(codes), int(starts[-1])), dtype=np.float32)
        present[np.arange(len(codes))[:, None], codes.astype(np.int64) + starts[:-1]] = 1.0
        total += np.rint(present.T @ present).astype(np.int64)
    return total
