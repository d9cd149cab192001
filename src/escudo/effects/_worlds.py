"""Which values can variables take together, in all compared worlds at once? The deterministic half of a worst case.

When no population is given, the background takes its worst value. Enumerating it costs the product of all ranges;
but variables that follow from the background without chance only matter through the *tuple of values they take in the
compared worlds*, and few such tuples are possible. A count of 1,000 people, one of whom is changed, takes 1,000 pairs
of values, not 2¹⁰⁰⁰. So possible tuples are carried along, variable by variable, and duplicates are dropped.

Two worlds are enough for any comparison (both settings of the inputs are then chosen); with few settings it is cheaper
to carry all of them side by side, one world per setting.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo.causal import Factor, Lookup
from escudo.effects._question import Question
from escudo.errors import InputError

__all__ = ["MAX_ROWS", "Ints", "Origin", "Relation", "Worlds", "decode", "possible"]

MAX_ROWS = 2**22
_MOST_WORLDS = 64  # above this many joint settings of several inputs, compare two chosen settings instead of all

Ints: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Worlds:
    """The settings of the inputs that are compared.

    Attributes:
        settings: One row per world and one column per input; None where both worlds' settings are chosen.
        count: How many worlds.
    """

    settings: Ints | None
    count: int

    @classmethod
    def of(cls, question: Question) -> Worlds:
        """Return one world per setting of the inputs, or two if there are many settings."""
        sizes = [question.sizes[axis] for axis in question.inputs]
        if len(sizes) > 1 and math.prod(sizes) > _MOST_WORLDS:
            return cls(None, 2)
        grid = np.indices(sizes).reshape(len(sizes), math.prod(sizes)).T
        return cls(np.asarray(grid, dtype=np.intp), len(grid))


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where the rows of a relation come from: an axis, or rows of earlier relations."""

    axis: str | None
    sources: tuple[tuple[Origin, Ints], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Joint possible values: ``values[row, column, world]`` is a position in the range of the column's variable."""

    columns: tuple[str, ...]
    values: Ints
    origin: Origin


def possible(question: Question, worlds: Worlds) -> tuple[list[Relation], list[Factor | Lookup]]:
    """Return the possible values of the variables that follow from inputs and choices, and the parts left to sum.

    Returns:
        Independent relations over those variables that the remaining parts or the outputs read, and those parts.
    """
    axes = [*question.inputs, *question.choices]
    decided = set(axes)
    follow: list[Lookup] = []
    rest: list[Factor | Lookup] = []
    for part in question.parts:
        if isinstance(part, Lookup) and decided.issuperset(part.inputs):
            follow.append(part)
            decided.add(part.output)
        else:
            rest.append(part)
    wanted = ({name for part in rest for name in part.names} | set(question.outputs)) & decided
    state = _Propagation(question, worlds, follow, wanted)
    for part in state.cheapest_first():
        state.add(part)
    found = {id(state.home[name]): state.home[name] for name in sorted(wanted)}
    return list(found.values()), rest


class _Propagation:
    """The relations while variables are added one by one; each variable lives in one of them."""

    def __init__(self, question: Question, worlds: Worlds, follow: list[Lookup], wanted: set[str]) -> None:
        self.worlds = worlds.count
        self.follow = follow
        self.wanted = wanted
        self.sizes = {**question.sizes, **{part.output: part.size for part in follow}}
        self.uses = Counter(name for part in follow for name in part.inputs)
        self.home: dict[str, Relation] = {}
        for column, axis in enumerate(question.inputs):
            if worlds.settings is None:
                self.home[axis] = _two_settings(axis, self.sizes[axis])
            else:
                self.home[axis] = Relation((axis,), worlds.settings[None, None, :, column], Origin(None))
        for axis in question.choices:
            values = np.arange(self.sizes[axis], dtype=np.intp)[:, None, None]
            self.home[axis] = Relation((axis,), np.broadcast_to(values, (len(values), 1, self.worlds)), Origin(axis))

    def cheapest_first(self) -> Iterator[Lookup]:
        """Yield the lookups whose inputs are there, the one that joins the fewest rows first."""
        waiting = {i: len(set(part.inputs) - self.home.keys()) for i, part in enumerate(self.follow)}
        readers: dict[str, list[int]] = {}
        for i, part in enumerate(self.follow):
            for name in part.inputs:
                readers.setdefault(name, []).append(i)
        heap = [(self._cost(self.follow[i]), i) for i, missing in waiting.items() if not missing]
        heapq.heapify(heap)
        while heap:
            cost, i = heapq.heappop(heap)
            if (now := self._cost(self.follow[i])) > cost:
                heapq.heappush(heap, (now, i))
                continue
            yield self.follow[i]
            for reader in readers.get(self.follow[i].output, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(heap, (self._cost(self.follow[reader]), reader))

    def add(self, part: Lookup) -> None:
        """Compute the part's output in every row of the relations it reads, and drop what nobody reads any more."""
        varied = self._varied(part)
        joined = _join(varied, self.worlds)
        where = []
        for name in part.inputs:
            relation = self.home[name]  # one of the joined ones, or a single row that holds in all of them
            source = joined if len(relation.values) > 1 else relation
            where.append(source.values[:, source.columns.index(name), :])
        output = np.broadcast_to(part.index[tuple(where)], (len(joined.values), self.worlds))
        self.uses.subtract(part.inputs)
        columns = (*joined.columns, part.output)
        values = np.concatenate([joined.values, output[:, None, :]], axis=1)
        needed = [i for i, name in enumerate(columns) if self.uses[name] > 0 or name in self.wanted]
        kept = tuple(columns[i] for i in needed)
        relation = _distinct(kept, values[:, needed, :], joined.origin, [self.sizes[name] for name in kept])
        self.home |= dict.fromkeys(columns, relation)

    def _varied(self, part: Lookup) -> list[Relation]:
        relations = {id(self.home[name]): self.home[name] for name in part.inputs}
        return [relation for relation in relations.values() if len(relation.values) > 1]

    def _cost(self, part: Lookup) -> int:
        return math.prod(len(relation.values) for relation in self._varied(part))


def decode(origin: Origin, row: int) -> dict[str, int]:
    """Return, per axis, the position that led to a row (for an input with two chosen settings: both, as one number)."""
    found: dict[str, int] = {}
    stack = [(origin, row)]
    while stack:
        here, at = stack.pop()
        if here.axis is not None:
            found[here.axis] = at
        stack += [(source, int(rows[at])) for source, rows in here.sources]
    return found


def _two_settings(axis: str, size: int) -> Relation:
    pairs = np.indices((size, size)).reshape(2, -1).T
    return Relation((axis,), np.asarray(pairs, dtype=np.intp)[:, None, :], Origin(axis))


def _join(relations: Sequence[Relation], worlds: int) -> Relation:
    """Return every combination of rows; different relations share no choice."""
    if len(relations) == 1:
        return relations[0]
    if not relations:  # nothing varies: one row without columns
        return Relation((), np.zeros((1, 0, worlds), dtype=np.intp), Origin(None))
    lengths = [len(relation.values) for relation in relations]
    if math.prod(lengths) > MAX_ROWS:
        raise InputError(
            f"The worst case over all populations has {math.prod(lengths):.3g} combinations to look at, above the "
            f"limit of {MAX_ROWS:.3g}. Give a population, or ask about an output that reads fewer variables at once."
        )
    rows = [axis.ravel() for axis in np.indices(lengths)]
    values = np.concatenate([r.values[at] for r, at in zip(relations, rows, strict=True)], axis=1)
    origin = Origin(None, tuple((r.origin, at) for r, at in zip(relations, rows, strict=True)))
    return Relation(tuple(name for r in relations for name in r.columns), values, origin)


def _distinct(columns: tuple[str, ...], values: Ints, origin: Origin, sizes: Sequence[int]) -> Relation:
    first = _first_rows(values, sizes)
    if origin.sources and origin.axis is None:  # skip one level, so that long chains stay shallow
        kept = Origin(None, tuple((source, rows[first]) for source, rows in origin.sources))
    else:
        kept = Origin(None, ((origin, first),))
    return Relation(columns, values[first], kept)


def _first_rows(values: Ints, sizes: Sequence[int]) -> Ints:
    """Return the positions of the first of each group of equal rows."""
    rows, _, worlds = values.shape
    if rows == 1:
        return np.zeros(1, dtype=np.intp)
    flat = values.reshape(rows, -1)
    radix = [size for size in sizes for _ in range(worlds)]
    if math.prod(radix) < 2**62:
        keys = np.zeros(rows, dtype=np.int64)
        for column, size in zip(flat.T, radix, strict=True):
            keys = keys * size + column
        return np.asarray(np.unique(keys, return_index=True)[1], dtype=np.intp)
    return np.asarray(np.unique(flat, axis=0, return_index=True)[1], dtype=np.intp)
