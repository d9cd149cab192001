"""Baselines of the discovery benchmark: Priv-PC with its sensitivity repaired, and the structure step of PrivBayes.

Both work on exact counts with numpy noise: they are measured, not released.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.causal import CausalGraph
from escudo.discovery._pattern import meek_orientation
from escudo.privacy import zcdp_to_epsilon

Codes = NDArray[np.int64]


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose (ε, δ) is within the budget."""
    low, high = 1e-9, 100.0
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if zcdp_to_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def counted(codes: Codes, sizes: Sequence[int], scope: Sequence[int]) -> NDArray[np.float64]:
    shape = [sizes[i] for i in scope]
    place = np.ravel_multi_index([codes[:, i] for i in scope], shape)
    return np.bincount(place, minlength=math.prod(shape)).reshape(shape).astype(np.float64)


def conditional_tau(table: NDArray[np.float64]) -> float:
    """Return Σ_z (n_z / n) τ_z for a table over x, y and blocks z: Kendall's tau within blocks, weighted by their rows.

    *Sensitivity.* Write n_z τ_z = 2 S / (n_z - 1), with S the concordant less the discordant pairs. A row that leaves a
    block takes at most n_z - 1 pairs along, so the numerator's part changes by at most 2, and the change of the
    denominator adds at most 1, as |S| is at most the number of pairs left. A row that comes does the same: replacing
    one changes the sum by at most 6 / n, whatever the blocks are; none is ever skipped.
    """
    n = table.sum()
    total = 0.0
    for block in table.reshape(table.shape[0], table.shape[1], -1).transpose(2, 0, 1):
        rows = block.sum()
        if rows < 2:
            continue
        below = np.zeros((block.shape[0] + 1, block.shape[1] + 1))
        below[1:, 1:] = block.cumsum(axis=0).cumsum(axis=1)
        flipped = np.zeros_like(below)
        flipped[1:, 1:] = block[:, ::-1].cumsum(axis=0).cumsum(axis=1)
        concordant = (block * below[:-1, :-1]).sum()
        discordant = (block[:, ::-1] * flipped[:-1, :-1]).sum()
        total += 2 * (concordant - discordant) / (rows - 1)
    return float(total / n)


def priv_pc(
    codes: Codes, names: Sequence[str], sizes: Sequence[int], *, epsilon: float, delta: float, seed: int
) -> Any:
    """PC whose independence tests are sieved and examined, with a cap on passes that is fixed in advance.

    The p-value of z = 1.5 √n · tau moves by at most 2 (Φ(9 / √n) - 1/2) between neighbours. Every pass of the sieve
    (sparse vector technique) and every examination (Laplace) costs the same ε′, as many of each as there are pairs of
    columns; together they cost ρ in zCDP.
    """
    rng = np.random.default_rng(seed)
    d, n = len(names), len(codes)
    passes = d * (d - 1) // 2
    each = math.sqrt(rho_of(epsilon, delta) / passes)  # passes · 2 · each² / 2 = ρ
    moved = 2 * (_normal(9 / math.sqrt(n)) - 0.5)
    level, threshold = 0.10, 0.10
    adjacent = {x: set(range(d)) - {x} for x in range(d)}
    separating: dict[frozenset[int], tuple[int, ...]] = {}
    bar = threshold + rng.laplace(scale=2 * moved / each)
    left = passes
    for order in (0, 1, 2):
        for x, y in itertools.permutations(range(d), 2):
            if y not in adjacent[x]:
                continue
            for given in itertools.combinations(sorted(adjacent[x] - {y}), order):
                if left == 0:
                    break
                z = 1.5 * math.sqrt(n) * conditional_tau(counted(codes, sizes, (x, y, *given)))
                p = 2 * (1 - _normal(abs(z)))
                if p + rng.laplace(scale=4 * moved / each) <= bar:
                    continue
                left -= 1
                bar = threshold + rng.laplace(scale=2 * moved / each)
                if p + rng.laplace(scale=moved / each) > level:
                    adjacent[x].discard(y)
                    adjacent[y].discard(x)
                    separating[frozenset((x, y))] = given
                    break
    return _directed(names, adjacent, separating)


def _normal(value: float) -> float:
    return 0.5 * (1 + math.erf(value / math.sqrt(2)))


def _directed(
    names: Sequence[str], adjacent: dict[int, set[int]], separating: dict[frozenset[int], tuple[int, ...]]
) -> CausalGraph:
    arrows: set[tuple[int, int]] = set()
    for c in adjacent:
        for a, b in itertools.combinations(sorted(adjacent[c]), 2):
            if b not in adjacent[a] and c not in separating.get(frozenset((a, b)), ()):
                arrows |= {(a, c), (b, c)}
    arrows = {(a, b) for a, b in arrows if (b, a) not in arrows}
    lines = {frozenset((a, b)) for a in adjacent for b in adjacent[a]} - {frozenset(arrow) for arrow in arrows}
    arrows, lines = meek_orientation(arrows, lines)
    while (graph := _graph(names, arrows, lines)) is None:  # conflicting colliders made a cycle: open one arrow
        arrow = max(arrows)
        arrows.discard(arrow)
        lines.add(frozenset(arrow))
    return graph


def _graph(names: Sequence[str], arrows: set[tuple[int, int]], lines: set[frozenset[int]]) -> CausalGraph | None:
    from escudo.errors import GraphError

    try:
        return CausalGraph(
            nodes=tuple(names),
            edges=tuple((names[a], names[b]) for a, b in sorted(arrows)),
            undirected_edges=tuple((names[a], names[b]) for a, b in sorted(map(sorted, lines))),
        )
    except GraphError:
        return None


def privbayes_tree(
    codes: Codes, names: Sequence[str], sizes: Sequence[int], *, epsilon: float, delta: float, seed: int
) -> CausalGraph:
    """PrivBayes with one parent each: the exponential mechanism on R, half the l1 distance from independence.

    n R moves by at most 3 + 2/n between neighbours (Zhang et al. 2017, Lemma 4.1); d - 1 picks cost ε′²/8 each.
    """
    rng = np.random.default_rng(seed)
    d, n = len(names), len(codes)
    each = math.sqrt(8 * rho_of(epsilon, delta) / (d - 1))
    score = np.zeros((d, d))
    for x, y in itertools.combinations(range(d), 2):
        table = counted(codes, sizes, (x, y))
        gap = np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0)) / n).sum() / 2
        score[x, y] = score[y, x] = gap
    chosen, edges = [int(rng.integers(d))], []
    while len(chosen) < d:
        pairs = [(a, x) for a in chosen for x in range(d) if x not in chosen]
        values = np.array([score[pair] for pair in pairs])
        noisy = values * each / (2 * (3 + 2 / n)) + rng.gumbel(size=len(pairs))
        cause, effect = pairs[int(noisy.argmax())]
        chosen.append(effect)
        edges.append((names[cause], names[effect]))
    return CausalGraph.from_edges(edges, nodes=names).cpdag()


BASELINES: dict[str, Callable[..., CausalGraph]] = {"Priv-PC, repaired": priv_pc, "PrivBayes tree": privbayes_tree}
