"""``escudo attack``: what somebody who sees synthetic rows could find out about one person, for the custodian."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import JsonFlag, console, emit

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.attacks import Attack
    from escudo.table import Schema

__all__ = ["attack"]


def attack(
    data: Annotated[str, typer.Argument(metavar="DATA", help="The private rows: CSV, TSV, Parquet, Arrow or NDJSON.")],
    release: Annotated[
        Path | None,
        typer.Option(
            "--release",
            "-r",
            metavar="DIR",
            help="Attack the generator of this release, with its schema, graph and budget, and add what is found to "
            "the custodian's copy of its report, beside DIR: NOT FOR RELEASE.",
        ),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", "-s", help="The table's public description (escudo schema).")
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="What one release costs.")] = None,
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

    Example: escudo attack visits.csv --release release --targets 3 --shadows 100

    Or: escudo attack visits.csv --schema visits.toml --graph clinic.dot --epsilon 1
    """
    from escudo.attacks import attack as run
    from escudo.report import attack_page, check_page, custodian_report, write
    from escudo.table import open_data

    if out is not None:
        check_page(out)
    described, terms = _asked(
        release, schema, graph, generator=generator, epsilon=epsilon, delta=delta, relation=relation
    )
    found = run(
        terms.pop("generator"),
        open_data(data, described),
        described,
        **terms,
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
    copy = None if release is None else custodian_report(release, attack=found)
    emit(
        {
            **found.to_json(),
            "page": None if out is None else str(out),
            "custodian": None if copy is None else str(copy),
        },
        as_json=as_json,
        human=lambda screen: _print(screen, found, [path for path in (out, copy) if path is not None]),
    )
    if found.violated:
        raise typer.Exit(5)


def _asked(
    release: Path | None,
    schema: Path | None,
    graph: Path | None,
    *,
    generator: str,
    epsilon: float | None,
    delta: float,
    relation: str,
) -> tuple[Schema, dict[str, Any]]:
    """Return the schema and what to attack: as the release says, or as was asked."""
    from escudo.causal import CausalGraph
    from escudo.errors import InputError
    from escudo.report import check_custodian_report
    from escudo.synthesis import load
    from escudo.table import Schema

    if release is not None:
        if schema is not None or graph is not None or epsilon is not None:
            raise InputError("--release says which schema, graph and epsilon; leave these options out, or --release.")
        check_custodian_report(release)
        model = load(release / "model")
        promise = model.guarantee
        if promise.epsilon is None:
            raise InputError(f"the release in '{release}' states no epsilon; name what to attack option by option.")
        counted = promise.relation == "replace_one" and promise.unit == "row"  # public, and known to the generator
        return model.schema, {
            "generator": model.generator,
            "graph": model.graph,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "relation": promise.relation,
            "public_rows": model.details["rows"] if counted else None,
        }
    if schema is None or epsilon is None:
        missing = "--schema" if schema is None else "--epsilon"
        raise InputError(f"{missing} is missing; or name a release to attack as it was made: --release DIR.")
    described = Schema.read(schema)
    described.require_confirmed(source=str(schema))
    return described, {
        "generator": generator,
        "graph": None if graph is None else CausalGraph.read(graph),
        "epsilon": epsilon,
        "delta": delta,
        "relation": relation,
    }


def _print(screen: Console, found: Attack, pages: list[Path]) -> None:
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
    for page in pages:
        screen.print(f"NOT FOR RELEASE: {page}", markup=False)
    screen.print("For the custodian only: these figures are about single people.", style="bold")
