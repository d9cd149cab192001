"""Quantiles by the exponential mechanism, from counts on a public grid of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import finite, positive, probability
from escudo.errors import InputError
from escudo.mechanisms._noise import Integers, NoiseSource, Seed
from escudo.mechanisms._release import Release, mapped, released
from escudo.mechanisms._selection import select_scale
from escudo.privacy import Account, Event, ExponentialEvent, Relation, RepeatedEvent, Unit, parse_relation, parse_unit
from escudo.table import Numeric

__all__ = ["cell_utilities", "quantile_cells", "quantile_event", "quantiles"]

_PARTS = 2**20  # probabilities are multiples of 2^-20, so that utilities are whole numbers
_MAX_RECORDS = 2.0**42  # times 2^20 it stays within int64


def quantiles(
    values: ArrayLike,
    probabilities: float | Sequence[float],
    *,
    lower: float,
    upper: float,
    epsilon: float,
    cells: int = 1024,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "quantiles",
) -> Release[NDArray[np.float64]]:
    """Release quantiles of numbers on [lower, upper], to the resolution of a public grid; it always answers.

    The range is cut into ``cells`` cells of equal width and :func:`quantile_cells` picks one cell per probability; the
    middle of the cell is returned.

    Args:
        values: The private numbers, shape (n,). Those outside [lower, upper], infinities included, are clamped; NaN,
            None and what is no number are left out. No value is an error.
        probabilities: Which quantiles, each in [0, 1]; 0.5 is the median.
        lower: Public lower bound.
        upper: Public upper bound.
        epsilon: What all the quantiles together may cost; each costs an equal share.
        cells: How many cells.
        relation: Which tables are neighbours.
        unit: Whose values differ between neighbours.
        max_rows_per_person: With ``unit="person"``: the most values that one person may have among ``values``.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the choice repeatable and not for release.
        purpose: Why, for the account.

    Returns:
        One number per probability, shape (q,); a larger probability never gets a smaller number.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** As :func:`quantile_cells`: clamping and cutting look at one value at a time.

    >>> ages = np.repeat(np.arange(20, 80), 50)
    >>> quantiles(ages, [0.25, 0.75], lower=0, upper=110, epsilon=2.0, cells=110, seed=1).value
    array([34.5, 64.5])
    """
    column = Numeric("values", finite("lower", lower), finite("upper", upper), cells, missing=True)
    counts = np.bincount(column.encode(values), minlength=column.size)
    chosen = quantile_cells(
        counts[: column.bins],
        probabilities,
        epsilon=epsilon,
        relation=relation,
        unit=unit,
        max_rows_per_person=max_rows_per_person,
        account=account,
        seed=seed,
        purpose=purpose,
    )
    return mapped(chosen, column.decode)


def quantile_cells(
    counts: ArrayLike,
    probabilities: float | Sequence[float],
    *,
    epsilon: float,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
    account: Account | None = None,
    seed: Seed = None,
    purpose: str = "quantiles",
) -> Release[Integers]:
    r"""Release which cell of a histogram holds each quantile, by the exponential mechanism.

    Let L_j records lie in cells before j and R_j in cells up to and including j, of m in all. Cell j holds the
    α-quantile if :math:`L_j \le αm \le R_j`; its utility is minus the number of records by which it fails to:

    .. math:: u_j = -\max(0,\; L_j - αm,\; αm - R_j)

    Between records, in an empty cell, this is :math:`-|\#\{v < q\} - αm|`; a cell that many records share is not
    punished for being crowded. Each quantile is chosen with :math:`P(j) \propto e^{ε' u_j / 2Δ}`, :math:`ε' = ε/q`
    for q quantiles. Only counts are needed, so private rows are never sorted and never leave their engine.

    Args:
        counts: Records per cell, in order of the cells, shape (n,): integers, not negative. Records may be in no cell.
        probabilities: Which quantiles, each in [0, 1], rounded to multiples of 2⁻²⁰.
        epsilon: What all the quantiles together may cost; each costs an equal share.
        relation: Which tables are neighbours.
        unit: Whose records differ between neighbours.
        max_rows_per_person: With ``unit="person"``: the most records that one person has.
        account: What to charge, before noise is drawn; None leaves charging to the caller.
        seed: None for a release; a seed makes the choice repeatable and not for release.
        purpose: Why, for the account.

    Returns:
        One cell index per probability, shape (q,); a larger probability never gets an earlier cell.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private, exactly, in integer arithmetic; q events of bounded range ε/q. With at
    most k rows per unit (k = 1 for rows) the sensitivity Δ of every utility is k under ``replace_one`` and k·max(α,
    1-α) under ``add_remove``. *Proof.* A row in some cell adds -α or 1-α to L_j - αm and α or α-1 to αm - R_j; a row
    in none adds 0. So k rows, added or removed, move each term by at most k·max(α, 1-α). Replacing subtracts one sum
    of k such terms and adds another: the difference of two numbers in [-kα, k(1-α)] is at most k in size. A maximum
    of such terms moves no more than the largest.

    **Reference.** A. Smith (2011), "Privacy-preserving statistical estimation with optimal convergence rates",
    Algorithm 2, for the utility between records.

    >>> quantile_cells([0, 900, 100, 0], [0.5, 0.95], epsilon=1.0, seed=3).value
    array([1, 2])
    """
    records = _read_counts(counts)
    parts = _read_probabilities(probabilities)
    event = quantile_event(
        count=len(parts),
        epsilon=epsilon,
        relation=relation,
        unit=parse_unit(unit, max_rows_per_person),
        max_rows_per_person=max_rows_per_person,
    )
    share = _share(epsilon, len(parts))
    rows = max_rows_per_person or 1
    choices = [
        select_scale(
            cell_utilities(records, part),
            sensitivity=rows * (_PARTS if event.relation == "replace_one" else max(part, _PARTS - part)),
            epsilon=share,
        )
        for part in parts
    ]

    def draw(noise: NoiseSource) -> Integers:
        chosen = np.array([noise.gumbel_argmax(*choice) for choice in choices], dtype=np.int64)
        order = np.argsort(parts, kind="stable")
        chosen[order] = np.sort(chosen)  # a public rule on what is already released
        return chosen

    return released(event, draw, account=account, seed=seed, purpose=purpose)


def quantile_event(
    *,
    count: int,
    epsilon: float,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
) -> Event:
    """Return the event of ``count`` quantiles that together cost ``epsilon``."""
    event = ExponentialEvent(
        epsilon=_share(epsilon, count),
        relation=parse_relation(relation),
        unit=unit,
        max_rows_per_person=max_rows_per_person,
    )
    return event if count == 1 else RepeatedEvent(event=event, count=count)


def _share(epsilon: float, count: int) -> float:
    share = positive("epsilon", epsilon) / count
    while share * count > epsilon:  # rounding must not make the parts more than the whole
        share = math.nextafter(share, 0.0)
    return share


def cell_utilities(counts: Integers, part: int) -> Integers:
    """Return 2²⁰ times the utility of each cell for the quantile ``part`` / 2²⁰, in exact integers."""
    through = np.cumsum(counts)
    target = part * int(through[-1])
    missed: Integers = np.maximum(0, np.maximum(_PARTS * (through - counts) - target, target - _PARTS * through))
    return -missed


def _read_counts(counts: ArrayLike) -> Integers:
    array = np.asarray(counts)
    if array.dtype.kind not in "iu" or array.ndim != 1 or not array.size or (array < 0).any():
        raise InputError("counts must be a one-dimensional array of integers, not negative and not empty.")
    if array.sum(dtype=np.float64) > _MAX_RECORDS:
        raise InputError("counts add up to more than 2^42 records, which no table has.")
    return array.astype(np.int64)


def _read_probabilities(probabilities: float | Sequence[float]) -> list[int]:
    listed = np.atleast_1d(np.asarray(probabilities)).tolist()
    if not listed:
        raise InputError("probabilities is empty: name at least one quantile, such as 0.5 for the median.")
    return [round(probability("probabilities", alpha, allow_one=True) * _PARTS) for alpha in listed]
