"""Effects in linked tables: which rows are compared, what is adjusted for, what comes out, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import escudo
from escudo.causal import AncestralGraph, CausalGraph
from escudo.discovery import TreatmentEffect
from escudo.discovery._adjustment import REFUTERS, AdjustmentTable, Strata
from escudo.discovery._effect_of import EffectQuestion
from escudo.discovery._linked_effect import LinkedEffect, PreparedLinkedEffect, unrolled
from escudo.errors import EscudoError, InputError, NotIdentifiableError
from escudo.privacy import Budget
from escudo.synthesis import Clinic, clinic
from escudo.table import PrivateTables

NEXT = ("visits.treat@prev", "visits.severity")


@pytest.fixture(scope="module")
def made() -> Clinic:
    return clinic(1_500, seed=1)


@pytest.fixture(scope="module")
def tables(made: Clinic) -> PrivateTables:
    return PrivateTables(made.frames, made.schema)


def nearly_exact(tables: PrivateTables, *names: str, **how: Any) -> TreatmentEffect:
    return escudo.effect_of(tables, *names, epsilon=100.0, seed=1, **how)


def prepared(made: Clinic, *names: str, **how: Any) -> PreparedLinkedEffect:
    asked = EffectQuestion(*names, **how)
    return LinkedEffect(asked).prepare(made.schema, made.schema.neighbours(), Budget(1.0))


def test_everybody_counts_once_whatever_the_number_of_their_rows(made: Clinic, tables: PrivateTables) -> None:
    """With next to no noise it is the average over people of the averages over their rows, stratum by stratum."""
    rows = tables.histories().rows["visits"]
    later = np.flatnonzero(rows.number > 1)
    weight = 1 / (rows.count[rows.person[later]] - 1)
    stratum = rows.codes["severity"][later - 1]
    treated, severe = rows.codes["treat"][later - 1], rows.codes["severity"][later] == 3
    means = [
        np.bincount(stratum, weight * severe * (treated == arm), 4) / np.bincount(stratum, weight * (treated == arm), 4)
        for arm in (0, 1)
    ]
    share = np.bincount(stratum, weight, 4) / weight.sum()
    wanted = float((share * (means[1] - means[0])).sum())
    found = nearly_exact(tables, *NEXT, adjust=["visits.severity@prev"], outcome_level="severe")
    assert found.value == pytest.approx(wanted, abs=1e-3)
    assert found.counted == "people"
    assert sum(arm.rows for arm in found.arms) == pytest.approx(int((rows.count > 1).sum()), abs=2)


def test_numbers_of_rows_and_days_between_them_are_outcomes(made: Clinic, tables: PrivateTables) -> None:
    histories = tables.histories()
    count, smoke = histories.rows["visits"].count, histories.people["patients.smoke"]
    found = nearly_exact(tables, "patients.smoke", "visits.count", trial=True)
    assert found.value == pytest.approx(count[smoke == 2].mean() - count[smoke == 0].mean(), abs=0.01)
    days = made.frames["visits"].sort("patient", "date")
    gap = days["date"].diff().dt.total_days().to_numpy()[1:]
    same = days["patient"].to_numpy()[1:] == days["patient"].to_numpy()[:-1]
    before, who = days["severity"].to_numpy()[:-1][same], days["patient"].to_numpy()[1:][same]
    weight = 1 / np.bincount(who)[who]
    means = [np.average(gap[same][before == level], weights=weight[before == level]) for level in ("none", "severe")]
    apart = nearly_exact(tables, "visits.severity@prev", "visits.gap", trial=True)
    assert apart.value == pytest.approx(means[1] - means[0], abs=0.5)


def test_the_graph_says_which_rows_and_what_to_adjust_for(made: Clinic) -> None:
    after = prepared(made, *NEXT, graph=made.graph, outcome_level="severe")
    assert (after.counted.view, after.inside.table.adjustment) == ("next", ("patients.age", "visits.severity@prev"))
    same = prepared(made, "visits.severity", "visits.pain", graph=made.graph)
    assert (same.counted.view, same.inside.table.adjustment) == ("all", ())
    person = prepared(made, "patients.smoke", "visits.severity", graph=made.graph, outcome_level="severe")
    assert (person.counted.view, person.inside.table.adjustment) == ("all", ("patients.age",))
    of_people = prepared(made, "patients.smoke", "visits.count", graph=made.graph)
    assert (of_people.counted.view, of_people.inside.table.adjustment) == ("people", ("patients.age",))
    lagged = CausalGraph.from_edges(
        [
            ("visits.treat", "visits.pain"),
            ("visits.severity@prev", "visits.treat"),
            ("visits.severity@prev", "visits.pain"),
        ]
    )
    forced = prepared(made, "visits.treat", "visits.pain", graph=lagged)
    assert (forced.counted.view, forced.inside.table.adjustment) == ("next", ("visits.severity@prev",))


def test_what_went_before_the_row_before_is_hidden(made: Clinic) -> None:
    graph = CausalGraph.from_edges([
        ("visits.gap", "visits.treat"), ("visits.gap", "visits.severity"), ("visits.treat", "visits.severity"),
        ("visits.severity@prev", "visits.severity"), ("patients.age", "visits.treat"),
    ])  # fmt: skip
    whole = unrolled(made.schema, graph, "visits")
    assert whole.latents == {"earlier rows of visits", "visits.gap@prev"}
    assert set(whole.parents("visits.severity@prev")) == {
        *("visits.gap@prev", "visits.treat@prev", "earlier rows of visits"),
    }
    with pytest.raises(NotIdentifiableError, match=r"'visits\.gap@prev' is not observed"):
        prepared(made, *NEXT, graph=graph, outcome_level="severe")
    with pytest.raises(NotIdentifiableError, match="leaves the path"):
        prepared(made, *NEXT, graph=made.graph, adjust=["patients.age"], outcome_level="severe")


@pytest.mark.parametrize(
    ("names", "how", "words"),
    [
        (("visits.treat", "visits.severity@prev"), {"trial": True}, "name it without @prev"),
        (("visits.treat", "patients.smoke"), {"trial": True}, "people come before their rows"),
        (("visits.start", "visits.pain"), {"trial": True}, "of first rows only"),
        (("patients.age@prev", "visits.pain"), {"trial": True}, "only a column of rows has one in the row before"),
        (("visits.treat", "visits.pain"), {"trial": True, "refute": ["bootstrap"]}, "placebo"),
        (("visits.treat", "visits.pain"), {"graph": AncestralGraph()}, "give a CausalGraph"),
        (("visits.tret", "visits.pain"), {"trial": True}, "visits.treat"),
        (("visits.pain", "visits.severity"), {"graph": "clinic", "outcome_level": "severe"}, "no causal path"),
        (("visits.treat", "visits.pain"), {}, "give a graph"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_spent(
    made: Clinic, tables: PrivateTables, names: tuple[str, str], how: dict[str, Any], words: str
) -> None:
    given = {**how, **({"graph": made.graph} if how.get("graph") == "clinic" else {})}
    before = len(tables.account.receipts)  # type: ignore[attr-defined]
    with pytest.raises(EscudoError, match=words):
        escudo.effect_of(tables, *names, epsilon=1.0, **given)
    assert len(tables.account.receipts) == before  # type: ignore[attr-defined]


def test_a_plan_needs_the_schema_alone(made: Clinic) -> None:
    tree = escudo.plan(
        escudo.effect_of, made.schema, *NEXT, graph=made.graph, outcome_level="severe", epsilon=1.0, people=1_500
    )
    assert "24 strata" in str(tree)
    assert "one person" in str(tree)
    with pytest.raises(InputError, match="number of people"):
        escudo.plan(escudo.effect_of, made.schema, *NEXT, trial=True, outcome_level="severe", epsilon=1.0, rows=9)


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
def test_refuters_are_paid_from_the_one_plan(made: Clinic, tables: PrivateTables, delta: float) -> None:
    terms: dict[str, Any] = {"adjust": ["visits.severity@prev"], "outcome_level": "severe", "refute": REFUTERS}
    shown = escudo.plan(escudo.effect_of, tables, *NEXT, epsilon=2.0, delta=delta, **terms)
    assert shown.guarantee().epsilon == pytest.approx(2.0, rel=1e-3)
    assert len(shown.leaves()) == 3
    before = len(tables.account.receipts)  # type: ignore[attr-defined]
    found = escudo.effect_of(tables, *NEXT, epsilon=2.0, delta=delta, seed=1, **terms)
    assert [one.event for one in tables.account.receipts[before:]] == [shown.event]  # type: ignore[attr-defined]
    assert [one.kind for one in found.refutations] == list(REFUTERS)


def test_a_sound_analysis_passes_its_refuters_and_a_wrong_voice_fails_them(
    tables: PrivateTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passed(seed: int) -> list[bool]:
        terms: dict[str, Any] = {"adjust": ["visits.severity@prev"], "outcome_level": "severe", "refute": REFUTERS}
        found = escudo.effect_of(tables, *NEXT, epsilon=8.0, seed=seed, **terms)
        placebo, cause = found.refutations
        assert abs(placebo.value) < 0.1
        assert cause.value == pytest.approx(found.value, abs=0.1)
        return [placebo.passed, cause.passed]

    assert sum(sum(passed(seed)) for seed in range(10)) >= 18
    # An interval that takes every step of a voice for a person is far too narrow for coins of whole voices.
    usual = AdjustmentTable._strata_of

    def narrow(table: AdjustmentTable, noisy: Any) -> Strata:
        found = usual(table, noisy)
        return replace(found, covariance=found.covariance / 1000)

    monkeypatch.setattr(AdjustmentTable, "_strata_of", narrow)
    assert sum(passed(seed)[0] for seed in range(10)) <= 3
