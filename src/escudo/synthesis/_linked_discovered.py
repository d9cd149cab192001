r"""Synthesis of linked tables with a graph that is found under the same budget: the graph first, then the tables.

``GRAPH_SHARE`` of the budget, as inverse variance, finds the graph (:mod:`escudo.discovery._linked_discovery`); the
rest measures the count tables that the graph asks for (``_linked``). One plan, one charge.

**What is measured is known only once the graph is**, and what it may cost has to be known before. So the rest of the
budget is ``SLOTS`` releases with the same noise, each of one count table in steps of 1/4096 of a voice. A table gets as
many of them as its share says, one at least, is released that often, and averaged: with k releases its noise has 1/k of
their variance, as if it had been released once with that share of the budget.

**Guarantee.** A composition of discrete Gaussian events, shown in the plan. Which tables are measured, and how often,
depends on the rows only through the graph, which was released before. *The sensitivity of a slot is that of any table:*
one of people or of first rows is counted in steps of its voice too, 4096 for each person, and moves by as many in L2
(:mod:`escudo.table._linked`), :math:`\sqrt 2` times that if one person is replaced. ∎

**What is claimed.** Arrows that were found whose direction time, knowledge or the tables tell. An edge whose direction
they do not tell is followed in one of the two, as going together, and claims nothing: setting a column is refused where
the effect would depend on it. Arrows from people to rows and from the row before that are in the generating graph only
are followed too: their direction is given, and an arrow too many costs a law some noise, where one too few loses what
is there. They are not claimed. A column keeps at most ``MOST_CAUSES`` causes beside itself in the row before, the
surest ones: others would blur its law more than they say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from escudo._card import tracking
from escudo.causal import CausalGraph
from escudo.discovery import Discovery, LinkedGraphQuestion, PreparedLinkedGraph
from escudo.mechanisms import Purse, gaussian_event
from escudo.privacy import Budget, GaussianEvent, Neighbours, Passes, Plan, RepeatedEvent, calibrate
from escudo.synthesis._budget import GRAPH_SHARE, above_zero, epsilon_of_share
from escudo.synthesis._estimation import NoisyTable
from escudo.synthesis._linked import LinkedSynthesis, PreparedLinked
from escudo.synthesis._linked_model import LinkedModel
from escudo.table import COUNT, PREVIOUS, LinkedSchema, LinkedTable, PrivateTables, size_of

SLOTS = 512
"""Releases that the tables share, or as many as there can be tables, if these are more."""

MOST_CAUSES = 4
_MOST_CELLS = 2**16  # of a column with its causes
_WEIGHTED = LinkedTable(view="all", columns=())
STEPS = _WEIGHTED.steps
"""How many steps one person's voice has."""

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LinkedDiscoveredSynthesis:
    """The question that a graph over linked tables and a model that follows it answer together.

    Attributes:
        tables: How the tables are made, whatever the graph.
        knowledge: What is known of the graph, by whole names.
        method: How the graph is found; see :func:`escudo.discovery.discover`.
    """

    tables: LinkedSynthesis
    knowledge: CausalGraph | None = None
    method: str = "auto"

    def prepare(self, schema: LinkedSchema, neighbours: Neighbours, budget: Budget) -> PreparedLinkedDiscovered:
        """Choose what to measure and how loudly, from public facts alone; refuse what the tables would (``tables``)."""
        schema.require_confirmed()
        part = replace(budget, epsilon=epsilon_of_share(GRAPH_SHARE, above_zero(budget)))
        graph = LinkedGraphQuestion(self.knowledge, self.method).prepare(schema, neighbours, part)
        paid = [leaf.event for leaf in graph.plan.leaves() if leaf.event is not None]
        slots = max(SLOTS, _most_tables(schema))

        def slot(level: float) -> GaussianEvent:
            return slot_event(neighbours, level * math.sqrt(slots))

        level = calibrate(lambda noise: RepeatedEvent(event=slot(noise), count=slots), budget.reserving(paid))
        return PreparedLinkedDiscovered(self, schema, neighbours, budget, graph, slot(level), slots)


def slot_event(neighbours: Neighbours, scale: float) -> GaussianEvent:
    """Return the release of any count table with noise of this scale, in voices."""
    return gaussian_event(
        2,  # or more cells, which is all the same to the event
        l2_sensitivity=_WEIGHTED.sensitivity(neighbours.relation).l2,
        scale=scale * STEPS,
        changed_cells=None,
        integers=True,
        **neighbours.stated,
    )


def _most_tables(schema: LinkedSchema) -> int:
    """Return how many count tables there can be at most, whatever the graph."""
    people = len(schema.person.names) + 2 * len(schema.children)
    rows = sum(2 * (len(child.schema.names) + 1) for child in schema.children)
    return (people + rows) * (MOST_CAUSES + 3)


@dataclass(frozen=True, slots=True)
class PreparedLinkedDiscovered:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        question: What is asked for.
        schema: The tables.
        neighbours: Between which tables it promises.
        budget: What it may cost in all.
        graph: How the graph is found.
        slot: One release of a count table,
        slots: and how many there are.
    """

    question: LinkedDiscoveredSynthesis
    schema: LinkedSchema
    neighbours: Neighbours
    budget: Budget
    graph: PreparedLinkedGraph
    slot: GaussianEvent
    slots: int

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        return Plan(
            "linked tables",
            children=[
                Plan("graph", children=self.graph.plan.children),
                Plan("count tables along it", self.slot, count=self.slots, buys="each table by its share of them"),
                Plan("fitting all tables together"),
                Plan("sampling"),
            ],
            delta=self.budget.delta,
        )

    @property
    def passes(self) -> Passes:
        """How often the rows are read: for the graph, and for the tables along it."""
        return Passes(2)

    def run(self, table: PrivateTables, purse: Purse) -> LinkedModel:
        """Find the graph, measure along it, and estimate."""
        found = self.graph.run(table, purse)
        followed, claimed = self._graphs(found)
        tables = replace(self.question.tables, graph=followed).prepare(self.schema, self.neighbours, self.budget)
        inside = replace(tables, structure=replace(tables.structure, stated=claimed))
        model = inside.fitted(self._measured(inside, table, purse), purse)
        return replace(model, details={**model.details, "discovery": told(found, followed, claimed)})

    def _graphs(self, found: Discovery) -> tuple[CausalGraph, CausalGraph]:
        """Return the graph that tables follow, and what of it is claimed."""
        kept: list[Edge] = []
        more = {arrow for arrow in found.generating_graph.edges if self._in_time(*arrow)}
        for name in (node for node in found.graph.nodes if not node.endswith(PREVIOUS)):
            every = {*found.graph.parents(name), *(cause for cause, effect in more if effect == name)}
            causes = sorted(sorted(every), key=lambda cause: -found.confidence(cause, name))
            own = [cause for cause in causes if cause == name + PREVIOUS]
            kept += [(cause, name) for cause in self._affordable(name, own, [one for one in causes if one not in own])]
        followed = CausalGraph(nodes=found.graph.nodes, edges=tuple(kept))
        known = set(found.graph.edges)
        sure = tuple(arrow for arrow in kept if arrow in known and found.direction_confidence.get(arrow) != _OPEN)
        return followed, CausalGraph(nodes=found.graph.nodes, edges=sure)

    def _in_time(self, cause: str, effect: str) -> bool:
        """Return whether time says which way an arrow leads: from people to rows, or from the row before."""
        people = self.schema.people
        return cause.endswith(PREVIOUS) or (
            self.schema.table_of(cause) == people and self.schema.table_of(effect) != people
        )

    def _affordable(self, name: str, own: Sequence[str], others: Sequence[str]) -> list[str]:
        """Return causes, the surest first, as long as the law of the column has not too many cells."""
        room = _MOST_CELLS // math.prod(size_of(self.schema, one) for one in (name, *own))
        table = self.schema.table_of(name)
        if table != self.schema.people:
            room //= self.schema.child(table).column(COUNT).size
        kept = list(own)
        for cause in others[:MOST_CAUSES]:
            if (room := room // size_of(self.schema, cause)) < 1:
                break
            kept.append(cause)
        return kept

    def _measured(self, inside: PreparedLinked, table: PrivateTables, purse: Purse) -> list[list[NoisyTable]]:
        """Release every count table as often as its share says, and return the averages, in voices."""
        blocks = inside.shares.blocks
        counts = iter(table.counts([block.counted(columns) for block in blocks for columns in block.tables]))
        several = apportioned([weight for block in inside.shares.weights for weight in block], self.slots)
        turns = iter(several)
        found = []
        with tracking("Measuring", total=self.slots) as advance:
            for block in blocks:
                part = []
                for columns in block.tables:
                    times = next(turns)
                    exact = next(counts) * (STEPS // block.counted(columns).steps)
                    total = np.zeros(exact.shape)
                    for _ in range(times):
                        total += np.asarray(purse.add(exact, self.slot, purpose=", ".join(columns)), dtype=np.float64)
                        advance(1)
                    scale = self.slot.scale / STEPS / math.sqrt(times)
                    part.append(NoisyTable(columns, total / times / STEPS, scale))
                found.append(part)
        return found


_OPEN = 0.5
"""How sure a direction is that the tables do not tell."""


def apportioned(weights: Sequence[float], slots: int) -> list[int]:
    """Return how many slots each table gets, one at least, in proportion to weights as nearly as whole numbers go.

    >>> apportioned([1.0, 2.0, 1.0], 9), apportioned([1000.0, 1.0], 4)
    ([3, 4, 2], [3, 1])
    """
    assert len(weights) <= slots, "there are slots for all tables"
    free, total = slots - len(weights), sum(weights)
    exact = [free * weight / total for weight in weights]
    found = [1 + math.floor(each) for each in exact]
    last = sorted(range(len(weights)), key=lambda place: (math.floor(exact[place]) - exact[place], place))
    for place in last[: slots - sum(found)]:
        found[place] += 1
    return found


def told(found: Discovery, followed: CausalGraph, claimed: CausalGraph) -> Mapping[str, Any]:
    """Return what record and report say of a graph that was found: of open edges, that they are open."""
    edges = [
        {
            "from": cause,
            "to": effect,
            "directed": (cause, effect) in claimed.edges,
            "confidence": round(found.confidence(cause, effect), 4),
            "direction_confidence": round(found.direction_confidence.get((cause, effect), 1.0), 4)
            if (cause, effect) in claimed.edges
            else None,
        }
        for cause, effect in followed.edges
        if (cause, effect) in found.graph.edges
    ]
    notes = list(found.notes)
    for words, arrows, others in (
        ("Found, and left out of laws that have surer causes", found.graph.edges, followed.edges),
        ("Followed, as time gives the direction, and not surely there", followed.edges, found.graph.edges),
    ):
        listed = ", ".join(f"{a} → {b}" for a, b in arrows if (a, b) not in others)
        notes += [f"{words}: {listed}."] if listed else []
    return {"method": found.method, "edges": edges, "cannot_tell": found.cannot_tell, "notes": notes}
