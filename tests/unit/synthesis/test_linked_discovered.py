"""Linked tables released along a graph that is found under the same budget: one plan, and what is open stays open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import escudo
from escudo.causal import CausalGraph, Knowledge
from escudo.errors import InputError, NotIdentifiableError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, MemoryAccount
from escudo.report import explore_page
from escudo.synthesis import Clinic, LinkedDiscoveredSynthesis, LinkedModel, LinkedSynthesis, clinic, load_linked
from escudo.synthesis._budget import GRAPH_SHARE
from escudo.synthesis._linked_discovered import apportioned, slot_event
from escudo.table import LinkedTable, PrivateTables


@pytest.fixture(scope="module")
def made() -> Clinic:
    return clinic(6_000, seed=3)


@pytest.fixture(scope="module")
def tables(made: Clinic) -> PrivateTables:
    return PrivateTables(made.frames, made.schema)


@pytest.fixture(scope="module")
def model(tables: PrivateTables) -> LinkedModel:
    return escudo.synthesize(tables, None, epsilon=8.0, delta=1e-6, discover=True, seed=1)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_the_whole_budget_is_planned_and_the_graph_has_its_share(made: Clinic, relation: str) -> None:
    neighbours = made.schema.neighbours(relation=relation)
    prepared = LinkedDiscoveredSynthesis(LinkedSynthesis(None)).prepare(made.schema, neighbours, Budget(1.0, 1e-6))
    assert 0.97 < prepared.plan.guarantee().epsilon <= 1.0
    graph = sum(leaf.event.rho for leaf in prepared.graph.plan.leaves())  # type: ignore[union-attr]
    tables = prepared.slots * prepared.slot.rho
    assert graph / (graph + tables) == pytest.approx(GRAPH_SHARE, abs=0.03)


def test_one_charge_pays_for_graph_and_tables(made: Clinic) -> None:
    account = MemoryAccount(unit="person", max_rows_per_person=made.schema.max_rows_per_person)
    private = PrivateTables(made.frames, made.schema, account)
    shown = escudo.plan(escudo.synthesize, private, None, epsilon=2.0, delta=1e-6, discover=True)
    found = escudo.synthesize(private, None, epsilon=2.0, delta=1e-6, discover=True)
    assert [receipt.event for receipt in account.receipts] == [shown.event]
    assert found.guarantee.epsilon == pytest.approx(2.0, rel=0.02)
    assert found.guarantee.for_release


def test_a_slot_moves_as_far_as_any_table(made: Clinic) -> None:
    for relation in ("replace_one", "add_remove"):
        slot = slot_event(made.schema.neighbours(relation=relation), 1.0)
        for view in ("people", "first", "next", "all"):
            for core in (None, ("visits.severity",)):
                table = LinkedTable(view=view, table="visits", columns=(), core=core)  # type: ignore[arg-type]
                moved = table.sensitivity(relation)  # type: ignore[arg-type]
                assert moved.l2 / table.steps <= slot.l2_sensitivity / slot.scale * (1 + 1e-12)


def test_slots_are_shared_by_weight_and_nobody_goes_without() -> None:
    weights = np.random.default_rng(0).random(30) + 0.01
    found = apportioned(weights.tolist(), 512)
    assert sum(found) == 512
    assert min(found) >= 1
    assert found == pytest.approx((1 + 482 * weights / weights.sum()).tolist(), abs=1)
    with pytest.raises(AssertionError):
        apportioned([1.0, 1.0], 1)


def test_tables_have_the_noise_that_their_slots_say(made: Clinic, tables: PrivateTables) -> None:
    """Averages over slots are the counts, off by as much as is stated: 2/3 and 3/2 of it would be seen."""
    question = LinkedDiscoveredSynthesis(LinkedSynthesis(None))
    prepared = question.prepare(made.schema, tables.neighbours, Budget(2.0, 1e-6))
    inside = replace(question.tables, graph=made.graph).prepare(made.schema, tables.neighbours, Budget(2.0, 1e-6))
    histories, off = tables.histories(), []
    for block, released in zip(inside.shares.blocks, prepared._measured(inside, tables, Purse(seed=5)), strict=True):
        for columns, noisy in zip(block.tables, released, strict=True):
            counted = block.counted(columns)
            off.append(((noisy.counts - histories.counts(counted) / counted.steps) / noisy.scale).ravel())
    every = np.concatenate(off)
    spread = 6 / np.sqrt(2 * every.size)  # six standard errors
    assert spread < 0.3
    assert every.std() == pytest.approx(1.0, abs=spread)


def test_what_is_there_is_found_followed_and_told(model: LinkedModel, made: Clinic) -> None:
    told = model.details["discovery"]
    arrows = {(edge["from"], edge["to"]) for edge in told["edges"] if edge["directed"]}
    assert {("visits.severity", "visits.treat"), ("visits.severity@prev", "visits.severity")} <= arrows
    assert set(model.graph.edges) == arrows
    drawn = model.sample(3_000, seed=1)["visits"]
    real = made.frames["visits"]
    for level in ("none", "severe"):
        ours, theirs = (frame.filter(frame["severity"] == level)["treat"].eq("yes").mean() for frame in (drawn, real))
        assert ours == pytest.approx(theirs, abs=0.08)


def test_what_is_open_stays_open_in_files_pages_and_questions(model: LinkedModel, tmp_path: Path) -> None:
    assert [set(edge) for edge in model.associations] == [{"patients.smoke", "patients.age"}]
    with pytest.raises(NotIdentifiableError, match=" — ".join(model.associations[0])):
        model.sample(5, do={"patients.smoke": "never"})
    model.sample(5, do={"visits.treat": "no"})
    model.save(tmp_path / "model")
    again = load_linked(tmp_path / "model")
    assert again.associations == model.associations
    assert not again.answers_do("patients.age")
    assert again.answers_do("visits.treat")
    assert '"patients.smoke"' in explore_page(again)


def test_what_is_known_settles_it(tables: PrivateTables) -> None:
    known = CausalGraph(
        nodes=("patients.age", "patients.smoke", "visits.pain"),
        edges=(("patients.age", "patients.smoke"),),
        knowledge=Knowledge(forbidden=(("patients.smoke", "visits.pain"),)),
    )
    found = escudo.synthesize(tables, known, epsilon=8.0, delta=1e-6, discover=True, seed=1)
    assert ("patients.age", "patients.smoke") in found.graph.edges
    assert not found.associations
    found.sample(5, do={"patients.smoke": "never"})


def test_no_graph_makes_a_law_that_is_too_large(made: Clinic) -> None:
    """Whatever is found, tables can be measured: how many causes a column keeps is a rule, never an error."""
    neighbours = made.schema.neighbours(relation="add_remove")
    prepared = LinkedDiscoveredSynthesis(LinkedSynthesis(None)).prepare(made.schema, neighbours, Budget(1.0, 1e-6))
    own = ["visits.severity@prev"]
    others = ["patients.age", "patients.smoke", "visits.treat@prev", "visits.pain@prev", "visits.gap", "visits.treat"]
    kept = prepared._affordable("visits.severity", own, others)
    assert kept[0] == own[0]
    assert 1 <= len(kept) - 1 <= 4
    with pytest.raises(InputError, match="delta must be above 0"):
        LinkedDiscoveredSynthesis(LinkedSynthesis(None)).prepare(made.schema, neighbours, Budget(1.0))
    with pytest.raises(InputError, match="'exact' or 'two-stage'"):
        escudo.plan(escudo.synthesize, made.schema, None, epsilon=1.0, delta=1e-6, discover=True, method="joint")
