"""Columns of dates: the same cells in every engine and file, days that are none are missing, rows come out as dates."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import escudo
from escudo.errors import SchemaError
from escudo.table import Numeric, PrivateTable, Schema, check, draft, scan
from texts import FRAMES as WRITTEN

DAYS = [
    None if i % 11 == 0 else dt.date(2023, 12, 25) + dt.timedelta(days=(i * 37) % 400) for i in range(120)
]  # some before the first and after the last day of the schema
COLUMN = Numeric("visit", "2024-01-01", "2024-12-31", 12, date="%Y-%m-%d", missing=True)
SCHEMA = Schema((COLUMN, escudo.table.Categorical("ill", ["no", "yes"])))
ILL = ["yes", "no", "no"] * 40
EXPECTED = np.bincount(COLUMN.encode(DAYS), minlength=13)


def _times(zone: dt.tzinfo | None = None) -> list[dt.datetime | None]:
    """Return a point in time on each day: late in the evening, so that another zone would be on another day."""
    return [None if day is None else dt.datetime(day.year, day.month, day.day, 23, 30, tzinfo=zone) for day in DAYS]


def _duckdb(kind: str) -> Any:
    frame = pl.DataFrame({"visit": DAYS, "ill": ILL}).to_arrow()  # noqa: F841 # named in the query
    late = "visit::TIMESTAMP + INTERVAL 23 HOUR" if kind != "DATE" else "visit"
    zoned = f"timezone('UTC', {late})" if kind == "TIMESTAMPTZ" else late
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Tokyo'")
    connection.execute(f"CREATE TABLE t AS SELECT ({zoned})::{kind} AS visit, ill FROM frame")
    return connection.table("t")


FRAMES: dict[str, Callable[[], Any]] = {
    "polars dates": lambda: pl.DataFrame({"visit": DAYS, "ill": ILL}),
    "polars lazy times": lambda: pl.LazyFrame({"visit": _times(), "ill": ILL}),
    "polars zones": lambda: pl.DataFrame({"visit": _times(dt.UTC), "ill": ILL}).with_columns(
        pl.col("visit").dt.convert_time_zone("Asia/Tokyo")
    ),
    "polars objects": lambda: pl.DataFrame({"visit": pl.Series(DAYS, dtype=pl.Object), "ill": ILL}),
    "pandas times": lambda: pd.DataFrame({"visit": pd.to_datetime(pd.Series(_times())), "ill": ILL}),
    "pandas zones": lambda: pd.DataFrame(
        {"visit": pd.to_datetime(pd.Series(_times(dt.UTC)), utc=True).dt.tz_convert("Asia/Tokyo"), "ill": ILL}
    ),
    "pandas objects": lambda: pd.DataFrame({"visit": pd.Series(DAYS, dtype=object), "ill": ILL}),
    "pyarrow": lambda: pa.table({"visit": pa.array(DAYS, pa.date32()), "ill": ILL}),
    "duckdb dates": lambda: _duckdb("DATE"),
    "duckdb times": lambda: _duckdb("TIMESTAMP"),
    "duckdb zones": lambda: _duckdb("TIMESTAMPTZ"),
}


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_counts_the_same_days(engine: str) -> None:
    table = PrivateTable(FRAMES[engine](), SCHEMA)
    assert table.counts(("visit",)).tolist() == EXPECTED.tolist()
    shares = {column.name: column for column in check(FRAMES[engine](), SCHEMA).columns}
    assert shares["visit"].problem is None
    assert shares["visit"].missing == pytest.approx(DAYS.count(None) / 120)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%Y-%m-%d %H:%M"])
def test_text_files_are_read_by_their_format_and_drafted(tmp_path: Path, form: str) -> None:
    written = ["" if day is None else day.strftime(form) for day in DAYS]
    file = tmp_path / "visits.csv"
    file.write_text("visit,ill\n" + "".join(f"{day},{ill}\n" for day, ill in zip(written, ILL, strict=True)))
    found = draft(file)["visit"]
    assert isinstance(found, Numeric)
    assert (found.date, found.missing, found.confirmed) == (form, True, False)
    assert tuple(map(found.shown, found.bounds)) == ("2023-01-01", "2025-12-31")
    schema = Schema((Numeric("visit", "2024-01-01", "2024-12-31", 12, date=form, missing=True), SCHEMA.fields[1]))
    assert PrivateTable(scan(file, schema), schema).counts(("visit",)).tolist() == EXPECTED.tolist()
    schema.write(tmp_path / "visits.toml")
    assert Schema.read(tmp_path / "visits.toml") == schema
    lines = tmp_path / "visits.ndjson"
    rows = [{"visit": day or None, "ill": ill} for day, ill in zip(written, ILL, strict=True)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert PrivateTable(scan(lines, schema), schema).counts(("visit",)).tolist() == EXPECTED.tolist()


@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("%Y-%m-%dT%H:%M:%S%z", lambda time: time.isoformat().replace("+00:00", "Z")),
        ("%Y-%m-%dT%H:%M:%S%z", lambda time: time.astimezone(dt.timezone(dt.timedelta(hours=5))).isoformat()),
        ("%Y-%m-%d %H:%M:%S.%f", lambda time: f"{time:%Y-%m-%d %H:%M:%S}.125"),
        ("%Y-%m-%dT%H:%M:%S.%f%z", lambda time: f"{time:%Y-%m-%dT%H:%M:%S}.5Z"),
        ("%m/%d/%Y %I:%M %p", lambda time: f"{time:%m/%d/%Y %I:%M %p}"),
        ("%d-%b-%Y", lambda time: f"{time:%d-%b-%Y}"),
        ("%Y%m%d", lambda time: f"{time:%Y%m%d}"),
    ],
)
def test_times_with_zones_and_other_formats_are_drafted_and_count_as_their_day_in_utc(
    tmp_path: Path, form: str, write: Callable[[dt.datetime], str]
) -> None:
    times = [dt.datetime.combine(day or dt.date(2024, 1, 2), dt.time(21), dt.UTC) for day in DAYS]
    assert write(times[0]) == write(times[0]).strip()
    file = tmp_path / "visits.csv"
    file.write_text("visit,ill\n" + "".join(f"{write(time)},{ill}\n" for time, ill in zip(times, ILL, strict=True)))
    found = draft(file)["visit"]
    assert isinstance(found, Numeric)
    assert found.date == form
    assert tuple(map(found.shown, found.bounds)) == ("2023-01-01", "2025-12-31")
    schema = Schema((Numeric("visit", "2024-01-01", "2024-12-31", 12, date=form, missing=True), SCHEMA.fields[1]))
    days = [time.date() for time in times]
    wanted = np.bincount(schema["visit"].encode(days), minlength=13)
    assert PrivateTable(scan(file, schema), schema).counts(("visit",)).tolist() == wanted.tolist()
    assert wanted[-1] == 0
    assert not any(column.findings for column in check(file, draft(file).confirm()).columns)


def test_whole_numbers_that_are_no_days_stay_numbers(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    file.write_text("account\n" + "".join(f"{20_230_000 + 7 * number}\n" for number in range(200)))
    assert draft(file)["account"].date is None


def test_what_is_no_day_is_missing_and_no_error(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    file.write_text("visit,ill\n2024-02-30,no\nyesterday,no\n2024-06-15,yes\n99999-01-01,no\n,no\n")
    counts = PrivateTable(scan(file, SCHEMA), SCHEMA).counts(("visit",))
    assert (counts[5], counts[-1], counts.sum()) == (1, 4, 5)
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT unnest(['infinity'::DATE, '-infinity', '2024-06-15']) AS visit, 'no' AS ill"
    )
    counts = PrivateTable(connection.table("t"), SCHEMA).counts(("visit",))
    assert (counts[5], counts[-1]) == (1, 2)


@pytest.mark.parametrize("generator", ["marginals", "moments", "independent", "autoregressive"])
def test_released_rows_are_dates_within_the_bounds(generator: str, tmp_path: Path) -> None:
    table = PrivateTable(pl.DataFrame({"visit": DAYS, "ill": ILL}), SCHEMA)
    graph = escudo.CausalGraph.from_edges([("visit", "ill")])
    model = escudo.synthesize(table, graph, epsilon=20.0, delta=1e-6, generator=generator, seed=1)
    model.save(tmp_path / "model")
    rows = escudo.load(tmp_path / "model").sample(200, seed=2)
    assert rows.schema["visit"] == pl.Date
    assert rows["visit"].min() >= dt.date(2024, 1, 1)
    assert rows["visit"].max() <= dt.date(2024, 12, 31)
    assert PrivateTable(rows, SCHEMA).counts(("visit",)).sum() == 200
    for value in ("2024-03-05", dt.date(2024, 3, 5)):
        if generator != "independent":
            drawn = model.sample(50, do={"visit": value}, seed=3)["visit"]
            assert set(COLUMN.encode(drawn.to_list())) == {2}
    with pytest.raises(SchemaError, match="takes dates from 2024-01-01 to 2024-12-31"):
        model.sample(5, given={"visit": "2031-01-01"})


def test_a_release_with_dates_has_its_pages(tmp_path: Path) -> None:
    table = PrivateTable(pl.DataFrame({"visit": DAYS, "ill": ILL}), SCHEMA)
    files = escudo.release(table, tmp_path / "out", epsilon=5.0, delta=1e-6, custodian=True, csv=True, seed=1)
    assert "2024-12-31" in files.report.read_text()
    assert files.csv is not None
    assert files.csv.read_text().splitlines()[1].startswith("2024-")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"lower": "2024-13-01", "upper": "2025-01-01"}, "lower must be a day"),
        ({"lower": "2024-01-01", "upper": "2024-01-05", "bins": 20}, "each bin must hold a day"),
        ({"lower": "2025-01-01", "upper": "2024-01-05"}, "lower must be below upper"),
        ({"lower": "2024-01-01", "upper": "2024-12-31", "format": "%H"}, "format must say how a day is written"),
        ({"lower": "2024-01-01", "upper": "2024-12-31", "format": 3}, "format must say how a day is written"),
        ({"edges": ["2024-01-01", "2023-01-01"]}, "at least two increasing dates"),
        ({"lower": "2024-01-01", "upper": "2024-12-31", "integer": True}, "has no key 'integer'"),
    ],
)
def test_a_wrong_description_is_refused_in_words(told: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        Schema.from_dict({"visit": {"type": "date", **told}})


def test_a_date_where_the_schema_has_none_and_none_where_it_has() -> None:
    with pytest.raises(SchemaError, match=r"is no date in the schema.*type = .date."):
        PrivateTable(pl.DataFrame({"visit": DAYS}), Schema.from_dict({"visit": ["a", "b"]}))
    with pytest.raises(SchemaError, match=r"holds dates in the schema.*cast it to a date"):
        PrivateTable(pl.DataFrame({"visit": [20240101], "ill": ["no"]}), SCHEMA)
    with pytest.raises(SchemaError, match=r"holds dates in the schema.*cast it to a date"):  # databases read none
        PrivateTable(duckdb.sql("SELECT '2024-01-01' AS visit, 'no' AS ill"), SCHEMA)


@given(st.dates(dt.date(2024, 1, 1), dt.date(2024, 12, 31)))
def test_labels_say_which_days_a_bin_holds(day: dt.date) -> None:
    first, last = (dt.date.fromisoformat(text) for text in COLUMN.labels[COLUMN.encode([day])[0]].split(" to "))
    assert first <= day <= last


@pytest.mark.parametrize("engine", WRITTEN)
@pytest.mark.parametrize("form", ["%Y-%m-%d", "%m/%d/%Y", "%d.%m.%Y %H:%M"])
def test_dates_that_are_text_in_a_frame_are_read_by_their_format(engine: str, form: str, tmp_path: Path) -> None:
    """As in a text file; and so are those that others are derived from, also where these alone are counted."""
    born = [None if day is None else day - dt.timedelta(days=40 * place) for place, day in enumerate(DAYS)]
    texts = {
        name: [f" {day:{form}}" if day and place % 9 else "unknown" for place, day in enumerate(days)]
        for name, days in (("birth", born), ("visit", DAYS))
    }
    day = {"type": "date", "format": form, "lower": "2010-01-01", "upper": "2025-12-31", "bins": 16, "missing": True}
    age = {"type": "numeric", "from": "visit - birth", "unit": "days", "lower": 0, "upper": 4000, "bins": 5}
    schema = Schema.from_dict({"birth": day, "visit": day, "age": {**age, "missing": True}})
    pl.DataFrame(texts).write_csv(tmp_path / "visits.csv")
    expected = PrivateTable(scan(tmp_path / "visits.csv", schema), schema).counts([[name] for name in schema.names])
    assert expected[2][-1] < 40, "most ages are known"
    frame = WRITTEN[engine](texts)
    for counted, wanted in zip(
        PrivateTable(frame, schema).counts([["birth"], ["visit"], ["age"]]), expected, strict=True
    ):
        assert counted.tolist() == wanted.tolist()
    (alone,) = PrivateTable(frame, schema).counts([["age"]])
    assert alone.tolist() == expected[2].tolist()
    assert schema["birth"].encode(texts["birth"]).tolist() == schema["birth"].encode(np.array(texts["birth"])).tolist()
    for here, there in zip(check(frame, schema).columns, check(tmp_path / "visits.csv", schema).columns, strict=True):
        assert here.problem is None
        assert here.outside == pytest.approx(there.outside) or engine == "polars objects"  # words are told by kind
    drafted = draft(frame)["visit"]
    assert isinstance(drafted, Numeric)
    assert (drafted.date, drafted.missing) == (form, True)


@given(st.text(max_size=12) | st.dates().map("{:%d.%m.%Y}".format))
def test_a_text_is_the_same_day_whatever_holds_it(text: str) -> None:
    column = Numeric("day", "1900-01-01", "2100-01-01", 20, date="%d.%m.%Y", missing=True)
    cell = column.encode([text]).tolist()
    for frame in (pl.DataFrame({"day": [text]}), pd.DataFrame({"day": [text]}, dtype=object)):
        assert np.flatnonzero(PrivateTable(frame, Schema((column,))).counts("day")).tolist() == cell


def test_a_few_words_among_dates_are_missing_and_many_are_levels(tmp_path: Path) -> None:
    days = [f"{dt.date(2024, 1, 1) + dt.timedelta(days=day):%d.%m.%Y}" for day in range(60)]
    for words, date in ((["ca. 1950", "im Winter"], True), ([f"word {n}" for n in range(30)], False)):
        pl.DataFrame({"day": 2 * [*days, *words]}).write_csv(tmp_path / "days.csv")
        column = draft(tmp_path / "days.csv")["day"]
        assert isinstance(column, Numeric) == date
        assert not date or column.missing
