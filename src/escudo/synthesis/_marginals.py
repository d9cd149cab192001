r"""Generator ``marginals``: noisy tables of single columns, of the graph's families and of pairs that go together.

For each column and its parents in the graph, the contingency table of that family is released with Gaussian noise;
what the graph leaves out is looked for and measured in pairs (``_adaptive``). The tables are brought to agreement
(``_estimation``), and give each column's law given its parents, for interventions, and given all that the tables show
it to go with, for the observed law. Without a graph there are no families, and all but single columns is looked for.

**Tables**, from schema and graph alone: each column by itself, always, since adding up a large table's cells is a poor
way to count a column; and families of the graph that lie in no other. With three columns or fewer, all pairs.

**Shares** of the budget, as inverse variance. Single columns get ``ONE_WAYS`` where they have many levels and half of
it where they have few, in proportion to the root of their cells (rounded to a power of two, so that few kinds of noise
are to be accounted for). Where the graph names all columns, families get ``FAMILIES``, in proportion to the cube root
of their cells, and picks ``PICKS_BESIDE``; where it names none, picks get ``PICKS``; between the two, by the part of
the columns that are in families. The rest are units for what is picked. A table with share s gets noise of 1/√s times a
level, and the accountant finds the level.

**Open arrows** (see ``_structure``). A column that may have a cause nobody stated gets, as its cause in the graph that
is followed, the one among those allowed that it goes with most in the pairs that were measured, by mutual information.
That is post-processing. A column with one such cause makes no common effect that nobody stated.

**Large families.** A family of c cells with noise σ in each misses its rows by about cσ in total. Its table is too
large if that is more than half the number of rows, where it is public, and in any case with more than ``MAX_CELLS``
cells, or ``MAX_TABLE_CELLS`` where the number of rows is public. A family with fewer than two parents is never too
large: its moments are its table. A family that is too large is measured

* in pairs, the child with each parent, up to ``MOST_IN_PAIRS`` cells: it has the most even law that agrees with these;
* beyond that as ``moments`` measures it: one count per level of the child and per pair of levels with each parent, in
  one vector for all such families, and a logit law. No row is clipped, and no budget goes to a clip bound: with few
  columns, the longest vector a row can have is not much longer than usual. Then rows follow the arrows, and only open
  arrows are looked for.

Both leave out how parents act together, with far less noise; the plan says which families these are, and why.

**Guarantee.** A composition of discrete Gaussian and exponential events, shown leaf by leaf in the plan.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import combinations, groupby

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import yes_or_no
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse, gaussian_event
from escudo.privacy import (
    Budget,
    Event,
    ExponentialEvent,
    GaussianEvent,
    Neighbours,
    Passes,
    Plan,
    RepeatedEvent,
    calibrate,
)
from escudo.synthesis._adaptive import (
    LOUD_PICKS,
    MOST_PICKS,
    ONE_WAYS,
    RESIDUALS_PER_COLUMN,
    UNITS_PER_COLUMN,
    Adaptive,
    ExactCounts,
    candidate_tables,
    faint_picks,
    largeness,
    measure_each,
    moved,
)
from escudo.synthesis._estimation import Columns, NoisyTable, TableFits, arrange, total_of
from escudo.synthesis._forecast import Forecast, Measured, measured_marginals
from escudo.synthesis._laws import MAX_TABLE_CELLS, Conditional
from escudo.synthesis._merging import ordered_levels
from escudo.synthesis._model import CausalModel, anchor_of, public_rows
from escudo.synthesis._moment_fit import FittedMoments, check_fittable, fit_moments
from escudo.synthesis._moment_statistics import UNIT, MomentLayout, NoisyMoments, table_sums
from escudo.synthesis._residuals import Unit, released_in_parts
from escudo.synthesis._structure import Arrow, Structure, structure_of
from escudo.table import PrivateTable, Schema


class Marginals:
    """Tables of single columns, of families and of pairs that go together, under Gaussian noise, all fitted together.

    Args:
        repair: Deprecated, and without effect: dependence that the graph leaves out is always looked for.
    """

    name = "marginals"

    def __init__(self, *, repair: bool | None = None):
        if repair is not None:
            yes_or_no("repair", repair)
            warnings.warn(
                "repair of generator 'marginals' says nothing any more and will end with version 0.3: what the graph "
                "leaves out is always looked for, as far as rows and epsilon allow. Leave it out.",
                DeprecationWarning,
                stacklevel=3,
            )

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedMarginals:
        """Choose tables and noise from public facts alone."""
        return prepare_marginals(schema, structure_of(schema, graph), neighbours, budget)


def prepare_marginals(
    schema: Schema,
    structure: Structure,
    neighbours: Neighbours,
    budget: Budget,
    *,
    level_of: Callable[[Callable[[float], list[Event]], Budget], float] = calibrate,
) -> PreparedMarginals:
    """Choose tables and noise for the arrows that are stated, and what is looked for beside them.

    ``level_of`` finds how loudly; one that only comes near it is good for a forecast, never for a release.
    """
    shares, structure, paired = shares_of(schema, structure, neighbours, budget, level_of=level_of)
    level = level_of(shares.events, budget)
    return PreparedMarginals(schema, shares, structure, paired, level, budget)


def shares_of(
    schema: Schema,
    structure: Structure,
    neighbours: Neighbours,
    budget: Budget,
    *,
    level_of: Callable[[Callable[[float], list[Event]], Budget], float] = calibrate,
) -> tuple[TableShares, Structure, dict[str, str]]:
    """Return what is released, what is left of the open arrows, and why families are measured in pairs, by child."""
    varying = [arrow for arrow in structure.open_arrows if all(schema[name].size > 1 for name in arrow)]
    structure = replace(structure, open_arrows=tuple(varying))
    # What a single table would get; where there are several, they share it.
    alone = 1.0
    if neighbours.rows is not None:
        alone = level_of(lambda scale: [table_event(neighbours, scale)], budget)
    reasons = families_too_large(schema, structure, alone, neighbours.rows)
    paired = {child: reasons[child] for child in in_pairs(schema, structure, reasons)}
    moved_out = {child: reason for child, reason in reasons.items() if child not in paired}
    large = LargeFamilies.of(schema, structure, moved_out) if moved_out else None
    kept = [arrow for arrow in structure.open_arrows if arrow[1] not in reasons]
    structure = replace(structure, open_arrows=tuple(kept))
    check_sizes(schema, structure, reasons)
    families = table_weights(schema, structure, reasons, paired)
    columns = [name for name in schema.names if schema[name].size > 1]
    one_ways: dict[Columns, float] = {(name,): 2.0 ** round(math.log2(schema[name].size) / 2) for name in columns}
    candidates: list[Columns] = []
    if large is not None:
        named = {frozenset(each): each for each in families}
        candidates = [arrow for arrow in structure.open_arrows if frozenset(arrow) not in named]
    elif len(columns) > _FEW:
        candidates = candidate_tables(schema, list(families))
    else:
        held = {frozenset(pair) for each in families for pair in combinations(each, 2)}
        missing = [pair for pair in combinations(columns, 2) if frozenset(pair) not in held]
        families |= {pair: weight_of(cells_of(schema, pair)) for pair in missing}
    if not any(len(each) == 2 and each not in families for each in candidates):
        candidates = []  # everything is measured anyway
    elif arrange({name: schema[name].size for name in schema.names}, [*one_ways, *families]) is None:
        # Rows will follow the arrows: nothing else has room, so nothing else is counted.
        open_arrows = set(structure.open_arrows)
        candidates = [each for each in candidates if each in families or each in open_arrows] or candidates
    shares = TableShares(
        neighbours,
        one_ways,
        families,
        largeness=largeness([schema[name].size for name in columns]),
        named=len({name for each in families for name in each}) / len(columns),
        candidates=tuple(candidates),
        large=large,
    )
    return shares, structure, paired


@dataclass(frozen=True, slots=True)
class PreparedMarginals:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        shares: What is released.
        structure: The arrows stated, and those left open.
        paired: Why families are measured in pairs instead of a table, by child.
        level: How loudly: the noise of one table that had the whole budget.
        budget: What it may cost.
    """

    schema: Schema
    shares: TableShares
    structure: Structure
    paired: Mapping[str, str]
    level: float
    budget: Budget

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        return Plan(
            "marginals",
            children=[*self.measured, Plan("fitting all tables together"), Plan("sampling")],
            delta=self.budget.delta,
        )

    @property
    def measured(self) -> list[Plan]:
        """The part of the budget tree that is not free."""
        shares, level = self.shares, self.level
        titles = titles_of(self.structure.parents)
        leaves = {
            columns: Plan(
                titles.get(frozenset(columns), ", ".join(columns)),
                event,
                buys=f"{cells_of(self.schema, columns):,} cells",
            )
            for columns, event in shares.tables(level).items()
        }
        children = [Plan("single columns", children=[leaf for columns, leaf in leaves.items() if len(columns) == 1])]
        families = [leaf for columns, leaf in leaves.items() if len(columns) > 1]
        families += [
            Plan(f"{child} | {', '.join(self.structure.parents[child])}", buys=f"in pairs, no table: {reason}")
            for child, reason in self.paired.items()
        ]
        if families:
            children.append(Plan("family tables", children=families))
        if (adaptive := shares.adaptive(level)) is not None:
            children.append(adaptive.plan)
        if (moments := shares.moments(level)) is not None:
            large, event = moments
            children.append(large.plan(event, self.structure))
        return children

    @property
    def passes(self) -> Passes:
        """How often the rows are read: large families are summed when the tables are known, triples when picked."""
        summed = Passes(1 if self.shares.moments(self.level) is None else 2)
        adaptive = self.shares.adaptive(self.level)
        return summed if adaptive is None else summed + adaptive.passes(len(self.schema.names))

    def measured_at(self, rows: float, louder: float = 1.0) -> Measured:
        """Return what will be known, with noise that is louder by a factor than was prepared."""
        return measured_marginals(self, rows, louder)

    def forecast(self, rows: int | None) -> Forecast:
        """Return how good the model will be, for so many rows; None where their number is not public."""
        return Forecast.of(self, Marginals.name, self.budget, rows)

    def run(self, table: PrivateTable, purse: Purse) -> CausalModel:
        """Measure and estimate."""
        fitted = self.fitted(table, purse)
        agreed = fitted.fits.agreed(fitted.tables)
        fits = fitted.fits.along(self._causes(agreed, fitted.fits))
        return CausalModel(
            schema=self.schema,
            graph=self.structure.fitted_graph(fits.parents),
            stated=self.structure.stated,
            conditionals=fits.laws(agreed),
            observed=fits.observed(agreed, fitted.pairs),
            guarantee=purse.guarantee,
            generator=Marginals.name,
            plan=purse.plan,
            details={
                "rows": fits.total,
                "stated_arrows": self.structure.stated_arrows,
                "tables": noise_told(fitted.tables),
                **anchor_of(purse),
            },
        )

    def fitted(self, table: PrivateTable, purse: Purse) -> Fitted:
        """Measure, and say how laws follow from what was measured."""
        shares, tables = self.shares, self.shares.tables(self.level)
        adaptive = shares.adaptive(self.level)
        exact = ExactCounts(table)
        exact.read([*tables, *(() if adaptive is None else shares.candidates)])
        with tracking("Measuring", total=len(tables) + (0 if adaptive is None else adaptive.units)) as advance:
            released: list[NoisyTable] = []
            for event, alike in groupby(tables, key=tables.__getitem__):
                found = measure_each({columns: exact[columns] for columns in alike}, event, purse)
                released += found
                advance(len(found))
            rows, off = public_rows(shares.neighbours, table), 0.0
            if rows is None:
                counted, off = total_of(released)
                rows = max(round(counted), 1)
            fits = replace(self._fits(table, released, rows, purse), off=off)
            pairs: list[Columns] = []
            if adaptive is not None:
                released, pairs, fits = adaptive.run(
                    exact, released, fits, purse, candidates=shares.candidates, advance=advance
                )
        return Fitted(released, pairs, fits, exact)

    def _fits(self, table: PrivateTable, released: Sequence[NoisyTable], total: int, purse: Purse) -> TableFits:
        """Return how laws are fitted to tables, once those of large families are known."""
        sizes = {name: self.schema[name].size for name in self.schema.names}
        fits = TableFits(
            sizes,
            self.structure.parents,
            [noisy.columns for noisy in released],
            total,
            open_arrows=frozenset(self.structure.open_arrows),
            ordered=ordered_levels(self.schema),
        )
        moments = self.shares.moments(self.level)
        if moments is None:
            return fits
        large, event = moments
        known = replace(fits, parents={name: fits.parents[name] for name in fits.parents if name not in large.reasons})
        laws = known.laws(known.agreed(released))
        fitted = large.run(table, purse, event, fits.parents, laws, total)
        return replace(fits, parents=fitted.parents, settled={name: fitted.laws[name] for name in large.reasons})

    def _causes(self, agreed: Sequence[NoisyTable], fits: TableFits) -> list[Arrow]:
        """Return for each column that may get a cause the one it goes with most, among those measured with it."""
        told = {frozenset(each.columns): _mutual_information(each.counts) for each in agreed if len(each.columns) == 2}
        best: dict[str, tuple[float, Arrow]] = {}
        for arrow in self.structure.open_arrows:
            effect = arrow[1]
            family = family_of(self.schema, self.structure, arrow)
            says = told.get(frozenset(arrow), 0.0)
            if says > best.get(effect, (0.0, arrow))[0] and cells_of(self.schema, family) <= MOST_IN_PAIRS:
                best[effect] = says, arrow
        return [arrow for _, arrow in best.values() if arrow[1] not in fits.settled]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was measured: all tables, the pairs and triples among them that were picked, how laws follow from them.

    The exact counts that noise was added to come along, for more of it to be added to; they are private.
    """

    tables: Sequence[NoisyTable]
    pairs: Sequence[Columns]
    fits: TableFits
    exact: ExactCounts


def noise_told(tables: Sequence[NoisyTable]) -> list[dict[str, object]]:
    """Return the noise that each table has in the end, in rows a cell, for a model's details: public by then.

    Of a residual, it is the noise in each of its directions, and it is called one.
    """
    return [
        {"columns": list(table.columns), "noise": float(f"{table.scale:.4g}")}
        | ({"residual": True} if table.inner and len(table.columns) > 1 else {})
        for table in tables
    ]


def _mutual_information(counts: NDArray[np.float64]) -> float:
    """Return what one column of a table says of the other, in nats."""
    law = counts / max(float(counts.sum()), 1e-300)
    apart = np.outer(law.sum(axis=1), law.sum(axis=0))
    seen = law > 0
    return float((law[seen] * np.log(law[seen] / apart[seen])).sum())


# ---- which tables are released


_FEW = 3
"""Up to so many columns, all pairs are measured, and nothing is picked."""

MOST_IN_PAIRS = 2**16
"""The largest family whose law is spelled out from pairs."""


def table_weights(
    schema: Schema, structure: Structure, too_large: Collection[str], paired: Collection[str]
) -> dict[Columns, float]:
    """Return the tables of families with their weights in what families get of the budget.

    Args:
        schema: The columns.
        structure: The arrows.
        too_large: The children of families that are too large for a table.
        paired: Those among them that are measured in pairs instead.
    """
    varying = [name for name in schema.names if schema[name].size > 1]
    families = dict.fromkeys(family_of(schema, structure, (name, name)) for name in varying if name not in too_large)
    for child in paired:
        families |= dict.fromkeys(pairs_of(schema, structure, child))
    holding: dict[str, list[set[str]]] = {}
    for family in families:
        for name in family:
            holding.setdefault(name, []).append(set(family))
    largest = [family for family in families if not any(set(family) < other for other in holding[family[0]])]
    return {columns: weight_of(cells_of(schema, columns)) for columns in largest if len(columns) > 1}


def weight_of(cells: float) -> float:
    """Return a table's weight in the budget: the cube root of its cells.

    Least for the sum of all cells' errors would be the power 2/3; but what counts in the end are sums over many cells,
    to which small tables speak best. On Adult, NLTCS and Asia 1/3 is as good or better at every ε from 0.1 to 3.
    """
    return float(cells ** (1 / 3))


def cells_of(schema: Schema, columns: Sequence[str]) -> int:
    """Return how many cells the table of these columns has."""
    return math.prod(schema.shape(columns))


def family_of(schema: Schema, structure: Structure, arrow: Arrow) -> Columns:
    """Return an arrow's effect, its stated parents and its cause, in schema order; a single level needs no counting."""
    cause, effect = arrow
    wanted = {cause, effect, *structure.parents[effect]}
    return tuple(name for name in schema.names if name in wanted and schema[name].size > 1)


def pairs_of(schema: Schema, structure: Structure, child: str) -> list[Columns]:
    """Return the tables of a child with each of its parents, in schema order."""
    return [
        tuple(name for name in schema.names if name in (child, parent))
        for parent in structure.parents[child]
        if schema[parent].size > 1
    ]


def titles_of(parents: Mapping[str, Columns]) -> dict[frozenset[str], str]:
    """Return ``child | parents`` for the columns of each family, of the first child where several have the same."""
    families = [(child, several) for child, several in parents.items() if several]
    return {frozenset((child, *several)): f"{child} | {', '.join(several)}" for child, several in reversed(families)}


def check_sizes(schema: Schema, structure: Structure, too_large: Collection[str]) -> None:
    """Refuse what could not be counted, before anything is spent.

    Raises:
        InputError: If no column varies, or a table would be too large; with a way out.
    """
    if cells_of(schema, schema.names) == 1:
        raise InputError("Every column of the schema has a single level, so there is nothing to learn or to release.")
    families = [family_of(schema, structure, (name, name)) for name in schema.names if name not in too_large]
    families += [pair for child in too_large for pair in pairs_of(schema, structure, child)]
    largest = max(families, key=lambda family: cells_of(schema, family))
    if cells_of(schema, largest) > MAX_TABLE_CELLS:
        raise InputError(
            f"The table of {', '.join(largest)} would have {cells_of(schema, largest):,} cells, more than "
            f"{MAX_TABLE_CELLS:,}. Use generator='moments' for columns with many parents, or fewer levels or bins."
        )


# ---- large families


MAX_CELLS = 20_000
"""The most cells a family's table has where the number of rows is not public."""

_MOST_ADDED = 1  # open arrows that a large family may get


def families_too_large(schema: Schema, structure: Structure, level: float, public_rows: int | None) -> dict[str, str]:
    """Return why families are too large for a table, by child; each that goes leaves its budget to the others."""
    cells = {
        child: cells_of(schema, (child, *parents))
        for child, parents in structure.parents.items()
        if schema[child].size > 1 and sum(schema[parent].size > 1 for parent in parents) > 1
    }
    reasons: dict[str, str] = {}
    for child in sorted(cells, key=lambda name: -cells[name]):
        total = sum(table_weights(schema, structure, reasons, in_pairs(schema, structure, reasons)).values())
        noise = level * math.sqrt(total / weight_of(cells[child]) / FAMILIES)
        reason = why_too_large(cells[child], noise, public_rows)
        if not reason:
            break  # smaller families err less in total
        reasons[child] = reason
    return reasons


def why_too_large(cells: int, noise: float, public_rows: int | None) -> str:
    """Return why a family's table is too large, or an empty text if it is not.

    >>> why_too_large(4096, 9.0, 60_000)
    '4,096 cells with noise 9 each are more than 60,000 rows pay for'
    >>> why_too_large(4096, 9.0, None)
    ''
    """
    most = MAX_CELLS if public_rows is None else MAX_TABLE_CELLS
    if cells > most:
        return f"{cells:,} cells are more than {most:,}"
    if public_rows is not None and 2 * cells * noise > public_rows:
        return f"{cells:,} cells with noise {noise:.3g} each are more than {public_rows:,} rows pay for"
    return ""


def in_pairs(schema: Schema, structure: Structure, too_large: Iterable[str]) -> list[str]:
    """Return the children of families too large for a table that are measured in pairs, and not by moments."""
    open_effects = set(structure.open_effects)
    return [
        child
        for child in too_large
        if child not in open_effects and cells_of(schema, (child, *structure.parents[child])) <= MOST_IN_PAIRS
    ]


@dataclass(frozen=True, slots=True)
class LargeFamilies:
    """The families that are measured by moments, before a row is read.

    Attributes:
        layout: What is summed.
        reasons: Why each is too large, by child.
    """

    layout: MomentLayout
    reasons: Mapping[str, str]

    @classmethod
    def of(cls, schema: Schema, structure: Structure, reasons: Mapping[str, str]) -> LargeFamilies:
        """Return what is summed for the families of these children, and for the open arrows into them.

        Raises:
            InputError: If a family is too large to fit.
        """
        stated = tuple(arrow for arrow in structure.arrows if arrow[1] in reasons)
        candidates = tuple(arrow for arrow in structure.open_arrows if arrow[1] in reasons)
        used = {name for arrow in (*stated, *candidates) for name in arrow}
        sizes = {name: schema[name].size for name in schema.names if name in used}
        check_fittable(sizes, {child: structure.parents[child] for child in reasons}, candidates, _MOST_ADDED)
        return cls(MomentLayout(sizes, stated, candidates), dict(reasons))

    @property
    def weight(self) -> float:
        """The weight of a table that would err as much: as many cells, with noise of the length of the longest row."""
        return float((self.layout.size * math.sqrt(self.layout.largest_square) / 2) ** (2 / 3))

    def event(self, table: GaussianEvent) -> GaussianEvent:
        """Return the event of the sums with noise as in the release of one contingency table."""
        return gaussian_event(
            self.layout.size,
            l2_sensitivity=table.l2_sensitivity * UNIT,
            scale=table.scale * UNIT,
            integers=True,
            relation=table.relation,
            unit=table.unit,
            max_rows_per_person=table.max_rows_per_person,
        )

    def plan(self, event: GaussianEvent, structure: Structure) -> Plan:
        """Return the part of the budget tree: one release, and which families it serves."""
        laws = [
            Plan(f"logit of {child} | {', '.join(structure.parents[child])}", buys=f"no table: {reason}")
            for child, reason in self.reasons.items()
        ]
        sums = Plan("sums of levels and pairs", event, buys=f"{self.layout.size:,} sums")
        return Plan("moments of large families", children=[sums, *laws])

    def run(
        self,
        table: PrivateTable,
        purse: Purse,
        event: GaussianEvent,
        parents: Mapping[str, Columns],
        known: Mapping[str, Conditional],
        rows: float,
    ) -> FittedMoments:
        """Measure the sums and fit the large families, given the parents of all columns and the laws of the others."""
        square = self.layout.largest_square
        exact, _ = table_sums(table, self.layout, square)
        values = np.asarray(purse.add(exact, event, purpose="sums of levels and pairs"), dtype=np.float64)
        moments = NoisyMoments.from_release(self.layout, values, event.scale, square, rows)
        return fit_moments(moments, parents, dict.fromkeys(self.reasons, "logit"), known=known, most_added=_MOST_ADDED)


# ---- what each release gets of the budget


FAMILIES = 0.55
"""Of the budget, as inverse variance, for families, where they hold all columns."""

PICKS, PICKS_BESIDE = 0.12, 0.06
"""And for picks: without a graph, and beside one that names all columns."""

_LOUD, _FAINT = 2 / 3, 1 / 4  # of what picks get; and what faint ones get besides


@dataclass(frozen=True)
class TableShares:
    """What is released, with weights, before it is known how loudly: public.

    Attributes:
        neighbours: Which tables are neighbours.
        one_ways: The tables of single columns, each with its weight,
        families: and those of families.
        largeness: Whether columns have many levels.
        named: What part of the columns is in families.
        candidates: What may be picked; nothing where nothing is left to be found.
        large: The families that are measured by moments; None where there are none.
    """

    neighbours: Neighbours
    one_ways: Mapping[Columns, float]
    families: Mapping[Columns, float]
    _: KW_ONLY
    largeness: float
    named: float
    candidates: tuple[Columns, ...]
    large: LargeFamilies | None

    @cached_property
    def _parts(self) -> tuple[float, float, float, float]:
        """What single columns, families, picks and units get; large families are among the families."""
        named = 1.0 if self.large is not None else self.named
        alone = ONE_WAYS * (1 + self.largeness) / 2
        picks = PICKS + named * (PICKS_BESIDE - PICKS) if self.candidates else 0.0
        families = FAMILIES * named
        if self.candidates:
            faint = _FAINT * picks if faint_picks(len(self.one_ways)) else 0.0
            return alone, families, picks, 1 - alone - families - picks - faint
        return (alone, 1 - alone, 0.0, 0.0) if families else (1.0, 0.0, 0.0, 0.0)

    def tables(self, level: float) -> dict[Columns, GaussianEvent]:
        """Return the release of each table."""
        alone, families, _, _ = self._parts
        within = families / self._family_weights if families else 0.0
        weights = sum(self.one_ways.values())
        shares = {name: alone * weight / weights for name, weight in self.one_ways.items()}
        shares |= {columns: within * weight for columns, weight in self.families.items()}
        kinds = {share: table_event(self.neighbours, level / math.sqrt(share)) for share in set(shares.values())}
        return {columns: kinds[share] for columns, share in shares.items()}

    def moments(self, level: float) -> tuple[LargeFamilies, GaussianEvent] | None:
        """Return the large families with the release of their sums; None where there are none."""
        if self.large is None:
            return None
        share = self._parts[1] * self.large.weight / self._family_weights
        return self.large, self.large.event(table_event(self.neighbours, level / math.sqrt(share)))

    def adaptive(self, level: float) -> Adaptive | None:
        """Return what may be picked and measured; None where nothing is left to be found."""
        if not self.candidates:
            return None
        width = len(self.one_ways)
        _, _, picks, rest = self._parts
        several = RESIDUALS_PER_COLUMN if released_in_parts(self.neighbours, self.largeness) else UNITS_PER_COLUMN
        units = max(round(several * width * rest / (1 - ONE_WAYS - PICKS)), 1)
        loud = math.ceil(LOUD_PICKS * width)
        quiet = round(MOST_PICKS * width) - loud
        faint = faint_picks(width)
        return Adaptive(
            Unit.of(self.neighbours, level * math.sqrt(units / rest), self.largeness),
            units,
            (
                (self._pick(picks * _LOUD / loud, level), loud),
                (self._pick(picks * (1 - _LOUD) / quiet, level), quiet),
                *([(self._pick(picks * _FAINT / faint, level), faint)] if faint else []),
            ),
            level=level,
            rest=rest,
        )

    def events(self, level: float) -> list[Event]:
        """Return everything that is released."""
        made: list[Event] = [*self.tables(level).values()]
        moments, adaptive = self.moments(level), self.adaptive(level)
        made += [] if moments is None else [moments[1]]
        made += [] if adaptive is None else [RepeatedEvent(event=one, count=many) for one, many in adaptive.events]
        return made

    @cached_property
    def _family_weights(self) -> float:
        return sum(self.families.values()) + (0.0 if self.large is None else self.large.weight)

    def _pick(self, share: float, level: float) -> ExponentialEvent:
        # In zCDP a pick of cost e costs e²/8, and a table with noise at the level ρ.
        rho = share * moved(self.neighbours).l2 ** 2 / (2 * level**2)
        return ExponentialEvent(epsilon=math.sqrt(8 * rho), **self.neighbours.stated)


def table_event(neighbours: Neighbours, scale: float) -> GaussianEvent:
    """Return the release of one contingency table with noise of this scale."""
    one = moved(neighbours)
    return gaussian_event(
        2,  # or more cells, which is all the same to the event
        l2_sensitivity=one.l2,
        scale=scale,
        changed_cells=one.changed_cells,
        integers=True,
        **neighbours.stated,
    )
