from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest

from escudo.causal._sem_equations import WORDS
from escudo.causal._sem_mechanisms import (
    MECHANISMS,
    bernoulli,
    coin,
    exponential_mechanism,
    kary_response,
    randomised_response,
    report_noisy_max,
    truncated_geometric,
)
from escudo.errors import InputError

LN2 = math.log(2)


def test_the_truncated_geometric_table_of_the_noisy_count():
    kernel = truncated_geometric((0, 1, 2, 3), epsilon=LN2)
    assert kernel.values == (0, 1, 2, 3)
    assert np.exp(kernel.log[0]) == pytest.approx([2 / 3, 1 / 6, 1 / 12, 1 / 12])
    assert np.exp(kernel.log[2]) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])


def test_the_truncated_geometric_changes_by_exactly_epsilon_per_step_even_where_floats_end():
    log = truncated_geometric(tuple(range(1001)), epsilon=1.0).log
    steps = np.abs(np.diff(log, axis=0))
    assert steps.max() == pytest.approx(1.0)
    assert steps.min() == pytest.approx(1.0)
    assert log[0, 1000] == pytest.approx(-1000 - math.log1p(math.exp(-1)))


def test_sensitivity_stretches_the_noise():
    wide = truncated_geometric((0, 3, 6), epsilon=3.0, sensitivity=3.0)
    assert np.array_equal(wide.log, truncated_geometric((0, 3, 6), epsilon=1.0).log)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("bounds", [(None, None), (2, 2), (-3, 9), (1, 2), (4, 6), (-5, -4)])
def test_truncated_geometric_rows_add_up_to_one_for_any_bounds(epsilon, bounds):
    kernel = truncated_geometric((0, 1, 2, 5), epsilon=epsilon, lower=bounds[0], upper=bounds[1])
    assert np.exp(kernel.log).sum(axis=1) == pytest.approx(np.ones(4))


def test_randomised_response_keeps_the_value_with_odds_of_e_to_the_epsilon():
    kernel = randomised_response(("neg", "pos"), epsilon=math.log(3))
    assert np.exp(kernel.log) == pytest.approx(np.array([[0.75, 0.25], [0.25, 0.75]]))


def test_kary_response_treats_all_other_values_alike():
    kernel = kary_response(("a", "b", "c"), epsilon=LN2)
    assert np.exp(kernel.log) == pytest.approx(np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2]]) / 4)


def test_coins():
    assert coin(probability=0.25).values == (False, True)
    assert np.exp(coin(probability=0.25).log) == pytest.approx([0.75, 0.25])
    assert bernoulli(probability=0.0).log.tolist() == [0.0, -math.inf]


def test_the_exponential_mechanism_weighs_candidates_by_their_score():
    kernel = exponential_mechanism([(0, 1, 5), (0, 2)], ("a", "b"), epsilon=2.0, sensitivity=2.0)
    assert kernel.log.shape == (3, 2, 2)
    for (i, one), (j, two) in product(enumerate((0, 1, 5)), enumerate((0, 2))):
        weights = np.array([math.exp(2 * one / 4), math.exp(2 * two / 4)])
        assert np.exp(kernel.log[i, j]) == pytest.approx(weights / weights.sum())


def permute_and_flip(scores, rate):
    """Its law from its definition: go through a random order, take a candidate with probability exp(rate (s - max))."""
    chance = [math.exp(rate * (score - max(scores))) for score in scores]
    law = [0.0] * len(scores)
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = 1.0 / len(orders)
        for candidate in order:
            law[candidate] += left * chance[candidate]
            left *= 1 - chance[candidate]
    return law


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 3.0])
def test_report_noisy_max_with_exponential_noise_is_permute_and_flip(epsilon):
    scores = [(0, 2), (1, 1 + 2), (0, 5), (2, 4)]
    kernel = report_noisy_max(scores, ("a", "b", "c", "d"), epsilon=epsilon)
    for cell in product(range(2), repeat=4):
        chosen = [values[place] for values, place in zip(scores, cell, strict=True)]
        assert np.exp(kernel.log[cell]) == pytest.approx(permute_and_flip(chosen, epsilon / 2), abs=1e-12)


def noisy_max_by_summing(scores, rate, reach=60):
    """Sum over all noise values within reach; ties are shared equally."""
    alpha = math.exp(-rate)
    noise = {z: (1 - alpha) / (1 + alpha) * alpha ** abs(z) for z in range(-reach, reach + 1)}
    law = [0.0] * len(scores)
    for draws in product(noise, repeat=len(scores)):
        noisy = [score + z for score, z in zip(scores, draws, strict=True)]
        winners = [i for i, value in enumerate(noisy) if value == max(noisy)]
        for i in winners:
            law[i] += math.prod(noise[z] for z in draws) / len(winners)
    return law


@pytest.mark.parametrize("scores", [(0, 0), (1, 0), (3, -2), (0, 1, 1), (2, 0, 1)])
def test_report_noisy_max_with_geometric_noise_is_the_sum_over_all_noise(scores):
    reach = 40 if len(scores) == 2 else 24
    kernel = report_noisy_max([(score,) for score in scores], range(len(scores)), epsilon=4.0, noise="geometric")
    assert np.exp(kernel.log.ravel()) == pytest.approx(noisy_max_by_summing(scores, 2.0, reach), abs=1e-12)


def test_an_unlikely_winner_keeps_a_relative_accuracy():
    kernel = report_noisy_max([(0,), (1000,)], (1, 2), epsilon=2.0, noise="geometric")
    step = report_noisy_max([(0,), (1001,)], (1, 2), epsilon=2.0, noise="geometric")
    # Far out, Pr[z1 - z2 = k] is (1-α)/(1+α)² α^k (k + …): one step more costs a factor α up to 1/k.
    assert kernel.log[0, 0, 0] - step.log[0, 0, 0] == pytest.approx(1.0, abs=2e-3)
    assert np.exp(kernel.log[0, 0, 1]) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: randomised_response(("a", "b", "c"), epsilon=1), "two values; got a, b, c. Use kary_response"),
        (lambda: truncated_geometric(("a",), epsilon=1), "whole numbers, such as count"),
        (lambda: truncated_geometric((True,), epsilon=1), "whole numbers, such as count"),
        (lambda: truncated_geometric((0,), epsilon=-1), "epsilon must be at least 0"),
        (lambda: truncated_geometric((0,), epsilon=1, sensitivity=0), "sensitivity must be greater than 0"),
        (lambda: truncated_geometric((0,), epsilon=1, lower=0.5), "lower must be a whole number"),
        (lambda: truncated_geometric((0,), epsilon=1, lower=2, upper=1), "lower must be at most upper"),
        (lambda: truncated_geometric((0,), epsilon=1, upper=10**9), "narrow lower and upper"),
        (lambda: truncated_geometric((0,), epsilon=1, lower=1e19, upper=1e19), "at most 2\\^53 in size"),
        (lambda: truncated_geometric((0, 1), epsilon=1, sensitivity=1e-320), "sensitivity must be at most 1e\\+200"),
        (lambda: exponential_mechanism([(2**53,), (0,)], "ab", epsilon=1e308), "sensitivity must be at most 1e\\+200"),
        (lambda: kary_response(("a", "b"), epsilon=math.inf), "epsilon must be a finite number"),
        (lambda: coin(probability=1.5), "probability of a coin must lie in"),
        (lambda: report_noisy_max([(0,)], (1,), epsilon=1, noise="gumbel"), "noise must be one of"),
        (lambda: report_noisy_max([(0,)], (1,), epsilon=0, noise="geometric"), "epsilon above 0"),
        (lambda: report_noisy_max([(0,)], (1,), epsilon=1e-9, noise="geometric"), "too wide"),
        (lambda: exponential_mechanism([range(100)] * 5, range(5), epsilon=1), "fewer candidates"),
    ],
)
def test_wrong_parameters_are_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_every_mechanism_says_which_parameters_it_takes():
    for mechanism in MECHANISMS.values():
        assert set(mechanism.required) <= set(mechanism.parameters)


def test_no_variable_can_have_the_name_of_a_mechanism():
    assert set(MECHANISMS) <= WORDS
