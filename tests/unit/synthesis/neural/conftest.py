"""Small mixed tables whose truth is known, and networks over them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.causal import CausalGraph
from escudo.table import Schema

SPECS = {
    "sex": ["f", "m"],
    "job": ["none", "office", "field", "other"],
    "grade": {"type": "ordinal", "levels": [1, 2, 3, 4, 5]},
    "age": {"type": "numeric", "lower": 0.0, "upper": 100.0, "bins": 10, "missing": True},
}


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema.from_dict(SPECS)


@pytest.fixture(scope="session")
def graph() -> CausalGraph:
    return CausalGraph.from_edges([("sex", "job"), ("job", "age"), ("age", "grade")])


@pytest.fixture(scope="session")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    rows = 1500
    sex = rng.integers(0, 2, rows)
    job = np.where(rng.random(rows) < 0.7, 1 + sex, rng.integers(0, 4, rows))
    age = np.clip(20 + 18 * job + rng.normal(0, 8, rows), 0, 100)
    grade = np.clip(np.round(1 + age / 25 + rng.normal(0, 0.5, rows)), 1, 5).astype(int)
    missing = rng.random(rows) < 0.1
    return pl.DataFrame(
        {
            "sex": np.array(["f", "m"])[sex],
            "job": np.array(["none", "office", "field", "other"])[job],
            "grade": grade,
            "age": pl.Series(np.where(missing, np.nan, age), nan_to_null=True),
        }
    )
