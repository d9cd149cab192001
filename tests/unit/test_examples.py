"""Every example runs, and checks its own answers."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from escudo.causal import SEM

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_example_runs_and_its_answers_hold(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sem")), ids=lambda path: path.stem)
def test_the_model_survives_being_written_and_read(path: Path) -> None:
    sem = SEM.read(path)
    assert SEM.parse(sem.to_text()) == sem


def test_every_example_says_what_it_shows() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert path.read_text(encoding="utf-8").startswith('"""'), path.name
        assert "assert " in path.read_text(encoding="utf-8"), path.name
    assert len(list(EXAMPLES.glob("*.py"))) >= 8
