r"""Laplace and Gaussian noise on whole arrays, discrete, on a public grid.

Two of their signs say which way it goes: that of a private gap, and that of the majority of private blocks.

**Second moments**, sums of z zᵀ over rows of bounded length, are exact whatever the order of the rows. A row enters as
whole numbers of some public step, computed from that row alone. Products of whole numbers add up exactly, so neither
the order of the rows nor the engine that gives them can change the sum: it depends on the rows as a multiset, and a
neighbour's sum differs by the changed rows' own terms.

**Sensitivity**, in the Frobenius norm, for rows with :math:`\|z\|^2 \le L`. One row adds a matrix of norm
:math:`\|z\|^2 \le L`. Replacing it takes away one such matrix and adds another, and as
:math:`\langle z z^T, z' z'^T \rangle = (z \cdot z')^2 \ge 0`,

.. math:: \|z z^T - z' z'^T\|^2 \;\le\; \|z\|^4 + \|z'\|^4 \;\le\; 2 L^2 .

A person with at most k rows adds a positive semidefinite matrix of norm at most kL, and the inner product of two such
matrices is not negative either. So the sum moves by at most L times what one table of counts does
(:func:`~escudo.table.count_sensitivity`), for either relation and unit; rows of squared length L that are orthogonal
attain it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import one_of, positive
from escudo.errors import InputError
from escudo.mechanisms._noise import Integers, Seed, Statistic, Wanted, laplace_tail, read_statistic, unknown
from escudo.mechanisms._purse import Noisy, Purse, Release, ReleaseOptions, opened
from escudo.privacy import Account, GaussianEvent, LaplaceEvent, NeighbourOptions, parse_relation


def laplace(
    values: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    **terms: Unpack[ReleaseOptions],
) -> Release[Noisy]:
    r"""Release numbers with Laplace noise, drawn exactly on a public grid.

    Every coordinate v becomes :math:`g\,(\lfloor v/g + 1/2 \rfloor + Z)`, with :math:`P(Z = k) \propto e^{-|k|/s}` on
    the integers. With ``epsilon`` the scale is :math:`s = Δ_g / ε`, where :math:`Δ_g` is the l1 sensitivity *after*
    rounding, in grid steps; with ``scale`` the cost is :math:`ε = Δ_g\, g / \mathrm{scale}`.

    Args:
        values: A number or an array of any shape; all of it is one release. Integers (by type, not by value) are
            released as integers with grid 1. Real numbers must be finite; beyond ±2⁶² grid steps they are clamped.
        sensitivity: Most that ``values`` move in l1 norm, summed over all coordinates, between neighbours.
        epsilon: What the release may cost; give this or ``scale``.
        scale: Scale of the noise in the values' units.
        grid: Step of the public grid for real numbers, a power of two; by default derived from ``sensitivity``, the
            noise and the number of coordinates, and so fine that rounding costs less than one part in 10⁵.
        terms: How it is paid for and drawn, and between which tables ``sensitivity`` is stated: account, seed, purpose,
            relation, unit (:class:`ReleaseOptions`).

    Returns:
        The noisy numbers in the shape they came, with guarantee and :class:`~escudo.privacy.LaplaceEvent`.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private for the stated relation and unit, exactly. *Proof.* Rounding moves
    neighbours apart by at most Δ_g steps in l1 (:mod:`escudo.mechanisms._noise`, which also covers floating point
    errors of up to half a grid step in each value). For integers k, k′ the ratio of the masses is at most
    :math:`\prod_i e^{|k_i - k'_i|/s} \le e^{Δ_g/s}`.

    **Reference.** C. Dwork et al. (2006), "Calibrating noise to sensitivity", Proposition 1; A. Ghosh, T. Roughgarden,
    M. Sundararajan (2012), "Universally utility-maximizing privacy mechanisms", for the discrete law.

    >>> release = laplace([120, 80], sensitivity=2, epsilon=1.0, seed=0)
    >>> release.value.dtype, release.event.scale >= 2.0, release.guarantee.for_release
    (dtype('int64'), True, False)
    """
    statistic, (purse, stated) = read_statistic("values", values), opened(terms, "Laplace mechanism")
    event = _laplace(statistic, sensitivity, epsilon, scale, grid, stated)
    return purse.release(purse.add_statistic(statistic, event), event)


def laplace_event(
    size: int,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    integers: bool = False,
    **terms: Unpack[NeighbourOptions],
) -> LaplaceEvent:
    """Return the event of :func:`laplace` on ``size`` numbers, before they are known: for plans.

    Args:
        size: How many numbers there will be.
        sensitivity: As in :func:`laplace`, like all that follow.
        epsilon: What the release may cost; give this or ``scale``.
        scale: Scale of the noise.
        grid: Step of the public grid for real numbers.
        integers: Whether the numbers will be integers by type.
        terms: Between which tables.

    Raises:
        InputError: If an argument is out of range.

    >>> event = laplace_event(3, sensitivity=2.0, scale=4.0, integers=True)
    >>> event.l1_sensitivity, event.scale, event.grid, event.dimensions
    (2.0, 4.0, 1.0, 3)
    """
    return _laplace(unknown(size, integers), sensitivity, epsilon, scale, grid, terms)


def _laplace(
    statistic: Statistic,
    sensitivity: float,
    epsilon: float | None,
    scale: float | None,
    grid: float | None,
    terms: NeighbourOptions,
) -> LaplaceEvent:
    delta, (ratio, scale) = positive("sensitivity", sensitivity), _one_of_two("epsilon", epsilon, scale)
    noise = statistic.noise(delta, "l1", Wanted(ratio, scale, grid))
    return LaplaceEvent(
        l1_sensitivity=noise.moved * noise.step,
        scale=noise.scale * noise.step,  # exact, like all products and quotients with the grid: it is a power of two
        grid=noise.step,
        dimensions=statistic.size,
        **terms,
    )


def gaussian(
    values: ArrayLike,
    *,
    l2_sensitivity: float,
    rho: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    changed_cells: int | None = None,
    **terms: Unpack[ReleaseOptions],
) -> Release[Noisy]:
    r"""Release numbers with Gaussian noise, drawn exactly on a public grid.

    Every coordinate v becomes :math:`g\,(\lfloor v/g + 1/2 \rfloor + Z)`, with :math:`P(Z = k) \propto e^{-k^2/2σ^2}`
    on the integers. With ``rho`` the scale is :math:`σ = Δ_g / \sqrt{2ρ}`, where :math:`Δ_g` is the l2 sensitivity
    *after* rounding, in grid steps.

    Args:
        values: A number or an array of any shape; all of it is one release. Integers (by type, not by value) are
            released as integers with grid 1. Real numbers must be finite; beyond ±2⁶² grid steps they are clamped.
        l2_sensitivity: Most that ``values`` move in l2 norm between neighbours.
        rho: What the release may cost in zero-concentrated differential privacy; give this or ``scale``.
        scale: Standard deviation of the noise in the values' units.
        grid: Step of the public grid for real numbers, a power of two; derived from public numbers by default.
        changed_cells: For tables of counts: how many cells at most differ between neighbours, each by one. It sharpens
            the accounting (exact privacy loss of the discrete law); integers only.
        terms: How it is paid for and drawn, and between which tables ``l2_sensitivity`` is stated: account, seed,
            purpose, relation, unit (:class:`ReleaseOptions`).

    Returns:
        The noisy numbers in the shape they came, with guarantee and :class:`~escudo.privacy.GaussianEvent`.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ρ-zCDP for the stated relation and unit, exactly, with :math:`ρ = Δ_g^2 / 2σ^2`. *Proof.* For integer
    shifts the discrete Gaussian's Rényi divergence of order α is at most :math:`α k^2 / 2σ^2` (Poisson summation); over
    independent coordinates these add to :math:`α \|k\|_2^2 / 2σ^2`, and :math:`\|k\|_2 \le Δ_g` after rounding
    (:mod:`escudo.mechanisms._noise`).

    **Reference.** C. Canonne, G. Kamath, T. Steinke (2020), arXiv:2004.00010v5, Theorem 14 and Proposition 5.

    >>> release = gaussian(3.7, l2_sensitivity=0.5, rho=0.125, seed=0)
    >>> round(release.event.scale, 3)
    1.0
    """
    statistic, (purse, stated) = read_statistic("values", values), opened(terms, "Gaussian mechanism")
    event = _gaussian(statistic, l2_sensitivity, rho, scale, grid, changed_cells, stated)
    return purse.release(purse.add_statistic(statistic, event), event)


def gaussian_event(
    size: int,
    *,
    l2_sensitivity: float,
    rho: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    changed_cells: int | None = None,
    integers: bool = False,
    **terms: Unpack[NeighbourOptions],
) -> GaussianEvent:
    """Return the event of :func:`gaussian` on ``size`` numbers, before they are known: for plans.

    Args:
        size: How many numbers there will be.
        l2_sensitivity: As in :func:`gaussian`, like all that follow.
        rho: What the release may cost; give this or ``scale``.
        scale: Standard deviation of the noise.
        grid: Step of the public grid for real numbers.
        changed_cells: For tables of counts.
        integers: Whether the numbers will be integers by type.
        terms: Between which tables.

    Raises:
        InputError: If an argument is out of range.

    >>> event = gaussian_event(3, l2_sensitivity=1.0, scale=4.0, integers=True)
    >>> event.l2_sensitivity, event.scale, event.grid, event.changed_cells
    (1.0, 4.0, 1.0, None)
    """
    return _gaussian(unknown(size, integers), l2_sensitivity, rho, scale, grid, changed_cells, terms)


def _gaussian(
    statistic: Statistic,
    l2_sensitivity: float,
    rho: float | None,
    scale: float | None,
    grid: float | None,
    changed_cells: int | None,
    terms: NeighbourOptions,
) -> GaussianEvent:
    delta, (cost, scale) = positive("l2_sensitivity", l2_sensitivity), _one_of_two("rho", rho, scale)
    if changed_cells is not None and not statistic.exact:
        raise InputError("changed_cells describes tables of counts; pass integers, or leave it out.")
    ratio = None if cost is None else math.sqrt(2 * cost)
    noise = statistic.noise(delta, "l2", Wanted(ratio, scale, grid), name="l2_sensitivity")
    moved, scaled = noise.moved * noise.step, noise.scale * noise.step
    return GaussianEvent(l2_sensitivity=moved, scale=scaled, grid=noise.step, changed_cells=changed_cells, **terms)


def as_planned(
    values: ArrayLike,
    event: LaplaceEvent | GaussianEvent,
    *,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str,
) -> Release[Noisy]:
    """Release integers with the very noise that a plan's event states.

    Args:
        values: Integers, by type, of any shape; all of it is one release.
        event: What was planned for them, as :func:`laplace_event` or :func:`gaussian_event` gives it for integers.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

    Returns:
        The noisy integers in the shape they came, with the guarantee of the event.

    Raises:
        InputError: If the values are no integers, or not as many as the event is for; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** That of :func:`laplace` or :func:`gaussian`, if the event's sensitivity is that of the values.

    >>> event = laplace_event(2, sensitivity=2, epsilon=1.0, integers=True)
    >>> as_planned([120, 80], event, seed=0, purpose="counts").event == event
    True
    """
    purse = Purse(account, seed)
    return purse.release(purse.add(values, event, purpose), event)


def _one_of_two(name: str, cost: float | None, scale: float | None) -> tuple[float | None, float | None]:
    if (cost is None) == (scale is None):
        raise InputError(f"give either {name} or scale: {name} is what the release may cost, scale is the noise.")
    return None if cost is None else positive(name, cost), None if scale is None else positive("scale", scale)


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
    **terms: Unpack[ReleaseOptions],
) -> Release[Verdict]:
    r"""Release the sign of a difference of scores, and the noisy difference with it.

    Releases gap + Laplace noise of scale Δ/ε and reads the sign off. It is right with probability
    :math:`1 - \tfrac12 e^{-x}`, :math:`x = |\mathrm{gap}|\,ε/Δ` (up to one grid step).

    Args:
        gap: The private difference, such as a score of one hypothesis minus that of the other.
        sensitivity: Most that the *gap* moves between neighbours: twice that of a score, if both scores can move fully.
        epsilon: What the release may cost.
        grid: Step of the public grid, a power of two; derived from public numbers by default.
        terms: How it is paid for and drawn, and between which tables ``sensitivity`` is stated: account, seed, purpose,
            relation, unit (:class:`ReleaseOptions`).

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
    statistic, (purse, stated) = read_statistic("gap", float(gap)), opened(terms, "sign of a gap")
    event = _laplace(statistic, sensitivity, epsilon, None, grid, stated)
    return purse.release(verdict(purse.add_statistic(statistic, event), event), event)


def votes(
    block_votes: ArrayLike,
    *,
    epsilon: float,
    assigned_by: Literal["position", "value"] = "position",
    **terms: Unpack[ReleaseOptions],
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
        terms: How it is paid for and drawn, and between which tables: account, seed, purpose, relation, unit
            (:class:`ReleaseOptions`). All rows of a person must lie in one block.

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
    purse, stated = opened(terms, "votes over disjoint blocks")
    event = votes_event(epsilon=epsilon, assigned_by=assigned_by, **stated)
    return purse.release(verdict(purse.add(sum_of_votes(block_votes), event), event), event)


def votes_event(
    *, epsilon: float, assigned_by: Literal["position", "value"] = "position", **terms: Unpack[NeighbourOptions]
) -> LaplaceEvent:
    """Return the event of :func:`votes`, before any is cast: for plans.

    Raises:
        InputError: If an argument is out of range, or blocks are cut by position under ``add_remove``.
    """
    by_value = one_of("assigned_by", assigned_by, ("position", "value")) == "value"
    replacing = parse_relation(terms.get("relation", "replace_one")) == "replace_one"
    if not (by_value or replacing):
        raise InputError(
            "blocks cut by position shift when a record is added or removed; assign records to blocks by a rule that "
            "looks at the record alone and say assigned_by='value', or use relation='replace_one'."
        )
    return _laplace(unknown(1, integers=True), 4 if by_value and replacing else 2, epsilon, None, None, terms)


def sum_of_votes(block_votes: ArrayLike) -> int:
    """Return the sum of votes, which is private.

    Raises:
        InputError: If a vote is not -1, 0 or 1, or there is none.
    """
    cast = np.asarray(block_votes)
    if cast.ndim != 1 or not cast.size:
        raise InputError("block_votes must be a one-dimensional array with at least one vote.")
    if cast.dtype.kind != "i" or not np.isin(cast, (-1, 0, 1)).all():
        raise InputError("block_votes must be integers in {-1, 0, 1}; a block that fails or cannot tell votes 0.")
    return int(cast.sum())


def gap_event(
    *, sensitivity: float, epsilon: float, grid: float | None = None, **terms: Unpack[NeighbourOptions]
) -> LaplaceEvent:
    """Return the event of :func:`gap_sign`, before the gap is known: for plans."""
    return _laplace(unknown(1, integers=False), sensitivity, epsilon, None, grid, terms)


def verdict(noisy: Noisy, event: LaplaceEvent) -> Verdict:
    """Return what the sign of a noisy number is worth, by the noise that the event states."""
    value = float(noisy)
    steps = round(abs(value) / event.grid)
    return Verdict(
        sign=1 if value > 0 else -1 if value < 0 else 0,
        value=value,
        doubt=laplace_tail(steps, event.scale / event.grid),
    )


_SHRINK = 1 - 2.0**-40  # outweighs the rounding errors of the factor that shrinks a row


def bounded_rows(rows: NDArray[np.float64], limit: int) -> NDArray[np.float64]:
    """Return rows as whole numbers, rounded towards zero, each with a squared length of at most ``limit``, exactly.

    Longer ones are shrunk. *Proof.* Such a row is multiplied by a factor a hair below the one that makes it as long as
    the limit, by more than rounding errors amount to, and rounding towards zero makes no number larger. Of the others
    the squared length is at most ``limit`` up to a rounding error below 1, and after rounding it is a whole number.

    Args:
        rows: Finite numbers in steps, of shape (rows, columns).
        limit: The largest squared length; times the number of columns it is below 2⁵².

    Returns:
        Whole numbers as float64, of the same shape; each row is a function of that row alone.

    >>> bounded_rows(np.array([[3.0, 4.9], [30.0, 40.0]]), 50).tolist()
    [[3.0, 4.0], [4.0, 5.0]]
    """
    squared = (rows * rows).sum(axis=1)
    factor = np.ones(len(rows))
    long = squared > limit
    factor[long] = np.sqrt(limit / squared[long]) * _SHRINK
    whole: NDArray[np.float64] = np.trunc(rows * factor[:, None])
    return whole


def second_moments(batches: Iterable[NDArray[np.float64]], side: int) -> Integers:
    """Return the sum of z zᵀ over rows of whole numbers, exactly.

    Args:
        batches: Arrays of shape (rows, side) that hold whole numbers as float64. The sum of products over a batch must
            stay below 2⁵³, and over all of them below 2⁶³.
        side: How many numbers a row has.

    Returns:
        An array of shape (side, side).
    """
    total = np.zeros((side, side), dtype=np.int64)
    for rows in batches:
        total += (rows.T @ rows).astype(np.int64)
    return total
