"""A frame that was opened but not read: what it is, whether it fits the schema, and how to ask it.

Lazy frames (polars, DuckDB, Ibis, PySpark) are asked in their own engine. A frame already in this process's memory
(pandas, pyarrow, modin) is handed to polars column by column, without a copy where the memory layout allows it. Dask
does the same for each of its partitions, on its workers.
Reading is total: whatever a single value is, it is a level, a number, a person's key or missing, never an error.

Collecting and streaming run in the frame's own engine, and its error messages are withheld.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import narwhals as nw
import numpy as np

from escudo._validate import did_you_mean
from escudo.errors import EngineError, EscudoError, InputError, SchemaError
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._encode import Holds, check_holds, holds, known_texts, number, text_key
from escudo.table._persons import key_of_text, person_keys
from escudo.table._schema import Schema
from escudo.table._values import held_texts, loosely_in_sql

if TYPE_CHECKING:
    import polars as pl

_EXACT_ON_IBIS = ("duckdb", "postgres")
"""The databases behind Ibis in which text can be compared by its exact characters, by the collation C."""


_WHOLE = {
    "duckdb": "CASE WHEN {0} = trunc({0}) THEN TRY_CAST({0} AS bigint) END",
    "postgres": "CASE WHEN {0} = trunc({0}) AND abs({0}) < 9223372036854775807 THEN CAST({0} AS bigint) END",
}
"""How a decimal person id is read there; other numbers are no ids, nor is NaN, which PostgreSQL puts above them all."""


_FLOAT = {
    "duckdb": "CAST({0} AS double)",
    "postgres": "CASE WHEN {0} = 'NaN' THEN NULL WHEN abs({0}) > 1.7976931348623157e308 THEN"
    " sign({0}) * CAST('Infinity' AS double precision) WHEN abs({0}) < 2.5e-324 THEN 0"
    " ELSE CAST({0} AS double precision) END",
}
"""How a decimal is read as float64 there; PostgreSQL's own cast fails for what is too large or too small."""


_DAYS = {
    "duckdb": "CASE WHEN isfinite({0}) THEN CAST(date_diff('day', DATE '1970-01-01', CAST({0} AS DATE)) AS BIGINT) END",
    "postgres": "CASE WHEN isfinite({0}) THEN CAST(CAST({0} AS date) - DATE '1970-01-01' AS bigint) END",
}
"""How a date or point in time is read there as days; infinite ones are no days."""


def _in_utc(quoted: str, dtype: Any) -> str:
    """Return a point in time with a zone as what a clock in UTC shows."""
    return f"timezone('UTC', {quoted})" if getattr(dtype, "time_zone", None) else quoted


_TAKEN = (
    "a pandas, polars or modin DataFrame, a polars LazyFrame, a pyarrow Table, a DuckDB relation, "
    "an Ibis table, or a Dask or PySpark DataFrame"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A frame that was opened but not read.

    Attributes:
        engine: The frame's engine, such as ``"polars"``.
        frame: The frame, as narwhals sees it.
    """

    engine: str
    frame: nw.DataFrame[Any] | nw.LazyFrame[Any]

    def __repr__(self) -> str:
        return f"Source(engine={self.engine!r})"

    def lazy(
        self, columns: Mapping[str, Column | None], every: Mapping[str, Column] | None = None
    ) -> nw.LazyFrame[Any]:
        """Return the named columns as a lazy frame of polars or of a database.

        In polars a person id that is text comes as the person's key; there and in DuckDB a categorical column of text
        comes as keys (:func:`~escudo.table._encode.known_texts`). In other databases a loose one comes as it is
        compared.

        Args:
            columns: The schema's column for each name; None for the person id.
            every: All columns of the schema, which say how the dates are written that others are derived from.
        """
        if any(isinstance(column, Numeric) and column.derived is not None for column in columns.values()):
            return self._with_derived(columns, every or {})
        chosen = self.frame.select(*map(nw.col, columns))
        implementation = chosen.implementation
        if implementation.is_polars():
            frame = _in_polars(chosen.to_native().lazy(), columns)
        elif isinstance(chosen, nw.LazyFrame):
            return _in_database(chosen, columns)
        elif implementation.is_pyarrow():
            frame = _in_polars(_from_arrow(chosen.to_native(), columns).lazy(), columns)
        else:
            frame = _from_pandas(chosen, columns).lazy()
        ready: nw.LazyFrame[Any] = nw.from_native(_with_keys(frame, columns))
        return ready

    def _with_derived(self, columns: Mapping[str, Column | None], every: Mapping[str, Column]) -> nw.LazyFrame[Any]:
        """Return the named columns, those that are derived computed from what they are derived from."""
        made = {name: column for name, column in columns.items() if isinstance(column, Numeric) and column.derived}
        there: dict[str, Column | None] = {name: column for name, column in columns.items() if name not in made}
        for column in made.values():
            day = Numeric(column.name, 0, 1, 1) if column.unit is None else _ANY_DAY
            there = {**{name: every.get(name, day) for name in column.derived or ()}, **there}
        raw = self.lazy(there)
        types = raw.collect_schema()
        computed = []
        for name, column in made.items():
            later, earlier = (number(source, types[source]) for source in column.derived or ())
            computed.append(column.difference(later, earlier, nw.Expr.floor).cast(nw.Float64).alias(name))
        return raw.with_columns(computed).select(*map(nw.col, columns))

    def slices(self, size: int) -> Iterator[Source]:
        """Yield a frame in memory ``size`` rows at a time, in order; a lazy one as it is."""
        if isinstance(self.frame, nw.LazyFrame):
            yield self
            return
        for start in range(0, len(self.frame), size):
            yield Source(engine=self.engine, frame=self.frame[start : start + size])

    @staticmethod
    def partition(part: Any) -> Source:
        """Open one partition of a Dask frame."""
        return Source(engine="pandas", frame=nw.from_native(part, eager_only=True))


_ANY_DAY = Numeric("day", "1900-01-01", "2100-01-01", 1, date="%Y-%m-%d")


def stored_names(schema: Schema, names: Iterable[str]) -> list[str]:
    """Return the columns of a table that hold these columns of its schema: derived ones are in two others."""
    found: dict[str, None] = {}
    for name in names:
        column = schema[name]
        derived = column.derived if isinstance(column, Numeric) else None
        found |= dict.fromkeys((name,) if derived is None else derived)
    return list(found)


def read_names(schema: Schema) -> list[str]:
    """Return the columns of a table that are read of it: those of :func:`stored_names`, and its keys."""
    return list(dict.fromkeys([*stored_names(schema, schema.names), *schema.keys]))


def open_source(frame: object, schema: Schema) -> Source:
    """Open a frame: check that it is one and that its columns and their types fit the schema, without reading a row.

    Which columns there are and the *type that the frame declares* for each are public, and may be refused. Values never
    decide: a type that only says "Python objects" or "categories" is taken for every column of a schema, each value
    being read by itself, and so are all types of numbers and booleans where the schema has numbers or booleans. So it
    does not matter that pandas stores a column of whole numbers as floats because one is missing (unless they are ids
    of 2**53 and more, which floats do not tell apart), or as objects because one is text. It does matter whether *all*
    values of a column are text or numbers: where a program chose types by looking at values, state them instead before
    anything is released. A frame without rows is a table like any other.

    Raises:
        InputError: If ``frame`` is no frame that is taken.
        SchemaError: If a column of the schema is absent from the frame, of a type that cannot hold it, or has a name
            that its engine cannot handle.
    """
    opened = _opened(frame)
    found = opened.collect_schema()
    _check_columns(schema, list(found))
    if engine_of(opened) == "pyspark" and (odd := [name for name in read_names(schema) if {".", "`"} & {*name}]):
        raise SchemaError(
            f"column {odd[0]!r} has a dot or a backtick in its name, and PySpark hands no such column to workers; "
            "rename it in the table, for instance with withColumnRenamed, and in the schema."
        )
    stored = _native_types(opened)
    for column in schema.fields:
        if column.name not in found:  # one that is derived
            continue
        dtype = found[column.name]
        declared = _declared(opened, stored.get(column.name), dtype)
        check_holds(column, declared, type(dtype).__name__, texts=reads_texts(opened))
    for key in schema.keys:
        _check_key(schema, key, found[key], _declared(opened, stored.get(key), found[key]), opened)
    return Source(engine=engine_of(opened), frame=opened)


def engine_of(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> str:
    """Return the name of a frame's engine: Spark is one, be it asked in its own process or by Spark Connect."""
    kind = frame.implementation
    return "pyspark" if kind.is_pyspark_connect() else str(kind.value)


def reads_texts(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> bool:
    """Whether texts are read as dates or numbers by a format: where rows are read by polars, not in a database."""
    kind = frame.implementation
    return bool(kind.is_polars() or kind.is_pandas_like() or kind.is_pyarrow() or kind.is_dask())


def _opened(frame: object) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    problem = None
    try:
        opened = nw.from_native(frame)  # type: ignore[call-overload]
    except Exception as error:  # duplicate column names, for one; the message may show the frame
        problem = type(error).__name__
    if problem is not None and problem != "TypeError":
        raise InputError(
            f"frame cannot be read as a table ({problem}): are its column names distinct texts, and is the package it "
            "comes from up to date?"
        )
    if problem is not None or not isinstance(opened, nw.DataFrame | nw.LazyFrame):
        hint = " Read the file first, for instance with polars.scan_parquet." if isinstance(frame, str) else ""
        raise InputError(f"frame must be {_TAKEN}; got {type(frame).__name__}.{hint}")
    return opened


def _check_columns(schema: Schema, found: list[str]) -> None:
    wanted = read_names(schema)
    for name in wanted:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise SchemaError(f"column {name!r} reads as a pattern that stands for other columns; rename it.")
    absent = [name for name in wanted if name not in found]
    if absent:
        listed = ", ".join(repr(name) for name in absent[:8]) + (", ..." if len(absent) > 8 else "")
        raise SchemaError(
            f"the table does not have the schema's column{'s' if len(absent) > 1 else ''} {listed}; "
            f"rename the column in the table or in the schema.{instead_of(absent[0], wanted, found)}"
        )


def instead_of(name: str, wanted: Iterable[str], found: Collection[str]) -> str:
    """Return a hint at a column of the table that is called nearly so.

    Where the table has nothing that is wanted, its "names" may be the first row of a text file without a line of names,
    somebody's values: then none of them is shown.
    """
    if not set(wanted).isdisjoint(found):
        return did_you_mean(name, found)
    return " It has none of them: if it is a text file without a line of names, state header in [table]."


def _native_types(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> Mapping[str, Any]:
    """Return the type that the frame declares for each column, in its own words, where those say more than narwhals."""
    native: Any = frame.to_native()
    implementation = frame.implementation
    if implementation.is_pandas_like() or implementation.is_dask():
        return dict(native.dtypes)
    if implementation.is_pyarrow():
        return {field.name: field.type for field in native.schema}
    if implementation.is_polars():
        return native.collect_schema()  # type: ignore[no-any-return]
    return dict(zip(native.columns, native.types, strict=True)) if implementation.is_duckdb() else {}


def _declared(frame: nw.DataFrame[Any] | nw.LazyFrame[Any], kind: Any, dtype: Any) -> Holds:
    """Return what a column holds by the type that the frame declares; narwhals would look at values of objects."""
    implementation = frame.implementation
    if implementation.is_pandas_like() or implementation.is_dask():
        # Categories are collected from values, and one complex value makes a whole column complex.
        loose = str(kind) in ("object", "category") or getattr(kind, "kind", "") == "c"
        return "anything" if loose else holds(dtype)
    if implementation.is_pyarrow():
        import pyarrow as pa

        if pa.types.is_dictionary(kind):
            return holds(nw.from_native(pa.chunked_array([], kind.value_type), series_only=True).dtype)
        return "anything" if pa.types.is_null(kind) else holds(dtype)
    if implementation.is_polars():
        import polars as pl

        return "anything" if kind in (pl.Null, pl.Object) else holds(dtype)
    if implementation.is_duckdb() and str(kind).strip('"') == "NULL":
        return "anything"
    return holds(dtype)


def _check_key(
    schema: Schema, name: str, dtype: Any, found: Holds, frame: nw.DataFrame[Any] | nw.LazyFrame[Any]
) -> None:
    what = "person id" if name == schema.person_id else "key of rows"
    if found in ("nothing usable", "time") or (dtype == nw.Decimal and engine_of(frame) == "pyspark"):
        raise SchemaError(
            f"the {what} {name!r} is of type {type(dtype).__name__}; cast it to whole numbers or text in the table."
        )
    if found == "text" and frame.implementation.is_ibis():
        raise SchemaError(f"the {what} {name!r} is text, which is not supported on Ibis; use whole numbers.")


def _in_polars(frame: pl.LazyFrame, columns: Mapping[str, Column | None]) -> pl.LazyFrame:
    """Read Python objects one by one, and turn the texts of a person id into keys."""
    import polars as pl

    types, changed = frame.collect_schema(), []
    for name, column in columns.items():
        if types[name] == pl.Object:
            changed.append(_project_lazily(name, column))
        elif types[name] in (pl.Date, pl.Datetime):
            changed.append(days_of(pl.col(name), types[name]))
        elif isinstance(column, Numeric) and column._reads_text and types[name] in (pl.String, pl.Categorical, pl.Enum):
            changed.append(column._in_text(pl.col(name).cast(pl.String)).alias(name))
        elif column is None and types[name] in (pl.String, pl.Categorical, pl.Enum):
            changed.append(key_of_text(name))
    return frame.with_columns(changed)


def _with_keys(frame: pl.LazyFrame, columns: Mapping[str, Column | None]) -> pl.LazyFrame:
    import polars as pl

    types = frame.collect_schema()
    texts = [column for column in columns.values() if isinstance(column, Categorical) and column.kind == "string"]
    keyed = (column for column in texts if types[column.name] in (pl.String, pl.Categorical, pl.Enum))
    return frame.with_columns(text_key(column, pl.col(column.name)).alias(column.name) for column in keyed)


def _key_in_duckdb(column: Categorical, quoted: str) -> str | None:
    """Return the SQL of :func:`~escudo.table._encode.text_key`; None without texts that can be written in SQL."""
    texts = known_texts(column)
    if column.kind != "string" or len(texts) > _MOST_IN_SQL or any("\0" in text for text in texts):
        return None

    def listed(several: Iterable[str]) -> str:
        return ", ".join("'" + text.replace("'", "''") + "'" for text in several)

    text = loosely_in_sql(quoted) if column.loose else f"CAST({quoted} AS VARCHAR)"
    if column.prefix is not None:
        cut, uncut = f"substr({text}, 1, {column.prefix})", column._compared._uncut
        text = f"CASE WHEN {text} IN ({listed(uncut)}) THEN {text} ELSE {cut} END" if uncut else cut
    key = f"coalesce(enum_code(TRY_CAST({text} AS ENUM({listed(texts)}))), {len(texts)})"
    if column.null_code != column.other_code:
        key = f"CASE WHEN {quoted} IS NULL THEN {len(texts) + 1} ELSE {key} END"
    return f"CAST({key} AS USMALLINT)"


def days_of(value: pl.Expr, dtype: Any) -> pl.Expr:
    """Return dates, or the days of points in time (in UTC if they have a zone), as days since 1970-01-01."""
    import polars as pl

    if getattr(dtype, "time_zone", None) is not None:
        value = value.dt.convert_time_zone("UTC")
    return (value if dtype == pl.Date else value.dt.date()).cast(pl.Int32)


def _project_lazily(name: str, column: Column | None) -> pl.Expr:
    import polars as pl

    def projected(values: pl.Series) -> pl.Series:
        return _project(name, column, values.to_list())

    return pl.col(name).map_batches(projected, return_dtype=_project(name, column, []).dtype)


def _in_database(frame: nw.LazyFrame[Any], columns: Mapping[str, Column | None]) -> nw.LazyFrame[Any]:
    """Compare text by its exact characters, whatever collation the database's columns have, and cast without an error.

    Under a collation that ignores case, two people could share an id and the bound on one person's rows would not hold.
    """
    native: Any = frame.to_native()
    if frame.implementation.is_duckdb():
        listed = []
        for name, dtype in frame.collect_schema().items():
            quoted = '"' + name.replace('"', '""') + '"'
            column = columns[name]
            if holds(dtype) == "time":
                listed.append(f"{_DAYS['duckdb'].format(_in_utc(quoted, dtype))} AS {quoted}")
            elif dtype == nw.Unknown:  # nothing but nulls, or the type would have been refused
                kind = "VARCHAR" if column is not None and column.kind == "string" else "DOUBLE"
                listed.append(f"{quoted}::{kind} AS {quoted}")
            elif (
                isinstance(column, Categorical) and column.kind == "string" and (key := _key_in_duckdb(column, quoted))
            ):
                listed.append(f"{key} AS {quoted}")
            elif isinstance(column, Categorical) and column.loose:
                listed.append(f'{loosely_in_sql(quoted)} COLLATE "C" AS {quoted}')
            else:
                listed.append(f'{quoted} COLLATE "C" AS {quoted}' if dtype == nw.String else quoted)
        native = native.select(", ".join(listed))
    elif frame.implementation.is_ibis():
        native = _exact_on_ibis(native, columns)
    elif engine_of(frame) == "pyspark":
        functions, native = _functions_of_spark(frame), columns_on_spark(frame, columns)
        first = functions.lit("1970-01-01").cast("date")
        for name in (name for name, dtype in frame.collect_schema().items() if holds(dtype) == "time"):
            native = native.withColumn(name, functions.date_diff(native[_quoted_on_spark(name)].cast("date"), first))
    exact: nw.LazyFrame[Any] = nw.from_native(native)
    return exact


def columns_on_spark(frame: nw.DataFrame[Any] | nw.LazyFrame[Any], names: Iterable[str]) -> Any:
    """Return some columns of a frame of Spark, texts to be compared by their characters."""
    native: Any = frame.to_native()
    types = {field.name: field.dataType for field in native.schema}

    def exact(name: str) -> Any:
        column = native[_quoted_on_spark(name)]
        if getattr(types[name], "collation", "UTF8_BINARY") == "UTF8_BINARY":
            return column
        return _functions_of_spark(frame).collate(column, "UTF8_BINARY").alias(name)

    return native.select(*map(exact, names))


def _quoted_on_spark(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _functions_of_spark(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> Any:
    """Return Spark's functions, of the kind that takes the columns of a frame."""
    if frame.implementation.is_pyspark_connect():
        from pyspark.sql.connect import functions
    else:
        from pyspark.sql import functions
    return functions


def _exact_on_ibis(table: Any, columns: Mapping[str, Column | None]) -> Any:
    """Do the same through SQL, which also takes off the blanks of ``char(n)`` and the case-blindness of ``citext``."""
    found = dict(table.schema().items())
    texts = [name for name, dtype in found.items() if dtype.is_string()]
    backend = table.get_backend()
    if texts and backend.name not in _EXACT_ON_IBIS:
        raise SchemaError(
            f"column {texts[0]!r} is text in {backend.name}, which may take different texts for equal; store levels as "
            "whole numbers there, or read the table into another engine."
        )
    selected, schema = [], {}
    for name, dtype in found.items():
        quoted = '"' + name.replace('"', '""') + '"'
        expression, schema[name] = quoted, dtype
        if dtype.is_string():
            column = columns[name]
            loose = isinstance(column, Categorical) and column.loose
            plain = loosely_in_sql(quoted) if loose else f"CAST({quoted} AS text)"
            expression, schema[name] = f'{plain} COLLATE "C"', "string"
        elif (dtype.is_date() or dtype.is_timestamp()) and backend.name in _EXACT_ON_IBIS:
            zoned = f"timezone('UTC', {quoted})" if getattr(dtype, "timezone", None) else quoted
            expression, schema[name] = _DAYS[backend.name].format(zoned), "int64"
        elif dtype.is_decimal() and backend.name in _EXACT_ON_IBIS:
            whole = columns[name] is None
            expression = (_WHOLE if whole else _FLOAT)[backend.name].format(quoted)
            schema[name] = "int64" if whole else "float64"
        selected.append(f"{expression} AS {quoted}")
    if list(schema.items()) == list(found.items()):
        return table
    return backend.sql(f"SELECT {', '.join(selected)} FROM ({backend.compile(table)}) AS escudo_rows", schema=schema)


def _from_arrow(table: Any, columns: Mapping[str, Column | None]) -> pl.DataFrame:
    """Turn the columns of a pyarrow table into polars, texts of a dictionary type into keys: one look-up for each."""
    import polars as pl
    import pyarrow as pa

    done: list[pl.Series] = []
    for name, column in columns.items():
        if isinstance(column, Categorical) and column.kind == "string" and pa.types.is_dictionary(table[name].type):
            keys = pl.Series(
                name, pa.chunked_array([_keys_of_dictionary(column, c) for c in table[name].chunks], pa.uint32())
            )
            table, done = table.drop_columns(name), [*done, keys]
    frame = pl.from_arrow(table) if table.num_columns else pl.DataFrame()
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(done)


def _keys_of_dictionary(column: Categorical, array: Any) -> Any:
    import polars as pl
    import pyarrow as pa

    texts = pl.Series("x", pl.from_arrow(array.dictionary)).cast(pl.String).extend(pl.Series([None], dtype=pl.String))
    keys = texts.to_frame("x").select(text_key(column, pl.col("x"))).to_series().to_numpy().astype(np.uint32)
    codes = array.indices
    if codes.null_count:
        codes = codes.cast(pa.int64()).fill_null(len(keys) - 1)
    return pa.array(keys.take(codes.to_numpy(zero_copy_only=False)))


def _from_pandas(frame: nw.DataFrame[Any], columns: Mapping[str, Column | None]) -> pl.DataFrame:
    """Turn the columns of a pandas-like frame into polars, texts of a person id into keys."""
    import polars as pl

    native: Any = frame.to_native() if frame.implementation.is_pandas() else frame.to_pandas()
    return pl.DataFrame([_series_from_pandas(name, native[name], column) for name, column in columns.items()])


def _series_from_pandas(name: str, series: Any, column: Column | None) -> pl.Series:
    """Turn a pandas series into polars: at once where its type fits the column, else value by value, to the same end.

    Types are those of this series, which for a part of a Dask frame need not be those that the frame declares.
    """
    import polars as pl

    categories = getattr(getattr(series, "cat", None), "categories", None)
    if categories is not None:
        levels = _project(name, column, list(categories)).extend_constant(None, 1)
        codes = series.cat.codes.to_numpy().astype(np.int64)
        return levels.gather(np.where(codes < 0, len(categories), codes))
    if series.dtype != object:
        try:
            typed = pl.Series(name, pl.from_pandas(series, nan_to_null=False))
        except Exception:  # text that is no valid Unicode, for one: each value for itself
            typed = pl.Series(name, [], dtype=pl.Object)
        if typed.dtype in (pl.Date, pl.Datetime) and isinstance(column, Numeric) and column.date is not None:
            return typed.to_frame().select(days_of(pl.col(name), typed.dtype)).to_series()
        text = typed.dtype == pl.String
        if text and isinstance(column, Numeric) and column._reads_text:
            return typed.to_frame().select(column._in_text(pl.col(name)).alias(name)).to_series()
        if text or typed.dtype == pl.Boolean or typed.dtype.is_numeric():
            if column is None:
                return typed.to_frame().select(key_of_text(name)).to_series() if text else typed
            if column.kind == "open" or text == (column.kind == "string"):
                return typed
    return _project(name, column, list(series))


def _project(name: str, column: Column | None, values: Sequence[Any]) -> pl.Series:
    """Return Python objects as levels, numbers or person keys: in a type that engines can hold."""
    import polars as pl

    if column is None:
        return person_keys(name, values)
    if isinstance(column, Categorical) and column.open:  # of unknown levels, texts alone can be told apart for certain
        return pl.Series(name, held_texts(values), dtype=pl.String)
    if isinstance(column, Categorical):
        return pl.Series(name, [*column.levels, None]).gather(column.encode(values))
    return pl.Series(name, column._read(values))


_T = TypeVar("_T")
_MOST_IN_SQL = 10_000  # texts of one column in a query


def collect(frame: nw.LazyFrame[Any]) -> pl.DataFrame:
    """Run a query and return its rows."""
    if frame.implementation.is_polars():
        return frame.to_native().collect(engine="streaming")  # type: ignore[no-any-return]
    return frame.collect("polars").to_native()  # type: ignore[no-any-return]


def stream(frame: nw.LazyFrame[Any], size: int) -> Iterator[pl.DataFrame]:
    """Yield a query's rows in pieces, without holding all of them; pieces may be smaller or larger than ``size``.

    A crash inside polars' own threads can end a stream without an error. Where the files say how many rows there are,
    that is noticed: a count that is short by some rows would be wrong, and nobody would know.

    Raises:
        EngineError: If the rows ended before they should have.
    """
    import polars as pl

    native: Any = frame.to_native()
    implementation = frame.implementation
    if on_duckdb := implementation.is_ibis() and native.get_backend().name == "duckdb":
        # Ibis 12 asks DuckDB 2 for a method that it no longer has.
        backend = native.get_backend()
        native = backend.con.sql(backend.compile(native))
    if implementation.is_polars():
        # Row groups that polars reads ahead would be most of the memory (1 GB, and 0.4 like this, for 20 columns).
        os.environ.setdefault("POLARS_ROW_GROUP_PREFETCH_SIZE", "1")
        left = length_of_files(native)
        for piece in native.collect_batches(chunk_size=size, maintain_order=True, engine="streaming"):
            left = None if left is None else left - piece.height
            yield piece
        if left:
            raise EngineError(
                "the polars engine did not hand over as many rows as the files say they hold. Was a file changed while "
                "it was read? Else polars failed inside: ask again, with more memory, or read the files by DuckDB."
            )
    elif implementation.is_duckdb() or on_duckdb:
        # DuckDB allows one open result per connection: close it even if the caller stops half-way.
        with getattr(native, "to_arrow_reader", native.fetch_arrow_reader)(size) as reader:
            yield from map(_arrow_to_polars, reader)
    elif implementation.is_ibis():
        yield from map(_arrow_to_polars, native.to_pyarrow_batches(chunk_size=size))
    elif engine_of(frame) == "pyspark":
        rows = map(tuple, native.toLocalIterator(prefetchPartitions=True))
        while piece := list(islice(rows, size)):
            yield pl.DataFrame(piece, schema=native.columns, orient="row", infer_schema_length=None)
    else:
        yield collect(frame)


_FOOTERS = ("SELECT [len()]", 'SELECT [col("len")', "UNION", "PLAN ", "END UNION", "Parquet SCAN [", "PROJECT 0/")


def length_of_files(frame: pl.LazyFrame) -> int | None:
    """Return how many rows a query has, if the footers of Parquet files say it; None if rows had to be read for that.

    Which it is, polars' own plan says: files of Parquet, no column of them, and nothing that chooses rows.
    """
    import polars as pl

    try:
        counted = frame.select(pl.len())
        lines = [line.strip() for line in counted.explain().splitlines()]
        free = all(line.startswith((*_FOOTERS, "ESTIMATED ROWS")) for line in lines)
        return int(counted.collect(engine="streaming").item()) if free else None
    except Exception:  # whoever reads the rows will say what is wrong with them
        return None


_UNLOGGED: ContextVar[bool] = ContextVar("unlogged", default=False)
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging")


def _logged(_: object) -> bool:
    return not _UNLOGGED.get()


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging errors inside the block: it writes their messages, which quote values, to stderr."""
    if "pyspark" in sys.modules:
        from pyspark.logger import PySparkLogger

        for name in _LOGGERS:
            PySparkLogger.getLogger(name).addFilter(_logged)
    token = _UNLOGGED.set(True)
    try:
        yield
    finally:
        _UNLOGGED.reset(token)


def known_reason(error: BaseException, doing: str) -> str | None:
    """Return what went wrong, where an error tells it by its kind alone, be it one of a worker of Spark."""
    told = str(error) if type(error).__name__ == "PythonException" else ""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    full = full or (isinstance(error, FileNotFoundError) and "No usable temporary directory" in str(error))
    if full or f"\nOSError: [Errno {errno.ENOSPC}]" in told:
        return (
            "the disk is full, or no folder for temporary files can be written, where rows were put that do not fit "
            f"into memory while {doing}. Name a folder with more room by the setting TMPDIR, or allow more memory by "
            "ESCUDO_MEMORY_MB; what was written is gone."
        )
    absent = re.search(r"^ModuleNotFoundError: No module named '([\w.]+)'", told, re.MULTILINE)
    if absent or isinstance(error, ModuleNotFoundError):
        lacking = absent[1] if absent else getattr(error, "name", None)
        return f"a worker lacks the package {lacking!r}: install there what is installed here."
    if type(error).__name__ == "PicklingError" or str(error).startswith("Could not serialize object"):
        return (
            "what is asked cannot be sent to workers: a function or an object of your own must be one that pickles, "
            "without locks, open files or connections in it."
        )
    if isinstance(error, FileNotFoundError) or "\nFileNotFoundError: " in told:
        return (
            f"a file with rows was gone while {doing}: removed or renamed, or, of a Delta or Iceberg table, cleaned "
            "away since its log was read. Ask again, of the table as it is now."
        )
    return None


def shielded(engine: str, doing: str, work: Callable[[], _T]) -> _T:
    """Do ``work``, replacing any error of the engine, whose message may show values, by one that names its kind only.

    Raises:
        EngineError: If the engine failed.
    """
    try:
        with unlogged():
            return work()
    except EscudoError:
        raise
    except BaseException as error:
        kind = type(error).__name__
        why = known_reason(error, doing)
        if not isinstance(error, Exception) and kind != "PanicException":  # a crash inside polars is no Exception
            raise
    # Raised outside the handler: no chain of causes leads back to the engine's message.
    if why:
        raise EngineError(why)
    raise EngineError(
        f"the {engine} engine failed while {doing} ({kind}): a damaged file, a lost connection or too little memory, "
        "for instance. Its message is withheld because it may show values of the table. What is wrong with a file, "
        "escudo schema check may say; else run a query over the schema's columns in the engine itself."
    )


def _arrow_to_polars(data: Any) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    return frame
