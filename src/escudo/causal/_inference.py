"""Exact sums of products of tables, by eliminating one variable at a time.

A joint law of finite variables is a product of small tables. Asking for the law of a few of them means summing the
product over all others; doing that one variable at a time, cheapest first, costs as much as the largest table met on
the way, not the product of all ranges.

Two kinds of factor take part:

* :class:`Factor`: a table over named axes, such as ``Pr[D | R]`` with axes ``(R, D)``;
* :class:`Lookup`: ``output = f(inputs)``, stored as an integer array over the inputs alone. A running sum of 1,000
  variables is 1,000 lookups of at most 2,000 cells, where dense tables would need gigabytes.

Zero means zero. Products and sums of non-negative floats keep exact zeros exact; a product too small for a float is
noticed, and the whole sum is then redone with logarithms, so that no positive probability is ever lost to underflow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from escudo.causal._elimination import LOGARITHMS, PLAIN, Elimination
from escudo.causal._factors import MAX_CELLS, Array, Factor, IntArray, Lookup

__all__ = ["MAX_CELLS", "Array", "Factor", "IntArray", "Lookup", "contract", "product"]


def contract(factors: Sequence[Factor | Lookup], keep: Sequence[str], *, log: bool = False) -> Array:
    """Multiply all factors and sum out every variable that is not kept.

    Args:
        factors: Tables and lookups; axes with the same name are the same variable.
        keep: The axes of the answer, in this order.
        log: Return natural logarithms, which reach far below the smallest float.

    Returns:
        An array with one axis per kept variable.

    Raises:
        InputError: A kept variable occurs in no factor, sizes disagree, or the sum needs a table above ``MAX_CELLS``.

    Example:
        >>> coin = Factor(("a",), [0.5, 0.5])
        >>> same = Lookup(("a",), "b", np.array([0, 1]), 2)
        >>> contract([coin, same, Factor(("b", "c"), [[0.9, 0.1], [0.2, 0.8]])], ["c"])
        array([0.55, 0.45])
    """
    result = product(factors, keep)
    return np.array(result.log if log else result.array)


def product(factors: Sequence[Factor | Lookup], keep: Sequence[str]) -> Factor:
    """Do what :func:`contract` does and return a :class:`Factor`, which knows its logarithms."""
    names = tuple(keep)
    if not any(isinstance(factor, Factor) and factor.lossy for factor in factors):
        try:
            with np.errstate(under="raise"):
                return Factor(names, Elimination(factors, names, PLAIN).solve())
        except FloatingPointError:
            pass  # some product fell below the smallest float: the logarithms below have room for it
    return Factor.from_log(names, Elimination(factors, names, LOGARITHMS).solve())
