r"""Private linked tables: which rows of a person count, in which order and with which weight, and how far one reaches.

**What is kept** is a function of a person's own rows, whatever anybody else's are:

1. *People.* A row without a key takes no part. Of several rows with one key the first by encoded content counts.
2. *Rows.* A row takes part if its key is that of a person, it has a day, and that day is not before the person's
   origin. Where the origin is missing, the person's first row stands in for it.
3. *Order.* By day, then by encoded content. Rows that tie are equal in all that is counted.
4. *Bound.* The first :math:`k` rows count (``most``), never a sample: neighbours in a sample are none in time.
5. *Rows of rows* (prescriptions of a visit) name the person and, by ``row_key``, one of the person's *own* rows that
   count. A row that names none of these takes no part; of several rows of one person with the same ``key``, the first
   in order is meant. Their days are not before that of their row. They are put in order, and bounded, row by row. Rows
   that tie in day and content may have different rows: where rows have keys, these come last in the order, whole
   numbers by size, after all else by length, then by characters.

**Weights.** A count table of rows adds up, for each person with rows :math:`t = 1, \dots, n` in it, the histogram
:math:`h = \sum_t w_t\, e(\text{cell}_t)`. Weights are whole steps of :math:`1 / M`, M = 4096:

* ``voice``: :math:`w_t = \lfloor tM/n \rfloor - \lfloor (t-1)M/n \rfloor`, which add up to M exactly: every person
  with a row has one voice, however many rows;
* ``unit``: every row :math:`w = \lfloor \sqrt{\lfloor M^2 / S \rfloor} \rfloor` with :math:`S = \sum_c g_c^2`, where
  g counts the person's rows by the cells of *core* columns, which every table with this weight must hold;
* tables of people and of first rows count one cell of weight 1 for each person;
* rows of rows share the voice :math:`W_t` of their row as rows share that of their person: the r-th of m has
  :math:`\lfloor r W_t/m \rfloor - \lfloor (r-1) W_t/m \rfloor`, which add up to :math:`W_t` exactly; a row's first
  one has :math:`W_t`. Under ``unit`` g counts all of the person's rows of rows, and the weight is as above.

**Sensitivity.** Let :math:`C = M` for weighted tables and 1 for the others. Adding or removing a person moves a table
by at most C in L2; replacing one, by at most :math:`\sqrt 2\, C`.

*Proof.* Rows kept, order and weights depend on the person's own rows, so nobody else's term moves. Adding or removing
moves the table by one :math:`h \ge 0`. Under ``voice``, :math:`\|h\|_2 \le \|h\|_1 = M`, and of rows of rows
:math:`\|h\|_1 = \sum_t W_t`, over the rows t that have any (two, in tables of next ones), which is at most the sum
over all rows, M: what a row hands on is never more than it has, at any depth and on any grid. Under
``unit``, a table that
holds the core splits each core cell's rows over finer cells, and the squares of the parts of a non-negative sum add up
to at most the square of the sum: :math:`\|h\|_2 \le w \|g\|_2 = w \sqrt S \le M`. One cell of weight 1 has length 1.
Replacing moves the table by :math:`a - b` with :math:`a, b \ge 0`, and :math:`\|a - b\|_2^2 = \|a\|_2^2 + \|b\|_2^2 -
2 a \cdot b \le 2 C^2`. *It is attained* by constant histories: all rows of one person in one cell, those of another in
another (up to rounding, under ``unit``). ∎

*A norm taken on a family does not bound its coarser tables*, as parts that differ in the family may fall into one cell
there: so a table that lacks a column of the core is refused.

*All tables.* Released together with Gaussian noise, their costs add up as those of single releases do, and two constant
histories that differ in every column attain all bounds at once, so nothing is given away.

**The number of people** is public where one is replaced; that of rows is not: who comes may have fewer.

**Where.** All of this is a function of one person's rows at a time, and what is counted of several people is the sum of
what is counted of each. So rows travel packed (:class:`Gathering`: the person's key, the hash of it, day and cells, in
some 40 bytes), those of all tables together, to wherever the others of their person are: nowhere while they fit into
``ESCUDO_MEMORY_MB``, to buckets on local disk beyond that (:mod:`escudo.table._contributions`), to a worker where some
table lies on Spark or Dask. There they are put in order, and what comes back is sums (:class:`Gathered`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import did_you_mean
from escudo.errors import InputError, SchemaError
from escudo.privacy import Neighbours, Relation, Unit, parse_relation
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._contributions import Packing, PersonParts
from escudo.table._counts import CountSensitivity, count_records
from escudo.table._encode import cells_of, number, sortable
from escudo.table._frames import Source, open_source, read_names, shielded, stream
from escudo.table._linked_schema import COUNT, GAP, MOST_ROWS, NUMBER, START, ChildTable, LinkedSchema
from escudo.table._persons import PERSON, PERSON_NUMBER, key_numbers, key_of_text, person_columns, person_keys
from escudo.table._schema import Schema
from escudo.table._table import Held
from escudo.table._where import one_cluster

if TYPE_CHECKING:
    import polars as pl

    from escudo.privacy import Account, Ledger

STEPS = 4096
"""How many steps of the weights' grid one voice has."""

View = Literal["people", "first", "next", "all"]
PREVIOUS = "@prev"
"""What marks a column of the row before."""

_AT_ONCE = 2**20  # rows read at once
_DAY, _ROW, _TABLE, _OWNER = "day_of_row", "key_of_row", "table_of_row", "owner_of_row"
_NO_DAY = np.int64(-(2**40))
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedTable:
    """A count table of linked tables: which rows, which columns, and how the rows of one person are weighted.

    Attributes:
        view: ``"people"`` for one row each; else of a table of rows: a person's ``"first"`` row, ``"next"`` for those
            after it, each with the one before (``"visits.severity@prev"``), or ``"all"``.
        table: Which table of rows; empty for people.
        columns: Whole names of columns.
        core: The core of weighting ``unit``; None for ``voice``. People and their first rows have weight 1.
        parent: The table whose rows these are rows of; empty where they are people's. Of these, ``"first"`` are those
            of every row, and have weights too.
    """

    view: View
    columns: tuple[str, ...]
    table: str = ""
    core: tuple[str, ...] | None = None
    parent: str = ""

    @property
    def weighted(self) -> bool:
        """Whether counts are in steps of the weights' grid."""
        return self.view in ("next", "all") or self.parent != ""

    @property
    def steps(self) -> int:
        """How many steps of the grid one person's voice has."""
        return STEPS if self.weighted else 1

    def sensitivity(self, relation: Relation) -> CountSensitivity:
        """Return how far one person can move the table, in steps; the proof is this file's text."""
        several = parse_relation(relation) == "replace_one"
        l2 = math.nextafter(math.sqrt(2) * self.steps, math.inf) if several else float(self.steps)
        voices = self.steps * (2 if several else 1)
        # Weighted by a core, n rows have n / sqrt(S) voices, and S >= n as every row is in some cell: sqrt(n) at most.
        l1 = float(voices) if self.core is None else voices * math.sqrt(MOST_ROWS)
        return CountSensitivity(l1=l1, l2=l2, changed_cells=None if self.weighted else voices)


@dataclass(frozen=True, slots=True)
class Tally:
    """What was not counted of linked tables: exact, for the custodian's eyes only.

    Attributes:
        rows: Rows in each table.
        people: Different people.
        no_key: Rows of each table without a usable key.
        repeated: Rows of people whose key another row has.
        orphans: Rows whose key is not among people; of rows of rows, those that name no row that counts.
        no_day: Rows without a day.
        early: Rows before the person's origin, or before the row that they are rows of.
        beyond: Rows beyond the most that count.
    """

    rows: dict[str, int] = field(default_factory=dict)
    people: int = 0
    no_key: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    orphans: dict[str, int] = field(default_factory=dict)
    no_day: dict[str, int] = field(default_factory=dict)
    early: dict[str, int] = field(default_factory=dict)
    beyond: dict[str, int] = field(default_factory=dict)


_TOLD = ("rows", "no_key", "orphans", "no_day", "early", "beyond")


@dataclass(frozen=True, slots=True, repr=False)
class HistoryRows:
    """The rows of one table that count, person by person in order.

    Attributes:
        person: Whose row each is.
        number: Which row of the person it is, from 1.
        count: How many rows each person has; of rows of rows, each row.
        codes: The cells of each column, derived ones included.
        row: For rows of rows, the place of the row that each is of, among those that count.
    """

    person: NDArray[Any]
    number: NDArray[Any]
    count: NDArray[Any]
    codes: dict[str, NDArray[Any]]
    row: NDArray[Any] | None = None

    @property
    def owner(self) -> NDArray[Any]:
        """Whose each row is: the place of the person, or of the row."""
        return self.person if self.row is None else self.row


@dataclass(frozen=True, slots=True, repr=False)
class Histories:
    """Everybody's rows as cells, in order and bounded: private, and never shown.

    Attributes:
        schema: What is public about them.
        people: The cells of each person's columns, by whole name, each table's count of rows included.
        rows: The rows of each table.
        size: How many people there are.
        tally: What was left out, for the custodian.
    """

    schema: LinkedSchema
    people: dict[str, NDArray[Any]]
    rows: dict[str, HistoryRows]
    size: int
    tally: Tally

    def counts(self, table: LinkedTable, *, weighted: bool = True) -> Ints:
        """Return a count table, in steps of its grid; its sensitivity is ``table.sensitivity``.

        Args:
            table: Which.
            weighted: False for each row to count one, for the custodian: nothing then bounds how far a person reaches.
        """
        shape = tuple(size_of(self.schema, name) for name in table.columns)
        if table.view == "people":
            cells = _cells([self.people[name] for name in table.columns], shape, self.size)
            return np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(np.int64)
        _check(table, self.schema, weighted)
        chosen = self._chosen(table)
        cells = _cells([self._column(table, name, chosen) for name in table.columns], shape, chosen.size)
        if not table.weighted or not weighted:
            return np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(np.int64)
        if table.core is None:
            weights = self._voices(table.table, chosen, table.view)
        else:
            weights = self._unit_weights(table, chosen)[self.rows[table.table].person[chosen]]
        # Sums of whole steps stay far below 2^53, so adding them up as floats is exact.
        summed = np.bincount(cells, weights=weights, minlength=math.prod(shape))
        return np.rint(summed).astype(np.int64).reshape(shape)

    def of_people(self, places: Ints) -> Histories:
        """Return some people with their rows.

        Args:
            places: Which, from 0, increasing.
        """
        mine = np.full(self.size, -1, dtype=np.int64)
        mine[places] = np.arange(len(places))
        rows: dict[str, HistoryRows] = {}
        here: dict[str, NDArray[np.bool_]] = {}
        for name, each in self.rows.items():
            kept = here[name] = mine[each.person] >= 0
            codes = {column: cells[kept] for column, cells in each.codes.items()}
            if each.row is None:
                rows[name] = HistoryRows(mine[each.person[kept]], each.number[kept], each.count[places], codes)
                continue
            theirs = here[self.schema.child(name).parent]
            row = (np.cumsum(theirs) - 1)[each.row[kept]]
            rows[name] = HistoryRows(mine[each.person[kept]], each.number[kept], each.count[theirs], codes, row)
        people = {name: cells[places] for name, cells in self.people.items()}
        return Histories(self.schema, people, rows, len(places), Tally())

    def _voices(self, table: str, chosen: Ints, view: View) -> Ints:
        """Return the steps of rows: each person's voice shared by their rows, and a row's by its own."""
        rows, before = self.rows[table], 1 if view == "next" else 0
        whole: Any = STEPS
        if rows.row is not None:
            parent = self.schema.child(table).parent
            whole = self._voices(parent, np.arange(self.rows[parent].number.size), "all")[rows.row[chosen]]
            if view == "first":
                return np.asarray(whole, dtype=np.int64)
        place = rows.number[chosen].astype(np.int64) - before
        n = rows.count[rows.owner[chosen]].astype(np.int64) - before
        shared: Ints = place * whole // n - (place - 1) * whole // n
        return shared

    def _chosen(self, table: LinkedTable) -> Ints:
        number = self.rows[table.table].number
        if table.view == "all":
            return np.arange(number.size)
        return np.flatnonzero(number == 1 if table.view == "first" else number > 1)

    def _column(self, table: LinkedTable, name: str, chosen: Ints) -> NDArray[Any]:
        rows = self.rows[table.table]
        if name in self.people:
            of_person: NDArray[Any] = self.people[name][rows.person[chosen]]
            return of_person
        for nested in self.schema.of_rows(table.table):
            if name in (f"{nested.name}.{COUNT}", exactly(nested.name)):
                return rows.codes[counted_as(name)][chosen]
        if rows.row is not None:
            above: dict[str, NDArray[Any]] = self.rows[table.parent].codes
            if name in (f"{table.table}.{COUNT}", exactly(table.table)):
                return np.asarray(above[counted_as(name)][rows.row[chosen]])
            if name.startswith(f"{table.parent}."):
                return np.asarray(above[name[len(table.parent) + 1 :]][rows.row[chosen]])
        own = name[len(table.table) + 1 :]
        if own.endswith(PREVIOUS):
            return rows.codes[own.removesuffix(PREVIOUS)][chosen - 1]
        return rows.codes[own][chosen]

    def _unit_weights(self, table: LinkedTable, chosen: Ints) -> Ints:
        assert table.core is not None
        shape = tuple(size_of(self.schema, name) for name in table.core)
        core = _cells([self._column(table, name, chosen) for name in table.core], shape, chosen.size)
        person = self.rows[table.table].person[chosen].astype(np.int64)
        pairs, several = np.unique(person * math.prod(shape) + core, return_counts=True)
        squares = np.bincount(pairs // math.prod(shape), weights=several.astype(np.float64) ** 2, minlength=self.size)
        found = np.maximum(squares, 1.0).astype(np.int64)
        return np.sqrt((STEPS * STEPS) // found).astype(np.int64)  # the floor of an exact root: far below 2^52


def _check(table: LinkedTable, schema: LinkedSchema, weighted: bool = True) -> None:
    """Refuse a table to which the proof of its sensitivity does not apply."""
    if table.view != "people" and table.parent != schema.child(table.table).parent:
        raise AssertionError("a table of rows of rows must say whose rows they are")
    if weighted and table.weighted and not set(table.core or ()) <= set(table.columns):
        raise AssertionError("a table weighted by a core must hold it")


def exactly(table: str) -> str:
    """Return the name under which people's exact numbers of rows go; no column is called so."""
    return f"{table}.@{COUNT}"


def counted_as(name: str) -> str:
    """Return the name under which rows hold how many rows they have themselves; no column is called so."""
    return f"@{name}"


def size_of(schema: LinkedSchema, name: str) -> int:
    """Return how many cells a column has, or one of the row before, or an exact number of rows."""
    table = name.removesuffix(f".@{COUNT}")
    return schema.child(table).most + 1 if table != name else schema.column(name.removesuffix(PREVIOUS)).size


def _cells(codes: Sequence[NDArray[Any]], shape: Sequence[int], rows: int) -> Ints:
    cells = np.zeros(rows, dtype=np.int64)
    for column, size in zip(codes, shape, strict=True):
        cells *= size
        cells += column
    return cells


class PrivateTables(Held[LinkedSchema]):
    """Private frames of people and of their rows, which answer in count tables and show nothing but their schema.

    Each frame may be of any engine that :class:`~escudo.table.PrivateTable` takes. Which rows count, in
    which order and with which weight is decided by public rules and each person's own rows: see ``_linked.py``. No
    value is an error.

    Args:
        frames: The data, a frame for each table of the schema.
        schema: Their public description.
        ledger: A ledger or its URL to charge releases to, or an account; without one, an account in memory.
        dataset: The name of the account in the ledger, opened for persons with ``schema.max_rows_per_person`` rows.
        relation: Which tables are neighbours, ``"replace_one"`` (a person with all rows) or ``"add_remove"``.
        people: The number of people, if it is public knowledge where neighbours need not share it.

    Raises:
        InputError: If a frame is missing or none, or ledger and dataset do not go together.
        SchemaError: If a frame lacks a column of the schema, or has it in a type that cannot hold it, or declares its
            keys to be texts where another declares numbers.

    >>> import polars as pl
    >>> schema = LinkedSchema.from_dict({
    ...     "linked": {"people": "patients", "dates": "days"},
    ...     "tables": {
    ...         "patients": {"key": "id", "origin_day": 0, "columns": {"smoke": ["no", "yes"]}},
    ...         "visits": {"parent": "patients", "foreign_key": "id", "order": "day", "most": 3,
    ...                    "start_edges": [0, 9, 99], "gap_edges": [0, 9, 99], "columns": {"ill": ["no", "yes"]}},
    ...     },
    ... })
    >>> people = pl.DataFrame({"id": [1, 2], "smoke": ["no", "yes"]})
    >>> visits = pl.DataFrame({"id": [1, 1, 7], "day": [12, 3, 5], "ill": ["no", "yes", "no"]})
    >>> tables = PrivateTables({"patients": people, "visits": visits}, schema)
    >>> tables
    PrivateTables(LinkedSchema(patients: 1 column; visits: 1 column, at most 3 rows each))
    >>> tables.counts([LinkedTable(view="first", table="visits", columns=("patients.smoke", "visits.ill"))])[0].tolist()
    [[0, 1], [0, 0]]
    """

    __slots__ = ("_sources",)

    def __init__(
        self,
        frames: Mapping[str, object],
        schema: LinkedSchema,
        ledger: Ledger | Account | str | None = None,
        dataset: str | None = None,
        *,
        relation: str | None = None,
        people: int | None = None,
    ):
        if not isinstance(schema, LinkedSchema):
            raise InputError(
                f"schema must be an escudo LinkedSchema; got {type(schema).__name__}. Read one with LinkedSchema.read."
            )
        if not isinstance(frames, Mapping):
            raise InputError(f"frames must map each table's name to its frame; got {type(frames).__name__}.")
        for name in frames:
            if name not in schema.tables:
                hint = did_you_mean(str(name)[:60], schema.tables)
                raise InputError(f"the schema has no table {name!r:.60}; it has {', '.join(schema.tables)}.{hint}")
        if absent := [name for name in schema.tables if name not in frames]:
            raise InputError(f"frames lacks the table {absent[0]!r} of the schema; give a frame for each.")
        self._schema = schema
        self._sources = {name: _opened(name, frames[name], schema) for name in schema.tables}
        for home in (None, *_with_row_keys(schema)):
            _check_kinds(self._sources, _keys_of(schema, home))
        self._agree(ledger, dataset, relation, people=people)

    @property
    def schema(self) -> LinkedSchema:
        """What is public about the tables."""
        return self._schema

    @property
    def unit(self) -> Unit:
        """Whom a guarantee protects: one person with all their rows."""
        return "person"

    @property
    def neighbours(self) -> Neighbours:
        """Between which tables what is asked of these promises, and what is public about all of them.

        Replacing one person leaves the number of people as it was: it is counted then, once, unless it was stated.
        """
        if self._neighbours is None:
            stated = self._stated
            if stated.relation == "replace_one" and stated.people is None:
                stated = replace(stated, people=self.people_count() or None, counted=True)
            self._neighbours = stated
        return self._neighbours

    def people_count(self) -> int:
        """Return how many different people there are; public where one is replaced by another, private elsewhere."""
        source, people = self._sources[self._schema.people], self._schema.reading(self._schema.people)
        return shielded(source.engine, "counting people", lambda: count_records(source, people))

    def histories(self) -> Histories:
        """Return everybody's rows as cells, in order and bounded, all of them in memory.

        Guarantee:
            None: they are private.
        """
        gathering = Gathering.of(self._sources, self._schema)
        with tracking("Reading tables", total=len(self._schema.tables)) as advance:

            def pieces(table: str) -> Iterator[pl.DataFrame]:
                yield from gathering.packed(self._sources[table], table)
                advance(1)

            return shielded(self._engines, "reading linked tables", lambda: _histories(gathering, pieces))

    @contextmanager
    def gathered(self, *, once: bool = False) -> Iterator[Gathered]:
        """Bring everybody's rows together, in bounded memory, and let sums be asked of them as often as wanted.

        The tables are read once: where they lie on workers, what is needed of them stays there meanwhile. If only some
        do, the others are packed here and sent there: no row comes from the workers.

        Args:
            once: Whether sums are asked for once, so that nothing need stay.

        Raises:
            InputError: If some tables lie on Spark, and others on Dask.

        Guarantee:
            None: they are private.
        """
        gathering, sources = Gathering.of(self._sources, self._schema), self._sources
        together: Any = _together_here
        cluster = one_cluster((f"table {name!r}", source.engine) for name, source in sources.items())
        if cluster == "pyspark":
            from escudo.table._spark import spark_together as together
        elif cluster == "dask":
            from escudo.table._dask import dask_together as together
        opened = together(gathering, sources, once=once)
        summed = shielded(self._engines, "reading linked tables", opened.__enter__)
        try:
            yield Gathered(
                gathering, lambda find: shielded(self._engines, "reading linked tables", lambda: summed(find))
            )
        finally:
            shielded(self._engines, "reading linked tables", lambda: opened.__exit__(None, None, None))

    @property
    def _engines(self) -> str:
        return " and ".join(dict.fromkeys(source.engine for source in self._sources.values()))

    def counts(self, tables: Sequence[LinkedTable]) -> list[Ints]:
        """Return exact count tables, in steps of each one's grid.

        Guarantee:
            None: exact counts are private. Their sensitivity is ``LinkedTable.sensitivity``.
        """
        with self.gathered(once=True) as everybody:
            return everybody.counts(tables)

    def tally(self) -> Tally:
        """Return what is not counted, exactly.

        Guarantee:
            None: it is for the custodian's eyes only.
        """
        tables = self._schema.tables

        def told(people: Histories) -> Ints:
            lost = [getattr(people.tally, kind).get(table, 0) for kind in _TOLD for table in tables]
            return np.array([people.size, people.tally.repeated, *lost], dtype=np.int64)

        with self.gathered(once=True) as everybody:
            size, repeated, *lost = everybody.summed(told).tolist()
        by_kind = {kind: dict(zip(tables, lost[i * len(tables) :], strict=False)) for i, kind in enumerate(_TOLD)}
        return Tally(people=size, repeated=repeated, **by_kind)

    def with_column(self, name: str, column: Column) -> PrivateTables:
        """Return the same tables with this column in the place of the one with this whole name, such as in finer bins.

        Raises:
            SchemaError: If no table has such a column, or its frame cannot hold it so.
        """
        return self._like(schema=self._schema.with_column(name, column))

    def with_account(self, account: Account) -> PrivateTables:
        """Return the same tables, whose releases are charged to another account."""
        return self._like(account)

    def under(
        self, *, relation: str | None = None, rows: int | None = None, people: int | None = None
    ) -> PrivateTables:
        """Return the same tables with another relation, or another public number of people."""
        if rows is not None:
            raise InputError(
                "of linked tables the number of people may be public, not that of rows; give people instead."
            )
        stated = self._stated
        return self._like(relation=relation or stated.relation, people=stated.people if people is None else people)

    def _like(self, account: Account | None = None, schema: LinkedSchema | None = None, **stated: Any) -> PrivateTables:
        terms = {"relation": self._stated.relation, "people": self._stated.people, **stated}
        frames = {name: source.frame for name, source in self._sources.items()}
        return PrivateTables(frames, schema or self._schema, account or self._account, **terms)

    def __repr__(self) -> str:
        return f"PrivateTables({self._schema!r})"

    def _repr_html_(self) -> str:
        engines = ", ".join(f"{name}: {source.engine}" for name, source in self._sources.items())
        return f"<p>Private tables ({escape(engines)}); only their schema is shown.</p>{self._schema._repr_html_()}"


def _opened(name: str, frame: object, schema: LinkedSchema) -> Source:
    try:
        source = open_source(frame, schema.reading(name))
    except (InputError, SchemaError) as error:
        raise type(error)(f"table {name!r}: {error}") from None
    return source


def _check_kinds(sources: Mapping[str, Source], keys: Mapping[str, str]) -> None:
    """Raise if keys are declared as texts in one table and as numbers in another, so that none could match."""
    (home, own), *others = keys.items()
    wanted = _kind(sources[home], own)
    for name, key in others:
        if (kind := _kind(sources[name], key)) and wanted and kind != wanted:
            raise SchemaError(
                f"table {name!r}: its key {key!r} is of {kind} and key {own!r} of {home!r} is of {wanted}, so that no "
                "row would be found. Cast one of them: keys in text files, sheets and tables of SQLite are of texts."
            )


def _kind(source: Source, key: str) -> str:
    """Return what a key is of by the type that its frame declares; nothing if each value decides it for itself."""
    if source.engine == "dask":  # whose partitions may hold other types than the frame says
        return ""
    kinds: dict[str, Column] = {"texts": Categorical(key, ("a",)), "numbers": Numeric(key, 0, 1)}
    fits = [kind for kind, column in kinds.items() if _takes(source, column)]
    return fits[0] if len(fits) == 1 else ""


def _takes(source: Source, column: Column) -> bool:
    try:
        open_source(source.frame, Schema((column,)))
    except SchemaError:
        return False
    return True


# ---- reading


def _with_row_keys(schema: LinkedSchema) -> tuple[str, ...]:
    """Return the tables whose rows have rows, or are called by a key of their own."""
    return tuple(dict.fromkeys(child.parent or child.name for child in schema.children if child.key or child.parent))


def _keys_of(schema: LinkedSchema, of: str | None) -> dict[str, str]:
    """Return by table the column with the keys of a table's rows, and of what names them; None for those of people."""
    if of is not None:
        return {of: schema.child(of).key or ""} | {one.name: one.row_key or "" for one in schema.of_rows(of)}
    return {name: schema.key if name == schema.people else schema.child(name).foreign_key for name in schema.tables}


def _whole_keys(sources: Mapping[str, Source], schema: LinkedSchema, of: str | None = None) -> bool:
    """Whether every key is of a type of whole numbers that 64 bits hold: then they are compared as they are.

    Args:
        sources: The tables.
        schema: What is public about them.
        of: The table whose rows' keys are meant; None for those of people.
    """
    for name, key in _keys_of(schema, of).items():
        if sources[name].engine == "dask":  # whose partitions may hold other types than the frame says
            return False
        dtype = sources[name].lazy({key: None}).collect_schema()[key]
        if not dtype.is_integer() or type(dtype).__name__ in {"UInt64", "Int128", "UInt128"}:
            return False
    return True


Find = Callable[[Histories], Ints]
"""What makes whole numbers of some people with all their rows; those of everybody are the sums over any parts."""


@dataclass(frozen=True)
class Gathering:
    """How rows travel to where the others of their person are: packed, those of all tables under the same names.

    Attributes:
        schema: The tables.
        whole: Whether the keys of people are whole numbers, which are compared as they are,
        whole_rows: and which tables have keys of rows that are, or name such.
    """

    schema: LinkedSchema
    whole: bool
    whole_rows: frozenset[str]

    @classmethod
    def of(cls, sources: Mapping[str, Source], schema: LinkedSchema) -> Gathering:
        """Return it for some frames, of which nothing but types is looked at."""
        whole = {home for home in _with_row_keys(schema) if _whole_keys(sources, schema, home)}
        named = {child.name for child in schema.children if {child.name, child.parent} & whole}
        return cls(schema, _whole_keys(sources, schema), frozenset(named))

    @cached_property
    def packings(self) -> dict[str, Packing]:
        """How the cells of each table's rows are packed."""
        return {name: Packing.of_cells(self.schema.schema_of(name).fields) for name in self.schema.tables}

    def __getstate__(self) -> tuple[Any, ...]:  # workers find what is cached by themselves
        return self.schema, self.whole, self.whole_rows

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(("schema", "whole", "whole_rows"), state, strict=True):
            object.__setattr__(self, name, value)

    def types(self, table: str | None = None) -> pl.Schema:
        """Return the columns of packed rows with their types: of one table, or of all of them under the same names."""
        import polars as pl

        key = pl.Int64 if self.whole else pl.String
        if table is not None:
            row = {_ROW: pl.Int64 if table in self.whole_rows else pl.String} if self._row_key(table) else {}
            words = dict.fromkeys(self.packings[table].names, pl.Int64)
            return pl.Schema({PERSON: key, _DAY: pl.Int64, **row, **words})
        keyed = {name for name in self.schema.tables if self._row_key(name)}
        row = {_ROW: pl.Int64 if keyed <= self.whole_rows else pl.String} if keyed else {}
        names: list[str] = max((packing.names for packing in self.packings.values()), key=len)
        words = dict.fromkeys(names, pl.Int64)
        return pl.Schema({PERSON: key, PERSON_NUMBER: pl.Int64, _TABLE: pl.Int32, _DAY: pl.Int64, **row, **words})

    def _row_key(self, table: str) -> str | None:
        _, *row_keys = self.schema.reading(table).keys
        return row_keys[0] if row_keys else None

    def stored(self, table: str) -> list[str]:
        """Return the columns that are read of a table."""
        return read_names(self.schema.reading(table))

    def packed(self, source: Source, table: str) -> Iterator[pl.DataFrame]:
        """Yield a table's rows in pieces: keys that can be compared across tables, days, and cells in words."""
        import polars as pl

        yield pl.DataFrame(schema=self.types(table))  # a table may have no rows
        if source.engine == "pyspark":
            from escudo.table._spark import spark_packed

            yield from spark_packed(self, source, table)
        elif source.engine == "dask":
            for part in source.frame.to_native()[self.stored(table)].to_delayed():
                yield from self.packed(Source.partition(part.compute()), table)
        else:
            yield from self._packed(source, table)

    def _packed(self, source: Source, table: str) -> Iterator[pl.DataFrame]:
        import polars as pl

        schema, reading = self.schema, self.schema.reading(table)
        own, row_key = schema.schema_of(table).fields, self._row_key(table)
        time = schema.origin if table == schema.people else schema.child(table).order
        columns: dict[str, Any] = {column.name: column for column in own}
        if time is not None:
            columns[time] = reading[time]
        raw = source.lazy({**columns, **dict.fromkeys(reading.keys)}, reading.columns)
        dtypes = raw.collect_schema()
        chosen = [sortable(column, dtypes[column.name]).alias(f"c{place}") for place, column in enumerate(own)]
        if time is not None:
            chosen.append(number(time, dtypes[time]).alias(_DAY))
        key, *_ = person_columns(reading.keys[0], dtypes[reading.keys[0]], seed=0)
        if row_key is not None:
            chosen.append(person_columns(row_key, dtypes[row_key], seed=0)[0].alias(_ROW))
        keyed = raw.implementation.is_polars()
        for piece in stream(raw.select(key, *chosen), _AT_ONCE):
            if not piece.height:
                continue
            found = {PERSON: _keys(piece[PERSON], self.whole, keyed)}
            found[_DAY] = pl.Series(np.zeros(piece.height, dtype=np.int64) if time is None else _days(piece[_DAY]))
            if row_key is not None:
                found[_ROW] = _keys(piece[_ROW].rename(PERSON), table in self.whole_rows, keyed)
            cells = {column.name: cells_of(column, piece[f"c{place}"]) for place, column in enumerate(own)}
            words = self.packings[table].packed(cells)
            yield pl.DataFrame({**found, **{name: pl.Series(word) for name, word in words.items()}})

    def sent(self, source: Source, table: str) -> pl.DataFrame:
        """Return the rows of a table that is here, packed, as they travel to a cluster where others are."""
        import polars as pl

        return pl.concat(self.travelling(source, table))

    def travelling(self, source: Source, table: str) -> Iterator[pl.DataFrame]:
        """Yield a table's rows as they travel, with a hash of whose they are and which table they are of."""
        import polars as pl

        types, place = self.types(), self.schema.tables.index(table)
        for rows in self.packed(source, table):
            missing = [pl.lit(None, kind).alias(name) for name, kind in types.items() if name not in rows.columns]
            where = [key_numbers(rows[PERSON], seed=0).alias(PERSON_NUMBER), pl.lit(place, pl.Int32).alias(_TABLE)]
            yield rows.with_columns(missing).with_columns(where).select(*types).cast(types)

    def histories(self, rows: pl.DataFrame) -> Histories:
        """Return the histories of people, all of whose rows these are."""
        import polars as pl

        def pieces(table: str) -> Iterator[pl.DataFrame]:
            types = self.types(table)
            yield rows.filter(pl.col(_TABLE) == self.schema.tables.index(table)).select(*types).cast(types)

        return _histories(self, pieces)

    def summed(self, find: Find, parts: Iterable[pl.DataFrame]) -> Ints:
        """Return what is found in all rows, of parts that hold all rows of each person in them."""
        import polars as pl

        found = find(self.histories(pl.DataFrame(schema=self.types())))
        for rows in parts:
            found = found + find(self.histories(rows))
        return found


@dataclass(frozen=True, slots=True, repr=False)
class Gathered:
    """Everybody's rows, brought together person by person: sums over people can be asked of them, and nothing else.

    Attributes:
        gathering: How they travelled.
        summed: What adds up what is found in parts of the people, each with all of their rows.
    """

    gathering: Gathering
    summed: Callable[[Find], Ints]

    def counts(self, tables: Sequence[LinkedTable]) -> list[Ints]:
        """Return count tables, as :meth:`Histories.counts` does."""
        schema = self.gathering.schema
        for table in tables:
            _check(table, schema)
        shapes = [tuple(size_of(schema, name) for name in table.columns) for table in tables]

        def found(people: Histories) -> Ints:
            none = np.zeros(0, dtype=np.int64)
            return np.concatenate([none, *(people.counts(table).ravel() for table in tables)])

        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return [each.reshape(shape) for each, shape in zip(np.split(self.summed(found), ends), shapes, strict=True)]


@contextmanager
def _together_here(
    gathering: Gathering, sources: Mapping[str, Source], *, once: bool
) -> Iterator[Callable[[Find], Ints]]:
    """Bring rows together on this machine, in memory or on its disk."""

    def packed() -> Iterator[pl.DataFrame]:
        with tracking("Reading tables", total=len(sources)) as advance:
            for table, source in sources.items():
                yield from gathering.travelling(source, table)
                advance(1)

    with PersonParts(packed()) as parts:
        everybody = None if parts.whole is None else gathering.histories(parts.whole)
        yield lambda find: gathering.summed(find, parts) if everybody is None else find(everybody)


def _keys(series: pl.Series, whole: bool, keyed: bool) -> pl.Series:
    import polars as pl

    if whole:
        return series.cast(pl.Int64).alias(PERSON)
    if series.dtype == pl.String:
        return series if keyed else series.to_frame().select(key_of_text(PERSON)).to_series()
    distinct = series.unique()
    return series.replace_strict(distinct, person_keys(PERSON, distinct.to_list()), return_dtype=pl.String)


def _days(series: pl.Series) -> Ints:
    """Return whole days, and one that stands for none where there is no finite one."""
    values = series.cast(float).fill_null(np.nan).to_numpy()
    whole = np.floor(values)
    usable = np.abs(whole) < 2.0**31  # nothing in a calendar is further away
    return np.where(usable, np.where(usable, whole, 0.0), float(_NO_DAY)).astype(np.int64)


@dataclass(frozen=True, slots=True, repr=False)
class _People:
    """People as they are read: their keys, each once, with origin and cells."""

    keys: pl.Series
    origin: Ints
    codes: dict[str, NDArray[Any]]
    tally: dict[str, int]

    @classmethod
    def of(cls, gathering: Gathering, pieces: Iterator[pl.DataFrame]) -> _People:
        import polars as pl

        schema, packing = gathering.schema, gathering.packings[gathering.schema.people]
        everybody = pl.concat(pieces)
        named = everybody.drop_nulls(PERSON)
        # Of several rows with one key the first by content counts, whichever came first in the table.
        kept = named.sort(PERSON, *packing.names, _DAY).unique(subset=PERSON, keep="first", maintain_order=True)
        if schema.origin is not None:
            origin = kept[_DAY].to_numpy().copy()
        else:
            day = _NO_DAY if schema.origin_day is None else int(schema.origin_day)
            origin = np.full(kept.height, day, dtype=np.int64)
        cells = packing.cells(kept, schema.person.names)
        codes = {f"{schema.people}.{name}": code for name, code in cells.items()}
        told = {
            "rows": everybody.height,
            "no_key": everybody.height - named.height,
            "repeated": named.height - kept.height,
        }
        return cls(kept[PERSON], origin, codes, told)


def _histories(gathering: Gathering, pieces: Callable[[str], Iterator[pl.DataFrame]]) -> Histories:
    """Return the histories of the people whose packed rows are given, table by table."""
    schema = gathering.schema
    people = _People.of(gathering, pieces(schema.people))
    tally = Tally(people=len(people.keys), repeated=people.tally["repeated"])
    tally.rows[schema.people], tally.no_key[schema.people] = people.tally["rows"], people.tally["no_key"]
    codes, rows = dict(people.codes), {}
    owners: dict[str, _Owners] = {"": _Owners.of_people(people)}
    for child in schema.children:
        packing, above = gathering.packings[child.name], owners[child.parent]
        found, owners[child.name] = _rows(pieces(child.name), child, packing, owners[""], above, tally)
        rows[child.name] = found
        binned = np.searchsorted(np.asarray(child.count_edges[1:]), found.count, side="right")
        many = {
            f"{child.name}.{COUNT}": binned.astype(np.min_scalar_type(child.column(COUNT).size)),
            exactly(child.name): found.count,
        }
        if child.parent:
            rows[child.parent].codes.update({counted_as(name): cells for name, cells in many.items()})
        else:
            codes |= many
    return Histories(schema, codes, rows, tally.people, tally)


@dataclass(frozen=True, slots=True, repr=False)
class _Owners:
    """Whose rows a table's are: people, or rows of people; and how rows name them.

    Attributes:
        person: Which person each is, or has it.
        origin: The day from which the days of its rows are counted.
        named: The keys of each, with its place: the person's; of rows the person's place and the key of the row.
    """

    person: NDArray[Any]
    origin: Ints
    named: pl.DataFrame

    @classmethod
    def of_people(cls, people: _People) -> _Owners:
        import polars as pl

        places = np.arange(len(people.keys), dtype=np.int32)
        return cls(places, people.origin, pl.DataFrame({PERSON: people.keys, "place": places}))

    @classmethod
    def of_rows(cls, person: NDArray[Any], days: Ints, keys: pl.Series | None) -> _Owners:
        import polars as pl

        if keys is None:  # they have no rows, so that nobody asks
            return cls(person, np.zeros(0, dtype=np.int64), pl.DataFrame())
        named = pl.DataFrame({PERSON: person, _ROW: keys, "place": np.arange(person.size, dtype=np.int32)})
        # Of several rows of one person with the same key the first in order is meant.
        once = named.drop_nulls(_ROW).unique(subset=[PERSON, _ROW], keep="first", maintain_order=True)
        return cls(person, days, once)

    def places(self, keys: pl.DataFrame) -> pl.Series:
        """Return the place of whoever rows name, null where there is none."""
        import polars as pl

        if not self.named.height:  # of which keys may have no type yet
            return pl.Series("place", [None], dtype=pl.Int32).new_from_index(0, keys.height)
        return keys.join(self.named, on=keys.columns, how="left", maintain_order="left")["place"]


def _rows(
    pieces: Iterator[pl.DataFrame],
    child: ChildTable,
    packing: Packing,
    people: _Owners,
    owners: _Owners,
    tally: Tally,
) -> tuple[HistoryRows, _Owners]:
    """Read a table of rows, and put those of each owner in order, the first ``most`` of them."""
    import polars as pl

    size = owners.origin.size
    read: list[pl.DataFrame] = []
    told = dict.fromkeys(_TOLD, 0)
    for piece in pieces:
        place_of = people.places(piece.select(PERSON))
        nameless = piece[PERSON].is_null()
        if child.parent:
            place_of = owners.places(pl.DataFrame({PERSON: place_of, _ROW: piece[_ROW]}))
            nameless = nameless | piece[_ROW].is_null()
        known = place_of.is_not_null().to_numpy()
        place = place_of.fill_null(0).to_numpy()
        day = piece[_DAY].to_numpy()
        dated = day != _NO_DAY
        origin = owners.origin[place] if size and child.order is not None else np.zeros(place.size, dtype=np.int64)
        late = (day >= origin) | (origin == _NO_DAY)
        kept = known & dated & late
        told["rows"] += piece.height
        told["no_key"] += int(nameless.sum())
        told["orphans"] += int((~known).sum()) - int(nameless.sum())
        told["no_day"] += int((known & ~dated).sum())
        told["early"] += int((known & dated & ~late).sum())
        whose = pl.Series(_OWNER, place, dtype=pl.Int32)
        read.append(piece.drop(PERSON).with_columns(whose).filter(pl.Series(kept)))
    rows = pl.concat(read)
    keys = [] if child.key is None else _by_key(rows[_ROW].dtype)
    rows = rows.sort(_OWNER, _DAY, *packing.names, *keys)
    owner, day = rows[_OWNER].to_numpy(), rows[_DAY].to_numpy()
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if owner.size else np.zeros(0, dtype=np.int64)
    lengths = np.diff(np.r_[first, owner.size])
    place_in = np.arange(owner.size) - np.repeat(first, lengths)
    kept = place_in < child.most
    told["beyond"] = int((~kept).sum())
    for key in _TOLD:
        getattr(tally, key)[child.name] = told[key]
    nth = (place_in[kept] + 1).astype(np.int32)
    rows = rows.filter(pl.Series(kept))
    found = packing.cells(rows, child.schema.names)
    derived: dict[str, NDArray[Any]] = {NUMBER: nth}
    if child.order is not None:
        since = np.where(owners.origin[owner[first]] == _NO_DAY, day[first], owners.origin[owner[first]])
        gap = np.r_[0, np.diff(day)] if day.size else day
        ahead = np.where(place_in == 0, day - np.repeat(since, lengths), gap)[kept]
        derived = {START: ahead, GAP: ahead, NUMBER: nth}
    for name, values in derived.items():
        column = child.column(name)
        assert isinstance(column, Numeric)
        inner = column.boundaries[1:-1]
        found[name] = np.searchsorted(inner, values, side="right").astype(np.min_scalar_type(column.size))
    owner, day = owner[kept], day[kept]
    person = owners.person[owner] if child.parent else owner
    count = np.bincount(owner, minlength=size).astype(np.int32)
    history = HistoryRows(person, nth, count, found, owner if child.parent else None)
    return history, _Owners.of_rows(person, day, None if child.key is None else rows[_ROW])


def _by_key(kind: pl.DataType) -> list[pl.Expr]:
    """Return by what rows that tie in all else are put in order: their keys, none before any.

    Whole numbers have the same order among texts as by themselves: somebody's key may decide of which type a column is.
    """
    import polars as pl

    key = pl.col(_ROW)
    if kind == pl.Int64:
        return [key]
    number = pl.when(key.str.starts_with("\0n")).then(key.str.slice(2).str.to_integer(base=16, strict=False))
    return [number, key.str.len_chars(), key]
