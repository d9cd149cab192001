r"""Rows as the schema sees them: encoded, and bounded per person, still inside the engine.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import narwhals as nw

from escudo._validate import positive_integer
from escudo.privacy import Relation, Unit, parse_relation, parse_unit
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._encode import clipped, guarded, sortable
from escudo.table._frames import Source
from escudo.table._persons import PERSON, PERSON_NUMBER, person_columns, person_keys, with_text_number
from escudo.table._schema import Schema

if TYPE_CHECKING:
    import polars as pl


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
