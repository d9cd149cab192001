"""``escudo schema``: draft, learn, check, show, convert and confirm the public description of a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo._card import first_of, number_of
from escudo.cli._console import Answer, flag, plain_table
from escudo.cli._linked import check_names, how_to_confirm, named_data, print_check
from escudo.cli._options import (
    AcceptLargeDelta,
    Data,
    Delta,
    Engine,
    Epsilon,
    More,
    PublicRows,
    by_name,
    command,
    to_type,
    without_secrets,
)

if TYPE_CHECKING:
    from rich.console import Console

    from escudo.mechanisms import Release
    from escudo.privacy import Account
    from escudo.table import Column, LinkedSchema, Schema, SchemaCheck

app = typer.Typer(no_args_is_help=True, help="The public description of a table: its columns, levels and bounds.")

_Schema = Annotated[Path, typer.Argument(metavar="SCHEMA", help="A schema: .toml, .json (or SDV), .yaml (SmartNoise).")]
_Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the schema here, as TOML.")]
_Force = Annotated[bool, flag("--force", "Replace the file if it exists.")]
_Table = Annotated[str | None, typer.Option("--table", help="Which table, if the metadata describe several.")]
_Header = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...",
        help="What the columns of a CSV or TSV file are called if its first line does not say; none to number them, "
        "first if it does say. Recognised if left out.",
    ),
]
_PROBLEMS = 8  # columns of which an error says what is wrong
_TAKEN_AS_PUBLIC = "The kind of each column (levels or numbers) was taken as public."
_TAKEN_AS_TEXTS = (
    "Without a schema no value is looked at, and every column of a text file is taken for texts. Where one holds "
    'numbers or dates, write a schema that says so (type = "numeric" or "date", confirmed = false), and learn with '
    "--schema."
)
_WHOLE_IF_SAID = "Numbers were learnt as any numbers: where they are whole by what is public, write integer = true."
_LINKED_AS_PUBLIC = "Keys, orders, the origin, --most and the kind of each column were taken as public."


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """What ``escudo schema draft`` is told."""

    data: Data
    more: More = None
    people: Annotated[
        str | None, typer.Option("--people", help="Of linked tables: which one holds people, one row each.")
    ] = None
    quoted_newlines: Annotated[
        bool | None,
        typer.Option(help="Whether quoted fields of a CSV or TSV file may hold line feeds. Recognised if left out."),
    ] = None
    delimiter: Annotated[
        str | None,
        typer.Option(help="Between the fields of a CSV or TSV file: , ; | or tab. Recognised if left out."),
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="Of a CSV or TSV file, such as utf-8 or cp1252. Recognised if left out.")
    ] = None
    decimal: Annotated[
        str | None, typer.Option(help="Before decimals in a CSV or TSV file: . or , Recognised if left out.")
    ] = None
    header: _Header = None
    engine: Engine = None
    out: _Out = None
    force: _Force = False


@app.command()
@command
def draft(asked: DraftOptions) -> Answer:
    """Draft a schema from the data, for the custodian to confirm; nothing is released from it before.

    How a CSV or TSV file is written is recognised, and stated in the schema. The file is for its owner's eyes only.

    Example: escudo schema draft visits.csv --out visits.toml
    """
    from escudo.errors import InputError
    from escudo.table import CUSTODIAN_ONLY, DRAFT_NOTES, draft_linked
    from escudo.table import draft as draft_schema

    data, more, people, out = asked.data, asked.more, asked.people, asked.out
    written = by_name(asked, "delimiter", "encoding", "decimal", "header", "quoted_newlines")
    _check_target(out, asked.force)
    if more or people is not None:
        if people is None or not more:
            raise InputError("linked tables are several, and --people says which of them holds people, one row each.")
        if any(value is not None for value in written.values()):
            raise InputError("of linked tables, how files are written is recognised; change it in the schema.")
        files = named_data([data, *more])
        together = draft_linked({name: _opened(one, asked.engine) for name, one in files.items()}, people)
        with _readable_by(0o600):
            return _written(together, out, CUSTODIAN_ONLY, how_to_confirm([data, *more], out), force=asked.force)
    if asked.delimiter in ("tab", "\\t"):
        written["delimiter"] = "\t"
    written["header"] = _header(asked.header)
    schema = draft_schema(_opened(data, asked.engine), **written)
    found = [note for note in schema.notes if note not in DRAFT_NOTES]
    with _readable_by(0o600):
        return _written(schema, out, CUSTODIAN_ONLY, *found, _how_to_confirm(data, out), force=asked.force)


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """What ``escudo schema learn`` is told."""

    data: Data
    more: More = None
    epsilon: Epsilon
    delta: Delta = None
    schema: Annotated[
        Path | None, typer.Option("--schema", "-s", help="A draft; only unconfirmed columns are learnt.")
    ] = None
    ledger: Annotated[str | None, typer.Option("--ledger", help="Ledger to charge, such as sqlite:///ledger.db.")] = (
        None
    )
    dataset: Annotated[str | None, typer.Option("--dataset", help="The account in the ledger.")] = None
    header: _Header = None
    public_rows: PublicRows = None
    engine: Engine = None
    most: Annotated[
        list[str] | None,
        typer.Option("--most", help="Of linked tables: how many rows of one person count, as visits=40."),
    ] = None
    accept_large_delta: AcceptLargeDelta = False
    out: _Out = None
    force: _Force = False

    @property
    def tables(self) -> tuple[str, ...]:
        """All data that were named."""
        return (self.data, *(self.more or ()))

    def terms(self, account: Account | None) -> dict[str, Any]:
        """Return what learning may cost, and who pays."""
        return {**by_name(self, "epsilon", "delta", "accept_large_delta"), "account": account}


@app.command()
@command
def learn(asked: LearnOptions) -> Answer:
    """Learn the levels and bounds that are not public, under differential privacy, and charge them.

    Example: escudo schema learn visits.csv --schema visits.toml --epsilon 0.1 --delta 1e-7 --out learnt.toml

    Linked tables: escudo schema learn patients.csv visits.csv --schema draft.toml --most visits=40 --epsilon 0.5
    """
    from escudo.errors import EscudoError, InputError
    from escudo.learning import BOUNDS_LEARNT, LEVELS_LEARNT
    from escudo.privacy import Ledger
    from escudo.table import Categorical, LinkedSchema, Numeric, read_any_schema

    if (asked.ledger is None) != (asked.dataset is None):
        raise InputError("--ledger and --dataset belong together: which ledger, and which account in it.")
    if asked.schema is not None and asked.header is not None:
        raise InputError("--header is for learning without a schema; with one, its own header says it.")
    _check_target(asked.out, asked.force)  # before anything is spent
    account = None
    if asked.ledger is not None and asked.dataset is not None:
        account = Ledger(asked.ledger).account(asked.dataset)
    given = None if asked.schema is None else read_any_schema(asked.schema)
    if isinstance(given, LinkedSchema):
        release, known = _learnt_linked(asked, given, account), _LINKED_AS_PUBLIC
    else:
        release, known = _learnt(asked, given, account), _TAKEN_AS_PUBLIC
    charged = (
        f"Charged to {asked.dataset!r}."
        if asked.dataset
        else "No ledger was given: keep a record of this spend yourself."
    )
    lead = f"Learnt under differential privacy. {release.guarantee}"
    about = (lead, f"{known} {charged}", *release.value.notes)
    learnt = replace(release.value, notes=about)
    try:
        files = to_type(*map(without_secrets, asked.tables))
        schemas = list(map(learnt.schema_of, learnt.tables)) if isinstance(learnt, LinkedSchema) else [learnt]
        columns = [column for each in schemas for column in each.fields]
        numbers = [x for x in columns if isinstance(x, Numeric) and x.note.startswith(BOUNDS_LEARNT)]
        lost = ["these bounds clamp"] if numbers else []
        lost += ["are none of these levels"] if any(x.note == LEVELS_LEARNT for x in columns) else []
        to_see = [_WHOLE_IF_SAID] if not all(column.integer for column in numbers) else []
        if lost:
            to_see.append(
                f"How many values {', or '.join(lost)}{',' if lost[1:] else ''} is private; see it for your own eyes "
                "with:\n"
                f"  escudo schema check {files} --schema {to_type(asked.out or 'schema.toml')}"
            )
        waiting = [] if isinstance(learnt, LinkedSchema) else [learnt[name] for name in learnt.unconfirmed]
        not_learnt = [f"Not learnt: {column.name!r}, {column.note or 'still to be stated'}." for column in waiting]
        if given is None and any(isinstance(column, Categorical) for column in waiting):
            not_learnt.append(_TAKEN_AS_TEXTS)
        return _written(learnt, asked.out, "\n".join(about), *not_learnt, *to_see, force=asked.force)
    except EscudoError:
        typer.echo(learnt.to_toml(), nl=False)  # it is paid for: do not lose it
        raise


def _learnt(asked: LearnOptions, given: Schema | None, account: Account | None) -> Release[Any]:
    from escudo.errors import InputError
    from escudo.learning import learn_schema
    from escudo.table import open_data, outline

    if asked.more or asked.most:
        raise InputError("several tables, and --most, are for linked tables, whose schema --schema names.")
    start = outline(_opened(asked.data, asked.engine), header=_header(asked.header)) if given is None else given
    frame = open_data(asked.data, start, engine=asked.engine)
    return learn_schema(frame, start, **asked.terms(account), public_rows=asked.public_rows)


def _learnt_linked(asked: LearnOptions, given: LinkedSchema, account: Account | None) -> Release[Any]:
    from escudo.errors import InputError
    from escudo.learning import learn_linked
    from escudo.table import open_data

    if asked.public_rows is not None:
        raise InputError("--public-rows is about one table; of linked ones the number of people is counted or private.")
    most = {}
    for text in asked.most or []:
        name, _, number = text.partition("=")
        if not number.isascii() or not number.isdecimal():
            raise InputError(f"--most takes a table and a number of rows, as visits=40; got {text[:60]!r}.")
        most[name] = int(number)
    data = named_data(asked.tables)
    check_names(data, given)
    frames = {name: open_data(data[name], given.reading(name), engine=asked.engine) for name in given.tables}
    return learn_linked(frames, given, **asked.terms(account), most=most)


def _header(said: str | None) -> list[str] | bool | None:
    """Return what was said about the first line of a text file."""
    return None if said is None else {"first": True, "none": False}.get(said, said.split(","))


@app.command()
@command
def check(
    data: Data,
    more: More = None,
    *,
    schema: Annotated[Path, typer.Option("--schema", "-s", help="The schema to compare with.")],
    engine: Engine = None,
) -> Answer:
    """Compare data with a schema, for the custodian's eyes only: exact shares, without any protection.

    Example: escudo schema check visits.csv --schema visits.toml
    """
    from escudo.errors import InputError, ViolationError
    from escudo.table import LinkedSchema, Schema, check_linked, read_any_schema
    from escudo.table import check as check_schema

    described = read_any_schema(schema)
    if isinstance(described, LinkedSchema):
        files = named_data([data, *(more or [])])
        if missing := [name for name in described.tables if name not in files]:
            raise InputError(
                f"the schema describes {missing[0]!r}, which was not given; say NAME=FILE if it is called otherwise."
            )
        together = check_linked({name: _opened(files[name], engine) for name in described.tables}, described)
        wrong = ViolationError(f"the tables do not fit the schema. {_few_of(together.problems)}")
        return Answer(together.to_dict(), print_check(together, _print_check), wrong if together.problems else None)
    if more:
        raise InputError("several tables were given, and the schema describes one.")
    report = check_schema(_opened(data, engine), Schema.read(schema))
    problem = ViolationError(f"the table does not fit the schema. {_few_of(report.problems)}")
    return Answer(report.to_dict(), lambda console: _print_check(console, report), problem if report.problems else None)


def _few_of(problems: Sequence[str]) -> str:
    """Return what is wrong with some columns; of many with the first ones, as all of it stands above."""
    more = len(problems) - _PROBLEMS
    return " ".join([*problems[:_PROBLEMS], *([f"And {more:,} more, listed above."] if more > 0 else [])])


@app.command()
@command
def show(schema: _Schema, table: _Table = None) -> Answer:
    """Show a schema: its columns and cells, whom it protects, and what is not confirmed."""
    from escudo.table import LinkedSchema, Schema, read_any_schema

    described = None if table is not None else read_any_schema(schema)
    if isinstance(described, LinkedSchema):
        told: dict[str, Any] = {
            **described.to_dict(),
            "unit": described.unit,
            "unconfirmed": list(described.unconfirmed),
        }
        return Answer({**told, "fingerprint": described.fingerprint}, lambda console: _print_linked(console, described))
    value = Schema.read(schema, table=table)
    payload = {
        **value.to_dict(),
        "unit": value.unit,
        "unconfirmed": list(value.unconfirmed),
        "open": list(value.open_columns),
        "fingerprint": value.fingerprint,
    }
    return Answer(payload, lambda console: _print_schema(console, value))


@app.command()
@command
def convert(
    schema: _Schema,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new file, ending in .toml or .json.")],
    table: _Table = None,
    force: _Force = False,
) -> Answer:
    """Convert a schema, SDV metadata (JSON) or SmartNoise metadata (YAML) to a schema of escudo's.

    Example: escudo schema convert metadata.json visits.toml
    """
    from escudo.table import Schema

    value = Schema.read(schema, table=table)
    value.write(out, overwrite=force)
    return _changed(value, out, value.notes)


@app.command()
@command
def confirm(
    schema: _Schema,
    columns: Annotated[
        list[str] | None, typer.Argument(metavar="COLUMN", help="Which columns; asked one by one if none is named.")
    ] = None,
    everything: Annotated[bool, flag("--all", "Vouch for all columns at once, without being asked.")] = False,
) -> Answer:
    """Vouch that the levels and bounds of columns are public knowledge; changes the schema's file.

    Example: escudo schema confirm visits.toml

    On a terminal each column is shown and asked about; y vouches for it,
    n leaves it as it is, q stops there and keeps what was answered.
    """
    from escudo.errors import InputError
    from escudo.table import LinkedSchema, Schema, confirm_file, confirm_linked_file, read_any_schema

    described = read_any_schema(schema)
    if isinstance(described, LinkedSchema):
        if described.unconfirmed and not (columns or everything):
            raise InputError(
                f"not confirmed in '{schema}': {first_of(described.unconfirmed)}. A table's name stands for its most "
                "and its edges. Name those that are public knowledge, or pass --all to vouch for all of them."
            )
        with _readable_by(schema.stat().st_mode):
            linked_names = confirm_linked_file(schema, columns or None)
        return _changed(LinkedSchema.read(schema), schema, [f"Confirmed as public: {name}" for name in linked_names])
    waiting = Schema.read(schema).unconfirmed
    if columns or everything or not waiting:
        wanted = columns or None
    elif sys.stdin.isatty():
        wanted = _asked_about(Schema.read(schema))
    else:
        raise InputError(
            f"{number_of(len(waiting), 'column')} of '{schema}' {'is' if len(waiting) == 1 else 'are'} not confirmed: "
            f"{first_of(map(repr, waiting))}. Name those whose levels or bounds are public knowledge, or "
            "pass --all to vouch for all of them; on a terminal they are asked one by one, and escudo schema show "
            "lists them."
        )
    with _readable_by(
        schema.stat().st_mode if os.path.exists(schema) else 0o600
    ):  # what is not confirmed yet stays private
        chosen = () if wanted == [] else confirm_file(schema, wanted)
    value = Schema.read(schema)
    return _changed(value, schema, [f"Confirmed as public: {name}" for name in chosen])


def _asked_about(schema: Schema) -> list[str]:
    """Show each column that is not confirmed, to whoever may see it, and return those that they vouched for."""
    vouched = []
    for place, name in enumerate(schema.unconfirmed):
        column = schema[name]
        lead = f"{place + 1} of {len(schema.unconfirmed)}"
        if column.open:
            typer.echo(
                f"{lead}  {name}: nothing is stated yet; state it in the file, or learn it. Left as it is.", err=True
            )
            continue
        typer.echo(f"{lead}  {name}: {_stated(column)}", err=True)
        try:
            answer = typer.prompt("  Is this public knowledge? [y/n/q]", default="n", show_default=False, err=True)
        except typer.Abort as stopped:
            if isinstance(stopped.__context__, EOFError):  # no more answers: as q
                break
            raise KeyboardInterrupt from None
        answer = str(answer).strip().lower()
        if answer == "q":
            break
        if answer in ("y", "yes"):
            vouched.append(name)
    return vouched


def _stated(column: Column) -> str:
    """Return what somebody vouches for: all of it, as all of it is published."""
    from escudo.table import Categorical

    missing = ", or missing" if column.missing else ""
    if isinstance(column, Categorical):
        shown = ", ".join(map(str, column.levels))
        spelt = ", ".join(f"{text!r} as {level}" for text, level in dict(column.recode).items())
        recoded = ("; whatever their case and the blanks around them" if column.loose else "") + (
            spelt and f"; {spelt}"
        )
        return f"{'in this order ' if column.ordered else ''}{shown}{missing}{recoded}"
    lower, upper = column.bounds
    missing += "" if column.form is None else f", written as {column.form!r}"
    return f"from {column.shown(lower)} to {column.shown(upper)}, in {column.size - column.missing} bins{missing}"


@contextmanager
def _readable_by(mode: int) -> Iterator[None]:
    """Make files inside the block readable and writable by those that ``mode`` names, from the moment they are made."""
    before = os.umask(~mode & 0o777)
    try:
        yield
    finally:
        os.umask(before)


def _check_target(out: Path | None, force: bool) -> None:
    """Refuse an unusable output file before reading data or spending anything."""
    from escudo.errors import InputError

    if out is None:
        return
    if out.suffix.lower() not in (".toml", ".json"):
        raise InputError(f"cannot write a schema to '{out}': the name must end in .toml or .json.")
    try:
        taken = out.exists()
    except OSError as error:  # such as a name that is too long
        raise InputError(f"cannot write '{out}': {error.strerror}.") from None
    if taken and not force:
        raise InputError(f"'{out}' exists; choose another name, or pass --force to replace it.")
    if not out.parent.is_dir():
        raise InputError(f"cannot write '{out}': the folder '{out.parent}' does not exist.")


def _written(schema: Schema | LinkedSchema, out: Path | None, notice: str, *then: str, force: bool) -> Answer:
    """Write a schema to its file, or show it: as TOML for people, so that it can be piped into a file."""
    if out is not None:
        schema.write(out, overwrite=force)
    payload: dict[str, Any] = {
        "notice": notice,
        "file": None if out is None else str(out),
        "schema": schema.to_dict(),
        "notes": list(schema.notes),
        "unconfirmed": list(schema.unconfirmed),
    }
    if out is None:
        return Answer(payload, lambda console: console.print(schema.to_toml(), markup=False, end=""))
    lead = f"Wrote {out}: {number_of(len(schema), 'column')}, {len(schema.unconfirmed)} not confirmed."
    return Answer(payload, "\n".join(filter(None, (lead, notice, *then))))


def _changed(schema: Schema | LinkedSchema, out: Path, notes: Sequence[str]) -> Answer:
    payload = {"file": str(out), "notes": list(notes), "unconfirmed": list(schema.unconfirmed)}
    state = f"not confirmed: {first_of(schema.unconfirmed)}" if schema.unconfirmed else "all confirmed"
    return Answer(payload, "\n".join((*notes, f"Wrote {out}: {number_of(len(schema), 'column')}, {state}.")))


def _opened(data: str, engine: str | None) -> Any:  # Any: a frame of any engine, or the path of a file
    """Return a table in a database or by another engine, opened; a file by its path, to be read as it is written.

    What is copied into a file goes by its name, too.
    """
    from escudo.table import open_data

    elsewhere = "://" in data and not data.startswith("sqlite:")
    return open_data(data, engine=engine) if elsewhere or engine not in (None, "polars") else data


def _how_to_confirm(data: str, out: Path | None) -> str:
    file = to_type(out or "schema.toml")
    return (
        "Read the file, correct it, then confirm what is public knowledge, or learn what is not:\n"
        f"  escudo schema confirm {file}\n"
        f"  escudo schema learn {to_type(without_secrets(data))} --schema {file} --epsilon 0.1 --delta 1e-7"
    )


def _print_linked(console: Console, schema: LinkedSchema) -> None:
    for name in schema.tables:
        console.print(f"— {name}", style="bold", markup=False)
        _print_schema(console, schema.schema_of(name), linked=True)
    most = ", ".join(
        f"{child.most} of {child.name}" + (f" in each of {child.parent}" if child.parent else "")
        for child in schema.children
    )
    console.print(f"Protects one person with all rows; at most {most} count.", markup=False)
    if not schema.confirmed:
        console.print(f"Not confirmed: {', '.join(schema.unconfirmed)} (escudo schema confirm).", markup=False)


def _print_schema(console: Console, schema: Schema, *, linked: bool = False) -> None:
    from rich.text import Text

    def cells(column: Column) -> tuple[str | Text, ...]:
        size = "open" if column.open else f"{column.size:,}"
        confirmed = Text("yes") if column.confirmed else Text("no", style="bold red")
        return column.name, _type_of(column), size, _values_of(column), confirmed

    titles = ("column", "type", "cells", "values", "confirmed")
    settings = {one: {"justify": "right" if one == "cells" else "left", "overflow": "fold"} for one in titles}
    console.print(plain_table(settings, map(cells, schema.fields)))
    if linked:
        return
    unit = (
        "one row"
        if schema.person_id is None
        else (f"one person, by {schema.person_id!r}, with at most {number_of(schema.max_rows_per_person, 'row')}")
    )
    console.print(f"Protects {unit}.   Fingerprint {schema.fingerprint[:16]}", markup=False)
    others = ("person_id", "max_rows_per_person", "rules")
    text = {key: value for key, value in schema.to_dict().get("table", {}).items() if key not in others}
    if text:
        said = ", ".join(f"{key} {value!r}" for key, value in text.items())
        console.print(f"CSV and TSV files are read with {said}.", markup=False)
    if not schema.confirmed:
        console.print("Not confirmed: releases refuse this schema (escudo schema confirm, or learn).", markup=False)


def _type_of(column: Column) -> str:
    from escudo.table import Categorical

    if isinstance(column, Categorical):
        return "ordinal" if column.ordered else "boolean" if column.kind == "boolean" else "categorical"
    return "date" if column.date is not None else "integer" if column.integer else "numeric"


def _values_of(column: Column) -> str:
    from escudo.table import Categorical

    if column.open:
        return "to be learnt"
    missing = " or missing" if column.missing else ""
    if isinstance(column, Categorical):
        shown = ", ".join(map(str, column.levels[:6])) + (", ..." if len(column.levels) > 6 else "")
        return shown + missing
    low, high = (f"{bound:g}" if column.date is None else column.shown(bound) for bound in column.bounds)
    derived = "" if column.derived is None else f", {' - '.join(column.derived)}"
    written = "" if column.form is None else f", written as {column.form}"
    return f"{column.bins:,} {'private ' if column.private else ''}bins on [{low}, {high}]{missing}{derived}{written}"


def _print_check(console: Console, report: SchemaCheck) -> None:
    console.print(report.notice, style="bold", markup=False)
    for finding in () if report.file is None else report.file.findings:
        console.print(f"The file: {finding}", markup=False)
    if report.empty:
        console.print("The table has no rows: nobody is in it.", markup=False)
    for column in report.columns:
        console.print(f"{column.name}: {'; '.join(column.findings) or 'fits'}", markup=False)
    for rule, rows in report.broken:
        broken = f"{number_of(rows, 'row')} {'breaks' if rows == 1 else 'break'} it" if rows else "no row breaks it"
        console.print(f"The rule {rule}: {broken}", markup=False)
    for each in report.advice:
        console.print(f"Note: {each}", markup=False)
    if report.person is not None and report.person.problem is None:
        console.print(
            f"{100 * report.person.people_over:.3g} % of people have more rows than count; "
            f"{100 * report.person.rows_dropped:.3g} % of rows will not count.",
            markup=False,
        )
