"""Noise that somebody watches, or put something in the place of, is never for release: not one way around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from escudo.discovery import discover, effect_of
from escudo.errors import InputError, RefusedError
from escudo.learning import learn_schema
from escudo.mechanisms import (
    Purse,
    _noise,
    exponential,
    gap_sign,
    gaussian,
    laplace,
    log_iqr,
    permute_and_flip,
    propose_test_release,
    publishable,
    quantile_cells,
    quantiles,
    stable_histogram,
    votes,
)  # fmt: skip
from escudo.mechanisms._noise import SecureNoise, noise_source, watched, watching
from escudo.orientation import direction, orient
from escudo.privacy import Guarantee, MemoryAccount, Plan, PureEvent, charging
from escudo.synthesis import fit, prepare, prepare_discovered, synthesize
from escudo.table import PrivateTable, Schema
from escudo.utility import evaluate_privately
from escudo.utility._private import fitting_evaluated, prepare_evaluated

ROWS = 400
RNG = np.random.default_rng(0)
FRAME = pl.DataFrame(
    {name: RNG.choice(["no", "yes"], ROWS) for name in "ab"} | {name: RNG.uniform(0, 1, ROWS) for name in "uv"}
)
SCHEMA = Schema.from_dict(
    {"a": ["no", "yes"], "b": ["no", "yes"]} | {name: {"type": "numeric", "lower": 0, "upper": 1} for name in "uv"}
)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


class NoNoise:
    """What a watcher could put in: the data themselves, and a claim that they are for release."""

    for_release: ClassVar[bool] = True

    def add_laplace(self, integers: Any, scale: float) -> Any:
        return integers

    add_gaussian = add_laplace

    def gumbel_argmax(self, integers: Any, scale: float) -> int:
        return int(np.argmax(integers))

    exponential_argmax = gumbel_argmax


PRIMITIVES: dict[str, Callable[[MemoryAccount], Any]] = {
    "laplace": lambda to: laplace(3, sensitivity=1, epsilon=1.0, account=to),
    "gaussian": lambda to: gaussian(3.0, l2_sensitivity=1.0, scale=2.0, account=to),
    "exponential": lambda to: exponential([1.0, 2.0], sensitivity=1.0, epsilon=1.0, account=to),
    "permute_and_flip": lambda to: permute_and_flip([1.0, 2.0], sensitivity=1.0, epsilon=1.0, account=to),
    "quantiles": lambda to: quantiles([0.1, 0.2, 0.9], [0.5], lower=0, upper=1, epsilon=1.0, account=to),
    "quantile_cells": lambda to: quantile_cells(np.array([3, 4]), [0.5], epsilon=1.0, account=to),
    "stable_histogram": lambda to: stable_histogram({"x": 99}, **BUDGET, account=to),
    "log_iqr": lambda to: log_iqr([np.arange(50.0)], lower=0, upper=50, epsilon=1.0, delta=1e-6, account=to),
    "propose_test_release": lambda to: propose_test_release(1.0, 9, sensitivity=1.0, **BUDGET, account=to),
    "gap_sign": lambda to: gap_sign(1.0, sensitivity=1.0, epsilon=1.0, account=to),
    "votes": lambda to: votes(np.array([1, -1, 1]), epsilon=1.0, account=to),
    "learn_schema": lambda to: learn_schema(FRAME[["a"]], **BUDGET, account=to),
}


def _evaluated(table: PrivateTable) -> Any:
    ready = prepare_evaluated(
        lambda left: prepare(SCHEMA, None, epsilon=left, delta=1e-6), share=0.1, epsilon=1.0, delta=1e-6
    )
    with fitting_evaluated(ready, table) as (model, figures):
        assert not figures(FRAME[:50]).guarantee.for_release
        return model


VERBS: dict[str, Callable[[PrivateTable], Any]] = {
    "synthesize": lambda table: synthesize(table, None, **BUDGET),
    "moments": lambda table: synthesize(table, None, generator="moments", **BUDGET),
    "a graph found first": lambda table: fit(prepare_discovered(SCHEMA, generator="moments", **BUDGET), table),
    "with an evaluation": _evaluated,
    "evaluate_privately": lambda table: evaluate_privately(table, FRAME[:50], epsilon=1.0),
    "discover": lambda table: discover(table, **BUDGET),
    "discover with directions": lambda table: discover(table, directions=0.3, **BUDGET),
    "effect_of": lambda table: effect_of(table, "a", "b", trial=True, epsilon=1.0),
    "direction by votes": lambda table: direction(table, "u", "v", epsilon=1.0),
    "direction by gap": lambda table: direction(table, "u", "v", epsilon=1.0, method="gap", train=FRAME[:200]),
    "orient": lambda table: orient(table, epsilon=1.0, blocks=40),
}


def marks(made: Any, account: MemoryAccount) -> set[bool]:
    return {made.guarantee.for_release, *(receipt.for_release for receipt in account.receipts)}


@pytest.mark.parametrize("stand_in", [lambda source, event: NoNoise(), lambda source, event: source], ids=["no", "own"])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_no_mechanism_marks_watched_noise_for_release(name: str, stand_in: Any) -> None:
    account = MemoryAccount()
    with watching(stand_in):
        made = PRIMITIVES[name](account)
    assert account.receipts
    assert marks(made, account) == {False}


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_does_either(name: str) -> None:
    table = PrivateTable(FRAME, SCHEMA, MemoryAccount())
    with watching(lambda source, event: NoNoise()):
        made = VERBS[name](table)
    assert marks(made, table.account) == {False}


def test_the_training_of_a_network_from_a_watched_start_is_not_for_release() -> None:
    table = PrivateTable(FRAME[["a", "b"]], Schema.from_dict({"a": ["no", "yes"], "b": ["no", "yes"]}), MemoryAccount())
    with watching(lambda source, event: source):
        made = synthesize(table, None, generator="autoregressive", steps=1, pretraining=0, **BUDGET)
    assert marks(made, table.account) == {False}


def test_unwatched_and_unseeded_all_of_them_are_for_release() -> None:
    for name in ("laplace", "votes", "learn_schema"):
        account = MemoryAccount()
        assert marks(PRIMITIVES[name](account), account) == {True}
    table = PrivateTable(FRAME, SCHEMA, MemoryAccount())
    assert marks(VERBS["effect_of"](table), table.account) == {True}


def test_only_the_secure_source_is_for_release() -> None:
    sources = [noise_source(None), noise_source(0), noise_source(np.random.default_rng(0))]
    assert [type(source) is SecureNoise for source in sources] == [source.for_release for source in sources]
    with watching(lambda source, event: source):
        assert not any(noise_source(seed).for_release for seed in (None, 0, np.random.default_rng(0)))
        assert not publishable(None)
    assert publishable(None)


def test_a_watcher_that_comes_after_the_charge_for_release_gets_nothing() -> None:
    class Sneaky(MemoryAccount):
        def spend(self, *arguments: Any, **terms: Any) -> Any:
            receipt = super().spend(*arguments, **terms)
            _noise._WATCHER.set(lambda source, event: NoNoise())
            return receipt

    account, before = Sneaky(), _noise._WATCHER.get()
    try:
        with pytest.raises(RefusedError, match="watched, but"):
            laplace(3, sensitivity=1, epsilon=1.0, account=account)
    finally:
        _noise._WATCHER.set(before)
    assert account.failed == {1: "RefusedError"}


def test_a_plan_that_was_charged_for_release_pays_no_watched_step() -> None:
    step = PureEvent(epsilon=0.5)
    account = MemoryAccount()
    with (
        charging(account, Plan("a step", step)) as purse,
        watching(lambda source, event: NoNoise()),
        pytest.raises(InputError, match="charged for release"),
    ):
        Purse(purse).draw(step, lambda noise: 0)


def test_outside_the_block_nobody_watches() -> None:
    with pytest.raises(ZeroDivisionError), watching(lambda source, event: NoNoise()):
        1 / 0  # noqa: B018
    source = SecureNoise()
    assert watched(source, None) is source


def test_the_guarantee_itself_says_so() -> None:
    with watching(lambda source, event: NoNoise()):
        promise: Guarantee = laplace(3, sensitivity=1, epsilon=1.0).guarantee
    assert "not for release" in str(promise).lower()
