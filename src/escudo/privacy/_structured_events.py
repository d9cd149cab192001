"""Events made of events: repeated, one after the other, or side by side on disjoint parts of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, cast, get_args

from escudo._validate import one_of
from escudo.errors import InputError
from escudo.privacy._event import Event, check_count, put
from escudo.privacy._relations import Relation, Unit, parse_relation
from escudo.privacy._sampled_gaussian import SampledGaussianEvent

__all__ = ["ComposedEvent", "ParallelEvent", "RepeatedEvent"]

Parts = Literal["position", "value"]

# A structured event takes relation, unit and the bound on a person's rows from its parts unless they are given.
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

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return self.count * self.event.weight

    def stretched(self, steps: int) -> Self:
        """Return the event with its part stretched."""
        return replace(self, event=self.event.stretched(steps))

    def _replacing(self) -> RepeatedEvent:
        return replace(self, event=self.event.under("replace_one"), relation="replace_one")

    def _per_person(self, rows: int) -> RepeatedEvent:
        return replace(self, event=self.event._per_person(rows), unit="person", max_rows_per_person=rows)


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

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return sum(event.weight for event in self.events)

    def stretched(self, steps: int) -> Self:
        """Return the event with every part stretched."""
        return replace(self, events=tuple(event.stretched(steps) for event in self.events))

    def _replacing(self) -> ComposedEvent:
        return replace(self, events=tuple(e.under("replace_one") for e in self.events), relation="replace_one")

    def _per_person(self, rows: int) -> ComposedEvent:
        parts = tuple(event._per_person(rows) for event in self.events)
        return replace(self, events=parts, unit="person", max_rows_per_person=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelEvent(Event):
    """Each event happened on its own part of the table; the parts are disjoint.

    How many parts see a change decides the cost:

    * ``by="position"``: a public rule that looks at no value, such as the row's number, assigns records to parts. A
      changed record stays where it is, so one part changes, and the total is the worst part's. For ``replace_one``
      only: a record added or removed would shift all those behind it into other parts.
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
        if self.by == "position" and self.relation == "add_remove":
            raise InputError(
                "Parts cut by position shift when a record is added or removed. Assign records to parts by a rule that "
                "looks at the record alone and say by='value', or state the parts for replace_one."
            )

    @property
    def weight(self) -> float:
        """About its cost in zCDP."""
        return max(event.weight for event in self.events)

    def stretched(self, steps: int) -> Self:
        """Return the event with every part stretched."""
        return replace(self, events=tuple(event.stretched(steps) for event in self.events))

    def _replacing(self) -> ParallelEvent:
        return replace(self, relation="replace_one")  # by value: the parts stay as they are stated

    def _per_person(self, rows: int) -> ParallelEvent:
        parts = tuple(event._per_person(rows) for event in self.events)
        return replace(self, events=parts, unit="person", max_rows_per_person=rows)


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
    """Give ``event`` relation, unit and bound of its parts where it names none, or raise where they disagree."""
    relations, units = {part.relation for part in parts}, {part.unit for part in parts}
    bounds = {part.max_rows_per_person for part in parts}
    if len(units) > 1:
        raise InputError(f"The parts of a {event.kind} event mix rows and persons; state all for one unit.")
    if len(relations) > 1:
        raise InputError(
            f"The parts of a {event.kind} event mix relations; state all for one, with event.under('replace_one')."
        )
    if len(bounds) > 1:
        raise InputError(
            f"The parts of a {event.kind} event allow different numbers of rows per person "
            f"({', '.join(str(bound) for bound in sorted(bounds, key=lambda bound: bound or 0))}); state all for the "
            "smallest, with event.for_fewer_rows."
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
    bound = next(iter(bounds), event.max_rows_per_person)
    if event.max_rows_per_person not in (None, bound):
        raise InputError(
            f"The parts of this {event.kind} event are stated for at most {bound} rows per person, not "
            f"{event.max_rows_per_person}."
        )
    put(event, relation=relation, unit=unit, max_rows_per_person=bound)
