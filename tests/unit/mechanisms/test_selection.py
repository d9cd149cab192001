"""Choices among candidates: scales, rounding, refusals, and the exact privacy of the probabilities."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms import exponential, permute_and_flip
from escudo.mechanisms._purse import select_scale
from escudo.privacy import ExponentialEvent, PureEvent

both = pytest.mark.parametrize("choose", [exponential, permute_and_flip])


def exponential_law(utilities, rate):
    weights = np.exp(rate * (utilities - utilities.max()))
    return weights / weights.sum()


def permute_and_flip_law(utilities, rate):
    accept = np.exp(rate * (utilities - utilities.max()))
    law = np.zeros(utilities.size)
    orders = list(itertools.permutations(range(utilities.size)))
    for order in orders:
        reached = 1.0
        for candidate in order:
            law[candidate] += reached * accept[candidate] / len(orders)
            reached *= 1 - accept[candidate]
    return law


@pytest.mark.parametrize(("law", "bounded_range"), [(exponential_law, True), (permute_and_flip_law, False)])
def test_no_neighbouring_utilities_change_a_choice_by_more_than_the_claim(law, bounded_range):
    """All utilities in {0, 1, 2}^3 and all neighbours at sup distance 1, at the scale the mechanisms use."""
    epsilon, worst, widest = 0.8, 0.0, 0.0
    _, scale = select_scale([0, 0, 0], 1, epsilon)
    for utilities in itertools.product(range(3), repeat=3):
        for shift in itertools.product((-1, 0, 1), repeat=3):
            before = np.array(utilities, dtype=float)
            ratios = np.log(law(before, 1 / scale) / law(before + shift, 1 / scale))
            worst, widest = max(worst, np.abs(ratios).max()), max(widest, np.ptp(ratios))
    assert worst <= epsilon
    assert (widest <= epsilon + 1e-12) == bounded_range


def test_integer_utilities_are_used_as_they_are():
    steps, scale = select_scale([3, -4], 2, 0.5)
    assert steps.tolist() == [3, -4]
    assert scale == pytest.approx(2 * 2 / 0.5)
    assert scale >= 8


def test_real_utilities_pay_for_rounding():
    steps, scale = select_scale([0.3, -0.3], 1.0, 0.5, 0.25)
    assert steps.tolist() == [1, -1]
    assert scale == pytest.approx(2 * 5 / 0.5)  # one unit is 4 steps, and rounding adds one


def test_events_say_which_mechanism_it_was():
    assert exponential([1, 2], sensitivity=1, epsilon=0.5, seed=0).event == ExponentialEvent(epsilon=0.5)
    assert permute_and_flip([1, 2], sensitivity=1, epsilon=0.5, seed=0).event == PureEvent(epsilon=0.5)


@both
def test_one_candidate_is_always_chosen(choose):
    assert choose([5.0], sensitivity=1, epsilon=1.0).value == 0


@both
def test_a_clear_winner_is_chosen(choose):
    assert choose([0.0, 1e6, -1e300], sensitivity=1, epsilon=1.0).value == 1


@both
@pytest.mark.parametrize("utilities", [[], [[1, 2]], 3, [math.nan, 1], [math.inf, 1], ["a"]])
def test_unusable_utilities_are_refused_before_the_charge(choose, utilities, diary):
    with pytest.raises(InputError, match="utilities"):
        choose(utilities, sensitivity=1, epsilon=1.0, account=diary)
    assert diary.words == []
