"""Discovery of linear effects: right graphs from simulated numbers, knowledge obeyed, and silence where noise rules."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.discovery import _gaussian, discover
from escudo.discovery._gaussian import (
    STEPS,
    LinearScore,
    _middle_and_spread,
    _slope,
    _unshrink,
    _width,
    clipped_rows,
    search_linear,
    squared_limit,
)
from escudo.discovery._pattern import constraints_of, pattern
from escudo.discovery._search import best_graph
from escudo.errors import InputError, SchemaError
from escudo.privacy import Budget, MemoryAccount, Neighbours
from escudo.table import PrivateTable, Schema

NAMES = ("age", "diet", "dose", "pressure", "risk", "sleep")
TRUE = CausalGraph.from_edges(
    [("age", "dose"), ("dose", "pressure"), ("diet", "pressure"), ("pressure", "risk"), ("age", "sleep")], nodes=NAMES
)


def simulated(rows: int, seed: int = 0, *, skewed: bool = False) -> pl.DataFrame:
    rng = np.random.default_rng(seed)

    def noise() -> np.ndarray:
        return rng.exponential(size=rows) - 1 if skewed else rng.normal(size=rows)

    age, diet = noise(), noise()
    dose = age + noise()
    pressure = dose - diet + 0.7 * noise()
    return pl.DataFrame(
        {
            "age": age,
            "diet": diet,
            "dose": dose,
            "pressure": pressure,
            "risk": 0.8 * pressure + noise(),
            "sleep": noise() - age,
        }
    )


def schema(**columns: object) -> Schema:
    wide = {"type": "numeric", "lower": -30, "upper": 12}
    return Schema.from_dict({name: columns.get(name, wide) for name in NAMES})


@pytest.fixture(scope="module")
def table() -> PrivateTable:
    return PrivateTable(simulated(30_000), schema())


def test_the_graph_is_found_with_wide_bounds_and_a_modest_budget(table: PrivateTable) -> None:
    found = discover(table, epsilon=0.5, delta=1e-6, method="gaussian", seed=1)
    assert found.graph == TRUE.cpdag()
    assert found.method == "gaussian"
    assert min(found.edge_confidence.values()) > 0.8
    assert found.cannot_tell == ""
    assert set(map(frozenset, found.graph.adjacencies)) <= set(map(frozenset, found.generating_graph.adjacencies))


def test_skewed_numbers_are_no_dependence() -> None:
    found = discover(
        PrivateTable(simulated(30_000, 3, skewed=True), schema()), epsilon=1.0, delta=1e-6, method="gaussian", seed=1
    )
    assert found.graph == TRUE.cpdag()


@pytest.mark.parametrize("seed", [0, 2])
def test_clipping_skewed_rows_joins_nothing_where_the_noise_is_small(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame({name: rng.exponential(size=100_000) for name in "abc"})
    bounds = {"type": "numeric", "lower": -0.5, "upper": 8}
    skewed = PrivateTable(frame, Schema.from_dict(dict.fromkeys("abc", bounds)))
    found = discover(skewed, epsilon=10.0, delta=1e-6, method="gaussian", seed=seed)
    assert found.graph.adjacencies == ()


def test_the_clip_bound_is_wider_only_where_public_numbers_show_that_its_noise_is_small() -> None:
    assert _width(None, 1.0) == 1.0
    assert _width(100, 1e9) == 1.0
    assert _width(10**9, 1.0) == 5.0
    rows, noise = 10_000, 35.0  # the noise on a correlation is half of chance at about twice the usual bound
    wide = _width(rows, noise)
    assert 1 < wide < 5
    assert wide * noise / np.sqrt(2) / rows == pytest.approx(0.5 / np.sqrt(rows))
    assert _width(10**9, 1.0, most=2e9) == 2.0
    assert _width(10**9, 1.0, most=1e8) == 1.0


def test_independent_columns_of_two_values_are_not_joined() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({name: rng.integers(0, 2, 20_000) * 2.0 - 1 for name in NAMES})
    found = discover(PrivateTable(frame, schema()), epsilon=1.0, delta=1e-6, method="gaussian", seed=1)
    assert found.graph.adjacencies == ()


def test_noise_alone_makes_no_edges() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({name: rng.normal(size=20_000) for name in NAMES})
    for seed in range(4):
        found = discover(PrivateTable(frame, schema()), epsilon=0.5, delta=1e-6, method="gaussian", seed=seed)
        assert found.graph.adjacencies == ()
        assert "no dependence" in found.cannot_tell


def test_too_small_a_budget_says_so_and_claims_no_cause_twice() -> None:
    table = PrivateTable(simulated(2_000), schema())
    found = discover(table, epsilon=0.02, delta=1e-6, method="gaussian", seed=2)
    assert "more rows or a larger epsilon" in found.cannot_tell
    assert all(len(found.generating_graph.parents(name)) <= 1 for name in NAMES)
    assert len(found.graph.adjacencies) < len(NAMES)


def test_knowledge_is_obeyed_and_directs_what_was_open(table: PrivateTable) -> None:
    known = CausalGraph.from_edges(
        [],
        nodes=NAMES,
        required=[("age", "risk")],
        forbidden=[("dose", "pressure")],
        tiers=[["age"], ["dose", "sleep"]],
    )
    found = discover(table, epsilon=1.0, delta=1e-6, method="gaussian", knowledge=known, seed=1)
    assert {("age", "risk"), ("age", "dose"), ("age", "sleep")} <= set(found.graph.edges)
    assert ("dose", "pressure") not in found.graph.edges
    assert ("dose", "pressure") not in found.generating_graph.edges


@pytest.mark.parametrize("rows", [2_000, 30_000], ids=["the usual clip bound", "a wider one"])
def test_the_plan_is_what_is_charged_and_costs_what_was_asked(rows: int) -> None:
    account = MemoryAccount(epsilon=1.0, delta=1e-6)
    fresh = PrivateTable(simulated(rows), schema(), account)
    prepared = _gaussian.prepare(fresh.schema, fresh.neighbours, Budget(0.7, 1e-6), knowledge=None)
    assert (prepared.wide > 1) == (rows == 30_000)
    assert prepared.plan.guarantee().epsilon == pytest.approx(0.7, rel=1e-3)
    assert prepared.plan.guarantee().epsilon <= 0.7 * (1 + 1e-9)
    found = discover(fresh, epsilon=0.7, delta=1e-6, method="gaussian")
    assert [receipt.event for receipt in account.receipts] == [prepared.plan.event]
    assert found.guarantee.for_release
    assert [leaf.name for leaf in found.plan.leaves()] == [
        "scales",
        "curvature",
        "whitening",
        "second moments",
    ]


def test_rows_with_a_missing_value_take_no_part() -> None:
    frame = simulated(30_000)
    gone = frame.with_columns(pl.when(pl.col("diet") > 1.5).then(None).otherwise(pl.col("diet")).alias("diet"))
    missing = schema(diet={"type": "numeric", "lower": -30, "upper": 12, "missing": True})
    found = discover(PrivateTable(gone, missing), epsilon=1.0, delta=1e-6, method="gaussian", seed=1)
    assert found.graph.skeleton_f1(TRUE) == 1.0
    assert any("missing value (diet)" in note for note in found.notes)
    assert found.rows < 29_000


def test_a_person_with_several_rows_is_protected() -> None:
    frame = simulated(30_000).with_columns(id=pl.Series(np.arange(30_000) // 3))
    grouped = Schema.from_dict(
        {name: {"type": "numeric", "lower": -9, "upper": 9} for name in NAMES}, person_id="id", max_rows_per_person=2
    )
    found = discover(PrivateTable(frame, grouped), epsilon=2.0, delta=1e-6, method="gaussian", seed=1)
    assert found.guarantee.unit == "person"
    assert found.graph.skeleton_f1(TRUE) == 1.0


@pytest.mark.parametrize(
    ("columns", "delta", "error", "match"),
    [
        (
            {"age": ["young", "old"], "b": {"type": "numeric", "lower": 0, "upper": 1}},
            1e-6,
            SchemaError,
            "method='auto'",
        ),
        ({"b": {"type": "numeric", "lower": 0, "upper": 1}}, 1e-6, SchemaError, "at least two"),
        ({c: {"type": "numeric", "lower": 0, "upper": 1} for c in "ab"}, 0.0, InputError, "delta above 0"),
        ({f"c{i}": {"type": "numeric", "lower": 0, "upper": 1} for i in range(201)}, 1e-6, InputError, "at most 200"),
    ],
    ids=["categorical", "one column", "pure", "too many"],
)
def test_what_it_cannot_do_is_refused(
    columns: dict[str, object], delta: float, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        _gaussian.prepare(Schema.from_dict(columns), Neighbours(), Budget(1.0, delta), knowledge=None)


class TestSearch:
    def matrix(self, columns: int, seed: int) -> tuple[np.ndarray, CausalGraph]:
        rng = np.random.default_rng(seed)
        weights = np.triu(rng.random((columns, columns)) < 2.0 / columns, 1) * rng.uniform(0.5, 1.0, (columns, columns))
        mix = np.linalg.inv(np.eye(columns) - weights).T
        covariance = mix @ mix.T
        scale = np.sqrt(np.diag(covariance))
        names = [f"x{i}" for i in range(columns)]
        edges = [(names[a], names[b]) for a, b in np.argwhere(weights)]
        return covariance / np.outer(scale, scale), CausalGraph.from_edges(edges, nodes=names)

    def score(self, matrix: np.ndarray, rows: float = 1e6) -> LinearScore:
        names = {f"x{i}": {"type": "numeric", "lower": 0, "upper": 1} for i in range(len(matrix))}
        return LinearScore(matrix, rows, strictness=1.5, constraints=constraints_of(Schema.from_dict(names), None))

    def test_the_table_of_scores_is_the_regression_of_each_column(self) -> None:
        matrix, _ = self.matrix(5, 1)
        score = self.score(matrix)
        table = score.table()
        for column in range(5):
            for bits in range(32):
                if bits >> column & 1:
                    assert table[column, bits] == -np.inf
                else:
                    parents = [other for other in range(5) if bits >> other & 1]
                    assert table[column, bits] == pytest.approx(score.of(column, parents), rel=1e-9, abs=1e-6)

    def test_gains_are_differences_of_scores(self) -> None:
        score = self.score(self.matrix(6, 2)[0])
        gains = score.gains(3, frozenset([1, 4]))
        for other in (0, 2, 5):
            assert gains[other] == pytest.approx(score.of(3, [1, 4, other]) - score.of(3, [1, 4]), rel=1e-6, abs=1e-6)
        assert gains[1] == gains[3] == -np.inf

    def test_both_searches_find_the_truth_without_noise(self) -> None:
        for seed in range(4):
            matrix, truth = self.matrix(9, seed)
            names = truth.nodes
            assert pattern(names, best_graph(self.score(matrix).table())) == truth.cpdag()
        matrix, truth = self.matrix(24, 5)
        found = pattern(truth.nodes, search_linear(self.score(matrix), rounds=30))
        assert found.skeleton_f1(truth) > 0.97
        assert found.shd(truth.cpdag()) <= 4


class TestMoments:
    def test_the_spread_of_a_column_is_read_off_a_noisy_histogram(self) -> None:
        rng = np.random.default_rng(0)
        values = np.clip(rng.normal(-0.3, 0.11, 50_000), -1, 1)
        counts = np.histogram(values, bins=64, range=(-1, 1))[0] + rng.normal(0, 250, 64)
        middle, spread = _middle_and_spread(counts, 50_000.0, noise=250.0)
        assert middle == pytest.approx(-0.3, abs=0.02)
        assert spread == pytest.approx(0.11, rel=0.1)

    @pytest.mark.parametrize("rare", [0.5, 0.1])
    def test_two_humps_are_seen_both(self, rare: float) -> None:
        rng = np.random.default_rng(0)
        values = np.where(rng.random(50_000) < rare, 0.5, -0.5)
        counts = np.histogram(values, bins=64, range=(-1, 1))[0] + rng.normal(0, 250, 64)
        middle, spread = _middle_and_spread(counts, 50_000.0, noise=250.0)
        assert middle == pytest.approx(values.mean(), abs=0.05)
        assert spread == pytest.approx(values.std(), rel=0.1)

    def test_a_faint_histogram_falls_back_on_the_nearest_normal_law(self) -> None:
        rng = np.random.default_rng(0)
        values = np.clip(rng.normal(0.2, 0.2, 10_000), -1, 1)
        counts = np.histogram(values, bins=64, range=(-1, 1))[0] + rng.normal(0, 300, 64)
        middle, spread = _middle_and_spread(counts, 10_000.0, noise=300.0)
        assert middle == pytest.approx(0.2, abs=0.1)
        assert spread == pytest.approx(0.2, rel=0.4)

    def test_eigenvalues_are_recovered_from_those_of_unit_rows(self) -> None:
        rng = np.random.default_rng(1)
        true = np.array([0.05, 0.4, 1.0, 4.0])
        rows = rng.normal(size=(400_000, 4)) * np.sqrt(true)
        unit = rows / np.sqrt((rows**2).sum(axis=1))[:, None]
        assert _unshrink((unit**2).mean(axis=0)) == pytest.approx(true * 4 / true.sum(), rel=0.02)

    @pytest.mark.parametrize("wide", [1.0, 3.0])
    def test_the_slope_undoes_what_clipping_does_to_a_faint_correlation(self, wide: float) -> None:
        rng = np.random.default_rng(2)
        d = 6
        rows = rng.normal(size=(400_000, d))
        rows[:, 1] = 0.1 * rows[:, 0] + np.sqrt(0.99) * rows[:, 1]
        clipped = clipped_rows(rows, squared_limit(d, wide))[:, 1:] / STEPS
        matrix = clipped.T @ clipped
        assert matrix[0, 1] / (np.trace(matrix) / d) * _slope(d, wide) == pytest.approx(0.1, abs=0.006)
