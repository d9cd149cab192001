r"""Which record goes into which block: public rules, fixed before a row is read.

**By position** (``replace_one``, row unit). The number of rows N is public. Row i gets a seat from a public random
permutation, and the seats are cut into k blocks of n; what is left over takes no part. A replaced row keeps its
position, so it changes one block. The rows' *order* must not depend on their values in a way that one row's values move
the others: a query that sorts by a column breaks this, a file in the order in which it was written does not.

**By value** (person unit, or ``add_remove``). A public hash of the person id (of the row's own values, for the row
unit) names the block. Adding or removing one changes one block; replacing one may change two, the one it leaves and the
one it enters.

**How many.** At ε the noise on the sum of votes has scale 2/ε: about 20/ε blocks that mostly agree stand out of it,
and fewer than 20 are made only where rows are few. A block needs records to see a direction, at least ``SMALLEST`` of
them, and gains nothing from more than ``LARGEST``: a large table gives more blocks instead, up to ``MOST_ROWS`` rows
in all, which are drawn from the whole table by position.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from escudo._validate import whole
from escudo.errors import InputError
from escudo.orientation._planning import SMALLEST, rows_needed
from escudo.orientation._reading import Batch
from escudo.privacy import Relation, Unit

__all__ = ["FEWEST", "LARGEST", "MOST_ROWS", "Layout", "layout_of"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

FEWEST = 20
"""Blocks, wherever there are rows for them."""

LARGEST = 2048
"""Records in a block, at most."""

MOST_ROWS = 2**22
"""Rows that take part, at most."""

_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # odd multipliers of a 64-bit mixing function


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Blocks of records: how many, how large, and by which public rule.

    Attributes:
        blocks: How many.
        size: Records in a block: exactly by position, at most by value.
        rows: The public number of rows, by position; None by value.
        assigned_by: Whether the position or the values of a record choose its block.
        shuffle: The public seed of the permutation or hash.
        sensitivity: How many units the sum of the votes moves between neighbours.
    """

    blocks: int
    size: int
    rows: int | None
    assigned_by: Literal["position", "value"]
    shuffle: int
    sensitivity: int

    def gather(self, batches: Iterable[Batch], columns: int) -> Floats:
        """Return the records of every block, shape (blocks, size, columns), NaN where missing or a seat is empty."""
        seated = np.full((self.blocks * self.size, columns), np.nan)
        if self.assigned_by == "position":
            self._by_position(batches, seated)
        else:
            self._by_value(batches, seated)
        return seated.reshape(self.blocks, self.size, columns)

    def _by_position(self, batches: Iterable[Batch], seated: Floats) -> None:
        positions, seats = self._seats()
        start = 0
        for batch in batches:
            stop = start + len(batch.values)
            first, last = np.searchsorted(positions, (start, stop))
            seated[seats[first:last]] = batch.values[positions[first:last] - start]
            start = stop

    def _seats(self) -> tuple[Indices, Indices]:
        """Return the positions of the rows that take part, increasing, and the seat of each."""
        assert self.rows is not None
        rng = np.random.default_rng(self.shuffle)
        used = self.blocks * self.size
        if self.rows < 2 * used:
            everyone = rng.permutation(self.rows)
            positions = np.flatnonzero(everyone < used)
            return positions, everyone[positions]
        stride = self.rows // used  # one row of every stretch, so that rows come from the whole table
        return np.arange(used) * stride + rng.integers(0, stride, used), rng.permutation(used)

    def _by_value(self, batches: Iterable[Batch], seated: Floats) -> None:
        filled = np.zeros(self.blocks, dtype=np.int64)
        for batch in batches:
            whose = batch.person if batch.person is not None else _row_hash(batch.values)
            block = (_mixed(whose.astype(np.uint64), self.shuffle) % np.uint64(self.blocks)).astype(np.int64)
            order = np.argsort(block, kind="stable")
            counts = np.bincount(block, minlength=self.blocks)
            within = np.arange(block.size) - np.repeat(np.cumsum(counts) - counts, counts)
            slot = filled[block[order]] + within
            fits = slot < self.size  # a full block turns further records away, whoever they are
            seated[block[order][fits] * self.size + slot[fits]] = batch.values[order][fits]
            filled += counts


def layout_of(
    *,
    epsilon: float,
    rows: int | None,
    relation: Relation,
    unit: Unit,
    blocks: int | None = None,
    shuffle: int = 0,
) -> Layout:
    """Choose the blocks from public facts.

    Args:
        epsilon: What one vote may cost.
        rows: The public number of rows, or of people for the person unit.
        relation: Which tables are neighbours.
        unit: Whose data differs.
        blocks: How many blocks, if not by the rule above.
        shuffle: The public seed of the permutation; choose it before you look at any data.

    Raises:
        InputError: If the number of rows is not known, or too small for two blocks.
    """
    by_position = relation == "replace_one" and unit == "row"
    sensitivity = 2 if by_position or relation == "add_remove" else 4
    many = "people" if unit == "person" else "rows"
    if rows is None:
        raise InputError(
            "how many blocks to make depends on the number of rows, which is private under add_remove and unknown "
            f"without a table: state a rough public number with rows=..., counting {many}."
        )
    if rows < 2 * SMALLEST:
        raise InputError(
            f"{rows} {many} are too few for any private answer: a clear pair needs about N = "
            f"{rows_needed(epsilon, sensitivity=sensitivity):,} {many} at this ε."
        )
    wanted = max(FEWEST, round(10 * sensitivity / epsilon), -(-rows // LARGEST))
    count = whole("blocks", blocks, minimum=2) if blocks is not None else max(2, min(wanted, rows // SMALLEST))
    if rows < 2 * count:
        raise InputError(f"{rows} rows do not fill {count} blocks; ask for fewer blocks.")
    # By value the blocks differ in size, and people in their rows: room for eight times as many.
    size = min((1 if by_position else 8) * (rows // count), LARGEST)
    return Layout(
        blocks=min(count, MOST_ROWS // size),
        size=size,
        rows=rows if by_position else None,
        assigned_by="position" if by_position else "value",
        shuffle=whole("shuffle", shuffle),
        sensitivity=sensitivity,
    )


def _row_hash(values: Floats) -> NDArray[np.uint64]:
    """Return a public hash of each row's own values, all NaNs alike."""
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)
    state = np.zeros(len(values), dtype=np.uint64)
    for column in range(values.shape[1]):
        state = _mixed(state ^ bits[:, column], column + 1)
    return state


def _mixed(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Scramble 64-bit numbers: distinct ones stay distinct, neighbouring ones end far apart."""
    state = numbers + np.uint64((_MIX[0] * (seed + 1)) % 2**64)
    for shift, multiplier in ((30, _MIX[1]), (27, _MIX[2])):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(multiplier)
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed
