r"""How ``marginals`` shares out its budget: the noise of each release at a common level, which calibration finds.

A table of weight w among weights that add up to W gets noise of :math:`\sqrt{W / w}` times the level, so that all of
them together cost as much as one table with noise at the level itself. Picks and repair get parts of that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from escudo.mechanisms import gaussian_event
from escudo.privacy import ExponentialEvent, GaussianEvent, Relation
from escudo.synthesis._family_tables import Columns
from escudo.synthesis._large_families import LargeFamilies
from escudo.synthesis._repair import PICK_SHARE, TABLE_SHARE, Repair
from escudo.table import CountSensitivity, Schema, count_sensitivity

__all__ = ["Shares", "table_event"]

_TREE_SHARE = 0.2  # of the Gaussian budget's inverse variance, turned to the selection of a tree


def table_event(schema: Schema, relation: Relation, scale: float) -> GaussianEvent:
    """Return the release of one contingency table with noise of this scale."""
    moved = _moved(schema, relation)
    return gaussian_event(
        2,  # or more cells, which is all the same to the event
        l2_sensitivity=moved.l2,
        scale=scale,
        changed_cells=moved.changed_cells,
        integers=True,
        relation=relation,
        unit=schema.unit,
        max_rows_per_person=schema.max_rows_per_person,
    )


@dataclass(frozen=True, kw_only=True)
class Shares:
    """What is released, with weights, before it is known how loudly: public.

    Attributes:
        schema: The columns.
        relation: Which tables are neighbours.
        weights: The tables, each with its weight.
        picks: How many causes are picked; each makes one more table,
        picked_weight: of this weight.
        large: The families that are measured by moments; None where there are none.
        repairs: How many pairs repair picks.
    """

    schema: Schema
    relation: Relation
    weights: Mapping[Columns, float]
    picks: int
    picked_weight: float
    large: LargeFamilies | None
    repairs: int

    def tables(self, level: float) -> dict[Columns, GaussianEvent]:
        """Return the release of each table."""
        return {columns: self._table(weight, level) for columns, weight in self.weights.items()}

    def picked(self, level: float) -> tuple[GaussianEvent, ExponentialEvent] | None:
        """Return the release of each picked family, and what one pick costs; None where nothing is picked."""
        if not self.picks:
            return None
        return self._table(self.picked_weight, level), self._pick(_TREE_SHARE, self.picks, level)

    def moments(self, level: float) -> tuple[LargeFamilies, GaussianEvent] | None:
        """Return the large families with the release of their sums; None where there are none."""
        return None if self.large is None else (self.large, self.large.event(self._table(self.large.weight, level)))

    def repair(self, level: float) -> Repair | None:
        """Return what repair may spend; None without it."""
        if not self.repairs:
            return None
        left = 1 - PICK_SHARE - TABLE_SHARE
        return Repair(
            schema=self.schema,
            pick=self._pick(PICK_SHARE / left, self.repairs, level),
            table=table_event(self.schema, self.relation, level * math.sqrt(self.repairs * left / TABLE_SHARE)),
            picks=self.repairs,
        )

    def events(self, level: float) -> list[GaussianEvent | ExponentialEvent]:
        """Return everything that is released."""
        made: list[GaussianEvent | ExponentialEvent] = [*self.tables(level).values()]
        picked, moments, repair = self.picked(level), self.moments(level), self.repair(level)
        made += [] if picked is None else [*picked] * self.picks
        made += [] if moments is None else [moments[1]]
        return made + ([] if repair is None else [repair.table, repair.pick] * self.repairs)

    @cached_property
    def _total(self) -> float:
        moments = 0.0 if self.large is None else self.large.weight
        return sum(self.weights.values()) + self.picks * self.picked_weight + moments

    def _table(self, weight: float, level: float) -> GaussianEvent:
        return table_event(self.schema, self.relation, level * math.sqrt(self._total / weight))

    def _pick(self, part: float, count: int, level: float) -> ExponentialEvent:
        # In zCDP a pick of cost e costs e²/8; all picks get their part of what the tables cost together.
        rho = part * _moved(self.schema, self.relation).l2 ** 2 / (2 * level**2) / count
        return ExponentialEvent(
            epsilon=math.sqrt(8 * rho),
            relation=self.relation,
            unit=self.schema.unit,
            max_rows_per_person=self.schema.max_rows_per_person,
        )


def _moved(schema: Schema, relation: Relation) -> CountSensitivity:
    """Return how far one row or person moves one contingency table."""
    return count_sensitivity(1, relation=relation, unit=schema.unit, max_rows_per_person=schema.max_rows_per_person)
