"""``escudo discover``: a causal graph from a private table, with how sure it is of each edge."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._arguments import (
    AcceptLargeDelta,
    Data,
    Dataset,
    Delta,
    Epsilon,
    Force,
    LedgerUrl,
    PlanOnly,
    PublicRows,
    RelationName,
    SchemaFile,
    Seeded,
    check_files,
    delta_for,
    never_lost,
    open_table,
    shown_first,
)
from escudo.cli._console import JsonFlag, emit

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.discovery import Discovery

__all__ = ["discover"]


def discover(
    data: Data,
    schema: SchemaFile,
    epsilon: Epsilon,
    delta: Delta = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where the graph goes, such as graph.dot.")
    ] = None,
    knowledge: Annotated[
        Path | None,
        typer.Option(
            "--knowledge", "-k", help="What is known: a graph with stated, required and forbidden arrows, tiers."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="auto, exact, two-stage, joint or gaussian.")] = "auto",
    directions: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="The share of epsilon, 0 to 1, for votes on edges left without a direction."
        ),
    ] = 0.0,
    report: Annotated[
        Path | None, typer.Option("--report", "-r", metavar="FILE", help="Write a page with the drawn graph.")
    ] = None,
    relation: RelationName = "replace_one",
    public_rows: PublicRows = None,
    accept_large_delta: AcceptLargeDelta = False,
    ledger: LedgerUrl = None,
    dataset: Dataset = None,
    force: Force = False,
    seed: Seeded = None,
    plan: PlanOnly = False,
    as_json: JsonFlag = False,
) -> None:
    """Learn a causal graph from a private table.

    Example: escudo discover visits.csv --schema visits.toml --epsilon 1 --out graph.dot --report graph.html
    """
    from escudo.causal import CausalGraph
    from escudo.discovery import discover as ask
    from escudo.errors import InputError
    from escudo.privacy import plan as plan_of
    from escudo.report import discovery_page, write

    start = time.perf_counter()
    if out is None and not plan:
        raise InputError("--out says where the graph goes, such as graph.dot. Or add --plan to look first.")
    check_files(graph=out, report=report, force=force)
    known = None if knowledge is None else CausalGraph.read(knowledge)
    table = open_table(data, schema, relation=relation, ledger=ledger, dataset=dataset)
    table = table.under(relation=relation, rows=public_rows)
    arguments: dict[str, Any] = {  # Any: they are of several types
        "epsilon": epsilon,
        "delta": delta_for(table, delta, relation=relation, public_rows=public_rows),
        "knowledge": known,
        "method": method,
        "directions": directions,
        "accept_large_delta": accept_large_delta,
    }
    tree = plan_of(ask, table, **arguments)
    if shown_first(table.account, tree, stop=plan, as_json=as_json):
        return
    assert out is not None
    found = ask(table, seed=seed, **arguments)

    def show(written: bool) -> None:
        seconds, file, page = time.perf_counter() - start, out if written else None, report if written else None
        payload = {
            **found.to_json(),
            "file": None if file is None else str(file),
            "report": None if page is None else str(page),
            "for_release": found.guarantee.for_release,
            "dataset": dataset,
            "seconds": round(seconds, 2),
        }
        emit(payload, as_json=as_json, human=lambda screen: _print_found(screen, found, file, page, seconds))

    with never_lost(show):
        found.graph.write(out, lossy=True)  # what some formats leave behind is the knowledge that was given
        if report is not None:
            write(discovery_page(found, dataset=dataset or "", known=known), report)


def _print_found(screen: Console, found: Discovery, out: Path | None, report: Path | None, seconds: float) -> None:
    screen.print(f"{found.graph.summary}   ({seconds:.1f} s)", markup=False, style="bold")
    ranked = sorted(
        [(pair, "→") for pair in found.graph.edges] + [(pair, "—") for pair in found.graph.undirected_edges],
        key=lambda one: -found.confidence(*one[0]),
    )
    width = max((len(f"{a} → {b}") for (a, b), _ in ranked), default=0)
    for (a, b), mark in ranked:
        line = f"  {f'{a} {mark} {b}':<{width}}   {100 * found.confidence(a, b):3.0f} %"
        if (a, b) in found.direction_confidence:
            line += f"   direction {100 * found.direction_confidence[a, b]:3.0f} %"
        screen.print(line, markup=False)
    if found.cannot_tell:
        screen.print(f"Cannot tell: {found.cannot_tell}.", markup=False, style="bold")
    for note in found.notes:
        screen.print(f"  {note}", markup=False)
    if out is not None:
        screen.print(f"Written to {out}" + (f"; open {report}" if report is not None else ""), markup=False)
    if not found.guarantee.for_release:
        screen.print("NOT FOR RELEASE: the noise was seeded, so anyone can take it off again.", style="bold red")
    screen.print(f"What it means: {found.guarantee}", markup=False)
