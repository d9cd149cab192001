"""Attribute inference: the attacker knows all of a record but one value, and wants that one.

Two figures answer two questions. *How often is the guess right?* says little by itself: a guess from other people's
rows is right just as often, and no promise forbids it. *Does it depend on whether the record says so?* is the effect of
the value: do(Dᵢ = record with value a) against do(Dᵢ = record with value b), an experiment like the membership game.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._progress import tracking
from escudo._validate import positive_integer, probability, whole
from escudo.attacks._attack import _between
from escudo.attacks._ceiling import Ceiling, ceiling_of
from escudo.attacks._features import Attacker, _distances
from escudo.attacks._game import Game
from escudo.attacks._moved import RowsWithRecord
from escudo.attacks._targets import Choice, choose
from escudo.attacks._victims import Victim
from escudo.auditing import Audit, audit
from escudo.errors import InputError
from escudo.privacy import Guarantee
from escudo.table import Categorical, Schema
from escudo.utility import Rows

__all__ = ["AttributeAttack", "infer_attribute"]

_NEAREST = 25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttributeAttack:
    """Whether synthetic rows give away one value of one person's record. For the custodian only.

    Attributes:
        attribute: The column.
        right: How often the guess is the record's value, over all fits.
        without: How often it would have been, had the record said otherwise: what other people's rows give away.
        advantage: The difference: what the record's own value gives away.
        audits: One experiment for each target.
        claim: What the generator promises; None if nothing.
        ceiling: The most that the promise allows ``advantage`` to be; None without one.
        fits: How many fits in all.
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
            "right": self.right,
            "without": self.without,
            "advantage": self.advantage,
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


class _Guesses:
    """The fits as a mechanism that an audit can run: which value is in the record, how likely the guess finds it."""

    def __init__(self, game: Game, place: int, value: int, advance: Any):
        self._game, self._place, self._value, self._advance = game, place, value, advance
        self.there: list[bool] = []
        self.shares: list[float] = []

    def __call__(self, there: bool, rng: np.random.Generator) -> float:
        return float(self.batch(there, 1, rng)[0])

    def batch(self, there: bool, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Run fits in one world; return the share of the true value among the nearest synthetic rows of each."""
        seeds = rng.integers(2**62, size=count).tolist()
        found = []
        for sets in self._game.worlds([there] * count, seeds):
            found.append(float(sets[0]["neighbours"][0]))
            self._advance(1)
        self.there += [there] * count
        self.shares += found
        return np.array(found)


@dataclass(kw_only=True, eq=False, repr=False)
class _AttributeGame(Game):
    """A game whose worlds differ in one value, and whose attacker asks the rows nearest in all others."""

    place: int
    value: int

    def world(self, there: bool, seed: int) -> list[dict[str, NDArray[np.float64]]]:
        """Run one fit and return the share of the true value among the nearest synthetic rows."""
        rng = np.random.default_rng(seed)
        rows = RowsWithRecord(rest=self.rest, record=self.target if there else self.instead, counted=self._counted)
        made = self.victim.synthetic(rows, sets=1, size=self.size, seed=int(rng.integers(2**31)))[0]
        known = np.delete(np.arange(len(made.schema)), self.place)
        apart = _distances(_narrowed(self.target, known), _narrowed(made, known))
        nearest = np.argsort(apart + rng.random(apart.size) * 1e-6)[:_NEAREST]
        return [{"neighbours": np.array([float((made.codes[nearest, self.place] == self.value).mean())])}]


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
    """Find out how much of one value of a record its own presence gives away.

    Args:
        victim: The generator, from :func:`victim_of`.
        rows: The private rows; a frame of any engine.
        schema: Their public description.
        attribute: The categorical column that the attacker wants.
        targets: How many people to attack.
        choice: Who they are.
        fits: Fits for each of them.
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
    rng = np.random.default_rng(whole("seed", seed))
    private = Rows.read(rows, schema, argument="rows")
    place = private.schema.names.index(attribute)
    every = np.arange(len(private))
    people = choose(private, targets, choice, rng)
    audits, right, without = [], [], []
    with tracking("Attacking", total=len(people) * runs) as advance:
        for row in people:
            target, rest = private.take(every == row), private.take(every != row)
            value = int(target.codes[0, place])
            codes = target.codes.copy()
            codes[0, place] = (value + 1 + rng.integers(column.size - 1)) % column.size
            game = _AttributeGame(
                victim=victim,
                attacker=Attacker(target=target, reference=rest, queries=()),
                rest=rest,
                target=target,
                instead=Rows(schema=target.schema, codes=codes, numbers=target.numbers),
                rows=len(rest),
                resampled=False,
                sets=1,
                size=len(rest) if size is None else positive_integer("size", size),
                kinds=("neighbours",),
                jobs=jobs,
                place=place,
                value=value,
            )
            guesses = _Guesses(game, place, value, advance)
            claim = victim.claim
            audits.append(
                audit(
                    guesses,
                    claim=Guarantee(epsilon=30.0) if claim is None else _between(claim, "replace_one"),
                    pairs=[(True, False, f"row {row}")],
                    confidence=1 - (1 - confidence) / len(people),
                    max_runs=runs,
                    stop_early=True,
                    seed=int(rng.integers(2**31)),
                    progress=False,
                )
            )
            there, shares = np.array(guesses.there), np.array(guesses.shares)
            right.append(float((shares[there] > 0.5).mean()) if there.any() else 0.0)
            without.append(float((shares[~there] > 0.5).mean()) if (~there).any() else 0.0)
    return AttributeAttack(
        attribute=attribute,
        right=float(np.mean(right)),
        without=float(np.mean(without)),
        advantage=float(np.mean(right) - np.mean(without)),
        audits=tuple(audits),
        claim=victim.claim,
        ceiling=None if victim.claim is None else ceiling_of(victim.claim, "replace_one"),
        fits=runs * len(people),
    )


def _narrowed(rows: Rows, places: NDArray[np.int64]) -> Rows:
    return Rows(
        schema=rows.schema.select([rows.schema.names[place] for place in places]),
        codes=rows.codes[:, places],
        numbers=rows.numbers[:, places],
    )
