r"""Moments of a table: how often levels occur, and how often two of them occur together, as one clipped vector sum.

A row's vector v holds a 2 for each column that is not at its first level (at that level's place), a 2 for each pair
(cause, effect) of which neither is at its first level, and a 1 for each such *candidate* pair; all else is 0. So its
squared length N is a whole number. Each row enters the sum as :math:`f_N v` with the whole number

.. math:: f_N = \lfloor \sqrt{2^{40} / \max(N, L)} \rfloor,

the same for all rows of squared length up to the clip bound L, and smaller for longer ones. Candidates are pairs
without an arrow, measured in case one is missing; at half strength they add little length, and get twice the noise.

**Sensitivity.** :math:`\|f_N v\|_2^2 = f_N^2 N \le 2^{40}`, in whole numbers, whatever L is. Adding or removing a row
moves the sum by at most 2²⁰ in l2 norm. Replacing one moves it by a - b with entries of a and b not negative, so
:math:`\|a - b\|^2 = \|a\|^2 + \|b\|^2 - 2\, a \cdot b \le 2 \cdot 2^{40}`. A person's k rows add up to a vector with
entries not negative and of length at most :math:`k\,2^{20}` (triangle inequality), so both grow by k: they are 2²⁰
times those of one contingency table (:func:`~escudo.table.count_sensitivity`). Sums of whole numbers below 2⁵³ are
exact in floating point, in any order, so nothing is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from escudo.synthesis._structure import Arrow
from escudo.table import PrivateTable

if TYPE_CHECKING:
    from scipy.sparse import csr_array

UNIT = 2**20
"""The longest a row's vector can be in the sum."""

_LEVEL = 2  # what a level or a pair counts in a row's vector, where a candidate counts 1
_FEW = 1 / 16  # of all pairs of columns; fewer are cheaper in a sparse matrix
_SMALL_BLOCK = 8  # up to so many entries, a pair is cheaper in a matrix product than counted on its own
_BATCH_NUMBERS = 2**22
_MAX_BATCH = 2**16

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.integer]
Block: TypeAlias = str | Arrow


@dataclass(frozen=True)
class MomentLayout:
    """Which entries a moment vector has: levels of columns, of pairs, of candidates, always without first levels.

    Attributes:
        sizes: Cells of each column, in the order of the code columns.
        pairs: Pairs (cause, effect) whose levels are counted together.
        candidates: More of them, counted at half strength.
    """

    sizes: Mapping[str, int]
    pairs: tuple[Arrow, ...]
    candidates: tuple[Arrow, ...] = ()

    def __post_init__(self) -> None:
        # Named twice, a pair would be counted twice, and one row could move the sum further than was proved.
        assert len({*self.pairs, *self.candidates}) == len(self.pairs) + len(self.candidates), "a pair is named twice"

    @property
    def size(self) -> int:
        """The number of entries."""
        return sum(self.lengths.values())

    @property
    def largest_square(self) -> int:
        """The largest squared length a row can have: at most one entry of each block is not 0."""
        return sum(self._strength(block) ** 2 for block, length in self.lengths.items() if length)

    @cached_property
    def lengths(self) -> dict[Block, int]:
        """How many entries each column and pair has; a pair's come row by row, a row for a level of the cause."""
        lengths: dict[Block, int] = {name: size - 1 for name, size in self.sizes.items()}
        pairs = {(a, b): (self.sizes[a] - 1) * (self.sizes[b] - 1) for a, b in (*self.pairs, *self.candidates)}
        return lengths | pairs

    @cached_property
    def starts(self) -> dict[Block, int]:
        """Where the entries of each column and pair begin."""
        ends = np.cumsum(list(self.lengths.values())).tolist()
        return {block: end - length for (block, length), end in zip(self.lengths.items(), ends, strict=True)}

    @cached_property
    def strengths(self) -> Integers:
        """What each entry is in a row that has it."""
        each = np.array([self._strength(block) for block in self.lengths], dtype=np.int64)
        return np.repeat(each, list(self.lengths.values()))

    @cached_property
    def pair_squares(self) -> csr_array | NDArray[np.float32]:
        """By how much a pair adds to a row's squared length, at (effect, cause): sparse where pairs are few."""
        from scipy.sparse import csr_array

        place = {name: number for number, name in enumerate(self.sizes)}
        pairs = [block for block in self.lengths if not isinstance(block, str)]
        squares = np.array([self._strength(pair) ** 2 for pair in pairs], dtype=np.float32)
        ends = np.array([(place[effect], place[cause]) for cause, effect in pairs], dtype=np.int64).reshape(-1, 2)
        sparse = csr_array((squares, (ends[:, 0], ends[:, 1])), shape=(len(place), len(place)))
        return sparse if len(pairs) < _FEW * len(place) ** 2 else sparse.toarray()

    @cached_property
    def ends(self) -> Integers:
        """For each entry of a pair the entries of its two levels by themselves, shape (2, entries of pairs)."""

        def levels(name: str) -> Integers:
            return self.starts[name] + np.arange(self.lengths[name])

        pairs = [block for block in self.lengths if not isinstance(block, str)]
        causes = [np.repeat(levels(cause), self.lengths[effect]) for cause, effect in pairs]
        effects = [np.tile(levels(effect), self.lengths[cause]) for cause, effect in pairs]
        nothing = np.zeros(0, dtype=np.int64)
        return np.stack([np.concatenate([nothing, *causes]), np.concatenate([nothing, *effects])])

    def family(self, child: str, parents: Sequence[str]) -> Integers:
        """Return where the entries of a family are: a row for the child alone, then one per level of each parent.

        Columns are the child's levels; -1 where a pair was not counted, in either order.
        """
        width = self.sizes[child] - 1
        blocks = [self.starts[child] + np.arange(width)[None, :]]
        for parent in parents:
            height = self.sizes[parent] - 1
            if (parent, child) in self.starts:
                entries = self.starts[parent, child] + np.arange(height * width).reshape(height, width)
            elif (child, parent) in self.starts:
                entries = self.starts[child, parent] + np.arange(height * width).reshape(width, height).T
            else:
                entries = np.full((height, width), -1)
            blocks.append(entries)
        return np.concatenate(blocks)

    def block(self, arrow: Arrow) -> Arrow:
        """Return the pair that counts the levels of both ends of an arrow together, whichever is its cause."""
        return arrow if arrow in self.starts else (arrow[1], arrow[0])

    def places(self, part: MomentLayout) -> Integers:
        """Return where the entries of a layout are whose columns and pairs this one has as well."""
        blocks = [self.starts[block] + np.arange(length) for block, length in part.lengths.items()]
        return np.concatenate([np.zeros(0, dtype=np.int64), *blocks])

    def bound(self, square: float) -> int:
        """Return the clip bound nearest to a squared length: no tighter than one level, no looser than needed."""
        return max(math.floor(min(square, self.largest_square)), _LEVEL**2)

    @cached_property
    def products(self) -> Products:
        """How pairs are counted."""
        return Products(self)

    @cached_property
    def _faint(self) -> frozenset[Block]:
        return frozenset(self.candidates)

    def _strength(self, block: Block) -> int:
        return 1 if block in self._faint else _LEVEL


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMoments:
    """A released moment vector, in rows: clipped sums, and the standard deviation of the noise in each.

    Attributes:
        layout: What the entries are.
        values: The noisy sums; a row within the clip bound counts as 1.
        scale: Standard deviations of the noise.
        square: The clip bound on squared lengths.
        rows: The number of rows, public or noisy.
    """

    layout: MomentLayout
    values: Floats
    scale: Floats
    square: int
    rows: float

    @classmethod
    def from_release(
        cls, layout: MomentLayout, released: Floats, scale: float, square: int, rows: float
    ) -> NoisyMoments:
        """Return a released vector with noise ``scale``, in rows."""
        one = (math.isqrt(UNIT**2 // square) * layout.strengths).astype(np.float64)
        return cls(layout, released / one, scale / one, square, max(rows, 1.0))


def clip_factors(layout: MomentLayout, square: int) -> Integers:
    """Return the whole number that a row of each squared length, from 0 up, is multiplied with."""
    lengths = range(layout.largest_square + 1)
    return np.array([math.isqrt(UNIT**2 // max(length, square)) for length in lengths], dtype=np.int64)


def row_squares(layout: MomentLayout, codes: Codes) -> Integers:
    """Return the squared length of each row's vector, before clipping."""
    present = (np.ascontiguousarray(codes.T) != 0).astype(np.float32)
    # Whole numbers below 2^24, so exact: for each column that is on, its own square and those with causes that are on.
    squares = layout.pair_squares @ present
    squares += _LEVEL**2
    squares *= present
    found: Integers = squares.sum(axis=0).astype(np.int64)
    return found


def row_sums(table: PrivateTable, layout: MomentLayout, add_up: Callable[[Iterator[Codes]], Integers]) -> Integers:
    """Return sums over the layout's columns as arrays of codes, of a size that keeps memory small."""
    size = min(_MAX_BATCH, max(_BATCH_NUMBERS // sum(layout.sizes.values()), 256))
    return table.sums(add_up, size, list(layout.sizes))


def table_sums(table: PrivateTable, layout: MomentLayout, square: int) -> tuple[Integers, int]:
    """Return the clipped sum of a private table's rows, and their number; both are private."""
    factors = clip_factors(layout, square)

    def add_up(batches: Iterator[Codes]) -> Integers:
        rows = 0

        def weighted() -> Iterator[tuple[Codes, Integers]]:
            nonlocal rows
            for codes in batches:
                rows += len(codes)
                yield codes, factors[row_squares(layout, codes)]

        return np.append(sum_rows(layout, weighted()), rows)

    found = row_sums(table, layout, add_up)
    return found[:-1], int(found[-1])


def sum_rows(layout: MomentLayout, parts: Iterable[tuple[Codes, Integers]]) -> Integers:
    """Return the sum of the rows' vectors over all parts, each row times its weight.

    Args:
        layout: What the entries are.
        parts: Codes of shape (rows, columns) and whole-number weights of shape (rows,).

    Returns:
        The entries, exact while they stay below 2⁵³.
    """
    products = layout.products
    total = np.zeros(layout.size)
    blocks = [np.zeros(entries.shape) for entries in products.entries]

    def add(block: Block, cells: Codes, shape: tuple[int, ...]) -> None:
        counted = np.bincount(cells, weights, minlength=math.prod(shape)).reshape(shape)
        kept = counted[tuple(slice(1, None) for _ in shape)].ravel()
        total[layout.starts[block] :][: kept.size] += kept

    for codes, whole in parts:
        weights = whole.astype(np.float64)
        for name, place in products.others:
            add(name, codes[:, place], (layout.sizes[name],))
        for pair, cause, effect in products.large:
            shape = layout.sizes[pair[0]], layout.sizes[pair[1]]
            add(pair, codes[:, cause].astype(np.int64) * shape[1] + codes[:, effect], shape)
        by_column = np.ascontiguousarray(codes.T)
        present = (by_column[products.column] == products.level[:, None]).astype(np.float64)
        total[products.single] += present @ weights
        weighted = present * weights
        for block, (causes, effects) in zip(blocks, products.groups, strict=True):
            block += present[causes] @ weighted[effects].T
    for block, entries in zip(blocks, products.entries, strict=True):
        total[entries] = block
    return total.astype(np.int64) * layout.strengths


class Products:
    """How pairs are counted: small ones in one matrix product for all effects with the same causes.

    Attributes:
        column: For each indicator in the products the code column it reads.
        level: And the level at which it is 1.
        groups: For each group the indicators of its causes and of its effects.
        entries: For each group which entry of the moment vector each cell of its product is.
        single: Which entry each indicator is by itself.
        large: The other pairs, with their code columns.
        others: The columns that have no indicators, with their code columns.
    """

    def __init__(self, layout: MomentLayout):
        place = {name: number for number, name in enumerate(layout.sizes)}
        causes: dict[str, list[str]] = {}
        self.large: list[tuple[Arrow, int, int]] = []
        for cause, effect in (*layout.pairs, *layout.candidates):
            length = layout.lengths[cause, effect]
            if 0 < length <= _SMALL_BLOCK:
                causes.setdefault(effect, []).append(cause)
            elif length:
                self.large.append(((cause, effect), place[cause], place[effect]))
        groups: dict[tuple[str, ...], list[str]] = {}
        for effect, several in causes.items():
            groups.setdefault(tuple(sorted(several)), []).append(effect)
        used = dict.fromkeys(name for key, effects in groups.items() for name in (*key, *effects))
        ends = np.cumsum([layout.lengths[name] for name in used]).tolist()
        indicators = {name: np.arange(end - layout.lengths[name], end) for name, end in zip(used, ends, strict=True)}
        self.column = np.array([place[name] for name in used for _ in indicators[name]], dtype=np.int64)
        self.level = np.array([level + 1 for name in used for level in range(layout.lengths[name])], dtype=np.int64)
        starts = [layout.starts[name] + level for name in used for level in range(layout.lengths[name])]
        self.single = np.array(starts, dtype=np.int64)
        self.others = [(name, number) for name, number in place.items() if name not in used]
        self.groups: list[tuple[Integers, Integers]] = []
        self.entries: list[Integers] = []
        for key, effects in groups.items():
            both = [np.concatenate([indicators[name] for name in names]) for names in (key, effects)]
            self.groups.append((both[0], both[1]))
            families = [layout.family(effect, key)[1:] for effect in effects]
            self.entries.append(np.concatenate(families, axis=1))
