"""Simulated pairs with a known cause: seven additive noise models, for planning, tests and experiments.

Each draws x and then y = f(x) + noise, both on the public scale [-1, 1] (what falls outside is clamped). The seven
stand for easy and hard cases; ``weak`` has as much noise as signal. They were written
down once and not tuned afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from escudo._validate import one_of, positive_integer
from escudo.orientation._regression_data import Pair
from escudo.orientation._scores import Floats

__all__ = ["FAMILIES", "draw_pair"]

_Function = Callable[[Floats], Floats]

FAMILIES: dict[str, tuple[_Function, float]] = {
    "cubic": (lambda x: 0.8 * x**3 + 0.1 * x, 0.12),
    "tanh": (lambda x: 0.6 * np.tanh(3 * x), 0.12),
    "exp": (lambda x: 0.22 * np.exp(1.5 * x) - 0.4, 0.12),
    "quadratic": (lambda x: x**2 - 0.4, 0.12),
    "sine": (lambda x: 0.5 * np.sin(4 * x), 0.15),
    "linear": (lambda x: 0.5 * x, 0.35),
    "weak": (lambda x: 0.35 * np.tanh(3 * x), 0.2),
}
"""The function of each family and the size of its noise: normal, but uniform for ``linear``, which could not be told
apart with normal noise. The cause is uniform on [-0.9, 0.9], but normal with standard deviation 0.4 for ``tanh``."""


def draw_pair(family: str, rows: int, rng: np.random.Generator) -> Pair:
    """Return ``rows`` records of a family, in which x causes y.

    >>> pair = draw_pair("cubic", 5, np.random.default_rng(0))
    >>> len(pair.x), bool((abs(pair.y) <= 1).all())
    (5, True)
    """
    function, size = FAMILIES[one_of("family", family, FAMILIES)]
    count = positive_integer("rows", rows)
    x = rng.normal(0, 0.4, count) if family == "tanh" else rng.uniform(-0.9, 0.9, count)
    noise = rng.uniform(-size, size, count) if family == "linear" else rng.normal(0, size, count)
    return Pair(np.clip(x, -1.0, 1.0), np.clip(function(x) + noise, -1.0, 1.0))
