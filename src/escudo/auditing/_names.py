"""The numbers of an output by name: what a witness calls entry 3 of a dict, a table or a dataclass."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

__all__ = ["named"]

_QUOTED = re.compile(r"b?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_END = re.compile(r", |[\]})]")
_KEY = re.compile(r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^:{}\[\]]+): ")
_ARRAY = re.compile(r"array\(([0-9, ]*)\)")
_CALL = re.compile(r"[A-Za-z_]\w*\(")


def named(words: str, structures: Sequence[str]) -> str:
    """Return words in which "entry k" is replaced by the key that leads to it, where all that have one agree on it.

    Args:
        words: An event in words.
        structures: What outputs looked like, without their numbers.

    >>> named("entry 2 < 5", ["#", "{'age': {'largest': #, 'sum': #}, 'rows': #}"])
    'age: sum < 5'
    >>> named("entry 1 < 422", ["#", "{'status': #, 'value': #}", "{'status': #, 'value': 'refused'}"])
    'status < 422'
    >>> named("entry 1 minus entry 2 < 5", ["#", "[#, #]"])
    'entry 1 minus entry 2 < 5'
    """
    lists = [names for names in map(_names, structures[1:]) if names]

    def name(found: re.Match[str]) -> str:
        place = int(found[1]) - 1
        called = {names[place] for names in lists if place < len(names)}
        return called.pop() or found[0] if len(called) == 1 else found[0]

    return re.sub(r"\bentry (\d+)\b", name, words)


def _names(structure: str) -> list[str]:
    """Return the path of keys to each number of a structure; empty where there are no keys on the way."""
    found: list[str] = []
    _read(structure, 0, "", found)
    return found


def _read(text: str, at: int, path: str, found: list[str]) -> int:
    """Read one part of a structure and return where the next begins."""
    array, call = _ARRAY.match(text, at), _CALL.match(text, at)
    if text.startswith("#", at):
        found.append(path)
        return at + 1
    if array:
        size = 1
        for part in array[1].split(","):
            size *= int(part) if part.strip() else 1
        found += [f"number {k + 1} of {path}" if path else "" for k in range(size)]
        return array.end()
    if text.startswith("{", at):
        at += 1
        while at < len(text) and text[at] != "}":
            key = _KEY.match(text, at)
            if key is None:
                return len(text)
            at = _read(text, key.end(), f"{path}: {_plain(key[0][:-2])}" if path else _plain(key[0][:-2]), found)
            at += 2 if text.startswith(", ", at) else 0
        return at + 1
    if text.startswith("[", at) or call:
        at = call.end() if call else at + 1
        number = 0
        while at < len(text) and text[at] not in "])":
            number += 1
            at = _read(text, at, f"number {number} of {path}" if path else "", found)
            at += 2 if text.startswith(", ", at) else 0
        return at + 1
    quoted = _QUOTED.match(text, at)
    if quoted:
        return quoted.end()
    end = _END.search(text, at + 1)
    return end.start() if end else len(text)


def _plain(key: str) -> str:
    try:
        return str(ast.literal_eval(key))
    except (SyntaxError, ValueError):
        return key
