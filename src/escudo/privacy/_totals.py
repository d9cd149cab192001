"""The running total of events on one table, by the best of several sound accountants.

Each accountant gives a true bound for adaptive composition, so the smallest is true as well:

* ``basic composition``: pure losses add up;
* ``GDP``: the squares of the μ of all μ-GDP events add up, and the pure losses of the others are added to the outcome
  (exact for Gaussian noise alone);
* ``RDP``: Rényi divergences of each order add up, and are converted once;
* ``closed form``: a single release whose curve is known, read off exactly;
* ``PLD``: loss distributions are convolved, where the events have exact curves.

The first three take microseconds and make the *quick* total. The others are worked out only when asked for.

**Adaptive** means that each release may depend on the outputs before it, while its event (kind, scale, sensitivity) was
settled beforehand. Where outputs also decide how much is spent next, these totals are no cap; ``_filter`` is.

Structured events are taken apart first: which unstructured events happened, and how often. Counts are applied here and
nowhere else: ``leaves`` multiplies them out, ``CostSum.plus`` applies them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from escudo._validate import positive, probability
from escudo.errors import InputError
from escudo.privacy._conversions import (
    FloatArray,
    gdp_to_delta,
    gdp_to_epsilon,
    renyi_to_delta,
    renyi_to_epsilon,
    smallest_epsilon,
)
from escudo.privacy._curves import ORDERS, HockeyStick, PrivacyCurve, curve_of, gaussian_hockey_stick
from escudo.privacy._events import ComposedEvent, Event, ParallelEvent, RepeatedEvent, check_count
from escudo.privacy._losses import LossDistribution, compose
from escudo.privacy._relations import Relation, Unit

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
        float(worst([cost.pure_epsilon for cost in sums])),
        math.sqrt(worst([cost.mu**2 for cost in sums])),
        divergences,
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


_MOST_DISTINCT = 64
"""Most different events whose loss distributions are convolved: a bound on the work of one total."""
_NEGLIGIBLE = 1e-15


def within(epsilon: float, cap: float) -> bool:
    """Return whether a total fits under a cap, forgiving one part in 10⁹.

    A noise scale of sensitivity/ε is itself rounded, so a mechanism asked for ε = 0.35 may cost 0.35000000000000003.
    Without this grace the last spend of a budget would be refused.
    """
    return epsilon <= cap * (1 + 1e-9)


@dataclass(frozen=True, slots=True, eq=False)
class RunningTotal:
    """All events so far on one table, as a value: ``add`` returns a new total and leaves this one as it is.

    >>> from escudo.privacy import PureEvent
    >>> total = RunningTotal().add(PureEvent(epsilon=0.1), count=100)
    >>> total.epsilon(0.0), round(total.epsilon(1e-6), 2)
    (10.0, 4.77)

    Attributes:
        relation: The relation that all events are stated for.
        unit: The unit that all events are stated for.
        max_rows_per_person: The bound on one person's rows that all events are stated for, with unit ``person``.
        events: The unstructured events that cost something, with how often each happened.
    """

    relation: Relation = "replace_one"
    unit: Unit = "row"
    max_rows_per_person: int | None = None
    events: Mapping[Event, int] = field(default_factory=dict)
    _sum: CostSum = field(default_factory=CostSum, repr=False)

    @staticmethod
    def of(events: Event | Sequence[Event]) -> RunningTotal:
        """Return the total of one event or of several; none at all cost nothing."""
        listed = [events] if isinstance(events, Event) else list(events)
        if not listed:
            return RunningTotal()
        first = listed[0]
        return RunningTotal(first.relation, first.unit, first.max_rows_per_person).add_all(
            (event, 1) for event in listed
        )

    def add(self, event: Event, count: int = 1) -> RunningTotal:
        """Return the total after the event has happened ``count`` more times.

        Raises:
            InputError: If the event is stated for another relation, unit or bound on a person's rows than the total.
        """
        return self.add_all([(event, count)])

    def add_all(self, events: Iterable[tuple[Event, int]]) -> RunningTotal:
        """Return the total after several events, each with its count."""
        counts, total = dict(self.events), self._sum
        for event, count in events:
            check_count("count", count)
            if event.relation != self.relation:
                raise InputError(
                    f"The total is for {self.relation} and the event for {event.relation}; state the event with "
                    f"event.under({self.relation!r})."
                )
            if event.unit != self.unit:
                raise InputError(
                    f"The total is per {self.unit} and the event is stated per {event.unit}; state both for one unit."
                )
            if event.max_rows_per_person != self.max_rows_per_person:
                raise InputError(
                    f"The total is for at most {self.max_rows_per_person} rows per person and the event for "
                    f"{event.max_rows_per_person}; state both for the smaller number, with event.for_fewer_rows."
                )
            for leaf, times in leaves(event):
                curve = leaf_curve(leaf)
                if curve.pure > 0 or curve.slack > 0:
                    counts[leaf] = counts.get(leaf, 0) + times * count
                    total = total.plus(curve, times * count)
        return replace(self, events=counts, _sum=total)

    @property
    def slack(self) -> float:
        """-log(1 - δ) for the events' own δ."""
        return self._sum.slack

    def quick_epsilon(self, delta: float) -> float:
        """Return an ε such that everything so far is (ε, δ)-DP, within a millisecond; never below ``epsilon``."""
        return self._quick(probability("delta", delta)).value

    def epsilon(self, delta: float) -> float:
        """Return the best known ε such that everything so far is (ε, δ)-DP; infinity where none is known."""
        return self.bound(delta).value

    def bound(self, delta: float, *, coarse: bool = False) -> Bound:
        """Return ``epsilon`` together with the accountant that proved it.

        Args:
            delta: Probability aside.
            coarse: Whether to spare the time for the last digits; the bound is still true, and a little larger.
        """
        quick = self._quick(probability("delta", delta))
        left = self._left_of(delta)
        if quick.value == 0 or left <= 0 or math.isfinite(self._sum.mu):
            return quick  # exact already
        alone = self._alone()
        if alone is not None:
            exact = smallest_epsilon(lambda e: float(alone.deltas(np.array([e]))[0]), left, quick.value)
            return Bound(exact, "closed form")
        losses, added = self._losses(coarse)
        return quick if losses is None else min(quick, Bound(losses.epsilon(left) + added, "PLD"))

    def delta(self, epsilon: float) -> float:
        """Return the best known δ such that everything so far is (ε, δ)-DP; at most 1."""
        positive("epsilon", epsilon, allow_zero=True)
        left = self._delta_outside_slack(epsilon)
        return 1.0 if left >= 1 else -math.expm1(math.log1p(-left) - self._sum.slack)

    def _delta_outside_slack(self, epsilon: float) -> float:
        if self._sum.pure_epsilon <= epsilon:
            return 0.0
        mu, beside = self._sum.gaussian_part
        if beside == 0:
            return gdp_to_delta(mu, epsilon)
        alone = self._alone()
        if alone is not None:
            return float(alone.deltas(np.array([epsilon]))[0])
        left = renyi_to_delta(ORDERS, self._sum.renyi * ROUND_UP, epsilon)
        if beside <= epsilon:
            left = min(left, gdp_to_delta(mu, epsilon - beside))
        losses, added = self._losses()
        return left if losses is None or epsilon < added else min(left, losses.delta(epsilon - added))

    def _left_of(self, delta: float) -> float:
        """Return what the slack of the events leaves of δ; negative if they need more than all of it."""
        return -math.expm1(math.log1p(-delta) + self._sum.slack)

    def _quick(self, delta: float) -> Bound:
        left = self._left_of(delta)
        return Bound(math.inf, "basic composition") if left < 0 else self._sum.bound(left)

    def _alone(self) -> HockeyStick | None:
        """Return the exact curve, if all there is is one release that has one."""
        if list(self.events.values()) != [1]:
            return None
        curve = leaf_curve(next(iter(self.events)))
        return curve.exact if curve.times == 1 else None

    def _losses(self, coarse: bool = False) -> tuple[LossDistribution | None, float]:
        """Return the composed loss distribution, if there is one to be had, and the pure loss to add to it.

        All μ-GDP events together are one, of the μ whose square is the sum of theirs. Events without an exact curve,
        and the cheapest of too many different ones, are added by their pure loss: if A is (ε, δ)-DP and B is ε′-DP,
        both together are (ε + ε′, δ)-DP.
        """
        mu, _ = self._sum.gaussian_part
        parts = [(gaussian_hockey_stick(mu), 1)] if mu > 0 else []
        costs = [(leaf_curve(leaf), count) for leaf, count in self.events.items()]
        others = [(curve, count) for curve, count in costs if math.isinf(curve.mu)]
        added = 0
        for curve, count in sorted(others, key=lambda item: item[0].pure * item[1], reverse=True):
            if curve.exact is not None and len(parts) < _MOST_DISTINCT:
                parts.append((curve.exact, curve.times * count))
            elif (pure := to_atto(curve.pure)) is not None:
                added += pure * count
            else:
                return None, 0.0
        reach = self._sum.bound(_NEGLIGIBLE).value
        return (compose(parts, reach, coarse) if parts and reach > 0 else None), from_atto(added)
