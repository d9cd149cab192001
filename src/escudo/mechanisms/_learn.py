"""Learning a schema: bounds and levels that are not public, under differential privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

import narwhals as nw
import numpy as np

from escudo._validate import finite, positive, probability
from escudo.errors import InputError
from escudo.mechanisms._additive import laplace, laplace_event
from escudo.mechanisms._columns import (
    CELLS,
    between,
    bounded,
    cell_counts,
    level_counts,
    levelled,
    occupied,
    stripped,
    tail_probability,
    unbounded,
    wide,
)
from escudo.mechanisms._histogram import stable_histogram, stable_threshold
from escudo.mechanisms._noise import Integers, Seed, one_stream, publishable
from escudo.mechanisms._quantiles import quantile_cells, quantile_event
from escudo.mechanisms._release import Release
from escudo.privacy import (
    Account,
    ApproximateEvent,
    ComposedEvent,
    MemoryAccount,
    Plan,
    Relation,
    Unit,
    charging,
    guarantee_of,
    parse_relation,
    plannable,
)
from escudo.table import Categorical, Column, Level, Numeric, PrivateTable, Schema, outline

__all__ = ["learn_schema"]

_PURPOSE = "learn schema"


class _Neighbours(TypedDict):
    relation: Relation
    unit: Unit
    max_rows_per_person: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Where a column's values are, as released: between powers of four, and which quantiles to ask for in there."""

    cut: Numeric | None
    tail: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is to be learnt, for whom and for how much; made from arguments and column types alone."""

    schema: Schema
    relation: Relation
    epsilon: float
    delta: float

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
        return self.epsilon / (len(self.numeric) + len(self.categorical))

    @property
    def slack(self) -> float:
        """The delta of one categorical column."""
        return self.delta / len(self.categorical)

    @property
    def neighbours(self) -> _Neighbours:
        """Which tables are neighbours, as keywords of a mechanism."""
        return {
            "relation": self.relation,
            "unit": self.schema.unit,
            "max_rows_per_person": self.schema.max_rows_per_person,
        }

    def plan(self) -> Plan:
        """Return the budget tree."""
        parts = [self._plan_bounds(column) for column in self.numeric]
        parts += [self._plan_levels(column) for column in self.categorical]
        return Plan(_PURPOSE, children=parts, delta=self.delta if self.categorical else 0.0)

    @property
    def moved_rows(self) -> int:
        """The l1 sensitivity of a histogram: k rows come, or k rows leave and k come."""
        return (self.schema.max_rows_per_person or 1) * (1 if self.relation == "add_remove" else 2)

    @property
    def quantile_scale(self) -> float:
        """The scale, in rows, of the noise under which a cell is chosen for each of two quantiles."""
        return 4 * (self.schema.max_rows_per_person or 1) / (self.share / 2)

    def find(self, grid: Numeric, counts: Integers, tails: float, account: Account, seed: Seed) -> _Span:
        """Release where the values are, to powers of four; all the rest looks at what was released."""
        release = laplace(
            counts, sensitivity=self.moved_rows, epsilon=self.share / 2, account=account, seed=seed, **self.neighbours
        )
        noisy = np.asarray(release.value)
        cells = occupied(noisy, self.moved_rows / (self.share / 2))
        if not cells:
            return _Span(cut=None, tail=None)
        rows = int(noisy[cells.start : cells.stop].sum())
        return _Span(cut=between(grid, cells), tail=tail_probability(tails, rows, self.quantile_scale))

    def bounds(self, column: Numeric, span: _Span, counts: Integers | None, account: Account, seed: Seed) -> Numeric:
        """Release the bounds within a span, by two quantiles at half of a column's share where rows suffice."""
        if span.cut is None:
            return unbounded(column)
        if span.tail is None or counts is None:
            return bounded(column, span.cut)
        ends = [span.tail, 1 - span.tail]
        first, last = quantile_cells(
            counts, ends, epsilon=self.share / 2, account=account, seed=seed, **self.neighbours
        ).value.tolist()
        return bounded(column, between(span.cut, range(first, last + 1)))

    def levels(self, column: Categorical, counts: Mapping[Level, int], account: Account, seed: Seed) -> Categorical:
        """Release the levels of a column."""
        shown = stable_histogram(
            counts, epsilon=self.share, delta=self.slack, account=account, seed=seed, **self.neighbours
        )
        return levelled(column, list(shown.value))

    def _plan_bounds(self, column: Numeric) -> Plan:
        histogram = laplace_event(
            wide(column).bins,
            sensitivity=self.moved_rows,
            epsilon=self.share / 2,
            integers=True,
            relation=self.relation,
            unit=self.schema.unit,
            max_rows_per_person=self.schema.max_rows_per_person,
        )
        ends = quantile_event(
            count=2,
            epsilon=self.share / 2,
            relation=self.relation,
            unit=self.schema.unit,
            max_rows_per_person=self.schema.max_rows_per_person,
        )
        steps = [
            Plan("to powers of four", histogram, buys="a histogram of numbers of any scale"),
            Plan(f"to 1/{CELLS} of that", ends, buys="lower and upper, two quantiles"),
        ]
        return Plan(f"bounds of {column.name}", children=steps)

    def _plan_levels(self, column: Categorical) -> Plan:
        rows = self.schema.max_rows_per_person or 1
        threshold = stable_threshold(
            epsilon=self.share, delta=self.slack, relation=self.relation, max_rows_per_person=rows
        )
        event = ApproximateEvent(
            epsilon=self.share,
            delta=self.slack,
            relation=self.relation,
            unit=self.schema.unit,
            max_rows_per_person=self.schema.max_rows_per_person,
        )
        return Plan(f"levels of {column.name}", event, buys=f"levels that about {threshold.least} rows or more have")


def _read_task(
    frame: object,
    schema: Schema | None,
    *,
    epsilon: float,
    delta: float,
    tails: float,
    relation: Relation | None,
    account: Account | None,
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
    if relation is None:
        relation = "replace_one" if account is None else account.relation
    task = _Task(
        schema=replace(
            start.with_columns(*(stripped(start[name], types[name]) for name in start.unconfirmed)), notes=()
        ),
        relation=parse_relation(relation),
        epsilon=positive("epsilon", epsilon),
        delta=probability("delta", delta),
    )
    if task.delta == 0 and task.categorical:
        raise InputError("delta must be above 0 to learn levels: rare ones stay hidden except with probability delta.")
    return task


def _plan(
    frame: object,
    schema: Schema | None = None,
    *,
    epsilon: float,
    delta: float,
    tails: float = 0.005,
    relation: Relation | None = None,
    account: Account | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
    seed: Seed = None,
    purpose: str = _PURPOSE,
) -> Plan:
    """Return the budget tree of ``learn_schema`` with these arguments; it looks at types of columns, at no value."""
    task = _read_task(frame, schema, epsilon=epsilon, delta=delta, tails=tails, relation=relation, account=account)
    return _judged(task, frame, public_rows, accept_large_delta)


def _judged(task: _Task, frame: object, public_rows: int | None, accept_large_delta: bool) -> Plan:
    """Return the budget tree, its δ judged by the number of rows or people as far as that is public."""
    table = PrivateTable(frame, task.schema)
    return task.plan().judged(table, rows=public_rows, accept_large_delta=accept_large_delta)


@plannable(_plan)
def learn_schema(
    frame: object,
    schema: Schema | None = None,
    *,
    epsilon: float,
    delta: float,
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

    A column with too few values to learn anything at this budget stays unconfirmed, and its note says so.

    Everything is counted by group-by in the frame's own engine. Names and types of columns, and which of them the
    schema lists as numeric or categorical, are taken as public. A draft chose them by looking at data: start from
    :func:`~escudo.table.outline` (the default) where that matters. What else a draft read from data, its levels and
    bounds and whether values are missing or whole, is thrown away: every learnt column has a cell for missing values.

    Args:
        frame: The private table, of any engine that :class:`~escudo.table.PrivateTable` takes.
        schema: What is known; by default an outline made of column names and types.
        epsilon: What learning may cost in all.
        delta: Probability of showing a level that only one row or person has, in all; 0 is enough for numbers alone.
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
    task = _read_task(frame, schema, epsilon=epsilon, delta=delta, tails=tails, relation=relation, account=account)
    stream = one_stream(seed)
    plan = _judged(task, frame, public_rows, accept_large_delta)
    unit, rows = task.schema.unit, task.schema.max_rows_per_person
    event = plan.event or ComposedEvent(events=(), relation=task.relation, unit=unit, max_rows_per_person=rows)
    promise = guarantee_of(event, delta=plan.delta or 0.0, for_release=publishable(seed))
    payer = account or MemoryAccount(relation=task.relation, unit=unit, max_rows_per_person=rows)
    # Read what can be read before anything is spent: an engine that fails then costs nothing.
    grids = [wide(column) for column in task.numeric]
    histograms = cell_counts(frame, task.schema, grids)
    levels = [level_counts(frame, task.schema, column.name) for column in task.categorical]
    learnt: list[Column] = []
    with charging(payer, plan, for_release=promise.for_release, purpose=purpose) as purse:
        found = [task.find(grid, counts, tails, purse, stream) for grid, counts in zip(grids, histograms, strict=True)]
        narrow = [span.cut for span in found if span.cut is not None and span.tail is not None]
        finer = dict(zip((cut.name for cut in narrow), cell_counts(frame, task.schema, narrow), strict=True))
        for column, span in zip(task.numeric, found, strict=True):
            learnt.append(task.bounds(column, span, finer.get(column.name), purse, stream))
        for known, table in zip(task.categorical, levels, strict=True):
            learnt.append(task.levels(known, table, purse, stream))
    value = replace(task.schema.with_columns(*learnt), notes=(f"Warning: {plan.warning}",) if plan.warning else ())
    return Release(value=value, guarantee=promise, event=event)
