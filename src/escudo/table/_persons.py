r"""Whose row it is: one key for each person, the same in every engine, and a public hash of it.

**Who is one person.** Two ids are the same person if and only if they are equal as exact numbers (``1``, ``1.0``,
``True`` and ``Decimal(1)`` are, the float 0.1 and ``Decimal("0.1")`` are not), or equal as texts by exact characters,
or equal as bytes or as UUIDs. Text never equals a number. An empty text is an id; a text file's empty field is a
missing one. :func:`person_key` turns an id into its *key*, a text:

================================================  =====================================================
id                                                key
================================================  =====================================================
text that is valid Unicode and has no NUL first   the text itself
any other text                                    ``NUL t``, then its UTF-8 (surrogates too) in hexadecimal
a number, :math:`p / q` in lowest terms           ``NUL n p``, or ``NUL n p / q``, in hexadecimal
bytes; a UUID                                     ``NUL b`` or ``NUL u``, then hexadecimal
================================================  =====================================================

*Keys are equal exactly where ids are*: the first one or two characters tell the kinds apart, within a kind hexadecimal
is one-to-one, and so is a fraction in lowest terms. An engine whose column holds one type only (whole numbers, say)
compares the values themselves, which is the same equality.

**Who is no person.** Rows of an id that is missing, or is none of these kinds, take no part: dates, lists and objects
have no form that certainly is one-to-one and always the same (that of a plain object is its place in memory, so one
person would count as several). Neither do rows take part whose id the table *itself* has merged with another's: a float
of :math:`2^{53}` or more in size (:math:`2^{24}` and :math:`2^{11}` for 32 and 16 bits), where neighbouring whole
numbers are one float; nor numbers of more than some 6,000 digits.

*Why merging would do harm.* If two people shared a key, their rows would be one group of which at most k count. Under
``replace_one`` that is harmless: a group contributes at most k rows before and after, so at most k leave and k come.
Under ``add_remove`` it is not: adding one person to another's full group may exchange all its k rows, a change of 2k
where k was promised. So a key must be one-to-one on what the table can tell apart, and what it cannot must not count.

The key exists before rows are cut into parts: on Dask all rows of a person are brought together by the hash of the
key, never by the ids as they are stored, of which 3 and 3.0 would go to different parts.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import narwhals as nw
import numpy as np

from escudo.table._encode import holds, number
from escudo.table._values import as_real, as_text, encodable

if TYPE_CHECKING:
    import polars as pl
    from narwhals.dtypes import DType

PERSON = "person"
"""The name under which the person's key travels beside the encoded columns."""

PERSON_NUMBER = "person_number"
"""The name under which the public hash of the key travels with it."""

_MOST_BITS = 20_000  # of a number that is an id, above and below the line
_PRIME = 2**31 - 1  # products of two remainders fit into 64 bits in every engine
_SPREAD = 0x5851F42D  # odd, and far from small fractions of the prime
_EXACT = {"Float16": 2.0**11, "Float32": 2.0**24}  # whole numbers in floats are exact below; 2^53 for the rest
_Number = TypeVar("_Number", int, nw.Expr)


def person_key(value: Any) -> str | None:
    r"""Return the key of an id, None if it is no id; no value is an error.

    >>> person_key("ann"), person_key(17), person_key(17.0), person_key(0.75)
    ('ann', '\x00n11', '\x00n11', '\x00n3/4')
    >>> person_key(2.0**53) is person_key(float("nan")) is person_key(["ann"]) is None
    True
    """
    try:
        text = as_text(value)
        if text is not None:
            return text if encodable(text) and not text.startswith("\0") else _tagged_text(text)
        if isinstance(value, bytes | bytearray):
            return f"\0b{bytes(value).hex()}"
        if isinstance(value, uuid.UUID):
            return f"\0u{value.int:x}"
        return None if _merged(value) else _key_of_number(as_real(value))
    except Exception:  # an object whose methods fail
        return None


def person_keys(name: str, values: Iterable[Any]) -> pl.Series:
    """Return the key of each id, null where it is none."""
    import polars as pl

    return pl.Series(name, [person_key(value) for value in values], dtype=pl.String)


def key_of_text(name: str) -> pl.Expr:
    """Return the keys of a column of text as an expression of polars: :func:`person_key`, for text that is valid."""
    import polars as pl

    text = pl.col(name).cast(pl.String)
    tagged = pl.lit("\0t") + text.cast(pl.Binary).bin.encode("hex")
    return pl.when(text.str.starts_with("\0")).then(tagged).otherwise(text).alias(name)


def person_columns(person_id: str, dtype: DType, *, seed: int) -> list[nw.Expr]:
    """Return the person's key as ``person``, null where there is none, and a public hash of it for numbers.

    Numbers are hashed by arithmetic modulo a prime; :func:`with_text_number` adds the hash of a text. Both are the same
    in every engine. Neither needs to resist an attacker: the hash only has to spread evenly which rows are kept, and no
    guarantee rests on it.

    Args:
        person_id: The column that says whose row it is.
        dtype: Its type in the frame; in polars a column of text holds keys already.
        seed: The public seed.
    """
    person = nw.col(person_id)
    if holds(dtype) == "text":
        return [person.cast(nw.String).alias(PERSON)]
    if dtype.is_integer():
        wide = type(dtype).__name__ in {"UInt64", "Int128", "UInt128"}
        whole = (person % _PRIME).cast(nw.Int64) if wide else person.cast(nw.Int64) % _PRIME
    elif dtype == nw.Boolean:
        person = person.cast(nw.Int32).cast(nw.Int64)  # PostgreSQL casts a boolean to no other type
        whole = person
    elif dtype == nw.Decimal:
        whole = (person.floor().cast(nw.Int128) % _PRIME).cast(nw.Int64)
    else:
        value = number(person_id, dtype)
        person = nw.when(value.abs() < _EXACT.get(type(dtype).__name__, 2.0**53)).then(value)
        whole = person.floor().cast(nw.Int64) % _PRIME
    return [person.alias(PERSON), _mixed(whole, seed).alias(PERSON_NUMBER)]


def with_text_number(frame: nw.LazyFrame[Any], *, seed: int) -> nw.LazyFrame[Any]:
    """Add the hash of each text in ``person``, unless there is one: the first 28 bits of its MD5 with the seed."""
    if PERSON_NUMBER in frame.collect_schema():
        return frame
    native: Any = frame.to_native()
    implementation = frame.implementation
    if implementation.is_duckdb():
        native = native.select(f"*, ('0x' || left(md5('{seed}:' || {PERSON}), 7))::BIGINT AS {PERSON_NUMBER}")
    elif implementation.is_polars():
        native = native.with_columns(_polars_number(seed).alias(PERSON_NUMBER))
    else:
        assert implementation.is_pyspark() or implementation.is_pyspark_connect()
        digits = f"substring(md5(CAST(concat('{seed}:', {PERSON}) AS binary)), 1, 7)"
        native = native.selectExpr("*", f"CAST(conv({digits}, 16, 10) AS bigint) AS {PERSON_NUMBER}")
    numbered: nw.LazyFrame[Any] = nw.from_native(native)
    return numbered


def key_numbers(keys: pl.Series, *, seed: int) -> pl.Series:
    """Return a public hash of each key, the keys of all tables being whole numbers or all of them texts.

    Keys that are missing are nobody's: their numbers say nothing, and are spread evenly.
    """
    import polars as pl

    frame: nw.LazyFrame[Any] = nw.from_native(keys.alias(PERSON).to_frame().lazy())
    if keys.dtype == pl.String:
        frame = with_text_number(frame, seed=seed)
    else:
        frame = frame.select(*person_columns(PERSON, nw.Int64(), seed=seed))
    numbers: pl.Series = frame.select(PERSON_NUMBER).to_native().collect().to_series().cast(pl.Int64)
    if not numbers.null_count():
        return numbers
    spread = pl.Series(np.arange(len(keys)) * _SPREAD % _PRIME)
    return numbers.fill_null(spread)


def _tagged_text(text: str) -> str:
    return f"\0t{text.encode('utf-8', 'surrogatepass').hex()}"


def _merged(value: Any) -> bool:
    """Whether a float is so large that neighbouring whole numbers are one float, or infinite."""
    if isinstance(value, complex | np.complexfloating):
        value = value.real
    if isinstance(value, float):  # np.float64 too
        return not abs(float.__float__(value)) < 2.0**53
    if isinstance(value, np.floating):
        return not abs(value) < 2.0 ** (np.finfo(value.dtype).nmant + 1)
    return False


def _key_of_number(value: Any) -> str | None:
    if value is None or (isinstance(value, Decimal) and _unwieldy(value)):
        return None
    value = value or 0  # a decimal zero may have any exponent
    top, bottom = (value, 1) if isinstance(value, int) else Fraction(value).as_integer_ratio()
    if max(top.bit_length(), bottom.bit_length()) > _MOST_BITS:
        return None
    return f"\0n{top:x}" if bottom == 1 else f"\0n{top:x}/{bottom:x}"


def _unwieldy(value: Decimal) -> bool:
    r"""Whether a decimal is infinite, or has too many bits above or below the line; it is not written out to find out.

    Without trailing zeros it is :math:`d \cdot 10^e`. From :math:`10^{\text{bits}/3}` on there are too many bits above.
    For negative :math:`e`, 2 or 5 does not divide :math:`d`, so :math:`2^{-e}` at least is left below the line.
    """
    if not value.is_finite():
        return True
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return False
    zeros = next(place for place, digit in enumerate(reversed(digits)) if digit)
    return value.adjusted() > _MOST_BITS // 3 or exponent + zeros < -_MOST_BITS


def _mixed(remainder: _Number, seed: int) -> _Number:
    """Scramble a remainder modulo the prime, in an engine or in Python."""
    for turn in range(4):
        remainder = (remainder + _digest(f"{seed}:{turn}".encode())) % _PRIME
        remainder = remainder * remainder % _PRIME
    return remainder


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.md5(data, usedforsecurity=False).digest()[:4]) >> 4


def _key_number(key: str | None, seed: int) -> int | None:
    """Return the hash of a key: that of the text or number it stands for, as an engine finds it in a typed column."""
    if key is None:
        return None
    if key.startswith("\0n"):
        top, _, bottom = key[2:].partition("/")
        return _mixed(int(top, 16) // int(bottom or "1", 16) % _PRIME, seed)
    text = bytes.fromhex(key[2:]) if key.startswith("\0t") else key.encode()
    return _digest(f"{seed}:".encode() + text)


def _polars_number(seed: int) -> pl.Expr:
    import polars as pl

    def numbers(keys: pl.Series) -> pl.Series:
        distinct = keys.unique()
        hashed = pl.Series([_key_number(key, seed) for key in distinct], dtype=pl.Int64)
        return keys.replace_strict(distinct, hashed, return_dtype=pl.Int64) if len(distinct) else hashed

    return pl.col(PERSON).map_batches(numbers, return_dtype=pl.Int64)
