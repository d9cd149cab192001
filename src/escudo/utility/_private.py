r"""A few figures about real rows, with noise, so that they may be published beside the synthetic ones.

**What is released.** With n rows and fixed synthetic rows, in one Laplace release:

* :math:`n` times the mean total variation over all one-, two- and three-column tables looked at, three numbers;
* how many real rows are answered right, on average over targets, by learners trained on the synthetic rows; and by
  always answering the commonest synthetic class;
* :math:`n` itself, where it is not public.

**Sensitivity.** One row moves each of them by at most 1, added, removed or replaced. *Proof.* Let c be the counts of a
table, q the synthetic shares, :math:`f(c) = \tfrac12 \sum_j |c_j - n q_j|` with :math:`n = \sum_j c_j`. A row added to
cell k changes the sum by at most :math:`|1 - q_k| + \sum_{j \ne k} q_j = 2 (1 - q_k) \le 2`, so f by at most 1; a row
moved from one cell to another changes two terms by 1 each, so f by at most 1. A row is answered right or not, so sums
of right answers move by at most 1. Means of such functions move by at most 1 too. A person with at most m rows is m
such steps at most, as a pairs with b rows of another in min(a, b) moves and \|a - b\| additions or removals, max(a, b)
in all. Hence L1 is m times the number of figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import positive, positive_integer, whole
from escudo.errors import InputError
from escudo.mechanisms import laplace, laplace_event
from escudo.privacy import Guarantee, LaplaceEvent, Plan, Relation, parse_relation, plannable
from escudo.table import Numeric, PrivateTable, Schema
from escudo.utility._fidelity import counted, subsets
from escudo.utility._learners import learner_of
from escudo.utility._prediction import kind_of
from escudo.utility._rows import Rows

__all__ = ["PrivateEvaluation", "evaluate_privately"]

Integers = NDArray[np.int64]

_FIGURES = ("one_way", "two_way", "three_way", "accuracy", "baseline")
_LEARNERS = ("logistic", "forest")
_PURPOSE = "private evaluation"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateEvaluation:
    """Figures about real rows that were paid for, and may be shown.

    Attributes:
        one_way: Mean total variation over columns: the share of rows in the wrong cell.
        two_way: The same over pairs of columns.
        three_way: The same over triples.
        accuracy: The share of real rows that learners trained on synthetic rows answer right, mean over targets.
        baseline: The same for always answering the commonest synthetic class.
        deviation: The standard deviation of the noise in each of these.
        targets: The columns that were predicted.
        guarantee: What this evaluation promises to the people in the table.
    """

    one_way: float
    two_way: float
    three_way: float
    accuracy: float
    baseline: float
    deviation: float
    targets: tuple[str, ...]
    guarantee: Guarantee

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        figures = {name: value for name, value in asdict(self).items() if name != "guarantee"}
        return {**figures, "targets": list(self.targets), "guarantee": self.guarantee.to_json()}

    def __str__(self) -> str:
        return (
            f"real rows in the wrong cell: {100 * self.one_way:.1f} % of columns, {100 * self.two_way:.1f} % of pairs, "
            f"{100 * self.three_way:.1f} % of triples; learners trained on synthetic rows answer "
            f"{100 * self.accuracy:.1f} % of real rows right, the commonest class {100 * self.baseline:.1f} % "
            f"(noise ±{100 * self.deviation:.2f})"
        )


def _event(
    schema: Schema, *, epsilon: float, relation: str, public_rows: int | None
) -> tuple[LaplaceEvent, Relation, bool]:
    stated = parse_relation(relation)
    paid = public_rows is None and not (stated == "replace_one" and schema.unit == "row")
    size = len(_FIGURES) + paid
    moved = size * (schema.max_rows_per_person or 1)
    event = laplace_event(
        size, sensitivity=moved, epsilon=positive("epsilon", epsilon), relation=stated, unit=schema.unit
    )
    return event, stated, paid


def _plan(
    table: PrivateTable,
    synthetic: object,
    *,
    epsilon: float,
    relation: str = "replace_one",
    public_rows: int | None = None,
    targets: int | Sequence[str] = 5,
    seed: int | None = None,
) -> Plan:
    event, _, _ = _event(table.schema, epsilon=epsilon, relation=relation, public_rows=public_rows)
    return Plan(_PURPOSE, event, buys="how close synthetic rows are, and what can be learnt from them")


@plannable(_plan)
def evaluate_privately(
    table: PrivateTable,
    synthetic: object,
    *,
    epsilon: float,
    relation: str = "replace_one",
    public_rows: int | None = None,
    targets: int | Sequence[str] = 5,
    seed: int | None = None,
) -> PrivateEvaluation:
    """Measure how useful synthetic rows are, under pure ε, for a public report.

    Args:
        table: The private table; its account is charged before noise is drawn.
        synthetic: Synthetic rows, already released.
        epsilon: What these figures may cost.
        relation: The neighbouring relation.
        public_rows: The number of rows, if it is public knowledge; otherwise it is released along with the rest,
            except under ``replace_one`` for rows, where all neighbours have as many.
        targets: How many categorical columns to predict, the first ones of the schema; or their names.
        seed: Repeatable noise for tests; marks the result not for release.

    Returns:
        The figures, with their noise and guarantee.

    **Guarantee.** ε for the stated relation and the schema's unit; the sensitivity is proved in the module's docstring.
    """
    schema = table.schema
    schema.require_confirmed()
    event, stated, paid = _event(schema, epsilon=epsilon, relation=relation, public_rows=public_rows)
    if stated != table.account.relation:
        raise InputError(
            f"the account is kept for relation {table.account.relation!r}; this evaluation asks for {stated!r}."
        )
    made = Rows.read(synthetic, schema, argument="synthetic")
    names = _chosen(made, targets)
    figures, rows = _statistics(table, made, names)
    known = float(rows) if public_rows is None else float(positive_integer("public_rows", public_rows))
    values = np.array([*figures, *([float(rows)] if paid else [])])
    released = laplace(
        values,
        sensitivity=values.size * (schema.max_rows_per_person or 1),
        epsilon=epsilon,
        relation=stated,
        unit=schema.unit,
        max_rows_per_person=schema.max_rows_per_person,
        account=table.account,
        seed=None if seed is None else whole("seed", seed),
        purpose=_PURPOSE,
    )
    noisy = np.asarray(released.value, dtype=np.float64)
    total = max(float(noisy[-1]), 1.0) if paid else known
    shares = np.clip(noisy[: len(_FIGURES)] / total, 0.0, 1.0)
    return PrivateEvaluation(
        **dict(zip(_FIGURES, shares.tolist(), strict=True)),
        deviation=float(np.sqrt(2.0) * event.scale / total),
        targets=names,
        guarantee=released.guarantee,
    )


def _chosen(made: Rows, targets: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(targets, str):
        targets = [targets]
    usable = [name for name in made.schema.names if kind_of(made, name) == "class"]
    if len(made.schema) < 2 or not usable:
        raise InputError("a private evaluation predicts categorical columns from others; the schema has none.")
    if isinstance(targets, int):
        return tuple(usable[: positive_integer("targets", targets)])
    for name in targets:
        if name not in usable:
            raise InputError(f"targets must be categorical columns of the schema; {name!r} is not.")
    if not targets:
        raise InputError("targets must name at least one column.")
    return tuple(targets)


def _statistics(table: PrivateTable, made: Rows, names: Sequence[str]) -> tuple[list[float], int]:
    """Return the exact figures, in rows, and the number of rows. The columns looked at do not depend on real rows."""
    rng = np.random.default_rng(0)
    figures: list[float] = []
    for size in (1, 2, 3):
        chosen = subsets(made, size, rng) if size <= len(made.schema) else []
        real = table.counts([list(columns) for columns in chosen]) if chosen else []
        apart = [
            np.abs(counts.ravel() - counts.sum() * (counted(made, columns) / len(made))).sum() / 2
            for columns, counts in zip(chosen, real, strict=True)
        ]
        figures.append(float(np.mean(apart)) if apart else 0.0)
    learners = {name: _learnt(made, name) for name in names}
    right = np.zeros(2)
    rows = 0
    for batch in table.batches():
        codes = batch.astype(np.int64)
        rows += len(codes)
        for name, (common, trained) in learners.items():
            truth = codes[:, made.schema.names.index(name)]
            inputs = _inputs(made.schema, codes, without=name)
            answers = [learner.predict(inputs) == truth for learner in trained] or [truth == common]
            right += np.mean([answer.sum() for answer in answers]), (truth == common).sum()
    return [*figures, *(right / len(learners)).tolist()], rows


def _learnt(made: Rows, target: str) -> tuple[int, list[Any]]:
    """Return the commonest synthetic class of a target, and learners trained on the synthetic rows."""
    known = made.codes[:, made.schema.names.index(target)]
    common = int(np.bincount(known).argmax())
    if np.unique(known).size == 1:
        return common, []
    inputs = _inputs(made.schema, made.codes, without=target)
    return common, [learner_of(name, "class", 0).fit(inputs, known) for name in _LEARNERS]


def _inputs(schema: Schema, codes: Integers, *, without: str) -> NDArray[np.float64]:
    """Return cells as numbers for a learner: indicators of levels, the place of a numeric cell on [0, 1]."""
    parts = []
    for place, column in enumerate(schema.fields):
        if column.name == without:
            continue
        if isinstance(column, Numeric):
            parts.append(codes[:, [place]] / max(column.size - 1, 1))
            if column.missing:
                parts.append((codes[:, [place]] == column.missing_code).astype(np.float64))
        else:
            parts.append((codes[:, [place]] == np.arange(1, column.size)).astype(np.float64))
    return np.hstack(parts)
