r"""How a training begins and how long it takes, by public rules: its rows, its steps, its start.

**Where a training starts**: at a model that was fitted with a share of the budget, not at random.

1. ``moments`` (or the levels of single columns) is fitted under its share, as by itself.
2. Its laws give the network's shapes b and its direct layer: exactly for logit laws of columns with levels, by least
   squares for ordered columns, and by log-odds for monotone laws.
3. Where that is not exact, the network is trained on rows simulated from the fitted model. That is post-processing:
   no private row is read, so there is no noise and no clipping, and it may take as long as it likes.
4. The clip bound of the private training is read off the gradients of simulated rows, which is free as well: a step
   costs what its noise in units of the bound costs, whatever the bound.

**How many steps, how large a sample, how loud the start**: a public rule of rows, columns and ε (:func:`rule_for`).
Nothing in it was tuned on a private table. The numbers come from a simulated one (120 columns of two levels, 5,000
rows, ε = 1 and 3; not one of the benchmarks), where trainings were searched by the thousand:

* A start takes most of the budget well: its own error falls with the share, and steps make up for what is left. Between
  0.3 and 0.9 of the budget the outcome hardly differs; more for the start keeps shares of single columns better.
* From such a start 40 steps over all rows are as good as 160, and better than 10.
* A clip bound that few gradients exceed is better than a narrow one, which biases the shares of levels.
* Where noise rules the gradients, Adam goes in random directions, in steps as long as its learning rate: the rate has
  to fall with the noise, and the start deserves more of the budget.
* Networks with a latent have many more parameters, and want smaller steps. Those without one do not: on simulated
  tables of 14 to 222 columns and 1,000 to 20,000 rows, at ε = 1 and 3 and with 2 to 5 seeds each, fresh rows were
  likelier after training at a rate of 0.03 than of 0.01 or 0.003 in all of 18 settings, and covariances nearer than at
  0.01 in 15. Shares of levels were off by 0.05 points more, from -0.04 to 0.13.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.privacy import Neighbours, SampledGaussianEvent
from escudo.synthesis._laws import Conditional, LogitConditional, MaxConditional, NoisyOrConditional
from escudo.synthesis._model import CausalModel
from escudo.synthesis.neural._network import (
    Block,
    JointNetwork,
    Network,
)
from escudo.table import PrivateTable, Schema, held

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd import Knobs, Slots

Codes = NDArray[Any]
Floats = NDArray[np.float64]
Parameters = dict[str, dict[str, Floats]]

_READ = 65_536
LATENT_RATE = 0.004


def codes_of(schema: Schema, table: PrivateTable) -> NDArray[np.generic]:
    """Return the rows as cells, in the smallest type that holds every cell, in memory or on disk here. Private."""
    return held(table.batches(_READ), np.empty((0, len(schema.names)), type_of_codes(schema)))


def type_of_codes(schema: Schema) -> np.dtype[Any]:
    """Return the smallest type that holds every cell."""
    return np.min_scalar_type(max(schema.sizes.values()) - 1)


def random_start(network: Any, stream: np.random.Generator | None) -> NDArray[np.float32]:
    """Return parameters drawn without a look at any row: from a seeded stream, or from the operating system."""
    made = network.start(np.random.default_rng() if stream is None else stream)
    return np.concatenate([made[layer][name].ravel() for layer, name, _ in network.shapes]).astype(np.float32)


def step_event(neighbours: Neighbours, sampled: float, noise: float) -> SampledGaussianEvent:
    """Return what one step costs."""
    return SampledGaussianEvent(noise_multiplier=noise, sampling_probability=sampled, **neighbours.stated)


# ---- how long and how loudly


_UNKNOWN_ROWS = 10_000  # what is assumed where the number of rows is not public beforehand
_LARGEST_SAMPLE = 8192
_STEPS = 40
_QUIET = 0.06  # noise on a coordinate up to which rates need not fall
_USUAL = 15_000  # rows times ε, up to which so many steps are enough


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRule:
    """What a training is like before noise is calibrated.

    Attributes:
        start_share: Of the budget, in squared noise, for the model that the training starts from.
        steps: Noisy gradients.
        sampling_probability: The chance of each row in each.
        learning_rate: Adam's, at most.
        averaging: The memory of the parameters' average.
        pretraining: Steps on rows simulated from the start, which are free.
    """

    start_share: float
    steps: int
    sampling_probability: float
    learning_rate: float
    averaging: float
    pretraining: int


def rule_for(rows: int | None, columns: int, epsilon: float, *, latent: bool = False) -> TrainingRule:
    """Return the rule for a table with this many rows (None: not known beforehand) and columns.

    >>> rule = rule_for(rows=5000, columns=222, epsilon=1.0)
    >>> rule.steps, rule.sampling_probability, round(rule.start_share, 2)
    (40, 1.0, 0.77)
    """
    known = _UNKNOWN_ROWS if rows is None else rows
    # More data or budget per step allow for more steps, each of them smaller.
    longer = min(max(math.sqrt(known * epsilon / _USUAL), 1.0), 5.0)
    return TrainingRule(
        start_share=min(max(1 - known * epsilon / (100 * columns), 0.6), 0.9),
        steps=round(_STEPS * longer),
        sampling_probability=min(1.0, _LARGEST_SAMPLE / known),
        learning_rate=LATENT_RATE if latent else 0.03,
        averaging=0.8,
        pretraining=min(200 + 20 * columns, 5000),
    )


def learning_rate_for(rate: float, noise: float) -> float:
    """Return Adam's learning rate where each coordinate of a mean gradient carries noise of this standard deviation.

    >>> learning_rate_for(0.03, 0.01), round(learning_rate_for(0.03, 0.6), 4)
    (0.03, 0.003)
    """
    return rate * min(1.0, _QUIET / noise)


# ---- where a training starts


SEED = 20_190_917  # any fixed number: the same release always starts at the same place
_SIMULATED = 20_000
_BATCH = 256
_RATE = 2e-3
MEASURED = 2_000  # rows whose gradients are measured
_CLIP_QUANTILE = 0.98
_SMALL = 1e-4  # probabilities are kept this far from 0, so that logits stay finite


def simulated_rows(model: CausalModel) -> Codes:
    """Return rows simulated from a start, to train on."""
    return smallest(model.codes(2 * _SIMULATED, seed=SEED))


def measured_rows(model: CausalModel) -> Codes:
    """Return rows simulated from a start, to choose a clip bound by."""
    return smallest(model.codes(MEASURED, seed=SEED))


def smallest(codes: Codes) -> Codes:
    """Return cells in the smallest type that holds them: rows are read at every step."""
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))


def expected_rows(model: CausalModel) -> int:
    """Return the number of rows that a start was told or has paid for: public or noisy, and at least 1."""
    return max(int(model.details["rows"]), 1)


def parameters_of(network: Network, model: CausalModel) -> Parameters:
    """Return parameters that follow the model's laws as far as shapes and the direct layer can."""
    parameters = network.start(np.random.default_rng(SEED))
    names = model.schema.names
    simulated = model.codes(_SIMULATED, seed=SEED)
    for block in network.columns.blocks:
        for member, column in enumerate(block.columns):
            law = model.conditionals[names[column]]
            own = next(unit.parents for unit in network.units if column in unit.columns) if network.has_direct else ()
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


def pretrain(network: Network, parameters: Parameters, model: CausalModel, steps: int) -> NDArray[np.float32]:
    """Return the parameters as one vector, after training on rows simulated from the model; free.

    Args:
        network: The network.
        parameters: Where to start.
        model: What rows are simulated from.
        steps: How many steps.
    """
    from escudo.mechanisms.dpsgd import Recipe, first_state, result, run

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
    from escudo.mechanisms.dpsgd import Knobs, Sampling, slots_of

    rate, rng = _RATE if network.latent else 5 * _RATE, np.random.default_rng(SEED)
    samples = slots_of(rng, Sampling(rows, _BATCH / rows, steps), _BATCH + _BATCH // 4)
    return Knobs(*map(np.float32, (np.inf, 0.0, _BATCH, rate, steps, 0.95, 0.98))), samples


def clip_bound(network: Network | JointNetwork, flat: NDArray[np.float32], rows: Codes) -> float:
    """Return the length that all but a few gradients of simulated rows keep to; free, as no private row is read."""
    import jax

    from escudo.mechanisms.dpsgd import row_norms

    norms = row_norms(network, network.layout, flat, rows, jax.random.key(SEED))
    return max(float(np.quantile(np.asarray(norms), _CLIP_QUANTILE)), _SMALL)
