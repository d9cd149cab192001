r"""One family: the parameters of a child's law given what its moments are, on simulated configurations of its parents.

The parameters θ maximise the posterior

.. math:: -\tfrac12 (m - μ(θ))^T S^{-1} (m - μ(θ)) + \log \mathrm{prior}(θ),

where m are the released moments, μ(θ) what the law implies, and S the covariance of m: the known noise, and how counts
scatter by chance given the parents. Without noise and prior this is maximum likelihood for a logit, to first order.

The prior is normal and has two storeys: arrows between columns of two levels are spread around a level of their own
family, and the levels of families around that of the table. How far is learnt from all of them (:func:`learnt`). So an
arrow drowned by noise is drawn to the other arrows into its column, and these to what arrows are like in this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
_MOST_JOINT = 400  # moments whose covariance is written out; more are taken as uncorrelated


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
        noise: The variance of the noise in each; infinite where a moment was not measured.
        design: The configurations of the parents, a 0/1 row for each, an intercept first.
        rows: How many rows of the table have each configuration, by simulation.
        tied: Whether all arrows sit at the family's level.
    """

    form: str
    kinds: tuple[str, ...]
    target: Floats
    noise: Floats
    design: Floats
    rows: Floats
    tied: bool = False

    def fitted(self, priors: Priors, start: Found | None = None) -> Found:
        """Return the most likely parameters.

        Args:
            priors: What each kind of parameter is like.
            start: Where to begin; the priors' means if it is None, or for another set of parents. A new arrow must not
                begin below an old leak: under ``max`` it would never show.
        """
        prior = _Prior(self, priors)
        share = np.clip(self.target / self.rows.sum(), 0.0, 1.0)
        rough = self.noise + self.rows.sum() * share * (1.0 - share) + 1.0
        if start is None or start.theta.shape != self.target.shape:
            unit = self._most_likely(prior, np.zeros(prior.shape), lambda missed: missed / rough)
        else:
            unit = prior.unit_of(start)
        if self.target.size <= _MOST_JOINT:
            precision = self._precision(prior.theta(unit))
            unit = self._most_likely(prior, unit, lambda missed: (precision @ missed.ravel()).reshape(missed.shape))
        elif start is not None:
            unit = self._most_likely(prior, unit, lambda missed: missed / rough)
        theta = prior.theta(unit)
        told = FORMS[self.form](theta, self.design).own_slopes(self.rows[:, None] * self.design) ** 2 / rough
        return Found(
            kinds=self.kinds,
            theta=theta,
            variance=1.0 / (told + np.maximum(prior.spread, 1e-3) ** -2.0),
            level=prior.level(unit),
            level_variance=1.0 / ((prior.shared * told).sum(axis=0) + prior.level_spread**-2.0),
        )

    def _most_likely(self, prior: _Prior, start: Floats, weighed: Callable[[Floats], Floats]) -> Floats:
        """Return the parameters, in units of the prior, given what weighs residuals by their covariance."""
        make, weights = FORMS[self.form], self.rows[:, None] * self.design

        def objective(flat: Floats) -> tuple[float, Floats]:
            unit = flat.reshape(prior.shape)
            formed = make(prior.theta(unit), self.design)
            missed = self.target - weights.T @ formed.probabilities
            pull = weighed(missed)
            slope = unit - prior.pulled(formed.pulled(weights @ pull))
            return 0.5 * float((missed * pull).sum() + (unit**2).sum()), slope.ravel()

        return minimise(objective, start.ravel()).reshape(prior.shape)

    def _precision(self, theta: Floats) -> Floats:
        """Return the inverse covariance of the moments, flattened, at these parameters; 0 for those not measured."""
        law = FORMS[self.form](theta, self.design).probabilities
        size, width = self.target.shape
        covariance = np.zeros((size, width, size, width))
        for x in range(width):
            for y in range(x, width):
                scatter = self.rows * law[:, x] * (float(x == y) - law[:, y])
                covariance[:, x, :, y] = covariance[:, y, :, x] = (self.design * scatter[:, None]).T @ self.design
        joint = covariance.reshape(size * width, size * width)
        measured = np.flatnonzero(np.isfinite(self.noise.ravel()))
        joint[measured, measured] += self.noise.ravel()[measured] + 1.0
        precision = np.zeros_like(joint)
        block = np.ix_(measured, measured)
        precision[block] = np.linalg.inv(joint[block])
        return precision


class _Prior:
    """The priors of a family's parameters, in units in which each is standard normal; the family's level comes last.

    Attributes:
        shape: The shape of the units.
        spread: The standard deviation of each row of parameters.
        shared: 1 for rows that are spread around the family's level.
        level_spread: The standard deviation of that level.
    """

    def __init__(self, family: Family, priors: Priors):
        self.shape = family.target.shape[0] + 1, family.target.shape[1]
        self.shared = np.array([[kind.endswith("arrow")] for kind in family.kinds], dtype=np.float64)
        self._mean, spread = (np.array([[priors[kind][which]] for kind in family.kinds]) for which in (0, 1))
        self.spread = np.where(self.shared > 0, 0.0, spread) if family.tied else spread
        self._level_mean, self.level_spread = priors.get(f"{family.form} family", (0.0, 1.0))

    def level(self, unit: Floats) -> Floats:
        """Return the level of the family's arrows."""
        level: Floats = self._level_mean + self.level_spread * unit[-1]
        return level

    def theta(self, unit: Floats) -> Floats:
        """Return the parameters."""
        theta: Floats = self._mean + self.spread * unit[:-1] + self.shared * self.level(unit)
        return theta

    def pulled(self, slope: Floats) -> Floats:
        """Return the slope by the units of what has this slope by the parameters."""
        return np.concatenate(
            [self.spread * slope, self.level_spread * (self.shared * slope).sum(axis=0, keepdims=True)]
        )

    def unit_of(self, found: Found) -> Floats:
        """Return the units of parameters found under other priors."""
        spread = np.where(self.spread > 0, self.spread, np.inf)
        rows = (found.theta - self.shared * found.level - self._mean) / spread
        return np.concatenate([rows, (found.level[None, :] - self._level_mean) / self.level_spread])


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
