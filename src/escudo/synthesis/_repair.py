r"""Repair for ``marginals``: pairs of columns that the model gets wrong are picked privately, and measured.

A graph made by hand leaves dependence out. After the family tables are measured and fitted, pairs of columns that no
table holds together are scored by how far their counts are from the model's, in l1, less what noise alone would add,

.. math:: u_{ab} = \|c_{ab} - \hat n\, \hat p_{ab}\|_1 - \sqrt{2/π}\, σ\, |cells_{ab}|,

and the exponential mechanism picks among them, and *none*, which scores 0. A picked pair's table is released; where
none is worth it, or the observed law has no room left for it, the same noise buys a second release of the family table
that needs it most. Then everything is fitted again, ``_ROUNDS`` times in all. Pairs enter the observed law
(``_observed``) and are never arrows: nothing is claimed to cause another because the two go together, and do() answers
by the stated graph as before.

**Sensitivity.** The model and the number of rows in the score are public by then, so a score moves by no more than the
l1 sensitivity of one contingency table.

**Reference.** R. McKenna, B. Mullins, D. Sheldon, G. Miklau (2022), "AIM: an adaptive and iterative mechanism for
differentially private synthetic data", VLDB, for the score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from escudo.errors import InputError
from escudo.mechanisms import Seed, exponential
from escudo.privacy import Account, ExponentialEvent, GaussianEvent, Plan
from escudo.synthesis._conditionals import Conditional
from escudo.synthesis._estimation import NoisyTable
from escudo.synthesis._family_tables import Columns, measure
from escudo.synthesis._observed import Pair
from escudo.synthesis._sampling import draw
from escudo.synthesis._table_fits import TableFits
from escudo.table import PrivateTable, Schema, count_sensitivity

__all__ = ["PICK_SHARE", "TABLE_SHARE", "Repair", "candidate_pairs", "merged"]

PICK_SHARE = 0.05
"""Of the zCDP budget, for all picks."""
TABLE_SHARE = 0.25
"""And for what they pick."""

_ROUNDS = 4
_MAX_PAIRS = 4000
_SIMULATED = 2**17
_SEED = 20_220_901  # any fixed number: the same release always gives the same model


def candidate_pairs(schema: Schema, tables: Sequence[Columns]) -> list[Pair]:
    """Return the pairs of columns that no table holds together.

    Raises:
        InputError: If there are too many to count.
    """
    varying = [name for name in schema.names if schema[name].size > 1]
    held = {pair for columns in tables for pair in combinations(columns, 2)}
    pairs = [pair for pair in combinations(varying, 2) if pair not in held]
    if len(pairs) > _MAX_PAIRS:
        raise InputError(
            f"repair would have to count {len(pairs):,} pairs of columns, more than {_MAX_PAIRS:,}. Use "
            "generator='moments' with repair, or leave it out."
        )
    return pairs


def merged(tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return each table once: releases of the same columns are averaged by their precision."""
    several: dict[Columns, list[NoisyTable]] = {}
    for table in tables:
        several.setdefault(table.columns, []).append(table)
    result = []
    for columns, same in several.items():
        precision = np.array([table.scale**-2.0 for table in same])
        counts = sum(weight * table.counts for weight, table in zip(precision, same, strict=True)) / precision.sum()
        result.append(NoisyTable(columns, np.asarray(counts), float(precision.sum() ** -0.5)))
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What repair may spend: public, and fixed before a row is read.

    Attributes:
        schema: The columns.
        pick: What one pick costs.
        table: The noise of what one pick picks.
        picks: How many there are.
    """

    schema: Schema
    pick: ExponentialEvent
    table: GaussianEvent
    picks: int

    @property
    def plan(self) -> Plan:
        """The part of the budget tree."""
        return Plan(
            "repair",
            children=[
                Plan("pick a pair the model gets wrong", self.pick, count=self.picks, buys="dependence nobody stated"),
                Plan("tables of picked pairs", self.table, count=self.picks, buys="or of a family again"),
            ],
        )

    def fit(
        self,
        table: PrivateTable,
        released: Sequence[NoisyTable],
        fits: TableFits,
        *,
        rows: float,
        account: Account,
        seed: Seed,
        advance: Callable[[int], None],
    ) -> tuple[list[NoisyTable], list[Pair]]:
        """Pick and measure.

        Args:
            table: The private table.
            released: What is measured already.
            fits: How laws follow from tables.
            rows: How many rows there are, as far as is public.
            account: What is charged.
            seed: None for a release.
            advance: Called with 1 after each pick.

        Returns:
            All tables, and the pairs among them, the earlier column in causal order first.
        """
        tables, pairs = list(released), list[Pair]()
        place = {name: number for number, name in enumerate(fits.order)}
        held = [columns.columns for columns in tables]
        waiting = [_ordered(pair, place) for pair in candidate_pairs(self.schema, held)]
        exact = dict(zip(waiting, table.counts([list(pair) for pair in waiting]), strict=True)) if waiting else {}
        families: dict[Columns, NDArray[np.int64]] = {}  # counted again, but no more than once each
        for part in range(_ROUNDS):
            scores = self._scores(fits.drawable(merged(tables), pairs), exact, rows)
            offered = [pair for pair in scores if _has_room(fits, pairs, pair)]
            for _ in range(part, self.picks, _ROUNDS):
                picked = self._picked([scores[pair] for pair in offered], account=account, seed=seed)
                pair = offered.pop(picked) if picked < len(offered) else None
                if pair is not None and _has_room(fits, pairs, pair):
                    tables.append(measure(pair, exact.pop(pair), self.table, account=account, seed=seed))
                    pairs.append(pair)
                else:
                    if pair is not None:  # the pairs picked before it took its room, and maybe that of others
                        offered = [each for each in offered if _has_room(fits, pairs, each)]
                    needy = _neediest(merged([each for each in tables if each.columns in held]))
                    if needy not in families:
                        families[needy] = table.counts(needy)
                    tables.append(measure(needy, families[needy], self.table, account=account, seed=seed))
                advance(1)
        return merged(tables), pairs

    def _scores(
        self, laws: Mapping[str, Conditional], exact: Mapping[Pair, NDArray[np.int64]], rows: float
    ) -> dict[Pair, float]:
        drawn = draw(list(laws), laws, _SIMULATED, fixed={}, rng=np.random.default_rng(_SEED))
        scores = {}
        for (first, second), counts in exact.items():
            cells = drawn[first] * counts.shape[1] + drawn[second]
            expected = np.bincount(cells, minlength=counts.size) * (rows / _SIMULATED)
            noise = math.sqrt(2 / math.pi) * self.table.scale * counts.size
            scores[first, second] = float(np.abs(counts.ravel() - expected).sum()) - noise
        return scores

    def _picked(self, scores: Sequence[float], *, account: Account, seed: Seed) -> int:
        """Return the place of the pair that was picked; one beyond the last for none."""
        sensitivity = count_sensitivity(
            1,
            relation=self.pick.relation,
            unit=self.schema.unit,
            max_rows_per_person=self.schema.max_rows_per_person,
        ).l1
        return exponential(
            np.array([*scores, 0.0]),
            sensitivity=sensitivity,
            epsilon=self.pick.epsilon,
            relation=self.pick.relation,
            unit=self.pick.unit,
            max_rows_per_person=self.pick.max_rows_per_person,
            account=account,
            seed=seed,
            purpose="pick a pair",
        ).value


def _has_room(fits: TableFits, pairs: Sequence[Pair], pair: Pair) -> bool:
    """Return whether the observed law has room for a pair beside those it holds already."""
    return fits.given([*pairs, pair]) is not None


def _ordered(pair: Pair, place: Mapping[str, int]) -> Pair:
    first, second = pair
    return pair if place[first] < place[second] else (second, first)


def _neediest(tables: Sequence[NoisyTable]) -> Columns:
    """Return the table that more precision helps most: weights in the budget are as they are where √c σ³ is equal."""
    return max(tables, key=lambda table: math.sqrt(table.counts.size) * table.scale**3).columns
