"""How ``moments`` shares out its budget: the noise of each release at a common level, which calibration finds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from escudo.mechanisms import gaussian_event
from escudo.privacy import Event, ExponentialEvent, GaussianEvent, Relation
from escudo.synthesis._moment_statistics import UNIT
from escudo.table import Schema, count_sensitivity

__all__ = ["Shares"]

_CLIP_SHARE = 0.05  # of what the sums cost in zCDP
_ROWS_SHARE = 0.02
_FIRST_SHARE = 0.6  # of what the sums cost, where there is a second look


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What is released, before it is known how loudly: public.

    Attributes:
        schema: The columns.
        relation: Which tables are neighbours.
        numbers: How many sums there are.
        twice: Whether there is a second release of them, for suspects.
        clips: Whether the clip bound is paid for.
        counts: Whether the number of rows is.
    """

    schema: Schema
    relation: Relation
    numbers: int
    twice: bool
    clips: bool
    counts: bool

    def sums(self, level: float) -> list[GaussianEvent]:
        """Return the release of the sums, or both of them."""
        return [
            self._gaussian(self.numbers, self._moved * UNIT, level * UNIT / math.sqrt(share))
            for share in ((_FIRST_SHARE, 1 - _FIRST_SHARE) if self.twice else (1.0,))
        ]

    def clip(self, level: float) -> ExponentialEvent:
        """Return what the clip bound costs."""
        rho = (self._moved / level) ** 2 / 2
        return ExponentialEvent(
            epsilon=math.sqrt(8 * _CLIP_SHARE * rho),
            relation=self.relation,
            unit=self.schema.unit,
            max_rows_per_person=self.schema.max_rows_per_person,
        )

    def count(self, level: float) -> GaussianEvent:
        """Return the release of the number of rows."""
        most = float(self.schema.max_rows_per_person or 1)  # two persons' numbers differ by no more, either way
        return self._gaussian(1, most, level * most / self._moved / math.sqrt(_ROWS_SHARE))

    def events(self, level: float) -> list[Event]:
        """Return everything that is released."""
        paid: list[Event] = [*self.sums(level)]
        paid += [self.clip(level)] if self.clips else []
        return paid + ([self.count(level)] if self.counts else [])

    @property
    def _moved(self) -> float:
        """How far one row or person moves one contingency table, in l2 norm."""
        most = self.schema.max_rows_per_person
        return count_sensitivity(1, relation=self.relation, unit=self.schema.unit, max_rows_per_person=most).l2

    def _gaussian(self, numbers: int, moved: float, scale: float) -> GaussianEvent:
        return gaussian_event(
            numbers,
            l2_sensitivity=moved,
            scale=scale,
            integers=True,
            relation=self.relation,
            unit=self.schema.unit,
            max_rows_per_person=self.schema.max_rows_per_person,
        )
