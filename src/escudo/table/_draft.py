"""A first schema for a table: drafted from its data, for the custodian to confirm, or outlined from types alone.

A draft is made of private values (someone is the oldest, someone has the rare diagnosis), so it is for the
custodian's eyes only, every column says ``confirmed = false``, and releases refuse it. An outline looks at names and
types only, and leaves levels and bounds open to be learnt privately.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from narwhals.dtypes import DType

from escudo._card import first_of, number_of, tracking
from escudo.errors import InputError, SchemaError
from escudo.table._check import how_to_derive
from escudo.table._columns import (
    MISSING_LABEL,
    Categorical,
    Column,
    Numeric,
    bounds_to_learn,
    in_order,
    levels_to_learn,
)
from escudo.table._encode import holds, storage_of
from escudo.table._files import (
    JSON_LINES,
    alike,
    as_lazy,
    data_files,
    hide_values,
    is_lake,
    is_sqlite,
    is_workbook,
    some_at_a_time,
    text_files,
    unreadable,
)
from escudo.table._frames import reads_texts
from escudo.table._looks import FEW, date_format, number_form, one_spelling, personal, several_units, several_ways
from escudo.table._schema import DECIMALS, Schema
from escudo.table._text_files import (
    Dialect,
    announced,
    check_files,
    column_names,
    first_fields,
    has_value,
    is_marker,
    mostly_numbers,
)
from escudo.table._values import ISO, as_dates, as_numbers, as_python, held_texts, is_null, loosely

if TYPE_CHECKING:
    import polars as pl

_FEWEST_VALUES = 4  # twice the columns that have to be called like a value of theirs
_ODD = 0.1  # of the texts of a column may be something else
_MANY = 200  # text with more levels than this is left to be learnt
_ID_NAME = re.compile(
    r"^(?i:(.*[_\s.-])?(id|pid|uuid|guid|ssn)|person|patient|subject|aktenzeichen"
    r"|(.*[_\s.-])?(patient(en)?|fall|akten?|case|chart|record|encounter|member)[_\s.-]?(nr|no|num(mer|ber)?)\.?)$"
    r"|[a-z]I[dD]$"
)
_ROW_NAME = re.compile(
    r"(?i)row(.?(no|nr|num(ber)?|id))?|line|index|idx|no\.?|nr\.?|#|lfd\.?( ?nr\.?)?|zeile|unnamed: 0"
)
_PERSON_NAME = re.compile(r"(?i)person|patient|subject|participant|^p?id$|uuid|guid|ssn")
_PLAIN_DAY = "%Y%m%d"  # read as a whole number by any program that is not told better


_NO_DAY = 30  # of December 1899 and the day after it: by these a spreadsheet dates a time of day
_FIRST_DAY, _LAST_DAY = 19_000_101, 20_991_231
_DATES_NOTE = "lower and upper read from the data: the years of the first and last day"
_LEVELS_NOTE = "levels read from the data"
_BOUNDS_NOTE = "lower and upper read from the data: the smallest and largest value of someone, rounded outward"
_ABOUT_QUOTES = (
    "Quoted fields hold line feeds, so that a row may be several lines: quoted_newlines = true. By it you vouch that "
    "the program that wrote the file closed all its quotes: an open one joins the rows after it, whosever they are."
)
_ABOUT_HEADERS = (
    "The first line seems to be a row and no line of names: most columns would be called like one of their own values, "
    "and names are public. So it is read as a row, and columns are numbered. To name them, draft again with --header "
    "NAME,NAME,... for all of them; if the first line does name them, with --header first."
)
_SEEMS_A_ROW = (
    "the first line of '{file}' seems to be a row and no line of names, and names are public. Say what the columns are "
    "called (--header NAME,NAME,...), that they are numbered (--header none) or that the first line does name them "
    "(--header first); or draft a schema."
)
_NUMBER = re.compile(r"\s*[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?\s*")
_FORM_NOTE = "format as it seems to be: how 1234.5 is written, with a sign or unit; what is not written so is missing"
_PERCENT_NOTE = (
    '; percent are numbers up to 100 by it: 12% is 12. For 0.12, as spreadsheets have it, state format = "{form}" and '
    "bounds such as 0 and 1"
)
_UNITS_NOTE = (
    "Many look like numbers in several units or currencies, which escudo does not convert: to use it as a number, "
    "write all in one of them in the table"
)
_ABOUT_FORMS = (
    "Texts are read as numbers by a format, which shows how 1234.5 is written: {forms}. What is not written so is "
    "missing. Formats are published with the schema."
)
_ABOUT_UNITS = (
    "Numbers in several units or currencies, which are left as texts: {names}. Write all in one in the table."
)
_WORDS_NOTE = "There are words among the numbers; what is no number counts as missing"
DRAFT_NOTES = (
    "Drafted from the data by escudo: for the custodian's eyes only until confirmed.",
    "Where a column says confirmed = false, read its comment. If its levels or bounds are public knowledge",
    "(a questionnaire's answers, a law, a device's range), correct them and run 'escudo schema confirm'.",
    "If not, run 'escudo schema learn': it learns them under differential privacy and charges the budget.",
)


def draft(
    data: Any,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    header: Sequence[str] | bool | None = None,
    quoted_newlines: bool | None = None,
) -> Schema:
    """Draft a schema from a table's data; every column of it is unconfirmed.

    Text, booleans and numbers with at most 20 distinct values become categorical, other numbers numeric with bounds
    rounded outward and 20 bins, also those that are texts with one currency or unit, by their format. Text with more
    than 200 levels stays open. Identifiers, dates that are written in several ways, mixed columns, columns
    that number the rows, and what seems to be names, e-mail addresses, telephone and national numbers or free text are
    left out, and a note says why. What means "no value" (NA, ?, a blank) is missing, so are few words among many
    numbers of a text file, and of spellings that differ in case or in blanks only one stands for all: the column is
    read loosely, or, where letters beyond A to Z or other blanks make the difference, the others are recoded to it.

    How a CSV or TSV file is written is recognised, said in a note and stated in the schema, by which the file is read
    from then on. Notes also say how many of its lines have too few or too many fields, and which name comes twice.

    Args:
        data: A path, or a frame of any engine that narwhals takes.
        delimiter: What stands between the fields of a CSV or TSV file; recognised by default.
        encoding: Its encoding; recognised by default.
        decimal: What stands before the decimals of its numbers; recognised by default.
        header: What its columns are called, if its first line does not say: names, or False to number them; True if
            the first line does. By default it is taken to, unless most names could be values of their own column.
        quoted_newlines: Whether its quoted fields may hold line feeds; recognised by default.

    Returns:
        A schema made of private values: for the custodian's eyes only.

    Raises:
        InputError: If the data cannot be read or have no rows, or header names more or fewer columns than there are.
        SchemaError: If no column is usable, or what is said about text files is nothing that a schema may state.

    **Guarantee**: none. Nothing may be released from a draft before a person confirms it.
    """
    fields: list[Column] = []
    notes, settings, dialect = [*DRAFT_NOTES], dict[str, Any](), None
    said = {"delimiter": delimiter, "encoding": encoding, "decimal": decimal, "quoted_newlines": quoted_newlines}
    if files := text_files(data):
        file = files[0]
        with hide_values(unreadable(file, spanning=quoted_newlines is not False)):
            dialect = alike(files, _checked_settings(said))
            dialect = replace(dialect, header=_names_for(file, dialect, header))
            settings = dialect.settings(file)
            seen = DECIMALS[dialect.decimal] if is_workbook(data) or is_sqlite(data) else dialect
            notes.append(
                f"Read with {seen}. This is published with the schema: a fact about the program that wrote it."
            )
            notes += [_ABOUT_QUOTES] if dialect.quoted_newlines else []
            notes += [f"{finding[0].upper()}{finding[1:]}." for finding in check_files(files, dialect).findings]
    elif any(value is not None for value in (*said.values(), header)):
        raise InputError("delimiter, encoding, decimal, header and quoted_newlines are about CSV and TSV files.")
    frame, source = as_lazy(data, dialect)
    with hide_values(f"{source} could not be read to the end. Is a row damaged, or are its values of mixed kinds?"):
        rows = int(frame.select(nw.len()).collect().item())
        if rows == 0:
            raise InputError(f"{source} has no rows to draft a schema from; write the schema by hand.")
        with tracking("Drafting", len(frame.collect_schema())) as advance:
            for name, dtype, held in some_at_a_time(frame, rows, frame.collect_schema().names()):
                column: Column | str = "its name is empty"
                if name:
                    column = _draft_column(
                        held, name, dtype, rows, decimal=None if dialect is None else dialect.decimal
                    )
                if isinstance(column, str):
                    notes.append(f"Left out {name!r}: {column}.")
                else:
                    fields.append(column)
                advance(1)
    if dialect is not None and header is None and _begins_with_a_row(fields):
        known = {key: getattr(dialect, key) for key in said}
        numbered = draft(data, **known, header=False)
        return replace(numbered, notes=(*numbered.notes, _ABOUT_HEADERS))
    forms = {column.name: column.form for column in fields if isinstance(column, Numeric) and column.form is not None}
    if forms:
        notes.append(_ABOUT_FORMS.format(forms=first_of(f"{name!r} as {form}" for name, form in forms.items())))
    if several := [column.name for column in fields if _UNITS_NOTE in column.note]:
        notes.append(_ABOUT_UNITS.format(names=first_of(map(repr, several))))
    days = [column.name for column in fields if isinstance(column, Numeric) and column.date is not None]
    if len(days) > 1:
        advice = how_to_derive(days[1], days[0], days=True).replace("know the order of", "know")
        notes.append(f"{len(days)} columns hold dates: {advice}")
    return _schema(fields, notes, source, settings)


def _names_for(file: Path, dialect: Dialect, header: Sequence[str] | bool | None) -> tuple[str, ...]:
    """Return what the columns are called where the first line does not say, nothing where it does.

    Raises:
        InputError: If there are more or fewer names than the first line has fields.
    """
    if header is None or header is True:
        return ()
    fields = len(first_fields(file, dialect))
    if header is False:
        return tuple(f"column_{place + 1}" for place in range(fields))
    if len(header) != fields:
        raise InputError(
            f"header names {number_of(len(header), 'column')}, and the first line of '{file}' has {fields}."
        )
    return tuple(header)


def _begins_with_a_row(fields: Sequence[Column]) -> bool:
    """Whether most columns, and two at least, are called like one of their values; years in a row are names."""
    called = [column for column in fields if _called_like_a_value(column)]
    if _in_equal_steps([column.name for column in called if isinstance(column, Numeric)]):
        called = [column for column in called if not column.name.isdecimal()]
    return 2 * len(called) >= max(len(fields), _FEWEST_VALUES)


def _reads_as_values(names: Sequence[str]) -> bool:
    """Whether most names, and two at least, are numbers or days by themselves; years in a row are names."""
    values = [name for name in names if _NUMBER.fullmatch(name) or date_format([name])]
    if _in_equal_steps(values):
        values = [name for name in values if not name.isdecimal()]
    return 2 * len(values) >= max(len(names), _FEWEST_VALUES)


def _in_equal_steps(names: Sequence[str]) -> bool:
    """Whether the whole numbers among names go up or down by one step, as years do; if they are two, by one."""
    steps = np.diff([int(name) for name in names if name.isdecimal()])
    return steps.size > 0 and bool((steps == steps[0]).all()) and (abs(steps[0]) == 1 or steps.size > 1)


def _called_like_a_value(column: Column) -> bool:
    """Whether a column's name could stand in the column."""
    if isinstance(column, Categorical):
        return column.name in set(map(str, (*column.levels, *dict(column.recode))))
    if column.date is not None:
        return date_format([column.name], (column.date,)) is not None
    return bool(_NUMBER.fullmatch(column.name))


def _checked_settings(said: dict[str, Any]) -> dict[str, Any]:
    """Return what was said about a text file, in the words of a schema.

    Raises:
        SchemaError: If no schema can say so.
    """
    given: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
    like = Schema((Categorical("any", ("any",)),), **given)
    return {key: getattr(like, key) for key in given}


def outline(data: Any, *, header: Sequence[str] | bool | None = None) -> Schema:
    """Outline a schema from names and types alone: levels and bounds stay open, every column may be missing.

    No value is read, so none decides over a column. Python objects and categories are taken for text, whatever they
    are, and so is every column of a CSV or TSV file, which states no types; what is no text in them is missing later.
    What stands between the fields of such a file and its encoding come from its first line alone. That line is taken
    for public names, so one of which half the fields, and two at least, are numbers or days is refused: it seems to be
    somebody's row. Then it has to be said what it is.
    This is what private learning starts from when there is no draft.

    Args:
        data: A path, or a frame of any engine that narwhals takes.
        header: What the columns of a CSV or TSV file are called, if its first line does not say: names, or False to
            number them; True if the first line does, whatever it looks like.

    Raises:
        InputError: If the data cannot be read, name no columns by themselves, as a file of JSON lines or one that seems
            to begin with a row, or header names more or fewer columns than there are.
        SchemaError: If no column is usable.
    """
    fields: list[Column] = []
    notes = ["Outlined from the table's column names and types; no value was looked at."]
    types, source, settings = _public_types(data, header)
    for name, dtype in types.items():
        column = _outline_column(name, dtype) if name else "its name is empty"
        if isinstance(column, str):
            notes.append(f"Left out {name!r}: {column}.")
        else:
            fields.append(column)
    return _schema(fields, notes, source, settings)


def _public_types(data: Any, header: Sequence[str] | bool | None) -> tuple[dict[str, DType], str, dict[str, Any]]:
    """Return the types that data declare, what to call them, and how a text file announces that it is written."""
    if isinstance(data, str | PathLike) and not is_lake(data):
        file = data_files(data)[0]
        if text_files(data):
            with hide_values(f"the columns of '{file}' cannot be read."):
                dialect = announced(file)
                dialect = replace(dialect, header=_names_for(file, dialect, header))
                names = column_names(file, dialect)
                if header is None and _reads_as_values(names):
                    raise InputError(_SEEMS_A_ROW.format(file=file))
                return dict.fromkeys(names, nw.String()), f"'{file}'", dialect.settings(file)
        if file.suffix.lower() in JSON_LINES:
            raise InputError(
                f"'{file}' does not say by itself which columns there are: each line may name others. Write a schema "
                "that names them, or draft one with 'escudo schema draft'."
            )
    if header is not None:
        raise InputError("header is about CSV and TSV files.")
    frame, source = as_lazy(data)
    with hide_values(f"the columns of {source} cannot be read."):
        return dict(frame.collect_schema().items()), source, {}


def _schema(fields: list[Column], notes: list[str], source: str, settings: dict[str, Any]) -> Schema:
    if not fields:
        raise SchemaError(f"{source} has no column that escudo can use: numbers, booleans or text with few levels.")
    return Schema(tuple(fields), notes=tuple(notes), **settings)


def _outline_column(name: str, dtype: DType) -> Column | str:
    stored = storage_of(dtype)
    if stored in ("string", "object", "integer") and _ID_NAME.search(name):
        return _identifier(name)
    if stored in ("string", "object"):
        return levels_to_learn(name)
    if stored == "boolean":
        return Categorical(name, (False, True), missing=True)
    if stored in ("integer", "float"):
        return bounds_to_learn(name, integer=stored == "integer")
    return _unusable(stored)


def _draft_column(frame: nw.LazyFrame[Any], name: str, dtype: DType, rows: int, *, decimal: str | None) -> Column | str:
    stored = storage_of(dtype)
    if holds(dtype) == "time":
        return _draft_date(frame, name)
    if stored not in ("string", "integer", "float", "boolean", "object"):
        return _unusable(stored)
    if stored == "float" and not dtype.is_float():  # decimals: NaN and infinity are questions for floats only
        frame = frame.with_columns(nw.col(name).cast(nw.Float64))
    few = FEW if stored in ("integer", "float") else _MANY
    try:
        distinct = frame.select(nw.col(name)).unique().head(few + 2).collect()[name].to_list()
    except TypeError:  # lists and the like inside an object column
        return _unusable(stored)
    levels = [as_python(value) for value in distinct if not is_null(value)]
    if not levels and len(distinct) <= few:
        return _unusable("empty")
    many, stated = len(levels) > FEW, len(levels) <= few
    written = stored in ("string", "object") and all(isinstance(level, str) for level in levels)
    if written and (form := date_format(levels)) is not None:
        if not reads_texts(frame):
            return _unusable("dates as text")
        return _draft_date(_read_dates(frame, name, form), name, form)
    if written and (ways := several_ways(levels)) and _nearly_all(frame, name, [(as_dates, way) for way in ways]):
        return (
            f"it holds dates that are written in several ways: {first_of(ways)}. To use it, write all of them in one "
            "way in the table"
        )
    plain = stored == "integer" and decimal is not None and all(_FIRST_DAY <= level <= _LAST_DAY for level in levels)
    if plain and date_format(list(map(str, levels)), (_PLAIN_DAY,)):
        texts = frame.with_columns(nw.col(name).cast(nw.String))
        return _draft_date(_read_dates(texts, name, _PLAIN_DAY), name, _PLAIN_DAY)
    if (kind := personal(name, levels, rows)) is not None:
        return (
            f"it seems to hold {kind}. Such values are never copied into a schema; to use it all the same, describe it "
            "by hand"
        )
    numbered = stored == "integer" and (rows > _MANY or _ROW_NAME.fullmatch(name.strip()) is not None)
    if numbered and _numbers_rows(frame, name, rows):
        return "it seems to number the rows. Leave it out; or, if it says whose row it is, name it as person_id"
    named_so = bool(_ID_NAME.search(name)) and stored != "float"
    worded = many and stored == "string" and not named_so and decimal is not None
    if worded and (mixed := _mixed_numbers(frame, name, decimal or ".")) is not None:
        return mixed
    numbers = number_form(levels, decimal or ".") if written and not named_so else None
    if many and numbers is not None and _nearly_all(frame, name, [(as_numbers, numbers)]):
        if not reads_texts(frame):
            return _unusable("numbers as text")
        return _draft_form(frame, name, numbers)
    units = written and many and not named_so and several_units(levels)
    alone = (many and stored == "string" and not units) or named_so  # a few wards have ids as well, each with many rows
    if (named_so and (many or _PERSON_NAME.search(name))) or (alone and _all_distinct(frame, name, rows)):
        return _identifier(name)
    if not stated and stored in ("integer", "float"):
        return _draft_numeric(frame, name, integer=stored == "integer")
    drafted = _draft_categorical(frame, name, stored, levels, complete=stated)
    if isinstance(drafted, str):
        return drafted
    if stated and numbers is not None:
        hint = f'They look like numbers: with type = "numeric" and format = "{numbers}" they are read as such'
        return replace(drafted, note=f"{drafted.note}. {hint}")
    return replace(drafted, note=f"{drafted.note}. {_UNITS_NOTE}") if units else drafted


def _mixed_numbers(frame: nw.LazyFrame[Any], name: str, decimal: str) -> Column | None:
    """Return a column of a text file that holds many numbers and few words, which are missing; None for any other."""
    if (found := mostly_numbers(frame.to_native(), name, decimal)) is None:
        return None
    numbers: nw.LazyFrame[Any] = nw.from_native(found)
    drafted = _draft_numeric(numbers, name, integer=False)
    return replace(drafted, missing=True, note=f"{_BOUNDS_NOTE}. {_WORDS_NOTE}")


def _draft_form(frame: nw.LazyFrame[Any], name: str, form: str) -> Column:
    """Return a column of texts as one of numbers that are written so."""
    import polars as pl

    numbers = _texts_of(frame, name).select(as_numbers(pl.col(name), form).alias(name)).collect(engine="streaming")
    read: nw.LazyFrame[Any] = nw.from_native(numbers.lazy())
    drafted = _draft_numeric(read, name, integer=False)
    note = f"{drafted.note}; {_FORM_NOTE}"
    if "%" in form:
        note += _PERCENT_NOTE.format(form=re.sub("1(.?)234(.)5", r"123\g<1>450\g<2>0", form))
    return replace(drafted, form=form, note=note)


def _nearly_all(
    frame: nw.LazyFrame[Any], name: str, readers: Sequence[tuple[Callable[[pl.Expr, str], pl.Expr], str]]
) -> bool:
    """Whether nine of ten different texts that mean something are read by one of these, each with a format.

    Databases, which read neither, are not asked for all their texts: what some of them look like has to do.
    """
    import polars as pl

    if not reads_texts(frame):
        return True
    text = pl.col(name)
    read = pl.any_horizontal(reader(text, form).is_not_null() for reader, form in readers)
    distinct = _texts_of(frame, name).filter(has_value(text))
    return bool(distinct.select(read.mean() >= 1 - _ODD).collect(engine="streaming").item())


def _texts_of(frame: nw.LazyFrame[Any], name: str) -> pl.LazyFrame:
    """Return the different texts of a column in polars; what is no text that it holds is null."""
    import polars as pl

    if frame.implementation.is_polars() and frame.collect_schema()[name] != nw.Object:
        held: pl.LazyFrame = frame.to_native().select(pl.col(name).cast(pl.String).unique())
        return held
    distinct = frame.select(nw.col(name)).unique().collect()[name].to_list()
    return pl.LazyFrame({name: held_texts(distinct)}, {name: pl.String})


def _numbers_rows(frame: nw.LazyFrame[Any], name: str, rows: int) -> bool:
    """Whether a column of whole numbers counts the rows from 0 or 1 on, in whatever order."""
    value = nw.col(name)
    low, high = frame.select(value.min().alias("a"), value.max().alias("b")).collect().row(0)
    return low in (0, 1) and high - low == rows - 1 and _all_distinct(frame, name, rows)


def _draft_categorical(
    frame: nw.LazyFrame[Any], name: str, stored: str, levels: list[Any], *, complete: bool
) -> Column | str:
    missing = _any_missing(frame, name, floats=stored == "float")
    if stored == "boolean":
        levels = [False, True]
    elif stored == "float":
        if not all(isinstance(level, float) and level.is_integer() for level in levels):
            return _draft_numeric(frame, name, integer=False)
        levels = [int(level) for level in levels]
    read, kinds = levels, {type(level) for level in levels}
    if len(kinds) > 1 or not kinds <= {str, int, bool}:
        return _unusable("object")
    if stored == "string" and kinds != {str}:
        return "its categories are no texts. To use it, convert it to text or to numbers"
    if stored == "string":
        levels = [level for level in levels if not is_marker(level)]
        missing = missing or len(levels) < len(read)
        if not levels:
            return _unusable("empty")
    opened = levels_to_learn(name, missing)
    if not complete:
        return replace(opened, note=f"more than {_MANY} levels: too many to draft; state or learn them")
    note = _LEVELS_NOTE if stored != "boolean" else "whether values may be missing was read from the data"
    recode: dict[str, str] = {}
    if stored == "string":
        levels, recode = one_spelling(levels)
        recode |= {text: MISSING_LABEL for text in read if is_marker(text)}
    known = {*map(loosely, levels)} if recode else set()
    once = {like: pair for pair in sorted(recode.items(), reverse=True) if (like := loosely(pair[0])) not in known}
    if loose := len(once) < len(recode):
        recode = dict(once.values())
        note += "; loose: some of them are written in other case or with blanks"
    if recode:
        note += "; recode: other spellings, and what means that there is no value"
    try:
        return replace(opened, levels=in_order(levels), recode=recode, loose=loose, note=note)
    except SchemaError:  # a level no schema can hold, such as a number beyond 2^53
        return opened


def _read_dates(frame: nw.LazyFrame[Any], name: str, form: str) -> nw.LazyFrame[Any]:
    """Return a column of text as dates."""
    import polars as pl

    read: nw.LazyFrame[Any] = nw.from_native(_texts_of(frame, name).select(as_dates(pl.col(name), form)))
    return read


def _draft_date(frame: nw.LazyFrame[Any], name: str, form: str = ISO) -> Column | str:
    value = nw.col(name)
    low, high = frame.select(value.min().alias("a"), value.max().alias("b")).collect().row(0)
    try:
        first, last = dt.date(low.year, 1, 1), dt.date(high.year, 12, 31)
    except (AttributeError, ValueError, TypeError):  # no finite day
        return _unusable("empty")
    if all((day.year, day.month) == (1899, 12) and day.day >= _NO_DAY for day in (low, high)):
        return _unusable("hours")
    missing = _any_missing(frame, name, floats=False)
    note = _DATES_NOTE if form == ISO else f"{_DATES_NOTE}; format as it seems to be, what is not written so is missing"
    return Numeric(name, first, last, missing=missing, date=form, confirmed=False, note=note)


def _draft_numeric(frame: nw.LazyFrame[Any], name: str, *, integer: bool) -> Numeric:
    value = nw.col(name)
    missing = _any_missing(frame, name, floats=not integer)
    if not integer:
        # In every engine this drops NaN too, which some of them order above infinity.
        frame = frame.filter((value > -math.inf) & (value < math.inf))
    whole = nw.lit(True) if integer else (value == value.round(0)).all()
    low, high, integral = (
        frame.select(value.min().alias("a"), value.max().alias("b"), whole.alias("c")).collect().row(0)
    )
    integer = integer or bool(integral)
    try:
        lower, upper = _outward(as_python(low), as_python(high))
        return Numeric(name, lower, upper, integer=integer, missing=missing, confirmed=False, note=_BOUNDS_NOTE)
    except (SchemaError, TypeError):  # no finite value, or bounds that floating point cannot cut into bins
        return bounds_to_learn(name, integer=False, missing=missing)  # whole by a type, if at all: learning sees that


def _outward(low: Any, high: Any) -> tuple[float, float]:
    """Round an interval outward to one or two digits of its length.

    >>> _outward(17.3, 91.2), _outward(0.5, 0.5), _outward(-3, 1234)
    ((10.0, 100.0), (0.5, 1.5), (-100.0, 1300.0))
    """
    exact = Context(prec=800)  # enough digits for any two float64 numbers
    first, last = Decimal(low), Decimal(high)
    if first == last:
        return float(low), float(low) + max(1.0, abs(float(low)))
    step = Decimal(1).scaleb(exact.divide(exact.subtract(last, first), 5).adjusted())
    lower = exact.multiply(exact.divide(first, step).to_integral_value(ROUND_FLOOR), step)
    upper = exact.multiply(exact.divide(last, step).to_integral_value(ROUND_CEILING), step)
    largest = sys.float_info.max
    return max(float(lower), -largest), min(float(upper), largest)


def _any_missing(frame: nw.LazyFrame[Any], name: str, *, floats: bool) -> bool:
    value = nw.col(name)
    missing = value.is_null() | value.is_nan() if floats else value.is_null()
    return bool(frame.select(missing.any()).collect().item())


def _all_distinct(frame: nw.LazyFrame[Any], name: str, rows: int) -> bool:
    return int(frame.select(nw.col(name).n_unique()).collect().item()) == rows


def _identifier(name: str) -> str:
    return (
        "it seems to identify people. If it says whose row it is, protect people instead of rows:\n"
        f"  [table]\n  person_id = {name!r}\n  max_rows_per_person = 1   # the most rows of one person that count\n"
        "otherwise leave it out"
    )


def _unusable(stored: str) -> str:
    reasons = {
        "time": 'it holds dates or times. To use dates, describe them: type = "date", with public lower and upper',
        "hours": "it holds times of day. To use them, write them as numbers in the table, such as hours",
        "numbers as text": "it holds numbers with signs or units as text. To use it, cast it to numbers in the table",
        "dates as text": "it holds dates as text. To use it, cast it to dates in the table",
        "object": "it holds values of mixed kinds. To use it, convert it to text or to numbers",
        "empty": "it holds no values. To use it, describe it by hand",
    }
    return reasons.get(stored, "it holds values of mixed kinds, or of a type that escudo cannot use")
