"""Arguments that several commands share, in the same words, and what they stand for."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from escudo.cli._console import Answer, Filed, JsonFlag, flag, planned
from escudo.cli._run import KEPT, SaveConfig, saving

if TYPE_CHECKING:
    from escudo.privacy import Account, Plan
    from escudo.releasing import Resumption
    from escudo.table import PrivateTable, PrivateTables

DEFAULT_LEDGER = "sqlite:///escudo-ledger.db"

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV, Parquet, Arrow, NDJSON or Excel file; a folder or pattern of them; - for standard input; or "
        "sqlite:///FILE?table=T, duckdb:///FILE?table=T, postgresql://USER@HOST/DB?table=T, spark://HOST:PORT/FOLDER.",
    ),
]
More = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DATA",
        help="The other tables, where the schema describes linked ones; NAME=FILE if named otherwise.",
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
    flag(
        "--accept-large-delta",
        "Go on though --delta is one over the number of rows or people, or more: somebody may be exposed whole.",
    ),
]
PublicRows = Annotated[int | None, typer.Option(min=1, help="The number of rows, if it is public knowledge.")]
Seeded = Annotated[int | None, typer.Option(min=0, help="Repeatable noise, for trying things out: NOT FOR RELEASE.")]
Engine = Annotated[
    str | None,
    typer.Option(help="What reads files: polars, here; or spark, on its workers (Parquet, Delta and Iceberg)."),
]
PlanOnly = Annotated[bool, flag("--plan", "Show the budget tree and stop; nothing is spent.")]
Force = Annotated[bool, flag("--force", "Replace files that exist.")]


def command(function: Callable[..., Answer | Filed | None]) -> Callable[..., None]:
    """Make a function a command: parse, ask, show, as JSON if ``--json`` says so and there is an answer to show.

    The function's parameters are the arguments and options; where it takes one value of a class of options, the fields
    of that class are.
    """
    shape = inspect.signature(function, eval_str=True)
    answers = shape.return_annotation is not None
    options = next(iter(shape.parameters.values())).annotation
    if isinstance(options, type) and is_dataclass(options):
        shape = _in_order_of_help(options)
        if issubclass(options, TableOptions):
            KEPT[function.__name__] = options
    else:
        options = None
    told = "as_json" in shape.parameters  # some want to know it before they answer
    parameters = list(shape.parameters.values())
    if answers and not told:
        flag = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonFlag)
        parameters.append(flag)

    @wraps(function)
    def parsed(**given: Any) -> None:
        as_json = given["as_json"] if told else given.pop("as_json", False)
        asked = None if options is None else options(**given)
        with saving(function.__name__, asked) if isinstance(asked, TableOptions) else nullcontext():
            answer = function(**given) if asked is None else function(asked)
        if answer is not None:
            answer.show(as_json)

    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    parsed.__doc__ = "\n\n".join(" ".join(one.split()) for one in paragraphs)  # a terminal has lines of its own
    parsed.__signature__ = shape.replace(parameters=parameters)  # type: ignore[attr-defined] # what typer reads
    return parsed


def _in_order_of_help(options: type) -> inspect.Signature:
    """Return what a class of options is made of: what it lists itself, in that order, and then what it inherits."""
    told, listed = inspect.signature(options).parameters, inspect.get_annotations(options)
    kinds = get_type_hints(options, include_extras=True)
    order = [*listed, *(name for name in told if name not in listed)]
    return inspect.Signature([told[name].replace(annotation=kinds[name]) for name in order])


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What every command about a private table is told; in its help after its own, or where it lists them again."""

    data: Data
    schema: SchemaFile
    relation: RelationName = "replace_one"
    public_rows: PublicRows = None
    engine: Engine = None
    accept_large_delta: AcceptLargeDelta = False
    ledger: LedgerUrl = None
    dataset: Dataset = None
    seed: Seeded = None
    plan: PlanOnly = False
    save_config: SaveConfig = None
    as_json: JsonFlag = False

    def table(self) -> PrivateTable:
        """Return the private table behind its ledger account, or behind one in memory that nobody sees."""
        from escudo.errors import InputError
        from escudo.table import PrivateTable, Schema, open_data

        if self.ledger is not None and self.dataset is None:
            raise InputError("a ledger holds one account per dataset; say which one with --dataset.")
        schema = Schema.read(self.schema)
        schema.require_confirmed(source=to_type(self.schema), data=to_type(without_secrets(self.data)))
        account = None if self.dataset is None else ledger_url(self.ledger)
        said: dict[str, Any] = {"relation": self.relation, "rows": self.public_rows}
        return PrivateTable(open_data(self.data, schema, engine=self.engine), schema, account, self.dataset, **said)

    def tables(self) -> PrivateTable | PrivateTables:
        """Return the private table, or linked ones where the schema describes these and the command takes them.

        Raises:
            InputError: If several tables were given, and the schema describes one.
        """
        from escudo.cli._linked import private_tables
        from escudo.errors import InputError
        from escudo.table import LinkedSchema, read_any_schema

        described = read_any_schema(self.schema)
        if isinstance(described, LinkedSchema):
            return private_tables(self, described)
        if getattr(self, "more", None):
            raise InputError(
                "several tables were given, and the schema describes one; see [linked] in the documentation."
            )
        return self.table()

    def stops_at(self, plan: Plan, account: Account, resumption: Resumption | None = None) -> bool:
        """Show the plan and where it would leave the account before anything is spent; return whether to stop there."""
        if self.plan or not self.as_json:
            planned(plan, account, resumption, stop=self.plan).show(self.as_json)
        return self.plan


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


def by_name(asked: object, *names: str) -> dict[str, Any]:
    """Return options that are handed on under their own names."""
    return {name: getattr(asked, name) for name in names}


def ledger_url(ledger: str | None) -> str:
    """Return the ledger that was named, or the usual one."""
    return ledger or os.environ.get("ESCUDO_LEDGER", DEFAULT_LEDGER)


def without_secrets(data: str) -> str:
    """Return what was typed for DATA; of a URL but that of a file, which may hold a password, a placeholder only."""
    return data if "://" not in data or data.startswith(("sqlite:///", "duckdb:///")) else "DATA"


def to_type(*words: object) -> str:
    """Return words of a command as they would be typed in a shell, which would take patterns and blanks apart."""
    return " ".join(quote(str(word)) for word in words)


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
