"""For the custodian, who may see the rows anyway: ``escudo evaluate`` and ``escudo attack``.

How useful synthetic rows are, measured on the real ones; and what somebody who sees them could find out about one
person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import Answer, Filed, JsonFlag, console, plain_table
from escudo.cli._linked import evaluate_linked, linked_schema, opened_tables
from escudo.cli._options import Delta, Engine, More, by_name, command, without_secrets

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.attacks import Attack, Score
    from escudo.table import LinkedSchema, Schema
    from escudo.utility import Change, Evaluation


def _of_release(does: str) -> Any:
    told = "and add what is found to the custodian's copy of its report, beside DIR: NOT FOR RELEASE."
    return typer.Option("--release", "-r", metavar="DIR", help=f"{does}, {told}")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What ``escudo evaluate`` is told."""

    real_train: Annotated[
        str,
        typer.Argument(
            metavar="REAL_TRAIN",
            help="The rows the generator was fitted to: a file or a database; of linked tables a folder, a file each.",
        ),
    ]
    real_test: Annotated[str, typer.Argument(metavar="REAL_TEST", help="Real rows held out from it.")]
    synthetic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SYNTHETIC",
            help="Synthetic rows, text as escudo writes it; several files for several fits. Or --release.",
            show_default=False,
        ),
    ] = None
    release: Annotated[
        Path | None,
        _of_release("Evaluate this release"),
    ] = None
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", "-s", help="The table's public description (escudo schema); the release's by default."
        ),
    ] = None
    targets: Annotated[int, typer.Option(min=1, help="How many columns to predict, drawn at random.")] = 20
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="COLUMN", help="Predict this column instead; may be repeated."),
    ] = None
    learner: Annotated[
        list[str] | None,
        typer.Option(
            "--learner",
            metavar="NAME",
            help="Use this learner only: linear svc, rbf svc, logistic, forest or neighbours; may be repeated.",
        ),
    ] = None
    most_rows: Annotated[int, typer.Option(min=10, help="The most rows that a learner sees.")] = 5000
    engine: Engine = None
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A released model, to compare its interventions too; the release's by default."
        ),
    ] = None
    reference: Annotated[
        Path | None, typer.Option(metavar="BIF", help="The true network that the model is compared with.")
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="HTML", help="Write a page of its own: NOT FOR RELEASE.")
    ] = None
    log: Annotated[
        Path | None, typer.Option(help="Keep predictions here, to go on after a stop; as private as the rows.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Decides targets, samples and learners.")] = 0
    jobs: Annotated[int, typer.Option(help="Processes to use; -1 for all cores.")] = -1


@command
def evaluate(asked: EvaluateOptions) -> Filed:
    """Compare what can be learnt from synthetic rows with what can be learnt from the real ones.

    The figures read the real rows exactly, and nothing is charged: they are
    for the custodian's eyes only. For figures that may be published, see
    escudo release --evaluate.

    Example: escudo evaluate train.csv test.csv --release release

    Or: escudo evaluate train.csv test.csv made.csv --schema visits.toml

    Of linked tables, folders with a file for each: escudo evaluate train test --release release
    """
    from escudo.causal import Network
    from escudo.report import check_page, evaluation_page
    from escudo.synthesis import load
    from escudo.utility import LEARNERS, Rows
    from escudo.utility import evaluate as run

    if asked.out is not None:
        check_page(asked.out)
    if (of_people := linked_schema(asked.schema, asked.release)) is not None:
        return evaluate_linked(asked, of_people)
    files, described = _evaluated(asked)
    model = asked.model
    if asked.release is not None and asked.reference is not None and model is None:
        model = asked.release / "model"
    real, tested = (_read_rows(rows, described, asked.engine) for rows in (asked.real_train, asked.real_test))
    written = described.as_escudo_writes()
    made = [Rows.read(_read_rows(path, described, written=written), described) for path in files]
    found = run(
        real,
        tested,
        made,
        described,
        targets=asked.target or asked.targets,
        learners=asked.learner or LEARNERS,
        model=None if model is None else load(model),
        reference=None if asked.reference is None else Network.read(asked.reference),
        **by_name(asked, "most_rows", "seed", "jobs", "log"),
    )
    answer = Answer(found.to_json(), lambda screen: _print_evaluation(screen, found))
    rows = (real, made[0])
    return _filed(answer, asked, lambda: evaluation_page(found, rows=rows), {"evaluation": found, "rows": rows})


def _filed(
    answer: Answer, asked: EvaluateOptions | AttackOptions, page: Callable[[], str], copied: dict[str, Any] | None
) -> Filed:
    """Return a finding that goes onto a page of its own and into the custodian's copy of a release's report, if any."""
    from escudo.report import custodian_report, write

    written: dict[str, Path] = {}

    def tell(_: bool) -> Answer:
        def words(screen: Console) -> None:
            answer.say(screen)
            for path in written.values():
                screen.print(f"NOT FOR RELEASE: {path}", markup=False)

        places = {name: str(written[name]) if name in written else None for name in ("page", "custodian")}
        return replace(answer, payload={**answer.payload, **places}, words=words)

    def write_files() -> None:
        if asked.release is not None and copied is not None:
            written["custodian"] = custodian_report(asked.release, **copied)
        if asked.out is not None:
            written["page"] = write(page(), asked.out)

    return Filed(tell, write_files)


def _evaluated(asked: EvaluateOptions) -> tuple[list[str], Schema]:
    """Return the files to evaluate and their schema, before anything is worked out."""
    from escudo.errors import InputError
    from escudo.report import check_custodian_report
    from escudo.synthesis import load
    from escudo.table import Schema

    synthetic, release, schema = asked.synthetic or [], asked.release, asked.schema
    if release is None:
        if not synthetic:
            raise InputError("name the synthetic rows after the real ones, or the release they are in: --release DIR.")
        if schema is None:
            raise InputError("--schema says what the columns are; only with --release it may be left out.")
        return synthetic, Schema.read(schema)
    if synthetic:
        raise InputError("--release evaluates the synthetic rows of that release; leave out SYNTHETIC, or --release.")
    check_custodian_report(release)
    released = load(release / "model").schema
    if schema is not None and Schema.read(schema).fingerprint != released.fingerprint:
        raise InputError(f"'{schema}' is not the schema of the release in '{release}'; leave out --schema.")
    return [str(release / "synthetic.parquet")], released


def _read_rows(data: str, schema: Schema, engine: str | None = None, *, written: Schema | None = None) -> object:
    """Read the rows of a file or a database; an error says which it is about, and no password.

    Those of a cluster stay there: it is the frame that is returned.

    Args:
        data: What was named.
        schema: What the rows are.
        engine: What reads files.
        written: What says how a text file is written, if it is not the schema.
    """
    from escudo.errors import InputError, SchemaError
    from escudo.table import on_workers, open_data
    from escudo.utility import Rows

    name = without_secrets(data)
    try:
        frame = open_data(data, written or schema, engine=engine)
        return frame if on_workers(frame) else Rows.read(frame, schema, argument=f"'{name}'")
    except (InputError, SchemaError) as error:  # of these two kinds, not of those that say where in a file
        if type(error) not in (InputError, SchemaError) or name in str(error):
            raise
        raise type(error)(f"'{name}': {error}") from None


_TITLED = {"title_justify": "left", "pad_edge": True, "header_style": None}
_RIGHT = {"justify": "right"}


def _print_evaluation(screen: Console, found: Evaluation) -> None:
    import numpy as np

    def cells(one: Change) -> tuple[str, ...]:
        return (
            one.learner,
            f"{one.real:.1f}",
            f"{one.synthetic:.1f}",
            f"{one.change:+.1f}",
            f"{one.low:+.1f} … {one.high:+.1f}" if np.isfinite(one.low) else "one value only",
            f"{one.baseline:.1f}" if one.kind == "class" else "",
        )

    numbers = ("real", "synthetic", "lost", "95 % interval", "commonest class")
    for kind, what in (("class", "accuracy"), ("number", "variance explained")):
        changes = [change for change in found.changes if change.kind == kind]
        if not changes:
            continue
        if len(changes) == 2:
            changes = changes[:1]  # one learner and "all" of it
        shown = plain_table(
            {"learner": {}, **dict.fromkeys(numbers, _RIGHT)},
            map(cells, changes),
            title=f"{what.capitalize()} on held-out real rows, per cent",
            **_TITLED,
        )
        screen.print(shown)
    rows = []
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
            rows.append((label, form.format(float(np.mean(values))), form.format(floor)))
    columns = {"": {}, "synthetic": _RIGHT, "second real sample": _RIGHT}
    screen.print(plain_table(columns, rows, title="How far apart", **_TITLED))
    if found.causal is not None:
        screen.print(
            f"Interventions: {found.causal.intervention:.2%} in the wrong cell over {found.causal.questions} questions"
        )
    screen.print("For the custodian only: these figures read the real rows exactly.", style="bold")


@dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """What ``escudo attack`` is told."""

    data: Annotated[str, typer.Argument(metavar="DATA", help="The private rows: CSV, TSV, Parquet, Arrow or NDJSON.")]
    more: More = None
    engine: Engine = None
    release: Annotated[
        Path | None,
        _of_release("Attack the generator of this release, with its schema, graph and budget"),
    ] = None
    schema: Annotated[
        Path | None, typer.Option("--schema", "-s", help="The table's public description (escudo schema).")
    ] = None
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="What one release costs.")] = None
    delta: Delta = None
    graph: Annotated[
        Path | None, typer.Option("--graph", "-g", help="The causal graph: DOT, GML, dagitty, BIF, CSV, edge list.")
    ] = None
    generator: Annotated[
        str | None, typer.Option(help="The generator to attack, as in escudo release; marginals if left out.")
    ] = None
    relation: Annotated[
        str | None,
        typer.Option(
            help="Who is there when the target is not: somebody else in their place (replace_one, if left out) or "
            "nobody (add_remove)."
        ),
    ] = None
    targets: Annotated[int, typer.Option(min=1, help="How many people to attack.")] = 10
    choose: Annotated[str, typer.Option(help="Whom: outliers, random, or canary (a record made up to stand out).")] = (
        "outliers"
    )
    row: Annotated[
        list[int] | None, typer.Option("--row", help="Attack this row, counted from 0; may be repeated.")
    ] = None
    shadows: Annotated[int, typer.Option(min=2, help="Fits to learn from, for each target.")] = 200
    trials: Annotated[int, typer.Option(min=2, help="Fits to test on, for each target.")] = 200
    rest: Annotated[
        str, typer.Option(help="The other rows: fixed (the same in every fit) or resampled (drawn anew for each).")
    ] = "fixed"
    fit_rows: Annotated[int | None, typer.Option(min=1, help="How many rows a fit gets.")] = None
    confidence: Annotated[float, typer.Option(help="Of the formal statements, over all targets together.")] = 0.95
    log: Annotated[Path | None, typer.Option(help="Keep fits here, to go on after a stop; as private as the rows.")] = (
        None
    )
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="HTML", help="Write a page: NOT FOR RELEASE.")] = (
        None
    )
    seed: Annotated[int, typer.Option(min=0, help="Repeats the attack.")] = 0
    jobs: Annotated[int, typer.Option(help="Processes to use; -1 for all cores.")] = -1
    as_json: JsonFlag = False


@command
def attack(asked: AttackOptions) -> Filed:
    """Try to find out from synthetic rows who was in the table, and bound what a release gives away.

    Fits the generator many times, with and without one person's record. Nothing is released, and nothing is charged:
    the figures are about single people, and for the custodian's eyes only.

    Example: escudo attack visits.csv --release release --targets 3 --shadows 100

    Or: escudo attack visits.csv --schema visits.toml --graph clinic.dot --epsilon 1

    Of linked tables, people with all their rows: escudo attack patients.csv visits.csv --release release
    """
    from escudo.attacks import attack as run
    from escudo.errors import InputError
    from escudo.report import attack_page, check_page
    from escudo.table import LinkedSchema, open_data

    if asked.out is not None:
        check_page(asked.out)
    of_people = linked_schema(asked.schema, asked.release)
    if of_people is None and asked.more:
        raise InputError("several tables were given, and the schema describes one; see [linked] in the documentation.")
    described, terms = _attacked(asked, of_people)
    if isinstance(described, LinkedSchema):
        private: Any = opened_tables([asked.data, *(asked.more or [])], described, asked.engine)
    else:
        private = open_data(asked.data, described, engine=asked.engine)
    found = run(
        terms.pop("generator"),
        private,
        described,
        **terms,
        **by_name(asked, "targets", "shadows", "trials", "rest", "fit_rows", "confidence", "log", "seed", "jobs"),
        choose=asked.row or asked.choose,
        on_progress=None if asked.as_json else lambda line: console(stderr=True).print(line, style="dim"),
    )
    ending = typer.Exit(5) if found.violated else None
    answer = Answer(found.to_json(), lambda screen: _print_attack(screen, found), ending)
    copied = None if of_people is not None else {"attack": found}
    return _filed(answer, asked, lambda: attack_page(found), copied)


def _attacked(
    asked: AttackOptions, of_people: LinkedSchema | None = None
) -> tuple[Schema | LinkedSchema, dict[str, Any]]:
    """Return the schema and what to attack: as the release says, or as was asked."""
    from escudo.causal import CausalGraph
    from escudo.errors import InputError
    from escudo.report import check_custodian_report
    from escudo.synthesis import load, load_linked
    from escudo.table import Schema

    if asked.release is not None:
        said = ("schema", "graph", "epsilon", "delta", "generator", "relation")
        if twice := [name for name in said if getattr(asked, name) is not None]:
            raise InputError(f"--{twice[0]} is what the release says itself; leave it out, or --release.")
        model: Any = None
        if of_people is None:
            check_custodian_report(asked.release)
            model = load(asked.release / "model")
        else:
            model = load_linked(asked.release / "model")
        promise = model.guarantee
        if promise.epsilon is None:
            raise InputError(
                f"the release in '{asked.release}' states no epsilon; name what to attack option by option."
            )
        return model.schema, {
            "generator": model.generator,
            "graph": model.graph,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "relation": promise.relation,
        }
    if asked.schema is None or asked.epsilon is None:
        missing = "--schema" if asked.schema is None else "--epsilon"
        raise InputError(f"{missing} is missing; or name a release to attack as it was made: --release DIR.")
    described = of_people or Schema.read(asked.schema)
    described.require_confirmed(source=str(asked.schema))
    return described, {
        "generator": asked.generator or "marginals",
        "graph": None if asked.graph is None else CausalGraph.read(asked.graph),
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "relation": asked.relation or "replace_one",
    }


def _print_attack(screen: Console, found: Attack) -> None:
    from math import isnan

    def cells(score: Score) -> tuple[str, ...]:
        low, high = score.accuracy_interval
        return (
            score.features,
            score.classifier,
            f"{100 * score.accuracy:.1f} %",
            f"{100 * low:.0f} … {100 * high:.0f}",
            "–" if isnan(score.auc) else f"{score.auc:.3f}",
            "–" if isnan(score.tpr_at_1_percent) else f"{100 * score.tpr_at_1_percent:.0f} %",
        )

    screen.print(found.verdict, style="bold red" if found.violated else "bold")
    numbers = ("accuracy", "95 % interval", "AUC", "TPR at 1 % FPR")
    table = plain_table(
        {"looks at": {}, "judges by": {}, **dict.fromkeys(numbers, _RIGHT)},
        map(cells, found.ranked),
        title="Attacks, mean over targets (heuristic)",
        **_TITLED,
    )
    if found.ceiling is not None:
        most = found.ceiling
        table.add_section()
        share = f"{100 * most.accuracy:.1f} %", "", f"{most.auc:.3f}", f"{100 * most.tpr:.0f} %"
        table.add_row("the promise allows", "", *share)
    screen.print(table)
    screen.print("For the custodian only: these figures are about single people.", style="bold")
