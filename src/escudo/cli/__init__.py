"""The command line: reads arguments, asks, and shows the answer; no logic of its own.

Exit codes: 0 done, 2 bad input, 3 refused for safety, 4 refused for budget, 5 a check found a violation, 1 our bug; 128
and the signal's number (130 for Ctrl-C) if it was told to stop.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from escudo.cli import (
    _audit,
    _causal,
    _custodian,
    _effects,
    _graph,
    _ledger,
    _machine,
    _release,
    _run,
    _schema,
    _what_if,
)
from escudo.cli._console import misuse, report_bug, report_error, stopping_cleanly, warning_in_words
from escudo.errors import EscudoError

__all__ = ["app", "main"]

_GARBAGE = 100_000
"""New objects after which cycles among them are looked for: at every 700, a tenth of a wide release goes there."""

_ELSEWHERE = {
    **{name: f"escudo schema {name}" for name in ("draft", "learn", "check", "confirm")},
    **{name: f"escudo ledger {name}" for name in ("open", "history", "verify")},
    "account": "escudo ledger",
    "plan": "--plan of the command that would spend, such as escudo release ... --plan",
    "synthesize": "escudo release",
    "generate": "escudo release",
    "evaluate-privately": "escudo release --evaluate",
    "effect-of": "escudo effect",
    "orient": "escudo direction --all-pairs",
    "budget": "escudo ledger",
    "version": "escudo --version",
}
"""What there is instead of commands that somebody may look for who knows the names in Python, or those in groups."""


class _Commands(TyperGroup):
    """The commands, and a word on where to find what is none of them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # typer has its own copy of click's types
        word = args[0] if args else ""
        if word not in self.commands and (instead := _ELSEWHERE.get(word.replace("_", "-"))):
            ctx.fail(f"No such command {word!r}. There is {instead}.")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="escudo",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 bad input, 3 refused for safety, 4 refused for budget, 5 violation found, 1 our bug.",
)
app.command("release")(_release.release)
app.command("forecast")(_release.forecast)
app.command("run")(_run.run)
app.command("sample")(_release.sample)
app.command("what-if")(_what_if.what_if)
app.command("evaluate")(_custodian.evaluate)
app.command("attack")(_custodian.attack)
app.command("direction")(_causal.direction)
app.command("discover")(_causal.discover)
app.command("effect")(_causal.effect)
app.command("audit")(_audit.audit)
app.command("museum")(_audit.museum)
app.add_typer(_schema.app, name="schema")
app.add_typer(_graph.app, name="graph")
app.add_typer(_ledger.app, name="ledger")
app.command("effects")(_effects.effects)
app.command("definitions")(_effects.definitions)
app.command("studio")(_machine.studio)
app.command("doctor")(_machine.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # slow to import

        typer.echo(f"escudo {version('escudo')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show Python tracebacks; may print private values.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Say something true about cause and effect in a private table, without exposing anyone."""


def main() -> None:
    """Run the command line; turn escudo's errors into one paragraph and an exit code."""
    gc.set_threshold(_GARBAGE)
    as_json, debug = "--json" in sys.argv[1:], "--debug" in sys.argv[1:]
    try:
        with stopping_cleanly(), warning_in_words():
            ended = app(prog_name="escudo", standalone_mode=debug or not as_json)
        sys.exit(ended if isinstance(ended, int) else 0)  # with --json, an exit code is returned
    except EscudoError as error:
        if debug:
            raise
        report_error(error, as_json)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseException as error:  # a crash inside polars is no Exception
        if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
            sys.exit(141)  # nobody reads any more: as of programs that a closed pipe ends
        if debug or isinstance(error, SystemExit):
            raise
        if isinstance(error, typer.Abort):  # nobody answered a question
            sys.exit(1)
        if (code := misuse(error)) is not None:
            sys.exit(code)
        report_bug(error, as_json)
        sys.exit(1)
