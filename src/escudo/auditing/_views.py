"""Ways of cutting outputs into cells, learnt from earlier runs, and which of them tells the two datasets apart best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import Belief, about_claims, along_cells, cell_by_cell, smoothed, towards_corner
from escudo.auditing._columns import Column, Cut, columns_of, cut
from escudo.auditing._corners import CornerCells, fit_corners
from escudo.auditing._guesses import Guess, best_guesses, cautious_worth, seen_worth
from escudo.auditing._joint import MOST_CELLS, joint_cells, mean_levels
from escudo.auditing._logistic import fit_logistic
from escudo.auditing._outputs import Encoded
from escudo.auditing._scores import Labels, Score, fit_additive, fit_boosted, fit_linear
from escudo.auditing._stakes import promised, sets_of
from escudo.auditing._strata import fit_stratified

__all__ = ["Chosen", "NumberCells", "Partition", "Use", "choose_views", "count", "promise"]

Floats = NDArray[np.float64]

_SCREENED = 60_000  # rows on which columns are compared
_TREE_ROWS = 400_000
_TREE_COLUMNS = 40
_FEW = 32
_SIMPLE = 0.1  # by which part of its worth something simple is preferred
# The best may be the luckiest. Standard errors by which what is believed of it is lowered:
_OF_FEW = 1.4  # of a column, or of whole outputs,
_OF_MANY = 2.0  # of the best of many corners, or what was fitted to labels,
_CHECKED = 1.0  # and of what is seen in runs that did not choose it


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

    @property
    def levels(self) -> Floats | None:
        """The log ratio that is claimed for each cell, if it was learnt."""

    def __call__(self, outputs: Encoded) -> NDArray[np.intp]:
        """Return the cell of each output."""

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A partition and the order of its cells: their own, or that of their likelihood ratio in some earlier runs.

    Attributes:
        partition: The cells.
        order: Their order.
    """

    partition: Partition
    order: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A way of cutting outputs into cells, and what earlier runs say about it.

    Attributes:
        use: The cells and their order.
        belief: What is believed of them.
        counts: Runs per cell and dataset to bet by.
    """

    use: Use
    belief: Belief
    counts: Floats


@dataclass(frozen=True, slots=True, eq=False)
class NumberCells:
    """Cells of one column or score."""

    of: Column | Score
    chosen: Cut
    learnt: bool
    ordered: bool = True
    levels: Floats | None = None

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
        # Structures are whole numbers, one to a cell: the cell of code c starts at c, and the first one is empty.
        return self.chosen.edges[np.flatnonzero(cells[1:-1])]


def count(partition: Partition, outputs: Encoded, labels: Labels) -> Floats:
    """Return runs per cell and dataset, shape (cells, 2)."""
    return _counted(partition(outputs), labels, partition.cells)


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
    checked: bool = False,
) -> list[Chosen]:
    """Return the two best ways of cutting outputs into cells, the best first, with what earlier runs say.

    Of a partition that was fitted to labels, what is believed comes from runs that it was not fitted on.

    Args:
        outputs: Earlier outputs.
        labels: Whether each came from the second dataset.
        references: Noiseless answers of the two datasets, where known.
        structures: What the codes of outputs mean.
        delta: The δ of the claim.
        ahead: About how many runs are still to come.
        rng: For fitting.
        last_bits: Whether the last bits of floats are looked at.
        checked: Whether ways are compared by what each half of the runs shows of guesses that the other half chose;
            this takes twice as long, and is for a choice that is made once.
    """
    held = np.arange(labels.size) % 2 == 1
    how = {"delta": delta, "ahead": max(ahead, 1.0)}
    found: list[tuple[float, Chosen]] = []
    for partition in _candidates(outputs, labels, ~held, references, structures, delta, ahead, rng, last_bits):
        cells = partition(_part(outputs, held) if partition.learnt else outputs)
        known = labels[held] if partition.learnt else labels
        halves = tuple(_counted(cells[i::2], known[i::2], partition.cells) for i in (0, 1))
        belief = _believed(partition, halves[0] + halves[1])
        apart = [_believed(partition, half) for half in halves] if checked else []
        judged = []
        for way, order in enumerate(_orders(partition, belief)):
            _, guess = best_guesses(belief, order, **how)
            errors = _OF_MANY if partition.learnt or isinstance(partition, CornerCells) else _OF_FEW
            worth = cautious_worth(belief, guess, errors=errors, **how)
            if checked:
                guesses = [best_guesses(half, _orders(partition, half)[way], **how)[1] for half in apart]
                worth = min(worth, _checked(halves, guesses, **how))
            simple = not partition.learnt and (way > 0 or not partition.ordered)
            # What is simple can be told in words, and less luck goes into choosing it.
            judged.append((worth + (_SIMPLE * abs(worth) if simple else 0.0), order))
        worth, order = max(judged, key=lambda entry: entry[0])
        found.append((worth, Chosen(Use(partition, order), belief, _to_bet_by(partition, belief, halves))))
    found.sort(key=lambda entry: -entry[0])
    return [chosen for _, chosen in found[:2]]


def _checked(halves: Sequence[Floats], guesses: Sequence[Guess], *, delta: float, ahead: float) -> float:
    """Return the bound that is promised by what each half of the runs shows of guesses that the other half chose."""
    right = wrong = 0.0
    for fresh, guess in zip(halves, guesses[::-1], strict=True):
        right += float(fresh[guess > 0, 1].sum() + fresh[guess < 0, 0].sum())
        wrong += float(fresh[guess > 0, 0].sum() + fresh[guess < 0, 1].sum())
    runs = float(halves[0].sum() + halves[1].sum())
    return seen_worth(right, wrong, runs=runs, delta=delta, ahead=ahead, errors=_CHECKED)


def _orders(partition: Partition, belief: Belief) -> list[NDArray[np.intp]]:
    """Return orders of cells, at whose ends guesses are made: what is claimed or believed, and their own both ways."""
    if partition.levels is not None:
        return [np.argsort(partition.levels, kind="stable")]
    own = np.arange(partition.cells)
    return [np.argsort(belief.level, kind="stable"), *([own, own[::-1]] if partition.ordered else [])]


def _believed(partition: Partition, counts: Floats) -> Belief:
    """Return what is believed of the cells of a partition in view of runs."""
    if partition.levels is not None:
        return about_claims(partition.levels, counts)
    if not partition.ordered:
        return cell_by_cell(counts)
    return towards_corner(counts) if isinstance(partition, CornerCells) else along_cells(counts)


def _to_bet_by(partition: Partition, belief: Belief, halves: Sequence[Floats]) -> Floats:
    """Return the counts to bet by: as believed of scores, smoothed along an order, or as they are."""
    if partition.levels is not None:
        return belief.counts
    return smoothed((halves[0], halves[1])) if partition.ordered else halves[0] + halves[1]


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
    most = int(min(MOST_CELLS, max(5.0, 1.2 * math.sqrt(size))))
    points = [float(r[0]) for r in references if r.size and np.isfinite(r[0])] if outputs.values.shape[1] == 1 else []
    single = _best_columns(columns, outputs, labels, most, points, delta, ahead)
    found: list[Partition] = list(single)
    joint = joint_cells(outputs, labels, fitting, structures)
    plain = outputs.values.shape[1] == 1 and not outputs.codes.any()
    if joint is not None and (joint.cells <= _FEW or not plain):
        # The same cells as those of the number itself have better words.
        found = [joint, *(cells for cells in single if not (plain and cells.of.name == "output"))]
    if len(columns) < 2 or size < 400:
        return found
    seen, known = _part(outputs, fitting), labels[fitting]
    scores: list[Score] = []
    values = [c for c in columns if c.name.startswith(("entry", "output")) and "minus" not in c.name]
    if len(values) > 1:
        chain = [values[0], *(c for c in columns if "minus" in c.name and _adjacent(c.name))]
        for chosen in (values, chain):
            scores += [fit_additive(chosen, seen, known, cells=cells) for cells in (2, 16)]
            smooth = fit_logistic(chosen, seen, known, crossed=chosen is values)
            scores += [smooth] if smooth is not None else []
        scores += fit_stratified(values, seen, known)
        found += fit_corners(values, outputs, labels, delta=delta, ahead=ahead)
        linear = fit_linear(_part(seen, slice(0, _TREE_ROWS)), known[:_TREE_ROWS])
        scores += [linear] if linear is not None else []
    if size >= 2000 and len(values) > 1:
        rows = slice(0, _TREE_ROWS)
        scores.append(fit_boosted(columns[:_TREE_COLUMNS], _part(seen, rows), known[rows], rng=rng))
    for score in scores:
        sample = score(_part(seen, slice(0, 300_000)))
        cells = cut(sample, most)
        found.append(NumberCells(score, cells, learnt=True, levels=mean_levels(sample, cells)))
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
) -> list[NumberCells]:
    """Return cells of the few columns that tell most by themselves, found on some of the rows."""
    rows = slice(0, _SCREENED)
    screened, known = _part(outputs, rows), labels[rows]
    judged = []
    for column in columns:
        cells = _cells_of(column, screened, min(most, 32), points)
        counts = count(cells, screened, known)
        belief = along_cells(counts) if cells.ordered else cell_by_cell(counts)
        judged.append((best_guesses(belief, np.argsort(belief.level), delta=delta, ahead=ahead)[0], cells))
    judged.sort(key=lambda entry: -entry[0])
    if labels.size <= _SCREENED and most <= 32:
        return [cells for _, cells in judged[:3]]
    return [_cells_of(cells.of, outputs, most, points) for _, cells in judged[:3]]


def _cells_of(column: Column | Score, outputs: Encoded, most: int, points: Sequence[float]) -> NumberCells:
    """Return cells of a column; one for each structure, whose codes have no order that means anything."""
    numbers = column(outputs)
    chosen = cut(numbers, most, points)
    if column.name != "structure":
        return NumberCells(column, chosen, learnt=False)
    return NumberCells(column, Cut(np.append(numbers.min(), chosen.edges)), learnt=False, ordered=False)
