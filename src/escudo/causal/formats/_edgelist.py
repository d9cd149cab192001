"""One edge a line: ``a -> b``, ``a -- b``, ``a,b``, ``a b``; a name alone is a node without an edge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from escudo.causal.formats._draft import Draft
from escudo.causal.formats._source import Source, shown

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["is_header", "read", "write"]

_TOKEN = re.compile(
    r"""
      (?P<end>[\r\n;]+)
    | (?P<tab>[^\S\r\n]*\t[^\S\r\n]*)
    | (?P<space>[^\S\r\n]+)
    | (?P<circle>(?<=[^\S\r\n])(?:o--?>|<--?o|o--?o|o--|--o)(?=\s))
    | (?P<arrow><->|<--?|--?>|---?|[→←↔])
    | (?P<comma>,)
    | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<comment>\#[^\r\n]*)
    | (?P<data>\{[^{}\r\n]*\})
    | (?P<word>(?:(?!<-|->|--|[→←↔])[^\s,;"{}\[\]])+)
    """,
    re.X | re.S,
)
_ESCAPES = {"n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_PLAIN = re.compile(r"[^\W\d][\w.]*")
_WEIGHT = re.compile(r"\{.*\}|[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?|NA|nan", re.S)
_HEADERS = {("source", "target"), ("from", "to"), ("cause", "effect"), ("parent", "child"), ("tail", "head")}

_Token = tuple[str, str, int]


def is_header(cells: list[str]) -> bool:
    """Return whether a row of cells is the header of a list of edges."""
    return len(cells) >= 2 and (cells[0].strip().lower(), cells[1].strip().lower()) in _HEADERS


def read(source: Source) -> Draft:
    """Read the edges; the separator of each line is its arrows, else its commas, else its tabs, else its spaces.

    A first line such as ``source,target`` is a header. A third field, such as a weight, is read past.
    """
    draft = Draft(source)
    line: list[_Token] = []
    first = True
    for token in (*_tokens(source), ("end", "", len(source.text))):
        if token[0] != "end":
            line.append(token)
            continue
        while line and line[-1][0] in ("space", "tab"):
            line.pop()
        while line and line[0][0] in ("space", "tab"):
            line.pop(0)
        if line:
            _read_line(draft, line, first=first)
            first = False
        line = []
    return draft


def write(graph: CausalGraph) -> str:
    """Return every node on a line of its own, then every edge."""
    lines = [_quoted(node) for node in graph.nodes]
    lines += [f"{_quoted(a)} -> {_quoted(b)}" for a, b in graph.edges]
    lines += [f"{_quoted(a)} -- {_quoted(b)}" for a, b in graph.undirected_edges]
    return "".join(f"{line}\n" for line in lines)


def _tokens(source: Source) -> list[_Token]:
    text, at, found = source.text, 0, []
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] == '"':
                raise source.error("this quote is never closed", at)
            raise source.error(f"unexpected {shown(text[at])}. Put names with brackets in double quotes", at)
        kind, token = match.lastgroup or "", match[0]
        if kind == "circle":
            raise source.error(f"circle marks ({token}) have no single causal reading", at)
        if kind == "string":
            token = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), token[1:-1], flags=re.S)
        if kind != "comment":
            found.append((kind, token, at))
        at = match.end()
    return found


def _read_line(draft: Draft, line: list[_Token], *, first: bool) -> None:
    kinds = {kind for kind, _, _ in line}
    separator = next((kind for kind in ("arrow", "comma", "tab", "space") if kind in kinds), "arrow")
    fields: list[list[_Token]] = [[]]
    arrows: list[str] = []
    for token in line:
        if token[0] == separator:
            fields.append([])
            arrows.append(token[1])
        else:
            fields[-1].append(token)
    at = line[0][2]
    names = [_name(draft.source, field, at) for field in fields]
    if separator != "arrow":
        if first and is_header(names):
            return
        if len(names) > 3 or (len(names) == 3 and not _WEIGHT.fullmatch(names[2])):
            raise draft.source.error(
                "an edge is two names, and perhaps a weight. Put names with spaces or commas in double quotes", at
            )
        names, arrows = names[:2], ["->"]
    for field in fields[:2] if separator != "arrow" else fields:
        if field[0][0] == "data":
            raise draft.source.error(f"expected a name, found {shown(field[0][1])}", field[0][2])
    for name, field in zip(names, fields, strict=False):
        draft.add_node(name, {}, field[0][2])
    for arrow, tail, head in zip(arrows, names, names[1:], strict=False):
        draft.add_edge(tail, head, arrow_at_tail=arrow[0] in "<←↔", arrow_at_head=arrow[-1] in ">→↔", at=at)


def _name(source: Source, tokens: list[_Token], at: int) -> str:
    """Return the name a field spells: one quoted text, or words with the spaces between them."""
    while tokens and tokens[0][0] in ("space", "tab"):
        tokens = tokens[1:]
    while tokens and tokens[-1][0] in ("space", "tab"):
        tokens = tokens[:-1]
    if not tokens:
        raise source.error("an edge has an empty end", at)
    if len(tokens) > 1:
        for kind, text, place in tokens:
            if kind not in ("word", "space", "tab"):
                raise source.error(f"unexpected {shown(text)} beside a name. Put the whole name in quotes", place)
    return "".join(text for _, text, _ in tokens)


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
