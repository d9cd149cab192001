"""Laplace and Gaussian noise on whole arrays, discrete, on a public grid."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import positive, positive_integer
from escudo.errors import InputError
from escudo.mechanisms._grid import Statistic, check_steps, default_grid, read_statistic, rounded_up
from escudo.mechanisms._noise import NoiseSource, Seed
from escudo.mechanisms._release import Release, bound_on_rows, released
from escudo.privacy import Account, GaussianEvent, LaplaceEvent, Relation, Unit

__all__ = ["Noisy", "as_planned", "gaussian", "gaussian_event", "laplace", "laplace_event"]

Noisy: TypeAlias = int | float | NDArray[np.int64] | NDArray[np.float64]
"""What comes back: of the type and shape of what went in."""


def laplace(
    values: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "Laplace mechanism",
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
        relation: The neighbouring relation ``sensitivity`` is stated for.
        unit: The unit ``sensitivity`` is stated for.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part; the account's by
            default.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

    Returns:
        The noisy numbers in the shape they came, with guarantee and :class:`~escudo.privacy.LaplaceEvent`.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private for the stated relation and unit, exactly. *Proof.* Rounding moves
    neighbours apart by at most Δ_g steps in l1 (:mod:`escudo.mechanisms._grid`, which also covers floating point
    errors of up to half a grid step in each value). For integers k, k′ the ratio of the masses is at most
    :math:`\prod_i e^{|k_i - k'_i|/s} \le e^{Δ_g/s}`.

    **Reference.** C. Dwork et al. (2006), "Calibrating noise to sensitivity", Proposition 1; A. Ghosh, T. Roughgarden,
    M. Sundararajan (2012), "Universally utility-maximizing privacy mechanisms", for the discrete law.

    >>> release = laplace([120, 80], sensitivity=2, epsilon=1.0, seed=0)
    >>> release.value.dtype, release.event.scale >= 2.0, release.guarantee.for_release
    (dtype('int64'), True, False)
    """
    statistic = read_statistic("values", values)
    event = _laplace_event(
        statistic,
        sensitivity=sensitivity,
        epsilon=epsilon,
        scale=scale,
        grid=grid,
        relation=relation,
        unit=unit,
        max_rows_per_person=bound_on_rows(unit, max_rows_per_person, account),
    )

    def draw(noise: NoiseSource) -> Noisy:
        noisy = noise.add_laplace(statistic.steps(event.grid), event.scale / event.grid)
        return statistic.restored(noisy, event.grid)

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def laplace_event(
    size: int,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    integers: bool = False,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
) -> LaplaceEvent:
    """Return the event of :func:`laplace` on ``size`` numbers, before they are known: for plans.

    Args:
        size: How many numbers there will be.
        sensitivity: As in :func:`laplace`, like all that follow.
        epsilon: What the release may cost; give this or ``scale``.
        scale: Scale of the noise.
        grid: Step of the public grid for real numbers.
        integers: Whether the numbers will be integers by type.
        relation: The neighbouring relation.
        unit: The unit.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part.

    Raises:
        InputError: If an argument is out of range.

    >>> event = laplace_event(3, sensitivity=2.0, scale=4.0, integers=True)
    >>> event.l1_sensitivity, event.scale, event.grid, event.dimensions
    (2.0, 4.0, 1.0, 3)
    """
    count = positive_integer("size", size)
    return _laplace_event(
        Statistic(numbers=np.zeros(count, dtype=np.int64) if integers else np.zeros(count)),
        sensitivity=sensitivity,
        epsilon=epsilon,
        scale=scale,
        grid=grid,
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
    )


def _laplace_event(
    statistic: Statistic,
    *,
    sensitivity: float,
    epsilon: float | None,
    scale: float | None,
    grid: float | None,
    relation: Relation,
    unit: Unit,
    max_rows_per_person: int | None,
) -> LaplaceEvent:
    """Return the event of :func:`laplace` on this statistic; of the values only type and shape are looked at."""
    delta = positive("sensitivity", sensitivity)
    goal = _one_of_two("epsilon", epsilon, "scale", scale)
    heading = goal if epsilon is None else delta / goal
    step = default_grid(statistic, sensitivity=delta, scale=heading, norm="l1", grid=grid)
    moved = check_steps("sensitivity", statistic.sensitivity_in_steps(delta, step, "l1"))
    noise_scale = check_steps("the noise scale", goal / step if epsilon is None else rounded_up(moved / goal))
    return LaplaceEvent(
        l1_sensitivity=moved * step,
        scale=noise_scale * step,  # exact, like all products and quotients with the grid: it is a power of two
        grid=step,
        dimensions=statistic.size,
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
    )


def gaussian(
    values: ArrayLike,
    *,
    l2_sensitivity: float,
    rho: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    changed_cells: int | None = None,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "Gaussian mechanism",
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
        relation: The neighbouring relation ``l2_sensitivity`` is stated for.
        unit: The unit ``l2_sensitivity`` is stated for.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part; the account's by
            default.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account.

    Returns:
        The noisy numbers in the shape they came, with guarantee and :class:`~escudo.privacy.GaussianEvent`.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ρ-zCDP for the stated relation and unit, exactly, with :math:`ρ = Δ_g^2 / 2σ^2`. *Proof.* For integer
    shifts the discrete Gaussian's Rényi divergence of order α is at most :math:`α k^2 / 2σ^2` (Poisson summation); over
    independent coordinates these add to :math:`α \|k\|_2^2 / 2σ^2`, and :math:`\|k\|_2 \le Δ_g` after rounding
    (:mod:`escudo.mechanisms._grid`).

    **Reference.** C. Canonne, G. Kamath, T. Steinke (2020), arXiv:2004.00010v5, Theorem 14 and Proposition 5.

    >>> release = gaussian(3.7, l2_sensitivity=0.5, rho=0.125, seed=0)
    >>> round(release.event.scale, 3)
    1.0
    """
    statistic = read_statistic("values", values)
    event = _gaussian_event(
        statistic,
        l2_sensitivity=l2_sensitivity,
        rho=rho,
        scale=scale,
        grid=grid,
        changed_cells=changed_cells,
        relation=relation,
        unit=unit,
        max_rows_per_person=bound_on_rows(unit, max_rows_per_person, account),
    )

    def draw(noise: NoiseSource) -> Noisy:
        noisy = noise.add_gaussian(statistic.steps(event.grid), event.scale / event.grid)
        return statistic.restored(noisy, event.grid)

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def gaussian_event(
    size: int,
    *,
    l2_sensitivity: float,
    rho: float | None = None,
    scale: float | None = None,
    grid: float | None = None,
    changed_cells: int | None = None,
    integers: bool = False,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
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
        relation: The neighbouring relation.
        unit: The unit.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part.

    Raises:
        InputError: If an argument is out of range.

    >>> event = gaussian_event(3, l2_sensitivity=1.0, scale=4.0, integers=True)
    >>> event.l2_sensitivity, event.scale, event.grid, event.changed_cells
    (1.0, 4.0, 1.0, None)
    """
    count = positive_integer("size", size)
    return _gaussian_event(
        Statistic(numbers=np.zeros(count, dtype=np.int64) if integers else np.zeros(count)),
        l2_sensitivity=l2_sensitivity,
        rho=rho,
        scale=scale,
        grid=grid,
        changed_cells=changed_cells,
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
    )


def _gaussian_event(
    statistic: Statistic,
    *,
    l2_sensitivity: float,
    rho: float | None,
    scale: float | None,
    grid: float | None,
    changed_cells: int | None,
    relation: Relation,
    unit: Unit,
    max_rows_per_person: int | None,
) -> GaussianEvent:
    """Return the event of :func:`gaussian` on this statistic; of the values only type and shape are looked at."""
    delta = positive("l2_sensitivity", l2_sensitivity)
    goal = _one_of_two("rho", rho, "scale", scale)
    heading = goal if rho is None else delta / math.sqrt(2 * goal)
    step = default_grid(statistic, sensitivity=delta, scale=heading, norm="l2", grid=grid)
    if changed_cells is not None and not statistic.exact:
        raise InputError("changed_cells describes tables of counts; pass integers, or leave it out.")
    moved = check_steps("l2_sensitivity", statistic.sensitivity_in_steps(delta, step, "l2"))
    noise_scale = check_steps(
        "the noise scale", goal / step if rho is None else rounded_up(moved / math.sqrt(2 * goal))
    )
    return GaussianEvent(
        l2_sensitivity=moved * step,
        scale=noise_scale * step,
        grid=step,
        changed_cells=changed_cells,
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
    )


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
    statistic = read_statistic("values", values)
    if not statistic.exact or event.grid != 1:
        raise InputError("values and the event planned for them must be of integers, on the grid 1.")
    if isinstance(event, LaplaceEvent) and event.dimensions != statistic.size:
        raise InputError(f"the event is planned for {event.dimensions} numbers, and values has {statistic.size}.")
    scale = check_steps("the noise scale", event.scale)

    def draw(noise: NoiseSource) -> Noisy:
        add = noise.add_laplace if isinstance(event, LaplaceEvent) else noise.add_gaussian
        return statistic.restored(add(statistic.steps(1.0), scale), 1.0)

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def _one_of_two(first: str, a: float | None, second: str, b: float | None) -> float:
    if (a is None) == (b is None):
        raise InputError(
            f"give either {first} or {second}: {first} is what the release may cost, {second} is the noise."
        )
    return positive(first, a) if a is not None else positive(second, b)
