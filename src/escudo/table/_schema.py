"""The schema: the public description of a table, without which nothing is released."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from html import escape
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from escudo._card import first_of, number_of
from escudo._validate import did_you_mean, positive_integer
from escudo.errors import InputError, RefusedError, SchemaError
from escudo.privacy import Neighbours, parse_relation
from escudo.table._columns import Categorical, Column, Numeric, column_from_spec, spec_of_column
from escudo.table._rules import Rule, checked
from escudo.table._values import ISO, encodable

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What may stand between the fields of a text file, and what to call it."""

DECIMALS = {".": "a decimal point", ",": "a decimal comma"}
"""What may stand before the decimals of a number in a text file, and what to call it."""

# In each of these a line feed is a byte, or a pair of bytes, that is part of no other character, and nothing before it
# changes what comes after: so no line decides how another is read.
_ENCODINGS = re.compile(r"utf-8|utf-16(-[lb]e)?|cp125\d|iso8859-\d+|cp(437|850|852|858|866)|koi8-[ru]|mac-roman")


@dataclass(frozen=True, slots=True)
class Schema:
    """The public description of a table: its columns and their cells, and whose rows belong together.

    A schema built in Python or by hand counts as confirmed: its author vouches that levels and bounds are public
    knowledge. One drafted from data does not, and every release refuses it.

    Args:
        fields: The columns, in order.
        person_id: The column that says whose row it is, if a person may have several. It is no column of the
            schema itself: it is never released.
        max_rows_per_person: The most rows of one person that count; needed with ``person_id``.
        quoted_newlines: Whether a quoted field of a CSV or TSV file may hold line feeds; see :func:`scan` for what
            whoever says so vouches for.
        delimiter: What stands between the fields of a CSV or TSV file: a comma, a semicolon, a tab or a vertical bar;
            None for what the file's ending says.
        encoding: The encoding of a CSV or TSV file: ``"utf-8"``, ``"utf-16"``, ``"latin-1"``, ``"cp1252"`` or another
            that has one byte for each character.
        decimal: What stands before the decimals of a number in a CSV or TSV file, ``"."`` or ``","``.
        header: What the columns of a CSV or TSV file are called, in order, if its first line is a row and does not say;
            none by default: then the first line names them.
        rules: What holds in every row, as public knowledge: ``"pregnant = yes -> sex = female"``, ``"discharge >=
            admission"``. Synthetic rows keep them; see :mod:`escudo.table._rules`.
        notes: Remarks for people, written as comments at the top; no part of the schema's identity.

    Raises:
        SchemaError: If two columns share a name, there is none, the person id is one of them, text files cannot be
            read as it says, or the rules contradict each other.

    >>> schema = Schema.from_dict({
    ...     "smoke": ["no", "yes"],
    ...     "age": {"type": "numeric", "lower": 0, "upper": 110, "bins": 22},
    ... })
    >>> schema
    Schema(smoke: 2 levels, age: 22 bins on [0, 110])
    >>> schema.shape(["age", "smoke"])
    (22, 2)
    """

    fields: tuple[Column, ...]
    _: KW_ONLY
    person_id: str | None = None
    max_rows_per_person: int | None = None
    quoted_newlines: bool = False
    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    header: tuple[str, ...] = ()
    rules: tuple[Rule | str, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)
    _by_name: dict[str, Column] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "notes", tuple(self.notes))
        if not all(isinstance(note, str) and encodable(note) for note in self.notes):
            raise SchemaError("the notes of a schema must be texts.")
        if not isinstance(self.quoted_newlines, bool):
            raise SchemaError("quoted_newlines must be true or false.")
        if not self.fields:
            raise SchemaError("a schema needs at least one column; describe one, such as {'smoke': ['no', 'yes']}.")
        by_name: dict[str, Column] = {}
        for column in self.fields:
            if not isinstance(column, Categorical | Numeric):
                raise SchemaError("the fields of a schema must be Categorical or Numeric columns.")
            if column.name in by_name:
                raise SchemaError(f"column {column.name!r} is described twice; remove one of them.")
            by_name[column.name] = column
        object.__setattr__(self, "_by_name", by_name)
        self._check_person(by_name)
        self._check_text()
        self._check_header()
        for column in self.fields:
            if isinstance(column, Numeric) and column.derived is not None:
                _check_derived(column, by_name)
        object.__setattr__(self, "rules", checked(self.rules, by_name) if self.rules != () else ())

    def _check_text(self) -> None:
        """Check how text files are read, and give the encoding its usual name."""
        for key, value, known in (
            ("delimiter", "," if self.delimiter is None else self.delimiter, DELIMITERS),
            ("decimal", self.decimal, DECIMALS),
        ):
            if not isinstance(value, str) or value not in known:
                listed = " or ".join(f"{json.dumps(sign)} ({name})" for sign, name in known.items())
                raise SchemaError(f"{key} must be {listed}.")
        try:
            name = codecs.lookup(self.encoding).name.removesuffix("-sig")
        except (LookupError, TypeError, ValueError):
            name = ""
        if not _ENCODINGS.fullmatch(name):
            raise SchemaError(
                "encoding must be 'utf-8', 'utf-16', 'latin-1', 'cp1252' or another that has one byte for each "
                "character and ASCII among them; save the file as UTF-8 if it is in none of these."
            )
        object.__setattr__(self, "encoding", "latin-1" if name == "iso8859-1" else name)

    def _check_header(self) -> None:
        names = self.header
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) and encodable(name) for name in names):
            raise SchemaError(
                "header must be a list of names, one for each column of a file whose first line has none."
            )
        if twice := [name for place, name in enumerate(names) if name in names[:place]]:
            raise SchemaError(f"header names {twice[0]!r} more than once; columns need names of their own.")
        object.__setattr__(self, "header", tuple(names))

    def _check_person(self, names: Mapping[str, Column]) -> None:
        if (self.person_id is None) != (self.max_rows_per_person is None):
            raise SchemaError(
                "person_id and max_rows_per_person belong together: give both to protect a person with all their "
                "rows, or neither to protect single rows."
            )
        if self.person_id is None:
            return
        if not isinstance(self.person_id, str) or not self.person_id or not encodable(self.person_id):
            raise SchemaError("person_id must be the name of a column of the table.")
        if self.person_id in names:
            raise SchemaError(
                f"column {self.person_id!r} is the person id and identifies people; take it out of the columns."
            )
        try:
            rows = positive_integer("max_rows_per_person", self.max_rows_per_person)
        except InputError as error:
            raise SchemaError(str(error)) from None
        object.__setattr__(self, "max_rows_per_person", rows)

    @classmethod
    def from_dict(
        cls,
        columns: Mapping[str, Any],
        *,
        person_id: str | None = None,
        max_rows_per_person: int | None = None,
    ) -> Schema:
        """Build a schema from plain data.

        Args:
            columns: For each column a list of levels, or a mapping with a ``type`` (``categorical``, ``ordinal``,
                ``boolean`` or ``numeric``) and its keys; or what :meth:`to_dict` gives.
            person_id: The column that says whose row it is.
            max_rows_per_person: The most rows of one person that count.

        Raises:
            SchemaError: If the description is not usable; names the column and the remedy.

        >>> Schema.from_dict({"visits": ["none", "some"]}, person_id="patient", max_rows_per_person=5).unit
        'person'
        """
        if not isinstance(columns, Mapping):
            raise SchemaError("a schema is a mapping from column names to their descriptions.")
        person: dict[str, Any] = {"person_id": person_id, "max_rows_per_person": max_rows_per_person}
        if not _is_document(columns):
            return _build(columns, person)
        described = schema_from_document(columns)
        return described if person_id is None and max_rows_per_person is None else replace(described, **person)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain data, in the form of the TOML file; :meth:`from_dict` reads it back."""
        document: dict[str, Any] = {}
        table: dict[str, Any] = {}
        if self.person_id is not None:
            table = {"person_id": self.person_id, "max_rows_per_person": self.max_rows_per_person}
        if self.quoted_newlines:
            table["quoted_newlines"] = True
        if self.delimiter is not None:
            table["delimiter"] = self.delimiter
        if self.encoding != "utf-8":
            table["encoding"] = self.encoding
        if self.decimal != ".":
            table["decimal"] = self.decimal
        if self.header:
            table["header"] = list(self.header)
        if self.rules:
            table["rules"] = [str(rule) for rule in self.rules]
        if table:
            document["table"] = table
        document["columns"] = {column.name: spec_of_column(column) for column in self.fields}
        return document

    @classmethod
    def read(cls, path: str | PathLike[str], *, table: str | None = None) -> Schema:
        """Read a schema file: TOML, JSON (ours or SDV metadata) or YAML (SmartNoise metadata).

        Args:
            path: The file; its ending says the format.
            table: Which table to take from metadata that describe several.

        Raises:
            ParseError: If the text is not in its format; names line and column where known.
            SchemaError: If it is, but describes no usable schema.
            InputError: If the file cannot be read.
        """
        from escudo.table._schema_files import read_schema

        return read_schema(Path(path), table)

    def write(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the schema as TOML, or as JSON if the path ends so.

        Raises:
            InputError: If the file exists and ``overwrite`` is false, or cannot be written.
        """
        from escudo.table._schema_files import write_schema

        write_schema(self, Path(path), overwrite)

    def to_toml(self) -> str:
        """Return the schema as TOML text, notes as comments."""
        from escudo.table._schema_files import to_toml

        return to_toml(self)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say whose row it is, and are read beside the schema's own."""
        return () if self.person_id is None else (self.person_id,)

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name, in order."""
        return MappingProxyType(self._by_name)

    @property
    def checked_rules(self) -> tuple[Rule, ...]:
        """The rules, each as it was read."""
        return tuple(Rule.read(rule) for rule in self.rules)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._by_name)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of cells of each column, a missing one included."""
        return {name: column.size for name, column in self._by_name.items()}

    @property
    def unit(self) -> Literal["row", "person"]:
        """Whom a guarantee protects: one row, or one person with all their rows."""
        return "row" if self.person_id is None else "person"

    def neighbours(
        self, *, relation: str = "replace_one", rows: int | None = None, people: int | None = None
    ) -> Neighbours:
        """Return between which tables of this schema a promise holds.

        Args:
            relation: Which tables are neighbours.
            rows: The number of rows, if it is public.
            people: The number of people, if it is public.
        """
        return Neighbours(
            relation=parse_relation(relation),
            unit=self.unit,
            max_rows_per_person=self.max_rows_per_person,
            rows=rows,
            people=people,
        )

    @property
    def confirmed(self) -> bool:
        """Whether every column is confirmed to be public knowledge."""
        return not self.unconfirmed

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """The columns whose levels or bounds nobody confirmed to be public."""
        return tuple(column.name for column in self.fields if not column.confirmed)

    @property
    def open_columns(self) -> tuple[str, ...]:
        """The columns whose levels or bounds are not even stated, to be learnt."""
        return tuple(column.name for column in self.fields if column.open)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the schema in canonical JSON, to name it in release records."""
        document = self.to_dict()
        # A list, because the order of the columns is part of the schema and sorted keys would lose it.
        document["columns"] = list(document["columns"].items())
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def __getitem__(self, name: str) -> Column:
        if isinstance(name, str) and name in self._by_name:
            return self._by_name[name]
        raise SchemaError(f"the schema has no column {name!r}." + did_you_mean(str(name), self.names))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self.fields)

    def shape(self, columns: Iterable[str] | None = None) -> tuple[int, ...]:
        """Return the sizes of the named columns (all of them by default), missing cells included.

        Raises:
            SchemaError: If the schema does not have a named column.
        """
        return tuple(self[name].size for name in (self.names if columns is None else _names(columns)))

    def select(self, names: Iterable[str]) -> Schema:
        """Return the schema of the named columns only, in the given order; whom it protects stays the same.

        Raises:
            SchemaError: If the schema does not have a named column.
        """
        kept = _names(names)
        for name in kept:
            column = self[name]
            if isinstance(column, Numeric) and column.derived and not set(column.derived) <= set(kept):
                raise SchemaError(f"column {name!r} is derived from others; take {_and(column.derived)} along.")
        return replace(
            self,
            fields=tuple(self[name] for name in kept),
            rules=tuple(rule for rule in self.checked_rules if set(rule.columns) <= set(kept)),
            notes=(),
        )

    def with_columns(self, *columns: Column) -> Schema:
        """Return the schema with each given column in the place of the one of its name.

        Raises:
            SchemaError: If the schema does not have a column of that name.
        """
        for column in columns:
            self[column.name]  # raises if unknown
        new = {column.name: column for column in columns}
        return replace(self, fields=tuple(new.get(column.name, column) for column in self.fields))

    def binned_as(self, other: Schema) -> Schema:
        """Return the schema with the bins of another one, such as a model's, where it leaves them to a release."""
        private = [column for column in self.fields if isinstance(column, Numeric) and column.private]
        return self.with_columns(*(other[column.name] for column in private if column.name in other))

    def as_escudo_writes(self) -> Schema:
        """Return the schema of the same columns in a text file of synthetic rows: commas, points, UTF-8, ISO dates."""
        read = [column for column in self.fields if isinstance(column, Numeric) and column._reads_text]
        plain = self.with_columns(*(replace(column, date=column.date and ISO, form=None) for column in read))
        return replace(plain, delimiter=None, encoding="utf-8", decimal=".", header=())

    def confirm(self, names: Iterable[str] | None = None) -> Schema:
        """Return the schema with the named columns (all by default) confirmed to be public knowledge.

        Raises:
            SchemaError: If a column is unknown, or has no levels or bounds that could be confirmed.
        """
        chosen = [self[name] for name in (self.unconfirmed if names is None else _names(names))]
        if waiting := [column for column in chosen if column.open]:
            what = _and(dict.fromkeys(column._learnt for column in waiting))
            raise SchemaError(
                f"column{'' if len(waiting) == 1 else 's'} {first_of(repr(column.name) for column in waiting)} "
                f"{'has' if len(waiting) == 1 else 'have'} no {what} to confirm; write them into the schema, or "
                "learn them with 'escudo schema learn'."
            )
        return self.with_columns(*(replace(column, confirmed=True) for column in chosen))

    def require_confirmed(self, *, source: str = "SCHEMA", data: str = "DATA") -> None:
        """Refuse to go on unless every column is confirmed.

        Args:
            source: What to call the schema's file in the message.
            data: What to call the data's file in the message.

        Raises:
            RefusedError: Names the columns, and how to confirm them or learn them privately.
        """
        if self.confirmed:
            return
        waiting = [
            f"{column.name!r} ({'levels' if isinstance(column, Categorical) else 'lower, upper'})"
            for column in self.fields
            if not column.confirmed
        ]
        listed, one = first_of(waiting), len(waiting) == 1
        see = "" if listed == _and(waiting) else f"  All of them, and what they say:\n    escudo schema show {source}\n"
        raise RefusedError(
            "the schema was drafted from the data and not confirmed.\n"
            f"  {'column' if one else 'columns'} {listed} still {'says' if one else 'say'} confirmed = false"
            f"{'' if source == 'SCHEMA' else f' in {source}'}.\n"
            f"{see}  Either confirm that {'this is' if one else 'these are'} public knowledge:\n"
            f"    escudo schema confirm {source}\n"
            "  or learn what is not public, privately:\n"
            f"    escudo schema learn {data} --schema {source} --epsilon 0.1 --delta 1e-7\n"
            "Nothing was spent."
        )

    def __repr__(self) -> str:
        shown = [f"{column.name}: {column.summary}" for column in self.fields[:8]]
        if len(self.fields) > 8:
            shown.append(f"... {len(self.fields) - 8} more columns")
        if self.person_id is not None:
            shown.append(f"person id {self.person_id}, at most {number_of(self.max_rows_per_person, 'row')} each")
        return f"Schema({', '.join(shown)})"

    def _repr_html_(self) -> str:
        return schema_card(self)


def _check_derived(column: Numeric, columns: Mapping[str, Column]) -> None:
    """Raise unless a derived column is the difference of two numbers, or of two dates, that are columns themselves."""
    kinds = []
    for name in column.derived or ():
        source = columns.get(name)
        if source is None:
            hint = did_you_mean(name, columns)
            raise SchemaError(
                f"column {column.name!r} is derived from {name!r}, which is no column of the schema.{hint}"
            )
        if " - " in name:
            raise SchemaError(f"column {column.name!r} is derived from {name!r}, whose name holds ' - '; rename it.")
        if not isinstance(source, Numeric) or source.derived is not None:
            raise SchemaError(
                f"column {column.name!r} is derived from {name!r}, which must be a number or date itself."
            )
        kinds.append(source.date is not None)
    if kinds[0] != kinds[1]:
        raise SchemaError(f"column {column.name!r} is derived from a date and a number; both must be of one kind.")
    if kinds[0] != (column.unit is not None):
        wanted = (
            "needs unit = 'days' or 'years'" if kinds[0] else "has a unit, and what it is derived from are no dates"
        )
        raise SchemaError(f"column {column.name!r} {wanted}.")


TEXT_KEYS = ("quoted_newlines", "delimiter", "encoding", "decimal", "header")
"""What a schema says about text files alone."""

_TABLE_KEYS = ("person_id", "max_rows_per_person", *TEXT_KEYS, "rules")


def with_sources(schema: Schema, names: Iterable[str]) -> Schema:
    """Return the schema of some columns, and of those that a derived one of them is computed from.

    Args:
        schema: The table's schema.
        names: The columns.

    Raises:
        SchemaError: If there is no such column.
    """
    kept: dict[str, None] = {}
    for name in names:
        column = schema[name]
        kept |= dict.fromkeys([name, *(column.derived or () if isinstance(column, Numeric) else ())])
    return schema.select(kept)


def schema_from_document(document: object) -> Schema:
    """Build a schema from the form that :meth:`Schema.to_dict`, TOML and JSON files share.

    Raises:
        SchemaError: If a section is missing or unknown, or a column not usable.
    """
    sections = ("columns", "table")
    if isinstance(document, Mapping) and isinstance(document.get("linked"), Mapping):
        raise SchemaError(
            "it describes linked tables, and this takes the schema of one table. Linked tables are taken by escudo "
            "release, sample and schema, and in Python by LinkedSchema.read."
        )
    if not isinstance(document, Mapping) or not isinstance(document.get("columns"), Mapping):
        raise SchemaError("no columns are described; write one section for each, such as [columns.age].")
    for key in document:
        if key not in sections:
            where = "It belongs under table" if key in _TABLE_KEYS else "A column belongs under columns"
            raise SchemaError(
                f"unknown section {key!r:.60}; expected {_and(sections)}. {where}."
                + did_you_mean(str(key)[:60], sections)
            )
    table = document.get("table", {})
    if not isinstance(table, Mapping):
        raise SchemaError(f"the section table must hold settings: {_and(_TABLE_KEYS)}.")
    for key in table:
        if key not in _TABLE_KEYS:
            raise SchemaError(
                f"the section table has no key {key!r:.60}; it has {_and(_TABLE_KEYS)}."
                + did_you_mean(str(key)[:60], _TABLE_KEYS)
            )
    return _build(document["columns"], table)


def _build(columns: Mapping[str, Any], table: Mapping[str, Any]) -> Schema:
    return Schema(tuple(column_from_spec(name, spec) for name, spec in columns.items()), **table)


def _is_document(columns: Mapping[str, Any]) -> bool:
    """Tell ``{"columns": {...}, "table": {...}}`` from a table that has a column called 'columns'.

    A column's own description always has a text under "type"; a mapping of columns never has.
    """
    inner = columns.get("columns")
    return (
        isinstance(inner, Mapping) and not isinstance(inner.get("type"), str) and set(columns) <= {"columns", "table"}
    )


def _and(items: Iterable[str]) -> str:
    """Join as in a sentence: ``a, b and c``."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


_SHOWN = 40


def schema_card(schema: Schema) -> str:
    """Return the schema as an HTML table: names and shapes, nothing that was read from data and not confirmed."""
    rows = "".join(
        f"<tr><td style='text-align:left'><code>{escape(column.name)}</code></td>"
        f"<td style='text-align:left'>{escape(column.summary)}</td></tr>"
        for column in schema.fields[:_SHOWN]
    )
    if len(schema) > _SHOWN:
        rows += f"<tr><td colspan='2' style='text-align:left'>… and {len(schema) - _SHOWN:,} more</td></tr>"
    protects = (
        "protects one row"
        if schema.person_id is None
        else f"protects one person (<code>{escape(schema.person_id)}</code>, at most "
        f"{number_of(schema.max_rows_per_person, 'row')})"
    )
    state = "confirmed" if schema.confirmed else "<b>not confirmed: releases refuse it</b>"
    plural = "" if len(schema) == 1 else "s"
    caption = f"Schema: {len(schema):,} column{plural} · {protects} · {state}"
    return f"<table><caption style='text-align:left'>{caption}</caption>{rows}</table>"
