"""A privacy guarantee: the bound, what it is a bound on, and how it is known. Never a bare number.

A guarantee bounds a causal effect: intervening on one record, do(Dᵢ = d) against do(Dᵢ = d′), changes the probability
of every set of outputs by at most a factor e^ε, up to δ. Printing a guarantee says so in a sentence.

What several releases promise together follows from their events: ``RunningTotal`` does the sums and is the thing to
keep where events arrive one by one; ``guarantee_of`` asks it once.

``calibrate`` is the inverse: how much noise a budget needs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, Context
from html import escape
from typing import Any

from escudo._validate import positive, probability
from escudo.errors import InputError, RefusedError
from escudo.privacy._conversions import (
    approximate_for_group,
    gdp_for_group,
    gdp_to_delta,
    gdp_to_epsilon,
    pure_for_group,
    smallest_epsilon,
    zcdp_for_group,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from escudo.privacy._events import (
    MAX_RHO,
    ApproximateEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    ParallelEvent,
    PureEvent,
    RepeatedEvent,
    SampledGaussianEvent,
    TooLoudError,
    ZCDPEvent,
    check_loss,
)
from escudo.privacy._relations import Budget, Relation, Stated, Unit, parse_relation, parse_unit
from escudo.privacy._totals import RunningTotal

_SHOWN_DELTA = 1e-6
"""The delta at which a notion without one is put into words."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Guarantee(Stated):
    """A differential privacy guarantee in one notion, for one relation and one unit.

    Exactly one of ``epsilon`` (with or without ``delta``), ``rho``, ``mu``, ``curve`` and ``none`` is given. The last
    is for what was made without privacy: it holds at no ε, is never for release, and no account can be charged for it.

    >>> print(Guarantee(epsilon=1.0, delta=1e-6))
    Changing one person's row changes the probability of any output by at most a factor e^1.0 (2.72), except with \
probability 1e-06. [replace one row; accountant: closed form]
    >>> round(Guarantee(rho=0.5).epsilon_at(1e-5), 2)
    4.73
    >>> print(Guarantee(none=True, for_release=False))
    Nothing is promised: it was made without privacy, and may give away any row of the table. Not for release.

    Attributes:
        epsilon: Bound on the log-ratio of output probabilities.
        delta: Probability aside, in [0, 1).
        rho: Zero-concentrated differential privacy.
        mu: Gaussian differential privacy.
        curve: Points (ε, δ) that all hold at once. Between points the chord in e^ε holds, because the true δ is convex
            in e^ε; above the largest ε the smallest δ holds.
        none: Whether nothing is promised at all.
        relation: ``"replace_one"`` or ``"add_remove"``; synonyms such as ``"bounded"`` are understood.
        unit: ``"row"`` or ``"person"``.
        max_rows_per_person: Most rows of one person; needed for, and only for, ``unit="person"``.
        accountant: What proved the numbers.
        float_safe: Whether the noise was free of floating-point attacks.
        for_release: False for seeded runs, whose noise can be recomputed, and where nothing is promised.
        source: The event that the guarantee was computed from, where there is one: other deltas are then exact.

    Raises:
        InputError: If no notion or several are given, or a number is out of range.
    """

    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    mu: float | None = None
    curve: tuple[tuple[float, float], ...] | None = None
    none: bool = False
    relation: Relation = "replace_one"
    unit: Unit = "row"
    max_rows_per_person: int | None = None
    accountant: str = "closed form"
    float_safe: bool = True
    for_release: bool = True
    source: Event | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "rho", "mu", "curve") if getattr(self, name) is not None]
        if not isinstance(self.none, bool):
            raise InputError(f"none of a guarantee must be true or false; got {self.none!r:.60}.")
        given += ["none"] * self.none
        if len(given) != 1:
            raise InputError(
                "A guarantee is stated in exactly one notion: epsilon (and delta), rho, mu or curve; got "
                f"{' and '.join(given) or 'none of them'}."
            )
        if self.none and (self.for_release or self.source is not None):
            raise InputError("Where nothing is promised (none=True) there is no source, and for_release is False.")
        checked: dict[str, object] = {
            "relation": parse_relation(self.relation),
            "unit": parse_unit(self.unit, self.max_rows_per_person),
            "delta": probability("delta", self.delta),
        }
        if self.epsilon is not None:
            checked["epsilon"] = check_loss("epsilon", self.epsilon)
        elif self.delta != 0:
            raise InputError(
                f"delta goes with epsilon; {given[0]} already says what delta is at every epsilon. Leave delta out."
            )
        if self.rho is not None:
            checked["rho"] = check_loss("rho", self.rho, at_most=MAX_RHO)
        if self.mu is not None:
            checked["mu"] = check_loss("mu", self.mu)
        if self.curve is not None:
            checked["curve"] = _check_curve(self.curve)
        for name in ("float_safe", "for_release"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} of a guarantee must be true or false; got {getattr(self, name)!r:.60}.")
        if not isinstance(self.accountant, str):
            raise InputError(f"accountant of a guarantee must be text; got {type(self.accountant).__name__}.")
        if self.source is not None and not isinstance(self.source, Event):
            raise InputError(f"source of a guarantee must be an event or None; got {type(self.source).__name__}.")
        if self.source is not None and (self.source.relation, self.source.unit) != (checked["relation"], self.unit):
            raise InputError("source of a guarantee must be stated for the same relation and unit as the guarantee.")
        if self.source is not None and self.source.max_rows_per_person != self.max_rows_per_person:
            raise InputError(
                f"source of a guarantee must be stated for as many rows per person ({self.source.max_rows_per_person}) "
                f"as the guarantee ({self.max_rows_per_person})."
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest known ε such that (ε, δ) holds, or infinity if none is known for this δ."""
        probability("delta", delta)
        if self.none:
            return math.inf
        if self.source is not None:
            return RunningTotal.of(self.source).epsilon(delta)
        if self.curve is not None:
            curve = self.curve
            enough = [epsilon for epsilon, known in curve if known <= delta]
            return smallest_epsilon(lambda e: _on_curve(curve, e), delta, min(enough)) if enough else math.inf
        if delta == 0 and (self.rho or self.mu):
            return math.inf
        if self.rho is not None:
            return zcdp_to_epsilon(self.rho, delta) if self.rho else 0.0
        if self.mu is not None:
            return gdp_to_epsilon(self.mu, delta) if self.mu else 0.0
        return RunningTotal.of(self.event).epsilon(delta)

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest known δ such that (ε, δ) holds; at most 1."""
        check_loss("epsilon", epsilon)
        if self.none:
            return 1.0
        if self.source is not None:
            return RunningTotal.of(self.source).delta(epsilon)
        if self.curve is not None:
            return _on_curve(self.curve, epsilon)
        if self.rho is not None:
            return zcdp_to_delta(self.rho, epsilon)
        if self.mu is not None:
            return gdp_to_delta(self.mu, epsilon)
        return RunningTotal.of(self.event).delta(epsilon)

    @property
    def event(self) -> Event:
        """The guarantee as an event that an account can be charged for.

        It is the source where there is one. A bare curve is charged by its point of smallest delta.

        Raises:
            RefusedError: Where nothing is promised: no budget pays for that.
        """
        if self.none:
            raise RefusedError("Nothing is promised here (it was made without privacy), so no account can pay for it.")
        if self.source is not None:
            return self.source
        if self.rho is not None:
            return ZCDPEvent(rho=self.rho, **self.stated)
        if self.mu is not None:
            return GDPEvent(mu=self.mu, **self.stated)
        epsilon, delta = self._point
        if delta == 0:
            return PureEvent(epsilon=epsilon, **self.stated)
        return ApproximateEvent(epsilon=epsilon, delta=delta, **self.stated)

    @property
    def _point(self) -> tuple[float, float]:
        """One (ε, δ) that stands for the guarantee: its own, or the curve's of smallest δ."""
        if self.epsilon is not None:
            return self.epsilon, self.delta
        assert self.curve is not None
        return self.curve[-1]

    def under(self, relation: str) -> Guarantee:
        """Return the guarantee stated for another relation; see ``Event.under`` for the proof.

        Raises:
            InputError: From ``replace_one`` to ``add_remove``, which does not follow.
        """
        target = parse_relation(relation)
        if target == self.relation:
            return self
        if self.none:
            return replace(self, relation=target)
        source = self.event.under(target)  # raises where the step does not follow
        return self._restated(source, steps=2, relation=target)

    def for_person(self, max_rows_per_person: int) -> Guarantee:
        """Return the guarantee for a person with several rows, from one for a row; see ``Event.for_person``."""
        if self.none:
            return replace(self, unit="person", max_rows_per_person=max_rows_per_person)
        source = self.event.for_person(max_rows_per_person)
        return self._restated(source, steps=max_rows_per_person, unit="person", max_rows_per_person=max_rows_per_person)

    def _restated(self, source: Event, *, steps: int, **changes: Any) -> Guarantee:
        if self.source is not None:
            changes |= {"source": source}
        if self.source is not None and self.epsilon is not None:
            bound = RunningTotal.of(source).bound(self.delta)
            if math.isfinite(bound.value):
                return replace(self, epsilon=bound.value, accountant=bound.accountant, **changes)
            # The events' own deltas have grown past this one: the statement itself is stretched, delta and all.
        if self.rho is not None:
            return replace(self, rho=zcdp_for_group(self.rho, steps), **changes)
        if self.mu is not None:
            return replace(self, mu=gdp_for_group(self.mu, steps), **changes)
        if self.curve is not None:
            points = [approximate_for_group(epsilon, delta, steps) for epsilon, delta in self.curve]
            return replace(self, curve=tuple(points), **changes)
        assert self.epsilon is not None
        if self.delta == 0:
            return replace(self, epsilon=pure_for_group(self.epsilon, steps), **changes)
        epsilon, delta = approximate_for_group(self.epsilon, self.delta, steps)
        return replace(self, epsilon=epsilon, delta=delta, **changes)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee that ``to_json`` wrote; its sentence is not read.

        Raises:
            InputError: If a key is unknown, or a value is out of range.

        >>> Guarantee.from_json(Guarantee(epsilon=1.0).to_json()) == Guarantee(epsilon=1.0)
        True
        """
        if not isinstance(data, Mapping):
            raise InputError(f"A guarantee's record is a JSON object; this is {type(data).__name__}.")
        values = {name: value for name, value in data.items() if name not in ("sentence", "event")}
        if data.get("event") is not None:
            values["source"] = Event.from_json(data["event"], max_rows_per_person=data.get("max_rows_per_person"))
        try:
            return cls(**values)
        except TypeError:
            raise InputError("The guarantee's record lacks a key or has an unknown one.") from None

    def to_json(self) -> dict[str, Any]:
        """Return the guarantee as plain JSON values, with its sentence."""
        names = ("epsilon", "delta", "rho", "mu")
        stated: dict[str, Any] = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.curve is not None:
            stated["curve"] = [list(point) for point in self.curve]
        if self.none:  # no number stands there that somebody could take for a bound
            stated = {"none": True}
        return stated | {
            **self.stated,
            "accountant": self.accountant,
            "float_safe": self.float_safe,
            "for_release": self.for_release,
            "event": None if self.source is None else self.source.to_json(),
            "sentence": str(self),
        }

    def __repr__(self) -> str:
        shown = [f for f in fields(self) if f.name == "relation" or getattr(self, f.name) != f.default]
        return f"Guarantee({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown if f.name != 'source')})"

    def __str__(self) -> str:
        if self.none:
            return (
                "Nothing is promised: it was made without privacy, and may give away any row of the table. Not for "
                "release."
            )
        sentence = f"{self._intervention} {self._effect}. [{', '.join(self._terms)}; accountant: {self.accountant}]"
        if not self.float_safe:
            sentence += " The noise was drawn in floating point, which may leak more than stated."
        if not self.for_release:
            sentence += " Not for release: the noise was seeded."
        return sentence

    @property
    def _intervention(self) -> str:
        if self.unit == "row":
            whose = "one person's row"
        else:
            rows = self.max_rows_per_person
            whose = f"all rows of one person (at most {rows})" if rows != 1 else "the row of one person"
        return f"{'Changing' if self.relation == 'replace_one' else 'Adding or removing'} {whose}"

    @property
    def _effect(self) -> str:
        epsilon, delta = self.epsilon, self.delta
        if epsilon is None:
            delta = _SHOWN_DELTA if self.curve is None else max(_SHOWN_DELTA, self.curve[-1][1])
            epsilon = self.epsilon_at(delta)
        if epsilon == 0 and (delta == 0 or self.rho == 0 or self.mu == 0):
            return "does not change the probability of any output"
        factor = f"a factor e^{_rounded_up(epsilon, 4)}"
        if epsilon < 700:
            digits = 3 if epsilon >= 0.1 else 3 + math.ceil(-math.log10(epsilon or 1))
            factor += f" ({_rounded_up(math.exp(epsilon), digits).removesuffix('.0')})"
        aside = f", except with probability {delta:.3g}" if delta else ""
        return f"changes the probability of any output by at most {factor}{aside}"

    @property
    def _terms(self) -> list[str]:
        what = "replace one" if self.relation == "replace_one" else "add or remove one"
        terms = [f"{what} {self.unit}"]
        if self.rho is not None:
            terms.append(f"rho = {_rounded_up(self.rho, 4)} zCDP")
        if self.mu is not None:
            terms.append(f"mu = {_rounded_up(self.mu, 4)} GDP")
        if self.curve is not None:
            terms.append(f"curve of {len(self.curve)} points")
        return terms

    def _repr_html_(self) -> str:
        colour = "#1b5e20" if self.for_release else "#b71c1c"
        title = "Privacy guarantee" if self.for_release else "Privacy guarantee, not for release"
        title = "No privacy guarantee, not for release" if self.none else title
        return (
            f'<div style="border:1px solid {colour};border-left-width:6px;border-radius:4px;padding:8px 12px;'
            f'max-width:60em;font-family:sans-serif"><strong style="color:{colour}">{title}</strong>'
            f"<p style='margin:4px 0 0'>{escape(str(self))}</p></div>"
        )


def _check_curve(curve: object) -> tuple[tuple[float, float], ...]:
    """Return the points that no other point makes useless, by growing epsilon and falling delta."""
    if not isinstance(curve, list | tuple) or not curve:
        raise InputError("curve must be a list of (epsilon, delta) points, at least one.")
    points = []
    for point in curve:
        if not isinstance(point, list | tuple) or len(point) != 2:
            raise InputError("every point of curve must be a pair (epsilon, delta).")
        points.append((check_loss("epsilon of curve", point[0]), probability("delta of curve", point[1])))
    kept: list[tuple[float, float]] = []
    for epsilon, delta in sorted(points):
        if not kept or delta < kept[-1][1]:
            kept.append((epsilon, delta))
    return tuple(kept)


def _on_curve(curve: tuple[tuple[float, float], ...], epsilon: float) -> float:
    """Return δ at ε: the lowest chord between two points around it, or the last point below it.

    The true δ is convex in e^ε, at most 1 as e^ε falls to 0, and falls in ε; so every chord and every step is above it.
    """
    best = min((delta for known, delta in curve if known <= epsilon), default=1.0)
    left = [(-math.inf, 1.0), *((e, d) for e, d in curve if e <= epsilon)]
    right = [(e, d) for e, d in curve if e > epsilon]
    for low, high_delta in left:
        for high, low_delta in right:
            start = math.exp(low - high)
            share = (math.exp(epsilon - high) - start) / (1 - start)
            best = min(best, (high_delta + (low_delta - high_delta) * share) * (1 + 1e-12))
    return best


def _rounded_up(number: float, digits: int) -> str:
    """Return the number with so many digits, rounded up, and at least one decimal."""
    shown = Context(prec=15).create_decimal(repr(number))  # forgives the last bits, so that 0.1 + 0.2 is 0.3
    text = f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(shown)):.15g}"
    return text if any(mark in text for mark in ".e") else text + ".0"


def guarantee_of(
    events: Event | Sequence[Event],
    *,
    delta: float = 0.0,
    relation: str | None = None,
    max_rows_per_person: int | None = None,
    float_safe: bool | None = None,
    for_release: bool = True,
) -> Guarantee:
    """Return the guarantee of some events together, by the best sound accountant.

    >>> from escudo.privacy import PureEvent
    >>> g = guarantee_of([PureEvent(epsilon=0.1)] * 10)
    >>> g.epsilon, g.accountant
    (1.0, 'basic composition')

    Args:
        events: What happened, on the same table; none at all cost nothing.
        delta: Probability aside; 0 asks for pure differential privacy.
        relation: State the guarantee for this relation instead of the events' own.
        max_rows_per_person: Most rows of one person that the events must be stated for; None takes what they state.
        float_safe: Whether the noise is free of floating-point attacks; by default read off the events, where noise on
            no grid is not.
        for_release: False for seeded runs.

    Raises:
        InputError: If there is no finite epsilon at this delta, or the events are stated for different relations.
    """
    listed = [events] if isinstance(events, Event) else list(events)
    if relation is not None:
        listed = [event.under(relation) for event in listed]
    source = listed[0] if len(listed) == 1 else ComposedEvent(events=tuple(listed))
    if not listed and relation is not None:
        source = ComposedEvent(events=(), relation=parse_relation(relation))
    if max_rows_per_person not in (None, source.max_rows_per_person):
        raise InputError(
            f"The events are stated for {source.max_rows_per_person or 'no number of'} rows per person, not "
            f"{max_rows_per_person}."
        )
    bound = RunningTotal.of(source).bound(delta)
    if math.isinf(bound.value):
        raise InputError(
            f"These events have no finite epsilon at delta={delta:g}; Gaussian noise and (epsilon, delta) mechanisms "
            "need a delta larger than their own, such as 1e-6."
        )
    return Guarantee(
        epsilon=bound.value,
        delta=delta,
        **source.stated,
        accountant=bound.accountant,
        float_safe=_on_grids(source) if float_safe is None else float_safe,
        for_release=for_release,
        source=source,
    )


def _on_grids(event: Event) -> bool:
    """Return whether no part of the event is noise without a grid."""
    match event:
        case LaplaceEvent() | GaussianEvent():
            return event.grid > 0
        case SampledGaussianEvent():
            return False  # its noise is drawn in floating point
        case RepeatedEvent():
            return _on_grids(event.event)
        case ComposedEvent() | ParallelEvent():
            return all(_on_grids(part) for part in event.events)
    return True


_TOLERANCE = 2e-4  # a part of the noise: what stopping early may waste
_TRIALS = 12  # the slow accountants are asked at most this often
_WIDEST = 2.0**60


def calibrate(
    build: Callable[[float], Event | Sequence[Event]],
    budget: Budget | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
) -> float:
    r"""Return the least noise (to 1 part in 5,000) at which a release costs at most (ε, δ).

    Args:
        build: The events of the release at a noise level t > 0: every scale proportional to t (or every ε to 1/t), so
            that the cost falls as t grows.
        budget: What it may cost, together with what is reserved of it.
        epsilon: The budget's, in place of it; deprecated, and ends with version 0.3.
        delta: The budget's, in place of it; deprecated likewise.

    Returns:
        A noise level whose cost was computed by the accountant and found to be at most (ε, δ): the search may stop
        early, but never on the wrong side.

    Raises:
        InputError: If no noise level within reach meets the budget, as for Gaussian noise at δ = 0.

    >>> from escudo.privacy import Budget, LaplaceEvent
    >>> round(calibrate(lambda t: LaplaceEvent(l1_sensitivity=2, scale=t, grid=1.0), Budget(0.5, 0.0)), 2)
    4.0
    """
    if budget is None:
        warnings.warn(
            "epsilon and delta of calibrate() will end with version 0.3: give the budget as one, "
            "calibrate(build, Budget(epsilon, delta)).",
            DeprecationWarning,
            stacklevel=2,
        )
        most, at = positive("epsilon", epsilon), probability("delta", delta)
    else:
        most, at = budget.epsilon, budget.delta

    def total(noise: float) -> RunningTotal:
        events = build(noise)
        if budget is None or not budget.reserved:
            return RunningTotal.of(events)
        return RunningTotal.of([*(events if isinstance(events, Sequence) else (events,)), *budget.reserved])

    def quick(noise: float) -> float:
        try:
            return total(noise).quick_epsilon(at)
        except TooLoudError:  # so little noise that no event states it
            return math.inf

    high = 1.0
    while quick(high) > most:
        high *= 2
        if high > _WIDEST:
            raise InputError(
                f"No amount of noise meets epsilon = {most:g} at delta = {at:g} here; Gaussian noise needs a "
                "delta above 0, such as 1e-6, and mechanisms with a delta of their own need a larger one."
            )
    low = high / 2
    while quick(low) <= most and low > 1 / _WIDEST:
        high, low = low, low / 2
    while high / low > 1 + _TOLERANCE / 4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if quick(middle) <= most else (middle, high)

    def rough(noise: float) -> float:
        return total(noise).bound(at, coarse=True).value

    noise = _sharpened(rough, high, most)
    # The search was a hair too bold, if at all; and the same events in another order may differ in their last digits.
    while total(noise).epsilon(at) * (1 + 1e-9) > most:
        noise *= 1 + _TOLERANCE / 8
    return noise


def _sharpened(cost_of: Callable[[float], float], noise: float, budget: float) -> float:
    """Lower a sufficient noise level as far as the slow accountants allow, by the secant rule in logarithms."""
    best, cost = noise, cost_of(noise)
    too_low = 0.0
    slope = 1.0  # of log cost against log noise, at first: cost ∝ 1 / noise
    for _ in range(_TRIALS):
        if cost <= 0 or best / max(too_low, best * (cost / budget) ** (1 / slope)) < 1 + _TOLERANCE:
            break
        # Aim a hair above the estimate, so that rounding lands on the safe side.
        trial = max(best * (cost / budget) ** (1 / slope) * (1 + _TOLERANCE / 4), too_low * (1 + _TOLERANCE / 4))
        if trial >= best:
            break
        found = cost_of(trial)
        if found > cost:
            slope = max(math.log(found / cost) / math.log(best / trial), 0.25)
        if found <= budget:
            best, cost = trial, found
        else:
            too_low = trial
    return best
