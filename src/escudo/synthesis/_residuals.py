r"""What a table of several columns says beside its smaller tables, released by itself: its residual.

A table of two columns counts each of them, too, and all rows. Where single columns are measured by themselves, noise
is spent on that again with every pair. Released is therefore only what is new.

**Residual.** With :math:`H_i` an orthonormal basis of the contrasts of column i (numbers, one for each of its
:math:`a_i` levels, that add up to 0), the residual of a table c is :math:`(\bigotimes_i H_i)^\top c`: :math:`\prod_i
(a_i - 1)` numbers, which all tables of fewer columns leave open. Of a single column they are all but the rows.

**Adding or removing a row** in cell x moves it by :math:`\bigotimes_i H_i^\top e_{x_i}`, whose length is, for every
cell, :math:`s = \prod_i \sqrt{1 - 1/a_i}`, as :math:`H_i H_i^\top = I - J/a_i`. A table moves by 1. So the residual
over s is as sensitive as a table, and noise of scale σ in it is noise of scale sσ in each of its directions: a half for
two columns of two levels. Nothing is lost by that. A pair released whole says as much of its residual as a residual
that costs :math:`s^2` of it, as much of its columns as residuals of these that cost :math:`(1 - 1/a)/b` and :math:`(1 -
1/b)/a`, and as much of the number of rows as a count of them for :math:`1/ab`. These add up to 1: whoever buys parts
can have the same, and may choose.

**Many levels.** Of a pair of ten levels each, s² is 0.81: little is saved, and whole pairs count their columns besides,
all at once and without a decision who gets what. Where columns have many levels, tables are therefore released whole
(:func:`released_in_parts`; on Adult residuals err by 2 % more in pairs).

**Replacing a row** is another matter. Two cells' residuals are up to :math:`\sqrt{2 \max(1 - 1/a, 1 - 1/b)}` apart (for
cells of one row or column of the table), a column's up to :math:`\sqrt 2`, as far as whole tables. What a whole pair
gives to its parts would cost :math:`1 + \max(1/a, 1/b)` of it if it was bought in parts, so that whole tables do better
where columns are to be known as well as pairs. They are released whole.

**On a grid.** Noise is added to whole numbers. For :math:`H_i` stand integers: contrast k has :math:`u_k` for levels
before the k-th, :math:`-k u_k` for it, 0 after it, with :math:`u_k = \lfloor t_i / \sqrt{k(k + 1)} \rfloor`. Each entry
is at most :math:`t_i` times that of the (Helmert) basis, so that the vector of one cell has length at most
:math:`\prod_i t_i \sqrt{1 - 1/a_i}`, which is G by the choice of t; this is checked in integers. These contrasts are
orthogonal, as those of the basis are, so that dividing by their lengths gives the residual with independent noise,
louder than sσ by what rounding down has taken: hardly anything, but for columns of very many levels.

**Guarantee.** That of Gaussian noise on the integers for a vector that one row or person moves by G times as much as a
contingency table: each row adds one integer vector, of length at most G whatever its cell, so that adding or removing a
person of k rows adds or takes away k of them, which together are no longer than kG. A whole table times G moves no
further. Which columns and groups of levels the table has must not depend on the rows except through what was released
before. No number of cells that change by one step is stated, as that is for counts alone; steps are so fine instead
that the noise is as good as continuous (``escudo.privacy._curves``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms import Purse, gaussian_event
from escudo.privacy import GaussianEvent, Neighbours
from escudo.synthesis._estimation import Columns, NoisyTable
from escudo.table import count_sensitivity

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_NOISE = 2**32  # steps of it, about; at least half as many, where a row has room for its part
_FEWEST, _MOST = 20, 32  # powers of two, for the length of a row
_LARGE = 0.5  # largeness of columns from which on tables are released whole
_LARGEST = 2**62  # of numbers that noise is added to: those beyond are held there


@dataclass(frozen=True, slots=True)
class Unit:
    """One release of a table, or of what is new in it.

    Attributes:
        event: The release.
        steps: G, how long the vector of a row is at most: 1 for whole tables of counts.
    """

    event: GaussianEvent
    steps: int

    @classmethod
    def of(cls, neighbours: Neighbours, scale: float, largeness: float = 0.0) -> Unit:
        """Return a release with noise of this scale for whole tables: of residuals, where these are better.

        Args:
            neighbours: Between which tables it must not tell.
            scale: The noise.
            largeness: Whether columns have few levels, 0, or many, 1.
        """
        one = count_sensitivity(
            1,
            relation=neighbours.relation,
            unit=neighbours.unit,
            max_rows_per_person=neighbours.max_rows_per_person,
        )
        inner = released_in_parts(neighbours, largeness)
        steps = 2 ** min(max(math.floor(math.log2(_NOISE / scale)), _FEWEST), _MOST) if inner else 1
        event = gaussian_event(
            2,  # or more numbers, which is all the same to the event
            l2_sensitivity=one.l2 * steps,
            scale=scale * steps,
            changed_cells=None if inner else one.changed_cells,
            integers=True,
            **neighbours.stated,
        )
        return cls(event, steps)

    @property
    def inner(self) -> bool:
        """Whether residuals are released."""
        return self.steps > 1

    @property
    def scale(self) -> float:
        """The noise of a whole table."""
        return self.event.scale / self.steps

    def noise(self, shape: tuple[int, ...]) -> float:
        """Return the noise of a table with so many levels along each axis, in its own directions."""
        return self.scale * (length_of_a_row(shape) if self.inner else 1.0)

    def measure(self, columns: Columns, counts: Counts, purse: Purse, *, whole: bool = False) -> NoisyTable:
        """Return a table's counts, or what is new in them, with the noise that was planned for them.

        Args:
            columns: Its columns.
            counts: Its counts: private.
            purse: Pays the event, and draws the noise.
            whole: Whether it is released whole in any case.
        """
        (found,) = self.measure_each([(columns, counts, whole)], purse)
        return found

    def measure_each(self, tables: Sequence[tuple[Columns, Counts, bool]], purse: Purse) -> list[NoisyTable]:
        """Return several tables, as :meth:`measure` does each: its columns, its counts, and whether it stays whole."""
        asked = [self._asked(counts, whole=whole) for _, counts, whole in tables]
        noisy = purse.add_each(asked, self.event, [f"table of {', '.join(columns)}" for columns, _, _ in tables])
        return [
            self._told(columns, np.asarray(each, dtype=np.float64), counts.shape, whole=whole)
            for (columns, counts, whole), each in zip(tables, noisy, strict=True)
        ]

    def add(self, sums: Counts, longest: int, purse: Purse, purpose: str, *, times: int) -> Floats:
        """Return sums of whole numbers with the noise of so many releases, averaged: in steps.

        Args:
            sums: To which each row adds a vector of whole numbers: private.
            longest: How long that is at most: a power of two, no larger than the unit's steps.
            purse: Pays the events, and draws the noise.
            purpose: Why, for the account.
            times: How many releases.
        """
        factor = self.steps // longest
        asked = np.clip(sums, -(_LARGEST // factor), _LARGEST // factor) * factor
        noisy = purse.add_each([asked] * times, self.event, [purpose] * times)
        return np.asarray(np.mean([np.asarray(each, dtype=np.float64) for each in noisy], axis=0))

    def _asked(self, counts: Counts, *, whole: bool) -> Counts:
        """Return the numbers that noise is added to."""
        if whole or not self.inner:
            return np.asarray(np.minimum(counts, _LARGEST // self.steps) * self.steps)
        return contracted(integer_contrasts(counts.shape, self.steps), counts, self.steps)

    def _told(self, columns: Columns, noisy: Floats, shape: tuple[int, ...], *, whole: bool) -> NoisyTable:
        """Return what these numbers say of a table, with their noise."""
        if whole or not self.inner:
            return NoisyTable(columns, noisy / self.steps, self.measured(shape, whole=whole))
        for axis, each in enumerate(_inverse(shape, self.steps)[0]):
            noisy = np.moveaxis(np.tensordot(each, noisy, axes=(1, axis)), 0, axis)
        return NoisyTable(columns, noisy, self.measured(shape, whole=whole), inner=True)

    def measured(self, shape: tuple[int, ...], *, whole: bool = False) -> float:
        """Return the noise of a table of this shape as :meth:`measure` returns it."""
        if whole or not self.inner:
            return self.scale
        return self.event.scale * math.sqrt(_inverse(shape, self.steps)[1])


def released_in_parts(neighbours: Neighbours, largeness: float = 0.0) -> bool:
    """Return whether residuals are released instead of whole tables.

    They are where neighbours have a row more or less, and columns have few levels, fewer than five on average: of many
    levels nearly all of a table is residual, and the little that is saved is worth less than what whole pairs say of
    their columns.
    """
    return neighbours.relation == "add_remove" and largeness < _LARGE


def length_of_a_row(shape: tuple[int, ...]) -> float:
    """Return s: how long the residual of one row is in a table with so many levels along each axis.

    >>> length_of_a_row((2, 2)), round(length_of_a_row((10, 10)), 3)
    (0.5, 0.9)
    """
    return math.sqrt(math.prod(1 - 1 / size for size in shape))


@lru_cache(maxsize=512)
def integer_contrasts(shape: tuple[int, ...], steps: int) -> tuple[Counts, ...]:
    """Return for each axis the contrasts that stand for an orthonormal basis, one a column.

    Of their products, those of one cell have length at most ``steps``.

    >>> integer_contrasts((3,), 100)[0].tolist()
    [[86, 50], [-86, 50], [0, -100]]
    """
    times = (steps / math.prod(shape) / length_of_a_row(shape)) ** (1 / len(shape))
    found = []
    for size in shape:
        order = np.arange(1, size)
        entries = np.floor(times * size / np.sqrt(order * (order + 1.0))).astype(np.int64)
        below = np.arange(size)[:, None]
        found.append(np.where(below < order, entries, np.where(below == order, -order * entries, 0)))
    longest = math.prod(max(sum(int(entry) ** 2 for entry in row) for row in each) for each in found)
    assert longest <= steps**2, "a row is longer than was planned"
    assert all((each != 0).any(axis=0).all() for each in found), "fewer steps than cells"
    return tuple(found)


@lru_cache(maxsize=512)
def _inverse(shape: tuple[int, ...], steps: int) -> tuple[tuple[Floats, ...], float]:
    """Return for each axis what leads from contrasts back to cells, and how much louder noise is there, squared."""
    found, louder = list[Floats](), 1.0
    for each in integer_contrasts(shape, steps):
        squares = (each.astype(np.float64) ** 2).sum(axis=0)
        found.append(each / squares)
        louder *= float(np.mean(1 / squares))
    return tuple(found), louder


def contracted(contrasts: tuple[Counts, ...], counts: Counts, steps: int) -> Counts:
    """Return what each product of contrasts adds up to over the cells: exact, in integers, held within ±2⁶².

    No number on the way is larger than ``steps`` for each row, up to a small power of two. Where rows are so many that
    64 bits might not hold that (2²⁸ at the least), they are added up in integers of any size; the numbers are the same.
    One that is held at the end moves no further than it would.
    """
    if int(counts.sum()) * steps >= _LARGEST >> 2:
        counts, contrasts = counts.astype(object), tuple(each.astype(object) for each in contrasts)
    for axis, each in enumerate(contrasts):
        counts = np.moveaxis(np.tensordot(each, counts, axes=(0, axis)), 0, axis)
    return np.clip(counts, -_LARGEST, _LARGEST).astype(np.int64)
