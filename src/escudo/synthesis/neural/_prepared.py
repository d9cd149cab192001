"""What a neural generator will measure, and the fit: the start, the free steps, the training; also after a stop."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.mechanisms import Seed, publishable
from escudo.mechanisms.dpsgd import Training, train
from escudo.privacy import Account, Guarantee, Plan, Relation, SampledGaussianEvent
from escudo.synthesis._model import CausalModel
from escudo.synthesis._moments import PreparedMoments
from escudo.synthesis.neural._checkpoint import Checkpoint, digest
from escudo.synthesis.neural._model import NeuralModel
from escudo.synthesis.neural._network import Network
from escudo.synthesis.neural._rules import learning_rate_for
from escudo.synthesis.neural._start import clip_bound, expected_rows, measured_rows, placed, pretrained
from escudo.table import PrivateTable, Schema

__all__ = ["PreparedNeural", "step_event"]

_BATCH = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNeural:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        generator: The generator's name.
        schema: The columns.
        graph: The graph over columns that the network follows.
        network: The network.
        start: The model that the training starts from.
        training: The training; where its clip bound and learning rate are left to rules, they follow from the start.
        given: Which of ``clip_norm`` and ``learning_rate`` were asked for.
        pretraining: Steps on simulated rows, which are free.
        relation: The neighbouring relation.
        delta: The δ at which the plan is stated.
        checkpoint: What to go on from if the fit is stopped; None for nothing.
    """

    generator: str
    schema: Schema
    graph: CausalGraph
    network: Network
    start: PreparedMoments
    training: Training
    given: frozenset[str]
    pretraining: int
    relation: Relation
    delta: float
    checkpoint: Checkpoint | None = None

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        rounds, size = self.training, sum(math.prod(shape) for _, _, shape in self.network.shapes)
        sampled = (
            f"{rounds.sampling_probability:.3g} of the rows each" if rounds.sampling_probability < 1 else "all rows"
        )
        step = step_event(self.schema, self.relation, rounds.sampling_probability, rounds.noise_multiplier)
        children = [child for child in self.start.plan.children if child.name != "sampling"]
        if self.pretraining:
            children.append(Plan("training on rows simulated from that"))
        children += [
            Plan("training", step, count=rounds.steps, buys=f"noisy gradients of {size:,} parameters, {sampled}"),
            Plan("sampling"),
        ]
        return Plan(self.generator, children=children, delta=self.delta)

    def fit(self, table: PrivateTable, *, account: Account, seed: Seed, guarantee: Guarantee) -> NeuralModel:
        """Fit the start, then train; charges ``account`` for what the plan shows, before noise is drawn.

        How many rows there are decides which are drawn in a step, and nothing else: the start, the clip bound, the
        learning rate and the details follow from the model that the training starts from, which is released.

        With a checkpoint that a stopped fit left, the start is read from it and the training goes on from there. A
        seeded fit then gives what it would have given; one for release draws the steps that are left anew. ``account``
        is then the purse of the checkpoint's ``charging``, and the account knows of the training's end before the model
        leaves.
        """
        first = self._started(table, account, seed, guarantee)
        parameters = pretrained(self.network, placed(self.network, first), first, self.pretraining)
        rows = expected_rows(first)
        training = self._settled(clip_bound(self.network, parameters, measured_rows(first)), rows)
        value = self._trained(parameters, self.codes(table), training, rows, seed)
        arrays = self.network.layout.unflatten(value.astype(np.float64))
        model = NeuralModel(
            schema=self.schema,
            graph=self.graph,
            network=self.network,
            parameters=arrays,
            guarantee=guarantee,
            generator=self.generator,
            plan=self.plan,
            details={
                "rows": rows,
                "parameters": self.network.layout.size,
                "start": self.start.generator,
                "steps": training.steps,
                "sampling_probability": training.sampling_probability,
                "noise_multiplier": training.noise_multiplier,
                "l2_clip_norm": training.clip_norm,
                "learning_rate": training.learning_rate,
                "stated_arrows": [list(arrow) for arrow in self.graph.edges],
            },
        )
        if self.checkpoint is not None:
            self.checkpoint.file.finish()
        return model

    def _started(self, table: PrivateTable, account: Account, seed: Seed, guarantee: Guarantee) -> CausalModel:
        """Return the model that the training starts from: measured now, or by the fit that was stopped."""
        kept = self.checkpoint
        event = self.training.event(self.relation, self.schema.unit, self.schema.max_rows_per_person)
        if kept is not None and kept.begun:
            event, first = kept.left, kept.read_start()
        else:
            first = self.start.fit(table, account=account, seed=seed, guarantee=guarantee)
            if kept is not None:
                kept.keep_start(first, seed if isinstance(seed, np.random.Generator) else None)
        account.spend(event, purpose="training by DP-SGD", for_release=publishable(seed))
        return first

    def _trained(
        self, parameters: NDArray[np.float32], codes: NDArray[np.generic], training: Training, rows: int, seed: Seed
    ) -> NDArray[np.float32]:
        network, file = self.network, None if self.checkpoint is None else self.checkpoint.file
        terms: dict[str, Any] = {
            "expected_rows": rows,
            "delta": self.delta,
            "relation": self.relation,
            "unit": self.schema.unit,
            "max_rows_per_person": self.schema.max_rows_per_person,
            "seed": seed,
        }
        # Without an account: it was charged before.
        return train(network, network.layout, parameters, codes, training, checkpoint=file, **terms).value

    def codes(self, table: PrivateTable) -> NDArray[np.generic]:
        """Return the rows as cells, in the smallest type that holds every cell of the schema. Private."""
        kind = np.min_scalar_type(max(self.schema[name].size for name in self.schema.names) - 1)
        none = np.empty((0, len(self.schema.names)), kind)  # a table without rows may have no batch either
        return np.concatenate([none, *table.batches(_BATCH)], dtype=kind, casting="unsafe")

    @property
    def facts(self) -> dict[str, str]:
        """Fingerprints of the public things that a stopped fit and the one that goes on must share."""
        settings = [self.generator, asdict(self.training), self.pretraining, sorted(self.given), self.relation]
        return {
            "schema": digest(self.schema.to_dict()),
            "graph": digest([list(self.graph.nodes), [list(edge) for edge in self.graph.edges], repr(self.network)]),
            "settings": digest([*settings, self.delta, self.plan.to_json()]),
        }

    def _settled(self, bound: float, rows: int) -> Training:
        """Return the training with what depends on the start, which is released: the clip bound and the rate."""
        training = self.training
        clip_norm = training.clip_norm if "clip_norm" in self.given else bound
        noise = training.noise_multiplier * clip_norm / max(rows * training.sampling_probability, 1.0)
        rate = training.learning_rate
        if "learning_rate" not in self.given:
            rate = learning_rate_for(rate, noise)
        return replace(training, clip_norm=clip_norm, learning_rate=rate)


def step_event(schema: Schema, relation: Relation, sampled: float, noise: float) -> SampledGaussianEvent:
    """Return what one step costs."""
    return SampledGaussianEvent(
        noise_multiplier=noise,
        sampling_probability=sampled,
        relation=relation,
        unit=schema.unit,
        max_rows_per_person=schema.max_rows_per_person,
    )
