r"""Generators ``vae`` and ``autoregressive``: networks that follow the graph, trained by DP-SGD.

``vae`` is the causal variational autoencoder p(z) ∏ p(xᵢ | paᵢ, z); without a graph it is the plain one, and with a
condensed graph it is the model of the paper. ``autoregressive`` is ∏ p(xᵢ | paᵢ), without a latent.

**Budget.** A share goes to the model that the training starts from (``_training``), the rest to the steps of DP-SGD.
How large the share is, and how many steps there are, is a public rule of rows, columns and ε; nothing else is chosen by
looking at data: no learning rate, no early stop, no normalisation.

**Guarantee.** The events of the start, and T :class:`~escudo.privacy.SampledGaussianEvent` for T steps. The noise of
the steps is drawn in floating point, so the guarantee is marked as not float-safe.

**Reference.** *Causally Constrained Data Synthesis for Private Data Release*, sections 3 and 4, Appendix C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal

from escudo._validate import one_of, positive, probability, whole
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms.dpsgd import Training
from escudo.privacy import Budget, Event, Neighbours, RepeatedEvent, calibrate, gdp_to_epsilon
from escudo.synthesis._moment_family import Form
from escudo.synthesis._moments import Independent, Moments
from escudo.synthesis.neural._network import Network, columns_of, units_of
from escudo.synthesis.neural._training import Checkpoint, PreparedNeural, rule_for, step_event
from escudo.table import Schema

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

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedNeural:
        """Choose the network, the start and the training from public facts alone.

        Raises:
            InputError: If ``batch`` is given where the number of rows is not public, or ``checkpoint`` is of another
                release.
        """
        rows, delta = neighbours.rows, budget.delta
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
        rule = rule_for(rows=rows, columns=len(schema.names), epsilon=budget.epsilon, latent=self.latent > 0)
        share = rule.start_share if self.start_share is None else self.start_share
        first = Moments(form=self.form) if self.start == "moments" else Independent()
        start = first.prepare(schema, graph, neighbours, Budget(_epsilon_of_share(share, budget), delta))
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
                noise_multiplier=calibrate(events, epsilon=budget.epsilon, delta=delta),
                clip_norm=1.0 if self.clip_norm is None else self.clip_norm,
                learning_rate=rule.learning_rate if self.learning_rate is None else self.learning_rate,
                decline=0.8,  # the last steps are small, so that their noise is
                averaging=rule.averaging,
            ),
            given=frozenset(name for name in ("clip_norm", "learning_rate") if getattr(self, name) is not None),
            pretraining=rule.pretraining if self.pretraining is None else self.pretraining,
            neighbours=neighbours,
            delta=delta,
        )
        if self.checkpoint is None:
            return prepared
        kept = Checkpoint(
            folder=Path(self.checkpoint),
            facts=prepared.facts,
            start=taken,
            step=step_event(neighbours, sampled, prepared.training.noise_multiplier),
            steps=steps,
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
    """

    name: ClassVar[str] = "vae"

    def __post_init__(self) -> None:
        self.latent = whole("latent", self.latent)
        if self.latent == 0:
            raise InputError("latent must be at least 1; without a latent use generator='autoregressive'.")
        _Neural.__post_init__(self)


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
    """

    name: ClassVar[str] = "autoregressive"

    latent: int = field(default=0, init=False)
    direct: bool = field(default=True, init=False)
    encoder: tuple[int, ...] = field(default=(), init=False)
    decoder: tuple[int, ...] = field(default=(), init=False)


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
