r"""Synthesis without a graph: discovery and generator under one plan, from one set of measurements.

Of the budget (in ρ), ``STRUCTURE_SHARE`` goes to the residual tables that discovery needs. The graph that is found for
generating (all of the one that is reported, in its directions, and more) says which families matter, and the rest
measures their residuals again. Both measurements of a residual are averaged by precision, so that what the structure
cost is not lost to the laws; tables are made of the averages, brought to agreement, and turned into one law per column
as for any graph.

Families hold at most three parents. Where a table over all cells of a family (wide columns are merged for discovery,
but not here) would be larger than the data can fill, the parents that say least are left out.

**Guarantee.** A composition of Gaussian events, shown in the plan; their sensitivity is proved in
``discovery/_measurement.py``. Which families are measured depends on the table only through what was released before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.discovery import (
    MOST_NUMBERS,
    Design,
    Levels,
    PreparedDiscrete,
    Residuals,
    Scope,
    design_of,
    measure,
    release_event,
    table_batches,
)
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, GaussianEvent, Neighbours, Plan, calibrate
from escudo.synthesis._estimation import NoisyTable, estimate
from escudo.synthesis._generators import above_zero, neighbours_of
from escudo.synthesis._laws import TableConditional
from escudo.synthesis._model import CausalModel, anchor_of
from escudo.synthesis._structure import graph_of, with_lines
from escudo.table import PrivateTable, Schema

Floats = NDArray[np.float64]

STRUCTURE_SHARE = 0.7
"""Of ρ: what goes to the tables that both the graph and the laws are read off."""

_FULL = 0.05  # a family's table has at most this many cells for each row,
_SMALL = 64  # or this many


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDiscovered:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        structure: How the graph is found.
        families: The release of the residuals of its families.
        delta: The δ at which the plan is stated.
    """

    schema: Schema
    structure: PreparedDiscrete
    families: GaussianEvent
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        return Plan(
            "marginals",
            children=[
                Plan("graph, and tables for the laws", children=self.structure.plan.children),
                Plan("tables of the graph's families", self.families, buys="laws"),
                Plan("fitting all tables together"),
                Plan("sampling"),
            ],
            delta=self.delta,
        )

    def run(self, table: PrivateTable, purse: Purse) -> CausalModel:
        """Find the graph, measure its families, and estimate."""
        found = self.structure.find(table, purse)
        assert found.tables is not None
        levels, residuals = found.tables.levels, found.tables.residuals
        raw = replace(levels, groups={})
        parents = _affordable(found.generating_graph, raw, residuals.rows)
        families = _largest(raw, parents)
        scopes = _closure(families)
        fresh = measure(table, raw, scopes, self.families, purse, residuals.rows)
        together = _together(residuals, fresh, levels)
        tables = [
            NoisyTable(tuple(raw.names[i] for i in scope), cells, scale)
            for scope, cells, scale in _tables(together, families)
        ]
        sizes = {name: self.schema[name].size for name in self.schema.names}
        causes = {name: parents.get(name, ()) for name in self.schema.names}
        laws = {
            name: TableConditional(law.parents, np.ascontiguousarray(law.table))  # model files need plain memory
            for name, law in estimate(sizes, causes, tables, total=residuals.rows).items()
        }
        told = found.to_json()
        return CausalModel(
            schema=self.schema,
            graph=graph_of(causes),
            stated=with_lines(found.graph, [(cause, name) for name, several in causes.items() for cause in several]),
            conditionals=laws,
            guarantee=purse.guarantee,
            generator="marginals",
            plan=self.plan,
            details={
                "rows": found.rows,
                # Where the direction is a finding; the others only help to imitate the table.
                "stated_arrows": [[a, b] for a, b in found.graph.edges if a in causes[b]],
                "discovery": {key: told[key] for key in ("method", "edges", "cannot_tell", "notes")},
                **anchor_of(purse),
            },
        )


@dataclass(frozen=True, slots=True)
class DiscoveredSynthesis:
    """The question that a graph and a generator that follows it answer together.

    Attributes:
        knowledge: What is known of the graph; see :func:`escudo.discovery.discover`.
        method: How the graph is found, from counts.
    """

    knowledge: CausalGraph | None = None
    method: str = "auto"

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedDiscovered:
        """Choose what to measure from public facts alone.

        Raises:
            InputError: If δ is 0, or the method needs no tables.
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        if self.method == "gaussian":
            raise InputError("A generator from discovery needs tables: use method='auto', or name another generator.")
        above_zero(budget)
        design = design_of(schema, neighbours, budget, self.knowledge, self.method)

        def events(level: float) -> list[GaussianEvent]:
            return [*design.events(level / math.sqrt(STRUCTURE_SHARE)), _families(design, level)]

        level = calibrate(events, budget)
        return PreparedDiscovered(
            schema=schema,
            structure=design.at(level / math.sqrt(STRUCTURE_SHARE), schema, budget.delta),
            families=_families(design, level),
            delta=budget.delta,
        )


def prepare_discovered(
    schema: Schema,
    knowledge: CausalGraph | None = None,
    *,
    epsilon: float,
    delta: float,
    relation: str = "replace_one",
    public_rows: int | None = None,
    method: str = "auto",
) -> PreparedDiscovered:
    """Choose what to measure, for a graph and a generator that follows it, from public facts alone.

    Args:
        schema: The columns.
        knowledge: What is known of the graph; see :func:`escudo.discovery.discover`.
        epsilon: What graph and generator may cost together.
        delta: At this probability aside.
        relation: Neighbouring relation.
        public_rows: The number of rows, if it is public knowledge.
        method: How the graph is found, from counts.

    Returns:
        What :func:`~escudo.synthesis.fit` and :func:`~escudo.synthesis.fitting` take.

    Raises:
        InputError: If an argument is out of range.
        RefusedError: If the schema is not confirmed.
    """
    question = DiscoveredSynthesis(knowledge, method)
    return question.prepare(schema, neighbours_of(schema, relation, public_rows), Budget(epsilon, delta))


def _families(design: Design, level: float) -> GaussianEvent:
    return release_event(level / math.sqrt(1 - STRUCTURE_SHARE), design.neighbours, numbers=MOST_NUMBERS)


def _affordable(graph: CausalGraph, levels: Levels, rows: float) -> dict[str, tuple[str, ...]]:
    """Return each column's parents, without those that make its table larger than the rows can fill."""
    place = {name: number for number, name in enumerate(levels.names)}
    room = max(_FULL * rows, _SMALL)

    def cells(name: str, several: Sequence[str]) -> int:
        return levels.raw_cells(tuple(place[x] for x in (name, *several)))

    kept = {name: sorted(graph.parents(name), key=lambda x: levels.cells[place[x]]) for name in levels.names}
    for name, several in kept.items():
        while several and cells(name, several) > room:
            several.pop()
    while any(kept.values()) and sum(cells(name, several) for name, several in kept.items()) > MOST_NUMBERS:
        max(kept.items(), key=lambda family: (bool(family[1]), cells(*family)))[1].pop()
    return {name: tuple(sorted(several, key=levels.names.index)) for name, several in kept.items()}


def _largest(levels: Levels, parents: Mapping[str, Sequence[str]]) -> list[Scope]:
    """Return the families that lie in no other, as columns by number."""
    place = {name: number for number, name in enumerate(levels.names)}
    families = {tuple(sorted(place[x] for x in (name, *several))) for name, several in parents.items()}
    return sorted(f for f in families if not any(set(f) < set(other) for other in families))


def _closure(families: Sequence[Scope]) -> list[Scope]:
    """Return all sets of columns within the families, small ones first."""
    inner = {
        part
        for family in families
        for order in range(1, len(family) + 1)
        for part in itertools.combinations(family, order)
    }
    return sorted(inner, key=lambda scope: (len(scope), scope))


def _together(first: Residuals, fresh: Residuals, levels: Levels) -> Residuals:
    """Return the fresh residuals, averaged with the first ones where both are about the same levels."""
    same = {scope: start for scope, start in first.starts.items() if levels.groups.keys().isdisjoint(scope)}
    shared = replace(first, sizes=fresh.sizes, starts=same)
    return shared.joined(fresh)


def _tables(residuals: Residuals, scopes: Sequence[Scope]) -> list[tuple[Scope, Floats, float]]:
    """Return the table of each scope, and the standard deviation of the noise in one of its cells."""
    found = []
    for batch in table_batches(residuals, scopes):
        variance = np.zeros(len(batch.scopes))
        for axes, noise in batch.noise.items():
            variance += noise / math.prod(size**2 for axis, size in enumerate(batch.shape) if axis not in axes)
        made = batch.tables(residuals.values, residuals.rows)
        found += [(s, cells, math.sqrt(v)) for s, cells, v in zip(batch.scopes, made, variance, strict=True)]
    return found
