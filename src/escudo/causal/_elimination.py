"""Variable elimination: the work behind :func:`escudo.causal._inference.contract`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from escudo.causal._factors import Array, Factor, IntArray, Lookup, check_cells
from escudo.errors import InputError

__all__ = ["LOGARITHMS", "PLAIN", "Arithmetic", "Elimination"]

_Cell = TypeVar("_Cell", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Which numbers the tables hold: probabilities, or their logarithms."""

    read: Callable[[Factor], Array]
    times: np.ufunc
    plus: np.ufunc
    zero: float
    one: float


PLAIN = Arithmetic(lambda factor: factor.array, np.multiply, np.add, 0.0, 1.0)
LOGARITHMS = Arithmetic(lambda factor: factor.log, np.add, np.logaddexp, -math.inf, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    names: tuple[str, ...]
    array: Array
    order: int  # tables are multiplied in a fixed order, so that equal questions have equal answers to the last bit


class Elimination:
    """The factors still to be multiplied, and the greedy elimination that empties it."""

    def __init__(self, factors: Sequence[Factor | Lookup], keep: tuple[str, ...], arithmetic: Arithmetic) -> None:
        self.keep = keep
        self.kept = frozenset(keep)
        self.arithmetic = arithmetic
        self.sizes: dict[str, int] = {}
        self.tables: dict[str, set[_Table]] = {}
        self.readers: dict[str, set[Lookup]] = {}
        self.source: dict[str, Lookup] = {}
        self.constants: list[Array] = []
        self.made = 0
        for factor in factors:
            if isinstance(factor, Factor):
                self._declare(factor.names, factor.array.shape)
                self._add_table(*_squeezed(factor.names, arithmetic.read(factor)))
            else:
                self._declare(factor.names, (*factor.index.shape, factor.size))
                if factor.size > 1:
                    inputs, index = _squeezed(factor.inputs, factor.index)
                    self._add_lookup(Lookup(inputs, factor.output, index, factor.size))
        missing = [name for name in keep if name not in self.sizes]
        if missing or len(set(keep)) < len(keep):
            raise InputError(f"Cannot keep {', '.join(missing or keep)}: each must be one variable of the factors.")

    def solve(self) -> Array:
        """Eliminate everything that is not kept, cheapest variable first, and multiply what is left."""
        rank = {name: position for position, name in enumerate(self.sizes)}
        heap = [(self._cost(name), rank[name], name) for name in self.sizes if name not in self.kept]
        heapq.heapify(heap)
        waiting = {name for _, _, name in heap}
        while waiting:
            recorded, _, name = heapq.heappop(heap)
            if name not in waiting:
                continue
            if (cost := self._cost(name)) > recorded:
                heapq.heappush(heap, (cost, rank[name], name))
                continue
            gone, touched = self._pull(name) if name in self.source else self._push(name)
            waiting -= gone
            for other in touched & waiting:
                heapq.heappush(heap, (self._cost(other), rank[other], other))
        for lookup in list(self.source.values()):
            self._densify(lookup)
        tables = {table for name in self.sizes for table in self.tables[name]}
        result = self._multiply(list(tables), self.keep)
        for constant in self.constants:
            result = self.arithmetic.times(result, constant)
        return np.asarray(result)

    # -- bookkeeping -------------------------------------------------------------------------------------------------

    def _declare(self, names: tuple[str, ...], shape: tuple[int, ...]) -> None:
        for name, size in zip(names, shape, strict=True):
            if self.sizes.setdefault(name, size) != size:
                raise InputError(
                    f"Variable {name!r} has {self.sizes[name]} values in one factor and {size} in another."
                )
            self.tables.setdefault(name, set())
            self.readers.setdefault(name, set())

    def _add_table(self, names: tuple[str, ...], array: Array) -> None:
        self.made += 1
        table = _Table(names, array, self.made)
        if not names:
            self.constants.append(array)
        for name in names:
            self.tables[name].add(table)

    def _drop_table(self, table: _Table) -> None:
        for name in table.names:
            self.tables[name].discard(table)

    def _add_lookup(self, lookup: Lookup) -> None:
        if lookup.output in self.source:
            raise InputError(f"Variable {lookup.output!r} is set by two lookups.")
        self.source[lookup.output] = lookup
        for name in lookup.inputs:
            self.readers[name].add(lookup)

    def _drop_lookup(self, lookup: Lookup) -> None:
        del self.source[lookup.output]
        for name in lookup.inputs:
            self.readers[name].discard(lookup)

    def _densify(self, lookup: Lookup) -> None:
        self._drop_lookup(lookup)
        table = lookup.dense()
        if self.arithmetic.zero != 0.0:
            table = np.where(table > 0, 0.0, -np.inf)
        self._add_table(lookup.names, table)

    def _cells(self, names: Iterable[str]) -> int:
        return math.prod(self.sizes[name] for name in names)

    # -- the two ways to remove a variable ---------------------------------------------------------------------------

    def _cost(self, name: str) -> tuple[float, float]:
        """Cells of the table that removing ``name`` now would leave behind, and of the largest one on the way.

        Infinite for a step between lookups whose inputs can still be removed: they go first, and the step with them.
        """
        if (lookup := self.source.get(name)) is not None:
            if self.readers[name] and any(other not in self.kept for other in lookup.inputs):
                return math.inf, math.inf
            costs = [self._cells({*reader.inputs, *lookup.inputs} - {name}) for reader in self.readers[name]]
            if self.tables[name]:
                joint = {other for table in self.tables[name] for other in table.names}
                costs.append(self._cells({*joint, *lookup.inputs} - {name}))
            return max(costs, default=1), sum(costs)
        removed, lookups, tables = self._neighbourhood(name)
        scope = {other for table in tables for other in table.names}.union(*(lookup.inputs for lookup in lookups))
        after = (scope - removed) | {lookup.output for lookup in lookups}
        return self._cells(after), self._cells(scope | removed)

    def _neighbourhood(self, name: str) -> tuple[set[str], set[Lookup], set[_Table]]:
        """Variables that can go together with ``name``, the lookups that read it, and all tables that see them.

        The inputs of a lookup are best removed together: the product over the inputs is scattered to the outputs, and
        no table with inputs *and* outputs is ever built.
        """
        lookups = self.readers[name]
        removed = {name}
        for lookup in lookups:
            for other in lookup.inputs:
                if other not in self.kept and other not in self.source and self.readers[other] <= lookups:
                    removed.add(other)
        return removed, lookups, {table for other in removed for table in self.tables[other]}

    def _push(self, name: str) -> tuple[set[str], set[str]]:
        """Remove ``name`` (and its fellow inputs) by summing; lookups that read it become part of the new table."""
        while True:
            removed, lookups, tables = self._neighbourhood(name)
            scope = {other for table in tables for other in table.names}.union(*(lookup.inputs for lookup in lookups))
            entangled = [lookup for lookup in lookups if lookup.output in scope]
            if not entangled:
                break
            for lookup in entangled:
                self._densify(lookup)
        inputs = {other for lookup in lookups for other in lookup.inputs}
        summed, shared, rest = sorted(removed), sorted(inputs - removed), sorted(scope - removed - inputs)
        axes = (*summed, *shared, *rest)
        joint = self._multiply(list(tables), axes)
        ordered = sorted(lookups, key=lambda lookup: lookup.output)
        array = self._scatter(joint, ordered, summed, shared)
        for table in tables:
            self._drop_table(table)
        for lookup in ordered:
            self._drop_lookup(lookup)
        self._add_table((*(lookup.output for lookup in ordered), *shared, *rest), array)
        return removed, self._around({*scope, *(lookup.output for lookup in ordered)} - removed)

    def _scatter(self, joint: Array, lookups: list[Lookup], summed: list[str], shared: list[str]) -> Array:
        """Sum the leading axes of ``joint`` into one axis per lookup output."""
        rest = joint.shape[len(summed) + len(shared) :]
        if not lookups:
            flat = joint.reshape((-1, *rest))
            return np.asarray(self.arithmetic.plus.reduce(flat, axis=0))
        leading = (*summed, *shared)
        shape = joint.shape[: len(leading)]
        outputs = tuple(lookup.size for lookup in lookups)
        key = np.zeros(shape, dtype=np.intp)
        for lookup in lookups:
            key = key * lookup.size + _spread(lookup.index, lookup.inputs, leading)
        for axis, other in enumerate(leading):
            if other in shared:
                key = key * shape[axis] + _along(shape[axis], axis, len(leading))
        kept = joint.shape[len(summed) : len(leading)]
        flat_key = key.ravel()
        order = np.argsort(flat_key, kind="stable")
        ordered = flat_key[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        cells = math.prod(outputs) * math.prod(kept)
        array = np.full((cells, math.prod(rest)), self.arithmetic.zero)
        rows = joint.reshape(flat_key.size, -1)[order]
        array[ordered[starts]] = self.arithmetic.plus.reduceat(rows, starts, axis=0)
        return array.reshape((*outputs, *kept, *rest))

    def _pull(self, name: str) -> tuple[set[str], set[str]]:
        """Remove ``name = f(inputs)`` by substituting f wherever ``name`` is read."""
        lookup = self.source[name]
        tables, readers = self.tables[name], self.readers[name]
        touched = set(lookup.inputs)
        self._drop_lookup(lookup)
        if tables:
            scope = {other for table in tables for other in table.names} - {name}
            before = (name, *sorted(scope))
            joint = self._multiply(list(tables), before)
            after = tuple(sorted(scope | set(lookup.inputs)))
            array = self._substitute(joint, before, lookup, after)
            for table in list(tables):
                self._drop_table(table)
            self._add_table(after, array)
            touched.update(after)
        for reader in list(readers):
            after = tuple(sorted({*reader.inputs, *lookup.inputs} - {name}))
            index = self._substitute(reader.index, reader.inputs, lookup, after)
            self._drop_lookup(reader)
            self._add_lookup(Lookup(after, reader.output, index, reader.size))
            touched.update((*after, reader.output))
        return {name}, self._around(touched)

    def _substitute(
        self, array: npt.NDArray[_Cell], before: Sequence[str], lookup: Lookup, after: Sequence[str]
    ) -> npt.NDArray[_Cell]:
        check_cells(self._cells(after))
        position = {name: axis for axis, name in enumerate(after)}
        where = tuple(
            _spread(lookup.index, lookup.inputs, after)
            if name == lookup.output
            else _along(self.sizes[name], position[name], len(after))
            for name in before
        )
        return np.array(np.broadcast_to(array[where], [self.sizes[name] for name in after]))

    def _around(self, names: set[str]) -> set[str]:
        """Variables whose cost may have changed: the names themselves and whatever shares a lookup with them."""
        near = set(names)
        for name in names:
            for reader in self.readers[name]:
                near.update(reader.names)
            if (lookup := self.source.get(name)) is not None:
                near.update(lookup.inputs)
        return near

    def _multiply(self, tables: list[_Table], axes: Sequence[str]) -> Array:
        """Return the product of ``tables`` as a full array over ``axes``."""
        check_cells(self._cells(axes))
        joint = np.full([self.sizes[name] for name in axes], self.arithmetic.one)
        for table in sorted(tables, key=lambda table: (table.array.size, table.order)):
            joint = self.arithmetic.times(joint, _spread(table.array, table.names, axes))
        return joint


def _spread(array: npt.NDArray[_Cell], names: Sequence[str], axes: Sequence[str]) -> npt.NDArray[_Cell]:
    """Return a view of ``array`` whose axes follow ``axes``, of length 1 where ``names`` lacks one."""
    position = {name: axis for axis, name in enumerate(axes)}
    order = sorted(range(len(names)), key=lambda axis: position[names[axis]])
    shape = [1] * len(axes)
    for axis in order:
        shape[position[names[axis]]] = array.shape[axis]
    return array.transpose(order).reshape(shape)


def _squeezed(names: tuple[str, ...], array: npt.NDArray[_Cell]) -> tuple[tuple[str, ...], npt.NDArray[_Cell]]:
    """Drop the axes of variables with a single value, which would only use up numpy's limit of 64 axes."""
    wide = tuple(name for name, size in zip(names, array.shape, strict=True) if size > 1)
    return wide, array.reshape([size for size in array.shape if size > 1])


def _along(size: int, axis: int, axes: int) -> IntArray:
    """Return 0..size-1 laid along one of several axes."""
    return np.arange(size, dtype=np.intp).reshape([-1 if position == axis else 1 for position in range(axes)])
