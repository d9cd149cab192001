"""A line chart as inline SVG: something that grows with runs, and the level that decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from escudo.report._charts import escaped, svg

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Line", "lines"]

Floats = NDArray[np.float64]

_WIDTH, _HEIGHT = 460.0, 220.0
_LEFT, _TOP, _RIGHT, _FOOT = 52.0, 14.0, 16.0, 34.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """One line: its points, from left to right.

    Attributes:
        name: What it shows.
        x: Numbers of runs, above 0.
        y: Heights.
        kind: The style: ``main``, or ``second``.
    """

    name: str
    x: Floats
    y: Floats
    kind: str = "main"


def lines(
    drawn: Sequence[Line],
    *,
    title: str,
    level: float | None = None,
    level_name: str = "",
    powers: bool = False,
    floor: tuple[float, float] | None = None,
) -> Markup:
    """Return lines over numbers of runs, on a logarithmic scale where these span much.

    Args:
        drawn: The lines.
        title: What the chart shows, for screen readers.
        level: A height that matters, drawn across.
        level_name: What it is.
        powers: Whether heights are powers of ten.
        floor: Heights that the axis covers at least.
    """
    xs = np.concatenate([np.maximum(line.x, 1.0) for line in drawn]) if drawn else np.ones(1)
    ys = np.concatenate([line.y for line in drawn]) if drawn else np.zeros(1)
    xs, ys = (xs, ys) if xs.size else (np.ones(1), np.zeros(1))
    wide = xs.max() > 50 * xs.min()
    low_x, high_x = (0.0, float(xs.max())) if not wide else (float(np.log10(xs.min())), float(np.log10(xs.max())))
    covered = [*(floor or ()), float(ys.min()), float(ys.max())]
    low, high = min(covered), max(covered)
    high = high if high > low else low + 1.0

    def across(x: float) -> float:
        place = math.log10(max(x, 1.0)) if wide else x
        return float(_LEFT + (place - low_x) / max(high_x - low_x, 1e-9) * (_WIDTH - _LEFT - _RIGHT))

    def down(y: float) -> float:
        return float(_TOP + (high - y) / (high - low) * (_HEIGHT - _TOP - _FOOT))

    body = []
    for tick in _ticks(low, high, whole=powers):
        shown = _power(tick) if powers else f"{tick:.3g}"
        body.append(f'<path d="M{_LEFT:g} {down(tick):.1f}H{_WIDTH - _RIGHT:g}" class="axis"/>')
        body.append(f'<text x="{_LEFT - 8:g}" y="{down(tick) + 4:.1f}" class="end tick">{shown}</text>')
    marks = [10.0**p for p in range(math.ceil(low_x), math.floor(high_x) + 1)] if wide else _ticks(0.0, high_x)
    for place, tick in enumerate(marks[:: -(-len(marks) // 6) or 1]):
        anchor = "mid" if place and across(tick) < _WIDTH - 40 else "end" if place else "mid"
        body.append(
            f'<text x="{across(tick):.1f}" y="{_HEIGHT - 14:g}" class="tick {anchor}">{escaped(f"{tick:,.0f}")}</text>'
        )
    body.append(f'<text x="{_WIDTH - _RIGHT:g}" y="{_HEIGHT - 1:g}" class="end tick">runs</text>')
    if level is not None:
        y = down(level)
        body.append(f'<path d="M{_LEFT:g} {y:.1f}H{_WIDTH - _RIGHT:g}" class="level"/>')
        body.append(f'<text x="{_LEFT + 6:g}" y="{y - 6:.1f}" class="level-name">{escaped(level_name)}</text>')
    for line in drawn:
        points = _thinned([(across(float(x)), down(float(y))) for x, y in zip(line.x, line.y, strict=True)])
        if points:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            body.append(f'<path d="M{path}" class="line {line.kind}"/>')
            x, y = points[-1]
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="end-dot"/>')
    return svg(_WIDTH, _HEIGHT, "".join(body), title=title)


def _ticks(low: float, high: float, *, whole: bool = False, most: int = 6) -> list[float]:
    """Return round numbers between two bounds.

    >>> _ticks(0.0, 1.2), _ticks(-1.0, 7.3, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2], [0.0, 2.0, 4.0, 6.0])
    """
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(max(raw, 1e-12)))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw - 1e-12)
    step = max(1.0, round(step)) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) + 0.0 for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _power(exponent: float) -> str:
    if abs(exponent) <= 3:
        return f"{10**exponent:,.6g}"
    return f'10<tspan dy="-4" font-size="8">{exponent:.0f}</tspan>'


def _thinned(points: list[tuple[float, float]], most: int = 400) -> list[tuple[float, float]]:
    step = -(-len(points) // most) or 1
    return [*points[:-1:step], points[-1]] if points else []
