r"""Single columns against pairs: where one more unit of noise helps most, where tables are released in parts.

Where only residuals are released (``_residuals``), pairs say nothing of their columns, and each gets its own part of
the units. What is wanted is the least error of all pairs of columns together, in l1, measured or not. All of it is
computed from what was released before.

**Error.** A table with noise σ in each of its directions misses a cell by about sσ, with s the length of a row's
residual, or by what the cell holds, if that is less: :math:`E_t = \sum_{cells} \min(sσ, \hat n \hat p)`. A pair of
columns is missed by :math:`E_{ab}^2 = E_a^2 + E_b^2`, and by the square of the error of its own residual besides, where
that was measured. Since precision is bought at :math:`1/s^2` a unit, one more unit lowers :math:`E_t^2` by an amount
proportional to

.. math:: w_t = \frac{E_t\, σ^3}{s} \cdot \#\{\text{cells that hold more than } sσ\},

and the error of a pair of columns by that over :math:`E_{ab}`. A column is in w - 1 pairs. A pair's residual is in one
of them, and is taken to help others as much as far as these follow from it: the law of c and d changes with that of a
and b by what c and d have in common with these, :math:`φ_{ca}^2 φ_{db}^2`, and less where several measured pairs speak
of it, their sum being at most 1.

**First** (:func:`columns_first`), before a pair is picked, columns get units while these help more there than with a
pair, if each of the M picks had its part of the rest and spoke for all pairs in equal parts, :math:`\binom{w}{2} / M`.
That is the least they get. What they would get if pairs spoke only for themselves is the most; the difference is kept.

**The number of rows**, where it is not public, is known with noise τ, say. The residual of a column leaves what it adds
up to in equal parts on its levels, so that a number that is wrong by one row moves it in l1 by :math:`S = \sum |\hat p
- 1/a|`, nearly two where one level has all rows; of columns that are released together only what is beside the usual
level moves. It moves all columns alike: a pair is missed by :math:`τ (S_a + S_b)`, and one more unit lowers the square
of that by :math:`(S_a + S_b)^2 τ^4`, in the units above.

Columns that are released together (``_together``) get units together: what one of these helps is what it helps each of
them, and so that few steps are enough, they get a sixty-fourth of all units at a time.

**Last** (:class:`Needed`), when the model is known, what was kept and what is left goes one by one to whatever it helps
most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from escudo.synthesis._estimation import Columns, NoisyTable
from escudo.synthesis._residuals import Unit, length_of_a_row
from escudo.synthesis._together import Together

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_PAIRS, _CELLS = 200, 2**18  # of pairs, to take a mean over
TOGETHER: Columns = ()
"""What stands for the columns that are released together."""

ROWS: Columns = ("", "")
"""What stands for the number of rows."""

AT_A_TIME = 64  # a part of the units, for columns that are released together
_SPEAKING = 60  # columns: of more of them, pairs are taken to speak for themselves alone


def error_of(shape: tuple[int, ...], noise: float, held: Floats) -> float:
    """Return about how far a table is missed in l1.

    Args:
        shape: Its levels along each axis.
        noise: The noise in its own directions.
        held: What its cells hold, about; infinity where nothing is known.
    """
    return float(np.minimum(held, noise * length_of_a_row(shape)).sum())


def worth_of(shape: tuple[int, ...], noise: float, held: Floats) -> float:
    """Return by how much, in common units, one more release of its residual lowers the square of a table's error."""
    along = length_of_a_row(shape)
    return error_of(shape, noise, held) * noise**3 / along * float((held > noise * along).sum())


def columns_first(
    unit: Unit,
    units: int,
    picks: int,
    scales: Mapping[str, float],
    levels: Mapping[str, Floats],
    groups: Mapping[str, Floats],
    *,
    together: Together | None = None,
    off: float = 0.0,
) -> tuple[list[Columns], int]:
    """Return what gets a unit, one after the other: a column, ``TOGETHER`` for all that are released so, or ``ROWS``.

    So many do if pairs speak for themselves alone; with it, how many of them, the first ones, if they speak for all.

    Args:
        unit: One release.
        units: How many there are.
        picks: How many pairs will be picked.
        scales: The noise that is in each column so far.
        levels: What each level of each column holds; infinity where nothing is known.
        groups: The same for the groups of levels that pairs count together.
        together: The columns that are released together.
        off: The noise in the number of rows; 0 where it is public.
    """
    width, most = len(scales), math.comb(len(scales), 2)
    picks = min(picks, most)
    pairs = _Pairs(unit, groups)
    joint = () if together is None else together.names
    noise = dict(scales)
    squares = {name: error_of((levels[name].size,), noise[name], levels[name]) ** 2 for name in noise}
    apart = np.array([unevenness(levels[name], joint=name in joint) for name in noise])
    uneven = float((apart**2).sum() * (width - 2) + apart.sum() ** 2) / (width - 1)  # in all pairs, for each column

    def waits(columns: Columns) -> tuple[float, Columns]:
        """Return what one more release is worth."""
        if columns == ROWS:
            return -uneven * off**4, columns
        names = columns or joint
        worth = {name: worth_of((levels[name].size,), noise[name], levels[name]) for name in names}
        return -_added(unit, worth, {name: levels[name].size for name in names}, None if columns else together), columns

    waiting = [waits((name,)) for name in noise if name not in joint]
    waiting += [waits(TOGETHER)] if joint else []
    waiting += [waits(ROWS)] if off else []
    heapify(waiting)
    given, least = list[Columns](), None
    while (left := units - len(given)) > 0:
        unmeasured = max(2 * sum(squares.values()) / width, 1e-9)
        helped, inverse = pairs.with_units(left / picks, unmeasured)
        share = picks / most
        need, columns = waiting[0]
        figures = (width - 1) * ((1 - share) / math.sqrt(unmeasured) + share * inverse)
        if least is None and -need * figures <= helped / share:
            least = len(given)
        if -need * figures <= helped:
            break
        times = 1 if columns else min(max(units // AT_A_TIME, 1), left)
        given += [columns] * times
        if columns == ROWS:
            off = (off**-2.0 + unit.scale**-2.0) ** -0.5
            heapreplace(waiting, waits(columns))
            continue
        for name in columns or joint:
            shape = (levels[name].size,)
            fresh = unit.noise(shape) if columns or together is None else together.noise
            noise[name] = (noise[name] ** -2.0 + times * fresh**-2.0) ** -0.5
            squares[name] = error_of(shape, noise[name], levels[name]) ** 2
        heapreplace(waiting, waits(columns))
    return given, len(given) if least is None else least


def unevenness(levels: Floats, *, joint: bool) -> float:
    """Return how far a column is missed in l1 for each row by which the number of rows is.

    Args:
        levels: What each of its levels holds; infinity where nothing is known.
        joint: Whether it is released with others: what is beside the usual level is counted by itself then.
    """
    if np.isinf(levels).any():
        return 1 - 1 / levels.size
    shares = levels / max(float(levels.sum()), 1e-300)
    return 2 * (1 - float(shares.max())) if joint else float(np.abs(shares - 1 / shares.size).sum())


def _added(unit: Unit, worth: Mapping[str, float], sizes: Mapping[str, int], together: Together | None) -> float:
    """Return what one more release is worth to some columns: of the only one by itself, or of them together."""
    if together is None:
        return sum(worth.values())
    return sum(worth[name] * together.better_by(unit, sizes[name]) for name in worth)


class _Pairs:
    """Some pairs of columns, to take the mean over: what their cells hold, if they are unrelated."""

    def __init__(self, unit: Unit, groups: Mapping[str, Floats]):
        pairs = list(combinations(groups, 2))
        kept: list[Floats] = []
        along: list[float] = []
        room = _CELLS
        for a, b in pairs[:: max(len(pairs) // _PAIRS, 1)]:
            if kept and (room := room - groups[a].size * groups[b].size) < 0:
                break
            rows = float(groups[a].sum())
            kept.append(np.outer(groups[a], groups[b]).ravel() / (rows if math.isfinite(rows) else 1.0))
            along.append(length_of_a_row((groups[a].size, groups[b].size)))
        self._unit, self._held = unit, np.concatenate(kept)
        self._along = np.array(along)
        self._sizes = np.array([each.size for each in kept])
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)[:-1]])

    def with_units(self, units: float, unmeasured: float) -> tuple[float, float]:
        """Return what one more helps a pair and the inverse of its error, in the mean, where each has so many of them.

        ``unmeasured`` is the square of the error without that of its own residual.
        """
        noise = self._unit.scale * self._along / math.sqrt(units)
        within = np.repeat(noise * self._along, self._sizes)
        error = np.add.reduceat(np.minimum(self._held, within), self._starts)
        full = np.add.reduceat((self._held > within).astype(np.float64), self._starts)
        inverse = 1 / np.sqrt(unmeasured + error**2)
        return float(np.mean(error * noise**3 / self._along * full * inverse)), float(np.mean(inverse))


class Needed:
    """Tables by what one more unit is worth to them.

    Args:
        tables: What was measured.
        columns: The columns,
        drawn: rows of the model, by column, with groups of levels for levels,
        cells: how many groups there are of each,
        margins: what each level of each column holds,
        rows: and how many rows there are.
        together: The columns that are released together, and the release.
    """

    def __init__(
        self,
        tables: Sequence[NoisyTable],
        columns: Sequence[str],
        drawn: Mapping[str, Counts],
        cells: Mapping[str, int],
        margins: Mapping[str, Floats],
        rows: float,
        together: tuple[Together, Unit] | None = None,
    ):
        self._place = {name: number for number, name in enumerate(columns)}
        simulated = len(drawn[columns[0]])
        self._held: dict[Columns, Floats] = {(name,): margins[name] for name in columns}
        for table in tables:
            if len(table.columns) > 1:
                held = counted(drawn, table.columns, cells).astype(np.float64)
                self._held[table.columns] = held * (rows / simulated)
        pairs = [table for table in tables if len(table.columns) == 2]
        told = {table.columns: self._error(table) ** 2 for table in tables}
        alone = np.array([told.get((name,), 0.0) for name in columns])
        squares = np.add.outer(alone, alone)
        for table in pairs:
            squares[self._both(table.columns)] += told[table.columns]
        np.fill_diagonal(squares, np.inf)
        self._weights = 1 / np.sqrt(np.maximum(squares, 1e-9))
        self._others = dict.fromkeys((table.columns for table in pairs), 0.0)
        if pairs and len(columns) < _SPEAKING:
            self._speak(nearness([drawn[name] for name in columns], [cells[name] for name in columns]))
        self._together, self._joint = (
            together,
            set[Columns]((name,) for name in together[0].names) if together else set(),
        )
        self._known = {table.columns: table for table in tables}
        waits = [table.columns for table in tables if table.columns not in self._joint]
        waits += [TOGETHER] if together else []
        self._waiting = [(-self._worth(columns), number, columns) for number, columns in enumerate(waits)]
        heapify(self._waiting)

    @property
    def neediest(self) -> Columns:
        """The table that it helps most, the first of them; ``TOGETHER`` for columns that are released together."""
        return self._waiting[0][2]

    @property
    def joint(self) -> set[Columns]:
        """The columns that are released together."""
        return self._joint

    def renew(self, *tables: NoisyTable) -> None:
        """Say what the neediest table, or each of those that are released together, has become."""
        self._known |= {table.columns: table for table in tables}
        _, number, columns = self._waiting[0]
        heapreplace(self._waiting, (-self._worth(columns), number, columns))

    def _both(self, columns: Columns) -> tuple[list[int], list[int]]:
        one, other = self._place[columns[0]], self._place[columns[1]]
        return [one, other], [other, one]

    def _speak(self, near: Floats) -> None:
        """Say how far measured pairs speak for those that were not."""
        reached = {}
        for columns in self._others:
            one, other = (near[self._place[name]] for name in columns)
            reached[columns] = np.outer(one, other) + np.outer(other, one)
        left = 1 / np.maximum(sum(reached.values(), np.zeros_like(near)), 1.0)
        np.fill_diagonal(left, 0.0)
        for columns in self._others:
            left[self._both(columns)] = 0.0
        self._others = {columns: float((reach * left).sum()) / 2 for columns, reach in reached.items()}

    def _error(self, table: NoisyTable) -> float:
        return error_of(table.counts.shape, table.scale, self._held[table.columns])

    def _worth(self, columns: Columns) -> float:
        if columns == TOGETHER:
            assert self._together is not None
            together, unit = self._together
            each = {name: self._worth((name,)) for name in together.names}
            return _added(unit, each, {name: self._held[name,].size for name in each}, together)
        table = self._known[columns]
        shape = table.counts.shape
        worth = worth_of(shape, table.scale, self._held[columns])
        if len(columns) == 1:
            return worth * float(self._weights[self._place[columns[0]]].sum())
        if not table.inner:
            worth *= length_of_a_row(shape) ** 2  # which a unit of a whole table buys less of
        if len(columns) == 2:
            return worth * float(self._weights[self._both(columns)][0]) * (1 + self._others[columns])
        return worth / max(self._error(table), 1e-9)

    def __repr__(self) -> str:
        return f"Needed({len(self._waiting)} tables)"


def counted(drawn: Mapping[str, Counts], columns: Columns, cells: Mapping[str, int]) -> Counts:
    """Return how many drawn rows each cell of a table has, one cell after the other."""
    code = drawn[columns[0]]
    for name in columns[1:]:
        code = code * cells[name] + drawn[name]
    return np.bincount(code, minlength=math.prod(cells[name] for name in columns))


def nearness(columns: Sequence[Counts], sizes: Sequence[int]) -> Floats:
    """Return for each two columns φ²: how much of one the other tells, between 0 and 1, less what chance makes of it.

    >>> one = np.array([0, 1] * 50)
    >>> nearness([one, 1 - one, np.zeros_like(one)], [2, 2, 2]).round(2).tolist()
    [[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    starts, rows = np.cumsum([0, *sizes]), len(columns[0])
    shown = np.zeros((rows, int(starts[-1])), dtype=np.float32)
    for start, codes in zip(starts, columns, strict=False):
        shown[np.arange(rows), start + codes] = 1
    counts = (shown.T @ shown).astype(np.float64)
    alone = np.maximum(np.diag(counts), 1e-9)
    squares = counts**2 / np.outer(alone, alone)
    squares = np.add.reduceat(np.add.reduceat(squares, starts[:-1], axis=0), starts[:-1], axis=1)
    free = np.asarray(sizes) - 1.0
    found: Floats = (squares - 1 - np.outer(free, free) / rows) / np.minimum.outer(free, free)
    np.fill_diagonal(found, 1.0)
    return np.clip(found, 0.0, 1.0)
