"""From a released margin to an answer: when there is a verdict, and what is said where there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from escudo._validate import probability
from escudo.orientation._answer import CANNOT_TELL, Direction, arrow
from escudo.orientation._planning import Law, epsilon_needed, least_margin, rows_needed, sign_probability
from escudo.orientation._procedures import Procedure
from escudo.privacy import Guarantee, Plan, Relation, Unit

__all__ = ["DISAGREEMENT", "Rule", "free_of_charge", "needed_text", "rule_of", "unanswered", "verdict_of"]

DISAGREEMENT = 0.2
"""By default the margin must exceed this part of the blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a released margin makes a verdict.

    Attributes:
        blocks: How many vote.
        scale: Scale of the noise on their sum: of the Laplace law, or the Gaussian's standard deviation.
        law: Which of the two.
        threshold: The margin must be larger than this in size; None if none could ever be sure enough.
    """

    blocks: int
    scale: float
    law: Law
    threshold: float | None


def rule_of(blocks: int, scale: float, abstain: float | None, *, law: Law = "laplace") -> Rule:
    """Return when a margin makes a verdict.

    Args:
        blocks: How many vote.
        scale: Scale of the noise.
        abstain: The margin must exceed this part of the blocks, in [0, 1); None for the default: its sign must be sure
            enough in spite of the noise, and it must exceed a fifth of the blocks.
        law: The law of the noise.
    """
    if abstain is not None:
        return Rule(blocks=blocks, scale=scale, law=law, threshold=probability("abstain", abstain) * blocks)
    least = least_margin(blocks, scale, law=law)
    threshold = None if least is None else max(DISAGREEMENT * blocks, least - 1.0)
    return Rule(blocks=blocks, scale=scale, law=law, threshold=threshold)


def needed_text(rows: int, epsilon: float, sensitivity: float, unit: Unit) -> str:
    """Return what a clear pair would need, in a sentence.

    Args:
        rows: The public number of rows, or of people.
        epsilon: What one pair costs.
        sensitivity: How far one record or person moves a sum of votes.
        unit: Whether rows or people are counted.
    """
    wanted = rows_needed(epsilon, sensitivity=sensitivity)
    if wanted <= rows:
        return "A clear pair would have stood out."
    many = "people" if unit == "person" else "rows"
    enough = epsilon_needed(rows, sensitivity=sensitivity)
    return f"A clear pair needs about N = {wanted:,} {many} at this ε, or about ε = {enough:.3g} per pair with these."


def verdict_of(
    x: str,
    y: str,
    margin: float,
    rule: Rule,
    *,
    guarantee: Guarantee,
    plan: Plan,
    procedure: Procedure,
    needed: str,
) -> Direction:
    """Return the answer that a released margin gives; all of it is post-processing."""
    assert rule.threshold is not None
    sure = abs(margin) > rule.threshold
    blocks = float(rule.blocks)
    notes = [f"{rule.blocks} blocks voted: {procedure.description}."]
    if not sure:
        why = "inside the noise" if rule.threshold > DISAGREEMENT * blocks else "the blocks disagree"
        notes.append(f"The margin is not above {rule.threshold:.3g}: {why}. {needed}")
    return Direction(
        x=x,
        y=y,
        verdict=CANNOT_TELL if not sure else arrow(x, y) if margin > 0 else arrow(y, x),
        margin=margin,
        probability_correct=sign_probability(margin, rule.blocks, rule.scale, law=rule.law),
        guarantee=guarantee,
        method="votes",
        score=procedure.name,
        plan=plan,
        scores={
            arrow(x, y): float(np.clip((blocks + margin) / 2, 0, blocks)),
            arrow(y, x): float(np.clip((blocks - margin) / 2, 0, blocks)),
        },
        scores_mean="blocks that prefer this direction, estimated from the noisy margin; more is better",
        noise_scale=rule.scale,
        largest_margin=blocks,
        threshold=rule.threshold,
        notes=tuple(notes),
    )


def free_of_charge(
    plan: Plan, *, relation: Relation, unit: Unit, max_rows_per_person: int | None, for_release: bool
) -> Guarantee:
    """Return the promise where nothing is released, to those whom the question was about."""
    return replace(
        plan.guarantee(),
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
        for_release=for_release,
        source=None,
    )


def unanswered(
    x: str, y: str, rule: Rule, *, guarantee: Guarantee, plan: Plan, procedure: Procedure, needed: str
) -> Direction:
    """Return the answer where no margin could make a verdict: nothing was read, released or spent."""
    return Direction(
        x=x,
        y=y,
        verdict=CANNOT_TELL,
        margin=0.0,
        probability_correct=0.5,
        guarantee=guarantee,
        method="votes",
        score=procedure.name,
        plan=plan,
        largest_margin=float(rule.blocks),
        notes=(
            f"Even if all {rule.blocks} blocks agreed, their sum would drown in noise of scale {rule.scale:.3g}.",
            needed,
        ),
    )
