"""Audits: a randomised experiment on a mechanism, with evidence that may be looked at after every run.

:func:`audit` makes a frozen question of its arguments and runs it: a runner makes blocks of runs or reads them from a
log, evidence bets on them, and the run decides whose turn it is, and when to look, to learn and to stop.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import positive, positive_integer, probability, whole
from escudo.auditing._bounds import Power, best_event, power_of
from escudo.auditing._cells import Cells
from escudo.auditing._experiment import Experiment, Rounds
from escudo.auditing._http import HttpTarget
from escudo.auditing._outputs import Encoded, Encoder, Labels, LoggedBlock, Sample, TrialLog
from escudo.auditing._pairs import GIVEN_UP, NewQuestions, Pair, Repeats, fingerprints, pairs_of, read_pairs
from escudo.auditing._result import Audit, History, Stopped, show_outputs, show_witness
from escudo.auditing._targets import Mechanism, Uncounted, adapt, name_of, own_copy, run_batch, run_one
from escudo.auditing._wealth import (
    Book,
    Frontier,
    Points,
    coarse_family,
    epsilon_family,
    front_of,
    log_sum,
    own_family,
)
from escudo.errors import InputError
from escudo.privacy import Guarantee
from escudo.table import Schema

Progress = Callable[[int, float, float | None], None]

_EVERY_RUN = 4096  # blocks up to this size are checked after every run, larger ones at their end
_BLOCK_NUMBERS = 2_000_000  # numbers that one block of outputs may hold
_SLOW_BLOCK = 0.5  # seconds that one block of single calls may take
_FAILED = 100  # runs that all failed in the same few ways are enough,
_FAILED_ANYHOW = 1000  # or so many that failed in any, if nothing can be told from them
_FEW_WAYS = 3
_FEW_BETS = 24  # new questions from which hardly anything can be told
_NEVER_TWICE = 0.1  # part of the outputs that may be texts that came once, for what would have been seen to be known
_CURVE = (0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1)  # δ at which ε is bounded, if an audit runs on


def audit(
    mechanism: Any = None,
    *,
    claim: Guarantee,
    pairs: Sequence[tuple[Any, ...]] | None = None,
    schema: Schema | None = None,
    target: str | None = None,
    confidence: float = 0.95,
    max_runs: int = 100_000,
    max_seconds: float | None = None,
    stop_early: bool = True,
    seed: int | None = None,
    log: str | os.PathLike[str] | None = None,
    features: Callable[[Any], Any] | None = None,
    noiseless: Callable[[Any], Any] | None = None,
    last_bits: bool = True,
    memoryless: bool = False,
    workers: int = 1,
    on_progress: Progress | None = None,
    progress: bool = True,
) -> Audit:
    r"""Measure how much one record changes a mechanism's output, and test what the mechanism claims.

    Every run assigns do(Dᵢ = d) or do(Dᵢ = d′) by a fair coin, calls the mechanism and bets on the coin at odds that
    are fair if the claim holds. Wealth of 1/α refutes the claim at confidence 1 - α, whenever that happens.

    Args:
        mechanism: ``mechanism(dataset, rng) -> output``, with ``mechanism.batch(dataset, count, rng)`` for speed; or
            anything that :func:`~escudo.auditing.adapt` takes. Each call gets its own copy of the dataset. Coroutines
            are awaited, iterators read to their end. An exception is an output. If it has ``notes``, a sequence of
            sentences, they are passed on.
        claim: What is promised: ε, (ε, δ), ρ, μ or a curve; its relation decides which pairs are made from a schema.
        pairs: Neighbouring datasets (d, d′), each with a label if wanted: (d, d′, label).
        schema: Make the pairs from this public description instead, see :func:`~escudo.auditing.pairs_of`.
        target: The URL of a service to audit instead of a mechanism.
        confidence: Of all statements together.
        max_runs: Most calls of the mechanism, those that do not count included, over all pairs.
        max_seconds: Most time; None for no limit.
        stop_early: Whether to stop as soon as the claim is refuted; if not, all runs go into the bound on ε, and ε is
            bounded at other δ too (``curve``).
        seed: Repeats an audit of a mechanism that takes its noise from ``rng``; drawn and recorded if None.
        log: A file that records every assignment and output; if it exists, the audit goes on from there.
        features: What to look at in an output, if the outputs themselves are not it.
        noiseless: The answer without noise, from a dataset, if known: helps to find rounding and exact answers.
        last_bits: Whether to look at the last bits of floats. They give away noise that was added in floating point,
            whatever its law; False takes floats as the real numbers they stand for.
        memoryless: Whether it is known that the mechanism keeps nothing between calls. If not, a mechanism that always
            gives the same answer to the same question is asked new ones, see :mod:`escudo.auditing._pairs`. A mechanism
            with ``batch`` says that its outputs are independent, and needs no such word.
        workers: How many calls are made at a time, in threads, for slow services. With δ = 0 calls may even influence
            each other; with δ > 0 the guarantee holds if calls that are made at the same time do not.
        on_progress: Called as ``on_progress(runs, epsilon_lower, runs_to_decide)``; the last is an estimate or None.
        progress: Whether to show a bar.

    Returns:
        The :class:`Audit`; ``print`` it for the verdict.

    Raises:
        InputError: If an argument is not usable, or an output has no value to look at, such as a function.

    **Guarantee.** If the claim is true of the mechanism at every run, whatever happened before, it is called violated
    with probability at most 1 - confidence; ``epsilon_lower`` exceeds the mechanism's ε with probability at most
    1 - confidence. Proof in :mod:`escudo.auditing._wealth`. Runs need not be independent: a service may drift. A claim
    in ε, μ or ρ is called violated when every smaller value is refuted too, so that the bound is never below it.

    *With several workers*, a block of runs is made at once, with bets fixed before. Let o be all outputs of the block,
    and suppose that, whatever the other datasets of the block, one dataset changes the law of o by a factor of at most
    e^ε. Given o and the other coins, a coin then is 1 with probability q between 1/(1+e^ε) and e^ε/(1+e^ε), by Bayes'
    rule, so that q - e^ε(1-q) ≤ 0 and (1-q) - e^ε q ≤ 0: each bet of the block is unfavourable given all the others,
    and the product of their factors has mean at most 1. □

    >>> def noisy_count(rows, rng):  # claims ε = 1, but adds half the noise
    ...     return len(rows) + rng.laplace(scale=0.5)
    >>> found = audit(noisy_count, claim=Guarantee(epsilon=1.0), pairs=[([1], [1, 1])], seed=1, max_runs=5000)
    >>> found.violated, 1 <= found.epsilon_lower <= 2
    (True, True)
    """
    if target is not None:
        if mechanism is not None:
            raise InputError("give a mechanism or the URL of a target, not both.")
        mechanism = HttpTarget(target)
    if (pairs is None) == (schema is None):
        raise InputError("give pairs of neighbouring datasets, or a schema to make them from; exactly one of the two.")
    if schema is not None:
        chosen = pairs_of(schema, relation=claim.relation, unit=claim.unit)
    else:
        chosen = read_pairs(pairs or ())
    question = _Question(
        mechanism=adapt(mechanism),
        name=name_of(mechanism),
        pairs=tuple(chosen),
        claim=claim,
        confidence=probability("confidence", confidence, allow_zero=False),
        max_runs=positive_integer("max_runs", max_runs),
        max_seconds=math.inf if max_seconds is None else positive("max_seconds", max_seconds),
        stop_early=stop_early,
        seed=secrets.randbits(48) if seed is None else whole("seed", seed),
        seen=_Seen(features, noiseless, last_bits),
        memoryless=memoryless,
        workers=positive_integer("workers", workers),
    )
    return _Run(question, log).go(on_progress, show=progress)


# ---- what is asked


class _Seen(NamedTuple):
    """What is looked at in outputs: features of them or they themselves, from where, and how closely."""

    features: Callable[[Any], Any] | None
    noiseless: Callable[[Any], Any] | None
    last_bits: bool

    def references(self, *datasets: Any) -> list[NDArray[np.float64]]:
        """Return the answers without noise, where they are known."""
        if self.noiseless is None:
            return []
        return [Encoder().encode([self.noiseless(dataset)]).values[0] for dataset in datasets]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    """What :func:`audit` was asked, with its arguments checked."""

    mechanism: Mechanism
    name: str | None
    pairs: tuple[Pair, ...]
    claim: Guarantee
    confidence: float
    max_runs: int
    max_seconds: float
    stop_early: bool
    seed: int
    seen: _Seen
    memoryless: bool
    workers: int

    @property
    def threshold(self) -> float:
        """The log wealth that refutes the claim."""
        return math.log(1 / (1 - self.confidence))

    @property
    def delta(self) -> float:
        """The δ at which ε is bounded: the claim's own, or 0 for claims in another notion."""
        return self.claim.delta if self.claim.epsilon is not None else 0.0

    def experiments(self, book: Book, seed: int) -> list[Experiment]:
        """Return an experiment for each pair, before its first run, and a last one for new questions made of them."""
        made = ("the first of each new pair", "the second of each new pair", "new pairs, each asked once")
        return [
            Experiment(
                i,
                (first, second),
                label,
                book,
                seed,
                references=self.seen.references(first, second) if i < len(self.pairs) else [],
                delta=self.delta,
                last_bits=self.seen.last_bits,
            )
            for i, (first, second, label) in enumerate([*self.pairs, made])
        ]


# ---- making runs


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Runs made in one go: of which pair, how many calls they took, and those that count."""

    pair: int
    calls: int
    counted: Sample


class _Runner:
    """Makes runs of the mechanism, or takes them from the log where they were made before.

    Attributes:
        seed: Of the audit: the log's own where there is one.
        encoder: Has met all outputs so far.
        batched: Whether the mechanism makes many runs in one call.
        calls: How many runs were made, those that do not count included.
        uncounted: How many do not count.
        repeats: Whether the same question has the same answer; None where runs are known to be independent.
    """

    def __init__(self, question: _Question, log: str | os.PathLike[str] | None) -> None:
        self._mechanism = question.mechanism
        self._fresh = [(own_copy(first), own_copy(second)) for first, second, _ in question.pairs]
        self.batched = getattr(question.mechanism, "batch", None) is not None
        self._pairs, self._workers = question.pairs, question.workers
        self.repeats = None if self.batched or question.memoryless else Repeats(question.pairs)
        self._questions: NewQuestions | None = None
        self.encoder = Encoder(question.seen.features)
        self.seed = question.seed
        self._log: TrialLog | None = None
        self._stored: list[LoggedBlock] = []
        if log is not None:
            labels = [label for _, _, label in question.pairs]
            facts = {"claim": question.claim.to_json(), "pairs": labels, "mechanism": question.name, "seed": self.seed}
            self._log = TrialLog(log, facts)
            self.seed = self._log.seed if self._log.seed is not None else self.seed
            self._stored = self._log.stored(self.encoder)
        self.calls = self.uncounted = 0
        self._blocks = 0
        self._pace = 16
        self._randomness = Randomness(self.seed)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def next(self, pair: int, most: int) -> _Block:
        """Make at most so many runs of a pair; what the log holds comes first, whatever it is about."""
        stored = self._stored.pop(0) if self._stored else None
        labels = self._assigned(most) if stored is None else stored.labels
        pair = pair if stored is None else stored.pair
        new: list[tuple[Any, Any]] = []
        if pair == len(self._pairs):
            new = [] if self._questions is None else self._questions.take(labels.size)
            if stored is not None and len(new) < labels.size:
                raise InputError("the log is damaged: it holds new questions that were never asked. Name another file.")
            labels = labels[: len(new)]
        outputs, counted = self._observe(pair, labels, stored, new)
        self._blocks += 1
        self.calls += labels.size
        return _Block(pair, labels.size, Sample(outputs, labels if counted is None else labels[counted]))

    def _assigned(self, most: int) -> Labels:
        """Return to which dataset each of the next runs goes: fair coins."""
        if self.batched:
            return np.random.default_rng([self.seed, self._blocks, 0]).random(most) < 0.5
        return self._randomness.coins(self.calls, min(most, self._pace))

    def ask_anew(self) -> bool:
        """Return whether there are pairs that were never asked; from now on they can be."""
        self._questions = NewQuestions(self._pairs, () if self.repeats is None else self.repeats.asked, self.seed)
        return self._questions.left

    def _observe(
        self, pair: int, labels: Labels, stored: LoggedBlock | None, new: Sequence[tuple[Any, Any]]
    ) -> tuple[Encoded, Labels | None]:
        """Return the outputs of a block, from the log or by running the mechanism, and which of its runs count."""
        if stored is not None and stored.outputs is not None:
            if stored.counted is not None:
                self.uncounted += int((~stored.counted).sum())
            self._note(pair, labels if stored.counted is None else labels[stored.counted], stored.outputs)
            if self._questions is not None and new:
                self._questions.recall(stored.outputs, _asked(new, labels, stored.counted))
            return stored.outputs, stored.counted
        if self._log is not None and stored is None and labels.size:
            self._log.assign(pair, labels)
        counted = None
        if self.batched:
            rng = np.random.default_rng([self.seed, self._blocks, 1])
            first, second = self._fresh[pair]
            outputs = run_batch(self._mechanism, (first(), second()), labels, rng)
        else:
            datasets = (
                [own_copy(both[int(label)]) for both, label in zip(new, labels, strict=True)]
                if pair == len(self._pairs)
                else [self._fresh[pair][int(label)] for label in labels]
            )
            outputs, counted = self._one_by_one(datasets)
        encoded = (
            self.encoder.encode(outputs) if len(outputs) else Encoded(np.empty((0, 1)), np.empty(0, dtype=np.int32))
        )
        if self._questions is not None and new:
            encoded = self._questions.compared(encoded, _asked(new, labels, counted), self.encoder)
        if self._log is not None and labels.size:
            self._log.observe(encoded, counted, self.encoder.structures)
        self._note(pair, labels if counted is None else labels[counted], encoded)
        return encoded, counted

    def _note(self, pair: int, labels: Labels, outputs: Encoded) -> None:
        if self.repeats is not None and pair < len(self._pairs):
            self.repeats.note(pair, labels.tolist(), fingerprints(outputs, self.encoder.structures))

    def _one_by_one(self, datasets: Sequence[Callable[[], Any]]) -> tuple[list[Any], Labels | None]:
        """Return the outputs of single calls that count, and which those are; how fast they came decides the pace."""
        start = time.perf_counter()
        if self._workers > 1:
            own = [self._randomness.of_run(self.calls + i, shared=False) for i in range(len(datasets))]
            with ThreadPoolExecutor(self._workers) as pool:
                outputs = list(pool.map(self._call, [dataset() for dataset in datasets], own))
        else:
            outputs = [
                self._call(dataset(), self._randomness.of_run(self.calls + i)) for i, dataset in enumerate(datasets)
            ]
        took = time.perf_counter() - start
        least = max(4, self._workers)
        self._pace = int(min(_EVERY_RUN, max(least, len(datasets) * _SLOW_BLOCK / max(took, 1e-9), self._pace / 4)))
        missed = [output is Uncounted for output in outputs]
        if not any(missed):
            return outputs, None
        self.uncounted += sum(missed)
        return [output for output, skip in zip(outputs, missed, strict=True) if not skip], ~np.array(missed)

    def _call(self, dataset: Any, rng: np.random.Generator) -> Any:
        try:
            return run_one(self._mechanism, dataset, rng)
        except Uncounted:
            return Uncounted


def _asked(
    new: Sequence[tuple[Any, Any]], labels: Labels, counted: Labels | None
) -> list[tuple[tuple[Any, Any], bool]]:
    """Return the pairs of runs that count, and whether the second dataset was asked."""
    every = list(zip(new, labels.tolist(), strict=True))
    return every if counted is None else [one for one, there in zip(every, counted, strict=True) if there]


class Randomness:
    """Coins and generators of single runs, from the seed and the run's number: an audit repeats and resumes exactly.

    Blocks of single calls end sooner where calls are slow, so that there is progress to see; what a run draws must not
    depend on that.

    Args:
        seed: Of the audit.

    >>> draws = Randomness(3)
    >>> draws.coins(0, 5).tolist() == [*draws.coins(0, 2), *draws.coins(2, 3)]
    True
    >>> first = draws.of_run(7).random()
    >>> draws.of_run(8).random() != first == draws.of_run(7).random()
    True
    """

    def __init__(self, seed: int) -> None:
        self._coins = np.random.SeedSequence([seed, 0])
        self._bits = np.random.Philox(np.random.SeedSequence([seed, 1]))
        self._start = self._bits.state
        self._rng = np.random.Generator(self._bits)

    def coins(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return fair coins of ``count`` runs from run ``first`` on."""
        bits = np.random.PCG64(self._coins)
        bits.advance(first)
        return np.random.Generator(bits).random(count) < 0.5

    def of_run(self, run: int, *, shared: bool = True) -> np.random.Generator:
        """Return a generator for one run: a place of a long sequence.

        If ``shared``, it is the one of the run before, set to another place, for runs one after the other.
        """
        self._start["state"]["counter"][:] = (0, run, 0, 0)
        bits = self._bits if shared else np.random.Philox()
        bits.state = self._start
        return self._rng if shared else np.random.Generator(bits)


# ---- what they say against the claim


class _Evidence:
    """Wealth bet against the claim, and against all others of its kind.

    Attributes:
        peak: The largest log wealth so far: once it reached the threshold, the claim is refuted.
    """

    def __init__(self, question: _Question, book: Book) -> None:
        claim, runs = question.claim, question.max_runs
        front = front_of(claim)
        self._threshold = question.threshold
        self._book, self._claim = book, claim
        self._doubt = Points(book, front.epsilons, front.deltas)
        self._frontier = Frontier(book, epsilon_family(question.delta, runs, claimed=claim.epsilon), self._threshold)
        own = own_family(claim, runs)
        self._own = None if own is None else Frontier(book, own, self._threshold, window=8)
        self.peak = -math.inf
        self._due = 0  # after how many runs stronger claims are looked at again
        self._looks: list[tuple[int, float, float]] = []

    @property
    def crossed(self) -> bool:
        """Whether the wealth against the claim was large enough at some time."""
        return self.peak >= self._threshold

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted, and every stronger one of its kind when that was last looked at."""
        frontier = self._frontier if self._claim.epsilon is not None else self._own
        value = self._claim.epsilon if self._claim.epsilon is not None else self._claim.mu or self._claim.rho
        return self.crossed and (frontier is None or value is None or frontier.bound >= value)

    def confirmed(self, runs: int) -> bool:
        """Return whether the claim is refuted, looking at all stronger ones now that its own wealth is enough."""
        if self.crossed and not self.violated:
            (self._frontier if self._claim.epsilon is not None else self._own or self._frontier).look()
            self._due = runs + max(1, runs // 50)
        return self.violated

    def curve(self, alpha: float, claimed: float) -> tuple[tuple[float, float], ...]:
        """Return lower bounds on ε at several δ, all of them right with probability 1 - ``alpha``.

        Each has an equal part of the error, by the union bound; bets are those that were made, at other odds. What is
        refuted at a δ is refuted at every smaller one.
        """
        deltas = sorted({*_CURVE, claimed})
        threshold = math.log(len(deltas) / alpha)
        bounds, best = [], 0.0
        for delta in reversed(deltas):
            best = max(best, Frontier(self._book, coarse_family(delta), threshold).look())
            bounds.append((delta, best))
        return tuple(bounds[::-1])

    @property
    def epsilon_lower(self) -> float:
        """The lower bound on ε when it was last looked at."""
        return self._frontier.bound

    @property
    def lower(self) -> float | None:
        """The same in the claim's own notion, if it has a parameter."""
        return None if self._own is None else self._own.bound

    @property
    def history(self) -> History:
        """What was seen at each look."""
        return History(
            runs=np.array([look[0] for look in self._looks], dtype=np.int64),
            log_wealth=np.array([look[1] for look in self._looks]),
            epsilon_lower=np.array([look[2] for look in self._looks]),
        )

    def refuting(self, experiment: Experiment, labels: Labels, cells: Sequence[Cells], runs: int) -> int | None:
        """Return after how many runs of a block the claim's wealth is enough, if it is: when to look closer.

        Once it was enough, and stronger claims were not refuted yet, that is after some more runs.
        """
        if self.crossed:
            return self._due - runs if 0 < self._due - runs <= labels.size else None
        path = self._path(experiment, labels, cells)
        crossed = np.flatnonzero(path >= self._threshold)
        self.peak = max(self.peak, float(path.max(initial=-math.inf)))
        return int(crossed[0]) + 1 if crossed.size else None

    def log_wealth(self) -> float:
        """Return the log wealth against the claim, which may be a new peak."""
        wealth = self._doubt.log_wealth()
        now = float(log_sum(wealth) - math.log(wealth.size))
        self.peak = max(self.peak, now)
        return now

    def look(self, runs: int, wealth: float) -> None:
        """Move the bounds as far as the wealth so far allows."""
        self._frontier.look()
        if self._own is not None:
            self._own.look()
        self._looks.append((runs, wealth, self._frontier.bound))

    def runs_to_decide(self, experiment: Experiment, wealth: float) -> float | None:
        """Return about how many more runs would refute the claim if the best bet goes on as before."""
        if experiment.stage is None or wealth >= self._threshold:
            return 0.0 if wealth >= self._threshold else None
        rates = [
            float((table * (view.before / max(view.before.sum(), 1.0))).sum(axis=(2, 3)).max())
            for table, view in zip(self._doubt.tables(experiment.index), experiment.stage.views, strict=True)
        ]
        return (self._threshold - wealth) / max(rates) if max(rates) > 1e-9 else None

    def _path(self, experiment: Experiment, labels: Labels, cells: Sequence[Cells]) -> NDArray[np.float64]:
        """Return the log wealth against the claim after every run of a block, shape (runs,)."""
        doubt, pair = self._doubt, experiment.index
        doubt.follow()
        steps = [
            table[:, :, where, labels.astype(np.intp)] for table, where in zip(doubt.tables(pair), cells, strict=True)
        ]
        moves = np.concatenate(steps, axis=1)
        start = doubt.capital[pair] + doubt.gain(pair)
        won = start[:, : moves.shape[1], None] + np.cumsum(moves, axis=2)
        still = start[:, moves.shape[1] :]
        total = log_sum(won, axis=1)
        for other in (doubt.rest(pair), log_sum(still, axis=1) if still.size else None):
            if other is not None:
                total = np.logaddexp(total, other[:, None])
        return log_sum(total, axis=0) - math.log(len(total))


# ---- the audit under way


class _Run:
    """One audit under way: whose turn it is, and when to look, to learn and to stop."""

    def __init__(self, question: _Question, log: str | os.PathLike[str] | None) -> None:
        self._asked = question
        self._runner = _Runner(question, log)
        book = Book(len(question.pairs), float(question.max_runs))
        *self._experiments, self._pooled = question.experiments(book, self._runner.seed)
        self._rounds = Rounds(self._experiments, book, question.max_runs)
        self._evidence = _Evidence(question, book)
        self._runs = self._answers = 0
        self._next_look = _next_look(0)
        self._turn, self._left = self._experiments[0], 0  # whose runs they are, and how many are left of them
        self._no_new = False  # whether new questions were looked for and not found

    @property
    def _ahead(self) -> int:
        """How many calls may still be made: those that do not count cost privacy all the same."""
        return self._asked.max_runs - self._runner.calls

    def go(self, on_progress: Progress | None, *, show: bool) -> Audit:
        """Run until decided, or out of runs or time."""
        start = time.perf_counter()
        stopped: Stopped = "runs"
        evidence, asked = self._evidence, self._asked
        with ExitStack() as stack:
            advance = stack.enter_context(tracking("Randomised trials", asked.max_runs)) if show else None
            stack.callback(self._runner.close)
            while self._ahead > 0:
                before, called = self._runs, self._runner.calls
                experiment = self._block()
                wealth = evidence.log_wealth()
                # Blocks of single calls end where time says, which must not decide when to look.
                broken = evidence.confirmed(self._runs) if self._runner.batched else evidence.violated
                ended = self._ended(time.perf_counter() - start, called)
                done = ended is not None or (broken and asked.stop_early)
                if done or self._runs >= self._next_look:
                    self._next_look = _next_look(self._runs)
                    evidence.look(self._runs, wealth)
                    done |= evidence.violated and asked.stop_early
                    if on_progress is not None:
                        to_decide = evidence.runs_to_decide(experiment, wealth)
                        on_progress(self._runs, evidence.epsilon_lower, to_decide)
                if advance is not None:
                    advance(self._runs - before, f"(ε ≥ {evidence.epsilon_lower:.2f})")
                if done:
                    stopped = "violated" if (evidence.violated and asked.stop_early) or ended is None else ended
                    break
                if not self._left and not self._held(experiment):
                    live, met = len(self._rounds.live), self._runner.encoder.structures
                    experiment.advance(met, ahead=float(self._ahead), alone=live == 1)
        return self._result(stopped, time.perf_counter() - start)

    def _ended(self, seconds: float, called: int) -> Stopped | None:
        """Return why the audit is over although nothing is decided, if it is."""
        repeats = self._runner.repeats
        if seconds > self._asked.max_seconds:
            return "time"
        if self._ahead <= 0:
            return "runs"
        if self._runner.calls == called:  # there are no more new questions
            return "repeats" if self._pooled.runs < _FEW_BETS else "runs"
        if (
            self._no_new
            and repeats is not None
            and (repeats.caching or not repeats.varied)
            and repeats.again >= GIVEN_UP[isinstance(self._asked.mechanism, HttpTarget)]
        ):
            return "repeats"
        return "failed" if self._hopeless() else None

    def _held(self, experiment: Experiment) -> bool:
        """Return whether a pair must not be bet on because answers repeat; then, in time, ask new questions instead."""
        repeats = self._runner.repeats
        if repeats is None or experiment is self._pooled or not repeats.forbid(experiment.index):
            return False
        for one in self._rounds.live if repeats.caching else ():  # answers that are kept may have been bet on
            one.close(void=True)
        if repeats.settled and not self._no_new:
            self._no_new = not self._runner.ask_anew()
            if not self._no_new:
                self._rounds.pool(self._pooled)
        return True

    def _hopeless(self) -> bool:
        """Return whether every run fails, in ways from which nothing can be told."""
        if self._answers or self._runner.calls < _FAILED or self._evidence.crossed:
            return False
        if self._runs >= _FAILED_ANYHOW:
            return self._evidence.peak < 1.0
        met = self._runner.encoder.structures
        tried = [e.sample().outputs for e in (*self._experiments, self._pooled) if e.kept_rows]
        return len({answer for outputs in tried for answer in fingerprints(outputs, met)}) <= _FEW_WAYS

    def _block(self) -> Experiment:
        """Make one block of runs and count it, up to the run that refutes the claim if that is where to stop."""
        if not self._left:
            self._turn, most = self._rounds.next()
            self._left = min(most, self._turn_size(self._turn), self._ahead)
        block = self._runner.next(self._turn.index, self._left)
        self._left = max(0, self._left - block.calls) if block.calls else 0
        experiment, made = [*self._experiments, self._pooled][block.pair], block.counted
        repeats, evidence, early = self._runner.repeats, self._evidence, self._asked.stop_early
        kept = repeats is not None and repeats.caching and experiment is not self._pooled
        watched = len(made) <= _EVERY_RUN and not kept
        while len(made):
            cells = experiment.cells(made.outputs)
            look = bool(cells) and watched and (early or not evidence.crossed)
            last = evidence.refuting(experiment, made.labels, cells, self._runs) if look else None
            counted = made.part(slice(0, last))
            experiment.add(counted, [where[:last] for where in cells])
            self._runs += len(counted)
            self._answers += self._runner.encoder.answers(counted.outputs)
            made = made.part(slice(len(counted), None))
            if last is not None and early and evidence.confirmed(self._runs):
                break
        return experiment

    def _turn_size(self, experiment: Experiment) -> int:
        """Return how many runs a pair gets before anything changes; single calls are made in blocks that take not long.

        How long calls take decides where blocks end, and nothing else: an audit can be repeated.
        """
        if not self._runner.batched:
            return min(experiment.until_change, self._next_look - self._runs)
        size = min(experiment.until_change, max(64, _BLOCK_NUMBERS // max(experiment.width, 1)))
        # Large blocks are checked at their end only: keep them short against what was done.
        return size if size <= _EVERY_RUN else min(size, max(_EVERY_RUN, experiment.runs // 12))

    def _result(self, stopped: Stopped, seconds: float) -> Audit:
        asked, evidence, structures = self._asked, self._evidence, self._runner.encoder.structures
        best = max(self._rounds.live, key=lambda e: (e.promise(), e.runs))
        events = [
            best_event(use, counts, delta=asked.delta) for use, counts in zip(best.uses, best.counts, strict=True)
        ]
        event = max((e for e in events if e is not None), key=lambda e: e.worth, default=None)
        terms = {"delta": asked.delta, "alpha": 1 - asked.confidence}
        run_on = not asked.stop_early
        return Audit(
            epsilon_lower=evidence.epsilon_lower,
            violated=evidence.violated,
            runs=self._runs,
            claim=asked.claim,
            confidence=asked.confidence,
            delta=asked.delta,
            answers=self._answers,
            witness=None if event is None else show_witness(event, best, structures),
            lower=evidence.lower,
            clopper_pearson=0.0 if best.fixed is None else best.fixed.bound(**terms),
            curve=evidence.curve(1 - asked.confidence, asked.delta) if run_on else (),
            plausible=best.fixed.plausible(**terms) if run_on and best.fixed is not None else None,
            history=evidence.history,
            outputs=show_outputs(best, structures, likelier_second=event is not None and event.second),
            power=None if event is None else self._power(best, event.mass, terms),
            pairs=tuple(e.label for e in self._experiments),
            stopped=stopped,
            seconds=seconds,
            seed=self._runner.seed,
            notes=self._notes(best),
        )

    def _power(self, best: Experiment, mass: float, terms: dict[str, float]) -> Power | None:
        """Return what would have been seen; None if the claim is no ε or was refuted, or few came twice."""
        claim = self._asked.claim.epsilon
        if claim is None or not self._answers or self._evidence.violated or _texts_that_came_once(best) > _NEVER_TWICE:
            return None
        return power_of(claim=claim, mass=mass, runs=best.runs, **terms)

    def _notes(self, best: Experiment) -> tuple[str, ...]:
        mechanism, encoder, uncounted = self._asked.mechanism, self._runner.encoder, self._runner.uncounted
        structures = encoder.structures
        said = getattr(getattr(mechanism, "target", mechanism), "notes", ())
        notes = [str(note) for note in said] if isinstance(said, tuple | list) else []
        if uncounted:
            notes.append(f"{uncounted:,} calls did not count because their answers had been seen before.")
        repeats = self._runner.repeats
        if repeats is not None and (
            repeats.caching or (not repeats.varied and repeats.forbid(best.index % len(self._experiments)))
        ):
            found = (
                f"Bets were on {self._pooled.runs:,} new questions instead, each asked once"
                if self._pooled.runs
                else "There were no new questions to ask; give several pairs, or datasets that are lists or tables, or "
                "say that it is memoryless if you know that nothing is kept between calls"
            )
            notes.append(
                "The same question has the same answer again: it is kept, or noise is drawn once for each question, or "
                f"there is none. {found}. What is found holds if noise is drawn anew for every question."
            )
        elif self._answers >= _FEW_BETS and _always_the_same(best, structures):
            notes.append(
                "Every run had the same output, so that nothing could tell the datasets apart. Were answers left out, "
                "because the datasets are small?"
            )
        once = _texts_that_came_once(best)
        if once > _NEVER_TWICE:
            notes.append(
                f"{100 * once:.0f} % of the outputs are texts that came only once, and nothing orders them: what they "
                "say was not looked at, and what would have been seen is not known. Pass features= to look at it."
            )
        if encoder.summarised:
            notes.append("Outputs of more than 256 numbers were summarised; pass features= to look at others.")
        failed = ", ".join(encoder.failures[:3])
        if failed and not self._answers:
            notes.append(f"Every run ended with an error ({failed}): can it be called as (dataset, rng)?")
        elif failed:
            notes.append(f"Some runs ended with an error ({failed}); an error counts as an output.")
        if len(self._experiments) > 1:
            notes.append(f"{len(self._experiments)} input pairs were tried; most runs went to {best.label}.")
        if self._evidence.violated and self._asked.stop_early:
            notes.append(
                "Clopper-Pearson is for a number of runs fixed beforehand; the audit stopped when it had seen enough."
            )
        return tuple(notes)


def _always_the_same(experiment: Experiment, structures: Sequence[str]) -> bool:
    """Return whether all outputs of a pair that were kept are equal, whatever time a service took for them."""
    return bool(experiment.kept_rows) and len({*fingerprints(experiment.sample().outputs, structures)}) == 1


def _texts_that_came_once(experiment: Experiment) -> float:
    """Return the part of a pair's outputs whose text, numbers aside, no other output has; 0 for few runs."""
    if experiment.kept_rows < _FEW_BETS:
        return 0.0
    _, times = np.unique(experiment.sample().outputs.codes, return_counts=True)
    return float((times == 1).sum() / experiment.kept_rows)


def _next_look(runs: int) -> int:
    """Return after how many runs the confidence sequence is looked at again."""
    return math.ceil(1.03 * runs + 16)
