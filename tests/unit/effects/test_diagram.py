"""Composition on diagrams, and ledgers as diagrams."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from escudo.causal import SEM
from escudo.effects import Diagram, bound, effect, from_ledger
from escudo.errors import GraphError, InputError
from escudo.privacy import ApproximateEvent, GDPEvent, Guarantee, Ledger, PureEvent, ZCDPEvent, guarantee_of


@pytest.fixture
def survey() -> Diagram:
    return (
        Diagram()
        .attribute("R1")
        .attribute("R2", causes=["R1"])
        .point("D1", causes=["R1"])
        .point("D2", causes=["R2"])
        .mechanism("O", reads=["D1", "D2"], epsilon=1.0)
    )


class TestPureBounds:
    def test_groups_add_up(self, survey: Diagram) -> None:
        assert bound(survey, "D1", "O").epsilon == 1.0
        assert bound(survey, "R2", "O").epsilon == 1.0
        assert bound(survey, "R1", "O").epsilon == 2.0
        assert bound(survey, ["D1", "D2"], "O").epsilon == 2.0

    def test_setting_a_variable_cuts_it_from_its_causes(self, survey: Diagram) -> None:
        assert bound(survey, ["R1", "R2"], "O").epsilon == 2.0
        assert bound(survey, "O", "D1").epsilon == 0.0
        assert bound(survey, "R1", "R2").epsilon == math.inf
        assert bound(survey, "O", "O").epsilon == math.inf

    def test_post_processing_is_free(self, survey: Diagram) -> None:
        news = survey.post("headline", reads=["O"]).post("rumour", reads=["headline"])
        found = bound(news, "R1", ["O", "headline", "rumour"])
        assert found.epsilon == 2.0
        assert any("post-processing is free" in step for step in found.derivation)

    def test_sequences_add_up(self, survey: Diagram) -> None:
        later = survey.mechanism("P", reads=["D1"], epsilon=0.5, chosen_by=["O"])
        found = bound(later, "D1", ["O", "P"])
        assert found.epsilon == 1.5
        assert any("sequence" in step for step in found.derivation)
        assert bound(later, "D1", "P").epsilon == 1.5  # P may depend on O
        assert bound(later, "D2", "P").epsilon == 1.0

    def test_reading_the_data_without_protection_proves_nothing(self, survey: Diagram) -> None:
        leaky = survey.post("leak", reads=["O", "D1"])
        assert bound(leaky, "D1", "leak").epsilon == math.inf
        assert bound(leaky, "D2", "leak").epsilon == 1.0

    def test_the_better_of_two_guards_counts(self) -> None:
        local = Diagram().attribute("R").mechanism("D", reads=["R"], epsilon=0.3)
        assert bound(local.mechanism("O", reads=["D"], epsilon=1.0), "R", "O").epsilon == 0.3
        assert bound(local.mechanism("O", reads=["D"], epsilon=0.1), "R", "O").epsilon == 0.1
        assert bound(local.mechanism("O", reads=["D"], epsilon=0.1), "R", ["D", "O"]).epsilon == 0.3

    def test_parts_by_value_cost_the_two_largest(self) -> None:
        parts = Diagram().point("D").point("E")
        parts = parts.partition("by age", reads=["D", "E"], epsilons={"young": 1.0, "old": 0.7, "other": 0.2})
        assert bound(parts, "D", ["young", "old", "other"]).epsilon == pytest.approx(1.7)
        assert bound(parts, "D", ["old", "other"]).epsilon == pytest.approx(0.9)
        assert bound(parts, "D", "other").epsilon == pytest.approx(0.2)
        assert bound(parts, ["D", "E"], ["young", "old", "other"]).epsilon == pytest.approx(3.4)

    def test_parts_by_position_are_separate_mechanisms(self) -> None:
        parts = Diagram().point("D").point("E").mechanism("A", reads=["D"], epsilon=1.0)
        parts = parts.mechanism("B", reads=["E"], epsilon=0.5)
        assert bound(parts, "D", ["A", "B"]).epsilon == 1.0
        assert bound(parts, ["D", "E"], ["A", "B"]).epsilon == 1.5

    def test_a_model_forgets_its_equations_but_not_its_bounds(self) -> None:
        sem = SEM.parse("""
            R ~ 0: 0.5, 1: 0.5
            D := R
            O := randomised_response(D, epsilon = 1)
            Z := 1 - O
        """)
        diagram = Diagram.of(sem, mechanisms=["O"])
        found = bound(diagram, "R", "Z")
        assert found.epsilon == pytest.approx(effect(sem, "R", "Z").epsilon)
        assert found.known == "proved"


class TestGuarantees:
    def test_events_compose_by_the_best_accountant(self) -> None:
        diagram = Diagram().point("D")
        events = [ZCDPEvent(rho=0.05)] * 4
        for i, event in enumerate(events):
            diagram = diagram.mechanism(f"O{i}", reads=["D"], guarantee=event)
        outputs = [f"O{i}" for i in range(4)]
        found = bound(diagram, "D", outputs, delta=1e-6)
        assert found.epsilon == pytest.approx(guarantee_of(events, delta=1e-6).epsilon)
        assert found.delta == 1e-6
        assert bound(diagram, "D", outputs).epsilon == math.inf  # no pure epsilon

    def test_groups_stretch_events(self) -> None:
        diagram = Diagram().point("D").point("E").mechanism("O", reads=["D", "E"], guarantee=GDPEvent(mu=0.5))
        expected = guarantee_of(GDPEvent(mu=1.0), delta=1e-5).epsilon
        assert bound(diagram, ["D", "E"], "O", delta=1e-5).epsilon == pytest.approx(expected)

    def test_guarantees_and_epsilons_mix(self) -> None:
        diagram = Diagram().point("D").mechanism("A", reads=["D"], epsilon=0.5)
        diagram = diagram.mechanism("B", reads=["D"], guarantee=Guarantee(epsilon=0.25))
        diagram = diagram.mechanism("C", reads=["D"], guarantee=ApproximateEvent(epsilon=0.25, delta=1e-8))
        assert bound(diagram, "D", ["A", "B"]).epsilon == pytest.approx(0.75)
        assert bound(diagram, "D", ["A", "B", "C"], delta=1e-7).epsilon == pytest.approx(1.0)

    def test_adding_and_removing_counts_twice_for_replacing(self) -> None:
        event = PureEvent(epsilon=0.5, relation="add_remove")
        diagram = Diagram().point("D").mechanism("O", reads=["D"], guarantee=event)
        assert bound(diagram, "D", "O").epsilon == pytest.approx(1.0)


class TestLedgers:
    def test_a_ledger_is_a_diagram(self, tmp_path: Path) -> None:
        with Ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
            ledger.open("visits", epsilon=3.0)
            ledger.spend("visits", PureEvent(epsilon=0.5), purpose="a count")
            failed = ledger.spend("visits", PureEvent(epsilon=0.25))
            ledger.fail(failed)
            diagram = from_ledger(ledger, "visits", people=4)
            spent = ledger.total("visits").epsilon
        outputs = ["release 1", "release 2"]  # what failed stays spent
        assert diagram.nodes["release 1"].text == "a count"
        assert bound(diagram, "D1", outputs).epsilon == pytest.approx(spent)
        assert bound(diagram, [f"D{i}" for i in range(1, 5)], outputs).epsilon == pytest.approx(4 * 0.75)
        assert bound(diagram, "R", outputs).epsilon == pytest.approx(4 * 0.75)
        assert bound(diagram, "D1", "release 2").epsilon == pytest.approx(0.75)  # chosen after release 1

    def test_persons_are_units_too(self, tmp_path: Path) -> None:
        with Ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
            ledger.open("visits", epsilon=3.0, delta=1e-6, unit="person", max_rows_per_person=5)
            ledger.spend("visits", ZCDPEvent(rho=0.01, unit="person", max_rows_per_person=5))
            diagram = from_ledger(ledger, "visits")
            spent = ledger.total("visits").epsilon
        assert bound(diagram, "D1", "release 1", delta=1e-6).epsilon == pytest.approx(spent)


class TestRefusals:
    def test_causes_come_first(self) -> None:
        with pytest.raises(GraphError, match="add causes before effects"):
            Diagram().point("D", causes=["R"])
        with pytest.raises(GraphError, match="already"):
            Diagram().point("D").point("D")

    def test_a_mechanism_promises_one_thing(self) -> None:
        points = Diagram().point("D").point("E")
        with pytest.raises(InputError, match="either epsilon or guarantee"):
            points.mechanism("O", reads=["D"])
        with pytest.raises(InputError, match="either epsilon or guarantee"):
            points.mechanism("O", reads=["D"], epsilon=1.0, guarantee=PureEvent(epsilon=1.0))
        with pytest.raises(InputError, match="exactly what it reads"):
            points.mechanism("O", reads=["D", "E"], epsilon={"D": 1.0})
        with pytest.raises(InputError, match="epsilon for D must be at least 0"):
            points.mechanism("O", reads=["D"], epsilon=-1.0)

    def test_one_name_needs_no_list(self) -> None:
        diagram = Diagram().attribute("R1").point("D1", causes="R1").mechanism("O", reads="D1", epsilon=1.0)
        assert bound(diagram.post("P", reads="O"), "R1", "P").epsilon == 1.0

    def test_a_guarantee_is_not_a_number(self) -> None:
        with pytest.raises(InputError, match="guarantee of mechanism 'O' must be a Guarantee or an Event"):
            Diagram().point("D").mechanism("O", reads=["D"], guarantee=1.0)  # type: ignore[arg-type]

    def test_a_household_has_somebody_in_it(self, tmp_path: Path) -> None:
        with Ledger(f"sqlite:///{tmp_path}/book.db") as book:
            book.open("clinic", epsilon=1.0)
            with pytest.raises(InputError, match="people must be a whole number of at least 1"):
                from_ledger(book, "clinic", people=0)

    def test_unknown_nodes_get_a_suggestion(self, survey: Diagram) -> None:
        with pytest.raises(InputError, match="no node 'D3'"):
            bound(survey, "D3", "O")
        with pytest.raises(InputError, match="at least one"):
            bound(survey, [], "O")
        with pytest.raises(InputError, match="delta must lie in"):
            bound(survey, "D1", "O", delta=1.5)
