"""The ten definitions: the answer key, labels, and counts of many people."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from escudo.effects import CountMechanism, Mechanism, definitions
from escudo.errors import InputError

Geometric = Callable[[float, int], np.ndarray]


@pytest.fixture
def population() -> np.ndarray:
    """R1 = R2; R1 and R3 uniform."""
    law = np.zeros((2, 2, 2))
    law[0, 0, :] = law[1, 1, :] = 0.25
    return law


class TestNoisyCount:
    def test_the_answer_key(self, geometric: Geometric, population: np.ndarray, e: float) -> None:
        mechanism = CountMechanism(geometric(e, 3)).expand()
        result = definitions(mechanism, population)
        times = {1: 1, 2: 1, 3: 3, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 10: 1, "bayesian0": 2}
        assert list(result) == list(times)
        for number, factor in times.items():
            assert result[number].epsilon == pytest.approx(factor * e, rel=1e-9), number
        assert result["bayesian0"].persons == pytest.approx((2 * e, 2 * e, e), rel=1e-9)

    def test_definition_4_as_printed_is_stronger(self, geometric: Geometric, e: float) -> None:
        mechanism = CountMechanism(geometric(e, 3))
        printed = definitions(mechanism.expand(), independence="pairwise-conditional")
        assert printed[4].epsilon == pytest.approx(3 * e, rel=1e-9)
        assert printed[4].relation == "⇒ DP"
        assert definitions(mechanism.expand())[4].relation == "⇔ DP"
        assert ("4", "⇒", "1") in {(str(i.first), i.arrow, str(i.second)) for i in printed.implications}

    def test_the_table_is_the_one_worked_out_by_hand(self, geometric: Geometric) -> None:
        assert geometric(math.log(2), 3)[0] == pytest.approx([2 / 3, 1 / 6, 1 / 12, 1 / 12])


class TestCounterexamples:
    def test_proposition_4(self) -> None:
        table = np.full((3, 3, 2), 0.5)
        table[2, 2] = [1, 0]
        law = np.zeros((3, 3))
        law[:2, :2] = 0.25
        result = definitions(table, law)
        assert {k for k, d in result.items() if d.epsilon == math.inf} == {1, 2, 3, 4, 5, 6, 8}
        assert {k for k, d in result.items() if d.epsilon == 0} == {7, 10, "bayesian0"}
        assert result[7].witness is None

    def test_appendix_b(self) -> None:
        result = definitions([[0.5, 0.5], [0.5, 0.5], [1, 0]], [0.5, 0.5, 0])
        assert {k for k, d in result.items() if d.epsilon == math.inf} == {1, 2, 3, 4, 5, 6, 7, 8}
        assert {k for k, d in result.items() if d.epsilon == 0} == {10, "bayesian0"}


class TestResults:
    def test_fractions_and_labels_come_through(self) -> None:
        half, third = Fraction(1, 2), Fraction(1, 3)
        mechanism = Mechanism(
            [[half, half], [third, 1 - third]], points=["status"], values=[["neg", "pos"]], outputs=["low", "high"]
        )
        one = definitions(mechanism)[1]
        assert one.epsilon == pytest.approx(math.log(3 / 2))
        assert one.witness is not None
        assert one.witness.y == {"O": "low"}
        assert (one.witness.x1, one.witness.x2) == ({"status": "neg"}, {"status": "pos"})
        assert one.witness.probabilities == pytest.approx((1 / 2, 1 / 3))
        assert "1.5 times as likely (e^0.41)" in one.sentence

    def test_definitions_about_a_population_need_one(self) -> None:
        result = definitions([[0.5, 0.5], [0.5, 0.5]])
        assert list(result) == [1, 2, 3, 4, 5, 6, 8]
        with pytest.raises(InputError, match="Definition 7 is about a given population"):
            result[7]
        with pytest.raises(InputError, match="Definition 9 is not one of"):
            result[9]  # type: ignore[index]
        assert 7 not in result
        assert 1 in result
        assert result.get(7) is None

    def test_every_definition_speaks(self) -> None:
        for table in ([[0.5, 0.5], [0.25, 0.75]], [[0.5, 0.5], [0.5, 0.5]], [[1, 0], [0, 1]]):
            result = definitions(table, [0.5, 0.5])
            assert len({one.sentence for one in result.values()}) == len(result)
            assert all(one.name and one.compares and one.populations for one in result.values())
            assert all(one.to_json()["epsilon"] in (one.epsilon, "inf") for one in result.values())
        assert "no ε holds" in result[1].sentence
        assert repr(result).startswith("Definitions(1: ∞")

    def test_implications_carry_this_mechanisms_numbers(self, geometric: Geometric) -> None:
        result = definitions(CountMechanism(geometric(1.0, 2)).expand())
        text = "\n".join(map(str, result.implications))
        assert "3 ⇒ 1: here ε = 2.00 and 1.00" in text
        assert "1 ⇒ 3 (if data points are independent): here ε is 2.00, not 1.00, without it" in text
        assert "1 ⇔ 8: here ε = 1.00 in both" in text
        assert "bayesian0" not in text


class TestRefusals:
    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ([[0.5, 0.6]], "must sum to 1 in row"),
            ([[1.5, -0.5]], "negative"),
            ([[math.nan, 1]], "finite"),
            ([], "non-empty"),
            ([0.5, 0.5], "an axis for each data point"),
            ([["a", "b"]], "array of numbers"),
        ],
    )
    def test_bad_tables(self, table: object, message: str) -> None:
        with pytest.raises(InputError, match=message):
            definitions(table)

    def test_populations_must_fit(self) -> None:
        table = [[0.5, 0.5], [0.5, 0.5]]
        with pytest.raises(InputError, match=r"shape \(2,\)"):
            definitions(table, [0.5, 0.25, 0.25])
        with pytest.raises(InputError, match=r"must sum to 1; it sums to 0\.9"):
            definitions(table, [0.5, 0.4])
        with pytest.raises(InputError, match="3 probabilities"):
            definitions(CountMechanism([[1, 0], [1, 0], [1, 0]]), [0.5, 0.5])
        with pytest.raises(InputError, match="independence must be one of"):
            definitions(table, independence="pairwise")  # type: ignore[arg-type]

    def test_labels_must_fit(self) -> None:
        table = [[0.5, 0.5], [0.5, 0.5]]
        with pytest.raises(InputError, match="points must name 1"):
            Mechanism(table, points=["a", "b"])
        with pytest.raises(InputError, match="values must name"):
            Mechanism(table, values=[["a"]])
        with pytest.raises(InputError, match="outputs must name 2"):
            Mechanism(table, outputs=["a"])
        with pytest.raises(InputError, match="log must hold"):
            Mechanism(table, log=np.zeros((2, 2)))

    def test_count_tables_must_fit(self) -> None:
        with pytest.raises(InputError, match="has 4 rows; got 2"):
            CountMechanism([[1, 0], [1, 0]], 3)
        with pytest.raises(InputError, match="shape"):
            CountMechanism([[1, 0]])
        with pytest.raises(InputError, match="too large"):
            CountMechanism(np.full((30, 2), 0.5)).expand()


class TestManyPeople:
    def test_a_thousand_people_take_no_time(self, geometric: Geometric) -> None:
        # Written with logarithms: the smallest probabilities, e^-1000, are no floats.
        n, epsilon = 1000, 1.0
        c, o = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
        inside = math.log((1 - math.exp(-epsilon)) / (1 + math.exp(-epsilon))) - epsilon * np.abs(c - o)
        edge = -math.log1p(math.exp(-epsilon)) - epsilon * np.abs(c - o)
        log = np.where((o == 0) | (o == n), edge, inside)
        law = np.exp(
            [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)] - n * np.log(2)
        )
        result = definitions(
            CountMechanism(np.exp(log), n, log=log), law / law.sum(), independence="pairwise-conditional"
        )
        for number in (1, 2, 5, 6, 8, 10):
            assert result[number].epsilon == pytest.approx(epsilon)
        assert result[3].epsilon == pytest.approx(n * epsilon)
        assert result[4].epsilon == pytest.approx(n * epsilon)
        # Independent points: learning one is setting one.
        assert result[7].epsilon == pytest.approx(result["bayesian0"].epsilon)
        assert result[7].epsilon <= epsilon + 1e-9
