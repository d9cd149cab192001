"""DP-SGD on an accelerator: one training, and thousands at once.

Needs only jax and numpy beside escudo's source; run from the repository's root, on a machine with an accelerator::

    PYTHONPATH=src python3 benchmarks/dpsgd_device.py [--out DIR]

Writes ``dpsgd_device.json`` and ``dpsgd_device.md`` into ``DIR`` (``benchmarks/results`` by default).

The network, rows and settings are those of ``dpsgd.py``: 75,762 parameters, Poisson samples of 100 of 5,000 rows, clip
norm 1, noise multiplier 1, Adam, an average of the parameters. Copies differ in their samples, noise and parameters, as
shadow models do. Time is that of whole calls, samples and keys included, after one call to compile; the best of three.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from escudo.mechanisms.dpsgd import _core
from escudo.mechanisms.dpsgd._sampling import Sampling, capacity_for, device_slots
from escudo.synthesis.neural._network import Columns, ColumnSpec, Network, Unit

ROWS, WIDTH, BATCH = 5000, 222, 100
TARGETS = {1: 8_000, 2048: 400_000}
STEPS = {1: 2000, 64: 400, 512: 200, 2048: 100}
ROUNDS = 3
WAYS = {  # precision of factors, steps in one turn of the loop; by whether there is one copy only
    True: (("float32", 8), ("bfloat16", 1), ("bfloat16", 8)),
    False: (("float32", 1), ("bfloat16", 1), ("bfloat16", 2)),
}


def network() -> Network:
    return Network(
        columns=Columns((ColumnSpec(2),) * WIDTH),
        units=tuple(Unit((place,), ()) for place in range(WIDTH)),
        latent=10,
        encoder=(128, 64),
        decoder=(64, 128),
    )


def trainings(precision: Any, steps: int, unroll: int, alone: bool) -> Any:
    """Return a function that runs some steps of many copies, each from its own key and state; or of one alone."""
    vae = network()
    recipe = _core.Recipe(precision=precision, split=False, unroll=unroll)
    knobs = _core.Knobs(*map(jnp.float32, (1.0, 1.0, BATCH, 1e-3, 1e6, 0.0, 0.99)))
    draw = partial(
        device_slots,
        sampling=Sampling(ROWS, BATCH / ROWS, steps),
        capacity=capacity_for(ROWS, BATCH / ROWS),
    )

    def one(data: Any, state: Any, key: Any) -> Any:
        return _core.run(vae, vae.layout, recipe, data, knobs, state, draw(key))

    return jax.jit(one) if alone else jax.jit(jax.vmap(one, in_axes=(None, 0, 0)), donate_argnums=1)


def measured(copies: int, precision: str, unroll: int) -> dict[str, Any]:
    vae, steps = network(), STEPS[copies]
    data = jnp.asarray((np.random.default_rng(0).random((ROWS, WIDTH)) < 0.1).astype(np.uint8))
    start = np.asarray(vae.layout.flatten(vae.start(np.random.default_rng(0))), np.float32)
    begin, alone = partial(_core.first_state, split=False), copies == 1

    def keys(seed: int) -> Any:
        return jax.random.key(seed) if alone else jax.random.split(jax.random.key(seed), copies)

    state = begin(start) if alone else jax.vmap(begin)(jnp.tile(start, (copies, 1)))
    run = trainings(precision, steps, unroll, alone)
    began = time.perf_counter()
    state = jax.block_until_ready(run(data, state, keys(0)))
    compiled = time.perf_counter() - began
    times = []
    for number in range(ROUNDS):
        fresh = jax.block_until_ready(keys(number + 1))
        began = time.perf_counter()
        state = jax.block_until_ready(run(data, state, fresh))
        times.append(time.perf_counter() - began)
    assert bool(jnp.isfinite(state.parameters).all())
    memory = jax.devices()[0].memory_stats() or {}
    return {
        "copies": copies,
        "precision": precision,
        "unroll": unroll,
        "model_steps_per_second": copies * steps / min(times),
        "seconds": times,
        "first_call_seconds": compiled,
        "peak_gb": memory.get("peak_bytes_in_use", 0) / 2**30,
    }


STREAMS, BANDWIDTH = 9, 4.3e12  # vectors that a step reads and writes at least; bytes per second of a copy on an H200


def possible(parameters: int) -> list[str]:
    """Return lines on what the memory's speed alone would allow."""
    traffic = 4 * STREAMS * parameters
    return [
        "## What is possible",
        "",
        "With thousands of copies nothing of a step stays in a cache. Parameters, Adam's two memories and the average "
        f"are read and written once in each step, and the gradient read: {STREAMS} vectors of {parameters:,} numbers, "
        f"{traffic / 1e6:.1f} MB. At {BANDWIDTH / 1e12:.1f} TB/s that is {1e6 * traffic / BANDWIDTH:.2f} µs: no step "
        f"can do more than {BANDWIDTH / traffic / 1e6:.1f} million model-steps/s.",
        "",
    ]


def page(payload: dict[str, Any]) -> str:
    runs = payload["runs"]

    def best(copies: int) -> float:
        return max(run["model_steps_per_second"] for run in runs if run["copies"] == copies)

    aims = [(copies, aim) for copies, aim in TARGETS.items() if any(run["copies"] == copies for run in runs)]
    return "\n".join(
        [
            "# DP-SGD on an accelerator",
            "",
            f"{payload['date']}, {payload['device']}, jax {payload['jax']}. Made by `benchmarks/dpsgd_device.py`.",
            "",
            "| target | measured | met |",
            "|---|---|---|",
            *(
                f"| {copies:,} at once: ≥ {aim:,} model-steps/s | {best(copies):,.0f} | "
                f"{'yes' if best(copies) >= aim else '**no**'} |"
                for copies, aim in aims
            ),
            "",
            "| copies | factors of gradients | unrolled | model-steps/s | first call, s | peak GB so far |",
            "|---|---|---|---|---|---|",
            *(
                f"| {run['copies']:,} | {run['precision']} | {run['unroll']} | "
                f"{run['model_steps_per_second']:,.0f} | {run['first_call_seconds']:.1f} | {run['peak_gb']:.1f} |"
                for run in runs
            ),
            "",
            *possible(network().layout.size),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--copies", type=int, nargs="*", default=list(STEPS))
    arguments = parser.parse_args()
    runs = []
    for copies in arguments.copies:
        for precision, unroll in WAYS[copies == 1]:
            runs.append(measured(copies, precision, unroll))
            print(json.dumps(runs[-1]), flush=True)
    payload = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": str(jax.devices()[0].device_kind),
        "jax": jax.__version__,
        "runs": runs,
    }
    arguments.out.mkdir(exist_ok=True, parents=True)
    (arguments.out / "dpsgd_device.json").write_text(json.dumps(payload, indent=1) + "\n")
    (arguments.out / "dpsgd_device.md").write_text(page(payload))


if __name__ == "__main__":
    main()
