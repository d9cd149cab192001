r"""The forms a law can take when only moments are known: parameters in, probabilities and their derivatives out.

A family's configurations are the rows of a 0/1 design matrix: a 1 for the intercept (or leak), then one entry per level
of each parent, first levels left out. Parameters θ have a row per column of the design and a column per level of the
child, first level left out:

* ``logit``: :math:`p(x \mid pa) \propto e^{(Bθ)_x}`, with 0 for the first level;
* ``max``: p(1 | pa) is the largest :math:`s_j = σ(θ_j)` among what is on, the leak included;
* ``noisy-or``: :math:`p(1 \mid pa) = 1 - \prod_j (1 - s_j)` over what is on, the leak included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from escudo._validate import did_you_mean, one_of
from escudo.errors import InputError
from escudo.synthesis._conditionals import (
    Conditional,
    LogitConditional,
    MaxConditional,
    NoisyOrConditional,
    TableConditional,
)
from escudo.table import Schema

__all__ = ["FORMS", "MONOTONE", "Form", "Formed", "Shape", "forms_of", "law_of"]

Floats: TypeAlias = NDArray[np.float64]
Form: TypeAlias = str | Mapping[str, str]


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
