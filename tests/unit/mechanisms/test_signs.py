"""Signs of gaps and votes: validity, doubt from the released value only, and the stated chance of being right."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms import gap_sign, votes
from escudo.mechanisms._additive import verdict
from escudo.mechanisms._noise import laplace_tail
from escudo.privacy import LaplaceEvent

UNIT_NOISE = LaplaceEvent(l1_sensitivity=1.0, scale=1.0, grid=1.0)


def test_the_gap_is_charged_with_its_own_sensitivity():
    event = gap_sign(0.3, sensitivity=0.5, epsilon=2.0, seed=0).event
    assert event.l1_sensitivity == pytest.approx(0.5, rel=1e-5)
    assert event.scale == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize(("value", "sign"), [(3.0, 1), (-3.0, -1), (0.0, 0)])
def test_the_sign_is_read_off_the_released_value(value, sign):
    assert verdict(value, UNIT_NOISE).sign == sign


def test_doubt_is_the_chance_that_noise_alone_shows_as_much():
    support = np.arange(-400, 401)
    mass = np.exp(-np.abs(support) * 1.0)
    mass /= mass.sum()
    for value in range(6):
        assert verdict(float(value), UNIT_NOISE).doubt == pytest.approx(mass[support >= value].sum())
        assert verdict(float(-value), UNIT_NOISE).doubt == verdict(float(value), UNIT_NOISE).doubt


def test_doubt_bounds_the_chance_of_a_wrong_sign_at_least_this_strong():
    """For every true value of the other sign, exceeding a released value is no likelier than its doubt says."""
    for truth, shown in itertools.product(range(-5, 1), range(1, 8)):
        assert laplace_tail(shown - truth, 1.0) <= verdict(float(shown), UNIT_NOISE).doubt


def test_the_sign_is_right_as_often_as_proposition_7_says():
    gap, sensitivity, epsilon = 0.1, 0.05, 0.6
    generator = np.random.default_rng(0)
    right = np.mean(
        [gap_sign(gap, sensitivity=sensitivity, epsilon=epsilon, seed=generator).value.sign == 1 for _ in range(4000)]
    )
    assert right == pytest.approx(1 - math.exp(-gap * epsilon / sensitivity) / 2, abs=6 * 0.5 / math.sqrt(4000))


@pytest.mark.parametrize("x", [0.1, 1.0, 3.0])
def test_the_gap_beats_two_scores_and_the_exponential_mechanism(x):
    gap_error = math.exp(-x) / 2
    assert gap_error < (0.5 + x / 4) * math.exp(-x)
    assert gap_error < 1 / (1 + math.exp(x))


@pytest.mark.parametrize("gap", [math.nan, math.inf, [1.0, 2.0]])
def test_unusable_gaps_are_refused(gap, diary):
    with pytest.raises(InputError):
        gap_sign(gap, sensitivity=1.0, epsilon=1.0, account=diary)
    assert diary.words == []


def test_one_block_moves_the_sum_of_votes_by_at_most_two():
    for before in itertools.product((-1, 0, 1), repeat=3):
        for block, vote in itertools.product(range(3), (-1, 0, 1)):
            after = list(before)
            after[block] = vote
            assert abs(sum(before) - sum(after)) <= 2


@pytest.mark.parametrize(
    ("keywords", "sensitivity"),
    [
        ({}, 2),
        ({"unit": "person", "max_rows_per_person": 3}, 2),
        ({"assigned_by": "value"}, 4),
        ({"assigned_by": "value", "relation": "add_remove"}, 2),
    ],
)
def test_votes_are_charged_for_the_blocks_that_can_change(keywords, sensitivity):
    event = votes([1, 1, -1], epsilon=0.5, seed=0, **keywords).event
    assert (event.l1_sensitivity, event.grid) == (sensitivity, 1.0)
    assert event.scale == pytest.approx(sensitivity / 0.5)


def test_blocks_by_position_are_refused_under_add_remove(diary):
    with pytest.raises(InputError, match="position"):
        votes([1, 1], epsilon=1.0, relation="add_remove", account=diary)
    assert diary.words == []


@pytest.mark.parametrize("cast", [[], [2], [1, -2], [0.5], [1.0], [True], [[1]], 1, ["1"]])
def test_unusable_votes_are_refused(cast, diary):
    with pytest.raises(InputError, match="block_votes"):
        votes(cast, epsilon=1.0, account=diary)
    assert diary.words == []


def test_a_landslide_is_seen_through_the_noise():
    verdict = votes([1] * 900 + [0] * 50 + [-1] * 50, epsilon=1.0).value
    assert verdict.sign == 1
    assert verdict.doubt < 1e-100
    assert verdict.value == int(verdict.value)
