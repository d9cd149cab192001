"""Schemas as TOML: read with line and column in every error, written with comments, confirmed in place."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable
from typing import Any

from escudo.errors import EscudoError, ParseError
from escudo.table._columns import Column
from escudo.table._schema import Schema
from escudo.table._spec import spec_of_column

__all__ = ["confirm_toml", "parse_toml", "to_toml"]

_WIDTH = 100
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_UNCONFIRMED_LINE = re.compile(r"^(\s*confirmed\s*=\s*)false\b")


def parse_toml(text: str, source: str = "schema") -> dict[str, Any]:
    """Parse TOML text.

    Raises:
        ParseError: If the text is not TOML; names ``source``, line and column.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ParseError("the tables or lists are nested too deeply.", source=source) from None
    except ValueError as error:  # TOMLDecodeError, or a number beyond Python's limits
        problem = str(error)
        place = _PLACE.search(problem)
        if place is None:
            raise ParseError("not valid TOML: a value is beyond what can be read.", source=source) from None
        line, column = (int(place[1]), int(place[2])) if place[1] else (text.count("\n") + 1, None)
        problem = problem[: place.start()]
        raise ParseError(f"not valid TOML: {problem}.", source=source, line=line, column=column) from None


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
        blocks.append("[table]\n" + _pairs(table))
    blocks.extend(_column_block(column) for column in schema.fields)
    return "\n".join(blocks)


def _column_block(column: Column) -> str:
    comment = _comment([column.note]) if column.note else ""
    return f"{comment}[columns.{_key(column.name)}]\n{_pairs(spec_of_column(column))}"


def _pairs(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {_value(value, indent=len(key) + 3)}\n" for key, value in table.items())


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _value(value: Any, *, indent: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
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
