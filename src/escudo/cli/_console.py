"""What every command shows the same way: text or JSON, the plan first, errors as one clear paragraph."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from escudo._card import printable
from escudo.errors import EscudoError, LedgerWarning, RefusedError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from escudo.privacy import Account, Guarantee, Plan
    from escudo.releasing import Resumption


def flag(name: str, help: str) -> Any:
    """Return an option that is given or not; what it says of itself shows no value."""
    return typer.Option(name, metavar="", help=help)


JsonFlag = Annotated[bool, flag("--json", "Print one JSON object instead of text.")]


def console(*, stderr: bool = False) -> Console:
    """Return a console for people: colours in a terminal, plain text when piped.

    Names and levels come from files that somebody else may have made, so whatever could steer a terminal, or turn
    text around, is shown as a mark.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **options):
                yield segment if segment.control else Segment(printable(segment.text, also="\n\t"), segment.style)

    return Screen(stderr=stderr, highlight=False, soft_wrap=not sys.stdout.isatty())


class Stopped(KeyboardInterrupt):
    """The process was told to end, by Ctrl-C or by a signal; it ends with the code that shells give for the signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.exit_code = 128 + number


@contextmanager
def stopping_cleanly() -> Iterator[None]:
    """Let SIGTERM and SIGHUP inside the block do what Ctrl-C does: drafts are removed, what was spent is marked failed.

    The first signal raises :class:`Stopped` and later ones are ignored, so that tidying up is not cut short; whoever
    cannot wait has SIGKILL. A signal that is ignored already stays so (``nohup``).

    Raises:
        SystemExit: With 128 + the signal's number, if one came.
    """
    told: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        told.append(number)
        raise Stopped(number)

    known = _signals("SIGTERM", "SIGHUP")
    before = {one: signal.getsignal(one) for one in known if signal.getsignal(one) is signal.SIG_DFL}
    for one in before:
        signal.signal(one, stop)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):  # typer ends with 130 after any interrupt
        if told:
            sys.exit(128 + told[0])
        raise
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _signals(*names: str) -> list[signal.Signals]:
    """Return those of the signals that this system has; none in a thread, which cannot handle them."""
    main = threading.current_thread() is threading.main_thread()
    return [getattr(signal, name) for name in names if main and hasattr(signal, name)]


@contextmanager
def to_the_end() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and SIGHUP inside the block: what it ends can no longer be undone, and is soon done.

    A signal that came before raises here, at the latest, and nothing of the block happens.
    """
    known = _signals("SIGINT", "SIGTERM", "SIGHUP")
    before = {one: handler for one in known if callable(handler := signal.getsignal(one))}
    try:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@dataclass(frozen=True)
class Answer:
    """What a command has to say.

    Attributes:
        payload: For programs, which ask with ``--json``.
        words: For people: a text, or what prints it.
        ending: Raised when it is shown: an exit code, or what was found to be wrong.
    """

    payload: Mapping[str, Any]
    words: str | Callable[[Console], None]
    ending: Exception | None = None

    def show(self, as_json: bool) -> None:
        """Print it, and end as it says."""
        if as_json:
            sys.stdout.write(
                json.dumps(self.payload, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
            )
        else:
            self.say(console())
        if self.ending is not None:
            raise self.ending

    def say(self, screen: Console) -> None:
        """Print it for people."""
        from rich.text import Text

        if isinstance(self.words, str):
            screen.print(Text(self.words))
        else:
            self.words(screen)


@dataclass(frozen=True)
class Filed:
    """An answer with files about it: one that cannot be written does not lose the answer, which was paid or waited for.

    Attributes:
        tell: Returns the answer; told whether the files were written.
        write: Writes them.
    """

    tell: Callable[[bool], Answer]
    write: Callable[[], None]

    def show(self, as_json: bool) -> None:
        """Write the files and print the answer, in any case."""
        try:
            self.write()
        except BaseException:
            replace(self.tell(False), ending=None).show(as_json)
            raise
        self.tell(True).show(as_json)


def planned(plan: Plan, account: Account, resumption: Resumption | None, *, stop: bool) -> Answer:
    """Return a plan and where it would leave the account, to be shown before anything is spent."""
    standing = _standing(account, plan, resumption)
    return Answer(
        {
            "plan": plan.to_json(),
            **({} if plan.forecast is None else {"forecast": plan.forecast.to_json()}),
            **({} if plan.passes is None else {"passes": plan.passes.to_json()}),
            "ledger": standing,
            "spent": False,
        },
        lambda screen: _print_plan(screen, plan, standing, stop),
    )


def _standing(account: Account, plan: Plan, resumption: Resumption | None) -> dict[str, Any] | None:
    """Return where the account stands and where this plan would take it; None if nothing is recorded."""
    from escudo.privacy import LedgerAccount

    if not isinstance(account, LedgerAccount) or plan.event is None:
        return None
    event = plan.event if resumption is None else resumption.due
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
        "checkpoint": None if resumption is None else str(resumption.checkpoint),
        "needs_again": resumption is not None and event is not None and not resumption.again,
    }


def _print_plan(screen: Console, plan: Plan, standing: dict[str, Any] | None, stop: bool) -> None:
    from escudo.privacy import percent_up, shown_down

    screen.print(str(plan), markup=False)
    if plan.event is None:
        line = "nothing to charge"
    elif standing is None:
        line = "none: what is spent is not recorded anywhere (see --dataset)"
    else:
        line = f"{standing['dataset']}: {percent_up(standing['used'])} of ε = {shown_down(standing['cap'])} used; this "
        line += _asks(standing)
    screen.print(f"Ledger   {line}", markup=False)
    if stop:
        screen.print("Nothing was spent. Leave out --plan to go on.")


def _asks(standing: dict[str, Any]) -> str:
    """Return what a plan asks for, and what the answer would be."""
    from escudo.privacy import percent_up

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


def print_promise(screen: Console, guarantee: Guarantee) -> None:
    """Say what an answer promises, or that it must not leave the house."""
    if guarantee.none:
        screen.print("NOT FOR RELEASE: made without privacy, it may give away any row of the table.", style="bold red")
    elif not guarantee.for_release:
        screen.print("NOT FOR RELEASE: the noise was seeded, so anyone can take it off again.", style="bold red")
    screen.print(f"What it means: {guarantee}", markup=False)


def plain_table(columns: Mapping[str, Mapping[str, Any]], rows: Iterable[Iterable[str | Text]], **look: Any) -> Table:
    """Return a table of titled columns with their settings; without lines, unless ``look`` says so."""
    from rich.table import Table
    from rich.text import Text

    table = Table(**{"box": None, "pad_edge": False, "header_style": "bold", "show_edge": False, **look})
    for title, settings in columns.items():
        table.add_column(title, **settings)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


@contextmanager
def warning_in_words() -> Iterator[None]:
    """Show escudo's own warnings inside the block as a line on standard error, and others as Python does."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, LedgerWarning):
                console(stderr=True).print(f"Warning: {message}", markup=False, style="yellow")
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


def report_error(error: EscudoError, as_json: bool) -> None:
    """Print a refusal or an input error on standard error, without a traceback."""
    refused = isinstance(error, RefusedError) or error.exit_code == 4
    body = {"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
    _complain("Refused: " if refused else "Error: ", body, as_json)


def misuse(error: BaseException) -> int | None:
    """Print as JSON what is wrong with the words of a command and return its exit code; None if that is not it."""
    said, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
    if said is None or code is None:  # typer has its own copy of click so there is no one class
        return None
    _complain("", {"error": "UsageError", "message": said(), "exit_code": code}, as_json=True)
    return int(code)


def report_bug(error: BaseException, as_json: bool) -> None:
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
    _complain("Internal error: ", {"error": "bug", "message": message, "exit_code": 1}, as_json)


def _complain(lead: str, body: dict[str, Any], as_json: bool) -> None:
    from rich.text import Text

    if as_json:
        sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
    else:
        console(stderr=True).print(Text(lead, style="bold red") + Text(body["message"], style="default"))
