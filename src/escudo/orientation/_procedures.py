r"""Block procedures: what a block of records computes before it votes.

A *score* judges one :class:`Hypothesis` (cause, effect) and is lower where it fits better; a block's difference is
:math:`d = s(y \to x) - s(x \to y)`, so d > 0 speaks for x->y. All scores are antisymmetric in this sense: swapping the
columns turns the sign and nothing else. A *procedure* makes one preference of one or several scores.

========================  ==========================================================================================
``committee``             the default: the trained combiner, where it is clear and most of the five scores agree
``committee-3``, ``-5``   the sign of the sum of the signs of three scores (entropy, regression, ranks), or of five
``trained``               a combiner of many scores, trained on simulated pairs
``entropy``               additive noise: entropy of the cause plus entropy of what a cubic leaves of the effect
``regression``            additive noise: mean squared residual of a cubic, both columns stretched to [-1, 1]
``ranks``                 the same between ranks, degree 5
``location-scale``        noise whose size depends on the cause: mean log size
``quantiles``             mean pinball loss of five quantiles of the effect within bins of the cause
``independence``          additive noise: rank dependence between the cause and what degree 5 leaves of the effect
``igci``                  no noise model: the cause has the larger entropy (information-geometric inference)
========================  ==========================================================================================

No procedure is right about every kind of pair, and a common cause of both columns looks like a direction to most of
them; the default is the one that abstains there. ``experiments/pairs.py`` and ``verdicts.py`` measure them.

**Further scores** for the trained combiner judge independence, conditional shapes, and the columns alone. Like all
scores they judge one hypothesis and enter as differences. By themselves most are weak, some even wrong more often than
right; which way each points, and when, is what the combiner learnt.

**The trained combiner** is boosted trees over the differences of many scores, shipped as plain numbers. It was trained
by ``experiments/train_combiner.py`` on pairs that the project simulates, half of their columns and noises drawn from
single columns of real tables, whatever their role: no real pair and no direction was seen. Each difference is divided
by its typical size for blocks of n records, clipped, and handed to trees together with conditions c that do not change
when the columns are swapped (:func:`judge`); the log-odds of x->y are :math:`\tfrac12 (F(d, c) - F(-d, c))`, so that
swapping the columns turns their sign and no more. Pairs without a direction, most of them with a common cause, were
trained on with both answers: where a block looks like one of them the log-odds are small.

The file ``combiner.json`` holds arrays only. Tree t stands at the node ``root[t]``; from node i one goes to ``left[i]``
where feature[i] is at most threshold[i], else to ``right[i]``; a leaf leads to itself and has a ``value``.

**Reference.** Design note "pairs" for the committees; P. Blöbaum et al. (2018), "Cause-effect inference by comparing
regression errors"; D. Janzing et al. (2012), "Information-geometric approach to inferring causal directions".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of
from escudo.orientation._blocks import DEGREE, EQUAL, Blocks, Hypothesis, Preference, cosines, entropy, one_by_one

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

Score = Callable[[Hypothesis], Floats]
"""One number per block, lower where the hypothesis fits better."""


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


# ---- scores of the committees

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def anm_entropy(h: Hypothesis) -> Floats:
    """Return the entropy of the cause plus that of what a cubic leaves of the effect, both standardised."""
    return h.cause.entropy + entropy(np.sort(h.residual3, axis=1))


def regression_error(h: Hypothesis) -> Floats:
    """Return the mean squared residual of a cubic, both columns stretched to [-1, 1]."""
    return mean_square(h.effect.b - h.fit("b", 3))


def rank_regression_error(h: Hypothesis) -> Floats:
    """Return the mean squared residual of a polynomial of degree 5 between ranks."""
    return mean_square(h.rank_residual)


def location_scale(h: Hypothesis) -> Floats:
    r"""Return the mean log size of the noise in :math:`y = f(x) + s(x) e`, f of degree 5 and log s of degree 3.

    The mean is fitted once more with weights 1/s², at most 20 times their mean, and the size once more to that.
    """
    weights = h.spread5**-2
    weights = np.minimum(weights / weights.mean(axis=1, keepdims=True), 20.0)
    residual = h.effect.z - h.weighted_fit(weights, h.effect.z, DEGREE, h.ridge)
    return mean(np.log(h.spread_of(residual)))


def binned_quantiles(h: Hypothesis) -> Floats:
    """Return the mean pinball loss of five quantiles of the effect within bins of equally many causes.

    The losses come from running sums of the sorted effects: a quantile q with value v leaves q Σ(above - v) + (1 - q)
    Σ(v - below).
    """
    bins = int(np.clip(round(0.75 * h.n**0.45), 3, 24))
    cells = np.sort(in_bins(h.sorted_effect, bins), axis=2)
    size = cells.shape[2]
    sums = np.cumsum(cells, axis=2)
    loss = np.zeros(len(cells))
    for q in QUANTILES:
        low = int(q * (size - 1))
        high = min(low + 1, size - 1)
        value = cells[:, :, low] + (q * (size - 1) - low) * (cells[:, :, high] - cells[:, :, low])
        below, count = sums[:, :, low], low + 1
        above = sums[:, :, -1] - below
        loss += mean(q * (above - (size - count) * value) + (1 - q) * (count * value - below))
    average: Floats = loss / (len(QUANTILES) * size)
    return average


def igci(h: Hypothesis) -> Floats:
    """Return the entropy of the effect less that of the cause, both stretched to [-1, 1]."""
    effect, cause = (entropy(np.take_along_axis(c.b, c.order, axis=1)) for c in (h.effect, h.cause))
    return effect - cause


MEMBERS: dict[str, Score] = {
    "entropy": anm_entropy,
    "regression": regression_error,
    "ranks": rank_regression_error,
    "location-scale": location_scale,
    "quantiles": binned_quantiles,
}
"""The scores of the committees: all five of them, or the first three."""


# ---- further scores, for the trained combiner

_LARGEST_KURTOSIS = 50.0


def residual_dependence(h: Hypothesis) -> Floats:
    r"""Return the rank dependence between the cause and what degree 5 leaves of the effect.

    With ranks in (0, 1) it is the length of the 5 × 5 matrix of mean products :math:`\cos(jπu) \cos(lπv)`, which is
    near 0 for every independent pair: HSIC with a smooth kernel on ranks, at linear cost.
    """
    return _rank_dependence(h, h.residual5)


def scaled_residual_dependence(h: Hypothesis) -> Floats:
    """Return the same for residuals over the size that the cause gives them."""
    return _rank_dependence(h, h.residual5 / h.spread5)


def heteroscedasticity(h: Hypothesis) -> Floats:
    """Return how much the log size of the noise varies with the cause."""
    return _deviation(np.log(h.spread5))


def anm_entropy5(h: Hypothesis) -> Floats:
    """Return the entropies of the cause and of what degree 5 leaves of the effect."""
    return h.cause.entropy + entropy(np.sort(h.residual5, axis=1))


def location_scale_entropy(h: Hypothesis) -> Floats:
    """Return the same for a location-scale model."""
    scaled = np.sort(h.residual5 / h.spread5, axis=1)
    return h.cause.entropy + entropy(scaled) + mean(np.log(h.spread5))


def cause_entropy(h: Hypothesis) -> Floats:
    """Return the entropy of the standardised cause, larger being better."""
    return -h.cause.entropy


def cause_spread(h: Hypothesis) -> Floats:
    """Return the log of range over standard deviation of the cause."""
    return -np.log(_deviation(h.cause.b) + 1e-9)


def cause_skewness(h: Hypothesis) -> Floats:
    """Return the size of the cause's skewness."""
    return np.abs(mean(_cube(h.cause.z)))


def cause_kurtosis(h: Hypothesis) -> Floats:
    """Return the cause's kurtosis."""
    return np.minimum(mean(_square(_square(h.cause.z))), _LARGEST_KURTOSIS)


def residual_skewness(h: Hypothesis) -> Floats:
    """Return the size of the residuals' skewness."""
    return np.abs(mean(_cube(_standard_residual(h))))


def residual_kurtosis(h: Hypothesis) -> Floats:
    """Return the residuals' kurtosis."""
    return np.minimum(mean(_square(_square(_standard_residual(h)))), _LARGEST_KURTOSIS)


def nonlinear_gain(h: Hypothesis) -> Floats:
    """Return how much degree 5 lowers the mean squared residual of a line, as a negative number."""
    line = h.effect.z - h.fit("z", 1)
    return mean(_square(h.residual5)) - mean(_square(line))


def shape_variation(h: Hypothesis) -> Floats:
    """Return how much the effect's conditional distributions differ after standardising each."""
    cells = np.sort(_conditional(h), axis=2)
    cells = cells - cells.mean(axis=2, keepdims=True)
    cells = cells / (cells.std(axis=2, keepdims=True) + 1e-6)
    return mean(_deviation(cells))


def centred_variation(h: Hypothesis) -> Floats:
    """Return how much they differ after centring each."""
    cells = np.sort(_conditional(h), axis=2)
    return mean(_deviation(cells - cells.mean(axis=2, keepdims=True)))


def width_variation(h: Hypothesis) -> Floats:
    """Return how much the effect's conditional standard deviation varies."""
    return _deviation(_conditional(h).std(axis=2))


def mean_variation(h: Hypothesis) -> Floats:
    """Return how little the effect's conditional mean varies."""
    return -_deviation(_conditional(h).mean(axis=2))


def rank_width_variation(h: Hypothesis) -> Floats:
    """Return how much the conditional standard deviation of the effect's ranks varies."""
    return _deviation(in_bins(h.sorted_ranks, _bins(h.n)).std(axis=2))


def rank_width(h: Hypothesis) -> Floats:
    """Return the mean conditional standard deviation of the effect's ranks."""
    return mean(in_bins(h.sorted_ranks, _bins(h.n)).std(axis=2))


def slope(h: Hypothesis) -> Floats:
    """Return the mean log slope between neighbouring causes, both columns stretched."""
    run, rise = (np.abs(np.diff(np.take_along_axis(c.b, h.cause.order, axis=1), axis=1)) for c in (h.cause, h.effect))
    return mean(np.log((rise + 1e-3) / (run + 1e-3)))


FEATURES: dict[str, Score] = {
    **MEMBERS,
    "residual dependence": residual_dependence,
    "scaled residual dependence": scaled_residual_dependence,
    "heteroscedasticity": heteroscedasticity,
    "entropy, degree 5": anm_entropy5,
    "location-scale entropy": location_scale_entropy,
    "igci": igci,
    "cause entropy": cause_entropy,
    "cause spread": cause_spread,
    "cause skewness": cause_skewness,
    "cause kurtosis": cause_kurtosis,
    "residual skewness": residual_skewness,
    "residual kurtosis": residual_kurtosis,
    "nonlinear gain": nonlinear_gain,
    "shape variation": shape_variation,
    "centred variation": centred_variation,
    "width variation": width_variation,
    "mean variation": mean_variation,
    "rank width variation": rank_width_variation,
    "rank width": rank_width,
    "slope": slope,
}
"""What the combiner looks at, in its order."""


# ---- what scores are made of


def difference(score: Score, blocks: Blocks) -> Floats:
    """Return score(y->x) - score(x->y): above 0 where x->y fits better."""
    return score(blocks.backward) - score(blocks.forward)


def signs(differences: Floats) -> Floats:
    """Return the signs, 0 for what is within rounding errors of 0."""
    return np.where(np.abs(differences) < EQUAL, 0.0, np.sign(differences))


def in_bins(ordered: Floats, bins: int) -> Floats:
    """Return records, in the order of the cause, in bins of equal size; the surplus is cut from both ends."""
    size = ordered.shape[1] // bins
    start = (ordered.shape[1] - bins * size) // 2
    return ordered[:, start : start + bins * size].reshape(-1, bins, size)


def mean(values: Floats) -> Floats:
    """Return the mean of every block."""
    means: Floats = values.mean(axis=1)
    return means


def mean_square(values: Floats) -> Floats:
    """Return the mean square of every block."""
    return mean(values * values)


def _rank_dependence(h: Hypothesis, residual: Floats) -> Floats:
    n = h.n
    places = np.empty(residual.shape)
    steps = np.broadcast_to((np.arange(n) + 0.5) / n, residual.shape)
    np.put_along_axis(places, np.argsort(residual, axis=1), steps, axis=1)
    products = h.cause.waves @ cosines(places).transpose(0, 2, 1) / n
    dependence: Floats = np.sqrt((products**2).sum(axis=(1, 2)))
    return dependence


def _square(values: Floats) -> Floats:
    return values * values


def _cube(values: Floats) -> Floats:
    return values * values * values  # much faster than a power


def _standard_residual(h: Hypothesis) -> Floats:
    return h.residual5 / (_deviation(h.residual5)[:, None] + 1e-9)


def _bins(n: int) -> int:
    return int(np.clip(round(0.9 * n**0.35), 3, 12))


def _conditional(h: Hypothesis) -> Floats:
    """Return the standardised effect in bins of the cause, shape (blocks, bins, records)."""
    return in_bins(h.sorted_effect, _bins(h.n))


def _deviation(values: Floats) -> Floats:
    deviations: Floats = values.std(axis=1)
    return deviations


# ---- the trained combiner


@dataclass(frozen=True, slots=True, kw_only=True)
class Combiner:
    """Trees over score differences and conditions.

    Attributes:
        features: The names of the scores, in order; the conditions come after them.
        sizes: Block sizes at which typical differences were measured, increasing.
        typical: Their sizes there, shape (sizes, features).
        clip: Differences beyond this many typical sizes are clipped.
        root: The first node of each tree.
        feature: What each node looks at.
        threshold: Where it divides.
        left: Where to go if at most the threshold.
        right: Where to go otherwise.
        value: What a leaf adds to F; 0 at inner nodes.
        depth: Steps from a root to the deepest leaf.
    """

    features: tuple[str, ...]
    sizes: Floats
    typical: Floats
    clip: float
    root: Indices
    feature: Indices
    threshold: Floats
    left: Indices
    right: Indices
    value: Floats
    depth: int

    def normalise(self, differences: Floats, n: int) -> Floats:
        """Return differences, shape (blocks, features), in typical sizes for blocks of n records, clipped."""
        place = np.log(n)
        logs = np.log(self.sizes)
        size = np.exp([np.interp(place, logs, np.log(self.typical[:, j])) for j in range(len(self.features))])
        return np.clip(differences / size, -self.clip, self.clip)

    def log_odds(self, judged: Judged, n: int) -> Floats:
        """Return the log-odds of x->y for every block."""
        scaled = self.normalise(judged.differences, n)
        forward, backward = (self._sum(np.hstack([side * scaled, judged.conditions])) for side in (1, -1))
        return (forward - backward) / 2

    def _sum(self, inputs: Floats) -> Floats:
        at = np.broadcast_to(self.root, (len(inputs), len(self.root)))
        block = np.arange(len(inputs))[:, None]
        for _ in range(self.depth):
            goes_left = inputs[block, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        total: Floats = self.value[at].sum(axis=1)
        return total


class Judged(NamedTuple):
    """What the combiner is told about every block.

    Attributes:
        differences: Of all scores, shape (blocks, features): swapping the columns turns their signs.
        conditions: Shape (blocks, conditions): swapping the columns does not change them.
    """

    differences: Floats
    conditions: Floats


@cache
def combiner() -> Combiner:
    """Return the combiner that is shipped."""
    data = json.loads(files("escudo.orientation").joinpath("combiner.json").read_text(encoding="utf-8"))
    floats: dict[str, Any] = {
        name: np.array(data[name], dtype=np.float64) for name in ("sizes", "typical", "threshold", "value")
    }
    places: dict[str, Any] = {
        name: np.array(data[name], dtype=np.int64) for name in ("root", "feature", "left", "right")
    }
    names, clip = tuple(data["features"]), float(data["clip"])
    return Combiner(features=names, clip=clip, depth=int(data["depth"]), **floats, **places)


def judge(blocks: Blocks) -> Judged:
    """Return all scores' differences and the conditions; 0 where one is no number.

    The conditions: the largest of the four rank correlations and the one of the columns themselves, the dependence of
    the ranks; of both hypotheses the smaller and the larger dependence left in the residuals, plain and scaled, and the
    smaller and the larger part that degree 5 leaves unexplained; different values per record; log n.
    """
    ways = blocks.forward, blocks.backward
    forward, backward = (np.stack([score(way) for score in FEATURES.values()], axis=1) for way in ways)
    n = blocks.forward.n
    correlations = np.abs(blocks.dependence)
    waves = blocks.x.waves[:, :3] @ blocks.y.waves[:, :3].transpose(0, 2, 1)
    left = [np.sort([side[:, place] for side in (forward, backward)], axis=0) * n**0.5 for place in _DEPENDENCES]
    unexplained = np.sort([mean_square(way.residual5) for way in ways], axis=0)
    conditions = np.stack(
        [
            correlations.max(axis=1),
            correlations[:, 0],
            np.sqrt((waves**2).sum(axis=(1, 2)) / n),
            *(part for pair in left for part in pair),
            np.minimum(blocks.x.distinct, blocks.y.distinct) / n,
            *unexplained,
            np.full(blocks.count, np.log(n)),
        ],
        axis=1,
    )
    return Judged(*(np.where(np.isfinite(part), part, 0.0) for part in (backward - forward, conditions)))


_DEPENDENCES = tuple(list(FEATURES).index(name) for name in ("residual dependence", "scaled residual dependence"))


def log_odds(blocks: Blocks) -> Floats:
    """Return the combiner's log-odds of x->y for every block."""
    return combiner().log_odds(judge(blocks), blocks.forward.n)


# ---- every procedure


def _committee(names: Sequence[str]) -> Preference:
    def prefer(blocks: Blocks) -> Floats:
        return sum((signs(difference(MEMBERS[name], blocks)) for name in names), np.zeros(blocks.count))

    return prefer


LEAST_ODDS = 1.0
"""The default votes only where the combiner's log-odds are at least this large."""


def _with_trained(blocks: Blocks) -> Floats:
    """Return the combiner's log-odds where most of the five scores agree with it; 0 elsewhere, or where they are small.

    Two kinds of evidence fail in different ways: the scores see a direction behind a common cause, which the combiner
    was trained to doubt, and the combiner knows simulated pairs only. How large log-odds must be was chosen with blocks
    and agreement (``experiments/verdicts.py``).
    """
    judged = judge(blocks)  # the differences of the five come first
    odds = combiner().log_odds(judged, blocks.forward.n)
    five = signs(judged.differences[:, : len(MEMBERS)]).sum(axis=1)
    return np.where((five * odds > 0) & (np.abs(odds) >= LEAST_ODDS), odds, 0.0)


def _single(score: Score) -> Preference:
    return lambda blocks: difference(score, blocks)


_FIVE = tuple(MEMBERS)

PROCEDURES: dict[str, Procedure] = {
    name: Procedure(name=name, description=description, prefer=prefer)
    for name, description, prefer in (
        ("committee", "a combiner trained on simulated pairs, and most of five scores", _with_trained),
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
