"""Learning a schema: bounds and levels that are not public, under differential privacy.

Columns on their way to being learnt: stripped of what was read from data, counted, and filled in again.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypedDict, TypeVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo._card import first_of, tracking
from escudo._validate import finite
from escudo.asking import AskOptions, planning, run, verb
from escudo.errors import InputError, SchemaError
from escudo.mechanisms import (
    Integers,
    Purse,
    Release,
    Seed,
    choose_cells,
    laplace_cutoff,
    laplace_event,
    quantile_event,
    show_keys,
    stable_threshold,
)
from escudo.privacy import (
    Account,
    ApproximateEvent,
    Budget,
    ComposedEvent,
    Event,
    LaplaceEvent,
    Neighbours,
    Plan,
    Relation,
    usual_delta,
)
from escudo.table import (
    COUNT_EDGES,
    GAP,
    MISSING_LABEL,
    START,
    Categorical,
    ChildTable,
    Column,
    Histories,
    Level,
    LinkedSchema,
    Numeric,
    PrivateTable,
    PrivateTables,
    Schema,
    encodable,
    in_order,
    outline,
)

__all__ = ["learn_linked", "learn_schema"]


CELLS = 256
"""How many equal cells the bounds are looked for in, once their powers of four are known."""


OTHER = "(other)"
"""The level that learnt text columns have for all levels that were not learnt."""


BOUNDS_LEARNT, LEVELS_LEARNT = "bounds learnt privately", "levels learnt privately"
"""What a column says whose bounds, or whose levels, were learnt."""


_BINS = 20


_MISTAKEN = 1e-3  # chance that noise makes any empty power of four look occupied
_MISTAKEN_BESIDE = 0.02  # and one beside those that are: then bounds are four times too wide at that end


_SURE = 5.0  # an end lands beyond the data with probability at most e^-5, and then still within the power of four


_MOST_CUT = 0.2  # rather than cut more off an end, keep the power of four


_MUCH_CLAMPED, _TOO_MUCH_CLAMPED = 0.1, 1 / 3  # of the values: a note says so; a warning does


_BEYOND = 2**53  # whole numbers from here on are no levels


_DAY_ZERO, _FURTHEST_DAY = dt.date(1970, 1, 1), 4**9  # from which days are counted, and up to the year 2687


_POWERS = tuple(4.0**power for power in range(-16, 33))  # 2e-10 ... 2e19, beyond every 64-bit integer


def strip(column: Column, dtype: nw.dtypes.DType | None) -> Column:
    """Return an unconfirmed column without anything that may have been read from data.

    Its name, whether it is numeric, a date or categorical, how text writes it and an order of levels remain, and of
    a column without bounds or one that is derived from others, in which no draft writes them, its bins and whether its
    values are whole. Levels, bounds, and whether values are missing or whole beside drafted bounds go. A type in the
    table may say what is whole too, and missing values get a cell in any case. A boolean type leaves nothing to be
    learnt.
    """
    if isinstance(column, Numeric):
        by_hand = column.open or column.derived is not None
        return Numeric(
            column.name,
            bins=column.bins if by_hand and not column.private and column.edges is None else "private",
            integer=(column.derived is None and dtype is not None and dtype.is_integer())
            or (by_hand and column.integer),
            missing=True,
            confirmed=False,
            date=column.date,
            form=column.form,
            derived=column.derived,
            unit=column.unit,
        )
    if dtype == nw.Boolean:
        return Categorical(column.name, (False, True), missing=True)
    return Categorical(column.name, ordered=column.ordered, missing=True, confirmed=False)


def wide(column: Numeric) -> Numeric:
    """Return the column cut at 0 and at the powers of four with either sign: a public grid for numbers of any scale."""
    powers = [power for power in _POWERS if power >= 1 or not (column.integer or column.date)]
    powers = [power for power in powers if power <= _FURTHEST_DAY or not column.date]
    edges = (*(-power for power in reversed(powers)), 0.0, *powers)
    return Numeric(column.name, edges=edges, missing=True, **_reading(column))


def _reading(column: Numeric) -> dict[str, Any]:
    """Return how a column's values are read, which stays as they are counted to learn its bounds."""
    return {name: getattr(column, name) for name in ("date", "form", "derived", "unit")}


def occupied(noisy: Integers, scale: float) -> range:
    """Return the span of cells whose noisy counts are too large for noise of this scale alone; it may be empty.

    Beside such a cell less is enough: it is no surprise there, and rows that are cut off are.
    """
    (found,) = np.nonzero(noisy >= laplace_cutoff(_MISTAKEN / noisy.size, scale))
    if not found.size:
        return range(0)
    first, last, least = int(found[0]), int(found[-1]), laplace_cutoff(_MISTAKEN_BESIDE, scale)
    while first > 0 and noisy[first - 1] >= least:
        first -= 1
    while last < noisy.size - 1 and noisy[last + 1] >= least:
        last += 1
    return range(first, last + 1)


def share_beyond(noisy: Integers, cells: range) -> float:
    """Return the share of the values that the cells beside a span seem to hold."""
    beside = sum(max(int(noisy[place]), 0) for place in (cells.start - 1, cells.stop) if 0 <= place < noisy.size)
    return beside / max(int(noisy[cells.start : cells.stop].sum()) + beside, 1)


def tail_probability(tails: float, noisy_rows: int, scale: float) -> float | None:
    """Return which quantile to ask for at each end: ``tails``, or more where noise of this scale demands it, or None.

    An empty cell beyond the data is worth exp(-rows cut off / scale) of the right one; there are at most ``CELLS`` of
    them. So scale · (ln CELLS + 5) rows must be cut off for the answer to be within the data almost surely.
    """
    needed = scale * (math.log(CELLS) + _SURE) / max(noisy_rows, 1)
    share = max(tails, needed)
    return share if share <= max(tails, _MOST_CUT) else None


def between(column: Numeric, cells: range) -> Numeric:
    """Return the column between the ends of some of its cells, cut into equal ones."""
    lower, upper = float(column.boundaries[cells.start]), float(column.boundaries[cells.stop])
    bins = CELLS
    if column.date is not None:
        lower, upper = math.floor(lower), math.ceil(upper)
        bins = min(bins, int(upper - lower))
    return Numeric(column.name, lower, upper, bins, missing=True, **_reading(column))


def with_bounds(column: Numeric, found: Numeric, clamped: float = 0.0) -> Numeric:
    """Return the column with the bounds that were found, widened to round numbers; it notes if much is clamped."""
    assert found.lower is not None
    assert found.upper is not None
    lower, upper = found.lower, found.upper
    if column.date is not None:
        first, last = (_DAY_ZERO + dt.timedelta(days=int(day)) for day in (lower, upper))
        lower, upper = first.replace(month=1, day=1), last.replace(month=12, day=31)
    elif column.integer:
        lower, upper = math.floor(lower), math.ceil(upper)
    else:
        digits = 2 - math.floor(math.log10(upper - lower))  # about a hundredth of the length
        step = 10.0**-digits
        lower = min(lower, round(math.floor(lower / step) * step, digits))
        upper = max(upper, round(math.ceil(upper / step) * step, digits))
    whole = column.integer and column.date is None and not column.private
    bins = min(column.bins, int(upper - lower)) if whole else column.bins
    note = BOUNDS_LEARNT
    if clamped >= _MUCH_CLAMPED:
        note += f"; they clamp about {clamped:.0%} of the values, as there are few for this budget"
    return replace(column, lower=lower, upper=upper, bins=bins, confirmed=True, note=note)


def without_bounds(column: Numeric, *, zeros: bool) -> Numeric:
    """Return the column still open, with a note that says why."""
    seen = "too few values but 0" if zeros else "too few values"
    return replace(column, note=f"{seen} to learn bounds with this budget; state lower and upper")


def with_levels(column: Categorical, shown: Sequence[Level]) -> Categorical:
    """Return the column with the levels that were shown, or still open if there is none."""
    if not shown:
        return replace(column, note="no level was common enough to be learnt with this budget; state the levels")
    learnt = replace(column, levels=in_order(shown), confirmed=True, note=LEVELS_LEARNT)
    if not isinstance(shown[0], str):
        return learnt
    return replace(learnt, levels=(*(level for level in learnt.levels if level != OTHER), OTHER), other=OTHER)


def cell_counts(frame: object, schema: Schema, columns: Sequence[Numeric]) -> list[Integers]:
    """Return the private counts of each column's cells, without the missing one, for the schema's unit."""
    if not columns:
        return []
    names = {column.name for column in columns}
    read = dict.fromkeys(name for column in columns for name in column.derived or () if name not in names)
    sources = [wide(column) for column in map(schema.__getitem__, read) if isinstance(column, Numeric)]  # not counted
    table = PrivateTable(frame, _schema(schema, [*columns, *sources]))
    return [counts[:-1] for counts in table.counts([[column.name] for column in columns])]


def level_counts(frame: object, schema: Schema, name: str) -> Mapping[Level, int]:
    """Return the private counts of a column's values, for the schema's unit.

    Levels are text in columns of text, and whole numbers in columns of numbers; what could be no level is left out.
    Each row has one value, so left-out rows only lower the counts.
    """
    dtype = nw.from_native(frame).collect_schema()[name]  # type: ignore[call-overload]
    read = _number if dtype.is_numeric() else _text
    counts: dict[Level, int] = {}
    for value, rows in PrivateTable(frame, _schema(schema, [schema[name]])).value_counts(name):
        level = read(value)
        if level is not None:
            counts[level] = counts.get(level, 0) + rows
    if schema.unit == "row" or not counts:
        return counts
    # Bounding what a person contributes is the table's business; the levels seen serve it as a schema, in here only.
    levels = sorted(counts)
    column = Categorical(name, tuple(levels), missing=True)
    kept = PrivateTable(frame, _schema(schema, [column])).counts(name)
    return dict(zip(levels, kept.tolist(), strict=False))  # the last cell is of missing values


def _schema(schema: Schema, columns: Sequence[Column]) -> Schema:
    return Schema(tuple(columns), person_id=schema.person_id, max_rows_per_person=schema.max_rows_per_person)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value != MISSING_LABEL and encodable(value) else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        return None
    whole = int(value)
    return whole if whole == value and abs(whole) < _BEYOND else None


_PURPOSE = "learn schema"


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a column's values are, as released: between powers of four, and which quantiles to ask for in there.

    Attributes:
        cut: Between which powers of four; None where that is not known.
        tail: Which quantile to ask for at each end; None for neither, where rows are too few.
        beyond: The share of the values that seem to be outside.
        zeros: Whether nothing but 0 was seen.
    """

    cut: Numeric | None
    tail: float | None
    beyond: float = 0.0
    zeros: bool = False

    @property
    def clamped(self) -> float:
        """About which share of the values the bounds clamp."""
        return min(self.beyond + 2 * (self.tail or 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class _Counted:
    """What was counted of a private frame, and the frame."""

    frame: object
    histograms: list[Integers]
    levels: list[Mapping[Level, int]]


@dataclass(frozen=True, slots=True)
class _Task:
    """What is to be learnt, between which tables and for how much; made from arguments and column types alone.

    Attributes:
        schema: The columns, stripped of what a draft read from data.
        neighbours: Which tables are neighbours.
        budget: What it may cost in all.
        tails: The part of the values left out at each end of a numeric column.
        rules: What holds in every row; rules may name levels that are yet to be learnt.
        read: What was counted before anything is spent: histograms over the powers of four, and values. Private.
    """

    schema: Schema
    neighbours: Neighbours
    budget: Budget
    tails: float
    rules: tuple[str, ...] = ()
    read: _Counted | None = field(default=None, repr=False)

    @property
    def numeric(self) -> tuple[Numeric, ...]:
        """The columns whose bounds are to be learnt."""
        return tuple(c for c in self.schema.fields if isinstance(c, Numeric) and not c.confirmed)

    @property
    def categorical(self) -> tuple[Categorical, ...]:
        """The columns whose levels are to be learnt."""
        return tuple(c for c in self.schema.fields if isinstance(c, Categorical) and not c.confirmed)

    @property
    def share(self) -> float:
        """The epsilon of one column."""
        return self.budget.epsilon / (len(self.numeric) + len(self.categorical))

    @property
    def slack(self) -> float:
        """The delta of one categorical column."""
        return self.budget.delta / len(self.categorical)

    def scale_event(self, grid: Numeric) -> LaplaceEvent:
        """Return what the histogram of a column over the powers of four costs."""
        terms = {"sensitivity": self.moved_rows, "epsilon": self.share / 2}
        return laplace_event(grid.bins, **terms, integers=True, **self.neighbours.stated)

    @property
    def ends_event(self) -> Event:
        """What the two quantiles of a numeric column cost."""
        return quantile_event(count=2, epsilon=self.share / 2, **self.neighbours.stated)

    @property
    def levels_event(self) -> ApproximateEvent:
        """What the levels of a categorical column cost."""
        return ApproximateEvent(epsilon=self.share, delta=self.slack, **self.neighbours.stated)

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        parts = [self._plan_bounds(column) for column in self.numeric]
        parts += [self._plan_levels(column) for column in self.categorical]
        return Plan(_PURPOSE, children=parts, delta=self.budget.delta if self.categorical else 0.0)

    @property
    def rows(self) -> int:
        """The most rows of one unit that are counted."""
        return self.schema.max_rows_per_person or 1

    @property
    def moved_rows(self) -> int:
        """The l1 sensitivity of a histogram: k rows come, or k rows leave and k come."""
        return self.rows * (1 if self.neighbours.relation == "add_remove" else 2)

    @property
    def quantile_scale(self) -> float:
        """The scale, in rows, of the noise under which a cell is chosen for each of two quantiles."""
        return 4 * self.rows / (self.share / 2)

    def reading(self, frame: object) -> _Task:
        """Read what can be read before anything is spent: an engine that fails then costs nothing."""
        levels = []
        with tracking("Counting", len(self.categorical) + 1) as advance:
            histograms = cell_counts(frame, self.schema, [wide(column) for column in self.numeric])
            advance(1)
            for column in self.categorical:
                levels.append(level_counts(frame, self.schema, column.name))
                advance(1)
        return replace(self, read=_Counted(frame, histograms, levels))

    def run(self, table: PrivateTable, purse: Purse) -> Release[Schema]:
        """Learn the bounds, then the levels."""
        return release_of(self.learnt(purse), purse, self.neighbours)

    def learnt(self, purse: Purse) -> Schema:
        """Learn the bounds, then the levels, and return the schema with them."""
        assert self.read is not None, "counted before"
        grids = [wide(column) for column in self.numeric]
        found = [self.find(grid, counts, purse) for grid, counts in zip(grids, self.read.histograms, strict=True)]
        narrow = [span.cut for span in found if span.cut is not None and span.tail is not None]
        finer = dict(zip((cut.name for cut in narrow), cell_counts(self.read.frame, self.schema, narrow), strict=True))
        learnt: list[Column] = []
        for column, span in zip(self.numeric, found, strict=True):
            learnt.append(self.bounds(column, span, finer.get(column.name), purse))
        for known, counts in zip(self.categorical, self.read.levels, strict=True):
            shown = show_keys(counts, self.levels_event, purse, rows=self.rows, purpose="stable histogram")
            learnt.append(with_levels(known, list(shown)))
        clamping = [span.cut.name for span in found if span.cut and span.clamped >= _TOO_MUCH_CLAMPED]
        notes = (_much_clamped(clamping),) if clamping else ()
        return _with_rules(replace(self.schema.with_columns(*learnt), notes=notes), self.rules)

    def find(self, grid: Numeric, counts: Integers, purse: Purse) -> _Span:
        """Release where the values are, to powers of four; all the rest looks at what was released."""
        noisy = np.asarray(purse.add(counts, self.scale_event(grid), purpose="Laplace mechanism"))
        cells = occupied(noisy, self.moved_rows / (self.share / 2))
        if not cells:
            return _Span(None, None)
        if not grid.date and (grid.boundaries[cells.start], len(cells)) == (0.0, 1):
            return _Span(None, None, zeros=True)
        rows = int(noisy[cells.start : cells.stop].sum())
        tail = tail_probability(self.tails, rows, self.quantile_scale)
        return _Span(between(grid, cells), tail, share_beyond(noisy, cells))

    def bounds(self, column: Numeric, span: _Span, counts: Integers | None, purse: Purse) -> Numeric:
        """Release the bounds within a span, by two quantiles at half of a column's share where rows suffice."""
        if span.cut is None:
            return without_bounds(column, zeros=span.zeros)
        if span.tail is None or counts is None:
            return with_bounds(column, span.cut, span.clamped)
        ends = [span.tail, 1 - span.tail]
        first, last = choose_cells(counts, ends, self.ends_event, purse, rows=self.rows, purpose="quantiles")
        return with_bounds(column, between(span.cut, range(int(first), int(last) + 1)), span.clamped)

    def _plan_bounds(self, column: Numeric) -> Plan:
        steps = [
            Plan("to powers of four", self.scale_event(wide(column)), buys="a histogram of numbers of any scale"),
            Plan(f"to 1/{CELLS} of that", self.ends_event, buys="lower and upper, two quantiles"),
        ]
        return Plan(f"bounds of {column.name}", children=steps)

    def _plan_levels(self, column: Categorical) -> Plan:
        terms = {"epsilon": self.share, "delta": self.slack}
        least = stable_threshold(**terms, relation=self.neighbours.relation, max_rows_per_person=self.rows).least
        return Plan(f"levels of {column.name}", self.levels_event, buys=f"levels that about {least} rows or more have")


def _with_rules(schema: Schema, rules: Sequence[str]) -> Schema:
    """Return a schema with those rules that what was learnt allows; it notes the others."""
    for rule in rules:
        try:
            schema = replace(schema, rules=(*schema.rules, rule))
        except SchemaError:
            note = f"Left out the rule {rule!r}: it does not go with what was learnt."
            schema = replace(schema, notes=(*schema.notes, note))
    return schema


def _much_clamped(names: Sequence[str]) -> str:
    return (
        f"Warning: the bounds of {first_of(map(repr, names))} clamp about a third of the values or more, as there are "
        "few for this budget. State bounds from what is public, or spend more on them."
    )


AnySchema = TypeVar("AnySchema", Schema, LinkedSchema)


def release_of(schema: AnySchema, purse: Purse, neighbours: Neighbours) -> Release[AnySchema]:
    """Return what was learnt with its guarantee and its notes, and with a warning where the plan has one."""
    plan = purse.plan
    warning = (f"Warning: {plan.warning}",) if plan.warning else ()
    return Release(
        value=replace(schema, notes=warning + schema.notes),
        guarantee=purse.guarantee,
        event=plan.event or ComposedEvent(events=(), **neighbours.stated),
    )


def _relation_of(account: Account | None) -> Relation:
    return "replace_one" if account is None else account.relation


class _Public(TypedDict, total=False):
    """What is public about a table: which are its neighbours, and how many rows it has, or people."""

    relation: Relation
    rows: int | None
    people: int | None


def _read_task(
    frame: object,
    schema: Schema | None,
    epsilon: float,
    delta: float | None,
    tails: float,
    public: _Public,
) -> _Task:
    start = outline(frame) if schema is None else schema
    if not isinstance(start, Schema):
        raise InputError(f"schema must be an escudo Schema or None; got {type(start).__name__}.")
    if start.confirmed:
        raise InputError(
            "every column of the schema is confirmed, so there is nothing to learn; use the schema as it is."
        )
    if not 0 <= finite("tails", tails) < 0.5:
        raise InputError(f"tails must lie in [0, 0.5), the part of the values left out at each end; got {tails!r}.")
    PrivateTable(frame, start)  # says at once if a column is absent, or of a type that cannot be read
    types = nw.from_native(frame).collect_schema()  # type: ignore[call-overload]
    columns = [strip(start[name], types.get(name)) for name in start.unconfirmed]
    neighbours = start.neighbours(**public)
    budget = Budget(epsilon, usual_delta(neighbours) if delta is None else delta)
    bare = replace(replace(start, rules=()).with_columns(*columns), notes=())
    task = _Task(bare, neighbours, budget, tails, tuple(map(str, start.rules)))
    if budget.delta == 0 and task.categorical:
        raise InputError("delta must be above 0 to learn levels: rare ones stay hidden except with probability delta.")
    return task


@verb
def learn_schema(
    frame: object,
    schema: Schema | None = None,
    *,
    epsilon: float,
    delta: float | None = None,
    tails: float = 0.005,
    relation: Relation | None = None,
    account: Account | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
    seed: Seed = None,
    purpose: str = _PURPOSE,
) -> Release[Schema]:
    r"""Learn the bounds and levels that nobody vouched for, and return a schema that may be used.

    Only unconfirmed columns are learnt and paid for, each at an equal share of epsilon:

    * **numeric**: a noisy histogram over the powers of four with either sign (no bound needs to be known) says where
      the values are; then the quantiles ``tails`` and 1 - ``tails`` among 256 equal cells between there, by
      :func:`quantile_cells`; widened to round numbers;
    * **categorical**: the levels that enough rows have, by :func:`stable_histogram`. Text gets a level "(other)" for
      all the rest;
    * **boolean**, by its type in the table: false and true, at no cost.

    A column with too few values to learn anything at this budget, or too few but 0, stays unconfirmed, and its note
    says so. Where few values make the quantiles reach far into the data, or leave cells of the histogram out, a note
    says what share of the values the bounds clamp, and from a third on a warning does: that share is what was asked for
    and what the cells beside the bounds hold, worked out from the noisy histogram, and costs nothing.

    Everything is counted by group-by in the frame's own engine. Names and types of columns, and which of them the
    schema lists as numeric or categorical, are taken as public. A draft chose them by looking at data: start from
    :func:`~escudo.table.outline` (the default) where that matters. What else a draft read from data, its levels and
    bounds and whether values are missing or whole, is thrown away: every learnt column has a cell for missing values.
    Numbers are whole where their type in the table says so, or ``integer`` of a column for which no bounds are stated.
    Dates are learnt as days, and their bounds widened to whole years; a column that is derived from two others is
    learnt like any number.

    Args:
        frame: The private table, of any engine that :class:`~escudo.table.PrivateTable` takes.
        schema: What is known; by default an outline made of column names and types.
        epsilon: What learning may cost in all.
        delta: Probability of showing a level that only one row or person has, in all; 1e-6 by default, or less where
            many rows are public. 0 is enough for numbers alone.
        tails: The part of the values left out at each end of a numeric column, in [0, 0.5), to be clamped later; more
            are left out where there are too few rows for the noise.
        relation: Which tables are neighbours; the account's relation by default.
        account: What to charge, all of it at once, before noise is drawn; None leaves charging to the caller.
        public_rows: The number of rows, if it is public knowledge: δ is judged by it.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: None for a release; a seed makes the result repeatable and not for release.
        purpose: Why, for the account.

    Returns:
        The schema, confirmed in what was learnt, with the guarantee of learning it.

    Raises:
        InputError: If an argument is out of range or there is nothing to learn; nothing was spent.
        SchemaError: If the table lacks a column of the schema; nothing was spent.
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** (ε, δ)-differentially private for a row, or for a person with all their rows if the schema has a
    person id: the composition of what ``learn_schema.plan(...)`` shows. *Proof.* Counts are of at most
    ``max_rows_per_person`` rows of each person, as the two mechanisms assume. The second cut of a numeric column
    depends on the first only through what was released, which adaptive composition allows; rounding and naming look at
    nothing else.

    >>> import polars as pl
    >>> table = pl.DataFrame({"age": [20, 30, 40, 50, 60] * 400, "smoke": ["no", "no", "no", "yes", "rarely"] * 400})
    >>> learnt = learn_schema(table, epsilon=8.0, delta=1e-6, seed=0).value
    >>> learnt["smoke"].levels, learnt.confirmed
    (('no', 'rarely', 'yes', '(other)'), True)
    """
    public: _Public = {"relation": relation or _relation_of(account), "rows": public_rows}
    task = _read_task(frame, schema, epsilon, delta, tails, public)
    table = PrivateTable(frame, task.schema, account, **public)
    if delta is None:  # as a release: by the number of rows, where neighbours share it
        task = replace(task, budget=Budget(epsilon, usual_delta(table.neighbours)))
    how: AskOptions = {"purpose": purpose, "accept_large_delta": accept_large_delta, "seed": seed}
    return run(task if planning() else task.reading(frame), table, **how)


# ---- linked tables

_DAYS = (
    *(0, 1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 120, 150, 180, 240, 300, 365, 455, 545, 730, 1095, 1460, 1825),
    *(2555, 3650, 5475, 7300, 10950, 18250, 36500),
)  # a public grid: the days of which edges are taken
_PARTS = (0.2, 0.4, 0.6, 0.8)
_TAIL = 0.02  # of the people, whose days may be above the last edge
_TAILS = 0.005  # of the values of a column of numbers, at each end
_NO_DAYS: dict[str, Any] = {"start_edges": _DAYS, "gap_edges": _DAYS}


@dataclass(frozen=True, slots=True)
class _LinkedTask:
    """What is to be learnt of linked tables; made from arguments and column types alone.

    Attributes:
        schema: The tables, stripped of what a draft read from data.
        neighbours: Which tables are neighbours.
        tables: What is to be learnt of the columns of each table.
        timed: The tables of which the days before rows are to be learnt.
        share: The epsilon of one column, and of the days of one table.
        delta: What levels may cost in all.
        days: What was counted before anything is spent: days to the first row and between rows. Private.
    """

    schema: LinkedSchema
    neighbours: Neighbours
    tables: Mapping[str, _Task]
    timed: tuple[str, ...]
    share: float
    delta: float
    days: Mapping[str, tuple[Integers, Integers]] = field(default_factory=dict, repr=False)

    @property
    def days_event(self) -> Event:
        """What the edges of one kind of days cost."""
        return quantile_event(count=len(_PARTS) + 1, epsilon=self.share / 2, **self.neighbours.stated)

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        parts = [Plan(f"columns of {name}", children=list(task.plan.children)) for name, task in self.tables.items()]
        for name in self.timed:
            steps = [
                Plan(f"days {what}", self.days_event, buys=f"{len(_PARTS) + 1} edges")
                for what in ("to the first row", "between rows")
            ]
            parts.append(Plan(f"days of {name}", children=steps))
        delta = self.delta if any(task.categorical for task in self.tables.values()) else 0.0
        return Plan(_PURPOSE, children=parts, delta=delta)

    def reading(self, frames: Mapping[str, object]) -> _LinkedTask:
        """Read what can be read before anything is spent."""
        days = day_counts(frames, self.schema) if self.timed else {}
        return replace(
            self,
            tables={name: task.reading(frames[name]) for name, task in self.tables.items()},
            days={name: days[name] for name in self.timed},
        )

    def run(self, table: PrivateTables, purse: Purse) -> Release[LinkedSchema]:
        """Learn the columns of each table, then the days."""
        found = {name: task.learnt(purse) for name, task in self.tables.items()}
        schema = replace(self.schema, person=_plain(found.get(self.schema.people), self.schema.person))
        children = []
        for child in self.schema.children:
            own = replace(child, schema=_plain(found.get(child.name), child.schema), confirmed=True)
            if child.name in self.timed:
                first, between_rows = (self._edges(counts, purse) for counts in self.days[child.name])
                own = replace(own, start_edges=first, gap_edges=between_rows)
            children.append(own)
        return release_of(replace(schema, children=tuple(children)), purse, self.neighbours)

    def _edges(self, counts: Integers, purse: Purse) -> tuple[int, ...]:
        parts = [*_PARTS, 1 - _TAIL]
        cells = choose_cells(counts, parts, self.days_event, purse, rows=1, purpose="quantiles")
        return (0, *sorted({_DAYS[int(cell) + 1] for cell in cells}))


def day_counts(frames: Mapping[str, object], schema: LinkedSchema) -> dict[str, tuple[Integers, Integers]]:
    """Return the private counts of people by days on the public grid: to the first row, and before one later row.

    Of each person the first row is counted, and of the rows after it the one in the middle of the history: a function
    of the person's own rows, so that each person is one record of each histogram at most. Of rows of rows, the one in
    the middle of all first ones of the person's rows, and the one in the middle of all others.
    """

    def alone(name: str) -> Schema:
        types = nw.from_native(frames[name]).collect_schema()  # type: ignore[call-overload]
        column = schema.schema_of(name).fields[0]
        return replace(schema.schema_of(name), fields=(_anything(column, types[column.name]),))

    grid = replace(
        schema,
        person=alone(schema.people),
        children=tuple(
            replace(child, schema=alone(child.name), **_NO_DAYS if child.order is not None else {})
            for child in schema.children
        ),
    )
    timed = [child.name for child in schema.children if child.order is not None]

    def counted(people: Histories) -> Integers:
        found = np.zeros((len(timed), 2, len(_DAYS) - 1), dtype=np.int64)
        for rows, counts in zip(map(people.rows.__getitem__, timed), found, strict=True):
            chosen = {START: _middle(rows.person, rows.number == 1), GAP: _middle(rows.person, rows.number > 1)}
            for each, (key, mine) in zip(counts, chosen.items(), strict=True):
                each += np.bincount(rows.codes[key][mine], minlength=len(_DAYS) - 1)
        return found

    with PrivateTables(frames, grid).gathered(once=True) as everybody:
        return {name: (first, later) for name, (first, later) in zip(timed, everybody.summed(counted), strict=True)}


def _middle(person: NDArray[Any], among: NDArray[np.bool_]) -> Integers:
    """Return the places of the row in the middle of each person's rows among some; rows lie person by person."""
    places = np.flatnonzero(among)
    _, first, several = np.unique(person[places], return_index=True, return_counts=True)
    return np.asarray(places[first + (several - 1) // 2])


def _anything(column: Column, dtype: nw.dtypes.DType) -> Column:
    """Return a column as one that every value fits, for tables of which only days are read."""
    if isinstance(column, Numeric):
        return wide(column)
    if dtype == nw.Boolean:
        return Categorical(column.name, (False, True), missing=True)
    return Categorical(column.name, (0,) if dtype.is_numeric() else (OTHER,), missing=True)


def _plain(learnt: Schema | None, known: Schema) -> Schema:
    """Return the columns of a table without what was only there to count its rows by person."""
    return known if learnt is None else replace(learnt, person_id=None, max_rows_per_person=None, notes=())


def _linked_task(
    frames: Mapping[str, object], schema: LinkedSchema, epsilon: float, delta: float | None, stated: Neighbours
) -> _LinkedTask:
    columns: dict[str, Schema] = {}
    for name in schema.tables:
        own = schema.schema_of(name)
        types = nw.from_native(frames[name]).collect_schema()  # type: ignore[call-overload]
        stripped = [strip(own[one], types.get(one)) for one in own.unconfirmed]
        bare = replace(own, rules=() if stripped else own.rules).with_columns(*stripped)
        columns[name] = replace(bare, person_id=schema.reading(name).person_id, max_rows_per_person=1, notes=())
    budget = Budget(epsilon, usual_delta(stated) if delta is None else delta)
    timed = tuple(child.name for child in schema.children if not child.confirmed and child.order is not None)
    share = budget.epsilon / max(len(timed) + sum(len(own.unconfirmed) for own in columns.values()), 1)
    open_columns = [own[name] for own in columns.values() for name in own.unconfirmed]
    levels = sum(isinstance(column, Categorical) for column in open_columns)
    if budget.delta == 0 and levels:
        raise InputError("delta must be above 0 to learn levels: rare ones stay hidden except with probability delta.")
    tables = {}
    for name, own in columns.items():
        if not schema.schema_of(name).unconfirmed:
            continue
        mine = sum(isinstance(own[one], Categorical) for one in own.unconfirmed)
        part = Budget(share * max(len(own.unconfirmed), 1), budget.delta * mine / max(levels, 1) * (1 - 1e-12))
        tables[name] = _Task(own, stated, part, _TAILS, tuple(map(str, schema.schema_of(name).rules)))
    bare_schema = replace(
        schema,
        person=_plain(columns[schema.people], schema.person),
        children=tuple(
            replace(child, schema=_plain(columns[child.name], child.schema), **_NO_DAYS if child.name in timed else {})
            for child in schema.children
        ),
        notes=(),
    )
    return _LinkedTask(bare_schema, stated, tables, timed, share, budget.delta)


@verb
def learn_linked(
    frames: Mapping[str, object],
    schema: LinkedSchema,
    *,
    epsilon: float,
    delta: float | None = None,
    most: Mapping[str, int] | None = None,
    account: Account | None = None,
    people: int | None = None,
    accept_large_delta: bool = False,
    seed: Seed = None,
) -> Release[LinkedSchema]:
    r"""Learn of linked tables the bounds, levels and days that nobody vouched for.

    Columns are learnt as by :func:`learn_schema`, in each table from one row of each person. Of a table of rows that is
    not confirmed, the edges of days to the first row and between rows are learnt: five quantiles each, of one record of
    each person, on a public grid of usual lengths. Each column, and the days of each table, gets an equal share of
    epsilon.

    What is taken as public: names and types of columns, which are keys, orders and the origin, which columns are
    numeric or categorical, and **how many rows of a person count** (``most``), which costs no noise and decides for
    whom an account is opened. A draft's own, read from data, is not used.

    Args:
        frames: The private tables by name, of any engines.
        schema: What is known of them.
        epsilon: What learning may cost in all.
        delta: Probability of showing a level that only one person has, in all; as for :func:`learn_schema`.
        most: How many rows of one person count, for each table of rows that is not confirmed.
        account: What to charge, all of it at once, before noise is drawn; None leaves charging to the caller.
        people: The number of people, if it is public knowledge where neighbours need not share it.
        accept_large_delta: Whether a δ that is not below one over the number of people was meant.
        seed: None for a release; a seed makes the result repeatable and not for release.

    Returns:
        The schema, confirmed in what was learnt, with the guarantee of learning it.

    Raises:
        InputError: If an argument is out of range, ``most`` is missing, or there is nothing to learn; nothing is
            spent.
        SchemaError: If a table lacks a column of the schema; nothing was spent.
        RefusedError: If δ is too large for the tables; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** (ε, δ)-differentially private for a person with all rows in all tables: the composition of what
    ``learn_linked.plan(...)`` shows. *Proof.* Every histogram counts at most one row of each person, chosen by that
    person's own rows: replacing a person, whose histories may be of any lengths, takes one record from it at most and
    adds one at most, adding or removing one does either. So each mechanism is given the number of rows it assumes,
    k = 1, whatever the tables' other bounds are; the rest is adaptive composition and post-processing.
    """
    if not isinstance(schema, LinkedSchema):
        raise InputError(f"schema must be an escudo LinkedSchema; got {type(schema).__name__}.")
    if schema.confirmed:
        raise InputError("everything in the schema is confirmed, so there is nothing to learn; use it as it is.")
    told = dict(most or {})
    known = replace(schema, children=tuple(_stated_rows(child, told) for child in schema.children))
    if told:
        raise InputError(f"most names {next(iter(told))!r:.60}, which is no table whose rows are yet to be bounded.")
    public: Any = {"relation": _relation_of(account), "people": people}
    given = PrivateTables(frames, known, account, **public)  # says at once what is missing
    if delta is None:  # as a release: by the number of people, where neighbours share it
        delta = usual_delta(given.neighbours)
    task = _linked_task(frames, known, epsilon, delta, known.neighbours(**public))
    if not task.tables and not task.timed:
        raise InputError("all that is not confirmed is how many rows count, which is stated; confirm it instead.")
    tables = PrivateTables(frames, task.schema, account, **public)
    anything: Any = task if planning() else task.reading(frames)  # what is asked of one table is asked of these
    how: AskOptions = {"accept_large_delta": accept_large_delta, "seed": seed}
    answer: Release[LinkedSchema] = run(anything, tables, **how)  # type: ignore[arg-type]
    return answer


def _stated_rows(child: ChildTable, most: dict[str, int]) -> ChildTable:
    """Return a table of rows with what is public about how many there are, which is taken out of ``most``."""
    if child.confirmed:
        return child
    if child.name not in most:
        raise InputError(
            f"table {child.name!r}: say how many rows of one person count, most={{{child.name!r}: 40}} (--most "
            f"{child.name}=40). It is public and costs no noise; choose it generously, from what is known."
        )
    return replace(child, most=most.pop(child.name), count_edges=COUNT_EDGES)
