"""Neighbouring levels are merged beside other columns, where no arrow asks for them, and come back in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.synthesis import _adaptive, fit, prepare, prepare_discovered
from escudo.synthesis._adaptive import ExactCounts
from escudo.synthesis._estimation import NoisyTable, TableFits, agreeing, sums_of
from escudo.synthesis._merging import ordered_levels
from escudo.synthesis._residuals import Unit
from escudo.table import PrivateTable, Schema

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
NAMES = "abcdef"
LEVELS = 24


def numbers(rows: int = 10_000) -> pl.DataFrame:
    """Return columns of a normal law, in bins: each goes with the one before."""
    rng = np.random.default_rng(0)
    last, found = rng.normal(size=rows), {}
    for name in NAMES:
        last = 0.8 * last + 0.6 * rng.normal(size=rows)
        found[name] = np.clip(((last + 3) * 4).astype(int), 0, LEVELS - 1)
    return pl.DataFrame(found)


def schema_of(kind: str) -> Schema:
    return Schema.from_dict({name: {"type": kind, "levels": list(range(LEVELS))} for name in NAMES})


def groups_used(monkeypatch: pytest.MonkeyPatch) -> list[TableFits]:
    """Return a list that will hold how laws follow from tables, of every run from now on."""
    used: list[TableFits] = []
    merge = _adaptive._Run.merge

    def watched(run: Any) -> None:
        merge(run)
        used.append(run.fits)

    monkeypatch.setattr(_adaptive._Run, "merge", watched)
    return used


def test_numbers_and_ordinal_columns_have_an_order_and_missing_values_have_none() -> None:
    schema = Schema.from_dict({
        "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 10, "missing": True},
        "stage": {"type": "ordinal", "levels": [1, 2, 3]},
        "town": ["x", "y", "z"],
    })  # fmt: skip
    assert ordered_levels(schema) == {"age": 10, "stage": 3}


def test_ordered_columns_come_back_better_than_unordered_ones() -> None:
    """The same rows, once with the order of their levels and once without."""
    table, true = numbers(), np.corrcoef(numbers().to_numpy().T)
    missed = {}
    for kind in ("categorical", "ordinal"):
        schema = schema_of(kind)
        prepared = prepare(schema, None, relation="add_remove", **BUDGET)
        off = []
        for seed in range(3):
            model = fit(prepared, PrivateTable(table, schema, relation="add_remove"), seed=seed)
            drawn = model.sample(10_000, seed=seed).select(pl.col(list(NAMES)).cast(pl.String).cast(pl.Int64))
            off.append(np.abs(np.corrcoef(drawn.to_numpy().T) - true).mean())
        missed[kind] = np.mean(off)
    assert missed["ordinal"] < 0.7 * missed["categorical"]


def test_columns_that_the_graph_names_and_columns_without_an_order_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = groups_used(monkeypatch)
    graph = CausalGraph.from_edges([("a", "b")], nodes=list(NAMES))
    for kind, stated, merged in (
        ("ordinal", None, set(NAMES)),
        ("ordinal", graph, set("cdef")),
        ("categorical", None, set()),
    ):
        schema = schema_of(kind)
        fit(prepare(schema, stated, **BUDGET), PrivateTable(numbers(2000), schema), seed=0)
        assert set(used.pop().merged) == merged


def test_more_rows_make_more_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    used = groups_used(monkeypatch)
    schema = schema_of("ordinal")
    several = []
    for rows in (500, 5000, 50_000):
        fit(prepare(schema, None, **BUDGET), PrivateTable(numbers(rows), schema), seed=0)
        several.append(used.pop().cells["a"])
    assert several[0] < several[1] < several[2]


def test_the_plan_is_the_same_with_and_without_an_order() -> None:
    plans = [str(prepare(schema_of(kind), None, **BUDGET).plan) for kind in ("ordinal", "categorical")]
    assert plans[0] == plans[1]


def test_the_noise_of_merged_tables_is_the_noise_that_was_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """About 20,000 cells: noise of two thirds or three halves would be off by a hundred deviations."""
    seen: list[np.ndarray] = []
    measure_each = Unit.measure_each

    def watched(self: Unit, tables: Sequence[tuple[Any, Any, bool]], purse: Any) -> list[NoisyTable]:
        found = measure_each(self, tables, purse)
        for (columns, counts, _), noisy in zip(tables, found, strict=True):
            if len(columns) > 1:
                assert counts.shape[0] < LEVELS
                seen.append((noisy.counts - counts).ravel() / self.event.scale)
        return found

    monkeypatch.setattr(Unit, "measure_each", watched)
    schema = schema_of("ordinal")
    prepared = prepare(schema, None, **BUDGET)
    for seed in range(4):
        fit(prepared, PrivateTable(numbers(5000), schema), seed=seed)
    noise = np.concatenate(seen)
    assert noise.size > 5000
    off = np.sqrt(2 / noise.size)
    assert abs(noise.var() - 1) < 5 * off
    assert 20 * off < 1 - (2 / 3) ** 2
    assert 20 * off < (3 / 2) ** 2 - 1


def test_shares_of_merged_levels_come_out_right_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over forty releases the mean share of every level is within half of the noise stated for a cell of its column."""
    monkeypatch.setattr(_adaptive, "_SIMULATED", 2**12)
    used = groups_used(monkeypatch)
    schema, table = schema_of("ordinal"), numbers(3000)
    prepared = prepare(schema, None, **BUDGET)
    models = [fit(prepared, PrivateTable(table, schema), seed=seed) for seed in range(40)]
    assert all(len(each.merged) == len(NAMES) for each in used)
    stated = {leaf.name: leaf.once.scale / 3000 for leaf in prepared.plan.children[0].leaves()}
    for name in NAMES:
        truth = np.bincount(table[name].to_numpy(), minlength=LEVELS) / 3000
        mean = np.mean([model.probability([name]) for model in models], axis=0)
        assert np.abs(mean - truth).max() < 0.5 * stated[name], name


def test_a_discovered_graph_reads_merged_tables() -> None:
    schema = schema_of("ordinal")
    model = fit(prepare_discovered(schema, epsilon=3.0, delta=1e-6), PrivateTable(numbers(20_000), schema), seed=1)
    found = {frozenset(each) for each in [*model.stated.edges, *model.stated.undirected_edges]}
    assert {frozenset(pair) for pair in ("ab", "bc", "cd", "de", "ef")} <= found


def test_margins_with_groups_are_the_least_squares_solution() -> None:
    rng = np.random.default_rng(0)
    groups = np.array([0, 0, 0, 1, 2, 2])
    alone = NoisyTable(("a",), rng.normal(50, 3, 6), 3.0)
    pair = NoisyTable(("a", "b"), rng.normal(20, 2, (3, 4)), 2.0)
    found, noise = (each["a"] for each in sums_of([alone, pair], {"a": groups}))
    design = np.vstack([np.eye(6) / 3.0, (groups == np.arange(3)[:, None]) / (2.0 * 2)])
    wanted = np.linalg.lstsq(design, np.append(alone.counts / 3.0, pair.counts.sum(axis=1) / (2.0 * 2)), rcond=None)[0]
    np.testing.assert_allclose(found, wanted)
    np.testing.assert_allclose(noise**2, np.diag(np.linalg.inv(design.T @ design)))


def test_agreed_tables_have_a_cell_for_each_level_and_their_columns_margins() -> None:
    rng = np.random.default_rng(1)
    merged = {"a": np.array([0, 0, 1, 1, 1])}
    tables = [
        NoisyTable(("a",), rng.normal(40, 5, 5), 5.0),
        NoisyTable(("b",), rng.normal(70, 5, 3), 5.0),
        NoisyTable(("a", "b"), rng.normal(33, 5, (2, 3)), 5.0),
        NoisyTable(("a", "b", "c"), rng.normal(16, 5, (2, 3, 2)), 5.0),
    ]
    one, other, pair, triple = agreeing(tables, total=200.0, merged=merged)
    assert pair.counts.shape == (5, 3)
    assert triple.counts.shape == (5, 3, 2)
    np.testing.assert_allclose(pair.counts.sum(axis=1), one.counts, atol=0.1)
    np.testing.assert_allclose(pair.counts.sum(axis=0), other.counts, atol=0.1)
    np.testing.assert_allclose(triple.counts.sum(axis=2), pair.counts, atol=0.1)


def test_exact_counts_are_merged_beside_other_columns_only() -> None:
    schema = Schema.from_dict({"a": ["x", "y", "z"], "b": ["no", "yes"]})
    rows = pl.DataFrame({"a": ["x", "y", "y", "z"], "b": ["no", "no", "yes", "yes"]})
    exact = ExactCounts(PrivateTable(rows, schema))
    assert exact["a", "b"].tolist() == [[1, 0], [1, 1], [0, 1]]
    exact.merge({"a": np.array([0, 0, 1])})
    assert exact["a", "b"].tolist() == [[2, 1], [0, 1]]
    assert exact["b", "a"].tolist() == [[2, 0], [1, 1]]
    assert exact["a",].tolist() == [1, 2, 1]
