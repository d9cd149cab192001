"""Releasing: a synthetic table with its model, record and report, from a private table under one budget.

:func:`release` is the whole job, in the order that keeps people safe: is there room for the folder, what would it cost,
charge, measure, estimate, draw rows, and write all of it or nothing. :func:`prepare_release` and :func:`run_release`
are its two halves, for those who show the plan in between, as the command line does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from escudo.errors import InputError
from escudo.privacy import Event, Plan, plannable, usual_delta
from escudo.report import ReleaseFiles, check_target, write_release

if TYPE_CHECKING:
    from escudo.causal import CausalGraph
    from escudo.privacy import Account
    from escudo.synthesis import Model, Prepared
    from escudo.table import PrivateTable
    from escudo.utility import PreparedEvaluated, PrivateEvaluation

__all__ = ["Resumption", "prepare_release", "release", "resumption", "run_release"]


def _plan(
    table: PrivateTable,
    directory: str | os.PathLike[str] | None = None,
    graph: CausalGraph | Literal["discover"] | None = None,
    *,
    accept_large_delta: bool = False,
    **arguments: Any,
) -> Plan:
    folder = ("rows", "csv", "custodian", "overwrite", "seed")
    asked = {name: value for name, value in arguments.items() if name not in folder}
    return prepare_release(table, graph, **asked).plan.judged(table.neighbours, accept_large_delta=accept_large_delta)


@plannable(_plan)
def release(
    table: PrivateTable,
    directory: str | os.PathLike[str],
    graph: CausalGraph | Literal["discover"] | None = None,
    *,
    epsilon: float,
    delta: float | None = None,
    knowledge: CausalGraph | None = None,
    generator: str = "marginals",
    evaluate: float | None = None,
    rows: int | None = None,
    csv: bool = False,
    custodian: bool = False,
    overwrite: bool = False,
    accept_large_delta: bool = False,
    seed: int | None = None,
    **options: Any,
) -> ReleaseFiles:
    """Release a synthetic table that follows a causal graph: rows, model, record and report, in one folder.

    Args:
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn.
        directory: A new folder for the release.
        graph: Which column causes which; ``"discover"`` to have it learnt from the table under the same budget, with
            its tables used again; None for none.
        epsilon: What the release may cost.
        delta: At this probability aside; 1e-6 by default, or less where many rows are public.
        knowledge: With ``graph="discover"``: what is known of the graph beforehand.
        generator: A name of ``escudo.synthesis.GENERATORS``, or ``"auto"``.
        evaluate: A share of the budget, such as 0.1, that pays for figures of how good the rows are, for the report.
        rows: How many synthetic rows to make; about as many as the table has by default.
        csv: Whether to write the rows as CSV as well.
        custodian: Whether to compare with the real rows, too, in a copy of the report beside the folder, which is not
            for release.
        overwrite: Whether an earlier release in that folder may be replaced; nothing else ever is.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant.
        seed: Repeatable noise and rows, for trying things out; marks everything not for release.
        options: What else the generator takes, such as ``checkpoint`` for networks.

    Returns:
        Where the files are, and the model.

    Raises:
        InputError: If an argument is out of range or the folder cannot be written, before anything is spent; or if it
            cannot be written then, and what was spent stays spent.
        RefusedError: If the schema is not confirmed, or δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** (ε, δ) between the table's neighbours, for everything in the folder: the accountant's total of what
    ``release.plan(...)`` shows.
    """
    check_target(directory, custodian=custodian, overwrite=overwrite)
    arguments: dict[str, Any] = {"knowledge": knowledge, "generator": generator, "evaluate": evaluate, **options}
    prepared = prepare_release(table, graph, epsilon=epsilon, delta=delta, **arguments)
    folder: dict[str, Any] = {"rows": rows, "csv": csv, "custodian": custodian, "overwrite": overwrite}
    return run_release(prepared, table, directory, accept_large_delta=accept_large_delta, seed=seed, **folder)


def prepare_release(
    table: PrivateTable,
    graph: CausalGraph | Literal["discover"] | None = None,
    *,
    epsilon: float,
    delta: float | None = None,
    knowledge: CausalGraph | None = None,
    generator: str = "marginals",
    evaluate: float | None = None,
    **options: Any,
) -> Prepared | PreparedEvaluated:
    """Choose what to measure for a release, from public facts alone; the arguments are those of :func:`release`.

    Raises:
        InputError: If an argument is out of range; nothing was read or spent.
        RefusedError: If the schema is not confirmed.
    """
    from escudo.synthesis import prepare, prepare_discovered
    from escudo.utility import prepare_evaluated

    neighbours = table.neighbours
    terms: dict[str, Any] = {
        "delta": usual_delta(neighbours) if delta is None else delta,
        "relation": neighbours.relation,
        "public_rows": neighbours.rows,
    }
    if graph == "discover":
        _check_discovered(generator, options)
    elif knowledge is not None:
        raise InputError(
            "knowledge goes with a graph that is to be discovered (--graph discover); one that is given says all that "
            "is known."
        )

    def prepare_for(left: float) -> Prepared:
        if graph == "discover":
            return prepare_discovered(table.schema, knowledge, epsilon=left, **terms, **options)
        return prepare(table.schema, graph, generator=generator, epsilon=left, **terms, **options)

    if evaluate is None:
        return prepare_for(epsilon)
    return prepare_evaluated(prepare_for, share=evaluate, epsilon=epsilon, **terms)


def _check_discovered(generator: str, options: dict[str, Any]) -> None:
    if generator != "marginals":
        raise InputError(
            "a graph that is to be discovered (--graph discover) is found with the tables of generator 'marginals', in "
            f"one go; got {generator!r}. To use another generator, run 'escudo discover' first and pass its graph."
        )
    if unknown := sorted(set(options) - {"method"}):
        raise InputError(f"a graph that is to be discovered has no option {unknown[0]!r}; it has method.")


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


def resumption(
    prepared: Prepared | PreparedEvaluated, account: Account, plan: Plan, *, seed: int | None = None
) -> Resumption | None:
    """Return the checkpoint that a release would go on from, and what that would charge; None without one."""
    import numpy as np

    from escudo.utility import PreparedEvaluated

    generator = prepared.generator if isinstance(prepared, PreparedEvaluated) else prepared
    kept = getattr(generator, "checkpoint", None)
    if kept is None:
        return None
    begun, due = kept.due(account, plan, seed=None if seed is None else np.random.default_rng(seed))
    return Resumption(kept.folder, due, kept.again) if begun else None


def run_release(
    prepared: Prepared | PreparedEvaluated,
    table: PrivateTable,
    directory: str | os.PathLike[str],
    *,
    rows: int | None = None,
    custodian: bool = False,
    accept_large_delta: bool = False,
    seed: int | None = None,
    **folder: Any,
) -> ReleaseFiles:
    """Charge the table's account, fit what was prepared and write the folder; a spend that fails is marked so.

    Args:
        prepared: What :func:`prepare_release` gave for the table.
        table: The private table.
        directory: The folder.
        rows: How many synthetic rows to make; about as many as the table has by default.
        custodian: Whether to compare with the real rows, too, in a copy of the report beside the folder.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant.
        seed: Repeatable noise and rows; marks everything not for release.
        folder: What else :func:`~escudo.report.write_release` takes.

    Raises:
        InputError: If the folder cannot be written; what was spent stays spent.
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.
    """
    with _fitting(prepared, table, seed=seed, accept_large_delta=accept_large_delta) as (model, evaluate):
        try:
            return write_release(
                model,
                directory,
                rows=rows or int(model.details["rows"]),
                dataset=getattr(table.account, "dataset", ""),
                seed=seed,
                table=table if custodian else None,
                evaluate=evaluate,
                **folder,
            )
        except InputError as error:  # such as a disk that is full by now
            raise InputError(f"{error} What was spent stays spent.") from None


@contextmanager
def _fitting(
    prepared: Prepared | PreparedEvaluated, table: PrivateTable, **terms: Any
) -> Iterator[tuple[Model, Callable[[object], PrivateEvaluation] | None]]:
    """Give the model, and what evaluates its rows if that was paid for."""
    from escudo.synthesis import fitting
    from escudo.utility import PreparedEvaluated, fitting_evaluated

    terms["public_rows"] = table.neighbours.rows
    if isinstance(prepared, PreparedEvaluated):
        with fitting_evaluated(prepared, table, **terms) as both:
            yield both
    else:
        with fitting(prepared, table, **terms) as model:
            yield model, None
