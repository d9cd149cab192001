"""What a table is asked for: contingency tables by few group-bys, and rows in batches, never the whole table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError, SchemaError
from escudo.table._columns import Categorical, Column
from escudo.table._encode import cells_of
from escudo.table._frames import Source, collect, groups, shielded, stream
from escudo.table._persons import PERSON, PERSON_NUMBER, person_columns
from escudo.table._rows import Query, Rows, dask_people
from escudo.table._schema import Schema

if TYPE_CHECKING:
    import polars as pl

MAX_TABLE_CELLS = 2**27
"""The most cells one dense table may have (1 GiB of counts)."""


# Up to this many cells, one group-by for several tables is cheaper than one for each (benchmarks/counts.py). DuckDB
# does better: it counts small tables in plain arrays, and all of them in one pass.
_SHARED_CELLS = 2**14


Columns: TypeAlias = tuple[str, ...]
Cells: TypeAlias = NDArray[np.int64]
_Found: TypeAlias = tuple[Cells, Cells]


def requested_tables(schema: Schema, columns: object) -> tuple[list[Columns], bool]:
    """Return the tables that are asked for, and whether they are one table rather than a list of them.

    Raises:
        InputError: If no column is named, one is named twice in a table, or a table would have too many cells.
        SchemaError: If the schema does not have a named column.
    """
    listed = [columns] if isinstance(columns, str) else _listed(columns)
    single = all(isinstance(name, str) for name in listed)
    tables: list[Columns] = [
        (table,) if isinstance(table, str) else tuple(_listed(table)) for table in ([listed] if single else listed)
    ]
    for table in tables:
        _check_table(schema, table)
    return tables, single


def count_tables(source: Source, schema: Schema, tables: Sequence[Columns], *, seed: int) -> list[NDArray[np.int64]]:
    """Return the dense contingency table of each tuple of columns.

    Tables that together span few cells are counted by one group-by and then summed over the columns they lack: which
    ones depends on the schema alone.

    Args:
        source: The frame.
        schema: Its schema.
        tables: Tuples of distinct columns of the schema.
        seed: The public seed of the sample of a person's rows.
    """
    shared = _shared(schema, tables, most_cells=0 if source.engine == "duckdb" else _SHARED_CELLS)
    spans = list(dict.fromkeys(shared))
    named = [name for name in schema.names if any(name in span for span in spans)]
    query = Query.of(schema, named, seed)
    if source.engine == "dask":
        import dask

        waiting, opened = query.dask_rows(source)

        def counted(part: Any) -> list[_Found]:
            return _grouped(opened(part), schema, spans)

        parts = list(dask.compute(*map(dask.delayed(counted), waiting)))
    else:
        parts = [_grouped(query.rows(source), schema, spans)]
    dense = {}
    for position, span in enumerate(spans):
        table = np.zeros(schema.shape(span), dtype=np.int64)
        for part in parts:
            np.add.at(table.reshape(-1), *part[position])
        dense[span] = table
    return [_marginal(dense[span], span, table) for span, table in zip(shared, tables, strict=True)]


def count_records(source: Source, schema: Schema) -> int:
    """Return how many rows there are, or how many different people."""
    if schema.person_id is not None and source.engine == "dask":
        import dask

        return sum(dask.compute(*dask_people(source, schema)))
    if schema.person_id is not None:
        raw = source.lazy({schema.person_id: None})
        person, *_ = person_columns(schema.person_id, raw.collect_schema()[schema.person_id], seed=0)
        people = raw.select(person).filter(~nw.col(PERSON).is_null()).unique()
        return int(collect(people.select(nw.len().alias("n"))).item())
    frame = source.frame
    return len(frame) if isinstance(frame, nw.DataFrame) else int(collect(frame.select(nw.len().alias("n"))).item())


def count_values(source: Source, name: str) -> list[tuple[Any, int]]:
    """Return the values of a column as they are stored, null left out, and how many rows have each."""
    if source.engine == "dask":
        import dask

        def counted(part: Any) -> list[tuple[Any, int]]:
            return count_values(Source.partition(part), name)

        parts = source.frame.to_native()[[name]].to_delayed()
        total: dict[Any, int] = {}
        for value, count in (pair for part in dask.compute(*map(dask.delayed(counted), parts)) for pair in part):
            total[value] = total.get(value, 0) + count
        return list(total.items())
    raw, rows = source.lazy({name: Categorical(name, confirmed=False)}), f"rows of {name}"
    found = collect(raw.group_by(name).agg(nw.len().alias(rows)).drop_nulls(name))
    return list(zip(found[name].to_list(), map(int, found[rows].to_list()), strict=True))


def _grouped(rows: Rows, schema: Schema, spans: Sequence[Columns]) -> list[_Found]:
    """Return, for each tuple of columns, the cells that occur and how many rows fall into them; cells may repeat."""
    found = groups(rows.frame, [[rows.codes[name] for name in span] for span in spans])
    return [
        (_cells(schema, span, result, rows.codes), _numbers(result)) for span, result in zip(spans, found, strict=True)
    ]


def _cells(schema: Schema, span: Columns, found: pl.DataFrame, codes: Mapping[str, str]) -> Cells:
    cells = [cells_of(schema[name], found[codes[name]]) for name in span]
    return np.ravel_multi_index(cells, schema.shape(span)).astype(np.int64)


def _numbers(found: pl.DataFrame) -> Cells:
    return found["n"].to_numpy().astype(np.int64)


def _listed(columns: object) -> list[Any]:
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InputError(
            "columns must be a column's name, a sequence of names for one table, or a list of such sequences for "
            f"several; got {type(columns).__name__}."
        )
    return list(columns)


def _check_table(schema: Schema, table: Columns) -> None:
    if not table:
        raise InputError("columns must name at least one column of the schema.")
    for name in table:
        if not isinstance(name, str):
            raise InputError(f"columns must be names; got {type(name).__name__}.")
        if name == schema.person_id:
            raise SchemaError(f"column {name!r} is the person id and is never counted; choose other columns.")
    shape = schema.shape(table)
    if len(set(table)) < len(table):
        raise InputError(f"columns names {_repeated(table)!r} twice in one table; name it once.")
    if math.prod(shape) > MAX_TABLE_CELLS:
        sizes = ", ".join(f"{name!r}: {size:,}" for name, size in zip(table, shape, strict=True))
        raise InputError(
            f"the table of {len(table)} columns would have {math.prod(shape):,} cells, more than "
            f"{MAX_TABLE_CELLS:,} ({sizes}); take fewer columns, or fewer levels or bins."
        )


def _repeated(table: Columns) -> str:
    return next(name for position, name in enumerate(table) if name in table[:position])


def _shared(schema: Schema, tables: Sequence[Columns], *, most_cells: int) -> list[Columns]:
    """Return for each table the columns to group by: its own, or those of several tables together (first fit)."""
    bit = {name: 1 << position for position, name in enumerate(schema.names)}
    size = {name: schema[name].size for table in tables for name in table}
    spans: list[tuple[int, int]] = []  # the columns as bits, and the cells they span
    home: list[int] = []
    for table in tables:
        wanted = sum(bit[name] for name in table)
        for position, (span, cells) in enumerate(spans):
            joined = cells * math.prod(size[name] for name in table if not bit[name] & span)
            if wanted & ~span == 0 or joined <= most_cells:
                spans[position] = (span | wanted, joined)
                home.append(position)
                break
        else:
            spans.append((wanted, math.prod(size[name] for name in table)))
            home.append(len(spans) - 1)
    return [tuple(name for name in schema.names if bit[name] & spans[position][0]) for position in home]


def _marginal(dense: NDArray[np.int64], span: Columns, table: Columns) -> NDArray[np.int64]:
    summed = dense.sum(axis=tuple(axis for axis, name in enumerate(span) if name not in table))
    left = [name for name in span if name in table]
    return np.ascontiguousarray(np.transpose(summed, [left.index(name) for name in table]))


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
    read = _codes(columns) if encode == "codes" else _scaled_numbers(columns, encode)
    persons = [] if schema.person_id is None else [PERSON_NUMBER]

    def pieces(rows: Rows) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        places = rows.codes | rows.values
        for piece in stream(rows.frame.select(*(places[name] for name in names), *persons), size):
            whose = piece[PERSON_NUMBER].to_numpy() if persons else np.zeros(piece.height, dtype=np.int64)
            yield read(piece), whose

    parts = _parts(source, Query.of(schema, names, seed, values=encode != "codes"), size)
    return _rebatched(source.engine, (piece for part in parts for piece in pieces(part)), size)


def _parts(source: Source, query: Query, size: int) -> Iterator[Rows]:
    """Yield parts of the rows that can be read one after the other, all rows of a person in one of them."""
    if source.engine == "dask":
        parts, opened = query.dask_rows(source)
        yield from (opened(part.compute()) for part in parts)
        return
    whole = query.schema.person_id is not None
    for part in [source] if whole else source.slices(max(size, _ROWS_AT_ONCE)):
        yield query.rows(part)


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


def _scaled_numbers(columns: Sequence[Column], encode: Encoding) -> Callable[[pl.DataFrame], NDArray[Any]]:
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
