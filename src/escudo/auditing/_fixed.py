r"""The familiar second answer: an event chosen on the first part of the runs, a Clopper-Pearson bound on the rest.

A pure claim is tested by *guesses*. In some cells "second dataset" is guessed, in others "first", elsewhere nothing.
B is a fair coin, so a guess is right with probability at most :math:`e^ε / (1 + e^ε)` if ε holds, whatever happened
before: of h guesses the right ones are at most binomial. Their Clopper-Pearson lower bound q gives
:math:`ε ≥ \log(q / (1 - q))`. This uses both directions at once and has one error to share out, where the usual two
intervals, one per dataset, have two. With δ > 0 those two are used: :math:`ε ≥ \log((p_L - δ) / p'_U)`.

Valid for a number of runs that was fixed beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._bounds import clopper_pearson
from escudo.auditing._calibration import Belief
from escudo.auditing._guesses import Guess, best_guesses
from escudo.auditing._views import Use

__all__ = ["FixedEvent", "choose_event"]


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
        self.counts += np.bincount(cells * 2 + labels, minlength=self.counts.size).reshape(-1, 2)

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


def choose_event(uses: Sequence[Use], beliefs: Sequence[Belief], *, delta: float, ahead: float) -> FixedEvent | None:
    """Return the guesses that promise the best bound after ``ahead`` more runs, in the first of the uses that has any.

    Args:
        uses: Ways of cutting outputs into cells, the best first.
        beliefs: What is believed of the cells of each.
        delta: The δ of the claim.
        ahead: How many runs the bound will have.
    """
    for use, belief in zip(uses, beliefs, strict=True):
        _, guess = best_guesses(belief, use.order, delta=delta, ahead=ahead)
        if guess.any():
            return FixedEvent(use, guess)
    return None
