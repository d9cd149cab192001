"""From tables to laws: what the last fit of ``marginals`` and those between the rounds of repair have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from escudo.synthesis._conditionals import Conditional
from escudo.synthesis._estimation import NoisyTable, agreeing, laws_of
from escudo.synthesis._observed import Columns, Pair, arranged, observed_laws
from escudo.synthesis._structure import graph_of

__all__ = ["TableFits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFits:
    """How laws follow from tables.

    Attributes:
        sizes: Cells of each column.
        parents: Each column's parents.
        tables: The columns of each table released for them.
        total: The number of rows.
        settled: Laws that do not come from tables, by column.
    """

    sizes: Mapping[str, int]
    parents: Mapping[str, Columns]
    tables: Sequence[Columns]
    total: int
    settled: Mapping[str, Conditional]

    @property
    def order(self) -> tuple[str, ...]:
        """The causal order."""
        return graph_of(self.parents).topological_order()

    def agreed(self, tables: Sequence[NoisyTable]) -> list[NoisyTable]:
        """Return the tables brought to agreement."""
        return agreeing(tables, total=self.total)

    def laws(self, agreed: Sequence[NoisyTable]) -> dict[str, Conditional]:
        """Return each column's law given its parents."""
        counted = {name: several for name, several in self.parents.items() if name not in self.settled}
        return {**laws_of(self.sizes, counted, agreed), **self.settled}

    def given(self, pairs: Sequence[Pair]) -> dict[str, Columns] | None:
        """Return what each column is given in the observed law, in an order to draw them; None if it has none."""
        return None if self.settled else arranged(self.sizes, [*self.tables, *pairs])

    def observed(self, agreed: Sequence[NoisyTable], pairs: Sequence[Pair]) -> dict[str, Conditional]:
        """Return the observed law of each column, in an order to draw them; nothing where the arrows say it all."""
        if not pairs and all(len(several) <= 1 for several in self.parents.values()):
            return {}
        given = self.given(pairs)
        return {} if given is None else observed_laws(self.sizes, given, agreed)

    def drawable(self, tables: Sequence[NoisyTable], pairs: Sequence[Pair]) -> dict[str, Conditional]:
        """Return the laws that rows follow without an intervention, in an order to draw them."""
        agreed = self.agreed(tables)
        laws = self.laws(agreed)
        return self.observed(agreed, pairs) or {name: laws[name] for name in self.order}
