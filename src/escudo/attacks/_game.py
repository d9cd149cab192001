"""The membership game: a coin decides whether one record is there; the attacker looks at what a fitted generator makes.

Everything but that record is held fixed, so that a difference is its effect: do(Dᵢ = target) against do(Dᵢ = someone
else), or against nobody. With ``resampled`` rows the others are drawn anew for each fit, as in the published game: that
averages over the people who might have been in the table, and tells less about the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.attacks._log import FitLog
from escudo.attacks._moved import RowsWithRecord
from escudo.attacks._spread import spread, workers
from escudo.attacks._victims import Fitted, Victim, trains_together
from escudo.utility import Rows

__all__ = ["Eye", "Game", "Played", "collected"]

Floats = NDArray[np.float64]
Sets = list[dict[str, Floats]]
Eye = Callable[[Rows, np.random.Generator], dict[str, Floats]]
"""What an attacker sees in one synthetic set."""

_BLOCK = 64


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


@dataclass(kw_only=True, eq=False, repr=False)
class Game:
    """One target against one generator.

    Attributes:
        victim: The generator.
        eye: What the attacker sees in a synthetic set.
        rest: All rows but the target's place; with ``resampled`` the pool that others are drawn from.
        target: The record in question.
        instead: Who stands in its place otherwise; None for nobody.
        rows: How many rows a fit gets besides that place.
        size: Rows in each synthetic set.
        sets: Synthetic sets drawn from each fit.
        resampled: Whether the others are drawn anew for each fit.
        jobs: How many processes, as in joblib.
        label: Which person it is about.
        log: Where fits are kept, to go on after a stop.
    """

    victim: Victim
    eye: Eye
    rest: Rows
    target: Rows
    instead: Rows | None
    rows: int
    size: int
    sets: int = 1
    resampled: bool = False
    jobs: int | None = None
    label: str = ""
    log: FitLog | None = None
    _counted: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)

    def worlds(self, there: Sequence[bool], seeds: Sequence[int]) -> Iterator[Sets]:
        """Run one fit for each coin and seed; give what is seen of its synthetic sets, in order."""
        keys = [(self.label, bool(coin), int(seed)) for coin, seed in zip(there, seeds, strict=True)]
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
        look = partial(_looked, self.eye, self.sets, self.size)
        block = _BLOCK if self.resampled else max(len(fits), 1)  # resampled rows differ in each world, and take room
        for start in range(0, len(fits), block):
            some = fits[start : start + block]
            worlds = [self._setting(coin, seed) for coin, seed in some]
            made = zip(self.victim.fitted(worlds, partial(spread, jobs=self.jobs)), some, strict=True)
            while ready := list(islice(made, 8 * workers(self.jobs))):  # looked at while the device trains the next
                yield from spread(look, ready, self.jobs)

    def _world(self, fit: tuple[bool, int]) -> Sets:
        """Run one fit in the world where the target is there, or not, and return what is seen."""
        rows, seed = self._setting(*fit)
        return _seen(self.eye, self.victim.synthetic(rows, sets=self.sets, size=self.size, seed=seed), fit[1])

    def _setting(self, there: bool, seed: int) -> tuple[RowsWithRecord, int]:
        """Return the rows of a world, and the seed of its fit."""
        rng = np.random.default_rng(seed)
        rest, counted = self.rest, self._counted
        if self.resampled:
            rest, counted = self.rest.take(np.sort(rng.permutation(len(self.rest))[: self.rows])), {}
        rows = RowsWithRecord(rest=rest, record=self.target if there else self.instead, counted=counted)
        return rows, int(rng.integers(2**31))

    def play(self, fits: int, rng: np.random.Generator, advance: Callable[[int], None]) -> Played:
        """Toss a coin for each fit and run them all."""
        there = rng.random(fits) < 0.5
        seeds = rng.integers(2**62, size=fits)
        found: list[Sets] = []
        for sets in self.worlds(there.tolist(), seeds.tolist()):
            found.append(sets)
            advance(1)
        return collected(there, found)


def collected(there: NDArray[np.bool_], found: Sequence[Sets]) -> Played:
    """Return what was seen of many fits as matrices."""
    sizes = [len(sets) for sets in found]
    return Played(
        there=np.repeat(there, sizes),
        fit=np.repeat(np.arange(len(found)), sizes),
        features={kind: np.array([one[kind] for sets in found for one in sets]) for kind in found[0][0]},
    )


def _looked(eye: Eye, sets: int, size: int, made: tuple[Fitted, tuple[bool, int]]) -> Sets:
    fitted, (_, seed) = made
    return _seen(eye, fitted.synthetic(sets=sets, size=size), seed)


def _seen(eye: Eye, made: Sequence[Rows], seed: int) -> Sets:
    rng = np.random.default_rng([seed, 1])
    return [eye(one, rng) for one in made]
