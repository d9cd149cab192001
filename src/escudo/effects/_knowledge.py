r"""What an adversary comes to believe: posteriors with and without a person's data, and how far apart they can be.

The adversary holds a credence ``Cr(d)`` over databases and sees an output ``o``. With :math:`a(d) = A[d, o]` and
:math:`b(d) = A[d[i := v], o]`, what they believe when everybody takes part, and when person i's point is replaced by v:

.. math:: p(d) = \frac{a(d)\,Cr(d)}{\sum_e a(e)\,Cr(e)}, \qquad q(d) = \frac{b(d)\,Cr(d)}{\sum_e b(e)\,Cr(e)}

Both are beliefs about the true data. Differential privacy keeps p and q close whatever the credence (semantic privacy:
how far one person's taking part can move beliefs is known in closed form); it cannot keep p close to the prior Cr,
because the output may be informative without person i.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import card
from escudo._validate import did_you_mean
from escudo.effects._definitions import CountComparisons, CountMechanism, Mechanism, TableComparisons, as_mechanism
from escudo.effects._effect import Array, Effect, Witness, average, largest_log_ratio, log_of, show_epsilon
from escudo.errors import InputError, ZeroProbabilityError


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
    known = _as_table(mechanism)
    prior = log_of(TableComparisons(known).population(credence))
    likelihood = known.log[..., _position("output", known.outputs, output)]
    if without is not None:
        likelihood = _replace_point(known, likelihood, without, value)
    belief = _believe(prior, likelihood)
    if belief is None:
        raise ZeroProbabilityError("the output has probability zero under this credence, so nothing follows from it.")
    return belief


# ---- with and without a person


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticPrivacy:
    """How far one person's data can move an adversary's beliefs.

    Attributes:
        difference: The largest statistical difference between the beliefs with and without a person's data.
        rho: The largest log ratio between them; for the worst case over credences it is approached, not attained.
        epsilon: The mechanism's epsilon of differential privacy; always ``epsilon <= rho <= 2 * epsilon`` for the worst
            case, and ``difference <= tanh(epsilon / 2)``.
        person: Whose data point is replaced.
        replacement: The value it is replaced by.
        output: The output seen.
        credence: For the worst case, the two databases the adversary hesitates between and their prior probabilities;
            None where none attains it, for counts, and where a credence was given.
    """

    difference: float
    rho: float
    epsilon: float
    person: str
    replacement: Any
    output: Any
    credence: tuple[tuple[Mapping[str, Any], float], ...] | None

    @property
    def bound(self) -> float:
        """What epsilon alone guarantees: ``tanh(epsilon / 2)``."""
        return math.tanh(self.epsilon / 2)

    @property
    def sentence(self) -> str:
        """The finding in one plain sentence."""
        return (
            f"Whether {self.person} is handed in or replaced moves no belief by more than {100 * self.difference:.3g} "
            f"percentage points (ε = {show_epsilon(self.epsilon)} alone guarantees {100 * self.bound:.3g})."
        )

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        return card("Semantic privacy", self.sentence)


def semantic_privacy(mechanism: Mechanism | CountMechanism | Any, credence: Any = None) -> SemanticPrivacy:
    r"""Return how far one person's taking part can move an adversary's beliefs.

    Without a credence, the worst case over all of them, in closed form: with :math:`r(d) = a(d) / b(d)` and
    :math:`\rho = \max_{i,v,o} \log(\max_d r / \min_d r)`, the largest statistical difference is
    :math:`\tanh(\rho / 4) \le \tanh(\epsilon / 2)`.

    Args:
        mechanism: A table, a :class:`Mechanism`, or (without a credence) a :class:`CountMechanism`.
        credence: The adversary's belief before, a joint table over databases; None for the worst one.

    Reference:
        Kasiviswanathan and Smith, On the semantics of differential privacy, Theorem 2.2, whose bound ``e^epsilon - 1``
        this sharpens; Tschantz, Sen and Datta, section 7.
    """
    known = as_mechanism(mechanism)
    if credence is None:
        return _worst_case(known)
    table = _as_table(known)
    prior = log_of(TableComparisons(table).population(credence))
    worst = _unmoved(table)
    for person, name in enumerate(table.points):
        for value in table.values[person]:
            for o, output in enumerate(table.outputs):
                seen = table.log[..., o]
                p, q = _believe(prior, seen), _believe(prior, _replace_point(table, seen, name, value))
                if p is None or q is None:
                    continue
                worst = replace(worst, rho=max(worst.rho, _largest_change(p, q)))
                if (moved := _statistical_difference(p, q)) > worst.difference:
                    worst = replace(worst, difference=moved, person=name, replacement=value, output=output)
    return worst


def _worst_case(known: Mechanism | CountMechanism) -> SemanticPrivacy:
    worst = _unmoved(known)
    for person, value, with_data, without in _likelihoods(known):
        seen = (without > -np.inf).any(axis=0)  # an output that is impossible without the person is skipped
        with np.errstate(invalid="ignore"):
            ratios = with_data - without  # nan where both are impossible: nothing to compare
            high = np.where(np.isnan(ratios), -np.inf, ratios)
            low = np.where(np.isnan(ratios), np.inf, ratios)
            rho = np.where(seen, high.max(axis=0) - low.min(axis=0), 0.0)
        o = int(rho.argmax())
        if rho[o] > worst.rho:
            pair = (int(high[:, o].argmax()), int(low[:, o].argmin()))
            worst = replace(
                worst,
                difference=math.tanh(rho[o] / 4),
                rho=float(rho[o]),
                person=person,
                replacement=value,
                output=known.outputs[o],
                credence=_credence(known, float(rho[o]), pair, without[list(pair), o]),
            )
    return worst


def _unmoved(known: Mechanism | CountMechanism) -> SemanticPrivacy:
    """Return what there is to say before anything was found that moves a belief."""
    compare = CountComparisons(known) if isinstance(known, CountMechanism) else TableComparisons(known)
    point = ("D1", 0) if isinstance(known, CountMechanism) else (known.points[0], known.values[0][0])
    return SemanticPrivacy(
        difference=0.0,
        rho=0.0,
        epsilon=compare.neighbours().epsilon,
        person=point[0],
        replacement=point[1],
        output=known.outputs[0],
        credence=None,
    )


def _likelihoods(known: Mechanism | CountMechanism) -> Iterator[tuple[str, Any, Array, Array]]:
    """Yield, per person and replacement, ``log a`` and ``log b`` over databases and outputs."""
    log = known.log
    if isinstance(known, CountMechanism):
        # First the databases where the person has the other value, and the count moves by one; then those that stay.
        yield "D1", 0, np.concatenate([log[1:], log[:-1]]), np.concatenate([log[:-1], log[:-1]])
        yield "D1", 1, np.concatenate([log[:-1], log[1:]]), np.concatenate([log[1:], log[1:]])
        return
    flat = log.reshape(-1, log.shape[-1])
    for name, values in zip(known.points, known.values, strict=True):
        for value in values:
            yield name, value, flat, _replace_point(known, log, name, value).reshape(flat.shape)


def _credence(
    known: Mechanism | CountMechanism, rho: float, pair: tuple[int, int], without: Array
) -> tuple[tuple[Mapping[str, Any], float], ...] | None:
    """Return the credence on two databases that makes the statistical difference ``tanh(rho / 4)``."""
    if math.isinf(rho) or isinstance(known, CountMechanism):
        return None
    share = 1 / (1 + math.exp(rho / 2))  # of the first database, in the belief without the person
    odds = np.array([math.log(share), math.log1p(-share)]) - without
    weights = np.exp(odds - np.logaddexp.reduce(odds))
    shape = known.log.shape[:-1]
    named = [known.database(int(i) for i in np.unravel_index(at, shape)) for at in pair]
    return tuple((database, float(weight)) for database, weight in zip(named, weights, strict=True))


# ---- before and after an output


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


def nondisclosure(mechanism: Mechanism | Any, credence: Any = None, *, about: str | None = None) -> Disclosure:
    r"""Return how far an output can move beliefs from what they were before: what privacy of one person cannot bound.

    Args:
        mechanism: A table or a :class:`Mechanism`.
        credence: The belief before, a joint table over databases. None for the worst case over all credences, which is
            the epsilon of Definition 3 (approached), and a statistical difference of :math:`\tanh(\epsilon_3 / 4)`.
        about: A data point, by name, to look at beliefs about it alone; None for the whole database.
    """
    known = _as_table(mechanism)
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
        after = _believe(log_of(prior), known.log[..., o])
        if after is not None:
            p, q = after.sum(axis=others), prior.sum(axis=others)
            best = max(best, (_statistical_difference(p, q), output), key=lambda found: found[0])
            ratio = max(ratio, _largest_change(p, q))
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
    known = _as_table(mechanism)
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


# ---- beliefs


def _as_table(mechanism: Mechanism | Any) -> Mechanism:
    """Return the mechanism as a full table."""
    known = as_mechanism(mechanism)
    return known.expand() if isinstance(known, CountMechanism) else known


def _position(what: str, names: tuple[Any, ...], name: Any) -> int:
    if name not in names:
        known = ", ".join(map(str, names[:8]))
        raise InputError(f"{what} must be one of {known}; got {name!r}." + did_you_mean(str(name), map(str, names)))
    return names.index(name)


def _replace_point(known: Mechanism, logs: Array, point: str, value: Any) -> Array:
    """Return ``logs`` with the data point replaced by ``value`` in every database."""
    axis = _position("without", known.points, point)
    at = _position(f"the value of {point}", known.values[axis], value)
    return np.asarray(np.broadcast_to(np.take(logs, [at], axis), logs.shape))


def _believe(prior: Array, likelihood: Array) -> Array | None:
    """Return the belief after a prior and a likelihood (both logarithms), or None if they exclude everything."""
    weights = prior + likelihood
    top = weights.max()
    if top == -np.inf:
        return None
    belief = np.exp(weights - top)
    return np.asarray(belief / belief.sum())


def _statistical_difference(p: Array, q: Array) -> float:
    """Return half the sum of absolute differences: how much more likely any event is under one than the other."""
    return float(np.abs(p - q).sum() / 2)


def _largest_change(p: Array, q: Array) -> float:
    """Return the largest log ratio between two laws, in either direction."""
    pair = log_of(np.stack([p.ravel(), q.ravel()]))
    return largest_log_ratio(pair[None])[0]
