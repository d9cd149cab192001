from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.table import Schema


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema.from_dict(
        {
            "smoke": ["no", "yes"],
            "ward": ["a", "b", "c"],
            "ill": ["no", "yes"],
            "age": {"type": "numeric", "lower": 0, "upper": 100, "bins": 10, "missing": True},
        }
    )


@pytest.fixture(scope="session")
def draw():
    """Rows in which age and smoking decide illness; ``mixed`` breaks every link between columns."""

    def rows(count: int, seed: int, *, mixed: bool = False) -> pl.DataFrame:
        rng = np.random.default_rng(seed)
        smoke, age = rng.random(count) < 0.4, rng.uniform(0, 100, count)
        ill = rng.random(count) < np.where(smoke, 0.8, 0.1) * (0.4 + age / 160)
        ward = np.where(ill, rng.integers(0, 2, count), 2)
        frame = pl.DataFrame(
            {
                "smoke": np.where(smoke, "yes", "no"),
                "ward": np.array(["a", "b", "c"])[ward],
                "ill": np.where(ill, "yes", "no"),
                "age": pl.Series(age).set(pl.Series(rng.random(count) < 0.05), None),
            }
        )
        if mixed:
            frame = frame.select(pl.col(name).shuffle(seed=seed + place) for place, name in enumerate(frame.columns))
        return frame

    return rows
