"""``escudo release``: a synthetic table with its model, record and report; ``escudo sample``: more rows of a model."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo._card import number_of
from escudo.cli._console import Answer, JsonFlag, console, flag, print_promise, to_the_end
from escudo.cli._linked import print_graph, release_linked, sample_linked, write_frames
from escudo.cli._options import (
    AcceptLargeDelta,
    Data,
    Dataset,
    Delta,
    Engine,
    LedgerUrl,
    More,
    PlanOnly,
    RelationName,
    SchemaFile,
    Seeded,
    TableOptions,
    by_name,
    command,
    options_of,
    settings,
    to_type,
)
from escudo.cli._run import SaveConfig, current_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from escudo.report import ReleaseFiles
    from escudo.synthesis import Model


MOST_ROWS = 1_000_000_000
"""More synthetic rows than this fit into no memory."""
DISCOVER = "discover"
"""What --graph says to have the graph learnt; a file of that name is given as ./discover."""
_SHOWN_EDGES = 12


def graph_of(name: Path | str | None) -> Any:  # Any: a graph, what stands for one that is to be found, or None
    """Return the graph that was named."""
    from escudo.causal import CausalGraph

    return name if name in (None, DISCOVER) else CausalGraph.read(name)


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(TableOptions):
    """What ``escudo release`` is told."""

    data: Data
    more: More = None
    schema: SchemaFile
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", "-e", help="The privacy budget to spend, in all.", show_default=False)
    ] = None
    delta: Delta = None
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the release.")] = None
    graph: Annotated[
        str | None,
        typer.Option(
            "--graph",
            "-g",
            metavar="FILE|discover",
            help="The causal graph: a DOT, GML, dagitty, BIF, CSV or edge list file; or 'discover' to learn it.",
        ),
    ] = None
    knowledge: Annotated[
        Path | None,
        typer.Option("--knowledge", "-k", help="With --graph discover: a graph of what is known beforehand."),
    ] = None
    generator: Annotated[
        str, typer.Option(help="auto, marginals, moments, linear, vae, autoregressive, one-way or independent.")
    ] = "marginals"
    relation: RelationName = "replace_one"
    rows: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_ROWS, help="Synthetic rows to make; about as many as the table has if left out."),
    ] = None
    public_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of real rows, if it is public; under replace_one it is, unless people are protected.",
        ),
    ] = None
    engine: Engine = None
    no_privacy: Annotated[
        bool,
        flag(
            "--no-privacy",
            "In place of --epsilon: promise nothing, to compare with. For --generator vae with --option "
            "architecture=columns or another network of the paper, without a ledger: NOT FOR RELEASE.",
        ),
    ] = False
    accept_large_delta: AcceptLargeDelta = False
    ledger: LedgerUrl = None
    dataset: Dataset = None
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="What else the generator takes.")
    ] = None
    evaluate: Annotated[
        float | None,
        typer.Option(
            "--evaluate",
            metavar="SHARE",
            help="Pay for figures of how good the rows are, with noise, for the public report: a share of the budget, "
            "such as 0.1.",
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For networks: a folder to go on from if the training is stopped, without paying twice; give the same "
            "command again. Gone when it is done. The ledger knows it, so that a copy of it is worth nothing.",
        ),
    ] = None
    again: Annotated[
        bool,
        flag(
            "--again",
            "With --checkpoint: pay once more for the steps that are left, where they cannot be had for nothing.",
        ),
    ] = False
    csv: Annotated[bool, flag("--csv", "Write synthetic.csv as well.")] = False
    custodian: Annotated[
        bool,
        flag("--custodian", "Also compare with the real rows, in a copy of the report beside DIR: NOT FOR RELEASE."),
    ] = False
    force: Annotated[bool, flag("--force", "Replace an earlier release in DIR.")] = False
    seed: Seeded = None
    plan: PlanOnly = False
    save_config: SaveConfig = None
    as_json: JsonFlag = False

    def question(self, last: ExitStack) -> dict[str, Any]:
        """Return what is asked of one table and of linked ones alike.

        Args:
            last: Entered when all is on disk, just before the folder gets its name: from there on nothing stops it.
        """
        return {
            "graph": graph_of(self.graph),
            "knowledge": graph_of(self.knowledge),
            "options": options_of(self.option or []) | _checkpoint(self),
            "directory": self.out,
            "written": {
                "csv": self.csv,
                "overwrite": self.force,
                "before_naming": lambda: last.enter_context(to_the_end()),
                "config": current_config(),
            },
            **by_name(self, "evaluate", "generator", "seed"),
        }


@command
def release(asked: ReleaseOptions) -> None:
    """Release a synthetic table that follows a causal graph, with its model, record and report.

    Example: escudo release visits.csv --schema visits.toml --graph clinic.dot --epsilon 1 --out release

    With --graph discover the graph is learnt from the table under the same
    budget: read off the tables of generator marginals, found first with a
    quarter of it for moments and linear, or learnt with the networks.

    How good are the rows? --evaluate pays for figures that may be published.
    The custodian may look for free: with --custodian, escudo evaluate and
    escudo attack.
    """
    from escudo.asking import expecting, run
    from escudo.errors import InputError
    from escudo.privacy import Budget, usual_delta
    from escudo.releasing import SyntheticRelease
    from escudo.report import check_target
    from escudo.synthesis import check_no_privacy
    from escudo.table import LinkedSchema, read_any_schema

    start = time.perf_counter()
    described = read_any_schema(asked.schema)
    if isinstance(described, LinkedSchema):
        release_linked(asked, described)
        return
    if asked.more:
        raise InputError("several tables were given, and the schema describes one; see [linked] in the documentation.")
    out = asked.out
    if out is None and not asked.plan:
        raise InputError("--out says where the release goes: a new folder. Or add --plan to look first.")
    if out is not None:
        check_target(out, custodian=asked.custodian, overwrite=asked.force or asked.plan)
    if given_up := check_no_privacy(asked.epsilon, asked.delta, no_privacy=asked.no_privacy):
        _check_no_ledger(asked)
    table = asked.table()
    with ExitStack() as last:
        question = SyntheticRelease(**asked.question(last), rows=asked.rows, custodian=asked.custodian)
        if given_up:
            files = question.without_privacy(table)
            _answer(asked, files, time.perf_counter() - start).show(asked.as_json)
            return
        assert asked.epsilon is not None, "or it was meant"
        delta = usual_delta(table.neighbours) if asked.delta is None else asked.delta
        prepared = question.prepare(table.schema, table.neighbours, Budget(asked.epsilon, delta))
        tree = prepared.plan.judged(table.neighbours, accept_large_delta=asked.accept_large_delta)
        if asked.plan:
            tree = expecting(prepared, tree, table.neighbours)
        gone_on = prepared.resumption(table.account, tree)
        if asked.stops_at(tree, table.account, gone_on):
            return
        if gone_on is not None and not asked.as_json:
            line = f"Goes on from {asked.checkpoint}: what it has behind it is not paid for again."
            console().print(line, markup=False)
        assert out is not None
        terms: dict[str, Any] = {"purpose": prepared.purpose, "accept_large_delta": asked.accept_large_delta}
        try:
            files = run(prepared, table, seed=asked.seed, **terms)
        except KeyboardInterrupt as stop:
            kept = asked.checkpoint is not None and asked.checkpoint.exists()
            how = f" Give the same command again to go on from {asked.checkpoint}." if kept else ""
            console(stderr=True).print(
                f"Interrupted: nothing was written to {out}. What was spent stays spent.{how}", markup=False
            )
            raise typer.Exit(getattr(stop, "exit_code", 130)) from None
        _answer(asked, files, time.perf_counter() - start).show(asked.as_json)


def _answer(asked: ReleaseOptions, files: ReleaseFiles, seconds: float) -> Answer:
    out = asked.out
    assert out is not None, "something was written"
    return Answer(_payload(asked, files, seconds), lambda screen: _print_release(screen, out, files, seconds))


def _check_no_ledger(asked: ReleaseOptions) -> None:
    """Refuse to give up privacy where a ledger keeps a promise, or where a budget is asked about."""
    from escudo.errors import InputError, RefusedError

    if asked.dataset is not None or asked.ledger is not None:
        raise RefusedError(
            "--no-privacy promises nothing, and a ledger keeps the promise made to the people in a table: a table with "
            "an account is not read without privacy. Nothing was read."
        )
    for name in ("plan", "checkpoint", "again", "evaluate"):
        if getattr(asked, name):
            raise InputError(f"--{name} is about a budget, and with --no-privacy there is none; leave it out.")


def _checkpoint(asked: ReleaseOptions) -> dict[str, Any]:
    """Return the options of a generator that keeps what it may go on from."""
    from escudo.errors import InputError

    if asked.checkpoint is None:
        if asked.again:
            raise InputError("--again goes with --checkpoint: it pays once more for what that leaves to do.")
        return {}
    if asked.dataset is None:
        raise InputError(
            "--checkpoint needs a ledger, which knows what was paid for and how far it has come: add --dataset, and "
            "--ledger if it is not the usual one."
        )
    return {"checkpoint": asked.checkpoint, "again": asked.again}


def _payload(asked: ReleaseOptions, files: ReleaseFiles, seconds: float) -> dict[str, Any]:
    from escudo.report import warnings_of

    model = files.fitted
    return {
        "directory": str(asked.out),
        "rows": files.rows,
        "generator": model.generator,
        "guarantee": model.guarantee.to_json(),
        "for_release": model.guarantee.for_release,
        "warnings": warnings_of(model),
        "dataset": asked.dataset,
        "graph": model.details.get("discovery"),
        "associations": [list(line) for line in _associations(model)],
        "evaluation": None if files.evaluation is None else files.evaluation.to_json(),
        "custodian": None if files.custodian is None else str(files.custodian),
        "seconds": round(seconds, 2),
    }


def _print_release(screen: Console, out: Path, files: ReleaseFiles, seconds: float) -> None:
    from escudo.report import warnings_of, why_not_explorable

    model = files.fitted
    done = "Written" if model.guarantee.none else "Released"
    screen.print(f"{done} to {out}/   ({seconds:.1f} s)", markup=False, style="bold")
    made = number_of(files.rows, "row")
    screen.print(f"  synthetic.parquet   {made:<18} model/         sample it again, or under an intervention")
    screen.print("  report.html         open this          release.json   the machine-readable record")
    if files.explore is not None:
        screen.print("  explore.html        ask it what if, in a browser")
    else:
        screen.print(f"  no explore.html     {why_not_explorable(model)}", markup=False)
    if files.csv is not None:
        screen.print("  synthetic.csv       the same rows")
    if files.custodian is not None:
        screen.print(
            f"Beside it, NOT FOR RELEASE: {files.custodian.name}, the report with exact figures of the real table",
            markup=False,
        )
    if found := model.details.get("discovery"):
        print_graph(screen, found)
    elif lines := _associations(model):
        shown = ", ".join(f"{a} — {b}" for a, b in lines[:_SHOWN_EDGES])
        more = f" and {len(lines) - _SHOWN_EDGES} more" if len(lines) > _SHOWN_EDGES else ""
        screen.print(f"Treated as mere association, not as cause and effect: {shown}{more}", markup=False)
    if files.evaluation is not None:
        screen.print(f"How good it is, paid for: {files.evaluation}", markup=False)
    for warning in [] if model.guarantee.none else warnings_of(model):
        screen.print(f"Warning: {warning}", markup=False, style="yellow")
    print_promise(screen, model.guarantee)
    screen.print(f"Try: escudo sample {to_type(str(out / 'model'))} --rows 5{_setting(model)}", markup=False)


def _associations(model: Model) -> list[tuple[str, str]]:
    """Return the edges of the graph that rows follow without a claim of which end is the cause."""
    return [(a, b) for a, b in getattr(model.stated, "undirected_edges", ())]


def _setting(model: Model) -> str:
    """Return an intervention to try, if the graph answers one: a column at its last level, or at its upper bound."""
    from escudo.table import Categorical

    for name in filter(model.answers_do, model.schema.names):
        column = model.schema[name]
        value = column.levels[-1] if isinstance(column, Categorical) else column.shown(column.bounds[1])
        return " --do " + to_type(f"{name}={value}")
    return ""


@dataclass(frozen=True, kw_only=True)
class ForecastOptions:
    """What ``escudo forecast`` is told."""

    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="The TOML schema; no data is needed.")]
    epsilon: Annotated[
        float, typer.Option("--epsilon", "-e", help="The privacy budget of the release.", show_default=False)
    ]
    delta: Delta = None
    graph: Annotated[
        Path | None, typer.Option("--graph", "-g", metavar="FILE", help="The causal graph, if there is one.")
    ] = None
    rows: Annotated[
        int | None, typer.Option(min=1, max=MOST_ROWS, help="Rows the table has, or is thought to have.")
    ] = None
    generator: Annotated[str, typer.Option(help="marginals, moments, one-way, independent or auto.")] = "marginals"
    relation: RelationName = "replace_one"
    error: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Also say which ε reaches this mean error, such as 0.01."),
    ] = None


@command
def forecast(asked: ForecastOptions) -> Answer:
    """Say how good a release will be, before there is one: from public facts alone, and free.

    Example: escudo forecast visits.toml --graph clinic.dot --rows 20000 --epsilon 1 --error 0.005

    The error is the total variation between the table's law and the model's:
    the share of rows that would have to be changed.
    """
    from escudo._validate import positive
    from escudo.errors import InputError
    from escudo.synthesis import forecast as foretell
    from escudo.table import Schema

    error = asked.error
    if error is not None:
        positive("--error", error, at_most=1.0)
    terms = by_name(asked, "epsilon", "delta", "rows", "relation", "generator")
    found = foretell(Schema.read(asked.schema), graph_of(asked.graph), **terms)
    lines, wanted = [str(found)], dict[str, float | None]()
    for of in () if error is None else ("columns", "pairs") if found.pairs else ("columns",):
        try:
            assert error is not None
            wanted[of] = enough = found.epsilon_for(error, of=of)
            lines.append(f"A mean error of {error:.2%} of {of} takes about ε = {enough:.3g}.")
        except InputError as unreachable:
            wanted[of] = None
            lines.append(str(unreachable))
    payload = {**found.to_json(), "curve": [each.to_json() for each in found.curve()], "epsilon_for": wanted}
    return Answer(payload, "\n".join(lines))


_MOST_COLUMNS = 40  # of rows on a screen


@command
def sample(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model folder of a release.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, max=MOST_ROWS, help="How many rows.")] = 10,
    people: Annotated[
        int | None,
        typer.Option("--people", min=0, max=MOST_ROWS, help="Of linked tables: how many people, with their rows."),
    ] = None,
    do: Annotated[
        list[str] | None,
        typer.Option(
            "--do",
            metavar="COLUMN=VALUE",
            help="Set a column by intervention; of linked tables also by row, as in visits.treat=1:no,2-:yes. Rows "
            "carry the value itself; to a number effects respond as to any in its bin, or, in a model of the generator "
            "linear, in proportion.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--given", metavar="COLUMN=VALUE", help="Condition on a column's value.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="COLUMN", help="Only this column; may be repeated.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For repeatable rows.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write .parquet or .csv, or a folder of Parquet parts, instead of printing."),
    ] = None,
) -> Answer:
    """Draw rows from a released model, also under an intervention; free, as often as wanted.

    Example: escudo sample release/model --rows 5 --do smoke=yes
    """
    from polars.exceptions import PolarsError

    from escudo._files import mark_of, write_rows
    from escudo.errors import InputError
    from escudo.synthesis import holds_linked, load, load_linked

    if holds_linked(model):
        if column:
            raise InputError("--column is about one table; of linked ones all columns are drawn.")
        if out is not None and (out.suffix or os.path.exists(out)):
            raise InputError(f"--out must be a new folder for the tables; got '{out}'.")
        many = rows if people is None else people
        drawn_people = sample_linked(load_linked(model), many, settings("--do", do), settings("--given", given), seed)
        if out is not None:
            return write_frames(drawn_people, out, csv=False)
        told = {name: frame.to_dicts() for name, frame in drawn_people.items()}
        return Answer({"tables": told}, lambda screen: _print_tables(screen, drawn_people))
    if people is not None:
        raise InputError("--people is about linked tables, and this model is of one; say --rows.")
    if out is not None and out.suffix not in (".csv", ".parquet", ""):
        raise InputError(f"--out must end in .csv or .parquet, or name a folder without an ending; got {out.name!r}.")
    if out is not None and os.path.exists(out):  # unlike Path's, it takes any name
        raise InputError(f"'{out}' exists; choose another name.")
    loaded = load(model)
    if mark := mark_of(loaded.guarantee):  # whoever draws rows may not have seen the folder they came in
        console(stderr=True).print(mark, markup=False, style="bold red")
    asked: dict[str, Any] = {"do": settings("--do", do), "given": settings("--given", given), "columns": column}
    asked["seed"] = seed
    if out is None:
        drawn = loaded.sample(rows, **asked)
        return Answer({"rows": drawn.to_dicts()}, lambda screen: _print_rows(screen, drawn))
    try:
        write_rows(loaded.blocks(rows, **asked), out, mark=mark)
    except (OSError, PolarsError) as error:
        reason = getattr(error, "strerror", None) or "input/output error"
        raise InputError(f"cannot write '{out}': {reason}.") from None
    return Answer({"rows": rows, "file": str(out)}, f"{number_of(rows, 'row')} written to {out}")


def _print_tables(screen: Console, frames: Mapping[str, Any]) -> None:
    for name, frame in frames.items():
        screen.print(name, markup=False, style="bold")
        _print_rows(screen, frame)


def _print_rows(screen: Console, frame: Any) -> None:
    """Print rows as one table, or as several below each other where its columns are too many for the screen."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = frame.columns[:_MOST_COLUMNS]
    cells = {name: [_shown(value) for value in frame[name]] for name in names}
    blocks: list[list[str]] = []
    room = 0
    for name in names:
        width = max(map(len, [name, *cells[name]])) + 3
        if width > room:
            blocks.append([])
            room = screen.width + 3  # the last column has no blanks after it
        blocks[-1].append(name)
        room -= width
    for block in blocks or [[]]:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in block:
            table.add_column(Text(name), justify="right" if frame.schema[name].is_numeric() else "left")
        for row in zip(*(cells[name] for name in block), strict=True):
            table.add_row(*map(Text, row))
        screen.print(table)
    if left := frame.width - len(names):
        screen.print(f"and {number_of(left, 'more column')}; --out writes all, --column NAME shows one.", markup=False)


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
