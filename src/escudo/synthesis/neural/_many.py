"""Many trainings at once: for shadow models by the hundred, never for a release.

On an accelerator one training leaves most of the device idle, and :func:`train_many` runs hundreds side by side by
``jax.vmap`` over the whole training: one compiled program, in chunks that fit the device's memory. A processor gains
nothing from that, so there trainings follow one another through one compiled program, and memory stays that of one.

**Random numbers.** Everything follows from each training's seed, and never depends on what is trained beside it. On a
processor, and wherever samples hold all rows or take several slots, samples are those of
:func:`~escudo.mechanisms.dpsgd.train`: the same seed gives the same parameters as a fit by itself, up to rounding. On
an accelerator small samples are drawn there, which is the same law from another stream; of a sample that overflows its
slot (one in 160) the first rows of the table are left out, never the last, whose membership is in question.

**Two halves.** :func:`begin` measures a generator's start on one table, on any processor; :func:`finish` pre-trains
and trains all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms import Purse
from escudo.mechanisms.dpsgd import (
    Knobs,
    Recipe,
    Sampling,
    Slots,
    State,
    capacity_for,
    device_slots,
    first_state,
    precision_for,
    result,
    run,
    slots_of,
)
from escudo.privacy import Guarantee
from escudo.synthesis.neural._model import NeuralModel
from escudo.synthesis.neural._network import Network
from escudo.synthesis.neural._start import (
    clip_bound,
    expected_rows,
    free_steps,
    measured_rows,
    parameters_of,
    random_start,
    simulated_rows,
)
from escudo.synthesis.neural._training import PreparedNeural
from escudo.table import PrivateTable

Codes = NDArray[Any]
Floats = NDArray[np.float32]

_FEW, _MANY = 64, 512  # trainings side by side: two sizes, so that there are at most two programs to compile
_SEGMENTS = (128, 512)  # steps whose samples are drawn on the device in one go, at least and at most
_VECTORS = 12  # parameters, Adam's memories, the average, gradients, and what a step needs beside them


@dataclass(frozen=True, eq=False, repr=False)
class Copy:
    """One training of many.

    Attributes:
        start: The parameters to start from.
        rows: The rows, as cells; the record in question last.
        knobs: The numbers of the training.
        seed: Decides samples and noise.
        count: How many rows slots are laid out for, as by :func:`~escudo.mechanisms.dpsgd.train`: public or noisy. As
            many as there are if None, which a training for release must not look at.
    """

    start: Floats
    rows: Codes
    knobs: Knobs
    seed: int
    count: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Begun:
    """A generator's fit up to its training, on one table.

    Attributes:
        start: Parameters that follow the start's laws.
        rows: The private rows, as cells.
        count: The number of rows that the start released.
        simulated: Rows simulated from the start, to pre-train on; none if there is no pre-training.
        measured: Rows simulated from the start, to choose the clip bound by.
        seed: Decides samples and noise of the training.
    """

    start: Floats
    rows: Codes
    count: int
    _: KW_ONLY
    simulated: Codes
    measured: Codes
    seed: int


def on_accelerator() -> bool:
    """Return whether trainings side by side are quicker here than one after another."""
    return bool(jax.devices()[0].platform != "cpu")


def train_many(
    network: Network,
    recipe: Recipe,
    copies: Iterable[Copy],
    *,
    count: int,
    steps: int,
    probability: float,
    at_once: int | None = None,
    drawn_there: bool | None = None,
) -> Iterator[Floats]:
    """Train many copies of a network and give the parameters of each, in order.

    Args:
        network: The network.
        recipe: How trainings go, as far as it is compiled in.
        copies: The trainings; taken as they are needed.
        count: How many they are.
        steps: Of each.
        probability: The chance of each row in each step.
        at_once: How many are trained side by side; as many as the device has room for by default.
        drawn_there: Whether small samples are drawn where jax runs; on accelerators only by default.
    """
    first, left = _peeked(copies)
    if first is None:
        return
    slots = 16 * _SEGMENTS[1] * capacity_for(len(first.rows), probability)
    width = at_once or _width(count, 4 * _VECTORS * network.layout.size + 2 * first.rows.size + slots)
    there = on_accelerator() if drawn_there is None else drawn_there

    def flown() -> Iterator[tuple[Any, int]]:
        for chunk in _chunks(left, width):
            yield _chunk(network, recipe, steps, probability, chunk, width, there=there), len(chunk)

    waiting: tuple[Any, int] | None = None
    for following in flown():  # the next chunk is on its way before the last is read: the device never waits
        if waiting is not None:
            yield from np.asarray(waiting[0])[: waiting[1]]
        waiting = following
    if waiting is not None:
        yield from np.asarray(waiting[0])[: waiting[1]]


def begin(prepared: PreparedNeural, table: PrivateTable, seed: int, guarantee: Guarantee) -> Begun:
    """Measure the start of a fit; the account is charged for all of it, as by :meth:`PreparedNeural.run`."""
    rng, network = np.random.default_rng(seed), prepared.network
    purse = Purse(table.account, rng, plan=prepared.plan, guarantee=guarantee)
    if prepared.start is None:
        start, rows = random_start(network, rng), prepared.codes(table)
        purse.within(prepared.training.event(**prepared.neighbours.stated), purpose="training by DP-SGD")
        none, count = rows[:0], prepared.neighbours.rows or 1
        return Begun(start, rows, count, simulated=none, measured=none, seed=int(rng.integers(0, 2**63)))
    first = prepared.start.run(table, purse)
    purse.within(prepared.training.event(**prepared.neighbours.stated), purpose="training by DP-SGD")
    arrays, rows = parameters_of(network, first), prepared.codes(table)
    return Begun(
        # In numpy: other processes do this too, and must not take room on the accelerator.
        np.concatenate([arrays[layer][name].ravel() for layer, name, _ in network.shapes]).astype(np.float32),
        rows,
        expected_rows(first),
        simulated=simulated_rows(first) if prepared.pretraining else rows[:0],
        measured=measured_rows(first),
        seed=int(rng.integers(0, 2**63)),
    )


def finish(
    prepared: PreparedNeural, fits: Iterable[Begun], *, count: int, guarantee: Guarantee, at_once: int | None = None
) -> Iterator[NeuralModel]:
    """Train all fits that were begun, and give their models, in order.

    Args:
        prepared: What they were prepared with.
        fits: The fits; taken as they are needed.
        count: How many they are.
        guarantee: What a fit promises.
        at_once: How many are trained side by side; as many as the device has room for by default.
    """
    network, training = prepared.network, prepared.training
    first, left = _peeked(fits)
    if first is None:
        return
    width = at_once or _width(
        count, 4 * _VECTORS * network.layout.size + 2 * (first.rows.size + first.simulated.size + first.measured.size)
    )

    def copies() -> Iterator[Copy]:
        for chunk in _chunks(left, width):
            for fit, start in zip(chunk, _pretrained(prepared, chunk, width), strict=True):
                settled = prepared.training
                if prepared.start is not None:
                    settled = prepared.settle(clip_bound(network, start, fit.measured), fit.count)
                yield Copy(start, fit.rows, settled.knobs(fit.count), seed=fit.seed, count=fit.count)

    flats = train_many(
        network,
        training.recipe,
        copies(),
        count=count,
        steps=training.steps,
        probability=training.sampling_probability,
        at_once=width,
    )
    for flat in flats:
        yield prepared.trained(flat, guarantee)


# -- chunks


def _width(count: int, each: int) -> int:
    """Return how many trainings of ``each`` bytes go side by side."""
    if not on_accelerator():
        return 1
    room = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 2**33)
    return int(max(1, min(_FEW if 2 * count < _MANY else _MANY, room // 2 // each)))


def _peeked(source: Iterable[Any]) -> tuple[Any, Iterator[Any]]:
    """Return the first of some things, None if there is none, and all of them."""
    left = iter(source)
    first = next(left, None)
    return first, chain([first], left)


def _chunks(left: Iterator[Any], width: int) -> Iterator[list[Any]]:
    while chunk := list(islice(left, width)):
        yield chunk


def _filled(values: Sequence[Any], width: int) -> list[Any]:
    """Return a chunk's values, the last one repeated, so that every chunk runs the same program."""
    return [*values, *[values[-1]] * (width - len(values))]


# -- one chunk; every array's first axis runs over its trainings


def _chunk(
    network: Network,
    recipe: Recipe,
    steps: int,
    probability: float,
    chunk: Sequence[Copy],
    width: int,
    *,
    there: bool,
) -> Any:
    """Return the parameters of a chunk, of shape (width, size): an array that may still be on its way."""
    copies = _filled(chunk, width)
    most = max(len(copy.rows) for copy in copies)
    capacity = capacity_for(most, probability)
    there = there and probability < 1 and most * probability <= capacity  # a step is a slot, which must hold the most
    if not there:
        capacity = capacity_for(
            max(len(copy.rows) if copy.count is None else copy.count for copy in copies), probability
        )
    if width == 1 or on_accelerator():  # as a fit by itself; side by side on a processor XLA lacks such products
        recipe = replace(recipe, precision=precision_for(network, network.layout, recipe, copies[0].rows, capacity))
    knobs = Knobs(*(np.array(values, np.float32) for values in zip(*(copy.knobs for copy in copies), strict=True)))
    starts = np.stack([copy.start for copy in copies])
    rows = np.zeros((width, max(most, 1), copies[0].rows.shape[1]), np.result_type(*(copy.rows for copy in chunk)))
    if not there:
        for place, copy in enumerate(copies):
            rows[place, : len(copy.rows)] = copy.rows
        segments = _side_by_side(copies, steps, probability, capacity)
        return _slot_by_slot(network, replace(recipe, split=True), rows, knobs, starts, segments)
    begin = np.array([rows.shape[1] - len(copy.rows) for copy in copies], np.int32)
    for place, copy in enumerate(copies):  # the last row first: what overflows a slot is never that one
        rows[place, begin[place] :] = copy.rows[::-1]
    seeds = np.array([(copy.seed >> 32 & 0xFFFFFFFF, copy.seed & 0xFFFFFFFF) for copy in copies], np.uint32)
    plain = replace(recipe, split=False)
    state, data = _first_states(starts, split=False), jnp.asarray(rows)
    for number, length in enumerate(_lengths(steps)):
        segment = _Segment(network, plain, length, probability, capacity)
        state = _drawn_and_run(segment, data, knobs, state, begin, seeds, np.int32(number))
    return _results(knobs, state) if recipe.averaged else state.parameters


def _side_by_side(copies: Sequence[Copy], steps: int, probability: float, capacity: int) -> Iterator[Slots]:
    """Yield the segments of all trainings, each with its own samples; those that end earlier wait."""
    every = [
        slots_of(np.random.default_rng(copy.seed), Sampling(len(copy.rows), probability, steps), capacity)
        for copy in copies
    ]
    for segments in zip_longest(*every):
        known = next(segment for segment in segments if segment is not None)
        empty = Slots(*(np.zeros_like(array) for array in known))
        yield Slots(*map(np.stack, zip(*(empty if one is None else one for one in segments), strict=True)))


def _slot_by_slot(
    network: Network, recipe: Recipe, rows: Codes, knobs: Knobs, starts: Floats, segments: Iterable[Slots]
) -> Any:
    """Return the parameters after segments of samples; a training by itself runs as :func:`dpsgd.train` runs it."""
    if len(starts) > 1:
        states, data = _first_states(starts, split=True), jnp.asarray(rows)
        for slots in segments:
            states = _run_all(network, recipe, data, knobs, states, slots)
        return _results(knobs, states) if recipe.averaged else states.parameters
    numbers, state = Knobs(*(values[0] for values in knobs)), first_state(starts[0])
    for slots in segments:
        one = Slots(*(array[0] for array in slots))
        state = run(network, network.layout, recipe, None, numbers, state, one._replace(rows=rows[0][one.rows]))
    return np.asarray(_result(numbers, state) if recipe.averaged else state.parameters)[None]


_result = jax.jit(result)
_results = jax.jit(jax.vmap(result))


@partial(jax.jit, static_argnames="split")
def _first_states(starts: Any, *, split: bool) -> Any:
    return jax.vmap(partial(first_state, split=split))(starts)


@partial(jax.jit, static_argnames=("network", "recipe"), donate_argnames="state")
def _run_all(network: Network, recipe: Recipe, data: Any, knobs: Knobs, state: State, slots: Slots) -> Any:
    return jax.vmap(partial(run, network, network.layout, recipe))(data, knobs, state, slots)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Steps whose samples are drawn where jax runs: what is compiled in."""

    network: Network
    recipe: Recipe
    length: int
    probability: float
    capacity: int


@partial(jax.jit, static_argnames="segment", donate_argnames="state")
def _drawn_and_run(
    segment: _Segment, data: Any, knobs: Knobs, state: State, begin: Any, seeds: Any, number: Any
) -> Any:
    """Draw the samples of a segment where jax runs, and run it; a training's rows begin at its ``begin``."""
    network, capacity = segment.network, segment.capacity
    place = jnp.arange(capacity)

    def one(data: Any, knobs: Knobs, state: State, begin: Any, seed: Any) -> Any:
        key = jax.random.fold_in(jax.random.wrap_key_data(seed), number)
        slots = device_slots(key, Sampling(data.shape[0], segment.probability, segment.length), capacity)
        skipped = ((slots.rows < begin) & (place < slots.count[:, None])).sum(axis=1)
        kept = jnp.minimum(place + skipped[:, None], capacity - 1)
        own = slots._replace(rows=jnp.take_along_axis(slots.rows, kept, axis=1), count=slots.count - skipped)
        return run(network, network.layout, segment.recipe, data, knobs, state, own)

    return jax.vmap(one)(data, knobs, state, begin, seeds)


def _lengths(steps: int) -> list[int]:
    """Return the lengths of segments: all alike where that can be, as every length is a program of its own.

    >>> _lengths(5000), _lengths(1021)
    ([500, 500, 500, 500, 500, 500, 500, 500, 500, 500], [512, 509])
    """
    least, most = _SEGMENTS
    length = next((each for each in range(min(most, steps), least - 1, -1) if steps % each == 0), min(most, steps))
    return [length] * (steps // length) + [steps % length] * (steps % length > 0)


# -- the free steps before a generator's training


def _pretrained(prepared: PreparedNeural, chunk: Sequence[Begun], width: int) -> Floats:
    """Return the parameters of a chunk after training on simulated rows, as :func:`pretrain` does for one."""
    starts = np.stack([fit.start for fit in chunk])
    if not prepared.pretraining:
        return starts
    network = prepared.network
    rows = np.stack(_filled([fit.simulated for fit in chunk], width))
    numbers, segments = free_steps(network, rows.shape[1], prepared.pretraining)
    # The same draws for all of them: what differs is what the rows were simulated from.
    shared = (Slots(*(np.broadcast_to(array, (width, *array.shape)) for array in segment)) for segment in segments)
    knobs = Knobs(*(np.full(width, number, np.float32) for number in numbers))
    made = _slot_by_slot(network, Recipe(), rows, knobs, np.stack(_filled([*starts], width)), shared)
    return np.asarray(made)[: len(chunk)]
