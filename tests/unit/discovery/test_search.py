"""Evidence, exact and local search, patterns and knowledge, on tables without noise and with it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from escudo.causal import CausalGraph, Network
from escudo.discovery._evidence import UNKNOWN, Evidence, Weights, best_explanation, chance
from escudo.discovery._measurement import Residuals, coefficients
from escudo.discovery._pattern import Constraints, constraints_of, dag, meek_orientation, pattern
from escudo.discovery._search import _Climb, _scores, best_graph, find_graph, good_graph
from escudo.errors import GraphError
from escudo.table import Schema


def residuals_of(codes: np.ndarray, sizes: list[int], *, orders: tuple[int, ...] = (1, 2, 3), noise: float = 0.0):
    rng = np.random.default_rng(1)
    starts, values, place = {}, [], 0
    for order in orders:
        for scope in itertools.combinations(range(len(sizes)), order):
            index = np.ravel_multi_index([codes[:, i] for i in scope], [sizes[i] for i in scope])
            shape = [sizes[i] for i in scope]
            part = coefficients(np.bincount(index, minlength=math.prod(shape)).reshape(shape)).ravel()
            starts[scope], place = place, place + part.size
            values.append(part + noise * rng.normal(size=part.size))
    return Residuals(
        sizes=tuple(sizes),
        starts=starts,
        values=np.concatenate(values),
        scales=dict.fromkeys(starts, noise),
        rows=float(len(codes)),
    )


def codes_of(network: Network, rows: int, seed: int = 0) -> np.ndarray:
    drawn = network.sample(rows, rng=np.random.default_rng(seed))
    return np.stack([drawn[name] for name in network.nodes], axis=1)


def free(columns: int) -> Constraints:
    return Constraints(
        names=tuple(f"v{i}" for i in range(columns)),
        allowed=~np.eye(columns, dtype=bool),
        required=frozenset(),
        joined=frozenset(),
    )


def bic(codes: np.ndarray, sizes: list[int], child: int, parents: tuple[int, ...]) -> float:
    """The usual score, computed the usual way: log-likelihood of the rows less half ln n for each parameter."""
    index = np.zeros(len(codes), dtype=int)
    for parent in parents:
        index = index * sizes[parent] + codes[:, parent]
    counts = np.zeros((index.max() + 1, sizes[child]))
    np.add.at(counts, (index, codes[:, child]), 1)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    fit = float((counts[counts > 0] * np.log(share[counts > 0])).sum())
    return fit - math.log(len(codes)) / 2 * (sizes[child] - 1) * math.prod(sizes[p] for p in parents)


def test_without_noise_a_score_is_bic(collider):
    codes, sizes = codes_of(collider, 4_000), [2, 2, 2, 2]
    evidence = Weights(residuals_of(codes, sizes)).of(residuals_of(codes, sizes).values, strictness=1.0)
    for child in range(4):
        for count in (1, 2):
            for parents in itertools.combinations([i for i in range(4) if i != child], count):
                gain = bic(codes, sizes, child, parents) - bic(codes, sizes, child, ())
                assert evidence.score(child, parents) == pytest.approx(gain, abs=0.05)


def test_noise_lowers_evidence_but_keeps_its_sign_where_there_is_plenty(collider):
    codes, sizes = codes_of(collider, 20_000), [2, 2, 2, 2]
    scores = []
    for noise in (0.0, 40.0, 400.0):
        residuals = residuals_of(codes, sizes, noise=noise)
        scores.append(Weights(residuals).of(residuals.values, strictness=1.0).pair[2, 3])
    assert scores[0] > scores[1] > scores[2] > 0


def test_pure_noise_gives_no_evidence_for_any_pair_or_triple():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, size=(5_000, 6))
    found = []
    for seed in range(10):
        residuals = residuals_of(codes, [3] * 6)
        noisy = residuals.values + 60.0 * np.random.default_rng(seed).normal(size=residuals.values.size)
        held = Residuals(
            sizes=residuals.sizes, starts=residuals.starts, values=noisy, scales=dict.fromkeys(residuals.starts, 60.0),
            rows=residuals.rows,
        )  # fmt: skip
        evidence = Weights(held).of(noisy, strictness=1.2)
        found.append((evidence.pair[np.triu_indices(6, 1)] > 0).mean())
    assert np.mean(found) < 0.03


def test_a_triple_that_was_not_measured_is_read_off_its_pairs(collider):
    codes, sizes = codes_of(collider, 20_000), [2, 2, 2, 2]
    pairs = residuals_of(codes, sizes, orders=(1, 2))
    evidence = Weights(pairs).of(pairs.values, strictness=1.0)
    assert evidence.given[0, 3, 2] < 0 < evidence.given[2, 3, 0], "c is between a and d"
    assert evidence.explained()[0, 3]
    assert not evidence.explained()[2, 3]


def test_an_explained_pair_is_not_an_edge_even_under_noise(collider):
    codes, sizes = codes_of(collider, 20_000), [2, 2, 2, 2]
    residuals = residuals_of(codes, sizes, noise=60.0)
    found = find_graph(Weights(residuals).of(residuals.values, 1.2), free(4), rounds=5)
    assert {frozenset((a, x)) for x, several in enumerate(found) for a in several} == {
        frozenset(pair) for pair in ((0, 2), (1, 2), (2, 3))
    }


def test_three_parents_are_found_from_three_way_tables():
    rng = np.random.default_rng(0)
    causes = rng.integers(0, 2, size=(30_000, 3))
    effect = (rng.random(30_000) < 0.1 + 0.25 * causes.sum(axis=1)).astype(int)
    codes = np.column_stack([causes, effect])
    residuals = residuals_of(codes, [2] * 4, noise=10.0)
    found = find_graph(Weights(residuals).of(residuals.values, 1.2), free(4), rounds=5)
    assert found == ((), (), (), (0, 1, 2))


def test_pairs_alone_make_a_forest(collider):
    codes, sizes = codes_of(collider, 20_000), [2, 2, 2, 2]
    residuals = residuals_of(codes, sizes)
    found = find_graph(Weights(residuals).of(residuals.values, 1.0), free(4), rounds=5, forest=True)
    assert max(len(several) for several in found) == 1
    assert sum(len(several) for several in found) == 3


def test_more_than_three_parents_are_not_scored(collider):
    codes = codes_of(collider, 500)
    residuals = residuals_of(np.column_stack([codes, codes[:, 0]]), [2] * 5)
    with pytest.raises(ValueError, match="three parents"):
        Weights(residuals).of(residuals.values, strictness=1.0).score(0, (1, 2, 3, 4))


def random_evidence(columns: int, seed: int) -> Evidence:
    rng = np.random.default_rng(seed)
    pair = rng.normal(size=(columns, columns)) * 5
    pair = pair + pair.T
    np.fill_diagonal(pair, 0.0)
    triple = np.full((columns, columns, columns), UNKNOWN)
    for scope in itertools.combinations(range(columns), 3):
        value = rng.normal() * 8
        for order in itertools.permutations(scope):
            triple[order] = value
    four = {scope: float(rng.normal() * 10) for scope in itertools.combinations(range(columns), 4)}
    return Evidence(pair=pair, triple=triple, given=np.full_like(triple, math.inf), four=four)


@pytest.mark.parametrize("seed", range(5))
def test_local_search_reaches_the_best_graph_of_a_small_set(seed):
    rng = np.random.default_rng(seed)
    codes = np.zeros((5_000, 8), dtype=int)
    for x in range(8):
        causes = rng.choice(x, size=min(x, 2), replace=False)
        effect = codes[:, causes] @ rng.normal(size=causes.size) if x else 0.0
        codes[:, x] = rng.random(5_000) < 1 / (1 + np.exp(-effect - rng.normal() * 0.3))
    residuals = residuals_of(codes, [2] * 8, noise=15.0)
    evidence = Weights(residuals).of(residuals.values, strictness=1.0)
    allowed, nothing = ~np.eye(8, dtype=bool), np.zeros((8, 8))
    best = best_graph(_scores(evidence, allowed, nothing, {}))
    found = good_graph(evidence, allowed, nothing, rounds=400, rng=rng)
    dag([f"v{i}" for i in range(8)], found)  # raises on a cycle

    def total(graph):
        return sum(evidence.score(x, several) for x, several in enumerate(graph))

    assert total(best) - total(found) < 0.01 * total(best)
    assert total(found) <= total(best) + 1e-9


def test_local_search_keeps_to_what_is_allowed_required_and_fixed():
    evidence = random_evidence(8, 3)
    allowed = np.triu(np.ones((8, 8), dtype=bool), 1)
    bonus = np.zeros((8, 8))
    bonus[0, 1] = 1e12
    found = good_graph(
        evidence, allowed, bonus, rounds=30, rng=np.random.default_rng(0), fixed={7: (0, 1, 2, 3)}, start=None
    )
    assert all(a < x for x, several in enumerate(found) for a in several)
    assert 0 in found[1]
    assert found[7] == (0, 1, 2, 3)


def test_a_pattern_without_knowledge_is_the_cpdag(collider):
    parents = [(), (), (0, 1), (2,)]
    assert pattern(list("abcd"), parents) == collider.graph.cpdag()
    chain = pattern(list("abc"), [(), (0,), (1,)])
    assert chain.edges == ()
    assert chain.undirected_edges == (("a", "b"), ("b", "c"))


def test_an_undirected_edge_that_may_go_one_way_only_is_a_required_arrow():
    schema = Schema.from_dict({name: [0, 1] for name in "abcdx"})
    graph = CausalGraph.from_edges([], undirected=[(name, "x") for name in "abcd"], tiers=[list("abcd"), ["x"]])
    known = constraints_of(schema, graph)
    assert known.required == {(place, 4) for place in range(4)}
    assert not known.joined


def test_knowledge_directs_an_edge_and_all_that_follows():
    schema = Schema.from_dict({name: ["x", "y"] for name in "abc"})
    known = constraints_of(schema, CausalGraph.from_edges([("a", "b")], nodes=["c"]))
    found = pattern(list("abc"), [(), (0,), (1,)], known)
    assert set(found.edges) == {("a", "b"), ("b", "c")}
    backwards = constraints_of(schema, CausalGraph.from_edges([], nodes=["a", "b"], forbidden=[("a", "b")]))
    assert ("b", "a") in pattern(list("abc"), [(), (0,), (1,)], backwards).edges


def test_meeks_fourth_rule_fires_only_with_background_knowledge():
    # a — b, a — c, a — d with d → c → b known, b and d not adjacent: a → b must follow.
    arrows, lines = meek_orientation({(3, 2), (2, 1)}, {frozenset((0, 1)), frozenset((0, 2)), frozenset((0, 3))})
    assert (0, 1) in arrows
    assert frozenset((0, 1)) not in lines


def test_groups_rule_out_the_way_back_and_latents_are_left_aside():
    schema = Schema.from_dict({name: ["x", "y"] for name in "abcd"})
    graph = CausalGraph.from_edges(
        [("early", "late"), ("u", "early")], groups={"early": ["a", "b"], "late": ["c", "d"]}, latents=["u"]
    )
    known = constraints_of(schema, graph)
    assert not known.allowed[2, 0]
    assert known.allowed[0, 2]
    assert known.required == frozenset()
    with pytest.raises(GraphError, match="no column"):
        constraints_of(schema, CausalGraph.from_edges([("a", "zz")]))


def test_restricted_constraints_keep_what_is_about_the_columns_left():
    schema = Schema.from_dict({"const": ["x"], "a": ["x", "y"], "b": ["x", "y"]})
    known = constraints_of(schema, CausalGraph.from_edges([("a", "b"), ("const", "a")])).restricted(("a", "b"))
    assert known.required == frozenset({(0, 1)})
    assert not known.allowed[1, 0]


@pytest.mark.parametrize("most_cells", [2**18, 1], ids=["exact", "simulated"])
def test_the_true_graph_explains_all_that_was_measured_best(most_cells, collider, monkeypatch):
    monkeypatch.setattr("escudo.discovery._evidence._MOST_CELLS", most_cells)
    residuals = residuals_of(codes_of(collider, 20_000), [2, 2, 2, 2], noise=20.0)
    truth = ((), (), (0, 1), (2,))
    others = [((), (), (), ()), ((), (), (0,), (2,)), ((), (), (0, 1), (0, 1, 2)), ((), (0,), (1,), (2,))]
    assert best_explanation(residuals, Weights(residuals), [*others, truth]) == truth


def test_a_climb_ends_where_rounding_promises_gains_for_ever(monkeypatch):
    rng = np.random.default_rng(0)
    codes, sizes = rng.integers(0, 2, (3000, 5)), [2] * 5
    evidence = Weights(residuals_of(codes, sizes)).of(residuals_of(codes, sizes).values, strictness=1.0)
    exact = _Climb.row
    monkeypatch.setattr(_Climb, "row", lambda self, x, parents: exact(self, x, parents) + 50.0)  # every arrow flatters
    found = good_graph(evidence, ~np.eye(5, dtype=bool), np.zeros((5, 5)), rounds=5, rng=rng)
    assert sum(len(several) for several in found) <= 2  # the columns are independent


def chained() -> Network:
    return Network(
        levels={name: tuple("abc"[:size]) for name, size in (("v0", 2), ("v1", 3), ("v2", 2), ("v3", 2))},
        parents={"v1": ("v0",), "v2": ("v1",), "v3": ("v1", "v2")},
        tables={
            "v0": [0.3, 0.7],
            "v1": [[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]],
            "v2": [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]],
            "v3": [[[0.8, 0.2], [0.4, 0.6]], [[0.6, 0.4], [0.1, 0.9]], [[0.3, 0.7], [0.2, 0.8]]],
        },
    )


def test_several_vectors_at_once_are_weighed_as_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [2, 3, 2, 2]
    for orders in ((1, 2, 3), (1, 2)):
        residuals = residuals_of(codes_of(chained(), 3_000), sizes, orders=orders, noise=8.0)
        weights = Weights(residuals)
        weights.of(residuals.values, 1.2)  # settles what is looked at
        others = residuals.values + np.random.default_rng(2).normal(0, 20, (5, residuals.values.size))
        for most in (2**20, 200):
            monkeypatch.setattr("escudo.discovery._evidence._AT_ONCE", most)
            for vector, found in zip(others, weights.several(others, 1.2), strict=True):
                alone = weights.of(vector, 1.2)
                for name in ("pair", "triple", "given"):
                    assert np.allclose(getattr(found, name), getattr(alone, name), rtol=1e-9, atol=1e-7)
                assert found.four.keys() == alone.four.keys()
                assert list(found.four.values()) == pytest.approx(list(alone.four.values()))


def test_chance_is_what_other_tables_of_the_same_kind_show() -> None:
    network, sizes, rows = chained(), [2, 3, 2, 2], 2_000
    drawn = np.array([residuals_of(codes_of(network, rows, seed), sizes).values for seed in range(300)])
    residuals = residuals_of(codes_of(network, rows, 999), sizes)
    parents = ((), (0,), (1,), (1, 2))
    found = chance(residuals, Weights(residuals), parents, np.random.default_rng(1), 600)
    assert np.abs(found.mean(axis=0)).max() < 0.25 * drawn.std(axis=0).max()
    assert np.allclose(found.std(axis=0), drawn.std(axis=0), rtol=0.25, atol=0.5)
    # Residuals go together as they do in the tables: what is wrong in one view is wrong in the others.
    true, made = np.corrcoef(drawn.T), np.corrcoef(found.T)
    assert np.abs(true - made).mean() < 0.08
    assert np.corrcoef(true.ravel(), made.ravel())[0, 1] > 0.9
