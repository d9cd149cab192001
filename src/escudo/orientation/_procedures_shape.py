r"""Further scores of a hypothesis, for the trained combiner: independence, conditional shapes, and the columns alone.

Like all scores they judge one hypothesis and enter as differences. By themselves most are weak, some even wrong more
often than right; which way each points, and when, is what the combiner learnt.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from escudo.orientation._blocks import Hypothesis, cosines, entropy
from escudo.orientation._procedures_members import MEMBERS, Score, binned, igci, mean

__all__ = ["FEATURES", "residual_dependence"]

Floats = NDArray[np.float64]

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
    line = h.effect.z - h.fitted("z", 1)
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
    return _deviation(binned(h.sorted_ranks, _bins(h.n)).std(axis=2))


def rank_width(h: Hypothesis) -> Floats:
    """Return the mean conditional standard deviation of the effect's ranks."""
    return mean(binned(h.sorted_ranks, _bins(h.n)).std(axis=2))


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
    return binned(h.sorted_effect, _bins(h.n))


def _deviation(values: Floats) -> Floats:
    deviations: Floats = values.std(axis=1)
    return deviations
