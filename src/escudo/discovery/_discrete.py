"""Graphs from counts: what is measured at which noise, and the search on what comes back.

* ``exact``: all tables of up to three columns in one release; the best graph of all up to 16 columns, a good one above.
* ``two-stage``: all pairs with half of the budget; with the other half the three-way tables that they make interesting.
* ``joint``: like the two above; then graph and model are refined together (``_evidence.py``).

Columns of more than eight cells are merged first, by noisy one-way tables that get a twentieth of the budget.

**Guarantee.** A composition of Gaussian events, shown in the plan; their sensitivity is proved in ``_measurement.py``.

From residuals to what is reported :func:`search` leads: to the graph, how sure it is, and where it must say that it
cannot tell. In two stages :func:`worth_measuring` chooses the three-way tables, once all pairs are known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

import numpy as np

from escudo.causal import AncestralGraph, CausalGraph, Marks
from escudo.discovery import _hidden
from escudo.discovery._answer import AncestralDiscovery, Discovery, Measured, told_by
from escudo.discovery._evidence import Evidence, Weights, best_explanation, chance
from escudo.discovery._hidden import MarkedResult
from escudo.discovery._measurement import (
    CELLS_AT_ONCE,
    MOST_LEVELS,
    MOST_NUMBERS,
    Floats,
    Levels,
    Residuals,
    Scope,
    l2_sensitivity,
    measure,
    portions,
    release_event,
    table_batches,
    varying,
    wide,
)
from escudo.discovery._pattern import (
    BINNED,
    COUNTED,
    REPEATS,
    Constraints,
    Curves,
    Edge,
    Parents,
    constraints_of,
    dag,
    edge_confidences,
    pattern,
    recurrence,
    settled,
)
from escudo.discovery._search import find_graph
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, GaussianEvent, Neighbours, Passes, Plan, calibrate
from escudo.table import Numeric, PrivateTable, Schema

_AT_ONCE = 12  # columns up to which one release of all three-way tables does as well as two stages
_AT_ONCE_IF_RICH = 20  # or better, where rows times ε are at least
_RICH = 50_000
_USUAL_ROWS = 100_000  # where their number was not given
_MERGING_SHARE = 0.05  # of ρ, where columns are merged
_PAIRS_SHARE = 0.5  # of the rest, in two stages
_WORTH_LEVELS = 2_000  # rows that a three-way table of merged columns should be worth after noise


# ---- what will be measured, and how loudly


def prepare(
    schema: Schema, neighbours: Neighbours, budget: Budget, knowledge: CausalGraph | None, method: str
) -> PreparedDiscrete:
    """Choose what to measure and how loudly, from public facts alone; see :func:`design_of`."""
    design = design_of(schema, neighbours, budget, knowledge, method)
    return design.at(calibrate(design.events, budget), schema, budget.delta)


def design_of(
    schema: Schema, neighbours: Neighbours, budget: Budget, knowledge: CausalGraph | None, method: str
) -> Design:
    """Choose what to measure from public facts alone.

    Raises:
        InputError: If there are too few or too many columns for the method.
        GraphError: If the knowledge names a column that the schema does not have.
    """
    constraints = constraints_of(schema, knowledge)
    columns = varying(schema)
    if len(columns) < 2:
        raise InputError("Discovery needs at least two columns with more than one level.")
    rich = budget.epsilon * (neighbours.stated_rows or _USUAL_ROWS) >= _RICH
    most = _AT_ONCE_IF_RICH if rich else _AT_ONCE
    at_once = len(columns) <= most if method in ("auto", "joint") else method == "exact"
    sizes = [min(schema[name].size, MOST_LEVELS) for name in columns]
    numbers = [_numbers(sizes, (1, 2, 3) if at_once else (1, 2))]
    shares = [1.0]
    if not at_once:
        numbers.append(min(TRIPLES_PER_COLUMN * len(columns) * (max(sizes) - 1) ** 3, MOST_NUMBERS))
        shares = [_PAIRS_SHARE, 1 - _PAIRS_SHARE]
    merged = wide(schema)
    if merged:
        numbers = [sum(schema[name].size for name in merged), *numbers]
        shares = [_MERGING_SHARE, *((1 - _MERGING_SHARE) * share for share in shares)]
    if max(numbers) > MOST_NUMBERS:
        instead = "method='two-stage', or " if at_once else ""
        raise InputError(
            f"{len(columns)} columns make more than {MOST_NUMBERS:,} numbers to measure at once; use {instead}fewer "
            "columns in the schema."
        )
    return Design(
        constraints,
        neighbours,
        ("exact" if at_once else "two-stage") if method == "auto" else method,
        shares=tuple(shares),
        numbers=tuple(numbers),
        merges=bool(merged),
    )


@dataclass(frozen=True, slots=True)
class Design:
    """What will be measured, before it is known how loudly.

    Attributes:
        constraints: What is known of the columns.
        neighbours: Between which tables it must not tell.
        method: ``"exact"``, ``"two-stage"`` or ``"joint"``.
        shares: The part of ρ for each release: wide columns (if any), first, second (if any).
        numbers: The most numbers in each.
        merges: Whether the first release is for wide columns.
        voice: Steps of one person's voice, where people and not rows are counted, whatever rows they have.
    """

    constraints: Constraints
    neighbours: Neighbours
    method: str
    _: KW_ONLY
    shares: tuple[float, ...]
    numbers: tuple[int, ...]
    merges: bool
    voice: int | None = None

    def events(self, level: float) -> list[GaussianEvent]:
        """Return the releases at a noise level: scales are inverse to the root of their shares."""
        return [
            release_event(level / math.sqrt(share), self.neighbours, numbers=count + 1)
            for share, count in zip(self.shares, self.numbers, strict=True)
        ]

    def at(self, level: float, schema: Schema, delta: float) -> PreparedDiscrete:
        """Return the method at a noise level, with its plan stated at δ."""
        events = self.events(level)
        merging = events.pop(0) if self.merges else None
        return PreparedDiscrete(schema, self, merging, events[0], events[1] if len(events) > 1 else None, delta)


@dataclass(frozen=True, slots=True)
class PreparedDiscrete:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns of the table.
        design: What will be measured.
        merging: The release of one-way tables of wide columns; None where there are none.
        first: The release of all tables up to three columns, or up to two.
        second: The release of chosen three-way tables; None in one stage.
        delta: The δ at which the plan is stated.
        again: A second release of the same tables as the first, where it was planned in two; both are averaged.
        counts: One-way tables of wide columns that were released before, in place of ``merging``.
    """

    schema: Schema
    design: Design
    merging: GaussianEvent | None
    first: GaussianEvent
    second: GaussianEvent | None
    delta: float
    again: GaussianEvent | None = None
    counts: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        children = []
        columns = len(varying(self.schema))
        if self.merging is not None:
            many = len(wide(self.schema))
            children.append(Plan("one-way tables of wide columns", self.merging, buys=f"levels of {many} columns"))
        if self.second is None:
            children.append(Plan("all tables of up to three columns", self.first, buys=f"{columns} columns"))
        else:
            children.append(Plan("all tables of up to two columns", self.first, buys=f"{columns} columns"))
            most = TRIPLES_PER_COLUMN * columns
            children.append(Plan("three-way tables that matter", self.second, buys=f"at most {most:,} tables"))
        children += [Plan("search"), Plan("edge confidence")]
        return Plan(f"discovery ({self.design.method})", children=children, delta=self.delta)

    @property
    def passes(self) -> Passes:
        """How often the rows are read: for the levels of wide columns, for all tables, for those that matter."""
        levels = Levels.of(self.schema, {})
        orders = (1, 2) if self.second is not None else (1, 2, 3)
        several = len(portions(levels, countable(levels, _all_scopes(len(levels.names), orders))))
        found = Passes(int(self.merging is not None) + several * (1 if self.again is None else 2))
        if self.second is None or self.again is not None:
            return found
        largest = min(math.prod(sorted(levels.cells)[-3:]), MOST_RAW_CELLS)
        cells = TRIPLES_PER_COLUMN * len(levels.names) * largest  # and two portions have more than one could have
        return found + Passes(0, 1 + 2 * cells // CELLS_AT_ONCE, "three-way tables that matter")

    def find(self, table: PrivateTable, purse: Purse) -> Discovery:
        """Measure what the plan shows, and search on it: post-processing, free of charge."""
        levels, residuals = self.measure(table, purse)
        found = search(
            levels.names,
            residuals,
            self.design.constraints.restricted(levels.names),
            joint=self.design.method == "joint",
            together=self.schema.max_rows_per_person or 1,
            curves=BINNED if any(isinstance(self.schema[name], Numeric) for name in levels.names) else COUNTED,
        )
        return Discovery(
            graph=_over(self.schema, found.graph),
            generating_graph=_over(self.schema, dag(levels.names, found.dense)),
            edge_confidence=found.edge_confidence,
            direction_confidence=found.direction_confidence,
            cannot_tell=found.cannot_tell,
            tables=Measured(levels=levels, residuals=residuals),
            **told_by(purse, self.design.method, residuals.rows, _notes(self.schema, levels, residuals)),
        )

    def find_hidden(self, table: PrivateTable, purse: Purse) -> AncestralDiscovery:
        """Measure the same, and search on it for what holds also where causes are hidden."""
        levels, residuals = self.measure(table, purse)
        known = self.design.constraints.restricted(levels.names)
        found, worth = search_hidden(residuals, known, self.schema.max_rows_per_person or 1)
        return AncestralDiscovery(
            graph=AncestralGraph(nodes=self.schema.names, edges=found.graph.edges),
            edge_confidence=found.edge_confidence,
            mark_confidence=found.mark_confidence,
            cannot_tell=_cannot_tell(found.graph, worth),
            **told_by(purse, self.design.method, residuals.rows, _notes(self.schema, levels, residuals)),
        )

    def measure(self, table: PrivateTable, purse: Purse) -> tuple[Levels, Residuals]:
        """Release everything the plan shows."""
        public = self.design.neighbours.rows or table.neighbours.rows
        rows, voice = None if public is None else float(public), self.design.voice
        levels = Levels.of(self.schema, {})
        if self.merging is not None:
            alone = [(levels.names.index(name),) for name in wide(self.schema)]
            noisy = measure(table, levels, alone, self.merging, purse, rows, voice)
            counts = {
                levels.names[scope[0]]: found
                for batch in table_batches(noisy, alone)
                for scope, found in zip(batch.scopes, batch.tables(noisy.values, noisy.rows), strict=True)
            }
            levels = self._merge_levels(counts, noisy.rows)
        elif self.counts:
            usual = float(np.mean([found.sum() for found in self.counts.values()]))
            levels = self._merge_levels({name: self.counts[name] for name in wide(self.schema)}, rows or usual)
        orders = (1, 2) if self.second is not None else (1, 2, 3)
        scopes = countable(levels, _all_scopes(len(levels.names), orders))
        first = measure(table, levels, scopes, self.first, purse, rows, voice)
        if self.again is not None:
            return levels, first.joined(measure(table, levels, scopes, self.again, purse, first.rows, voice))
        if self.second is None:
            return levels, first
        chosen = worth_measuring(Weights(first).of(first.values, STRICTNESS), levels)
        if not chosen:
            return levels, first
        return levels, first.joined(measure(table, levels, chosen, self.second, purse, first.rows, voice))

    def _merge_levels(self, counts: Mapping[str, Floats], rows: float) -> Levels:
        """Return the finest levels at which a three-way table of merged columns is still worth enough rows."""
        scale = self.first.scale if self.second is None else self.second.scale
        for most in range(MOST_LEVELS, 3, -1):
            levels = Levels.of(self.schema, counts, most)
            scopes = _all_scopes(len(levels.names), (1, 2, 3) if self.second is None else (1, 2))
            noise = (
                scale
                * l2_sensitivity(levels.sizes, scopes, self.design.neighbours, voiced=self.design.voice is not None)[0]
            )
            even = rows / most**3
            if rows * even / (even + noise**2 * (1 - 1 / most) ** 2) >= _WORTH_LEVELS:
                return levels
        return Levels.of(self.schema, counts, 3)


def _all_scopes(columns: int, orders: tuple[int, ...]) -> list[Scope]:
    return [scope for order in orders for scope in itertools.combinations(range(columns), order)]


def _numbers(sizes: list[int], orders: tuple[int, ...]) -> int:
    """Return how many residuals there are: elementary symmetric sums of the numbers of contrasts."""
    sums = [1] + [0] * max(orders)
    for size in sizes:
        for order in range(max(orders), 0, -1):
            sums[order] += sums[order - 1] * (size - 1)
    return sum(sums[order] for order in orders)


def _over(schema: Schema, graph: CausalGraph) -> CausalGraph:
    """Return a graph over all columns of a schema: those of a single level have no edges."""
    return CausalGraph(
        nodes=schema.names, edges=graph.edges, undirected_edges=graph.undirected_edges, knowledge=graph.knowledge
    )


def _notes(schema: Schema, levels: Levels, residuals: Residuals) -> list[str]:
    found = []
    pairs = math.comb(len(levels.names), 2)
    if left_out := pairs - sum(len(scope) == 2 for scope in residuals.starts):
        found.append(f"{left_out} of {pairs} pairs of columns have too many cells to be counted, so no edge.")
    if constant := [name for name in schema.names if name not in levels.names]:
        found.append(f"{', '.join(constant)}: a single level, so no edge.")
    for place, groups in levels.groups.items():
        found.append(f"{levels.names[place]}: {groups.size} cells merged into {int(groups.max()) + 1}.")
    return found


# ---- which tables are worth measuring

TRIPLES_PER_COLUMN = 20

MOST_RAW_CELLS = 2**22
"""A scope whose table, before merging, has more cells than this is not measured."""

_NEIGHBOURS = 8


def countable(levels: Levels, scopes: list[Scope]) -> list[Scope]:
    """Return the scopes whose tables are small enough to count."""
    return [scope for scope in scopes if levels.raw_cells(scope) <= MOST_RAW_CELLS]


def worth_measuring(evidence: Evidence, levels: Levels) -> list[Scope]:
    """Return the triples {x, a, b} in which a and b are among the columns that x depends on most.

    A column's parents, and the column that separates it from another, are among its strongest neighbours unless they
    cancel out. The triples are ranked by the weaker of the two pairs, and at most ``TRIPLES_PER_COLUMN`` for each
    column are kept, and no more than can be released at once.
    """
    pair = evidence.pair
    d = len(pair)
    strength: dict[Scope, float] = {}
    for x in range(d):
        near = [int(a) for a in np.argsort(-pair[x], kind="stable") if a != x and pair[x, a] > 0]
        for a, b in itertools.combinations(near[:_NEIGHBOURS], 2):
            first, second, third = sorted((x, a, b))
            scope = (first, second, third)
            strength[scope] = max(strength.get(scope, 0.0), float(min(pair[x, a], pair[x, b])))
    ranked = sorted(countable(levels, list(strength)), key=lambda scope: (-strength[scope], scope))
    numbers = itertools.accumulate(math.prod(levels.sizes[i] - 1 for i in scope) for scope in ranked)
    within = [scope for scope, total in zip(ranked, numbers, strict=True) if total <= MOST_NUMBERS]
    return within[: TRIPLES_PER_COLUMN * d]


# ---- the search on what comes back

STRICTNESS, DENSE = 1.2, 0.3
"""γ of the graph that is reported, and of the one that generates: chosen on simulated networks."""

LEAST_ROWS = 200
"""Three-way tables worth fewer rows than this tell no directions: the graph is a forest."""

_ROUNDS, _ROUNDS_AGAIN = 600, 4  # perturbations of the local search, at first and under fresh noise
_LEAST_SURE = 0.5  # an edge less sure than this is not reported
_TRIES = 4  # searches without the edges that were not sure enough
_OTHERS = (0.8, 1.0, 1.5, 2.0, 3.0)  # strictnesses that offer candidates to the joint choice


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of a search on released numbers."""

    graph: CausalGraph
    dense: Parents
    _: KW_ONLY
    edge_confidence: Mapping[Edge, float]
    direction_confidence: Mapping[Edge, float]
    cannot_tell: str


def search(
    names: Sequence[str],
    residuals: Residuals,
    known: Constraints,
    *,
    joint: bool,
    together: int = 1,
    curves: Curves = COUNTED,
) -> SearchResult:
    """Find the graph to report and the one to generate from.

    Args:
        names: The columns.
        residuals: What was measured.
        known: What is known beforehand.
        joint: Whether to choose among several graphs the one whose model explains all that was measured.
        together: How many rows may all be alike: those of a person.
        curves: What it is worth that an edge comes back.
    """
    weights, values = Weights(residuals), residuals.values
    forest = weights.rows_worth < LEAST_ROWS
    usual = weights.of(values, STRICTNESS)
    best = partial(find_graph, forest=forest)
    parents = best(usual, known, rounds=_ROUNDS)
    heard: list[Parents] = []
    dense = find_graph(weights.of(values, DENSE), known, rounds=_ROUNDS_AGAIN, explained=False, start=parents)
    evidence = weights.several(_drawn_again(residuals, weights, dense, together), STRICTNESS)

    def again() -> CausalGraph:
        found = best(next(evidence), known, rounds=_ROUNDS_AGAIN, start=parents)
        heard.append(found)
        return pattern(names, found, known)

    seen = recurrence(again)
    if joint and not forest:
        looser = [
            find_graph(weights.of(values, other), known, rounds=_ROUNDS_AGAIN, start=parents) for other in _OTHERS
        ]
        parents = best_explanation(residuals, weights, [parents, *looser, *heard])
    allowed = known
    for _ in range(_TRIES):
        graph = pattern(names, parents, known)
        sure, ways = edge_confidences(graph, seen, curves)
        doubtful = [edge for edge, value in sure.items() if value < _LEAST_SURE and not _is_known(names, known, edge)]
        if not doubtful:
            break
        allowed = _without(names, allowed, doubtful)
        parents = best(usual, allowed, rounds=_ROUNDS_AGAIN, start=_allowed_part(parents, allowed))
    else:
        graph, sure, ways = _sure_part(graph, sure, ways, doubtful)
    graph = settled(graph, seen)
    return SearchResult(
        graph,
        _dense_graph(weights.of(values, DENSE), _with(names, known, graph), parents),
        edge_confidence=sure,
        direction_confidence={arrow: ways[arrow] for arrow in graph.edges if arrow in ways},
        cannot_tell=_cannot_tell(graph, weights.rows_worth),
    )


def search_hidden(residuals: Residuals, known: Constraints, together: int = 1) -> tuple[MarkedResult, float]:
    """Find what can be said where causes may be hidden, and how many rows that is worth.

    Args:
        residuals: What was measured.
        known: What is known beforehand.
        together: How many rows may all be alike: those of a person.
    """
    weights = Weights(residuals, given_two=True, softer=_hidden.SOFTER)
    values, model = residuals.values, Weights(residuals)
    forest = weights.rows_worth < LEAST_ROWS
    dense = find_graph(model.of(values, DENSE), known, rounds=_ROUNDS_AGAIN, explained=False)
    told = _hidden.Known.of(known)

    def marks(evidence: Evidence) -> Marks:
        pairs = find_graph(evidence, known, rounds=_ROUNDS_AGAIN, forest=True) if forest else None
        dependence = _hidden.of_counts(evidence)
        return _hidden.find_marks(weights.columns, dependence, told, most=2, within=pairs)

    found = marks(weights.of(values, _hidden.STRICTNESS))
    others = weights.several(_drawn_again(residuals, model, dense, together), _hidden.STRICTNESS)
    return _hidden.judged(known.names, found, map(marks, others), told), weights.rows_worth


def _drawn_again(residuals: Residuals, weights: Weights, dense: Parents, together: int) -> Floats:
    """Return what might have been measured of other rows with other noise, one vector a row; public."""
    rng = np.random.default_rng(0)  # of public noise on released numbers
    others = math.sqrt(together) * chance(residuals, weights, dense, rng, REPEATS)
    others += residuals.values + np.stack([residuals.noise(rng) for _ in range(REPEATS)])
    return others


def _dense_graph(evidence: Evidence, known: Constraints, start: Parents) -> Parents:
    """Return a graph to generate from: all that is reported, in its directions, and what else helps."""
    return find_graph(evidence, known, rounds=_ROUNDS, explained=False, start=_allowed_part(start, known))


def _allowed_part(parents: Parents, known: Constraints) -> Parents:
    return tuple(tuple(a for a in several if known.allowed[a, x]) for x, several in enumerate(parents))


def _cannot_tell(graph: CausalGraph | AncestralGraph, worth: float) -> str:
    if not graph.adjacencies:
        return "no dependence between two columns stands out from the noise; take more rows or a larger epsilon"
    if worth < LEAST_ROWS:
        return (
            f"after noise, tables of three columns are worth about {worth:.0f} rows, so that only the strongest pairs "
            "are shown and no directions; take more rows or a larger epsilon"
        )
    return ""


def _is_known(names: Sequence[str], known: Constraints, edge: Edge) -> bool:
    a, b = names.index(edge[0]), names.index(edge[1])
    return (a, b) in known.required or (b, a) in known.required or frozenset((a, b)) in known.joined


def _without(names: Sequence[str], known: Constraints, edges: Sequence[Edge]) -> Constraints:
    allowed = known.allowed.copy()
    for first, second in edges:
        a, b = names.index(first), names.index(second)
        allowed[a, b] = allowed[b, a] = False
    return replace(known, allowed=allowed)


def _with(names: Sequence[str], known: Constraints, graph: CausalGraph) -> Constraints:
    """Return what is known once a pattern is: its arrows must be there, and its edges in some direction."""
    place = {name: number for number, name in enumerate(names)}
    allowed = known.allowed.copy()
    arrows = {(place[a], place[b]) for a, b in graph.edges}
    for a, b in arrows:
        allowed[b, a] = False
    lines = {frozenset((place[a], place[b])) for a, b in graph.undirected_edges}
    return replace(known, allowed=allowed, required=known.required | arrows, joined=known.joined | lines)


def _sure_part(
    graph: CausalGraph, sure: Mapping[Edge, float], ways: Mapping[Edge, float], doubtful: Sequence[Edge]
) -> tuple[CausalGraph, dict[Edge, float], dict[Edge, float]]:
    """Return the graph without doubtful edges; directions that they may have given become open."""
    gone = set(doubtful)
    left = tuple(edge for edge in graph.adjacencies if edge not in gone)
    kept = tuple(edge for edge in graph.required if (min(edge), max(edge)) in left)
    lines = tuple(edge for edge in left if edge not in kept and edge[::-1] not in kept)
    plain = replace(graph, edges=kept, undirected_edges=lines)
    return plain, {edge: sure[edge] for edge in left}, {edge: ways[edge] for edge in kept if edge in ways}
