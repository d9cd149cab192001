"""DP-SGD on a processor: steps per second of processor time, against Opacus, jax-privacy and no privacy at all.

Run from the repository's root::

    python benchmarks/dpsgd.py --opacus PYTHON --jax-privacy PYTHON

The interpreters are those of environments of their own with ``opacus==1.6.0`` (and PyTorch) and ``jax-privacy==2.0.0``;
those not given are left out. ``benchmarks/results/dpsgd.json`` and ``dpsgd.md`` are written anew.

**What is compared.** The variational autoencoder 222-128-64-(10, 10)-64-128-222, 75,762 parameters, on 50,000 rows of
0 and 1; Poisson samples of 100 and of 1,000 rows on average; clip norm 1, noise multiplier 1, Adam. Each measurement is
a process of its own, held to one core, which is what keeps XLA to one thread: its flags do not, and products of this
size on two threads take half as much processor time again and are no sooner done. Methods take turns, and the best of
the rounds counts. *Without privacy* is the same network, samples, slots and Adam, with neither norms nor noise. The
others multiply in float32; escudo rounds the factors of gradients to bfloat16 where processors multiply that by
themselves, and is shown both ways.

**What is possible.** The page ends with the peak of this machine, from products of large matrices, and what a step that
does nothing but its products would take at that.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from peer_dpsgd import CLIP, LATENT, NOISE, RATE, ROWS, SECOND, rows
from wide import setting

RESULTS = Path(__file__).parent / "results"
BATCHES = {100: 400, 1000: 80}  # expected size of a sample: steps that are timed
ROUNDS = 3
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Opacus' hooks allocate large arrays at every step: keep them, as its users are told to.
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
}
TITLES = {
    "escudo": "escudo",
    "plain": "the same without privacy",
    "escudo float32": "escudo in float32",
    "plain float32": "the same without privacy in float32",
    "ghost": "Opacus 1.6, ghost clipping",
    "hooks": "Opacus 1.6, hooks",
    "jax-privacy": "jax-privacy 2.0, clipped_grad in a scan",
}


FLOPS = 394_000  # of the products of one row: forwards, backwards but for the first layer, and by weights
HERE = ("escudo", "plain", "escudo float32", "plain float32")


def network() -> Any:
    """Return the variational autoencoder, as the generators build it."""
    from escudo.synthesis.neural._network import Columns, ColumnSpec, Network, Unit

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


def escudo(batch: int, steps: int, *, private: bool, precision: Any) -> float:
    """Return steps per second of processor time, samples included."""
    import jax
    import jax.numpy as jnp

    from escudo.mechanisms.dpsgd import _core
    from escudo.mechanisms.dpsgd._layers import _taped
    from escudo.mechanisms.dpsgd._normal import normal
    from escudo.mechanisms.dpsgd._sampling import Sampling, capacity_for, slots_of

    vae, data = network(), rows().astype(np.uint8)
    start = np.asarray(vae.layout.flatten(vae.start(np.random.default_rng(0))), np.float32)
    recipe = _core.Recipe(precision=precision)
    knobs = _core.Knobs(*map(jnp.float32, (CLIP, NOISE * CLIP, batch, RATE, steps, 0.0, 0.99)))
    capacity = capacity_for(ROWS, batch / ROWS)

    @jax.jit
    def plain(state: Any, slots: Any) -> Any:
        """Run the same loop over slots without norms, factors and noise."""
        random = jax.vmap(lambda key: normal(key, (capacity, LATENT), stream=1))(slots.key)
        stop = ((slots.last | (slots.count > 0)) * jnp.arange(1, len(slots.last) + 1)).max()

        def step(carry: Any) -> Any:
            state, place = carry
            tree = _core._rounded(recipe, vae.layout, state.parameters)

            def more(carry: Any) -> Any:
                total, place, _ = carry
                weights = (jnp.arange(capacity) < slots.count[place])[:, None]
                layers, inputs, by_output, _, _ = _taped(vae, tree, slots.rows[place], random[place], precision)
                summed = {name: layer.gradient(inputs[name], jnp.where(weights, by_output[name], 0))
                          for name, layer in layers.items()}  # fmt: skip
                return total + vae.layout.flatten(summed), place + 1, slots.last[place]

            total, place, ended = jax.lax.while_loop(
                lambda carry: (carry[1] < stop) & ~carry[2], more, (state.total, place, jnp.zeros((), bool))
            )
            state = jax.lax.cond(
                ended,
                lambda state, total: _core._moved(recipe, knobs, state, total / knobs.expected),
                lambda state, total: state._replace(total=total),
                state,
                total,
            )
            return state, place

        return jax.lax.while_loop(lambda carry: carry[1] < stop, step, (state, jnp.zeros((), jnp.int32)))[0]

    def trained(seed: int) -> int:
        state, done = _core.first_state(start), 0
        for segment in slots_of(np.random.default_rng(seed), Sampling(ROWS, batch / ROWS, steps), capacity):
            slots = segment._replace(rows=data[segment.rows])
            state = _core.run(vae, vae.layout, recipe, None, knobs, state, slots) if private else plain(state, slots)
            jax.block_until_ready(state)
            done += int(segment.last.sum())
        return done

    trained(1)
    best = 0.0
    for seed in (2, 3):
        began = time.process_time()
        done = trained(seed)
        best = max(best, done / (time.process_time() - began))
    return best


def peak(dtype: str) -> float:
    """Return what products of large matrices reach here, in 10⁹ operations per second of processor time."""
    import jax
    import jax.numpy as jnp

    size = 1024
    a = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), dtype)
    product = jax.jit(lambda a: jax.lax.dot(a, a, preferred_element_type=jnp.float32))
    jax.block_until_ready(product(a))
    times = []
    for _ in range(10):
        began = time.process_time()
        jax.block_until_ready(product(a))
        times.append(time.process_time() - began)
    return 2e-9 * size**3 / min(times)


def one(method: str, batch: int, steps: int, pythons: Mapping[str, str]) -> dict[str, float]:
    here = method in HERE or method.startswith("peak")
    script = Path(__file__) if here else Path(__file__).with_name("peer_dpsgd.py")
    python = sys.executable if here else pythons["jax-privacy" if method == "jax-privacy" else "opacus"]
    command = [python, str(script), *(["--one"] if here else []), method, str(batch), str(steps)]
    core = max(os.sched_getaffinity(0))
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **THREADS},
        preexec_fn=partial(os.sched_setaffinity, 0, {core}),
    )
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


def possible(payload: Mapping[str, Any]) -> list[str]:
    """Return lines on what the products of a step alone would allow."""
    best, peaks = payload["best"], payload["peaks"]
    lines = [
        "## What is possible",
        "",
        f"The products of a step take {FLOPS / 1000:.0f} thousand operations a row. Products of large matrices reach "
        f"{peaks['float32']:.0f} · 10⁹ a second here in float32, and {peaks['bfloat16']:.0f} · 10⁹ with factors in "
        "bfloat16. A step that did nothing else, on exactly B rows, would reach the first number; the second is what "
        "is reached, noise, clipping, Adam, samples and the rows that fill up slots included.",
        "",
        "| | " + " | ".join(f"B = {batch}" for batch in BATCHES) + " |",
        "|---|" + "---|" * len(BATCHES),
    ]
    for method, dtype in (("escudo", "bfloat16"), ("escudo float32", "float32")):
        cells = []
        for batch in BATCHES:
            bound = peaks[dtype] * 1e9 / (FLOPS * batch)
            cells.append(f"{bound:.0f}, {best[method][str(batch)]:.0f} ({best[method][str(batch)] / bound:.0%})")
        lines.append(f"| {TITLES[method]} | {' | '.join(cells)} |")
    if "ghost" in best:
        batch = max(BATCHES)
        bound = peaks["float32"] * 1e9 / (FLOPS * batch) / best["ghost"][str(batch)]
        lines += [
            "",
            f"In float32 a step of nothing but products would be {bound:.1f} × as fast as Opacus with ghost clipping "
            f"at B = {batch:,}, the most that anything could reach there.",
        ]
    return [*lines, ""]


def page(payload: Mapping[str, Any]) -> str:
    facts, best, memory = payload["setting"], payload["best"], payload["peak_mb"]

    def shown(rate: float) -> str:
        return f"{rate:.0f}" if rate >= 20 else f"{rate:.1f}"

    lines = [
        "# DP-SGD on a processor",
        "",
        f"{facts['date']}, commit {facts['commit']}, seeds 0 to 3. {facts['processor']}, {facts['cores']} cores, load "
        f"{facts['load_at_end']:.1f}. Python {facts['python']}. Made by `python benchmarks/dpsgd.py`"
        f"{payload.get('note', '')}.",
        "",
        "A variational autoencoder of 75,762 parameters, Poisson samples of B of 50,000 rows, clip norm 1, noise "
        "multiplier 1, Adam. Steps per second of processor time on one core, best of as many rounds as the last column "
        "says. "
        "Escudo rounds the factors of gradients to bfloat16, and clips what it rounded; the peers multiply in float32.",
        "",
        "| target | measured | met |",
        "|---|---|---|",
        *(f"| {aim} | {got} | {'yes' if met else '**no**'} |" for aim, got, met in targets(best, memory)),
        "",
        "| | " + " | ".join(f"B = {batch}" for batch in BATCHES) + " | peak MB | rounds |",
        "|---|" + "---|" * (len(BATCHES) + 2),
        *(
            f"| {TITLES[method]} | {' | '.join(shown(best[method][str(batch)]) for batch in BATCHES)} | "
            f"{memory[method]:.0f} | {payload['rounds'][method]} |"
            for method in best
        ),
        "",
        *possible(payload),
    ]
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
        if method.startswith("peak"):
            rate = peak(method.removeprefix("peak "))
        else:
            precision = "float32" if method.endswith("float32") else "bfloat16"
            rate = escudo(int(batch), int(steps), private=method.startswith("escudo"), precision=precision)
        print(json.dumps({"rate": rate, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    pythons = {"opacus": arguments.opacus, "jax-privacy": arguments.jax_privacy}
    methods = list(HERE)
    methods += ["ghost", "hooks"] if arguments.opacus else []
    methods += ["jax-privacy"] if arguments.jax_privacy else []
    runs: list[dict[str, Any]] = []
    peaks = {"float32": 0.0, "bfloat16": 0.0}
    for _ in range(arguments.rounds):
        peaks = {dtype: max(known, one(f"peak {dtype}", 0, 0, pythons)["rate"]) for dtype, known in peaks.items()}
        for batch, usual in BATCHES.items():
            for method in methods:
                steps = usual // arguments.shorter
                few = steps if method in (*HERE, "ghost") else max(steps // 10, 10)
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
    payload = {
        "setting": setting(),
        "rounds": dict.fromkeys(methods, arguments.rounds),
        "best": best,
        "peaks": peaks,
        "peak_mb": memory,
        "runs": runs,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "dpsgd.json").write_text(json.dumps(payload, indent=1) + "\n")
    (RESULTS / "dpsgd.md").write_text(page(payload))


if __name__ == "__main__":
    main()
