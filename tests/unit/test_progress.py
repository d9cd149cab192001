"""Progress is shown to people and silent otherwise."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from escudo._card import tracking


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_written_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    with tracking("Measuring", total=3) as advance:
        advance(3)
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""


def test_a_terminal_sees_the_label_and_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with tracking("Measuring", total=3) as advance:
        advance(3)
    assert "Measuring" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()


def test_progress_goes_to_a_file_where_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "progress.jsonl"
    monkeypatch.setenv("ESCUDO_PROGRESS", str(file))
    with tracking("Measuring", total=3) as advance:
        for _ in range(3):
            advance(1, "tables")
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert told[0]["done"] == 0
    assert (told[-1]["label"], told[-1]["done"], told[-1]["total"]) == ("Measuring tables", 3, 3)
