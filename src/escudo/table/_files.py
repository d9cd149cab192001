"""Data as a lazy frame, from a file or from any dataframe engine, and its errors without private values.

**Text files** are read line by line: each line is one row, and what is in it never changes how another line is read.
One person's line must not decide over anybody else's. A reader that lets a quoted field run over several lines gives
the rows after a stray quote to the person who wrote it, and one that stops at a broken line gives nobody's. So records
are lines here. Lines without a quote, nearly all of them, are cut by polars; those with well-formed quotes by polars
too, each known to be complete; the rest by :func:`fields_of`, the reference. Which way a line goes changes the time
only.

Data named on a command line are a file, or a table of a DuckDB or PostgreSQL database that is counted where it is.
"""

from __future__ import annotations

import glob
import json
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import narwhals as nw
import numpy as np

from escudo._validate import did_you_mean
from escudo.errors import EscudoError, InputError
from escudo.table._columns import as_float, encodable
from escudo.table._persons import person_keys
from escudo.table._schema import Schema

if TYPE_CHECKING:
    import polars as pl

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
        return _scan(file, separator, '"')
    names = column_names(file)
    plain = _scan(file, separator)
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


def _scan(source: Path | bytes, separator: str, quote: str | None = None) -> pl.LazyFrame:
    """Cut lines at each separator, after a first one that says how many fields there are; more are cut off."""
    import polars as pl

    return pl.scan_csv(
        source if isinstance(source, bytes) else glob.escape(str(source)),
        separator=separator,
        infer_schema=False,
        quote_char=quote,
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
        rows = _scan(text, separator, '"').collect()
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


SEPARATED = (".csv", ".tsv")
ENDINGS = (*SEPARATED, ".parquet", ".arrow", ".feather", ".ndjson", ".jsonl")


def scan(path: str | PathLike[str], schema: Schema | None = None) -> pl.LazyFrame:
    """Open a data file as a lazy polars frame, in the format that its ending names.

    CSV, TSV, Parquet, Arrow/Feather and newline-delimited JSON. In a text file **every line is one row**, and what is
    in a line never changes how another is read:

    * a line ends at a line feed, with a carriage return before it or not; one that is empty is a row of missing values,
      since a row that could vanish would change the number of rows. The first line of CSV and TSV names the columns;
    * a field that begins with a quote ends at the next single quote, or else at the end of the line; two quotes in it
      stand for one, and text between its last quote and the separator belongs to it. Elsewhere a quote is a character;
    * a line that is too long or too short is cut or filled up with missing values, and an empty field that is not
      quoted is missing. Bytes that are no UTF-8 become U+FFFD, and a person id
      with one in it is none, since different ids may have become the same;
    * a line that is no JSON object is a row of missing values. Of a key that comes twice the last one counts, and a
      list or an object in one is missing.

    Only if ``schema.quoted_newlines`` says so may a quoted field hold line feeds. Whoever says it vouches that the
    program that wrote the file closed all its quotes: one that is open joins the rows after it, of whomever they are.

    Args:
        path: The file.
        schema: What is public about it. Given, the schema decides how a text file is read: what is no number in a
            column of numbers is missing, and in JSON what is no text in a column of text. Otherwise types come from the
            whole file, so that a single private value decides whether a column is one of numbers: good enough for the
            custodian's own eyes, not for a release.

    Raises:
        InputError: If the file is missing, of another format, or damaged; no value in it is shown.
    """
    import polars as pl

    file = readable(path)
    ending = file.suffix.lower()
    with hide_values(f"'{file}' is not a readable {ending[1:]} file. Is it damaged, empty or of another format?"):
        # A name is one file, whatever brackets and stars are in it.
        if ending == ".parquet":
            frame = pl.scan_parquet(glob.escape(str(file)))
        elif ending in (".arrow", ".feather"):
            frame = pl.scan_ipc(glob.escape(str(file)))
        elif ending in SEPARATED:
            texts = scan_texts(file, quoted_newlines=schema is not None and schema.quoted_newlines)
            frame = typed_texts(texts) if schema is None else texts.with_columns(_readings(texts, schema))
        else:
            frame = scan_json(file, schema)
        frame.collect_schema()
    return frame


def readable(path: str | PathLike[str]) -> Path:
    """Return the path of a data file, or raise if its format is unknown or it cannot be opened."""
    file = Path(fspath(path))
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(
            f"cannot tell the format of '{file}': expected a file ending in {', '.join(ENDINGS)}."
            + did_you_mean(ending, ENDINGS)
        )
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror or 'unknown reason'}.") from None
    except ValueError:  # a NUL in the name
        raise InputError("cannot read the data: the path is not usable.") from None
    return file


def _readings(frame: pl.LazyFrame, schema: Schema) -> list[pl.Expr]:
    """Return the columns of text that are read as something else: numbers, booleans and the person id."""
    import polars as pl

    columns = frame.collect_schema().names()
    kinds = {column.name: column.kind for column in schema.fields if column.kind not in ("string", "open")}
    read = [
        as_number(pl.col(name), boolean=kind == "boolean").alias(name)
        for name, kind in kinds.items()
        if name in columns
    ]
    return read if schema.person_id not in columns else [*read, legible(pl.col(schema.person_id))]


def as_lazy(data: Any) -> tuple[nw.LazyFrame[Any], str]:
    """Return data as a lazy narwhals frame, and what to call it in messages.

    Args:
        data: A path, or a frame of any engine that narwhals takes.

    Raises:
        InputError: If it is neither, or a column's name is not text.
    """
    if isinstance(data, str | PathLike):
        return nw.from_native(scan(data)), f"'{fspath(data)}'"
    expected = "expected a path or a dataframe (pandas, polars, pyarrow, DuckDB, ...)"
    with hide_values(f"{expected} with distinct column names; got {type(data).__name__}."):
        frame = nw.from_native(data).lazy()
        names = list(frame.collect_schema())
    if not all(isinstance(name, str) for name in names):
        raise InputError("the table has a column whose name is not text; rename it.")
    return frame, "the table"


@contextmanager
def hide_values(message: str) -> Iterator[None]:
    """Turn whatever an engine raises into ``InputError(message)``: its own words may quote private values."""
    try:
        yield
    except EscudoError:
        raise
    except MemoryError:
        raise
    except Exception:
        raise InputError(message) from None  # or a traceback would go on to print the engine's own message
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # a crash inside polars derives from BaseException
            raise InputError(message) from None
        raise


_FORMS = "duckdb:///FILE?table=NAME or postgresql://USER@HOST/DATABASE?table=NAME"
_OPENERS = {"duckdb": "DuckDB", "postgresql": "PostgreSQL", "postgres": "PostgreSQL"}
_READ_ONLY = "-c default_transaction_read_only=on"


def open_data(text: str, schema: Schema | None = None) -> Any:
    """Open what a person names: a data file, or a table in a database, read-only.

    Args:
        text: A path as for :func:`scan`; ``duckdb:///relative.db?table=visits`` (four slashes for an absolute path); or
            ``postgresql://user:password@host/database?table=visits``, with further settings of libpq in the query. A
            password that is left out comes from ``PGPASSWORD`` or the password file. ``&schema=clinic`` names the
            table's schema.
        schema: How to read a file that states no types (see :func:`scan`).

    Returns:
        A frame that is not read yet and that :class:`PrivateTable` takes. The rows of a database stay in it: only
        counts leave. Nobody should write to the table while it is counted.

    Raises:
        InputError: If it cannot be opened, or what reads it is not installed. No message holds a password.
    """
    if "://" not in text:
        return scan(text, schema)
    try:
        url = urlsplit(text)
        settings = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
    except ValueError:
        raise InputError(f"the data's URL cannot be read; write {_FORMS}, with special characters as %XX.") from None
    if url.scheme not in _OPENERS:
        raise InputError(
            f"data in {url.scheme!r} cannot be opened; use a file, or {_FORMS}.{did_you_mean(url.scheme, _OPENERS)}"
        )
    name, home = settings.pop("table", ""), settings.pop("schema", None)
    if not name:
        raise InputError(f"the URL does not say which table of the database; write {_FORMS}.")
    if _OPENERS[url.scheme] == "DuckDB":
        return _open_duckdb(url, name, home, settings)
    return _open_postgresql(url, name, home, settings)


def _open_duckdb(url: SplitResult, name: str, schema: str | None, settings: dict[str, str]) -> Any:
    try:
        import duckdb
    except ImportError:
        raise InputError("a DuckDB database needs: pip install 'escudo[duckdb]'.") from None
    if settings or url.netloc:
        raise InputError(f"the DuckDB URL has something that is not understood; write {_FORMS}, three slashes and all.")
    file = Path(unquote(url.path.removeprefix("/")))
    if not file.is_file():
        raise InputError(f"cannot read '{file}': there is no such file.")
    try:
        connection = duckdb.connect(str(file), read_only=True)
        tables = connection.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
        tables += connection.execute("SELECT schema_name, view_name FROM duckdb_views()").fetchall()
    except duckdb.Error as error:
        kind = type(error).__name__
        raise InputError(
            f"'{file}' cannot be opened as a DuckDB database ({kind}). Is it one, and is no program writing to it?"
        ) from None
    known = [table for home, table in tables if home == (schema or "main")]
    if name not in known:
        raise _no_table(name, f"'{file}'", known)
    return connection.sql(f"SELECT * FROM {_quoted_name(schema or 'main')}.{_quoted_name(name)}")


def _open_postgresql(url: SplitResult, name: str, schema: str | None, settings: dict[str, str]) -> Any:
    try:
        import ibis
        import psycopg
    except ImportError:
        raise InputError("a PostgreSQL database needs: pip install 'escudo[database]'.") from None
    shown = _shown(url)
    settings["options"] = f"{settings.get('options', '')} {_READ_ONLY}".strip()
    target = url._replace(scheme="postgresql", query=urlencode(settings, quote_via=quote)).geturl()
    kind = None
    try:
        connection = psycopg.connect(target, autocommit=True)
        backend = ibis.postgres.from_connection(connection)
        weakref.finalize(backend, connection.close)  # the frame keeps the backend, and the backend the connection
        known = backend.list_tables(database=schema)
    except (psycopg.Error, ValueError, UnicodeError) as error:
        kind = type(error).__name__
    if kind is not None:  # outside the handler: the driver's own message may quote the URL, and the password in it
        raise InputError(
            f"cannot connect to {shown} ({kind}). Is the server running, and are user, password, database and schema "
            "right?"
        )
    if name not in known:
        raise _no_table(name, shown, known)
    return backend.table(name, database=schema)


def _no_table(name: str, place: str, known: list[str]) -> InputError:
    return InputError(f"{place} has no table {name!r} that can be read.{did_you_mean(name, known)}")


def _shown(url: SplitResult) -> str:
    """Return the URL without password and query, which may hold one too."""
    user, at, place = url.netloc.rpartition("@")
    return f"'postgresql://{user.partition(':')[0]}{at}{place}{url.path}'"


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
