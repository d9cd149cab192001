r"""What to believe of cells in view of the runs in them: a log ratio for each, and how sure it is.

Runs of a cell say :math:`\log(n_1/n_0)`, with an error that is large where runs are few; of many rare sets the luckiest
would be chosen. So each kind of cell has a prior, and what is believed is the posterior, with its covariance:

* *Numbers*: along the cells the log ratio is constant but for some steps. Of all ways to place the steps each counts as
  much as the runs make it likely; these sums are exact. Noise that leaves a tail of constant ratio, as Laplace's does,
  is so known far out from what is seen nearer by; and from the other tail, if the two are opposite. Where single cells
  stand out more, each is taken by itself.
* *Corners*: the further out, the larger the log ratio, but for some bends; or as for numbers.
* *Scores* claim a log ratio for every cell. What is believed is a bent line of the claim, near the claim itself unless
  runs say otherwise, so that far out, where an event is rare and its ratio large, a score that is right nearer by is
  believed; or some steps along the claims. The runs must be such that the score was not fitted on.
* *Other outputs*: each cell by itself; how large log ratios usually are, is learnt from all cells.

Between them decides the evidence: how likely each makes the runs. Counts are runs per cell and dataset, of shape
(cells, 2).

Bets are on what may be so, not on what is sure: along a number they follow counts that are only smoothed.

References:
    D. Barry, J. Hartigan (1992), "Product partition models for change point problems"; C. Rasmussen, C. Williams
    (2006), "Gaussian processes for machine learning", chapter 3, for Laplace's method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

Floats = NDArray[np.float64]

# Stretches of cells with the same log ratio are of several kinds: Beta priors for their share of the second dataset, by
# the standard deviation of the log ratio that each expects.
_SPREADS = np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
_SEEN = 2.0  # standard errors of all runs together that a kind must expect to be one
_RESERVED = 0.3  # single cells of each kind that are expected beforehand
_ROUNDS = 20  # in which the shares of the kinds are found
_STEPS = (2.0, 8.0, 32.0)  # how many steps may be expected along the cells
_SAMPLES = 256  # of ways to place them
_SLOPE = 40  # cells along which log ratios may lead from one end to the other
_DOUBT = 3.0  # by how much the log evidence must favour an order of cells
_TRENDS = (0.02, 0.06, 0.2, 0.6)  # how large the slope of a trend may be per unit of log odds, and how far it bends
_KINKS = 6  # places at which a trend may bend
_WRONG = 0.7  # how wrong a score may be, and how wrong its slope beyond each bend, as a standard deviation
_BENDS = (0.5, 1.0, 1.5, 2.0, 3.0)  # as multiples of its usual size
_NEWTON = 12
_JUMPS = (0.002, 0.01, 0.04, 0.15, 0.6, 2.5)  # how large a jump between cells may be, as a standard deviation


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """The log ratio of each cell, second dataset over first.

    Attributes:
        runs: Runs per cell, shape (cells,).
        level: The mean of what is believed, shape (cells,).
        spread: Its covariance, shape (cells, cells).
        evidence: The log of how likely the runs are under the prior.
    """

    runs: Floats
    level: Floats
    spread: Floats
    evidence: float

    @property
    def counts(self) -> Floats:
        """Runs per cell and dataset, shape (cells, 2), as they would be if what is believed were so."""
        second = self.runs / (1 + np.exp(-self.level))
        return np.stack([self.runs - second, second], axis=1)


def along_cells(counts: Floats) -> Belief:
    """Return what to believe of cells in order: log ratios opposite at both ends, with some steps, or all their own."""
    single, stretches = cell_by_cell(counts), _Stretches(counts)
    best = max([_opposite(counts), *(_stepwise(stretches, expected) for expected in _STEPS)], key=_evidence)
    return best.belief() if best.evidence > single.evidence + _DOUBT else single


def towards_corner(counts: Floats) -> Belief:
    """Return what to believe of cells that lead out into a corner: a trend, or as in :func:`along_cells`."""
    return max(with_trend(counts), along_cells(counts), key=_evidence)


def with_trend(counts: Floats) -> Belief:
    """Return what to believe if log ratios change steadily with the log odds of a cell's rank, but for some bends.

    So they do where several noisy numbers are far out at once: each says a little more the further out it is.

    Args:
        counts: Runs per cell and dataset, shape (cells, 2), cells in order; the last may be of its own kind.
    """
    runs = counts.sum(axis=1)
    below = np.cumsum(runs) - runs / 2 + 0.5
    rank = np.log(below / (runs.sum() + 1 - below))
    kinks = np.linspace(rank[0], rank[-1], _KINKS + 2)[1:-1]
    last = (np.arange(runs.size) == runs.size - 1).astype(np.float64)
    shape = np.stack(
        [np.full(runs.size, 2.0), rank, *(np.maximum(rank - kink, 0) for kink in kinks), 10 * last], axis=1
    )
    found = []
    for size in _TRENDS:
        fit = _fit(counts, np.zeros(runs.size), size * shape)
        level, spread = size * shape @ fit.weights, size**2 * shape @ fit.spread @ shape.T
        found.append(Belief(runs, level, spread, fit.evidence))
    return max(found, key=_evidence)


def about_claims(levels: Floats, counts: Floats) -> Belief:
    """Return what to believe of cells of which a score claims something.

    Args:
        levels: The log ratio that the score claims for each cell.
        counts: Runs per cell and dataset that the score was not fitted on, shape (cells, 2).
    """
    runs = counts.sum(axis=1)
    total = float(runs.sum())
    claim = np.clip(levels, -25.0, 25.0)
    size = float(np.sqrt((claim**2 * runs).sum() / total)) if total else 0.0
    if not size:
        return cell_by_cell(counts)
    up = [np.maximum(claim - bend * size, 0) for bend in _BENDS]
    down = [np.minimum(claim + bend * size, 0) for bend in _BENDS]
    basis = _WRONG * np.stack([claim, *up, *down], axis=1)
    fit = _fit(counts, claim, basis)
    found = Belief(runs, claim + basis @ fit.weights, basis @ fit.spread @ basis.T, fit.evidence)
    order = np.argsort(claim, kind="stable")
    free, back = along_cells(counts[order]), np.argsort(order)
    other = Belief(runs, free.level[back], free.spread[np.ix_(back, back)], free.evidence)
    return max(found, other, key=_evidence)


def cell_by_cell(counts: Floats) -> Belief:
    """Return what to believe of each cell by itself, in view of how much cells differ on the whole."""
    kinds = _kinds(counts)
    likely = _likely(counts, kinds)
    shares = np.full(kinds.size, 1 / kinds.size)
    for _ in range(_ROUNDS):
        each = np.exp(likely - likely.max(axis=1, keepdims=True)) * shares
        each /= each.sum(axis=1, keepdims=True)
        shares = (each.sum(axis=0) + _RESERVED) / (len(counts) + _RESERVED * kinds.size)
    levels, noise = _levels(counts, kinds)
    level = (each * levels).sum(axis=1)
    spread = (each * (noise + (levels - level[:, None]) ** 2)).sum(axis=1)
    evidence = float(np.logaddexp.reduce(likely + np.log(shares), axis=1).sum())
    return Belief(counts.sum(axis=1), level, np.diag(spread), evidence)


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """A way to see the cells: how likely it makes the runs, and what to believe then, drawn only if it is chosen."""

    evidence: float
    belief: Callable[[], Belief]


def _evidence(found: Belief | _Way) -> float:
    return found.evidence


def _kinds(counts: Floats) -> Floats:
    """Return the kinds of stretches that can be told from nothing by so many runs, as parameters of Beta priors."""
    least = min(_SEEN / np.sqrt(max(counts.sum(), 1.0)), _SPREADS[-1])
    return np.asarray(2 / _SPREADS[least <= _SPREADS] ** 2)


def _likely(counts: Floats, kinds: Floats) -> Floats:
    """Return how likely runs are, in logs, if they come from a stretch of each kind, shape (..., kinds)."""
    first, second = counts[..., 0, None], counts[..., 1, None]
    return np.asarray(betaln(kinds + second, kinds + first) - betaln(kinds, kinds))


def _levels(counts: Floats, kinds: Floats) -> tuple[Floats, Floats]:
    """Return the level to expect after runs, and its variance, for a stretch of each kind, shape (..., kinds)."""
    first, second = kinds + counts[..., 0, None], kinds + counts[..., 1, None]
    return np.log(second / first), 1 / first + 1 / second


class _Stretches:
    """All stretches of cells: where each starts and ends, the runs in it, and how likely each kind makes them."""

    def __init__(self, counts: Floats) -> None:
        below = np.concatenate([np.zeros((1, 2)), np.cumsum(counts, axis=0)])
        self.counts, self.kinds = counts, _kinds(counts)
        self.start, self.end = np.triu_indices(len(counts) + 1, 1)
        self.inside = below[self.end] - below[self.start]
        self.likely = _likely(self.inside, self.kinds) - np.log(self.kinds.size)
        self.either = np.logaddexp.reduce(self.likely, axis=1)


def _stepwise(stretches: _Stretches, expected: float) -> _Way:
    """Return what to believe if there are some steps, so many of them expected.

    The mean and covariance are those of samples from the posterior over all ways to place the steps.
    """
    counts, kinds, start, end = stretches.counts, stretches.kinds, stretches.start, stretches.end
    cells = len(counts)
    chance = min(expected / cells, 0.5)
    worth = np.full((cells + 1, cells + 1), -np.inf)
    worth[start, end] = stretches.either + (end - start - 1) * np.log1p(-chance) + np.log(chance)
    ways = np.full(cells + 1, -np.inf)  # of what comes before each place, added up
    ways[0] = -np.log(chance)
    for j in range(1, cells + 1):
        ways[j] = np.logaddexp.reduce(ways[:j] + worth[:j, j])

    def belief() -> Belief:
        row = np.zeros((cells + 1, cells + 1), dtype=np.intp)
        row[start, end] = np.arange(start.size)
        rng, places = np.random.default_rng(5), np.arange(cells)
        left, levels = np.full(_SAMPLES, cells), np.zeros((_SAMPLES, cells))
        while (going := np.flatnonzero(left)).size:  # each sample is drawn from the last stretch to the first
            last = left[going]
            begin = _draw_places(np.exp(ways + worth[:, last].T - ways[last, None]), rng)
            at = row[begin, last]
            level = _draw_levels(stretches.inside[at], stretches.likely[at], kinds, rng)
            levels[going] += ((places >= begin[:, None]) & (places < last[:, None])) * level
            left[going] = begin
        spread = np.atleast_2d(np.cov(levels.T))
        return Belief(counts.sum(axis=1), levels.mean(axis=0), spread, float(ways[-1]))

    return _Way(float(ways[-1]), belief)


def _opposite(counts: Floats) -> _Way:
    """Return what to believe if the log ratio is -c up to some cell, c from another on, and in between steady.

    So it is for symmetric noise such as Laplace's: what one end says is then known from the other as well. In between
    it is constant, or leads from -c to c.
    """
    cells, kinds = len(counts), _kinds(counts)
    below = np.concatenate([np.zeros((1, 2)), np.cumsum(counts, axis=0)])
    start, end = np.triu_indices(cells + 1)
    ends = below[start, ::-1] + (below[-1] - below[end])  # runs at both ends that speak against c, and for it
    likely = _likely(ends, kinds) - np.log(kinds.size)
    outside = np.logaddexp.reduce(likely, axis=1)
    middle = below[end] - below[start]
    constant = _likely(middle, kinds) - np.log(kinds.size)
    sloped = _slope_likelihoods(counts, np.log((ends[:, 1] + 0.5) / (ends[:, 0] + 0.5)), start, end)
    worth = np.stack([np.logaddexp.reduce(constant, axis=1), sloped]) + outside - np.log(2 * start.size)
    evidence = float(np.logaddexp.reduce(worth.ravel()))

    def belief() -> Belief:
        chances = np.exp(worth - worth.max()).ravel()
        rng, places = np.random.default_rng(7), np.arange(cells)
        slope, at = np.divmod(rng.choice(worth.size, size=_SAMPLES, p=chances / chances.sum()), start.size)
        size, inside = (
            _draw_levels(part[at], known[at], kinds, rng) for part, known in ((ends, likely), (middle, constant))
        )
        first, last = start[at, None], end[at, None]
        way = np.clip((2 * places + 1 - 2 * first) / np.maximum(last - first, 1) - 1, -1, 1)  # from -1 to 1 in between
        way = np.where(places < first, -1.0, np.where(places >= last, 1.0, way))
        levels = np.where((slope == 0)[:, None] & (np.abs(way) < 1), inside, size * way)
        return Belief(counts.sum(axis=1), levels.mean(axis=0), np.atleast_2d(np.cov(levels.T)), evidence)

    return _Way(evidence, belief)


def _slope_likelihoods(counts: Floats, size: Floats, start: NDArray[np.intp], end: NDArray[np.intp]) -> Floats:
    """Return how likely runs between each start and end are, in logs, if log ratios lead there from -size to size."""
    found = np.full(start.size, -np.inf)
    for gap in range(1, min(_SLOPE, len(counts)) + 1):
        chosen = np.flatnonzero(end - start == gap)
        levels = size[chosen, None] * ((2 * np.arange(gap) + 1) / gap - 1)
        runs = np.lib.stride_tricks.sliding_window_view(counts, gap, axis=0)  # (starts, datasets, gap)
        found[chosen] = -(runs[:, 1] * np.logaddexp(0, -levels) + runs[:, 0] * np.logaddexp(0, levels)).sum(axis=1)
    return found


def _draw_levels(runs: Floats, likely: Floats, kinds: Floats, rng: np.random.Generator) -> Floats:
    """Return one level per row, drawn from what is to be believed of it after runs; shape (rows, 1)."""
    kind = _draw_places(np.exp(likely - likely.max(axis=1, keepdims=True)), rng)
    level, noise = (part[np.arange(kind.size), kind] for part in _levels(runs, kinds))
    return np.asarray(level + np.sqrt(noise) * rng.normal(size=kind.size))[:, None]


def _draw_places(chances: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return one place per row, drawn with chances in these proportions."""
    below = chances.cumsum(axis=1)
    return np.asarray((below < (rng.random(len(below)) * below[:, -1])[:, None]).sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """Weights with standard normal priors: the mode and the covariance of their posterior, and the log evidence."""

    weights: Floats
    spread: Floats
    evidence: float


def _fit(counts: Floats, expected: Floats, design: Floats) -> _Fit:
    """Return Laplace's approximation for logits ``expected + design @ weights``."""
    runs, second = counts.sum(axis=1), counts[:, 1]
    weights, one = np.zeros(design.shape[1]), np.eye(design.shape[1])
    for step in range(_NEWTON + 1):
        level = np.clip(expected + design @ weights, -25, 25)
        share = 1 / (1 + np.exp(-level))
        curvature = one + (design * (runs * share * (1 - share))[:, None]).T @ design
        if step == _NEWTON:
            break
        move = np.linalg.solve(curvature, design.T @ (second - runs * share) - weights)
        most = float(np.abs(design @ move).max())
        weights = weights + move * min(1.0, 2.0 / max(most, 1e-300))
        if most < 1e-3:
            break
    fit = -float(second @ np.logaddexp(0, -level) + (runs - second) @ np.logaddexp(0, level))
    evidence = fit - float(weights @ weights) / 2 - float(np.linalg.slogdet(curvature)[1]) / 2
    return _Fit(weights, np.linalg.inv(curvature), evidence)


def smooth(halves: tuple[Floats, Floats]) -> Floats:
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
    for _ in range(_NEWTON):
        share = 1 / (1 + np.exp(-level))
        pull = counts[:, 1] - runs * share - prior @ level
        move = np.linalg.solve(prior + np.diag(runs * share * (1 - share)), pull)
        level = np.clip(level + np.clip(move, -2, 2), -25, 25)
        if np.abs(move).max() < 0.05 * jump:
            break
    return level
