"""What only the custodian may see: how close synthetic rows come, what can be learnt from them, whom they expose.

Each finding is a page of its own, or a section of the custodian's copy of a release's report. All of it reads the
private table again, exactly, and nothing was paid for that. So none of it is part of a release, and it says what it is
on the screen and on every printed page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo.report._look import MOST_CARDS, MOST_MAPPED, column_card, pairs_beside
from escudo.report._page import fragment, render
from escudo.report._svg import heat_map, percent
from escudo.utility import (
    KINDS,
    LinkedEvaluation,
    row_count,
    sampling_error,
    synthetic_table,
    total_variation,
)

if TYPE_CHECKING:
    import polars as pl
    from markupsafe import Markup

    from escudo.attacks import Attack, Score
    from escudo.table import PrivateTable
    from escudo.utility import Change, Evaluation, Rows


def _page(name: str, content: dict[str, Any]) -> str:
    return render(f"{name}.html.j2", kind="For the custodian", **content)


def _section(anchor: str, body: str, content: dict[str, Any]) -> Markup:
    about = {"anchor": anchor, "body": f"{body}_body.html.j2"}
    return fragment("custodian_section.html.j2", **about, **content)


# ---- how close synthetic rows come to the real ones

_MOST_PAIR_CELLS = 2**13
_MOST_TRIPLE_CELLS = 2**16
_MOST_TRIPLES = 56
_WORST = 12

Columns = tuple[str, ...]


def custodian_page(
    table: PrivateTable, synthetic: pl.DataFrame | pl.LazyFrame, *, dataset: str = "", made: datetime
) -> str:
    """Return the comparison of real and synthetic rows as one HTML page, marked as not for release.

    Args:
        table: The private table.
        synthetic: The synthetic rows.
        dataset: What the table is called.
        made: When, in UTC.

    **Guarantee.** None: the page shows exact figures of the private table.
    """
    source = f"{made:%d %B %Y}".lstrip("0")
    return _page("custodian", {"source": source, **_comparison(table, synthetic, dataset)})


def comparison_section(table: PrivateTable, synthetic: pl.DataFrame | pl.LazyFrame, dataset: str) -> Markup:
    """Return the same as a section of the custodian's copy of a release's report."""
    return _section("comparison", "comparison", _comparison(table, synthetic, dataset))


def _comparison(table: PrivateTable, synthetic: pl.DataFrame | pl.LazyFrame, dataset: str) -> dict[str, Any]:
    schema = table.schema
    drawn, count = synthetic_table(synthetic, schema), row_count(synthetic)
    names = list(schema.names[:MOST_MAPPED])
    subsets: list[list[Columns]] = [
        [(name,) for name in names],
        _subsets(table, names, 2, _MOST_PAIR_CELLS),
        _spread(_subsets(table, names, 3, _MOST_TRIPLE_CELLS)),
    ]
    listed = [columns for several in subsets for columns in several]
    real, ours = (dict(zip(listed, each.counts(listed), strict=True)) for each in (table, drawn))
    # The total variation, and what chance alone would give.
    singles, pairs, triples = (
        {each: (total_variation(real[each], ours[each]), sampling_error(real[each], count)) for each in several}
        for several in subsets
    )
    apart = np.full((len(names), len(names)), np.nan)
    for a, b in pairs:
        i, j = names.index(a), names.index(b)
        apart[i, j] = apart[j, i] = 100 * pairs[a, b][0]
    most = float(np.nanmax(apart)) if pairs else 0.0
    charted = names[:MOST_CARDS]
    cards = [column_card(schema[name], ours[name,], real[name,]) for name in charted]
    for card in cards:
        card["note"] = f"{100 * singles[(card['name'],)][0]:.2f}\N{NO-BREAK SPACE}% in the wrong cell"
    levels = [("one", singles), ("two", pairs), ("three", triples)]
    return {
        "title": f"How close the synthetic data come to {dataset or 'the table'}",
        "lead": _comparison_lead(pairs or singles),
        "levels": [_level(number, found) for number, found in levels if found],
        "cards": cards,
        "columns": len(schema.names),
        "mapped": heat_map(
            names, apart, title="Rows in the wrong cell, per cent", most=max(most, 1e-9), decimals=2 if most < 1 else 1
        )
        if pairs
        else "",
        "worst": [
            {
                "pair": " × ".join(columns),
                "error": f"{100 * error:.2f}",
                "chance": f"{100 * chance:.2f}",
                "share": error / max(most / 100, 1e-12),
            }
            for columns, (error, chance) in sorted(pairs.items(), key=lambda item: -item[1][0])[:_WORST]
        ],
        "left_out": math.comb(len(names), 2) - len(pairs),
    }


def _subsets(table: PrivateTable, names: Sequence[str], size: int, most_cells: int) -> list[Columns]:
    sizes = {name: table.schema[name].size for name in names}
    return [chosen for chosen in combinations(names, size) if math.prod(sizes[name] for name in chosen) <= most_cells]


def _spread(subsets: Sequence[Columns]) -> list[Columns]:
    """Return some of the sets, evenly spread over the list."""
    if len(subsets) <= _MOST_TRIPLES:
        return list(subsets)
    return [subsets[place] for place in np.linspace(0, len(subsets) - 1, _MOST_TRIPLES).round().astype(int)]


def _comparison_lead(found: dict[Columns, tuple[float, float]]) -> str:
    error, chance = np.mean(list(found.values()), axis=0)
    size = len(next(iter(found)))
    what = "pair of columns" if size == 2 else "column"
    return (
        f"On average over every {what}, {percent(error)} of the synthetic rows are in another cell than in the real "
        f"table. A second real sample of that size would differ by about {percent(chance)}."
    )


def _level(number: str, found: dict[Columns, tuple[float, float]]) -> dict[str, Any]:
    errors, chances = np.array(list(found.values())).T
    return {
        "number": number,
        "tables": f"{len(found):,}",
        "mean": f"{100 * errors.mean():.2f}",
        "most": f"{100 * errors.max():.2f}",
        "chance": f"{100 * chances.mean():.2f}",
    }


# ---- what can be learnt from synthetic rows

_FIGURES = (
    ("one_way", "rows in the wrong cell, one column, %", 100.0, 2),
    ("two_way", "two columns, %", 100.0, 2),
    ("three_way", "three columns, %", 100.0, 2),
    ("correlation", "correlations, mean difference", 1.0, 3),
    ("mean", "means, in per cent of the range", 100.0, 2),
    ("deviation", "standard deviations, in per cent of the range", 100.0, 2),
    ("detection", "told apart by a learner, AUC", 1.0, 3),
)


def evaluation_page(found: Evaluation | LinkedEvaluation, *, rows: tuple[object, Rows] | None = None) -> str:
    """Return the evaluation as one HTML page, marked as not for release.

    Args:
        found: The evaluation.
        rows: Real rows, or a frame of them, and synthetic ones, to draw pairs of columns side by side.

    **Guarantee.** None: the page shows exact figures of the private table.
    """
    if isinstance(found, LinkedEvaluation):
        return _page("linked_evaluation", _linked_evaluation(found))
    return _page("evaluation", _evaluation(found, rows))


def _linked_evaluation(found: LinkedEvaluation) -> dict[str, Any]:
    real, synthetic = found.people
    return {
        "title": "How close the synthetic people and their rows are",
        "lead": f"{synthetic:,} synthetic people beside {real:,} real ones, with all their rows.",
        "runs": len(found.fidelity),
        "distances": [
            {"label": KINDS[kind], "synthetic": f"{100 * far:.2f}", "floor": f"{100 * floor:.2f}"}
            for kind, (far, floor) in found.figures.items()
        ],
        "worst": [
            {"columns": " × ".join(columns), "error": f"{100 * error:.2f}"}
            for columns, error in found.fidelity[0].worst
        ],
        "effects": [
            {
                "name": f"{one.treatment} on {one.outcome}",
                **{key: f"{getattr(one, key):+.3f}" for key in ("real", "synthetic", "second")},
                "adjusted": ", ".join(one.adjustment) or "nothing",
            }
            for one in found.effects
        ],
    }


def evaluation_section(found: Evaluation, rows: tuple[object, Rows] | None) -> Markup:
    """Return the same as a section of the custodian's copy of a release's report."""
    return _section("utility", "evaluation", _evaluation(found, rows))


def _evaluation(found: Evaluation, rows: tuple[object, Rows] | None) -> dict[str, Any]:
    pairs = None if rows is None else pairs_beside(*rows)
    return {
        "title": "How useful the synthetic rows are",
        "lead": _evaluation_lead(found),
        "tables": [
            {"what": what, "rows": _change_rows(found, kind), "classes": kind == "class"}
            for kind, what in (("class", "Accuracy"), ("number", "Variance explained"))
            if any(one.kind == kind for one in found.changes)
        ],
        "targets": ", ".join(found.targets),
        "learnt": f"{found.rows:,}",
        "runs": len(found.fidelity),
        "distances": _distances(found),
        "paired": [] if pairs is None else pairs[0],
        "pairs": None if pairs is None else pairs[1],
        "all_columns": None if rows is None else len(rows[1].schema),
        "worst": [
            {"pair": " × ".join(pair), "error": f"{100 * error:.2f}"}
            for pair, error in (found.fidelity[0].worst if found.fidelity else ())
        ],
        "causal": _causal(found),
    }


def _evaluation_lead(found: Evaluation) -> str:
    change = next(one for one in found.changes if one.learner == "all")
    what = "accuracy" if change.kind == "class" else "explained variance"
    if not np.isfinite(change.low):
        return f"Learning from synthetic instead of real rows costs {_points(change.change)} points of {what}."
    return (
        f"Learning from synthetic instead of real rows costs {_points(change.change)} points of {what} "
        f"(95 % interval {_points(change.low)} to {_points(change.high)})."
    )


def _change_rows(found: Evaluation, kind: str) -> list[dict[str, Any]]:
    """Return a row for each learner, and one for all of them if they are several."""
    rows = [_change_row(one) for one in found.changes if one.kind == kind]
    return rows[:1] if len(rows) == 2 else rows


def _change_row(change: Change) -> dict[str, Any]:
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


# ---- what an attacker could learn


def attack_page(found: Attack) -> str:
    """Return the attack as one HTML page, beside what the promise allows, marked as not for release.

    **Guarantee.** None: the page is about single people in the private table.
    """
    return _page("attack", _attack(found))


def attack_section(found: Attack) -> Markup:
    """Return the same as a section of the custodian's copy of a release's report."""
    return _section("attack", "attack", _attack(found))


def _attack(found: Attack) -> dict[str, Any]:
    from escudo.effects import show_epsilon

    ceiling = found.ceiling
    return {
        "title": "What an attacker could learn from the synthetic rows",
        "lead": found.verdict,
        "violated": found.violated,
        "promise": None if found.claim is None else str(found.claim),
        "confidence": f"{100 * found.confidence:g}",
        "targets": [
            {
                "label": target.label,
                "bound": show_epsilon(target.audit.epsilon_lower),
                "runs": f"{target.audit.runs:,}",
                "violated": target.audit.violated,
                "best": _percent(max(score.accuracy for score in target.scores)),
            }
            for target in found.targets
        ],
        "scores": [_score_row(score) for score in found.ranked],
        "ceiling": None
        if ceiling is None
        else {
            "accuracy": _percent(ceiling.accuracy),
            "advantage": _percent(ceiling.advantage),
            "auc": f"{ceiling.auc:.3f}",
            "tpr": _percent(ceiling.tpr),
        },
        "relation": "somebody else stands in their place"
        if found.relation == "replace_one"
        else "nobody stands in their place",
        "rest": "stay as they are" if found.rest == "fixed" else "are drawn anew for each fit",
        "shadows": f"{found.shadows:,}",
        "trials": f"{found.trials:,}",
    }


def _score_row(score: Score) -> dict[str, Any]:
    low, high = score.accuracy_interval
    return {
        "features": score.features,
        "classifier": score.classifier,
        "accuracy": _percent(score.accuracy),
        "interval": f"{100 * low:.0f} to {100 * high:.0f}",
        "tpr": _percent(score.tpr),
        "fpr": _percent(score.fpr),
        "auc": "" if math.isnan(score.auc) else f"{score.auc:.3f}",
        "share": min(1.0, max(0.0, 2 * score.accuracy - 1)),
    }


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.1f}"
