r"""One family of columns: the law of a child given its parents, from moments alone.

**Forms** (``FORMS``). A family's configurations are the rows of a 0/1 design matrix B: a 1 for the intercept (or leak),
then one entry per level of each parent, first levels left out. Parameters θ have a row per column of the design and a
column per level of the child, first level left out:

* ``logit``: :math:`p(x \mid pa) \propto e^{(Bθ)_x}`, with 0 for the first level;
* ``max``: p(1 | pa) is the largest :math:`s_j = σ(θ_j)` among what is on, the leak included;
* ``noisy-or``: :math:`p(1 \mid pa) = 1 - \prod_j (1 - s_j)` over what is on, the leak included.

**Fit** (:class:`Family`), on simulated configurations of the parents. The parameters maximise the posterior

.. math:: -\tfrac12 (m - μ(θ))^T S^{-1} (m - μ(θ)) + \log \mathrm{prior}(θ),

where m are the released moments, μ(θ) what the law implies, and S the covariance of m: the known noise, and how counts
scatter by chance given the parents. Without noise and prior this is maximum likelihood for a logit, to first order.

**Levels first.** How often a level occurs is settled before any family is fitted, from the noisy sum of that level and
from what levels are like in this table (``_shares``). So rare levels, of which noise shows nothing one by one, are
right on average, and a row of the model has as many levels that are not the first as one of the table. A family's sums
of single levels are then taken as known, but for chance.

**Prior.** It is normal and has two storeys: arrows between columns of two levels are spread around a level of their own
family, and the levels of families around that of the table. How far is learnt from all of them. So an arrow drowned by
noise is drawn to the other arrows into its column, and these to what arrows are like in this table. Intercepts of a
logit have a wide one, as levels are settled before.

**Minimum** (:func:`minimise`): L-BFGS, for thousands of small problems in a row. The step length is found by bisection
until it meets the weak Wolfe conditions, which also works where the slope jumps, as that of a maximum does. Written
here because the same in scipy spends most of its time outside the function, and its BLAS starts threads for matrices of
20 × 20: on a busy machine that made a fit twenty times slower.

**Reference.** J. Nocedal, S. Wright (2006), *Numerical Optimization*, Algorithm 7.4; A. Lewis, M. Overton (2013),
"Nonsmooth optimization via quasi-Newton methods", Algorithm 2.6, for the step length.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from escudo._validate import did_you_mean, one_of
from escudo.errors import InputError
from escudo.synthesis._laws import (
    Conditional,
    LogitConditional,
    MaxConditional,
    NoisyOrConditional,
    TableConditional,
)
from escudo.table import Schema

Floats: TypeAlias = NDArray[np.float64]
Form: TypeAlias = str | Mapping[str, str]
Priors: TypeAlias = Mapping[str, tuple[float, float]]


# ---- the forms of a law: parameters in, probabilities and their derivatives out


class Formed(Protocol):
    """Probabilities of all levels but the first, for each configuration, at given parameters."""

    probabilities: Floats

    def pulled(self, slopes: Floats) -> Floats:
        """Return the derivative by the parameters of what has derivatives ``slopes`` by the probabilities."""
        ...

    def own_slopes(self, weights: Floats) -> Floats:
        """Return how each entry of ``weights.T @ probabilities`` moves with the parameter at the same place."""
        ...


class Shape(Protocol):
    """What a form does: makes probabilities of parameters and a design."""

    def __call__(self, theta: Floats, design: Floats) -> Formed:
        """Return the probabilities at ``theta``."""
        ...


class _Logit:
    def __init__(self, theta: Floats, design: Floats):
        logits = design @ theta
        top = logits.max(axis=1, keepdims=True, initial=0.0)
        odds = np.exp(logits - top)
        self.probabilities: Floats = odds / (odds.sum(axis=1, keepdims=True) + np.exp(-top))
        self._design = design

    def pulled(self, slopes: Floats) -> Floats:
        mean = (self.probabilities * slopes).sum(axis=1, keepdims=True)
        pulled: Floats = self._design.T @ (self.probabilities * (slopes - mean))
        return pulled

    def own_slopes(self, weights: Floats) -> Floats:
        own: Floats = weights.T @ (self.probabilities * (1.0 - self.probabilities))
        return own


class _Max:
    def __init__(self, theta: Floats, design: Floats):
        self._strength = expit(theta[:, 0])
        # The leak is always on and above 0, so what is off is never the largest.
        self._largest = np.argmax(design * self._strength, axis=1)
        self.probabilities: Floats = self._strength[self._largest][:, None]

    def pulled(self, slopes: Floats) -> Floats:
        return self._gathered(slopes[:, 0])

    def own_slopes(self, weights: Floats) -> Floats:
        return self._gathered(weights[np.arange(len(weights)), self._largest])

    def _gathered(self, values: Floats) -> Floats:
        total = np.bincount(self._largest, values, minlength=self._strength.size)
        gathered: Floats = (total * self._strength * (1.0 - self._strength))[:, None]
        return gathered


class _NoisyOr:
    def __init__(self, theta: Floats, design: Floats):
        self._strength = expit(theta)
        self._silent = np.exp(design @ -np.logaddexp(0.0, theta))  # log(1 - s) without loss where s is near 1
        self.probabilities: Floats = 1.0 - self._silent
        self._design = design

    def pulled(self, slopes: Floats) -> Floats:
        pulled: Floats = self._strength * (self._design.T @ (slopes * self._silent))
        return pulled

    def own_slopes(self, weights: Floats) -> Floats:
        own: Floats = self._strength * (weights.T @ self._silent)
        return own


FORMS: dict[str, Shape] = {"logit": _Logit, "max": _Max, "noisy-or": _NoisyOr}
"""Every form by name."""

MONOTONE = frozenset({"max", "noisy-or"})
"""Those under which causes only ever switch an effect on."""


def forms_of(schema: Schema, form: Form) -> dict[str, str]:
    """Return the form of each column, checked.

    Raises:
        InputError: If a form or column is unknown, or a column is named that cannot have its form.
    """
    binary = [name for name in schema.names if schema[name].size == 2]
    if isinstance(form, str):
        one_of("form", form, FORMS)
        return dict.fromkeys(schema.names, "logit") | dict.fromkeys(binary, form)
    if not isinstance(form, Mapping):
        raise InputError(f"form must be one of {', '.join(map(repr, FORMS))}, or one of them by column.")
    for name, each in form.items():
        if name not in schema.columns:
            raise InputError(f"form names {name!r}, no column of the schema.{did_you_mean(str(name), schema.names)}")
        if one_of(f"form of {name!r}", each, FORMS) != "logit" and name not in binary:
            raise InputError(
                f"form of {name!r} is {each!r}, which is for columns of two levels; it has {schema[name].size} "
                "(a missing value counts as one). Use 'logit'."
            )
    return dict.fromkeys(schema.names, "logit") | dict(form)


def law_of(form: str, parents: Sequence[str], parent_sizes: Sequence[int], theta: Floats) -> Conditional:
    """Return the law with these parameters."""
    names = tuple(parents)
    if not names:
        return TableConditional((), _with_first(FORMS[form](theta, np.ones((1, 1))).probabilities)[0])
    ends = np.cumsum([1, *(size - 1 for size in parent_sizes)])
    blocks = [theta[start:end] for start, end in pairwise(ends)]
    if form == "logit":
        intercept = np.concatenate([[0.0], theta[0]])
        return LogitConditional(names, intercept, tuple(np.pad(block, ((1, 0), (1, 0))) for block in blocks))
    firing = MaxConditional if form == "max" else NoisyOrConditional
    strengths = tuple(np.concatenate([[0.0], expit(block[:, 0])]) for block in blocks)
    return firing(names, float(expit(theta[0, 0])), strengths)


def _with_first(probabilities: Floats) -> Floats:
    """Return probabilities with those of the first level put in front."""
    first = np.maximum(1.0 - probabilities.sum(axis=1, keepdims=True), 0.0)
    return np.concatenate([first, probabilities], axis=1)


# ---- the most likely parameters


FIRST_PRIORS: Priors = {
    "root": (-2.0, 4.0),
    "logit intercept": (-2.0, 4.0),
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

_WIDE = ("root", "logit intercept")  # kinds that are known from levels, and not learnt
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


@dataclass(frozen=True, slots=True, eq=False)
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
    _: KW_ONLY
    noise: Floats
    design: Floats
    rows: Floats
    tied: bool = False

    def fitted(self, priors: Priors, start: FittedFamily | None = None) -> FittedFamily:
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
        return FittedFamily(
            self.kinds,
            theta,
            1.0 / (told + np.maximum(prior.spread, 1e-3) ** -2.0),
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


@dataclass(frozen=True, slots=True, eq=False)
class FittedFamily:
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
    _: KW_ONLY
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

    def unit_of(self, found: FittedFamily) -> Floats:
        """Return the units of parameters found under other priors."""
        spread = np.where(self.spread > 0, self.spread, np.inf)
        rows = (found.theta - self.shared * found.level - self._mean) / spread
        return np.concatenate([rows, (found.level[None, :] - self._level_mean) / self.level_spread])


def learn_priors(found: Iterable[FittedFamily]) -> Priors:
    """Return what each kind of parameter is like, from all parameters of that kind and the first prior."""
    gathered: dict[str, list[tuple[Floats, Floats]]] = {}
    for family in found:
        for kind, values, variance in family.observations():
            gathered.setdefault(kind, []).append((values, variance))
    priors = dict(FIRST_PRIORS)
    for kind, several in gathered.items():
        if kind in _WIDE:
            continue
        values, variance = (np.concatenate(parts) for parts in zip(*several, strict=True))
        mean, spread = FIRST_PRIORS[kind]
        if not kind.endswith(_CENTRED):
            mean = (_KNOWN * mean + float(values.sum())) / (_KNOWN + values.size)
        square = (_KNOWN * spread**2 + float(((values - mean) ** 2 + variance).sum())) / (_KNOWN + values.size)
        priors[kind] = mean, float(np.sqrt(square))
    return priors


# ---- the least value of a function with a known slope


Sloped: TypeAlias = Callable[[Floats], tuple[float, Floats]]

_MEMORY = 10
_ITERATIONS = 500
_BISECTIONS = 30
_DECREASE, _FLATTENING = 1e-4, 0.9
_STOP = 1e-10  # of the value, between two steps
_FLAT = 1e-6  # of the slope


def minimise(function: Sloped, start: Floats) -> Floats:
    """Return where ``function`` is least, as far as going down from ``start`` leads.

    Args:
        function: Takes a point of shape (n,), gives the value there and the slope, of shape (n,).
        start: Where to begin.

    >>> minimise(lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3)), np.zeros(2)).round(6)
    array([3., 3.])
    """
    point = np.array(start, dtype=np.float64)
    value, slope = function(point)
    steps: deque[tuple[Floats, Floats, float]] = deque(maxlen=_MEMORY)
    for _ in range(_ITERATIONS):
        if not slope.size or max(slope.max(), -slope.min()) <= _FLAT:
            break
        direction = -_flattened(slope, steps)
        found = _step(function, point, value, slope, direction)
        if found is None:
            break
        change, (new_value, new_slope) = found
        turn = new_slope - slope
        curvature = float(change.dot(turn))
        if curvature > 0:
            steps.append((change, turn, curvature))
        done = value - new_value <= _STOP * max(abs(value), 1.0)
        point, value, slope = point + change, new_value, new_slope
        if done:
            break
    return point


def _flattened(slope: Floats, steps: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Return the slope times the inverse curvature that the last steps showed."""
    if not steps:
        return slope / max(float(np.linalg.norm(slope)), 1.0)
    left, shares = slope.copy(), []
    for change, turn, curvature in reversed(steps):
        share = change.dot(left) / curvature
        left -= share * turn
        shares.append(share)
    _, turn, curvature = steps[-1]
    left *= curvature / turn.dot(turn)
    for (change, turn, curvature), share in zip(steps, reversed(shares), strict=True):
        left += (share - turn.dot(left) / curvature) * change
    return left


def _step(
    function: Sloped, point: Floats, value: float, slope: Floats, direction: Floats
) -> tuple[Floats, tuple[float, Floats]] | None:
    """Return how far to go along ``direction``, and value and slope there; None if nothing goes down."""
    along = float(direction.dot(slope))
    low, high, length = 0.0, math.inf, 1.0
    best: tuple[Floats, tuple[float, Floats]] | None = None
    for _ in range(_BISECTIONS):
        there = function(point + length * direction)
        if there[0] > value + _DECREASE * length * along:
            high = length
        else:
            best = length * direction, there
            if there[1].dot(direction) >= _FLATTENING * along:
                break
            low = length
        length = 2 * low if high == math.inf else (low + high) / 2
    return best
