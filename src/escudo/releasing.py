"""Releasing: a synthetic table with its model, record and report, from a private table under one budget.

:func:`release` is the whole job, in the order that keeps people safe: is there room for the folder, what would it cost,
charge, measure, estimate, draw rows, and write all of it or nothing. It is a question like any other
(:mod:`escudo.asking`): :class:`SyntheticRelease` says what to release and where, and what it prepares knows its plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, overload

from escudo.asking import AskOptions, linked, paying, planning, run, verb
from escudo.errors import InputError
from escudo.privacy import Budget, Event, Passes, Plan, usual_delta
from escudo.report import LinkedReleaseFiles, LinkedWriting, ReleaseFiles, check_target, write_release

if TYPE_CHECKING:
    import numpy as np

    from escudo.causal import CausalGraph
    from escudo.mechanisms import Purse
    from escudo.privacy import Account, Neighbours
    from escudo.synthesis import (
        DiscoveredSynthesis,
        Forecast,
        LinkedModel,
        Model,
        Prepared,
        PreparedLinked,
        PreparedLinkedDiscovered,
        Synthesis,
    )
    from escudo.table import LinkedSchema, PrivateTable, PrivateTables, Schema
    from escudo.utility import PreparedEvaluated

__all__ = [
    "LinkedRelease",
    "PreparedLinkedRelease",
    "PreparedRelease",
    "Resumption",
    "SyntheticRelease",
    "release",
]


@overload
def release(table: PrivateTable, directory: str | os.PathLike[str], *graph: Any, **how: Any) -> ReleaseFiles: ...
@overload
def release(table: PrivateTables, directory: str | os.PathLike[str], *graph: Any, **how: Any) -> LinkedReleaseFiles: ...
@verb
@linked
def release(
    table: PrivateTable | PrivateTables,
    directory: str | os.PathLike[str],
    graph: CausalGraph | Literal["discover"] | None = None,
    *,
    epsilon: float | None,
    delta: float | None = None,
    knowledge: CausalGraph | None = None,
    generator: str = "marginals",
    evaluate: float | None = None,
    rows: int | None = None,
    csv: bool = False,
    custodian: bool = False,
    overwrite: bool = False,
    no_privacy: bool = False,
    accept_large_delta: bool = False,
    seed: int | None = None,
    **options: Any,
) -> ReleaseFiles | LinkedReleaseFiles:
    """Release a synthetic table that follows a causal graph: rows, model, record and report, in one folder.

    Args:
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn. Of linked
            tables the folder holds a file for each, and the graph names columns as ``"visits.severity"``; of what
            follows they take all but ``custodian`` and ``no_privacy``; ``rows`` is the number of people, and
            ``options`` are those of :func:`~escudo.synthesis.synthesize`.
        directory: A new folder for the release.
        graph: Which column causes which; ``"discover"`` to have it learnt from the table under the same budget: read
            off the tables of generator ``marginals``, found first with a quarter of it for ``moments`` and ``linear``,
            or learnt with the networks of ``vae`` and ``autoregressive``; None for none.
        epsilon: What the release may cost; None, with ``no_privacy=True``, for a folder that promises nothing and says
            so on every page, as :func:`~escudo.synthesis.synthesize` has it.
        delta: At this probability aside; 1e-6 by default, or less where many rows are public.
        knowledge: With ``graph="discover"``: what is known of the graph beforehand.
        generator: A name of ``escudo.synthesis.GENERATORS``, or ``"auto"``.
        evaluate: A share of the budget, such as 0.1, that pays for figures of how good the rows are, for the report.
        rows: How many synthetic rows to make; about as many as the table has by default.
        csv: Whether to write the rows as CSV as well.
        custodian: Whether to compare with the real rows, too, in a copy of the report beside the folder, which is not
            for release.
        overwrite: Whether an earlier release in that folder may be replaced; nothing else ever is.
        no_privacy: That ``epsilon=None`` was meant.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant.
        seed: Repeatable noise and rows, for trying things out; marks everything not for release.
        options: What else the generator takes, such as ``checkpoint`` for networks; with ``graph="discover"`` also
            ``method``, as :func:`~escudo.discovery.discover` has it.

    Returns:
        Where the files are, and the model.

    Raises:
        InputError: If an argument is out of range or the folder cannot be written, before anything is spent; or if it
            cannot be written then, and what was spent stays spent.
        RefusedError: If the schema is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** (ε, δ) between the table's neighbours, for everything in the folder: the accountant's total of what
    ``release.plan(...)`` shows. With ``no_privacy``: none.
    """
    from escudo.causal import as_graph
    from escudo.synthesis import check_no_privacy, linked_budget
    from escudo.table import LinkedSchema

    described: Schema | LinkedSchema = table.schema  # of tables, or of what a plan takes in their place
    if isinstance(described, LinkedSchema) and custodian:
        raise InputError("a release of linked tables has no custodian's copy; leave it out, and use evaluate().")
    if not planning():
        check_target(directory, custodian=custodian, overwrite=overwrite)
    asked: dict[str, Any] = {
        "graph": graph if isinstance(graph, str) else as_graph(graph),
        "knowledge": knowledge,
        "generator": generator,
        "options": options,
        "evaluate": evaluate,
        "directory": Path(directory),
        "seed": seed,
        "written": {"csv": csv, "overwrite": overwrite},
    }
    how: AskOptions = {"accept_large_delta": accept_large_delta, "seed": seed}
    if isinstance(described, LinkedSchema):
        together = LinkedRelease(**asked, people=rows)
        whole = together.prepare(
            described, table.neighbours, linked_budget(table.neighbours, epsilon, delta, no_privacy=no_privacy)
        )
        how["purpose"] = whole.purpose
        return cast(LinkedReleaseFiles, run(cast(Any, whole), cast(Any, table), **how))
    table = cast("PrivateTable", table)
    question = SyntheticRelease(**asked, rows=rows, custodian=custodian)
    if check_no_privacy(epsilon, delta, no_privacy=no_privacy):
        return question.without_privacy(table)
    assert epsilon is not None, "or it was meant"
    budget = Budget(epsilon, usual_delta(table.neighbours) if delta is None else delta)
    prepared = question.prepare(described, table.neighbours, budget)
    how["purpose"] = prepared.purpose
    return run(prepared, table, **how)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is asked of one table and of linked ones alike.

    Attributes:
        graph: Which column causes which; ``"discover"`` for one to be learnt; None for none. Of linked tables, by whole
            names.
        knowledge: With ``"discover"``: what is known of the graph.
        generator: A name of ``escudo.synthesis.GENERATORS``, or ``"auto"``; ``"marginals"`` or ``"auto"`` for linked
            tables.
        options: What else the generator takes.
        evaluate: The share of the budget that pays for figures about the rows or people; None for none.
        directory: The folder; None where only the plan is asked for.
        seed: Decides which rows or people are drawn; None for any.
        written: What else the folder's writer takes: :func:`~escudo.report.write_release`, or
            :class:`~escudo.report.LinkedWriting`.
    """

    graph: CausalGraph | Literal["discover"] | None = None
    knowledge: CausalGraph | None = None
    generator: str = "marginals"
    options: Mapping[str, Any] = field(default_factory=dict)
    evaluate: float | None = None
    directory: Path | None = None
    seed: int | None = None
    written: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A release that knows what it will measure and how loudly, before a row is read.

    Attributes:
        question: What is released, and where.
        generator: What was prepared for the model; with the figures about its rows or people, where they are paid for.
    """

    question: Any
    generator: Any

    @property
    def plan(self) -> Plan:
        """All that the release may spend."""
        plan: Plan = self.generator.plan
        return plan

    @property
    def passes(self) -> Passes | None:
        """How often the rows are read; None where the generator cannot tell."""
        found: Passes | None = getattr(self.generator, "passes", None)
        return found

    def _run(self, table: Any, purse: Purse, write: Callable[[Any, Any], Any]) -> Any:
        """Fit the model, and have it written down with the figures about its rows, if there are any, or nothing.

        Raises:
            InputError: If the folder cannot be written; what was spent stays spent.
        """
        found = self.generator.run(table, purse)
        model, evaluate = found if isinstance(found, tuple) else (found, None)
        try:
            return write(model, evaluate)
        except InputError as error:  # such as a disk that is full by now
            raise InputError(f"{error} What was spent stays spent.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticRelease(_Asked):
    """What to release from a private table, and where: a question that a folder answers.

    Attributes:
        rows: How many synthetic rows to make; None for about as many as the table has.
        custodian: Whether a copy of the report compares with the real rows.
    """

    rows: int | None = None
    custodian: bool = False

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedRelease:
        """Choose what to measure, from public facts alone.

        Raises:
            InputError: If an argument is out of range; nothing was read or spent.
            RefusedError: If the schema is not confirmed.
        """
        question = self._question()
        if self.evaluate is None:
            return PreparedRelease(self, question.prepare(schema, neighbours, budget), budget)
        from escudo.utility import prepare_evaluated

        whole = prepare_evaluated(
            lambda epsilon: question.prepare(schema, neighbours, Budget(epsilon, budget.delta)),
            share=self.evaluate,
            epsilon=budget.epsilon,
            delta=budget.delta,
            relation=neighbours.relation,
            public_rows=neighbours.rows,
        )
        return PreparedRelease(self, whole, budget)

    def without_privacy(self, table: PrivateTable) -> ReleaseFiles:
        """Fit without privacy, and write the folder: everything in it says that nothing is promised.

        Raises:
            InputError: If the generator is never fitted like that, or something was asked for that has to be paid.
            RefusedError: If a promise was made to the people in the table.
        """
        from escudo.synthesis import Synthesis, fit_unprotected

        question = self._question()
        if self.evaluate is not None or not isinstance(question, Synthesis):
            what = "an evaluation" if self.evaluate is not None else "a graph that is to be discovered"
            raise InputError(f"{what} is paid for from a budget, and without privacy there is none; leave it out.")
        assert self.directory is not None, "there is no plan to be asked for"
        model = fit_unprotected(question, table, seed=self.seed)
        return self._written(model, table)

    def _written(self, model: Model, table: PrivateTable, **told: Any) -> ReleaseFiles:
        assert self.directory is not None, "only a plan was asked for"
        return write_release(
            model,
            self.directory,
            rows=self.rows or max(int(model.details["rows"]), 1),
            dataset=getattr(table.account, "dataset", ""),
            seed=self.seed,
            table=table if self.custodian else None,
            **told,
            **self.written,
        )

    def _question(self) -> Synthesis | DiscoveredSynthesis:
        """Return what is asked for the model: one that follows a graph, or a graph and its model together."""
        from escudo.synthesis import Synthesis

        if self.graph != "discover":
            if self.knowledge is not None:
                raise InputError(
                    "knowledge goes with a graph that is to be discovered (--graph discover); one that is given says "
                    "all that is known."
                )
            return Synthesis(graph=self.graph, generator=self.generator, options=self.options)
        if self.generator in ("vae", "autoregressive"):
            return Synthesis(
                graph=self.knowledge, generator=self.generator, options={"discover": "joint", **self.options}
            )
        from escudo.synthesis import DiscoveredSynthesis

        options = dict(self.options)
        return DiscoveredSynthesis(self.knowledge, options.pop("method", None), self.generator, options)


class Resumption(NamedTuple):
    """A release that goes on from a checkpoint, which paid for it or for a part of it.

    Attributes:
        checkpoint: The checkpoint.
        due: What is charged for the rest; None for nothing.
        again: Whether that was asked for.
    """

    checkpoint: Path
    due: Event | None
    again: bool


@dataclass(frozen=True, slots=True)
class PreparedRelease(_Prepared):
    """A release of rows that knows what it will measure and how loudly, before a row is read.

    Attributes:
        budget: What it may cost in all.
    """

    question: SyntheticRelease
    generator: Prepared | PreparedEvaluated
    budget: Budget

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.generator.schema

    @property
    def purpose(self) -> str:
        """What the account is told."""
        return f"synthesize ({self.plan.name})"

    @property
    def passes(self) -> Passes | None:
        """How often the rows are read, and once more for the custodian's copy; None where the generator cannot tell."""
        found: Passes | None = super(PreparedRelease, self).passes
        return None if found is None else found + Passes(int(self.question.custodian))

    def forecast(self, rows: int | None) -> Forecast | None:
        """Return how good the rows will be, for a table of so many; None where the generator cannot tell.

        Args:
            rows: The number of rows; None where it is not public.
        """
        foretell = getattr(self.generator, "forecast", None)
        found: Forecast | None = None if foretell is None else foretell(rows)
        return None if found is None else replace(found, budget=self.budget)

    def paying(
        self, account: Account, plan: Plan, stream: np.random.Generator | None, **terms: Any
    ) -> AbstractContextManager[Account]:
        """Charge a plan as the generator does, which may go on after a stop."""
        return paying(self.generator, account, plan, stream, **terms)

    def resumption(self, account: Account, plan: Plan) -> Resumption | None:
        """Return the checkpoint that the release would go on from, and what that would charge; None without one."""
        import numpy as np

        own = self.generator if self.question.evaluate is None else getattr(self.generator, "generator", None)
        kept, seed = getattr(own, "checkpoint", None), self.question.seed
        if kept is None:
            return None
        begun, due = kept.due(account, plan, seed=None if seed is None else np.random.default_rng(seed))
        return Resumption(kept.folder, due, kept.again) if begun else None

    def run(self, table: PrivateTable, purse: Purse) -> ReleaseFiles:
        """Fit the model, draw rows, and write all of it down, or nothing.

        Raises:
            InputError: If the folder cannot be written; what was spent stays spent.
        """

        def write(model: Model, evaluate: Any) -> ReleaseFiles:
            rows = round(float(model.details["rows"]))
            return self.question._written(model, table, evaluate=evaluate, forecast=self.forecast(rows))

        return cast(ReleaseFiles, self._run(table, purse, write))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedRelease(_Asked):
    """What to release from linked tables, and where: a question that a folder answers.

    Attributes:
        people: How many synthetic people to make; None for about as many as there are.
    """

    people: int | None = None

    def prepare(self, schema: LinkedSchema, neighbours: Neighbours, budget: Budget) -> PreparedLinkedRelease:
        """Choose what to measure, from public facts alone.

        Raises:
            InputError: If an argument is out of range; nothing was read or spent.
            RefusedError: If the schema is not confirmed.
        """
        from escudo.synthesis import linked_question

        question: Any = linked_question(self.graph, self.generator, self.options, self.knowledge)
        if self.evaluate is None:
            return PreparedLinkedRelease(question=self, generator=question.prepare(schema, neighbours, budget))
        from escudo.utility import prepare_linked_evaluated

        whole = prepare_linked_evaluated(question, schema, neighbours, budget, share=self.evaluate)
        return PreparedLinkedRelease(question=self, generator=whole)


@dataclass(frozen=True, slots=True)
class PreparedLinkedRelease(_Prepared):
    """A release of linked tables that knows what it will measure and how loudly, before a row is read."""

    question: LinkedRelease
    generator: PreparedLinked | PreparedLinkedDiscovered | PreparedEvaluated

    @property
    def schema(self) -> LinkedSchema:
        """The tables."""
        return cast("LinkedSchema", self.generator.schema)

    @property
    def purpose(self) -> str:
        """What the account is told."""
        return "synthesize (linked tables)"

    def run(self, table: PrivateTables, purse: Purse) -> LinkedReleaseFiles:
        """Fit the model, draw people, and write all of it down, or nothing.

        Raises:
            InputError: If the folder cannot be written; what was spent stays spent.
        """

        def write(model: LinkedModel, evaluate: Any) -> LinkedReleaseFiles:
            question = self.question
            assert question.directory is not None, "only a plan was asked for"
            writing = LinkedWriting(
                people=question.people or max(int(model.details["people"]), 1),
                dataset=getattr(table.account, "dataset", ""),
                seed=question.seed,
                evaluate=evaluate,
                **question.written,
            )
            return writing.write(model, question.directory)

        return cast(LinkedReleaseFiles, self._run(table, purse, write))
