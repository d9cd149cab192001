"""Which of two columns causes the other: the verb that asks a private table for it, and the answer.

Three methods answer. Each lives in a module with one function ``prepare``, which takes what was
:class:`DirectionQuestion`, between which tables and for how much, and chooses everything from public facts: the plan it
makes says what will be spent, and running it reads the columns and spends that.

* ``votes`` (``_votes.py``): any procedure inside disjoint blocks; the whole table is protected by a pure ε;
* ``gap`` (``_gap.py``): the noisy difference of two dependence scores, with tight sensitivities;
* ``paper`` (``_paper.py``): the method of *Private Causal Inference* as it was published.

**Reading.** Every method sees columns as numbers in [0, 1], read in the table's own engine, one batch at a time
(:class:`Batch`, :class:`PairData`). For the person unit a public hash of the person id comes with each row, so that all
rows of a person can be sent to one block. A person's rows are bounded as everywhere (``table/_counts.py``); rows
without a person id take no part.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._card import plain
from escudo._plot import Drawn, intervals
from escudo._validate import did_you_mean, finite, one_of, positive, probability
from escudo.asking import Prepared, planning, run, verb
from escudo.errors import InputError, SchemaError
from escudo.privacy import Budget, Guarantee, Neighbours, Plan, Unit
from escudo.table import Categorical, Column, PrivateTable, Schema, held, with_sources

METHODS = {"votes": "_votes", "gap": "_gap", "paper": "_paper"}
"""Every method, and the module that holds its ``prepare``."""


@verb
def direction(
    table: PrivateTable,
    x: str,
    y: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    method: str = "votes",
    score: Score = "committee",
    accept_large_delta: bool = False,
    seed: int | None = None,
    **options: Any,
) -> Direction:
    """Say which of two columns of a private table causes the other, or that one cannot tell.

    Args:
        table: The private table; its account is charged once, before noise is drawn. Under ``replace_one`` the number
            of rows (of people, where the schema names a person id) is public and counted for you; under ``add_remove``
            it is private: state a rough public number where the table is made.
        x: One column, numeric or categorical with an order (its levels then count 0, 1, 2, ...).
        y: The other one.
        epsilon: What the answer may cost.
        delta: At this probability aside; the votes need none.
        method: ``"votes"`` protects the whole table; ``"gap"`` and ``"paper"`` are described in their modules.
        score: For votes the name of a block procedure (``PROCEDURES``) or a callable of your own that gets a block's
            x and y as arrays and returns a number above 0 for x->y, below 0 for y->x; for the others a dependence
            score. ``"committee"`` is each method's default.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        options: What else the method takes. Votes: ``abstain``, ``blocks``, ``shuffle``.

    Returns:
        The verdict with all that is known about it, see :class:`Direction`. It says which direction fits a model of
        noise better; it does not rule out a common cause, nor that the model is wrong in both directions.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        SchemaError: If a column is unknown, or categorical without an order; nothing was spent.
        RefusedError: If a column is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow it; nothing was spent.

    **Guarantee.** The accountant's total of the plan's events, between the table's neighbours. Rows that
    are protected one by one under ``replace_one`` are told apart by their position, so the table's order must not
    depend on values: a query that sorts by a column would let one row move the others.

    >>> import numpy as np, polars as pl, escudo
    >>> rng = np.random.default_rng(0)
    >>> height = rng.uniform(-1, 1, 4000)
    >>> frame = pl.DataFrame({"height": height, "frost": 2 * height**2 + 0.3 * rng.normal(size=4000)})
    >>> bounds = {"type": "numeric", "lower": -3.5, "upper": 3.5}
    >>> table = escudo.PrivateTable(frame, escudo.Schema.from_dict({"height": bounds, "frost": bounds}))
    >>> direction(table, "frost", "height", epsilon=1.0, seed=1).verdict
    'height->frost'
    """
    asked = DirectionQuestion(x, y, method, score, options)
    prepared = asked.prepare(table.schema, table.neighbours, Budget(epsilon, delta))
    if method != "votes" and not planning():  # votes take a rough number; sensitivities of the others depend on it
        check_rows(table.neighbours.records, table.record_count())
    return run(prepared, table, purpose=f"direction ({method})", accept_large_delta=accept_large_delta, seed=seed)


# ---- what was asked

Score = str | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class DirectionQuestion:
    """Which of two columns of a table causes the other: the question.

    Attributes:
        x: One column.
        y: The other column.
        method: How it is answered.
        score: Which score; ``"committee"`` stands for the method's own default.
        options: Whatever else the caller gave; an unknown one is an InputError that lists those there are.
    """

    x: str
    y: str
    method: str = "votes"
    score: Score = "committee"
    options: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared[Direction]:
        """Check every public argument and choose what will be released; nothing is read or spent.

        Raises:
            InputError: If an argument is out of range, or an option is unknown to the method.
            SchemaError: If a column is not in the schema, or is categorical without an order.
            RefusedError: If one of the two columns is not confirmed.
        """
        for name in (self.x, self.y):
            scored_column(schema, name)
        if self.x == self.y:
            raise InputError(f"x and y are both {self.x!r}; name two different columns.")
        with_sources(schema, [self.x, self.y]).require_confirmed()
        module = import_module(f"escudo.orientation.{METHODS[one_of('method', self.method, METHODS)]}")
        prepared: Prepared[Direction] = module.prepare(self, schema, neighbours, budget)
        return prepared


def check_options(method: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with defaults filled in, or raise with the list of those there are."""
    if unknown := sorted(set(options) - set(known)):
        raise InputError(
            f"method {method!r} has no option {unknown[0]!r}; it has {', '.join(known)}."
            + did_you_mean(unknown[0], known)
        )
    return {**known, **options}


def check_rows(stated: int | None, counted: int) -> None:
    """Raise unless a table has as many rows as sensitivities were computed for; under replace_one that is public."""
    if stated is not None and counted != stated:
        raise InputError(
            f"rows was stated as {stated:,}, but the table has {counted:,}: sensitivities depend on it. Leave rows "
            "out; it is counted for you."
        )


# ---- the answer

CANNOT_TELL = "cannot tell"
"""The verdict where there is none."""

CAVEAT = (
    "This says which direction fits a model of noise better. It does not rule out a common cause, and agreement is no "
    "evidence that the model is right."
)


def arrow(cause: str, effect: str) -> str:
    """Return the verdict that ``cause`` causes ``effect``, such as ``altitude->temperature``."""
    return f"{cause}->{effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction(Drawn):
    """Which of two columns causes the other, as far as a noise model and a privacy budget can tell.

    Every number was released under ``guarantee`` or computed from what was. ``plot`` draws the released margin, how far
    noise may have moved it, and what it takes for a verdict.

    Attributes:
        x: The first column asked about.
        y: The second one.
        verdict: ``"x->y"`` or ``"y->x"`` with the columns' names, or ``"cannot tell"``.
        margin: What was released: above 0 speaks for x->y, below 0 for y->x, whatever the method. For votes, the blocks
            for x->y minus those for y->x, plus noise; for a gap, score(y->x) minus score(x->y), plus noise.
        stability: What the *noise* leaves of the margin's sign: the probability that without noise it would be the
            same, before anything else is known about it (the method's module says what is taken as equally likely). 0.5
            where nothing is known. It says nothing about whether the verdict is true.
        probability: What the *model* is worth: how often such a verdict names the cause, where one of the two columns
            does cause the other, noise included. Fitted to simulated and real pairs, and checked on families of both
            that were left out of the fit (``experiments/verdicts.py``); None without a verdict, and for methods and
            scores for which that was not measured.
        scores: Released or derived numbers by name; ``scores_mean`` says what they are and which way is better.
        scores_mean: One line about ``scores``.
        noise_scale: Scale of the Laplace noise in the margin, in its units; 0 if nothing was released.
        largest_margin: The largest size the margin can have without noise (the number of blocks, for votes); None
            where there is no such bound.
        threshold: The verdict is "cannot tell" unless the margin is larger than this in size.
        guarantee: What was promised to the people in the table.
        method: ``"votes"``, ``"gap"`` or ``"paper"``.
        score: The block procedure or dependence score.
        plan: The budget tree that was spent.
        notes: Sentences for people: what limits the answer, what would be needed.

    Raises:
        InputError: If the verdict is none of the three, or a number is out of range.
    """

    x: str
    y: str
    verdict: str
    margin: float
    stability: float
    guarantee: Guarantee
    method: str
    score: str
    plan: Plan
    scores: Mapping[str, float] = field(default_factory=dict)
    scores_mean: str = ""
    noise_scale: float = 0.0
    largest_margin: float | None = None
    threshold: float = 0.0
    notes: tuple[str, ...] = ()
    probability: float | None = None

    def __post_init__(self) -> None:
        if self.verdict not in (arrow(self.x, self.y), arrow(self.y, self.x), CANNOT_TELL):
            raise InputError(f"verdict must be one of the two directions or {CANNOT_TELL!r}.")
        finite("margin", self.margin)
        probability("stability", self.stability, allow_one=True)
        if self.probability is not None:
            probability("probability", self.probability, allow_one=True)
        positive("noise_scale", self.noise_scale, allow_zero=True)
        positive("threshold", self.threshold, allow_zero=True)
        object.__setattr__(self, "scores", MappingProxyType(dict(self.scores)))
        object.__setattr__(self, "notes", tuple(self.notes))

    @property
    def probability_correct(self) -> float:
        """``stability`` under its old name, which promised more than it holds; deprecated."""
        warnings.warn(
            "Direction.probability_correct will end with version 0.3: it is about the noise only and called stability "
            "now; how often such verdicts are right is in probability.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.stability

    @property
    def cause(self) -> str | None:
        """The column that the verdict calls the cause, or None."""
        return None if self.verdict == CANNOT_TELL else self.x if self.verdict == arrow(self.x, self.y) else self.y

    @property
    def effect(self) -> str | None:
        """The column that the verdict calls the effect, or None."""
        return None if self.cause is None else self.y if self.cause == self.x else self.x

    @property
    def released(self) -> bool:
        """Whether anything was released; if not, nothing was spent and the margin means nothing."""
        return self.plan.event is not None

    def _draw(self, axes: Any) -> Any:
        if not self.released:
            raise InputError("Nothing was released, so there is nothing to draw; see notes for the reason.")
        half = self.noise_scale * math.log(20)  # Laplace noise is larger than this in size once in 20 times
        bars = {f"enough for {self.x} → {self.y}": self.threshold, f"enough for {self.y} → {self.x}": -self.threshold}
        return intervals(
            axes,
            [(self.score, self.margin, (self.margin - half, self.margin + half))],
            title=self._headline(),
            across=f"released margin, above 0 for {self.x} → {self.y}; the line: 95 % of the noise",
            up=self.method,
            lines={"neither": 0.0, **(bars if self.threshold else {})},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return {
            **plain(self, "x", "y", "verdict", "margin", "probability", "stability", "noise_scale", "threshold"),
            **plain(self, "scores", "scores_mean", "method", "score", "released", "guarantee"),
            **plain(self.guarantee, "for_release"),
            **plain(self, "notes"),
        }

    def __str__(self) -> str:
        return "\n".join((f"{self._headline()}        {self._evidence()}", *(f"  {line}" for line in self._below())))

    def _repr_html_(self) -> str:
        below = "".join(f"<br><small>{escape(line)}</small>" for line in self._below())
        return f"<p><b>{escape(self._headline())}</b> &nbsp; {escape(self._evidence())}{below}</p>"

    def _headline(self) -> str:
        return CANNOT_TELL if self.cause is None else f"{self.cause} → {self.effect}"

    def _evidence(self) -> str:
        if not self.released:
            return "nothing was released or spent"
        of = "" if self.largest_margin is None else f" of {self.largest_margin:g} blocks"
        flipped = 100 * (1 - self.stability)
        right = "" if self.probability is None else f"right about {100 * self.probability:.0f} % of the time"
        worth = f"such verdicts are {right}, if one of the two causes the other; " if right else ""
        return (
            f"{worth}released margin {self.margin:+.4g}{of} (above 0: {self.x} → {self.y}); the noise alone has turned "
            f"its sign with probability {flipped:.2g} %"
        )

    def _below(self) -> tuple[str, ...]:
        promise = self.guarantee
        change = "replace" if promise.relation == "replace_one" else "add or remove"
        epsilon = f"ε = {promise.epsilon:.3g}, " if promise.epsilon is not None else ""
        delta = f"δ = {promise.delta:g}, " if promise.delta else ""
        paid = f"{epsilon}{delta}{change} one {promise.unit}    method: {self.method}, {self.score}"
        seeded = () if promise.for_release else ("Made with a seed: not for release.",)
        return (paid, *self.notes, *seeded, CAVEAT)


# ---- reading

Floats = NDArray[np.float64]
BATCH_ROWS = 65_536


class Batch(NamedTuple):
    """Some rows, in the table's order.

    Attributes:
        values: Shape (rows, columns), in [0, 1]; NaN where missing.
        person: For the person unit, a public hash of whose row it is, shape (rows,); else None.
    """

    values: NDArray[np.float64]
    person: NDArray[np.int64] | None


def scored_column(schema: Schema, name: str, *, fewest: int = 2) -> Column:
    """Return a column whose values have an order, and so can be put on a scale.

    Args:
        schema: The table's schema.
        name: The column's name.
        fewest: How many different values the column must be able to take.

    Raises:
        SchemaError: If there is no such column, it is categorical without an order, or its public values are too few.
    """
    column = schema[name]
    if isinstance(column, Categorical):
        values = float(len(column.levels))
        if values > 2 and not column.ordered:
            raise SchemaError(
                f"column {name!r} is categorical without an order, so it has no scale on which a direction could show; "
                "state that its levels are ordered in the schema if they are, or choose another column."
            )
    else:
        lower, upper = column.bounds
        values = upper - lower + 1 if column.integer else math.inf
    if values < fewest:
        raise SchemaError(
            f"column {name!r} can take {values:g} different values only, and at least {fewest} are needed to see a "
            "direction; choose a finer column."
        )
    return column


def batches_of(table: PrivateTable, names: Sequence[str], size: int = BATCH_ROWS) -> Iterator[Batch]:
    """Yield the named columns in the table's order, without holding all rows; batches have ``size`` rows.

    Raises:
        SchemaError: If a column has no order.
    """
    for name in names:
        scored_column(table.schema, name)
    if table.unit == "row":
        for values in table.batches(size, names, encode="shares"):
            yield Batch(values, None)
    else:
        for values, person in table.person_batches(size, names, encode="shares"):
            yield Batch(values, person)


def slices(rows: int) -> Iterator[slice]:
    """Return all of so many rows, some at a time."""
    return (slice(start, start + BATCH_ROWS) for start in range(0, rows, BATCH_ROWS))


class PairData:
    """Two columns of a private table, scaled by their public bounds; nothing is read before it is asked for.

    Numbers are mapped from [lower, upper] to [0, 1], ordered levels 0, ..., m - 1 to code / (m - 1). Both maps look at
    one record at a time, so they raise no sensitivity. Rows beyond the memory for rows (``ESCUDO_MEMORY_MB``) are
    mapped from a file without a name.

    **Missing values.** The number of rows never depends on them: a row that lacks x or y stays in its place. ``x`` and
    ``y`` put it at the public midpoint (0.5, 0.5); ``complete`` says which rows have both; ``batches`` shows NaN.

    Args:
        table: The private table.
        x: One column.
        y: The other one.
    """

    def __init__(self, table: PrivateTable, x: str, y: str):
        self._table = table
        self.names = (x, y)

    @property
    def unit(self) -> Unit:
        """Whom the table's guarantees protect."""
        return self._table.unit

    @property
    def max_rows_per_person(self) -> int | None:
        """The most rows of one person that count; None if the unit is the row."""
        return self._table.max_rows_per_person

    @property
    def x(self) -> Floats:
        """The first column, in the table's order, rows that lack a value at the midpoint."""
        return self._filled[:, 0]

    @property
    def y(self) -> Floats:
        """The second column, in the table's order, rows that lack a value at the midpoint."""
        return self._filled[:, 1]

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which rows have both values."""
        return np.logical_not(np.isnan(self._values).any(axis=1))

    @property
    def rows(self) -> int:
        """How many rows were read; public under ``replace_one`` for the row unit only."""
        return len(self._values)

    def batches(self, size: int = BATCH_ROWS) -> Iterator[Batch]:
        """Yield the rows in the table's order without holding all of them."""
        return batches_of(self._table, self.names, size)

    def __repr__(self) -> str:
        return f"PairData{self.names}"

    @cached_property
    def _values(self) -> Floats:
        return held((batch.values for batch in self.batches()), np.empty((0, 2)))

    @cached_property
    def _filled(self) -> Floats:
        parts = (self._values[rows] for rows in slices(self.rows))
        return held(
            (np.where(np.isnan(part).any(axis=1, keepdims=True), 0.5, part) for part in parts), np.empty((0, 2))
        )
