r"""How to bet: from earlier counts per cell to stakes on each cell, for each point (ε, δ) that is doubted.

A stake is a number φ in [-1, 1] per cell: positive to guess "second dataset", negative for "first", zero to sit out.
Guessing right has to be more likely than :math:`p_0 = e^ε / (1 + e^ε)` for a pure claim to be wrong. Five ways of
choosing cells compete, each with several sizes of bet:

* *aim*: for each guess the one set of cells that promises the best bound in the end, with bets so small that they tell
  most when all runs are made;
* *both*: sets of cells for each guess, at the ends of the cells' order, weighted by what they have won against this ε;
* *levels*: every cell by itself, the more the clearer it is;
* *plus*, *minus*: as *both*, for one guess only.

Everything here looks only at counts from *before* the runs that are bet on; what these bets are worth, and why they
keep the promised error rate, is in :mod:`escudo.auditing._wealth`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BETS", "log_factors", "promised", "sets_of", "stakes"]

Floats = NDArray[np.float64]

BETS = 4
_STEADY = np.array([0.12, 0.3])  # bets of fixed size, for differences that show after some hundred runs
_LATE = np.array([2.2, 3.2, 6.0, 10.0])  # bets for the end, as standard errors that may be seen then
_SIZES = np.array([0.7, 1.4])  # bets as multiples of the size that the estimate suggests
_NEAR = 0.02  # a difference in ε that is little
_MOST = 0.98  # of what can be lost at once: never all
_FRACTIONS = np.array([0.002, 0.006, 0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8])


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
    phi[:, 0], size[:, 0] = _aimed(members, first, second, counts, epsilons, deltas, horizon)
    up = _averaged(members, second, first, total, epsilons, deltas, caution)
    down = _averaged(members, first, second, total, epsilons, deltas, caution)
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


def cautious(right: Floats, wrong: Floats, caution: float) -> Floats:
    """Return the share of right guesses, lowered by its standard error."""
    share = (right + 0.5) / (right + wrong + 1)
    lowered: Floats = share - caution * np.sqrt(share * (1 - share) / (right + wrong + 1))
    return lowered


def promised(right: Floats, wrong: Floats, totals: tuple[float, float], delta: float, horizon: float) -> Floats:
    """Return for each set the bound on ε that it is likely to give in the end, shape (sets,).

    The log ratio less one standard error of what is known now and three of what will be known then.

    Args:
        right: Runs of the likelier dataset in each set.
        wrong: Runs of the other.
        totals: All runs of the likelier dataset and of the other.
        delta: The δ of the claim.
        horizon: How many runs there will be in the end.
    """
    rate = np.maximum((right + 0.5) / (totals[0] + 1) - delta, 1e-300)
    noise = np.sqrt(1 / (right + 0.5) + 1 / (wrong + 0.5))
    later = 3 * np.sqrt(min(1.0, (totals[0] + totals[1]) / max(horizon, 1.0)))
    return np.asarray(np.log(rate) - np.log((wrong + 0.5) / (totals[1] + 1)) - noise * (1 + later))


def _aimed(
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
    for delta in np.unique(deltas):
        same = deltas == delta
        for sign, right, wrong, totals in sides:
            best = int(promised(right, wrong, totals, float(delta), horizon).argmax())
            rate = (right[best] + 0.5) / (totals[0] + 1) - delta
            if rate <= 0:
                continue
            ratio = np.log(rate) - np.log((wrong[best] + 0.5) / (totals[1] + 1))
            # Up to a standard error above what was seen, if that is little: the truth may still be there.
            ratio += min(_NEAR, float(np.sqrt(1 / (right[best] + 0.5) + 1 / (wrong[best] + 0.5))))
            chosen = same & (epsilons < ratio)
            phi[chosen] = np.where(members[best] & (phi[chosen] == 0), sign, phi[chosen])
            hits[chosen] += (right[best] + wrong[best]) / total
    sizes = _LATE / np.sqrt(np.maximum(hits * horizon, 1.0))[:, None] * np.exp(epsilons / 2)[:, None]
    return phi, np.where(hits[:, None] > 0, np.minimum(sizes, _MOST), 0.0)


def _averaged(
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
    share = cautious(right, wrong, caution)[None, :]
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
    better = np.maximum(cautious(second + 0.5, first + 0.5, caution), cautious(first + 0.5, second + 0.5, caution))
    sign = np.where(second >= first, 1.0, -1.0)
    return np.asarray(sign * np.clip((better[None, :] / fair - 1) * np.exp(epsilons)[:, None], 0, _MOST))
