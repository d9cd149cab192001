"""Tables over named variables, and lookups: the pieces a joint law is a product of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from escudo.errors import InputError

__all__ = ["MAX_CELLS", "Array", "Factor", "IntArray", "Lookup", "check_cells"]

Array: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.intp]

MAX_CELLS = 2**25  # 256 MiB of floats: the largest single table that is ever built


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
