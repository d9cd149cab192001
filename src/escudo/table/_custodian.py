"""A first schema for a table: drafted from its data, for the custodian to confirm, or outlined from types alone.

A draft is made of private values (someone is the oldest, someone has the rare diagnosis), so it is for the
custodian's eyes only, every column says ``confirmed = false``, and releases refuse it. An outline looks at names and
types only, and leaves levels and bounds open to be learnt privately.

A check says how a table and a schema fit, also for the custodian's eyes only: exact shares of private values.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from narwhals.dtypes import DType

from escudo._card import card, first_of, number_of, plain, tracking
from escudo.errors import InputError, SchemaError
from escudo.table._columns import (
    MISSING_LABEL,
    Categorical,
    Column,
    Level,
    Numeric,
    bounds_to_learn,
    in_order,
    levels_to_learn,
)
from escudo.table._encode import check_holds, cut_text, holds, storage_of
from escudo.table._files import alike, as_lazy, data_files, hide_values, is_lake, is_sqlite, is_workbook, text_files
from escudo.table._frames import Source, instead_of, reads_texts
from escudo.table._rules import Rule
from escudo.table._schema import DECIMALS, Schema
from escudo.table._text_files import (
    FEW_WORDS,
    Dialect,
    FileCheck,
    announced,
    check_lines,
    column_names,
    first_fields,
    has_value,
    is_marker,
    mostly_numbers,
    seeming,
    stated_texts,
)
from escudo.table._values import ISO, as_dates, as_numbers, as_python, held_texts, is_null, loosely, numbers_in_texts
from escudo.table._where import where_rows_are

if TYPE_CHECKING:
    import polars as pl

CUSTODIAN_ONLY = "For the custodian's eyes only: this was computed from the private data without any protection."


_FEWEST_VALUES = 4  # twice the columns that have to be called like a value of theirs
_FEWEST_DIGITS = 5  # of a day: those of its year, and one of its number
_FEWEST_LEVELS = 3  # texts that may be numbers with a unit
_PART = 1e-3  # of a cent
_ODD = 0.1  # of the texts of a column may be something else
_MOST_WAYS = 3  # in which the days of one column are written
_HELD = 2**22  # values of columns that are drafted together
_FEW = 20  # a number with at most so many distinct values is drafted as categorical
_JSON = (".ndjson", ".jsonl")
_YES_OR_NO = 2  # answers
_MANY = 200  # text with more levels than this is left to be learnt
_ID_NAME = re.compile(
    r"^(?i:(.*[_\s.-])?(id|pid|uuid|guid|ssn)|person|patient|subject|aktenzeichen"
    r"|(.*[_\s.-])?(patient(en)?|fall|akten?|case|chart|record|encounter|member)[_\s.-]?(nr|no|num(mer|ber)?)\.?)$"
    r"|[a-z]I[dD]$"
)
_FULL_NAME = re.compile(r"([A-ZÀ-ÖØ-ÞĀ-Ž][^\W\d_]*(['’.-][^\W\d_]+)*\.?(, | |$)){2,4}")
_TITLED = re.compile(r"((Dr|Prof|Mr|Mrs|Ms|Miss|Herr|Frau|Mme|Sra?|Dra)(\. ?| ))+[A-ZÀ-ÖØ-ÞĀ-Ž][^\W\d_]+.*")
_MOST = 0.8  # of the texts in a column of names
_IN_DIGITS = ("telephone numbers", "national or insurance numbers")  # written as whole numbers, too
_LONG = 10**6  # what has fewer digits than such numbers have
_ROW_NAME = re.compile(
    r"(?i)row(.?(no|nr|num(ber)?|id))?|line|index|idx|no\.?|nr\.?|#|lfd\.?( ?nr\.?)?|zeile|unnamed: 0"
)
_PERSON_NAME = re.compile(r"(?i)person|patient|subject|participant|^p?id$|uuid|guid|ssn")
_PERSONAL: dict[str, tuple[re.Pattern[str], re.Pattern[str] | None]] = {
    "e-mail addresses": (re.compile(r"e ?mail|\bcorreo\b"), re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")),
    "telephone numbers": (
        re.compile(r"(tele)?phone|t[eé]l[eé](fon|phone)|\b(tel|mobile?|m[oó]vil|handy|fax)\b"),
        re.compile(r"(?=(.*\d){7})(\+|\(?0)[\d ()/.-]+"),
    ),
    "national or insurance numbers": (
        re.compile(
            r"\b(ssn|nhs|nino|passport|iban|dni|bsn|mrn|national|insurance|social security)( (no|nr|number))?\b"
            r"|versicher(ten?|ungs) ?(nummer|nr|id)\b|\b(kv|sv|rv|vers|steuer) ?(nummer|nr|id)\b"
            r"|sozialversicherung|ausweis"
        ),
        re.compile(r"\d{3}-\d{2}-\d{4}|[A-Z]\d{9}|[A-Z]{2}\d{2}[A-Z0-9 ]{11,30}|[A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]"),
    ),
    "names of people": (
        re.compile(
            r"\b((first|last|given|family|full|middle|maiden|sur) ?name|surname)\b|^(name|nom|nombre|nome)$"
            r"|\b((vor|nach|familien|geburts)name|apellidos?|pr[eé]nom|cognome|sobrenome)\b"
        ),
        None,
    ),
    "addresses": (
        re.compile(
            r"\b(street|(home|postal|street) address|stra(ss|ß)e|anschrift|calle|direcci[oó]n|indirizzo)\b"
            r"|^(address|adresse)$"
        ),
        None,
    ),
    "free text": (
        re.compile(
            r"\b(comments?|notes?|remarks?|narrative|free ?text|anamnesis)\b"
            r"|\b(freitext|bemerkung(en)?|kommentare?|notiz(en)?|anamnese|befund|observaciones|comentarios?|remarques?)\b"
        ),
        re.compile(r"(\S+\s+){4,}\S+"),
    ),
}
"""What is about single people or written by them: how such columns are called, and what they hold."""
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d-%b-%Y", "%d %b %Y")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_TIMES = ("", *(between + clock + zone for zone in ("", "%z", " %z") for between in " T" for clock in _CLOCKS))
_FORMS = tuple(day + time for day in _DAYS for time in _TIMES)
_LIKE_A_DAY = re.compile(r"\d{1,4}[-/. ](\d{1,2}|[^\W\d]{3,})[-/. ]\d{2,4}(?!\d)")  # as all of these are
_PLAIN_DAY = "%Y%m%d"  # read as a whole number by any program that is not told better
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
_NUMBER = re.compile(r"\s*[+-]?\d+([.,]\d+)?\s*")
_FORM_NOTE = "format as it seems to be: how 1234.5 is written, with a sign or unit; what is not written so is missing"
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
_CURRENCIES = re.compile(
    "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|BGN|RUB|UAH|TRY|BRL|MXN|ARS|CLP|COP|ZAR|KRW|ILS"
    "|FR|KR|RS|ZŁ"
)
_AFFIXED = re.compile(
    r"[+-]?\s*(?P<before>(?![\d.,'’])\S[^\d+-]{0,9})??[+-]?"
    r"(?P<digits>\d[\d.,'’\s]*?)(?P<after>\s*(?![\d.,'’])[^\s+-][^\d+-]{0,11})?"
)
_MOST_UNITS = 5
_LONGEST_NUMBER = 60  # characters, with sign and unit: what is longer is not looked at
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
        with hide_values(f"'{file}' is not a readable text file. Is it damaged or empty?"):
            dialect = alike(files, _checked_settings(said))
            dialect = replace(dialect, header=_names_for(file, dialect, header))
            settings = dialect.settings(file)
            seen = DECIMALS[dialect.decimal] if is_workbook(data) or is_sqlite(data) else dialect
            notes.append(
                f"Read with {seen}. This is published with the schema: a fact about the program that wrote it."
            )
            notes += [_ABOUT_QUOTES] if dialect.quoted_newlines else []
            notes += [f"{finding[0].upper()}{finding[1:]}." for finding in _lines_of(files, dialect).findings]
    elif any(value is not None for value in (*said.values(), header)):
        raise InputError("delimiter, encoding, decimal, header and quoted_newlines are about CSV and TSV files.")
    frame, source = as_lazy(data, dialect)
    with hide_values(f"{source} could not be read to the end. Is a row damaged, or are its values of mixed kinds?"):
        rows = int(frame.select(nw.len()).collect().item())
        if rows == 0:
            raise InputError(f"{source} has no rows to draft a schema from; write the schema by hand.")
        with tracking("Drafting", len(frame.collect_schema())) as advance:
            for name, dtype, held in _some_at_a_time(frame, rows, frame.collect_schema().names()):
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
        advice = _how_to_derive(days[1], days[0], days=True).replace("know the order of", "know")
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
    values = [name for name in names if _NUMBER.fullmatch(name) or _date_format([name])]
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
        return _date_format([column.name], (column.date,)) is not None
    return bool(_NUMBER.fullmatch(column.name))


def _some_at_a_time(
    frame: nw.LazyFrame[Any], rows: int, names: Sequence[str]
) -> Iterator[tuple[str, DType, nw.LazyFrame[Any]]]:
    """Yield the columns, each with a frame that holds it: of files, as many in memory at once as are small together.

    Else a wide text file would be read anew for every question about every column.
    """
    import polars as pl

    types = frame.collect_schema()
    many = max(_HELD // max(rows, 1), 1)
    native = frame.to_native()
    for start in range(0, len(names), many):
        some = names[start : start + many]
        held = frame
        if isinstance(native, pl.LazyFrame) and len(some) > 1:
            held = nw.from_native(native.select(some).collect(engine="streaming").lazy())
        yield from ((name, types[name], held) for name in some)


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
        if file.suffix.lower() in _JSON:
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
    few = _FEW if stored in ("integer", "float") else _MANY
    try:
        distinct = frame.select(nw.col(name)).unique().head(few + 2).collect()[name].to_list()
    except TypeError:  # lists and the like inside an object column
        return _unusable(stored)
    levels = [as_python(value) for value in distinct if not is_null(value)]
    if not levels and len(distinct) <= few:
        return _unusable("empty")
    many, stated = len(levels) > _FEW, len(levels) <= few
    written = stored in ("string", "object") and all(isinstance(level, str) for level in levels)
    if written and (form := _date_format(levels)) is not None:
        if not reads_texts(frame):
            return _unusable("dates as text")
        return _draft_date(_read_dates(frame, name, form), name, form)
    if written and (ways := _several_ways(levels)) and _nearly_all(frame, name, [(as_dates, way) for way in ways]):
        return (
            f"it holds dates that are written in several ways: {first_of(ways)}. To use it, write all of them in one "
            "way in the table"
        )
    plain = stored == "integer" and decimal is not None and all(_FIRST_DAY <= level <= _LAST_DAY for level in levels)
    if plain and _date_format(list(map(str, levels)), (_PLAIN_DAY,)):
        texts = frame.with_columns(nw.col(name).cast(nw.String))
        return _draft_date(_read_dates(texts, name, _PLAIN_DAY), name, _PLAIN_DAY)
    if (kind := _personal(name, levels, rows)) is not None:
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
    number_form = _number_form(levels, decimal or ".") if written and not named_so else None
    if many and number_form is not None and _nearly_all(frame, name, [(as_numbers, number_form)]):
        if not reads_texts(frame):
            return _unusable("numbers as text")
        return _draft_form(frame, name, number_form)
    units = written and many and not named_so and _several_units(levels)
    alone = (many and stored == "string" and not units) or named_so  # a few wards have ids as well, each with many rows
    if (named_so and (many or _PERSON_NAME.search(name))) or (alone and _all_distinct(frame, name, rows)):
        return _identifier(name)
    if not stated and stored in ("integer", "float"):
        return _draft_numeric(frame, name, integer=stored == "integer")
    drafted = _draft_categorical(frame, name, stored, levels, complete=stated)
    if isinstance(drafted, str):
        return drafted
    if stated and number_form is not None:
        hint = f'They look like numbers: with type = "numeric" and format = "{number_form}" they are read as such'
        return replace(drafted, note=f"{drafted.note}. {hint}")
    return replace(drafted, note=f"{drafted.note}. {_UNITS_NOTE}") if units else drafted


def _mixed_numbers(frame: nw.LazyFrame[Any], name: str, decimal: str) -> Column | None:
    """Return a column of a text file that holds many numbers and few words, which are missing; None for any other."""
    if (found := mostly_numbers(frame.to_native(), name, decimal)) is None:
        return None
    numbers: nw.LazyFrame[Any] = nw.from_native(found)
    drafted = _draft_numeric(numbers, name, integer=False)
    return replace(drafted, missing=True, note=f"{_BOUNDS_NOTE}. {_WORDS_NOTE}")


def _filled(levels: Sequence[Any]) -> list[str]:
    """Return the texts among some levels that do not mean "no value", without the blanks around them."""
    return [level.strip() for level in levels if isinstance(level, str) and not is_marker(level)]


def _affixes(texts: Sequence[str]) -> Counter[tuple[str, str]]:
    """Count what stands before and after the digits of texts that seem to be numbers with signs or units.

    Before them only a currency may stand: other letters make codes. So do zeros that digits begin with.
    """
    found = Counter[tuple[str, str]]()
    for text in texts:
        seen = _AFFIXED.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
        if seen is None or re.match(r"0\d", seen["digits"]):
            continue
        before, after = seen["before"] or "", seen["after"] or ""
        if not before or _is_currency(before):
            found[before, after] += 1
    return found


def _is_currency(text: str) -> bool:
    """Whether a text is a currency: its name in letters, or its sign, also with two letters.

    >>> [_is_currency(text) for text in ("$", "US$ ", "Eur ", "Fr. ", "A", "#")]
    [True, True, True, True, False, False]
    """
    letters = "".join(sign for sign in text if unicodedata.category(sign) != "Sc").strip(" .\u00a0")
    signs = any(unicodedata.category(sign) == "Sc" for sign in text)
    return (signs and len(letters) <= 2) or _CURRENCIES.fullmatch(letters.upper()) is not None


def _number_form(levels: Sequence[Any], decimal: str) -> str | None:
    """Return how these texts write 1234.5, if nearly all of them are numbers with one sign or unit, or in groups.

    >>> _number_form(["$12,300", "$5", "NA", "$7.50", "$800"], ".")
    '$1,234.5'
    >>> _number_form(["€ 1.200,50", "€ 3,10", "€ 12"], "."), _number_form(["70 kg", "71.5 kg", "8 kg"], ".")
    ('€ 1.234,5', '1234.5 kg')
    >>> _number_form(["12,300", "1,250,000", "700"], "."), _number_form(["A12", "A13", "A14"], ".")
    ('1,234.5', None)
    """
    texts = _filled(levels)
    counted = _affixes(texts)
    words = min(FEW_WORDS, len(texts) // 10)
    if len(texts) < _FEWEST_LEVELS or len(texts) - counted.total() > words:
        return None
    alike = Counter[tuple[str, str]]()
    for (before, after), several in counted.items():
        alike[loosely(before), loosely(after)] += several
    usual = max(alike, key=alike.__getitem__)
    before, after = max(
        (pair for pair in counted if tuple(map(loosely, pair)) == usual), key=lambda pair: (counted[pair], pair)
    )
    other = "," if decimal == "." else "."
    between = {decimal: ("", other, "'", " "), other: ("", decimal, " ")}
    forms = [f"{before}1{sign}234{point}5{after}" for point, signs in between.items() for sign in signs]
    currency = _is_currency(before) or _is_currency(after)

    def unlikely(form: str) -> tuple[int, int]:
        """How many texts are no number written so; and of how many amounts of money there would be parts of a cent."""
        cents = 100 * numbers_in_texts(texts, form)
        told = cents[np.isfinite(cents)]
        parts = int((np.abs(told - np.round(told)) > _PART).sum())
        return int(np.isnan(cents).sum()), currency * parts

    form = min(forms, key=unlikely)
    return form if unlikely(form)[0] <= words and form != f"1234{decimal}5" else None


def _several_units(levels: Sequence[Any]) -> bool:
    """Whether nearly all of these texts are numbers with one of a few signs or units."""
    texts = _filled(levels)
    usual = _affixes(texts).most_common(_MOST_UNITS)
    return len(usual) > 1 and len(texts) - sum(several for _, several in usual) <= min(FEW_WORDS, len(texts) // 10)


def _draft_form(frame: nw.LazyFrame[Any], name: str, form: str) -> Column:
    """Return a column of texts as one of numbers that are written so."""
    import polars as pl

    numbers = _texts_of(frame, name).select(as_numbers(pl.col(name), form).alias(name)).collect(engine="streaming")
    read: nw.LazyFrame[Any] = nw.from_native(numbers.lazy())
    drafted = _draft_numeric(read, name, integer=False)
    return replace(drafted, form=form, note=f"{drafted.note}; {_FORM_NOTE}")


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


def _personal(name: str, levels: list[Any], rows: int) -> str | None:
    """Return what kind of personal text a column seems to hold, by its name or by most of its values; None for none.

    Of numbers, long ones are looked at, which are personal if the column is called like telephone or national numbers.
    """
    called = re.sub(r"[_\W]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).lower().strip()
    texts = [level.strip() for level in levels if isinstance(level, str) and not is_marker(level)]
    digits = [level for level in levels if isinstance(level, int | float) and level >= _LONG and level == level // 1]
    if 2 * len(digits) > len(levels) and len(digits) > min(_FEW, rows // 2):
        return next((kind for kind in _IN_DIGITS if _PERSONAL[kind][0].search(called)), None)
    for kind, (names, values) in _PERSONAL.items():
        # A column of that name with a handful of answers is a question with a handful of answers: yes, no, by e-mail;
        # one where most rows have an answer of their own is none.
        # Names and addresses are no answers, however few people there are.
        if names.search(called) and len(texts) > (
            min(_YES_OR_NO, rows - 1) if values is None else min(_FEW, rows // 2)
        ):
            return kind
        if values is not None and texts and 2 * sum(bool(values.fullmatch(text)) for text in texts) > len(texts):
            return kind
    # Whatever the column is called: texts with a title, or many of two to four words with capitals and nothing else.
    if texts and sum(bool(_TITLED.fullmatch(text)) for text in texts) > _MOST * len(texts):
        return "names of people"
    called_so = sum(bool(_FULL_NAME.fullmatch(text)) for text in texts)
    return "names of people" if len(texts) > _FEW and called_so > _MOST * len(texts) else None


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
        levels, recode = _one_spelling(levels)
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


def _one_spelling(levels: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return one of the texts that differ in case or in blanks around them only, and which one the others count as.

    >>> _one_spelling(["F", "F ", "f", " M", ""])
    (['F', 'M', ''], {'F ': 'F', 'f': 'F', ' M': 'M'})
    """
    chosen: dict[str, str] = {}
    for level in sorted(levels, key=lambda level: (level != level.strip(), level)):
        chosen.setdefault(level.strip().casefold(), level.strip())
    kept = {level: chosen[level.strip().casefold()] for level in levels}
    return list(dict.fromkeys(kept.values())), {level: home for level, home in kept.items() if home != level}


def _date_format(levels: list[Any], forms: Sequence[str] = _FORMS) -> str | None:
    """Return how days are written, if these texts are days but for those that mean "no value", and a few words.

    >>> _date_format(["24.12.2024", "NA", "01.02.1950"]), _date_format(["2024-12-24 18:00"]), _date_format(["24"])
    ('%d.%m.%Y', '%Y-%m-%d %H:%M', None)
    """
    texts = _filled(levels)
    words = min(FEW_WORDS, len(texts) // 10)

    def others(form: str) -> int:
        """How many texts are no day written so, as far as that matters."""
        found = 0
        for text in texts:
            with suppress(ValueError):
                dt.datetime.strptime(text, form)
                continue
            found += 1
            if found > words:
                break
        return found

    wordy = sum(sum(map(str.isdigit, text)) < _FEWEST_DIGITS for text in texts)
    best = min(forms, key=others) if texts and wordy <= words else None
    return best if best is not None and others(best) <= words else None


def _several_ways(levels: Sequence[Any]) -> list[str]:
    """Return in which ways days are written, if nearly all texts are days, but in two or three ways; nothing if not.

    >>> _several_ways(["24.12.2024", "2024-12-24", "01.02.1950", "1950-02-03"]), _several_ways(["a", "b"])
    (['%Y-%m-%d', '%d.%m.%Y'], [])
    """
    left = _filled(levels)
    words = min(FEW_WORDS, len(left) // 10)
    if sum(_LIKE_A_DAY.match(text) is None for text in left) > words:
        return []
    ways: list[str] = []
    while len(left) > words and len(ways) < _MOST_WAYS:
        form, others = min(((form, _no_days(left, form)) for form in _FORMS), key=lambda each: len(each[1]))
        if len(left) - len(others) <= max(words, 1):
            return []
        ways.append(form)
        left = others
    return sorted(ways) if len(left) <= words else []


def _no_days(texts: Sequence[str], form: str) -> list[str]:
    """Return the texts that are no day written so."""
    found = []
    for text in texts:
        try:
            dt.datetime.strptime(text, form)
        except ValueError:
            found.append(text)
    return found


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
        "numbers as text": "it holds numbers with signs or units as text. To use it, cast it to numbers in the table",
        "dates as text": "it holds dates as text. To use it, cast it to dates in the table",
        "object": "it holds values of mixed kinds. To use it, convert it to text or to numbers",
        "empty": "it holds no values. To use it, describe it by hand",
    }
    return reasons.get(stored, "escudo cannot use its type")


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
        with hide_values(f"'{files[0]}' is not a readable text file. Is it damaged or empty?"):
            found = _lines_of(files, dialect)
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
    return all(file.suffix.lower() in _JSON for file in data_files(data))


def _advice(schema: Schema) -> Iterator[str]:
    """Yield which difference a schema might derive: that of two columns in a stated order, which else is not kept."""
    derived = {frozenset(column.derived or ()) for column in schema.fields if isinstance(column, Numeric)}
    for rule in schema.checked_rules:
        one, other = (schema[name] for name in rule.columns)
        if rule.sign == "->" or frozenset(rule.columns) in derived:
            continue
        later, earlier = (one, other) if rule.sign in (">", ">=") else (other, one)
        yield _how_to_derive(later.name, earlier.name, days=isinstance(one, Numeric) and one.date is not None)


def _how_to_derive(later: str, earlier: str, *, days: bool) -> str:
    unit = ', unit = "days"' if days else ""
    return (
        f"synthetic rows know the order of {earlier!r} and {later!r}, but not how far they lie apart. If that counts "
        f'(a stay, an age), add a column with from = "{later} - {earlier}"{unit} and its own bounds: then it is kept.'
    )


def _lines_of(files: Sequence[Path], dialect: Dialect) -> FileCheck:
    """Return how the lines of all files fit their first ones."""
    checks = [check_lines(file, dialect) for file in files]
    return FileCheck(
        short=sum(each.short for each in checks),
        long=sum(each.long for each in checks),
        illegible=sum(each.illegible for each in checks),
        repeated=tuple(dict.fromkeys(name for each in checks for name in each.repeated)),
        named=any(each.named for each in checks),
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
    """Yield each column of a schema with a frame that holds it, if the table does; see :func:`_some_at_a_time`."""
    plain = [column.name for column in schema.fields if column.name in types and _read_for([column]) == [column.name]]
    for name, _, held in _some_at_a_time(frame, rows, plain):
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
            problem = f"column {column.name!r} is derived from {odd[0]!r}, which is no {kind} in the table."
            return ColumnCheck(name=column.name, problem=problem)
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
    unused = tuple(stated[level] for level in _unused(like, tally))
    return _checked(column, rows, missing, rows - missing - inside, unused=unused)


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
