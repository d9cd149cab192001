"""Exact associations in structural equation models: how much learning one variable tells about another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo.effects._effect import Effect, Witness
from escudo.effects._exact import EVERY, Names, populated
from escudo.effects._question import ask, names_of
from escudo.effects._ratios import Array, spread
from escudo.effects._worst import alternatives
from escudo.errors import InputError

if TYPE_CHECKING:
    from escudo.causal import SEM

__all__ = ["associative"]


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
    model, words = populated(sem, population)
    asked = tuple(name for name in observed if name not in learnt)
    sizes = [len(sem.range(name)) for name in learnt]
    outcomes = [len(sem.range(name)) for name in asked]
    logs = alternatives(ask(model, (), (*learnt, *asked), worst_case=words == EVERY)).logs
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
