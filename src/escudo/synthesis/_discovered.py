r"""Synthesis with a graph that is found under the same budget: the table first, the graph read off it.

The table is made as without a graph (``_marginals``): single columns, and pairs of columns that go together, picked
round by round. So it is about as good as a table without a graph, whatever becomes of the graph. The graph is
post-processing of what was measured; ``ORIENTATION`` of the budget is kept for what tells directions.

**Which columns are joined.** A pair is a candidate if it was measured: what was never picked is explained by the rest
as far as the budget could tell. It stays joined if no set S of up to two of its neighbours separates it: if the
conditional mutual information of the two given S, under the fitted law, is above ``_LEAST`` nats plus what noise of the
pair's table alone would make, :math:`\sum_{cells} \min(σ/np, 1)^2 p / 2`.

**Directions.** In a — b — c with a and c not joined, b is a common effect if what separates a from c does not hold b,
and the two depend on each other once b is given. That asks for the table of a and c, which rounds of picks often leave
out: where a → b → c, the model gets a and c right by itself, and where a → b ← c it is right to think them unrelated.
So before the graph is read off, the ends of such triples are measured, those first of which the model thinks that they
depend on each other most, and only where noise would not hide it; otherwise the other tables are measured again. What
those arrows and the knowledge say is claimed, with what else would close a cycle, and nothing more: all other edges
stay open, and do() at them is refused. Arrows that contradict each other are left open, too.

**Laws** for do() are those of the tables along some graph that agrees with the arrows. The observed law is that of the
tables that were picked, as without a graph: ends of triples are counted with so little of the budget that they would
blur a law that is about right by itself.

*How sure* an edge is: its conditional mutual information u against the bound t that it had to pass, as u²/(u² + 4t²);
of a direction likewise what shows once b is given. The 4 was read off 179 edges found on Asia, Sachs, Child and Alarm
(20,000 rows, ε = 0.1 and 1): of those scored below 0.3, 0.3 to 0.5, 0.5 to 0.8, 0.8 to 0.96 and above, 28, 56, 62, 95
and 100 % were there. Networks of another kind are not covered.

**Guarantee.** A composition of discrete Gaussian and exponential events, shown in the plan. Which tables are measured
depends on the rows only through what was released before.

**Reference.** P. Spirtes, C. Glymour, R. Scheines (2000), "Causation, prediction, and search", for separating sets and
common effects; D. Colombo, M. Maathuis (2014), "Order-independent constraint-based causal structure learning", JMLR.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import combinations
from typing import Any, cast

import numpy as np

from escudo._validate import one_of
from escudo.causal import CausalGraph, first_cycle
from escudo.discovery import METHODS, Constraints, GraphQuestion, constraints_of
from escudo.errors import InputError
from escudo.mechanisms import Purse
from escudo.privacy import Budget, Event, Neighbours, Passes, Plan, RepeatedEvent, calibrate
from escudo.synthesis._adaptive import Needs, measured_again
from escudo.synthesis._bins import with_bins
from escudo.synthesis._budget import above_zero
from escudo.synthesis._estimation import Columns, NoisyTable, Pair
from escudo.synthesis._forecast import Forecast
from escudo.synthesis._found import Following, parents_along, prepare_found
from escudo.synthesis._generators import Chosen, Prepared, Synthesis, choose, neighbours_of
from escudo.synthesis._laws import Conditional, draw
from escudo.synthesis._linear import Linear, numeric_columns
from escudo.synthesis._marginals import Fitted, PreparedMarginals, cells_of, noise_told, shares_of
from escudo.synthesis._merging import Merged
from escudo.synthesis._model import CausalModel, anchor_of
from escudo.synthesis._moments import Moments
from escudo.synthesis._residuals import Unit
from escudo.synthesis._structure import graph_of, structure_of, with_lines
from escudo.table import PrivateTable, Schema

ORIENTATION = 0.05
"""Of the budget, as inverse variance: for tables that tell directions."""

_ENDS_PER_COLUMN = 0.5
_LEAST = 0.005  # nats
_NEIGHBOURS = 6  # of a pair, that may separate it
_SIMULATED, _SEED = 2**15, 20_220_902
_FULL = 0.05  # a family's table has at most this many cells for each row,
_SMALL = 64  # or this many


@dataclass(frozen=True, slots=True)
class PreparedDiscovered:
    """What will be measured and how loudly: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        table: How the table is measured.
        ends: The release of a table that tells directions,
        several: and how many there are.
        known: What is known of the graph.
    """

    schema: Schema
    table: PreparedMarginals
    ends: Unit
    _: KW_ONLY
    several: int
    known: Constraints

    @property
    def plan(self) -> Plan:
        """The budget tree."""
        directions = []
        if self.several:
            more = "or more of the others"
            directions.append(Plan("tables that tell directions", self.ends.event, count=self.several, buys=more))
        return Plan(
            "marginals",
            children=[
                *self.table.measured,
                *directions,
                Plan("graph from what was measured"),
                Plan("fitting all tables together"),
                Plan("sampling"),
            ],
            delta=self.table.budget.delta,
        )

    @property
    def passes(self) -> Passes:
        """How often the rows are read: as without a graph."""
        return self.table.passes

    def forecast(self, rows: int | None) -> Forecast:
        """Return how good the model will be, for so many rows: as without a graph, which is not known yet."""
        return self.table.forecast(rows)

    def run(self, table: PrivateTable, purse: Purse) -> CausalModel:
        """Measure, read off the graph, and estimate."""
        fitted = self.table.fitted(table, purse)
        fits = fitted.fits
        measured = self._with_ends(purse, fitted)
        found = self._find(measured)
        agreed = fits.agreed(measured.tables)
        ends = set(measured.pairs) - set(fitted.pairs)
        parents = affordable(self.schema, found.parents, fits.total)
        followed = fits.along((cause, name) for name, several in parents.items() for cause in several)
        arrows = [(cause, name) for name, several in parents.items() for cause in several]
        return CausalModel(
            schema=self.schema,
            graph=graph_of(followed.parents),
            stated=with_lines(found.graph, arrows),
            conditionals=followed.laws(agreed),
            observed=followed.observed(
                fits.agreed([each for each in measured.tables if each.columns not in ends]), fitted.pairs
            ),
            guarantee=purse.guarantee,
            generator="marginals",
            plan=purse.plan,
            details={
                "rows": fits.total,
                # Where the direction is a finding; the others only help to imitate the table.
                "stated_arrows": [[a, b] for a, b in found.graph.edges if a in parents[b]],
                "discovery": found.told(),
                "tables": noise_told(fitted.tables),
                **anchor_of(purse),
            },
        )

    def _find(self, fitted: Fitted) -> Found:
        says = Information(fitted.fits.drawable(fitted.tables, fitted.pairs), fitted.fits.merged)
        return find(self.schema.names, says, fitted.fits.completed(fitted.tables), fitted.fits.total, self.known)

    def _with_ends(self, purse: Purse, fitted: Fitted) -> Fitted:
        """Measure the ends of triples whose directions hang on them; what is left over goes to the other tables."""
        tables = {each.columns: each for each in fitted.tables}
        fits, pairs = fitted.fits, list(fitted.pairs)
        wanted: list[Columns] = []
        if self.several:
            says = Information(fits.drawable(fitted.tables, fitted.pairs), fits.merged)
            found = find(self.schema.names, says, fits.completed(fitted.tables), fits.total, self.known)
            for pair in found.ends:
                shape = tuple(fits.cells[name] for name in pair)
                telling = says.tells(*pair, rows=fits.total, noise=self.ends.noise(shape))
                if telling and len(wanted) < self.several and fits.still_holds(pairs, pair):
                    pairs.append(pair)
                    wanted.append(pair)
        for columns in wanted:
            tables[columns] = self.ends.measure(columns, fitted.exact[columns], purse)
        needs = Needs(tables.values())
        for _ in range(self.several - len(wanted)):
            needy = needs.neediest
            tables[needy] = measured_again(tables[needy], fitted.exact[needy], self.ends, purse)
            needs.renew(tables[needy])
        return Fitted(list(tables.values()), pairs, fits, fitted.exact)


# ---- the graph, from what was released


@dataclass(frozen=True, slots=True)
class Found:
    """A graph that was read off a fitted law.

    Attributes:
        graph: What is claimed: arrows, and undirected edges.
        parents: Each column's parents in some graph that agrees with it.
        edges: How sure each edge is,
        directions: and each arrow.
        ends: Pairs that were not measured and on which directions hang, the most telling ones first.
    """

    graph: CausalGraph
    parents: Mapping[str, tuple[str, ...]]
    edges: Mapping[Pair, float]
    _: KW_ONLY
    directions: Mapping[Pair, float]
    ends: Sequence[Pair]

    def told(self) -> dict[str, object]:
        """Return what a report says of it, as JSON values."""
        lines = [(a, b, False) for a, b in self.graph.undirected_edges]
        told = [
            {
                "from": a,
                "to": b,
                "directed": directed,
                "confidence": round(self.edges[min(a, b), max(a, b)], 4),
                "direction_confidence": round(self.directions.get((a, b), 1.0), 4) if directed else None,
            }
            for a, b, directed in [*((a, b, True) for a, b in self.graph.edges), *lines]
        ]
        nothing = "" if told else "no two columns go together more than noise would make them"
        return {"method": "auto", "edges": told, "cannot_tell": nothing, "notes": []}


def find(
    names: Sequence[str],
    says: Information,
    tables: Sequence[NoisyTable],
    rows: float,
    known: Constraints,
) -> Found:
    """Return the graph of what was measured: post-processing.

    Args:
        names: The columns.
        says: What columns say of each other under the fitted law.
        tables: What was measured.
        rows: The number of rows, noisy or public.
        known: What is known of the graph.
    """
    place = {name: number for number, name in enumerate(names)}
    pairs = {_sorted(each.columns): each for each in tables if len(each.columns) == 2}
    bound = {pair: _LEAST + _made_by_noise(each, rows) for pair, each in pairs.items()}
    must = {_sorted((names[a], names[b])) for a, b in known.required}
    must |= {_sorted(tuple(names[number] for number in pair)) for pair in known.joined}
    may = {
        pair
        for pair in pairs
        if known.allowed[place[pair[0]], place[pair[1]]] or known.allowed[place[pair[1]], place[pair[0]]]
    }
    strength = {pair: says.shared(*pair) for pair in sorted(may | must)}
    apart: dict[Pair, Columns] = {pair: () for pair in may - must if strength[pair] <= bound[pair]}
    joined = [pair for pair in strength if pair not in apart]
    for size in (1, 2):
        beside = _beside(joined, strength)
        kept = []
        for pair in joined:
            around = [each for each in dict.fromkeys([*beside[pair[0]], *beside[pair[1]]]) if each not in pair]
            around = sorted(around, key=lambda each: -min(_toward(strength, each, pair), 1e9))[:_NEIGHBOURS]
            tried = {given: says.shared(*pair, given) for given in combinations(around, size)}
            least = min(tried, key=tried.__getitem__, default=None)
            if least is not None:
                strength[pair] = min(strength[pair], tried[least])
            if pair not in must and least is not None and tried[least] <= bound[pair]:
                apart[pair] = least
            else:
                kept.append(pair)
        joined = kept
    sure = {pair: _score(strength[pair], bound.get(pair, _LEAST)) if pair not in must else 1.0 for pair in joined}
    arrows, lines, directions, ends = _directions(names, joined, apart, bound, says, known)
    graph = CausalGraph.from_edges(sorted(arrows), nodes=tuple(names), undirected=lines)
    return Found(graph, parents_along(graph), sure, directions=directions, ends=ends)


def _directions(
    names: Sequence[str],
    joined: Sequence[Pair],
    apart: Mapping[Pair, Columns],
    bound: Mapping[Pair, float],
    says: Information,
    known: Constraints,
) -> tuple[set[Pair], list[Pair], dict[Pair, float], list[Pair]]:
    """Return the arrows that common effects and knowledge give; open edges; how sure; what was not measured."""
    place = {name: number for number, name in enumerate(names)}
    beside = _beside(joined, dict.fromkeys(joined, 1.0))
    adjacent = set(joined)
    votes: dict[Pair, float] = {}
    ends: dict[Pair, float] = {}
    for middle in names:
        for one, other in combinations(sorted(beside.get(middle, ())), 2):
            pair = _sorted((one, other))
            if pair in adjacent:
                continue
            if pair not in apart:
                ends[pair] = max(ends.get(pair, 0.0), says.shared(*pair))
                continue
            given = apart[pair]
            if middle in given:
                continue
            shown = says.shared(*pair, (*given, middle))
            if shown > 2 * bound[pair]:
                for end in (one, other):
                    votes[end, middle] = max(votes.get((end, middle), 0.0), _score(shown, bound[pair]))
    lines = sorted((min(place[a], place[b]), max(place[a], place[b])) for a, b in joined)
    arrows = set(known.required)

    def closes(arrow: tuple[int, int]) -> bool:
        return bool(first_cycle((str(a), str(b)) for a, b in sorted({*arrows, arrow})))

    for a, b in lines:  # what may go one way only; where that closes a cycle, it is not there
        if known.allowed[a, b] != known.allowed[b, a] and not closes(way := (a, b) if known.allowed[a, b] else (b, a)):
            arrows.add(way)
    lines = [(a, b) for a, b in lines if {(a, b), (b, a)} & arrows or known.allowed[a, b] == known.allowed[b, a]]
    for one, middle in sorted(votes, key=lambda vote: -votes[vote]):
        arrow = place[one], place[middle]
        open_way = (middle, one) not in votes and arrow[::-1] not in arrows and bool(known.allowed[arrow])
        if open_way and (min(arrow), max(arrow)) in lines and not closes(arrow):
            arrows.add(arrow)
    waiting = True
    while waiting:  # a — b is a → b where it would close a cycle the other way round
        waiting = False
        for a, b in [*lines, *((b, a) for a, b in lines)]:
            settled = (a, b) in arrows or (b, a) in arrows or not known.allowed[a, b]
            if not settled and any((a, c) in arrows and (c, b) in arrows for c in range(len(names))):
                arrows.add((a, b))
                waiting = True
    named = {(names[a], names[b]) for a, b in arrows}
    least = min(votes.values(), default=1.0)
    sure = {
        arrow: 1.0 if (place[arrow[0]], place[arrow[1]]) in known.required else votes.get(arrow, least)
        for arrow in named
    }
    open_lines = [_sorted((names[a], names[b])) for a, b in lines if not {(a, b), (b, a)} & arrows]
    return named, open_lines, sure, sorted(ends, key=lambda pair: -ends[pair])


class Information:
    """What columns say of each other under a law, in nats: from rows drawn of it.

    Merged levels (``_merging``) are counted together: given their groups, they say nothing of other columns.
    """

    def __init__(self, laws: Mapping[str, Conditional], merged: Merged):
        self._rows = draw(laws, {}, _SIMULATED, np.random.default_rng(_SEED))
        self._rows |= {name: groups[self._rows[name]] for name, groups in merged.items()}
        self._sizes = {name: int(merged[name][-1]) + 1 if name in merged else law.size for name, law in laws.items()}
        self._entropies: dict[frozenset[str], float] = {}

    def shared(self, first: str, second: str, given: Iterable[str] = ()) -> float:
        """Return the mutual information of two columns given others."""
        some = tuple(given)
        both = self._entropy((first, second, *some))
        return max(self._entropy((first, *some)) + self._entropy((second, *some)) - both - self._entropy(some), 0.0)

    def tells(self, first: str, second: str, *, rows: float, noise: float) -> bool:
        """Return whether a table of two columns with this noise tells their law from that of unrelated ones."""
        sizes = self._sizes[first], self._sizes[second]
        cells = self._rows[first] * sizes[1] + self._rows[second]
        law = np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes) / _SIMULATED
        apart = np.outer(law.sum(axis=1), law.sum(axis=0))
        missed = math.sqrt(2 / math.pi) * np.minimum(rows * apart, noise).sum()
        return bool(rows * np.abs(law - apart).sum() > 2 * missed)

    def _entropy(self, columns: Columns) -> float:
        """Return the entropy of columns; what drawing only so many rows hides is added (Miller and Madow)."""
        if not columns:
            return 0.0
        key = frozenset(columns)
        if key not in self._entropies:
            cells = np.zeros(_SIMULATED, dtype=np.int64)
            for name in columns:
                cells = cells * self._sizes[name] + self._rows[name]
            if math.prod(self._sizes[name] for name in columns) <= 2 * _SIMULATED:
                counts = np.bincount(cells)
            else:
                counts = np.unique(cells, return_counts=True)[1]
            share = counts[counts > 0] / _SIMULATED
            self._entropies[key] = float(-(share * np.log(share)).sum() + (share.size - 1) / (2 * _SIMULATED))
        return self._entropies[key]


def _made_by_noise(table: NoisyTable, rows: float) -> float:
    """Return about how many nats the noise of a pair's table makes where there are none."""
    share = np.maximum(table.counts, 0.0) / rows
    alone = np.outer(share.sum(axis=1), share.sum(axis=0)) / max(float(share.sum()), 1e-9)
    noise = np.minimum(table.scale / np.maximum(alone * rows, 1e-9), 1.0)
    free = (table.counts.shape[0] - 1) * (table.counts.shape[1] - 1) / table.counts.size
    return float((noise**2 * alone).sum() * free / 2)


def _score(found: float, bound: float) -> float:
    return found**2 / (found**2 + 4 * bound**2)


def _toward(strength: Mapping[Pair, float], name: str, pair: Pair) -> float:
    """Return how strongly a column is joined to the ends of a pair."""
    return sum(strength.get(_sorted((name, end)), 0.0) for end in pair)


def _beside(joined: Iterable[Pair], strength: Mapping[Pair, float]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for a, b in sorted(joined, key=lambda pair: -strength[pair]):
        found.setdefault(a, []).append(b)
        found.setdefault(b, []).append(a)
    return found


def _sorted(columns: Sequence[str]) -> Pair:
    first, second = sorted(columns)
    return first, second


def affordable(schema: Schema, parents: Mapping[str, Columns], rows: float) -> dict[str, Columns]:
    """Return each column's parents, without those that make its table larger than the rows can fill."""
    room = max(_FULL * rows, _SMALL)
    found = {}
    for name, several in parents.items():
        kept = sorted(several, key=lambda parent: schema[parent].size)
        while kept and cells_of(schema, (name, *kept)) > room:
            kept.pop()
        found[name] = tuple(sorted(kept, key=schema.names.index))
    return found


@dataclass(frozen=True, slots=True)
class DiscoveredSynthesis:
    """The question that a graph and a generator that follows it answer together.

    Attributes:
        knowledge: What is known of the graph; see :func:`escudo.discovery.discover`.
        method: How the graph is found, a method of :func:`escudo.discovery.discover`; None for what fits the generator.
        generator: ``"marginals"``, which reads the graph off its own tables; ``"moments"`` or ``"linear"``, for which
            it is found first (``_found``); or ``"auto"``.
        options: What else the generator takes.
    """

    knowledge: CausalGraph | None = None
    method: str | None = None
    generator: str = "marginals"
    options: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared:
        """Choose what to measure from public facts alone.

        Raises:
            InputError: If δ is 0, the generator follows no graph that is found, an option is unknown to it, or the
                method needs no tables and the generator does.
            RefusedError: If the schema is not confirmed.
        """
        schema.require_confirmed()
        above_zero(budget)
        name, why = choose(schema) if self.generator == "auto" else (self.generator, "")
        terms = schema, neighbours, budget
        found = self._marginals(*terms) if name == "marginals" else self._first(name, *terms)
        return Chosen.of(found, why) if why else found

    def _first(self, name: str, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared:
        """Choose what to measure where the graph is found before the generator measures anything."""
        if name in ("one-way", "independent"):
            raise InputError(
                f"generator {name!r} measures no arrow, so a graph that is to be discovered (--graph discover) would "
                "be paid for and say nothing about its rows. Use marginals, moments, linear, vae or autoregressive; "
                "or run 'escudo discover' by itself."
            )
        generator = Synthesis(None, name, self.options).made(name)
        if not isinstance(generator, Linear | Moments):
            raise InputError(
                f"generator {name!r} learns a graph together with its network: synthesize with discover='joint', or "
                "release with --graph discover."
            )
        question = GraphQuestion(self.knowledge, generator.found_by if self.method is None else self.method)

        def prepared(cut: Schema, rest: Budget) -> Prepared:
            return prepare_found(cast(Following, generator), question, cut, neighbours, rest)

        if isinstance(generator, Linear):  # numbers as they are
            numeric_columns(schema)
            return prepared(schema, budget)
        return with_bins(schema, neighbours, budget, prepared)

    def _marginals(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared:
        """Choose what to measure where the graph is read off the generator's own tables."""
        if unknown := sorted(self.options):
            raise InputError(f"a graph that is to be discovered has no option {unknown[0]!r}; it has method.")
        if self.method == "gaussian":
            raise InputError("A generator from discovery needs tables: use method='auto', or name another generator.")
        one_of("method", "auto" if self.method is None else self.method, METHODS)
        return with_bins(schema, neighbours, budget, lambda cut, rest: self._prepared(cut, neighbours, rest))

    def _prepared(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> PreparedDiscovered:
        """Choose what to measure with the bins of a schema."""
        known = constraints_of(schema, self.knowledge)
        shares, structure, paired = shares_of(schema, structure_of(schema, None), neighbours, budget)
        several = max(round(_ENDS_PER_COLUMN * len(shares.one_ways)), 1) if shares.candidates else 0
        kept = 1 - ORIENTATION if several else 1.0

        def ends(level: float) -> Unit:
            return Unit.of(neighbours, level * math.sqrt(max(several, 1) / ORIENTATION), shares.largeness)

        def events(level: float) -> list[Event]:
            tables = shares.events(level / math.sqrt(kept))
            return [*tables, *([RepeatedEvent(event=ends(level).event, count=several)] if several else [])]

        level = calibrate(events, budget)
        table = PreparedMarginals(schema, shares, structure, paired, level / math.sqrt(kept), budget)
        return PreparedDiscovered(schema, table, ends(level), several=several, known=known)


def prepare_discovered(
    schema: Schema,
    knowledge: CausalGraph | None = None,
    *,
    epsilon: float,
    delta: float,
    relation: str = "replace_one",
    public_rows: int | None = None,
    method: str | None = None,
    generator: str = "marginals",
    **options: Any,
) -> Prepared:
    """Choose what to measure, for a graph and a generator that follows it, from public facts alone.

    Args:
        schema: The columns.
        knowledge: What is known of the graph; see :func:`escudo.discovery.discover`.
        epsilon: What graph and generator may cost together.
        delta: At this probability aside.
        relation: Neighbouring relation.
        public_rows: The number of rows, if it is public knowledge.
        method: How the graph is found, as :func:`escudo.discovery.discover` has it; None for what fits the generator.
        generator: ``"marginals"``, ``"moments"``, ``"linear"`` or ``"auto"``.
        options: What else the generator takes.

    Returns:
        What :func:`~escudo.synthesis.fit` and :func:`~escudo.synthesis.fitting` take.

    Raises:
        InputError: If an argument is out of range.
        RefusedError: If the schema is not confirmed.
    """
    question = DiscoveredSynthesis(knowledge, method, generator, options)
    return question.prepare(schema, neighbours_of(schema, relation, public_rows), Budget(epsilon, delta))
