r"""What an attack found: formal bounds and heuristic figures, apart, beside the ceiling that the guarantee allows.

A :class:`Score` says how well an attack did, with intervals that count fits, not synthetic sets. A :class:`Ceiling` is
what a guarantee allows any attacker, whatever they know or compute. Under :math:`P(S) \le e^ε P'(S) + δ(ε)` for all
ε ≥ 0, in both directions, an attacker who is right about a share x of the people who are not there is right about at
most

.. math:: T(α) = \min_{ε \ge 0} \min\bigl\{ e^ε α + δ(ε),\; 1 - e^{-ε} (1 - δ(ε) - α) \bigr\}, \qquad α = 1 - x,

of those who are. The advantage, TPR - FPR, is at most δ(0), the total variation; accuracy on fair coins at most half of
1 plus that; the AUC at most the area under T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import CUSTODIAN_ONLY, card, plain, plain_for_custodian
from escudo._files import listed
from escudo._plot import Drawn, intervals
from escudo.auditing import Audit
from escudo.effects import Effect, show_epsilon
from escudo.errors import InputError
from escudo.privacy import Guarantee, Relation
from escudo.utility import auc

Floats = NDArray[np.float64]
Interval = tuple[float, float]

_FALSE_ALARMS = 0.01
_LARGEST = 600.0  # e^ε is still a number; a smaller ε is a weaker attacker, but not one that anybody could tell apart
_GRID = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 25), np.linspace(1.2, 12.0, 55)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attack(Drawn):
    """Membership attacks on a generator, target by target. **For the custodian only**: it is about single people.

    ``plot`` draws how often each attack is right, beside guessing and what the promise allows.

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
        names = ("verdict", "violated", "epsilon_lower", "confidence", "claim", "ceiling", "relation", "rest")
        return plain_for_custodian(self, *names, "shadows", "trials", "seed", "overall", "targets")

    def to_pandas(self) -> Any:
        """Return each attack over all targets as a pandas frame, the best first.

        Raises:
            InputError: If pandas is not installed.
        """
        heads = ("features", "classifier", "accuracy", "tpr", "fpr", "advantage", "auc", "tpr_at_1_percent", "fits")
        return listed([[getattr(score, head) for head in heads] for score in self.ranked], heads)

    def _draw(self, axes: Any) -> Any:
        allowed = {} if self.ceiling is None else {"the promise allows": 100 * self.ceiling.accuracy}
        rows = [(f"{x.features}, {x.classifier}", 100 * x.accuracy, _hundred(x.accuracy_interval)) for x in self.ranked]
        return intervals(
            axes,
            rows,
            title=f"Membership attacks ({CUSTODIAN_ONLY})",
            across=f"right answers among {self.best.fits:,} fits, %; 95 % intervals of each",
            up="attack",
            lines={"guessing": 50.0, **allowed},
        )

    def __str__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        people = f"{len(self.targets)} {'person' if len(self.targets) == 1 else 'people'}"
        return card(f"Attack on {people}", self.verdict, note=CUSTODIAN_ONLY, alarm=self.violated)


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
            **plain(self, "label"),
            **plain(self.audit, "epsilon_lower", "violated", "runs"),
            **plain(self, "scores"),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttributeAttack:
    """Whether synthetic rows give away one value of one person's record. For the custodian only.

    Attributes:
        attribute: The column.
        right: How often the guess, the commonest value of the nearest synthetic rows, is the record's value. It and
            the next two are NaN where so few fits were made that all were of one world.
        without: How often it would have been, had the record said otherwise: what other people's rows give away.
        advantage: The difference: what the record's own value gives away.
        audits: One experiment for each target.
        claim: What the generator promises; None if nothing.
        ceiling: The most that the promise allows ``advantage`` to be; None without one.
        fits: How many fits were tested in all; fewer than asked for where the answer was clear before.
    """

    attribute: str
    right: float
    without: float
    advantage: float
    audits: tuple[Audit, ...]
    claim: Guarantee | None
    ceiling: Ceiling | None
    fits: int

    @property
    def violated(self) -> bool:
        """Whether the claim is rejected for some target."""
        return self.claim is not None and any(found.violated for found in self.audits)

    @property
    def epsilon_lower(self) -> float:
        """The generator's ε is at least this, at the stated confidence, over all targets together."""
        return max(found.epsilon_lower for found in self.audits)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return plain_for_custodian(
            self, "attribute", "right", "without", "advantage", "violated", "epsilon_lower", "ceiling", "fits"
        )

    def __str__(self) -> str:
        allowed = "" if self.ceiling is None else f"; the promise allows {100 * self.ceiling.advantage:.1f} points"
        return (
            f"{self.attribute}: guessed right in {100 * self.right:.1f} % of fits, and in {100 * self.without:.1f} % "
            f"when the record said otherwise: its own value gives away {100 * self.advantage:+.1f} points{allowed}"
        )

    def _repr_html_(self) -> str:
        people = f"{len(self.audits)} {'person' if len(self.audits) == 1 else 'people'}"
        return card(f"Attribute attack on {people}", str(self), note=CUSTODIAN_ONLY, alarm=self.violated)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedScore:
    """One cell of the published tables, in per cent.

    Attributes:
        features: The extractor.
        classifier: The attack model.
        accuracy: Sets answered right.
        na: Sets of fits without the target answered right.
        pa: Sets of fits with the target answered right.
        sets: How many sets were tested.
    """

    features: str
    classifier: str
    accuracy: float
    na: float
    pa: float
    sets: int


def _hundred(ends: Interval) -> Interval:
    return 100 * ends[0], 100 * ends[1]


# ---- how well an attack did


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well one attack did on one target, or on all of them.

    Attributes:
        features: What the attacker looked at.
        classifier: How they decided.
        accuracy: The share of fits answered right.
        accuracy_interval: Its 95 % interval.
        tpr: The share of fits with the target answered "there" (the paper's PA).
        tpr_interval: Its 95 % interval.
        fpr: The share of fits without it answered "there" (1 minus the paper's NA).
        fpr_interval: Its 95 % interval.
        advantage: TPR - FPR.
        auc: How often a fit with the target scores above one without.
        auc_interval: Its 95 % interval.
        tpr_at_1_percent: TPR at the threshold that at most 1 % of fits without the target pass.
        fits: How many fits this is about.
    """

    features: str
    classifier: str
    accuracy: float
    accuracy_interval: Interval
    tpr: float
    tpr_interval: Interval
    fpr: float
    fpr_interval: Interval
    advantage: float
    auc: float
    auc_interval: Interval
    tpr_at_1_percent: float
    fits: int

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return plain(self)


def score_of(features: str, classifier: str, there: NDArray[np.bool_], scores: Floats) -> Score:
    """Return how well scores tell the two worlds apart; positive ones answer "there"."""
    answers = scores > 0
    yes, no = int(there.sum()), int((~there).sum())
    right, caught, alarmed = int((answers == there).sum()), int(answers[there].sum()), int(answers[~there].sum())
    tpr, fpr = caught / yes if yes else math.nan, alarmed / no if no else math.nan
    ranked = auc(there, scores)
    return Score(
        features=features,
        classifier=classifier,
        accuracy=right / max(there.size, 1),
        accuracy_interval=_binomial(right, there.size),
        tpr=tpr,
        tpr_interval=_binomial(caught, yes),
        fpr=fpr,
        fpr_interval=_binomial(alarmed, no),
        advantage=tpr - fpr,
        auc=ranked,
        auc_interval=_auc_interval(there, scores, ranked),
        tpr_at_1_percent=_tpr_at(there, scores),
        fits=there.size,
    )


def pool(scores: Sequence[Score]) -> Score:
    """Return the mean of one attack over targets, with intervals over targets where there are several."""
    if len(scores) == 1:
        return scores[0]

    def mean(name: str) -> float:
        values = [getattr(score, name) for score in scores if not math.isnan(getattr(score, name))]
        return float(np.mean(values)) if values else math.nan

    def interval(name: str, *, of: float = 1.0) -> Interval:
        from scipy.stats import t

        values = [getattr(score, name) for score in scores if not math.isnan(getattr(score, name))]
        if len(values) < 2:
            return 0.0, 1.0
        half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
        # Targets that all came out alike do not make a narrower interval than the coins of their fits allow; about
        # half of the fits have the target, and a rate is about these only.
        total = of * sum(score.fits for score in scores)
        centre = float(np.mean(values))
        least = 1.96 * math.sqrt(max(centre * (1 - centre), 0.25 / total) / total)
        return max(0.0, centre - max(half, least)), min(1.0, centre + max(half, least))

    return Score(
        features=scores[0].features,
        classifier=scores[0].classifier,
        accuracy=mean("accuracy"),
        accuracy_interval=interval("accuracy"),
        tpr=mean("tpr"),
        tpr_interval=interval("tpr", of=0.5),
        fpr=mean("fpr"),
        fpr_interval=interval("fpr", of=0.5),
        advantage=mean("advantage"),
        auc=mean("auc"),
        auc_interval=interval("auc", of=0.5),
        tpr_at_1_percent=mean("tpr_at_1_percent"),
        fits=sum(score.fits for score in scores),
    )


def _binomial(hits: int, total: int) -> Interval:
    """Return the Clopper-Pearson 95 % interval of a share."""
    from scipy.stats import beta

    if total == 0:
        return 0.0, 1.0
    low = float(beta.ppf(0.025, hits, total - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, total - hits)) if hits < total else 1.0
    return low, high


def _auc_interval(there: NDArray[np.bool_], scores: Floats, ranked: float) -> Interval:
    """Return DeLong's 95 % interval, never narrower than one fit in each world allows."""
    ours, theirs = scores[there], scores[~there]
    if ours.size < 2 or theirs.size < 2:
        return 0.0, 1.0
    above = (ours[:, None] > theirs[None, :]) + 0.5 * (ours[:, None] == theirs[None, :])
    variance = above.mean(axis=1).var(ddof=1) / ours.size + above.mean(axis=0).var(ddof=1) / theirs.size
    half = 1.96 * math.sqrt(max(float(variance), 1 / (12 * min(ours.size, theirs.size) ** 2)))
    return max(0.0, ranked - half), min(1.0, ranked + half)


def _tpr_at(there: NDArray[np.bool_], scores: Floats) -> float:
    """Return the share of positives above the threshold that at most 1 % of negatives pass."""
    theirs = np.sort(scores[~there])[::-1]
    if not theirs.size or not there.any():
        return math.nan
    threshold = theirs[math.floor(_FALSE_ALARMS * theirs.size)]
    return float((scores[there] > threshold).mean())


# ---- what a guarantee allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that any attack can reach against a guarantee.

    Attributes:
        advantage: Of TPR over FPR.
        accuracy: On fair coins.
        auc: Area under the ROC curve.
        tpr: The true positive rate at a false positive rate of 1 %.
    """

    advantage: float
    accuracy: float
    auc: float
    tpr: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {"advantage": self.advantage, "accuracy": self.accuracy, "auc": self.auc, "tpr_at_1_percent": self.tpr}


def ceiling_of(claim: Guarantee, relation: Relation) -> Ceiling:
    """Return what a guarantee allows an attacker who compares two worlds that are neighbours under ``relation``.

    Raises:
        InputError: If it says nothing about such worlds.

    >>> round(ceiling_of(Guarantee(epsilon=2.36), "replace_one").accuracy, 4)
    0.9137
    """
    epsilons, deltas = _front(comparable(claim, relation))
    advantage = _total_variation(epsilons, deltas)
    rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 4000)])
    reach = _tpr(rates, epsilons, deltas)
    area = float(np.sum((reach[1:] + reach[:-1]) / 2 * np.diff(rates)))
    return Ceiling(
        advantage=advantage,
        accuracy=(1 + advantage) / 2,
        auc=min(1.0, area),
        tpr=float(_tpr(np.array([0.01]), epsilons, deltas)[0]),
    )


def comparable(claim: Guarantee, relation: Relation) -> Guarantee:
    """Return what a guarantee promises about two worlds that are neighbours under ``relation``.

    A world where one record stands instead of another is two steps of a guarantee for adding or removing one. A
    guarantee for replacing one says nothing about a world with one record less.

    Raises:
        InputError: In that last case.
    """
    if relation == "add_remove" and claim.relation == "replace_one":
        raise InputError(
            "the generator's promise is about replacing a record (replace_one), and says nothing about a table with "
            "one record less (add_remove); attack it with relation='replace_one'."
        )
    return claim.under(relation)


def _front(claim: Guarantee) -> tuple[Floats, Floats]:
    """Return the points (ε, δ) that the guarantee promises, its own among them."""
    epsilons = list(_GRID)
    if claim.epsilon is not None and math.isfinite(claim.epsilon):
        epsilons.append(min(claim.epsilon, _LARGEST))
    points = [(epsilon, claim.delta_at(epsilon)) for epsilon in epsilons]
    usable = [(epsilon, delta) for epsilon, delta in points if delta < 1.0]
    if not usable:
        return np.array([0.0]), np.array([1.0])
    return np.array([point[0] for point in usable]), np.array([point[1] for point in usable])


def _total_variation(epsilons: Floats, deltas: Floats) -> float:
    """Return the least bound on TPR - FPR: where the two lines of a point (ε, δ) meet."""
    growth = np.exp(epsilons)
    return float(min(1.0, np.min((growth - 1 + 2 * deltas) / (growth + 1))))


def _tpr(rates: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    growth = np.exp(epsilons)[:, None]
    low = growth * rates + deltas[:, None]
    high = 1 - (1 - deltas[:, None] - rates) / growth
    reach: Floats = np.clip(np.minimum(low, high).min(axis=0), rates, 1.0)
    return reach
