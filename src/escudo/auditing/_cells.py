"""Cells: what is looked at in an output, and how the space of outputs is cut up.

A :class:`Column` computes one number per output: its numbers, what they add up to, how they differ, and their last
bits. The *grain* of a number is the exponent of its lowest set bit: noise added in floating point to f(D) rounds to the
grain of f(D), so that some outputs can only come from one of two datasets. A :class:`Cut` puts numbers into cells.

A :class:`Partition` is cells of whole outputs: those of one column or score, or one for each distinct output, or for
groups of them; corners are in :mod:`escudo.auditing._views`. Everything learnt afterwards sees counts per cell.

Reference:
    I. Mironov (2012), "On significance of the least significant bits for differential privacy".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from escudo.auditing._calibration import cell_by_cell
from escudo.auditing._outputs import Encoded, Labels, Sample, is_failure, kind_of

Floats = NDArray[np.float64]
Cells = NDArray[np.intp]
"""The cell of each output."""
MOST_CELLS = 144

_ALL_PAIRS = 8  # up to so many numbers every pairwise difference is looked at
_GRAINS = 4  # so many numbers have their last bits looked at,
_MIDDLES = 4  # and how far from their middle they are,
_OF_ERRORS = 4  # and so many numbers of each kind of error are looked at by themselves
_SAMPLE = 300_000
_FEW_VALUES = 12  # a number that takes no more values has no tails
_ODD = np.random.default_rng(3).integers(1, 2**62, size=300, dtype=np.uint64) * 2 + 1


# ---- columns


@dataclass(frozen=True, slots=True)
class Column:
    """One number per output, with its name in words."""

    name: str
    compute: Callable[[Encoded], Floats]

    def __call__(self, outputs: Encoded) -> Floats:
        return self.compute(outputs)


class Kinds:
    """What kind of output each is, as its place among ``names``; structures are told apart only if ``whole``.

    Args:
        structures: What the codes of outputs mean; more may be met later.
        whole: Whether every structure is a kind of its own.
    """

    def __init__(self, structures: Sequence[str], whole: bool) -> None:
        self._structures, self._whole = structures, whole
        self._place: dict[str, int] = {}
        self._of: list[int] = []

    @property
    def names(self) -> list[str]:
        """The kinds met so far."""
        return list(self._place)

    def __call__(self, outputs: Encoded) -> Floats:
        for structure in self._structures[len(self._of) :]:
            kind = structure if self._whole else kind_of(structure)
            self._of.append(self._place.setdefault(kind, len(self._place)))
        return np.array(self._of, dtype=np.float64)[outputs.codes]


class ByStructure:
    """A number of each output that depends on its structure: a fact about the structure, or an entry where that is so.

    Args:
        structures: What the codes of outputs mean; more may be met later.
        fact: A number, from a structure.
        entry: Which entry to give where the fact is not 0; None for the fact itself.
    """

    def __init__(self, structures: Sequence[str], fact: Callable[[str], float], entry: int | None = None) -> None:
        self._structures, self._fact, self._entry = structures, fact, entry
        self._of: list[float] = []

    def __call__(self, outputs: Encoded) -> Floats:
        self._of += map(self._fact, self._structures[len(self._of) :])
        facts = np.array(self._of, dtype=np.float64)[outputs.codes]
        return facts if self._entry is None else np.where(facts != 0, outputs.values[:, self._entry], np.nan)


def _is_of(kind: str, structure: str) -> float:
    return float(kind_of(structure) == kind)


def _kinds(sample: Encoded, structures: Sequence[str], used: Sequence[int]) -> list[Column]:
    """Return what kind of output it is; where kinds have several structures, which one, and how long it is.

    The numbers of an error are also looked at by themselves: they need not mean what those of an answer mean.
    """
    codes, runs = np.unique(sample.codes, return_counts=True)
    kinds = [kind_of(structures[code]) for code in codes]
    several = len(set(kinds)) < codes.size
    found = [Column("kind", Kinds(structures, whole)) for whole in ((False, True) if several else (False,))]
    if codes.size > _FEW_VALUES:
        found.append(Column("length of the text", ByStructure(structures, lambda structure: float(len(structure)))))
    for kind in sorted({kind for code, kind in zip(codes, kinds, strict=True) if is_failure(structures[code])}):
        inside = np.isin(sample.codes, codes[[one == kind for one in kinds]])
        if not inside.all() and inside.sum() > 0.02 * runs.sum():
            filled = [i for i in used if not np.isnan(sample.values[inside, i]).all()]
            of_this = partial(_is_of, kind)
            found += [
                Column(f"entry {i + 1} of {kind}", ByStructure(structures, of_this, i)) for i in filled[:_OF_ERRORS]
            ]
    return found


def columns_of(
    sample: Encoded, references: Sequence[Floats] = (), structures: Sequence[str] = (), *, last_bits: bool = True
) -> list[Column]:
    """Return the columns worth looking at in outputs like these.

    Args:
        sample: Outputs seen so far.
        references: Noiseless answers of the two datasets, where known.
        structures: What the codes of outputs mean.
        last_bits: Whether the last bits of floats are looked at.
    """
    width = sample.values.shape[1]
    empty = np.isnan(sample.values)
    used = [i for i in range(width) if not empty[:, i].all()]
    found = [_value(i, width) for i in used]
    if sample.codes.any():
        found += _kinds(sample, structures, used)
    if empty[:, used].any():
        found.append(Column("count of numbers", lambda o: (~np.isnan(o.values)).sum(axis=1).astype(np.float64)))
    couples = list(combinations(used, 2) if len(used) <= _ALL_PAIRS else pairwise(used))
    found += [_difference(i, j) for i, j in couples]
    if len(used) > 1:
        found += [
            Column("sum", lambda o: np.nansum(o.values, axis=1)),
            Column("largest", lambda o: np.fmax.reduce(o.values, axis=1)),
            Column("smallest", lambda o: np.fmin.reduce(o.values, axis=1)),
            Column("place of the largest", lambda o: np.nan_to_num(o.values, nan=-np.inf).argmax(axis=1) + 1.0),
        ]
    for i in used[:_MIDDLES]:
        seen = sample.values[:, i]
        seen = seen[np.isfinite(seen)]
        if np.unique(seen[:1000]).size > _FEW_VALUES:
            found.append(_from_middle(i, float(np.median(seen)), width))
    for i in used[:_GRAINS] if last_bits else ():
        seen = sample.values[:2000, i]
        seen = seen[np.isfinite(seen)]
        if seen.size and (seen != np.round(seen)).mean() > 0.2:
            found.append(_grain(i, 0.0, "last bit of", width))
            for which, reference in enumerate(references):
                if i < reference.size and np.isfinite(reference[i]) and reference[i]:
                    found.append(
                        _grain(i, float(reference[i]), f"last bit over noiseless answer {which + 1} of", width)
                    )
    return found


def _value(i: int, width: int) -> Column:
    return Column("output" if width == 1 else f"entry {i + 1}", lambda o: o.values[:, i])


def _difference(i: int, j: int) -> Column:
    def compute(outputs: Encoded) -> Floats:
        difference = outputs.values[:, i] - outputs.values[:, j]
        # Shared noise cancels up to rounding: what is left must fall into one cell.
        return np.round(difference, 9)

    return Column(f"entry {i + 1} minus entry {j + 1}", compute)


def _from_middle(i: int, middle: float, width: int) -> Column:
    """Return how far a number is from the middle: both tails together are one end of this, what is between the other.

    Where noise of a scale that depends on the data is added, each tail by itself says half as much.
    """
    what = "the output" if width == 1 else f"entry {i + 1}"
    return Column(f"distance of {what} from {middle:.6g}", lambda o: np.abs(o.values[:, i] - middle))


def _grain(i: int, reference: float, words: str, width: int) -> Column:
    what = "the output" if width == 1 else f"entry {i + 1}"
    return Column(f"{words} {what}", lambda o: grain(o.values[:, i] - reference))


def grain(numbers: Floats) -> Floats:
    """Return the exponent of the lowest set bit of each number; NaN for 0, infinities and NaN.

    >>> grain(np.array([1.0, 0.75, 12.0]))
    array([ 0., -2.,  2.])
    """
    bits = np.ascontiguousarray(numbers).view(np.int64)
    mantissa = (bits & ((1 << 52) - 1)) | (1 << 52)
    exponent = (bits >> 52) & 0x7FF
    lowest = mantissa & -mantissa
    found = np.log2(lowest.astype(np.float64)) + exponent - 1075
    usable = np.isfinite(numbers) & (exponent > 0)
    return np.where(usable, found, np.nan)


# ---- cells of one number


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Cells of the real line: cell j is [edges[j-1], edges[j]); NaN has the last cell."""

    edges: Floats
    missing: bool = False  # whether the sample held NaN

    @property
    def cells(self) -> int:
        """How many cells there are, that of NaN included."""
        return self.edges.size + 2

    def __call__(self, numbers: Floats) -> Cells:
        cells = np.searchsorted(self.edges, numbers, side="right")
        missing = np.isnan(numbers)
        if missing.any():
            cells[missing] = self.edges.size + 1
        return cells


def cut(numbers: Floats, most: int, points: Sequence[float] = ()) -> Cut:
    """Return at most about ``most`` cells: equally full ones, ever rarer ones at both ends, and one per frequent value.

    Args:
        numbers: A sample.
        most: The number of cells.
        points: Further edges, where something is known to happen.
    """
    absent = np.isnan(numbers)
    missing = bool(absent.any())
    finite = np.sort((numbers[~absent] if missing else numbers)[:_SAMPLE])
    if not finite.size:
        return Cut(np.empty(0), missing)
    distinct = (
        finite[np.flatnonzero(np.append(True, finite[1:] > finite[:-1]))]
        if np.isfinite(finite[0])
        else np.unique(finite)
    )
    if distinct.size <= most:
        return Cut(distinct[1:], missing)
    count = finite.size
    # Half of the cells are equally full; the others get ever rarer towards both ends, by a constant factor.
    body = np.linspace(0, 1, max(most // 2, 2) + 1)[1:-1]
    rarest = max(20 / count, 2e-5)
    rare = np.geomspace(rarest, 1 / max(most // 2, 2), most // 4) if rarest * most < 1 else np.empty(0)
    places = (np.concatenate([rare, body, 1 - rare]) * (count - 1)).astype(np.int64)
    found, times = np.unique(finite[np.sort(places)], return_counts=True)
    atoms = np.nextafter(found[times > 1], np.inf)
    inside = [p for p in points if finite[0] < p < finite[-1]]
    return Cut(np.unique(np.concatenate([found, atoms, inside, np.nextafter(inside, np.inf)])), missing)


def mean_levels(scores: Floats, cells: Cut) -> Floats:
    """Return the mean score in each cell; in an empty one, of those nearest to it."""
    where = cells(scores)
    runs = np.bincount(where, minlength=cells.cells)
    mean = np.bincount(where, weights=scores, minlength=cells.cells) / np.maximum(runs, 1)
    full = np.flatnonzero(runs)
    return np.asarray(np.interp(np.arange(cells.cells), full, mean[full]))


# ---- cells of outputs


class Score(Protocol):
    """One number per output."""

    @property
    def name(self) -> str:
        """What it is, in words."""

    def __call__(self, outputs: Encoded) -> Floats:
        """Return the score of each output."""


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

    def __call__(self, outputs: Encoded) -> Cells:
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

    def __call__(self, outputs: Encoded) -> Cells:
        return self.chosen(self.of(outputs))

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words: ranges of the column."""
        edges = np.concatenate([[-np.inf], self.chosen.edges, [np.inf]])
        parts, missing = [], bool(cells[-1]) and self.chosen.missing
        body = np.concatenate([[False], cells[:-1], [False]])
        starts, ends = np.flatnonzero(~body[:-1] & body[1:]), np.flatnonzero(body[:-1] & ~body[1:])
        if isinstance(self.of, Column) and isinstance(self.of.compute, Kinds):
            names = self.of.compute.names
            chosen = [names[int(place)] for place in self._places(cells) if int(place) < len(names)]
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

    def _places(self, cells: NDArray[np.bool_]) -> Floats:
        # Kinds are whole numbers, one to a cell: the cell of kind c starts at c, and the first one is empty.
        return self.chosen.edges[np.flatnonzero(cells[1:-1])]


@dataclass(frozen=True, slots=True, eq=False)
class JointCells:
    """One cell per distinct output, or groups of distinct outputs of like ratio; new outputs have the last cell."""

    keys: NDArray[np.uint64]  # sorted
    cell: NDArray[np.intp]
    cells: int
    learnt: bool
    shown: tuple[str, ...]
    ordered: bool = False
    levels: Floats | None = None

    def __call__(self, outputs: Encoded) -> Cells:
        keys = keys_of(outputs)
        place = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[place] == keys, self.cell[place], self.cells - 1)

    def words(self, cells: NDArray[np.bool_], structures: Sequence[str]) -> str:
        """Return a set of cells in words: some of the outputs in them."""
        inside = [text for text, c in zip(self.shown, self.cell.tolist(), strict=True) if cells[c]]
        return (
            "output is " + " or ".join(inside[:4]) + (f" or one of {len(inside) - 4} more" if len(inside) > 4 else "")
        )


def joint_cells(sample: Sample, fitting: NDArray[np.bool_], structures: Sequence[str]) -> JointCells | None:
    """Return one cell per distinct output where outputs repeat, in order if they are single numbers; else None."""
    outputs, labels = sample.outputs, sample.labels
    keys = keys_of(outputs)
    distinct, first, place, times = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if distinct.size > max(4, min(4096, labels.size // 8)) or distinct.size < 2:
        return None
    shown = tuple(show_output(outputs, int(i), structures) for i in first)
    if distinct.size < MOST_CELLS:
        numbers = outputs.values.shape[1] == 1 and not outputs.codes.any()
        order = np.argsort(outputs.values[first, 0], kind="stable") if numbers else np.arange(distinct.size)
        return JointCells(distinct, np.argsort(order), distinct.size + 1, False, shown, ordered=numbers)
    levels = cell_by_cell(runs_per_cell(place[fitting], labels[fitting], distinct.size)).level
    often = np.repeat(levels, np.minimum(times, 50))
    groups = cut(often, MOST_CELLS - 2)
    cell = groups(levels)
    claims = np.append(mean_levels(often, groups), 0.0)  # nothing is known of new outputs
    return JointCells(distinct, cell, groups.cells + 1, True, shown, levels=claims)


def keys_of(outputs: Encoded) -> NDArray[np.uint64]:
    """Return a 64-bit key per output; equal outputs have equal keys, others differ but for bad luck."""
    values = outputs.values + 0.0  # so that -0.0 is 0.0
    bits = np.where(np.isnan(values), 7.0, values).view(np.uint64) + np.isnan(values).astype(np.uint64)
    filled = ~np.isnan(values)
    mixed = (bits ^ (bits >> np.uint64(29))) * _ODD[: values.shape[1]]
    mixed ^= mixed >> np.uint64(31)
    total = (mixed * filled).sum(axis=1, dtype=np.uint64)  # a missing number counts nothing, whatever the width
    return np.asarray(total + (outputs.codes.astype(np.uint64) + np.uint64(1)) * _ODD[-1])


def show_output(outputs: Encoded, row: int, structures: Sequence[str]) -> str:
    """Return one output in words, short enough for a list."""
    numbers = [f"{v:.6g}" for v in outputs.values[row] if not np.isnan(v)]
    structure = structures[int(outputs.codes[row])]
    if structure == "#":
        text = numbers[0] if len(numbers) == 1 else "(" + ", ".join(numbers) + ")"
    else:
        left = iter(numbers)
        text = "".join(next(left, "#") if mark == "#" else mark for mark in structure)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- runs per cell


def count(partition: Partition, sample: Sample) -> Floats:
    """Return runs per cell and dataset, shape (cells, 2)."""
    return runs_per_cell(partition(sample.outputs), sample.labels, partition.cells)


def runs_per_cell(cells: Cells, labels: Labels, size: int) -> Floats:
    """Return runs per cell and dataset, shape (size, 2), of runs whose cells are known."""
    return tally(cells, labels, size).astype(np.float64)


def tally(cells: Cells, labels: Labels, size: int) -> NDArray[np.int64]:
    """Return the same as :func:`runs_per_cell`, in whole numbers."""
    return np.bincount(cells * 2 + labels, minlength=2 * size).reshape(-1, 2)
