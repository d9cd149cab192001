r"""What to believe of cells with few runs: counts per cell, drawn towards what else is known.

*Scores.* A learnt score claims a log ratio for every cell. Far out, where an event is rare and its ratio large, a set
of cells is best known by that claim; where there are many runs, by their counts. So the claim s is first corrected on
runs that it was not fitted on, :math:`\hat s = s (1 + a + b s^+ + c s^-)` with a, b, c near 0 unless
the runs say otherwise, and then enters as some earlier runs.

*Numbers.* Along the cells of a number, the log ratio is a sum of jumps with a normal prior; how large they may be is
decided by how well one half of the runs foretells the other.

*Other outputs.* Each cell has a log ratio of its own, mostly small, now and then large: its mean given the counts,
under a mixture of normal priors.

Without this the luckiest of many rare sets would be chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["calibrated", "cell_levels", "smoothed"]

Floats = NDArray[np.float64]

_PRIOR = np.array([0.5, 0.3, 0.3])  # how wrong a score may be: as a whole, and in its slope on either side
_RELATIVE = 0.18  # how wrong the corrected score may be far out, as a part of it
_STEPS = 6
_LEVELS = np.geomspace(0.002, 12.0, 60)
_JUMPS = (0.002, 0.01, 0.04, 0.15, 0.6, 2.5)  # how large a jump between cells may be, as a standard deviation


def calibrated(levels: Floats, counts: Floats) -> Floats:
    """Return counts with the same runs per cell, their shares drawn towards the corrected score's.

    Args:
        levels: The log ratio that the score claims for each cell.
        counts: Runs per cell and dataset that the score was not fitted on, shape (cells, 2).
    """
    runs = counts.sum(axis=1)
    total = float(runs.sum())
    size = float(np.sqrt((levels**2 * runs).sum() / total)) if total else 0.0
    if not size or not np.isfinite(size):
        return counts
    claim = np.clip(levels, -25.0, 25.0)
    unit = claim / size
    basis = claim[:, None] * np.stack([np.ones_like(unit), np.maximum(unit, 0), np.maximum(-unit, 0)], axis=1)
    precision = np.diag(1 / _PRIOR**2)
    weights = np.zeros(3)
    for _ in range(_STEPS):
        share = 1 / (1 + np.exp(-np.clip(claim + basis @ weights, -30, 30)))
        pull = basis.T @ (counts[:, 1] - runs * share) - precision @ weights
        curvature = (basis * (runs * share * (1 - share))[:, None]).T @ basis + precision
        weights = np.clip(weights + np.linalg.solve(curvature, pull), -1.0, 2.0)
    expected = np.clip(claim + basis @ weights, -25, 25)
    share = 1 / (1 + np.exp(-expected))
    worth = _worth(expected, total)
    second = runs * (counts[:, 1] + worth * share) / np.maximum(runs + worth, 1e-300)
    return np.stack([runs - second, second], axis=1)


def _worth(levels: Floats, most: float) -> Floats:
    """Return how many runs each cell's claim is worth, so that those of all cells beyond one are worth as many as its.

    A log ratio that may be wrong by a part r of itself is worth as many runs as would leave that standard error.
    """
    share = 1 / (1 + np.exp(-levels))
    alone = np.minimum(1 / np.maximum((_RELATIVE * levels) ** 2 * share * (1 - share), 1e-9), most)
    worth = np.zeros(levels.size)
    for side in (levels > 0, levels < 0):
        outwards = np.flatnonzero(side)[np.argsort(-np.abs(levels[side]), kind="stable")]
        worth[outwards] = np.diff(np.maximum.accumulate(alone[outwards]), prepend=0.0)
    return worth


def cell_levels(counts: Floats) -> Floats:
    """Return the log ratio to expect in each cell by itself, in view of how much cells differ on the whole.

    Args:
        counts: Runs per cell and dataset, shape (cells, 2).
    """
    first, second = counts[:, 0] + 0.5, counts[:, 1] + 0.5
    found, noise = np.log(second / first), 1 / first + 1 / second
    usual = float(np.sqrt(max(1e-8, np.average(found**2 - noise, weights=1 / noise))))
    grid = np.concatenate([-_LEVELS[::-1], [0.0], _LEVELS])
    mean = np.zeros((3, found.size))
    evidence = np.zeros((3, found.size))
    few = np.minimum(first, second) < 50
    likely = -counts[few, 1:2] * np.logaddexp(0, -grid) - counts[few, 0:1] * np.logaddexp(0, grid)
    likely -= likely.max(axis=1, keepdims=True, initial=-np.inf)
    widths = np.gradient(grid)
    for i, (scale, share) in enumerate(((usual, 0.8), (max(3 * usual, 0.1), 0.1), (2.0, 0.1))):
        spread = scale**2 + noise
        mean[i] = found * scale**2 / spread
        evidence[i] = share * np.exp(-(found**2) / (2 * spread)) / np.sqrt(spread) * np.sqrt(noise)
        joint = np.exp(likely - grid**2 / (2 * scale**2)) * widths / scale
        evidence[i, few] = share * joint.sum(axis=1)
        mean[i, few] = (joint @ grid) / np.maximum(joint.sum(axis=1), 1e-300)
    return np.asarray((mean * evidence).sum(axis=0) / np.maximum(evidence.sum(axis=0), 1e-300))


def smoothed(halves: tuple[Floats, Floats]) -> Floats:
    """Return counts with the same runs per cell, their shares smoothed along the order of the cells.

    Args:
        halves: Runs per cell and dataset, shape (cells, 2), of two halves of the runs; cells in order.
    """
    both = halves[0] + halves[1]
    runs = both.sum(axis=1)
    if len(runs) < 3 or not runs.sum():
        return both
    best, chosen = -np.inf, _JUMPS[-1]
    for jump in _JUMPS:
        if jump < 1 / np.sqrt(runs.sum()) and jump != _JUMPS[-1]:
            continue  # a jump so small could not be seen
        worth = 0.0
        for known, other in (halves, halves[::-1]):
            level = _walk(known, jump)
            worth -= float(other[:, 1] @ np.logaddexp(0, -level) + other[:, 0] @ np.logaddexp(0, level))
        if worth > best:
            best, chosen = worth, jump
    second = runs / (1 + np.exp(-_walk(both, chosen)))
    return np.stack([runs - second, second], axis=1)


def _walk(counts: Floats, jump: float) -> Floats:
    """Return the log ratio of each cell: the most likely path of a random walk through noisy counts."""
    runs = counts.sum(axis=1)
    cells = runs.size
    between = np.diff(np.eye(cells), axis=0)
    prior = between.T @ between / jump**2 + 1e-9 * np.eye(cells)
    level = np.zeros(cells)
    for _ in range(_STEPS):
        share = 1 / (1 + np.exp(-level))
        pull = counts[:, 1] - runs * share - prior @ level
        move = np.linalg.solve(prior + np.diag(runs * share * (1 - share)), pull)
        level = np.clip(level + np.clip(move, -2, 2), -25, 25)
        if np.abs(move).max() < 0.05 * jump:
            break
    return level
