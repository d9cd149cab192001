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

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypedDict, Unpack, cast, overload

from escudo._validate import one_of, probability
from escudo.asking import linked, run, verb
from escudo.causal import CausalGraph
from escudo.discovery._answer import AncestralDiscovery, Discovery
from escudo.discovery._pattern import Edge, colliders, meek_closure
from escudo.errors import GraphError, InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, Neighbours, Passes, Plan, PureEvent, delta_warning, usual_delta
from escudo.table import LinkedSchema, Numeric, PrivateTable, PrivateTables, Schema

METHODS = ("auto", "exact", "two-stage", "joint", "gaussian")


class _Options(TypedDict, total=False):
    """What :func:`discover` takes beside the table, whichever graph is found."""

    delta: float | None
    knowledge: CausalGraph | None
    method: str
    directions: float
    accept_large_delta: bool
    seed: int | None


@overload
def discover(
    table: PrivateTable | PrivateTables,
    *,
    epsilon: float,
    hidden_causes: Literal[False] = False,
    **how: Unpack[_Options],
) -> Discovery: ...


@overload
def discover(
    table: PrivateTable, *, epsilon: float, hidden_causes: Literal[True], **how: Unpack[_Options]
) -> AncestralDiscovery: ...


@verb
@linked
def discover(
    table: PrivateTable | PrivateTables,
    *,
    epsilon: float,
    delta: float | None = None,
    knowledge: CausalGraph | None = None,
    method: str = "auto",
    directions: float = 0.0,
    hidden_causes: bool = False,
    accept_large_delta: bool = False,
    seed: int | None = None,
) -> Discovery | AncestralDiscovery:
    """Learn a causal graph from a private table, under (ε, δ).

    Args:
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn. Of linked
            tables the graph is over columns of all of them, arrows from row to row directed by time
            (:mod:`escudo.discovery._linked_discovery`).
        epsilon: What it may cost.
        delta: At this probability aside; 1e-6 by default, or less where many rows are public.
        knowledge: What is known: arrows of this graph and its required arrows will be there, forbidden ones and those
            against its tiers will not, and its undirected edges will be there in some direction. Columns that it does
            not name are free.
        method: ``"auto"``: ``"gaussian"`` (linear effects, from moments) where every column is numeric with bins of
            equal width and a first look at curvature does not speak against linear effects, otherwise by counts:
            ``"exact"`` (all tables of up to three columns, best graph of all) or ``"two-stage"`` (all pairs, then the
            triples that matter); or ``"joint"`` (graph and generator refined together).
        directions: The share of ε for votes of blocks on edges that are left open between columns with an order
            (:func:`escudo.orientation.orient`); 0 for none.
        hidden_causes: Whether causes may be missing from the table. The same is measured and spent; the answer is an
            :class:`AncestralDiscovery`, whose graph claims only what holds whatever is hidden. Not of linked tables:
            their rows are weighted by how many a person has, on which something hidden may act.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.

    Returns:
        The graph, with a confidence for each edge, and its guarantee.

    Raises:
        RefusedError: If the schema is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** (ε, δ) between the table's neighbours: the accountant's total of the plan's events.

    **Assumptions.** No common cause of two columns is missing from the table (or ``hidden_causes``), and what is
    independent in the data is so because the graph says so (faithfulness). Directions are those that all equivalent
    graphs share.

    >>> import polars as pl, escudo
    >>> frame = pl.DataFrame({"a": [0, 0, 1, 1] * 2000, "b": [0, 1, 0, 1] * 2000, "c": [0, 1, 1, 1] * 2000})
    >>> schema = escudo.Schema.from_dict({name: [0, 1] for name in "abc"})
    >>> found = discover(escudo.PrivateTable(frame, schema), epsilon=1.0, delta=1e-6, seed=1)
    >>> found.graph.edges, found.confidence("a", "c") > 0.9
    ((('a', 'c'), ('b', 'c')), True)
    """
    budget = Budget(epsilon, usual_delta(table.neighbours) if delta is None else delta)
    asked: Any = GraphQuestion(knowledge, method, directions, hidden_causes)
    described: Schema | LinkedSchema = table.schema
    if isinstance(described, LinkedSchema):
        if directions:
            raise InputError("directions ask one table; of linked ones leave them out: time gives most directions.")
        if hidden_causes:
            raise InputError(
                "hidden_causes asks one table. Rows of linked ones are taken together over all of a person's rows, and "
                "weighted by how many these are; where something hidden acts on that number as well, columns go "
                "together in them that nothing joins, and what an ancestral graph claims would not hold. Ask a table "
                "with one row for each person, such as people with their first row, as a PrivateTable."
            )
        from escudo.discovery._linked_discovery import LinkedGraphQuestion

        asked = LinkedGraphQuestion(knowledge, method)
    prepared: Any = asked.prepare(described, table.neighbours, budget)
    private = cast(PrivateTable, table)  # what is asked of one is asked of linked ones
    found: Discovery | AncestralDiscovery
    found = run(prepared, private, purpose=prepared.purpose, accept_large_delta=accept_large_delta, seed=seed)
    return found


@dataclass(frozen=True, slots=True)
class GraphQuestion:
    """Which causal graph a table supports: the question.

    Attributes:
        knowledge: What is known of it.
        method: How it is found.
        directions: The share of ε for votes on edges that are left open.
        hidden_causes: Whether causes may be missing from the table.
    """

    knowledge: CausalGraph | None = None
    method: str = "auto"
    directions: float = 0.0
    hidden_causes: bool = False

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
        if self.hidden_causes:
            self._check_hidden(votes)
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
        paid = PureEvent(epsilon=votes, **neighbours.stated) if votes > 0 else None
        return Prepared(method=method, votes=paid, hidden_causes=bool(self.hidden_causes))

    def _check_hidden(self, votes: float) -> None:
        """Refuse what assumes that no cause is hidden."""
        from escudo.discovery._hidden import check_knowledge

        if votes > 0:
            raise InputError(
                "directions are voted on as if no cause were hidden; leave out directions or hidden_causes."
            )
        if self.method == "joint":
            raise InputError(
                "method 'joint' is about a model without hidden causes; leave out method or hidden_causes."
            )
        check_knowledge(self.knowledge)


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

    @property
    def passes(self) -> Passes:
        """How often the rows are read."""
        ...

    def find(self, table: PrivateTable, purse: Purse) -> Discovery:
        """Measure what the plan shows, and search."""
        ...

    def find_hidden(self, table: PrivateTable, purse: Purse) -> AncestralDiscovery:
        """Measure the same, and search for what holds also where causes are hidden."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What will be measured, and the search on it: ready to be run.

    Attributes:
        method: The method that finds the graph.
        votes: What all votes on open edges cost together; None where none are asked for.
        hidden_causes: Whether causes may be missing from the table.
    """

    method: GraphMethod
    votes: PureEvent | None = None
    hidden_causes: bool = False

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
    def passes(self) -> Passes:
        """How often the rows are read: by the method, and by blocks that vote on edges it leaves open."""
        return self.method.passes + Passes(0, int(self.votes is not None), "votes on open edges")

    @property
    def purpose(self) -> str:
        """Why, for the account."""
        return f"discover ({self.plan.name})"

    def run(self, table: PrivateTable, purse: Purse) -> Discovery | AncestralDiscovery:
        """Find the graph, then let blocks vote on the edges it leaves open.

        A δ that is large for as many rows as were measured is noted.
        """
        found: Discovery | AncestralDiscovery
        if self.hidden_causes:
            found = self.method.find_hidden(table, purse)
        elif self.votes is None:
            found = self.method.find(table, purse)
        else:
            found = with_directions(self.method.find(table, purse), self.schema, self.votes, table, purse)
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
    hidden_causes: bool = False,
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
        hidden_causes: Whether causes may be missing from the table.
    """
    asked = GraphQuestion(knowledge, method, directions, hidden_causes)
    return asked.prepare(schema, schema.neighbours(relation=relation, rows=public_rows), Budget(epsilon, delta))


def run_prepared(
    prepared: Prepared,
    table: PrivateTable,
    *,
    seed: int | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
) -> Discovery | AncestralDiscovery:
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
    return better if colliders(better) == colliders(graph) else None
