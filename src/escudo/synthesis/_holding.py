"""Rows that hold what a schema says of several columns at once: its rules, and the differences that it derives.

A model draws columns by their laws, which know of no rule and of no difference. So derived columns are computed of what
was drawn (:class:`Holding`), rows that break a rule or leave the bounds of what is derived are drawn again
(:func:`held`), and where hardly one of them holds, rows are **mended**. A model of hardly any rows is mostly noise: a
birth in 2020 and a visit in 1950 may be all that it draws. Drawing again would not end, and the budget is spent. Such
rows are changed, here and there, until they hold: of each rule that a row breaks, one of the columns it is about gets
another value, any that the schema allows and each as likely; so on until none is broken. What a rule does not touch
stays as it was drawn. Post-processing: schema, model and chance are all that it takes.

**Reference.** B. Selman, H. Kautz, B. Cohen (1994), "Noise strategies for improving local search", AAAI, for walks that
change one of what is broken at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from escudo.errors import ZeroProbabilityError
from escudo.synthesis._laws import as_integers
from escudo.table import Categorical, Column, Numeric, Schema, broken_rows, plain_values

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

Cells = NDArray[np.int64]
CellRule = tuple[tuple[int, int], NDArray[np.bool_]]
"""The places of the two columns that a rule is about, and which of their cells go together."""

T = TypeVar("T", "pl.DataFrame", Cells)

_ROUNDS = 2000
_MOST_DRAWN, _LEAST_DRAWN = 200, 20_000  # rows tried for each that is wanted, and in any case, until rules are given up
MENDED = (
    "Of {tried:,} rows that were drawn, only {found:,} hold the rules of the schema and the bounds of what is derived: "
    "the model is mostly noise, which knows of neither. {missing:,} rows were changed at random until they hold. They "
    "are as private as any, and say next to nothing of how these columns are: it takes more rows or a larger ε."
)
"""What is said where rows were mended."""


def held(
    rows: int,
    drawn: Callable[[int], T],
    keeping: Callable[[T], T],
    mended: Callable[[T], T] | None,
) -> list[T]:
    """Return rows that break no rule of the schema, in parts: others are drawn in place of those that do.

    Args:
        rows: How many.
        drawn: Draws so many.
        keeping: Returns those that hold.
        mended: Changes rows until they hold, where hardly one does; None where something is set or observed.

    Raises:
        ZeroProbabilityError: If no row holds the rules, or hardly one of those that were asked for.
    """
    parts = [keeping(drawn(rows))]
    found, tried = len(parts[0]), rows
    while found < rows:
        if tried >= _MOST_DRAWN * rows + _LEAST_DRAWN:
            made = drawn(0) if mended is None else mended(drawn(rows - found))
            if len(made):
                warnings.warn(MENDED.format(tried=tried, found=found, missing=rows - found), stacklevel=2)
                parts.append(made)
                break
            raise ZeroProbabilityError(
                f"Of {tried:,} rows that were drawn, {found:,} hold the rules of the schema and the bounds of what "
                "is derived. Either what is set or observed hardly goes with them: ask for something they allow. "
                "Or the model is mostly noise, which knows of neither: it takes more rows or a larger ε."
            )
        # As many as are likely to do, but no more than fit beside each other.
        wanted = min(int(1.1 * (rows - found) * tried / max(found, 1)) + 64, max(4 * rows, _LEAST_DRAWN))
        part = keeping(drawn(wanted))[: rows - found]
        parts.append(part)
        found, tried = found + len(part), tried + wanted
    return parts


# ---- rows of cells


def _which_hold(cells: Cells, rules: Sequence[CellRule]) -> NDArray[np.bool_]:
    held = np.ones(len(cells), dtype=bool)
    for (one, other), mask in rules:
        held &= mask[cells[:, one], cells[:, other]]
    return held


def kept_cells(cells: Cells, rules: Sequence[CellRule]) -> Cells:
    """Return the rows of cells that hold all rules."""
    return cells[_which_hold(cells, rules)] if rules else cells


def mended_cells(cells: Cells, rules: Sequence[CellRule], rng: np.random.Generator) -> Cells:
    """Return rows of cells that hold all rules, as many as there were; none where none was found."""
    made = cells.copy()
    for _ in range(_ROUNDS):
        broken = [~mask[made[:, one], made[:, other]] for (one, other), mask in rules]
        if not np.any(broken):
            break
        for ((one, other), mask), rows in zip(rules, broken, strict=True):
            first = rng.random(len(made)) < 0.5
            for place, size, chosen in ((one, mask.shape[0], first), (other, mask.shape[1], ~first)):
                changed = rows & chosen
                made[changed, place] = rng.integers(0, size, int(changed.sum()))
    whole = _which_hold(made, rules)
    places = np.flatnonzero(whole)  # rows that take the place of those that do not hold
    return made[np.where(whole, np.arange(len(made)), np.resize(places, len(made)))] if places.size else made[:0]


# ---- rows of values


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds in every row of values that a model hands out.

    Attributes:
        schema: The columns.
        moved: For each derived column, which of the two that it is derived from follows from it and the other, as
            :func:`moved_columns` says it.
    """

    schema: Schema
    moved: Mapping[str, str]

    @property
    def anything(self) -> bool:
        """Whether there is anything to hold: a rule, or a column that is derived."""
        return bool(self.schema.rules) or bool(derived_columns(self.schema))

    def derived(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return rows in which the columns that a schema derives from others are these differences; null where one is.

        Where one of the two follows from the difference that was drawn, that is computed, and else the difference. One
        that was drawn as missing beside two that are there is taken from another row.
        """
        import polars as pl

        def number(name: str) -> pl.Expr:
            column = self.schema[name]
            assert isinstance(column, Numeric)
            return (pl.col(name).cast(pl.Int32) if column.date else pl.col(name)).cast(pl.Float64)

        made = []
        for column in self.schema.fields:
            if not isinstance(column, Numeric) or column.derived is None:
                continue
            later, earlier = map(number, column.derived)
            if column.name in self.moved and frame[column.name].null_count() < frame.height:
                name = self.moved[column.name]
                drawn = pl.lit(_never_missing(frame[column.name])).cast(pl.Float64)
                apart = column.distance(drawn, (later - earlier).fill_null(0.0), pl.Expr.floor)
                value = earlier + apart if name == column.derived[0] else later - apart
                source, kind = self.schema[name], frame.schema[name]
                assert isinstance(source, Numeric)
                value = value.round().cast(pl.Int32) if source.integer or source.date else value
                there = pl.col(name).is_not_null()
                frame = frame.with_columns(pl.when(there).then(value.cast(kind)).otherwise(None).alias(name))
            apart = column.difference(later, earlier, pl.Expr.floor)
            made.append((apart.cast(pl.Int64) if column.integer else apart).alias(column.name))
        return frame.with_columns(made) if made else frame

    def kept(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that break no rule of the schema, and hold its bounds where columns were moved."""
        import narwhals as nw

        columns, kept = self.schema.columns, nw.from_native(frame)
        if self.schema.rules:
            kept = kept.filter(~broken_rows(self.schema.checked_rules, columns, plain_values(columns)))
        for _, outside in self._out_of_bounds():  # clamped, they would be no difference any more
            kept = kept.filter(~outside | outside.is_null())
        return kept.to_native()

    def mended(self, frame: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        """Return rows that hold, as many as there were, made of some that may not; none where none was found."""
        import narwhals as nw
        import polars as pl

        columns = self.schema.columns
        value_of = plain_values(columns)
        rules = [(rule.columns, rule.broken(columns, value_of)) for rule in self.schema.checked_rules]
        broken: list[tuple[Sequence[str], nw.Expr]] = [
            *rules,
            *(((name,), outside) for name, outside in self._out_of_bounds()),
        ]
        kinds, done = frame.schema, list[pl.DataFrame]()
        options = [_changeable(self.schema, names, self.moved) for names, _ in broken]
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
                .then(_any_values(self.schema[name], frame.height, rng).cast(kinds[name]))
                .otherwise(pl.col(name))
                .alias(name)
                for name, rows in changed.items()
                if rows.any()
            ]
            frame = self.derived(frame.with_columns(fresh))
        found = pl.concat(done)
        again = np.resize(np.arange(found.height), frame.height) if found.height else np.arange(0)
        return pl.concat([found, found[again]])

    def _out_of_bounds(self) -> list[tuple[str, nw.Expr]]:
        """Return for each derived column, and for each that follows from one, which rows are beyond its bounds."""
        value_of, found = plain_values(self.schema.columns), []
        for derived in derived_columns(self.schema):
            for name in dict.fromkeys((derived.name, self.moved.get(derived.name, derived.name))):
                column = self.schema[name]
                assert isinstance(column, Numeric)
                found.append((derived.name, ~value_of(name).is_between(*column.bounds)))
        return found


def derived_columns(schema: Schema) -> list[Numeric]:
    """Return the columns that a schema derives from others."""
    return [column for column in schema.fields if isinstance(column, Numeric) and column.derived is not None]


def moved_columns(schema: Schema, kept: Collection[str] = ()) -> dict[str, str]:
    """Return for each derived column which of the two that it is derived from follows from it and the other.

    Two days that are drawn by their bins may lie months apart where a stay takes three days. So an admission and a stay
    are drawn, and the discharge follows: the one with wider bins, of which less is known, and the later one of two
    alike; none, where both are ``kept`` (set or observed), or have a part in another difference.

    Args:
        schema: The columns.
        kept: Columns that stay as they are.

    >>> from escudo.table import Schema
    >>> day = {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31"}
    >>> stay = {"type": "numeric", "lower": 0, "upper": 60, "from": "out - in", "unit": "days"}
    >>> moved_columns(Schema.from_dict({"in": day, "out": day, "stay": stay}))
    {'stay': 'out'}
    """
    found: dict[str, str] = {}
    taken = set(kept)
    for column in schema.fields:
        if not isinstance(column, Numeric) or column.derived is None:
            continue
        widths = []
        for name in column.derived:
            source = schema[name]
            assert isinstance(source, Numeric)
            widths.append((source.bounds[1] - source.bounds[0]) / source.bins)
        later, earlier = column.derived
        order = (later, earlier) if widths[0] >= widths[1] else (earlier, later)
        free = [name for name in order if name not in taken]
        if free:
            found[column.name] = free[0]
        taken |= set(column.derived)
    return found


def _never_missing(drawn: pl.Series) -> pl.Series:
    """Return what was drawn with every missing value replaced by one of another row."""
    there = drawn.drop_nulls()
    places = np.cumsum(drawn.is_null().to_numpy()) % len(there)
    return drawn if len(there) == len(drawn) else drawn.zip_with(drawn.is_not_null(), there.gather(places))


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
