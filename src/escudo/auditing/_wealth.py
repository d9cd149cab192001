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
a supermartingale because it does under any such transfer. By Ville's inequality it *ever* reaches 1/α with probability
at most α: whenever it does, the claim is rejected at confidence 1 - α, all events, bets, directions and pairs together.
A front of several points (ε, δ) has a capital for each, and their average is a supermartingale too.

**Cells.** φ is constant on the cells of a partition that was fixed before, so the wealth of an account over a stage
depends only on how many runs of each dataset fell into each cell: this is why it is cheap, and why it can be
recomputed at any other ε afterwards from the same counts. "Chosen by the past" is kept by construction: a stage is
opened with counts of earlier runs (:func:`escudo.auditing._stakes.stakes` sees nothing else) and cannot be changed.

**A lower bound.** Let the true ε₀ be the smallest ε that holds, and g* the first of a fixed grid of values with
g* ≥ ε₀. The claim g* holds, so its capital ever reaches 1/α with probability at most α. The bound reported is the
last g such that *every* grid value up to g was rejected at some time; it exceeds ε₀ only if g* was rejected. Hence the
bound is right at all times at once with probability 1 - α, without any monotonicity of wealth in ε.

References:
    G. Shafer (2021), "Testing by betting"; I. Waudby-Smith, A. Ramdas (2024), "Estimating means of bounded random
    variables by betting"; J. Ville (1939). M. Herbster, M. Warmuth (1998), "Tracking the best expert", for sharing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._claims import Family
from escudo.auditing._stakes import BETS, log_factors, stakes

__all__ = ["ACCOUNTS", "Book", "Frontier", "Points", "Stage", "View", "log_sum"]

Floats = NDArray[np.float64]

_ROLES = (5, 3)  # ways of choosing cells for the best view of the output, and for the second best
_ROLE_WEIGHTS = np.array([0.28, 0.34, 0.14, 0.05, 0.05, 0.05, 0.05, 0.04])
_AIMED = np.array([0.8, 0, 0, 0, 0, 0.2, 0, 0])  # where capital goes if there are very many runs
_SIZE_WEIGHTS = np.array([[0.2, 0.3, 0.3, 0.2] if role in (0, 5) else [0.1, 0.4, 0.2, 0.3] for role in range(8)])
_LATE_WEIGHTS = np.array([0.5, 0.4, 0.08, 0.02])  # of the sizes of aimed bets, if there are very many runs
ACCOUNTS = _ROLE_WEIGHTS.size * BETS
_SHARED = {True: 0.03, False: 0.003}  # part of the capital that is spread anew when cells change, or only counts


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
    entries: list[tuple[Literal["open", "close", "drop"], Stage | tuple[int, ...]]] = field(default_factory=list)

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

    def drop(self, pairs: tuple[int, ...]) -> None:
        """Give up pairs; their capital goes to the others in equal parts. Their stages must be closed."""
        self.entries.append(("drop", pairs))


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
        self._open: dict[int, tuple[Stage, list[Floats]]] = {}
        self._read = 0

    def follow(self) -> None:
        """Bring the capital up to date with the book."""
        while self._read < len(self.book.entries):
            what, entry = self.book.entries[self._read]
            self._read += 1
            if isinstance(entry, Stage):
                self._begin(entry) if what == "open" else self._settle(entry)
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
        stage, tables = self._open[pair]
        return _gain(stage, tables)

    def tables(self, pair: int) -> list[Floats]:
        """Return the log factors of a pair's open stage, per view (points, accounts of the view, cells, 2)."""
        self.follow()
        return self._open[pair][1]

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
        self._open[stage.pair] = (stage, tables)

    def _settle(self, stage: Stage) -> None:
        self.capital[stage.pair] += _gain(*self._open.pop(stage.pair))

    def _drop(self, pairs: tuple[int, ...]) -> None:
        self.live = [p for p in self.live if p not in pairs]
        lost = log_sum(self.capital[list(pairs)], axis=(0, 2)) - np.log(len(self.live))
        for p in self.live:
            self.capital[p] = np.logaddexp(self.capital[p], lost[:, None] + self._weights)


def log_sum(logs: Floats, axis: int | tuple[int, ...] | None = None, *, keep: bool = False) -> Floats:
    """Return the log of the sum of exponentials, without overflow."""
    top = np.max(logs, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(logs - top).sum(axis=axis, keepdims=True)) + top
    return np.asarray(total if keep else np.squeeze(total, axis=axis))


def _gain(stage: Stage, tables: Sequence[Floats]) -> Floats:
    parts = [
        np.tensordot(table, view.counts.astype(np.float64), axes=([2, 3], [0, 1]))
        for table, view in zip(tables, stage.views, strict=True)
    ]
    missing = ACCOUNTS - sum(part.shape[1] for part in parts)
    return np.concatenate([*parts, np.zeros((parts[0].shape[0], missing))], axis=1)


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
