"""Columns of a private table as numbers in [0, 1], read in its own engine, one batch at a time.

This goes beside :meth:`PrivateTable.batches` in two ways: numeric and ordered columns come side by side in one pass,
and for the person unit a public hash of the person id comes with each row, so that all rows of a person can be sent to
one block. A person's rows are bounded as everywhere (``table/_contributions.py``); rows without a person id take no
part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo.errors import SchemaError
from escudo.privacy import Relation
from escudo.table import Categorical, Column, Numeric, PrivateTable, Schema
from escudo.table._contributions import PERSON, bound_contributions, person_columns, with_text_number
from escudo.table._encode import cells_of, clipped, sortable
from escudo.table._engines import collect, shielded, stream
from escudo.table._source import Source

if TYPE_CHECKING:
    import polars as pl

__all__ = ["BATCH_ROWS", "Batch", "batches_of", "public_rows", "scored_column"]

BATCH_ROWS = 65_536
_NUMBER = "person_number"


class Batch(NamedTuple):
    """Some rows, in the table's order.

    Attributes:
        values: Shape (rows, columns), in [0, 1]; NaN where missing.
        person: For the person unit, a public hash of whose row it is, shape (rows,); else None.
    """

    values: NDArray[np.float64]
    person: NDArray[np.int64] | None


def scored_column(schema: Schema, name: str, *, fewest: int = 2) -> Column:
    """Return a column whose values have an order, and so can be put on a scale.

    Args:
        schema: The table's schema.
        name: The column's name.
        fewest: How many different values the column must be able to take.

    Raises:
        SchemaError: If there is no such column, it is categorical without an order, or its public values are too few.
    """
    column = schema[name]
    if isinstance(column, Categorical):
        values = float(len(column.levels))
        if values > 2 and not column.ordered:
            raise SchemaError(
                f"column {name!r} is categorical without an order, so it has no scale on which a direction could show; "
                "state that its levels are ordered in the schema if they are, or choose another column."
            )
    else:
        lower, upper = column.bounds
        values = upper - lower + 1 if column.integer else math.inf
    if values < fewest:
        raise SchemaError(
            f"column {name!r} can take {values:g} different values only, and at least {fewest} are needed to see a "
            "direction; choose a finer column."
        )
    return column


def public_rows(table: PrivateTable, relation: Relation) -> int | None:
    """Return how many rows (people, for the person unit) the table has where neighbours share it, else None.

    Replacing one row leaves the number of rows as it was, replacing one person the number of people: under
    ``replace_one`` these are public. Adding or removing one changes them: they are private, and not counted.
    """
    if relation != "replace_one":
        return None
    source: Source = table._source
    person = table.schema.person_id

    def counted() -> int:
        if person is None:
            frame = source.frame
            return len(frame) if isinstance(frame, nw.DataFrame) else _number(frame.select(nw.len().alias("n")))
        people = source.lazy({person: None}).filter(~nw.col(person).is_null()).unique()
        return _number(people.select(nw.len().alias("n")))

    return shielded(source.engine, "counting its rows", counted)


def _number(query: nw.LazyFrame[Any]) -> int:
    return int(collect(query).item())


def batches_of(table: PrivateTable, names: Sequence[str], size: int = BATCH_ROWS) -> Iterator[Batch]:
    """Yield the named columns in the table's order, without holding all rows; batches have about ``size`` rows."""
    schema: Schema = table.schema
    columns = [scored_column(schema, name) for name in names]
    source: Source = table._source
    seed: int = table._sample_seed

    def pieces() -> Iterator[Batch]:
        for part in _parts(source, schema, names, size):
            for piece in stream(_query(part, schema, columns, seed), size):
                yield _read(piece, columns, person=schema.person_id is not None)

    running = pieces()
    while (batch := shielded(source.engine, "reading batches", lambda: next(running, None))) is not None:
        yield batch


def _parts(source: Source, schema: Schema, names: Sequence[str], size: int) -> Iterator[Source]:
    """Yield parts of the table that can be read one after the other, all rows of a person in one of them."""
    if source.engine == "dask":
        needed: dict[str, Column | None] = {name: schema[name] for name in names}
        if schema.person_id is not None:
            needed[schema.person_id] = None
        for part in source.partitions(needed, schema.person_id):
            yield Source.partition(part.compute())
    elif schema.person_id is None:
        yield from source.slices(max(size, BATCH_ROWS))
    else:
        yield source


def _query(source: Source, schema: Schema, columns: Sequence[Column], seed: int) -> nw.LazyFrame[Any]:
    """Return the query for the columns, under plain names of our own, and for the hash of the person."""
    needed: dict[str, Column | None] = {column.name: column for column in columns}
    if schema.person_id is not None:
        needed[schema.person_id] = None
    raw = source.lazy(needed)
    dtypes = raw.collect_schema()
    places = [f"v{position}" for position in range(len(columns))]
    encoded = [
        (clipped if isinstance(column, Numeric) else sortable)(column, dtypes[column.name]).alias(place)  # type: ignore[arg-type]
        for column, place in zip(columns, places, strict=True)
    ]
    if schema.person_id is None or schema.max_rows_per_person is None:
        return raw.select(*encoded)
    person = person_columns(schema.person_id, dtypes[schema.person_id], seed=seed)
    numbered = with_text_number(raw.select(*encoded, *person), seed=seed)
    bounded = bound_contributions(numbered, places, max_rows_per_person=schema.max_rows_per_person)
    return bounded.filter(~nw.col(PERSON).is_null()).select(*places, _NUMBER)


def _read(piece: pl.DataFrame, columns: Sequence[Column], *, person: bool) -> Batch:
    values = np.empty((piece.height, len(columns)))
    for position, column in enumerate(columns):
        series = piece.to_series(position)
        if isinstance(column, Numeric):
            lower, upper = column.bounds
            numbers = series.cast(float).fill_null(np.nan).to_numpy()
            values[:, position] = np.clip((numbers - lower) / (upper - lower), 0.0, 1.0)
        else:
            codes = cells_of(column, series)
            values[:, position] = np.where(codes < len(column.levels), codes / (len(column.levels) - 1), np.nan)
    return Batch(values, piece.to_series(len(columns)).to_numpy() if person else None)
