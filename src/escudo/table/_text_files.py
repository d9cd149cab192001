"""Text files, CSV, TSV and newline-delimited JSON, as lazy frames.

They are read line by line: each line is one row, and what is in it never changes how another line is read. One person's
line must not decide over anybody else's. A reader that lets a quoted field run over several lines gives the rows after
a stray quote to the person who wrote it, and one that stops at a broken line gives nobody's. So records are lines here,
unless a schema vouches for quoted line feeds (``scan`` in ``_files`` says what that takes). Lines without a quote,
nearly all of them, are cut by polars; those with well-formed quotes by polars too, each known to be complete; the rest
by :func:`fields_of`, the reference. Which way a line goes changes the time only.

How a text file is written (its **dialect**: delimiter, encoding, decimal sign, header) is a public fact that the schema
states. Given a schema, nothing about it is guessed. Without one it is recognised: by :func:`recognised` from all of the
file, which is for the custodian's own eyes, or by :func:`announced` from its first line alone, which is public.
"""

from __future__ import annotations

import codecs
import csv
import glob
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo._card import plain
from escudo.errors import InputError
from escudo.table._columns import Column, Numeric
from escudo.table._persons import person_keys
from escudo.table._schema import DECIMALS, DELIMITERS, TEXT_KEYS, Schema
from escudo.table._values import as_dates, as_float, encodable

if TYPE_CHECKING:
    import polars as pl

_LINE = "line"
_EXACT = 2**53  # whole numbers below it are floats as they are
_BLOCK = 2**20  # bytes of a file that are read at once
_SAMPLE = 2000  # lines by which a delimiter is recognised
_FEW_LINES = 50  # that names may go over
_MARKED = re.compile(b"\n(?:\xef\xbb\xbf)+")  # where a line begins with marks of the byte order
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LONG = 10_000  # digits of a whole number beyond which it is taken for an infinity


COPIES: set[Path] = set()
"""Files that escudo wrote, of sheets and tables that are no text: with commas and in UTF-8, a row on each line."""

LINE_END, MIDNIGHT, MERGED = "\u2028", "\u2029", "\ufdd0"
"""What stands in them for the line ends in a cell and for the time at which a day begins, and behind a float of 2⁵³ or
more, which may have been another whole number."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text file is written.

    Attributes:
        delimiter: What stands between fields.
        encoding: The encoding; a mark of the byte order at the beginning is no part of the text in any. Where the first
            line is a row, none is at the beginning of any line.
        decimal: What stands before the decimals of a number.
        header: What the columns are called, where the first line does not say; else none.
        quoted_newlines: Whether a quoted field may hold line feeds, so that a record may be several lines.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    header: tuple[str, ...] = ()
    quoted_newlines: bool = False

    @classmethod
    def stated(cls, schema: Schema, file: Path) -> Dialect:
        """Return the dialect that a schema states."""
        if file in COPIES:
            return cls(decimal=schema.decimal, header=schema.header)
        delimiter = schema.delimiter or usual_delimiter(file)
        return cls(delimiter, schema.encoding, schema.decimal, schema.header, schema.quoted_newlines)

    def settings(self, file: Path) -> dict[str, Any]:
        """Return what a schema has to say about it, for a file of this name."""
        usual = Dialect(usual_delimiter(file))
        return {key: getattr(self, key) for key in TEXT_KEYS if getattr(self, key) != getattr(usual, key)}

    def __str__(self) -> str:
        said = [f"{DELIMITERS[self.delimiter]} between fields", _spelled(self.encoding), DECIMALS[self.decimal]]
        said += ["no line of names"] if self.header else []
        return ", ".join([*said, "line feeds in quoted fields"] if self.quoted_newlines else said)


def _spelled(encoding: str) -> str:
    names = {"utf-8": "UTF-8", "utf-16": "UTF-16", "latin-1": "Latin-1 (ISO 8859-1)", "cp1252": "Windows-1252 (cp1252)"}
    return names.get(encoding, encoding)


def usual_delimiter(file: Path) -> str:
    """Return what stands between fields unless somebody says otherwise."""
    return "\t" if file.suffix.lower() == ".tsv" else ","


def column_names(file: Path, dialect: Dialect | None = None) -> list[str]:
    """Return the names of the columns of a CSV or TSV file, all different: see :func:`header`."""
    names: list[str] = []
    for given in header(file, dialect or Dialect(usual_delimiter(file))):
        name, number = given, 0
        while name in names:
            name, number = f"{given}_duplicated_{number}", number + 1
        names.append(name)
    return names


def header(file: Path, dialect: Dialect) -> list[str]:
    """Return what the columns of a CSV or TSV file are called: the fields of its first line, unless that has no names.

    Raises:
        InputError: If there is no such line, or a name in it holds a carriage return.
    """
    names = list(dialect.header) or first_fields(file, dialect)
    if not dialect.header and any("\r" in name for name in names):
        raise InputError(
            f"a name in the first line of '{file}' holds a carriage return. If lines end with carriage returns alone, "
            "as old programs write them, save the file with line feeds."
        )
    return names


def first_fields(file: Path, dialect: Dialect) -> list[str]:
    """Return the fields of the first line, as they are."""
    names = [name or "" for name in fields_of(_first_line(file, dialect.encoding), dialect.delimiter)]
    marked = str.maketrans({LINE_END: " ", MIDNIGHT: None, MERGED: None})
    return [name.translate(marked) for name in names] if file in COPIES else names


def _first_line(file: Path, encoding: str) -> str:
    with file.open("rb") as opened:
        first = opened.readline()
        if not first:
            raise InputError(f"'{file}' is empty: not even a line that names the columns.")
        if encoding.startswith("utf-16"):  # a line feed is two bytes, either of which other characters have too
            while "\n" not in _decoded(first, encoding) and (more := opened.readline()):
                first += more
    line = _decoded(first, encoding).partition("\n")[0]
    return line.removesuffix("\r").removeprefix("\ufeff")


def _decoded(content: bytes, encoding: str) -> str:
    return content.decode(_codec(content, encoding), "replace")


def _codec(start: bytes, encoding: str) -> str:
    """Return the codec of a file that begins so; without a mark, the lower byte of UTF-16 is the first."""
    if encoding != "utf-16":
        return encoding
    return "utf-16-be" if start.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"


def _source(file: Path, dialect: Dialect) -> Path | bytes:
    """Return what polars reads as UTF-8 after a line of names: the file, or the content of one that is not like that.

    That is held in memory, and never written anywhere else. Without a line of names it gets one, or the first row would
    decide into how many fields all are cut. Bytes that it does not have become U+FFFD.
    In every encoding that a schema may state, that changes characters of the same line only; in UTF-16 because a value
    is whole characters, so that every row, whatever it holds, is an even number of bytes.
    """
    if dialect.encoding == "utf-8" and not dialect.header:
        return file
    text = io.BytesIO()
    with file.open("rb") as opened:
        block = opened.read(_BLOCK)
        decoder = codecs.getincrementaldecoder(_codec(block, dialect.encoding))("replace")
        decoded = decoder.decode(block)
        if dialect.header:
            decoded = dialect.delimiter.join(f"f{place}" for place in range(len(dialect.header))) + "\n" + decoded
        text.write(decoded.removeprefix("\ufeff").encode())
        while block := opened.read(_BLOCK):
            text.write(decoder.decode(block).encode())
        text.write(decoder.decode(b"", final=True).encode())
    found = text.getvalue()
    # Where the first line is somebody's row, it is read as it would be in any other place.
    return _MARKED.sub(b"\n", found) if dialect.header and _MARKED.search(found) else found


def announced(file: Path) -> Dialect:
    """Return the dialect as far as the first line shows it, which is public as the columns' names are; no row is read.

    Raises:
        InputError: If the file is empty.
    """
    with file.open("rb") as opened:
        first = opened.readline(_BLOCK)
    encoding = "utf-16" if first.startswith(_UTF16_MARKS) else _encoding_of(*_bytes_of([first]))
    line, usual = _first_line(file, encoding), usual_delimiter(file)
    fields = {sign: len(fields_of(line, sign)) for sign in (usual, *DELIMITERS)}
    return Dialect(max(fields, key=lambda sign: fields[sign]), encoding)


def recognised(file: Path, known: Mapping[str, Any] = MappingProxyType({})) -> Dialect:
    """Return the dialect of a CSV or TSV file, from all of it: for the custodian's own eyes.

    The encoding is UTF-8 unless more speaks against it than for it, so that one damaged line makes no other file of it.
    The delimiter is in the first line and at least half of the others, and cuts most into as many fields as the first.
    The decimal sign is a comma if more columns of numbers have one than have a point. Quoted fields hold line feeds if
    more records, and more of several lines, have as many fields as the first record than have not. The first line is
    taken to name the columns unless it is said that it does not.

    Args:
        file: The file.
        known: What is set, and not to be guessed.

    Raises:
        InputError: If the file is empty.
    """
    usual = usual_delimiter(file)
    if file in COPIES:
        known = {**known, "delimiter": usual, "encoding": "utf-8", "quoted_newlines": False}
    with file.open("rb") as opened:
        start = opened.read(_BLOCK)
        encoding = known.get("encoding")
        if encoding is None:
            blocks = itertools.chain([start], iter(lambda: opened.read(_BLOCK), b""))
            encoding = "utf-16" if start.startswith(_UTF16_MARKS) else _encoding_of(*_bytes_of(blocks))
    first = _first_line(file, encoding)
    lines = _decoded(start, encoding).split("\n")[1:_SAMPLE]
    for several in range(1, _FEW_LINES if first.count('"') % 2 else 0):  # names that hold line feeds
        if (joined := "\n".join([first, *lines[:several]])).count('"') % 2 == 0:
            first, lines = joined, lines[several:]
            break
    sample = [line.removesuffix("\r") for line in lines[: -1 if len(start) == _BLOCK else None] if line.strip()]

    def fit(sign: str) -> tuple[bool, int, bool, bool, int]:
        named, counts = len(fields_of(first, sign)), Counter(len(fields_of(line, sign)) for line in sample)
        if named > 1 and 2 * counts[1] <= len(sample):
            return True, counts[named], sign != ",", sign == usual, named  # a comma may be a decimal sign, too
        return False, counts[1], named == 1, sign == usual, 0  # one column: rather one that cuts no line

    delimiter = known.get("delimiter") or max(DELIMITERS, key=fit)
    dialect = Dialect(delimiter, encoding, header=known.get("header") or ())
    quoted = known.get("quoted_newlines")
    dialect = replace(dialect, quoted_newlines=_spans_lines(file, dialect) if quoted is None else quoted)
    return replace(dialect, decimal=known.get("decimal") or _decimal_of(scan_texts(file, dialect), delimiter))


def seeming(file: Path, dialect: Dialect) -> dict[str, Any]:
    """Return what is recognised where it is not what was given: for the custodian's own eyes.

    Where a file is ASCII, all encodings of one byte and UTF-8 are the same.
    """
    seen = recognised(file, {"decimal": dialect.decimal, "header": dialect.header})
    found: dict[str, Any] = {} if seen.delimiter == dialect.delimiter else {"delimiter": seen.delimiter}
    if not found and dialect.decimal == "." and _decimal_of(scan_texts(file, dialect), dialect.delimiter) == ",":
        found = {"decimal": ","}  # a point may stand for no evidence
    found |= {"quoted_newlines": True} if seen.quoted_newlines and not dialect.quoted_newlines else {}
    kinds = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}
    stated, kind = kinds.get(dialect.encoding, ""), kinds.get(seen.encoding, "")
    if kind == "utf-8" and not stated:
        with file.open("rb") as opened:
            stated = "" if any(not block.isascii() for block in iter(lambda: opened.read(_BLOCK), b"")) else kind
    return found if stated == kind else {**found, "encoding": seen.encoding}


def _spans_lines(file: Path, dialect: Dialect) -> bool:
    """Whether quoted fields hold line feeds: most records, and most of several lines, have the fields of the first one.

    One whose quotes are not all closed has not, whatever its fields: it is all the lines after a single open quote.
    """
    import polars as pl

    lines = _lines(_source(file, dialect)).select((pl.col(_LINE).str.count_matches('"') % 2 == 1).any())
    if not lines.collect(engine="streaming").item():
        return False
    wanted, balance, alike, line, quotes = len(header(file, dialect)), 0, 0, 0, 0

    def counted(lines: Iterable[str]) -> Iterator[str]:
        nonlocal quotes
        for each in lines:
            quotes += each.count('"')
            yield each

    with file.open("rb") as opened:
        codec = _codec(opened.read(2), dialect.encoding)
    with file.open(encoding=codec, errors="replace", newline="") as text:
        records = csv.reader(counted(text), delimiter=dialect.delimiter)
        try:
            for record in records:
                several, line, first = records.line_num - line > 1, records.line_num, line == 0
                if first and several and not dialect.header:
                    wanted = len(record)
                fits = len(record) == wanted and quotes % 2 == 0
                balance += several * (1 if fits else -1)
                alike += 1 if fits else -1
                quotes = 0
        except csv.Error:  # a quote that is never closed: more than a field may hold
            balance -= 1
    return balance > 0 and alike > 0


def _bytes_of(blocks: Iterable[bytes]) -> tuple[int, int, bool]:
    """Return how much of a text is UTF-8 and not ASCII, how much is neither, and whether it has signs of Windows."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    good = bad = 0
    windows = False
    for block in itertools.chain(blocks, [b""]):
        text = decoder.decode(block, final=not block)
        if text.isascii():
            continue
        wrong = text.count("\ufffd")
        bad += wrong
        good += len(text) - wrong - len(text.encode("ascii", "ignore"))
        windows = windows or any(byte in block for byte in range(0x80, 0xA0))
    return good, bad, windows


def _encoding_of(good: int, bad: int, windows: bool) -> str:
    return "utf-8" if bad <= good else "cp1252" if windows else "latin-1"


def _decimal_of(texts: pl.LazyFrame, delimiter: str) -> str:
    """Return the decimal sign of the numbers in columns of text: a point unless more of them have a comma.

    A column holds numbers if nine of ten values do that stand for one: markers and a few words do not count.
    """
    import polars as pl

    found: list[pl.Expr] = []
    for position, name in enumerate(texts.collect_schema().names()):
        value = pl.col(name).str.strip_chars()
        filled = ~value.str.to_lowercase().is_in(_MARKERS)
        for sign in DECIMALS:
            numbers = value.str.contains(f"^[+-]?[0-9]+([{sign}][0-9]+)?([eE][+-]?[0-9]+)?$")
            signed = (numbers & value.str.contains(sign, literal=True)).any()
            mostly = (numbers.filter(filled).mean() >= _MOSTLY).fill_null(value=False)
            found.append((mostly & signed).alias(f"{sign} {position}"))
        # 1,234 may be a thousand: in a file with commas between fields that is the likelier meaning
        thousands = value.str.contains("^[+-]?[0-9]{1,3}(,[0-9]{3})+$") | ~value.str.contains("^[+-]?[0-9]+,[0-9]+")
        found.append(thousands.fill_null(value=True).all().alias(f"t {position}"))
    seen = texts.select(found).collect(engine="streaming").row(0, named=True)
    commas = [key.partition(" ")[2] for key, there in seen.items() if key.startswith(",") and there]
    if delimiter == ",":
        commas = [position for position in commas if not seen[f"t {position}"]]
    points = [key for key, there in seen.items() if key.startswith(".") and there]
    return "," if len(commas) > len(points) else "."


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


def scan_texts(file: Path, dialect: Dialect | None = None, keys: Sequence[str] = ()) -> pl.LazyFrame:
    """Open a CSV or TSV file as columns of text, one row for each line, unless quoted fields may hold line feeds.

    Args:
        file: The file.
        dialect: How it is written; by default UTF-8, with what its ending says between fields.
        keys: The columns that say whose row it is. In a copy, a line end in a cell is a blank, but a key with one is
            none, and so is a number that floats do not tell from others: different ones may have become the same. What
            is a day at midnight is that day, but not in a key.
    """
    import polars as pl

    dialect = dialect or Dialect(usual_delimiter(file))
    separator, source = dialect.delimiter, _source(file, dialect)
    if dialect.quoted_newlines:
        scanned = _scan(source, separator, '"')
        return scanned.rename({f"f{place}": name for place, name in enumerate(dialect.header)})
    names = column_names(file, dialect)
    scanned = _scan(source, separator)
    places = scanned.collect_schema().names()[: len(names)]  # a name with a separator in it would be two of them
    cells = {f"f{position}": pl.col(place) for position, place in enumerate(places)}
    parsed = pl.col(_LINE).map_batches(
        _unquoted(separator, list(cells)), return_dtype=pl.Struct(dict.fromkeys(cells, pl.String)), is_elementwise=True
    )
    rows = pl.concat([scanned.select(**cells), _lines(source).slice(1)], how="horizontal")
    rows = rows.with_columns(parsed.alias("parsed"), _is_special().alias("special"))
    texts = rows.select(
        pl.when("special").then(pl.col("parsed").struct.field(cell)).otherwise(pl.col(cell)).alias(name)
        for cell, name in zip(cells, names, strict=True)
    )
    if file not in COPIES:
        return texts

    def shown(name: str) -> pl.Expr:
        if name in keys:
            return _unmarked(_unmarked(pl.col(name), LINE_END), MERGED).str.replace(MIDNIGHT, " 00:00:00")
        return pl.col(name).str.replace_all(LINE_END, " ").str.replace_all(f"[{MIDNIGHT}{MERGED}]", "")

    return texts.with_columns(map(shown, names))


def one_file(file: Path) -> str:
    """Return what polars is told to read: this one file, whatever stars are in its name, from any folder later on."""
    return glob.escape(str(file.absolute()))


def _scan(source: Path | bytes, separator: str, quote: str | None = None) -> pl.LazyFrame:
    """Cut lines at each separator, after a first one that says how many fields there are; more are cut off."""
    import polars as pl

    return pl.scan_csv(
        source if isinstance(source, bytes) else one_file(source),
        separator=separator,
        infer_schema=False,
        quote_char=quote,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    )


def _lines(source: Path | bytes) -> pl.LazyFrame:
    """Return the lines of a file, without their ends; null for an empty one."""
    import polars as pl

    return pl.scan_csv(
        source if isinstance(source, bytes) else one_file(source),
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


def _complete(separator: str) -> str:
    """Return the pattern of a line all of whose quotes are around whole fields."""
    sign = f"\\x{ord(separator):02x}"  # a vertical bar means something else by itself
    field = f'(?:"(?:[^"\r]|"")*"|[^"\r{sign}]*)'
    return f"^{field}(?:{sign}{field})*$"


def _unquoted(separator: str, places: list[str]) -> Callable[[pl.Series], pl.Series]:
    """Return how to cut those of some lines that are special; null for the others."""
    import polars as pl

    types = dict.fromkeys(places, pl.String)
    complete = _complete(separator)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """How the lines of a CSV or TSV file fit its first one: exact counts, for the custodian's eyes only.

    Attributes:
        short: How many have too few fields; those that are missing are read as missing values.
        long: How many have too many; what is too much is not read.
        illegible: How many hold bytes that the encoding does not have.
        repeated: Names that the first line has more than once.
        looks_like: What delimiter, decimal sign, encoding and quoting seem to be, where a schema says otherwise.
        named: Whether the first line holds the names that a schema states because the first line had none.
    """

    short: int = 0
    long: int = 0
    illegible: int = 0
    repeated: tuple[str, ...] = ()
    looks_like: Mapping[str, Any] = field(default_factory=dict)
    named: bool = False

    @property
    def findings(self) -> tuple[str, ...]:
        """What a custodian should look at, in words; empty if all lines fit."""

        def lines(count: int, has: str, have: str) -> str:
            return f"1 line {has}" if count == 1 else f"{count:,} lines {have}"

        found = []
        if self.short:
            few = lines(self.short, "has", "have")
            found.append(f"{few} fewer fields than the first one: what is not there is read as missing")
        if self.long:
            many = lines(self.long, "has", "have")
            found.append(f"{many} more fields than the first one: what is too much is not read")
        if self.illegible:
            odd = lines(self.illegible, "holds", "hold")
            found.append(f"{odd} bytes that the encoding does not have")
        found += [
            f"the first line names {name!r} more than once: the first is read as {name!r}, the next as "
            f"'{name}_duplicated_0'"
            for name in self.repeated
        ]
        found += [
            f"{key} seems to be {'true' if value is True else repr(value)}; if so, say it in [table]"
            for key, value in self.looks_like.items()
        ]
        if self.named:
            found.append("the first line is read as a row, and holds the names in header; leave header out of [table]")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain data."""
        return plain(self)


def check_lines(file: Path, dialect: Dialect) -> FileCheck:
    """Count the lines of a CSV or TSV file that do not fit its first one: for the custodian's own eyes.

    Where quoted fields may hold line feeds, only the first line is looked at.
    """
    import polars as pl

    names = header(file, dialect)
    found = FileCheck(
        repeated=tuple(name for name, times in Counter(names).items() if times > 1),
        named=bool(dialect.header) and first_fields(file, dialect) == names,
    )
    if dialect.quoted_newlines:
        return found
    separator = dialect.delimiter

    def fields(lines: pl.Series) -> pl.Series:
        found, some = np.ones(len(lines), dtype=np.uint32), lines.is_not_null()
        found[some.to_numpy()] = [len(fields_of(line, separator)) for line in lines.filter(some)]
        return pl.Series(found)

    line = pl.col(_LINE).fill_null("")
    odd = _is_special() & ~line.str.contains(_complete(separator))
    bare = line.str.replace_all('"[^"]*"', "").str.count_matches(separator, literal=True) + 1
    cut = pl.when(odd).then(line).map_batches(fields, return_dtype=pl.UInt32, is_elementwise=True)
    number = pl.when(odd).then(cut).otherwise(bare)
    counted = (
        _lines(_source(file, dialect))
        .slice(1)
        .select(
            (number < len(names)).sum().alias("short"),
            (number > len(names)).sum().alias("long"),
            line.str.contains("\ufffd", literal=True).sum().alias("illegible"),
        )
        .collect(engine="streaming")
        .row(0, named=True)
    )
    return replace(found, **counted)


def check_files(files: Sequence[Path], dialect: Dialect) -> FileCheck:
    """Return how the lines of all files fit their first ones."""
    checks = [check_lines(file, dialect) for file in files]
    return FileCheck(
        short=sum(each.short for each in checks),
        long=sum(each.long for each in checks),
        illegible=sum(each.illegible for each in checks),
        repeated=tuple(dict.fromkeys(name for each in checks for name in each.repeated)),
        named=any(each.named for each in checks),
    )


def as_number(text: pl.Expr, decimal: str = ".", *, boolean: bool = False) -> pl.Expr:
    """Return text as float64, null where it is no number; true and false are numbers in a column of booleans.

    Where the decimal sign is a comma, a text with a point in it is no number: it may be one or a thousand.
    """
    import polars as pl

    value = _with_point(text.str.strip_chars(), decimal)
    if boolean:
        value = value.str.to_lowercase().replace({"true": "1", "false": "0"})
    return value.cast(pl.Float64, strict=False)


def _with_point(text: pl.Expr, decimal: str) -> pl.Expr:
    """Return numbers with a decimal point; null for what has one already where a comma is the sign."""
    import polars as pl

    if decimal == ".":
        return text
    return pl.when(~text.str.contains(".", literal=True)).then(text.str.replace(",", ".", literal=True))


def legible(person: pl.Expr) -> pl.Expr:
    """Return person ids, null where bytes that are no UTF-8 were replaced: different ids may have become the same."""
    return _unmarked(person, "\ufffd")


def _unmarked(text: pl.Expr, mark: str) -> pl.Expr:
    """Return texts, null where a mark is in them."""
    import polars as pl

    return pl.when(~text.str.contains(mark, literal=True)).then(text)


_MARKERS = (
    *("", "na", "n/a", "n.a.", "#n/a", "nan", "null", "#null!", "\\n", "?", ".", "-", "--", "(missing)"),
    *("k.a.", "k. a.", "keine angabe", "n.d.", "s/d", "#value!", "#wert!", "#div/0!", "#ref!"),
)
"""What people and their programs write where there is no value, in any case."""


_MOSTLY, FEW_WORDS = 0.9, 10  # of a column of numbers, and of what else may stand in it


def is_marker(text: str) -> bool:
    """Whether a text means that there is no value."""
    return text.strip().lower() in _MARKERS


def has_value(text: pl.Expr) -> pl.Expr:
    """Return whether texts do not mean that there is no value."""
    return ~text.str.strip_chars().str.to_lowercase().is_in(_MARKERS)


def texts_of(files: Sequence[Path], dialect: Dialect, keys: Sequence[str] = ()) -> pl.LazyFrame:
    """Open CSV or TSV files that are one table as columns of text, in the order of the first one's columns."""
    return joined([scan_texts(file, dialect, keys) for file in files], files)


def joined(frames: Sequence[pl.LazyFrame], files: Sequence[Path]) -> pl.LazyFrame:
    """Return the rows of several files as one table.

    Raises:
        InputError: If they do not have the same columns, in whatever order.
    """
    import polars as pl

    if len(frames) == 1:
        return frames[0]
    first = frames[0].collect_schema().names()
    for frame, file in zip(frames, files, strict=True):
        names = frame.collect_schema().names()
        if other := sorted(set(first) ^ set(names)):
            has = "lacks" if other[0] in first else "has"
            raise InputError(
                f"the files are not one table: '{file}' {has} column {other[0]!r}, unlike '{files[0]}'. Name files "
                "with the same columns."
            )
    return pl.concat([frame.select(first) for frame in frames], how="vertical_relaxed")


def typed_texts(files: Sequence[Path], dialect: Dialect) -> pl.LazyFrame:
    """Read columns of text as numbers or booleans where all their values are: for the custodian's own eyes.

    What means "no value" does not make a column of numbers one of texts. A number with a leading zero does: it is a
    code, such as a ZIP.
    """
    import polars as pl

    frame = texts_of(files, dialect)
    names = frame.collect_schema().names()
    tries: dict[str, Callable[[pl.Expr], pl.Expr]] = {
        "Int64": lambda text: text.cast(pl.Int64, strict=False),
        "Float64": lambda text: _with_point(text, dialect.decimal).cast(pl.Float64, strict=False),
        "Boolean": lambda text: pl.when(text.is_in(["true", "false"])).then(text == "true"),
    }
    values = {name: pl.col(name).str.strip_chars() for name in names}
    fits = [
        (_typed(value, read) | pl.col(name).is_null() | value.str.to_lowercase().is_in(_MARKERS))
        .all()
        .alias(f"{kind} {position}")
        for position, (name, value) in enumerate(values.items())
        for kind, read in tries.items()
    ]
    filled = [
        (~value.str.to_lowercase().is_in(_MARKERS)).any().alias(f"filled {position}")
        for position, value in enumerate(values.values())
    ]
    found = frame.select(*fits, *filled).collect(engine="streaming").row(0, named=True)
    typed = []
    for position, (name, value) in enumerate(values.items()):
        kind = next((kind for kind in tries if found[f"{kind} {position}"] and found[f"filled {position}"]), None)
        if kind is not None:
            typed.append(tries[kind](value).alias(name))
    return frame.with_columns(typed)


def _typed(value: pl.Expr, read: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    return read(value).is_not_null() & ~value.str.contains(r"^[+-]?0\d")


def mostly_numbers(frame: pl.LazyFrame, name: str, decimal: str) -> pl.LazyFrame | None:
    """Return a column of text as numbers, the few words in it as nulls; None if it does not hold numbers mostly.

    That is, nine values of ten are numbers, and what is left are few different words: "<5", "refused".
    """
    import polars as pl

    value = pl.col(name).str.strip_chars()
    filled = frame.filter(has_value(value)).select(value)
    number = _typed(pl.col(name), lambda text: as_number(text, decimal))
    words = pl.col(name).filter(~number).n_unique() <= FEW_WORDS
    if not filled.select(words & (number.mean() >= _MOSTLY)).collect(engine="streaming").item():
        return None
    return frame.select(as_number(pl.col(name), decimal))


def stated_texts(files: Sequence[Path], schema: Schema) -> pl.LazyFrame:
    """Open CSV or TSV files as their schema says: numbers, booleans and the person id are read, all else is text."""
    import polars as pl

    frame = texts_of(files, Dialect.stated(schema, files[0]), schema.keys)
    columns = frame.collect_schema().names()
    kinds = {column.name: column for column in schema.fields if column.kind not in ("string", "open")}
    read = [
        as_dates(pl.col(name), column.date).alias(name)
        if isinstance(column, Numeric) and column.date is not None
        else column._in_text(pl.col(name)).alias(name)
        if isinstance(column, Numeric) and column.form is not None
        else as_number(pl.col(name), boolean=column.kind == "boolean", decimal=schema.decimal).alias(name)
        for name, column in kinds.items()
        if name in columns
    ]
    read += [legible(pl.col(key)) for key in schema.keys if key in columns]
    return frame.with_columns(read)


def scan_json(file: Path, schema: Schema | None) -> pl.LazyFrame:
    """Open a file of one JSON object a line, with the columns of the schema, or with all keys that occur.

    Texts and numbers stay apart: a text's column holds what is text in the file, and a person id, in which 1 and "1"
    are different people, the person's key.
    """
    import polars as pl

    readers = _readers_by_keys(file) if schema is None else _readers(schema)
    exact = schema is not None and schema.keys != ()
    types = {name: reader([]).dtype for name, reader in readers.items()}

    def read(lines: pl.Series) -> pl.Series:
        records = [_record(line, exact) for line in lines]
        columns = {name: reader([record.get(name) for record in records]) for name, reader in readers.items()}
        return pl.DataFrame(columns, schema=types).to_struct(lines.name)

    rows = pl.col(_LINE).map_batches(read, return_dtype=pl.Struct(types), is_elementwise=True)
    return _lines(file).select(rows).unnest(_LINE)


def _readers(schema: Schema) -> dict[str, Callable[[list[Any]], pl.Series]]:
    """Return how the values of each column become a series, as the schema says."""
    import polars as pl

    def persons(values: list[Any]) -> pl.Series:
        return person_keys("person", values).to_frame().select(legible(pl.col("person"))).to_series()

    def numbers(column: Column) -> Callable[[list[Any]], pl.Series]:
        spelling = as_number(pl.col("text"), boolean=column.kind == "boolean")
        if isinstance(column, Numeric) and column.form is not None:
            spelling = column._in_text(pl.col("text"))
        return _numbers_in(spelling)

    def days(form: str) -> Callable[[list[Any]], pl.Series]:
        def read(values: list[Any]) -> pl.Series:
            return _texts(values).to_frame("text").select(as_dates(pl.col("text"), form)).to_series()

        return read

    def reader(column: Column) -> Callable[[list[Any]], pl.Series]:
        if column.kind in ("string", "open"):
            return _texts
        if isinstance(column, Numeric) and column.date is not None:
            return days(column.date)
        return numbers(column)

    readers = {column.name: reader(column) for column in schema.fields}
    return {**readers, **dict.fromkeys(schema.keys, persons)}


def _readers_by_keys(file: Path) -> dict[str, Callable[[list[Any]], pl.Series]]:
    """Return a reader for each key that occurs, by the kinds of all its values: for the custodian's own eyes.

    Where nine of ten are numbers, or texts, the others are missing, as they are where a schema says so; a key whose
    values are neither is one of lists, which no schema describes.
    """
    import polars as pl

    kinds: dict[str, Counter[type]] = {}
    with file.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
        for line in lines:
            for key, value in _record(line).items():
                kinds.setdefault(key, Counter()).update([type(value)] if value is not None else ())

    def series(dtype: Any) -> Callable[[list[Any]], pl.Series]:
        return lambda values: pl.Series(values, dtype=dtype, strict=False)

    def neither(values: list[Any]) -> pl.Series:
        return pl.Series([None] * len(values), dtype=pl.List(pl.Null))

    def reader(found: Counter[type]) -> Callable[[list[Any]], pl.Series]:
        if found and found.keys() <= {int, float}:
            return series(pl.Float64 if found[float] else pl.Int64)
        if found.keys() == {bool}:
            return series(pl.Boolean)
        if found[str] >= _MOSTLY * found.total():
            return _texts
        numbers = found[int] + found[float] + found[bool]
        return _numbers_in(as_number(pl.col("text"))) if numbers >= _MOSTLY * found.total() else neither

    return {key: reader(found) for key, found in kinds.items() if encodable(key)}


def _numbers_in(spelling: pl.Expr) -> Callable[[list[Any]], pl.Series]:
    """Return what reads values of JSON as numbers, null for all else; texts by an expression over a column "text"."""
    import polars as pl

    def read(values: list[Any]) -> pl.Series:
        found = pl.Series([_float(value) for value in values], dtype=pl.Float64)
        if not any(isinstance(value, str) for value in values):
            return found
        spelt = _texts(values).to_frame("text").select(spelling).to_series()
        return found.zip_with(found.is_not_null(), spelt)

    return read


def _record(line: str | None, exact: bool = False) -> dict[str, Any]:
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
