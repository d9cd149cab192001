"""The exact rung: mechanisms and models so small that their ε can be computed, with the same kind of answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from escudo.effects import CountMechanism, Effect, Mechanism, definitions, effect
from escudo.errors import InputError

__all__ = ["exact"]


def exact(mechanism: Any, *, of: str | Iterable[str] | None = None, on: str | Iterable[str] | None = None) -> Effect:
    """Return the exact effect of one data point on the output of a finite mechanism.

    Args:
        mechanism: A table of output probabilities, one axis per data point and one for the output; a
            :class:`~escudo.effects.Mechanism` or :class:`~escudo.effects.CountMechanism`; or a structural equation
            model, for which ``of`` and ``on`` say whose effect on what.
        of: The variables that are changed, for a model.
        on: The variables that are observed, for a model.

    Returns:
        An exact :class:`~escudo.effects.Effect`: the ε that an experiment's lower bound must not exceed.

    Raises:
        InputError: If a model comes without ``of`` and ``on``, or a table with them.

    >>> round(exact([[0.75, 0.25], [0.25, 0.75]]).epsilon, 4)
    1.0986
    """
    from escudo.causal import SEM

    if isinstance(mechanism, SEM):
        if of is None or on is None:
            raise InputError("a model needs of= and on=: whose effect on what.")
        return effect(mechanism, of, on)
    if of is not None or on is not None:
        raise InputError("of= and on= are for models; a table has data points and one output.")
    found = definitions(mechanism)[1]
    points = mechanism.points if isinstance(mechanism, Mechanism) else ()
    many = isinstance(mechanism, CountMechanism) or len(points) != 1
    return Effect(
        epsilon=found.epsilon,
        witness=found.witness,
        known="exact",
        of=("one data point",) if many else points,
        on=("the output",),
    )
