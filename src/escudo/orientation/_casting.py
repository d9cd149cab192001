"""Votes of blocks: every block runs the procedure on its own records, and none ever raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo.orientation._blocks import Blocks
from escudo.orientation._planning import SMALLEST

__all__ = ["EQUAL", "FEWEST_DISTINCT", "Preference", "cast", "one_by_one"]

Floats = NDArray[np.float64]
Preference = Callable[[Blocks], Floats]
"""Above 0 where a block prefers x->y, below 0 for y->x; one number per block, each a function of that block alone."""

FEWEST_DISTINCT = 8
"""A block votes 0 where a column has fewer different values: scores see the steps then, not the direction."""

_AT_ONCE = 2**15  # records: the arrays of one go stay within the processor's cache
EQUAL = 1e-10
"""Preferences closer to 0 than this come from rounding errors, and make no vote."""


def cast(prefer: Preference, records: Floats) -> NDArray[np.int64]:
    """Return the vote of every block: 1 for x->y, -1 for y->x, 0 where it cannot tell.

    A block votes 0 if fewer than half of ``SMALLEST`` of its records are complete, a column has fewer than
    ``FEWEST_DISTINCT`` different values, the procedure fails, or its preference is no number or within 1e-10 of 0.

    Args:
        prefer: The procedure.
        records: Shape (blocks, records, 2); NaN where a value is missing or a seat is empty.

    **Guarantee.** Vote j is a function of block j's records alone: blocks are computed side by side, but where one of
    them makes the procedure fail, all of that go are done again one by one.
    """
    complete: NDArray[np.bool_] = np.logical_not(np.isnan(records).any(axis=2))
    counts = complete.sum(axis=1)
    votes = np.zeros(len(records), dtype=np.int64)
    with tracking("Blocks voting", total=len(records)) as advance:
        for chosen, size in _groups(counts):
            kept = records[chosen][complete[chosen]].reshape(len(chosen), size, 2)
            votes[chosen] = _cast(prefer, np.ascontiguousarray(kept[:, :, 0]), np.ascontiguousarray(kept[:, :, 1]))
            advance(len(chosen))
    return votes


def one_by_one(function: Callable[[Floats, Floats], float]) -> Preference:
    """Return the preference of a user's own function, called once per block with copies of its x and y.

    The function must judge each block by its records alone: one that remembers earlier blocks would let a record move
    more than its own vote.
    """

    def judged(x: Floats, y: Floats) -> float:
        try:
            return float(function(x, y))
        except Exception:  # its block votes 0, and the others are not asked again
            return np.nan

    def prefer(blocks: Blocks) -> Floats:
        pairs = zip(blocks.x.values, blocks.y.values, strict=True)
        return np.array([judged(x.copy(), y.copy()) for x, y in pairs])

    return prefer


def _groups(counts: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield blocks with equally many complete records, not too many at once."""
    for size in np.unique(counts[2 * counts >= SMALLEST]).tolist():
        alike = np.flatnonzero(counts == size)
        step = max(1, _AT_ONCE // size)
        for start in range(0, len(alike), step):
            yield alike[start : start + step], size


def _cast(prefer: Preference, x: Floats, y: Floats) -> NDArray[np.int64]:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning may quote values
            blocks = Blocks(x, y)
            preference = np.asarray(prefer(blocks), dtype=np.float64).reshape(len(x))
            clear = np.isfinite(preference) & (np.abs(preference) >= EQUAL) & ~blocks.coarse(FEWEST_DISTINCT)
            return np.where(clear, np.sign(preference), 0.0).astype(np.int64)
    except Exception:  # whatever a procedure does, its block votes 0: an error would tell something about its records
        if len(x) == 1:
            return np.zeros(1, dtype=np.int64)
        return np.concatenate([_cast(prefer, x[[j]], y[[j]]) for j in range(len(x))])
