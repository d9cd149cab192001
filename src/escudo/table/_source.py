"""A frame that was opened but not read: what it is, whether it fits the schema, and how to ask it.

Lazy frames (polars, DuckDB, Ibis, PySpark) are asked in their own engine. A frame already in this process's memory
(pandas, pyarrow, modin) is handed to polars column by column, without a copy where the memory layout allows it: its
streaming group-by is several times faster than theirs. Dask does the same for each of its partitions, on its workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from escudo._validate import did_you_mean
from escudo.errors import InputError, SchemaError
from escudo.table._columns import Categorical, Column
from escudo.table._encode import Holds, check_holds, holds
from escudo.table._schema import Schema
from escudo.table._values import as_float, encodable, is_null

if TYPE_CHECKING:
    import polars as pl

__all__ = ["OBJECT_ID", "Source", "open_source"]

_EXACT_ON_IBIS = ("duckdb", "postgres")
"""The databases behind Ibis in which text can be compared by its exact characters, by the collation C."""

OBJECT_ID = "\0"
"""What the text of a person id begins with if it was a Python object and no text; a whole number's digits follow."""

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

    def lazy(self, columns: Mapping[str, Column | None]) -> nw.LazyFrame[Any]:
        """Return the named columns as a lazy frame of an engine that groups fast.

        Args:
            columns: The schema's column for each name; None for the person id.
        """
        chosen = self.frame.select(*map(nw.col, columns))
        if isinstance(chosen, nw.LazyFrame):
            return _without_collations(chosen)
        implementation = chosen.implementation
        if implementation.is_polars():
            return chosen.lazy()
        return nw.from_native(
            (chosen.to_polars() if implementation.is_pyarrow() else _to_polars(chosen, columns)).lazy()
        )

    def slices(self, size: int) -> Iterator[Source]:
        """Yield a frame in memory ``size`` rows at a time, in order; a lazy one as it is."""
        if isinstance(self.frame, nw.LazyFrame):
            yield self
            return
        for start in range(0, len(self.frame), size):
            yield Source(engine=self.engine, frame=self.frame[start : start + size])

    def partitions(self, columns: Mapping[str, Column | None], person_id: str | None) -> list[Any]:
        """Return a Dask frame's partitions as delayed pandas frames, all rows of a person in one of them.

        Each is a table of its own that can be asked on its worker; :meth:`partition` opens it there.
        """
        native: Any = self.frame.to_native()[list(columns)]
        if person_id is not None:
            native = native.dropna(subset=[person_id]).shuffle(on=person_id)
        return list(native.to_delayed())

    @staticmethod
    def partition(part: Any) -> Source:
        """Open one partition of a Dask frame."""
        return Source(engine="pandas", frame=nw.from_native(part, eager_only=True))


def open_source(frame: object, schema: Schema) -> Source:
    """Open a frame: check that it is one and that its columns and their types fit the schema, without reading a row.

    Raises:
        InputError: If ``frame`` is no frame that is taken, or is known to be empty.
        SchemaError: If a column of the schema is absent from the frame, or of a type that cannot hold it.
    """
    opened = _opened(frame)
    found = opened.collect_schema()
    _check_columns(schema, list(found))
    for column in schema.fields:
        dtype = found[column.name]
        check_holds(column, _inner(opened, column.name, holds(dtype)), type(dtype).__name__)
    if schema.person_id is not None:
        _check_person(schema.person_id, found[schema.person_id], opened)
    if isinstance(opened, nw.DataFrame) and len(opened) == 0:
        raise InputError("the table has no rows; give the frame that holds the data.")
    return Source(engine=opened.implementation.value, frame=opened)


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
    wanted = [*schema.names, *(() if schema.person_id is None else (schema.person_id,))]
    for name in wanted:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise SchemaError(f"column {name!r} reads as a pattern that stands for other columns; rename it.")
    absent = [name for name in wanted if name not in found]
    if absent:
        listed = ", ".join(repr(name) for name in absent[:8]) + (", ..." if len(absent) > 8 else "")
        raise SchemaError(
            f"the table does not have the schema's column{'s' if len(absent) > 1 else ''} {listed}; "
            f"rename the column in the table or in the schema.{did_you_mean(absent[0], found)}"
        )


def _inner(frame: nw.DataFrame[Any] | nw.LazyFrame[Any], name: str, found: Holds) -> Holds:
    """Look through dictionary types to the type of their values, and tell all-null columns from unusable ones."""
    native: Any = frame.to_native()
    if frame.implementation.is_pandas() and found == "text":
        categories = getattr(getattr(native[name], "cat", None), "categories", None)
        return "text" if categories is None else holds(nw.from_native(categories.to_series(), series_only=True).dtype)
    if frame.implementation.is_pyarrow():
        import pyarrow as pa

        kind = native.schema.field(name).type
        if pa.types.is_dictionary(kind):
            return holds(nw.from_native(pa.chunked_array([], kind.value_type), series_only=True).dtype)
        return "anything" if pa.types.is_null(kind) else found
    if frame.implementation.is_polars():
        import polars as pl

        dtype = native.collect_schema()[name]
        return "anything" if dtype == pl.Null else "nothing usable" if dtype == pl.Object else found
    return found


def _check_person(name: str, dtype: Any, frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> None:
    found = _inner(frame, name, holds(dtype))
    if found == "nothing usable" or dtype == nw.Boolean:
        raise SchemaError(
            f"the person id {name!r} is of type {type(dtype).__name__}; cast it to whole numbers or text in the table."
        )
    if found == "text" and frame.implementation.is_ibis():
        raise SchemaError(f"the person id {name!r} is text, which is not supported on Ibis; use whole numbers.")


def _without_collations(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Compare text by its exact characters, whatever collation the database's columns have.

    Under a collation that ignores case, two people could share an id and the bound on one person's rows would not hold.
    """
    native: Any = frame.to_native()
    if frame.implementation.is_duckdb():
        listed = []
        for name, dtype in frame.collect_schema().items():
            quoted = '"' + name.replace('"', '""') + '"'
            listed.append(f'{quoted} COLLATE "C" AS {quoted}' if dtype == nw.String else quoted)
        native = native.select(", ".join(listed))
    elif frame.implementation.is_ibis():
        native = _exact_on_ibis(native)
    elif frame.implementation.is_pyspark():
        from pyspark.sql import functions

        collated = [f.name for f in native.schema if getattr(f.dataType, "collation", "UTF8_BINARY") != "UTF8_BINARY"]
        native = native.withColumns({name: functions.collate(native[name], "UTF8_BINARY") for name in collated})
    exact: nw.LazyFrame[Any] = nw.from_native(native)
    return exact


def _exact_on_ibis(table: Any) -> Any:
    """Do the same through SQL, which also takes off the blanks of ``char(n)`` and the case-blindness of ``citext``."""
    texts = [name for name, dtype in table.schema().items() if dtype.is_string()]
    backend = table.get_backend()
    if not texts:
        return table
    if backend.name not in _EXACT_ON_IBIS:
        raise SchemaError(
            f"column {texts[0]!r} is text in {backend.name}, which may take different texts for equal; store levels as "
            "whole numbers there, or read the table into another engine."
        )
    listed = []
    for name in table.columns:
        quoted = '"' + name.replace('"', '""') + '"'
        listed.append(f'CAST({quoted} AS text) COLLATE "C" AS {quoted}' if name in texts else quoted)
    schema = {name: "string" if name in texts else dtype for name, dtype in table.schema().items()}
    return backend.sql(f"SELECT {', '.join(listed)} FROM ({backend.compile(table)}) AS escudo_rows", schema=schema)


def _to_polars(frame: nw.DataFrame[Any], columns: Mapping[str, Column | None]) -> pl.DataFrame:
    """Turn the columns of a pandas-like frame into polars, those of Python objects by the reference encoder."""
    import polars as pl

    native: Any = frame.to_native() if frame.implementation.is_pandas() else frame.to_pandas()
    converted = []
    for name, column in columns.items():
        series = native[name]
        categories = getattr(getattr(series, "cat", None), "categories", None)
        if categories is not None and not all(isinstance(category, str) for category in categories):
            levels = _project(name, column, categories.to_numpy(dtype=object)).extend_constant(None, 1)
            codes = series.cat.codes.to_numpy()
            converted.append(levels.gather(np.where(codes < 0, len(categories), codes)))
        elif series.dtype == object:
            converted.append(_project(name, column, series.to_numpy()))
        else:
            converted.append(pl.Series(name, pl.from_pandas(series, nan_to_null=False)))
    return pl.DataFrame(converted)


def _project(name: str, column: Column | None, values: Any) -> pl.Series:
    """Return Python objects as levels, numbers or person ids; what no engine type could hold is mapped here already."""
    import polars as pl

    if column is None:
        return _person_ids(name, values)
    if isinstance(column, Categorical) and column.open:  # of unknown levels, texts alone can be told apart for certain
        texts = [value if isinstance(value, str) and encodable(value) else None for value in values]
        return pl.Series(name, texts, dtype=pl.String)
    if isinstance(column, Categorical):
        return pl.Series(name, [*column.levels, None]).gather(column.encode(values))
    return pl.Series(name, np.fromiter(map(as_float, values), dtype=np.float64, count=len(values)))


def _person_ids(name: str, values: Any) -> pl.Series:
    """Return a text for each id that depends on that id alone, so that nobody's id changes how another's is hashed."""
    import polars as pl

    return pl.Series(name, [None if is_null(value) else _person_text(value) for value in values], dtype=pl.String)


def _person_text(value: Any) -> str:
    if isinstance(value, str):
        return value if encodable(value) else f"{OBJECT_ID}text {value!a}"  # no engine holds invalid Unicode
    number = as_float(value)
    if math.isnan(number):  # no number at all, such as a UUID
        return f"{OBJECT_ID}{type(value).__name__} {value}"
    if value == number:  # equal numbers of different types are one person, as they would be in a column of numbers
        value = int(number) if number.is_integer() else number
    return f"{OBJECT_ID}{value}"
