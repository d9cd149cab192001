"""DP-SGD on a processor: steps per second of processor time, against Opacus, jax-privacy and no privacy at all.

Run from the repository's root::

    python benchmarks/dpsgd.py --opacus PYTHON --jax-privacy PYTHON

The interpreters are those of environments of their own with ``opacus==1.6.0`` (and PyTorch) and ``jax-privacy==2.0.0``;
those not given are left out. ``benchmarks/results/dpsgd.json`` and ``dpsgd.md`` are written anew.

**What is compared.** The variational autoencoder 222-128-64-(10, 10)-64-128-222, 75,762 parameters, on 50,000 rows of
0 and 1; Poisson samples of 100 and of 1,000 rows on average; clip norm 1, noise multiplier 1, Adam. Each measurement is
a process of its own, on one thread; methods take turns, and the best of the rounds counts. *Without privacy* is the
same network, samples and Adam, with neither clipping nor noise.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer_dpsgd import CLIP, LATENT, NOISE, RATE, ROWS, SECOND, rows
from wide import setting

RESULTS = Path(__file__).parent / "results"
BATCHES = {100: 600, 1000: 150}  # expected size of a sample: steps that are timed
ROUNDS = 3
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    # Opacus' hooks allocate large arrays at every step: keep them, as its users are told to.
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
}
TITLES = {
    "escudo": "escudo",
    "plain": "escudo's step without privacy",
    "ghost": "Opacus 1.6, ghost clipping",
    "hooks": "Opacus 1.6, hooks",
    "jax-privacy": "jax-privacy 2.0, clipped_grad in a scan",
}


def network() -> Any:
    """Return the variational autoencoder, as the generators build it."""
    from escudo.synthesis.neural._columns import Columns, ColumnSpec
    from escudo.synthesis.neural._network import Network, Unit

    width = rows().shape[1]
    made = Network(
        columns=Columns((ColumnSpec(2),) * width),
        units=tuple(Unit((place,), ()) for place in range(width)),
        latent=LATENT,
        encoder=(128, SECOND),
        decoder=(SECOND, 128),
    )
    assert made.layout.size == 75_762
    return made


def escudo(batch: int, steps: int, *, private: bool) -> float:
    """Return steps per second of processor time, samples included."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import _core
    from escudo.mechanisms.dpsgd._layers import Tape
    from escudo.mechanisms.dpsgd._sampling import capacity_for, slots_of

    vae, data = network(), rows().astype(np.uint8)
    start = np.asarray(vae.layout.flatten(vae.start(np.random.default_rng(0))), np.float32)
    recipe = _core.Recipe()
    knobs = _core.Knobs(*map(jnp.float32, (CLIP, NOISE * CLIP, batch, RATE, steps, 0.0, 0.99)))

    def without(state: Any, slot: Any) -> Any:
        weights = (jnp.arange(slot.rows.shape[0]) < slot.count) / knobs.expected
        key = jax.random.wrap_key_data(slot.key)

        def loss(flat: Any) -> Any:
            return (vae(Tape(vae.layout.unflatten(flat)), slot.rows, key) * weights).sum()

        return _core._moved(recipe, knobs, state, jax.grad(loss)(state.parameters)), None

    plain = jax.jit(lambda state, slots: jax.lax.scan(without, state, slots)[0])
    capacity = capacity_for(ROWS, batch / ROWS)

    def trained(seed: int) -> int:
        state, done = _core.first_state(start), 0
        for segment in slots_of(
            np.random.default_rng(seed), rows=ROWS, probability=batch / ROWS, steps=steps, capacity=capacity
        ):
            slots = segment._replace(rows=data[segment.rows])
            state = _core.run(vae, vae.layout, recipe, None, knobs, state, slots) if private else plain(state, slots)
            jax.block_until_ready(state)
            done += int(segment.last.sum())
        return done

    trained(1)
    began = time.process_time()
    done = trained(2)
    return done / (time.process_time() - began)


def one(method: str, batch: int, steps: int, pythons: Mapping[str, str]) -> dict[str, float]:
    here = method in ("escudo", "plain")
    script = Path(__file__) if here else Path(__file__).with_name("peer_dpsgd.py")
    python = sys.executable if here else pythons["jax-privacy" if method == "jax-privacy" else "opacus"]
    command = [python, str(script), *(["--one"] if here else []), method, str(batch), str(steps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **THREADS})
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def targets(best: Mapping[str, Mapping[str, float]], memory: Mapping[str, float]) -> list[tuple[str, str, bool]]:
    found = []
    for batch in map(str, BATCHES):
        ours = best["escudo"][batch]
        for peer, factor in (("ghost", 4.0), ("hooks", 10.0), ("jax-privacy", 8.0)):
            if peer in best:
                ratio = ours / best[peer][batch]
                found.append((f"B = {batch}: ≥ {factor:g} × {TITLES[peer]}", f"{ratio:.1f} ×", ratio >= factor))
        slower = best["plain"][batch] / ours
        found.append((f"B = {batch}: within 1.6 × of no privacy", f"{slower:.2f} ×", slower <= 1.6))
    found.append(("peak memory ≤ 600 MB", f"{memory['escudo']:.0f} MB", memory["escudo"] <= 600))
    return found


def page(payload: Mapping[str, Any]) -> str:
    facts, best, memory = payload["setting"], payload["best"], payload["peak_mb"]
    lines = [
        "# DP-SGD on a processor",
        "",
        f"{facts['date']}, commit {facts['commit']}, seeds 0 to 2. {facts['processor']}, {facts['cores']} cores, load "
        f"{facts['load_at_end']:.1f}. Python {facts['python']}. Made by `python benchmarks/dpsgd.py`.",
        "",
        "A variational autoencoder of 75,762 parameters, Poisson samples of B of 50,000 rows, clip norm 1, noise "
        f"multiplier 1, Adam. Steps per second of processor time on one thread, best of {payload['rounds']} rounds.",
        "",
        "| target | measured | met |",
        "|---|---|---|",
        *(f"| {aim} | {got} | {'yes' if met else '**no**'} |" for aim, got, met in targets(best, memory)),
        "",
        "| | " + " | ".join(f"B = {batch}" for batch in BATCHES) + " | peak MB |",
        "|---|" + "---|" * (len(BATCHES) + 1),
        *(
            f"| {TITLES[method]} | "
            + " | ".join(f"{best[method][str(batch)]:.0f}" if best[method][str(batch)] >= 20
                         else f"{best[method][str(batch)]:.1f}" for batch in BATCHES)
            + f" | {memory[method]:.0f} |"
            for method in best
        ),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--opacus")
    parser.add_argument("--jax-privacy")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--shorter", type=int, default=1, help="divide the number of steps by this")
    parser.add_argument("--one", nargs=3)
    arguments = parser.parse_args()
    if arguments.one:
        method, batch, steps = arguments.one
        rate = escudo(int(batch), int(steps), private=method == "escudo")
        print(json.dumps({"rate": rate, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    pythons = {"opacus": arguments.opacus, "jax-privacy": arguments.jax_privacy}
    methods = ["escudo", "plain"]
    methods += ["ghost", "hooks"] if arguments.opacus else []
    methods += ["jax-privacy"] if arguments.jax_privacy else []
    runs = []
    for _ in range(arguments.rounds):
        for batch, usual in BATCHES.items():
            for method in methods:
                steps = usual // arguments.shorter
                few = steps if method in ("escudo", "plain", "ghost") else max(steps // 10, 10)
                runs.append({"method": method, "batch": batch, **one(method, batch, few, pythons)})
                print(json.dumps(runs[-1]), flush=True)
    best = {
        method: {
            str(batch): max(run["rate"] for run in runs if (run["method"], run["batch"]) == (method, batch))
            for batch in BATCHES
        }
        for method in methods
    }
    memory = {method: max(run["peak_mb"] for run in runs if run["method"] == method) for method in methods}
    payload = {"setting": setting(), "rounds": arguments.rounds, "best": best, "peak_mb": memory, "runs": runs}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "dpsgd.json").write_text(json.dumps(payload, indent=1) + "\n")
    (RESULTS / "dpsgd.md").write_text(page(payload))


if __name__ == "__main__":
    main()
