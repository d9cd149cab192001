"""Edges: pairs of names, where they lead, and what is known of them before a graph is learnt.

Whatever a user, a file or a discovery method names passes these checks before a graph is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from escudo._validate import did_you_mean
from escudo.errors import GraphError

Edge = tuple[str, str]
_T = TypeVar("_T", bound=Hashable)
_LONGEST = 1000  # characters in a name; longer ones are files read in the wrong format


# ---- checks


def checked_names(what: str, names: Iterable[object]) -> tuple[str, ...]:
    """Return names without duplicates, or raise if one is not usable as a name."""
    if isinstance(names, str):
        raise GraphError(f"{what} must be a list of names; got one text.")
    kept: dict[str, None] = {}
    for name in names:
        if not isinstance(name, str):
            raise GraphError(f"{what} must be text; got {type(name).__name__} {name!r:.60}.")
        if not name.strip():
            raise GraphError(f"{what} must not be blank; got {name!r:.60}.")
        if len(name) > _LONGEST:
            raise GraphError(f"{what} must have at most {_LONGEST} characters; got {len(name):,}.")
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise GraphError(f"{what} must be valid Unicode; got {name!r:.60}.") from None
        kept[str(name)] = None
    return tuple(kept)


def checked_edges(what: str, edges: Iterable[object]) -> tuple[Edge, ...]:
    """Return edges as pairs of names without duplicates, or raise naming the argument ``what``."""
    if isinstance(edges, (str, bytes, Mapping)):
        raise GraphError(f"{what} must be a list of pairs of names; got {type(edges).__name__}.")
    kept: dict[Edge, None] = {}
    for edge in edges:
        if not isinstance(edge, (tuple, list)) or len(edge) != 2 or not all(isinstance(name, str) for name in edge):
            raise GraphError(f"{what} must hold pairs of names, such as ('smoke', 'lung'); got {_show(edge)}.")
        tail, head = edge
        if tail == head:
            raise GraphError(f"{what} has an edge from {tail!r} to itself; nothing causes itself.")
        kept[tail, head] = None
    return tuple(kept)


def checked_lines(edges: Iterable[object]) -> tuple[Edge, ...]:
    """Return undirected edges, each pair once whichever way round it is given."""
    kept: dict[frozenset[str], Edge] = {}
    for edge in checked_edges("undirected edges", edges):
        kept.setdefault(frozenset(edge), edge)
    return tuple(kept.values())


def checked_tiers(tiers: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """Return tiers as tuples of names, or raise if they are not lists of lists of names."""
    kept = []
    for tier in tiers:
        kept.append(tuple(tier))
        if isinstance(tier, str) or not all(isinstance(name, str) for name in kept[-1]):
            raise GraphError("tiers must be lists of names, such as [['age', 'sex'], ['smoke']].")
    return tuple(kept)


def checked_groups(
    groups: Mapping[str, Sequence[str]], nodes: tuple[str, ...], latents: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Return groups with their columns as tuples, or raise unless every column has one place."""
    known_names("groups", groups, nodes)
    owner = {name: name for name in nodes if name not in groups}
    checked = {}
    for name, columns in groups.items():
        checked[name] = checked_names(f"The columns of group {name!r}", columns)
        if not columns:
            raise GraphError(f"Group {name!r} has no columns. List them, or drop the group.")
        if name in latents:
            raise GraphError(f"Group {name!r} is latent, but a latent has no columns. Drop one of the two.")
        for column in checked[name]:
            if column in owner:
                place = f"in group {owner[column]!r}" if owner[column] in groups else "a node of its own"
                raise GraphError(f"Column {column!r} of group {name!r} is also {place}. Keep it in one place.")
            owner[column] = name
    return checked


def known_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise unless every name is known, naming the first that is not and the nearest known one."""
    allowed = dict.fromkeys(known)
    for name in names:
        if not isinstance(name, str) or name not in allowed:
            raise GraphError(
                f"{what} names {_show(name)}, which is not in the graph." + did_you_mean(str(name), list(allowed))
            )


def show_edge(edge: Edge) -> str:
    """Return ``a → b``."""
    return f"{edge[0]} → {edge[1]}"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- where edges lead


def reach(start: Iterable[_T], step: Callable[[_T], Iterable[_T]], *, without: Collection[_T] = ()) -> set[_T]:
    """Return ``start`` and all that ``step`` leads to from there, one after the other, never through ``without``.

    With parents as the step these are all ancestors, with children all descendants; a step that gives nothing for some
    names is how an intervention severs them from their causes.
    """
    found = set(start).difference(without)
    waiting = list(found)
    while waiting:
        for name in step(waiting.pop()):
            if name not in found and name not in without:
                found.add(name)
                waiting.append(name)
    return found


def first_cycle(edges: Iterable[Edge], *, shown: int = 12) -> str:
    """Return one directed cycle as ``a → b → a``, its middle cut if it is long; empty if there is none."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    first: dict[str, int] = {}
    for number, (tail, head) in enumerate(edges):
        sorter.add(head, tail)
        first.setdefault(tail, number)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1][:-1]
        start = cycle.index(min(cycle, key=first.__getitem__))
        cycle = [*cycle[start:], *cycle[: start + 1]]
        if len(cycle) > shown:
            cycle = [*cycle[: shown - 3], "…", *cycle[-2:]]
        return " → ".join(cycle)
    return ""


# ---- what is known


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
