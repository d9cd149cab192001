"""What is released: the right residuals, the right noise, charged before it is drawn."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest

from escudo.discovery._measurement import (
    Levels,
    Residuals,
    coefficients,
    l2_sensitivity,
    measure,
    release_event,
    table_batches,
)
from escudo.errors import InputError, NotInPlanError
from escudo.mechanisms import Purse
from escudo.privacy import MemoryAccount, Neighbours, Plan, charging
from escudo.table import PrivateTable, Schema

SCOPES = [scope for order in (1, 2, 3) for scope in itertools.combinations(range(4), order)]


ROWS = Neighbours()
ADDED = Neighbours(relation="add_remove")


def purse(seed: int = 0, neighbours: Neighbours = ROWS) -> Purse:
    return Purse(MemoryAccount(relation=neighbours.relation), seed)


def test_residuals_are_those_of_the_exact_tables_but_for_noise(collider_table):
    schema = collider_table.schema
    event = release_event(2e-3, ROWS, numbers=100)
    found = measure(collider_table, Levels.of(schema, {}), SCOPES, event, purse(), rows=20_000)
    assert found.rows == 20_000
    for scope in SCOPES:
        exact = coefficients(collider_table.counts([schema.names[i] for i in scope]).astype(float))
        np.testing.assert_allclose(found.part(scope), exact, atol=0.1)


def test_noise_has_the_planned_scale_times_the_sensitivity(collider_table):
    schema = collider_table.schema
    levels = Levels.of(schema, {})
    event = release_event(10.0, ROWS, numbers=100)
    exact = measure(collider_table, levels, SCOPES, release_event(2e-3, ROWS, numbers=100), purse(), rows=20_000)
    gaps = []
    for seed in range(60):
        noisy = measure(collider_table, levels, SCOPES, event, purse(seed), rows=20_000)
        gaps.append(noisy.values - exact.values)
    limit, _ = l2_sensitivity(levels.sizes, SCOPES, ROWS)
    assert noisy.scales[(0, 1)] == pytest.approx(10.0 * limit)
    assert np.std(gaps) == pytest.approx(10.0 * limit, rel=0.06)
    assert abs(np.mean(gaps)) < 10.0 * limit / 5


def test_what_the_plan_does_not_show_is_refused_before_noise_is_drawn(collider_table):
    planned, other = release_event(10.0, ROWS, numbers=100), release_event(9.0, ROWS, numbers=100)
    levels, rng = Levels.of(collider_table.schema, {}), np.random.default_rng(0)
    with (
        charging(collider_table.account, Plan("tables", planned), for_release=False) as account,
        pytest.raises(NotInPlanError),
    ):
        measure(collider_table, levels, SCOPES, other, Purse(account, rng), rows=20_000)
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


def test_noise_beyond_whole_numbers_is_refused_when_it_is_planned():
    with pytest.raises(InputError, match="noise scale"):
        release_event(2.0**31, ROWS, numbers=100)


def test_more_numbers_than_planned_are_refused(collider_table):
    event = release_event(1.0, ROWS, numbers=3)
    with pytest.raises(AssertionError, match="planned"):
        measure(collider_table, Levels.of(collider_table.schema, {}), SCOPES, event, purse(), rows=20_000)


def test_rows_are_measured_where_they_are_not_public(collider_table):
    levels = Levels.of(collider_table.schema, {})
    event = release_event(5.0, ADDED, numbers=100)
    found = measure(collider_table, levels, SCOPES, event, purse(1, ADDED), rows=None)
    assert found.rows != 20_000
    assert found.rows == pytest.approx(20_000, abs=300)
    again = measure(collider_table, levels, SCOPES, event, purse(2, ADDED), rows=found.rows)
    assert again.rows == found.rows


def test_two_measurements_of_a_residual_are_averaged_by_precision():
    first = Residuals(
        sizes=(2, 2), starts={(0,): 0, (1,): 1}, values=np.array([10.0, 1.0]), scales={(0,): 1.0, (1,): 1.0}, rows=9.0
    )
    second = Residuals(
        sizes=(2, 2), starts={(0,): 0, (0, 1): 1}, values=np.array([20.0, 7.0]), scales={(0,): 2.0, (0, 1): 2.0},
        rows=9.0,
    )  # fmt: skip
    both = first.joined(second)
    assert both.part((0,))[0] == pytest.approx((10 + 20 / 4) / (1 + 1 / 4))
    assert both.scales[(0,)] == pytest.approx(1 / np.sqrt(1 + 1 / 4))
    assert both.part((1,))[0] == 1.0
    assert both.part((0, 1))[0, 0] == 7.0


def test_fresh_noise_has_the_scale_of_each_scope():
    residuals = Residuals(
        sizes=(300, 300), starts={(0,): 0, (1,): 299}, values=np.zeros(598), scales={(0,): 1.0, (1,): 5.0}, rows=9.0
    )
    noise = residuals.noise(np.random.default_rng(0))
    assert np.std(noise[:299]) == pytest.approx(1.0, rel=0.15)
    assert np.std(noise[299:]) == pytest.approx(5.0, rel=0.15)


def test_a_cell_of_a_table_varies_as_the_batch_says():
    sizes, scopes = (2, 3), [(0,), (1,), (0, 1)]
    rng = np.random.default_rng(0)
    starts = {(0,): 0, (1,): 1, (0, 1): 3}
    still = Residuals(sizes=sizes, starts=starts, values=np.zeros(5), scales=dict.fromkeys(scopes, 2.0), rows=60.0)
    (batch,) = table_batches(still, [(0, 1)])
    drawn = np.array([batch.tables(still.noise(rng), 60.0)[0] for _ in range(20_000)])
    variance = sum(
        noise[0] / np.prod([size**2 for axis, size in enumerate(batch.shape) if axis not in axes])
        for axes, noise in batch.noise.items()
    )
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.06)


@pytest.mark.parametrize("size", [9, 30])
def test_wide_numbers_are_merged_into_groups_of_about_equal_size(size):
    schema = Schema.from_dict({"x": {"type": "numeric", "lower": 0, "upper": 1, "bins": size}, "y": ["a", "b"]})
    counts = np.full(size, 100.0)
    levels = Levels.of(schema, {"x": counts})
    sizes = np.bincount(levels.groups[0])
    assert levels.sizes == (8, 2)
    assert sizes.max() - sizes.min() <= 1


def test_wide_names_keep_the_most_frequent_and_a_rest():
    schema = Schema.from_dict({"x": [f"l{i}" for i in range(12)], "y": ["a", "b"]})
    counts = np.array([5, 900, 4, 800, 3, 700, 2, 600, 1, 500, 0, 400], dtype=float)
    groups = Levels.of(schema, {"x": counts}).groups[0]
    assert len({int(groups[i]) for i in (1, 3, 5, 7, 9, 11)}) == 6
    assert len({int(groups[i]) for i in (2, 4, 6, 8, 10)}) == 1


def test_counting_in_portions_gives_the_same_residuals(collider_rows, collider_schema, monkeypatch):
    levels = Levels.of(collider_schema, {})
    event = release_event(1.0, ROWS, numbers=100)

    def once() -> np.ndarray:
        table = PrivateTable(collider_rows, collider_schema)
        return measure(table, levels, SCOPES, event, purse(4), rows=20_000).values

    whole = once()
    monkeypatch.setattr("escudo.discovery._measurement.CELLS_AT_ONCE", 1)
    np.testing.assert_array_equal(whole, once())


def test_other_engines_give_the_same_release(collider_rows, collider_schema):
    import duckdb

    relation = duckdb.connect().from_arrow(collider_rows.to_arrow())
    levels = Levels.of(collider_schema, {})
    event = release_event(1.0, ROWS, numbers=100)
    found = [
        measure(PrivateTable(frame, collider_schema), levels, SCOPES, event, purse(4), rows=20_000).values
        for frame in (collider_rows, relation, collider_rows.lazy(), pl.DataFrame(collider_rows).to_pandas())
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
