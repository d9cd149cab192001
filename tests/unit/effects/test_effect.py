"""The answer itself: its checks, its sentences, its JSON."""

from __future__ import annotations

import json
import math
import pickle

import pytest

from escudo.effects import Effect, Witness, show_epsilon
from escudo.errors import InputError

WITNESS = Witness(y={"O": 3}, x1={"A": "pos", "B": 1}, x2={"A": "neg", "B": 1}, background={"R": True})


def test_epsilon_is_shown_with_two_decimals_unless_it_is_small() -> None:
    assert [show_epsilon(x) for x in (0.0, 1e-16, 0.00123, 0.5, 12.345, math.inf)] == [
        "0",
        "0",
        "0.0012",
        "0.50",
        "12.35",
        "∞",
    ]


class TestSentences:
    def test_an_exact_effect_says_what_changes_and_where(self) -> None:
        effect = Effect(epsilon=2.0, witness=WITNESS, of=("A", "B"), on=("O",))
        assert str(effect) == (
            "Setting A = pos rather than neg makes O = 3 up to 7.39 times as likely (e^2.00), where B = 1, R = true; "
            "no population gives more."
        )
        assert effect.factor == pytest.approx(math.exp(2))

    def test_an_infinite_effect_says_what_becomes_possible(self) -> None:
        effect = Effect(epsilon=math.inf, witness=WITNESS, of=("A",), on=("O",), population="the given population")
        assert "makes O = 3 possible, which it is not otherwise" in str(effect)
        assert str(effect).endswith("in the given population.")
        assert effect.factor == math.inf

    def test_huge_factors_stay_powers(self) -> None:
        assert "up to e^900.00 times as likely" in str(Effect(epsilon=900.0, witness=WITNESS))

    def test_no_effect_says_so(self) -> None:
        assert (
            str(Effect(epsilon=0.0, of=("A",), on=("O",))) == "Changing A changes nothing about O in every population."
        )
        seen = Effect(epsilon=0.0, of=("A",), on=("O",), kind="association", population="the given population")
        assert str(seen).startswith("Learning A changes nothing about O")

    def test_a_proof_is_an_upper_bound(self) -> None:
        effect = Effect(epsilon=1.0, known="proved", of=("D",), on=("O",), delta=1e-6)
        assert "no outcome of O more than 2.72 times as likely (e^1.00)" in str(effect)
        assert "except with probability 1e-06" in str(effect)
        assert str(Effect(epsilon=math.inf, known="proved", of=("D",), on=("O",))).startswith("No bound is proved")

    def test_a_measurement_is_a_lower_bound(self) -> None:
        effect = Effect(epsilon=1.31, known="measured", confidence=0.95, witness=WITNESS)
        assert str(effect) == (
            "Changing the input makes some outcome of the output at least 3.71 times as likely (e^1.31), "
            "with 95 % confidence."
        )

    def test_many_names_are_shortened(self) -> None:
        effect = Effect(epsilon=0.0, of=tuple(f"D{i}" for i in range(100)), on=("O",))
        assert "D0, D1, D2, D3, D4 and 95 more" in str(effect)


def test_a_witness_shows_what_differs() -> None:
    assert str(WITNESS) == "O = 3: A = pos against neg, where B = 1, R = true"
    tuples = Witness(y={"O": ("yes", False)}, x1={"A": 1}, x2={"A": 0})
    assert str(tuples) == "O = (yes, false): A = 1 against 0"


def test_a_large_background_is_counted() -> None:
    many = Witness(y={"O": 1}, x1={"A": 1}, x2={"A": 0}, background={f"R{i}": int(i < 3) for i in range(100)})
    assert str(many) == "O = 1: A = 1 against 0, where 97 others are 0 and 3 others are 1"
    mixed = Witness(y={"O": 1}, x1={"A": 1}, x2={"A": 0}, background={f"R{i}": i for i in range(8)})
    assert str(mixed).endswith("R5 = 5 and 2 more")


def test_json_holds_infinity_as_text() -> None:
    part = Effect(epsilon=1.0, of=("A",))
    effect = Effect(epsilon=math.inf, witness=WITNESS, of=("A",), on=("O",), parts=(part,))
    data = json.loads(json.dumps(effect.to_json(), allow_nan=False))
    assert data["epsilon"] == "inf"
    assert data["witness"]["x1"] == {"A": "pos", "B": 1}
    assert data["parts"][0]["epsilon"] == 1.0


def test_html_is_escaped() -> None:
    assert "<script>" not in Effect(epsilon=1.0, of=("<script>",), known="proved")._repr_html_()


def test_effects_can_be_copied_to_another_process() -> None:
    effect = Effect(epsilon=2.0, witness=WITNESS, of=("A",), on=("O",))
    assert pickle.loads(pickle.dumps(effect)) == effect


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epsilon": -1.0}, "epsilon must be at least 0"),
        ({"epsilon": math.nan}, "epsilon must be a finite number"),
        ({"epsilon": "1"}, "epsilon must be a finite number"),
        ({"epsilon": 1.0, "known": "guessed"}, "known must be one of"),
        ({"epsilon": 1.0, "kind": "cause"}, "kind must be one of"),
        ({"epsilon": 1.0, "delta": 0.1}, "delta must be 0 for an exact effect"),
        ({"epsilon": 1.0, "delta": 2.0, "known": "proved"}, "delta must lie in"),
        ({"epsilon": 1.0, "known": "measured", "confidence": 1.0}, "confidence must lie in"),
    ],
)
def test_impossible_values_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Effect(**fields)  # type: ignore[arg-type]
