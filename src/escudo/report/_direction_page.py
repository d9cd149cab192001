"""The report of a direction: the verdict, the released numbers with their noise, the promise, and what it does not say.

It reads the answer only, and simulated curves for planning: nothing on the page looks at the private table again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from escudo.privacy import Guarantee, Plan
from escudo.privacy._plan import cost_text
from escudo.report._charts import percent
from escudo.report._direction_charts import lines, margins, matrix, noisy_scores
from escudo.report._page import render
from escudo.report._promise import promise_sentence, rounded_up, stated, who_gets_what

if TYPE_CHECKING:
    from escudo.orientation import Direction, Orientation, PlanningCurves

__all__ = ["direction_page"]

_METHODS = {
    "votes": "Votes: the rows are cut into disjoint blocks, each block votes once, and the sum of votes is released.",
    "gap": "Gap: how much dependence is left in one direction minus that in the other is released.",
    "paper": "The method of “Private Causal Inference” (Kusner et al., 2016): two scores are released.",
}
_MOST_LINES = 30


def direction_page(
    found: Direction | Orientation, *, source: str = "", rows: int | None = None, curves: PlanningCurves | None = None
) -> str:
    """Return the answer for one pair, or for many, as one HTML page.

    Args:
        found: What was released.
        source: The file or dataset it is about.
        rows: The number of rows, if it is public.
        curves: Probabilities on simulated pairs, for planning the next question.

    **Guarantee.** That of ``found``: the page is computed from it and from simulated data.
    """
    answers = _answers(found)
    one = answers[0]
    alone = len(answers) == 1
    shown = [answer for answer in answers if answer.released]
    epsilon, delta = stated(found.guarantee)
    told = [answer for answer in answers if answer.cause is not None]
    return render(
        "direction.html.j2",
        kind="Direction" if alone else "Directions",
        title=_title(one) if alone else f"{len(told)} of {len(answers)} pairs have a direction",
        lead=_lead(one) if alone else _lead_of_many(answers),
        source=source,
        alone=alone,
        seeded=not found.guarantee.for_release,
        facts=_facts(found.guarantee, answers, rows),
        picture=margins(shown[:_MOST_LINES], title="Released margins with their noise") if shown else "",
        matrix="" if alone else matrix(_columns(answers), answers, title="Which column causes which"),
        scores=[
            {"name": name, "value": f"{value:+.4g}".replace("-", "−")}
            for name, value in one.scores.items()
            if alone and one.method != "votes"  # theirs are the margin in other words
        ],
        scores_picture=_scores_picture(one) if alone else "",
        scores_mean=one.scores_mean if alone else "",
        votes=_votes(one) if alone else "",
        rows=[_row(answer) for answer in answers],
        notes=list(dict.fromkeys(note for answer in answers for note in answer.notes))
        if alone
        else list(_notes(found)),
        method=_METHODS.get(one.method, one.method),
        promise=promise_sentence(found.guarantee) if shown else "Nothing was released, so nothing had to be promised.",
        who=who_gets_what(found.guarantee) if shown and epsilon > 0 else [],
        delta=delta,
        tree=list(_tree(found.plan)),
        planning=_planning(curves, epsilon) if curves is not None else None,
        details=_details(one) if alone else [],
    )


def _answers(found: Direction | Orientation) -> tuple[Direction, ...]:
    many: tuple[Direction, ...] | None = getattr(found, "directions", None)
    return (found,) if many is None else many  # type: ignore[return-value] # without that attribute it is one answer


def _notes(found: Any) -> tuple[str, ...]:
    return tuple(getattr(found, "notes", ()))


def _columns(answers: tuple[Direction, ...]) -> list[str]:
    return list(dict.fromkeys(name for one in answers for name in (one.x, one.y)))


def _title(one: Direction) -> str:
    if one.cause is None:
        return f"{one.x} and {one.y}: cannot tell"
    return f"{one.cause} → {one.effect}"


def _lead(one: Direction) -> str:
    if not one.released:
        return "Nothing was released or spent: at this budget no number could have told the two directions apart."
    turned = percent(1 - one.probability_correct)
    if one.cause is None:
        return (
            f"The released margin does not stand out of the noise: its sign would be another one without noise with "
            f"probability {turned}."
        )
    return (
        f"A model in which {one.cause} causes {one.effect} fits better than the reverse. The noise that protects "
        f"people has turned this answer around with probability {turned}."
    )


def _lead_of_many(answers: tuple[Direction, ...]) -> str:
    pairs = f"All {len(answers)} pairs of {len(_columns(answers))} columns were asked about under one budget"
    return f"{pairs}; each pair is judged by itself."


def _facts(guarantee: Guarantee, answers: tuple[Direction, ...], rows: int | None) -> list[dict[str, str]]:
    epsilon, delta = stated(guarantee)
    aside = f", δ = {delta:g}" if delta else ""
    one = answers[0]
    found = [
        {"name": "privacy loss", "value": f"ε = {rounded_up(epsilon)}", "note": f"for one {guarantee.unit}{aside}"},
        {"name": "method", "value": one.method, "note": one.score},
    ]
    if rows is not None:
        found.insert(0, {"name": "rows", "value": f"{rows:,}", "note": "all of them protected"})
    if len(answers) == 1 and one.released:
        sure = {
            "name": "sign of the margin",
            "value": percent(one.probability_correct),
            "note": "sure, noise considered",
        }
        found.append(sure)
    return found


def _scores_picture(one: Direction) -> Any:
    """Return the two scores of the published method with noise bars: each carries half of the margin's variance."""
    if one.method != "paper" or len(one.scores) != 2:
        return ""
    return noisy_scores(one.scores, one.noise_scale / math.sqrt(2), title="Released scores with their noise")


def _votes(one: Direction) -> str:
    if one.method != "votes" or one.largest_margin is None or not one.released:
        return ""
    blocks = one.largest_margin
    ahead = min(max((blocks + one.margin) / 2, 0.0), blocks)
    return (
        f"Of {blocks:g} blocks about {ahead:.0f} voted for {one.x} → {one.y} and {blocks - ahead:.0f} for "
        f"{one.y} → {one.x} (if none abstained; from the noisy margin)."
    )


def _row(one: Direction) -> dict[str, Any]:
    return {
        "pair": f"{one.x}, {one.y}",
        "verdict": f"{one.cause} → {one.effect}" if one.cause is not None else "cannot tell",
        "margin": f"{one.margin:+.3g}".replace("-", "−") if one.released else "–",
        "sure": f"{100 * one.probability_correct:.1f}" if one.released else "–",
    }


def _tree(plan: Plan, depth: int = 1) -> Any:
    label = plan.name if plan.count == 1 else f"{plan.count} × {plan.name}"
    yield {"depth": min(depth, 3), "name": label, "cost": cost_text(plan.event), "buys": plan.buys}
    for child in plan.children:
        yield from _tree(child, depth + 1)


def _planning(curves: PlanningCurves, epsilon: float) -> dict[str, Any]:
    named: dict[str, tuple[float, ...]] = dict(curves.methods)
    return {
        "rows": f"{curves.rows:,}",
        "chart": lines(
            curves.epsilons, named, title="Probability of the right direction against ε", mark=epsilon or None
        ),
    }


def _details(one: Direction) -> list[tuple[str, str]]:
    found = [
        ("margin, as released", f"{one.margin!r}"),
        ("scale of the noise in it", f"{one.noise_scale:.6g}"),
        ("no verdict unless larger than", f"{one.threshold:.6g}"),
        ("probability that its sign is that without noise", f"{one.probability_correct:.6g}"),
    ]
    return found if one.released else []
