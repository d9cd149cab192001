"""Work is taken to all rows in one place; only numbers come back, and of an error only what may be said."""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest

from escudo.errors import EngineError, InputError, RefusedError
from escudo.table import PrivateTable, Schema, Whole, _contributions
from escudo.table._whole import Errand
from escudo.utility import learner_of

PRIVATE = "MARIA" + " 47"  # as no line of this file says it
ROWS = np.arange(3000, dtype=np.uint8).reshape(-1, 3)
NONE = ROWS[:0]


def batches(rows: np.ndarray = ROWS, size: int = 64) -> Iterator[np.ndarray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def elsewhere(rows: Callable[[], np.ndarray] = lambda: ROWS) -> Whole:
    """All rows on a worker: what goes there and what comes back is bytes."""

    def send(errand: Errand) -> bytes:
        there: Errand = pickle.loads(pickle.dumps(errand))
        return there(batches(rows()))

    return Whole("dask", None, NONE, send=send)


def shape(rows: np.ndarray) -> np.ndarray:
    return np.array(rows.shape)


def failing(rows: np.ndarray, error: Exception) -> np.ndarray:
    raise error


def test_what_is_found_of_all_rows_is_the_same_here_and_there() -> None:
    found = elsewhere().found(np.copy)
    np.testing.assert_array_equal(found, ROWS)
    assert found.dtype == ROWS.dtype
    np.testing.assert_array_equal(Whole("polars", ROWS, NONE).found(np.copy), found)
    assert elsewhere(lambda: NONE).found(shape).tolist() == [0, 3]  # a table without rows is one like any other


def test_beyond_the_memory_for_rows_a_worker_maps_them_from_a_file_without_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mapped(rows: np.ndarray) -> np.ndarray:
        bases = []
        while rows is not None:
            bases.append(isinstance(rows, np.memmap))
            rows = getattr(rows, "base", None)
        return np.array(bases)

    whole = Whole("dask", None, NONE, send=lambda errand: errand(batches()))
    assert not whole.found(mapped).any()
    monkeypatch.setattr(_contributions, "memory_for_rows", lambda: 1000)
    assert whole.found(mapped).any()
    np.testing.assert_array_equal(whole.found(np.copy), ROWS)


@pytest.mark.parametrize("kind", [InputError, RefusedError, EngineError])
def test_what_escudo_itself_says_comes_back_in_its_words(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="say something else") as caught:
        elsewhere().found(partial(failing, error=kind("say something else.")))
    assert type(caught.value) is kind


def test_of_any_other_error_the_kind_comes_back_and_nothing_else() -> None:
    with pytest.raises(EngineError, match=r"dask engine failed .*\(ValueError\)") as caught:
        elsewhere().found(partial(failing, error=ValueError(PRIVATE)))
    assert PRIVATE not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(EngineError, match="a worker lacks the package 'jax'"):
        elsewhere().found(partial(failing, error=ModuleNotFoundError(PRIVATE, name="jax")))


def without_sklearn(rows: np.ndarray) -> np.ndarray:
    with mock.patch.dict(sys.modules, {"sklearn": None}):
        learner_of("forest", "class", 0)
    return rows


def test_an_extra_that_is_not_installed_on_a_worker_is_missed_there() -> None:
    """And not where the question is asked, where escudo's own words would send somebody to install it."""
    with pytest.raises(InputError, match="extra 'evaluation'"):
        without_sklearn(ROWS)
    with pytest.raises(EngineError, match="a worker lacks the package 'sklearn'"):
        elsewhere().found(without_sklearn)


class NotSent(Exception):
    """What a cluster's Python worker tells of an error, by its text."""


NotSent.__name__ = "PythonException"


def test_why_something_never_got_to_a_worker_is_said() -> None:
    def send(errand: Errand, error: Exception) -> bytes:
        raise error

    for error, said in (
        (ModuleNotFoundError(PRIVATE, name="mine"), "a worker lacks the package 'mine'"),
        (NotSent(f"Traceback\n  {PRIVATE}\nModuleNotFoundError: No module named 'mine'\n"), "lacks the package 'mine'"),
        (pickle.PicklingError(PRIVATE), "cannot be sent to workers"),
        (TypeError(f"Could not serialize object of type {PRIVATE}"), "cannot be sent to workers"),
    ):
        with pytest.raises(EngineError, match=said) as caught:
            Whole("dask", None, NONE, send=partial(send, error=error)).found(shape)
        assert PRIVATE not in "".join(traceback.format_exception(caught.value))


def test_a_cluster_that_fails_shows_no_words_of_its_own() -> None:
    def send(errand: Errand) -> bytes:
        raise OSError(PRIVATE)

    with pytest.raises(EngineError, match="dask engine failed") as caught:
        Whole("dask", None, NONE, send=send).found(shape)
    assert PRIVATE not in "".join(traceback.format_exception(caught.value))


def test_an_answer_that_would_run_code_is_none() -> None:
    written = io.BytesIO()
    np.savez(written, found=np.array([print], dtype=object), seen=np.zeros(0, np.uint8))
    with pytest.raises(EngineError, match="ValueError"):
        Whole("dask", None, NONE, send=lambda _: written.getvalue()).found(shape)


@pytest.mark.parametrize(
    "other", [ROWS[::-1], ROWS[1:], np.append(ROWS, ROWS[:1], axis=0)], ids=["order", "fewer", "more"]
)
def test_rows_that_must_come_in_order_are_the_same_in_the_same_order(other: np.ndarray) -> None:
    """Else a row could be in both halves of a table that is split by position. A training needs no order."""
    turns = iter([ROWS, ROWS, other, other])
    whole = elsewhere(lambda: next(turns))
    assert whole.found(shape, in_order=True).tolist() == [1000, 3]
    assert whole.found(shape, in_order=True).tolist() == [1000, 3]
    assert whole.found(shape).tolist() == list(other.shape)
    with pytest.raises(EngineError, match="table changed"):
        whole.found(shape, in_order=True)


def test_neither_rows_nor_what_is_asked_of_them_are_shown() -> None:
    for whole in (Whole("polars", ROWS, NONE), elsewhere()):
        assert repr(whole) == f"Whole(engine={whole.engine!r})"


def test_a_frame_without_workers_holds_its_rows_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the types and the order of batches, read once however much is asked."""
    schema = Schema.from_dict({"kind": ["a", "b"], "size": {"type": "numeric", "lower": 0, "upper": 9}})
    frame = pl.DataFrame({"kind": ["a", "b", None], "size": [1.0, None, 12.0]})
    table = PrivateTable(frame, schema)
    ways: list[dict[str, Any]] = [{}, {"columns": ["size"], "encode": "shares"}]
    for way in ways:
        wanted = np.concatenate(list(table.batches(**way)))
        with table.in_one_place(**way, once=False) as whole:
            monkeypatch.setattr(PrivateTable, "batches", None)
            for _ in range(2):
                found = whole.found(np.copy)
                np.testing.assert_array_equal(found, wanted)
                assert found.dtype == wanted.dtype
            monkeypatch.undo()
