"""Ways of cutting outputs into cells, learnt from earlier runs, and which of them tells the two datasets apart best.

Columns, whole outputs and scores make cells, and so do *corners*: outputs of which two numbers are far out at once,
each at one of its ends. Noise hides what one number says; where several noisy numbers have to be low (or high)
together, as in the sparse vector technique, the likelihood ratio grows with how far out they are, and such outputs are
rare. A corner is two numbers, an end of each, and how much further out one of them is than the other; what is left is
one number, how far out an output is, so that little has to be learnt and much can be told in words.

Reference:
    J. Friedman, N. Fisher (1999), "Bump hunting in high-dimensional data".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._bounds import Guess, Prospect, best_guesses, cautious_worth, seen_worth
from escudo.auditing._calibration import (
    Belief,
    about_claims,
    along_cells,
    cell_by_cell,
    smooth,
    towards_corner,
    with_trend,
)
from escudo.auditing._cells import (
    MOST_CELLS,
    Column,
    Cut,
    NumberCells,
    Partition,
    Score,
    Use,
    columns_of,
    count,
    cut,
    joint_cells,
    mean_levels,
    runs_per_cell,
)
from escudo.auditing._outputs import Encoded, Labels, Sample
from escudo.auditing._scores import fit_additive, fit_boosted, fit_linear, fit_logistic, fit_stratified
from escudo.auditing._wealth import promised_bounds, sets_of

Floats = NDArray[np.float64]

_SCREENED = 60_000  # rows on which columns are compared
_LOOKED = 48  # columns that are looked at closely,
_GLANCED = 4000  # after so many rows of all of them were glanced at
_TREE_ROWS = 400_000
_TREE_COLUMNS = 40
_FEW = 32  # whole outputs, each of which may be named
_SIMPLE = 0.1  # by which part of its worth something simple is preferred
# The best may be the luckiest. Standard errors by which what is believed of it is lowered:
_OF_FEW = 1.4  # of a column, or of whole outputs,
_OF_MANY = 2.0  # of the best of many corners, or what was fitted to labels,
_CHECKED = 1.0  # and of what is seen in runs that did not choose it

_CORNER_COLUMNS = 6  # among so many columns at most a corner is looked for,
_CORNER_CELLS = 60  # in so many cells of each
_ASPECTS = (0.2, 0.33, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)  # how much further out the first number is than the second
_OUTSIDE = -1.0  # how far out an output is that lacks a number


# ---- choosing


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


def choose_views(
    sample: Sample,
    prospect: Prospect,
    structures: Sequence[str],
    rng: np.random.Generator,
    *,
    references: Sequence[Floats],
    last_bits: bool = True,
    checked: bool = False,
) -> list[Chosen]:
    """Return the two best ways of cutting outputs into cells, the best first, with what earlier runs say.

    Of a partition that was fitted to labels, what is believed comes from runs that it was not fitted on.

    Args:
        sample: Earlier runs.
        prospect: What the bound will be made of.
        structures: What the codes of outputs mean.
        rng: For fitting.
        references: Noiseless answers of the two datasets, where known.
        last_bits: Whether the last bits of floats are looked at.
        checked: Whether ways are compared by what each half of the runs shows of guesses that the other half chose;
            this takes twice as long, and is for a choice that is made once.
    """
    held = np.arange(len(sample)) % 2 == 1
    columns = columns_of(sample.outputs.part(slice(0, 5000)), references, structures, last_bits=last_bits)
    points = []  # where something may happen: at the noiseless answers
    if sample.outputs.values.shape[1] == 1:
        points = [float(r[0]) for r in references if r.size and np.isfinite(r[0])]
    columns = _worth_a_look(columns, sample.part(~held))
    single = _best_columns(columns, sample, points, prospect)
    candidates = [
        *_told_in_words(single, sample, ~held, structures),
        *_learn(columns, sample, ~held, prospect, rng),
    ]
    prospect = replace(prospect, ahead=max(prospect.ahead, 1.0))
    found = [
        _judge(partition, sample.part(held) if partition.learnt else sample, prospect, checked)
        for partition in candidates
    ]
    found.sort(key=lambda entry: -entry[0])
    return [chosen for _, chosen in found[:2]]


def promise(counts: Floats, order: NDArray[np.intp], prospect: Prospect) -> float:
    """Return the lower bound on ε that some set of cells is likely to give in the end."""
    _, first, second = sets_of(counts[order])
    n_first, n_second = (float(n) for n in counts.sum(axis=0))
    up = promised_bounds(second, first, (n_second, n_first), prospect.delta, prospect.ahead)
    down = promised_bounds(first, second, (n_first, n_second), prospect.delta, prospect.ahead)
    return float(max(up.max(), down.max()))


def _judge(partition: Partition, sample: Sample, prospect: Prospect, checked: bool) -> tuple[float, Chosen]:
    """Return what a partition promises, in the best order of its cells."""
    cells = partition(sample.outputs)
    halves = [runs_per_cell(cells[i::2], sample.labels[i::2], partition.cells) for i in (0, 1)]
    belief = _belief_of(partition, halves[0] + halves[1])
    apart = [_belief_of(partition, half) for half in halves] if checked else []
    judged = []
    for way, order in enumerate(_orders(partition, belief)):
        _, guess = best_guesses(belief, order, prospect)
        many = partition.learnt or isinstance(partition, CornerCells)
        worth = cautious_worth(belief, guess, prospect, errors=_OF_MANY if many else _OF_FEW)
        if checked:
            guesses = [best_guesses(half, _orders(partition, half)[way], prospect)[1] for half in apart]
            worth = min(worth, _check(halves, guesses, prospect))
        simple = not partition.learnt and (way > 0 or not partition.ordered)
        # What is simple can be told in words, and less luck goes into choosing it.
        judged.append((worth + (_SIMPLE * abs(worth) if simple else 0.0), order))
    worth, order = max(judged, key=lambda entry: entry[0])
    return worth, Chosen(Use(partition, order), belief, _to_bet_by(partition, belief, halves))


def _check(halves: Sequence[Floats], guesses: Sequence[Guess], prospect: Prospect) -> float:
    """Return the bound that is promised by what each half of the runs shows of guesses that the other half chose."""
    right = wrong = 0.0
    for fresh, guess in zip(halves, guesses[::-1], strict=True):
        right += float(fresh[guess > 0, 1].sum() + fresh[guess < 0, 0].sum())
        wrong += float(fresh[guess > 0, 0].sum() + fresh[guess < 0, 1].sum())
    return seen_worth(right, wrong, prospect, runs=float(halves[0].sum() + halves[1].sum()), errors=_CHECKED)


def _orders(partition: Partition, belief: Belief) -> list[NDArray[np.intp]]:
    """Return orders of cells, at whose ends guesses are made: what is claimed or believed, and their own both ways."""
    if partition.levels is not None:
        return [np.argsort(partition.levels, kind="stable")]
    own = np.arange(partition.cells)
    return [np.argsort(belief.level, kind="stable"), *([own, own[::-1]] if partition.ordered else [])]


def _belief_of(partition: Partition, counts: Floats) -> Belief:
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
    return smooth((halves[0], halves[1])) if partition.ordered else halves[0] + halves[1]


# ---- what may be chosen from


def _most_cells(runs: int) -> int:
    """Return into how many cells so many runs may be cut."""
    return int(min(MOST_CELLS, max(5.0, 1.2 * math.sqrt(runs))))


def _told_in_words(
    single: Sequence[NumberCells], sample: Sample, fitting: Labels, structures: Sequence[str]
) -> list[Partition]:
    """Return cells of single columns, and of whole outputs where they repeat."""
    joint = joint_cells(sample, fitting, structures)
    plain = sample.outputs.values.shape[1] == 1 and not sample.outputs.codes.any()
    if joint is None or (joint.cells > _FEW and plain):
        return [*single]
    # The same cells as those of the number itself have better words.
    return [joint, *(cells for cells in single if not (plain and cells.of.name == "output"))]


def _learn(
    columns: Sequence[Column], sample: Sample, fitting: Labels, prospect: Prospect, rng: np.random.Generator
) -> list[Partition]:
    """Return the best corner, and cells of scores fitted to part of the runs; nothing where there is little to fit."""
    if len(columns) < 2 or len(sample) < 400:
        return []
    seen = sample.part(fitting)
    trees = seen.part(slice(0, _TREE_ROWS))
    found: list[Partition] = []
    scores: list[Score] = []
    values = [
        c for c in columns if c.name.startswith(("entry", "output")) and not {"minus", "of"} & set(c.name.split())
    ]
    if len(values) > 1:
        chain = [values[0], *(c for c in columns if "minus" in c.name and _adjacent(c.name))]
        for chosen in (values, chain):
            scores += [fit_additive(chosen, seen, cells) for cells in (2, 16)]
            smooth = fit_logistic(chosen, seen, crossed=chosen is values)
            scores += [smooth] if smooth is not None else []
        scores += fit_stratified(values, seen)
        found += fit_corners(values, sample, prospect)
        linear = fit_linear(trees)
        scores += [linear] if linear is not None else []
    if len(sample) >= 2000 and len(values) > 1:
        plain = [c for c in columns if not c.name.startswith("distance")]  # a tree asks for both tails by itself
        scores.append(fit_boosted(plain[:_TREE_COLUMNS], trees, rng))
    for score in scores:
        levels = score(seen.outputs.part(slice(0, 300_000)))
        cells = cut(levels, _most_cells(len(sample)))
        found.append(NumberCells(score, cells, learnt=True, levels=mean_levels(levels, cells)))
    return found


def _adjacent(name: str) -> bool:
    first, second = (int(part.split()[1]) for part in name.split(" minus "))
    return second == first + 1


def _worth_a_look(columns: Sequence[Column], fitting: Sample) -> list[Column]:
    """Return the columns whose cells differ most between the datasets, at a glance; all of them if they are few.

    So that wide outputs take time in proportion to their width, and what is learnt afterwards a bounded one. Beliefs
    come from runs that are not glanced at, and bets are on later ones.
    """
    if len(columns) <= _LOOKED:
        return list(columns)
    glanced = fitting.part(slice(0, _GLANCED))
    apart = []
    for column in columns:
        numbers = column(glanced.outputs)
        cells = cut(numbers, _most_cells(len(glanced)) // 2)
        counts = runs_per_cell(cells(numbers), glanced.labels, cells.cells)
        expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / max(counts.sum(), 1.0)
        filled = expected > 0
        apart.append(float(((counts - expected)[filled] ** 2 / expected[filled]).sum()) - cells.cells)
    best = sorted(np.argsort(-np.array(apart), kind="stable")[:_LOOKED].tolist())
    return [columns[i] for i in best]


def _best_columns(
    columns: Sequence[Column], sample: Sample, points: Sequence[float], prospect: Prospect
) -> list[NumberCells]:
    """Return cells of the few columns that tell most by themselves, found on some of the rows."""
    most = _most_cells(len(sample))
    screened = sample.part(slice(0, _SCREENED))
    judged = []
    for column in columns:
        cells = _cells_of(column, screened.outputs, min(most, 32), points)
        counts = count(cells, screened)
        belief = along_cells(counts) if cells.ordered else cell_by_cell(counts)
        judged.append((best_guesses(belief, np.argsort(belief.level), prospect)[0], cells))
    judged.sort(key=lambda entry: -entry[0])
    if len(sample) <= _SCREENED and most <= 32:
        return [cells for _, cells in judged[:3]]
    return [_cells_of(cells.of, sample.outputs, most, points) for _, cells in judged[:3]]


def _cells_of(column: Column | Score, outputs: Encoded, most: int, points: Sequence[float]) -> NumberCells:
    """Return cells of a column; one for each kind of output, as kinds have no order that means anything."""
    numbers = column(outputs)
    chosen = cut(numbers, most, points)
    if column.name != "kind":
        return NumberCells(column, chosen, learnt=False)
    return NumberCells(column, Cut(np.append(numbers.min(), chosen.edges)), learnt=False, ordered=False)


# ---- corners


@dataclass(frozen=True, slots=True, eq=False)
class CornerCells:
    """Cells by how far out an output is: the smaller of two depths, where a depth is minus the log of a tail's mass."""

    columns: tuple[Column, Column]
    high: tuple[bool, bool]  # which end of each
    cuts: tuple[Cut, Cut]
    depths: tuple[Floats, Floats]  # of each cell of each column
    chosen: Cut
    learnt: bool = False
    ordered: bool = True
    levels: Floats | None = None

    @property
    def cells(self) -> int:
        """How many cells."""
        return self.chosen.cells

    def __call__(self, outputs: Encoded) -> NDArray[np.intp]:
        return self.chosen(self.depth(outputs))

    def depth(self, outputs: Encoded) -> Floats:
        """Return how far out each output is."""
        first, second = (
            depth[cells(column(outputs))]
            for column, cells, depth in zip(self.columns, self.cuts, self.depths, strict=True)
        )
        return np.minimum(first, second)

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words: the corner that it is, or its bounds if it is none."""
        inside = np.flatnonzero(cells[:-1])
        if not inside.size:
            return "nothing"
        edges = np.concatenate([[-np.inf], self.chosen.edges])
        outer = self._corner(float(edges[inside[0]]))
        if inside[-1] == self.chosen.edges.size:
            return outer
        return f"{outer}, but not {self._corner(float(self.chosen.edges[inside[-1]]))}"

    def _corner(self, depth: float) -> str:
        """Return in words where both depths are at least ``depth``."""
        parts = []
        for column, high, chosen, depths in zip(self.columns, self.high, self.cuts, self.depths, strict=True):
            far = np.flatnonzero(depths[:-1] >= depth)
            if not far.size:
                return "nothing"
            if high and far[0] > 0:
                parts.append(f"{column.name} ≥ {chosen.edges[far[0] - 1]:.6g}")
            elif not high and far[-1] < chosen.edges.size:
                parts.append(f"{column.name} < {chosen.edges[far[-1]]:.6g}")
        return " and ".join(parts) or "any output"


def fit_corners(columns: Sequence[Column], sample: Sample, prospect: Prospect) -> list[CornerCells]:
    """Return the corner of two columns that promises most, if there are few."""
    if not 2 <= len(columns) <= _CORNER_COLUMNS:
        return []
    numbers = [column(sample.outputs) for column in columns]
    cuts = [cut(values, _CORNER_CELLS) for values in numbers]
    places = [chosen(values) for chosen, values in zip(cuts, numbers, strict=True)]
    best, answer = -np.inf, None
    for i, j in combinations(range(len(columns)), 2):
        sizes = cuts[i].cells, cuts[j].cells
        both = runs_per_cell(places[i] * sizes[1] + places[j], sample.labels, sizes[0] * sizes[1])
        masses = both.reshape(*sizes, 2).sum(axis=2)
        for high, other_high, aspect in product((True, False), (True, False), _ASPECTS):
            depths = _depths(masses.sum(axis=1), high), aspect * _depths(masses.sum(axis=0), other_high)
            depth = np.minimum(depths[0][:, None], depths[1][None, :]).ravel()
            chosen = _cut_depths(depth, both.sum(axis=1))
            counts = np.zeros((chosen.cells, 2))
            np.add.at(counts, chosen(depth), both)
            belief, order = with_trend(counts), np.arange(chosen.cells)
            worth = max(best_guesses(belief, way, prospect)[0] for way in (order, order[::-1]))
            if worth > best:
                named = (columns[i], columns[j]), (high, other_high), (cuts[i], cuts[j])
                best, answer = worth, CornerCells(*named, depths, chosen)
    return [] if answer is None else [answer]


def _depths(masses: Floats, high: bool) -> Floats:
    """Return minus the log of the mass from each cell of a column to its end; the last cell is that of no number."""
    body = masses[:-1]
    tail = np.cumsum(body[::-1])[::-1] if high else np.cumsum(body)
    depths = -np.log(np.maximum(tail, 0.5) / max(float(body.sum()), 1.0))
    return np.append(depths, _OUTSIDE)


def _cut_depths(depth: Floats, masses: Floats) -> Cut:
    """Return cells of depths: about equally many log units of mass each."""
    order = np.argsort(depth)
    beyond = np.cumsum(masses[order][::-1])[::-1]
    level = np.floor(_CORNER_CELLS / 2 * np.log(np.maximum(beyond, 0.5) / beyond[0]) / np.log(0.5 / beyond[0]))
    starts = np.flatnonzero(np.diff(level, prepend=-1.0) > 0)
    return Cut(np.unique(depth[order][starts])[1:])
