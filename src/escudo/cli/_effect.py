"""``escudo effect``: how much one column changes another, from a private table, with an honest interval."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._arguments import (
    AcceptLargeDelta,
    Data,
    Dataset,
    Epsilon,
    LedgerUrl,
    PlanOnly,
    PublicRows,
    RelationName,
    SchemaFile,
    Seeded,
    check_files,
    never_lost,
    open_table,
    shown_first,
)
from escudo.cli._console import JsonFlag, emit

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.discovery import TreatmentEffect

__all__ = ["effect"]


def effect(
    data: Data,
    treatment: Annotated[str, typer.Argument(metavar="TREATMENT", help="The column that is set.")],
    outcome: Annotated[
        str, typer.Argument(metavar="OUTCOME", help="The column that responds; COLUMN=LEVEL for a share.")
    ],
    schema: SchemaFile,
    epsilon: Epsilon,
    graph: Annotated[
        Path | None, typer.Option("--graph", "-g", help="The causal graph; it says what to adjust for.")
    ] = None,
    adjust: Annotated[
        list[str] | None, typer.Option("--adjust", "-a", metavar="COLUMN", help="Adjust for this column (repeat it).")
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial", metavar="", help="The treatment was assigned by chance: adjust for nothing.")
    ] = False,
    delta: Annotated[
        float, typer.Option("--delta", "-d", help="0: Laplace noise, best for one question. Above: Gaussian, for many.")
    ] = 0.0,
    compare: Annotated[
        str | None, typer.Option(metavar="CONTROL,TREATED", help="The levels to compare; first and last by default.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How often the interval should hold the truth.")] = 0.95,
    report: Annotated[
        Path | None, typer.Option("--report", "-r", metavar="FILE", help="Write a page with the answer.")
    ] = None,
    relation: RelationName = "replace_one",
    public_rows: PublicRows = None,
    accept_large_delta: AcceptLargeDelta = False,
    ledger: LedgerUrl = None,
    dataset: Dataset = None,
    seed: Seeded = None,
    plan: PlanOnly = False,
    as_json: JsonFlag = False,
) -> None:
    """Estimate the average effect of one column on another, with an interval for chance and noise together.

    Example: escudo effect visits.csv smoke lung --graph clinic.dot --schema visits.toml --epsilon 0.5
    """
    from escudo.causal import CausalGraph
    from escudo.discovery import effect_of
    from escudo.errors import InputError
    from escudo.privacy import plan as plan_of
    from escudo.report import treatment_page, write

    start = time.perf_counter()
    check_files(report=report)
    table = open_table(data, schema, relation=relation, ledger=ledger, dataset=dataset)
    table = table.under(relation=relation, rows=public_rows)
    name, separator, level = outcome.partition("=") if outcome not in table.schema else (outcome, "", "")
    levels = None
    if compare is not None:
        levels = tuple(part.strip() for part in compare.split(","))
        if len(levels) != 2:
            raise InputError(f"--compare takes two levels, CONTROL,TREATED; got {compare!r}.")
    arguments: dict[str, Any] = {  # Any: they are of several types
        "graph": None if graph is None else CausalGraph.read(graph),
        "epsilon": epsilon,
        "delta": delta,
        "adjust": adjust or None,
        "trial": trial,
        "contrast": levels,
        "outcome_level": level if separator else None,
        "confidence": confidence,
        "accept_large_delta": accept_large_delta,
    }
    tree = plan_of(effect_of, table, treatment, name, **arguments)
    if shown_first(table.account, tree, stop=plan, as_json=as_json):
        return
    found = effect_of(table, treatment, name, seed=seed, **arguments)

    def show(written: bool) -> None:
        seconds, page = time.perf_counter() - start, report if written else None
        payload = {
            **found.to_json(),
            "report": None if page is None else str(page),
            "for_release": found.guarantee.for_release,
            "dataset": dataset,
            "seconds": round(seconds, 2),
        }
        emit(payload, as_json=as_json, human=lambda screen: _print_effect(screen, found, page, seconds))

    with never_lost(show):
        if report is not None:
            write(treatment_page(found, graph=arguments["graph"], dataset=dataset or ""), report)


def _print_effect(screen: Console, found: TreatmentEffect, report: Path | None, seconds: float) -> None:
    from escudo.discovery import shown

    low, high = map(shown, found.interval)
    screen.print(
        f"{found.treatment}: {found.control} → {found.treated}   changes {found.meaning} by {shown(found.value)}   "
        f"({found.confidence:.0%} interval {low} to {high}; {seconds:.1f} s)",
        markup=False,
        style="bold",
    )
    screen.print(found.verdict, markup=False)
    width = max(len(arm.level) for arm in found.arms)
    for arm in found.arms:
        ends = " to ".join(map(shown, arm.interval))
        screen.print(
            f"  do({found.treatment} = {arm.level})".ljust(width + len(found.treatment) + 9)
            + f"   {shown(arm.mean):>8}   {ends:<20}   about {arm.rows:,} rows",
            markup=False,
        )
    given = ", ".join(found.adjustment) or "nothing"
    screen.print(f"  adjusted for {given}   ({found.method})", markup=False)
    for note in found.notes:
        screen.print(f"  {note}", markup=False)
    for warning in found.warnings:
        screen.print(f"Warning: {warning}", markup=False, style="yellow")
    if report is not None:
        screen.print(f"Written to {report}", markup=False)
    if not found.guarantee.for_release:
        screen.print("NOT FOR RELEASE: the noise was seeded, so anyone can take it off again.", style="bold red")
    screen.print(f"What it means: {found.guarantee}", markup=False)
