"""Which contingency tables ``marginals`` releases, with what share of the budget: public, from schema and graph alone.

Families of the graph that lie in no other family, and a one-way table for each column that only occurs in tables of at
least ``LARGE`` cells. There, adding up a large table's cells is a poor way to count a column; in smaller tables a
one-way table would take more from the others than it gives.

A family that is too large for its table (``_large_families``) is measured in pairs, the child with each parent, and has
the most even law that agrees with these; without how parents act together, but with far less noise. One of more than
``MOST_IN_PAIRS`` cells goes to moments.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.mechanisms import Seed, as_planned
from escudo.privacy import Account, GaussianEvent
from escudo.synthesis._conditionals import MAX_TABLE_CELLS
from escudo.synthesis._estimation import NoisyTable
from escudo.synthesis._large_families import too_large
from escudo.synthesis._structure import Arrow, Structure
from escudo.table import Schema

__all__ = [
    "Columns",
    "cells_of",
    "check_sizes",
    "families_too_large",
    "family_of",
    "in_pairs",
    "measure",
    "table_weights",
    "title_of",
    "typical_weight",
    "weight_of",
]

MOST_IN_PAIRS = 2**16
"""The largest family whose law is spelled out from pairs."""
LARGE = 64
"""From so many cells on a table is a poor way to count one of its columns."""

Columns = tuple[str, ...]


def cells_of(schema: Schema, columns: Sequence[str]) -> int:
    """Return how many cells the table of these columns has."""
    return math.prod(schema.shape(columns))


def weight_of(cells: float) -> float:
    """Return a table's weight in the budget: the cube root of its cells.

    Least for the sum of all cells' errors would be the power 2/3; but what counts in the end are sums over many cells,
    to which small tables speak best. On Adult, NLTCS and Asia 1/3 is as good or better at every ε from 0.1 to 3.
    """
    return float(cells ** (1 / 3))


def family_of(schema: Schema, structure: Structure, arrow: Arrow) -> Columns:
    """Return an arrow's effect, its stated parents and its cause, in schema order; a single level needs no counting."""
    cause, effect = arrow
    wanted = {cause, effect, *structure.parents[effect]}
    return tuple(name for name in schema.names if name in wanted and schema[name].size > 1)


def table_weights(
    schema: Schema, structure: Structure, too_large: Collection[str], paired: Collection[str]
) -> dict[Columns, float]:
    """Return the tables to release with their weights in the budget.

    Args:
        schema: The columns.
        structure: The arrows.
        too_large: The children of families that are too large for a table.
        paired: Those among them that are measured in pairs instead.
    """
    varying = [name for name in schema.names if schema[name].size > 1]
    families = dict.fromkeys(family_of(schema, structure, (name, name)) for name in varying if name not in too_large)
    for child in paired:
        families |= dict.fromkeys(pairs_of(schema, structure, child))
    largest = [family for family in families if not any(set(family) < set(other) for other in families)]
    if structure.open_arrows:
        alone = varying  # what is picked is judged by them
    else:
        around = {name: [cells_of(schema, family) for family in largest if name in family] for name in varying}
        alone = [name for name in varying if min(around[name], default=0) >= LARGE]
    tables = dict.fromkeys([*((name,) for name in alone), *largest])
    return {columns: weight_of(cells_of(schema, columns)) for columns in tables}


def in_pairs(schema: Schema, structure: Structure, too_large: Iterable[str]) -> list[str]:
    """Return the children of families too large for a table that are measured in pairs, and not by moments."""
    open_effects = set(structure.open_effects)
    return [
        child
        for child in too_large
        if child not in open_effects and cells_of(schema, (child, *structure.parents[child])) <= MOST_IN_PAIRS
    ]


def pairs_of(schema: Schema, structure: Structure, child: str) -> list[Columns]:
    """Return the tables of a child with each of its parents, in schema order."""
    return [
        tuple(name for name in schema.names if name in (child, parent))
        for parent in structure.parents[child]
        if schema[parent].size > 1
    ]


def typical_weight(schema: Schema, structure: Structure) -> float:
    """Return the weight of a family of mean size among those that may be picked."""
    families = [family_of(schema, structure, arrow) for arrow in structure.open_arrows]
    return weight_of(float(np.mean([cells_of(schema, family) for family in families])))


def families_too_large(schema: Schema, structure: Structure, level: float, public_rows: int | None) -> dict[str, str]:
    """Return why families are too large for a table, by child; each that goes leaves its budget to the others."""
    cells = {
        child: cells_of(schema, (child, *parents))
        for child, parents in structure.parents.items()
        if schema[child].size > 1 and sum(schema[parent].size > 1 for parent in parents) > 1
    }
    reasons: dict[str, str] = {}
    for child in sorted(cells, key=lambda name: -cells[name]):
        total = sum(table_weights(schema, structure, reasons, in_pairs(schema, structure, reasons)).values())
        reason = too_large(cells[child], level * math.sqrt(total / weight_of(cells[child])), public_rows)
        if not reason:
            break  # smaller families err less in total
        reasons[child] = reason
    return reasons


def check_sizes(schema: Schema, structure: Structure, too_large: Collection[str]) -> None:
    """Refuse what could not be counted, before anything is spent.

    Raises:
        InputError: If no column varies, or a table would be too large; with a way out.
    """
    if cells_of(schema, schema.names) == 1:
        raise InputError("Every column of the schema has a single level, so there is nothing to learn or to release.")
    families = [family_of(schema, structure, (name, name)) for name in schema.names if name not in too_large]
    families += [pair for child in too_large for pair in pairs_of(schema, structure, child)]
    families += [family_of(schema, structure, arrow) for arrow in structure.open_arrows]
    largest = max(families, key=lambda family: cells_of(schema, family))
    if cells_of(schema, largest) > MAX_TABLE_CELLS:
        raise InputError(
            f"The table of {', '.join(largest)} would have {cells_of(schema, largest):,} cells, more than "
            f"{MAX_TABLE_CELLS:,}. Use generator='moments' for columns with many parents, or fewer levels or bins."
        )


def title_of(columns: Columns, parents: Mapping[str, Columns]) -> str:
    """Return ``child | parents`` for the family a table holds, or its columns."""
    for child, several in parents.items():
        if {child, *several} == set(columns) and several:
            return f"{child} | {', '.join(several)}"
    return ", ".join(columns)


def measure(
    columns: Columns, counts: NDArray[np.int64], event: GaussianEvent, *, account: Account, seed: Seed
) -> NoisyTable:
    """Return a table's counts with the noise that was planned for them, which the account is charged for."""
    noisy = as_planned(counts, event, account=account, seed=seed, purpose=f"table of {', '.join(columns)}")
    return NoisyTable(columns, np.asarray(noisy.value, dtype=np.float64), event.scale)
