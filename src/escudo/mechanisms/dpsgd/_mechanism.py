r"""DP-SGD as a mechanism: check, charge, draw; with checkpoints that cost nothing and are used up when resumed.

**Guarantee.** Each step releases the clipped sum of a Poisson sample with Gaussian noise
(:class:`~escudo.privacy.SampledGaussianEvent`), and everything else is a function of these releases: T steps are T
such events, adaptively composed. The relation may be ``add_remove`` or ``replace_one``. The event is stated for the
rows that are *there*: the chance q is fixed, and the number of rows is used only to draw samples. Everything else that
has to know how many there are goes by ``expected_rows``, which is public or noisy: what sums are divided by, how large
slots are, in which precision they are multiplied, after which steps a checkpoint may be written. No rows at all are
trained on like some.
Rows of one person are drawn and clipped one by one, and the event counts all of them.

Noise is float32 and comes from a counter-based generator (``_normal``), each step with a fresh 64-bit key from the
operating system; samples come from a numpy generator with 128 bits of state, seeded the same way. Neither is a
cryptographic generator, and float32 noise is open to attacks on floating point (Mironov 2012): the guarantee says
``float_safe = False``. Progress shows steps, never a loss.

**Checkpoints.** Between steps the state is a function of released sums, so a file of it tells no more than the training
itself will (``_checkpoint``). What a stopped process had drawn beyond its last checkpoint never left its memory, so
going on from the file draws those steps for the first time. Two trainings that both ended from one checkpoint would
have released its later steps twice, and paid once: so the account knows every checkpoint, lets the newest go on once,
and records the end before the parameters leave. There are at most about 50, at steps that public numbers allow. The
file is gone when the training is done, and locked until then, also against another thread. A seeded training that is
resumed draws what it would have drawn; one for release draws anew, as no key is ever kept.

**On a worker.** Where rows are held by a worker of a cluster (``table._whole``), the steps are run there, in one task,
and parameters come back, nothing else. What pays is here: the account is charged, or a checkpoint's state is gone on
from, before the task is sent. What draws is there: a training for release is sent without a generator or a key, and the
worker takes both from its own operating system when it runs, so nobody who sees what travels can know its noise.

A cluster may run a task twice: where a worker is lost, or where a second run is begun as a spare. Each run draws anew,
samples and noise, and none repeats what another drew. *One result is released, for one charge*: a run is a function of
fresh draws, its states stay in the worker's memory, and it hands over parameters only at its end. The cluster takes the
result of one run that ended and drops every other unread, before this process sees it. Which run that is depends on
machines, and, of two that ran side by side, on which was quicker. That is a matter of how many rows a run drew, not of
what they hold, nor of the noise; and whoever is drawn makes a run no quicker, so in the one that is taken the chance of
each row, given all else, is at most the one that was paid for. If nobody waits for the result any more, as the process
that asked was stopped, it is never read.

No state is kept while a worker trains: marks are made by the account, which is here. A checkpoint then holds what it
held when the task was sent, and goes on from there if the process is stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import positive, probability, whole
from escudo.errors import InputError
from escudo.mechanisms._purse import Purse, Release, ReleaseOptions, opened
from escudo.mechanisms.dpsgd._checkpoint import (
    Arrays,
    Kept,
    TrainingFile,
    arrays_of,
    file_held,
    found,
    go_on,
    keeping,
    state_of,
)
from escudo.privacy import (
    NeighbourOptions,
    Relation,
    RepeatedEvent,
    SampledGaussianEvent,
    Unit,
    guarantee_of,
    marked_if_failed,
)
from escudo.table import Whole

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._core import Knobs, Recipe, State
    from escudo.mechanisms.dpsgd._layers import Layout, LossFn

Floats = NDArray[np.float32]
Rows = NDArray[Any]

_PURPOSE = "DP-SGD"
_SECONDS_BETWEEN = 5.0  # checkpoints
_CHECKPOINTS = 50  # of a training, at most, but for those that resuming adds
_CLIP_NORMS = (2.0**-30, 2.0**60)  # for which ``_layers`` proves that lengths are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The public numbers of a private training.

    Attributes:
        steps: How many noisy gradients are released.
        sampling_probability: The chance of each row in each step.
        noise_multiplier: Standard deviation of the noise, over ``clip_norm``.
        clip_norm: The largest l2 norm of a row's gradient, between 10⁻⁹ and 10¹⁸.
        learning_rate: Adam's.
        decline: The share of the learning rate that is gone at the end.
        betas: Adam's memories.
        averaging: The memory of the parameters' average; 0 releases the last parameters.
    """

    steps: int
    sampling_probability: float
    noise_multiplier: float
    clip_norm: float
    learning_rate: float = 1e-3
    decline: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    averaging: float = 0.99

    def __post_init__(self) -> None:
        whole("steps", self.steps, minimum=1)
        probability("sampling_probability", self.sampling_probability, allow_zero=False, allow_one=True)
        for name in ("noise_multiplier", "clip_norm", "learning_rate"):
            positive(name, getattr(self, name))
        for name, length in (
            ("clip_norm", self.clip_norm),
            ("noise_multiplier", self.noise_multiplier * self.clip_norm),
        ):
            if not _CLIP_NORMS[0] <= length <= _CLIP_NORMS[1]:
                raise InputError(
                    f"{name} is out of range: clip_norm, and the noise of noise_multiplier times clip_norm, must lie "
                    "between 1e-9 and 1e18, as sums are added up in float32."
                )
        probability("decline", self.decline, allow_one=True)
        probability("averaging", self.averaging)
        for beta in self.betas:
            probability("betas", beta)

    def event(
        self, relation: Relation = "replace_one", unit: Unit = "row", max_rows_per_person: int | None = None
    ) -> RepeatedEvent:
        """Return what the training costs."""
        step = SampledGaussianEvent(
            noise_multiplier=self.noise_multiplier,
            sampling_probability=self.sampling_probability,
            relation=relation,
            unit=unit,
            max_rows_per_person=max_rows_per_person,
        )
        return RepeatedEvent(event=step, count=self.steps)

    def left(self, event: RepeatedEvent, done: int) -> RepeatedEvent:
        """Return what the steps cost that are left after some, of what all of them cost."""
        return replace(event, count=self.steps - done)

    @property
    def recipe(self) -> Recipe:
        """What is compiled in."""
        from escudo.mechanisms.dpsgd._core import Recipe

        return Recipe(betas=self.betas)

    def knobs(self, rows: float) -> Knobs:
        """Return what is not compiled in, for a table of this many rows, a public or a noisy number."""
        from escudo.mechanisms.dpsgd._core import Knobs

        return Knobs(
            clip_norm=np.float32(self.clip_norm),
            noise=np.float32(self.clip_norm * self.noise_multiplier),
            expected=np.float32(max(rows * self.sampling_probability, 1.0)),
            rate=np.float32(self.learning_rate),
            steps=np.float32(self.steps),
            decline=np.float32(self.decline),
            averaging=np.float32(self.averaging),
        )


class _Paid(NamedTuple):
    """What pays for a training and draws, between which tables, and the δ at which its promise is stated."""

    purse: Purse
    stated: NeighbourOptions
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Steps:
    """The steps of a training, to be taken to where the rows are: nothing in it is drawn from rows, nor for a release.

    Attributes:
        loss_fn: The network.
        layout: Where its arrays lie in the vector of parameters.
        training: The public numbers.
        expected_rows: The number of rows that gradients are divided by: public or noisy.
        seed: Decides samples and noise of a seeded training; None for one for release.
    """

    loss_fn: LossFn
    layout: Layout
    training: Training
    expected_rows: float
    seed: int | None

    def elsewhere(self, rows: Rows, *, arrays: Arrays) -> Floats:
        """Run the steps that are left from a state on, and return the parameters: on a worker that holds the rows."""
        return self.run(_numbers(rows), state_of(arrays, self.layout.size, Path("the state")), None, _nothing)

    def run(self, rows: Rows, state: State, file: TrainingFile | None, advance: Callable[[int], None]) -> Floats:
        """Run the steps that are left, and return the parameters.

        Args:
            rows: The private rows.
            state: Where to go on from.
            file: Where states are kept in between, if they are.
            advance: Is told how many steps were done, every so often.
        """
        import jax

        from escudo.mechanisms.dpsgd._core import result, run
        from escudo.mechanisms.dpsgd._sampling import Sampling, capacity_for, group_length, precision_for, slots_of

        for_release = self.seed is None
        rng = np.random.default_rng(secrets.randbits(256) if self.seed is None else self.seed)
        plan, recipe, done = self.training, self.training.recipe, int(state.step)
        public = (self.expected_rows, plan.sampling_probability)
        capacity = capacity_for(*public)
        recipe = replace(recipe, precision=precision_for(self.loss_fn, self.layout, recipe, rows, capacity))
        group = group_length(*public, capacity)
        # Empty places of slots take the first row, and do not count it: there has to be one.
        filled = rows if len(rows) else np.zeros((1, *rows.shape[1:]), rows.dtype)
        knobs = plan.knobs(self.expected_rows)
        begun = done if for_release else 0
        sampling = Sampling(len(rows), plan.sampling_probability, plan.steps - begun)
        segments = slots_of(rng, sampling, capacity, group)
        passed, shown, kept, written = begun, done, done, time.monotonic()
        for segment in segments if done < plan.steps else ():
            before, steps = passed, int(segment.last.sum())
            passed += steps
            # Only here is it said how far the training is: segments in between have as many steps as samples let.
            ended = bool(steps) and ((passed - begun) % group == 0 or passed == plan.steps)
            if before < done:  # of a seeded training: draws that the checkpoint has behind it
                continue
            if for_release:
                fresh = np.frombuffer(secrets.token_bytes(segment.key.nbytes), np.uint32)
                segment = segment._replace(key=fresh.reshape(segment.key.shape))
            batches = segment._replace(rows=filled[segment.rows])
            state = run(self.loss_fn, self.layout, recipe, None, knobs, state, batches)
            jax.block_until_ready(state)
            if ended:
                advance(passed - shown)
                shown = passed
            due = ended and passed < plan.steps and passed - kept >= plan.steps / _CHECKPOINTS
            if file is not None and due and time.monotonic() - written >= _SECONDS_BETWEEN:
                file.keep(arrays_of(state))
                kept, written = passed, time.monotonic()
        return np.asarray(result(knobs, state))


def _nothing(_: int) -> None:
    """What a worker says of its progress."""


class _Run:
    """A training under way.

    Attributes:
        event: What the training costs.
        promise: What its result promises.
    """

    def __init__(
        self,
        loss_fn: LossFn,
        layout: Layout,
        rows: Rows | Whole,
        training: Training,
        expected_rows: float,
        paid: _Paid,
    ):
        stream = paid.purse.stream
        self.layout, self.training = layout, training
        self.event = training.event(**paid.stated)
        self.promise = guarantee_of(self.event, delta=paid.delta, for_release=paid.purse.for_release)
        here = rows.rows if isinstance(rows, Whole) else rows
        self._rows = rows if here is None else _numbers(here)
        self._steps = _Steps(
            loss_fn=loss_fn,
            layout=layout,
            training=training,
            expected_rows=positive("expected_rows", expected_rows),
            # One draw, so that a caller's generator moves on by the same amount whatever is trained.
            seed=None if stream is None else int(stream.integers(0, 2**63)),
        )

    def go(self, state: State, file: TrainingFile | None) -> Floats:
        """Run the steps that are left, and return the parameters, which may leave once the account knows of the end."""
        left = self.training.steps - int(state.step)
        if file is not None:
            file.about["training"] = self.fingerprint
        if not isinstance(self._rows, Whole):
            with tracking("Training", total=left) as advance:
                return self._steps.run(self._rows, state, file, advance)
        with tracking(f"Training on a worker of {self._rows.engine}", total=left) as advance:
            value = self._rows.found(partial(self._steps.elsewhere, arrays=arrays_of(state)))
            advance(left)
        return value

    @property
    def fingerprint(self) -> str:
        event = json.dumps(self.event.to_json())
        facts = [asdict(self.training), list(self.layout.shapes), self._steps.expected_rows, event]
        return hashlib.sha256(json.dumps(facts, default=list).encode()).hexdigest()

    def state(self, kept: Kept | TrainingFile) -> State:
        """Return the state to go on from.

        Raises:
            InputError: If it is of another training.
        """
        if kept.about.get("training") != self.fingerprint:
            raise InputError(f"{kept.path} is the checkpoint of another training.")
        return state_of(kept.arrays, self.layout.size, kept.path)

    def released(self, state: State, file: TrainingFile | None, *, ending: bool = True) -> Release[Floats]:
        """Run the steps that are left, and let the parameters leave; the end is recorded first, if it is ours to."""
        value = self.go(state, file)
        if file is not None and ending:
            file.finish()
            file.path.unlink(missing_ok=True)  # it has done its duty
        return Release(value=value, guarantee=self.promise, event=self.event)


def train(
    loss_fn: LossFn,
    layout: Layout,
    start: Floats,
    rows: Rows | Whole,
    training: Training,
    *,
    expected_rows: float,
    delta: float,
    checkpoint: str | os.PathLike[str] | TrainingFile | None = None,
    **terms: Unpack[ReleaseOptions],
) -> Release[Floats]:
    """Train a network by DP-SGD and release its parameters.

    Args:
        loss_fn: The network: a tape, a batch of rows and a key give one loss per row. Hashable.
        layout: Where its arrays lie in the vector of parameters.
        start: The parameters to start from: public, or themselves released.
        rows: The private rows, an array whose first axis runs over them; or a table's
            (:meth:`~escudo.table.PrivateTable.in_one_place`), which may be on a worker: then the training runs there.
        training: The public numbers.
        expected_rows: The number of rows that gradients are divided by: public or noisy.
        delta: The δ at which the guarantee is stated.
        checkpoint: A file to keep the state in between steps, for :func:`resume`; gone when the training is done; on a
            worker none is kept. It needs an account in a ledger, which knows each state, so that no copy of it is worth
            anything; one in memory knows them while the process lasts. Whoever keeps more than a training gives the
            :class:`~escudo.mechanisms.dpsgd._checkpoint.TrainingFile` in which that is kept, and sees to the lock, the
            charge and the end.
        terms: How it is paid for and drawn, and between which tables: account, seed, purpose, relation, unit and
            ``max_rows_per_person`` (:class:`~escudo.mechanisms.ReleaseOptions`).

    Returns:
        The parameters, averaged over the last steps.

    Raises:
        InputError: If the arguments do not go together, a checkpoint has no account, or another training uses it;
            nothing was spent. Or if the training was resumed elsewhere meanwhile: then that one may end, and not this.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.
    """
    from escudo.mechanisms.dpsgd._core import first_state

    if np.shape(start) != (layout.size,) or not np.isfinite(start).all():
        raise InputError(f"start must be a vector of {layout.size} finite parameters.")
    purse, stated = opened(terms, _PURPOSE, bound_of_account=False)
    run = _Run(loss_fn, layout, rows, training, expected_rows, _Paid(purse, stated, delta))
    if isinstance(checkpoint, TrainingFile):
        state = run.state(checkpoint) if checkpoint.arrays else first_state(start)
        return run.released(state, checkpoint, ending=False)
    if checkpoint is None:
        with purse.paying(run.event):
            return run.released(first_state(start), None)
    account, path = keeping(purse.account), Path(checkpoint)
    with file_held(path), purse.paying(run.event) as receipt:
        assert receipt is not None, "there is an account"
        return run.released(first_state(start), TrainingFile(path, account, receipt))


def resume(
    checkpoint: str | os.PathLike[str],
    loss_fn: LossFn,
    layout: Layout,
    rows: Rows | Whole,
    training: Training,
    *,
    expected_rows: float,
    delta: float,
    again: bool = False,
    **terms: Unpack[ReleaseOptions],
) -> Release[Floats]:
    """Finish a training that :func:`train` began and charged for; nothing is charged again.

    The file is gone when the training is done, and neither it nor a copy of it can go on twice, so that no step is
    ever released twice for one charge.

    Args:
        checkpoint: The file that the training left.
        loss_fn: As for :func:`train`, and so for all that follow.
        layout: Where the network's arrays lie.
        rows: The same private rows.
        training: The same public numbers.
        expected_rows: The same number of rows.
        delta: The δ at which the guarantee is stated.
        again: Whether to pay once more for the steps that are left where they cannot be had for nothing: the file is
            not the newest, or was resumed and then stopped before its next checkpoint, or the training has ended.
        terms: As for :func:`train`: the account that paid for the training, which there has to be, and the seed that it
            had; the purpose is for the account, if that is charged again.

    Raises:
        InputError: If there is no such file, it belongs to another training or account, another training uses it, or
            the account does not let it go on: says why, and what it would cost to pay again. Nothing was spent.
        BudgetExceededError: If what is left cannot be paid for again; nothing was spent.
    """
    purse, stated = opened(terms, _PURPOSE, bound_of_account=False)
    path, account = Path(checkpoint), keeping(purse.account)
    run = _Run(loss_fn, layout, rows, training, expected_rows, _Paid(purse, stated, delta))
    with file_held(path):
        kept = found(path, account)
        if kept is None or not kept.arrays:
            raise InputError(f"{path} is no readable checkpoint.")
        state = run.state(kept)
        left = training.left(run.event, kept.done)
        paying: dict[str, Any] = {"for_release": purse.for_release, "purpose": terms.get("purpose", _PURPOSE)}
        file = go_on(kept, account, left, delta=delta, again=again, **paying)
        with marked_if_failed(account, file.receipt):
            return run.released(state, file)


def _numbers(rows: Rows) -> Rows:
    """Return the rows as an array of numbers that jax takes as they are.

    A number that is too large for float32 becomes infinity, and its row is left out of sums; numpy would warn of it,
    and say that there is such a row.
    """
    table = np.asarray(rows)
    if table.ndim == 0 or table.dtype.kind not in "biuf":
        raise InputError(f"rows must be an array of real numbers whose first axis runs over rows; got {table.dtype}.")
    with np.errstate(all="ignore"):
        return table.astype(np.float32) if table.dtype.kind == "f" else table
