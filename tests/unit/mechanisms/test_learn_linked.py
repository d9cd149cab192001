"""What nobody vouched for in linked tables is learnt from one row of each person, and paid for once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import escudo
from escudo.errors import InputError, RefusedError, SchemaError
from escudo.learning import _DAYS, day_counts, learn_linked
from escudo.privacy import MemoryAccount
from escudo.synthesis import Clinic, clinic
from escudo.table import LinkedSchema, PrivateTables, draft_linked
from neighbours.linked import ODD, Person, frames_of, schema_of, someone

BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "most": {"visits": 20}}


@pytest.fixture(scope="module")
def made() -> Clinic:
    return clinic(1500, seed=1)


@pytest.fixture(scope="module")
def draft(made: Clinic) -> LinkedSchema:
    return draft_linked(made.frames, "patients")


def test_levels_bounds_and_days_are_learnt_and_may_be_used(made: Clinic, draft: LinkedSchema) -> None:
    learnt = learn_linked(made.frames, draft, seed=1, **BUDGET).value
    assert learnt.confirmed
    assert set(learnt.column("patients.smoke").levels) == {"never", "former", "current", "(other)"}  # type: ignore[union-attr]
    assert set(learnt.column("visits.severity").levels) >= {"none", "mild", "moderate", "severe"}  # type: ignore[union-attr]
    child = learnt.child("visits")
    assert child.most == 20
    for edges in (child.start_edges, child.gap_edges):
        assert edges[0] == 0
        assert set(edges) <= set(_DAYS)
        assert 30 <= edges[len(edges) // 2] <= 150  # where the clinic's days are
    model = escudo.synthesize(PrivateTables(made.frames, learnt), made.graph, epsilon=2.0, delta=1e-6, seed=1)
    assert model.sample(5, seed=1)["visits"].height > 0


def test_nothing_that_a_draft_read_from_data_is_used(made: Clinic, draft: LinkedSchema) -> None:
    child = draft.child("visits")
    severity = replace(child.schema["severity"], levels=("severe", "somebody's own"))
    other = replace(child, schema=child.schema.with_columns(severity), most=3, gap_edges=(0, 7), start_edges=(0, 9))
    again = replace(draft, children=(other,))
    assert again != draft
    assert (
        learn_linked(made.frames, again, seed=1, **BUDGET).value
        == learn_linked(made.frames, draft, seed=1, **BUDGET).value
    )


def test_what_is_confirmed_is_kept_and_costs_nothing(made: Clinic, draft: LinkedSchema) -> None:
    known = draft.confirm(["visits", "visits.severity", "visits.treat", "visits.pain", "patients.age"])
    shown = learn_linked.plan(made.frames, known, epsilon=1.0, delta=1e-6)
    assert [leaf.name for leaf in shown.leaves()] == ["levels of smoke"]
    learnt = learn_linked(made.frames, known, epsilon=1.0, delta=1e-6, seed=1).value
    assert learnt.children == known.children


def test_the_plan_is_what_is_charged_once_for_a_person(made: Clinic, draft: LinkedSchema) -> None:
    account = MemoryAccount(unit="person", max_rows_per_person=21)
    shown = learn_linked.plan(made.frames, draft, account=account, **BUDGET)
    assert account.receipts == ()
    release = learn_linked(made.frames, draft, account=account, **BUDGET)
    (receipt,) = account.receipts
    assert receipt.event == shown.event == release.event
    assert (release.guarantee.unit, release.guarantee.max_rows_per_person) == ("person", 21)
    assert release.guarantee.epsilon_at(1e-6) <= 4.0
    assert release.guarantee.for_release


def test_an_account_for_other_persons_refuses_before_anything_is_spent(made: Clinic, draft: LinkedSchema) -> None:
    account = MemoryAccount(unit="person", max_rows_per_person=5)
    with pytest.raises(Exception, match="rows"):
        learn_linked(made.frames, draft, account=account, **BUDGET)
    assert account.receipts == ()


def test_a_delta_that_is_too_large_for_the_people_is_refused_unless_it_is_meant(
    made: Clinic, draft: LinkedSchema
) -> None:
    account = MemoryAccount(unit="person", max_rows_per_person=21)
    terms: dict[str, Any] = {**BUDGET, "delta": 1 / 1500, "account": account, "seed": 1}
    with pytest.raises(RefusedError, match="accept_large_delta=True"):
        learn_linked(made.frames, draft, **terms)
    assert account.receipts == ()
    assert learn_linked(made.frames, draft, accept_large_delta=True, **terms).value.notes[0].startswith("Warning")


def test_what_cannot_be_asked_is_said(made: Clinic, draft: LinkedSchema) -> None:
    with pytest.raises(InputError, match="--most visits=40"):
        learn_linked(made.frames, draft, epsilon=1.0, delta=1e-6)
    with pytest.raises(InputError, match="most names 'labs'"):
        learn_linked(made.frames, draft, epsilon=1.0, delta=1e-6, most={"visits": 4, "labs": 4})
    with pytest.raises(InputError, match="nothing to learn"):
        learn_linked(made.frames, made.schema, epsilon=1.0)
    with pytest.raises(InputError, match="delta must be above 0"):
        learn_linked(made.frames, draft, epsilon=1.0, delta=0.0, most={"visits": 4})
    with pytest.raises(SchemaError, match="severity"):
        learn_linked({**made.frames, "visits": made.frames["visits"].drop("severity")}, draft, **BUDGET)


def test_no_history_is_more_than_one_record_of_days() -> None:
    """Searched among odd people and random ones; two whose days differ attain it."""
    rng = np.random.default_rng(3)
    base: list[Person] = [someone(rng) for _ in range(8)]
    others: list[Person] = [*ODD.values(), *(someone(rng) for _ in range(8))]
    without, *found = (
        day_counts(frames_of(people), schema_of("voice"))["visits"]
        for people in [base, *([*base, one] for one in others)]
    )

    def moved(mine: tuple[Any, Any], theirs: tuple[Any, Any]) -> int:
        return max(int(np.abs(a - b).sum()) for a, b in zip(mine, theirs, strict=True))

    assert max(moved(without, one) for one in found) == 1
    assert max(moved(one, other) for one in found for other in found) == 2


def test_engines_learn_the_same(draft: LinkedSchema) -> None:
    made = clinic(400, seed=1)
    expected = learn_linked(made.frames, draft, seed=1, **BUDGET).value
    lazy: dict[str, Any] = {name: frame.lazy() for name, frame in made.frames.items()}
    pandas = {name: pl.DataFrame(frame).to_pandas() for name, frame in made.frames.items()}
    assert learn_linked(lazy, draft, seed=1, **BUDGET).value == expected
    assert learn_linked(pandas, draft, seed=1, **BUDGET).value == expected
