"""``escudo ledger``: open accounts, and see, check and export what was spent."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from escudo.cli._console import JsonFlag, console, emit

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from escudo.privacy import AccountInfo, LedgerRow
    from escudo.privacy._tally import Spending

__all__ = ["app"]

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
DEFAULT = "sqlite:///escudo-ledger.db"


class Format(StrEnum):
    """What ``export`` writes."""

    json = "json"
    csv = "csv"


@app.command("open", epilog="Example: escudo ledger open visits-2026 --epsilon 3 --delta 1e-6")
def open_account(
    dataset: Annotated[str, typer.Argument(help="Name of the account, one per private table.")],
    epsilon: Annotated[float, typer.Option(help="Cap on the loss of all releases together.")],
    delta: Annotated[float, typer.Option(help="The δ of the total; 0 admits pure-ε releases only.")] = 0.0,
    relation: Annotated[str, typer.Option(help="replace_one or add_remove.")] = "replace_one",
    unit: Annotated[str, typer.Option(help="Whom to protect: row or person.")] = "row",
    max_rows_per_person: Annotated[
        int | None, typer.Option(help="Most rows of one person that count; with --unit person.")
    ] = None,
    spending: Annotated[
        str,
        typer.Option(
            help="adaptive (answers may decide what is asked next) or planned (amounts are settled beforehand)."
        ),
    ] = "adaptive",
    slack_share: Annotated[
        float | None, typer.Option(help="Share of δ for mechanisms with a δ of their own; 0.5 if left out.")
    ] = None,
    order: Annotated[
        float | None,
        typer.Option(help="Order of the cap's Rényi divergence; the best for Gaussian noise by default."),
    ] = None,
    ledger: LedgerUrl = DEFAULT,
    as_json: JsonFlag = False,
) -> None:
    """Open a dataset's account, with a cap that never changes."""
    from escudo.privacy import Ledger, parse_unit

    with Ledger(ledger) as book:
        account = book.open(
            dataset,
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            unit=parse_unit(unit, max_rows_per_person),
            max_rows_per_person=max_rows_per_person,
            spending=cast("Spending", spending),  # checked there
            slack_share=slack_share,
            order=order,
        )
        info = book.info(dataset)

    def human(out: Console) -> None:
        out.print(f"Account {account.dataset!r} is open: {account.terms}.", markup=False)
        out.print(info.promise, markup=False)
        out.print(f"Ledger   {book.name}", markup=False)

    emit(_account_json(info), as_json=as_json, human=human)


@app.command(epilog="Example: escudo ledger show visits-2026")
def show(dataset: OneDataset = None, ledger: LedgerUrl = DEFAULT, as_json: JsonFlag = False) -> None:
    """Show caps, how much of them is used and what is left."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        infos = book.datasets() if dataset is None else [book.info(dataset)]
        head = book.head

    def human(out: Console) -> None:
        out.print(_accounts_table(infos))
        if dataset is not None:
            for line in _words(infos[0]):
                out.print(line, markup=False)
        out.print(
            f"Ledger {book.name}\nHead   {head}   (keep it elsewhere, for 'escudo ledger verify --head')", markup=False
        )

    payload = {"ledger": book.name, "head": head, "accounts": [_account_json(info) for info in infos]}
    emit(payload, as_json=as_json, human=human)


@app.command(epilog="Example: escudo ledger history visits-2026")
def history(dataset: OneDataset = None, ledger: LedgerUrl = DEFAULT, as_json: JsonFlag = False) -> None:
    """List every account opened, every spend and every failed release."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        rows = book.history(dataset)
    payload = {"ledger": book.name, "rows": [row.to_json() for row in rows]}
    emit(payload, as_json=as_json, human=lambda out: out.print(_history_table(rows)))


@app.command(epilog="Example: escudo ledger verify --head 5e88...")
def verify(
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head you kept: finds a ledger rewritten as a whole.")
    ] = None,
    ledger: LedgerUrl = DEFAULT,
    as_json: JsonFlag = False,
) -> None:
    """Check that no row was edited, removed, moved or added, and that no cap is passed (exit 5 if so)."""
    from escudo.errors import LedgerCorruptError
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        found = book.verify(head)
    if found.problem is not None:
        raise LedgerCorruptError(found.problem)

    def human(out: Console) -> None:
        out.print(f"Ledger holds good: {found.rows} rows.\nHead   {found.head}", markup=False)

    payload = {"ledger": book.name, "ok": True, "rows": found.rows, "head": found.head}
    emit(payload, as_json=as_json, human=human)


@app.command(epilog="Example: escudo ledger export --format csv --out ledger.csv")
def export(
    form: Annotated[Format, typer.Option("--format", help="json or csv.")] = Format.json,
    out: Annotated[Path | None, typer.Option(help="A new file; standard output if left out.")] = None,
    ledger: LedgerUrl = DEFAULT,
    as_json: JsonFlag = False,
) -> None:
    """Write all rows, hashes included, for an archive or an auditor."""
    from escudo.privacy import Ledger

    with Ledger(ledger) as book:
        exported = book.export()
    text = _as_csv(exported["rows"]) if form is Format.csv and not as_json else _as_json(exported)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write_new(out, text)
        console(stderr=True).print(f"Wrote {len(exported['rows'])} rows to {out}.", markup=False)
    if exported["problem"]:
        console(stderr=True).print(f"Careful, the ledger is broken. {exported['problem']}", markup=False)


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
    from escudo.privacy._tally import percent_up, shown_down, shown_up

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


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in (*right, "time (UTC)"),
        )
    return table


def _accounts_table(infos: list[AccountInfo]) -> Table:
    from rich.text import Text

    from escudo.privacy._tally import percent_up, shown_down

    numbers = ("cap ε", "δ", "used", "left ε", "spends")
    table = _table("dataset", *numbers, "neighbours", "notes", right=numbers)
    for info in infos:
        change = "replace" if info.cap.relation == "replace_one" else "add or remove"
        rows = "row" if info.cap.unit == "row" else f"person (≤ {info.cap.max_rows_per_person} rows)"
        notes = ["planned"] if info.spending == "planned" else []
        notes += [f"{info.failed} failed"] if info.failed else []
        notes += [f"{info.not_for_release} not for release"] if info.not_for_release else []
        table.add_row(
            Text(info.dataset),
            shown_down(info.cap.epsilon),
            f"{info.cap.delta:g}",
            percent_up(info.used),
            shown_down(info.remaining.epsilon),
            str(info.spends),
            f"{change} one {rows}",
            ", ".join(notes),
        )
    return table


def _history_table(rows: list[LedgerRow]) -> Table:
    from rich.text import Text

    from escudo.privacy._plan_text import cost_text

    failed = {row.payload["spend"] for row in rows if row.kind == "failed"}
    table = _table("row", "time (UTC)", "dataset", "what", "cost", "purpose", "notes", right=("row",))
    for row in rows:
        payload, cost, notes = row.payload, "", []
        if row.kind == "open":
            cost = f"cap ε = {payload['epsilon']:g}, δ = {payload['delta']:g}"
        elif row.kind == "failed":
            notes = [f"row {payload['spend']}", payload["reason"]]
        else:
            cost = cost_text(row.event)
            notes += ["failed"] if row.sequence in failed else []
            notes += [] if payload["for_release"] else ["not for release"]
            notes += [f"stated for {payload['converted_from']}"] if "converted_from" in payload else []
        table.add_row(
            str(row.sequence),
            row.recorded_at[:16].replace("T", " "),
            Text(row.dataset),
            row.kind,
            cost,
            Text(payload.get("purpose", "")),
            Text(", ".join(filter(None, notes))),
        )
    return table


def _as_json(value: object) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _as_csv(rows: list[dict[str, Any]]) -> str:
    import csv
    import io

    text = io.StringIO()
    columns = ["sequence", "kind", "dataset", "recorded_at", "payload", "previous", "hash"]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
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
