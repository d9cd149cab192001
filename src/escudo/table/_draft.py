"""A first schema for a table: drafted from its data, for the custodian to confirm, or outlined from types alone.

A draft is made of private values (someone is the oldest, someone has the rare diagnosis), so it is for the
custodian's eyes only, every column says ``confirmed = false``, and releases refuse it. An outline looks at names and
types only, and leaves levels and bounds open to be learnt privately.
"""

from __future__ import annotations

import math
import re
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from os import PathLike
from typing import Any

import narwhals as nw
from narwhals.dtypes import DType

from escudo.errors import InputError, SchemaError
from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._dtypes import storage_of
from escudo.table._files import SEPARATED, as_lazy, hide_values, readable
from escudo.table._schema import Schema
from escudo.table._spec import default_bins
from escudo.table._text_files import column_names
from escudo.table._values import is_null, plain

__all__ = ["CUSTODIAN_ONLY", "draft", "outline"]

CUSTODIAN_ONLY = "For the custodian's eyes only: this was computed from the private data without any protection."

_FEW = 20  # a number with at most so many distinct values is drafted as categorical
_MANY = 200  # text with more levels than this is left to be learnt
_ID_NAME = re.compile(r"^(?i:(.*[_\s.-])?(id|pid|uuid|guid|ssn)|person|patient|subject)$|[a-z]I[dD]$")
_DATE = re.compile(r"\d{4}-[01]\d-[0-3]\d($|[T ])")
_LEVELS_NOTE = "levels read from the data"
_BOUNDS_NOTE = "lower and upper read from the data: the smallest and largest value of someone, rounded outward"
_DRAFT_NOTES = (
    "Drafted from the data by escudo: for the custodian's eyes only until confirmed.",
    "Where a column says confirmed = false, read its comment. If its levels or bounds are public knowledge",
    "(a questionnaire's answers, a law, a device's range), correct them and run 'escudo schema confirm'.",
    "If not, run 'escudo schema learn': it learns them under differential privacy and charges the budget.",
)


def draft(data: Any) -> Schema:
    """Draft a schema from a table's data; every column of it is unconfirmed.

    Text, booleans and numbers with at most 20 distinct values become categorical, other numbers numeric with bounds
    rounded outward and 20 bins. Text with more than 200 levels stays open. Identifiers, dates and mixed columns are
    left out, and a note says why.

    Args:
        data: A path, or a frame of any engine that narwhals takes.

    Returns:
        A schema made of private values: for the custodian's eyes only.

    Raises:
        InputError: If the data cannot be read or have no rows.
        SchemaError: If no column is usable.

    **Guarantee**: none. Nothing may be released from a draft before a person confirms it.
    """
    frame, source = as_lazy(data)
    fields: list[Column] = []
    notes = [*_DRAFT_NOTES]
    with hide_values(f"{source} could not be read to the end. Is a row damaged, or are its values of mixed kinds?"):
        rows = int(frame.select(nw.len()).collect().item())
        if rows == 0:
            raise InputError(f"{source} has no rows to draft a schema from; write the schema by hand.")
        for name, dtype in frame.collect_schema().items():
            column = _draft_column(frame, name, dtype, rows) if name else "its name is empty"
            if isinstance(column, str):
                notes.append(f"Left out {name!r}: {column}.")
            else:
                fields.append(column)
    return _schema(fields, notes, source)


def outline(data: Any) -> Schema:
    """Outline a schema from names and types alone: levels and bounds stay open, every column may be missing.

    No value is read, so none decides over a column. Python objects and categories are taken for text, whatever they
    are, and so is every column of a CSV or TSV file, which states no types; what is no text in them is missing later.
    This is what private learning starts from when there is no draft.

    Args:
        data: A path, or a frame of any engine that narwhals takes.

    Raises:
        InputError: If the data cannot be read, or name no columns by themselves, as a file of JSON lines.
        SchemaError: If no column is usable.
    """
    fields: list[Column] = []
    notes = ["Outlined from the table's column names and types; no value was looked at."]
    types, source = _public_types(data)
    for name, dtype in types.items():
        column = _outline_column(name, dtype) if name else "its name is empty"
        if isinstance(column, str):
            notes.append(f"Left out {name!r}: {column}.")
        else:
            fields.append(column)
    return _schema(fields, notes, source)


def _public_types(data: Any) -> tuple[dict[str, DType], str]:
    """Return the types that data declare, and what to call them."""
    if isinstance(data, str | PathLike):
        file = readable(data)
        if file.suffix.lower() in SEPARATED:
            with hide_values(f"the columns of '{file}' cannot be read."):
                return dict.fromkeys(column_names(file), nw.String()), f"'{file}'"
        if file.suffix.lower() in (".ndjson", ".jsonl"):
            raise InputError(
                f"'{file}' does not say by itself which columns there are: each line may name others. Write a schema "
                "that names them, or draft one with 'escudo schema draft'."
            )
    frame, source = as_lazy(data)
    with hide_values(f"the columns of {source} cannot be read."):
        return dict(frame.collect_schema().items()), source


def _schema(fields: list[Column], notes: list[str], source: str) -> Schema:
    if not fields:
        raise SchemaError(f"{source} has no column that escudo can use: numbers, booleans or text with few levels.")
    return Schema(tuple(fields), notes=tuple(notes))


def _outline_column(name: str, dtype: DType) -> Column | str:
    stored = storage_of(dtype)
    if stored in ("string", "object", "integer") and _ID_NAME.search(name):
        return _identifier(name)
    if stored in ("string", "object"):
        return Categorical(name, missing=True, confirmed=False, note="levels: state or learn them")
    if stored == "boolean":
        return Categorical(name, (False, True), missing=True)
    if stored in ("integer", "float"):
        note = "lower and upper: state or learn them"
        return Numeric(name, integer=stored == "integer", missing=True, confirmed=False, note=note)
    return _unusable(stored)


def _draft_column(frame: nw.LazyFrame[Any], name: str, dtype: DType, rows: int) -> Column | str:
    stored = storage_of(dtype)
    if stored not in ("string", "integer", "float", "boolean", "object"):
        return _unusable(stored)
    if stored == "float" and not dtype.is_float():  # decimals: NaN and infinity are questions for floats only
        frame = frame.with_columns(nw.col(name).cast(nw.Float64))
    few = _FEW if stored in ("integer", "float") else _MANY
    try:
        distinct = frame.select(nw.col(name)).unique().head(few + 2).collect()[name].to_list()
    except TypeError:  # lists and the like inside an object column
        return _unusable(stored)
    levels = [plain(value) for value in distinct if not is_null(value)]
    if not levels and len(distinct) <= few:
        return _unusable("empty")
    many, stated = len(levels) > _FEW, len(levels) <= few
    named_so = bool(_ID_NAME.search(name)) and stored != "float"
    if many and (named_so or (stored == "string" and _all_distinct(frame, name, rows))):
        return _identifier(name)
    if not stated and stored in ("integer", "float"):
        return _draft_numeric(frame, name, integer=stored == "integer")
    return _draft_categorical(frame, name, levels, complete=stated, stored=stored)


def _draft_categorical(
    frame: nw.LazyFrame[Any], name: str, levels: list[Any], *, complete: bool, stored: str
) -> Column | str:
    missing = _any_missing(frame, name, floats=stored == "float")
    if stored == "boolean":
        levels = [False, True]
    elif stored == "float":
        if not all(isinstance(level, float) and level.is_integer() for level in levels):
            return _draft_numeric(frame, name, integer=False)
        levels = [int(level) for level in levels]
    kinds = {type(level) for level in levels}
    if len(kinds) > 1 or not kinds <= {str, int, bool}:
        return _unusable("object")
    if stored == "string" and kinds != {str}:
        return "its categories are no texts. To use it, convert it to text or to numbers"
    if stored == "string" and all(map(_DATE.match, levels)):  # a text file has no type for dates
        return _unusable("time")
    if not complete:
        note = f"more than {_MANY} levels: too many to draft; state or learn them"
        return Categorical(name, missing=missing, confirmed=False, note=note)
    note = _LEVELS_NOTE if stored != "boolean" else "whether values may be missing was read from the data"
    try:
        return Categorical(name, tuple(sorted(levels)), missing=missing, confirmed=False, note=note)
    except SchemaError:  # a level no schema can hold, such as a number beyond 2^53
        return Categorical(name, missing=missing, confirmed=False, note="levels: state or learn them")


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
        lower, upper = _outward(plain(low), plain(high))
        bins = default_bins(lower, upper, integer=integer)
        return Numeric(name, lower, upper, bins, integer=integer, missing=missing, confirmed=False, note=_BOUNDS_NOTE)
    except (SchemaError, TypeError):  # no finite value, or bounds that floating point cannot cut into bins
        note = "lower and upper: state or learn them"
        return Numeric(name, integer=integer, missing=missing, confirmed=False, note=note)


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
        "time": "it holds dates or times. To use it, add a column of whole days since a public date",
        "object": "it holds values of mixed kinds. To use it, convert it to text or to numbers",
        "empty": "it holds no values. To use it, describe it by hand",
    }
    return reasons.get(stored, "escudo cannot use its type")
