"""Two stages: which three-way tables are worth measuring, once all pairs are known."""

from __future__ import annotations

import itertools
import math

import numpy as np

from escudo.discovery._evidence import Evidence
from escudo.discovery._levels import Levels
from escudo.discovery._measurement import MOST_NUMBERS
from escudo.discovery._residuals import Scope

__all__ = ["MOST_RAW_CELLS", "TRIPLES_PER_COLUMN", "countable", "worth_measuring"]

TRIPLES_PER_COLUMN = 20
MOST_RAW_CELLS = 2**22
"""A scope whose table, before merging, has more cells than this is not measured."""

_NEIGHBOURS = 8


def countable(levels: Levels, scopes: list[Scope]) -> list[Scope]:
    """Return the scopes whose tables are small enough to count."""
    return [scope for scope in scopes if levels.raw_cells(scope) <= MOST_RAW_CELLS]


def worth_measuring(evidence: Evidence, levels: Levels) -> list[Scope]:
    """Return the triples {x, a, b} in which a and b are among the columns that x depends on most.

    A column's parents, and the column that separates it from another, are among its strongest neighbours unless they
    cancel out. The triples are ranked by the weaker of the two pairs, and at most ``TRIPLES_PER_COLUMN`` for each
    column are kept, and no more than can be released at once.
    """
    pair = evidence.pair
    d = len(pair)
    strength: dict[Scope, float] = {}
    for x in range(d):
        near = [int(a) for a in np.argsort(-pair[x], kind="stable") if a != x and pair[x, a] > 0]
        for a, b in itertools.combinations(near[:_NEIGHBOURS], 2):
            first, second, third = sorted((x, a, b))
            scope = (first, second, third)
            strength[scope] = max(strength.get(scope, 0.0), float(min(pair[x, a], pair[x, b])))
    ranked = sorted(countable(levels, list(strength)), key=lambda scope: (-strength[scope], scope))
    numbers = itertools.accumulate(math.prod(levels.sizes[i] - 1 for i in scope) for scope in ranked)
    within = [scope for scope, total in zip(ranked, numbers, strict=True) if total <= MOST_NUMBERS]
    return within[: TRIPLES_PER_COLUMN * d]
