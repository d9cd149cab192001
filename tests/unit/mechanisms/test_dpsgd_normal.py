"""The noise of DP-SGD: the cipher is Threefry, and what it makes is normal, in the middle and far out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from escudo.mechanisms.dpsgd._normal import _cosine, _minus_log, _transformed, normal, threefry

COUNT = 1 << 21
drawn = jax.jit(normal, static_argnames=("shape", "stream"))


@pytest.fixture(scope="module")
def numbers() -> np.ndarray:
    return np.asarray(drawn(jnp.asarray([17, 99], jnp.uint32), (COUNT,)), np.float64)


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


def weight_of_the_tails(numbers: np.ndarray, cut: float) -> float:
    """The least p-value of the counts on both sides, too few and too many."""
    there, expected = [(numbers > cut).sum(), (numbers < -cut).sum()], COUNT * stats.norm.sf(cut)
    return min(min(stats.poisson.cdf(count, expected), stats.poisson.sf(count - 1, expected)) for count in there)


@pytest.mark.parametrize("cut", [2.0, 3.0, 4.0, 4.8])
def test_the_tails_have_the_weight_they_should_and_those_of_other_noise_do_not(numbers, cut):
    assert weight_of_the_tails(numbers, cut) > 1e-4
    assert weight_of_the_tails(numbers * 1.5, cut) < 1e-9
    assert weight_of_the_tails(numbers / 1.5, cut) < 1e-9 or cut > 4.5  # there one of ±1.7 is none


# -- the tail has no end: levels


transformed = jax.jit(_transformed)


def radius_of(first: int, level: int) -> float:
    """The radius that a word gives on a level: the number itself, as the other word turns it by nearly nothing."""
    return float(transformed(jnp.uint32(first), jnp.uint32(0), jnp.uint32(level)))


@pytest.mark.parametrize("level", range(6))
def test_on_every_level_the_tail_goes_on_by_the_next(level):
    assert radius_of(2**8 - 1, level) == np.inf  # the next is due
    assert radius_of(0, level) == np.inf
    end = radius_of(2**8, level)
    assert end == pytest.approx(np.sqrt(2 * np.log(2) * 24 * (level + 1)), rel=1e-5)
    assert radius_of(2**31, level + 1) == pytest.approx(end, rel=1e-5)  # where the next begins
    assert radius_of(2**8, 5) > 14


@pytest.mark.parametrize("cut", [1.5, 4.0, 5.5, 6.66, 7.5, 9.0, 12.0])
def test_words_that_give_a_radius_beyond_a_cut_are_as_many_as_the_normal_law_says(cut):
    """Counted by bisection, in the transform itself: a radius exceeds r with chance exp(-r²/2)."""
    level = int(cut**2 / 2 / (24 * np.log(2)))
    low, high = 2**8, 2**31 - 1  # the smaller the word, the larger the radius
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if radius_of(middle, level) > cut else (low, middle)
    assert 2.0 ** (-24 * level) * high / 2**32 == pytest.approx(np.exp(-(cut**2) / 2), rel=1e-4 + 1 / high)


def test_a_number_whose_next_level_is_due_is_drawn_from_it():
    key = jnp.asarray([25_000, 7], jnp.uint32)  # found by search
    found = threefry((key[0], key[1]), (jnp.uint32(20), jnp.uint32(0)))
    assert int(found[0]) < 2**8
    deeper = threefry((key[0], key[1]), (jnp.uint32(20), jnp.uint32(2**16)))
    numbers = np.asarray(drawn(key, (30,)))
    assert numbers[20] == pytest.approx(float(transformed(*deeper, jnp.uint32(1))), rel=1e-6)
    assert np.isfinite(numbers).all()
    pair = jax.jit(jax.vmap(lambda key: normal(key, (30,))))(jnp.stack([key, key[::-1]]))
    np.testing.assert_allclose(pair, np.stack([numbers, np.asarray(drawn(key[::-1], (30,)))]), rtol=1e-6)


def test_the_radius_near_zero_is_fine_and_no_number_is_zero():
    """A radius of exactly 0 would give one number in 2²⁵ the value 0: more than most δ."""
    least = [radius_of(2**31 + step, 0) for step in range(4)]
    assert 0 < least[0] < 1e-6
    assert (np.diff(least) < 3e-5).all()
    words = jnp.asarray([0x3FFFFFFF, 0x40000000, 0xBFFFFFFF, 0xC0000000], jnp.uint32)
    assert (np.abs(_cosine(words)) > 1e-7).all()


def test_each_part_is_exact_to_float32():
    first, second = np.random.default_rng(0).integers(0, 2**32, (2, 200_000), dtype=np.uint32)
    first[:1000] = 2**31 + np.arange(1000)
    small = (first % 2**31).astype(np.float64) / 2**32 + ((second & 255) + 0.5) / 2**40
    exact = np.where(first >> 31, -np.log1p(-small), -np.log(small))
    np.testing.assert_allclose(_minus_log(jnp.asarray(first), jnp.asarray(second)), exact, rtol=2e-6)
    turn = np.cos(2 * np.pi * ((second >> 8).astype(np.float64) + 0.5) / 2**24)
    np.testing.assert_allclose(_cosine(jnp.asarray(second)), turn, atol=2e-7)


def test_neighbours_keys_and_streams_have_nothing_to_do_with_each_other(numbers):
    bound = 5 / np.sqrt(COUNT - 1)
    for lag in (1, 2, 1024):
        assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < bound
        assert abs(np.corrcoef(numbers[:-lag] ** 2, numbers[lag:] ** 2)[0, 1]) < bound
    short = 1 << 16
    key = jnp.asarray([17, 99], jnp.uint32)
    for other in (drawn(key, (short,), stream=1), drawn(key.at[1].set(98), (short,)), drawn(key[::-1], (short,))):
        assert abs(np.corrcoef(numbers[:short], np.asarray(other))[0, 1]) < 5 / np.sqrt(short)


def test_a_number_depends_on_key_stream_and_place_only(numbers):
    key = jnp.asarray([17, 99], jnp.uint32)
    np.testing.assert_allclose(drawn(key, (10, 3)).reshape(-1), numbers[:30], rtol=1e-6)  # as programs round
    typed = jax.random.wrap_key_data(key)
    np.testing.assert_allclose(drawn(typed, (30,)), numbers[:30], rtol=1e-6)
