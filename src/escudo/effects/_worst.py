"""The largest log ratio a question allows, over all settings of its inputs and all values of its choices.

Variables that follow without chance are reduced to their possible values first (:mod:`escudo.effects._worlds`). What is
left are sums over chance. Each choice is an axis that is never summed; where two of its values lead to the same table,
one of them is dropped, so that n people who answer with the same noise cost n + 1 alternatives, not 2ⁿ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from escudo.causal import MAX_CELLS, Factor, Lookup, product
from escudo.effects._question import Question
from escudo.effects._ratios import Array, largest_log_ratio
from escudo.effects._worlds import Ints, Origin, Worlds, decode, possible
from escudo.errors import InputError

__all__ = ["Alternatives", "Found", "alternatives", "largest_effect"]

_WORLD = "world"
_AT_ONCE = 2**14  # tables up to this many cells are built without looking for equal alternatives
_SAME = 1e-12  # log probabilities this close come from the same sum in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A largest log ratio and where it is: positions of the outputs, of both input settings, and of the choices."""

    epsilon: float
    outputs: tuple[int, ...]
    first: dict[str, int]
    second: dict[str, int]
    choices: dict[str, int]
    logs: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alternatives:
    """The laws of the outputs, for every alternative and every world: logarithms of shape (alternatives, worlds, y)."""

    logs: Array
    shape: tuple[int, ...]
    worlds: Worlds
    axes: tuple[tuple[Origin, int], ...]

    def positions(self, alternative: int) -> dict[str, int]:
        """Return the positions on the question's axes that lead to an alternative."""
        found: dict[str, int] = {}
        rows = np.unravel_index(alternative, [size for _, size in self.axes]) if self.axes else ()
        for (origin, _), row in zip(self.axes, rows, strict=True):
            found |= decode(origin, int(row))
        return found


def alternatives(question: Question) -> Alternatives:
    """Return the laws of the outputs, leaving out alternatives that equal another."""
    worlds = Worlds.of(question)
    relations, rest = possible(question, worlds)
    origins: dict[str, Origin] = {}
    parts: list[Factor | Lookup] = [Factor((_WORLD,), np.ones(worlds.count)), *question.laws, *rest]
    sizes = {**question.sizes, **{part.output: part.size for part in question.parts if isinstance(part, Lookup)}}
    for number, relation in enumerate(relations):
        axis = f"choice {number}"
        if len(relation.values) > 1:
            origins[axis] = relation.origin
        for column, name in enumerate(relation.columns):
            parts.append(_reading(axis, name, relation.values[:, column, :], sizes[name]))
    table = _Elimination(parts, origins, (_WORLD, *question.outputs)).solve()
    choices = len(table.names) - 1 - len(question.outputs)
    shape = table.array.shape[choices + 1 :]
    return Alternatives(
        logs=table.log.reshape(-1, worlds.count, math.prod(shape)),
        shape=shape,
        worlds=worlds,
        axes=tuple((origins[name], table.array.shape[i]) for i, name in enumerate(table.names[:choices])),
    )


def largest_effect(question: Question) -> Found:
    """Return the largest log ratio of the question, and where it is attained."""
    found = alternatives(question)
    epsilon, (k, first, second, y) = largest_log_ratio(found.logs)
    positions = found.positions(k)
    if found.worlds.settings is None:
        pairs = {axis: divmod(positions.get(axis, 0), question.sizes[axis]) for axis in question.inputs}
        settings = [{axis: pair[world] for axis, pair in pairs.items()} for world in range(2)]
    else:
        settings = [dict(zip(question.inputs, map(int, row), strict=True)) for row in found.worlds.settings]
    return Found(
        epsilon=epsilon,
        outputs=tuple(int(i) for i in np.unravel_index(y, found.shape)),
        first=settings[first],
        second=settings[second],
        choices={axis: positions.get(axis, 0) for axis in question.choices},
        logs=(float(found.logs[k, first, y]), float(found.logs[k, second, y])),
    )


def _reading(axis: str, name: str, values: Ints, size: int) -> Lookup:
    """Return the lookup of a variable's value from the alternative and the world, as far as it depends on them."""
    varies, same = len(values) > 1, bool((values == values[:, :1]).all())
    inputs = ((axis,) if varies else ()) + (() if same else (_WORLD,))
    index = values[:, 0] if same else values
    return Lookup(inputs, name, np.array(index if varies else index[0], dtype=np.intp), size)


class _Elimination:
    """Sums one variable after another, keeping choices as axes and dropping choices that make no difference."""

    def __init__(self, parts: Iterable[Factor | Lookup], origins: dict[str, Origin], keep: tuple[str, ...]) -> None:
        self.origins = origins
        self.keep = keep
        self.sizes: dict[str, int] = {}
        self.factors: dict[int, Factor | Lookup] = {}
        self.where: dict[str, set[int]] = {}
        self.made = 0
        for part in parts:
            self._put(part)

    def solve(self) -> Factor:
        """Return the table over the choices that are left, the worlds and the outputs."""
        if len(self.origins) > 1 and math.prod(self.sizes[name] for name in (*self.origins, *self.keep)) > _AT_ONCE:
            for number in [n for n, part in self.factors.items() if isinstance(part, Lookup) and len(part.inputs) > 2]:
                for step in _one_by_one(cast(Lookup, self._take(number))):
                    self._put(step)
            hidden = set(self.sizes) - set(self.origins) - set(self.keep)
            while hidden:
                hidden -= self._sum(min(sorted(hidden), key=self._cost), hidden)
        axes = [axis for axis in self.origins if axis in self.where]
        cells = math.prod(self.sizes[axis] for axis in (*axes, *self.keep))
        if cells > MAX_CELLS:
            raise InputError(
                f"The worst case over all populations needs {cells:.3g} cells, above the limit of {MAX_CELLS:.3g}. "
                "Give a population, or ask about fewer outputs at once."
            )
        return product(list(self.factors.values()), (*axes, *self.keep))

    def _put(self, part: Factor | Lookup) -> None:
        self.made += 1
        self.factors[self.made] = part
        shape = (*part.index.shape, part.size) if isinstance(part, Lookup) else part.array.shape
        self.sizes |= dict(zip(part.names, shape, strict=True))
        for name in part.names:
            self.where.setdefault(name, set()).add(self.made)

    def _take(self, number: int) -> Factor | Lookup:
        part = self.factors.pop(number)
        for name in part.names:
            self.where[name].discard(number)
            if not self.where[name]:
                del self.where[name]
        return part

    def _cost(self, name: str) -> int:
        scope = {other for number in self.where[name] for other in self.factors[number].names}
        return math.prod(self.sizes[other] for other in scope - {name})

    def _sum(self, name: str, hidden: set[str]) -> set[str]:
        """Multiply what reads ``name`` and sum out every variable that nothing else reads; return those."""
        gathered = set(self.where[name])
        scope = {other for number in gathered for other in self.factors[number].names} & hidden
        for other in scope:  # tables of variables that are there anyway come along, so that they can go with it
            gathered |= {n for n in self.where[other] if set(self.factors[n].names) & hidden <= scope}
        parts = [self._take(number) for number in sorted(gathered)]
        names = dict.fromkeys(other for part in parts for other in part.names)
        gone = {other for other in names if other in hidden and other not in self.where}
        table = product(parts, [other for other in names if other not in gone])
        self._put(self._without_doubles(table))
        return gone

    def _without_doubles(self, table: Factor) -> Factor:
        """Merge the choices that only this table reads into one axis of different alternatives."""
        own = [name for name in table.names if name in self.origins and name not in self.where]
        if not own:
            return table
        others = [name for name in table.names if name not in own]
        order = [table.names.index(name) for name in (*own, *others)]
        logs = table.log.transpose(order).reshape(math.prod(self.sizes[name] for name in own), -1)
        first = _different_rows(logs)
        rows = np.unravel_index(first, [self.sizes[name] for name in own])
        sources = tuple(
            (self.origins.pop(name), np.asarray(at, dtype=np.intp)) for name, at in zip(own, rows, strict=True)
        )
        axis = f"choices {self.made}"
        self.origins[axis] = Origin(None, sources)
        self.sizes[axis] = len(first)
        shape = (len(first), *(self.sizes[name] for name in others))
        if table.lossy:
            return Factor.from_log((axis, *others), logs[first].reshape(shape))
        array = table.array.transpose(order).reshape(len(logs), -1)
        return Factor((axis, *others), array[first].reshape(shape))


def _one_by_one(lookup: Lookup) -> Iterator[Lookup]:
    """Yield a lookup as steps that read two variables each, so that no sum meets all its inputs at once.

    After two inputs it only matters which function of the remaining ones is left; equal functions are one value.
    """
    while len(lookup.inputs) > 2:
        first, second, *rest = lookup.index.shape
        functions, left = np.unique(lookup.index.reshape(first * second, -1), axis=0, return_inverse=True)
        between = f"{lookup.output} after {lookup.inputs[1]}"
        yield Lookup(lookup.inputs[:2], between, left.reshape(first, second).astype(np.intp), len(functions))
        lookup = Lookup(
            (between, *lookup.inputs[2:]), lookup.output, functions.reshape(len(functions), *rest), lookup.size
        )
    yield lookup


def _different_rows(logs: Array) -> Ints:
    """Return the positions of rows that differ, one per group of rows that are equal up to rounding."""
    finite = np.where(logs == -np.inf, -800.0, logs)
    weights = np.random.default_rng(0).uniform(1.0, 2.0, size=finite.shape[1])  # fixed: equal rows become neighbours
    order = np.argsort(finite @ weights, kind="stable")
    ordered = logs[order]
    with np.errstate(invalid="ignore"):
        same = (ordered[1:] == ordered[:-1]) | (np.abs(ordered[1:] - ordered[:-1]) <= _SAME)
    return np.asarray(order[np.r_[True, ~same.all(axis=1)]], dtype=np.intp)
