"""Confidence is calibrated: of the edges and directions reported at some confidence, about as many are true.

Simulated networks with fixed seeds, others than those the curve was fitted on. The decisions compare counts with what
the stated confidences allow, ``WIDTH`` standard deviations either way; edges of one network are not independent, which
``WIDTH`` is to cover.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from escudo.discovery._discrete import SearchResult, search
from escudo.discovery._measurement import Residuals, coefficients, squared_sensitivity
from escudo.discovery._pattern import Constraints

NETWORKS = 48
DIRECTED = 90
WIDTH = 4.0


def simulated(
    seed: int,
    parents: tuple[int, ...] = (0, 1, 2),
    many: tuple[int, ...] = (3_000, 10_000, 30_000),
    budgets: tuple[float, ...] = (0.07, 0.22, 0.6),
) -> tuple[Residuals, set[tuple[int, int]]]:
    """Noisy residuals of rows from a random network over 4 to 6 columns, and its edges."""
    rng = np.random.default_rng([77, seed])
    columns = int(rng.integers(4, 7))
    sizes = [int(size) for size in rng.choice([2, 3], size=columns)]
    rows = int(rng.choice(many))
    codes = np.zeros((rows, columns), dtype=np.int64)
    edges = set()
    for x in range(columns):
        causes = [int(a) for a in rng.choice(x, size=min(x, int(rng.choice(parents))), replace=False)]
        edges.update((a, x) for a in causes)
        shape = [sizes[a] for a in causes]
        place = np.ravel_multi_index([codes[:, a] for a in causes], shape) if causes else np.zeros(rows, dtype=np.int64)
        laws = rng.dirichlet(np.full(sizes[x], 1.0), size=math.prod(shape))
        mixed = rng.uniform(0.15, 1.0)
        steps = (mixed * laws + (1 - mixed) * rng.dirichlet(np.full(sizes[x], 2.0))).cumsum(axis=1)[:, :-1]
        codes[:, x] = (rng.random(rows)[:, None] > steps[place]).sum(axis=1)
    scopes = [scope for order in (1, 2, 3) for scope in itertools.combinations(range(columns), order)]
    limit = math.sqrt(squared_sensitivity(sizes, dict.fromkeys(scopes, 1.0), relation="replace_one"))
    scale = limit / float(rng.choice(budgets))  # by default about ε = 0.3, 1 and 3 at δ = 1e-6
    values, starts, place_of = [], {}, 0
    for scope in scopes:
        shape = [sizes[i] for i in scope]
        cells = np.ravel_multi_index([codes[:, i] for i in scope], shape)
        part = coefficients(np.bincount(cells, minlength=math.prod(shape)).reshape(shape)).ravel()
        starts[scope], place_of = place_of, place_of + part.size
        values.append(part + scale * rng.normal(size=part.size))
    residuals = Residuals(
        sizes=tuple(sizes),
        starts=starts,
        values=np.concatenate(values),
        scales=dict.fromkeys(scopes, scale),
        rows=float(rows),
    )
    return residuals, edges


def searched(residuals: Residuals, edges: set[tuple[int, int]]) -> tuple[SearchResult, set[tuple[str, str]]]:
    names = tuple(f"v{i}" for i in range(len(residuals.sizes)))
    known = Constraints(names=names, allowed=~np.eye(len(names), dtype=bool), required=frozenset(), joined=frozenset())
    return search(names, residuals, known, joint=False), {(names[a], names[x]) for a, x in edges}


@pytest.fixture(scope="module")
def directed() -> np.ndarray:
    """Confidence and truth of each direction of a true edge: up to three parents, few rows, hardly any noise."""
    rows = []
    for seed in range(1_000, 1_000 + DIRECTED):
        found, truth = searched(*simulated(seed, parents=(1, 2, 3), many=(500, 1_000, 3_000), budgets=(2.0, 6.0)))
        ways = found.direction_confidence.items()
        rows += [(sure, way in truth) for way, sure in ways if way in truth or way[::-1] in truth]
    return np.array(rows, dtype=float)


@pytest.fixture(scope="module", params=[0, 1], ids=["first half", "second half"])
def reported(request) -> np.ndarray:
    """Confidence and truth of every reported edge, one row each."""
    rows = []
    for seed in range(request.param * NETWORKS // 2, (request.param + 1) * NETWORKS // 2):
        found, truth = searched(*simulated(seed))
        rows += [(sure, pair in truth or pair[::-1] in truth) for pair, sure in found.edge_confidence.items()]
    return np.array(rows, dtype=float)


def surprise(confidence: np.ndarray, true: np.ndarray) -> float:
    """Return how many standard deviations the true edges are away from what their confidences say."""
    spread = math.sqrt(float((confidence * (1 - confidence)).sum()))
    return float(true.sum() - confidence.sum()) / max(spread, 1e-9)


def test_as_many_edges_are_true_as_their_confidences_add_up_to(reported):
    assert len(reported) > 50
    assert abs(surprise(reported[:, 0], reported[:, 1])) < WIDTH


def test_nine_in_ten_of_the_edges_reported_at_ninety_percent_are_true(reported):
    sure = reported[reported[:, 0] >= 0.9]
    assert len(sure) > 30
    assert sure[:, 1].mean() > 0.9
    assert abs(surprise(sure[:, 0], sure[:, 1])) < WIDTH


def test_directions_are_as_sure_as_chance_lets_them_be_also_without_noise(directed):
    assert len(directed) > 60
    # Noise alone drawn again gives 0.89 where 0.68 are right, and 0.92 where 0.66 are.
    assert directed[:, 0].mean() - directed[:, 1].mean() < 0.12
    sure = directed[directed[:, 0] >= 0.85]
    assert len(sure) > 20
    assert sure[:, 0].mean() - sure[:, 1].mean() < 0.12


def test_nothing_below_one_half_is_reported(reported):
    assert reported[:, 0].min() >= 0.5


def test_the_check_would_notice_confidence_that_is_too_high_or_too_low():
    rng = np.random.default_rng(0)
    claimed = np.full(120, 0.95)
    assert abs(surprise(claimed, rng.random(120) < 0.95)) < WIDTH
    assert abs(surprise(claimed, rng.random(120) < 0.8)) > WIDTH
    assert abs(surprise(np.full(120, 0.6), rng.random(120) < 0.95)) > WIDTH
