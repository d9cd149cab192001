"""The runs of each input pair, and which pair gets the next ones.

An :class:`Experiment` holds what was seen of one pair, how it is cut into cells, and the stage that is being bet on;
:class:`Rounds` gives runs to pairs by successive halving, without stopping the betting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from escudo.auditing._bounds import FixedEvent, Prospect, choose_event
from escudo.auditing._calibration import Belief
from escudo.auditing._cells import Cells, Use, tally
from escudo.auditing._outputs import Encoded, Sample
from escudo.auditing._views import choose_views, promise
from escudo.auditing._wealth import Book, Stage, View

Floats = NDArray[np.float64]
_RECOUNT_EARLY, _EARLY = 1.5, 1000  # or so much while there are fewer runs than this,

_FIRST = 12  # runs before the first bet
_KEPT_NUMBERS = 25_000_000  # of outputs, for learning: 200 MB
_KEPT_ROWS = 3_500_000
_CHOSEN = 0.2  # after this part of the runs the event of the fixed-n bound is chosen,
_CHOSEN_LEARNT = 0.35  # after this part, or once no more are kept, if it takes a learnt score,
_CHOSEN_FROM = 2000  # or after so many where that is more, but never after more than half
_NEW = 1.05  # so much growth of the runs is worth another look before that choice
_RECOUNT = 1.3  # stakes follow the counts again after so much growth,
_RECOUNTED_FROM = 24  # from so many runs on
_EXPLORED = 0.3  # part of all runs that goes into finding the best pair
_LEAST = 60  # runs a pair gets in its first round,
_GLANCE = 18  # or so many where there are very many pairs,
_ROUND = 2400  # so that a round of them has about this many in all
_RANKED = 8  # numbers of an output that are compared by their ranks
_FEW = 16  # up to so many pairs, half of them stay; of more, a third
_MOST = 30_000  # runs a pair gets in one round


class Experiment:
    """The state of one pair.

    Args:
        index: Its place among the pairs.
        pair: The two datasets.
        label: Its name.
        book: Where stages are entered.
        seed: For learning.
        references: Noiseless answers, where known.
        delta: The δ of the claim.
        last_bits: Whether the last bits of floats are looked at.
    """

    def __init__(
        self,
        index: int,
        pair: tuple[Any, Any],
        label: str,
        book: Book,
        seed: int,
        *,
        references: Sequence[Floats],
        delta: float,
        last_bits: bool,
    ) -> None:
        self.index, self.pair, self.label = index, pair, label
        self.runs = 0
        self.ahead = 0.0
        self.uses: list[Use] = []
        self.before: list[Floats] = []
        self._beliefs: list[Belief] = []
        self.stage: Stage | None = None
        self.fixed: FixedEvent | None = None
        self._references, self._delta, self._book, self._last_bits = references, delta, book, last_bits
        self._rng = np.random.default_rng([seed, 17, index])
        self._kept: list[Sample] = []
        self._kept_rows = 0
        self._width = 1
        self._refit, self._recount, self._last_fit = _FIRST, _FIRST, 0
        self._chosen_at = _CHOSEN

    @property
    def until_change(self) -> int:
        """How many more runs until cells or stakes change."""
        return max(1, min(self._refit, self._recount) - self.runs)

    def cells(self, outputs: Encoded) -> list[Cells]:
        """Return the cell of each output in each view of the open stage."""
        if self.stage is None:
            return []
        outputs = outputs.widened(self._width)  # as many numbers as were met before
        known: dict[int, Cells] = {}
        for use in self.uses:
            if id(use.partition) not in known:
                known[id(use.partition)] = use.partition(outputs)
        return [known[id(use.partition)] for use in self.uses]

    def add(self, made: Sample, cells: Sequence[Cells]) -> None:
        """Count runs that were made, in the cells of the open stage."""
        self.runs += len(made)
        if self.stage is not None:
            for view, where in zip(self.stage.views, cells, strict=True):
                view.counts[...] += tally(where, made.labels, len(view.counts))
        if self.fixed is not None and len(made):
            same = [
                where for use, where in zip(self.uses, cells, strict=False) if use.partition is self.fixed.use.partition
            ]
            self.fixed.add(same[0] if same else self.fixed.use.partition(made.outputs), made.labels)
        self._width = max(self._width, made.outputs.values.shape[1])
        room = self._most_rows - self._kept_rows
        if room > 0:
            self._kept.append(made.part(slice(0, min(room, len(made)))))
            self._kept_rows += min(room, len(made))

    def advance(self, structures: Sequence[str], *, ahead: float, alone: bool) -> None:
        """Open the next stage if it is time: new cells, or new stakes on the same cells.

        Args:
            structures: What the codes of outputs mean.
            ahead: About how many runs are still to come.
            alone: Whether all of them go to this pair, so that the event of the fixed-n bound can be chosen.
        """
        self.ahead = ahead
        every = self.runs + ahead
        choice = int(max(self._chosen_at * every, min(_CHOSEN_FROM, every / 2)))
        choose = alone and self.fixed is None and self.runs >= max(choice, _FIRST)
        if not choose and self.runs < min(self._refit, self._recount):
            return
        self.close()
        fresh = self._kept_rows >= (_NEW if choose else 1.5) * self._last_fit and (choose or self.runs >= self._refit)
        if fresh:
            self._learn(structures, checked=choose)
        while self._refit <= self.runs:
            self._refit *= 2
        if self.runs < choice < 1.5 * self._refit:
            self._refit = choice
        grown = _RECOUNT_EARLY if self.runs < _EARLY else _RECOUNT
        self._recount = int(self.runs * grown) if self.runs >= _RECOUNTED_FROM else self._refit
        # A learnt score gets better while outputs are still kept to learn from.
        later = int(min(_CHOSEN_LEARNT * every, self._most_rows))
        if choose and self.uses and self.uses[0].partition.learnt and later >= _NEW * self.runs:
            self._chosen_at, choose = later / every, False
            self._refit = min(self._refit, later)
        if choose and self.uses:
            self.fixed = choose_event(self.uses, self._beliefs, self._prospect)
        self._open(fresh)

    def close(self, *, void: bool = False) -> None:
        """Settle the open stage, if void to the bettor's loss; its counts join those before."""
        if self.stage is None:
            return
        (self._book.void if void else self._book.close)(self.stage)
        self.before = [b + view.counts for b, view in zip(self.before, self.stage.views, strict=True)]
        self.stage = None

    def promise(self) -> float:
        """Return the bound that this pair is likely to give."""
        if not self.uses:
            return -np.inf
        return max(
            promise(counts, use.order, self._prospect) for use, counts in zip(self.uses, self.counts, strict=True)
        )

    def moved(self) -> float:
        """Return by how many standard errors some number of the outputs is larger under one dataset, by their ranks."""
        if not self._kept:
            return 0.0
        sample = self.sample()
        second = int(sample.labels.sum())
        first = len(sample) - second
        if not first or not second:
            return 0.0
        ranks = rankdata(np.nan_to_num(sample.outputs.values[:, :_RANKED], nan=-np.inf), axis=0)
        apart = ranks[sample.labels].sum(axis=0) - second * (len(sample) + 1) / 2
        return float(np.abs(apart).max() / math.sqrt(first * second * (len(sample) + 1) / 12))

    @property
    def kept_rows(self) -> int:
        """How many outputs are kept."""
        return self._kept_rows

    @property
    def _most_rows(self) -> int:
        """How many outputs may be kept."""
        return min(_KEPT_ROWS, _KEPT_NUMBERS // self._width)

    @property
    def width(self) -> int:
        """How many numbers an output has; 1 before any was seen."""
        return self._kept[-1].outputs.values.shape[1] if self._kept else 1

    @property
    def counts(self) -> list[Floats]:
        """Runs per cell in each view, the open stage included."""
        if self.stage is None:
            return self.before
        return [b + view.counts for b, view in zip(self.before, self.stage.views, strict=True)]

    @property
    def _prospect(self) -> Prospect:
        return Prospect(self._delta, self.ahead)

    def sample(self) -> Sample:
        """Return the runs kept for learning, in order."""
        width = max(part.outputs.values.shape[1] for part in self._kept)
        parts = [part.outputs.widened(width) for part in self._kept]
        outputs = Encoded(np.concatenate([p.values for p in parts]), np.concatenate([p.codes for p in parts]))
        self._kept = [Sample(outputs, np.concatenate([part.labels for part in self._kept]))]
        return self._kept[0]

    def _learn(self, structures: Sequence[str], *, checked: bool) -> None:
        chosen = choose_views(
            self.sample(),
            self._prospect,
            structures,
            self._rng,
            references=self._references,
            last_bits=self._last_bits,
            checked=checked,
        )
        self.uses = [view.use for view in chosen]
        self.before = [view.counts for view in chosen]
        self._beliefs = [view.belief for view in chosen]
        self._last_fit = self._kept_rows

    def _open(self, fresh: bool) -> None:
        views = tuple(
            View(counts, use.order, np.zeros(counts.shape, dtype=np.int64))
            for use, counts in zip(self.uses, self.before, strict=True)
        )
        self.stage = Stage(self.index, views, fresh, self.runs + self.ahead)
        self._book.open(self.stage)


class Rounds:
    """Gives equal runs to all pairs still in the race, then drops the less promising half, until one is left.

    Of very many pairs each has a glance first, and a third stays: one bad pair among hundreds is found in far fewer
    runs than each of them would need.

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

    def pool(self, pooled: Experiment) -> None:
        """Give all runs from now on, and all the capital, to new questions."""
        for experiment in self._live:
            experiment.close()
        self._book.pool()
        self._live = [pooled]

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
        least = max(_GLANCE, min(_LEAST, _ROUND // len(self._live)))
        return so_far + int(min(_MOST, max(least, self._budget / len(self._live))))

    def _halve(self) -> None:
        ranked = sorted(self._live, key=lambda experiment: -experiment.promise())
        keep = ranked[: (len(ranked) + 1) // 2 if len(ranked) <= _FEW else (len(ranked) + 2) // 3]
        if len(ranked) > _FEW:  # after a glance a promise is mostly luck: what moves as a whole may stay as well
            moved = sorted(self._live, key=lambda experiment: -experiment.moved())
            keep = list({id(one): one for one in (*keep, *moved[: len(ranked) // 6])}.values())
        dropped = [experiment for experiment in ranked if experiment not in keep]
        for experiment in dropped:
            experiment.close()
        self._book.drop(tuple(sorted(experiment.index for experiment in dropped)))
        self._live = [experiment for experiment in self._live if experiment in keep]
        self._goal = self._next_goal()
