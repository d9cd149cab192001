"""Which pairs are measured in case the graph misses an arrow between them; from public things alone.

All pairs that fit the causal order: tiers if the graph states them for all columns, and else each column as late as its
effects allow. A column that no arrow touches comes last, and so may get causes. But where nothing else is said of it,
it is *loose*: it may as well be a cause, all of whose effects were missed. It is paired with every column, and which of
the two it is, is settled by what was measured (``_moment_search``).
"""

from __future__ import annotations

from collections.abc import Mapping

from escudo.causal import CausalGraph
from escudo.synthesis._structure import Arrow, Structure

__all__ = ["loose_columns", "ordered_pairs"]


def ordered_pairs(structure: Structure) -> list[Arrow]:
    """Return all pairs whose effect comes later than their cause, or is loose, and that are not forbidden."""
    knowledge = None if structure.graph is None else structure.graph.knowledge
    level = _levels(structure)
    names, loose = list(structure.parents), set(loose_columns(structure))
    place = {name: number for number, name in enumerate(names)}

    def follows(cause: str, effect: str) -> bool:
        if effect in loose:
            return cause not in loose or place[cause] < place[effect]
        return level[cause] < level[effect]

    return [
        (cause, effect)
        for effect in names
        for cause in names
        if follows(cause, effect) and not (knowledge is not None and knowledge.forbids(cause, effect))
    ]


def loose_columns(structure: Structure) -> tuple[str, ...]:
    """Return the columns of which the graph says nothing but that no arrow touches them."""
    knowledge = None if structure.graph is None else structure.graph.knowledge
    if knowledge is None or knowledge.tiers:
        return ()
    touched = {name for arrow in (*structure.arrows, *structure.open_arrows) for name in arrow}
    return tuple(
        name
        for name in structure.parents
        if name not in touched
        and not any(knowledge.forbids(name, other) or knowledge.forbids(other, name) for other in structure.parents)
    )


def _levels(structure: Structure) -> dict[str, int]:
    """Return how late each column comes."""
    knowledge = None if structure.graph is None else structure.graph.knowledge
    level = {name: number for number, tier in enumerate(() if knowledge is None else knowledge.tiers) for name in tier}
    if set(structure.parents) <= set(level):
        return level
    return _latest_levels([*structure.arrows, *structure.open_arrows], structure.parents)


def _latest_levels(arrows: list[Arrow], names: Mapping[str, object]) -> dict[str, int]:
    """Return how late each column can come: one before its earliest effect, and last without effects.

    A column whose arrows are all missing may then still get causes.
    """
    order = CausalGraph.from_edges(arrows, nodes=tuple(names)).topological_order()
    effects: dict[str, list[str]] = {name: [] for name in names}
    for cause, effect in arrows:
        effects[cause].append(effect)
    level: dict[str, int] = {}
    for name in reversed(order):
        level[name] = min((level[effect] - 1 for effect in effects[name]), default=0)
    return level
