r"""A few figures about real rows, with noise, so that they may be published beside the synthetic ones.

**What is released.** With n rows and fixed synthetic rows, in one release:

* :math:`n` times the mean total variation over the one-, two- and three-column tables looked at, as far as the schema
  has such tables;
* where there is a categorical column to predict, how many real rows are answered right, on average over targets, by
  learners trained on the synthetic rows; and by always answering the commonest synthetic class;
* :math:`n` itself, where it is not public.

The noise is Laplace's for a pure ε, or Gaussian where the figures are part of a release that has a δ anyway
(:mod:`escudo.utility._evaluated`).

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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._validate import positive, positive_integer
from escudo.asking import planning, run, verb
from escudo.errors import InputError
from escudo.mechanisms import Purse, gaussian_event, laplace_event
from escudo.privacy import GaussianEvent, Guarantee, LaplaceEvent, Neighbours, Plan
from escudo.table import Categorical, PrivateTable, Schema
from escudo.utility._fidelity import subsets
from escudo.utility._learners import learner_of
from escudo.utility._real_figures import TEACHERS, Columns, exact_figures
from escudo.utility._rows import Rows

__all__ = ["PURPOSE", "PreparedFigures", "PrivateEvaluation", "evaluate_privately", "prepare_figures"]

Floats = NDArray[np.float64]

PURPOSE = "private evaluation"
"""What the plan and the ledger call it."""

_WAYS = ("one_way", "two_way", "three_way")
_LEARNT = ("accuracy", "baseline")
_SHRINK = 1 - 2.0**-10  # makes room for floating point errors before figures are rounded
_IN_DEVIATIONS = {"gaussian": 1.96, "laplace": 2.12}  # half of a 95 % interval


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

    @property
    def figures(self) -> dict[str, float]:
        """The figures that there are, by name."""
        found = {name: getattr(self, name) for name in (*_WAYS, *_LEARNT)}
        return {name: value for name, value in found.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            **{name: getattr(self, name) for name in (*_WAYS, *_LEARNT)},
            "deviation": self.deviation,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "chance": dict(self.chance),
            "targets": list(self.targets),
            "guarantee": self.guarantee.to_json(),
        }

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
        return f"{text} (noise ±{100 * self.deviation:.2f})"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}<br><small>{escape(str(self.guarantee))}</small></p>"


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return Plan(PURPOSE, self.event, buys="how close the rows are, and what can be learnt from them")

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
        noisy = np.asarray(purse.add(values, event, purpose=PURPOSE), dtype=np.float64)
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
        )


def prepare_figures(
    schema: Schema, neighbours: Neighbours, *, targets: int | Sequence[str] = 5, **noise: float
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
    chosen = _chosen(schema, targets)
    if chosen:
        learner_of(TEACHERS[0], "class", 0)  # says what to install, before anything is spent
    blank = Rows(schema=schema, codes=np.empty((0, len(schema)), dtype=np.int64), numbers=np.empty((0, len(schema))))
    rng = np.random.default_rng(0)
    looked_at = {
        name: subsets(blank, size, rng) for size, name in enumerate(_WAYS, start=1) if size <= min(3, len(schema))
    }
    return PreparedFigures(
        schema=schema,
        neighbours=neighbours,
        tables={name: several for name, several in looked_at.items() if several},
        targets=chosen,
        noise={name: positive(name, value) for name, value in noise.items()},
    )


class ExactFigures(NamedTuple):
    """Figures in rows, what chance would make of the tables among them, and the number of rows; private."""

    figures: list[float]
    chances: list[float]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """Figures about synthetic rows, once what they cost is known.

    Attributes:
        figures: What will be released.
        made: The synthetic rows.
        exact: What was counted before anything is spent: an engine that fails then costs nothing. Private.
    """

    figures: PreparedFigures
    made: Rows
    exact: ExactFigures | None = field(default=None, repr=False)

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


@verb
def evaluate_privately(
    table: PrivateTable,
    synthetic: object,
    *,
    epsilon: float,
    targets: int | Sequence[str] = 5,
    seed: int | None = None,
) -> PrivateEvaluation:
    """Measure how useful synthetic rows are, under pure ε, for a public report.

    Args:
        table: The private table; its account is charged before noise is drawn. Where the number of its rows is not
            public, it is released along with the rest.
        synthetic: Synthetic rows, already released.
        epsilon: What these figures may cost.
        targets: How many categorical columns to predict, the first ones of the schema; or their names.
        seed: Repeatable noise for tests; marks the result not for release.

    Returns:
        The figures, with their noise and guarantee.

    **Guarantee.** ε between the table's neighbours; the sensitivity is proved in the module's docstring.
    """
    figures = prepare_figures(table.schema, table.neighbours, targets=targets, epsilon=epsilon)
    made = Rows.read(synthetic, table.schema, argument="synthetic")
    exact = None if planning() else figures.count(table, made)
    return run(_Evaluation(figures=figures, made=made, exact=exact), table, seed=seed)


def _chosen(schema: Schema, targets: int | Sequence[str]) -> tuple[str, ...]:
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
