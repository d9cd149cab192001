"""The Bayesian Interchange Format: networks as the bnlearn repository and JavaBayes write them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn

from escudo._validate import did_you_mean
from escudo.causal.formats._source import Cursor, Draft, NamedText, Token, shown

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

_TOKEN = re.compile(
    r"""
      (?P<skip>[\s\ufeff]+|//[^\r\n]*|/\*.*?\*/)
    | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<mark>[{}()\[\],;|])
    | (?P<word>[^\s\ufeff{}()\[\],;|"]+)
    """,
    re.X | re.S,
)
_ESCAPE = re.compile(r"\\([\"\\])")
_PLAIN = re.compile(r"[\w<>+=.%-][\w<>+=.%/-]*")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a probability block: ``table``, ``default``, or the row for some levels of the parents."""

    levels: tuple[str, ...] | Literal["table", "default"]
    numbers: tuple[str, ...]
    at: int


@dataclass(slots=True)
class Block:
    """All that a file says of one variable."""

    name: str
    at: int
    levels: tuple[str, ...] | None = None
    parents: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    has_probability: bool = False


def read_bif(source: NamedText) -> Draft:
    """Read the structure: each variable's parents; its levels and tables are left to ``Network``."""
    draft = Draft(source)
    blocks = parse_bif(source)
    for block in blocks.values():
        draft.add_node(block.name, {}, block.at)
    for block in blocks.values():
        for parent in block.parents:
            draft.add_edge(parent, block.name, (False, True), block.at)
    return draft


def write_bif(graph: CausalGraph) -> str:
    """Return the structure alone; levels and tables, which a graph does not have, are left open as BIF allows."""
    lines = ["network structure {", "}"]
    for node in graph.nodes:
        lines += [f"variable {quoted(node)} {{", "}"]
    for node in graph.nodes:
        given = ", ".join(map(quoted, graph.parents(node)))
        lines += [f"probability ( {quoted(node)}{f' | {given}' if given else ''} ) {{", "}"]
    return "\n".join(lines) + "\n"


def quoted(name: str) -> str:
    """Return a name or level as it stands in BIF: bare if it is one plain word, else in quotes."""
    if _PLAIN.fullmatch(name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_bif(source: NamedText) -> dict[str, Block]:
    """Return what the file says of each variable, in the order of declaration."""
    return _Parser(source).blocks()


def _tokens(source: NamedText) -> list[Token]:
    """Return words, quoted or not, and marks."""

    def odd(at: int) -> NoReturn:
        raise source.error("this quote is never closed", at)

    found = []
    for token in source.tokens(_TOKEN, odd):
        if token.text.startswith("/*") and token.kind == "word":
            raise source.error("this comment is never closed", token.at)
        string = token.kind == "string"
        found.append(Token("word", _ESCAPE.sub(r"\1", token.text[1:-1]), token.at) if string else token)
    return found


class _Parser(Cursor):
    """Reads token by token, without recursion: nothing in BIF nests."""

    def __init__(self, source: NamedText):
        super().__init__(source, _tokens(source))

    def blocks(self) -> dict[str, Block]:
        found: dict[str, Block] = {}
        given: list[tuple[str, tuple[str, ...], list[Row], int]] = []
        while self.token.kind != "end":
            at = self.token.at
            keyword = self.word("'network', 'variable' or 'probability'").lower()
            if keyword == "network":
                self.network()
            elif keyword == "variable":
                block = self.variable(at)
                if block.name in found:
                    raise self.source.error(f"the variable {shown(block.name)} is declared twice", at)
                found[block.name] = block
            elif keyword == "probability":
                given.append((*self.probability(), at))
            else:
                raise self.source.error(f"expected 'network', 'variable' or 'probability', found {shown(keyword)}", at)
        if not found:
            raise self.source.error("this file declares no variable")
        for child, parents, rows, at in given:
            for name in (child, *parents):
                if name not in found:
                    hint = did_you_mean(name, found)
                    raise self.source.error(f"{shown(name)} is used here but is no variable of this file.{hint}", at)
            if found[child].has_probability:
                raise self.source.error(f"a second probability block for {shown(child)}", at)
            if len(set(parents)) < len(parents):
                raise self.source.error(f"a parent of {shown(child)} is named twice", at)
            found[child].parents, found[child].rows, found[child].has_probability = parents, rows, True
        return found

    def network(self) -> None:
        while not self.at("{"):
            self.word("a name or '{'")
        self.expect("{")
        while not self.at("}"):
            self.skip_statement()
        self.expect("}")

    def variable(self, at: int) -> Block:
        block = Block(self.word("a variable's name"), at)
        if not block.name.strip():
            raise self.source.error("a variable's name is empty", at)
        self.expect("{")
        while not self.at("}"):
            if self.token.text.lower() != "type":
                self.skip_statement()
                continue
            self.place += 1
            kind_at = self.token.at
            if self.word("'discrete'").lower() != "discrete":
                raise self.source.error("only discrete variables can be read", kind_at)
            self.expect("[")
            size = self.word("the number of levels")
            self.expect("]")
            self.expect("{")
            levels = self.words("}")
            self.expect("}")
            self.expect(";")
            if size != str(len(levels)):
                raise self.source.error(f"{shown(size)} levels are announced, {len(levels)} are listed", kind_at)
            block.levels = levels
        self.expect("}")
        return block

    def probability(self) -> tuple[str, tuple[str, ...], list[Row]]:
        self.expect("(")
        child = self.word("a variable's name")
        if self.at("|") or self.at(","):
            self.place += 1
        parents = self.words(")")  # JavaBayes writes the child and its parents in one list, without a bar
        self.expect(")")
        self.expect("{")
        rows: list[Row] = []
        while not self.at("}"):
            at = self.token.at
            if self.at("("):
                self.place += 1
                levels = self.words(")")
                self.expect(")")
                rows.append(Row(levels, self.words(";"), at))
            elif self.token.text.lower() == "table":
                self.place += 1
                rows.append(Row("table", self.words(";"), at))
            elif self.token.text.lower() == "default":
                self.place += 1
                rows.append(Row("default", self.words(";"), at))
            else:
                self.skip_statement()
                continue
            self.expect(";")
        self.expect("}")
        return child, parents, rows

    def word(self, wanted: str) -> str:
        if self.token.kind != "word":
            raise self.wrong(wanted)
        self.place += 1
        return self.tokens[self.place - 1].text

    def words(self, end: str) -> tuple[str, ...]:
        """Read words up to a mark; commas between them may be left out."""
        found = []
        while not self.at(end):
            found.append(self.word(f"a word or {end!r}"))
            if self.at(","):
                self.place += 1
        return tuple(found)

    def skip_statement(self) -> None:
        """Read past ``property ... ;``, whose content is free."""
        start = self.token
        if start.text.lower() != "property":
            raise self.wrong("'property', 'type', 'table', a row or '}'")
        while not self.at(";"):
            if self.token.kind == "end":
                raise self.source.error("this property is never closed by ';'", start.at)
            self.place += 1
        self.place += 1
