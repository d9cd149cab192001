"""How a table and a schema fit, for the custodian's eyes only: exact shares of private values, unprotected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dtypes import DType

from escudo._card import card
from escudo._validate import did_you_mean
from escudo.errors import InputError, SchemaError
from escudo.table._columns import Categorical, Column, Level, Numeric
from escudo.table._draft import CUSTODIAN_ONLY
from escudo.table._dtypes import storage_of
from escudo.table._encode import check_holds, holds
from escudo.table._files import as_lazy, hide_values
from escudo.table._schema import Schema
from escudo.table._values import as_float, is_null, plain

__all__ = ["ColumnCheck", "PersonCheck", "SchemaCheck", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCheck:
    """How one column of the table fits the schema.

    Attributes:
        name: The column.
        problem: Why it cannot be used at all, or None. The other fields mean nothing if there is a problem.
        outside: Share of all values that are outside the schema, and will be clamped or mapped.
        missing: Share of all values that are missing.
        missing_allowed: Whether the schema gives missing values a cell of their own.
        fractional: Share of all values that are not whole, in a column the schema calls integer.
        unused: Levels that no row has.
    """

    name: str
    problem: str | None = None
    outside: float = 0.0
    missing: float = 0.0
    missing_allowed: bool = False
    fractional: float = 0.0
    unused: tuple[Level, ...] = ()

    @property
    def findings(self) -> tuple[str, ...]:
        """What a custodian should look at, in words; empty if the column fits."""
        if self.problem is not None:
            return (self.problem,)
        found = []
        if self.outside:
            found.append(f"{_percent(self.outside)} of the values are outside the schema and will be clamped or mapped")
        if self.missing and not self.missing_allowed:
            found.append(f"{_percent(self.missing)} are missing, and the schema gives them no cell (missing = true)")
        if self.fractional:
            found.append(f"{_percent(self.fractional)} are not whole numbers")
        if self.unused:
            plural = "" if len(self.unused) == 1 else "s"
            shown = ", ".join(map(repr, self.unused[:5])) + (", ..." if len(self.unused) > 5 else "")
            found.append(f"no row has the level{plural} {shown}")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain data."""
        if self.problem is not None:
            return {"name": self.name, "problem": self.problem}
        return {
            "name": self.name,
            "outside": self.outside,
            "missing": self.missing,
            "missing_allowed": self.missing_allowed,
            "fractional": self.fractional,
            "unused": list(self.unused),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonCheck:
    """How the bound on rows per person fits the table.

    Attributes:
        problem: Why the person id cannot be used, or None.
        people_over: Share of people who have more rows than the schema lets count.
        rows_dropped: Share of rows that will not count: those beyond the bound, and those without a person id.
    """

    problem: str | None = None
    people_over: float = 0.0
    rows_dropped: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCheck:
    """How a table and a schema fit: for the custodian's eyes only."""

    columns: tuple[ColumnCheck, ...]
    person: PersonCheck | None = None
    notice: str = CUSTODIAN_ONLY

    @property
    def problems(self) -> tuple[str, ...]:
        """What makes the table unusable with this schema: absent columns, wrong types."""
        found = [column.problem for column in self.columns if column.problem is not None]
        if self.person is not None and self.person.problem is not None:
            found.append(self.person.problem)
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain data, with the notice on top."""
        document: dict[str, Any] = {"notice": self.notice, "columns": [column.to_dict() for column in self.columns]}
        if self.person is not None:
            document["person"] = {
                "problem": self.person.problem,
                "people_over": self.person.people_over,
                "rows_dropped": self.person.rows_dropped,
            }
        return document

    def __repr__(self) -> str:
        return f"SchemaCheck({len(self.columns)} columns; for the custodian's eyes only)"

    def _repr_html_(self) -> str:
        return card("Schema check", f"{len(self.columns)} columns were compared; see .columns.", note=self.notice)


def check(data: Any, schema: Schema) -> SchemaCheck:
    """Compare a table with a schema: shares outside it, missing, unused levels, wrong types.

    Args:
        data: A path, or a frame of any engine that narwhals takes.
        schema: The schema; columns that are still open are checked for their presence only.

    Returns:
        Exact, unprotected facts about the private data: for the custodian's eyes only.

    Raises:
        InputError: If the data cannot be read or have no rows.

    **Guarantee**: none. Nothing in the result may be released.
    """
    frame, source = as_lazy(data)
    with hide_values(f"{source} could not be read to the end. Is a row damaged, or are its values of mixed kinds?"):
        types = dict(frame.collect_schema().items())
        rows = int(frame.select(nw.len()).collect().item())
        if rows == 0:
            raise InputError(f"{source} has no rows to check.")
        columns = tuple(_check_column(frame, types, column, rows) for column in schema.fields)
        return SchemaCheck(columns=columns, person=_check_person(frame, types, schema, rows))


def _check_column(frame: nw.LazyFrame[Any], types: dict[str, DType], column: Column, rows: int) -> ColumnCheck:
    name = column.name
    if name not in types:
        return ColumnCheck(name=name, problem=f"the table has no column {name!r}." + did_you_mean(name, types))
    dtype = types[name]
    try:
        check_holds(column, holds(dtype), type(dtype).__name__)
    except SchemaError as error:
        return ColumnCheck(name=name, problem=str(error))
    stored = storage_of(dtype)
    if column.open:
        return ColumnCheck(name=name, missing_allowed=column.missing)
    if stored == "object":
        return _check_objects(frame, column, rows)
    if isinstance(column, Categorical):
        return _check_levels(frame, column, rows)
    return _check_bounds(frame, column, rows)


def _check_levels(frame: nw.LazyFrame[Any], column: Categorical, rows: int) -> ColumnCheck:
    value = nw.col(column.name)
    null, known = value.is_null(), list[Any](column.levels)
    if column.kind != "string":  # booleans and whole numbers compare by value, as in Categorical.encode
        frame = frame.select(value.cast(nw.Float64))
        null, known = null | value.is_nan(), [float(level) for level in column.levels]
    missing, inside = _sums(frame, null, value.is_in(known) & ~null)
    seen = frame.filter(value.is_in(known)).select(value).unique().collect()[column.name].to_list()
    found = {plain(level) for level in seen}
    return ColumnCheck(
        name=column.name,
        outside=(rows - missing - inside) / rows,
        missing=missing / rows,
        missing_allowed=column.missing,
        unused=tuple(level for level in column.levels if level not in found),
    )


def _check_bounds(frame: nw.LazyFrame[Any], column: Numeric, rows: int) -> ColumnCheck:
    value = nw.col(column.name)
    frame = frame.select(value.cast(nw.Float64))
    null = value.is_null() | value.is_nan()
    low, high = float(column.boundaries[0]), float(column.boundaries[-1])
    outside = ((value < low) | (value > high)) & ~null
    fractional = (value != value.round(0)) & ~null
    counts = _sums(frame, null, outside, *([fractional] if column.integer else []))
    return ColumnCheck(
        name=column.name,
        outside=counts[1] / rows,
        missing=counts[0] / rows,
        missing_allowed=column.missing,
        fractional=counts[2] / rows if column.integer else 0.0,
    )


def _check_objects(frame: nw.LazyFrame[Any], column: Column, rows: int) -> ColumnCheck:
    """Check a column of Python objects one by one: no engine can compare mixed kinds."""
    values = frame.select(nw.col(column.name)).collect()[column.name].to_list()
    missing = sum(map(is_null, values))
    if isinstance(column, Categorical):
        hashable = [plain(value) for value in values if not is_null(value) and getattr(value, "__hash__", None)]
        found = set(hashable)
        inside = sum(value in column.codes for value in hashable)
        unused = tuple(level for level in column.levels if level not in found)
        return ColumnCheck(
            name=column.name,
            outside=(rows - missing - inside) / rows,
            missing=missing / rows,
            missing_allowed=column.missing,
            unused=unused,
        )
    numbers = np.array([as_float(value) for value in values])
    inside = int(((numbers >= column.boundaries[0]) & (numbers <= column.boundaries[-1])).sum())
    fractional = int((np.isfinite(numbers) & (numbers != np.round(numbers))).sum()) if column.integer else 0
    return ColumnCheck(
        name=column.name,
        outside=(rows - missing - inside) / rows,
        missing=missing / rows,
        missing_allowed=column.missing,
        fractional=fractional / rows,
    )


def _check_person(frame: nw.LazyFrame[Any], types: dict[str, DType], schema: Schema, rows: int) -> PersonCheck | None:
    if schema.person_id is None or schema.max_rows_per_person is None:
        return None
    if schema.person_id not in types:
        problem = f"the table has no column {schema.person_id!r}, the person id."
        return PersonCheck(problem=problem + did_you_mean(schema.person_id, types))
    person, count = nw.col(schema.person_id), f"rows of {schema.person_id}"  # a name that cannot be the id's own
    known = ~(person.is_null() | person.is_nan()) if types[schema.person_id].is_float() else ~person.is_null()
    per_person = frame.filter(known).group_by(schema.person_id).agg(nw.len().alias(count))
    per_person = per_person.with_columns(nw.col(count).cast(nw.Int64))
    extra = nw.col(count) - schema.max_rows_per_person
    people, over, counted = _sums(per_person, nw.col(count) > 0, extra > 0, nw.col(count))
    dropped = _sums(per_person.filter(extra > 0), extra)[0] + rows - counted
    return PersonCheck(people_over=over / max(people, 1), rows_dropped=dropped / rows)


def _sums(frame: nw.LazyFrame[Any], *terms: nw.Expr) -> list[int]:
    """Add up each term over the rows, in one pass; an engine may say null for the sum of nothing."""
    named = [term.cast(nw.Int64).sum().alias(f"sum{position}") for position, term in enumerate(terms)]
    return [0 if total is None else int(total) for total in frame.select(*named).collect().row(0)]


def _percent(share: float) -> str:
    return "less than 0.01 %" if share < 1e-4 else f"{100 * share:.3g} %"
