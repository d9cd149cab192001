r"""Generators ``vae`` and ``autoregressive``: networks that follow the graph, trained by DP-SGD; also after a stop.

``vae`` is the causal variational autoencoder p(z) ∏ p(xᵢ | paᵢ, z); without a graph it is the plain one, and with a
condensed graph it is the model of the paper. ``autoregressive`` is ∏ p(xᵢ | paᵢ), without a latent.

**Budget.** A share goes to the model that the training starts from, the rest to the steps of DP-SGD. How large the
share is, and how many steps there are, is a public rule of rows, columns and ε; nothing else is chosen by looking at
data: no learning rate, no early stop, no normalisation.

**Guarantee.** The events of the start, and T :class:`~escudo.privacy.SampledGaussianEvent` for T steps. The noise of
the steps is drawn in floating point, so the guarantee is marked as not float-safe.

**As printed.** With ``architecture`` the network and the training are the paper's own: started at random, samples of
100 or 200 rows, Adam at 0.001, the last parameters; clipped at 1, unless said otherwise (the paper searched clip and
noise on the private rows, which its ε does not count). These can also be trained without clipping and noise
(:meth:`Vae.unprotected`), for comparisons: then nothing is promised, and everything that comes of it says so.

**Reference.** *Causally Constrained Data Synthesis for Private Data Release*, sections 3 and 4, Appendix C.

**Graph and network together.** With ``discover="joint"`` there is no graph to follow, or only a part of one: the steps
are split in two. In the first half every open pair of columns has a gate, an edge's probability, which is learnt with
the weights behind it (:class:`~escudo.synthesis.neural._network.JointNetwork`); then pairs are kept that are joined
more strongly than 99 % of pairs in the same training, noise and all, on rows simulated without a single edge, which is
free; the second half goes on along the graph that is left. All steps are steps of one DP-SGD: what is decided in
between is a function of what they released. Directions are those of an order that was learnt to predict with, which is
no finding: the model's edges are lines, and ``do`` along them is refused, unless ``graph`` states them. In the spirit
of VICause, which the paper uses without saying how it was trained.

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

**Checkpoint**: a folder that a stopped release goes on from, without paying twice; and no copy of it without paying. It
holds what was released and paid for before the release was stopped, and nothing else:

* ``start/``: the model that the training starts from, as any model is saved;
* ``training.safetensors``: the training's state between two steps, empty before the first (see
  ``escudo.mechanisms.dpsgd``). In its header: digests of schema, graph, settings, plan and start, the number of the
  spend that pays, and for a seeded run, which is not for release anyway, where its generator stood.

The account knows the digest of that file, and so of all that is in the folder: nothing in it can be replaced by an
older copy or by anything else. Its newest state goes on once for nothing; any other state that was ever marked goes on
if what is left to do is paid for again. The folder is its owner's alone (0700), is locked while a release uses it,
which is before anything is charged, and is gone when the release is done.

*Whose data.* The rows are not compared with those of the stopped run, and no digest of them is kept, keyed or not:
whoever holds a digest and its key, and knows everybody but one, could try that one's values until the digest fits. Nor
is it needed for the guarantee: had the table changed in between, every step would still be a release of the table it
saw, and a person's steps in both together no more than were paid for. What ties a checkpoint to a table is the account:
a checkpoint that the table's account did not pay for is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._files import sync
from escudo._validate import one_of, positive, probability, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.mechanisms.dpsgd import Kept, Training, TrainingFile, found, go_on, held, keeping, train
from escudo.privacy import (
    Account,
    Budget,
    Event,
    Guarantee,
    Neighbours,
    Plan,
    RepeatedEvent,
    SampledGaussianEvent,
    calibrate,
    charging,
    gdp_to_epsilon,
)
from escudo.synthesis._laws import Conditional, LogitConditional, MaxConditional, NoisyOrConditional
from escudo.synthesis._model import CausalModel, anchor_of
from escudo.synthesis._moment_family import Form
from escudo.synthesis._moments import Independent, Moments, PreparedMoments
from escudo.synthesis._structure import graph_of, structure_of
from escudo.synthesis.neural._model import NeuralModel
from escudo.synthesis.neural._network import (
    ARCHITECTURES,
    Architecture,
    Block,
    JointNetwork,
    Network,
    Unit,
    columns_of,
    printed,
    units_of,
)
from escudo.table import PrivateTable, Schema

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd import Knobs, Slots

Codes = NDArray[Any]
Floats = NDArray[np.float64]
Parameters = dict[str, dict[str, Floats]]

_READ = 65_536
_PRINTED_RATE = 1e-3  # Adam's, in the paper
_JOINT_START = 0.1  # of the budget, in squared noise, for single columns where the graph is learnt too
_JOINT_LONGER = 5  # times the usual steps: weights have to settle before it shows which are needed
_JOINT_QUANTILE = 0.99  # of pairs without an edge, that one which is kept has to exceed
_LATENT_RATE = 0.004
_MOST_GATED = 8192  # columns times features, of which a row has one number each


# ---- the generators

Start = Literal["moments", "levels"]
_STARTS: tuple[Start, ...] = ("moments", "levels")


@dataclass(kw_only=True, eq=False)
class _Neural:
    """What both generators take and do; the options are those of :class:`Vae`."""

    name: ClassVar[str]

    latent: int = 10
    hidden: tuple[int, ...] = ()
    direct: bool = True
    encoder: tuple[int, ...] = (128, 64)
    decoder: tuple[int, ...] = (64, 128)
    start: Start = "moments"
    start_share: float | None = None
    form: Form = "logit"
    pretraining: int | None = None
    steps: int | None = None
    batch: int | None = None
    clip_norm: float | None = None
    learning_rate: float | None = None
    checkpoint: str | PathLike[str] | None = None
    again: bool = False
    discover: Literal["joint"] | None = None

    def __post_init__(self) -> None:
        """Bring the options into their form, or say which one cannot be."""
        self.hidden, self.encoder, self.decoder = (
            tuple(whole(name, width, minimum=1) for width in getattr(self, name))
            for name in ("hidden", "encoder", "decoder")
        )
        self.direct = bool(self.direct)
        self.start = one_of("start", self.start, _STARTS)
        if self.start_share is not None:
            self.start_share = probability("start_share", self.start_share, allow_zero=False)
        if self.pretraining is not None:
            self.pretraining = whole("pretraining", self.pretraining)
        if self.steps is not None:
            self.steps = whole("steps", self.steps, minimum=1)
        if self.batch is not None:
            self.batch = whole("batch", self.batch, minimum=1)
        if self.clip_norm is not None:
            self.clip_norm = positive("clip_norm", self.clip_norm)
        if self.learning_rate is not None:
            self.learning_rate = positive("learning_rate", self.learning_rate)
        if self.checkpoint is not None:
            self.checkpoint = Path(self.checkpoint)
        if not isinstance(self.again, bool):
            raise InputError(f"again must be True or False; got {type(self.again).__name__}.")
        if self.again and self.checkpoint is None:
            raise InputError("again pays once more for what a checkpoint leaves to do; give checkpoint too.")
        if self.discover is not None:
            one_of("discover", self.discover, ("joint",))
            for name in ("checkpoint", "hidden", "start_share", "pretraining", "clip_norm"):
                if getattr(self, name) not in (None, ()):
                    raise InputError(f"discover='joint' learns graph and network together, and takes no {name}.")

    def unprotected(self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours) -> PreparedUnprotected:
        """Choose what is trained where nothing is promised; for one of the paper's architectures only."""
        raise InputError(
            f"generator {self.name!r} is not fitted without privacy like this; only 'vae' with one of the paper's "
            "architectures is, such as architecture='columns'. Give an epsilon."
        )

    def _joint(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedJoint:
        """Choose how graph and network are learnt together, from public facts alone."""
        columns, rows = columns_of(schema), neighbours.rows
        if len(schema.names) * columns.width > _MOST_GATED:
            raise InputError(
                f"discover='joint' has a gate for every pair of columns, which are too many here: {len(schema.names)} "
                "columns. Run 'escudo discover' first and pass its graph."
            )
        if self.batch is not None and rows is None:
            raise InputError("batch is a number of rows out of public_rows; give that too.")
        pairs, known = open_pairs(schema, graph)
        rule = rule_for(rows, len(schema.names), budget.epsilon, latent=False)
        start = Independent().prepare(
            schema, None, neighbours, Budget(_epsilon_of_share(_JOINT_START, budget), budget.delta)
        )
        taken = start.plan.event
        assert taken is not None
        steps = max(_JOINT_LONGER * rule.steps if self.steps is None else self.steps, 2)
        sampled = rule.sampling_probability if self.batch is None or rows is None else min(1.0, self.batch / rows)

        def events(noise: float) -> list[Event]:
            return [taken, RepeatedEvent(event=step_event(neighbours, sampled, noise), count=steps)]

        sizes = {"latent": self.latent, "encoder": self.encoder, "decoder": self.decoder}
        return PreparedJoint(
            generator=self.name,
            schema=schema,
            knowledge=graph,
            network=JointNetwork(columns=columns, pairs=pairs, known=known),
            latent=sizes if self.latent else {},
            start=start,
            training=Training(
                steps=steps // 2,
                sampling_probability=sampled,
                noise_multiplier=calibrate(events, budget),
                clip_norm=1.0,
                learning_rate=rule.learning_rate if self.learning_rate is None else self.learning_rate,
                averaging=rule.averaging,
            ),
            later=steps - steps // 2,
            given=frozenset({"learning_rate"} if self.learning_rate is not None else ()),
            neighbours=neighbours,
            delta=budget.delta,
        )

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedNeural | PreparedJoint:
        """Choose the network, the start and the training from public facts alone.

        Raises:
            InputError: If ``batch`` is given where the number of rows is not public, or ``checkpoint`` is of another
                release.
        """
        if self.discover is not None:
            return self._joint(schema, graph, neighbours, budget)
        rows = neighbours.rows
        if self.batch is not None and rows is None:
            raise InputError("batch is a number of rows out of public_rows; give that too.")
        units, followed = units_of(schema, graph, latent=self.latent > 0)
        network = Network(
            columns=columns_of(schema),
            units=units,
            direct=self.direct,
            hidden=self.hidden,
            latent=self.latent,
            encoder=self.encoder if self.latent else (),
            decoder=self.decoder if self.latent else (),
        )
        rule = rule_for(rows, len(schema.names), budget.epsilon, latent=self.latent > 0)
        share = rule.start_share if self.start_share is None else self.start_share
        first = Moments(form=self.form) if self.start == "moments" else Independent()
        start = first.prepare(schema, graph, neighbours, Budget(_epsilon_of_share(share, budget), budget.delta))
        steps = rule.steps if self.steps is None else self.steps
        sampled = rule.sampling_probability
        if self.batch is not None and rows is not None:
            sampled = min(1.0, self.batch / rows)
        taken = start.plan.event
        assert taken is not None

        def events(noise: float) -> list[Event]:
            return [taken, RepeatedEvent(event=step_event(neighbours, sampled, noise), count=steps)]

        exact = network.is_logit and all(form == "logit" for form in start.design.forms.values())
        rule = replace(rule, pretraining=0) if exact else rule
        prepared = PreparedNeural(
            generator=self.name,
            schema=schema,
            graph=followed,
            network=network,
            start=start,
            training=Training(
                steps=steps,
                sampling_probability=sampled,
                noise_multiplier=calibrate(events, budget),
                clip_norm=1.0 if self.clip_norm is None else self.clip_norm,
                learning_rate=rule.learning_rate if self.learning_rate is None else self.learning_rate,
                decline=0.8,  # the last steps are small, so that their noise is
                averaging=rule.averaging,
            ),
            given=frozenset(name for name in ("clip_norm", "learning_rate") if getattr(self, name) is not None),
            pretraining=rule.pretraining if self.pretraining is None else self.pretraining,
            neighbours=neighbours,
            delta=budget.delta,
        )
        if self.checkpoint is None:
            return prepared
        kept = Checkpoint(
            folder=Path(self.checkpoint),
            facts=prepared.facts,
            start=taken,
            step=step_event(neighbours, sampled, prepared.training.noise_multiplier),
            steps=prepared.training.steps,
            again=self.again,
        )
        kept.require_same()
        return replace(prepared, checkpoint=kept)


@dataclass(kw_only=True, eq=False)
class Vae(_Neural):
    """A variational autoencoder that follows the graph: p(z) ∏ p(xᵢ | paᵢ, z), or the plain one without a graph.

    Args:
        latent: The length of z.
        hidden: Widths of the hidden layers from a unit's parents; none for a direct layer only.
        direct: Whether parents also act by themselves, through one matrix.
        encoder: Widths of the hidden layers of q(z | x).
        decoder: Widths of the hidden layers from z on.
        start: What the training starts from: ``"moments"`` (arrows and levels) or ``"levels"``.
        start_share: Of the budget, in squared noise, for the start; by a public rule if None.
        form: How parents act together in the start, as for ``moments``.
        pretraining: Steps on rows simulated from the start, free; by a public rule if None.
        steps: Steps of DP-SGD; by a public rule if None.
        batch: Expected size of a sample; by a public rule if None.
        clip_norm: The largest l2 norm of a row's gradient; from simulated rows if None.
        learning_rate: Adam's; by a public rule if None.
        checkpoint: A folder to go on from if the fit is stopped, without paying twice; gone when it is done. The
            account that pays knows what is in it, so that no copy of it is worth anything: that of a table with a
            ledger, or one in memory while the process lasts.
        again: Whether to pay once more for the steps that are left where a checkpoint cannot go on for nothing: it is
            an older copy, or was resumed and then stopped before its next state was kept, or its fit has ended.
        architecture: ``"graph"`` for escudo's own; ``"plain"``, ``"columns"``, ``"pain"`` or ``"eedi"`` for one that
            the paper printed (see ``neural/_network.printed``), started at random and trained as there.
        epochs: For a printed one: how often the rows are gone through; as in the paper if None.
        discover: ``"joint"`` to learn the graph together with the network, under the same budget; ``graph`` is then
            what is known of it.
    """

    name: ClassVar[str] = "vae"

    architecture: Architecture = "graph"
    epochs: int | None = None

    def __post_init__(self) -> None:
        self.latent = whole("latent", self.latent)
        if self.latent == 0:
            raise InputError("latent must be at least 1; without a latent use generator='autoregressive'.")
        _Neural.__post_init__(self)
        self.architecture = one_of("architecture", self.architecture, ("graph", *ARCHITECTURES))
        if self.epochs is not None:
            self.epochs = whole("epochs", self.epochs, minimum=1)
        if self.architecture == "graph":
            if self.epochs is not None:
                raise InputError("epochs goes with one of the paper's architectures; give steps instead.")
            return
        if self.epochs is not None and self.steps is not None:
            raise InputError("epochs and steps say the same twice; give one of them.")
        usual = {part.name: part.default for part in fields(self)}
        started = ("direct", "start", "start_share", "form", "pretraining", "checkpoint", "again", "discover")
        if told := [name for name in started if getattr(self, name) != usual[name]]:
            raise InputError(
                f"architecture={self.architecture!r} is trained as printed, from a random start; it takes no {told[0]}."
            )

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedNeural | PreparedJoint:
        """Choose the network and the training from public facts alone.

        Raises:
            InputError: If the number of rows is needed and not public.
        """
        if self.architecture == "graph":
            return _Neural.prepare(self, schema, graph, neighbours, budget)
        rows = neighbours.rows
        if rows is None:
            raise InputError(
                f"architecture={self.architecture!r} is trained on samples of a number of rows, and measures nothing "
                "beforehand: say how many rows there are, where the table is made (public_rows), if that is public."
            )
        network, followed, claimed = self._printed(schema, graph)
        steps, sampled = self._length(rows)

        def events(noise: float) -> Event:
            return RepeatedEvent(event=step_event(neighbours, sampled, noise), count=steps)

        return PreparedNeural(
            generator=self.name,
            schema=schema,
            graph=followed,
            network=network,
            start=None,
            claimed=claimed,
            architecture=self.architecture,
            training=Training(
                steps=steps,
                sampling_probability=sampled,
                noise_multiplier=calibrate(events, budget),
                clip_norm=1.0 if self.clip_norm is None else self.clip_norm,
                learning_rate=_PRINTED_RATE if self.learning_rate is None else self.learning_rate,
                averaging=0.0,
            ),
            given=frozenset({"clip_norm", "learning_rate"}),
            pretraining=0,
            neighbours=neighbours,
            delta=budget.delta,
        )

    def unprotected(self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours) -> PreparedUnprotected:
        """Choose what is trained without clipping and noise: nothing is promised.

        Raises:
            InputError: If the architecture is escudo's own, which is never trained like that.
        """
        if self.architecture == "graph":
            return _Neural.unprotected(self, schema, graph, neighbours)
        if self.clip_norm is not None:
            raise InputError("clip_norm bounds what one row adds, for noise to hide it; without privacy there is none.")
        network, followed, claimed = self._printed(schema, graph)
        return PreparedUnprotected(
            generator=self,
            schema=schema,
            graph=followed,
            claimed=claimed,
            network=network,
            neighbours=neighbours,
        )

    def _printed(self, schema: Schema, graph: CausalGraph | None) -> tuple[Network, CausalGraph, CausalGraph]:
        sizes = {name: getattr(self, name) for name in ("hidden", "latent", "encoder", "decoder")}
        return printed(schema, graph, self.architecture, sizes)

    def _length(self, rows: int) -> tuple[int, float]:
        """Return how many steps there are, and the chance of each row in each."""
        _, batch, epochs = ARCHITECTURES[self.architecture]
        batch = min(batch if self.batch is None else self.batch, max(rows, 1))
        steps = (epochs if self.epochs is None else self.epochs) * rows // batch if self.steps is None else self.steps
        return max(steps, 1), batch / max(rows, 1)


@dataclass(kw_only=True, eq=False)
class Autoregressive(_Neural):
    """One network for each column given its parents, ∏ p(xᵢ | paᵢ), all of them in masked layers, without a latent.

    Args:
        hidden: Widths of the hidden layers from a column's parents; none for a direct layer only, which is best where
            budgets are small.
        start: This and all others are as for :class:`Vae`.
        start_share: As for :class:`Vae`.
        form: As for :class:`Vae`.
        pretraining: As for :class:`Vae`.
        steps: As for :class:`Vae`.
        batch: As for :class:`Vae`.
        clip_norm: As for :class:`Vae`.
        learning_rate: As for :class:`Vae`.
        checkpoint: As for :class:`Vae`.
        again: As for :class:`Vae`.
        discover: As for :class:`Vae`.
    """

    name: ClassVar[str] = "autoregressive"

    latent: int = field(default=0, init=False)
    direct: bool = field(default=True, init=False)
    encoder: tuple[int, ...] = field(default=(), init=False)
    decoder: tuple[int, ...] = field(default=(), init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedNeural:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        generator: The generator's name.
        schema: The columns.
        graph: The graph over columns that the network follows.
        network: The network.
        start: The model that the training starts from; None for one that starts at random.
        training: The training; where its clip bound and learning rate are left to rules, they follow from the start.
        given: Which of ``clip_norm`` and ``learning_rate`` were asked for.
        pretraining: Steps on simulated rows, which are free.
        neighbours: Which tables are neighbours, and what is public about them.
        delta: The δ at which the plan is stated.
        checkpoint: What to go on from if the fit is stopped; None for nothing.
        claimed: Where there is no start: what is claimed about causes.
        architecture: Which of the paper's networks it is; ``"graph"`` for escudo's own.
    """

    generator: str
    schema: Schema
    graph: CausalGraph
    network: Network
    start: PreparedMoments | None
    training: Training
    given: frozenset[str]
    pretraining: int
    neighbours: Neighbours
    delta: float
    checkpoint: Checkpoint | None = None
    claimed: CausalGraph | None = None
    architecture: str = "graph"

    @property
    def stated(self) -> CausalGraph:
        """What is claimed about causes."""
        if self.start is not None:
            return self.start.design.structure.stated
        assert self.claimed is not None, "one of them is there"
        return self.claimed

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        rounds, size = self.training, sum(math.prod(shape) for _, _, shape in self.network.shapes)
        sampled = (
            f"{rounds.sampling_probability:.3g} of the rows each" if rounds.sampling_probability < 1 else "all rows"
        )
        step = step_event(self.neighbours, rounds.sampling_probability, rounds.noise_multiplier)
        children = []
        if self.start is not None:
            children += [child for child in self.start.plan.children if child.name != "sampling"]
        if self.pretraining:
            children.append(Plan("training on rows simulated from that"))
        children += [
            Plan("training", step, count=rounds.steps, buys=f"noisy gradients of {size:,} parameters, {sampled}"),
            Plan("sampling"),
        ]
        return Plan(self.generator, children=children, delta=self.delta)

    def run(self, table: PrivateTable, purse: Purse) -> NeuralModel:
        """Fit the start, then train.

        How many rows there are decides which are drawn in a step, and nothing else: the start, the clip bound, the
        learning rate and the details follow from the model that the training starts from, which is released.

        With a checkpoint that a stopped fit left, the start is read from it and the training goes on from there. A
        seeded fit then gives what it would have given; one for release draws the steps that are left anew. The account
        knows of the training's end before the model leaves.
        """
        if self.start is None:
            parameters, paid = random_start(self.network, purse.stream), self._paid(purse)
            rows, training = self.neighbours.rows or 1, self.training
        else:
            first, paid = self._start_model(table, purse, self.start)
            parameters = pretrain(self.network, parameters_of(self.network, first), first, self.pretraining)
            rows = expected_rows(first)
            training = self.settle(clip_bound(self.network, parameters, measured_rows(first)), rows)
        value = self._train(parameters, self.codes(table), training, rows, paid)
        arrays = self.network.layout.unflatten(value.astype(np.float64))
        model = NeuralModel(
            schema=self.schema,
            graph=self.graph,
            stated=self.stated,
            network=self.network,
            parameters=arrays,
            guarantee=purse.guarantee,
            generator=self.generator,
            plan=self.plan,
            details={
                "rows": rows,
                "parameters": self.network.layout.size,
                **self._origin,
                "steps": training.steps,
                "sampling_probability": training.sampling_probability,
                "noise_multiplier": training.noise_multiplier,
                "l2_clip_norm": training.clip_norm,
                "learning_rate": training.learning_rate,
                "stated_arrows": self._stated_arrows,
                **anchor_of(purse),
            },
        )
        if self.checkpoint is not None:
            self.checkpoint.file.finish()
        return model

    def paying(
        self, account: Account, plan: Plan, stream: np.random.Generator | None, *, for_release: bool, purpose: str
    ) -> AbstractContextManager[Account]:
        """Charge a plan; where a stopped fit goes on, what was charged is not charged again."""
        terms: dict[str, Any] = {"for_release": for_release, "purpose": purpose}
        if self.checkpoint is None:
            return charging(account, plan, **terms)
        return self.checkpoint.paying(account, plan, stream, **terms)

    @property
    def _origin(self) -> dict[str, str]:
        """Where the training started, for the model's details."""
        if self.start is None:
            return {"start": "random", "architecture": self.architecture}
        return {"start": self.start.design.generator}

    @property
    def _stated_arrows(self) -> list[list[str]]:
        if self.start is not None:
            return self.start.design.structure.stated_arrows
        return [list(edge) for edge in self.graph.edges if set(edge) <= set(self.stated.columns)]

    def _paid(self, purse: Purse) -> Purse:
        return purse.within(self.training.event(**self.neighbours.stated), purpose="training by DP-SGD")

    def _start_model(self, table: PrivateTable, purse: Purse, start: PreparedMoments) -> tuple[CausalModel, Purse]:
        """Return the model that the training starts from, measured now or by the fit that was stopped.

        And the purse that the training is paid from.
        """
        kept = self.checkpoint
        event = self.training.event(**self.neighbours.stated)
        if kept is not None and kept.begun:
            event, first = kept.left, kept.read_start()
        else:
            first = start.run(table, purse)
            if kept is not None:
                kept.keep_start(first, purse.stream)
        return first, purse.within(event, purpose="training by DP-SGD")

    def _train(
        self, parameters: NDArray[np.float32], codes: NDArray[np.generic], training: Training, rows: int, paid: Purse
    ) -> NDArray[np.float32]:
        network, file = self.network, None if self.checkpoint is None else self.checkpoint.file
        return train(
            network,
            network.layout,
            parameters,
            codes,
            training,
            expected_rows=rows,
            delta=self.delta,
            seed=paid.stream,
            checkpoint=file,
            **self.neighbours.stated,
        ).value

    def codes(self, table: PrivateTable) -> NDArray[np.generic]:
        """Return the rows as cells, in the smallest type that holds every cell of the schema. Private."""
        return _codes(self.schema, table)

    @property
    def facts(self) -> dict[str, str]:
        """Fingerprints of the public things that a stopped fit and the one that goes on must share."""
        settings = [
            self.generator,
            asdict(self.training),
            self.pretraining,
            sorted(self.given),
            self.neighbours.relation,
        ]
        return {
            "schema": digest(self.schema.to_dict()),
            "graph": digest([list(self.graph.nodes), [list(edge) for edge in self.graph.edges], repr(self.network)]),
            "settings": digest([*settings, self.delta, self.plan.to_json()]),
        }

    def settle(self, bound: float, rows: int) -> Training:
        """Return the training with what depends on the start, which is released: the clip bound and the rate."""
        training = self.training
        clip_norm = training.clip_norm if "clip_norm" in self.given else bound
        noise = training.noise_multiplier * clip_norm / max(rows * training.sampling_probability, 1.0)
        rate = training.learning_rate
        if "learning_rate" not in self.given:
            rate = learning_rate_for(rate, noise)
        return replace(training, clip_norm=clip_norm, learning_rate=rate)


def _codes(schema: Schema, table: PrivateTable) -> NDArray[np.generic]:
    kind = np.min_scalar_type(max(schema.sizes.values()) - 1)
    none = np.empty((0, len(schema.names)), kind)  # a table without rows may have no batch either
    return np.concatenate([none, *table.batches(_READ)], dtype=kind, casting="unsafe")


def random_start(network: Any, stream: np.random.Generator | None) -> NDArray[np.float32]:
    """Return parameters drawn without a look at any row: from a seeded stream, or from the operating system."""
    made = network.start(np.random.default_rng() if stream is None else stream)
    return np.concatenate([made[layer][name].ravel() for layer, name, _ in network.shapes]).astype(np.float32)


# ---- graph and network together


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedJoint:
    """What will be measured and how loudly, where the graph is learnt with the network: public, and fixed beforehand.

    Attributes:
        generator: The generator's name.
        schema: The columns.
        knowledge: What is known of the graph: its arrows are there, what it forbids is not, all else is open.
        network: The network with gates.
        latent: Sizes of z and the layers around it, which join in the second half; none without z.
        start: The levels of single columns, which the training starts from.
        training: Its first half; the clip bound follows from the start, which is released.
        later: How many steps the second half has, at the same noise.
        given: Whether the learning rate was asked for.
        neighbours: Which tables are neighbours, and what is public about them.
        delta: The δ at which the plan is stated.
    """

    generator: str
    schema: Schema
    knowledge: CausalGraph | None
    network: JointNetwork
    latent: Mapping[str, Any]
    start: PreparedMoments
    training: Training
    later: int
    given: frozenset[str]
    neighbours: Neighbours
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        rounds, network = self.training, self.network
        step = step_event(self.neighbours, rounds.sampling_probability, rounds.noise_multiplier)
        gates = len(network.pairs) - len(network.known)
        children = [child for child in self.start.plan.children if child.name != "sampling"]
        buys = f"noisy gradients of {network.layout.size:,} parameters, the gates of {gates:,} arrows among them"
        children += [
            Plan("training of graph and network", step, count=rounds.steps, buys=buys),
            Plan("the same on rows simulated without edges"),
            Plan("training along the graph", step, count=self.later, buys="noisy gradients along what was found"),
            Plan("sampling"),
        ]
        return Plan(self.generator, children=children, delta=self.delta)

    def run(self, table: PrivateTable, purse: Purse) -> NeuralModel:
        """Fit the start, learn graph and network, and train along the graph.

        Only the two trainings read rows; the graph is a function of the first one's result and of simulated rows.
        """
        network, first = self.network, self.start.run(table, purse)
        rows, codes = expected_rows(first), _codes(self.schema, table)
        parameters = network.start(parameters_of(_alone(network.columns), first)["base"]["b"])
        flat = np.asarray(network.layout.flatten(parameters), np.float32)
        training = self._settled(self.training, clip_bound(network, flat, measured_rows(first)), rows)
        learnt = network.layout.unflatten(self._train(network, flat, codes, training, rows, purse))
        none = network.layout.unflatten(
            simulated_training(network, flat, first.codes(rows, seed=_SEED), training, rows)
        )
        parents, found = arrows_of(network, learnt, none)
        follower, start = _along(network, learnt, parents, self.latent)
        names = self.schema.names
        causes = {names[child]: tuple(names[parent] for parent in several) for child, several in parents.items()}
        stated = self._stated([(names[a], names[b]) for a, b, _ in found])
        rate = self.training.learning_rate if self.given or not self.latent else _LATENT_RATE
        second = replace(self.training, steps=self.later, decline=0.8, learning_rate=rate)
        model = NeuralModel(
            schema=self.schema,
            graph=graph_of(causes),
            stated=stated,
            network=follower,
            parameters=follower.layout.unflatten(start.astype(np.float64)),
            guarantee=purse.guarantee,
            generator=self.generator,
            plan=self.plan,
            details={
                "rows": rows,
                "start": self.start.design.generator,
                "discover": "joint",
                "steps": training.steps + self.later,
                "sampling_probability": training.sampling_probability,
                "noise_multiplier": training.noise_multiplier,
                "stated_arrows": [list(edge) for edge in stated.edges if edge[0] in causes.get(edge[1], ())],
                "discovery": {
                    "method": "joint",
                    "edges": [
                        {"from": names[a], "to": names[b], "directed": False, "confidence": sure}
                        | {"direction_confidence": None}
                        for a, b, sure in found
                    ],
                    "cannot_tell": "",
                    "notes": [
                        "Learnt with the network: a confidence is the share of pairs without an edge that came out "
                        "weaker under the same noise, and directions only help to imitate the table."
                    ],
                },
                **anchor_of(purse),
            },
        )
        simulated = model.codes(_MEASURED, seed=_SEED).astype(codes.dtype)
        second = self._settled(second, clip_bound(follower, start, simulated), rows)
        value = self._train(follower, start, codes, second, rows, purse)
        return replace(model, parameters=follower.layout.unflatten(value.astype(np.float64)))

    def _train(
        self, network: Any, flat: NDArray[np.float32], codes: Any, training: Training, rows: int, purse: Purse
    ) -> NDArray[np.float32]:
        paid = purse.within(training.event(**self.neighbours.stated), purpose="training by DP-SGD")
        terms: dict[str, Any] = {"seed": paid.stream, **self.neighbours.stated}
        return train(
            network, network.layout, flat, codes, training, expected_rows=rows, delta=self.delta, **terms
        ).value

    def _settled(self, training: Training, bound: float, rows: int) -> Training:
        noise = training.noise_multiplier * bound / max(rows * training.sampling_probability, 1.0)
        rate = training.learning_rate if self.given else learning_rate_for(training.learning_rate, noise)
        return replace(training, clip_norm=bound, learning_rate=rate)

    def _stated(self, found: list[tuple[str, str]]) -> CausalGraph:
        """Return what is claimed about causes: what was known, and lines along what was found."""
        known = {} if self.knowledge is None else {"edges": self.knowledge.edges}
        arrows = known.get("edges", ())
        joined = {frozenset(arrow) for arrow in arrows}
        lines = [pair for pair in found if frozenset(pair) not in joined]
        return CausalGraph.from_edges(arrows, nodes=self.schema.names, undirected=lines)


def open_pairs(
    schema: Schema, graph: CausalGraph | None
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return the pairs (cause, effect) that may be joined, and those of them that are known to be.

    Raises:
        InputError: If the graph has groups or latents, which a graph that is to be learnt does not know.
    """
    names = schema.names
    place = {name: number for number, name in enumerate(names)}
    if graph is None:
        return tuple((a, b) for a in place.values() for b in place.values() if a != b), ()
    structure_of(schema, graph)  # names are those of the schema
    if graph.groups or graph.latents or graph.undirected_edges:
        raise InputError("discover='joint' takes arrows between columns that are known, and forbidden ones; no others.")
    known = tuple((place[a], place[b]) for a, b in graph.edges)
    barred = {(place[a], place[b]) for a, b in graph.forbidden} | {(b, a) for a, b in known}
    pairs = tuple((a, b) for a in place.values() for b in place.values() if a != b and (a, b) not in barred)
    return pairs, known


def simulated_training(
    network: Any, flat: NDArray[np.float32], rows: Codes, training: Training, expected: int
) -> NDArray[np.float32]:
    """Return the parameters after the same training, noise and all, on rows that were simulated; free."""
    from escudo.mechanisms.dpsgd import capacity_for, first_state, result, run, slots_of

    knobs, state = training.knobs(expected), first_state(flat)
    sampled = training.sampling_probability
    capacity, rng, rows = capacity_for(expected, sampled), np.random.default_rng(_SEED), _smallest(rows)
    with tracking("The same on rows without edges", total=training.steps) as advance:
        for segment in slots_of(rng, rows=len(rows), probability=sampled, steps=training.steps, capacity=capacity):
            batches = segment._replace(rows=rows[segment.rows])
            state = run(network, network.layout, training.recipe, None, knobs, state, batches)
            advance(int(segment.last.sum()))
    return np.asarray(result(knobs, state))


def arrows_of(
    network: JointNetwork, learnt: Mapping[str, Mapping[str, Any]], none: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[int, tuple[int, ...]], list[tuple[int, int, float]]]:
    """Return each column's parents, and the open pairs that are kept, with how sure they are; no cycle among them.

    Args:
        network: The network with gates.
        learnt: Its parameters after a training.
        none: Its parameters after the same training on rows without edges.
    """
    pairs = {tuple(sorted(pair)) for pair in network.pairs} - {tuple(sorted(pair)) for pair in network.known}
    listed = sorted(pairs)
    strength, weak = network.strengths(learnt), network.strengths(none)
    chance = np.sort([weak[a, b] for a, b in listed])
    weakest = float(np.quantile(chance, _JOINT_QUANTILE))
    order = _ordered(np.asarray(learnt["order"]["b"]), network.known)
    rank = {column: number for number, column in enumerate(order)}
    allowed = set(network.pairs)
    parents: dict[int, set[int]] = {column: set() for column in range(network.count)}
    for cause, effect in network.known:
        parents[effect].add(cause)
    kept = []
    for a, b in listed:
        cause, effect = (a, b) if rank[a] < rank[b] else (b, a)
        below = float(np.searchsorted(chance, strength[a, b]) / (len(chance) + 1))
        if strength[a, b] > weakest and (cause, effect) in allowed:
            parents[effect].add(cause)
            kept.append((cause, effect, below))
    return {column: tuple(sorted(several)) for column, several in parents.items()}, kept


def _ordered(places: Floats, known: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the columns by their places, but none before a cause that is known."""
    left, order = set(range(len(places))), []
    while left:
        free = [column for column in left if not any(b == column and a in left for a, b in known)]
        first = min(free, key=lambda column: (places[column], column))
        order.append(first)
        left.remove(first)
    return order


def _alone(columns: Any) -> Network:
    """Return a network without arrows."""
    return Network(columns=columns, units=tuple(Unit((place,), ()) for place in range(len(columns.specs))))


def _along(
    network: JointNetwork,
    learnt: Mapping[str, Mapping[str, Any]],
    parents: Mapping[int, tuple[int, ...]],
    latent: Mapping[str, Any],
) -> tuple[Network, NDArray[np.float32]]:
    """Return the network that follows the arrows which were kept, and where its training goes on."""
    follower = Network(
        columns=network.columns,
        units=tuple(Unit((child,), several) for child, several in parents.items()),
        **latent,
    )
    made = follower.start(np.random.default_rng(_SEED))
    made["base"]["b"] = np.asarray(learnt["base"]["b"], np.float64)
    if follower.has_direct:
        made["direct"]["w"] = network.weights(learnt)[0] * follower.direct_mask
    return follower, np.asarray(follower.layout.flatten(made), np.float32)


# ---- without privacy


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedUnprotected:
    """One of the paper's networks, to be trained without clipping and noise. Nothing is promised.

    It has no ``run``: no purse pays for it, and :mod:`escudo.asking` cannot ask it.

    Attributes:
        generator: The generator.
        schema: The columns.
        graph: The graph over columns that the network follows.
        claimed: What is claimed about causes.
        network: The network.
        neighbours: Which tables would be neighbours, if something were promised.
    """

    generator: Vae
    schema: Schema
    graph: CausalGraph
    claimed: CausalGraph
    network: Network
    neighbours: Neighbours

    @property
    def plan(self) -> Plan:
        """What is done; none of it is paid for, as no budget could."""
        return Plan(
            self.generator.name, children=[Plan("training on the rows themselves, WITHOUT PRIVACY"), Plan("sampling")]
        )

    def fit(self, table: PrivateTable, stream: np.random.Generator | None) -> NeuralModel:
        """Train on the rows as they are; whoever calls it has seen to it that this was meant."""
        from escudo.mechanisms.dpsgd import Knobs, Recipe, capacity_for, first_state, run, slots_of

        rng = np.random.default_rng() if stream is None else stream
        network, rows = self.network, _codes(self.schema, table)
        steps, sampled = self.generator._length(len(rows))
        given = self.generator.learning_rate
        rate = _PRINTED_RATE if given is None else given
        knobs = Knobs(*map(np.float32, (np.inf, 0.0, max(len(rows) * sampled, 1.0), rate, 1e9, 0.0, 0.0)))
        state = first_state(random_start(network, rng))
        capacity = capacity_for(len(rows), sampled)
        segments = slots_of(rng, rows=len(rows), probability=sampled, steps=steps, capacity=capacity)
        filled = rows if len(rows) else np.zeros((1, rows.shape[1]), rows.dtype)
        with tracking("Training without privacy", total=steps) as advance:
            for segment in segments:
                batches = segment._replace(rows=filled[segment.rows])
                state = run(network, network.layout, Recipe(averaged=False), None, knobs, state, batches)
                advance(int(segment.last.sum()))
        flat = np.asarray(state.parameters, np.float64)
        return NeuralModel(
            schema=self.schema,
            graph=self.graph,
            stated=self.claimed,
            network=network,
            parameters=network.layout.unflatten(flat),
            guarantee=Guarantee(none=True, for_release=False, accountant="none", **self.neighbours.stated),
            generator=self.generator.name,
            plan=self.plan,
            details={
                "rows": len(rows),
                "parameters": network.layout.size,
                "start": "random",
                "architecture": self.generator.architecture,
                "steps": steps,
                "sampling_probability": sampled,
                "learning_rate": rate,
                "stated_arrows": [list(edge) for edge in self.graph.edges if set(edge) <= set(self.claimed.columns)],
            },
        )


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
class Rule:
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


def rule_for(rows: int | None, columns: int, epsilon: float, *, latent: bool = False) -> Rule:
    """Return the rule for a table with this many rows (None: not known beforehand) and columns.

    >>> rule = rule_for(rows=5000, columns=222, epsilon=1.0)
    >>> rule.steps, rule.sampling_probability, round(rule.start_share, 2)
    (40, 1.0, 0.77)
    """
    known = _UNKNOWN_ROWS if rows is None else rows
    # More data or budget per step allow for more steps, each of them smaller.
    longer = min(max(math.sqrt(known * epsilon / _USUAL), 1.0), 5.0)
    return Rule(
        start_share=min(max(1 - known * epsilon / (100 * columns), 0.6), 0.9),
        steps=round(_STEPS * longer),
        sampling_probability=min(1.0, _LARGEST_SAMPLE / known),
        learning_rate=_LATENT_RATE if latent else 0.03,
        averaging=0.8,
        pretraining=min(200 + 20 * columns, 5000),
    )


def _epsilon_of_share(share: float, budget: Budget) -> float:
    """Return the ε of Gaussian noise that takes this share of the squared μ that a budget allows."""
    epsilon, delta = budget.epsilon, budget.delta
    low, high = 0.0, 1.0
    while gdp_to_epsilon(high, delta) < epsilon:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if gdp_to_epsilon(middle, delta) < epsilon else (low, middle)
    return gdp_to_epsilon(math.sqrt(share) * high, delta)


def learning_rate_for(rate: float, noise: float) -> float:
    """Return Adam's learning rate where each coordinate of a mean gradient carries noise of this standard deviation.

    >>> learning_rate_for(0.03, 0.01), round(learning_rate_for(0.03, 0.6), 4)
    (0.03, 0.003)
    """
    return rate * min(1.0, _QUIET / noise)


# ---- where a training starts


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


def _smallest(codes: Codes) -> Codes:
    """Return cells in the smallest type that holds them: rows are read at every step."""
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))


def expected_rows(model: CausalModel) -> int:
    """Return the number of rows that a start was told or has paid for: public or noisy, and at least 1."""
    return max(int(model.details["rows"]), 1)


def parameters_of(network: Network, model: CausalModel) -> Parameters:
    """Return parameters that follow the model's laws as far as shapes and the direct layer can."""
    parameters = network.start(np.random.default_rng(_SEED))
    names = model.schema.names
    simulated = model.codes(_SIMULATED, seed=_SEED)
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
    from escudo.mechanisms.dpsgd import Knobs, slots_of

    rate, rng = _RATE if network.latent else 5 * _RATE, np.random.default_rng(_SEED)
    samples = slots_of(rng, rows=rows, probability=_BATCH / rows, steps=steps, capacity=_BATCH + _BATCH // 4)
    return Knobs(*map(np.float32, (np.inf, 0.0, _BATCH, rate, steps, 0.95, 0.98))), samples


def clip_bound(network: Network | JointNetwork, flat: NDArray[np.float32], rows: Codes) -> float:
    """Return the length that all but a few gradients of simulated rows keep to; free, as no private row is read."""
    import jax

    from escudo.mechanisms.dpsgd import row_norms

    norms = row_norms(network, network.layout, flat, rows, jax.random.key(_SEED))
    return max(float(np.quantile(np.asarray(norms), _CLIP_QUANTILE)), _SMALL)


# ---- going on after a stop


_TRAINING = "training.safetensors"


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """Where a release keeps what it may go on from.

    Attributes:
        folder: The folder.
        facts: Fingerprints of what must be the same, by what it is; all of them of public things.
        start: What measuring the start costs.
        step: What one step of the training costs.
        steps: How many steps there are.
        again: Whether to pay for what is left once more, where it cannot be had for nothing.
    """

    folder: Path
    facts: Mapping[str, str]
    start: Event
    step: Event
    steps: int
    again: bool = False
    _file: TrainingFile | None = field(default=None, init=False, repr=False)

    @property
    def file(self) -> TrainingFile:
        """The training's file, while the folder is used."""
        assert self._file is not None, "a fit with a checkpoint is run inside its paying()"
        return self._file

    @property
    def begun(self) -> bool:
        """Whether the release that uses the folder goes on from a start that was measured before."""
        return "start" in self.file.about

    @property
    def left(self) -> RepeatedEvent:
        """What the steps cost that are left."""
        arrays = self.file.arrays
        return RepeatedEvent(event=self.step, count=self.steps - (int(arrays["step"][0]) if arrays else 0))

    @contextmanager
    def paying(
        self, account: Account, plan: Plan, stream: np.random.Generator | None, *, for_release: bool, purpose: str
    ) -> Iterator[Account]:
        """Use the folder, alone, and charge the plan; or go on from it, and charge nothing or what is left of the plan.

        Whether the folder can be used is found out before anything is charged. It is gone if all goes well.

        Args:
            account: What is charged.
            plan: The whole release.
            stream: The generator of a seeded run; it is put to where it stood.
            for_release: False for a seeded run.
            purpose: Why, for the account.

        Yields:
            An account that pays what the plan shows, as ``escudo.privacy.charging`` gives it.

        Raises:
            InputError: If the folder cannot be used, another process uses it, it is the checkpoint of another release
                or of another account, or the account does not let it go on. Nothing was spent.
            BudgetExceededError: If the account does not allow what is to be charged; nothing was spent.
        """
        assert plan.event is not None, "a network is trained"
        facts = self._all_facts(plan, stream)
        marking = keeping(account)
        terms: dict[str, Any] = {"for_release": for_release, "purpose": purpose}
        with self._held():
            kept, left = found(self.folder / _TRAINING, marking), plan
            if kept is None:
                receipt = marking.spend(plan.event, **terms)
                self._file = TrainingFile(self.folder / _TRAINING, marking, receipt, {"facts": json.dumps(facts)})
            else:
                left = self._left(kept, plan, facts)
                assert left.event is not None, "the last step is never kept"
                self._file = go_on(kept, marking, left.event, delta=plan.stated_delta, again=self.again, **terms)
                if stream is not None:
                    stream.bit_generator.state = json.loads(kept.about["generator"])
            try:
                with charging(account, left, for_release=for_release, receipt=self.file.receipt) as paying:
                    yield paying
            finally:
                self._file = None
            shutil.rmtree(self.folder, ignore_errors=True)

    def due(self, account: Account, plan: Plan, *, seed: np.random.Generator | None) -> tuple[bool, Event | None]:
        """Return whether :meth:`paying` would go on from the folder, and what it would charge; None for nothing.

        Nothing is spent, recorded or changed. What cannot go on for nothing is charged for only with ``again``.

        Raises:
            InputError: If it is the checkpoint of another release or of another account.
        """
        marking = keeping(account)
        kept = found(self.folder / _TRAINING, marking, look=True)
        if kept is None:
            return False, plan.event
        left = self._left(kept, plan, self._all_facts(plan, seed))
        return True, None if marking.goes_on(kept.receipt, kept.number, kept.digest) else left.event

    def _left(self, kept: Kept, plan: Plan, facts: Mapping[str, str]) -> Plan:
        """Return what is left of a plan, once it is sure that the folder is of this release."""
        self._require(kept, facts)
        return plan.less(self.start, *([RepeatedEvent(event=self.step, count=kept.done)] if kept.done else []))

    def _all_facts(self, plan: Plan, stream: np.random.Generator | None) -> dict[str, str]:
        assert plan.event is not None, "a network is trained"
        state = "none" if stream is None else digest(stream.bit_generator.state)
        return {**self.facts, "plan": digest(plan.event.to_json()), "seed": state}

    def require_same(self) -> None:
        """Refuse to go on with another schema, graph or other settings than the stopped release had.

        Raises:
            InputError: If they differ; says which. Nothing is spent.
        """
        from safetensors import SafetensorError, safe_open

        path = self.folder / _TRAINING
        if not path.exists():
            return
        try:
            with safe_open(path, framework="numpy") as file:
                about = json.loads((file.metadata() or {})["about"])
        except (OSError, SafetensorError, ValueError, KeyError):
            raise InputError(f"{self.folder} is no readable checkpoint.") from None
        self._require_facts(about, self.facts)

    def _require(self, kept: Kept, facts: Mapping[str, str]) -> None:
        """Refuse a folder that was made for another release, or parts of which were put there from elsewhere."""
        self._require_facts(kept.about, facts)
        if kept.about.get("start") != self._start_digest():
            raise InputError(
                f"{self.folder} is no readable checkpoint: its start is not the one that its training began with. Put "
                "the folder back as it was, or remove it and begin again. Nothing was spent."
            )

    def _require_facts(self, about: Mapping[str, str], facts: Mapping[str, str]) -> None:
        known = json.loads(about.get("facts", "{}"))
        if differ := [name for name, value in facts.items() if known.get(name) != value]:
            raise InputError(
                f"{self.folder} is the checkpoint of another release: {' and '.join(differ)} differ. Give what that "
                "release was given, or another folder. Nothing was spent."
            )

    def keep_start(self, start: CausalModel, stream: np.random.Generator | None) -> None:
        """Keep the model that the training starts from, and where a seeded generator stands."""
        start.save(self.folder / "start", overwrite=True)
        sync(*self._start_files(), self.folder / "start", self.folder)
        self.file.about["start"] = self._start_digest()
        if stream is not None:
            self.file.about["generator"] = json.dumps(stream.bit_generator.state, default=int)
        self.file.keep({})

    def read_start(self) -> CausalModel:
        """Return the model that the training starts from."""
        from escudo.synthesis._files import load

        start = load(self.folder / "start")
        assert isinstance(start, CausalModel), "its digest is known"
        return start

    def _start_files(self) -> list[Path]:
        return sorted(path for path in (self.folder / "start").rglob("*") if path.is_file())

    def _start_digest(self) -> str:
        return digest(
            {
                path.relative_to(self.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in self._start_files()
            }
        )

    @contextmanager
    def _held(self) -> Iterator[None]:
        def opened() -> int:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.folder, os.O_RDONLY)

        with held(self.folder, opened, self.folder):
            try:
                yield
            finally:
                with suppress(OSError):
                    self.folder.rmdir()  # if nothing was kept


def digest(facts: object) -> str:
    """Return a fingerprint of JSON values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
