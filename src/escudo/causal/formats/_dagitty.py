"""dagitty's text: DOT's grammar with graph types of its own, flags without values, and ``<->``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from escudo.causal.formats import _dot
from escudo.causal.formats._draft import Draft
from escudo.causal.formats._source import Source

if TYPE_CHECKING:
    from escudo.causal._graph import CausalGraph

__all__ = ["read", "write"]

_ANCESTRAL = re.compile(r"\s*(mag|pag)\b", re.I)


def read(source: Source) -> Draft:
    """Read ``dag { }`` or ``pdag { }``; ``a <-> b`` stands for a latent common cause of both, as dagitty defines it."""
    if match := _ANCESTRAL.match(source.text):
        raise source.error(
            f"{match[1]!r} graphs describe ancestry, not direct causes. Give a dag or pdag", match.start(1)
        )
    return _dot.parse(source, ("dag", "pdag", "digraph", "graph"))


def write(graph: CausalGraph) -> str:
    """Return the graph as dagitty text; groups and knowledge have no place in it."""
    lines = ["dag {" if graph.is_dag else "pdag {"]
    for node in graph.nodes:
        flags = [
            *(["latent"] if node in graph.latents else []),
            *(["exposure"] if node in graph.exposures else []),
            *(["outcome"] if node in graph.outcomes else []),
        ]
        lines.append(_dot.quoted(node) + (f" [{','.join(flags)}]" if flags else ""))
    lines += [f"{_dot.quoted(a)} -> {_dot.quoted(b)}" for a, b in graph.edges]
    lines += [f"{_dot.quoted(a)} -- {_dot.quoted(b)}" for a, b in graph.undirected_edges]
    return "\n".join([*lines, "}"]) + "\n"
