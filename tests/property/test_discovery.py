"""Sensitivity of residual tables: bounds against all pairs of records, and against neighbours that are searched."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.discovery._evidence import Weights
from escudo.discovery._measurement import (
    Levels,
    Residuals,
    basis,
    coefficients,
    l2_sensitivity,
    on_simplex,
    squared_sensitivity,
    table_batches,
)
from escudo.discovery._search import best_graph
from escudo.table import Categorical, PrivateTable, Schema

sizes_of_columns = st.lists(st.integers(2, 4), min_size=2, max_size=4)


def brute_force(sizes: list[int], scopes: dict[tuple[int, ...], float], relation: str) -> float:
    """Return the squared distance that one record, or one record in place of another, moves weighted residuals."""
    records = np.array(list(itertools.product(*(range(size) for size in sizes))))
    found = []
    for scope, weight in scopes.items():
        contrasts = [basis(sizes[i])[records[:, i], 1:] for i in scope]
        part = contrasts[0]
        for other in contrasts[1:]:
            part = np.einsum("ra,rb->rab", part, other).reshape(len(records), -1)
        found.append(math.sqrt(weight) * part)
    vectors = np.concatenate(found, axis=1)
    inner = vectors @ vectors.T
    own = np.diag(inner)
    return float(own.max() if relation == "add_remove" else (own[:, None] + own[None, :] - 2 * inner).max())


def all_scopes(columns: int, orders: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [scope for order in orders for scope in itertools.combinations(range(columns), order)]


@given(sizes_of_columns, st.sampled_from([(1, 2), (1, 2, 3), (2,), (1, 3)]), st.sampled_from([1.0, 0.25]))
def test_sensitivity_of_complete_families_equals_brute_force(sizes, orders, weight):
    scopes = {scope: weight if len(scope) == 2 else 1.0 for scope in all_scopes(len(sizes), orders)}
    for relation in ("add_remove", "replace_one"):
        proved = squared_sensitivity(sizes, scopes, relation=relation)
        assert proved == pytest.approx(brute_force(sizes, scopes, relation), rel=1e-9)


@given(sizes_of_columns, st.data())
def test_sensitivity_of_any_scopes_is_never_below_brute_force(sizes, data):
    choices = all_scopes(len(sizes), (1, 2, 3, 4))
    some = data.draw(st.lists(st.sampled_from(choices), min_size=1, unique=True))
    scopes = {scope: data.draw(st.sampled_from([1.0, 0.3])) for scope in some}
    for relation in ("add_remove", "replace_one"):
        proved = squared_sensitivity(sizes, scopes, relation=relation)
        assert proved >= brute_force(sizes, scopes, relation) * (1 - 1e-9)
    assert squared_sensitivity(sizes, scopes, relation="replace_one") >= 2 * squared_sensitivity(
        sizes, scopes, relation="add_remove"
    ) * (1 - 1e-9), "the proof for persons needs it"


def test_too_many_patterns_fall_back_on_a_bound_that_holds(monkeypatch):
    sizes = [2, 3, 4, 5]
    scopes = dict.fromkeys(all_scopes(4, (1, 2, 3)), 1.0)
    exact = squared_sensitivity(sizes, scopes, relation="replace_one")
    monkeypatch.setattr("escudo.discovery._measurement._MOST_PATTERNS", 1)
    assert squared_sensitivity(sizes, scopes, relation="replace_one") >= exact


@given(st.integers(0, 2**32 - 1), st.sampled_from(["add_remove", "replace_one"]), st.integers(1, 3))
def test_no_neighbouring_table_moves_the_measured_vector_further_than_stated(seed, relation, rows_per_person):
    """Worse neighbours are searched among tables of persons with up to k rows each, kept rows included."""
    rng = np.random.default_rng(seed)
    sizes = [2, 3, 2]
    columns = [Categorical(f"c{i}", tuple(str(v) for v in range(size))) for i, size in enumerate(sizes)]
    schema = Schema(tuple(columns), person_id="who", max_rows_per_person=rows_per_person)
    scopes = all_scopes(3, (1, 2, 3))
    neighbours = schema.neighbours(relation=relation)
    limit, rows_weight = l2_sensitivity(sizes, scopes, neighbours, count_rows=True)

    def rows_of(person: int, count: int, one_record: bool) -> list[dict[str, object]]:
        same = [int(rng.integers(size)) for size in sizes]
        made = []
        for _ in range(count):
            record = same if one_record else [int(rng.integers(size)) for size in sizes]
            made.append({"who": person, **{f"c{i}": str(v) for i, v in enumerate(record)}})
        return made

    def vector(rows: list[dict[str, object]]) -> np.ndarray:
        table = PrivateTable(pl.DataFrame(rows, schema={"who": pl.Int64, "c0": str, "c1": str, "c2": str}), schema)
        tables = table.counts([[f"c{i}" for i in scope] for scope in scopes])
        found = [coefficients(counts.astype(float)).ravel() for counts in tables]
        return np.concatenate([*found, [math.sqrt(rows_weight) * tables[0].sum()]])

    common = rows_of(1, 2, False)
    one_record = bool(rng.integers(2))
    here = rows_of(2, int(rng.integers(1, rows_per_person + 3)), one_record)
    there = [] if relation == "add_remove" else rows_of(2, int(rng.integers(1, rows_per_person + 3)), one_record)
    assert np.linalg.norm(vector(common + here) - vector(common + there)) <= limit * (1 + 1e-9)


@given(sizes_of_columns, st.integers(0, 2**32 - 1))
def test_tables_are_made_of_their_residuals_and_of_the_number_of_rows(sizes, seed):
    rng = np.random.default_rng(seed)
    joint = rng.integers(0, 50, size=sizes).astype(float)
    scopes = all_scopes(len(sizes), tuple(range(1, len(sizes) + 1)))
    start, starts, values = 0, {}, []
    for scope in scopes:
        part = coefficients(joint.sum(axis=tuple(i for i in range(len(sizes)) if i not in scope))).ravel()
        starts[scope] = start
        values.append(part)
        start += part.size
    residuals = Residuals(
        sizes=tuple(sizes), starts=starts, values=np.concatenate(values), scales=dict.fromkeys(scopes, 1.0),
        rows=float(joint.sum()),
    )  # fmt: skip
    for batch in table_batches(residuals, scopes):
        for scope, table in zip(batch.scopes, batch.tables(residuals.values, residuals.rows), strict=True):
            expected = joint.sum(axis=tuple(i for i in range(len(sizes)) if i not in scope))
            np.testing.assert_allclose(table, expected, atol=1e-8)


@given(st.integers(2, 7))
def test_contrasts_are_orthonormal_and_add_up_to_nothing(size):
    matrix = basis(size)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(matrix[:, 1:].sum(axis=0), 0.0, atol=1e-12)


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=12), st.floats(1, 100))
def test_projection_is_the_nearest_table_of_that_total(cells, total):
    raw = np.array([cells])
    near = on_simplex(raw, total)
    assert near.min() >= 0
    assert near.sum() == pytest.approx(total)
    shift = raw - near  # optimality: the same for all cells that are kept, no larger for those cut off
    kept = near[0] > 1e-9
    assert np.ptp(shift[0][kept]) < 1e-6
    assert not (~kept).any() or shift[0][~kept].max() <= shift[0][kept].min() + 1e-6


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 20.0]))
def test_equivalent_graphs_have_equal_scores(seed, noise):
    """Turning an arrow whose ends have the same other parents changes no score, at any noise."""
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.ones(24)).reshape(2, 3, 2, 2) * 5000
    scopes = all_scopes(4, (1, 2, 3))
    values, starts, place = [], {}, 0
    for scope in scopes:
        part = coefficients(joint.sum(axis=tuple(i for i in range(4) if i not in scope))).ravel()
        starts[scope], place = place, place + part.size
        values.append(part + noise * rng.normal(size=part.size))
    scales = dict.fromkeys(scopes, noise)
    residuals = Residuals(sizes=(2, 3, 2, 2), starts=starts, values=np.concatenate(values), scales=scales, rows=5000.0)
    evidence = Weights(residuals).of(residuals.values, strictness=1.0)

    def score(child: int, *parents: int) -> float:
        return evidence.score(child, parents)

    assert score(0, 1) == pytest.approx(score(1, 0))
    assert score(0, 2) + score(1, 0, 2) == pytest.approx(score(1, 2) + score(0, 1, 2))
    if (0, 1, 2, 3) in evidence.four:
        assert score(0, 2, 3) + score(1, 0, 2, 3) == pytest.approx(score(1, 2, 3) + score(0, 1, 2, 3))


@given(st.integers(0, 2**32 - 1))
def test_the_exact_search_finds_the_best_of_all_graphs(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(4, 16))
    for x in range(4):
        scores[x, [bits for bits in range(16) if bits >> x & 1]] = -np.inf
    found = best_graph(scores)
    bits = [sum(1 << a for a in several) for several in found]
    best = -math.inf
    for order in itertools.permutations(range(4)):
        before, total = 0, 0.0
        for x in order:
            total += max(scores[x, m] for m in range(16) if m & ~before == 0)
            before |= 1 << x
        best = max(best, total)
    assert sum(scores[x, bits[x]] for x in range(4)) == pytest.approx(best)


@given(st.integers(9, 40), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_merged_levels_keep_every_row_and_a_cell_for_missing_values(size, ordered, missing, seed):
    rng = np.random.default_rng(seed)
    column = Categorical("x", tuple(range(size)), ordered=ordered, missing=missing)
    schema = Schema((column, Categorical("y", ("a", "b"))))
    levels = Levels.of(schema, {"x": rng.normal(100, 100, size=column.size)})
    counts = rng.integers(0, 9, size=(column.size, 2))
    merged = levels.merged(counts, (0, 1))
    assert merged.shape == (levels.sizes[0], 2)
    assert 2 <= levels.sizes[0] <= 8
    np.testing.assert_array_equal(merged.sum(axis=0), counts.sum(axis=0))
    if missing:
        np.testing.assert_array_equal(merged[-1], counts[-1])
    if ordered:
        assert (np.diff(levels.groups[0]) >= 0).all()
