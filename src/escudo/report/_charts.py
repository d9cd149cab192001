"""Small charts as inline SVG, drawn by hand: bars, a histogram and a heat map.

Colours come from the page's own style, so that a chart follows its light, dark or printed form. Shades are one hue;
what a second series shows is told by shape as well. Every text is escaped where it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

import numpy as np
from numpy.typing import NDArray

from escudo._card import printable

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["bars", "escaped", "fitted", "heat_map", "histogram", "length_of", "percent", "svg"]

Floats = NDArray[np.float64]

_WIDTH = 260.0
_ROW = 21.0


def percent(share: float) -> str:
    """Return a share for people.

    >>> percent(0.12345).replace("\N{NO-BREAK SPACE}", " ")
    '12.3 %'
    """
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def bars(labels: Sequence[str], shares: Sequence[float], *, title: str, real: Sequence[float] | None = None) -> Markup:
    """Return one horizontal bar per label, with its share in figures.

    Args:
        labels: What the bars stand for, from top to bottom.
        shares: How long they are.
        title: What the chart shows, for screen readers.
        real: Shares to compare with, drawn as upright marks.
    """
    left, right = min(max(length_of(label, 12.0) for label in labels), 96.0) + 10, 54.0
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
    return svg(_WIDTH, _ROW * len(labels), "".join(body), title=title)


def histogram(
    edges: Floats, shares: Floats, *, title: str, ends: tuple[str, str], real: Floats | None = None
) -> Markup:
    """Return the density of a numeric column over its bins, with the two bounds below.

    Args:
        edges: Bin boundaries.
        shares: The share of each bin; heights are shares over widths.
        title: What the chart shows, for screen readers.
        ends: The lower and upper bound, in words.
        real: Shares to compare with, drawn as a line.
    """
    height, foot = 96.0, 20.0
    across = (edges - edges[0]) / (edges[-1] - edges[0]) * _WIDTH
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
    return svg(_WIDTH, height + foot, "".join(body), title=title)


def heat_map(names: Sequence[str], values: Floats, *, title: str, most: float = 1.0, decimals: int = 2) -> Markup:
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
    left = max(length_of(name, size) for name in names) if count else 0.0
    left = min(left, 170.0) + 10
    # Names of columns start on the diagonal and run up to the right, into the empty half.
    slant = min(max((length_of(name, size) for name in names), default=0.0), 150.0) * 0.71 + side / 2
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
    return svg(width, up + count * side, "".join(body), title=title)


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


def svg(width: float, height: float, body: str, *, title: str) -> Markup:
    """Return a chart from its parts, in which every text is escaped already; the title is for screen readers."""
    from markupsafe import Markup

    return Markup(
        f'<svg class="chart" role="img" aria-label="{escaped(title)}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}">{body}</svg>'
    )  # safe: every text in it went through escaped


def escaped(text: str) -> str:
    """Return a text for a chart, with a mark for what cannot be drawn."""
    from markupsafe import escape

    return str(escape(printable(text)))


def fitted(text: str, pixels: float, size: float = 12.0) -> str:
    """Return the text, or as much of its start and end as fits, with an ellipsis between them.

    >>> fitted("smoke", 100), fitted("symptom number 12", 80)
    ('smoke', 'sympto… 12')
    """
    if length_of(text, size) <= pixels:
        return text
    kept = len(text)
    while kept > 0:
        kept -= 1
        end = kept * 2 // 5
        shown = text[: kept - end] + "…" + (text[-end:] if end else "")
        if length_of(shown, size) <= pixels:
            return shown
    return "…"


def length_of(text: str, size: float) -> float:
    """Return about how long a text is drawn, in pixels, a little on the safe side."""
    ems = sum(1.0 if east_asian_width(char) in "WF" else 0.61 for char in text if not combining(char))
    return ems * size
