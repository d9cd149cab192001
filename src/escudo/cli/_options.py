"""Arguments that several commands share, in the same words, and what they stand for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from escudo.privacy import Account
    from escudo.table import PrivateTable

__all__ = [
    "DEFAULT_LEDGER",
    "AcceptLargeDelta",
    "Data",
    "Dataset",
    "Delta",
    "Epsilon",
    "Force",
    "LedgerUrl",
    "PlanOnly",
    "PublicRows",
    "RelationName",
    "SchemaFile",
    "Seeded",
    "check_files",
    "delta_for",
    "ledger_url",
    "open_table",
    "options_of",
    "settings",
    "without_secrets",
]


DEFAULT_LEDGER = "sqlite:///escudo-ledger.db"


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
    from escudo.privacy._plan_delta import usual_delta

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
    account: Account | str = ledger_url(ledger)
    if dataset is None:
        account = MemoryAccount(
            relation=parse_relation(relation), unit=described.unit, max_rows_per_person=described.max_rows_per_person
        )
    return PrivateTable(open_data(data, described), described, account, dataset)


def check_files(*, graph: Path | None = None, report: Path | None = None, force: bool = False) -> None:
    """Raise unless the files can be written, before anything is spent; an earlier report may be replaced."""
    from escudo.causal.formats import FORMATS, format_of
    from escudo.errors import InputError
    from escudo.report import is_report

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


def ledger_url(ledger: str | None) -> str:
    """Return the ledger that was named, or the usual one."""
    return ledger or os.environ.get("ESCUDO_LEDGER", DEFAULT_LEDGER)


def without_secrets(data: str) -> str:
    """Return what was typed for DATA; of a URL, which may hold a password, a placeholder only."""
    return "DATA" if "://" in data else data


def settings(option: str, pairs: list[str] | None) -> dict[str, str | None]:
    """Read COLUMN=VALUE pairs; an empty value means missing."""
    from escudo.errors import InputError

    found: dict[str, str | None] = {}
    for pair in pairs or []:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise InputError(f"{option} takes NAME=VALUE, such as smoke=yes; got {pair!r}.")
        if name in found:
            raise InputError(f"{option} names {name!r} twice.")
        found[name] = value or None
    return found


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
