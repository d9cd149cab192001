"""The custodian's report: the synthetic rows against the real ones, without noise, for the custodian's eyes only.

It reads the private table again, exactly, and nothing was paid for that. So it is no part of a release: it is written
beside the folder that is handed over, and says what it is on the screen and on every printed page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo.report._charts import heat_map, percent
from escudo.report._look import MOST_CARDS, MOST_MAPPED, column_card
from escudo.report._page import fragment, render
from escudo.utility import sampling_error, synthetic_table, total_variation

if TYPE_CHECKING:
    import polars as pl
    from markupsafe import Markup

    from escudo.table import PrivateTable

__all__ = ["comparison_section", "custodian_page"]

_MOST_PAIR_CELLS = 2**13
_MOST_TRIPLE_CELLS = 2**16
_MOST_TRIPLES = 56
_WORST = 12

Columns = tuple[str, ...]


def custodian_page(table: PrivateTable, synthetic: pl.DataFrame, *, dataset: str = "", made: datetime) -> str:
    """Return the comparison of real and synthetic rows as one HTML page, marked as not for release.

    Args:
        table: The private table.
        synthetic: The synthetic rows.
        dataset: What the table is called.
        made: When, in UTC.

    **Guarantee.** None: the page shows exact figures of the private table.
    """
    source = f"{made:%d %B %Y}".lstrip("0")
    return render(
        "custodian.html.j2",
        kind="For the custodian",
        title=_title(dataset),
        source=source,
        **_content(table, synthetic),
    )


def comparison_section(table: PrivateTable, synthetic: pl.DataFrame, *, dataset: str = "") -> Markup:
    """Return the same as a section of the custodian's copy of a release's report."""
    return fragment(
        "custodian_section.html.j2",
        anchor="comparison",
        title=_title(dataset),
        body="comparison_body.html.j2",
        **_content(table, synthetic),
    )


def _title(dataset: str) -> str:
    return f"How close the synthetic data come to {dataset or 'the table'}"


def _content(table: PrivateTable, synthetic: pl.DataFrame) -> dict[str, Any]:
    schema = table.schema
    drawn = synthetic_table(synthetic, schema)
    names = list(schema.names[:MOST_MAPPED])
    singles = _compare(table, drawn, [(name,) for name in names], synthetic.height)
    pairs = _compare(table, drawn, _subsets(table, names, 2, _MOST_PAIR_CELLS), synthetic.height)
    triples = _compare(table, drawn, _spread(_subsets(table, names, 3, _MOST_TRIPLE_CELLS)), synthetic.height)
    apart = np.full((len(names), len(names)), np.nan)
    for a, b in pairs:
        i, j = names.index(a), names.index(b)
        apart[i, j] = apart[j, i] = 100 * pairs[a, b][0]
    most = float(np.nanmax(apart)) if pairs else 0.0
    charted = names[:MOST_CARDS]
    real = table.counts([[name] for name in charted])
    made_up = drawn.counts([[name] for name in charted])
    cards = [column_card(schema[name], ours, theirs) for name, ours, theirs in zip(charted, made_up, real, strict=True)]
    for card in cards:
        card["note"] = f"{100 * singles[(card['name'],)][0]:.2f}\N{NO-BREAK SPACE}% in the wrong cell"
    levels = [("one", singles), ("two", pairs), ("three", triples)]
    return {
        "lead": _lead(pairs or singles),
        "levels": [_level(number, found) for number, found in levels if found],
        "cards": cards,
        "columns": len(schema.names),
        "mapped": heat_map(
            names, apart, title="Rows in the wrong cell, per cent", most=max(most, 1e-9), decimals=2 if most < 1 else 1
        )
        if pairs
        else "",
        "worst": [
            {
                "pair": " × ".join(columns),
                "error": f"{100 * error:.2f}",
                "chance": f"{100 * chance:.2f}",
                "share": error / max(most / 100, 1e-12),
            }
            for columns, (error, chance) in sorted(pairs.items(), key=lambda item: -item[1][0])[:_WORST]
        ],
        "left_out": math.comb(len(names), 2) - len(pairs),
    }


def _compare(
    table: PrivateTable, drawn: PrivateTable, subsets: Sequence[Columns], rows: int
) -> dict[Columns, tuple[float, float]]:
    """Return for each set of columns the total variation, and what chance alone would give."""
    if not subsets:
        return {}
    listed = [list(columns) for columns in subsets]
    return {
        columns: (total_variation(real, ours), sampling_error(real, rows))
        for columns, real, ours in zip(subsets, table.counts(listed), drawn.counts(listed), strict=True)
    }


def _subsets(table: PrivateTable, names: Sequence[str], size: int, most_cells: int) -> list[Columns]:
    sizes = {name: table.schema[name].size for name in names}
    return [chosen for chosen in combinations(names, size) if math.prod(sizes[name] for name in chosen) <= most_cells]


def _spread(subsets: Sequence[Columns]) -> list[Columns]:
    """Return some of the sets, evenly spread over the list."""
    if len(subsets) <= _MOST_TRIPLES:
        return list(subsets)
    return [subsets[place] for place in np.linspace(0, len(subsets) - 1, _MOST_TRIPLES).round().astype(int)]


def _lead(found: dict[Columns, tuple[float, float]]) -> str:
    error, chance = np.mean(list(found.values()), axis=0)
    size = len(next(iter(found)))
    what = "pair of columns" if size == 2 else "column"
    return (
        f"On average over every {what}, {percent(error)} of the synthetic rows are in another cell than in the real "
        f"table. A second real sample of that size would differ by about {percent(chance)}."
    )


def _level(number: str, found: dict[Columns, tuple[float, float]]) -> dict[str, Any]:
    errors, chances = np.array(list(found.values())).T
    return {
        "number": number,
        "tables": f"{len(found):,}",
        "mean": f"{100 * errors.mean():.2f}",
        "most": f"{100 * errors.max():.2f}",
        "chance": f"{100 * chances.mean():.2f}",
    }
