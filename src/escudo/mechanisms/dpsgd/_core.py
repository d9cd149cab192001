r"""The training loop of DP-SGD: clipped sums of Poisson samples, noise, Adam and an average, in one compiled scan.

A training is a scan over *slots* of equal size. A step's sample fills one slot or, where it is larger, several; its
clipped gradients are added up, and at its last slot the step is finished:

.. math:: g = \Big(\sum_{i \in S} \mathrm{clip}_C(\nabla \ell_i) + σ C\, N(0, I)\Big) \Big/ qn ,

divided by the *expected* size of a sample, which is public. Then Adam moves the parameters, and their exponential
average is kept: both see only noisy sums, so they are free.

Only jax and numpy are imported here, so that it runs wherever they do. Everything that may differ between copies of a
training (``Knobs``, state, slots) is an argument, so ``jax.vmap`` trains many at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms.dpsgd._layers import Array, Layout, LossFn, Precision, Tape, clipped_sum, gradient_norms
from escudo.mechanisms.dpsgd._normal import normal


class Knobs(NamedTuple):
    """The numbers of a training that may vary without compiling anew.

    Attributes:
        clip_norm: The largest l2 norm of a row's gradient; infinity for none.
        noise: Standard deviation of the noise on each coordinate of the sum: noise multiplier times clip norm.
        expected: The expected size of a sample.
        rate: Adam's learning rate.
        steps: How many steps there will be, for the rate's decline to ``1 - decline`` of itself.
        decline: By how much.
        averaging: The memory of the parameters' average; 0 keeps the last parameters only.
    """

    clip_norm: Array
    noise: Array
    expected: Array
    rate: Array
    steps: Array
    decline: Array
    averaging: Array


class Slots(NamedTuple):
    """Samples, laid out in slots of equal size; every array's first axis runs over slots.

    Attributes:
        rows: Which rows, of shape (slots, capacity), or the rows themselves; beyond ``count`` they do not matter.
        count: How many of them count.
        last: Whether the step ends with this slot.
        key: Randomness for the network and the noise, as raw key data.
    """

    rows: Array
    count: Array
    last: Array
    key: Array


class State(NamedTuple):
    """What a step leaves to the next; all of it is a function of noisy sums, but for ``total``.

    Attributes:
        parameters: The network's parameters, as one vector.
        first: Adam's mean of gradients.
        second: Adam's mean of their squares.
        average: The exponential average of the parameters.
        step: Steps done.
        total: The clipped sum so far of a step that takes several slots; zero between steps. Private.
    """

    parameters: Array
    first: Array
    second: Array
    average: Array
    step: Array
    total: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a training goes, as far as it is compiled in.

    Attributes:
        betas: Adam's memories of gradients and of their squares.
        floor: What Adam adds to the root of the squares.
        averaged: Whether an average of the parameters is kept.
        split: Whether a step may take several slots; false for trainings by the thousand, never for a release.
        precision: What the factors of gradients are rounded to; parameters, sums and noise are float32 in any case.
        unroll: How many slots are compiled into one turn of the loop.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    floor: float = 1e-8
    averaged: bool = True
    split: bool = True
    precision: Precision = "float32"
    unroll: int = 1


def first_state(parameters: Array, *, split: bool = True) -> State:
    """Return the state before the first step."""
    flat = jnp.asarray(parameters, dtype=jnp.float32)
    zeros = jnp.zeros_like(flat)
    total = zeros if split else jnp.zeros((0,), jnp.float32)
    return State(flat, zeros, zeros, zeros, jnp.zeros((), jnp.int32), total)


def noisy_mean(total: Array, numbers: Array, noise: Array, expected: Array) -> Array:
    """Return the clipped sum with Gaussian noise on each coordinate, over the expected size of the sample.

    Args:
        total: The clipped sum.
        numbers: A standard normal number for each coordinate, from ``normal``.
        noise: The noise's standard deviation.
        expected: The expected size of the sample.

    **Guarantee.** For sums that one row moves by at most C in l2 norm, and ``noise`` = σC, this is the release that
    :class:`~escudo.privacy.SampledGaussianEvent` states with noise multiplier σ. The noise is drawn in float32, so it
    is not safe against attacks on floating point.
    """
    return (total + noise * numbers) / expected


def _moved(recipe: Recipe, knobs: Knobs, state: State, gradient: Array) -> State:
    """Return the state after Adam's step along a gradient, with nothing left in ``total``."""
    memory, square_memory = recipe.betas
    step = state.step + 1
    first = memory * state.first + (1 - memory) * gradient
    second = square_memory * state.second + (1 - square_memory) * gradient * gradient
    time = step.astype(jnp.float32)
    rate = knobs.rate * (1 - knobs.decline * state.step / knobs.steps)
    scale = rate / (1 - memory**time)
    moved = state.parameters - scale * first / (jnp.sqrt(second / (1 - square_memory**time)) + recipe.floor)
    average = state.average
    if recipe.averaged:
        average = knobs.averaging * average + (1 - knobs.averaging) * moved
    return State(moved, first, second, average, step, jnp.zeros_like(state.total))


def _rounded(recipe: Recipe, layout: Layout, parameters: Array) -> Any:
    """Return the arrays of each layer, weights in the precision that they are multiplied in."""
    return {
        layer: {name: array.astype(recipe.precision) if name == "w" else array for name, array in arrays.items()}
        for layer, arrays in layout.unflatten(parameters).items()
    }


def _sum(
    loss_fn: LossFn, layout: Layout, recipe: Recipe, data: Any, knobs: Knobs, tree: Any, slot: Slots, random: Array
) -> Array:
    """Return the clipped sum of one slot, as one vector."""
    batch = slot.rows if data is None else jax.tree_util.tree_map(lambda array: array[slot.rows], data)
    capacity = jax.tree_util.tree_leaves(slot.rows)[0].shape[0]
    weights = (jnp.arange(capacity) < slot.count).astype(jnp.float32)
    summed, _ = clipped_sum(loss_fn, tree, batch, random, weights, knobs.clip_norm, recipe.precision)
    return layout.flatten(summed)


@partial(jax.jit, static_argnames=("loss_fn", "layout", "recipe"))
def run(loss_fn: LossFn, layout: Layout, recipe: Recipe, data: Any, knobs: Knobs, state: State, slots: Slots) -> State:
    """Return the state after all slots, in one compiled loop.

    Args:
        loss_fn: The network; hashable, so that it is compiled once.
        layout: Where its arrays lie in the vector of parameters.
        recipe: How the training goes.
        data: All rows, as arrays whose first axis runs over them; None where the slots hold the rows themselves.
        knobs: The numbers of the training.
        state: Where it stands.
        slots: The samples; with ``recipe.split`` false every slot is a step of its own.
    """
    summed = partial(_sum, loss_fn, layout, recipe, data, knobs)
    steps = _slot_by_slot if not recipe.split else _step_by_step
    return steps(loss_fn, layout, recipe, knobs, summed, state, slots)


def _finished(recipe: Recipe, knobs: Knobs, state: State, total: Array, numbers: Array) -> State:
    return _moved(recipe, knobs, state, noisy_mean(total, numbers, knobs.noise, knobs.expected))


def _slot_by_slot(
    loss_fn: LossFn, layout: Layout, recipe: Recipe, knobs: Knobs, summed: Any, state: State, slots: Slots
) -> State:
    """Run slots that are steps of their own; never for a release, as their noise ends at 7.5 standard deviations."""

    def step(state: State, slot: Slots) -> tuple[State, None]:
        total = summed(_rounded(recipe, layout, state.parameters), slot, slot.key)
        return _finished(recipe, knobs, state, total, normal(slot.key, total.shape, tails=False)), None

    after: State = jax.lax.scan(step, state, slots, unroll=recipe.unroll)[0]
    return after


def _step_by_step(
    loss_fn: LossFn, layout: Layout, recipe: Recipe, knobs: Knobs, summed: Any, state: State, slots: Slots
) -> State:
    """Run steps that take one or several slots, and leave the sum of an unfinished one in ``total``."""
    capacity, draws = jax.tree_util.tree_leaves(slots.rows)[0].shape[1], getattr(loss_fn, "draws", 0)
    random = slots.key
    if draws:  # for all slots at once: XLA would draw them anew wherever a slot uses them
        random = jax.vmap(lambda key: normal(key, (capacity, draws), stream=1, tails=False))(slots.key)
    filled = slots.last | (slots.count > 0)
    stop = (filled * jnp.arange(1, len(filled) + 1)).max()  # beyond are the empty slots of the last segment

    def step(carry: tuple[State, Array]) -> tuple[State, Array]:
        state, place = carry
        tree = _rounded(recipe, layout, state.parameters)

        def more(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            total, place, _ = carry
            slot, own = jax.tree_util.tree_map(lambda array: array[place], (slots, random))
            return total + summed(tree, slot, own), place + 1, slot.last

        start = (state.total, place, jnp.zeros((), bool))
        total, place, ended = jax.lax.while_loop(lambda carry: (carry[1] < stop) & ~carry[2], more, start)
        numbers = normal(slots.key[place - 1], total.shape)  # here, not in the branch: so it is drawn once
        finish = partial(_finished, recipe, knobs)
        return jax.lax.cond(
            ended, finish, lambda state, total, _: state._replace(total=total), state, total, numbers
        ), place

    after: State = jax.lax.while_loop(lambda carry: carry[1] < stop, step, (state, jnp.zeros((), jnp.int32)))[0]
    return after


@partial(jax.jit, static_argnames=("loss_fn", "layout"))
def row_losses(loss_fn: LossFn, layout: Layout, parameters: Array, rows: Any, key: Array) -> Array:
    """Return each row's loss under fixed parameters: the score of a canary, for one-run audits. Private."""
    return loss_fn(Tape(layout.unflatten(parameters)), rows, key)


@partial(jax.jit, static_argnames=("loss_fn", "layout"))
def row_norms(loss_fn: LossFn, layout: Layout, parameters: Array, rows: Any, key: Array) -> Array:
    """Return the l2 norm of each row's gradient, before clipping: of public or simulated rows, to choose a bound by."""
    return gradient_norms(loss_fn, layout.unflatten(parameters), rows, key)


def result(knobs: Knobs, state: State) -> Array:
    """Return the parameters that a training gives: their average over the last steps."""
    seen = 1 - knobs.averaging ** jnp.maximum(state.step, 1).astype(jnp.float32)
    return jnp.where(state.step > 0, state.average / seen, state.parameters)


class AuditedStep:
    """A step of DP-SGD as a mechanism that can be audited: rows, which are gradients, give a noisy sum.

    Its network has the loss ⟨w, x⟩, so that a row's gradient is the row itself: an auditor who picks rows picks
    gradients, the worst case that the proof of the step allows for. Everything else is the step that trainings run: the
    Poisson sample, ghost norms and clipping, the noise, the division.

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
