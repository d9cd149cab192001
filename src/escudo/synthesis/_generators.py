"""Generators: what they all are, and the verb that runs one on a private table under a budget.

**Generator** ``auto`` is one of the others, chosen by a public rule of the columns, which the plan states. The rule
follows ``benchmarks/neural_tables.py``: simulated tables of 10 to 160 columns at ε = 0.1, 1 and 3, and what was known
of Asia, NLTCS, Adult and the neuropathic pain table, which are therefore no independent check of it:

* **marginals** for up to 30 columns, and for more where some have other levels than two. One noisy table for each
  family says everything there is to say of it, and its noise grows with the root of the number of families only. How
  many cells a family has matters little, as very large ones are measured in pairs anyway. On Alarm (37 columns, ε = 0.1
  to 3) pairs err about half as much as with ``moments``, told the graph or not.
* **moments** for more than 30 columns of two levels each. Where most rows are at the first level of most columns, as
  in wide tables of codes and diagnoses, a row has few pairs of levels, so that one clipped vector of all of them is
  less noisy than hundreds of tables: the error is lower, on the pain table (222 columns) by 10 to 60 %. Where they are
  not, it is higher, by up to a quarter.

Rows and ε move both alike, so they are not in the rule. ``autoregressive`` and ``vae`` are never chosen: they start at
``moments`` and spend the rest of the budget on gradients, which for the networks that small budgets allow are noisy
versions of the same moments. At ε up to 3 they were behind the chosen one on every table that was measured, and are
there for those who want them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Unpack, cast, get_args, overload

from escudo import asking
from escudo._validate import one_of, whole, yes_or_no
from escudo.asking import AskOptions, linked, running, verb
from escudo.causal import AncestralGraph, CausalGraph, as_graph
from escudo.errors import GraphError, InputError, RefusedError
from escudo.mechanisms import Purse, one_stream
from escudo.privacy import Budget, MemoryAccount, Neighbours, Passes, Plan, usual_delta
from escudo.synthesis._bins import with_bins
from escudo.synthesis._budget import above_zero
from escudo.synthesis._forecast import Forecast
from escudo.synthesis._linear import Linear
from escudo.synthesis._linked import LinkedSynthesis
from escudo.synthesis._linked_model import LinkedModel
from escudo.synthesis._marginals import Marginals
from escudo.synthesis._model import FrameKind, Model
from escudo.synthesis._moments import Independent, Moments, OneWay
from escudo.synthesis.neural import Autoregressive, PreparedUnprotected, Vae
from escudo.table import LinkedSchema, PrivateTable, PrivateTables, Schema

if TYPE_CHECKING:
    from escudo.synthesis._linked_discovered import LinkedDiscoveredSynthesis

T = TypeVar("T")


class Prepared(asking.Prepared[Model], Protocol):
    """A generator that knows what it will measure and how loudly, before any row is read; its answer is a model."""


class Generator(Protocol):
    """A way to turn a private table and a causal graph into a model."""

    @property
    def name(self) -> str:
        """What it is asked for by."""
        ...

    def prepare(self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget) -> Prepared:
        """Choose what to measure from public facts alone."""
        ...


GENERATORS: dict[str, Callable[..., Generator]] = {
    make.name: make for make in (Marginals, Moments, Linear, OneWay, Independent, Autoregressive, Vae)
}
"""Every generator by name; its options are the arguments of the class."""


# ---- before a row is read


@dataclass(frozen=True, slots=True)
class Synthesis:
    """The question that a generator answers with a model.

    Attributes:
        graph: Which column causes which: full, partial (columns left out are open) or None.
        generator: A name of ``GENERATORS``, or ``"auto"``.
        options: What else the generator takes.
    """

    graph: CausalGraph | None
    generator: str = "marginals"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.graph, AncestralGraph):
            raise GraphError(
                "A partial ancestral graph says who may be a cause of whom, and not on which columns each depends, so "
                "no generator can follow it. Give a causal graph, or none: then columns go together as in the table, "
                "and nothing is claimed about causes."
            )

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared:
        """Check every public argument and choose what to measure.

        Raises:
            InputError: If δ is 0, or an option is unknown to the generator.
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        name, why = choose(schema) if self.generator == "auto" else (self.generator, "")
        generator = self.made(name)

        def prepared(schema: Schema, budget: Budget) -> Prepared:
            return generator.prepare(schema, self.graph, neighbours, budget)

        if isinstance(generator, Linear):  # numbers as they are
            return prepared(schema, above_zero(budget))
        found = with_bins(schema, neighbours, above_zero(budget), prepared)
        return Chosen.of(found, why) if why else found

    def unprotected(self, schema: Schema, neighbours: Neighbours) -> PreparedUnprotected:
        """Choose what is fitted where nothing is promised.

        Raises:
            InputError: If the generator is never fitted without privacy, or an option is unknown to it.
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        generator = self.made(self.generator)
        if not isinstance(generator, Vae):
            raise InputError(
                f"generator {self.generator!r} is never fitted without privacy; only 'vae' is, with one of the paper's "
                "architectures, such as architecture='columns'. Give an epsilon."
            )
        return generator.unprotected(schema, self.graph, neighbours)

    def made(self, name: str) -> Generator:
        """Return the generator of this name, with these options.

        Raises:
            InputError: If there is none, or an option is unknown to it.
        """
        make = GENERATORS[one_of("generator", name, (*GENERATORS, "auto"))]  # auto was settled before
        known = inspect.signature(make).parameters
        if unknown := sorted(set(self.options) - set(known)):
            offered = ", ".join(known) or "none"
            raise InputError(f"generator {name!r} has no option {unknown[0]!r}; it has {offered}.")
        return make(**self.options)


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
    question = Synthesis(graph, generator, options)
    return question.prepare(schema, neighbours_of(schema, relation, public_rows), Budget(epsilon, delta))


def neighbours_of(schema: Schema, relation: str, public_rows: int | None) -> Neighbours:
    """Return between which tables a promise holds, where only their schema is known.

    Raises:
        InputError: If there is no such relation, or the number of rows is none.
    """
    return schema.neighbours(
        relation=relation, rows=None if public_rows is None else whole("public_rows", public_rows, minimum=1)
    )


_FEW = 30  # columns


def choose(schema: Schema) -> tuple[str, str]:
    """Return the name of a generator, and why it was chosen.

    >>> few = Schema.from_dict({f"x{i}": ["no", "yes"] for i in range(15)})
    >>> many = Schema.from_dict({f"x{i}": ["no", "yes"] for i in range(200)})
    >>> [choose(schema)[0] for schema in (few, many)]
    ['marginals', 'moments']
    """
    columns = len(schema.names)
    if columns <= _FEW:
        return "marginals", f"marginals, as there are {columns} columns, not more than {_FEW}"
    if all(column.size <= 2 for column in schema.fields):
        return "moments", f"moments, as there are {columns} columns, more than {_FEW}, of two levels each"
    return "marginals", f"marginals, as some of the {columns} columns have more than two levels"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was prepared by the generator that was chosen, with a line in its plan that says why."""

    prepared: Prepared
    schema: Schema
    plan: Plan

    @classmethod
    def of(cls, prepared: Prepared, why: str) -> Chosen:
        """Return what was prepared, chosen for this reason."""
        plan = prepared.plan
        told = Plan(plan.name, children=[Plan(f"chosen: {why}"), *plan.children], delta=plan.delta)
        return cls(prepared, prepared.schema, told)

    @property
    def passes(self) -> Passes:
        """How often the rows are read; both generators that are chosen can tell."""
        return self.prepared.passes  # type: ignore[attr-defined, no-any-return]

    def forecast(self, rows: int | None) -> Forecast | None:
        """Return how good the model will be, for so many rows; None where that waits for a graph."""
        foretell = getattr(self.prepared, "forecast", None)
        return None if foretell is None else foretell(rows)

    def run(self, table: PrivateTable, purse: Purse) -> Model:
        """Fit the chosen generator."""
        return self.prepared.run(table, purse)


# ---- on a private table


@overload
def synthesize(table: PrivateTable, graph: CausalGraph | None, *, epsilon: float | None, **how: Any) -> Model: ...
@overload
def synthesize(table: PrivateTables, graph: CausalGraph | None, *, epsilon: float, **how: Any) -> LinkedModel: ...
@verb
@linked
def synthesize(
    table: PrivateTable | PrivateTables,
    graph: CausalGraph | None,
    *,
    epsilon: float | None,
    delta: float | None = None,
    generator: str = "marginals",
    no_privacy: bool = False,
    accept_large_delta: bool = False,
    seed: int | None = None,
    **options: Any,
) -> Any:
    """Fit a generator that follows a causal graph to a private table, or to linked ones, under (ε, δ).

    Args:
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn. Of linked
            tables the model makes people with their rows, and the graph names columns as ``"visits.severity"``; they
            take the generator ``marginals`` and the options ``focus`` (columns whose tables get more of the budget),
            ``count_edges`` (:mod:`escudo.synthesis._linked`) and ``discover=True``: a part of the budget finds the
            graph then, which ``graph`` says what is known of (:mod:`escudo.synthesis._linked_discovered`).
        graph: Which column causes which: full, partial (columns left out are open) or None. One of networkx will do.
        epsilon: What the release may cost. None, with ``no_privacy=True``, for a network of the paper that is trained
            without clipping and noise, to compare with: nothing is promised then.
        delta: At this probability aside; 1e-6 by default, or less where many rows are public.
        generator: ``"marginals"``, another name of ``GENERATORS``, or ``"auto"``: by a public rule, stated in the plan.
        no_privacy: That ``epsilon=None`` was meant. The table must have no ledger, no cap and no spend behind it, and
            nothing can be charged to its account afterwards; the model says of itself that nothing is promised.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
        options: What else the generator takes.

    Returns:
        The model, with its guarantee. Sampling it is free.

    Raises:
        RefusedError: If the schema is not confirmed, δ is too large for the table, or privacy is given up where a
            promise was made; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** (ε, δ) between the table's neighbours: the accountant's total of the plan's events. Without privacy:
    none.

    >>> import polars as pl, escudo
    >>> frame = pl.DataFrame({"smoke": ["yes", "no"] * 500, "ill": ["yes", "no", "no", "no"] * 250})
    >>> schema = escudo.Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
    >>> graph = escudo.CausalGraph.from_edges([("smoke", "ill")])
    >>> model = synthesize(escudo.PrivateTable(frame, schema), graph, epsilon=1.0, delta=1e-6, seed=1)
    >>> model.sample(1000, do={"smoke": "yes"})["smoke"].unique().to_list()
    ['yes']
    """
    how: AskOptions = {"accept_large_delta": accept_large_delta, "seed": seed}
    described: Schema | LinkedSchema = table.schema  # of tables, or of what a plan takes in their place
    graph = as_graph(graph)
    if isinstance(described, LinkedSchema):
        budget = linked_budget(table.neighbours, epsilon, delta, no_privacy=no_privacy)
        whole_tables = linked_question(graph, generator, options).prepare(described, table.neighbours, budget)
        return asking.run(cast(Any, whole_tables), cast(Any, table), **how)
    question = Synthesis(graph, generator, options)
    if check_no_privacy(epsilon, delta, no_privacy):
        return in_kind(fit_unprotected(question, cast(PrivateTable, table), seed), table)
    assert epsilon is not None, "or it was meant"
    budget = Budget(epsilon, usual_delta(table.neighbours) if delta is None else delta)
    prepared = question.prepare(described, table.neighbours, budget)
    return in_kind(fit(prepared, cast(PrivateTable, table), **how), table)


def in_kind(model: Model, table: PrivateTable | PrivateTables) -> Model:
    """Return a model whose rows come in the kind of frame that a table was made of."""
    kind = table.engine if isinstance(table, PrivateTable) else ""
    return replace(model, frames=cast(FrameKind, kind)) if kind in get_args(FrameKind) else model


def linked_question(
    graph: CausalGraph | Literal["discover"] | None,
    generator: str,
    options: Mapping[str, Any],
    knowledge: CausalGraph | None = None,
) -> LinkedSynthesis | LinkedDiscoveredSynthesis:
    """Return the question that linked tables are asked.

    Args:
        graph: Which column causes which; ``"discover"`` for one to be found.
        generator: ``"marginals"`` or ``"auto"``.
        options: What else it takes.
        knowledge: What is known of a graph that is to be found.

    Raises:
        InputError: If the generator is another than ``marginals``, or an option is unknown to it.
    """
    if generator not in ("marginals", "auto"):
        raise InputError(f"linked tables take the generator 'marginals'; got {generator!r:.60}.")
    finds = yes_or_no("discover", options.get("discover", False)) or graph == "discover"
    known = ("focus", "count_edges", "discover", *(["method"] if finds else []))
    if unknown := sorted(set(options) - set(known)):
        listed = f"{', '.join(known[:-1])} and {known[-1]}"
        raise InputError(f"linked tables have no option {unknown[0]!r:.60}; they have {listed}.")
    focus = options.get("focus", ())
    columns = (focus,) if isinstance(focus, str) else tuple(focus)
    count_edges = yes_or_no("count_edges", options.get("count_edges", True))
    if finds or graph == "discover":
        from escudo.synthesis._linked_discovered import LinkedDiscoveredSynthesis

        tables = LinkedSynthesis(None, columns, count_edges)
        stated = knowledge if graph == "discover" else graph
        return LinkedDiscoveredSynthesis(tables, stated, options.get("method", "auto"))
    if knowledge is not None:
        raise InputError(
            "knowledge goes with a graph that is to be discovered (--graph discover); one that is given says all that "
            "is known."
        )
    Synthesis(graph)  # refuses what no generator can follow
    return LinkedSynthesis(graph, columns, count_edges)


def linked_budget(
    neighbours: Neighbours, epsilon: float | None, delta: float | None, *, no_privacy: bool = False
) -> Budget:
    """Return what linked tables may be asked for.

    Raises:
        InputError: If there is no ε: they are never read without privacy.
    """
    if check_no_privacy(epsilon, delta, no_privacy) or epsilon is None:
        raise InputError("linked tables are never read without privacy; give an epsilon.")
    return Budget(epsilon, usual_delta(neighbours) if delta is None else delta)


def check_no_privacy(epsilon: float | None, delta: float | None, no_privacy: bool) -> bool:
    """Return whether privacy is given up, once it is sure that this was meant: an ε that is missing never says so.

    Raises:
        InputError: If only one of ``epsilon=None`` and ``no_privacy=True`` was said.
    """
    if not isinstance(no_privacy, bool):
        raise InputError(f"no_privacy must be True or False; got {type(no_privacy).__name__}.")
    if epsilon is None and not no_privacy:
        raise InputError(
            "epsilon is missing, so nothing would be promised. Give one; or, to compare with a model without privacy "
            "that must never be published, say so: epsilon=None, no_privacy=True (--no-privacy)."
        )
    if epsilon is not None and no_privacy:
        raise InputError("no_privacy gives up every promise, so epsilon must be None; leave one of them out.")
    if no_privacy and delta is not None:
        raise InputError("no_privacy gives up every promise, so there is no delta; leave it out.")
    return no_privacy


def fit_unprotected(question: Synthesis, table: PrivateTable, seed: int | None = None) -> Model:
    """Fit without privacy, which the table's account is told first: it must have promised nothing.

    Raises:
        InputError: If the generator is never fitted like that.
        RefusedError: If the table has a ledger, a cap or a spend behind it, or there is a plan to be asked for.
    """
    prepared = question.unprotected(table.schema, table.neighbours)
    if asking.planning():
        raise RefusedError("Without privacy there is no budget, so there is no plan to show.")
    if not isinstance(table.account, MemoryAccount):
        raise RefusedError(
            "The table has an account in a ledger, which promises something to the people in it: it cannot be read "
            "without privacy. Nothing was read."
        )
    table.account.give_up()
    return prepared.fit(table, one_stream(seed))


class FitOptions(AskOptions, total=False):
    """How :func:`fitting` runs what was prepared: as any question is asked; all of it may be left out.

    Attributes:
        public_rows: The number of rows, if it is public knowledge and the table does not say so: δ is judged by it.
    """

    public_rows: int | None


def fit(prepared: Prepared, table: PrivateTable, **how: Unpack[FitOptions]) -> Model:
    """Return the model of :func:`fitting`, where nothing is left to do after it."""
    with fitting(prepared, table, **how) as model:
        return model


@contextmanager
def fitting(
    prepared: asking.Prepared[T], table: PrivateTable, *, public_rows: int | None = None, **how: Unpack[AskOptions]
) -> Iterator[T]:
    """Run what was prepared on a private table: charge its account for the whole plan, measure, estimate.

    The block is the rest of the release, such as writing it down. If the block or anything before it fails after the
    charge, the charge stays and is marked failed (:mod:`escudo.asking`).

    Args:
        prepared: What :func:`prepare` gave for the table's schema.
        table: The private table.
        public_rows: The number of rows, if it is public knowledge and the table does not say so: δ is judged by it.
        how: A purpose for the account, whether a large δ was meant, and a seed (:class:`~escudo.asking.AskOptions`).

    Yields:
        The model, with its guarantee. Sampling it is free.

    Raises:
        InputError: If it was prepared for another schema; nothing was spent.
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** The accountant's total of the plan's events.
    """
    plan = prepared.plan
    # What was prepared holds between the neighbours that its plan was made for, whatever the table's are by now.
    relation = table.relation if plan.event is None else plan.event.relation
    if relation != table.relation or public_rows is not None:
        table = table.under(relation=relation, rows=public_rows)
    named: AskOptions = {"purpose": f"synthesize ({plan.name})", **how}
    with running(prepared, table, **named) as model:
        yield model
