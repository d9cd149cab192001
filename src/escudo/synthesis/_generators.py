"""Generators: what they all are, and the verb that runs one on a private table under a budget."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from escudo._validate import one_of, positive, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Seed, publishable
from escudo.privacy import Account, Guarantee, Plan, Receipt, Relation, charging, parse_relation, plannable
from escudo.synthesis._automatic import Chosen, choose
from escudo.synthesis._baselines import Independent, OneWay
from escudo.synthesis._linear import Linear
from escudo.synthesis._marginals import Marginals
from escudo.synthesis._moments import Moments
from escudo.synthesis._options import delta_above_zero
from escudo.synthesis.neural import Autoregressive, Vae
from escudo.table import PrivateTable, Schema

if TYPE_CHECKING:
    import polars as pl

    from escudo.synthesis.neural._checkpoint import Checkpoint

__all__ = ["GENERATORS", "Generator", "Model", "Prepared", "fit", "fitting", "prepare", "synthesize"]


class Model(Protocol):
    """A fitted generator: made under a guarantee, sampled for free."""

    @property
    def schema(self) -> Schema:
        """The public description of the columns it makes."""
        ...

    @property
    def graph(self) -> CausalGraph:
        """The graph it follows."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """What was promised to the people in the table."""
        ...

    @property
    def generator(self) -> str:
        """The generator's name."""
        ...

    @property
    def plan(self) -> Plan:
        """The budget tree that was spent."""
        ...

    @property
    def details(self) -> Mapping[str, Any]:
        """Public facts about the fit; ``rows`` is how many the table has, exactly where that is public, else noisy."""
        ...

    @property
    def order(self) -> tuple[str, ...]:
        """The columns with parents before children."""
        ...

    def sample(
        self,
        rows: int,
        *,
        do: Mapping[str, object] | None = None,
        given: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> pl.DataFrame:
        """Draw synthetic rows, under interventions and conditions."""
        ...

    def save(self, directory: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model into a new folder."""
        ...


class Prepared(Protocol):
    """A generator that knows what it will measure and how loudly, before any row is read."""

    @property
    def schema(self) -> Schema:
        """The columns it was prepared for."""
        ...

    @property
    def plan(self) -> Plan:
        """The budget tree, named after the generator and stated at the δ asked for: all that ``fit`` will spend."""
        ...

    def fit(self, table: PrivateTable, *, account: Account, seed: Seed, guarantee: Guarantee) -> Model:
        """Measure what the plan shows, charging ``account`` before noise is drawn; the model carries ``guarantee``."""
        ...


class Generator(Protocol):
    """A way to turn a private table and a causal graph into a model."""

    name: str

    def prepare(
        self,
        schema: Schema,
        graph: CausalGraph | None,
        *,
        epsilon: float,
        delta: float,
        relation: Relation,
        public_rows: int | None,
    ) -> Prepared:
        """Choose what to measure from public facts alone."""
        ...


GENERATORS: dict[str, Callable[..., Generator]] = {
    make.name: make for make in (Marginals, Moments, Linear, OneWay, Independent, Autoregressive, Vae)
}
"""Every generator by name; its options are the arguments of the class."""


def prepare(
    schema: Schema,
    graph: CausalGraph | None,
    *,
    epsilon: float,
    delta: float,
    generator: str = "marginals",
    relation: str = "replace_one",
    public_rows: int | None = None,
    **options: Any,
) -> Prepared:
    """Check every public argument and choose what to measure; nothing is read or spent.

    Raises:
        InputError: If an argument is out of range, or an option is unknown to the generator.
        RefusedError: If the schema is not confirmed.
    """
    schema.require_confirmed()
    if generator == "auto":
        name, why = choose(schema)
        terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "relation": relation, "public_rows": public_rows}
        return Chosen(prepare(schema, graph, generator=name, **terms, **options), why)
    make = GENERATORS[one_of("generator", generator, GENERATORS)]
    known = inspect.signature(make).parameters
    if unknown := sorted(set(options) - set(known)):
        offered = ", ".join(known) or "none"
        raise InputError(f"generator {generator!r} has no option {unknown[0]!r}; it has {offered}.")
    return make(**options).prepare(
        schema,
        graph,
        epsilon=positive("epsilon", epsilon, at_most=100.0),
        delta=delta_above_zero(delta),
        relation=parse_relation(relation),
        public_rows=None if public_rows is None else whole("public_rows", public_rows, minimum=1),
    )


@contextmanager
def fitting(
    prepared: Prepared,
    table: PrivateTable,
    *,
    seed: int | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
) -> Iterator[Model]:
    """Run what was prepared on a private table: charge its account for the whole plan, measure, estimate.

    The block is the rest of the release, such as writing it down. If the block or anything before it fails after the
    charge, the charge stays and is marked failed.

    Args:
        prepared: What :func:`prepare` gave for the table's schema.
        table: The private table.
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        public_rows: The number of rows, if it is public knowledge: δ is judged by it.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).

    Yields:
        The model, with its guarantee. Sampling it is free.

    Raises:
        InputError: If it was prepared for another schema; nothing was spent.
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** The accountant's total of the plan's events.
    """
    if prepared.schema != table.schema:
        raise InputError("What to measure was prepared for another schema than the table's. Nothing was spent.")
    noise = None if seed is None else np.random.default_rng(whole("seed", seed))
    plan = prepared.plan.judged(table, rows=public_rows, accept_large_delta=accept_large_delta)
    promise = replace(plan.guarantee(max_rows_per_person=table.max_rows_per_person), for_release=publishable(seed))
    with paying(prepared, table.account, plan, for_release=promise.for_release, seed=noise) as purse:
        yield anchored(prepared.fit(table, account=purse, seed=noise, guarantee=promise), purse)


def anchored(model: Model, purse: Account, **changes: Any) -> Model:
    """Return a model whose details say what the ledger was just after it paid, if it did; with other changes."""
    receipt = getattr(purse, "receipt", None)
    if isinstance(receipt, Receipt) and receipt.anchor is not None:
        changes["details"] = {**model.details, "anchor": receipt.anchor}
    return cast(Model, replace(cast(Any, model), **changes)) if changes else model  # all are frozen dataclasses


def paying(
    prepared: object, account: Account, plan: Plan, *, for_release: bool, seed: np.random.Generator | None
) -> AbstractContextManager[Account]:
    """Charge an account for a plan, and give the purse; where a stopped fit goes on, what was charged is not again."""
    terms: dict[str, Any] = {"for_release": for_release, "purpose": f"synthesize ({plan.name})"}
    checkpoint: Checkpoint | None = getattr(prepared, "checkpoint", None)
    if checkpoint is None:
        return charging(account, plan, **terms)
    return checkpoint.charging(account, plan, seed=seed, **terms)


def fit(
    prepared: Prepared,
    table: PrivateTable,
    *,
    seed: int | None = None,
    public_rows: int | None = None,
    accept_large_delta: bool = False,
) -> Model:
    """Return the model of :func:`fitting`, where nothing is left to do after it."""
    with fitting(prepared, table, seed=seed, public_rows=public_rows, accept_large_delta=accept_large_delta) as model:
        return model


def _counted(table: PrivateTable, relation: str) -> int | None:
    """Return the number of rows where the relation makes it public, and there are any."""
    return table.public_row_count(parse_relation(relation)) or None


def _plan(
    table: PrivateTable | Schema,
    graph: CausalGraph | None,
    *,
    relation: str = "replace_one",
    public_rows: int | None = None,
    accept_large_delta: bool = False,
    seed: Seed = None,
    **arguments: Any,
) -> Plan:
    schema = table if isinstance(table, Schema) else table.schema
    if isinstance(table, PrivateTable) and public_rows is None:
        public_rows = _counted(table, relation)
    plan = prepare(schema, graph, relation=relation, public_rows=public_rows, **arguments).plan
    return plan.judged(table, rows=public_rows, accept_large_delta=accept_large_delta)


@plannable(_plan)
def synthesize(
    table: PrivateTable,
    graph: CausalGraph | None,
    *,
    epsilon: float,
    delta: float,
    generator: str = "marginals",
    relation: str = "replace_one",
    public_rows: int | None = None,
    accept_large_delta: bool = False,
    seed: int | None = None,
    **options: Any,
) -> Model:
    """Fit a generator that follows a causal graph to a private table, under (ε, δ).

    Args:
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn.
        graph: Which column causes which: full, partial (columns left out are open) or None.
        epsilon: What the release may cost.
        delta: At this probability aside, such as 1e-6; well below one over the number of people.
        generator: ``"marginals"``, another name of ``GENERATORS``, or ``"auto"``: by a public rule, stated in the plan.
        relation: Neighbouring relation; ``"replace_one"`` (do(Dᵢ = d) against do(Dᵢ = d′)) or ``"add_remove"``.
        public_rows: The number of rows, if it is public knowledge; it helps large families. Replacing a row leaves
            their number as it is, so for ``"replace_one"`` and rows it is counted where it is not given.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        options: What else the generator takes.

    Returns:
        The model, with its guarantee. Sampling it is free.

    Raises:
        RefusedError: If the schema is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** (ε, δ) for the stated relation and the schema's unit: the accountant's total of the plan's events.

    >>> import polars as pl, escudo
    >>> frame = pl.DataFrame({"smoke": ["yes", "no"] * 500, "ill": ["yes", "no", "no", "no"] * 250})
    >>> schema = escudo.Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
    >>> graph = escudo.CausalGraph.from_edges([("smoke", "ill")])
    >>> model = synthesize(escudo.PrivateTable(frame, schema), graph, epsilon=1.0, delta=1e-6, seed=1)
    >>> model.sample(1000, do={"smoke": "yes"})["smoke"].unique().to_list()
    ['yes']
    """
    known = _counted(table, relation) if public_rows is None else public_rows
    terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "relation": relation, "public_rows": known}
    prepared = prepare(table.schema, graph, generator=generator, **terms, **options)
    return fit(prepared, table, seed=seed, public_rows=known, accept_large_delta=accept_large_delta)
