r"""Synthesis along a graph that is found first, under the same budget, by generators that need one beforehand.

``GRAPH_SHARE`` of the budget, as inverse variance, finds the graph (:mod:`escudo.discovery`); the rest measures what
the generator fits along it. One plan, one charge. The share is that of linked tables (``_linked_discovered``); it was
not chosen by any measurement of these generators. (Generator ``marginals`` reads the graph off its own tables instead:
``_discovered``.)

**What is measured may depend on the graph, what it costs may not**, as the plan stands before a row is read:

* ``linear`` releases one matrix of second moments, whatever the graph; the graph says only how equations are read off
  it. Nothing about the release waits for it. By default the graph is found by method ``gaussian``, which looks for the
  linear effects that the model is made of.
* ``moments`` releases one clipped vector of sums, of levels and of pairs along the arrows. Which pairs these are, and
  so how long the vector is, waits for the graph. Its event does not: a row's vector is shrunk to length 2²⁰ whatever
  its entries are (``_moment_statistics``), and noise on whole numbers is stated by that length and a scale, not by how
  many numbers there are. Likewise the clip bound is chosen from counts of rows by their length, and one row is one
  count, whatever its length is made of.

**Guarantee.** A composition of the events of the discovery, of private bins where the schema leaves them open, and of
the generator, all of them fixed beforehand and shown in the plan. What is summed depends on the rows only through the
graph, which was released before: given that, each release is a mechanism with the planned event, for every graph, and
adaptive composition adds them up as if the graph had been stated. ∎ (``PreparedFollowing.along`` must keep every event
as it is; :meth:`PreparedFound.run` makes sure of it before anything is measured along the graph.)

**What is claimed**: the graph that was found, and no more. Its undirected edges are followed in one of their
directions, as going together; do() that depends on them is refused. Where a family would be too large to fit, arrows
of the columns with most levels are left out of the law and left open in what is claimed, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from escudo.causal import CausalGraph
from escudo.discovery import Discovery, GraphQuestion
from escudo.discovery import Prepared as PreparedGraph
from escudo.errors import GraphError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, Neighbours, Passes, Plan
from escudo.synthesis._budget import GRAPH_SHARE, epsilon_of_share
from escudo.synthesis._model import Model
from escudo.synthesis._structure import Structure
from escudo.table import PRIVATE_BINS, Numeric, PrivateTable, Schema


class PreparedFollowing(Protocol):
    """A generator that knows what it will spend before it knows which arrows it follows."""

    @property
    def plan(self) -> Plan:
        """All that ``run`` may spend, whatever the graph."""
        ...

    @property
    def passes(self) -> Passes:
        """How often the rows are read."""
        ...

    def along(self, structure: Structure) -> PreparedFollowing:
        """Return the same, along these arrows or most of them: with the same events."""
        ...

    def run(self, table: PrivateTable, purse: Purse) -> Model:
        """Measure and estimate."""
        ...


class Following(Protocol):
    """A generator that can wait for its graph."""

    name: str
    found_by: str  # the method of discovery that fits it
    cuts: bool  # whether it takes numbers in bins

    def awaiting(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedFollowing:
        """Choose how loudly to measure, from public facts alone, for arrows that are not known yet."""
        ...


def prepare_found(
    generator: Following, question: GraphQuestion, schema: Schema, neighbours: Neighbours, budget: Budget
) -> PreparedFound:
    """Choose what to measure for a graph and a generator that follows it, from public facts alone.

    Args:
        generator: The generator.
        question: How the graph is found.
        schema: The columns.
        neighbours: Between which tables the promise holds.
        budget: What both may cost, together with what is reserved of it.
    """
    part = Budget(epsilon_of_share(GRAPH_SHARE, budget), budget.delta)
    graph = question.prepare(_with_edges(schema) if generator.cuts else schema, neighbours, part)
    paid = [leaf.event for leaf in graph.plan.leaves() if leaf.event is not None]
    return PreparedFound(
        schema,
        generator.name,
        graph,
        rest=generator.awaiting(schema, neighbours, budget.reserving(paid)),
        delta=budget.delta,
    )


def _with_edges(schema: Schema) -> Schema:
    """Return the columns as discovery counts them: those whose bins are chosen on the way have bins, like any other.

    There are as many as will be chosen. Where they lie is read from the table, once they are.
    """

    def cut(column: Numeric) -> Numeric:
        edges = np.linspace(*column.bounds, PRIVATE_BINS + 1)
        return replace(column, private=False, edges=tuple((edges if column.date is None else np.ceil(edges)).tolist()))

    left = [cut(column) for column in schema.fields if isinstance(column, Numeric) and column.private]
    return schema.with_columns(*left) if left else schema


@dataclass(frozen=True, slots=True)
class PreparedFound:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        generator: The generator's name.
        graph: How the graph is found.
        rest: What the generator measures then.
        delta: The δ at which the plan is stated.
    """

    schema: Schema
    generator: str
    graph: PreparedGraph
    _: KW_ONLY
    rest: PreparedFollowing
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        search = Plan(f"graph, {GRAPH_SHARE:.0%} of what it and the generator get", children=self.graph.plan.children)
        return Plan(self.generator, children=[search, *self.rest.plan.children], delta=self.delta)

    @property
    def passes(self) -> Passes:
        """How often the rows are read: for the graph, and along it."""
        return self.graph.passes + self.rest.passes

    def run(self, table: PrivateTable, purse: Purse) -> Model:
        """Find the graph, measure along it, and estimate."""
        found = cast(Discovery, self.graph.run(table, purse))
        structure = Structure(parents_along(found.graph), (), found.graph)
        following = self.rest.along(structure)
        if _events(following.plan) != _events(self.rest.plan):
            raise AssertionError("what is measured along a graph costs what the plan shows, whatever the graph")
        model = following.run(table, purse)
        told = told_of(found, cast(CausalGraph, model.stated))
        return replace(model, plan=purse.plan, details={**model.details, "discovery": told})


def _events(plan: Plan) -> list[Any]:
    return [leaf.event for leaf in plan.leaves() if leaf.event is not None]


def parents_along(graph: CausalGraph) -> dict[str, tuple[str, ...]]:
    """Return each column's parents in a graph that agrees with the arrows, and adds no common effect if it can."""
    try:
        arrows = set(graph.extension().edges)
    except GraphError:
        order = {
            name: number
            for number, name in enumerate(CausalGraph.from_edges(graph.edges, nodes=graph.nodes).topological_order())
        }
        arrows = {*graph.edges, *((a, b) if order[a] < order[b] else (b, a) for a, b in graph.undirected_edges)}
    return {name: tuple(each for each in graph.nodes if (each, name) in arrows) for name in graph.nodes}


def told_of(found: Discovery, claimed: CausalGraph) -> Mapping[str, Any]:
    """Return what record and report say of a graph that was found first."""
    said = found.to_json()
    open_now = [(a, b) for a, b in found.graph.edges if (a, b) not in claimed.edges]
    edges = [
        edge | ({"directed": False, "direction_confidence": None} if (edge["from"], edge["to"]) in open_now else {})
        for edge in said["edges"]
    ]
    notes = [
        f"{GRAPH_SHARE:.0%} of what graph and generator got, as inverse variance, found the graph.",
        *said["notes"],
    ]
    if open_now:
        listed = ", ".join(f"{a} → {b}" for a, b in open_now)
        notes.append(f"Found, and left out of laws that would have too many levels: {listed}.")
    return {
        "method": said["method"],
        "share": GRAPH_SHARE,
        "edges": edges,
        "cannot_tell": said["cannot_tell"],
        "notes": notes,
    }
