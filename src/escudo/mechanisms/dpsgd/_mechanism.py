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
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo._validate import positive, probability, whole
from escudo.errors import InputError
from escudo.mechanisms._noise import Seed, SeededNoise, noise_source
from escudo.mechanisms._purse import Release
from escudo.mechanisms.dpsgd._checkpoint import (
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
    Account,
    NeighbourOptions,
    Relation,
    RepeatedEvent,
    SampledGaussianEvent,
    Unit,
    guarantee_of,
    marked_if_failed,
)

if TYPE_CHECKING:
    from escudo.mechanisms.dpsgd._core import Knobs, Recipe, State
    from escudo.mechanisms.dpsgd._layers import Layout, LossFn

Floats = NDArray[np.float32]
Rows = NDArray[Any]

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


@dataclass(slots=True, kw_only=True)
class _Run:
    """A training under way.

    Attributes:
        rng: Where samples come from, and the keys of a seeded training.
        for_release: Whether keys come from the operating system.
        event: What the training costs, as JSON.
    """

    loss_fn: LossFn
    layout: Layout
    training: Training
    rows: Rows
    expected_rows: float
    rng: np.random.Generator
    for_release: bool
    event: str

    def go(self, state: State, file: TrainingFile | None) -> Floats:
        """Run the steps that are left, and return the parameters, which may leave once the account knows of the end."""
        import jax

        from escudo.mechanisms.dpsgd._core import result, run
        from escudo.mechanisms.dpsgd._precision import precision_for
        from escudo.mechanisms.dpsgd._sampling import capacity_for, group_length, slots_of

        plan, recipe, done = self.training, self.training.recipe, int(state.step)
        public = (self.expected_rows, plan.sampling_probability)
        capacity = capacity_for(*public)
        recipe = replace(recipe, precision=precision_for(self.loss_fn, self.layout, recipe, self.rows, capacity))
        group = group_length(*public, capacity)
        # Empty places of slots take the first row, and do not count it: there has to be one.
        filled = self.rows if len(self.rows) else np.zeros((1, *self.rows.shape[1:]), self.rows.dtype)
        knobs = plan.knobs(self.expected_rows)
        segments = slots_of(
            self.rng,
            rows=len(self.rows),
            probability=plan.sampling_probability,
            steps=plan.steps - done if self.for_release else plan.steps,
            capacity=capacity,
            group=group,
        )
        begun = done if self.for_release else 0
        passed, shown, kept, written = begun, done, done, time.monotonic()
        if file is not None:
            file.about["training"] = self.fingerprint
        with tracking("Training", total=plan.steps - done) as advance:
            for segment in segments if done < plan.steps else ():
                before, steps = passed, int(segment.last.sum())
                passed += steps
                # Only here is it said how far the training is: segments in between have as many steps as samples let.
                ended = bool(steps) and ((passed - begun) % group == 0 or passed == plan.steps)
                if before < done:  # of a seeded training: draws that the checkpoint has behind it
                    continue
                if self.for_release:
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

    @property
    def fingerprint(self) -> str:
        facts = [asdict(self.training), list(self.layout.shapes), self.expected_rows, self.event]
        return hashlib.sha256(json.dumps(facts, default=list).encode()).hexdigest()


def train(
    loss_fn: LossFn,
    layout: Layout,
    start: Floats,
    rows: Rows,
    training: Training,
    *,
    expected_rows: float,
    delta: float,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "DP-SGD",
    checkpoint: str | os.PathLike[str] | TrainingFile | None = None,
    **terms: Unpack[NeighbourOptions],
) -> Release[Floats]:
    """Train a network by DP-SGD and release its parameters.

    Args:
        loss_fn: The network: a tape, a batch of rows and a key give one loss per row. Hashable.
        layout: Where its arrays lie in the vector of parameters.
        start: The parameters to start from: public, or themselves released.
        rows: The private rows, an array whose first axis runs over them.
        training: The public numbers.
        expected_rows: The number of rows that gradients are divided by: public or noisy.
        delta: The δ at which the guarantee is stated.
        account: What to charge, before anything is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes it repeatable and not for release.
        purpose: Why, for the account.
        checkpoint: A file to keep the state in between steps, for :func:`resume`; gone when the training is done. It
            needs an account in a ledger, which knows each state, so that no copy of it is worth anything; one in memory
            knows them while the process lasts. Whoever keeps more than a training gives the
            :class:`~escudo.mechanisms.dpsgd._checkpoint.TrainingFile` in which that is kept, and sees to the lock, the
            charge and the end.
        terms: The ``relation``, ``unit`` and ``max_rows_per_person``, see :class:`~escudo.privacy.NeighbourOptions`.

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
    event = training.event(**terms)
    noise = noise_source(seed)
    promise = guarantee_of(event, delta=delta, for_release=noise.for_release)
    run = _started(loss_fn, layout, rows, training, expected_rows, noise, event)
    if isinstance(checkpoint, TrainingFile):
        value = run.go(_state(run, checkpoint) if checkpoint.arrays else first_state(start), checkpoint)
        return Release(value=value, guarantee=promise, event=event)
    marking = None if checkpoint is None else keeping(account)
    with nullcontext() if checkpoint is None else file_held(Path(checkpoint)):
        receipt = None if account is None else account.spend(event, purpose=purpose, for_release=noise.for_release)
        with nullcontext() if account is None else marked_if_failed(account, receipt):
            file = None
            if checkpoint is not None and marking is not None and receipt is not None:
                file = TrainingFile(path=Path(checkpoint), account=marking, receipt=receipt, about={}, arrays={})
            value = _ended(run.go(first_state(start), file), file)
    return Release(value=value, guarantee=promise, event=event)


def resume(
    checkpoint: str | os.PathLike[str],
    loss_fn: LossFn,
    layout: Layout,
    rows: Rows,
    training: Training,
    *,
    expected_rows: float,
    delta: float,
    account: Account,
    seed: Seed = None,
    purpose: str = "DP-SGD",
    again: bool = False,
    **terms: Unpack[NeighbourOptions],
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
        account: What paid for the training.
        seed: None for a release, or what the training had.
        purpose: Why, for the account, if it is charged.
        again: Whether to pay once more for the steps that are left where they cannot be had for nothing: the file is
            not the newest, or was resumed and then stopped before its next checkpoint, or the training has ended.
        terms: As for :func:`train`.

    Raises:
        InputError: If there is no such file, it belongs to another training or account, another training uses it, or
            the account does not let it go on: says why, and what it would cost to pay again. Nothing was spent.
        BudgetExceededError: If what is left cannot be paid for again; nothing was spent.
    """
    event = training.event(**terms)
    noise = noise_source(seed)
    path, marking = Path(checkpoint), keeping(account)
    run = _started(loss_fn, layout, rows, training, expected_rows, noise, event)
    promise = guarantee_of(event, delta=delta, for_release=noise.for_release)
    with file_held(path):
        kept = found(path, marking)
        if kept is None or not kept.arrays:
            raise InputError(f"{path} is no readable checkpoint.")
        state = _state(run, kept)
        left = training.left(event, kept.done)
        paying: dict[str, Any] = {"for_release": noise.for_release, "purpose": purpose}
        file = go_on(kept, marking, left, delta=delta, again=again, **paying)
        with marked_if_failed(account, file.receipt):
            value = _ended(run.go(state, file), file)
    return Release(value=value, guarantee=promise, event=event)


def _state(run: _Run, kept: Kept | TrainingFile) -> State:
    """Return the state that a training goes on from.

    Raises:
        InputError: If it is of another training.
    """
    if kept.about.get("training") != run.fingerprint:
        raise InputError(f"{kept.path} is the checkpoint of another training.")
    return state_of(kept.arrays, run.layout.size, kept.path)


def _ended(value: Floats, file: TrainingFile | None) -> Floats:
    """Let the parameters leave, once it is recorded; the file has done its duty."""
    if file is not None:
        file.finish()
        file.path.unlink(missing_ok=True)
    return value


def _started(
    loss_fn: LossFn,
    layout: Layout,
    rows: Rows,
    training: Training,
    expected_rows: float,
    noise: Any,
    event: RepeatedEvent,
) -> _Run:
    seeded = isinstance(noise, SeededNoise)
    # One draw, so that a caller's generator moves on by the same amount whatever is trained.
    entropy = int(noise.generator.integers(0, 2**63)) if seeded else secrets.randbits(256)
    return _Run(
        loss_fn=loss_fn,
        layout=layout,
        training=training,
        rows=_numbers(rows),
        expected_rows=positive("expected_rows", expected_rows),
        rng=np.random.default_rng(entropy),
        for_release=not seeded,
        event=json.dumps(event.to_json()),
    )


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
