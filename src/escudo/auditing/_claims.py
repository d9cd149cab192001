r"""Claims as what an experiment can refute: points (ε, δ) that all have to hold.

Every notion promises a *front*: for each of its points and every event S,
:math:`P(S) \le e^ε P'(S) + δ`. A pure or (ε, δ) claim is one point. A claim in ρ (zCDP), μ (GDP) or as a curve (Rényi
claims come as one) is a whole front; it is refuted as soon as the *average* wealth bet against its points is large, so
testing all of it costs the log of the number of points, once.

A :class:`Family` is a nested list of claims, from strong to weak, such as all ε at one δ, or all μ: the smallest member
that is never refuted is a lower confidence bound, see :mod:`escudo.auditing._wealth`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from escudo._validate import finite, positive
from escudo.errors import InputError
from escudo.privacy import Guarantee, gdp_to_delta, zcdp_to_delta
from escudo.privacy._conversions import renyi_to_delta

__all__ = ["Family", "Front", "epsilon_family", "front_of", "own_family", "renyi_claim"]

Floats = NDArray[np.float64]

_TOP = 30.0  # no experiment refutes more: it would take e^30 runs
_NOTHING = 0.999  # a δ from which on nothing is promised
_SLACKS = (0.5, 0.3, 0.15, 0.06, 0.02, 0.005, 0.001)  # δ at which a curve is tested, where it reaches them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Front:
    """Points that hold together: P(S) ≤ e^epsilons[k] P'(S) + deltas[k] for every k."""

    epsilons: Floats
    deltas: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """Claims from strong to weak, each the front of one value of a parameter.

    Attributes:
        values: The parameter of each claim, increasing, shape (g,).
        front: The front of a value; all have the same number of points.
    """

    values: Floats
    front: Callable[[float], Front]


@lru_cache(maxsize=64)
def front_of(claim: Guarantee) -> Front:
    """Return the points of a claim that are tested."""
    if claim.epsilon is not None:
        return Front(epsilons=np.array([claim.epsilon]), deltas=np.array([claim.delta]))
    if claim.rho is not None:
        return _front(lambda e: zcdp_to_delta(float(claim.rho or 0), e))
    if claim.mu is not None:
        return _front(lambda e: gdp_to_delta(float(claim.mu or 0), e))
    return _front(claim.delta_at)


def epsilon_family(delta: float, max_runs: int = 10_000_000, *, claimed: float | None = None) -> Family:
    """Return (ε, δ) claims for one δ, the one ``claimed`` among them, as close as so many runs may tell apart."""
    values = [0.0]
    while values[-1] < _TOP:
        last = values[-1]
        # No event gives a smaller standard error than 2 e^{ε/2} / √runs: a third of it is close enough.
        step = max(0.7 * math.exp(last / 2) / math.sqrt(max_runs), 0.002 * last)
        values.append(last + min(step, 0.002 + 0.02 * last))
    values = sorted({*values, *([] if claimed is None else [claimed])})
    slack = np.array([delta])
    return Family(values=np.array(values), front=lambda epsilon: Front(epsilons=np.array([epsilon]), deltas=slack))


def own_family(claim: Guarantee, max_runs: int = 10_000_000) -> Family | None:
    """Return all claims in the notion of ``claim``, or None where it has no parameter of its own."""
    least, ratio = max(0.002, 1 / math.sqrt(max_runs)), 1 + min(0.05, max(0.01, 2 / math.sqrt(max_runs)))
    shifts = least * ratio ** np.arange(math.ceil(math.log(20 / least) / math.log(ratio)))
    if claim.mu is not None:
        return Family(values=np.asarray(shifts, dtype=np.float64), front=_gdp_front)
    if claim.rho is not None:
        # The same grid in the size of a Gaussian shift, μ = √(2ρ), because noise is compared with it.
        return Family(values=np.asarray(shifts**2 / 2), front=_zcdp_front)
    return None


@lru_cache(maxsize=4096)
def _gdp_front(mu: float) -> Front:
    return _gaussian_front(mu, lambda e: gdp_to_delta(mu, e))


@lru_cache(maxsize=4096)
def _zcdp_front(rho: float) -> Front:
    return _gaussian_front(math.sqrt(2 * rho), lambda e: zcdp_to_delta(rho, e))


def renyi_claim(orders: Sequence[float], divergences: Sequence[float], **details: object) -> Guarantee:
    """Return a Rényi claim, divergence at most ``divergences[k]`` at order ``orders[k]``, as a privacy curve.

    Args:
        orders: Orders above 1.
        divergences: A bound at each order.
        details: Relation, unit and so on, as :class:`~escudo.privacy.Guarantee` takes them.

    Raises:
        InputError: If orders and divergences do not match or are out of range.

    >>> claim = renyi_claim([2, 4, 8], [1.0, 2.0, 4.0])
    >>> claim.delta_at(8.0) < 1e-4
    True
    """
    if len(orders) != len(divergences) or not len(orders):
        raise InputError(f"give one divergence per order; got {len(orders)} and {len(divergences)}.")
    alphas = np.array([finite("orders", a) for a in orders])
    bounds = np.array([positive("divergences", d, allow_zero=True) for d in divergences])
    if (alphas <= 1).any():
        raise InputError("orders of Rényi divergence must be above 1.")
    points = []
    for epsilon in np.concatenate([np.linspace(0, 1, 41)[:-1], np.geomspace(1, 40, 120)]):
        try:
            delta = float(renyi_to_delta(alphas, bounds, float(epsilon)))
        except OverflowError:
            continue  # so far above ε that nothing follows
        if delta < _NOTHING:
            points.append((float(epsilon), delta))
    if not points:
        raise InputError(
            "these divergences are so large that they promise nothing; no point of the curve has a δ worth testing."
        )
    return Guarantee(curve=tuple(points), **details)  # type: ignore[arg-type]


def _front(delta_at: Callable[[float], float]) -> Front:
    """Return the points of a curve at a few δ that an experiment can tell from 0."""
    grid = np.concatenate([np.linspace(0, 1, 26)[:-1], np.geomspace(1, _TOP, 60)])
    deltas = np.array([float(delta_at(float(e))) for e in grid])
    chosen: dict[float, float] = {0.0: float(deltas[0])}
    for slack in _SLACKS:
        reached = np.flatnonzero(deltas <= slack)
        if reached.size:
            chosen[float(grid[reached[0]])] = float(deltas[reached[0]])
    kept = [(e, d) for e, d in sorted(chosen.items()) if d < _NOTHING]
    if not kept:
        raise InputError("the claim promises nothing at any ε up to 30: every mechanism satisfies it.")
    return Front(epsilons=np.array([e for e, _ in kept]), deltas=np.array([d for _, d in kept]))


def _gaussian_front(mu: float, delta_at: Callable[[float], float]) -> Front:
    """Return six points of a curve like that of a Gaussian shift of size ``mu``."""
    # A likelihood ratio of e^ε is reached z standard deviations out; these z cover common to rare events.
    epsilons = np.array([max(0.0, mu * z + mu * mu / 2) for z in (-0.5, 0.0, 0.5, 1.0, 1.5, 2.2)])
    deltas = np.array([min(0.999, float(delta_at(float(e)))) for e in epsilons])
    return Front(epsilons=epsilons, deltas=deltas)
