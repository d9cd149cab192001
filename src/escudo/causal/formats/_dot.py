"""Graphviz DOT, read by hand, and dagitty's text, which shares its grammar.

dagitty has graph types of its own, flags without values, and ``<->`` for a latent common cause. Both can carry a
partial ancestral graph: DOT with ``odot`` for a circle and ``pag=true`` on the graph, dagitty as ``pag { a @-> b }``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from escudo.causal.formats._source import Cursor, Draft, NamedText, Token, extras_of, flags, shown

if TYPE_CHECKING:
    from escudo.causal._ancestral import AncestralGraph
    from escudo.causal._graph import CausalGraph


_MAX_DEPTH = 64
_TOKEN = re.compile(
    r"""
      (?P<skip>[\s\ufeff]+|//[^\r\n]*|/\*.*?\*/|\#[^\r\n]*)
    | (?P<arrow>@-@|@->|<-@|<->|->|<-|--|[→←↔])
    | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<word>(?:[A-Za-z0-9_.]|[^\x00-\x7f\s\ufeff→←↔])+|-(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?))
    | (?P<mark>[{}\[\];,=:+])
    """,
    re.X | re.S,
)
_BRACKET = re.compile(r"[<>]")
_BLANK = re.compile(r"(?:\s|\\[nrlt])*")
_ESCAPE = re.compile(r"\\(\r\n|[\"\\\r\n])", re.S)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = {"strict", "graph", "digraph", "subgraph", "node", "edge"}
_ARROWS = {"→": "->", "←": "<-", "↔": "<->"}
_ANCESTRAL = re.compile(r"\s*(mag|pag)\b", re.I)
_CIRCLES = "circle marks ({}) belong to partial ancestral graphs, which have no single causal reading. {}"
_INSTEAD = "Read it as an escudo.causal.AncestralGraph; of the commands, effect and graph show take it"
_MARKS = {"@": "circle", "<": "arrow", ">": "arrow", "-": "tail"}


# ---- reading


def read_dot(source: NamedText, *, ancestral: bool = False) -> Draft:
    """Read one ``graph { }`` or ``digraph { }``; ``--`` or ``dir=none`` makes an edge undirected.

    Args:
        source: The text.
        ancestral: Whether it is a partial ancestral graph, with a mark at each end of each edge.
    """
    return _Parser(source, ancestral).graph(("graph", "digraph"))


def read_dagitty(source: NamedText, *, ancestral: bool = False) -> Draft:
    """Read ``dag { }`` or ``pdag { }``; ``a <-> b`` stands for a latent common cause of both, as dagitty defines it.

    Args:
        source: The text.
        ancestral: Whether it is a partial ancestral graph: ``pag { }`` or ``mag { }``.
    """
    if ancestral:
        return _Parser(source, ancestral).graph(("pag", "mag"))
    if match := _ANCESTRAL.match(source.text):
        raise source.error(
            f"{match[1]!r} graphs describe ancestry, not direct causes. Give a dag or pdag. {_INSTEAD}", match.start(1)
        )
    return _Parser(source, ancestral).graph(("dag", "pdag", "digraph", "graph"))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Default attributes for nodes and edges named from here on; a subgraph starts with a copy of its parent's."""

    node: dict[str, str]
    edge: dict[str, str]

    def inner(self) -> _Scope:
        return _Scope(dict(self.node), dict(self.edge))


def _tokens(source: NamedText) -> list[Token]:
    """Return arrows, strings, blanks (strings that spell nothing), words and marks."""
    found = []
    for kind, word, at in source.tokens(_TOKEN, lambda at: _html_end(source, at)):
        if kind == "string":
            body = word[1:-1]
            found.append(Token("blank" if _BLANK.fullmatch(body) else "string", _unescape(body), at))
        elif kind == "odd":
            found.append(Token("string", word, at))
        else:
            found.append(Token(kind, _ARROWS.get(word, word), at))
    return found


def _unescape(body: str) -> str:
    return _ESCAPE.sub(lambda match: match[1] if match[1] in '"\\' else "", body)


def _html_end(source: NamedText, at: int) -> int:
    """Return where a text in angle brackets ends; anything else that is no token cannot be read."""
    if source.text[at] != "<":
        raise _unreadable(source, at)
    depth = 0
    for bracket in _BRACKET.finditer(source.text, at):
        depth += 1 if bracket[0] == "<" else -1
        if depth == 0:
            return bracket.end()
    raise source.error("this '<' is never closed", at)


def _unreadable(source: NamedText, at: int) -> Exception:
    char = source.text[at]
    if char == '"':
        return source.error("this quote is never closed", at)
    if source.text.startswith("/*", at):
        return source.error("this comment is never closed", at)
    if char == "@":
        return source.error(_CIRCLES.format("@", _INSTEAD), at)
    return source.error(f"unexpected {shown(char)}. Put names with such characters in double quotes", at)


class _Parser(Cursor):
    """A recursive reader; only subgraphs recurse, and no deeper than ``_MAX_DEPTH``."""

    def __init__(self, source: NamedText, ancestral: bool):
        super().__init__(source, _tokens(source))
        self.draft, self.ancestral = Draft(source), ancestral

    def take(self) -> Token:
        token = self.token
        self.place += token.kind != "end"
        return token

    def graph(self, kinds: tuple[str, ...]) -> Draft:
        """Read one graph whose opening word is one of ``kinds``."""
        if self.token.keyword() == "strict":
            self.place += 1
        if self.token.keyword() not in kinds:
            raise self.wrong(" or ".join(repr(kind) for kind in kinds))
        self.place += 1
        if self.token.kind in ("word", "string", "blank"):
            self.place += 1
        self.expect("{")
        self.statements(_Scope({}, {}), 0)
        if self.token.kind != "end":
            raise self.wrong("the end of the text (one graph a file)")
        return self.draft

    def statements(self, scope: _Scope, depth: int) -> dict[str, None]:
        """Read up to the closing brace and return the nodes named on the way."""
        named: dict[str, None] = {}
        while not self.at("}"):
            if self.at(";,"):
                self.place += 1
            else:
                named.update(self.statement(scope, depth))
        self.place += 1
        return named

    def statement(self, scope: _Scope, depth: int) -> dict[str, None]:
        word = self.token.keyword()
        after = self.tokens[min(self.place + 1, len(self.tokens) - 1)]
        if word in ("graph", "node", "edge") and after.kind == "mark" and after.text == "[":
            self.place += 1
            attributes = self.attributes()
            if word == "graph":
                self.graph_attributes(attributes)
            else:
                (scope.node if word == "node" else scope.edge).update(attributes)
            return {}
        if self.token.kind in ("word", "string", "blank") and after.kind == "mark" and after.text == "=":
            key, at = self.take().text, self.token.at
            self.place += 1
            self.graph_attributes({key: self.identifier("a value")}, at)
            return {}
        return self.edges_or_node(scope, depth)

    def edges_or_node(self, scope: _Scope, depth: int) -> dict[str, None]:
        start = self.token
        ends = [self.operand(scope, depth)]
        arrows: list[Token] = []
        while self.token.kind == "arrow":
            arrows.append(self.take())
            if self.token.kind == "blank":
                raise self.source.error("a node's name is empty", self.token.at)
            ends.append(self.operand(scope, depth))
        attributes = self.attributes() if self.at("[") else {}
        named = {name: None for end in ends for name in end}
        if not arrows:
            for name in named:
                self.draft.add_node(name, attributes, start.at)
        elif start.kind == "blank":
            raise self.source.error("a node's name is empty", start.at)
        for arrow, tails, heads in zip(arrows, ends, ends[1:], strict=False):
            marks = self.marks(arrow, {**scope.edge, **attributes})
            for tail in tails:
                for head in heads:
                    self.add_edge(tail, head, marks, arrow.at)
        return named

    def add_edge(self, tail: str, head: str, marks: tuple[str, str], at: int) -> None:
        if self.ancestral:
            self.draft.add_marked(tail, head, marks, at)
        else:
            self.draft.add_edge(tail, head, (marks[0] == "arrow", marks[1] == "arrow"), at)

    def operand(self, scope: _Scope, depth: int) -> dict[str, None]:
        """Read a node or a subgraph and return the names it stands for."""
        if self.token.keyword() == "subgraph":
            self.place += 1
            if self.token.kind in ("word", "string", "blank"):
                self.place += 1
            if not self.at("{"):
                raise self.wrong("'{'")
        if self.at("{"):
            if depth >= _MAX_DEPTH:
                raise self.source.error(f"subgraphs are nested more than {_MAX_DEPTH} deep", self.token.at)
            self.place += 1
            return self.statements(scope.inner(), depth + 1)
        token = self.token
        name = self.identifier("a node's name")
        while self.at(":"):  # a port, which says where on the drawn node the edge ends
            self.place += 1
            self.identifier("a port")
        if token.kind == "blank" and name == token.text:
            # pydot writes a lone "\n" as a node of its own; it names nothing.
            return {}
        if name not in self.draft.nodes:
            self.draft.add_node(name, scope.node, token.at)
        return {name: None}

    def identifier(self, wanted: str) -> str:
        if self.token.kind not in ("word", "string", "blank"):
            raise self.wrong(wanted)
        token = self.take()
        parts = [token.text]
        while token.kind != "word" and self.at("+"):
            self.place += 1
            if self.token.kind not in ("string", "blank"):
                raise self.wrong("a quoted text")
            parts.append(self.take().text)
        return "".join(parts)

    def attributes(self) -> dict[str, str]:
        """Read ``[key=value, flag]`` lists; a flag without a value means yes."""
        found: dict[str, str] = {}
        while self.at("["):
            self.place += 1
            while not self.at("]"):
                key = self.identifier("an attribute or ']'")
                found[key] = ""
                if self.at("="):
                    self.place += 1
                    found[key] = self.identifier("a value")
                if self.at(";,"):
                    self.place += 1
            self.place += 1
        return found

    def graph_attributes(self, attributes: dict[str, str], at: int | None = None) -> None:
        place = self.token.at if at is None else at
        if "escudo" in attributes:
            self.draft.read_extras(attributes["escudo"], place)
        if attributes.get("pag", "").lower() == "true" and not self.ancestral:
            raise self.source.error(
                f"this is a partial ancestral graph, which has no single causal reading. {_INSTEAD}", place
            )

    def marks(self, arrow: Token, attributes: dict[str, str]) -> tuple[str, str]:
        """Return the marks at the edge's first and second end: arrow, tail or (of an ancestral graph) circle."""
        tail, head = _MARKS[arrow.text[0]], _MARKS[arrow.text[-1]]
        direction = attributes.get("dir", "").lower()
        if direction in ("none", "forward", "back", "both"):
            tail = "arrow" if direction in ("back", "both") else "tail"
            head = "arrow" if direction in ("forward", "both") else "tail"
        first = self.shape(tail, attributes.get("arrowtail", "normal").lower())
        found = first, self.shape(head, attributes.get("arrowhead", "normal").lower())
        if "circle" in found and not self.ancestral:
            raise self.source.error(_CIRCLES.format("@" if "@" in arrow.text else "odot", _INSTEAD), arrow.at)
        return found

    def shape(self, mark: str, drawn: str) -> str:
        """Return what an end that has an arrow says, by the shape in which it is drawn."""
        return mark if mark != "arrow" else "circle" if "odot" in drawn else "tail" if drawn == "none" else mark


# ---- writing


def write_dot(graph: CausalGraph) -> str:
    """Return the graph in DOT; every flag also shows in a drawing by Graphviz."""
    lines = ["digraph {"]
    if extras := extras_of(graph):
        lines.append(f"  escudo={_quoted(extras, always=True)};")
    for node in graph.nodes:
        shown_as = [f"{flag}=true" + ", style=dashed" * (flag == "latent") for flag in flags(graph, node)]
        lines.append(f"  {_quoted(node)}" + (f" [{', '.join(shown_as)}];" if shown_as else ";"))
    lines += [f"  {_quoted(a)} -> {_quoted(b)};" for a, b in graph.edges]
    lines += [f"  {_quoted(a)} -> {_quoted(b)} [dir=none];" for a, b in graph.undirected_edges]
    return "\n".join([*lines, "}"]) + "\n"


def write_dagitty(graph: CausalGraph) -> str:
    """Return the graph as dagitty text; groups and knowledge have no place in it."""
    lines = ["dag {" if graph.is_dag else "pdag {"]
    for node in graph.nodes:
        marked = flags(graph, node)
        lines.append(_quoted(node) + (f" [{','.join(marked)}]" if marked else ""))
    lines += [f"{_quoted(a)} -> {_quoted(b)}" for a, b in graph.edges]
    lines += [f"{_quoted(a)} -- {_quoted(b)}" for a, b in graph.undirected_edges]
    return "\n".join([*lines, "}"]) + "\n"


def write_ancestral_dot(graph: AncestralGraph) -> str:
    """Return a partial ancestral graph in DOT; Graphviz draws its circles."""
    drawn = {
        "->": "",
        "<->": " [dir=both]",
        "o->": " [dir=both, arrowtail=odot]",
        "o-o": " [dir=both, arrowtail=odot, arrowhead=odot]",
    }
    lines = ["digraph {", "  pag=true;", *(f"  {_quoted(node)};" for node in graph.nodes)]
    lines += [f"  {_quoted(a)} -> {_quoted(b)}{drawn[kind]};" for a, kind, b in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def write_ancestral_dagitty(graph: AncestralGraph) -> str:
    """Return a partial ancestral graph as dagitty text."""
    lines = ["pag {", *map(_quoted, graph.nodes)]
    lines += [f"{_quoted(a)} {kind.replace('o', '@')} {_quoted(b)}" for a, kind, b in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(name: str, *, always: bool = False) -> str:
    """Return a name as it stands in DOT: bare if it is a plain word, else in quotes."""
    if not always and _PLAIN.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
