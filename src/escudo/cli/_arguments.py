"""Arguments that the commands about private tables share, in the same words, and what they stand for.

All ask their question the same way: open the table behind its account, show the plan, stop there if that was all, check
where files go before anything is spent.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from escudo.cli._console import console, emit
from escudo.cli._ledger import DEFAULT
from escudo.cli._sample import settings

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.privacy import Account, Event, Plan
    from escudo.table import PrivateTable

__all__ = [
    "AcceptLargeDelta",
    "Data",
    "Dataset",
    "Delta",
    "Epsilon",
    "Force",
    "GoingOn",
    "LedgerUrl",
    "PlanOnly",
    "PublicRows",
    "RelationName",
    "SchemaFile",
    "Seeded",
    "check_files",
    "delta_for",
    "never_lost",
    "open_table",
    "options_of",
    "shown_first",
    "without_secrets",
]

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV, Parquet, Arrow or NDJSON file; or duckdb:///FILE?table=T, postgresql://USER@HOST/DB?table=T.",
    ),
]
SchemaFile = Annotated[Path, typer.Option("--schema", "-s", help="The table's public description (escudo schema).")]
Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The privacy budget to spend, in all.")]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        "-d",
        help="With this probability the promise may fail; 1e-6 if left out, or less where many rows are public.",
        show_default=False,
    ),
]
LedgerUrl = Annotated[
    str | None,
    typer.Option("--ledger", metavar="URL", help="The ledger; else ESCUDO_LEDGER, else escudo-ledger.db here."),
]
Dataset = Annotated[str | None, typer.Option(help="The account to charge; without one, nothing is recorded.")]
RelationName = Annotated[
    str, typer.Option(help="What is hidden: replace_one (one record changes) or add_remove (one comes or goes).")
]
AcceptLargeDelta = Annotated[
    bool,
    typer.Option(
        "--accept-large-delta",
        metavar="",
        help="Go on though --delta is one over the number of rows or people, or more: somebody may be exposed whole.",
    ),
]
PublicRows = Annotated[int | None, typer.Option(min=1, help="The number of rows, if it is public knowledge.")]
Seeded = Annotated[int | None, typer.Option(min=0, help="Repeatable noise, for trying things out: NOT FOR RELEASE.")]
PlanOnly = Annotated[bool, typer.Option("--plan", metavar="", help="Show the budget tree and stop; nothing is spent.")]
Force = Annotated[bool, typer.Option("--force", metavar="", help="Replace files that exist.")]


def delta_for(table: PrivateTable, delta: float | None, *, relation: str, public_rows: int | None) -> float:
    """Return the δ that was given, or the usual one for a table of this size, as far as that is public."""
    from escudo.privacy._plan import usual_delta

    if delta is not None:
        return delta
    return usual_delta(table.under(relation=relation, rows=public_rows).neighbours)


def open_table(data: str, schema: Path, *, relation: str, ledger: str | None, dataset: str | None) -> PrivateTable:
    """Return the private table behind its ledger account, or behind one in memory that nobody sees."""
    from escudo.errors import InputError
    from escudo.privacy import MemoryAccount, parse_relation
    from escudo.table import PrivateTable, Schema, open_data

    if ledger is not None and dataset is None:
        raise InputError("a ledger holds one account per dataset; say which one with --dataset.")
    described = Schema.read(schema)
    described.require_confirmed(source=str(schema), data=without_secrets(data))
    account: Account | str = ledger or os.environ.get("ESCUDO_LEDGER", DEFAULT)
    if dataset is None:
        account = MemoryAccount(
            relation=parse_relation(relation), unit=described.unit, max_rows_per_person=described.max_rows_per_person
        )
    return PrivateTable(open_data(data, described), described, account, dataset)


class GoingOn(NamedTuple):
    """A plan that goes on from a checkpoint, which paid for it or for a part of it.

    Attributes:
        checkpoint: The checkpoint.
        due: What is charged for the rest; None for nothing.
        again: Whether that was asked for.
    """

    checkpoint: Path
    due: Event | None
    again: bool


def shown_first(account: Account, plan: Plan, *, stop: bool, as_json: bool, going_on: GoingOn | None = None) -> bool:
    """Show the plan and where it would leave the account, before anything is spent; return whether to stop there."""
    standing = _standing(account, plan, going_on)
    if stop:
        emit(
            {"plan": plan.to_json(), "ledger": standing, "spent": False},
            as_json=as_json,
            human=lambda screen: _print_plan(screen, plan, standing, stop=True),
        )
    elif not as_json:
        _print_plan(console(), plan, standing, stop=False)
    return stop


def _standing(account: Account, plan: Plan, going_on: GoingOn | None) -> dict[str, Any] | None:
    """Return where the account stands and where this plan would take it; None if nothing is recorded."""
    from escudo.privacy import LedgerAccount

    if not isinstance(account, LedgerAccount) or plan.event is None:
        return None
    event = plan.event if going_on is None else going_on.due
    info, asked = account.info(), 0.0 if event is None else account.asked(event)
    return {
        "dataset": account.dataset,
        "cap": info.cap.epsilon,
        "delta": info.cap.delta,
        "spending": info.spending,
        "used": info.used,
        "asked": asked if math.isfinite(asked) else None,
        "left": info.remaining.epsilon,
        "fits": event is None or account.fits(event),
        "checkpoint": None if going_on is None else str(going_on.checkpoint),
        "needs_again": going_on is not None and event is not None and not going_on.again,
    }


def _print_plan(screen: Console, plan: Plan, standing: dict[str, Any] | None, *, stop: bool) -> None:
    from escudo.privacy._tally import percent_up, shown_down

    screen.print(str(plan), markup=False)
    if standing is None:
        line = "none: what is spent is not recorded anywhere (see --dataset)"
    else:
        line = f"{standing['dataset']}: {percent_up(standing['used'])} of ε = {shown_down(standing['cap'])} used; this "
        line += _asks(standing)
    screen.print(f"Ledger   {line}", markup=False)
    if stop:
        screen.print("Nothing was spent. Leave out --plan to go on.")


def _asks(standing: dict[str, Any]) -> str:
    """Return what a plan asks for, and what the answer would be."""
    from escudo.privacy._tally import percent_up

    asked, line = standing["asked"], ""
    if standing["checkpoint"] is not None:
        line = f"goes on from {standing['checkpoint']}, "
        if asked == 0:
            return line + "which was paid for, and asks for nothing"
    line += f"asks for {percent_up(asked)}" if asked is not None else "has no finite cost at the account's δ"
    if standing["needs_again"]:
        return (
            line
            + " for the rest, as it was used before, and would be refused without --again"
            + ("" if standing["fits"] else ", and with it")
        )
    return line + (" and fits" if standing["fits"] else " and would be refused")


@contextmanager
def never_lost(show: Callable[[bool], None]) -> Iterator[None]:
    """Write files about an answer; one that cannot be written does not lose the answer, which was paid or waited for.

    Args:
        show: Shows the answer; told whether its files were written.
    """
    try:
        yield
    except BaseException:
        show(False)
        raise
    show(True)


def check_files(*, graph: Path | None = None, report: Path | None = None, force: bool = False) -> None:
    """Raise unless the files can be written, before anything is spent; an earlier report may be replaced."""
    from escudo.causal.formats import FORMATS, format_of
    from escudo.errors import InputError
    from escudo.report._page import is_report

    if graph is not None and "undirected edges" not in FORMATS[format_of(graph)].carries:
        raise InputError(
            f"'{graph}': {format_of(graph).upper()} cannot hold edges without a direction; use .dot or .gml."
        )
    for file in (graph, report):
        if file is None:
            continue
        try:
            taken, folder = file.exists(), file.is_dir()
        except (OSError, ValueError) as error:  # such as a name that is too long
            raise InputError(f"'{file}' cannot be written: {getattr(error, 'strerror', None) or error}.") from None
        if folder:
            raise InputError(f"'{file}' is a folder; name a file in it.")
        if not file.parent.is_dir():
            raise InputError(f"the folder of '{file}' does not exist; make it first.")
        if file is graph and taken and not force:
            raise InputError(f"'{file}' exists; choose another name, or pass --force to replace it.")
        if file is report and taken and not is_report(file):
            raise InputError(f"'{file}' exists and is not a report of escudo; choose another name.")
        if not os.access(file if taken else file.parent, os.W_OK):
            raise InputError(f"'{file}' cannot be written: permission denied.")


def without_secrets(data: str) -> str:
    """Return what was typed for DATA; of a URL, which may hold a password, a placeholder only."""
    return "DATA" if "://" in data else data


def options_of(pairs: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE options: numbers, true and false as such, all else as text."""
    return {name.replace("-", "_"): _read(value or "") for name, value in settings("--option", pairs).items()}


def _read(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
