"""What no pair of tables can show, and guarantees rest on all the same: each promise says how it is broken, or None.

A pair shows what a row or person moves. It cannot show how far a law's tail reaches, what an account would have let
pass, who else holds a file, or what nobody should have asked for.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

import escudo
from escudo.errors import EscudoError, InputError, RefusedError
from escudo.mechanisms import laplace
from escudo.mechanisms._noise import watching
from escudo.privacy import MemoryAccount, PureEvent
from neighbours.tables import ENGINES, base_rows, columns_of, graph_of, schema_of


def _most(shapes: Any, loss: Callable[..., Any], rows: Any, clip: float = 1.0) -> float:
    """Return how long the sum of rows is, in clip bounds: no longer than there are rows, if each is clipped."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd._layers import Layout, clipped_sum

    layout, count = Layout(shapes), len(rows[0])
    tree = layout.unflatten(jnp.zeros(layout.size, jnp.float32))
    terms = jax.random.key(0), jnp.ones(count, jnp.float32), jnp.float32(clip)
    total, _ = clipped_sum(lambda tape, batch, key: loss(tape, *batch), tree, tuple(map(jnp.asarray, rows)), *terms)
    return float(np.linalg.norm(np.asarray(layout.flatten(total), np.float64))) / clip


def clipping_is_total() -> str | None:
    """No row adds more than the clip bound, and none adds NaN, whatever it holds.

    The losses let a row choose the input a of a layer and the gradient d by its output.
    """
    mask = np.array([[1, 0], [1, 1]], np.float32)
    losses: dict[str, Callable[..., Any]] = {
        "dense": lambda tape, a, d: (tape.dense("one", a) * d).sum(axis=-1),
        "masked": lambda tape, a, d: (tape.masked("one", a, mask) * d).sum(axis=-1),
        "embedding": lambda tape, ids, d: (tape.embedding("one", ids) * d).sum(axis=(1, 2)),
    }
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, 20, 4)).astype(np.float32) * np.float32(1e3)
    cancelling = np.stack([first, second, -(first + second)], axis=1)
    wide, table = (("one", "w", (2, 2)),), (("one", "w", (4, 4)),)
    numbers = partial(np.array, dtype=np.float32)
    tries: list[tuple[str, str, Any, Any, float]] = [
        ("a square that underflows", "dense", wide, (numbers([[1.8e19, 0]]), numbers([[2e-20, 0]])), 0.01),
        ("infinity", "dense", wide, (numbers([[np.inf, np.nan]]), numbers([[np.inf, 1]])), 1.0),
        ("a gradient that is no number", "dense", wide, (numbers([[1, 1]]), numbers([[np.nan, 1]])), 1.0),
        ("one id under two names", "embedding", table, (np.array([[-1, 3]]), np.full((1, 2, 4), 50, np.float32)), 1.0),
        ("what a mask leaves out", "masked", wide, (numbers([[1.8e19, 0]] * 32), numbers([[0, 1.8e19]] * 32)), 1.0),
    ]
    for one in cancelling:
        tries.append(("gradients that cancel", "embedding", table, (np.ones((1, 3), np.int32), one[None]), 1.0))
    for name, loss, shapes, rows, clip in tries:
        most = _most(shapes, losses[loss], rows, clip)
        if not most <= len(rows[0]) * (1 + 1e-5):
            return f"{name}: {len(rows[0])} rows add {most:.6g} times the clip bound"
    return None


def noise_reaches_every_delta() -> str | None:
    """The tail of DP-SGD's noise goes on where words that come once in 2⁴⁸ draws lead."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import _normal

    def rare(key: Any, counter: Any) -> Any:
        level = jnp.asarray(counter[1], jnp.uint32) >> np.uint32(16)
        words = jnp.where(level < 2, jnp.uint32(0), jnp.uint32(2**9))
        return words, jnp.zeros_like(words)

    with mock.patch.object(_normal, "threefry", rare):
        farthest = float(np.abs(np.asarray(_normal.normal(jax.random.key(0), (4,)))).max())
    return None if 9 < farthest < math.inf else f"the noise ends at {farthest:.4g} standard deviations"


def accounts_compare_the_bound() -> str | None:
    """An account for people with k rows takes nothing that was made for fewer."""
    account = MemoryAccount(unit="person", max_rows_per_person=3)
    try:
        account.spend(PureEvent(epsilon=1.0, unit="person", max_rows_per_person=2))
    except InputError:
        return None
    return "an account for people with 3 rows took an event made for 2"


def checkpoints_are_used_by_one() -> str | None:
    """Of two copies of a checkpoint, the second buys nothing: it is refused unless its steps are paid for again."""
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import Training, _mechanism, resume, train
    from escudo.mechanisms.dpsgd._checkpoint import TrainingFile
    from escudo.mechanisms.dpsgd._layers import Layout

    layout, account, rows = Layout((("one", "w", (1, 1)),)), MemoryAccount(), np.ones((4, 1), np.float32)
    training = Training(steps=20, sampling_probability=1.0, noise_multiplier=1.0, clip_norm=1.0)
    usual = TrainingFile.keep

    def loss(tape: Any, rows: Any, key: Any) -> Any:
        return tape.dense("one", rows).sum(axis=-1)

    class Stopped(Exception):
        pass

    def stopped(file: TrainingFile, arrays: Any) -> None:
        usual(file, arrays)
        raise Stopped

    terms: dict[str, Any] = {"expected_rows": 4.0, "delta": 1e-6, "seed": 1, "account": account}
    with TemporaryDirectory(prefix="escudo-") as name:
        file, copy = Path(name) / "state", Path(name) / "copy"
        with (
            mock.patch.object(_mechanism, "_SECONDS_BETWEEN", 0.0),
            mock.patch("escudo.mechanisms.dpsgd._sampling._SEGMENT_ROWS", 1),
            mock.patch.object(TrainingFile, "keep", stopped),
            suppress(Stopped),
        ):
            train(loss, layout, jnp.zeros(1), rows, training, checkpoint=file, **terms)
        shutil.copy(file, copy)
        resume(file, loss, layout, rows, training, **terms)
        try:
            resume(copy, loss, layout, rows, training, **terms)
        except InputError:
            return None
    return "a training went on from two copies of one checkpoint, and was paid for once"


def trainings_are_laid_out_alike() -> str | None:
    """How a training is laid out follows from the number of rows that is public or noisy, not from the rows."""
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import Training, _sampling, train
    from escudo.mechanisms.dpsgd._layers import Layout

    def loss(tape: Any, rows: Any, key: Any) -> Any:
        return tape.dense("one", rows).sum(axis=-1)

    training = Training(steps=1, sampling_probability=0.5, noise_multiplier=1.0, clip_norm=1.0)
    terms: dict[str, Any] = {"expected_rows": 30.0, "delta": 1e-6, "seed": 1}
    laid_out = []
    with mock.patch.object(_sampling, "capacity_for", wraps=_sampling.capacity_for) as asked:
        for rows in (0, 1, 300):
            train(
                loss, Layout((("one", "w", (1, 1)),)), jnp.zeros(1), np.ones((rows, 1), np.float32), training, **terms
            )
            laid_out.append(asked.call_args)
    return None if all(call == laid_out[0] for call in laid_out) else f"a training is laid out by its rows: {laid_out}"


def large_deltas_are_refused() -> str | None:
    """A δ of one over the number of rows is refused unless said twice; where that is private, by a public number."""
    rows, graph = base_rows("mixed", np.random.default_rng(0), 20, "row"), graph_of("mixed")
    frame, schema = ENGINES["polars"].frame(rows, columns_of("mixed")), schema_of("mixed", "row")
    for relation, delta in (("replace_one", 0.1), ("add_remove", 0.01)):
        table = escudo.PrivateTable(frame, schema, MemoryAccount(relation=relation))
        terms: dict[str, Any] = {"epsilon": 1.0, "delta": delta, "seed": 1}
        asked: dict[str, Callable[..., Any]] = {
            "synthesize": partial(escudo.synthesize, table, graph),
            "discover": partial(escudo.discover, table),
            "effect_of": partial(escudo.effect_of, table, "smoke", "lung", graph=graph),
        }
        for name, ask in asked.items():
            try:
                ask(**terms)
            except RefusedError:
                continue
            except EscudoError as error:
                return f"{name} with δ = {delta} on 20 rows, {relation}: {error}"
            return f"{name} takes δ = {delta} on 20 rows, {relation}"
    return None


def replayed_noise_is_not_for_release() -> str | None:
    """While a replay can substitute the noise, nothing is called fit for release."""
    account = MemoryAccount()
    with watching(lambda source, event: source):
        release = laplace(1, sensitivity=1, epsilon=1.0, account=account)
    if release.guarantee.for_release or account.receipts[0].for_release:
        return "noise that a replay may substitute was called fit for release"
    return None


PROMISES: list[Callable[[], str | None]] = [
    clipping_is_total,
    noise_reaches_every_delta,
    accounts_compare_the_bound,
    checkpoints_are_used_by_one,
    trainings_are_laid_out_alike,
    large_deltas_are_refused,
    replayed_noise_is_not_for_release,
]
