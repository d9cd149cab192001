"""A private table: a frame of any engine behind its public schema and its ledger account."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from escudo._card import number_of
from escudo._validate import one_of, positive_integer, whole
from escudo.errors import InputError
from escudo.privacy import Neighbours, Relation, Unit, parse_relation
from escudo.table._columns import Column
from escudo.table._contributions import held
from escudo.table._counts import (
    CountSensitivity,
    count_records,
    count_sensitivity,
    count_tables,
    count_values,
    requested_tables,
)
from escudo.table._frames import open_source, shielded
from escudo.table._rows import ENCODINGS, ROWS_AT_ONCE, Arrays, Encoding, Grouping
from escudo.table._schema import Schema
from escudo.table._whole import Errand, Whole

if TYPE_CHECKING:
    from escudo.privacy import Account, Ledger
    from escudo.table._linked_schema import LinkedSchema

_S = TypeVar("_S", Schema, "LinkedSchema")


class Held(Generic[_S]):
    """What a private table and linked ones have alike: a schema, an account that is charged, and neighbours."""

    __slots__ = ("_account", "_neighbours", "_schema", "_stated")
    _schema: _S

    def _agree(
        self, ledger: Ledger | Account | str | None, dataset: str | None, relation: str | None, **public: int | None
    ) -> None:
        """Find the account, which must protect what the schema does, and note what is public of neighbours."""
        chosen = None if relation is None else parse_relation(relation)
        self._account = _account(self._schema, ledger, dataset, chosen)
        self._stated = self._schema.neighbours(relation=chosen or self._account.relation, **public)
        self._neighbours: Neighbours | None = None

    @property
    def account(self) -> Account:
        """The account that releases are charged to."""
        return self._account

    @property
    def relation(self) -> Relation:
        """Which tables are neighbours."""
        return self._stated.relation


class PrivateTable(Held[Schema]):
    """A private frame that answers in counts and encoded batches, and shows nothing but its schema.

    The frame may be a pandas, polars or modin DataFrame, a polars LazyFrame, a pyarrow Table, a DuckDB relation, an
    Ibis table, or a Dask or PySpark DataFrame. It stays where it is: nothing is read before something is asked, and
    then the columns that are needed, once, some rows at a time; where the frame has workers, on them.

    Counts and batches are *exact*: they are what mechanisms add noise to, never a release by themselves. Values outside
    the schema are clamped or mapped as it says, identically in every engine, and no value is an error. With a
    ``person_id`` in the schema, at most ``max_rows_per_person`` rows of each person take part, a sample that depends
    only on that person's own rows and the public ``sample_seed``; rows without a person id take no part, nor do those
    whose id the table may have merged with another's, such as floats of 2^53 and more. The proofs are in
    ``_contributions.py`` and ``_persons.py``.

    Args:
        frame: The data. Names and types of its columns are taken as public and may be refused, its rows never: one
            without any is a table of zeros, since whether there are rows may be private. So a frame that is empty by
            mistake is no error.
        schema: Its public description. Columns of the frame that it does not name are never touched.
        ledger: A ledger or its URL, such as ``"sqlite:///ledger.db"``, to charge releases to; or an account. Without
            one, an account in memory keeps track until the process ends.
        dataset: The name of the table's account in the ledger.
        sample_seed: The public seed that decides which rows of a person are kept.
        relation: Which tables are neighbours, ``"replace_one"`` or ``"add_remove"``; the account's relation by default,
            and replacing one where there is neither.
        rows: The number of rows, if it is public knowledge where neighbours need not share it.
        people: With a person id: the number of people, if it is public knowledge where neighbours need not share it.

    Raises:
        InputError: If ``frame`` is no frame, or ledger and dataset do not go together.
        SchemaError: If the frame lacks a column of the schema, or has it in a type that cannot hold it.

    >>> import polars as pl
    >>> schema = Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
    >>> table = PrivateTable(pl.DataFrame({"smoke": ["yes", "no", "no"], "ill": ["yes", "no", "yes"]}), schema)
    >>> table
    PrivateTable(engine='polars', schema=Schema(smoke: 2 levels, ill: 2 levels))
    >>> table.counts(["smoke", "ill"]).tolist()
    [[1, 1], [0, 1]]
    """

    __slots__ = ("_sample_seed", "_source")

    def __init__(
        self,
        frame: object,
        schema: Schema,
        ledger: Ledger | Account | str | None = None,
        dataset: str | None = None,
        *,
        sample_seed: int = 0,
        relation: str | None = None,
        rows: int | None = None,
        people: int | None = None,
    ):
        if not isinstance(schema, Schema):
            raise InputError(
                f"schema must be an escudo Schema; got {type(schema).__name__}. "
                "Make one with Schema.from_dict or Schema.read."
            )
        self._schema = schema
        self._sample_seed = whole("sample_seed", sample_seed)
        self._source = open_source(frame, schema)
        self._agree(ledger, dataset, relation, rows=rows, people=people)

    @property
    def schema(self) -> Schema:
        """What is public about the table."""
        return self._schema

    @property
    def neighbours(self) -> Neighbours:
        """Between which tables what is asked of this one promises, and what is public about all of them.

        Replacing one row leaves the number of rows as it was, and replacing one person that of people: it is counted
        then, once, unless it was stated. A person may be replaced by one with fewer rows, and what is added or removed
        changes the numbers: there they are private, and not counted.
        """
        if self._neighbours is None:
            stated = self._stated
            if stated.relation == "replace_one" and stated.records is None:
                count = self.record_count() or None  # a table without rows says nothing about its neighbours
                stated = replace(stated, rows=count) if self.unit == "row" else replace(stated, people=count)
                stated = replace(stated, counted=True)
            self._neighbours = stated
        return self._neighbours

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that can be asked for."""
        return self._schema.names

    @property
    def unit(self) -> Unit:
        """Whom a guarantee about this table protects: one row, or one person with all their rows."""
        return self._schema.unit

    @property
    def max_rows_per_person(self) -> int | None:
        """The most rows of one person that count; None if the unit is the row."""
        return self._schema.max_rows_per_person

    @property
    def engine(self) -> str:
        """Where the frame lives, such as ``"polars"`` or ``"duckdb"``."""
        return self._source.engine

    @overload
    def counts(  # type: ignore[overload-overlap] # a text is a sequence of texts, to the type checker only
        self, columns: str | Sequence[str]
    ) -> NDArray[np.int64]: ...
    @overload
    def counts(self, columns: Sequence[Sequence[str]]) -> list[NDArray[np.int64]]: ...
    def counts(self, columns: str | Sequence[str] | Sequence[Sequence[str]]) -> Any:
        """Return exact contingency tables, dense and in the schema's order of levels.

        Args:
            columns: One name or a sequence of names for one table, or a list of sequences for several tables, which
                are counted in one pass over the rows.

        Returns:
            An int64 array with one axis per column, in the given order, missing cells last; a list of them if several
            tables were asked for.

        Raises:
            InputError: If no column is named, one twice in a table, or a table would have more than 2^27 cells.
            SchemaError: If the schema does not have a named column.
            RefusedError: If a column's levels or bounds are still to be learnt.

        Guarantee:
            None: exact counts are private. Their sensitivity is :meth:`sensitivity`.
        """
        tables, single = requested_tables(self._schema, columns)
        counted = shielded(
            self.engine,
            "counting",
            lambda: count_tables(self._source, self._schema, tables, seed=self._sample_seed),
        )
        return counted[0] if single else counted

    def batches(
        self, size: int = 65_536, columns: Sequence[str] | None = None, *, encode: Encoding = "codes"
    ) -> Iterator[NDArray[Any]]:
        """Return the rows as encoded arrays, ``size`` rows at a time, without loading the table.

        Rows of a frame in memory come in its order; the order of a lazy one's is up to its engine. On DuckDB the
        relation's connection is busy until the iterator is used up or closed.

        Args:
            size: Rows per batch; the last one may be shorter.
            columns: Which columns, in which order; all of the schema's by default.
            encode: ``"codes"`` for cells, in the smallest unsigned integer type that fits; ``"scaled"`` for the values
                of numeric columns mapped from [lower, upper] to [-1, 1] as float64, NaN where missing; ``"shares"``
                for the way from lower to upper in [0, 1], and from the first level to the last of columns with an
                order or two levels.

        Returns:
            Iterator over arrays of shape (rows, columns).

        Raises:
            InputError: If an argument is not usable.
            SchemaError: If the schema does not have a named column, or one that has no scale is to be put on one.

        Guarantee:
            None: the rows are private.
        """
        pairs = self._batches(size, columns, encode)
        return (rows for rows, _ in pairs)

    def person_batches(
        self, size: int = 65_536, columns: Sequence[str] | None = None, *, encode: Encoding = "codes"
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Return the rows as :meth:`batches` does, each with a public hash of the person it is of.

        All rows of a person have the same hash, in 0 ... 2^31 - 2, the same in every engine; it depends on the person's
        id and ``sample_seed`` alone. Different people may share one.

        Args:
            size: As in :meth:`batches`, like all that follow.
            columns: Which columns, in which order.
            encode: How values come.

        Returns:
            Iterator over pairs of arrays, of shapes (rows, columns) and (rows,).

        Raises:
            InputError: If the schema names no person id, or an argument is not usable.
            SchemaError: As in :meth:`batches`.

        Guarantee:
            None: the rows are private.
        """
        if self._schema.person_id is None:
            raise InputError("the schema names no person_id, so nobody knows whose row it is; use batches instead.")
        return self._batches(size, columns, encode)

    def sums(
        self,
        add_up: Callable[[Iterator[NDArray[Any]]], NDArray[np.int64]],
        size: int = 65_536,
        columns: Sequence[str] | None = None,
        *,
        encode: Encoding = "codes",
    ) -> NDArray[np.int64]:
        """Return sums over all rows, in one pass; where the frame has workers, they add up their own rows.

        Args:
            add_up: Makes an array of whole numbers of some batches of rows, none included. It is given each row once,
                in any order and in any parts, possibly on a worker, and what it makes of all rows must be the sum of
                what it makes of the parts.
            size: As in :meth:`batches`, like all that follow.
            columns: Which columns, in which order.
            encode: How values come.

        Raises:
            InputError: As in :meth:`batches`.
            SchemaError: As in :meth:`batches`.

        Guarantee:
            None: exact sums are private. How far one row moves them is up to ``add_up``.
        """
        arrays = self._arrays(size, columns, encode)
        return shielded(self.engine, "adding up rows", lambda: arrays.summed(self._source, add_up))

    @property
    def groups_on_workers(self) -> bool:
        """Whether :meth:`groups` can be asked: where the frame has workers that bring rows together."""
        return self.engine in ("pyspark", "dask")

    def groups(
        self, grouping: Grouping, columns: Sequence[str] | None = None, *, encode: Encoding = "shares"
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what is found in groups of rows, on the workers that bring them together: no row leaves these.

        Args:
            grouping: Which row is in which group, and what is found there.
            columns: As in :meth:`batches`, like all that follows.
            encode: How values come.

        Returns:
            The groups that have rows, and a row of whole numbers for each.

        Raises:
            InputError: As in :meth:`batches`, or if the frame has no such workers.

        Guarantee:
            None: what is found is private. How far one row moves it is up to ``grouping``.
        """
        if not self.groups_on_workers:
            raise InputError(f"frames of {self.engine} have no workers that bring rows together; use batches instead.")
        arrays = self._arrays(ROWS_AT_ONCE, columns, encode)
        if self.engine == "dask":
            from escudo.table._dask import dask_groups as found_in
        else:
            from escudo.table._spark import spark_groups as found_in

        return shielded(self.engine, "judging groups", lambda: found_in(arrays, self._source, grouping))

    @contextmanager
    def in_one_place(
        self, columns: Sequence[str] | None = None, *, encode: Encoding = "codes", once: bool = True
    ) -> Iterator[Whole]:
        """Hold all rows as one array for a block, here or on one worker of the frame's: work is taken to them.

        They come in the order of :meth:`batches`, and are held in memory up to ``ESCUDO_MEMORY_MB``, beyond it in a
        file without a name, wherever that is.

        Args:
            columns: As in :meth:`batches`, like all that follows.
            encode: How values come.
            once: Whether one thing is asked of them. Else Spark's workers keep what they encoded meanwhile.

        Raises:
            InputError: As in :meth:`batches`.
            SchemaError: As in :meth:`batches`.

        Guarantee:
            None: what is found is private, unless the work that finds it protects it.
        """
        arrays = self._arrays(ROWS_AT_ONCE, columns, encode)
        if not self.groups_on_workers:
            batches = shielded(self.engine, "reading batches", lambda: arrays.read(self._source))
            yield Whole(self.engine, held((rows for rows, _ in batches), arrays.none), arrays.none)
            return
        with ExitStack() as kept:
            send = shielded(self.engine, "reading batches", lambda: kept.enter_context(self._placed(arrays, once)))
            yield Whole(self.engine, None, arrays.none, send=send)

    def _placed(self, arrays: Arrays, once: bool) -> AbstractContextManager[Callable[[Errand], bytes]]:
        if self.engine == "dask":
            from escudo.table._dask import dask_in_one_place

            return dask_in_one_place(arrays, self._source)
        from escudo.table._spark import spark_in_one_place

        return spark_in_one_place(arrays, self._source, once=once)

    def _batches(
        self, size: int, columns: Sequence[str] | None, encode: Encoding
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        arrays = self._arrays(size, columns, encode)
        return shielded(self.engine, "reading batches", lambda: arrays.read(self._source))

    def _arrays(self, size: int, columns: Sequence[str] | None, encode: Encoding) -> Arrays:
        names = self.columns if columns is None else _names(self._schema, columns)
        size = positive_integer("size", size)
        chosen: Encoding = one_of("encode", encode, ENCODINGS)
        return shielded(
            self.engine,
            "reading batches",
            lambda: Arrays.of(self._schema, names, size=size, encode=chosen, seed=self._sample_seed),
        )

    def record_count(self) -> int:
        """Return how many rows the table has; for the person unit, how many people.

        Guarantee:
            None by itself. Replacing one row leaves the number of rows as it was, so under ``replace_one`` it is
            public; adding or removing one changes it, so under ``add_remove`` it is private. The number of people is
            public under ``replace_one`` only if nobody has rows without an id: those people are not counted.
        """
        return shielded(self.engine, "counting rows", lambda: count_records(self._source, self._schema))

    def value_counts(self, column: str) -> list[tuple[Any, int]]:
        """Return the values of a column as they are stored, and how many rows have each: to learn levels from.

        Every row counts here, however many a person has, and values outside the schema are not mapped. Missing values
        are left out, and of a column of Python objects everything but text.

        Args:
            column: A column of the schema; its levels or bounds may still be open.

        Raises:
            SchemaError: If the schema does not have the column.

        Guarantee:
            None: both values and counts are private.
        """
        name = self._schema[column].name
        return shielded(
            self.engine, f"counting the values of column {name!r}", lambda: count_values(self._source, name)
        )

    def with_columns(self, *columns: Column) -> PrivateTable:
        """Return the same table with each given column in the place of the schema's of its name, such as in finer bins.

        Frame, account and sample seed stay.

        Raises:
            SchemaError: If the schema does not have a column of that name, or the frame cannot hold it so.
        """
        return self._like(schema=self._schema.with_columns(*columns))

    def binned_as(self, schema: Schema) -> PrivateTable:
        """Return the same table with the bins that a release chose, where its own schema leaves them to one."""
        return self._like(schema=self._schema.binned_as(schema))

    def with_account(self, account: Account) -> PrivateTable:
        """Return the same table, whose releases are charged to another account.

        Raises:
            InputError: If the account protects another unit than the schema.
        """
        return self._like(account)

    def under(self, *, relation: str | None = None, rows: int | None = None, people: int | None = None) -> PrivateTable:
        """Return the same table with another relation, or another public number of rows or people.

        Raises:
            InputError: If an argument is out of range.
        """
        stated = self._stated
        return self._like(
            relation=stated.relation if relation is None else relation,
            rows=stated.rows if rows is None else rows,
            people=stated.people if people is None else people,
        )

    def _like(self, account: Account | None = None, schema: Schema | None = None, **stated: Any) -> PrivateTable:
        terms = {"relation": self._stated.relation, "rows": self._stated.rows, "people": self._stated.people, **stated}
        return PrivateTable(
            self._source.frame, schema or self._schema, account or self._account, sample_seed=self._sample_seed, **terms
        )

    def sensitivity(self, tables: int = 1, *, relation: Relation | None = None) -> CountSensitivity:
        """Return how far one row or person can move ``tables`` of this table's count tables, taken together.

        Args:
            tables: How many tables are counted.
            relation: Which tables are compared; this table's relation by default.
        """
        stated = self._stated.stated
        return count_sensitivity(tables, **(stated if relation is None else {**stated, "relation": relation}))

    def __repr__(self) -> str:
        return f"PrivateTable(engine={self.engine!r}, schema={self._schema!r})"

    def _repr_html_(self) -> str:
        return f"<p>Private table ({escape(self.engine)}); only its schema is shown.</p>{self._schema._repr_html_()}"


def _names(schema: Schema, columns: object) -> tuple[str, ...]:
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise InputError("columns must be a sequence with at least one column's name.")
    names = tuple(schema[name].name for name in columns)
    for position, name in enumerate(names):
        if name in names[:position]:
            raise InputError(f"columns names {name!r} twice; name it once.")
    return names


def _account(
    schema: Schema | LinkedSchema, ledger: Ledger | Account | str | None, dataset: str | None, relation: Relation | None
) -> Account:
    from escudo.privacy import Account, MemoryAccount

    if ledger is None or isinstance(ledger, Account):
        if dataset is not None:
            raise InputError("dataset names an account in a ledger; give that ledger too, or leave dataset out.")
        if ledger is None:
            return MemoryAccount(**schema.neighbours(relation=relation or "replace_one").stated)
        account: Account = ledger
    else:
        from escudo.privacy import Ledger  # slow to import, so only for those who have one

        if not isinstance(ledger, str | Ledger):
            raise InputError(
                f"ledger must be a Ledger, its URL such as 'sqlite:///ledger.db', or an account; "
                f"got {type(ledger).__name__}."
            )
        if dataset is None:
            raise InputError("a ledger holds one account per dataset; say which one with dataset='...'.")
        account = (Ledger(ledger) if isinstance(ledger, str) else ledger).account(dataset)
    promised, counted = _protects(account), _protects(schema)
    if promised != counted:
        most = schema.max_rows_per_person
        wanted = f"--unit {schema.unit}" + ("" if most is None else f" --max-rows-per-person {most}")
        raise InputError(
            f"the account protects {promised}, but the schema {counted}; open an account for the schema's unit "
            f"(escudo ledger open DATASET {wanted}), or change person_id and max_rows_per_person in the schema."
        )
    return account


def _protects(terms: Account | Schema | LinkedSchema) -> str:
    if terms.max_rows_per_person is None:
        return f"one {terms.unit}"
    return f"one {terms.unit} with at most {number_of(terms.max_rows_per_person, 'row')}"
