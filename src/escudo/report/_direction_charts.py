"""Pictures of a direction: released margins with their noise, probability against ε, and a matrix of pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from escudo.report._charts import escaped, fitted, svg

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.orientation import Direction

__all__ = ["NOISE_REACH", "lines", "margins", "matrix", "noisy_scores"]

NOISE_REACH = math.log(10)
"""Nine times in ten Laplace noise is smaller than this many scales."""

_DASHES = ("", "7 4", "2 3")


def margins(answers: Sequence[Direction], *, title: str) -> Markup:
    """Return one line per answer: the released margin, what noise may have done to it, and where there is no verdict.

    Args:
        answers: From top to bottom; those that released nothing are left out by the caller.
        title: What the picture shows, for screen readers.
    """
    left, width, row = 150.0, 460.0, 46.0
    alone = len(answers) == 1
    left = 20.0 if alone else left
    middle = left + width / 2
    reach = max(max(abs(one.margin) + NOISE_REACH * one.noise_scale, one.threshold, 1e-12) for one in answers)
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
        x, noise = middle + one.margin * unit, NOISE_REACH * one.noise_scale * unit
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
    return svg(left + width + 16, foot + 10, "".join(body), title=title)


def noisy_scores(scores: Mapping[str, float], scale: float, *, title: str) -> Markup:
    """Return one line per released score, with what the noise may have done to it.

    Args:
        scores: The released scores by name.
        scale: Scale of the Laplace noise in each.
        title: What the picture shows, for screen readers.
    """
    left, width, row, reach = 190.0, 400.0, 40.0, NOISE_REACH * scale
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
    return svg(left + width + 30, foot + 10, "".join(body), title=title)


def lines(
    xs: Sequence[float], curves: Mapping[str, Sequence[float]], *, title: str, mark: float | None = None
) -> Markup:
    """Return probabilities against ε on a logarithmic axis, one line per name, told apart by dashes and labels.

    Args:
        xs: Increasing and above 0.
        curves: Probabilities for each x; NaN where there is none.
        title: What the picture shows, for screen readers.
        mark: An ε to mark, if it lies on the axis.
    """
    left, top, width, height = 44.0, 14.0, 430.0, 200.0
    low, high = math.log(xs[0]), math.log(xs[-1])

    def across(x: float) -> float:
        return left + width * (math.log(x) - low) / (high - low)

    def down(p: float) -> float:
        return top + height * (1 - (p - 0.4) / 0.6)

    body = []
    for p in (0.5, 0.75, 1.0):
        body.append(f'<path d="M{left:g} {down(p):.1f}h{width:g}" class="axis"/>')
        body.append(f'<text x="{left - 8:g}" y="{down(p) + 4:.1f}" class="end soft">{p:g}</text>')
    for x in xs:
        body.append(f'<text x="{across(x):.1f}" y="{top + height + 18:g}" class="mid soft">{x:g}</text>')
    body.append(f'<text x="{left + width / 2:g}" y="{top + height + 38:g}" class="mid soft">ε</text>')
    if mark is not None and xs[0] <= mark <= xs[-1]:
        body.append(f'<path d="M{across(mark):.1f} {top:g}v{height:g}" class="mark"/>')
    ends: list[float] = []
    for (name, values), dash in zip(curves.items(), _DASHES, strict=False):
        shown = [(across(x), down(max(p, 0.4))) for x, p in zip(xs, values, strict=True) if math.isfinite(p)]
        if not shown:
            continue
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shown)
        body.append(f'<polyline points="{points}" class="line" stroke-dasharray="{dash}"/>')
        y = shown[-1][1]
        while any(abs(y - other) < 15 for other in ends):
            y += 15
        ends.append(y)
        body.append(f'<text x="{left + width + 8:g}" y="{y + 4:.1f}">{escaped(name)}</text>')
    return svg(left + width + 70, top + height + 46, "".join(body), title=title)


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def matrix(columns: Sequence[str], answers: Sequence[Direction], *, title: str) -> Markup:
    """Return a square per pair: an arrow where the row causes the column, darker where the sign is surer.

    Args:
        columns: The columns, in order.
        answers: Answers for pairs of them.
        title: What the picture shows, for screen readers.
    """
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
            sure = max(0.0, 2 * one.probability_correct - 1) if told else 0.0
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
    return svg(left + total + 80, top + total + 8, "".join(body), title=title)
