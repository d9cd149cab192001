"""Private answers to causal questions: ``escudo direction``, ``escudo discover`` and ``escudo effect``.

* which of two columns causes the other, or which of all pairs;
* a causal graph, with how sure it is of each edge;
* how much one column changes another, with an honest interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import Answer, Filed, JsonFlag, flag, print_promise
from escudo.cli._options import (
    AcceptLargeDelta,
    Data,
    Dataset,
    Delta,
    Engine,
    Epsilon,
    Force,
    LedgerUrl,
    More,
    PlanOnly,
    RelationName,
    SchemaFile,
    Seeded,
    TableOptions,
    check_files,
    command,
    options_of,
    without_secrets,
)
from escudo.cli._run import SaveConfig

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.discovery import AncestralDiscovery, Discovery, TreatmentEffect
    from escudo.orientation import Direction, Orientation
    from escudo.table import PrivateTable, Schema


Files = Mapping[str, Path | None]
"""Where an answer's files are, by what they are called in JSON."""


@dataclass(frozen=True, kw_only=True)
class DirectionOptions(TableOptions):
    """What ``escudo direction`` is told."""

    data: Data
    x: Annotated[str | None, typer.Argument(metavar="X", help="One column.")] = None
    y: Annotated[str | None, typer.Argument(metavar="Y", help="The other column.")] = None
    schema: SchemaFile
    epsilon: Epsilon
    delta: Annotated[
        float,
        typer.Option(
            "--delta", "-d", help="0 unless said: votes need none. Some scores of gap and paper need one, such as 1e-6."
        ),
    ] = 0.0
    method: Annotated[str, typer.Option(help="votes (default), gap or paper.")] = "votes"
    score: Annotated[
        str, typer.Option(help="What a block computes (votes), or the dependence measured; committee: the usual one.")
    ] = "committee"
    all_pairs: Annotated[
        bool,
        flag("--all-pairs", "Ask about all pairs of columns under the one budget, by votes."),
    ] = False
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PUBLIC records that fit the regressions (gap, paper).")
    ] = None
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="PUBLIC records that are scored (paper).")] = None
    relation: RelationName = "replace_one"
    public_rows: Annotated[
        int | None,
        typer.Option(
            "--public-rows", "--rows", min=1, help="About how many rows or people, where add_remove hides it."
        ),
    ] = None
    engine: Engine = None
    accept_large_delta: AcceptLargeDelta = False
    ledger: LedgerUrl = None
    dataset: Dataset = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="What else the method takes, such as blocks=40; repeatable."
        ),
    ] = None
    seed: Seeded = None
    plan: PlanOnly = False
    save_config: SaveConfig = None
    out: Annotated[
        Path | None, typer.Option("--report", "-r", "--out", "-o", metavar="FILE", help="Write a page with the answer.")
    ] = None
    as_json: JsonFlag = False


@command
def direction(asked: DirectionOptions) -> Filed | None:
    """Say which of two columns causes the other, or that one cannot tell.

    A margin above 0 speaks for X as the cause, below 0 for Y. The answer is about a model of noise: it does not rule
    out a common cause.

    Example: escudo direction stations.csv altitude temperature --schema stations.toml --epsilon 0.5
    """
    from escudo.errors import InputError
    from escudo.orientation import direction as ask
    from escudo.orientation import orient
    from escudo.privacy import plan as plan_of
    from escudo.report import write

    x, y = asked.x, asked.y
    if asked.all_pairs and (x is not None or y is not None):
        raise InputError("--all-pairs asks about all columns of the schema; leave out X and Y.")
    if not asked.all_pairs and (x is None or y is None):
        raise InputError("name two columns: escudo direction DATA X Y ..., or use --all-pairs.")
    if asked.all_pairs and (asked.method != "votes" or asked.train is not None or asked.test is not None):
        raise InputError("--all-pairs goes by votes; leave out --method, --train and --test.")
    check_files(report=asked.out)
    table = asked.table()
    terms: dict[str, Any] = {"epsilon": asked.epsilon, "delta": asked.delta, "score": asked.score}
    terms |= {"accept_large_delta": asked.accept_large_delta, **_extras(asked)}
    if not asked.all_pairs:
        terms |= {"method": asked.method, **_public_records(asked, table.schema)}
    tree = plan_of(orient, table, **terms) if asked.all_pairs else plan_of(ask, table, x, y, **terms)
    if (asked.plan or asked.dataset is not None) and asked.stops_at(tree, table.account):
        return None
    found: Direction | Orientation
    if asked.all_pairs:
        found = orient(table, seed=asked.seed, **terms)
    else:
        assert x is not None
        assert y is not None
        found = ask(table, x, y, seed=asked.seed, **terms)

    def tell(written: bool) -> Answer:
        page = asked.out if written else None
        payload = {**found.to_json(), "dataset": asked.dataset, "report": None if page is None else str(page)}
        return Answer(payload, str(found) if page is None else f"{found}\nReport   {page}")

    def write_page() -> None:
        if asked.out is not None:
            write(_page(asked, found, table), asked.out)

    return Filed(tell, write_page)


def _extras(asked: DirectionOptions) -> dict[str, Any]:
    """Return the method's own options; what has an argument of its own must be given by that."""
    from escudo.errors import InputError
    from escudo.orientation import direction as ask

    found = options_of(asked.option or [])
    for name in found:
        if name in (*signature(ask).parameters, "relation", "rows", "train", "test"):
            raise InputError(f"{name!r} is no --option: it has an argument of its own.")
    return found


def _public_records(asked: DirectionOptions, schema: Schema) -> dict[str, Any]:
    """Return public records by their role, read with the schema's own column types."""
    from escudo.table import open_data, with_sources

    assert asked.x is not None
    assert asked.y is not None
    pair, named = [asked.x, asked.y], {"train": asked.train, "test": asked.test}
    known = with_sources(schema, pair)
    return {role: open_data(str(path), known) for role, path in named.items() if path is not None}


def _page(asked: DirectionOptions, found: Direction | Orientation, table: PrivateTable) -> str:
    from escudo.orientation import planning_curves
    from escudo.report import direction_page

    rows = table.neighbours.records
    return direction_page(
        found,
        source=asked.dataset or without_secrets(asked.data),
        rows=rows,
        curves=None if rows is None or rows < 100 else planning_curves(rows),
    )


@dataclass(frozen=True, kw_only=True)
class DiscoverOptions(TableOptions):
    """What ``escudo discover`` is told."""

    data: Data
    more: More = None
    schema: SchemaFile
    epsilon: Epsilon
    delta: Delta = None
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where the graph goes, such as graph.dot.")
    ] = None
    knowledge: Annotated[
        Path | None,
        typer.Option(
            "--knowledge", "-k", help="What is known: a graph with stated, required and forbidden arrows, tiers."
        ),
    ] = None
    method: Annotated[str, typer.Option(help="auto, exact, two-stage, joint or gaussian.")] = "auto"
    directions: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="The share of epsilon, 0 to 1, for votes on edges left without a direction."
        ),
    ] = 0.0
    hidden_causes: Annotated[
        bool,
        flag("--hidden-causes", "Causes may be missing from the table: claim only what holds then too."),
    ] = False
    report: Annotated[
        Path | None, typer.Option("--report", "-r", metavar="FILE", help="Write a page with the drawn graph.")
    ] = None
    force: Force = False


@command
def discover(asked: DiscoverOptions) -> Filed | None:
    """Learn a causal graph from a private table.

    Example: escudo discover visits.csv --schema visits.toml --epsilon 1 --out graph.dot --report graph.html

    Of linked tables, over columns of all of them and from row to row: escudo discover patients.csv visits.csv
    --schema clinic.toml --epsilon 1 --out graph.dot

    With --hidden-causes an edge has a mark at each end: an arrow (no cause of the other end), a tail (a cause of it) or
    a circle (open).
    """
    from escudo.causal import AncestralGraph, CausalGraph
    from escudo.causal.formats import format_of
    from escudo.discovery import discover as ask
    from escudo.errors import InputError
    from escudo.privacy import plan as plan_of
    from escudo.privacy import usual_delta
    from escudo.report import discovery_page, write

    start = time.perf_counter()
    out = asked.out
    if out is None and not asked.plan:
        raise InputError("--out says where the graph goes, such as graph.dot. Or add --plan to look first.")
    check_files(graph=out, report=asked.report, force=asked.force)
    if asked.hidden_causes and out is not None:
        AncestralGraph().to_text(format_of(out))  # refused before anything is spent, if it cannot carry the marks
    known = None if asked.knowledge is None else CausalGraph.read(asked.knowledge)
    table = asked.tables()
    arguments: dict[str, Any] = {  # Any: they are of several types
        "epsilon": asked.epsilon,
        "delta": usual_delta(table.neighbours) if asked.delta is None else asked.delta,
        "knowledge": known,
        "method": asked.method,
        "directions": asked.directions,
        "hidden_causes": asked.hidden_causes,
        "accept_large_delta": asked.accept_large_delta,
    }
    if asked.stops_at(plan_of(ask, table, **arguments), table.account):
        return None
    assert out is not None
    found: Discovery | AncestralDiscovery = ask(table, seed=asked.seed, **arguments)

    def write_files() -> None:
        if isinstance(found.graph, CausalGraph):
            found.graph.write(out, lossy=True)  # what some formats leave behind is the knowledge that was given
        else:
            found.graph.write(out)
        if asked.report is not None:
            write(discovery_page(found, dataset=asked.dataset or "", known=known), asked.report)

    return _filed(asked, found, start, {"file": out, "report": asked.report}, _print_found, write_files)


def _filed(
    asked: TableOptions, found: Any, start: float, files: Files, words: Callable[..., None], write: Callable[[], None]
) -> Filed:
    """Return what was found, with files about it, and how long it took from the start."""

    def tell(written: bool) -> Answer:
        seconds = time.perf_counter() - start
        there = {name: path if written else None for name, path in files.items()}
        payload = {
            **found.to_json(),
            **{name: None if path is None else str(path) for name, path in there.items()},
            "for_release": found.guarantee.for_release,
            "dataset": asked.dataset,
            "seconds": round(seconds, 2),
        }
        return Answer(payload, lambda screen: words(screen, found, there, seconds))

    return Filed(tell, write)


def _print_found(screen: Console, found: Discovery | AncestralDiscovery, files: Files, seconds: float) -> None:
    from escudo.causal import AncestralGraph

    screen.print(f"{found.graph.summary}   ({seconds:.1f} s)", markup=False, style="bold")
    width = max((len(name) for name, _, _ in found.told), default=0)
    about = "marks" if isinstance(found.graph, AncestralGraph) else "direction"
    for name, sure, way in found.told:
        screen.print(f"  {name:<{width}}   edge {sure:>5}   {about} {way}", markup=False)
    if found.cannot_tell:
        screen.print(f"Cannot tell: {found.cannot_tell}.", markup=False, style="bold")
    for note in found.notes:
        screen.print(f"  {note}", markup=False)
    if files["file"] is not None:
        page = "" if files["report"] is None else f"; open {files['report']}"
        screen.print(f"Written to {files['file']}{page}", markup=False)
    print_promise(screen, found.guarantee)


@dataclass(frozen=True, kw_only=True)
class EffectOptions(TableOptions):
    """What ``escudo effect`` is told."""

    data: Data
    more: More = None
    treatment: Annotated[str, typer.Argument(metavar="TREATMENT", help="The column that is set.")]
    outcome: Annotated[
        str, typer.Argument(metavar="OUTCOME", help="The column that responds; COLUMN=LEVEL for a share.")
    ]
    schema: SchemaFile
    epsilon: Epsilon
    graph: Annotated[
        Path | None, typer.Option("--graph", "-g", help="The causal graph; it says what to adjust for.")
    ] = None
    adjust: Annotated[
        list[str] | None, typer.Option("--adjust", "-a", metavar="COLUMN", help="Adjust for this column (repeat it).")
    ] = None
    trial: Annotated[bool, flag("--trial", "The treatment was assigned by chance: adjust for nothing.")] = False
    delta: Annotated[
        float,
        typer.Option(
            "--delta", "-d", help="0, the default: Laplace noise, best for one question. Above: Gaussian, for many."
        ),
    ] = 0.0
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="CONTROL,TREATED",
            help="The levels to compare; first and last by default, of bins a quarter in; numbers stand for theirs.",
        ),
    ] = None
    confidence: Annotated[float, typer.Option(help="How often the interval should hold the truth.")] = 0.95
    joint: Annotated[bool, flag("--joint", "Of several contrasts, hold all truths together that often.")] = False
    refute: Annotated[
        list[str] | None,
        typer.Option(
            "--refute", metavar="KIND", help="Ask what is known beside it, placebo or random-cause (repeat it)."
        ),
    ] = None
    report: Annotated[
        Path | None, typer.Option("--report", "-r", metavar="FILE", help="Write a page with the answer.")
    ] = None


@command
def effect(asked: EffectOptions) -> Filed | None:
    """Estimate the average effect of one column on another, with an interval for chance and noise together.

    Example: escudo effect visits.csv smoke lung --graph clinic.dot --schema visits.toml --epsilon 0.5

    Of linked tables, treatment at one visit on the next: escudo effect patients.csv visits.csv visits.treat@prev
    visits.severity=severe --graph clinic.dot --schema clinic.toml --epsilon 1
    """
    from escudo.causal import read_graph
    from escudo.discovery import effect_of
    from escudo.errors import InputError
    from escudo.privacy import plan as plan_of
    from escudo.report import treatment_page, write
    from escudo.table import PrivateTables

    start = time.perf_counter()
    check_files(report=asked.report)
    table = asked.tables()
    whole = asked.outcome in (table.schema.columns if isinstance(table, PrivateTables) else table.schema)
    name, separator, level = (asked.outcome, "", "") if whole else asked.outcome.partition("=")
    levels = None
    if asked.compare is not None:
        levels = tuple(part.strip() for part in asked.compare.split(","))
        if len(levels) != 2:
            raise InputError(f"--compare takes two levels, CONTROL,TREATED; got {asked.compare!r}.")
    arguments: dict[str, Any] = {  # Any: they are of several types
        "graph": None if asked.graph is None else read_graph(asked.graph),
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "adjust": asked.adjust or None,
        "trial": asked.trial,
        "contrast": levels,
        "outcome_level": level if separator else None,
        "confidence": asked.confidence,
        "joint": asked.joint,
        "refute": asked.refute or (),
        "accept_large_delta": asked.accept_large_delta,
    }
    if asked.stops_at(plan_of(effect_of, table, asked.treatment, name, **arguments), table.account):
        return None
    found = effect_of(table, asked.treatment, name, seed=asked.seed, **arguments)

    def write_page() -> None:
        if asked.report is not None:
            write(treatment_page(found, graph=arguments["graph"], dataset=asked.dataset or ""), asked.report)

    return _filed(asked, found, start, {"report": asked.report}, _print_effect, write_page)


_MOST_CONTRASTS = 20


def _print_effect(screen: Console, found: TreatmentEffect, files: Files, seconds: float) -> None:
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
            + f"   {shown(arm.mean):>8}   {ends:<20}   about {arm.rows:,} {found.counted}",
            markup=False,
        )
    if len(found.contrasts) > 1:
        names = [f"{one.control} → {one.treated}" for one in found.contrasts[:_MOST_CONTRASTS]]
        wide = max(map(len, names))
        for name, one in zip(names, found.contrasts, strict=False):
            ends = " to ".join(map(shown, one.interval))
            screen.print(f"  {name:<{wide}}   {shown(one.value):>8}   {ends}", markup=False)
    given = ", ".join(found.adjustment) or "nothing"
    screen.print(f"  adjusted for {given}   ({found.method})", markup=False)
    for line in (found.robustness, found.overlap_sentence):
        if line:
            screen.print(f"  {line}", markup=False)
    for refutation in found.refutations:
        screen.print(f"  {refutation}", markup=False, style=None if refutation.passed else "yellow")
    for note in found.notes:
        screen.print(f"  {note}", markup=False)
    for warning in found.warnings:
        screen.print(f"Warning: {warning}", markup=False, style="yellow")
    if files["report"] is not None:
        screen.print(f"Written to {files['report']}", markup=False)
    print_promise(screen, found.guarantee)
