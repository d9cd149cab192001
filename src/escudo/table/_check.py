"""How a table and a schema fit: exact shares of private values, for the custodian's eyes only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from narwhals.dtypes import DType

from escudo._card import card, plain, tracking
from escudo.errors import SchemaError
from escudo.table._columns import MISSING_LABEL, Categorical, Column, Level, Numeric
from escudo.table._encode import check_holds, cut_text, holds, storage_of
from escudo.table._files import (
    JSON_LINES,
    as_lazy,
    data_files,
    hide_values,
    is_lake,
    some_at_a_time,
    text_files,
    unreadable,
)
from escudo.table._frames import Source, instead_of, reads_texts
from escudo.table._rules import Rule
from escudo.table._schema import Schema
from escudo.table._text_files import Dialect, FileCheck, check_files, seeming, stated_texts
from escudo.table._values import as_python, in_hundredths, is_null
from escudo.table._where import where_rows_are

if TYPE_CHECKING:
    import polars as pl

CUSTODIAN_ONLY = "For the custodian's eyes only: this was computed from the private data without any protection."


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
        open: Whether the schema leaves its levels or bounds open, so that nothing can be released from it.
    """

    name: str
    problem: str | None = None
    outside: float = 0.0
    missing: float = 0.0
    missing_allowed: bool = False
    fractional: float = 0.0
    unused: tuple[Level, ...] = ()
    open: bool = False

    @property
    def findings(self) -> tuple[str, ...]:
        """What a custodian should look at, in words; empty if the column fits."""
        if self.problem is not None:
            return (self.problem,)
        if self.open:
            return (
                "the schema states no levels or bounds for it yet, so nothing can be released: write what is public, "
                "or learn it (escudo schema learn)",
            )
        found = []
        if self.outside:
            found.append(f"{_percent(self.outside)} of the values are outside the schema and will be clamped or mapped")
        if self.missing and not self.missing_allowed:
            found.append(f"{_percent(self.missing)} are missing, and the schema gives them no cell (missing = true)")
        if self.missing == 1.0 and self.missing_allowed:
            found.append("all values are missing, or are none as the schema says how they are written")
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
            return plain(self, "name", "problem")
        return plain(self, "name", "outside", "missing", "missing_allowed", "fractional", "unused", "open")


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
    file: FileCheck | None = None
    notice: str = CUSTODIAN_ONLY
    empty: bool = False  # a table of nobody; it may be released from like any other
    broken: tuple[tuple[str, int], ...] = ()  # each rule, and how many rows break it
    advice: tuple[str, ...] = ()  # what the schema might say besides; by the schema alone

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
        if self.file is not None:
            document["file"] = self.file.to_dict()
        if self.empty:
            document["empty"] = True
        if self.broken:
            document["rules"] = [{"rule": rule, "rows_that_break_it": rows} for rule, rows in self.broken]
        if self.advice:
            document["advice"] = list(self.advice)
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
        Exact, unprotected facts about the private data: for the custodian's eyes only. About a CSV or TSV file also
        how its lines fit its first one.

    Raises:
        InputError: If the data cannot be read. A table without rows can: it fits as far as its columns do.

    **Guarantee**: none. Nothing in the result may be released.
    """
    found = None
    if files := text_files(data):
        dialect = Dialect.stated(schema, files[0])
        with hide_values(unreadable(files[0], spanning=dialect.quoted_newlines)):
            found = check_files(files, dialect)
            found = replace(found, looks_like=seeming(files[0], dialect))
            frame, source = nw.from_native(stated_texts(files, schema)), f"'{data}'"  # as a release reads it
    else:
        frame, source = as_lazy(data, schema=schema if _is_json(data) else None)
    with hide_values(f"{source} could not be read to the end. Is a row damaged, or are its values of mixed kinds?"):
        types = dict(frame.collect_schema().items())
        rows = int(frame.select(nw.len()).collect().item())
        checks: dict[str, ColumnCheck] = {}
        with tracking("Checking", len(schema.fields)) as advance:
            for column, held in _each_with_a_frame(schema, frame, types, rows):
                checks[column.name] = _check_column(held, types, schema, column, rows)
                advance(1)
        columns = [checks[column.name] for column in schema.fields]
        return SchemaCheck(
            columns=tuple(columns),
            person=_check_person(frame, types, schema, rows),
            file=found,
            empty=rows == 0,
            broken=tuple(_check_rules(frame, schema, {column.name for column in columns if not column.problem})),
            advice=tuple(_advice(schema)),
        )


def _is_json(data: Any) -> bool:
    """Return whether data are files of lines of JSON, which state no types."""
    if not isinstance(data, str | PathLike) or is_lake(data):
        return False
    return all(file.suffix.lower() in JSON_LINES for file in data_files(data))


def _advice(schema: Schema) -> Iterator[str]:
    """Yield what a schema might say otherwise, whatever the table holds.

    That is, where bounds and format seem to disagree about what percent are; and which difference it might derive: that
    of two columns in a stated order, which else is not kept.
    """
    for column in schema.fields:
        if isinstance(column, Numeric) and "%" in (column.form or "") and not column.open:
            yield from _about_percent(column.name, in_hundredths(column.form or ""), *column.bounds)
    derived = {frozenset(column.derived or ()) for column in schema.fields if isinstance(column, Numeric)}
    for rule in schema.checked_rules:
        one, other = (schema[name] for name in rule.columns)
        if rule.sign == "->" or frozenset(rule.columns) in derived:
            continue
        later, earlier = (one, other) if rule.sign in (">", ">=") else (other, one)
        yield how_to_derive(later.name, earlier.name, days=isinstance(one, Numeric) and one.date is not None)


def _about_percent(name: str, hundredths: bool, lower: float, upper: float) -> Iterator[str]:
    largest = max(abs(lower), abs(upper))
    read, other, so = (0.12, "1234.5%", 12) if hundredths else (12, "123450.0%", 0.12)
    if largest >= 100 if hundredths else largest <= 1:
        yield (
            f"{name!r} has values from {lower:g} to {upper:g}, and its format reads '12%' as {read}. State other "
            f"bounds, or format = '{other}', by which it is {so}."
        )


def how_to_derive(later: str, earlier: str, *, days: bool) -> str:
    unit = ', unit = "days"' if days else ""
    return (
        f"synthetic rows know the order of {earlier!r} and {later!r}, but not how far they lie apart. If that counts "
        f'(a stay, an age), add a column with from = "{later} - {earlier}"{unit} and its own bounds: then it is kept.'
    )


def _check_rules(frame: nw.LazyFrame[Any], schema: Schema, usable: set[str]) -> Iterator[tuple[str, int]]:
    """Yield each rule whose columns can be used, with the number of rows that break it."""
    for rule in schema.checked_rules:
        columns = [schema[name] for name in rule.columns]
        if not any(column.open or column.name not in usable for column in columns):
            yield str(rule), _broken(frame.select(*_read_for(columns)), schema, rule)


@where_rows_are("frame")
def _broken(frame: nw.LazyFrame[Any], schema: Schema, rule: Rule) -> int:
    """Return how many rows break a rule."""
    import polars as pl

    def values(column: Column, seen: nw.DataFrame[Any]) -> list[Any]:
        if isinstance(column, Numeric) and column.derived is not None:
            seen = Source(engine="", frame=seen).lazy({column.name: column}, schema.columns).collect()
        return seen[column.name].to_list()

    def plain(column: Column, values: list[Any]) -> pl.Series:
        if isinstance(column, Numeric):
            numbers = column._read(values)
            return pl.Series(column.name, numbers, dtype=pl.Float64, nan_to_null=True).fill_nan(None)
        levels = [level if column.kind == "string" else int(level) for level in column.levels]
        return pl.Series(column.name, [*levels, None]).gather(column.encode(values))

    seen = _in_memory(frame)
    told = pl.DataFrame([plain(column, values(column, seen)) for column in map(schema.__getitem__, rule.columns)])
    broken = nw.from_native(told).select(rule.broken(schema.columns, nw.col).sum().alias("rows"))
    return int(broken.item() or 0)


def _in_memory(frame: Any) -> nw.DataFrame[Any]:
    seen: nw.DataFrame[Any] = nw.from_native(frame).lazy().collect()
    return seen


def _read_for(columns: Sequence[Column]) -> list[str]:
    """Return which columns of a table these are read from: those that they are derived from, or they themselves."""
    derived = [column.derived if isinstance(column, Numeric) else None for column in columns]
    return list(
        dict.fromkeys(name for column, pair in zip(columns, derived, strict=True) for name in pair or (column.name,))
    )


def _each_with_a_frame(
    schema: Schema, frame: nw.LazyFrame[Any], types: dict[str, DType], rows: int
) -> Iterator[tuple[Column, nw.LazyFrame[Any]]]:
    """Yield each column of a schema with a frame that holds it, if the table does; see :func:`some_at_a_time`."""
    plain = [column.name for column in schema.fields if column.name in types and _read_for([column]) == [column.name]]
    for name, _, held in some_at_a_time(frame, rows, plain):
        yield schema[name], held
    yield from ((column, frame) for column in schema.fields if column.name not in set(plain))


def _check_column(
    frame: nw.LazyFrame[Any], types: dict[str, DType], schema: Schema, column: Column, rows: int
) -> ColumnCheck:
    if isinstance(column, Numeric) and column.derived is not None:
        usable = ["number" if column.unit is None else "time", "anything"]
        usable += ["text"] if column.unit is not None and reads_texts(frame) else []
        if odd := [name for name in column.derived if name not in types or holds(types[name]) not in usable]:
            kind = "number" if column.unit is None else "date"
            return ColumnCheck(
                name=column.name,
                problem=f"column {column.name!r} is derived from {odd[0]!r}, which is no {kind} in the table.",
            )
        return _check_read(frame.select(*map(nw.col, column.derived)), schema, column, rows)
    if column.name not in types:
        said = column.name == schema.names[0] or not types.keys().isdisjoint(schema.names)  # not once for each column
        hint = instead_of(column.name, schema.names, types) if said else ""
        return ColumnCheck(name=column.name, problem=f"the table has no column {column.name!r}.{hint}")
    dtype = types[column.name]
    try:
        check_holds(column, holds(dtype), type(dtype).__name__, texts=reads_texts(frame))
    except SchemaError as error:
        return ColumnCheck(name=column.name, problem=str(error))
    if column.open:
        return ColumnCheck(name=column.name, missing_allowed=column.missing, open=True)
    loose = isinstance(column, Categorical) and column.loose
    if storage_of(dtype) == "object" or (loose and frame.implementation.is_pandas_like()):  # texts may be no Unicode
        return _check_objects(frame.select(nw.col(column.name)), column, rows)
    if isinstance(column, Categorical):
        return _check_distinct(frame, column, rows) if column.loose else _check_levels(frame, column, rows)
    if column._reads_text:
        return _check_read(frame.select(nw.col(column.name)), schema, column, rows)
    return _check_bounds(frame, column, rows)


@where_rows_are("frame")
def _check_read(frame: nw.LazyFrame[Any], schema: Schema, column: Numeric, rows: int) -> ColumnCheck:
    """Check a column that is worked out of others, or of texts, as a release does that."""
    seen = Source(engine="", frame=_in_memory(frame))
    return _check_bounds(seen.lazy({column.name: column}, schema.columns), column, rows)


def _check_levels(frame: nw.LazyFrame[Any], column: Categorical, rows: int) -> ColumnCheck:
    value = nw.col(column.name)
    if column.prefix is not None:
        frame = frame.select(cut_text(column, value.cast(nw.String)))
    recoded = dict(column.recode)
    null, known = value.is_null(), list[Any]([*column.levels, *recoded])
    if column.missing and MISSING_LABEL in column.spellings:
        null = null | value.is_in(list(column.spellings[MISSING_LABEL]))
    if column.kind != "string":  # booleans and whole numbers compare by value, as in Categorical.encode
        frame = frame.select(value.cast(nw.Float64))
        null, known = null | value.is_nan(), [float(level) for level in column.levels]
    missing, inside = _sums(frame, null, value.is_in(known) & ~null)
    seen = frame.filter(value.is_in(known)).select(value).unique().collect()[column.name].to_list()
    found = {recoded.get(level, level) for level in map(as_python, seen)}
    return _checked(column, rows, missing, rows - missing - inside, unused=_unused(column, found))


def _checked(column: Column, rows: int, missing: int, outside: int, fractional: int = 0, **more: Any) -> ColumnCheck:
    """Return what was counted as shares of the rows; of no rows, none."""
    shares = {"outside": outside, "missing": missing, "fractional": fractional}
    found: dict[str, Any] = {what: count / rows for what, count in shares.items()} | more if rows else {}
    return ColumnCheck(name=column.name, missing_allowed=column.missing, **found)


def _unused(column: Categorical, found: Collection[Any]) -> tuple[Level, ...]:
    return tuple(level for level in column.levels if level not in found and level != column.other)


def _check_bounds(frame: nw.LazyFrame[Any], column: Numeric, rows: int) -> ColumnCheck:
    value = nw.col(column.name)
    frame = frame.select(value.cast(nw.Float64))
    null = value.is_null() | value.is_nan()
    low, high = float(column.boundaries[0]), float(column.boundaries[-1])
    outside = ((value < low) | (value > high)) & ~null
    fractional = (value != value.round(0)) & ~null
    return _checked(column, rows, *_sums(frame, null, outside, *([fractional] if column.integer else [])))


def _check_distinct(frame: nw.LazyFrame[Any], column: Categorical, rows: int) -> ColumnCheck:
    """Check a column of texts by its distinct ones, each read by itself."""
    value, count = nw.col(column.name).cast(nw.String), f"rows of {column.name}"
    found = frame.select(value).group_by(column.name).agg(nw.len().alias(count)).collect()
    return _tallied(column, zip(found[column.name].to_list(), found[count].to_list(), strict=True), rows)


def _tallied(column: Categorical, counted: Iterable[tuple[Any, int]], rows: int) -> ColumnCheck:
    """Check values, each with the number of rows that have it."""
    like, read, tally = column._compared, column._reader(), dict[Any, int]()
    recoded = {text: level if level in like.levels else None for text, level in dict(like.recode).items()}
    for value, count in counted:
        if is_null(value):
            tally[None] = tally.get(None, 0) + count
        elif getattr(value, "__hash__", None):
            plain_value = read(value) if isinstance(value, str) else as_python(value)
            level = recoded.get(plain_value, plain_value)
            tally[level] = tally.get(level, 0) + count
    missing, inside = tally.get(None, 0), sum(tally.get(level, 0) for level in like.levels)
    stated = dict(zip(like.levels, column.levels, strict=True))
    unseen = [stated[level] for level in _unused(like, tally)]
    return _checked(column, rows, missing, rows - missing - inside, unused=tuple(unseen))


@where_rows_are("frame")
def _check_objects(frame: nw.LazyFrame[Any], column: Column, rows: int) -> ColumnCheck:
    """Check a column of Python objects one by one: no engine can compare mixed kinds."""
    values = _in_memory(frame)[column.name].to_list()
    if isinstance(column, Categorical):
        return _tallied(column, ((value, 1) for value in values), rows)
    missing = sum(map(is_null, values))
    numbers = column._read(values)
    inside = int(((numbers >= column.boundaries[0]) & (numbers <= column.boundaries[-1])).sum())
    fractional = int((np.isfinite(numbers) & (numbers != np.round(numbers))).sum()) if column.integer else 0
    return _checked(column, rows, missing, rows - missing - inside, fractional)


def _check_person(frame: nw.LazyFrame[Any], types: dict[str, DType], schema: Schema, rows: int) -> PersonCheck | None:
    if schema.person_id is None or schema.max_rows_per_person is None:
        return None
    if schema.person_id not in types:
        problem = f"the table has no column {schema.person_id!r}, the person id."
        return PersonCheck(problem=problem + instead_of(schema.person_id, schema.names, types))
    person, count = nw.col(schema.person_id), f"rows of {schema.person_id}"  # a name that cannot be the id's own
    known = ~(person.is_null() | person.is_nan()) if types[schema.person_id].is_float() else ~person.is_null()
    per_person = frame.filter(known).group_by(schema.person_id).agg(nw.len().alias(count))
    per_person = per_person.with_columns(nw.col(count).cast(nw.Int64))
    extra = nw.col(count) - schema.max_rows_per_person
    people, over, counted = _sums(per_person, nw.col(count) > 0, extra > 0, nw.col(count))
    dropped = _sums(per_person.filter(extra > 0), extra)[0] + rows - counted
    return PersonCheck(people_over=over / max(people, 1), rows_dropped=dropped / max(rows, 1))


def _sums(frame: nw.LazyFrame[Any], *terms: nw.Expr) -> list[int]:
    """Add up each term over the rows, in one pass; an engine may say null for the sum of nothing."""
    named = [term.cast(nw.Int64).sum().alias(f"sum{position}") for position, term in enumerate(terms)]
    return [0 if total is None else int(total) for total in frame.select(*named).collect().row(0)]


def _percent(share: float) -> str:
    return "less than 0.01 %" if share < 1e-4 else f"{100 * share:.3g} %"
