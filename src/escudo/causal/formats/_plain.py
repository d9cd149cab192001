"""Plain lists and tables, as people type them or a spreadsheet saves them.

An edge list has one edge a line: ``a -> b``, ``a -- b``, ``a,b``, ``a b``; a name alone is a node without an edge.
A 0/1 table has a header of names: a 1 in row i, column j is an arrow from i to j.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from escudo.causal.formats._source import Draft, NamedText, Token, shown

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph


_TOKEN = re.compile(
    r"""
      (?P<end>[\r\n;]+)
    | (?P<tab>[^\S\r\n]*\t[^\S\r\n]*)
    | (?P<space>[^\S\r\n]+)
    | (?P<circle>(?<=[^\S\r\n])(?:o--?>|<--?o|o--?o|o--|--o)(?=\s))
    | (?P<arrow><->|<--?|--?>|---?|[→←↔])
    | (?P<comma>,)
    | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<skip>\#[^\r\n]*)
    | (?P<data>\{[^{}\r\n]*\})
    | (?P<word>(?:(?!<-|->|--|[→←↔])[^\s,;"{}\[\]])+)
    """,
    re.X | re.S,
)
_ESCAPES = {"n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_PLAIN = re.compile(r"[^\W\d][\w.]*")
_WEIGHT = re.compile(r"\{.*\}|[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?|NA|nan", re.S)
_HEADERS = {("source", "target"), ("from", "to"), ("cause", "effect"), ("parent", "child"), ("tail", "head")}


# ---- one edge a line


def read_edges(source: NamedText) -> Draft:
    """Read the edges; the separator of each line is its arrows, else its commas, else its tabs, else its spaces.

    A first line such as ``source,target`` is a header. A third field, such as a weight, is read past.
    """
    draft = Draft(source)
    line: list[Token] = []
    first = True
    for token in (*_tokens(source), Token("end", "", len(source.text))):
        if token.kind != "end":
            line.append(token)
            continue
        while line and line[-1].kind in ("space", "tab"):
            line.pop()
        while line and line[0].kind in ("space", "tab"):
            line.pop(0)
        if line:
            _read_line(draft, line, first)
            first = False
        line = []
    return draft


def write_edges(graph: CausalGraph) -> str:
    """Return every node on a line of its own, then every edge."""
    lines = [_quoted(node) for node in graph.nodes]
    lines += [f"{_quoted(a)} -> {_quoted(b)}" for a, b in graph.edges]
    lines += [f"{_quoted(a)} -- {_quoted(b)}" for a, b in graph.undirected_edges]
    return "".join(f"{line}\n" for line in lines)


def _tokens(source: NamedText) -> Iterator[Token]:
    """Yield names, separators and line ends; quoted names without their quotes."""

    def odd(at: int) -> NoReturn:
        if source.text[at] == '"':
            raise source.error("this quote is never closed", at)
        raise source.error(f"unexpected {shown(source.text[at])}. Put names with brackets in double quotes", at)

    for kind, text, at in source.tokens(_TOKEN, odd):
        if kind == "circle":
            raise source.error(f"circle marks ({text}) have no single causal reading", at)
        if kind == "string":
            text = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), text[1:-1], flags=re.S)
        yield Token(kind, text, at)


def _read_line(draft: Draft, line: list[Token], first: bool) -> None:
    """Add the nodes and edges of one line."""
    kinds = {kind for kind, _, _ in line}
    separator = next((kind for kind in ("arrow", "comma", "tab", "space") if kind in kinds), "arrow")
    fields: list[list[Token]] = [[]]
    arrows: list[str] = []
    for token in line:
        if token.kind == separator:
            fields.append([])
            arrows.append(token.text)
        else:
            fields[-1].append(token)
    at = line[0].at
    names = [_name(draft.source, field, at) for field in fields]
    if separator != "arrow":
        if first and _is_header(names):
            return
        if len(names) > 3 or (len(names) == 3 and not _WEIGHT.fullmatch(names[2])):
            raise draft.source.error(
                "an edge is two names, and perhaps a weight. Put names with spaces or commas in double quotes", at
            )
        names, arrows = names[:2], ["->"]
    for field in fields[:2] if separator != "arrow" else fields:
        if field[0].kind == "data":
            raise draft.source.error(f"expected a name, found {shown(field[0].text)}", field[0].at)
    for name, field in zip(names, fields, strict=False):
        draft.add_node(name, {}, field[0].at)
    for arrow, tail, head in zip(arrows, names, names[1:], strict=False):
        draft.add_edge(tail, head, (arrow[0] in "<←↔", arrow[-1] in ">→↔"), at)


def _is_header(cells: list[str]) -> bool:
    """Return whether a row of cells is the header of a list of edges."""
    return len(cells) >= 2 and (cells[0].strip().lower(), cells[1].strip().lower()) in _HEADERS


def _name(source: NamedText, tokens: list[Token], at: int) -> str:
    """Return the name a field spells: one quoted text, or words with the spaces between them."""
    while tokens and tokens[0].kind in ("space", "tab"):
        tokens = tokens[1:]
    while tokens and tokens[-1].kind in ("space", "tab"):
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


# ---- a 0/1 table

_ZERO, _ONE = {"0", "0.0", "", "false"}, {"1", "1.0", "true"}
_BITS = _ZERO | _ONE


def looks_like_matrix(text: str) -> bool:
    """Return whether a text without an ending to go by is a 0/1 table rather than an edge list."""
    lines = text.split("\n", 2)
    if len(lines) < 2:
        return False
    cells = [cell.strip().lower() for cell in lines[1].strip().split(_separator(lines[0]))]
    return len(cells) > 1 and all(cell in _BITS for cell in cells[1:])


def read_matrix(source: NamedText) -> Draft:
    """Read the table, with or without names in its first column; 1 both ways is an undirected edge.

    A file with a header such as ``source,target`` is a list of edges and is read as one.
    """
    rows = _rows(source)
    if _is_header([cell for _, cells in rows[:1] for cell in cells]):
        return read_edges(source)
    if not rows:
        raise source.error("this file is empty; a row of names was expected")
    start, header = rows.pop(0)
    named = bool(rows) and all(len(cells) == len(rows) + 1 for _, cells in rows)
    names = header[1:] if named and len(header) == len(rows) + 1 else header
    draft = Draft(source)
    for name in names:
        if name in draft.nodes:
            raise source.error(f"the name {shown(name)} is in the header twice", start)
        draft.add_node(name, {}, start)
    if len(rows) != len(names):
        raise source.error(f"{len(names)} names need {len(names)} rows; found {len(rows)}", start)
    matrix: dict[str, list[bool]] = {}
    places: dict[str, int] = {}
    for (at, cells), column in zip(rows, names, strict=True):
        name, values = (cells[0], cells[1:]) if named else (column, cells)
        if name not in draft.nodes or name in matrix:
            raise source.error(
                f"the row name {shown(name)} is {'used twice' if name in matrix else 'not in the header'}", at
            )
        if len(values) != len(names):
            raise source.error(f"this row has {len(values)} values for {len(names)} names", at)
        bits = [value.strip().lower() for value in values]
        if not _BITS.issuperset(bits):
            wrong = next(value for value, bit in zip(values, bits, strict=True) if bit not in _BITS)
            raise source.error(f"expected 0 or 1, found {shown(wrong)}", at)
        matrix[name], places[name] = [bit in _ONE for bit in bits], at
    place = {name: number for number, name in enumerate(names)}
    for name, arrows in matrix.items():
        for other in (other for other, arrow in zip(names, arrows, strict=True) if arrow):
            back = matrix[other][place[name]]
            if not back or place[name] <= place[other]:
                draft.add_edge(name, other, (False, not back), places[name])
    return draft


def write_matrix(graph: CausalGraph) -> str:
    """Return the table with names in the first row and column."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["", *graph.nodes])
    for name, row in zip(graph.nodes, graph.adjacency_matrix().tolist(), strict=True):
        writer.writerow([name, *row])
    return out.getvalue()


def _rows(source: NamedText) -> list[tuple[int, list[str]]]:
    """Return the rows that are not empty, each with the offset of its line."""
    text = source.text
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=_separator(text[:65536]), strict=True, skipinitialspace=True)
    rows: list[tuple[int, list[str]]] = []
    at = 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise source.error(f"this row cannot be read ({error})", at) from None
        if cells is None:
            return rows
        if any(cell.strip() for cell in cells):
            rows.append((at, cells))
        at = lines.tell()


def _separator(text: str) -> str:
    """Return the separator used most in the first line, outside quotes."""
    counts = {",": 0, ";": 0, "\t": 0}
    inside = False
    for char in text:
        if char == '"':
            inside = not inside
        elif not inside and char in "\r\n":
            break
        elif not inside and char in counts:
            counts[char] += 1
    return max(counts, key=counts.__getitem__)
