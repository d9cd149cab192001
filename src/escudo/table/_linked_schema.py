"""Linked tables: people, one row each, and tables that hold several rows of each person, described as one schema.

::

    [linked]
    people = "patients"

    [tables.patients]
    key = "patient"
    origin = "entry"                      # a date column of people, from which days are counted
    [tables.patients.columns.smoke]
    type = "categorical"
    levels = ["never", "former", "current"]

    [tables.visits]
    parent = "patients"
    foreign_key = "patient"
    order = "date"
    most = 40                             # rows of one person that count, and that are made
    count_edges = [0, 1, 2, 3, 5, 8, 12, 20]
    start_edges = [0, 30, 90, 365, 1825]  # days from the origin to a person's first row
    gap_edges = [0, 30, 180, 400, 3650]   # days from one row to the next
    [tables.visits.columns.severity]
    type = "ordinal"
    levels = ["none", "mild", "moderate", "severe"]

Each table's columns are described as in any schema (:mod:`escudo.table._columns`). Columns of all tables have one name,
``"visits.severity"``, and each table of rows has four more: ``visits.count``, how many rows a person has;
``visits.start`` and ``visits.gap``, the days before a row; ``visits.number``, which row of the person it is.

**Rows of rows** name their row among those *of the same person*, whom they name too::

    [tables.visits]
    key = "visit"                         # what a visit is called among the visits of one person

    [tables.prescriptions]
    parent = "visits"
    foreign_key = "patient"               # whose it is
    row_key = "visit"                     # which of that person's visits it belongs to
    most = 5                              # rows of one visit that count, and that are made

So nobody else's rows have a say in which rows count. ``prescriptions.count`` is how many rows a visit has and
``prescriptions.number`` which row of the visit it is. With an order there are ``start``, from the day of the visit on,
and ``gap``; without one the rows of a visit are a set, put in order by what is in them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from escudo._card import first_of, number_of
from escudo._validate import did_you_mean, positive_integer
from escudo.errors import InputError, RefusedError, SchemaError
from escudo.privacy import Neighbours, parse_relation
from escudo.table._columns import Column, Numeric, spec_of_column
from escudo.table._schema import TEXT_KEYS, Schema, schema_card, schema_from_document
from escudo.table._schema_files import (
    _comment,
    _key,
    is_linked,
    linked_document,
    read_text,
    toml_pairs,
    write_text,
)
from escudo.table._values import ISO, encodable

Weighting = Literal["auto", "voice", "unit"]
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)

MOST_ROWS = 4096
"""The most rows of one person that may count: each has at least one step of the weights' public grid."""

COUNT, START, GAP, NUMBER = "count", "start", "gap", "number"
DERIVED = (COUNT, START, GAP, NUMBER)
"""What every table of rows has beside its own columns."""

DAYS = "days"
"""What ``dates`` says where the order is a number of days and no date."""

_FIRST_DAY, _LAST_DAY = -719_162.0, 2_932_896.0  # those of the calendar, from 1970 on
_MOST_DAYS = 10_000_000
_PEOPLE_KEYS = ("key", "origin", "origin_day", *TEXT_KEYS)
_CHILD_KEYS = (
    *(
        "parent",
        "foreign_key",
        "row_key",
        "key",
        "order",
        "most",
        "count_edges",
        "start_edges",
        "gap_edges",
        "weighting",
        "events",
    ),
    *("confirmed", *TEXT_KEYS),
)
COUNT_EDGES = (0, 1, 2, 3, 5, 8, 12, 20)
"""Where the bins of the number of rows begin if nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTable:
    """A table of rows that belong to people, or to rows of theirs: visits, diagnoses, prescriptions of a visit.

    Args:
        name: What it is called.
        schema: Its columns, and how a text file of it is read; without person id.
        foreign_key: The column that says whose row it is.
        order: The column that puts a person's rows in order: a date, or a number of days. Rows of rows may have none.
        most: The most rows of one person that count, or of one row for rows of rows: the first ones.
        count_edges: Where the bins of the number of rows begin: 0, 1 and 2 at least, as far as ``most`` reaches.
        start_edges: The bins of the days from the person's origin to the first row.
        gap_edges: The bins of the days from one row to the next.
        weighting: How the rows of one person share that person's voice: ``"voice"``, ``"unit"``, or ``"auto"`` for the
            plan's public rule.
        events: Whether rows are events that rarely repeat, such as diagnoses: then ``"auto"`` is ``"unit"``.
        confirmed: Whether somebody vouched that ``most`` and the edges are public.
        parent: The table whose rows these are rows of; empty where that is the table of people.
        row_key: For rows of rows, the column that says to which of the person's rows each belongs.
        key: The column that names a row among those of one person, for rows of rows to belong to.

    Raises:
        SchemaError: If an argument is not usable; names the table and the argument.
    """

    name: str
    schema: Schema
    foreign_key: str
    order: str | None = None
    most: int
    count_edges: tuple[int, ...] = COUNT_EDGES
    start_edges: tuple[float, ...] = ()
    gap_edges: tuple[float, ...] = ()
    weighting: Weighting = "auto"
    events: bool = False
    confirmed: bool = True
    parent: str = ""
    row_key: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        _check_table_name(self.name)
        if self.schema.person_id is not None:
            raise SchemaError(f"table {self.name!r}: person_id is no setting here; foreign_key says whose row it is.")
        self._check_keys()
        if self.foreign_key in self.schema:
            raise SchemaError(
                f"table {self.name!r}: column {self.foreign_key!r} is the foreign key and identifies people; take it "
                "out of the columns."
            )
        if self.order in self.schema:
            raise SchemaError(
                f"table {self.name!r}: column {self.order!r} is the order of the rows, which is released as start and "
                "gap; take it out of the columns."
            )
        _check_columns(self.name, self.schema)
        for name in self.schema.names:
            if name in DERIVED:
                raise SchemaError(
                    f"table {self.name!r}: no column can be called {name!r}: every table of rows has that; rename it."
                )
        try:
            most = positive_integer("most", self.most)
        except InputError as error:
            raise SchemaError(f"table {self.name!r}: {error}") from None
        if most > MOST_ROWS:
            raise SchemaError(f"table {self.name!r}: most must be at most {MOST_ROWS:,}.")
        object.__setattr__(self, "most", most)
        object.__setattr__(self, "count_edges", self._checked_counts())
        for key in ("start_edges", "gap_edges"):
            edges = getattr(self, key)
            if self.order is None and edges == ():
                continue
            if self.order is None:
                raise SchemaError(
                    f"table {self.name!r}: {key} are days, and there is no order; name one, or take it out."
                )
            object.__setattr__(self, key, self._checked_days(key, edges))
        if self.weighting not in WEIGHTINGS:
            hint = did_you_mean(str(self.weighting)[:60], WEIGHTINGS)
            raise SchemaError(
                f"table {self.name!r}: weighting must be one of {', '.join(map(repr, WEIGHTINGS))}.{hint}"
            )
        for key in ("events", "confirmed"):
            if not isinstance(getattr(self, key), bool):
                raise SchemaError(f"table {self.name!r}: {key} must be true or false.")

    def _check_keys(self) -> None:
        """Check the columns that say whose row it is, and which."""
        _check_column_name(self.name, "foreign_key", self.foreign_key)
        if self.order is not None:
            _check_column_name(self.name, "order", self.order)
        elif not self.parent:
            raise SchemaError(f"table {self.name!r}: order is missing: a date, or a number of days.")
        if (self.row_key is None) == bool(self.parent):
            raise SchemaError(
                f"table {self.name!r}: row_key is missing: the column that says to which row of {self.parent!r} each "
                "belongs, among those of the same person."
                if self.parent
                else f"table {self.name!r}: row_key is for rows of rows; its rows are people's. Take it out."
            )
        if self.parent and self.key is not None:
            raise SchemaError(f"table {self.name!r}: key is for rows that have rows, and these can have none.")
        others = {"foreign_key": self.foreign_key, "order": self.order}
        for what, name in (("row_key", self.row_key), ("key", self.key)):
            if name is None:
                continue
            _check_column_name(self.name, what, name)
            for other, taken in others.items():
                if name == taken:
                    raise SchemaError(f"table {self.name!r}: {what} and {other} are the same column; name another one.")
            if name in self.schema:
                raise SchemaError(
                    f"table {self.name!r}: column {name!r} is the {what} and says which row it is; take it out of the "
                    "columns."
                )
        if self.row_key == NUMBER:
            raise SchemaError(f"table {self.name!r}: row_key cannot be called {NUMBER!r}, which rows have; rename it.")

    def _checked_counts(self) -> tuple[int, ...]:
        edges = _listed(self.name, "count_edges", self.count_edges)
        whole = all(isinstance(edge, int) and not isinstance(edge, bool) for edge in edges)
        if not whole or not all(low < high for low, high in pairwise(edges)):
            raise SchemaError(f"table {self.name!r}: count_edges must be increasing whole numbers.")
        kept = tuple(edge for edge in edges if edge <= self.most)
        needed = tuple(range(min(self.most, 2) + 1))
        if kept[: len(needed)] != needed:
            raise SchemaError(
                f"table {self.name!r}: count_edges must begin with {', '.join(map(str, needed))}: people without a "
                "row, and with a single one, are counted apart."
            )
        return kept

    def _checked_days(self, key: str, edges: object) -> tuple[float, ...]:
        days = _listed(self.name, key, edges)
        usable = all(
            isinstance(day, int | float) and not isinstance(day, bool) and 0 <= day <= _MOST_DAYS for day in days
        )
        if not usable or len(days) < 2 or not all(float(day).is_integer() for day in days):
            raise SchemaError(f"table {self.name!r}: {key} must be at least two whole numbers of days, from 0 on.")
        if days[0] != 0 or not all(low < high for low, high in pairwise(days)):
            raise SchemaError(f"table {self.name!r}: {key} must begin with 0 and increase.")
        return tuple(int(day) for day in days)

    def column(self, name: str) -> Column:
        """Return one of its columns, or one that every table of rows has."""
        if name == COUNT:
            return Numeric(COUNT, edges=(*self.count_edges, self.most + 1), integer=True)
        if name in (START, GAP):
            return Numeric(name, edges=self.start_edges if name == START else self.gap_edges, integer=True)
        if name == NUMBER:
            doubled = [1 << power for power in range(self.most.bit_length())]
            return Numeric(NUMBER, edges=(*doubled, self.most + 1), integer=True)
        return self.schema[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Its own columns, then those that every table of rows has."""
        return (*self.schema.names, *(DERIVED if self.order is not None else (COUNT, NUMBER)))


@dataclass(frozen=True, kw_only=True)
class _Reading(Schema):
    """How a table is read whose rows have names among those of one person, or name one."""

    row_key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say whose row it is, and which."""
        return (*super().keys, self.row_key)


@dataclass(frozen=True, kw_only=True)
class LinkedSchema:
    """The public description of people and of the tables that hold their rows.

    Args:
        people: What the table of people is called.
        key: Its column that says who somebody is.
        person: Its columns, and how a text file of it is read; without person id.
        children: The tables of rows.
        origin: A date column of people from which days are counted; it may be among the columns or not.
        origin_day: Instead of it, one public day for everybody.
        dates: How dates are written in text files, such as ``"%Y-%m-%d"``; ``"days"`` where they are numbers of days.
        notes: Remarks for people, written as comments at the top; no part of the schema's identity.

    Raises:
        SchemaError: If two tables share a name, there is no table of rows, or the origin is not one.

    >>> schema = LinkedSchema.from_dict({
    ...     "linked": {"people": "patients"},
    ...     "tables": {
    ...         "patients": {"key": "id", "origin": "entry", "columns": {"smoke": ["no", "yes"]}},
    ...         "visits": {"parent": "patients", "foreign_key": "id", "order": "date", "most": 10,
    ...                    "start_edges": [0, 30, 365], "gap_edges": [0, 30, 365], "columns": {"ill": ["no", "yes"]}},
    ...     },
    ... })
    >>> schema
    LinkedSchema(patients: 1 column; visits: 1 column, at most 10 rows each)
    >>> schema.column("visits.count").labels
    ('[0, 1)', '[1, 2)', '[2, 3)', '[3, 5)', '[5, 8)', '[8, 11]')
    """

    people: str
    key: str
    person: Schema
    children: tuple[ChildTable, ...]
    origin: str | None = None
    origin_day: float | None = None
    dates: str = ISO
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _check_table_name(self.people)
        _check_column_name(self.people, "key", self.key)
        # Rows of rows come after the rows they are of.
        object.__setattr__(self, "children", tuple(sorted(self.children, key=lambda child: bool(child.parent))))
        object.__setattr__(self, "notes", tuple(self.notes))
        if self.person.person_id is not None:
            raise SchemaError(f"table {self.people!r}: person_id is no setting here; key says who somebody is.")
        if self.key in self.person:
            raise SchemaError(
                f"table {self.people!r}: column {self.key!r} is the key and identifies people; take it out of the "
                "columns."
            )
        _check_columns(self.people, self.person)
        if not self.children:
            raise SchemaError("linked tables need a table of rows beside that of people, such as [tables.visits].")
        names = [self.people, *(child.name for child in self.children)]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise SchemaError(f"two tables are called {name!r}; rename one.")
        for child in self.children:
            if child.parent:
                self._check_nested(child)
        if self.dates != DAYS:
            _clock("dates", self.dates)  # raises if it is no format
        self._check_origin()

    def _check_nested(self, child: ChildTable) -> None:
        """Raise unless a table of rows of rows can have its parent."""
        parent = next((one for one in self.children if one.name == child.parent), None)
        if parent is None or parent is child:
            raise SchemaError(
                f"table {child.name!r}: parent must be {self.people!r}, the table of people, or a table of their rows; "
                f"got {child.parent!r:.60}." + did_you_mean(str(child.parent)[:60], self.tables)
            )
        if parent.parent:
            raise SchemaError(
                f"table {child.name!r}: its parent {parent.name!r} holds rows of rows already, and rows of these are "
                f"not taken. Make {parent.parent!r} its parent and join columns of {parent.name!r} to it, or count its "
                f"rows in a column of {parent.name!r}."
            )
        if parent.key is None:
            raise SchemaError(
                f"table {parent.name!r}: key is missing: the column that names a row among those of one person, which "
                f"row_key of {child.name!r} refers to."
            )
        if parent.most * child.most > MOST_ROWS:
            raise SchemaError(
                f"table {child.name!r}: {parent.most} rows of {parent.name!r} with {child.most} rows each would be "
                f"more than the {MOST_ROWS:,} of one person that may count; lower one most."
            )

    def _check_origin(self) -> None:
        if (self.origin is None) == (self.origin_day is None):
            raise SchemaError(
                f"table {self.people!r}: say from when days are counted: origin, a date column of people, or "
                "origin_day, one public day for everybody; one of them."
            )
        if self.origin is not None:
            _check_column_name(self.people, "origin", self.origin)
            if self.origin == self.key:
                raise SchemaError(f"table {self.people!r}: origin is the key; name a date column.")
            return
        day: Any = self.origin_day  # anything that a file or a program may hold
        try:
            found = float(day) if self.dates == DAYS and not isinstance(day, bool) else _clock("day", ISO).day(day)
        except (TypeError, ValueError):
            found = float("nan")
        if not abs(found) <= _MOST_DAYS or not found.is_integer():
            wanted = "a whole number of days" if self.dates == DAYS else "a day, such as '2020-01-01'"
            raise SchemaError(f"table {self.people!r}: origin_day must be {wanted}.")
        object.__setattr__(self, "origin_day", found)

    # -- reading and writing -------------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LinkedSchema:
        """Build one from plain data, in the form of the TOML file.

        Raises:
            SchemaError: If the description is not usable; names the table and the remedy.
        """
        if not is_linked(document):
            raise SchemaError("no linked tables are described; write [linked] with people = '...', and [tables.NAME].")
        _known("the schema", document, ("linked", "tables"))
        linked, tables = document["linked"], document.get("tables")
        _known("the section linked", linked, ("people", "dates"))
        people = linked.get("people")
        if not isinstance(tables, Mapping) or not isinstance(people, str) or people not in tables:
            raise SchemaError("the section linked must name the table of people, and [tables.NAME] describe it.")
        for name, table in tables.items():
            if not isinstance(table, Mapping) or not isinstance(table.get("columns"), Mapping):
                raise SchemaError(f"table {name!r:.60}: no columns are described; write [tables.NAME.columns.COLUMN].")
            _known(f"table {name!r:.60}", table, (*(_PEOPLE_KEYS if name == people else _CHILD_KEYS), "columns"))
        person = tables[people]
        for key in ("key",):
            _needed(people, person, key)
        return cls(
            people=people,
            key=person["key"],
            person=_schema_of(people, person),
            children=tuple(_child(name, table, people, tables) for name, table in tables.items() if name != people),
            origin=person.get("origin"),
            origin_day=person.get("origin_day"),
            dates=linked.get("dates", ISO),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; :meth:`from_dict` reads it back."""
        linked: dict[str, Any] = {"people": self.people}
        if self.dates != ISO:
            linked["dates"] = self.dates
        return {"linked": linked, "tables": {name: self._told(name) for name in self.tables}}

    def _told(self, name: str) -> dict[str, Any]:
        schema = self.schema_of(name).to_dict()
        told: dict[str, Any]
        if name == self.people:
            told = {"key": self.key}
            if self.origin is not None:
                told["origin"] = self.origin
            else:
                assert self.origin_day is not None
                told["origin_day"] = int(self.origin_day) if self.dates == DAYS else _shown_day(self.origin_day)
        else:
            child = self.child(name)
            told = {"parent": child.parent or self.people, "foreign_key": child.foreign_key}
            named = {key: getattr(child, key) for key in ("row_key", "key", "order")}
            told |= {key: value for key, value in named.items() if value is not None} | {"most": child.most}
            for key in ("count_edges", "start_edges", "gap_edges"):
                if getattr(child, key):
                    told[key] = list(getattr(child, key))
            if child.weighting != "auto":
                told["weighting"] = child.weighting
            if child.events:
                told["events"] = True
            if not child.confirmed:
                told["confirmed"] = False
        return {**told, **schema.get("table", {}), "columns": schema["columns"]}

    def to_toml(self) -> str:
        """Return it as TOML text, notes as comments."""
        document = self.to_dict()
        blocks = [_comment(self.notes)] if self.notes else []
        blocks.append("[linked]\n" + toml_pairs(document["linked"]))
        for name in self.tables:
            head = f"tables.{_key(name)}"
            settings = {key: value for key, value in document["tables"][name].items() if key != "columns"}
            blocks.append(f"[{head}]\n{toml_pairs(settings)}")
            for column in self.schema_of(name).fields:
                note = _comment([column.note]) if column.note else ""
                blocks.append(f"{note}[{head}.columns.{_key(column.name)}]\n{toml_pairs(spec_of_column(column))}")
        return "\n".join(blocks)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> LinkedSchema:
        """Read a file: TOML, or JSON in the same form.

        Raises:
            ParseError: If the text is not in its format.
            SchemaError: If it is, but describes no usable linked tables.
            InputError: If the file cannot be read.
        """
        file = Path(path)
        document = linked_document(file)
        try:
            return cls.from_dict(document)
        except SchemaError as error:
            raise SchemaError(f"{file}: {error}") from None

    def write(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write it as TOML, or as JSON if the path ends so.

        Raises:
            InputError: If the file exists and ``overwrite`` is false, or cannot be written.
        """
        file = Path(path)
        if file.suffix.lower() == ".toml":
            text = self.to_toml()
        elif file.suffix.lower() == ".json":
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        else:
            raise InputError(f"cannot write a schema to '{file}': the name must end in .toml or .json.")
        write_text(file, text, overwrite)

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables' names, people first."""
        return (self.people, *(child.name for child in self.children))

    def child(self, name: str) -> ChildTable:
        """Return a table of rows.

        Raises:
            SchemaError: If there is none of that name.
        """
        for child in self.children:
            if child.name == name:
                return child
        raise SchemaError(f"no table of rows is called {name!r:.60}." + did_you_mean(str(name)[:60], self.tables[1:]))

    def schema_of(self, name: str) -> Schema:
        """Return the columns of a table."""
        return self.person if name == self.people else self.child(name).schema

    @cached_property
    def columns(self) -> dict[str, Column]:
        """All columns by their whole name, those that every table of rows has included."""
        found: dict[str, Column] = {f"{self.people}.{name}": column for name, column in self.person.columns.items()}
        for child in self.children:
            found |= {f"{child.name}.{name}": child.column(name) for name in child.names}
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' whole names."""
        return tuple(self.columns)

    def column(self, name: str) -> Column:
        """Return a column by its whole name.

        Raises:
            SchemaError: If there is none.
        """
        if isinstance(name, str) and name in self.columns:
            return self.columns[name]
        hint = did_you_mean(str(name)[:80], self.columns)
        raise SchemaError(f"no column is called {name!r:.80}; names are TABLE.COLUMN, such as {self.names[0]!r}.{hint}")

    @property
    def made(self) -> LinkedSchema:
        """What describes tables that a model makes: days since the origin, where that is no column they have."""
        if self.origin is None or self.origin in self.person:
            return self
        return replace(self, origin=None, origin_day=0.0, dates=DAYS)

    def with_column(self, name: str, column: Column) -> LinkedSchema:
        """Return the same tables with this column in the place of the one with this whole name, such as in finer bins.

        Raises:
            SchemaError: If no table has such a column of its own; the gap between rows is one of these.
        """
        table = self.table_of(name)
        own = name.removeprefix(f"{table}.")
        if table == self.people:
            return replace(self, person=self.person.with_columns(replace(column, name=own)))
        child = self.child(table)
        if own == GAP and isinstance(column, Numeric):
            days = [math.ceil(edge) for edge in column.boundaries]  # a day is whole, so that cells stay what they are
            days[-1] = max(days[-1], days[-2] + 1)
            changed = replace(child, gap_edges=tuple(days))
        else:
            changed = replace(child, schema=child.schema.with_columns(replace(column, name=own)))
        return replace(self, children=tuple(changed if one is child else one for one in self.children))

    def table_of(self, name: str) -> str:
        """Return the table that a column's whole name begins with, once it is sure that there is such a column."""
        self.column(name)
        return max((table for table in self.tables if name.startswith(f"{table}.")), key=len)

    @property
    def unit(self) -> Literal["person"]:
        """Whom a guarantee protects: one person with all their rows in all tables."""
        return "person"

    @property
    def max_rows_per_person(self) -> int:
        """The most rows of one person that count, in all tables."""
        return 1 + sum(child.most * (self.child(child.parent).most if child.parent else 1) for child in self.children)

    @property
    def of_people(self) -> tuple[ChildTable, ...]:
        """The tables whose rows are people's, not those of other rows."""
        return tuple(child for child in self.children if not child.parent)

    def of_rows(self, table: str) -> tuple[ChildTable, ...]:
        """Return the tables that hold rows of a table's rows."""
        return tuple(child for child in self.children if table and child.parent == table)

    def neighbours(
        self, *, relation: str = "replace_one", rows: int | None = None, people: int | None = None
    ) -> Neighbours:
        """Return between which tables a promise holds: one person differs, with all rows in all tables.

        Args:
            relation: Which are neighbours.
            rows: Refused: of linked tables, that of people may be public, not that of rows.
            people: The number of people, if it is public.
        """
        if rows is not None:
            raise InputError(
                "of linked tables the number of people may be public, not that of rows; give people instead."
            )
        return Neighbours(
            relation=parse_relation(relation),
            unit="person",
            max_rows_per_person=self.max_rows_per_person,
            people=people,
        )

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """What nobody confirmed to be public: columns by their whole names, and tables for their bounds and edges."""
        found = [f"{self.people}.{name}" for name in self.person.unconfirmed]
        for child in self.children:
            found += [] if child.confirmed else [child.name]
            found += [f"{child.name}.{name}" for name in child.schema.unconfirmed]
        return tuple(found)

    @property
    def confirmed(self) -> bool:
        """Whether everything is confirmed to be public knowledge."""
        return not self.unconfirmed

    def confirm(self, names: Iterable[str] | None = None) -> LinkedSchema:
        """Return it with the named columns and tables (all by default) confirmed to be public knowledge.

        Raises:
            SchemaError: If there is no such column or table, or it has nothing yet that could be confirmed.
        """
        waiting = self.unconfirmed if names is None else tuple([names] if isinstance(names, str) else names)
        for name in waiting:
            if name not in self.tables[1:]:
                self.column(name)

        def own(table: str) -> list[str]:
            return [name[len(table) + 1 :] for name in waiting if name in self.columns and self.table_of(name) == table]

        def columns(table: str) -> Schema:
            chosen = [name for name in own(table) if name in self.schema_of(table)]
            return self.schema_of(table).confirm(chosen) if chosen else self.schema_of(table)

        return replace(
            self,
            person=columns(self.people),
            children=tuple(
                replace(child, schema=columns(child.name), confirmed=child.confirmed or child.name in waiting)
                for child in self.children
            ),
        )

    def require_confirmed(self, *, source: str = "SCHEMA", data: str = "DATA") -> None:
        """Refuse to go on unless everything is confirmed.

        Raises:
            RefusedError: Names what is not, and how to confirm it.
        """
        del data
        if self.confirmed:
            return
        raise RefusedError(
            f"the schema was drafted from the data and not confirmed: {first_of(self.unconfirmed)}.\n"
            "  A table's name stands for its most and its edges. Once they are public knowledge:\n"
            f"    escudo schema confirm {source}\n"
            "Nothing was spent."
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the schema in canonical JSON, to name it in release records."""
        document = self.to_dict()
        tables = [
            [name, {**table, "columns": list(table["columns"].items())}] for name, table in document["tables"].items()
        ]
        text = json.dumps([document["linked"], tables], sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def reading(self, name: str) -> Schema:
        """Return how a table is read: its columns, its keys, and what orders it as a column of days."""
        schema = self.schema_of(name)
        child = None if name == self.people else self.child(name)
        key, time = (self.key, self.origin) if child is None else (child.foreign_key, child.order)
        clock = () if time is None or time in schema else (_clock(time, self.dates),)
        read = replace(schema, fields=(*schema.fields, *clock), person_id=key, max_rows_per_person=1, notes=())
        row_key = None if child is None else child.key or child.row_key
        if row_key is None:
            return read
        return _Reading(**{one.name: getattr(read, one.name) for one in fields(read) if one.init}, row_key=row_key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return sum(len(self.schema_of(name)) for name in self.tables)

    def __repr__(self) -> str:
        def told(name: str) -> str:
            columns = len(self.schema_of(name))
            text = f"{name}: {columns} column{'' if columns == 1 else 's'}"
            if name == self.people:
                return text
            each = f"of each of {self.child(name).parent}" if self.child(name).parent else "each"
            return f"{text}, at most {number_of(self.child(name).most, 'row')} {each}"

        return f"LinkedSchema({'; '.join(map(told, self.tables))})"

    def _repr_html_(self) -> str:
        return "".join(f"<h4>{escape(name)}</h4>{schema_card(self.schema_of(name))}" for name in self.tables)


def confirm_linked_file(path: Path, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Confirm columns and tables in a file of linked tables, which is written afresh, its comments at the top.

    Returns:
        What was not confirmed before and now is.
    """
    schema = LinkedSchema.read(path)
    after = schema.confirm(names)
    changed = tuple(name for name in schema.unconfirmed if name not in after.unconfirmed)
    if changed:
        text = read_text(path)
        comments = tuple(line.lstrip("# ").rstrip() for line in text.splitlines() if line.startswith("#"))
        replace(after, notes=comments if path.suffix.lower() == ".toml" else ()).write(path, overwrite=True)
    return changed


def _child(name: str, table: Mapping[str, Any], people: str, tables: Mapping[str, Any]) -> ChildTable:
    for key in ("parent", "foreign_key", "most"):
        _needed(name, table, key)
    parent = table["parent"]
    if not isinstance(parent, str) or parent not in tables or parent == name:
        raise SchemaError(
            f"table {name!r:.60}: parent must be {people!r}, the table of people, or another table of their rows."
        )
    nested = "" if parent == people else parent
    for key in ("row_key",) if nested else ("order",):
        _needed(name, table, key)
    for key in ("start_edges", "gap_edges") if "order" in table else ():
        _needed(name, table, key)
    settings = {key: table[key] for key in _CHILD_KEYS if key in table and key not in (*TEXT_KEYS, "parent")}
    return ChildTable(name=name, schema=_schema_of(name, table), parent=nested, **settings)


def _schema_of(name: str, table: Mapping[str, Any]) -> Schema:
    settings = {key: table[key] for key in TEXT_KEYS if key in table}
    try:
        return schema_from_document({"columns": table["columns"], **({"table": settings} if settings else {})})
    except SchemaError as error:
        raise SchemaError(f"table {name!r:.60}: {error}") from None


def _known(what: str, section: Mapping[Any, Any], keys: Sequence[str]) -> None:
    for key in section:
        if key not in keys:
            hint = did_you_mean(str(key)[:60], keys)
            raise SchemaError(f"{what} has no key {key!r:.60}; it has {', '.join(keys)}.{hint}")


def _needed(name: str, table: Mapping[str, Any], key: str) -> None:
    if key not in table:
        raise SchemaError(f"table {name!r:.60}: {key} is missing.")


def _check_table_name(name: object) -> None:
    usable = isinstance(name, str) and name != "" and encodable(name) and not set(name) & set('.@"/\\\0')
    if not usable or name in (".", ".."):
        raise SchemaError("a table's name must be text without dots, '@', slashes and quotes; rename it.")


def _check_columns(table: str, schema: Schema) -> None:
    for name in schema.names:
        if "@" in name:
            raise SchemaError(f"table {table!r}: column {name!r} has an '@', which marks the row before; rename it.")


def _check_column_name(table: str, key: str, name: object) -> None:
    if not isinstance(name, str) or not name or not encodable(name):
        raise SchemaError(f"table {table!r}: {key} must be the name of a column.")


def _listed(name: str, key: str, value: object) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise SchemaError(f"table {name!r}: {key} must be a list.")
    return list(value)


def _clock(name: str, dates: str) -> Numeric:
    """Return a column of days as wide as a calendar."""
    if dates == DAYS:
        return Numeric(name, -float(_MOST_DAYS), float(_MOST_DAYS), 1, missing=True)
    return Numeric(name, _FIRST_DAY, _LAST_DAY, 1, date=dates, missing=True)


def _shown_day(day: float) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=int(day))).isoformat()
