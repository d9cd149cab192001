"""Where a private training starts: at a model that was fitted with a share of the budget, not at random.

1. ``moments`` (or the levels of single columns) is fitted under its share, as by itself.
2. Its laws give the network's shapes b and its direct layer: exactly for logit laws of columns with levels, by least
   squares for ordered columns, and by log-odds for monotone laws.
3. Where that is not exact, the network is trained on rows simulated from the fitted model. That is post-processing:
   no private row is read, so there is no noise and no clipping, and it may take as long as it likes.
4. The clip bound of the private training is read off the gradients of simulated rows, which is free as well: a step
   costs what its noise in units of the bound costs, whatever the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo.synthesis._conditionals import Conditional, LogitConditional, MaxConditional, NoisyOrConditional
from escudo.synthesis._model import CausalModel
from escudo.synthesis.neural._columns import Block
from escudo.synthesis.neural._network import Network

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._core import Knobs, Slots

__all__ = ["clip_bound", "expected_rows", "free_steps", "measured_rows", "placed", "pretrained", "simulated_rows"]

Codes = NDArray[Any]
Floats = NDArray[np.float64]
Parameters = dict[str, dict[str, Floats]]

_SEED = 20_190_917  # any fixed number: the same release always starts at the same place
_SIMULATED = 20_000
_BATCH = 256
_RATE = 2e-3
_MEASURED = 2_000  # rows whose gradients are measured
_CLIP_QUANTILE = 0.98
_SMALL = 1e-4  # probabilities are kept this far from 0, so that logits stay finite


def simulated_rows(model: CausalModel) -> Codes:
    """Return rows simulated from a start, to train on."""
    return _smallest(model.codes(2 * _SIMULATED, seed=_SEED))


def measured_rows(model: CausalModel) -> Codes:
    """Return rows simulated from a start, to choose a clip bound by."""
    return _smallest(model.codes(_MEASURED, seed=_SEED))


def expected_rows(model: CausalModel) -> int:
    """Return the number of rows that a start was told or has paid for: public or noisy, and at least 1."""
    return max(int(model.details["rows"]), 1)


def _smallest(codes: Codes) -> Codes:
    """Return cells in the smallest type that holds them: rows are read at every step."""
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))


def placed(network: Network, model: CausalModel) -> Parameters:
    """Return parameters that follow the model's laws as far as shapes and the direct layer can."""
    parameters = network.start(np.random.default_rng(_SEED))
    names = model.schema.names
    simulated = model.codes(_SIMULATED, seed=_SEED)
    for block in network.columns.blocks:
        for member, column in enumerate(block.columns):
            law = model.conditionals[names[column]]
            own = _direct_parents(network, int(column)) if network.has_direct else set()
            followed = [place for place in map(names.index, law.parents) if place in own]
            if len(followed) < len(law.parents):  # the network cannot follow it: start at the column's own law
                counts = np.bincount(simulated[:, column], minlength=block.size) + 0.5
                _put_base(parameters, block, member, np.log(counts))
                continue
            base, effects = _as_logits(law)
            for place, effect in zip(followed, effects, strict=True):
                base = base + _put_direct(network, parameters, place, (block, member), effect)
            _put_base(parameters, block, member, base)
    return parameters


def pretrained(network: Network, parameters: Parameters, model: CausalModel, steps: int) -> NDArray[np.float32]:
    """Return the parameters as one vector, after training on rows simulated from the model; free.

    Args:
        network: The network.
        parameters: Where to start.
        model: What rows are simulated from.
        steps: How many steps.
    """
    from escudo.mechanisms.dpsgd._core import Recipe, first_state, result, run

    flat = np.asarray(network.layout.flatten(parameters), np.float32)
    if not steps:
        return flat
    rows, recipe, state = simulated_rows(model), Recipe(), first_state(flat)
    knobs, segments = free_steps(network, len(rows), steps)
    with tracking("Pre-training on simulated rows", total=steps) as advance:
        for segment in segments:
            batches = segment._replace(rows=rows[segment.rows])
            state = run(network, network.layout, recipe, None, knobs, state, batches)
            advance(int(segment.last.sum()))
    return np.asarray(result(knobs, state))


def free_steps(network: Network, rows: int, steps: int) -> tuple[Knobs, Iterator[Slots]]:
    """Return the numbers and the samples of a training on this many simulated rows, without clipping or noise."""
    from escudo.mechanisms.dpsgd._core import Knobs
    from escudo.mechanisms.dpsgd._sampling import slots_of

    rate, rng = _RATE if network.latent else 5 * _RATE, np.random.default_rng(_SEED)
    samples = slots_of(rng, rows=rows, probability=_BATCH / rows, steps=steps, capacity=_BATCH + _BATCH // 4)
    return Knobs(*map(np.float32, (np.inf, 0.0, _BATCH, rate, steps, 0.95, 0.98))), samples


def clip_bound(network: Network, flat: NDArray[np.float32], rows: Codes) -> float:
    """Return the length that all but a few gradients of simulated rows keep to; free, as no private row is read."""
    import jax

    from escudo.mechanisms.dpsgd._core import row_norms

    norms = row_norms(network, network.layout, flat, rows, jax.random.key(_SEED))
    return max(float(np.quantile(np.asarray(norms), _CLIP_QUANTILE)), _SMALL)


def _direct_parents(network: Network, column: int) -> set[int]:
    return next(set(unit.parents) for unit in network.units if column in unit.columns)


def _as_logits(law: Conditional) -> tuple[Floats, list[Floats]]:
    """Return a law as logits: one number per cell, and one per cell of each parent and cell."""
    if isinstance(law, LogitConditional):
        return law.intercept, list(law.weights)
    if isinstance(law, MaxConditional | NoisyOrConditional):
        leak = _log_odds(np.array([law.leak]))[0]
        on = [_log_odds(np.maximum(strength, law.leak)) - leak for strength in law.strengths]
        return np.array([0.0, leak]), [np.stack([np.zeros_like(each), each], axis=1) for each in on]
    table = np.log(np.maximum(law.probabilities(np.zeros((1, len(law.parents)), np.int64)), _SMALL))
    return table[0], [np.zeros((size, law.size)) for size in law.parent_sizes]


def _log_odds(chance: Floats) -> Floats:
    held = np.clip(chance, _SMALL, 1 - _SMALL)
    odds: Floats = np.log(held) - np.log1p(-held)
    return odds


def _put_base(parameters: Parameters, block: Block, member: int, logits: Floats) -> None:
    cells = block.size - 1
    start = block.bias_start + member * cells
    parameters["base"]["b"][start : start + cells] = logits[1:] - logits[0]


def _put_direct(
    network: Network, parameters: Parameters, parent: int, child: tuple[Block, int], effect: Floats
) -> Floats:
    """Set the direct weights of one arrow to the nearest there are, and return what is left for the child's shape."""
    block, member = child
    source = next(one for one in network.columns.blocks if parent in one.columns)
    above = source.features[int(np.flatnonzero(source.columns == parent)[0])].astype(np.float64)
    below = block.features[member].astype(np.float64)
    design = np.column_stack([np.ones(len(above)), above])
    by_feature = np.linalg.lstsq(design, effect, rcond=None)[0]
    outputs = np.linalg.lstsq(np.column_stack([np.ones(len(below)), below]), by_feature[1:].T, rcond=None)[0]
    rows = source.start + int(np.flatnonzero(source.columns == parent)[0]) * source.width
    start = block.start + member * block.width
    parameters["direct"]["w"][rows : rows + source.width, start : start + block.width] = outputs[1:].T
    left: Floats = by_feature[0]
    return left
