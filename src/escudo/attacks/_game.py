"""The membership game: a coin decides whether one record is there; the attacker looks at what a fitted generator makes.

Everything but that record is held fixed, so that a difference is its effect: do(Dᵢ = target) against do(Dᵢ = someone
else), or against nobody. With ``resampled`` rows the others are drawn anew for each fit, as in the published game: that
averages over the people who might have been in the table, and tells less about the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.attacks._features import Attacker, extract
from escudo.attacks._log import FitLog
from escudo.attacks._moved import RowsWithRecord
from escudo.attacks._victims import Victim
from escudo.utility import Rows

__all__ = ["Game", "Played"]

Floats = NDArray[np.float64]


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
        attacker: What the attacker knows.
        rest: All rows but the target's place; with ``resampled`` the pool that others are drawn from.
        target: The record in question.
        instead: Who stands in its place otherwise; None for nobody.
        rows: How many rows a fit gets besides that place.
        resampled: Whether the others are drawn anew for each fit.
        sets: Synthetic sets drawn from each fit.
        size: Rows in each.
        kinds: Which features are looked at.
        jobs: How many processes, as in joblib.
        label: Which person it is about.
        log: Where fits are kept, to go on after a stop.
    """

    victim: Victim
    attacker: Attacker
    rest: Rows
    target: Rows
    instead: Rows | None
    rows: int
    resampled: bool
    sets: int
    size: int
    kinds: tuple[str, ...]
    jobs: int | None = None
    label: str = ""
    log: FitLog | None = None
    _counted: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)

    def worlds(self, there: Sequence[bool], seeds: Sequence[int]) -> Iterator[list[dict[str, Floats]]]:
        """Run one fit for each coin and seed; give the features of its synthetic sets, in order."""
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

    def _run(self, fits: Sequence[tuple[bool, int]]) -> Iterator[list[dict[str, Floats]]]:
        from joblib import Parallel, delayed, effective_n_jobs
        from joblib.parallel import get_active_backend

        workers = effective_n_jobs(self.jobs)
        if workers == 1 or len(fits) < 2:
            yield from (self.world(coin, seed) for coin, seed in fits)
            return
        chunk = max(1, -(-len(fits) // (4 * workers)))  # fits of a chunk share what they count
        alone = replace(self, log=None)  # only this process writes
        streams = getattr(get_active_backend()[0], "supports_return_generator", False)
        work = Parallel(n_jobs=self.jobs, return_as="generator" if streams else "list")(
            delayed(alone._chunk)(fits[start : start + chunk]) for start in range(0, len(fits), chunk)
        )
        for made in work:
            yield from made

    def _chunk(self, fits: Sequence[tuple[bool, int]]) -> list[list[dict[str, Floats]]]:
        return [self.world(coin, seed) for coin, seed in fits]

    def world(self, there: bool, seed: int) -> list[dict[str, Floats]]:
        """Run one fit in the world where the target is there, or not, and return the features of its sets."""
        rng = np.random.default_rng(seed)
        rest, counted = self.rest, self._counted
        if self.resampled:
            rest, counted = self.rest.take(np.sort(rng.permutation(len(self.rest))[: self.rows])), {}
        rows = RowsWithRecord(rest=rest, record=self.target if there else self.instead, counted=counted)
        made = self.victim.synthetic(rows, sets=self.sets, size=self.size, seed=int(rng.integers(2**31)))
        return [extract(self.kinds, self.attacker, one) for one in made]

    def play(self, fits: int, rng: np.random.Generator, advance: Any = None) -> Played:
        """Toss a coin for each fit and run them all."""
        there = rng.random(fits) < 0.5
        seeds = rng.integers(2**62, size=fits)
        found: list[list[dict[str, Floats]]] = []
        for sets in self.worlds(there.tolist(), seeds.tolist()):
            found.append(sets)
            if advance is not None:
                advance(1)
        return collected(there, found, self.kinds)


def collected(there: NDArray[np.bool_], found: Sequence[list[dict[str, Floats]]], kinds: Sequence[str]) -> Played:
    """Return the features of many fits as matrices."""
    sizes = [len(sets) for sets in found]
    return Played(
        there=np.repeat(there, sizes),
        fit=np.repeat(np.arange(len(found)), sizes),
        features={kind: np.array([one[kind] for sets in found for one in sets]) for kind in kinds},
    )
