"""Input pairs: neighbouring datasets that are likely to show a fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive_integer
from escudo.errors import InputError
from escudo.privacy import Relation
from escudo.table import Categorical, Column, Numeric, Schema

__all__ = ["Pair", "pairs_of", "query_pairs", "read_pairs"]

Pair = tuple[Any, Any, str]


def read_pairs(pairs: Sequence[tuple[Any, ...]]) -> list[Pair]:
    """Return pairs with labels, or raise if they are none."""
    found: list[Pair] = []
    for i, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
            raise InputError(f"pairs must be a list of (d, d′) or (d, d′, label); number {i + 1} is not.")
        found.append((pair[0], pair[1], str(pair[2]) if len(pair) == 3 else f"pair {i + 1}"))
    if not found:
        raise InputError("pairs is empty: give at least one pair of neighbouring datasets.")
    return found


def query_pairs(length: int, *, by: float = 1.0) -> list[Pair]:
    """Return vectors of query answers that differ by at most ``by`` in every entry, in the patterns that show most.

    For mechanisms that take the answers of ``length`` queries, each of which one record can move by ``by``.

    >>> [label for _, _, label in query_pairs(3)][:3]
    ['one up', 'one down', 'all up']

    Reference:
        Z. Ding et al. (2018), "Detecting violations of differential privacy", section 5.2, for most of the patterns.
    """
    size = positive_integer("length", length)
    base = np.full(size, by)
    half = np.arange(size) < size // 2
    step = np.arange(size) == 0
    pairs: list[tuple[NDArray[np.float64], str]] = [
        (base + by * step, "one up"),
        (base - by * step, "one down"),
        (base + by, "all up"),
        (base - by, "all down"),
    ]
    if size > 1:
        pairs += [
            (np.where(half, base - by, base + by), "half down, half up"),
            (np.where(step, base + by, base - by), "one up, others down"),
            (np.where(step, base - by, base + by), "one down, others up"),
            (np.where(half, base, base + by), "half up"),
        ]
    found: list[Pair] = [(base.copy(), other, label) for other, label in pairs]
    if size > 1:
        crossed = np.where(half, by, 0.0)
        found.append((crossed, by - crossed, "crossed"))
    return found


def pairs_of(schema: Schema, *, relation: Relation = "replace_one", rows: Sequence[int] = (1, 5)) -> list[Pair]:
    """Return neighbouring tables as polars frames: the ones in which mistakes show.

    Corners of the domain, values at and beyond the bounds, tables of one record and (``add_remove``) of none, equal
    records, one record unlike all others, missing values, and the changed record first, in the middle and last.

    Args:
        schema: The public description of the table.
        relation: ``"replace_one"``: one record takes other values; ``"add_remove"``: one record is not there.
        rows: Sizes of the tables.

    Raises:
        SchemaError: If a column has no levels or bounds.

    >>> schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 100}})
    >>> [label for _, _, label in pairs_of(schema)][:2]
    ['1 record, lowest to highest', '1 record, lowest to missing']
    """
    import polars as pl

    one_of("relation", relation, ("replace_one", "add_remove"))
    low = {c.name: _value(c, "lowest") for c in schema.fields}
    high = {c.name: _value(c, "highest") for c in schema.fields}
    changed = [("highest", high), ("missing", {c.name: _value(c, "missing") for c in schema.fields})]
    if any(isinstance(c, Numeric) for c in schema.fields):
        changed += [
            ("beyond the bounds", {c.name: _value(c, "beyond") for c in schema.fields}),
            ("the middle", {c.name: _value(c, "middle") for c in schema.fields}),
        ]
    if len(schema.fields) > 1:
        changed += [(f"highest {c.name} only", {**low, c.name: high[c.name]}) for c in schema.fields[:8]]
    kinds = {c.name: _kind(c) for c in schema.fields}

    def frame(records: list[dict[str, Any]]) -> pl.DataFrame:
        return pl.DataFrame({name: [r[name] for r in records] for name in schema.names}, schema=kinds, strict=False)

    found: list[Pair] = []
    for size in dict.fromkeys(positive_integer("rows", n) for n in rows):
        noun = "record" if size == 1 else "records"
        for words, record in changed:
            for place in dict.fromkeys((0, size // 2, size - 1)) if words == "highest" else (0,):
                where = "" if size == 1 or words != "highest" else f", number {place + 1}"
                rest = [low] * (size - 1)
                if relation == "replace_one":
                    pair = [*rest[:place], low, *rest[place:]], [*rest[:place], record, *rest[place:]]
                    label = f"{size} {noun}, lowest to {words}{where}"
                else:
                    pair = rest, [*rest[:place], record, *rest[place:]]
                    label = f"{size - 1} and {size} records, one with {words} more{where}"
                found.append((frame(pair[0]), frame(pair[1]), label))
        if size > 1 and relation == "replace_one":
            found.append(
                (frame([low] + [high] * (size - 1)), frame([high] * size), f"{size} {noun}, the odd one joins")
            )
    if relation == "add_remove":
        found.insert(0, (frame([]), frame([low]), "no record and one"))
    return found


def _value(column: Column, which: str) -> Any:
    if isinstance(column, Categorical):
        assert column.size  # raises where levels are still to be learnt
        levels = column.levels
        return {"lowest": levels[0], "missing": None, "middle": levels[len(levels) // 2]}.get(which, levels[-1])
    lower, upper = column.boundaries[0], column.boundaries[-1]
    if which == "missing":
        return None if column.integer else float("nan")
    number = {
        "lowest": lower,
        "highest": upper,
        "middle": (lower + upper) / 2,
        "beyond": upper + 1000 * (upper - lower),
    }[which]
    return round(number) if column.integer else float(number)


def _kind(column: Column) -> Any:
    import polars as pl

    if isinstance(column, Numeric):
        return pl.Int64 if column.integer else pl.Float64
    return {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean}[column.kind]
