r"""How close synthetic linked tables are to the real ones: rows, pairs, what comes next, how many rows, and effects.

**For the custodian** (:func:`linked_evaluation`) every row counts one, and figures are exact. Distances are total
variation, the share of rows in the wrong cell; *what comes next* is that of P(next | row before), weighted by the row
before in the real tables. Effects are what :func:`~escudo.discovery.effect_of` estimates, without noise.

**For everybody** (:func:`evaluate_linked`) they are paid for, and every person with a row has one voice
(:mod:`escudo.table._linked`). Released are, for each kind of tables, :math:`f = \frac12 \sum_j |c_j - n q_j|` on
average over the tables, with c the voices in each cell, :math:`n = \sum_j c_j` and q the synthetic shares; and the
numbers n of those who have a row, and two, and of people where that is private.

*Sensitivity.* One person moves each of these by at most 1. *Proof.* The person's voices are :math:`h \ge 0` with
:math:`s = \sum_j h_j \in [0, 1]` (0 or 1, except of rows of rows). Adding or removing h moves f by at most
:math:`\frac12 \sum_j |h_j - s q_j| \le \frac12 (s + s) \le 1`. Replacing h by h' moves it by at most :math:`\frac12
\sum_j |h_j - h'_j - (s - s') q_j| \le \frac12 (s + s' + |s - s'|) = \max(s, s') \le 1`. Means of such functions move by
at most 1 too, and n by at most 1. So k figures move by at most k in l1 norm, and by √k in l2 norm. They are rounded to
whole people as in ``_private``; n of rows of rows is a whole number of steps, so that it is rounded without an error. ∎
Alone they get Laplace noise and a pure ε; within a release, Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from escudo._card import CUSTODIAN_ONLY, card, plain, plain_for_custodian
from escudo._validate import positive
from escudo.asking import planning, run
from escudo.causal import CausalGraph
from escudo.discovery import prepare_effect
from escudo.errors import InputError, NotIdentifiableError
from escudo.mechanisms import Purse, gaussian_event, laplace_event
from escudo.privacy import GaussianEvent, Guarantee, LaplaceEvent, Neighbours, Passes, Plan
from escudo.synthesis import LinkedModel
from escudo.table import (
    COUNT,
    GAP,
    PREVIOUS,
    START,
    Categorical,
    ChildTable,
    Histories,
    LinkedSchema,
    LinkedTable,
    PrivateTables,
    exactly,
)
from escudo.utility._fidelity import total_variation
from escudo.utility._rows import EVALUATION_PURPOSE, refuse_private

Columns = tuple[str, ...]
Floats = NDArray[np.float64]

KINDS = {
    "people": "columns of people",
    "rows": "columns of rows",
    "pairs": "pairs of columns in one row",
    "people_pairs": "pairs of a column of people and one of rows",
    "row_pairs": "pairs of columns of a row and of its rows",
    "transitions": "what comes next, given the row before",
    "counts": "rows per person",
    "arrows": "pairs along arrows of the graph",
}
"""What is compared, in words."""

_MOST_PAIRS = 400
_WORST = 10
_SHRINK = 1 - 2.0**-10  # makes room for floating point errors before figures are rounded, as in _private
_HALF = 2.12  # half of a 95 % interval of Laplace noise, in standard deviations
_HALF_GAUSSIAN = 1.96


# ---- what is compared


def read_linked(frames: object, schema: LinkedSchema, argument: str = "frames") -> Histories:
    """Return everybody's rows in frames, real or as a model draws them.

    A model's dates are days since the origin, where the origin is no column that it makes.

    Raises:
        InputError: If these are no frames of the schema's tables.
    """
    import narwhals as nw

    if isinstance(frames, Histories):
        return frames
    if isinstance(frames, PrivateTables):
        refuse_private(argument, "PrivateTables", "frames")
    if not isinstance(frames, Mapping) or schema.people not in frames:
        raise InputError(f"{argument} must map each table's name to its frame: {', '.join(schema.tables)}.")
    if schema.origin is not None:
        try:
            names = nw.from_native(frames[schema.people]).collect_schema().names()
        except TypeError:
            names = [schema.origin]  # no frame, as is said below
        if schema.origin not in names:
            schema = schema.made
    return PrivateTables(frames, schema).histories()


def _counted(child: ChildTable, *columns: str) -> LinkedTable:
    """Return the table of columns over the rows of a child, or over its later rows if one is about the row before."""
    later = any(name.endswith(PREVIOUS) or name == f"{child.name}.{GAP}" for name in columns)
    return LinkedTable(view="next" if later else "all", table=child.name, columns=columns, parent=child.parent)


def tables_of(schema: LinkedSchema, graph: CausalGraph | None = None) -> dict[str, list[LinkedTable]]:
    """Return the count tables that are compared, by kind; of very many pairs some, spread evenly."""
    people = [f"{schema.people}.{name}" for name in schema.person.names]
    found: dict[str, list[LinkedTable]] = {kind: [] for kind in KINDS}
    found["people"] = [LinkedTable(view="people", columns=(name,)) for name in people]
    for child in schema.children:
        table = child.name
        own = [f"{table}.{name}" for name in child.schema.names]
        gap, after = f"{table}.{GAP}", child.most > 1
        timed = after and child.order is not None

        counted = partial(_counted, child)
        found["rows"] += [counted(name) for name in (*own, *([gap] if timed else []))]
        found["pairs"] += [counted(*pair) for pair in combinations(own, 2)]
        found["pairs"] += [counted(name, gap) for name in own if timed]
        found["people_pairs"] += [counted(one, name) for one in people for name in own]
        found["transitions"] += [counted(name + PREVIOUS, name) for name in own if after]
        if child.parent:
            above = [f"{child.parent}.{name}" for name in schema.child(child.parent).schema.names]
            found["row_pairs"] += [counted(one, name) for one in above for name in own]
            found["counts"].append(LinkedTable(view="all", table=child.parent, columns=(exactly(table),)))
        else:
            found["counts"].append(LinkedTable(view="people", columns=(exactly(table),)))
        for cause, effect in () if graph is None else graph.edges:
            if effect.startswith(f"{table}.") and schema.table_of(effect) == table:
                found["arrows"] += _along(child, cause, effect, counted(cause, effect))
    if graph is not None:
        found["arrows"] += [LinkedTable(view="people", columns=arrow) for arrow in graph.edges if arrow[1] in people]
    return {kind: _some(several) for kind, several in found.items() if several}


def _along(child: ChildTable, cause: str, effect: str, counted: LinkedTable) -> list[LinkedTable]:
    table = child.name
    if effect == f"{table}.{COUNT}":
        if not child.parent:
            return [LinkedTable(view="people", columns=(cause, effect))]
        counted = replace(counted, table=child.parent, parent="")  # it is a column of rows, of which these are rows
        table = child.parent
        counted = replace(counted, view="next") if cause == f"{table}.{GAP}" else counted
    if START in (cause.removeprefix(f"{table}."), effect.removeprefix(f"{table}.")):
        return [replace(counted, view="first")]
    return [counted]


def _some(tables: list[LinkedTable]) -> list[LinkedTable]:
    step = max(len(tables) / _MOST_PAIRS, 1.0)
    return [tables[int(place * step)] for place in range(min(len(tables), _MOST_PAIRS))]


def apart(real: NDArray[Any], synthetic: NDArray[Any], *, given_first: bool = False) -> float:
    """Return the total variation of two tables of counts.

    Args:
        real: One of them.
        synthetic: The other one.
        given_first: Whether it is that of the last axis given the first, weighted by the first in ``real``.

    >>> apart(np.array([[1, 1], [0, 0]]), np.array([[1, 1], [5, 0]]), given_first=True)
    0.0
    """
    if not given_first:
        return total_variation(real, synthetic)
    weights = real.sum(axis=1) / max(real.sum(), 1)
    rows = [total_variation(a, b) for a, b in zip(real, synthetic, strict=True)]
    return float(weights @ np.array(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedFidelity:
    """How far linked tables are from others: mean total variation, by kind of ``KINDS``.

    Attributes:
        people: Over columns of people.
        rows: Over columns of rows, each row counting one, and the days between them.
        pairs: Over pairs of them in the same row.
        people_pairs: Over pairs of a column of people and one of rows.
        row_pairs: Over pairs of a column of rows and one of rows of these.
        transitions: Of what comes next given the row before, over columns of rows.
        counts: Of the number of rows per person.
        arrows: Over pairs along arrows of a graph.
        worst: The tables that are furthest off.
    """

    people: float | None = None
    rows: float | None = None
    pairs: float | None = None
    people_pairs: float | None = None
    row_pairs: float | None = None
    transitions: float | None = None
    counts: float | None = None
    arrows: float | None = None
    worst: tuple[tuple[Columns, float], ...] = ()


def linked_fidelity(real: Histories, synthetic: Histories, graph: CausalGraph | None = None) -> LinkedFidelity:
    """Compare linked tables, every row counting one.

    **Guarantee.** None: the figures are exact.
    """
    found: dict[str, float] = {}
    every: dict[Columns, float] = {}
    for kind, tables in tables_of(real.schema, graph).items():
        distances = [
            apart(
                real.counts(table, weighted=False),
                synthetic.counts(table, weighted=False),
                given_first=kind == "transitions",
            )
            for table in tables
        ]
        found[kind] = float(np.mean(distances))
        every |= {table.columns: far for table, far in zip(tables, distances, strict=True)}
    worst = sorted(every.items(), key=lambda each: -each[1])[:_WORST]
    return LinkedFidelity(**found, worst=tuple(worst))


# ---- for the custodian


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedEffectFidelity:
    """One effect of a row on the next, in real and in synthetic tables.

    Attributes:
        treatment: The column of the row before.
        outcome: The column of the row, and its level.
        adjustment: What is adjusted for, by the graph.
        real: In the tables that the model was fitted to.
        second: In the real tables held out.
        synthetic: In synthetic ones, mean over them.
    """

    treatment: str
    outcome: str
    adjustment: Columns
    real: float
    second: float
    synthetic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedEvaluation:
    """How close synthetic linked tables are to the real ones. **For the custodian only**: every figure is exact.

    Attributes:
        fidelity: How far the synthetic tables are from the real ones, one for each set of them.
        floor: How far the held-out real tables are from them: there is no point in doing better.
        effects: Effects of a row on the next along the arrows of the model's graph; none without a model.
        people: How many people there are, real and synthetic.
    """

    fidelity: tuple[LinkedFidelity, ...]
    floor: LinkedFidelity
    effects: tuple[LinkedEffectFidelity, ...]
    people: tuple[int, int]

    @property
    def figures(self) -> dict[str, tuple[float, float]]:
        """What was compared: the mean over synthetic tables, and that of the second real sample."""
        found = {}
        for kind in KINDS:
            values, floor = [getattr(one, kind) for one in self.fidelity], getattr(self.floor, kind)
            if floor is not None:
                found[kind] = float(np.mean(values)), float(floor)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        told = plain_for_custodian(self, "fidelity", "floor", "effects", "people")
        for one in (*told["fidelity"], told["floor"]):
            if one["row_pairs"] is None:  # no row has rows of its own
                del one["row_pairs"]
        return told

    def __str__(self) -> str:
        lines = [
            f"{KINDS[kind]:<45} {100 * far:6.2f} % in the wrong cell; a second real sample {100 * floor:.2f} %"
            for kind, (far, floor) in self.figures.items()
        ]
        lines += [
            f"{one.treatment} on {one.outcome}: real {one.real:+.3f}, synthetic {one.synthetic:+.3f}, a second real "
            f"sample {one.second:+.3f}"
            for one in self.effects
        ]
        return "\n".join([*lines, "For the custodian only: these figures read the real rows exactly."])

    def _repr_html_(self) -> str:
        return card(
            "How close the synthetic people are",
            head=("in the wrong cell, %", "synthetic", "second real sample"),
            rows=[
                *((KINDS[kind], f"{100 * a:.2f}", f"{100 * b:.2f}") for kind, (a, b) in self.figures.items()),
                *((f"{x.treatment} on {x.outcome}", f"{x.synthetic:+.3f}", f"{x.second:+.3f}") for x in self.effects),
            ],
            note=CUSTODIAN_ONLY,
        )


def linked_evaluation(
    real_train: object, real_test: object, synthetic: object, schema: LinkedSchema, model: object = None
) -> LinkedEvaluation:
    """Compare synthetic linked tables with real ones, for the custodian.

    Args:
        real_train: The frames that the model was fitted to, by table.
        real_test: Frames of other people.
        synthetic: Synthetic frames, or a list of several sets of them.
        schema: The tables.
        model: The released model, whose arrows and effects are compared.

    **Guarantee.** None: the figures are exact.
    """
    if model is not None and not isinstance(model, LinkedModel):
        raise InputError(f"model must be one of linked tables; got {type(model).__name__}.")
    graph = None if model is None else model.graph
    several = synthetic if isinstance(synthetic, list | tuple) else [synthetic]
    if not several:
        raise InputError("synthetic holds no tables.")
    real, test = (
        read_linked(frames, schema, argument=name)
        for name, frames in (("real_train", real_train), ("real_test", real_test))
    )
    made = [read_linked(frames, schema, argument="synthetic") for frames in several]
    for name, found in (("real_train", real), ("real_test", test), *(("synthetic", one) for one in made)):
        if not found.size:
            raise InputError(f"{name} has no people; there is nothing to compare.")
    return LinkedEvaluation(
        fidelity=tuple(linked_fidelity(real, one, graph) for one in made),
        floor=linked_fidelity(real, test, graph),
        effects=() if graph is None else tuple(_effects(real, test, made, graph)),
        people=(real.size, made[0].size),
    )


def _effects(
    real: Histories, test: Histories, made: Sequence[Histories], graph: CausalGraph
) -> list[LinkedEffectFidelity]:
    schema, found = real.schema, []
    for cause, effect in graph.edges:
        column = schema.column(effect)
        if not cause.endswith(PREVIOUS) or cause == effect + PREVIOUS or not isinstance(column, Categorical):
            continue
        if schema.child(schema.table_of(effect)).parent:
            continue  # of rows of rows no effects are estimated
        try:
            question = prepare_effect(schema, cause, effect, graph=graph, outcome_level=column.levels[-1], epsilon=1.0)
        except NotIdentifiableError:
            continue
        found.append(
            LinkedEffectFidelity(
                treatment=cause,
                outcome=f"{effect} = {column.labels[len(column.levels) - 1]}",
                adjustment=question.inside.table.adjustment,
                real=question.without_noise(real),
                second=question.without_noise(test),
                synthetic=float(np.mean([question.without_noise(one) for one in made])),
            )
        )
    return found


# ---- for everybody, paid for


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateLinkedEvaluation:
    """Figures about real linked tables that were paid for, and may be shown; every person with a row has one voice.

    Attributes:
        figures: Mean total variation by kind of ``KINDS``; of ``transitions`` that of pairs of a row and the next.
        intervals: For each of them, where it lies without noise, with 95 % confidence.
        guarantee: What this evaluation promises to the people in the tables.
    """

    figures: Mapping[str, float]
    guarantee: Guarantee
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return plain(self, "figures", "intervals", "guarantee")

    def __str__(self) -> str:
        told = [
            f"{KINDS[kind] if kind != 'transitions' else 'a row and the next'} {100 * far:.1f} %"
            for kind, far in self.figures.items()
        ]
        return f"people's voices in the wrong cell: {', '.join(told)}"

    def _repr_html_(self) -> str:
        return card(
            "How close the synthetic people are",
            head=("in the wrong cell, %", "", "95 % interval, of the noise"),
            rows=[
                (KINDS[kind], f"{100 * far:.2f}", " to ".join(f"{100 * end:.2f}" for end in self.intervals[kind]))
                for kind, far in self.figures.items()
            ],
            note=str(self.guarantee),
        )


@dataclass(frozen=True, slots=True)
class PreparedLinkedFigures:
    """What will be released, and with how much noise: public, and fixed before a row is read.

    Attributes:
        schema: The tables.
        neighbours: Between which tables it promises.
        noise: The ``epsilon`` that it may cost, under Laplace noise; or the ``scale`` of Gaussian noise, in people.
        tables: The tables that are compared, by kind and by who has such rows.
        exact: Figures and numbers of people, once they were counted: private.
    """

    schema: LinkedSchema
    neighbours: Neighbours
    noise: Mapping[str, float]
    tables: Mapping[tuple[str, str], Sequence[LinkedTable]]
    exact: tuple[Floats, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, schema: LinkedSchema, neighbours: Neighbours, **noise: float) -> PreparedLinkedFigures:
        """Choose what to release from public facts alone.

        Raises:
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        found: dict[tuple[str, str], list[LinkedTable]] = {}
        for kind, tables in tables_of(schema).items():
            for table in tables:
                found.setdefault((kind, f"{table.view} {table.table}".strip()), []).append(table)
        return cls(schema, neighbours, {name: positive(name, value) for name, value in noise.items()}, found)

    @property
    def bases(self) -> tuple[str, ...]:
        """Whose number is released along: of those who have a row, and two, in each table; of people where private."""
        known = {"people"} if self.neighbours.people is not None else set()
        return tuple(sorted({base for _, base in self.tables} - known))

    @property
    def l2_sensitivity(self) -> float:
        """How far one person moves all that is released, in the l2 norm."""
        return math.nextafter(math.sqrt(len(self.tables) + len(self.bases)), math.inf)

    @property
    def event(self) -> LaplaceEvent | GaussianEvent:
        """What will be charged."""
        size, stated = len(self.tables) + len(self.bases), self.neighbours.stated
        if "scale" in self.noise:
            return gaussian_event(
                size, l2_sensitivity=self.l2_sensitivity, scale=self.noise["scale"], integers=True, **stated
            )
        return laplace_event(size, sensitivity=float(size), epsilon=self.noise["epsilon"], integers=True, **stated)

    @property
    def passes(self) -> Passes:
        """How often the rows are read."""
        return Passes(1)

    @property
    def plan(self) -> Plan:
        """The budget tree: one leaf."""
        return Plan(EVALUATION_PURPOSE, self.event, buys="how close synthetic people and their rows are")

    def counted(self, real: PrivateTables, synthetic: Histories) -> PreparedLinkedFigures:
        """Return it with exact figures and numbers of people, which are private."""
        every = [table for tables in self.tables.values() for table in tables]
        bases = [_everybody(self.schema, base) for base in self.bases]
        found, figures = iter(real.counts([*every, *bases])), []
        for tables in self.tables.values():
            far = []
            for table in tables:
                ours, theirs = next(found) / table.steps, synthetic.counts(table) / table.steps
                shares = theirs / max(float(theirs.sum()), 1.0)
                far.append(float(np.abs(ours - ours.sum() * shares).sum() / 2))
            figures.append(float(np.mean(far)))
        numbers = [(2 * next(found).item() + base.steps) // (2 * base.steps) for base in bases]
        return replace(self, exact=(np.array(figures), np.array(numbers, dtype=np.float64)))

    def run(self, table: PrivateTables, purse: Purse) -> PrivateLinkedEvaluation:
        """Add noise to what was counted."""
        return self._released(purse, purse.guarantee)

    def evaluate(self, table: PrivateTables, purse: Purse, synthetic: object) -> PrivateLinkedEvaluation:
        """Read synthetic people, count, and add noise: as a part of a release, of whose plan it is a leaf."""
        made = read_linked(synthetic, self.schema, argument="synthetic")
        own = purse.release(None, self.event).guarantee
        return self.counted(table, made)._released(purse, own)

    def _released(self, purse: Purse, guarantee: Guarantee) -> PrivateLinkedEvaluation:
        figures, numbers = self.exact
        whole = np.concatenate([np.floor(figures * _SHRINK + 0.5), numbers]).astype(np.int64)
        event = self.event
        noisy = np.asarray(purse.add(whole, event, purpose=EVALUATION_PURPOSE), dtype=np.float64)
        totals = dict(zip(self.bases, noisy[len(figures) :].tolist(), strict=True))
        if self.neighbours.people is not None:
            totals["people"] = float(self.neighbours.people)
        gaussian = isinstance(event, GaussianEvent)
        deviation = (1.0 if gaussian else np.sqrt(2.0)) * event.scale / _SHRINK
        parts: dict[str, list[tuple[float, float, int]]] = {}
        for ((kind, base), tables), value in zip(self.tables.items(), noisy[: len(figures)].tolist(), strict=True):
            total = max(totals[base], 1.0)
            share = min(max(value / _SHRINK / total, 0.0), 1.0)
            wide = (
                (_HALF_GAUSSIAN if gaussian else _HALF)
                * deviation
                * float(np.sqrt(1 + (base in self.bases) * share**2))
                / total
            )
            parts.setdefault(kind, []).append((share, wide, len(tables)))
        told, ends = {}, {}
        for kind, several in parts.items():
            shares, widths, weights = zip(*several, strict=True)
            told[kind], half = (float(np.average(each, weights=weights)) for each in (shares, widths))
            ends[kind] = max(told[kind] - half, 0.0), min(told[kind] + half, 1.0)
        return PrivateLinkedEvaluation(
            figures=MappingProxyType(told), intervals=MappingProxyType(ends), guarantee=guarantee
        )


def _everybody(schema: LinkedSchema, base: str) -> LinkedTable:
    """Return the table of one cell that counts people, or those who have a row of a table, or two: their voices."""
    view, _, table = base.partition(" ")
    if view == "people":
        return LinkedTable(view="people", columns=())
    parent = schema.child(table).parent
    return LinkedTable(view="next" if view == "next" else "all", table=table, parent=parent, columns=())


def evaluate_linked(
    tables: PrivateTables, synthetic: object, epsilon: float, seed: int | None
) -> PrivateLinkedEvaluation:
    """Measure how close synthetic linked tables are, under pure ε: see :func:`~escudo.utility.evaluate_privately`."""
    prepared = PreparedLinkedFigures.of(tables.schema, tables.neighbours, epsilon=epsilon)
    if not planning():  # before anything is spent: an engine that fails then costs nothing
        made = read_linked(synthetic, tables.schema, argument="synthetic")
        prepared = prepared.counted(tables, made)
    asked: Any = prepared
    return cast(PrivateLinkedEvaluation, run(asked, cast(Any, tables), seed=seed))
