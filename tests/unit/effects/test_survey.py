"""All effects of a model, the mechanism at its end, symmetry, and size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from escudo.causal import SEM, alike
from escudo.effects import CountMechanism, Mechanism, associative, definitions, effect, mechanism_of, survey
from escudo.errors import InputError


class TestSurvey:
    def test_rows_say_who_does_how_much_by_what(self, survey_model: SEM, e: float) -> None:
        found = survey(survey_model)
        rows = {row.names: row for row in found.rows}
        assert found.outputs == ("O",)
        assert set(rows) == {("R1",), ("R2",), ("R3",), ("D1", "D2", "D3")}
        assert rows[("R1",)].by_what == "D1 and, through R2, D2"
        assert rows[("R1",)].effect.epsilon == pytest.approx(2 * e)
        assert rows[("R2",)].by_what == "D2"
        assert rows[("D1", "D2", "D3")].role == "data point"
        ((jointly, added),) = found.together
        assert (jointly.of, jointly.epsilon, added.epsilon) == (
            ("R1", "R2"),
            pytest.approx(2 * e),
            pytest.approx(3 * e),
        )

    def test_one_may_choose_what_to_look_at(self, survey_model: SEM, e: float) -> None:
        found = survey(survey_model, of=["R1"], on=["D1", "D2"], population="own")
        assert [row.names for row in found.rows] == [("R1",)]
        assert found.rows[0].effect.epsilon == math.inf
        assert found.rows[0].effect.population == "the model's own population"

    def test_outputs_that_are_alike_are_told_apart(self) -> None:
        sem = SEM.parse("R[1..3] ~ 0: 0.9, 1: 0.1\nD[i in 1..3] := R[i]\nO := count(D[1..3] = 1)")
        found = {row.names: row.effect.epsilon for row in survey(sem, of=["R1", "R2"], on=["D1"]).rows}
        assert found == {("R1",): math.inf, ("R2",): 0.0}

    def test_people_alike_in_one_population_may_differ_in_another(self) -> None:
        sem = SEM.parse("R[1..2] ~ 0: 0.5, 1: 0.5\nO := truncated_geometric(max(R[1..2]), epsilon = 1)")
        assert len(survey(sem, population="own").rows) == 1
        law = {"R1": {0: 1.0, 1: 0.0}, "R2": {0: 0.0, 1: 1.0}}
        rows = {row.names: row.effect.epsilon for row in survey(sem, population=law).rows}
        assert rows[("R1",)] == pytest.approx(0.0)  # R2 is 1 anyway
        assert rows[("R2",)] == pytest.approx(1.0)

    def test_without_equations_nothing_is_put_out(self) -> None:
        with pytest.raises(InputError, match="no equation"):
            survey(SEM.parse("X ~ 0: 0.5, 1: 0.5"))


class TestSymmetry:
    def test_people_who_are_only_counted_are_alike(self) -> None:
        sem = SEM.parse("R[1..5] ~ 0: 0.9, 1: 0.1\nD[i in 1..5] := R[i]\nO := count(D[1..5] = 1)")
        groups = {len(group): group for group in alike(sem)}
        assert groups[5] in (tuple(f"R{i}" for i in range(1, 6)), tuple(f"D{i}" for i in range(1, 6)))
        assert len(alike(sem)) == 3

    @pytest.mark.parametrize(
        ("text", "apart"),
        [
            ("R[1..3] ~ 0: 0.9, 1: 0.1\nO := count(R1, R2 = 1) + 2 * R3", {"R3"}),  # another weight
            ("R[1..2] ~ 0: 0.9, 1: 0.1\nR3 ~ 0: 0.5, 1: 0.5\nO := count(R[1..3] = 1)", {"R3"}),  # another law
            ("R[1..3] ~ 0: 0.9, 1: 0.1\nZ := R3\nO := count(R[1..3] = 1)", {"R3"}),  # another child
            ("R[1..2] ~ 0: 0.9, 1: 0.1\nR3 := R1\nO := count(R[1..3] = 1)", {"R1", "R2", "R3"}),  # another cause
            ("R[1..3] ~ 0: 0.9, 1: 0.1\nO := count(R1 = 1, R2 = 1, R3 = 0)", {"R3"}),  # another test
            ("R[1..3] ~ 0: 0.9, 1: 0.1\nO := count(R[1..3] = 1) + R3", {"R3"}),  # read twice
            ("R[1..2] ~ 0: 0.9, 1: 0.1\nR3 ~ 0: 0.1, 1: 0.9\nO := count(R[1..3] = 1)", {"R3"}),
        ],
    )
    def test_who_differs_is_not_alike(self, text: str, apart: set[str]) -> None:
        groups = {name: group for group in alike(SEM.parse(text)) for name in group}
        assert all(groups[name] == (name,) for name in apart)
        others = {"R1", "R2", "R3"} - apart
        assert all(set(groups[name]) == others for name in others)

    def test_alike_variables_have_equal_effects(self) -> None:
        sem = SEM.parse("""
            R[1..4] ~ 0: 0.9, 1: 0.1
            N[1..4] := bernoulli(1/3)
            D[i in 1..4] := max(R[i], N[i])
            O := truncated_geometric(sum(D[1..4]), epsilon = 1)
        """)
        for group in alike(sem):
            for population in (None, "own"):
                found = [effect(sem, name, "O", population=population).epsilon for name in group]
                assert found == pytest.approx([found[0]] * len(found), abs=1e-12)


class TestMechanismOf:
    def test_the_mechanism_at_the_end_and_its_population(self, survey_model: SEM, e: float) -> None:
        mechanism, population = mechanism_of(survey_model)
        assert isinstance(mechanism, Mechanism)
        assert mechanism.points == ("D1", "D2", "D3")
        assert population[0, 1].sum() == 0  # R2 copies R1
        assert definitions(mechanism, population)["bayesian0"].epsilon == pytest.approx(2 * e)

    def test_many_alike_people_become_a_count(self) -> None:
        n = 40
        text = f"R[1..{n}] ~ 0: 0.75, 1: 0.25\nD[i in 1..{n}] := R[i]\n"
        sem = SEM.parse(text + f"O := truncated_geometric(count(D[1..{n}] = 1), epsilon = 1)")
        mechanism, population = mechanism_of(sem)
        assert isinstance(mechanism, CountMechanism)
        assert mechanism.n == n
        assert population @ np.arange(n + 1) == pytest.approx(n / 4)
        result = definitions(mechanism, population)
        assert result[7].epsilon == pytest.approx(effect(sem, "D1", "O", population="own").epsilon, rel=1e-9)
        assert result["bayesian0"].epsilon == pytest.approx(associative(sem, "D1", "O").epsilon, rel=1e-9)
        assert result[3].epsilon == pytest.approx(n)

    def test_alike_people_may_depend_on_each_other(self) -> None:
        n = 40
        text = f"W ~ 0: 0.5, 1: 0.5\nD[1..{n}] := randomised_response(W, epsilon = 1)\n"
        sem = SEM.parse(text + f"O := truncated_geometric(count(D[1..{n}] = 1), epsilon = 1)")
        mechanism, population = mechanism_of(sem)
        law = definitions(mechanism, population)
        keep = 1 / (1 + math.exp(-1))
        binomial = [
            math.comb(n, k) * (keep**k * (1 - keep) ** (n - k) + (1 - keep) ** k * keep ** (n - k)) / 2
            for k in range(n + 1)
        ]
        assert population == pytest.approx(binomial)
        assert law["bayesian0"].epsilon == pytest.approx(associative(sem, "D1", "O").epsilon)

    def test_what_cannot_be_taken_out_is_refused(self) -> None:
        with pytest.raises(InputError, match="choose one of them"):
            mechanism_of(SEM.parse("X ~ 0: 1\nY := X\nZ := X"))
        with pytest.raises(InputError, match="reads nothing"):
            mechanism_of(SEM.parse("X ~ 0: 1\nY := bernoulli(1/2)"))
        wide = "R[1..40] ~ 0: 0.5, 1: 0.5\nO := sum(R[1..40]) + R1"
        with pytest.raises(InputError, match="too many for a table"):
            mechanism_of(SEM.parse(wide))


class TestSize:
    def test_a_chain_of_200_variables(self) -> None:
        text = "X0 ~ 0: 0.5, 1: 0.5\nX[i in 1..199] := randomised_response(X[i-1], epsilon = 8)"
        sem = SEM.parse(text)
        # The product of 199 symmetric channels with flip probability f is one with (1 - (1 - 2f)^199) / 2.
        flip = 1 / (1 + math.exp(8))
        kept = (1 + (1 - 2 * flip) ** 199) / 2
        assert effect(sem, "X0", "X199").epsilon == pytest.approx(math.log(kept / (1 - kept)))

    def test_a_chain_with_background_noise_at_every_step(self) -> None:
        text = "X0 ~ 0: 0.5, 1: 0.5\nN[1..199] ~ 0: 0.5, 1: 0.5\nX[i in 1..199] := (X[i-1] + N[i]) % 2"
        assert effect(SEM.parse(text), "X0", "X199").epsilon == math.inf
        noisy = text.replace(":= (X[i-1] + N[i]) % 2", ":= randomised_response((X[i-1] + N[i]) % 2, epsilon = 8)")
        flip = 1 / (1 + math.exp(8))
        kept = (1 + (1 - 2 * flip) ** 199) / 2
        assert effect(SEM.parse(noisy), "X0", "X199").epsilon == pytest.approx(math.log(kept / (1 - kept)))

    def test_a_count_of_a_thousand_people(self) -> None:
        n = 1000
        text = f"R1 ~ 0: 0.9, 1: 0.1\nR2 := R1\nR[3..{n}] ~ 0: 0.9, 1: 0.1\nD[i in 1..{n}] := R[i]\n"
        sem = SEM.parse(text + f"O := truncated_geometric(count(D[1..{n}] = 1), epsilon = 1)")
        found = effect(sem, "R1", "O")
        assert found.epsilon == pytest.approx(2.0)
        assert found.witness is not None
        assert len(found.witness.background) == n - 2
        assert effect(sem, "D7", "O").epsilon == pytest.approx(1.0)

    def test_noise_of_a_hundred_peoples_own(self) -> None:
        n = 100
        text = f"R[1..{n}] ~ 0: 0.9, 1: 0.1\nD[i in 1..{n}] := randomised_response(R[i], epsilon = 2)\n"
        sem = SEM.parse(text + f"O := sum(D[1..{n}])")
        assert effect(sem, "R5", "O").epsilon == pytest.approx(2.0)
        assert effect(sem, ["R5", "R6"], "O").epsilon == pytest.approx(4.0)
        assert effect(sem, "D5", "O").epsilon > 0

    def test_many_inputs_set_together(self) -> None:
        n = 12
        text = f"R[1..{n}] ~ 0: 0.9, 1: 0.1\nD[i in 1..{n}] := R[i]\n"
        sem = SEM.parse(text + f"O := truncated_geometric(count(D[1..{n}] = 1), epsilon = 1)")
        points = [f"D{i}" for i in range(1, n + 1)]
        found = effect(sem, points, "O")
        assert found.epsilon == pytest.approx(n)
        assert found.witness is not None
        assert set(found.witness.x1) == set(points)
