"""Graph files: what each format carries, and how a text's format is recognised.

| format     | endings          | arrows | undirected | latent, exposure, outcome | groups, knowledge |
|------------|------------------|--------|------------|---------------------------|-------------------|
| `dot`      | .dot .gv         | yes    | yes        | yes                       | yes               |
| `gml`      | .gml             | yes    | yes        | yes                       | yes               |
| `dagitty`  | .dagitty         | yes    | yes        | yes                       | no                |
| `bif`      | .bif .bif.gz     | yes    | no         | no                        | no                |
| `csv`      | .csv .tsv        | yes    | yes        | no                        | no                |
| `edgelist` | .edges .edgelist | yes    | yes        | no                        | no                |

Nodes without an edge and the order of nodes are carried by all. Writing what a format cannot carry is refused unless
``lossy=True``. ``.txt`` and unknown endings are recognised by content. All readers are written by hand (no graphviz,
no pydot), work in one pass, and name the line and column where reading stopped. Groups and knowledge travel in DOT and
GML as one graph attribute named ``escudo``, which other tools pass over. Positions, colours, weights and
dagitty's adjusted and selected flags are read past. Partial ancestral graphs (``AncestralGraph``) are carried by DOT
and dagitty; read as a causal graph they are refused.

* :mod:`._dot`: Graphviz DOT (chains, subgraphs, attributes, defaults, comments, HTML and joined strings), and dagitty's
  ``dag { }`` and ``pdag { }``, which share its grammar.
* :mod:`._gml`: GML as networkx and DoWhy write it.
* :mod:`._bif`: Bayesian networks; the tables are read by ``escudo.causal.Network``.
* :mod:`._plain`: one edge a line, with arrows, commas, tabs or spaces; and a 0/1 table with names, row causes column.
* :mod:`._source`: what all of them share: a text that says where it is wrong, and the draft a reader fills.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from escudo._validate import one_of
from escudo.causal.formats._bif import read_bif, write_bif
from escudo.causal.formats._dot import (
    read_dagitty,
    read_dot,
    write_ancestral_dagitty,
    write_ancestral_dot,
    write_dagitty,
    write_dot,
)
from escudo.causal.formats._gml import read_gml, write_gml
from escudo.causal.formats._plain import looks_like_matrix, read_edges, read_matrix, write_edges, write_matrix
from escudo.causal.formats._source import MAX_BYTES, Draft, NamedText, read_text, write_text
from escudo.errors import GraphError, InputError, ParseError

if TYPE_CHECKING:
    from escudo.causal._ancestral import AncestralGraph
    from escudo.causal._graph import CausalGraph

__all__ = [
    "FORMATS",
    "MAX_BYTES",
    "FormatName",
    "format_of",
    "read_draft",
    "read_text",
    "recognise",
    "states_ancestry",
    "write_ancestral",
    "write_graph",
    "write_text",
]

FormatName = Literal["dot", "gml", "dagitty", "bif", "csv", "edgelist"]
_ALL = ("undirected edges", "latents", "exposures or outcomes", "groups", "knowledge")


@dataclass(frozen=True, slots=True)
class _Format:
    endings: tuple[str, ...]
    carries: tuple[str, ...]
    read: Callable[[NamedText], Draft]
    write: Callable[[CausalGraph], str]


FORMATS: dict[FormatName, _Format] = {
    "dot": _Format((".dot", ".gv"), _ALL, read_dot, write_dot),
    "gml": _Format((".gml",), _ALL, read_gml, write_gml),
    "dagitty": _Format((".dagitty",), _ALL[:3], read_dagitty, write_dagitty),
    "bif": _Format((".bif",), (), read_bif, write_bif),
    "csv": _Format((".csv", ".tsv"), _ALL[:1], read_matrix, write_matrix),
    "edgelist": _Format((".edges", ".edgelist"), _ALL[:1], read_edges, write_edges),
}

# What carries partial ancestral graphs, and by what a text of theirs is known.
_ANCESTRAL: dict[FormatName, tuple[Callable[..., Draft], Callable[[AncestralGraph], str]]] = {
    "dot": (read_dot, write_ancestral_dot),
    "dagitty": (read_dagitty, write_ancestral_dagitty),
}
_PAG = re.compile(r"^\s*(pag|mag)\b|\bpag\s*=\s*\"?true|=\s*\"?odot|@-[@>]|<-@", re.I)

# Tried in turn on the text after leading space and comments.
_OPENINGS: tuple[tuple[FormatName, str], ...] = (
    ("dot", r'(strict\s+)?(di)?graph\s*("[^"]*"|[^\s{\["]+)?\s*\{'),
    ("gml", r'graph\s*\[|((creator|version|comment)\s+("[^"]*"|\S+)\s*)+graph\s*\['),
    ("dagitty", r'(dag|pdag|mag|pag)\s*("[^"]*"|[\w.]+)?\s*\{'),
    ("bif", r"(network\s*(\"[^\"]*\"|\S+)?|variable\s+(\"[^\"]*\"|\S+))\s*\{"),
)
_COMMENTS = re.compile(r"(?:\s+|//[^\r\n]*|/\*.*?\*/|#[^\r\n]*)*", re.S)


def recognise(text: str) -> FormatName:
    """Return the format a text looks like; what opens like none of the others is an edge list or a 0/1 table."""
    start = _COMMENTS.match(text)
    opening = text[start.end() : start.end() + 4096] if start else text[:4096]
    for name, pattern in _OPENINGS:
        if re.match(pattern, opening, re.I):
            return name
    return "csv" if looks_like_matrix(text) else "edgelist"


def format_of(path: Path, text: str | None = None) -> FormatName:
    """Return the format a file's name tells, or else its content; for writing there is only the name."""
    endings = [suffix.lower() for suffix in path.suffixes]
    if endings and endings[-1] == ".gz":
        endings.pop()
    for name, form in FORMATS.items():
        if endings and endings[-1] in form.endings:
            return name
    if text is not None:
        return recognise(text)
    known = " ".join(ending for form in FORMATS.values() for ending in form.endings)
    raise InputError(f"The ending of {path.name!r} names no graph format. Use one of {known}, or pass format=...")


def states_ancestry(text: str) -> bool:
    """Return whether a text looks like a partial ancestral graph rather than a causal graph."""
    return recognise(text) in _ANCESTRAL and _PAG.search(text) is not None


def read_draft(text: str, format: FormatName | None, source: str, *, ancestral: bool = False) -> Draft:
    """Return what a text states, not yet checked as a graph; recursion and time are bounded by its length.

    Args:
        text: The text.
        format: Its format; recognised by default.
        source: What to call it in messages.
        ancestral: Whether it is read as a partial ancestral graph.
    """
    if not isinstance(text, str):
        raise InputError(f"A graph is parsed from text; got {type(text).__name__}.")
    if len(text) > MAX_BYTES:
        raise ParseError(f"this text has more than {MAX_BYTES:,} characters, which no causal graph has.", source=source)
    text = text.removeprefix("\ufeff")
    name = recognise(text) if format is None else one_of("format", format, FORMATS)
    if ancestral:
        draft = _ANCESTRAL[_with_circles(name)][0](NamedText(text, source), ancestral=True)
    else:
        draft = FORMATS[name].read(NamedText(text, source))
    if not draft.nodes:
        raise ParseError("this text names no node; write edges such as 'smoke -> lung'.", source=source)
    return draft


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Say which text it was whose draft is no graph."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"{source}: {error}") from None


def read_file(path: str | Path, format: FormatName | None) -> tuple[str, FormatName, str]:
    """Return the text of a file, its format by the name's ending or else by the content, and what to call it."""
    path = Path(path)
    text = read_text(path)
    return text, format or format_of(path, text), path.name


def write_graph(graph: CausalGraph, format: FormatName, *, lossy: bool) -> str:
    """Return a graph as text, or raise if the format would lose something and ``lossy`` is false."""
    form = FORMATS[one_of("format", format, FORMATS)]
    has = (
        graph.undirected_edges,
        graph.latents,
        graph.exposures or graph.outcomes,
        graph.groups,
        graph.knowledge,
    )
    lost = [what for what, present in zip(_ALL, has, strict=True) if present and what not in form.carries]
    if lost and not lossy:
        raise GraphError(
            f"The format {format!r} cannot carry this graph's {', '.join(lost)}. "
            "Write DOT or GML, which carry everything, or pass lossy=True to leave them out."
        )
    return form.write(graph)


def write_ancestral(graph: AncestralGraph, format: FormatName) -> str:
    """Return a partial ancestral graph as text, or raise if the format has no circles."""
    return _ANCESTRAL[_with_circles(one_of("format", format, FORMATS))][1](graph)


def _with_circles(name: FormatName) -> FormatName:
    if name not in _ANCESTRAL:
        raise GraphError(
            f"The format {name!r} cannot carry the marks of a partial ancestral graph. Use {' or '.join(_ANCESTRAL)}."
        )
    return name
