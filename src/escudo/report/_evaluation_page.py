"""The page of an evaluation: what learners make of synthetic rows, and how far these are from the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from escudo.report._look import pairs_beside
from escudo.report._page import fragment, render

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.utility import Change, Evaluation, Rows

__all__ = ["evaluation_page", "evaluation_section"]

_TITLE = "How useful the synthetic rows are"
_FIGURES = (
    ("one_way", "rows in the wrong cell, one column, %", 100.0, 2),
    ("two_way", "two columns, %", 100.0, 2),
    ("three_way", "three columns, %", 100.0, 2),
    ("correlation", "correlations, mean difference", 1.0, 3),
    ("mean", "means, in per cent of the range", 100.0, 2),
    ("deviation", "standard deviations, in per cent of the range", 100.0, 2),
    ("detection", "told apart by a learner, AUC", 1.0, 3),
)


def evaluation_page(found: Evaluation, *, rows: tuple[Rows, Rows] | None = None) -> str:
    """Return the evaluation as one HTML page, marked as not for release.

    Args:
        found: The evaluation.
        rows: Real and synthetic rows, to draw pairs of columns side by side.

    **Guarantee.** None: the page shows exact figures of the private table.
    """
    return render("evaluation.html.j2", kind="For the custodian", title=_TITLE, **_content(found, rows))


def evaluation_section(found: Evaluation, *, rows: tuple[Rows, Rows] | None = None) -> Markup:
    """Return the same as a section of the custodian's copy of a release's report."""
    body = "evaluation_body.html.j2"
    return fragment("custodian_section.html.j2", anchor="utility", title=_TITLE, body=body, **_content(found, rows))


def _content(found: Evaluation, rows: tuple[Rows, Rows] | None) -> dict[str, Any]:
    pairs = None if rows is None else pairs_beside(*rows)
    return {
        "lead": _lead(found),
        "tables": [
            {"what": what, "rows": _rows(found, kind), "classes": kind == "class"}
            for kind, what in (("class", "Accuracy"), ("number", "Variance explained"))
            if any(one.kind == kind for one in found.changes)
        ],
        "targets": ", ".join(found.targets),
        "learnt": f"{found.rows:,}",
        "runs": len(found.fidelity),
        "distances": _distances(found),
        "paired": [] if pairs is None else pairs[0],
        "pairs": None if pairs is None else pairs[1],
        "all_columns": None if rows is None else len(rows[0].schema),
        "worst": [
            {"pair": " × ".join(pair), "error": f"{100 * error:.2f}"}
            for pair, error in (found.fidelity[0].worst if found.fidelity else ())
        ],
        "causal": _causal(found),
    }


def _lead(found: Evaluation) -> str:
    change = next(one for one in found.changes if one.learner == "all")
    what = "accuracy" if change.kind == "class" else "explained variance"
    if not np.isfinite(change.low):
        return f"Learning from synthetic instead of real rows costs {_points(change.change)} points of {what}."
    return (
        f"Learning from synthetic instead of real rows costs {_points(change.change)} points of {what} "
        f"(95 % interval {_points(change.low)} to {_points(change.high)})."
    )


def _rows(found: Evaluation, kind: str) -> list[dict[str, Any]]:
    """Return a row for each learner, and one for all of them if they are several."""
    rows = [_row(one) for one in found.changes if one.kind == kind]
    return rows[:1] if len(rows) == 2 else rows


def _row(change: Change) -> dict[str, Any]:
    return {
        "learner": change.learner,
        "real": _points(change.real),
        "synthetic": _points(change.synthetic),
        "lost": _points(change.change),
        "interval": f"{_points(change.low)} to {_points(change.high)}" if np.isfinite(change.low) else "one value only",
        "over": change.over,
        "baseline": f"{change.baseline:.1f}",
        "balanced": "" if change.balanced is None else _points(change.balanced),
        "auc": "" if change.auc is None else _points(change.auc),
    }


def _points(number: float) -> str:
    """Return percentage points for people, with no sign on nothing.

    >>> _points(-0.04), _points(1.26), _points(-2.0)
    ('0.0', '1.3', '−2.0')
    """
    return f"{round(number, 1) + 0.0:.1f}".replace("-", "−")


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
