"""Exact sums of products of tables, by eliminating one variable at a time.

A joint law of finite variables is a product of small tables. Asking for the law of a few of them means summing the
product over all others; doing that one variable at a time, cheapest first, costs as much as the largest table met on
the way, not the product of all ranges.

Two kinds of factor take part:

* :class:`Factor`: a table over named axes, such as ``Pr[D | R]`` with axes ``(R, D)``;
* :class:`Lookup`: ``output = f(inputs)``, stored as an integer array over the inputs alone. A running sum of 1,000
  variables is 1,000 lookups of at most 2,000 cells, where dense tables would need gigabytes.

Zero means zero. Products and sums of non-negative floats keep exact zeros exact; a product too small for a float is
noticed, and the whole sum is then redone with logarithms, so that no positive probability is ever lost to underflow.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from escudo.errors import InputError

Array: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.intp]
MAX_CELLS = 2**25  # 256 MiB of floats: the largest single table that is ever built


# ---- the pieces of a product


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Factor:
    """A table over named axes.

    Attributes:
        names: One variable per axis, all different.
        array: Non-negative floats.
        lossy: True where ``array`` has zeros that stand for positive numbers below the range of floats; ``log`` has
            them right.

    Example:
        >>> Factor(("coin",), [0.5, 0.5]).log.round(3)
        array([-0.693, -0.693])
    """

    names: tuple[str, ...]
    array: Array
    lossy: bool
    _log: Array | None

    def __init__(self, names: Iterable[str], array: npt.ArrayLike, *, log: npt.ArrayLike | None = None) -> None:
        logs = None if log is None else _frozen(np.asarray(log, dtype=np.float64))
        values = _frozen(np.asarray(array, dtype=np.float64))
        object.__setattr__(self, "names", tuple(names))
        object.__setattr__(self, "array", values)
        object.__setattr__(self, "_log", logs)
        lossy = logs is not None and bool(np.any((values < np.finfo(np.float64).tiny) & (logs > -np.inf)))
        object.__setattr__(self, "lossy", lossy)
        if len(self.names) != values.ndim or len(set(self.names)) != values.ndim:
            raise InputError(f"A factor over {', '.join(self.names) or 'nothing'} has {values.ndim} axes.")

    @classmethod
    def from_log(cls, names: Iterable[str], log: npt.ArrayLike) -> Factor:
        """Return the factor whose natural logarithms are ``log`` (minus infinity for zero)."""
        logs = np.asarray(log, dtype=np.float64)
        with np.errstate(under="ignore"):
            return cls(names, np.exp(logs), log=logs)

    @property
    def log(self) -> Array:
        """Natural logarithms of the cells: minus infinity exactly where the probability is zero."""
        if self._log is not None:
            return self._log
        with np.errstate(divide="ignore"):
            return np.log(self.array)

    def __repr__(self) -> str:
        return f"Factor({', '.join(self.names)}; shape {self.array.shape})"

    def rename(self, names: Mapping[str, str]) -> Factor:
        """Return the same table with axes renamed."""
        return Factor((names.get(name, name) for name in self.names), self.array, log=self._log)

    def at(self, values: Mapping[str, int]) -> Factor:
        """Return the slice where some variables have the values at the given positions."""
        where = tuple(values.get(name, slice(None)) for name in self.names)
        names = (name for name in self.names if name not in values)
        return Factor(names, self.array[where], log=None if self._log is None else self._log[where])


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A deterministic step ``output = index[inputs]``.

    Attributes:
        inputs: One variable per axis of ``index``.
        output: The variable it sets; no two lookups of one product may share it.
        index: Position of the output's value in its range, for each combination of inputs.
        size: How many values the output has.
    """

    inputs: tuple[str, ...]
    output: str
    index: IntArray
    size: int

    @property
    def names(self) -> tuple[str, ...]:
        """Inputs, then the output."""
        return (*self.inputs, self.output)

    def rename(self, names: Mapping[str, str]) -> Lookup:
        """Return the same step between renamed variables; two inputs that become one are read together."""
        inputs = tuple(names.get(name, name) for name in self.inputs)
        index = self.index
        unique = tuple(dict.fromkeys(inputs))
        if len(unique) < len(inputs):
            index = np.einsum(index, [unique.index(name) for name in inputs], list(range(len(unique)))).copy()
        return Lookup(unique, names.get(self.output, self.output), index, self.size)

    def at(self, values: Mapping[str, int]) -> Factor | Lookup:
        """Return the step where some variables have the values at the given positions.

        Fixing the output leaves a 0/1 table of the inputs that lead to it.
        """
        where = tuple(values.get(name, slice(None)) for name in self.inputs)
        inputs = tuple(name for name in self.inputs if name not in values)
        index = np.asarray(self.index[where])
        if self.output in values:
            return Factor(inputs, index == values[self.output])
        return Lookup(inputs, self.output, index, self.size)

    def dense(self) -> Array:
        """Return the step as a 0/1 table with axes ``(*inputs, output)``."""
        check_cells(self.index.size * self.size)
        table = np.zeros((*self.index.shape, self.size))
        np.put_along_axis(table, self.index[..., None], 1.0, axis=-1)
        return table


def check_cells(cells: int) -> None:
    """Raise if a table of so many cells is too large to build."""
    if cells > MAX_CELLS:
        raise InputError(
            f"This question needs a table of {cells:.3g} cells, above the limit of {MAX_CELLS:.3g}: too many variables "
            "act on each other at once. Ask about fewer variables together, or give a wide equation as count(...), "
            "sum(...), min(...) or max(...), which escudo takes apart."
        )


def _frozen(array: Array) -> Array:
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


# ---- asking


def contract(factors: Sequence[Factor | Lookup], keep: Sequence[str], *, log: bool = False) -> Array:
    """Multiply all factors and sum out every variable that is not kept.

    Args:
        factors: Tables and lookups; axes with the same name are the same variable.
        keep: The axes of the answer, in this order.
        log: Return natural logarithms, which reach far below the smallest float.

    Returns:
        An array with one axis per kept variable.

    Raises:
        InputError: A kept variable occurs in no factor, sizes disagree, or the sum needs a table above ``MAX_CELLS``.

    Example:
        >>> coin = Factor(("a",), [0.5, 0.5])
        >>> same = Lookup(("a",), "b", np.array([0, 1]), 2)
        >>> contract([coin, same, Factor(("b", "c"), [[0.9, 0.1], [0.2, 0.8]])], ["c"])
        array([0.55, 0.45])
    """
    result = product(factors, keep)
    return np.array(result.log if log else result.array)


def product(factors: Sequence[Factor | Lookup], keep: Sequence[str]) -> Factor:
    """Do what :func:`contract` does and return a :class:`Factor`, which knows its logarithms."""
    names = tuple(keep)
    if not any(isinstance(factor, Factor) and factor.lossy for factor in factors):
        try:
            with np.errstate(under="raise"):
                return Factor(names, Elimination(factors, names, PLAIN).solve())
        except FloatingPointError:
            pass  # some product fell below the smallest float: the logarithms below have room for it
    return Factor.from_log(names, Elimination(factors, names, LOGARITHMS).solve())


# ---- eliminating

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
