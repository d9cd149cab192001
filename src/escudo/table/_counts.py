r"""What a table is asked for: contingency tables by few group-bys, and rows in batches, never the whole table.

Rows are asked for as the schema sees them: encoded, and bounded per person, still inside the engine.

**What one person can change**: a bounded sample of each person's rows is kept. A person's rows are put in order of
their encoded content, :math:`i = 0, \dots, n - 1`. If :math:`n > k`, where :math:`k` is ``max_rows_per_person``, a
systematic sample is kept,

.. math:: \{\, i : (i k + u) \bmod n \ge n - k \,\}, \qquad u = \mathrm{hash}(\text{person, public seed}) \bmod n.

*It has exactly k rows*: :math:`i` is kept if and only if :math:`\lfloor ((i + 1) k + u) / n \rfloor` exceeds
:math:`\lfloor (i k + u) / n \rfloor`, and over all :math:`i` these steps add up to :math:`k`. *Each row is equally
likely*: for every :math:`i` exactly :math:`k` of the :math:`n` values of :math:`u` keep it.

*It depends on the person's own rows only.* Order, :math:`n` and :math:`u` are functions of the person's key and the
multiset of their encoded rows; rows that tie in the order are equal in all that is counted, so it does not matter
which of them an engine takes. Hence another person's rows never change what is kept of this one's, and one person
moves the counts of kept rows by their own at most :math:`k` rows: see :func:`count_sensitivity`. It rests on keys that
are one-to-one with people, which :mod:`escudo.table._persons` proves, and that are there before rows are parted.

Rows without a person id are left out. Nobody can say whose they are, so counting them, even as one more person, could
let somebody contribute more than :math:`k` rows. The same goes for ids that the table itself has merged with others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo._validate import positive_integer
from escudo.errors import InputError, SchemaError
from escudo.privacy import Relation, Unit, parse_relation, parse_unit
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._encode import cells_of, clipped, guarded, sortable
from escudo.table._frames import Source, collect, groups, shielded, stream
from escudo.table._persons import PERSON, PERSON_NUMBER, person_columns, person_keys, with_text_number
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


# ---- rows, encoded and bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSensitivity:
    """How far one row or person can move a set of count tables, taken together as one vector.

    Attributes:
        l1: Largest sum of absolute changes.
        l2: Largest Euclidean length of the change, rounded up.
        changed_cells: Largest number of cells that change, given only where each changes by one at most, as
            :class:`~escudo.privacy.GaussianEvent` wants it; None otherwise.
    """

    l1: float
    l2: float
    changed_cells: int | None


def count_sensitivity(
    tables: int = 1,
    *,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
) -> CountSensitivity:
    r"""Return how far one row or person can move ``tables`` contingency tables of the same rows.

    With :math:`T` tables and at most :math:`k` rows per person (:math:`k = 1` for the row unit):

    ============  ============  ======================  =======================
    relation      L1            L2                      changed cells (k = 1)
    ============  ============  ======================  =======================
    add_remove    :math:`kT`    :math:`k \sqrt{T}`      :math:`T`
    replace_one   :math:`2kT`   :math:`k \sqrt{2T}`     :math:`2T`
    ============  ============  ======================  =======================

    *Proof.* A table is the sum over kept rows of one indicator vector per row. Adding or removing a person adds or
    takes away at most :math:`k` indicators per table: non-negative entries of sum at most :math:`k`, hence L1 at most
    :math:`k` and L2 at most :math:`k`, both attained by :math:`k` equal rows. Replacing a person takes away one such
    vector :math:`a` and adds another, :math:`b`; as both are non-negative, :math:`\|a - b\|_1 \le 2k` and
    :math:`\|a - b\|_2^2 \le \|a\|_2^2 + \|b\|_2^2 \le 2k^2`, attained if all rows move from one cell to another.
    Over :math:`T` tables, L1 norms and squared L2 norms add up.

    Args:
        tables: How many tables are counted, each over all rows.
        relation: Which two tables are compared.
        unit: Whose data differs.
        max_rows_per_person: The most rows of one person that count, for the person unit.

    Guarantee:
        Sensitivities are exact and attained, for both relations, under :func:`bound_contributions`.

    >>> count_sensitivity(8)
    CountSensitivity(l1=16.0, l2=4.0, changed_cells=16)
    """
    count = positive_integer("tables", tables)
    parse_unit(unit, max_rows_per_person)
    rows = 1 if max_rows_per_person is None else int(max_rows_per_person)
    vectors = count * (2 if parse_relation(relation) == "replace_one" else 1)
    return CountSensitivity(
        l1=float(rows * vectors),
        l2=_square_root_up(rows * rows * vectors),
        changed_cells=vectors if rows == 1 else None,
    )


def bound_contributions(
    frame: nw.LazyFrame[Any], order: Sequence[str], *, max_rows_per_person: int
) -> nw.LazyFrame[Any]:
    """Keep at most ``max_rows_per_person`` rows of each person, chosen by that person's rows and the public seed.

    Args:
        frame: Lazy frame with the encoded columns, the person id and its hash.
        order: Columns that put a person's rows in order; rows that tie must be equal in all that is used later.
        max_rows_per_person: The most rows that are kept.
    """
    k, rows = min(max_rows_per_person, 2**30), nw.col("rows_of_person")  # products stay within 64 bits
    place = (nw.col("row_of_person") - 1) * k + nw.col(PERSON_NUMBER) % rows
    return (
        frame.filter(~nw.col(PERSON).is_null())
        .with_columns(
            nw.col(PERSON).cum_count().over(PERSON, order_by=list(order)).cast(nw.Int64).alias("row_of_person"),
            nw.col(PERSON).count().over(PERSON).cast(nw.Int64).alias("rows_of_person"),
        )
        .filter((rows <= k) | (place % rows >= rows - k))
    )


def _square_root_up(square: int) -> float:
    root = math.sqrt(square)
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A query for a table's rows that has not run yet.

    Attributes:
        frame: Lazy frame of the guarded columns, of clipped values if they were asked for, and for the person unit of
            ``PERSON_NUMBER``, a public hash of whose row it is.
        codes: For each column of the schema in the query, its guarded column's name.
        values: For each numeric column in the query, its clipped values' name; empty if not asked for.
    """

    frame: nw.LazyFrame[Any] = field(repr=False)  # some engines' frames print rows
    codes: dict[str, str]
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of a table's rows: some columns, encoded, and at most ``max_rows_per_person`` rows of each person.

    Attributes:
        schema: The table's schema.
        codes: Under which name each column's cells go.
        numbers: Under which name each numeric column's values go, as float64 within its bounds; empty if not asked for.
        seed: The public seed of the sample of a person's rows.
    """

    schema: Schema
    codes: dict[str, str]
    numbers: dict[str, str]
    seed: int = 0

    @staticmethod
    def of(schema: Schema, names: Sequence[str], seed: int, *, values: bool = False) -> Query:
        """Return the query for the named columns, and for the values of the numeric ones among them if asked for.

        For the person unit every column takes part, whichever are named: which rows of a person are kept is then the
        same in every query, so tables that share columns agree. Names in the query are plain ones of our own: a person
        id called "n", or a column with quotes in its name, cannot get in the way.
        """
        if schema.person_id is not None:
            schema.shape()  # refuses columns whose levels or bounds are still to be learnt
            names = schema.names
        codes = {name: f"c{position}" for position, name in enumerate(names)}
        numeric = [name for name in names if isinstance(schema[name], Numeric)] if values else []
        return Query(schema, codes, {name: codes[name].replace("c", "v") for name in numeric}, seed)

    def rows(self, source: Source) -> Rows:
        """Return the rows of a frame; for the person unit, of one that holds all rows of each person."""
        return self._bounded(self._encoded(source))

    def dask_rows(self, source: Source) -> tuple[list[Any], Callable[[Any], Rows]]:
        """Return the parts of a Dask frame, not computed yet, and how to ask one of them on its worker.

        For the person unit all rows of a person are in one part: each partition is encoded where it is, and the rows
        are then brought together by the hash of the person's key. What travels has the types that the schema says,
        whatever the partitions hold.
        """
        if self.schema.person_id is None:
            parts = source.frame.to_native()[list(self.codes)].to_delayed()
            return list(parts), lambda part: self.rows(Source.partition(part))
        return self._together(source), lambda part: self._bounded(self._arrived(part))

    def _encoded(self, source: Source) -> nw.LazyFrame[Any]:
        """Return the query for all rows, encoded, each with its person's key and hash."""
        schema = self.schema
        columns: dict[str, Column | None] = {name: schema[name] for name in self.codes}
        if schema.person_id is not None:
            columns[schema.person_id] = None
        raw = source.lazy(columns)
        dtypes = raw.collect_schema()
        expression = guarded if schema.person_id is None else sortable
        encoded = [expression(schema[name], dtypes[name]).alias(code) for name, code in self.codes.items()]
        for name, place in self.numbers.items():
            column = schema[name]
            assert isinstance(column, Numeric)
            encoded.append(clipped(column, dtypes[name]).alias(place))
        if schema.person_id is None:
            return raw.select(*encoded)
        person = person_columns(schema.person_id, dtypes[schema.person_id], seed=self.seed)
        return with_text_number(raw.select(*encoded, *person), seed=self.seed)

    def _bounded(self, frame: nw.LazyFrame[Any]) -> Rows:
        """Return the query for the rows that count, of all rows as :meth:`_encoded` gives them."""
        if self.schema.max_rows_per_person is not None:
            words, texts = self._packed()
            # Values come last in the order, so the sample is the same with and without them.
            order = [*words, *texts, *self.numbers.values()]
            frame = frame.with_columns(**words) if words else frame
            frame = bound_contributions(frame, order, max_rows_per_person=self.schema.max_rows_per_person)
            frame = frame.select(*self.codes.values(), *self.numbers.values(), PERSON_NUMBER)
        return Rows(frame=frame, codes=self.codes, values=self.numbers)

    def _together(self, source: Source) -> list[Any]:
        """Encode each partition of a Dask frame where it is, and bring the rows of each person together."""
        import polars as pl

        types = self._travelling()

        def encoded(part: Any) -> Any:
            frame = self._encoded(Source.partition(part))
            rows = frame.filter(~nw.col(PERSON).is_null()).to_native().collect()
            # Partitions may hold ids of different types: only their keys are comparable.
            keys = rows[PERSON] if rows[PERSON].dtype == pl.String else person_keys(PERSON, rows[PERSON])
            return rows.with_columns(keys).cast(types).select(*types).to_pandas(use_pyarrow_extension_array=True)

        columns = [*self.codes, *(() if self.schema.person_id is None else (self.schema.person_id,))]
        empty = pl.DataFrame(schema=types).to_pandas(use_pyarrow_extension_array=True)
        rows = source.frame.to_native()[columns].map_partitions(encoded, meta=empty)
        return list(rows.shuffle(on=PERSON_NUMBER).to_delayed())

    def _arrived(self, part: Any) -> nw.LazyFrame[Any]:
        """Open a part of the rows that :meth:`_together` brought together, on its worker."""
        import polars as pl

        types = self._travelling()
        rows: nw.LazyFrame[Any] = nw.from_native(pl.from_pandas(part).select(*types).cast(types).lazy())
        return rows

    def _travelling(self) -> pl.Schema:
        import polars as pl

        kinds = {code: self.schema[name].kind for name, code in self.codes.items()}
        texts = {code: pl.String if kind == "string" else pl.Int64 for code, kind in kinds.items()}
        values = dict.fromkeys(self.numbers.values(), pl.Float64)
        return pl.Schema({**texts, **values, PERSON: pl.String, PERSON_NUMBER: pl.Int64})

    def _packed(self) -> tuple[dict[str, nw.Expr], list[str]]:
        """Pack the encoded columns that hold whole numbers into as few 64-bit words as possible, to sort by fewer.

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


def dask_people(source: Source, schema: Schema) -> list[Any]:
    """Return parts of a Dask frame, not computed yet, as counts of the different people in them; none is in two."""
    import dask

    query = Query(schema, {}, {})

    def people(part: Any) -> int:
        return int(query._arrived(part).select(PERSON).to_native().collect()[PERSON].n_unique())

    return [dask.delayed(people)(part) for part in query._together(source)]


# ---- tables of counts


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


# ---- rows in batches

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
