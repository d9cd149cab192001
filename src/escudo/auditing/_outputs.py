"""Outputs as numbers: whatever a mechanism returns, encoded once, so that learning and logs see arrays only.

An output becomes a *structure* (its shape, its texts, None, the type of an error) and the numbers in it. The structure
is coded as a whole number, the numbers fill a row of a matrix, padded with NaN. Nothing is lost that an event could
depend on, save that tables and very long outputs are summarised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._targets import Failure

__all__ = ["Encoded", "Encoder"]

MAX_WIDTH = 256
_MAX_STRUCTURES = 100_000
_PLAIN = "#"


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Outputs as arrays: ``values`` of shape (n, width), NaN where there is no number, and ``codes`` of shape (n,)."""

    values: NDArray[np.float64]
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return self.codes.size


class Encoder:
    """Encodes outputs, remembering the structures it has met.

    Args:
        features: A function from one output to what should be looked at instead, or None.
    """

    def __init__(self, features: Callable[[Any], Any] | None = None) -> None:
        self.features = features
        self.structures: list[str] = [_PLAIN]
        self._code = {_PLAIN: 0}
        self.summarised = False

    def encode(self, outputs: Any) -> Encoded:
        """Return a block of outputs, an array or a sequence, as arrays."""
        if self.features is not None:
            outputs = [o if isinstance(o, Failure) else self.features(o) for o in outputs]
        array = _as_numbers(outputs)
        if array is not None:
            return self._of_array(array)
        rows = [self._flat(output) for output in outputs]
        width = max((len(row) for _, row in rows), default=0)
        if width > MAX_WIDTH:
            self.summarised, width = True, MAX_WIDTH
        values = np.full((len(rows), max(width, 1)), np.nan)
        for i, (_, row) in enumerate(rows):
            values[i, : min(len(row), width)] = row[:width]
        return Encoded(values, np.array([code for code, _ in rows], dtype=np.int32))

    def code_of(self, structure: str) -> int:
        """Return the code of a structure, a new one if it was never met."""
        code = self._code.get(structure)
        if code is None:
            if len(self.structures) >= _MAX_STRUCTURES:
                return self.code_of("(other)") if structure != "(other)" else 0
            code = self._code[structure] = len(self.structures)
            self.structures.append(structure)
        return code

    def _of_array(self, array: NDArray[Any]) -> Encoded:
        values = array.reshape(len(array), -1).astype(np.float64, copy=False)
        if values.shape[1] > MAX_WIDTH:
            self.summarised = True
            values = _folded(values)
        return Encoded(values, np.zeros(len(array), dtype=np.int32))

    def _flat(self, output: Any) -> tuple[int, list[float]]:
        numbers: list[float] = []
        structure = _walk(output, numbers)
        return self.code_of(structure), numbers


def _as_numbers(outputs: Any) -> NDArray[Any] | None:
    """Return outputs that are all numbers, or all arrays of one shape, as one array; None if they are not."""
    if isinstance(outputs, np.ndarray):
        return outputs if outputs.dtype.kind in "fiub" and outputs.ndim >= 1 and outputs.size else None
    if not isinstance(outputs, Sequence) or not outputs:
        return None
    kinds = set(map(type, outputs))
    if all(issubclass(kind, bool | int | float | np.number | np.bool_) for kind in kinds):
        try:
            return np.array(outputs, dtype=np.float64)
        except OverflowError:
            return None
    if kinds == {np.ndarray}:
        shapes = {o.shape for o in outputs}
        if len(shapes) == 1 and all(o.dtype.kind in "fiub" for o in outputs):
            return np.array(outputs)
    return None


def _walk(output: Any, numbers: list[float]) -> str:
    """Append the numbers of an output and return its structure without them."""
    if output is None or isinstance(output, Failure):
        return repr(output)
    if isinstance(output, str | bytes):
        return repr(output)
    if isinstance(output, Real | np.bool_):
        try:
            numbers.append(float(output))
        except OverflowError:
            numbers.append(np.inf if output > 0 else -np.inf)  # type: ignore[operator]
        return _PLAIN
    if isinstance(output, np.ndarray) and output.dtype.kind in "fiub":
        numbers.extend(output.ravel().astype(np.float64).tolist())
        return f"array{output.shape}"
    if isinstance(output, Mapping):
        keys = sorted(output, key=repr)
        return "{" + ", ".join(f"{k!r}: {_walk(output[k], numbers)}" for k in keys) + "}"
    if is_dataclass(output) and not isinstance(output, type):
        return (
            type(output).__name__
            + "("
            + ", ".join(_walk(getattr(output, f.name), numbers) for f in fields(output))
            + ")"
        )
    if isinstance(output, list | tuple | set | frozenset):
        items = sorted(output, key=repr) if isinstance(output, set | frozenset) else output
        return "[" + ", ".join(_walk(item, numbers) for item in items) + "]"
    if isinstance(output, np.ndarray):
        return "[" + ", ".join(_walk(item, numbers) for item in output.ravel().tolist()) + "]"
    table = _table(output)
    if table is not None:
        return _walk(table, numbers)
    return f"{type(output).__name__}: {str(output)[:200]}"


def _table(output: Any) -> dict[str, Any] | None:
    """Return a dataframe as its size, and per column counts of its levels or its moments; None if it is none."""
    import narwhals as nw

    try:
        frame = nw.from_native(output, eager_only=True)
    except TypeError:
        return None
    if not isinstance(frame, nw.DataFrame):
        return None
    found: dict[str, Any] = {"rows": len(frame)}
    for name in frame.columns:
        column = frame[name]
        if column.dtype.is_numeric():
            numbers = column.drop_nulls().to_numpy().astype(np.float64)
            numbers = numbers[np.isfinite(numbers)]
            spread = [numbers.sum(), (numbers**2).sum(), numbers.min(), numbers.max()] if numbers.size else [0.0] * 4
            kinds = ("sum", "sum of squares", "smallest", "largest")
            found[name] = {"missing": len(column) - numbers.size, **dict(zip(kinds, map(float, spread), strict=True))}
        else:
            levels, counts = np.unique([str(v) for v in column.to_list()], return_counts=True)
            found[name] = dict(zip(levels.tolist()[:64], map(float, counts[:64]), strict=True))
    return found


def _folded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return long rows as their first numbers and the sums of all, of squares and of stretches."""
    keep = MAX_WIDTH // 2
    stretches = np.array_split(np.arange(values.shape[1]), MAX_WIDTH - keep - 2)
    sums = np.stack([values[:, s].sum(axis=1) for s in stretches], axis=1)
    return np.column_stack([values[:, :keep], sums, values.sum(axis=1), (values**2).sum(axis=1)])
