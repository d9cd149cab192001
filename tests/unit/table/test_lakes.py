"""Delta tables are read as they are now; files of Delta and Iceberg tables are never taken for all of their rows."""

from __future__ import annotations

import builtins
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from escudo.cli import app
from escudo.errors import EngineError, InputError
from escudo.privacy import MemoryAccount
from escudo.synthesis import synthesize
from escudo.table import PrivateTable, Schema, _lakes, draft, open_data, outline
from escudo.table._files import open_lake
from escudo.table._lakes import Lake

SCHEMA = Schema.from_dict({"kind": ["a", "b"], "size": {"type": "numeric", "lower": 0, "upper": 10, "bins": 10}})
ROWS = pl.DataFrame({"kind": ["a", "b"] * 50, "size": [number / 10 for number in range(100)]})


def expect(name: Path, rows: pl.DataFrame) -> None:
    """Hold that a table has just these rows, as one table and file by file, each of which has been to a worker."""
    opened = open_lake(str(name))
    parts = Lake(opened.columns, tuple(pickle.loads(pickle.dumps(part)) for part in opened.parts))
    wanted = PrivateTable(rows, SCHEMA)
    for frame in (open_data(str(name), SCHEMA), parts.scan()):
        found = PrivateTable(frame, SCHEMA)
        assert found.counts(["kind", "size"]).tolist() == wanted.counts(["kind", "size"]).tolist()
        assert found.record_count() == rows.height
    assert parts.scan().collect_schema() == open_data(str(name)).collect_schema()


def lake(folder: Path) -> Path:
    """Make a Delta table, from which rows were deleted and to which others were added."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (pip install 'escudo[delta]')")
    ROWS.write_delta(str(folder))
    ROWS.head(10).write_delta(str(folder), mode="append")
    deltalake.DeltaTable(str(folder)).delete("size < 0.45")
    return folder


def test_a_delta_table_is_read_without_the_rows_that_were_deleted(tmp_path: Path) -> None:
    table = lake(tmp_path / "visits")
    here = pl.concat([ROWS, ROWS.head(10)]).filter(pl.col("size") >= 0.45)
    stored = pl.concat([pl.read_parquet(file) for file in table.glob("*.parquet")])
    assert stored.height > here.height + 10  # the files hold what was deleted, and some rows twice
    expect(table, here)


def test_files_that_were_cleaned_away_since_the_log_was_read_are_said_to_be_gone(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    where = str(tmp_path / "MARIA")
    ROWS.write_delta(where)
    account = MemoryAccount(relation="add_remove")
    table = PrivateTable(open_data(where, SCHEMA), SCHEMA, account, relation="add_remove")
    ROWS.head(1).write_delta(where, mode="overwrite")
    assert deltalake.DeltaTable(where).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(EngineError, match="gone") as failed:
        synthesize(table, graph=None, epsilon=1.0, delta=1e-6)
    assert "MARIA" not in str(failed.value)
    assert account.failed == {receipt.sequence: "EngineError" for receipt in account.receipts}


def test_an_earlier_version_is_not_read(tmp_path: Path) -> None:
    table = lake(tmp_path / "visits")
    ROWS.head(3).write_delta(str(table), mode="overwrite")
    expect(table, ROWS.head(3))


def test_a_delta_table_with_partitions_has_their_columns(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed (pip install 'escudo[delta]')")
    table = tmp_path / "visits"
    ROWS.write_delta(str(table), delta_write_options={"partition_by": ["kind"]})
    expect(table, ROWS)
    with pytest.raises(InputError, match="part of a Delta table"):
        open_data(str(table / "kind=a"), SCHEMA)


def test_a_feature_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    table = lake(tmp_path / "visits")
    log = table / "_delta_log"
    features = {"readerFeatures": ["nobodyKnows"], "writerFeatures": ["nobodyKnows"]}
    line = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (log / f"{len(list(log.glob('*.json'))):020}.json").write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match="cannot be read as a Delta table"):
        open_data(str(table), SCHEMA).collect()
    (log / f"{0:020}.json").write_text("damaged")
    with pytest.raises(InputError, match="cannot be read as a Delta table"):
        open_data(str(table), SCHEMA)


def plain(folder: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Make a Delta table of one file; return its log, and what that says of the file and of the columns."""
    pytest.importorskip("deltalake", reason="deltalake is not installed (pip install 'escudo[delta]')")
    ROWS.write_delta(str(folder))
    log = folder / "_delta_log"
    said = {}
    for line in (log / f"{0:020}.json").read_text().splitlines():
        said |= json.loads(line)
    return log, said["add"], said["metaData"]


def committed(log: Path, feature: str, *lines: dict[str, Any]) -> None:
    """Add a version that asks for a feature of readers."""
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (log / f"{1:020}.json").write_text("".join(json.dumps(line) + "\n" for line in (protocol, *lines)))


@pytest.mark.parametrize("name", ["visits", "all visits é"])
def test_rows_that_a_deletion_vector_names_are_left_out(tmp_path: Path, name: str) -> None:
    """They are in the file still. The vector, made by hand, names rows 0, 1, 2 and 50."""
    log, file, _ = plain(tmp_path / name)
    bitmap = "^Bg9^0rr910000000000iXQKl0rr91000935c8Xg000310ST$Q"
    vector = {"storageType": "i", "pathOrInlineDv": bitmap, "sizeInBytes": 40, "cardinality": 4}
    removed = {"path": file["path"], "deletionTimestamp": 1, "dataChange": True, "partitionValues": {}}
    committed(log, "deletionVectors", {"remove": removed}, {"add": {**file, "deletionVector": vector}})
    expect(tmp_path / name, ROWS.with_row_index().filter(~pl.col("index").is_in([0, 1, 2, 50])))


def test_places_go_on_from_batch_to_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lakes, "_ROWS_AT_ONCE", 16)
    ROWS.write_parquet(tmp_path / "part.parquet", row_group_size=20)
    kept = np.random.default_rng(0).random(90) < 0.5  # rows beyond it are kept
    part = _lakes.DeltaPart(str(tmp_path / "part.parquet"), {}, _lakes.packed(kept))
    found = list(part.rows(["size", "kind"]))
    assert len(found) > 2
    left = ROWS.filter(pl.Series([*kept.tolist(), *[True] * 10]))
    assert pl.concat(found).rows() == left.select("size", "kind").rows()


def test_columns_that_were_added_are_missing_in_older_files(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed (pip install 'escudo[delta]')")
    table = tmp_path / "visits"
    ROWS.select("kind").head(20).write_delta(str(table))
    merged = {"schema_mode": "merge"}
    ROWS.tail(30).write_delta(str(table), mode="append", delta_write_options=merged)
    old = ROWS.head(20).with_columns(size=pl.lit(None, dtype=pl.Float64))
    expect(table, pl.concat([old, ROWS.tail(30)]))


def test_no_value_of_a_file_with_other_types_is_an_error(tmp_path: Path) -> None:
    """What its table's type cannot hold is missing, whosever it is."""
    pl.DataFrame({"size": ["1.5", "SECRET"], "kind": ["a", "b"]}).write_parquet(tmp_path / "part.parquet")
    lake = Lake(
        {"size": pl.Float64(), "kind": pl.String()}, (_lakes.DeltaPart(str(tmp_path / "part.parquet"), {}, None),)
    )
    assert lake.scan().collect().rows() == [(1.5, "a"), (None, "b")]


@pytest.mark.parametrize("name", ["visits", "all visits é"])
def test_values_of_partitions_are_those_of_the_log(tmp_path: Path, name: str) -> None:
    """Missing and odd ones, of several types."""
    pytest.importorskip("deltalake", reason="deltalake is not installed (pip install 'escudo[delta]')")
    table = tmp_path / name
    days = pl.Series([0, 1, None, 3], dtype=pl.Int32).cast(pl.Date)
    rows = pl.DataFrame(
        {"kind": ["a", None, "ü =/%", "b"], "day": days, "size": [1.0, 2.0, 3.0, 4.0], "n": [7, 8, 7, 8]}
    )
    rows.write_delta(str(table), delta_write_options={"partition_by": ["kind", "day", "n"]})
    found = open_lake(str(table)).scan().collect().select(rows.columns).sort("size")
    assert found.rows() == rows.rows()
    assert found.rows() == open_data(str(table)).select(rows.columns).collect().sort("size").rows()


def test_a_delta_table_without_rows_has_none(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed (pip install 'escudo[delta]')")
    ROWS.clear().write_delta(str(tmp_path / "visits"))
    expect(tmp_path / "visits", ROWS.clear())


def test_columns_that_go_by_other_names_in_the_files_are_refused(tmp_path: Path) -> None:
    """Or a column might be read as another one."""
    log, _, columns = plain(tmp_path / "visits")
    described = json.loads(columns["schemaString"])
    for number, field in enumerate(described["fields"]):
        other = described["fields"][1 - number]["name"]
        field["metadata"] = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": other}
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    changed = {**columns, "schemaString": json.dumps(described), "configuration": mode}
    committed(log, "columnMapping", {"metaData": changed})
    with pytest.raises(InputError, match="a feature that is not supported here"):
        open_data(str(tmp_path / "visits"), SCHEMA)


def test_the_commands_take_a_delta_table(tmp_path: Path) -> None:
    table, schema = lake(tmp_path / "visits"), tmp_path / "schema.toml"
    drafted = draft(str(table))
    assert set(outline(str(table)).names) == {"kind", "size"}
    assert set(drafted.names) == {"kind", "size"}
    SCHEMA.write(schema)
    words = ["release", str(table), "--schema", str(schema), "--epsilon", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "synthetic.parquet").exists()


@pytest.mark.parametrize("data", ["visits.csv", "nowhere", "postgresql://ann:secret@db/clinic?table=visits"])
def test_what_spark_does_not_read_is_refused_before_it_starts(data: str) -> None:
    with pytest.raises(InputError, match="folder or file of Parquet, or a Delta or Iceberg") as refused:
        open_data(data, engine="spark")
    assert "secret" not in str(refused.value)
    with pytest.raises(InputError, match="engine must be one of 'polars', 'spark'"):
        open_data(data, engine="sparks")


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "visits" / "_delta_log").mkdir(parents=True)
    ROWS.write_parquet(tmp_path / "visits" / "part.parquet")
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "deltalake":
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install 'escudo\[delta\]'"):
        open_data(str(tmp_path / "visits"), SCHEMA)


@pytest.mark.parametrize("named", ["visits/*.parquet", "visits/year=1", "visits/**/*.parquet"])
def test_files_of_a_delta_table_are_not_read_by_themselves(tmp_path: Path, named: str) -> None:
    (tmp_path / "visits" / "_delta_log").mkdir(parents=True)
    (tmp_path / "visits" / "year=1").mkdir()
    for folder in (tmp_path / "visits", tmp_path / "visits" / "year=1"):
        ROWS.write_parquet(folder / "part.parquet")
    with pytest.raises(InputError, match="rows that were deleted: name the table"):
        open_data(str(tmp_path / named), SCHEMA)


@pytest.mark.parametrize("named", ["visits", "visits/data", "visits/data/*.parquet"])
def test_an_iceberg_table_is_left_to_its_catalogue(tmp_path: Path, named: str) -> None:
    for folder in ("metadata", "data"):
        (tmp_path / "visits" / folder).mkdir(parents=True)
    (tmp_path / "visits" / "metadata" / "v1.metadata.json").write_text("{}")
    ROWS.write_parquet(tmp_path / "visits" / "data" / "part.parquet")
    with pytest.raises(InputError, match=r"Iceberg table.*catalogue"):
        open_data(str(tmp_path / named), SCHEMA)
