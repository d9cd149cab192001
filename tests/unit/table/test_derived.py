"""Columns that are the difference of two others: the same in every engine and file, and in every synthetic row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from conformance.derived_columns import COLUMNS
from escudo.errors import InputError, SchemaError
from escudo.synthesis import load, synthesize
from escudo.table import PrivateTable, Schema, check, draft, scan

BORN = [None if i % 13 == 0 else dt.date(1930, 1, 1) + dt.timedelta(days=(i * 7919) % 33_000) for i in range(200)]
SEEN = [None if i % 17 == 0 else dt.date(2024, 1, 1) + dt.timedelta(days=(i * 31) % 360) for i in range(200)]
START = [float((i * 37) % 90) for i in range(200)]
END = [value + i % 11 for i, value in enumerate(START)]
DATA: dict[str, list[Any]] = {
    "birth": BORN,
    "visit": SEEN,
    "start": START,
    "end": END,
    "who": [i // 2 for i in range(200)],
}

SCHEMA = Schema.from_dict(COLUMNS)
PERSONS = Schema.from_dict(COLUMNS, person_id="who", max_rows_per_person=1)


def ages() -> list[int | None]:
    """Return the years between birth and visit, spelled out."""
    pairs = zip(SEEN, BORN, strict=True)
    return [None if seen is None or born is None else int((seen - born).days / 365.25 // 1) for seen, born in pairs]


def _duckdb() -> Any:
    frame = pl.DataFrame(DATA).to_arrow()  # noqa: F841 # named in the query
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT * FROM frame")
    return connection.table("t")


def _pandas() -> pd.DataFrame:
    return pd.DataFrame({**DATA, "birth": pd.to_datetime(pd.Series(BORN)), "visit": pd.to_datetime(pd.Series(SEEN))})


FRAMES: dict[str, Callable[[], Any]] = {
    "polars": lambda: pl.DataFrame(DATA),
    "polars lazy": lambda: pl.LazyFrame(DATA),
    "polars objects": lambda: pl.DataFrame({**DATA, "birth": pl.Series(BORN, dtype=pl.Object)}),
    "pandas times": _pandas,
    "pandas objects": lambda: pd.DataFrame({**DATA, "birth": pd.Series(BORN, dtype=object)}),
    "pyarrow": lambda: pa.table(pl.DataFrame(DATA).to_arrow()),
    "duckdb": _duckdb,
    "dask": lambda: dd.from_pandas(_pandas(), npartitions=3),
    "a column of that name is not read": lambda: pl.DataFrame({**DATA, "age": [7] * 200}),
}  # fmt: skip


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_computes_the_same_differences(engine):
    table = PrivateTable(FRAMES[engine](), SCHEMA)
    expected = np.bincount(SCHEMA["age"].encode(ages()), minlength=12)
    assert table.counts("age").tolist() == expected.tolist()
    apart = [end - start for end, start in zip(END, START, strict=True)]
    assert table.counts("length").tolist() == np.bincount(SCHEMA["length"].encode(apart), minlength=10).tolist()
    both = table.counts(["age", "visit"])
    assert both.sum(axis=1).tolist() == expected.tolist()
    persons = PrivateTable(FRAMES[engine](), PERSONS).counts("age")
    assert persons.tolist() == PrivateTable(FRAMES["polars"](), PERSONS).counts("age").tolist()
    assert persons.sum() == 100


@pytest.mark.parametrize("ending", ["csv", "parquet", "ndjson"])
def test_files_hold_the_two_columns_only(tmp_path: Path, ending: str) -> None:
    file, frame = tmp_path / f"visits.{ending}", pl.DataFrame(DATA)
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "ndjson": frame.write_ndjson}[ending](file)
    counted = PrivateTable(scan(file, SCHEMA), SCHEMA).counts("age")
    assert counted.tolist() == PrivateTable(frame, SCHEMA).counts("age").tolist()
    found = {column.name: column for column in check(file, SCHEMA).columns}
    assert (found["age"].problem, found["length"].problem) == (None, None)
    assert found["age"].missing == pytest.approx(ages().count(None) / 200)


@pytest.mark.parametrize("generator", ["marginals", "independent", "moments"])
def test_every_synthetic_row_holds_the_difference_within_its_bounds(generator, tmp_path):
    table = PrivateTable(pl.DataFrame(DATA), SCHEMA)
    model = synthesize(table, None, generator=generator, epsilon=3.0, delta=1e-6, seed=1)
    rows = model.sample(400, seed=1)
    assert rows.height == 400
    days = (rows["visit"] - rows["birth"]).dt.total_days()
    assert (rows["age"] == (days / 365.25).floor().cast(pl.Int64)).drop_nulls().all()
    assert rows["age"].drop_nulls().is_between(0, 110).all()
    assert (rows["visit"] >= rows["birth"]).drop_nulls().all()  # in order, since an age is not negative
    assert (rows["length"] - (rows["end"] - rows["start"])).abs().max() < 1e-9
    assert rows["length"].is_between(0, 10).all()
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").sample(400, seed=1).equals(rows)
    assert not model.answers_do("age")
    for asked in ({"do": {"age": 30}}, {"given": {"age": 30}}):
        with pytest.raises(InputError, match="age is derived from visit and birth"):
            model.sample(5, **asked)


def test_a_schema_with_differences_survives_its_files(tmp_path):
    for name in ("schema.toml", "schema.json"):
        SCHEMA.write(tmp_path / name)
        assert Schema.read(tmp_path / name) == SCHEMA
    assert 'from = "visit - birth"' in SCHEMA.to_toml()
    with pytest.raises(SchemaError, match="'age' is derived from others; take visit and birth along"):
        SCHEMA.select(["age", "visit"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"from": "visit"}, "from must name two columns"),
        ({"from": 7}, "from must name two columns"),
        ({"from": "visit - brith"}, "derived from 'brith', which is no column of the schema. Did you mean 'birth'"),
        ({"from": "visit - length"}, "which must be a number or date itself"),
        ({"from": "visit - start"}, "a date and a number"),
        ({"from": "visit - age"}, "must name two other columns"),
        ({"unit": "weeks"}, "unit must be 'days' or 'years'"),
        ({"from": "end - start"}, "has a unit, and what it is derived from are no dates"),
    ],
)
def test_what_cannot_be_computed_is_refused(change, problem):
    with pytest.raises(SchemaError) as error:
        Schema.from_dict({**COLUMNS, "age": {**COLUMNS["age"], **change}})
    assert problem in str(error.value)
    with pytest.raises(SchemaError, match="does not have the schema's column 'birth'"):
        PrivateTable(pl.DataFrame(DATA).drop("birth"), SCHEMA)


STAYS = {
    "columns": {
        "admission": {"type": "date", "lower": "2023-01-01", "upper": "2023-12-31"},
        "discharge": {"type": "date", "lower": "2023-01-01", "upper": "2023-12-31", "missing": True},
        "ward": ["a", "b"],
        "stay": {"type": "numeric", "integer": True, "lower": 0, "upper": 60, "missing": True,
                 "from": "discharge - admission", "unit": "days"},
    },
    "table": {"rules": ["discharge >= admission"]},
}  # fmt: skip


def stays() -> pl.DataFrame:
    """Return admissions all over a year and stays of a few days, two more in ward b; of some the end is not known."""
    rng, rows = np.random.default_rng(3), 5000
    ward = rng.choice(["a", "b"], rows)
    days = np.minimum(rng.geometric(0.3, rows) - 1, 24) + 2 * (ward == "b")
    admission = np.datetime64("2023-01-01") + rng.integers(0, 330, rows).astype("timedelta64[D]")
    frame = pl.DataFrame({"admission": admission, "discharge": admission + days.astype("timedelta64[D]"), "ward": ward})
    known = pl.Series(rng.random(rows) > 0.05)
    return frame.with_columns(pl.when(known).then("discharge").alias("discharge")).with_columns(
        pl.col("admission", "discharge").cast(pl.Date)
    )


def nights(rows: pl.DataFrame) -> pl.Series:
    return (rows["discharge"] - rows["admission"]).dt.total_days().drop_nulls()


@pytest.mark.parametrize("generator", ["marginals", "independent", "moments"])
def test_two_dates_lie_as_far_apart_as_in_the_table(generator):
    real, schema = stays(), Schema.from_dict(STAYS)
    model = synthesize(PrivateTable(real, schema), None, generator=generator, epsilon=1.0, delta=1e-6, seed=1)
    rows = model.sample(5000, seed=2)
    assert abs(nights(rows).mean() - nights(real).mean()) < 0.8  # 15 days more without the column of stays
    assert nights(rows).median() == nights(real).median()
    assert (nights(rows) == rows["stay"].drop_nulls()).all()
    assert rows["stay"].drop_nulls().is_between(0, 60).all()
    assert rows["discharge"].drop_nulls().is_between(dt.date(2023, 1, 1), dt.date(2023, 12, 31)).all()
    assert abs(rows["discharge"].null_count() - real["discharge"].null_count()) < 150
    assert rows["stay"].null_count() == rows["discharge"].null_count()
    assert abs((rows["admission"].dt.month() <= 6).mean() - (real["admission"].dt.month() <= 6).mean()) < 0.03


def test_what_is_set_or_observed_stays_and_the_other_date_follows():
    model = synthesize(PrivateTable(stays(), Schema.from_dict(STAYS)), None, epsilon=1.0, delta=1e-6, seed=1)
    day = model.schema["discharge"]
    rows = model.sample(400, given={"discharge": "2023-06-05"}, seed=1)
    assert (day.encode(rows["discharge"].to_list()) == day.encode([dt.date(2023, 6, 5)])).all()
    assert 1 < nights(rows).mean() < 8
    both = model.sample(50, given={"discharge": "2023-06-05", "admission": "2023-06-05"}, seed=1)
    assert (both["stay"] == nights(both)).all()  # nothing is left to follow: computed from the two


def test_a_check_says_what_a_rule_about_two_dates_does_not_keep(tmp_path):
    columns = {name: spec for name, spec in STAYS["columns"].items() if name != "stay"}
    without = Schema.from_dict({"columns": columns, "table": STAYS["table"]})
    (said,) = check(stays(), without).advice
    assert 'from = "discharge - admission", unit = "days"' in said
    assert check(stays(), without).to_dict()["advice"] == [said]
    assert check(stays(), Schema.from_dict(STAYS)).advice == ()
    assert "advice" not in check(stays(), Schema.from_dict(STAYS)).to_dict()
    assert any('from = "discharge - admission"' in note for note in draft(stays()).notes)


def test_days_that_are_texts_are_drafted_where_releases_read_them(tmp_path):
    spelt = stays().with_columns(pl.col("admission", "discharge").cast(pl.String))
    spelt.write_parquet(tmp_path / "stays.parquet")
    spelt.write_ndjson(tmp_path / "stays.ndjson")
    schema = Schema.from_dict(STAYS)
    for file in (tmp_path / "stays.parquet", tmp_path / "stays.ndjson"):
        assert draft(file).names == ("admission", "discharge", "ward")
        assert check(file, schema).problems == ()
        assert PrivateTable(scan(file, schema), schema).counts("stay").sum() == 5000
    frame = duckdb.read_parquet(str(tmp_path / "stays.parquet"))
    assert draft(frame).names == ("ward",)
    assert any("'admission'" in problem for problem in check(frame, schema).problems)
    with pytest.raises(SchemaError, match="'admission' holds dates in the schema"):
        PrivateTable(frame, schema)
