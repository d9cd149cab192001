"""Two neighbouring tables cannot be told apart by anything but noise that was paid for: a share of all pairs.

``make neighbours N=100000`` tries many more; ``experiments/results/neighbours.json`` holds what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import escudo
from escudo.mechanisms import laplace
from escudo.privacy import MemoryAccount
from neighbours import linked, servers
from neighbours.mutations import HOME, Mutation, known
from neighbours.promises import PROMISES
from neighbours.search import Case, Tries, every_case
from neighbours.tables import ENGINES
from neighbours.verbs import Asked, Verb, every_verb
from neighbours.worlds import Held

NEIGHBOURS = 2
SLOW = 100  # milliseconds, from which on one neighbour has to do


def share_of(verb: Verb, place: int, engines: list[str]) -> Iterator[Case]:
    """Yield each relation and unit of a verb once, in engines that take turns: over all verbs, every engine comes.

    A slow verb has one unit for each relation, and the next slow one the other.
    """
    cases = [case for case in every_case({name: ENGINES[name] for name in engines}) if case.verb is verb]
    combinations = sorted({(case.relation, case.unit) for case in cases})
    if verb.cost >= SLOW and len(combinations) == 4:
        combinations = [combinations[0], combinations[3]] if place % 2 else combinations[1:3]
    for turn, (relation, unit) in enumerate(combinations):
        fitting = [case for case in cases if (case.relation, case.unit) == (relation, unit)]
        yield fitting[(3 * place + turn) % len(fitting)]


IN_PROCESS = [name for name in ENGINES if name != "postgresql"]


@pytest.mark.parametrize("verb", [*every_verb()], ids=lambda verb: verb.name)
def test_neighbours_see_the_same_world(verb: Verb) -> None:
    place = [known.name for known in every_verb()].index(verb.name)
    for case in share_of(verb, place, IN_PROCESS):
        tries = Tries(case, seed=0, neighbours=1 if verb.cost >= SLOW else NEIGHBOURS)
        assert [str(finding) for finding in tries if finding is not None] == []


def test_neighbours_see_the_same_world_in_a_database() -> None:
    with servers.postgresql_if_there() as served:
        if served is None:
            pytest.skip("no PostgreSQL server binary on this machine (Debian: apt install postgresql)")
        quick = [verb for verb in every_verb() if not verb.file and verb.cost <= 30]
        for place, verb in enumerate(quick):
            case = next(share_of(verb, place, ["postgresql"]))
            tries = Tries(case, seed=place, neighbours=1)
            assert [str(finding) for finding in tries if finding is not None] == []


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promises_that_no_pair_can_show_are_kept(promise: Callable[[], str | None]) -> None:
    assert promise() is None


def test_every_engine_and_every_generator_has_its_turn() -> None:
    tried = [case for place, verb in enumerate(every_verb()) for case in share_of(verb, place, IN_PROCESS)]
    assert {case.engine for case in tried} >= set(IN_PROCESS)
    from escudo.synthesis import GENERATORS

    for generator in GENERATORS:
        assert any(case.verb.name.startswith(f"synthesize {generator}") for case in tried), generator


def test_every_verb_has_its_turn() -> None:
    named = {name: getattr(escudo, name) for name in escudo.__all__}
    public = {name for name, verb in named.items() if callable(verb) and hasattr(verb, "plan")}
    assert {"synthesize", "release", "discover", "direction", "effect_of"} <= public
    one = {verb.name.removeprefix("escudo ").replace(",", " ").split()[0] for verb in every_verb()}
    several = {name.split()[0] for name in linked.VERBS}
    assert public - one - several == set(), "verbs of the library that nobody asks of neighbours (verbs.py, linked.py)"
    assert {name for name in public if hasattr(named[name], "linked")} - several == set(), "not asked of linked tables"


# ---- the check itself sees what it should


def _difference(ask: Any, first: Any, second: Any) -> str | None:
    held = Held(lambda folder: ask(first, folder))
    return held.difference(lambda folder: ask(second, folder))


def _sum(values: list[int], folder: Path, *, sensitivity: float = 2.0) -> Any:
    return laplace(sum(values), sensitivity=sensitivity, epsilon=1.0, account=MemoryAccount(), seed=1).value


def test_what_is_paid_for_tells_nobody_apart() -> None:
    assert _difference(_sum, [1, 2], [1, 4]) is None


@pytest.mark.parametrize(
    ("leak", "told"),
    [
        (lambda values, folder: _sum(values, folder, sensitivity=1.0), "draw 0 (laplace) declares ε = 1, moved 2"),
        (lambda values, folder: (_sum(values, folder), len(values)), "answer: "),
        (lambda values, folder: print(values), "said: "),
        (lambda values, folder: (folder / f"{sum(values)}.txt").touch(), "files: "),
        (lambda values, folder: [(folder / "file").write_text(str(sum(values)))], "file file: "),
        (lambda values, folder: [np.float64(1) / (sum(values) - 3)] and 1, "warned: "),
        (lambda values, folder: [_sum(values, folder) for _ in range(sum(values))], "draws: a further"),
        (
            lambda values, folder: [_sum(values, folder) for _ in range(9 - sum(values))],
            "draws: the second run made fewer",
        ),
        (lambda values, folder: {3: 1}[sum(values)], "answer: "),
    ],
    ids=["sensitivity", "answer", "printed", "file name", "file", "warning", "more draws", "fewer draws", "exception"],
)
def test_a_leak_is_seen(leak: Any, told: str) -> None:
    found = _difference(leak, [1, 2, 0], [1, 4])
    assert found is not None
    assert found.startswith(told)


def test_a_verb_is_asked_on_public_terms() -> None:
    asked = Asked(frame=None, content="mixed", relation="add_remove", unit="row", rows=5)
    assert asked.known_rows is None


@pytest.mark.parametrize("mutation", known(), ids=lambda mutation: mutation.defect)
def test_a_known_defect_can_still_be_put_back(mutation: Mutation) -> None:
    for changed, old, _ in mutation.changes:
        assert (HOME / "src/escudo" / changed).read_text(encoding="utf-8").count(old) == 1
