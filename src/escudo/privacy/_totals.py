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
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from escudo._validate import positive, probability
from escudo.errors import InputError
from escudo.privacy import _pld
from escudo.privacy._composition import (
    ROUND_UP,
    Bound,
    CostSum,
    from_atto,
    leaf_curve,
    leaves,
    to_atto,
)
from escudo.privacy._conversions import gdp_to_delta, renyi_to_delta, smallest_epsilon
from escudo.privacy._curves import ORDERS, HockeyStick, gaussian_hockey_stick
from escudo.privacy._event import check_count
from escudo.privacy._events import Event
from escudo.privacy._relations import Relation, Unit

__all__ = ["RunningTotal", "within"]

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
        losses, added = self._losses(coarse=coarse)
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

    def _losses(self, *, coarse: bool = False) -> tuple[_pld.LossDistribution | None, float]:
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
        return (_pld.compose(parts, reach=reach, coarse=coarse) if parts and reach > 0 else None), from_atto(added)
