"""Linked tables for the eyes of their custodian only: a first schema, and how tables fit theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np

from escudo._card import CUSTODIAN_ONLY
from escudo.errors import InputError
from escudo.table._columns import Numeric
from escudo.table._custodian import DRAFT_NOTES, SchemaCheck, check, draft
from escudo.table._files import as_lazy, hide_values, open_data
from escudo.table._linked import PrivateTables, Tally
from escudo.table._linked_schema import MOST_ROWS, ChildTable, LinkedSchema
from escudo.table._schema import Schema

_EDGES = 5  # bins of days
_USUAL_COUNTS = (0, 1, 2, 3, 5, 8, 12, 20, 40, 80, 200, 500, 1000)


def draft_linked(data: Mapping[str, Any], people: str) -> LinkedSchema:
    """Draft a schema of linked tables from their data; everything in it is unconfirmed.

    The key is a column that all tables have, with another value in each row of people. Rows are ordered by their first
    column of dates, and days are counted from the first one of people, or from the first day of all where people have
    none.

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
    for name in rows:
        if not times[name]:
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
    children = []
    with hide_values("the tables could not be read to the end. Is a row damaged?"):
        for name in rows:
            order = times[name][0].name
            days, counts = _days(frames[name], key, order)
            fields = tuple(column for column in drafts[name].fields if column.name not in (key, order))
            most = next((edge for edge in _USUAL_COUNTS if edge >= counts), MOST_ROWS)
            children.append(
                ChildTable(
                    name=name,
                    schema=replace(drafts[name], fields=fields, notes=()),
                    foreign_key=key,
                    order=order,
                    most=most,
                    count_edges=tuple(edge for edge in _USUAL_COUNTS if edge <= max(most // 2, min(most, 2))),
                    start_edges=(0, 30, 90, 365, 1825, 36500),
                    gap_edges=_edges(days),
                    confirmed=False,
                )
            )
    kept = tuple(column for column in drafts[people].fields if column.name not in (key, origin))
    return LinkedSchema(
        people=people,
        key=key,
        person=replace(drafts[people], fields=kept, notes=()),
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


def _days(frame: nw.LazyFrame[Any], key: str, order: str) -> tuple[Any, int]:
    """Return the days between rows of one person, and the most rows that somebody has."""
    import polars as pl

    rows = frame.select(key, order).drop_nulls(key).collect("polars").to_native()
    when = (
        pl.col(order)
        if rows[order].dtype in (pl.Date, pl.Datetime)
        else pl.col(order).cast(pl.String).str.to_date(strict=False)
    )
    sorted_rows = rows.with_columns(when.cast(pl.Date).cast(pl.Int64).alias("day")).sort(key, "day")
    gaps = sorted_rows.select(pl.col("day").diff().over(key))["day"].drop_nulls().to_numpy()
    most = int(rows.group_by(key).len()["len"].max() or 1)
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
    """

    tables: Mapping[str, SchemaCheck]
    tally: Tally
    notice: str = CUSTODIAN_ONLY

    @property
    def problems(self) -> tuple[str, ...]:
        """What has to be changed before anything can be asked."""
        return tuple(f"{name}: {words}" for name, report in self.tables.items() for words in report.problems)

    @property
    def findings(self) -> tuple[str, ...]:
        """What is not counted, in sentences."""
        tally, said = self.tally, []
        people = next(iter(self.tables))
        said.append(f"{people}: {tally.people:,} people in {tally.rows[people]:,} rows.")
        if tally.repeated:
            said.append(f"{people}: {tally.repeated:,} rows repeat a key; the first by content counts.")
        for name, rows in tally.rows.items():
            if tally.no_key[name]:
                said.append(f"{name}: {tally.no_key[name]:,} of {rows:,} rows have no key and take no part.")
            if name == people:
                continue
            words = {
                "orphans": "have a key that is not among people and take no part",
                "no_day": "have no day and take no part",
                "early": "are before the person's origin and take no part",
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
    return LinkedCheck(reports, PrivateTables(opened, schema).histories().tally)
