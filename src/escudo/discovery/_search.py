"""Search: from evidence and knowledge to the parents of each column."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from escudo.discovery._constraints import Constraints
from escudo.discovery._evidence import Evidence, Weights
from escudo.discovery._exact import MOST_COLUMNS, best_graph
from escudo.discovery._local import good_graph
from escudo.discovery._residuals import Floats

__all__ = ["Parents", "found_graph"]

Parents = tuple[tuple[int, ...], ...]

_MUST = 1e12  # worth more than any evidence: what is known is there
_SEED = 9  # of the perturbations; they are public


def found_graph(
    weights: Weights,
    values: Floats,
    constraints: Constraints,
    *,
    strictness: float,
    rounds: int,
    explained: bool = True,
    forest: bool = False,
    start: Parents | None = None,
) -> Parents:
    """Return the parents of each column in the best graph found.

    Args:
        weights: What makes evidence out of residuals.
        values: The residuals.
        constraints: What is known.
        strictness: The weight of parameters.
        rounds: Perturbations of the local search, where there are too many columns for an exact one.
        explained: Whether to leave out edges that one other column explains.
        forest: Whether to go by pairs alone.
        start: Where the local search begins.
    """
    evidence = weights.of(values, strictness=strictness)
    if forest:
        evidence = evidence.of_pairs()
    allowed = constraints.allowed.copy()
    if explained:
        allowed &= ~evidence.explained()
    bonus = np.zeros(allowed.shape)
    for a, b in constraints.required:
        allowed[a, b] = True
        bonus[a, b] = _MUST
    for pair in constraints.joined:
        a, b = sorted(pair)
        allowed[a, b] |= constraints.allowed[a, b]
        allowed[b, a] |= constraints.allowed[b, a]
        bonus[a, b] = bonus[b, a] = _MUST
    fixed = _many_required(constraints)
    for x in fixed:
        allowed[:, x] = False
    if len(allowed) <= MOST_COLUMNS:
        return best_graph(_scores(evidence, allowed, bonus, fixed))
    rng = np.random.default_rng(_SEED)
    return good_graph(evidence, allowed, bonus, rounds=rounds, rng=rng, start=start, fixed=fixed)


def _many_required(constraints: Constraints) -> dict[int, tuple[int, ...]]:
    """Return the columns with more known parents than are scored: they get those and no others."""
    known: dict[int, list[int]] = {}
    for a, b in sorted(constraints.required):
        known.setdefault(b, []).append(a)
    return {x: tuple(several) for x, several in known.items() if len(several) > 2}


def _scores(evidence: Evidence, allowed: NDArray[np.bool_], bonus: Floats, fixed: dict[int, tuple[int, ...]]) -> Floats:
    """Return the score of each column with each set of parents, as bits."""
    d = len(allowed)
    scores = np.full((d, 1 << d), -math.inf)
    for x in range(d):
        if x in fixed:
            scores[x, _bits(fixed[x])] = 0.0
            continue
        may = [a for a in range(d) if allowed[a, x]]
        for count in range(min(len(may), 3) + 1):
            for parents in itertools.combinations(may, count):
                scores[x, _bits(parents)] = evidence.score(x, parents) + bonus[list(parents), x].sum()
    return scores


def _bits(columns: Sequence[int]) -> int:
    return sum(1 << a for a in columns)
