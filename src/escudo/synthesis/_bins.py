r"""Private bins: where to cut numbers of which only bounds are known, chosen in two rounds of noisy counts.

Equal bins between public bounds say little of an income: nearly all of it is in the first one. So where a schema leaves
the bins of a column open (``bins = "private"``), a generator first finds out where the numbers are:

1. **Roughly.** The column is counted on a public grid: its bounds cut into 16 equal parts, and at half, a quarter, ...
   of the larger bound on both sides of zero, so that neither a heavy tail nor a narrow range is lost in one cell. Zero,
   the lower and the upper bound have cells of their own, too small for another number: many columns are zero for most
   rows, and values beyond the bounds are moved to them. Days are cut into equal parts only.
2. **Finely.** It is counted again between about ``FINE`` edges that are as many quantiles of what was seen, as if
   numbers were spread evenly in the cells of the grid.
3. **Tails.** The cells furthest from zero that together hold no more than noise become part of the first that does: a
   few rows of noise at a bound of millions would outweigh all others in a mean.
4. Neighbouring cells are joined until ``PRIVATE_BINS`` are left: always the two that lose least by it, in rows that are
   then put in a wrong place, in how far that is, and in rows that can no longer be told apart.

Whole numbers of which there are no more than ``FINE`` are counted one by one, in one round. How many bins there are is
public, so that what the generator measures with them, and how loudly, is settled before a row is read; only where the
edges are is found on the way. From then on they are as public as if somebody had stated them, and the model's schema
holds them.

**Shares.** ``BINS`` of the budget, as inverse variance, for all such columns together: ``_ROUGH`` of it for the first
round. The generator has the rest, and both are under one plan.

**Guarantee.** Each round is the release of one contingency table for each column, with discrete Gaussian noise of the
sensitivity of such tables: √2 for a row that is replaced, 1 for one that comes or goes, k times that for a person with
at most k rows (:func:`escudo.table.count_sensitivity` has the proof). What is counted in the second round and by the
generator depends on the rows only through what was released before: an adaptive composition, in which every event was
settled beforehand.

**Reference.** The idea of edges at noisy quantiles is old; for counts in rounds see G. Cormode, C. Procopiuc,
D. Srivastava, E. Shen, T. Yu (2012), "Differentially private spatial decompositions", ICDE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.asking import Prepared
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, GaussianEvent, Neighbours, Passes, Plan, calibrate
from escudo.synthesis._adaptive import measure
from escudo.synthesis._forecast import Forecast
from escudo.synthesis._marginals import table_event
from escudo.synthesis._model import Model
from escudo.synthesis._shares import nearest_margins
from escudo.table import PRIVATE_BINS, Numeric, PrivateTable, Schema

Floats = NDArray[np.float64]

BINS = 0.1
"""Of the budget, as inverse variance, for choosing bins."""

FINE = 64
"""About how many cells the second round counts."""

_ROUGH = 0.25  # of what choosing bins gets, for the first round
_LINEAR, _DOUBLINGS, _DAYS = 16, 20, 48
_TINY = 2.0**-40  # of the range: a cell for one number
_TAILS = np.array([1 / 4, 1 / 16]) / FINE  # quantiles at both ends
_JOINED = 0.25  # what a row that can no longer be told apart counts, against one in a wrong place
_FAR = 0.15  # and what it counts how far it is put, in parts of the typical number
_FEWEST = 2 * PRIVATE_BINS  # cells of the second round
_CLEAR = 3.0  # how often its noise a tail must hold to have bins of its own
_MOST_OUTSIDE = 0.25  # of what the fullest cell leaves, in the last bin for that reason


def with_bins(
    schema: Schema, neighbours: Neighbours, budget: Budget, prepare: Callable[[Schema, Budget], Prepared[Model]]
) -> Prepared[Model]:
    """Return what a generator prepares, with the bins chosen first that the schema leaves to it.

    Args:
        schema: The columns.
        neighbours: Between which tables the promise holds.
        budget: What bins and generator may cost together.
        prepare: How the generator prepares itself for a schema and what is left of a budget.

    Raises:
        InputError: If a training that is kept in a checkpoint would have to find its bins again.
    """
    columns = tuple(column for column in schema.fields if isinstance(column, Numeric) and column.private)
    if not columns:
        return prepare(schema, budget)
    alone = calibrate(lambda scale: table_event(neighbours, scale), budget)
    share = BINS / len(columns)
    events = {
        column.name: [
            table_event(neighbours, alone / math.sqrt(share * part))
            for part in ((1.0,) if few_numbers(column) else (_ROUGH, 1 - _ROUGH))
        ]
        for column in columns
    }
    rounds = [event for several in events.values() for event in several]
    found = prepare(schema, budget.reserving(rounds))
    if getattr(found, "checkpoint", None) is not None:
        raise InputError(
            f"bins of {', '.join(repr(column.name) for column in columns)} are left to the release, and a checkpoint "
            "would not know them; state bins or edges in the schema, or train without a checkpoint."
        )
    return PreparedBinned(schema, found, events)


@dataclass(frozen=True, slots=True)
class PreparedBinned:
    """A generator that chooses bins first: public, and fixed before a row is read.

    Attributes:
        schema: The columns, some of them without bins.
        prepared: What the generator prepared, for as many bins.
        events: The rounds of each column without bins.
    """

    schema: Schema
    prepared: Prepared[Model]
    events: Mapping[str, Sequence[GaussianEvent]]

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        plan = self.prepared.plan
        leaves = [
            Plan(
                f"{name}, {title}",
                event,
                buys=f"{cells} cells",
            )
            for name, several in self.events.items()
            for event, title, cells in _titled(self.schema[name], several)
        ]
        return Plan(plan.name, children=[Plan("private bins", children=leaves), *plan.children], delta=plan.delta)

    @property
    def passes(self) -> Passes | None:
        """How often the rows are read: once for each round, then by the generator; None where it cannot tell."""
        found: Passes | None = getattr(self.prepared, "passes", None)
        return None if found is None else Passes(max(map(len, self.events.values()))) + found

    def forecast(self, rows: int | None) -> Forecast | None:
        """Return how good the model will be in its bins, for so many rows; None where the generator cannot tell."""
        foretell = getattr(self.prepared, "forecast", None)
        return None if foretell is None else foretell(rows)

    def run(self, table: PrivateTable, purse: Purse) -> Model:
        """Choose bins, and fit the generator with them."""
        columns = choose_bins(table, self.events, purse)
        # As many cells as before: all that was prepared fits, and says the same.
        model = self.prepared.run(table.with_columns(*columns), purse)
        return replace(model, schema=self.schema.with_columns(*columns))


def _titled(column: Any, events: Sequence[GaussianEvent]) -> list[tuple[GaussianEvent, str, str]]:
    if len(events) == 1:
        return [(events[0], "number by number", f"{grid_of(column).bins:,}")]
    return [(events[0], "roughly", f"{grid_of(column).bins:,}"), (events[1], "finely", f"about {FINE}")]


# ---- where to cut


def few_numbers(column: Numeric) -> bool:
    """Return whether a column's whole numbers can be counted one by one."""
    lower, upper = column.bounds
    return column.integer and math.floor(upper) - math.ceil(lower) < FINE


def grid_of(column: Numeric) -> Numeric:
    """Return the column on the public grid of the first round.

    >>> grid_of(Numeric("income", 0, 1_000_000)).labels[1]
    '[9.09494701773e-07, 0.953674316406)'
    """
    lower, upper = column.bounds
    if few_numbers(column):
        return _cut(column, np.arange(math.ceil(lower) + 1.0, math.floor(upper) + 1.0))
    if column.date is not None:
        return _cut(column, np.ceil(np.linspace(lower, upper, _DAYS + 1)))
    largest = max(abs(lower), abs(upper))
    halves = largest * 0.5 ** np.arange(_DOUBLINGS + 1)
    linear = np.linspace(lower, upper, _LINEAR + 1)
    points = np.concatenate([linear, halves, -halves])
    if column.integer:
        return _cut(column, np.concatenate([np.ceil(points), [0.0, 1.0, lower + 1, upper - 0.5]]))
    # Nothing but zero lies in the cell of zero, but for what is as good as zero.
    tiny = (upper - lower) * _TINY
    points = points[np.abs(points) > largest * 2.0**-_DOUBLINGS * 0.9]
    return _cut(column, np.concatenate([points, [0.0, tiny, lower + tiny, upper - tiny]]))


def _cut(column: Numeric, points: Floats) -> Numeric:
    lower, upper = column.bounds
    inner = np.unique(points[(points > lower) & (points < upper)])
    return replace(column, edges=(lower, *inner.tolist(), upper))


def choose_bins(table: PrivateTable, events: Mapping[str, Sequence[GaussianEvent]], purse: Purse) -> list[Numeric]:
    """Return the columns with the bins that were chosen for them: all that is read of the table is paid for."""
    grids = {name: grid_of(_numeric(table.schema, name)) for name in events}
    seen = _shares(table, grids, {name: several[0] for name, several in events.items()}, purse)
    finer = {name: finely(grids[name], seen[name][0]) for name, several in events.items() if len(several) > 1}
    again = _shares(table, finer, {name: events[name][1] for name in finer}, purse)
    counted, cells = grids | finer, seen | again
    return [joined(counted[name], *cells[name]) for name in events]


def _numeric(schema: Schema, name: str) -> Numeric:
    column = schema[name]
    assert isinstance(column, Numeric)
    return column


def _shares(
    table: PrivateTable, columns: Mapping[str, Numeric], events: Mapping[str, GaussianEvent], purse: Purse
) -> dict[str, tuple[Floats, float]]:
    """Release the counts of each column, and return which share of its numbers each cell has, and the noise in it."""
    if not columns:
        return {}
    counted = table.with_columns(*columns.values()).counts([[name] for name in columns])
    found = {}
    for (name, column), counts in zip(columns.items(), counted, strict=True):
        noisy = measure((name,), counts[: column.bins], events[name], purse)
        total = max(float(noisy.counts.sum()), 1.0)
        found[name] = nearest_margins(noisy.counts[None], total)[0] / total, noisy.scale / total
    return found


def finely(grid: Numeric, shares: Floats) -> Numeric:
    """Return the column cut at quantiles of what was seen on the grid, and around single numbers."""
    edges = grid.boundaries
    width = np.diff(edges)
    small = _one_number(grid)
    reached = np.concatenate([[0.0], np.cumsum(shares + 1e-9)])
    levels = np.concatenate([np.arange(1, FINE) / FINE, _TAILS, 1 - _TAILS])
    points = np.interp(np.sort(levels) * reached[-1], reached, edges)
    inside = np.clip(np.searchsorted(edges, points, side="right") - 1, 0, width.size - 1)
    points = _rounded(points, width[inside], whole=grid.integer)[~small[inside]]
    kept = np.unique(np.concatenate([edges[:-1][small], edges[1:][small], points]))
    found = _cut(grid, kept)
    while found.bins < _FEWEST:  # many quantiles in one number: cut what has most of the rest, or else is widest
        edges = found.boundaries
        mass = np.diff(np.interp(edges, grid.boundaries, reached)) + 1e-9 * np.diff(edges) / (edges[-1] - edges[0])
        fullest = int(np.argmax(np.where(_one_number(found), 0.0, mass)))
        middle = (edges[fullest] + edges[fullest + 1]) / 2
        found = _cut(grid, np.append(edges, np.ceil(middle) if grid.integer else middle))
    return found


def _one_number(column: Numeric) -> NDArray[np.bool_]:
    """Return which bins are so narrow that they hold one number."""
    width = np.diff(column.boundaries)
    return np.asarray(width <= 1 if column.integer else width <= width.sum() * _TINY * 2)


def _rounded(points: Floats, width: Floats, *, whole: bool) -> Floats:
    """Return numbers that are easier to read: rounded to about a hundredth of the cell they lie in."""
    if whole:
        return np.ceil(points)
    step = 10.0 ** np.floor(np.log10(width / 50))
    return np.asarray(np.round(points / step) * step)


def joined(column: Numeric, shares: Floats, noise: float) -> Numeric:
    """Return the column with neighbouring cells joined until the right number of bins is left.

    Args:
        column: The column in the cells that were counted.
        shares: Which share of its numbers each cell has.
        noise: The standard deviation of each share.
    """
    column, shares = _without_empty_tails(column, shares, noise)
    edges, masses = list(column.boundaries), list(shares)
    typical = max(float(np.abs(column.decode(np.arange(len(masses)))) @ shares), 1e-300)
    while len(masses) > PRIVATE_BINS:
        ends, mass = np.array(edges), np.array(masses)
        widths, both = np.diff(ends), mass[:-1] + mass[1:]
        moved = np.abs(mass[:-1] - both * widths[:-1] / (widths[:-1] + widths[1:]))
        far = moved * (ends[2:] - ends[:-2]) / 2  # by half of the bin, on average
        place = int(np.argmin(moved + _JOINED * both + _FAR * far / typical))
        masses[place : place + 2] = [masses[place] + masses[place + 1]]
        del edges[place + 1]
    return replace(column, edges=tuple(edges))


def _without_empty_tails(column: Numeric, shares: Floats, noise: float) -> tuple[Numeric, Floats]:
    """Return the column with the cells joined that are furthest from zero and hold no more than noise.

    A few rows of noise far out would outweigh all others in a mean. The bin they become part of is the first that
    together with them holds more than noise, and the law of tails says where in it numbers lie (``_laws``). A cell of
    one number keeps to itself, the tail has at most a quarter of what the fullest cell leaves, and as many cells are
    left as there are bins.
    """
    if column.date is not None:
        return column, shares
    for sign in (1, -1):
        if sign * column.bounds[sign > 0] <= 0:
            continue
        outwards, alone = shares[::-sign], _one_number(column)[::-sign].copy()
        most = _MOST_OUTSIDE * (1 - float(shares.max()))
        alone[0] = False  # what the bound has to itself may be empty, too
        outside = np.cumsum(outwards)
        clear = (outside >= _CLEAR * noise * np.sqrt(np.arange(1, shares.size + 1))) | (outside > most)
        last = int(np.argmax(clear)) if clear.any() else 0
        while last > 0 and (alone[last] or outside[last] > most):
            last -= 1
        last = min(last, shares.size - PRIVATE_BINS)
        if last > 0:
            edges = column.boundaries[::-sign]
            column = replace(column, edges=tuple(np.sort(np.append(edges[0], edges[last + 1 :])).tolist()))
            shares = np.append(outside[last], outwards[last + 1 :])[::-sign]
    return column, shares
