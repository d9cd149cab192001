"""What every reader shares: a text that says where it is wrong, bounded reading of files, and the draft it fills.

A :class:`Draft` is what was gathered from a file before it is checked and becomes a graph.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from escudo._files import write_whole
from escudo.errors import InputError, ParseError

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph


_WINDOW = 100  # characters of a line that an error shows
MAX_BYTES = 16 * 2**20
"""The largest graph file read, after unpacking; far above any real graph, and small enough to be safe."""


class Token(NamedTuple):
    """A piece of a text, and where it stands; its kind is the name of the pattern's group that it matched."""

    kind: str
    text: str
    at: int

    def keyword(self) -> str:
        """Return a bare word in lower case, and nothing for anything else."""
        return self.text.lower() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class NamedText:
    """A text with its name, able to say where in it something is wrong."""

    text: str
    name: str = "text"

    def error(self, message: str, at: int | None = None) -> ParseError:
        """Return the error for offset ``at`` of the text, with its line and column counted from 1."""
        message = message if message.endswith((".", "?")) else f"{message}."
        if at is None:
            return ParseError(message, source=self.name)
        before = self.text[:at].replace("\r\n", "\n").replace("\r", "\n")
        line_start = before.rfind("\n") + 1
        return ParseError(message, source=self.name, line=before.count("\n") + 1, column=len(before) - line_start + 1)

    def tokens(self, pattern: re.Pattern[str], odd: Callable[[int], int]) -> Iterator[Token]:
        """Yield the text's tokens in one pass, without those of the group ``skip``.

        Where the pattern does not match, ``odd`` returns the end of a token of the kind ``odd``, or raises.
        """
        at = 0
        while at < len(self.text):
            match = pattern.match(self.text, at)
            kind, end = (match.lastgroup or "", match.end()) if match else ("odd", odd(at))
            if kind != "skip":
                yield Token(kind, self.text[at:end], at)
            at = end

    def mark(self, message: str, at: int) -> ParseError:
        """Return the error for offset ``at`` that shows the line itself and marks the place below it."""
        line = self.text.count("\n", 0, at) + 1
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        shown = self.text[start : len(self.text) if end < 0 else end].replace("\t", " ").rstrip()
        column = at - start
        first = max(0, column - _WINDOW // 2) if len(shown) > _WINDOW else 0
        shown = shown[first : first + _WINDOW]
        excerpt = f"\n    {shown}\n    {' ' * (column - first)}^" if shown else ""
        return ParseError(message + excerpt, source=self.name, line=line, column=column + 1)


class Cursor:
    """A place among tokens, the last of which is of the kind ``end``."""

    def __init__(self, source: NamedText, tokens: list[Token]):
        self.source, self.tokens, self.place = source, [*tokens, Token("end", "", len(source.text))], 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.place]

    def at(self, marks: str) -> bool:
        """Return whether the next token is one of these marks."""
        return self.token.kind == "mark" and self.token.text in marks

    def expect(self, mark: str) -> None:
        """Move past a mark, or raise if it is not there."""
        if not self.at(mark):
            raise self.wrong(repr(mark))
        self.place += 1

    def wrong(self, wanted: str) -> ParseError:
        """Return the error that the next token is not what was wanted."""
        found = "the end of the text" if self.token.kind == "end" else shown(self.token.text)
        return self.source.error(f"expected {wanted}, found {found}", self.token.at)


def shown(text: str, limit: int = 40) -> str:
    """Return ``text`` quoted on one line and cut to ``limit`` characters, for an error message."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def read_text(path: Path, *, what: str = "graph") -> str:
    """Return the text of a UTF-8 file (unpacked if its name ends in ``.gz``), refusing what is too large for one.

    Line ends are kept as they are, because a quoted name may contain them.

    Args:
        path: The file.
        what: What the file should hold, for messages.

    Raises:
        InputError: The file cannot be read, is far too large, or is not gzip although its name says so.
        ParseError: The file is not UTF-8 text.
    """
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; a {what} file was expected.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} is not a complete gzip file. Unpack it yourself, or copy it again.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"{path} cannot be read: {reason}.") from None
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_BYTES // 2**20} MiB, which no causal {what} is. Is it a data file?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParseError(
            "this is not UTF-8 text. Save the file as UTF-8.",
            source=path.name,
            line=content[: error.start].count(b"\n") + 1,
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 (packed if the name ends in ``.gz``), all or nothing.

    The file appears under its name only when it is complete, so a full disk never leaves half a graph.

    Raises:
        InputError: The folder does not exist or cannot be written to.
    """
    content = text.encode("utf-8")
    if path.suffix.lower() == ".gz":
        content = gzip.compress(content, mtime=0)
    try:
        write_whole(path, content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"{path} cannot be written: {reason}.") from None


# ---- what a reader gathers
MAX_EDGES = 1_000_000
"""The most edges one file may state: ``{a b c} -> {d e f}`` multiplies, so a short text can ask for a great many."""

_YES = {"", "1", "true", "yes", "y", "on"}
_NO = {"0", "false", "no", "n", "off"}
_CONFOUNDER_LABEL = "unobserved confounders"  # how DoWhy marks a latent node


@dataclass(slots=True)
class Draft:
    """Nodes, edges and flags in the order met; duplicates and contradictions are left to the graph's own checks."""

    source: NamedText
    nodes: dict[str, None] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    undirected: dict[tuple[str, str], None] = field(default_factory=dict)
    bidirected: dict[tuple[str, str], None] = field(default_factory=dict)
    marked: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    latents: set[str] = field(default_factory=set)
    exposures: set[str] = field(default_factory=set)
    outcomes: set[str] = field(default_factory=set)
    extras: dict[str, Any] = field(default_factory=dict)
    stated: int = 0

    def add_node(self, name: str, attributes: Mapping[str, str], at: int) -> None:
        """Add a node, reading its latent, exposure and outcome flags from its attributes."""
        if not name.strip():
            raise self.source.error("a node's name is empty", at)
        self.nodes.setdefault(name)
        for flag in flags_of(attributes):
            {"latent": self.latents, "exposure": self.exposures, "outcome": self.outcomes}[flag].add(name)

    def add_edge(self, tail: str, head: str, arrows: tuple[bool, bool], at: int) -> None:
        """Add an edge by whether its two ends are arrowheads: one is a cause, none undirected, two a latent cause."""
        at_tail, at_head = arrows
        if tail == head:
            raise self.source.error(f"an edge from {shown(tail)} to itself; nothing causes itself", at)
        if at_tail and not at_head:
            tail, head = head, tail
        kind = self.edges if at_tail != at_head else self.bidirected if at_tail else self.undirected
        kind.setdefault((tail, head))
        self.count(at)

    def add_marked(self, first: str, second: str, marks: tuple[str, str], at: int) -> None:
        """Add an edge of a partial ancestral graph, by the marks at its two ends."""
        if first == second:
            raise self.source.error(f"an edge from {shown(first)} to itself; nothing causes itself", at)
        if (first, second) in self.marked or (second, first) in self.marked:
            raise self.source.error(f"a second edge between {shown(first)} and {shown(second)}", at)
        self.marked[first, second] = marks
        self.count(at)

    def count(self, at: int) -> None:
        """Count one more edge that the file states."""
        self.stated += 1
        if self.stated > MAX_EDGES:
            raise self.source.error(f"this file states more than {MAX_EDGES:,} edges", at)

    def read_extras(self, text: str, at: int) -> None:
        """Read groups and knowledge from the JSON text that :func:`extras_of` writes."""
        try:
            extras = json.loads(text)
            if not isinstance(extras, dict):
                raise ValueError
            self.extras = {
                "groups": {str(name): tuple(map(_name, columns)) for name, columns in extras.get("groups", {}).items()},
                "required": [_pair(pair) for pair in extras.get("required", [])],
                "forbidden": [_pair(pair) for pair in extras.get("forbidden", [])],
                "tiers": [tuple(map(_name, tier)) for tier in extras.get("tiers", [])],
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self.source.error(
                "the 'escudo' attribute must be JSON with groups, required, forbidden and tiers, as escudo writes it",
                at,
            ) from None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``CausalGraph.from_edges``; each ``a <-> b`` has become a latent cause of both."""
        nodes, edges, latents = dict(self.nodes), dict(self.edges), set(self.latents)
        for a, b in self.bidirected:
            if (b, a) in self.bidirected and (b, a) < (a, b):
                continue
            name, number = f"U_{a}_{b}", 1
            while name in nodes:
                number += 1
                name = f"U_{a}_{b}_{number}"
            nodes[name] = None
            latents.add(name)
            edges[name, a] = edges[name, b] = None
        return {
            "edges": list(edges),
            "nodes": list(nodes),
            "undirected": list(self.undirected),
            "latents": latents,
            "exposures": self.exposures,
            "outcomes": self.outcomes,
            **self.extras,
        }


# ---- flags, groups and knowledge as attributes
def flags_of(attributes: Mapping[str, object]) -> Iterator[str]:
    """Yield ``latent``, ``exposure`` or ``outcome`` for each attribute that says so, in any tool's way of saying it."""
    for name, raw in attributes.items():
        key, value = name.lower(), str(raw).strip().lower()
        if (
            (key in ("latent", "unobserved", "hidden") and value in _YES)
            or (key == "observed" and value in _NO)
            or (key == "label" and value == _CONFOUNDER_LABEL)
        ):
            yield "latent"
        elif key in ("exposure", "outcome") and value in _YES:
            yield key


def flags(graph: CausalGraph, node: str) -> list[str]:
    """Return which of ``latent``, ``exposure`` and ``outcome`` a node is."""
    marked = (("latent", graph.latents), ("exposure", graph.exposures), ("outcome", graph.outcomes))
    return [flag for flag, names in marked if node in names]


def extras_of(graph: CausalGraph) -> str | None:
    """Return the graph's groups and knowledge as JSON for one attribute, or None where it has neither."""
    extras: dict[str, object] = {
        "groups": {name: list(columns) for name, columns in graph.groups.items()},
        "required": graph.required,
        "forbidden": graph.forbidden,
        "tiers": graph.tiers,
    }
    kept = {key: value for key, value in extras.items() if value}
    return json.dumps(kept, ensure_ascii=False) if kept else None


def _pair(value: Iterable[object]) -> tuple[str, str]:
    tail, head = value
    return _name(tail), _name(head)


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a name must be text")
    return value
