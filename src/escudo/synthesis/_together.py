r"""Columns that are at one level in most rows, released together: one vector of what is beside it, clipped.

Forty yes/no columns are forty tables, and a row is in a cell of each. Where most of them are "no" in most rows, a row
has only few of the forty levels "yes": as a vector of these it is short, and one release of the vector tells of all
columns what forty tables tell. Single columns are measured a little first; once it is known which of them are at one
level in most rows, these are measured together.

**The vector.** A column's *usual* level is the one that most rows are thought to have. A row that is beside it in N of
the columns together has, at each of these N levels, the whole number

.. math:: f_N = \lfloor \sqrt{2^{40} / \max(N, L)} \rfloor,

and 0 elsewhere. Noise of scale σ for a table of counts is then noise of scale :math:`σ\sqrt L` in what each level
holds, whatever the number of columns. Of the usual level the number of rows, which is fixed, leaves what is left. A
column of a levels is known in each of its :math:`a - 1` directions with noise :math:`\sqrt 2\, σ \sqrt L` in the mean
(they are not alike, but for two levels), where a residual of its own (``_residuals``) has :math:`σ \sqrt{1 - 1/a}`:
together costs L for what costs :math:`q = (1 - 1/a) / 2` for each column alone.

**Which columns** (:func:`usual_levels`). By their shares as measured so far, those that are least beside their usual
level for their q come first, and so many are taken that :math:`L + \sum_{others} q` is least, with L the number that
19 of 20 rows would keep to if columns were unrelated. Where L is more than seven tenths of what the columns together
cost alone, none is.

**How long rows are** depends on how columns go together, so it is measured: how many rows are beside how many usual
levels, as one table, with a few of the units (:func:`units_for_lengths`). What is likely by it (:func:`lengths_of`) is
the nearest negative binomial law, and more of them beside it, and bins of other size than these say, where
noise would have to be four standard deviations to have made them: a few long rows that are not there would change g,
and all levels with it, and so would long rows that come together and are not seen. How many levels rows are beside in
the mean is known from the columns, too, and counts among what was seen.

**Clipping** takes away :math:`1 - g` of what levels hold together, :math:`g = \sum h_N N f_N / f_L \sum h_N N`, with h
the law of lengths; all levels are made larger by 1/g again, which undoes it where those that are in long rows are in
short ones alike. L is where two errors are least together, as the root of the sum of their squares: the noise
:math:`\sqrt{2/π}\,σ\sqrt L / g` in all columns, and a half of what clipping takes away (:class:`Together`). Where that
is no better than the noise of columns alone, they stay alone.

**Guarantee.** That of one unit for every release. A row adds one vector of whole numbers, with N entries :math:`f_N`,
whose square is :math:`N f_N^2 \le 2^{40} N / \max(N, L) \le 2^{40}` whatever L is; times a power of two it is no longer
than the G of the unit's steps. So adding or removing a person of k rows moves the sum by at most kG, as a table of
counts times G. Which columns are in it, which level is usual, and L come from the releases before, and so does how many
units go to it: for neighbours they are the same whenever these were. The table of lengths is a contingency table of a
column that is computed row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from escudo.mechanisms import Purse
from escudo.synthesis._estimation import NoisyTable
from escudo.synthesis._residuals import Unit
from escudo.table import PrivateTable

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

FEWEST = 8
"""Columns: fewer are never released together."""

_KEPT = 1.645  # standard deviations: what 19 of 20 rows keep to
_WORTH = 0.7  # of what the columns cost alone
_LENGTHS = 0.05  # of the units, for the table of lengths
_WIDER = 1.4  # from one bin of lengths to the next
_UNDONE = 0.5  # of what clipping takes away, that is not given back where it belongs
_SURE, _MORE = 4.0, 5  # standard deviations; laws beside the first
_SPREADS = (0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)  # variance beyond the mean, over its square
_SHORTEST, _MEANS = 0.05, 60
_ROW = 2**20  # the longest a row is
_BATCH = 2**16


def usual_levels(margins: Mapping[str, Floats]) -> dict[str, int]:
    """Return the usual level of each column that is to be released with others; of none, where that is not worth it.

    Args:
        margins: How many rows have each level of each column, about.

    >>> rare = {f"x{i}": np.array([5.0, 95.0]) for i in range(20)}
    >>> usual_levels({**rare, "y": np.array([40.0, 60.0])}) == dict.fromkeys(rare, 1)
    True
    >>> usual_levels({f"x{i}": np.array([40.0, 60.0]) for i in range(20)})
    {}
    """
    costs = {name: (1 - 1 / margin.size) / 2 for name, margin in margins.items()}
    beside = {name: 1 - float(margin.max()) / max(float(margin.sum()), 1e-300) for name, margin in margins.items()}
    listed = sorted(margins, key=lambda name: beside[name] / costs[name])
    shares = np.array([beside[name] for name in listed])
    alone = np.array([costs[name] for name in listed])
    length = np.maximum(shares.cumsum() + _KEPT * np.sqrt((shares * (1 - shares)).cumsum()), 1.0)
    best = int(np.argmin(length - alone.cumsum())) + 1
    if best < FEWEST or length[best - 1] > _WORTH * alone[:best].sum():
        return {}
    return {name: int(np.argmax(margins[name])) for name in margins if name in set(listed[:best])}


def units_for_lengths(units: int) -> int:
    """Return how many of the units go to the table of lengths."""
    return max(math.floor(_LENGTHS * units), 1)


def bins_of_lengths(longest: int) -> Counts:
    """Return the bin of each length from 0 up: short ones by themselves, longer ones in wider and wider bins.

    >>> bins_of_lengths(9).tolist()
    [0, 1, 2, 3, 4, 5, 5, 6, 6, 7]
    """
    first, firsts = 0, [0]
    while first < longest:
        first = max(first + 1, math.floor(_WIDER * first))
        firsts.append(first)
    return np.searchsorted(firsts, np.arange(longest + 1), side="right") - 1


def lengths_of(seen: Floats, noise: float, bins: Counts, mean: float, off: float) -> Floats:
    """Return what part of the rows has each length, by a noisy table of their bins.

    Args:
        seen: How many rows are in each bin, with noise.
        noise: Its standard deviation.
        bins: The bin of each length.
        mean: How long rows are in the mean, by what columns were measured to be,
        off: and the standard deviation of the noise in that.
    """
    total, length = max(float(seen.sum()), 1.0), np.arange(bins.size)
    found = list[Floats]()
    for spread in _SPREADS:
        shape = 1 / spread
        for each in np.geomspace(_SHORTEST, bins.size - 1, _MEANS):
            odds = gammaln(length + shape) - gammaln(length + 1) - length * math.log1p(shape / each)
            found.append(np.exp(odds - odds.max()))
    laws = np.array(found)
    laws /= laws.sum(axis=1, keepdims=True)
    # The mean is one number more that was seen, put so that its noise is as large as theirs.
    loud = noise / (max(off, 1e-9) * total)
    binned = np.array([[*np.bincount(bins, weights=law), loud * (law @ length)] for law in laws])
    wanted = np.append(seen, loud * mean * total)
    squares = (binned**2).sum(axis=1)
    best = int(np.argmin(((binned * total - wanted) ** 2).sum(axis=1)))
    law, held = laws[best] * total, binned[best] * total
    for _ in range(_MORE):
        rows = binned @ (wanted - held) / squares
        sure = rows * np.sqrt(squares)
        if sure.max() < _SURE * noise:
            break
        more = int(np.argmax(sure))
        law, held = law + laws[more] * rows[more], held + binned[more] * rows[more]
    apart, held = seen - held[:-1], held[:-1]
    held = np.maximum(held + np.where(np.abs(apart) > _SURE * noise, apart, 0.0), 0.0)
    # Within its bin a length is as likely as the law has it.
    within = np.bincount(bins, weights=law)
    part = np.where(within[bins] > 0, law / np.where(within > 0, within, 1.0)[bins], 1 / np.bincount(bins)[bins])
    told: Floats = (held / held.sum())[bins] * part
    return told


@dataclass(frozen=True, eq=False)
class Lengths:
    """What rows hold beside usual levels, by how many of these they are beside: private.

    Attributes:
        usual: The usual level of each column.
        sizes: How many levels each has.
        counts: For each length the rows that have each level, one column after the other; the last, all rows.
    """

    usual: Mapping[str, int]
    sizes: Mapping[str, int]
    counts: Counts

    @classmethod
    def read(cls, table: PrivateTable, usual: Mapping[str, int], sizes: Mapping[str, int]) -> Lengths:
        """Count, in one pass over the rows."""
        named = list(usual)
        shape = (len(named) + 1, sum(sizes[name] for name in named) + 1)
        starts = np.cumsum([0, *(sizes[name] for name in named)])[:-1]
        levels = np.array([usual[name] for name in named])

        def add_up(batches: Iterator[Counts]) -> Counts:
            total = np.zeros(math.prod(shape), dtype=np.int64)
            for codes in batches:
                beside = codes != levels
                lengths = beside.sum(axis=1)
                rows, columns = np.nonzero(beside)
                entry = starts[columns] + codes[rows, columns].astype(np.int64)
                total += np.bincount(lengths[rows] * shape[1] + entry, minlength=total.size)
                total += np.bincount(lengths * shape[1] + shape[1] - 1, minlength=total.size)
            return total

        size = max(min(_BATCH, 2**22 // shape[1]), 256)
        return cls(usual, sizes, table.sums(add_up, size, named).reshape(shape))

    def binned(self, bins: Counts) -> Counts:
        """Return how many rows have lengths in each bin."""
        found = np.zeros(int(bins[-1]) + 1, dtype=np.int64)
        np.add.at(found, bins, self.counts[:, -1])
        return found

    def clipped(self, most: int) -> Counts:
        """Return the sum of all rows' vectors, clipped at a length."""
        factors = np.array([factor_of(length, most) for length in range(len(self.counts))])
        found: Counts = factors @ self.counts[:, :-1]
        return found

    def __repr__(self) -> str:
        return f"Lengths({len(self.usual)} columns)"


def factor_of(length: int, most: int) -> int:
    """Return what a row of this length has at each of its levels.

    >>> factor_of(3, 4) == factor_of(4, 4) == 2**19, factor_of(16, 4) == 2**18
    (True, True)
    """
    return math.isqrt(_ROW**2 // max(length, most))


@dataclass(frozen=True, eq=False)
class Together:
    """Columns that are released together: all but what is read from the rows is public.

    Attributes:
        unit: One release.
        lengths: What is read.
        most: The length that rows are clipped at.
        kept: What part of what levels hold is left by clipping.
    """

    unit: Unit
    lengths: Lengths
    most: int
    kept: float

    @classmethod
    def of(cls, unit: Unit, lengths: Lengths, law: Floats, *, units: int, rows: float) -> Together | None:
        """Return the release that is best for so many units; None where columns are better released alone.

        Args:
            unit: One release.
            lengths: What is read.
            law: What part of the rows has each length.
            units: How many releases there will be, about.
            rows: The number of rows.
        """
        columns = len(lengths.usual)
        held = law * np.arange(law.size)
        best: tuple[float, int, float] | None = None
        for most in range(1, columns + 1):
            factors = np.array([factor_of(length, most) for length in range(law.size)]) / factor_of(0, most)
            kept = float(held @ factors / max(float(held.sum()), 1e-300))
            noise = math.sqrt(2 / math.pi) * columns * unit.scale * math.sqrt(most / units) / kept
            missed = math.hypot(noise, _UNDONE * (1 - kept) * float(held.sum()) * rows)
            if best is None or missed < best[0]:
                best = missed, most, kept
        assert best is not None, "some columns"
        missed, most, kept = best
        alone = sum((1 - 1 / lengths.sizes[name]) / 2 for name in lengths.usual)
        noise = math.sqrt(2 / math.pi) * columns * unit.scale * math.sqrt(alone / units)
        return cls(unit, lengths, most, kept) if missed < noise else None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self.lengths.usual)

    @cached_property
    def _steps(self) -> float:
        """What a row within the bound has at each of its levels, as it is released; less what clipping takes away."""
        return factor_of(0, self.most) * (self.unit.steps // _ROW) * self.kept

    @property
    def noise(self) -> float:
        """The noise that one release leaves in each direction of each column, in the mean."""
        return math.sqrt(2) * self.unit.event.scale / self._steps

    def better_by(self, unit: Unit, size: int) -> float:
        """Return how much of the precision that a unit of its own gives a column of so many levels one together has."""
        return (unit.noise((size,)) / self.noise) ** 2

    def measure(self, times: int, rows: float, purse: Purse) -> list[NoisyTable]:
        """Return a table of each column, averaged over so many releases.

        Args:
            times: How many.
            rows: The number of rows.
            purse: Pays them, and draws the noise.
        """
        found = self.unit.add(self.lengths.clipped(self.most), _ROW, purse, "rare levels together", times=times)
        found = found / self._steps
        tables = []
        ends = np.cumsum([self.lengths.sizes[name] for name in self.names]).tolist()
        for (name, usual), (start, end) in zip(self.lengths.usual.items(), pairwise([0, *ends]), strict=True):
            counts = found[start:end].copy()
            counts[usual] = rows - (counts.sum() - counts[usual])
            tables.append(NoisyTable((name,), counts, self.noise / math.sqrt(times), inner=True))
        return tables

    def __repr__(self) -> str:
        return f"Together({len(self.names)} columns, clipped at {self.most})"
