"""Delta and Iceberg tables: the files that hold their rows now, read one by one, wherever they can be seen.

A table of either kind is files of Parquet and a log that says which of them count, and which of their rows were deleted
since. The table's own library (deltalake, pyiceberg) reads the log, never a row; that makes a :class:`Lake`: what
columns there are, and a *part* for each data file, with what was deleted from it. Parts are read by themselves, some
rows at a time, also by the workers of a cluster that see the same paths: no package for Spark is needed.

What a row of a part is:

* *Delta*: a row of the file that its deletion vector does not name. Columns that the file has not are missing, and
  those that the table is parted by have the value that the log says.
* *Iceberg*: a row of the file, its columns found by their numbers, never by their names; except those that a position
  delete names, and those that an **equality delete** names: a file of rows of some columns, which deletes every row
  that equals one of them in all these columns. It holds for data files with a lower sequence number, in its own
  partition, or in all of them if it has none. A missing value equals a missing one.

What cannot be told for certain is refused before a row is read: Delta with column mapping, or with a feature that
polars does not know; of Iceberg files that are not Parquet, equality deletes by floats or nested columns, and
deletion vectors of format 3: which vector in their file counts is in a field that pyiceberg does not read yet.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import numpy as np

from escudo.errors import InputError

if TYPE_CHECKING:
    import polars as pl

_ROWS_AT_ONCE = 2**17
_EQUAL = "equality_"
_ICEBERG_VERSIONS = (1, 2, 3)
_UNSURE = ("float", "double")  # equality of these is nobody's rule: the format forbids it


class Part(Protocol):
    """A data file with what was deleted from it; it can travel to a worker."""

    @property
    def by_place(self) -> bool:
        """Whether rows of it were deleted by their place."""
        ...

    def rows(self, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the named columns of the rows that count; one at least."""
        ...


@dataclass(frozen=True, repr=False)
class Lake:
    """A table as the files that hold its rows now.

    Attributes:
        columns: The type of each column.
        parts: The data files, in the order of the log.
    """

    columns: Mapping[str, pl.DataType]
    parts: tuple[Part, ...]

    @property
    def by_value(self) -> bool:
        """Whether rows were deleted by their values."""
        return any(isinstance(part, IcebergPart) and part.by_value for part in self.parts)

    @property
    def by_place(self) -> bool:
        """Whether rows were deleted by their place."""
        return any(part.by_place for part in self.parts)

    def __repr__(self) -> str:
        return f"Lake({len(self.columns)} columns)"

    def rows(self, names: Sequence[str], parts: Sequence[Part]) -> Iterator[pl.DataFrame]:
        """Yield the named columns of some parts, one column at least, in the table's types.

        A value that a file holds in another type, and that the table's type cannot hold, is missing: no value is an
        error.
        """
        types = {name: self.columns[name] for name in names}
        for part in parts:
            for rows in part.rows(names):
                yield rows.cast(types, strict=False)  # type: ignore[arg-type]

    def scan(self) -> pl.LazyFrame:
        """Return all parts, one after the other, as a lazy frame."""
        from polars.io.plugins import register_io_source

        def source(
            wanted: list[str] | None, predicate: pl.Expr | None, most: int | None, size: int | None
        ) -> Iterator[pl.DataFrame]:
            left = most
            for rows in self.rows(wanted or list(self.columns)[: None if wanted is None else 1], self.parts):
                if left is not None:
                    rows, left = rows.head(left), max(left - rows.height, 0)
                yield rows if predicate is None else rows.filter(predicate)
                if left == 0:
                    return

        return register_io_source(source, schema=dict(self.columns), is_pure=True)


# ---- Delta


def open_delta(folder: str) -> Lake:
    """Return the newest version of a Delta table.

    Raises:
        ValueError: If its columns go by other names in its files.
        Exception: Whatever deltalake or polars raise, of a damaged log or a feature that they do not know.
    """
    import polars as pl

    table = delta_table(folder)
    columns = dict(pl.scan_delta(table).collect_schema())  # refuses features that polars does not know
    parted = table.metadata().partition_columns
    actions: Any = pl.DataFrame(table.get_add_actions(flatten=True))
    values: dict[str, dict[str, Any]] = {}
    for row in actions.iter_rows(named=True):
        # The log writes paths as in a URL: relative to the table, or absolute where it was copied without its files.
        said = unquote(row["path"]).removeprefix("file://")
        values[os.path.realpath(os.path.join(folder, said))] = {name: row[f"partition.{name}"] for name in parted}
    kept = _deletion_vectors(table)
    if len(values) != len(table.file_uris()) or not {*kept} <= {*values}:
        raise ValueError("files that the log does not name in the same way")
    return Lake(columns, tuple(DeltaPart(file, said, kept.get(file)) for file, said in values.items()))


def delta_table(folder: str) -> Any:
    """Open a Delta table, or raise if polars would take one column for another."""
    import deltalake

    table = deltalake.DeltaTable(folder)
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise ValueError("polars 2.0 takes a column for another one then")
    return table


def _deletion_vectors(table: Any) -> dict[str, bytes]:
    """Return which rows of each file are kept, one bit each, packed small."""
    import pyarrow as pa

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    found = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        files, vectors = (batch.column(batch.schema.get_field_index(n)) for n in ("filepath", "selection_vector"))
        for place, file in enumerate(files.to_pylist()):
            kept = vectors[place].values.to_numpy(zero_copy_only=False)
            found[os.path.realpath(unquote(file.removeprefix("file://")))] = packed(kept)
    return found


@dataclass(frozen=True, repr=False)
class DeltaPart:
    """A file of a Delta table.

    Attributes:
        path: Where it is.
        values: The value of each column that the table is parted by.
        kept: Which of its rows are kept, :func:`packed`, those beyond it too; None for all.
    """

    path: str
    values: Mapping[str, Any]
    kept: bytes | None

    @property
    def by_place(self) -> bool:
        """Whether rows of it were deleted by their place."""
        return self.kept is not None

    def rows(self, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the named columns of the rows that count."""
        import glob

        import narwhals as nw
        import polars as pl

        from escudo.table._frames import stream

        scanned = pl.scan_parquet(glob.escape(self.path), hive_partitioning=False)
        there = set(scanned.collect_schema()) - set(self.values)
        chosen = [name for name in names if name in there]
        absent = [pl.lit(self.values.get(name)).alias(name) for name in names if name not in there]
        kept = None if self.kept is None else _bits(self.kept)
        start = 0
        # One column at least is read: rows without any have no number.
        for batch in stream(nw.from_native(scanned.select(chosen or pl.first())), _ROWS_AT_ONCE):
            stop = start + batch.height
            left = batch if kept is None else batch.filter(_kept(kept, start, stop))
            start = stop
            if left.height:
                yield left.with_columns(absent).select(names)


def packed(kept: Any) -> bytes:
    """Return booleans as bytes: how many they are, and eight of them in a byte, packed small."""
    return len(kept).to_bytes(8, "little") + zlib.compress(np.packbits(kept).tobytes(), 1)


def _bits(found: bytes) -> Any:
    count, eights = int.from_bytes(found[:8], "little"), np.frombuffer(zlib.decompress(found[8:]), dtype=np.uint8)
    return np.unpackbits(eights, count=count).astype(bool)


def _kept(kept: Any, start: int, stop: int) -> pl.Series:
    """Return which rows are kept; rows beyond the vector are."""
    import polars as pl

    mask = np.ones(stop - start, dtype=bool)
    said = kept[start:stop]
    mask[: len(said)] = said
    return pl.Series(mask)


# ---- Iceberg


def iceberg_table(name: str) -> Any:
    """Open the version of an Iceberg table that a metadata file, or a folder with a hint, describes.

    Raises:
        InputError: If its format version is not supported.
        Exception: Whatever pyiceberg raises of a damaged table.
    """
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(os.path.abspath(name))
    if table.format_version not in _ICEBERG_VERSIONS:
        raise InputError(
            f"'{name}' is an Iceberg table of format version {table.format_version}, and only versions 1 to 3 are "
            "supported here. Read it by Spark (spark:///?table=NAME), or write its rows to Parquet."
        )
    return table


def open_iceberg(name: str) -> Lake:
    """Return the version of an Iceberg table that a metadata file, or a folder with a hint, describes.

    Raises:
        InputError: If it has files of another format, or deletes that cannot be honoured for certain.
        Exception: Whatever pyiceberg raises of a damaged table.
    """
    import polars as pl
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    table = iceberg_table(name)
    schema = table.schema()
    empty: Any = pl.from_arrow(schema_to_pyarrow(schema, include_field_ids=False).empty_table())
    how = _Reading(table.metadata, table.io)
    return Lake(dict(empty.schema), tuple(IcebergPart(how, *planned) for planned in _planned(table, name)))


def _planned(table: Any, name: str) -> Iterator[tuple[Any, tuple[tuple[tuple[int, ...], Any], ...]]]:
    """Yield each data file with its position deletes as pyiceberg plans it, and the equality deletes that hold for it.

    pyiceberg's own plan refuses equality deletes, so they are told apart from the rest first.
    """
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.table import ManifestGroupPlanner

    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    manifests = snapshot.manifests(table.io)
    planner = ManifestGroupPlanner(table.metadata, table.io)
    deletes, numbers = [], {}
    for entry in (entry for several in planner.plan_manifest_entries(manifests) for entry in several):
        file, number = entry.data_file, entry.sequence_number or 0
        if file.content == DataFileContent.EQUALITY_DELETES:
            deletes.append((number, file, _columns_of(table, file, name)))
        elif file.content == DataFileContent.DATA:
            numbers[file.file_path] = number
        if file.file_format == FileFormat.PUFFIN:
            raise InputError(
                f"'{name}' is an Iceberg table with deletion vectors, and pyiceberg does not read yet which of the "
                "vectors in a file count. Read it by Spark (spark:///?table=NAME), or write its rows to Parquet."
            )
        if file.file_format != FileFormat.PARQUET:
            raise InputError(f"'{name}' is an Iceberg table with files that are not Parquet: read it by Spark.")
    by_value = DataFileContent.EQUALITY_DELETES
    for task in planner.plan_files(manifests, lambda entry: entry.data_file.content != by_value):
        holding = (
            (columns, file)
            for number, file, columns in deletes
            if numbers[task.file.file_path] < number and _reaches(table, file, task.file)
        )
        yield task, tuple(holding)


def _columns_of(table: Any, file: Any, name: str) -> tuple[int, ...]:
    """Return the columns of an equality delete by their numbers, or refuse them."""
    numbers = tuple(sorted(file.equality_ids or ()))
    fields = _fields(table.metadata)
    if not numbers or any(
        number not in fields or not fields[number].field_type.is_primitive or str(fields[number].field_type) in _UNSURE
        for number in numbers
    ):
        raise InputError(
            f"'{name}' is an Iceberg table with equality deletes by floats, by nested columns or by columns that are "
            "nowhere described, which cannot be honoured for certain. Read it by Spark (spark:///?table=NAME), or "
            "write its rows to Parquet."
        )
    return numbers


def _fields(metadata: Any) -> dict[int, Any]:
    """Return all columns that the table has or ever had, by number: one that was dropped may still delete rows."""
    schemas = [*(each for each in metadata.schemas if each.schema_id != metadata.current_schema_id), metadata.schema()]
    return {each.field_id: each for schema in schemas for each in schema.fields}


def _reaches(table: Any, delete: Any, file: Any) -> bool:
    """Return whether an equality delete is about the partition that a data file is in."""
    from pyiceberg.transforms import VoidTransform

    parted = [one for one in table.specs()[delete.spec_id].fields if not isinstance(one.transform, VoidTransform)]
    return not parted or (delete.spec_id == file.spec_id and delete.partition == file.partition)


@dataclass(frozen=True, repr=False)
class _Reading:
    """What reading a file of an Iceberg table takes.

    Attributes:
        metadata: The table's description.
        io: How its files are opened.
        deleted: Equality deletes that were read, which several files share.
    """

    metadata: Any
    io: Any
    deleted: dict[tuple[str, ...], pl.DataFrame] = field(default_factory=dict)

    def __getstate__(self) -> tuple[Any, Any]:
        return self.metadata, self.io

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        for name, value in zip(("metadata", "io", "deleted"), (*state, {}), strict=True):
            object.__setattr__(self, name, value)

    def read(self, task: Any, wanted: Sequence[Any]) -> Iterator[pl.DataFrame]:
        """Yield columns of a file by their numbers, without rows that a position delete names."""
        import polars as pl
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema

        scan = ArrowScan(self.metadata, self.io, Schema(*wanted), AlwaysTrue())
        for batch in scan.to_record_batches([task]):
            rows = pl.from_arrow(batch)
            assert isinstance(rows, pl.DataFrame)
            yield rows

    def equal(self, numbers: tuple[int, ...], files: Sequence[Any]) -> pl.DataFrame:
        """Return the rows of equality deletes by the same columns, each once."""
        import polars as pl
        from pyiceberg.table import FileScanTask

        key = tuple(file.file_path for file in files)
        if key not in self.deleted:
            found = [rows for file in files for rows in self.read(FileScanTask(file), self.keys(numbers))]
            self.deleted[key] = pl.concat(found).unique() if found else pl.DataFrame()
        return self.deleted[key]

    def keys(self, numbers: Sequence[int]) -> list[Any]:
        """Return the columns of equality deletes, under names that no other column has."""
        known = _fields(self.metadata)
        return [known[one].model_copy(update={"name": f"{_EQUAL}{one}", "required": False}) for one in numbers]


@dataclass(frozen=True, repr=False)
class IcebergPart:
    """A file of an Iceberg table.

    Attributes:
        how: How it is read.
        task: The file and its position deletes.
        by_value: The equality deletes that hold for it, each with the numbers of its columns.
    """

    how: _Reading
    task: Any
    by_value: tuple[tuple[tuple[int, ...], Any], ...]

    @property
    def by_place(self) -> bool:
        """Whether rows of it were deleted by their place."""
        return bool(self.task.delete_files)

    def rows(self, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the named columns of the rows that count."""
        import polars as pl

        schema = self.how.metadata.schema()
        wanted = [schema.find_field(name) for name in names]
        groups: dict[tuple[int, ...], list[Any]] = {}
        for numbers, file in self.by_value:
            groups.setdefault(numbers, []).append(file)
        keys = sorted({number for numbers in groups for number in numbers})
        deleted = {numbers: self.how.equal(numbers, files) for numbers, files in groups.items()}
        copies = {number: f"{_EQUAL}{number}" for number in keys}
        own = {one.field_id: one.name for one in wanted}
        read = [*wanted, *self.how.keys([number for number in keys if number not in own])]
        for rows in self.how.read(self.task, read):
            left = rows.with_columns(pl.col(own[number]).alias(copies[number]) for number in keys if number in own)
            for numbers, gone in deleted.items():
                if gone.height:
                    on = [copies[number] for number in numbers]
                    left = left.join(gone, on=on, how="anti", nulls_equal=True, maintain_order="left")
            if left.height:
                yield left.select(names)
