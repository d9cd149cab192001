"""Poisson samples, laid out in slots of equal size, so that one compiled program serves all and no row is dropped.

Each row is drawn with probability q by itself: the number drawn is binomial, and given it every set of that size is
equally likely. A sample larger than a slot goes on in the next one, so there is no overflow to account for.

**What the number of rows decides.** Which rows are drawn, and nothing else: the size of slots, the length of segments
and after which steps a state may be kept follow from the *expected* number of rows, which is public or noisy. Steps
come in groups of equally many, and a group ends its last segment, however full that is: where a group ends tells
nothing of its samples' sizes.

**Time.** A step runs as many slots as its sample fills, so its time tells the size of its sample: a draw of Binomial(n,
q), whoever the n rows are. Neighbours under ``replace_one`` have the same n, and so the same law of times. Under
``add_remove`` n itself is private, and the time of a training tells it about as well as that of any program that reads
a table; no guarantee of escudo covers times.

**Precision.** The factors of gradients are multiplied in bfloat16 where that is quicker, and runs at all; the sizes of
slots decide over that too, and the rows do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms.dpsgd._core import Knobs, Recipe, Slots, first_state, run
from escudo.mechanisms.dpsgd._layers import Layout, LossFn, Precision

_LARGEST = {"cpu": 384}  # rows whose activations stay in a processor's cache
_LARGEST_ELSEWHERE = 4096
_SEGMENT_ROWS = 2**13


def capacity_for(expected_rows: float, probability: float) -> int:
    """Return a size of slots: what one sample in 40 exceeds, or a part of it where that is many rows.

    Sizes are rounded up to multiples of 8, or by 1 in 32, so that similar trainings share one compiled program.

    Args:
        expected_rows: The number of rows: public or noisy.
        probability: The chance of each row.

    >>> capacity_for(5000, 0.02), capacity_for(5000, 0.002)
    (120, 24)
    """
    usual = _usual(expected_rows, probability)
    one = math.ceil(usual / math.ceil(usual / _LARGEST.get(jax.default_backend(), _LARGEST_ELSEWHERE)))
    unit = max(8, 1 << max(one.bit_length() - 6, 0))
    return unit * math.ceil(one / unit)


def _usual(expected_rows: float, probability: float) -> int:
    """Return the size that one sample in 40 exceeds."""
    expected = max(expected_rows, 1.0) * probability
    return max(math.ceil(expected + 2 * math.sqrt(expected * (1 - probability))), 1)


def segment_length(capacity: int) -> int:
    """Return how many slots a segment has: by the capacity alone, so that trainings of one network share a program."""
    return min(max(_SEGMENT_ROWS // capacity, 8), 256)


def group_length(expected_rows: float, probability: float, capacity: int) -> int:
    """Return how many steps a group has: as many as fill a segment, with room for the samples that exceed a slot.

    >>> group_length(5000, 0.02, 120), group_length(10**6, 1.0, 384)
    (61, 1)
    """
    return max(
        math.floor(0.9 * segment_length(capacity)) // math.ceil(_usual(expected_rows, probability) / capacity), 1
    )


class Sampling(NamedTuple):
    """Which rows take part in which steps, each row by itself.

    Attributes:
        rows: How many rows there are.
        probability: The chance of each row in each step.
        steps: How many steps.
    """

    rows: int
    probability: float
    steps: int


def slots_of(rng: np.random.Generator, sampling: Sampling, capacity: int, group: int | None = None) -> Iterator[Slots]:
    """Yield the samples of all steps in segments of equally many slots, filled up with empty ones.

    Args:
        rng: Where the samples and the keys come from; both are the same for all capacities and groups.
        sampling: Which rows take part.
        capacity: The size of a slot.
        group: After how many steps a new segment begins, from :func:`group_length`; None for the last one only.
    """
    rows, probability, steps = sampling
    keys, length = rng.integers(0, 2**32, (steps, 2), dtype=np.uint32), segment_length(capacity)

    def segment() -> Slots:
        return Slots(
            rows=np.zeros((length, capacity), np.int32),
            count=np.zeros(length, np.int32),
            last=np.zeros(length, bool),
            key=np.zeros((length, 2), np.uint32),
        )

    now, place = segment(), 0
    for step in range(steps):
        drawn = _sample(rng, rows, probability)
        parts = np.split(drawn, range(capacity, len(drawn), capacity)) if len(drawn) else [drawn]
        full = place > 0 and group is not None and step % group == 0
        for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
            if full or place == length:
                yield now
                now, place, full = segment(), 0, False
            now.rows[place, : len(part)], now.count[place], now.last[place] = part, len(part), left == 0
            now.key[place] = keys[step] + np.array([0, left], np.uint32)  # the noise's is the same for all layouts
            place += 1
    yield now


def _sample(rng: np.random.Generator, rows: int, probability: float) -> np.ndarray[Any, Any]:
    if probability >= 1 or rows == 0:
        return np.arange(rows, dtype=np.int32)
    drawn = rng.choice(rows, rng.binomial(rows, probability), replace=False, shuffle=False)
    return drawn.astype(np.int32)


def device_slots(key: Any, sampling: Sampling, capacity: int) -> Slots:
    """Draw the samples of many steps where jax runs, by the geometric gaps between drawn rows; a step is one slot.

    For trainings by the thousand (shadow models, searches), never for a release: samples beyond ``capacity`` lose
    their last rows, and float32 gaps make chances right to about one part in 10⁵ only.
    """
    rows, probability, steps = sampling
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


_LARGE = 2**14  # parameters from which on products, and not what surrounds them, take the time
_NATIVE = {"avx512_bf16", "amx_bf16"}


def precision_for(loss_fn: LossFn, layout: Layout, recipe: Recipe, rows: NDArray[Any], capacity: int) -> Precision:
    """Return the precision for a training: a function of the network, the machine and the rows' form, not of rows.

    On a processor bfloat16 is tried on rows of zeros first: XLA lacks products of some layouts there, and says so only
    when it meets one.

    Args:
        loss_fn: The network.
        layout: Where its arrays lie.
        recipe: How the training goes.
        rows: The rows; only their type and width are looked at.
        capacity: The size of a slot.
    """
    if layout.size < _LARGE or not _native():
        return "float32"
    if jax.default_backend() != "cpu":
        return "bfloat16"
    return _tried(loss_fn, layout, recipe, rows.shape[1:], rows.dtype.str, capacity)


@lru_cache(maxsize=64)
def _tried(
    loss_fn: LossFn, layout: Layout, recipe: Recipe, shape: tuple[int, ...], dtype: str, capacity: int
) -> Precision:
    length = segment_length(capacity)
    knobs = Knobs(*map(jnp.float32, (1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0)))
    slots = Slots(
        rows=np.zeros((length, capacity, *shape), dtype),
        count=np.zeros(length, np.int32),
        last=np.arange(length) == 0,  # one step of no rows: everything is compiled and run once
        key=np.zeros((length, 2), np.uint32),
    )
    rounding = replace(recipe, precision="bfloat16")
    trial = partial(run, loss_fn, layout, rounding, None, knobs, first_state(np.zeros(layout.size)), slots)
    try:
        jax.block_until_ready(trial())
    except jax.errors.JaxRuntimeError:
        return "float32"
    return "bfloat16"


@lru_cache(maxsize=1)
def _native() -> bool:
    """Return whether the machine multiplies bfloat16 by itself: accelerators do, processors that say so."""
    if jax.default_backend() != "cpu":
        return True
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return bool(_NATIVE & set(flags.split()))
