r"""Generator ``marginals``: noisy family tables of the graph, one law per column.

For each column and its parents in the graph, the contingency table of that family is released with Gaussian noise, and
one-way tables where they help (``_family_tables``). A table of c cells gets precision in proportion to c^(1/3); the
common factor is found by the accountant. The tables are brought to agreement (``_estimation``), and give each column's
law given its parents, for interventions, and given all that the tables show it to go with, for the observed law
(``_observed``).

**Open pairs** (see ``_structure``). One-way tables first; then the exponential mechanism picks one cause for each
column that has open ones. As in Prim's algorithm, columns whose causes are settled come first, and each step picks the
arrow out of them to another column whose two-way counts differ most, in l1, from what the one-way tables predict for
independent columns. The prediction is public by then, so the score moves by at most the l1 sensitivity of one table.
Between two columns that no graph names, either may be the cause. A column with one picked cause makes no common effect
that nobody stated, so the law along the arrows is the law of the tables. The families of the picked arrows are released
like others, all with the same noise, so that the budget does not depend on which ones were picked.

**Repair.** With ``repair=True``, pairs of columns that the model gets wrong are picked and measured as well, and enter
the observed law: see ``_repair``.

**Large families.** A family whose table the data cannot pay for is measured in pairs (``_family_tables``), or gets its
law from moments (``_large_families``).

**Guarantee.** A composition of discrete Gaussian and exponential events, shown leaf by leaf in the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Seed, exponential
from escudo.privacy import Account, ExponentialEvent, GaussianEvent, Guarantee, Plan, Relation, calibrate
from escudo.synthesis._estimation import NoisyTable, total_of
from escudo.synthesis._family_tables import (
    Columns,
    cells_of,
    check_sizes,
    families_too_large,
    family_of,
    in_pairs,
    measure,
    table_weights,
    title_of,
    typical_weight,
)
from escudo.synthesis._large_families import LargeFamilies
from escudo.synthesis._marginal_shares import Shares, table_event
from escudo.synthesis._model import CausalModel
from escudo.synthesis._observed import Pair
from escudo.synthesis._options import yes_or_no
from escudo.synthesis._repair import Repair, candidate_pairs
from escudo.synthesis._structure import Arrow, Structure, structure_of
from escudo.synthesis._table_fits import TableFits
from escudo.table import PrivateTable, Schema, count_sensitivity

__all__ = ["Marginals", "PreparedMarginals"]

_MAX_OPEN = 4000
_PICKS_PER_COLUMN = 2  # of repair


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMarginals:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        structure: The arrows stated, and those left open.
        tables: Which tables are released, with the noise of each.
        pairs: The noise of each picked family, and what one pick costs; None where nothing is open.
        picks: How many open arrows are picked.
        repair: What repair may spend; None without it.
        paired: Why families are measured in pairs instead of a table, by child.
        large: The families that are measured by moments instead, with their noise; None where there are none.
        delta: The δ at which the plan is stated.
        public_rows: The number of rows, where it is public.
    """

    schema: Schema
    structure: Structure
    tables: Mapping[Columns, GaussianEvent]
    pairs: tuple[GaussianEvent, ExponentialEvent] | None
    picks: int
    repair: Repair | None
    paired: Mapping[str, str]
    large: tuple[LargeFamilies, GaussianEvent] | None
    delta: float
    public_rows: int | None

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        children = []
        if self.pairs is not None:
            children.append(
                Plan("pick a cause among open ones", self.pairs[1], count=self.picks, buys="arrows nobody stated")
            )
        leaves = [
            Plan(title_of(columns, self.structure.parents), event, buys=f"{cells_of(self.schema, columns):,} cells")
            for columns, event in self.tables.items()
        ]
        leaves += [
            Plan(f"{child} | {', '.join(self.structure.parents[child])}", buys=f"in pairs, no table: {reason}")
            for child, reason in self.paired.items()
        ]
        children.append(Plan("family tables", children=leaves))
        if self.pairs is not None:
            children.append(Plan("tables of picked families", self.pairs[0], count=self.picks))
        if self.repair is not None:
            children.append(self.repair.plan)
        if self.large is not None:
            large, event = self.large
            children.append(large.plan(event, self.structure))
        children += [Plan("fitting all tables together"), Plan("sampling")]
        return Plan("marginals", children=children, delta=self.delta)

    def fit(self, table: PrivateTable, *, account: Account, seed: Seed, guarantee: Guarantee) -> CausalModel:
        """Measure and estimate; charges ``account`` for what the plan shows, before noise is drawn."""
        names = list(self.tables)
        exact = table.counts([list(columns) for columns in names])
        repairs = 0 if self.repair is None else self.repair.picks
        with tracking("Measuring", total=len(names) + 2 * self.picks + repairs) as advance:
            released = []
            for columns, counts in zip(names, exact, strict=True):
                released.append(measure(columns, counts, self.tables[columns], account=account, seed=seed))
                advance(1)
            chosen: list[Arrow] = []
            if self.pairs is not None:
                chosen = self._pick(table, released, account=account, seed=seed)
                advance(self.picks)
                families = [family_of(self.schema, self.structure, arrow) for arrow in chosen]
                for columns, counts in zip(families, table.counts([list(f) for f in families]), strict=True):
                    released.append(measure(columns, counts, self.pairs[0], account=account, seed=seed))
                    advance(1)
            rows = self.public_rows
            if rows is None and guarantee.relation == "replace_one" and guarantee.unit == "row":
                rows = max(int(exact[0].sum()), 1)  # public: replacing a row leaves their number as it is
            total = max(round(total_of(released)), 1) if rows is None else rows
            fits = self._fits(table, released, chosen, total, account=account, seed=seed)
            pairs: list[Pair] = []
            if self.repair is not None:
                released, pairs = self.repair.fit(
                    table, released, fits, rows=total, account=account, seed=seed, advance=advance
                )
        agreed = fits.agreed(released)
        laws = fits.laws(agreed)
        return CausalModel(
            schema=self.schema,
            graph=self.structure.fitted_graph(fits.parents),
            conditionals=laws,
            observed=fits.observed(agreed, pairs),
            guarantee=guarantee,
            generator=Marginals.name,
            plan=self.plan,
            details={
                "rows": total,
                "stated_arrows": [list(arrow) for arrow in self.structure.arrows],
            },
        )

    def _fits(
        self,
        table: PrivateTable,
        released: Sequence[NoisyTable],
        chosen: Sequence[Arrow],
        total: int,
        *,
        account: Account,
        seed: Seed,
    ) -> TableFits:
        """Return how laws are fitted to tables, once those of large families are known."""
        sizes = {name: self.schema[name].size for name in self.schema.names}
        parents = self.structure.with_tree(chosen)
        tables = [table.columns for table in released]
        if self.large is None:
            return TableFits(sizes=sizes, parents=parents, tables=tables, total=total, settled={})
        large, event = self.large
        counted = {name: several for name, several in parents.items() if name not in large.reasons}
        known = TableFits(sizes=sizes, parents=counted, tables=tables, total=total, settled={})
        laws = known.laws(known.agreed(released))
        fitted = large.fit(table, event, parents, laws, rows=total, account=account, seed=seed)
        settled = {name: fitted.laws[name] for name in large.reasons}
        return TableFits(sizes=sizes, parents=fitted.parents, tables=tables, total=total, settled=settled)

    def _pick(
        self, table: PrivateTable, released: Sequence[NoisyTable], *, account: Account, seed: Seed
    ) -> list[Arrow]:
        assert self.pairs is not None
        pick, arrows = self.pairs[1], self.structure.open_arrows
        expected = {noisy.columns[0]: np.maximum(noisy.counts, 0.0) for noisy in released if len(noisy.columns) == 1}
        score = {}
        for (cause, effect), counts in zip(arrows, table.counts([list(arrow) for arrow in arrows]), strict=True):
            score[cause, effect] = _dependence(counts, expected[cause], expected[effect])
        candidates = dict(score)
        unnamed = _unnamed(self.schema, self.structure)
        candidates.update({(b, a): value for (a, b), value in score.items() if {a, b} <= unnamed})
        sensitivity = count_sensitivity(
            1, relation=pick.relation, unit=self.schema.unit, max_rows_per_person=self.schema.max_rows_per_person
        ).l1
        waiting = set(self.structure.open_effects)
        chosen: list[Arrow] = []
        for _ in range(self.picks):
            now = [arrow for arrow in candidates if arrow[0] not in waiting and arrow[1] in waiting]
            picked = exponential(
                np.array([candidates[arrow] for arrow in now]),
                sensitivity=sensitivity,
                epsilon=pick.epsilon,
                relation=pick.relation,
                unit=pick.unit,
                max_rows_per_person=pick.max_rows_per_person,
                account=account,
                seed=seed,
                purpose="pick an arrow",
            ).value
            chosen.append(now[picked])
            waiting.remove(now[picked][1])
        return chosen


class Marginals:
    """Family tables under Gaussian noise, all fitted together.

    Args:
        repair: Whether dependence that the graph leaves out is looked for and measured, for the observed law.
    """

    name = "marginals"

    def __init__(self, *, repair: bool = False):
        self.repair = yes_or_no("repair", repair)

    def prepare(
        self,
        schema: Schema,
        graph: CausalGraph | None,
        *,
        epsilon: float,
        delta: float,
        relation: Relation = "replace_one",
        public_rows: int | None = None,
    ) -> PreparedMarginals:
        """Choose tables and noise from public facts alone."""
        structure = _varying(schema, structure_of(schema, graph))
        # What a single table would get; where there are several, they share it.
        alone = 1.0
        if public_rows is not None:
            alone = calibrate(lambda scale: table_event(schema, relation, scale), epsilon=epsilon, delta=delta)
        reasons = families_too_large(schema, structure, alone, public_rows)
        paired = {child: reasons[child] for child in in_pairs(schema, structure, reasons)}
        moved_out = {child: reason for child, reason in reasons.items() if child not in paired}
        large = LargeFamilies.of(schema, structure, moved_out) if moved_out else None
        kept = [arrow for arrow in structure.open_arrows if arrow[1] not in reasons]
        structure = replace(structure, open_arrows=tuple(kept))
        check_sizes(schema, structure, reasons)
        if len(structure.open_arrows) > _MAX_OPEN:
            raise InputError(
                f"The graph leaves {len(structure.open_arrows):,} pairs of columns open, more than {_MAX_OPEN:,}: "
                "counting them all to pick causes would be too slow. State more of the graph, or use "
                "generator='moments'."
            )
        picks = len(structure.open_effects)
        weights = table_weights(schema, structure, reasons, paired)
        shares = Shares(
            schema=schema,
            relation=relation,
            weights=weights,
            picks=picks,
            picked_weight=typical_weight(schema, structure) if picks else 0.0,
            large=large,
            repairs=_repairs(schema, list(weights)) if self.repair else 0,
        )
        level = calibrate(shares.events, epsilon=epsilon, delta=delta)
        return PreparedMarginals(
            schema=schema,
            structure=structure,
            tables=shares.tables(level),
            pairs=shares.picked(level),
            picks=picks,
            repair=shares.repair(level),
            paired=paired,
            large=shares.moments(level),
            delta=delta,
            public_rows=public_rows,
        )


def _repairs(schema: Schema, tables: Sequence[Columns]) -> int:
    """Return how many pairs repair picks: two for each column, where there are as many that no table holds."""
    varying = sum(schema[name].size > 1 for name in schema.names)
    return min(_PICKS_PER_COLUMN * varying, len(candidate_pairs(schema, tables)))


def _varying(schema: Schema, structure: Structure) -> Structure:
    """Return the structure without open arrows from or to a column of a single level."""
    kept = [arrow for arrow in structure.open_arrows if all(schema[name].size > 1 for name in arrow)]
    return replace(structure, open_arrows=tuple(kept))


def _unnamed(schema: Schema, structure: Structure) -> set[str]:
    """Return the columns about which the graph says nothing."""
    return set(schema.names) - (set() if structure.graph is None else set(structure.graph.columns))


def _dependence(counts: NDArray[np.int64], first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the l1 distance between two-way counts and those of independent columns with these one-way tables."""
    total = max(math.sqrt(first.sum() * second.sum()), 1.0)
    return float(np.abs(counts - np.outer(first, second) / total).sum())
