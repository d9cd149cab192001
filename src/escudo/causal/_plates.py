"""Plates: frames around nodes that are there several times, as in "each patient" and "each visit of a patient".

A node of the moment before (``severity@prev``) is drawn with a broken outline, and so are its arrows: what they lead to
is the next one. Plates stand one below another, so that arrows run from one into the next; a plate that holds all nodes
of another is drawn around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from escudo._card import text_width
from escudo.causal._edges import Edge, known_names
from escudo.errors import GraphError

Point = tuple[float, float]

PLATE_STYLE = """
.escudo-graph .plate rect{fill:none;stroke:currentColor;stroke-opacity:.45;stroke-width:1.2}
.escudo-graph .plate text{font-size:12px;font-weight:600;fill-opacity:.75}
.escudo-graph .before rect{stroke-dasharray:4 3}
.escudo-graph .lagged path{stroke-dasharray:6 4}
""".strip()
_PAD, _CAPTION = 16.0, 22.0
_BOLD = 1.2  # how much wider than plain text captions are, at most, in the fonts a reader may have


@dataclass(frozen=True, slots=True, kw_only=True)
class Plates:
    """Frames around nodes that are there several times.

    Args:
        around: For each plate its nodes, by what is written on it, plates of causes first. A plate may hold all nodes
            of others after it, which are then drawn inside it; else plates have no node in common.
        before: Nodes that stand for the moment before: their outline is broken, and so are their arrows.

    Raises:
        GraphError: If two plates overlap.

    >>> Plates(around={"each patient": ("age", "severity"), "each visit": ("severity",)}, before=()).inside
    {'age': 'each patient', 'severity': 'each visit'}
    """

    around: Mapping[str, tuple[str, ...]]
    before: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        object.__setattr__(self, "around", {caption: tuple(nodes) for caption, nodes in self.around.items()})
        object.__setattr__(self, "before", frozenset(self.before))
        sets = {caption: set(nodes) for caption, nodes in self.around.items()}
        for one, mine in sets.items():
            for other, theirs in sets.items():
                if mine & theirs and not (mine <= theirs or theirs <= mine):
                    raise GraphError(
                        f"the plates {one!r} and {other!r} overlap; one must hold the other, or no node of it."
                    )

    @property
    def inside(self) -> dict[str, str]:
        """The innermost plate of each node that has one."""
        by_size = sorted(self.around, key=lambda caption: -len(self.around[caption]))
        return {node: caption for caption in by_size for node in self.around[caption]}

    def bands(self, nodes: Sequence[str], edges: Iterable[Edge]) -> dict[str, int]:
        """Return which nodes are drawn before which: those in no plate, then plate by plate.

        Raises:
            GraphError: If a plate names no node of the graph, or an arrow leads back to an earlier plate.
        """
        known_names("plates", [*(node for several in self.around.values() for node in several), *self.before], nodes)
        place = {caption: number + 1 for number, caption in enumerate(self.around)}
        inside = self.inside
        bands = {node: place[inside[node]] if node in inside else 0 for node in nodes}
        for a, b in edges:
            if bands[a] > bands[b]:
                raise GraphError(
                    f"the edge {a!r} -> {b!r} leads back to an earlier plate; put its causes' plate first."
                )
        return bands

    def marked(self, body: Sequence[str], edges: Iterable[Edge], nodes: Iterable[str]) -> list[str]:
        """Return drawn edges and nodes, in this order, those of the moment before with a broken line."""
        old = ['class="edge"' if edge[0] in self.before else "" for edge in edges]
        old += ['class="node' if node in self.before else "" for node in nodes]
        new = {'class="edge"': 'class="edge lagged"', 'class="node': 'class="node before'}
        return [part.replace(one, new[one], 1) if one else part for part, one in zip(body, old, strict=True)]


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle by its sides."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, frames: Sequence[Frame]) -> Frame:
        """Return the smallest frame around others."""
        return cls(
            min(one.left for one in frames),
            min(one.top for one in frames),
            max(one.right for one in frames),
            max(one.bottom for one in frames),
        )

    def wider(self, by: float, *, foot: float = 0.0) -> Frame:
        """Return it with more room on each side, and more than that at the foot."""
        return Frame(self.left - by, self.top - by, self.right + by, self.bottom + by + foot)

    def svg(self, caption: str) -> str:
        """Return it as SVG with a caption, which is text of SVG."""
        box = (
            f'<rect x="{self.left:.1f}" y="{self.top:.1f}" width="{self.right - self.left:.1f}" '
            f'height="{self.bottom - self.top:.1f}" rx="14"/>'
        )
        return f'<g class="plate">{box}<text x="{self.left + 14:.1f}" y="{self.bottom - 10:.1f}">{caption}</text></g>'


def frames(
    plates: Plates, nodes: Mapping[str, tuple[Point, Point]], routes: Mapping[Edge, Sequence[Point]]
) -> dict[str, Frame]:
    """Return the frame of each plate, outer ones first: around its nodes, the edges among them and plates inside it."""
    found: dict[str, Frame] = {}
    for caption in sorted(reversed(list(plates.around)), key=lambda one: len(plates.around[one])):
        own = set(plates.around[caption])
        parts = [
            Frame(x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2)
            for (x, y), (wide, tall) in (nodes[name] for name in own)
        ]
        parts += [Frame(x, y, x, y) for (a, b), route in routes.items() if {a, b} <= own for x, y in route]
        parts += [frame for other, frame in found.items() if set(plates.around[other]) <= own]
        if not parts:
            continue
        frame = Frame.around(parts).wider(_PAD, foot=_CAPTION - _PAD / 2)
        least = _BOLD * text_width(caption, 12.0) + 32.0
        found[caption] = Frame(frame.left, frame.top, max(frame.right, frame.left + least), frame.bottom)
    return dict(reversed(found.items()))
