"""A randomised experiment on one person: each fit is a trial, and an audit bets on the coin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from escudo.attacks._ceiling import compared
from escudo.attacks._game import Game, collected
from escudo.attacks._victims import trains_together
from escudo.auditing import Audit, audit
from escudo.errors import InputError
from escudo.privacy import Guarantee, Relation

__all__ = ["Trials"]

Floats = NDArray[np.float64]
Judge = Callable[[Mapping[str, Floats]], Floats]
"""What an attacker makes of the features of some fits: one row of scores for each."""

_UNPROMISED = Guarantee(epsilon=30.0)  # no experiment rejects it, so that only the bound is looked at
_AHEAD = 256  # fits of each world that are trained together before the audit looks at them


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

    def __init__(
        self, game: Game, judge: Judge, *, trials: int, rng: np.random.Generator, advance: Callable[[int], None]
    ):
        self._game, self._judge, self._trials, self._advance = game, judge, trials, advance
        self._seeds = {world: np.random.default_rng(int(rng.integers(2**62))) for world in (False, True)}
        self._ready: dict[bool, list[Floats]] = {False: [], True: []}
        self._together = trains_together(game.victim)
        self.there: list[bool] = []
        self.scores: list[Floats] = []

    def audited(self, *, confidence: float, seed: int) -> Audit:
        """Run the experiment until the victim's promise is refuted, or out of trials.

        Raises:
            InputError: If every fit failed.
        """
        relation: Relation = "add_remove" if self._game.instead is None else "replace_one"
        claim, label = self._game.victim.claim, self._game.label
        found = audit(
            self,
            claim=_UNPROMISED if claim is None else compared(claim, relation),
            pairs=[(True, False, label)],
            confidence=confidence,
            max_runs=self._trials,
            stop_early=True,
            seed=seed,
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
        for world, scores in zip(worlds, self._judge(collected(np.array(worlds), found).features), strict=True):
            self._ready[world].append(scores)
