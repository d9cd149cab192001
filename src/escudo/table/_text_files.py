"""Text files, line by line: each line is one row, and what is in it never changes how another line is read.

One person's line must not decide over anybody else's. A reader that lets a quoted field run over several lines gives
the rows after a stray quote to the person who wrote it, and one that stops at a broken line gives nobody's. So records
are lines here. Lines without a quote, nearly all of them, are cut by polars; those with well-formed quotes by polars
too, each known to be complete; the rest by :func:`fields_of`, the reference. Which way a line goes changes the time
only.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo.errors import InputError
from escudo.table._persons import person_keys
from escudo.table._values import as_float, encodable

if TYPE_CHECKING:
    import polars as pl

    from escudo.table._schema import Schema

__all__ = ["as_number", "column_names", "fields_of", "legible", "scan_json", "scan_texts", "typed_texts"]

_LINE = "line"
_EXACT = 2**53  # whole numbers below it are floats as they are
_LONG = 10_000  # digits of a whole number beyond which it is taken for an infinity


def column_names(file: Path) -> list[str]:
    """Return the names in the first line of a CSV or TSV file, all different.

    Raises:
        InputError: If there is no such line.
    """
    with file.open("rb") as opened:
        first = opened.readline()
    if not first:
        raise InputError(f"'{file}' is empty: not even a line that names the columns.")
    line = first.decode("utf-8-sig", "replace").removesuffix("\n").removesuffix("\r")
    names: list[str] = []
    for field in fields_of(line, _separator(file)):
        name, number = field or "", 0
        while name in names:
            name, number = f"{field or ''}_duplicated_{number}", number + 1
        names.append(name)
    return names


def fields_of(line: str, separator: str) -> list[str | None]:
    """Cut a line into its fields; one that is empty and not quoted is None.

    >>> fields_of('1,,"a ""b"", c",x"y', ",")
    ['1', None, 'a "b", c', 'x"y']
    >>> fields_of('"open,2', ","), fields_of('"a"b,""', ",")
    (['open,2'], ['ab', ''])
    """
    found: list[str | None] = []
    start = 0
    while start <= len(line):
        text, quoted = "", line.startswith('"', start)
        if quoted:
            text, start = _quoted(line, start + 1)
        end = line.find(separator, start)
        end = len(line) if end < 0 else end
        text += line[start:end]
        found.append(text if text or quoted else None)
        start = end + 1
    return found


def _quoted(line: str, start: int) -> tuple[str, int]:
    """Return the text up to the closing quote, or to the end of the line without one, and the place after it."""
    parts = []
    while (end := line.find('"', start)) >= 0:
        parts.append(line[start:end])
        if not line.startswith('"', end + 1):
            return "".join(parts), end + 1
        parts.append('"')
        start = end + 2
    return "".join([*parts, line[start:]]), len(line)


def scan_texts(file: Path, *, quoted_newlines: bool = False) -> pl.LazyFrame:
    """Open a CSV or TSV file as columns of text, one row for each line.

    Args:
        file: The file.
        quoted_newlines: Whether a quoted field may hold line feeds, so that a record may be several lines.
    """
    import polars as pl

    separator = _separator(file)
    if quoted_newlines:
        return pl.scan_csv(
            glob.escape(str(file)),
            separator=separator,
            infer_schema=False,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
    names = column_names(file)
    plain = _scan(file, separator=separator)
    places = plain.collect_schema().names()[: len(names)]  # a name with a separator in it would be two of them
    cells = {f"f{position}": pl.col(place) for position, place in enumerate(places)}
    parsed = pl.col(_LINE).map_batches(
        _unquoted(separator, list(cells)), return_dtype=pl.Struct(dict.fromkeys(cells, pl.String)), is_elementwise=True
    )
    rows = pl.concat([plain.select(**cells), _lines(file).slice(1)], how="horizontal")
    rows = rows.with_columns(parsed.alias("parsed"), _is_special().alias("special"))
    return rows.select(
        pl.when("special").then(pl.col("parsed").struct.field(cell)).otherwise(pl.col(cell)).alias(name)
        for cell, name in zip(cells, names, strict=True)
    )


def _scan(source: Path | bytes, *, separator: str, quote_char: str | None = None) -> pl.LazyFrame:
    """Cut lines at each separator, after a first one that says how many fields there are; more are cut off."""
    import polars as pl

    return pl.scan_csv(
        source if isinstance(source, bytes) else glob.escape(str(source)),
        separator=separator,
        infer_schema=False,
        quote_char=quote_char,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    )


def _lines(file: Path) -> pl.LazyFrame:
    """Return the lines of a file, without their ends; null for an empty one."""
    import polars as pl

    return pl.scan_csv(
        glob.escape(str(file)),
        separator="\n",  # nothing is left that could cut a line
        has_header=False,
        schema={_LINE: pl.String},
        quote_char=None,
        encoding="utf8-lossy",
        raise_if_empty=False,
    )


def _is_special() -> pl.Expr:
    """Whether a line has quotes, or a carriage return that is not at its end and that polars may drop."""
    import polars as pl

    return pl.col(_LINE).str.contains('["\r]').fill_null(value=False)


def _unquoted(separator: str, places: list[str]) -> Callable[[pl.Series], pl.Series]:
    """Return how to cut those of some lines that are special; null for the others."""
    import polars as pl

    types = dict.fromkeys(places, pl.String)
    field = f'(?:"(?:[^"\r]|"")*"|[^"\r{separator}]*)'
    complete = f"^{field}(?:{separator}{field})*$"

    nothing = pl.DataFrame([[None] * len(places)], schema=types, orient="row")

    def cut(lines: pl.Series) -> pl.Series:
        special = lines.to_frame(_LINE).select(_is_special()).to_series()
        some = lines.filter(special)
        if some.is_empty():
            return nothing[np.zeros(len(lines), dtype=np.int64)].to_struct(lines.name)
        tidy = some.str.contains(complete)
        good = some.filter(tidy)
        first = separator.join(places).encode()
        text = b"\n".join([first, *([good.str.join("\n").item().encode()] if len(good) else [])])
        rows = _scan(text, separator=separator, quote_char='"').collect()
        if len(good) == len(lines):
            return rows.to_struct(lines.name)
        odd = [(*fields_of(line, separator), *[None] * len(places))[: len(places)] for line in some.filter(~tidy)]
        rows = pl.concat([rows, pl.DataFrame(odd, schema=types, orient="row"), nothing])
        where = np.full(len(lines), len(rows) - 1)
        places_of_some, in_order = np.flatnonzero(special.to_numpy()), tidy.to_numpy()
        where[places_of_some[in_order]] = np.arange(len(good))
        where[places_of_some[~in_order]] = np.arange(len(good), len(some))
        return rows[where].to_struct(lines.name)

    return cut


def _separator(file: Path) -> str:
    return "\t" if file.suffix.lower() == ".tsv" else ","


def as_number(text: pl.Expr, *, boolean: bool) -> pl.Expr:
    """Return text as float64, null where it is no number; true and false are numbers in a column of booleans."""
    import polars as pl

    value = text.str.strip_chars()
    if boolean:
        value = value.str.to_lowercase().replace({"true": "1", "false": "0"})
    return value.cast(pl.Float64, strict=False)


def legible(person: pl.Expr) -> pl.Expr:
    """Return person ids, null where bytes that are no UTF-8 were replaced: different ids may have become the same."""
    import polars as pl

    return pl.when(~person.str.contains("\ufffd", literal=True)).then(person)


def typed_texts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Read columns of text as numbers or booleans where all their values are: for the custodian's own eyes."""
    import polars as pl

    names = frame.collect_schema().names()
    tries: dict[str, Callable[[pl.Expr], pl.Expr]] = {
        "Int64": lambda text: text.cast(pl.Int64, strict=False),
        "Float64": lambda text: text.cast(pl.Float64, strict=False),
        "Boolean": lambda text: text.replace_strict(
            {"true": True, "false": False}, default=None, return_dtype=pl.Boolean
        ),
    }
    values = {name: pl.col(name).str.strip_chars() for name in names}
    fits = [
        (read(value).is_not_null() | pl.col(name).is_null()).all().alias(f"{kind} {position}")
        for position, (name, value) in enumerate(values.items())
        for kind, read in tries.items()
    ]
    filled = [pl.col(name).is_not_null().any().alias(f"filled {position}") for position, name in enumerate(names)]
    found = frame.select(*fits, *filled).collect(engine="streaming").row(0, named=True)
    typed = []
    for position, (name, value) in enumerate(values.items()):
        kind = next((kind for kind in tries if found[f"{kind} {position}"] and found[f"filled {position}"]), None)
        if kind is not None:
            typed.append(tries[kind](value).alias(name))
    return frame.with_columns(typed)


def scan_json(file: Path, schema: Schema | None) -> pl.LazyFrame:
    """Open a file of one JSON object a line, with the columns of the schema, or with all keys that occur.

    Texts and numbers stay apart: a text's column holds what is text in the file, and a person id, in which 1 and "1"
    are different people, the person's key.
    """
    import polars as pl

    readers = _readers_by_keys(file) if schema is None else _readers(schema)
    exact = schema is not None and schema.person_id is not None
    types = {name: reader([]).dtype for name, reader in readers.items()}

    def read(lines: pl.Series) -> pl.Series:
        records = [_record(line, exact=exact) for line in lines]
        columns = {name: reader([record.get(name) for record in records]) for name, reader in readers.items()}
        return pl.DataFrame(columns, schema=types).to_struct(lines.name)

    rows = pl.col(_LINE).map_batches(read, return_dtype=pl.Struct(types), is_elementwise=True)
    return _lines(file).select(rows).unnest(_LINE)


def _readers(schema: Schema) -> dict[str, Callable[[list[Any]], pl.Series]]:
    """Return how the values of each column become a series, as the schema says."""
    import polars as pl

    def persons(values: list[Any]) -> pl.Series:
        return person_keys("person", values).to_frame().select(legible(pl.col("person"))).to_series()

    def numbers(boolean: bool) -> Callable[[list[Any]], pl.Series]:
        def read(values: list[Any]) -> pl.Series:
            found = pl.Series([_float(value) for value in values], dtype=pl.Float64)
            if not any(isinstance(value, str) for value in values):
                return found
            spelt = _texts(values).to_frame("text").select(as_number(pl.col("text"), boolean=boolean)).to_series()
            return found.zip_with(found.is_not_null(), spelt)

        return read

    readers: dict[str, Callable[[list[Any]], pl.Series]] = {
        column.name: _texts if column.kind in ("string", "open") else numbers(column.kind == "boolean")
        for column in schema.fields
    }
    return readers if schema.person_id is None else {**readers, schema.person_id: persons}


def _readers_by_keys(file: Path) -> dict[str, Callable[[list[Any]], pl.Series]]:
    """Return a reader for each key that occurs, by the kinds of all its values: for the custodian's own eyes."""
    import polars as pl

    kinds: dict[str, set[type]] = {}
    with file.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
        for line in lines:
            for key, value in _record(line).items():
                kinds.setdefault(key, set()).update({type(value)} - {type(None)})

    def series(dtype: Any) -> Callable[[list[Any]], pl.Series]:
        return lambda values: pl.Series(values, dtype=dtype, strict=False)

    def told(values: list[Any]) -> pl.Series:
        return _texts([json.dumps(value) if isinstance(value, int | float) else value for value in values])

    def reader(found: set[type]) -> Callable[[list[Any]], pl.Series]:
        if found and found <= {int, float}:
            return series(pl.Int64 if found == {int} else pl.Float64)
        return series(pl.Boolean) if found == {bool} else told

    return {key: reader(found) for key, found in kinds.items() if encodable(key)}


def _record(line: str | None, *, exact: bool = False) -> dict[str, Any]:
    """Return a line of JSON, empty if it is no JSON object; no line is an error.

    Args:
        line: The line.
        exact: Whether numbers with a point come as decimals, so that ids that differ stay different.
    """
    text, read_float = (line or "").removeprefix("\ufeff"), Decimal if exact else None
    try:
        try:
            found = json.loads(text, parse_float=read_float)
        except json.JSONDecodeError:
            return {}
        except ValueError:  # a whole number of more digits than Python's own reader takes
            found = json.loads(text, parse_float=read_float, parse_int=_whole)
    except (ValueError, ArithmeticError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _whole(digits: str) -> int | float:
    """Read a whole number of any length."""
    return int(Decimal(digits)) if len(digits) < _LONG else float(digits)


def _float(value: Any) -> float | None:
    """Return what is a number in JSON as float64, None for all else."""
    if type(value) is int and -_EXACT < value < _EXACT:
        return float(value)
    return value if type(value) is float else as_float(value) if isinstance(value, int | Decimal) else None


def _texts(values: Iterable[Any]) -> pl.Series:
    """Return what is text, null for all else; what is no valid Unicode in it becomes a question mark."""
    import polars as pl

    texts = [
        None
        if not isinstance(value, str)
        else value
        if value.isascii() or encodable(value)
        else value.encode(errors="replace").decode()
        for value in values
    ]
    return pl.Series(texts, dtype=pl.String)
