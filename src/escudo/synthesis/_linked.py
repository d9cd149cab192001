r"""Synthesis of linked tables: noisy count tables of people and of their rows, and a law for each column.

**Tables**, from schema and graph alone. Of people: each column by itself, each family of the graph, and of each table
of rows the exact number of rows. Of rows: for each column and each of its laws (first rows, next rows, or all rows),
its family. A family of ``TRIPLES`` cells or more with several causes is measured in triples: the column, itself in the
row before, and one more cause; where the graph has no arrow from the row before, in pairs. Pairs alone would lose how a
column goes on. The number of rows enters as one more triple, never as one more axis of a larger table. Rows of rows are
measured in the same way, and how many of them a row has among the columns of rows, and exactly.

**Shares.** The inverse variance of a table's noise is in proportion to the cube root of its cells, as for one table
(``_marginals``), ``FOCUS`` times that for the tables of columns in ``focus``.

**Weighting** (``escudo.table._linked``): what the schema says, else by a public rule: ``unit`` for tables of events,
and for all tables where the number of people is public and, times ε, at most ``FEW``: there its lower noise is worth
more than that people who change little count for less. ``voice`` elsewhere.

**Laws** (``_estimation``). Tables with the same weights are brought to agreement: all of one view under ``voice``,
those of one family under ``unit``. The number of people with rows, and how many rows they have, is known from the
tables of people, and the tables of rows under ``voice`` are held to it: everybody with a row has one voice there. Rows
of rows are held to the voices of rows that have any.

**How a column goes on.** In a table of a column and itself in the row before, both have the same law but for how first
rows differ from last ones, one of many. Noise makes them differ by more, and drawing row after row adds that up. So
under ``voice`` their difference is kept only as far as it is more than noise would make it (James and Stein), and what
is left of it is taken off evenly: rows drawn then have the measured law of rows.

**How causes go together.** Triples do not say how the causes of a column go together, and a law that took them to be
unrelated would count twice what two of them share. So laws are fitted again, ``ROUNDS`` times: people are drawn from
the last fit and counted with the same weights; the law is then the most even one that has the measured tables as its
sums where causes go together as they do in these people. That is post-processing.

**Guarantee.** A composition of discrete Gaussian events, shown leaf by leaf in the plan: (ε, δ) for a person with all
rows in all tables. Their sensitivities are proved in ``escudo.table._linked``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from escudo._card import tracking
from escudo.causal import CausalGraph
from escudo.errors import InputError
from escudo.mechanisms import Purse, gaussian_event
from escudo.privacy import Budget, Event, GaussianEvent, Neighbours, Passes, Plan, calibrate
from escudo.synthesis._budget import above_zero
from escudo.synthesis._estimation import (
    Columns,
    NoisyTable,
    agreeing,
    fitted_to,
    law_from,
    laws_of,
    sums_over,
    total_of,
)
from escudo.synthesis._laws import MAX_TABLE_CELLS, TableConditional
from escudo.synthesis._linked_model import Drawn, LinkedModel, RowModel
from escudo.synthesis._marginals import MAX_CELLS, weight_of
from escudo.synthesis._model import anchor_of
from escudo.table import (
    COUNT,
    NUMBER,
    PREVIOUS,
    ChildTable,
    Histories,
    HistoryRows,
    LinkedSchema,
    LinkedStructure,
    LinkedTable,
    PrivateTables,
    Tally,
    counted_as,
    exactly,
    linked_structure,
    size_of,
)

TRIPLES = 128
"""From so many cells on, a family of rows with several causes is measured in triples."""

FOCUS = 4.0
"""How much more a table of a column in focus counts in the budget."""

FEW = 10_000
"""Up to so many people times ε, the weighting ``auto`` is ``unit``."""

ROUNDS, DRAWN = 2, 50_000
"""How often laws are fitted again to how causes go together in people that the last fit draws, and how many these are
at most."""

_MOST_CELLS = 2**22  # of a law that is spelled out

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkedSynthesis:
    """The question that linked tables answer with a model.

    Attributes:
        graph: Which column causes which, by whole names; None for no claim.
        focus: Columns whose tables get more of the budget.
        count_edges: Whether columns of rows are given how many rows the person has.
    """

    graph: CausalGraph | None
    focus: tuple[str, ...] = ()
    count_edges: bool = True

    def prepare(self, schema: LinkedSchema, neighbours: Neighbours, budget: Budget) -> PreparedLinked:
        """Choose tables, weights and noise from public facts alone.

        Raises:
            InputError: If δ is 0, or a law would be too large.
            GraphError: If the graph is none that linked tables can follow.
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        above_zero(budget)
        for name in self.focus:
            schema.column(name)
        structure = linked_structure(schema, self.graph, count_edges=self.count_edges)
        _check_sizes(schema, structure)
        blocks = _blocks(schema, structure, weightings(schema, neighbours, budget))
        shares = _Shares(schema, neighbours, tuple(blocks), frozenset(self.focus))
        return PreparedLinked(schema, shares, structure, calibrate(shares.events, budget), budget.delta)


def weightings(schema: LinkedSchema, neighbours: Neighbours, budget: Budget) -> dict[str, tuple[str, str]]:
    """Return the weighting of each table of rows, and why: a rule of public facts."""
    few = neighbours.people is not None and neighbours.people * budget.epsilon <= FEW
    chosen: dict[str, tuple[str, str]] = {}
    for child in schema.children:
        if child.weighting != "auto":
            chosen[child.name] = child.weighting, "as the schema says"
        elif child.events:
            chosen[child.name] = "unit", "as its rows are events"
        elif few:
            chosen[child.name] = "unit", f"as people times epsilon are at most {FEW:,}"
        else:
            chosen[child.name] = "voice", "each person with a row has one voice"
    return chosen


# ---- what is measured


@dataclass(frozen=True, slots=True)
class _Block:
    """Tables that agree with each other, and the laws that come from them.

    Attributes:
        name: What the plan calls it.
        view: Which rows they count.
        table: Of which table of rows; empty for people.
        core: The core of their weighting; None where everybody has one voice.
        laws: What each column is given by the laws; nothing where it is counted how many rows rows have.
        tables: The columns of each count table.
        parent: The table whose rows these are rows of; empty where they are people's.
    """

    name: str
    view: str
    table: str
    core: Columns | None
    laws: Mapping[str, Columns]
    tables: tuple[Columns, ...]
    parent: str = ""

    def counted(self, columns: Columns) -> LinkedTable:
        return LinkedTable(view=self.view, table=self.table, columns=columns, core=self.core, parent=self.parent)  # type: ignore[arg-type]


def _blocks(schema: LinkedSchema, structure: LinkedStructure, weighting: Mapping[str, tuple[str, str]]) -> list[_Block]:
    people: list[Columns] = [(name,) for name in structure.people if size_of(schema, name) > 1]
    for name, causes in structure.people.items():
        people += _people_tables(schema, name, causes)
    counts = [(exactly(child.name),) for child in schema.of_people]
    blocks = [_Block("people", "people", "", None, structure.people, tuple(dict.fromkeys([*people, *counts])))]
    for table, laws in structure.rows.items():
        parent = schema.child(table).parent
        for nested in schema.of_rows(table):  # every person with a row has one voice here, whatever the weighting is
            title = f"rows of {nested.name} in each of {table}"
            blocks.append(_Block(title, "all", table, None, {}, ((exactly(nested.name),),)))
        views: list[tuple[str, str, dict[str, Columns]]] = [
            ("all rows", "all", {name: laws.first[name] for name in laws.first if name in laws.shared}),
            ("first rows", "first", {name: laws.first[name] for name in laws.first if name not in laws.shared}),
            ("next rows", "next", {name: laws.next[name] for name in laws.next if name not in laws.shared}),
        ]
        for title, view, parents in views:
            if not parents:
                continue
            families = {name: _row_tables(schema, table, name, causes) for name, causes in parents.items()}
            families = {name: tables for name, tables in families.items() if tables}
            if weighting[table][0] == "unit" and (view != "first" or parent):
                for name, tables in families.items():
                    core = tuple(one for one in (name + PREVIOUS, name) if all(one in each for each in tables))
                    own = {name: parents[name]}
                    blocks.append(_Block(f"{title} of {table}: {name}", view, table, core, own, tuple(tables), parent))
            else:
                every = tuple(_largest([each for tables in families.values() for each in tables]))
                blocks.append(_Block(f"{title} of {table}", view, table, None, parents, every, parent))
    return blocks


def _people_tables(schema: LinkedSchema, name: str, causes: Columns) -> list[Columns]:
    varying = [cause for cause in causes if size_of(schema, cause) > 1]
    if size_of(schema, name) == 1 or not varying:
        return []
    if _cells(schema, (*varying, name)) <= MAX_CELLS // 8 or len(varying) == 1:
        return [(*varying, name)]
    return [(cause, name) for cause in varying]


def _row_tables(schema: LinkedSchema, table: str, name: str, causes: Columns) -> list[Columns]:
    """Return the tables of a family of rows; each holds the column, and itself in the row before if that is a cause."""
    if size_of(schema, name) == 1:
        return []
    count = f"{table}.{COUNT}"
    lagged = tuple(cause for cause in causes if cause == name + PREVIOUS)
    others = [cause for cause in causes if cause not in (*lagged, count) and size_of(schema, cause) > 1]
    whole = (*others, *lagged, name)
    tables: list[Columns] = [whole]
    if len(others) > 1 and _cells(schema, whole) >= TRIPLES:
        tables = [(other, *lagged, name) for other in others]
    if count in causes:
        tables.append((count, *lagged, name))
    return _largest(tables)


def _largest(tables: Sequence[Columns]) -> list[Columns]:
    """Return the tables that lie in no other, each once."""
    once = {frozenset(each): each for each in reversed(tables)}
    return [each for key, each in reversed(once.items()) if not any(key < other for other in once)]


def _cells(schema: LinkedSchema, columns: Sequence[str]) -> int:
    return math.prod(size_of(schema, name) for name in columns)


def _check_sizes(schema: LinkedSchema, structure: LinkedStructure) -> None:
    families = [structure.people, *(each for laws in structure.rows.values() for each in (laws.first, laws.next))]
    for laws in families:
        for name, causes in laws.items():
            cells = _cells(schema, (*causes, name))
            if cells > min(_MOST_CELLS, MAX_TABLE_CELLS):
                raise InputError(
                    f"The law of {name!r} given its {len(causes)} causes would have {cells:,} cells, more than "
                    f"{min(_MOST_CELLS, MAX_TABLE_CELLS):,}. Take out arrows, or take fewer levels or bins."
                )


@dataclass(frozen=True)
class _Shares:
    """What is released, with weights, before it is known how loudly: public."""

    schema: LinkedSchema
    neighbours: Neighbours
    blocks: tuple[_Block, ...]
    focus: frozenset[str]

    @cached_property
    def weights(self) -> list[list[float]]:
        """The share of each table of each block, before they add up to one."""
        return [[self._weight(block, columns) for columns in block.tables] for block in self.blocks]

    def _weight(self, block: _Block, columns: Columns) -> float:
        focused = bool(self.focus & {name for name in columns if name in block.laws})
        return weight_of(_cells(self.schema, columns)) * (FOCUS if focused else 1.0)

    def tables(self, level: float) -> list[list[GaussianEvent]]:
        """Return the release of each table of each block."""
        total = sum(map(sum, self.weights))
        return [
            [
                _event(self.neighbours, block.counted(columns), level / math.sqrt(weight / total))
                for columns, weight in zip(block.tables, weights, strict=True)
            ]
            for block, weights in zip(self.blocks, self.weights, strict=True)
        ]

    def events(self, level: float) -> list[Event]:
        """Return everything that is released."""
        return [event for events in self.tables(level) for event in events]


def _event(neighbours: Neighbours, table: LinkedTable, scale: float) -> GaussianEvent:
    """Return the release of a count table with noise of this scale, in voices; it is in steps of the table's grid."""
    moved = table.sensitivity(neighbours.relation)
    return gaussian_event(
        2,  # or more cells, which is all the same to the event
        l2_sensitivity=moved.l2,
        scale=scale * table.steps,
        changed_cells=moved.changed_cells,
        integers=True,
        **neighbours.stated,
    )


# ---- measuring and estimating


@dataclass(frozen=True, slots=True)
class PreparedLinked:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The tables.
        shares: What is released.
        structure: The arrows.
        level: How loudly: the noise of one table that had the whole budget.
        delta: The δ at which the plan is stated.
    """

    schema: LinkedSchema
    shares: _Shares
    structure: LinkedStructure
    level: float
    delta: float

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        children = []
        for block, events in zip(self.shares.blocks, self.shares.tables(self.level), strict=True):
            leaves = [
                Plan(_title(block, columns), event, buys=f"{_cells(self.schema, columns):,} cells")
                for columns, event in zip(block.tables, events, strict=True)
            ]
            children.append(Plan(block.name, children=leaves))
        return Plan(
            "linked tables",
            children=[*children, Plan("fitting all tables together"), Plan("sampling")],
            delta=self.delta,
        )

    @property
    def passes(self) -> Passes:
        """How often the rows are read."""
        return Passes(1)

    def run(self, table: PrivateTables, purse: Purse) -> LinkedModel:
        """Measure and estimate."""
        return self.fitted(self._measured(table, purse), purse)

    def fitted(self, released: Sequence[Sequence[NoisyTable]], purse: Purse) -> LinkedModel:
        """Estimate from the tables of each block, in voices: post-processing."""
        people = _People.of(self.schema, self.shares.blocks[0], released[0], self.shares.neighbours.people)
        details = {"people": people.total, "weighting": self.weighting, **anchor_of(purse)}
        speaking = {table: _Speaking(people.counts[table], people.noise[table]) for table in people.counts}
        shape, rows = dict(people.shape), []
        for block, tables in zip(self.shares.blocks[1:], released[1:], strict=True):
            if block.laws:
                rows.append(_Rows.of(self.schema, block, tables, speaking))
                continue
            for exact in tables:  # how many rows the rows of a table have
                nested = self.schema.child(exact.columns[0].removesuffix(f".@{COUNT}"))
                total = float(speaking[block.table].counts[1:].sum())
                speaking[nested.name], shape[nested.name] = _Speaking.of_rows(nested, exact, total)

        def model(laws: _Laws) -> LinkedModel:
            return LinkedModel(
                schema=self.schema,
                graph=self.structure.stated,
                people=people.laws,
                rows={
                    name: RowModel.of(structure, laws.get(name, {}), shape[name], self.schema)
                    for name, structure in self.structure.rows.items()
                },
                guarantee=purse.guarantee,
                plan=purse.plan,
                details=details,
            )

        fitted = model(_laws(rows, None))
        several = min(DRAWN, max(2 * people.total, DRAWN // 10))
        with tracking("Fitting", total=ROUNDS) as advance:
            for turn in range(ROUNDS):
                drawn = fitted.codes(several, seed=turn)
                fitted = model(_laws(rows, histories_of(self.schema, drawn)))
                advance(1)
        return fitted

    @property
    def weighting(self) -> dict[str, str]:
        """How the rows of one person share that person's voice, in each table of rows."""
        several = [block for block in self.shares.blocks if block.laws and block.table]
        several = [block for block in several if block.view != "first" or block.parent]
        return {block.table: "voice" if block.core is None else "unit" for block in several}

    def _measured(self, table: PrivateTables, purse: Purse) -> list[list[NoisyTable]]:
        """Read the tables once, and release every count table, in voices."""
        events = self.shares.tables(self.level)
        blocks = self.shares.blocks
        counts = iter(table.counts([block.counted(columns) for block in blocks for columns in block.tables]))
        found = []
        with tracking("Measuring", total=sum(map(len, events))) as advance:
            for block, several in zip(blocks, events, strict=True):
                part = []
                for columns, event in zip(block.tables, several, strict=True):
                    steps = block.counted(columns).steps
                    noisy = purse.add(next(counts), event, purpose=_title(block, columns))
                    values = np.asarray(noisy, dtype=np.float64) / steps
                    part.append(NoisyTable(columns, values, event.scale / steps))
                    advance(1)
                found.append(part)
        return found


def _title(block: _Block, columns: Columns) -> str:
    """Return ``child | what it is given`` for a table, or its columns."""
    for name in reversed(columns):
        if name in block.laws and len(columns) > 1 and set(columns) - {name} <= set(block.laws[name]):
            return f"{name} | {', '.join(one for one in columns if one != name)}"
    return ", ".join(
        f"{name.removesuffix(f'.@{COUNT}')}: exact number of rows" if name.endswith(f".@{COUNT}") else name
        for name in columns
    )


@dataclass(frozen=True, slots=True)
class _People:
    """What is known of people once their tables are measured.

    Attributes:
        total: How many there are.
        laws: The law of each of their columns.
        counts: How many people fall into each bin of each table's number of rows.
        noise: The standard deviation of the noise in these.
        shape: For each table of rows the law of the exact number of rows.
    """

    total: int
    laws: dict[str, TableConditional]
    counts: dict[str, Floats]
    noise: dict[str, float]
    shape: dict[str, Floats]

    @classmethod
    def of(cls, schema: LinkedSchema, block: _Block, released: Sequence[NoisyTable], known: int | None) -> _People:
        """Fit the laws of people: all their tables brought to agreement, the exact numbers of rows folded into bins."""
        exact = {table.columns[0]: table for table in released if table.columns[0].endswith(f".@{COUNT}")}
        others = [table for table in released if table.columns[0] not in exact]
        total = known or max(round(total_of(released)[0]), 1)
        folded, shape = [], {}
        for child in schema.of_people:
            folded.append(_folded(child, exact[exactly(child.name)]))
        merged = _merged([*others, *folded])
        agreed = agreeing(merged, total)
        sizes = {name: size_of(schema, name) for name in block.laws}
        laws = laws_of(sizes, block.laws, agreed)
        counts, noise = {}, {}
        for child in schema.of_people:
            name = f"{child.name}.{COUNT}"
            counts[child.name] = next(
                sums_over(each.columns, each.counts, (name,)) for each in agreed if name in each.columns
            )
            noise[child.name] = min(
                each.scale * math.sqrt(each.counts.size / sizes[name]) for each in merged if name in each.columns
            )
            exactly_many = agreeing([exact[exactly(child.name)]], total)[0].counts
            shape[child.name] = _refined(exactly_many, counts[child.name], [*child.count_edges, child.most + 1])
        return cls(total, laws, counts, noise, shape)


def _folded(child: ChildTable, exact: NoisyTable) -> NoisyTable:
    """Return exact numbers of rows in their bins."""
    edges = [*child.count_edges, child.most + 1]
    sums = np.add.reduceat(exact.counts, edges[:-1])
    width = (child.most + 1) / len(child.count_edges)
    return NoisyTable((f"{child.name}.{COUNT}",), sums, exact.scale * math.sqrt(width))


@dataclass(frozen=True, slots=True)
class _Speaking:
    """How many voices there are in the tables of a table's rows, by the bins of the number of rows; and their noise."""

    counts: Floats
    noise: float

    @classmethod
    def of_rows(cls, child: ChildTable, exact: NoisyTable, total: float) -> tuple[_Speaking, Floats]:
        """Return it for rows of rows, and the law of their exact number, once that was measured."""
        agreed = agreeing([exact], max(total, 1.0))[0]
        folded = _folded(child, agreed)
        return cls(folded.counts, folded.scale), agreed.counts / agreed.counts.sum()


def _merged(tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return each table once: those of the same columns averaged by their precision."""
    found: dict[Columns, NoisyTable] = {}
    for table in tables:
        other = found.get(table.columns)
        if other is not None:
            a, b = 1 / other.scale**2, 1 / table.scale**2
            table = NoisyTable(table.columns, (a * other.counts + b * table.counts) / (a + b), 1 / math.sqrt(a + b))
        found[table.columns] = table
    return list(found.values())


def _refined(fine: Floats, coarse: Floats, edges: Sequence[int]) -> Floats:
    """Return the law of exact numbers of rows: bins as the tables agree, and inside a bin in the measured shape."""
    law = np.zeros_like(fine)
    for place, (low, high) in enumerate(pairwise(edges)):
        part = fine[low:high]
        inside = part / part.sum() if part.sum() > 0 else np.full(high - low, 1 / (high - low))
        law[low:high] = max(float(coarse[place]), 0.0) * inside
    total = law.sum()
    return law / total if total > 0 else np.full(law.size, 1 / law.size)


_Laws = dict[str, dict[str, dict[str, TableConditional]]]
"""Laws by table of rows, view and column."""


def _laws(rows: Sequence[_Rows], drawn: Histories | None) -> _Laws:
    found: _Laws = {}
    for each in rows:
        found.setdefault(each.block.table, {}).setdefault(each.block.view, {}).update(each.laws(drawn))
    return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """A block of rows, measured and brought to agreement.

    Numbers of rows that its rows cannot have are no cells of it: only people with a row have a first one, and only
    those with two a next one.

    Attributes:
        block: What was measured.
        sizes: Cells of each column in it.
        absent: How many cells at the beginning of a column its rows cannot have.
        agreed: The tables.
    """

    block: _Block
    sizes: Mapping[str, int]
    absent: Mapping[str, int]
    agreed: Sequence[NoisyTable]

    @classmethod
    def of(
        cls, schema: LinkedSchema, block: _Block, released: Sequence[NoisyTable], speaking: Mapping[str, _Speaking]
    ) -> _Rows:
        """Bring the tables of a block to agreement, and under ``voice`` to the voices that speak in it."""
        count, number = f"{block.table}.{COUNT}", f"{block.table}.{NUMBER}"
        absent = {count: 2 if block.view == "next" else 1, number: 1 if block.view == "next" else 0}
        absent |= {f"{block.parent}.{COUNT}": 1} if block.parent else {}
        named = {*block.laws, *(cause for causes in block.laws.values() for cause in causes)}
        sizes = {name: size_of(schema, name) - absent.get(name, 0) for name in named}
        inside = [_without(table, absent) for table in released]
        total = max(total_of(inside)[0], 1.0) if inside else 1.0
        if block.core is None:
            # Rows of rows without an order are sorted by content, and differ from the one before on purpose.
            inside = inside if block.parent else [steadied(table) for table in inside]
            known = speaking[block.table]
            spoken = known.counts[absent[count] :]
            total = max(float(spoken.sum()), 1.0)
            if sizes.get(count, 1) > 1 and inside:
                inside = _merged([*inside, NoisyTable((count,), spoken, known.noise)])
            for nested in schema.of_rows(block.table) if block.view == "all" and inside else ():
                name, of_rows = f"{nested.name}.{COUNT}", speaking[nested.name]
                if sizes.get(name, 1) > 1:
                    inside = _merged([*inside, NoisyTable((name,), of_rows.counts, of_rows.noise)])
        return cls(block, sizes, absent, agreeing(inside, total) if inside else [])

    def laws(self, drawn: Histories | None) -> dict[str, TableConditional]:
        """Return the laws, given people that a first fit draws; None for a first fit."""
        found = {}
        for name, causes in self.block.laws.items():
            if self.sizes[name] == 1 or not self.agreed:
                found[name] = TableConditional(causes, np.ones([self.sizes[one] for one in (*causes, name)]))
            elif drawn is None:
                found |= laws_of(self.sizes, {name: causes}, self.agreed)
            else:
                found[name] = self._joined(name, causes, drawn)
        return {name: _padded(law, self.absent) for name, law in found.items()}

    def _joined(self, name: str, causes: Columns, drawn: Histories) -> TableConditional:
        """Return the law that has the agreed tables as its sums where causes go together as they do in people drawn."""
        family = (*causes, name)
        shape = [self.sizes[one] for one in family]
        counted = drawn.counts(self.block.counted(family)).astype(np.float64)  # with the weights that tables have
        inside = _without(NoisyTable(family, counted, 1.0), self.absent).counts.sum(axis=-1) + 1e-9
        parts = _parts_of(family, self.agreed)
        total = float(self.agreed[0].counts.sum())
        beside = {part[:-1]: sums.sum(axis=-1) for part, (sums, _) in parts.items() if part[-1] == name and part[:-1]}
        together = fitted_to(causes, inside * (total / inside.sum()), beside, total) if causes else inside
        start = np.repeat((together / shape[-1])[..., None], shape[-1], axis=-1)
        wanted = {part: sums for part, (sums, _) in parts.items()}
        counts = fitted_to(family, start, {**({causes: together} if causes else {}), **wanted}, total)
        return TableConditional(causes, law_from(counts, max(scale for _, scale in parts.values())))


def _parts_of(family: Columns, agreed: Sequence[NoisyTable]) -> dict[Columns, tuple[Floats, float]]:
    """Return what the tables say of a family's columns, the largest parts: their sums, and the noise in them."""
    parts: dict[Columns, tuple[Floats, float]] = {}
    for table in agreed:
        part = tuple(column for column in family if column in table.columns)
        if part and part not in parts:
            sums = sums_over(table.columns, table.counts, part)
            parts[part] = sums, table.scale * math.sqrt(table.counts.size / sums.size)
    return {part: said for part, said in parts.items() if not any(set(part) < set(other) for other in parts)}


def histories_of(schema: LinkedSchema, drawn: Sequence[Drawn]) -> Histories:
    """Return people who were drawn from a model, as they would be read from tables."""
    every = Drawn.joined(drawn)
    people = dict(every.people)
    rows: dict[str, HistoryRows] = {}
    for child in schema.children:
        found, head = every.rows[child.name], f"{child.name}."
        codes = {n.removeprefix(head) if n.startswith(head) else counted_as(n): c for n, c in found.codes.items()}
        codes[NUMBER] = child.column(NUMBER).encode(found.number)
        if found.row is None:
            count = np.bincount(found.person, minlength=every.size)
            people[exactly(child.name)] = count
        else:
            count = np.bincount(found.row, minlength=rows[child.parent].number.size)
            rows[child.parent].codes[counted_as(exactly(child.name))] = count
        rows[child.name] = HistoryRows(found.person, found.number, count, codes, found.row)
    return Histories(schema, people, rows, every.size, Tally())


def drawn_histories(model: LinkedModel, people: int, *, seed: int) -> Histories:
    """Return people drawn from a model, as they would be read from tables."""
    return histories_of(model.schema, model.codes(people, seed=seed))


def _without(table: NoisyTable, absent: Mapping[str, int]) -> NoisyTable:
    counts = table.counts
    for axis, name in enumerate(table.columns):
        if absent.get(name):
            counts = np.take(counts, range(absent[name], counts.shape[axis]), axis)
    return replace(table, counts=counts)


def steadied(table: NoisyTable) -> NoisyTable:
    """Return a table in which a column and itself in the row before differ only by more than noise would make them.

    With k levels and noise of variance σ² in each cell, sums over rows and over columns differ by vectors of squared
    length 2k(k - 1)σ² where there is no difference. A table without a column and itself in the row before is as it was.
    """
    own = next((name for name in table.columns if name + PREVIOUS in table.columns), None)
    if own is None:
        return table
    axes = table.columns.index(own + PREVIOUS), table.columns.index(own)
    counts = np.moveaxis(table.counts, axes, (-2, -1))
    levels = counts.shape[-1]
    apart = counts.sum(axis=-2) - counts.sum(axis=-1)
    noise = 2 * levels * (levels - 1) * table.scale**2
    square = np.maximum((apart**2).sum(axis=-1, keepdims=True), 1e-9)
    off = np.minimum(noise / square, 1.0) * apart / (2 * levels)
    steady = counts - (off[..., None, :] - off[..., :, None])
    return replace(table, counts=np.moveaxis(steady, (-2, -1), axes))


def _padded(law: TableConditional, absent: Mapping[str, int]) -> TableConditional:
    """Return a law with cells for what its rows cannot have, which are never asked for."""
    table: Floats = law.table
    for axis, name in enumerate(law.parents):
        if absent.get(name):
            table = np.concatenate([np.take(table, [0] * absent[name], axis), table], axis)
    return TableConditional(law.parents, table)
