"""Frames of every engine that holds texts, by their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl
import pyarrow as pa

FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "polars categories": lambda texts: pl.DataFrame(texts).cast(pl.Categorical),
    "polars objects": lambda texts: pl.DataFrame(
        {name: pl.Series(values, dtype=pl.Object) for name, values in texts.items()}
    ),
    "pandas": pd.DataFrame,
    "pandas objects": lambda texts: pd.DataFrame(texts, dtype=object),
    "pandas categories": lambda texts: pd.DataFrame(texts, dtype="category"),
    "pyarrow": pa.table,
    "pyarrow dictionaries": lambda texts: pa.table(
        {name: pa.array(values).dictionary_encode() for name, values in texts.items()}
    ),
    "dask": lambda texts: dd.from_pandas(pd.DataFrame(texts), npartitions=3),
}
