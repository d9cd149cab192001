"""Ways of cutting outputs into cells, learnt from earlier runs, and which of them tells the two datasets apart best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._columns import Column, Cut, columns_of, cut
from escudo.auditing._outputs import Encoded
from escudo.auditing._scores import Labels, Score, fit_additive, fit_boosted, fit_grid, fit_linear
from escudo.auditing._stakes import promised, sets_of

__all__ = ["NumberCells", "Partition", "Use", "choose_views", "count", "promise"]

Floats = NDArray[np.float64]

_MOST_CELLS = 96
_SCORE_CELLS = 48
_SCREENED = 60_000  # rows on which columns are compared
_TREE_ROWS = 400_000
_GRID_COLUMNS = 4  # up to so many numbers every two are looked at together
_TREE_COLUMNS = 40
_ODD = np.random.default_rng(3).integers(1, 2**62, size=300, dtype=np.uint64) * 2 + 1


class Partition(Protocol):
    """Cells of the space of outputs."""

    @property
    def cells(self) -> int:
        """How many cells."""

    @property
    def learnt(self) -> bool:
        """Whether labels were looked at, so that earlier counts are too good to be true."""

    @property
    def ordered(self) -> bool:
        """Whether the cells' order means something."""

    def __call__(self, outputs: Encoded) -> NDArray[np.intp]:
        """Return the cell of each output."""

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A partition and the order of its cells: their own, or that of their likelihood ratio in some earlier runs."""

    partition: Partition
    order: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class NumberCells:
    """Cells of one column or score."""

    of: Column | Score
    chosen: Cut
    learnt: bool
    ordered: bool = True

    @property
    def cells(self) -> int:
        """How many cells."""
        return self.chosen.cells

    def __call__(self, outputs: Encoded) -> NDArray[np.intp]:
        return self.chosen(self.of(outputs))

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words: ranges of the column."""
        edges = np.concatenate([[-np.inf], self.chosen.edges, [np.inf]])
        parts, missing = [], bool(cells[-1]) and self.chosen.missing
        body = np.concatenate([[False], cells[:-1], [False]])
        starts, ends = np.flatnonzero(~body[:-1] & body[1:]), np.flatnonzero(body[:-1] & ~body[1:])
        if self.of.name == "structure":
            chosen = [structures[int(c)] for c in self._codes(cells) if int(c) < len(structures)]
            return "output is " + " or ".join(chosen[:4]) + (" or others" if len(chosen) > 4 else "")
        for low, high in zip(edges[starts], edges[ends], strict=True):
            if np.isinf(low) and np.isinf(high):
                parts.append(f"{self.of.name} is a number")
            elif np.isinf(low):
                parts.append(f"{self.of.name} < {high:.6g}")
            elif np.isinf(high):
                parts.append(f"{self.of.name} ≥ {low:.6g}")
            else:
                parts.append(f"{low:.6g} ≤ {self.of.name} < {high:.6g}")
        if missing:
            parts.append(f"{self.of.name} has no number")
        return " or ".join(parts[:3]) + (f" or {len(parts) - 3} ranges more" if len(parts) > 3 else "")

    def _codes(self, cells: NDArray[np.bool_]) -> Floats:
        # Structures are whole numbers, one to a cell: the cell of code c starts at c.
        return np.concatenate([[0.0], self.chosen.edges])[np.flatnonzero(cells[:-1])]


@dataclass(frozen=True, slots=True, eq=False)
class JointCells:
    """One cell per distinct output, or groups of distinct outputs of like ratio; new outputs have the last cell."""

    keys: NDArray[np.uint64]  # sorted
    cell: NDArray[np.intp]
    cells: int
    learnt: bool
    shown: tuple[str, ...]
    ordered: bool = False

    def __call__(self, outputs: Encoded) -> NDArray[np.intp]:
        keys = _keys(outputs)
        place = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[place] == keys, self.cell[place], self.cells - 1)

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words: some of the outputs in them."""
        inside = [text for text, c in zip(self.shown, self.cell.tolist(), strict=True) if cells[c]]
        return (
            "output is " + " or ".join(inside[:4]) + (f" or one of {len(inside) - 4} more" if len(inside) > 4 else "")
        )


def _keys(outputs: Encoded) -> NDArray[np.uint64]:
    """Return a 64-bit key per output; equal outputs have equal keys, others differ but for bad luck."""
    values = outputs.values + 0.0  # so that -0.0 is 0.0
    bits = np.where(np.isnan(values), 7.0, values).view(np.uint64) + np.isnan(values).astype(np.uint64)
    filled = ~np.isnan(values)
    mixed = (bits ^ (bits >> np.uint64(29))) * _ODD[: values.shape[1]]
    mixed ^= mixed >> np.uint64(31)
    total = (mixed * filled).sum(axis=1, dtype=np.uint64)  # a missing number counts nothing, whatever the width
    return np.asarray(total + (outputs.codes.astype(np.uint64) + np.uint64(1)) * _ODD[-1])


def count(partition: Partition, outputs: Encoded, labels: Labels) -> Floats:
    """Return runs per cell and dataset, shape (cells, 2)."""
    found = np.bincount(partition(outputs) * 2 + labels, minlength=2 * partition.cells)
    return found.reshape(-1, 2).astype(np.float64)


def _by_ratio(counts: Floats) -> NDArray[np.intp]:
    """Return the cells in the order of their likelihood ratio, rare ones towards the middle."""
    ratio = np.log((counts[:, 1] + 0.5) / (counts[:, 0] + 0.5))
    noise = 1 / (counts[:, 1] + 0.5) + 1 / (counts[:, 0] + 0.5)
    return np.argsort(ratio / (1 + noise), kind="stable")


def promise(counts: Floats, order: NDArray[np.intp], *, delta: float, ahead: float) -> float:
    """Return the lower bound on ε that some set of cells is likely to give after ``ahead`` more runs."""
    _, first, second = sets_of(counts[order])
    n_first, n_second = (float(n) for n in counts.sum(axis=0))
    up = promised(second, first, (n_second, n_first), delta, ahead)
    down = promised(first, second, (n_first, n_second), delta, ahead)
    return float(max(up.max(), down.max()))


def choose_views(
    outputs: Encoded,
    labels: Labels,
    *,
    references: Sequence[Floats],
    structures: Sequence[str],
    delta: float,
    ahead: float,
    rng: np.random.Generator,
    last_bits: bool = True,
) -> list[tuple[Use, Floats]]:
    """Return the two best ways of cutting outputs into cells, each with its counts over earlier runs.

    Counts of a partition that was fitted to labels come from runs it was not fitted on.

    Args:
        outputs: Earlier outputs.
        labels: Whether each came from the second dataset.
        references: Noiseless answers of the two datasets, where known.
        structures: What the codes of outputs mean.
        delta: The δ of the claim.
        ahead: About how many runs are still to come.
        rng: For fitting.
        last_bits: Whether the last bits of floats are looked at.
    """
    held = np.arange(labels.size) % 4 == 3
    partitions = _candidates(outputs, labels, ~held, references, structures, delta, ahead, rng, last_bits)
    found: list[tuple[float, Use, Floats]] = []
    for partition in partitions:
        used = held if partition.learnt else np.ones(labels.size, dtype=bool)
        cells, known = partition(_part(outputs, used)), labels[used]
        if partition.ordered:
            use = Use(partition, np.arange(partition.cells))
            counts = _counted(cells, known, partition.cells)
            found.append((promise(counts, use.order, delta=delta, ahead=ahead), use, counts))
        # An order that is found on some runs is judged, and bet on, by others.
        half = np.arange(cells.size) % 2 == 0
        use = Use(partition, _by_ratio(_counted(cells[half], known[half], partition.cells)))
        counts = _counted(cells[~half], known[~half], partition.cells)
        found.append((promise(counts, use.order, delta=delta, ahead=ahead), use, counts))
    found.sort(key=lambda entry: -entry[0])
    return [(use, counts) for _, use, counts in found[:2]]


def _counted(cells: NDArray[np.intp], labels: Labels, size: int) -> Floats:
    return np.bincount(cells * 2 + labels, minlength=2 * size).reshape(-1, 2).astype(np.float64)


def _part(outputs: Encoded, rows: NDArray[np.bool_] | slice) -> Encoded:
    return Encoded(outputs.values[rows], outputs.codes[rows])


def _candidates(
    outputs: Encoded,
    labels: Labels,
    fitting: NDArray[np.bool_],
    references: Sequence[Floats],
    structures: Sequence[str],
    delta: float,
    ahead: float,
    rng: np.random.Generator,
    last_bits: bool,
) -> list[Partition]:
    size = labels.size
    columns = columns_of(_part(outputs, slice(0, 5000)), references, last_bits=last_bits)
    most = int(min(_MOST_CELLS, max(5.0, 1.2 * math.sqrt(size))))
    points = [float(r[0]) for r in references if r.size and np.isfinite(r[0])] if outputs.values.shape[1] == 1 else []
    single = _best_columns(columns, outputs, labels, most, points, delta, ahead)
    found: list[Partition] = list(single)
    joint = _joint(outputs, labels, fitting, structures)
    if joint is not None:
        found.append(joint)
    if len(columns) < 2 or size < 400:
        return found
    seen, known = _part(outputs, fitting), labels[fitting]
    scores: list[Score] = []
    values = [c for c in columns if c.name.startswith(("entry", "output")) and "minus" not in c.name]
    if len(values) > 1:
        chain = [values[0], *(c for c in columns if "minus" in c.name and _adjacent(c.name))]
        for cells in (3, 16):
            scores += [fit_additive(values, seen, known, cells=cells), fit_additive(chain, seen, known, cells=cells)]
        if len(values) <= _GRID_COLUMNS:
            scores += [fit_grid(two, seen, known) for two in combinations(values, 2)]
        linear = fit_linear(_part(seen, slice(0, _TREE_ROWS)), known[:_TREE_ROWS])
        scores += [linear] if linear is not None else []
    if size >= 2000:
        rows = slice(0, _TREE_ROWS)
        scores.append(fit_boosted(columns[:_TREE_COLUMNS], _part(seen, rows), known[rows], rng=rng))
    for score in scores:
        sample = score(_part(seen, slice(0, 300_000)))
        found.append(NumberCells(score, cut(sample, min(_SCORE_CELLS, most)), learnt=True))
    return found


def _adjacent(name: str) -> bool:
    first, second = (int(part.split()[1]) for part in name.split(" minus "))
    return second == first + 1


def _best_columns(
    columns: Sequence[Column],
    outputs: Encoded,
    labels: Labels,
    most: int,
    points: Sequence[float],
    delta: float,
    ahead: float,
) -> list[Partition]:
    """Return cells of the few columns that tell most by themselves, found on some of the rows."""
    rows = slice(0, _SCREENED)
    screened, known = _part(outputs, rows), labels[rows]
    judged = []
    for column in columns:
        cells = NumberCells(
            column, cut(column(screened), min(most, 32), points), learnt=False, ordered=column.name != "structure"
        )
        counts = count(cells, screened, known)
        judged.append((promise(counts, np.arange(cells.cells), delta=delta, ahead=ahead), cells))
    judged.sort(key=lambda entry: -entry[0])
    if labels.size <= _SCREENED and most <= 32:
        return [cells for _, cells in judged[:3]]
    return [
        NumberCells(cells.of, cut(cells.of(outputs), most, points), learnt=False, ordered=cells.ordered)
        for _, cells in judged[:3]
    ]


def _joint(
    outputs: Encoded, labels: Labels, fitting: NDArray[np.bool_], structures: Sequence[str]
) -> JointCells | None:
    """Return one cell per distinct output where outputs repeat, else None."""
    keys = _keys(outputs)
    distinct, first, place, times = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if distinct.size > max(4, min(4096, labels.size // 8)) or distinct.size < 2:
        return None
    shown = tuple(_shown(outputs, int(i), structures) for i in first)
    if distinct.size < _MOST_CELLS:
        return JointCells(distinct, np.arange(distinct.size), distinct.size + 1, False, shown)
    counts = np.bincount(place[fitting] * 2 + labels[fitting], minlength=2 * distinct.size).reshape(-1, 2)
    ratio = np.log((counts[:, 1] + 0.5) / (counts[:, 0] + 0.5))
    noise = 1 / (counts[:, 1] + 0.5) + 1 / (counts[:, 0] + 0.5)
    signal = max(1e-6, float(np.average(ratio**2 - noise, weights=times)))
    groups = cut(np.repeat(ratio * signal / (signal + noise), np.minimum(times, 50)), _MOST_CELLS - 2)
    cell = groups(ratio * signal / (signal + noise))
    return JointCells(distinct, cell, groups.cells + 1, True, shown)


def _shown(outputs: Encoded, row: int, structures: Sequence[str]) -> str:
    numbers = [f"{v:.6g}" for v in outputs.values[row] if not np.isnan(v)]
    structure = structures[int(outputs.codes[row])]
    if structure == "#":
        text = numbers[0] if len(numbers) == 1 else "(" + ", ".join(numbers) + ")"
    else:
        left = iter(numbers)
        text = "".join(next(left, "#") if mark == "#" else mark for mark in structure)
    return text if len(text) <= 60 else text[:57] + "..."
