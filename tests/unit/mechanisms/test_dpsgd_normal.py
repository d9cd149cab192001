"""The noise of DP-SGD: the cipher is Threefry, and what it makes is normal, in the middle and far out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from escudo.mechanisms.dpsgd._normal import _cosine, _minus_log, normal, threefry

COUNT = 1 << 21


@pytest.fixture(scope="module")
def numbers() -> np.ndarray:
    draw = jax.jit(lambda key: normal(key, (COUNT,)))
    return np.asarray(draw(jnp.asarray([17, 99], jnp.uint32)), np.float64)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [  # the values published with the cipher
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_the_cipher_gives_the_published_words(key, counter, words):
    found = threefry(tuple(map(jnp.uint32, key)), tuple(map(jnp.uint32, counter)))
    assert tuple(map(int, found)) == words


def test_the_numbers_are_normal_in_the_middle(numbers):
    assert stats.kstest(numbers[: 1 << 18], "norm").pvalue > 1e-3
    assert abs(numbers.mean()) < 4 / np.sqrt(COUNT)
    for power, moment in ((2, 1.0), (4, 3.0), (6, 15.0)):
        spread = np.sqrt(stats.norm.moment(2 * power) - moment**2)
        assert abs((numbers**power).mean() - moment) < 4 * spread / np.sqrt(COUNT)


@pytest.mark.parametrize("cut", [2.0, 3.0, 4.0, 4.8])
def test_the_tails_have_the_weight_they_should(numbers, cut):
    for there in ((numbers > cut).sum(), (numbers < -cut).sum()):
        assert stats.poisson.cdf(there, COUNT * stats.norm.sf(cut)) > 1e-4
        assert stats.poisson.sf(there - 1, COUNT * stats.norm.sf(cut)) > 1e-4


def test_the_tails_go_on_where_those_of_jax_end():
    radius = np.sqrt(2 * np.asarray(_minus_log(jnp.asarray([0, 1, 2, 3], jnp.uint32)), np.float64))
    assert radius[0] == pytest.approx(np.sqrt(-2 * np.log(0.5 / 2**31)), rel=1e-6)
    assert 6.6 < radius[0] < 6.7


def test_each_part_is_exact_to_float32():
    words = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    share = ((words >> 1).astype(np.float64) + 0.5) / 2**31
    np.testing.assert_allclose(_minus_log(jnp.asarray(words)), -np.log(share), rtol=2e-6, atol=1e-7)
    turn = np.cos(2 * np.pi * words.astype(np.float64) / 2**32)
    np.testing.assert_allclose(_cosine(jnp.asarray(words)), turn, atol=1e-6)


def test_neighbours_keys_and_streams_have_nothing_to_do_with_each_other(numbers):
    bound = 5 / np.sqrt(COUNT - 1)
    for lag in (1, 2, 1024):
        assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < bound
        assert abs(np.corrcoef(numbers[:-lag] ** 2, numbers[lag:] ** 2)[0, 1]) < bound
    short = 1 << 16
    key = jnp.asarray([17, 99], jnp.uint32)
    for other in (normal(key, (short,), stream=1), normal(key.at[1].set(98), (short,)), normal(key[::-1], (short,))):
        assert abs(np.corrcoef(numbers[:short], np.asarray(other))[0, 1]) < 5 / np.sqrt(short)


def test_a_number_depends_on_key_stream_and_place_only(numbers):
    key = jnp.asarray([17, 99], jnp.uint32)
    np.testing.assert_array_equal(normal(key, (10, 3)).reshape(-1), numbers[:30].astype(np.float32))
    typed = jax.random.wrap_key_data(key)
    np.testing.assert_array_equal(normal(typed, (30,)), numbers[:30].astype(np.float32))
