"""CSV that spreadsheets take for what it is: text stays text, and never becomes a formula.

A spreadsheet runs a cell such as ``=cmd|'/c calc'!A1`` as a formula, also one that starts with ``+``, ``-``, ``@``, a
tab or a carriage return. Levels and column names come from somebody else, so a *text* cell that starts so is written
with an apostrophe in front, which spreadsheets take for "this is text". A text that starts with an apostrophe itself
gets one more, so that the way back is exact: take one leading apostrophe off every text cell that has one
(:func:`unguarded`). Numbers stay numbers, also a text that is nothing but one, such as "-1", which means itself.
"""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

__all__ = ["guarded", "unguarded", "write_csv"]

_ACTIVE = r"^[=+\-@\t\r']"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def guarded(text: str) -> str:
    """Return a text as it is written into a cell.

    >>> guarded("=1+1"), guarded("-1"), guarded("- none -"), guarded("'tis"), guarded("yes")
    ("'=1+1", '-1', "'- none -", "''tis", 'yes')
    """
    return f"'{text}" if re.match(_ACTIVE, text) and not re.match(_NUMBER, text) else text


def unguarded(text: str) -> str:
    """Return the text that was written into a cell.

    >>> [unguarded(guarded(text)) for text in ("=1+1", "-1", "''", "yes")]
    ['=1+1', '-1', "''", 'yes']
    """
    return text.removeprefix("'")


def write_csv(frame: pl.DataFrame, file: Path | IO[bytes]) -> None:
    """Write a frame as CSV; texts and column names that a spreadsheet would run are guarded."""
    import polars as pl

    texts = [name for name, kind in frame.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]
    cells = [pl.col(name).cast(pl.String) for name in texts]
    active = [cell.str.contains(_ACTIVE) & ~cell.str.contains(_NUMBER) for cell in cells]
    safe = frame.with_columns(
        pl.when(danger).then(pl.lit("'") + cell).otherwise(cell).alias(name)
        for name, cell, danger in zip(texts, cells, active, strict=True)
    )
    safe.rename({name: guarded(name) for name in frame.columns}).write_csv(file)
