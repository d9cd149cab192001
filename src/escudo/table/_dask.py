"""Dask: rows are brought together in groups, or person by person, by its workers; what comes back is what was found.

Counts and sums of its parts are in :mod:`escudo.table._counts` and :mod:`escudo.table._rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo.table._contributions import PersonParts
from escudo.table._frames import Source
from escudo.table._persons import PERSON, PERSON_NUMBER
from escudo.table._rows import Arrays, Grouping, Piece, Placed
from escudo.table._whole import Errand

if TYPE_CHECKING:
    import polars as pl

    from escudo.table._linked import Find, Gathering

_JUDGES = 16  # tasks among which the groups are shared out
_Rows = list[tuple[NDArray[Any], NDArray[np.int64]]]


def dask_groups(arrays: Arrays, source: Source, grouping: Grouping) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bring rows together in groups, and let the workers that hold them find what is asked of each group.

    One graph of tasks, so each part of the table is read once. Each part gives up the rows that take part, at most as
    many of a group as it has room for. Where positions decide, a part waits, encoded, until those before it were
    counted: parts are begun in their order, so few of them wait at a time.
    """
    import dask

    waiting, opened = arrays.query.dask_parts(source)
    judges = max(1, min(len(waiting), _JUDGES))

    def encoded(part: Any) -> _Rows:
        return list(arrays.made("dask", opened(part)))

    def ended(rows: _Rows, start: int) -> int:
        return start + sum(len(each) for each, _ in rows)

    def shared(rows: _Rows, start: int) -> list[Placed | None]:
        def numbered() -> Iterator[tuple[NDArray[Any], NDArray[np.int64], int]]:
            seen = start
            for each, whose in rows:
                yield each, whose, seen
                seen += len(each)

        several = list(grouping.placed(numbered()))
        if not several:
            return [None] * judges
        placed = grouping.first(several)
        mine = [placed.group % judges == judge for judge in range(judges)]
        return [Placed(*(array[chosen] for array in placed)) for chosen in mine]

    def judged(several: Sequence[Placed | None]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        some = [placed for placed in several if placed is not None and placed.group.size]
        return grouping.found(grouping.first(some)) if some else None

    start: Any = 0
    parts = []
    for part in waiting:
        rows = dask.delayed(encoded)(part)
        parts.append(dask.delayed(shared, nout=judges)(rows, start))
        start = dask.delayed(ended)(rows, start) if grouping.by_position else 0
    asked = [dask.delayed(judged)([each[judge] for each in parts]) for judge in range(judges)]
    answers = [answer for answer in dask.compute(*asked) if answer is not None]
    if not answers:  # a table may have no rows
        return np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.int64)
    groups, found = (np.concatenate(several) for several in zip(*answers, strict=True))
    return groups, found


@contextmanager
def dask_in_one_place(arrays: Arrays, source: Source) -> Iterator[Callable[[Errand], bytes]]:
    """Let one worker read the table, part by part and in order, and do work on all rows: the client gets its answer.

    The worker asks for the parts as the client would, one at a time, so it holds one besides the rows. Each errand is a
    task of its own, whose answer nobody else is given, and reads the parts anew, also where one more follows. Where
    rows were brought together by person, a cluster keeps them packed meanwhile: else that would be done for each part.
    They arrive as it happens, and are put in order, part by part, so that a seed repeats an answer.
    """
    import dask

    query = arrays.query
    waiting, opened = query.dask_parts(source)
    if query.schema.person_id is not None:
        waiting = list(dask.persist(*waiting)) if _on_a_cluster() else waiting

        def opened(part: Any) -> Iterator[Piece]:
            return query.bounded([query.arrived(part).sort(PERSON, *query.order)])

    def send(errand: Errand) -> bytes:
        def done() -> bytes:
            pieces = (piece for part in waiting for piece in opened(part.compute()))
            return errand(rows for rows, _ in arrays.made("dask", pieces))

        answer: bytes = dask.delayed(done, pure=False)().compute()
        return answer

    yield send


def dask_frames(frames: Sequence[tuple[Source, Sequence[str]]]) -> Callable[[Errand], bytes]:
    """Let one worker read some columns of frames, and do work on them there: it gets a frame of pandas for each."""
    import dask

    chosen = [source.frame.to_native()[list(names)] for source, names in frames]

    def send(errand: Errand) -> bytes:
        def done() -> bytes:
            return errand([one.compute() for one in chosen])

        answer: bytes = dask.delayed(done, pure=False)().compute()
        return answer

    return send


@contextmanager
def dask_together(
    gathering: Gathering, sources: Mapping[str, Source], *, once: bool
) -> Iterator[Callable[[Find], NDArray[np.int64]]]:
    """Bring the rows of linked tables together on the workers, person by person, as Spark's do; also those from here.

    Unless sums are asked for ``once``, packed rows stay with the workers.
    """
    import dask
    import dask.dataframe as dd
    import polars as pl

    types = gathering.types()

    def packed(part: Any, table: str) -> Any:
        return _as_pandas(pl.concat(gathering.travelling(Source.partition(part), table)))

    def opened(source: Source, table: str) -> Any:
        if source.engine != "dask":
            return dd.from_pandas(_as_pandas(gathering.sent(source, table)), npartitions=1, sort=False)
        meta = _as_pandas(pl.DataFrame(schema=types))
        return source.frame.to_native()[gathering.stored(table)].map_partitions(packed, table, meta=meta)

    tables = [opened(source, name) for name, source in sources.items()]
    parts = dd.concat(tables).shuffle(on=PERSON_NUMBER).to_delayed()
    if not once:
        parts = dask.persist(*parts)

    def summed(find: Find) -> NDArray[np.int64]:
        def added(part: Any) -> NDArray[np.int64]:
            with PersonParts([pl.from_pandas(part).select(*types).cast(types)]) as rows:
                return gathering.summed(find, rows)

        return sum(dask.compute(*map(dask.delayed(added), parts)), start=gathering.summed(find, ()))

    yield summed


def _on_a_cluster() -> bool:
    """Return whether workers are processes of a cluster; else they are threads of this one, and share its memory."""
    try:
        from distributed import get_client

        get_client()
    except (ImportError, ValueError):
        return False
    return True


def _as_pandas(rows: pl.DataFrame) -> Any:
    return rows.to_pandas(use_pyarrow_extension_array=True)
