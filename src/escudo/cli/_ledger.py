"""``escudo ledger``: open accounts, and see, check and export what was spent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from escudo._card import number_of
from escudo.cli._console import Answer, JsonFlag, console, plain_table
from escudo.cli._options import DEFAULT_LEDGER, command

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from escudo.privacy import AccountInfo, Ledger, LedgerRow, Spending

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="See who spent what on which dataset.",
    epilog="The ledger is named by --ledger, else by ESCUDO_LEDGER, else it is escudo-ledger.db in this folder.",
)

LedgerUrl = Annotated[
    str,
    typer.Option(
        "--ledger", envvar="ESCUDO_LEDGER", metavar="URL", help="sqlite:///file.db or postgresql://user@host/database."
    ),
]
OneDataset = Annotated[str | None, typer.Argument(metavar="DATASET", help="One dataset; all if left out.")]


class Format(StrEnum):
    """What ``export`` writes."""

    jsonl = "jsonl"
    json = "json"
    csv = "csv"


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """What ``escudo ledger open`` is told."""

    dataset: Annotated[str, typer.Argument(help="Name of the account, one per private table.")]
    epsilon: Annotated[float, typer.Option(help="Cap on the loss of all releases together.")]
    delta: Annotated[float, typer.Option(help="The δ of the total; 0 admits pure-ε releases only.")] = 0.0
    relation: Annotated[str, typer.Option(help="replace_one or add_remove.")] = "replace_one"
    unit: Annotated[str, typer.Option(help="Whom to protect: row or person.")] = "row"
    max_rows_per_person: Annotated[
        int | None, typer.Option(help="Most rows of one person that count; with --unit person.")
    ] = None
    spending: Annotated[
        str,
        typer.Option(
            help="adaptive (answers may decide what is asked next) or planned (amounts are settled beforehand)."
        ),
    ] = "adaptive"
    slack_share: Annotated[
        float | None, typer.Option(help="Share of δ for mechanisms with a δ of their own; 0.5 if left out.")
    ] = None
    order: Annotated[
        float | None,
        typer.Option(help="Order of the cap's Rényi divergence; the best for Gaussian noise by default."),
    ] = None
    ledger: LedgerUrl = DEFAULT_LEDGER


@app.command("open", epilog="Example: escudo ledger open visits-2026 --epsilon 3 --delta 1e-6")
@command
def open_account(asked: OpenOptions) -> Answer:
    """Open a dataset's account, with a cap that never changes."""
    from escudo.privacy import Ledger, parse_relation, parse_unit

    with Ledger(asked.ledger) as book:
        account = book.open(
            asked.dataset,
            epsilon=asked.epsilon,
            delta=asked.delta,
            relation=parse_relation(asked.relation),
            unit=parse_unit(asked.unit, asked.max_rows_per_person),
            max_rows_per_person=asked.max_rows_per_person,
            spending=cast("Spending", asked.spending),  # checked there
            slack_share=asked.slack_share,
            order=asked.order,
        )
        info = book.info(asked.dataset)

    said = f"Account {account.dataset!r} is open: {account.terms}.\n{info.promise}\nLedger   {book.name}"
    return Answer(_account_json(info), said)


@app.command(epilog="Example: escudo ledger show visits-2026")
@command
def show(dataset: OneDataset = None, ledger: LedgerUrl = DEFAULT_LEDGER) -> Answer:
    """Show caps, how much of them is used and what is left."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        infos = book.datasets() if dataset is None else [book.info(dataset)]
        anchor = book.anchor
        head = anchor["head"]

    def human(out: Console) -> None:
        out.print(_accounts_table(infos))
        if dataset is not None:
            for line in _words(infos[0]):
                out.print(line, markup=False)
        out.print(
            f"Ledger {book.name}\nHead   {head}   (row {anchor['rows']}; keep it elsewhere, for 'escudo ledger verify "
            "--head')",
            markup=False,
        )

    return Answer({"ledger": book.name, **anchor, "accounts": [_account_json(info) for info in infos]}, human)


@app.command(epilog="Example: escudo ledger history visits-2026")
@command
def history(dataset: OneDataset = None, ledger: LedgerUrl = DEFAULT_LEDGER) -> Answer:
    """List every account opened, every spend and every failed release."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        rows = book.history(dataset)
    payload = {"ledger": book.name, "rows": [row.to_json() for row in rows]}

    def human(out: Console) -> None:
        from escudo.privacy import cost_text

        out.print(_history_table(rows))
        if any(", " in cost_text(row.event) for row in rows if row.kind == "spend"):
            out.print(
                "A cost in several notions (ε of choices, ρ or μ of Gaussian noise) is not the ε that was asked for, "
                "which may be less. 'escudo ledger show' says what all spends come to.",
                markup=False,
            )

    return Answer(payload, human)


@app.command(epilog="Example: escudo ledger verify --head 5e88...")
@command
def verify(
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head you kept: finds a ledger rewritten as a whole.")
    ] = None,
    expect: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="What was kept: a release.json, 'show --json' or a backup; may be repeated."),
    ] = None,
    exported: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Check a backup or export (jsonl), not a ledger.")
    ] = None,
    ledger: LedgerUrl = DEFAULT_LEDGER,
) -> Answer:
    """Check that no row was edited, removed, moved or added, and that no cap is passed (exit 5 if so)."""
    from escudo.errors import LedgerCorruptError
    from escudo.privacy import Ledger, verify_lines

    kept: list[str | None] = [_kept_head(file) for file in expect or []]
    kept += [] if head is None and kept else [head]
    with Ledger(ledger) as book:
        check = book.verify if exported is None else partial(verify_lines, exported)
        for wanted in kept:
            found = check(wanted)
            if found.problem is not None:
                raise LedgerCorruptError(found.problem)
    name = book.name if exported is None else str(exported)

    payload = {"ledger": name, "ok": True, "rows": found.rows, "head": found.head}
    return Answer(payload, f"Ledger holds good: {number_of(found.rows, 'row')}.\nHead   {found.head}")


def _rows_of(ledger: str, work: Callable[[Ledger], int]) -> tuple[str, int]:
    """Do something with all rows of a ledger; return its name, and how many they were."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        rows = work(book)
    return book.name, rows


@app.command(epilog="Example: escudo ledger backup ledger-2026-11.jsonl")
@command
def backup(
    out: Annotated[Path, typer.Argument(help="A new file; only its owner can read it.")],
    ledger: LedgerUrl = DEFAULT_LEDGER,
) -> Answer:
    """Write all rows to a file from which the ledger can be made again."""
    name, rows = _rows_of(ledger, lambda book: book.backup(out))
    return Answer({"ledger": name, "rows": rows, "file": str(out)}, f"Wrote {number_of(rows, 'row')} to {out}.")


@app.command(epilog="Example: escudo ledger restore ledger-2026-11.jsonl --ledger sqlite:///new.db")
@command
def restore(
    file: Annotated[Path, typer.Argument(help="What 'escudo ledger backup' wrote.")],
    ledger: LedgerUrl = DEFAULT_LEDGER,
) -> Answer:
    """Make a ledger again from a backup, with later rows that this machine has seen."""
    name, rows = _rows_of(ledger, lambda book: book.restore(file))
    return Answer(
        {"ledger": name, "rows": rows}, f"{number_of(rows, 'row')} {'is' if rows == 1 else 'are'} in {name} again."
    )


@app.command(epilog="Example: escudo ledger recover")
@command
def recover(ledger: LedgerUrl = DEFAULT_LEDGER) -> Answer:
    """Put rows back that this machine has seen and the ledger has lost."""
    name, rows = _rows_of(ledger, lambda book: book.recover())
    said = f"{number_of(rows, 'row')} {'was' if rows == 1 else 'were'} put back." if rows else "Nothing was missing."
    return Answer({"ledger": name, "rows": rows}, said)


@app.command(epilog="Example: escudo ledger upgrade")
@command
def upgrade(ledger: LedgerUrl = DEFAULT_LEDGER) -> Answer:
    """Bring a ledger that an older escudo made up to date."""
    name, rows = _rows_of(ledger, lambda book: book.upgrade())
    kept = f"{number_of(rows, 'row')} {'was' if rows == 1 else 'were'} kept"
    return Answer({"ledger": name, "rows": rows}, f"The ledger is up to date: {kept}.")


@app.command(epilog="Example: escudo ledger grant spender --ledger postgresql://owner@host/ledger")
@command
def grant(
    role: Annotated[str, typer.Argument(help="A PostgreSQL role.")],
    ledger: LedgerUrl = DEFAULT_LEDGER,
) -> Answer:
    """Let a PostgreSQL role read and spend, and neither change nor remove anything."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        book.grant(role)
    return Answer({"ledger": book.name, "role": role}, f"{role} may read {book.name} and spend from it.")


@app.command(epilog="Example: escudo ledger forget --ledger sqlite:///old.db")
@command
def forget(ledger: LedgerUrl = DEFAULT_LEDGER) -> Answer:
    """Let a new ledger begin where one was removed on purpose."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        book.forget()
    return Answer({"ledger": book.name}, f"A new ledger may begin at {book.name}.")


@app.command(epilog="Example: escudo ledger export --format csv --out ledger.csv")
@command
def export(
    form: Annotated[
        Format, typer.Option("--format", help="jsonl (a row on each line), json (one object) or csv.")
    ] = Format.jsonl,
    out: Annotated[Path | None, typer.Option(help="A new file; standard output if left out.")] = None,
    ledger: LedgerUrl = DEFAULT_LEDGER,
    as_json: JsonFlag = False,
) -> None:
    """Write all rows, hashes included, for an archive or an auditor; escudo ledger verify --export checks such a file.

    In csv, a text that a spreadsheet would run as a formula starts with an
    apostrophe.
    """
    from escudo.privacy import Ledger, as_lines

    with Ledger(ledger) as book:
        exported = book.export()
    written = {Format.jsonl: as_lines, Format.json: _as_json, Format.csv: _as_csv}
    text = written[Format.json if as_json else form](exported)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write_new(out, text)
        console(stderr=True).print(f"Wrote {number_of(len(exported['rows']), 'row')} to {out}.", markup=False)
    if exported["problem"]:
        console(stderr=True).print(f"Careful, the ledger is broken. {exported['problem']}", markup=False)


def _kept_head(file: Path) -> str:
    """Return the head in a file that was kept: a release's record, JSON, or JSON lines of which the first has it."""
    import json

    from escudo.errors import InputError

    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None
    for part in (text, text.partition("\n")[0]):
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("anchor", found) is None:
            raise InputError(f"{file} is the record of a release that no ledger paid for: it says nothing about one.")
        anchor = found.get("anchor", found) if isinstance(found, dict) else None
        if isinstance(anchor, dict) and "head" in anchor:
            return str(anchor["head"])
    raise InputError(
        f"{file} holds no head of a ledger; keep a release.json, or what 'escudo ledger show --json' prints."
    )


def _account_json(info: AccountInfo) -> dict[str, Any]:
    return {
        "dataset": info.dataset,
        "epsilon_cap": info.cap.epsilon,
        "used": info.used,
        "own_delta": info.own_delta,
        "own_delta_cap": info.own_delta_cap,
        "epsilon_left": info.remaining.epsilon,
        "epsilon_if_settled_beforehand": info.total.epsilon,
        "spending": info.spending,
        "promise": info.promise,
        "delta": info.cap.delta,
        "relation": info.cap.relation,
        "unit": info.cap.unit,
        "max_rows_per_person": info.cap.max_rows_per_person,
        "spends": info.spends,
        "failed": info.failed,
        "not_for_release": info.not_for_release,
        "opened_at": info.opened_at,
    }


def _words(info: AccountInfo) -> list[str]:
    """Return what the cap, the part that is used and the accountant's total mean."""
    from escudo.privacy import percent_up, shown_down, shown_up

    own = f"; of δ for mechanisms with their own, {info.own_delta:.3g} of {info.own_delta_cap:.3g}"
    total = f"ε = {shown_up(info.total.epsilon)}" + (f" at δ = {info.cap.delta:g}" if info.cap.delta else "")
    lines = [
        info.promise,
        f"{percent_up(info.used)} of the budget is used{own if info.cap.delta else ''}. The largest pure spend that "
        f"fits is ε = {shown_down(info.remaining.epsilon)}.",
    ]
    if info.spending == "adaptive" and info.spends:
        lines.append(
            f"Had all amounts been settled before the first release, these spends would total {total} "
            f"({info.total.accountant}). That is no promise where amounts were chosen on the way."
        )
    return lines


def _table(columns: Iterable[str], right: tuple[str, ...], rows: Iterable[Iterable[str]]) -> Table:
    from rich import box

    settings = {
        column: {
            "justify": "right" if column in right else "left",
            "overflow": "fold",
            "no_wrap": column in (*right, "time (UTC)"),
        }
        for column in columns
    }
    return plain_table(settings, rows, box=box.SIMPLE_HEAD, header_style=None)


def _accounts_table(infos: list[AccountInfo]) -> Table:
    from escudo.privacy import percent_up, shown_down

    def cells(info: AccountInfo) -> tuple[str, ...]:
        change = "replace" if info.cap.relation == "replace_one" else "add or remove"
        rows = "row" if info.cap.unit == "row" else f"person (≤ {number_of(info.cap.max_rows_per_person, 'row')})"
        notes = ["planned"] if info.spending == "planned" else []
        notes += [f"{info.failed} failed"] if info.failed else []
        notes += [f"{info.not_for_release} not for release"] if info.not_for_release else []
        return (
            info.dataset,
            shown_down(info.cap.epsilon),
            f"{info.cap.delta:g}",
            percent_up(info.used),
            shown_down(info.remaining.epsilon),
            str(info.spends),
            f"{change} one {rows}",
            ", ".join(notes),
        )

    numbers = ("cap ε", "δ", "used", "left ε", "spends")
    return _table(("dataset", *numbers, "neighbours", "notes"), numbers, map(cells, infos))


def _history_table(rows: list[LedgerRow]) -> Table:
    from escudo.privacy import cost_text

    failed = {row.payload["spend"] for row in rows if row.kind == "failed"}

    def cells(row: LedgerRow) -> tuple[str, ...]:
        payload, cost, notes = row.payload, "", []
        if row.kind == "open":
            cost = f"cap ε = {payload['epsilon']:g}, δ = {payload['delta']:g}"
        elif row.kind in ("failed", "mark", "resume", "finish"):
            notes = [f"row {payload['spend']}", payload.get("reason", "")]
        elif row.kind == "upgrade":
            notes = ["from format 1"]
        else:
            cost = cost_text(row.event)
            notes += ["failed"] if row.sequence in failed else []
            notes += [] if payload["for_release"] else ["not for release"]
            notes += [f"stated for {payload['converted_from']}"] if "converted_from" in payload else []
        when = row.recorded_at[:16].replace("T", " ")
        said = payload.get("purpose", ""), ", ".join(filter(None, notes))
        return str(row.sequence), when, row.dataset, row.kind, cost, *said

    titles = ("row", "time (UTC)", "dataset", "what", "cost", "purpose", "notes")
    return _table(titles, ("row",), map(cells, rows))


def _as_json(exported: dict[str, Any]) -> str:
    import json

    return json.dumps(exported, indent=2, ensure_ascii=False) + "\n"


def _as_csv(exported: dict[str, Any]) -> str:
    import csv
    import io

    from escudo._files import guarded

    text = io.StringIO()
    columns = ["sequence", "kind", "dataset", "recorded_at", "payload", "charge", "state", "previous", "hash"]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in exported["rows"]:
        writer.writerow({name: guarded(cell) if isinstance(cell, str) else cell for name, cell in row.items()})
    return text.getvalue()


def _write_new(path: Path, text: str) -> None:
    from escudo.errors import InputError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists already. Name a new file; nothing was written.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
