r"""Directions of many pairs of columns under one budget: the undirected edges of a graph, or all pairs.

All pairs share the blocks. One record moves one vote of each of the E pairs, so the vector of margins moves by at most
2E in sum of sizes and :math:`2 \sqrt E` in length (twice that where records are placed by value and replaced). It is
released at once: with Laplace noise of scale 2E/ε, or, where δ > 0 and that is less noise, with Gaussian noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from html import escape
from itertools import combinations
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from escudo._card import plain
from escudo.asking import ask, verb
from escudo.causal import CausalGraph, as_graph
from escudo.errors import GraphError, InputError, SchemaError
from escudo.mechanisms import Purse
from escudo.orientation._blocks import FEWEST_DISTINCT
from escudo.orientation._direction import CANNOT_TELL, Direction, Score, check_options, scored_column
from escudo.orientation._votes import VOTE_OPTIONS, Poll, poll_of
from escudo.privacy import Budget, GaussianEvent, Guarantee, Neighbours, Passes, Plan, plannable
from escudo.table import PrivateTable, Schema, with_sources

Edge = tuple[str, str]
P = ParamSpec("P")
T = TypeVar("T")


def _table_first(operation: Callable[P, T]) -> Callable[P, T]:
    """Take the graph before the table, too, as older versions did; deprecated."""

    def turned(args: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(args) < 2 or not isinstance(args[1], PrivateTable | Schema):
            return args
        warnings.warn(
            "orient(graph, table) will end with version 0.3: the table comes first, orient(table, graph).",
            DeprecationWarning,
            stacklevel=3,
        )
        return (args[1], args[0], *args[2:])

    @wraps(operation)
    def asked(*args: Any, **kwargs: Any) -> Any:
        return operation(*turned(args), **kwargs)

    plan = operation.plan  # type: ignore[attr-defined]
    return plannable(lambda *args, **kwargs: plan(*turned(args), **kwargs))(asked)


@_table_first
@verb
def orient(
    table: PrivateTable,
    graph: CausalGraph | None = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    score: Score = "committee",
    seed: int | None = None,
    accept_large_delta: bool = False,
    **options: Any,
) -> Orientation:
    """Give directions to the undirected edges of a graph, or judge all pairs of columns, under one budget.

    Each pair is judged by itself, by votes as in :func:`direction`: other columns that cause both are not looked at.

    Args:
        table: The private table; its account is charged once, before noise is drawn.
        graph: The graph whose undirected edges are to be oriented; None for all pairs of columns with an order.
        epsilon: What all answers together may cost.
        delta: At this probability aside; above 0 it makes many pairs cheaper.
        score: The block procedure, as in :func:`direction`.
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        accept_large_delta: As in :func:`direction`.
        options: ``abstain``, ``blocks`` and ``shuffle``, as in :func:`direction`.

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
    >>> orient(table, escudo.CausalGraph.from_edges([], undirected=[("b", "a")]), epsilon=1.0, seed=1).graph.edges
    (('a', 'b'),)
    """
    asked = EdgesQuestion(as_graph(graph), score, options)
    how: dict[str, Any] = {"accept_large_delta": accept_large_delta, "seed": seed}
    return ask(asked, table, Budget(epsilon, delta), purpose="orient", **how)


# ---- the question, and what is chosen before a row is read


@dataclass(frozen=True, slots=True)
class EdgesQuestion:
    """Which way the undirected edges of a graph go, or all pairs of columns: the question.

    Attributes:
        graph: The graph; None for all pairs.
        score: The block procedure.
        options: Whatever else the caller gave: ``VOTE_OPTIONS``.
    """

    graph: CausalGraph | None
    score: Score = "committee"
    options: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedEdges:
        """Choose pairs, blocks and noise from public facts."""
        chosen = check_options("votes", self.options, VOTE_OPTIONS)
        pairs, notes = _pairs(self.graph, schema)
        with_sources(schema, (name for pair in pairs for name in pair)).require_confirmed()
        poll = poll_of(len(pairs), neighbours, budget, self.score, chosen)
        return PreparedEdges(schema, self.graph, pairs, poll, budget.delta, notes)


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


@dataclass(frozen=True, slots=True)
class PreparedEdges:
    """Everything that is chosen before a row is read.

    Attributes:
        schema: The columns of the table.
        graph: The graph whose edges are open; None for all pairs.
        pairs: The pairs that are judged.
        poll: The blocks, what each does, and when there is a verdict.
        delta: The δ of the budget.
        notes: Sentences for people.
    """

    schema: Schema
    graph: CausalGraph | None
    pairs: tuple[Edge, ...]
    poll: Poll
    delta: float
    notes: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The budget tree; free where no margin could make a verdict."""
        poll = self.poll
        bought = f"{len(self.pairs)} pairs, {poll.seating.blocks} blocks, {poll.procedure.name}"
        at = self.delta if isinstance(poll.event, GaussianEvent) else 0.0
        return poll.plan("orient", "sums of votes", bought, "verdicts", at)

    @property
    def passes(self) -> Passes:
        """How often the rows are read: not at all where no margin could make a verdict."""
        return Passes(int(not self.poll.hopeless))

    def run(self, table: PrivateTable, purse: Purse) -> Orientation:
        """Let the blocks vote on every pair, and put the verdicts into the graph."""
        margins = self.poll.margins(table, self.pairs, purse, "sums of votes")
        answers = [self.poll.answer(x, y, margin, purse) for (x, y), margin in zip(self.pairs, margins, strict=True)]
        graph, left = _with_arrows(self.graph, answers)
        warned = (purse.plan.warning,) if purse.plan.warning else ()
        return Orientation(
            directions=tuple(answers),
            graph=graph,
            guarantee=self.poll.promise(purse),
            plan=purse.plan,
            notes=(*self.notes, *left, *warned),
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

    def to_json(self) -> dict[str, Any]:
        """Return the answers as plain values."""
        return {
            "answers": [one.to_json() for one in self.directions],
            **plain(self, "guarantee"),
            **plain(self.guarantee, "for_release"),
            **plain(self, "notes"),
        }

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
