"""``escudo direction``: which of two columns causes the other, or which of all pairs, privately."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import JsonFlag, console, emit
from escudo.cli._release import _options, _print_plan, _standing, _without_secrets

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.orientation import Direction, Orientation
    from escudo.orientation._gap_planning import PlanningCurves
    from escudo.table import PrivateTable, Schema

__all__ = ["direction"]

DEFAULT = "sqlite:///escudo-ledger.db"


def direction(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table: CSV, Parquet, or a database URL.")],
    x: Annotated[str | None, typer.Argument(metavar="X", help="One column.")] = None,
    y: Annotated[str | None, typer.Argument(metavar="Y", help="The other column.")] = None,
    *,
    schema: Annotated[Path, typer.Option("--schema", "-s", help="The table's public description (escudo schema).")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The privacy budget to spend, in all.")],
    delta: Annotated[
        float, typer.Option("--delta", "-d", help="Probability aside, where the method needs one, such as 1e-6.")
    ] = 0.0,
    method: Annotated[str, typer.Option(help="votes (default), gap or paper.")] = "votes",
    score: Annotated[
        str, typer.Option(help="What blocks do, or which dependence is measured; the method's own by default.")
    ] = "committee",
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Ask about all pairs of columns under the one budget, by votes.")
    ] = False,
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PUBLIC records that fit the regressions (gap, paper).")
    ] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="PUBLIC records that are scored (paper).")] = None,
    relation: Annotated[str, typer.Option(help="replace_one or add_remove.")] = "replace_one",
    rows: Annotated[int | None, typer.Option(min=1, help="The public number of rows, for add_remove.")] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="URL", help="The ledger; else ESCUDO_LEDGER, else escudo-ledger.db here.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The account to charge; without one, nothing is recorded.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="What else the method takes.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Repeatable noise, for trying things out: NOT FOR RELEASE.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show the budget tree and stop; nothing is spent.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="HTML", help="Also write a report.")] = None,
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
    if out is not None:
        _check_page(out)
    table = _table(data, schema, ledger=ledger, dataset=dataset, relation=relation)
    terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "score": score, "relation": relation, "rows": rows}
    terms |= _options(option or [])
    if not all_pairs:
        terms |= {"method": method, **_public(train, test, table.schema, x, y)}
    tree = plan_of(orient, None, table, **terms) if all_pairs else plan_of(ask, table, x, y, **terms)
    standing = _standing(table.account, tree)
    if plan:
        emit(
            {"plan": tree.to_json(), "ledger": standing, "spent": False},
            as_json=as_json,
            human=lambda screen: _print_plan(screen, tree, standing, stop=True),
        )
        return
    if not as_json and standing is not None:
        _print_plan(console(), tree, standing, stop=False)
    found: Direction | Orientation
    if all_pairs:
        found = orient(None, table, seed=seed, **terms)
    else:
        assert x is not None
        assert y is not None
        found = ask(table, x, y, seed=seed, **terms)
    if out is not None:
        from escudo.report import write
        from escudo.report._direction_page import direction_page

        known = _public_rows(table, relation, rows)
        page = direction_page(found, source=dataset or _without_secrets(data), rows=known, curves=_curves(known))
        write(page, out)

    def human(screen: Console) -> None:
        screen.print(str(found), markup=False)
        if out is not None:
            screen.print(f"Report   {out}", markup=False)

    emit({**_payload(found), "dataset": dataset, "report": str(out) if out else None}, as_json=as_json, human=human)


def _table(data: str, schema: Path, *, ledger: str | None, dataset: str | None, relation: str) -> PrivateTable:
    from escudo.errors import InputError
    from escudo.privacy import Account, MemoryAccount, parse_relation
    from escudo.table import PrivateTable, Schema, open_data

    if ledger is not None and dataset is None:
        raise InputError("a ledger holds one account per dataset; say which one with --dataset.")
    described = Schema.read(schema)
    described.require_confirmed(source=str(schema), data=_without_secrets(data))
    account: Account | str = ledger or os.environ.get("ESCUDO_LEDGER", DEFAULT)
    if dataset is None:
        account = MemoryAccount(
            relation=parse_relation(relation), unit=described.unit, max_rows_per_person=described.max_rows_per_person
        )
    return PrivateTable(open_data(data, described), described, account, dataset)


def _public(train: Path | None, test: Path | None, schema: Schema, x: str | None, y: str | None) -> dict[str, Any]:
    """Return public records by their role, read with the schema's own column types."""
    from escudo.table import open_data

    assert x is not None
    assert y is not None
    named = {"train": train, "test": test}
    return {role: open_data(str(path), schema.select([x, y])) for role, path in named.items() if path is not None}


def _check_page(out: Path) -> None:
    """Raise if the report could not be written, before anything is spent."""
    from escudo.errors import InputError
    from escudo.report._page import is_report

    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"--out must name a file such as report.html in a folder that exists; got '{out}'.")
    if out.exists() and not is_report(out):
        raise InputError(f"{out.name!r} exists and is not a report of escudo; choose another name.")
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise InputError(f"'{out}' cannot be written: permission denied.")


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
