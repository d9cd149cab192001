"""What escudo answers, and what it offers, is what the committed files say.

A difference that is meant is announced in ``CHANGELOG.md``; ``PYTHONPATH=tests python -m golden --write`` renews both.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from golden import answers, api
from golden.seen import machine, see
from neighbours.tables import ENGINES

CASES = {case.name: case for case in answers.every_case()}


@cache
def _held() -> dict[str, Any]:
    return answers.read()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.slow])
def test_an_answer_is_what_it_was(name: str) -> None:
    exact = _held()["machine"] == machine()
    moved = answers.moved(_held()["answers"][name], CASES[name].see(), exact=exact)
    assert moved == [], f"{name} (renew what is meant with: PYTHONPATH=tests python -m golden --write)"


def test_every_case_is_written_down_and_nothing_else() -> None:
    assert list(_held()["answers"]) == list(CASES), (
        "write down what is new with: PYTHONPATH=tests python -m golden --write --one-engine --only NAME"
    )


def test_every_engine_and_every_verb_has_its_turn() -> None:
    asked = [case for case in CASES.values() if not case.slow]
    assert {getattr(case, "engine", "") for case in asked} >= set(ENGINES) - {"postgresql"}
    verbs = {case.name.rsplit(", ", 2)[0].partition(" on ")[0] for case in CASES.values()}
    left_out = verbs - {case.name.rsplit(", ", 2)[0].partition(" on ")[0] for case in asked}
    slow = {"synthesize autoregressive of numbers", "synthesize a network as printed", "escudo release a network"}
    assert left_out == slow


def test_public_names_are_what_they_were() -> None:
    changes = api.difference(api.read(), api.snapshot())
    assert changes == "", (
        f"announce it in CHANGELOG.md and renew with: PYTHONPATH=tests python -m golden --write\n{changes}"
    )


def test_only_public_names_are_used_so_that_the_files_outlive_the_source() -> None:
    tests = Path(__file__).parents[1]
    read = [
        *(tests / "golden").glob("*.py"),
        *(tests / "neighbours" / f"{name}.py" for name in ("files", "tables", "verbs")),
    ]
    private = re.compile(
        r"^\s*(?:from|import) escudo[\w.]*\._\w+.*|^\s*from escudo[\w.]* import (?:.*, )?_\w+.*", re.MULTILINE
    )
    found = {path.name: private.findall(path.read_text()) for path in sorted(read)}
    assert {name: lines for name, lines in found.items() if lines} == {}


# ---- the check itself sees what it should


def _moved(first: Any, second: Any, *, exact: bool = True) -> list[str]:
    one, other = see(lambda folder: first), see(lambda folder: second)
    return [words.split(":")[0] for words in answers.moved(one.record(), other, exact=exact)]


NEXT = float(np.nextafter(0.1, 1.0))


@pytest.mark.parametrize(
    ("first", "second", "pieces"),
    [
        ({"a": 0.1}, {"a": NEXT}, ["answer"]),
        (np.array([0.1]), np.array([NEXT]), ["answer"]),
        ((1, "said"), (1, "says"), ["text", "it said 'said', and says 'says'"]),
        ("<p>1</p>", "<p>2</p>", ["page"]),
        (pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [1.0]}), ["rows"]),
        ({1: 2}, {1: 2, 3: 4}, ["answer"]),
    ],
)
def test_what_moves_is_seen_and_named(first: Any, second: Any, pieces: list[str]) -> None:
    assert _moved(first, second)[: len(pieces)] == pieces
    assert _moved(first, first) == []


def test_last_bits_are_forgiven_where_the_machine_is_another() -> None:
    assert _moved({"a": 0.1, "b": f"{0.1!r}"}, {"a": NEXT, "b": f"{NEXT!r}"}, exact=False) == []
    assert _moved({"a": 0.1}, {"a": 0.10000001}, exact=False) != []


def test_times_and_folders_are_no_part_of_an_answer() -> None:
    def run(folder: Path) -> str:
        (folder / "file").write_text(f"{folder} 2026-01-01T00:00:00.123+00:00 took 0.12 s")
        return f"in {folder} at 2026-01-01 10:11:12"

    assert answers.moved(see(run).record(), see(run), exact=True) == []


def test_a_change_of_the_api_is_told_name_by_name() -> None:
    before, after = api.snapshot(), api.snapshot()
    del after["escudo"]["plan"]
    after["escudo.table"]["PrivateTable"]["schema"] = "property: int"
    told = api.difference(before, after).splitlines()
    assert len(told) == 3
    assert told[0].startswith("-escudo.plan: ")
    assert told[1:] == [
        "-escudo.table.PrivateTable.schema: property: Schema",
        "+escudo.table.PrivateTable.schema: property: int",
    ]
