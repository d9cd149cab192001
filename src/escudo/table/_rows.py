"""Rows as the schema sees them: encoded, and bounded per person, still inside the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw

from escudo.table._columns import Categorical, Column, Numeric
from escudo.table._contributions import PERSON_NUMBER, bound_contributions, person_columns, with_text_number
from escudo.table._encode import clipped, guarded, sortable
from escudo.table._schema import Schema
from escudo.table._source import Source

__all__ = ["Rows", "encoded_rows", "needed_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A query for a table's rows that has not run yet.

    Attributes:
        frame: Lazy frame of the guarded columns, of clipped values if they were asked for, and for the person unit of
            ``PERSON_NUMBER``, a public hash of whose row it is.
        codes: For each column of the schema in the query, its guarded column's name.
        values: For each numeric column in the query, its clipped values' name; empty if not asked for.
    """

    frame: nw.LazyFrame[Any] = field(repr=False)  # some engines' frames print rows
    codes: dict[str, str]
    values: dict[str, str]


def needed_columns(schema: Schema, names: Sequence[str]) -> dict[str, Column | None]:
    """Return the columns of the frame that a query for the named ones reads; None stands for the person id.

    For the person unit every column takes part, whichever are named: which rows of a person are kept is then the
    same in every query, so tables that share columns agree.
    """
    if schema.person_id is None:
        return {name: schema[name] for name in names}
    schema.shape()  # refuses columns whose levels or bounds are still to be learnt
    return {**schema.columns, schema.person_id: None}


def encoded_rows(source: Source, schema: Schema, names: Sequence[str], *, seed: int, values: bool = False) -> Rows:
    """Return the query for the named columns, at most ``max_rows_per_person`` rows of each person.

    Args:
        source: The frame.
        schema: Its schema.
        names: The columns that are needed.
        seed: The public seed of the sample of a person's rows.
        values: Whether to give the values of numeric columns too, as float64 within their bounds.
    """
    columns = needed_columns(schema, names)
    chosen = [name for name in columns if name != schema.person_id]
    raw = source.lazy(columns)
    dtypes = raw.collect_schema()
    # Plain names of our own: a person id called "n", or a column with quotes in its name, cannot get in the way.
    codes = {name: f"c{position}" for position, name in enumerate(chosen)}
    numeric = {name: column for name in chosen if isinstance(column := schema[name], Numeric)} if values else {}
    value_names = {name: codes[name].replace("c", "v") for name in numeric}
    expression = guarded if schema.person_id is None else sortable
    encoded = [expression(schema[name], dtypes[name]).alias(codes[name]) for name in chosen]
    encoded += [clipped(column, dtypes[name]).alias(value_names[name]) for name, column in numeric.items()]
    if schema.person_id is None or schema.max_rows_per_person is None:
        return Rows(frame=raw.select(*encoded), codes=codes, values=value_names)
    person = person_columns(schema.person_id, dtypes[schema.person_id], seed=seed)
    frame = with_text_number(raw.select(*encoded, *person), seed=seed)
    words, texts = _packed(schema, codes)
    # Values come last in the order, so the sample is the same with and without them.
    order = [*words, *texts, *value_names.values()]
    frame = frame.with_columns(**words) if words else frame
    frame = bound_contributions(frame, order, max_rows_per_person=schema.max_rows_per_person)
    kept = frame.select(*codes.values(), *value_names.values(), PERSON_NUMBER)
    return Rows(frame=kept, codes=codes, values=value_names)


def _packed(schema: Schema, codes: Mapping[str, str]) -> tuple[dict[str, nw.Expr], list[str]]:
    """Pack the encoded columns that hold whole numbers into as few 64-bit words as possible, to sort by fewer columns.

    Returns:
        The words by name, and the columns of text, which are left as they are.
    """
    words: list[nw.Expr] = []
    texts: list[str] = []
    room = 0
    for name, code in codes.items():
        column = schema[name]
        if column.kind == "string":
            texts.append(code)
            continue
        levels = column.levels if isinstance(column, Categorical) else (0, column.size)
        low, high = int(min(levels)), int(max(levels)) + 1  # one beyond the levels stands for missing
        digit = nw.col(code).fill_null(high).cast(nw.Int64) - low
        radix = high - low + 1
        if radix <= room:
            words[-1] = words[-1] * radix + digit
            room //= radix
        else:
            words.append(digit)
            room = 2**62 // radix
    return {f"w{position}": word for position, word in enumerate(words)}, texts
