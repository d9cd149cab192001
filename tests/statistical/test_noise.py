"""The noise has the law it claims, from both sources, and the checks would notice if it had not."""

from __future__ import annotations

import numpy as np
import pytest

from escudo.mechanisms import exponential, gaussian, laplace, permute_and_flip, votes
from escudo.mechanisms._noise import SecureNoise, SeededNoise

DRAWS = 12_000
CHOICES = 3_000
SCALES = [0.4, 1.0, 7.3, 300.0]


def seeded():
    return SeededNoise(np.random.default_rng(20_260_101))


@pytest.fixture(params=[SecureNoise, seeded], ids=["secure", "seeded"])
def source(request):
    return request.param()


@pytest.fixture(params=["laplace", "gaussian"])
def kind(request):
    return request.param


def draw(source, kind, scale, size=DRAWS):
    zeros = np.zeros(size, dtype=np.int64)
    return source.add_laplace(zeros, scale) if kind == "laplace" else source.add_gaussian(zeros, scale)


class TestTheChecksThemselves:
    def test_accept_a_sample_of_the_exact_law(self, fit, laws, kind):
        support = np.arange(-60, 61)
        mass = laws[kind](4.0)(support)
        sample = np.random.default_rng(1).choice(support, size=DRAWS, p=mass / mass.sum())
        assert fit.accepts(sample, laws[kind](4.0))

    def test_give_p_values_that_are_about_uniform_under_the_truth(self, fit, laws):
        generator = np.random.default_rng(2)
        support = np.arange(-200, 201)
        mass = laws["laplace"](5.0)(support)
        p_values = [
            fit.p_value(generator.choice(support, size=2000, p=mass / mass.sum()), laws["laplace"](5.0))
            for _ in range(300)
        ]
        assert 0.02 < np.mean(np.array(p_values) < 0.05) < 0.09
        assert 0.43 < np.mean(p_values) < 0.57

    @pytest.mark.parametrize("wrong", ["no noise", "uniform", "shifted", "rounded to even", "one sided", "other law"])
    def test_reject_noise_of_another_shape_at_the_right_spread(self, fit, laws, kind, wrong):
        generator = np.random.default_rng(3)
        right = draw(SeededNoise(generator), kind, 6.0)
        other = "gaussian" if kind == "laplace" else "laplace"
        same_spread = 6.0 * np.sqrt(2) if kind == "laplace" else 6.0 / np.sqrt(2)
        sample = {
            "no noise": np.zeros(DRAWS, dtype=np.int64),
            "uniform": generator.integers(-10, 11, size=DRAWS),
            "shifted": right + 1,
            "rounded to even": 2 * np.rint(right / 2).astype(np.int64),
            "one sided": np.abs(right),
            "other law": draw(SeededNoise(generator), other, same_spread),
        }[wrong]
        assert not fit.accepts(sample, laws[kind](6.0))

    def test_reject_two_samples_of_different_scale(self, fit, kind):
        source = seeded()
        assert fit.same_p_value(draw(source, kind, 5.0), draw(source, kind, 7.5)) < fit.level

    def test_reject_choices_at_the_wrong_rate(self, fit, choices):
        utilities = np.array([0.0, 1.0, 3.0, 2.0])
        for law in choices.values():
            counts = np.random.default_rng(5).multinomial(CHOICES, law(utilities, 0.5))
            assert fit.p_value_of_counts(counts, law(utilities, 0.5)) >= fit.level
            assert fit.p_value_of_counts(counts, law(utilities, 0.5 * 3 / 2)) < fit.level
            assert fit.p_value_of_counts(counts, law(utilities, 0.5 * 2 / 3)) < fit.level

    def test_tell_permute_and_flip_from_the_exponential_mechanism(self, fit, choices):
        utilities = np.array([0.0, 1.0, 3.0, 2.0])
        counts = np.random.default_rng(6).multinomial(CHOICES, choices["exponential"](utilities, 0.5))
        assert fit.p_value_of_counts(counts, choices["gumbel"](utilities, 0.5)) < fit.level


class TestSources:
    @pytest.mark.parametrize("scale", SCALES)
    def test_noise_is_accepted_at_its_scale_and_rejected_at_two_thirds_and_three_halves(
        self, fit, laws, source, kind, scale
    ):
        sample = draw(source, kind, scale)
        assert fit.accepts(sample, laws[kind](scale))
        assert not fit.accepts(sample, laws[kind](scale * 2 / 3))
        assert not fit.accepts(sample, laws[kind](scale * 3 / 2))

    @pytest.mark.parametrize("scale", [2.5, 2.0**30])
    def test_secure_and_seeded_noise_agree(self, fit, kind, scale):
        assert fit.same_p_value(draw(SecureNoise(), kind, scale), draw(seeded(), kind, scale)) >= fit.level

    def test_coordinates_get_noise_of_their_own(self, source, kind):
        sample = draw(source, kind, 50.0).astype(float)
        correlation = np.corrcoef(sample[:-1], sample[1:])[0, 1]
        assert abs(correlation) < 7 / np.sqrt(DRAWS)  # seven standard errors

    @pytest.mark.parametrize("method", ["gumbel", "exponential"])
    def test_choices_follow_the_closed_form(self, fit, choices, source, method):
        utilities = np.array([0, 1, 3, 2])
        pick = getattr(source, f"{method}_argmax")
        counts = np.bincount([pick(utilities, 2.0) for _ in range(CHOICES)], minlength=4)
        law = choices[method]
        assert fit.p_value_of_counts(counts, law(utilities.astype(float), 1 / 2)) >= fit.level
        assert fit.p_value_of_counts(counts, law(utilities.astype(float), 3 / 4)) < fit.level
        assert fit.p_value_of_counts(counts, law(utilities.astype(float), 1 / 3)) < fit.level


class TestMechanisms:
    """The noise that reaches the caller is the one the event states, in the statistic's units."""

    @pytest.mark.parametrize("seed", [None, 11])
    def test_laplace_on_integers(self, fit, laws, seed):
        release = laplace(np.full(DRAWS, 10**6), sensitivity=3, epsilon=0.5, seed=seed)
        assert release.event.scale == pytest.approx(6.0)
        self.check(fit, laws["laplace"], release.value - 10**6, 6.0)

    @pytest.mark.parametrize("seed", [None, 12])
    def test_gaussian_on_integers(self, fit, laws, seed):
        release = gaussian(np.full(DRAWS, -5), l2_sensitivity=2, rho=0.02, seed=seed)
        assert release.event.scale == pytest.approx(10.0)
        self.check(fit, laws["gaussian"], release.value + 5, 10.0)

    @pytest.mark.parametrize("seed", [None, 13])
    def test_laplace_on_a_chosen_grid(self, fit, laws, seed):
        release = laplace(np.full(3000, 0.3), sensitivity=1.0, scale=2.0, grid=0.25, seed=seed)
        steps = release.value / 0.25 - 1  # 0.3 rounds to one step of 0.25
        assert np.array_equal(steps, np.rint(steps))
        self.check(fit, laws["laplace"], steps.astype(np.int64), 8.0)

    @pytest.mark.parametrize("seed", [None, 14])
    def test_gaussian_on_the_default_grid(self, fit, laws, seed):
        release = gaussian(np.full(DRAWS, 0.3), l2_sensitivity=1.0, scale=2.0, seed=seed)
        coarse = np.floor((release.value - 0.3) / 0.5 + 0.5).astype(np.int64)

        def rounded_normal(scale):
            from scipy.stats import norm

            return lambda k: norm.cdf((k + 0.5) * 0.5, scale=scale) - norm.cdf((k - 0.5) * 0.5, scale=scale)

        self.check(fit, rounded_normal, coarse, 2.0)

    @pytest.mark.parametrize("seed", [None, 15])
    @pytest.mark.parametrize(("mechanism", "method"), [(exponential, "gumbel"), (permute_and_flip, "exponential")])
    def test_selection(self, fit, choices, seed, mechanism, method):
        utilities = np.array([0.0, 1.5, 3.0, 2.0])
        seeds = (None,) * CHOICES if seed is None else np.random.default_rng(seed).spawn(CHOICES)
        counts = np.bincount(
            [mechanism(utilities, sensitivity=0.5, epsilon=0.6, seed=each).value for each in seeds], minlength=4
        )
        law = choices[method]
        assert fit.p_value_of_counts(counts, law(utilities, 0.6)) >= fit.level
        assert fit.p_value_of_counts(counts, law(utilities, 0.6 * 3 / 2)) < fit.level
        assert fit.p_value_of_counts(counts, law(utilities, 0.6 * 2 / 3)) < fit.level

    def test_votes_carry_noise_of_scale_two_over_epsilon(self, fit, laws):
        generator = np.random.default_rng(16)
        sample = [votes([1, 1, -1, 0], epsilon=0.4, seed=generator).value.value - 1 for _ in range(3000)]
        self.check(fit, laws["laplace"], np.array(sample, dtype=np.int64), 5.0)

    @staticmethod
    def check(fit, law, sample, scale):
        assert fit.accepts(sample, law(scale))
        assert not fit.accepts(sample, law(scale * 2 / 3))
        assert not fit.accepts(sample, law(scale * 3 / 2))
