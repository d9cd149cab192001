"""Pairs of columns that the project simulates: x causes y in all of them.

``training_pair`` draws from wide families (additive, location-scale, multiplicative, post-nonlinear and fully random
mechanisms; many shapes of causes, functions and noises; rounding; confounding). ``held_out_pair`` has four families
written apart from those, for measuring, in the spirit of the SIM benchmarks of Mooij et al. (2016): mechanisms are
random functions of cause and noise together. Plain additive noise models are in ``escudo.orientation._curves``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]

SIMULATIONS = ("SIM", "SIM-c", "SIM-ln", "SIM-G")
"""Random mechanisms: plain, with a confounder, with little noise, and with nearly Gaussian columns."""


def standard(values: Floats) -> Floats:
    """Return values with mean 0 and standard deviation 1."""
    return (values - values.mean()) / (values.std() + 1e-12)


def smooth(rng: np.random.Generator, inputs: Floats, widths: list[float], terms: int = 60) -> Floats:
    """Return a random smooth function of the inputs, shape (n,) or (n, d): a Gaussian process by random cosines."""
    columns = inputs.reshape(len(inputs), -1)
    frequencies = rng.normal(size=(columns.shape[1], terms)) / np.asarray(widths)[:, None]
    phases = rng.uniform(0, 2 * np.pi, terms)
    return np.cos(columns @ frequencies + phases) @ rng.normal(size=terms) * np.sqrt(2 / terms)


def width(rng: np.random.Generator) -> float:
    """Return a random width of a smooth function."""
    return float(rng.gamma(5, 0.3))


# -- for training


def _mixture(rng: np.random.Generator, n: int) -> Floats:
    parts = int(rng.integers(2, 5))
    middles, sizes = 2 * rng.normal(size=parts), rng.gamma(2, 0.4, parts) + 0.1
    part = rng.choice(parts, n, p=rng.dirichlet(2 * np.ones(parts)))
    return middles[part] + sizes[part] * rng.normal(size=n)


def _warped(rng: np.random.Generator, n: int) -> Floats:
    noise = rng.normal(size=n)
    return smooth(rng, noise, [width(rng)]) + 0.3 * noise


SHAPES: tuple[Callable[[np.random.Generator, int], Floats], ...] = (
    lambda rng, n: rng.normal(size=n),
    lambda rng, n: rng.uniform(-1, 1, n),
    lambda rng, n: rng.gamma(rng.uniform(0.7, 5), size=n),
    lambda rng, n: np.exp(rng.normal(size=n) * rng.uniform(0.3, 1)),
    _mixture,
    lambda rng, n: rng.beta(rng.uniform(0.6, 4), rng.uniform(0.6, 4), n),
    lambda rng, n: rng.standard_t(rng.integers(4, 10), n),
    lambda rng, n: rng.laplace(size=n),
    _warped,
)


def shape(rng: np.random.Generator, n: int) -> Floats:
    """Draw a column of a random shape."""
    values = standard(SHAPES[rng.integers(len(SHAPES))](rng, n))
    return -values if rng.random() < 0.3 else values


def _steps(rng: np.random.Generator, x: Floats) -> Floats:
    total = 0.2 * x
    for _ in range(rng.integers(1, 4)):
        total = total + rng.choice([-1, 1]) * rng.gamma(2) * np.tanh(rng.gamma(2, 0.7) * (x - rng.normal()))
    return total


def _power(rng: np.random.Generator, x: Floats) -> Floats:
    if rng.random() < 0.5:
        return np.sign(x) * np.abs(x) ** rng.uniform(0.4, 2.5)
    return np.exp(rng.uniform(0.2, 0.9) * x)


FUNCTIONS: tuple[Callable[[np.random.Generator, Floats], Floats], ...] = (
    lambda rng, x: smooth(rng, x, [width(rng)]),
    lambda rng, x: smooth(rng, x, [width(rng)]),
    _steps,
    lambda rng, x: x * rng.normal() + 0.5 * x**2 * rng.normal() + 0.15 * x**3 * rng.normal(),
    _power,
    lambda rng, x: x,
)


def function(rng: np.random.Generator, x: Floats) -> Floats:
    """Return a random function of a column."""
    return standard(FUNCTIONS[rng.integers(len(FUNCTIONS))](rng, x))


def _random_mechanism(rng: np.random.Generator, n: int) -> Pair:
    hidden = rng.normal(size=n)
    warped = standard(smooth(rng, hidden, [width(rng)]) + rng.uniform(0, 0.7) * hidden)
    x = warped if rng.random() < 0.7 else shape(rng, n)
    noise = shape(rng, n) * rng.choice([0.2, 0.5, 1])
    if rng.random() < 0.3:
        confounder = shape(rng, n)
        x = standard(x + rng.uniform(0.2, 1) * smooth(rng, confounder, [width(rng)]))
        y = smooth(rng, np.c_[x, noise, confounder], [width(rng), width(rng), float(rng.gamma(5, 0.5))])
    else:
        y = smooth(rng, np.c_[x, noise], [width(rng), width(rng)])
    y = standard(y) + rng.choice([0, 0.05, 0.1]) * rng.normal(size=n)
    return x + rng.choice([0, 0.05, 0.1]) * rng.normal(size=n), y


def _through_noise(rng: np.random.Generator, n: int, family: str) -> Pair:
    x = shape(rng, n)
    mean, noise = function(rng, x), shape(rng, n)
    size = np.exp(rng.uniform(np.log(0.05), np.log(1.5)))
    if family == "additive":
        return x, mean + size * noise
    if family == "location-scale":
        return x, mean + size * np.exp(rng.uniform(0.2, 1) * function(rng, x)) * noise
    if family == "multiplicative":
        level = mean - mean.min() + 0.1
        factor = np.exp(0.7 * size * noise) if rng.random() < 0.5 else 1 + 0.5 * size * np.tanh(noise)
        return x, level * factor
    y = standard(mean + size * noise)  # seen through a curve
    curve = rng.integers(3)
    if curve == 0:
        return x, np.tanh(rng.uniform(0.5, 1.5) * y)
    return x, np.exp(rng.uniform(0.2, 1) * y) if curve == 1 else np.sign(y) * np.abs(y) ** rng.uniform(0.5, 2)


def _rounded(rng: np.random.Generator, values: Floats) -> Floats:
    """Round one column in five to between 10 and 100 steps; whether x or y makes no difference to it."""
    if rng.random() >= 0.2:
        return values
    step = (np.quantile(values, 0.99) - np.quantile(values, 0.01)) / rng.choice([10, 15, 20, 40, 100])
    return np.round(values / step) * step


FAMILIES = ("additive", "location-scale", "multiplicative", "post-nonlinear", "random")
SHARES = (0.3, 0.2, 0.1, 0.1, 0.3)


def training_pair(rng: np.random.Generator, n: int) -> Pair:
    """Draw a pair for training."""
    family = str(rng.choice(FAMILIES, p=SHARES))
    x, y = _random_mechanism(rng, n) if family == "random" else _through_noise(rng, n, family)
    return _rounded(rng, standard(x)), _rounded(rng, standard(y))


# -- for measuring


def _process(rng: np.random.Generator, inputs: Floats, length: float) -> Floats:
    """Return a Gaussian process along one axis, drawn on a grid by its covariance."""
    grid = np.linspace(inputs.min(), inputs.max(), 200)
    covariance = np.exp(-0.5 * ((grid[:, None] - grid) / length) ** 2) + 1e-6 * np.eye(grid.size)
    return np.interp(inputs, grid, np.linalg.cholesky(covariance) @ rng.normal(size=grid.size))


def _random_shape(rng: np.random.Generator, n: int, *, gaussian: bool) -> Floats:
    hidden = np.sort(rng.normal(size=n))
    if gaussian:  # a gentle increasing curve
        speed = np.exp(_process(rng, hidden, float(rng.gamma(20, 0.3))))
        values = np.cumsum(speed * np.diff(hidden, prepend=hidden[0]))
    else:
        values = _process(rng, hidden, float(rng.gamma(5, 0.1)))
    return rng.permutation(standard(values))


def held_out_pair(rng: np.random.Generator, n: int, kind: str) -> Pair:
    """Draw a pair of one of the families for measuring."""
    gaussian, little = kind == "SIM-G", kind == "SIM-ln"
    x, noise = (_random_shape(rng, n, gaussian=gaussian) for _ in range(2))
    size = rng.gamma(5, 0.1) * (0.4 if little else 1.2 if gaussian else 2.0)
    wide = 2.0 if gaussian else 1.0
    if kind == "SIM-c":
        confounder = 0.8 * _random_shape(rng, n, gaussian=False)
        x = standard(smooth(rng, np.c_[x, confounder], [width(rng), width(rng)], 300))
        y = smooth(rng, np.c_[x, size * noise, confounder], [width(rng), width(rng), width(rng)], 300)
    else:
        y = smooth(rng, np.c_[x, size * noise], [wide * width(rng), wide * width(rng)], 300)
    measured = rng.gamma(5, 0.02) * (0.2 if little else 1.0)
    return x + measured * rng.normal(size=n), standard(y) + measured * rng.normal(size=n)
