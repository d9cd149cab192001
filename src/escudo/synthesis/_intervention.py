r"""The laws that rows follow under an intervention, where columns go together for more reasons than the graph states.

A model may know two laws of a column: one given its parents in the causal graph, and an *observed* one given columns it
goes with, in any order. Without an intervention rows follow the observed laws. Under do(S), let D be the columns that
the graph's arrows lead to from S, and N all others. Then

.. math:: p(n, d \mid do(s)) = p_{obs}(n) \prod_{x \in D} p(x \mid pa_x).

*Nothing that is no effect of S changes*: N keeps the observed law. Effects follow the stated arrows only, so that no
intervention ever travels along a dependence that is not stated to be causal. Where there are no observed laws of their
own, this is the truncated factorisation; where the stated graph holds, the two are the same.

The observed law of N may be stated through columns of D and S *as they would have been*. They take part under another
name, are drawn by their observed laws, and are left out of what is returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from escudo.synthesis._conditionals import Conditional
from escudo.synthesis._structure import graph_of

__all__ = ["ancestors", "causal_order", "laws_under"]


def laws_under(
    causal: Mapping[str, Conditional], observed: Mapping[str, Conditional], fixed: Collection[str]
) -> dict[str, Conditional]:
    """Return the laws to draw along when ``fixed`` columns are set, in an order to draw them.

    Args:
        causal: The law of each column given its parents in the graph.
        observed: The laws that hold without an intervention, in an order of their own; none if the causal ones do.
        fixed: The columns that are set; their own laws are not used.

    Returns:
        A law for each column, and for those that are needed as they would have been, by a name that no column has.
    """
    if not fixed or not observed:
        laws = dict(observed or causal)
        return {name: laws[name] for name in causal_order(laws)}
    moved = _affected(causal, fixed)
    shadow = _shadows(moved, causal)
    laws = {}
    waiting = [name for name in causal if name not in moved]
    while waiting:
        name = waiting.pop()
        as_it_was = shadow.get(name, name)
        if as_it_was not in laws:
            waiting += [parent for parent in observed[name].parents if parent in moved]
            laws[as_it_was] = _renamed(observed[name], shadow)
    laws |= {name: causal[name] for name in moved}
    return {name: laws[name] for name in causal_order(laws, fixed)}


def causal_order(laws: Mapping[str, Conditional], fixed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the columns with what they are given before them; fixed ones need nothing before them.

    Raises:
        GraphError: If there is a cycle.
    """
    return graph_of({name: () if name in fixed else law.parents for name, law in laws.items()}).topological_order()


def ancestors(laws: Mapping[str, Conditional], columns: Iterable[str], fixed: Collection[str]) -> list[str]:
    """Return columns and all that they are given, directly or not, in the order of the laws."""
    needed: set[str] = set()
    waiting = list(columns)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += () if name in fixed else laws[name].parents
    return [name for name in laws if name in needed]


def _affected(causal: Mapping[str, Conditional], fixed: Collection[str]) -> set[str]:
    """Return the fixed columns and all that arrows lead to from them."""
    moved = set(fixed)
    for name in causal_order(causal):
        if not moved.isdisjoint(causal[name].parents):
            moved.add(name)
    return moved


def _shadows(names: Collection[str], taken: Collection[str]) -> dict[str, str]:
    """Return for each column a name that no column has."""
    mark = "′"
    while any(f"{name}{mark}" in taken for name in names):
        mark += "′"
    return {name: f"{name}{mark}" for name in names}


def _renamed(law: Conditional, names: Mapping[str, str]) -> Conditional:
    """Return a law with its parents under other names; every form of law is a frozen dataclass."""
    parents = tuple(names.get(parent, parent) for parent in law.parents)
    return cast(Conditional, replace(cast(Any, law), parents=parents))
