r"""Which arrows a generator follows: those the graph states, the pairs it leaves open, and what latents leave behind.

A graph over all columns states every arrow, and that there is no other. What it leaves open is stated by leaving it
out: columns it does not name, and the inside of groups of columns, whose arrows say only that *something* in one group
acts on something in the other. Open pairs may be joined by a tree that is selected privately.

Only public things are read here: the schema and the graph.

**Latents.** Two columns are *confounded* if a latent acts on both, directly or through other latents; columns that a
chain of confounded ones joins form a *district*. Let columns be in causal order. Given everything before it, a column
depends on

.. math:: \text{pillow}(v) = D_v \cup pa(D_v) \setminus \{v\},

where :math:`D_v` is its district among the columns up to v itself. So the product of :math:`p(v \mid \text{pillow}(v))`
is the observed law, with nothing lost. The parents of earlier confounded columns belong to it: in x → m → y with m and
y confounded, y depends on x given m, and without the arrow x → y even the effect of x, which no latent touches, would
be wrong.

**do(x)** takes out the factor of x alone. That is the true interventional law if x is the last of its district: its
district's factors add up, over x, to those of the others, and other districts do not know how x came about. Otherwise
later columns of the district answer to the latent through x, and the table alone cannot take that apart.

**What stays open.** A graph claims what it states and nothing more. do(x) says something of y only if the pair is
*settled* (:func:`check_settled`): both are named, and neither is one of several columns of a group that x reaches;
and no path from x to y that may be directed, and meets nothing else that is set, begins with an undirected edge at x.
Then every graph that the stated one stands for gives the same law, that of any one of them. Otherwise they differ:
with x — z, either x acts on z, or setting x leaves z alone.

**Reference.** E. Perković (2020), "Identifying causal effects in maximally oriented partially directed acyclic graphs",
UAI, Theorem 3.6, for undirected edges; J. Tian, J. Pearl (2002), "A general identification condition for causal
effects", AAAI, Lemma 1 and Theorem 3, for latents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from escudo._validate import did_you_mean
from escudo.causal import CausalGraph, Knowledge
from escudo.errors import GraphError, InputError, NotIdentifiableError
from escudo.table import Schema

Arrow = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Structure:
    """The public part of a fitted graph.

    Attributes:
        parents: For each column the parents that are stated, in schema order.
        open_arrows: Pairs (cause, effect) that may be joined; all of them together have no cycle.
        graph: The graph as given; None where there was none.
    """

    parents: Mapping[str, tuple[str, ...]]
    open_arrows: tuple[Arrow, ...]
    graph: CausalGraph | None

    @property
    def stated(self) -> CausalGraph:
        """What is claimed about causes: the graph as given, or one that names nothing."""
        return CausalGraph.from_edges([]) if self.graph is None else self.graph

    @property
    def arrows(self) -> tuple[Arrow, ...]:
        """The arrows that laws follow."""
        return tuple((parent, child) for child, parents in self.parents.items() for parent in parents)

    @property
    def stated_arrows(self) -> list[list[str]]:
        """Those of them that the graph states: it gives an undirected edge no direction. For a model's details."""
        lines = {frozenset(line) for line in self.stated.undirected_edges}
        return [list(arrow) for arrow in self.arrows if frozenset(arrow) not in lines]

    @property
    def open_effects(self) -> tuple[str, ...]:
        """The columns that may get a cause nobody stated."""
        return tuple(dict.fromkeys(effect for _, effect in self.open_arrows))

    def with_tree(self, chosen: Iterable[Arrow]) -> dict[str, tuple[str, ...]]:
        """Return each column's parents once the chosen open arrows are added."""
        names = list(self.parents)
        added: dict[str, set[str]] = {name: set(parents) for name, parents in self.parents.items()}
        for cause, effect in chosen:
            added[effect].add(cause)
        return {name: tuple(sorted(parents, key=names.index)) for name, parents in added.items()}

    def fitted_graph(self, parents: Mapping[str, tuple[str, ...]]) -> CausalGraph:
        """Return the graph that is followed, together with the latents that were stated."""
        fitted = graph_of(parents)
        if self.graph is None or not self.graph.latents:
            return fitted
        hidden = [edge for edge in self.graph.edges if edge[0] in self.graph.latents]
        acting = self.graph.latents.intersection(name for edge in hidden for name in edge)  # one alone says nothing
        return CausalGraph.from_edges([*fitted.edges, *hidden], nodes=fitted.nodes, latents=acting)


def structure_of(schema: Schema, graph: CausalGraph | None) -> Structure:
    """Read off a graph what it states about a schema's columns, and what it leaves open.

    Laws follow undirected edges in the directions of some graph of the same equivalence class, which all have the same
    observed law; that is no claim about causes (:func:`check_settled`). Latents are taken out, and what
    they leave behind among the columns is stated instead, as this file's text proves.

    Raises:
        GraphError: If the graph names a column that the schema does not have.
    """
    names = schema.names
    if graph is None:
        return Structure(dict.fromkeys(names, ()), _forward_pairs(names, names), None)
    for column in graph.columns:
        if column not in schema.columns:
            raise GraphError(
                f"The graph names {column!r}, which is no column of the schema.{did_you_mean(column, names)} "
                "Add it to the schema, take it out of the graph, or mark it as latent."
            )
    directed = graph.extension()
    full = directed.expand("ordered") if directed.groups else directed
    grouped = {column for columns in directed.groups.values() if len(columns) > 1 for column in columns}
    arrows = without_latents(full)
    stated = {(a, b) for a, b in arrows if not (a in grouped or b in grouped)}
    unnamed = [name for name in names if name not in full.nodes]
    order = [*(name for name in full.topological_order() if name in schema.columns), *unnamed]
    open_arrows = {*arrows, *_forward_pairs(order, unnamed)} - stated - set(full.forbidden)
    parents = {name: tuple(other for other in names if (other, name) in stated) for name in names}
    place = {name: number for number, name in enumerate(order)}
    ranked = sorted(open_arrows, key=lambda arrow: (place[arrow[1]], place[arrow[0]]))
    return Structure(parents, tuple(ranked), graph)


def _forward_pairs(order: Iterable[str], effects: Iterable[str]) -> tuple[Arrow, ...]:
    """Return all pairs (earlier, later) whose later one is among ``effects``."""
    listed, wanted = list(order), set(effects)
    return tuple((cause, effect) for place, effect in enumerate(listed) if effect in wanted for cause in listed[:place])


def graph_of(parents: Mapping[str, Sequence[str]]) -> CausalGraph:
    """Return the graph in which each column has these parents.

    Raises:
        GraphError: If there is a cycle.
    """
    arrows = [(parent, name) for name, several in parents.items() for parent in several]
    return CausalGraph.from_edges(arrows, nodes=tuple(parents))


def with_lines(stated: CausalGraph, arrows: Iterable[Arrow]) -> CausalGraph:
    """Return what is claimed about causes where laws follow more arrows than are stated: those are open, both ways.

    Args:
        stated: What is claimed without them.
        arrows: The arrows that laws follow beyond it. Columns that it does not name are open as they are.
    """
    joined = {frozenset(pair) for pair in stated.adjacencies}
    named = set(stated.nodes)
    lines = tuple(arrow for arrow in arrows if frozenset(arrow) not in joined and named.issuperset(arrow))
    return replace(stated, undirected_edges=(*stated.undirected_edges, *lines), knowledge=Knowledge())


def check_graph(graph: CausalGraph, schema: Schema) -> None:
    """Refuse a model's graph that leaves a column out, about which it could not say what an intervention does.

    Raises:
        InputError: Names the column.
    """
    if missing := sorted(set(schema.names) - set(graph.columns)):
        raise InputError(f"The model's graph does not have the schema's column {missing[0]!r}.")


# ---- latents


def without_latents(graph: CausalGraph) -> list[Arrow]:
    """Return the arrows among observed columns that, without the latents, still give the observed law.

    >>> without_latents(CausalGraph.from_edges([("x", "m"), ("m", "y"), ("u", "m"), ("u", "y")], latents=["u"]))
    [('x', 'm'), ('x', 'y'), ('m', 'y')]
    """
    order = [name for name in graph.topological_order() if name not in graph.latents]
    causes = {name: _causes(graph, name) for name in order}
    arrows = []
    for place, name in enumerate(order):
        district = _district(order[: place + 1], name, causes, graph.latents)
        pillow = district.union(*(causes[member] for member in district)) - graph.latents - {name}
        arrows += [(earlier, name) for earlier in order[:place] if earlier in pillow]
    return arrows


def check_identified(graph: CausalGraph, intervened: Iterable[str]) -> None:
    """Refuse do() on a column that a later one, of the same district, depends on.

    Args:
        graph: A fitted graph: the arrows of :func:`without_latents`, and those out of latents.
        intervened: The columns that are set.

    Raises:
        NotIdentifiableError: Names the column, the latent and what it confounds.
    """
    if not graph.latents:
        return
    observed = [name for name in graph.nodes if name not in graph.latents]
    causes = {name: _causes(graph, name) for name in observed}
    for name in intervened:
        affected = set(graph.descendants(name)) & _district(observed, name, causes, graph.latents)
        if affected:
            latent, first = min(causes[name] & graph.latents), min(affected)
            raise NotIdentifiableError(
                f"The effect of setting {name!r} is not identified: the unobserved {latent!r} acts on it and, through "
                f"what it confounds, on {first!r}, so the table alone cannot tell the two apart. Measure {latent!r}, "
                "or condition with given= if an association is enough."
            )


def check_settled(stated: CausalGraph, intervened: Iterable[str], asked: Iterable[str]) -> None:
    """Refuse do() where the answer about a column that is asked for depends on what the stated graph leaves open.

    Args:
        stated: What is claimed about causes.
        intervened: The columns that are set.
        asked: The columns that something is said of.

    Raises:
        NotIdentifiableError: Names the column that is set, and what would have to be stated.
    """
    node_of = {column: node for node in stated.nodes for column in stated.groups.get(node, (node,))}
    together = list(intervened)
    wanted = [column for column in asked if column not in together]
    for name in together:
        if not stated.nodes:
            raise NotIdentifiableError(
                f"What setting {name!r} does cannot be said: the model was made without a causal graph, or does not "
                "follow it, so columns at most go together in it. Make it with a graph and a generator that follows "
                "one, or condition with given= if an association is enough."
            )
        if silent := [column for column in (name, *wanted) if column not in node_of]:
            whom = "" if silent[0] == name else f" to {silent[0]!r}"
            raise NotIdentifiableError(
                f"What setting {name!r} does{whom} cannot be said: the graph does not name {silent[0]!r}. Name it "
                "there, without arrows if it has neither causes nor effects, or ask only for columns that the graph "
                "names, with columns= or --column."
            )
    barred = {node_of[name] for name in together}  # what is set answers to nothing, so no path leads on through it
    for name in together:
        for reason, reached in _open_at(stated, node_of[name], barred):
            for other in wanted:
                if node_of[other] in reached:
                    raise NotIdentifiableError(f"What setting {name!r} does to {other!r} {reason}")


def refusals_of(schema: Schema, graph: CausalGraph | None) -> dict[str, str]:
    """Return, for each column, why a model that follows a graph would refuse to say what setting it does to the others.

    Args:
        schema: The columns.
        graph: What is claimed about causes.

    Returns:
        An empty text where it would not refuse.

    Raises:
        GraphError: If the graph names a column that the schema does not have.

    >>> line = CausalGraph.from_edges([], undirected=[("smoke", "ill")])
    >>> refusals_of(Schema.from_dict({"smoke": ["no", "yes"], "ill": ["no", "yes"]}), line)["smoke"][:52]
    "What setting 'smoke' does to 'ill' depends on the di"
    """
    structure = structure_of(schema, graph)
    stated, fitted = structure.stated, structure.fitted_graph(structure.parents)
    found = dict.fromkeys(schema.names, "")
    for name in schema.names:
        try:
            check_settled(stated, [name], schema.names)
            check_identified(fitted, [name])
        except NotIdentifiableError as refused:
            found[name] = str(refused)
    return found


def _open_at(stated: CausalGraph, here: str, barred: Collection[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield what is open at a node that is set, in words, and the nodes on which the effect depends on it."""
    for line in stated.neighbours(here):
        if line not in barred:
            yield (
                f"depends on the direction of {here} — {line}, which nobody has stated. Give that edge a direction in "
                "the graph, from what is known or from escudo.direction; ask only for columns that do not depend on "
                "it, with columns= or --column; or condition with given= if an association is enough.",
                _onwards(stated, line, barred),
            )
    for node in _onwards(stated, here, set(barred) - {here}):
        if len(stated.groups.get(node, ())) > 1:
            yield (
                f"cannot be said: {node!r} stands for several columns, and an arrow at it says only that something in "
                "it is a cause or an effect. State arrows between columns, or condition with given= if an association "
                "is enough.",
                _onwards(stated, node, set(barred) - {here}),
            )


def causes_of(stated: CausalGraph, name: str, most: int) -> tuple[tuple[str, ...], ...]:
    """Return each set of causes that a column has in some graph that the stated one stands for.

    Args:
        stated: A graph with undirected edges, without groups and latents.
        name: The column.
        most: How many of them may be at the column.

    Returns:
        The sets, smallest first; none if there are too many to try, the graph stands for none, or has groups or
        latents.
    """
    lines = stated.neighbours(name) if name in stated else ()
    if not lines or len(lines) > most or stated.groups or stated.latents:
        return ()
    kept = [line for line in stated.undirected_edges if name not in line]
    try:
        pattern = stated.extension().cpdag()
    except GraphError:
        return ()
    found = []
    for size in range(len(lines) + 1):
        for before in combinations(lines, size):
            turned = [(line, name) if line in before else (name, line) for line in lines]
            try:
                reading = CausalGraph.from_edges([*stated.edges, *turned], nodes=stated.nodes, undirected=kept)
                same = reading.extension().cpdag() == pattern
            except GraphError:  # a cycle, or a common effect that the graph does not have
                continue
            if same:
                found.append((*stated.parents(name), *before))
    return tuple(found)


def _onwards(graph: CausalGraph, start: str, barred: Collection[str]) -> set[str]:
    """Return a node and all that it may act on, along arrows and undirected edges, never to what is barred."""
    found, waiting = {start}, [start]
    while waiting:
        for node in (*graph.children(here := waiting.pop()), *graph.neighbours(here)):
            if node not in barred and node not in found:
                found.add(node)
                waiting.append(node)
    return found


def _causes(graph: CausalGraph, name: str) -> set[str]:
    """Return the causes of a column, and the latents between them and it."""
    found: set[str] = set()
    waiting = list(graph.parents(name))
    while waiting:
        cause = waiting.pop()
        if cause not in found:
            found.add(cause)
            waiting += graph.parents(cause) if cause in graph.latents else ()
    return found


def _district(among: Iterable[str], name: str, causes: dict[str, set[str]], latents: frozenset[str]) -> set[str]:
    """Return the columns that are joined to one by chains of shared latents, itself included."""
    left = {other: causes[other] & latents for other in among if other != name}
    district, hidden = {name}, causes[name] & latents
    while joined := {other for other, theirs in left.items() if theirs & hidden}:
        district |= joined
        hidden = hidden.union(*(left.pop(other) for other in joined))
    return district
