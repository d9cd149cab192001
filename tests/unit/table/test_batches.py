from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.errors import InputError, RefusedError, SchemaError
from escudo.table._columns import Categorical, Numeric
from escudo.table._schema import Schema
from escudo.table._table import PrivateTable

SCHEMA = Schema((Categorical("ward", [7, 3, 5]), Numeric("age", 0, 100, 300, missing=True), Numeric("bmi", 10, 50, 4)))
ROWS = 1000
FRAME = pl.DataFrame(
    {
        "ward": [(7, 3, 5, 9)[i % 4] for i in range(ROWS)],
        "age": [None if i % 10 == 0 else float(i % 130) for i in range(ROWS)],
        "bmi": [math.nan if i % 7 == 0 else i % 60 for i in range(ROWS)],
    },
    strict=False,
)


def test_batches_have_the_asked_size_but_for_the_last() -> None:
    for size, sizes in ((300, [300, 300, 300, 100]), (500, [500, 500]), (5000, [1000]), (1, [1] * 1000)):
        assert [len(batch) for batch in PrivateTable(FRAME, SCHEMA).batches(size)] == sizes


def test_batches_hold_the_cells_of_the_named_columns_in_their_order() -> None:
    table = PrivateTable(FRAME, SCHEMA)
    cells = np.concatenate(list(table.batches(64, ["bmi", "ward"])))
    wanted = [SCHEMA[name].encode(FRAME[name].to_list()) for name in ("bmi", "ward")]
    np.testing.assert_array_equal(cells, np.column_stack(wanted))


def test_cells_come_in_the_smallest_type_that_fits() -> None:
    table = PrivateTable(FRAME, SCHEMA)
    assert next(table.batches(10, ["ward", "bmi"])).dtype == np.uint8
    assert next(table.batches(10)).dtype == np.uint16
    wide = Schema((Categorical("ward", range(256)),))
    assert next(PrivateTable(FRAME, wide).batches(10)).dtype == np.uint8
    wider = Schema((Categorical("ward", range(256), missing=True),))
    assert next(PrivateTable(FRAME, wider).batches(10)).dtype == np.uint16


def test_scaled_values_run_from_minus_one_to_one_and_are_nan_where_missing() -> None:
    scaled = np.concatenate(list(PrivateTable(FRAME, SCHEMA).batches(64, ["age", "bmi"], encode="scaled")))
    assert scaled.dtype == np.float64
    age = np.array(FRAME["age"].fill_null(math.nan))
    np.testing.assert_allclose(scaled[:, 0], np.clip(age, 0, 100) / 50 - 1, rtol=0, atol=1e-15)
    # Without a missing cell, missing values count as the middle of the range.
    bmi = np.nan_to_num(np.array(FRAME["bmi"]), nan=30.0)
    np.testing.assert_allclose(scaled[:, 1], (np.clip(bmi, 10, 50) - 30) / 20, rtol=0, atol=1e-15)


def test_scaled_values_lie_in_the_bin_of_their_cell() -> None:
    table = PrivateTable(FRAME, Schema((Numeric("age", 0, 100, 300), Numeric("bmi", 10, 50, 4))))
    cells = np.concatenate(list(table.batches(100)))
    scaled = np.concatenate(list(table.batches(100, encode="scaled")))
    for position, name in enumerate(table.columns):
        column = table.schema[name]
        assert isinstance(column, Numeric)
        low, high = column.bounds
        back = low + (scaled[:, position] + 1) / 2 * (high - low)
        edges = column.boundaries
        assert (back >= edges[cells[:, position]] - 1e-9).all()
        assert (back <= edges[cells[:, position] + 1] + 1e-9).all()


def test_a_categorical_column_has_no_scale() -> None:
    with pytest.raises(SchemaError, match="'ward' is categorical"):
        PrivateTable(FRAME, SCHEMA).batches(encode="scaled")


@pytest.mark.parametrize("size", [0, -5, 2.5, "many", True])
def test_the_size_must_be_a_positive_whole_number(size: Any) -> None:
    with pytest.raises(InputError, match="size"):
        PrivateTable(FRAME, SCHEMA).batches(size)


@pytest.mark.parametrize("columns", [[], "ward", 3, [3], ["wards"]])
def test_columns_must_be_names_of_the_schema(columns: Any) -> None:
    with pytest.raises(InputError):
        PrivateTable(FRAME, SCHEMA).batches(columns=columns)


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(InputError, match="'codes', 'scaled'"):
        PrivateTable(FRAME, SCHEMA).batches(encode="scales")  # type: ignore[arg-type]


def test_columns_still_to_be_learnt_are_refused() -> None:
    schema = Schema((Categorical("ward", confirmed=False), SCHEMA["age"]))
    with pytest.raises(RefusedError, match="'ward'"):
        PrivateTable(FRAME, schema).batches()


def test_a_lazy_polars_table_is_never_loaded_whole(tmp_path: Any) -> None:
    path = tmp_path / "rows.parquet"
    rows = 400_000
    pl.DataFrame({"ward": np.arange(rows) % 9}).write_parquet(path, row_group_size=10_000)
    largest = 0

    def spy(piece: pl.DataFrame) -> pl.DataFrame:
        nonlocal largest
        largest = max(largest, piece.height)
        return piece

    lazy = pl.scan_parquet(path).map_batches(spy, schema={"ward": pl.Int64}, streamable=True)
    sizes = [len(batch) for batch in PrivateTable(lazy, SCHEMA.select(["ward"])).batches(10_000)]
    assert sum(sizes) == rows
    assert 0 < largest < rows / 2


def test_a_duckdb_connection_is_free_again_once_the_batches_are_closed_or_used_up() -> None:
    connection = pytest.importorskip("duckdb").connect()
    connection.register("frame", FRAME.to_arrow())
    connection.execute("CREATE TABLE rows AS SELECT frame.* FROM frame, range(500)")
    table = PrivateTable(connection.table("rows"), SCHEMA)
    batches: Any = table.batches(1000)
    next(batches)
    batches.close()
    assert table.counts("ward").sum() == ROWS * 500
    assert sum(len(batch) for batch in table.batches(100_000)) == ROWS * 500
    assert table.counts("ward").sum() == ROWS * 500
