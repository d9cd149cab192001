"""Columns as public facts: which values a column may hold, and the cell each value falls into.

A column never looks at data. It fixes, once and for every dataframe engine, which of ``size`` cells a value belongs
to, so that the same table gives the same counts to the last unit wherever it lives. :meth:`Categorical.encode` and
:meth:`Numeric.encode` are the reference that every engine's own expressions are tested against.
"""

from __future__ import annotations

from typing import TypeAlias

from escudo.table._categorical import Categorical, Level
from escudo.table._numeric import Numeric

__all__ = ["Categorical", "Column", "Level", "Numeric"]

Column: TypeAlias = Categorical | Numeric
