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
   numbers by size and all else by length, then by characters.

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

The engine that holds a table encodes its rows; they are then put in order here, in some 30 bytes for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import did_you_mean
from escudo.errors import InputError, SchemaError
from escudo.privacy import Neighbours, Relation, Unit, parse_relation
from escudo.table._columns import Column, Numeric
from escudo.table._counts import CountSensitivity
from escudo.table._encode import cells_of, number, sortable
from escudo.table._frames import Source, open_source, shielded, stream
from escudo.table._linked_schema import COUNT, GAP, MOST_ROWS, NUMBER, START, ChildTable, LinkedSchema
from escudo.table._persons import PERSON, key_of_text, person_columns, person_keys
from escudo.table._table import Held

if TYPE_CHECKING:
    import polars as pl

    from escudo.privacy import Account, Ledger

STEPS = 4096
"""How many steps of the weights' grid one voice has."""

View = Literal["people", "first", "next", "all"]
PREVIOUS = "@prev"
"""What marks a column of the row before."""

_AT_ONCE = 2**20  # rows read at once
_DAY, _ROW = "day_of_row", "key_of_row"
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
        if table.parent != self.schema.child(table.table).parent:
            raise AssertionError("a table of rows of rows must say whose rows they are")
        chosen = self._chosen(table)
        cells = _cells([self._column(table, name, chosen) for name in table.columns], shape, chosen.size)
        if not table.weighted or not weighted:
            return np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(np.int64)
        if table.core is None:
            weights = self._voices(table.table, chosen, table.view)
        else:
            if not set(table.core) <= set(table.columns):
                raise AssertionError("a table weighted by a core must hold it")
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

    Each frame may be of any engine that :class:`~escudo.table.PrivateTable` takes, except Dask. Which rows count, in
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
        SchemaError: If a frame lacks a column of the schema, or has it in a type that cannot hold it.

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
        source = self._sources[self._schema.people]
        return shielded(
            source.engine,
            "counting people",
            lambda: len(_People.read(self._sources, self._schema, only_keys=True).keys),
        )

    def histories(self) -> Histories:
        """Return everybody's rows as cells, in order and bounded: what count tables are made of.

        Guarantee:
            None: they are private.
        """
        engines = " and ".join(dict.fromkeys(source.engine for source in self._sources.values()))
        return shielded(engines, "reading linked tables", lambda: _histories(self._sources, self._schema))

    def counts(self, tables: Sequence[LinkedTable]) -> list[Ints]:
        """Return exact count tables, in steps of each one's grid.

        Guarantee:
            None: exact counts are private. Their sensitivity is ``LinkedTable.sensitivity``.
        """
        histories = self.histories()
        return [histories.counts(table) for table in tables]

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
    if source.engine == "dask":
        raise InputError(
            f"table {name!r}: linked tables are not taken from Dask; write it to Parquet files, or use Spark or DuckDB."
        )
    return source


# ---- reading


def _whole_keys(sources: Mapping[str, Source], schema: LinkedSchema, of: str | None = None) -> bool:
    """Whether every key is of a type of whole numbers that 64 bits hold: then they are compared as they are.

    Args:
        sources: The tables.
        schema: What is public about them.
        of: The table whose rows' keys are meant; None for those of people.
    """
    keys = {name: schema.key if name == schema.people else schema.child(name).foreign_key for name in sources}
    if of is not None:
        keys = {of: schema.child(of).key or ""} | {one.name: one.row_key or "" for one in schema.of_rows(of)}
    for name, key in keys.items():
        dtype = sources[name].lazy({key: None}).collect_schema()[key]
        if not dtype.is_integer() or type(dtype).__name__ in {"UInt64", "Int128", "UInt128"}:
            return False
    return True


class _Whole(NamedTuple):
    """Whether the keys of people are whole numbers, which are compared as they are, and those of rows."""

    people: bool
    rows: bool = False


def _pieces(
    source: Source, schema: LinkedSchema, table: str, whole: _Whole, *, only_keys: bool = False
) -> Iterator[tuple[pl.Series, pl.DataFrame]]:
    """Yield a table's rows in pieces: keys that can be compared across tables, and cells and days under plain names.

    Keys of rows are among the latter.
    """
    reading = schema.reading(table)
    key, *row_keys = reading.keys
    own = () if only_keys else schema.schema_of(table).fields
    time = None if only_keys else schema.origin if table == schema.people else schema.child(table).order
    columns: dict[str, Any] = {column.name: column for column in own}
    if time is not None:
        columns[time] = reading[time]
    raw = source.lazy({**columns, **dict.fromkeys(reading.keys)})
    dtypes = raw.collect_schema()
    chosen = [sortable(column, dtypes[column.name]).alias(f"c{place}") for place, column in enumerate(own)]
    if time is not None:
        chosen.append(number(time, dtypes[time]).alias(_DAY))
    person, *_ = person_columns(key, dtypes[key], seed=0)
    for row_key in row_keys:
        chosen.append(person_columns(row_key, dtypes[row_key], seed=0)[0].alias(_ROW))
    keyed = raw.implementation.is_polars()
    for piece in stream(raw.select(person, *chosen), _AT_ONCE):
        if row_keys:
            named = _keys(piece[_ROW].rename(PERSON), whole.rows, keyed)
            piece = piece.with_columns(named.alias(_ROW))
        yield _keys(piece[PERSON], whole.people, keyed), piece


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
    def read(cls, sources: Mapping[str, Source], schema: LinkedSchema, *, only_keys: bool = False) -> _People:
        import polars as pl

        whole, parts = _whole_keys(sources, schema), []
        fields = () if only_keys else schema.person.fields
        for keys, piece in _pieces(sources[schema.people], schema, schema.people, _Whole(whole), only_keys=only_keys):
            found = {PERSON: keys}
            for place, column in enumerate(fields):
                cells = cells_of(column, piece[f"c{place}"])
                found[f"c{place}"] = pl.Series(cells.astype(np.min_scalar_type(column.size)))
            if _DAY in piece.columns:
                found[_DAY] = pl.Series(_days(piece[_DAY]))
            parts.append(pl.DataFrame(found))
        kind = pl.Int64 if whole else pl.String
        everybody = pl.concat(parts) if parts else pl.DataFrame({PERSON: pl.Series([], dtype=kind)})
        named = everybody.drop_nulls(PERSON)
        # Of several rows with one key the first by content counts, whichever came first in the table.
        kept = named.sort(named.columns).unique(subset=PERSON, keep="first", maintain_order=True)
        origin = np.full(kept.height, _NO_DAY if schema.origin_day is None else int(schema.origin_day), dtype=np.int64)
        if _DAY in kept.columns:
            origin = kept[_DAY].to_numpy().copy()
        empty = np.zeros(0, dtype=np.uint8)
        codes = {
            f"{schema.people}.{column.name}": kept[f"c{place}"].to_numpy() if f"c{place}" in kept.columns else empty
            for place, column in enumerate(fields)
        }
        told = {
            "rows": everybody.height,
            "no_key": everybody.height - named.height,
            "repeated": named.height - kept.height,
        }
        return cls(kept[PERSON], origin, codes, told)


def _histories(sources: Mapping[str, Source], schema: LinkedSchema) -> Histories:
    with tracking("Reading tables", total=len(schema.tables)) as advance:
        people = _People.read(sources, schema)
        advance(1)
        size, whole = len(people.keys), _whole_keys(sources, schema)
        tally = Tally(people=size, repeated=people.tally["repeated"])
        tally.rows[schema.people], tally.no_key[schema.people] = people.tally["rows"], people.tally["no_key"]
        codes, rows = dict(people.codes), {}
        owners: dict[str, _Owners] = {"": _Owners.of_people(people)}
        for child in schema.children:
            whole_rows = (
                _whole_keys(sources, schema, child.parent or child.name) if child.key or child.parent else False
            )
            pieces = _pieces(sources[child.name], schema, child.name, _Whole(whole, whole_rows))
            found, owners[child.name] = _rows(pieces, child, owners[""], owners[child.parent], tally)
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
            advance(1)
    return Histories(schema, codes, rows, size, tally)


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
    pieces: Iterator[tuple[pl.Series, pl.DataFrame]], child: ChildTable, people: _Owners, owners: _Owners, tally: Tally
) -> tuple[HistoryRows, _Owners]:
    """Read a table of rows, and put those of each owner in order, the first ``most`` of them."""
    import polars as pl

    size, fields = owners.origin.size, child.schema.fields
    whose, days = [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.int64)]
    cells: list[list[NDArray[Any]]] = [[np.zeros(0, dtype=np.min_scalar_type(column.size))] for column in fields]
    named: list[pl.Series] = []
    told = dict.fromkeys(("rows", "no_key", "orphans", "no_day", "early"), 0)
    for keys, piece in pieces:
        place_of = people.places(pl.DataFrame({PERSON: keys}))
        nameless = keys.is_null()
        if child.parent:
            place_of = owners.places(pl.DataFrame({PERSON: place_of, _ROW: piece[_ROW]}))
            nameless = nameless | piece[_ROW].is_null()
        known = place_of.is_not_null().to_numpy()
        place = place_of.fill_null(0).to_numpy()
        day = _days(piece[_DAY]) if child.order is not None else np.zeros(piece.height, dtype=np.int64)
        dated = day != _NO_DAY
        origin = owners.origin[place] if size and child.order is not None else np.zeros(place.size, dtype=np.int64)
        late = (day >= origin) | (origin == _NO_DAY)
        kept = known & dated & late
        told["rows"] += piece.height
        told["no_key"] += int(nameless.sum())
        told["orphans"] += int((~known).sum()) - int(nameless.sum())
        told["no_day"] += int((known & ~dated).sum())
        told["early"] += int((known & dated & ~late).sum())
        whose.append(place[kept].astype(np.int32))
        days.append(day[kept])
        if child.key is not None:
            named.append(piece[_ROW].filter(pl.Series(kept)))
        for parts, column, number_of in zip(cells, fields, range(len(fields)), strict=True):
            parts.append(cells_of(column, piece[f"c{number_of}"])[kept].astype(np.min_scalar_type(column.size)))
    owner, day = np.concatenate(whose), np.concatenate(days)
    codes = [np.concatenate(parts) for parts in cells]
    row_keys = (pl.concat(named) if named else pl.Series(_ROW, [], dtype=pl.String)) if child.key is not None else None
    ordering: list[NDArray[Any]] = [*_ranks(row_keys), *_words(codes, [column.size for column in fields]), day, owner]
    order = np.lexsort(ordering)
    owner, day, codes = owner[order], day[order], [part[order] for part in codes]
    row_keys = None if row_keys is None else row_keys.gather(order)
    del order, ordering
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if owner.size else np.zeros(0, dtype=np.int64)
    lengths = np.diff(np.r_[first, owner.size])
    place_in = np.arange(owner.size) - np.repeat(first, lengths)
    kept = place_in < child.most
    told["beyond"] = int((~kept).sum())
    for key in ("rows", "no_key", "orphans", "no_day", "early", "beyond"):
        getattr(tally, key)[child.name] = told[key]
    nth = (place_in[kept] + 1).astype(np.int32)
    found = {column.name: part[kept] for column, part in zip(fields, codes, strict=True)}
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
    row_keys = None if row_keys is None else row_keys.filter(pl.Series(kept))
    person = owners.person[owner] if child.parent else owner
    count = np.bincount(owner, minlength=size).astype(np.int32)
    rows = HistoryRows(person, nth, count, found, owner if child.parent else None)
    return rows, _Owners.of_rows(person, day, row_keys)


def _ranks(keys: pl.Series | None) -> list[NDArray[Any]]:
    """Return by what rows that tie in all else are put in order, for ``lexsort``: their keys, none before any."""
    import polars as pl

    if keys is None:
        return []
    if keys.dtype == pl.Int64:
        return [keys.fill_null(0).to_numpy(), keys.is_not_null().to_numpy()]
    every = keys.drop_nulls().unique().to_frame(_ROW)
    ordered = every.sort(pl.col(_ROW).str.len_chars(), _ROW).with_row_index("rank", offset=1)
    ranks = keys.to_frame(_ROW).join(ordered, on=_ROW, how="left", maintain_order="left")["rank"]
    return [ranks.fill_null(0).to_numpy()]


def _words(codes: Sequence[NDArray[Any]], sizes: Sequence[int]) -> list[Ints]:
    """Pack the cells of rows into as few 64-bit words as possible, the first one last, as ``lexsort`` wants it."""
    words: list[Ints] = []
    room = 0
    for code, size in zip(codes, sizes, strict=True):
        if size <= room:
            words[-1] = words[-1] * size + code
            room //= size
        else:
            words.append(code.astype(np.int64))
            room = 2**62 // size
    return words[::-1]
