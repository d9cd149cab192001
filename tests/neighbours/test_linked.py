"""Linked tables that differ in one person with all rows are told apart by nothing but noise that was paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neighbours.linked import ODD, VERBS, asked, someone
from neighbours.search import LinkedCase, Tries, every_case
from neighbours.worlds import Held


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("verb", VERBS)
def test_one_person_with_all_rows_is_told_by_nothing_but_paid_noise(relation: str, verb: str) -> None:
    rng = np.random.default_rng(1)
    base = [someone(rng) for _ in range(14)]
    weightings = ["voice", "unit"] if verb == "synthesize" else ["voice"]
    for weighting in weightings:
        held = Held(asked(base, relation, weighting, verb))
        assert held.refused == ""
        assert held.draws > 0
        others = [*ODD.values(), someone(rng)]
        if verb.startswith(("release", "learn_linked")):  # these take their time
            others = [ODD["a long history"], ODD["days that are none"]]
        for other in others:
            neighbour = [*base[:5], other, *base[6:]] if relation == "replace_one" else [*base, other]
            assert held.difference(asked(neighbour, relation, weighting, verb)) is None
        if relation == "add_remove":
            assert held.difference(asked(base[:-1], relation, weighting, verb)) is None


def test_a_search_for_worse_neighbours_tries_linked_tables_too() -> None:
    cases = [case for case in every_case({}) if isinstance(case, LinkedCase)]
    assert {case.verb.name for case in cases} == set(VERBS)
    chosen = [case for case in cases if case.verb.name in ("effect_of people", "discover")]
    found = [finding for case in chosen for finding in Tries(case, seed=3, neighbours=4)]
    assert found == [None] * 16


@pytest.mark.parametrize("verb", ["synthesize", "effect_of the row before"])
def test_a_bound_that_is_too_small_is_seen(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """The harness sees a weighting that gives a long history more than its voice."""
    from escudo.table import LinkedTable
    from escudo.table._counts import CountSensitivity

    usual = LinkedTable.sensitivity

    def halved(table: LinkedTable, relation: Any) -> CountSensitivity:
        found = usual(table, relation)
        return found if found.changed_cells else CountSensitivity(l1=found.l1, l2=found.l2 / 2, changed_cells=None)

    monkeypatch.setattr(LinkedTable, "sensitivity", halved)
    rng = np.random.default_rng(1)
    base = [someone(rng) for _ in range(14)]
    held = Held(asked([*base, ODD["nothing"]], "replace_one", "voice", verb))
    assert held.refused == ""
    found = held.difference(asked([*base, ODD["a long history"]], "replace_one", "voice", verb))
    assert found is not None
    assert "moved" in found
