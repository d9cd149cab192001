"""What stands beside the bound: the witness, its Clopper-Pearson intervals, and what would have been seen."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from escudo.auditing._result import Power
from escudo.auditing._stakes import sets_of
from escudo.auditing._views import Use

__all__ = ["Event", "best_event", "clopper_pearson", "power_of"]

Floats = NDArray[np.float64]


class Event:
    """A set of cells with its runs: how often it happened under the likelier dataset and under the other."""

    def __init__(
        self,
        use: Use,
        cells: NDArray[np.bool_],
        *,
        second: bool,
        hits: tuple[int, int],
        totals: tuple[int, int],
        worth: float,
    ) -> None:
        self.use, self.cells, self.second = use, cells, second
        self.hits, self.totals, self.worth = hits, totals, worth

    @property
    def probabilities(self) -> tuple[float, float]:
        """How often it happened, the likelier first."""
        return self.hits[0] / max(self.totals[0], 1), self.hits[1] / max(self.totals[1], 1)

    @property
    def mass(self) -> float:
        """How often it happened on average over both datasets."""
        return sum(self.hits) / max(sum(self.totals), 1)


def clopper_pearson(hits: int, runs: int, alpha: float) -> tuple[float, float]:
    """Return one-sided lower and upper bounds on a probability, each of error at most ``alpha``.

    >>> [round(x, 4) for x in clopper_pearson(5, 10, 0.05)]
    [0.2224, 0.7776]
    """
    lower = float(special.betaincinv(hits, runs - hits + 1, alpha)) if hits else 0.0
    upper = float(special.betaincinv(hits + 1, runs - hits, 1 - alpha)) if hits < runs else 1.0
    return lower, upper


def best_event(use: Use, counts: Floats, *, delta: float, caution: float = 2.0) -> Event | None:
    """Return the set of cells, at one end of the order, whose cautious log ratio is largest; None if nothing is."""
    if counts.sum() == 0:
        return None
    members, first, second = sets_of(counts[use.order])
    totals = counts.sum(axis=0)
    best, answer = -math.inf, None
    for flip, right, wrong in ((True, second, first), (False, first, second)):
        n_right, n_wrong = (totals[1], totals[0]) if flip else (totals[0], totals[1])
        rate = np.maximum((right + 0.5) / (n_right + 1) - delta, 1e-300)
        worth = (
            np.log(rate)
            - np.log((wrong + 0.5) / (n_wrong + 1))
            - caution * np.sqrt(1 / (right + 0.5) + 1 / (wrong + 0.5))
        )
        at = int(worth.argmax())
        if worth[at] > best and right[at] > 0:
            cells = np.zeros(len(counts), dtype=bool)
            cells[use.order[members[at]]] = True
            best = float(worth[at])
            hits = int(right[at]), int(wrong[at])
            answer = Event(use, cells, second=flip, hits=hits, totals=(int(n_right), int(n_wrong)), worth=best)
    return answer


def power_of(*, claim: float, delta: float, mass: float, runs: int, alpha: float) -> Power | None:
    """Return the smallest round ε above the claim that ``runs`` runs would have shown with probability 0.9 or more.

    The mechanism imagined has an event of probability ``mass``, on average over both datasets, that is e^ε times as
    likely (beyond δ) under one of them. Its log wealth under the best bet is close to normal; four units are allowed
    for not knowing event and bet. None if nothing up to ε = 20 would have been seen.
    """
    if not 0 < mass < 1 or runs < 10:  # what always happens cannot be likelier under one dataset
        return None
    fair = 1 / (1 + math.exp(-claim))
    needed = math.log(1 / alpha) + 4
    for times in (1.05, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100):
        epsilon = max(claim, 0.02) * times
        share = 1 / (1 + math.exp(-epsilon))
        # δ makes up for part of the excess: what is left of the mass speaks against the claim.
        hits = runs * max(0.0, mass - delta / 2)
        gain, loss = math.log(share / fair), math.log((1 - share) / (1 - fair)) if share < 1 else -50.0
        mean = hits * (share * gain + (1 - share) * loss)
        spread = math.sqrt(hits * share * (1 - share)) * (gain - loss)
        if epsilon > 20:
            return None
        if spread > 0:
            seen = float(special.ndtr((mean - needed) / spread))
            if seen >= 0.9:
                return Power(epsilon=epsilon, probability=min(seen, 0.999), mass=mass)
    return None
