"""Linked tables for the eyes of their custodian only: a first schema, and how tables fit theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import narwhals as nw
import numpy as np

from escudo._card import CUSTODIAN_ONLY
from escudo.errors import InputError
from escudo.table._check import SchemaCheck, check
from escudo.table._columns import Numeric
from escudo.table._draft import DRAFT_NOTES, draft
from escudo.table._files import as_lazy, hide_values, open_data
from escudo.table._linked import PrivateTables, Tally
from escudo.table._linked_schema import MOST_ROWS, ChildTable, LinkedSchema
from escudo.table._schema import Schema
from escudo.table._where import where_rows_are

if TYPE_CHECKING:
    import polars as pl

_EDGES = 5  # bins of days
_STARTS = {False: (0, 30, 90, 365, 1825, 36500), True: (0, 1, 7, 30, 365, 36500)}  # from the origin, and from a row
_NAMED = 0.9  # of a table's rows name a row of another, at least, to be rows of rows
_USUAL_COUNTS = (0, 1, 2, 3, 5, 8, 12, 20, 40, 80, 200, 500, 1000)


def draft_linked(data: Mapping[str, Any], people: str) -> LinkedSchema:
    """Draft a schema of linked tables from their data; everything in it is unconfirmed.

    The key is a column that all tables have, with another value in each row of people. Rows are ordered by their first
    column of dates, and days are counted from the first one of people, or from the first day of all where people have
    none. A table is one of rows of rows if it shares with another a column beside the key that tells the other's rows
    of one person apart, and in which nearly all of its own rows name one of them.

    Args:
        data: A path or a frame for each table.
        people: Which of them is that of people.

    Raises:
        InputError: If the tables have no key in common, or a table of rows no dates to order it by.
        SchemaError: If a table has no column that is usable beside them.

    **Guarantee**: none. Nothing may be released from a draft before a person confirms it.
    """
    if people not in data:
        raise InputError(f"no table is called {people!r:.60}; there are {', '.join(data)}.")
    if len(data) < 2:
        raise InputError("linked tables are people and at least one table of rows; give both.")
    frames = {name: as_lazy(one)[0] for name, one in data.items()}
    names = {name: list(frame.collect_schema()) for name, frame in frames.items()}
    key = _key(frames[people], [one for one in names[people] if all(one in several for several in names.values())])
    drafts = {name: _drafted(name, one) for name, one in data.items()}
    times = {name: [column for column in schema.fields if _dates(column)] for name, schema in drafts.items()}
    rows = [name for name in data if name != people]
    with hide_values("the tables could not be read to the end. Is a row damaged?"):
        parents = _parents(frames, rows, names, key, {name: [c.name for c in found] for name, found in times.items()})
    row_keys = {parent: column for parent, column in parents.values()}
    for name in rows:
        if not times[name] and name not in parents:
            raise InputError(
                f"table {name!r} has no column of dates to order its rows by; write the schema by hand, with "
                'order = "..." and, for numbers of days, dates = "days" under [linked].'
            )
    clocks = [column for name in data for column in times[name][:1]]
    formats = {column.date for column in clocks if isinstance(column, Numeric)}
    if len(formats) > 1:
        raise InputError("the tables write dates in different ways; make them alike, or write the schema by hand.")
    origin = times[people][0].name if times[people] else None
    first = min(column.lower for column in clocks if isinstance(column, Numeric) and column.lower is not None)
    children: list[ChildTable] = []
    with hide_values("the tables could not be read to the end. Is a row damaged?"):
        for name in sorted(rows, key=lambda one: one in parents):
            order = times[name][0].name if times[name] else None
            parent, row_key = parents.get(name, ("", None))
            own_key = row_keys.get(name)
            keys = [key] if row_key is None else [key, row_key]
            days, counts = _days(frames[name].select(*keys, *([] if order is None else [order])), keys, order)
            left = (key, order, row_key, own_key)
            room = MOST_ROWS // next((one.most for one in children if one.name == parent), 1)
            most = min(next((edge for edge in _USUAL_COUNTS if edge >= counts), MOST_ROWS), room)
            edges: dict[str, Any] = {"start_edges": _STARTS[bool(parent)], "gap_edges": _edges(days)}
            children.append(
                ChildTable(
                    name=name,
                    schema=_without(drafts[name], left),
                    foreign_key=key,
                    order=order,
                    most=most,
                    count_edges=tuple(edge for edge in _USUAL_COUNTS if edge <= max(most // 2, min(most, 2))),
                    confirmed=False,
                    parent=parent,
                    row_key=row_key,
                    key=own_key,
                    **(edges if order is not None else {}),
                )
            )
    return LinkedSchema(
        people=people,
        key=key,
        person=_without(drafts[people], (key, origin)),
        children=tuple(children),
        origin=origin,
        origin_day=None if origin is not None else first,
        dates=next(iter(formats)) or "%Y-%m-%d",
        notes=(*DRAFT_NOTES, "A table's own confirmed = false is about its most and its edges."),
    )


def _drafted(name: str, data: Any) -> Schema:
    try:
        return draft(data)
    except InputError as error:
        raise InputError(f"table {name!r}: {error}") from None


def _without(schema: Schema, names: Collection[str | None]) -> Schema:
    """Return a draft of the other columns, without notes."""
    return replace(schema, fields=tuple(column for column in schema.fields if column.name not in names), notes=())


def _dates(column: object) -> bool:
    return isinstance(column, Numeric) and column.date is not None


def _key(people: nw.LazyFrame[Any], common: list[str]) -> str:
    with hide_values("the table of people could not be read to the end. Is a row damaged?"):
        rows = int(people.select(nw.len()).collect().item())
        for name in common:
            values = people.select(nw.col(name)).drop_nulls(name).unique()
            if rows and int(values.select(nw.len()).collect().item()) == rows:
                return name
    raise InputError(
        "the tables have no key: a column that all of them have, with another value in each row of people. Name the "
        "key alike in all tables, or write the schema by hand."
    )


def _parents(
    frames: Mapping[str, nw.LazyFrame[Any]],
    rows: list[str],
    names: Mapping[str, list[str]],
    key: str,
    dates: Mapping[str, list[str]],
) -> dict[str, tuple[str, str]]:
    """Return of each table of rows of rows whose rows they are, and by which column they name them."""
    found: dict[str, tuple[str, str]] = {}
    for name in rows:
        for parent in rows:
            if parent == name or parent in found or name in {one for one, _ in found.values()}:
                continue
            dated = {*dates[name], *dates[parent], key}
            for column in (one for one in names[name] if one in names[parent] and one not in dated):
                both = (frames[table].select(key, column) for table in (parent, name))
                if _name_rows(*both, first=rows.index(name) < rows.index(parent)):
                    found[name] = parent, column
                    break
            if name in found:
                break
    return found


@where_rows_are("parent", "child")
def _name_rows(parent: nw.LazyFrame[Any], child: nw.LazyFrame[Any], *, first: bool) -> bool:
    """Return whether rows of one table name rows of the other by two keys: of the person, and of the row.

    Args:
        parent: The keys in the table that may have rows.
        child: Those in the one that may hold them.
        first: Whether that one was named first: of two with one row each, the first one has the rows.
    """
    theirs, mine = (_in_polars(each).drop_nulls() for each in (parent, child))
    if theirs.is_empty() or mine.is_empty() or theirs.dtypes != mine.dtypes or theirs.is_duplicated().any():
        return False
    if first and not mine.is_duplicated().any():
        return False
    named: int = mine.join(theirs, on=theirs.columns, how="semi").height
    return named >= _NAMED * mine.height


def _in_polars(frame: Any) -> pl.DataFrame:
    return cast("pl.DataFrame", nw.from_native(frame).lazy().collect("polars").to_native())


@where_rows_are("frame")
def _days(frame: nw.LazyFrame[Any], keys: list[str], order: str | None) -> tuple[Any, int]:
    """Return the days between rows of one person, or of one row, and the most rows that somebody, or a row, has."""
    import polars as pl

    rows = _in_polars(frame).drop_nulls(keys)
    most = int(cast(int, rows.group_by(keys).len()["len"].max()) or 1)
    if order is None:
        return [], most
    when = (
        pl.col(order)
        if rows[order].dtype in (pl.Date, pl.Datetime)
        else pl.col(order).cast(pl.String).str.to_date(strict=False)
    )
    sorted_rows = rows.with_columns(when.cast(pl.Date).cast(pl.Int64).alias("day")).sort(*keys, "day")
    gaps = sorted_rows.select(pl.col("day").diff().over(keys))["day"].drop_nulls().to_numpy()
    return gaps, most


def _edges(days: Any) -> tuple[int, ...]:
    """Return bins of days, of about as many rows each, rounded up."""
    if not len(days):
        return (0, 30, 90, 365, 1825)
    found = np.ceil(np.quantile(days, np.linspace(0, 1, _EDGES + 1)[1:]) / 10) * 10 + 10
    return (0, *sorted({int(edge) for edge in found}))


@dataclass(frozen=True, slots=True)
class LinkedCheck:
    """How linked tables fit their schema: exact figures, for the custodian's eyes only.

    Attributes:
        tables: How the columns of each table fit.
        tally: What is not counted, and why.
        notice: Who may see this.
        parents: For tables of rows of rows, whose rows they are.
    """

    tables: Mapping[str, SchemaCheck]
    tally: Tally
    notice: str = CUSTODIAN_ONLY
    parents: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[str, ...]:
        """What has to be changed before anything can be asked."""
        return tuple(f"{name}: {words}" for name, report in self.tables.items() for words in report.problems)

    @property
    def findings(self) -> tuple[str, ...]:
        """What is not counted, in sentences."""
        tally, said = self.tally, []
        people, parents = next(iter(self.tables)), self.parents
        said.append(f"{people}: {tally.people:,} people in {tally.rows[people]:,} rows.")
        if tally.repeated:
            said.append(f"{people}: {tally.repeated:,} rows repeat a key; the first by content counts.")
        for name, rows in tally.rows.items():
            if tally.no_key[name]:
                said.append(f"{name}: {tally.no_key[name]:,} of {rows:,} rows have no key and take no part.")
            if name == people:
                continue
            parent = parents.get(name)
            words = {
                "orphans": f"name no row of {parent} of the same person that counts, and take no part"
                if parent
                else "have a key that is not among people and take no part",
                "no_day": "have no day and take no part",
                "early": f"are before their row of {parent} and take no part"
                if parent
                else "are before the person's origin and take no part",
                "beyond": "are beyond the most that count",
            }
            for key, what in words.items():
                if count := getattr(tally, key)[name]:
                    said.append(f"{name}: {count:,} of {rows:,} rows {what}.")
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "notice": self.notice,
            "tables": {name: report.to_dict() for name, report in self.tables.items()},
            "findings": list(self.findings),
        }

    def __repr__(self) -> str:
        return f"LinkedCheck({self.notice})"

    def _repr_html_(self) -> str:
        from html import escape

        listed = "".join(f"<li>{escape(words)}</li>" for words in self.findings)
        return f"<div><strong>{escape(self.notice)}</strong><ul>{listed}</ul></div>"


def check_linked(data: Mapping[str, Any], schema: LinkedSchema) -> LinkedCheck:
    """Return how linked tables fit their schema, with exact figures.

    Args:
        data: A path, a URL or a frame for each table.
        schema: Their schema.

    **Guarantee**: none. It is for the custodian's eyes only.
    """
    reports = {
        name: check(data[name], replace(schema.reading(name), person_id=None, max_rows_per_person=None))
        for name in schema.tables
    }
    opened = {name: open_data(one, schema.reading(name)) if isinstance(one, str) else one for name, one in data.items()}
    return LinkedCheck(
        reports,
        PrivateTables(opened, schema).tally(),
        parents={child.name: child.parent for child in schema.children if child.parent},
    )
