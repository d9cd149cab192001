r"""Gaussian noise from a counter-based generator, as one elementwise expression that compilers fuse and vectorise.

The i-th number of a stream is a function of the key, the stream and i alone: the block cipher Threefry-2x32 with all
its 20 rounds turns (i, stream) into two words of 32 bits, and Box and Muller's transform turns these into

.. math:: z = \sqrt{-2 \ln u} \, \cos(2 π v), \qquad u = (a + ½) / 2^{40}, \; v = (b + ½) / 2^{24},

for 40 of the 64 bits, a, and the other 24, b. JAX's own way to call the same cipher runs its rounds as a loop over
arrays on processors, and takes three times as long.

**The tail has no end.** Forty bits alone would end it at 7.5 standard deviations. So where u < 2⁻²⁴, which one number
in 16.8 million has, the two words are dropped and the next *level* is drawn: two more words of the cipher, from the
counter (i, stream + 2¹⁶ level), which give u' and v' in the same way, and u = 2⁻²⁴ u'. That is the law of a uniform
number given that it is below 2⁻²⁴, so u is uniform at every scale, with at least 16 bits that count. *What remains:*
levels are numbered by 16 bits, so the law is another where 2¹⁶ levels in a row call for the next: beyond 1,400 standard
deviations, with a chance of 2⁻¹⁵⁷²⁸⁶⁴. Below any δ that could be asked for.

Numbers whose next level is due are marked by infinity, and a loop over levels runs while there is one: for 76,000
numbers in one vector of 220. What it costs is looking for infinities, a tenth of the time; an if would do as well, but
``jax.vmap`` turns it into both of its branches, and a loop into one that runs while any copy needs it.

**The grid.** Float32 keeps 24 bits of a number near 1, so u near 1 is computed from 1 - u, which has all its bits: the
radius begins at 10⁻⁶ and goes on in steps of about as much, no number is exactly 0, and no point has more than about
one part in 2²⁴ of the mass at its distance from 0.

**What is claimed.** With an unknown, uniform key of 64 bits the words pass every statistical test that the cipher was
published with (BigCrush), and the numbers have the normal law, tails included, up to the rounding of float32 (about one
part in 10⁶) and the grids above. **What is not.** Threefry-2x32 is not a cryptographic generator: 64 bits of key can be
searched by whoever can afford it, and no proof says that less effort would not do. Float32 noise can tell apart sums
that differ in their last bits (Mironov 2012). So noise from here is never called float-safe.

**Reference.** J. Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3", SC '11, for the cipher; G. Box
and M. Muller (1958), "A note on the generation of random normal deviates", Ann. Math. Stat. 29.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # a jax array or tracer

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_LEVEL_BITS = 24  # a level is left to the next one where its u is below 2 to the power of minus so many
_STREAMS = 2**16
_LN = (  # ln(1 + m) = m - m²/2 + m³ p(m), for 1 + m between √½ and √2
    3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1, -1.2420140846e-1,
    1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2,
)  # fmt: skip
_SINE = (  # sin(2πy) = y p(y²), for y between -¼ and ¼, to 3.4 · 10⁻⁹
    6.28318516009, -41.3416550314, 81.6010040733, -76.5497822938, 39.5367060668,
)  # fmt: skip


def threefry(key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the words that Threefry-2x32 with 20 rounds makes of a counter of two words, under a key of two."""
    keys = (*key, key[0] ^ key[1] ^ np.uint32(_PARITY))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(turn)) | (y >> np.uint32(32 - turn))
            y = y ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def normal(key: Array, shape: tuple[int, ...], stream: int = 0, *, tails: bool = True) -> Array:
    """Return standard normal numbers in float32.

    Args:
        key: A key of jax, or its raw words; the first and the last word are used.
        shape: How many.
        stream: Which of the key's independent streams, below 2¹⁶.
        tails: Whether levels are followed. False ends numbers at 7.5 standard deviations, which is enough for whatever
            protects nobody: accelerators then draw them where they are used, instead of writing them down first.
    """
    words = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    count = math.prod(shape)
    place = jnp.arange(count, dtype=jnp.uint32)

    def level(number: Array) -> Array:
        second = jnp.full(count, stream, jnp.uint32) + number * np.uint32(_STREAMS)
        return _transformed(*threefry((words[0], words[-1]), (place, second)), number, tails=tails)

    if not tails:
        return level(np.uint32(0)).reshape(shape)

    def further(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        numbers, depth = carry
        return jnp.where(jnp.isinf(numbers), level(depth), numbers), depth + np.uint32(1)

    # The sum is infinite if one of them is; XLA adds up faster than it looks for infinities.
    first = (level(np.uint32(0)), jnp.uint32(1))
    numbers, _ = jax.lax.while_loop(lambda carry: ~jnp.isfinite(carry[0].sum()), further, first)
    return numbers.reshape(shape)


def _transformed(first: Array, second: Array, level: Array, *, tails: bool = True) -> Array:
    """Return the numbers that two words of a level make; infinity where the next level is due."""
    deeper = jnp.asarray(level, jnp.float32) * np.float32(_LEVEL_BITS * math.log(2))
    numbers = jnp.sqrt(2 * (_minus_log(first, second) + deeper)) * _cosine(second)
    due = first < np.uint32(2 ** (32 - _LEVEL_BITS))
    return jnp.where(due, np.float32(np.inf), numbers) if tails else numbers


def _minus_log(first: Array, second: Array) -> Array:
    """Return -ln u for u = (a + ½) / 2⁴⁰, with a of all bits of one word and the last 8 of the other.

    The first bit says whether the others are those of u < ½ or, turned over, of 1 - u < ½, whichever is small.
    """
    rest = (first & np.uint32(0x7FFFFFFF)).astype(jnp.int32).astype(jnp.float32) * np.float32(2.0**-32)
    last = (second & np.uint32(0xFF)).astype(jnp.int32).astype(jnp.float32) + np.float32(0.5)
    small, over = rest + last * np.float32(2.0**-40), first.astype(jnp.int32) < 0
    bits = jax.lax.bitcast_convert_type(jnp.where(over, np.float32(1) - small, small), jnp.int32)
    power = (bits - np.int32(0x3F3504F3)) >> 23  # of 2, such that what is left lies between √½ and √2
    m = jax.lax.bitcast_convert_type(bits - (power << 23), jnp.float32) - np.float32(1)
    m = jnp.where(over & (power == 0), -small, m)
    log = m + m * m * (np.float32(-0.5) + m * _polynomial(_LN, m))
    return -power.astype(jnp.float32) * np.float32(math.log(2)) - log


def _cosine(word: Array) -> Array:
    """Return the cosine of (b + ½) / 2²⁴ of a full turn, with b the first 24 bits of the word."""
    share = (word.astype(jnp.int32) >> 8).astype(jnp.float32) + np.float32(0.5)
    y = np.float32(0.25) - jnp.abs(share) * np.float32(2.0**-24)
    return y * _polynomial(_SINE, y * y)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value: Array = np.float32(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + np.float32(coefficient)
    return value
