r"""Generators ``vae`` and ``autoregressive``: networks that follow the graph, trained by DP-SGD.

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

Graph and network learnt together are in ``_joint``; where a training starts and how long it takes, in ``_start``; going
on after a stop, in ``_checkpoint``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import one_of, positive, probability, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.mechanisms.dpsgd import Training, train
from escudo.privacy import (
    Account,
    Budget,
    Event,
    Guarantee,
    Neighbours,
    Plan,
    RepeatedEvent,
    calibrate,
    charging,
)
from escudo.synthesis._budget import epsilon_of_share
from escudo.synthesis._model import CausalModel, anchor_of
from escudo.synthesis._moment_family import Form
from escudo.synthesis._moments import Independent, Moments, PreparedMoments
from escudo.synthesis.neural._checkpoint import Checkpoint, digest
from escudo.synthesis.neural._joint import PreparedJoint, open_pairs
from escudo.synthesis.neural._model import NeuralModel
from escudo.synthesis.neural._network import (
    ARCHITECTURES,
    Architecture,
    JointNetwork,
    Network,
    columns_of,
    printed,
    units_of,
)
from escudo.synthesis.neural._start import (
    TrainingRule,
    clip_bound,
    codes_of,
    expected_rows,
    learning_rate_for,
    measured_rows,
    parameters_of,
    pretrain,
    random_start,
    rule_for,
    step_event,
)
from escudo.table import PrivateTable, Schema, Whole

if TYPE_CHECKING:
    pass

_PRINTED_RATE = 1e-3  # Adam's, in the paper
_JOINT_START = 0.1  # of the budget, in squared noise, for single columns where the graph is learnt too
_JOINT_LONGER = 5  # times the usual steps: weights have to settle before it shows which are needed
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
        pairs, known = open_pairs(schema, graph)
        rule = rule_for(rows, len(schema.names), budget.epsilon, latent=False)
        sampled = self._sampled(rule, rows)
        start = Independent().prepare(
            schema, None, neighbours, Budget(epsilon_of_share(_JOINT_START, budget), budget.delta)
        )
        taken = start.plan.event
        assert taken is not None
        steps = max(_JOINT_LONGER * rule.steps if self.steps is None else self.steps, 2)
        both = self._training(neighbours, budget, (steps, sampled), rule.learning_rate, taken)
        sizes = {"latent": self.latent, "encoder": self.encoder, "decoder": self.decoder}
        return PreparedJoint(
            schema,
            neighbours,
            JointNetwork(columns, pairs, known),
            generator=self.name,
            knowledge=graph,
            latent=sizes if self.latent else {},
            start=start,
            training=replace(both, steps=steps // 2, averaging=rule.averaging),
            later=steps - steps // 2,
            given=frozenset({"learning_rate"} if self.learning_rate is not None else ()),
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
        rule = rule_for(neighbours.rows, len(schema.names), budget.epsilon, latent=self.latent > 0)
        sampled = self._sampled(rule, neighbours.rows)
        units, followed = units_of(schema, graph, latent=self.latent > 0)
        network = Network(
            columns_of(schema),
            units,
            direct=self.direct,
            hidden=self.hidden,
            latent=self.latent,
            encoder=self.encoder if self.latent else (),
            decoder=self.decoder if self.latent else (),
        )
        share = rule.start_share if self.start_share is None else self.start_share
        first = Moments(form=self.form) if self.start == "moments" else Independent()
        start = first.prepare(schema, graph, neighbours, Budget(epsilon_of_share(share, budget), budget.delta))
        steps = rule.steps if self.steps is None else self.steps
        taken = start.plan.event
        assert taken is not None
        training = self._training(neighbours, budget, (steps, sampled), rule.learning_rate, taken)
        exact = network.is_logit and all(form == "logit" for form in start.design.forms.values())
        rule = replace(rule, pretraining=0) if exact else rule
        prepared = PreparedNeural(
            schema,
            neighbours,
            network,
            generator=self.name,
            graph=followed,
            start=start,
            # The last steps are small, so that their noise is.
            training=replace(training, decline=0.8, averaging=rule.averaging),
            given=frozenset(name for name in ("clip_norm", "learning_rate") if getattr(self, name) is not None),
            pretraining=rule.pretraining if self.pretraining is None else self.pretraining,
            delta=budget.delta,
        )
        if self.checkpoint is None:
            return prepared
        kept = Checkpoint(
            folder=Path(self.checkpoint),
            facts=prepared.facts,
            start=taken,
            step=step_event(neighbours, sampled, training.noise_multiplier),
            steps=training.steps,
            again=self.again,
        )
        kept.require_same()
        return replace(prepared, checkpoint=kept)

    def _sampled(self, rule: TrainingRule, rows: int | None) -> float:
        """Return the chance of each row in each step: as was asked, or by the rule.

        Raises:
            InputError: If a number of rows was asked for, out of one that is not public.
        """
        if self.batch is None:
            return rule.sampling_probability
        if rows is None:
            raise InputError("batch is a number of rows out of public_rows; give that too.")
        return min(1.0, self.batch / rows)

    def _training(
        self, neighbours: Neighbours, budget: Budget, rounds: tuple[int, float], rate: float, *before: Event
    ) -> Training:
        """Return a training with the least noise that a budget allows beside what is released before.

        Args:
            neighbours: Which tables are neighbours.
            budget: What all of it may cost.
            rounds: How many steps there are, and the chance of each row in each.
            rate: The learning rate, if none was asked for.
            before: What is released before.
        """
        steps, sampled = rounds

        def events(noise: float) -> list[Event]:
            return [*before, RepeatedEvent(event=step_event(neighbours, sampled, noise), count=steps)]

        return Training(
            steps=steps,
            sampling_probability=sampled,
            noise_multiplier=calibrate(events, budget),
            clip_norm=1.0 if self.clip_norm is None else self.clip_norm,
            learning_rate=rate if self.learning_rate is None else self.learning_rate,
        )


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
        training = self._training(neighbours, budget, self._length(rows), _PRINTED_RATE)
        return PreparedNeural(
            schema,
            neighbours,
            network,
            generator=self.name,
            graph=followed,
            start=None,
            claimed=claimed,
            architecture=self.architecture,
            training=replace(training, averaging=0.0),
            given=frozenset({"clip_norm", "learning_rate"}),
            pretraining=0,
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
        return PreparedUnprotected(schema, neighbours, network, generator=self, graph=followed, claimed=claimed)

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


@dataclass(frozen=True, slots=True)
class PreparedNeural:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        neighbours: Which tables are neighbours, and what is public about them.
        network: The network.
        generator: The generator's name.
        graph: The graph over columns that the network follows.
        start: The model that the training starts from; None for one that starts at random.
        training: The training; where its clip bound and learning rate are left to rules, they follow from the start.
        given: Which of ``clip_norm`` and ``learning_rate`` were asked for.
        pretraining: Steps on simulated rows, which are free.
        delta: The δ at which the plan is stated.
        checkpoint: What to go on from if the fit is stopped; None for nothing.
        claimed: Where there is no start: what is claimed about causes.
        architecture: Which of the paper's networks it is; ``"graph"`` for escudo's own.
    """

    schema: Schema
    neighbours: Neighbours
    network: Network
    _: KW_ONLY
    generator: str
    graph: CausalGraph
    start: PreparedMoments | None
    training: Training
    given: frozenset[str]
    pretraining: int
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
        with table.in_one_place() as whole:
            value = self._train(parameters, whole, training, rows, paid)
        details = {
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
        }
        model = self.trained(value, purse.guarantee, details)
        if self.checkpoint is not None:
            self.checkpoint.file.finish()
        return model

    def trained(
        self, parameters: NDArray[np.float32], guarantee: Guarantee, details: Mapping[str, Any] | None = None
    ) -> NeuralModel:
        """Return the model that a training ends with."""
        return NeuralModel(
            schema=self.schema,
            graph=self.graph,
            stated=self.stated,
            network=self.network,
            parameters=self.network.layout.unflatten(parameters.astype(np.float64)),
            guarantee=guarantee,
            generator=self.generator,
            plan=self.plan,
            details=details or {},
        )

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
        self, parameters: NDArray[np.float32], whole: Whole, training: Training, rows: int, paid: Purse
    ) -> NDArray[np.float32]:
        network, file = self.network, None if self.checkpoint is None else self.checkpoint.file
        return train(
            network,
            network.layout,
            parameters,
            whole,
            training,
            expected_rows=rows,
            delta=self.delta,
            seed=paid.stream,
            checkpoint=file,
            **self.neighbours.stated,
        ).value

    def codes(self, table: PrivateTable) -> NDArray[np.generic]:
        """Return the rows as cells. Private."""
        return codes_of(self.schema, table)

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


# ---- without privacy


@dataclass(frozen=True, slots=True)
class PreparedUnprotected:
    """One of the paper's networks, to be trained without clipping and noise. Nothing is promised.

    It has no ``run``: no purse pays for it, and :mod:`escudo.asking` cannot ask it.

    Attributes:
        schema: The columns.
        neighbours: Which tables would be neighbours, if something were promised.
        network: The network.
        generator: The generator.
        graph: The graph over columns that the network follows.
        claimed: What is claimed about causes.
    """

    schema: Schema
    neighbours: Neighbours
    network: Network
    _: KW_ONLY
    generator: Vae
    graph: CausalGraph
    claimed: CausalGraph

    @property
    def plan(self) -> Plan:
        """What is done; none of it is paid for, as no budget could."""
        return Plan(
            self.generator.name, children=[Plan("training on the rows themselves, WITHOUT PRIVACY"), Plan("sampling")]
        )

    def fit(self, table: PrivateTable, stream: np.random.Generator | None) -> NeuralModel:
        """Train on the rows as they are, where they are; whoever calls it has seen to it that this was meant."""
        network, rng = self.network, np.random.default_rng() if stream is None else stream
        with table.in_one_place() as whole:
            found = whole.found(partial(self._trained, rng=rng))
        rows = int(found[-1])
        steps, sampled = self.generator._length(rows)
        return NeuralModel(
            schema=self.schema,
            graph=self.graph,
            stated=self.claimed,
            network=network,
            parameters=network.layout.unflatten(found[:-1]),
            guarantee=Guarantee(none=True, for_release=False, accountant="none", **self.neighbours.stated),
            generator=self.generator.name,
            plan=self.plan,
            details={
                "rows": rows,
                "parameters": network.layout.size,
                "start": "random",
                "architecture": self.generator.architecture,
                "steps": steps,
                "sampling_probability": sampled,
                "learning_rate": self._rate,
                "stated_arrows": [list(edge) for edge in self.graph.edges if set(edge) <= set(self.claimed.columns)],
            },
        )

    @property
    def _rate(self) -> float:
        given = self.generator.learning_rate
        return _PRINTED_RATE if given is None else given

    def _trained(self, rows: NDArray[Any], *, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the parameters after all steps, and how many rows there are behind them."""
        from escudo.mechanisms.dpsgd import Knobs, Recipe, Sampling, capacity_for, first_state, run, slots_of

        network, (steps, sampled) = self.network, self.generator._length(len(rows))
        knobs = Knobs(*map(np.float32, (np.inf, 0.0, max(len(rows) * sampled, 1.0), self._rate, 1e9, 0.0, 0.0)))
        state = first_state(random_start(network, rng))
        capacity = capacity_for(len(rows), sampled)
        segments = slots_of(rng, Sampling(len(rows), sampled, steps), capacity)
        filled = rows if len(rows) else np.zeros((1, rows.shape[1]), rows.dtype)
        with tracking("Training without privacy", total=steps) as advance:
            for segment in segments:
                batches = segment._replace(rows=filled[segment.rows])
                state = run(network, network.layout, Recipe(averaged=False), None, knobs, state, batches)
                advance(int(segment.last.sum()))
        return np.append(np.asarray(state.parameters, np.float64), len(rows))
