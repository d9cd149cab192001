r"""Exact effects in structural equation models: by intervention, along paths, for one or many variables.

All are largest log ratios of two laws of the same outputs; :mod:`escudo.effects._ratios` says what zeros mean.
Over *all* populations (``population=None``) the largest ratio is attained where the background has one fixed value:

.. math:: \max_P \frac{\sum_u P(u)\, k_u(y; x)}{\sum_u P(u)\, k_u(y; x')} = \max_u \frac{k_u(y; x)}{k_u(y; x')}

because a ratio of two averages with the same weights is at most the largest ratio of their terms. Nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from escudo._validate import one_of
from escudo.effects._effect import Effect, Kind, Witness
from escudo.effects._question import Baseline, Question, ask, names_of
from escudo.effects._worst import Found, largest_effect
from escudo.errors import InputError, ZeroProbabilityError

if TYPE_CHECKING:
    from escudo.causal import SEM

__all__ = [
    "EVERY",
    "GIVEN",
    "OWN",
    "Names",
    "direct",
    "effect",
    "joint",
    "path",
    "populated",
    "relative_probability",
    "total",
]

Names = str | Iterable[str]

EVERY = "every population"
OWN = "the model's own population"
GIVEN = "the given population"


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
    model, words = populated(sem, population)
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
    return effect(sem, of, on, population=population)


def total(sem: SEM, of: Sequence[str], on: Names, *, population: Any = None) -> Effect:
    """Return the sum of the effects of each of ``of`` alone: what several people lose, counted person by person.

    It is often larger than the joint effect, because setting one variable can hide the effect of another on it; but not
    always: where paths cancel each other, it may be smaller.
    """
    names = names_of(sem, "of", of)
    parts = tuple(effect(sem, name, on, population=population) for name in names)
    epsilon = math.fsum(part.epsilon for part in parts)
    return replace(parts[0], epsilon=epsilon, of=names, kind="total effect", witness=None, parts=parts)


def direct(sem: SEM, of: Names, on: Names, *, holding: Names, population: Any = None) -> Effect:
    """Return the controlled direct effect: of ``of`` on ``on`` while the mediators ``holding`` are held fixed.

    It is the largest over the values at which the mediators are held, and may exceed the effect itself: direct and
    indirect paths can cancel each other.
    """
    held = names_of(sem, "holding", holding)
    if clash := set(held) & set(names_of(sem, "of", of)):
        raise InputError(f"holding must not name a variable whose effect is asked: {', '.join(sorted(clash))}.")
    return _intervene(sem, of, on, population, "direct effect", held=held)


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
    return _intervene(sem, of, on, population, "path effect", through=children, baseline=baseline)


def _intervene(
    sem: SEM,
    of: Names,
    on: Names,
    population: Any,
    kind: Kind,
    *,
    held: tuple[str, ...] = (),
    through: tuple[str, ...] | None = None,
    baseline: Baseline = "natural",
) -> Effect:
    changed, observed = names_of(sem, "of", of), names_of(sem, "on", on)
    model, words = populated(sem, population)
    question = ask(model, changed, observed, worst_case=words == EVERY, held=held, through=through, baseline=baseline)
    found = largest_effect(question)
    return Effect(
        epsilon=found.epsilon,
        witness=_witness(model, question, found) if found.epsilon > 0 else None,
        of=changed,
        on=observed,
        kind=kind,
        population=words,
    )


def _witness(sem: SEM, question: Question, found: Found) -> Witness:
    def values(positions: Mapping[str, int], names: Mapping[str, str]) -> dict[str, Any]:
        return {names[axis]: sem.range(names[axis])[position] for axis, position in positions.items()}

    return Witness(
        y={name: sem.range(name)[position] for name, position in zip(question.outputs, found.outputs, strict=True)},
        x1=values(found.first, question.inputs),
        x2=values(found.second, question.inputs),
        background=values(found.choices, question.choices),
        probabilities=(math.exp(found.logs[0]), math.exp(found.logs[1])),
    )


def populated(sem: SEM, population: Any) -> tuple[SEM, str]:
    """Return the model to ask, and in words which populations the answer speaks about."""
    if population is None:
        return sem, EVERY
    if isinstance(population, str):
        one_of("population", population, ("own",))
        return sem, OWN
    return sem.with_population(population), GIVEN
