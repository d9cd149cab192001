"""The command line as a whole: exit codes, one clear paragraph per error, no traceback, no private value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import escudo.cli as cli
from escudo.errors import (
    BudgetExceededError,
    EscudoError,
    GraphError,
    LedgerCorruptError,
    LedgerError,
    NotInPlanError,
    RefusedError,
)

SECRET = "jane.doe@example.org"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, error: BaseException | None = None) -> int:
    """Run the command line in this process and return its exit code; ``error`` is raised instead of a command."""
    monkeypatch.setattr(sys, "argv", ["escudo", *arguments])
    if error is not None:

        def fail(**_: object) -> None:
            raise error

        monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    code = caught.value.code
    return 0 if code is None else int(code)


OVER_BUDGET = BudgetExceededError("no.", dataset="d", requested=1, spent=1, left=0, cap=1)


@pytest.mark.parametrize(
    ("error", "code", "lead"),
    [
        (GraphError("a cycle."), 2, "Error: a cycle."),
        (LedgerError("read-only."), 2, "Error: read-only."),
        (RefusedError("not confirmed."), 3, "Refused: not confirmed."),
        (NotInPlanError("not shown."), 3, "Refused: not shown."),
        (OVER_BUDGET, 4, "Refused: no."),
        (LedgerCorruptError("row 3 was edited."), 5, "Error: row 3 was edited."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_is_one_paragraph_and_its_own_exit_code(
    error: EscudoError, code: int, lead: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, error=error) == code
    shown = capsys.readouterr()
    assert shown.err.strip() == lead
    assert shown.out == ""


@pytest.mark.parametrize("arguments", [["--help"], ["museum", "--list"]])
def test_a_closed_pipe_is_no_bug_and_no_success(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-c", "from escudo.cli import main; main()", *arguments]
    ended = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, check=False, text=True)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["release"], "Missing argument 'DATA'"),
        (["sample", "model", "--rows", "many"], "--rows"),
        (["schema", "show", "--nosuch"], "--nosuch"),
        (["nosuch"], "nosuch"),
    ],
)
def test_with_json_words_that_are_no_command_are_one_object_too(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words, "--json") == 2
    shown = capsys.readouterr()
    told = json.loads(shown.err)
    assert (told["error"], told["exit_code"], shown.out) == ("UsageError", 2, "")
    assert said in told["message"]


def test_with_json_exit_codes_and_answers_are_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "museum", "--list", "--json") == 0
    assert json.loads(capsys.readouterr().out)
    assert run(monkeypatch, "--json", error=typer.Abort()) == 1
    monkeypatch.setattr(cli, "app", lambda **_: 5)
    assert run(monkeypatch, "--json") == 5


def test_with_json_an_error_is_one_object(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--json", error=GraphError("a cycle.")) == 2
    assert json.loads(capsys.readouterr().err) == {"error": "GraphError", "message": "a cycle.", "exit_code": 2}


PANIC = type("PanicException", (BaseException,), {})  # what a crash inside polars is called


@pytest.mark.parametrize("kind", [ValueError, PANIC])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_our_own_bug_is_exit_1_and_shows_no_value(
    form: tuple[str, ...],
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *form, error=kind(f"could not convert {SECRET}")) == 1
    shown = capsys.readouterr()
    assert SECRET not in shown.err + shown.out
    assert kind.__name__ in shown.err
    assert "--debug" in shown.err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["escudo", "--debug"])

    def fail(**_: object) -> None:
        raise ValueError("details")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(ValueError, match="details"):
        cli.main()


def test_an_interrupt_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, error=KeyboardInterrupt()) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_real_bad_file_is_exit_2_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "clinic.dot"
    graph.write_text("digraph { smoke -> lung; lung -> cough; cough -> smoke }")
    assert run(monkeypatch, "graph", "check", str(graph)) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "has a cycle" in message
    assert "remove one of these arrows" in message


def test_an_unknown_command_is_exit_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "grahp") == 2


def test_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("escudo ")


@pytest.mark.parametrize(
    "command",
    [("schema",), ("schema", "learn"), ("graph",), ("graph", "convert"), ("ledger",), ("ledger", "open"), ("effects",)],
)
def test_every_command_explains_itself(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *command, "--help") == 0
    assert "Usage: escudo" in capsys.readouterr().out


def test_no_help_text_has_brackets_that_are_taken_for_colours() -> None:
    found = []
    waiting = [typer.main.get_command(cli.app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        found += [(command.name, one.name) for one in command.params if "[" in (getattr(one, "help", None) or "")]
        assert "[" not in (command.help or "")
    assert not found


def test_no_name_steers_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from escudo.cli._console import console, report_error
    from escudo.errors import InputError

    evil = "\x1b]0;title\x07\x1b[31mred\u202e"
    table = Table("one", evil)
    table.add_row(Text(evil), evil)
    screen = console()
    for thing in (evil, Text(evil), table):
        screen.print(thing, markup=False)
    report_error(InputError(f"no column {evil}."), False)
    captured = capsys.readouterr()
    for shown in (captured.out, captured.err):
        assert "red" in shown
        assert not set(shown) & set("\x1b\x07\u202e")


@pytest.mark.parametrize(
    ("word", "there"),
    [("draft", "escudo schema draft"), ("plan", "escudo release ... --plan"), ("effect_of", "escudo effect"),
     ("account", "escudo ledger"), ("history", "escudo ledger history")],
)  # fmt: skip
def test_who_looks_for_a_command_under_another_name_is_told_where_it_is(
    word: str, there: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(monkeypatch, word, "visits.csv") == 2
    assert f"No such command '{word}'. There is " in (told := capsys.readouterr().err)
    assert there in told
    assert cli._ELSEWHERE.keys().isdisjoint(command.name for command in cli.app.registered_commands)
