"""How well an attack did, with intervals that count fits, not synthetic sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.utility._learners import auc

__all__ = ["Interval", "Score", "pooled", "score_of"]

Floats = NDArray[np.float64]
Interval = tuple[float, float]

_FALSE_ALARMS = 0.01


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

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return list(value)
            return None if isinstance(value, float) and math.isnan(value) else value

        return {name: plain(value) for name, value in asdict(self).items()}


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


def pooled(scores: Sequence[Score]) -> Score:
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
