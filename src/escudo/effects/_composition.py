r"""Composition as an algorithm: the best bound a diagram proves is a minimum cut.

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
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from escudo._validate import probability
from escudo.effects._diagram import Diagram, Node
from escudo.effects._effect import Effect, show_epsilon, show_names
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.privacy import Event

__all__ = ["bound"]

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
    reached = None if set(changed) & set(observed) else _reached(diagram, changed, observed, delta)
    if reached is None:
        return _proved(
            changed, observed, math.inf, 0.0, (f"{show_names(changed)} reaches {show_names(observed)} unprotected.",)
        )
    before = _ancestors(diagram, observed, changed)
    crossed = [
        (node, [p for p in node.guarded if p in reached])
        for node in diagram.nodes.values()
        if node.kind == "mechanism" and node.name in before and node.name not in reached
    ]
    crossed = [(node, inputs) for node, inputs in crossed if inputs]
    pure, events, steps = _costs(diagram, crossed)
    epsilon, how = _added_up(pure, events, delta)
    notes = _notes(diagram, changed, observed, reached, before, crossed)
    total = f"Together ε = {show_epsilon(epsilon)}" + (f" at δ = {delta:g}" if delta else "") + f" ({how})."
    return _proved(changed, observed, epsilon, delta if events else 0.0, (*notes, *steps, total))


def _proved(of: tuple[str, ...], on: tuple[str, ...], epsilon: float, delta: float, why: tuple[str, ...]) -> Effect:
    return Effect(epsilon=epsilon, known="proved", of=of, on=on, delta=delta, derivation=why)


def _reached(diagram: Diagram, of: tuple[str, ...], on: tuple[str, ...], delta: float) -> set[str] | None:
    """Return the side S of a minimum cut, or None if every cut is infinite."""
    nearest = _spread(diagram, of)
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


def _spread(diagram: Diagram, of: Iterable[str]) -> set[str]:
    """Return what a change reaches without crossing a mechanism's protection."""
    found = set(of)
    for node in diagram.nodes.values():  # parents come first
        open_parents = (
            node.parents if node.kind != "mechanism" else tuple(p for p in node.parents if p not in node.guarded)
        )
        if found & set(open_parents):
            found.add(node.name)
    return found


def _ancestors(diagram: Diagram, on: Iterable[str], cut: Iterable[str]) -> set[str]:
    found: set[str] = set()
    stack = list(on)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            if name not in set(cut):
                stack += diagram.nodes[name].parents
    return found


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


def _added_up(pure: float, events: list[Event], delta: float) -> tuple[float, str]:
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
