"""GML, the nested key-value text that networkx, igraph, Gephi and DoWhy exchange.

Read by hand rather than by networkx; ``docs/decisions/gml.md`` says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.entities import name2codepoint
from typing import TYPE_CHECKING, NoReturn

from escudo._validate import did_you_mean
from escudo.causal.formats._source import Draft, NamedText, extras_of, flags, shown

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

# A key may follow a number without a space, as in DoWhy's "directed 1node[".
_TOKEN = re.compile(
    r"""
      (?P<skip>[\s\ufeff]+|\#[^\r\n]*)
    | (?P<value>"[^"]*"|[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]INF|NAN)
    | (?P<key>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark>[\[\]])
    """,
    re.X,
)
_ENTITY = re.compile(r"&(?:#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z]{2,8}));")
_TO_ESCAPE = re.compile(r"[^ !#-%'-~]")


@dataclass(slots=True)
class _Record:
    """One ``key [ ... ]`` list: its scalar values by lower-case key, and where each stands."""

    key: str
    at: int
    values: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)


def read_gml(source: NamedText) -> Draft:
    """Read one ``graph [ ]``; nodes are named by their label, or by their id where they have none."""
    graph, nodes, edges = _records(source)
    draft = Draft(source)
    names: dict[str, str] = {}
    for node in nodes:
        if "id" not in node.values:
            raise source.error("this node has no id", node.at)
        ident = node.values["id"]
        if ident in names:
            raise source.error(f"the node id {shown(ident)} is used twice", node.places["id"])
        name = node.values.get("label", ident)
        if name in draft.nodes:
            raise source.error(f"two nodes are labelled {shown(name)}", node.places.get("label", node.at))
        draft.add_node(name, {key: text for key, text in node.values.items() if key != "id"}, node.at)
        names[ident] = name
    directed = _flag(graph, "directed", default=False)
    for edge in edges:
        ends = []
        for key in ("source", "target"):
            if key not in edge.values:
                raise source.error(f"this edge has no {key}", edge.at)
            ident = edge.values[key]
            if ident not in names:
                hint = did_you_mean(ident, names)
                raise source.error(f"this edge names node id {shown(ident)}, which does not exist.{hint}", edge.at)
            ends.append(names[ident])
        head = _flag(edge, "directed", default=directed)
        draft.add_edge(ends[0], ends[1], (False, head), edge.at)
    if "escudo" in graph.values:
        draft.read_extras(graph.values["escudo"], graph.places["escudo"])
    return draft


def write_gml(graph: CausalGraph) -> str:
    """Return the graph in GML, in plain ASCII as the format asks."""
    lines = ["graph [", "  directed 1"]
    if extras := extras_of(graph):
        lines.append(f'  escudo "{_escape(extras)}"')
    place = {node: number for number, node in enumerate(graph.nodes)}
    for node, number in place.items():
        marked = "".join(f" {flag} 1" for flag in flags(graph, node))
        lines.append(f'  node [ id {number} label "{_escape(node)}"{marked} ]')
    lines += [f"  edge [ source {place[a]} target {place[b]} ]" for a, b in graph.edges]
    lines += [f"  edge [ source {place[a]} target {place[b]} directed 0 ]" for a, b in graph.undirected_edges]
    return "\n".join([*lines, "]"]) + "\n"


def _records(source: NamedText) -> tuple[_Record, list[_Record], list[_Record]]:
    """Return the graph's own values, its nodes and its edges; lists nested elsewhere are read past."""

    def odd(at: int) -> NoReturn:
        char = source.text[at]
        raise source.error("this quote is never closed" if char == '"' else f"unexpected {shown(char)}", at)

    stack = [_Record("", 0)]
    key: tuple[str, int] | None = None
    graph: _Record | None = None
    nodes: list[_Record] = []
    edges: list[_Record] = []
    for kind, token, at in source.tokens(_TOKEN, odd):
        if kind == "key" or kind == "value":
            if (key is None) != (kind == "key"):
                wanted = "a value" if key else "a key"
                raise source.error(f"expected {wanted}, found {shown(token)}", at)
            if key is None:
                key = (token.lower(), at)
            else:
                stack[-1].values[key[0]] = _unescape(token[1:-1]) if token.startswith('"') else token
                stack[-1].places[key[0]] = at
                key = None
        elif token == "[":
            if key is None:
                raise source.error("expected a key before '['", at)
            record, key = _Record(*key), None
            if len(stack) == 1 and record.key == "graph":
                if graph is not None:
                    raise source.error("a second graph starts here; one graph a file", record.at)
                graph = record
            elif len(stack) == 2 and stack[-1] is graph and record.key in ("node", "edge"):
                (nodes if record.key == "node" else edges).append(record)
            stack.append(record)
        elif token == "]":
            if key is not None:
                raise source.error(f"{shown(key[0])} has no value", key[1])
            if len(stack) == 1:
                raise source.error("this ']' closes nothing", at)
            stack.pop()
    if len(stack) > 1:
        raise source.error(f"this {shown(stack[-1].key)} list is never closed", stack[-1].at)
    if graph is None or key is not None:
        raise source.error("expected 'graph [ ... ]'", len(source.text))
    return graph, nodes, edges


def _flag(record: _Record, key: str, *, default: bool) -> bool:
    return record.values[key].strip().lower() not in ("0", "0.0", "false", "no") if key in record.values else default


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: f"&#{ord(match[0])};", text)


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        decimal, hexadecimal, name = match.groups()
        code = name2codepoint.get(name) if name else int(decimal) if decimal else int(hexadecimal, 16)
        return chr(code) if code is not None and code < 0x110000 else match[0]

    return _ENTITY.sub(character, text)
