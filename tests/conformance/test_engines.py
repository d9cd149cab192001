"""Every engine counts and encodes a table alike, to the last unit, and as the reference encoder says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from escudo.table import _counts, _frames
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._schema import Schema
from escudo.table._table import PrivateTable

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

ROWS = 700
TEXTS = ["no", "yes", "naïve", "nai\u0308ve", "Ωμέγα", "", "NO", "yes ", "o'clock", '"', "☕", "nan", "None", None]
TEXTS += ["\tYes\n", "   ", "\u00a0no", "NAÏVE", "Naïve ", "ωμέγα", "K", "k", "\u212a", "ſ", "S", "İ", "i", "ß", "SS"]
WHOLES = [-5, 3, 10, 0, 1, 2, 127, -128, None]
FLAGS = [True, False, None]
EDGES = [-2.5, -0.1, 0.3, 7.0]


def _around(numbers: list[float]) -> list[float | None]:
    near = [math.nextafter(x, side) for x in numbers for side in (-math.inf, math.inf)]
    return [*numbers, *near, math.inf, -math.inf, math.nan, None, -0.0, 0.0, 5e-324, 1e308, -1e308, 1.0]


TENTHS = Numeric("tenths", -0.3, 0.7, 10)
UNEVEN = Numeric("uneven", edges=EDGES)
REALS = _around([*TENTHS.boundaries.tolist(), *EDGES])


def _data(seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)

    def drawn(values: list[Any]) -> list[Any]:
        return [values[i] for i in rng.integers(0, len(values), ROWS)]

    return {
        "text": drawn(TEXTS),
        "whole": drawn(WHOLES),
        "flag": drawn(FLAGS),
        "real": drawn(REALS),
        "patient": drawn([*(i * 10_000_019 for i in range(-40, 60)), None]),
        "label": drawn([*(f"pätient {i}" for i in range(90)), None]),
    }


TYPES = {
    "text": pl.String,
    "whole": pl.Int16,
    "flag": pl.Boolean,
    "real": pl.Float64,
    "patient": pl.Int32,
    "label": pl.String,
}


def _polars(data: dict[str, list[Any]]) -> pl.DataFrame:
    return pl.DataFrame(data, schema=TYPES)


def _polars_dictionaries(data: dict[str, list[Any]]) -> pl.DataFrame:
    texts = pl.Enum(sorted({text for text in data["text"] if text is not None}, reverse=True))
    return _polars(data).cast({"text": texts, "label": pl.Categorical})


def _pandas_objects(data: dict[str, list[Any]]) -> Any:
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in data.items()})


def _pandas_nullable(data: dict[str, list[Any]]) -> Any:
    types = {"text": "string", "whole": "Int16", "flag": "boolean", "real": "Float64", "patient": "Int32"}
    return pd.DataFrame({name: pd.Series(values, dtype=types.get(name, "string")) for name, values in data.items()})


def _pandas_categories(data: dict[str, list[Any]]) -> Any:
    return _pandas_objects(data).astype(dict.fromkeys(("text", "whole", "flag", "label"), "category"))


def _arrow_dictionaries(data: dict[str, list[Any]]) -> Any:
    table = _polars(data).to_arrow()
    for position, name in enumerate(table.column_names):
        if name in {"text", "whole", "label"}:
            table = table.set_column(position, name, table[name].cast(_plain(name)).dictionary_encode())
    return table


def _plain(name: str) -> Any:
    return pa.int16() if name == "whole" else pa.string()


def _duckdb_table(data: dict[str, list[Any]]) -> Any:
    return duckdb.from_arrow(_polars(data).to_arrow())


def _duckdb_enum(data: dict[str, list[Any]]) -> Any:
    relation = _duckdb_table(data)
    kind = ", ".join("'" + text.replace("'", "''") + "'" for text in TEXTS if text is not None)
    return relation.select(
        f'"text"::ENUM({kind}) AS "text", whole::HUGEINT AS whole, flag, real, patient::DOUBLE AS patient, label'
    )


FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "polars": _polars,
    "polars lazy": lambda data: _polars(data).lazy(),
    "polars dictionaries": _polars_dictionaries,
    "polars wide": lambda data: _polars(data).cast({"whole": pl.Float32, "flag": pl.UInt8, "patient": pl.Float64}),
    "pandas": lambda data: _polars(data).to_pandas(),
    "pandas objects": _pandas_objects,
    "pandas nullable": _pandas_nullable,
    "pandas categories": _pandas_categories,
    "pandas arrow": lambda data: _polars(data).to_pandas(use_pyarrow_extension_array=True),
    "pyarrow": lambda data: _polars(data).to_arrow(),
    "pyarrow chunked": lambda data: pa.concat_tables([_polars(data)[:99].to_arrow(), _polars(data)[99:].to_arrow()]),
    "pyarrow dictionaries": _arrow_dictionaries,
    "duckdb": _duckdb_table,
    "duckdb enum": _duckdb_enum,
}


def _dask(data: dict[str, list[Any]]) -> Any:
    """Partitions of different types: some pandas takes from the values, and one is empty."""
    dask, dd = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
    frame = _pandas_objects(data)
    parts = [frame.iloc[:250].infer_objects(), frame.iloc[:0], frame.iloc[250:260].infer_objects(), frame.iloc[260:]]
    delayed = [dask.delayed(lambda part=part: part, pure=False)() for part in parts]
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_delayed(delayed, meta=frame.iloc[:0], verify_meta=False)


BY_PERSON = {**FRAMES, "dask": _dask}
"""Engines for whom it matters that all rows of a person come together."""


RECODE = {"no": "yes", "naïve": "(missing)", "": "(missing)", "Ωμέγα": "☕", "never": "yes"}


def _schemas() -> dict[str, tuple[Column, ...]]:
    """Name the columns that are tried together; each reads the frame's column of the same name."""
    texts = ["yes", "no", "naïve", "Ωμέγα", "", "☕", "o'clock"]
    return {
        "plain": (
            Categorical("text", texts),
            Categorical("whole", [0, 1, 2]),
            Categorical("flag", [False, True]),
            Numeric("real", -0.3, 0.7, 10),
        ),
        "missing": (
            Categorical("text", texts, missing=True),
            Categorical("whole", [10, -5, 3], missing=True),
            Categorical("flag", [True, False], missing=True),
            Numeric("real", -0.3, 0.7, 10, missing=True),
        ),
        "other": (
            Categorical("text", texts, other="no"),
            Categorical("whole", [127, 126, 125], other=126),
            Categorical("flag", [True, False], other=True),
            Numeric("real", edges=EDGES, fill=0.1),
        ),
        "missing and other": (
            Categorical("text", texts, missing=True, other=""),
            Categorical("whole", [-128, 300, 2], missing=True, other=300),
            Categorical("flag", [False, True], missing=True, other=False),
            Numeric("real", edges=EDGES, missing=True),
        ),
        "recoded": (
            Categorical("text", ["yes", "☕"], missing=True, other="☕", recode=RECODE),
            Categorical("whole", [0, 1, 2], missing=True),
            Categorical("flag", [False, True]),
            Numeric("real", -0.3, 0.7, 10),
        ),
        "recoded without a cell for missing": (
            Categorical("text", ["yes", "☕"], recode={"no": "☕", "": "yes", "never": "yes"}),
            Categorical("whole", [0, 1, 2]),
            Categorical("flag", [False, True]),
            Numeric("real", -0.3, 0.7, 10),
        ),
        "by their first letters": (
            Categorical(
                "text",
                ["na", "Ωμ", "☕", "anything", ""],
                prefix=2,
                missing=True,
                other="anything",
                recode={"N": "na", "o'": "☕", "naïve": "Ωμ", "yes": "(missing)", "never": "☕"},
            ),
            Categorical("whole", [0, 1, 2], missing=True),
            Categorical("flag", [False, True]),
            Numeric("real", -0.3, 0.7, 10),
        ),
        "loosely": (
            Categorical(
                "text",
                ["Yes", "NAïve", "k ", "☕", "İ"],
                loose=True,
                missing=True,
                other="☕",
                recode={"No": "Yes", " ": "(missing)", "ſ": "k ", "NAI\u0308VE": "İ"},
            ),
            Categorical("whole", [0, 1, 2], missing=True),
            Categorical("flag", [False, True]),
            Numeric("real", -0.3, 0.7, 10),
        ),
        "loosely by their first letters": (
            Categorical(
                "text",
                ["NA", "Ωμ ", "S", "Anything", ""],
                loose=True,
                prefix=2,
                other="Anything",
                recode={"NAÏVE": "S", "n": "NA", "o'": "", "Yes": "Ωμ "},
            ),
            Categorical("whole", [0, 1, 2], missing=True),
            Categorical("flag", [False, True]),
            Numeric("real", -0.3, 0.7, 10),
        ),
        "other kinds": (
            Categorical("text", ["absent"]),
            Categorical("whole", [False, True]),
            Categorical("flag", [1, 0, 7], missing=True),
            Numeric("real", 0, 1, 1),
        ),
        "numbers": (
            Categorical("text", ["no", "yes"]),
            Numeric("whole", -7, 11, 6, missing=True),
            Numeric("flag", 0, 1, 2),
            Categorical("real", [0, 1], missing=True),
        ),
    }


SCHEMAS = _schemas()
TABLES = [("text", "flag"), ("whole", "real", "text"), ("whole",), ("flag", "text"), ("real", "whole", "flag", "text")]


def _expected(columns: tuple[Column, ...], data: dict[str, list[Any]], table: tuple[str, ...]) -> Any:
    """Count by the reference encoder, value by value."""
    named = {column.name: column for column in columns}
    counts = np.zeros([named[name].size for name in table], dtype=np.int64)
    np.add.at(counts, tuple(named[name].encode(data[name]) for name in table), 1)
    return counts


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_counts_as_the_reference_does(engine: str, kind: str) -> None:
    data, columns = _data(), SCHEMAS[kind]
    table = PrivateTable(FRAMES[engine](data), Schema(columns))
    for counted, wanted in zip(table.counts(TABLES), TABLES, strict=True):
        assert counted.dtype == np.int64
        np.testing.assert_array_equal(counted, _expected(columns, data, wanted))


def test_a_column_of_very_many_texts_is_read_alike_by_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no keys there: its texts are compared one by one."""
    monkeypatch.setattr(_frames, "_MOST_IN_SQL", 0)
    for kind, columns in SCHEMAS.items():
        for engine in ("duckdb", "duckdb enum"):
            table = PrivateTable(FRAMES[engine](_data(8)), Schema(columns))
            for counted, wanted in zip(table.counts(TABLES), TABLES, strict=True):
                np.testing.assert_array_equal(counted, _expected(columns, _data(8), wanted), err_msg=kind)


def many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pairs counted as very many of them are: by matrix products."""
    monkeypatch.setattr(_counts, "_MANY_PAIRS", 2)
    monkeypatch.setattr(_counts, "_FOR_A_PAIR", 2**20)


@pytest.mark.parametrize("person_id", [None, "patient"])
def test_every_engine_counts_very_many_pairs_alike(person_id: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    data = _data(4)
    unit = {} if person_id is None else {"person_id": person_id, "max_rows_per_person": 2}
    schema = Schema(SCHEMAS["missing and other"], **unit)
    wanted = PrivateTable(FRAMES["polars"](data), schema).counts(TABLES)
    many_pairs(monkeypatch)
    for engine in ("polars", "pandas objects", "pyarrow dictionaries", "duckdb", "dask"):
        counted = PrivateTable(BY_PERSON[engine](data), schema).counts(TABLES)
        for counts, expected in zip(counted, wanted, strict=True):
            np.testing.assert_array_equal(counts, expected, err_msg=engine)


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_streams_the_cells_of_the_reference(engine: str, kind: str) -> None:
    data, columns = _data(1), SCHEMAS[kind]
    table = PrivateTable(FRAMES[engine](data), Schema(columns))
    wanted = np.column_stack([column.encode(data[column.name]) for column in columns])
    np.testing.assert_array_equal(_sorted(np.concatenate(list(table.batches(256)))), _sorted(wanted))


@pytest.mark.parametrize("person_id", ["patient", "label"])
@pytest.mark.parametrize("kind", ["plain", "missing", "missing and other", "numbers", "loosely"])
def test_every_engine_keeps_the_same_rows_of_each_person(kind: str, person_id: str) -> None:
    data = _data(2)
    schema = Schema(SCHEMAS[kind], person_id=person_id, max_rows_per_person=2)
    reference = PrivateTable(FRAMES["polars"](data), schema)
    wanted = reference.counts(TABLES)
    rows = _sorted(np.concatenate(list(reference.batches(100))))
    for engine, build in BY_PERSON.items():
        table = PrivateTable(build(data), schema)
        for counted, expected in zip(table.counts(TABLES), wanted, strict=True):
            np.testing.assert_array_equal(counted, expected, err_msg=engine)
        np.testing.assert_array_equal(_sorted(np.concatenate(list(table.batches(100)))), rows, err_msg=engine)


def _sorted(rows: Any) -> Any:
    return rows[np.lexsort(np.nan_to_num(rows, nan=9).T)]


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_scales_numbers_alike(engine: str) -> None:
    data = _data(3)
    schema = Schema((Numeric("real", -0.3, 0.7, 10, missing=True), Numeric("whole", -7, 11, 6, fill=2)))
    table = PrivateTable(FRAMES[engine](data), schema)
    reals = np.array([math.nan if x is None else x for x in data["real"]])
    wholes = np.array([2.0 if x is None else x for x in data["whole"]])
    scaled = np.concatenate(list(table.batches(128, encode="scaled")))
    wanted = np.column_stack([2 * (np.clip(reals, -0.3, 0.7) + 0.3) - 1, 2 * (np.clip(wholes, -7, 11) + 7) / 18 - 1])
    np.testing.assert_allclose(_sorted(scaled.round(12)), _sorted(wanted.round(12)), rtol=0, atol=1e-12)
    assert np.nanmin(scaled[:, 0]) == -1.0
    assert np.nanmax(scaled[:, 0]) == 1.0


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_puts_numbers_and_ordered_levels_on_the_way_from_0_to_1(engine: str) -> None:
    data = _data(4)
    ordered = Categorical("whole", [0, 1, 2], ordered=True, missing=True)
    schema = Schema((Numeric("real", -0.3, 0.7, 10), ordered, Categorical("flag", [False, True], missing=True)))
    table = PrivateTable(FRAMES[engine](data), schema)
    shares = np.concatenate(list(table.batches(128, encode="shares")))
    reals = np.array([0.2 if x is None or math.isnan(x) else x for x in data["real"]])
    wholes = np.array([{0: 0.0, 1: 0.5, 2: 1.0}.get(x, math.nan) for x in data["whole"]])
    flags = np.array([math.nan if x is None else float(x) for x in data["flag"]])
    wanted = np.column_stack([np.clip(reals, -0.3, 0.7) + 0.3, wholes, flags])
    np.testing.assert_allclose(_sorted(shares.round(12)), _sorted(wanted.round(12)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("person_id", ["patient", "label"])
def test_every_engine_hashes_people_alike_and_counts_them(person_id: str) -> None:
    data = _data(5)
    schema = Schema(SCHEMAS["missing"], person_id=person_id, max_rows_per_person=3)
    people = len({whose for whose in data[person_id] if whose is not None})
    reference = None
    for engine, build in BY_PERSON.items():
        table = PrivateTable(build(data), schema)
        assert table.record_count() == people, engine
        pairs = list(table.person_batches(100, ["whole", "flag"]))
        rows = np.column_stack([np.concatenate([whose for _, whose in pairs]), np.concatenate([a for a, _ in pairs])])
        assert rows[:, 0].min() >= 0
        assert np.unique(rows[:, 0], return_counts=True)[1].max() <= 3
        assert np.unique(rows[:, 0]).size == people
        reference = _sorted(rows) if reference is None else reference
        np.testing.assert_array_equal(_sorted(rows), reference, err_msg=engine)


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_counts_rows_and_values_as_they_are_stored(engine: str) -> None:
    data = _data(6)
    table = PrivateTable(FRAMES[engine](data), Schema((Categorical("text", ["no"]), Numeric("whole", 0, 1, 2))))
    assert table.record_count() == ROWS
    texts = [text for text in data["text"] if text is not None]
    assert dict(table.value_counts("text")) == {text: texts.count(text) for text in texts}
    wholes = [whole for whole in data["whole"] if whole is not None]
    if engine not in ("pandas objects", "pandas categories"):  # of Python objects only texts are counted
        found = {int(value): rows for value, rows in table.value_counts("whole") if value == value}
        assert found == {whole: wholes.count(whole) for whole in wholes}


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_counts_columns_that_are_cut_anew(engine: str) -> None:
    data, coarse = _data(7), Schema(SCHEMAS["plain"], person_id="patient", max_rows_per_person=4)
    fine = Numeric("real", -0.3, 0.7, 40, missing=True)
    table = PrivateTable(FRAMES[engine](data), coarse, sample_seed=3)
    again = PrivateTable(FRAMES[engine](data), coarse.with_columns(fine), sample_seed=3)
    cut = table.with_columns(fine)
    np.testing.assert_array_equal(cut.counts(["real", "flag"]), again.counts(["real", "flag"]))
    assert cut.account is table.account
    assert table.schema == coarse
