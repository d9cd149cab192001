"""Charts as inline SVG, drawn by hand: bars, histograms, heat maps, intervals, lines and a matrix of pairs.

Colours come from the page's own style, so that a chart follows its light, dark or printed form. Shades are one hue;
what a second series shows is told by place and shape as well, and colour only helps. Every text is escaped where it is
written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from escudo._card import fitted, printable, room_for

if TYPE_CHECKING:
    from markupsafe import Markup

Floats = NDArray[np.float64]


_WIDTH = 260.0
_TWO = 2  # ends of an axis
_THIN = 3.0  # the narrowest bin
_ROW = 21.0
_DASHES = ("", "7 4", "2 3")


# ---- what every chart is made of


def svg(width: float, height: float, body: Sequence[str], title: str) -> Markup:
    """Return a chart from its parts, in which every text is escaped already; the title is for screen readers."""
    from markupsafe import Markup

    return Markup(
        f'<svg class="chart" role="img" aria-label="{escaped(title)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}">{"".join(body)}</svg>'
    )  # safe: every text in it went through escaped


def escaped(text: str) -> str:
    """Return a text for a chart, with a mark for what cannot be drawn."""
    from markupsafe import escape

    return str(escape(printable(text)))


def percent(share: float) -> str:
    """Return a share for people.

    >>> percent(0.12345).replace("\N{NO-BREAK SPACE}", " ")
    '12.3 %'
    """
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


# ---- bars, histograms and heat maps


def bars(labels: Sequence[str], shares: Sequence[float], title: str, *, real: Sequence[float] | None = None) -> Markup:
    """Return one horizontal bar per label, with its share in figures.

    Args:
        labels: What the bars stand for, from top to bottom.
        shares: How long they are.
        title: What the chart shows, for screen readers.
        real: Shares to compare with, drawn as upright marks.
    """
    widest = max(room_for(label, 12.0) for label in labels)
    left, right = min(widest, 96.0) + 10, 54.0
    room = _WIDTH - left - right
    most = max([*shares, *(real or ()), 1e-9])
    body = []
    for place, (label, share) in enumerate(zip(labels, shares, strict=True)):
        top = place * _ROW
        body.append(
            f'<text x="{left - 8:g}" y="{top + 14:g}" class="end"><title>{escaped(label)}</title>'
            f"{escaped(fitted(label, left - 8))}</text>"
            f'<rect x="{left:g}" y="{top + 4:g}" width="{room * share / most:.1f}" height="12" rx="2" class="fill"/>'
            f'<text x="{_WIDTH:g}" y="{top + 14:g}" class="end soft">{percent(share)}</text>'
        )
        if real is not None:
            x = left + room * real[place] / most
            body.append(f'<path d="M{x:.1f} {top + 1:g}v18" class="real"/>')
    return svg(_WIDTH, _ROW * len(labels), body, title)


def histogram(
    edges: Floats, shares: Floats, title: str, *, ends: tuple[str, str], real: Floats | None = None
) -> Markup:
    """Return the density of a numeric column over its bins, with the two bounds below.

    Args:
        edges: Bin boundaries; a bin of a single number is drawn wide enough to be seen.
        shares: The share of each bin; heights are shares over widths.
        title: What the chart shows, for screen readers.
        ends: The lower and upper bound, in words.
        real: Shares to compare with, drawn as a line.
    """
    height, foot = 96.0, 20.0
    widths = np.maximum(np.diff(edges) / (edges[-1] - edges[0]) * _WIDTH, _THIN)
    across = np.append(0.0, np.cumsum(widths)) * (_WIDTH / widths.sum())
    widths = np.diff(across)
    tall = shares / widths
    other = None if real is None else real / widths
    most = max(float(tall.max()), 0.0 if other is None else float(other.max()), 1e-12)
    gap = 1.0 if widths.min() > 3 else 0.0
    body = [
        f'<rect x="{x:.1f}" y="{height * (1 - up / most):.1f}" width="{max(wide - gap, 0.3):.1f}" '
        f'height="{height * up / most:.1f}" class="fill"/>'
        for x, wide, up in zip(across, widths, tall, strict=False)
        if up > 0
    ]
    if other is not None:
        steps = [f"V{height * (1 - up / most):.1f}H{x:.1f}" for x, up in zip(across[1:], other, strict=True)]
        body.append(f'<path d="M0 {height:g}{"".join(steps)}" class="real"/>')
    body.append(f'<path d="M0 {height + 0.5:g}H{_WIDTH:g}" class="axis"/>')
    body.append(f'<text x="0" y="{height + 16:g}" class="soft">{escaped(ends[0])}</text>')
    body.append(f'<text x="{_WIDTH:g}" y="{height + 16:g}" class="end soft">{escaped(ends[1])}</text>')
    return svg(_WIDTH, height + foot, body, title)


def heat_map(names: Sequence[str], values: Floats, title: str, *, most: float = 1.0, decimals: int = 2) -> Markup:
    """Return the lower triangle of a symmetric matrix as shaded squares.

    Args:
        names: The columns.
        values: Shape (columns, columns); only what lies below the diagonal is shown. NaN for a pair left out.
        title: What the chart shows, for screen readers.
        most: The value that gets the full shade.
        decimals: How many are written, in the squares where they fit and in what the pointer shows.
    """
    count = len(names)
    side = float(np.clip(640 / max(count, 1), 10, 46))
    size = min(13.0, side - 0.5)
    left = max(room_for(name, size) for name in names) if count else 0.0
    left = min(left, 170.0) + 10
    # Names of columns start on the diagonal and run up to the right, into the empty half.
    slant = min(max((room_for(name, size) for name in names), default=0.0), 150.0) * 0.71 + side / 2
    up = max(0.0, slant - side)
    body = []
    for row in range(1, count):
        y = up + row * side
        body.append(
            f'<text x="{left - 6:.1f}" y="{y + side / 2 + size / 3:.1f}" class="end" style="font-size:{size:.1f}px">'
            f"{escaped(fitted(names[row], left - 10, size))}</text>"
        )
        for column in range(row):
            value = float(values[row, column])
            if np.isfinite(value):
                body.append(_square(left + column * side, y, side, value, most, decimals, (names[row], names[column])))
    for column in range(count - 1):
        x, y = left + (column + 0.5) * side, up + (column + 1) * side - 5
        body.append(
            f'<text transform="translate({x:.1f} {y:.1f}) rotate(-45)" style="font-size:{size:.1f}px">'
            f"{escaped(fitted(names[column], 150.0, size))}</text>"
        )
    width = left + max((count - 1) * side, (count - 1.5) * side + slant)
    return svg(width, up + count * side, body, title)


def _square(x: float, y: float, side: float, value: float, most: float, decimals: int, pair: tuple[str, str]) -> str:
    share = min(max(value / most, 0.0), 1.0) if most > 0 else 0.0
    shown = f"{value:.{decimals}f}"
    square = (
        f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{side - 2:.1f}" height="{side - 2:.1f}" rx="2" class="shade" '
        f'fill-opacity="{0.06 + 0.94 * share:.2f}"><title>{escaped(", ".join(pair))}: {shown}</title></rect>'
    )
    if side < 34:
        return square
    kind = "value over" if share > 0.5 else "value"
    return square + f'<text x="{x + side / 2:.1f}" y="{y + side / 2 + 4:.1f}" class="{kind}">{shown}</text>'


# ---- lines


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One line: what it shows, and its points from left to right."""

    name: str
    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis of a line chart.

    Attributes:
        low: The value at its start.
        high: The value at its end.
        ticks: Values that are marked, with the markup that is written there.
        logarithmic: Whether equal steps are equal factors.
        name: What it measures.
    """

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    logarithmic: bool = False
    name: str = ""

    @classmethod
    def of_runs(cls, runs: Floats) -> Scale:
        """Return a scale for numbers of runs: logarithmic where they span much, else from 0."""
        counts = np.maximum(runs, 1.0) if runs.size else np.ones(1)
        low, high = float(counts.min()), float(counts.max())
        wide = high > 50 * low
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        marks = [10.0**power for power in powers] if wide else _round_numbers(0.0, high)
        ticks = [(mark, f"{mark:,.0f}") for mark in marks[:: -(-len(marks) // 6) or 1]]
        return cls(low if wide else 0.0, high, ticks, logarithmic=wide, name="runs")

    @classmethod
    def of_heights(cls, heights: Floats, *, covering: tuple[float, float], powers: bool = False) -> Scale:
        """Return a scale for heights, which may be exponents of ten, that covers at least an interval."""
        low, high = min([*covering, *heights]), max([*covering, *heights])
        high = high if high > low else low + 1.0
        ticks = [(mark, _power(mark) if powers else f"{mark:.3g}") for mark in _round_numbers(low, high, whole=powers)]
        return cls(low, high, ticks)

    def share(self, value: float) -> float:
        """Return how far along the axis a value lies, from 0 to 1."""
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, low))
        return (at - low) / max(high - low, 1e-9)


def lines(
    drawn: Sequence[Line],
    title: str,
    *,
    across: Scale,
    up: Scale,
    level: tuple[float, str] | None = None,
    mark: float | None = None,
) -> Markup:
    """Return lines over two scales; one ends in a dot, and several are told apart by dashes and by their names.

    Args:
        drawn: The lines.
        title: What the chart shows, for screen readers.
        across: The scale from left to right.
        up: The scale of the heights.
        level: A height that matters, drawn across, and what it is.
        mark: A place that matters, drawn upright.
    """
    left, top, width, height = 52.0, 14.0, 392.0, 172.0
    right, foot = left + width, top + height
    margin = 70.0 if len(drawn) > 1 else 16.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + across.share(x) * width, foot - up.share(y) * height

    body = []
    for tick, shown in up.ticks:
        _, y = at(across.low, tick)
        body.append(f'<path d="M{left:g} {y:.1f}H{right:g}" class="axis"/>')
        body.append(f'<text x="{left - 8:g}" y="{y + 4:.1f}" class="end tick">{shown}</text>')
    for place, (tick, shown) in enumerate(across.ticks):
        x, _ = at(tick, up.low)
        anchor = "end" if place and x >= right - 24 else "mid"
        body.append(f'<text x="{x:.1f}" y="{foot + 20:g}" class="tick {anchor}">{shown}</text>')
    body.append(f'<text x="{right:g}" y="{foot + 33:g}" class="end tick">{escaped(across.name)}</text>')
    if level is not None:
        _, y = at(across.low, level[0])
        body.append(f'<path d="M{left:g} {y:.1f}H{right:g}" class="level"/>')
        body.append(f'<text x="{left + 6:g}" y="{y - 6:.1f}" class="level-name">{escaped(level[1])}</text>')
    if mark is not None and across.low <= mark <= across.high:
        body.append(f'<path d="M{at(mark, up.low)[0]:.1f} {top:g}v{height:g}" class="mark"/>')
    taken: list[float] = []
    for place, line in enumerate(drawn):
        points = _thinned([at(float(x), float(y)) for x, y in zip(line.x, line.y, strict=True)])
        if not points:
            continue
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dash = f' stroke-dasharray="{_DASHES[place % len(_DASHES)]}"' if len(drawn) > 1 else ""
        body.append(f'<path d="M{path}" class="line"{dash}/>')
        x, y = points[-1]
        if len(drawn) == 1:
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="end-dot"/>')
            continue
        while any(abs(y - other) < 15 for other in taken):
            y += 15
        taken.append(y)
        body.append(f'<text x="{right + 8:g}" y="{y + 4:.1f}">{escaped(line.name)}</text>')
    return svg(right + margin, foot + 34, body, title)


def _round_numbers(low: float, high: float, *, whole: bool = False, most: int = 6) -> list[float]:
    """Return round numbers between two bounds.

    >>> _round_numbers(0.0, 1.2), _round_numbers(-1.0, 7.3, whole=True)
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


# ---- pairs

_SHADES = 12  # steps of one hue: finer ones cannot be told apart
_TWIN = 3.0  # between a panel and its twin


@dataclass(frozen=True, slots=True, eq=False)
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
    title: str,
    *,
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
    left = min(max((room_for(label, 11.0) for axis in axes[1:] for _, label in axis.down), default=0.0), 80.0) + 8
    width, height = len(axes) * (wide + gap) - gap, len(axes) * (side + gap) - gap
    body = []
    for place, axis in enumerate(axes):
        x, y = left + place * (wide + gap), place * (side + gap)
        body.append(
            f'<text x="{x + 2:.1f}" y="{y + 13:.1f}" class="name">{escaped(fitted(axis.name, 0.9 * wide))}</text>'
        )
        body.append(_upright(axis, x, y, wide, side))
        if place > 0:
            down = y - 2
            for at, label in axis.down if len(axis.down) * 11 <= side else _ends(axis.down):
                down = max(min(max(y + at * side + 4, y + 9), y + side - 1), down + 11)  # each on a line of its own
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
    return svg(left + width, height + foot, body, title)


def _ends(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    return [(0.0, labels[0][1]), (1.0, labels[-1][1])]


def _under(axis: Axis, x: float, y: float, side: float, wide: float) -> str:
    """Return the labels along the bottom: all if each has room in its share of the edge, or else the first and last."""
    labels = list(axis.across)
    if any(room_for(label, 11.0) > side / len(labels) - 2 for _, label in labels):
        if wide > side:  # below a panel and its twin there is room for both ends in one
            both = f"{labels[0][1]} … {labels[-1][1]}"
            shown = escaped(both) if room_for(both, 11.0) <= wide + 6 else ""  # the side has the labels, too
            return f'<text x="{x + wide / 2:.1f}" y="{y:.1f}" class="tick mid">{shown}</text>'
        labels = [(at, fitted(label, side / 2 - 2, 11.0)) for at, label in _ends(labels)]
    anchors = ["mid" if 0 < at < 1 else "end" if at == 1 else "" for at, _ in labels]
    if len(labels) > _TWO and labels[-1][0] < 1 and labels[0][0] == 0:  # what is missing, beside the last of the others
        labels[-2], anchors[-2] = (labels[-1][0] - 7 / side, labels[-2][1]), "end"
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
