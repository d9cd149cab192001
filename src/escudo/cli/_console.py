"""What every command shares: the two output forms, and errors as one clear paragraph."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo.errors import EscudoError, RefusedError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["JsonFlag", "console", "emit", "report_bug", "report_error"]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def console(*, stderr: bool = False) -> Console:
    """Return a console for people: colours in a terminal, plain text when piped."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=not sys.stdout.isatty())


def emit(payload: Mapping[str, Any], *, as_json: bool, human: Callable[[Console], None]) -> None:
    """Print ``payload`` as JSON for programs, or call ``human`` with a console for people."""
    if as_json:
        sys.stdout.write(json.dumps(payload, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n")
    else:
        human(console())


def report_error(error: EscudoError, *, as_json: bool) -> None:
    """Print a refusal or an input error on standard error, without a traceback."""
    refused = isinstance(error, RefusedError) or error.exit_code == 4
    if as_json:
        body = {"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
        sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    from rich.text import Text

    lead = "Refused: " if refused else "Error: "
    console(stderr=True).print(Text(lead, style="bold red") + Text(str(error), style="default"))


def report_bug(error: BaseException, *, as_json: bool) -> None:
    """Say that escudo itself failed, naming the place in the code but no value: a message may hold private data."""
    place = "unknown place"
    for frame in traceback.extract_tb(error.__traceback__):
        if "escudo" in Path(frame.filename).parts:
            place = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
    message = (
        f"This is a bug in escudo ({type(error).__name__} at {place}). "
        "Please report it with that place and the command's name. What was spent before it stays in the ledger. "
        "Run the command again as 'escudo --debug ...' to see the details, which may contain private values."
    )
    if as_json:
        sys.stderr.write(json.dumps({"error": "bug", "message": message, "exit_code": 1}) + "\n")
        return
    from rich.text import Text

    console(stderr=True).print(Text("Internal error: ", style="bold red") + Text(message, style="default"))
