"""Finite mechanisms as tables: from every database to a law over outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from escudo.effects._ratios import Array, log_of, probabilities
from escudo.errors import InputError

__all__ = ["CountMechanism", "Mechanism", "as_mechanism"]


class Mechanism:
    """A mechanism of ``n`` data points: ``table[d1, ..., dn, o]`` is the probability of output ``o``.

    Args:
        table: Shape (|Dom 1|, ..., |Dom n|, outputs); each row sums to 1. Floats or fractions.
        points: Names of the data points; D1, D2, ... by default.
        values: Names of each point's values; 0, 1, ... by default.
        outputs: Names of the outputs; 0, 1, ... by default.
        log: Natural logarithms of the table, where floats cannot hold its smallest probabilities.

    >>> Mechanism([[0.75, 0.25], [0.25, 0.75]])
    Mechanism(D1; 2 outputs)
    """

    __slots__ = ("log", "outputs", "points", "table", "values")

    def __init__(
        self,
        table: Any,
        *,
        points: Iterable[str] | None = None,
        values: Iterable[Iterable[Any]] | None = None,
        outputs: Iterable[Any] | None = None,
        log: Array | None = None,
    ) -> None:
        self.table: Array = probabilities("the mechanism's table", table, axis=-1)
        self.log = _checked_log(self.table, log)
        *sizes, size = self.table.shape
        if not sizes:
            raise InputError("the mechanism's table needs an axis for each data point and one for the output.")
        self.points = tuple(points) if points is not None else tuple(f"D{i + 1}" for i in range(len(sizes)))
        self.values = tuple(map(tuple, values)) if values is not None else tuple(tuple(range(s)) for s in sizes)
        self.outputs = _named("outputs", outputs, size)
        if len(self.points) != len(sizes):
            raise InputError(f"points must name {len(sizes)} data points; got {len(self.points)}.")
        if tuple(map(len, self.values)) != tuple(sizes):
            raise InputError(f"values must name {sizes} values; got {[len(v) for v in self.values]}.")

    def __repr__(self) -> str:
        names = ", ".join(self.points[:4]) + (", ..." if len(self.points) > 4 else "")
        return f"Mechanism({names}; {len(self.outputs)} outputs)"

    def database(self, index: Iterable[int]) -> dict[str, Any]:
        """Return the database at ``index`` as point -> value."""
        return {p: v[i] for p, v, i in zip(self.points, self.values, index, strict=True)}


class CountMechanism:
    """A mechanism that reads ``n`` binary data points only through their count: ``table[c, o]``.

    Its cost grows with ``n``, not with ``2^n``: databases with the same count are one case.

    Args:
        table: Shape (n + 1, outputs); row ``c`` is the law of the output when ``c`` of the points are 1.
        n: The number of points; may be left out, as the table determines it.
        outputs: Names of the outputs; 0, 1, ... by default.
        log: Natural logarithms of the table, where floats cannot hold its smallest probabilities.

    >>> CountMechanism([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
    CountMechanism(n=2; 2 outputs)
    """

    __slots__ = ("log", "n", "outputs", "table")

    def __init__(
        self, table: Any, n: int | None = None, *, outputs: Iterable[Any] | None = None, log: Array | None = None
    ) -> None:
        self.table: Array = probabilities("the mechanism's table", table, axis=-1)
        if self.table.ndim != 2 or self.table.shape[0] < 2:
            raise InputError(f"a count table has shape (n + 1, outputs) with n >= 1; got {self.table.shape}.")
        self.log = _checked_log(self.table, log)
        self.n = self.table.shape[0] - 1
        if n is not None and n != self.n:
            raise InputError(f"a count table for n = {n} points has {n + 1} rows; got {self.n + 1}.")
        self.outputs = _named("outputs", outputs, self.table.shape[1])

    def __repr__(self) -> str:
        return f"CountMechanism(n={self.n}; {len(self.outputs)} outputs)"

    def expand(self) -> Mechanism:
        """Return the same mechanism as a table over all ``2^n`` databases (for small ``n``)."""
        if self.n > 16:
            raise InputError(f"a table over 2^{self.n} databases is too large; use the count mechanism itself.")
        counts = np.indices((2,) * self.n).sum(axis=0)
        return Mechanism(self.table[counts], outputs=self.outputs, log=self.log[counts])


def as_mechanism(mechanism: Mechanism | CountMechanism | Any) -> Mechanism | CountMechanism:
    """Return ``mechanism`` itself, or the array as a :class:`Mechanism`."""
    return mechanism if isinstance(mechanism, (Mechanism, CountMechanism)) else Mechanism(mechanism)


def _checked_log(table: Array, log: Array | None) -> Array:
    if log is None:
        return log_of(table)
    logs = np.array(log, dtype=np.float64)
    if logs.shape != table.shape or np.isnan(logs).any() or np.abs(np.exp(logs) - table).max() > 1e-12:
        raise InputError("log must hold the natural logarithms of the mechanism's table, in the same shape.")
    return logs


def _named(what: str, names: Iterable[Any] | None, size: int) -> tuple[Any, ...]:
    result = tuple(names) if names is not None else tuple(range(size))
    if len(result) != size:
        raise InputError(f"{what} must name {size} {what}; got {len(result)}.")
    return result
