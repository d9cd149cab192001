"""``escudo direction``: which of two columns causes the other, or which of all pairs, privately."""

from __future__ import annotations

from inspect import signature
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
    RelationName,
    SchemaFile,
    Seeded,
    check_files,
    never_lost,
    open_table,
    options_of,
    shown_first,
    without_secrets,
)
from escudo.cli._console import JsonFlag, emit

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.orientation import Direction, Orientation
    from escudo.orientation._gap_planning import PlanningCurves
    from escudo.table import PrivateTable, Schema

__all__ = ["direction"]


def direction(
    data: Data,
    x: Annotated[str | None, typer.Argument(metavar="X", help="One column.")] = None,
    y: Annotated[str | None, typer.Argument(metavar="Y", help="The other column.")] = None,
    *,
    schema: SchemaFile,
    epsilon: Epsilon,
    delta: Annotated[
        float,
        typer.Option("--delta", "-d", help="Probability that the promise may fail, where the method needs one; 1e-6."),
    ] = 0.0,
    method: Annotated[str, typer.Option(help="votes (default), gap or paper.")] = "votes",
    score: Annotated[
        str, typer.Option(help="What a block computes (votes), or the dependence measured; committee: the usual one.")
    ] = "committee",
    all_pairs: Annotated[
        bool,
        typer.Option("--all-pairs", metavar="", help="Ask about all pairs of columns under the one budget, by votes."),
    ] = False,
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PUBLIC records that fit the regressions (gap, paper).")
    ] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="PUBLIC records that are scored (paper).")] = None,
    relation: RelationName = "replace_one",
    rows: Annotated[
        int | None,
        typer.Option(
            "--public-rows", "--rows", min=1, help="About how many rows or people, where add_remove hides it."
        ),
    ] = None,
    accept_large_delta: AcceptLargeDelta = False,
    ledger: LedgerUrl = None,
    dataset: Dataset = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="What else the method takes, such as blocks=40; repeatable."
        ),
    ] = None,
    seed: Seeded = None,
    plan: PlanOnly = False,
    out: Annotated[
        Path | None, typer.Option("--report", "-r", "--out", "-o", metavar="FILE", help="Write a page with the answer.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which of two columns causes the other, or that one cannot tell.

    A margin above 0 speaks for X as the cause, below 0 for Y. The answer is about a model of noise: it does not rule
    out a common cause.

    Example: escudo direction stations.csv altitude temperature --schema stations.toml --epsilon 0.5
    """
    from escudo.errors import InputError
    from escudo.orientation import direction as ask
    from escudo.orientation import orient
    from escudo.privacy import plan as plan_of

    if all_pairs and (x is not None or y is not None):
        raise InputError("--all-pairs asks about all columns of the schema; leave out X and Y.")
    if not all_pairs and (x is None or y is None):
        raise InputError("name two columns: escudo direction DATA X Y ..., or use --all-pairs.")
    if all_pairs and (method != "votes" or train is not None or test is not None):
        raise InputError("--all-pairs goes by votes; leave out --method, --train and --test.")
    check_files(report=out)
    table = open_table(data, schema, relation=relation, ledger=ledger, dataset=dataset)
    terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "score": score, "relation": relation, "rows": rows}
    terms |= {"accept_large_delta": accept_large_delta}
    terms |= _extras(option or [], all_pairs=all_pairs)
    if not all_pairs:
        terms |= {"method": method, **_public(train, test, table.schema, x, y)}
    tree = plan_of(orient, None, table, **terms) if all_pairs else plan_of(ask, table, x, y, **terms)
    if (plan or dataset is not None) and shown_first(table.account, tree, stop=plan, as_json=as_json):
        return
    found: Direction | Orientation
    if all_pairs:
        found = orient(None, table, seed=seed, **terms)
    else:
        assert x is not None
        assert y is not None
        found = ask(table, x, y, seed=seed, **terms)

    def show(written: bool) -> None:
        page = out if written else None

        def human(screen: Console) -> None:
            screen.print(str(found), markup=False)
            if page is not None:
                screen.print(f"Report   {page}", markup=False)

        payload = {**_payload(found), "dataset": dataset, "report": None if page is None else str(page)}
        emit(payload, as_json=as_json, human=human)

    with never_lost(show):
        if out is not None:
            from escudo.report import write
            from escudo.report._causal_pages import direction_page

            known = _public_rows(table, relation, rows)
            page = direction_page(found, source=dataset or without_secrets(data), rows=known, curves=_curves(known))
            write(page, out)


def _extras(option: list[str], *, all_pairs: bool) -> dict[str, Any]:
    """Return the method's own options; what has an argument of its own must be given by that."""
    from escudo.errors import InputError
    from escudo.orientation import direction as ask
    from escudo.orientation._asked import check_options
    from escudo.orientation._votes import OPTIONS

    found = options_of(option)
    for name in found:
        if name in (*signature(ask).parameters, "train", "test"):
            raise InputError(f"{name!r} is no --option: it has an argument of its own.")
    if all_pairs:
        check_options("votes", found, OPTIONS)
    return found


def _public(train: Path | None, test: Path | None, schema: Schema, x: str | None, y: str | None) -> dict[str, Any]:
    """Return public records by their role, read with the schema's own column types."""
    from escudo.table import open_data

    assert x is not None
    assert y is not None
    named = {"train": train, "test": test}
    return {role: open_data(str(path), schema.select([x, y])) for role, path in named.items() if path is not None}


def _public_rows(table: PrivateTable, relation: str, stated: int | None) -> int | None:
    from escudo.orientation._reading import public_rows
    from escudo.privacy import parse_relation

    return public_rows(table, parse_relation(relation)) if stated is None else stated


def _curves(rows: int | None) -> PlanningCurves | None:
    from escudo.orientation._gap_planning import planning_curves

    return None if rows is None or rows < 100 else planning_curves(rows)


def _payload(found: Direction | Orientation) -> dict[str, Any]:
    many = getattr(found, "directions", None)
    if many is None:
        return _answer(found)
    return {
        "answers": [_answer(one) for one in many],
        "guarantee": found.guarantee.to_json(),
        "for_release": found.guarantee.for_release,
        "notes": list(found.notes),
    }


def _answer(found: Any) -> dict[str, Any]:
    return {
        "x": found.x,
        "y": found.y,
        "verdict": found.verdict,
        "margin": found.margin,
        "probability_correct": found.probability_correct,
        "noise_scale": found.noise_scale,
        "threshold": found.threshold,
        "scores": dict(found.scores),
        "scores_mean": found.scores_mean,
        "method": found.method,
        "score": found.score,
        "released": found.released,
        "guarantee": found.guarantee.to_json(),
        "for_release": found.guarantee.for_release,
        "notes": list(found.notes),
    }
