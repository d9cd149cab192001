r"""Method ``gaussian``: graphs of numbers with linear effects, from one whitened second-moment matrix.

What is measured, and why it is private, is in ``_gaussian_moments``; the score and its search in ``_gaussian_search``.
The effects must be about linear; the law of what remains may be anything, as only correlations are read. Directions are
those that all equivalent graphs share.

With a budget so small that the matrix says less than a few dozen rows would, only a forest is reported, or nothing.

**Guarantee.** Three Gaussian events, shown in the plan: scales, whitening, second moments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from escudo.causal import CausalGraph
from escudo.discovery._confidence import edge_confidences, recurrence
from escudo.discovery._constraints import Constraints, constraints_of
from escudo.discovery._discovery import Discovery
from escudo.discovery._gaussian_moments import CELLS, STEPS, Moments, measured, squared_limit
from escudo.discovery._gaussian_search import LinearScore, Parents, searched
from escudo.discovery._pattern import dag, pattern
from escudo.errors import InputError, SchemaError
from escudo.mechanisms import Seed, gaussian_event
from escudo.privacy import Account, GaussianEvent, Plan, Relation, calibrate
from escudo.table import Numeric, PrivateTable, Schema, count_sensitivity

__all__ = ["PreparedGaussian", "prepare"]

_SHARES: Final = (0.10, 0.25, 0.65)  # of ρ: scales, whitening, second moments
_STRICTNESS, _DENSE = 1.5, 0.5  # γ of the graph that is reported, and of the one that generates
_FEW_ROWS = 60.0  # effective rows below which only a forest is reported
_HARDLY_ANY = 10.0  # and below which no edge is
_MOST_PARENTS = 8
_MOST_COLUMNS = 200
_ROUNDS, _ROUNDS_AGAIN = 200, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedGaussian:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns, all numeric.
        constraints: What is known of them.
        events: The releases: scales, whitening, second moments.
        delta: The δ at which the plan is stated.
        public_rows: The number of rows, where it was given as public.
    """

    schema: Schema
    constraints: Constraints
    events: tuple[GaussianEvent, GaussianEvent, GaussianEvent]
    delta: float
    public_rows: int | None

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        columns = len(self.schema.names)
        side = columns + 1
        clip = math.sqrt(columns + math.sqrt(2 * columns) + 0.25)
        return Plan(
            "discovery (gaussian)",
            children=[
                Plan("scales", self.events[0], buys=f"middle and spread of {columns} columns"),
                Plan("whitening", self.events[1], buys=f"{columns} × {columns} matrix of unit rows"),
                Plan("second moments", self.events[2], buys=f"{side} × {side} matrix, rows clipped to {clip:.3g}"),
                Plan("search"),
                Plan("edge confidence"),
            ],
            delta=self.delta,
        )

    def run(self, table: PrivateTable, account: Account, seed: Seed) -> Discovery:
        """Measure and search; charges ``account`` for what the plan shows, before noise is drawn."""
        names = self.schema.names
        moments = measured(table, names, self.events, public_rows=self.public_rows, account=account, seed=seed)
        return self.searched(moments, table.max_rows_per_person)

    def searched(self, moments: Moments, max_rows_per_person: int | None = None) -> Discovery:
        """Search on what was measured: post-processing, free of charge."""
        names, known = self.schema.names, self.constraints
        together = float(max_rows_per_person or 1)  # a person's rows may all be alike
        rows = moments.effective_rows() / together
        few = rows < _FEW_ROWS
        if few:
            rows = moments.effective_rows(alone=True) / together
        most = 0 if rows < _HARDLY_ANY else 1 if few else _MOST_PARENTS

        def found(of: Moments, *, strictness: float, rounds: int, start: Parents | None = None) -> Parents:
            score = LinearScore(of.correlation, rows, strictness=strictness, constraints=known, most_parents=most)
            return searched(score, rounds=rounds, start=start)

        parents = found(moments, strictness=_STRICTNESS, rounds=_ROUNDS)
        graph = pattern(names, parents, known)
        dense = found(moments, strictness=_DENSE, rounds=_ROUNDS, start=parents)
        seen = recurrence(
            lambda rng: pattern(
                names, found(moments.renoised(rng), strictness=_STRICTNESS, rounds=_ROUNDS_AGAIN, start=parents), known
            )
        )
        sure, ways = edge_confidences(graph, seen)
        plan = self.plan
        return Discovery(
            graph=graph,
            generating_graph=dag(names, dense),
            edge_confidence=sure,
            direction_confidence=ways,
            method="gaussian",
            plan=plan,
            guarantee=plan.guarantee(max_rows_per_person=max_rows_per_person),
            rows=max(round(moments.rows), 1),
            cannot_tell=_cannot_tell(graph, rows, few),
            notes=self._notes(rows),
        )

    def _notes(self, rows: float) -> list[str]:
        notes = [
            "Linear effects are assumed; only correlations are read.",
            f"The noise leaves what about {rows:,.0f} rows would say without it.",
        ]
        gone = [column.name for column in self.schema.fields if column.missing]
        if gone:
            notes.append(f"Rows with a missing value ({', '.join(gone)}) take no part.")
        return notes


def _cannot_tell(graph: CausalGraph, rows: float, few: bool) -> str:
    if rows < _HARDLY_ANY:
        return f"the noise leaves what about {rows:.0f} rows would say; more rows or a larger epsilon are needed"
    if few:
        return (
            "what one column says given the others drowns in the noise, or some columns determine each other, so only "
            "the strongest pairs are shown and no directions; more rows or a larger epsilon are needed"
        )
    if not graph.adjacencies:
        return "no dependence between two columns stands out from the noise; more rows or a larger epsilon are needed"
    return ""


def prepare(
    schema: Schema,
    knowledge: CausalGraph | None,
    *,
    epsilon: float,
    delta: float,
    relation: Relation,
    public_rows: int | None,
) -> PreparedGaussian:
    """Choose the noise from public facts alone.

    Raises:
        SchemaError: If a column is not numeric, or there are fewer than two.
        InputError: If there are too many, or δ is 0.
    """
    for column in schema.fields:
        if not isinstance(column, Numeric):
            raise SchemaError(
                f"column {column.name!r} is categorical, and method 'gaussian' needs numbers; use method='auto', which "
                "takes numbers in the schema's bins."
            )
    columns = len(schema.fields)
    if columns < 2:
        raise SchemaError("a graph needs at least two columns.")
    if columns > _MOST_COLUMNS:
        raise InputError(f"method 'gaussian' takes at most {_MOST_COLUMNS} columns; the schema has {columns:,}.")
    if delta == 0:
        raise InputError("method 'gaussian' adds Gaussian noise and needs a delta above 0, such as 1e-6.")
    rows = schema.max_rows_per_person

    def moved(tables: int) -> float:
        return count_sensitivity(tables, relation=relation, unit=schema.unit, max_rows_per_person=rows).l2

    # A row's matrix has norm at most the limit, where its cell in a table has norm 1. The last factor outweighs the
    # rounding of the product.
    limits = (STEPS**2, squared_limit(columns))
    changes = (moved(columns), *(limit * moved(1) * (1 + 2.0**-50) for limit in limits))
    sizes = (columns * CELLS, columns**2, (columns + 1) ** 2)
    cells = count_sensitivity(columns, relation=relation, unit=schema.unit, max_rows_per_person=rows).changed_cells

    def events(level: float) -> list[GaussianEvent]:
        return [
            gaussian_event(
                size,
                l2_sensitivity=change,
                scale=level * change / math.sqrt(share),
                changed_cells=cells if size == sizes[0] else None,
                integers=True,
                relation=relation,
                unit=schema.unit,
                max_rows_per_person=rows,
            )
            for size, change, share in zip(sizes, changes, _SHARES, strict=True)
        ]

    first, second, third = events(calibrate(events, epsilon=epsilon, delta=delta))
    return PreparedGaussian(
        schema=schema,
        constraints=constraints_of(schema, knowledge),
        events=(first, second, third),
        delta=delta,
        public_rows=public_rows,
    )
