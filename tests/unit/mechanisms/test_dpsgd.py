"""DP-SGD as a mechanism: the loop against plain numpy, charging, seeds, checkpoints, and an audit of its step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta, kstest, norm

from escudo.errors import BudgetExceededError, InputError
from escudo.mechanisms.dpsgd import Layout, Training, audited_step, resume, train
from escudo.mechanisms.dpsgd import _mechanism as module
from escudo.mechanisms.dpsgd._checkpoint import Kept, TrainingFile
from escudo.mechanisms.dpsgd._core import Knobs, Recipe, Slots, first_state, result, row_losses, run
from escudo.mechanisms.dpsgd._layers import _TOP
from escudo.mechanisms.dpsgd._sampling import Sampling, capacity_for, device_slots, slots_of
from escudo.privacy import MemoryAccount, RunningTotal, SampledGaussianEvent

WIDTH = 3
LAYOUT = Layout((("out", "w", (WIDTH, 1)), ("out", "b", (1,))))


def regression(tape, rows, key):
    """The squared error of a linear prediction of each row's last entry."""
    return ((tape.dense("out", rows[:, :WIDTH]) - rows[:, WIDTH:]) ** 2).sum(axis=-1)


def table(rows: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, WIDTH))
    return np.column_stack([x, x @ [1.0, -2.0, 0.5] + 0.3]).astype(np.float32)


def knobs(**changes: float) -> Knobs:
    usual = {
        "clip_norm": 1.0,
        "noise": 0.0,
        "expected": 40.0,
        "rate": 0.05,
        "steps": 25.0,
        "decline": 0.0,
        "averaging": 0.9,
    }
    return Knobs(**{name: jnp.float32(value) for name, value in {**usual, **changes}.items()})


def whole_table_slots(rows: int, steps: int, capacity: int) -> Slots:
    parts = list(slots_of(np.random.default_rng(1), Sampling(rows, 1.0, steps), capacity))
    return Slots(*(np.concatenate(several) for several in zip(*parts, strict=True)))


def by_hand(rows: np.ndarray, steps: int, *, clip: float, rate: float, averaging: float) -> np.ndarray:
    """The same training, in numpy and float64."""
    w, first, second, average = (np.zeros(WIDTH + 1) for _ in range(4))
    x = np.column_stack([rows[:, :WIDTH], np.ones(len(rows))]).astype(np.float64)
    for t in range(1, steps + 1):
        each = 2 * (x @ w - rows[:, WIDTH])[:, None] * x
        each /= np.maximum(1, np.linalg.norm(each, axis=1) / (clip * (1 - 2.0**-14)))[:, None]
        g = each.sum(axis=0) / len(rows)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        w = w - rate * first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        average = averaging * average + (1 - averaging) * w
    return average / (1 - averaging**steps)


def test_without_noise_and_sampling_the_loop_is_adam_on_clipped_gradients():
    rows, recipe = table(), Recipe()
    state = run(regression, LAYOUT, recipe, rows, knobs(), first_state(np.zeros(4)), whole_table_slots(40, 25, 40))
    np.testing.assert_allclose(result(knobs(), state), by_hand(rows, 25, clip=1.0, rate=0.05, averaging=0.9), atol=2e-5)
    assert int(state.step) == 25


@pytest.mark.parametrize("capacity", [8, 16, 64])
def test_a_step_over_several_slots_is_the_step_over_one(capacity):
    rows, recipe = table(), Recipe()
    states = [
        run(regression, LAYOUT, recipe, rows, knobs(), first_state(np.zeros(4)), whole_table_slots(40, 5, size))
        for size in (40, capacity)
    ]
    np.testing.assert_allclose(states[0].parameters, states[1].parameters, atol=1e-6)
    assert float(jnp.abs(states[1].total).max()) == 0.0


def test_rows_in_the_slots_and_rows_by_number_are_the_same_training():
    rows, recipe, slots = table(), Recipe(), whole_table_slots(40, 5, 16)
    by_number = run(regression, LAYOUT, recipe, rows, knobs(), first_state(np.zeros(4)), slots)
    themselves = slots._replace(rows=rows[slots.rows])
    inside = run(regression, LAYOUT, recipe, None, knobs(), first_state(np.zeros(4)), themselves)
    np.testing.assert_array_equal(by_number.parameters, inside.parameters)


def test_many_copies_at_once_are_the_copies_one_by_one():
    rows, recipe = table(200), Recipe(split=False)
    keys = jax.random.split(jax.random.key(0), 3)

    def slots(key):
        return device_slots(key, Sampling(200, 0.1, 6), capacity_for(200, 0.1))

    def one(key, noise):
        start = first_state(np.zeros(4), split=False)
        return run(regression, LAYOUT, recipe, rows, knobs(noise=1.0)._replace(noise=noise), start, slots(key))

    one, noises = jax.jit(one), jnp.array([0.0, 1.0, 2.0])
    together = jax.jit(jax.vmap(one))(keys, noises)
    for place in range(3):
        alone = one(keys[place], noises[place])
        np.testing.assert_allclose(together.parameters[place], alone.parameters, atol=1e-5)


def test_samples_drawn_on_the_device_have_about_the_chance_they_state():
    slots = device_slots(jax.random.key(3), Sampling(50, 0.2, 20_000), 50)
    counts = np.asarray(slots.count)
    assert counts.mean() == pytest.approx(10, abs=5 * np.sqrt(8 / 20_000))
    assert counts.var() == pytest.approx(8, rel=0.06)
    rows = np.concatenate([row[:count] for row, count in zip(np.asarray(slots.rows), counts, strict=True)])
    assert np.abs(np.bincount(rows, minlength=50) / 20_000 - 0.2).max() < 5 * np.sqrt(0.16 / 20_000)


# -- precision


def test_with_rounded_factors_the_loop_goes_about_the_same_way():
    rows, slots = table(), whole_table_slots(40, 25, 16)
    exact, rounded = (
        run(regression, LAYOUT, Recipe(precision=precision), rows, knobs(), first_state(np.zeros(4)), slots)
        for precision in ("float32", "bfloat16")
    )
    assert rounded.parameters.dtype == jnp.float32
    np.testing.assert_allclose(rounded.parameters, exact.parameters, atol=0.01)
    assert not np.array_equal(rounded.parameters, exact.parameters)


def tried(monkeypatch, *, large: int = 0, native: bool = True, run=run) -> str:
    from escudo.mechanisms.dpsgd import _sampling

    _sampling._tried.cache_clear()
    monkeypatch.setattr(_sampling, "_LARGE", large)
    monkeypatch.setattr(_sampling, "_native", lambda: native)
    monkeypatch.setattr(_sampling, "run", run)
    return _sampling.precision_for(regression, LAYOUT, Recipe(), table(), 8)


def test_factors_are_rounded_where_networks_are_large_and_processors_can(monkeypatch):
    assert tried(monkeypatch) == "bfloat16"
    assert tried(monkeypatch, large=5) == "float32"
    assert tried(monkeypatch, native=False) == "float32"


def test_where_rounded_products_fail_factors_are_not_rounded(monkeypatch):
    def fails(*_):
        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: BF16 x BF16 = F32")

    assert tried(monkeypatch, run=fails) == "float32"


def test_an_accelerator_that_rounds_factors_is_not_asked_first(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert tried(monkeypatch, run=lambda *_: pytest.fail("a program was compiled to try it")) == "bfloat16"
    assert tried(monkeypatch, large=5) == "float32"


# -- the mechanism

TRAINING = Training(
    steps=30, sampling_probability=0.5, noise_multiplier=2.0, clip_norm=1.0, learning_rate=0.05, averaging=0.5
)
TERMS = {"expected_rows": 40, "delta": 1e-6, "relation": "add_remove"}


def trained(**options):
    return train(regression, LAYOUT, np.zeros(4, np.float32), table(), TRAINING, **{**TERMS, "seed": 1, **options})


def test_the_release_says_what_it_cost_and_that_floats_are_not_safe():
    account = MemoryAccount(relation="add_remove")
    made = trained(account=account, seed=None)
    assert account.receipts[0].event == made.event == TRAINING.event("add_remove")
    assert made.guarantee.epsilon == pytest.approx(RunningTotal.of(made.event).epsilon(1e-6))
    assert not made.guarantee.float_safe
    assert made.guarantee.for_release
    assert made.value.shape == (4,)


def test_a_seed_repeats_the_training_and_marks_it_and_no_seed_does_not():
    one, same, other = trained(), trained(), trained(seed=2)
    np.testing.assert_array_equal(one.value, same.value)
    assert not np.array_equal(one.value, other.value)
    assert not one.guarantee.for_release
    assert not np.array_equal(trained(seed=None).value, trained(seed=None).value)


def test_a_refused_charge_draws_nothing(monkeypatch):
    monkeypatch.setattr(module._Run, "go", lambda *_: pytest.fail("something was drawn"))
    with pytest.raises(BudgetExceededError):
        trained(account=MemoryAccount(epsilon=0.1, delta=1e-6, relation="add_remove"))


def test_a_failure_after_the_charge_stays_spent_and_is_marked(monkeypatch):
    def fails(*_):
        raise RuntimeError("row 7 is odd")

    monkeypatch.setattr(module._Run, "go", fails)
    account = MemoryAccount(relation="add_remove")
    with pytest.raises(RuntimeError):
        trained(account=account)
    assert list(account.failed.values()) == ["RuntimeError"]


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"sampling_probability": 0.0},
        {"sampling_probability": 1.5},
        {"noise_multiplier": 0.0},
        {"clip_norm": -1.0},
        {"clip_norm": 1e-12},
        {"clip_norm": 1e30},
        {"noise_multiplier": 1e-30},
        {"learning_rate": float("nan")},
        {"averaging": 1.0},
        {"betas": (0.9, 1.0)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_numbers_out_of_range_are_refused(change):
    fields = {"steps": 1, "sampling_probability": 0.5, "noise_multiplier": 1.0, "clip_norm": 1.0, **change}
    with pytest.raises(InputError, match=next(iter(change))):
        Training(**fields)


def test_a_start_of_the_wrong_size_is_refused_before_anything_is_spent():
    account = MemoryAccount(relation="add_remove")
    with pytest.raises(InputError, match="4 finite parameters"):
        train(regression, LAYOUT, np.zeros(3), table(), TRAINING, account=account, **TERMS)
    assert account.receipts == ()


def test_persons_with_several_rows_are_accounted_for_with_all_of_them():
    event = TRAINING.event("add_remove", "person", 4)
    assert event.event.rows == 4
    assert RunningTotal.of(event).epsilon(1e-6) > 2 * RunningTotal.of(TRAINING.event("add_remove")).epsilon(1e-6)


# -- what the number of rows decides


def seen(monkeypatch, tmp_path, rows: int, q: float) -> tuple[set, list]:
    """What a training compiles and runs, but for the samples; and after which steps it writes a checkpoint."""
    from escudo.mechanisms.dpsgd import _core

    programs, steps = set(), []

    def ran(loss_fn, layout, recipe, data, numbers, state, slots):
        shapes = tuple((array.shape, str(array.dtype)) for array in slots)
        programs.add((recipe, tuple(map(float, numbers)), shapes))
        return run(loss_fn, layout, recipe, data, numbers, state, slots)

    fields = {name: getattr(TRAINING, name) for name in TRAINING.__slots__}
    training = Training(**{**fields, "steps": 50, "sampling_probability": q})
    with monkeypatch.context() as patch:
        patch.setattr(_core, "run", ran)
        patch.setattr(TrainingFile, "keep", lambda _, arrays: steps.append(int(arrays["step"][0])))
        patch.setattr(module, "_SECONDS_BETWEEN", 0.0)
        patch.setattr("escudo.mechanisms.dpsgd._sampling._LARGEST", {"cpu": 16})
        patch.setattr("escudo.mechanisms.dpsgd._sampling._SEGMENT_ROWS", 1)  # segments of 8 slots of 16 rows or fewer
        start, path = np.zeros(4, np.float32), tmp_path / "training.ckpt"
        account = MemoryAccount(relation="add_remove")
        made = train(
            regression, LAYOUT, start, table(rows), training, account=account, seed=1, checkpoint=path, **TERMS
        )
    assert np.isfinite(made.value).all()
    return programs, steps


@pytest.mark.parametrize("q", [0.3, 1.0])
def test_programs_and_checkpoints_are_the_same_for_any_number_of_rows(q, monkeypatch, tmp_path):
    """Nobody, somebody, and as many as the noisy count says: slots, precision, numbers and the steps that are kept."""
    programs, steps = seen(monkeypatch, tmp_path, 40, q)
    assert len(programs) == 1
    assert steps
    for rows in (0, 1, 39, 41, 90):
        assert seen(monkeypatch, tmp_path, rows, q) == (programs, steps)


def test_nobody_is_trained_on_like_somebody():
    nobody, one = (trained_on(table()[:rows]) for rows in (0, 1))
    assert nobody.value.shape == one.value.shape
    assert nobody.guarantee == one.guarantee
    assert np.isfinite(nobody.value).all()


def trained_on(rows: np.ndarray):
    return train(regression, LAYOUT, np.zeros(4, np.float32), rows, TRAINING, seed=1, **TERMS)


@pytest.mark.parametrize("value", [1e300, -1e39, np.inf, np.nan, 1e-320])
def test_no_number_of_a_row_says_anything_aloud(value, recwarn):
    rows = table().astype(np.float64)
    rows[7, 1] = value
    assert np.isfinite(trained_on(rows).value).all()
    audited_step(noise_multiplier=1.0)(rows, np.random.default_rng(0))
    assert not recwarn.list


def test_rows_that_are_no_real_numbers_are_refused():
    for rows in (table().astype(complex), table().astype(object), np.float32(1)):
        with pytest.raises(InputError, match="real numbers"):
            trained_on(rows)


# -- checkpoints


class Stopped(Exception):
    pass


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A checkpoint of a training that stopped after its first segment, and the account that paid for it."""
    path, account = tmp_path / "training.ckpt", MemoryAccount(relation="add_remove")
    keep = TrainingFile.keep

    def keep_and_stop(*arguments):
        keep(*arguments)
        raise Stopped

    long = Training(**{**{name: getattr(TRAINING, name) for name in TRAINING.__slots__}, "steps": 600})
    with monkeypatch.context() as patch:
        patch.setattr(TrainingFile, "keep", keep_and_stop)
        patch.setattr(module, "_SECONDS_BETWEEN", 0.0)
        with pytest.raises(Stopped):
            train(regression, LAYOUT, np.zeros(4, np.float32), table(), long, account=account, checkpoint=path, **TERMS)
    return path, account, long


def test_a_stopped_training_goes_on_without_paying_twice_and_only_once(stopped):
    path, account, long = stopped
    spent = account.total(1e-6).epsilon
    made = resume(path, regression, LAYOUT, table(), long, account=account, **TERMS)
    assert made.event == account.receipts[0].event
    assert len(account.receipts) == 1
    assert account.total(1e-6).epsilon == spent
    assert np.isfinite(made.value).all()
    with pytest.raises(InputError, match="no readable checkpoint"):
        resume(path, regression, LAYOUT, table(), long, account=account, **TERMS)


def test_no_copy_goes_on_for_nothing_and_any_for_the_steps_that_are_left(stopped):
    path, account, long = stopped
    copy, again = path.with_name("copy"), (regression, LAYOUT, table(), long)
    copy.write_bytes(path.read_bytes())
    resume(path, *again, account=account, **TERMS)
    with pytest.raises(InputError, match=r"copy cannot go on for nothing.*finished.*costs ε = .*again=True"):
        resume(copy, *again, account=account, **TERMS)
    assert copy.exists()
    assert len(account.receipts) == 1
    made = resume(copy, *again, account=account, again=True, **TERMS)
    assert np.isfinite(made.value).all()
    left = account.receipts[1].event
    assert left.event == long.event("add_remove").event
    assert 0 < left.count < long.steps
    assert not copy.exists()


def test_what_cannot_be_paid_again_does_not_go_on(tmp_path, stopped, monkeypatch):
    path, _, long = stopped
    cap = RunningTotal.of(long.event("add_remove")).epsilon(1e-6) * 1.01
    account = MemoryAccount(relation="add_remove", epsilon=cap, delta=1e-6, spending="planned")
    begin = (regression, LAYOUT, np.zeros(4, np.float32), table(), long)
    keep, path = TrainingFile.keep, tmp_path / "dear.ckpt"

    def keep_and_stop(*arguments):
        keep(*arguments)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(TrainingFile, "keep", keep_and_stop)
        patch.setattr(module, "_SECONDS_BETWEEN", 0.0)
        with pytest.raises(Stopped):
            train(*begin, account=account, checkpoint=path, **TERMS)
    copy = path.read_bytes()
    resume(path, regression, LAYOUT, table(), long, account=account, **TERMS)
    path.write_bytes(copy)
    with pytest.raises(BudgetExceededError):
        resume(path, regression, LAYOUT, table(), long, account=account, again=True, **TERMS)
    assert len(account.receipts) == 1


def test_a_checkpoint_is_nothing_without_the_account_that_paid(stopped):
    path, _, long = stopped
    content, again = path.read_bytes(), (regression, LAYOUT, table(), long)
    with pytest.raises(InputError, match=r"account in memory, which was gone with its process.*needs a ledger"):
        resume(path, *again, account=MemoryAccount(relation="add_remove"), **TERMS)
    with pytest.raises(InputError, match="checkpoint needs an account"):
        resume(path, *again, account=None, **TERMS)
    with pytest.raises(InputError, match="checkpoint needs an account"):
        trained(checkpoint=path)
    assert path.read_bytes() == content


def test_a_file_that_was_changed_buys_nothing_at_any_price(stopped):
    from safetensors.numpy import load, save

    path, account, long = stopped
    content = path.read_bytes()
    facts = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    arrays = load(content)
    arrays["parameters"][0] += 1
    path.write_bytes(save(arrays, metadata=facts))
    for again in (False, True):
        with pytest.raises(InputError, match="no checkpoint that the account knows"):
            resume(path, regression, LAYOUT, table(), long, account=account, again=again, **TERMS)
    assert len(account.receipts) == 1


def test_a_training_has_few_checkpoints_and_none_when_it_is_done(monkeypatch, tmp_path):
    """Where the clock allows it always: by public steps alone, and none at the last, which has nothing left to do."""
    kept = []
    monkeypatch.setattr(TrainingFile, "keep", lambda _, arrays: kept.append(int(arrays["step"][0])))
    monkeypatch.setattr(module, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr("escudo.mechanisms.dpsgd._sampling._LARGEST", {"cpu": 8})
    monkeypatch.setattr("escudo.mechanisms.dpsgd._sampling._SEGMENT_ROWS", 1)
    long = Training(**{**{name: getattr(TRAINING, name) for name in TRAINING.__slots__}, "steps": 600})
    account = MemoryAccount(relation="add_remove")
    begin = (regression, LAYOUT, np.zeros(4, np.float32), table(), long)
    train(*begin, account=account, seed=1, checkpoint=tmp_path / "training.ckpt", **TERMS)
    assert 10 < len(kept) <= 50
    assert kept[-1] < 600


def test_a_checkpoint_holds_what_was_released_and_nothing_of_a_step_under_way(stopped):
    from safetensors.numpy import load_file

    arrays = load_file(stopped[0])
    assert set(arrays) == {"parameters", "first", "second", "average", "step"}
    assert 0 < int(arrays["step"][0]) < 600


def test_the_checkpoint_of_another_training_is_refused_and_kept(stopped):
    path, account, long = stopped
    with pytest.raises(InputError, match="another training"):
        resume(path, regression, LAYOUT, table(), TRAINING, account=account, **TERMS)
    assert path.exists()
    damaged = path.with_name("damaged")
    damaged.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="no readable checkpoint"):
        resume(damaged, regression, LAYOUT, table(), long, account=account, **TERMS)


@pytest.mark.parametrize("q", [0.05, 1.0], ids=["samples", "all rows, steps of several segments"])
def test_a_seeded_training_that_was_stopped_gives_what_it_would_have_given(q, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr("escudo.mechanisms.dpsgd._sampling._LARGEST", {"cpu": 8})
    monkeypatch.setattr("escudo.mechanisms.dpsgd._sampling._SEGMENT_ROWS", 1)  # segments of 8 slots of 8 rows
    path, rows = tmp_path / "training.ckpt", table(80)
    fields = {name: getattr(TRAINING, name) for name in TRAINING.__slots__}
    long = Training(**{**fields, "steps": 60, "sampling_probability": q})
    begin = (regression, LAYOUT, np.zeros(4, np.float32), rows, long)
    whole = train(*begin, seed=5, **TERMS)
    keep, written, account = TrainingFile.keep, [], MemoryAccount(relation="add_remove")

    def stops_at_the_third(*arguments):
        keep(*arguments)
        written.append(1)
        if len(written) == 3:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(TrainingFile, "keep", stops_at_the_third)
        with pytest.raises(Stopped):
            train(*begin, account=account, seed=5, checkpoint=path, **TERMS)
    resumed = resume(path, regression, LAYOUT, rows, long, account=account, seed=5, **TERMS)
    np.testing.assert_array_equal(resumed.value, whole.value)


def test_a_checkpoint_is_its_owner_s_alone(stopped):
    assert stopped[0].stat().st_mode & 0o077 == 0
    assert [path.name for path in stopped[0].parent.iterdir()] == ["training.ckpt"]


def test_a_finished_training_leaves_no_checkpoint(tmp_path):
    trained(checkpoint=tmp_path / "done.ckpt", account=MemoryAccount(relation="add_remove"))
    assert list(tmp_path.iterdir()) == []


# -- one training at a time


def test_a_checkpoint_that_somebody_goes_on_from_is_nobody_else_s(stopped, monkeypatch):
    """Two resumes of one file would release its steps twice for one charge."""
    pytest.importorskip("fcntl")
    path, account, long = stopped
    inside, go_on, made, read = threading.Event(), threading.Event(), [], module.found

    def waits(*arguments):
        kept = read(*arguments)
        inside.set()
        go_on.wait()
        return kept

    again = (path, regression, LAYOUT, table(), long)
    with monkeypatch.context() as patch:
        patch.setattr(module, "found", waits)
        first = threading.Thread(target=lambda: made.append(resume(*again, account=account, **TERMS)))
        first.start()
        inside.wait()
    try:
        with pytest.raises(InputError, match=r"training\.ckpt is in use by another training"):
            resume(*again, account=account, **TERMS)
        spent = len(account.receipts)
        with pytest.raises(InputError, match="in use"):
            trained(checkpoint=path, account=account)
        assert len(account.receipts) == spent
    finally:
        go_on.set()
        first.join()
    assert len(made) == 1
    with pytest.raises(InputError, match="no readable checkpoint"):
        resume(*again, account=account, **TERMS)
    assert list(path.parent.iterdir()) == []


def test_the_lock_of_another_process_holds_and_goes_with_it(stopped):
    pytest.importorskip("fcntl")
    path, account, long = stopped
    program = (
        "import sys, pathlib\n"
        "from escudo.mechanisms.dpsgd._checkpoint import file_held\n"
        "with file_held(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="in use"):
            resume(path, regression, LAYOUT, table(), long, account=account, **TERMS)
        other.kill()  # as a machine would: nothing is tidied up
    assert path.with_name(".training.ckpt.lock").exists()
    assert np.isfinite(resume(path, regression, LAYOUT, table(), long, account=account, **TERMS).value).all()
    assert list(path.parent.iterdir()) == []


def test_a_lock_on_a_file_that_was_taken_away_is_taken_anew(tmp_path):
    """Between opening it and locking it, the training that held it may end, and remove it."""
    from escudo.mechanisms.dpsgd import _checkpoint

    pytest.importorskip("fcntl")
    locked, opened = tmp_path / "lock", []

    def opening() -> int:
        handle = os.open(locked, os.O_RDWR | os.O_CREAT, 0o600)
        opened.append(handle)
        if len(opened) == 1:
            locked.unlink()
        return handle

    with _checkpoint.held(locked, opening, locked):
        assert len(opened) == 2
        with pytest.raises(InputError, match="in use"), _checkpoint.held(locked, opening, locked):
            pytest.fail("two held it")


def test_a_checkpoint_where_no_file_can_be_is_refused_before_anything_is_spent(tmp_path):
    account = MemoryAccount(relation="add_remove")
    with pytest.raises(InputError, match="cannot be used"):
        trained(checkpoint=tmp_path / "nowhere" / "training.ckpt", account=account)
    assert account.receipts == ()


# -- audits

ERROR = 1e-3  # that a bound below is wrong by chance, for each
RUNS = 200_000
DELTA = 1e-3


def measured(step, first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """A lower bound on ε from outputs on two tables: half of them choose a threshold, the other half count."""
    rng = np.random.default_rng(1)
    direction = (first.sum(axis=0) - second.sum(axis=0)) / np.linalg.norm(first.sum(axis=0) - second.sum(axis=0))
    there, back = (step.batch(rows, RUNS, rng) @ direction for rows in (first, second))

    def bound(a: np.ndarray, b: np.ndarray, cut: float) -> float:
        hits, misses = int((a > cut).sum()), int((b > cut).sum())
        low = beta.ppf(ERROR, hits, len(a) - hits + 1) if hits else 0.0
        high = beta.ppf(1 - ERROR, misses + 1, len(b) - misses)
        return float(np.log(max(low - delta, 1e-300) / high))

    half = RUNS // 2
    cuts = np.quantile(there[:half], np.linspace(0.5, 0.999, 40))
    best = max(cuts, key=lambda cut: bound(there[:half], back[:half], cut))
    return bound(there[half:], back[half:], best)


SMALL = np.full((3, 2), 0.1, np.float32)
WORST = np.array([[3.0, 4.0]], np.float32)  # of length 5: clipping makes it 1


@pytest.mark.parametrize(("noise", "q"), [(1.0, 1.0), (1.5, 0.5), (0.7, 0.2)])
def test_the_audited_step_costs_at_most_what_it_claims_and_at_least_half(noise, q):
    claim = RunningTotal.of(
        SampledGaussianEvent(noise_multiplier=noise, sampling_probability=q, relation="add_remove")
    ).epsilon(DELTA)
    step = audited_step(noise_multiplier=noise, sampling_probability=q)
    found = measured(step, np.concatenate([SMALL, WORST]), SMALL, DELTA)
    assert claim / 2 <= found <= claim


@pytest.mark.parametrize("broken", ["clip_norm", "probability", "noise"])
def test_the_audit_catches_a_step_that_clips_samples_or_noises_wrongly(broken):
    claim = RunningTotal.of(
        SampledGaussianEvent(noise_multiplier=1.5, sampling_probability=0.2, relation="add_remove")
    ).epsilon(DELTA)
    step = audited_step(noise_multiplier=1.5, sampling_probability=0.2)
    setattr(step, broken, {"clip_norm": np.inf, "probability": 1.0, "noise": 0.5}[broken])
    assert measured(step, np.concatenate([SMALL, WORST]), SMALL, DELTA) > claim


def test_replacing_a_row_by_its_opposite_is_the_worst_that_the_claim_allows():
    event = SampledGaussianEvent(noise_multiplier=2.0, sampling_probability=0.5)
    claim = RunningTotal.of(event).epsilon(DELTA)
    step = audited_step(noise_multiplier=2.0, sampling_probability=0.5)
    found = measured(step, np.concatenate([SMALL, WORST]), np.concatenate([SMALL, -WORST]), DELTA)
    assert claim / 2 <= found <= claim


def test_the_noise_has_the_size_and_shape_that_was_claimed():
    step = audited_step(noise_multiplier=1.5, clip_norm=2.0)
    noise = step.batch(np.zeros((1, 2), np.float32), RUNS, np.random.default_rng(0)).ravel() / 3.0
    assert noise.std() == pytest.approx(1.0, abs=5 / np.sqrt(4 * RUNS))
    for cut in (-2.0, 0.0, 1.0, 3.0):
        share = norm.cdf(cut)
        assert (noise < cut).mean() == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / (2 * RUNS)))


def itself(tape, rows, key):
    return (tape.bias("w", rows.shape[0]) * rows[:, :1]).sum(axis=-1)


def test_the_noise_of_a_training_is_what_its_event_says_and_neither_two_thirds_nor_three_halves(monkeypatch):
    """One step on nobody: Adam's first mean is a tenth of the noise over the expected size of a sample."""
    size, kept = 20_000, []
    training = Training(steps=1, sampling_probability=0.5, noise_multiplier=1.5, clip_norm=2.0)

    def seen_at_the_end(numbers, state):
        kept.append(np.asarray(state.first, np.float64))
        return result(numbers, state)

    monkeypatch.setattr("escudo.mechanisms.dpsgd._core.result", seen_at_the_end)
    layout, nobody = Layout((("w", "b", (size,)),)), np.zeros((0, 1), np.float32)
    train(itself, layout, np.zeros(size), nobody, training, seed=5, **TERMS)
    noise = kept[0] * 10 * (40 * 0.5) / (1.5 * 2.0)
    assert kstest(noise, "norm").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert kstest(noise * wrong, "norm").pvalue < 1e-9


def test_only_trainings_that_are_never_released_have_noise_without_its_far_tails(monkeypatch):
    from escudo.mechanisms.dpsgd import _core

    asked, drawn = [], _core.normal

    def normal(key, shape, stream=0, *, tails=True):
        asked.append((stream, tails))
        return drawn(key, shape, stream, tails=tails)

    monkeypatch.setattr(_core, "normal", normal)
    for split in (True, False):
        recipe = Recipe(split=split, floor=3e-8)  # of which there is no program yet, so that it is traced
        state = first_state(np.zeros(4), split=split)
        run(regression, LAYOUT, recipe, table(), knobs(), state, whole_table_slots(40, 1, 40))
        assert {tails for stream, tails in asked if stream == 0} == {split}
        asked.clear()


def test_canaries_in_a_training_can_be_scored_and_one_run_stays_below_the_claim():
    from escudo.auditing._one_run import one_run

    rng = np.random.default_rng(7)
    canaries = rng.normal(size=(400, WIDTH + 1)).astype(np.float32) * 3
    included = rng.random(400) < 0.5
    rows = np.concatenate([table(), canaries[included]])
    training = Training(steps=40, sampling_probability=0.5, noise_multiplier=4.0, clip_norm=1.0, learning_rate=0.05)
    made = train(
        regression,
        LAYOUT,
        np.zeros(4, np.float32),
        rows,
        training,
        expected_rows=240,
        delta=1e-5,
        relation="add_remove",
        seed=3,
    )
    scores = -np.asarray(row_losses(regression, LAYOUT, made.value, canaries, jax.random.key(0)))
    found = one_run(scores, included, delta=1e-5, claim=made.guarantee)
    assert not found.violated
    assert found.epsilon_lower <= made.guarantee.epsilon


# -- where it runs


def test_the_core_needs_nothing_but_jax_and_numpy():
    program = (
        "import sys, json\n"
        "from escudo.mechanisms.dpsgd import _core, _layers, _normal, _sampling\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert not {"polars", "opendp", "scipy", "narwhals", "networkx", "sqlalchemy", "dp_accounting"} & set(loaded)


def test_a_file_without_a_state_has_no_step_behind_it(tmp_path):
    receipt = MemoryAccount().spend(SampledGaussianEvent(noise_multiplier=1.0, sampling_probability=0.5))
    facts = {"path": tmp_path / "training.ckpt", "digest": "", "number": 1, "receipt": receipt, "about": {}}
    assert Kept(**facts, arrays={}).done == 0
    assert Kept(**facts, arrays={"step": np.array([3])}).done == 3


def test_the_largest_number_is_the_largest_that_stays_finite_when_it_is_rounded():
    largest = jnp.float32(_TOP["bfloat16"])
    assert jnp.isfinite(largest.astype(jnp.bfloat16))
    assert jnp.isinf(jnp.nextafter(largest, jnp.float32(jnp.inf)).astype(jnp.bfloat16))
