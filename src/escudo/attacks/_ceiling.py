r"""What a guarantee allows any attacker, whatever they know or compute.

Under :math:`P(S) \le e^ε P'(S) + δ(ε)` for all ε ≥ 0, in both directions, an attacker who is right about a share x of
the people who are not there is right about at most

.. math:: T(α) = \min_{ε \ge 0} \min\bigl\{ e^ε α + δ(ε),\; 1 - e^{-ε} (1 - δ(ε) - α) \bigr\}, \qquad α = 1 - x,

of those who are. The advantage, TPR - FPR, is at most δ(0), the total variation; accuracy on fair coins at most half of
1 plus that; the AUC at most the area under T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.privacy import Guarantee, Relation

__all__ = ["Ceiling", "ceiling_of", "compared"]

Floats = NDArray[np.float64]

_LARGEST = 600.0  # e^ε is still a number; a smaller ε is a weaker attacker, but not one that anybody could tell apart
_GRID = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 25), np.linspace(1.2, 12.0, 55)])


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


def compared(claim: Guarantee, relation: Relation) -> Guarantee:
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


def ceiling_of(claim: Guarantee, relation: Relation) -> Ceiling:
    """Return what a guarantee allows an attacker who compares two worlds that are neighbours under ``relation``.

    Raises:
        InputError: If it says nothing about such worlds.

    >>> round(ceiling_of(Guarantee(epsilon=2.36), "replace_one").accuracy, 4)
    0.9137
    """
    epsilons, deltas = _front(compared(claim, relation))
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
