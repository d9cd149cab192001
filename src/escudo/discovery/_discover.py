"""Causal graphs from a private table: the verb, the answer, and votes on the directions that a graph leaves open.

The graph is found from counts (``_discrete.py``) or, where every column is a number, from second moments
(``_gaussian.py``); a :class:`Discovery` says how sure it is of each edge, and what it cost.

**Directions.** Correlations and counts say the same about all equivalent graphs. Where effects are not linear, or noise
is not normal, the way in which two columns depend on each other can tell more: blocks of rows vote on each open edge
(:func:`escudo.orientation.orient`). Whoever asks for this spends a part of ε on it, whatever comes of it; linear
effects with normal noise leave nothing to vote on, and then the answer is that it cannot tell.

**Guarantee.** The search's own events, and one pure ε for all votes together, planned before it is known which edges
are open. The votes are ε-private for any set of edges chosen from what was released before (adaptive composition).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from types import MappingProxyType
from typing import Any, Protocol

from escudo._validate import one_of, probability
from escudo.asking import run, verb
from escudo.causal import CausalGraph
from escudo.discovery._measurement import Levels, Residuals
from escudo.discovery._pattern import Edge, meek_closure
from escudo.errors import GraphError, InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, Guarantee, Neighbours, Plan, PureEvent, delta_warning, usual_delta
from escudo.table import Numeric, PrivateTable, Schema

METHODS = ("auto", "exact", "two-stage", "joint", "gaussian")


@verb
def discover(
    table: PrivateTable,
    *,
    epsilon: float,
    delta: float | None = None,
    knowledge: CausalGraph | None = None,
    method: str = "auto",
    directions: float = 0.0,
    accept_large_delta: bool = False,
    seed: int | None = None,
) -> Discovery:
    """Learn a causal graph from a private table, under (ε, δ).

    Args:
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn.
        epsilon: What it may cost.
        delta: At this probability aside; 1e-6 by default, or less where many rows are public.
        knowledge: What is known: arrows of this graph and its required arrows will be there, forbidden ones and those
            against its tiers will not, and its undirected edges will be there in some direction. Columns that it does
            not name are free.
        method: ``"auto"``: ``"gaussian"`` (linear effects, from moments) where every column is numeric with bins of
            equal width and a first look at squares does not speak against linear effects, otherwise by counts:
            ``"exact"`` (all tables of up to three columns, best graph of all) or ``"two-stage"`` (all pairs, then the
            triples that matter); or ``"joint"`` (graph and generator refined together).
        directions: The share of ε for votes of blocks on edges that are left open between columns with an order
            (:func:`escudo.orientation.orient`); 0 for none.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.

    Returns:
        The graph, with a confidence for each edge, and its guarantee.

    Raises:
        RefusedError: If the schema is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** (ε, δ) between the table's neighbours: the accountant's total of the plan's events.

    **Assumptions.** No common cause of two columns is missing from the table, and what is independent in the data is
    so because the graph says so (faithfulness). Directions are those that all equivalent graphs share.

    >>> import polars as pl, escudo
    >>> frame = pl.DataFrame({"a": [0, 0, 1, 1] * 2000, "b": [0, 1, 0, 1] * 2000, "c": [0, 1, 1, 1] * 2000})
    >>> schema = escudo.Schema.from_dict({name: [0, 1] for name in "abc"})
    >>> found = discover(escudo.PrivateTable(frame, schema), epsilon=1.0, delta=1e-6, seed=1)
    >>> found.graph.edges, found.confidence("a", "c") > 0.9
    ((('a', 'c'), ('b', 'c')), True)
    """
    asked = GraphQuestion(knowledge, method, directions)
    budget = Budget(epsilon, usual_delta(table.neighbours) if delta is None else delta)
    prepared = asked.prepare(table.schema, table.neighbours, budget)
    return run(prepared, table, purpose=prepared.purpose, accept_large_delta=accept_large_delta, seed=seed)


@dataclass(frozen=True, slots=True)
class GraphQuestion:
    """Which causal graph a table supports: the question.

    Attributes:
        knowledge: What is known of it.
        method: How it is found.
        directions: The share of ε for votes on edges that are left open.
    """

    knowledge: CausalGraph | None = None
    method: str = "auto"
    directions: float = 0.0

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared:
        """Check every public argument and choose what to measure; nothing is read or spent.

        Raises:
            InputError: If an argument is out of range.
            GraphError: If the knowledge names a column that the schema does not have.
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        chosen = one_of("method", self.method, METHODS)
        search, votes = split_budget(budget.epsilon, self.directions)
        if budget.delta == 0:
            raise InputError("delta must be above 0: Gaussian noise needs a delta, such as 1e-6.")
        share = Budget(search, budget.delta)
        method: GraphMethod
        if chosen == "gaussian" or (chosen == "auto" and _all_numbers(schema)):
            from escudo.discovery import _discrete, _gaussian

            instead = (
                None if chosen == "gaussian" else _discrete.design_of(schema, neighbours, share, self.knowledge, chosen)
            )
            method = _gaussian.prepare(schema, neighbours, share, self.knowledge, instead)
        else:
            from escudo.discovery import _discrete

            method = _discrete.prepare(schema, neighbours, share, self.knowledge, chosen)
        return Prepared(method=method, votes=PureEvent(epsilon=votes, **neighbours.stated) if votes > 0 else None)


class GraphMethod(Protocol):
    """A way to find a graph that knows what it will measure and how loudly, before any row is read."""

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        ...

    @property
    def plan(self) -> Plan:
        """The budget tree, stated at the δ asked for: all that ``find`` will spend."""
        ...

    def find(self, table: PrivateTable, purse: Purse) -> Discovery:
        """Measure what the plan shows, and search."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What will be measured, and the search on it: ready to be run.

    Attributes:
        method: The method that finds the graph.
        votes: What all votes on open edges cost together; None where none are asked for.
    """

    method: GraphMethod
    votes: PureEvent | None = None

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        return self.method.schema

    @property
    def plan(self) -> Plan:
        """The budget tree: all that ``run`` will spend."""
        inner = self.method.plan
        if self.votes is None:
            return inner
        votes = Plan("directions of open edges", self.votes, buys="votes of blocks, on undirected edges only")
        return Plan(f"{inner.name} with directions", children=[*inner.children, votes], delta=inner.delta)

    @property
    def purpose(self) -> str:
        """Why, for the account."""
        return f"discover ({self.plan.name})"

    def run(self, table: PrivateTable, purse: Purse) -> Discovery:
        """Find the graph, then let blocks vote on the edges it leaves open.

        A δ that is large for as many rows as were measured is noted.
        """
        found = self.method.find(table, purse)
        if self.votes is not None:
            found = with_directions(found, self.schema, self.votes, table, purse)
        warning = delta_warning(purse.plan.stated_delta, found.rows, unit=self.schema.unit)
        return replace(found, notes=(*found.notes, warning)) if warning else found


def prepare(
    schema: Schema,
    *,
    epsilon: float,
    delta: float,
    knowledge: CausalGraph | None = None,
    method: str = "auto",
    relation: str = "replace_one",
    public_rows: int | None = None,
    directions: float = 0.0,
) -> Prepared:
    """Prepare :func:`discover` for a schema, before there is a table: its ``plan`` says what it will spend.

    Args:
        schema: The table's schema.
        epsilon: As in :func:`discover`, like all that follow.
        delta: At this probability aside.
        knowledge: What is known.
        method: How the graph is found.
        relation: Which tables are neighbours.
        public_rows: The number of rows, if it is public knowledge.
        directions: The share of ε for votes on edges that are left open.
    """
    asked = GraphQuestion(knowledge, method, directions)
    return asked.prepare(schema, schema.neighbours(relation=relation, rows=public_rows), Budget(epsilon, delta))


def run_prepared(
    prepared: Prepared,
    table: PrivateTable,
    *,
    seed: int | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
) -> Discovery:
    """Run what :func:`prepare` made on a private table: charge its account for the whole plan, measure, search.

    Args:
        prepared: What to run.
        table: The private table.
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        public_rows: The number of rows, if it is public knowledge: δ is judged by it.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).

    Raises:
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** The accountant's total of the plan's events.
    """
    assert prepared.plan.event is not None
    told = table.under(relation=prepared.plan.event.relation, rows=public_rows)
    return run(prepared, told, purpose=prepared.purpose, accept_large_delta=accept_large_delta, seed=seed)


def _all_numbers(schema: Schema) -> bool:
    """Return whether every column is a number on a plain scale, so that linear effects are the first thing to look for.

    Bins that somebody chose by hand, such as those of equal width in the logarithm, say that the scale is not plain.
    """
    return all(isinstance(column, Numeric) and column.edges is None for column in schema.fields)


# ---- the answer

_SHOWN, _DRAWN = 12, 60  # edges listed, and columns drawn, in a notebook


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The noisy residuals that a discovery rests on, and the levels they are about."""

    levels: Levels
    residuals: Residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """A causal graph learnt from a private table.

    Attributes:
        graph: What the data support and no more: arrows where every equivalent graph has them (or where knowledge
            settles them), undirected edges where the direction cannot be told.
        generating_graph: A denser DAG from the same measurements, for synthesis: the reported edges, in their
            directions, and others that help to imitate the data but are not sure enough to be reported.
        edge_confidence: For each edge of ``graph``, as a sorted pair of names: the estimated probability that the two
            columns are adjacent in the true graph.
        direction_confidence: For each arrow of ``graph``: the estimated probability that it points the right way,
            given that the edge is there.
        method: What found it: ``"exact"``, ``"two-stage"``, ``"joint"`` or ``"gaussian"``.
        plan: The budget tree that was spent.
        guarantee: What was promised to the people in the table.
        rows: How many rows the table has: exactly where that is public, else noisy.
        cannot_tell: Why the data are too few for the budget, or an empty text. The graph is then a forest or empty.
        notes: Public remarks, such as columns that were merged or left out.
        tables: What was measured, for reuse by a generator: ``Measured`` residuals; None for other statistics.
    """

    graph: CausalGraph
    generating_graph: CausalGraph
    edge_confidence: Mapping[Edge, float]
    direction_confidence: Mapping[Edge, float] = field(default_factory=dict)
    method: str
    plan: Plan
    guarantee: Guarantee
    rows: int
    cannot_tell: str = ""
    notes: Sequence[str] = ()
    tables: Measured | None = None

    def __post_init__(self) -> None:
        if not self.generating_graph.is_dag:
            raise InputError("generating_graph must have a direction on every edge.")
        sure = {(min(pair), max(pair)): float(value) for pair, value in self.edge_confidence.items()}
        if set(sure) != set(self.graph.adjacencies):
            raise InputError("edge_confidence must name the edges of graph, each once.")
        ways = {(a, b): float(value) for (a, b), value in self.direction_confidence.items()}
        if not set(ways) <= set(self.graph.edges):
            raise InputError("direction_confidence must name arrows of graph.")
        if any(not 0 <= value <= 1 for value in (*sure.values(), *ways.values())):
            raise InputError("confidences must lie between 0 and 1.")
        object.__setattr__(self, "edge_confidence", MappingProxyType(sure))
        object.__setattr__(self, "direction_confidence", MappingProxyType(ways))
        object.__setattr__(self, "notes", tuple(self.notes))

    def confidence(self, first: str, second: str) -> float:
        """Return how likely two columns are adjacent, in whatever order; 0 where the graph has no such edge."""
        return self.edge_confidence.get((min(first, second), max(first, second)), 0.0)

    @property
    def told(self) -> tuple[tuple[str, str, str], ...]:
        """Each edge as it is shown, the surest first: what it is, how sure it is, and how sure of its direction."""
        pairs = [(pair, "→") for pair in self.graph.edges] + [(pair, "—") for pair in self.graph.undirected_edges]
        pairs.sort(key=lambda one: -self.confidence(*one[0]))

        def way(pair: Edge, mark: str) -> str:
            known = self.direction_confidence.get(pair)
            return "open" if mark == "—" else "given" if known is None else f"{100 * known:.0f} %"

        return tuple(
            (f"{a} {mark} {b}", f"{100 * self.confidence(a, b):.0f} %", way((a, b), mark)) for (a, b), mark in pairs
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values: edges with their confidence, the guarantee and the plan."""
        edges = [
            {
                "from": a,
                "to": b,
                "directed": directed,
                "confidence": round(self.confidence(a, b), 4),
                "direction_confidence": round(self.direction_confidence[a, b], 4)
                if (a, b) in self.direction_confidence
                else None,
            }
            for pairs, directed in ((self.graph.edges, True), (self.graph.undirected_edges, False))
            for a, b in pairs
        ]
        return {
            "columns": list(self.graph.nodes),
            "edges": edges,
            "generating_edges": [list(edge) for edge in self.generating_graph.edges],
            "method": self.method,
            "rows": self.rows,
            "cannot_tell": self.cannot_tell,
            "notes": list(self.notes),
            "guarantee": self.guarantee.to_json(),
            "plan": self.plan.to_json(),
        }

    def __repr__(self) -> str:
        said = f"; cannot tell: {self.cannot_tell}" if self.cannot_tell else ""
        return f"<Discovery ({self.method}): {self.graph.summary}{said}>"

    def __str__(self) -> str:
        pairs = self.told
        wide = max((len(name) for name, _, _ in pairs), default=0)
        lines = [f"{name:<{wide}}   {sure:>5}   direction {way}" for name, sure, way in pairs]
        return "\n".join([repr(self)[1:-1], *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        pairs = self.told
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{sure}</td><td>{way}</td></tr>" for name, sure, way in pairs[:_SHOWN]
        )
        more = f"<p>and {len(pairs) - _SHOWN} more</p>" if len(pairs) > _SHOWN else ""
        heads = "<tr><th>edge</th><th>sure</th><th>of the direction</th></tr>"
        table = f"<table><thead>{heads}</thead><tbody>{rows}</tbody></table>{more}"
        said = f"<p>Cannot tell more: {escape(self.cannot_tell)}.</p>" if self.cannot_tell else ""
        picture = self.graph.to_svg() if len(self.graph) <= _DRAWN else ""
        return (
            f"<div><strong>Discovery</strong> ({escape(self.method)}): {escape(self.graph.summary)}{said}{picture}"
            f"{table if pairs else ''}<p>{escape(str(self.guarantee))}</p></div>"
        )


# ---- votes on what a graph leaves open


def split_budget(epsilon: float, share: float) -> tuple[float, float]:
    """Return what the search and the votes may cost.

    >>> split_budget(1.0, 0.25)
    (0.75, 0.25)
    """
    part = epsilon * probability("directions", share)
    return epsilon - part, part


def with_directions(found: Discovery, schema: Schema, paid: PureEvent, table: PrivateTable, purse: Purse) -> Discovery:
    """Return what was found, with the directions that blocks vote for on the edges it leaves open."""
    from escudo.orientation import EdgesQuestion, can_be_oriented

    def noted(text: str, graph: CausalGraph = found.graph) -> Discovery:
        return replace(found, graph=graph, notes=(*found.notes, text))

    fine = {name for name in found.graph.nodes if can_be_oriented(schema, name)}
    lines = [pair for pair in found.graph.undirected_edges if fine.issuperset(pair)]
    purse.within(paid, purpose="directions")
    if not lines:
        return noted("No edge between columns with an order and values enough was left open, so nothing was voted on.")
    edges = EdgesQuestion(CausalGraph.from_edges([], nodes=found.graph.nodes, undirected=lines))
    neighbours = schema.neighbours(relation=paid.relation, rows=found.rows)
    try:
        votes = edges.prepare(schema, neighbours, Budget(paid.epsilon))
    except InputError as error:  # too few rows for blocks: the graph is paid for, and stays
        return noted(f"Nothing was voted on: {error}")
    stream = purse.stream  # paid for above; the votes have a stream of their own
    seed = None if stream is None else int(stream.integers(2**31))
    judged = votes.run(table, Purse(None, seed, plan=purse.plan, guarantee=purse.guarantee))
    graph, told = found.graph, []
    for answer in sorted(judged.directions, key=lambda one: -abs(one.margin)):
        if answer.cause is None or answer.effect is None:
            continue
        better = _with_arrow(graph, (answer.cause, answer.effect))
        if better is not None:
            graph = better
            told.append(f"{answer.cause} → {answer.effect}")
    return noted(
        f"By votes of blocks: {', '.join(told) or 'no direction stood out'} (of {len(lines)} open). A vote says "
        "which direction fits a noise model better; it does not rule out a common cause.",
        graph,
    )


def _with_arrow(graph: CausalGraph, arrow: Edge) -> CausalGraph | None:
    """Return the graph with one open edge directed and all that follows, or None if that does not fit it."""
    lines = tuple(line for line in graph.undirected_edges if set(line) != set(arrow))
    if len(lines) == len(graph.undirected_edges):
        return None
    try:
        better = meek_closure(replace(graph, edges=(*graph.edges, arrow), undirected_edges=lines))
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
