"""Semantic privacy: how far one person's taking part can move an adversary's beliefs, in closed form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from escudo._card import card
from escudo.effects._comparisons import TableComparisons
from escudo.effects._counts import CountComparisons
from escudo.effects._effect import show_epsilon
from escudo.effects._knowledge import as_table, believe, largest_change, replaced, statistical_difference
from escudo.effects._mechanism import CountMechanism, Mechanism, as_mechanism
from escudo.effects._ratios import Array, log_of

__all__ = ["SemanticPrivacy", "semantic_privacy"]


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
    table = as_table(known)
    prior = log_of(TableComparisons(table).population(credence))
    best: tuple[float, str, Any, Any] = (0.0, table.points[0], table.values[0][0], table.outputs[0])
    rho = 0.0
    for person, name in enumerate(table.points):
        for value in table.values[person]:
            for o, output in enumerate(table.outputs):
                seen = table.log[..., o]
                p, q = believe(prior, seen), believe(prior, replaced(table, seen, name, value))
                if p is None or q is None:
                    continue
                rho = max(rho, largest_change(p, q))
                if (difference := statistical_difference(p, q)) > best[0]:
                    best = (difference, name, value, output)
    epsilon = TableComparisons(table).neighbours().epsilon
    difference, name, value, output = best
    return SemanticPrivacy(
        difference=difference,
        rho=rho,
        epsilon=epsilon,
        person=name,
        replacement=value,
        output=output,
        credence=None,
    )


def _worst_case(known: Mechanism | CountMechanism) -> SemanticPrivacy:
    compare = CountComparisons(known) if isinstance(known, CountMechanism) else TableComparisons(known)
    worst = SemanticPrivacy(
        difference=0.0,
        rho=0.0,
        epsilon=compare.neighbours().epsilon,
        person="D1" if isinstance(known, CountMechanism) else known.points[0],
        replacement=0 if isinstance(known, CountMechanism) else known.values[0][0],
        output=known.outputs[0],
        credence=None,
    )
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
            yield name, value, flat, replaced(known, log, name, value).reshape(flat.shape)


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
