r"""Diagrams: who influences whom, and which arrows are guarded by a mechanism. No equations needed.

A diagram knows, for each mechanism, a bound on what *one* of its inputs can do to its output while the others stay as
they are, whatever they are. :func:`bound` composes these bounds into one for any two groups of nodes: the best bound a
diagram proves is a minimum cut.

**Theorem.** Divide the nodes into S and T, with everything changed in S and everything observed in T, such that every
arrow from S to T ends in a mechanism. Then the change alters the joint law of T, and so of what is observed, by at most

.. math:: \epsilon = \sum_{M \in T} \sum_{p \in S, p \to M} \epsilon_{M, p}.

*Proof.* Write each randomised equation of S as a function of its parents and of noise of its own. Fix the background
and that noise. Given values t of T, the values of S under either setting of the input follow, as S reads T only through
t. So Pr[T = t] is a product over nodes of T, in which the two settings differ only in the factors of mechanisms that
read S; changing those inputs one after the other costs at most the inner sum each. Now average over noise and
background: a ratio of two averages with the same weights is at most the largest ratio of their terms. The same holds
for (ε, δ), Rényi and Gaussian guarantees, whose divergences are jointly (quasi-)convex, with their own rules for
adding up. ∎

Sequence (Theorem 1 of the paper, with the earlier output in T), post-processing (nodes of T without arrows from S are
free) and groups (the inner sum) are special cases; choosing S and T well is a minimum cut, where an arrow into a
mechanism has capacity :math:`\epsilon_{M,p}` and any other arrow infinite capacity.

Reference:
    Tschantz, Sen and Datta, Differential Privacy as a Causal Property, Theorem 1. Its remark about further parents of
    the second output is not needed, and does not hold in general: bounds here are for all values of all other inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from escudo._validate import did_you_mean, positive, positive_integer, probability
from escudo.causal import reach
from escudo.effects._effect import Effect, show_epsilon, show_names
from escudo.errors import GraphError, InputError

if TYPE_CHECKING:
    from escudo.causal import SEM
    from escudo.privacy import Event, Guarantee, Ledger

NodeKind = Literal["attribute", "data point", "mechanism", "post-processing"]


# ---- diagrams


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a diagram.

    Attributes:
        name: Its name.
        kind: Attributes and data points pass on any change; a mechanism bounds it; post-processing reads outputs.
        parents: What it reads.
        epsilons: For a mechanism with pure bounds: per guarded parent, the most that parent alone can change.
        event: For a mechanism known by an event instead: what it costs to change one guarded parent.
        guarded: The parents a mechanism protects; it may read others, such as earlier outputs, without protection.
        group: The partition the mechanism belongs to, if records choose one of several mechanisms by their value.
        text: What it is, for people.
    """

    name: str
    kind: NodeKind
    parents: tuple[str, ...] = ()
    epsilons: Mapping[str, float] = field(default_factory=dict)
    event: Event | None = None
    guarded: tuple[str, ...] = ()
    group: str | None = None
    text: str = ""

    def cost(self, delta: float = 0.0, parent: str | None = None) -> float:
        """Return the epsilon, at ``delta``, of changing one guarded parent; by default the most costly one."""
        if self.event is None:
            return self.epsilons[parent] if parent is not None else max(self.epsilons.values(), default=0.0)
        from escudo.privacy import Guarantee

        event, rows = self.event, self.event.max_rows_per_person
        stated = Guarantee(
            epsilon=0.0, relation=event.relation, unit=event.unit, max_rows_per_person=rows, source=event
        )
        return stated.epsilon_at(delta)

    def costs(self, changed: Iterable[str]) -> tuple[float, Event | None]:
        """Return what it costs when several guarded inputs change: a pure epsilon, or an event."""
        inputs = [name for name in self.guarded if name in set(changed)]
        if self.event is not None:
            return 0.0, self.event.stretched(len(inputs)) if inputs else None
        return math.fsum(self.epsilons[name] for name in inputs), None


@dataclass(frozen=True, slots=True)
class Diagram:
    """An acyclic diagram, built step by step; every step returns a new one.

    >>> survey = (
    ...     Diagram().attribute("R1").attribute("R2", causes=["R1"])
    ...     .point("D1", causes=["R1"]).point("D2", causes=["R2"])
    ...     .mechanism("O", reads=["D1", "D2"], epsilon=1.0)
    ... )
    >>> from escudo.effects import bound
    >>> bound(survey, of="R1", on="O").epsilon
    2.0
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)

    def attribute(self, name: str, *, causes: str | Iterable[str] = (), text: str = "") -> Diagram:
        """Add an attribute of a person or of the world."""
        return self._reading("attribute", name, causes, text)

    def point(self, name: str, *, causes: str | Iterable[str] = (), text: str = "") -> Diagram:
        """Add a data point, that is, what a person hands in."""
        return self._reading("data point", name, causes, text)

    def mechanism(
        self,
        name: str,
        *,
        reads: str | Iterable[str],
        epsilon: float | Mapping[str, float] | None = None,
        guarantee: Guarantee | Event | None = None,
        chosen_by: str | Iterable[str] = (),
        text: str = "",
    ) -> Diagram:
        """Add a mechanism with what it promises.

        Args:
            name: Its name; its output has the same.
            reads: The data it protects.
            epsilon: Most that changing one of ``reads`` can do, the others and ``chosen_by`` being the same, whatever
                they are; or such a bound for each.
            guarantee: The same as a guarantee or an event (for replacing one record), instead of ``epsilon``.
            chosen_by: Other things it reads without protecting them, such as earlier outputs that choose it.
            text: What it is, for people.
        """
        data, others = _listed(reads), _listed(chosen_by)
        if (epsilon is None) == (guarantee is None):
            raise InputError(f"mechanism {name!r} needs either epsilon or guarantee, and not both.")
        bounds: dict[str, float] = {}
        if epsilon is not None:
            given = epsilon if isinstance(epsilon, Mapping) else dict.fromkeys(data, epsilon)
            if set(given) != set(data):
                raise InputError(f"epsilon of mechanism {name!r} must name exactly what it reads: {', '.join(data)}.")
            for key, value in given.items():
                bounds[key] = value if value == math.inf else positive(f"epsilon for {key}", value, allow_zero=True)
        fact: Any = guarantee  # a Guarantee knows the event it stands for; importing the class would be slow
        fact = getattr(fact, "event", fact)
        if fact is not None and not hasattr(fact, "under"):
            raise InputError(
                f"guarantee of mechanism {name!r} must be a Guarantee or an Event; got {type(fact).__name__}. "
                "Give a number as epsilon."
            )
        return self._with(
            Node(
                name=name,
                kind="mechanism",
                parents=(*data, *others),
                epsilons=bounds,
                event=None if fact is None else fact.under("replace_one"),
                guarded=data,
                text=text,
            )
        )

    def partition(self, name: str, *, reads: str | Iterable[str], epsilons: Mapping[str, float]) -> Diagram:
        """Add mechanisms over disjoint parts of the data, where each record's value decides which part it is in.

        Changing a record takes it out of one part and into another, so all of them together change by at most the two
        largest epsilons (parallel composition). For parts fixed by position, add separate mechanisms with different
        ``reads``: the diagram itself then says that a data point reaches only one.

        Args:
            name: A name for the partition.
            reads: The data points that are divided up.
            epsilons: The mechanisms and their epsilons.
        """
        data, diagram = _listed(reads), self
        for mechanism, epsilon in epsilons.items():
            bounds = dict.fromkeys(data, positive(f"epsilon of {mechanism}", epsilon, allow_zero=True))
            node = Node(name=mechanism, kind="mechanism", parents=data, guarded=data, epsilons=bounds, group=name)
            diagram = diagram._with(node)
        return diagram

    def post(self, name: str, *, reads: str | Iterable[str], text: str = "") -> Diagram:
        """Add something computed from outputs, or from anything else, without protection of its own."""
        return self._reading("post-processing", name, reads, text)

    @classmethod
    def of(cls, sem: SEM, *, mechanisms: Iterable[str]) -> Diagram:
        """Return the diagram of a model: all equations forgotten, but for what each mechanism promises.

        Args:
            sem: The model.
            mechanisms: The variables to treat as mechanisms. For each parent the exact bound is used: the largest log
                ratio between rows of its equation that differ in that parent.
        """
        from escudo.effects._exact import direct, effect

        chosen = set(mechanisms)
        diagram = cls()
        for name in sem.variables:
            parents = sem.parents(name)
            if name not in chosen or not parents:
                diagram = diagram.attribute(name, causes=parents)
                continue
            bounds = {}
            for parent in parents:
                others = [other for other in parents if other != parent]
                found = direct(sem, parent, name, holding=others) if others else effect(sem, parent, name)
                bounds[parent] = found.epsilon
            diagram = diagram.mechanism(name, reads=parents, epsilon=bounds)
        return diagram

    def names(self, what: str, names: str | Iterable[str]) -> tuple[str, ...]:
        """Return the nodes that ``names`` lists, checked."""
        listed = _listed(names)
        for name in listed:
            if name not in self.nodes:
                raise InputError(f"{what}: the diagram has no node {name!r}." + did_you_mean(str(name), self.nodes))
        if not listed:
            raise InputError(f"{what} must name at least one node.")
        return listed

    def _reading(self, kind: NodeKind, name: str, parents: str | Iterable[str], text: str) -> Diagram:
        return self._with(Node(name=name, kind=kind, parents=_listed(parents), text=text))

    def _with(self, node: Node) -> Diagram:
        if node.name in self.nodes:
            raise GraphError(f"the diagram has a node {node.name!r} already.")
        for parent in node.parents:
            if parent not in self.nodes:
                raise GraphError(
                    f"{node.name!r} reads {parent!r}, which is not in the diagram yet: add causes before effects."
                    + did_you_mean(parent, self.nodes)
                )
        return Diagram({**self.nodes, node.name: node})


def _listed(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def from_ledger(ledger: Ledger, dataset: str, *, people: int = 1) -> Diagram:
    """Return a dataset's releases as a diagram: an attribute ``R``, data points ``D1 …`` it influences, and releases.

    Each release reads every data point and may have been chosen after seeing the earlier ones. ``bound`` then says what
    all releases together do to one person (``of="D1"``), to a household (``of=["D1", …]``) and to an attribute that
    influences all of them (``of="R"``).

    Args:
        ledger: The ledger.
        dataset: The account's name.
        people: How many data points to show: the size of the household, or how many people the attribute influences.
    """
    positive_integer("people", people)
    diagram = Diagram().attribute(
        "R", text=f"something that influences {people} people" if people > 1 else "an attribute"
    )
    points = tuple(f"D{i + 1}" for i in range(people))
    for point in points:
        diagram = diagram.point(point, causes=["R"])
    events = [(row.event, row.payload) for row in ledger.history(dataset)]
    spends = [(event, str(payload["purpose"]) or event.kind) for event, payload in events if event is not None]
    for number, (event, purpose) in enumerate(spends, start=1):
        earlier = [f"release {number - 1}"] if number > 1 else []  # and through it, all before it
        diagram = diagram.mechanism(f"release {number}", reads=points, guarantee=event, chosen_by=earlier, text=purpose)
    return diagram


# ---- composition

_SOURCE, _SINK = ("source",), ("sink",)  # tuples, so that no node can have these names


def bound(diagram: Diagram, of: str | Iterable[str], on: str | Iterable[str], *, delta: float = 0.0) -> Effect:
    """Return the best bound the diagram proves for the effect of ``of`` on ``on``, in every population.

    Args:
        diagram: The diagram.
        of: The nodes changed, together.
        on: The nodes observed, together.
        delta: Probability aside, needed where mechanisms have Gaussian noise.

    Returns:
        An :class:`Effect` with ``known="proved"`` and its derivation; infinite if the diagram proves nothing.
    """
    changed, observed = diagram.names("of", of), diagram.names("on", on)
    probability("delta", delta)
    proved = Effect(epsilon=math.inf, known="proved", of=changed, on=observed)
    reached = None if set(changed) & set(observed) else _side_of_the_cut(diagram, changed, observed, delta)
    if reached is None:
        why = f"{show_names(changed)} reaches {show_names(observed)} unprotected."
        return replace(proved, derivation=(why,))
    before = _ancestors(diagram, observed, changed)
    crossed = [
        (node, [p for p in node.guarded if p in reached])
        for node in diagram.nodes.values()
        if node.kind == "mechanism" and node.name in before and node.name not in reached
    ]
    crossed = [(node, inputs) for node, inputs in crossed if inputs]
    pure, events, steps = _costs(diagram, crossed)
    epsilon, how = _add_up(pure, events, delta)
    notes = _notes(diagram, changed, observed, reached, before, crossed)
    total = f"Together ε = {show_epsilon(epsilon)}" + (f" at δ = {delta:g}" if delta else "") + f" ({how})."
    return replace(proved, epsilon=epsilon, delta=delta if events else 0.0, derivation=(*notes, *steps, total))


def _side_of_the_cut(diagram: Diagram, of: tuple[str, ...], on: tuple[str, ...], delta: float) -> set[str] | None:
    """Return the side S of a minimum cut, or None if every cut is infinite."""
    nearest = _unprotected(diagram, of)
    if nearest & set(on):
        return None
    before = _ancestors(diagram, on, of)
    guards = [n for n in diagram.nodes.values() if n.name in before - nearest and set(n.guarded) & nearest]
    if all(node.name in on for node in guards) and all(math.isfinite(n.cost(delta)) for n in guards):
        return nearest  # the mechanisms that read S are themselves observed: there is no other cut
    import networkx as nx

    graph: Any = nx.DiGraph()  # Any: nodes are names, and tuples for what has no name
    for name in of:
        graph.add_edge(_SOURCE, name)  # an edge without capacity is infinite
    for name in on:
        graph.add_edge(name, _SINK)
    for node in diagram.nodes.values():
        if node.name not in before or node.name in of:
            continue
        for parent in node.parents:
            if parent not in node.guarded:
                graph.add_edge(parent, node.name)
                continue
            cost = node.cost(delta, parent)
            capacity = {} if math.isinf(cost) else {"capacity": cost}
            if node.group is None:
                graph.add_edge(parent, node.name, **capacity)
            else:  # cut either the whole partition, at its joint cost, or its mechanisms one by one
                graph.add_edge(parent, (parent, node.group), capacity=_joint(diagram, node.group, parent))
                graph.add_edge((parent, node.group), node.name, **capacity)
    try:
        _, (side, _) = nx.minimum_cut(graph, _SOURCE, _SINK)
    except nx.NetworkXUnbounded:
        return None
    return {name for name in side if isinstance(name, str)}


def _unprotected(diagram: Diagram, of: Iterable[str]) -> set[str]:
    """Return what a change reaches without crossing a mechanism's protection."""
    found = set(of)
    for node in diagram.nodes.values():  # parents come first
        open_parents = (
            node.parents if node.kind != "mechanism" else tuple(p for p in node.parents if p not in node.guarded)
        )
        if found & set(open_parents):
            found.add(node.name)
    return found


def _ancestors(diagram: Diagram, on: Iterable[str], cut: tuple[str, ...]) -> set[str]:
    """Return what is observed and everything that reaches it, no further back than what is changed."""
    return reach(on, lambda name: () if name in cut else diagram.nodes[name].parents)


def _joint(diagram: Diagram, group: str, parent: str) -> float:
    epsilons = sorted(n.epsilons[parent] for n in diagram.nodes.values() if n.group == group and parent in n.guarded)
    return math.fsum(epsilons[-2:])


def _costs(diagram: Diagram, crossed: list[tuple[Node, list[str]]]) -> tuple[float, list[Event], tuple[str, ...]]:
    """Return the pure epsilon, the events and a sentence each of what the cut crosses."""
    pure, events, steps = [], list[Any](), []
    for node, inputs in crossed:
        alone, event = node.costs(inputs)
        what = f"{node.name} reads {show_names(tuple(inputs))}"
        if event is not None:
            group = f", {len(inputs)} of its records" if len(inputs) > 1 else ""
            steps.append(f"{what}{group}: {event.kind}.")
            events.append(event)
        elif node.group is None:
            parts = " + ".join(show_epsilon(node.epsilons[name]) for name in inputs)
            steps.append(f"{what}: ε = {parts}" + (f" = {show_epsilon(alone)}." if len(inputs) > 1 else "."))
            pure.append(alone)
    for group in dict.fromkeys(node.group for node, _ in crossed if node.group):
        members = [(node, inputs) for node, inputs in crossed if node.group == group]
        for parent in dict.fromkeys(name for _, inputs in members for name in inputs):
            singly = math.fsum(node.epsilons[parent] for node, inputs in members if parent in inputs)
            cost = min(singly, _joint(diagram, group, parent))
            pure.append(cost)
            steps.append(
                f"the parts of {group} read {parent}, which changes at most two of them: ε = {show_epsilon(cost)}."
            )
    return math.fsum(pure), events, tuple(steps)


def _add_up(pure: float, events: list[Event], delta: float) -> tuple[float, str]:
    if not events:
        return pure, "composition adds them up"
    from escudo.privacy import PureEvent, guarantee_of

    unit, rows = events[0].unit, events[0].max_rows_per_person
    listed = [*events, PureEvent(epsilon=pure, unit=unit, max_rows_per_person=rows)] if pure else events
    try:
        found = guarantee_of(listed, delta=delta)
    except InputError:
        return math.inf, "no finite ε at this δ; give a larger delta"
    assert found.epsilon is not None
    return found.epsilon, found.accountant


def _notes(
    diagram: Diagram,
    of: tuple[str, ...],
    on: tuple[str, ...],
    reached: set[str],
    before: set[str],
    crossed: list[tuple[Node, list[str]]],
) -> tuple[str, ...]:
    if not crossed:
        return (f"{show_names(of)} does not reach {show_names(on)}.",)
    via = tuple(dict.fromkeys(name for _, inputs in crossed for name in inputs if name not in of))
    notes = [f"{show_names(of)} reaches mechanisms through {show_names(via)}."] if via else []
    guards = {node.name for node, _ in crossed}
    free = tuple(n for n in on if n in before - reached - guards)
    if free:
        notes.append(f"{show_names(free)} follows from protected outputs: post-processing is free.")
    if any(set(node.parents) & guards for node, _ in crossed):
        notes.append("Later mechanisms may depend on earlier outputs: in sequence, costs add up.")
    return tuple(notes)
