"""From a released margin to an answer: what ``gap`` and ``paper`` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from escudo.errors import InputError, RefusedError
from escudo.mechanisms import Seed, publishable
from escudo.orientation._answer import CANNOT_TELL, Direction, arrow
from escudo.orientation._asked import Asked
from escudo.privacy import Guarantee, Plan

__all__ = ["ABSTAIN", "Question", "check_question"]

ABSTAIN = 1.6
"""By default there is a verdict only where the margin exceeds so many noise scales: its sign is then 90 % sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, and how: everything about an answer that is known before a row is read.

    Attributes:
        x: One column.
        y: The other one.
        method: ``"gap"`` or ``"paper"``.
        score: The dependence score.
        plan: The budget tree.
        abstain: The verdict is "cannot tell" unless the margin is larger than so many noise scales.
        notes: What people should know about the way it was asked.
    """

    x: str
    y: str
    method: str
    score: str
    plan: Plan
    abstain: float
    notes: tuple[str, ...] = ()

    def answer(
        self,
        margin: float,
        *,
        noise_scale: float,
        certainty: float,
        scores: Mapping[str, float],
        scores_mean: str,
        seed: Seed,
        notes: tuple[str, ...] = (),
    ) -> Direction:
        """Return the answer for a released margin: above 0 for x->y."""
        threshold = self.abstain * noise_scale
        verdict = arrow(self.x, self.y) if margin > 0 else arrow(self.y, self.x)
        if abs(margin) <= threshold:
            verdict = CANNOT_TELL
            inside = f"The margin is inside the noise (±{threshold:.2g}): a larger ε or more rows could tell."
            notes = (*notes, inside)
        return Direction(
            x=self.x,
            y=self.y,
            verdict=verdict,
            margin=margin,
            probability_correct=certainty,
            guarantee=self._guarantee(seed),
            method=self.method,
            score=self.score,
            plan=self.plan,
            scores=scores,
            scores_mean=scores_mean,
            noise_scale=noise_scale,
            threshold=threshold,
            notes=(*self.notes, *notes),
        )

    def no_answer(self, why: str, *, seed: Seed) -> Direction:
        """Return "cannot tell", with the reason."""
        return Direction(
            x=self.x,
            y=self.y,
            verdict=CANNOT_TELL,
            margin=0.0,
            probability_correct=0.5,
            guarantee=self._guarantee(seed),
            method=self.method,
            score=self.score,
            plan=self.plan,
            notes=(*self.notes, why),
        )

    def _guarantee(self, seed: Seed) -> Guarantee:
        return replace(self.plan.guarantee(), for_release=publishable(seed))


def check_question(method: str, asked: Asked) -> int:
    """Return the public number of rows, or raise where the method's sensitivities do not hold.

    Raises:
        RefusedError: If neighbours may differ in the number of rows, or in several rows of one person.
        InputError: If the number of rows is not known.
    """
    if asked.relation != "replace_one":
        raise RefusedError(
            f"method {method!r} divides by the number of rows, which must be public: it holds for "
            "relation='replace_one' only. Use method='votes' for 'add_remove'. Nothing was spent."
        )
    if asked.unit != "row":
        raise RefusedError(
            f"method {method!r} protects one row; for a person with several rows use method='votes'. Nothing was spent."
        )
    if asked.rows is None:
        raise InputError(f"method {method!r} needs the public number of rows; give rows=....")
    return asked.rows
