"""From definitions in any order to compiled equations, parents first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from escudo._validate import did_you_mean
from escudo.causal._sem_equation import Definition, Equation
from escudo.causal._sem_values import Value
from escudo.errors import GraphError, InputError

__all__ = ["CycleError", "assemble", "parents_first"]


def assemble(
    ranges: Mapping[str, tuple[Value, ...]], definitions: Mapping[str, Definition]
) -> tuple[dict[str, tuple[Value, ...]], dict[str, Equation]]:
    """Compile definitions, parents first; return the ranges of all variables and the equations."""
    known = dict(ranges)
    for name, definition in definitions.items():
        if name in known:
            raise InputError(f"Variable {name!r} is defined twice.")
        for parent in definition.parents:
            if parent not in known and parent not in definitions:
                raise InputError(
                    f"The equation of {name!r} reads {parent!r}, which is not defined."
                    + did_you_mean(parent, {**known, **definitions})
                )
    order = parents_first({**dict.fromkeys(known, ()), **{name: item.parents for name, item in definitions.items()}})
    equations: dict[str, Equation] = {}
    for name in order:
        if name in definitions:
            known[name], equations[name] = definitions[name].compile(name, known)
    return {name: known[name] for name in (*ranges, *definitions)}, equations


def parents_first(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names with parents before children, otherwise in the given order; raise on a cycle."""
    order: list[str] = []
    state: dict[str, bool] = {}  # False while its ancestors are being placed, True once it is placed
    for start in parents:
        stack = [start]
        while stack:
            name = stack[-1]
            if name not in state:
                state[name] = False
                for parent in reversed(parents[name]):
                    if state.get(parent) is False:
                        raise CycleError(
                            [placed for placed in stack[stack.index(parent) :] if state.get(placed) is False]
                        )
                    if parent not in state:
                        stack.append(parent)
            else:
                stack.pop()
                if not state[name]:
                    state[name] = True
                    order.append(name)
    return order


class CycleError(GraphError):
    """The equations form a cycle."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        shown = [*cycle[:6], "…", cycle[-1]] if len(cycle) > 8 else cycle
        super().__init__("Variables cannot cause themselves: " + " → ".join((*shown, cycle[0])) + ".")
