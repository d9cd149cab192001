r"""One family: the parameters of a child's law given what its moments are, on simulated configurations of its parents.

The parameters θ maximise the posterior

.. math:: -\sum_s \frac{(m_s - μ_s(θ))^2}{2 v_s} + \log \mathrm{prior}(θ),

where m are the released moments, μ(θ) what the law implies, and v the variance of noise and sampling together. The
prior is normal and has two storeys: arrows between columns of two levels are spread around a level of their own family,
and the levels of families around that of the table. How far is learnt from all of them (:func:`learnt`). So an arrow
drowned by noise is drawn to the other arrows into its column, and these to what arrows are like in this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo.synthesis._minimise import minimise
from escudo.synthesis._moment_forms import FORMS

__all__ = ["FIRST_PRIORS", "Family", "Found", "Priors", "kinds_of", "learnt"]

Floats: TypeAlias = NDArray[np.float64]
Priors: TypeAlias = Mapping[str, tuple[float, float]]

FIRST_PRIORS: Priors = {
    "root": (-1.0, 2.0),
    "logit intercept": (-1.0, 2.0),
    "logit family": (0.0, 1.0),
    "logit arrow": (0.0, 1.0),
    "logit levels": (0.0, 1.0),
    "max intercept": (-5.0, 1.0),
    "max family": (-2.0, 1.5),
    "max arrow": (0.0, 1.0),
    "noisy-or intercept": (-5.0, 1.0),
    "noisy-or family": (-2.0, 1.5),
    "noisy-or arrow": (0.0, 1.0),
}
"""Mean and standard deviation of each kind of parameter before any is seen; all are log-odds."""

_CENTRED = ("arrow", "levels")  # kinds that are 0 on average: arrows around their family, levels without a common sign
_KNOWN = 5.0  # how many parameters the first prior counts as


def kinds_of(form: str, size: int, parent_sizes: Sequence[int]) -> tuple[str, ...]:
    """Return the kind of each row of parameters: the intercept, then the levels of each parent."""
    if not parent_sizes:
        return ("root",)

    def arrow(parent_size: int) -> str:
        # Between two columns of two levels, "on" means the same throughout a family; other levels have no common sign.
        return "logit levels" if form == "logit" and (size, parent_size) != (2, 2) else f"{form} arrow"

    return (f"{form} intercept", *(arrow(other) for other in parent_sizes for _ in range(other - 1)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """The parameters of a family, with the variance that is left to each.

    Attributes:
        kinds: The kind of each row of parameters.
        theta: The parameters, shape (intercept and parent levels, child levels).
        variance: Their variances.
        level: What the family's arrows are spread around, shape (child levels,).
        level_variance: Its variance.
    """

    kinds: tuple[str, ...]
    theta: Floats
    variance: Floats
    level: Floats
    level_variance: Floats

    def observations(self) -> Iterable[tuple[str, Floats, Floats]]:
        """Return what the family says about each kind of parameter: kind, values, variances."""
        arrows = [row for row, kind in enumerate(self.kinds) if kind.endswith("arrow")]
        for row, kind in enumerate(self.kinds):
            yield kind, self.theta[row] - self.level if row in arrows else self.theta[row], self.variance[row]
        if arrows:
            kind = self.kinds[arrows[0]].replace("arrow", "family")
            yield kind, self.theta[arrows].mean(axis=0), self.level_variance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """What is known about a family.

    Attributes:
        form: The form of its law.
        kinds: The kind of each row of parameters.
        target: The moments, in rows, shaped like the parameters.
        variance: Their variance; infinite where a moment was not measured.
        design: The configurations of the parents, a 0/1 row for each, an intercept first.
        rows: How many rows of the table have each configuration, by simulation.
        tied: Whether all arrows sit at the family's level.
    """

    form: str
    kinds: tuple[str, ...]
    target: Floats
    variance: Floats
    design: Floats
    rows: Floats
    tied: bool = False

    def fitted(self, priors: Priors, start: Found | None = None) -> Found:
        """Return the most likely parameters, by L-BFGS in units of the priors' spreads.

        Args:
            priors: What each kind of parameter is like.
            start: Where to begin; the priors' means if it is None, or for another set of parents. A new arrow must not
                begin below an old leak: under ``max`` it would never show.
        """
        make, shape = FORMS[self.form], self.target.shape
        shared = np.array([[kind.endswith("arrow")] for kind in self.kinds], dtype=np.float64)
        mean, spread = (np.array([[priors[kind][which]] for kind in self.kinds]) for which in (0, 1))
        level_mean, level_spread = priors.get(f"{self.form} family", (0.0, 1.0))
        if self.tied:
            spread = np.where(shared > 0, 0.0, spread)
        weights = self.rows[:, None] * self.design

        begin = np.zeros((shape[0] + 1, shape[1]))
        if start is not None and start.theta.shape == shape and not self.tied:
            begin[:-1] = (start.theta - shared * start.level - mean) / spread
            begin[-1] = (start.level - level_mean) / level_spread

        def parameters(unit: Floats) -> tuple[Floats, Floats]:
            level = level_mean + level_spread * unit[-1]
            return mean + spread * unit[:-1] + shared * level, level

        def objective(flat: Floats) -> tuple[float, Floats]:
            unit = flat.reshape(begin.shape)
            formed = make(parameters(unit)[0], self.design)
            missed = self.target - weights.T @ formed.probabilities
            pull = missed / self.variance
            slope = -formed.pulled(weights @ pull)
            slopes = unit + np.concatenate([spread * slope, level_spread * (shared * slope).sum(axis=0, keepdims=True)])
            return 0.5 * float((missed * pull).sum() + (unit**2).sum()), slopes.ravel()

        theta, level = parameters(minimise(objective, begin.ravel()).reshape(begin.shape))
        told = make(theta, self.design).own_slopes(weights) ** 2 / self.variance
        return Found(
            kinds=self.kinds,
            theta=theta,
            variance=1.0 / (told + np.maximum(spread, 1e-3) ** -2.0),
            level=level,
            level_variance=1.0 / ((shared * told).sum(axis=0) + level_spread**-2.0),
        )


def learnt(found: Iterable[Found]) -> Priors:
    """Return what each kind of parameter is like, from all parameters of that kind and the first prior."""
    gathered: dict[str, list[tuple[Floats, Floats]]] = {}
    for family in found:
        for kind, values, variance in family.observations():
            gathered.setdefault(kind, []).append((values, variance))
    priors = dict(FIRST_PRIORS)
    for kind, several in gathered.items():
        values, variance = (np.concatenate(parts) for parts in zip(*several, strict=True))
        mean, spread = FIRST_PRIORS[kind]
        if not kind.endswith(_CENTRED):
            mean = (_KNOWN * mean + float(values.sum())) / (_KNOWN + values.size)
        square = (_KNOWN * spread**2 + float(((values - mean) ** 2 + variance).sum())) / (_KNOWN + values.size)
        priors[kind] = mean, float(np.sqrt(square))
    return priors
