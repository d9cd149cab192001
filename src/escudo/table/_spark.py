"""Spark: rows are read, encoded, bounded and counted by its workers; what comes back is counts.

Each worker hands its part of the columns to polars in Arrow batches and takes the same steps as any other engine
(:mod:`escudo.table._rows`), so the counts are the same to the last unit. escudo has to be installed on the workers, in
the version of the driver. Tasks depend on their part alone: one that was lost with its worker is run again by Spark and
comes out the same. The driver holds counts, sums and votes. What needs all rows at once is done by one worker, to which
the others send what they encoded (:func:`spark_in_one_place`), or the rows of the frames that the custodian asks about
(:func:`spark_frames`). Rows pass through the driver, a few at a time, only where a caller asks for the rows themselves
(:func:`spark_pieces`, :func:`spark_packed`), as those do who read synthetic ones.

Data are named ``spark:///FOLDER`` in the session that is configured where the command runs, or
``spark://HOST:PORT/FOLDER`` on a standalone cluster; ``?table=NAME`` for a table of the catalogue. Of a Delta or
Iceberg table that the driver sees, it finds the files that hold the rows (:mod:`escudo.table._lakes`), and the workers
read them.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult, unquote

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo._validate import did_you_mean
from escudo.errors import EngineError, InputError
from escudo.table._contributions import PersonParts
from escudo.table._counts import RunningCounts, Spans, add_counts, counts_to_bytes
from escudo.table._files import is_lake, open_lake
from escudo.table._frames import Source, columns_on_spark, read_names, stored_names
from escudo.table._persons import PERSON, PERSON_NUMBER
from escudo.table._rows import ROWS_AT_ONCE, AddUp, Arrays, Grouping, Piece, Placed, Query
from escudo.table._whole import Errand

if TYPE_CHECKING:
    import polars as pl

    from escudo.table._lakes import Lake
    from escudo.table._linked import Find, Gathering
    from escudo.table._schema import Schema

_MERGED = 16  # partial results that the driver adds up, where there would be more than it should hold
_MOST_BYTES = 2**28
_MOST_SENT = 2**26  # to a server of Spark Connect, which takes 128 MB in one message and holds them several times
_PARTITIONS = 1000  # where Spark does not say how many there are
_PACKET = 2**12  # bytes of rows that travel together: Spark hands some 10,000 packets over at a time
_FRAME_PACKET = 2**14  # more of rows as they are, which travel with their types
_FORMATS = ("parquet", "delta", "iceberg", "orc")
_FORMS = "spark:///FOLDER, spark://HOST:PORT/FOLDER or spark:///?table=NAME, with &format=delta and the like"


def open_spark(url: SplitResult, settings: dict[str, str], schema: Schema | None = None) -> Any:
    """Open data of a Spark cluster by a URL.

    Args:
        url: Where the cluster is, if not in the settings of the place, and the folder.
        settings: ``table``, a name in the catalogue; or ``path``, a folder that is no plain path, such as one in an
            object store; ``format``, Parquet unless stated. The folder of a Delta table, and the folder or metadata
            file of an Iceberg table, are read as such if they can be seen from here, with or without a package for
            them in the session: which files hold the rows is found here, and the workers read them.
        schema: What is public about the data, if it is known: of such a table only its columns are read.

    Raises:
        InputError: If it cannot be opened, or PySpark or Java are missing.
    """
    table, path = settings.pop("table", None), settings.pop("path", None) or unquote(url.path).rstrip("/") or None
    kind = settings.pop("format", "parquet")
    if settings or (table is None) == (path is None):
        raise InputError(f"the Spark URL must name one folder or one table; write {_FORMS}.")
    if kind not in _FORMATS:
        raise InputError(f"format={kind!r} is none of {', '.join(_FORMATS)}.{did_you_mean(kind, _FORMATS)}")
    session = spark_session(f"spark://{url.netloc}" if url.netloc else None)
    here = None if path is None else path.removeprefix("file://")
    lake = here is not None and kind in ("parquet", "delta", "iceberg") and is_lake(here)
    if here is not None and lake and kind == "parquet":
        return lake_frame(session, open_lake(here), schema)
    if path is not None and kind == "parquet":
        _refuse_parts(session, path)
    problem = None
    try:
        opened = session.table(table) if path is None else session.read.format(kind).load(path)
        _ = opened.schema  # by Spark Connect it is looked for only now
        return opened
    except Exception as error:  # its message may show a file's contents
        problem = type(error).__name__
    if here is not None and lake:  # the session has no package for it
        return lake_frame(session, open_lake(here), schema)
    raise InputError(
        f"Spark cannot open {table or path!r} as {kind if path else 'a table'} ({problem}). Is it there for the "
        "workers, and is the package for its format configured?"
    )


def _refuse_parts(session: Any, path: str) -> None:
    """Refuse the files of a Delta or Iceberg table that only Spark sees: they also hold rows that were deleted."""
    if _holds(session, path, "_delta_log"):
        raise InputError(
            f"{path!r} is a Delta table, whose files also hold rows that were deleted: write &format=delta after it "
            "(?format=delta, if nothing else is asked), with the package for Delta configured."
        )
    if _holds(session, path, "metadata/version-hint.text"):
        raise InputError(
            f"{path!r} is an Iceberg table, whose files also hold rows that were deleted: write ?format=iceberg, or "
            "name it in the catalogue, spark:///?table=NAME."
        )


def lake_frame(session: Any, lake: Lake, schema: Schema | None = None) -> Any:
    """Return a Delta or Iceberg table as a frame whose files the workers read, one a task: the driver reads none.

    Args:
        session: The session.
        lake: The table's files; the workers have to see them under the same paths.
        schema: What is asked of it: then columns that it does not name are not read.

    Columns of types that Spark and the table do not share (lists and structs, times of day) are left out.
    """
    import polars as pl
    from pyspark.sql.pandas.types import from_arrow_schema

    types = {name: dtype for name, dtype in lake.columns.items() if _carried(dtype)}
    if schema is not None:
        asked = {*read_names(schema)}
        if asked <= {*types}:  # or whoever opens the frame says which column is not there
            types = {name: dtype for name, dtype in types.items() if name in asked}
    names = list(types)
    described = from_arrow_schema(pl.DataFrame(schema=types).to_arrow().schema, prefer_timestamp_ntz=True)
    if not lake.parts or not names:
        return session.createDataFrame([], described)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for rows in lake.rows(names, [lake.parts[number] for number in batch.column(0).to_pylist()]):
                yield from rows.to_arrow().to_batches(max_chunksize=ROWS_AT_ONCE)

    numbers = session.range(0, len(lake.parts), 1, min(len(lake.parts), _PARTITIONS))
    return _mapped(numbers, read, described)


def _carried(dtype: pl.DataType) -> bool:
    import polars as pl

    plain = (pl.Boolean, pl.String, pl.Date, pl.Datetime, pl.Decimal, pl.Binary)
    return (dtype.is_signed_integer() and dtype != pl.Int128) or dtype.is_float() or dtype in plain


def spark_session(master: str | None = None) -> Any:
    """Return the running session, or start one: on that master, or where the settings of the place say.

    Spark's log quotes the values of a row that cannot be read. One that is started here keeps no log on the driver,
    unless the settings of the place have a ``spark.log.level``. On their way to other workers encoded rows lie in files
    that others on the machine can read, and that a killed process leaves behind: one that is started here encrypts
    them, by a key that is in the memory of its processes.

    Raises:
        InputError: If PySpark is not installed or does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError("data of Spark need: pip install 'escudo[spark]', and Java 17 or later.") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("escudo")
    problem = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            builder = builder if master is None else builder.master(master)
            running = SparkSession.getActiveSession()
            if running is None:
                builder = builder.config("spark.io.encryption.enabled", "true")
            session = builder.getOrCreate()
            if running is None and session.conf.get("spark.log.level", None) is None:
                with suppress(Exception):  # Spark Connect has no such thing
                    session.sparkContext.setLogLevel("OFF")
            return session
    except Exception as error:
        problem = type(error).__name__
    where = "that is configured" if master is None else repr(master)
    raise InputError(
        f"Spark does not start ({problem}): is Java 17 or later installed, and is the cluster {where} running?"
    )


def _holds(session: Any, folder: str, name: str) -> bool:
    """Return whether a folder that Spark sees holds something of this name; no, where that cannot be asked."""
    try:
        return bool(session.read.format("binaryFile").load(f"{folder.rstrip('/')}/{name}").schema)
    except Exception:  # it is not there; of a folder that is not there either, that is said below
        return False


def spark_workers(master: str | None) -> list[dict[str, str]]:
    """Return which versions of Python and of what escudo needs the workers of a cluster have, each kind once.

    Raises:
        InputError: If the cluster does not answer.
    """
    session = spark_session(master)

    def versions(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        count = sum(batch.num_rows for batch in batches)
        found = worker_versions()
        yield pa.record_batch({name: pa.array([text] * min(count, 1)) for name, text in found.items()})

    here = worker_versions()
    problem = None
    try:
        frame = session.range(64).repartition(_tasks(session))
        rows = _mapped(frame, versions, ", ".join(f"`{name}` string" for name in here)).distinct().collect()
        return sorted((row.asDict() for row in rows), key=lambda row: sorted(row.items()))
    except Exception as error:
        problem = type(error).__name__
    raise InputError(
        f"the workers of the cluster do not answer ({problem}): is escudo installed for their Python, {here['python']}?"
    )


def _tasks(session: Any) -> int:
    try:
        return int(session.sparkContext.defaultParallelism) * 2
    except Exception:  # a session by Spark Connect shows none
        return 64


def spark_remarks(master: str | None) -> list[str]:
    """Return what is to be known of a session's settings: where rows can be read by others, or are left out."""
    session = spark_session(master)

    def is_on(name: str) -> bool:
        try:
            return str(session.conf.get(name, "false")).lower() == "true"
        except Exception:  # one that this Spark does not know
            return False

    found = []
    if not is_on("spark.io.encryption.enabled"):
        found.append("rows on their way lie unencrypted on the workers' disks: set spark.io.encryption.enabled")
    skipping = [
        name for name in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles") if is_on(name)
    ]
    if skipping:
        found.append(f"files that cannot be read are left out without a word: turn off {' and '.join(skipping)}")
    return found


WORKERS_MAY_NEED = {
    "jax": "trainings of networks",
    "pyiceberg": "Iceberg tables",
    "scikit-learn": "figures about predictions",
}
"""What only some questions ask of workers."""


def worker_versions() -> dict[str, str]:
    """Return which versions this process has of what counts on a worker; 'none' of what it may do without."""
    needed = ("escudo", "polars", "narwhals", "numpy", "pyarrow")
    found = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in needed}}
    for name in WORKERS_MAY_NEED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def _mapped(frame: Any, work: Callable[[Iterator[Any]], Iterator[Any]], types: Any) -> Any:
    """Run ``work`` over the Arrow batches of each partition.

    By Spark Connect it travels with each request, and what was kept of a frame is found again by its bytes: so these
    are made once.
    """
    if nw.from_native(frame).implementation.is_pyspark_connect():
        from pyspark.serializers import CloudPickleSerializer

        written = CloudPickleSerializer().dumps(work)
        if len(written) > _MOST_SENT:
            raise InputError(
                f"what goes along with the question has {len(written) / 2**20:.0f} MB, and Spark Connect takes "
                f"{_MOST_SENT // 2**20}: write the frames that are not on Spark to files, and open them there."
            )
        work = partial(_opened, written)
    with warnings.catch_warnings():  # that pandas is too new for PySpark: it is not used here
        warnings.simplefilter("ignore", FutureWarning)
        return frame.mapInArrow(work, types)


def _opened(written: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark.serializers import CloudPickleSerializer

    work: Callable[[Iterator[Any]], Iterator[Any]] = CloudPickleSerializer().loads(written)
    return work(batches)


def spark_tally(query: Query, source: Source, spans: Spans) -> RunningCounts:
    """Count on the workers, in one pass, and add up what they found."""

    def counted(batches: Iterator[Any]) -> bytes:
        tally = RunningCounts(spans)
        for piece in _rows_of(query, batches):
            tally.add(piece.cells)
        return tally.to_bytes()

    def merged(blobs: Iterable[bytes]) -> RunningCounts:
        tally = RunningCounts(spans)
        for blob in blobs:
            tally.merge(blob)
        return tally

    size = RunningCounts(spans).size_in_bytes
    return merged(_found(_parted(query, source), counted, lambda blobs: merged(blobs).to_bytes(), size))


def spark_sums(arrays: Arrays, source: Source, add_up: AddUp) -> NDArray[np.int64]:
    """Let the workers add up whole numbers of their rows, in one pass, and return the sums over all of them."""
    query = arrays.query

    def added(batches: Iterator[Any]) -> NDArray[np.int64]:
        return add_up(rows for rows, _ in arrays.made("pyspark", _rows_of(query, batches)))

    return _summed(_parted(query, source), added, add_up(iter(())))


def _summed(
    parted: Any, add: Callable[[Iterator[Any]], NDArray[np.int64]], none: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the sum of what each worker finds in its part, given what is found in none."""

    def merged(blobs: Iterable[bytes]) -> NDArray[np.int64]:
        total = np.zeros(none.size, dtype=np.int64)
        for blob in blobs:
            add_counts(total, blob)
        return total

    found = _found(
        parted,
        lambda batches: counts_to_bytes(add(batches).ravel()),
        lambda blobs: counts_to_bytes(merged(blobs)),
        none.nbytes,
    )
    return merged(found).reshape(none.shape)


@contextmanager
def spark_together(
    gathering: Gathering, sources: Mapping[str, Source], *, once: bool
) -> Iterator[Callable[[Find], NDArray[np.int64]]]:
    """Bring the rows of linked tables together on the workers, person by person; they add up what is found in them.

    Args:
        gathering: How rows travel.
        sources: The tables; those that are not on Spark are packed here, and sent to the workers.
        once: Whether sums are asked for once. Else packed rows stay with the workers, in memory or on disk.
    """
    import polars as pl

    kinds = gathering.types()
    words: dict[Any, str] = {pl.String: "string", pl.Int32: "int", pl.Int64: "long"}
    types = ", ".join(f"{name} {words[kind]}" for name, kind in kinds.items())

    def packed(table: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
        def pack(batches: Iterator[Any]) -> Iterator[Any]:
            for frame in _frames(batches):
                for rows in gathering.travelling(frame, table):
                    yield from rows.to_arrow().to_batches()

        return pack

    there = {name: source for name, source in sources.items() if source.engine == "pyspark"}
    tables = [
        _mapped(columns_on_spark(source.frame, gathering.stored(name)), packed(name), types)
        for name, source in there.items()
    ]
    session = tables[0].sparkSession
    for name in sources.keys() - there.keys():
        tables.append(session.createDataFrame(gathering.sent(sources[name], name).to_arrow(), types))
    parted = reduce(lambda one, other: one.union(other), tables).repartition(PERSON_NUMBER)

    def summed(find: Find) -> NDArray[np.int64]:
        def added(batches: Iterator[Any]) -> NDArray[np.int64]:
            arrived = (source.frame.to_native().cast(kinds) for source in _frames(batches))
            with PersonParts(arrived) as parts:
                return gathering.summed(find, parts)

        return _summed(parted, added, gathering.summed(find, ()))

    if once:
        yield summed
        return
    parted = parted.persist()
    try:
        yield summed
    finally:
        parted.unpersist()


def spark_packed(gathering: Gathering, source: Source, table: str) -> Iterator[pl.DataFrame]:
    """Yield the packed rows of one of several linked tables, some at a time, for whoever holds all histories."""
    import polars as pl

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        for frame in _frames(batches):
            yield from _blobs(_ipc(rows) for rows in gathering.packed(frame, table))

    rows = _mapped(columns_on_spark(source.frame, gathering.stored(table)), pack, "found binary")
    for row in rows.toLocalIterator(prefetchPartitions=True):
        yield pl.read_ipc(io.BytesIO(bytes(row[0])))


def spark_groups(arrays: Arrays, source: Source, grouping: Grouping) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bring rows together in groups, and let the workers that hold them find what is asked of each group.

    Each partition sends the rows that take part, at most as many of a group as it has room for, to where its group is.
    Where positions decide, the rows of each partition are counted before: the columns that are asked for stay with the
    workers meanwhile, in their memory or on their disks, so that the table is read once.
    """
    parted = _parted(arrays.query, source)
    if not grouping.by_position:
        return _judged(arrays, parted, grouping, None)
    parted = parted.persist()
    try:
        return _judged(arrays, parted, grouping, _lengths(parted))
    finally:
        parted.unpersist()


@contextmanager
def spark_in_one_place(arrays: Arrays, source: Source, *, once: bool) -> Iterator[Callable[[Errand], bytes]]:
    """Bring all rows to one worker, encoded and in the order of the table, and do work on them there.

    All workers read their partitions and cut what they encode into packets, which are numbered: where one comes from,
    and which of these it is. One task then gets them all and puts them in order, in memory or on its disk, as Spark
    does. What comes back is what the errand says.

    Unless work is done ``once``, the packets stay with the workers that made them: the table is read once. Rows of
    people arrive as it happens where they are brought together, and are put in order there, so that a seed repeats an
    answer.
    """
    query, none = arrays.query, arrays.none
    parted = _parted(query, source)
    if query.schema.person_id is not None:
        parted = parted.sortWithinPartitions(PERSON, *query.order)
    each = max(_PACKET // (none.itemsize * none.shape[1]), 1)

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        part, sent = TaskContext.get().partitionId(), 0
        for rows, _ in arrays.made("pyspark", _rows_of(query, batches)):
            packets = [rows[start : start + each].tobytes() for start in range(0, len(rows), each)]
            places = np.arange(sent, sent + len(packets))
            sent += len(packets)
            yield pa.record_batch(
                {
                    "part": pa.array(np.full(len(packets), part, dtype=np.int64)),
                    "place": pa.array(places),
                    "found": pa.array(packets, type=pa.binary()),
                }
            )

    def arrays_in(batches: Iterator[Any]) -> Iterator[NDArray[Any]]:
        several = (b"".join(batch.column(2).to_pylist()) for batch in batches)
        yield from (np.frombuffer(joined, none.dtype).reshape(-1, none.shape[1]) for joined in several)

    packed = _mapped(parted, pack, "part long, place long, found binary")
    if once:
        yield _to_one_worker(packed, ("part", "place"), arrays_in)
        return
    packed = packed.persist()
    try:
        yield _to_one_worker(packed, ("part", "place"), arrays_in)
    finally:
        packed.unpersist()


def _to_one_worker(
    packed: Any, order: Sequence[str], rows_in: Callable[[Iterator[Any]], Any]
) -> Callable[[Errand], bytes]:
    """Return what takes errands to one worker, which gets all packets, in order, and finds the rows in them."""

    def send(errand: Errand) -> bytes:
        def work(batches: Iterator[Any]) -> Iterator[Any]:
            return _blobs([errand(rows_in(batches))])

        answers = _mapped(packed.repartition(1).sortWithinPartitions(*order), work, "found binary").collect()
        return bytes(answers[0][0]) if answers else errand(rows_in(iter(())))  # without rows there may be no task

    return send


def spark_frames(frames: Sequence[tuple[Source, Sequence[str]]]) -> Callable[[Errand], bytes]:
    """Bring some columns of frames to one worker, as they are and in the order of the rows, and do work on them there.

    It gets a frame of polars for each. Partitions are cut into packets as for :func:`spark_in_one_place`.
    """
    chosen = [columns_on_spark(source.frame, names) for source, names in frames]

    def packed(number: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
        def pack(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa
            from pyspark import TaskContext

            part, place = TaskContext.get().partitionId(), 0
            for batch in batches:
                each = max(_FRAME_PACKET * batch.num_rows // max(batch.nbytes, 1), 1)
                packets = [_as_blob(batch.slice(start, each)) for start in range(0, batch.num_rows, each)]
                yield pa.record_batch(
                    {
                        "frame": pa.array([number] * len(packets), type=pa.int64()),
                        "part": pa.array([part] * len(packets), type=pa.int64()),
                        "place": pa.array(np.arange(place, place + len(packets))),
                        "found": pa.array(packets, type=pa.binary()),
                    }
                )
                place += len(packets)

        return pack

    types = "frame long, part long, place long, found binary"
    packets = reduce(
        lambda one, other: one.union(other), (_mapped(one, packed(i), types) for i, one in enumerate(chosen))
    )
    return _to_one_worker(
        packets, ("frame", "part", "place"), partial(_frames_in, [_arrow_types(one) for one in chosen])
    )


def _as_blob(batch: Any) -> bytes:
    import pyarrow as pa

    written = io.BytesIO()
    with pa.ipc.new_stream(written, batch.schema) as stream:
        stream.write_batch(batch)
    return written.getvalue()


def _frames_in(types: Sequence[Any], batches: Iterator[Any]) -> list[pl.DataFrame]:
    """Return the frames whose packets come in order, given their types, as one may be without rows."""
    import polars as pl
    import pyarrow as pa

    arrived: list[list[Any]] = [[] for _ in types]
    for batch in batches:
        for number, blob in zip(batch.column(0).to_pylist(), batch.column(3), strict=True):
            arrived[number].append(pa.ipc.open_stream(blob.as_buffer()).read_all())
    tables = [
        pa.concat_tables(several) if several else kind.empty_table()
        for several, kind in zip(arrived, types, strict=True)
    ]
    return [cast("pl.DataFrame", pl.from_arrow(table)) for table in tables]


def _arrow_types(frame: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema)


def _judged(
    arrays: Arrays, parted: Any, grouping: Grouping, lengths: dict[int, int] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what the workers find of each group, given how many rows each partition has where positions decide."""
    query = arrays.query
    starts = None if lengths is None else {key: sum(lengths[k] for k in lengths if k < key) for key in lengths}

    def place(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        start = seen = 0 if starts is None else starts.get(number, 0)

        def numbered() -> Iterator[tuple[NDArray[Any], NDArray[np.int64], int]]:
            nonlocal seen
            for rows, whose in arrays.made("pyspark", _rows_of(query, batches)):
                yield rows, whose, seen
                seen += len(rows)

        yield from _few(grouping, grouping.placed(numbered()))
        if lengths is not None and seen - start != lengths.get(number, 0):
            raise EngineError("the table changed while it was read; ask again, or of a copy that stays as it is.")

    def judge(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        waiting = [_as_placed(batch) for batch in batches if batch.num_rows]
        if waiting:
            groups, found = grouping.found(grouping.first(waiting))
            blobs = pa.array([row.tobytes() for row in np.ascontiguousarray(found, dtype=np.int64)], type=pa.binary())
            yield pa.record_batch({"kind": pa.array(groups, type=pa.int64()), "found": blobs})

    types = ", ".join(["kind long", "rank long", *(f"v{place} double" for place in range(len(query.wanted)))])
    together = _mapped(parted, place, types).repartition("kind")
    answers = _mapped(together, judge, "kind long, found binary").collect()
    groups = np.array([row[0] for row in answers], dtype=np.int64)
    found = [np.frombuffer(bytes(row[1]), dtype=np.int64) for row in answers]
    return groups, np.stack(found) if found else np.empty((0, 0), dtype=np.int64)  # a table may have no rows


def _lengths(parted: Any) -> dict[int, int]:
    """Return how many rows each partition has, by its number."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        rows = sum(batch.num_rows for batch in batches)
        yield pa.record_batch({"part": pa.array([TaskContext.get().partitionId()]), "count": pa.array([rows])})

    return {int(row[0]): int(row[1]) for row in _mapped(parted, count, "part long, count long").collect()}


def _few(grouping: Grouping, several: Iterator[Placed]) -> Iterator[Any]:
    """Yield rows as Arrow, no more of a group than it has room for, in bounded memory."""
    import pyarrow as pa

    waiting: list[Placed] = []
    room = 4 * ROWS_AT_ONCE
    for placed in several:
        waiting.append(placed)
        if sum(len(each.group) for each in waiting) > room:
            waiting = [grouping.first(waiting)]
            room = max(room, 2 * len(waiting[0].group))
    if waiting:
        group, rank, rows = grouping.first(waiting)
        for start in range(0, len(group), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            columns = {f"v{place}": pa.array(np.ascontiguousarray(rows[part, place])) for place in range(rows.shape[1])}
            yield pa.record_batch(
                {"kind": pa.array(group[part]), "rank": pa.array(rank[part].view(np.int64)), **columns}
            )


def _as_placed(batch: Any) -> Placed:
    group, rank, *columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
    return Placed(group, rank.view(np.uint64), np.column_stack(columns).astype(np.float64, copy=False))


def _found(
    parted: Any, find: Callable[[Iterator[Any]], bytes], merge: Callable[[Iterable[bytes]], bytes], size: int
) -> Iterator[bytes]:
    """Yield what each worker finds in its rows; merged on the workers, where all of it is too much for the driver."""

    def one(batches: Iterator[Any]) -> Iterator[Any]:
        return _blobs([find(batches)])

    def together(batches: Iterator[Any]) -> Iterator[Any]:
        return _blobs([merge(blob for batch in batches for blob in batch.column(0).to_pylist())])

    found = _mapped(parted, one, "found binary")
    if _partitions(parted) * size > _MOST_BYTES:
        found = _mapped(found.repartition(_MERGED), together, "found binary")
    for row in found.collect():
        yield bytes(row[0])


def _partitions(frame: Any) -> int:
    try:
        return int(frame.rdd.getNumPartitions())
    except Exception:  # a session by Spark Connect shows none
        return _PARTITIONS


def spark_pieces(query: Query, source: Source) -> Iterator[Piece]:
    """Yield the rows that count; the driver holds a few pieces at a time."""

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for piece in _rows_of(query, batches):
            yield from _blobs([_written(piece)])

    for row in _mapped(_parted(query, source), read, "found binary").toLocalIterator(prefetchPartitions=True):
        yield _read(bytes(row[0]), query)


def _parted(query: Query, source: Source) -> Any:
    """Return the frame whose partitions are read for themselves: for the person unit, packed and parted by person."""
    person_id = () if query.schema.person_id is None else (query.schema.person_id,)
    native = columns_on_spark(source.frame, [*stored_names(query.schema, query.codes), *person_id])
    if query.schema.person_id is None:
        return native

    def packed(batches: Iterator[Any]) -> Iterator[Any]:
        for frame in _frames(batches):
            for rows in query.packed(frame):
                yield from rows.select(*_travelling(query, rows)).to_arrow().to_batches()

    kinds = {"string": "string", "varchar": "string", "char": "string", "double": "double", "float": "double"}
    person = kinds.get(native.schema[query.schema.person_id].dataType.typeName(), "long")
    longs, doubles = [PERSON_NUMBER, *query.packing.names], query.numbers.values()
    types = [f"{PERSON} {person}", *(f"{name} long" for name in longs), *(f"{name} double" for name in doubles)]
    return _mapped(native, packed, ", ".join(types)).repartition(PERSON_NUMBER)


def _travelling(query: Query, rows: pl.DataFrame) -> list[pl.Expr]:
    import polars as pl

    kind = rows[PERSON].dtype
    person = pl.col(PERSON) if kind == pl.String else pl.col(PERSON).cast(pl.Float64 if kind.is_float() else pl.Int64)
    return [person, PERSON_NUMBER, *query.packing.names, *query.numbers.values()]  # type: ignore[list-item]


def _rows_of(query: Query, batches: Iterator[Any]) -> Iterator[Piece]:
    """Yield the rows that count of one partition, on its worker."""
    if query.schema.person_id is None:
        for frame in _frames(batches):
            yield from query.pieces(frame)
    else:
        yield from query.bounded(source.frame.to_native() for source in _frames(batches))


def _frames(batches: Iterator[Any]) -> Iterator[Source]:
    """Yield Arrow batches as frames of enough rows to be worth encoding."""
    import polars as pl
    import pyarrow as pa

    def frame(waiting: list[Any]) -> Source:
        rows = pl.from_arrow(pa.Table.from_batches(waiting))
        return Source(engine="polars", frame=nw.from_native(rows, eager_only=True))

    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= ROWS_AT_ONCE:
            yield frame(waiting)
            waiting = []
    if waiting:
        yield frame(waiting)


def _blobs(blobs: Iterable[bytes]) -> Iterator[Any]:
    import pyarrow as pa

    yield from (pa.record_batch({"found": pa.array([blob], type=pa.binary())}) for blob in blobs)


def _written(piece: Piece) -> bytes:
    import polars as pl

    columns = [*piece.cells.values(), *piece.numbers.values(), piece.whose]
    return _ipc(pl.DataFrame({f"{i}": column for i, column in enumerate(columns)}))


def _ipc(rows: pl.DataFrame) -> bytes:
    written = io.BytesIO()
    rows.write_ipc(written, compression="lz4")
    return written.getvalue()


def _read(blob: bytes, query: Query) -> Piece:
    import polars as pl

    *columns, whose = (column.to_numpy() for column in pl.read_ipc(io.BytesIO(blob)))
    cells = dict(zip(query.wanted, columns, strict=False))
    numbers = [name for name in query.wanted if name in query.numbers]
    return Piece(cells, dict(zip(numbers, columns[len(cells) :], strict=True)), whose)
