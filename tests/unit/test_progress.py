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


def test_reading_a_table_for_its_custodian_tells_how_many_columns_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import polars as pl

    from escudo.learning import learn_schema
    from escudo.table import check, draft, outline

    frame = pl.DataFrame({"a": ["x", "y"] * 20, "b": ["u", "v"] * 20, "c": ["p", "q"] * 20})
    schema = outline(frame)
    for number, (ask, label, steps) in enumerate(
        (
            (lambda: draft(frame), "Drafting", 3),
            (lambda: check(frame, schema), "Checking", 3),
            (lambda: learn_schema(frame, schema, epsilon=1.0, delta=1e-6, seed=1), "Counting", 4),
        )
    ):
        file = tmp_path / f"{number}.jsonl"
        monkeypatch.setenv("ESCUDO_PROGRESS", str(file))
        ask()
        told = [json.loads(line) for line in file.read_text().splitlines()]
        assert any((one["label"], one["done"], one["total"]) == (label, steps, steps) for one in told), told
