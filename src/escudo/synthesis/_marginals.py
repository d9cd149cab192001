r"""Generator ``marginals``: noisy family tables of the graph, one law per column.

For each column and its parents in the graph, the contingency table of that family is released with Gaussian noise. The
tables are brought to agreement (``_estimation``), and give each column's law given its parents, for interventions, and
given all that the tables show it to go with, for the observed law.

**Tables**, from schema and graph alone. Families of the graph that lie in no other family, and a one-way table for each
column that only occurs in tables of at least ``LARGE`` cells. There, adding up a large table's cells is a poor way to
count a column; in smaller tables a one-way table would take more from the others than it gives.

**Shares.** A table of c cells gets precision in proportion to c^(1/3): of weight w among weights that add up to W, it
gets noise of :math:`\sqrt{W / w}` times a level, so that all of them together cost as much as one table with noise at
the level itself. Picks and repair get parts of that. The accountant finds the level.

**Open pairs** (see ``_structure``). One-way tables first; then the exponential mechanism picks one cause for each
column that has open ones. As in Prim's algorithm, columns whose causes are settled come first, and each step picks the
arrow out of them to another column whose two-way counts differ most, in l1, from what the one-way tables predict for
independent columns. The prediction is public by then, so the score moves by at most the l1 sensitivity of one table.
Between two columns that no graph names, either may be the cause. A column with one picked cause makes no common effect
that nobody stated, so the law along the arrows is the law of the tables. The families of the picked arrows are released
like others, all with the same noise, so that the budget does not depend on which ones were picked.

**Large families.** A family of c cells with noise σ in each misses its rows by about cσ in total. Its table is too
large if that is more than half the number of rows, where it is public, and in any case with more than ``MAX_CELLS``
cells, or ``MAX_TABLE_CELLS`` where the number of rows is public. A family with fewer than two parents is never too
large: its moments are its table. A family that is too large is measured

* in pairs, the child with each parent, up to ``MOST_IN_PAIRS`` cells: it has the most even law that agrees with these;
* beyond that as ``moments`` measures it: one count per level of the child and per pair of levels with each parent, in
  one vector for all such families, and a logit law. No row is clipped, and no budget goes to a clip bound: with few
  columns, the longest vector a row can have is not much longer than usual.

Both leave out how parents act together, with far less noise; the plan says which families these are, and why.

**Repair.** A graph made by hand leaves dependence out. With ``repair=True``, after the family tables are measured and
fitted, pairs of columns that no table holds together are scored by how far their counts are from the model's, in l1,
less what noise alone would add,

.. math:: u_{ab} = \|c_{ab} - \hat n\, \hat p_{ab}\|_1 - \sqrt{2/π}\, σ\, |cells_{ab}|,

and the exponential mechanism picks among them, and *none*, which scores 0. A picked pair's table is released; where
none is worth it, or the observed law has no room left for it, the same noise buys a second release of the family table
that needs it most. Then everything is fitted again, ``_ROUNDS`` times in all. Pairs enter the observed law and are
never arrows: nothing is claimed to cause another because the two go together, and do() answers by the stated graph as
before. The model and the number of rows in the score are public by then, so a score moves by no more than the l1
sensitivity of one contingency table.

**Guarantee.** A composition of discrete Gaussian and exponential events, shown leaf by leaf in the plan.

**Reference.** R. McKenna, B. Mullins, D. Sheldon, G. Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data", VLDB, for the score of repair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo._validate import yes_or_no
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse, gaussian_event
from escudo.privacy import Budget, Event, ExponentialEvent, GaussianEvent, Neighbours, Plan, calibrate
from escudo.synthesis._estimation import Columns, NoisyTable, Pair, TableFits, total_of
from escudo.synthesis._laws import MAX_TABLE_CELLS, Conditional, draw
from escudo.synthesis._model import CausalModel, anchor_of, public_rows
from escudo.synthesis._moment_fit import FittedMoments, check_fittable, fit_moments
from escudo.synthesis._moment_statistics import UNIT, MomentLayout, NoisyMoments, table_sums
from escudo.synthesis._structure import Arrow, Structure, structure_of
from escudo.table import CountSensitivity, PrivateTable, Schema, count_sensitivity

_MAX_OPEN = 4000
_PICKS_PER_COLUMN = 2  # of repair


class Marginals:
    """Family tables under Gaussian noise, all fitted together.

    Args:
        repair: Whether dependence that the graph leaves out is looked for and measured, for the observed law.
    """

    name = "marginals"

    def __init__(self, *, repair: bool = False):
        self.repair = yes_or_no("repair", repair)

    def prepare(
        self, schema: Schema, graph: CausalGraph | None, neighbours: Neighbours, budget: Budget
    ) -> PreparedMarginals:
        """Choose tables and noise from public facts alone."""
        structure = structure_of(schema, graph)
        varying = [arrow for arrow in structure.open_arrows if all(schema[name].size > 1 for name in arrow)]
        structure = replace(structure, open_arrows=tuple(varying))
        # What a single table would get; where there are several, they share it.
        alone = 1.0
        if neighbours.rows is not None:
            alone = calibrate(lambda scale: table_event(neighbours, scale), budget)
        reasons = families_too_large(schema, structure, alone, neighbours.rows)
        paired = {child: reasons[child] for child in in_pairs(schema, structure, reasons)}
        moved_out = {child: reason for child, reason in reasons.items() if child not in paired}
        large = LargeFamilies.of(schema, structure, moved_out) if moved_out else None
        kept = [arrow for arrow in structure.open_arrows if arrow[1] not in reasons]
        structure = replace(structure, open_arrows=tuple(kept))
        if len(structure.open_arrows) > _MAX_OPEN:  # before each of them is looked at
            raise InputError(
                f"The graph leaves {len(structure.open_arrows):,} pairs of columns open, more than {_MAX_OPEN:,}: "
                "counting them all to pick causes would be too slow. State more of the graph, or use "
                "generator='moments'."
            )
        check_sizes(schema, structure, reasons)
        weights = table_weights(schema, structure, reasons, paired)
        shares = TableShares(
            neighbours=neighbours,
            weights=weights,
            picks=len(structure.open_effects),
            picked_weight=typical_weight(schema, structure) if structure.open_arrows else 0.0,
            large=large,
            repairs=_repairs(schema, list(weights)) if self.repair else 0,
        )
        level = calibrate(shares.events, budget)
        return PreparedMarginals(schema, shares, structure, paired, level, budget.delta)


@dataclass(frozen=True, slots=True)
class PreparedMarginals:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        shares: What is released.
        structure: The arrows stated, and those left open.
        paired: Why families are measured in pairs instead of a table, by child.
        level: How loudly: the noise of one table that had all of the tables' budget.
        delta: The δ at which the plan is stated.
    """

    schema: Schema
    shares: TableShares
    structure: Structure
    paired: Mapping[str, str]
    level: float
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        shares, level, children = self.shares, self.level, []
        if (picked := shares.picked(level)) is not None:
            children.append(
                Plan("pick a cause among open ones", picked[1], count=shares.picks, buys="arrows nobody stated")
            )
        leaves = [
            Plan(title_of(columns, self.structure.parents), event, buys=f"{cells_of(self.schema, columns):,} cells")
            for columns, event in shares.tables(level).items()
        ]
        leaves += [
            Plan(f"{child} | {', '.join(self.structure.parents[child])}", buys=f"in pairs, no table: {reason}")
            for child, reason in self.paired.items()
        ]
        children.append(Plan("family tables", children=leaves))
        if picked is not None:
            children.append(Plan("tables of picked families", picked[0], count=shares.picks))
        if (repair := shares.repair(level)) is not None:
            children.append(repair.plan)
        if (moments := shares.moments(level)) is not None:
            large, event = moments
            children.append(large.plan(event, self.structure))
        children += [Plan("fitting all tables together"), Plan("sampling")]
        return Plan("marginals", children=children, delta=self.delta)

    def run(self, table: PrivateTable, purse: Purse) -> CausalModel:
        """Measure and estimate."""
        shares, tables, repair = self.shares, self.shares.tables(self.level), self.shares.repair(self.level)
        exact = table.counts([list(columns) for columns in tables])
        repairs = 0 if repair is None else repair.picks
        with tracking("Measuring", total=len(tables) + 2 * shares.picks + repairs) as advance:
            released = []
            for (columns, event), counts in zip(tables.items(), exact, strict=True):
                released.append(measure(columns, counts, event, purse))
                advance(1)
            chosen: list[Arrow] = []
            if (picked := shares.picked(self.level)) is not None:
                chosen = self._pick_causes(table, released, picked[1], purse)
                advance(shares.picks)
                families = [family_of(self.schema, self.structure, arrow) for arrow in chosen]
                for columns, counts in zip(families, table.counts([list(f) for f in families]), strict=True):
                    released.append(measure(columns, counts, picked[0], purse))
                    advance(1)
            total = public_rows(shares.neighbours, table) or max(round(total_of(released)), 1)
            fits = self._fits(table, released, chosen, total, purse)
            pairs: list[Pair] = []
            if repair is not None:
                released, pairs = repair.run(table, released, fits, purse, advance)
        agreed = fits.agreed(released)
        laws = fits.laws(agreed)
        return CausalModel(
            schema=self.schema,
            graph=self.structure.fitted_graph(fits.parents),
            stated=self.structure.stated,
            conditionals=laws,
            observed=fits.observed(agreed, pairs),
            guarantee=purse.guarantee,
            generator=Marginals.name,
            plan=self.plan,
            details={
                "rows": total,
                "stated_arrows": self.structure.stated_arrows,
                **anchor_of(purse),
            },
        )

    def _fits(
        self,
        table: PrivateTable,
        released: Sequence[NoisyTable],
        chosen: Sequence[Arrow],
        total: int,
        purse: Purse,
    ) -> TableFits:
        """Return how laws are fitted to tables, once those of large families are known."""
        sizes = {name: self.schema[name].size for name in self.schema.names}
        fits = TableFits(sizes, self.structure.with_tree(chosen), [noisy.columns for noisy in released], total)
        moments = self.shares.moments(self.level)
        if moments is None:
            return fits
        large, event = moments
        known = replace(fits, parents={name: fits.parents[name] for name in fits.parents if name not in large.reasons})
        laws = known.laws(known.agreed(released))
        fitted = large.run(table, purse, event, fits.parents, laws, total)
        return replace(fits, parents=fitted.parents, settled={name: fitted.laws[name] for name in large.reasons})

    def _pick_causes(
        self, table: PrivateTable, released: Sequence[NoisyTable], pick: ExponentialEvent, purse: Purse
    ) -> list[Arrow]:
        arrows = self.structure.open_arrows
        expected = {noisy.columns[0]: np.maximum(noisy.counts, 0.0) for noisy in released if len(noisy.columns) == 1}
        score = {}
        for (cause, effect), counts in zip(arrows, table.counts([list(arrow) for arrow in arrows]), strict=True):
            score[cause, effect] = _dependence(counts, expected[cause], expected[effect])
        candidates = dict(score)
        graph = self.structure.graph
        unnamed = set(self.schema.names) - set(() if graph is None else graph.columns)
        candidates.update({(b, a): value for (a, b), value in score.items() if {a, b} <= unnamed})
        waiting = set(self.structure.open_effects)
        chosen: list[Arrow] = []
        for _ in range(self.shares.picks):
            now = [arrow for arrow in candidates if arrow[0] not in waiting and arrow[1] in waiting]
            scores = [candidates[arrow] for arrow in now]
            picked = _pick(scores, pick, purse, "pick an arrow")
            chosen.append(now[picked])
            waiting.remove(now[picked][1])
        return chosen


def _repairs(schema: Schema, tables: Sequence[Columns]) -> int:
    """Return how many pairs repair picks: two for each column, where there are as many that no table holds."""
    varying = sum(schema[name].size > 1 for name in schema.names)
    return min(_PICKS_PER_COLUMN * varying, len(candidate_pairs(schema, tables)))


def _dependence(counts: NDArray[np.int64], first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the l1 distance between two-way counts and those of independent columns with these one-way tables."""
    total = max(math.sqrt(first.sum() * second.sum()), 1.0)
    return float(np.abs(counts - np.outer(first, second) / total).sum())


def _pick(scores: Sequence[float], event: ExponentialEvent, purse: Purse, purpose: str) -> int:
    """Return which score is picked, each of which moves no further than one contingency table."""
    return purse.choose(np.array(scores), event, sensitivity=_moved(event).l1, purpose=purpose)


def measure(columns: Columns, counts: NDArray[np.int64], event: GaussianEvent, purse: Purse) -> NoisyTable:
    """Return a table's counts with the noise that was planned for them."""
    noisy = purse.add(counts, event, purpose=f"table of {', '.join(columns)}")
    return NoisyTable(columns, np.asarray(noisy, dtype=np.float64), event.scale)


# ---- which tables are released


MOST_IN_PAIRS = 2**16
"""The largest family whose law is spelled out from pairs."""

LARGE = 64
"""From so many cells on a table is a poor way to count one of its columns."""


def table_weights(
    schema: Schema, structure: Structure, too_large: Collection[str], paired: Collection[str]
) -> dict[Columns, float]:
    """Return the tables to release with their weights in the budget.

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
    largest = [family for family in families if not any(set(family) < set(other) for other in families)]
    if structure.open_arrows:
        alone = varying  # what is picked is judged by them
    else:
        around = {name: [cells_of(schema, family) for family in largest if name in family] for name in varying}
        alone = [name for name in varying if min(around[name], default=0) >= LARGE]
    tables = dict.fromkeys([*((name,) for name in alone), *largest])
    return {columns: weight_of(cells_of(schema, columns)) for columns in tables}


def weight_of(cells: float) -> float:
    """Return a table's weight in the budget: the cube root of its cells.

    Least for the sum of all cells' errors would be the power 2/3; but what counts in the end are sums over many cells,
    to which small tables speak best. On Adult, NLTCS and Asia 1/3 is as good or better at every ε from 0.1 to 3.
    """
    return float(cells ** (1 / 3))


def typical_weight(schema: Schema, structure: Structure) -> float:
    """Return the weight of a family of mean size among those that may be picked."""
    families = [family_of(schema, structure, arrow) for arrow in structure.open_arrows]
    return weight_of(float(np.mean([cells_of(schema, family) for family in families])))


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


def title_of(columns: Columns, parents: Mapping[str, Columns]) -> str:
    """Return ``child | parents`` for the family a table holds, or its columns."""
    for child, several in parents.items():
        if {child, *several} == set(columns) and several:
            return f"{child} | {', '.join(several)}"
    return ", ".join(columns)


def check_sizes(schema: Schema, structure: Structure, too_large: Collection[str]) -> None:
    """Refuse what could not be counted, before anything is spent.

    Raises:
        InputError: If no column varies, or a table would be too large; with a way out.
    """
    if cells_of(schema, schema.names) == 1:
        raise InputError("Every column of the schema has a single level, so there is nothing to learn or to release.")
    families = [family_of(schema, structure, (name, name)) for name in schema.names if name not in too_large]
    families += [pair for child in too_large for pair in pairs_of(schema, structure, child)]
    families += [family_of(schema, structure, arrow) for arrow in structure.open_arrows]
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
        reason = why_too_large(cells[child], level * math.sqrt(total / weight_of(cells[child])), public_rows)
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


_TREE_SHARE = 0.2  # of the Gaussian budget's inverse variance, turned to the selection of a tree
PICK_SHARE = 0.05
"""Of the zCDP budget, for all picks."""

TABLE_SHARE = 0.25
"""And for what they pick."""


@dataclass(frozen=True, kw_only=True)
class TableShares:
    """What is released, with weights, before it is known how loudly: public.

    Attributes:
        neighbours: Which tables are neighbours.
        weights: The tables, each with its weight.
        picks: How many causes are picked; each makes one more table,
        picked_weight: of this weight.
        large: The families that are measured by moments; None where there are none.
        repairs: How many pairs repair picks.
    """

    neighbours: Neighbours
    weights: Mapping[Columns, float]
    picks: int
    picked_weight: float
    large: LargeFamilies | None
    repairs: int

    def tables(self, level: float) -> dict[Columns, GaussianEvent]:
        """Return the release of each table."""
        return {columns: self._table(weight, level) for columns, weight in self.weights.items()}

    def picked(self, level: float) -> tuple[GaussianEvent, ExponentialEvent] | None:
        """Return the release of each picked family, and what one pick costs; None where nothing is picked."""
        if not self.picks:
            return None
        return self._table(self.picked_weight, level), self._pick(_TREE_SHARE, self.picks, level)

    def moments(self, level: float) -> tuple[LargeFamilies, GaussianEvent] | None:
        """Return the large families with the release of their sums; None where there are none."""
        return None if self.large is None else (self.large, self.large.event(self._table(self.large.weight, level)))

    def repair(self, level: float) -> Repair | None:
        """Return what repair may spend; None without it."""
        if not self.repairs:
            return None
        left = 1 - PICK_SHARE - TABLE_SHARE
        return Repair(
            pick=self._pick(PICK_SHARE / left, self.repairs, level),
            table=table_event(self.neighbours, level * math.sqrt(self.repairs * left / TABLE_SHARE)),
            picks=self.repairs,
        )

    def events(self, level: float) -> list[GaussianEvent | ExponentialEvent]:
        """Return everything that is released."""
        made: list[GaussianEvent | ExponentialEvent] = [*self.tables(level).values()]
        picked, moments, repair = self.picked(level), self.moments(level), self.repair(level)
        made += [] if picked is None else [*picked] * self.picks
        made += [] if moments is None else [moments[1]]
        return made + ([] if repair is None else [repair.table, repair.pick] * self.repairs)

    @cached_property
    def _total(self) -> float:
        moments = 0.0 if self.large is None else self.large.weight
        return sum(self.weights.values()) + self.picks * self.picked_weight + moments

    def _table(self, weight: float, level: float) -> GaussianEvent:
        return table_event(self.neighbours, level * math.sqrt(self._total / weight))

    def _pick(self, part: float, count: int, level: float) -> ExponentialEvent:
        # In zCDP a pick of cost e costs e²/8; all picks get their part of what the tables cost together.
        rho = part * _moved(self.neighbours).l2 ** 2 / (2 * level**2) / count
        return ExponentialEvent(epsilon=math.sqrt(8 * rho), **self.neighbours.stated)


def table_event(neighbours: Neighbours, scale: float) -> GaussianEvent:
    """Return the release of one contingency table with noise of this scale."""
    moved = _moved(neighbours)
    return gaussian_event(
        2,  # or more cells, which is all the same to the event
        l2_sensitivity=moved.l2,
        scale=scale,
        changed_cells=moved.changed_cells,
        integers=True,
        **neighbours.stated,
    )


def _moved(between: Neighbours | Event) -> CountSensitivity:
    """Return how far one row or person moves one contingency table, between the tables of which something is stated."""
    rows = between.max_rows_per_person
    return count_sensitivity(1, relation=between.relation, unit=between.unit, max_rows_per_person=rows)


# ---- repair


_ROUNDS = 4
_MAX_PAIRS = 4000
_SIMULATED = 2**17
_SEED = 20_220_901  # any fixed number: the same release always gives the same model


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What repair may spend: public, and fixed before a row is read.

    Attributes:
        pick: What one pick costs.
        table: The noise of what one pick picks.
        picks: How many there are.
    """

    pick: ExponentialEvent
    table: GaussianEvent
    picks: int

    @property
    def plan(self) -> Plan:
        """The part of the budget tree."""
        return Plan(
            "repair",
            children=[
                Plan("pick a pair the model gets wrong", self.pick, count=self.picks, buys="dependence nobody stated"),
                Plan("tables of picked pairs", self.table, count=self.picks, buys="or of a family again"),
            ],
        )

    def run(
        self,
        table: PrivateTable,
        released: Sequence[NoisyTable],
        fits: TableFits,
        purse: Purse,
        advance: Callable[[int], None],
    ) -> tuple[list[NoisyTable], list[Pair]]:
        """Pick and measure.

        Args:
            table: The private table.
            released: What is measured already.
            fits: How laws follow from tables.
            purse: What noise is drawn from.
            advance: Called with 1 after each pick.

        Returns:
            All tables, and the pairs among them, the earlier column in causal order first.
        """
        tables, pairs = list(released), list[Pair]()
        place = {name: number for number, name in enumerate(fits.order)}
        held = [columns.columns for columns in tables]
        waiting = [_ordered(pair, place) for pair in candidate_pairs(table.schema, held)]
        exact = dict(zip(waiting, table.counts([list(pair) for pair in waiting]), strict=True)) if waiting else {}
        families: dict[Columns, NDArray[np.int64]] = {}  # counted again, but no more than once each
        for part in range(_ROUNDS):
            scores = self._scores(fits.drawable(average_repeats(tables), pairs), exact, fits.total)
            offered = [pair for pair in scores if _has_room(fits, pairs, pair)]
            for _ in range(part, self.picks, _ROUNDS):
                # The last one is none of them.
                each = [*(scores[pair] for pair in offered), 0.0]
                picked = _pick(each, self.pick, purse, "pick a pair")
                pair = offered.pop(picked) if picked < len(offered) else None
                if pair is not None and _has_room(fits, pairs, pair):
                    tables.append(measure(pair, exact.pop(pair), self.table, purse))
                    pairs.append(pair)
                else:
                    if pair is not None:  # the pairs picked before it took its room, and maybe that of others
                        offered = [each for each in offered if _has_room(fits, pairs, each)]
                    needy = _neediest(average_repeats([each for each in tables if each.columns in held]))
                    if needy not in families:
                        families[needy] = table.counts(needy)
                    tables.append(measure(needy, families[needy], self.table, purse))
                advance(1)
        return average_repeats(tables), pairs

    def _scores(
        self, laws: Mapping[str, Conditional], exact: Mapping[Pair, NDArray[np.int64]], rows: float
    ) -> dict[Pair, float]:
        drawn = draw(laws, {}, _SIMULATED, np.random.default_rng(_SEED))
        scores = {}
        for (first, second), counts in exact.items():
            cells = drawn[first] * counts.shape[1] + drawn[second]
            expected = np.bincount(cells, minlength=counts.size) * (rows / _SIMULATED)
            noise = math.sqrt(2 / math.pi) * self.table.scale * counts.size
            scores[first, second] = float(np.abs(counts.ravel() - expected).sum()) - noise
        return scores


def candidate_pairs(schema: Schema, tables: Sequence[Columns]) -> list[Pair]:
    """Return the pairs of columns that no table holds together.

    Raises:
        InputError: If there are too many to count.
    """
    varying = [name for name in schema.names if schema[name].size > 1]
    held = {pair for columns in tables for pair in combinations(columns, 2)}
    pairs = [pair for pair in combinations(varying, 2) if pair not in held]
    if len(pairs) > _MAX_PAIRS:
        raise InputError(
            f"repair would have to count {len(pairs):,} pairs of columns, more than {_MAX_PAIRS:,}. Use "
            "generator='moments' with repair, or leave it out."
        )
    return pairs


def average_repeats(tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return each table once: releases of the same columns are averaged by their precision."""
    several: dict[Columns, list[NoisyTable]] = {}
    for table in tables:
        several.setdefault(table.columns, []).append(table)
    result = []
    for columns, same in several.items():
        precision = np.array([table.scale**-2.0 for table in same])
        counts = sum(weight * table.counts for weight, table in zip(precision, same, strict=True)) / precision.sum()
        result.append(NoisyTable(columns, np.asarray(counts), float(precision.sum() ** -0.5)))
    return result


def _has_room(fits: TableFits, pairs: Sequence[Pair], pair: Pair) -> bool:
    """Return whether the observed law has room for a pair beside those it holds already."""
    return fits.given([*pairs, pair]) is not None


def _ordered(pair: Pair, place: Mapping[str, int]) -> Pair:
    first, second = pair
    return pair if place[first] < place[second] else (second, first)


def _neediest(tables: Sequence[NoisyTable]) -> Columns:
    """Return the table that more precision helps most: weights in the budget are as they are where √c σ³ is equal."""
    return max(tables, key=lambda table: math.sqrt(table.counts.size) * table.scale**3).columns
