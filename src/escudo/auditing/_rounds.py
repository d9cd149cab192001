"""Which input pair gets the next runs: successive halving, without stopping the betting."""

from __future__ import annotations

import math
from collections.abc import Sequence

from escudo.auditing._experiment import Experiment
from escudo.auditing._wealth import Book

__all__ = ["Rounds"]

_EXPLORED = 0.3  # part of all runs that goes into finding the best pair
_LEAST = 60  # runs a pair gets in its first round
_MOST = 30_000  # runs a pair gets in one round


class Rounds:
    """Gives equal runs to all pairs still in the race, then drops the less promising half, until one is left.

    Validity does not depend on it: which pair is next is decided by the past alone, and the capital of a dropped pair
    goes to those that stay.
    """

    def __init__(self, experiments: Sequence[Experiment], book: Book, max_runs: int) -> None:
        self._live = list(experiments)
        self._book = book
        rounds = max(1, math.ceil(math.log2(len(experiments)))) if len(experiments) > 1 else 0
        self._budget = _EXPLORED * max_runs / max(rounds, 1)
        self._goal = self._next_goal()

    @property
    def live(self) -> tuple[Experiment, ...]:
        """The pairs still in the race."""
        return tuple(self._live)

    def next(self) -> tuple[Experiment, int]:
        """Return the pair whose turn it is and how many runs it may have before others are looked at."""
        if len(self._live) == 1:
            return self._live[0], 2**62
        least = min(self._live, key=lambda experiment: experiment.runs)
        if least.runs >= self._goal:
            self._halve()
            return self.next()
        return least, int(self._goal - least.runs)

    def _next_goal(self) -> int:
        if len(self._live) < 2:
            return 0
        so_far = min(experiment.runs for experiment in self._live)
        return so_far + int(min(_MOST, max(_LEAST, self._budget / len(self._live))))

    def _halve(self) -> None:
        ranked = sorted(self._live, key=lambda experiment: -experiment.promise())
        keep = ranked[: (len(ranked) + 1) // 2]
        dropped = ranked[len(keep) :]
        for experiment in dropped:
            experiment.close()
        self._book.drop(tuple(sorted(experiment.index for experiment in dropped)))
        self._live = [experiment for experiment in self._live if experiment in keep]
        self._goal = self._next_goal()
