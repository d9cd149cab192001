"""A place in the token list, and the small things read there: constants, levels, and the names of variables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from escudo.causal._sem_lexer import MAX_WHOLE, WORDS, Source, Token, tokens
from escudo.causal._sem_syntax import Word
from escudo.causal._sem_values import Value
from escudo.errors import ParseError

__all__ = ["MAX_NESTING", "Cursor", "what"]

MAX_NESTING = 40
MAX_FAMILY = 10_000
MAX_NAMES = 200_000  # how many names all families of one text may stand for together
MAX_WORK = 1_000_000  # tokens read, where those of a family are read once for each member
_FUNCTIONS = {"ln": math.log, "exp": math.exp, "sqrt": math.sqrt}


class Cursor:
    """Reads tokens one after the other.

    Attributes:
        source: The text.
        tokens: Its tokens; the last one is the end.
        position: The token to be read next.
        levels: Every level met so far, so that a bare word can be told from a misspelt variable.
        bare: Levels that stand in a law without quotes, with their place.
        indices: Values of the family indices that are in force.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokens(source)
        self.position = 0
        self.levels: set[str] = set()
        self.bare: dict[str, int] = {}
        self.indices: dict[str, int] = {}
        self._depth = 0
        self._names = 0
        self._work = 0

    # -- tokens ------------------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token:
        """Return a coming token without taking it."""
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Return the next token and move past it."""
        token = self.peek()
        self.position = min(self.position + 1, len(self.tokens) - 1)
        self._work += 1
        if self._work > MAX_WORK:
            raise self.error(token, "the families of this text stand for too many definitions; split the model.")
        return token

    def at(self, *signs: str, ahead: int = 0) -> bool:
        """Return True if a coming token is one of these signs or words (and not quoted text)."""
        token = self.peek(ahead)
        return token.kind != "string" and token.text in signs

    def skip(self, *signs: str) -> bool:
        """Move past the next token if it is one of these."""
        if self.at(*signs):
            self.take()
            return True
        return False

    def expect(self, sign: str, why: str) -> Token:
        """Return the next token, or raise unless it is ``sign``."""
        if not self.at(sign):
            raise self.error(self.peek(), f"expected {sign!r} ({why}); found {what(self.peek())}.")
        return self.take()

    def error(self, token: Token, message: str) -> ParseError:
        """Return an error that points at a token."""
        return self.source.error(token.offset, message)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count one level of nesting, or raise if there are too many."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(
                self.peek(), f"nested more than {MAX_NESTING} levels deep; give a part of it a variable of its own."
            )
        try:
            yield
        finally:
            self._depth -= 1

    # -- numbers -----------------------------------------------------------------------------------------------------

    def constant(self) -> float:
        """Read a number such as ``0.1``, ``1/3``, ``ln(2)`` or ``2 * exp(-1)``."""
        start = self.peek()
        try:
            value = self._constant_sum()
        except ParseError:
            raise
        except (ArithmeticError, ValueError):  # 1/0, exp(1000), ln(0)
            raise self.error(start, "this number is not defined.") from None
        if not math.isfinite(value):
            raise self.error(start, "this number is too large.")
        return value

    def _constant_sum(self) -> float:
        with self.nested():
            total = self._constant_product()
            while self.at("+", "-"):
                total += self._constant_product() if self.take().text == "+" else -self._constant_product()
            return total

    def _constant_product(self) -> float:
        value = self._constant_number()
        while self.at("*", "/"):
            value = value * self._constant_number() if self.take().text == "*" else value / self._constant_number()
        return value

    def _constant_number(self) -> float:
        negative = False
        while self.at("-", "+"):
            negative ^= self.take().text == "-"
        token = self.take()
        if token.kind == "number":
            value = float(token.text)
        elif token.text == "(" and token.kind == "sign":
            value = self._constant_sum()
            self.expect(")", "this bracket is not closed")
        elif token.kind == "name" and token.text in _FUNCTIONS:
            self.expect("(", f"{token.text} takes a number in brackets")
            value = _FUNCTIONS[token.text](self._constant_sum())
            self.expect(")", "this bracket is not closed")
        elif token.kind == "name" and token.text in self.indices:
            value = float(self.indices[token.text])
        else:
            raise self.error(token, f"expected a number, such as 0.1, 1/3 or ln(2); found {what(token)}.")
        return -value if negative else value

    def whole(self) -> int:
        """Read a whole number."""
        token = self.take()
        if not token.text.isdecimal() or int(token.text) > MAX_WHOLE:
            raise self.error(token, "values are whole numbers of at most 2^53, text, true or false.")
        return int(token.text)

    # -- levels ------------------------------------------------------------------------------------------------------

    def level(self) -> Value:
        """Read a value as it stands in a law: a word, a whole number, quoted text, true, false, or a tuple of these."""
        token = self.peek()
        if token.kind == "string":
            return self._remember(self.take().text)
        if token.kind == "number":
            return self.whole()
        if self.at("-") and self.peek(1).kind == "number":
            self.take()
            return -self.whole()
        if self.at("("):
            return self._tuple_level()
        if token.kind != "name":
            raise self.error(token, f"expected a value; found {what(token)}.")
        if token.text in ("true", "True", "false", "False"):
            return self.take().text.lower() == "true"
        if token.text in WORDS:
            raise self.error(token, f'{token.text!r} is a word of the language; as a value, write "{token.text}".')
        self.bare.setdefault(token.text, token.offset)
        return self._remember(self.take().text)

    def _tuple_level(self) -> Value:
        with self.nested():
            self.take()
            parts = [self.level()]
            while self.skip(",") and not self.at(")"):
                parts.append(self.level())
            self.expect(")", "this bracket is not closed")
            return tuple(parts)

    def _remember(self, level: str) -> str:
        self.levels.add(level)
        return level

    # -- names of variables ------------------------------------------------------------------------------------------

    def references(self) -> list[Word]:
        """Read ``X``, ``X[3]`` or the family ``X[1..9]``, which stands for X1, …, X9."""
        token = self.take()
        if token.kind != "name" or token.text in WORDS:
            raise self.error(token, f"expected the name of a variable; found {what(token)}.")
        if not self.at("["):
            return [Word(token.text, token.offset)]
        self.take()
        first, last = self.bounds(token)
        return [Word(f"{token.text}{number}", token.offset) for number in range(first, last + 1)]

    def reference(self) -> Word:
        """Read the name of one variable."""
        token = self.peek()
        found = self.references()
        if len(found) > 1:
            raise self.error(token, "a family can only stand in a list, such as count(D[1..9] = pos).")
        return found[0]

    def bounds(self, token: Token) -> tuple[int, int]:
        """Read ``3]`` or ``1..9]`` after the opening bracket of a family."""
        first = last = self._index()
        if self.skip(".."):
            last = self._index()
        self.expect("]", "this bracket is not closed")
        if first > last:
            raise self.error(token, f"the family {token.text}[{first}..{last}] is empty.")
        self._names += last - first + 1
        if last - first >= MAX_FAMILY or self._names > MAX_NAMES:
            raise self.error(token, f"families are limited to {MAX_FAMILY:,} names each and {MAX_NAMES:,} in one text.")
        return first, last

    def _index(self) -> int:
        value = self._index_term()
        while self.at("+", "-"):
            value += self._index_term() if self.take().text == "+" else -self._index_term()
        if value < 0:
            raise self.error(self.peek(), "an index cannot be negative.")
        return value

    def _index_term(self) -> int:
        token = self.peek()
        if token.kind == "name":
            if token.text not in self.indices:
                known = (
                    f" Known here: {', '.join(self.indices)}."
                    if self.indices
                    else " Bind it as in D[i in 1..9] := R[i]."
                )
                raise self.error(token, f"{token.text!r} is not an index.{known}")
            return self.indices[self.take().text]
        return self.whole()


def what(token: Token) -> str:
    """Say what a token is, for a message."""
    return {"newline": "the end of the line", "end": "the end of the text"}.get(token.kind, repr(token.text))
