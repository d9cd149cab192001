r"""Anytime-valid evidence: wealth won by betting on which dataset a run had, at odds that are fair if the claim holds.

**Trials.** Run t draws a fair coin B, independent of everything before; the mechanism gets dataset d′ if B = 1, d if
B = 0, and gives an output o. Let :math:`\mathcal F` be all that happened before. The mechanism may drift: let
:math:`P_1, P_0` be the laws of o under d′ and d at this very run, given :math:`\mathcal F`. The claim (ε, δ) says of
every event S, every t and every past, :math:`P_1(S) \le e^ε P_0(S) + δ` and the same with 1 and 0 swapped.

**One bet.** Let φ⁺, φ⁻ ≥ 0 be functions of the output, chosen by the past, and
:math:`s = \sup φ^+ + \sup φ^-`. Put

.. math:: X = 2[B φ^+(o) - e^ε (1-B) φ^+(o)] + 2[(1-B) φ^-(o) - e^ε B φ^-(o)] - sδ.

*Claim:* :math:`E[X \mid \mathcal F] \le 0`. *Proof.* B is a fair coin, so the first bracket has mean
:math:`E_1 φ^+ - e^ε E_0 φ^+ = \int_0^{\sup φ^+} [P_1(φ^+ > u) - e^ε P_0(φ^+ > u)]\, du \le δ \sup φ^+`, and the second
likewise at most :math:`δ \sup φ^-`. □

Nothing else is assumed: not independence of runs, not a fixed law, only that the coin is fair and unknown to the
mechanism. For 0 ≤ λ ≤ 1/(2e^ε + sδ), chosen by the past, 1 + λX ≥ 0 has conditional mean at most 1, so the product
over runs is a supermartingale starting at 1.

**Many bets.** An account per input pair, way of choosing cells and size of bet holds a part of the capital 1; a run
multiplies the accounts of its pair. At times fixed by the past, capital may be moved between accounts: the total stays
a supermartingale because it does under any such transfer, and if part of it is thrown away. An account may also bet on
runs of many pairs, one after the other: nothing above asks two runs to have the same datasets, only that the claim
holds between the two of each run, and that φ was chosen before its coin. By Ville's inequality it *ever* reaches 1/α
with probability at most α: whenever it does, the claim is rejected at confidence 1 - α, all events, bets, directions
and pairs together.
A front of several points (ε, δ) has a capital for each, and their average is a supermartingale too.

**Cells.** φ is constant on the cells of a partition that was fixed before, so the wealth of an account over a stage
depends only on how many runs of each dataset fell into each cell: this is why it is cheap, and why it can be
recomputed at any other ε afterwards from the same counts. "Chosen by the past" is kept by construction: a stage is
opened with counts of earlier runs (:func:`stakes` sees nothing else) and cannot be changed.

**A lower bound.** Let the true ε₀ be the smallest ε that holds, and g* the first of a fixed grid of values with
g* ≥ ε₀. The claim g* holds, so its capital ever reaches 1/α with probability at most α. The bound reported is the
last g such that *every* grid value up to g was rejected at some time; it exceeds ε₀ only if g* was rejected. Hence the
bound is right at all times at once with probability 1 - α, without any monotonicity of wealth in ε.

**Claims.** Every notion promises a *front*: points (ε, δ) that all have to hold, for every event S,
:math:`P(S) \le e^ε P'(S) + δ`. A pure or (ε, δ) claim is one point. A claim in ρ (zCDP), μ (GDP) or as a curve (Rényi
claims come as one) is a whole front; it is refuted as soon as the *average* wealth bet against its points is large, so
testing all of it costs the log of the number of points, once. A :class:`Family` is a nested list of claims, from strong
to weak, such as all ε at one δ, or all μ: the smallest member that is never refuted is a lower confidence bound.

**How to bet.** A stake is a number φ in [-1, 1] per cell: positive to guess "second dataset", negative for "first",
zero to sit out. Guessing right has to be more likely than :math:`p_0 = e^ε / (1 + e^ε)` for a pure claim to be wrong.
Five ways of choosing cells compete, each with several sizes of bet, looking only at counts from *before* the runs that
are bet on:

* *aim*: for each guess the one set of cells that promises the best bound in the end, with bets so small that they tell
  most when all runs are made;
* *both*: sets of cells for each guess, at the ends of the cells' order, weighted by what they have won against this ε;
* *levels*: every cell by itself, the more the clearer it is;
* *plus*, *minus*: as *both*, for one guess only.

References:
    G. Shafer (2021), "Testing by betting"; I. Waudby-Smith, A. Ramdas (2024), "Estimating means of bounded random
    variables by betting"; J. Ville (1939). M. Herbster, M. Warmuth (1998), "Tracking the best expert", for sharing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from escudo._validate import finite, positive
from escudo.errors import InputError
from escudo.privacy import Guarantee, gdp_to_delta, renyi_to_delta, zcdp_to_delta

Floats = NDArray[np.float64]
BETS = 4  # sizes of bet in each way of choosing cells
ACCOUNTS = 8 * BETS  # of each pair: a way of choosing cells and a size of bet each

_TOP = 30.0  # no experiment refutes more: it would take e^30 runs
_NOTHING = 0.999  # a δ from which on nothing is promised
_SLACKS = (0.5, 0.3, 0.15, 0.06, 0.02, 0.005, 0.001)  # δ at which a curve is tested, where it reaches them
_STEADY = np.array([0.12, 0.3])  # bets of fixed size, for differences that show after some hundred runs
_LATE = np.array([2.2, 3.2, 6.0, 10.0])  # bets for the end, as standard errors that may be seen then
_SIZES = np.array([0.7, 1.4])  # bets as multiples of the size that the estimate suggests
_NEAR = 0.02  # a difference in ε that is little
_MOST = 0.98  # of what can be lost at once: never all
_FRACTIONS = np.array([0.002, 0.006, 0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8])
_ROLES = (5, 3)  # ways of choosing cells for the best view of the output, and for the second best
_ROLE_WEIGHTS = np.array([0.28, 0.34, 0.14, 0.05, 0.05, 0.05, 0.05, 0.04])
_AIMED = np.array([0.8, 0, 0, 0, 0, 0.2, 0, 0])  # where capital goes if there are very many runs
_SIZE_WEIGHTS = np.array([[0.2, 0.3, 0.3, 0.2] if role in (0, 5) else [0.1, 0.4, 0.2, 0.3] for role in range(8)])
_LATE_WEIGHTS = np.array([0.5, 0.4, 0.08, 0.02])  # of the sizes of aimed bets, if there are very many runs
_SHARED = {True: 0.03, False: 0.003}  # part of the capital that is spread anew when cells change, or only counts


# ---- claims, as points that an experiment can refute


@dataclass(frozen=True, slots=True, eq=False)
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


def coarse_family(delta: float) -> Family:
    """Return (ε, δ) claims for one δ, a few hundredths apart: for bounds that stand beside others."""
    values = [0.0, 0.02]
    while values[-1] < _TOP:
        values.append(values[-1] + 0.03 + 0.02 * values[-1])
    slack = np.array([delta])
    return Family(values=np.array(values), front=lambda epsilon: Front(epsilons=np.array([epsilon]), deltas=slack))


def own_family(claim: Guarantee, max_runs: int = 10_000_000) -> Family | None:
    """Return claims in the notion of ``claim``, itself among them, or None where it has no parameter of its own."""
    least, ratio = max(0.002, 1 / math.sqrt(max_runs)), 1 + min(0.05, max(0.01, 2 / math.sqrt(max_runs)))
    shifts = least * ratio ** np.arange(math.ceil(math.log(20 / least) / math.log(ratio)))
    own = claim.mu if claim.mu is not None else claim.rho
    if own is None:
        return None
    front = _gdp_front if claim.mu is not None else _zcdp_front
    return Family(
        # For ρ, the same grid in the size of a Gaussian shift, μ = √(2ρ), because noise is compared with it.
        values=np.unique(np.append(shifts if claim.mu is not None else shifts**2 / 2, own)),
        front=lambda value: _of_six(claim) if value == own else front(value),
    )


@lru_cache(maxsize=64)
def _of_six(claim: Guarantee) -> Front:
    """Return the points of a claim that are tested, six of them as of others of its family."""
    front = front_of(claim)
    chosen = np.resize(np.arange(front.epsilons.size), 6)
    return Front(front.epsilons[chosen], front.deltas[chosen])


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
    return Front(epsilons, deltas)


# ---- stakes: from earlier counts to bets on each cell


def stakes(counts: Floats, epsilons: Floats, deltas: Floats, roles: int, horizon: float) -> tuple[Floats, Floats]:
    """Return stakes of shape (points, roles, cells) and sizes of bet of shape (points, roles, BETS).

    Args:
        counts: Earlier runs per cell, shape (cells, 2): first and second dataset; cells in order.
        epsilons: Points that are doubted, shape (points,).
        deltas: Their δ.
        roles: How many ways of choosing cells, in the order *aim*, *both*, *levels*, *plus*, *minus*.
        horizon: How many runs there will be in the end.
    """
    cells, points, total = len(counts), epsilons.size, float(counts.sum())
    phi = np.zeros((points, roles, cells))
    size = np.zeros((points, roles, BETS))
    if total == 0 or cells < 2:
        return phi, size
    caution = _caution(total)
    members, first, second = sets_of(counts)
    phi[:, 0], size[:, 0] = _aim(members, first, second, counts, epsilons, deltas, horizon)
    up = _average(members, second, first, total, epsilons, deltas, caution)
    down = _average(members, first, second, total, epsilons, deltas, caution)
    every = (np.where(up >= down, up, -down), _levels(counts, epsilons, caution), up, -down)
    for role, stake in zip(range(1, roles), every, strict=False):
        peak = np.abs(stake).max(axis=1, keepdims=True)
        phi[:, role] = stake / np.where(peak > 0, peak, 1.0)
        size[:, role, : _STEADY.size] = np.where(peak > 0, _STEADY, 0.0)
        size[:, role, _STEADY.size :] = np.minimum(peak * _SIZES, _MOST)
    return phi, size


def log_factors(phi: Floats, size: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    r"""Return log of what a bet is multiplied by, shape (points, roles, BETS, cells, 2), for each cell and dataset.

    With φ⁺ and φ⁻ the positive and negative parts of φ and :math:`s = \sup φ^+ + \sup φ^-`, a run of the second
    dataset (B = 1) in a cell counts :math:`2φ^+ - 2 e^ε φ^- - sδ`, one of the first :math:`2φ^- - 2 e^ε φ^+ - sδ`; this
    number is multiplied by :math:`λ = \mathrm{size} / (2 e^ε + sδ)` and added to 1.
    """
    ups, downs = np.maximum(phi, 0), np.maximum(-phi, 0)
    slack = (ups.max(axis=-1) + downs.max(axis=-1)) * deltas[:, None]
    factor = np.exp(epsilons)[:, None, None]
    lost = (2 * factor[..., 0] + slack)[..., None]
    share = size / lost
    gains = np.stack([2 * downs - 2 * factor * ups, 2 * ups - 2 * factor * downs], axis=-1) - slack[..., None, None]
    return np.asarray(np.log1p(share[..., None, None] * gains[:, :, None]))


def sets_of(counts: Floats) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Return the sets of cells at both ends of the order, as masks, with both datasets' runs in them."""
    cells = len(counts)
    places = np.arange(cells)
    upper = places[None, :] >= places[1:, None]
    lower = places[None, :] < places[1:, None]
    below = np.cumsum(counts, axis=0)
    total = below[-1]
    first = np.concatenate([total[0] - below[:-1, 0], below[:-1, 0]])
    second = np.concatenate([total[1] - below[:-1, 1], below[:-1, 1]])
    return np.concatenate([upper, lower]), first, second


def _caution(runs: float) -> float:
    """Return by how many standard errors a set must stand out: by more where more sets can be told apart."""
    return float(np.clip(0.2 * np.log10(max(runs, 1.0)) - 0.3, 0.0, 1.0))


def cautious_share(right: Floats, wrong: Floats, caution: float) -> Floats:
    """Return the share of right guesses, lowered by its standard error."""
    share = (right + 0.5) / (right + wrong + 1)
    lowered: Floats = share - caution * np.sqrt(share * (1 - share) / (right + wrong + 1))
    return lowered


def promised_bounds(
    right: Floats, wrong: Floats, totals: tuple[float, float], delta: float | Floats, horizon: float
) -> Floats:
    """Return for each set the bound on ε that it is likely to give in the end, shape (sets,).

    The log ratio less one standard error of what is known now and three of what will be known then.

    Args:
        right: Runs of the likelier dataset in each set.
        wrong: Runs of the other.
        totals: All runs of the likelier dataset and of the other.
        delta: The δ of the claim; of shape (claims, 1) for several, and then so are the bounds, (claims, sets).
        horizon: How many runs there will be in the end.
    """
    rate = np.maximum((right + 0.5) / (totals[0] + 1) - delta, 1e-300)
    noise = np.sqrt(1 / (right + 0.5) + 1 / (wrong + 0.5))
    later = 3 * np.sqrt(min(1.0, (totals[0] + totals[1]) / max(horizon, 1.0)))
    return np.asarray(np.log(rate) - np.log((wrong + 0.5) / (totals[1] + 1)) - noise * (1 + later))


def _aim(
    members: NDArray[np.bool_],
    first: Floats,
    second: Floats,
    counts: Floats,
    epsilons: Floats,
    deltas: Floats,
    horizon: float,
) -> tuple[Floats, Floats]:
    r"""Return stakes on the sets that promise the best bounds, and bets for the end.

    After H hits a share of right guesses z standard errors above p₀ is bet on best with size
    :math:`z e^{ε/2} / \sqrt{H}`; H is what the horizon will bring.
    """
    n_first, n_second = (float(n) for n in counts.sum(axis=0))
    total = n_first + n_second
    phi = np.zeros((epsilons.size, len(counts)))
    hits = np.zeros(epsilons.size)
    sides = ((1.0, second, first, (n_second, n_first)), (-1.0, first, second, (n_first, n_second)))
    slacks, slack = np.unique(deltas, return_inverse=True)
    for sign, right, wrong, totals in sides:
        best = promised_bounds(right, wrong, totals, slacks[:, None], horizon).argmax(axis=1)
        good, bad = right[best], wrong[best]
        rate = (good + 0.5) / (totals[0] + 1) - slacks
        ratio = np.log(np.where(rate > 0, rate, 1.0)) - np.log((bad + 0.5) / (totals[1] + 1))
        # Up to a standard error above what was seen, if that is little: the truth may still be there.
        ratio += np.minimum(_NEAR, np.sqrt(1 / (good + 0.5) + 1 / (bad + 0.5)))
        chosen = (rate > 0)[slack] & (epsilons < ratio[slack])
        at = slack[chosen]
        phi[chosen] = np.where(members[best[at]] & (phi[chosen] == 0), sign, phi[chosen])
        hits[chosen] += ((good + bad) / total)[at]
    sizes = _LATE / np.sqrt(np.maximum(hits * horizon, 1.0))[:, None] * np.exp(epsilons / 2)[:, None]
    return phi, np.where(hits[:, None] > 0, np.minimum(sizes, _MOST), 0.0)


def _average(
    members: NDArray[np.bool_],
    right: Floats,
    wrong: Floats,
    total: float,
    epsilons: Floats,
    deltas: Floats,
    caution: float,
) -> Floats:
    """Return a stake per cell: the bets on all sets, weighted by what each would have won so far.

    A weight is the exponential of a set's winnings under its best bet, so that one set counts alone where it is clearly
    the best, and near ties are averaged instead of trusting the luckiest.
    """
    share = cautious_share(right, wrong, caution)[None, :]
    hits = ((right + wrong) / total)[None, :]
    if not deltas.any():
        fair = (1 / (1 + np.exp(-epsilons)))[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = share * np.log(share / fair) + (1 - share) * np.log((1 - share) / (1 - fair))
        growth = np.where(share > fair, hits * growth, 0.0)
        size = np.clip((share / fair - 1) * np.exp(epsilons)[:, None], 0, _MOST)
    else:
        lost = (2 * np.exp(epsilons) + deltas)[:, None, None]
        stake = _FRACTIONS[None, None, :] / lost
        slack = deltas[:, None, None]
        good, bad = (hits * share)[..., None], (hits * (1 - share))[..., None]
        rate = (
            good * np.log1p(stake * (2 - slack))
            + bad * np.log1p(-stake * lost)
            + (1 - good - bad) * np.log1p(-stake * slack)
        )
        at = rate.argmax(axis=2)
        growth = np.maximum(np.take_along_axis(rate, at[..., None], 2)[..., 0], 0.0)
        size = _FRACTIONS[at]
    won = growth * total
    weight = np.where(growth > 0, np.exp(won - won.max(axis=1, keepdims=True)), 0.0)
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    return np.asarray((weight * size) @ members)


def _levels(counts: Floats, epsilons: Floats, caution: float) -> Floats:
    """Return for each cell the bet that it would make alone."""
    smooth = counts.copy()
    smooth[1:-1] = 0.25 * counts[:-2] + 0.5 * counts[1:-1] + 0.25 * counts[2:]
    first, second = smooth[:, 0], smooth[:, 1]
    fair = (1 / (1 + np.exp(-epsilons)))[:, None]
    better = np.maximum(
        cautious_share(second + 0.5, first + 0.5, caution), cautious_share(first + 0.5, second + 0.5, caution)
    )
    sign = np.where(second >= first, 1.0, -1.0)
    return np.asarray(sign * np.clip((better[None, :] / fair - 1) * np.exp(epsilons)[:, None], 0, _MOST))


# ---- wealth: what the bets have won


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One way of cutting outputs into cells, as a stage uses it.

    Attributes:
        before: Runs per cell before the stage, shape (cells, 2), in the cells' own numbering.
        order: The cells in the order in which sets are made of them.
        counts: Runs per cell during the stage, filled in as they come.
    """

    before: Floats
    order: NDArray[np.intp]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A stretch of runs of one pair, bet on in a way that was fixed when it opened.

    Attributes:
        pair: Which pair.
        views: Ways of cutting outputs into cells.
        fresh: Whether the cells are new.
        horizon: How many runs there will be in the end, or about.
    """

    pair: int
    views: tuple[View, ...]
    fresh: bool
    horizon: float


@dataclass(slots=True)
class Book:
    """What happened to the capital, in order: stages opened and closed, pairs given up.

    Attributes:
        pairs: How many pairs there are.
        horizon: How many runs there will be in the end; with very many, the bound matters more than an early end.
        entries: What happened.
    """

    pairs: int
    horizon: float = 1e4
    entries: list[tuple[Literal["open", "close", "void", "drop", "pool"], Stage | tuple[int, ...]]] = field(
        default_factory=list
    )

    @property
    def log_weights(self) -> Floats:
        """The log of the part of a pair's capital that each account begins with."""
        late = 0.8 * min(1.0, max(0.0, (np.log10(max(self.horizon, 1.0)) - 5) / 1.5))
        early = _ROLE_WEIGHTS[:, None] * _SIZE_WEIGHTS
        weights = ((1 - late) * early + late * _AIMED[:, None] * _LATE_WEIGHTS).ravel()
        return np.asarray(np.log(weights / weights.sum()))

    def open(self, stage: Stage) -> None:
        """Begin to bet on a pair's runs."""
        self.entries.append(("open", stage))

    def close(self, stage: Stage) -> None:
        """Settle a stage's bets."""
        self.entries.append(("close", stage))

    def void(self, stage: Stage) -> None:
        """Settle a stage's bets to the bettor's loss: what was won is given back, and what was lost stays lost."""
        self.entries.append(("void", stage))

    def pool(self) -> None:
        """Give up all pairs; what comes next is bet on with all the capital, as one more. Stages must be closed."""
        self.entries.append(("pool", ()))

    def drop(self, pairs: tuple[int, ...]) -> None:
        """Give up pairs; their capital goes to the others in equal parts. Their stages must be closed."""
        self.entries.append(("drop", pairs))


@dataclass(slots=True, eq=False)
class _Bets:
    """The bets of an open stage, and what they had won when that was last asked: most pairs wait while one is asked.

    Attributes:
        stage: The stage.
        tables: Log factors, per view (points, accounts of the view, cells, 2).
    """

    stage: Stage
    tables: list[Floats]
    _runs: int = -1
    _won: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def gain(self) -> Floats:
        """Return what they have won so far, in logs, shape (points, accounts)."""
        runs = int(self.stage.views[0].counts.sum())
        if runs != self._runs:
            self._runs, self._won = runs, self._worth()
        return self._won

    def _worth(self) -> Floats:
        parts = [
            (table.reshape(-1, view.counts.size) @ view.counts.astype(np.float64).ravel()).reshape(len(table), -1)
            for table, view in zip(self.tables, self.stage.views, strict=True)
        ]
        missing = ACCOUNTS - sum(part.shape[1] for part in parts)
        return np.concatenate([*parts, np.zeros((parts[0].shape[0], missing))], axis=1)


class Points:
    """The capital bet against some points (ε, δ), following a book.

    Args:
        book: What happens.
        epsilons: Shape (points,).
        deltas: Shape (points,).
    """

    def __init__(self, book: Book, epsilons: Floats, deltas: Floats) -> None:
        self.book, self.epsilons, self.deltas = book, epsilons, deltas
        self._weights = book.log_weights
        start = -np.log(book.pairs) + self._weights
        self.capital = np.tile(start, (book.pairs, epsilons.size, 1))
        self.live = list(range(book.pairs))
        self._open: dict[int, _Bets] = {}
        self._read = 0

    def follow(self) -> None:
        """Bring the capital up to date with the book."""
        while self._read < len(self.book.entries):
            what, entry = self.book.entries[self._read]
            self._read += 1
            if isinstance(entry, Stage):
                self._begin(entry) if what == "open" else self._settle(entry, void=what == "void")
            elif what == "pool":
                self._pool()
            else:
                self._drop(entry)

    def log_wealth(self) -> Floats:
        """Return the log of the total capital against each point, shape (points,), open bets at their present worth."""
        self.follow()
        parts = [self.capital[p] + self.gain(p) for p in self.live]
        return log_sum(np.concatenate(parts, axis=1), axis=1)

    def gain(self, pair: int) -> Floats:
        """Return what the open stage of a pair has won so far, in logs, shape (points, accounts)."""
        if pair not in self._open:
            return np.zeros((self.epsilons.size, 1))
        return self._open[pair].gain()

    def tables(self, pair: int) -> list[Floats]:
        """Return the log factors of a pair's open stage, per view (points, accounts of the view, cells, 2)."""
        self.follow()
        return self._open[pair].tables

    def rest(self, pair: int) -> Floats:
        """Return the log capital against each point outside the given pair, shape (points,)."""
        others = [self.capital[p] + self.gain(p) for p in self.live if p != pair]
        if not others:
            return np.full(self.epsilons.size, -np.inf)
        return log_sum(np.concatenate(others, axis=1), axis=1)

    def _begin(self, stage: Stage) -> None:
        own = self.capital[stage.pair]
        total = log_sum(own, axis=1, keep=True)
        shared = _SHARED[stage.fresh]
        self.capital[stage.pair] = np.logaddexp(own + np.log1p(-shared), total + np.log(shared) + self._weights)
        tables = []
        for view, roles in zip(stage.views, _ROLES, strict=False):
            phi, size = stakes(view.before[view.order], self.epsilons, self.deltas, roles, stage.horizon)
            placed = np.empty_like(phi)
            placed[..., view.order] = phi
            found = log_factors(placed, size, self.epsilons, self.deltas)
            tables.append(found.reshape(self.epsilons.size, roles * BETS, *found.shape[-2:]))
        self._open[stage.pair] = _Bets(stage, tables)

    def _settle(self, stage: Stage, *, void: bool) -> None:
        gain = self._open.pop(stage.pair).gain()
        self.capital[stage.pair] += np.minimum(gain, 0.0) if void else gain

    def _pool(self) -> None:
        total = log_sum(self.capital[self.live], axis=(0, 2))
        self.live = [len(self.capital)]
        self.capital = np.concatenate([self.capital, (total[:, None] + self._weights)[None]])

    def _drop(self, pairs: tuple[int, ...]) -> None:
        self.live = [p for p in self.live if p not in pairs]
        lost = log_sum(self.capital[list(pairs)], axis=(0, 2)) - np.log(len(self.live))
        for p in self.live:
            self.capital[p] = np.logaddexp(self.capital[p], lost[:, None] + self._weights)


def log_sum(logs: Floats, axis: int | tuple[int, ...] | None = None, *, keep: bool = False) -> Floats:
    """Return the log of the sum of exponentials, without overflow."""
    top = np.max(logs, axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(logs - top).sum(axis, keepdims=True)) + top
    return np.asarray(total if keep else np.squeeze(total, axis))


class Frontier:
    """The smallest claim of a family that was never rejected, found by looking at a window of the family at a time.

    A claim that is looked at late is bet against in the same way as if it had been looked at from the beginning; only
    earlier peaks of its wealth go unnoticed, which can only lower the bound.
    """

    def __init__(self, book: Book, family: Family, threshold: float, *, window: int = 48) -> None:
        self._book, self._family, self._threshold = book, family, threshold
        self._window = window
        self._start = 0
        self._rejected = np.zeros(0, dtype=bool)
        self._points: Points | None = None
        self.rejected = 0

    @property
    def bound(self) -> float:
        """The largest value up to which every claim was rejected; 0 if none was."""
        return float(self._family.values[self.rejected - 1]) if self.rejected else 0.0

    @property
    def next(self) -> float:
        """The smallest value that was never rejected."""
        return float(self._family.values[min(self.rejected, self._family.values.size - 1)])

    def look(self) -> float:
        """Update with what the book now says and return the bound."""
        while self.rejected < self._family.values.size:
            if self._points is None:
                self._begin()
            assert self._points is not None
            wealth = self._points.log_wealth().reshape(self._rejected.size, -1)
            self._rejected |= log_sum(wealth, axis=1) - np.log(wealth.shape[1]) >= self._threshold
            run = self._rejected.size if self._rejected.all() else int(np.argmin(self._rejected))
            self.rejected = self._start + run
            if run < self._rejected.size:
                break
            self._points, self._window = None, min(2 * self._window, 256)
        return self.bound

    def _begin(self) -> None:
        self._start = self.rejected
        chosen = self._family.values[self._start : self._start + self._window]
        fronts = [self._family.front(float(value)) for value in chosen]
        self._points = Points(
            self._book, np.concatenate([f.epsilons for f in fronts]), np.concatenate([f.deltas for f in fronts])
        )
        self._rejected = np.zeros(len(fronts), dtype=bool)
