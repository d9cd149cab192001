"""Ways of cutting outputs into cells, learnt from earlier runs, and which of them tells the two datasets apart best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import calibrated, cell_levels, smoothed
from escudo.auditing._columns import Column, Cut, columns_of, cut
from escudo.auditing._guesses import best_guesses, worth_of
from escudo.auditing._joint import MOST_CELLS, joint_cells, mean_levels
from escudo.auditing._logistic import fit_logistic
from escudo.auditing._outputs import Encoded
from escudo.auditing._scores import Boosted, Labels, Score, fit_additive, fit_boosted, fit_linear
from escudo.auditing._stakes import promised, sets_of

__all__ = ["NumberCells", "Partition", "Use", "choose_views", "count", "promise"]

Floats = NDArray[np.float64]

_SCREENED = 60_000  # rows on which columns are compared
_TREE_ROWS = 400_000
_TREE_COLUMNS = 40
_NOW = 0.4  # standard errors of what is known now,
_THEN = 2.0  # and of what will be known in the end, by which the promise of a view is lowered,
_FREE = 1.5  # and so many more where it can take any shape


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
        doubt: By how many standard errors earlier runs of a set of cells are likely to flatter it, if it is chosen for
            them: by less where a score has its own word on every cell.
    """

    partition: Partition
    order: NDArray[np.intp]
    doubt: float = 1.0


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
        # Structures are whole numbers, one to a cell: the cell of code c starts at c.
        return np.concatenate([[0.0], self.chosen.edges])[np.flatnonzero(cells[:-1])]


def count(partition: Partition, outputs: Encoded, labels: Labels) -> Floats:
    """Return runs per cell and dataset, shape (cells, 2)."""
    found = np.bincount(partition(outputs) * 2 + labels, minlength=2 * partition.cells)
    return found.reshape(-1, 2).astype(np.float64)


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
    held = np.arange(labels.size) % 3 == 2
    partitions = _candidates(outputs, labels, ~held, references, structures, delta, ahead, rng, last_bits)
    found: list[_Judged] = []
    for partition in partitions:
        used = held if partition.learnt else np.ones(labels.size, dtype=bool)
        found += _judged(partition, partition(_part(outputs, used)), labels[used], delta=delta, ahead=ahead)
    most = max(max(judged.told for judged in found), 1e-12)
    # What an output tells on the whole is known well, what its rarest sets tell is not: the first helps to judge the
    # second, by at most two standard errors.
    found.sort(key=lambda judged: 2 * judged.error * (1 - max(judged.told, 0.0) / most) - judged.worth)
    return [(judged.use, judged.counts) for judged in found[:2]]


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """A way of cutting outputs into cells.

    Attributes:
        use: The cells and their order.
        counts: Earlier runs per cell, to bet by.
        worth: The bound that a set of its cells promises.
        error: The standard error of that.
        told: What the cells tell about the label, in nats a run.
    """

    use: Use
    counts: Floats
    worth: float
    error: float
    told: float


def _judged(
    partition: Partition, cells: NDArray[np.intp], labels: Labels, *, delta: float, ahead: float
) -> list[_Judged]:
    """Return ways to order the cells of a partition, with what each is worth and the counts to bet by.

    What it is worth is found by choosing a set of cells on one half of the runs and looking at the other, both ways: of
    many ways the luckiest would be taken for the best otherwise.
    """
    fold = np.arange(cells.size) % 4
    folds = [_counted(cells[fold == k], labels[fold == k], partition.cells) for k in range(4)]
    halves = folds[0] + folds[2], folds[1] + folds[3]
    every = halves[0] + halves[1]
    found: list[_Judged] = []

    def judge(
        use: Use, counts: Floats, known: tuple[Floats, Floats], raw: tuple[Floats, Floats], careful: float = 0.0
    ) -> None:
        then = _THEN * math.sqrt(min(1.0, float(counts.sum()) / max(ahead, 1.0)))
        worth = error = told = 0.0
        for here, there in ((0, 1), (1, 0)):
            _, guess = best_guesses(known[here], use.order, delta=delta, caution=use.doubt + then)
            plain, cautious = (worth_of(guess, raw[there], delta=delta, caution=c) for c in (0.0, math.sqrt(0.5)))
            worth += plain / 2
            error += (plain - cautious) / 2
            share = (known[here] + 0.5) / (known[here] + 0.5).sum(axis=1, keepdims=True)
            told += float((raw[there] * np.log(2 * share)).sum()) / max(float((raw[0] + raw[1]).sum()), 1.0)
        found.append(_Judged(use, counts, worth - (_NOW + then + careful) * error, error, told))

    if partition.levels is not None:
        levels = partition.levels
        use = Use(partition, np.argsort(levels, kind="stable"))
        known = calibrated(levels, halves[0]), calibrated(levels, halves[1])
        free = isinstance(partition, NumberCells) and isinstance(partition.of, Boosted)
        judge(use, calibrated(levels, every), known, halves, careful=_FREE if free else 0.0)
        return found
    if partition.ordered:
        known = smoothed((folds[0], folds[2])), smoothed((folds[1], folds[3]))
        judge(Use(partition, np.arange(partition.cells), doubt=2.0), smoothed(halves), known, halves)
    # An order that is found on some runs is judged by others; then all of them give it.
    levels, last = cell_levels(halves[0]), cell_levels(every)
    use = Use(partition, np.argsort(levels, kind="stable"))
    known = calibrated(levels, folds[1]), calibrated(levels, folds[3])
    judge(use, halves[1], known, (folds[1], folds[3]), careful=_FREE if partition.ordered else _FREE / 3)
    second = every.sum(axis=1) / (1 + np.exp(-last))
    counts = np.stack([every.sum(axis=1) - second, second], axis=1)
    found[-1] = replace(found[-1], use=Use(partition, np.argsort(last, kind="stable"), doubt=2.0), counts=counts)
    return found


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
    if joint is not None:
        found.append(joint)
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
