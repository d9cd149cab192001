"""Rows as a schema sees them, read once from any engine: cells, numbers within their bounds, and whose they are.

Every question about a table goes through :meth:`Query.pieces`: the engine hands over a few columns, encoded, some rows
at a time, and no more than a few pieces are held in memory. For the person unit rows then pass through
:mod:`escudo.table._contributions`. Where an engine has workers (Dask, Spark), the same steps run there, on the parts
that they hold. A database behind Ibis bounds contributions by itself: its rows would have to travel first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo.errors import SchemaError
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._contributions import Packing, bounded
from escudo.table._encode import clipped, guarded, number, reader_of, sortable
from escudo.table._frames import Source, shielded, stored_names, stream
from escudo.table._persons import PERSON, PERSON_NUMBER, person_columns, person_keys, with_text_number
from escudo.table._schema import Schema

if TYPE_CHECKING:
    import polars as pl

ROWS_AT_ONCE = 2**17
"""How many rows are read together: smaller pieces cost more to set up than to read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a table.

    Attributes:
        cells: The cell of each row, by column.
        numbers: The values of numeric columns within their bounds, NaN where missing; empty if not asked for.
        whose: A public hash of whose row it is; zeros for the row unit.
    """

    cells: dict[str, NDArray[Any]]
    numbers: dict[str, NDArray[np.float64]]
    whose: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Piece({len(self.whose)} rows)"


@dataclass(frozen=True)
class Query:
    """What is asked of a table's rows: some columns, encoded, and at most ``max_rows_per_person`` rows of each person.

    Names in a query are plain ones of our own: a person id called "n", or a column with quotes in its name, cannot get
    in the way.

    Attributes:
        schema: The table's schema.
        wanted: The columns that are asked for.
        values: Whether the values of the numeric ones among them are asked for, too.
        seed: The public seed of the sample of a person's rows.
    """

    schema: Schema
    wanted: tuple[str, ...]
    values: bool = False
    seed: int = 0

    @cached_property
    def codes(self) -> dict[str, str]:
        """Under which name each column's cells go.

        For the person unit every column takes part, whichever are wanted: which rows of a person are kept is then the
        same in every query, so tables that share columns agree. Where none is wanted, nothing but people is asked for.
        """
        names = self.wanted
        if self.schema.person_id is not None and self.wanted:
            self.schema.shape()  # refuses columns whose levels or bounds are still to be learnt
            names = self.schema.names
        return {name: f"c{position}" for position, name in enumerate(names)}

    @cached_property
    def numbers(self) -> dict[str, str]:
        """Under which name each numeric column's values go, as float64 within its bounds; empty if not asked for."""
        numeric = [name for name in self.codes if isinstance(self.schema[name], Numeric)] if self.values else []
        return {name: self.codes[name].replace("c", "v") for name in numeric}

    @cached_property
    def packing(self) -> Packing:
        """How rows of people travel."""
        return Packing.of([self.schema[name] for name in self.codes])

    @cached_property
    def order(self) -> list[str]:
        """What puts a person's packed rows in order: values last, so the sample is the same with and without them."""
        return [*self.packing.names, *self.numbers.values()]

    @cached_property
    def _readers(self) -> dict[str, Callable[[pl.Series], NDArray[Any]]]:
        return {name: reader_of(self.schema[name]) for name in self.codes}

    def __getstate__(self) -> tuple[Any, ...]:  # workers find what is cached by themselves
        return self.schema, self.wanted, self.values, self.seed

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(("schema", "wanted", "values", "seed"), state, strict=True):
            object.__setattr__(self, name, value)

    def pieces(self, source: Source, size: int = ROWS_AT_ONCE) -> Iterator[Piece]:
        """Yield the rows that count, in one pass over the table; pieces may be smaller or larger than ``size``."""
        if source.engine == "dask":
            parts, opened = self.dask_parts(source)
            for part in parts:
                yield from opened(part.compute())
        elif source.engine == "pyspark":
            from escudo.table._spark import spark_pieces

            yield from spark_pieces(self, source)
        elif source.frame.implementation.is_ibis():
            yield from map(self.piece, stream(self.in_database(source), size))
        elif self.schema.person_id is None:
            for part in source.slices(size):
                yield from map(self.piece, stream(self.encoded(part), size))
        else:
            yield from self.bounded(self.packed(source, size))

    def encoded(self, source: Source) -> nw.LazyFrame[Any]:
        """Return the query for all rows, encoded, each with its person's key and hash."""
        schema = self.schema
        columns: dict[str, Column | None] = {name: schema[name] for name in self.codes}
        if schema.person_id is not None:
            columns[schema.person_id] = None
        raw = source.lazy(columns, schema.columns)
        dtypes = raw.collect_schema()
        encoded = [
            self._in_engine(schema[name], dtypes[name], raw.implementation).alias(code)
            for name, code in self.codes.items()
        ]
        for name, place in self.numbers.items():
            column = schema[name]
            assert isinstance(column, Numeric)
            encoded.append(clipped(column, dtypes[name]).alias(place))
        if schema.person_id is None:
            return raw.select(*encoded)
        person = person_columns(schema.person_id, dtypes[schema.person_id], seed=self.seed)
        return with_text_number(raw.select(*encoded, *person), seed=self.seed)

    def _in_engine(self, column: Column, dtype: Any, engine: nw.Implementation) -> nw.Expr:
        """Return what the engine computes for a column; :func:`~escudo.table._encode.reader_of` does the rest."""
        if engine.is_ibis() and self.schema.person_id is not None:
            return sortable(column, dtype)
        if isinstance(column, Numeric) and (engine.is_duckdb() or (engine.is_polars() and column.edges is not None)):
            # The expression of a bin would repeat itself many times over in SQL; one of bins with edges of
            # their own has a term for each, and takes longer to be put together than thousands of rows to be read.
            return number(column.name, dtype)
        return guarded(column, dtype)

    def piece(self, frame: pl.DataFrame) -> Piece:
        """Return rows that an engine has encoded as arrays."""
        cells = {name: self._readers[name](frame[self.codes[name]]) for name in self.wanted}
        persons = PERSON_NUMBER in frame.columns
        whose = frame[PERSON_NUMBER].to_numpy() if persons else np.zeros(frame.height, dtype=np.int64)
        return Piece(cells, self._numbers(frame), whose)

    def _numbers(self, frame: pl.DataFrame) -> dict[str, NDArray[np.float64]]:
        return {
            name: frame[self.numbers[name]].cast(float).fill_null(np.nan).to_numpy()
            for name in self.wanted
            if name in self.numbers
        }

    # ---- people

    def packed(self, source: Source, size: int = ROWS_AT_ONCE) -> Iterator[pl.DataFrame]:
        """Yield all rows of people, packed."""
        import polars as pl

        for frame in stream(self.encoded(source), size):
            cells = {name: self._readers[name](frame[code]) for name, code in self.codes.items()}
            words = (pl.Series(name, word) for name, word in self.packing.packed(cells).items())
            yield frame.select(PERSON, pl.col(PERSON_NUMBER).cast(pl.Int64), *self.numbers.values()).with_columns(words)

    def bounded(self, packed: Iterable[pl.DataFrame]) -> Iterator[Piece]:
        """Yield the rows that count, of all packed rows."""
        most = self.schema.max_rows_per_person
        assert most is not None
        for rows in bounded(packed, self.order, most):
            for start in range(0, rows.height, ROWS_AT_ONCE):
                part = rows[start : start + ROWS_AT_ONCE]
                cells = self.packing.cells(part, self.wanted)
                yield Piece(cells, self._numbers(part), part[PERSON_NUMBER].to_numpy())

    def in_database(self, source: Source) -> nw.LazyFrame[Any]:
        """Return the query for the rows that count, for a database that bounds contributions by itself."""
        frame = self.encoded(source)
        most = self.schema.max_rows_per_person
        if most is None:
            return frame
        words, texts = self._words()
        order = [*words, *texts, *self.numbers.values()]
        k, rows = min(most, 2**30), nw.col("rows_of_person")  # products stay within 64 bits
        place = (nw.col("row_of_person") - 1) * k + nw.col(PERSON_NUMBER) % rows
        return (
            (frame.with_columns(**words) if words else frame)
            .filter(~nw.col(PERSON).is_null())
            .with_columns(
                nw.col(PERSON).cum_count().over(PERSON, order_by=order).cast(nw.Int64).alias("row_of_person"),
                nw.col(PERSON).count().over(PERSON).cast(nw.Int64).alias("rows_of_person"),
            )
            .filter((rows <= k) | (place % rows >= rows - k))
            .select(*self.codes.values(), *self.numbers.values(), PERSON_NUMBER)
        )

    def _words(self) -> tuple[dict[str, nw.Expr], list[str]]:
        """Pack the encoded columns that hold whole numbers into few words, as :class:`Packing` orders them.

        Returns:
            The words by name, and the columns of text, which are left as they are.
        """
        words: list[nw.Expr] = []
        texts: list[str] = []
        room = 0
        for name, code in self.codes.items():
            column = self.schema[name]
            if column.kind == "string":
                texts.append(code)
                continue
            levels = column.levels if isinstance(column, Categorical) else (0, column.size)
            low, high = int(min(levels)), int(max(levels)) + 1  # one beyond the levels stands for missing
            digit = nw.col(code).fill_null(high).cast(nw.Int64) - low
            radix = high - low + 1
            if radix <= room:
                words[-1] = words[-1] * radix + digit
                room //= radix
            else:
                words.append(digit)
                room = 2**62 // radix
        return {f"w{position}": word for position, word in enumerate(words)}, texts

    # ---- Dask

    def dask_parts(self, source: Source) -> tuple[list[Any], Callable[[Any], Iterator[Piece]]]:
        """Return the parts of a Dask frame, not computed yet, and how to read one of them on its worker.

        For the person unit all rows of a person are in one part: each partition is packed where it is, and the rows
        are then brought together by the hash of the person's key. What travels has the types that the schema says,
        whatever the partitions hold.
        """
        if self.schema.person_id is None:
            parts = source.frame.to_native()[stored_names(self.schema, self.codes)].to_delayed()
            return list(parts), lambda part: self.pieces(Source.partition(part))
        return self.together(source), lambda part: self.bounded([self.arrived(part)])

    def together(self, source: Source) -> list[Any]:
        """Pack each partition of a Dask frame where it is, and bring the rows of each person together."""
        import polars as pl

        types = self._travelling()

        def keyed(rows: pl.DataFrame) -> pl.DataFrame:  # partitions may hold ids of different types
            rows = rows.filter(pl.col(PERSON).is_not_null())
            keys = rows[PERSON] if rows[PERSON].dtype == pl.String else person_keys(PERSON, rows[PERSON])
            return rows.with_columns(keys).cast(types).select(*types)

        def packed(part: Any) -> Any:
            rows = pl.concat([pl.DataFrame(schema=types), *map(keyed, self.packed(Source.partition(part)))])
            return rows.to_pandas(use_pyarrow_extension_array=True)

        person = () if self.schema.person_id is None else (self.schema.person_id,)
        columns = [*stored_names(self.schema, self.codes), *person]
        empty = pl.DataFrame(schema=types).to_pandas(use_pyarrow_extension_array=True)
        rows = source.frame.to_native()[columns].map_partitions(packed, meta=empty)
        return list(rows.shuffle(on=PERSON_NUMBER).to_delayed())

    def arrived(self, part: Any) -> pl.DataFrame:
        """Open a part of the rows that :meth:`together` brought together, on its worker."""
        import polars as pl

        types = self._travelling()
        return pl.from_pandas(part).select(*types).cast(types)

    def _travelling(self) -> pl.Schema:
        import polars as pl

        words = dict.fromkeys(self.packing.names, pl.Int64)
        values = dict.fromkeys(self.numbers.values(), pl.Float64)
        return pl.Schema({PERSON: pl.String, PERSON_NUMBER: pl.Int64, **values, **words})


# ---- rows in batches

Encoding = Literal["codes", "scaled", "shares"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
_Pair = tuple[NDArray[Any], NDArray[np.int64]]
AddUp = Callable[[Iterator[NDArray[Any]]], NDArray[np.int64]]
"""What makes whole numbers of some batches of rows; those of all rows are the sums of those of any parts of them."""


class Placed(NamedTuple):
    """Rows with where they belong.

    Attributes:
        group: The group of each row.
        rank: Its place among the rows of the group; rows of the same rank are put in order by their values.
        rows: The rows, of shape (rows, columns).
    """

    group: NDArray[np.int64]
    rank: NDArray[np.uint64]
    rows: NDArray[np.float64]


class Grouping(Protocol):
    """A public rule that brings rows together in groups, and what is found in each group, by its rows alone."""

    @property
    def by_position(self) -> bool:
        """Whether the rule asks for the position of a row in the table."""
        ...

    def placed(self, batches: Iterable[tuple[NDArray[Any], NDArray[np.int64], int]]) -> Iterator[Placed]:
        """Yield the rows of batches that take part; with each batch comes whose rows they are, and where it starts."""
        ...

    def first(self, several: Sequence[Placed]) -> Placed:
        """Return the rows that a group has room for, in order: the same of all rows as of those of any parts."""
        ...

    def found(self, placed: Placed) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return groups, all of whose rows these are, and what is found in each, one row of whole numbers a group."""
        ...


@dataclass(frozen=True)
class Arrays:
    """How rows come as arrays of ``size`` rows, the last one shorter.

    Args:
        query: What is asked of the rows.
        size: Rows of an array.
        encode: How values come.

    Raises:
        SchemaError: If a column that has no scale is to be put on one.
    """

    query: Query
    size: int
    encode: Encoding

    @classmethod
    def of(cls, schema: Schema, names: Sequence[str], *, size: int, encode: Encoding, seed: int) -> Arrays:
        """Return them for some columns of a schema."""
        for name in names:
            _scalable(schema[name], encode)
        return cls(Query(schema, tuple(names), encode != "codes", seed), size, encode)

    @property
    def none(self) -> NDArray[Any]:
        """No rows, in the type and with the columns that all arrays have."""
        columns = [self.query.schema[name] for name in self.query.wanted]
        return np.empty((0, len(columns)), _type_of_codes(columns) if self.encode == "codes" else np.float64)

    def read(self, source: Source) -> Iterator[_Pair]:
        """Return an iterator over the arrays, each with a public hash of whose row each one is; zeros for rows."""
        return self.made(source.engine, self.query.pieces(source, max(self.size, ROWS_AT_ONCE)))

    def made(self, engine: str, pieces: Iterable[Piece]) -> Iterator[_Pair]:
        """Return the arrays of some pieces."""
        columns = [self.query.schema[name] for name in self.query.wanted]
        read = _codes(columns) if self.encode == "codes" else _scaled_numbers(columns, self.encode)
        return _rebatched(engine, ((read(piece), piece.whose) for piece in pieces), self.size)

    def summed(self, source: Source, add_up: AddUp) -> NDArray[np.int64]:
        """Return what ``add_up`` makes of all rows; where the frame has workers, they add up their parts."""
        if source.engine == "pyspark":
            from escudo.table._spark import spark_sums

            return spark_sums(self, source, add_up)
        if source.engine == "dask":
            import dask

            waiting, opened = self.query.dask_parts(source)

            def added(part: Any) -> NDArray[np.int64]:
                return add_up(rows for rows, _ in self.made("dask", opened(part)))

            none = add_up(iter(()))
            return sum(dask.compute(*map(dask.delayed(added), waiting)), start=none)
        return add_up(rows for rows, _ in self.read(source))


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


def _type_of_codes(columns: Sequence[Column]) -> np.dtype[Any]:
    return np.min_scalar_type(max(column.size for column in columns) - 1)


def _codes(columns: Sequence[Column]) -> Callable[[Piece], NDArray[Any]]:
    dtype = _type_of_codes(columns)

    def read(piece: Piece) -> NDArray[Any]:
        array = np.empty((len(piece.whose), len(columns)), dtype=dtype)
        for position, column in enumerate(columns):
            array[:, position] = piece.cells[column.name]
        return array

    return read


def _scaled_numbers(columns: Sequence[Column], encode: Encoding) -> Callable[[Piece], NDArray[Any]]:
    """Return how to read columns as shares of the way from the lowest value to the highest, or from -1 to 1."""

    def share(column: Column, piece: Piece) -> NDArray[np.float64]:
        if isinstance(column, Categorical):
            codes = piece.cells[column.name].astype(np.int64)
            return np.where(codes < len(column.levels), codes / max(len(column.levels) - 1, 1), np.nan)
        lower, upper = column.bounds
        shares: NDArray[np.float64] = (piece.numbers[column.name] - lower) / (upper - lower)
        return shares

    def read(piece: Piece) -> NDArray[Any]:
        shares = np.column_stack([share(column, piece) for column in columns])
        if encode == "shares":
            return np.clip(shares, 0.0, 1.0)
        scaled: NDArray[Any] = np.clip(2.0 * shares - 1.0, -1.0, 1.0)
        return scaled

    return read


def _rebatched(engine: str, pieces: Iterator[_Pair], size: int) -> Iterator[_Pair]:
    waiting: list[_Pair] = []
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
