"""Columns inside an engine: expressions that leave only public values, the same in every dataframe engine.

A categorical column is *guarded*: the engine keeps a value that is a level and turns every other one into a level or a
null, so at most ``size + 1`` values are left whatever the data hold. Text goes further where the engine has dictionary
types (polars, DuckDB): it comes as a *key*, its place among the texts that the column knows. What comes out is read by
a table of cells that :meth:`Categorical.encode`, the reference, has filled. A numeric column is binned in the engine by
exact float64 comparisons. Nothing here looks at data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import narwhals as nw
import numpy as np
from narwhals.dtypes import DType
from numpy.typing import NDArray

from escudo.errors import SchemaError
from escudo.table._columns import MISSING_LABEL, Categorical, Column, Numeric
from escudo.table._values import loosely_in_polars

if TYPE_CHECKING:
    import polars as pl

Storage: TypeAlias = Literal["string", "integer", "float", "boolean", "time", "object", "empty", "other"]


def storage_of(dtype: DType) -> Storage:
    """Return how a dataframe stores a column; decimals count as floats, categories as strings."""
    if dtype.is_integer():
        return "integer"
    if dtype.is_numeric():
        return "float"
    if dtype == nw.Boolean:
        return "boolean"
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return "string"
    if dtype.is_temporal():
        return "time"
    if dtype == nw.Object:
        return "object"
    return "empty" if dtype == nw.Unknown else "other"


Holds = Literal["text", "number", "time", "anything", "nothing usable"]
"""What a frame's column holds, judged by its type alone."""


_WIDEST_LOOKUP = 2**16  # levels further apart are looked up value by value
_BEYOND = 2**53  # A whole number that is no level: levels are below it in size.


def holds(dtype: DType) -> Holds:
    """Return what a narwhals data type can hold, as far as a schema cares."""
    found = storage_of(dtype)
    if found in ("integer", "float", "boolean"):
        return "number"
    if dtype in (nw.Date, nw.Datetime):
        return "time"
    return "text" if found == "string" else "anything" if found == "object" else "nothing usable"


def check_holds(column: Column, found: Holds, dtype_name: str, *, texts: bool = False) -> None:
    """Raise unless a frame's column of this type can hold what the schema says it does.

    Args:
        column: The schema's column.
        found: What the frame's column holds.
        dtype_name: The frame's type to show, without its parameters: those of an Enum are values of the data.
        texts: Whether dates, and numbers of which a format is stated, are read from text, too.

    Raises:
        SchemaError: Names the column, the type that was found, and the remedy.
    """
    date = isinstance(column, Numeric) and column.date is not None
    read = texts and isinstance(column, Numeric) and column._reads_text
    if (
        found == "anything"
        or (found in ("text", "number") and column.kind == "open")
        or (date and found == "time")
        or (read and found == "text")
    ):
        return
    if date or found == "time":
        is_so, cast, hint = (
            ("holds dates", "a date", "") if date else ("is no date", "text or a number", ' (type = "date")')
        )
        raise SchemaError(
            f"column {column.name!r} {is_so} in the schema, but its type in the table is {dtype_name}; cast it to "
            f"{cast} in the table, or describe the column in the schema as what it is{hint}."
        )
    wanted = "text" if column.kind == "string" else "number"
    if found == wanted:
        return
    described = {"string": "text levels", "number": "a numeric range"}.get(column.kind, f"{column.kind} levels")
    cast = "text" if wanted == "text" else "a number or boolean"
    hint = ""
    if texts and found == "text" and isinstance(column, Numeric):
        hint = " Numbers that text writes with signs or units are read by a format, such as format = '$1,234.5'."
    raise SchemaError(
        f"column {column.name!r} has {described} in the schema, but its type in the table is {dtype_name}; "
        f"cast it to {cast} in the table, or describe the column in the schema as what it is.{hint}"
    )


def guarded(column: Column, dtype: DType) -> nw.Expr:
    """Return an expression over the frame that holds levels and nulls only, keys, or the cell of a numeric column.

    Args:
        column: The schema's column; its levels or bounds must be known.
        dtype: The type of the frame's column, for which :func:`check_holds` passed; whole numbers where the schema has
            text are its keys.
    """
    if column.kind == "string" and dtype.is_integer():
        return nw.col(column.name)
    return _level(column, dtype) if isinstance(column, Categorical) else _cell(column, dtype)


def sortable(column: Column, dtype: DType) -> nw.Expr:
    """Return :func:`guarded` with one value per cell, such that rows sort by their cells alike in every engine."""
    expression = guarded(column, dtype)
    if dtype not in (nw.Categorical, nw.Enum) or not isinstance(column, Categorical):
        return expression
    texts = expression.cast(nw.String)  # dictionary types sort by codes that differ between engines
    return texts if column.missing else texts.fill_null(column._compared.levels[column.null_code])


def known_texts(column: Categorical) -> list[str]:
    """Return the texts that a column of text tells apart, in the order of their keys: levels, then other spellings.

    They are as values are compared with them: in small letters and without blanks around them where it is loose. The
    key after the last of them is that of any other text, and the one after that the key of a missing value.
    """
    like = column._compared
    return [*map(str, like.levels), *dict(like.recode)]


def cut_text(column: Categorical, text: nw.Expr) -> nw.Expr:
    """Return what counts of a column's texts where it has a prefix, as :meth:`Categorical._cut` says it."""
    cut = text.str.slice(0, column.prefix)
    return nw.when(text.is_in(list(column._uncut))).then(text).otherwise(cut) if column._uncut else cut


def text_key(column: Categorical, text: pl.Expr) -> pl.Expr:
    """Return the keys of a column of text in polars, of whatever type its texts are."""
    import polars as pl

    texts, uncut = known_texts(column), column._compared._uncut
    if column.loose:
        text = loosely_in_polars(text.cast(pl.String))
    if column.prefix is not None:
        text = text.cast(pl.String)
        cut = text.str.slice(0, column.prefix)
        text = pl.when(text.is_in(uncut)).then(text).otherwise(cut) if uncut else cut
    kind = pl.UInt8 if len(texts) < 2**8 - 1 else pl.UInt16 if len(texts) < 2**16 - 1 else pl.UInt32
    other, null = (pl.lit(len(texts) + step, dtype=kind) for step in (0, 1))
    key = text.cast(pl.Enum(texts), strict=False).to_physical().cast(kind).fill_null(other)
    return key if column.null_code == column.other_code else pl.when(text.is_null()).then(null).otherwise(key)


def reader_of(column: Column) -> Callable[[pl.Series], NDArray[Any]]:
    """Return how to turn what an engine computed for a column, keys or :func:`guarded` values, into cells.

    Categorical columns come in the smallest unsigned type that holds their cells. Numbers that the engine has not put
    into bins are float64, and put there by the reference itself.
    """
    if isinstance(column, Numeric):
        return lambda values: values.to_numpy() if values.dtype.is_integer() else column.encode(values.to_numpy())
    kind = np.min_scalar_type(column.size - 1)
    if column.kind == "string":
        texts = known_texts(column)
        others: list[Any] = [object(), None]
        by_key = column.encode([*texts, *others]).astype(kind)
        as_is = bool((by_key == np.arange(len(by_key))).all())

        def by_text(values: pl.Series) -> NDArray[Any]:
            if not values.dtype.is_integer():
                import polars as pl

                values = values.to_frame("x").select(text_key(column, pl.col("x"))).to_series()
            keys = values.to_numpy()
            return keys if as_is else by_key.take(keys)

        return by_text
    low, high = int(min(column.levels)), int(max(column.levels)) + 1  # one beyond stands for what is no level
    if high - low > _WIDEST_LOOKUP:
        return lambda values: _looked_up(column, values).astype(kind)
    by_value = column.encode(np.arange(low, high + 1)).astype(kind)
    plain = low == 0 and bool((by_value == np.arange(high + 1)).all())

    def by_number(values: pl.Series) -> NDArray[Any]:
        missing = values.null_count() > 0
        numbers = (values.fill_null(low) if missing else values).to_numpy()
        if numbers.dtype.kind == "f" or low != 0 or numbers.dtype == np.uint64:
            numbers = numbers.astype(np.int64) - low
        cells: NDArray[Any] = numbers if plain and not missing else by_value.take(numbers)
        if missing:
            cells[values.is_null().to_numpy()] = column.null_code
        return cells

    return by_number


def cells_of(column: Column, values: pl.Series) -> NDArray[np.int64]:
    """Return the cells of values that an engine computed with :func:`guarded`."""
    return reader_of(column)(values).astype(np.int64, copy=False)


def _looked_up(column: Categorical, values: pl.Series) -> NDArray[np.int64]:
    distinct = values.unique()
    return values.replace_strict(distinct, column.encode(distinct.to_list())).to_numpy()


def clipped(column: Numeric, dtype: DType) -> nw.Expr:
    """Return the column's values as float64 within its bounds; null where missing, unless the schema fills it."""
    value = _clip(number(column.name, dtype), *column.bounds)
    return value if column.missing else value.fill_null(column.fill_value)


def number(name: str, dtype: DType) -> nw.Expr:
    """Return a frame's column as float64, with null instead of NaN and 0.0 instead of -0.0."""
    value = nw.col(name)
    value = (_as_int(value) if dtype == nw.Boolean else value).cast(nw.Float64) + 0.0
    return nw.when(~value.is_nan()).then(value) if dtype.is_float() else value


def _level(column: Categorical, dtype: DType) -> nw.Expr:
    column = column._compared  # a loose column's texts come as they are compared
    value, levels, unknown = _comparable(column, dtype)
    if dtype.is_integer() and _consecutive(levels):
        known = value.is_between(min(levels), max(levels))  # much faster than looking each value up
    else:
        known = value.is_in(levels)
    if column.other_code != column.null_code:
        return nw.when(known | value.is_null()).then(value).otherwise(nw.lit(unknown))
    return nw.when(known).then(value) if unknown is None else nw.when(known).then(value).otherwise(nw.lit(unknown))


def _comparable(column: Categorical, dtype: DType) -> tuple[nw.Expr, list[Any], Any]:
    """Return the frame's column and the levels in a type all engines can compare, and what unknown values become.

    Unknown values become a level, the one they count as; if that is the missing cell, null for text, and for numbers
    a number that is no level. Null would do there too, but DuckDB counts three times faster without.
    """
    value, home = nw.col(column.name), column.other_code
    if column.kind == "string":
        # An Enum can be compared with its own categories only.
        foreign = isinstance(dtype, nw.Enum) and not set(column.levels) <= set(dtype.categories)
        plain = column.other is None and not column.recode and column.prefix is None
        dictionary = plain and dtype in (nw.Categorical, nw.Enum) and not foreign
        if not (dictionary or dtype in (nw.String, nw.Object)):
            value = value.cast(nw.String)
        if column.prefix is not None:
            value = cut_text(column, value)
        for level, spelt in column.spellings.items():  # none of which is a level: in any order
            recoded = value.is_in(list(spelt))
            if level == MISSING_LABEL and column.missing:
                value = nw.when(~recoded).then(value)
            else:
                value = nw.when(recoded).then(nw.lit(level)).otherwise(value)
        texts = list(column.levels)
        # Engines do not mix a dictionary type with a text literal.
        return value, texts, None if dictionary or home == len(texts) else texts[home]
    levels = [int(level) for level in column.levels]
    unknown = max(levels) + 1 if home == len(levels) else levels[home]
    if dtype == nw.Boolean:
        return _as_int(value).cast(nw.Int64), levels, unknown
    if dtype.is_integer():
        low, high = _reach(dtype)
        if high > 2**64 or not all(low <= level <= high for level in (*levels, unknown)):
            value = _clip(value, max(low, -_BEYOND), min(high, _BEYOND)).cast(nw.Int64)
        return value, levels, unknown
    return number(column.name, dtype), [float(level) for level in levels], float(unknown)


def _as_int(truth: nw.Expr) -> nw.Expr:
    """Return 0 or 1 for a boolean; PostgreSQL casts one to no other type."""
    return truth.cast(nw.Int32)


def _clip(value: nw.Expr, low: float, high: float) -> nw.Expr:
    """Clip and keep nulls, which SQL's LEAST and GREATEST would turn into a bound."""
    return nw.when(~value.is_null()).then(value.clip(low, high))


def _reach(dtype: DType) -> tuple[int, int]:
    """Return the smallest and largest value of an integer type."""
    name = type(dtype).__name__
    bits = int(name.lstrip("UInt"))
    return (0, 2**bits - 1) if name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _consecutive(levels: Sequence[int]) -> bool:
    return max(levels) - min(levels) == len(levels) - 1


def _cell(column: Numeric, dtype: DType) -> nw.Expr:
    value = number(column.name, dtype)
    cell = _equal_width(column, value) if column.edges is None else _between_edges(column, value)
    return nw.when(~value.is_null()).then(cell).otherwise(nw.lit(float(column.null_code))).cast(nw.Int32)


def _equal_width(column: Numeric, value: nw.Expr) -> nw.Expr:
    r"""Return the bin of each value among bins of equal width, by a guess and one exact comparison.

    *Proof.* Let :math:`t` be the cell of a clipped :math:`x`, and :math:`q = (x - \mathrm{lower}) / \mathrm{width}` in
    float64. The schema keeps 8 ulps within a bin, so rounding moves :math:`q` and each boundary by less than 1/8 of a
    bin: :math:`t - 1/8 \le q < t + 9/8`, and the guess :math:`h = \min(\lfloor q + 3/4 \rfloor, m - 1)` is :math:`t` or
    :math:`t + 1`. It is :math:`t + 1` exactly if :math:`x < b_h`, where :math:`b_h = \mathrm{lower} + h \cdot
    \mathrm{width}` is computed with the same two roundings as in :attr:`Numeric.boundaries`. Where :math:`q < 1/4`,
    :math:`t = 0` and a guess of 0 or 1 is right, so :math:`q` may be raised to 1/4 first: PostgreSQL takes a quotient
    that is too small for float64 for an error.
    """
    lower, upper = column.bounds
    width = (upper - lower) / int(column.bins)
    x = value.clip(lower, upper)
    # A database may take the floor as a whole number, and then compute with decimals: back to float64.
    guess = (
        ((x - lower).clip(lower_bound=width / 4) / width + 0.75)
        .floor()
        .cast(nw.Float64)
        .clip(upper_bound=float(column.bins - 1))
    )
    return guess - _as_int(x < guess * width + lower).cast(nw.Float64)


def _between_edges(column: Numeric, value: nw.Expr) -> nw.Expr:
    """Return how many inner boundaries each value has reached."""
    terms = [_as_int(value >= float(edge)).cast(nw.Float64) for edge in column.boundaries[1:-1]]
    if not terms:
        return nw.lit(0.0)
    while len(terms) > 1:  # a balanced sum: engines limit how deep an expression may nest
        pairs = [left + right for left, right in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]
