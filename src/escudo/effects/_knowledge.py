r"""What an adversary comes to believe: posteriors with and without a person's data, and how far apart they can be.

The adversary holds a credence ``Cr(d)`` over databases and sees an output ``o``. With :math:`a(d) = A[d, o]` and
:math:`b(d) = A[d[i := v], o]`, what they believe when everybody takes part, and when person i's point is replaced by v:

.. math:: p(d) = \frac{a(d)\,Cr(d)}{\sum_e a(e)\,Cr(e)}, \qquad q(d) = \frac{b(d)\,Cr(d)}{\sum_e b(e)\,Cr(e)}

Both are beliefs about the true data. Differential privacy keeps p and q close whatever the credence; it cannot keep p
close to the prior Cr, because the output may be informative without person i.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import did_you_mean
from escudo.effects._comparisons import TableComparisons
from escudo.effects._effect import Effect, Witness
from escudo.effects._mechanism import CountMechanism, Mechanism, as_mechanism
from escudo.effects._ratios import Array, average, largest_log_ratio, log_of
from escudo.errors import InputError, ZeroProbabilityError

__all__ = [
    "Disclosure",
    "as_table",
    "believe",
    "largest_change",
    "nondisclosure",
    "posterior",
    "replaced",
    "secrets",
    "statistical_difference",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """How far an output can move beliefs away from what they were before.

    Attributes:
        log_ratio: The largest log ratio between a belief after and before, in either direction.
        difference: The largest statistical difference between beliefs after and before.
        output: The output that attains the difference.
    """

    log_ratio: float
    difference: float
    output: Any


def posterior(
    mechanism: Mechanism | Any, credence: Any, output: Any, *, without: str | None = None, value: Any = None
) -> Array:
    """Return an adversary's belief about the database after seeing ``output``.

    Args:
        mechanism: A table or a :class:`Mechanism`.
        credence: The belief before, a joint table over databases.
        output: The output seen, by name.
        without: A data point that was replaced, by name; None if everybody took part.
        value: The value it was replaced by.

    Returns:
        The belief about the *true* data, in the shape of the credence.

    Raises:
        ZeroProbabilityError: If the adversary held that output to be impossible.
    """
    known = as_table(mechanism)
    prior = log_of(TableComparisons(known).population(credence))
    likelihood = known.log[..., _position("output", known.outputs, output)]
    if without is not None:
        likelihood = replaced(known, likelihood, without, value)
    belief = believe(prior, likelihood)
    if belief is None:
        raise ZeroProbabilityError("the output has probability zero under this credence, so nothing follows from it.")
    return belief


def nondisclosure(mechanism: Mechanism | Any, credence: Any = None, *, about: str | None = None) -> Disclosure:
    r"""Return how far an output can move beliefs from what they were before: what privacy of one person cannot bound.

    Args:
        mechanism: A table or a :class:`Mechanism`.
        credence: The belief before, a joint table over databases. None for the worst case over all credences, which is
            the epsilon of Definition 3 (approached), and a statistical difference of :math:`\tanh(\epsilon_3 / 4)`.
        about: A data point, by name, to look at beliefs about it alone; None for the whole database.
    """
    known = as_table(mechanism)
    axis = None if about is None else _position("about", known.points, about)
    compare = TableComparisons(known)
    if credence is None:
        pairs = compare.all_pairs(axis)
        output = pairs.witness.y["O"] if pairs.witness else known.outputs[0]
        return Disclosure(log_ratio=pairs.epsilon, difference=math.tanh(pairs.epsilon / 4), output=output)
    prior = compare.population(credence)
    others = tuple(i for i in range(prior.ndim) if axis is not None and i != axis)
    best, ratio = (0.0, known.outputs[0]), 0.0
    for o, output in enumerate(known.outputs):
        after = believe(log_of(prior), known.log[..., o])
        if after is not None:
            p, q = after.sum(axis=others), prior.sum(axis=others)
            best = max(best, (statistical_difference(p, q), output), key=lambda found: found[0])
            ratio = max(ratio, largest_change(p, q))
    return Disclosure(log_ratio=ratio, difference=best[0], output=best[1])


def secrets(
    mechanism: Mechanism | Any,
    pairs: Iterable[tuple[Mapping[str, Any] | NDArray[np.bool_], Mapping[str, Any] | NDArray[np.bool_]]],
    populations: Iterable[Any],
) -> Effect:
    """Return how well an output tells secrets apart, for some pairs of secrets and some populations (Pufferfish).

    Args:
        mechanism: A table or a :class:`Mechanism`.
        pairs: Pairs of secrets that should not be told apart. A secret is a partial database such as ``{"D1": 1}``,
            or a boolean array over databases.
        populations: The populations considered possible, as joint tables.

    Returns:
        The largest ``log Pr[o | s] / Pr[o | s']`` in either direction, wherever both secrets have positive probability.

    Reference:
        Kifer and Machanavajjhala, Pufferfish, 2014, Definition 3.4, for finite mechanisms and populations.
    """
    known = as_table(mechanism)
    logs = known.log.reshape(-1, known.log.shape[-1])
    compare = TableComparisons(known)
    laws = [compare.population(population) for population in populations]
    epsilon, witness = 0.0, None
    for first, second in pairs:
        for law in laws:
            weights = [np.where(_where(known, secret), law, 0.0).ravel() for secret in (first, second)]
            if min(w.sum() for w in weights) == 0:
                continue
            seen = np.stack([average(log_of(w / w.sum()), logs) for w in weights])
            value, (_, one, two, o) = largest_log_ratio(seen[None])
            if value > epsilon:
                named = [dict(s) if isinstance(s, Mapping) else {"secret": "the given set"} for s in (first, second)]
                epsilon = value
                witness = Witness(y={"O": known.outputs[o]}, x1=named[one], x2=named[two])
    return Effect(
        epsilon=epsilon,
        witness=witness,
        of=("the secret",),
        on=("O",),
        kind="association",
        population="the given populations",
    )


def as_table(mechanism: Mechanism | Any) -> Mechanism:
    """Return the mechanism as a full table."""
    known = as_mechanism(mechanism)
    return known.expand() if isinstance(known, CountMechanism) else known


def _position(what: str, names: tuple[Any, ...], name: Any) -> int:
    if name not in names:
        known = ", ".join(map(str, names[:8]))
        raise InputError(f"{what} must be one of {known}; got {name!r}." + did_you_mean(str(name), map(str, names)))
    return names.index(name)


def replaced(known: Mechanism, logs: Array, point: str, value: Any) -> Array:
    """Return ``logs`` with the data point replaced by ``value`` in every database."""
    axis = _position("without", known.points, point)
    at = _position(f"the value of {point}", known.values[axis], value)
    return np.asarray(np.broadcast_to(np.take(logs, [at], axis=axis), logs.shape))


def believe(prior: Array, likelihood: Array) -> Array | None:
    """Return the belief after a prior and a likelihood (both logarithms), or None if they exclude everything."""
    weights = prior + likelihood
    top = weights.max()
    if top == -np.inf:
        return None
    belief = np.exp(weights - top)
    return np.asarray(belief / belief.sum())


def statistical_difference(p: Array, q: Array) -> float:
    """Return half the sum of absolute differences: how much more likely any event is under one than the other."""
    return float(np.abs(p - q).sum() / 2)


def largest_change(p: Array, q: Array) -> float:
    """Return the largest log ratio between two laws, in either direction."""
    pair = log_of(np.stack([p.ravel(), q.ravel()]))
    return largest_log_ratio(pair[None])[0]


def _where(known: Mechanism, secret: Mapping[str, Any] | NDArray[np.bool_]) -> NDArray[np.bool_]:
    shape = known.log.shape[:-1]
    if not isinstance(secret, Mapping):
        mask = np.asarray(secret)
        if mask.dtype != bool or mask.shape != shape:
            raise InputError(f"a secret's array must be boolean with shape {shape}; got {mask.dtype} {mask.shape}.")
        return mask
    mask = np.ones(shape, dtype=bool)
    for point, value in secret.items():
        axis = _position("a secret's data point", known.points, point)
        at = _position(f"the value of {point}", known.values[axis], value)
        mask &= np.indices(shape)[axis] == at
    return mask
