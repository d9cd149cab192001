"""The reports of private answers to causal questions: a direction, a discovered graph, an effect of one column.

Each has the verdict, the released numbers with their noise, the promise, what it cost, and what it does not say. It
reads the answer only, and for a direction simulated curves for planning: nothing looks at the private table again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo._card import fitted, room_for
from escudo.privacy import Guarantee, Plan, cost_text
from escudo.report._page import epsilon_delta, power_of_ten, promise_sentence, render, rounded_up, who_gets_what
from escudo.report._svg import Line, Scale, escaped, lines, percent, svg

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.causal import AncestralGraph, CausalGraph
    from escudo.discovery import AncestralDiscovery, Discovery, TreatmentEffect
    from escudo.orientation import Direction, Orientation, PlanningCurves


# ---- a direction

_METHODS = {
    "votes": "Votes: the rows are cut into disjoint blocks, each block votes once, and the sum of votes is released. "
    "Most pairs get no verdict, also most of those that have a direction: a common cause must hardly ever get one.",
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
    epsilon, delta = epsilon_delta(found.guarantee)
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
        picture=margins(shown[:_MOST_LINES]) if shown else "",
        matrix="" if alone else matrix(_columns(answers), answers),
        scores=[
            {"name": name, "value": _signed(value, digits=4)}
            for name, value in one.scores.items()
            if alone and one.method != "votes"  # theirs are the margin in other words
        ],
        scores_picture=_scores_picture(one) if alone else "",
        scores_mean=one.scores_mean if alone else "",
        votes=_votes(one) if alone else "",
        rows=[_row(answer) for answer in answers],
        notes=list(dict.fromkeys(note for answer in answers for note in answer.notes)) if alone else list(found.notes),
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


def _columns(answers: tuple[Direction, ...]) -> list[str]:
    return list(dict.fromkeys(name for one in answers for name in (one.x, one.y)))


def _title(one: Direction) -> str:
    if one.cause is None:
        return f"{one.x} and {one.y}: cannot tell"
    return f"{one.cause} → {one.effect}"


def _lead(one: Direction) -> str:
    if not one.released:
        return "Nothing was released or spent: at this budget no number could have told the two directions apart."
    turned = percent(1 - one.stability)
    if one.cause is None:
        return (
            f"The released margin does not stand out of chance and noise: its sign would be another one without noise "
            f"with probability {turned}, and where there is no direction to be seen it has one all the same."
        )
    worth = "How often such verdicts are right was not measured."
    if one.probability is not None:
        right = percent(one.probability)
        worth = f"Where one of the two causes the other, such verdicts are right about {right} of the time."
    return (
        f"A model in which {one.cause} causes {one.effect} fits better than the reverse. {worth} The noise that "
        f"protects people has turned this answer around with probability {turned}."
    )


def _lead_of_many(answers: tuple[Direction, ...]) -> str:
    pairs = f"All {len(answers)} pairs of {len(_columns(answers))} columns were asked about under one budget"
    return f"{pairs}; each pair is judged by itself."


def _facts(guarantee: Guarantee, answers: tuple[Direction, ...], rows: int | None) -> list[dict[str, str]]:
    epsilon, delta = epsilon_delta(guarantee)
    aside = f", δ = {delta:g}" if delta else ""
    one = answers[0]
    found = [
        {"name": "privacy loss", "value": f"ε = {rounded_up(epsilon)}", "note": f"for one {guarantee.unit}{aside}"},
        {"name": "method", "value": one.method, "note": one.score},
    ]
    if rows is not None:
        found.insert(0, {"name": "rows", "value": f"{rows:,}", "note": "all of them protected"})
    if len(answers) == 1 and one.released:
        if one.probability is not None:
            worth = percent(one.probability)
            found.append(
                {"name": "probability", "value": worth, "note": "such verdicts are right, if one is the cause"}
            )
        found.append({"name": "stability", "value": percent(one.stability), "note": "same sign without the noise"})
    return found


def _scores_picture(one: Direction) -> Any:
    """Return the two scores of the published method with noise bars: each carries half of the margin's variance."""
    if one.method != "paper" or len(one.scores) != 2:
        return ""
    return noisy_scores(one.scores, one.noise_scale / math.sqrt(2))


def _votes(one: Direction) -> str:
    if one.method != "votes" or one.largest_margin is None or not one.released:
        return ""
    blocks = one.largest_margin
    ahead = min(abs(one.margin), blocks)
    way = (one.x, one.y) if one.margin >= 0 else (one.y, one.x)
    return (
        f"Of {blocks:g} blocks about {ahead:.0f} more voted for {way[0]} → {way[1]} than for the reverse; the others "
        "abstained or cancel each other out (from the noisy margin)."
    )


def _row(one: Direction) -> dict[str, Any]:
    return {
        "pair": f"{one.x}, {one.y}",
        "verdict": f"{one.cause} → {one.effect}" if one.cause is not None else "cannot tell",
        "margin": _signed(one.margin) if one.released else "–",
        "right": "–" if one.probability is None else f"{100 * one.probability:.0f}",
        "stable": f"{100 * one.stability:.1f}" if one.released else "–",
    }


def _tree(plan: Plan, depth: int = 1) -> Any:
    label = plan.name if plan.count == 1 else f"{plan.count} × {plan.name}"
    yield {"depth": min(depth, 3), "name": label, "cost": cost_text(plan.event), "buys": plan.buys}
    for child in plan.children:
        yield from _tree(child, depth + 1)


def _planning(curves: PlanningCurves, epsilon: float) -> dict[str, Any]:
    return {"rows": f"{curves.rows:,}", "chart": probabilities(curves.epsilons, curves.methods, mark=epsilon or None)}


def probabilities(epsilons: Sequence[float], methods: Mapping[str, Sequence[float]], mark: float | None) -> Markup:
    """Return the probability of the right direction against ε, a line for each method; NaN where there is none."""
    xs, low = np.asarray(epsilons), 0.4
    drawn = []
    for name, values in methods.items():
        ys = np.asarray(values)
        known = np.isfinite(ys)
        drawn.append(Line(name, xs[known], np.maximum(ys[known], low)))
    return lines(
        drawn,
        "Probability of the right direction against ε",
        across=Scale(epsilons[0], epsilons[-1], [(x, f"{x:g}") for x in epsilons], logarithmic=True, name="ε"),
        up=Scale(low, 1.0, [(p, f"{p:g}") for p in (0.5, 0.75, 1.0)]),
        mark=mark,
    )


def _details(one: Direction) -> list[tuple[str, str]]:
    found = [
        ("margin, as released", f"{one.margin!r}"),
        ("scale of the noise in it", f"{one.noise_scale:.6g}"),
        ("no verdict unless larger than", f"{one.threshold:.6g}"),
        ("stability: probability that its sign is that without noise", f"{one.stability:.6g}"),
    ]
    if one.probability is not None:
        found.append(("probability that such a verdict is right, if one is the cause", f"{one.probability:.2g}"))
    return found if one.released else []


_NOISE_REACH = math.log(10)
"""Nine times in ten Laplace noise is smaller than this many scales."""


def margins(answers: Sequence[Direction]) -> Markup:
    """Return one line per answer: the released margin, what noise may have done to it, and where there is no verdict.

    Those that released nothing are left out by the caller.
    """
    left, width, row = 150.0, 460.0, 46.0
    alone = len(answers) == 1
    left = 20.0 if alone else left
    middle = left + width / 2
    reach = max(max(abs(one.margin) + _NOISE_REACH * one.noise_scale, one.threshold, 1e-12) for one in answers)
    unit = (width / 2 - 12) / reach
    body = []
    for place, one in enumerate(answers):
        y = 34 + place * row
        if not alone:
            name = fitted(f"{one.x}, {one.y}", left - 18)
            body.append(f'<text x="{left - 10:g}" y="{y + 4:g}" class="end">{escaped(name)}</text>')
        band = one.threshold * unit
        if band:
            body.append(
                f'<rect x="{middle - band:.1f}" y="{y - 13:g}" width="{2 * band:.1f}" height="26" class="band">'
                f"<title>no verdict within ±{one.threshold:.3g}</title></rect>"
            )
        body.append(f'<path d="M{left:g} {y:g}H{left + width:g}" class="axis"/>')
        body.append(f'<path d="M{middle:g} {y - 14:g}v28" class="zero"/>')
        x, noise = middle + one.margin * unit, _NOISE_REACH * one.noise_scale * unit
        body.append(
            f'<path d="M{max(x - noise, left):.1f} {y:g}H{min(x + noise, left + width):.1f}" class="noise"/>'
            f'<circle cx="{x:.1f}" cy="{y:g}" r="6" class="shade"><title>released {one.margin:+.4g}, noise of scale '
            f"{one.noise_scale:.3g}</title></circle>"
            f'<text x="{x:.1f}" y="{y - 12:g}" class="mid">{_signed(one.margin)}</text>'
        )
    foot = 34 + (len(answers) - 1) * row + 34
    first = answers[0]
    ends = (f"{first.y} → {first.x}", f"{first.x} → {first.y}") if alone else ("second → first", "first → second")
    half = width / 2 - 30
    body.append(f'<text x="{left:g}" y="{foot:g}" class="soft">◀ {escaped(fitted(ends[0], half))}</text>')
    body.append(f'<text x="{left + width:g}" y="{foot:g}" class="end soft">{escaped(fitted(ends[1], half))} ▶</text>')
    body.append(f'<text x="{middle:g}" y="{foot:g}" class="mid soft">0</text>')
    return svg(left + width + 16, foot + 10, body, "Released margins with their noise")


def noisy_scores(scores: Mapping[str, float], scale: float) -> Markup:
    """Return one line per released score, with what the Laplace noise of a scale may have done to it."""
    left, width, row, reach = 190.0, 400.0, 40.0, _NOISE_REACH * scale
    low, high = min(scores.values()) - reach, max(scores.values()) + reach
    unit = width / max(high - low, 1e-12)
    body = []
    for place, (name, value) in enumerate(scores.items()):
        y, x = 30 + place * row, left + (value - low) * unit
        body.append(
            f'<text x="{left - 12:g}" y="{y + 4:g}" class="end">{escaped(fitted(name, left - 18))}</text>'
            f'<path d="M{left:g} {y:g}h{width:g}" class="axis"/>'
            f'<path d="M{x - reach * unit:.1f} {y:g}H{x + reach * unit:.1f}" class="noise"/>'
            f'<circle cx="{x:.1f}" cy="{y:g}" r="6" class="shade"/>'
            f'<text x="{x:.1f}" y="{y - 11:g}" class="mid">{_signed(value)}</text>'
        )
    foot = 30 + len(scores) * row
    body.append(f'<text x="{left:g}" y="{foot:g}" class="soft">◀ more likely the right direction</text>')
    return svg(left + width + 30, foot + 10, body, "Released scores with their noise")


def matrix(columns: Sequence[str], answers: Sequence[Direction]) -> Markup:
    """Return a square per pair: an arrow where the row causes the column, darker where the sign is stabler."""
    side, left, top = 46.0, 150.0, 96.0
    body = []
    for place, name in enumerate(columns):
        y = top + place * side + side / 2 + 4
        body.append(f'<text x="{left - 8:g}" y="{y:.1f}" class="end">{escaped(fitted(name, left - 14))}</text>')
        x = left + place * side + side / 2
        body.append(
            f'<text transform="translate({x:.1f} {top - 8:g}) rotate(-45)">{escaped(fitted(name, 110.0))}</text>'
            f'<rect x="{left + place * side + 1:.1f}" y="{top + place * side + 1:.1f}" width="{side - 2:g}" '
            f'height="{side - 2:g}" class="frame"/>'
        )
    at = {name: place for place, name in enumerate(columns)}
    for one in answers:
        for cause, effect in ((one.x, one.y), (one.y, one.x)):
            x, y = left + at[effect] * side, top + at[cause] * side
            told = one.cause == cause
            sure = max(0.0, 2 * one.stability - 1) if told else 0.0
            words = f"{cause} → {effect}" if told else "cannot tell" if one.cause is None else "the other way round"
            body.append(
                f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{side - 2:g}" height="{side - 2:g}" rx="2" '
                f'class="shade" fill-opacity="{0.05 + 0.9 * sure:.2f}"><title>{escaped(words)}</title></rect>'
            )
            if told or one.cause is None:
                kind = "value over" if sure > 0.5 else "value"
                sign = "→" if told else "?"
                body.append(f'<text x="{x + side / 2:.1f}" y="{y + side / 2 + 5:.1f}" class="{kind}">{sign}</text>')
    total = len(columns) * side
    return svg(left + total + 80, top + total + 8, body, "Which column causes which")


def _signed(value: float, *, digits: int = 3) -> str:
    return f"{value:+.{digits}g}".replace("-", "−")


# ---- a discovered graph

_MOST_NODES, _MOST_EDGES = 120, 400
_THIN, _THICK = 0.8, 4.2


def discovery_page(
    found: Discovery | AncestralDiscovery, *, dataset: str = "", known: CausalGraph | None = None
) -> str:
    """Return the report of a discovery as one HTML page.

    Args:
        found: What was found; nothing on the page reads the private table again.
        dataset: What the table is called.
        known: What was known beforehand, for the picture's caption.
    """
    from markupsafe import Markup

    from escudo.discovery import AncestralDiscovery

    graph, guarantee = found.graph, found.guarantee
    drawable = len(graph) <= _MOST_NODES and len(graph.adjacencies) <= _MOST_EDGES
    widths = {pair: _THIN + (_THICK - _THIN) * found.confidence(*pair) for pair in _pairs(graph)}
    notes = {pair: f"{100 * found.confidence(*pair):.0f} %" for pair in widths} if len(widths) <= 25 else {}
    return render(
        "discovery.html.j2",
        kind="Discovery",
        title=f"What causes what in {dataset}" if dataset else "What causes what in a private table",
        lead=_lead_of_discovery(found),
        for_release=guarantee.for_release,
        cannot_tell=_sentence(found.cannot_tell),
        picture=Markup(graph.to_svg(edge_width=widths, edge_labels=notes)) if drawable else "",  # names are escaped
        known=_known(known),
        hidden=isinstance(found, AncestralDiscovery),
        edges=_marked_edges(found) if isinstance(found, AncestralDiscovery) else _edges(found),
        promise=promise_sentence(guarantee),
        plan=str(found.plan),
        notes=found.notes,
        dot=graph.to_text("dot"),
        generating=""
        if isinstance(found, AncestralDiscovery)
        else "\n".join(f"{a} -> {b}" for a, b in found.generating_graph.edges) or "no arrows",
        guarantee=str(guarantee),
        method=found.method,
        rows=f"{found.rows:,}",
    )


def _pairs(graph: CausalGraph | AncestralGraph) -> list[tuple[str, str]]:
    from escudo.causal import AncestralGraph

    if isinstance(graph, AncestralGraph):
        return [(a, b) for a, _, b in graph.edges]
    return [*graph.edges, *graph.undirected_edges]


def _lead_of_discovery(found: Discovery | AncestralDiscovery) -> str:
    from escudo.causal import AncestralGraph

    graph = found.graph
    if not graph.adjacencies:
        return "No edge stands out from the noise."
    count = len(graph.adjacencies)
    sure = sum(found.confidence(*pair) >= 0.9 for pair in graph.adjacencies)
    joined = f"{count} pair{'s' if count > 1 else ''} of {len(graph)} columns"
    if isinstance(graph, AncestralGraph):
        kinds = [kind for _, kind, _ in graph.edges]
        causes, common = kinds.count("->"), kinds.count("<->")
        told = f"{causes} with a cause, {common} with a hidden common cause, {count - causes - common} in part open"
        return (
            f"{joined} depend on each other whatever else is known: {told}; {sure} with a confidence of 90 % or more."
        )
    told = f"{len(graph.edges)} of them with a direction" if graph.edges else "none of them with a direction"
    return f"{joined} depend on each other directly, {told}; {sure} with a confidence of 90 % or more."


def _edges(found: Discovery) -> list[dict[str, Any]]:
    ranked = [(pair, "→") for pair in found.graph.edges] + [(pair, "—") for pair in found.graph.undirected_edges]
    lines = []
    for (a, b), mark in sorted(ranked, key=lambda one: -found.confidence(*one[0])):
        sure, way = found.confidence(a, b), found.direction_confidence.get((a, b))
        lines.append(
            {
                "text": f"{a} {mark} {b}",
                "sure": f"{100 * sure:.1f}",
                "share": sure,
                "way": "" if way is None else f"{100 * way:.1f}",
                "open": "open" if mark == "—" else "known, or voted",
            }
        )
    return lines


def _marked_edges(found: AncestralDiscovery) -> list[dict[str, Any]]:
    ranked = sorted(found.graph.edges, key=lambda edge: -found.confidence(edge[0], edge[2]))
    lines = []
    for (text, _, way), (a, _, b) in zip(found.told, ranked, strict=True):
        sure = found.confidence(a, b)
        lines.append({"text": text, "sure": f"{100 * sure:.1f}", "share": sure, "way": "", "open": way})
    return lines


def _known(known: CausalGraph | None) -> str:
    if known is None:
        return ""
    stated = len({*known.edges, *known.required})
    parts = [f"{stated} arrow{'s' if stated > 1 else ''} stated"] if stated else []
    parts += [f"{len(known.forbidden)} forbidden"] if known.forbidden else []
    parts += [f"{len(known.tiers)} tiers"] if known.tiers else []
    return f"Known beforehand: {', '.join(parts)}" if parts else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# ---- an effect of one column on another

_MOST_DRAWN = 80
_MOST_CONTRASTS = 20
_WIDE, _TALL, _FOOT = 760.0, 30.0, 26.0
_ASSUMED = {
    "back-door": "The graph says what else acts on both. Adjusting for that leaves the effect, if the graph is right.",
    "stated": "What to adjust for was stated by whoever asked. The effect is causal if nothing else acts on both.",
    "trial": "The treatment was assigned by chance, so the groups differ by nothing else.",
}


def treatment_page(
    found: TreatmentEffect, *, graph: CausalGraph | AncestralGraph | None = None, dataset: str = ""
) -> str:
    """Return the report of a treatment effect as one HTML page.

    Args:
        found: The estimate; nothing on the page reads the private table again.
        graph: The causal graph that was assumed, to draw.
        dataset: What the table is called.
    """
    from markupsafe import Markup

    from escudo.discovery import shown

    guarantee = found.guarantee
    epsilon, delta = epsilon_delta(guarantee)
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
        robustness=found.robustness,
        e_values=[
            (f"{one.control} → {one.treated}", shown(one.e_value.estimate), shown(one.e_value.limit))
            for one in found.contrasts[:_MOST_CONTRASTS]
            if one.e_value is not None
        ],
        overlap=found.overlap_sentence,
        arms=[arm.level for arm in found.arms],
        counted=found.counted,
        strata=[
            (one.name, f"{one.share:.1%}", *(f"{share:.1%}" for share in one.arms))
            for one in found.overlap[:_MOST_CONTRASTS]
        ],
        refutations=[(str(one), one.passed) for one in found.refutations],
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
    lines: Sequence[tuple[str, float, tuple[float, float]]], title: str, *, zero: bool = False
) -> Markup:
    """Return values with their intervals, one line each, on a common scale.

    Args:
        lines: What each line is called, its value and its interval.
        title: What the chart shows, for screen readers.
        zero: Whether to mark 0 on the scale.
    """
    from escudo.discovery import shown

    size = 13.0 * 1.12  # names are bold
    left = min(max(room_for(name, size) for name, _, _ in lines), 240.0) + 14
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
        shown_name = escaped(fitted(name, left - 12, size))
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
    return svg(_WIDE, height, body, title)


def _picture(graph: CausalGraph | AncestralGraph | None, found: TreatmentEffect) -> str:
    from escudo.causal import CausalGraph

    if graph is None or len(graph) > _MOST_DRAWN or found.treatment not in graph or found.outcome not in graph:
        return ""
    if isinstance(graph, CausalGraph):
        graph = replace(graph, exposures=frozenset([found.treatment]), outcomes=frozenset([found.outcome]))
    return graph.to_svg(labels={name: f"{name}\nadjusted for" for name in found.adjustment if name in graph})
