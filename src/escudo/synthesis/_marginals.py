r"""Generator ``marginals``: noisy family tables of the graph, one law per column.

For each column and its parents in the graph, the contingency table of that family is released with Gaussian noise. A
table that lies inside another is left out; a column that only occurs in tables at least ``_COARSE`` times its own size
gets a one-way table as well.

**Noise.** A table of c cells with noise σ misses its counts by about cσ in total, at a cost that grows as 1/σ². The sum
of errors under a fixed budget is least at :math:`σ \propto c^{-1/3}` (set the derivative of :math:`\sum c_i σ_i +
λ \sum σ_i^{-2}` to zero): large tables get less noise per cell, small ones more. The common factor is found by the
accountant.

**Open pairs** (see ``_structure``). One-way tables first; then the exponential mechanism picks one cause for each
column that has open ones. As in Prim's algorithm, columns whose causes are settled come first, and each step picks the
arrow out of them to another column whose two-way counts differ most, in l1, from what the one-way tables predict for
independent columns. The prediction is public by then, so the score moves by at most the l1 sensitivity of one table.
Between two columns that no graph names, either may be the cause. A column with one picked cause makes no common effect
that nobody stated, so the law along the arrows is the law of the tables. The families of the picked arrows are released
like others, all with the same noise, so that the budget does not depend on which ones were picked.

**Large families.** A family whose table the data cannot pay for gets its law from moments: see ``_large_families``.

**Guarantee.** A composition of discrete Gaussian and exponential events, shown leaf by leaf in the plan.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Seed, exponential, gaussian
from escudo.privacy import Account, ExponentialEvent, GaussianEvent, Guarantee, Plan, Relation, calibrate
from escudo.synthesis._conditionals import MAX_TABLE_CELLS, Conditional
from escudo.synthesis._estimation import NoisyTable, estimate, total_of
from escudo.synthesis._large_families import LargeFamilies, too_large
from escudo.synthesis._model import CausalModel
from escudo.synthesis._structure import Arrow, Structure, structure_of
from escudo.table import PrivateTable, Schema, count_sensitivity

__all__ = ["Marginals", "PreparedMarginals"]

_COARSE = 64
_TREE_SHARE = 0.2  # of the Gaussian budget's inverse variance, turned to the selection of a tree
_MAX_OPEN = 4000

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMarginals:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        structure: The arrows stated, and those left open.
        tables: Which tables are released, with the noise of each.
        pairs: The noise of each picked family, and what one pick costs; None where nothing is open.
        picks: How many open arrows are picked.
        large: The families that are measured by moments instead, with their noise; None where there are none.
        delta: The δ at which the plan is stated.
        public_rows: The number of rows, where it is public.
    """

    schema: Schema
    structure: Structure
    tables: Mapping[Columns, GaussianEvent]
    pairs: tuple[GaussianEvent, ExponentialEvent] | None
    picks: int
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
            Plan(_title(columns, self.structure), event, buys=f"{_cells(self.schema, columns):,} cells")
            for columns, event in self.tables.items()
        ]
        children.append(Plan("family tables", children=leaves))
        if self.pairs is not None:
            children.append(Plan("tables of picked families", self.pairs[0], count=self.picks))
        if self.large is not None:
            large, event = self.large
            children.append(large.plan(event, self.structure))
        children += [Plan("fitting all tables together"), Plan("sampling")]
        return Plan("marginals", children=children, delta=self.delta)

    def fit(self, table: PrivateTable, *, account: Account, seed: Seed, guarantee: Guarantee) -> CausalModel:
        """Measure and estimate; charges ``account`` for what the plan shows, before noise is drawn."""
        names = list(self.tables)
        exact = table.counts([list(columns) for columns in names])
        with tracking("Measuring", total=len(names) + 2 * self.picks) as advance:
            released = []
            for columns, counts in zip(names, exact, strict=True):
                released.append(_measure(columns, counts, self.tables[columns], account=account, seed=seed))
                advance(1)
            chosen: list[Arrow] = []
            if self.pairs is not None:
                chosen = self._pick(table, released, account=account, seed=seed)
                advance(self.picks)
                families = [_family(self.schema, self.structure, arrow) for arrow in chosen]
                for columns, counts in zip(families, table.counts([list(f) for f in families]), strict=True):
                    released.append(_measure(columns, counts, self.pairs[0], account=account, seed=seed))
                    advance(1)
        rows = self.public_rows
        if rows is None and guarantee.relation == "replace_one" and guarantee.unit == "row":
            rows = max(int(exact[0].sum()), 1)  # public: replacing a row leaves their number as it is
        parents = self.structure.with_tree(chosen)
        sizes = {name: self.schema[name].size for name in self.schema.names}
        counted = {name: several for name, several in parents.items() if name not in self._large_children}
        laws: dict[str, Conditional] = dict(estimate(sizes, counted, released, total=rows))
        total = max(round(total_of(released)), 1) if rows is None else rows
        if self.large is not None:
            large, event = self.large
            fitted = large.fit(table, event, parents, laws, rows=total, account=account, seed=seed)
            parents, laws = dict(fitted.parents), dict(fitted.laws)
        return CausalModel(
            schema=self.schema,
            graph=self.structure.fitted_graph(parents),
            conditionals=laws,
            guarantee=guarantee,
            generator=Marginals.name,
            plan=self.plan,
            details={
                "rows": total,
                "stated_arrows": [list(arrow) for arrow in self.structure.arrows],
            },
        )

    @property
    def _large_children(self) -> Mapping[str, str]:
        return {} if self.large is None else self.large[0].reasons

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
                account=account,
                seed=seed,
                purpose="pick an arrow",
            ).value
            chosen.append(now[picked])
            waiting.remove(now[picked][1])
        return chosen


class Marginals:
    """Family tables under Gaussian noise, all fitted together."""

    name = "marginals"

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
        moved = count_sensitivity(
            1, relation=relation, unit=schema.unit, max_rows_per_person=schema.max_rows_per_person
        )

        def noise(scale: float) -> GaussianEvent:
            return GaussianEvent(
                l2_sensitivity=moved.l2,
                scale=scale,
                grid=1.0,
                changed_cells=moved.changed_cells,
                relation=relation,
                unit=schema.unit,
            )

        # What a single table would get; where there are several, they share it.
        alone = 1.0 if public_rows is None else calibrate(noise, epsilon=epsilon, delta=delta)
        reasons = _too_large(schema, structure, alone, public_rows)
        large = LargeFamilies.of(schema, structure, reasons) if reasons else None
        kept = [arrow for arrow in structure.open_arrows if arrow[1] not in reasons]
        structure = replace(structure, open_arrows=tuple(kept))
        _check_sizes(schema, structure, reasons)
        if len(structure.open_arrows) > _MAX_OPEN:
            raise InputError(
                f"The graph leaves {len(structure.open_arrows):,} pairs of columns open, more than {_MAX_OPEN:,}: "
                "counting them all to pick causes would be too slow. State more of the graph, or use "
                "generator='moments'."
            )
        picks = len(structure.open_effects)
        weights = _weights(schema, structure, reasons)
        pair_weight = _typical_cells(schema, structure) ** (2 / 3) if picks else 0.0
        large_weight = 0.0 if large is None else large.weight
        total = sum(weights.values()) + picks * pair_weight + large_weight

        def share(weight: float, level: float) -> GaussianEvent:
            return noise(level * math.sqrt(total / weight))

        def picking(level: float) -> ExponentialEvent:
            # In zCDP a pick of cost e costs e²/8; all picks get their share of what the tables cost together.
            rho = _TREE_SHARE * moved.l2**2 / (2 * level**2) / picks
            return ExponentialEvent(epsilon=math.sqrt(8 * rho), relation=relation, unit=schema.unit)

        def events(level: float) -> list[GaussianEvent | ExponentialEvent]:
            made: list[GaussianEvent | ExponentialEvent] = [share(weight, level) for weight in weights.values()]
            made += [] if large is None else [large.event(share(large_weight, level))]
            return made + ([share(pair_weight, level), picking(level)] * picks if picks else [])

        level = calibrate(events, epsilon=epsilon, delta=delta)
        return PreparedMarginals(
            schema=schema,
            structure=structure,
            tables={columns: share(weight, level) for columns, weight in weights.items()},
            pairs=(share(pair_weight, level), picking(level)) if picks else None,
            picks=picks,
            large=None if large is None else (large, large.event(share(large_weight, level))),
            delta=delta,
            public_rows=public_rows,
        )


def _varying(schema: Schema, structure: Structure) -> Structure:
    """Return the structure without open arrows from or to a column of a single level."""
    kept = [arrow for arrow in structure.open_arrows if all(schema[name].size > 1 for name in arrow)]
    return replace(structure, open_arrows=tuple(kept))


def _too_large(schema: Schema, structure: Structure, level: float, public_rows: int | None) -> dict[str, str]:
    """Return why families are too large for a table, by child; each that goes leaves its budget to the others."""
    cells = {
        child: _cells(schema, (child, *parents))
        for child, parents in structure.parents.items()
        if schema[child].size > 1 and sum(schema[parent].size > 1 for parent in parents) > 1
    }
    reasons: dict[str, str] = {}
    for child in sorted(cells, key=lambda name: -cells[name]):
        total = sum(_weights(schema, structure, reasons).values())
        reason = too_large(cells[child], level * math.sqrt(total / cells[child] ** (2 / 3)), public_rows)
        if not reason:
            break  # smaller families err less in total
        reasons[child] = reason
    return reasons


def _check_sizes(schema: Schema, structure: Structure, large: Collection[str]) -> None:
    """Refuse what could not be counted, before anything is spent."""
    if _cells(schema, schema.names) == 1:
        raise InputError("Every column of the schema has a single level, so there is nothing to learn or to release.")
    families = [_family(schema, structure, (name, name)) for name in schema.names if name not in large]
    families += [_family(schema, structure, arrow) for arrow in structure.open_arrows]
    largest = max(families, key=lambda family: _cells(schema, family))
    if _cells(schema, largest) > MAX_TABLE_CELLS:
        raise InputError(
            f"The table of {', '.join(largest)} would have {_cells(schema, largest):,} cells, more than "
            f"{MAX_TABLE_CELLS:,}. Use generator='moments' for columns with many parents, or fewer levels or bins."
        )


def _weights(schema: Schema, structure: Structure, large: Collection[str]) -> dict[Columns, float]:
    """Return the tables to release with their weights in the budget.

    Families that lie in no other, and one-way tables where they help; none for the children of large families.
    """
    varying = [name for name in schema.names if schema[name].size > 1]
    families = dict.fromkeys(_family(schema, structure, (name, name)) for name in varying if name not in large)
    largest = [family for family in families if not any(set(family) < set(other) for other in families)]
    if structure.open_arrows:
        alone = varying
    else:
        around = {name: [_cells(schema, family) for family in largest if name in family] for name in varying}
        alone = [name for name in varying if min(around[name], default=0) >= _COARSE * schema[name].size]
    tables = dict.fromkeys([*((name,) for name in alone), *largest])
    return {columns: float(_cells(schema, columns) ** (2 / 3)) for columns in tables}


def _family(schema: Schema, structure: Structure, arrow: Arrow) -> Columns:
    """Return an arrow's effect, its stated parents and its cause, in schema order; a single level needs no counting."""
    cause, effect = arrow
    wanted = {cause, effect, *structure.parents[effect]}
    return tuple(name for name in schema.names if name in wanted and schema[name].size > 1)


def _unnamed(schema: Schema, structure: Structure) -> set[str]:
    """Return the columns about which the graph says nothing."""
    return set(schema.names) - (set() if structure.graph is None else set(structure.graph.columns))


def _typical_cells(schema: Schema, structure: Structure) -> float:
    """Return the mean number of cells of the families that may be picked."""
    return float(np.mean([_cells(schema, _family(schema, structure, arrow)) for arrow in structure.open_arrows]))


def _cells(schema: Schema, columns: Sequence[str]) -> int:
    return math.prod(schema.shape(columns))


def _title(columns: Columns, structure: Structure) -> str:
    """Return ``child | parents`` for the family a table holds, or its columns."""
    for child, parents in structure.parents.items():
        if {child, *parents} == set(columns) and parents:
            return f"{child} | {', '.join(parents)}"
    return ", ".join(columns)


def _measure(
    columns: Columns, counts: NDArray[np.int64], event: GaussianEvent, *, account: Account, seed: Seed
) -> NoisyTable:
    noisy = gaussian(
        counts,
        l2_sensitivity=event.l2_sensitivity,
        scale=event.scale,
        changed_cells=event.changed_cells,
        relation=event.relation,
        unit=event.unit,
        account=account,
        seed=seed,
        purpose=f"table of {', '.join(columns)}",
    )
    return NoisyTable(columns, np.asarray(noisy.value, dtype=np.float64), event.scale)


def _dependence(counts: NDArray[np.int64], first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the l1 distance between two-way counts and those of independent columns with these one-way tables."""
    total = max(math.sqrt(first.sum() * second.sum()), 1.0)
    return float(np.abs(counts - np.outer(first, second) / total).sum())
