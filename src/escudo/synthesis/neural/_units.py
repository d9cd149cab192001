"""From schema and graph to the columns and units of a network; only public things are read.

* A graph over columns: every column is a unit, and its parents are those the graph states.
* A condensed graph: the columns of a node are one unit, and its parents all columns of the node's parents.
* Open pairs, which the graph says nothing about: with a latent they are left to it. Without one they are joined, in the
  order of ``_structure``: their directions are that order's, and so is the meaning of ``do`` along them.
"""

from __future__ import annotations

from escudo.causal import CausalGraph
from escudo.synthesis._structure import structure_of
from escudo.synthesis.neural._columns import Columns, ColumnSpec
from escudo.synthesis.neural._network import Unit
from escudo.table import Categorical, Schema

__all__ = ["columns_of", "units_of"]

_FEW = 3  # cells: with so few, polynomials are no simpler than levels


def columns_of(schema: Schema) -> Columns:
    """Return what a network needs to know of a schema's columns."""
    specs = []
    for name in schema.names:
        column = schema[name]
        cells = column.size - (column.missing_code is not None)
        ordered = column.ordered if isinstance(column, Categorical) else True
        places = tuple(2 * cell / (cells - 1) - 1 for cell in range(cells)) if ordered and cells > _FEW else ()
        specs.append(ColumnSpec(column.size, places))
    return Columns(tuple(specs))


def units_of(schema: Schema, graph: CausalGraph | None, *, latent: bool) -> tuple[tuple[Unit, ...], CausalGraph]:
    """Return the units of a network, and the graph over columns that they follow.

    Args:
        schema: The columns.
        graph: What is known of their causes; None for nothing.
        latent: Whether a latent is there to carry what the graph leaves open.
    """
    structure = structure_of(schema, graph)
    place = {name: number for number, name in enumerate(schema.names)}
    if latent and graph is not None and graph.groups:
        named = _condensed(graph if graph.is_dag else graph.extension())
    else:
        followed = structure.parents if latent else structure.with_tree(structure.open_arrows)
        named = [((name,), parents) for name, parents in followed.items()]
    listed = {name for names, _ in named for name in names}
    named += [((name,), ()) for name in schema.names if name not in listed]
    units = tuple(
        Unit(tuple(place[name] for name in names), tuple(sorted(place[name] for name in parents)))
        for names, parents in named
    )
    parents = {name: several for names, several in named for name in names}
    return units, structure.fitted_graph({name: parents[name] for name in schema.names})


def _condensed(graph: CausalGraph) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    def members(node: str) -> tuple[str, ...]:
        return () if node in graph.latents else tuple(graph.groups.get(node, (node,)))

    return [
        (members(node), tuple(name for parent in graph.parents(node) for name in members(parent)))
        for node in graph.topological_order()
        if node not in graph.latents
    ]
