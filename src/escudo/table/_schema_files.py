"""Schema files: which format a path means, and reading and writing without surprises.

TOML is read with line and column in every error, written with comments, and confirmed in place. Metadata of SDV (JSON)
and SmartNoise (YAML) are read too. SmartNoise's bounds are written to be public, so they count as confirmed. SDV's
metadata are mostly detected from data and state no bounds at all, so whatever they leave open must be stated or learnt.
What escudo cannot use (dates, free text, identifiers) is left out, and a note says so.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from escudo._files import write_whole
from escudo._validate import did_you_mean
from escudo.errors import EscudoError, InputError, ParseError, SchemaError
from escudo.table._columns import (
    Categorical,
    Column,
    Numeric,
    bounds_to_learn,
    levels_to_learn,
    spec_of_column,
)
from escudo.table._schema import Schema, schema_from_document

if TYPE_CHECKING:
    from escudo.table._linked_schema import LinkedSchema

_WIDTH = 100
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_UNCONFIRMED_LINE = re.compile(r"^(\s*confirmed\s*=\s*)false\b")


def parse_toml(text: str, source: str = "schema") -> dict[str, Any]:
    """Parse TOML text.

    Raises:
        ParseError: If the text is not TOML; names ``source``, line and column.
    """
    wrong = partial(ParseError, source=source)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise wrong("the tables or lists are nested too deeply.") from None
    except ValueError as error:  # TOMLDecodeError, or a number beyond Python's limits
        problem = str(error)
        place = _PLACE.search(problem)
        if place is None:
            raise wrong("not valid TOML: a value is beyond what can be read.") from None
        line, column = (int(place[1]), int(place[2])) if place[1] else (text.count("\n") + 1, None)
        raise wrong(f"not valid TOML: {problem[: place.start()]}.", line=line, column=column) from None


def to_toml(schema: Schema) -> str:
    """Return the schema as TOML text, notes as comments.

    >>> print(to_toml(Schema.from_dict({"smoke": ["no", "yes"]})), end="")
    [columns.smoke]
    type = "categorical"
    levels = ["no", "yes"]
    """
    blocks = []
    if schema.notes:
        blocks.append(_comment(schema.notes))
    if table := schema.to_dict().get("table"):
        blocks.append("[table]\n" + toml_pairs(table))
    blocks.extend(_column_block(column) for column in schema.fields)
    return "\n".join(blocks)


def _column_block(column: Column) -> str:
    comment = _comment([column.note]) if column.note else ""
    return f"{comment}[columns.{_key(column.name)}]\n{toml_pairs(spec_of_column(column))}"


def toml_pairs(table: Mapping[str, Any]) -> str:
    """Return settings as lines of TOML."""
    return "".join(f"{key} = {_value(value, indent=len(key) + 3)}\n" for key, value in table.items())


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _value(value: Any, *, indent: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item, indent=0)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return _list([_value(item, indent=0) for item in value], room=_WIDTH - indent)
    return repr(value)  # an int, or a finite float, whose shortest exact form is valid TOML


def _list(items: list[str], *, room: int) -> str:
    flat = f"[{', '.join(items)}]"
    if len(flat) <= room:
        return flat
    lines, line = [], ""
    for item in items:
        if line and len(line) + len(item) + 2 > _WIDTH:
            lines.append(line)
            line = ""
        line += (" " if line else "  ") + item + ","
    return "\n".join(["[", *lines, line, "]"])


def _string(text: str) -> str:
    # JSON's escapes are a subset of TOML's; only a raw DEL is allowed there and not here.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _comment(notes: Iterable[str]) -> str:
    lines = [line for note in notes for line in note.splitlines()]
    printable = (
        "".join(character if character >= " " and character != "\x7f" else " " for character in line) for line in lines
    )
    return "".join(f"# {line}".rstrip() + "\n" for line in printable)


def confirm_toml(text: str, names: Collection[str], *, confirmed: Schema) -> str:
    """Set ``confirmed = true`` for the named columns, keeping every comment where that is possible.

    Args:
        text: The schema file as it stands.
        names: The columns to confirm.
        confirmed: The schema that the new text must describe.

    Returns:
        ``text`` with the lines changed; or, where the text is written in a way that editing single lines cannot
        follow, ``confirmed`` written afresh.
    """
    lines = text.split("\n")
    column: str | None = None
    for number, line in enumerate(lines):
        if line.lstrip().startswith("["):
            column = _header(line)
        elif column in names:
            lines[number] = _UNCONFIRMED_LINE.sub(r"\1true", line)
    edited = "\n".join(lines)
    try:
        if Schema.from_dict(parse_toml(edited)) == confirmed:
            return edited
    except EscudoError:
        pass
    return to_toml(confirmed)


def _header(line: str) -> str | None:
    """Return the column that a line such as ``[columns.age]`` opens, if it is such a line."""
    try:
        columns = parse_toml(line.strip()).get("columns")
    except ParseError:
        return None
    return next(iter(columns)) if isinstance(columns, dict) and columns else None


_SMARTNOISE_TABLE_KEYS = frozenset({
    "rows", "rows_exact", "row_privacy", "max_ids", "sample_max_ids",
    "clamp_counts", "clamp_columns", "use_dpsu", "censor_dims",
})  # fmt: skip


def is_sdv(document: object) -> bool:
    """Whether a JSON document looks like SDV metadata rather than a schema of ours."""
    if not isinstance(document, Mapping):
        return False
    columns = document.get("columns")
    return (
        "METADATA_SPEC_VERSION" in document
        or "tables" in document
        or (isinstance(columns, Mapping) and any(isinstance(c, Mapping) and "sdtype" in c for c in columns.values()))
    )


def from_sdv(document: Mapping[str, Any], table: str | None = None) -> Schema:
    """Build a schema from SDV metadata (single table, or one table of several).

    Args:
        document: The metadata, as parsed from JSON.
        table: Which table, if there are several.

    Raises:
        SchemaError: If the metadata name no usable column, or several tables and none is chosen.

    >>> from_sdv({"columns": {"paid": {"sdtype": "boolean"}, "age": {"sdtype": "numerical"}}}).open_columns
    ('age',)
    """
    if "tables" in document:
        document = _choose(document["tables"], table)
    columns = document.get("columns")
    if not isinstance(columns, Mapping):
        raise SchemaError("the SDV metadata describe no columns; expected a 'columns' object.")
    keys = {key for key in (document.get("primary_key"), document.get("sequence_key")) if isinstance(key, str)}
    fields: list[Column] = []
    notes = ["Imported from SDV metadata."]
    for name, spec in columns.items():
        sdtype = spec.get("sdtype") if isinstance(spec, Mapping) else None
        if not isinstance(sdtype, str):
            raise SchemaError(f"column {name!r}: the SDV metadata give it no 'sdtype'.")
        if name in keys or sdtype == "id":
            notes.append(_left_out(name, "an identifier. If it says whose row it is, make it the person_id of [table]"))
        elif sdtype == "boolean":
            fields.append(Categorical(name, (False, True), missing=True))
        elif sdtype == "categorical":
            fields.append(_sdv_categorical(name, spec.get("order")))
        elif sdtype == "numerical":
            whole = "int" in str(spec.get("computer_representation", "")).lower()
            fields.append(bounds_to_learn(name, integer=whole))
        else:
            notes.append(_left_out(name, _unusable(sdtype)))
    return _schema(fields, notes)


def _sdv_categorical(name: str, order: object) -> Categorical:
    if not isinstance(order, list) or not order:
        return levels_to_learn(name)
    return Categorical(
        name,
        tuple(order),
        ordered=True,
        missing=True,
        confirmed=False,
        note="levels as listed in the metadata: confirm that they are public",
    )


def from_smartnoise(document: object, table: str | None = None) -> Schema:
    """Build a schema from SmartNoise metadata (collection, schema, table, columns).

    ``private_id`` and ``max_ids`` become person id and max rows per person, unless ``row_privacy`` is set; nullable
    columns get a missing cell, and a ``missing_value`` is what missing values count as.

    Args:
        document: The metadata, as parsed from YAML.
        table: Which table, as ``table`` or ``schema.table``, if there are several.

    Raises:
        SchemaError: If the metadata name no usable column, or several tables and none is chosen.
    """
    facts = _choose(_smartnoise_tables(document), table)
    fields: list[Column] = []
    notes = ["Imported from SmartNoise metadata."]
    person_id: str | None = None
    for name, spec in facts.items():
        if name in _SMARTNOISE_TABLE_KEYS:
            continue
        if not isinstance(name, str):
            raise SchemaError("a column's name reads as a number or a boolean; put it in quotes.")
        if not isinstance(spec, Mapping) or not isinstance(spec.get("type"), str):
            raise SchemaError(f"column {name!r}: the SmartNoise metadata give it no 'type'.")
        if spec.get("private_id") is True:
            person_id = name
            continue
        column = _smartnoise_column(name, spec)
        if column is None:
            notes.append(_left_out(name, _unusable(spec["type"])))
        else:
            fields.append(column)
    if person_id is None or facts.get("row_privacy") is True:
        return _schema(fields, notes)
    return _schema(fields, notes, person_id=person_id, max_rows_per_person=facts.get("max_ids", 1))


def _smartnoise_tables(document: object) -> dict[str, Any]:
    """Return the tables by ``schema.table``, from the three levels of SmartNoise's layout."""
    tables: dict[str, Any] = {}
    if isinstance(document, Mapping):
        for collection, schemas in document.items():
            if collection == "engine" or not isinstance(schemas, Mapping):
                continue
            for schema, inner in schemas.items():
                if isinstance(inner, Mapping):
                    tables |= {f"{schema}.{name}": facts for name, facts in inner.items() if isinstance(facts, Mapping)}
    if not tables:
        raise SchemaError(
            "no SmartNoise table found; expected collection, schema, table and columns, nested in this order."
        )
    return tables


def _smartnoise_column(name: str, spec: Mapping[str, Any]) -> Column | None:
    kind = spec["type"]
    fallback = spec.get("missing_value")
    missing = spec.get("nullable", True) is not False and fallback is None
    if kind == "boolean":
        return Categorical(name, (False, True), missing=missing, other=fallback if isinstance(fallback, bool) else None)
    if kind == "string":
        return levels_to_learn(name, missing)
    if kind not in ("int", "float"):
        return None
    lower, upper = _number(name, "lower", spec), _number(name, "upper", spec)
    if lower is None or upper is None:
        return bounds_to_learn(name, kind == "int", missing)
    fill = _number(name, "missing_value", spec)
    return Numeric(
        name,
        lower,
        upper,
        integer=kind == "int",
        missing=missing,
        fill=None if fill is None else min(max(fill, lower), upper),
        note="the metadata say nothing about bins: releases choose them privately, unless you state them",
    )


def _number(name: str, key: str, spec: Mapping[str, Any]) -> float | None:
    value = spec.get(key)
    if value is None:
        return None
    try:
        return float(value)  # YAML reads 1e6 as text
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(f"column {name!r}: {key} must be a finite number.") from None


def _choose(tables: object, wanted: str | None) -> Mapping[str, Any]:
    if not isinstance(tables, Mapping) or not tables:
        raise SchemaError("the metadata describe no tables.")
    if wanted is not None:
        matches = [name for name in tables if str(name) == wanted or str(name).endswith(f".{wanted}")]
    else:
        matches = list(tables)
    listed = ", ".join(map(repr, tables))
    if not matches:
        raise SchemaError(
            f"no table {wanted!r}; the metadata describe {listed}." + did_you_mean(str(wanted), map(str, tables))
        )
    if len(matches) > 1:
        raise SchemaError(f"the metadata describe several tables, {listed}: say which one (--table, or table=...).")
    facts = tables[matches[0]]
    if not isinstance(facts, Mapping):
        raise SchemaError(f"table {matches[0]!r} is not described by a mapping.")
    return facts


def _unusable(kind: str) -> str:
    if kind in ("datetime", "date", "time"):
        return "a date or time. To use it, add a column of whole days since a public date"
    return f"of type {kind!r}, which is no number and has no fixed levels"


def _left_out(name: str, why: str) -> str:
    return f"Left out {name!r}: {why}."


def _schema(fields: list[Column], notes: list[str], **person: Any) -> Schema:
    if not fields:
        raise SchemaError("the metadata hold no column that escudo can use: numbers, booleans or categories.")
    return Schema(tuple(fields), notes=tuple(notes), **person)


_MAX_BYTES = 256 * 2**20
_FORMATS = (".toml", ".json", ".yaml", ".yml")
_DATA = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".ndjson", ".jsonl", ".xlsx")


def read_schema(path: Path, table: str | None = None) -> Schema:
    """Read a schema file in the format its ending names; see :meth:`Schema.read`."""
    ending = path.suffix.lower()
    if ending not in _FORMATS:
        hint = " It looks like a data file; give the schema's file here." if ending in _DATA else ""
        raise InputError(f"'{path}' is no schema file: expected one ending in {', '.join(_FORMATS)}.{hint}")
    return parse_schema(read_text(path), ending, str(path), table)


def is_linked(document: object) -> bool:
    """Whether a parsed schema file describes linked tables."""
    return isinstance(document, Mapping) and isinstance(document.get("linked"), Mapping)


def linked_document(file: Path) -> Mapping[str, Any]:
    """Return what a schema file that may describe linked tables holds; nothing if it is no mapping."""
    ending = file.suffix.lower()
    if ending not in (".toml", ".json"):
        raise InputError(f"'{file}' is no schema file of linked tables: expected one ending in .toml or .json.")
    text = read_text(file)
    document: Any = parse_toml(text, str(file)) if ending == ".toml" else parse_json(text, str(file))
    return document if isinstance(document, Mapping) else {}


def read_any_schema(path: str | PathLike[str]) -> Schema | LinkedSchema:
    """Read a schema file of either kind: one table, or linked tables."""
    file = Path(path)
    if file.suffix.lower() in (".toml", ".json") and is_linked(linked_document(file)):
        from escudo.table._linked_schema import LinkedSchema

        return LinkedSchema.read(file)
    return Schema.read(file)


def parse_schema(text: str, ending: str, source: str = "schema", table: str | None = None) -> Schema:
    """Read a schema from text.

    Args:
        text: The file's content.
        ending: ``.toml``, ``.json``, ``.yaml`` or ``.yml``.
        source: What to call the text in errors.
        table: Which table to take from metadata that describe several.

    Raises:
        ParseError: If the text is not in its format.
        SchemaError: If it describes no usable schema.
    """
    try:
        if ending == ".toml":
            return schema_from_document(parse_toml(text, source))
        if ending == ".json":
            document = parse_json(text, source)
            return from_sdv(document, table) if is_sdv(document) else schema_from_document(document)
        return from_smartnoise(parse_yaml(text, source), table)
    except SchemaError as error:
        raise SchemaError(f"{source}: {error}") from None


def parse_json(text: str, source: str) -> Any:
    """Parse JSON text, refusing keys that appear twice.

    Raises:
        ParseError: If the text is not JSON; names ``source``, line and column.
    """
    wrong = partial(ParseError, source=source)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise wrong(f"the key {key!r:.60} appears twice in one object; remove one.")
            result[key] = value
        return result

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" at").removesuffix(" starting")
        raise wrong(f"not valid JSON: {problem}.", line=error.lineno, column=error.colno) from None
    except ParseError:
        raise
    except (ValueError, RecursionError):
        raise wrong("not valid JSON: nested too deeply, or a number too long.") from None


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text, plain data only, refusing keys that appear twice.

    Raises:
        ParseError: If the text is not YAML; names ``source``, line and column where known.
    """
    import yaml

    wrong = partial(ParseError, source=source)

    class Loader(yaml.SafeLoader):
        """Plain data, each key once."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r:.60} appears twice; remove one", problem_mark=key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise wrong(
            f"not valid YAML: {error.problem or 'unreadable'}.",
            line=None if mark is None else mark.line + 1,
            column=None if mark is None else mark.column + 1,
        ) from None
    except Exception:  # PyYAML lets plain Python errors of many kinds through, for odd tags, dates and nesting
        raise wrong("not valid YAML.") from None


def read_text(path: Path) -> str:
    """Return a small text file's content.

    Raises:
        InputError: If the file cannot be read, is not UTF-8, or is far too large for one.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or 'unknown reason'}.") from None
    except ValueError:  # a NUL in the name
        raise InputError("cannot read the file: the path is not usable.") from None
    if len(content) > _MAX_BYTES:
        raise InputError(f"'{path}' is too large for a schema. Is it the data?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"'{path}' is not UTF-8 text. Save it as UTF-8.") from None


def write_schema(schema: Schema, path: Path, overwrite: bool = False) -> None:
    """Write a schema as TOML, or as JSON if the path ends so; see :meth:`Schema.write`."""
    ending = path.suffix.lower()
    if ending == ".toml":
        text = schema.to_toml()
    elif ending == ".json":
        text = json.dumps(schema.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        raise InputError(f"cannot write a schema to '{path}': the name must end in .toml or .json.")
    write_text(path, text, overwrite)


def write_text(path: Path, text: str, overwrite: bool = False) -> None:
    """Write a text file whole or not at all.

    Raises:
        InputError: If the file exists and ``overwrite`` is false, or cannot be written.
    """
    if path.exists() and not overwrite:
        raise InputError(
            f"'{path}' exists already; choose another name, or say --force (overwrite=True) to replace it."
        )
    try:
        write_whole(path, text.encode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror or 'unknown reason'}.") from None


def confirm_file(path: Path, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Set ``confirmed = true`` in a schema's file, keeping the comments of a TOML file.

    Args:
        path: A schema file of ours; imported metadata must be converted first.
        names: The columns to confirm; all unconfirmed ones by default.

    Returns:
        The columns that were not confirmed before and now are.

    Raises:
        InputError: If the file cannot be read or written, or is not one of ours.
        SchemaError: If a column is unknown, or has no levels or bounds that could be confirmed.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        raise InputError(f"'{path}' is another tool's metadata; convert it first (escudo schema convert).")
    schema = read_schema(path)
    text = read_text(path)
    if path.suffix.lower() == ".json" and is_sdv(parse_json(text, str(path))):
        raise InputError(f"'{path}' is another tool's metadata; convert it first (escudo schema convert).")
    after = schema.confirm(names)
    changed = tuple(name for name in schema.unconfirmed if name not in after.unconfirmed)
    if not changed:
        return ()
    if path.suffix.lower() == ".toml":
        write_text(path, confirm_toml(text, changed, confirmed=after), overwrite=True)
    else:
        write_schema(after, path, overwrite=True)
    return changed
