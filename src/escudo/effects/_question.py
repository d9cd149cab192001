"""A question about a structural equation model, laid out as a product of tables with a role for every axis.

Whatever is asked (an intervention, a direct effect, some paths only), the answer is the largest log ratio between laws
of the same outputs under two settings of the inputs. The parts are the same tables in all cases; what differs is the
role of each variable:

* *inputs* are set from outside, and two of their settings are compared;
* *choices* are fixed to the values that make the comparison worst: background variables when no population is given
  (a ratio of two averages is largest at a single point), and mediators that are held;
* *outputs* are observed;
* everything else is summed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from escudo._validate import did_you_mean
from escudo.causal import Factor, Lookup, ancestors, copy_of, marginal
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal import SEM

__all__ = ["Baseline", "Question", "ask", "names_of"]

Baseline = Literal["natural", "held"]
Part = Factor | Lookup


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """Tables and the roles of their axes.

    Attributes:
        parts: Factors and lookups, each setting its last name from the names before it, parents first.
        inputs: Axes that are set and compared, by the variable each one sets.
        choices: Axes fixed to their worst values, by the variable each one fixes.
        outputs: Variables observed.
        sizes: The number of values of every input and choice axis.
        laws: Factors of the given population; empty when the background is a choice.
    """

    parts: tuple[Part, ...]
    inputs: Mapping[str, str]
    choices: Mapping[str, str]
    outputs: tuple[str, ...]
    sizes: Mapping[str, int]
    laws: tuple[Factor, ...]


def ask(
    sem: SEM,
    of: tuple[str, ...],
    on: tuple[str, ...],
    *,
    worst_case: bool,
    held: tuple[str, ...] = (),
    through: Iterable[str] | None = None,
    baseline: Baseline = "natural",
) -> Question:
    """Lay out the question "how does setting ``of`` change ``on``?".

    Args:
        sem: The model.
        of: Variables to set.
        on: Variables to observe.
        worst_case: Fix the background at its worst values, rather than average over the model's population.
        held: Mediators to hold, each at its worst value.
        through: Children of ``of`` that read the value set; None means every child does.
        baseline: What the other children read when ``through`` is given: the natural value, or one held constant.
    """
    children = None if through is None else _children(sem, of, tuple(through))
    paths = children is not None and baseline == "natural"
    severed = {name: f"hold({name})" for name in held}
    if children is not None and baseline == "held":
        severed |= {name: f"hold({name})" for name in of}
    elif not paths:
        severed |= {name: f"do({name})" for name in of}
    renames = {c: {x: f"do({x})" for x in of if x in sem.parents(c)} for c in children or () if c not in severed}
    relevant = ancestors(sem, on, severed, renames)
    background = [name for name in sem.exogenous if name in relevant and name not in severed]

    inputs = {f"do({name})": name for name in of}
    choices = {f"hold({name})": name for name in (*held, *of) if severed.get(name) == f"hold({name})"}
    parts: list[Part] = [copy_of(sem, name, axis) for name, axis in severed.items() if name in relevant]
    laws: tuple[Factor, ...] = ()
    if worst_case:
        choices |= {f"background({name})": name for name in background}
        parts += [copy_of(sem, name, f"background({name})") for name in background]
    else:
        laws = marginal(sem.population, set(sem.exogenous) - set(background))
    for name in sem.endogenous:
        if name in relevant and name not in severed:
            parts += sem.equation(name).reading(renames.get(name, {}))
    return Question(
        parts=tuple(parts),
        inputs=inputs,
        choices=choices,
        outputs=on,
        sizes={axis: len(sem.range(name)) for axis, name in {**inputs, **choices}.items()},
        laws=laws,
    )


def names_of(sem: SEM, what: str, names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the variables that ``names`` lists, checked: known, at least one, none twice."""
    listed = (names,) if isinstance(names, str) else tuple(names)
    for name in listed:
        if name not in sem.variables:
            raise InputError(f"{what}: the model has no variable {name!r}." + did_you_mean(str(name), sem.variables))
    if not listed or len(set(listed)) < len(listed):
        raise InputError(f"{what} must name at least one variable, and none twice; got {', '.join(listed) or 'none'}.")
    return listed


def _children(sem: SEM, of: tuple[str, ...], through: tuple[str, ...]) -> tuple[str, ...]:
    for child in through:
        if child not in sem.variables or not set(sem.parents(child)) & set(of):
            known = [name for name in sem.endogenous if set(sem.parents(name)) & set(of)]
            raise InputError(
                f"through must name children of {', '.join(of)}, which are {', '.join(known) or 'none'}; got {child!r}."
                + did_you_mean(child, known)
            )
    return through
