"""A table in a database, named by its URL, is counted there, exactly as the same rows in a file are."""

from __future__ import annotations

import math
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import sqlalchemy as sa

from conformance import derived_columns, loose_columns
from escudo.errors import InputError, SchemaError
from escudo.table import PrivateTable, Schema, open_data

duckdb = pytest.importorskip("duckdb")

DATABASES = ["duckdb", pytest.param("postgresql", marks=pytest.mark.postgresql)]
NUMBERS = [-0.3, 0.7, *(math.nextafter(k / 10 - 0.3, side) for k in range(11) for side in (-9, 9)), math.inf, math.nan]
SCHEMA = Schema.from_dict(
    {
        "smoke": ["no", "yes", "Ωμέγα"],
        "parity": {"type": "categorical", "levels": [0, 1, 2], "missing": True},
        "ill": [False, True],
        "fever": {"type": "numeric", "lower": -0.3, "upper": 0.7, "bins": 10, "missing": True},
    }
)
TABLES = [("smoke",), ("fever", "smoke"), ("parity", "ill"), ("fever", "parity", "ill", "smoke")]
BY_PERSON = Schema(SCHEMA.fields, person_id="patient", max_rows_per_person=2)


def patients() -> pl.DataFrame:
    rng = np.random.default_rng(5)

    def drawn(values: list[Any]) -> list[Any]:
        return [values[i] for i in rng.integers(0, len(values), 500)]

    return pl.DataFrame(
        {
            "smoke": drawn(["no", "yes", "NO", "yes ", "Ωμέγα", None]),
            "parity": drawn([0, 1, 2, 3, -4, None]),
            "ill": drawn([True, False, None]),
            "fever": drawn([*NUMBERS, None]),
            "patient": drawn([*range(150), None]),
        },
        schema={"smoke": pl.String, "parity": pl.Int32, "ill": pl.Boolean, "fever": pl.Float64, "patient": pl.Int64},
    )


def duckdb_url(file: Path, **settings: str) -> str:
    return f"duckdb:///{file}?" + "&".join(f"{name}={value}" for name, value in settings.items())


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A table of patients with an awkward name, in each database."""
    frame = patients()
    columns = "smoke {}, parity {}, ill {}, fever {}, patient {}".format(
        "text", "integer", "boolean", "double precision", "bigint"
    )
    if request.param == "duckdb":
        with duckdb.connect(str(tmp_path / "clinic.db")) as connection:
            connection.execute('CREATE SCHEMA "clinic 7"')
            connection.execute(f'CREATE TABLE "clinic 7"."pätient ""rows""" ({columns})')
            connection.executemany(
                'INSERT INTO "clinic 7"."pätient ""rows""" VALUES (?, ?, ?, ?, ?)', [list(row) for row in frame.rows()]
            )
        yield duckdb_url(tmp_path / "clinic.db", table="p%C3%A4tient%20%22rows%22", schema="clinic%207")
        return
    pytest.importorskip("ibis")
    server: sa.URL = request.getfixturevalue("server")
    schema = f"clinic {secrets.token_hex(4)}"
    engine = sa.create_engine(server, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
        connection.exec_driver_sql(f'CREATE TABLE "{schema}"."pätient ""rows""" ({columns})')
        connection.exec_driver_sql(
            f'INSERT INTO "{schema}"."pätient ""rows""" VALUES (%s, %s, %s, %s, %s)', list(frame.rows())
        )
    settings = {"table": 'pätient "rows"', "schema": schema}
    yield server.set(drivername="postgresql", query=settings).render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.exec_driver_sql(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.mark.parametrize("schema", [SCHEMA, BY_PERSON], ids=["row", "person"])
def test_counts_in_the_database_are_those_of_the_same_rows_in_memory(url: str, schema: Schema) -> None:
    counted = PrivateTable(open_data(url), schema).counts(TABLES)
    for found, wanted in zip(counted, PrivateTable(patients(), schema).counts(TABLES), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_batches_from_the_database_hold_the_same_rows(url: str) -> None:
    found = np.concatenate(list(PrivateTable(open_data(url), SCHEMA).batches(64)))
    wanted = np.concatenate(list(PrivateTable(patients(), SCHEMA).batches(64)))
    np.testing.assert_array_equal(found[np.lexsort(found.T)], wanted[np.lexsort(wanted.T)])


@pytest.mark.parametrize("columns", [derived_columns, loose_columns], ids=["derived", "loose"])
@pytest.mark.parametrize("database", DATABASES)
def test_columns_that_are_worked_out_in_the_database_are_as_in_memory(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, columns: Any
) -> None:
    """Differences of two others, and texts that are read loosely."""
    frame = columns.rows()
    if database == "duckdb":
        with duckdb.connect(str(tmp_path / "clinic.db")) as connection:
            connection.execute(f"CREATE TABLE visits ({columns.SQL})")
            connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", [list(row) for row in frame.rows()])
        url = duckdb_url(tmp_path / "clinic.db", table="visits")
    else:
        pytest.importorskip("ibis")
        server: sa.URL = request.getfixturevalue("server")
        name = f"visits_{secrets.token_hex(4)}"
        with sa.create_engine(server, poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE {name} ({columns.SQL})")
            connection.exec_driver_sql(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s)", list(frame.rows()))
        url = server.set(drivername="postgresql", query={"table": name}).render_as_string(hide_password=False)
    for unit, schema in columns.SCHEMAS.items():
        found, wanted = (PrivateTable(one, schema) for one in (open_data(url), frame))
        counted = zip(found.counts(columns.TABLES), wanted.counts(columns.TABLES), strict=True)
        for ours, theirs in counted:
            np.testing.assert_array_equal(ours, theirs, err_msg=unit)


def test_a_table_that_is_not_there_is_named_with_the_nearest_one(url: str) -> None:
    with pytest.raises(InputError, match=r"has no table 'pätient \"row\"' .*Did you mean 'pätient \"rows\"'"):
        open_data(url.replace("rows%22", "row%22"))


@pytest.fixture
def odd_url(server: sa.URL) -> str:
    """Text of kinds that compare without case or blanks, or by a list of labels."""
    pytest.importorskip("ibis")
    name = f"odd_{secrets.token_hex(4)}"
    texts = f"padded char(5), loose citext, nocase text COLLATE {name}_nocase, mood {name}_mood"
    with sa.create_engine(server, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS citext")
        connection.exec_driver_sql(
            f"CREATE COLLATION {name}_nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        connection.exec_driver_sql(f"CREATE TYPE {name}_mood AS ENUM ('no', 'yes', 'YES')")
        connection.exec_driver_sql(f"CREATE TABLE {name} ({texts}, price numeric(9, 2), day date)")
        rows = [("yes", "yes", "yes", "yes", 1.5, None)] * 3 + [("YES", "YES", "YES", "YES", 9, None)] * 2
        connection.exec_driver_sql(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s, %s)", rows)
    return server.set(drivername="postgresql", query={"table": name}).render_as_string(hide_password=False)


@pytest.mark.postgresql
@pytest.mark.parametrize("column", ["padded", "loose", "nocase", "mood"])
def test_text_is_compared_by_its_exact_characters_whatever_the_column_says(odd_url: str, column: str) -> None:
    schema = Schema.from_dict({column: {"type": "categorical", "levels": ["no", "yes"], "missing": True}})
    assert PrivateTable(open_data(odd_url), schema).counts(column).tolist() == [0, 3, 2]


@pytest.mark.postgresql
def test_decimals_are_numbers_and_dates_are_no_levels(odd_url: str) -> None:
    priced = Schema.from_dict({"price": {"type": "numeric", "lower": 0, "upper": 10, "bins": 10}})
    assert PrivateTable(open_data(odd_url), priced).counts("price").tolist() == [0, 3, 0, 0, 0, 0, 0, 0, 0, 2]
    with pytest.raises(SchemaError, match="'day'"):
        PrivateTable(open_data(odd_url), Schema.from_dict({"day": ["monday"]}))


@pytest.mark.postgresql
def test_days_of_postgresql_are_days_in_utc_and_infinite_ones_are_missing(server: sa.URL) -> None:
    pytest.importorskip("ibis")
    name = f"days_{secrets.token_hex(4)}"
    days = ["2024-02-29", "2024-12-31", "infinity", "-infinity", None, "0044-03-15 BC", "1999-01-01"]
    with sa.create_engine(server, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {name} (day date, at timestamp, zoned timestamptz)")
        rows = [(day, day, None if day is None else f"{day.removesuffix(' BC')} 23:30+00{day[10:]}") for day in days]
        rows = [(day, at, day if day in ("infinity", "-infinity") else zoned) for day, at, zoned in rows]
        connection.exec_driver_sql(f"INSERT INTO {name} VALUES (%s, %s, %s)", rows)
    query = {"table": name, "options": "-c timezone=Asia/Tokyo"}
    url = server.set(drivername="postgresql", query=query).render_as_string(hide_password=False)
    for column in ("day", "at", "zoned"):
        told = {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31", "bins": 2, "missing": True}
        counts = PrivateTable(open_data(url), Schema.from_dict({column: told})).counts(column)
        assert counts.tolist() == [3, 1, 3], column


ODD_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "0.5", "7", None]
MEASURED = Schema.from_dict({"x": {"type": "numeric", "lower": 0, "upper": 10, "bins": 2, "missing": True}})


@pytest.mark.postgresql
def test_no_number_of_postgresql_is_too_large_too_small_or_too_odd(server: sa.URL) -> None:
    pytest.importorskip("ibis")
    name = f"odd_{secrets.token_hex(4)}"
    # What is too small for float8 once divided by the width of a bin is an error to PostgreSQL too.
    floats = ["NaN", "Infinity", "-Infinity", "1e308", "-1e308", "5e-324", "0.5", "7", None]
    with sa.create_engine(server, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {name} (x numeric, y double precision)")
        rows = list(zip(ODD_NUMBERS, floats, strict=True))
        connection.exec_driver_sql(f"INSERT INTO {name} VALUES (%s, %s)", rows)
    url = server.set(drivername="postgresql", query={"table": name}).render_as_string(hide_password=False)
    assert PrivateTable(open_data(url), MEASURED).counts("x").tolist() == [4, 3, 2]
    small = Schema.from_dict({"y": {"type": "numeric", "lower": 0, "upper": 10, "bins": 2, "missing": True}})
    assert PrivateTable(open_data(url), small).counts("y").tolist() == [4, 3, 2]
    levels = Schema.from_dict({"x": {"type": "categorical", "levels": [7, 8], "missing": True}})
    assert PrivateTable(open_data(url), levels).counts("x").tolist() == [1, 0, 8]
    assert sum(rows for _, rows in PrivateTable(open_data(url), MEASURED).value_counts("x")) == 7
    by_person = Schema(small.fields, person_id="x", max_rows_per_person=1)
    assert PrivateTable(open_data(url), by_person).counts("y").tolist() == [0, 1, 0]  # of whole numbers, 7 alone


def test_no_number_of_duckdb_is_too_large() -> None:
    connection = duckdb.connect()
    values = {
        "DOUBLE": ["'nan'", "'inf'", "'-inf'", "1e308", "5e-324", "7", "NULL"],
        "HUGEINT": ["170141183460469231731687303715884105727", "-170141183460469231731687303715884105727", "7", "NULL"],
        "UHUGEINT": ["340282366920938463463374607431768211455", "0", "7", "NULL"],
        "DECIMAL(38, 0)": ["99999999999999999999999999999999999999", "-1", "7", "NULL"],
        "DECIMAL(38, 37)": ["9.9999999999999999999999999999999999999", "0", "7", "NULL"],
    }
    for kind, numbers in values.items():
        rows = ", ".join(f"({number}::{kind})" for number in numbers)
        relation = connection.sql(f"SELECT x, 'a' AS y FROM (VALUES {rows}) AS t(x)")
        assert PrivateTable(relation, MEASURED).counts("x").sum() == len(numbers)
        levels = Schema.from_dict({"x": {"type": "categorical", "levels": [7, 8], "missing": True}})
        assert PrivateTable(relation, levels).counts("x").tolist() == [1, 0, len(numbers) - 1]
        by_person = Schema.from_dict({"y": ["a"]}, person_id="x", max_rows_per_person=1)
        merged = 4 if kind == "DOUBLE" else 0  # what is infinite or 2^53 and more in size, and NaN
        assert PrivateTable(relation, by_person).counts("y").tolist() == [len(numbers) - 1 - merged]


@pytest.mark.postgresql
def test_the_database_is_opened_for_reading_only(odd_url: str) -> None:
    frame = open_data(odd_url)
    with pytest.raises(Exception, match="read-only"):
        frame.get_backend().con.execute("CREATE TABLE mark (x integer)")


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "change",
    [
        {"password": "wr:ng@secret%"},
        {"database": "absent"},
        {"host": "127.0.0.1", "port": 1},
        {"username": "nobody-here"},
        {"query": {"table": "t", "sslmode": "secret?"}},
        {"query": {"table": "t", "schema": "absent"}},
        {"query": {"table": "absent", "password": "wr:ng@secret%"}},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_password_is_in_no_message_and_in_no_cause(server: sa.URL, change: dict[str, Any]) -> None:
    pytest.importorskip("ibis")
    target = server.set(drivername="postgresql", query={"table": "t"}).set(**change)
    with pytest.raises(InputError) as caught:
        open_data(target.render_as_string(hide_password=False))
    error: BaseException | None = caught.value
    assert "127.0.0.1" in str(error)
    while error is not None:
        assert "secret" not in f"{error} {error.args}"
        assert "w/rd" not in str(error)
        error = error.__context__


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ibis about DuckDB
def test_an_ibis_table_is_counted_where_text_can_be_compared_exactly_and_refused_elsewhere() -> None:
    ibis = pytest.importorskip("ibis")
    frame = patients()
    duck = ibis.duckdb.connect()
    duck.con.register("arrow", frame.to_arrow())
    duck.con.execute("CREATE TABLE patients AS SELECT * FROM arrow")
    for schema in (SCHEMA, BY_PERSON):
        counted = PrivateTable(duck.table("patients"), schema).counts(TABLES)
        for found, wanted in zip(counted, PrivateTable(frame, schema).counts(TABLES), strict=True):
            np.testing.assert_array_equal(found, wanted)
        rows = np.concatenate(
            list(PrivateTable(duck.table("patients"), schema).batches(7))
        )  # Ibis 12 does not, by itself
        known = np.concatenate(list(PrivateTable(frame, schema).batches(7)))
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(known, axis=0))
    duck.con.register("loose", loose_columns.rows().to_arrow())
    for schema in loose_columns.SCHEMAS.values():
        counted = PrivateTable(duck.table("loose"), schema).counts(loose_columns.TABLES)
        known = PrivateTable(loose_columns.rows(), schema).counts(loose_columns.TABLES)
        for found, wanted in zip(counted, known, strict=True):
            np.testing.assert_array_equal(found, wanted)
    other = PrivateTable(ibis.polars.connect({"patients": frame}).table("patients"), SCHEMA)
    with pytest.raises(SchemaError, match="'smoke' is text in polars"):
        other.counts("smoke")
    duck.disconnect()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://host/db?table=t", "'mysql' cannot be opened"),
        ("postgress://u:secret@host/db?table=t", "Did you mean 'postgres'"),
        ("duckdb:///clinic.db", "does not say which table"),
        ("duckdb:///clinic.db?table=", "does not say which table"),
        ("duckdb:///clinic.db?table", "cannot be read"),
        ("duckdb:///absent.db?table=t", "no such file"),
        ("duckdb://absent.db?table=t", "three slashes"),
        ("duckdb:///absent.db?table=t&secret=1", "not understood"),
        ("postgresql://u:secret@[host/db?table=t", "cannot be read"),
        ("postgresql://u:secret@host/db", "does not say which table"),
    ],
)
def test_an_unusable_url_is_an_error_that_shows_how_to_write_one(
    url: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=expected) as caught:
        open_data(url)
    assert "u:secret" not in str(caught.value)


def test_a_file_that_is_no_duckdb_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "clinic.db").write_text("just a text, and a private one" * 1000)
    with pytest.raises(InputError, match="cannot be opened as a DuckDB database") as caught:
        open_data(duckdb_url(tmp_path / "clinic.db", table="t"))
    assert "private" not in str(caught.value)


def test_a_plain_path_is_scanned(tmp_path: Path) -> None:
    patients().write_parquet(tmp_path / "patients.parquet")
    counted = PrivateTable(open_data(str(tmp_path / "patients.parquet")), SCHEMA).counts("smoke")
    np.testing.assert_array_equal(counted, PrivateTable(patients(), SCHEMA).counts("smoke"))


@pytest.mark.parametrize(
    ("missing", "url", "command"),
    [
        ("duckdb", "duckdb:///x.db?table=t", "escudo[duckdb]"),
        ("ibis", "postgresql://host/db?table=t", "escudo[database]"),
        ("psycopg", "postgresql://host/db?table=t", "escudo[database]"),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_installs_it(missing: str, url: str, command: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom escudo.table import open_data\nopen_data({url!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert (
        f"InputError: a {'DuckDB' if missing == 'duckdb' else 'PostgreSQL'} database needs: pip install" in run.stderr
    )
    assert command in run.stderr
