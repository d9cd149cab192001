"""Which of two columns causes the other: the answer, and the verb that asks a private table for it.

Three methods answer. Each lives in a module with one function ``prepare``, which takes what was :class:`Asked`, chooses
everything from public facts and returns a :class:`Prepared`: its ``plan`` says what will be spent, its ``run`` reads
the pairs and spends it.

* ``votes`` (``_votes.py``): any procedure inside disjoint blocks; the whole table is protected by a pure ε;
* ``gap`` (``_gap.py``): the noisy difference of two dependence scores, with tight sensitivities;
* ``paper`` (``_paper.py``): the method of *Private Causal Inference* as it was published.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from escudo._validate import one_of, positive, probability, whole
from escudo.errors import InputError
from escudo.mechanisms import Seed, publishable
from escudo.orientation._answer import Direction
from escudo.orientation._asked import Asked, Score
from escudo.orientation._pair import PairData
from escudo.orientation._reading import public_rows, scored_column
from escudo.privacy import Account, Plan, charging, parse_relation, plannable
from escudo.table import PrivateTable, Schema

__all__ = ["METHODS", "Prepared", "direction", "prepare"]

METHODS = {"votes": "_votes", "gap": "_gap", "paper": "_paper"}
"""Every method, and the module that holds its ``prepare``."""


class Prepared(Protocol):
    """A method that knows what it will spend, before a row is read."""

    @property
    def plan(self) -> Plan:
        """All that ``run`` will spend; free where the answer is known to be "cannot tell"."""
        ...

    def run(self, pairs: PairData, *, account: Account, seed: Seed) -> Direction:
        """Read the pairs and answer, charging ``account`` for what the plan shows, before noise is drawn."""
        ...


def prepare(
    schema: Schema,
    x: str,
    y: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    method: str = "votes",
    score: Score = "committee",
    relation: str = "replace_one",
    rows: int | None = None,
    **options: Any,
) -> Prepared:
    """Check every public argument and choose what will be released; nothing is read or spent.

    Raises:
        InputError: If an argument is out of range, or an option is unknown to the method.
        SchemaError: If a column is not in the schema, or is categorical without an order.
        RefusedError: If one of the two columns is not confirmed.
    """
    for name in (x, y):
        scored_column(schema, name)
    if x == y:
        raise InputError(f"x and y are both {x!r}; name two different columns.")
    schema.select([x, y]).require_confirmed()
    module = import_module(f"escudo.orientation.{METHODS[one_of('method', method, METHODS)]}")
    asked = Asked(
        schema=schema,
        x=x,
        y=y,
        epsilon=positive("epsilon", epsilon, at_most=100.0),
        delta=probability("delta", delta),
        score=score,
        relation=parse_relation(relation),
        rows=None if rows is None else whole("rows", rows, minimum=1),
        options=options,
    )
    prepared: Prepared = module.prepare(asked)
    return prepared


def _plan(
    table: PrivateTable | Schema,
    x: str,
    y: str,
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
    plan = prepare(schema, x, y, relation=relation, rows=rows, **arguments).plan
    return plan.judged(table, rows=rows, accept_large_delta=accept_large_delta)


@plannable(_plan)
def direction(
    table: PrivateTable,
    x: str,
    y: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    method: str = "votes",
    score: Score = "committee",
    relation: str = "replace_one",
    rows: int | None = None,
    accept_large_delta: bool = False,
    seed: int | None = None,
    **options: Any,
) -> Direction:
    """Say which of two columns of a private table causes the other, or that one cannot tell.

    Args:
        table: The private table; its account is charged once, before noise is drawn.
        x: One column, numeric or categorical with an order (its levels then count 0, 1, 2, ...).
        y: The other one.
        epsilon: What the answer may cost.
        delta: At this probability aside; the votes need none.
        method: ``"votes"`` protects the whole table; ``"gap"`` and ``"paper"`` are described in their modules.
        score: For votes the name of a block procedure (``PROCEDURES``) or a callable of your own that gets a block's
            x and y as arrays and returns a number above 0 for x->y, below 0 for y->x; for the others a dependence
            score. ``"committee"`` is each method's default.
        relation: Which tables are neighbours: ``"replace_one"`` or ``"add_remove"``.
        rows: The number of rows (of people, where the schema names a person id), if it is not to be counted. Under
            ``replace_one`` it is public and counted for you; under ``add_remove`` it is private: state a rough public
            number.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        options: What else the method takes. Votes: ``abstain``, ``blocks``, ``shuffle``.

    Returns:
        The verdict with all that is known about it, see :class:`Direction`. It says which direction fits a model of
        noise better; it does not rule out a common cause, nor that the model is wrong in both directions.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        SchemaError: If a column is unknown, or categorical without an order; nothing was spent.
        RefusedError: If a column is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow it; nothing was spent.

    **Guarantee.** The accountant's total of the plan's events, for the stated relation and the schema's unit. Rows that
    are protected one by one under ``replace_one`` are told apart by their position, so the table's order must not
    depend on values: a query that sorts by a column would let one row move the others.

    >>> import numpy as np, polars as pl, escudo
    >>> rng = np.random.default_rng(0)
    >>> height = rng.uniform(-1, 1, 4000)
    >>> frame = pl.DataFrame({"height": height, "frost": height**3 + height + 0.2 * rng.uniform(-1, 1, 4000)})
    >>> bounds = {"type": "numeric", "lower": -2.5, "upper": 2.5}
    >>> table = escudo.PrivateTable(frame, escudo.Schema.from_dict({"height": bounds, "frost": bounds}))
    >>> direction(table, "frost", "height", epsilon=1.0, seed=1).verdict
    'height->frost'
    """
    neighbours = parse_relation(relation)
    prepared = prepare(
        table.schema,
        x,
        y,
        epsilon=epsilon,
        delta=delta,
        method=method,
        score=score,
        relation=neighbours,
        rows=(known := public_rows(table, neighbours) if rows is None else rows),
        **options,
    )
    if rows is not None and method != "votes":  # votes take a rough number; sensitivities of the others depend on it
        from escudo.orientation._regression_data import check_rows

        check_rows(rows, public_rows(table, neighbours))
    noise = None if seed is None else np.random.default_rng(whole("seed", seed))
    plan = prepared.plan.judged(table, rows=known, accept_large_delta=accept_large_delta)
    with charging(table.account, plan, for_release=publishable(seed), purpose=f"direction ({method})") as purse:
        found = prepared.run(PairData(table, x, y), account=purse, seed=noise)
    return replace(found, notes=(*found.notes, plan.warning)) if plan.warning else found
