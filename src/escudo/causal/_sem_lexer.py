"""Words, numbers and signs of the text format, each with its place; errors that point at it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from escudo.errors import ParseError

__all__ = ["FUNCTIONS", "MAX_WHOLE", "WORDS", "Source", "Token", "tokens"]

FUNCTIONS = ("abs", "all", "any", "count", "max", "min", "sum", "tuple")
_GRAMMAR = ("and", "or", "not", "if", "else", "in", "true", "false", "True", "False", "_")
_CONSTANTS = ("ln", "exp", "sqrt")
_CHANCE = (
    *("bernoulli", "choose", "coin", "exponential_mechanism", "kary_response", "randomised_response"),
    *("randomized_response", "report_noisy_max", "truncated_geometric"),
)
# These cannot name a variable, and a level of that name needs quotes.
WORDS = frozenset((*FUNCTIONS, *_GRAMMAR, *_CONSTANTS, *_CHANCE))

MAX_TEXT = 1_000_000
MAX_WHOLE = 2**53
_MAX_NUMBER = 40
_WINDOW = 100

Kind: TypeAlias = Literal["name", "number", "string", "sign", "newline", "end"]

_SKIP = re.compile(r"(?:[^\S\n]+|#[^\n]*|\\\n)+")
_TOKEN = re.compile(
    r"""(?P<newline>\n)
      | (?P<name>[^\W\d]\w*)
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'[^'\n]*')
      | (?P<sign>:=|->|\.\.|==|!=|<=|>=|//|[~|:,()\[\]=<>+\-*/%])
    """,
    re.VERBOSE,
)
# After one of these a line cannot be complete, so the definition goes on in the next line.
_SIGNS = (":=", "->", "..", "==", "!=", "<=", ">=", "//", "~", "|", ":", ",", "=", "<", ">", "+", "-", "*", "/", "%")
_UNFINISHED = frozenset((*_SIGNS, "and", "or", "not", "if", "else", "in"))


@dataclass(frozen=True, slots=True)
class Token:
    """One word, number or sign; ``text`` is what it says (for a string, without quotes)."""

    kind: Kind
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Source:
    """The text being read, with the name that errors give it."""

    text: str
    name: str = "text"

    def error(self, offset: int, message: str) -> ParseError:
        """Return an error that shows the line and marks the place."""
        line = self.text.count("\n", 0, offset) + 1
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        shown = self.text[start : len(self.text) if end < 0 else end].replace("\t", " ").rstrip()
        column = offset - start
        first = max(0, column - _WINDOW // 2) if len(shown) > _WINDOW else 0
        shown = shown[first : first + _WINDOW]
        excerpt = f"\n    {shown}\n    {' ' * (column - first)}^" if shown else ""
        return ParseError(message + excerpt, source=self.name, line=line, column=column + 1)


def tokens(source: Source) -> list[Token]:
    """Return the tokens of the text; line ends inside brackets, or where a line cannot be complete, are left out."""
    text = source.text
    if len(text) > MAX_TEXT:
        raise ParseError(f"the text has {len(text):,} characters; the limit is {MAX_TEXT:,}.", source=source.name)
    found: list[Token] = []
    depth = 0
    offset = 0
    while offset < len(text):
        if skip := _SKIP.match(text, offset):
            offset = skip.end()
            continue
        match = _TOKEN.match(text, offset)
        if match is None:
            raise source.error(offset, _stray(text[offset]))
        token = _token(source, match)
        offset = match.end()
        if token.kind == "newline":
            if depth == 0 and found and found[-1].kind != "newline" and not _unfinished(found[-1]):
                found.append(token)
            continue
        if token.kind == "sign":
            depth = max(0, depth + (token.text in "([") - (token.text in ")]"))
        found.append(token)
    if found and found[-1].kind != "newline":
        found.append(Token("newline", "\n", len(text)))
    found.append(Token("end", "", len(text)))
    return found


def _token(source: Source, match: re.Match[str]) -> Token:
    kind: Kind = match.lastgroup  # type: ignore[assignment]  # the groups are the kinds
    text = match.group()
    if kind == "number" and len(text) > _MAX_NUMBER:
        raise source.error(match.start(), f"this number has {len(text)} characters; the limit is {_MAX_NUMBER}.")
    if kind == "string":
        try:
            text = json.loads(text) if text[0] == '"' else text[1:-1]
            text.encode("utf-8")
        except ValueError:
            raise source.error(
                match.start(), "this text has an escape that is not one of JSON's (\\\" \\\\ \\n \\u…)."
            ) from None
    return Token(kind, text, match.start())


def _unfinished(token: Token) -> bool:
    return token.kind in ("name", "sign") and token.text in _UNFINISHED


def _stray(character: str) -> str:
    if character in "\"'":
        return "this quoted text is not closed before the end of the line."
    hints = {"≤": "<=", "≥": ">=", "≠": "!=", "&": "and", "!": "not", "^": "!=", ";": "a new line", "{": "(", "}": ")"}
    hint = f" Write {hints[character]} instead." if character in hints else ""
    return f"unexpected character {character!r}.{hint}"
