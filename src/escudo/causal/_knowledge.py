"""What is known about a graph before it is learnt: required arrows, forbidden arrows, and tiers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from escudo.causal._check import Edge, checked_edges, checked_tiers, first_cycle, known_names, show_edge
from escudo.errors import GraphError

__all__ = ["Knowledge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Arrows that must or must not be in a graph, and tiers (such as time) that no arrow goes back through.

    A required arrow need not be in the graph yet: knowledge describes what a discovery method may return. A name that
    is in no tier is free.

    Args:
        required: Arrows that must be there.
        forbidden: Arrows that must not be there.
        tiers: Groups of names, earliest first; an arrow from a later tier to an earlier one is forbidden.

    Raises:
        GraphError: The pieces contradict each other.

    Example:
        >>> known = Knowledge(tiers=(("age", "sex"), ("smoke",), ("lung",)))
        >>> known.forbids("lung", "age"), known.forbids("age", "lung")
        (True, False)
    """

    required: tuple[Edge, ...] = ()
    forbidden: tuple[Edge, ...] = ()
    tiers: tuple[tuple[str, ...], ...] = ()
    _never: frozenset[Edge] = field(init=False, repr=False, compare=False)
    _place: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "required", checked_edges("required", self.required))
        object.__setattr__(self, "forbidden", checked_edges("forbidden", self.forbidden))
        object.__setattr__(self, "tiers", checked_tiers(self.tiers))
        place: dict[str, int] = {}
        for number, tier in enumerate(self.tiers):
            for name in tier:
                if name in place:
                    raise GraphError(f"{name!r} is in two tiers. Keep it in one.")
                place[name] = number
        object.__setattr__(self, "_never", frozenset(self.forbidden))
        object.__setattr__(self, "_place", place)
        for edge in self.required:
            if self.forbids(*edge):
                how = "forbidden" if edge in self._never else "ruled out by the tiers"
                raise GraphError(f"The arrow {show_edge(edge)} is both required and {how}. Drop one of the two.")
        cycle = first_cycle(self.required)
        if cycle:
            raise GraphError(f"The required arrows make a cycle: {cycle}. Drop one of them.")

    def __bool__(self) -> bool:
        return bool(self.required or self.forbidden or self.tiers)

    def forbids(self, cause: str, effect: str) -> bool:
        """Return whether the arrow ``cause`` → ``effect`` is ruled out, by name or by the tiers."""
        tiers = self._place
        return (cause, effect) in self._never or (cause in tiers and effect in tiers and tiers[cause] > tiers[effect])

    def restrict(self, nodes: Iterable[str]) -> Knowledge:
        """Return what is known about these nodes alone."""
        kept = set(nodes)
        tiers = (tuple(name for name in tier if name in kept) for tier in self.tiers)
        return Knowledge(
            required=tuple(edge for edge in self.required if kept.issuperset(edge)),
            forbidden=tuple(edge for edge in self.forbidden if kept.issuperset(edge)),
            tiers=tuple(tier for tier in tiers if tier),
        )

    def check(self, nodes: Iterable[str], edges: Iterable[Edge], undirected: Iterable[Edge]) -> None:
        """Raise unless every name is a node and no edge contradicts what is known."""
        known = tuple(nodes)
        known_names("required", (name for edge in self.required for name in edge), known)
        known_names("forbidden", (name for edge in self.forbidden for name in edge), known)
        known_names("tiers", (name for tier in self.tiers for name in tier), known)
        if not self:
            return
        required = set(self.required)

        def ruled_out(cause: str, effect: str) -> str:
            if self.forbids(cause, effect):
                return (
                    "forbidden" if (cause, effect) in self._never else f"against the tiers ({effect!r} comes earlier)"
                )
            return "against a required arrow" if (effect, cause) in required else ""

        for edge in edges:
            if why := ruled_out(*edge):
                raise GraphError(f"The arrow {show_edge(edge)} is {why}. Remove the arrow or change what is known.")
        for a, b in undirected:
            if ruled_out(a, b) and ruled_out(b, a):
                raise GraphError(f"The edge {a} — {b} can go neither way: both directions are ruled out.")
