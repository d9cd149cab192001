"""From events to a guarantee: what several releases promise together.

``RunningTotal`` does the sums and is the thing to keep where events arrive one by one; ``guarantee_of`` asks it once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from escudo.errors import InputError
from escudo.privacy._events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    ParallelEvent,
    RepeatedEvent,
    SampledGaussianEvent,
)
from escudo.privacy._guarantee import Guarantee
from escudo.privacy._relations import parse_relation
from escudo.privacy._totals import RunningTotal, within

__all__ = ["RunningTotal", "guarantee_of", "within"]


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
        relation=source.relation,
        unit=source.unit,
        max_rows_per_person=source.max_rows_per_person,
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
