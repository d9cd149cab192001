"""Privacy events: frozen facts about what was released, with a fixed meaning and no arithmetic.

An event states what a mechanism did to the table (noise, scale, sensitivity), for which neighbouring ``relation`` and
``unit``. What it costs is computed elsewhere, by accountants that may improve; the fact stays as it was recorded.
Events are never removed and never change meaning: a new meaning is a new ``version``, and a reader that does not know a
kind, version or field refuses it.

Sensitivities are those of the *stated* relation: under ``replace_one`` a row of a table of counts may leave one cell
and enter another, so two cells change; under ``add_remove`` one does.
"""

from __future__ import annotations

from escudo.privacy._event import KINDS, Event
from escudo.privacy._sampled_gaussian import SampledGaussianEvent
from escudo.privacy._simple_events import (
    ApproximateEvent,
    ExponentialEvent,
    GaussianEvent,
    GDPEvent,
    LaplaceEvent,
    PureEvent,
    ZCDPEvent,
)
from escudo.privacy._structured_events import ComposedEvent, ParallelEvent, RepeatedEvent

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
