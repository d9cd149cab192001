"""Spark counts, streams and answers as every engine does, on its workers, also where one of them is lost."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import escudo
from conformance import derived_columns, loose_columns, spark_cluster
from conformance import test_engines as engines
from conformance import test_linked_engines as linked_engines
from conformance.spark_cluster import until
from escudo.attacks import attack
from escudo.causal import CausalGraph
from escudo.cli import app
from escudo.errors import EngineError, InputError, SchemaError
from escudo.learning import day_counts
from escudo.privacy import MemoryAccount
from escudo.synthesis import clinic
from escudo.table import Numeric, PrivateTable, PrivateTables, Schema, _lakes, _spark, _whole, draft_linked, open_data
from escudo.utility import Rows, evaluate_privately
from unit.table import test_iceberg as iceberg
from unit.table import test_lakes as lakes

pyspark = pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets to the Java machine
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    if not (os.environ.get("JAVA_HOME") or any(Path(place, "java").exists() for place in os.get_exec_path())):
        pytest.skip("java is not on this machine (Debian: apt install default-jre-headless)")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "America/New_York",  # days are those of UTC all the same
        "spark.driver.extraJavaOptions": spark_cluster.JAVA,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",  # for those who ask by Spark Connect
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    opened = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield opened
    opened.stop()


def _frame(session: Any, frame: pl.DataFrame) -> Any:
    return session.createDataFrame(frame.to_arrow()).repartition(2)


def test_spark_counts_as_the_reference_does(session: Any) -> None:
    data = engines._data()
    frame = _frame(session, engines._polars(data)).cache()
    for kind, columns in engines.SCHEMAS.items():
        counted = PrivateTable(frame, Schema(columns)).counts(engines.TABLES)
        for counts, table in zip(counted, engines.TABLES, strict=True):
            np.testing.assert_array_equal(counts, engines._expected(columns, data, table), err_msg=kind)


def test_an_error_of_spark_shows_no_value_nor_is_it_logged_by_pyspark(session: Any) -> None:
    session.createDataFrame([("1",), ("MARIA 47",)], "text string").createOrReplaceTempView("texts")
    failing = session.sql("SELECT CAST(text AS double) AS fever FROM texts")
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger = importlib.import_module("pyspark.logger").PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(handler)
    try:
        with pytest.raises(EngineError, match="withheld") as caught:
            PrivateTable(failing, Schema([Numeric("fever", 0, 9, 3)])).counts("fever")
        assert not seen
        assert "MARIA" not in "".join(traceback.format_exception(caught.value))
        with pytest.raises(Exception, match="MARIA 47"):  # what somebody asks of Spark by themselves
            failing.collect()
        assert "MARIA 47" in "".join(seen)
    finally:
        logger.removeHandler(handler)


FAILING = """
import sys
from pathlib import Path

from escudo.errors import EngineError
from escudo.table import Numeric, PrivateTable, Schema
from escudo.table._spark import spark_session

session = spark_session()
texts = session.read.parquet(sys.argv[1])  # by a task: of rows in memory the driver finds the error by itself
table = PrivateTable(texts.selectExpr("CAST(text AS double) AS fever"), Schema([Numeric("fever", 0, 9, 3)]))
try:
    table.counts("fever")
except EngineError:
    print("withheld")
people = Schema([Numeric("fever", 0, 9, 3)], person_id="text", max_rows_per_person=1)
PrivateTable(texts.selectExpr("text", "1.0 AS fever"), people).counts("fever")
written = [path.read_bytes() for path in Path(sys.argv[2]).rglob("shuffle_*.data")]
print("sealed" if any(written) and not any(b"MARIA" in each for each in written) else "open")
session.stop()
"""


def test_a_session_that_escudo_starts_logs_no_value_and_leaves_none_on_the_disk(session: Any, tmp_path: Path) -> None:
    settings = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    settings |= {"spark.local.dir": str(tmp_path / "local")}
    lines = [f"{name} {value}" for name, value in settings.items()]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    texts = tmp_path / "texts.parquet"
    pl.DataFrame({"text": ["1", "MARIA 47"]}).write_parquet(texts)
    place = {"SPARK_CONF_DIR": str(tmp_path), "JAVA_TOOL_OPTIONS": spark_cluster.JAVA}
    command = [sys.executable, "-c", FAILING, str(texts), str(tmp_path / "local")]
    done = subprocess.run(command, env=os.environ | place, capture_output=True, text=True)
    assert done.stdout.split() == ["withheld", "sealed"], done.stderr
    assert "MARIA" not in done.stderr


def test_spark_counts_very_many_pairs_on_its_workers(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, columns = engines._data(4), engines.SCHEMAS["missing and other"]
    frame = _frame(session, engines._polars(data))
    engines.many_pairs(monkeypatch)
    counted = PrivateTable(frame, Schema(columns)).counts(engines.TABLES)
    for counts, table in zip(counted, engines.TABLES, strict=True):
        np.testing.assert_array_equal(counts, engines._expected(columns, data, table))


def test_spark_keeps_the_same_rows_of_each_person(session: Any) -> None:
    data = engines._data(2)
    frame = _frame(session, engines._polars(data)).cache()
    for person_id in ("patient", "label"):
        schema = Schema(engines.SCHEMAS["missing and other"], person_id=person_id, max_rows_per_person=2)
        ours, spark = PrivateTable(engines._polars(data), schema), PrivateTable(frame, schema)
        for counts, wanted in zip(spark.counts(engines.TABLES), ours.counts(engines.TABLES), strict=True):
            np.testing.assert_array_equal(counts, wanted, err_msg=person_id)
        assert spark.record_count() == ours.record_count()
        pairs = [
            [np.column_stack([whose, rows]) for rows, whose in table.person_batches(100)] for table in (spark, ours)
        ]
        found, wanted = (engines._sorted(np.concatenate(rows)) for rows in pairs)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("columns", [derived_columns, loose_columns], ids=["derived", "loose"])
def test_spark_works_out_differences_of_columns_and_reads_texts_loosely(session: Any, columns: Any) -> None:
    rows = columns.rows()
    frame = _frame(session, rows).cache()
    for unit, schema in columns.SCHEMAS.items():
        spark, ours = (PrivateTable(one, schema).counts(columns.TABLES) for one in (frame, rows))
        for counts, wanted in zip(spark, ours, strict=True):
            np.testing.assert_array_equal(counts, wanted, err_msg=unit)


def test_linked_tables_of_spark_count_as_those_of_polars(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table in Spark, with keys of text, whose order is that of characters; then all of them, on the workers."""
    monkeypatch.setattr(_spark, "spark_packed", None)  # what hands rows to the driver
    here = linked_engines.frames()
    texts = {name: linked_engines.FRAMES["polars text keys"](frame) for name, frame in here.items()}
    mixed = {**texts, "visits": _frame(session, texts["visits"])}
    linked_engines.assert_counts(PrivateTables(mixed, linked_engines.SCHEMA))
    linked_engines.assert_two_clusters_are_refused({**mixed, "notes": linked_engines.dask_frame(here["notes"])})
    before = {*session._jsc.getPersistentRDDs()}
    dated = here["visits"].with_columns(pl.col("date").cast(pl.Datetime).dt.offset_by("2h").dt.replace_time_zone("UTC"))
    every = {**here, "visits": dated}  # days are those of UTC
    linked_engines.assert_counts(
        PrivateTables({name: _frame(session, frame) for name, frame in every.items()}, linked_engines.SCHEMA)
    )
    monkeypatch.setattr(_spark, "_MOST_BYTES", 1)  # then sums are merged on the workers, too
    linked_engines.assert_counts(
        PrivateTables({name: _frame(session, frame) for name, frame in texts.items()}, linked_engines.SCHEMA)
    )
    assert {*session._jsc.getPersistentRDDs()} == before  # what was kept on the workers is gone


def test_what_is_asked_of_linked_tables_of_spark_is_answered_by_its_workers(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release, a discovery, an effect, figures, days for a schema, as polars gives them; the driver gets sums."""
    made = clinic(60, seed=3)
    frames = {name: _frame(session, frame) for name, frame in made.frames.items()}
    for way in ("toPandas", "toArrow", "toLocalIterator"):
        monkeypatch.setattr(type(frames["visits"]), way, None)
    here, there = (PrivateTables(each, made.schema, people=60) for each in (made.frames, frames))
    terms: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "seed": 1}

    def answers(tables: PrivateTables) -> list[str]:
        model = escudo.synthesize(tables, graph=made.graph, **terms)
        drawn = model.sample(20, seed=1)
        figures = evaluate_privately(tables, drawn, epsilon=1.0, seed=1)
        found = escudo.discover(tables, **terms)
        asked = ("visits.treat@prev", "visits.severity")
        effect = escudo.effect_of(tables, *asked, graph=made.graph, outcome_level="severe", **terms)
        return [str(drawn), str(figures.to_json()), str(found.graph), str(effect.to_json())]

    assert answers(there) == answers(here)
    days, wanted = (day_counts(each, made.schema) for each in (frames, made.frames))
    np.testing.assert_equal(days, wanted)


@pytest.mark.parametrize("name", ["blood.pressure", "a`b"])
def test_a_name_that_pyspark_hands_to_no_worker_is_refused_before_anything_is_asked(session: Any, name: str) -> None:
    frame = session.createDataFrame(pl.DataFrame({name: [1.0], "other": [2.0]}).to_arrow())
    with pytest.raises(SchemaError, match="a dot or a backtick"):
        PrivateTable(frame, Schema([Numeric(name, 0, 9, 3)]))
    assert PrivateTable(frame, Schema([Numeric("other", 0, 9, 3)])).counts("other").sum() == 1


def test_spark_streams_cells_numbers_and_days(session: Any) -> None:
    data = engines._data(3)
    days = pl.Series("day", range(engines.ROWS), dtype=pl.Int32).cast(pl.Date)
    instants = pl.datetime_range(
        pl.datetime(2024, 1, 1, 22), pl.datetime(2024, 1, 9, 22), "6h", time_zone="UTC", eager=True
    )
    chosen = instants.gather(np.arange(engines.ROWS) % len(instants)).alias("instant")
    table = engines._polars(data).with_columns(days, chosen)
    fields = (
        *engines.SCHEMAS["missing"],
        Numeric("day", "1970-02-01", "1971-06-01", 30, date="%Y-%m-%d"),
        Numeric("instant", "2024-01-01", "2024-01-11", 10, date="%Y-%m-%d"),
    )
    ours, spark = (PrivateTable(frame, Schema(fields)) for frame in (table, _frame(session, table)))
    cells, wanted = (engines._sorted(np.concatenate(list(t.batches(256)))) for t in (spark, ours))
    np.testing.assert_array_equal(cells, wanted)
    numbers, wanted = (
        engines._sorted(np.concatenate(list(t.batches(256, ["real", "day", "instant"], encode="scaled"))))
        for t in (spark, ours)
    )
    np.testing.assert_array_equal(numbers, wanted)
    assert spark.record_count() == engines.ROWS
    assert dict(spark.value_counts("text")) == dict(ours.value_counts("text"))


def test_spark_and_dask_add_up_sums_on_their_workers(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row passes through the driver for moments, straight lines and the scales of discovery."""
    from escudo.discovery import _gaussian
    from escudo.synthesis import _linear, _moment_statistics

    monkeypatch.setattr(_spark, "spark_pieces", None)  # what hands rows to the driver
    data, columns = engines._data(6), engines.SCHEMAS["missing"]
    spark, here = _frame(session, engines._polars(data)).cache(), engines._polars(data)
    for unit in ({}, {"person_id": "patient", "max_rows_per_person": 2}):
        schema = Schema(columns, **unit)
        layout = _moment_statistics.MomentLayout(
            {name: schema[name].size for name in schema.names}, (("text", "flag"), ("whole", "flag"))
        )

        def found(frame: Any, schema: Schema = schema, layout: Any = layout) -> list[Any]:
            table = PrivateTable(frame, schema)
            counted = _gaussian._sums(table, ("real",), lambda rows: _gaussian.histograms(rows, 1))
            return [*_moment_statistics.table_sums(table, layout, 8), counted]

        wanted = found(here)
        assert all(np.any(one) for one in wanted)
        for one in (found(spark), found(engines.BY_PERSON["dask"](data))):
            for some, other in zip(one, wanted, strict=True):
                np.testing.assert_array_equal(some, other)
    clinic, described = spark_cluster.clinic()
    numbers = described.select(["dose", "late"])
    ours, theirs = (PrivateTable(one, numbers) for one in (clinic, _frame(session, clinic)))
    wanted = _linear._second_moments(ours, 10**6)
    np.testing.assert_array_equal(_linear._second_moments(theirs, 10**6), wanted)
    monkeypatch.setattr(_spark, "_MOST_BYTES", 1)  # then sums are merged on the workers, too
    np.testing.assert_array_equal(_linear._second_moments(theirs, 10**6), wanted)


def test_spark_does_not_read_the_files_of_a_delta_or_iceberg_table_as_parquet(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They also hold rows that were deleted; where the driver does not see them, Spark is asked for their logs."""
    for kind, inside in (("delta", "_delta_log/0.json"), ("iceberg", "metadata/version-hint.text")):
        folder = tmp_path / kind
        (folder / inside).parent.mkdir(parents=True)
        (folder / inside).write_text("1")
        pl.DataFrame({"a": [1]}).write_parquet(folder / "part.parquet")
        monkeypatch.setattr(_spark, "is_lake", lambda _: False)
        with pytest.raises(InputError, match=f"(?i){kind} table.*format={kind}"):
            open_data(f"spark://{folder}")
    monkeypatch.undo()
    for form in ("", "?format=delta"):
        with pytest.raises(InputError, match="cannot be read as a Delta table"):
            open_data(f"spark://{tmp_path}/delta{form}")


def test_workers_read_the_files_of_a_delta_table(session: Any, tmp_path: Path) -> None:
    """Deleted rows, a deletion vector, partitions, a column that came later, odd values, and a table without rows."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    data = engines._polars(engines._data(7))
    parted = {"partition_by": ["flag"]}
    for name in ("visits", "all visits é"):
        changed = tmp_path / name
        data.head(200).drop("real").write_delta(str(changed), delta_write_options=parted)
        data.slice(200).write_delta(str(changed), mode="append", delta_write_options={**parted, "schema_mode": "merge"})
        deltalake.DeltaTable(str(changed)).delete("patient < 7")
    data.clear().write_delta(str(tmp_path / "none"))
    _by_vector(tmp_path / "vector")
    columns, people = engines.SCHEMAS["missing and other"], {"person_id": "patient", "max_rows_per_person": 2}
    _expect_lake(tmp_path / "visits", Schema(columns, **people), engines.TABLES)
    for name in ("all visits é", "none"):
        _expect_lake(tmp_path / name, Schema(columns), engines.TABLES)
    _expect_lake(tmp_path / "vector", lakes.SCHEMA, [("kind", "size")])
    assert open_data(f"spark://{tmp_path}/vector?format=delta").count() == 96


def test_a_file_that_is_gone_when_a_worker_reads_it_is_named(session: Any, tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    lakes.ROWS.write_delta(str(tmp_path / "MARIA"))
    table = PrivateTable(open_data(f"spark://{tmp_path}/MARIA", lakes.SCHEMA), lakes.SCHEMA)
    for file in (tmp_path / "MARIA").glob("*.parquet"):
        file.unlink()
    with pytest.raises(EngineError, match="a file with rows was gone") as failed:
        table.counts("kind")
    assert "MARIA" not in str(failed.value)


def _by_vector(folder: Path) -> None:
    """Make a Delta table of which a deletion vector names rows 0, 1, 2 and 50."""
    log, file, _ = lakes.plain(folder)
    bitmap = "^Bg9^0rr910000000000iXQKl0rr91000935c8Xg000310ST$Q"
    vector = {"storageType": "i", "pathOrInlineDv": bitmap, "sizeInBytes": 40, "cardinality": 4}
    removed = {"path": file["path"], "deletionTimestamp": 1, "dataChange": True, "partitionValues": {}}
    lakes.committed(log, "deletionVectors", {"remove": removed}, {"add": {**file, "deletionVector": vector}})


def _expect_lake(place: Path, schema: Schema, tables: Any) -> None:
    """Hold that the workers of Spark count a table as polars does."""
    ours, spark = (PrivateTable(open_data(f"{at}{place}", schema), schema) for at in ("", "spark://"))
    assert (ours.engine, spark.engine) == ("polars", "pyspark")
    for counts, wanted in zip(spark.counts(tables), ours.counts(tables), strict=True):
        np.testing.assert_array_equal(counts, wanted)


def test_workers_read_the_files_of_an_iceberg_table(session: Any, tmp_path: Path) -> None:
    """Rows that were deleted by their place and by their values, format 3, and a table without rows."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import StaticTable

    catalogue = SqlCatalog("here", uri=f"sqlite:///{tmp_path}/catalogue.db", warehouse=f"file://{tmp_path}/tables")
    catalogue.create_namespace("clinic")
    empty = catalogue.create_table("clinic.none", schema=iceberg.ROWS.to_arrow().schema)
    visits = catalogue.create_table("clinic.visits", schema=iceberg.ROWS.to_arrow().schema)
    for rows in (iceberg.ROWS, iceberg.ROWS.head(10)):
        visits.append(rows.to_arrow())
    large, small = iceberg.files_of(visits)
    places = iceberg.places(tmp_path / "places.parquet", sorted([(large, 0), (large, 99), (small, 5)]))
    by_place = iceberg.with_deletes(visits, places, 3)
    values = iceberg.values(tmp_path / "values.parquet", {"kind": ["a"]}, (1,))
    by_both = iceberg.with_deletes(StaticTable.from_metadata(str(by_place)), values, 1, equal=(1,), later=0)
    newer = iceberg.as_version(visits, 3)
    for version in (iceberg.described(empty), by_place, by_both, newer):
        _expect_lake(Path(version), iceberg.SCHEMA, [("kind", "size"), ("kind",)])
    catalogue.close()


def test_a_release_of_a_lake_reads_its_files_on_the_workers(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    frame, schema = spark_cluster.clinic()
    frame.write_delta(str(tmp_path / "visits"))
    schema.write(tmp_path / "visits.toml")
    monkeypatch.setattr(_lakes.DeltaPart, "rows", None)  # workers have the class of their own
    out = tmp_path / "release"
    told = ["--schema", str(tmp_path / "visits.toml"), "--epsilon", "1", "--out", str(out), "--rows", "100"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["release", "visits", "--engine", "spark", *told, "--seed", "1"])
    assert done.exit_code == 0, done.output
    assert pl.read_parquet(out / "synthetic.parquet").height == 100


def test_a_release_a_discovery_a_direction_and_an_effect_are_those_of_polars(session: Any) -> None:
    frame, schema = spark_cluster.clinic()
    assert spark_cluster.answers(_frame(session, frame), schema) == spark_cluster.answers(frame, schema)


def test_blocks_vote_where_their_records_are(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By position, by the rows' own values and by person; of pairs, and of one pair; to the last vote."""
    monkeypatch.setattr(_spark, "spark_pieces", None)  # what hands rows to the driver
    frame, schema = spark_cluster.clinic()
    frame = frame.with_columns(who=pl.int_range(pl.len()) // 2, half=pl.col("dose") / 2)
    described = {"half": {"type": "numeric", "lower": 0, "upper": 3}}
    fields = (*schema.fields, *Schema.from_dict(described).fields)
    spark = session.createDataFrame(frame.to_arrow()).cache()  # in the order of the frame, for positions
    assert spark.rdd.getNumPartitions() > 1
    units = [
        (Schema(fields), {}),
        (Schema(fields), {"relation": "add_remove", "rows": 3000}),
        (Schema(fields, person_id="who", max_rows_per_person=2), {}),
    ]
    for chosen, terms in units:
        ours, theirs = (PrivateTable(one, chosen, **terms) for one in (frame, spark))
        answers = [escudo.direction(one, "dose", "late", epsilon=2.0, seed=1).to_json() for one in (ours, theirs)]
        assert answers[0] == answers[1]
        assert answers[0]["margin"] != 0
    public = {"relation": "add_remove", "rows": 3000}  # a table without rows is one like any other
    none = [PrivateTable(one, Schema(fields), **public) for one in (frame.clear(), spark.limit(0))]
    answers = [escudo.direction(one, "dose", "late", epsilon=2.0, seed=1).to_json() for one in none]
    assert answers[0] == answers[1]
    graph = CausalGraph.parse("graph {dose -- late; half -- late}")
    several = [escudo.orient(one, graph, epsilon=3.0, delta=1e-6, seed=1) for one in (ours, theirs)]
    assert str(several[0].to_json()) == str(several[1].to_json())


def _watched(patch: pytest.MonkeyPatch, frame: Any) -> list[int]:
    """Let no way be open by which rows come to the driver, and note how many bytes come by the others."""
    for way in ("toPandas", "toLocalIterator"):
        patch.setattr(type(frame), way, None)
    patch.setattr(_spark, "spark_pieces", None)  # what hands rows to the driver
    patch.setattr(_whole, "held", None)  # what holds them: workers have one of their own
    got: list[int] = []
    collect, to_arrow = type(frame).collect, type(frame).toArrow

    def collected(self: Any) -> Any:
        rows = collect(self)
        got.extend(len(value) if isinstance(value, bytes | bytearray) else 8 for row in rows for value in row)
        return rows

    def as_arrow(self: Any) -> Any:  # how rows are counted
        rows = to_arrow(self)
        got.append(rows.nbytes)
        return rows

    patch.setattr(type(frame), "collect", collected)
    patch.setattr(type(frame), "toArrow", as_arrow)
    return got


COMPARED = [("gap", "sqrt_hsic"), ("gap", "spearman"), ("gap", "iqr"), ("paper", "hsic"), ("paper", "iqr")]


def test_what_compares_whole_columns_is_found_on_a_worker_to_the_last_bit(session: Any) -> None:
    """Of all rows the driver gets a score, or the counts of cells: no row, and hardly more bytes for many."""
    frame, schema = spark_cluster.clinic(20_000)
    frame = frame.with_columns(half=pl.when(pl.col("dose") < 2).then(pl.col("dose") / 2 + pl.col("late") / 9))
    fields = (*schema.fields, *Schema.from_dict({"half": {"type": "numeric", "lower": 0, "upper": 2}}).fields)
    spark = session.createDataFrame(frame.to_arrow()).cache()  # in the order of the frame, for positions
    public = {"dose": np.linspace(0.1, 1.9, 400), "half": np.linspace(0.1, 1.9, 400) ** 2 / 3}
    asked = [(each, {"method": each[0], "score": each[1]}) for each in COMPARED]
    asked += [(("gap", "sqrt_hsic"), {"method": "gap", "train": public})]
    asked += [(("paper", "spearman"), {"method": "paper", "score": "spearman", "test": public})]
    for (_, score), how in asked:
        terms = {"epsilon": 9.0, "delta": 1e-6, "seed": 1, **how}
        ours = escudo.direction(PrivateTable(frame, Schema(fields)), "dose", "half", **terms).to_json()
        with pytest.MonkeyPatch.context() as patch:
            got = _watched(patch, spark)
            theirs = escudo.direction(PrivateTable(spark, Schema(fields)), "dose", "half", **terms).to_json()
        assert ours == theirs, how
        assert ours["released"]
        assert sum(got) < (40_000 if score == "iqr" else 4000), how  # 20,000 rows of two floats are 320,000 bytes
    spark.unpersist()


def _noting(folder: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what leaves a file each time a worker reads a partition."""

    def noted(batches: Iterator[Any]) -> Iterator[Any]:
        (folder / f"read-{uuid.uuid4()}").touch()
        yield from batches

    return noted


def test_columns_that_are_split_by_position_are_read_once(session: Any, tmp_path: Path) -> None:
    """For one half and then for the other; what was kept for it is gone. How many rows there are is counted before."""
    frame, schema = spark_cluster.clinic()

    spark = session.createDataFrame(frame.to_arrow())
    table = PrivateTable(spark.mapInArrow(_noting(tmp_path), spark.schema), schema, rows=frame.height)
    before = {*session._jsc.getPersistentRDDs()}
    assert escudo.direction(table, "dose", "late", epsilon=2.0, method="gap", seed=1).released
    assert len(list(tmp_path.glob("read-*"))) == 2 * spark.rdd.getNumPartitions() > 2
    assert {*session._jsc.getPersistentRDDs()} == before


TRAININGS: dict[str, dict[str, Any]] = {
    "autoregressive": {"generator": "autoregressive", "steps": 10, "pretraining": 10},
    "joint": {"generator": "vae", "discover": "joint", "steps": 10, "latent": 2, "encoder": (8,), "decoder": (8,)},
    "printed": {"generator": "vae", "architecture": "columns", "steps": 10, "hidden": (4,), "latent": 2},
    "no privacy": {"generator": "vae", "architecture": "columns", "steps": 10, "hidden": (4,), "latent": 2},
}


def _trained(frame: Any, schema: Schema, kind: str, **how: Any) -> dict[str, Any]:
    """Return the parameters that a training ends with."""
    paid = {"epsilon": None, "no_privacy": True} if kind == "no privacy" else {"epsilon": 2.0, "delta": 1e-6}
    graph = None if kind == "joint" else CausalGraph.parse("digraph {smoke -> ill -> dose; late}")
    how = {"seed": 1, **paid, **TRAININGS[kind], **how}
    model = escudo.synthesize(PrivateTable(frame, schema), graph=graph, **how)
    return {f"{layer} {name}": array for layer, arrays in model.parameters.items() for name, array in arrays.items()}


@pytest.mark.parametrize("kind", [kind for kind in TRAININGS if kind != "autoregressive"])  # of that, below
def test_networks_are_trained_on_a_worker_to_the_last_bit(
    kind: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row comes to the driver, but counts for the start, and parameters."""
    frame, schema = spark_cluster.clinic()
    ours = _trained(frame, schema, kind)
    spark = session.createDataFrame(frame.to_arrow()).cache()
    got = _watched(monkeypatch, spark)
    theirs = _trained(spark, schema, kind)
    np.testing.assert_equal(theirs, ours)
    assert 0 < max(got) < 8 * sum(array.size for array in ours.values()) + 10_000  # bytes of parameters, or of counts
    spark.unpersist()


def test_people_are_trained_on_on_a_worker_that_gets_their_rows_in_one_order(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they arrive: a seed repeats the training. All rows are those of polars."""
    frame, schema = spark_cluster.clinic()
    frame = frame.with_columns(who=(pl.int_range(pl.len()) // 3).cast(pl.String))
    people = Schema(schema.fields, person_id="who", max_rows_per_person=2)
    wanted = np.concatenate(list(PrivateTable(frame, people).batches()))
    orders, made = [], []
    for parts in (2, 7):
        spark = session.createDataFrame(frame.sample(fraction=1.0, shuffle=True, seed=parts).to_arrow())
        with pytest.MonkeyPatch.context() as patch:
            _watched(patch, spark)
            with PrivateTable(spark.repartition(parts), people).in_one_place() as whole:
                orders.append(whole.found(np.copy))
            made.append(_trained(spark.repartition(parts), people, "autoregressive"))
    np.testing.assert_array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(engines._sorted(orders[0]), engines._sorted(wanted))
    np.testing.assert_equal(made[0], made[1])


def test_a_training_that_was_stopped_goes_on_on_a_worker_from_its_start(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the driver had been killed while a worker trained: what that drew is nowhere, and nothing is paid twice."""
    frame, schema = spark_cluster.clinic()
    schema = schema.select(["smoke", "ill"])  # bins that are left to the release have no checkpoint
    spark, account, folder = session.createDataFrame(frame.to_arrow()), MemoryAccount(), tmp_path / "kept"
    asked: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "seed": 1, **TRAININGS["autoregressive"]}

    class Stopped(BaseException):
        pass

    def fit(frame: Any, account: Any, **how: Any) -> Any:
        return escudo.synthesize(PrivateTable(frame, schema, account), None, **asked, **how)

    def stops(*_: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(_whole.Whole, "found", stops)
        with pytest.raises(Stopped):
            fit(spark, account, checkpoint=folder)
    assert len(account.receipts) == 1
    _watched(monkeypatch, spark)
    went_on = fit(spark, account, checkpoint=folder)
    assert len(account.receipts) == 1
    assert not folder.exists()
    monkeypatch.undo()
    np.testing.assert_equal(went_on.parameters, fit(frame, MemoryAccount()).parameters)


def test_what_goes_wrong_on_a_worker_is_said_without_a_value_and_not_tried_again(session: Any, tmp_path: Path) -> None:
    frame, schema = spark_cluster.clinic()
    table = PrivateTable(_frame(session, frame), schema)

    def fails(rows: Any) -> Any:
        (tmp_path / f"tried-{uuid.uuid4()}").touch()
        raise ValueError(f"MARIA {rows[0]}")

    with table.in_one_place() as whole:
        with pytest.raises(EngineError, match=r"\(ValueError\)") as caught:
            whole.found(fails)
        assert len(list(tmp_path.glob("tried-*"))) == 1
        shown = "".join(traceback.format_exception(caught.value)).replace('f"MARIA', "")
        assert "MARIA" not in shown
        assert whole.found(np.shape).tolist() == [3000, 4]  # and the worker goes on
    texts = session.createDataFrame([("MARIA 47",)], "text string").selectExpr("CAST(text AS double) AS fever")
    with PrivateTable(texts, Schema([Numeric("fever", 0, 9, 3)])).in_one_place() as whole:
        with pytest.raises(EngineError, match="withheld") as caught:
            whole.found(np.shape)
        assert "MARIA 47" not in "".join(traceback.format_exception(caught.value))


def test_blocks_that_vote_by_position_read_the_table_once(session: Any, tmp_path: Path) -> None:
    frame, schema = spark_cluster.clinic()

    spark = session.createDataFrame(frame.to_arrow())
    watched = spark.mapInArrow(_noting(tmp_path), spark.schema)
    table = PrivateTable(watched, schema, rows=frame.height)
    before = {*session._jsc.getPersistentRDDs()}
    assert escudo.direction(table, "dose", "late", epsilon=2.0, seed=1).margin != 0
    assert len(list(tmp_path.glob("read-*"))) == spark.rdd.getNumPartitions() > 1
    assert {*session._jsc.getPersistentRDDs()} == before  # and what was kept for it is gone


def test_predictions_are_compared_where_the_rows_are(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spark, "spark_pieces", None)
    frame, schema = spark_cluster.clinic()
    made = frame.sample(fraction=0.5, seed=3)
    found = [
        evaluate_privately(PrivateTable(one, schema), made, epsilon=2.0, seed=1).to_json()
        for one in (frame, _frame(session, frame))
    ]
    assert found[0] == found[1]


def test_the_driver_gets_counts_and_no_rows(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, schema = spark_cluster.clinic(20_000)
    spark = _frame(session, frame)
    got: list[int] = []
    real: Callable[..., Any] = type(spark).collect

    def collect(self: Any) -> Any:
        rows = real(self)
        got.extend(len(value) for row in rows for value in row)
        return rows

    for way in ("toPandas", "toArrow", "toLocalIterator"):
        monkeypatch.setattr(type(spark), way, None)
    monkeypatch.setattr(type(spark), "collect", collect)
    by_person = Schema(schema.fields[:2], person_id="dose", max_rows_per_person=1)
    for chosen in (schema, by_person):
        table = PrivateTable(spark, chosen)
        assert table.counts(["smoke", "ill"]).sum() > 0
    assert len(got) >= 2
    assert sum(got) < 1000  # bytes, of 20,000 rows


def test_a_url_names_data_of_spark_for_every_command(session: Any, tmp_path: Path) -> None:
    frame, schema = spark_cluster.clinic()
    (tmp_path / "visits").mkdir()
    for part in range(2):
        frame[part::2].write_parquet(tmp_path / "visits" / f"part-{part}.parquet")
    data = f"spark://{tmp_path}/visits"
    table = PrivateTable(open_data(data), schema)
    assert table.engine == "pyspark"
    np.testing.assert_array_equal(table.counts("ill"), PrivateTable(frame, schema).counts("ill"))
    for wrong, said in {
        "spark://": "one folder or one table",
        "spark:///x?table=y": "one folder or one table",
        "spark:///x?format=csv": "none of parquet",
        "spark:///x?other=1": "one folder or one table",
        f"spark://{tmp_path}/nowhere": "cannot open",
        "spark:///?table=nowhere": "cannot open",
    }.items():
        with pytest.raises(InputError, match=said):
            open_data(wrong)
    schema.write(tmp_path / "visits.toml")
    out = tmp_path / "release"
    told = ["--schema", str(tmp_path / "visits.toml"), "--epsilon", "1", "--out", str(out), "--rows", "100"]
    done = CliRunner().invoke(app, ["release", data, *told, "--seed", "1"])
    assert done.exit_code == 0, done.output
    assert pl.read_parquet(out / "synthetic.parquet").height == 100
    skipping = "spark.sql.files.ignoreMissingFiles"
    for skips in (False, True):
        session.conf.set(skipping, str(skips).lower())
        looked = CliRunner().invoke(
            app, ["doctor", "--spark", "spark:", "--json", "--ledger", f"sqlite:///{tmp_path}/l.db"]
        )
        seen = json.loads(looked.stdout)["spark"]
        assert seen["fits"] is True, looked.output
        assert "set spark.io.encryption.enabled" in seen["state"]  # the tests' own session has it off
        assert (skipping in seen["state"]) == skips
    session.conf.unset(skipping)
    assert isinstance(CliRunner().invoke(app, ["doctor", "--spark", "yarn"]).exception, InputError)


def test_what_the_custodian_asks_is_done_on_a_worker_to_the_last_bit(session: Any, tmp_path: Path) -> None:
    """Evaluations, attacks and games, of one table and of linked ones; the driver gets what it is told of them."""
    frame, schema = spark_cluster.clinic(4000)
    made = clinic(40, seed=1)

    def answers(opened: Callable[[pl.DataFrame], Any]) -> str:
        every, some = opened(frame), [frame[:50], opened(frame[:60])]
        found = escudo.evaluate(frame[:400], every, some, schema, targets=["ill"], learners=["logistic"])
        people = {name: opened(one) for name, one in made.frames.items()}
        told = [spark_cluster.asked(every, schema), spark_cluster.asked_of_people(people, made), found.to_json()]
        return json.dumps(told, default=str)

    wanted = answers(lambda frame: frame)
    spark = session.createDataFrame(frame.to_arrow())
    assert spark.rdd.getNumPartitions() > 1
    with pytest.MonkeyPatch.context() as patch:
        got = _watched(patch, spark)
        patch.setattr(_spark, "spark_packed", None)
        patch.setattr(Rows, "read", None)
        assert answers(lambda frame: session.createDataFrame(frame.to_arrow())) == wanted
    assert 0 < max(got) < 40_000 < frame.estimated_size()  # bytes


def test_what_a_worker_lacks_and_what_cannot_be_sent_there_is_said(session: Any) -> None:
    frame, schema = spark_cluster.clinic(50)
    spark, lock = session.createDataFrame(frame.to_arrow()), threading.Lock()

    def lacking(rows: Any, rng: Any) -> Any:
        import nowhere

        return nowhere.rows(rows)

    def locked(rows: Any, rng: Any) -> Any:
        with lock:
            return rows

    for generator, said in ((lacking, "a worker lacks the package 'nowhere'"), (locked, "cannot be sent to workers")):
        with pytest.raises(EngineError, match=said):
            attack(generator, spark, schema, targets=1, shadows=2, trials=2)
    with pytest.raises(InputError, match="real_train has no rows"):
        escudo.evaluate(spark.limit(0), spark, frame, schema)


def test_what_the_custodian_asks_takes_data_of_spark(session: Any, tmp_path: Path) -> None:
    """A draft, a check, an evaluation and an attack, by ``--engine spark``, say what they say of the same file here.

    Nothing that has as many rows as a table comes to the driver.
    """
    frame, schema = spark_cluster.clinic(300)
    data, described, made = (str(tmp_path / name) for name in ("visits.parquet", "visits.toml", "made.parquet"))
    frame.write_parquet(data)
    frame.sample(fraction=1.0, with_replacement=True, seed=1).write_parquet(made)
    Schema(schema.fields, rules=("dose >= late",)).write(Path(described))
    people = clinic(40, seed=1)
    people.schema.write(tmp_path / "clinic.toml")
    tables = [str(tmp_path / f"{name}.parquet") for name in ("patients", "visits_of_people")]
    for path, one in zip(tables, people.frames.values(), strict=True):
        one.write_parquet(path)
    named = [tables[0], f"visits={tables[1]}"]
    told, page = ["--schema", described, "--seed", "1", "--jobs", "1", "--json"], ["--out", str(tmp_path / "page.html")]
    few = ["--targets", "1", "--choose", "random", "--shadows", "2", "--trials", "2"]
    questions = [
        ["schema", "check", data, "--schema", described, "--json"],
        ["schema", "check", *named, "--schema", str(tmp_path / "clinic.toml"), "--json"],
        ["evaluate", data, data, made, "--target", "ill", "--learner", "logistic", *told, *page],
        ["attack", data, "--generator", "independent", "--epsilon", "1", *few, *told],
    ]

    def answers(engine: str) -> list[Any]:
        found: list[Any] = []
        for asked in questions:
            done = CliRunner().invoke(app, [*asked, "--engine", engine])
            assert done.exit_code == 0, (asked, done.output)
            found.append(json.loads(done.stdout))
        drafted = tmp_path / f"{engine}.toml"
        done = CliRunner().invoke(app, ["schema", "draft", data, "--out", str(drafted), "--engine", engine])
        assert done.exit_code == 0, done.output
        opened = {name: open_data(path, engine=engine) for name, path in zip(people.frames, tables, strict=True)}
        linked = draft_linked(opened, "patients").to_dict()
        return [*found, (tmp_path / "page.html").read_text(), Schema.read(drafted).to_dict(), linked]

    wanted = answers("polars")
    kind = type(session.range(1))
    to_arrow = kind.toArrow

    def few_rows(self: Any) -> Any:
        rows = to_arrow(self)
        assert rows.num_rows < 100
        return rows

    with pytest.MonkeyPatch.context() as patch:
        _watched(patch, session.range(1))
        patch.setattr(kind, "toArrow", few_rows)
        found = answers("spark")
    assert found == wanted


# ---- by Spark Connect


@pytest.fixture(scope="module")
def address(session: Any) -> str:
    needed = {"grpcio": "grpc", "grpcio-status": "grpc_status", "googleapis-common-protos": "google.rpc.status_pb2"}
    for package, module in {**needed, "zstandard": "zstandard", "pandas": "pandas"}.items():
        pytest.importorskip(module, reason=f"{package} is not installed")
    service = getattr(session._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"


@pytest.fixture(scope="module")
def remote(address: str) -> Iterator[Any]:
    """Return a session that has nothing of the server but its address."""
    from pyspark.sql.connect.session import SparkSession

    opened = SparkSession.builder.remote(address).getOrCreate()
    yield opened
    opened.stop()


def test_whatever_is_asked_by_spark_connect_is_answered_by_the_workers(remote: Any, session: Any) -> None:
    """A release, a discovery, directions, an effect, a training, an evaluation, linked tables; to the last bit.

    The client gets counts, sums and parameters.
    """
    frame, schema = spark_cluster.clinic()
    made, described = frame.sample(fraction=0.5, seed=3), clinic(60, seed=3)
    people = Schema(schema.fields[:2], person_id="who", max_rows_per_person=2)
    owned = frame.with_columns(who=(pl.int_range(pl.len()) // 3).cast(pl.String))

    def answers(opened: Callable[[pl.DataFrame], Any]) -> str:
        rows, theirs = opened(frame), PrivateTable(opened(owned), people)
        told = [spark_cluster.answers(rows, schema), spark_cluster.compared(rows, schema)]
        told.append(escudo.evaluate(rows, frame, made, schema, targets=["ill"], learners=["logistic"]).to_json())
        told.append(spark_cluster.linked({n: opened(f) for n, f in described.frames.items()}, described.schema))
        told += [theirs.counts(["smoke", "ill"]).tolist(), theirs.record_count(), sorted(theirs.value_counts("ill"))]
        return json.dumps(told, default=str)

    wanted = answers(lambda rows: rows)
    first = remote.createDataFrame(frame.to_arrow())
    assert PrivateTable(first, schema).engine == "pyspark"
    with pytest.MonkeyPatch.context() as patch:
        got = _watched(patch, first)
        patch.setattr(_spark, "spark_packed", None)
        assert answers(lambda rows: remote.createDataFrame(rows.to_arrow())) == wanted
    assert 0 < max(got) < 10_000 < frame.estimated_size()  # bytes


def test_what_workers_keep_for_spark_connect_is_found_again_and_is_gone_in_the_end(
    remote: Any, session: Any, tmp_path: Path
) -> None:
    frame, schema = spark_cluster.clinic()
    spark = remote.createDataFrame(frame.to_arrow()).repartition(2)
    table = PrivateTable(spark.mapInArrow(_noting(tmp_path), spark.schema), schema)
    before = {*session._jsc.getPersistentRDDs()}
    with table.in_one_place(once=False) as whole:
        for _ in range(2):
            assert whole.found(np.shape, in_order=True).tolist() == [frame.height, 4]
        assert {*session._jsc.getPersistentRDDs()} != before
    assert len(list(tmp_path.glob("read-*"))) == 2
    assert {*session._jsc.getPersistentRDDs()} == before


def test_what_goes_wrong_by_spark_connect_is_said_without_a_value(
    remote: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.connect.logging import logger

    texts = remote.createDataFrame([("1",), ("MARIA 47",)], "text string").selectExpr("CAST(text AS double) AS fever")
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(handler.format(record))  # type: ignore[method-assign]
    monkeypatch.setattr(logger, "disabled", False)  # as SPARK_CONNECT_LOG_LEVEL does
    monkeypatch.setattr(logger, "handlers", [handler])
    with pytest.raises(EngineError, match="withheld") as caught:
        PrivateTable(texts, Schema([Numeric("fever", 0, 9, 3)])).counts("fever")
    assert "MARIA" not in "".join([*traceback.format_exception(caught.value), *seen])
    frame, schema = spark_cluster.clinic(50)
    monkeypatch.setattr(_spark, "_MOST_SENT", 2**10)
    with pytest.raises(InputError, match="Spark Connect takes"):
        escudo.evaluate(remote.createDataFrame(frame.to_arrow()), frame, frame, schema)
    monkeypatch.setattr(_spark, "spark_session", lambda _: remote)
    with pytest.raises(InputError, match="cannot open"):  # though Connect itself looks later
        open_data(f"spark://{tmp_path}/nowhere")


def test_a_command_asks_the_server_of_spark_connect_that_the_place_names(address: str, tmp_path: Path) -> None:
    frame, schema = spark_cluster.clinic(300)
    frame.write_parquet(tmp_path / "visits.parquet")
    schema.write(tmp_path / "visits.toml")
    asked = ["release", "visits.parquet", "--engine", "spark", "--schema", "visits.toml", "--epsilon", "1"]
    command = [sys.executable, "-m", "escudo", *asked, "--out", "release", "--rows", "100", "--seed", "1"]
    env = {**os.environ, "SPARK_REMOTE": address}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(tmp_path / "release" / "synthetic.parquet").height == 100


# ---- a standalone cluster


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _named(folder: Path, pattern: str) -> Callable[[], list[str]]:
    return lambda: sorted(path.name for path in folder.glob(pattern))


class Cluster:
    """A standalone master and two workers of one core each, as processes of their own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.address = f"spark://127.0.0.1:{(port := _free_port())}"
        self.running: list[subprocess.Popen[bytes]] = []
        self._start("Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until(lambda: "I have been elected leader" in self.log(0), "master")
        self.add_workers(2)

    def add_workers(self, count: int) -> None:
        before = len(self.running)
        for _ in range(count):
            place = str(self.folder / f"work-{len(self.running)}")
            options = ["--cores", "1", "--memory", "600m", "--webui-port", "0", "--work-dir", place]
            self._start("Worker", "--host", "127.0.0.1", *options, self.address)
        for worker in range(before, before + count):
            until(lambda worker=worker: "Successfully registered" in self.log(worker), "worker")

    def _start(self, kind: str, *options: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *options]
        env = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        env["SPARK_DAEMON_JAVA_OPTS"] = spark_cluster.JAVA
        with (self.folder / f"log-{len(self.running)}").open("wb") as log:
            self.running.append(subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True))

    def log(self, which: int) -> str:
        return (self.folder / f"log-{which}").read_text(errors="replace")

    def kill(self, which: int) -> None:
        """End a process and what it started, at once."""
        os.killpg(self.running[which].pid, signal.SIGKILL)
        self.running[which].wait()

    def stop(self) -> None:
        for which, process in enumerate(self.running):
            if process.poll() is None:
                self.kill(which)


def test_a_worker_that_is_lost_costs_nothing_but_time(session: Any, tmp_path: Path) -> None:
    """While it counts: then the other one reads Delta and linked tables, and is asked a release, a discovery and so on.

    And while it holds all rows: the work is begun anew on another one, and one answer comes back.
    """
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    spark_cluster.clinic()[0].write_delta(str(tmp_path / "visits"))
    cluster = Cluster(tmp_path)
    driver = None
    try:
        script = [sys.executable, spark_cluster.__file__, cluster.address, str(tmp_path)]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        driver = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True)
        until(lambda: len(list(tmp_path.glob("began-*"))) >= 2, "task on each worker")
        cluster.kill(1)
        cluster.add_workers(1)
        (tmp_path / "go").touch()
        held = _named(tmp_path, "held-*")
        until(lambda: len(held()) == 1, "work on all rows")
        (holds,) = (int(name.split("-")[1]) for name in held())
        cluster.kill([process.pid for process in cluster.running].index(holds))
        until(lambda: len(held()) == 2, "second run of it")
        (tmp_path / "go on").touch()
        out, _ = driver.communicate(timeout=spark_cluster.DEADLINE)
    finally:
        if driver is not None and driver.poll() is None:
            driver.kill()
        cluster.stop()
    counted = json.loads(out)
    frame = pl.DataFrame(spark_cluster.rows_of(list(range(spark_cluster.ROWS))))
    for unit, schema in (("row", spark_cluster.SCHEMA), ("person", spark_cluster.BY_PERSON)):
        wanted = [counts.tolist() for counts in PrivateTable(frame, schema).counts(spark_cluster.TABLES)]
        assert counted[unit] == wanted
    assert len(list(tmp_path.glob("began-*"))) > 4  # what was lost was begun again
    rows, described = spark_cluster.clinic()
    assert counted["answers"] == json.loads(json.dumps(spark_cluster.answers(rows, described)))
    made = clinic(200, seed=1)
    assert counted["linked"] == spark_cluster.linked(made.frames, made.schema)
    assert counted["delta"] == PrivateTable(rows, described).counts(["smoke", "ill"]).tolist()
    first, second = (int(name.split("-")[2]) for name in held())
    last = second if f"held-{holds}-{first}" in held() else first
    assert first != second  # each run draws for itself
    assert counted["held"] == [rows.height, last]
    assert counted["compared"] == spark_cluster.compared(rows, described)
