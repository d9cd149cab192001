r"""Families of ``marginals`` that get their law from moments: those whose table the data cannot pay for.

**Rule**, from public facts only. A family of c cells with noise σ in each misses its rows by about cσ in total. It is
too large if that is more than half the number of rows, where it is public, and in any case with more than ``MAX_CELLS``
cells, or ``MAX_TABLE_CELLS`` where the number of rows is public. A family with fewer than two parents is never too
large: its moments are its table.

Up to a size such a family is measured in pairs (``_family_tables``). A larger one is measured as ``moments`` measures
it: one count per level of the child and per pair of levels with each parent, in one vector for all such families. It
gets a logit law. Both leave out how parents act together; the plan says which families these are, and why. No row is
clipped, and no budget goes to a clip bound: with few columns, the longest vector a row can have is not much longer than
usual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from escudo.mechanisms import Seed, gaussian_event
from escudo.privacy import Account, GaussianEvent, Plan
from escudo.synthesis._conditionals import MAX_TABLE_CELLS, Conditional
from escudo.synthesis._moment_fit import FittedMoments, fit_moments
from escudo.synthesis._moment_pass import check_fittable
from escudo.synthesis._moment_statistics import UNIT, MomentLayout, NoisyMoments, table_sums
from escudo.synthesis._moments import release
from escudo.synthesis._structure import Structure
from escudo.table import PrivateTable, Schema

__all__ = ["MAX_CELLS", "LargeFamilies", "too_large"]

MAX_CELLS = 20_000
"""The most cells a family's table has where the number of rows is not public."""

_MOST_ADDED = 1  # open arrows that a large family may get


def too_large(cells: int, noise: float, public_rows: int | None) -> str:
    """Return why a family's table is too large, or an empty text if it is not.

    >>> too_large(4096, 9.0, 60_000)
    '4,096 cells with noise 9 each are more than 60,000 rows pay for'
    >>> too_large(4096, 9.0, None)
    ''
    """
    most = MAX_CELLS if public_rows is None else MAX_TABLE_CELLS
    if cells > most:
        return f"{cells:,} cells are more than {most:,}"
    if public_rows is not None and 2 * cells * noise > public_rows:
        return f"{cells:,} cells with noise {noise:.3g} each are more than {public_rows:,} rows pay for"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeFamilies:
    """The families that are measured by moments, before a row is read.

    Attributes:
        layout: What is summed.
        reasons: Why each is too large, by child.
    """

    layout: MomentLayout
    reasons: Mapping[str, str]

    @classmethod
    def of(cls, schema: Schema, structure: Structure, reasons: Mapping[str, str]) -> LargeFamilies:
        """Return what is summed for the families of these children, and for the open arrows into them.

        Raises:
            InputError: If a family is too large to fit.
        """
        stated = tuple(arrow for arrow in structure.arrows if arrow[1] in reasons)
        candidates = tuple(arrow for arrow in structure.open_arrows if arrow[1] in reasons)
        used = {name for arrow in (*stated, *candidates) for name in arrow}
        sizes = {name: schema[name].size for name in schema.names if name in used}
        check_fittable(sizes, {child: structure.parents[child] for child in reasons}, candidates, _MOST_ADDED)
        return cls(layout=MomentLayout(sizes=sizes, pairs=stated, candidates=candidates), reasons=dict(reasons))

    @property
    def weight(self) -> float:
        """The weight of a table that would err as much: as many cells, with noise of the length of the longest row."""
        return float((self.layout.size * math.sqrt(self.layout.largest_square) / 2) ** (2 / 3))

    def event(self, table: GaussianEvent) -> GaussianEvent:
        """Return the event of the sums with noise as in the release of one contingency table."""
        return gaussian_event(
            self.layout.size,
            l2_sensitivity=table.l2_sensitivity * UNIT,
            scale=table.scale * UNIT,
            integers=True,
            relation=table.relation,
            unit=table.unit,
            max_rows_per_person=table.max_rows_per_person,
        )

    def plan(self, event: GaussianEvent, structure: Structure) -> Plan:
        """Return the part of the budget tree: one release, and which families it serves."""
        laws = [
            Plan(f"logit of {child} | {', '.join(structure.parents[child])}", buys=f"no table: {reason}")
            for child, reason in self.reasons.items()
        ]
        sums = Plan("sums of levels and pairs", event, buys=f"{self.layout.size:,} sums")
        return Plan("moments of large families", children=[sums, *laws])

    def fit(
        self,
        table: PrivateTable,
        event: GaussianEvent,
        parents: Mapping[str, tuple[str, ...]],
        known: Mapping[str, Conditional],
        *,
        rows: float,
        account: Account,
        seed: Seed,
    ) -> FittedMoments:
        """Measure the sums and fit the large families, given the parents of all columns and the laws of the others."""
        square = self.layout.largest_square
        exact, _ = table_sums(table, self.layout, square)
        values = release(exact, event, account=account, seed=seed, purpose="sums of levels and pairs")
        moments = NoisyMoments.from_release(self.layout, values, event.scale, square=square, rows=rows)
        forms = dict.fromkeys(self.reasons, "logit")
        return fit_moments(moments, parents, forms, known=known, most_added=_MOST_ADDED)
