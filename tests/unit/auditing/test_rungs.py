"""Exact, by experiment, by replay: three rungs that agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from escudo.auditing import audit, exact, replay
from escudo.causal import SEM
from escudo.effects import CountMechanism, Mechanism
from escudo.errors import InputError
from escudo.mechanisms import (
    exponential,
    gap_sign,
    gaussian,
    laplace,
    log_iqr,
    permute_and_flip,
    quantiles,
    stable_histogram,
    votes,
)
from escudo.mechanisms._noise import SeededNoise, watched
from escudo.privacy import Guarantee


class TestExact:
    def test_a_table_has_the_epsilon_of_definition_one(self):
        found = exact(Mechanism([[0.75, 0.25], [0.25, 0.75]], points=["Ada"]))
        assert found.epsilon == pytest.approx(math.log(3))
        assert (found.known, found.of) == ("exact", ("Ada",))

    def test_a_count_mechanism_is_taken(self):
        assert exact(CountMechanism([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])).epsilon == pytest.approx(math.log(2))

    def test_a_model_answers_whose_effect_on_what(self):
        model = SEM.parse("R ~ no: 0.5, yes: 0.5\nO := truncated_geometric(count(R = yes), epsilon = 1)")
        assert exact(model, of="R", on="O").epsilon == pytest.approx(1)
        with pytest.raises(InputError, match="of= and on="):
            exact(model)

    def test_a_table_takes_no_names(self):
        with pytest.raises(InputError, match="are for models"):
            exact([[0.5, 0.5], [0.5, 0.5]], of="D1", on="O")

    @pytest.mark.parametrize("seed", range(4))
    def test_the_experiment_stays_below_the_exact_value_and_comes_close(self, seed):
        rng = np.random.default_rng(seed)
        table = rng.dirichlet(np.full(5, 2.0), size=2)
        truth = exact(table).epsilon

        def draw(dataset, rng):
            return "abcde"[rng.choice(5, p=table[dataset])]

        def batch(dataset, count, rng):
            return rng.choice(5, size=count, p=table[dataset])

        draw.batch = batch
        found = audit(
            draw,
            claim=Guarantee(epsilon=0.01),
            pairs=[(0, 1)],
            max_runs=40_000,
            stop_early=False,
            seed=seed,
            progress=False,
        )
        assert 0.75 * truth < found.epsilon_lower <= truth


class TestReplay:
    @pytest.mark.parametrize(
        "mechanism",
        [
            lambda d, rng: laplace(sum(d), sensitivity=10, epsilon=1.0, seed=rng),
            lambda d, rng: laplace([float(d[0]), 2.0], sensitivity=10, epsilon=0.3, seed=rng),
            lambda d, rng: gaussian([float(sum(d)), 1.0], l2_sensitivity=10, rho=0.2, seed=rng),
            lambda d, rng: exponential(list(d), sensitivity=10, epsilon=1.0, seed=rng),
            lambda d, rng: permute_and_flip(list(d), sensitivity=10, epsilon=1.0, seed=rng),
            lambda d, rng: quantiles(list(d), [0.2, 0.5], lower=0, upper=10, epsilon=1.0, cells=16, seed=rng),
            lambda d, rng: gap_sign(float(sum(d)), sensitivity=10, epsilon=1.0, seed=rng),
            lambda d, rng: votes([1 if v > 4 else -1 for v in d], epsilon=1.0, seed=rng),
            lambda d, rng: log_iqr([np.array(d, float)], lower=0, upper=10, epsilon=1.0, delta=0.01, seed=rng),
        ],
        ids=["laplace", "laplace vector", "gaussian", "exponential", "permute", "quantiles", "gap", "votes", "log iqr"],
    )
    def test_escudos_mechanisms_move_no_more_than_they_declare(self, mechanism):
        pairs = [([0, 5, 3, 4], [10, 5, 3, 4]), ([0, 0, 0, 0], [0, 0, 0, 10]), ([2, 9, 9, 1], [2, 9, 0, 1])]
        found = replay(mechanism, pairs)
        assert not found.violated, found.verdict
        assert found.steps

    def test_a_wrong_sensitivity_is_found_with_its_size(self):
        found = replay(lambda d, rng: laplace(sum(d), sensitivity=1, epsilon=0.5, seed=rng), [([0, 1], [4, 1], "four")])
        assert found.violated
        assert found.effect.epsilon == pytest.approx(2.0)
        assert "declares ε = 0.50, but the changed record costs 2.00 (four)" in found.verdict

    def test_a_release_stated_for_people_is_replayed_like_any_other(self):
        def counted(dataset, rng):
            terms = {"unit": "person", "max_rows_per_person": 3, "seed": rng}
            return laplace(sum(dataset), sensitivity=3, epsilon=0.5, **terms)

        found = replay(counted, [([0, 1], [3, 1])])
        assert not found.violated
        assert found.effect.epsilon == pytest.approx(0.5)

    def test_a_wrong_sensitivity_of_gaussian_noise_is_found_in_rho(self):
        found = replay(lambda d, rng: gaussian(float(sum(d)), l2_sensitivity=1, rho=0.1, seed=rng), [([0], [3])])
        assert found.steps[0].unit == "ρ"
        assert found.steps[0].actual == pytest.approx(0.9, rel=1e-3)
        assert found.violated

    def test_what_goes_around_the_noise_is_found(self):
        def leaks(rows, rng):
            return laplace(len(rows), sensitivity=1, epsilon=1.0, seed=rng).value, max(rows)

        found = replay(leaks, [([1, 2], [1, 9])])
        assert found.leak
        assert found.effect.epsilon == math.inf
        assert "around the noise" in found.verdict

    def test_a_step_that_depends_on_the_data_is_found(self):
        def branches(rows, rng):
            first = laplace(len(rows), sensitivity=1, epsilon=1.0, seed=rng).value
            if sum(rows) > 5:  # looks at the data, not at the answer
                laplace(0, sensitivity=1, epsilon=1.0, seed=rng)
            return first

        assert replay(branches, [([9], [1])]).leak or replay(branches, [([1], [9])]).leak

    def test_later_steps_may_depend_on_earlier_answers(self):
        def adaptive(rows, rng):
            middle = laplace(sum(rows), sensitivity=10, epsilon=1.0, seed=rng).value
            above = sum(row > middle for row in rows)
            return laplace(above, sensitivity=1, epsilon=1.0, seed=rng).value

        assert not replay(adaptive, [([0, 5, 7], [10, 5, 7])], repeats=5).violated

    def test_randomness_of_ones_own_stays_in_step(self):
        def mixed(rows, rng):
            noisy = laplace(len(rows), sensitivity=1, epsilon=1.0, seed=rng).value
            return noisy + int(rng.integers(1000))

        assert not replay(mixed, [([0], [0, 1])]).violated

    def test_keys_that_delta_covers_are_not_held_against_it(self):
        def histogram(rows, rng):
            return stable_histogram({k: rows.count(k) for k in rows}, epsilon=1.0, delta=1e-6, seed=rng)

        found = replay(histogram, [(["a"] * 50 + ["b"], ["a"] * 50 + ["c", "d"][:1])])
        assert not found.violated

    def test_a_mechanism_without_escudos_noise_has_nothing_to_replay(self):
        with pytest.raises(InputError, match="nothing to replay"):
            replay(lambda d, rng: 0, [(0, 1)])
        with pytest.raises(InputError, match="it raised KeyError"):
            replay(lambda d, rng: {}[0], [(0, 1)])

    def test_outside_a_replay_nobody_watches(self):
        source = SeededNoise(np.random.default_rng(0))
        replay(lambda d, rng: laplace(d, sensitivity=1, epsilon=1.0, seed=rng), [(0, 1)])
        assert watched(source, None) is source


def test_a_replay_that_ended_with_an_error_says_that_it_saw_no_more():
    def stops(rows, rng):
        laplace(len(rows), sensitivity=1, epsilon=1.0, seed=rng)
        raise KeyError("a private value")

    found = replay(stops, [([0], [5])])
    assert not found.violated
    assert "ended with a KeyError: nothing after it was looked at" in found.verdict
    assert "private value" not in found.verdict
