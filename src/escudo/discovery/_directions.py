"""Directions of what a graph leaves open: private votes on the undirected edges, out of a stated share of the budget.

Correlations and counts say the same about all equivalent graphs. Where effects are not linear, or noise is not normal,
the way in which two columns depend on each other can tell more: blocks of rows vote on each open edge
(:func:`escudo.orientation.orient`). Whoever asks for this spends a part of ε on it, whatever comes of it; linear
effects with normal noise leave nothing to vote on, and then the answer is that it cannot tell.

**Guarantee.** The search's own events, and one pure ε for all votes together, planned before it is known which edges
are open. The votes are ε-private for any set of edges chosen from what was released before (adaptive composition).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from escudo._validate import probability
from escudo.causal import CausalGraph
from escudo.discovery._discovery import Discovery, Edge, Prepared
from escudo.discovery._pattern import closed
from escudo.errors import GraphError, InputError
from escudo.mechanisms import Seed, publishable
from escudo.privacy import Account, MemoryAccount, Plan, PureEvent
from escudo.table import PrivateTable, Schema

__all__ = ["PreparedDirections", "split", "with_directions"]


def split(epsilon: float, share: float) -> tuple[float, float]:
    """Return what the search and the votes may cost.

    >>> split(1.0, 0.25)
    (0.75, 0.25)
    """
    part = epsilon * probability("directions", share)
    return epsilon - part, part


def with_directions(prepared: Prepared, schema: Schema, *, epsilon: float) -> PreparedDirections:
    """Return a method that votes on what another one leaves open.

    Args:
        prepared: The method that finds the graph, on its own share of the budget.
        schema: The table's schema.
        epsilon: What all votes together may cost.
    """
    total = prepared.plan.event
    assert total is not None
    return PreparedDirections(
        prepared=prepared,
        schema=schema,
        votes=PureEvent(
            epsilon=epsilon,
            relation=total.relation,
            unit=schema.unit,
            max_rows_per_person=schema.max_rows_per_person,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDirections:
    """A method of discovery with votes at its end.

    Attributes:
        prepared: The method that finds the graph.
        schema: The table's schema.
        votes: What the votes cost.
    """

    prepared: Prepared
    schema: Schema
    votes: PureEvent

    @property
    def plan(self) -> Plan:
        """The budget tree: that of the method, and the votes."""
        inner = self.prepared.plan
        votes = Plan("directions of open edges", self.votes, buys="votes of blocks, on undirected edges only")
        return Plan(f"{inner.name} with directions", children=[*inner.children, votes], delta=inner.delta)

    def run(self, table: PrivateTable, account: Account, seed: Seed) -> Discovery:
        """Find the graph, then let blocks vote on the edges it leaves open; charges ``account`` before each."""
        from escudo.orientation import orient
        from escudo.orientation._orient import can_be_oriented

        found = self.prepared.run(table, account, seed)
        fine = {name for name in found.graph.nodes if can_be_oriented(self.schema, name)}
        lines = [pair for pair in found.graph.undirected_edges if fine.issuperset(pair)]
        account.spend(self.votes, purpose="directions", for_release=publishable(seed))
        if not lines:
            note = "No edge between columns with an order and values enough was left open, so nothing was voted on."
            return replace(found, plan=self.plan, notes=(*found.notes, note))
        # What the votes cost has just been paid, so they are not charged to the table's account a second time.
        unread = MemoryAccount(
            relation=self.votes.relation, unit=self.votes.unit, max_rows_per_person=table.max_rows_per_person
        )
        try:
            judged = orient(
                CausalGraph.from_edges([], nodes=found.graph.nodes, undirected=lines),
                table.with_account(unread),
                epsilon=self.votes.epsilon,
                relation=self.votes.relation,
                rows=found.rows,
                seed=int(np.random.default_rng(seed).integers(2**31)) if seed is not None else None,
            )
        except InputError as error:  # too few rows for blocks: the graph is paid for, and stays
            return replace(found, plan=self.plan, notes=(*found.notes, f"Nothing was voted on: {error}"))
        graph = found.graph
        told = []
        for answer in sorted(judged.directions, key=lambda one: -abs(one.margin)):
            if answer.cause is None or answer.effect is None:
                continue
            arrow = (answer.cause, answer.effect)
            better = _with_arrow(graph, arrow)
            if better is not None:
                graph = better
                told.append(f"{arrow[0]} → {arrow[1]}")
        note = (
            f"By votes of blocks: {', '.join(told) or 'no direction stood out'} (of {len(lines)} open). A vote says "
            "which direction fits a noise model better; it does not rule out a common cause."
        )
        return replace(found, graph=graph, plan=self.plan, notes=(*found.notes, note))


def _with_arrow(graph: CausalGraph, arrow: Edge) -> CausalGraph | None:
    """Return the graph with one open edge directed and all that follows, or None if that does not fit it."""
    lines = tuple(line for line in graph.undirected_edges if set(line) != set(arrow))
    if len(lines) == len(graph.undirected_edges):
        return None
    try:
        better = closed(replace(graph, edges=(*graph.edges, arrow), undirected_edges=lines))
        better.extension()
    except GraphError:
        return None
    return better if _colliders(better) == _colliders(graph) else None


def _colliders(graph: CausalGraph) -> set[tuple[frozenset[str], str]]:
    """Return the v-structures: pairs of causes of one column that are not adjacent."""
    joined = set(map(frozenset, graph.adjacencies))
    return {
        (frozenset((a, b)), name)
        for name in graph.nodes
        for a in graph.parents(name)
        for b in graph.parents(name)
        if a < b and frozenset((a, b)) not in joined
    }
