"""``escudo attack``: what somebody who sees synthetic rows could find out about one person, for the custodian."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from escudo.cli._console import JsonFlag, console, emit

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.attacks import Attack

__all__ = ["attack"]


def attack(
    data: Annotated[str, typer.Argument(metavar="DATA", help="The private rows: CSV, TSV, Parquet, Arrow or NDJSON.")],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="The table's public description (escudo schema).")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="What one release costs.")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Probability aside.")] = 1e-6,
    graph: Annotated[
        Path | None, typer.Option("--graph", "-g", help="The causal graph: DOT, GML, dagitty, BIF, CSV, edge list.")
    ] = None,
    generator: Annotated[str, typer.Option(help="The generator to attack, as in escudo release.")] = "marginals",
    relation: Annotated[
        str, typer.Option(help="replace_one: somebody else in their place; add_remove: nobody.")
    ] = "replace_one",
    targets: Annotated[int, typer.Option(min=1, help="How many people to attack.")] = 10,
    choose: Annotated[
        str, typer.Option(help="outliers, random, or canary: a record made up to stand out.")
    ] = "outliers",
    row: Annotated[
        list[int] | None, typer.Option("--row", help="Attack this row, counted from 0; may be repeated.")
    ] = None,
    shadows: Annotated[int, typer.Option(min=2, help="Fits to learn from, for each target.")] = 200,
    trials: Annotated[int, typer.Option(min=2, help="Fits to test on, for each target.")] = 200,
    rest: Annotated[str, typer.Option(help="fixed or resampled: the other rows.")] = "fixed",
    fit_rows: Annotated[int | None, typer.Option(min=1, help="How many rows a fit gets.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the formal statements.")] = 0.95,
    log: Annotated[
        Path | None, typer.Option(help="Keep fits here, to go on after a stop; as private as the rows.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="HTML", help="Write a page: NOT FOR RELEASE.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Repeats the attack.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes to use; -1 for all cores.")] = -1,
    as_json: JsonFlag = False,
) -> None:
    """Try to find out from synthetic rows who was in the table, and bound what a release gives away.

    Fits the generator many times, with and without one person's record. Nothing is released, and nothing is charged:
    the figures are about single people, and for the custodian's eyes only.

    Example: escudo attack visits.csv --schema visits.toml --graph clinic.dot --epsilon 1 --targets 3 --shadows 100
    """
    from escudo.attacks import attack as run
    from escudo.causal import CausalGraph
    from escudo.report import attack_page, write
    from escudo.table import Schema, open_data

    described = Schema.read(schema)
    described.require_confirmed(source=str(schema))
    found = run(
        generator,
        open_data(data, described),
        described,
        graph=None if graph is None else CausalGraph.read(graph),
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        targets=targets,
        choose=row or choose,
        shadows=shadows,
        trials=trials,
        rest=rest,
        fit_rows=fit_rows,
        confidence=confidence,
        log=log,
        seed=seed,
        jobs=jobs,
        on_progress=None if as_json else lambda line: console(stderr=True).print(line, style="dim"),
    )
    if out is not None:
        write(attack_page(found), out)
    emit(
        {**found.to_json(), "page": None if out is None else str(out)},
        as_json=as_json,
        human=lambda screen: _print(screen, found, out),
    )
    if found.violated:
        raise typer.Exit(5)


def _print(screen: Console, found: Attack, out: Path | None) -> None:
    from rich.table import Table

    screen.print(found.verdict, style="bold red" if found.violated else "bold")
    table = Table(title="Attacks, mean over targets (heuristic)", title_justify="left", box=None)
    table.add_column("looks at")
    table.add_column("judges by")
    for heading in ("accuracy", "95 % interval", "AUC", "TPR at 1 % FPR"):
        table.add_column(heading, justify="right")
    for score in sorted(found.overall, key=lambda one: -one.accuracy):
        low, high = score.accuracy_interval
        table.add_row(
            score.features,
            score.classifier,
            f"{100 * score.accuracy:.1f} %",
            f"{100 * low:.0f} … {100 * high:.0f}",
            f"{score.auc:.3f}",
            f"{100 * score.tpr_at_1_percent:.0f} %",
        )
    if found.ceiling is not None:
        table.add_section()
        table.add_row(
            "the promise allows",
            "",
            f"{100 * found.ceiling.accuracy:.1f} %",
            "",
            f"{found.ceiling.auc:.3f}",
            f"{100 * found.ceiling.tpr:.0f} %",
        )
    screen.print(table)
    if out is not None:
        screen.print(f"Page   {out}")
    screen.print("For the custodian only: these figures are about single people.", style="bold")
