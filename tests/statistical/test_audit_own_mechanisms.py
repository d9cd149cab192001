"""Every mechanism of escudo is audited against its own promise on every run; the full audit is a benchmark."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import escudo.learning
import escudo.mechanisms
import escudo.mechanisms.dpsgd

_PATH = Path(__file__).parents[2] / "benchmarks" / "audit_own.py"
_SPEC = importlib.util.spec_from_file_location("audit_own", _PATH)
own = importlib.util.module_from_spec(_SPEC)
sys.modules["audit_own"] = own  # where dataclasses look for the module they are defined in
_SPEC.loader.exec_module(own)

RUNS = {"learn_schema, levels": 100, "learn_schema, bounds": 30, "learn_linked, levels": 30, "log_iqr": 200}
RUNS |= dict.fromkeys((name for name in own.CASES if "a person's rows" in name), 500)
TYPES = {"LogIqr", "Release", "Seed", "Threshold", "Verdict", "Layout", "Recipe", "Tape", "Training"}
TYPES |= {"Integers", "NoiseSource", "Noisy", "Purse", "ReleaseOptions"}
NOTHING_RELEASED = {  # plans, public numbers, and exact parts of what another mechanism releases
    "bounded_rows",
    "gap_event",
    "gaussian_event",
    "laplace_cutoff",
    "laplace_event",
    "one_stream",
    "publishable",
    "quantile_counts",
    "quantile_event",
    "read_log_iqr",
    "second_moments",
    "stable_threshold",
    "sum_of_votes",
    "verdict",
    "votes_event",
    "watching",
}
THE_SAME = {"audited_step", "resume"}  # as train: one step of it, and the rest of one
THE_SAME |= {"choose_cells", "choose_quantiles", "release_if_stable", "show_keys"}  # what the fronts of others call


@pytest.mark.parametrize("name", own.CASES)
def test_no_mechanism_is_caught_breaking_its_promise(name):
    case = own.CASES[name]
    found = own.check(case, case.claim, RUNS.get(name, 300), confidence=1 - 1e-6)
    assert not found.violated, found.verdict
    assert not any("Every run raised" in note for note in found.notes)


@pytest.mark.parametrize("name", [name for name, case in own.CASES.items() if case.caught])
def test_a_promise_that_is_too_good_is_caught_in_the_same_way(name):
    case = own.CASES[name]
    assert own.check(case, own.a_third(case.claim), own.RUNS).violated


@pytest.mark.parametrize("name", own.REPLAYS)
def test_with_every_noisy_answer_held_a_neighbour_changes_nothing(name):
    found = own.held(name)
    assert found.steps, "no noise was drawn"
    assert not found.violated, found.verdict


def test_ids_that_are_taken_as_they_are_stored_are_caught():
    """The audit of a person on Dask sees a person who counts once for each way of writing the id."""
    case = own.CASES["laplace, a person's rows on Dask"]
    raw = own.People(lambda rows: own.people(tuple((repr(who), ill) for who, ill in rows)), most=1)
    broken = own.Case(raw, case.pairs)
    name = "laplace, a person's rows on Dask"
    assert own.check(broken, case.claim, RUNS[name], confidence=1 - 1e-6).violated


def test_everything_that_mechanisms_export_is_audited_or_releases_nothing():
    audited = {name.split(",")[0] for name in own.CASES}
    exported = {*escudo.mechanisms.__all__, *escudo.mechanisms.dpsgd.__all__, *escudo.learning.__all__}
    assert audited <= exported
    missing = exported - audited - TYPES - NOTHING_RELEASED - THE_SAME
    assert not missing, f"write a case in benchmarks/audit_own.py for {sorted(missing)}"


def test_what_counts_as_no_mechanism_returns_no_release():
    for name in NOTHING_RELEASED:
        returned = getattr(escudo.mechanisms, name).__annotations__["return"]
        assert not str(returned).startswith("Release"), name
