"""Spark counts, streams and answers as every engine does, on its workers, also where one of them is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import escudo
from conformance import derived_columns, spark_cluster
from conformance import test_engines as engines
from conformance import test_linked_engines as linked_engines
from escudo.causal import CausalGraph
from escudo.cli import app
from escudo.errors import InputError
from escudo.table import Numeric, PrivateTable, PrivateTables, Schema, open_data

pyspark = pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets to the Java machine
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
DEADLINE = 1200.0  # seconds until a cluster that does not come up is called broken


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


def test_spark_works_out_differences_of_columns(session: Any) -> None:
    rows = derived_columns.rows()
    frame = _frame(session, rows).cache()
    for unit, schema in derived_columns.SCHEMAS.items():
        spark, ours = (PrivateTable(one, schema).counts(derived_columns.TABLES) for one in (frame, rows))
        for counts, wanted in zip(spark, ours, strict=True):
            np.testing.assert_array_equal(counts, wanted, err_msg=unit)


def test_linked_tables_of_spark_count_as_those_of_polars(session: Any) -> None:
    """All tables in Spark, then one of them; with keys of text, whose order is that of characters."""
    here = linked_engines.frames()
    texts = {name: linked_engines.FRAMES["polars text keys"](frame) for name, frame in here.items()}
    spark = {name: _frame(session, frame).cache() for name, frame in here.items()}
    linked_engines.assert_counts(PrivateTables(spark, linked_engines.SCHEMA))
    mixed = {**texts, "visits": _frame(session, texts["visits"])}
    linked_engines.assert_counts(PrivateTables(mixed, linked_engines.SCHEMA))


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
    from escudo.table import _spark

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
    clinic, described = _clinic()
    numbers = described.select(["dose", "late"])
    ours, theirs = (PrivateTable(one, numbers) for one in (clinic, _frame(session, clinic)))
    wanted = _linear._second_moments(ours, 10**6)
    np.testing.assert_array_equal(_linear._second_moments(theirs, 10**6), wanted)
    monkeypatch.setattr(_spark, "_MOST_BYTES", 1)  # then sums are merged on the workers, too
    np.testing.assert_array_equal(_linear._second_moments(theirs, 10**6), wanted)


def test_spark_does_not_read_the_files_of_a_delta_or_iceberg_table_as_parquet(session: Any, tmp_path: Path) -> None:
    """They also hold rows that were deleted."""
    for kind, inside in (("delta", "_delta_log/0.json"), ("iceberg", "metadata/version-hint.text")):
        folder = tmp_path / kind
        (folder / inside).parent.mkdir(parents=True)
        (folder / inside).write_text("1")
        pl.DataFrame({"a": [1]}).write_parquet(folder / "part.parquet")
        with pytest.raises(InputError, match=f"(?i){kind} table.*format={kind}"):
            open_data(f"spark://{folder}")


def _clinic(rows: int = 3000) -> tuple[pl.DataFrame, Schema]:
    rng = np.random.default_rng(5)
    smoke = rng.random(rows) < 0.3
    ill = rng.random(rows) < np.where(smoke, 0.6, 0.2)
    dose = np.where(ill, 3.0, 1.0) + rng.normal(0, 0.5, rows)
    frame = pl.DataFrame(
        {"smoke": np.where(smoke, "yes", "no"), "ill": np.where(ill, "yes", "no"), "dose": dose, "late": dose**3 / 30}
    )
    levels = ["no", "yes"]
    numbers = {"dose": {"type": "numeric", "lower": 0, "upper": 5}, "late": {"type": "numeric", "lower": 0, "upper": 4}}
    return frame, Schema.from_dict({"smoke": levels, "ill": levels, **numbers})


def _answers(frame: Any, schema: Schema) -> list[Any]:
    table = PrivateTable(frame, schema)
    model = escudo.synthesize(
        table, graph=CausalGraph.parse("digraph {smoke -> ill -> dose}"), epsilon=2.0, delta=1e-6, seed=1
    )
    found = escudo.discover(table, epsilon=2.0, delta=1e-6, seed=1)
    way = escudo.direction(table, "dose", "late", epsilon=2.0, seed=1)
    effect = escudo.effect_of(table, "smoke", "ill", trial=True, epsilon=2.0, seed=1)
    return [model.sample(50, seed=2).rows(), str(found.graph), str(way.to_json()), str(effect.to_json())]


def test_a_release_a_discovery_a_direction_and_an_effect_are_those_of_polars(session: Any) -> None:
    frame, schema = _clinic()
    assert _answers(_frame(session, frame), schema) == _answers(frame, schema)


def test_the_driver_gets_counts_and_no_rows(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, schema = _clinic(20_000)
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
    frame, schema = _clinic()
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
    looked = CliRunner().invoke(
        app, ["doctor", "--spark", "spark:", "--json", "--ledger", f"sqlite:///{tmp_path}/l.db"]
    )
    assert json.loads(looked.stdout)["spark"]["fits"] is True, looked.output
    assert isinstance(CliRunner().invoke(app, ["doctor", "--spark", "yarn"]).exception, InputError)


# ---- a standalone cluster


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.1)


class Cluster:
    """A standalone master and two workers of one core each, as processes of their own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.address = f"spark://127.0.0.1:{(port := _free_port())}"
        self.running: list[subprocess.Popen[bytes]] = []
        self._start("Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        _until(lambda: "I have been elected leader" in self.log(0), "master")
        for _ in range(2):
            place = str(folder / f"work-{len(self.running)}")
            options = ["--cores", "1", "--memory", "600m", "--webui-port", "0", "--work-dir", place]
            self._start("Worker", "--host", "127.0.0.1", *options, self.address)
        for worker in (1, 2):
            _until(lambda worker=worker: "Successfully registered" in self.log(worker), "worker")

    def _start(self, kind: str, *options: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}", *options]
        env = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
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


def test_a_worker_that_is_lost_while_it_counts_costs_nothing_but_time(session: Any, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    driver = None
    try:
        script = [sys.executable, spark_cluster.__file__, cluster.address, str(tmp_path)]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        driver = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True)
        _until(lambda: len(list(tmp_path.glob("began-*"))) >= 2, "task on each worker")
        cluster.kill(1)
        (tmp_path / "go").touch()
        out, _ = driver.communicate(timeout=DEADLINE)
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
