"""Whom to attack: people drawn at random, outliers, chosen ones, and records made up to stand out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive_integer
from escudo.errors import InputError
from escudo.table import Numeric
from escudo.utility import Rows

__all__ = ["CHOICES", "Choice", "canary", "choose", "outlyingness"]

Choice = Literal["outliers", "random"]
CHOICES: tuple[Choice, ...] = ("outliers", "random")

_NEAREST = 5
_MOST_COMPARED = 5000


def choose(rows: Rows, count: int, choice: Choice | Sequence[int], rng: np.random.Generator) -> list[int]:
    """Return the rows to attack.

    Args:
        rows: The private rows.
        count: How many.
        choice: ``"outliers"``: those with the largest mean distance to their 5 nearest neighbours, the people most at
            risk; ``"random"``; or the numbers of the rows.
        rng: Decides random ones, and whom outliers are compared with in large tables.

    Reference:
        M. Meeus et al. (2023), "Achilles' Heels: vulnerable record identification in synthetic data publishing".
    """
    if isinstance(choice, str):
        kind = one_of("choose", choice, CHOICES)
        most = positive_integer("targets", count)
        if most > len(rows):
            raise InputError(f"targets asks for {most} people; there are only {len(rows)} rows.")
        if kind == "random":
            return [int(place) for place in np.sort(rng.permutation(len(rows))[:most])]
        far = outlyingness(rows, rng)
        return [int(place) for place in np.argsort(-far, kind="stable")[:most]]
    places = [int(place) for place in choice]
    if not places or min(places) < 0 or max(places) >= len(rows):
        raise InputError(f"targets must be numbers of rows from 0 to {len(rows) - 1}, at least one.")
    return places


def outlyingness(rows: Rows, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return each row's mean distance to its 5 nearest neighbours, in columns that differ."""
    values = _scaled(rows)
    others = np.arange(len(rows))
    if len(rows) > _MOST_COMPARED:
        others = np.sort(rng.permutation(len(rows))[:_MOST_COMPARED])
    compared = values[others]
    far = np.empty(len(rows))
    most = min(_NEAREST, len(others) - 1)
    if most < 1:
        return np.zeros(len(rows))
    squares = (compared**2).sum(axis=1)
    for start in range(0, len(rows), 1000):
        part = values[start : start + 1000]
        apart = (part**2).sum(axis=1)[:, None] + squares - 2 * part @ compared.T
        apart[(start + np.arange(len(part)))[:, None] == others] = np.inf  # nobody is their own neighbour
        far[start : start + len(part)] = np.sort(np.maximum(apart, 0), axis=1)[:, :most].mean(axis=1)
    return far


def _scaled(rows: Rows) -> NDArray[np.float64]:
    """Return rows such that squared distances count differing columns, and how far numbers are apart."""
    parts = []
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            parts.append(np.nan_to_num(rows.numbers[:, [place]], nan=3.0) / 2)
        else:
            parts.append((rows.codes[:, [place]] == np.arange(column.size)) / np.sqrt(2))
    return np.hstack(parts)


def canary(rows: Rows) -> Rows:
    """Return a record made up to stand out: in each column the rarest level, or the end of the range further away."""
    codes, numbers = np.zeros((1, len(rows.schema)), dtype=np.int64), np.full((1, len(rows.schema)), np.nan)
    for place, column in enumerate(rows.schema.fields):
        if isinstance(column, Numeric):
            values = rows.numbers[:, place]
            middle = np.nanmean(values) if not np.isnan(values).all() else 0.0
            numbers[0, place] = -1.0 if middle > 0 else 1.0
            codes[0, place] = 0 if middle > 0 else column.size - 1 - column.missing
        else:
            codes[0, place] = int(np.bincount(rows.codes[:, place], minlength=column.size).argmin())
    return Rows(schema=rows.schema, codes=codes, numbers=numbers)
