"""``escudo evaluate``: how useful synthetic rows are, measured on the real ones, for the custodian."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from escudo.cli._console import JsonFlag, emit

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.utility import Evaluation

__all__ = ["evaluate"]


def evaluate(
    real_train: Annotated[Path, typer.Argument(metavar="REAL_TRAIN", help="The rows the generator was fitted to.")],
    real_test: Annotated[Path, typer.Argument(metavar="REAL_TEST", help="Real rows held out from it.")],
    synthetic: Annotated[
        list[Path], typer.Argument(metavar="SYNTHETIC...", help="Synthetic rows; several files for several fits.")
    ],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="The table's public description (escudo schema).")],
    targets: Annotated[int, typer.Option(min=1, help="How many columns to predict, drawn at random.")] = 20,
    target: Annotated[
        list[str] | None, typer.Option("--target", metavar="COLUMN", help="Predict this column; may be repeated.")
    ] = None,
    learner: Annotated[
        list[str] | None, typer.Option("--learner", help="Use this learner only; may be repeated.")
    ] = None,
    most_rows: Annotated[int, typer.Option(min=10, help="The most rows that a learner sees.")] = 5000,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A released model, to compare its interventions too.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="BIF", help="The true network that --model is compared with.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="HTML", help="Write a page: NOT FOR RELEASE.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides targets, samples and learners.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes to use; -1 for all cores.")] = -1,
    as_json: JsonFlag = False,
) -> None:
    """Compare what can be learnt from synthetic rows with what can be learnt from the real ones.

    The figures read the real rows exactly. They are for the custodian's eyes only.

    Example: escudo evaluate train.csv test.csv release/synthetic.parquet --schema visits.toml
    """
    from escudo.causal import Network
    from escudo.report import evaluation_page, write
    from escudo.synthesis import load
    from escudo.table import Schema, open_data
    from escudo.utility import LEARNERS
    from escudo.utility import evaluate as run

    described = Schema.read(schema)
    found = run(
        open_data(str(real_train), described),
        open_data(str(real_test), described),
        [open_data(str(path), described) for path in synthetic],
        described,
        targets=target or targets,
        learners=learner or LEARNERS,
        most_rows=most_rows,
        model=None if model is None else load(model),
        reference=None if reference is None else Network.read(reference),
        seed=seed,
        jobs=jobs,
    )
    if out is not None:
        write(evaluation_page(found), out)
    emit(
        {**found.to_json(), "page": None if out is None else str(out)},
        as_json=as_json,
        human=lambda screen: _print(screen, found, out),
    )


def _print(screen: Console, found: Evaluation, out: Path | None) -> None:
    import numpy as np
    from rich.table import Table

    for kind, what in (("class", "accuracy"), ("number", "variance explained")):
        changes = [change for change in found.changes if change.kind == kind]
        if not changes:
            continue
        table = Table(title=f"{what.capitalize()} on held-out real rows, per cent", title_justify="left", box=None)
        table.add_column("learner")
        for heading in ("real", "synthetic", "lost", "95 % interval", "commonest class"):
            table.add_column(heading, justify="right")
        for one in changes:
            table.add_row(
                one.learner,
                f"{one.real:.1f}",
                f"{one.synthetic:.1f}",
                f"{one.change:+.1f}",
                f"{one.low:+.1f} … {one.high:+.1f}",
                f"{one.baseline:.1f}" if kind == "class" else "",
            )
        screen.print(table)
    table = Table(title="How far apart", title_justify="left", box=None)
    table.add_column("")
    table.add_column("synthetic", justify="right")
    table.add_column("second real sample", justify="right")
    for name, label, form in (
        ("one_way", "rows in the wrong cell, one column", "{:.2%}"),
        ("two_way", "two columns", "{:.2%}"),
        ("three_way", "three columns", "{:.2%}"),
        ("correlation", "correlations, mean difference", "{:.3f}"),
        ("detection", "told apart by a learner (AUC)", "{:.3f}"),
    ):
        values = [getattr(one, name) for one in found.fidelity]
        floor = getattr(found.floor, name)
        if floor is not None and None not in values:
            table.add_row(label, form.format(float(np.mean(values))), form.format(floor))
    screen.print(table)
    if found.causal is not None:
        screen.print(
            f"Interventions: {found.causal.intervention:.2%} in the wrong cell over {found.causal.questions} questions"
        )
    if out is not None:
        screen.print(f"Page   {out}")
    screen.print("For the custodian only: these figures read the real rows exactly.", style="bold")
