"""Poisson samples, laid out in slots of equal size, so that one compiled program serves all and no row is dropped.

Each row is drawn with probability q by itself: the number drawn is binomial, and given it every set of that size is
equally likely. A sample larger than a slot goes on in the next one, so there is no overflow to account for.

**Time.** A step runs as many slots as its sample fills, so its time tells the size of its sample: a draw of Binomial(n,
q), whoever the n rows are. Neighbours under ``replace_one`` have the same n, and so the same law of times. Under
``add_remove`` n itself is private, and the time of a training tells it about as well as that of any program that reads
a table; no guarantee of escudo covers times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from escudo.mechanisms.dpsgd._core import Slots

__all__ = ["capacity_for", "device_slots", "segment_length", "slots_of"]

_LARGEST = {"cpu": 384}  # rows whose activations stay in a processor's cache
_LARGEST_ELSEWHERE = 4096
_SEGMENT_ROWS = 2**13


def capacity_for(rows: int, probability: float) -> int:
    """Return a size of slots: what one sample in 40 exceeds, or a part of it where that is many rows.

    Sizes are rounded up to multiples of 8, or by 1 in 32, so that similar trainings share one compiled program.

    >>> capacity_for(5000, 0.02), capacity_for(5000, 0.002)
    (120, 24)
    """
    import jax

    expected = rows * probability
    usual = max(math.ceil(expected + 2 * math.sqrt(expected * (1 - probability))), 1)
    one = math.ceil(usual / math.ceil(usual / _LARGEST.get(jax.default_backend(), _LARGEST_ELSEWHERE)))
    unit = max(8, 1 << max(one.bit_length() - 6, 0))
    return unit * math.ceil(one / unit)


def segment_length(capacity: int) -> int:
    """Return how many slots a segment has: by the capacity alone, so that trainings of one network share a program."""
    return min(max(_SEGMENT_ROWS // capacity, 8), 256)


def slots_of(rng: np.random.Generator, *, rows: int, probability: float, steps: int, capacity: int) -> Iterator[Slots]:
    """Yield the samples of ``steps`` steps in segments of equally many slots; the last is filled up with empty ones.

    Args:
        rng: Where the samples and the keys come from.
        rows: How many rows there are.
        probability: The chance of each row in each step.
        steps: How many steps.
        capacity: The size of a slot.
    """
    length = segment_length(capacity)

    def pieces() -> Iterator[tuple[np.ndarray[Any, Any], bool]]:
        for _ in range(steps):
            drawn = _sample(rng, rows, probability)
            parts = np.split(drawn, range(capacity, len(drawn), capacity)) if len(drawn) else [drawn]
            for number, part in enumerate(parts):
                yield part, number == len(parts) - 1

    def segment() -> Slots:
        keys = rng.integers(0, 2**32, (length, 2), dtype=np.uint32)
        return Slots(np.zeros((length, capacity), np.int32), np.zeros(length, np.int32), np.zeros(length, bool), keys)

    now, place = segment(), 0
    for part, last in pieces():
        if place == length:
            yield now
            now, place = segment(), 0
        now.rows[place, : len(part)], now.count[place], now.last[place] = part, len(part), last
        place += 1
    yield now


def _sample(rng: np.random.Generator, rows: int, probability: float) -> np.ndarray[Any, Any]:
    if probability >= 1:
        return np.arange(rows, dtype=np.int32)
    drawn = rng.choice(rows, rng.binomial(rows, probability), replace=False, shuffle=False)
    return drawn.astype(np.int32)


def device_slots(key: Any, *, rows: int, probability: float, steps: int, capacity: int) -> Slots:
    """Draw the samples of many steps where jax runs, by the geometric gaps between drawn rows; a step is one slot.

    For trainings by the thousand (shadow models, searches), never for a release: samples beyond ``capacity`` lose
    their last rows, and float32 gaps make chances right to about one part in 10⁵ only.
    """
    import jax
    import jax.numpy as jnp

    for_gaps, for_keys = jax.random.split(key)
    uniform = jax.random.uniform(for_gaps, (steps, capacity), minval=1e-12)
    gaps = jnp.floor(jnp.log(uniform) / math.log1p(-min(probability, 1 - 1e-7))) + 1
    places = jnp.cumsum(gaps, axis=1) - 1
    drawn = places < rows
    return Slots(
        rows=jnp.where(drawn, places, 0).astype(jnp.int32),
        count=drawn.sum(axis=1).astype(jnp.int32),
        last=jnp.ones(steps, bool),
        key=jax.random.bits(for_keys, (steps, 2), jnp.uint32),
    )
