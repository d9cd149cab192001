"""Measuring: exact counts to residuals, noise, and the event that pays for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from escudo._progress import tracking
from escudo.discovery._levels import Levels
from escudo.discovery._residuals import ROWS_SHARE, Floats, Residuals, Scope, coefficients, squared_sensitivity
from escudo.mechanisms import Seed, gaussian, gaussian_event, publishable
from escudo.privacy import Account, GaussianEvent, Relation
from escudo.table import PrivateTable, Schema

__all__ = ["MOST_NUMBERS", "Terms", "measure", "release_event"]

MOST_NUMBERS = 2**20
"""The most numbers in one release; they cost about 10 µs each."""

# Releases are stated in units of their sensitivity, on this grid: so coarse that the rounding of sums over 10⁸ rows
# stays below half a step, so fine that a million rounded numbers cost less than one part in 2,000.
_GRID = 2.0**-22
_CELLS_AT_ONCE = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who is protected, in what sense: what turns residuals into a sensitivity."""

    relation: Relation
    schema: Schema
    rows_public: bool

    def sensitivity(self, sizes: Sequence[int], scopes: Sequence[Scope], *, count_rows: bool) -> tuple[float, float]:
        """Return the l2 sensitivity of these residuals, each of weight 1, and the weight of the number of rows."""
        weights = dict.fromkeys(scopes, 1.0)
        rows = ROWS_SHARE * squared_sensitivity(sizes, weights, relation="add_remove") if count_rows else 0.0
        squared = squared_sensitivity(sizes, weights, relation=self.relation, rows_weight=rows)
        return (self.schema.max_rows_per_person or 1) * math.sqrt(squared) * (1 + 1e-12), rows


def release_event(scale: float, terms: Terms, *, numbers: int) -> GaussianEvent:
    """Return the event of one release of at most so many numbers, in units of their sensitivity.

    The l2 sensitivity is 1 and what rounding adds: two grid steps for each number (``escudo.mechanisms._grid``).
    """
    return gaussian_event(
        numbers,
        l2_sensitivity=1.0,
        scale=scale,
        grid=_GRID,
        relation=terms.relation,
        unit=terms.schema.unit,
        max_rows_per_person=terms.schema.max_rows_per_person,
    )


def measure(
    table: PrivateTable,
    levels: Levels,
    scopes: Sequence[Scope],
    event: GaussianEvent,
    terms: Terms,
    *,
    rows: float | None,
    account: Account,
    seed: Seed,
) -> Residuals:
    r"""Release the residuals of some scopes in one go.

    Args:
        table: The private table.
        levels: Its columns, merged where they are wide.
        scopes: Sets of columns, each sorted.
        event: What was planned for it; at most ``MOST_NUMBERS`` numbers.
        terms: Who is protected.
        rows: The number of rows, if it was measured before; None to count it here: exactly where it is public.
        account: Charged with ``event`` before noise is drawn.
        seed: Repeatable noise; not for release.

    **Guarantee.** Gaussian noise of ``event.scale`` times the l2 sensitivity Δ of the residuals (``_residuals``): with
    the vector in units of Δ the l2 sensitivity is 1, so the release is ρ-zCDP with ρ as the event says. Which scopes
    and levels are measured must not depend on the table except through what was released before.
    """
    counting = rows is None and not terms.rows_public
    limit, rows_weight = terms.sensitivity(levels.sizes, scopes, count_rows=counting)
    parts: dict[Scope, Floats] = {}
    wanted = set(scopes)
    total = 0
    for scope, counts in _counted(table, levels, scopes):
        total = int(counts.sum())
        for inner in _inside(scope, wanted, parts):
            axes = tuple(axis for axis, column in enumerate(scope) if column not in inner)
            parts[inner] = coefficients(counts.sum(axis=axes).astype(np.float64)).ravel()
    vector = np.concatenate(
        [parts[scope] for scope in scopes] + ([[math.sqrt(rows_weight) * total]] if counting else [])
    )
    assert event.l2_sensitivity >= 1 + 2 * _GRID * math.sqrt(vector.size), "more numbers than were planned"
    account.spend(event, purpose="residual tables", for_release=publishable(seed))
    noisy = gaussian(
        vector / limit,
        l2_sensitivity=1.0,
        scale=event.scale,
        grid=_GRID,
        relation=event.relation,
        unit=event.unit,
        max_rows_per_person=event.max_rows_per_person,
        seed=seed,
    )
    values = np.asarray(noisy.value, dtype=np.float64) * limit
    if counting:
        rows = max(float(values[-1]) / math.sqrt(rows_weight), 1.0)
        values = values[:-1]
    ends = itertools.accumulate((parts[scope].size for scope in scopes), initial=0)
    return Residuals(
        sizes=levels.sizes,
        starts=dict(zip(scopes, ends, strict=False)),
        values=values,
        scales=dict.fromkeys(scopes, event.scale * limit),
        rows=max(float(total), 1.0) if rows is None else rows,
    )


def _counted(
    table: PrivateTable, levels: Levels, scopes: Sequence[Scope]
) -> Iterator[tuple[Scope, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]]:
    """Yield tables that hold all scopes, the largest first, a few at a time."""
    held: set[Scope] = set()
    largest: list[Scope] = []
    for scope in sorted(scopes, key=len, reverse=True):
        if scope not in held:
            largest.append(scope)
            for order in range(1, len(scope) + 1):
                held.update(itertools.combinations(scope, order))
    with tracking("Counting", total=len(largest)) as advance:
        for few in _portions(levels, largest):
            wanted = [[levels.names[i] for i in scope] for scope in few]
            for scope, counts in zip(few, table.counts(wanted), strict=True):
                yield scope, levels.merged(counts, scope)
            advance(len(few))


def _portions(levels: Levels, scopes: Sequence[Scope]) -> Iterator[list[Scope]]:
    few: list[Scope] = []
    cells = 0
    for scope in scopes:
        if few and cells + levels.raw_cells(scope) > _CELLS_AT_ONCE:
            yield few
            few, cells = [], 0
        few.append(scope)
        cells += levels.raw_cells(scope)
    if few:
        yield few


def _inside(scope: Scope, wanted: Set[Scope], done: Mapping[Scope, object]) -> list[Scope]:
    """Return the wanted scopes within this one that are still to do."""
    subsets = (inner for order in range(1, len(scope) + 1) for inner in itertools.combinations(scope, order))
    return [inner for inner in subsets if inner in wanted and inner not in done]
