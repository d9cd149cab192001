"""How a dataframe stores a column, in the few kinds that matter when a schema is drafted or checked."""

from __future__ import annotations

from typing import Literal, TypeAlias

import narwhals as nw
from narwhals.dtypes import DType

__all__ = ["Storage", "storage_of"]

Storage: TypeAlias = Literal["string", "integer", "float", "boolean", "time", "object", "empty", "other"]


def storage_of(dtype: DType) -> Storage:
    """Return how a dataframe stores a column; decimals count as floats, categories as strings."""
    if dtype.is_integer():
        return "integer"
    if dtype.is_numeric():
        return "float"
    if dtype == nw.Boolean:
        return "boolean"
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return "string"
    if dtype.is_temporal():
        return "time"
    if dtype == nw.Object:
        return "object"
    return "empty" if dtype == nw.Unknown else "other"
