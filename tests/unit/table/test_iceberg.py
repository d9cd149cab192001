"""Iceberg tables are read as a metadata file describes them; what is deleted in them is left out, or refused."""

from __future__ import annotations

import builtins
import json
import os
import pickle
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
from escudo.table._files import open_lake
from escudo.table._lakes import Lake

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
    """Hold that what is opened has just these rows, counted and in batches, as one table and file by file."""
    wanted = PrivateTable(rows, SCHEMA)
    for frame in (open_data(str(name), SCHEMA), in_parts(name).scan()):
        found = PrivateTable(frame, SCHEMA)
        assert found.counts(["kind", "size"]).tolist() == wanted.counts(["kind", "size"]).tolist()
        assert found.record_count() == rows.height
        assert sum(len(batch) for batch in found.batches(7)) == rows.height


def in_parts(name: str | Path) -> Lake:
    """Return a table as its files, each of which has been to a worker and back."""
    lake = open_lake(str(name))
    return Lake(lake.columns, tuple(pickle.loads(pickle.dumps(part)) for part in lake.parts))


def expect_unless_old(name: Path, rows: pl.DataFrame) -> None:
    """Hold the same, or, with a polars that gets deletes by place wrong, that they are refused."""
    if not OLD:
        expect(name, rows)
        return
    with pytest.raises(InputError, match=r"polars must be 2.1 or newer"):
        open_data(str(name), SCHEMA)


def with_deletes(
    table: Any,
    file: Path,
    rows: int,
    *,
    within: str | None = None,
    equal: tuple[int, ...] = (),
    kind: str = "PARQUET",
    partition: tuple[Any, ...] = (),
    later: int = 1,
) -> Path:
    """Write a version of the table that deletes what a file says; pyiceberg itself writes none such.

    Args:
        table: The table.
        file: What is deleted.
        rows: How many rows the file has.
        within: The data file that places are in, if it is one.
        equal: The numbers of the columns whose values are deleted; none for places.
        kind: The file's format.
        partition: The partition that the deletes are about.
        later: How far the sequence number of the deletes is above that of the newest rows.
    """
    from pyiceberg import manifest
    from pyiceberg.typedef import Record

    class Deletes(manifest.ManifestWriterV2):  # type: ignore[misc, unused-ignore]
        def content(self) -> Any:
            return manifest.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    last = table.current_snapshot()
    number, version, place = last.snapshot_id + 1, last.sequence_number + later, f"{table.location()}/metadata"
    bounds = {PATH: within.encode()} if within else {}
    content = manifest.DataFileContent
    one = manifest.DataFile.from_args(
        content=content.EQUALITY_DELETES if equal else content.POSITION_DELETES,
        file_path=f"file://{file}",
        file_format=manifest.FileFormat[kind],
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=file.stat().st_size,
        lower_bounds=bounds,
        upper_bounds=bounds,
        equality_ids=list(equal) or None,
    )
    one.spec_id = table.spec().spec_id
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


def values(file: Path, columns: dict[str, list[Any]], numbers: tuple[int, ...]) -> Path:
    """Write a file of equality deletes, its columns numbered."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    fields = [
        pa.field(old.name, old.type, metadata={"PARQUET:field_id": str(number)})
        for old, number in zip(table.schema, numbers, strict=True)
    ]
    pq.write_table(table.cast(pa.schema(fields)), file)
    return file


def test_rows_that_are_deleted_by_their_values_are_left_out(visits: Any, tmp_path: Path) -> None:
    file = values(tmp_path / "deletes.parquet", {"kind": ["a"]}, (1,))
    version = with_deletes(visits, file, 1, equal=(1,))
    expect(version, TWICE.filter(pl.col("kind") != "a"))
    opened = open_data(str(version)).filter(pl.col("size") > 5).select("size").head(3)
    assert opened.collect()["size"].to_list() == [5.1, 5.3, 5.5]  # what polars asks of it alone is read


def test_rows_as_new_as_an_equality_delete_or_newer_are_not_deleted(visits: Any, tmp_path: Path) -> None:
    file = values(tmp_path / "deletes.parquet", {"kind": ["a"]}, (1,))
    version = with_deletes(visits, file, 1, equal=(1,), later=0)  # of the ten rows that came last
    expect(version, pl.concat([ROWS.filter(pl.col("kind") != "a"), ROWS.head(10)]))


def test_all_columns_of_an_equality_delete_must_be_equal_and_missing_equals_missing(
    catalogue: Any, tmp_path: Path
) -> None:
    table = catalogue.create_table("clinic.gaps", schema=NUMBERED.to_arrow().schema)
    table.append(NUMBERED.to_arrow())
    file = values(tmp_path / "deletes.parquet", {"number": [2, None, 5], "kind": ["b", "a", None]}, (2, 1))
    version = with_deletes(table, file, 3, equal=(1, 2))
    gone = [("b", 2), ("a", None), (None, 5)]
    left = [row for row in NUMBERED.rows() if row not in gone]
    assert len(left) < NUMBERED.height
    for frame in (open_data(str(version)), in_parts(version).scan()):
        assert frame.collect().rows() == left


NUMBERED = pl.DataFrame({"kind": ["a", "b", "b", "a", None, None, "a"], "number": [1, 2, None, None, 5, None, 2]})


def test_a_column_that_was_dropped_or_came_later_still_deletes(catalogue: Any, tmp_path: Path) -> None:
    """Values of a column that a file has not are missing; a column of the same name is another one."""
    from pyiceberg.types import StringType

    table = catalogue.create_table("clinic.changed", schema=NUMBERED.to_arrow().schema)
    table.append(NUMBERED.to_arrow())
    with table.update_schema() as change:
        change.delete_column("number")
    with table.update_schema() as change:
        change.add_column("number", StringType())
    table.append(pl.DataFrame({"kind": ["a", "b"], "number": ["2", None]}).to_arrow())
    file = values(tmp_path / "dropped.parquet", {"number": [2, 5]}, (2,))
    found = [frame.collect() for frame in both(with_deletes(table, file, 2, equal=(2,)))]
    left = [kind for kind, number in NUMBERED.rows() if number not in (2, 5)]
    assert all(sorted(one["kind"].to_list(), key=str) == sorted([*left, "a", "b"], key=str) for one in found)
    file = values(tmp_path / "added.parquet", {"number": pl.Series([None], dtype=pl.String).to_arrow()}, (3,))
    for one in both(with_deletes(table, file, 1, equal=(3,))):
        assert one.collect().rows() == [("a", "2")]


def both(name: Path) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return a table as it is opened, and file by file."""
    return open_data(str(name)), in_parts(name).scan()


def test_an_equality_delete_holds_in_its_own_partition(catalogue: Any, tmp_path: Path) -> None:
    table = catalogue.create_table("clinic.parted", schema=NUMBERED.to_arrow().schema)
    with table.update_spec() as change:
        change.add_identity("kind")
    table.append(NUMBERED.to_arrow())
    file = values(tmp_path / "deletes.parquet", {"number": [2]}, (2,))
    for frame in both(with_deletes(table, file, 1, equal=(2,), partition=("b",))):
        assert sorted(frame.collect().rows(), key=str) == sorted(
            (row for row in NUMBERED.rows() if row != ("b", 2)), key=str
        )


def test_places_and_values_are_deleted_together(visits: Any, tmp_path: Path) -> None:
    if OLD:
        pytest.skip("polars gets deletes by place wrong before 2.1")
    from pyiceberg.table import StaticTable

    large, _ = files_of(visits)
    version = with_deletes(visits, places(tmp_path / "places.parquet", [(large, 1), (large, 3)]), 2, within=large)
    table = StaticTable.from_metadata(str(version))
    file = values(tmp_path / "values.parquet", {"kind": ["a"]}, (1,))
    left = pl.concat([ROWS.with_row_index().filter(~pl.col("index").is_in([1, 3])).drop("index"), ROWS.head(10)])
    expect(with_deletes(table, file, 1, equal=(1,)), left.filter(pl.col("kind") != "a"))


def test_equality_deletes_that_cannot_be_honoured_are_refused(visits: Any, tmp_path: Path) -> None:
    file = values(tmp_path / "deletes.parquet", {"size": [0.1]}, (2,))
    for version in (with_deletes(visits, file, 1, equal=(2,)), with_deletes(visits, file, 1, equal=(7,))):
        with pytest.raises(InputError, match="equality deletes by floats"):
            open_data(str(version), SCHEMA)


def test_deletes_in_files_that_are_not_parquet_are_refused(visits: Any, tmp_path: Path) -> None:
    file = tmp_path / "deletes"
    file.write_bytes(b"?")
    for kind, said in (("PUFFIN", "deletion vectors"), ("AVRO", "not Parquet")):
        with pytest.raises(InputError, match=said):
            open_data(str(with_deletes(visits, file, 1, kind=kind)), SCHEMA)


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


def as_version(table: Any, version: int) -> Path:
    """Write a metadata file that says another format version."""
    said = json.loads(Path(described(table)).read_text())
    said |= {"format-version": version, "next-row-id": 0}
    file = folder_of(table) / "metadata" / "00008.metadata.json"
    file.write_text(json.dumps(said))
    return file


def test_a_table_of_format_3_without_deletion_vectors_is_read(visits: Any) -> None:
    expect(as_version(visits, 3), TWICE)


def test_a_format_version_that_is_not_supported_is_refused(visits: Any) -> None:
    with pytest.raises(InputError, match="cannot be read as an Iceberg table"):
        open_data(str(as_version(visits, 4)), SCHEMA)


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
