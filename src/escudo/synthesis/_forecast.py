r"""How good a release will be, before anything is spent: the error that its noise will leave, from public facts alone.

**What is told.** The expected total variation, :math:`\frac12 \sum |p - \hat p|`, between the law of the table's rows
and the model's: for each column, and for each pair of columns along an arrow. It is the error of the law, and not of
rows drawn from it. Draws are spread evenly over each law, so that as many rows as the table has err by hardly more, and
by far less than rows drawn independently, whose chance is therefore not put in. Where noise is least it shows: at ε = 3
and ``add_remove`` such rows err by up to 1.9 times as much (``benchmarks/results/forecast_add_remove.md``). Nothing
private is read, and no noise of a release is drawn: a forecast is free.

**How.** Schema, graph and budget say which tables will be measured with what noise; the number of rows is public, or
assumed. What is not known is the law itself, and it matters little: noise is as loud whatever the counts are, and only
cells that are nearly empty err less. So a *stand-in* takes its place, in which the k-th level of a column has a share
in proportion to 1/k² and columns are unrelated: about as many cells are nearly empty as in the networks ``sachs``,
``child`` and ``alarm``, for which 2 was chosen among the powers 1, 1.5, 2 and 2.5. Each table of the stand-in gets
noise a few times, from a fixed seed, and is brought to agreement with its margins as a release does it
(``_estimation``); what it then misses is the forecast. Tables of one shape and noise share it.

**Units and picks.** Where a part of the budget goes is decided on the way (``_adaptive``): which pairs are picked,
which tables get more. What single columns get by rule is known. Of the rest, single columns are taken to get a tenth,
tables of families three tenths, where there are any, and pairs that are picked what is left, shared out evenly: u, a
number of pairs that is 0.85 of the picks that the rows allow without a graph and a quarter of them beside one, meets
:math:`N (1 - e^{-u/N})` of N pairs, as some are met again. Where triples may be picked, a fifth of that goes to them,
and they count their pairs. A pair that several tables hold is as precise as all of them make it. These shares are round
numbers from releases in ``benchmarks/forecast.py``, which says on which tables.

**Moments** (:class:`MeasuredMoments`) are not tables. They count levels and pairs of levels without the first, each
once: the first level has what is left of the rows, and no pair counts its columns again. Clipping is undone, which
raises the noise with what it undoes. Levels are then settled as a fit does it (``_shares``), and what joins two
of them beyond their margins is the most likely under the prior that a fit begins with: where noise is loud, arrows come
out weaker than they are. The clip bound follows the number of levels beside the first that a row has. In the stand-in
the first of two levels is the common one, as generator ``moments`` has it ("on" is the second); of more levels, any may
be. Where the first of two is the rare one throughout, as in the network ``asia``, rows are longer, and errors two to
four times what is forecast; the forecast says so.

**Without a graph**, columns are forecast as with one. Which pairs will be measured nobody can know before; so for
every pair it is said how much it errs *if* it is. A pair that is not picked errs by about as much as its two columns
depend on each other, less what goes through others, and that is private. For their mean each pair counts by how likely
it is to be picked: where its columns depend on each other by more than it would err, e. Of how many pairs that holds is
not known; it is taken to be :math:`τ / (τ + e)` with τ = 0.5 %. Where noise is small, that is the plain mean over all
pairs, and where it is loud, the harmonic mean: nobody measures two columns of 20 levels to find noise.

**Neighbouring levels** that are counted together where no arrow names them (``_merging``) have less noise, but what
differs within a group is lost, and that is private. The groups are made so that the one is about as much as the other,
and a pair of ordered columns is forecast as if it had none: on five tables at three ε that gave 0.7 to 1.6 times what
was seen, while the noise of groups alone gave 0.4 to 1.0 times.

**Other ε** (:meth:`Forecast.at`). The noise is taken to be that of one Gaussian mechanism, by whose exact curve it is
scaled. That needs no loss distribution, so that a curve is drawn and an ε found at once.

**After a release** (:func:`stated_errors`) the same is computed from the noise that every table has got in the end and
from the released law in place of the stand-in. That is post-processing.

**What is left out**: arrows that are missing from the graph, the spread of numbers within their bins, rows beyond
``max_rows_per_person`` that take no part, the noise in the number of rows where it is not public, and the units that go
to it (a column of which only the residual is measured gets it in equal parts on its levels, which shows where one level
has nearly all rows), what columns of tables learn from each other's levels (``_shares``), and everything about networks
and straight lines, for which there is no forecast. Nor is it known which columns stay unknown, so that none of their
pairs is picked (``_adaptive``): the stand-in's common levels never are. Where a column would be if its levels, or the
groups that are made of them, were equally common, the forecast says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from scipy.special import expit

from escudo._card import card, first_of
from escudo._files import listed
from escudo._plot import axes_for
from escudo._validate import one_of, positive, whole
from escudo.causal import CausalGraph, as_graph
from escudo.errors import InputError
from escudo.privacy import (
    Budget,
    Event,
    ExponentialEvent,
    GaussianEvent,
    RepeatedEvent,
    gdp_to_delta,
    usual_delta,
)
from escudo.synthesis._adaptive import stays_unknown
from escudo.synthesis._estimation import Columns, Pair, settled, weighted_mean
from escudo.synthesis._laws import Floats, draw
from escudo.synthesis._merging import groups_of, ordered_levels
from escudo.synthesis._moment_family import FIRST_PRIORS
from escudo.synthesis._moment_statistics import UNIT, row_squares
from escudo.synthesis._residuals import length_of_a_row
from escudo.synthesis._shares import likely_shares, nearest_margins

if TYPE_CHECKING:
    from escudo.synthesis._marginals import PreparedMarginals
    from escudo.synthesis._model import CausalModel
    from escudo.synthesis._moments import PreparedMoments
    from escudo.table import Schema

ASSUMED_ROWS = 10_000
"""The rows that a forecast is for where their number is neither public nor assumed by whoever asks."""

CURVE = (0.1, 0.3, 1.0, 3.0, 10.0)
"""The ε at which a forecast is shown beside the one asked for."""

_LISTED = 40  # columns, and pairs, whose errors are written out

_FOR_COLUMNS, _FOR_FAMILIES = 0.1, 0.3  # of the units that no rule gives away
_FOR_TRIPLES = 0.2  # of what is picked, where triples may be
_PICKED, _PICKED_BESIDE = 0.85, 1 / 4  # of the picks that rows allow: without a graph, and beside one
_DEPENDENCE = 0.005  # half of all pairs of columns depend on each other by more
_SKEW = 2.0  # of the stand-in
_ON = (-2.5, 2.0)  # mean and deviation of its log-odds of second levels, of two, in moments
_CELLS = 96  # so many cells with noise, of which the mean is taken
_FEWEST, _MOST = 2, 32  # times that a table gets noise
_SWEEPS = 30
_SEED = 20_260_117  # any fixed number: the same question always gets the same answer
_DRAWN = 2**14
_STEPS = 40
_FITTED = 1024  # times that a level gets noise
_LEAST_EPSILON, _MOST_EPSILON = 1e-3, 100.0


# ---- what will be measured


@dataclass(frozen=True)
class Measured:
    """What is or will be known of a table, each with how loud its noise is.

    Attributes:
        sizes: Cells of each column.
        rows: The number of rows.
        tables: The standard deviation of the noise in a cell, in rows, of each table.
        pairs: The pairs of columns to forecast.
        picked: The noise in a cell of a pair that is picked on the way; None where none is.
        inner: Whether only residuals are released of what is picked (``_residuals``), which say nothing of columns.
        residuals: Tables that were released so.
        doubtful: Columns no pair of which is picked if their levels are about equally common.
    """

    sizes: Mapping[str, int]
    rows: float
    tables: Mapping[Columns, float]
    _: KW_ONLY
    pairs: Sequence[Pair]
    picked: float | None = None
    inner: bool = False
    residuals: Collection[Columns] = ()
    doubtful: Columns = ()

    @property
    def stated(self) -> bool:
        """Whether it is known which pairs are measured; else they are picked on the way."""
        return any(len(table) > 1 for table in self.tables)

    def cells(self, columns: Columns) -> int:
        """Return how many cells the table of these columns has."""
        return math.prod(self.sizes[name] for name in columns)

    def margin(self, name: str, *, beside: Columns = ()) -> float:
        """Return the noise with which all tables together count a level of a column, but for one of them."""
        precision = sum(told for columns, told in self._told.get(name, ()) if columns != beside)
        return precision**-0.5 if precision else math.inf

    @cached_property
    def _told(self) -> dict[str, list[tuple[Columns, float]]]:
        """The tables that hold each column, each with how precisely it counts a level."""
        found: dict[str, list[tuple[Columns, float]]] = {}
        for columns, scale in self.tables.items():
            for name in () if columns in self.residuals else columns:
                found.setdefault(name, []).append((columns, self.sizes[name] / (self.cells(columns) * scale**2)))
        return found

    def errors(self, law_of: Callable[[Columns], Floats] | None = None) -> tuple[dict[str, float], dict[Pair, float]]:
        """Return the expected error of each column and each pair that is or may be measured.

        Args:
            law_of: The law of some columns; the stand-in by default.
        """
        columns = {
            name: 0.0 if size == 1 else _missed_column(self._law((name,), law_of), self.margin(name) / self.rows)
            for name, size in self.sizes.items()
        }
        pairs: dict[Pair, float] = {}
        told, best = dict[Pair, float](), dict[Pair, float]()
        places: dict[frozenset[str], list[int]] = {}
        for place, pair in enumerate(self.pairs):
            places.setdefault(frozenset(pair), []).append(place)
        for table, scale in self.tables.items():
            within = (places.get(frozenset(pair), ()) for pair in combinations(table, 2))
            inside = tuple(self.pairs[place] for place in sorted(place for each in within for place in each))
            if not inside:
                continue
            missed = self._of(table, scale, inside, law_of, inner=table in self.residuals)
            for pair, error in zip(inside, missed, strict=True):
                precision = self.cells(pair) / (self.cells(table) * scale**2)
                told[pair] = told.get(pair, 0.0) + precision
                if error < pairs.get(pair, math.inf):
                    pairs[pair], best[pair] = error, precision
        for pair, precision in best.items():  # other tables that hold both columns help the one that tells most
            pairs[pair] *= math.sqrt(precision / told[pair])
        for pair in self.pairs:
            varying = tuple(name for name in pair if self.sizes[name] > 1)
            if len(varying) < 2:
                pairs[pair] = columns[varying[0]] if varying else 0.0
            elif pair not in pairs and self.picked is not None:
                new = length_of_a_row(tuple(self.sizes[name] for name in pair)) if self.inner else 1.0
                (pairs[pair],) = self._of(pair, self.picked * new, (pair,), law_of, inner=self.inner)
        return columns, {pair: pairs[pair] for pair in self.pairs if pair in pairs}

    def _of(
        self,
        table: Columns,
        scale: float,
        inside: tuple[Columns, ...],
        law_of: Callable[[Columns], Floats] | None,
        *,
        inner: bool = False,
    ) -> tuple[float, ...]:
        """Return the errors of some pairs in a table with so much noise, or of which only the residual was released."""
        margins = tuple(self.margin(name, beside=table) / self.rows for name in table)
        places = tuple(tuple(table.index(name) for name in columns) for columns in inside)
        return _missed_sums(self._law(table, law_of), scale / self.rows, margins, places, inner=inner)

    def _law(self, columns: Columns, law_of: Callable[[Columns], Floats] | None) -> _Law:
        shape = tuple(self.sizes[name] for name in columns)
        return _Law(shape, None if law_of is None else tuple(law_of(columns).ravel().tolist()))


@dataclass(frozen=True)
class _Law:
    """A law of some columns: the one that is given, or the stand-in for a table of this shape."""

    shape: tuple[int, ...]
    given: tuple[float, ...] | None = None

    @cached_property
    def shares(self) -> Floats:
        if self.given is not None:
            return np.array(self.given).reshape(self.shape)
        law: Floats = np.ones(())
        for size in self.shape:
            falling = np.arange(1.0, size + 1) ** -_SKEW
            law = np.multiply.outer(law, falling / falling.sum())
        return law


@lru_cache(maxsize=4096)
def _missed_column(law: _Law, scale: float) -> float:
    """Return by how much a column is missed, counted with so much noise: many times over, and all at once."""
    rng, shares = np.random.default_rng(_SEED), law.shares
    several = 4 * _times(shares)
    noisy = shares + scale * rng.standard_normal((several, shares.size))
    weight = shares.size / (shares.size * scale**2)  # of one table alone: as margins_of would round
    fitted = nearest_margins(weight * noisy / weight, 1.0)
    return float(np.add.accumulate(np.abs(fitted - shares).sum(axis=1) / 2)[-1] / several)


def _times(shares: Floats) -> int:
    return min(max(_CELLS // shares.size, _FEWEST), _MOST)


@lru_cache(maxsize=4096)
def _missed_sums(
    law: _Law, scale: float, margins: tuple[float, ...], inside: tuple[tuple[int, ...], ...], *, inner: bool
) -> tuple[float, ...]:
    """Return how far sums over some axes are missed, over many draws of the noise at once, once all is fitted.

    With ``inner`` the table says nothing of its columns, which are counted elsewhere.
    """
    shares, several = law.shares, _times(law.shares)
    counted = [axis for axis, noise in enumerate(margins) if math.isfinite(noise)]
    ends = np.cumsum([shares.size, *(shares.shape[axis] for axis in counted)])
    drawn = np.random.default_rng(_SEED).standard_normal((several, ends[-1]))
    first, *others = np.split(drawn, ends[:-1], axis=1)
    noisy = shares + scale * first.reshape(several, *shares.shape)
    apart = dict(zip(counted, others, strict=False))
    wanted = []
    for axis, size in enumerate(shares.shape):
        beside = tuple(other for other in range(shares.ndim) if other != axis)
        own = np.add.reduce(noisy, axis=tuple(1 + other for other in beside))
        parts = [] if inner and axis in apart else [(size / (shares.size * scale**2), own)]
        if axis in apart:
            known = np.add.reduce(shares, axis=beside) + margins[axis] * apart[axis]
            parts.append((size / (size * margins[axis] ** 2), known))
        wanted.append(nearest_margins(weighted_mean(parts)[1], 1.0))
    missed = settled(noisy, scale, wanted, _SWEEPS) - shares
    found = []
    for axes in inside:
        sums = np.add.reduce(missed, axis=tuple(1 + axis for axis in range(shares.ndim) if axis not in axes))
        halves = np.abs(sums).reshape(several, -1).sum(axis=1) / 2
        found.append(float(np.add.accumulate(halves)[-1] / several))
    return tuple(found)


def measured_marginals(prepared: PreparedMarginals, rows: float, louder: float = 1.0) -> Measured:
    """Return what generator ``marginals`` will know, with noise that is louder by a factor than was prepared."""
    shares, level = prepared.shares, prepared.level * louder
    sizes = prepared.schema.sizes
    scales = {columns: event.scale for columns, event in shares.tables(level).items()}
    arrows = [(cause, effect) for cause, effect in prepared.structure.arrows]
    if (moments := shares.moments(level)) is not None:
        large, event = moments
        one = event.scale / _one_row(large.layout.largest_square)
        scales |= {pair: one for pair in large.layout.pairs if pair not in scales}
    picked, inner, doubtful = None, False, list[str]()
    if (adaptive := shares.adaptive(level)) is not None:
        width, unit = len(shares.one_ways), adaptive.unit
        inner = unit.inner

        def add(columns: Columns, units: float) -> None:
            once = unit.noise((sizes[columns[0]],)) if len(columns) == 1 else unit.scale  # a graph's tables stay whole
            scales[columns] = (scales[columns] ** -2.0 + units * once**-2.0) ** -0.5

        by_rule = adaptive.for_columns({name: scales[name,] for (name,) in shares.one_ways}, sizes, rows)
        for name in by_rule:
            add((name,), 1)
        # What is known of columns before pairs are picked; where residuals are released, none stays unknown.
        once = {} if inner else {name: scales[name,] for (name,) in shares.one_ways}
        left = adaptive.units - len(by_rule)
        families = [columns for columns in scales if columns in shares.families]
        for columns in shares.one_ways:
            add(columns, left * _FOR_COLUMNS / width)
        for columns in families:
            add(columns, left * _FOR_FAMILIES / len(families))
        rest = left * (1 - _FOR_COLUMNS - (_FOR_FAMILIES if families else 0.0))
        several = adaptive.used_picks([sizes[name] for (name,) in shares.one_ways], rows) * (
            _PICKED_BESIDE if families else _PICKED
        )
        every = max(math.comb(width, 2), 1)
        several = max(-every * math.expm1(-several / every), 1.0)  # so many are hit, as some are hit again
        triples = rest * _FOR_TRIPLES if adaptive.picks_triples(width, rows) else 0.0
        for (name,) in () if inner else shares.one_ways:  # a picked table counts its columns, a triple its three pairs
            others = [1 / sizes[other] for (other,) in shares.one_ways if other != name]
            other = sum(others) / len(others)
            add((name,), (2 * (rest - triples) + 3 * triples * other) * other / width)
        each = sum(1 / sizes[name] for (name,) in shares.one_ways) / width
        told = rest - triples + (0.0 if inner else 3 * triples * each)
        picked = unit.scale / math.sqrt(max(told / several, 1e-9))
        ordered = ordered_levels(prepared.schema)
        for name, noise in once.items():
            even = np.full(sizes[name], rows / sizes[name])
            merged = {name: groups_of(even, ordered[name], picked)} if name in ordered else {}
            if sizes[name] > 1 and stays_unknown(name, even, np.full(sizes[name], noise), merged, rows=rows):
                doubtful.append(name)
    named = any(parents for parents in prepared.structure.parents.values())
    pairs = arrows if named else list(combinations(prepared.schema.names, 2))
    return Measured(sizes, rows, scales, pairs=pairs, picked=picked, inner=inner, doubtful=tuple(doubtful))


def measured_moments(prepared: PreparedMoments, rows: float, louder: float = 1.0) -> MeasuredMoments:
    """Return what generator ``moments`` and its like will know; a clip bound that is not public is the stand-in's."""
    layout, design = prepared.design.layout, prepared.design
    square, lost = prepared.clip, 1.0
    if not isinstance(square, int):
        common = np.array([_common(size) for size in layout.sizes.values()])
        codes = (np.random.default_rng(_SEED).random((_DRAWN // 8, common.size)) >= common).astype(np.int64)
        squares = row_squares(layout, codes)
        square = layout.bound(float(np.quantile(squares, design.clip_quantile)))
        kept = np.minimum(np.sqrt(square / np.maximum(squares, 1)), 1.0)
        lost = float(codes.sum() / max((codes * kept[:, None]).sum(), 1e-9))
    precision = sum(event.scale**-2.0 for event in (prepared.sums, prepared.again) if event is not None)
    scale = louder * precision**-0.5 * lost / _one_row(square)
    return MeasuredMoments(layout.sizes, rows, scale, pairs=layout.pairs)


def _common(size: int) -> float:
    """Return the share of a column's first level in the stand-in for moments."""
    return float(_Law((size,)).shares[0]) if size <= 2 else 1.0 / size


def _one_row(square: int) -> float:
    """Return what a level or a pair of a row within the clip bound adds to a sum."""
    return 2.0 * math.isqrt(UNIT**2 // square)


@dataclass(frozen=True, slots=True)
class MeasuredMoments:
    """What is or will be known of a table by its moments: how often levels but the first occur, alone and in pairs.

    Attributes:
        sizes: Cells of each column.
        rows: The number of rows.
        scale: The standard deviation of the noise in a level or a pair of levels, in rows, once clipping is undone.
        pairs: The pairs of columns to forecast.
    """

    sizes: Mapping[str, int]
    rows: float
    scale: float
    _: KW_ONLY
    pairs: Sequence[Pair]
    stated: ClassVar[bool] = True

    def errors(self) -> tuple[dict[str, float], dict[Pair, float]]:
        """Return the expected error of each column and each pair."""
        kinds, noise = tuple(sorted(Counter(self.sizes.values()).items())), self.scale / self.rows
        levels = _missed_levels(kinds, noise)
        errors = {size: float(np.abs(off).sum(axis=1).mean() / 2) for size, (_, off) in levels.items()}
        columns = {name: errors[size] for name, size in self.sizes.items()}
        pairs = {
            (cause, effect): _missed_moments(self.sizes[cause], self.sizes[effect], kinds, noise, self.rows)
            for cause, effect in self.pairs
        }
        return columns, pairs


@lru_cache(maxsize=64)
def _missed_levels(kinds: tuple[tuple[int, int], ...], noise: float) -> dict[int, tuple[Floats, Floats]]:
    """Return shares of the levels of columns of each size, many times, and what is settled less these.

    Each level but the first is measured by itself, and settled among all levels as a fit does; the first has what is
    left. Columns have a part in that by how many there are of their size.
    """
    rng = np.random.default_rng(_SEED)
    width = sum(count for _, count in kinds)
    shares = {}
    for size, count in kinds:
        several = np.tile(_Law((size,)).shares, (max(_FITTED * count // width, _MOST), 1))
        if size == 2:  # or all columns of two levels would be alike, and settled as if that were known
            mean, spread = _ON
            several[:, 1] = expit(-np.abs(mean + spread * rng.standard_normal(len(several))))
            several[:, 0] = 1 - several[:, 1]
        shares[size] = rng.permuted(several, axis=1) if size > 2 else several
    seen = {size: law[:, 1:] + noise * rng.standard_normal((len(law), size - 1)) for size, law in shares.items()}
    every = np.concatenate([each.ravel() for each in seen.values()])
    sizes = np.repeat(list(seen), [each.size for each in seen.values()])
    settled_shares, _ = likely_shares(every, np.full(every.size, noise), sizes)
    ends = np.cumsum([each.size for each in seen.values()])[:-1]
    found = {}
    for size, part in zip(seen, np.split(settled_shares, ends), strict=True):
        fitted = part.reshape(seen[size].shape)
        fitted = fitted / np.maximum(fitted.sum(axis=1, keepdims=True), 1.0)
        off = np.concatenate([1 - fitted.sum(axis=1, keepdims=True), fitted], axis=1) - shares[size]
        found[size] = shares[size], off
    return found


@lru_cache(maxsize=4096)
def _missed_moments(causes: int, effects: int, kinds: tuple[tuple[int, int], ...], noise: float, rows: float) -> float:
    """Return by how much a pair of columns of these sizes is missed: its margins as they are, and what joins them.

    Two levels together are measured by themselves. What they are beyond their margins has a normal prior, from that of
    an arrow's log-odds, and the estimate lies between the two by their precisions.
    """
    levels = _missed_levels(kinds, noise)
    if min(causes, effects) < 2:
        return float(np.abs(levels[max(causes, effects)][1]).sum(axis=1).mean() / 2)
    rng = np.random.default_rng(_SEED)
    most = min(len(levels[causes][0]), max(_FITTED // (causes * effects // 4), _MOST))
    order = rng.permutation(len(levels[effects][0]))[:most]
    left, off_left = (each[: order.size] for each in levels[causes])
    right, off_right = (each[order] for each in levels[effects])

    def times(one: Floats, other: Floats) -> Floats:
        return one[:, :, None] * other[:, None, :]

    shares = times(left, right)
    off = times(off_left, right) + times(left, off_right)
    seen = noise * rng.standard_normal((order.size, causes - 1, effects - 1)) - off[:, 1:, 1:]
    arrow = ("logit arrow", "logit family") if (causes, effects) == (2, 2) else ("logit levels",)
    prior = times(left * (1 - left), right * (1 - right))[:, 1:, 1:] ** 2 * sum(FIRST_PRIORS[k][1] ** 2 for k in arrow)
    both = shares[:, 1:, 1:]
    joined = seen * prior / (prior + noise**2 + both * (1 - both) / rows)
    joined = np.concatenate([-joined.sum(axis=1, keepdims=True), joined], axis=1)
    joined = np.concatenate([-joined.sum(axis=2, keepdims=True), joined], axis=2)
    fitted = np.maximum(shares + off + joined, 0.0)
    fitted /= fitted.sum(axis=(1, 2), keepdims=True)
    return float(np.abs(fitted - shares).sum(axis=(1, 2)).mean() / 2)


# ---- the forecast


class Design(Protocol):
    """Something prepared that knows what it will measure, for any number of rows and any noise."""

    def measured_at(self, rows: float, louder: float = 1.0) -> Measured | MeasuredMoments:
        """Return what will be known, with noise that is louder by a factor than was prepared."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected error of a release, from public facts alone.

    Attributes:
        generator: Whose.
        budget: What the release may cost.
        rows: For a table of so many rows,
        assumed: which is an assumption, as their number is not public.
        columns: The expected total variation of each column,
        pairs: and of each pair of columns along an arrow; without a graph of every pair, if it is measured.
        picked: Whether pairs are such: which of them are measured is decided on the way.
        design: What was prepared.
        doubtful: Columns no pair of which is measured on the way if their levels are about equally common: then more
            than half of their rows lie below their noise.
    """

    generator: str
    budget: Budget
    rows: int
    assumed: bool
    columns: Mapping[str, float]
    pairs: Mapping[Pair, float]
    picked: bool
    design: Design = field(repr=False, compare=False)
    doubtful: Columns = ()

    @classmethod
    def of(cls, design: Design, generator: str, budget: Budget, rows: int | None) -> Forecast:
        """Return the forecast of what was prepared for a budget; None for rows whose number is not public."""
        count = ASSUMED_ROWS if rows is None else max(rows, 1)
        told = _told(design.measured_at(count))
        return cls(generator=generator, budget=budget, rows=count, assumed=rows is None, design=design, **told)

    @property
    def column_error(self) -> float:
        """The mean over all columns."""
        return _mean(self.columns)

    @property
    def pair_error(self) -> float:
        """The mean over all pairs; NaN where there are none.

        Of pairs that may be measured, each counts as much as it is likely to be: those that would be mostly noise are
        seldom picked.
        """
        if not self.picked:
            return _mean(self.pairs)
        likely = {pair: _DEPENDENCE / (_DEPENDENCE + error) for pair, error in self.pairs.items()}
        return sum(likely[pair] * error for pair, error in self.pairs.items()) / sum(likely.values())

    def at(self, epsilon: float) -> Forecast:
        """Return the forecast at another ε, with the same tables in the same shares.

        >>> import escudo
        >>> schema = escudo.Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
        >>> one = forecast(schema, None, epsilon=1.0, delta=1e-6, rows=5000)
        >>> one.at(0.1).column_error > 5 * one.column_error
        True
        """
        budget = Budget(epsilon, self.budget.delta)
        louder = _gaussian_level(budget) / _gaussian_level(self.budget)
        return replace(self, budget=budget, **_told(self.design.measured_at(self.rows, louder)))

    def curve(self, epsilons: Sequence[float] = CURVE) -> tuple[Forecast, ...]:
        """Return the forecast at each of these ε."""
        return tuple(self.at(epsilon) for epsilon in epsilons)

    def epsilon_for(self, error: float, *, of: Literal["columns", "pairs"] = "columns") -> float:
        """Return the ε, to three digits, at which the mean error of columns or pairs is as wanted.

        Args:
            error: The mean total variation, such as 0.01.
            of: Of ``"columns"``, or of ``"pairs"`` along arrows.

        Raises:
            InputError: If there are no pairs, or no ε up to 100 is enough: it takes more rows, or fewer levels.

        >>> import escudo
        >>> schema = escudo.Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
        >>> one = forecast(schema, None, epsilon=1.0, delta=1e-6, rows=5000)
        >>> wanted = one.epsilon_for(0.005)
        >>> one.at(wanted).column_error < 0.00501
        True
        """
        wanted = positive("error", error, at_most=1.0)
        one_of("of", of, ("columns", "pairs"))
        if of == "pairs" and not self.pairs:
            raise InputError("There are no pairs to forecast here: no arrow is measured. Ask for columns.")

        def missed(epsilon: float) -> float:
            found = self.at(epsilon)
            return found.column_error if of == "columns" else found.pair_error

        low, high = _LEAST_EPSILON, _MOST_EPSILON
        if (least := missed(high)) > wanted:
            raise InputError(
                f"No epsilon up to {_MOST_EPSILON:g} is enough for a mean error of {wanted:g} over {of} with "
                f"{self.rows:,} rows: it would be {least:.2g} even then. It takes more rows, or fewer levels or bins."
            )
        while high / low > 1.002:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if missed(middle) <= wanted else (middle, high)
        digits = 10.0 ** (math.floor(math.log10(high)) - 2)
        return min(math.ceil(high / digits - 1e-9) * digits, _MOST_EPSILON)

    @property
    def note(self) -> str:
        """What the figures are, and what they leave out."""
        which = (
            "Which pairs are measured is decided on the way, privately: each is told as if it were, and one that is "
            "not errs by as much as its columns depend on each other. "
            if self.picked
            else ""
        )
        doubtful = (
            f"Pairs with {first_of(map(repr, self.doubtful))} are not measured unless few of its levels have most of "
            "the rows: else more than half of them lie below its noise. "
            if self.doubtful
            else ""
        )
        rows = (
            "The number of rows is not public and was assumed; with ten times the rows, errors are about a tenth. "
            if self.assumed
            else ""
        )
        rough = (
            "Rough, as this generator counts no first levels: they are taken to be common ('no' before 'yes'), and "
            "where they are rare, errors are two to four times as large. "
            if self.generator != "marginals"
            else ""
        )
        return (
            f"{which}{doubtful}{rows}{rough}From public facts alone: what noise leaves in the model's law, in a "
            "stand-in for the table. What drawing rows, a wrong graph or coarse bins leave comes on top."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as JSON values."""
        return {
            "generator": self.generator,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "rows": self.rows,
            "rows_assumed": self.assumed,
            "column_error": self.column_error,
            "pair_error": self.pair_error if self.pairs else None,
            "columns": dict(self.columns),
            "pairs": [{"columns": list(pair), "error": error} for pair, error in self.pairs.items()],
            "pairs_if_measured": self.picked,
            "note": self.note,
        }

    def to_pandas(self) -> Any:
        """Return the error of each column and pair as a pandas frame.

        Raises:
            InputError: If pandas is not installed.
        """
        rows = [(what, name, error) for what, (_, errors) in self._kinds().items() for name, error in errors]
        return listed(rows, ["kind", "name", "error"])

    def plot(self, epsilons: Sequence[float] = CURVE, *, axes: Any = None) -> Any:
        """Draw the mean errors over ε, both on logarithmic scales.

        Args:
            epsilons: Where the forecast is made.
            axes: Axes of matplotlib to draw into; new ones by default.

        Returns:
            The axes; ``.figure`` is their figure, which notebooks show and ``savefig`` writes.

        Raises:
            InputError: If matplotlib is not installed.
        """
        drawn = axes_for(
            axes, title=f"Expected error with {self.rows:,} rows", across="ε", up="mean total variation, %"
        )
        curve = self.curve(epsilons)
        for what in self._kinds():
            errors = [100 * each._kinds()[what][0] for each in curve]
            drawn.plot([each.budget.epsilon for each in curve], errors, marker="o", label=what)
        drawn.set(xscale="log", yscale="log")
        drawn.legend(frameon=False)
        return drawn

    def __str__(self) -> str:
        kinds = self._kinds()
        curve = [(each.budget.epsilon, each._kinds()) for each in self.curve()]
        lines = [f"Forecast for {self.rows:,} rows: expected error (total variation) at ε = {self.budget.epsilon:g}"]
        for what, (mean, errors) in kinds.items():
            pairs_of_all = self.picked and what != "columns"
            lines += [f"  {what:<20}{_percent(mean):>9}   on average", *_each(errors, 1 if pairs_of_all else _LISTED)]
        lines.append("  at ε =              " + "".join(f"{epsilon:>9g}" for epsilon, _ in curve))
        lines += [f"  {what:<20}" + "".join(f"{_percent(there[what][0]):>9}" for _, there in curve) for what in kinds]
        return "\n".join([*lines, f"  {self.note}"])

    def _repr_html_(self) -> str:
        kinds = self._kinds()
        every = [each for _, errors in kinds.values() for each in errors]
        return card(
            f"Forecast for {self.rows:,} rows at ε = {self.budget.epsilon:g}",
            "Expected error (total variation): " + ", ".join(f"{w} {_percent(mean)}" for w, (mean, _) in kinds.items()),
            head=("column or pair", "expected error"),
            rows=[(name, _percent(error)) for name, error in sorted(every, key=lambda each: -each[1])],
            note=self.note,
        )

    def _kinds(self) -> dict[str, tuple[float, list[tuple[str, float]]]]:
        """Return the mean and every error, by name, of columns and of pairs."""
        kinds = {"columns": (self.column_error, list(self.columns.items()))}
        if self.pairs:
            what, sign = ("pairs, if measured", " and ") if self.picked else ("along arrows", " → ")
            kinds[what] = (self.pair_error, [(sign.join(pair), error) for pair, error in self.pairs.items()])
        return kinds


def _told(measured: Measured | MeasuredMoments) -> dict[str, Any]:
    """Return what a forecast says of errors, by its attributes."""
    columns, pairs = measured.errors()
    picked = bool(pairs) and not measured.stated
    doubtful = measured.doubtful if picked and isinstance(measured, Measured) else ()
    return {"columns": columns, "pairs": pairs, "picked": picked, "doubtful": doubtful}


def _each(errors: Sequence[tuple[str, float]], most: int) -> list[str]:
    """Return every error, the largest first, as lines of text; of very many only the largest."""
    ranked = sorted(errors, key=lambda each: -each[1])
    told = [f"{name}\xa0{_percent(error)}".replace(" ", "\xa0") for name, error in ranked[:most]]
    more = f", and {len(ranked) - most:,} more of at most {_percent(ranked[most][1])}" if ranked[most:] else ""
    lines = wrap(", ".join(told) + more, 96, break_long_words=False, break_on_hyphens=False)
    return [f"    {line}".replace("\xa0", " ") for line in lines]


def forecast(
    schema: Schema,
    graph: CausalGraph | None,
    *,
    epsilon: float,
    delta: float | None = None,
    rows: int | None = None,
    relation: str = "replace_one",
    generator: str = "marginals",
    **options: Any,
) -> Forecast:
    """Return the expected error of a release, from public facts alone: nothing is read, spent or drawn.

    Args:
        schema: The columns.
        graph: Which column causes which: full, partial or None.
        epsilon: What the release may cost.
        delta: At this probability aside; 1e-6 by default, or less where there are many rows.
        rows: The number of rows: public, or as many as you expect; 10,000 if left out.
        relation: The neighbouring relation.
        generator: ``"marginals"``, ``"moments"``, ``"one-way"``, ``"independent"`` or ``"auto"``.
        options: What else the generator takes.

    Raises:
        InputError: If an argument is out of range, or there is no forecast for the generator.
        RefusedError: If the schema is not confirmed.

    >>> import escudo
    >>> schema = escudo.Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]})
    >>> graph = escudo.CausalGraph.from_edges([("smoke", "ill")])
    >>> one = forecast(schema, graph, epsilon=1.0, rows=20_000)
    >>> [f"{error:.2%}" for error in (one.column_error, one.pair_error)]
    ['0.02%', '0.05%']
    """
    from escudo.synthesis._budget import above_zero
    from escudo.synthesis._generators import Synthesis, choose
    from escudo.synthesis._marginals import prepare_marginals
    from escudo.synthesis._structure import structure_of
    from escudo.table import Numeric

    graph = as_graph(graph)
    count = None if rows is None else whole("rows", rows, minimum=1)
    neighbours = schema.neighbours(relation=relation, rows=count)
    budget = above_zero(Budget(epsilon, usual_delta(neighbours) if delta is None else delta))
    stated = not any(isinstance(column, Numeric) and column.private for column in schema.fields)
    quick = (generator, options) == ("marginals", {}) or (generator == "auto" and choose(schema)[0] == "marginals")
    if stated and quick:
        schema.require_confirmed()
        structure = structure_of(schema, graph)
        design = prepare_marginals(schema, structure, neighbours, budget, level_of=rough_level)
        return Forecast.of(design, "marginals", budget, count)
    prepared = Synthesis(graph, generator, options).prepare(schema, neighbours, budget)
    foretell = getattr(prepared, "forecast", None)
    found: Forecast | None = None if foretell is None else foretell(count)
    if found is None:
        raise InputError(
            f"There is no forecast for generator {generator!r}: what it leaves depends on more than its noise. There "
            "is one for marginals, moments, one-way and independent."
        )
    return replace(found, budget=budget)


def rough_level(build: Callable[[float], list[Event]], budget: Budget) -> float:
    """Return about the noise level at which a release costs (ε, δ), as if all of it were one Gaussian mechanism.

    That is what it costs in zCDP, and too much by a few hundredths where picks are in it. Nothing is released by it.
    """
    rho = sum(count * _rho(event) for event, count in map(_repeated, build(1.0)))
    return math.sqrt(2 * rho) * _gaussian_level(budget)


def _repeated(event: Event) -> tuple[Event, int]:
    return (event.event, event.count) if isinstance(event, RepeatedEvent) else (event, 1)


def _rho(event: Event) -> float:
    assert isinstance(event, GaussianEvent | ExponentialEvent), "that is all there is in tables"
    return event.rho if isinstance(event, GaussianEvent) else event.epsilon**2 / 8


@lru_cache(maxsize=512)
def _gaussian_level(budget: Budget) -> float:
    """Return the noise at which a Gaussian mechanism of sensitivity 1 costs (ε, δ)."""
    low, high = 1e-4, 1e7
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if gdp_to_delta(1 / middle, budget.epsilon) <= budget.delta else (middle, high)
    return high


# ---- after the release


def stated_errors(model: CausalModel) -> tuple[dict[str, float], dict[Pair, float]] | None:
    """Return the expected error of each column and arrow by the noise that was drawn: post-processing, and public.

    None where the model does not say what noise its tables have.
    """
    tables = model.details.get("tables")
    if not tables:
        return None
    names = list(model.schema.names)
    sizes = model.schema.sizes
    rng = np.random.default_rng(_SEED)
    laws = model.observed or {name: model.conditionals[name] for name in model.graph.topological_order()}
    drawn = draw(laws, {}, _DRAWN, rng)

    def law_of(columns: Columns) -> Floats:
        cells = np.zeros(_DRAWN, dtype=np.int64)
        for name in columns:
            cells = cells * sizes[name] + drawn[name]
        shape = [sizes[name] for name in columns]
        return (np.bincount(cells, minlength=math.prod(shape)) / _DRAWN).reshape(shape)

    arrows = [(str(cause), str(effect)) for cause, effect in model.details.get("stated_arrows", [])]
    measured = Measured(
        sizes={name: sizes[name] for name in names},
        rows=float(model.details["rows"]),
        tables={tuple(each["columns"]): float(each["noise"]) for each in tables},
        pairs=arrows,
        residuals={tuple(each["columns"]) for each in tables if each.get("residual")},
    )
    return measured.errors(law_of)


# ---- numbers for people


def _mean(errors: Mapping[Any, float]) -> float:
    return sum(errors.values()) / len(errors) if errors else math.nan


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 0.0995 else f"{share:.0%}"
