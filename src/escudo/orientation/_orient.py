r"""Directions of many pairs of columns under one budget: the undirected edges of a graph, or all pairs.

All pairs share the blocks. One record moves one vote of each of the E pairs, so the vector of margins moves by at most
2E in sum of sizes and :math:`2 \sqrt E` in length (twice that where records are placed by value and replaced). It is
released at once: with Laplace noise of scale 2E/ε, or, where δ > 0 and that is less noise, with Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import positive, probability, whole
from escudo.causal import CausalGraph
from escudo.errors import GraphError, InputError, SchemaError
from escudo.mechanisms import Seed, as_planned, gaussian_event, laplace_event, publishable
from escudo.orientation._blocks import FEWEST_DISTINCT, cast
from escudo.orientation._direction import CANNOT_TELL, Direction, batches_of, public_rows, scored_column
from escudo.orientation._procedures import procedure_of
from escudo.orientation._votes import (
    Law,
    Poll,
    free_of_charge,
    needed_text,
    seating_of,
    verdict_rule,
)
from escudo.privacy import (
    Account,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    Plan,
    Relation,
    calibrate,
    charging,
    parse_relation,
    plannable,
)
from escudo.table import PrivateTable, Schema

__all__ = ["Orientation", "can_be_oriented", "orient"]


Edge = tuple[str, str]


def _plan(
    graph: CausalGraph | None,
    table: PrivateTable | Schema,
    *,
    relation: str = "replace_one",
    rows: int | None = None,
    accept_large_delta: bool = False,
    seed: Seed = None,
    **arguments: Any,
) -> Plan:
    schema = table if isinstance(table, Schema) else table.schema
    if rows is None and isinstance(table, PrivateTable):
        rows = public_rows(table, parse_relation(relation))
    plan = _prepare(graph, schema, relation=relation, rows=rows, **arguments).plan
    return plan.judged(table, rows=rows, accept_large_delta=accept_large_delta)


@plannable(_plan)
def orient(
    graph: CausalGraph | None,
    table: PrivateTable,
    *,
    epsilon: float,
    delta: float = 0.0,
    score: str | Callable[..., Any] = "committee",
    relation: str = "replace_one",
    rows: int | None = None,
    seed: int | None = None,
    abstain: float | None = None,
    blocks: int | None = None,
    shuffle: int = 0,
    accept_large_delta: bool = False,
) -> Orientation:
    """Give directions to the undirected edges of a graph, or judge all pairs of columns, under one budget.

    Each pair is judged by itself, by votes as in :func:`direction`: other columns that cause both are not looked at.

    Args:
        graph: The graph whose undirected edges are to be oriented; None for all pairs of columns with an order.
        table: The private table; its account is charged once, before noise is drawn.
        epsilon: What all answers together may cost.
        delta: At this probability aside; above 0 it makes many pairs cheaper.
        score: The block procedure, as in :func:`direction`.
        relation: Which tables are neighbours.
        rows: As in :func:`direction`.
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        abstain: As in :func:`direction`.
        blocks: As in :func:`direction`.
        shuffle: As in :func:`direction`.
        accept_large_delta: As in :func:`direction`.

    Returns:
        The answers and the graph they make.

    Raises:
        GraphError: If the graph has no undirected edge; nothing was spent.
        SchemaError: If a column of one is unknown or has no order; nothing was spent.
        InputError: If an argument is out of range; nothing was spent.
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow it; nothing was spent.

    **Guarantee.** (ε, δ) for the whole table and all answers together; ε alone if δ is 0. *Proof.* See the module: one
    record lies in one block (or in one before and one after being replaced), whichever the pair.

    >>> import numpy as np, polars as pl, escudo
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.uniform(-1, 1, 4000)
    >>> frame = pl.DataFrame({"a": cause, "b": np.tanh(3 * cause) + 0.2 * rng.uniform(-1, 1, 4000)})
    >>> bounds = {"type": "numeric", "lower": -2, "upper": 2}
    >>> table = escudo.PrivateTable(frame, escudo.Schema.from_dict({"a": bounds, "b": bounds}))
    >>> orient(escudo.CausalGraph.from_edges([], undirected=[("b", "a")]), table, epsilon=1.0, seed=1).graph.edges
    (('a', 'b'),)
    """
    neighbours = parse_relation(relation)
    prepared = _prepare(
        graph,
        table.schema,
        epsilon=epsilon,
        delta=delta,
        score=score,
        relation=neighbours,
        rows=(known := public_rows(table, neighbours) if rows is None else rows),
        abstain=abstain,
        blocks=blocks,
        shuffle=shuffle,
    )
    noise = None if seed is None else np.random.default_rng(whole("seed", seed))
    plan = prepared.plan.judged(table, rows=known, accept_large_delta=accept_large_delta)
    most, public = table.max_rows_per_person, publishable(seed)
    with charging(table.account, plan, for_release=public, purpose="orient") as purse:
        if prepared.poll.hopeless:
            margins: list[float | None] = [None] * len(prepared.pairs)
            promise = free_of_charge(
                plan, relation=neighbours, unit=table.unit, max_rows_per_person=most, for_release=public
            )
        else:
            margins = [*prepared.release(table, purse, noise)]
            promise = replace(plan.guarantee(max_rows_per_person=most), for_release=public)
    answers = [
        prepared.poll.answer(x, y, margin, guarantee=promise, plan=plan)
        for (x, y), margin in zip(prepared.pairs, margins, strict=True)
    ]
    oriented, left = _with_arrows(graph, answers)
    warned = (plan.warning,) if plan.warning else ()
    return Orientation(
        directions=tuple(answers), graph=oriented, guarantee=promise, plan=plan, notes=(*prepared.notes, *left, *warned)
    )


def _with_arrows(graph: CausalGraph | None, answers: Sequence[Direction]) -> tuple[CausalGraph | None, list[str]]:
    """Put the verdicts into the graph, the surest first; an arrow that does not fit stays undirected."""
    if graph is None:
        return None, []
    notes = []
    for found in sorted(answers, key=lambda answer: -abs(answer.margin)):
        if found.cause is None or found.effect is None:
            continue
        lines = tuple(pair for pair in graph.undirected_edges if set(pair) != {found.x, found.y})
        try:
            graph = replace(graph, edges=(*graph.edges, (found.cause, found.effect)), undirected_edges=lines)
        except GraphError:
            notes.append(f"{found.verdict} would close a cycle or break stated knowledge; left undirected.")
    return graph, notes


# ---- what is chosen before a row is read


def _prepare(
    graph: CausalGraph | None,
    schema: Schema,
    *,
    epsilon: float,
    delta: float = 0.0,
    score: str | Callable[..., Any] = "committee",
    relation: str = "replace_one",
    rows: int | None = None,
    abstain: float | None = None,
    blocks: int | None = None,
    shuffle: int = 0,
) -> _Prepared:
    pairs, notes = _pairs(graph, schema)
    schema.select(dict.fromkeys(name for pair in pairs for name in pair)).require_confirmed()
    budget, at = positive("epsilon", epsilon, at_most=100.0), probability("delta", delta)
    neighbours: Relation = parse_relation(relation)
    seating = seating_of(
        epsilon=budget / len(pairs), rows=rows, relation=neighbours, unit=schema.unit, blocks=blocks, shuffle=shuffle
    )
    event = _event(len(pairs), seating.sensitivity, budget, at, neighbours, schema)
    if isinstance(event, GaussianEvent):  # less noise than planned for: fewer blocks stand out of it
        seating = seating_of(
            epsilon=seating.sensitivity / event.scale,
            rows=rows,
            relation=neighbours,
            unit=schema.unit,
            blocks=blocks,
            shuffle=shuffle,
        )
    assert rows is not None
    law: Law = "gaussian" if isinstance(event, GaussianEvent) else "laplace"
    return _Prepared(
        pairs=pairs,
        poll=Poll(
            seating=seating,
            procedure=procedure_of(score),
            event=event,
            rule=verdict_rule(seating.blocks, event.scale, abstain, law=law),
            needed=needed_text(rows, seating.sensitivity / event.scale, seating.sensitivity, schema.unit),
        ),
        delta=at,
        notes=notes,
    )


def _event(
    pairs: int, moved: int, epsilon: float, delta: float, relation: Relation, schema: Schema
) -> LaplaceEvent | GaussianEvent:
    """Return the quieter release of the margins that the budget allows."""
    pure = laplace_event(
        pairs,
        sensitivity=moved * pairs,
        epsilon=epsilon,
        integers=True,
        relation=relation,
        unit=schema.unit,
        max_rows_per_person=schema.max_rows_per_person,
    )
    if delta == 0.0:
        return pure

    def quiet(scale: float) -> GaussianEvent:
        length = math.nextafter(moved * math.sqrt(pairs), math.inf)
        return gaussian_event(
            pairs,
            l2_sensitivity=length,
            scale=scale,
            integers=True,
            relation=relation,
            unit=schema.unit,
            max_rows_per_person=schema.max_rows_per_person,
        )

    found = quiet(calibrate(quiet, epsilon=epsilon, delta=delta))
    return found if found.scale < math.sqrt(2) * pure.scale else pure  # standard deviations


def can_be_oriented(schema: Schema, name: str) -> bool:
    """Return whether a column has an order and values enough for blocks to vote on."""
    try:
        scored_column(schema, name, fewest=FEWEST_DISTINCT)
    except SchemaError:
        return False
    return True


def _pairs(graph: CausalGraph | None, schema: Schema) -> tuple[tuple[Edge, ...], tuple[str, ...]]:
    if graph is not None:
        if not graph.undirected_edges:
            raise GraphError("The graph has no undirected edge, so there is nothing to orient.")
        for pair in graph.undirected_edges:
            for name in pair:
                scored_column(schema, name, fewest=FEWEST_DISTINCT)
        return tuple(graph.undirected_edges), ()
    usable = [name for name in schema.names if can_be_oriented(schema, name)]
    left_out = [name for name in schema.names if name not in usable]
    if len(usable) < 2:
        raise InputError(
            "fewer than two columns are numeric, or ordered with enough levels; there is no pair to orient."
        )
    notes = (f"Left out, having no order or too few values: {', '.join(left_out)}.",) if left_out else ()
    return tuple(combinations(usable, 2)), notes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """Everything that is chosen before a row is read."""

    pairs: tuple[Edge, ...]
    poll: Poll
    delta: float
    notes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))

    @property
    def plan(self) -> Plan:
        poll = self.poll
        bought = f"{len(self.pairs)} pairs, {poll.seating.blocks} blocks, {poll.procedure.name}"
        at = self.delta if isinstance(poll.event, GaussianEvent) else 0.0
        return poll.plan("orient", "sums of votes", "verdicts", buys=bought, delta=at)

    def release(self, table: PrivateTable, account: Account, seed: Seed) -> list[float]:
        """Let the blocks vote on every pair and return the noisy margins."""
        names, poll = self.columns, self.poll
        records = poll.seating.gather(batches_of(table, names), len(names))
        place = {name: number for number, name in enumerate(names)}
        margins = [int(cast(poll.procedure.prefer, records[:, :, [place[x], place[y]]]).sum()) for x, y in self.pairs]
        noisy = as_planned(np.array(margins), poll.event, account=account, seed=seed, purpose="sums of votes")
        return [float(margin) for margin in np.asarray(noisy.value, dtype=np.float64)]


# ---- the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Orientation:
    """Directions of several pairs, released together.

    Attributes:
        directions: One answer per pair, in the order of the pairs; their guarantee is the one below, for all together.
        graph: The graph with an arrow for every verdict; pairs without one, and arrows that would close a cycle or
            break stated knowledge, stay undirected. None if no graph was given.
        guarantee: What was promised to the people in the table.
        plan: The budget tree that was spent.
        notes: Sentences for people.
    """

    directions: tuple[Direction, ...]
    graph: CausalGraph | None
    guarantee: Guarantee
    plan: Plan
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that were asked about."""
        return tuple(dict.fromkeys(name for found in self.directions for name in (found.x, found.y)))

    def margins(self) -> NDArray[np.float64]:
        """Return the margins as a matrix over ``columns``: above 0 at [i, j] speaks for i->j; NaN if unasked."""
        place = {name: number for number, name in enumerate(self.columns)}
        matrix = np.full((len(place), len(place)), np.nan)
        for found in self.directions:
            i, j = place[found.x], place[found.y]
            matrix[i, j], matrix[j, i] = found.margin, -found.margin
        return matrix

    def __str__(self) -> str:
        width = max(len(f"{found.x} {found.y}") for found in self.directions) + 3
        lines = []
        for found in self.directions:
            head = f"{found.x} ? {found.y}" if found.cause is None else f"{found.cause} → {found.effect}"
            told = f"margin {found.margin:+.4g}" if found.released else "nothing was released"
            lines.append(f"{head:<{width}}   {CANNOT_TELL if found.cause is None else found.verdict}   ({told})")
        return "\n".join((*lines, *self.notes, str(self.guarantee)))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(found.x)}, {escape(found.y)}</td><td>{escape(found.verdict)}</td>"
            f"<td>{f'{found.margin:+.4g}' if found.released else '–'}</td></tr>"
            for found in self.directions
        )
        below = "".join(f"<br>{escape(line)}" for line in (*self.notes, str(self.guarantee)))
        return f"<table><tr><th>columns</th><th>verdict</th><th>margin</th></tr>{rows}</table><small>{below}</small>"
