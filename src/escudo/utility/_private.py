r"""A few figures about real rows, with noise, so that they may be published beside the synthetic ones.

**What is released.** With n rows and fixed synthetic rows, in one release:

* :math:`n` times the mean total variation over the one-, two- and three-column tables looked at, as far as the schema
  has such tables;
* where there is a categorical column to predict, how many real rows are answered right, on average over targets, by
  learners trained on the synthetic rows; and by always answering the commonest synthetic class;
* :math:`n` itself, where it is not public.

The noise is Laplace's for a pure ε, or Gaussian where the figures are part of a release that has a δ anyway.

**Sensitivity.** One row moves each of them by at most 1, added, removed or replaced. *Proof.* Let c be the counts of a
table, q the synthetic shares, :math:`f(c) = \tfrac12 \sum_j |c_j - n q_j|` with :math:`n = \sum_j c_j`. A row added to
cell k changes the sum by at most :math:`|1 - q_k| + \sum_{j \ne k} q_j = 2 (1 - q_k) \le 2`, so f by at most 1; a row
moved from one cell to another changes two terms by 1 each, so f by at most 1. A row is answered right or not, whatever
the other rows are (learners are functions of the synthetic rows, and add exactly), so sums of right answers move by at
most 1. Means of such functions move by at most 1 too. A person with at most m rows is m
such steps at most, as a pairs with b rows of another in min(a, b) moves and \|a - b\| additions or removals, max(a, b)
in all. Hence k figures move by at most m k in l1 norm, and by at most :math:`m \sqrt k` in l2 norm.

**Whole rows.** Figures are released as integers, :math:`\lfloor (1 - \eta) f + 1/2 \rfloor` with η = 2⁻¹⁰, and divided
by 1 - η afterwards. Neighbours' figures then differ by at most 1 - η before rounding, and by at most 1 as computed in
floating point, whose errors are below :math:`10^{-14} n`, for up to 10¹⁰ rows. As
:math:`\lfloor y + 1 \rfloor = \lfloor y \rfloor + 1`, the integers differ by at most 1. So at most k integers change,
each by one step: what ``changed_cells`` of a Gaussian event states (for one row; a person's rows may add up).

**Intervals.** They are for the noise only. With known n, a figure's share is off by the noise over n. With a noisy N,
:math:`|F / N - f / n| = |e_F - (f / n) e_N| / N`, whose standard deviation is
:math:`\sigma \sqrt{1 + (f / n)^2} / N`.

**Within a release.** A release may pay for figures about itself: generator and private evaluation under one plan. Of
the budget, in zCDP, in which costs add up, a share goes to the figures and the rest to the generator. With μ the
Gaussian privacy that (ε, δ) buys, the generator is prepared for the ε that :math:`\mu \sqrt{1 - share}` costs at δ, and
the figures get Gaussian noise of :math:`\mu \sqrt{share}`. A generator that is not Gaussian throughout may cost more
together with them; then their noise is raised until the accountant's total is at most (ε, δ). The guarantee is the
accountant's total of the plan, which holds for everything in the release: the synthetic rows that the figures are about
were released before, and the account was charged for the whole tree before any noise was drawn. Where the generator
chose bins privately, tables are those of its bins, which were released before, too: the proof above holds for any fixed
cells, and neither the tables' columns nor the noise hang on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from itertools import accumulate
from math import floor, log10, sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, cast, overload

import numpy as np
from numpy.typing import NDArray

from escudo._card import first_of, plain, tracking
from escudo._validate import finite, positive, positive_integer
from escudo.asking import Question, linked, paying, planning, run, verb
from escudo.errors import InputError
from escudo.mechanisms import Purse, gaussian_event, laplace_event
from escudo.privacy import (
    Account,
    Budget,
    GaussianEvent,
    GDPEvent,
    Guarantee,
    LaplaceEvent,
    Neighbours,
    Passes,
    Plan,
    calibrate,
    guarantee_of,
)
from escudo.synthesis import FitOptions, Forecast, Model, Prepared, fitting, neighbours_of
from escudo.table import PRIVATE_BINS, Categorical, LinkedSchema, Numeric, PrivateTable, PrivateTables, Schema
from escudo.utility._fidelity import count_cells, sampling_error, subsets
from escudo.utility._prediction import learner_of
from escudo.utility._rows import EVALUATION_PURPOSE, Rows

if TYPE_CHECKING:
    from escudo.utility._linked import PreparedLinkedFigures, PrivateLinkedEvaluation

Columns = tuple[str, ...]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


TEACHERS = ("logistic", "forest")
"""The learners whose right answers are counted."""

_WAYS = ("one_way", "two_way", "three_way")
_LEARNT = ("accuracy", "baseline")
_SHRINK = 1 - 2.0**-10  # makes room for floating point errors before figures are rounded
_IN_DEVIATIONS = {"gaussian": 1.96, "laplace": 2.12}  # half of a 95 % interval
_MOST_LEARNT = 20_000  # synthetic rows: more of them teach these learners little
_CELLS_AT_A_TIME = 2**24  # of tables that are counted in one pass
_LOUDER = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0, 16.0)  # by how much the figures' noise may be raised
_STEP, _HEAVIEST = 2.0**-16, 2.0**6  # of a learner's inputs and weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateEvaluation:
    """Figures about real rows that were paid for, and may be shown.

    Attributes:
        one_way: Mean total variation over columns: the share of rows in the wrong cell.
        two_way: The same over pairs of columns; None if there is no pair, or all have very large tables.
        three_way: The same over triples.
        accuracy: The share of real rows that learners trained on synthetic rows answer right, mean over targets; None
            without a categorical column to predict.
        baseline: The same for always answering the commonest synthetic class.
        deviation: The standard deviation of the noise in each of these, as a share of the rows.
        intervals: For each figure by name, where it lies without noise, with 95 % confidence.
        chance: For the first three: what two samples of one population, as large as the synthetic table, would give.
        targets: The columns that were predicted.
        guarantee: What this evaluation promises to the people in the table.
        equal_bins: Columns whose bins nobody had chosen: compared in 20 of equal width, into one of which a heavy tail
            falls nearly whole.
    """

    one_way: float
    two_way: float | None
    three_way: float | None
    accuracy: float | None
    baseline: float | None
    deviation: float
    targets: tuple[str, ...]
    guarantee: Guarantee
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    chance: Mapping[str, float] = field(default_factory=dict)
    equal_bins: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, float]:
        """The figures that there are, by name."""
        found = {name: getattr(self, name) for name in (*_WAYS, *_LEARNT)}
        return {name: value for name, value in found.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return plain(self, *_WAYS, *_LEARNT, "deviation", "intervals", "chance", "targets", "guarantee")

    def __str__(self) -> str:
        shares = {name: f"{100 * value:.1f} %" for name, value in self.figures.items()}
        words = {"one_way": "columns", "two_way": "pairs", "three_way": "triples"}
        apart = ", ".join(f"{shares[name]} of {word}" for name, word in words.items() if name in shares)
        text = f"real rows in the wrong cell: {apart}"
        if "accuracy" in shares:
            text += (
                f"; learners trained on synthetic rows answer {shares['accuracy']} of real rows right, the commonest "
                f"class {shares['baseline']}"
            )
        text = f"{text} (noise ±{100 * self.deviation:.2f} points)"
        if not self.equal_bins:
            return text
        return (
            f"{text}. Nobody chose the bins of {first_of(map(repr, self.equal_bins))}: {PRIVATE_BINS} of equal width "
            "were compared, which show little of a heavy tail; with model=, those that its release chose"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}<br><small>{escape(str(self.guarantee))}</small></p>"


@dataclass(frozen=True, slots=True)
class PreparedFigures:
    """What will be released, and with how much noise: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        neighbours: Which tables are neighbours, and what is public about them.
        tables: The tables to compare, by the name of their figure.
        targets: The columns to predict.
        noise: ``epsilon`` of Laplace noise, or ``scale`` of Gaussian noise.
    """

    schema: Schema
    neighbours: Neighbours
    tables: Mapping[str, Sequence[Columns]]
    targets: tuple[str, ...]
    noise: Mapping[str, float]

    @property
    def counted(self) -> bool:
        """Whether the number of rows is released along."""
        known = self.neighbours
        return known.rows is None and (known.relation, known.unit) != ("replace_one", "row")

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the figures, in the order of the release."""
        return (*self.tables, *(_LEARNT if self.targets else ()))

    @property
    def size(self) -> int:
        """How many numbers are released."""
        return len(self.figures) + self.counted

    @property
    def l2_sensitivity(self) -> float:
        """How far one record moves them in l2 norm."""
        return float(np.sqrt(self.size)) * (self.schema.max_rows_per_person or 1)

    @property
    def event(self) -> LaplaceEvent | GaussianEvent:
        """What will be charged."""
        noise: dict[str, Any] = {"integers": True, **self.noise, **self.neighbours.stated}
        if "epsilon" in self.noise:
            return laplace_event(
                self.size, sensitivity=float(self.size * (self.schema.max_rows_per_person or 1)), **noise
            )
        changed = self.size if self.schema.unit == "row" else None
        return gaussian_event(self.size, l2_sensitivity=self.l2_sensitivity, changed_cells=changed, **noise)

    @property
    def plan(self) -> Plan:
        """The leaf of the budget tree."""
        return Plan(EVALUATION_PURPOSE, self.event, buys="how close the rows are, and what can be learnt from them")

    @property
    def passes(self) -> Passes:
        """How often the rows are read: for tables to compare, and for predictions."""
        return Passes(len(_together(self.schema, self.tables)) + 1)

    def count(self, table: PrivateTable, made: Rows) -> ExactFigures:
        """Return the figures without noise: private."""
        return ExactFigures(*exact_figures(table, made, self.tables, self.targets))

    def release(self, exact: ExactFigures, purse: Purse) -> PrivateEvaluation:
        """Add noise to what was counted.

        **Guarantee.** That of ``event``; the sensitivity is proved in the module's docstring.
        """
        values = np.floor(np.array(exact.figures) * _SHRINK + 0.5).astype(np.int64)
        values = np.append(values, exact.rows) if self.counted else values
        event = self.event
        noisy = np.asarray(purse.add(values, event, purpose=EVALUATION_PURPOSE), dtype=np.float64)
        total = float(noisy[-1]) if self.counted else float(self.neighbours.rows or exact.rows)
        return replace(
            self._told(noisy[: len(self.figures)], max(total, 1.0), purse.release(None, event).guarantee),
            chance=MappingProxyType(dict(zip(self.tables, exact.chances, strict=True))),
        )

    def evaluate(self, table: PrivateTable, purse: Purse, synthetic: object) -> PrivateEvaluation:
        """Read synthetic rows, count, and add noise."""
        made = Rows.read(synthetic, self.schema, argument="synthetic")
        return self.release(self.count(table, made), purse)

    def _told(self, noisy: Floats, total: float, guarantee: Guarantee) -> PrivateEvaluation:
        event = self.event
        deviation = (1.0 if isinstance(event, GaussianEvent) else np.sqrt(2.0)) * event.scale / _SHRINK / total
        shares = noisy / _SHRINK / total
        wide = _IN_DEVIATIONS[event.kind] * deviation * np.sqrt(1 + self.counted * np.clip(shares, 0, 1) ** 2)
        low, high, told = (np.clip(ends, 0.0, 1.0).tolist() for ends in (shares - wide, shares + wide, shares))
        found: dict[str, Any] = dict.fromkeys((*_WAYS, *_LEARNT)) | dict(zip(self.figures, told, strict=True))
        return PrivateEvaluation(
            **found,
            deviation=float(deviation),
            intervals=MappingProxyType(dict(zip(self.figures, zip(low, high, strict=True), strict=True))),
            targets=self.targets,
            guarantee=guarantee,
            equal_bins=tuple(x.name for x in self.schema.fields if isinstance(x, Numeric) and x.private),
        )


def prepare_figures(
    schema: Schema, neighbours: Neighbours, targets: int | Sequence[str] = 5, **noise: float
) -> PreparedFigures:
    """Choose what to release from public facts alone; see :func:`evaluate_privately`.

    Args:
        schema: The columns.
        neighbours: Which tables are neighbours, and what is public about them.
        targets: How many categorical columns to predict, the first ones of the schema; or their names.
        noise: The ``epsilon`` that it may cost, under Laplace noise; or the ``scale`` of Gaussian noise on each figure,
            a standard deviation in rows.

    Raises:
        InputError: If an argument is out of range, or scikit-learn is missing.
        RefusedError: If the schema is not confirmed.
    """
    schema.require_confirmed()
    chosen = _choose(schema, targets)
    if chosen:
        learner_of(TEACHERS[0], "class", 0)  # says what to install, before anything is spent
    blank = Rows(schema=schema, codes=np.empty((0, len(schema)), dtype=np.int64), numbers=np.empty((0, len(schema))))
    rng = np.random.default_rng(0)
    looked_at = {
        name: subsets(blank, size, rng) for size, name in enumerate(_WAYS, start=1) if size <= min(3, len(schema))
    }
    return PreparedFigures(
        schema,
        neighbours,
        {name: several for name, several in looked_at.items() if several},
        chosen,
        {name: positive(name, value) for name, value in noise.items()},
    )


class ExactFigures(NamedTuple):
    """Figures in rows, what chance would make of the tables among them, and the number of rows; private."""

    figures: list[float]
    chances: list[float]
    rows: int


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """Figures about synthetic rows, once what they cost is known.

    Attributes:
        figures: What will be released.
        exact: What was counted before anything is spent: an engine that fails then costs nothing. Private.
    """

    figures: PreparedFigures
    exact: ExactFigures | None = field(repr=False)

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.figures.schema

    @property
    def plan(self) -> Plan:
        """The budget tree: one leaf."""
        return self.figures.plan

    def run(self, table: PrivateTable, purse: Purse) -> PrivateEvaluation:
        """Add noise to what was counted."""
        assert self.exact is not None, "counted before"
        return self.figures.release(self.exact, purse)


@overload
def evaluate_privately(
    table: PrivateTable,
    synthetic: object,
    *,
    epsilon: float,
    targets: int | Sequence[str] = ...,
    model: Model | None = ...,
    seed: int | None = ...,
) -> PrivateEvaluation: ...
@overload
def evaluate_privately(
    table: PrivateTables, synthetic: object, *, epsilon: float, seed: int | None = ...
) -> PrivateLinkedEvaluation: ...
@verb
@linked
def evaluate_privately(
    table: PrivateTable | PrivateTables,
    synthetic: object,
    *,
    epsilon: float,
    targets: int | Sequence[str] = 5,
    model: Model | None = None,
    seed: int | None = None,
) -> Any:
    """Measure how useful synthetic rows are, under pure ε, for a public report.

    Numbers are compared by the bins of the table's schema. Where these are left to a release, by those that the release
    of ``model`` chose, as ``release(evaluate=)`` does; without it by 20 of equal width, which the answer then says.

    Args:
        table: The private table; its account is charged before noise is drawn. Where the number of its rows is not
            public, it is released along with the rest.
        synthetic: Synthetic rows, already released; of linked tables a frame for each.
        epsilon: What these figures may cost.
        targets: How many categorical columns to predict, the first ones of the schema; or their names.
        model: The released model that the rows are of, for its bins. Not for linked tables.
        seed: Repeatable noise for tests; marks the result not for release.

    Returns:
        The figures, with their noise and guarantee: a :class:`PrivateEvaluation`, or of linked tables a
        :class:`PrivateLinkedEvaluation`.

    **Guarantee.** ε between the table's neighbours; the sensitivity is proved in the module's docstring, and for linked
    tables in that of ``_linked``.
    """
    described: Schema | LinkedSchema = table.schema
    if isinstance(described, LinkedSchema):
        from escudo.utility._linked import evaluate_linked

        if model is not None:
            raise InputError("model is for one table: linked ones are compared in the bins of their schema.")
        return evaluate_linked(cast(PrivateTables, table), synthetic, epsilon, seed)
    table = cast(PrivateTable, table)
    if model is not None and not (isinstance(model, Model) and set(described) <= set(model.schema)):
        raise InputError("model must be one of this table, with all its columns, such as escudo.load('release/model').")
    table = table if model is None else table.binned_as(model.schema)
    figures = prepare_figures(table.schema, table.neighbours, targets, epsilon=epsilon)
    made = Rows.read(synthetic, table.schema, argument="synthetic")
    return run(_Evaluation(figures, None if planning() else figures.count(table, made)), table, seed=seed)


def _choose(schema: Schema, targets: int | Sequence[str]) -> tuple[str, ...]:
    usable = [column.name for column in schema.fields if isinstance(column, Categorical)] if len(schema) > 1 else []
    if isinstance(targets, int):
        return tuple(usable[: positive_integer("targets", targets)])
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    for name in names:
        if name not in usable:
            raise InputError(f"targets must be categorical columns, predicted from others; {name!r} is not one.")
    if not names:
        raise InputError("targets must name at least one column.")
    return names


# ---- exact figures about real rows, each of which one row moves by at most 1: what noise is added to


def exact_figures(
    table: PrivateTable, made: Rows, tables: Mapping[str, Sequence[Columns]], names: Sequence[str]
) -> tuple[list[float], list[float], int]:
    """Return the exact figures, in rows; what chance would make of the tables; and the number of rows.

    What chance would make of a table is the total variation between two samples as large as the synthetic one. It is
    estimated from the synthetic rows alone, so it is no secret.

    Args:
        table: The private table.
        made: The synthetic rows.
        tables: The tables to compare, by figure; chosen without a look at real rows.
        names: The columns to predict.

    **Guarantee.** None: they are exact. Their sensitivity is proved in the module's docstring.
    """
    groups = _together(made.schema, tables)
    apart: dict[Columns, float] = {}
    chance: dict[Columns, float] = {}
    with tracking("Comparing tables", total=sum(map(len, groups))) as advance:
        for some in groups:
            for columns, real in zip(some, table.counts([list(columns) for columns in some]), strict=True):
                ours = count_cells(made, columns)
                apart[columns] = float(np.abs(real.ravel() - real.sum() * (ours / len(made))).sum() / 2)
                chance[columns] = sampling_error(ours, len(made))
                advance(1)
    figures = [float(np.mean([apart[columns] for columns in several])) for several in tables.values()]
    chances = [float(np.mean([chance[columns] for columns in several])) for several in tables.values()]
    with tracking("Learning from synthetic rows", total=len(names)) as advance:
        learners = {}
        for name in names:
            learners[name] = _learn(made, name)
            advance(1)
    rows, *right = table.sums(partial(_right, made.schema, learners)).tolist()
    answered = [1 + max(len(trained), 1) for _, trained in learners.values()]
    means = np.zeros(2)
    for common, *several in (right[end - size : end] for end, size in zip(accumulate(answered), answered, strict=True)):
        means += np.mean(several), common
    return [*figures, *((means / len(learners)).tolist() if learners else ())], chances, rows


def _right(schema: Schema, learners: Mapping[str, tuple[int, list[Any]]], batches: Iterator[Any]) -> Integers:
    """Return how many rows there are, and of how many each guess is right: the commonest class, and every learner.

    One learner's answer to a row depends on that row alone, so that workers may each ask it about rows of their own.
    """
    sums = np.zeros(1 + sum(1 + max(len(trained), 1) for _, trained in learners.values()), dtype=np.int64)
    for batch in batches:
        codes = batch.astype(np.int64)
        found = [len(codes)]
        for name, (common, trained) in learners.items():
            truth = codes[:, schema.names.index(name)]
            inputs = _inputs(schema, codes, without=name)
            answers = [learner.predict(inputs) == truth for learner in trained] or [truth == common]
            found += [int(answer.sum()) for answer in (truth == common, *answers)]
        sums += found
    return sums


def _together(schema: Schema, tables: Mapping[str, Sequence[Columns]]) -> list[list[Columns]]:
    """Return the tables in groups, each counted in one pass: a single one, unless they have very many cells."""
    groups: list[list[Columns]] = []
    room = 0
    for columns in dict.fromkeys(columns for several in tables.values() for columns in several):
        cells = math.prod(schema.shape(columns))
        if cells > room:
            groups.append([])
            room = _CELLS_AT_A_TIME
        groups[-1].append(columns)
        room -= cells
    return groups


def _learn(made: Rows, target: str) -> tuple[int, list[Any]]:
    """Return the commonest synthetic class of a target, and learners trained on the synthetic rows."""
    codes = made.at_most(_MOST_LEARNT, np.random.default_rng(0)).codes
    known = codes[:, made.schema.names.index(target)]
    common = int(np.bincount(known).argmax())
    if np.unique(known).size == 1:
        return common, []
    inputs = _inputs(made.schema, codes, without=target)
    return common, [_on_a_grid(learner_of(name, "class", 0).fit(inputs, known)) for name in TEACHERS]


def _on_a_grid(learner: Any) -> Any:
    """Return the learner with weights in whole steps, so that its answer to a row depends on that row alone.

    Matrix products add in an order that depends on where a row stands among others. With inputs on [0, 1] and weights
    of at most 2⁶, both in whole steps of 2⁻¹⁶, sums of up to 2¹⁵ products are whole numbers of 2⁻³² of at most 2²¹,
    which floating point adds exactly in any order. Forests compare and count, row by row.
    """
    if hasattr(learner, "coef_"):
        learner.coef_, learner.intercept_ = (
            np.clip(np.rint(weights / _STEP) * _STEP, -_HEAVIEST, _HEAVIEST)
            for weights in (learner.coef_, learner.intercept_)
        )
    return learner


def _inputs(schema: Schema, codes: Integers, *, without: str) -> Floats:
    """Return cells as numbers for a learner: indicators of levels, the place of a numeric cell on [0, 1], in steps."""
    parts = []
    for place, column in enumerate(schema.fields):
        if column.name == without:
            continue
        if isinstance(column, Numeric):
            parts.append(np.rint(codes[:, [place]] / max(column.size - 1, 1) / _STEP) * _STEP)
            if column.missing:
                parts.append((codes[:, [place]] == column.missing_code).astype(np.float64))
        else:
            parts.append((codes[:, [place]] == np.arange(1, column.size)).astype(np.float64))
    return np.hstack(parts)


# ---- a release that pays for figures about itself

Evaluate = Callable[[object], PrivateEvaluation]
"""Takes the synthetic rows that are released, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEvaluated:
    """A generator that knows what it will measure, and the figures about its rows.

    Attributes:
        generator: What was prepared for the rest of the budget.
        figures: What was prepared for the share.
    """

    generator: Prepared
    figures: PreparedFigures | PreparedLinkedFigures

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.generator.schema

    @property
    def plan(self) -> Plan:
        """The generator's budget tree, with a leaf for the figures."""
        plan = self.generator.plan
        return Plan(plan.name, children=[*plan.children, self.figures.plan], delta=plan.delta)

    def paying(
        self, account: Account, plan: Plan, stream: np.random.Generator | None, **terms: Any
    ) -> AbstractContextManager[Account]:
        """Charge a plan as the generator does, which may go on after a stop."""
        return paying(self.generator, account, plan, stream, **terms)

    @property
    def passes(self) -> Passes | None:
        """How often the rows are read: by the generator, for tables to compare, and for predictions."""
        found: Passes | None = getattr(self.generator, "passes", None)
        return None if found is None else found + self.figures.passes

    def forecast(self, rows: int | None) -> Forecast | None:
        """Return how good the generator's rows will be; None where it cannot tell."""
        foretell = getattr(self.generator, "forecast", None)
        return None if foretell is None else foretell(rows)

    def run(self, table: PrivateTable, purse: Purse) -> tuple[Model, Evaluate]:
        """Fit the generator; return its model, with the plan of the whole, and what evaluates its rows, once."""
        model = self.generator.run(table, purse)
        figures: Any = self.figures  # of the kind of tables that the model is of
        if isinstance(figures, PreparedFigures):
            table = table.binned_as(model.schema)
            figures = replace(figures, schema=table.schema)
        return replace(model, plan=purse.plan), partial(figures.evaluate, table, purse)


def prepare_evaluated(
    prepare: Callable[[float], Prepared],
    *,
    share: float,
    epsilon: float,
    delta: float,
    relation: str = "replace_one",
    public_rows: int | None = None,
    targets: int | Sequence[str] = 5,
) -> PreparedEvaluated:
    """Choose what to measure for a generator and for figures about its rows, from public facts alone.

    Args:
        prepare: Prepares the generator for the ε it is given, at the same δ.
        share: Which part of the budget goes to the figures, in zCDP: above 0 and below 1; 0.1 is plenty for most.
        epsilon: What both may cost together.
        delta: With this probability the promise of both may fail.
        relation: The neighbouring relation.
        public_rows: The number of rows, if it is public knowledge.
        targets: Which columns to predict; see :func:`~escudo.utility.evaluate_privately`.

    Returns:
        What :func:`fitting_evaluated` takes; its ``plan`` is the whole tree.

    Raises:
        InputError: If an argument is out of range.
    """

    def figures(schema: Schema) -> PreparedFigures:
        return prepare_figures(schema, neighbours_of(schema, relation, public_rows), targets, scale=1.0)

    return _sharing(prepare, figures, Budget(epsilon, delta), share)


def prepare_linked_evaluated(
    question: Question[Any], schema: LinkedSchema, neighbours: Neighbours, budget: Budget, *, share: float
) -> PreparedEvaluated:
    """Choose what to measure for a model of linked tables and for figures about its people, from public facts alone.

    Args:
        question: What is asked for the model.
        schema: The tables.
        neighbours: Between which tables it promises.
        budget: What both may cost together.
        share: Which part of the budget goes to the figures, in zCDP: above 0 and below 1.

    Raises:
        InputError: If an argument is out of range.
    """
    from escudo.utility._linked import PreparedLinkedFigures

    described: Any = schema  # what is asked of one table is asked of linked ones
    return _sharing(
        lambda epsilon: question.prepare(described, neighbours, Budget(epsilon, budget.delta)),
        lambda _: PreparedLinkedFigures.of(schema, neighbours, scale=1.0),
        budget,
        share,
    )


def _sharing(
    prepare: Callable[[float], Any], figures: Callable[[Any], Any], budget: Budget, share: float
) -> PreparedEvaluated:
    """Give figures their share of the budget, and what makes the rows the rest.

    Args:
        prepare: Prepares the generator for the ε it is given, at the same δ.
        figures: Prepares the figures, with noise of scale 1, for the generator's schema.
        budget: What both may cost together.
        share: Which part goes to the figures, in zCDP.
    """
    part = finite("share", share)
    if not 0 < part < 1:
        raise InputError(
            f"the share of the budget that goes to an evaluation must lie between 0 and 1, such as 0.1; got {share:g}."
        )
    if budget.delta == 0:
        raise InputError("an evaluation within a release has Gaussian noise, which needs a delta above 0.")
    mu = 1 / calibrate(lambda noise: GDPEvent(mu=1 / noise), budget)
    left = guarantee_of(GDPEvent(mu=mu * sqrt(1 - part)), delta=budget.delta).epsilon
    assert left is not None
    generator = prepare(_round_down(left))
    quiet = figures(generator.schema)
    scale = quiet.l2_sensitivity / (mu * sqrt(part))
    for louder in _LOUDER:
        found = PreparedEvaluated(generator=generator, figures=replace(quiet, noise={"scale": scale * louder}))
        total = found.plan.guarantee(budget.delta, max_rows_per_person=generator.schema.max_rows_per_person).epsilon
        if total is not None and total <= budget.epsilon * (1 + 1e-9):
            return found
    raise InputError(
        f"generator {generator.plan.name!r} leaves no room for an evaluation at this budget; give it a smaller share."
    )


def fitting_evaluated(
    prepared: PreparedEvaluated, table: PrivateTable, **how: Unpack[FitOptions]
) -> AbstractContextManager[tuple[Model, Evaluate]]:
    """Run what was prepared: charge the whole plan, fit the generator, and give what evaluates its rows.

    Like :func:`escudo.synthesis.fitting`, which see; the block is the rest of the release. It gives the model, whose
    plan and guarantee are those of the whole; and a function that takes the synthetic rows to be released and returns
    the figures about them, once.
    """
    return fitting(prepared, table, **how)


def _round_down(number: float) -> float:
    """Return a number with four digits, for people to read in the plan.

    >>> _round_down(0.94487), _round_down(12.3456), _round_down(0.5)
    (0.9448, 12.34, 0.5)
    """
    unit = 10.0 ** (3 - floor(log10(number)))
    return floor(number * unit * (1 + 1e-12)) / unit
