from __future__ import annotations

import math
from itertools import combinations, pairwise
from time import process_time
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest

from escudo.errors import InputError, RefusedError, SchemaError
from escudo.table import _counts, _rows
from escudo.table._columns import Categorical, Numeric
from escudo.table._frames import stream
from escudo.table._rows import Query
from escudo.table._schema import Schema
from escudo.table._table import PrivateTable

SCHEMA = Schema(
    (
        Categorical("smoke", ["no", "yes"], missing=True),
        Numeric("age", 0, 100, 4),
        Categorical("ward", [7, 3, 5], other=5),
    )
)
FRAME = pl.DataFrame(
    {
        "smoke": ["no", "yes", None, "maybe", "no"],
        "age": [10, 99, -4, 250, 50],
        "ward": [7, 3, 4, None, 7],
    }
)


@pytest.fixture
def table() -> PrivateTable:
    return PrivateTable(FRAME, SCHEMA)


def test_axes_come_in_the_given_order_and_levels_in_the_schemas(table: PrivateTable) -> None:
    counts = table.counts(["ward", "smoke"])
    assert counts.shape == (3, 3)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[2, 0, 0], [0, 1, 0], [0, 0, 2]]
    np.testing.assert_array_equal(table.counts(["smoke", "ward"]), counts.T)


def test_values_outside_the_schema_are_clamped_or_mapped_as_it_says(table: PrivateTable) -> None:
    assert table.counts("smoke").tolist() == [2, 1, 2]  # unknown and missing values share the missing cell
    assert table.counts("age").tolist() == [2, 0, 1, 2]  # below and above the bounds
    assert table.counts("ward").tolist() == [2, 1, 2]  # the level that unknown values count as


def test_one_name_one_sequence_and_several_tables_are_told_apart(table: PrivateTable) -> None:
    assert table.counts("age").shape == (4,)
    assert table.counts(["age"]).shape == (4,)
    assert table.counts(("age", "smoke")).shape == (4, 3)
    several = table.counts([("age", "smoke"), ("ward",), ["smoke", "age"]])
    assert [counts.shape for counts in several] == [(4, 3), (3,), (3, 4)]
    np.testing.assert_array_equal(several[2], several[0].T)
    mixed: Any = table.counts([("age",), "ward"])  # type: ignore[list-item]
    assert [counts.shape for counts in mixed] == [(4,), (3,)]


def test_the_same_table_may_be_asked_for_twice(table: PrivateTable) -> None:
    first, second = table.counts([("age", "ward"), ("age", "ward")])
    np.testing.assert_array_equal(first, second)
    first[:] = 0
    assert second.sum() == 5


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("shared_cells", [0, 1, 6, 12, 2**14])
def test_sharing_joint_tables_never_changes_a_count(
    monkeypatch: pytest.MonkeyPatch, shared_cells: int, engine: str
) -> None:
    monkeypatch.setattr(_counts, "_SHARED_CELLS", shared_cells)
    rng = np.random.default_rng(5)
    sizes = {"a": 2, "b": 3, "c": 2, "d": 5, "e": 1}
    cells = {name: rng.integers(0, size, 400) for name, size in sizes.items()}
    frame: Any = pl.DataFrame(cells)
    if engine == "duckdb":
        frame = pytest.importorskip("duckdb").from_arrow(frame.to_arrow())
    table = PrivateTable(frame, Schema(tuple(Categorical(name, range(size)) for name, size in sizes.items())))
    asked = [("a", "b"), ("c",), ("d", "a"), ("b", "a"), ("e", "d", "c"), ("a", "b", "c", "d", "e"), ("b",), ("a", "b")]
    for counts, names in zip(table.counts(asked), asked, strict=True):
        wanted = np.zeros([sizes[name] for name in names], dtype=np.int64)
        np.add.at(wanted, tuple(cells[name] for name in names), 1)
        np.testing.assert_array_equal(counts, wanted)


def first_fit(schema: Schema, tables: list[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    """Share spans by looking at each of the latest ones."""
    spans: list[set[str]] = []
    home = []
    for table in tables:
        near = range(max(len(spans) - _counts._LOOKED_AT, 0), len(spans))
        fits = (at for at in near if spans[at] >= {*table} or np.prod(schema.shape(spans[at] | {*table})) <= most)
        at = next(fits, len(spans))
        spans[at:] = [spans[at] | {*table}, *spans[at + 1 :]] if at < len(spans) else [{*table}]
        home.append(at)
    return [tuple(name for name in schema.names if name in spans[at]) for at in home]


def mixed(columns: int) -> Schema:
    return Schema(tuple(Numeric(f"c{i}", 0, 1, 20 if i % 3 == 0 else 2) for i in range(columns)))


def test_tables_share_the_first_of_the_latest_spans_that_has_room() -> None:
    schema, rng = mixed(40), np.random.default_rng(1)
    some = [tuple(rng.permutation(schema.names)[: rng.integers(1, 5)].tolist()) for _ in range(300)]
    for tables in ([*combinations(schema.names, 2)][:400], some):
        assert _counts._shared(schema, tables, most_cells=2**14) == first_fit(schema, tables, 2**14)


def test_very_many_tables_find_their_spans_in_no_time() -> None:
    """Most spans are passed by at a glance: looking at each took a third of a release of 400 columns."""
    schema = mixed(200)
    tables = [*combinations(schema.names, 2)]
    before = process_time()
    for _ in range(20_000):
        math.prod(size for size in (2, 20) if size)
    measure, before = process_time() - before, process_time()
    _counts._shared(schema, tables, most_cells=2**14)
    assert process_time() - before < 200 * measure  # 80, and 400 to 500 where each span was looked at


def test_many_tables_over_many_columns_are_counted_at_once() -> None:
    duckdb = pytest.importorskip("duckdb")
    names = [f"x{i}" for i in range(70)]
    cells = np.random.default_rng(1).integers(0, 2, (50, 70))
    frame = pl.DataFrame(cells, schema=names)
    schema = Schema(tuple(Categorical(name, [0, 1]) for name in names))
    asked = list(pairwise(names))
    for source in (frame, duckdb.from_arrow(frame.to_arrow())):
        for i, counts in enumerate(PrivateTable(source, schema).counts(asked)):
            assert counts[1, 1] == (cells[:, i] & cells[:, i + 1]).sum()
            assert counts.sum() == 50


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_very_many_pairs_are_counted_alike_by_matrix_products(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"x{i}" for i in range(50)]
    cells = np.random.default_rng(1).integers(0, 3, (700, 50))
    frame: Any = pl.DataFrame(cells, schema=names)
    if engine == "duckdb":
        frame = pytest.importorskip("duckdb").from_arrow(frame.to_arrow())
    table = PrivateTable(frame, Schema(tuple(Categorical(name, range(3 + i % 2)) for i, name in enumerate(names))))
    asked = [*combinations(names, 2), ("x9", "x4"), ("x7",), ("x1", "x2", "x3")]
    monkeypatch.setattr(_counts, "add_pairs", Mock(wraps=_counts.add_pairs))
    found = table.counts(asked)
    assert _counts.add_pairs.called  # type: ignore[attr-defined]
    monkeypatch.setattr(_counts, "_MANY_PAIRS", 10**6)
    for ours, theirs in zip(found, table.counts(asked), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("levels", [[-1, 2, 300], [126, 127], [2**53 - 1, 1 - 2**53, 5], [5], [-3]])
@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int64, pl.UInt64, pl.Int128, pl.Float32, pl.Float64])
def test_levels_beyond_a_types_reach_are_never_met(dtype: Any, levels: list[int], engine: str) -> None:
    numbers = pl.Series([0, 2, 5, 126, 127, None], dtype=dtype)
    if dtype in (pl.UInt64, pl.Int128):
        numbers = numbers.extend(pl.Series([2**53 - 1, 2**53, 2**64 - 1], dtype=dtype))
    elif dtype in (pl.Int8, pl.Int64):
        numbers = numbers.extend(pl.Series([-1, -3, -128], dtype=dtype))
    source: Any = pl.DataFrame({"x": numbers})
    if engine == "duckdb":
        connection = pytest.importorskip("duckdb").connect()
        plain = source.cast(pl.UInt64) if dtype == pl.Int128 else source
        source = connection.from_arrow(plain.to_arrow())
        if dtype == pl.Int128:
            source = source.select("x::HUGEINT AS x")
    for missing in (False, True):
        for other in (None, levels[-1]):
            column = Categorical("x", levels, missing=missing, other=other)
            wanted = np.bincount(column.encode(numbers.to_list()), minlength=column.size)
            np.testing.assert_array_equal(PrivateTable(source, Schema((column,))).counts("x"), wanted)


def test_an_unknown_column_is_refused_with_the_closest_one(table: PrivateTable) -> None:
    with pytest.raises(SchemaError, match=r"no column 'smokes'.*Did you mean 'smoke'"):
        table.counts(["age", "smokes"])


@pytest.mark.parametrize("columns", [[], [()], [("age",), ()]])
def test_no_column_is_refused(table: PrivateTable, columns: Any) -> None:
    with pytest.raises(InputError, match="at least one column"):
        table.counts(columns)


def test_a_repeated_column_is_refused(table: PrivateTable) -> None:
    with pytest.raises(InputError, match="names 'age' twice"):
        table.counts(["age", "smoke", "age"])


@pytest.mark.parametrize("columns", [3, None, [3], [["age", 3]], b"age"])
def test_what_names_no_columns_is_refused(table: PrivateTable, columns: Any) -> None:
    with pytest.raises(InputError, match="columns must be"):
        table.counts(columns)


def test_the_person_id_cannot_be_counted() -> None:
    schema = Schema(SCHEMA.fields, person_id="who", max_rows_per_person=2)
    table = PrivateTable(FRAME.with_columns(who=1), schema)
    with pytest.raises(SchemaError, match="'who' is the person id"):
        table.counts(["age", "who"])


def test_a_table_of_too_many_cells_is_refused_with_the_columns_sizes() -> None:
    fields = tuple(Numeric(name, 0, 1, 1000) for name in "abc")
    table = PrivateTable(pl.DataFrame({name: [0.5] for name in "abc"}), Schema(fields))
    with pytest.raises(InputError, match=r"1,000,000,000 cells.*'a': 1,000, 'b': 1,000, 'c': 1,000"):
        table.counts(["a", "b", "c"])
    assert table.counts(["a", "b"]).sum() == 1


def test_columns_still_to_be_learnt_are_refused() -> None:
    schema = Schema((Categorical("smoke", confirmed=False), Numeric("age", 0, 100, 4)))
    table = PrivateTable(FRAME, schema)
    assert table.counts("age").sum() == 5
    with pytest.raises(RefusedError, match="'smoke' has no levels yet"):
        table.counts("smoke")
    by_person = Schema(schema.fields, person_id="ward", max_rows_per_person=1)
    with pytest.raises(RefusedError, match="'smoke' has no levels yet"):
        PrivateTable(FRAME, by_person).counts("age")


def test_values_without_end_leave_the_engine_as_no_more_than_the_schema_has_cells() -> None:
    frame = pl.DataFrame({"x": [f"value {i}" for i in range(5000)], "y": range(5000), "z": np.linspace(-9, 9, 5000)})
    schema = Schema((Categorical("x", ["a"], missing=True), Categorical("y", [3, 1]), Numeric("z", 0, 1, 2)))
    table = PrivateTable(frame, schema)
    encoded = Query(schema, schema.names).encoded(table._source).to_native().collect()
    assert all(
        encoded[code].n_unique() <= schema[name].size + 1
        for name, code in zip(schema.names, encoded.columns, strict=True)
    )
    assert encoded.dtypes[0] == pl.UInt8
    assert table.counts(["x", "y", "z"]).sum() == 5000


@pytest.mark.parametrize("engine", ["polars", "duckdb", "pandas"])
@pytest.mark.parametrize("person_id", [None, "who"])
def test_however_many_tables_are_asked_for_the_rows_are_read_once(
    engine: str, person_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, names = 300, [f"x{i}" for i in range(40)]
    cells = np.random.default_rng(1).integers(0, 3, (rows, 40))
    frame: Any = pl.DataFrame(cells, schema=names).with_columns(who=pl.arange(rows) // 2)
    if engine == "duckdb":
        frame = pytest.importorskip("duckdb").from_arrow(frame.to_arrow())
    elif engine == "pandas":
        frame = frame.to_pandas()
    schema = Schema(
        tuple(Categorical(name, [0, 1, 2]) for name in names),
        person_id=person_id,
        max_rows_per_person=None if person_id is None else 2,
    )
    table = PrivateTable(frame, schema)
    read: list[int] = []

    def spy(frame: Any, size: int) -> Any:
        for piece in stream(frame, size):
            read.append(piece.height)
            yield piece

    monkeypatch.setattr(_rows, "stream", spy)
    counted = table.counts([*pairwise(names), *zip(names, names[1:], names[2:], strict=False)])
    assert sum(read) == rows
    assert all(counts.sum() == rows for counts in counted)


@pytest.mark.parametrize("rows", [0, 1, 64, 300, 40_000])
def test_pairs_are_counted_without_the_last_levels_as_by_hand(rows: int) -> None:
    """Also of columns with one level, with levels that no row has, and some rows at a time."""
    sizes = [1, 2, 5, 1, 3]
    cells = [np.random.default_rng(i).integers(0, max(size - i % 2, 1), rows) for i, size in enumerate(sizes)]
    wanted = np.full((sum(sizes), sum(sizes)), 7, dtype=np.int64)
    total = wanted.copy()
    starts = np.cumsum([0, *sizes[:-1]])
    for row in range(rows):
        places = [start + column[row] for start, column in zip(starts, cells, strict=True)]
        wanted[np.ix_(places, places)] += 1
    _counts.add_pairs(total, cells, sizes)
    np.testing.assert_array_equal(total, wanted)
