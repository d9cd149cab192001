"""Rows that hold the rules of a schema, made of rows that do not: where hardly one that a model draws does.

A model of hardly any rows is mostly noise, which knows of no rule: a birth in 2020 and a visit in 1950 may be all that
it draws. Drawing again until rows hold the rules (``_model``) would not end, and the budget is spent. Such rows are
changed instead, here and there, until they hold: of each rule that a row breaks, one of the columns it is about gets
another value, any that the schema allows and each as likely; so on until none is broken. What a rule does not touch
stays as it was drawn. Post-processing: schema, model and chance are all that it takes.

**Reference.** B. Selman, H. Kautz, B. Cohen (1994), "Noise strategies for improving local search", AAAI, for walks that
change one of what is broken at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from escudo.synthesis._laws import as_integers
from escudo.table import Categorical, Column, Numeric, Schema

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

Cells = NDArray[np.int64]

_ROUNDS = 2000
MENDED = (
    "Of {tried:,} rows that were drawn, only {found:,} hold the rules of the schema and the bounds of what is derived: "
    "the model is mostly noise, which knows of neither. {missing:,} rows were changed at random until they hold. They "
    "are as private as any, and say next to nothing of how these columns are: it takes more rows or a larger ε."
)
"""What is said where rows were mended."""


def mended_cells(
    cells: Cells,
    masks: Sequence[tuple[tuple[int, int], NDArray[np.bool_]]],
    rng: np.random.Generator,
) -> Cells:
    """Return rows of cells that hold all rules, as many as there were; none where none was found.

    Args:
        cells: The rows.
        masks: Of each rule, the places of the two columns that it is about, and which of their cells go together.
        rng: Chance.
    """
    made = cells.copy()
    for _ in range(_ROUNDS):
        broken = [~mask[made[:, one], made[:, other]] for (one, other), mask in masks]
        if not np.any(broken):
            break
        for ((one, other), mask), rows in zip(masks, broken, strict=True):
            first = rng.random(len(made)) < 0.5
            for place, size, chosen in ((one, mask.shape[0], first), (other, mask.shape[1], ~first)):
                changed = rows & chosen
                made[changed, place] = rng.integers(0, size, int(changed.sum()))
    held = np.ones(len(made), dtype=bool)
    for (one, other), mask in masks:
        held &= mask[made[:, one], made[:, other]]
    return _filled(made, held)


def _filled(made: Cells, held: NDArray[np.bool_]) -> Cells:
    """Return rows with those that do not hold replaced by some that do."""
    places = np.flatnonzero(held)
    return made[np.where(held, np.arange(len(made)), np.resize(places, len(made)))] if places.size else made[:0]


def mended_rows(
    schema: Schema,
    frame: pl.DataFrame,
    moved: Mapping[str, str],
    derived: Callable[[pl.DataFrame], pl.DataFrame],
    broken: Sequence[tuple[Sequence[str], nw.Expr]],
    rng: np.random.Generator,
) -> pl.DataFrame:
    """Return rows of values that hold all rules, as many as there were; none where none was found.

    Args:
        schema: The columns.
        frame: The rows.
        moved: The derived columns from which one of the two they are derived from follows.
        derived: Returns rows with derived columns as they follow.
        broken: What must not be: which columns it is about, and which rows it is true for.
        rng: Chance.
    """
    import narwhals as nw
    import polars as pl

    kinds, done = frame.schema, list[pl.DataFrame]()
    options = [_changeable(schema, names, moved) for names, _ in broken]
    for _ in range(_ROUNDS):
        told = nw.from_native(frame).select(
            **{f"{place}": each.fill_null(value=False) for place, (_, each) in enumerate(broken)}
        )
        wrong = np.stack([np.asarray(told[name].to_numpy(), dtype=bool) for name in told.columns], axis=1)
        bad = wrong.any(axis=1)
        done.append(frame.filter(pl.Series(~bad)))
        frame, wrong = frame.filter(pl.Series(bad)), wrong[bad]
        if not frame.height:
            break
        changed: dict[str, NDArray[np.bool_]] = {}
        for place, names in enumerate(options):
            chosen = rng.integers(0, len(names), frame.height)
            for number, name in enumerate(names):
                rows = wrong[:, place] & (chosen == number)
                changed[name] = changed.get(name, np.zeros(frame.height, dtype=bool)) | rows
        fresh = [
            pl.when(pl.Series(rows))
            .then(_any_values(schema[name], frame.height, rng).cast(kinds[name]))
            .otherwise(pl.col(name))
            .alias(name)
            for name, rows in changed.items()
            if rows.any()
        ]
        frame = derived(frame.with_columns(fresh))
    found = pl.concat(done)
    again = np.resize(np.arange(found.height), frame.height) if found.height else np.arange(0)
    return pl.concat([found, found[again]])


def _changeable(schema: Schema, names: Sequence[str], moved: Mapping[str, str]) -> list[str]:
    """Return what to change so that these columns change: of a derived one, what it is derived from."""
    found: list[str] = []
    for name in names:
        apart = next((each for each, follows in moved.items() if follows == name), name)
        column = schema[apart]
        sources = (column.derived if isinstance(column, Numeric) else None) or ()
        found += [apart] if apart in moved or not sources else []
        found += [each for each in sources if each != moved.get(apart)]
    return list(dict.fromkeys(found))


def _any_values(column: Column, rows: int, rng: np.random.Generator) -> pl.Series:
    """Return values that the schema allows, each as likely; missing ones, where it allows them, as often as a cell."""
    import polars as pl

    if isinstance(column, Categorical):
        levels = pl.Series([*column.levels, None], strict=False)
        return levels.gather(rng.integers(0, len(column.levels) + column.missing, rows))
    low, high = column.bounds
    if column.integer or column.date is not None:
        low, high = np.ceil(low), np.floor(high)
        drawn = pl.Series(as_integers(np.floor(rng.uniform(low, high + 1, rows)).clip(low, high)))
        drawn = drawn if column.date is None else drawn.cast(pl.Int32)
    else:
        drawn = pl.Series(rng.uniform(low, high, rows))
    there = rng.random(rows) >= (1 / column.size if column.missing else 0.0)
    return pl.select(pl.when(pl.Series(there)).then(drawn)).to_series()
