"""What an attack found: formal bounds and heuristic figures, apart, beside the ceiling that the guarantee allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from escudo._card import CUSTODIAN_ONLY, card
from escudo.attacks._ceiling import Ceiling
from escudo.attacks._measures import Score
from escudo.auditing import Audit
from escudo.effects import Effect, show_epsilon
from escudo.errors import InputError
from escudo.privacy import Guarantee

__all__ = ["Attack", "AttackedTarget"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttackedTarget:
    """How one person fared.

    Attributes:
        label: Which person: the number of the row, or ``"canary"``.
        scores: Every attack on them.
        audit: The randomised experiment on their record: each fit is a trial.
    """

    label: str
    scores: tuple[Score, ...]
    audit: Audit

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "label": self.label,
            "epsilon_lower": self.audit.epsilon_lower,
            "violated": self.audit.violated,
            "runs": self.audit.runs,
            "scores": [score.to_json() for score in self.scores],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attack:
    """Membership attacks on a generator, target by target. **For the custodian only**: it is about single people.

    Attributes:
        targets: Each person attacked.
        overall: Each attack over all of them.
        claim: What the generator promises; None if nothing.
        ceiling: The most that any attack can reach against the claim; None without one.
        confidence: Of the formal statements, over all targets together.
        relation: Which worlds were compared: another record in the place, or nobody.
        rest: ``"fixed"`` or ``"resampled"``.
        shadows: Fits that each attack learnt from.
        trials: Fits that it was tested on, at most.
        seed: Repeats the attack.
    """

    targets: tuple[AttackedTarget, ...]
    overall: tuple[Score, ...]
    claim: Guarantee | None
    ceiling: Ceiling | None
    confidence: float
    relation: str
    rest: str
    shadows: int
    trials: int
    seed: int

    @property
    def violated(self) -> bool:
        """Whether the claim is rejected for some target: a bug in the generator, or in its accounting."""
        return self.claim is not None and any(target.audit.violated for target in self.targets)

    @property
    def epsilon_lower(self) -> float:
        """The generator's ε is at least this, at the stated confidence, over all targets together."""
        return max(target.audit.epsilon_lower for target in self.targets)

    @property
    def effect(self) -> Effect:
        """The largest effect that was shown, with its witness."""
        return max((target.audit for target in self.targets), key=lambda audit: audit.epsilon_lower).effect

    @property
    def ranked(self) -> tuple[Score, ...]:
        """Each attack over all targets, the best first, by AUC."""
        return tuple(sorted(self.overall, key=lambda score: 1.0 if math.isnan(score.auc) else -score.auc))

    @property
    def best(self) -> Score:
        """The attack that did best over all targets, by AUC. Heuristic: it was picked after looking."""
        return self.ranked[0]

    def score(self, features: str, classifier: str) -> Score:
        """Return one attack over all targets."""
        for found in self.overall:
            if (found.features, found.classifier) == (features, classifier):
                return found
        raise InputError(f"no attack on {features!r} by {classifier!r} was made; see .overall for what there is.")

    @property
    def verdict(self) -> str:
        """The finding in one sentence."""
        level = f"{100 * self.confidence:g} %"
        bound = f"ε ≥ {show_epsilon(self.epsilon_lower)} with {level} confidence"
        if self.violated:
            return f"VIOLATED: the generator's promise does not hold; {bound}."
        low, high = self.best.accuracy_interval
        best = (
            f"the best of {len(self.overall)} attacks is right about {100 * self.best.accuracy:.0f} % of "
            f"{self.best.fits:,} fits (its own 95 % interval: {100 * low:.0f} to {100 * high:.0f} %; guessing: 50 %)"
        )
        if self.ceiling is None:
            return f"{bound}; {best}. The generator promises nothing."
        return f"No violation found; {bound}; {best}; the promise allows {100 * self.ceiling.accuracy:.1f} %."

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "custodian_only": True,
            "verdict": self.verdict,
            "violated": self.violated,
            "epsilon_lower": self.epsilon_lower,
            "confidence": self.confidence,
            "claim": None if self.claim is None else self.claim.to_json(),
            "ceiling": None if self.ceiling is None else self.ceiling.to_json(),
            "relation": self.relation,
            "rest": self.rest,
            "shadows": self.shadows,
            "trials": self.trials,
            "seed": self.seed,
            "overall": [score.to_json() for score in self.overall],
            "targets": [target.to_json() for target in self.targets],
        }

    def __str__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        people = f"{len(self.targets)} {'person' if len(self.targets) == 1 else 'people'}"
        return card(f"Attack on {people}", self.verdict, note=CUSTODIAN_ONLY, alarm=self.violated)
