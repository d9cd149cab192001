r"""The effect of one column of linked tables on another: people with their visits, each of whom counts once.

**Which rows.** A treatment and an outcome of people are compared over people. A treatment at one row and an outcome at
the next (``"visits.treat@prev"``, ``"visits.severity"``), or anything else of the row before, are compared over all
rows that have one before them; a treatment and an outcome of the same row, or a treatment of people and an outcome of
rows, over all rows. Where a graph chooses what to adjust for and columns of the same row will not do, columns of the
row before are taken too.

**What is estimated.** Everybody with such a row has one voice, shared equally by the person's n rows
(:mod:`escudo.table._linked`), so that means and strata are averages over people of averages over each one's rows:

.. math:: \sum_z P_w(z) \left( E_w[y \mid t, z] - E_w[y \mid t', z] \right), \qquad w = 1/n.

That is the effect of t if the treatment of a row depends, given z, on nothing that the outcome or the number of rows
shares with it. In particular how many rows somebody has is taken not to follow from what is in them.

**Sensitivity.** One person adds :math:`h = \sum_t w_t v_t` to the adjustment table, where :math:`v_t` is what one row
adds (``_adjustment``: entries not negative, length at most 1, l1 norm at most :math:`1 + c/4`) and weights are whole
steps that add up to M. So :math:`\|h\|_2 \le \sum_t w_t \|v_t\|_2 \le M` and :math:`\|h\|_1 \le M (1 + c/4)`, and rows
kept, order and weights depend on the person's own rows only. Replacing one person moves the table by a - b with a and b
not negative: :math:`\|a - b\|_2 \le \sqrt 2 M`, as :math:`a \cdot b \ge 0`. ∎ Of people, each has one cell.

**Refuters** (``_adjustment``) are the same table with coins. *They move as far.* The steps of a cell are numbered, and
the coin of a step is a public function of the cell and its number. Where a person leaves and another comes, a cell
whose number of steps grows by d gets d more of them, with their coins, and one where it shrinks loses its last ones.
What comes and what goes are vectors a and b, not negative, of at most M steps in all, each of length at most 1: the
bounds are those above. ∎ A coin is for one voice, M steps of a cell, so that sides of it differ by as much as if each
person in the cell, with all of a voice there, had tossed one.

**Intervals** take people as what is sampled, and let the rows of one be as alike as they please. *Claim.* For the
variance of any linear statistic :math:`\sum_c s_c A_c` of the table it is enough to take cells as independent counts
with :math:`\mathrm{Var}\, A_c = E A_c` (in voices). *Proof.* Let people come by a Poisson law, which shares do not
depend on. Person i adds :math:`a_{ic} \ge 0` to cell c, with :math:`\sum_c a_{ic} \le 1`. Then

.. math:: \mathrm{Var} \sum_c s_c A_c = E \sum_i \Big( \sum_c s_c a_{ic} \Big)^2
          \le E \sum_i \Big( \sum_c a_{ic} \Big) \Big( \sum_c s_c^2 a_{ic} \Big) \le \sum_c s_c^2\, E A_c

by the inequality of Cauchy and Schwarz. ∎ It is attained where the rows of each person are alike; where they are not
the interval is wider than it had to be. All else is as for one table (``_adjustment``).

**Which columns to adjust for.** The graph of linked tables stands for one over all rows. What is decided here needs two
of them, the row of the outcome and the one before, and one hidden node for all that went before: it is caused by the
people's columns that rows have as causes, and causes every column of the row before that has a cause in its own row
before. *Every path that is open in the graph over all rows is open in this one:* the part of a path through earlier
rows enters it from people or from the row before, and leaves it to the row before, along an arrow that the node has;
and what makes a collider on the path open is below that node too. So a set that is valid here is valid there. ∎
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from escudo.causal import AncestralGraph, CausalGraph
from escudo.discovery._adjustment import Reach
from escudo.discovery._effect_of import EffectQuestion, PreparedEffect
from escudo.discovery._treatment import TreatmentEffect
from escudo.errors import GraphError, InputError, NotIdentifiableError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, Neighbours, Passes, Plan
from escudo.table import (
    COUNT,
    GAP,
    NUMBER,
    PREVIOUS,
    START,
    Column,
    Histories,
    LinkedSchema,
    LinkedTable,
    Numeric,
    PrivateTables,
    Schema,
    View,
    check_linked_graph,
    exactly,
)


@dataclass(frozen=True, slots=True)
class LinkedEffect:
    """How much one column of linked tables changes another: the question."""

    asked: EffectQuestion

    def prepare(self, schema: LinkedSchema, neighbours: Neighbours, budget: Budget) -> PreparedLinkedEffect:
        """Check every public argument and choose which rows and what to measure; nothing is read or spent."""
        schema.require_confirmed()
        asked = self.asked
        if isinstance(asked.graph, AncestralGraph):
            raise GraphError("a graph over linked tables says which column causes which: give a CausalGraph.")
        adjust = () if asked.adjust is None or isinstance(asked.adjust, str) else tuple(asked.adjust)
        table = _table_of(schema, asked.treatment, asked.outcome, adjust)
        if asked.graph is not None:
            check_linked_graph(schema, asked.graph)
            asked = replace(asked, graph=unrolled(schema, asked.graph, table))
        views = _views(table, (asked.treatment, asked.outcome, *adjust))
        if asked.graph is None or asked.adjust is not None:
            views = views[:1]
        for view in views:
            try:
                flat = _Flat(schema, LinkedTable(view=view, table=table, columns=()))
                return _prepared(asked, flat, neighbours, budget)
            except NotIdentifiableError:
                if view == views[-1]:
                    raise
        raise AssertionError("there is a view")


def _prepared(asked: EffectQuestion, flat: _Flat, neighbours: Neighbours, budget: Budget) -> PreparedLinkedEffect:
    reach = Reach(flat.counted.sensitivity(neighbours.relation), flat.counted.steps)
    inside = asked.prepare(flat.columns(asked.outcome), neighbours, budget, reach)
    people = None if neighbours.counted else neighbours.people
    return PreparedLinkedEffect(flat.schema, flat.counted, replace(inside, rows=people))


def _table_of(schema: LinkedSchema, treatment: str, outcome: str, adjust: tuple[str, ...]) -> str:
    """Return the table of rows that is asked about; empty where it is people."""
    if outcome.endswith(PREVIOUS):
        raise InputError(
            f"the outcome is {outcome!r}, of the row before: name it without {PREVIOUS}, and the treatment with it."
        )
    found = {_rows_of(schema, name) for name in (outcome, treatment, *adjust)} - {""}
    if len(found) > 1:
        raise InputError(f"rows of {' and of '.join(sorted(found))} are not compared; name columns of one of them.")
    table = found.pop() if found else ""
    if table and not _rows_of(schema, outcome):
        raise InputError(
            f"the outcome {outcome!r} is of people, and people come before their rows; name an outcome of {table}."
        )
    return table


def _rows_of(schema: LinkedSchema, name: str) -> str:
    """Return the table of rows that a column is of; empty for people, of whom it says how many rows they have too."""
    plain = name.removesuffix(PREVIOUS)
    table = schema.table_of(plain)
    own = plain.removeprefix(f"{table}.")
    if table != schema.people and (parent := schema.child(table).parent):
        raise InputError(
            f"{name!r} is of rows of {parent}, and effects are estimated of people and of their rows: make what "
            f"matters of {table} a column of {parent}, or ask a model, as in model.sample(1000, do={{{plain!r}: ...}})."
        )
    if table != schema.people and own == START:
        raise InputError(f"{name!r} is of first rows only, and no effect of it or on it is estimated.")
    derived = table == schema.people or own in (COUNT, GAP, NUMBER)
    if plain != name and derived:
        raise InputError(f"{name!r}: only a column of rows has one in the row before.")
    return "" if table == schema.people or own == COUNT else table


def _views(table: str, names: tuple[str, ...]) -> list[View]:
    """Return which rows are compared, what is tried first at the beginning."""
    if not table:
        return ["people"]
    after = any(name.endswith(PREVIOUS) or name == f"{table}.{GAP}" for name in names)
    return ["next"] if after else ["all", "next"]


@dataclass(frozen=True, slots=True)
class _Flat:
    """Rows of linked tables as if they were those of one table: what the columns of each are."""

    schema: LinkedSchema
    counted: LinkedTable

    def columns(self, outcome: str) -> Schema:
        """Return all that is known of one row; a number of rows that is the outcome is taken exactly."""
        found = dict(self._named())
        table = outcome.removesuffix(f".{COUNT}")
        if table != outcome and table in self.schema.tables:
            found[outcome] = Numeric(outcome, 0, self.schema.child(table).most, 1, integer=True)
        return Schema(tuple(_renamed(column, name) for name, column in found.items()))

    def _named(self) -> Iterator[tuple[str, Column]]:
        """Give the columns of people, numbers of rows, and of a row and the one before."""
        schema, table = self.schema, self.counted.table
        people = [f"{schema.people}.{name}" for name in schema.person.names]
        for name in (*people, *(f"{child.name}.{COUNT}" for child in schema.of_people)):
            yield name, schema.column(name)
        if not table:
            return
        child = schema.child(table)
        after = self.counted.view == "next"
        for own in (*child.schema.names, NUMBER, *([GAP] if after else [])):
            yield f"{table}.{own}", child.column(own)
        for own in child.schema.names if after else ():
            yield f"{table}.{own}{PREVIOUS}", child.column(own)


def flat_columns(schema: LinkedSchema, view: LinkedTable, *, without: tuple[str, ...] = ()) -> Schema:
    """Return what is known of one row of a view, as the columns of one table; of other tables no number of rows."""
    others = {f"{child.name}.{COUNT}" for child in schema.children if view.table and child.name != view.table}
    left = others | {f"{view.table}.{name}" for name in without}
    found = [(name, column) for name, column in _Flat(schema, view)._named() if name not in left]
    return Schema(tuple(_renamed(column, name) for name, column in found))


def _renamed(column: Column, name: str) -> Column:
    if isinstance(column, Numeric):
        column = replace(column, derived=None, unit=None)
    return replace(column, name=name)


@dataclass(frozen=True, slots=True)
class PreparedLinkedEffect:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The tables.
        counted: Which rows are compared, with which weight.
        inside: The same as for one table.
    """

    schema: LinkedSchema
    counted: LinkedTable
    inside: PreparedEffect

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        return self.inside.plan

    def run(self, table: PrivateTables, purse: Purse) -> TreatmentEffect:
        """Measure and estimate."""
        return self._told(self.inside.answer(self.counts(table), purse))

    @property
    def passes(self) -> Passes:
        """How often the rows are read."""
        return self.inside.passes

    def counts(self, table: PrivateTables) -> NDArray[np.int64]:
        """Return the voices in each stratum, cell of the treatment and cell of the outcome: exact, so private."""
        measured, column = self.inside.table, self.inside.table.outcome.column
        outcome, several = column.name, column.name.removesuffix(f".{COUNT}")
        if several != outcome and several in self.schema.tables:
            outcome = exactly(several)
        elif isinstance(column, Numeric):
            table = table.with_column(outcome, _kept(column, self.schema.column(outcome)))
        names = (*measured.adjustment, measured.treatment, outcome)
        (counts,) = table.counts([replace(self.counted, columns=names)])
        counts = counts.reshape(measured.strata, -1, counts.shape[-1])
        if outcome != column.name:  # numbers of rows, which may fall into fewer cells
            cells = column.encode(np.arange(counts.shape[-1]))
            counts = counts @ (cells[:, None] == np.arange(column.size)).astype(np.int64)
        return counts

    def without_noise(self, histories: Histories) -> float:
        """Return what it estimates, of an outcome with levels, from everybody's rows themselves: private.

        Strata in which one of the arms is empty are left out.
        """
        table, (control, treated) = self.inside.table, self.inside.contrast
        names = (*table.adjustment, table.treatment, table.outcome.column.name)
        counts = histories.counts(replace(self.counted, columns=names)).reshape(
            table.strata, -1, table.outcome.column.size
        )
        known = counts[..., : len(table.outcome.weights)].astype(np.float64)
        rows, right = known.sum(axis=2), known @ (table.outcome.weights / table.outcome.steps)
        both = (rows[:, control] > 0) & (rows[:, treated] > 0)
        if not both.any():
            return 0.0
        apart = right[both][:, treated] / rows[both][:, treated] - right[both][:, control] / rows[both][:, control]
        return float(np.average(apart, weights=counts[both].sum(axis=(1, 2))) * table.outcome.span)

    def measured_interval(self, table: PrivateTables, purse: Purse) -> tuple[float, float]:
        """Return the interval of the contrast asked for, and nothing else of the answer: for simulated tables."""
        strata = self.inside.table.release(self.inside.table.sums(self.counts(table)), purse)
        return self.inside.interval_of(strata)

    def _told(self, found: TreatmentEffect) -> TreatmentEffect:
        """Say whose effect it is."""
        table, people = self.counted.table, self.schema.people
        rows = f"rows of {table}" if self.counted.view != "next" else f"rows of {table} that have one before them"
        if table:
            note = (
                f"Over {rows}: everybody in {people} with such a row counts once, however many they are. The interval "
                "allows for all rows of a person being alike. How many rows somebody has is taken not to follow from "
                "what is in them."
            )
        else:
            note = f"Over {people}, each of whom counts once."
        return replace(
            found,
            meaning=found.meaning.replace("the share of rows", f"the share of {'rows' if table else people}", 1),
            notes=[found.notes[0], note, *found.notes[1:]],
            counted="people",
        )


def _kept(fine: Numeric, own: Column) -> Numeric:
    assert isinstance(own, Numeric)
    return replace(fine, derived=own.derived, unit=own.unit)


def unrolled(schema: LinkedSchema, graph: CausalGraph, table: str) -> CausalGraph:
    """Return what a graph over linked tables says of a row, of the one before, and of all that went before that.

    Rows of rows cause nothing but each other, so that the graph says the same of all else without them.

    Args:
        schema: The tables.
        graph: Which column causes which.
        table: The table of rows; empty for people alone.
    """
    below = tuple(f"{child.name}." for child in schema.children if child.parent)
    if any(name.startswith(below) for name in graph.nodes):
        kept = [arrow for arrow in graph.edges if not arrow[1].startswith(below)]
        graph = CausalGraph(nodes=tuple(n for n in graph.nodes if not n.startswith(below)), edges=tuple(kept))
    arrows: list[tuple[str, str]] = []
    earlier = f"earlier rows of {table}"
    into = {child: _rows_of_effect(schema, child) for child in graph.nodes if not child.endswith(PREVIOUS)}
    before = dict.fromkeys(name for name, of in into.items() if of == table and table)
    for cause, effect in graph.edges:
        if not into[effect]:
            arrows.append((cause, effect))
        elif into[effect] == table:
            arrows.append((cause, effect))
            if effect == f"{table}.{START}":
                continue  # there is one of it
            shared = cause not in before or cause in (f"{table}.{NUMBER}", f"{table}.{START}")
            if cause.endswith(PREVIOUS):
                arrows.append((earlier, effect + PREVIOUS))
            elif shared:
                arrows += [(cause, effect + PREVIOUS), (cause, earlier)]
            else:
                arrows.append((cause + PREVIOUS, effect + PREVIOUS))
    hidden = {earlier, f"{table}.{GAP}{PREVIOUS}", f"{table}.{START}"} if table else set()
    named = [name for name in graph.nodes if not into.get(name) or into[name] == table]
    nodes = dict.fromkeys([*named, *(end for arrow in arrows for end in arrow)])
    return CausalGraph(
        nodes=tuple(nodes),
        edges=tuple(dict.fromkeys(arrows)),
        latents=frozenset(name for name in nodes if name in hidden),
    )


def _rows_of_effect(schema: LinkedSchema, name: str) -> str:
    table = schema.table_of(name)
    return "" if table == schema.people or name == f"{table}.{COUNT}" else table
