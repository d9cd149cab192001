"""Whatever a single value is, it falls into one cell or belongs to one person, alike on every engine; none is an error.

What a row adds to a count depends on that row alone: it is the cell that the reference encoder finds for it. So one row
moves a table by one row, and one person by at most the rows that count, whatever values they bring.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.table import Categorical, Numeric, PrivateTable, Schema
from escudo.table._persons import person_key

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")


class Hostile:
    """Fails at whatever it is asked."""

    def _no(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    __eq__ = __ne__ = __hash__ = __float__ = __str__ = __repr__ = __bool__ = _no  # type: ignore[assignment]
    __int__ = __index__ = __lt__ = __gt__ = __len__ = __iter__ = _no  # type: ignore[assignment]


class Flatterer:
    """Claims to be the level "a"."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("a")


class Nameless:
    """Does not even say of what class it is."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


class Number(int):
    """A number that is 1 but fails to compare."""

    __hash__ = __eq__ = __float__ = __index__ = Hostile._no  # type: ignore[assignment]


ODD: list[Any] = [
    *[None, math.nan, math.inf, -math.inf, -0.0, 0.5, 2**53 - 1, 2**53, 2.0**53, 2**53 + 1, 10**30, -(10**5000)],
    *map(Decimal, ["NaN", "sNaN", "-Infinity", "1", "1.0", "0.1", "1e999999999", "-1e-999999999", "0e-999999999"]),
    *[Fraction(1, 3), Fraction(10**400), 1 + 0j, 1 + 1j, complex(math.nan, 0), Number(1), True, 1, 1.0],
    *[b"a", bytearray(b"a"), memoryview(b"a"), uuid.UUID(int=1), datetime.date(2020, 1, 1), Ellipsis, range(3)],
    *[[1], [], ["a", "b"], (1, 2), {"a": 1}, {1}, np.array([1]), np.array([1, 2]), np.array(1)],
    *[np.float16(1), np.float32(0.5), np.longdouble(1), np.longdouble("inf"), np.int8(1), np.uint64(2**64 - 1)],
    *[np.bool_(True), np.str_("a"), np.bytes_(b"a"), np.complex64(1), np.complex128(1j)],
    *[np.datetime64("NaT"), np.datetime64(1, "s"), np.timedelta64(1, "s"), pd.NA, pd.NaT, pd.Timestamp(1)],
    *["a", "", "1", "\0", "\x001", "\0n1", "\ud800", "\udfff", "é", "e\u0301", "x" * 10_000],
    *[Hostile(), Flatterer(), Nameless(), object(), type, slice(1)],
]

COLUMNS = (
    Categorical("text", ["a", "b"], missing=True),
    Categorical("other", ["a", "b"], other="b"),
    Categorical("loosely", ["A ", "B"], missing=True, loose=True, recode={" É": "B", "": "A "}),
    Categorical("whole", [0, 1, 2], missing=True),
    Categorical("flag", [False, True]),
    Numeric("real", 0, 10, 5, missing=True),
    Numeric("filled", 0, 10, 5),
)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Dask in this thread, and leaving objects as they are: by default it turns them into text itself."""
    with dask.config.set({"scheduler": "synchronous", "dataframe.convert-string": False}):
        yield


def _objects(values: list[Any]) -> Any:
    return pd.Series(np.fromiter(values, dtype=object, count=len(values)), dtype=object)


def _pandas(columns: dict[str, list[Any]]) -> Any:
    return pd.DataFrame({name: _objects(values) for name, values in columns.items()})


def _polars(columns: dict[str, list[Any]]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(name, values, dtype=pl.Object) for name, values in columns.items()])


def _dask(columns: dict[str, list[Any]]) -> Any:
    """Three partitions, and one in the middle that is empty."""
    frame = _pandas(columns)
    size = len(frame) // 3 + 1
    parts = [frame.iloc[start : start + size] for start in range(0, 3 * size, size)]
    parts.insert(1, frame.iloc[:0])
    delayed = [dask.delayed(lambda part=part: part, pure=False)() for part in parts]
    return dd.from_delayed(delayed, meta=frame.iloc[:0], verify_meta=False)


OBJECTS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": _pandas,
    "polars": _polars,
    "polars lazy": lambda columns: _polars(columns).lazy(),
    "dask": _dask,
}


@pytest.mark.parametrize("engine", OBJECTS)
def test_every_object_falls_into_the_cell_of_the_reference(engine: str) -> None:
    frame = OBJECTS[engine]({column.name: ODD for column in COLUMNS})
    table = PrivateTable(frame, Schema(COLUMNS))
    assert table.record_count() == len(ODD)
    counted = table.counts([[column.name] for column in COLUMNS])
    for column, counts in zip(COLUMNS, counted, strict=True):
        assert counts.tolist() == np.bincount(column.encode(ODD), minlength=column.size).tolist()
        assert sum(rows for _, rows in table.value_counts(column.name)) <= len(ODD)
    cells = np.concatenate(list(table.batches(7)))
    assert cells.tolist() == np.column_stack([column.encode(ODD) for column in COLUMNS]).tolist()


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_the_reference_reads_each_value_by_itself(column: Any) -> None:
    together = column.encode(ODD)
    assert together.tolist() == [int(column.encode([value])[0]) for value in ODD]
    ones = [value for value in ODD if type(value) in (int, float, bool, complex) and value == 1]
    read = column.encode([*ones, Decimal(1), Decimal("1.0"), Fraction(1), np.float16(1), np.bool_(True), Number(1)])
    assert len(set(read.tolist())) == 1


@pytest.mark.parametrize("kind", [complex, "M8[ns]", "m8[ns]", "S1", "U1", "f2", "g"])
def test_arrays_of_any_type_are_read(kind: Any) -> None:
    array = np.ones(3).astype(kind) if np.dtype(kind).kind not in "mM" else np.array([1, 1, "NaT"], dtype=kind)
    number = np.dtype(kind).kind in "cf"
    assert Categorical("x", [0, 1, 2], missing=True).encode(array).tolist() == ([1] * 3 if number else [3] * 3)
    assert Numeric("x", 0, 10, 5, missing=True).encode(array).tolist() == ([0] * 3 if number else [5] * 3)


# ---------------------------------------------------------------------------------------------------------------------
# Types


NUMBERS = [0, 1, 1, 2, 0]
VARIANTS: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: pd.Series(NUMBERS, dtype=kind) for kind in ("int8", "uint64", "int64", "Int16")},
    **{kind: lambda kind=kind: pd.Series(NUMBERS, dtype=kind) for kind in ("float16", "float32", "float64", "Float64")},
    **{kind: lambda kind=kind: pd.Series(NUMBERS, dtype=kind) for kind in ("object", "complex128", "category")},
    "arrow": lambda: pd.Series(NUMBERS, dtype="int64[pyarrow]"),
    "decimals": lambda: pd.Series([Decimal(number) for number in NUMBERS], dtype=object),
    "categories of objects": lambda: pd.Series(NUMBERS, dtype=object).astype("category"),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("more", [[], [None], ["text"], [2.5], [True], [1 + 1j], [Decimal("sNaN")]], ids=repr)
def test_how_pandas_stores_numbers_does_not_matter(variant: str, more: list[Any]) -> None:
    """One value may turn whole numbers into floats, objects or complex numbers: the others count as they did."""
    series = pd.concat([VARIANTS[variant](), _objects(more)], ignore_index=True) if more else VARIANTS[variant]()
    fields = (Categorical("x", [0, 1, 2], missing=True), Numeric("x", 0, 3, 3, missing=True))
    for column in (*fields, Categorical("x", [False, True], missing=True)):
        counts = PrivateTable(pd.DataFrame({"x": series}), Schema((column,))).counts("x")
        wanted = np.bincount(column.encode([*NUMBERS, *more]), minlength=column.size)
        assert counts.tolist() == wanted.tolist()


@pytest.mark.parametrize("engine", OBJECTS)
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_the_first_row_does_not_decide_over_the_type_of_objects(engine: str, column: Any) -> None:
    """Narwhals takes objects for text if the first hundred are."""
    rest = ["y"] * 120
    seen = []
    for first in ("y", 7, None):
        table = PrivateTable(OBJECTS[engine]({column.name: [first, *rest]}), Schema((column,)))
        seen.append(table.counts(column.name) - np.bincount(column.encode([first]), minlength=column.size))
    assert seen[0].tolist() == seen[1].tolist() == seen[2].tolist()


def test_a_column_of_nothing_is_missing_whatever_type_it_has() -> None:
    frames = [
        pl.DataFrame({"x": [None] * 3}),
        pl.LazyFrame({"x": [None] * 3}),
        pd.DataFrame({"x": _objects([None] * 3)}),
        pa.table({"x": pa.nulls(3)}),
        duckdb.from_arrow(pa.table({"x": pa.nulls(3)})),
    ]
    for frame in frames:
        for column in (Categorical("x", ["a"], missing=True), Categorical("x", [1], missing=True)):
            assert PrivateTable(frame, Schema((column,))).counts("x").tolist() == [0, 3]
        assert PrivateTable(frame, Schema((Numeric("x", 0, 1, 1, missing=True),))).counts("x").tolist() == [0, 3]
        copy = {"pandas": lambda f: f.assign(y="a"), "polars": lambda f: f.with_columns(y=pl.lit("a"))}
        engine = PrivateTable(frame, Schema((Numeric("x", 0, 1, 1),))).engine
        if engine in copy:
            by_person = Schema((Categorical("y", ["a"]),), person_id="x", max_rows_per_person=1)
            assert PrivateTable(copy[engine](frame), by_person).counts("y").tolist() == [0]


# ---------------------------------------------------------------------------------------------------------------------
# People


def _by_person(rows: int = 1) -> Schema:
    return Schema((Categorical("x", ["a"]),), person_id="id", max_rows_per_person=rows)


def _people(frame: Any, seed: int = 0) -> tuple[int, int, list[int]]:
    """How many rows count, how many people there are, and their hashes."""
    table = PrivateTable(frame, _by_person(), sample_seed=seed)
    hashes = [whose for _, whose in table.person_batches(3)]
    return int(table.counts("x").sum()), table.record_count(), sorted(np.concatenate([[], *hashes]).tolist())


@pytest.mark.parametrize("engine", OBJECTS)
def test_odd_ids_are_the_same_people_in_every_engine(engine: str) -> None:
    ids = [*ODD, *reversed(ODD)]
    people = len({key for key in map(person_key, ids) if key is not None})
    kept, counted, hashes = _people(OBJECTS[engine]({"x": ["a"] * len(ids), "id": ids}))
    assert kept == counted == len(hashes) == people
    assert hashes == _people(_pandas({"x": ["a"] * len(ids), "id": ids}))[2]


def test_keys_are_equal_exactly_where_ids_are() -> None:
    classes: list[list[Any]] = [
        [1, 1.0, True, Decimal(1), Decimal("1.00"), Fraction(1), np.int8(1), np.float16(1), np.bool_(True), 1 + 0j],
        [0, -0.0, 0.0, False, Decimal("0e999999999"), Decimal("-0")],
        [0.5, Decimal("0.5"), Fraction(1, 2), np.float32(0.5), np.longdouble(0.5)],
        *([value] for value in (0.1, Decimal("0.1"), np.float32(0.1), Fraction(1, 10**9), -1, 10**5000, 10**5000 + 1)),
        [10**30, Decimal("1e30"), Decimal(10**30), Fraction(10**30)],
        *([value] for value in (2**53, 2**53 + 1, 2**64, 18, "12", "\0n12", "\x0012")),
        *([value] for value in ("1", "\x001", "\0n1", "\0t", "\0t31", "\ud800", "\udfff", "", "\0", "é", "e\u0301")),
        ["a", np.str_("a")],
        [b"a", bytearray(b"a"), np.bytes_(b"a")],
        *(
            [value]
            for value in (b"", b"\1", uuid.UUID(int=1), uuid.UUID(int=2), "00000000-0000-0000-0000-000000000001")
        ),
    ]
    keys = [{person_key(value) for value in equal} for equal in classes]
    assert all(len(found) == 1 and None not in found for found in keys)
    assert len(set().union(*keys)) == len(classes)


def test_what_is_no_id_has_no_key() -> None:
    nobody: list[Any] = [
        *[None, math.nan, math.inf, 2.0**53, -1e300, np.float32(2**24), np.float16(2**11), np.longdouble("inf")],
        *map(Decimal, ["NaN", "sNaN", "Infinity", "1e999999999", "1e-999999999"]),
        *[10**7000, Fraction(1, 10**7000), 1j, complex(2**53, 0), pd.NA, pd.NaT, datetime.date(2020, 1, 1)],
        *[(1,), [1], {"a": 1}, np.array(["a"]), object(), Hostile(), Nameless(), Flatterer()],
    ]
    assert [place for place, value in enumerate(nobody) if person_key(value) is not None] == []


@given(st.lists(st.one_of(st.text(max_size=3), st.integers(), st.floats(), st.decimals(), st.fractions(), st.binary())))
def test_keys_tell_apart_what_python_tells_apart(values: list[Any]) -> None:
    keyed = [(value, key) for value in values if (key := person_key(value)) is not None]
    for value, key in keyed:
        for other, its_key in keyed:
            assert (value == other) == (key == its_key)


FLOATS = [3.0, 2.0**11 - 1, 2.0**11, 2.0**24 - 1, 2.0**24, 2.0**53 - 1, 2.0**53, -(2.0**53), 1e300, math.inf, math.nan]
FLOAT_FRAMES: dict[str, Callable[[Any], Any]] = {
    "polars": lambda frame: frame,
    "polars lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "pandas nullable": lambda frame: frame.to_pandas(use_pyarrow_extension_array=True),
    "pyarrow": lambda frame: frame.to_arrow(),
    "duckdb": lambda frame: duckdb.from_arrow(frame.to_arrow()),
    "dask": lambda frame: dd.from_pandas(frame.to_pandas(), npartitions=2),
}


@pytest.mark.parametrize("engine", FLOAT_FRAMES)
@pytest.mark.parametrize(("dtype", "people"), [(pl.Float64, 6), (pl.Float32, 4)])
def test_floats_that_merge_whole_numbers_are_nobody(engine: str, dtype: Any, people: int) -> None:
    ids = pl.Series(FLOATS, dtype=pl.Float64).cast(dtype)  # as float32, 2^53 - 1 is 2^53
    frame = pl.DataFrame({"x": ["a"] * len(FLOATS), "id": ids})
    kept, counted, hashes = _people(FLOAT_FRAMES[engine](frame))
    assert kept == counted == people
    whole = [int(value) for value in ids if abs(value) < (2**53 if dtype == pl.Float64 else 2**24)]
    exact = pl.DataFrame({"x": ["a"] * people, "id": whole}, schema_overrides={"id": pl.Int64})
    assert hashes == _people(exact)[2]


DECIMALS = ["1", "2.50", "2.5", "-1.5", "99999999999999999999999999.5", "99999999999999999999999999.25", None]


@pytest.mark.parametrize("engine", [name for name in FLOAT_FRAMES if name != "pandas"])
def test_decimal_ids_are_compared_exactly(engine: str) -> None:
    ids = pl.Series(DECIMALS, dtype=pl.String).cast(pl.Decimal(38, 2))
    frame = pl.DataFrame({"x": ["a"] * len(DECIMALS), "id": ids})
    if engine == "dask":
        arrow = frame.to_pandas(use_pyarrow_extension_array=True)
        kept, counted, hashes = _people(dd.from_pandas(arrow, npartitions=2))
    else:
        kept, counted, hashes = _people(FLOAT_FRAMES[engine](frame))
    assert kept == counted == 5
    objects = [None if text is None else Decimal(text) for text in DECIMALS]
    assert hashes == _people(_pandas({"x": ["a"] * len(DECIMALS), "id": objects}))[2]


def test_one_person_is_one_however_partitions_store_the_id() -> None:
    """Dask would shuffle 3, 3.0 and True, False as they are stored: to different partitions."""
    stored = [pd.Series([3, 0, 1]), pd.Series([3.0, math.nan, 0.0]), pd.Series([True, False]), _objects([3, "3", None])]
    frames = [
        pd.DataFrame({"x": _objects(["a"] * len(ids)), "id": ids}) for ids in [*stored, pd.Series([], dtype=object)]
    ]
    for meta in (frames[0], frames[3]):
        delayed = [dask.delayed(lambda part=part: part, pure=False)() for part in frames]
        frame = dd.from_delayed(delayed, meta=meta.iloc[:0], verify_meta=False)
        assert _people(frame)[:2] == (4, 4)  # 3, 0, 1 and "3"


@pytest.mark.parametrize("people", range(5))
def test_a_partition_without_rows_or_ids_is_no_error(people: int) -> None:
    for ids in ([f"p{i}" for i in range(people)], [None] * people):
        frame = _pandas({"x": ["a"] * people, "id": ids})
        parts = [frame.iloc[i : i + 1] for i in range(4)]
        delayed = [dask.delayed(lambda part=part: part, pure=False)() for part in parts]
        opened = dd.from_delayed(delayed, meta=frame.iloc[:0], verify_meta=False)
        assert _people(opened)[0] == sum(text is not None for text in ids)


# ---------------------------------------------------------------------------------------------------------------------
# Tables without rows


EMPTY = pl.DataFrame(schema={"x": pl.String, "n": pl.Float64, "id": pl.String, "who": pl.Int64})
EMPTY_FRAMES: dict[str, Callable[[], Any]] = {
    "polars": lambda: EMPTY,
    "polars lazy": lambda: EMPTY.lazy(),
    "pandas": lambda: EMPTY.to_pandas(),
    "pandas objects": lambda: EMPTY.to_pandas().astype(object),
    "pandas arrow": lambda: EMPTY.to_pandas(use_pyarrow_extension_array=True),
    "pyarrow": lambda: EMPTY.to_arrow(),
    "duckdb": lambda: duckdb.from_arrow(EMPTY.to_arrow()),
    "dask": lambda: dd.from_pandas(EMPTY.to_pandas(), npartitions=1),
}


@pytest.mark.parametrize("engine", EMPTY_FRAMES)
@pytest.mark.parametrize("person_id", [None, "id", "who"])
def test_a_table_without_rows_counts_nothing(engine: str, person_id: str | None) -> None:
    schema = Schema(
        (Categorical("x", ["a", "b"], missing=True), Numeric("n", 0, 1, 2)),
        person_id=person_id,
        max_rows_per_person=None if person_id is None else 2,
    )
    table = PrivateTable(EMPTY_FRAMES[engine](), schema)
    assert [counts.tolist() for counts in table.counts([("x",), ("n", "x")])] == [[0] * 3, [[0] * 3] * 2]
    assert list(table.batches()) == list(table.batches(columns=["n"], encode="scaled")) == []
    assert table.record_count() == 0
    assert table.value_counts("x") == []


# ---------------------------------------------------------------------------------------------------------------------
# Neighbours


places = st.integers(0, len(ODD) - 1)  # hypothesis would ask the values themselves


@given(
    rows=st.lists(st.tuples(places, places), max_size=4),
    added=st.tuples(places, places),
    engine=st.sampled_from(["pandas", "polars", "polars lazy"]),
)
def test_one_row_moves_counts_by_itself(rows: list[tuple[int, int]], added: tuple[int, int], engine: str) -> None:
    values, people = [ODD[place] for place, _ in rows], [ODD[place] for _, place in rows]
    odd, new = (ODD[place] for place in added)
    names = [column.name for column in COLUMNS]
    tables = [[name] for name in names] + [["text", "real"], ["whole", "flag", "other"]]

    def counted(rows: list[Any], people: list[Any], schema: Schema) -> Any:
        columns = {**dict.fromkeys(names, rows), "id": people}
        return np.concatenate([t.ravel() for t in PrivateTable(OBJECTS[engine](columns), schema).counts(tables)])

    own = counted([odd], [1], Schema(COLUMNS))
    before = counted(values, people, Schema(COLUMNS))
    assert (counted([*values, odd], [*people, new], Schema(COLUMNS)) == before + own).all()
    assert own.sum() == len(tables)

    known = {person_key(whose) for whose in people}
    if person_key(new) not in known:  # a new person: the others' rows stay as they were
        schema = Schema(COLUMNS, person_id="id", max_rows_per_person=1)
        before = counted(values, people, schema)
        after = counted([*values, odd], [*people, new], schema)
        assert (after == (before if person_key(new) is None else before + own)).all()
