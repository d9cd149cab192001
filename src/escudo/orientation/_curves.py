"""Probability of the right direction against ε, on simulated pairs: for choosing a method and a budget beforehand.

Nothing here looks at a private table: only its public number of rows comes in. Real pairs are harder, because there the
noise models themselves are wrong; these curves show what *privacy* costs.

**Simulated pairs** with a known cause: seven additive noise models, for planning, tests and experiments. Each draws x
and then y = f(x) + noise, both on the public scale [-1, 1] (what falls outside is clamped). The seven stand for easy
and hard cases; ``weak`` has as much noise as signal. They were written down once and not tuned afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from escudo._card import tracking
from escudo._validate import one_of, positive, positive_integer, whole
from escudo.mechanisms import Purse
from escudo.orientation._direction import direction
from escudo.orientation._gap import (
    LEAST_SKETCH,
    WIDTH,
    gap_of,
    gap_sensitivity,
    noisy_regressions,
    probability_of_direction,
)
from escudo.orientation._paper import residuals, score_sensitivity, two_scores
from escudo.orientation._regression import Pair
from escudo.orientation._scores import Floats
from escudo.table import PrivateTable, Schema

EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_MOST_ROWS = 8_000  # the gap hardly depends on more; noise is computed for the rows there are
_BOUNDS = {"type": "numeric", "lower": -1, "upper": 1}
_SCHEMA = Schema.from_dict({"x": _BOUNDS, "y": _BOUNDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningCurves:
    """How often each method's margin points the right way on a simulated pair, whether or not it makes a verdict.

    Attributes:
        rows: The number of rows it was computed for.
        epsilons: The budgets.
        methods: For each method, the mean probability at each ε over seven families; NaN where it refuses. Votes are
            simulated with at most 8,000 rows, so for more rows theirs is too low.
    """

    rows: int
    epsilons: tuple[float, ...]
    methods: dict[str, tuple[float, ...]]


def planning_curves(rows: int, *, epsilons: Sequence[float] = EPSILONS, seed: int = 0) -> PlanningCurves:
    """Return curves for all methods that protect a whole table of ``rows`` rows.

    Args:
        rows: The public number of rows, at least 100.
        epsilons: The budgets, all above 0.
        seed: Of the simulation.

    >>> curves = planning_curves(4000, epsilons=(1.0,))
    >>> curves.methods["votes"][0] > 0.7 > curves.methods["paper"][0]
    True
    """
    count = whole("rows", rows, minimum=100)
    budgets = tuple(positive("epsilons", epsilon) for epsilon in epsilons)
    rng = np.random.default_rng(seed)
    blocks = _blocks(min(count, _MOST_ROWS), budgets)
    found: dict[str, list[list[float]]] = {"votes": [], "gap": [], "paper": []}
    with tracking("Simulating", total=len(FAMILIES)) as advance:
        for family in FAMILIES:
            pair = draw_pair(family, min(count, _MOST_ROWS), rng)
            found["votes"].append(_votes(pair, blocks, budgets))
            found["gap"].append(_gap(pair, count, budgets, rng))
            found["paper"].append(_paper(pair, count, budgets))
            advance(1)
    means = {name: tuple(float(v) for v in np.mean(values, axis=0)) for name, values in found.items()}
    return PlanningCurves(rows=count, epsilons=budgets, methods=means)


def _halves(pair: Pair) -> tuple[Pair, Pair]:
    middle = len(pair.x) // 2
    return Pair(pair.x[:middle], pair.y[:middle]), Pair(pair.x[middle:], pair.y[middle:])


def _gap(pair: Pair, rows: int, epsilons: Sequence[float], rng: np.random.Generator) -> list[float]:
    train, test = _halves(pair)
    half = rows // 2
    found = []
    for epsilon in epsilons:
        if epsilon * half < LEAST_SKETCH:
            found.append(math.nan)
            continue
        # As many rows as can be drawn, with the noise that the rows there are would have beside them.
        fits = noisy_regressions(train, Purse(seed=rng), epsilon=min(epsilon * half / len(train.x), 500.0))
        scale = gap_sensitivity("sqrt_hsic", half) / epsilon
        found.append(probability_of_direction(gap_of("sqrt_hsic", test, *fits), scale, noises=1))
    return found


def _paper(pair: Pair, rows: int, epsilons: Sequence[float]) -> list[float]:
    train, test = _halves(pair)
    lam, half = 0.3, rows // 2
    forward, backward = two_scores("hsic", residuals(train, test, regularisation=lam))
    one = score_sensitivity("hsic", "both", n=half, m=half, regularisation=lam, width=WIDTH, constants="paper")
    return [probability_of_direction(backward - forward, 2 * one / epsilon, noises=2) for epsilon in epsilons]


def _blocks(rows: int, epsilons: Sequence[float]) -> list[int | None]:
    """Return how many blocks vote at each ε, as the number of rows decides, whatever is in them; None if none do."""
    table = _table(draw_pair("linear", rows, np.random.default_rng(0)))
    asked = (direction(table, "x", "y", epsilon=epsilon, abstain=0.0, seed=0) for epsilon in epsilons)
    return [None if one.largest_margin is None else int(one.largest_margin) for one in asked]


def _votes(pair: Pair, blocks: Sequence[int | None], epsilons: Sequence[float]) -> list[float]:
    table = _table(pair)
    sums: dict[int, int] = {}
    found = []
    for number, epsilon in zip(blocks, epsilons, strict=True):
        if number is None:
            found.append(math.nan)
            continue
        if number not in sums:  # at ε = 100 the noise has scale 0.02, on whole numbers
            sums[number] = round(direction(table, "x", "y", epsilon=100.0, blocks=number, abstain=0.0, seed=0).margin)
        found.append(probability_of_direction(sums[number], 2 / epsilon, noises=1) if sums[number] else 0.5)
    return found


def _table(pair: Pair) -> PrivateTable:
    import polars as pl

    return PrivateTable(pl.DataFrame({"x": pair.x, "y": pair.y}), _SCHEMA)


# ---- simulated pairs

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
