"""Every mechanism of escudo is audited against its own promise on every run; the full audit is a benchmark."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import escudo.mechanisms

_PATH = Path(__file__).parents[2] / "benchmarks" / "audit_own.py"
_SPEC = importlib.util.spec_from_file_location("audit_own", _PATH)
own = importlib.util.module_from_spec(_SPEC)
sys.modules["audit_own"] = own  # where dataclasses look for the module they are defined in
_SPEC.loader.exec_module(own)

RUNS = {"learn_schema": 30, "log_iqr": 200}
NOT_MECHANISMS = {"read_log_iqr", "stable_threshold"}  # helpers that release nothing


@pytest.mark.parametrize("name", own.CASES)
def test_no_mechanism_is_caught_breaking_its_promise(name):
    case = own.CASES[name]
    found = own.check(case, case.claim, RUNS.get(name, 300), confidence=1 - 1e-6)
    assert not found.violated, found.verdict
    assert not any("Every run raised" in note for note in found.notes)


@pytest.mark.parametrize("name", ["laplace, integer", "gaussian, integer", "votes"])
def test_a_promise_that_is_too_good_is_caught_in_the_same_way(name):
    case = own.CASES[name]
    assert own.check(case, own.a_third(case.claim), 1500).violated


def test_every_public_mechanism_has_a_case():
    covered = {name.split(",")[0] for name in own.CASES}
    missing = set()
    for name in escudo.mechanisms.__all__:
        given = getattr(escudo.mechanisms, name)
        returned = str(getattr(given, "__annotations__", {}).get("return", ""))
        if returned.startswith("Release") and not isinstance(given, type) and name not in covered | NOT_MECHANISMS:
            missing.add(name)
    assert not missing, f"write a case in benchmarks/audit_own.py for {sorted(missing)}"
