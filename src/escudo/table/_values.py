"""Single values, read in one way whatever engine they come from: texts, numbers, days, and what is none of them."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo.errors import InputError

if TYPE_CHECKING:
    import polars as pl


def encodable(text: str) -> bool:
    """Whether text can be written to a file: it holds no lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def as_python(value: Any) -> Any:
    """Turn NumPy scalars into Python ones, so that a schema prints, hashes and serialises alike."""
    return value.item() if isinstance(value, np.generic) else value


def one_dimensional(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return values as an array of shape (n,), keeping each item of a mixed list as it is."""
    if isinstance(values, np.ndarray):
        array = values
    else:  # item by item: NumPy would turn a mixed list into text, and lists of one length into a table
        array = np.fromiter(values if isinstance(values, Iterable) else [values], dtype=object)
    if array.ndim != 1:
        raise InputError(f"column {name!r}: values must be one-dimensional; got {array.ndim} dimensions.")
    return array


def is_null(value: Any) -> bool:
    """Whether a value means "missing": None, NaN (a signalling one too), NaT and pandas' NA; no value is an error."""
    try:
        if value is None or type(value).__name__ in {"NAType", "NaTType"}:
            return True
        if isinstance(value, float):
            return math.isnan(value)
        if isinstance(value, Decimal):
            return Decimal.is_nan(value)  # comparing a signalling NaN would be an error
        if isinstance(value, np.floating | np.datetime64 | np.timedelta64):
            return bool(np.isnan(value))
    except Exception:  # an object that does not even say what it is
        return True
    return False


def as_real(value: Any) -> Any:
    """Return a value that is a real number as a Python number, and None for any other; no value is an error.

    Booleans are the numbers 0 and 1, and a complex number is a real one exactly if its imaginary part is zero: NumPy
    turns a whole column into complex numbers for the sake of one. What is returned equals the value exactly, and
    hashes and compares as Python's own numbers do, whatever methods the value's class may have.
    """
    try:
        if isinstance(value, complex | np.complexfloating):
            value = value.real if value.imag == 0 else None
        if is_null(value) or isinstance(value, np.timedelta64):  # which NumPy takes for an integer
            return None
        if isinstance(value, int):
            return int.__index__(value)
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, Decimal):
            return value if type(value) is Decimal else Decimal(value)
        if isinstance(value, Fraction):
            return Fraction(value.numerator, value.denominator)
        if isinstance(value, np.bool_ | np.integer):
            return int(value)
        if isinstance(value, np.longdouble):
            return float(value) if np.isinf(value) else Fraction(*value.as_integer_ratio())
        return float(value) if isinstance(value, np.floating) else None
    except Exception:  # an object whose methods fail
        return None


def as_text(value: Any) -> str | None:
    """Return a value that is text as a plain one of the same characters, and None for any other; never an error."""
    try:
        return str.__getitem__(value, slice(None)) if isinstance(value, str) else None
    except Exception:  # an object that does not even say what it is
        return None


BLANKS = " \t\n\r\f\v"
"""What counts as blank around a text that is read loosely."""
_TO_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


def loosely(text: str) -> str:
    r"""Return a text without blanks around it and with small letters for the capitals A to Z, and for no others.

    What other letters are in small ones depends on language, Unicode's version and engine; these do not.

    >>> loosely(" FeMale\t"), loosely("STRASSE"), loosely("Straße"), loosely("É")
    ('female', 'strasse', 'straße', 'É')
    """
    return text.strip(BLANKS).translate(_TO_SMALL)


def loosely_in_polars(text: pl.Expr) -> pl.Expr:
    """Return texts as :func:`loosely` does, in polars."""
    return text.str.strip_chars(BLANKS).str.replace_many(list(ascii_uppercase), list(ascii_lowercase))


def loosely_in_sql(text: str) -> str:
    """Return the SQL of :func:`loosely`, for DuckDB and PostgreSQL; of what is no text already, as well."""
    blanks = " || ".join(f"chr({ord(blank)})" for blank in BLANKS)
    return f"translate(trim(CAST({text} AS text), {blanks}), '{ascii_uppercase}', '{ascii_lowercase}')"


def as_float(value: Any) -> float:
    """Read one object as float64; what is no real number reads as NaN, what is too large as an infinity."""
    number = as_real(value)
    if number is None:
        return math.nan
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


DAYS_OF_A_YEAR = 365.25
EPOCH = dt.date(1970, 1, 1)
ISO = "%Y-%m-%d"


def as_day(value: Any) -> float:
    """Read one object as the days since 1970-01-01: NaN for what is neither a date nor a number; never an error.

    A point in time counts as its day, in UTC if it says how far it is from it.
    """
    try:
        if isinstance(value, np.datetime64):
            return math.nan if np.isnat(value) else float(value.astype("datetime64[D]").astype(np.int64))
        if is_null(value) or not isinstance(value, dt.date):
            return as_float(value)
        if isinstance(value, dt.datetime):
            value = (value if value.utcoffset() is None else value.astimezone(dt.UTC)).date()
        return float((dt.date(value.year, value.month, value.day) - EPOCH).days)
    except Exception:  # an object whose methods fail, or a day that UTC has no calendar for
        return math.nan


def date_of(day: float) -> dt.date:
    """Return the day that is so many days after 1970-01-01."""
    return EPOCH + dt.timedelta(days=int(day))


def as_dates(text: pl.Expr, form: str) -> pl.Expr:
    """Return text as dates, null where it is no day, or point in time, written so; in UTC where that has a zone."""
    value = text.str.strip_chars()
    if re.search(r"%[HIMSTRXpfcz]", form):
        # polars says it in other words: parts of a second with their point, and a zone that may be Z
        form = form.replace(".%f", "%.f").replace("%z", "%#z")
        return value.str.to_datetime(form, strict=False, time_unit="us").dt.date()
    return value.str.to_date(form, strict=False)


def days_in_texts(values: Sequence[Any], form: str) -> NDArray[np.float64]:
    """Read objects that are text as days since 1970-01-01; NaN for one that is no text, or no day written so."""
    import polars as pl

    return _in_texts(values, as_dates(pl.col("text"), form).cast(pl.Int32))


_SAMPLE = re.compile(r"([^0-9+-]*)1([^0-9]?)234([.,])5([^0-9+-]*)")  # 1234.5, as a format writes it
_PERCENT = re.compile(r"(?=.*%)([^0-9+-]*)123([^0-9]?)450([.,])0([^0-9+-]*)")  # the same number in percent
_LONGEST_FORM = 100  # characters
_BETWEEN = {" ": r"[ \x{a0}\x{202f}]", "\u00a0": r"[ \x{a0}\x{202f}]", "'": "['\u2019]", ".": "[.]", ",": ","}
_BLANK = r"[ \t\n\r\f\v\x{a0}\x{202f}]*"


def as_numbers(text: pl.Expr, form: str) -> pl.Expr:
    """Return text as float64, null where it is no number written as ``form`` writes 1234.5.

    What stands before or after the digits there may be left out, in any case, and so may what stands between thousands;
    blanks at these places do not count. A power of ten may follow the digits, as in ``1.5E-3``.

    Where the form writes 1234.5 as ``123450.0%``, what has the sign is in hundredths (and has no power of ten), and
    what has not is taken as it is. Patterns of polars take time in proportion to a text, whatever it is.

    Raises:
        ValueError: If the form writes no 1234.5.
    """
    import polars as pl

    found = (_SAMPLE.fullmatch(form) or _PERCENT.fullmatch(form)) if len(form) <= _LONGEST_FORM else None
    before, thousands, point, after = found.groups() if found else ("", "", "", "")
    if thousands == point or (thousands and thousands not in _BETWEEN):
        raise ValueError("not a form of numbers")
    signed = "before" if "%" in before else "after"
    before, after = (_BLANK.join(map(re.escape, each.split())) for each in (before, after))
    between = _BETWEEN.get(thousands)
    grouped = f"[0-9]{{1,3}}(?:{between}[0-9]{{3}})+|" if between else ""
    pattern = (
        f"^{_BLANK}(?P<first>[+-]?){_BLANK}(?P<before>(?i:{before})?){_BLANK}(?P<second>[+-]?){_BLANK}"
        f"(?P<digits>{grouped}[0-9]*)(?P<fraction>(?:[{point}][0-9]*)?)(?P<power>(?:[eE][+-]?[0-9]+)?)"
        f"{_BLANK}(?P<after>(?i:{after})?){_BLANK}$"
    )
    part = text.str.extract_groups(pattern).struct.field
    digits = part("digits").str.replace_all(between or "^$", "")
    fraction, power = part("fraction").str.replace(point, ".", literal=True), part("power")
    if in_hundredths(form):  # exactly: 12.3 divided by 100 need not be the float that is nearest to 0.123
        power = pl.when(part(signed) == "").then(power).otherwise(power + "e-2")
    return pl.concat_str(part("first"), part("second"), digits, fraction, power).cast(pl.Float64, strict=False)


def in_hundredths(form: str) -> bool:
    """Return whether a form writes 1234.5 in percent, as ``123450.0%``, so that ``12%`` is 0.12."""
    return _PERCENT.fullmatch(form) is not None


def numbers_in_texts(values: Sequence[Any], form: str) -> NDArray[np.float64]:
    """Read objects that are text as numbers; NaN for one that is no text, or no number written so.

    >>> numbers_in_texts(["$12,300", "-$5.5", "7", "$2e-3", "$1,2", "EUR 3", 4], "$1,234.5").tolist()
    [12300.0, -5.5, 7.0, 0.002, nan, nan, nan]
    >>> numbers_in_texts(["12%", "0.12"], "1234.5%").tolist(), numbers_in_texts(["12%", "0.12"], "123450.0%").tolist()
    ([12.0, 0.12], [0.12, 0.12])
    """
    import polars as pl

    return _in_texts(values, as_numbers(pl.col("text"), form))


def _in_texts(values: Sequence[Any], read: pl.Expr) -> NDArray[np.float64]:
    """Return what an expression over the column "text" reads in objects that are text; NaN for all others."""
    import polars as pl

    found = read.cast(pl.Float64).fill_null(math.nan)
    texts = pl.DataFrame({"text": held_texts(values)}, schema={"text": pl.String})
    return texts.select(found).to_series().to_numpy()


def held_texts(values: Iterable[Any]) -> list[str | None]:
    """Return objects that are text as plain text, and None for all others and for what no file can hold."""
    return [text if (text := as_text(value)) is not None and encodable(text) else None for value in values]
