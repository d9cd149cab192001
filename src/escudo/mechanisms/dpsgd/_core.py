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

from escudo.mechanisms.dpsgd._layers import Array, Layout, LossFn, Tape, clipped_sum

__all__ = ["Knobs", "Recipe", "Slots", "State", "first_state", "noisy_mean", "result", "row_losses", "run"]


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
        generator: JAX's name of the random generator.
        split: Whether a step may take several slots.
        unroll: How many slots are compiled into one turn of the loop.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    floor: float = 1e-8
    averaged: bool = True
    generator: str = "threefry2x32"
    split: bool = True
    unroll: int = 1


def first_state(parameters: Array, *, split: bool = True) -> State:
    """Return the state before the first step."""
    flat = jnp.asarray(parameters, dtype=jnp.float32)
    zeros = jnp.zeros_like(flat)
    total = zeros if split else jnp.zeros((0,), jnp.float32)
    return State(flat, zeros, zeros, zeros, jnp.zeros((), jnp.int32), total)


def noisy_mean(total: Array, key: Array, noise: Array, expected: Array) -> Array:
    """Return the clipped sum with Gaussian noise on each coordinate, over the expected size of the sample.

    **Guarantee.** For sums that one row moves by at most C in l2 norm, and ``noise`` = σC, this is the release that
    :class:`~escudo.privacy.SampledGaussianEvent` states with noise multiplier σ. The noise is drawn in float32, so it
    is not safe against attacks on floating point.
    """
    return (total + noise * jax.random.normal(key, total.shape, total.dtype)) / expected


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


def _slot(
    loss_fn: LossFn, layout: Layout, recipe: Recipe, data: Any, knobs: Knobs, state: State, slot: Slots
) -> tuple[State, None]:
    batch = slot.rows if data is None else jax.tree_util.tree_map(lambda array: array[slot.rows], data)
    capacity = jax.tree_util.tree_leaves(slot.rows)[0].shape[0]
    weights = (jnp.arange(capacity) < slot.count).astype(jnp.float32)
    for_network, for_noise = jax.random.split(jax.random.wrap_key_data(slot.key, impl=recipe.generator))
    tree = layout.unflatten(state.parameters)
    summed, _ = clipped_sum(loss_fn, tree, batch, for_network, weights, knobs.clip_norm)
    total = layout.flatten(summed)

    def finish(total: Array) -> State:
        gradient = noisy_mean(total, for_noise, knobs.noise, knobs.expected)
        return _moved(recipe, knobs, state, gradient)

    if not recipe.split:
        return finish(total), None
    total = state.total + total
    return jax.lax.cond(slot.last, finish, lambda total: state._replace(total=total), total), None


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
    step = partial(_slot, loss_fn, layout, recipe, data, knobs)
    after: State = jax.lax.scan(step, state, slots, unroll=recipe.unroll)[0]
    return after


@partial(jax.jit, static_argnames=("loss_fn", "layout"))
def row_losses(loss_fn: LossFn, layout: Layout, parameters: Array, rows: Any, key: Array) -> Array:
    """Return each row's loss under fixed parameters: the score of a canary, for one-run audits. Private."""
    return loss_fn(Tape(layout.unflatten(parameters)), rows, key)


def result(knobs: Knobs, state: State) -> Array:
    """Return the parameters that a training gives: their average over the last steps."""
    seen = 1 - knobs.averaging ** jnp.maximum(state.step, 1).astype(jnp.float32)
    return jnp.where(state.step > 0, state.average / seen, state.parameters)
