"""Block procedures: the definitions of the design note, antisymmetry, ties, and the trained combiner."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy import stats

from escudo.errors import InputError
from escudo.orientation import PROCEDURES
from escudo.orientation._blocks import Blocks
from escudo.orientation._procedures import (
    FEATURES,
    LEAST_ODDS,
    MEMBERS,
    combiner,
    difference,
    judge,
    log_odds,
    procedure_of,
)

Floats = NDArray[np.float64]


def pairs(blocks: int, n: int, seed: int, *, ties: bool = False) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = rng.gamma(2.0, size=(blocks, n))
    y = np.tanh(x) + 0.3 * rng.normal(size=(blocks, n))
    return (np.round(x, 1), np.round(y, 1)) if ties else (x, y)


# -- the definitions, written out once more for a single block


def standard(v: Floats) -> Floats:
    return (v - v.mean()) / v.std()


def stretched(v: Floats) -> Floats:
    return 2 * (v - v.min()) / (v.max() - v.min()) - 1


def ranked(v: Floats) -> Floats:
    return 2 * (stats.rankdata(v) - 0.5) / v.size - 1


def fit(t: Floats, target: Floats, degree: int, ridge: float, weights: Floats | None = None) -> Floats:
    basis = legendre.legvander(t, degree)
    w = np.ones(t.size) if weights is None else weights
    gram = basis.T @ (w[:, None] * basis) + ridge * t.size * w.mean() * np.eye(degree + 1)
    return basis @ np.linalg.solve(gram, basis.T @ (w * target))


def penalty(n: int) -> float:
    return 3e-3 if n < 300 else 3e-4


def spacings(v: Floats) -> float:
    n, ordered = v.size, np.sort(v)
    m = max(2, round(0.7 * np.sqrt(n)))
    return float(np.mean([np.log(max((ordered[i + m] - ordered[i]) * (n + 1) / m, 0.02)) for i in range(n - m)]))


def entropy(x: Floats, y: Floats) -> float:
    residual = standard(y) - fit(stretched(x), standard(y), 3, penalty(x.size))
    return spacings(standard(x)) + spacings(residual)


def regression(x: Floats, y: Floats) -> float:
    return float(np.mean((stretched(y) - fit(stretched(x), stretched(y), 3, penalty(x.size))) ** 2))


def ranks(x: Floats, y: Floats) -> float:
    return float(np.mean((ranked(y) - fit(ranked(x), ranked(y), 5, penalty(x.size))) ** 2))


def location_scale(x: Floats, y: Floats) -> float:
    ridge, t, z = penalty(x.size), stretched(x), standard(y)

    def size_of(residual: Floats) -> Floats:
        logs = np.log(residual**2 + 0.02 * np.mean(residual**2) + 1e-9)
        g = fit(t, logs, 3, 3 * ridge)
        s = np.exp(np.clip(g, g.mean() - 4, g.mean() + 4) / 2)
        return s * np.sqrt(np.mean((residual / s) ** 2))

    s = size_of(z - fit(t, z, 5, ridge))
    weights = np.minimum(20.0, s**-2 / np.mean(s**-2))
    return float(np.mean(np.log(size_of(z - fit(t, z, 5, ridge, weights)))))


def quantiles(x: Floats, y: Floats) -> float:
    n = x.size
    bins = int(np.clip(round(0.75 * n**0.45), 3, 24))
    size = n // bins
    start = (n - bins * size) // 2
    z = standard(y)[np.argsort(x, kind="stable")][start : start + bins * size].reshape(bins, size)
    losses = []
    for cell in z:
        for q in (0.1, 0.25, 0.5, 0.75, 0.9):
            error = cell - np.quantile(cell, q)
            losses.append(np.mean(np.maximum(q * error, (q - 1) * error)))
    return float(np.mean(losses))


REFERENCE = {
    "entropy": entropy,
    "regression": regression,
    "ranks": ranks,
    "location-scale": location_scale,
    "quantiles": quantiles,
}


@pytest.mark.parametrize("name", list(MEMBERS))
@pytest.mark.parametrize("n", [41, 100, 350])
@pytest.mark.parametrize("ties", [False, True], ids=["continuous", "rounded"])
def test_a_committee_score_is_what_the_design_note_says(name: str, n: int, ties: bool) -> None:
    x, y = pairs(3, n, seed=n, ties=ties)
    found = MEMBERS[name](Blocks(x, y).forward)
    assert found == pytest.approx([REFERENCE[name](a, b) for a, b in zip(x, y, strict=True)], rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("name", "members"), [("committee-3", 3), ("committee-5", 5)])
def test_a_committee_prefers_what_most_of_its_scores_prefer(name: str, members: int) -> None:
    x, y = pairs(40, 60, seed=3)
    blocks = Blocks(x, y)
    expected = sum(np.sign(difference(score, blocks)) for score in list(MEMBERS.values())[:members])
    assert PROCEDURES[name].prefer(Blocks(x, y)).tolist() == np.asarray(expected).tolist()


@pytest.mark.parametrize("name", list(PROCEDURES))
@pytest.mark.parametrize("ties", [False, True], ids=["continuous", "rounded"])
def test_swapping_the_columns_turns_the_sign_and_nothing_else(name: str, ties: bool) -> None:
    x, y = pairs(12, 80, seed=3, ties=ties)
    there, back = PROCEDURES[name].prefer(Blocks(x, y)), PROCEDURES[name].prefer(Blocks(y, x))
    assert there == pytest.approx(-back, abs=1e-12)
    assert np.abs(there).max() > 0


@pytest.mark.parametrize("name", list(PROCEDURES))
def test_a_block_computes_the_same_alone_and_in_company(name: str) -> None:
    x, y = pairs(7, 61, seed=9)  # an odd length, so that blocks start at odd places in memory
    x[2], y[5] = np.round(x[2]), 0.5  # ties in one block, a constant column in another
    with np.errstate(all="ignore"):
        together = PROCEDURES[name].prefer(Blocks(x, y))
        alone = [PROCEDURES[name].prefer(Blocks(x[[j]], y[[j]]))[0] for j in range(7)]
    assert np.array_equal(together, alone, equal_nan=True)


@pytest.mark.parametrize("name", list(FEATURES))
def test_units_do_not_matter_to_a_score(name: str) -> None:
    x, y = pairs(6, 120, seed=11)
    assert FEATURES[name](Blocks(3 * x - 7, 0.01 * y + 2).forward) == pytest.approx(
        FEATURES[name](Blocks(x, y).forward), rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize("name", ["committee", "committee-3", "trained", "entropy", "independence", "igci"])
def test_additive_noise_on_a_uniform_cause_is_recognised(name: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (30, 300))
    y = np.tanh(3 * x) + 0.2 * rng.uniform(-1, 1, (30, 300))
    assert np.mean(PROCEDURES[name].prefer(Blocks(x, y)) > 0) > 0.9


def test_noise_whose_size_depends_on_the_cause_is_recognised_by_the_location_scale_score() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(30, 400))
    y = x + np.exp(0.8 * x) * 0.5 * rng.normal(size=(30, 400))
    assert np.mean(PROCEDURES["location-scale"].prefer(Blocks(x, y)) > 0) > 0.9


def test_independence_of_ranks_is_near_zero_for_independent_columns_and_large_for_dependent_ones() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20, 500))
    score = FEATURES["residual dependence"]
    independent = score(Blocks(x, rng.normal(size=(20, 500))).forward)
    dependent = score(Blocks(x, rng.normal(size=(20, 500)) * (0.1 + np.abs(x))).forward)
    assert dependent.min() > independent.max()


def test_swapping_the_columns_turns_differences_and_leaves_conditions() -> None:
    x, y = pairs(6, 70, seed=8)
    there, back = judge(Blocks(x, y)), judge(Blocks(y, x))
    assert there.differences == pytest.approx(-back.differences, abs=1e-12)
    assert there.conditions == pytest.approx(back.conditions, rel=1e-9)


def test_the_default_follows_the_combiner_where_most_of_five_scores_agree_and_it_is_clear() -> None:
    x, y = pairs(200, 60, seed=4)
    blocks = Blocks(x, y)
    odds, five = log_odds(blocks), PROCEDURES["committee-5"].prefer(blocks)
    clear = (np.sign(five) == np.sign(odds)) & (np.abs(odds) >= LEAST_ODDS)
    assert 0 < clear.sum() < 200
    assert PROCEDURES["committee"].prefer(blocks).tolist() == np.where(clear, odds, 0.0).tolist()


def test_the_default_doubts_where_both_columns_have_a_common_cause() -> None:
    rng = np.random.default_rng(6)
    cause, first, second = rng.normal(size=(3, 300, 96))
    cause = np.abs(cause) ** 1.5 * np.sign(cause)
    blocks = Blocks(np.tanh(cause) + 0.4 * first, cause + 0.4 * second)
    assert (
        np.mean(PROCEDURES["committee"].prefer(blocks) != 0)
        < 0.5
        < np.mean(PROCEDURES["committee-5"].prefer(blocks) != 0)
    )


def test_the_combiner_walks_its_trees_as_written() -> None:
    model = combiner()
    x, y = pairs(5, 90, seed=21)
    judged = judge(Blocks(x, y))
    scaled = model.normalise(judged.differences, 90)

    def walked(row: Floats) -> float:
        total = 0.0
        for node in model.root:
            while model.left[node] != node:
                below = row[model.feature[node]] <= model.threshold[node]
                node = model.left[node] if below else model.right[node]
            total += model.value[node]
        return total

    rows = zip(scaled, judged.conditions, strict=True)
    expected = [(walked(np.append(row, kept)) - walked(np.append(-row, kept))) / 2 for row, kept in rows]
    assert log_odds(Blocks(x, y)) == pytest.approx(expected, abs=1e-12)


def test_the_shipped_combiner_is_made_of_whole_trees_over_known_scores() -> None:
    model = combiner()
    nodes = np.arange(model.value.size)
    assert model.features == tuple(FEATURES)
    assert model.typical.shape == (model.sizes.size, len(FEATURES))
    assert (model.typical > 0).all()
    leaves = model.left == nodes
    assert (leaves == (model.right == nodes)).all()
    told = judge(Blocks(*pairs(2, 60, seed=1)))
    assert ((model.feature >= 0) & (model.feature < len(FEATURES) + told.conditions.shape[1])).all()
    assert (model.left[~leaves] > nodes[~leaves]).all()  # downwards only, so every walk ends
    assert (model.right[~leaves] > nodes[~leaves]).all()
    ends = model.root
    for _ in range(model.depth):
        ends = np.where(leaves[ends], ends, np.maximum(model.left[ends], model.right[ends]))
    assert leaves[ends].all()


def test_an_unknown_procedure_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="Did you mean 'committee'"):
        procedure_of("comittee")
