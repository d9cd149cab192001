"""What is known beforehand, as a search uses it: which arrows may be, which must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo._validate import did_you_mean
from escudo.causal import CausalGraph, Knowledge, first_cycle
from escudo.errors import GraphError
from escudo.table import Schema

__all__ = ["Constraints", "constraints_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraints:
    """Knowledge over columns by number.

    Attributes:
        names: The columns.
        allowed: At [a, b] whether a → b may be.
        required: Arrows (a, b) that must be.
        joined: Pairs that must be adjacent, in whatever direction.
    """

    names: tuple[str, ...]
    allowed: NDArray[np.bool_]
    required: frozenset[tuple[int, int]]
    joined: frozenset[frozenset[int]]

    @property
    def known(self) -> bool:
        """Whether anything is known at all."""
        return bool(self.required or self.joined) or not bool(self.allowed[~np.eye(len(self.names), dtype=bool)].all())

    def knowledge(self) -> Knowledge:
        """Return the required and forbidden arrows by name, for the graph that is reported."""
        names, d = self.names, len(self.names)
        ruled_out = [(names[a], names[b]) for a in range(d) for b in range(d) if a != b and not self.allowed[a, b]]
        return Knowledge(
            required=tuple(sorted((names[a], names[b]) for a, b in self.required)), forbidden=tuple(ruled_out)
        )

    def restricted(self, names: Sequence[str]) -> Constraints:
        """Return what is known of some of the columns, in this order."""
        place = {self.names.index(name): number for number, name in enumerate(names)}
        kept = [self.names.index(name) for name in names]
        return Constraints(
            names=tuple(names),
            allowed=self.allowed[np.ix_(kept, kept)],
            required=frozenset((place[a], place[b]) for a, b in self.required if a in place and b in place),
            joined=frozenset(frozenset(place[i] for i in pair) for pair in self.joined if pair <= place.keys()),
        )


def constraints_of(schema: Schema, knowledge: CausalGraph | None) -> Constraints:
    """Return what a graph says about a schema's columns.

    Its arrows and required arrows must be there, its undirected edges in some direction (in the only one, where the
    other is ruled out); forbidden arrows, those against the tiers, and those against a stated arrow must not. An arrow
    between groups of columns rules out arrows the other way. Latents are left aside.

    Raises:
        GraphError: If the graph names a column that the schema does not have, or cannot be obeyed without a cycle.
    """
    names = schema.names
    place = {name: number for number, name in enumerate(names)}
    allowed = ~np.eye(len(names), dtype=np.bool_)
    if knowledge is None:
        return Constraints(names=names, allowed=allowed, required=frozenset(), joined=frozenset())
    members: dict[str, tuple[str, ...]] = {}
    for node in knowledge.nodes:
        if node in knowledge.latents:
            continue
        members[node] = tuple(knowledge.groups.get(node, (node,)))
        for name in members[node]:
            if name not in place:
                raise GraphError(
                    f"The knowledge names {name!r}, which is no column of the schema.{did_you_mean(name, names)} "
                    "Take it out, or mark it as latent."
                )
    required: set[tuple[int, int]] = set()
    joined: set[frozenset[int]] = set()
    for a, b in dict.fromkeys((*knowledge.edges, *knowledge.required)):
        if a in members and b in members:
            for cause in members[a]:
                for effect in members[b]:
                    allowed[place[effect], place[cause]] = False
            if len(members[a]) == len(members[b]) == 1:
                required.add((place[members[a][0]], place[members[b][0]]))
    for a, b in knowledge.undirected_edges:
        if a in members and b in members and len(members[a]) == len(members[b]) == 1:
            joined.add(frozenset((place[members[a][0]], place[members[b][0]])))
    for a in members:
        for b in members:
            if a != b and knowledge.knowledge.forbids(a, b):
                for cause in members[a]:
                    for effect in members[b]:
                        allowed[place[cause], place[effect]] = False
    for pair in list(joined):
        first, second = sorted(pair)
        if not (allowed[first, second] and allowed[second, first]):  # it may go one way only, so that way it must be
            joined.discard(pair)
            required.add((first, second) if allowed[first, second] else (second, first))
    if cycle := first_cycle((names[a], names[b]) for a, b in sorted(required)):
        raise GraphError(f"What the knowledge asks for makes a cycle: {cycle}. Drop one of these arrows or edges.")
    return Constraints(names=names, allowed=allowed, required=frozenset(required), joined=frozenset(joined))
