"""Linked tables count alike in every engine, and wherever each of the tables lies."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
import sqlalchemy as sa

from escudo.errors import InputError, SchemaError
from escudo.table import LinkedSchema, LinkedTable, PrivateTables, _contributions, _linked, open_data

pd = pytest.importorskip("pandas")
duckdb = pytest.importorskip("duckdb")

SCHEMA = LinkedSchema.from_dict({
    "linked": {"people": "patients"},
    "tables": {
        "patients": {
            "key": "patient",
            "origin": "entry",
            "columns": {"smoke": {"type": "categorical", "levels": ["no", "yes"], "missing": True}},
        },
        "visits": {
            **{"parent": "patients", "foreign_key": "patient", "key": "visit", "order": "date", "most": 4},
            **{"start_edges": [0, 30, 90, 900], "gap_edges": [0, 10, 40, 900]},
            "columns": {
                "severity": {"type": "ordinal", "levels": ["none", "mild", "severe"]},
                "fever": {"type": "numeric", "lower": 35, "upper": 42, "bins": 7, "missing": True},
            },
        },
        "drugs": {
            **{"parent": "visits", "foreign_key": "patient", "row_key": "visit", "order": "filled", "most": 2},
            **{"start_edges": [0, 10, 90], "gap_edges": [0, 10, 90]},
            "columns": {"drug": ["x", "y"], "dose": {"type": "numeric", "lower": 0, "upper": 10, "bins": 4}},
        },
        "notes": {
            **{"parent": "visits", "foreign_key": "patient", "row_key": "visit", "most": 2},
            "columns": {"kind": {"type": "categorical", "levels": ["a", "b"], "missing": True}},
        },
    },
})  # fmt: skip
TABLES = [
    LinkedTable(view="people", columns=("patients.smoke", "visits.count")),
    LinkedTable(view="people", columns=("visits.@count",)),
    LinkedTable(view="first", table="visits", columns=("visits.severity", "visits.start", "patients.smoke")),
    LinkedTable(view="all", table="visits", columns=("visits.fever", "visits.number", "visits.count")),
    LinkedTable(view="next", table="visits", columns=("visits.severity@prev", "visits.severity", "visits.gap")),
    LinkedTable(
        view="next",
        table="visits",
        columns=("visits.severity@prev", "visits.severity", "patients.smoke"),
        core=("visits.severity@prev", "visits.severity"),
    ),
    LinkedTable(view="all", table="visits", columns=("visits.severity", "drugs.count", "notes.@count")),
    LinkedTable(view="first", table="drugs", parent="visits", columns=("drugs.drug", "drugs.start", "visits.number")),
    LinkedTable(view="next", table="drugs", parent="visits", columns=("drugs.dose@prev", "drugs.gap", "drugs.drug")),
    LinkedTable(
        view="all", table="drugs", parent="visits", columns=("drugs.drug", "visits.fever"), core=("drugs.drug",)
    ),
    LinkedTable(view="all", table="notes", parent="visits", columns=("notes.kind", "notes.number", "patients.smoke")),
]


def frames() -> dict[str, pl.DataFrame]:
    """Return people, visits and rows of these with all that real ones have: no key, no date, repeats, orphans, ties."""
    rng = np.random.default_rng(7)
    people, rows, first = 80, 420, dt.date(2020, 1, 1)
    keys = [*range(1, people - 4), 3, 3, None, 9]
    patients = {
        "patient": keys,
        "smoke": rng.choice(["no", "yes", "?", None], len(keys)).tolist(),  # type: ignore[arg-type, list-item]
        "entry": [None if rng.random() < 0.1 else first + dt.timedelta(int(rng.integers(40))) for _ in keys],
    }
    visits = {
        "patient": [None if rng.random() < 0.05 else int(rng.integers(1, people + 5)) for _ in range(rows)],
        "date": [None if rng.random() < 0.05 else first + dt.timedelta(int(rng.integers(90))) for _ in range(rows)],
        "severity": rng.choice(["none", "mild", "severe", "odd"], rows).tolist(),
        "fever": rng.choice([34.0, 36.5, 37.0, 39.0, 99.0, np.nan, np.inf], rows).tolist(),
    }
    visits["visit"] = [None if rng.random() < 0.05 else int(rng.integers(1, 7)) for _ in range(rows)]
    few = [name for name, key in zip(visits["patient"], visits["visit"], strict=True) if name and key]
    drugs = {
        "patient": [None if rng.random() < 0.05 else int(rng.choice(few)) for _ in range(3 * rows)],
        "visit": [None if rng.random() < 0.05 else int(rng.integers(1, 9)) for _ in range(3 * rows)],
        "filled": [
            None if rng.random() < 0.05 else first + dt.timedelta(int(rng.integers(140))) for _ in range(3 * rows)
        ],
        "drug": rng.choice(["x", "y", "odd"], 3 * rows).tolist(),
        "dose": rng.choice([0.0, 2.5, 9.0, 99.0, np.nan], 3 * rows).tolist(),
    }
    notes = {
        "patient": rng.integers(1, people + 5, 2 * rows).tolist(),
        "visit": rng.integers(1, 13, 2 * rows).tolist(),
        "kind": rng.choice(["a", "b", None], 2 * rows).tolist(),  # type: ignore[arg-type, list-item]
    }
    types = {
        **{"patient": pl.Int64, "visit": pl.Int64, "smoke": pl.String, "entry": pl.Date, "date": pl.Date},
        **{"severity": pl.String, "fever": pl.Float64, "filled": pl.Date, "drug": pl.String, "dose": pl.Float64},
        "kind": pl.String,
    }  # fmt: skip
    every = {"patients": patients, "visits": visits, "drugs": drugs, "notes": notes}
    return {name: pl.DataFrame(one, schema={key: types[key] for key in one}) for name, one in every.items()}


EVERYBODY = PrivateTables(frames(), SCHEMA).histories()
WANTED = [EVERYBODY.counts(table) for table in TABLES]


def dask_frame(frame: pl.DataFrame) -> Any:
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(frame.to_pandas(), npartitions=3, sort=False)


FRAMES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars lazy": lambda frame: frame.lazy(),
    "polars text keys": lambda frame: frame.with_columns(pl.col("^(patient|visit)$").cast(pl.String)),
    "polars wide keys": lambda frame: frame.with_columns(pl.col("^(patient|visit)$").cast(pl.UInt64)),
    "pandas": lambda frame: frame.to_pandas(),
    "pandas objects": lambda frame: pd.DataFrame(
        {name: pd.Series(frame[name].to_list(), dtype=object) for name in frame.columns}
    ),
    "pyarrow": lambda frame: frame.to_arrow(),
    "duckdb": lambda frame: duckdb.from_arrow(frame.to_arrow()),
    "dask": dask_frame,
    "dask text keys": lambda frame: dask_frame(frame.with_columns(pl.col("^(patient|visit)$").cast(pl.String))),
}


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_counts_alike(engine: str) -> None:
    made = {name: FRAMES[engine](frame) for name, frame in frames().items()}
    assert_counts(PrivateTables(made, SCHEMA))


@pytest.mark.parametrize("engine", FRAMES)
def test_every_engine_reads_texts_of_linked_tables_loosely(engine: str) -> None:
    """Rows written in other case and with blanks count as they do in a plain hand, also for which of them are kept."""
    described = SCHEMA.to_dict()
    for table in described["tables"].values():
        for spec in table["columns"].values():
            spec |= {"loose": True} if "levels" in spec else {}
    texts = pl.col("^(smoke|severity|drug|kind)$")
    respelt = pl.when(pl.int_range(pl.len()) % 3 == 0).then(texts).otherwise("\t" + texts.str.to_uppercase() + " ")
    made = {name: FRAMES[engine](frame.with_columns(respelt.name.keep())) for name, frame in frames().items()}
    assert_counts(PrivateTables(made, LinkedSchema.from_dict(described)))


def test_tables_may_lie_in_different_engines_with_keys_of_different_types() -> None:
    here = frames()
    there = {**here, "patients": here["patients"].to_pandas(), "visits": FRAMES["duckdb"](here["visits"])}
    assert_counts(PrivateTables(there, SCHEMA))


def test_text_keys_of_different_engines_are_compared_by_their_characters() -> None:
    here = {name: FRAMES["polars text keys"](frame) for name, frame in frames().items()}
    assert_counts(PrivateTables({**here, "visits": FRAMES["duckdb"](here["visits"])}, SCHEMA))


@pytest.mark.parametrize("engine", ["polars lazy", "duckdb", "pandas objects"])
@pytest.mark.parametrize("there", [["visits"], ["patients", "drugs"]], ids="-".join)
def test_tables_of_which_some_lie_on_dask_are_brought_together_there(
    there: list[str], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are packed here and sent: what is packed here is never a table of Dask's."""
    packed = _linked.Gathering.packed

    def here(gathering: Any, source: Any, table: str) -> Any:
        assert source.engine != "dask"
        return packed(gathering, source, table)

    monkeypatch.setattr(_linked.Gathering, "packed", here)
    kinds = {name: "dask" if name in there else engine for name in SCHEMA.tables}
    assert_counts(PrivateTables({name: FRAMES[kinds[name]](frame) for name, frame in frames().items()}, SCHEMA))


def assert_two_clusters_are_refused(frames: dict[str, Any]) -> None:
    """Hold that of tables on Spark and on Dask none is read."""
    with pytest.raises(InputError, match=r"table '\w+' is on Dask and table '\w+' on Spark|on Spark and .* on Dask"):
        PrivateTables(frames, SCHEMA).tally()


@pytest.mark.parametrize("engine", ["polars lazy", "polars text keys", "pandas objects"])
def test_people_on_disk_count_as_those_in_memory(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several hundred parts, some of them parted twice, each with all rows of its people in all tables."""
    written: list[int] = []
    real = _contributions._Buckets._write

    def spy(self: Any, bucket: int, rows: pl.DataFrame) -> None:
        written.append(rows.height)
        real(self, bucket, rows)

    monkeypatch.setattr(_contributions._Buckets, "_write", spy)
    monkeypatch.setattr(_contributions, "memory_for_rows", lambda: 3000)
    monkeypatch.setattr(_contributions, "_AT_ONCE", 300)
    assert_counts(PrivateTables({name: FRAMES[engine](frame) for name, frame in frames().items()}, SCHEMA))
    assert sum(written) > sum(frame.height for frame in frames().values())


def assert_counts(tables: PrivateTables) -> None:
    """Compare with what polars counts of all rows in memory: tables, and what is left out of them."""
    assert tables.people_count() == frames()["patients"]["patient"].drop_nulls().n_unique()
    with tables.gathered() as everybody:
        for asked in (TABLES[:4], TABLES):  # as often as wanted
            for found, wanted in zip(everybody.counts(asked), WANTED, strict=False):
                np.testing.assert_array_equal(found, wanted)
    for kind, lost in dataclasses.asdict(tables.tally()).items():
        told = getattr(EVERYBODY.tally, kind)
        assert lost == (told if isinstance(told, int) else dict.fromkeys(lost, 0) | told), kind


def test_there_is_something_to_compare() -> None:
    assert all(wanted.sum() > 0 for wanted in WANTED)
    tally = EVERYBODY.tally
    told = (tally.no_key, tally.orphans, tally.no_day, tally.early, tally.beyond)
    assert all(each["drugs"] > 0 for each in told)


def test_text_files_are_read_as_the_schema_says(tmp_path: Any) -> None:
    opened = {}
    for name, frame in frames().items():
        frame.write_csv(tmp_path / f"{name}.csv")
        opened[name] = open_data(str(tmp_path / f"{name}.csv"), SCHEMA.reading(name))
    assert_counts(PrivateTables(opened, SCHEMA))


def test_lines_of_json_are_read_as_the_schema_says(tmp_path: Any) -> None:
    finite = {
        name: frame.with_columns(pl.when(pl.selectors.float().is_finite()).then(pl.selectors.float()))
        for name, frame in frames().items()
    }  # no other number can be written in JSON
    opened = {}
    for name, frame in finite.items():
        frame.write_ndjson(tmp_path / f"{name}.jsonl")
        opened[name] = open_data(str(tmp_path / f"{name}.jsonl"), SCHEMA.reading(name))
    for found, wanted in zip(*(PrivateTables(each, SCHEMA).counts(TABLES) for each in (opened, finite)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_key_of_rows_that_is_missing_or_no_key_is_said() -> None:
    here = frames()
    with pytest.raises(SchemaError, match=r"table 'drugs': .* column 'visit'"):
        PrivateTables({**here, "drugs": here["drugs"].drop("visit")}, SCHEMA)
    with pytest.raises(SchemaError, match="table 'visits': the key of rows 'visit' is of type Date"):
        PrivateTables({**here, "visits": here["visits"].with_columns(pl.col("date").alias("visit"))}, SCHEMA)


@pytest.mark.parametrize(("table", "key", "other"), [("visits", "patient", "patients"), ("drugs", "visit", "visits")])
def test_keys_that_are_texts_here_and_numbers_there_are_refused(
    tmp_path: Any, table: str, key: str, other: str
) -> None:
    """Of types that frames declare alone: no row would be found, and a release would be paid for all the same."""
    here = frames()
    texts = pl.col(key).cast(pl.String)
    with pytest.raises(SchemaError, match=f"table '{table}': its key '{key}' is of texts and key '{key}' of '{other}'"):
        PrivateTables({**here, table: here[table].with_columns(texts)}, SCHEMA)
    here[table].write_csv(tmp_path / "rows.csv")
    with pytest.raises(SchemaError, match="keys in text files"):
        PrivateTables({**here, table: open_data(str(tmp_path / "rows.csv"), SCHEMA.reading(table))}, SCHEMA)
    assert_counts(PrivateTables({**here, table: here[table].with_columns(pl.col(key).cast(pl.Float64))}, SCHEMA))
    objects = here[table].to_pandas().astype({key: object})  # each value says by itself what it is
    PrivateTables({**here, table: objects}, SCHEMA)
    objects[key] = objects[key].map(str).astype(object)
    PrivateTables({**here, table: objects}, SCHEMA)


def test_one_table_of_dask_among_others_counts_alike() -> None:
    pytest.importorskip("dask.dataframe")
    here = frames()
    assert_counts(PrivateTables({**here, "visits": dask_frame(here["visits"])}, SCHEMA))


@pytest.fixture
def urls(server: sa.URL) -> Iterator[dict[str, str]]:
    """All tables in PostgreSQL."""
    pytest.importorskip("ibis")
    columns = {
        "patients": "patient bigint, smoke text, entry date",
        "visits": "patient bigint, date date, severity text, fever double precision, visit bigint",
        "drugs": "patient bigint, visit bigint, filled date, drug text, dose double precision",
        "notes": "patient bigint, visit bigint, kind text",
    }
    engine = sa.create_engine(server, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for name, frame in frames().items():
            connection.exec_driver_sql(f"CREATE TABLE linked_{name} ({columns[name]})")
            places = ", ".join(["%s"] * frame.width)
            connection.exec_driver_sql(f"INSERT INTO linked_{name} VALUES ({places})", list(frame.rows()))
    yield {
        name: server.set(drivername="postgresql", query={"table": f"linked_{name}"}).render_as_string(
            hide_password=False
        )
        for name in columns
    }
    with engine.begin() as connection:
        for name in columns:
            connection.exec_driver_sql(f"DROP TABLE linked_{name}")


@pytest.mark.postgresql
def test_postgresql_counts_alike(urls: dict[str, str]) -> None:
    assert_counts(PrivateTables({name: open_data(url) for name, url in urls.items()}, SCHEMA))
