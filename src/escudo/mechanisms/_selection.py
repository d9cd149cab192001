"""Choosing one of finitely many public candidates by their private utilities.

Quantiles are such a choice, of a cell of a public grid, and need its counts only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._validate import finite, positive, probability
from escudo.errors import InputError
from escudo.mechanisms._noise import Integers, NoiseSource
from escudo.mechanisms._purse import Purse, Release, ReleaseOptions, opened, select_scale
from escudo.privacy import Event, ExponentialEvent, NeighbourOptions, PureEvent, RepeatedEvent
from escudo.table import Numeric


def exponential(
    utilities: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    grid: float | None = None,
    **terms: Unpack[ReleaseOptions],
) -> Release[int]:
    r"""Choose a candidate with probability proportional to the exponential of its utility.

    .. math:: P(i) \propto e^{ε u_i / (2Δ)}

    Drawn as the largest of :math:`u_i` + Gumbel noise of scale 2Δ/ε. Prefer :func:`permute_and_flip` for one choice;
    prefer this one where many choices are composed, because its range is bounded.

    Args:
        utilities: One number per candidate, shape (n,). Integers are used as they are; floats are rounded to the grid.
        sensitivity: Most that any one utility moves between neighbours.
        epsilon: What the choice may cost.
        grid: Step of the public grid for float utilities, a power of two; derived from the sensitivity by default.
        terms: How it is paid for and drawn, and between which tables ``sensitivity`` is stated: account, seed, purpose,
            relation, unit (:class:`ReleaseOptions`).

    Returns:
        The chosen index, with its guarantee.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private and of bounded range ε (hence ε²/8-zCDP), exactly: utilities are whole
    numbers of grid steps, their sensitivity Δ is taken after rounding (:mod:`escudo.mechanisms._noise`), and the noise
    is sampled without floating point error. *Proof.* For neighbours the ratio of the weights of candidate i is
    :math:`e^{ε(u_i - u'_i)/2Δ}`, within :math:`e^{\pm ε/2}`; the ratio c of the two normalisers is the same for all i
    and lies in the same interval. So the log-ratios of all candidates lie in an interval of length ε, and each is at
    most ε.

    **Reference.** F. McSherry, K. Talwar (2007), "Mechanism design via differential privacy", Theorem 6; M. Cesar,
    R. Rogers (2021), "Bounding, concentrating, and truncating", arXiv:2004.07223, for bounded range and zCDP.

    >>> exponential([0, 50, 3], sensitivity=1, epsilon=1.0, seed=7).value
    1
    """
    return _chosen(ExponentialEvent, utilities, sensitivity, epsilon, grid, opened(terms, "exponential mechanism"))


def permute_and_flip(
    utilities: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    grid: float | None = None,
    **terms: Unpack[ReleaseOptions],
) -> Release[int]:
    r"""Choose a candidate, never worse in expectation than the exponential mechanism at the same epsilon.

    Go through the candidates in random order and take candidate i with probability
    :math:`e^{ε(u_i - \max u) / (2Δ)}`, until one is taken; equivalently, take the largest of :math:`u_i` + exponential
    noise of mean 2Δ/ε, which is how it is drawn.

    Args:
        utilities: As in :func:`exponential`, and so for all that follow.
        sensitivity: Most that a utility moves.
        epsilon: What the choice may cost.
        grid: Step of the public grid.
        terms: How it is paid for and drawn.

    Returns:
        The chosen index, with its guarantee.

    Raises:
        InputError: If an argument is out of range; nothing was spent.
        BudgetExceededError: If the account refuses; nothing was spent or drawn.

    **Guarantee.** ε-differentially private, exactly (integers and exact sampling as in :func:`exponential`); not of
    bounded range ε. *Proof.* Fix the noise of all other candidates and let t be their largest noisy utility; i wins
    if its noise exceeds t - u_i. Between neighbours t - u_i moves by at most 2Δ, and an exponential tail :math:`P(E >
    x) = \min(1, e^{-xε/2Δ})` shifted by 2Δ changes by a factor at most e^ε. Average over the other noise.

    **Reference.** R. McKenna, D. Sheldon (2020), arXiv:2010.12603, Theorem 1; Z. Ding et al. (2021), arXiv:2105.07260,
    Theorem 1, for the noisy-max form.

    >>> permute_and_flip([0, 50, 3], sensitivity=1, epsilon=1.0, seed=7).value
    1
    """
    return _chosen(PureEvent, utilities, sensitivity, epsilon, grid, opened(terms, "permute-and-flip"))


def _chosen(
    kind: type[ExponentialEvent | PureEvent],
    utilities: ArrayLike,
    sensitivity: float,
    epsilon: float,
    grid: float | None,
    how: tuple[Purse, NeighbourOptions],
) -> Release[int]:
    purse, stated = how
    event = kind(epsilon=positive("epsilon", epsilon), **stated)
    return purse.release(purse.choose(utilities, event, sensitivity=sensitivity, grid=grid), event)


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
    **terms: Unpack[ReleaseOptions],
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
        terms: How it is paid for and drawn, and between which tables: account, seed, purpose, relation, unit
            (:class:`ReleaseOptions`); for persons ``max_rows_per_person``, the most of ``values`` that one may have.

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
    column = _cells(lower, upper, cells)
    return quantile_cells(_counts(column, values), probabilities, epsilon=epsilon, **terms).mapped(column.decode)


def choose_quantiles(
    counts: ArrayLike,
    probabilities: float | Sequence[float],
    event: Event,
    purse: Purse,
    *,
    lower: float,
    upper: float,
    purpose: str = "",
) -> NDArray[np.float64]:
    """Return the numbers of :func:`quantiles`, paid by a purse; the event is :func:`quantile_event` of as many.

    ``counts`` are those of :func:`quantile_counts` between the same bounds, from wherever the values are.
    """
    column = _cells(lower, upper, np.size(counts))
    return column.decode(choose_cells(counts, probabilities, event, purse, purpose=purpose))


def quantile_counts(values: ArrayLike, *, lower: float, upper: float, cells: int = 1024) -> Integers:
    """Return how many values lie in each of equal cells of a public range: private. Missing ones are left out."""
    return _counts(_cells(lower, upper, cells), values)


def _counts(column: Numeric, values: ArrayLike) -> Integers:
    counts: Integers = np.bincount(column.encode(values), minlength=column.size)[: column.bins]
    return counts


def _cells(lower: float, upper: float, cells: int) -> Numeric:
    """Return the public range as a column of equal cells."""
    return Numeric("values", finite("lower", lower), finite("upper", upper), cells, missing=True)


def quantile_cells(
    counts: ArrayLike,
    probabilities: float | Sequence[float],
    *,
    epsilon: float,
    **terms: Unpack[ReleaseOptions],
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
        terms: How it is paid for and drawn, and between which tables: account, seed, purpose, relation, unit
            (:class:`ReleaseOptions`); for persons ``max_rows_per_person``, the most records that one has.

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
    purse, stated = opened(terms, "quantiles", bound_of_account=False)
    event = quantile_event(count=len(_read_probabilities(probabilities)), epsilon=epsilon, **stated)
    return purse.release(choose_cells(counts, probabilities, event, purse), event)


def choose_cells(
    counts: ArrayLike,
    probabilities: float | Sequence[float],
    event: Event,
    purse: Purse,
    *,
    rows: int | None = None,
    purpose: str = "",
) -> Integers:
    """Return the cells of :func:`quantile_cells`, paid by a purse; the event is :func:`quantile_event` of as many.

    ``rows`` is the most records of one person in ``counts``, where that is fewer than the event is stated for.
    """
    records, parts = _read_counts(counts), _read_probabilities(probabilities)
    each = event.event if isinstance(event, RepeatedEvent) else event
    assert isinstance(each, ExponentialEvent)
    each_has = rows or event.max_rows_per_person or 1
    choices = [
        select_scale(
            cell_utilities(records, part),
            each_has * (_PARTS if event.relation == "replace_one" else max(part, _PARTS - part)),
            each.epsilon,
        )
        for part in parts
    ]

    def law(noise: NoiseSource) -> Integers:
        chosen = np.array([noise.gumbel_argmax(*choice) for choice in choices], dtype=np.int64)
        order = np.argsort(parts, kind="stable")
        chosen[order] = np.sort(chosen)  # a public rule on what is already released
        return chosen

    return purse.draw(event, law, purpose)


def quantile_event(*, count: int, epsilon: float, **terms: Unpack[NeighbourOptions]) -> Event:
    """Return the event of ``count`` quantiles that together cost ``epsilon``."""
    event = ExponentialEvent(epsilon=_share(epsilon, count), **terms)
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
