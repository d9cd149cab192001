"""Rows as small arrays, one batch at a time, without ever holding the whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from escudo.errors import SchemaError
from escudo.table._columns import Numeric
from escudo.table._encode import cells_of
from escudo.table._engines import shielded, stream
from escudo.table._rows import encoded_rows, needed_columns
from escudo.table._schema import Schema
from escudo.table._source import Source

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ENCODINGS", "Encoding", "array_batches"]

Encoding = Literal["codes", "scaled"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
_ROWS_AT_ONCE = 65_536  # smaller slices of a frame in memory cost more to set up than to read


def array_batches(
    source: Source, schema: Schema, names: Sequence[str], *, size: int, encode: Encoding, seed: int
) -> Iterator[NDArray[Any]]:
    """Return an iterator over the rows as arrays of ``size`` rows, the last one shorter.

    Raises:
        SchemaError: If a column that is no numeric one is to be scaled.
    """
    read = _codes(schema, names) if encode == "codes" else _scaled(schema, names)

    def pieces(source: Source) -> Iterator[NDArray[Any]]:
        rows = encoded_rows(source, schema, names, seed=seed, values=encode == "scaled")
        places = rows.codes if encode == "codes" else rows.values
        yield from map(read, stream(rows.frame.select(*(places[name] for name in names)), size))

    parts = _parts(source, schema, names, size)
    return _rebatched(source.engine, (piece for part in parts for piece in pieces(part)), size)


def _parts(source: Source, schema: Schema, names: Sequence[str], size: int) -> Iterator[Source]:
    """Yield parts of the table that can be read one after the other, all rows of a person in one of them."""
    if source.engine == "dask":
        for part in source.partitions(needed_columns(schema, names), schema.person_id):
            yield Source.partition(part.compute())
    elif schema.person_id is None:
        yield from source.slices(max(size, _ROWS_AT_ONCE))
    else:
        yield source


def _codes(schema: Schema, names: Sequence[str]) -> Callable[[pl.DataFrame], NDArray[Any]]:
    columns = [schema[name] for name in names]
    dtype = np.min_scalar_type(max(column.size for column in columns) - 1)

    def read(piece: pl.DataFrame) -> NDArray[Any]:
        array = np.empty((piece.height, len(columns)), dtype=dtype)
        for position, column in enumerate(columns):
            array[:, position] = cells_of(column, piece.to_series(position))
        return array

    return read


def _scaled(schema: Schema, names: Sequence[str]) -> Callable[[pl.DataFrame], NDArray[Any]]:
    for name in names:
        if not isinstance(schema[name], Numeric):
            raise SchemaError(
                f"column {name!r} is categorical and has no scale; ask for encode='codes', or leave it out."
            )
    bounds = [column.bounds for name in names if isinstance(column := schema[name], Numeric)]
    lower, upper = np.array(bounds).T

    def read(piece: pl.DataFrame) -> NDArray[Any]:
        values = np.column_stack(
            [piece.to_series(i).cast(float).fill_null(np.nan).to_numpy() for i in range(piece.width)]
        )
        share = (values - lower) / (upper - lower)
        scaled: NDArray[Any] = np.clip(2.0 * share - 1.0, -1.0, 1.0)
        return scaled

    return read


def _rebatched(engine: str, pieces: Iterator[NDArray[Any]], size: int) -> Iterator[NDArray[Any]]:
    waiting: list[NDArray[Any]] = []
    count = 0
    while (piece := shielded(engine, "reading batches", lambda: next(pieces, None))) is not None:
        waiting.append(piece)
        count += len(piece)
        if count >= size:
            joined = np.concatenate(waiting)
            whole = count - count % size
            yield from np.split(joined[:whole], whole // size)
            waiting, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(waiting)
