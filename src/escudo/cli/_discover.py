"""``escudo discover``: a causal graph from a private table, with how sure it is of each edge."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from escudo.cli._console import JsonFlag, console, emit
from escudo.cli._ledger import DEFAULT

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.discovery import Discovery
    from escudo.privacy import Account
    from escudo.table import PrivateTable, Schema

__all__ = ["discover", "open_table"]

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV, Parquet, Arrow or NDJSON file; or duckdb:///FILE?table=T, postgresql://USER@HOST/DB?table=T.",
    ),
]
SchemaFile = Annotated[Path, typer.Option("--schema", "-s", help="The table's public description (escudo schema).")]
Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The privacy budget to spend.")]
LedgerUrl = Annotated[
    str | None,
    typer.Option("--ledger", metavar="URL", help="The ledger; else ESCUDO_LEDGER, else escudo-ledger.db here."),
]
Dataset = Annotated[str | None, typer.Option(help="The account to charge; without one, nothing is recorded.")]
RelationName = Annotated[str, typer.Option(help="replace_one or add_remove.")]
PublicRows = Annotated[int | None, typer.Option(help="The number of rows, if it is public knowledge.")]
Seeded = Annotated[int | None, typer.Option(min=0, help="Repeatable noise, for trying things out: NOT FOR RELEASE.")]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Show the budget tree and stop; nothing is spent.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def discover(
    data: Data,
    schema: SchemaFile,
    epsilon: Epsilon,
    delta: Annotated[
        float, typer.Option("--delta", "-d", help="Probability aside; well below one over the number of people.")
    ] = 1e-6,
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
        float, typer.Option(metavar="SHARE", help="The share of epsilon for votes on edges without a direction.")
    ] = 0.0,
    report: Annotated[
        Path | None, typer.Option("--report", "-r", metavar="FILE", help="Write a page with the drawn graph.")
    ] = None,
    relation: RelationName = "replace_one",
    public_rows: PublicRows = None,
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
    from escudo.cli._release import _print_plan, _standing, _without_secrets
    from escudo.discovery import prepare, run_prepared
    from escudo.errors import InputError
    from escudo.report import discovery_page, write
    from escudo.table import Schema

    start = time.perf_counter()
    if out is None and not plan:
        raise InputError("--out says where the graph goes, such as graph.dot. Or add --plan to look first.")
    targets(out, report, force=force)
    described = Schema.read(schema)
    described.require_confirmed(source=str(schema), data=_without_secrets(data))
    known = None if knowledge is None else CausalGraph.read(knowledge)
    prepared = prepare(
        described,
        epsilon=epsilon,
        delta=delta,
        knowledge=known,
        method=method,
        relation=relation,
        public_rows=public_rows,
        directions=directions,
    )
    shown = prepared.plan
    table = open_table(data, described, relation=relation, ledger=ledger, dataset=dataset)
    standing = _standing(table.account, shown)
    if plan:
        emit(
            {"plan": shown.to_json(), "ledger": standing, "spent": False},
            as_json=as_json,
            human=lambda screen: _print_plan(screen, shown, standing, stop=True),
        )
        return
    if not as_json:
        _print_plan(console(), shown, standing, stop=False)
    assert out is not None
    found = run_prepared(prepared, table, seed=seed)
    found.graph.write(out)
    if report is not None:
        write(discovery_page(found, dataset=dataset or "", known=known), report)
    seconds = time.perf_counter() - start
    payload = {
        **found.to_json(),
        "file": str(out),
        "report": None if report is None else str(report),
        "for_release": found.guarantee.for_release,
        "dataset": dataset,
        "seconds": round(seconds, 2),
    }
    emit(payload, as_json=as_json, human=lambda screen: _print_found(screen, found, out, report, seconds))


def open_table(data: str, schema: Schema, *, relation: str, ledger: str | None, dataset: str | None) -> PrivateTable:
    """Return the private table behind its ledger account, or behind one in memory that nobody sees."""
    from escudo.errors import InputError
    from escudo.privacy import MemoryAccount, parse_relation
    from escudo.table import PrivateTable, open_data

    if ledger is not None and dataset is None:
        raise InputError("a ledger holds one account per dataset; say which one with --dataset.")
    account: Account | str = ledger or os.environ.get("ESCUDO_LEDGER", DEFAULT)
    if dataset is None:
        account = MemoryAccount(
            relation=parse_relation(relation), unit=schema.unit, max_rows_per_person=schema.max_rows_per_person
        )
    return PrivateTable(open_data(data, schema), schema, account, dataset)


def targets(graph: Path | None, report: Path | None, *, force: bool) -> None:
    """Check that the files can be written, before anything is spent."""
    from escudo.causal.formats import format_of
    from escudo.errors import InputError, RefusedError
    from escudo.report._page import is_report

    if graph is not None:
        format_of(graph)
        if graph.exists() and not force:
            raise RefusedError(
                f"'{graph}' exists; name another file, or pass --force to replace it. Nothing was spent."
            )
    if report is not None and report.exists() and not is_report(report):
        raise RefusedError(f"'{report}' exists and is no report of escudo; name another file. Nothing was spent.")
    for file in (graph, report):
        if file is not None and not file.parent.is_dir():
            raise InputError(f"the folder of '{file}' does not exist; make it first. Nothing was spent.")


def _print_found(screen: Console, found: Discovery, out: Path, report: Path | None, seconds: float) -> None:
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
    screen.print(f"Written to {out}" + (f"; open {report}" if report is not None else ""), markup=False)
    if not found.guarantee.for_release:
        screen.print("NOT FOR RELEASE: the noise was seeded, so anyone can take it off again.", style="bold red")
    screen.print(f"What it means: {found.guarantee}", markup=False)
