"""A matrix of pairs as inline SVG: each column by itself on the diagonal, what two of them do together below it.

With real rows to compare, every panel has its twin at its right, in the colour and frame of real data, and every
diagonal a line over its bars: place and shape tell the two apart, and colour only helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from escudo.report._charts import escaped, fitted, length_of, svg

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Axis", "Panel", "pair_plot"]

Floats = NDArray[np.float64]

_SHADES = 12  # steps of one hue: finer ones cannot be told apart
_TWIN = 3.0  # between a panel and its twin


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Axis:
    """One column of a pair plot: its name, its own bars, and what to write along the edges.

    Attributes:
        name: The column's name.
        heights: The heights of its bars, from left to right.
        across: Labels along the bottom, with their places from 0 (left) to 1 (right).
        down: Labels along the side, with their places from 0 (top) to 1 (bottom).
        real: The heights of the real rows' bars, drawn as a line; None without them.
    """

    name: str
    heights: Floats
    across: Sequence[tuple[float, str]]
    down: Sequence[tuple[float, str]]
    real: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """What a pair plot shows where two columns cross: shades, or points.

    Attributes:
        shades: Numbers from 0 to 1, of shape (cells down, cells across); None for points.
        points: Places from 0 to 1, across and upwards, of shape (points, 2); None for shades.
    """

    shades: Floats | None = None
    points: Floats | None = None


def pair_plot(
    axes: Sequence[Axis],
    panels: Mapping[tuple[int, int], Panel],
    *,
    title: str,
    real: Mapping[tuple[int, int], Panel] | None = None,
) -> Markup:
    """Return a matrix of small panels: each column by itself on the diagonal, pairs below it.

    Args:
        axes: The columns.
        panels: For (row, column) with row > column, what is shown there.
        title: What the chart shows, for screen readers.
        real: The same of real rows, drawn at the right of each panel.
    """
    gap, foot = 8.0, 20.0
    if real is None:
        side = float(np.clip(820 / max(len(axes), 1), 70, 130))
        wide = side
    else:
        side = float(np.clip(880 / max(len(axes), 1) / 2 - gap, 38, 96))
        wide = 2 * side + _TWIN
    left = min(max((length_of(label, 11.0) for axis in axes[1:] for _, label in axis.down), default=0.0), 80.0) + 8
    width, height = len(axes) * (wide + gap) - gap, len(axes) * (side + gap) - gap
    body = []
    for place, axis in enumerate(axes):
        x, y = left + place * (wide + gap), place * (side + gap)
        body.append(
            f'<text x="{x + 2:.1f}" y="{y + 13:.1f}" class="name">{escaped(fitted(axis.name, wide - 2))}</text>'
        )
        body.append(_upright(axis, x, y, wide, side))
        if place > 0:
            for at, label in axis.down if len(axis.down) * 11 <= side else _ends(axis.down):
                down = min(max(y + at * side + 4, y + 9), y + side - 1)
                shown = escaped(fitted(label, left - 8, 11.0))
                body.append(f'<text x="{left - 6:.1f}" y="{down:.1f}" class="end tick">{shown}</text>')
        if place < len(axes) - 1 or real is None:
            body.append(_under(axis, x, height + 14, side, wide))
    for (row, column), panel in panels.items():
        x, y = left + column * (wide + gap), row * (side + gap)
        name = f"{axes[row].name} (down), {axes[column].name} (across)"
        body.append(_framed(panel, x, y, side, name=name if real is None else f"{name}: synthetic", kind=""))
        if real is not None:
            twin = x + side + _TWIN
            body.append(_framed(real[row, column], twin, y, side, name=f"{name}: real", kind=" twin"))
    return svg(left + width, height + foot, "".join(body), title=title)


def _ends(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    return [(0.0, labels[0][1]), (1.0, labels[-1][1])]


def _under(axis: Axis, x: float, y: float, side: float, wide: float) -> str:
    """Return the labels along the bottom: all if each has room in its share of the edge, or else the first and last."""
    labels = list(axis.across)
    if any(length_of(label, 11.0) > side / len(labels) - 2 for _, label in labels):
        if wide > side:  # below a panel and its twin there is room for both ends in one
            both = f"{labels[0][1]} … {labels[-1][1]}"
            shown = escaped(both) if length_of(both, 11.0) <= wide + 6 else ""  # the side has the labels, too
            return f'<text x="{x + wide / 2:.1f}" y="{y:.1f}" class="tick mid">{shown}</text>'
        labels = [(at, fitted(label, side / 2 - 2, 11.0)) for at, label in _ends(labels)]
    anchors = ("mid" if 0 < at < 1 else "end" if at == 1 else "" for at, _ in labels)
    return "".join(
        f'<text x="{x + at * side:.1f}" y="{y:.1f}" class="tick {anchor}">{escaped(label)}</text>'
        for (at, label), anchor in zip(labels, anchors, strict=True)
    )


def _framed(panel: Panel, x: float, y: float, side: float, *, name: str, kind: str) -> str:
    inner = _points(panel.points, x, y, side) if panel.points is not None else _shades(panel.shades, x, y, side)
    return (
        f'<g class="panel{kind}"><title>{escaped(name)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" class="frame"/>{inner}</g>'
    )


def _upright(axis: Axis, x: float, y: float, wide: float, side: float) -> str:
    """Return a column's bars, and the line of the real ones over them."""
    step, room = wide / len(axis.heights), side - 20
    most = max(float(np.max(axis.heights)), 0.0 if axis.real is None else float(np.max(axis.real)), 1e-9)
    bars = "".join(
        f"M{x + number * step:.1f} {y + side:.1f}v{-up:.1f}h{max(step - 1, 0.5):.1f}v{up:.1f}z"
        for number, up in enumerate(room * axis.heights / most)
        if up > 0.05
    )
    drawn = f'<path d="{bars}" class="fill"/>'
    if axis.real is not None:
        steps = "".join(
            f"V{y + side - up:.1f}H{x + (number + 1) * step:.1f}" for number, up in enumerate(room * axis.real / most)
        )
        drawn += f'<path d="M{x:.1f} {y + side:.1f}{steps}V{y + side:.1f}" class="real"/>'
    return drawn


def _shades(shades: Floats | None, x: float, y: float, side: float) -> str:
    if shades is None:
        return ""
    tall, wide = (side - 2) / shades.shape[0], (side - 2) / shades.shape[1]
    gap = 1.0 if max(shades.shape) <= 6 else 0.0
    steps = np.rint(np.clip(shades, 0, 1) * _SHADES).astype(int)
    paths = []
    for step in range(1, _SHADES + 1):  # one path for each shade, not one element for each cell
        cells = "".join(
            f"M{x + 1 + column * wide + gap / 2:.1f} {y + 1 + row * tall + gap / 2:.1f}"
            f"h{wide - gap:.1f}v{tall - gap:.1f}h{gap - wide:.1f}z"
            for row, column in np.argwhere(steps == step)
        )
        if cells:
            paths.append(f'<path d="{cells}" class="shade" fill-opacity="{0.85 * step / _SHADES:.2f}"/>')
    return "".join(paths)


def _points(points: Floats, x: float, y: float, side: float) -> str:
    inner = side - 8
    dots = "".join(f"M{x + 4 + inner * across:.1f} {y + 4 + inner * (1 - up):.1f}h0" for across, up in points)
    return f'<path d="{dots}" class="dots"/>'
