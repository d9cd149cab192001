"""The membership game: a coin decides whether one record is there; the attacker looks at what a fitted generator makes.

Everything but that record is held fixed, so that a difference is its effect: do(Dᵢ = target) against do(Dᵢ = someone
else), or against nobody. With ``resampled`` rows the others are drawn anew for each fit, as in the published game: that
averages over the people who might have been in the table, and tells less about the record.

:class:`Trials` makes a randomised experiment of it: each fit is a trial, and an audit bets on the coin.

A fit is decided by its coin and its seed, so what came out of it can be looked up by them: a :class:`FitLog` lets an
attack that was stopped go on where it was (:mod:`escudo._log`).

Fits are spread over processes by joblib, so that ``joblib.parallel_config`` sends them to a cluster.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._log import LogKind, WorkLog
from escudo._spread import spread, workers
from escudo.attacks._report import comparable
from escudo.attacks._victims import Fitted, RowsWithRecord, Victim, trains_together
from escudo.auditing import Audit, audit
from escudo.errors import InputError
from escudo.privacy import Guarantee, Relation
from escudo.utility import Rows

Floats = NDArray[np.float64]
Sets = list[dict[str, Floats]]
Key = tuple[str, bool, int]
Eye = Callable[[Rows, np.random.Generator], dict[str, Floats]]
"""What an attacker sees in one synthetic set."""
Judge = Callable[[Mapping[str, Floats]], Floats]
"""What an attacker makes of the features of some fits: one row of scores for each."""

_FORMAT = "escudo fits 1"  # of a log
_BLOCK = 64  # resampled worlds that are made together
_UNPROMISED = Guarantee(epsilon=30.0)  # no experiment rejects it, so that only the bound is looked at
_AHEAD = 256  # fits of each world that are trained together before the audit looks at them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """What came out of some fits.

    Attributes:
        there: Whether the target was there, for each synthetic set.
        fit: Which fit each set comes from.
        features: One row for each set.
    """

    there: NDArray[np.bool_]
    fit: NDArray[np.int64]
    features: dict[str, Floats]


class Person(NamedTuple):
    """Who is attacked, and everybody else."""

    label: str
    record: Rows
    others: Rows

    @classmethod
    def of(cls, private: Rows, place: int) -> Person:
        """Return the person of one row."""
        every = np.arange(len(private))
        return cls(f"{private.noun} {place}", private.take(every == place), private.take(every != place))


@dataclass(eq=False, repr=False)
class Game:
    """One target against one generator.

    Attributes:
        victim: The generator.
        eye: What the attacker sees in a synthetic set.
        person: Whose record is in question, and all other rows; with ``drawn`` the pool that others are drawn from.
        instead: Who stands in its place otherwise; None for nobody.
        size: Rows in each synthetic set.
        sets: Synthetic sets drawn from each fit.
        drawn: How many others are drawn anew for each fit; None where they are always the same.
        jobs: How many processes, as in joblib.
        log: Where fits are kept, to go on after a stop.
    """

    victim: Victim
    eye: Eye
    person: Person
    instead: Rows | None
    size: int
    sets: int = 1
    drawn: int | None = None
    jobs: int | None = None
    log: FitLog | None = None
    _counted: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)

    def worlds(self, there: Sequence[bool], seeds: Sequence[int]) -> Iterator[Sets]:
        """Run one fit for each coin and seed; give what is seen of its synthetic sets, in order."""
        keys = [(self.person.label, bool(coin), int(seed)) for coin, seed in zip(there, seeds, strict=True)]
        missing = [key for key in keys if self.log is None or self.log.get(key) is None]
        fresh = self._run([(coin, seed) for _, coin, seed in missing])
        for key in keys:
            known = None if self.log is None else self.log.get(key)
            if known is None:
                known = next(fresh)
                if self.log is not None:
                    self.log.put(key, known)
            yield known

    def _run(self, fits: Sequence[tuple[bool, int]]) -> Iterator[Sets]:
        if not trains_together(self.victim):
            alone = replace(self, log=None)  # only this process writes
            alone._counted = self._counted
            yield from spread(alone._world, fits, self.jobs)
            return
        look = partial(_look, self.eye, self.sets, self.size)
        block = (
            max(len(fits), 1) if self.drawn is None else _BLOCK
        )  # resampled rows differ in each world, and take room
        for start in range(0, len(fits), block):
            some = fits[start : start + block]
            worlds = [self._setting(coin, seed) for coin, seed in some]
            made = zip(self.victim.fitted(worlds, partial(spread, jobs=self.jobs)), some, strict=True)
            while ready := list(islice(made, 8 * workers(self.jobs))):  # looked at while the device trains the next
                yield from spread(look, ready, self.jobs)

    def _world(self, fit: tuple[bool, int]) -> Sets:
        """Run one fit in the world where the target is there, or not, and return what is seen."""
        rows, seed = self._setting(*fit)
        return _see(self.eye, self.victim.synthetic(rows, sets=self.sets, size=self.size, seed=seed), fit[1])

    def _setting(self, there: bool, seed: int) -> tuple[RowsWithRecord, int]:
        """Return the rows of a world, and the seed of its fit."""
        rng = np.random.default_rng(seed)
        others, counted = self.person.others, self._counted
        if self.drawn is not None:
            others, counted = others.take(np.sort(rng.permutation(len(others))[: self.drawn])), {}
        record = self.person.record if there else self.instead
        return RowsWithRecord(others, record, counted), int(rng.integers(2**31))

    def play(self, fits: int, rng: np.random.Generator, advance: Callable[[int], None]) -> Played:
        """Toss a coin for each fit and run them all."""
        there = rng.random(fits) < 0.5
        seeds = rng.integers(2**62, size=fits)
        found: list[Sets] = []
        for sets in self.worlds(there.tolist(), seeds.tolist()):
            found.append(sets)
            advance(1)
        return collect(there, found)


def collect(there: NDArray[np.bool_], found: Sequence[Sets]) -> Played:
    """Return what was seen of many fits as matrices."""
    sizes = [len(sets) for sets in found]
    return Played(
        there=np.repeat(there, sizes),
        fit=np.repeat(np.arange(len(found)), sizes),
        features={kind: np.array([one[kind] for sets in found for one in sets]) for kind in found[0][0]},
    )


def _look(eye: Eye, sets: int, size: int, made: tuple[Fitted, tuple[bool, int]]) -> Sets:
    fitted, (_, seed) = made
    return _see(eye, fitted.synthetic(sets=sets, size=size), seed)


def _see(eye: Eye, made: Sequence[Rows], seed: int) -> Sets:
    rng = np.random.default_rng([seed, 1])
    return [eye(one, rng) for one in made]


# ---- the game as an experiment


class Trials:
    """The fits of a game as a mechanism that an audit can run: the coin in, the attacker's scores out.

    Each world has its own stream of seeds, so that the answer does not depend on how many fits are made in one go.
    Where fits are trained together, those of both worlds that are likely to be asked for are made ahead.

    Args:
        game: The game.
        judge: What the attacker makes of a fit.
        trials: How many there will be at most.
        rng: Decides the seeds.
        advance: Called with the number of fits made.

    Attributes:
        there: Whether the target was there, for each trial that was asked for.
        scores: The attacker's scores of each.
    """

    def __init__(self, game: Game, judge: Judge, trials: int, rng: np.random.Generator, advance: Callable[[int], None]):
        self._game, self._judge, self._trials, self._advance = game, judge, trials, advance
        self._rng = rng
        self._seeds = {world: np.random.default_rng(int(rng.integers(2**62))) for world in (False, True)}
        self._ready: dict[bool, list[Floats]] = {False: [], True: []}
        self._together = trains_together(game.victim)
        self.there: list[bool] = []
        self.scores: list[Floats] = []

    def audit(self, *, confidence: float) -> Audit:
        """Run the experiment until the victim's promise is refuted, or out of trials.

        Raises:
            InputError: If every fit failed.
        """
        relation: Relation = "add_remove" if self._game.instead is None else "replace_one"
        claim, label = self._game.victim.claim, self._game.person.label
        found = audit(
            self,
            claim=_UNPROMISED if claim is None else comparable(claim, relation),
            pairs=[(True, False, label)],
            confidence=confidence,
            max_runs=self._trials,
            stop_early=True,
            seed=int(self._rng.integers(2**31)),
            progress=False,
        )
        if not self.scores:
            raise InputError(f"every fit of the test on {label} failed: the generator raised an error each time.")
        return found

    def __call__(self, there: bool, rng: np.random.Generator) -> Floats:
        found: Floats = self.batch(there, 1, rng)[0]
        return found

    def batch(self, there: bool, count: int, rng: np.random.Generator) -> Floats:
        """Return the scores of some fits in one world, which are made now if they were not before."""
        if len(self._ready[there]) < count:
            self._make(there, count - len(self._ready[there]))
        found, self._ready[there] = self._ready[there][:count], self._ready[there][count:]
        self.there += [there] * count
        self.scores += found
        return np.array(found)

    def _make(self, there: bool, missing: int) -> None:
        wanted = {there: missing, not there: 0}
        if self._together:
            left = self._trials - len(self.there)
            ahead = min(_AHEAD, left // 2 + math.isqrt(left))  # what a fair coin asks for, and two deviations more
            wanted = {world: max(count, ahead - len(self._ready[world])) for world, count in wanted.items()}
        worlds = [world for world, count in wanted.items() for _ in range(count)]
        seeds = [seed for world, count in wanted.items() for seed in self._seeds[world].integers(2**62, size=count)]
        found = []
        for sets in self._game.worlds(worlds, seeds):
            found.append(sets)
            self._advance(1)
        for world, scores in zip(worlds, self._judge(collect(np.array(worlds), found).features), strict=True):
            self._ready[world].append(scores)


# ---- fits that were made before


class FitLog(WorkLog[Key, Sets]):
    """An append-only file of fits; a line cut short by a crash is left out.

    Args:
        path: The file; made if it is not there.
        attack: The fingerprint of the attack.

    Raises:
        InputError: If the file is of another attack, damaged, no log at all, or cannot be used.
    """

    def __init__(self, path: str | PathLike[str], attack: str):
        kind = LogKind(
            format=_FORMAT,
            question="attack",
            piece="fit",
            differs="other rows, generator, targets or seed",
            write=_line_of,
            read=_fit_in,
        )
        super().__init__(path, attack, kind)


def _line_of(key: Key, sets: Sets) -> dict[str, Any]:
    return {"key": list(key), "sets": [{kind: _pack(values) for kind, values in one.items()} for one in sets]}


def _fit_in(found: Any) -> tuple[Key, Sets]:
    """Return the key of a fit and what came out of it, or raise if the line holds something else."""
    world, there, seed = found["key"]
    if not (isinstance(world, str) and isinstance(there, bool) and isinstance(seed, int) and seed >= 0):
        raise ValueError
    if not isinstance(found["sets"], list):
        raise TypeError
    sets = [{kind: _unpack(text) for kind, text in one.items()} for one in found["sets"]]
    return (world, there, seed), sets


def _pack(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def _unpack(text: str) -> Floats:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)
