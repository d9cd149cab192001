"""The report of a treatment effect: the answer, the arms, what it rests on, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from escudo.report._page import render
from escudo.report._promise import power_of_ten, promise_sentence, rounded_up, stated

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.causal import CausalGraph
    from escudo.discovery import TreatmentEffect

__all__ = ["interval_chart", "treatment_page"]

_MOST_NODES = 80
_MOST_CONTRASTS = 20
_WIDE, _TALL, _FOOT = 760.0, 30.0, 26.0
_ASSUMED = {
    "back-door": "The graph says what else acts on both. Adjusting for that leaves the effect, if the graph is right.",
    "stated": "What to adjust for was stated by whoever asked. The effect is causal if nothing else acts on both.",
    "trial": "The treatment was assigned by chance, so the groups differ by nothing else.",
}


def treatment_page(found: TreatmentEffect, *, graph: CausalGraph | None = None, dataset: str = "") -> str:
    """Return the report of a treatment effect as one HTML page.

    Args:
        found: The estimate; nothing on the page reads the private table again.
        graph: The causal graph that was assumed, to draw.
        dataset: What the table is called.
    """
    from markupsafe import Markup

    from escudo.discovery import shown

    guarantee = found.guarantee
    epsilon, delta = stated(guarantee)
    low, high = map(shown, found.interval)
    arms = [(arm.level, arm.mean, arm.interval) for arm in found.arms]
    pairs = [(f"{one.control} → {one.treated}", one.value, one.interval) for one in found.contrasts]
    facts = [
        ("effect", shown(found.value), f"on {found.meaning}, {found.control} → {found.treated}"),
        (
            f"{found.confidence:.0%} interval",
            f"{low} to {high}",
            "leaves out 0" if found.contrasts[0].sign_known else "holds 0",
        ),
        ("ε", rounded_up(epsilon), f"at δ = {power_of_ten(delta)}" if delta else "with no exception (δ = 0)"),
        (
            "protects",
            f"one {guarantee.unit}",
            "replaced" if guarantee.relation == "replace_one" else "added or removed",
        ),
    ]
    return render(
        "treatment.html.j2",
        kind="Effect",
        title=f"What {found.treatment} does to {found.outcome}",
        lead=found.verdict,
        source=dataset,
        for_release=guarantee.for_release,
        facts=facts,
        warnings=found.warnings,
        treatment=found.treatment,
        meaning=found.meaning[:1].upper() + found.meaning[1:],
        confidence=f"{found.confidence:.0%}",
        arms_chart=interval_chart(arms, title=f"{found.meaning} by level of {found.treatment}"),
        contrasts_chart=interval_chart(pairs[:_MOST_CONTRASTS], title="Differences between levels", zero=True)
        if len(pairs) > 1
        else "",
        assumption=_ASSUMED[found.method],
        picture=Markup(_picture(graph, found)),  # safe: names are escaped where they are drawn
        adjusted=", ".join(found.adjustment) or "nothing",
        notes=found.notes[1:],
        promise=promise_sentence(guarantee),
        plan=str(found.plan),
        estimand=found.estimand,
        numbers=[(arm.level, *map(shown, (arm.mean, *arm.interval)), f"{arm.rows:,}") for arm in found.arms],
        guarantee=str(guarantee),
    )


def interval_chart(
    lines: Sequence[tuple[str, float, tuple[float, float]]], *, title: str, zero: bool = False
) -> Markup:
    """Return values with their intervals, one line each, on a common scale.

    Args:
        lines: What each line is called, its value and its interval.
        title: What the chart shows, for screen readers.
        zero: Whether to mark 0 on the scale.
    """
    from escudo.discovery import shown
    from escudo.report._charts import escaped, fitted, length_of, svg

    left = min(max(length_of(name, 13.0) for name, _, _ in lines), 220.0) + 14
    right = 190.0
    ends = [end for _, _, interval in lines for end in interval] + ([0.0] if zero else [])
    least, most = min(ends), max(ends)
    span = (most - least) or 1.0

    def across(value: float) -> float:
        return left + (value - least) / span * (_WIDE - left - right)

    height = _TALL * len(lines) + _FOOT
    body = []
    if zero:
        body.append(f'<path d="M{across(0):.1f} 0V{height - _FOOT:.1f}" class="zero"/>')
    for number, (name, value, (low, high)) in enumerate(lines):
        y = _TALL * (number + 0.5)
        shown_name = escaped(fitted(name, left - 12, 13.0))
        body.append(
            f'<text x="{left - 12:.1f}" y="{y + 4:.1f}" class="end name">{shown_name}</text>'
            f'<path d="M{across(low):.1f} {y:.1f}H{across(high):.1f}M{across(low):.1f} {y - 5:.1f}v10'
            f'M{across(high):.1f} {y - 5:.1f}v10" class="bound"/>'
            f'<circle cx="{across(value):.1f}" cy="{y:.1f}" r="4.5" class="point"/>'
            f'<text x="{_WIDE - right + 16:.1f}" y="{y + 4:.1f}">{shown(value)}</text>'
            f'<text x="{_WIDE:.1f}" y="{y + 4:.1f}" class="tick end">{shown(low)} to {shown(high)}</text>'
        )
    base = height - 8
    body.append(f'<text x="{left:.1f}" y="{base:.1f}" class="tick">{shown(least)}</text>')
    body.append(f'<text x="{_WIDE - right:.1f}" y="{base:.1f}" class="tick end">{shown(most)}</text>')
    return svg(_WIDE, height, "".join(body), title=title)


def _picture(graph: CausalGraph | None, found: TreatmentEffect) -> str:
    if graph is None or len(graph) > _MOST_NODES or found.treatment not in graph or found.outcome not in graph:
        return ""
    flagged = replace(graph, exposures=frozenset([found.treatment]), outcomes=frozenset([found.outcome]))
    labels = {name: f"{name}\nadjusted for" for name in found.adjustment if name in graph}
    return flagged.to_svg(labels=labels)
