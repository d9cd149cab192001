r"""Replay: what would the noise have been added to, had one record been different? The counterfactual rung.

A mechanism built on :mod:`escudo.mechanisms` is run on d, and every number that noise is added to is recorded with the
noisy answer. Then it is run on d′ with the same exogenous noise, except that each noisy answer is held at what it was:
do(answer = a). That is what composition conditions on, so later steps that depend on earlier answers stay comparable.
Two things can then be seen, deterministically, in two runs:

* how far the record moves what goes *into* each noise primitive, against what its event declares. In grid steps, with
  inputs k and k′ and scale s: :math:`\|k - k'\|_1 / s` for Laplace noise, :math:`\|k - k'\|_2^2 / 2s^2` (ρ) for
  Gaussian noise, and :math:`(\max - \min)(k - k') / s` for a noisy choice, since adding the same to all candidates
  changes nothing;
* whether anything goes *around* the noise: with all noisy answers held, the output must not change at all.

It finds wrong sensitivities and leaks, not wrong noise: that is what experiments are for.

Reference:
    "Re:cord-play", arXiv:2602.17454, for the idea; here it is a query of the structural equation model.

Where a mechanism or model is so small that its ε can be computed, :func:`exact` does: the third rung, with the same
kind of answer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from escudo._card import card
from escudo._validate import positive_integer, whole
from escudo.auditing._outputs import Encoder
from escudo.auditing._pairs import read_pairs
from escudo.auditing._result import show_dataset
from escudo.auditing._targets import Failure, Mechanism, adapt, own_copy, run_one
from escudo.effects import CountMechanism, Effect, Witness, definitions, effect, show_epsilon
from escudo.effects import Mechanism as FiniteMechanism
from escudo.errors import InputError
from escudo.mechanisms import Integers, NoiseSource, watching
from escudo.privacy import ApproximateEvent, Event, GaussianEvent, RunningTotal

_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One release inside a mechanism: what its event declares, and what the changed record did.

    Attributes:
        kind: The kind of its event.
        unit: ``"ε"`` or ``"ρ"``.
        declared: The loss that was charged.
        actual: The loss that the changed record causes.
        words: What else there is to say.
    """

    kind: str
    unit: Literal["ε", "ρ"]
    declared: float
    actual: float
    words: str = ""

    @property
    def violated(self) -> bool:
        """Whether the record did more than was declared."""
        return self.actual > self.declared * _ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What replays of a mechanism showed.

    Attributes:
        steps: The releases of the worst pair, in order.
        leak: Whether the output changed although every noisy answer was held.
        pair: The label of the worst pair.
        inputs: Its two datasets, in few words.
        pairs: How many pairs were replayed.
        raised: The type of the error with which the runs ended, if they did.
    """

    steps: tuple[Step, ...]
    leak: bool
    pair: str
    inputs: tuple[str, str]
    pairs: int
    raised: str = ""

    @property
    def violated(self) -> bool:
        """Whether something went around the noise, or moved its input by more than declared."""
        return self.leak or any(step.violated for step in self.steps)

    @property
    def effect(self) -> Effect:
        """The loss of the transcript that was replayed; ρ steps count at ε = ρ + 2√(ρ ln 10⁶)."""
        epsilon = (
            math.inf
            if self.leak
            else math.fsum(
                step.actual if step.unit == "ε" else step.actual + 2 * math.sqrt(step.actual * math.log(1e6))
                for step in self.steps
            )
        )
        first, second = self.inputs
        return Effect(
            epsilon=epsilon,
            witness=Witness(
                y={"event": "the output, all noisy answers held"} if self.leak else {"event": "the noisy answers"},
                x1={"data": second},
                x2={"data": first},
            ),
            known="measured",
            of=("one record",),
            on=("the output",),
            population="the input pairs tried",
            delta=1e-6 if any(step.unit == "ρ" for step in self.steps) and not self.leak else 0.0,
        )

    @property
    def verdict(self) -> str:
        """The finding in one sentence."""
        if self.leak:
            return (
                "VIOLATED: with every noisy answer held, the output still changed: data goes around the noise "
                f"({self.pair})."
            )
        for i, step in enumerate(self.steps):
            if step.violated:
                return (
                    f"VIOLATED: step {i + 1} ({step.kind}) declares {step.unit} = {show_epsilon(step.declared)}, but "
                    f"the changed record costs {show_epsilon(step.actual)} ({self.pair})."
                )
        steps = f"{len(self.steps)} step" + "s" * (len(self.steps) != 1)
        ended = f" The runs ended with a {self.raised}: nothing after it was looked at." if self.raised else ""
        return (
            f"No violation found in {self.pairs} replayed pair{'s' if self.pairs > 1 else ''}: nothing goes around the "
            f"noise, and its inputs moved no more than declared in {steps}.{ended}"
        )

    def __str__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return card(
            "Replay",
            self.verdict,
            head=("step", "declared", "moved"),
            rows=[(s.kind, f"{s.unit} = {show_epsilon(s.declared)}", show_epsilon(s.actual)) for s in self.steps],
            alarm=self.violated,
        )


def replay(mechanism: Any, pairs: Sequence[tuple[Any, ...]], *, seed: int = 0, repeats: int = 3) -> Replay:
    """Replay a mechanism on neighbours with the same noise, and compare what went into the noise.

    Args:
        mechanism: Built on :mod:`escudo.mechanisms`; called as ``mechanism(dataset, rng)``, or as
            :func:`~escudo.auditing.adapt` says. Its own randomness must come from ``rng``.
        pairs: Neighbouring datasets (d, d′) or (d, d′, label).
        seed: Of the noise.
        repeats: How many noises to try on each pair, because later steps depend on earlier answers.

    Returns:
        The pair with the worst finding.

    Raises:
        InputError: If no noise is drawn at all through ``escudo.mechanisms``.

    >>> from escudo.mechanisms import laplace
    >>> def total(incomes, rng):  # one income moves the sum by 10, not by 1
    ...     return laplace(sum(incomes), sensitivity=1, epsilon=1.0, seed=rng).value
    >>> print(replay(total, [([0, 5], [10, 5])]))
    VIOLATED: step 1 (laplace) declares ε = 1.00, but the changed record costs 10.00 (pair 1).
    """
    run = adapt(mechanism)
    chosen = read_pairs(pairs)
    worst: tuple[float, Replay] | None = None
    drawn, raised = 0, ""
    for first, second, label in chosen:
        for repeat in range(positive_integer("repeats", repeats)):
            found = _replay_one(run, (first, second), label, [whole("seed", seed), repeat], len(chosen))
            drawn += len(found.steps)
            raised = raised or found.raised
            excess = max((step.actual / step.declared if step.declared else 0.0 for step in found.steps), default=0.0)
            rank = math.inf if found.leak else excess
            if worst is None or rank > worst[0]:
                worst = rank, found
    assert worst is not None
    if not drawn and not worst[1].leak:
        why = f"; it raised {raised}" if raised else ""
        raise InputError(
            f"the mechanism drew no noise through escudo.mechanisms, so there is nothing to replay{why}. Audit it by "
            "experiment instead."
        )
    return worst[1]


def _replay_one(run: Mechanism, pair: tuple[Any, Any], label: str, seed: list[int], pairs: int) -> Replay:
    transcript = Transcript()
    outputs = []
    for second, dataset in enumerate(pair):
        transcript.begin(again=bool(second))
        with watching(transcript.watch):
            outputs.append(run_one(run, own_copy(dataset)(), np.random.default_rng(seed)))
    encoded = Encoder().encode(outputs)
    same = bool(encoded.codes[0] == encoded.codes[1]) and np.array_equal(
        encoded.values[0], encoded.values[1], equal_nan=True
    )
    return Replay(
        steps=tuple(transcript.steps()),
        leak=not transcript.excused and (transcript.broken or transcript.unplayed or not same),
        pair=label,
        inputs=(show_dataset(pair[0]), show_dataset(pair[1])),
        pairs=pairs,
        raised=outputs[0].kind if isinstance(outputs[0], Failure) else "",
    )


@dataclass(slots=True)
class _Draw:
    kind: Literal["laplace", "gaussian", "choice"]
    integers: Integers
    scale: float
    answer: Any
    moved: float | None = None  # the loss, filled in by a second run


@dataclass(slots=True)
class _Release:
    event: Event
    draws: list[_Draw] = field(default_factory=list)

    @property
    def moved(self) -> float:
        return math.fsum(draw.moved or 0.0 for draw in self.draws)


class Transcript:
    """The releases of a first run, held against those of a second.

    Attributes:
        releases: What the first run released, in order.
        broken: Whether the second run took another way, with the same answers; ``why`` says which.
        excused: Whether an event's δ allows for that.
        unlike: Set while a release's numbers are as many as the table says, and its value is held by the caller.
    """

    def __init__(self) -> None:
        self.releases: list[_Release] = []
        self.unlike = False
        self.begin(again=False)

    def begin(self, *, again: bool) -> None:
        """Start the first run, or another one on a neighbour."""
        self._again = again
        self._next = iter(self.releases)
        self._played = 0
        self.why = ""
        self.excused = False
        for draw in (draw for release in self.releases for draw in release.draws):
            draw.moved = None

    @property
    def broken(self) -> bool:
        """Whether the second run took another way, with the same answers."""
        return bool(self.why)

    @property
    def unplayed(self) -> bool:
        """Whether the second run released less than the first."""
        if not self._again:
            return False
        # An event's δ may allow for fewer draws within it, as where a test does not pass.
        certain = [release for release in self.releases if not isinstance(release.event, ApproximateEvent)]
        return self._played < len(self.releases) or any(d.moved is None for release in certain for d in release.draws)

    def watch(self, source: NoiseSource, event: object) -> NoiseSource:
        """Return a source that records, or one that holds answers."""
        assert isinstance(event, Event)
        if not self._again:
            self.releases.append(_Release(event))
            return _Recorder(source, self.releases[-1])
        release = next(self._next, None)
        self._played += 1
        if release is None:
            self.why = self.why or f"a further release ({event.kind})"
        elif release.event != event:
            self.why = self.why or f"another release ({event.kind}) than before ({release.event.kind})"
        if self.broken or release is None:
            return source
        if self.unlike:
            for draw in release.draws:
                draw.moved = 0.0
            return source
        return _Player(source, release, self)

    def steps(self) -> Iterator[Step]:
        """Yield each release with what was declared and what happened."""
        for release in self.releases:
            event = release.event
            if isinstance(event, GaussianEvent):
                yield Step(kind=event.kind, unit="ρ", declared=event.rho, actual=release.moved)
            else:
                delta = event.delta if isinstance(event, ApproximateEvent) else 0.0
                yield Step(
                    kind=event.kind,
                    unit="ε",
                    declared=RunningTotal.of(event).epsilon(delta),
                    actual=release.moved,
                    words="part of it is covered by δ and not compared" if self.excused and delta else "",
                )


class _Source(ABC):
    for_release: ClassVar[bool] = False

    def add_laplace(self, integers: Integers, scale: float) -> Integers:
        """Return the integers plus noise, as the first run did."""
        return self._draw("laplace", integers, scale, "add_laplace")  # type: ignore[no-any-return]

    def add_gaussian(self, integers: Integers, scale: float) -> Integers:
        """Return the integers plus noise, as the first run did."""
        return self._draw("gaussian", integers, scale, "add_gaussian")  # type: ignore[no-any-return]

    def gumbel_argmax(self, integers: Integers, scale: float) -> int:
        """Return a noisy choice, as the first run did."""
        return int(self._draw("choice", integers, scale, "gumbel_argmax"))

    def exponential_argmax(self, integers: Integers, scale: float) -> int:
        """Return a noisy choice, as the first run did."""
        return int(self._draw("choice", integers, scale, "exponential_argmax"))

    @abstractmethod
    def _draw(self, kind: Any, integers: Integers, scale: float, method: str) -> Any: ...


class _Recorder(_Source):
    def __init__(self, source: NoiseSource, release: _Release) -> None:
        self._source, self._release = source, release

    def _draw(self, kind: Any, integers: Integers, scale: float, method: str) -> Any:
        answer = getattr(self._source, method)(integers, scale)
        self._release.draws.append(_Draw(kind, integers.copy(), scale, answer))
        return answer


class _Player(_Source):
    def __init__(self, source: NoiseSource, release: _Release, transcript: Transcript) -> None:
        self._source, self._transcript = source, transcript
        self._allowed = isinstance(release.event, ApproximateEvent)
        self._draws = iter(release.draws)

    def _draw(self, kind: Any, integers: Integers, scale: float, method: str) -> Any:
        # The noise is drawn all the same, so that a generator shared with other steps stays in step.
        own = getattr(self._source, method)(integers, scale)
        draw = next(self._draws, None)
        if draw is None or (draw.kind, draw.integers.size, draw.scale) != (kind, integers.size, scale):
            self._transcript.why = f"noise on other numbers ({kind})"
            self._transcript.excused |= self._allowed
            return own
        draw.moved = _loss(kind, draw.integers, integers, scale)
        return draw.answer


def _loss(kind: str, first: Integers, second: Integers, scale: float) -> float:
    moved = (first - second).astype(np.float64)
    if kind == "laplace":
        return float(np.abs(moved).sum() / scale)
    if kind == "gaussian":
        return float((moved**2).sum() / (2 * scale**2))
    return float((moved.max() - moved.min()) / scale)


def exact(mechanism: Any, *, of: str | Iterable[str] | None = None, on: str | Iterable[str] | None = None) -> Effect:
    """Return the exact effect of one data point on the output of a finite mechanism.

    Args:
        mechanism: A table of output probabilities, one axis per data point and one for the output; a
            :class:`~escudo.effects.Mechanism` or :class:`~escudo.effects.CountMechanism`; or a structural equation
            model, for which ``of`` and ``on`` say whose effect on what.
        of: The variables that are changed, for a model.
        on: The variables that are observed, for a model.

    Returns:
        An exact :class:`~escudo.effects.Effect`: the ε that an experiment's lower bound must not exceed.

    Raises:
        InputError: If a model comes without ``of`` and ``on``, or a table with them.

    >>> round(exact([[0.75, 0.25], [0.25, 0.75]]).epsilon, 4)
    1.0986
    """
    from escudo.causal import SEM

    if isinstance(mechanism, SEM):
        if of is None or on is None:
            raise InputError("a model needs of= and on=: whose effect on what.")
        return effect(mechanism, of, on)
    if of is not None or on is not None:
        raise InputError("of= and on= are for models; a table has data points and one output.")
    found = definitions(mechanism)[1]
    points = mechanism.points if isinstance(mechanism, FiniteMechanism) else ()
    many = isinstance(mechanism, CountMechanism) or len(points) != 1
    return Effect(
        epsilon=found.epsilon,
        witness=found.witness,
        known="exact",
        of=("one data point",) if many else points,
        on=("the output",),
    )
