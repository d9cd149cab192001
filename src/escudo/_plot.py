"""Figures of results, with matplotlib where it is installed: every result that has a ``plot`` draws through here.

A figure shows what its result says already, and nothing else: it reads no table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from escudo.errors import InputError

__all__ = ["Drawn", "Row", "axes_for", "intervals", "literal", "panels", "rising", "shares"]

Row = tuple[str, float, tuple[float, float] | None]
"""What a line of :func:`intervals` is about, its value, and the value's interval where it has one."""

Size = tuple[float, float]

_USUAL: Size = (6.4, 4.0)  # inches
_INK, _ASIDE = "#0f6e84", "#b36b00"
_BINS = 24


class Drawn(ABC):
    """A result that can be drawn as it is."""

    __slots__ = ()

    def plot(self, *, axes: Any = None) -> Any:  # Any: matplotlib's
        """Draw the result.

        Args:
            axes: Axes of matplotlib to draw into; new ones by default.

        Returns:
            The axes; ``.figure`` is their figure, which notebooks show and ``savefig`` writes.

        Raises:
            InputError: If matplotlib is not installed, or nothing was released that could be drawn.
        """
        return self._draw(axes)

    @abstractmethod
    def _draw(self, axes: Any) -> Any:
        """Draw into axes, or into new ones if there are none, and return them."""


def axes_for(axes: Any, title: str, across: str, up: str, size: Size = _USUAL) -> Any:  # Any: matplotlib's
    """Return the axes that were given, or new ones of a size in inches, with what they show written on them.

    Raises:
        InputError: If matplotlib is not installed.
    """
    drawn = _figure(size).subplots() if axes is None else axes
    drawn.set(title=literal(title), xlabel=literal(across), ylabel=literal(up))
    drawn.spines[["top", "right"]].set_visible(False)
    return drawn


def panels(count: int) -> list[Any]:
    """Return so many new axes of one figure, at most three beside each other.

    Raises:
        InputError: If matplotlib is not installed.
    """
    wide = min(count, 3)
    high = -(-count // wide)
    every = list(_figure((3.6 * wide, 2.8 * high)).subplots(high, wide, squeeze=False).flat)
    for empty in every[count:]:
        empty.remove()
    return every[:count]


def intervals(
    axes: Any, rows: Sequence[Row], *, title: str, across: str, up: str, lines: Mapping[str, float] | None = None
) -> Any:
    """Draw one value below the other, each with its interval, and upright lines to compare them with.

    Args:
        axes: Where to; new ones if None.
        rows: From the top down.
        title: What stands above.
        across: What the values are.
        up: What the rows are.
        lines: Where the upright lines stand, by what they mean.
    """
    drawn = axes_for(axes, title, across, up, size=(6.4, 1.8 + 0.34 * len(rows)))
    for place, (_, value, ends) in enumerate(rows):
        if ends is not None:
            drawn.hlines(place, *ends, color=_INK, linewidth=2)
        drawn.plot([value], [place], marker="o", color=_INK)
    for style, (meaning, where) in zip(("-", "--", ":"), (lines or {}).items(), strict=False):
        drawn.axvline(where, color=_ASIDE, linestyle=style, linewidth=1, label=literal(meaning))
    drawn.set_yticks(range(len(rows)), [literal(name) for name, _, _ in rows])
    drawn.set_ylim(len(rows) - 0.5, -0.5)
    if lines:
        drawn.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return drawn


def rising(
    axes: Any, across: Sequence[float], up: Sequence[float], *, claim: float | None, names: Sequence[str]
) -> Any:
    """Draw a bound that never falls, and what was claimed, if that is a number.

    Args:
        axes: Where to; new ones if None.
        across: Where the bound was told.
        up: The bound there.
        claim: What it is compared with.
        names: The title, what is across and up, and what the bound and the claim are called.
    """
    title, below, beside, bound, claimed = names
    drawn = axes_for(axes, title, below, beside)
    drawn.step(across, up, where="post", marker="o", markersize=3, color=_INK, label=literal(bound))
    if claim is not None:
        drawn.axhline(claim, color=_ASIDE, linestyle="--", linewidth=1, label=literal(claimed))
    drawn.set_ylim(bottom=0)
    drawn.legend(frameon=False)
    return drawn


def shares(axes: Any, name: str, values: Mapping[str, Sequence[Any]], levels: Sequence[Any] | None) -> Any:
    """Draw how often each value of a column comes, in one sample or several beside each other.

    Args:
        axes: Where to; new ones if None.
        name: The column.
        values: Each sample, by what it is; None where a value is missing.
        levels: The column's levels; None for numbers and days, which come in bins.
    """
    drawn = axes_for(axes, name, name, "share of the rows, %")
    colours = [_INK, _ASIDE][: len(values)]
    if levels is None:
        told = {what: [one for one in sample if one is not None] for what, sample in values.items()}
        weights = [[100 / max(len(sample), 1)] * len(told[what]) for what, sample in values.items()]
        names = [
            f"{what} ({1 - len(told[what]) / max(len(sample), 1):.1%} missing)" if None in sample else what
            for what, sample in values.items()
        ]
        drawn.hist(list(told.values()), bins=_BINS, weights=weights, label=list(map(literal, names)), color=colours)
        drawn.tick_params(axis="x", labelrotation=30)
    else:
        shown = [*levels, None] if any(None in sample for sample in values.values()) else list(levels)
        for place, (what, sample) in enumerate(values.items()):
            high = [100 * sum(one == level for one in sample) / max(len(sample), 1) for level in shown]
            at = [number + (place - (len(values) - 1) / 2) * 0.8 / len(values) for number in range(len(shown))]
            drawn.bar(at, high, width=0.8 / len(values), label=literal(what), color=colours[place])
        words = ["missing" if level is None else literal(str(level)) for level in shown]
        drawn.set_xticks(range(len(shown)), words, rotation=30 if len("".join(words)) > 24 else 0)
    if len(values) > 1:
        drawn.legend(frameon=False)
    return drawn


def _figure(size: Size) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("a figure needs matplotlib: pip install 'escudo[plot]'.") from None
    # Not by pyplot: that would choose a window for whoever draws a figure, and keep it.
    return Figure(figsize=size, layout="constrained")


def literal(text: str) -> str:
    """Return a text that matplotlib shows as it is: a dollar sign would start a formula."""
    return text.replace("$", r"\$")
