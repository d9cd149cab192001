"""Progress is shown to people and silent otherwise."""

from __future__ import annotations

import io
import sys

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
