"""One step of DP-SGD on gradients of the auditor's choice, as a mechanism that can be audited.

The network of :func:`audited_step` has the loss ⟨w, x⟩, so that a row's gradient is the row itself: an auditor who
picks rows picks gradients, the worst case that the proof of the step allows for. Everything else is the step that
trainings run: the Poisson sample, ghost norms and clipping, the noise, the division.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms.dpsgd._core import noisy_mean
from escudo.mechanisms.dpsgd._layers import Array, Tape, clipped_sum
from escudo.mechanisms.dpsgd._normal import normal


class AuditedStep:
    """A step of DP-SGD as a mechanism: rows, which are gradients, give a noisy sum.

    It is called as escudo's auditor calls mechanisms: ``step(rows, rng)``, and ``step.batch(rows, count, rng)``.

    Args:
        noise_multiplier: Standard deviation of the noise, over ``clip_norm``.
        sampling_probability: The chance of each row.
        clip_norm: The largest l2 norm of a row's gradient.
    """

    def __init__(self, *, noise_multiplier: float, sampling_probability: float = 1.0, clip_norm: float = 1.0):
        self.noise = noise_multiplier * clip_norm
        self.clip_norm = clip_norm
        self.probability = sampling_probability

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator, /) -> NDArray[np.float32]:
        """Return one noisy sum."""
        one: NDArray[np.float32] = self.batch(rows, 1, rng)[0]
        return one

    def batch(self, rows: NDArray[Any], count: int, rng: np.random.Generator, /) -> NDArray[np.float32]:
        """Return ``count`` independent noisy sums, of shape (count, width of a row)."""
        with np.errstate(all="ignore"):  # what is too large for float32 is infinite, and left out
            table = np.asarray(rows).astype(np.float32)
        keys = rng.integers(0, 2**32, (count, 2), dtype=np.uint32)
        drawn = (rng.random((count, len(table))) < self.probability).astype(np.float32)
        return np.asarray(_steps(table, drawn, keys, np.float32(self.clip_norm), np.float32(self.noise)))


def audited_step(**options: Any) -> AuditedStep:
    """Return a step of DP-SGD as a mechanism; see :class:`AuditedStep`."""
    return AuditedStep(**options)


def _itself(tape: Tape, rows: Array, key: Array) -> Array:
    """A network whose gradient by row is the row."""
    return (tape.bias("w", rows.shape[0]) * rows).sum(axis=-1)


def _all_steps(rows: Array, drawn: Array, keys: Array, clip_norm: Array, noise: Array) -> Array:
    parameters = {"w": {"b": jnp.zeros(rows.shape[1])}}

    def one(weights: Array, key: Array) -> Array:
        fresh = jax.random.wrap_key_data(key)
        summed, _ = clipped_sum(_itself, parameters, rows, fresh, weights, clip_norm)
        return noisy_mean(summed["w"]["b"], normal(fresh, rows.shape[1:]), noise, jnp.float32(1.0))

    return jax.vmap(one)(drawn, keys)


_steps = jax.jit(_all_steps)
