"""Rows as small arrays, one batch at a time, without ever holding the whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from escudo.errors import SchemaError
from escudo.table._columns import Categorical, Column
from escudo.table._encode import cells_of
from escudo.table._engines import shielded, stream
from escudo.table._persons import PERSON_NUMBER
from escudo.table._rows import Rows, dask_rows, encoded_rows
from escudo.table._schema import Schema
from escudo.table._source import Source

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ENCODINGS", "Encoding", "array_batches"]

Encoding = Literal["codes", "scaled", "shares"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
_ROWS_AT_ONCE = 65_536  # smaller slices of a frame in memory cost more to set up than to read


def array_batches(
    source: Source, schema: Schema, names: Sequence[str], *, size: int, encode: Encoding, seed: int
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Return an iterator over the rows as arrays of ``size`` rows, the last one shorter.

    With each array comes a public hash of whose row each one is; zeros for the row unit.

    Raises:
        SchemaError: If a column that has no scale is to be put on one.
    """
    columns = [_scalable(schema[name], encode) for name in names]
    read = _codes(columns) if encode == "codes" else _numbers(columns, encode)
    persons = [] if schema.person_id is None else [PERSON_NUMBER]

    def pieces(rows: Rows) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        places = rows.codes | rows.values
        for piece in stream(rows.frame.select(*(places[name] for name in names), *persons), size):
            whose = piece[PERSON_NUMBER].to_numpy() if persons else np.zeros(piece.height, dtype=np.int64)
            yield read(piece), whose

    parts = _parts(source, schema, names, size=size, seed=seed, values=encode != "codes")
    return _rebatched(source.engine, (piece for part in parts for piece in pieces(part)), size)


def _parts(
    source: Source, schema: Schema, names: Sequence[str], *, size: int, seed: int, values: bool
) -> Iterator[Rows]:
    """Yield parts of the rows that can be read one after the other, all rows of a person in one of them."""
    if source.engine == "dask":
        parts, opened = dask_rows(source, schema, names, seed=seed, values=values)
        yield from (opened(part.compute()) for part in parts)
        return
    whole = schema.person_id is not None
    for part in [source] if whole else source.slices(max(size, _ROWS_AT_ONCE)):
        yield encoded_rows(part, schema, names, seed=seed, values=values)


def _scalable(column: Column, encode: Encoding) -> Column:
    if isinstance(column, Categorical) and encode != "codes":
        ordered = column.ordered or len(column.levels) <= 2
        if encode == "scaled" or not ordered:
            kind, instead = (
                ("categorical", "'shares' or 'codes'") if ordered else ("categorical without an order", "'codes'")
            )
            raise SchemaError(
                f"column {column.name!r} is {kind} and has no scale; ask for encode={instead}, or leave it out."
            )
    return column


def _codes(columns: Sequence[Column]) -> Callable[[pl.DataFrame], NDArray[Any]]:
    dtype = np.min_scalar_type(max(column.size for column in columns) - 1)

    def read(piece: pl.DataFrame) -> NDArray[Any]:
        array = np.empty((piece.height, len(columns)), dtype=dtype)
        for position, column in enumerate(columns):
            array[:, position] = cells_of(column, piece.to_series(position))
        return array

    return read


def _numbers(columns: Sequence[Column], encode: Encoding) -> Callable[[pl.DataFrame], NDArray[Any]]:
    """Return how to read columns as shares of the way from the lowest value to the highest, or from -1 to 1."""

    def share(column: Column, values: pl.Series) -> NDArray[np.float64]:
        if isinstance(column, Categorical):
            codes = cells_of(column, values)
            return np.where(codes < len(column.levels), codes / max(len(column.levels) - 1, 1), np.nan)
        lower, upper = column.bounds
        shares: NDArray[np.float64] = (values.cast(float).fill_null(np.nan).to_numpy() - lower) / (upper - lower)
        return shares

    def read(piece: pl.DataFrame) -> NDArray[Any]:
        shares = np.column_stack([share(column, piece.to_series(i)) for i, column in enumerate(columns)])
        if encode == "shares":
            return np.clip(shares, 0.0, 1.0)
        scaled: NDArray[Any] = np.clip(2.0 * shares - 1.0, -1.0, 1.0)
        return scaled

    return read


def _rebatched(
    engine: str, pieces: Iterator[tuple[NDArray[Any], NDArray[np.int64]]], size: int
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    waiting: list[tuple[NDArray[Any], NDArray[np.int64]]] = []
    count = 0
    while (piece := shielded(engine, "reading batches", lambda: next(pieces, None))) is not None:
        waiting.append(piece)
        count += len(piece[0])
        if count >= size:
            rows, whose = map(np.concatenate, zip(*waiting, strict=True))
            whole = count - count % size
            for start in range(0, whole, size):
                yield rows[start : start + size], whose[start : start + size]
            waiting, count = [(rows[whole:], whose[whole:])], count - whole
    if count:
        rows, whose = map(np.concatenate, zip(*waiting, strict=True))
        yield rows, whose
