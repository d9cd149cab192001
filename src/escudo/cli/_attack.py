"""``escudo attack``: what somebody who sees synthetic rows could find out about one person, for the custodian."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import JsonFlag, console
from escudo.cli._custodian import deliver

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
    delta: Annotated[
        float | None,
        typer.Option("--delta", "-d", help="With this probability its promise may fail; 1e-6 if left out."),
    ] = None,
    graph: Annotated[
        Path | None, typer.Option("--graph", "-g", help="The causal graph: DOT, GML, dagitty, BIF, CSV, edge list.")
    ] = None,
    generator: Annotated[
        str | None, typer.Option(help="The generator to attack, as in escudo release; marginals if left out.")
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(
            help="Who is there when the target is not: somebody else in their place (replace_one, if left out) or "
            "nobody (add_remove)."
        ),
    ] = None,
    targets: Annotated[int, typer.Option(min=1, help="How many people to attack.")] = 10,
    choose: Annotated[
        str, typer.Option(help="Whom: outliers, random, or canary (a record made up to stand out).")
    ] = "outliers",
    row: Annotated[
        list[int] | None, typer.Option("--row", help="Attack this row, counted from 0; may be repeated.")
    ] = None,
    shadows: Annotated[int, typer.Option(min=2, help="Fits to learn from, for each target.")] = 200,
    trials: Annotated[int, typer.Option(min=2, help="Fits to test on, for each target.")] = 200,
    rest: Annotated[
        str, typer.Option(help="The other rows: fixed (the same in every fit) or resampled (drawn anew for each).")
    ] = "fixed",
    fit_rows: Annotated[int | None, typer.Option(min=1, help="How many rows a fit gets.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the formal statements, over all targets together.")] = 0.95,
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
    from escudo.report import attack_page, check_page, custodian_report
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
    deliver(
        found.to_json(),
        human=lambda screen: _print(screen, found),
        as_json=as_json,
        page=lambda: attack_page(found),
        out=out,
        copy=None if release is None else lambda: custodian_report(release, attack=found),
    )
    if found.violated:
        raise typer.Exit(5)


def _asked(
    release: Path | None,
    schema: Path | None,
    graph: Path | None,
    *,
    generator: str | None,
    epsilon: float | None,
    delta: float | None,
    relation: str | None,
) -> tuple[Schema, dict[str, Any]]:
    """Return the schema and what to attack: as the release says, or as was asked."""
    from escudo.causal import CausalGraph
    from escudo.errors import InputError
    from escudo.report import check_custodian_report
    from escudo.synthesis import load
    from escudo.table import Schema

    if release is not None:
        stated = {
            "--schema": schema, "--graph": graph, "--epsilon": epsilon, "--delta": delta, "--generator": generator,
            "--relation": relation,
        }  # fmt: skip
        if twice := [name for name, value in stated.items() if value is not None]:
            raise InputError(f"{twice[0]} is what the release says itself; leave it out, or --release.")
        check_custodian_report(release)
        model = load(release / "model")
        promise = model.guarantee
        if promise.epsilon is None:
            raise InputError(f"the release in '{release}' states no epsilon; name what to attack option by option.")
        return model.schema, {
            "generator": model.generator,
            "graph": model.graph,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "relation": promise.relation,
        }
    if schema is None or epsilon is None:
        missing = "--schema" if schema is None else "--epsilon"
        raise InputError(f"{missing} is missing; or name a release to attack as it was made: --release DIR.")
    described = Schema.read(schema)
    described.require_confirmed(source=str(schema))
    return described, {
        "generator": generator or "marginals",
        "graph": None if graph is None else CausalGraph.read(graph),
        "epsilon": epsilon,
        "delta": 1e-6 if delta is None else delta,
        "relation": relation or "replace_one",
    }


def _print(screen: Console, found: Attack) -> None:
    from math import isnan

    from rich.table import Table

    screen.print(found.verdict, style="bold red" if found.violated else "bold")
    table = Table(title="Attacks, mean over targets (heuristic)", title_justify="left", box=None)
    table.add_column("looks at")
    table.add_column("judges by")
    for heading in ("accuracy", "95 % interval", "AUC", "TPR at 1 % FPR"):
        table.add_column(heading, justify="right")
    for score in found.ranked:
        low, high = score.accuracy_interval
        table.add_row(
            score.features,
            score.classifier,
            f"{100 * score.accuracy:.1f} %",
            f"{100 * low:.0f} … {100 * high:.0f}",
            "–" if isnan(score.auc) else f"{score.auc:.3f}",
            "–" if isnan(score.tpr_at_1_percent) else f"{100 * score.tpr_at_1_percent:.0f} %",
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
    screen.print("For the custodian only: these figures are about single people.", style="bold")
