r"""Method ``votes``: any procedure inside disjoint blocks, one vote each, Laplace noise on the sum.

Cut the records into k disjoint blocks (``_layout.py``), let each run a procedure (``_procedures.py``) and vote
:math:`v_j \in \{-1, 0, 1\}` (``_casting.py``), release :math:`\sum_j v_j + Z`. One record moves one vote by at most
2, or two votes by at most 4 together where its values choose the block and it is replaced: pure ε for the whole table,
whatever the procedure computes, without clipping, bounds or a split into training and test. The sign is right with
probability :math:`1 - \tfrac12 e^{-ε V / 2}` where the blocks' own margin is V > 0.

**Abstention** is free: it looks at the released margin only. By default the verdict is "cannot tell" unless the sign is
sure enough in spite of the noise (``_planning.py``) and more than a fifth of the blocks are left as margin. Where no
margin could ever be sure enough, that is known beforehand, and nothing is read or spent.

**Reference.** Design note "sensitivities", Proposition 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from escudo.mechanisms import Seed, publishable, votes
from escudo.orientation._answer import Direction
from escudo.orientation._asked import Asked, check_options
from escudo.orientation._casting import FEWEST_DISTINCT, cast
from escudo.orientation._layout import Layout, layout_of
from escudo.orientation._pair import PairData
from escudo.orientation._procedures import Procedure, procedure_of
from escudo.orientation._reading import scored_column
from escudo.orientation._rule import Rule, free_of_charge, needed_text, rule_of, unanswered, verdict_of
from escudo.privacy import Account, Event, LaplaceEvent, Plan, Relation, Unit

__all__ = ["PreparedVotes", "prepare"]

OPTIONS: Mapping[str, Any] = {"abstain": None, "blocks": None, "shuffle": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedVotes:
    """Votes that know what they will cost.

    Attributes:
        x: One column.
        y: The other one.
        layout: The blocks.
        procedure: What each block does.
        rule: When there is a verdict.
        event: The release of the margin.
        epsilon: What it may cost.
        relation: Which tables are neighbours.
        unit: Whose data differs.
        max_rows_per_person: The most rows of one person that count, for the person unit.
        rows: The public number of rows or people.
    """

    x: str
    y: str
    layout: Layout
    procedure: Procedure
    rule: Rule
    event: Event
    epsilon: float
    relation: Relation
    unit: Unit
    max_rows_per_person: int | None
    rows: int

    @property
    def plan(self) -> Plan:
        """The budget tree; free where no margin could make a verdict."""
        if self.rule.threshold is None:
            return Plan("direction", children=[Plan("votes", buys="nothing: no margin would stand out of the noise")])
        bought = f"{self.layout.blocks} blocks of about {self.layout.size} records, {self.procedure.name}"
        return Plan("direction", children=[Plan("sum of votes", self.event, buys=bought), Plan("verdict")])

    def run(self, pairs: PairData, *, account: Account, seed: Seed) -> Direction:
        """Let the blocks vote and answer."""
        terms: dict[str, Any] = {
            "plan": self.plan,
            "procedure": self.procedure,
            "needed": needed_text(self.rows, self.epsilon, self.layout.sensitivity, self.unit),
        }
        if self.rule.threshold is None:
            promise = free_of_charge(
                self.plan,
                relation=self.relation,
                unit=self.unit,
                max_rows_per_person=self.max_rows_per_person,
                for_release=publishable(seed),
            )
            return unanswered(self.x, self.y, self.rule, guarantee=promise, **terms)
        release = votes(
            cast(self.procedure.prefer, self.layout.gather(pairs.batches(), 2)),
            epsilon=self.epsilon,
            assigned_by=self.layout.assigned_by,
            relation=self.relation,
            unit=self.unit,
            max_rows_per_person=self.max_rows_per_person,
            account=account,
            seed=seed,
            purpose="sum of votes",
        )
        return verdict_of(self.x, self.y, release.value.value, self.rule, guarantee=release.guarantee, **terms)


def prepare(asked: Asked) -> PreparedVotes:
    """Choose blocks, procedure and noise from public facts; δ is not needed.

    Options:
        abstain: "cannot tell" unless the margin exceeds this part of the blocks, in [0, 1); 0 always answers. Leave it
            out for the rule of this module.
        blocks: How many blocks, if not by the rule of ``_layout.py``.
        shuffle: The public seed of the assignment; choose it before you look at any data.

    Raises:
        InputError: If an option is unknown or out of range, or there are too few rows for any blocks.
        SchemaError: If a column is so coarse by its schema that every block would vote 0.
    """
    chosen = check_options("votes", asked.options, OPTIONS)
    schema, relation, unit = asked.schema, asked.relation, asked.unit
    for name in (asked.x, asked.y):
        scored_column(schema, name, fewest=FEWEST_DISTINCT)
    procedure = procedure_of(asked.score)
    layout = layout_of(
        epsilon=asked.epsilon,
        rows=asked.rows,
        relation=relation,
        unit=unit,
        blocks=chosen["blocks"],
        shuffle=chosen["shuffle"],
    )
    assert asked.rows is not None
    # A rehearsal with public votes: the event depends on the budget alone.
    event = votes(
        np.zeros(1, dtype=np.int64),
        epsilon=asked.epsilon,
        assigned_by=layout.assigned_by,
        relation=relation,
        unit=unit,
        max_rows_per_person=schema.max_rows_per_person,
        seed=0,
    ).event
    assert isinstance(event, LaplaceEvent)
    return PreparedVotes(
        x=asked.x,
        y=asked.y,
        layout=layout,
        procedure=procedure,
        rule=rule_of(layout.blocks, event.scale, chosen["abstain"]),
        event=event,
        epsilon=asked.epsilon,
        relation=relation,
        unit=unit,
        max_rows_per_person=schema.max_rows_per_person,
        rows=asked.rows,
    )
