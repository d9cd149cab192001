"""A suite that was stopped goes on where it was; what has changed since is audited anew."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from escudo.auditing import Suite
from escudo.cli import app
from escudo.errors import InputError

MECHANISM = """
    from pathlib import Path

    def count(rows, rng):
        with (Path(__file__).parent / "calls").open("a") as file:
            file.write("x")
        return len(rows) + rng.geometric({0}) - rng.geometric({0})

    def broken(rows, rng):
        raise KeyboardInterrupt
"""
SUITE = """
    max_runs = 300
    seed = 7

    [[audit]]
    name = "first"
    mechanism = "mine.py:count"
    epsilon = 1.0
    relation = "add_remove"

    [[audit]]
    name = "second"
    mechanism = "mine.py:{0}"
    epsilon = 2.0
    relation = "add_remove"
"""


def written(folder: Path, *, second: str = "count", scale: float = 0.5) -> Path:
    (folder / "mine.py").write_text(textwrap.dedent(MECHANISM).format(scale))
    (folder / "suite.toml").write_text(textwrap.dedent(SUITE).format(second))
    return folder / "suite.toml"


def calls(folder: Path) -> int:
    path = folder / "calls"
    found = len(path.read_text()) if path.exists() else 0
    path.unlink(missing_ok=True)
    return found


def without_seconds(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: without_seconds(value) for key, value in found.items() if key != "seconds"}
    return [without_seconds(one) for one in found] if isinstance(found, list) else found


def test_a_suite_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Suite.read(written(tmp_path, second="broken")).run(log=tmp_path / "logs")
    stopped = calls(tmp_path)
    assert stopped > 0
    path = written(tmp_path)
    anew = Suite.read(path).run(log=tmp_path / "logs")
    assert calls(tmp_path) == stopped  # of the second audit: the first is not run again
    again = Suite.read(path).run(log=tmp_path / "logs")
    assert calls(tmp_path) == 0  # everything was there
    plain = Suite.read(path).run()
    assert without_seconds(again.to_json()) == without_seconds(anew.to_json()) == without_seconds(plain.to_json())


def test_logs_of_a_suite_are_for_their_owner_and_named_by_what_was_asked(tmp_path: Path) -> None:
    path, logs = written(tmp_path), tmp_path / "logs"
    Suite.read(path).run(log=logs)
    calls(tmp_path)
    assert logs.stat().st_mode & 0o077 == 0
    assert len(list(logs.iterdir())) == 2
    assert all(file.stat().st_mode & 0o077 == 0 for file in logs.iterdir())
    for changed in ({"seed": 8}, {"max_runs": 200}, {"confidence": 0.9}):
        Suite.read(path, **changed).run(log=logs)
        assert calls(tmp_path) > 0, changed
    written(tmp_path, scale=0.6)
    Suite.read(path).run(log=logs)
    assert calls(tmp_path) > 0
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="cannot make the folder 'file' for logs"):
        Suite.read(path).run(log=tmp_path / "file")


def test_the_command_goes_on_too(tmp_path: Path) -> None:
    path, logs = written(tmp_path), tmp_path / "logs"
    first = CliRunner().invoke(app, ["audit", str(path), "--log", str(logs), "--json"])
    assert first.exit_code == 0, first.output
    assert calls(tmp_path) > 0
    second = CliRunner().invoke(app, ["audit", str(path), "--log", str(logs), "--json"])
    assert second.exit_code == 0, second.output
    assert calls(tmp_path) == 0
