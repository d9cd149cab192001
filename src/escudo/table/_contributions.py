r"""What one person can change: keeping a bounded sample of each person's rows, and the sensitivity of counts.

A person's rows are put in order of their encoded content, :math:`i = 0, \dots, n - 1`. If :math:`n > k`, where
:math:`k` is ``max_rows_per_person``, a systematic sample is kept,

.. math:: \{\, i : (i k + u) \bmod n \ge n - k \,\}, \qquad u = \mathrm{hash}(\text{person, public seed}) \bmod n.

*It has exactly k rows*: :math:`i` is kept if and only if :math:`\lfloor ((i + 1) k + u) / n \rfloor` exceeds
:math:`\lfloor (i k + u) / n \rfloor`, and over all :math:`i` these steps add up to :math:`k`. *Each row is equally
likely*: for every :math:`i` exactly :math:`k` of the :math:`n` values of :math:`u` keep it.

*It depends on the person's own rows only.* Order, :math:`n` and :math:`u` are functions of the person's key and the
multiset of their encoded rows; rows that tie in the order are equal in all that is counted, so it does not matter
which of them an engine takes. Hence another person's rows never change what is kept of this one's, and one person
moves the counts of kept rows by their own at most :math:`k` rows: see :func:`count_sensitivity`. It rests on keys that
are one-to-one with people, which :mod:`escudo.table._persons` proves, and that are there before rows are parted.

Rows without a person id are left out. Nobody can say whose they are, so counting them, even as one more person, could
let somebody contribute more than :math:`k` rows. The same goes for ids that the table itself has merged with others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import narwhals as nw

from escudo._validate import positive_integer
from escudo.privacy import Relation, Unit, parse_relation, parse_unit
from escudo.table._persons import PERSON, PERSON_NUMBER

__all__ = ["CountSensitivity", "bound_contributions", "count_sensitivity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSensitivity:
    """How far one row or person can move a set of count tables, taken together as one vector.

    Attributes:
        l1: Largest sum of absolute changes.
        l2: Largest Euclidean length of the change, rounded up.
        changed_cells: Largest number of cells that change, given only where each changes by one at most, as
            :class:`~escudo.privacy.GaussianEvent` wants it; None otherwise.
    """

    l1: float
    l2: float
    changed_cells: int | None


def count_sensitivity(
    tables: int = 1,
    *,
    relation: Relation = "replace_one",
    unit: Unit = "row",
    max_rows_per_person: int | None = None,
) -> CountSensitivity:
    r"""Return how far one row or person can move ``tables`` contingency tables of the same rows.

    With :math:`T` tables and at most :math:`k` rows per person (:math:`k = 1` for the row unit):

    ============  ============  ======================  =======================
    relation      L1            L2                      changed cells (k = 1)
    ============  ============  ======================  =======================
    add_remove    :math:`kT`    :math:`k \sqrt{T}`      :math:`T`
    replace_one   :math:`2kT`   :math:`k \sqrt{2T}`     :math:`2T`
    ============  ============  ======================  =======================

    *Proof.* A table is the sum over kept rows of one indicator vector per row. Adding or removing a person adds or
    takes away at most :math:`k` indicators per table: non-negative entries of sum at most :math:`k`, hence L1 at most
    :math:`k` and L2 at most :math:`k`, both attained by :math:`k` equal rows. Replacing a person takes away one such
    vector :math:`a` and adds another, :math:`b`; as both are non-negative, :math:`\|a - b\|_1 \le 2k` and
    :math:`\|a - b\|_2^2 \le \|a\|_2^2 + \|b\|_2^2 \le 2k^2`, attained if all rows move from one cell to another.
    Over :math:`T` tables, L1 norms and squared L2 norms add up.

    Args:
        tables: How many tables are counted, each over all rows.
        relation: Which two tables are compared.
        unit: Whose data differs.
        max_rows_per_person: The most rows of one person that count, for the person unit.

    Guarantee:
        Sensitivities are exact and attained, for both relations, under :func:`bound_contributions`.

    >>> count_sensitivity(8)
    CountSensitivity(l1=16.0, l2=4.0, changed_cells=16)
    """
    count = positive_integer("tables", tables)
    parse_unit(unit, max_rows_per_person)
    rows = 1 if max_rows_per_person is None else int(max_rows_per_person)
    vectors = count * (2 if parse_relation(relation) == "replace_one" else 1)
    return CountSensitivity(
        l1=float(rows * vectors),
        l2=_square_root_up(rows * rows * vectors),
        changed_cells=vectors if rows == 1 else None,
    )


def bound_contributions(
    frame: nw.LazyFrame[Any], order: Sequence[str], *, max_rows_per_person: int
) -> nw.LazyFrame[Any]:
    """Keep at most ``max_rows_per_person`` rows of each person, chosen by that person's rows and the public seed.

    Args:
        frame: Lazy frame with the encoded columns, the person id and its hash.
        order: Columns that put a person's rows in order; rows that tie must be equal in all that is used later.
        max_rows_per_person: The most rows that are kept.
    """
    k, rows = min(max_rows_per_person, 2**30), nw.col("rows_of_person")  # products stay within 64 bits
    place = (nw.col("row_of_person") - 1) * k + nw.col(PERSON_NUMBER) % rows
    return (
        frame.filter(~nw.col(PERSON).is_null())
        .with_columns(
            nw.col(PERSON).cum_count().over(PERSON, order_by=list(order)).cast(nw.Int64).alias("row_of_person"),
            nw.col(PERSON).count().over(PERSON).cast(nw.Int64).alias("rows_of_person"),
        )
        .filter((rows <= k) | (place % rows >= rows - k))
    )


def _square_root_up(square: int) -> float:
    root = math.sqrt(square)
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)
