"""Schema files: which format a path means, and reading and writing without surprises."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from escudo.errors import InputError, ParseError, SchemaError
from escudo.table._schema import Schema, schema_from_document
from escudo.table._schema_import import from_sdv, from_smartnoise, is_sdv
from escudo.table._schema_toml import confirm_toml, parse_toml

__all__ = ["confirm_file", "parse_schema", "read_schema", "read_text", "write_schema", "write_text"]

_MAX_BYTES = 256 * 2**20
_FORMATS = (".toml", ".json", ".yaml", ".yml")
_DATA = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".ndjson", ".jsonl", ".xlsx")


def read_schema(path: Path, *, table: str | None = None) -> Schema:
    """Read a schema file in the format its ending names; see :meth:`Schema.read`."""
    ending = path.suffix.lower()
    if ending not in _FORMATS:
        hint = " It looks like a data file; give the schema's file here." if ending in _DATA else ""
        raise InputError(f"'{path}' is no schema file: expected one ending in {', '.join(_FORMATS)}.{hint}")
    return parse_schema(read_text(path), ending, source=str(path), table=table)


def parse_schema(text: str, ending: str, *, source: str = "schema", table: str | None = None) -> Schema:
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
            return from_sdv(document, table=table) if is_sdv(document) else schema_from_document(document)
        return from_smartnoise(parse_yaml(text, source), table=table)
    except SchemaError as error:
        raise SchemaError(f"{source}: {error}") from None


def parse_json(text: str, source: str) -> Any:
    """Parse JSON text, refusing keys that appear twice.

    Raises:
        ParseError: If the text is not JSON; names ``source``, line and column.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise ParseError(f"the key {key!r:.60} appears twice in one object; remove one.", source=source)
            result[key] = value
        return result

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" at").removesuffix(" starting")
        raise ParseError(f"not valid JSON: {problem}.", source=source, line=error.lineno, column=error.colno) from None
    except ParseError:
        raise
    except (ValueError, RecursionError):
        raise ParseError("not valid JSON: nested too deeply, or a number too long.", source=source) from None


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text, plain data only, refusing keys that appear twice.

    Raises:
        ParseError: If the text is not YAML; names ``source``, line and column where known.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data, each key once."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    problem = f"the key {key.value!r:.60} appears twice; remove one"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = {} if mark is None else {"line": mark.line + 1, "column": mark.column + 1}
        raise ParseError(f"not valid YAML: {error.problem or 'unreadable'}.", source=source, **place) from None
    except Exception:  # PyYAML lets plain Python errors of many kinds through, for odd tags, dates and nesting
        raise ParseError("not valid YAML.", source=source) from None


def read_text(path: Path) -> str:
    """Return a small text file's content.

    Raises:
        InputError: If the file cannot be read, is not UTF-8, or is far too large for a schema.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or 'unknown reason'}.") from None
    except ValueError:  # a NUL in the name
        raise InputError("cannot read the schema: the path is not usable.") from None
    if len(content) > _MAX_BYTES:
        raise InputError(f"'{path}' is too large for a schema. Is it the data?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"'{path}' is not UTF-8 text. Save it as UTF-8.") from None


def write_schema(schema: Schema, path: Path, *, overwrite: bool = False) -> None:
    """Write a schema as TOML, or as JSON if the path ends so; see :meth:`Schema.write`."""
    ending = path.suffix.lower()
    if ending == ".toml":
        text = schema.to_toml()
    elif ending == ".json":
        text = json.dumps(schema.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        raise InputError(f"cannot write a schema to '{path}': the name must end in .toml or .json.")
    write_text(path, text, overwrite=overwrite)


def write_text(path: Path, text: str, *, overwrite: bool = False) -> None:
    """Write a text file whole or not at all.

    Raises:
        InputError: If the file exists and ``overwrite`` is false, or cannot be written.
    """
    if path.exists() and not overwrite:
        raise InputError(
            f"'{path}' exists already; choose another name, or say --force (overwrite=True) to replace it."
        )
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
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
