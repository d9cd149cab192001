"""Iceberg tables are read as a metadata file describes them; what is deleted in them is left out, or refused."""

from __future__ import annotations

import builtins
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from escudo.cli import app
from escudo.errors import InputError
from escudo.table import PrivateTable, Schema, draft, open_data, outline

SCHEMA = Schema.from_dict({"kind": ["a", "b"], "size": {"type": "numeric", "lower": 0, "upper": 10, "bins": 10}})
ROWS = pl.DataFrame({"kind": ["a", "b"] * 50, "size": [number / 10 for number in range(100)]})
TWICE = pl.concat([ROWS, ROWS.head(10)])
OLD = tuple(map(int, pl.__version__.split(".")[:2])) < (2, 1)
PATH, PLACE = 2147483546, 2147483545  # the columns of a file of position deletes, by the format's numbers


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (pip install 'escudo[iceberg]')")
    from pyiceberg.catalog.sql import SqlCatalog

    made = SqlCatalog("here", uri=f"sqlite:///{tmp_path}/catalogue.db", warehouse=f"file://{tmp_path}/tables")
    made.create_namespace("clinic")
    yield made
    made.close()


@pytest.fixture
def visits(catalogue: Any) -> Any:
    """A table of two files."""
    table = catalogue.create_table("clinic.visits", schema=ROWS.to_arrow().schema)
    table.append(ROWS.to_arrow())
    table.append(ROWS.head(10).to_arrow())
    return table


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def described(table: Any) -> str:
    """Return the metadata file that the catalogue names."""
    return str(local(table.metadata_location))


def folder_of(table: Any) -> Path:
    return local(table.location())


def expect(name: str | Path, rows: pl.DataFrame) -> None:
    """Hold that what is opened has just these rows, counted and in batches."""
    wanted, found = (PrivateTable(frame, SCHEMA) for frame in (rows, open_data(str(name), SCHEMA)))
    assert found.counts(["kind", "size"]).tolist() == wanted.counts(["kind", "size"]).tolist()
    assert found.record_count() == rows.height
    assert sum(len(batch) for batch in found.batches(7)) == rows.height


def expect_unless_old(name: Path, rows: pl.DataFrame) -> None:
    """Hold the same, or, with a polars that gets deletes by place wrong, that they are refused."""
    if not OLD:
        expect(name, rows)
        return
    with pytest.raises(InputError, match=r"polars must be 2.1 or newer"):
        open_data(str(name), SCHEMA)


def with_deletes(table: Any, file: Path, rows: int, *, within: str | None = None, equal: bool = False) -> Path:
    """Write a version of the table that deletes what a file says; pyiceberg itself writes none such."""
    from pyiceberg import manifest
    from pyiceberg.typedef import Record

    class Deletes(manifest.ManifestWriterV2):  # type: ignore[misc, unused-ignore]
        def content(self) -> Any:
            return manifest.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    last = table.current_snapshot()
    number, version, place = last.snapshot_id + 1, last.sequence_number + 1, f"{table.location()}/metadata"
    bounds = {PATH: within.encode()} if within else {}
    content = manifest.DataFileContent
    one = manifest.DataFile.from_args(
        content=content.EQUALITY_DELETES if equal else content.POSITION_DELETES,
        file_path=f"file://{file}",
        file_format=manifest.FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=file.stat().st_size,
        lower_bounds=bounds,
        upper_bounds=bounds,
        equality_ids=[1] if equal else None,
    )
    one.spec_id = 0
    added = manifest.ManifestEntryStatus.ADDED
    output = table.io.new_output(f"{place}/{uuid.uuid4()}-m0.avro")
    with Deletes(table.spec(), table.schema(), output, number, "null") as writer:
        writer.add_entry(manifest.ManifestEntry.from_args(status=added, snapshot_id=number, data_file=one))
    listed = f"{place}/snap-{number}-0-{uuid.uuid4()}.avro"
    output = table.io.new_output(listed)
    with manifest.write_manifest_list(2, output, number, last.snapshot_id, version, "null") as lists:
        lists.add_manifests([*last.manifests(table.io), writer.to_manifest_file()])
    said = json.loads(Path(described(table)).read_text())
    said |= {"last-sequence-number": version, "current-snapshot-id": number}
    said["refs"]["main"]["snapshot-id"] = number
    said["snapshots"].append(
        {
            "snapshot-id": number,
            "parent-snapshot-id": last.snapshot_id,
            "sequence-number": version,
            "timestamp-ms": said["last-updated-ms"],
            "manifest-list": listed,
            "summary": {"operation": "delete"},
            "schema-id": said["current-schema-id"],
        }
    )
    file = folder_of(table) / "metadata" / f"00009-{uuid.uuid4()}.metadata.json"
    file.write_text(json.dumps(said))
    return file


def places(file: Path, named: list[tuple[str, int]]) -> Path:
    """Write a file of position deletes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(PLACE)}),
    ]
    pq.write_table(pa.table([list(column) for column in zip(*named, strict=True)], schema=pa.schema(fields)), file)
    return file


def files_of(table: Any) -> tuple[str, str]:
    """Return the file of 100 rows, and the one of 10."""
    found = {task.file.record_count: task.file.file_path for task in table.scan().plan_files()}
    return found[100], found[10]


def test_the_version_of_a_metadata_file_is_read(visits: Any) -> None:
    before = described(visits)
    visits.delete("size < 0.45")
    stored = pl.concat([pl.read_parquet(file) for file in folder_of(visits).rglob("*.parquet")])
    here = TWICE.filter(pl.col("size") >= 0.45)
    assert stored.height > here.height + 10  # the files hold what was deleted, and some rows twice
    expect(described(visits), here)
    expect(before, TWICE)


def test_a_table_without_rows_has_none(catalogue: Any) -> None:
    table = catalogue.create_table("clinic.none", schema=ROWS.to_arrow().schema)
    expect(described(table), ROWS.clear())


def test_rows_that_are_deleted_by_their_place_are_left_out(visits: Any, tmp_path: Path) -> None:
    """They are in the file still."""
    large, _ = files_of(visits)
    file = places(tmp_path / "deletes.parquet", [(large, 0), (large, 1), (large, 50)])
    left = pl.concat([ROWS.with_row_index().filter(~pl.col("index").is_in([0, 1, 50])).drop("index"), ROWS.head(10)])
    expect_unless_old(with_deletes(visits, file, 3, within=large), left)


def test_places_in_several_files_are_left_out(visits: Any, tmp_path: Path) -> None:
    large, small = files_of(visits)
    file = places(tmp_path / "deletes.parquet", sorted([(large, 0), (large, 99), (small, 5)]))
    left = pl.concat([ROWS.slice(1, 98), ROWS.head(10).with_row_index().filter(pl.col("index") != 5).drop("index")])
    expect_unless_old(with_deletes(visits, file, 3), left)


def test_rows_that_are_deleted_by_their_values_are_refused(visits: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    field = pa.field("kind", pa.string(), nullable=False, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([["a"]], schema=pa.schema([field])), tmp_path / "deletes.parquet")
    version = with_deletes(visits, tmp_path / "deletes.parquet", 1, equal=True)
    with pytest.raises(InputError, match="equality deletes"):
        open_data(str(version), SCHEMA)


def test_a_column_that_was_renamed_is_not_read_as_another(visits: Any) -> None:
    from pyiceberg.types import StringType

    with visits.update_schema() as change:
        change.rename_column("kind", "sort")
    with visits.update_schema() as change:
        change.add_column("kind", StringType())
    found = open_data(described(visits)).collect()
    assert found["sort"].to_list() == TWICE["kind"].to_list()
    assert found["kind"].null_count() == TWICE.height


def test_partitions_have_their_columns(catalogue: Any) -> None:
    table = catalogue.create_table("clinic.parts", schema=ROWS.to_arrow().schema)
    with table.update_spec() as change:
        change.add_identity("kind")
    table.append(ROWS.to_arrow())
    expect(described(table), ROWS)
    with pytest.raises(InputError, match=r"Iceberg table.*catalogue"):
        open_data(str(folder_of(table) / "data" / "kind=a"), SCHEMA)


@pytest.mark.parametrize("version", [3, 4])
def test_a_format_version_that_is_not_supported_is_refused(visits: Any, version: int) -> None:
    said = json.loads(Path(described(visits)).read_text())
    said |= {"format-version": version, "next-row-id": 0}
    file = folder_of(visits) / "metadata" / "00008.metadata.json"
    file.write_text(json.dumps(said))
    with pytest.raises(InputError, match="format version 3" if version == 3 else "cannot be read as an Iceberg table"):
        open_data(str(file), SCHEMA)


def test_a_folder_is_read_where_a_hint_says_which_version_holds(visits: Any) -> None:
    folder = folder_of(visits)
    with pytest.raises(InputError, match=r"Iceberg table.*catalogue"):
        open_data(str(folder), SCHEMA)
    before = described(visits)
    visits.delete("size < 0.45")
    shutil.copy(before, folder / "metadata" / "v2.metadata.json")
    (folder / "metadata" / "version-hint.text").write_text("2")
    expect(folder, TWICE)
    (folder / "metadata" / "version-hint.text").write_text("7")
    with pytest.raises(InputError, match="cannot be read as an Iceberg table"):
        open_data(str(folder), SCHEMA)


def test_a_table_that_was_moved_or_is_damaged_is_refused(visits: Any, tmp_path: Path) -> None:
    name = os.path.basename(described(visits))
    shutil.move(folder_of(visits), tmp_path / "moved")
    for file in (tmp_path / "moved" / "metadata" / name, tmp_path / "none.metadata.json"):
        with pytest.raises(InputError, match="cannot be read as an Iceberg table"):
            open_data(str(file), SCHEMA)
    (tmp_path / "damaged.metadata.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read as an Iceberg table"):
        open_data(str(tmp_path / "damaged.metadata.json"), SCHEMA)


def test_the_commands_take_an_iceberg_table(visits: Any, tmp_path: Path) -> None:
    table, schema = described(visits), tmp_path / "schema.toml"
    assert set(outline(table).names) == {"kind", "size"}
    assert set(draft(table).names) == {"kind", "size"}
    SCHEMA.write(schema)
    words = ["release", table, "--schema", str(schema), "--epsilon", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "synthetic.parquet").exists()


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v1.metadata.json").write_text("{}")
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("pyiceberg"):
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install 'escudo\[iceberg\]'"):
        open_data(str(tmp_path / "v1.metadata.json"), SCHEMA)
