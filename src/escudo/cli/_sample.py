"""``escudo sample``: rows from a released model, also under an intervention."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.cli._console import JsonFlag, emit

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["MOST_ROWS", "sample", "settings"]

MOST_ROWS = 1_000_000_000
"""More synthetic rows than this fit into no memory."""


def sample(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model folder of a release.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, max=MOST_ROWS, help="How many rows.")] = 10,
    do: Annotated[
        list[str] | None, typer.Option("--do", metavar="COLUMN=VALUE", help="Set a column by intervention.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--given", metavar="COLUMN=VALUE", help="Condition on a column's value.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For repeatable rows.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write .parquet or .csv instead of printing.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw rows from a released model, also under an intervention; free, as often as wanted.

    Example: escudo sample release/model --rows 5 --do smoke=yes
    """
    from escudo.errors import InputError
    from escudo.synthesis import load

    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out must end in .csv or .parquet; got {out.name!r}.")
    if out is not None and os.path.exists(out):  # unlike Path's, it takes any name
        raise InputError(f"'{out}' exists; choose another name.")
    drawn = load(model).sample(rows, do=settings("--do", do), given=settings("--given", given), seed=seed)
    if out is None:
        emit({"rows": drawn.to_dicts()}, as_json=as_json, human=lambda screen: _print_rows(screen, drawn))
        return
    try:
        with out.open("xb") as file:
            if out.suffix == ".csv":
                from escudo._files import write_csv

                write_csv(drawn, file)
            else:
                drawn.write_parquet(file)
    except OSError as error:
        raise InputError(f"cannot write '{out}': {error.strerror or 'input/output error'}.") from None
    emit(
        {"rows": rows, "file": str(out)},
        as_json=as_json,
        human=lambda screen: screen.print(f"{rows:,} rows written to {out}", markup=False),
    )


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


def _print_rows(screen: Console, frame: Any) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, dtype in frame.schema.items():
        table.add_column(Text(name), justify="right" if dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        table.add_row(*(Text(_shown(value)) for value in row))
    screen.print(table)


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
