"""Which precision the factors of gradients are multiplied in: bfloat16 where that is quicker, and runs at all."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms.dpsgd._core import Knobs, Recipe, Slots, first_state, run
from escudo.mechanisms.dpsgd._layers import Layout, LossFn, Precision
from escudo.mechanisms.dpsgd._sampling import segment_length

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
