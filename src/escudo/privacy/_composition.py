"""Structured events taken apart: which unstructured events happened, how often, and what a set of them adds up to.

Counts are applied here and nowhere else: ``leaves`` multiplies them out, ``CostSum.plus`` applies them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from escudo.errors import InputError
from escudo.privacy._conversions import FloatArray, gdp_to_epsilon, renyi_to_epsilon
from escudo.privacy._curves import ORDERS, PrivacyCurve, curve_of
from escudo.privacy._events import ComposedEvent, Event, ParallelEvent, RepeatedEvent

__all__ = ["ROUND_UP", "Bound", "CostSum", "from_atto", "leaf_curve", "leaves", "to_atto"]

ROUND_UP = 1 + 1e-9
"""Covers the rounding of a million floating-point additions."""

_MOST_TIMES = 10**15
_ATTO = 10**18


class Bound(NamedTuple):
    """A number, and the accountant that proved it."""

    value: float
    accountant: str


@lru_cache(maxsize=1024)
def leaves(event: Event) -> tuple[tuple[Event, int], ...]:
    """Return the unstructured events that an event consists of, each with how often it happened.

    A parallel event counts as unstructured, unless one part changes and all are alike: then that part is any of them.
    """
    counted: Counter[Event] = Counter()
    match event:
        case RepeatedEvent():
            for leaf, times in leaves(event.event):
                counted[leaf] += times * event.count
        case ComposedEvent():
            for part in event.events:
                counted.update(dict(leaves(part)))
        case ParallelEvent():
            parts, changed = _changing_parts(event)
            return leaves(parts[0]) if changed == 1 and len(set(parts)) == 1 else ((event, 1),)
        case _:
            return ((event, 1),)
    if any(times > _MOST_TIMES for times in counted.values()):
        raise InputError(f"A {event.kind} event repeats a release more than {_MOST_TIMES:g} times.")
    return tuple(counted.items())


def leaf_curve(leaf: Event) -> PrivacyCurve:
    """Return the privacy curve of one of ``leaves``."""
    return _parallel_curve(leaf) if isinstance(leaf, ParallelEvent) else curve_of(leaf)


def _changing_parts(event: ParallelEvent) -> tuple[tuple[Event, ...], int]:
    """Return the parts, and how many of them change between neighbours; ``ParallelEvent`` has the proofs."""
    if event.by == "position" or event.relation == "add_remove":
        return event.events, 1
    if event.events[0].relation == "add_remove":
        return tuple(part.under("replace_one") for part in event.events), 1
    return event.events, min(2, len(event.events))


@lru_cache(maxsize=1024)
def _parallel_curve(event: ParallelEvent) -> PrivacyCurve:
    """Return the curve of the worst part, or of the worst two parts together.

    The noise in different parts is independent, so the loss of the whole is the loss of the parts that change. Each
    bound is maximised by itself, over the parts (or pairs) that may be the ones to change. There is no exact curve: the
    event may be a stretched one, and the lemma in ``ParallelEvent`` does not cover exact curves of different parts.
    """
    parts, changed = _changing_parts(event)
    parts_of = [leaves(part) for part, often in Counter(parts).items() for _ in range(min(often, changed))]
    sums = [CostSum.of(part) for part in parts_of]

    def worst(values: list[FloatArray | float]) -> FloatArray:
        total: FloatArray = np.sort(np.array(values, dtype=np.float64), axis=0)[-changed:].sum(axis=0)
        return total

    def divergences(orders: FloatArray) -> FloatArray:
        nothing = np.zeros_like(orders)
        return worst(
            [sum((n * leaf_curve(leaf).divergences(orders) for leaf, n in part), nothing) for part in parts_of]
        )

    return PrivacyCurve(
        pure=float(worst([cost.pure_epsilon for cost in sums])),
        mu=math.sqrt(worst([cost.mu**2 for cost in sums])),
        divergences=divergences,
        slack=float(worst([cost.slack for cost in sums])),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CostSum:
    """Bounds that add up under composition, for everything so far.

    Attributes:
        pure: Sum of pure losses in whole multiples of 1e-18, each rounded up from its decimal form, so that ten times
            0.1 is 1 exactly and in any order; None if some loss is unbounded.
        mu_squared: Sum of the squares of μ over the releases that are μ-GDP.
        beside: Like ``pure``, over the other releases.
        renyi: Sum of Rényi divergences at each of ``ORDERS``.
        slack: Sum of -log(1 - δ).
    """

    pure: int | None = 0
    mu_squared: float = 0.0
    beside: int | None = 0
    renyi: FloatArray = field(default_factory=lambda: np.zeros_like(ORDERS))
    slack: float = 0.0

    @staticmethod
    def of(counted: Iterable[tuple[Event, int]]) -> CostSum:
        """Return the sum for some of ``leaves``."""
        total = CostSum()
        for leaf, times in counted:
            total = total.plus(leaf_curve(leaf), times)
        return total

    def plus(self, curve: PrivacyCurve, times: int) -> CostSum:
        """Return the sum after ``times`` more releases with this curve."""
        gaussian = math.isfinite(curve.mu)
        return CostSum(
            pure=_plus(self.pure, to_atto(curve.pure), times),
            mu_squared=self.mu_squared + times * curve.mu**2 if gaussian else self.mu_squared,
            beside=self.beside if gaussian else _plus(self.beside, to_atto(curve.pure), times),
            renyi=self.renyi + times * curve.renyi,
            slack=self.slack + times * curve.slack,
        )

    @property
    def pure_epsilon(self) -> float:
        """Sum of pure losses."""
        return math.inf if self.pure is None else from_atto(self.pure)

    @property
    def gaussian_part(self) -> tuple[float, float]:
        """The μ of the releases that are μ-GDP, and the pure loss of the others, or infinity."""
        return math.sqrt(self.mu_squared) * ROUND_UP, math.inf if self.beside is None else from_atto(self.beside)

    @property
    def mu(self) -> float:
        """The μ of the whole, or infinity."""
        mu, beside = self.gaussian_part
        return mu if beside == 0 else math.inf

    def bound(self, delta: float) -> Bound:
        """Return an ε for the given δ, the slack left aside, by the accountants that only add.

        GDP: if A is (ε, δ)-DP and B is ε′-DP, both together are (ε + ε′, δ)-DP.
        """
        best = Bound(self.pure_epsilon, "basic composition")
        if delta == 0 or best.value == 0:
            return best
        mu, beside = self.gaussian_part
        if mu > 0 and math.isfinite(beside):
            best = min(best, Bound(gdp_to_epsilon(mu, delta) + beside, "GDP"))
            if beside == 0:
                return best  # exact: no other accountant can do better
        return min(best, Bound(renyi_to_epsilon(ORDERS, self.renyi, delta) * ROUND_UP, "RDP"))


def _plus(total: int | None, each: int | None, times: int) -> int | None:
    return None if total is None or each is None else total + times * each


def to_atto(loss: float) -> int | None:
    """Return a loss in whole multiples of 1e-18, rounded up from its shortest decimal form; None for infinity."""
    return None if math.isinf(loss) else math.ceil(Fraction(repr(loss)) * _ATTO)


def from_atto(whole: int) -> float:
    """Return the smallest float at or above so many multiples of 1e-18, but 0.1 for the 0.1 that was put in."""
    number = whole / _ATTO
    return number if Fraction(repr(number)) * _ATTO >= whole else math.nextafter(number, math.inf)
