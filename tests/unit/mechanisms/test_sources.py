"""The two sources of noise: seeds, saturation, tails, and that OpenDP loads only when it draws."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from escudo.errors import InputError
from escudo.mechanisms._noise import (
    SecureNoise,
    SeededNoise,
    _opendp,
    _vectors,
    laplace_cutoff,
    laplace_tail,
    noise_source,
    one_stream,
)

ZEROS = np.zeros(50, dtype=np.int64)


def test_no_seed_means_the_secure_source():
    assert isinstance(noise_source(None), SecureNoise)


def test_a_seed_or_generator_means_the_seeded_source():
    generator = np.random.default_rng(1)
    assert noise_source(generator) == SeededNoise(generator)
    first, second = (noise_source(np.int64(4)).add_laplace(ZEROS, 9.0) for _ in range(2))
    assert np.array_equal(first, second)


def test_secure_noise_never_repeats():
    source = SecureNoise()
    assert not np.array_equal(source.add_laplace(ZEROS, 1e6), source.add_laplace(ZEROS, 1e6))
    assert not np.array_equal(source.add_gaussian(ZEROS, 1e6), source.add_gaussian(ZEROS, 1e6))


@pytest.mark.parametrize(("method", "make"), [("add_laplace", "make_laplace"), ("add_gaussian", "make_gaussian")])
def test_a_law_is_made_once_and_takes_vectors_of_any_length(method, make, monkeypatch):
    measurements, made = _opendp().measurements, []
    real = getattr(measurements, make)
    monkeypatch.setattr(measurements, make, lambda *args: made.append(args[-1]) or real(*args))
    add = getattr(SecureNoise(), method)
    found = [add(np.arange(size), scale) for scale in (1234.5, 1e-9) for size in (1, 7, 3)]
    assert made == [1234.5, 1e-9]
    assert [each.size for each in found] == [1, 7, 3] * 2
    assert all(np.array_equal(each, np.arange(each.size)) for each in found[3:])  # next to no noise: none of 1234.5


def test_numpys_global_generator_is_left_alone():
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - that it is untouched is the point
    noise_source(1).add_gaussian(ZEROS, 3.0)
    SecureNoise().add_gaussian(ZEROS, 3.0)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(np.random.default_rng(2))], ids=["secure", "seeded"])
@pytest.mark.parametrize("method", ["add_laplace", "add_gaussian"])
def test_the_largest_values_and_scales_saturate_and_never_wrap_around(source, method):
    top = np.full(200, 2**62, dtype=np.int64)
    assert (getattr(source, method)(top, 2.0**52) > 2**61).all()
    assert (getattr(source, method)(-top, 2.0**52) < -(2**61)).all()


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(np.random.default_rng(3))], ids=["secure", "seeded"])
@pytest.mark.parametrize("method", ["add_laplace", "add_gaussian"])
def test_a_tiny_scale_leaves_integers_as_they_are(source, method):
    values = np.array([-5, 0, 2**40])
    assert np.array_equal(getattr(source, method)(values, 1e-3), values)


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(np.random.default_rng(3))], ids=["secure", "seeded"])
@pytest.mark.parametrize("method", ["gumbel_argmax", "exponential_argmax"])
def test_a_clear_winner_wins_even_beyond_the_precision_of_floats(source, method):
    scores = np.array([2**62 - 40, 2**62, -(2**62), 0])
    assert {getattr(source, method)(scores, 0.2) for _ in range(30)} == {1}


@pytest.mark.parametrize("scale", [0.02, 0.5, 3.0, 200.0])
def test_the_tail_is_the_sum_of_the_masses(scale):
    support = np.arange(-20_000, 20_001)
    mass = np.exp(-np.abs(support) / scale)
    mass /= mass.sum()
    for steps in (-3, 0, 1, 2, 10, 400):
        assert laplace_tail(steps, scale) == pytest.approx(mass[support >= steps].sum(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("scale", [0.02, 0.5, 3.0, 200.0, 1e9])
@pytest.mark.parametrize("probability", [0.9, 0.5, 0.1, 1e-6, 1e-12, 1e-300])
def test_the_cutoff_is_the_least_that_is_rare_enough(scale, probability):
    cutoff = laplace_cutoff(probability, scale)
    assert laplace_tail(cutoff, scale) <= probability
    assert cutoff == 0 or laplace_tail(cutoff - 1, scale) > probability * (1 - 1e-6)


def test_one_stream_is_none_for_secure_noise_and_a_generator_for_a_seed():
    assert one_stream(None) is None
    generator = np.random.default_rng(1)
    assert one_stream(generator) is generator
    assert one_stream(5).random() == np.random.default_rng(5).random()


@pytest.mark.parametrize("seed", [-1, 2.0, math.nan, False, "1", [1]])
def test_other_seeds_are_refused(seed):
    with pytest.raises(InputError, match="seed must be"):
        noise_source(seed)


class TestOpenDPsOwnPrivacyMaps:
    """OpenDP proves a loss for each measurement we use; ours must be the same, also after an upgrade of OpenDP."""

    @pytest.mark.parametrize("scale", [0.7, 5.0, 1e6])
    def test_additive_noise(self, scale):
        dp = _opendp()
        laplace = dp.measurements.make_laplace(_vectors(), dp.metrics.l1_distance(T="i64"), scale=scale)
        gaussian = dp.measurements.make_gaussian(_vectors(), dp.metrics.l2_distance(T="f64"), scale=scale)
        assert laplace.map(3) == pytest.approx(3 / scale, rel=1e-12)
        assert gaussian.map(3.0) == pytest.approx(9 / (2 * scale**2), rel=1e-12)

    @pytest.mark.parametrize("scale", [0.7, 5.0, 1e6])
    def test_noisy_maxima(self, scale):
        dp = _opendp()
        space = _vectors(), dp.metrics.linf_distance(T="i64")
        gumbel = dp.measurements.make_noisy_max(*space, dp.measures.zero_concentrated_divergence(), scale=scale)
        flips = dp.measurements.make_noisy_max(*space, dp.measures.max_divergence(), scale=scale)
        epsilon = 2 * 3 / scale
        assert gumbel.map(3) == pytest.approx(epsilon**2 / 8, rel=1e-12)
        assert flips.map(3) == pytest.approx(epsilon, rel=1e-12)


def test_opendp_is_imported_by_the_first_secure_draw_and_not_before():
    program = (
        "import sys; from escudo.mechanisms import laplace;"
        "laplace(1, sensitivity=1, epsilon=1.0, seed=1); assert 'opendp' not in sys.modules;"
        "laplace(1, sensitivity=1, epsilon=1.0); assert 'opendp' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
