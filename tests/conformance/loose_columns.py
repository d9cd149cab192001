"""Columns whose texts are read loosely, with the rows that engines, databases and clusters are tried on."""

from __future__ import annotations

from typing import Any

import polars as pl

from escudo.table import Schema

_ALONE = ["F", "f", "Female", "FEMALE", "M", "m", "K", "\u212a", "k", "ſ", "S", "ß", "SS", "ss", "İ", "I", "i", "ı"]
_ALONE += ["É", "é", "e\u0301", "n/a", "N/A", "E11.9", "e11", "I1", "(Missing)", "a b", "A  B", "\u2003", "%", "_", "'"]
_AROUND = ["{}", " {}", "{} ", "\t{}\r\n", "\f{}\v", "\u00a0{}", "{}\u00a0", "\u2003{}", "{}\u0085", "{}\u200b"]
TEXTS: list[Any] = [*(around.format(text) for text in _ALONE for around in _AROUND), "", " ", "\n\t ", "\u00a0", None]
COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "levels": ["F", "m ", "İ", "another"], "loose": True, "other": "another",
            "missing": True, "recode": {"Female": "F", "": "another", " N/A": "(missing)", "A b": "m ", "ß": "İ"}},
    "code": {"type": "ordinal", "levels": [" E1", "i", "É", "Anything else"], "loose": True, "prefix": 2,
             "other": "Anything else", "recode": {"(MISSING)": "É", "F": "i"}},
    "exact": {"type": "categorical", "levels": ["F", "f", " F", "k", "\u212a"], "missing": True},
    "first": {"type": "categorical", "levels": ["K", "ſ", "SS"], "loose": True},
}  # fmt: skip
SCHEMAS = {
    "row": Schema.from_dict(COLUMNS),
    "person": Schema.from_dict(COLUMNS, person_id="who", max_rows_per_person=2),
}
TABLES = [("sex",), ("code",), ("exact",), ("first", "sex"), ("sex", "code", "exact")]
SQL = "sex text, code text, exact text, first text, who bigint"


def rows() -> pl.DataFrame:
    """Return every text in every column, in other orders; a person has up to five rows."""
    drawn = {name: [TEXTS[(i * step) % len(TEXTS)] for i in range(len(TEXTS))] for name, step in _STEPS.items()}
    return pl.DataFrame(
        {**drawn, "who": [i // 5 for i in range(len(TEXTS))]}, schema_overrides=dict.fromkeys(_STEPS, pl.String)
    )


_STEPS = {"sex": 1, "code": 7, "exact": 11, "first": 13}  # none divides their number
