"""All effects of a model on what it puts out, as one table; and the mechanism at its end, taken out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from escudo._card import card
from escudo.causal import Lookup, alike, commuting, reach
from escudo.effects._definitions import CountMechanism, Mechanism
from escudo.effects._effect import Array, Effect, show_epsilon, show_names
from escudo.effects._exact import choose_population, effect, joint, total
from escudo.effects._worst import Contrast, alternatives, contrast_of, names_of
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal import SEM

__all__ = ["Survey", "SurveyRow", "mechanism_of", "outputs_of", "survey"]


_MOST_PAIRS = 12
_MOST_CELLS = 2**20  # above this, a mechanism is taken out as a count or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """The effect of one variable, or of several alike, on the outputs.

    Attributes:
        names: The variables; their effects are the same.
        role: ``data point`` if an output reads it directly, otherwise ``attribute``.
        effect: The effect of the first of them.
        by_what: How it comes about: which data points it reaches.
    """

    names: tuple[str, ...]
    role: Literal["attribute", "data point"]
    effect: Effect
    by_what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All effects of a model on its outputs.

    Attributes:
        outputs: The variables observed, together.
        rows: One row per variable or group of alike ones, causes first.
        together: Pairs (joint effect, total effect) of attributes that influence each other.
    """

    outputs: tuple[str, ...]
    rows: tuple[SurveyRow, ...]
    together: tuple[tuple[Effect, Effect], ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        rows = [
            {"names": list(row.names), "role": row.role, "by_what": row.by_what, "effect": row.effect.to_json()}
            for row in self.rows
        ]
        pairs = [{"joint": first.to_json(), "total": second.to_json()} for first, second in self.together]
        return {"outputs": list(self.outputs), "effects": rows, "together": pairs}

    def _repr_html_(self) -> str:
        rows = [(show_names(r.names), show_epsilon(r.effect.epsilon), r.by_what, r.effect.known) for r in self.rows]
        return card(f"Effects on {show_names(self.outputs)}", head=("changed", "ε", "by what", "known"), rows=rows)


def survey(
    sem: SEM, *, of: Iterable[str] | None = None, on: Iterable[str] | None = None, population: Any = None
) -> Survey:
    """Return the effects of all attributes and data points on the outputs.

    Args:
        sem: The model.
        of: The variables to look at; by default everything that reaches the outputs.
        on: The outputs, taken together; by default the variables that nothing reads.
        population: As for :func:`escudo.effects.effect`.
    """
    outputs = outputs_of(sem) if on is None else names_of(sem, "on", on)
    reach = _reaching(sem, outputs)
    wanted = set(reach) if of is None else set(names_of(sem, "of", of))
    points = {parent for name in outputs for parent in sem.parents(name)}
    groups = _exchangeable(choose_population(sem, population)[0], outputs)
    rows: list[SurveyRow] = []
    for group in groups:
        names = tuple(name for name in group if name in wanted)
        if names:
            found = effect(sem, names[0], outputs, population=population)
            role: Literal["attribute", "data point"] = "data point" if names[0] in points else "attribute"
            row = SurveyRow(names=names, role=role, effect=found, by_what=_by_what(sem, names[0], outputs, reach))
            rows = _merged(rows, row)
    home = {name: group for group in groups for name in group}
    pairs: dict[Any, tuple[str, str]] = {}  # one pair of those that are alike
    for child in sem.endogenous:
        for parent in sem.parents(child):
            if {parent, child} <= wanted - points - set(outputs):
                pairs.setdefault((home[parent], home[child]), (parent, child))
    together = tuple(
        (joint(sem, pair, outputs, population=population), total(sem, pair, outputs, population=population))
        for pair in list(pairs.values())[:_MOST_PAIRS]
    )
    return Survey(outputs=outputs, rows=tuple(rows), together=together)


def outputs_of(sem: SEM) -> tuple[str, ...]:
    """Return the endogenous variables that nothing reads."""
    read = {parent for name in sem.endogenous for parent in sem.parents(name)}
    outputs = tuple(name for name in sem.endogenous if name not in read)
    if not outputs:
        raise InputError("the model has no equation, so nothing is put out; name what to look at with on=.")
    return outputs


def mechanism_of(sem: SEM, on: str | None = None) -> tuple[Mechanism | CountMechanism, Array]:
    """Return the mechanism that sets an output from its data points, and the model's population of these.

    Args:
        sem: The model; the parents of the output are the data points.
        on: The output; by default the only variable that nothing reads.

    Returns:
        A :class:`Mechanism` and the joint table of its data points; for many exchangeable binary points that are only
        counted, a :class:`CountMechanism` and the law of the count.
    """
    outputs = outputs_of(sem) if on is None else names_of(sem, "on", on)
    if len(outputs) != 1:
        raise InputError(f"the model puts out {show_names(outputs)}; choose one of them with on=.")
    output = outputs[0]
    points = sem.parents(output)
    if not points:
        raise InputError(f"{output!r} reads nothing, so it is no mechanism.")
    if math.prod(len(sem.range(name)) for name in (*points, output)) <= _MOST_CELLS:
        equation = sem.equation(output)
        known = Mechanism(
            equation.table,
            log=equation.log_table,
            points=points,
            values=[sem.range(name) for name in points],
            outputs=sem.range(output),
        )
        return known, sem.law(points).array
    return _count_mechanism(sem, output, points)


def _count_mechanism(sem: SEM, output: str, points: tuple[str, ...]) -> tuple[CountMechanism, Array]:
    exchangeable = [group for group in commuting(sem, output) if set(group) == set(points)]
    if not exchangeable or points not in alike(sem) or len(sem.range(points[0])) != 2:
        raise InputError(
            f"{output!r} reads {len(points)} data points, too many for a table; definitions then need data points that "
            "are binary, alike, and read only as count(…)."
        )
    # Ask about one database per count: the first c points have the second value, the others the first.
    n = len(points)
    set_to = [
        Lookup(("ones",), name, np.asarray(i < np.arange(n + 1), dtype=np.intp), 2) for i, name in enumerate(points)
    ]
    asked = Contrast(
        parts=(*set_to, *sem.equation(output).parts),
        inputs={"ones": "ones"},
        choices={},
        outputs=(output,),
        sizes={"ones": n + 1},
        laws=(),
    )
    log = alternatives(asked).logs[0]
    return CountMechanism(np.exp(log), outputs=sem.range(output), log=log), _law_of_the_count(sem, points)


def _law_of_the_count(sem: SEM, points: tuple[str, ...]) -> Array:
    """Return the law of how many of some binary variables have their second value."""
    known = contrast_of(sem, (), points, worst_case=False)
    running = [Lookup((points[0],), "ones 1", np.arange(2, dtype=np.intp), 2)]
    for i, name in enumerate(points[1:], start=1):
        index = np.add.outer(np.arange(i + 1, dtype=np.intp), np.arange(2, dtype=np.intp))
        running.append(Lookup((f"ones {i}", name), f"ones {i + 1}", index, i + 2))
    parts = (*known.parts, *running)
    asked = Contrast(parts=parts, inputs={}, choices={}, outputs=(f"ones {len(points)}",), sizes={}, laws=known.laws)
    return np.asarray(np.exp(alternatives(asked).logs[0, 0]))


def _reaching(sem: SEM, outputs: tuple[str, ...]) -> dict[str, None]:
    """Return everything that reaches an output, causes first."""
    found = reach(outputs, sem.parents)
    return {name: None for name in sem.variables if name in found and name not in outputs}


def _exchangeable(sem: SEM, outputs: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return classes of variables with the same effect on the outputs, which must not be exchanged themselves."""
    groups = alike(sem)
    if any(len(group) > 1 and set(group) & set(outputs) for group in groups):
        return tuple((name,) for name in sem.variables)
    return groups


def _by_what(sem: SEM, name: str, outputs: tuple[str, ...], reach: dict[str, None]) -> str:
    """Say through which data points a variable reaches the outputs."""
    readers = tuple(output for output in outputs if name in sem.parents(output))
    if readers:
        return f"read by {show_names(readers)}"
    points = {parent for output in outputs for parent in sem.parents(output)}
    children = [child for child in reach if name in sem.parents(child)]
    direct = tuple(child for child in children if child in points)
    others = tuple(child for child in children if child not in points)
    below = set(others)
    for later in reach:
        if below & set(sem.parents(later)):
            below.add(later)
    indirect = tuple(point for point in reach if point in points & below)
    if not children:
        return "does not get there"
    if not others:
        return show_names(direct, most=4)
    if not direct:
        return f"{show_names(indirect, most=4)} through {show_names(others, most=4)}"
    return f"{show_names(direct, most=4)} and, through {show_names(others, most=4)}, {show_names(indirect, most=4)}"


def _merged(rows: list[SurveyRow], row: SurveyRow) -> list[SurveyRow]:
    """Add a row; data points with the same effect share one."""
    for i, other in enumerate(rows):
        same = abs(other.effect.epsilon - row.effect.epsilon) < 1e-9 or other.effect.epsilon == row.effect.epsilon
        if other.role == row.role == "data point" and same and other.by_what == row.by_what:
            return [*rows[:i], replace(other, names=(*other.names, *row.names)), *rows[i + 1 :]]
    return [*rows, row]
