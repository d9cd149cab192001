r"""Exact effects in structural equation models: by intervention, along paths, of one or many variables, by learning.

All are largest log ratios of two laws of the same outputs; :mod:`escudo.effects._effect` says what zeros mean.
Over *all* populations (``population=None``) the largest ratio is attained where the background has one fixed value:

.. math:: \max_P \frac{\sum_u P(u)\, k_u(y; x)}{\sum_u P(u)\, k_u(y; x')} = \max_u \frac{k_u(y; x)}{k_u(y; x')}

because a ratio of two averages with the same weights is at most the largest ratio of their terms. Nothing is sampled.

An association conditions instead of intervening: it is how much learning one variable tells about another. A survey
asks for the effects of all variables of a model on what it puts out, as one table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from escudo._card import card
from escudo._validate import one_of
from escudo.causal import alike, reach
from escudo.effects._effect import Array, Effect, Kind, Witness, show_epsilon, show_names, spread
from escudo.effects._worst import (
    Baseline,
    Contrast,
    Largest,
    Route,
    alternatives,
    contrast_of,
    largest_effect,
    names_of,
    outputs_of,
)
from escudo.errors import InputError, ZeroProbabilityError

if TYPE_CHECKING:
    from escudo.causal import SEM

Names = str | Iterable[str]
EVERY = "every population"
OWN = "the model's own population"
GIVEN = "the given population"
_MOST_PAIRS = 12


# ---- by intervention


def relative_probability(
    sem: SEM,
    outcome: Mapping[str, object],
    do: Mapping[str, object],
    against: Mapping[str, object],
    *,
    population: Any = "own",
) -> float:
    r"""Return ``Pr[outcome | do(x)] / Pr[outcome | do(x')]``, the relative probability (or relative risk).

    Args:
        sem: The model.
        outcome: Variables and their values, such as ``{"O": 0}``.
        do: The intervention of the numerator.
        against: The intervention of the denominator.
        population: ``"own"``, or another population as :meth:`escudo.SEM.with_population` takes it.

    Returns:
        The ratio; infinite if the outcome is possible only under ``do``.

    Raises:
        ZeroProbabilityError: If the outcome is impossible under both: no ratio compares nothing with nothing.

    Reference:
        Tschantz, Sen and Datta, Differential Privacy as a Causal Property, equation (26).
    """
    model, words = _choose_population(sem, population)
    if words == EVERY:
        raise InputError("a single relative probability needs a population; effect() gives the worst case over all.")
    first = float(model.do(do).probability(outcome))
    second = float(model.do(against).probability(outcome))
    if first == 0 == second:
        raise ZeroProbabilityError("the outcome is impossible under both interventions, so their ratio has no value.")
    return first / second if second > 0 else math.inf


def effect(sem: SEM, of: Names, on: Names, *, population: Any = None) -> Effect:
    r"""Return how much setting ``of`` can change ``on``: the smallest epsilon of bounded relative probability.

    .. math:: \epsilon = \max_{P, y, x, x'} \log \frac{\Pr_P[Y = y \mid do(X = x)]}{\Pr_P[Y = y \mid do(X = x')]}

    Args:
        sem: The model.
        of: The variable X, or several that are set together.
        on: The variable Y, or several that are observed together.
        population: None for the worst case over all populations (Definition 9); ``"own"`` for the model's own; or
            another population as :meth:`escudo.SEM.with_population` takes it.

    Returns:
        An exact :class:`Effect` with a witness.

    Example:
        >>> from escudo import SEM
        >>> survey = SEM.parse('''
        ...     R1 ~ neg: 0.9, pos: 0.1
        ...     R2 := R1
        ...     O := truncated_geometric(count(R1, R2 = pos), epsilon = 1)
        ... ''')
        >>> round(effect(survey, of="R1", on="O").epsilon, 9)
        2.0

    Reference:
        Tschantz, Sen and Datta, Differential Privacy as a Causal Property, Definition 9.
    """
    return _intervene(sem, of, on, population, "effect")


def joint(sem: SEM, of: Sequence[str], on: Names, *, population: Any = None) -> Effect:
    """Return the effect of setting all of ``of`` at the same time; the same as :func:`effect` of the set."""
    return _intervene(sem, of, on, population, "effect")


def total(sem: SEM, of: Sequence[str], on: Names, *, population: Any = None) -> Effect:
    """Return the sum of the effects of each of ``of`` alone: what several people lose, counted person by person.

    It is often larger than the joint effect, because setting one variable can hide the effect of another on it; but not
    always: where paths cancel each other, it may be smaller.
    """
    names = names_of(sem, "of", of)
    parts = tuple(_intervene(sem, name, on, population, "effect") for name in names)
    return replace(
        parts[0],
        epsilon=math.fsum(part.epsilon for part in parts),
        of=names,
        kind="total effect",
        witness=None,
        parts=parts,
    )


def direct(sem: SEM, of: Names, on: Names, *, holding: Names, population: Any = None) -> Effect:
    """Return the controlled direct effect: of ``of`` on ``on`` while the mediators ``holding`` are held fixed.

    It is the largest over the values at which the mediators are held, and may exceed the effect itself: direct and
    indirect paths can cancel each other.
    """
    held = names_of(sem, "holding", holding)
    if clash := set(held) & set(names_of(sem, "of", of)):
        raise InputError(f"holding must not name a variable whose effect is asked: {', '.join(sorted(clash))}.")
    return _intervene(sem, of, on, population, "direct effect", Route(held))


def path(
    sem: SEM,
    of: Names,
    on: Names,
    *,
    through: Names,
    baseline: Baseline = "natural",
    population: Any = None,
) -> Effect:
    """Return the effect along the paths that leave ``of`` through some of its children.

    Those children read the value that is set; everything else reads the natural value of ``of``
    (``baseline="natural"``), or one constant at its worst (``baseline="held"``, which is never smaller).

    Args:
        sem: The model.
        of: The variable, or several, whose arrows are changed.
        on: The variable, or several, observed.
        through: Children of ``of``, by name.
        baseline: What all other readers of ``of`` see.
        population: As for :func:`effect`.
    """
    children = (through,) if isinstance(through, str) else tuple(through)
    one_of("baseline", baseline, ("natural", "held"))
    return _intervene(sem, of, on, population, "path effect", Route(through=children, baseline=baseline))


def _intervene(sem: SEM, of: Names, on: Names, population: Any, kind: Kind, route: Route | None = None) -> Effect:
    changed, observed = names_of(sem, "of", of), names_of(sem, "on", on)
    model, words = _choose_population(sem, population)
    contrast = contrast_of(model, changed, observed, worst_case=words == EVERY, route=route)
    found = largest_effect(contrast)
    return Effect(
        epsilon=found.epsilon,
        witness=_witness(model, contrast, found) if found.epsilon > 0 else None,
        of=changed,
        on=observed,
        kind=kind,
        population=words,
    )


def _witness(sem: SEM, contrast: Contrast, found: Largest) -> Witness:
    def values(positions: Mapping[str, int], names: Mapping[str, str]) -> dict[str, Any]:
        return {names[axis]: sem.range(names[axis])[position] for axis, position in positions.items()}

    return Witness(
        y={name: sem.range(name)[position] for name, position in zip(contrast.outputs, found.outputs, strict=True)},
        x1=values(found.first, contrast.inputs),
        x2=values(found.second, contrast.inputs),
        background=values(found.choices, contrast.choices),
        probabilities=(math.exp(found.logs[0]), math.exp(found.logs[1])),
    )


def _choose_population(sem: SEM, population: Any) -> tuple[SEM, str]:
    """Return the model to ask, and in words which populations the answer speaks about."""
    if population is None:
        return sem, EVERY
    if isinstance(population, str):
        one_of("population", population, ("own",))
        return sem, OWN
    return sem.with_population(population), GIVEN


# ---- by learning


def associative(sem: SEM, of: Names, on: Names, *, population: Any = "own") -> Effect:
    r"""Return how much *learning* ``of`` changes the law of ``on``: the ratio of an effect, by conditioning.

    .. math:: \epsilon = \max_{y, x, x'} \log \frac{\Pr_P[Y = y \mid X = x]}{\Pr_P[Y = y \mid X = x']}

    over values x, x' of positive probability. Unlike an effect it depends on how the variables go together in the
    population: two people's data points may inform about each other without affecting each other.

    Args:
        sem: The model.
        of: The variable X, or several learnt together.
        on: The variable Y, or several.
        population: ``"own"``; another population, as :meth:`escudo.SEM.with_population` takes it; or None for the worst
            case over all populations, which is available where the background decides ``of`` without chance, as it
            does for data points.

    Returns:
        An exact :class:`Effect` of kind ``association``.

    Raises:
        InputError: If ``population`` is None and chance has a part in ``of``.

    Reference:
        Tschantz, Sen and Datta, Differential Privacy as a Causal Property, Definition 3.
    """
    learnt, observed = names_of(sem, "of", of), names_of(sem, "on", on)
    model, words = _choose_population(sem, population)
    asked = tuple(name for name in observed if name not in learnt)
    sizes = [len(sem.range(name)) for name in learnt]
    outcomes = [len(sem.range(name)) for name in asked]
    logs = alternatives(contrast_of(model, (), (*learnt, *asked), worst_case=words == EVERY)).logs
    logs = logs.reshape(len(logs), math.prod(sizes), math.prod(outcomes))
    high, low = _conditional(learnt, logs, worst_case=words == EVERY)
    epsilon, place = _largest(high, low)
    seen = np.flatnonzero((high > -np.inf).any(axis=1))
    known = [name for name in observed if name in learnt]
    if known and (pair := _tell_apart(seen, sizes, [learnt.index(name) for name in known])):
        epsilon, place = math.inf, (*pair, 0)

    def values(names: tuple[str, ...], shape: list[int], at: int) -> dict[str, Any]:
        positions = np.unravel_index(at, shape) if shape else ()
        return {name: sem.range(name)[int(i)] for name, i in zip(names, positions, strict=True)}

    witness = None
    if epsilon > 0:
        x1, x2, y = place
        first, second = values(learnt, sizes, x1), values(learnt, sizes, x2)
        outcome = values(asked, outcomes, y) | {name: first[name] for name in known}
        witness = Witness(y=outcome, x1=first, x2=second)
    return Effect(epsilon=epsilon, witness=witness, of=learnt, on=observed, kind="association", population=words)


def _conditional(names: tuple[str, ...], logs: Array, *, worst_case: bool) -> tuple[Array, Array]:
    """Return the largest and the smallest ``log Pr[y | x]``, from joint laws of shape (alternatives, x, y).

    Over all populations, a mixture of two backgrounds that lead to x and to x' makes ``Pr[y | x]`` the law under one
    and ``Pr[y | x']`` the law under the other; no mixture does more, as each is an average of such laws.
    """
    marginal = np.logaddexp.reduce(logs, axis=2)
    if worst_case and not np.all((marginal == -np.inf) | (np.abs(marginal) < 1e-9)):
        raise InputError(
            "the worst case over all populations is known only where the background decides "
            f"{', '.join(names)} without chance; give a population."
        )
    possible = marginal[:, :, None] > -np.inf
    with np.errstate(invalid="ignore"):
        laws = logs - marginal[:, :, None]
    return np.where(possible, laws, -np.inf).max(axis=0), np.where(possible, laws, np.inf).min(axis=0)


def _largest(high: Array, low: Array) -> tuple[float, tuple[int, int, int]]:
    """Return the largest ``high[x, y] - low[x', y]`` over different x, x', and its (x, x', y)."""
    best, place = 0.0, (0, 0, 0)
    for x in range(len(high)):
        others = low.copy()
        others[x] = np.inf
        found = spread(high[x], others.min(axis=0))
        y = int(found.argmax())
        if found[y] > best:
            best, place = float(found[y]), (x, int(others[:, y].argmin()), y)
    return best, place


def _tell_apart(seen: np.ndarray[Any, Any], sizes: list[int], axes: list[int]) -> tuple[int, int] | None:
    """Return two possible values of the learnt variables that differ on ``axes``, or None."""
    for x in seen[1:]:
        first, other = np.unravel_index(int(seen[0]), sizes), np.unravel_index(int(x), sizes)
        if any(first[axis] != other[axis] for axis in axes):
            return int(seen[0]), int(x)
    return None


# ---- all at once


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
        return card(
            f"Effects on {show_names(self.outputs)}",
            head=("changed", "ε", "by what", "known"),
            rows=((show_names(r.names), show_epsilon(r.effect.epsilon), r.by_what, r.effect.known) for r in self.rows),
        )


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
    groups = _exchangeable(_choose_population(sem, population)[0], outputs)
    rows: list[SurveyRow] = []
    for group in groups:
        names = tuple(name for name in group if name in wanted)
        if names:
            row = SurveyRow(
                names=names,
                role="data point" if names[0] in points else "attribute",
                effect=_intervene(sem, names[0], outputs, population, "effect"),
                by_what=_by_what(sem, names[0], outputs, reach),
            )
            rows = _merged(rows, row)
    home = {name: group for group in groups for name in group}
    pairs: dict[Any, tuple[str, str]] = {}  # one pair of those that are alike
    for child in sem.endogenous:
        for parent in sem.parents(child):
            if {parent, child} <= wanted - points - set(outputs):
                pairs.setdefault((home[parent], home[child]), (parent, child))
    together = tuple(
        (_intervene(sem, pair, outputs, population, "effect"), total(sem, pair, outputs, population=population))
        for pair in list(pairs.values())[:_MOST_PAIRS]
    )
    return Survey(outputs=outputs, rows=tuple(rows), together=together)


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
