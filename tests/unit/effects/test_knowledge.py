"""Beliefs: posteriors, semantic privacy, disclosure, secrets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from escudo.effects import CountMechanism, Mechanism, nondisclosure, posterior, secrets, semantic_privacy
from escudo.errors import InputError, ZeroProbabilityError

Geometric = Callable[[float, int], np.ndarray]


@pytest.fixture
def mechanism(geometric: Geometric, e: float) -> Mechanism:
    return CountMechanism(geometric(e, 3)).expand()


def test_the_noisy_count_moves_beliefs_by_tanh_of_half_epsilon(mechanism: Mechanism, e: float) -> None:
    worst = semantic_privacy(mechanism)
    assert worst.rho == pytest.approx(2 * e)
    assert worst.difference == pytest.approx(math.tanh(e / 2))
    assert worst.bound == pytest.approx(math.tanh(e / 2))
    assert semantic_privacy(CountMechanism(mechanism.table[0, 0, [0]].repeat(4, axis=0))).difference == 0


def test_one_third_at_ln_2(geometric: Geometric) -> None:
    worst = semantic_privacy(CountMechanism(geometric(math.log(2), 3)))
    assert worst.difference == pytest.approx(1 / 3)
    assert "33.3 percentage points" in str(worst)


def test_without_any_privacy_beliefs_move_fully() -> None:
    worst = semantic_privacy([[1, 0], [0, 1]])
    assert (worst.difference, worst.rho, worst.credence) == (1.0, math.inf, None)


def test_bayes_rule_by_hand() -> None:
    mechanism = Mechanism([[0.75, 0.25], [0.25, 0.75]])
    assert posterior(mechanism, [0.5, 0.5], 0) == pytest.approx([0.75, 0.25])
    # Replacing the only person makes the output uninformative: the belief about the true data stays.
    assert posterior(mechanism, [0.9, 0.1], 0, without="D1", value=1) == pytest.approx([0.9, 0.1])


def test_an_output_held_impossible_teaches_nothing() -> None:
    with pytest.raises(ZeroProbabilityError, match="probability zero under this credence"):
        posterior([[1, 0], [0, 1]], [1.0, 0.0], 1)


def test_unknown_outputs_and_points_are_refused() -> None:
    table = [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(InputError, match="output must be one of 0, 1"):
        posterior(table, [0.5, 0.5], 2)
    with pytest.raises(InputError, match="without must be one of D1"):
        posterior(table, [0.5, 0.5], 0, without="D2", value=0)
    with pytest.raises(InputError, match="the value of D1"):
        posterior(table, [0.5, 0.5], 0, without="D1", value=7)


def test_disclosure_follows_who_goes_with_whom(mechanism: Mechanism) -> None:
    alike = np.zeros((2, 2, 2))
    alike[0, 0, 0] = alike[1, 1, 1] = 0.5
    apart = np.full((2, 2, 2), 1 / 8)
    together, alone = (nondisclosure(mechanism, law, about="D1") for law in (alike, apart))
    assert together.difference > alone.difference
    assert nondisclosure([[0.5, 0.5], [0.5, 0.5]], [0.3, 0.7]).difference == pytest.approx(0)


def test_secrets_of_independent_people_are_kept_by_dp(mechanism: Mechanism, e: float) -> None:
    alike = np.zeros((2, 2, 2))
    alike[0, 0, 0] = alike[1, 1, 1] = 0.5
    secret = ({"D1": 1}, {"D1": 0})
    assert secrets(mechanism, [secret], [np.full((2, 2, 2), 1 / 8)]).epsilon <= e + 1e-9
    found = secrets(mechanism, [secret], [np.full((2, 2, 2), 1 / 8), alike])
    assert found.epsilon == pytest.approx(3 * e)
    assert found.witness is not None
    assert {**found.witness.x1} != {**found.witness.x2}
    count = np.indices((2, 2, 2)).sum(axis=0)
    assert secrets(mechanism, [(count == 0, count == 3)], [alike]).epsilon == pytest.approx(3 * e)


def test_secrets_of_different_kinds_are_compared_in_words(mechanism: Mechanism) -> None:
    even = np.full((2, 2, 2), 1 / 8)
    points = secrets(mechanism, [({"D1": 1, "D2": 1}, {"D1": 1, "D3": 0})], [even])
    assert re.match(r"Learning (D2 = 1 rather than D3 = 0|D3 = 0 rather than D2 = 1) makes O = ", str(points))
    assert "where D1 = 1" in points.sentence
    assert re.search(r"(D2 = 1 against D3 = 0|D3 = 0 against D2 = 1), where D1 = 1", str(points.witness))
    sets = secrets(mechanism, [({"D1": 1}, np.indices((2, 2, 2)).sum(axis=0) == 0)], [even])
    assert "D1 = 1" in sets.sentence
    assert "secret = the given set" in sets.sentence


def test_disclosure_about_one_point_names_the_output_that_tells_it() -> None:
    # Output "b" tells the two values of D2 apart best, and output "a" those of D1, when D2 is 0.
    table = np.array([[[0.02, 0.3, 0.68], [0.2, 0.1, 0.7]], [[0.6, 0.2, 0.2], [0.2, 0.02, 0.78]]])
    mechanism = Mechanism(table, outputs=["a", "b", "c"])
    assert nondisclosure(mechanism).output == nondisclosure(mechanism, about="D1").output == "a"
    about = nondisclosure(mechanism, about="D2")
    assert about.output == "b"
    assert about.log_ratio == pytest.approx(np.log(0.3 / 0.02))


def test_secrets_that_cannot_both_hold_are_not_compared(mechanism: Mechanism) -> None:
    certain = np.zeros((2, 2, 2))
    certain[0, 0, 0] = 1
    assert secrets(mechanism, [({"D1": 1}, {"D1": 0})], [certain]).epsilon == 0
    with pytest.raises(InputError, match="boolean"):
        secrets(mechanism, [(np.ones((2, 2, 2)), {"D1": 0})], [certain])
    with pytest.raises(InputError, match="a secret's data point"):
        secrets(mechanism, [({"D9": 1}, {"D1": 0})], [certain])
