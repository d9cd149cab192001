"""Exact figures about real rows, each of which one row moves by at most 1: what :mod:`._private` adds noise to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo.table import Numeric, PrivateTable, Schema
from escudo.utility._contingency import sampling_error
from escudo.utility._fidelity import counted
from escudo.utility._learners import learner_of
from escudo.utility._rows import Rows

__all__ = ["TEACHERS", "Columns", "exact_figures"]

Columns = tuple[str, ...]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TEACHERS = ("logistic", "forest")
"""The learners whose right answers are counted."""

_MOST_LEARNT = 20_000  # synthetic rows: more of them teach these learners little
_TABLES_AT_A_TIME = 50
_STEP, _HEAVIEST = 2.0**-16, 2.0**6  # of a learner's inputs and weights


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

    **Guarantee.** None: they are exact. Their sensitivity is proved in :mod:`escudo.utility._private`.
    """
    figures, chances = [], []
    steps = sum(-(-len(several) // _TABLES_AT_A_TIME) for several in tables.values())
    with tracking("Comparing tables", total=steps) as advance:
        for several in tables.values():
            apart: list[float] = []
            chance: list[float] = []
            for start in range(0, len(several), _TABLES_AT_A_TIME):
                some = several[start : start + _TABLES_AT_A_TIME]
                for columns, real in zip(some, table.counts([list(columns) for columns in some]), strict=True):
                    ours = counted(made, columns)
                    apart.append(float(np.abs(real.ravel() - real.sum() * (ours / len(made))).sum() / 2))
                    chance.append(sampling_error(ours, len(made)))
                advance(1)
            figures.append(float(np.mean(apart)))
            chances.append(float(np.mean(chance)))
    with tracking("Learning from synthetic rows", total=len(names)) as advance:
        learners = {}
        for name in names:
            learners[name] = _learnt(made, name)
            advance(1)
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
    return [*figures, *((right / len(learners)).tolist() if learners else ())], chances, rows


def _learnt(made: Rows, target: str) -> tuple[int, list[Any]]:
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
