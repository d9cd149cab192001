"""What an attacker looks at in a synthetic set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from escudo.table import Numeric
from escudo.utility import Rows

__all__ = ["FEATURES", "Attacker", "distances"]

Floats = NDArray[np.float64]

_BINS = 10
_QUERIES = {1: 50, 2: 300, 3: 300}
_NEAREST = 5
_WIDTHS = (0.5, 1.0, 2.0)
_MOST_CORRELATED = 300  # columns; the upper triangle of more would be slow to learn from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Attacker:
    """What the attacker knows before looking; called with a synthetic set, what they see in it.

    Attributes:
        target: The record in question, a single row.
        kinds: Which features are looked at.
        density: The log density of the record in other rows of the population, at three widths.
        least: What is added to densities, so that none is 0.
        queries: Sets of columns on which synthetic rows are compared with the target.
        sorted_bins: Whether histograms lose the identity of their bins, as published.
    """

    target: Rows
    kinds: tuple[str, ...]
    density: tuple[float, ...]
    least: float
    queries: tuple[tuple[int, ...], ...]
    sorted_bins: bool = False

    @classmethod
    def of(
        cls, target: Rows, reference: Rows, *, kinds: Sequence[str], seed: int, sorted_bins: bool = False
    ) -> Attacker:
        """Return an attacker who knows other rows of the population, with a random choice of queries."""
        rng, width = np.random.default_rng(seed), len(target.schema)
        queries: list[tuple[int, ...]] = []
        for size, most in _QUERIES.items():
            if size > width:
                continue
            every = list(combinations(range(width), size)) if width**size <= 50_000 else None
            if every is not None:
                kept = rng.permutation(len(every))[:most]
                queries += [every[place] for place in np.sort(kept)]
            else:
                drawn = {tuple(np.sort(rng.choice(width, size, replace=False)).tolist()) for _ in range(most)}
                queries += sorted(drawn)
        least = 1.0 / (2 * len(reference))
        return cls(
            target=target,
            kinds=tuple(kinds),
            density=_log_density(distances(target, reference), least),
            least=least,
            queries=tuple(queries),
            sorted_bins=sorted_bins,
        )

    def __call__(self, synthetic: Rows, rng: np.random.Generator) -> dict[str, Floats]:
        """Return each kind of features of one synthetic set."""
        return {kind: FEATURES[kind](self, synthetic) for kind in self.kinds}


def _naive(attacker: Attacker, rows: Rows) -> Floats:
    """Mean, median and variance of numbers; commonest and rarest level and how many levels there are, of others."""
    found: list[float] = []
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            values = rows.numbers[:, place]
            known = values[~np.isnan(values)]
            known = known if known.size else np.zeros(1)
            found += [float(known.mean()), float(np.median(known)), float(known.var())]
        else:
            counts = np.bincount(rows.codes[:, place], minlength=column.size)
            seen = np.flatnonzero(counts)
            found += [float(counts.argmax()), float(seen[counts[seen].argmin()]), float(seen.size)]
    return np.array(found)


def _histogram(attacker: Attacker, rows: Rows) -> Floats:
    """The share of rows in each cell: ten bins of numbers, levels of others."""
    found: list[Floats] = []
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            values = rows.numbers[:, place]
            counts = np.histogram(values[~np.isnan(values)], bins=_BINS, range=(-1, 1))[0]
            if attacker.sorted_bins:
                counts = np.sort(counts)[::-1]
        else:
            counts = np.bincount(rows.codes[:, place], minlength=column.size)
        found.append(counts / len(rows))
    return np.concatenate(found)


def _correlation(attacker: Attacker, rows: Rows) -> Floats:
    """The correlations of indicators and numbers."""
    values = rows.inputs()[:, :_MOST_CORRELATED]
    centred = values - values.mean(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0))
    scaled = centred / np.where(lengths > 0, lengths, 1.0)
    matrix: Floats = (scaled.T @ scaled)[np.triu_indices(values.shape[1], 1)]
    return matrix


def _ensemble(attacker: Attacker, rows: Rows) -> Floats:
    """The three above, together."""
    return np.concatenate([_naive(attacker, rows), _histogram(attacker, rows), _correlation(attacker, rows)])


def _queries(attacker: Attacker, rows: Rows) -> Floats:
    """The share of rows that agree with the target on sets of one, two and three columns."""
    # Eight rows to a byte: those that agree on several columns are the "and" of theirs.
    same = np.packbits(rows.codes == attacker.target.codes[0], axis=0).T.copy()
    agree = (np.bitwise_and.reduce(same[list(places)], axis=0) for places in attacker.queries)
    return np.array([int(np.bitwise_count(each).sum(dtype=np.int64)) / len(rows) for each in agree])


def _nearest(attacker: Attacker, rows: Rows) -> Floats:
    """Distances from the target to the nearest synthetic rows, and how many rows are equal to it."""
    apart = np.sort(distances(attacker.target, rows))
    few = apart[:_NEAREST]
    return np.array([few[0], few.mean(), float((apart == 0).mean()), float(apart.mean())])


def _density(attacker: Attacker, rows: Rows) -> Floats:
    """The log density of the target in the synthetic rows over that in the population, at three widths."""
    made = _log_density(distances(attacker.target, rows), attacker.least)
    return np.array([here - there for here, there in zip(made, attacker.density, strict=True)])


def _log_density(apart: Floats, least: float) -> tuple[float, ...]:
    return tuple(float(np.log(np.exp(-apart / width).mean() + least)) for width in _WIDTHS)


def distances(target: Rows, rows: Rows) -> Floats:
    """Return how many columns of each row differ from the target's; numbers count by how far they are apart."""
    apart = (rows.codes != target.codes[0]).astype(np.float64)
    numeric = [place for place, column in enumerate(rows.schema.fields) if isinstance(column, Numeric)]
    if numeric:
        gaps = np.abs(rows.numbers[:, numeric] - target.numbers[0, numeric]) / 2
        both = np.isnan(rows.numbers[:, numeric]) & np.isnan(target.numbers[0, numeric])
        apart[:, numeric] = np.where(np.isnan(gaps), 1.0 - both, gaps)
    total: Floats = apart.sum(axis=1)
    return total


FEATURES: Mapping[str, Callable[[Attacker, Rows], Floats]] = {
    "naive": _naive,
    "histogram": _histogram,
    "correlation": _correlation,
    "ensemble": _ensemble,
    "queries": _queries,
    "nearest": _nearest,
    "density": _density,
}
"""Kinds of features: the first four as published, the others added since."""
