r"""A row of schema cells as numbers, and the likelihood of each kind of column.

Every column has cells 0, …, s - 1, the last one for missing values where it has that, and *features* φ(x) of a cell:

* **levels** (binary and categorical columns): one indicator for each cell but the first;
* **ordered** (ordinal and numeric columns with more than three cells): Legendre polynomials of degree 1 to 3 in the
  cell's place t in [-1, 1], and an indicator of the missing cell.

The likelihood uses the same features the other way round: a network puts out one number per feature, u, and

.. math:: p(x) \propto \exp(b_x + u \cdot φ(x)), \qquad b_0 = 0.

For levels this is a softmax (a logistic law for two cells). For ordered columns it is a bounded law with a free shape b
that is shifted and bent by u, with the truncated Gaussian as a special case: smooth in the order of the cells, and
never outside the schema's bounds. Inside a bin numbers follow the slope of the neighbouring bins, as for all
generators. A missing value is a cell like any other: it is predicted, and it predicts.

Only jax and numpy are imported. Columns of one kind and size form a *block*, so that a table with hundreds of them
needs a handful of operations; features come block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "ColumnSpec", "Columns"]

Array = Any  # a jax or numpy array
Floats = NDArray[np.float64]

_DEGREE = 3


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """What a network needs to know of a column.

    Args:
        size: Cells, the missing one included.
        places: Where each cell that is not missing lies in [-1, 1], for an ordered column; empty for levels.
    """

    size: int
    places: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """The number of features."""
        return self.size - 1 if not self.places else _DEGREE + (self.size > len(self.places))

    def features(self) -> Floats:
        """Return φ for each cell, of shape (size, width)."""
        if not self.places:
            return np.eye(self.size)[:, 1:]
        legendre = np.polynomial.legendre.legvander(np.array(self.places), _DEGREE)[:, 1:]
        if self.size == len(self.places):
            return legendre
        missing = np.eye(self.size)[:, -1:]
        return np.concatenate([np.concatenate([legendre, np.zeros((1, _DEGREE))]), missing], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Columns of one kind and size.

    Attributes:
        columns: Which, in schema order.
        size: Their cells.
        features: φ for each of them, of shape (columns, size, width).
        start: Where their features begin; those of one column are next to each other.
        bias_start: Where their shapes b begin.
    """

    columns: NDArray[np.int64]
    size: int
    features: NDArray[np.float32]
    start: int
    bias_start: int

    @property
    def count(self) -> int:
        """How many columns."""
        return len(self.columns)

    @property
    def width(self) -> int:
        """Features of each column."""
        return int(self.features.shape[2])

    def cells(self, codes: Array) -> Array:
        """Return the block's columns of rows of cells: a slice where they are next to each other, which is quicker."""
        first, last = int(self.columns[0]), int(self.columns[-1])
        return codes[:, first : last + 1] if last - first + 1 == self.count else codes[:, self.columns]

    @property
    def plain(self) -> bool:
        """Whether features are indicators of all cells but the first."""
        return self.width == self.size - 1


@lru_cache(maxsize=64)
def _blocks(specs: tuple[ColumnSpec, ...]) -> tuple[Block, ...]:
    kinds = dict.fromkeys((bool(spec.places), spec.size, spec.width) for spec in specs)
    made, start, bias_start = [], 0, 0
    for ordered, size, width in kinds:
        members = [
            place
            for place, spec in enumerate(specs)
            if (bool(spec.places), spec.size, spec.width) == (ordered, size, width)
        ]
        features = np.stack([specs[place].features() for place in members]).astype(np.float32)
        made.append(Block(np.array(members), size, features, start, bias_start))
        start += len(members) * width
        bias_start += len(members) * (size - 1)
    return tuple(made)


@dataclass(frozen=True)
class Columns:
    """All columns of a table, in schema order.

    Args:
        specs: One for each column.
    """

    specs: tuple[ColumnSpec, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The columns by kind and size."""
        return _blocks(self.specs)

    @cached_property
    def width(self) -> int:
        """The number of features of a row."""
        return sum(spec.width for spec in self.specs)

    @cached_property
    def biases(self) -> int:
        """The number of free entries of all shapes b."""
        return sum(spec.size - 1 for spec in self.specs)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """Which column each feature belongs to."""
        owner = np.empty(self.width, dtype=np.int64)
        for block in self.blocks:
            owner[block.start : block.start + block.count * block.width] = np.repeat(block.columns, block.width)
        return owner

    @cached_property
    def bias_owner(self) -> NDArray[np.int64]:
        """Which column each entry of the shapes belongs to."""
        owner = np.empty(self.biases, dtype=np.int64)
        for block in self.blocks:
            cells = block.size - 1
            owner[block.bias_start : block.bias_start + block.count * cells] = np.repeat(block.columns, cells)
        return owner

    def features(self, codes: Array, np_like: Any) -> Array:
        """Return the features of rows of cells, of shape (rows, width).

        Args:
            codes: Cells, of shape (rows, columns).
            np_like: ``jax.numpy`` or ``numpy``.
        """
        parts = []
        for block in self.blocks:
            cells = block.cells(codes)
            if block.size == 2:
                parts.append(cells.astype(np.float32))
            else:
                values = np_like.asarray(block.features)[np.arange(block.count), cells.astype(np.int32)]
                parts.append(values.reshape(codes.shape[0], block.count * block.width))
        return np_like.concatenate(parts, axis=1)

    def log_laws(self, outputs: Array, biases: Array, np_like: Any, block: Block) -> Array:
        """Return the log-probabilities of the cells of a block's columns, of shape (rows, columns, size)."""
        logits = self._logits(outputs, biases, np_like, block)
        logits = logits - logits.max(axis=-1, keepdims=True)
        return logits - np_like.log(np_like.exp(logits).sum(axis=-1, keepdims=True))

    def log_likelihood(self, codes: Array, outputs: Array, biases: Array) -> Array:
        """Return log p of each row (jax arrays), summed over its columns."""
        import jax
        import jax.numpy as jnp

        # jax's own derivative goes through the value, which trainings need not know: several times as slow.
        softplus: Any = jax.custom_jvp(jax.nn.softplus)
        softplus.defjvps(lambda d, _, x: d / (1 + jnp.exp(-x)))
        total: Array = 0.0
        for block in self.blocks:
            cells = block.cells(codes)
            if block.size == 2:
                score = self._own(outputs, block.start, block) + self._own(biases, block.bias_start, block)
                total += (cells.astype(jnp.float32) * score - softplus(score)).sum(axis=-1)
            elif block.size > 2:
                logits = self._logits(outputs, biases, jnp, block)
                chosen = jnp.take_along_axis(logits, cells.astype(jnp.int32)[..., None], axis=-1)[..., 0]
                total += (chosen - jax.nn.logsumexp(logits, axis=-1)).sum(axis=-1)
        return total

    def _logits(self, outputs: Array, biases: Array, np_like: Any, block: Block) -> Array:
        rows = outputs.shape[0]
        u = outputs[:, block.start : block.start + block.count * block.width]
        b = biases[:, block.bias_start : block.bias_start + block.count * (block.size - 1)]
        u, b = u.reshape(rows, block.count, block.width), b.reshape(rows, block.count, block.size - 1)
        first = np_like.zeros((rows, block.count, 1), b.dtype)
        if block.plain and np.array_equal(block.features[0], np.eye(block.size)[:, 1:]):
            return np_like.concatenate([first, u + b], axis=-1)
        tilt = np_like.einsum("rcf,csf->rcs", u, np_like.asarray(block.features))
        return np_like.concatenate([first, b], axis=-1) + tilt

    @staticmethod
    def _own(numbers: Array, start: int, block: Block) -> Array:
        return numbers[:, start : start + block.count]
