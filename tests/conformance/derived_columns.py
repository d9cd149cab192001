"""Columns that are the difference of two others, with the rows that databases and clusters are tried on."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl

from escudo.table import Schema

ROWS = 200
COLUMNS: dict[str, Any] = {
    "birth": {"type": "date", "lower": "1920-01-01", "upper": "2024-12-31", "bins": 10, "missing": True},
    "visit": {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31", "bins": 12, "missing": True},
    "age": {"type": "numeric", "lower": 0, "upper": 110, "bins": 11, "integer": True, "missing": True,
            "from": "visit - birth", "unit": "years"},
    "start": {"type": "numeric", "lower": 0, "upper": 100, "bins": 5},
    "end": {"type": "numeric", "lower": 0, "upper": 120, "bins": 6},
    "length": {"type": "numeric", "lower": 0, "upper": 10, "bins": 10, "from": "end - start"},
}  # fmt: skip
SCHEMAS = {
    "row": Schema.from_dict(COLUMNS),
    "person": Schema.from_dict(COLUMNS, person_id="who", max_rows_per_person=1),
}
TABLES = [("age",), ("length",), ("age", "birth"), ("age", "length", "visit")]
SQL = 'birth date, visit date, start double precision, "end" double precision, who bigint'


def rows() -> pl.DataFrame:
    """Return births and visits, starts and ends; some of them missing."""
    start = [float((i * 37) % 90) for i in range(ROWS)]
    births = [dt.date(1930, 1, 1) + dt.timedelta(days=(i * 7919) % 33_000) for i in range(ROWS)]
    visits = [dt.date(2024, 1, 1) + dt.timedelta(days=(i * 31) % 360) for i in range(ROWS)]
    return pl.DataFrame({
        "birth": [day if i % 13 else None for i, day in enumerate(births)],
        "visit": [day if i % 17 else None for i, day in enumerate(visits)],
        "start": start,
        "end": [value + i % 11 for i, value in enumerate(start)],
        "who": [i // 2 for i in range(ROWS)],
    })  # fmt: skip
