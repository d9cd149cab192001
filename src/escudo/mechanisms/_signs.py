"""Which way it goes: the sign of a private gap, and the majority of private blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from escudo._validate import one_of
from escudo.errors import InputError
from escudo.mechanisms._additive import laplace
from escudo.mechanisms._noise import Seed, laplace_tail
from escudo.mechanisms._release import Release, mapped
from escudo.privacy import Account, Event, LaplaceEvent, Relation, Unit, parse_relation

__all__ = ["Verdict", "gap_sign", "votes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    r"""A noisy number and what its sign is worth, all of it computed from the released number.

    Attributes:
        sign: 1, -1, or 0 where the noisy number is exactly 0.
        value: The noisy number.
        doubt: If the private number were 0 or of the other sign, noise alone would have shown ``sign`` at least this
            strongly with at most this probability: :math:`P(Z \ge |\mathrm{value}|/g)`. A p-value for the sign, not the
            probability that it is wrong.
    """

    sign: Literal[-1, 0, 1]
    value: float
    doubt: float


def gap_sign(
    gap: float,
    *,
    sensitivity: float,
    epsilon: float,
    grid: float | None = None,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "sign of a gap",
) -> Release[Verdict]:
    r"""Release the sign of a difference of scores, and the noisy difference with it.

    Releases gap + Laplace noise of scale Δ/ε and reads the sign off. It is right with probability
    :math:`1 - \tfrac12 e^{-x}`, :math:`x = |\mathrm{gap}|\,ε/Δ` (up to one grid step).

    Args:
        gap: The private difference, such as a score of one hypothesis minus that of the other.
        sensitivity: Most that the *gap* moves between neighbours: twice that of a score, if both scores can move fully.
        epsilon: What the release may cost.
        grid: Step of the public grid, a power of two; derived from public numbers by default.
        relation: The neighbouring relation ``sensitivity`` is stated for.
        unit: The unit ``sensitivity`` is stated for.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part; the account's by
            default.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

    Returns:
        The verdict, with guarantee and event.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** That of :func:`laplace`; sign and doubt are functions of what it released. *Why the gap:* two noisy
    scores at the same total err with probability :math:`(\tfrac12 + \tfrac x4) e^{-x}`, the exponential mechanism
    with :math:`1/(1 + e^x)`, both larger; permute-and-flip errs equally and tells less. And no rule that treats both
    signs alike does better, up to rounding: at gap 0 it says each sign with probability 1/2, so if k neighbours lead
    from here to there, :math:`P(\mathrm{wrong}) \ge \tfrac12 e^{-kε}`, and k is x/ε rounded up where steps of size Δ
    exist.

    **Reference.** Design note "sensitivities", Proposition 7(a).

    >>> gap_sign(0.2, sensitivity=0.01, epsilon=1.0, seed=0).value.sign
    1
    """
    if np.ndim(gap) != 0:
        raise InputError("gap must be one number; call gap_sign once per gap.")
    release = laplace(
        float(gap),
        sensitivity=sensitivity,
        epsilon=epsilon,
        grid=grid,
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
        account=account,
        seed=seed,
        purpose=purpose,
    )
    return mapped(release, lambda noisy: _verdict(float(noisy), release.event))


def votes(
    block_votes: ArrayLike,
    *,
    epsilon: float,
    assigned_by: Literal["position", "value"] = "position",
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "votes over disjoint blocks",
) -> Release[Verdict]:
    r"""Release the majority of votes that were cast inside disjoint blocks of records, by any procedure whatever.

    Cut the records into k disjoint blocks, k public; inside block j run anything and let it vote
    :math:`v_j \in \{-1, 0, 1\}`. Releases :math:`\sum_j v_j` + Laplace noise of scale 2/ε and reads the sign off. When
    the sum is V > 0 the sign is right with probability about :math:`1 - \tfrac12 e^{-εV/2}`.

    Args:
        block_votes: One vote per block, integers in {-1, 0, 1}, shape (k,). A block that fails must vote 0, not raise.
        epsilon: What the release may cost.
        assigned_by: How records found their block: ``"position"`` for a public rule that looks at no value, such as the
            row's number; ``"value"`` for a rule that looks at the record alone, such as a public hash of its id.
        relation: Which tables are neighbours.
        unit: Whose data differs between neighbours; all rows of a person must lie in one block.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part; the account's by
            default.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

    Returns:
        The verdict, with guarantee and event; its value is a whole number of votes.

    Raises:
        InputError: If a vote is not -1, 0 or 1, there is none, or blocks are cut by position under ``add_remove``,
            where one more record shifts all records behind it.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private for the whole table, exactly, whatever the blocks computed. *Proof.* One
    record (or person) lies in one block, and a replaced one stays where it was if blocks are cut by position: one
    vote moves, by at most 2. So does adding a record where its values alone choose the block. Where they do and a
    record is replaced, it may leave one block and enter another: two votes move, by at most 4 together, and the noise
    has scale 4/ε.

    **Reference.** Design note "sensitivities", Proposition 13; K. Nissim, S. Raskhodnikova, A. Smith (2007), "Smooth
    sensitivity and sampling", for sample-and-aggregate.

    >>> votes([1] * 30 + [-1] * 4, epsilon=1.0, seed=0).value.sign
    1
    """
    cast = np.asarray(block_votes)
    if cast.ndim != 1 or not cast.size:
        raise InputError("block_votes must be a one-dimensional array with at least one vote.")
    if cast.dtype.kind != "i" or not np.isin(cast, (-1, 0, 1)).all():
        raise InputError("block_votes must be integers in {-1, 0, 1}; a block that fails or cannot tell votes 0.")
    by_value = one_of("assigned_by", assigned_by, ("position", "value")) == "value"
    replacing = parse_relation(relation) == "replace_one"
    if not (by_value or replacing):
        raise InputError(
            "blocks cut by position shift when a record is added or removed; assign records to blocks by a rule that "
            "looks at the record alone and say assigned_by='value', or use relation='replace_one'."
        )
    release = laplace(
        int(cast.sum()),
        sensitivity=4 if by_value and replacing else 2,
        epsilon=epsilon,
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
        account=account,
        seed=seed,
        purpose=purpose,
    )
    return mapped(release, lambda noisy: _verdict(float(noisy), release.event))


def _verdict(value: float, event: Event) -> Verdict:
    assert isinstance(event, LaplaceEvent)
    steps = round(abs(value) / event.grid)
    sign: Literal[-1, 0, 1] = 1 if value > 0 else -1 if value < 0 else 0
    return Verdict(sign=sign, value=value, doubt=laplace_tail(steps, event.scale / event.grid))
