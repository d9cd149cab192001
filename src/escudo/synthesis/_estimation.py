r"""From noisy tables to one law per column: first tables that agree, then their conditionals.

**Agreement.** Noisy tables contradict each other where they share columns, and hold negative counts. They are replaced
by the nearest tables, in units of their noise, that could come from one set of rows: not negative, of one total, and
with equal sums over what they share,

.. math:: \min_z \sum_t \frac{\|z_t - y_t\|^2}{σ_t^2} \quad \text{subject to} \quad z_t \ge 0, \;
          \text{sums over } C_s \cap C_t \text{ equal}.

What one table says of a column so corrects the others. Dykstra's algorithm finds the minimum: project onto one shared
set of columns after the other (the mean of the tables' sums, weighted by their precision, is spread evenly over the
cells that add up to it), cut off what is negative, and give back next time what was cut. Where the tables form a tree
this is the objective of Private-PGM, and so its answer, without a junction tree to hold in memory; where they form
loops it asks for agreement of tables in pairs only, which hardly changes the laws (``benchmarks/estimation.py``).

**Total.** It is fixed beforehand, at what is public or at the tables' precision-weighted mean: cutting off negative
counts would otherwise raise it, and everything rare with it.

**Conditionals.** A configuration of the parents that few people share is drawn towards the law with one parent less,
down to the column's own: :math:`p(x \mid pa) = (z(pa, x) + k\,p(x \mid pa')) / (z(pa) + k)`, with k a tenth of the
noise in a row of the table. A family that no table holds as a whole has the most even table that agrees with them.

**Reference.** R. McKenna, D. Sheldon, G. Miklau (2019), "Graphical-model based estimation and inference for
differential privacy", ICML; W. Qardaji, W. Yang, N. Li (2014), "PriView: practical differentially private release of
marginal contingency tables", SIGMOD, for agreement by averages; J. Boyle, R. Dykstra (1986), "A method for finding
projections onto the intersection of convex sets in Hilbert spaces".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from escudo.synthesis._conditionals import TableConditional

__all__ = ["NoisyTable", "agreeing", "estimate", "laws_of", "sums_over", "total_of"]

Floats = NDArray[np.float64]

_SWEEPS = 500
_STOP = 1e-3  # a part of the noise: no cell moves further in the last sweep
_FITS, _MISSED = 50, 1e-4  # sweeps, and what part of the rows no table is missed by in the last one
_PULL = 0.1  # a part of the noise in a row of a table


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTable:
    """A released contingency table: its columns, the noisy counts, and the standard deviation of the noise."""

    columns: tuple[str, ...]
    counts: Floats
    scale: float


def estimate(
    sizes: Mapping[str, int],
    parents: Mapping[str, tuple[str, ...]],
    tables: Sequence[NoisyTable],
    *,
    total: float | None,
) -> dict[str, TableConditional]:
    """Return each column's law given its parents.

    Args:
        sizes: Cells of each column.
        parents: Each column's parents, each of which some table holds together with it.
        tables: What was released.
        total: The number of rows where it is public; estimated from the tables otherwise.
    """
    return laws_of(sizes, parents, agreeing(tables, total=max(total_of(tables) if total is None else total, 1.0)))


def laws_of(
    sizes: Mapping[str, int], parents: Mapping[str, tuple[str, ...]], agreed: Sequence[NoisyTable]
) -> dict[str, TableConditional]:
    """Return each column's law given its parents, from tables that agree."""
    laws = {}
    for name, several in parents.items():
        shape = [sizes[column] for column in (*several, name)]
        if sizes[name] == 1:
            laws[name] = TableConditional(several, np.ones(shape))
            continue
        family = tuple(column for column in (*several, name) if sizes[column] > 1)
        holders = [table for table in agreed if set(family) <= set(table.columns)]
        if holders:
            table = min(holders, key=lambda table: table.counts.size)
            counts = sums_over(table.columns, table.counts, family)
            scale = table.scale * math.sqrt(table.counts.size / counts.size)  # cells are added up in each cell
        else:
            counts, scale = _most_even(family, [sizes[column] for column in family], agreed)
        laws[name] = TableConditional(several, _law(counts.reshape(shape), scale))
    return laws


def _most_even(columns: tuple[str, ...], shape: Sequence[int], agreed: Sequence[NoisyTable]) -> tuple[Floats, float]:
    """Return the most even table that has the sums of all others over what they share with it, and its noise.

    By iterative proportional fitting. The law in it has no more interactions between causes than tables hold.
    """
    parts: dict[tuple[str, ...], NoisyTable] = {}
    for table in agreed:
        part = tuple(column for column in columns if column in table.columns)
        if part and (part not in parts or table.counts.size < parts[part].counts.size):
            parts[part] = table
    parts = {part: table for part, table in parts.items() if not any(set(part) < set(other) for other in parts)}
    wanted = {part: sums_over(table.columns, table.counts, part) for part, table in parts.items()}
    total = float(agreed[0].counts.sum())
    counts = np.full(shape, total / math.prod(shape))
    for _ in range(_FITS):
        missed = 0.0
        for part, sums in wanted.items():
            now = sums_over(columns, counts, part)
            missed = max(missed, float(np.abs(now - sums).sum()))
            factor = np.divide(sums, now, out=np.zeros_like(now), where=now > 0)
            kept = [size if column in part else 1 for column, size in zip(columns, shape, strict=True)]
            counts = counts * factor.reshape(kept)
        if missed <= _MISSED * total:
            break
    return counts, max(table.scale for table in parts.values())


def total_of(tables: Sequence[NoisyTable]) -> float:
    """Return the number of rows that all tables together speak for: the mean of their sums, weighted by precision."""
    weights = np.array([1 / (table.counts.size * table.scale**2) for table in tables])
    sums = np.array([table.counts.sum() for table in tables])
    return float(weights @ sums / weights.sum())


def agreeing(tables: Sequence[NoisyTable], *, total: float) -> list[NoisyTable]:
    """Return the nearest tables that agree on what they share, hold nothing negative, and add up to ``total``.

    >>> one = NoisyTable(("a",), np.array([7.0, 3.0]), 1.0)
    >>> two = NoisyTable(("b", "a"), np.array([[6.0, -1.0], [3.0, 4.0]]), 1.0)
    >>> [table.counts.round(2).tolist() for table in agreeing([one, two], total=10.0)]
    [[7.0, 3.0], [[5.0, 0.0], [2.0, 3.0]]]
    """
    found = [table.counts for table in tables]
    cut = [np.zeros_like(counts) for counts in found]
    shared = _shared([table.columns for table in tables])
    for _ in range(_SWEEPS):
        before = found
        found = list(found)
        for columns, holders in shared:
            _bring_together(found, tables, columns, holders, total)
        for place, counts in enumerate(found):
            lifted = counts + cut[place]
            found[place] = np.maximum(lifted, 0.0)
            cut[place] = lifted - found[place]
        moved = zip(found, before, tables, strict=True)
        if all(np.abs(now - then).max() < _STOP * table.scale for now, then, table in moved):
            break
    return [NoisyTable(table.columns, counts, table.scale) for table, counts in zip(tables, found, strict=True)]


def _shared(scopes: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Return the sets of columns that tables share, small ones first, each with the tables that hold it."""
    sets = {frozenset[str]()} | {frozenset(a) & frozenset(b) for place, a in enumerate(scopes) for b in scopes[:place]}
    listed = sorted((tuple(sorted(columns)) for columns in sets), key=lambda columns: (len(columns), columns))
    return [
        (columns, [place for place, scope in enumerate(scopes) if set(columns) <= set(scope)]) for columns in listed
    ]


def _bring_together(
    found: list[Floats], tables: Sequence[NoisyTable], columns: tuple[str, ...], holders: Sequence[int], total: float
) -> None:
    """Project onto the tables whose sums over ``columns`` are equal; over no columns at all, are ``total``."""
    sums = [sums_over(tables[place].columns, found[place], columns) for place in holders]
    merged = [found[place].size / part.size for place, part in zip(holders, sums, strict=True)]
    if columns:
        weights = [1 / (tables[place].scale ** 2 * cells) for place, cells in zip(holders, merged, strict=True)]
        common = sum(w * part for w, part in zip(weights, sums, strict=True)) / sum(weights)
    else:
        common = np.array(total)
    for place, part, cells in zip(holders, sums, merged, strict=True):
        scope = tables[place].columns
        change = np.transpose((common - part) / cells, [columns.index(name) for name in scope if name in columns])
        shape = [size if name in columns else 1 for name, size in zip(scope, found[place].shape, strict=True)]
        found[place] = found[place] + change.reshape(shape)


def sums_over(scope: tuple[str, ...], counts: Floats, columns: tuple[str, ...]) -> Floats:
    """Return a table summed over all but ``columns``, with axes in their order."""
    left = [name for name in scope if name in columns]
    axes = tuple(axis for axis, name in enumerate(scope) if name not in columns)
    return np.transpose(counts.sum(axis=axes), [left.index(name) for name in columns])


def _law(counts: Floats, scale: float) -> Floats:
    """Return p(x | parents) from a table [parents..., x] without negative counts, backing off one parent at a time."""
    size = counts.shape[-1]
    if counts.ndim == 1:
        total = counts.sum()
        return counts / total if total > 0 else np.full(size, 1.0 / size)
    # Leave out the first parent: its axis is summed, and with it the noise of its levels.
    backoff = _law(counts.sum(axis=0), scale * math.sqrt(counts.shape[0]))[None, ...]
    pull = _PULL * scale * math.sqrt(size)
    law: Floats = (counts + pull * backoff) / (counts.sum(axis=-1, keepdims=True) + pull)
    return law
