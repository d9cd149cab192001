"""Attribute inference: the attacker knows all of a record but one value, and wants that one.

Two figures answer two questions. *How often is the guess right?* says little by itself: a guess from other people's
rows is right just as often, and no promise forbids it. *Does it depend on whether the record says so?* is the effect of
the value: do(Dᵢ = record with value a) against do(Dᵢ = record with value b), an experiment like the membership game.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._card import CUSTODIAN_ONLY, card
from escudo._progress import tracking
from escudo._validate import positive_integer, probability, whole
from escudo.attacks._ceiling import Ceiling, ceiling_of
from escudo.attacks._features import distances
from escudo.attacks._game import Game
from escudo.attacks._targets import Choice, choose
from escudo.attacks._trials import Trials
from escudo.attacks._victims import Victim
from escudo.auditing import Audit
from escudo.errors import InputError
from escudo.privacy import Guarantee
from escudo.table import Categorical, Schema
from escudo.utility import Rows
from escudo.utility._jobs import checked_jobs

__all__ = ["AttributeAttack", "infer_attribute"]

_NEAREST = 25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttributeAttack:
    """Whether synthetic rows give away one value of one person's record. For the custodian only.

    Attributes:
        attribute: The column.
        right: How often the guess, the commonest value of the nearest synthetic rows, is the record's value. It and
            the next two are NaN where so few fits were made that all were of one world.
        without: How often it would have been, had the record said otherwise: what other people's rows give away.
        advantage: The difference: what the record's own value gives away.
        audits: One experiment for each target.
        claim: What the generator promises; None if nothing.
        ceiling: The most that the promise allows ``advantage`` to be; None without one.
        fits: How many fits were tested in all; fewer than asked for where the answer was clear before.
    """

    attribute: str
    right: float
    without: float
    advantage: float
    audits: tuple[Audit, ...]
    claim: Guarantee | None
    ceiling: Ceiling | None
    fits: int

    @property
    def violated(self) -> bool:
        """Whether the claim is rejected for some target."""
        return self.claim is not None and any(found.violated for found in self.audits)

    @property
    def epsilon_lower(self) -> float:
        """The generator's ε is at least this, at the stated confidence, over all targets together."""
        return max(found.epsilon_lower for found in self.audits)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "custodian_only": True,
            "attribute": self.attribute,
            **{
                name: None if math.isnan(figure := getattr(self, name)) else figure
                for name in ("right", "without", "advantage")
            },
            "violated": self.violated,
            "epsilon_lower": self.epsilon_lower,
            "ceiling": None if self.ceiling is None else self.ceiling.to_json(),
            "fits": self.fits,
        }

    def __str__(self) -> str:
        allowed = "" if self.ceiling is None else f"; the promise allows {100 * self.ceiling.advantage:.1f} points"
        return (
            f"{self.attribute}: guessed right in {100 * self.right:.1f} % of fits, and in {100 * self.without:.1f} % "
            f"when the record said otherwise: its own value gives away {100 * self.advantage:+.1f} points{allowed}"
        )

    def _repr_html_(self) -> str:
        people = f"{len(self.audits)} {'person' if len(self.audits) == 1 else 'people'}"
        return card(f"Attribute attack on {people}", str(self), note=CUSTODIAN_ONLY, alarm=self.violated)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Asker:
    """An attacker who knows all of a record but one value, and asks the synthetic rows nearest in all others."""

    target: Rows
    place: int

    def __call__(self, synthetic: Rows, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
        """Return the share of the true value among the nearest synthetic rows, and whether it is their commonest."""
        known = np.delete(np.arange(len(synthetic.schema)), self.place)
        apart = distances(_narrowed(self.target, known), _narrowed(synthetic, known))
        nearest = np.argsort(apart + rng.random(apart.size) * 1e-6)[:_NEAREST]
        true = int(self.target.codes[0, self.place])
        votes = np.bincount(synthetic.codes[nearest, self.place], minlength=true + 1)
        guess = rng.choice(np.flatnonzero(votes == votes.max()))
        return {"neighbours": np.array([votes[true] / len(nearest), float(guess == true)])}


def infer_attribute(
    victim: Victim,
    rows: object,
    schema: Schema,
    attribute: str,
    *,
    targets: int = 5,
    choice: Choice | Sequence[int] = "outliers",
    fits: int = 200,
    size: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int | None = None,
) -> AttributeAttack:
    """Find out how much of one value of a record its own presence gives away. For the custodian only.

    Args:
        victim: The generator, from :func:`victim_of`.
        rows: The private rows; a frame of any engine.
        schema: Their public description.
        attribute: The categorical column that the attacker wants.
        targets: How many people to attack.
        choice: Who they are.
        fits: Fits for each of them, at most.
        size: Synthetic rows looked at; as many as a fit gets by default.
        confidence: Of the bounds, over all targets together.
        seed: Repeats the attack.
        jobs: How many processes, as in joblib.
    """
    column = schema[attribute]
    if not isinstance(column, Categorical):
        raise InputError(f"attribute must be a categorical column; {attribute!r} is numeric.")
    if column.size < 2 or len(schema) < 2:
        raise InputError("there is nothing to infer: the column has one level, or there is no other column.")
    runs = positive_integer("fits", fits)
    probability("confidence", confidence, allow_zero=False)
    processes = checked_jobs(jobs)
    rng = np.random.default_rng(whole("seed", seed))
    private = Rows.read(rows, schema, argument="rows")
    place = private.schema.names.index(attribute)
    every = np.arange(len(private))
    people = choose(private, targets, choice, rng)
    audits, right, without, made = [], [], [], 0
    with tracking("Attacking", total=len(people) * runs) as advance:
        for row in people:
            target, rest = private.take(every == row), private.take(every != row)
            codes = target.codes.copy()
            codes[0, place] = (codes[0, place] + 1 + rng.integers(column.size - 1)) % column.size
            game = Game(
                victim=victim,
                eye=_Asker(target=target, place=place),
                rest=rest,
                target=target,
                instead=Rows(schema=target.schema, codes=codes, numbers=target.numbers),
                rows=len(rest),
                size=len(rest) if size is None else positive_integer("size", size),
                jobs=processes,
                label=f"row {row}",
            )
            tested = Trials(game, lambda seen: seen["neighbours"], trials=runs, rng=rng, advance=advance)
            level = 1 - (1 - confidence) / len(people)
            audits.append(tested.audited(confidence=level, seed=int(rng.integers(2**31))))
            there, guessed = np.array(tested.there), np.array(tested.scores)[:, 1]
            made += there.size
            if there.any() and not there.all():  # one side alone says nothing about a difference
                right.append(float(guessed[there].mean()))
                without.append(float(guessed[~there].mean()))
    often, otherwise = (float(np.mean(side)) if side else math.nan for side in (right, without))
    return AttributeAttack(
        attribute=attribute,
        right=often,
        without=otherwise,
        advantage=often - otherwise,
        audits=tuple(audits),
        claim=victim.claim,
        ceiling=None if victim.claim is None else ceiling_of(victim.claim, "replace_one"),
        fits=made,
    )


def _narrowed(rows: Rows, places: NDArray[np.int64]) -> Rows:
    return Rows(
        schema=rows.schema.select([rows.schema.names[place] for place in places]),
        codes=rows.codes[:, places],
        numbers=rows.numbers[:, places],
    )
