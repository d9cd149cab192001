r"""Block procedures: what a block of records computes before it votes.

A *score* judges one :class:`Hypothesis` (cause, effect) and is lower where it fits better; a block's difference is
:math:`d = s(y \to x) - s(x \to y)`, so d > 0 speaks for x->y. All scores are antisymmetric in this sense: swapping the
columns turns the sign and nothing else. A *procedure* makes one preference of one or several scores.

========================  ==========================================================================================
``committee``             the default: the five scores below, one vote each, and the trained combiner's log-odds
``committee-3``, ``-5``   the sign of the sum of the signs of three scores (entropy, regression, ranks), or of five
``trained``               a combiner of many scores, trained on simulated pairs (``_procedures_trained.py``)
``entropy``               additive noise: entropy of the cause plus entropy of what a cubic leaves of the effect
``regression``            additive noise: mean squared residual of a cubic, both columns stretched to [-1, 1]
``ranks``                 the same between ranks, degree 5
``location-scale``        noise whose size depends on the cause: mean log size
``quantiles``             mean pinball loss of five quantiles of the effect within bins of the cause
``independence``          additive noise: rank dependence between the cause and what degree 5 leaves of the effect
``igci``                  no noise model: the cause has the larger entropy (information-geometric inference)
========================  ==========================================================================================

No procedure is right about every kind of pair. On real pairs the committees do best, on simulated ones whose noise is
not additive the trained combiner; ``experiments/pairs.py`` measures them.

**Reference.** Design note "pairs" for the committees; P. Blöbaum et al. (2018), "Cause-effect inference by comparing
regression errors"; D. Janzing et al. (2012), "Information-geometric approach to inferring causal directions".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of
from escudo.orientation._blocks import Blocks
from escudo.orientation._casting import Preference, one_by_one
from escudo.orientation._procedures_members import MEMBERS, Score, difference, igci, signs
from escudo.orientation._procedures_shape import residual_dependence
from escudo.orientation._procedures_trained import combiner, log_odds, raw_features

__all__ = ["PROCEDURES", "Procedure", "procedure_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """What each block does.

    Attributes:
        name: What it is called.
        description: It in a few words, for people.
        prefer: The preference of every block.
    """

    name: str
    description: str
    prefer: Preference


def procedure_of(score: str | Callable[..., Any]) -> Procedure:
    """Return a procedure by its name, or the one that a user's own function makes.

    Raises:
        InputError: If there is no procedure of that name.
    """
    if callable(score):
        name = getattr(score, "__name__", type(score).__name__)
        return Procedure(name=name, description="a function of the caller's own", prefer=one_by_one(score))
    return PROCEDURES[one_of("score", score, PROCEDURES)]


def _committee(names: Sequence[str]) -> Preference:
    def prefer(blocks: Blocks) -> Floats:
        return sum((signs(difference(MEMBERS[name], blocks)) for name in names), np.zeros(blocks.count))

    return prefer


def _with_trained(blocks: Blocks) -> Floats:
    r"""Add up the signs of the five scores and :math:`1 + 32/n` times the combiner's log-odds.

    A single score is right on five to six real pairs in eight, which is log-odds of 0.5 to 1: a sign counts about as
    much as the combiner's own log-odds. In small blocks a sign tells less, because it does not say by how little the
    scores differ; the combiner, which sees that, counts up to twice as much there.
    """
    n = blocks.forward.n
    differences = raw_features(blocks)  # those of the five come first
    odds = combiner().log_odds(differences, n)
    total: Floats = signs(differences[:, : len(MEMBERS)]).sum(axis=1) + (1 + 32 / n) * odds
    return total


def _single(score: Score) -> Preference:
    return lambda blocks: difference(score, blocks)


_FIVE = tuple(MEMBERS)
PROCEDURES: dict[str, Procedure] = {
    name: Procedure(name=name, description=description, prefer=prefer)
    for name, description, prefer in (
        ("committee", "five scores and a combiner trained on simulated pairs", _with_trained),
        ("committee-5", "a committee of five scores", _committee(_FIVE)),
        ("committee-3", "a committee of three scores", _committee(_FIVE[:3])),
        ("trained", "a combiner of scores, trained on simulated pairs", log_odds),
        ("entropy", "additive noise, by entropies", _single(MEMBERS["entropy"])),
        ("regression", "regression errors of stretched columns", _single(MEMBERS["regression"])),
        ("ranks", "regression errors of ranks", _single(MEMBERS["ranks"])),
        ("location-scale", "noise whose size depends on the cause", _single(MEMBERS["location-scale"])),
        ("quantiles", "quantiles within bins", _single(MEMBERS["quantiles"])),
        ("independence", "additive noise, by independence of the residuals", _single(residual_dependence)),
        ("igci", "information geometry, without a noise model", _single(igci)),
    )
}
"""Every block procedure by name."""
