"""Checks on names, edges and groups, shared by graphs and what is known about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from escudo._validate import did_you_mean
from escudo.errors import GraphError

__all__ = [
    "Edge",
    "checked_edges",
    "checked_groups",
    "checked_lines",
    "checked_names",
    "checked_tiers",
    "first_cycle",
    "known_names",
    "show_edge",
]

Edge = tuple[str, str]
_LONGEST = 1000  # characters in a name; longer ones are files read in the wrong format


def show_edge(edge: Edge) -> str:
    """Return ``a → b``."""
    return f"{edge[0]} → {edge[1]}"


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


def known_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise unless every name is known, naming the first that is not and the nearest known one."""
    allowed = dict.fromkeys(known)
    for name in names:
        if not isinstance(name, str) or name not in allowed:
            raise GraphError(
                f"{what} names {_show(name)}, which is not in the graph." + did_you_mean(str(name), list(allowed))
            )


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


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
