from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.privacy import Guarantee
from escudo.table import Schema
from escudo.utility import Rows


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema.from_dict({"a": ["0", "1"], "b": ["0", "1", "2"], "c": ["0", "1"]})


@pytest.fixture(scope="session")
def rows(schema) -> pl.DataFrame:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, 60)
    b = np.where(rng.random(60) < 0.7, a, rng.integers(0, 2, 60))
    frame = pl.DataFrame({"a": a, "b": b, "c": rng.integers(0, 2, 60)}).cast(pl.String)
    return pl.concat([frame, pl.DataFrame({"a": ["0"], "b": ["2"], "c": ["1"]})])  # row 60 stands alone


class Flipped:
    """Tells whether row 60's value of b is 2, truthfully with probability p: its ε is log(p / (1 - p)), exactly."""

    def __init__(self, epsilon: float, claimed: float | None = None):
        self.truthful = 1 / (1 + np.exp(-epsilon))
        self.claim = Guarantee(epsilon=epsilon if claimed is None else claimed)

    def synthetic(self, rows, *, sets, size, seed):
        rng = np.random.default_rng(seed)
        present = rows.record is not None and rows.record.codes[0, 1] == 2
        said = present if rng.random() < self.truthful else not present
        codes = np.zeros((size, 3), dtype=np.int64)
        codes[:, 1] = 2 * said
        made = Rows(schema=rows.rest.schema, codes=codes, numbers=np.full(codes.shape, np.nan))
        return [made] * sets


@pytest.fixture(scope="session")
def flipped():
    return Flipped


@pytest.fixture(scope="session")
def resampling():
    """A generator that promises much and draws real rows."""

    def draw(rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
        return rows.sample(2 * rows.height, with_replacement=True, seed=int(rng.integers(2**31)))

    return draw
