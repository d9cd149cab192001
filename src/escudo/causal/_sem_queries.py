"""Which tables a question about a model needs, and their product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from escudo.causal._inference import Factor, Lookup, product
from escudo.causal._sem_answers import Law
from escudo.causal._sem_population import marginal

if TYPE_CHECKING:
    from escudo.causal._sem import SEM

__all__ = ["ancestors", "copy_of", "joint_law", "kernel"]


def joint_law(sem: SEM, names: tuple[str, ...], evidence: Mapping[str, int]) -> Factor:
    """Return Pr[names, evidence] as a table over ``names``; evidence gives positions in ranges."""
    relevant = ancestors(sem, {*names, *evidence})
    factors: list[Factor | Lookup] = list(marginal(sem.population, set(sem.exogenous) - relevant))
    for name in sem.endogenous:
        if name in relevant:
            factors += sem.equations[name].parts
    fixed = {name: position for name, position in evidence.items() if name not in names}
    factors = [factor.at(fixed) for factor in factors]
    for name, position in evidence.items():
        if name in names:
            factors.append(Factor((name,), np.arange(len(sem.ranges[name])) == position))
    return product(factors, names)


def kernel(
    sem: SEM,
    targets: tuple[str, ...],
    inputs: tuple[str, ...],
    *,
    background: bool,
    arrows: Sequence[tuple[str, str]] | None,
) -> Law:
    """Return Pr[targets | do(inputs), background]; see :meth:`SEM.law`.

    Every free axis has a name of its own, ``do(X)`` or ``background(U)``, and X or U becomes a copy of it. So a
    variable may be set and asked about at once, and an arrow that is cut reads ``do(X)`` while the others read X.
    """
    severed = set(inputs) if arrows is None else set()
    renamed: dict[str, dict[str, str]] = {}
    for parent, child in arrows or ():
        renamed.setdefault(child, {})[parent] = f"do({parent})"
    relevant = ancestors(sem, targets, severed, renamed)
    kept = tuple(name for name in sem.exogenous if name in relevant - severed) if background else ()
    factors: list[Factor | Lookup] = [_ones(sem, name, f"do({name})") for name in inputs]
    factors += [copy_of(sem, name, f"do({name})") for name in inputs if name in severed]
    for name in kept:
        factors += [_ones(sem, name, f"background({name})"), copy_of(sem, name, f"background({name})")]
    if not background:
        factors += marginal(sem.population, set(sem.exogenous) - relevant | severed)
    for name in sem.endogenous:
        if name in relevant - severed:
            factors += sem.equations[name].reading(renamed.get(name, {}))
    axes = (*(f"do({name})" for name in inputs), *(f"background({name})" for name in kept), *targets)
    return Law(inputs=inputs, background=kept, of=targets, kernel=product(factors, axes))


def ancestors(
    sem: SEM,
    targets: Iterable[str],
    severed: Iterable[str] = (),
    renamed: Mapping[str, Mapping[str, str]] | None = None,
) -> set[str]:
    """Return the targets and every variable that reaches them once some are severed from their parents."""
    cut, arrows = set(severed), renamed or {}
    found: set[str] = set()
    stack = list(targets)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            if name not in cut:
                stack += [parent for parent in sem.parents(name) if parent not in arrows.get(name, {})]
    return found


def _ones(sem: SEM, name: str, axis: str) -> Factor:
    return Factor((axis,), np.ones(len(sem.ranges[name])))


def copy_of(sem: SEM, name: str, axis: str) -> Lookup:
    """Return the step that makes a variable a copy of a free axis."""
    size = len(sem.ranges[name])
    return Lookup((axis,), name, np.arange(size, dtype=np.intp), size)
