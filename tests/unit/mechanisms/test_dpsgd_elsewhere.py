"""A training goes to rows that are on a worker: paid for here, drawn there, and one result comes back."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from escudo.errors import BudgetExceededError, EngineError, InputError
from escudo.mechanisms.dpsgd import Layout, Training, resume, train
from escudo.mechanisms.dpsgd import _mechanism as module
from escudo.mechanisms.dpsgd._checkpoint import TrainingFile
from escudo.privacy import MemoryAccount
from escudo.table import Whole
from escudo.table._whole import Errand

LAYOUT = Layout((("out", "w", (2, 1)),))
TRAINING = Training(
    steps=30, sampling_probability=0.5, noise_multiplier=2.0, clip_norm=1.0, learning_rate=0.05, averaging=0.5
)
TERMS: dict[str, Any] = {"expected_rows": 40, "delta": 1e-6, "relation": "add_remove"}
ROWS = np.random.default_rng(0).integers(0, 3, (40, 3)).astype(np.uint8)


def regression(tape: Any, rows: Any, key: Any) -> Any:
    rows = rows.astype("float32")
    return ((tape.dense("out", rows[:, :2]) - rows[:, 2:]) ** 2).sum(axis=-1)


def elsewhere(sent: list[bytes] | None = None, *, runs: int = 1, before: Callable[[], None] = lambda: None) -> Whole:
    """The rows on a worker that runs what it is sent so many times, and hands over what the last run came to."""

    def send(errand: Errand) -> bytes:
        before()
        there = pickle.dumps(errand)
        if sent is not None:
            sent.append(there)
        answers = [pickle.loads(there)([ROWS[:11], ROWS[11:]]) for _ in range(runs)]
        assert len({*answers}) == runs
        return answers[-1]

    return Whole("dask", None, ROWS[:0], send=send)


def trained(rows: Any, **options: Any) -> Any:
    start = np.zeros(2, np.float32)
    return train(regression, LAYOUT, start, rows, TRAINING, **{**TERMS, "seed": 1, **options})


def test_a_seeded_training_on_a_worker_is_the_one_that_runs_here() -> None:
    np.testing.assert_array_equal(trained(elsewhere()).value, trained(ROWS).value)
    np.testing.assert_array_equal(trained(Whole("polars", ROWS, ROWS[:0])).value, trained(ROWS).value)


def test_nothing_random_is_sent_with_a_training_for_release() -> None:
    """All that travels is the same each time, so whoever sees it knows nothing of the noise, which differs."""
    sent: list[bytes] = []
    made = [trained(elsewhere(sent), seed=None) for _ in range(2)]
    assert sent[0] == sent[1]
    assert not np.array_equal(made[0].value, made[1].value)
    assert all(one.guarantee.for_release for one in made)


def test_a_run_that_is_repeated_draws_anew_and_one_result_is_released_for_one_charge() -> None:
    account = MemoryAccount(relation="add_remove")
    charged: list[int] = []
    whole = elsewhere(runs=3, before=lambda: charged.append(len(account.receipts)))  # no two of its runs are alike
    made = trained(whole, seed=None, account=account)
    assert charged == [1]  # before anything was sent
    assert len(account.receipts) == 1
    assert made.event == account.receipts[0].event == TRAINING.event("add_remove")


def test_what_is_refused_is_not_sent() -> None:
    sent: list[bytes] = []
    with pytest.raises(BudgetExceededError):
        trained(elsewhere(sent), account=MemoryAccount(epsilon=0.1, delta=1e-6, relation="add_remove"))
    assert sent == []


def test_a_worker_that_fails_leaves_the_charge_marked_and_none_of_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("row 7 is odd")

    monkeypatch.setattr(module._Steps, "run", fails)
    account = MemoryAccount(relation="add_remove")
    with pytest.raises(EngineError, match="RuntimeError") as caught:
        trained(elsewhere(), account=account)
    assert "odd" not in str(caught.value)
    assert list(account.failed.values()) == ["EngineError"]


def test_a_training_that_was_stopped_here_goes_on_on_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To what it would have been; and while a worker trains no state is kept, as the account is not there."""
    monkeypatch.setattr(module, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr("escudo.mechanisms.dpsgd._sampling._SEGMENT_ROWS", 1)
    path, account = tmp_path / "training.ckpt", MemoryAccount(relation="add_remove")

    class Stopped(Exception):
        pass

    keep = TrainingFile.keep

    def stops(*arguments: Any) -> None:
        keep(*arguments)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(TrainingFile, "keep", stops)
        with pytest.raises(Stopped):
            trained(ROWS, account=account, checkpoint=path)
    made = resume(path, regression, LAYOUT, elsewhere(), TRAINING, account=account, seed=1, **TERMS)
    np.testing.assert_array_equal(made.value, trained(ROWS).value)
    assert len(account.receipts) == 1
    monkeypatch.setattr(TrainingFile, "keep", None)
    again = trained(elsewhere(), account=account, checkpoint=path)
    np.testing.assert_array_equal(again.value, made.value)
    assert not path.exists()


def test_it_is_said_that_the_training_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "progress"
    monkeypatch.setenv("ESCUDO_PROGRESS", str(told))
    trained(elsewhere())
    lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    assert {line["label"] for line in lines} == {"Training on a worker of dask"}
    assert [line["done"] for line in lines] == [0, TRAINING.steps]


def test_rows_that_are_no_numbers_are_refused_there_too() -> None:
    words = np.array([["a", "b", "c"]])
    whole = Whole("dask", None, words[:0], send=lambda errand: errand([words]))
    with pytest.raises(InputError, match="array of real numbers"):
        trained(whole)
