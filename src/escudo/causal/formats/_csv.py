"""A 0/1 table with a header of names: a 1 in row i, column j is an arrow from i to j."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from escudo.causal.formats import _edgelist
from escudo.causal.formats._draft import Draft
from escudo.causal.formats._source import Source, shown

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["looks_like", "read", "write"]

_ZERO, _ONE = {"0", "0.0", "", "false"}, {"1", "1.0", "true"}
_BITS = _ZERO | _ONE


def looks_like(text: str) -> bool:
    """Return whether a text without an ending to go by is a 0/1 table rather than an edge list."""
    lines = text.split("\n", 2)
    if len(lines) < 2:
        return False
    cells = [cell.strip().lower() for cell in lines[1].strip().split(_separator(lines[0]))]
    return len(cells) > 1 and all(cell in _BITS for cell in cells[1:])


def read(source: Source) -> Draft:
    """Read the table, with or without names in its first column; 1 both ways is an undirected edge.

    A file with a header such as ``source,target`` is a list of edges and is read as one.
    """
    rows = _rows(source)
    if _edgelist.is_header([cell for _, cells in rows[:1] for cell in cells]):
        return _edgelist.read(source)
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
        for value in values:
            if value.strip().lower() not in _BITS:
                raise source.error(f"expected 0 or 1, found {shown(value)}", at)
        matrix[name], places[name] = [value.strip().lower() in _ONE for value in values], at
    place = {name: number for number, name in enumerate(names)}
    for name, arrows in matrix.items():
        for other, arrow in zip(names, arrows, strict=True):
            back = matrix[other][place[name]]
            if arrow and (not back or place[name] <= place[other]):
                draft.add_edge(name, other, arrow_at_tail=False, arrow_at_head=not back, at=places[name])
    return draft


def write(graph: CausalGraph) -> str:
    """Return the table with names in the first row and column."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["", *graph.nodes])
    for name, row in zip(graph.nodes, graph.adjacency_matrix().tolist(), strict=True):
        writer.writerow([name, *row])
    return out.getvalue()


def _rows(source: Source) -> list[tuple[int, list[str]]]:
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
