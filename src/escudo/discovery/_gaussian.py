r"""Method ``gaussian``: graphs of numbers with linear effects, from one whitened second-moment matrix.

The effects must be about linear; the law of what remains may be anything, as only correlations are read. Directions are
those that all equivalent graphs share.

With a budget so small that the matrix says less than a few dozen rows would, only a forest is reported, or nothing.

**Guarantee.** Four Gaussian events, shown in the plan: scales, curvature, whitening, second moments.

**What is measured**: second moments where noise does the least harm, after whitening. Noise on a covariance matrix is
the same in every direction, while the data are not: where columns nearly determine each other, what is left of one
given the others is small, and noise drowns it first. So the matrix is measured twice, the first time to learn which way
the data lie, the second time in coordinates in which they lie alike:

1. *Scales.* Each column's histogram in 64 cells of its range gives its middle and spread.
2. *Curvature.* Rows z = (½, u, ½ q, o) are shrunk to length :math:`C_q` where they are longer; released is
   :math:`\sum z z^T`. Here u are the columns in units of their spread, cut off at ±3, q = u² - 1, and o is
   0.9 u (\|u\| - 1.8) cut off at ±0.7, an odd wave. It says how much of a column goes with the square of another, or
   with the wave where effects level off, beyond a straight line: :func:`curvature_of`.
3. *Whitening.* Rows x, in units of the spread, are brought to length 1; released is :math:`\sum x x^T / \|x\|^2`. This
   takes the least noise, and its eigenvectors are those of the covariance Σ; the eigenvalues follow from
   :math:`δ_i = \tfrac{λ_i}{2} \int_0^\infty (1 + λ_i t)^{-1} \prod_j (1 + λ_j t)^{-1/2} dt`. Lifted to the noise where
   they are below, they give the map W with :math:`W Σ W^T ≈ I`.
4. *Moments.* Rows z = (½, W x) are shrunk to length C where they are longer; released is :math:`\sum z z^T`. Now every
   partial correlation, whatever it is given, has about the same noise: that of one entry of this matrix.

**Clip bound.** :math:`C^2 = d + \sqrt{2d} + \tfrac14`, one standard deviation above the mean squared length of white
rows. Clipping white rows shrinks the matrix evenly and pulls what is left of Σ - I towards zero by a factor that is
known for normal rows, and taken off. What remains is small against the noise where the noise is large; where two
causes meet in a skewed column it makes a correlation of up to 0.03 between them, a false edge in large tables. So the
bound is wider, up to :math:`C^2 = 5 (d + \sqrt{2d}) + \tfrac14`, as far as the noise on a correlation stays below half
of what chance does to it: that follows from the budget and a public number of rows. Unit rows throughout would take
less noise, but mistake skewness for dependence.

**Sensitivity.** Histograms of d columns: that of d tables of counts. Each matrix, in the Frobenius norm: that of one
table of counts times the squared length of its rows (:math:`C_q^2`, 1, C²), as ``mechanisms/_additive.py`` proves. Rows
enter as whole numbers of steps of 2⁻¹². A row with a missing value enters none of them.

*Curvature*, anew: each row is a function of that row and of what was released before, finite for whatever the columns
hold, and ``bounded_rows`` makes it no longer than :math:`C_q`, squares and waves included, before products are taken;
so :math:`\|z z^T\|_F = \|z\|^2 \le C_q^2` for all :math:`(3 d + 1)^2` entries together, however they are chosen.
:math:`C_q^2 = \tfrac74 d + \sqrt{7 d} + \tfrac14` is about one standard deviation above the mean squared length of
normal rows (1 + ½ + ¼ a column). The waves make it larger by an eighth, for which the share of the budget makes up.

**Not linear.** Where the curvature speaks against linear effects (:attr:`Curvature.seen`; how much of a wave does was
chosen on linear effects alone), method ``auto`` finds the graph from counts instead (``_discrete.py``), at the price of
the two releases that are then not made: the plan shows each of them as one Gaussian event, whose noise, in units of the
sensitivity, is that of the matrix or of the tables, whichever is measured. Which it is follows from what was released
before. Slighter curves are no reason to count, which sees less: but lines leave the product of two slight curves
between two columns that depend on each other through a third, which many rows tell from nothing, and so edges that such
curves might have made are claimed less (:func:`third_columns`). The levels of columns are read off the histograms.

**The search** is for the graph of linear effects with the best penalised likelihood. With v(x | P) the variance that a
regression of x on its parents P leaves, and n the number of rows that would say as much without noise
(``Moments.effective_rows``), a column's score is

.. math:: -\tfrac{n}{2} \ln v(x \mid P) - γ\, \tfrac{\ln n}{2}\, |P| .

It is the same for all equivalent graphs. Up to twelve columns the best graph of all is found (``_search.py``); beyond,
a good one by hill climbing with perturbations. The gains of all arrows into a column are one vector: given P, an arrow
from y adds :math:`-\tfrac n2 \ln(1 - r^2)`, r the partial correlation of x and y.

**Reference.** D. Tyler (1987), "A distribution-free M-estimator of multivariate scatter", and A. Dürre, D. Tyler, D.
Vogel (2016), "On the eigenvalues of the spatial sign covariance matrix in more than two dimensions", for unit rows. The
clipped matrix is that of C. Dwork, K. Talwar, A. Thakurta, L. Zhang (2014), "Analyze Gauss"; the second look after
whitening is the idea of G. Kamath, J. Li, V. Singhal, J. Ullman (2019), "Privately learning high-dimensional
distributions", COLT; G. Schwarz (1978), "Estimating the dimension of a model"; D. Chickering (2002), "Optimal structure
identification with greedy search", JMLR 3, for why the best score is right with enough rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from escudo.causal import AncestralGraph, CausalGraph, Marks
from escudo.discovery._answer import AncestralDiscovery, Discovery, told_by
from escudo.discovery._hidden import Known, find_marks, judged, of_correlations
from escudo.discovery._measurement import release_event
from escudo.discovery._pattern import (
    LINEAR,
    REPEATS,
    Constraints,
    Edge,
    Line,
    Parents,
    constraints_of,
    dag,
    edge_confidences,
    pattern,
    recurrence,
    settled,
)
from escudo.discovery._search import LinearScore, search_linear
from escudo.errors import InputError, SchemaError
from escudo.mechanisms import Purse, bounded_rows, gaussian_event, second_moments
from escudo.privacy import Budget, GaussianEvent, Neighbours, Passes, Plan, calibrate
from escudo.table import Numeric, PrivateTable, Schema, count_sensitivity

if TYPE_CHECKING:
    from escudo.discovery._discrete import Design, PreparedDiscrete

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_SHARES: Final = (0.09, 0.13, 0.22, 0.56)  # of ρ: scales, curvature, whitening, second moments
_STRICTNESS, _DENSE = 1.5, 0.5  # γ of the graph that is reported, and of the one that generates
_FEW_ROWS = 60.0  # effective rows below which only a forest is reported
_HARDLY_ANY = 10.0  # and below which no edge is
_MOST_PARENTS = 8
_MOST_COLUMNS = 200
_ROUNDS, _ROUNDS_AGAIN = 200, 6


def prepare(
    schema: Schema,
    neighbours: Neighbours,
    budget: Budget,
    knowledge: CausalGraph | None,
    instead: Design | None = None,
) -> PreparedGaussian:
    """Choose the noise from public facts alone.

    Args:
        schema: The columns.
        neighbours: Between which tables it must not tell.
        budget: What it may cost.
        knowledge: What is known of the columns.
        instead: What to count where effects are not linear; None to keep to moments.

    Raises:
        SchemaError: If a column is not numeric, or there are fewer than two.
        InputError: If there are too many, or δ is 0.
    """
    for column in schema.fields:
        if not isinstance(column, Numeric):
            raise SchemaError(
                f"column {column.name!r} is categorical, and method 'gaussian' needs numbers; use method='auto', which "
                "takes numbers in the schema's bins."
            )
    columns = len(schema.fields)
    if columns < 2:
        raise SchemaError("a graph needs at least two columns.")
    if columns > _MOST_COLUMNS:
        raise InputError(f"method 'gaussian' takes at most {_MOST_COLUMNS} columns; the schema has {columns:,}.")
    if budget.delta == 0:
        raise InputError("method 'gaussian' adds Gaussian noise and needs a delta above 0, such as 1e-6.")
    stated = neighbours.stated

    def moved(tables: int) -> float:
        return count_sensitivity(tables, **stated).l2

    # A row's matrix has norm at most the limit, where its cell in a table has norm 1. The last factor outweighs the
    # rounding of the product.
    def sensitivities(wide: float) -> tuple[float, ...]:
        limits = (bent_limit(columns), STEPS**2, squared_limit(columns, wide))
        return (moved(columns), *(limit * moved(1) * (1 + 2.0**-50) for limit in limits))

    sizes = (columns * CELLS, (3 * columns + 1) ** 2, columns**2, (columns + 1) ** 2)
    cells = count_sensitivity(columns, **stated).changed_cells

    def exact(level: float, wide: float) -> list[GaussianEvent]:
        return [
            gaussian_event(
                size,
                l2_sensitivity=change,
                scale=level * change / math.sqrt(share),
                changed_cells=cells if size == sizes[0] else None,
                integers=True,
                **stated,
            )
            for size, change, share in zip(sizes, sensitivities(wide), _SHARES, strict=True)
        ]

    def either(level: float) -> list[GaussianEvent]:
        """Return the last two releases in units of their sensitivity, with room for either kind."""
        most = max(sizes[-1], *([] if instead is None else instead.numbers)) + 1
        return [release_event(level / math.sqrt(share), neighbours, numbers=most) for share in _SHARES[2:]]

    def events(level: float, wide: float = 1.0) -> list[GaussianEvent]:
        return exact(level, wide) if instead is None else [*exact(level, wide)[:2], *either(level)]

    usual = exact(calibrate(events, budget), 1.0)[-1]
    most = 2**62 / squared_limit(columns) / (neighbours.max_rows_per_person or 1)
    wide = _width(neighbours.records, usual.scale / STEPS**2, most)
    level = calibrate(partial(events, wide=wide), budget)
    first, second, third, fourth = exact(level, wide)
    open_events: tuple[GaussianEvent, GaussianEvent] | None = None
    if instead is not None:
        open_events = (either(level)[0], either(level)[1])
        if third.rho > open_events[0].rho or fourth.rho > open_events[1].rho:
            raise AssertionError("the plan shows less than a release costs")
    return PreparedGaussian(
        schema,
        constraints_of(schema, knowledge),
        (first, second, third, fourth),
        delta=budget.delta,
        rows=neighbours.stated_rows,
        wide=wide,
        instead=instead,
        open_events=open_events,
    )


@dataclass(frozen=True, slots=True)
class PreparedGaussian:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns, all numeric.
        constraints: What is known of them.
        events: The releases: scales, curvature, whitening, second moments.
        delta: The δ at which the plan is stated.
        rows: The number of rows, where it was stated as public.
        wide: By how much the clip bound of the last release is larger than usual, squared.
        instead: What to count where effects are not linear; None to keep to moments.
        open_events: What the last two releases are charged as, where it is open which they are.
    """

    schema: Schema
    constraints: Constraints
    events: tuple[GaussianEvent, GaussianEvent, GaussianEvent, GaussianEvent]
    _: KW_ONLY
    delta: float
    rows: int | None
    wide: float = 1.0
    instead: Design | None = None
    open_events: tuple[GaussianEvent, GaussianEvent] | None = None

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        columns = len(self.schema.names)
        side = columns + 1
        clip = math.sqrt(squared_limit(columns, self.wide)) / STEPS
        tables = "" if self.instead is None else ", or tables"
        last = self.events[2:] if self.open_events is None else self.open_events
        name = "discovery (gaussian)" if self.instead is None else f"discovery (gaussian, or {self.instead.method})"
        return Plan(
            name,
            children=[
                Plan("scales", self.events[0], buys=f"middle and spread of {columns} columns"),
                Plan("curvature", self.events[1], buys=f"whether effects of {columns} columns are linear"),
                Plan(f"whitening{tables}", last[0], buys=f"{columns} × {columns} matrix of unit rows{tables}"),
                Plan(
                    f"second moments{tables}",
                    last[1],
                    buys=f"{side} × {side} matrix, rows clipped to {clip:.3g}{tables}",
                ),
                Plan("search"),
                Plan("edge confidence"),
            ],
            delta=self.delta,
        )

    @property
    def passes(self) -> Passes:
        """How often the rows are read: twice to look, and then twice for moments, or for tables instead."""
        last = Passes(2) if self.instead is None else self._by_counts({}).passes
        least = min(last.least, 2)
        return Passes(2 + least, max(last.most, 2) - least, "moments, or for tables where effects are not linear")

    def find(self, table: PrivateTable, purse: Purse) -> Discovery:
        """Measure what the plan shows, and search on it: post-processing, free of charge."""
        names, known = self.schema.names, self.constraints
        measured = self._measure(table, purse)
        if isinstance(measured, tuple):
            counted, note = measured
            found_by_counts = counted.find(table, purse)
            return replace(found_by_counts, notes=(note, *found_by_counts.notes))
        moments, rows, few, bent = measured.moments, measured.rows, measured.few, measured.bent
        most = 0 if rows < _HARDLY_ANY else 1 if few else _MOST_PARENTS

        def found(of: Moments, strictness: float, rounds: int, start: Parents | None = None) -> Parents:
            return search_linear(LinearScore(of.correlation, rows, strictness, known, most), rounds, start)

        parents = found(moments, _STRICTNESS, _ROUNDS)
        graph = pattern(names, parents, known)
        dense = found(moments, _DENSE, _ROUNDS, parents)
        rng = np.random.default_rng(0)  # of public noise on released numbers
        seen = recurrence(
            lambda: pattern(names, found(moments.renoise(rng), _STRICTNESS, _ROUNDS_AGAIN, parents), known)
        )
        sure, ways = edge_confidences(graph, seen, LINEAR, bent.about(moments.correlation, names, graph))
        graph = settled(graph, seen)
        return Discovery(
            graph=graph,
            generating_graph=dag(names, dense),
            edge_confidence=sure,
            direction_confidence={arrow: ways[arrow] for arrow in graph.edges},
            cannot_tell=_cannot_tell(graph, rows, few),
            **told_by(purse, "gaussian", moments.rows, self._notes(rows, bent)),
        )

    def find_hidden(self, table: PrivateTable, purse: Purse) -> AncestralDiscovery:
        """Measure the same, and search on it for what holds also where causes are hidden."""
        names, known = self.schema.names, Known.of(self.constraints)
        measured = self._measure(table, purse)
        if isinstance(measured, tuple):
            counted, note = measured
            by_counts = counted.find_hidden(table, purse)
            return replace(by_counts, notes=(note, *by_counts.notes))
        rows, few = measured.rows, measured.few

        def marks(of: Moments) -> Marks:
            forest = None
            if few:
                most = 0 if rows < _HARDLY_ANY else 1
                forest = search_linear(LinearScore(of.correlation, rows, _STRICTNESS, self.constraints, most), 0)
            return find_marks(len(names), of_correlations(of.correlation, rows), known, most=3, within=forest)

        rng = np.random.default_rng(0)  # of public noise on released numbers
        again = (marks(measured.moments.renoise(rng)) for _ in range(REPEATS))
        found = judged(names, marks(measured.moments), again, known)
        return AncestralDiscovery(
            graph=found.graph,
            edge_confidence=found.edge_confidence,
            mark_confidence=found.mark_confidence,
            cannot_tell=_cannot_tell(found.graph, rows, few),
            **told_by(purse, "gaussian", measured.moments.rows, self._notes(rows, measured.bent)),
        )

    def _measure(self, table: PrivateTable, purse: Purse) -> _Looked | tuple[PreparedDiscrete, str]:
        """Release moments, or return what is to be counted instead, and why."""
        names = self.schema.names
        scales = measure_scales(table, names, self.events[0], purse, self.rows)
        bent = measure_curvature(table, names, self.events[1], purse, scales)
        if self.instead is not None and self.open_events is not None:
            if bent.seen:
                seen = zip(self.schema.fields, scales.counts, strict=True)
                binned = {c.name: _in_bins(c, counts) for c, counts in seen if isinstance(c, Numeric)}
                return self._by_counts(binned), f"{bent.told(names)}, so counts were taken."
            whitening, last = (purse.within(event, purpose="moments") for event in self.open_events)
        else:
            whitening = last = purse
        moments = measure_moments(table, names, self.events[2:], (whitening, last), scales, self.wide)
        together = float(self.schema.max_rows_per_person or 1)  # a person's rows may all be alike
        rows = moments.effective_rows() / together
        few = rows < _FEW_ROWS
        return _Looked(moments, bent, moments.effective_rows(alone=True) / together if few else rows, few)

    def _by_counts(self, counts: Mapping[str, Floats]) -> PreparedDiscrete:
        """Return what to count, given each column's released histogram: scales and curvature are measured by then."""
        from escudo.discovery._discrete import PreparedDiscrete

        assert self.instead is not None
        assert self.open_events is not None
        first, second = self.open_events
        at_once = len(self.instead.numbers) - self.instead.merges == 1
        return PreparedDiscrete(
            self.schema,
            self.instead,
            None,
            first,
            None if at_once else second,
            self.delta,
            again=second if at_once else None,
            counts=counts,
        )

    def _notes(self, rows: float, bent: Curvature) -> list[str]:
        notes = [
            "Linear effects are assumed; only correlations are read.",
            f"The noise leaves what about {rows:,.0f} rows would say without it.",
        ]
        if bent.seen:
            told = bent.told(self.schema.names)
            notes.append(f"{told}: confidences allow for it, and method='auto' counts instead.")
        gone = [column.name for column in self.schema.fields if column.missing]
        if gone:
            notes.append(f"Rows with a missing value ({', '.join(gone)}) take no part.")
        return notes


@dataclass(frozen=True, slots=True, eq=False)
class _Looked:
    """What was measured of moments, how many rows it is worth, and whether those are few."""

    moments: Moments
    bent: Curvature
    rows: float
    few: bool


def _cannot_tell(graph: CausalGraph | AncestralGraph, rows: float, few: bool) -> str:
    if rows < _HARDLY_ANY:
        return f"the noise leaves what about {rows:.0f} rows would say; more rows or a larger epsilon are needed"
    if few:
        return (
            "what one column says given the others drowns in the noise, or some columns determine each other, so only "
            "the strongest pairs are shown and no directions; more rows or a larger epsilon are needed"
        )
    if not graph.adjacencies:
        return "no dependence between two columns stands out from the noise; more rows or a larger epsilon are needed"
    return ""


# ---- second moments after whitening

CELLS = 64
"""Cells of a column's range, to find its middle and spread."""

STEPS = 2**12
"""Steps from 0 to 1: products of two entries add up exactly, in float64 over a batch and in int64 over 2³¹ rows."""

_CONSTANT = 0.5
_CLEAR = 4.0  # standard deviations of the noise
_QUIET, _WIDEST = 0.5, 5.0  # the noise that a wider clip bound may bring, in standard deviations of chance; how wide
_BATCH = 2**15
_SHRINK = 1 - 2.0**-40  # outweighs the rounding errors of the factor that shrinks a row


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """A covariance matrix of standardised columns as it was measured.

    Attributes:
        white: The covariance in whitened coordinates, near the identity; shape (columns, columns).
        back: The map from whitened coordinates to standardised columns.
        noise: The standard deviation of the noise on the diagonal of ``white``; off it, it is smaller by √2.
        rows: How many rows there are: as stated, or a noisy number of those without a missing value.
    """

    white: Floats
    back: Floats
    noise: float
    rows: float

    @property
    def correlation(self) -> Floats:
        """The correlations of the columns, positive definite."""
        return self._mapped()[0]

    def effective_rows(self, *, alone: bool = False) -> float:
        r"""Return how many rows without noise would say as much: one over the variance of a partial correlation.

        With residuals a and b of two columns given all others, in whitened coordinates, the noise on their product has
        variance :math:`\tfrac{τ^2}{2}(\|a\|^2 \|b\|^2 + (a \cdot b)^2)`; the mean over all pairs is taken, and what
        clipping costs beside.

        Args:
            alone: Whether correlations are meant that are given nothing; they stand more noise.
        """
        matrix, back = self._mapped()
        d = len(matrix)
        left, residuals = np.ones(d), back
        if not alone:
            precision = np.linalg.inv(matrix)
            left = 1 / np.diag(precision)
            residuals = (precision * left[:, None]) @ back
        inner = residuals @ residuals.T
        size = np.diag(inner)
        spread = (np.outer(size, size) + inner**2) / np.outer(left, left)
        mean = float(spread[np.triu_indices(d, 1)].mean())
        return 1 / ((1 + 2 / d) / max(self.rows, 1.0) + self.noise**2 / 2 * mean)

    def renoise(self, rng: np.random.Generator) -> Moments:
        """Return what could have been measured if this were the truth: chance and noise drawn anew; public."""
        d = len(self.white)
        chance = math.sqrt(2 * (1 + 2 / d) / max(self.rows, 1.0))
        drawn = self.white + math.hypot(chance, self.noise) * _symmetric(rng.standard_normal((d, d)))
        return replace(self, white=drawn)

    def _mapped(self) -> tuple[Floats, Floats]:
        """Return the correlations, and the map to them from whitened coordinates."""
        # Below a share of its own noise an eigenvalue says nothing; where the noise is small, nothing is lifted.
        floor = min(max(self.noise, 1e-4), 0.5)
        matrix = self.back @ _lift(self.white, floor) @ self.back.T
        scale = np.sqrt(np.diag(matrix))[:, None]
        return matrix / scale / scale.T, self.back / scale


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Where columns lie, as it was measured.

    Attributes:
        names: The columns.
        counts: Noisy rows in each cell of each column's range, shape (columns, cells).
        middle: The middle of each column on [-1, 1].
        spread: Its spread.
        rows: How many rows there are: as stated, or a noisy number of those without a missing value.
    """

    names: tuple[str, ...]
    counts: Floats
    middle: Floats
    spread: Floats
    rows: float

    def second_moments(self, table: PrivateTable, stepped: Callable[[Floats], Floats], side: int) -> Integers:
        """Return the sum of z zᵀ over the rows z that ``stepped`` makes of rows in units of the spread."""
        middle, spread = self.middle, self.spread
        return _sums(
            table, self.names, lambda rows: second_moments((stepped((row - middle) / spread) for row in rows), side)
        )


def measure_scales(
    table: PrivateTable, names: tuple[str, ...], event: GaussianEvent, purse: Purse, rows: float | None
) -> Scales:
    """Release histograms.

    Args:
        table: The private table.
        names: Its columns.
        event: What was planned.
        purse: Pays it, and draws the noise.
        rows: The number of rows, where it was stated; else the histograms count those without a missing value.
    """
    d = len(names)
    counts = _released(_sums(table, names, lambda rows: histograms(rows, d)), event, purse, "scales")
    rows = max(float(counts.sum()) / d, 1.0) if rows is None else float(rows)
    middle, spread = np.array([_middle_and_spread(column, rows, noise=event.scale) for column in counts]).T
    return Scales(names, counts, middle, spread, rows)


def _released(exact: Integers, event: GaussianEvent, purse: Purse, purpose: str) -> Floats:
    return np.asarray(purse.add(exact, event, purpose), dtype=np.float64)


def _in_bins(column: Numeric, counts: Floats) -> Floats:
    """Return a histogram of a column's range as rows in each of the schema's cells."""
    below = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
    bins = column.size - column.missing
    edges = np.interp(np.linspace(0, CELLS, bins + 1), np.arange(CELLS + 1), below)
    return np.append(np.diff(edges), [1.0] * column.missing)


def measure_moments(
    table: PrivateTable,
    names: tuple[str, ...],
    events: Sequence[GaussianEvent],
    purses: tuple[Purse, Purse],
    scales: Scales,
    wide: float = 1.0,
) -> Moments:
    """Release both matrices.

    Args:
        table: The private table.
        names: Its columns.
        events: What was planned: whitening, second moments.
        purses: Pay them, and draw the noise.
        scales: Where columns lie.
        wide: By how much the clip bound of the second is larger than usual, squared.
    """
    d, rows = len(names), scales.rows
    exact = scales.second_moments(table, unit_rows, d)
    sums = _released(exact, events[0], purses[0], "whitening") / STEPS**2
    noise = events[0].scale / STEPS**2 / rows
    values, vectors = np.linalg.eigh(_symmetric(sums) / rows)
    # The largest eigenvalue of d × d such noise is near sqrt(2 d) times its standard deviation.
    roots = np.sqrt(_unshrink(np.maximum(values, min(noise * math.sqrt(2 * d), 1 / d))))
    turn, back = (vectors / roots) @ vectors.T, (vectors * roots) @ vectors.T
    limit = squared_limit(d, wide)
    exact = scales.second_moments(table, lambda rows: clipped_rows(turned_rows(rows, turn), limit), d + 1)
    sums = _released(exact, events[1], purses[1], "second moments") / STEPS**2
    second, noise = _covariance(_symmetric(sums), rows, events[1].scale / STEPS**2)
    size = max(float(np.trace(second)) / d, noise)
    slope = _slope(d, wide)
    white = np.eye(d) + (second / size - np.eye(d)) * slope
    return Moments(white, back, noise / size * slope, rows)


def squared_limit(columns: int, wide: float = 1.0) -> int:
    """Return the largest squared length of a row, in squared steps; ``wide`` times as much as usual."""
    return math.floor((wide * (columns + math.sqrt(2 * columns)) + _CONSTANT**2) * STEPS**2)


def _width(rows: int | None, noise: float, most: float = math.inf) -> float:
    """Return by how much the squared clip bound may be larger: noise, in proportion to it, stays well below chance.

    Args:
        rows: The number of rows or people, where it is public; else the bound is as usual.
        noise: The standard deviation on the diagonal of the sums, at the usual bound.
        most: How many rows of the usual bound 64 bits have room for.
    """
    if rows is None:
        return 1.0
    return max(min(_QUIET * math.sqrt(2 * rows) / noise, most / rows, _WIDEST), 1.0)


def turned_rows(rows: Floats, turn: Floats) -> Floats:
    """Return W x for each row, by steps that treat every row alike.

    A matrix product may round a row differently depending on where it stands among others, and one row more or less
    would then move them all by a hair.
    """
    found = np.zeros(rows.shape)
    for place in range(rows.shape[1]):
        found += rows[:, place, None] * turn[:, place]
    return found


def clipped_rows(rows: Floats, limit: int) -> Floats:
    """Return (½, x) for each row in whole steps, with a squared length of at most ``limit``, exactly."""
    steps: Floats = np.column_stack([np.full(len(rows), _CONSTANT), np.clip(rows, -1e6, 1e6)]) * STEPS
    return bounded_rows(steps, limit)


def unit_rows(rows: Floats) -> Floats:
    """Return each row brought to length 1, in whole steps, with a squared length of at most STEPS², exactly."""
    within = np.clip(rows, -1e6, 1e6)
    length = np.maximum(np.sqrt((within * within).sum(axis=1)), 1e-9)
    found: Floats = np.trunc(within * (STEPS * _SHRINK / length)[:, None])
    return found


def histograms(batches: Iterator[Floats], columns: int) -> Integers:
    """Return how many rows lie in each cell of each column's range, shape (columns, cells)."""
    found = np.zeros((columns, CELLS), dtype=np.int64)
    for batch in batches:
        cells = np.clip(((batch + 1) * (CELLS / 2)).astype(np.int64), 0, CELLS - 1)
        for place in range(columns):
            found[place] += np.bincount(cells[:, place], minlength=CELLS)
    return found


def _sums(table: PrivateTable, names: tuple[str, ...], add_up: Callable[[Iterator[Floats]], Integers]) -> Integers:
    """Return sums over the rows that lack no value."""
    return table.sums(
        lambda batches: add_up(batch[~np.isnan(batch).any(axis=1)] for batch in batches),
        _BATCH,
        list(names),
        encode="scaled",
    )


def _covariance(sums: Floats, rows: float, noise: float) -> tuple[Floats, float]:
    """Return the covariance from sums of (½, x)(½, x)ᵀ, and the noise on its diagonal."""
    weight = max(float(sums[0, 0]) / _CONSTANT**2, rows / 4, 1.0)
    mean = sums[0, 1:] / _CONSTANT / weight
    return sums[1:, 1:] / weight - np.outer(mean, mean), noise / weight


def _unshrink(unit: Floats) -> Floats:
    """Return the eigenvalues of Σ from those of the matrix of unit rows, scaled to mean 1, by fixed-point steps."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    share = (nodes + 1) / 2
    goal: Floats = unit / unit.sum()
    found: Floats = goal * len(goal)
    for _ in range(200):
        scale = math.exp(-float(np.log(found).mean()))
        at = scale * (share / (1 - share)) ** 2  # from (0, 1) to (0, ∞)
        width = weights / 2 * scale * 2 * share / (1 - share) ** 3
        fall = np.exp(-np.log1p(np.outer(at, found)).sum(axis=1) / 2)
        shrunk = found / 2 * ((width * fall)[:, None] / (1 + np.outer(at, found))).sum(axis=0)
        step: Floats = goal / shrunk
        found = found * step * (len(goal) / float((found * step).sum()))
        if np.abs(step - 1).max() < 1e-6:
            break
    return found


def _middle_and_spread(counts: Floats, rows: float, *, noise: float) -> tuple[float, float]:
    """Return a column's middle and spread on [-1, 1] from a noisy histogram.

    Cells that stand out from the noise give a mean and a standard deviation, whatever the law, but lose its tails. The
    normal law nearest in squares uses all cells, but sees one of two humps only. The larger spread is taken; and where
    little stands out, the normal law alone.
    """
    from scipy.special import ndtr

    edges = np.linspace(-1, 1, CELLS + 1)
    edges[0], edges[-1] = -np.inf, np.inf  # what lies beyond the range was counted in the outer cells
    middles = np.linspace(-1, 1, 4 * CELLS + 1)
    best, found = -math.inf, (0.0, 1.0)
    for spread in np.geomspace(0.5 / CELLS, 1.0, 40):
        shares = np.diff(ndtr((edges - middles[:, None]) / spread), axis=1)
        # Least squares: |counts - n p|², without what does not depend on p.
        match = shares @ counts - rows / 2 * (shares * shares).sum(axis=1)
        place = int(np.argmax(match))
        if match[place] > best:
            best, found = float(match[place]), (float(middles[place]), float(spread))
    clear = np.where(counts > _CLEAR * noise, counts, 0.0)
    if clear.sum() < rows / 3:
        return found
    centres = (np.arange(CELLS) + 0.5) * (2 / CELLS) - 1
    mean = float(centres @ clear / clear.sum())
    return mean, max(found[1], math.sqrt(float((centres - mean) ** 2 @ clear / clear.sum())))


def _slope(columns: int, wide: float) -> float:
    r"""Return by how much to stretch what is left of a clipped white covariance beside the identity.

    For normal z with squared length r and weight w = min(1, C²/r) the matrix's diagonal is :math:`E[w r]/d`, and an
    entry δ off the diagonal becomes :math:`δ\, E[w r^2] / d(d + 2)`, by the derivative of the density in δ.
    """
    from scipy.special import gammaincinv

    share = (np.arange(4000) + 0.5) / 4000
    squared = 2 * gammaincinv(columns / 2, share)
    weight = np.minimum(1.0, squared_limit(columns, wide) / STEPS**2 / (squared + _CONSTANT**2))
    return float((columns + 2) * (weight * squared).mean() / (weight * squared**2).mean())


def _lift(matrix: Floats, floor: float) -> Floats:
    values, vectors = np.linalg.eigh(_symmetric(matrix))
    return _symmetric((vectors * np.maximum(values, floor)) @ vectors.T)


def _symmetric(matrix: Floats) -> Floats:
    mean: Floats = (matrix + matrix.T) / 2
    return mean


# ---- whether effects are linear

_CUT = 3.0  # standard deviations, at which columns are cut off before they are squared
# The least correlations that speak against lines, with squares and with waves. Cutting off makes normal columns seem to
# level off by up to 0.03. Linear effects of uniform or skewed noise may reach these; then counts are taken, needlessly.
_BENT = np.array([0.15, 0.08])[:, None, None]
_LIKELY, _CLEAR_CURVE, _SURE = 1.0, 3.0, 4.0  # standard errors: how much it is, and whether it is at all
_STRAIGHT = 0.15  # the correlation from which on two columns may bend from one side only
_LEAST_SPREAD = 0.05  # what is left of a column is not taken to be less: it would be mostly noise


@dataclass(frozen=True, slots=True, eq=False)
class Curvature:
    """How much of a column goes with a bent function of another, beyond a straight line.

    Attributes:
        share: At [k, i, j] the correlation of column j with what a line leaves of the square of column i (k = 0), or of
            an odd function of it (k = 1), as where effects level off.
        error: Its standard error, from chance and noise.
        line: At [i, j] the correlation of the two columns.
        parted: At [i, j] the part of what a line of some third column leaves of their correlation that its curves
            clearly take away.
        made: At [i, j] how far curves of some third column may move their partial correlation, one standard error
            included.
    """

    share: Floats
    error: Floats
    line: Floats
    parted: Floats
    made: Floats

    def least(self, errors: float) -> Floats:
        """Return at [k, i, j] the least curvature that is within so many standard errors of what was measured.

        A linear effect of i on j may bend seen from j, if the law of i is not normal, but not seen from i. So where two
        columns are correlated, only what bends from both sides counts.
        """
        found = np.clip(np.abs(self.share) - errors * self.error, 0.0, 1.0)
        return np.where(np.abs(self.line) > _STRAIGHT, np.minimum(found, found.swapaxes(1, 2)), found)

    @property
    def seen(self) -> bool:
        """Whether it speaks against linear effects: a correlation is at most 1, so one of a larger error never does."""
        sure = (self.least(_SURE) > 0) & (_SURE * self.error < 1)
        return bool((sure & (self.least(_LIKELY) > _BENT)).any())

    def about(self, correlation: Floats, names: Sequence[str], graph: CausalGraph) -> dict[Edge, Line]:
        """Return how strong each edge is, which part of it curves take away, and which part they might have made."""
        precision = np.linalg.inv(correlation)
        scale = np.sqrt(np.diag(precision))
        strength = np.abs(precision / np.outer(scale, scale))
        made = np.clip(self.made / np.maximum(strength, 1e-3), 0.0, 1.0)
        place = {name: number for number, name in enumerate(names)}
        pairs = {(a, b): (place[a], place[b]) for a, b in graph.adjacencies}
        return {
            edge: Line(float(self.parted[pair]), float(made[pair]), float(strength[pair]))
            for edge, pair in pairs.items()
        }

    def told(self, names: Sequence[str]) -> str:
        """Say where it is clearest."""
        clear = self.least(_LIKELY) / _BENT
        _, i, j = np.unravel_index(int(clear.argmax()), clear.shape)
        return f"Effects are not linear ({names[int(j)]} bends with {names[int(i)]})"


def bent_limit(columns: int) -> int:
    """Return the largest squared length of a row with its bent functions, in squared steps."""
    return math.floor((1.75 * columns + math.sqrt(7 * columns) + _CONSTANT**2) * STEPS**2)


def bent_rows(rows: Floats, limit: int) -> Floats:
    """Return (½, u, ½ q, o) for each row, u cut off, in whole steps, with a squared length of at most ``limit``."""
    cut = np.clip(rows, -_CUT, _CUT)
    odd = np.clip(0.9 * cut * (np.abs(cut) - 1.8), -0.7, 0.7)
    steps: Floats = np.column_stack([np.full(len(rows), _CONSTANT), cut, (cut * cut - 1) / 2, odd]) * STEPS
    return bounded_rows(steps, limit)


def measure_curvature(
    table: PrivateTable, names: tuple[str, ...], event: GaussianEvent, purse: Purse, scales: Scales
) -> Curvature:
    """Release the products of columns and their bent functions, and return what they say."""
    d, limit = len(names), bent_limit(len(names))
    exact = scales.second_moments(table, lambda rows: bent_rows(rows, limit), 3 * d + 1)
    sums = _released(exact, event, purse, "curvature") / STEPS**2
    return curvature_of(_symmetric(sums), scales.rows, noise=event.scale / STEPS**2)


def curvature_of(sums: Floats, rows: float, *, noise: float) -> Curvature:
    r"""Return the curvature from sums of (½, u, ½ q, o)(½, u, ½ q, o)ᵀ and the noise on their diagonal.

    With g the halved square or the odd function, what a line leaves of g_i is :math:`g_i - b_i u_i`, :math:`b_i =
    cov(g_i, u_i) / var(u_i)`, and its covariance with u_j is :math:`cov(g_i, u_j) - b_i cov(u_i, u_j)`.
    """
    d = (len(sums) - 1) // 3
    both, noise = _covariance(sums, rows, noise)
    lines = both[:d, :d]
    bent = both[d:, :d].reshape(2, d, d)
    # Below a quarter of what a normal column has, a variance is mostly noise.
    spread = np.maximum(np.diag(lines), 0.25)
    slope = np.diagonal(bent, axis1=1, axis2=2) / spread
    left = np.maximum(np.diag(both)[d:].reshape(2, d) - slope**2 * spread, [[0.125], [0.05]])
    scale = np.sqrt(left[:, :, None] * spread)
    found = (bent - slope[:, :, None] * lines) / scale
    # Noise off the diagonal is smaller by √2; chance is that of a correlation. Noise also reaches b through both of its
    # parts. Of squares that is left out, as where the curves of confidences (``_pattern.py``) were fitted.
    tilt = np.broadcast_to(slope[:, :, None] ** 2, scale.shape)
    loud = (1 + tilt) / 2
    loud[1] += (0.5 + tilt[1]) * (lines / spread[:, None]) ** 2
    error = np.sqrt(noise**2 * loud / scale**2 + 2 / max(rows, 1.0))
    found[:, np.eye(d, dtype=bool)] = 0.0
    line = lines / np.sqrt(np.outer(spread, spread))
    return Curvature(found, error, line, *third_columns(both, found, error, rows))


def third_columns(both: Floats, share: Floats, error: Floats, rows: float) -> tuple[Floats, Floats]:
    r"""Return what curves of a third column do to two others: ``parted`` and ``made`` of :class:`Curvature`.

    Let r be the correlation of columns i and j given a line in k, and s given a line and both bent functions of k. If i
    and j depend on each other through k alone, s is 0, and r is about the sum over both functions of the product of
    their correlations with i and with j: the error of r - s follows from those of ``share``. With n rows a search takes
    a correlation of about :math:`\sqrt{\ln n / n}` for an edge. Where r is larger, and r - s is beyond three standard
    errors, curves take away 1 - \|s\| / \|r\| of it.

    Args:
        both: The covariance of the columns and their bent functions, shape (3 d, 3 d).
        share: The correlations of columns and bent functions.
        error: Their standard errors.
        rows: How many rows there are.
    """
    d = share.shape[1]
    parted, made = np.zeros((d, d)), np.zeros((d, d))
    least = math.sqrt(math.log(max(rows, 3.0)) / max(rows, 3.0))
    clear = _SURE * float(error.max()) < 1
    spread = np.maximum(np.diag(both)[:d], 0.25)
    for k in range(d):
        bent = [k, d + k, 2 * d + k]
        values, vectors = np.linalg.eigh(both[np.ix_(bent, bent)])
        on = both[:d, bent]
        straight = both[:d, :d] - np.outer(on[:, 0], on[:, 0]) / spread[k]
        curved = both[:d, :d] - on @ ((vectors / np.maximum(values, 0.02)) @ vectors.T) @ on.T
        left, less = (np.sqrt(np.maximum(np.diag(one), _LEAST_SPREAD)) for one in (straight, curved))
        r, s = straight / np.outer(left, left), curved / np.outer(less, less)
        of, off = share[:, k] ** 2, error[:, k] ** 2
        variance = np.einsum("fi,fj->ij", of, off) + np.einsum("fi,fj->ij", off, of + off)
        unsure = np.sqrt(variance) * np.outer(np.sqrt(spread) / left, np.sqrt(spread) / left)
        moved = np.abs(r - s)
        told = (np.abs(r) > least) & (moved > _CLEAR_CURVE * unsure) & clear
        part = np.where(told, 1 - np.abs(s) / np.where(told, np.abs(r), 1.0), 0.0)
        might = np.minimum(moved + _LIKELY * unsure, 1.0)
        for one in (part, might):
            one[k] = one[:, k] = 0.0
            np.fill_diagonal(one, 0.0)
        parted, made = np.maximum(parted, part), np.maximum(made, might)
    return parted, made
