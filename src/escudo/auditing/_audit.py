"""Audits: a randomised experiment on a mechanism, with evidence that may be looked at after every run.

Randomness of single runs: a function of the seed and the run's number, so that an audit repeats and resumes exactly.

Blocks of single calls end sooner where calls are slow, so that there is progress to see; what a run draws must not
depend on that.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo._validate import positive, positive_integer, probability, whole
from escudo.auditing._bounds import best_event, power_of
from escudo.auditing._experiment import Experiment, Rounds
from escudo.auditing._outputs import Encoded, Encoder, Labels, LoggedBlock, TrialLog
from escudo.auditing._result import Audit, History, Stopped, shown_outputs, shown_witness
from escudo.auditing._targets import Uncounted, adapt, name_of, pairs_of, read_pairs, run_batch, run_one
from escudo.auditing._wealth import Book, Frontier, Points, epsilon_family, front_of, log_sum, own_family
from escudo.errors import InputError
from escudo.privacy import Guarantee
from escudo.table import Schema

__all__ = ["Randomness", "audit"]


class Randomness:
    """Coins and generators by run.

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

    def of_run(self, run: int) -> np.random.Generator:
        """Return a generator for one run; it is the one of the run before, set to another place of a long sequence."""
        self._start["state"]["counter"][:] = (0, run, 0, 0)
        self._bits.state = self._start
        return self._rng


Progress = Callable[[int, float, float | None], None]


_EVERY_RUN = 4096  # blocks up to this size are checked after every run, larger ones at their end
_BLOCK_NUMBERS = 2_000_000  # numbers that one block of outputs may hold
_SLOW_BLOCK = 0.5  # seconds that one block of single calls may take


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
    on_progress: Progress | None = None,
    progress: bool = True,
) -> Audit:
    r"""Measure how much one record changes a mechanism's output, and test what the mechanism claims.

    Every run assigns do(Dᵢ = d) or do(Dᵢ = d′) by a fair coin, calls the mechanism and bets on the coin at odds that
    are fair if the claim holds. Wealth of 1/α refutes the claim at confidence 1 - α, whenever that happens.

    Args:
        mechanism: ``mechanism(dataset, rng) -> output``, with ``mechanism.batch(dataset, count, rng)`` for speed; or
            anything that :func:`~escudo.auditing.adapt` takes. An exception is an output. If it has ``notes``, a
            sequence of sentences, they are passed on.
        claim: What is promised: ε, (ε, δ), ρ, μ or a curve; its relation decides which pairs are made from a schema.
        pairs: Neighbouring datasets (d, d′), each with a label if wanted: (d, d′, label).
        schema: Make the pairs from this public description instead, see :func:`~escudo.auditing.pairs_of`.
        target: The URL of a service to audit instead of a mechanism.
        confidence: Of all statements together.
        max_runs: Most calls of the mechanism, those that do not count included, over all pairs.
        max_seconds: Most time; None for no limit.
        stop_early: Whether to stop as soon as the claim is refuted; if not, all runs go into the bound on ε.
        seed: Repeats an audit of a mechanism that takes its noise from ``rng``; drawn and recorded if None.
        log: A file that records every assignment and output; if it exists, the audit goes on from there.
        features: What to look at in an output, if the outputs themselves are not it.
        noiseless: The answer without noise, from a dataset, if known: helps to find rounding and exact answers.
        last_bits: Whether to look at the last bits of floats. They give away noise that was added in floating point,
            whatever its law; False takes floats as the real numbers they stand for.
        on_progress: Called as ``on_progress(runs, epsilon_lower, runs_to_decide)``; the last is an estimate or None.
        progress: Whether to show a bar.

    Returns:
        The :class:`Audit`; ``print`` it for the verdict.

    Raises:
        InputError: If an argument is not usable.

    **Guarantee.** If the claim is true of the mechanism at every run, whatever happened before, it is called violated
    with probability at most 1 - confidence; ``epsilon_lower`` exceeds the mechanism's ε with probability at most
    1 - confidence. Proof in :mod:`escudo.auditing._wealth`. Runs need not be independent: a service may drift.

    >>> def noisy_count(rows, rng):  # claims ε = 1, but adds half the noise
    ...     return len(rows) + rng.laplace(scale=0.5)
    >>> found = audit(noisy_count, claim=Guarantee(epsilon=1.0), pairs=[([1], [1, 1])], seed=1, max_runs=5000)
    >>> found.violated, 1 <= found.epsilon_lower <= 2
    (True, True)
    """
    if target is not None:
        if mechanism is not None:
            raise InputError("give a mechanism or the URL of a target, not both.")
        from escudo.auditing._http import HttpTarget

        mechanism = HttpTarget(target)
    if (pairs is None) == (schema is None):
        raise InputError("give pairs of neighbouring datasets, or a schema to make them from; exactly one of the two.")
    chosen = read_pairs(pairs) if pairs is not None else pairs_of(schema, relation=claim.relation)  # type: ignore[arg-type]
    run = _Run(
        adapt(mechanism),
        chosen,
        claim,
        confidence=probability("confidence", confidence, allow_zero=False),
        max_runs=positive_integer("max_runs", max_runs),
        max_seconds=math.inf if max_seconds is None else positive("max_seconds", max_seconds),
        stop_early=stop_early,
        seed=secrets.randbits(48) if seed is None else whole("seed", seed),
        log=log,
        name=name_of(mechanism),
        features=features,
        noiseless=noiseless,
        last_bits=last_bits,
    )
    return run.go(on_progress, show=progress)


class _Run:
    """One audit under way."""

    def __init__(
        self,
        mechanism: Any,
        pairs: Sequence[tuple[Any, Any, str]],
        claim: Guarantee,
        *,
        confidence: float,
        max_runs: int,
        max_seconds: float,
        stop_early: bool,
        seed: int,
        log: str | os.PathLike[str] | None,
        name: str | None,
        features: Callable[[Any], Any] | None,
        noiseless: Callable[[Any], Any] | None,
        last_bits: bool,
    ) -> None:
        self.mechanism, self.claim, self.confidence = mechanism, claim, confidence
        self.max_runs, self.max_seconds, self.stop_early = max_runs, max_seconds, stop_early
        self.batched = getattr(mechanism, "batch", None) is not None
        self.encoder = Encoder(features)
        self.log = None
        self.seed = seed
        self.stored: list[LoggedBlock] = []
        if log is not None:
            labels = [label for _, _, label in pairs]
            self.log = TrialLog(log, {"claim": claim.to_json(), "pairs": labels, "mechanism": name, "seed": seed})
            self.seed = self.log.seed if self.log.seed is not None else seed
            self.stored = self.log.stored(self.encoder)
        self.threshold = math.log(1 / (1 - confidence))
        self.delta = claim.delta if claim.epsilon is not None else 0.0
        self.book = Book(len(pairs), float(max_runs))
        self.experiments = [
            Experiment(
                i,
                (first, second),
                label,
                references=_references(noiseless, first, second),
                delta=self.delta,
                book=self.book,
                seed=self.seed,
                last_bits=last_bits,
            )
            for i, (first, second, label) in enumerate(pairs)
        ]
        self.rounds = Rounds(self.experiments, self.book, max_runs)
        front = front_of(claim)
        self.doubt = Points(self.book, front.epsilons, front.deltas)
        self.frontier = Frontier(self.book, epsilon_family(self.delta, max_runs, claimed=claim.epsilon), self.threshold)
        own = own_family(claim, max_runs)
        self.own = None if own is None else Frontier(self.book, own, self.threshold, window=8)
        self.runs = self.blocks = self.uncounted = 0
        self.pace = 16
        self.next_look = _next_look(0)
        self.turn, self.left = self.experiments[0], 0  # whose runs they are, and how many are left of them
        self.randomness = Randomness(self.seed)
        self.peak = -math.inf
        self.history: list[tuple[int, float, float]] = []

    def go(self, on_progress: Progress | None, *, show: bool) -> Audit:
        """Run until decided, or out of runs or time."""
        start = time.perf_counter()
        stopped: Stopped = "runs"
        with ExitStack() as stack:
            advance = stack.enter_context(tracking("Randomised trials", self.max_runs)) if show else None
            if self.log is not None:
                stack.callback(self.log.close)
            while self.runs + self.uncounted < self.max_runs:  # calls that do not count cost privacy all the same
                before = self.runs
                experiment = self._block()
                wealth = self._log_wealth()
                self.peak = max(self.peak, wealth)
                decided = self.peak >= self.threshold
                over = time.perf_counter() - start > self.max_seconds
                done = over or self.runs + self.uncounted >= self.max_runs or (decided and self.stop_early)
                if done or self.runs >= self.next_look:
                    self.next_look = _next_look(self.runs)
                    self.frontier.look()
                    if self.own is not None:
                        self.own.look()
                    self.history.append((self.runs, wealth, self.frontier.bound))
                    if on_progress is not None:
                        on_progress(self.runs, self.frontier.bound, self._runs_to_decide(experiment, wealth))
                if advance is not None:
                    advance(self.runs - before)
                if done:
                    stopped = "violated" if decided and self.stop_early else "time" if over else "runs"
                    break
                if not self.left:
                    experiment.advance(
                        self.encoder.structures,
                        ahead=float(self.max_runs - self.runs - self.uncounted),
                        alone=len(self.rounds.live) == 1,
                    )
        return self._result(stopped, time.perf_counter() - start)

    def _block(self) -> Experiment:
        """Make one block of runs and count it, up to the run that refutes the claim if that is where to stop."""
        stored = self.stored.pop(0) if self.stored else None
        if not self.left:
            self.turn, most = self.rounds.next()
            self.left = min(most, self._turn_size(self.turn), self.max_runs - self.runs - self.uncounted)
        if stored is None:
            experiment = self.turn
            labels = self._assigned(self.left if self.batched else min(self.left, self.pace))
        else:
            experiment, labels = self.experiments[stored.pair], stored.labels
        self.left = max(0, self.left - labels.size)
        outputs, counted = self._observe(experiment, labels, stored)
        self.blocks += 1
        if counted is not None:
            labels = labels[counted]
        cells = experiment.cells(outputs)
        keep = labels.size
        if cells and keep <= _EVERY_RUN:
            path = self._path(experiment, labels, cells)
            crossed = np.flatnonzero(path >= self.threshold)
            self.peak = max(self.peak, float(path.max(initial=-math.inf)))
            if crossed.size and self.stop_early:
                keep = int(crossed[0]) + 1
        experiment.add(
            Encoded(outputs.values[:keep], outputs.codes[:keep]), labels[:keep], [where[:keep] for where in cells]
        )
        self.runs += keep
        return experiment

    def _assigned(self, size: int) -> Labels:
        """Return to which dataset each of the next runs goes: fair coins."""
        if self.batched:
            return np.random.default_rng([self.seed, self.blocks, 0]).random(size) < 0.5
        return self.randomness.coins(self.runs + self.uncounted, size)

    def _observe(
        self, experiment: Experiment, labels: Labels, stored: LoggedBlock | None
    ) -> tuple[Encoded, Labels | None]:
        """Return the outputs of a block, from the log or by running the mechanism, and which of them count."""
        if stored is not None and stored.outputs is not None:
            if stored.counted is not None:
                self.uncounted += int((~stored.counted).sum())
            return stored.outputs, stored.counted
        if self.log is not None and stored is None:
            self.log.assign(experiment.index, labels)
        counted = None
        if self.batched:
            rng = np.random.default_rng([self.seed, self.blocks, 1])
            outputs = run_batch(self.mechanism, experiment.pair, labels, rng)
        else:
            start, first = time.perf_counter(), self.runs + self.uncounted
            outputs = [
                self._call(experiment.pair[int(label)], self.randomness.of_run(first + i))
                for i, label in enumerate(labels)
            ]
            took = time.perf_counter() - start
            self.pace = int(min(_EVERY_RUN, max(4, labels.size * _SLOW_BLOCK / max(took, 1e-9), self.pace / 4)))
            missed = [output is Uncounted for output in outputs]
            if any(missed):
                counted = ~np.array(missed)
                self.uncounted += sum(missed)
                outputs = [output for output, skip in zip(outputs, missed, strict=True) if not skip]
        encoded = (
            self.encoder.encode(outputs) if len(outputs) else Encoded(np.empty((0, 1)), np.empty(0, dtype=np.int32))
        )
        if self.log is not None:
            self.log.observe(encoded, counted, self.encoder.structures)
        return encoded, counted

    def _call(self, dataset: Any, rng: np.random.Generator) -> Any:
        try:
            return run_one(self.mechanism, dataset, rng)
        except Uncounted:
            return Uncounted

    def _turn_size(self, experiment: Experiment) -> int:
        """Return how many runs a pair gets before anything changes; single calls are made in blocks that take not long.

        How long calls take decides where blocks end, and nothing else: an audit can be repeated.
        """
        if not self.batched:
            return min(experiment.until_change, self.next_look - self.runs)
        width = experiment.width
        size = min(experiment.until_change, max(64, _BLOCK_NUMBERS // max(width, 1)))
        # Large blocks are checked at their end only: keep them short against what was done.
        return size if size <= _EVERY_RUN else min(size, max(_EVERY_RUN, experiment.runs // 12))

    def _path(self, experiment: Experiment, labels: Labels, cells: Sequence[NDArray[np.intp]]) -> NDArray[np.float64]:
        """Return the log wealth against the claim after every run of a block, shape (runs,)."""
        self.doubt.follow()
        tables = self.doubt.tables(experiment.index)
        steps = [table[:, :, where, labels.astype(np.intp)] for table, where in zip(tables, cells, strict=True)]
        moves = np.concatenate(steps, axis=1)
        start = self.doubt.capital[experiment.index] + self.doubt.gain(experiment.index)
        won = start[:, : moves.shape[1], None] + np.cumsum(moves, axis=2)
        still = start[:, moves.shape[1] :]
        total = log_sum(won, axis=1)
        for other in (self.doubt.rest(experiment.index), log_sum(still, axis=1) if still.size else None):
            if other is not None:
                total = np.logaddexp(total, other[:, None])
        return log_sum(total, axis=0) - math.log(len(total))

    def _log_wealth(self) -> float:
        wealth = self.doubt.log_wealth()
        return float(log_sum(wealth) - math.log(wealth.size))

    def _runs_to_decide(self, experiment: Experiment, wealth: float) -> float | None:
        """Return about how many more runs would refute the claim if the best bet goes on as before."""
        if experiment.stage is None or wealth >= self.threshold:
            return 0.0 if wealth >= self.threshold else None
        rates = [
            float((table * (view.before / max(view.before.sum(), 1.0))).sum(axis=(2, 3)).max())
            for table, view in zip(self.doubt.tables(experiment.index), experiment.stage.views, strict=True)
        ]
        return (self.threshold - wealth) / max(rates) if max(rates) > 1e-9 else None

    def _result(self, stopped: Stopped, seconds: float) -> Audit:
        live = self.rounds.live
        best = max(live, key=lambda e: (e.promise(), e.runs))
        events = [best_event(use, counts, delta=self.delta) for use, counts in zip(best.uses, best.counts, strict=True)]
        event = max((e for e in events if e is not None), key=lambda e: e.worth, default=None)
        alpha = 1 - self.confidence
        power = None
        if self.claim.epsilon is not None and event is not None and not self.peak >= self.threshold:
            power = power_of(claim=self.claim.epsilon, delta=self.delta, mass=event.mass, runs=best.runs, alpha=alpha)
        return Audit(
            epsilon_lower=self.frontier.bound,
            violated=self.peak >= self.threshold,
            runs=self.runs,
            claim=self.claim,
            confidence=self.confidence,
            delta=self.delta,
            witness=None if event is None else shown_witness(event, best, self.encoder.structures),
            lower=None if self.own is None else self.own.bound,
            clopper_pearson=0.0 if best.fixed is None else best.fixed.bound(delta=self.delta, alpha=alpha),
            history=History(
                runs=np.array([h[0] for h in self.history], dtype=np.int64),
                log_wealth=np.array([h[1] for h in self.history]),
                epsilon_lower=np.array([h[2] for h in self.history]),
            ),
            outputs=shown_outputs(best, self.encoder.structures, likelier_second=event is not None and event.second),
            power=power,
            pairs=tuple(e.label for e in self.experiments),
            stopped=stopped,
            seconds=seconds,
            seed=self.seed,
            notes=self._notes(best),
        )

    def _notes(self, best: Experiment) -> tuple[str, ...]:
        said = getattr(getattr(self.mechanism, "target", self.mechanism), "notes", ())
        notes = [str(note) for note in said] if isinstance(said, tuple | list) else []
        if self.uncounted:
            notes.append(f"{self.uncounted:,} calls did not count because their answers had been seen before.")
        if self.encoder.summarised:
            notes.append("Outputs of more than 256 numbers were summarised; pass features= to look at others.")
        failed = [s for s in self.encoder.structures if s.startswith("error: ")]
        if (
            failed
            and best.kept_rows
            and best.sample()[0].codes.all()
            and len(failed) == len(self.encoder.structures) - 1
        ):
            notes.append(f"Every run raised an error ({', '.join(failed[:3])}): can it be called as (dataset, rng)?")
        elif failed:
            notes.append(f"Some runs raised an error ({', '.join(failed[:3])}); an error counts as an output.")
        if len(self.experiments) > 1:
            notes.append(f"{len(self.experiments)} input pairs were tried; most runs went to {best.label}.")
        if self.peak >= self.threshold and self.stop_early:
            notes.append(
                "Clopper-Pearson is for a number of runs fixed beforehand; the audit stopped when it had seen enough."
            )
        return tuple(notes)


def _next_look(runs: int) -> int:
    """Return after how many runs the confidence sequence is looked at again."""
    return math.ceil(1.03 * runs + 16)


def _references(noiseless: Callable[[Any], Any] | None, first: Any, second: Any) -> list[NDArray[np.float64]]:
    if noiseless is None:
        return []
    return [Encoder().encode([noiseless(dataset)]).values[0] for dataset in (first, second)]
