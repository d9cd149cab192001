r"""A causal graph over linked tables: among columns of people, into how many rows they have, and from row to row.

**What is asked.** Columns of people and numbers of rows are one table of people. For each table of rows, the columns of
people, its number of rows, the row before, the days between and the row itself are another, over all rows that have one
before them; each person with such a row has one voice (:mod:`escudo.table._linked`). Graphs are found in both as in one
table (``_discrete``), from one set of noisy tables under one plan, with what time says as knowledge: nothing leads from
rows to people, from a row to the one before, or from a row to the days before it, and every column of a row follows
from itself in the row before. Of the second table only arrows into the row and the days before it are kept: what is
between columns of the row before is between those of the row too.

**Sensitivity.** It is that of one row, however many rows a person has. *Proof.* A row adds a vector v (its residuals,
and its part of the number of rows where that is measured; ``_measurement``), of the same length :math:`\sqrt{Δ_+^2 +
p_0}` for every row, and two rows differ by at most :math:`Δ_\pm` in residuals, and not in the number. A person adds the
mean of their rows' vectors, or nothing. Adding or removing it is at most as long as one of them. Replacing one mean by
another, :math:`\sum_t w_t v(x_t) - \sum_u w'_u v(y_u) = \sum_{t,u} w_t w'_u (v(x_t) - v(y_u))`, which is at most
:math:`Δ_\pm` long; and where one of the two has no rows it is at most :math:`\sqrt{Δ_+^2 + p_0} \le Δ_\pm`. ∎ Weights
are whole steps that add up to one voice, so means are exact.

**What is told.** The graph is one that linked tables can follow, every edge with a direction. Where the tables do not
tell a direction it is that of the generating graph, and its confidence is one half. Arrows from a number of rows to
columns of these rows are left out: every model has them anyway, and they claim nothing about causes. Rows of rows are
not searched; what causes their columns is to be stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from escudo.causal import CausalGraph, Knowledge
from escudo.discovery._answer import Discovery, told_by
from escudo.discovery._discrete import PreparedDiscrete, design_of
from escudo.discovery._linked_effect import flat_columns
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, GaussianEvent, Neighbours, Passes, Plan, calibrate
from escudo.table import (
    COUNT,
    GAP,
    NUMBER,
    PREVIOUS,
    Gathered,
    LinkedSchema,
    LinkedTable,
    PrivateTables,
    Schema,
    check_linked_graph,
)

PEOPLE_SHARE = 0.2
"""What columns of people get of the budget, in zCDP; tables of rows share the rest."""

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LinkedGraphQuestion:
    """Which causal graph linked tables support: the question.

    Attributes:
        knowledge: What is known of it, by whole names.
        method: ``"auto"``, ``"exact"`` or ``"two-stage"``.
    """

    knowledge: CausalGraph | None = None
    method: str = "auto"

    def prepare(self, schema: LinkedSchema, neighbours: Neighbours, budget: Budget) -> PreparedLinkedGraph:
        """Check every public argument and choose what to measure; nothing is read or spent.

        Raises:
            InputError: If an argument is out of range, or there is nothing to find.
            GraphError: If the knowledge is none that linked tables can follow.
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        if self.method not in ("auto", "exact", "two-stage"):
            raise InputError(f"of linked tables method is 'auto', 'exact' or 'two-stage'; got {self.method!r:.60}.")
        if budget.delta == 0:
            raise InputError("delta must be above 0: Gaussian noise needs a delta, such as 1e-6.")
        if self.knowledge is not None:
            check_linked_graph(schema, self.knowledge)
        views = [LinkedTable(view="people", columns=())]
        views += [LinkedTable(view="next", table=one.name, columns=()) for one in schema.of_people if one.most > 1]
        kept, designs = [], []
        for view in views:
            flat = flat_columns(schema, view, without=(NUMBER,))
            if sum(column.size > 1 for column in flat.fields) < 2:
                continue
            known = _known(schema, view, flat, self.knowledge)
            between = replace(neighbours, rows=neighbours.people if view.view == "people" else None)
            design = design_of(flat, between, budget, known, self.method)
            kept.append((view, flat))
            designs.append(replace(design, voice=view.steps))
        if not kept:
            raise InputError("Discovery needs at least two columns with more than one level.")
        shares = _shares([view for view, _ in kept])

        def events(level: float) -> list[GaussianEvent]:
            return [e for d, share in zip(designs, shares, strict=True) for e in d.events(level / math.sqrt(share))]

        level = calibrate(events, budget)
        parts = tuple(
            _Part(view, design.at(level / math.sqrt(share), flat, budget.delta))
            for (view, flat), design, share in zip(kept, designs, shares, strict=True)
        )
        return PreparedLinkedGraph(schema, parts, budget.delta)


def _shares(views: Sequence[LinkedTable]) -> list[float]:
    rows = sum(view.view != "people" for view in views)
    if rows == 0 or rows == len(views):
        return [1 / len(views)] * len(views)
    return [PEOPLE_SHARE if view.view == "people" else (1 - PEOPLE_SHARE) / rows for view in views]


def _known(schema: LinkedSchema, view: LinkedTable, flat: Schema, stated: CausalGraph | None) -> CausalGraph:
    """Return what time says of a view's columns, and what was stated of them."""

    def tier(name: str) -> int:
        """Return when it comes: people, numbers of rows, the row before, the days between, the row."""
        if name.endswith(PREVIOUS):
            return 2
        own = schema.table_of(name)
        if own == schema.people:
            return 0
        return 1 if name == f"{own}.{COUNT}" else 3 if name == f"{own}.{GAP}" else 4

    names = flat.names
    forbidden = {(a, b) for a, b in product(names, names) if tier(a) > tier(b)}
    forbidden |= {(a, b) for a, b in product(names, names) if a != b and tier(a) == tier(b) == 1}  # no row of another
    arrows = {(name + PREVIOUS, name) for name in names if name + PREVIOUS in flat}
    if stated is not None:
        arrows |= {(a, b) for a, b in (*stated.edges, *stated.required) if a in flat and b in flat}
        forbidden |= {
            (a, b)
            for a, b in product(names, names)
            if a != b and a in stated and b in stated and stated.knowledge.forbids(a, b)
        }
        both = [(a + PREVIOUS, b + PREVIOUS) for a, b in stated.edges]  # what holds in a row holds in the row before
        arrows |= {(a, b) for a, b in both if a in flat and b in flat}
    return CausalGraph(
        nodes=names, edges=tuple(sorted(arrows)), knowledge=Knowledge(forbidden=tuple(sorted(forbidden - arrows)))
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """One table of columns: which rows it is of, and what is measured."""

    view: LinkedTable
    method: PreparedDiscrete

    @property
    def name(self) -> str:
        return "people" if self.view.view == "people" else f"{self.view.table}, row by row"


class _Voices:
    """Everybody's rows as one table that counts voices, in steps."""

    def __init__(self, everybody: Gathered, view: LinkedTable, neighbours: Neighbours):
        self._everybody, self._view, self.neighbours = everybody, view, neighbours

    def counts(self, columns: Sequence[Sequence[str]]) -> list[NDArray[np.int64]]:
        """Return count tables."""
        return self._everybody.counts([replace(self._view, columns=tuple(names)) for names in columns])


@dataclass(frozen=True, slots=True)
class PreparedLinkedGraph:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The tables.
        parts: Columns of people, and of each table of rows.
        delta: The δ at which the plan is stated.
    """

    schema: LinkedSchema
    parts: tuple[_Part, ...]
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        return Plan(
            "discovery (linked tables)",
            children=[Plan(part.name, children=part.method.plan.children) for part in self.parts],
            delta=self.delta,
        )

    @property
    def passes(self) -> Passes:
        """How often the rows are read."""
        return Passes(1)

    @property
    def purpose(self) -> str:
        """Why, for the account."""
        return f"discover ({self.plan.name})"

    def run(self, table: PrivateTables, purse: Purse) -> Discovery:
        """Measure what the plan shows, search, and put the graphs together."""
        found = []
        with table.gathered() as everybody:
            for part in self.parts:
                voices = cast(Any, _Voices(everybody, part.view, part.method.design.neighbours))
                found.append(part.method.find(voices, purse))
        return self._joined(found, purse)

    def _joined(self, found: Sequence[Discovery], purse: Purse) -> Discovery:
        edges: dict[Edge, None] = {}
        dense: dict[Edge, None] = {}
        sure: dict[Edge, float] = {}
        way: dict[Edge, float] = {}
        notes, open_ones = [], []
        for part, one in zip(self.parts, found, strict=True):
            for arrow in one.generating_graph.edges:
                if self._kept(part.view, arrow):
                    dense[arrow] = None
            for pair in (*one.graph.edges, *one.graph.undirected_edges):
                known = pair in one.graph.edges
                arrow = pair if known or pair in one.generating_graph.edges else (pair[1], pair[0])
                if not self._kept(part.view, arrow):
                    continue
                edges[arrow] = dense[arrow] = None
                sure[cast(Edge, tuple(sorted(arrow)))] = one.confidence(*arrow)
                if not known:
                    way[arrow] = 0.5
                    open_ones.append(f"{arrow[0]} → {arrow[1]}")
                elif arrow in one.direction_confidence:
                    way[arrow] = one.direction_confidence[arrow]
            notes += [f"{part.name}: {note}" for note in one.notes]
        if open_ones:
            notes.append(f"The tables do not tell the direction of {', '.join(open_ones)}: it is one of two.")
        if any(part.view.view == "next" for part in self.parts):
            notes.append("That every column of a row follows from itself in the row before is given, not found.")
        notes.append("Arrows from a number of rows to columns of these rows are left out; models have them anyway.")
        if below := [child.name for child in self.schema.children if child.parent]:
            notes.append(f"What causes columns of {' and '.join(below)}, rows of rows, is not searched for; state it.")
        nodes = dict.fromkeys(name for arrow in dense for name in arrow)
        nodes |= dict.fromkeys(f"{self.schema.people}.{name}" for name in self.schema.person.names)
        return Discovery(
            graph=CausalGraph(nodes=tuple(nodes), edges=tuple(edges)),
            generating_graph=CausalGraph(nodes=tuple(nodes), edges=tuple(dense)),
            edge_confidence=sure,
            direction_confidence=way,
            cannot_tell="; ".join(dict.fromkeys(one.cannot_tell for one in found if one.cannot_tell)),
            **told_by(purse, found[-1].method, found[0].rows, notes),
        )

    def _kept(self, view: LinkedTable, arrow: Edge) -> bool:
        """Return whether an arrow says something of the graph: it leads into people, or into the row."""
        cause, effect = arrow
        if view.view == "people":
            return True
        own = effect.startswith(f"{view.table}.") and not effect.endswith(PREVIOUS) and not effect.endswith(f".{COUNT}")
        return own and not cause.endswith(f".{COUNT}")
