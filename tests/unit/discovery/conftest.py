"""Simulated networks and tables shared by the tests of discovery."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from escudo.causal import Network
from escudo.table import PrivateTable, Schema


@pytest.fixture(scope="session")
def collider() -> Network:
    """a → c ← b, c → d: every direction can be told."""
    yes = [[0.9, 0.1], [0.4, 0.6], [0.35, 0.65], [0.1, 0.9]]
    return Network(
        levels={name: ("no", "yes") for name in "abcd"},
        parents={"c": ("a", "b"), "d": ("c",)},
        tables={
            "a": [0.6, 0.4],
            "b": [0.5, 0.5],
            "c": np.array(yes).reshape(2, 2, 2),
            "d": [[0.85, 0.15], [0.2, 0.8]],
        },
    )


@pytest.fixture(scope="session")
def collider_rows(collider: Network) -> pl.DataFrame:
    return collider.sample_frame(20_000, rng=np.random.default_rng(5))


@pytest.fixture(scope="session")
def collider_schema(collider: Network) -> Schema:
    return Schema.from_dict({name: list(levels) for name, levels in collider.levels.items()})


@pytest.fixture
def collider_table(collider_rows: pl.DataFrame, collider_schema: Schema) -> PrivateTable:
    return PrivateTable(collider_rows, collider_schema)
