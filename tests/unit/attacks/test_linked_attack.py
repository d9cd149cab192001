"""Attacks on people with all their rows: who copies them is caught, who keeps the promise is not, and what is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.attacks._linked import People, linked_victim
from escudo.attacks._victims import RowsWithRecord
from escudo.errors import InputError
from escudo.privacy import Budget, Guarantee
from escudo.synthesis import Clinic, clinic
from escudo.table import LinkedTable

FEW: dict[str, Any] = {"shadows": 12, "trials": 24, "seed": 1, "attacks": [("queries", "likelihood ratio")]}
TABLES = [
    LinkedTable(view="people", columns=("patients.smoke", "visits.count")),
    LinkedTable(view="next", table="visits", columns=("visits.severity@prev", "visits.severity")),
]


@pytest.fixture(scope="module")
def made() -> Clinic:
    return clinic(60, seed=1)


@pytest.fixture(scope="module")
def people(made: Clinic) -> People:
    return People.read(made.frames, made.schema)


def copied(frames: dict[str, pl.DataFrame], rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    return frames


def test_a_generator_that_copies_people_is_caught(made: Clinic) -> None:
    claim = Guarantee(epsilon=1.0, unit="person", max_rows_per_person=21)
    found = escudo.attack(copied, made.frames, made.schema, claim=claim, targets=1, **{**FEW, "trials": 60})
    assert found.violated
    assert found.targets[0].label.startswith("person ")
    assert max(score.accuracy for score in found.overall) > 0.9


def test_the_generator_that_keeps_its_promise_is_not(made: Clinic) -> None:
    terms: dict[str, Any] = {"graph": made.graph, "epsilon": 1.0, "delta": 1e-4}
    found = escudo.attack("marginals", made.frames, made.schema, choose="canary", relation="add_remove", **terms, **FEW)
    assert not found.violated
    assert found.claim is not None
    assert (found.claim.unit, found.claim.relation) == ("person", "add_remove")
    assert found.targets[0].label == "canary"


def test_people_come_and_go_with_all_their_rows(made: Clinic, people: People) -> None:
    """Counts of everybody else and of one person add up to those of the tables."""
    whole = people.histories
    some = whole.of_people(np.array([3, 7, 20]))
    assert some.size == 3
    assert some.rows["visits"].person.size == int(whole.rows["visits"].count[[3, 7, 20]].sum())
    every = np.arange(60)
    for table in TABLES:
        parts = whole.of_people(every[every != 7]).counts(table) + whole.of_people(np.array([7])).counts(table)
        np.testing.assert_array_equal(parts, whole.counts(table))


def test_what_is_told_of_a_person(made: Clinic, people: People) -> None:
    told = dict(zip(people.schema.names, people.codes.T, strict=True))
    rows, count = people.histories.rows["visits"], people.histories.rows["visits"].count
    first = rows.codes["severity"][rows.number == 1]
    np.testing.assert_array_equal(told["visits.severity, first"][count > 0], first)
    assert set(told["visits.severity, first"][count == 0]) <= {4}
    assert (told["visits.severity, changes"][count < 2] == 0).all()
    canary = people.canary()
    assert canary.schema == people.schema
    assert canary.histories.rows["visits"].count.tolist() == [20]
    assert canary.histories.counts(TABLES[1]).max() == 4096


def test_a_fit_draws_people_as_they_are_told(made: Clinic, people: People) -> None:
    terms: dict[str, Any] = {"relation": "replace_one", "people": 60, "claim": None, "options": {}}
    victim = linked_victim("linked", made.schema, made.graph, budget=Budget(2.0, 1e-4), **terms)
    world = RowsWithRecord(people.take(np.arange(1, 60)), people.take(np.arange(1)))
    (drawn,) = victim.synthetic(world, sets=1, size=25, seed=1)
    assert drawn.schema == people.schema
    assert len(drawn) == 25
    again = RowsWithRecord(people.take(np.arange(1, 60)), None, world.counted)
    assert world.counted
    assert len(victim.synthetic(again, sets=2, size=5, seed=2)) == 2


@pytest.mark.parametrize(
    ("generator", "how", "words"),
    [
        ("marginals", {}, "epsilon says how private"),
        ("vae", {"epsilon": 1.0}, "take the generator 'marginals'"),
        ("marginals", {"epsilon": 1.0, "claim": Guarantee(epsilon=1.0)}, "claim is for other generators"),
        (copied, {"focus": "visits.pain"}, "is for escudo's own generators"),
        (copied, {"choose": "canary"}, "somebody made up has cells"),
        (3, {}, "a function of frames"),
    ],
)
def test_what_cannot_be_attacked_is_said(made: Clinic, generator: Any, how: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        escudo.attack(generator, made.frames, made.schema, **{**FEW, **how})
