r"""Sums of z zᵀ over rows of bounded length: exact whatever the order of the rows, and never far from a neighbour's.

A row enters as whole numbers of some public step, computed from that row alone. Products of whole numbers add up
exactly, so neither the order of the rows nor the engine that gives them can change the sum: it depends on the rows as a
multiset, and a neighbour's sum differs by the changed rows' own terms.

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

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from escudo.mechanisms._noise import Integers

__all__ = ["bounded_rows", "second_moments"]

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
