"""The page of an evaluation: what learners make of synthetic rows, and how far these are from the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from escudo.report._page import render

if TYPE_CHECKING:
    from escudo.utility import Change, Evaluation

__all__ = ["evaluation_page"]

_FIGURES = (
    ("one_way", "rows in the wrong cell, one column, %", 100.0, 2),
    ("two_way", "two columns, %", 100.0, 2),
    ("three_way", "three columns, %", 100.0, 2),
    ("correlation", "correlations, mean difference", 1.0, 3),
    ("mean", "means, in per cent of the range", 100.0, 2),
    ("deviation", "standard deviations, in per cent of the range", 100.0, 2),
    ("detection", "told apart by a learner, AUC", 1.0, 3),
)


def evaluation_page(found: Evaluation) -> str:
    """Return the evaluation as one HTML page, marked as not for release.

    **Guarantee.** None: the page shows exact figures of the private table.
    """
    return render(
        "evaluation.html.j2",
        kind="For the custodian",
        title="How useful the synthetic rows are",
        lead=_lead(found),
        tables=[
            {"what": what, "rows": [_row(one) for one in found.changes if one.kind == kind], "classes": kind == "class"}
            for kind, what in (("class", "Accuracy"), ("number", "Variance explained"))
            if any(one.kind == kind for one in found.changes)
        ],
        targets=", ".join(found.targets),
        learnt=f"{found.rows:,}",
        runs=len(found.fidelity),
        distances=_distances(found),
        worst=[
            {"pair": " × ".join(pair), "error": f"{100 * error:.2f}"}
            for pair, error in (found.fidelity[0].worst if found.fidelity else ())
        ],
        causal=_causal(found),
    )


def _lead(found: Evaluation) -> str:
    change = next(one for one in found.changes if one.learner == "all")
    what = "accuracy" if change.kind == "class" else "explained variance"
    if not np.isfinite(change.low):
        return f"Learning from synthetic instead of real rows costs {change.change:+.1f} points of {what}."
    return (
        f"Learning from synthetic instead of real rows costs {change.change:+.1f} points of {what} "
        f"(95 % interval {change.low:+.1f} to {change.high:+.1f})."
    )


def _row(change: Change) -> dict[str, Any]:
    return {
        "learner": change.learner,
        "real": f"{change.real:.1f}",
        "synthetic": f"{change.synthetic:.1f}",
        "lost": f"{change.change:+.1f}",
        "interval": f"{change.low:+.1f} to {change.high:+.1f}" if np.isfinite(change.low) else "one value only",
        "over": change.over,
        "baseline": f"{change.baseline:.1f}",
        "balanced": "" if change.balanced is None else f"{change.balanced:+.1f}",
        "auc": "" if change.auc is None else f"{change.auc:+.1f}",
    }


def _distances(found: Evaluation) -> list[dict[str, str]]:
    rows = []
    for name, label, unit, digits in _FIGURES:
        values = [getattr(one, name) for one in found.fidelity]
        floor = getattr(found.floor, name)
        if floor is None or None in values:
            continue
        mean = unit * float(np.mean(values))
        rows.append({"label": label, "synthetic": f"{mean:.{digits}f}", "floor": f"{unit * floor:.{digits}f}"})
    return rows


def _causal(found: Evaluation) -> dict[str, Any] | None:
    if found.causal is None:
        return None
    return {
        "intervention": f"{100 * found.causal.intervention:.2f}",
        "effect": None if found.causal.effect is None else f"{100 * found.causal.effect:.2f}",
        "questions": f"{found.causal.questions:,}",
        "worst": [
            {"question": f"do({cause} = {level}) on {effect}", "error": f"{100 * error:.2f}"}
            for (cause, level, effect), error in found.causal.worst
        ],
    }
