r"""Tables of counts in one pass: rows as cells, some at a time, each adding one to a cell of every table.

Several tables share a *span*, a joint table of their columns, where that is small. For each piece of rows the cell of
each row in each span is computed by its digits, and the cells are counted in plain arrays. The tables are then sums of
their spans over the columns they lack. Very many pairs are counted by bits instead, which say of each level which rows
have it. Which of the two it is depends on the schema and the tables alone.

How far one row or person can move counts is :func:`count_sensitivity`; it rests on the bound on one person's rows that
:mod:`escudo.table._contributions` proves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from escudo._validate import positive_integer
from escudo.errors import InputError, SchemaError
from escudo.privacy import Relation, Unit, parse_relation, parse_unit
from escudo.table._columns import Categorical
from escudo.table._contributions import number_of_people
from escudo.table._encode import cells_of
from escudo.table._frames import Source, collect, stream
from escudo.table._persons import PERSON, person_columns, with_text_number
from escudo.table._rows import ROWS_AT_ONCE, Query
from escudo.table._schema import Schema

MAX_TABLE_CELLS = 2**27
"""The most cells one dense table may have (1 GiB of counts)."""


# Up to this many cells, one joint table for several is cheaper than one for each (benchmarks/counts.py).
_SHARED_CELLS = 2**14
_LOOKED_AT = 256  # spans that a table may share: the latest ones, so that very many tables are placed in no time
_CHUNK = 2**16  # rows whose cells stay in the processor's cache
_MANY_PAIRS = 1000  # from here on pairs may be counted by bits, if that takes no more than
_FOR_A_PAIR = 2**6  # of them for a pair and a row


Columns: TypeAlias = tuple[str, ...]


# ---- how far one row or person can move them


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
        Sensitivities are exact and attained, for both relations, under :mod:`escudo.table._contributions`.

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


def _square_root_up(square: int) -> float:
    root = math.sqrt(square)
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)


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
        (table,) if isinstance(table, str) else table if isinstance(table, tuple) else tuple(_listed(table))
        for table in ([listed] if single else listed)
    ]
    sizes: dict[str, int] = {}  # of names that are right: very many tables may name few columns
    for table in tables:
        _check_table(schema, table, sizes)
    return tables, single


def count_tables(source: Source, schema: Schema, tables: Sequence[Columns], *, seed: int) -> list[NDArray[np.int64]]:
    """Return the dense contingency table of each tuple of columns, in one pass over the rows.

    Args:
        source: The frame.
        schema: Its schema.
        tables: Tuples of distinct columns of the schema.
        seed: The public seed of the sample of a person's rows.
    """
    crossed = _crossed(schema, tables)
    # Of all pairs that are asked for both columns are crossed, if any are.
    apart = [each for each in tables if not (crossed and (len(each) == 2 or (len(each) == 1 and each[0] in crossed)))]
    shared = dict(zip(apart, _shared(schema, apart, most_cells=_SHARED_CELLS), strict=True))
    spans = Spans({span: schema.shape(span) for span in shared.values()}, crossed)
    named = crossed.keys() | {name for span in spans.shapes for name in span}
    query = Query(schema, tuple(name for name in schema.names if name in named), seed=seed)
    tally = _tally(query, source, spans)
    dense = tally.tables()
    return [
        _marginal(dense[shared[table]], shared[table], table) if table in shared else tally.crossed(table)
        for table in tables
    ]


def _tally(query: Query, source: Source, spans: Spans) -> RunningCounts:
    if source.engine == "pyspark":
        from escudo.table._spark import spark_tally

        return spark_tally(query, source, spans)
    tally = RunningCounts(spans)
    if source.engine == "dask":
        import dask

        waiting, opened = query.dask_parts(source)

        def counted(part: Any) -> bytes:
            partial = RunningCounts(spans)
            for piece in opened(part):
                partial.add(piece.cells)
            return partial.to_bytes()

        for found in dask.compute(*map(dask.delayed(counted), waiting)):
            tally.merge(found)
    elif source.frame.implementation.is_ibis() and not spans.pairs:  # a database counts where the rows are
        frame = query.in_database(source)
        for span in spans.shapes:
            found = collect(frame.group_by(*(query.codes[name] for name in span)).agg(nw.len().alias("n")))
            cells = {name: cells_of(query.schema[name], found[query.codes[name]]) for name in span}
            tally.add_counted(span, cells, found["n"].to_numpy().astype(np.int64))
    else:
        for piece in query.pieces(source):
            tally.add(piece.cells)
    return tally


@dataclass(frozen=True)
class Spans:
    """The joint tables that are counted, one after the other in one vector.

    Attributes:
        shapes: The shape of each, by its columns.
        pairs: The sizes of columns of which all pairs are counted, by name.
    """

    shapes: dict[Columns, tuple[int, ...]]
    pairs: dict[str, int]

    @property
    def sizes(self) -> dict[Columns, int]:
        """The number of cells of each."""
        return {span: math.prod(shape) for span, shape in self.shapes.items()}


class RunningCounts:
    """Counts of joint tables, to which rows are added; sums over parts are the counts of the whole."""

    def __init__(self, spans: Spans):
        self._spans = spans
        levels = sum(spans.pairs.values())
        self._flat = np.zeros(sum(spans.sizes.values()) + levels**2, dtype=np.int64)
        ends = np.cumsum(list(spans.sizes.values())).tolist()
        self._pairs = self._flat[self._flat.size - levels**2 :].reshape(levels, levels)
        self._places = level_places(spans.pairs)
        starts = [0, *ends][: len(ends)]
        self._views = {span: self._flat[start:end] for span, start, end in zip(spans.shapes, starts, ends, strict=True)}

    def __repr__(self) -> str:
        return f"RunningCounts({len(self._views)} tables)"

    def add(self, cells: Mapping[str, NDArray[Any]]) -> None:
        """Add rows, given by the cell of each row in each column."""
        rows = len(next(iter(cells.values())))
        for start in range(0, rows, _CHUNK):
            for span, counts in self._views.items():
                index = self._index(span, {name: cells[name][start : start + _CHUNK] for name in span})
                if counts.size <= index.size:
                    counts += np.bincount(index, minlength=counts.size)
                else:  # counting would cost more for the cells than for the rows
                    np.add.at(counts, index, 1)
        if self._spans.pairs:
            add_pairs(self._pairs, [cells[name] for name in self._spans.pairs], list(self._spans.pairs.values()))

    def add_counted(self, span: Columns, cells: Mapping[str, NDArray[Any]], numbers: NDArray[np.int64]) -> None:
        """Add groups of rows: their cells in a span, and how many rows each has; cells may repeat."""
        np.add.at(self._views[span], self._index(span, cells), numbers)

    def _index(self, span: Columns, cells: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the cell of each row in a span, by its digits."""
        size, shape = self._views[span].size, self._spans.shapes[span]
        kind = np.uint16 if size <= 2**16 else np.int64
        index: NDArray[Any] = cells[span[0]].astype(kind)
        for name, radix in zip(span[1:], shape[1:], strict=True):
            np.multiply(index, kind(radix), out=index)
            np.add(index, cells[name], out=index, casting="unsafe")
        return index

    @property
    def size_in_bytes(self) -> int:
        """How much memory the counts take."""
        return self._flat.nbytes

    def to_bytes(self) -> bytes:
        """Return the counts in few bytes."""
        return counts_to_bytes(self._flat)

    def merge(self, found: bytes) -> None:
        """Add the counts of another tally of the same tables."""
        add_counts(self._flat, found)

    def tables(self) -> dict[Columns, NDArray[np.int64]]:
        """Return the joint tables."""
        return {span: self._views[span].reshape(shape) for span, shape in self._spans.shapes.items()}

    def crossed(self, table: Columns) -> NDArray[np.int64]:
        """Return the table of one column or two, of those of which all pairs are counted."""
        counts = self._pairs[self._places[table[0]], self._places[table[-1]]]
        return np.diagonal(counts).copy() if len(table) == 1 else counts.copy()


def counts_to_bytes(counts: NDArray[np.int64]) -> bytes:
    """Return counts in few bytes: cells that nothing is in are left out where they are many."""
    found = np.flatnonzero(counts)
    if 2 * found.size >= counts.size:
        return b"d" + counts.tobytes()
    return b"s" + np.concatenate([found, counts[found]]).tobytes()


def add_counts(total: NDArray[np.int64], found: bytes) -> None:
    """Add counts that came as bytes to others of the same cells."""
    numbers = np.frombuffer(found, dtype=np.int64, offset=1)
    if found[:1] == b"d":
        total += numbers
    else:
        cells, counts = numbers.reshape(2, -1)
        total[cells] += counts


def level_places(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Return where the levels of each column are, one column after the other."""
    ends = np.cumsum(list(sizes.values())).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def add_pairs(total: NDArray[np.int64], cells: Sequence[NDArray[Any]], sizes: Sequence[int]) -> None:
    """Add to ``total`` how many rows have each pair of levels, of all columns.

    Of each column all levels but the last are counted, and all rows: the rest is what is left of these. A bit for each
    row says whether it has a level; the bits that two levels have in common are counted, fewer than 2¹⁶ at a time.
    (Matrix products of zeros and ones take longer, and much longer where the library that makes them has its threads
    wait for each other.)

    Args:
        total: A square, with the columns' levels one after the other.
        cells: The cell of each row, by column.
        sizes: The number of each column's cells.
    """
    count, ends = len(cells[0]), np.cumsum(sizes) - np.arange(1, len(sizes) + 1)
    small = np.zeros((int(ends[-1]) + 1, int(ends[-1]) + 1), dtype=np.int64)
    rows = min(max(2**25 // len(total), 2**9), 2**15)
    for start in range(0, count, rows):
        here = min(rows, count - start)
        bits = np.zeros((len(small), math.ceil(here / 64) * 8), dtype=np.uint8)
        present = bits[:, : math.ceil(here / 8)]
        present[-1] = np.packbits(np.ones(here, dtype=bool))
        for column, size, end in zip(cells, sizes, ends.tolist(), strict=True):
            part = column[start : start + rows]
            for level in range(size - 1):
                present[end - size + 1 + level] = np.packbits(part == level)
        words = bits.view(np.uint64)
        for line, one in enumerate(words):
            small[line, line:] += np.bitwise_count(words[line:] & one).sum(axis=1, dtype=np.uint16)
    small += np.triu(small, 1).T
    total += _with_last_levels(_with_last_levels(small, sizes).T, sizes)


def _with_last_levels(counts: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return counts by all levels of columns, from those of all levels but the last and, in the last line, of all."""
    levels = np.concatenate([np.arange(size) < size - 1 for size in sizes])
    lasts = np.flatnonzero(~levels)
    found = np.empty((len(levels), counts.shape[1]), dtype=np.int64)
    found[levels] = counts[:-1]
    found[lasts] = 0
    starts = np.concatenate([[0], lasts[:-1] + 1])
    found[lasts] = counts[-1] - np.add.reduceat(found, starts, axis=0)
    return found


def count_records(source: Source, schema: Schema) -> int:
    """Return how many rows there are, or how many different people."""
    if schema.person_id is None:
        frame = source.frame
        return len(frame) if isinstance(frame, nw.DataFrame) else int(collect(frame.select(nw.len().alias("n"))).item())
    if source.engine == "dask":
        import dask

        query = Query(schema, ())

        def people(part: Any) -> int:
            return int(query.arrived(part)[PERSON].n_unique())

        return sum(dask.compute(*map(dask.delayed(people), query.together(source))))
    raw = source.lazy({schema.person_id: None})
    person = person_columns(schema.person_id, raw.collect_schema()[schema.person_id], seed=0)
    if source.frame.implementation.is_ibis() or source.engine == "pyspark":
        different = raw.select(person[0]).filter(~nw.col(PERSON).is_null()).unique()
        return int(collect(different.select(nw.len().alias("n"))).item())
    return number_of_people(stream(with_text_number(raw.select(*person), seed=0), ROWS_AT_ONCE))


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


def _listed(columns: object) -> list[Any]:
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InputError(
            "columns must be a column's name, a sequence of names for one table, or a list of such sequences for "
            f"several; got {type(columns).__name__}."
        )
    return list(columns)


def _check_table(schema: Schema, table: Columns, sizes: dict[str, int]) -> None:
    if not table:
        raise InputError("columns must name at least one column of the schema.")
    for name in table:
        if not isinstance(name, str):
            raise InputError(f"columns must be names; got {type(name).__name__}.")
        if name not in sizes:
            if name == schema.person_id:
                raise SchemaError(f"column {name!r} is the person id and is never counted; choose other columns.")
            sizes[name] = schema[name].size
    shape = [sizes[name] for name in table]
    if len(set(table)) < len(table):
        raise InputError(f"columns names {_repeated(table)!r} twice in one table; name it once.")
    if math.prod(shape) > MAX_TABLE_CELLS:
        told = ", ".join(f"{name!r}: {size:,}" for name, size in zip(table, shape, strict=True))
        raise InputError(
            f"the table of {len(table)} columns would have {math.prod(shape):,} cells, more than "
            f"{MAX_TABLE_CELLS:,} ({told}); take fewer columns, or fewer levels or bins."
        )


def _repeated(table: Columns) -> str:
    return next(name for position, name in enumerate(table) if name in table[:position])


def _crossed(schema: Schema, tables: Sequence[Columns]) -> dict[str, int]:
    """Return the sizes of the columns whose pairs are counted by bits: none, or all that pairs name."""
    pairs = [table for table in tables if len(table) == 2]
    if len(pairs) < _MANY_PAIRS:
        return {}
    named = {name for pair in pairs for name in pair}
    sizes = {name: schema[name].size for name in schema.names if name in named}
    return sizes if sum(sizes.values()) ** 2 <= _FOR_A_PAIR * len(pairs) else {}


def _shared(schema: Schema, tables: Sequence[Columns], *, most_cells: int) -> list[Columns]:
    """Return for each table the columns to group by: its own, or those of several tables together (first fit)."""
    bit = {name: 1 << position for position, name in enumerate(schema.names)}
    size = {name: schema[name].size for table in tables for name in table}
    spans: list[tuple[int, int]] = []  # the columns as bits, and the cells they span
    home: list[int] = []
    for table in tables:
        sizes, wanted = [size[name] for name in table], sum(bit[name] for name in table)
        whole = math.prod(sizes)
        none, some = most_cells // whole, most_cells // min(sizes)  # cells of a span with none or some of the columns
        first = max(len(spans) - _LOOKED_AT, 0)
        for position, (span, cells) in enumerate(spans[first:], start=first):
            common = span & wanted
            if common != wanted and cells > (some if common else none):  # most, where there are very many tables
                continue
            joined = cells * math.prod(size[name] for name in table if not bit[name] & common)
            if common == wanted or joined <= most_cells:
                spans[position] = (span | wanted, joined)
                home.append(position)
                break
        else:
            spans.append((wanted, whole))
            home.append(len(spans) - 1)
    named = [tuple(name for name in schema.names if bit[name] & span) for span, _ in spans]
    return [named[position] for position in home]


def _marginal(dense: NDArray[np.int64], span: Columns, table: Columns) -> NDArray[np.int64]:
    summed = dense.sum(axis=tuple(axis for axis, name in enumerate(span) if name not in table))
    left = [name for name in span if name in table]
    return np.ascontiguousarray(np.transpose(summed, [left.index(name) for name in table]))
