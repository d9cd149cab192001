"""Exact effects: the paper's examples, the conventions, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from escudo.causal import SEM
from escudo.effects import (
    Diagram,
    associative,
    bound,
    direct,
    effect,
    joint,
    path,
    relative_probability,
    total,
)
from escudo.errors import InputError, ZeroProbabilityError


def close(value: float, expected: float) -> bool:
    return value == expected or abs(value - expected) <= 1e-9 * max(1.0, abs(expected))


class TestNoisyCount:
    @pytest.mark.parametrize(("of", "times"), [("R1", 2), ("R2", 1), ("R3", 1), ("D1", 1), ("D2", 1), ("D3", 1)])
    def test_single_effects(self, survey_model: SEM, e: float, of: str, times: int) -> None:
        assert close(effect(survey_model, of, "O").epsilon, times * e)

    @pytest.mark.parametrize(
        ("of", "added", "jointly"),
        [(["R1", "R2"], 3, 2), (["R1", "R2", "R3"], 4, 3), (["D1", "D2"], 2, 2), (["D1", "D2", "D3"], 3, 3)],
    )
    def test_groups(self, survey_model: SEM, e: float, of: list[str], added: int, jointly: int) -> None:
        assert close(total(survey_model, of, "O").epsilon, added * e)
        assert close(joint(survey_model, of, "O").epsilon, jointly * e)

    def test_direct_effects(self, survey_model: SEM, e: float) -> None:
        assert close(direct(survey_model, "R1", "O", holding="R2").epsilon, e)
        assert direct(survey_model, "R1", "O", holding=["D1", "D2"]).epsilon == 0

    @pytest.mark.parametrize(("through", "times"), [(["D1"], 1), (["R2"], 1), (["D1", "R2"], 2)])
    @pytest.mark.parametrize("baseline", ["natural", "held"])
    def test_paths(self, survey_model: SEM, e: float, through: list[str], times: int, baseline: str) -> None:
        found = path(survey_model, "R1", "O", through=through, baseline=baseline)  # type: ignore[arg-type]
        assert close(found.epsilon, times * e)

    def test_causes_are_not_affected_and_copies_are_without_bound(self, survey_model: SEM) -> None:
        assert effect(survey_model, "R2", "R1").epsilon == 0
        assert effect(survey_model, "O", "D1").epsilon == 0
        assert effect(survey_model, "R1", "R2").epsilon == math.inf

    def test_learning_is_more_than_setting(self, survey_model: SEM, e: float) -> None:
        found = {name: associative(survey_model, name, "O").epsilon for name in ("D1", "D2", "D3")}
        assert close(found["D1"], 2 * e)
        assert close(found["D2"], 2 * e)
        assert close(found["D3"], e)
        assert close(effect(survey_model, "D1", "O", population="own").epsilon, e)

    def test_no_population_makes_learning_more_than_definition_3(self, survey_model: SEM, e: float) -> None:
        assert close(associative(survey_model, "D1", "O", population=None).epsilon, 3 * e)


class TestCancellingPaths:
    @pytest.fixture
    def sem(self, e: float) -> SEM:
        return SEM.parse(f"""
            R1 ~ 0: 0.5, 1: 0.5
            R2 := R1
            D1 := R1
            D2 := R2
            O := truncated_geometric(D2 - D1 + 1, epsilon = {e!r}, lower = 0, upper = 2)
        """)

    def test_joint_may_exceed_total(self, sem: SEM, e: float) -> None:
        assert close(effect(sem, "R1", "O").epsilon, 0)
        assert close(total(sem, ["R1", "R2"], "O").epsilon, e)
        assert close(joint(sem, ["R1", "R2"], "O").epsilon, 2 * e)

    def test_direct_may_exceed_the_effect(self, sem: SEM, e: float) -> None:
        assert close(direct(sem, "R1", "O", holding="R2").epsilon, e)


class TestRandomisedResponse:
    @pytest.mark.parametrize("output", ["(D1, D2)", "count(D1, D2 = 1)"])
    def test_the_noise_is_before_the_data_point(self, e: float, output: str) -> None:
        apart = f"""
            R1 ~ 0: 0.5, 1: 0.5
            R2 ~ 0: 0.5, 1: 0.5
            D[i in 1..2] := randomised_response(R[i], epsilon = {e!r})
            O := {output}
        """
        sem = SEM.parse(apart)
        assert close(effect(sem, "R1", "D1").epsilon, e)
        assert close(effect(sem, "R1", "O").epsilon, e)
        assert effect(sem, "D1", "O").epsilon == math.inf
        copied = SEM.parse(apart.replace("R2 ~ 0: 0.5, 1: 0.5", "R2 := R1"))
        assert close(effect(copied, "R1", "O").epsilon, 2 * e)
        assert close(effect(copied, "R2", "O").epsilon, e)


class TestSocialNetwork:
    @pytest.fixture
    def sem(self, e: float) -> SEM:
        return SEM.parse(f"""
            B ~ 0: 0.5, 1: 0.5
            F ~ 0: 0.5, 1: 0.5
            EAB := B
            EBC := B
            EAC := 1 if F = 1 or (EAB = 1 and EBC = 1) else 0
            DAB := EAB
            DBC := EBC
            DAC := EAC
            O := truncated_geometric(count(DAB, DBC, DAC = 1), epsilon = {e!r})
        """)

    def test_edge_node_and_evidence_of_participation(self, sem: SEM, e: float) -> None:
        for edge in ("DAB", "DBC", "DAC", "EAC", "F"):
            assert close(effect(sem, edge, "O").epsilon, e)
        assert close(joint(sem, ["DAB", "DBC"], "O").epsilon, 2 * e)
        assert close(direct(sem, "B", "O", holding="EAC").epsilon, 2 * e)
        assert close(effect(sem, "B", "O").epsilon, 3 * e)

    def test_friendships_with_what_follows_from_them(self, sem: SEM, e: float) -> None:
        assert close(effect(sem, "EAB", "O").epsilon, 2 * e)
        assert close(joint(sem, ["EAB", "EBC"], "O").epsilon, 3 * e)
        assert close(total(sem, ["EAB", "EBC"], "O").epsilon, 4 * e)
        assert close(path(sem, "B", "O", through="EAB").epsilon, 2 * e)


class TestSequence:
    def test_theorem_1_is_tight_here(self) -> None:
        sem = _sequence([[2 / 3, 1 / 3], [3 / 4, 1 / 4]], [[1 / 3, 2 / 3], [1 / 4, 3 / 4]])
        assert close(effect(sem, "X", "Y").epsilon, math.log(2))
        assert close(direct(sem, "X", "Z", holding="Y").epsilon, math.log(3))
        assert close(effect(sem, "X", ["Y", "Z"]).epsilon, math.log(6))
        assert close(bound(Diagram.of(sem, mechanisms=["Y", "Z"]), "X", ["Y", "Z"]).epsilon, math.inf)
        guarded = Diagram().point("X").mechanism("Y", reads=["X"], epsilon=math.log(2))
        guarded = guarded.mechanism("Z", reads=["X"], epsilon=math.log(3), chosen_by=["Y"])
        assert close(bound(guarded, "X", ["Y", "Z"]).epsilon, math.log(6))

    def test_and_loose_there(self) -> None:
        sem = _sequence([[3 / 4, 1 / 4], [1 / 2, 1 / 2]], [[1 / 2, 1 / 2], [1 / 2, 1 / 2]])
        added = effect(sem, "X", "Y").epsilon + direct(sem, "X", "Z", holding="Y").epsilon
        assert close(added, math.log(4))
        assert close(effect(sem, "X", ["Y", "Z"]).epsilon, math.log(3))

    def test_a_common_coin_breaks_the_remark_about_further_parents(self) -> None:
        # W is a coin of the model's own; each output alone looks random, together they show X.
        sem = SEM.parse("""
            X ~ 0: 0.5, 1: 0.5
            W := bernoulli(1/2)
            Y := (X + W) % 2
            Z := (Y + W) % 2
        """)
        assert effect(sem, "X", "Y").epsilon == 0
        assert direct(sem, "X", "Z", holding="Y").epsilon == 0
        assert effect(sem, "X", ["Y", "Z"]).epsilon == math.inf
        assert bound(Diagram.of(sem, mechanisms=["Y", "Z"]), "X", ["Y", "Z"]).epsilon == math.inf


class TestConventions:
    def test_an_impossible_outcome_compares_nothing(self) -> None:
        sem = SEM.build(exogenous={"X": {0: 0.5, 1: 0.5}}, equations={"Y": ("X", np.array([[1.0, 0], [1, 0]]), (0, 1))})
        assert effect(sem, "X", "Y").epsilon == 0
        with pytest.raises(ZeroProbabilityError, match="impossible under both"):
            relative_probability(sem, {"Y": 1}, {"X": 0}, {"X": 1})

    def test_relative_probability_is_the_ratio(self) -> None:
        sem = SEM.parse("X ~ 0: 0.5, 1: 0.5\nY := randomised_response(X, epsilon = ln(3))")
        assert close(relative_probability(sem, {"Y": 1}, {"X": 1}, {"X": 0}), 3.0)
        assert close(relative_probability(sem, {"Y": 1}, {"X": 0}, {"X": 1}, population={"X": {0: 1.0}}), 1 / 3)
        copy = SEM.parse("X ~ 0: 0.5, 1: 0.5\nY := X")
        assert relative_probability(copy, {"Y": 1}, {"X": 1}, {"X": 0}) == math.inf
        with pytest.raises(InputError, match="needs a population"):
            relative_probability(copy, {"Y": 1}, {"X": 1}, {"X": 0}, population=None)

    def test_setting_a_value_of_probability_zero_counts(self) -> None:
        sem = SEM.parse("X ~ 0: 1, 1: 0\nY := X")
        assert effect(sem, "X", "Y", population="own").epsilon == math.inf
        assert associative(sem, "X", "Y").epsilon == 0

    def test_a_variable_has_an_effect_without_bound_on_itself(self) -> None:
        sem = SEM.parse("X ~ 0: 0.5, 1: 0.5\nY := bernoulli(1/2)")
        assert effect(sem, ["X", "Y"], "Y").epsilon == math.inf
        assert associative(sem, "X", ["X", "Y"]).epsilon == math.inf
        one = SEM.parse("X ~ 0: 1\nY := X")
        assert effect(one, "X", "X").epsilon == 0
        assert associative(one, "X", "X").epsilon == 0

    def test_probabilities_too_small_for_floats_are_not_zero(self) -> None:
        sem = SEM.parse("X ~ 0: 0.5, 900: 0.5\nO := truncated_geometric(X, epsilon = 1, lower = 0, upper = 900)")
        assert close(effect(sem, "X", "O").epsilon, 900.0)

    def test_the_witness_says_where(self, survey_model: SEM, e: float) -> None:
        found = effect(survey_model, "R1", "O")
        assert found.witness is not None
        w = found.witness
        ratio = relative_probability(
            survey_model, w.y, w.x1, w.x2, population={k: {v: 1.0} for k, v in w.background.items()}
        )
        assert close(math.log(ratio), 2 * e)
        assert w.probabilities is not None
        assert close(math.log(w.probabilities[0] / w.probabilities[1]), 2 * e)


class TestRefusals:
    @pytest.fixture
    def sem(self) -> SEM:
        return SEM.parse("X ~ 0: 0.5, 1: 0.5\nM := X\nY := M + X")

    def test_unknown_names_get_a_suggestion(self, sem: SEM) -> None:
        with pytest.raises(InputError, match="no variable 'Z'"):
            effect(sem, "X", "Z")
        with pytest.raises(InputError, match="of must name at least one"):
            effect(sem, [], "Y")
        with pytest.raises(InputError, match="none twice"):
            effect(sem, ["X", "X"], "Y")

    def test_mediators_are_not_what_is_changed(self, sem: SEM) -> None:
        with pytest.raises(InputError, match="holding must not name"):
            direct(sem, "X", "Y", holding=["X", "M"])

    def test_paths_leave_through_children(self, sem: SEM) -> None:
        with pytest.raises(InputError, match="which are M, Y"):
            path(sem, "X", "Y", through=["X"])
        with pytest.raises(InputError, match="baseline must be one of"):
            path(sem, "X", "Y", through=["M"], baseline="nature")  # type: ignore[arg-type]

    def test_the_worst_association_needs_a_variable_without_chance(self) -> None:
        sem = SEM.parse("X ~ 0: 0.5, 1: 0.5\nD := randomised_response(X, epsilon = 1)\nO := D")
        with pytest.raises(InputError, match="without chance"):
            associative(sem, "D", "O", population=None)

    def test_a_population_is_own_or_a_law(self, sem: SEM) -> None:
        with pytest.raises(InputError, match="population must be one of 'own'"):
            effect(sem, "X", "Y", population="mine")

    def test_a_question_too_large_says_what_to_do(self) -> None:
        text = "U[1..30] ~ 0: 0.5, 1: 0.5\nX ~ 0: 0.5, 1: 0.5\n"
        text += "".join(f"Y{i} := randomised_response(U{i}, epsilon = 1 + {i}/7)\n" for i in range(1, 31))
        sem = SEM.parse(text + "O := (sum(Y[1..30]) + X) % 2")
        with pytest.raises(InputError, match="limit"):
            effect(sem, "X", [f"Y{i}" for i in range(1, 31)])


def _sequence(row0: list[list[float]], row1: list[list[float]]) -> SEM:
    """X, then Y as randomised response with ln 2, then Z given (X, Y)."""
    return SEM.build(
        exogenous={"X": {0: 0.5, 1: 0.5}},
        equations={
            "Y": ("X", np.array([[2 / 3, 1 / 3], [1 / 3, 2 / 3]]), (0, 1)),
            "Z": (("X", "Y"), np.array([row0, row1]), (0, 1)),
        },
    )
