"""A small share of the chaos suite; ``make chaos N=10000`` runs it at length."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.stores import server_binaries

TESTS = Path(__file__).parents[1]


def chaos(folder: Path, *options: str) -> dict[str, Any]:
    """Run the suite in a process of its own, which forks: it must have no threads."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))
    out = folder / "result.json"
    run = subprocess.run(
        [sys.executable, "-m", "chaos", "--out", str(out), *options],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert run.returncode in (0, 5), run.stderr
    result: dict[str, Any] = json.loads(out.read_text())
    assert (run.returncode == 5) == bool(result["violations"])
    return result


def found(result: dict[str, Any]) -> list[str]:
    """Return what did not hold, in one line each."""
    names = ("invariant", "scene", "fault", "store", "where", "world", "detail")
    return [", ".join(str(one[name]) for name in names) for one in result["violations"]]


@pytest.mark.parametrize(
    ("store", "faults"), [("sqlite", 20), pytest.param("postgresql", 6, marks=pytest.mark.postgresql)]
)
def test_what_must_hold_of_a_ledger_holds_whatever_happens(store: str, faults: int, tmp_path: Path) -> None:
    if store == "postgresql" and server_binaries() is None:
        pytest.skip("no PostgreSQL server binary on this machine (Debian: apt install postgresql)")
    result = chaos(tmp_path, "--seed", "1", "--faults", str(faults), "--scenes", "spend", "--stores", store)
    assert found(result) == []
    assert result["faults"] == faults


def test_what_must_hold_of_a_release_holds_whatever_happens(tmp_path: Path) -> None:
    result = chaos(tmp_path, "--seed", "1", "--faults", "2", "--scenes", "release", "--stores", "sqlite")
    assert found(result) == []
    assert result["faults"] == 2


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="filling a disk of our own takes root")
def test_the_suite_sees_a_release_that_is_copied_into_place(tmp_path: Path) -> None:
    options = ("--seed", "2", "--faults", "8", "--scenes", "release", "--stores", "sqlite", "--kinds", "full")
    result = chaos(tmp_path, *options, "--near", "put_folder", "--broken", "copied-into-place")
    assert "half" in {one["invariant"] for one in result["violations"]}


@pytest.mark.parametrize(
    ("ways", "invariants"),
    [(["acknowledged-early"], {"lost"}), (["refunded", "charged-late"], {"cap", "uncharged"})],
    ids=["acknowledged early", "refunded, and charged late"],
)
def test_the_suite_sees_a_ledger_that_is_wrong(ways: list[str], invariants: set[str], tmp_path: Path) -> None:
    options = ("--seed", "2", "--faults", "10", "--scenes", "spend", "--stores", "sqlite")
    result = chaos(tmp_path, *options, "--broken", *ways)
    assert invariants <= {one["invariant"] for one in result["violations"]}
