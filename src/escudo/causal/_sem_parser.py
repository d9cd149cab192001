"""A recursive-descent reader for the definitions of the text format.

It builds the pieces of :mod:`escudo.causal._sem_syntax` and knows nothing of ranges. The number of names that families
stand for is limited, so that no text can exhaust the machine.
"""

from __future__ import annotations

from escudo.causal._sem_cursor import Cursor, what
from escudo.causal._sem_expression_parser import ExpressionParser
from escudo.causal._sem_lexer import WORDS, Source, Token
from escudo.causal._sem_syntax import Assign, Conditional, Entry, Exogenous, Node, Row, Statement
from escudo.causal._sem_values import Value

__all__ = ["read_expression", "read_statements"]


def read_statements(source: Source) -> tuple[list[Statement], Cursor]:
    """Return the definitions of a text, and the reader, which knows the levels it met."""
    parser = _Parser(source)
    found: list[Statement] = []
    while parser.peek().kind != "end":
        found += parser.statement()
    return found, parser


def read_expression(source: Source) -> tuple[Node, Cursor]:
    """Return the expression that a text consists of, and the reader, which knows the levels it met."""
    parser = _Parser(source)
    node = parser.expression()
    parser.end_of_line()
    if parser.peek().kind != "end":
        raise parser.error(parser.peek(), "the expression ended before this line.")
    return node, parser


class _Parser(ExpressionParser):
    """Statements."""

    def statement(self) -> list[Statement]:
        """Read one definition; a family gives one for each member."""
        name = self.peek()
        if name.kind != "name":
            raise self.error(name, "a definition starts with a name, as in 'X := …' or 'X ~ level: 0.5, …'.")
        if not self.at("[", ahead=1):
            return [self._definition(self._names_on_the_left())]
        self._defined()
        self.take()
        index = None
        if self.at("in", ahead=1):
            index = self.take().text
            self.take()
            if index in WORDS or not index.isidentifier():
                raise self.error(name, "the index of a family is a name, as in 'D[i in 1..9] := R[i]'.")
        first, last = self.bounds(name)
        found, start = [], self.position
        for number in range(first, last + 1):
            self.position = start
            if index is not None:
                self.indices = {index: number}
            found.append(self._definition([Token("name", f"{name.text}{number}", name.offset)]))
        self.indices = {}
        return found

    def _names_on_the_left(self) -> list[Token]:
        names = [self._defined()]
        while self.skip(","):
            name = self._defined()
            if name.text in [other.text for other in names]:
                raise self.error(name, f"{name.text!r} is named twice.")
            names.append(name)
        return names

    def _defined(self) -> Token:
        token = self.take()
        if token.kind != "name":
            raise self.error(token, f"expected the name of a variable; found {what(token)}.")
        if token.text in WORDS:
            raise self.error(token, f"{token.text!r} is a word of the language; choose another name.")
        return token

    def _definition(self, names: list[Token]) -> Statement:
        name = names[0]
        if self.skip("~"):
            return self._exogenous(names)
        if len(names) > 1:
            raise self.error(
                self.peek(), f"after several names comes '~' and their joint law; found {what(self.peek())}."
            )
        if self.skip(":="):
            node = self.expression()
            self.end_of_line()
            return Assign(name.text, node, name.offset)
        if self.skip("|"):
            return self._conditional(name)
        hint = " Did you mean ':='?" if self.at("=", "==", ":") else ""
        raise self.error(self.peek(), f"after {name.text!r} comes ':=', '~' or '|'; found {what(self.peek())}.{hint}")

    def _exogenous(self, names: list[Token]) -> Exogenous:
        entries = self._entries()
        self.end_of_line()
        for entry in entries:
            if len(names) > 1 and (not isinstance(entry.value, tuple) or len(entry.value) != len(names)):
                raise self.source.error(
                    entry.offset, f"a joint law of {len(names)} variables needs {len(names)} values, as in (a, b): 0.5."
                )
        return Exogenous(tuple(name.text for name in names), entries, names[0].offset)

    def _conditional(self, name: Token) -> Conditional:
        parents = self.references()
        while self.skip(","):
            parents += self.references()
        self.expect("~", "then come the rows of the table")
        rows = [self._row(len(parents))]
        while self._at_row():
            rows.append(self._row(len(parents)))
        return Conditional(name.text, tuple(parents), tuple(rows), name.offset)

    def _at_row(self) -> bool:
        """Look ahead: a row has '->' where a definition has '~', ':=' or '|'."""
        ahead = 0
        while self.peek(ahead).kind not in ("newline", "end"):
            if self.at("->", "~", ":=", "|", ahead=ahead):
                return self.at("->", ahead=ahead)
            ahead += 1
        return False

    def _row(self, parents: int) -> Row:
        start = self.peek()
        pattern = [self._pattern()]
        while self.skip(","):
            pattern.append(self._pattern())
        if len(pattern) != parents:
            raise self.error(start, f"this row has {len(pattern)} values for {parents} parents.")
        self.expect("->", "a row reads: parents' values -> value: probability, …")
        entries = self._entries()
        self.end_of_line()
        return Row(tuple(pattern), entries, start.offset)

    def _pattern(self) -> Value | None:
        return None if self.skip("_") else self.level()

    def _entries(self) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        seen: set[Value] = set()
        while True:
            token = self.peek()
            value = self.level()
            self.expect(":", "a law reads: value: probability, …")
            weight = self.constant()
            if not 0 <= weight <= 1:
                raise self.error(token, f"a probability lies between 0 and 1; got {weight:g}.")
            if value in seen:
                raise self.error(token, "this value already has a probability (true counts as 1, false as 0).")
            seen.add(value)
            entries.append(Entry(value, weight, token.offset))
            if not self.skip(","):
                return tuple(entries)

    def end_of_line(self) -> None:
        """Move past the end of a definition, or raise if there is more."""
        if self.peek().kind not in ("newline", "end"):
            raise self.error(self.peek(), f"expected the end of the line; found {what(self.peek())}.")
        self.take()
