"""Privacy events: frozen facts about what was released, with a fixed meaning and no arithmetic.

An event states what a mechanism did to the table (noise, scale, sensitivity), for which neighbouring ``relation`` and
``unit``. What it costs is computed elsewhere, by accountants that may improve; the fact stays as it was recorded.
Events are never removed and never change meaning: a new meaning is a new ``version``, and a reader that does not know a
kind, version or field refuses it.

Sensitivities are those of the *stated* relation: under ``replace_one`` a row of a table of counts may leave one cell
and enter another, so two cells change; under ``add_remove`` one does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, cast, get_args

from escudo._validate import one_of
from escudo.errors import InputError
from escudo.privacy._conversions import approximate_for_group, gdp_for_group, pure_for_group, zcdp_for_group
from escudo.privacy._event import (
    KINDS,
    MAX_EPSILON,
    MAX_RHO,
    Event,
    check_count,
    check_delta,
    check_loss,
    check_positive,
    put,
)
from escudo.privacy._relations import Relation, Unit, parse_relation
from escudo.privacy._sampled_gaussian import SampledGaussianEvent

__all__ = [
    "ApproximateEvent",
    "ComposedEvent",
    "Event",
    "ExponentialEvent",
    "GDPEvent",
    "GaussianEvent",
    "LaplaceEvent",
    "ParallelEvent",
    "PureEvent",
    "RepeatedEvent",
    "SampledGaussianEvent",
    "ZCDPEvent",
]

Parts = Literal["position", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent(Event):
    """Laplace noise of the given scale was added to every coordinate of a statistic.

    Attributes:
        l1_sensitivity: Most that the statistic moves in l1 norm between neighbours.
        scale: The noise has density, or mass on the grid, proportional to exp(-|x| / scale).
        grid: Step of the public grid that statistic and noise live on; 0 for continuous noise, which floating point
            numbers do not implement safely.
        dimensions: Number of coordinates.
    """

    kind: ClassVar[str] = "laplace"

    l1_sensitivity: float
    scale: float
    grid: float
    dimensions: int = 1

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(
            self,
            l1_sensitivity=check_positive("l1_sensitivity", self.l1_sensitivity, allow_zero=True),
            scale=check_positive("scale", self.scale),
            grid=check_positive("grid", self.grid, allow_zero=True),
            dimensions=check_count("dimensions", self.dimensions),
        )
        _bounded_ratio("l1_sensitivity", self.l1_sensitivity, self.scale)

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times the sensitivity and the same noise."""
        return replace(self, l1_sensitivity=self.l1_sensitivity * check_count("steps", steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent(Event):
    """Gaussian noise of the given scale was added to every coordinate of a statistic.

    Attributes:
        l2_sensitivity: Most that the statistic moves in l2 norm between neighbours.
        scale: Standard deviation σ; the noise has density, or mass on the grid, proportional to exp(-x² / 2σ²).
        grid: Step of the public grid that statistic and noise live on; 0 for continuous noise, which floating point
            numbers do not implement safely.
        changed_cells: Set only for tables of counts, where every record adds one grid step to some cells and nothing to
            the others: the number of cells that differ between neighbours, each by one step. It sharpens
            ``l2_sensitivity``, which must be at least its square root in steps.
    """

    kind: ClassVar[str] = "gaussian"

    l2_sensitivity: float
    scale: float
    grid: float
    changed_cells: int | None = None

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(
            self,
            l2_sensitivity=check_positive("l2_sensitivity", self.l2_sensitivity, allow_zero=True),
            scale=check_positive("scale", self.scale),
            grid=check_positive("grid", self.grid, allow_zero=True),
        )
        _bounded_ratio("l2_sensitivity", self.l2_sensitivity, self.scale)
        if self.changed_cells is not None:
            cells = check_count("changed_cells", self.changed_cells)
            put(self, changed_cells=cells)
            if self.grid == 0:
                raise InputError("changed_cells counts cells that change by one grid step, so grid must be above 0.")
            if self.l2_sensitivity < math.sqrt(cells) * self.grid * (1 - 1e-9):
                raise InputError(
                    f"{cells} cells that change by one grid step of {self.grid:g} move the table by "
                    f"{math.sqrt(cells) * self.grid:g} in l2 norm; l2_sensitivity is {self.l2_sensitivity:g}."
                )

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times the sensitivity; several records may share a cell."""
        k = check_count("steps", steps)
        cells = self.changed_cells if k == 1 else None
        return replace(self, l2_sensitivity=self.l2_sensitivity * k, changed_cells=cells)

    def _replacing(self) -> GaussianEvent:
        # One record leaves at most c cells and another enters at most c: the difference of two 0/1 tables of at most c
        # ones has entries in {-1, 0, 1}, at most 2c of them not 0. So no cell moves by two steps.
        doubled = self.stretched(2)
        cells = None if self.changed_cells is None else 2 * self.changed_cells
        return replace(doubled, changed_cells=cells, relation="replace_one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialEvent(Event):
    """A candidate was chosen by a mechanism of bounded range ε, such as the exponential mechanism.

    For neighbours D, D′ the log-ratios log(P(y | D) / P(y | D′)) over all outputs y lie in an interval of length ε.

    Attributes:
        epsilon: Length of that interval.
    """

    kind: ClassVar[str] = "exponential"

    epsilon: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon))

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times epsilon: the intervals add along the path."""
        return replace(self, epsilon=pure_for_group(self.epsilon, check_count("steps", steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PureEvent(Event):
    """A mechanism that was proved ε-differentially private was run.

    Attributes:
        epsilon: Bound on every log-ratio of output probabilities.
    """

    kind: ClassVar[str] = "pure"

    epsilon: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon))

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times epsilon."""
        return replace(self, epsilon=pure_for_group(self.epsilon, check_count("steps", steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateEvent(Event):
    """A mechanism that was proved (ε, δ)-differentially private was run.

    Attributes:
        epsilon: Loss outside the slack.
        delta: Slack, in [0, 1).
    """

    kind: ClassVar[str] = "approximate"

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, epsilon=check_loss("epsilon", self.epsilon), delta=check_delta("delta", self.delta))

    def stretched(self, steps: int) -> Self:
        """Return the event for (kε, δ(1 + e^ε + … + e^{(k-1)ε}))."""
        epsilon, delta = approximate_for_group(self.epsilon, self.delta, check_count("steps", steps))
        return replace(self, epsilon=epsilon, delta=delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZCDPEvent(Event):
    """A mechanism that was proved ρ-zero-concentrated differentially private was run.

    Attributes:
        rho: The Rényi divergence of every order α > 1 is at most ρα.
    """

    kind: ClassVar[str] = "zcdp"

    rho: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, rho=check_loss("rho", self.rho, at_most=MAX_RHO))

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps``² times rho."""
        return replace(self, rho=zcdp_for_group(self.rho, check_count("steps", steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GDPEvent(Event):
    """A mechanism that was proved μ-Gaussian differentially private was run.

    Attributes:
        mu: Telling neighbours apart is at least as hard as telling N(0, 1) from N(μ, 1).
    """

    kind: ClassVar[str] = "gdp"

    mu: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        put(self, mu=check_loss("mu", self.mu))

    def stretched(self, steps: int) -> Self:
        """Return the event with ``steps`` times mu."""
        return replace(self, mu=gdp_for_group(self.mu, check_count("steps", steps)))


# A structured event takes relation and unit from its parts unless they are given.
_OF_THE_PARTS = cast(Relation, "")
_UNIT_OF_THE_PARTS = cast(Unit, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedEvent(Event):
    """The same event happened ``count`` times on the same table, each with fresh noise, adaptively.

    Attributes:
        event: What happened each time.
        count: How often, at least once.
    """

    kind: ClassVar[str] = "repeated"

    event: Event
    count: int
    relation: Relation = _OF_THE_PARTS
    unit: Unit = _UNIT_OF_THE_PARTS

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise InputError("event must be an event, such as PureEvent(epsilon=1.0).")
        _take_from_parts(self, (self.event,))
        Event.__post_init__(self)
        put(self, count=check_count("count", self.count))

    def stretched(self, steps: int) -> Self:
        """Return the event with its part stretched."""
        return replace(self, event=self.event.stretched(steps))

    def _replacing(self) -> RepeatedEvent:
        return replace(self, event=self.event.under("replace_one"), relation="replace_one")

    def _per_person(self) -> RepeatedEvent:
        return replace(self, event=self.event._per_person(), unit="person")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedEvent(Event):
    """Several events happened on the same table, one after the other, adaptively. None at all costs nothing.

    Attributes:
        events: What happened, in order.
    """

    kind: ClassVar[str] = "composed"

    events: tuple[Event, ...]
    relation: Relation = _OF_THE_PARTS
    unit: Unit = _UNIT_OF_THE_PARTS

    def __post_init__(self) -> None:
        put(self, events=_tuple_of_events(self.events))
        _take_from_parts(self, self.events)
        Event.__post_init__(self)

    def stretched(self, steps: int) -> Self:
        """Return the event with every part stretched."""
        return replace(self, events=tuple(event.stretched(steps) for event in self.events))

    def _replacing(self) -> ComposedEvent:
        return replace(self, events=tuple(e.under("replace_one") for e in self.events), relation="replace_one")

    def _per_person(self) -> ComposedEvent:
        return replace(self, events=tuple(e._per_person() for e in self.events), unit="person")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelEvent(Event):
    """Each event happened on its own part of the table; the parts are disjoint.

    How many parts see a change decides the cost:

    * ``by="position"``: a public rule that looks at no value, such as the row's number, assigns records to parts. A
      changed record stays where it is, so one part changes, and the total is the worst part's.
    * ``by="value"``: a rule that looks at the record assigns it. Under ``add_remove`` still one part changes. Under
      ``replace_one`` a record may leave one part and enter another, so two parts change:

      - parts stated for ``replace_one``, each covering a part that loses, gains or swaps one record: the worst *two*
        parts are composed;
      - parts stated for ``add_remove`` (give ``relation="replace_one"`` for the whole): the worst part, stated for two
        steps. Two steps in one part are as bad as one step in each of two, by the lemma below.

    **Lemma.** Let f_i(k) be the cost of part i for k steps: its pure ε, μ², its Rényi divergence at some order as
    accounted here, or -log(1 - δ). Then f_i(k)/k does not fall as k grows. For ε, μ² and ρ it is plain. For Laplace
    noise, on a grid or not, f_i is a log-sum-exp of linear functions of k and 0 at 0, so convex. For ε-DP it is
    log cosh(aεk) - log cosh(εk/2) up to a factor, with a = α - 1/2 > 1/2, and u tanh u - log cosh u grows with u. For δ
    it is a convex function of the convex k ↦ δ(e^{kε} - 1)/(e^ε - 1), again 0 at 0. Minima, maxima and sums keep the
    property. So k steps of which k_i fall on part i cost Σ f_i(k_i) ≤ Σ (k_i/k) f_i(k) ≤ max_i f_i(k), and where each
    step may touch two parts (k_i ≤ k, Σ k_i ≤ 2k) at most the two largest f_i(k). Hence stretching a parallel event
    means stretching its parts.

    **Lemma, for equal parts and exact curves.** Steps a and b in two equal parts are dominated by a + b steps in one.
    ε-DP and (ε, δ)-DP: by the canonical mechanism of the sum. Gaussian: √(a² + b²) ≤ a + b, and counts by cells are as
    many cells. Laplace: with the noise X clamped to Y = min(max(X, 0), s), the loss for a shift by s is s - 2Y, and
    δ(ε) for ε ≥ 0 is the mean of a falling function of Y that vanishes from s/2 on. For shifts a ≥ b the losses add up
    to a + b - 2(Y_a + Y_b), and up to (a + b)/2 ≤ a, Y_a + Y_b ≥ Y_a exceeds each level at least as often as Y_{a+b}
    does. So δ(ε) is smaller. Domination survives composition with more releases.

    Attributes:
        events: One per part, at least one.
        by: ``"position"`` or ``"value"``.
    """

    kind: ClassVar[str] = "parallel"

    events: tuple[Event, ...]
    by: Parts
    relation: Relation = _OF_THE_PARTS
    unit: Unit = _UNIT_OF_THE_PARTS

    def __post_init__(self) -> None:
        put(self, events=_tuple_of_events(self.events), by=one_of("by", self.by, get_args(Parts)))
        if not self.events:
            raise InputError("events of a parallel event must name at least one part.")
        if any(_samples(part) for part in self.events):
            raise InputError("The lemmas for parallel events do not cover sampled_gaussian events; compose them.")
        _take_from_parts(self, self.events, may_be_add_remove=self.by == "value")
        Event.__post_init__(self)

    def stretched(self, steps: int) -> Self:
        """Return the event with every part stretched."""
        return replace(self, events=tuple(event.stretched(steps) for event in self.events))

    def _replacing(self) -> ParallelEvent:
        if self.by == "value":
            return replace(self, relation="replace_one")
        return replace(self, events=tuple(e.under("replace_one") for e in self.events), relation="replace_one")

    def _per_person(self) -> ParallelEvent:
        return replace(self, events=tuple(e._per_person() for e in self.events), unit="person")


def _bounded_ratio(name: str, sensitivity: float, scale: float) -> None:
    if sensitivity > scale * MAX_EPSILON:
        raise InputError(
            f"{name} / scale must be at most {MAX_EPSILON:g}; {sensitivity:g} / {scale:g} is more, and noise that "
            "small would protect nobody."
        )


def _samples(event: Event) -> bool:
    if isinstance(event, RepeatedEvent):
        return _samples(event.event)
    parts = event.events if isinstance(event, ComposedEvent | ParallelEvent) else ()
    return isinstance(event, SampledGaussianEvent) or any(_samples(part) for part in parts)


def _tuple_of_events(events: object) -> tuple[Event, ...]:
    if not isinstance(events, list | tuple) or not all(isinstance(event, Event) for event in events):
        raise InputError("events must be a list or tuple of events.")
    return tuple(events)


def _take_from_parts(event: Event, parts: tuple[Event, ...], *, may_be_add_remove: bool = False) -> None:
    """Give ``event`` the relation and unit of its parts where it names none, or raise where they disagree."""
    relations, units = {part.relation for part in parts}, {part.unit for part in parts}
    if len(units) > 1:
        raise InputError(f"The parts of a {event.kind} event mix rows and persons; state all for one unit.")
    if len(relations) > 1:
        raise InputError(
            f"The parts of a {event.kind} event mix relations; state all for one, with event.under('replace_one')."
        )
    relation = parse_relation(event.relation) if event.relation else next(iter(relations), "replace_one")
    unit = event.unit if event.unit else next(iter(units), "row")
    if units - {unit}:
        raise InputError(f"The parts of this {event.kind} event are stated per {units.pop()}, not per {unit}.")
    if relations - {relation} and not (may_be_add_remove and relation == "replace_one"):
        raise InputError(
            f"The parts of this {event.kind} event are stated for {relations.pop()}, not {relation}; use "
            f"event.under({relation!r}) on the whole."
        )
    put(event, relation=relation, unit=unit)


KINDS.update(
    {
        kind.kind: kind
        for kind in (
            LaplaceEvent,
            GaussianEvent,
            SampledGaussianEvent,
            ExponentialEvent,
            PureEvent,
            ApproximateEvent,
            ZCDPEvent,
            GDPEvent,
            RepeatedEvent,
            ComposedEvent,
            ParallelEvent,
        )
    }
)
