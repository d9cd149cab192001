r"""Bounds for a number of runs that was fixed beforehand, and what else stands beside the bound that holds at any time.

**Guesses.** A pure claim is tested by saying "second dataset" in some cells, "first" in others, elsewhere nothing. B is
a fair coin, so a guess is right with probability at most :math:`e^ε / (1 + e^ε)` if ε holds, whatever happened before:
of h guesses the right ones are at most binomial. Their Clopper-Pearson lower bound q gives
:math:`ε ≥ \log(q / (1 - q))`. This uses both directions at once and has one error to share out, where the usual two
intervals, one per dataset, have two. With δ > 0 those two are used: :math:`ε ≥ \log((p_L - δ) / p'_U)`.

**The familiar second answer.** A :class:`FixedEvent` is chosen on the first part of the runs; the rest bound it. Valid
for a number of runs that was fixed beforehand.

**The witness** is the :class:`Event` with the largest difference; :class:`Power` says what would have been seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from escudo.auditing._calibration import Belief
from escudo.auditing._cells import Use, tally
from escudo.auditing._wealth import sets_of

Floats = NDArray[np.float64]
Guess = NDArray[np.int8]

_NOW = 0.7  # standard errors of what is believed now,
_THEN = 1.4  # and of what will be counted in the end, by which the log ratio of guesses is lowered


# ---- what guesses promise


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a bound will be made of.

    Attributes:
        delta: The δ of the claim.
        ahead: How many runs are still to come.
    """

    delta: float
    ahead: float

    @property
    def slack(self) -> float:
        """How many of the runs under one dataset δ makes up for."""
        return self.delta * self.ahead / 2


def best_guesses(belief: Belief, order: NDArray[np.intp], prospect: Prospect) -> tuple[float, Guess]:
    """Return a guess per cell that promises the best bound in the end, and the bound that it promises.

    "First" is guessed at the lower end of the order and "second" at the upper; with δ > 0, at one of the two ends.

    Args:
        belief: What is believed of the cells, in their own numbering.
        order: The cells in the order in which ends are made of them.
        prospect: What the bound will be made of.
    """
    runs, level = belief.runs[order], belief.level[order]
    cells, total = runs.size, max(float(runs.sum()), 1.0)
    share = 1 / (1 + np.exp(-level))
    later = runs * (prospect.ahead / total)
    below = np.concatenate([np.zeros((1, 2)), np.cumsum(np.stack([later * (1 - share), later * share], 1), axis=0)])
    above = below[-1] - below
    # How the counts of a set move with the levels of its cells.
    moved = later * share * (1 - share)
    square = np.zeros((cells + 1, cells + 1))
    square[1:, 1:] = (moved[:, None] * belief.spread[np.ix_(order, order)] * moved).cumsum(axis=0).cumsum(axis=1)
    lower = np.diag(square)
    upper = square[-1, -1] - 2 * square[-1] + lower
    guess = np.zeros(cells, dtype=np.int8)
    if prospect.delta:
        up = _worth(above[:, 1], above[:, 0], upper, prospect.slack)
        down = _worth(below[:, 0], below[:, 1], lower, prospect.slack)
        side, found = (1, up) if up.max() >= down.max() else (-1, down)
        at = int(found.argmax())
        guess[order[at:] if side > 0 else order[:at]] = side
        return float(found.max()), guess
    right = below[:, None, 0] + above[None, :, 1]  # "first" below cell i, "second" from cell j on
    wrong = below[:, None, 1] + above[None, :, 0]
    across = square[:, -1:] - square  # of the cells below i with those from j on
    worth = _worth(right, wrong, lower[:, None] + upper[None, :] - 2 * across, 0.0)
    ends = np.arange(cells + 1)
    worth[ends[:, None] > ends[None, :]] = -math.inf
    low, high = np.unravel_index(int(worth.argmax()), worth.shape)
    guess[order[:low]], guess[order[high:]] = -1, 1
    return float(worth[low, high]), guess


def cautious_worth(belief: Belief, guess: Guess, prospect: Prospect, *, errors: float) -> float:
    """Return the bound that a guess per cell promises, lowered by more standard errors than in :func:`best_guesses`.

    Args:
        belief: What is believed of the cells.
        guess: What is guessed in each.
        prospect: What the bound will be made of.
        errors: Standard errors of what is believed now.
    """
    share = 1 / (1 + np.exp(-belief.level))
    later = belief.runs * (prospect.ahead / max(float(belief.runs.sum()), 1.0))
    second, first = later * share, later * (1 - share)
    up, down = guess > 0, guess < 0
    right, wrong = second[up].sum() + first[down].sum(), first[up].sum() + second[down].sum()
    moved = guess * later * share * (1 - share)
    return float(_worth(right, wrong, moved @ belief.spread @ moved, prospect.slack, now=errors))


def seen_worth(right: float, wrong: float, prospect: Prospect, *, runs: float, errors: float) -> float:
    """Return the bound that guesses promise which were right and wrong so often in runs that did not choose them.

    Args:
        right: How many were right.
        wrong: How many were wrong.
        prospect: What the bound will be made of.
        runs: Of so many runs.
        errors: Standard errors of what was seen by which it is lowered.
    """
    later = prospect.ahead / max(runs, 1.0)
    square = (right + 0.5) * (wrong + 0.5) / (right + wrong + 1) * later**2  # the variance of guesses that are right
    return float(_worth(right * later, wrong * later, square, prospect.slack, now=errors))


def _worth(
    right: Floats | float, wrong: Floats | float, square: Floats | float, slack: float, *, now: float = _NOW
) -> Floats:
    """Return the log ratio of right to wrong guesses less standard errors, those of what is believed and of counts."""
    left = np.maximum(right - slack, 1e-9) + 0.5
    other = wrong + 0.5
    unsure = (1 / left + 1 / other) * np.sqrt(np.maximum(square, 0.0))
    counted = np.sqrt((right + 0.5) / left**2 + 1 / other)
    worth = np.log(left / other) - now * unsure - _THEN * counted
    return np.where(right + wrong > 0, worth, -math.inf)


# ---- the bound for a fixed number of runs


class FixedEvent:
    """What is guessed in each cell, and what happened since.

    Args:
        use: The cells.
        guess: 1 for "second dataset", -1 for "first", 0 for no guess, per cell.
    """

    def __init__(self, use: Use, guess: Guess) -> None:
        self.use, self.guess = use, guess
        self.counts = np.zeros((guess.size, 2), dtype=np.int64)

    def add(self, cells: NDArray[np.intp], labels: NDArray[np.bool_]) -> None:
        """Count runs made after the event was chosen."""
        self.counts += tally(cells, labels, self.guess.size)

    def bound(self, *, delta: float, alpha: float) -> float:
        """Return the lower bound on ε of error at most ``alpha``."""
        up, down = self.guess > 0, self.guess < 0
        if not delta:
            right = int(self.counts[up, 1].sum() + self.counts[down, 0].sum())
            wrong = int(self.counts[up, 0].sum() + self.counts[down, 1].sum())
            share, _ = clopper_pearson(right, right + wrong, alpha) if right else (0.0, 1.0)
            return max(0.0, math.log(share / (1 - share))) if share > 0 else 0.0
        likely, other, cells = (1, 0, up) if up.any() else (0, 1, down)
        hits, totals = self.counts[cells].sum(axis=0), self.counts.sum(axis=0)
        if not totals.all():
            return 0.0
        low, _ = clopper_pearson(int(hits[likely]), int(totals[likely]), alpha / 2)
        _, high = clopper_pearson(int(hits[other]), int(totals[other]), alpha / 2)
        return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0

    def plausible(self, *, delta: float, alpha: float) -> float | None:
        """Return the largest ε that these guesses make plausible; other guesses, or inputs, may show more."""
        if not delta:
            up, down = self.guess > 0, self.guess < 0
            right = int(self.counts[up, 1].sum() + self.counts[down, 0].sum())
            wrong = int(self.counts[up, 0].sum() + self.counts[down, 1].sum())
            share = clopper_pearson(right, right + wrong, alpha)[1] if right + wrong else 1.0
            return math.log(share / (1 - share)) if 0.5 < share < 1 else None
        likely, other, cells = (1, 0, self.guess > 0) if (self.guess > 0).any() else (0, 1, self.guess < 0)
        hits, totals = self.counts[cells].sum(axis=0), self.counts.sum(axis=0)
        if not totals.all():
            return None
        _, high = clopper_pearson(int(hits[likely]), int(totals[likely]), alpha / 2)
        low, _ = clopper_pearson(int(hits[other]), int(totals[other]), alpha / 2)
        return math.log((high - delta) / low) if high - delta > low > 0 else None


def choose_event(uses: Sequence[Use], beliefs: Sequence[Belief], prospect: Prospect) -> FixedEvent | None:
    """Return the guesses that promise the best bound in the end, in the first of the uses that has any."""
    for use, belief in zip(uses, beliefs, strict=True):
        _, guess = best_guesses(belief, use.order, prospect)
        if guess.any():
            return FixedEvent(use, guess)
    return None


def clopper_pearson(hits: int, runs: int, alpha: float) -> tuple[float, float]:
    """Return one-sided lower and upper bounds on a probability, each of error at most ``alpha``.

    >>> [round(x, 4) for x in clopper_pearson(5, 10, 0.05)]
    [0.2224, 0.7776]
    """
    lower = float(special.betaincinv(hits, runs - hits + 1, alpha)) if hits else 0.0
    upper = float(special.betaincinv(hits + 1, runs - hits, 1 - alpha)) if hits < runs else 1.0
    return lower, upper


# ---- the witness, and what would have been seen


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A set of cells with its runs.

    Attributes:
        use: The cells and their order.
        cells: Which of them.
        second: Whether it is likelier under the second dataset.
        hits: How often it happened under the likelier dataset and under the other.
        totals: Of so many runs.
        worth: The log ratio of the two, cautiously.
    """

    use: Use
    cells: NDArray[np.bool_]
    second: bool
    hits: tuple[int, int]
    totals: tuple[int, int]
    worth: float

    @property
    def probabilities(self) -> tuple[float, float]:
        """How often it happened, the likelier first."""
        return self.hits[0] / max(self.totals[0], 1), self.hits[1] / max(self.totals[1], 1)

    @property
    def mass(self) -> float:
        """How often it happened on average over both datasets."""
        return sum(self.hits) / max(sum(self.totals), 1)


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
            answer = Event(use, cells, flip, (int(right[at]), int(wrong[at])), (int(n_right), int(n_wrong)), best)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What the audit could have seen: a violation of this size, on events as likely as those it bet on.

    Attributes:
        epsilon: A true ε above the claim.
        probability: With which such a mechanism would have been rejected within the runs that were made.
        mass: How likely the event is that this assumes, under both datasets on average.
    """

    epsilon: float
    probability: float
    mass: float


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
