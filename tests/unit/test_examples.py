"""Every example runs, and checks its own answers."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from escudo.causal import SEM

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.stem)
def test_the_example_runs_and_its_answers_hold(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sem")), ids=lambda path: path.stem)
def test_the_model_survives_being_written_and_read(path: Path) -> None:
    sem = SEM.read(path)
    assert SEM.parse(sem.to_text()) == sem


def test_the_demo_runs_again_and_leaves_a_strangers_folder_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    used = []
    for _ in range(2):
        runpy.run_path(str(EXAMPLES / "demo.py"), run_name="__main__")
        used += re.findall(r"Ledger: (\d+)% of the budget of ε = 3\.00 is used", capsys.readouterr().out)
    assert 0 < 2 * int(used[0]) - 2 <= int(used[1]) < 100
    (tmp_path / "demo").rename(tmp_path / "kept")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit, match="was not made by this demo"):
        runpy.run_path(str(EXAMPLES / "demo.py"), run_name="__main__")
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["notes.txt"]


def test_every_example_says_what_it_shows() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert path.read_text(encoding="utf-8").startswith('"""'), path.name
        assert "assert " in path.read_text(encoding="utf-8"), path.name
    assert len(list(EXAMPLES.glob("*.py"))) >= 8
