"""The verb: learn a causal graph from a private table under a budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from escudo._validate import one_of, positive, probability, whole
from escudo.causal import CausalGraph
from escudo.discovery._directions import split, with_directions
from escudo.discovery._discovery import Discovery, Prepared
from escudo.errors import InputError
from escudo.mechanisms import publishable
from escudo.privacy import Plan, charging, delta_warning, parse_relation, plannable
from escudo.table import Numeric, PrivateTable, Schema

__all__ = ["METHODS", "discover", "prepare", "run_prepared"]

METHODS = ("auto", "exact", "two-stage", "joint", "gaussian")


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
    """Check every public argument and choose what to measure; nothing is read or spent.

    Raises:
        InputError: If an argument is out of range.
        GraphError: If the knowledge names a column that the schema does not have.
        RefusedError: If the schema is not confirmed.
    """
    schema.require_confirmed()
    chosen = one_of("method", method, METHODS)
    search, votes = split(positive("epsilon", epsilon, at_most=100.0), directions)
    arguments: dict[str, Any] = {  # Any: they are of several types
        "epsilon": search,
        "delta": probability("delta", delta),
        "relation": parse_relation(relation),
        "public_rows": None if public_rows is None else whole("public_rows", public_rows, minimum=1),
    }
    if arguments["delta"] == 0:
        raise InputError("delta must be above 0: Gaussian noise needs a delta, such as 1e-6.")
    prepared: Prepared
    if chosen == "gaussian" or (chosen == "auto" and _all_numbers(schema)):
        from escudo.discovery import _gaussian

        prepared = _gaussian.prepare(schema, knowledge, **arguments)
    else:
        from escudo.discovery import _discrete

        prepared = _discrete.prepare(schema, knowledge, method=chosen, **arguments)
    return with_directions(prepared, schema, epsilon=votes) if votes > 0 else prepared


def run_prepared(
    prepared: Prepared,
    table: PrivateTable,
    *,
    seed: int | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
) -> Discovery:
    """Run a prepared method on a private table: charge its account for the whole plan, measure, search.

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
    noise = None if seed is None else np.random.default_rng(whole("seed", seed))
    plan = prepared.plan.judged(table, rows=public_rows, accept_large_delta=accept_large_delta)
    promise = replace(plan.guarantee(max_rows_per_person=table.max_rows_per_person), for_release=publishable(seed))
    with charging(table.account, plan, for_release=promise.for_release, purpose=f"discover ({plan.name})") as purse:
        found = replace(prepared.run(table, purse, noise), guarantee=promise)
    warning = delta_warning(plan.stated_delta, found.rows, unit=table.unit)
    return replace(found, notes=(*found.notes, warning)) if warning else found


def _all_numbers(schema: Schema) -> bool:
    """Return whether every column is a number on a plain scale, so that linear effects are the first thing to look for.

    Bins that somebody chose by hand, such as those of equal width in the logarithm, say that the scale is not plain.
    """
    return all(isinstance(column, Numeric) and column.edges is None for column in schema.fields)


def _plan(
    table: PrivateTable | Schema, *, accept_large_delta: bool = False, seed: object = None, **arguments: Any
) -> Plan:
    schema = table if isinstance(table, Schema) else table.schema
    rows = arguments.get("public_rows")
    return prepare(schema, **arguments).plan.judged(table, rows=rows, accept_large_delta=accept_large_delta)


@plannable(_plan)
def discover(
    table: PrivateTable,
    *,
    epsilon: float,
    delta: float,
    knowledge: CausalGraph | None = None,
    method: str = "auto",
    relation: str = "replace_one",
    public_rows: int | None = None,
    directions: float = 0.0,
    accept_large_delta: bool = False,
    seed: int | None = None,
) -> Discovery:
    """Learn a causal graph from a private table, under (ε, δ).

    Args:
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn.
        epsilon: What it may cost.
        delta: At this probability aside, such as 1e-6.
        knowledge: What is known: arrows of this graph and its required arrows will be there, forbidden ones and those
            against its tiers will not, and its undirected edges will be there in some direction. Columns that it does
            not name are free.
        method: ``"auto"``: ``"gaussian"`` (linear effects, from moments) where every column is numeric with bins of
            equal width, otherwise by counts: ``"exact"`` (all tables of up to three columns, best graph of all) or
            ``"two-stage"`` (all pairs, then the triples that matter); or ``"joint"`` (graph and generator refined
            together).
        relation: Neighbouring relation; ``"replace_one"`` or ``"add_remove"``.
        public_rows: The number of rows, if it is public knowledge.
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

    **Guarantee.** (ε, δ) for the stated relation and the schema's unit: the accountant's total of the plan's events.

    **Assumptions.** No common cause of two columns is missing from the table, and what is independent in the data is
    so because the graph says so (faithfulness). Directions are those that all equivalent graphs share.

    >>> import polars as pl, escudo
    >>> frame = pl.DataFrame({"a": [0, 0, 1, 1] * 2000, "b": [0, 1, 0, 1] * 2000, "c": [0, 1, 1, 1] * 2000})
    >>> schema = escudo.Schema.from_dict({name: [0, 1] for name in "abc"})
    >>> found = discover(escudo.PrivateTable(frame, schema), epsilon=1.0, delta=1e-6, seed=1)
    >>> found.graph.edges, found.confidence("a", "c") > 0.9
    ((('a', 'c'), ('b', 'c')), True)
    """
    prepared = prepare(
        table.schema,
        epsilon=epsilon,
        delta=delta,
        knowledge=knowledge,
        method=method,
        relation=relation,
        public_rows=public_rows,
        directions=directions,
    )
    return run_prepared(prepared, table, seed=seed, public_rows=public_rows, accept_large_delta=accept_large_delta)
