"""A training that is killed between any two steps of its checkpoints: one result at most for each spend.

What keeps the state does not know what is trained, so nothing is: states are numbers, and no JAX is loaded. One process
forks a child for each gap, which kills itself there; another child then gives the same command again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

STEPS = 4
# Where it is killed: the function, before or after it, and at which of its calls in a life; what a second life then
# gets for nothing; and the step from which it goes on, or None if it begins anew.
GAPS: dict[str, tuple[str, str, int, bool, int | None]] = {
    "before the first mark": ("mark", "before", 1, False, None),
    "first mark, no name": ("mark", "after", 1, True, 1),
    "first name": ("name", "after", 1, True, 1),
    "second draft, no mark": ("mark", "before", 2, True, 1),
    "second mark, no name": ("mark", "after", 2, True, 2),
    "before the end": ("finish", "before", 1, True, 3),
    "after the end": ("finish", "after", 1, False, 3),
}
# The same in a second life, which goes on from step 2; its first mark is that state once more.
SECOND: dict[str, tuple[str, str, int, bool, int | None]] = {
    "before resuming": ("resume", "before", 1, True, 2),
    "resumed, no draft": ("resume", "after", 1, False, 2),
    "resumed, no mark": ("mark", "before", 1, False, 2),
    "resumed and marked, no name": ("mark", "after", 1, True, 2),
    "resumed, marked and named": ("name", "after", 1, True, 2),
    "resumed, before the end": ("finish", "before", 1, True, 3),
    "resumed, after the end": ("finish", "after", 1, False, 3),
}


def life(url: str, folder: Path, gap: tuple[str, str, int] | None, *, again: bool = False) -> None:
    """Train, or go on; keep the state after every step but the last; write down the result, or why there is none."""
    from escudo.errors import InputError
    from escudo.mechanisms.dpsgd import _checkpoint
    from escudo.privacy import Ledger, LedgerAccount, PureEvent, RepeatedEvent

    if gap is not None:
        _kill_at(_checkpoint, LedgerAccount, *gap)
    path, step = folder / "state", PureEvent(epsilon=0.1)
    account = Ledger(url).account("people")
    said: dict[str, Any] = {"from": None}
    try:
        with _checkpoint.file_held(path):
            kept = _checkpoint.found(path, account)
            if kept is None:
                receipt = account.spend(RepeatedEvent(event=step, count=STEPS))
                file = _checkpoint.TrainingFile(path=path, account=account, receipt=receipt, about={}, arrays={})
                done = 0
            else:
                done = said["from"] = kept.done
                left = RepeatedEvent(event=step, count=STEPS - done)
                terms: dict[str, Any] = {"delta": 1e-6, "for_release": True, "purpose": "", "again": again}
                file = _checkpoint.go_on(kept, account, left, **terms)
            for number in range(done + 1, STEPS):
                file.keep(_state(number))
            file.finish()
            said["result"] = True
            path.unlink(missing_ok=True)
    except InputError as error:
        said["refused"] = str(error)
    (folder / "said.json").write_text(json.dumps(said))


def _state(step: int) -> dict[str, Any]:
    return {name: np.zeros(1) for name in ("parameters", "first", "second", "average")} | {"step": np.array([step])}


def _kill_at(checkpoint: Any, account: Any, name: str, when: str, turn: int) -> None:
    """Have this process die by SIGKILL, before or after one call."""
    owner, attribute = (checkpoint.os, "replace") if name == "name" else (account, name)
    usual, turns = getattr(owner, attribute), iter(range(1, 10**9))

    def deadly(*arguments: Any, **terms: Any) -> Any:
        if name == "name" and "state" not in str(arguments[1]):
            return usual(*arguments, **terms)
        here = next(turns) == turn
        if here and when == "before":
            os.kill(os.getpid(), 9)
        value = usual(*arguments, **terms)
        if here:
            os.kill(os.getpid(), 9)
        return value

    setattr(owner, attribute, deadly)


def _forked(*arguments: Any, **terms: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            life(*arguments, **terms)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def play(root: Path) -> None:
    """Live through every gap, and write down what came of it."""
    from escudo.privacy import Ledger

    found = {}
    for number, (name, gap) in enumerate({**GAPS, **SECOND}.items()):
        folder = root / str(number)
        folder.mkdir()
        url = f"sqlite:///{folder}/ledger.db"
        with Ledger(url) as book:
            book.open("people", epsilon=10.0)
        if name in SECOND:
            assert _forked(url, folder, ("name", "after", 2)) == 9
        deaths, said = [_forked(url, folder, gap[:3])], []
        assert not (folder / "said.json").exists()
        for again in (False, True):
            deaths.append(_forked(url, folder, None, again=again))
            said.append(json.loads((folder / "said.json").read_text()))
            if "result" in said[-1]:
                break
        with Ledger(url) as book:
            spends = [row.event.count for row in book.history() if row.kind == "spend"]
            found[name] = {"deaths": deaths, "said": said, "spends": spends, "good": book.verify().ok}
    (root / "found.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("lives")
    subprocess.run([sys.executable, __file__, str(root)], check=True)
    return json.loads((root / "found.json").read_text())


@pytest.mark.parametrize("name", [*GAPS, *SECOND])
def test_one_that_is_killed_in_a_gap_gives_one_result_for_each_spend(lives: dict[str, Any], name: str) -> None:
    *_, free, begun = {**GAPS, **SECOND}[name]
    found = lives[name]
    first, *later = found["said"]
    assert found["deaths"][0] == 9
    assert found["good"]
    assert first["from"] == begun
    if begun is None:  # nothing was known of it: a whole training, paid for
        assert first["result"]
        assert found["spends"] == [STEPS, STEPS]
    elif free:
        assert first["result"]
        assert found["spends"] == [STEPS]
    else:
        assert "cannot go on for nothing" in first["refused"]
        assert [life.get("result") for life in later] == [True]
        assert found["spends"] == [STEPS, STEPS - begun]


if __name__ == "__main__":
    play(Path(sys.argv[1]))
