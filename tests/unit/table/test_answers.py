"""Results come back from a worker as text: to the last bit, and without running anything."""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from escudo.privacy import GaussianEvent, Guarantee
from escudo.table import Schema
from escudo.table._answers import from_text, to_text

EVENT = GaussianEvent(l2_sensitivity=1.0, scale=4.0, grid=1.0)
VALUES: list[Any] = [
    [None, True, 3, 0.1 + 0.2, -math.inf, "MARIA 47", [], ()],
    (1, (2.5, ["a"]), {"b": (1,), 2: {"tuple": [1]}}),
    {("a", "b"): 0.25, None: {}},
    Guarantee(epsilon=1.0, delta=1e-6, source=EVENT),
    (Guarantee(rho=0.5), [Guarantee(mu=1.0, for_release=False)]),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_plain_values_and_results_of_escudo_come_back_as_they_were(value: Any) -> None:
    told = from_text(to_text(value))
    assert told == value
    assert type(told) is type(value)


def test_arrays_and_numbers_of_numpy_come_back_to_the_last_bit() -> None:
    for array in (np.arange(6).reshape(2, 3), np.array([0.1, np.nan, np.inf]), np.array([], bool), np.float32([1 / 3])):
        told = from_text(to_text(array))
        np.testing.assert_array_equal(told, array)
        assert told.dtype == array.dtype
    assert from_text(to_text([np.int64(3), np.bool_(True), np.float64(0.1)])) == [3, True, 0.1]
    assert math.isnan(from_text(to_text(math.nan)))
    assert from_text(to_text(MappingProxyType({"a": 1}))) == {"a": 1}


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"MARIA", np.array([object()]), [print]],
    ids=["object", "set", "bytes", "array", "code"],
)
def test_nothing_else_is_sent(value: Any) -> None:
    with pytest.raises(TypeError):
        to_text(value)


@pytest.mark.parametrize(
    "kind",
    [
        ["os", "system"],
        ["subprocess", "Popen"],
        ["escudo.cli", "main"],
        ["escudo.table", "Schema"],  # by where it is, and no other name
        ["escudo.errors", "InputError"],
    ],
    ids=":".join,
)
def test_what_is_no_result_of_escudo_is_not_made(kind: list[str]) -> None:
    with pytest.raises(ValueError, match="no result of escudo"):
        from_text(json.dumps({"kind": kind, "fields": {}}))


def test_a_schema_comes_back() -> None:
    schema = Schema.from_dict({"smoke": ["no", "yes"], "dose": {"type": "numeric", "lower": 0, "upper": 5}})
    assert from_text(to_text(schema)) == schema
