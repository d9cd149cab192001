"""Shadow models on a processor: the membership game with 64 shadow VAEs of Pain5000, and Opacus in a loop beside it.

Run from the repository's root::

    python benchmarks/shadows.py --opacus PYTHON

PYTHON is an interpreter with ``opacus==1.6.0`` and PyTorch; ``--data DIR`` holds ``neuropathic_pain``. Writes
``benchmarks/results/shadows.json`` and ``shadows.md``; ``--only rates`` and ``--only game`` leave the other as it was.

**Steps.** Trainings of the paper's VAE (``experiments/_paper.py``: samples of 100 of 5,000 rows, clip norm 1, noise,
Adam at 0.001), one after another, as the package trains shadow models where there is no accelerator: samples, gathering
of rows and all else included, compiling not. Opacus trains the same network (``peer_shadows.py``), its loader's own
overhead left out. Each measurement is a process of its own on one thread; methods take turns, the best round counts.

**Game.** :func:`escudo.attack` with 24 shadows and 40 trials on the person furthest from their neighbours, in two
processes with one thread each: with compiling, drawing 5,000 synthetic rows from each fit, and looking at them.
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

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "experiments")]

SHADOWS, TRIALS, PROCESSES = 24, 40, 2
ROUNDS, STEPS = 3, {"escudo": 2, "ghost": 600, "hooks": 200}  # trainings of escudo, steps of the others
TARGET = 4.0
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    # Opacus' hooks allocate large arrays at every step: keep them, as its users are told to.
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
}
TITLES = {"escudo": "escudo", "ghost": "Opacus 1.6, ghost clipping", "hooks": "Opacus 1.6, hooks"}


def steps_alone(data: Path, trainings: int) -> dict[str, float]:
    """Return steps per second of trainings one after another, after a first one that compiles."""
    import numpy as np
    from _paper import table_of, vae_of

    from escudo.attacks._victims import RowsWithRecord

    table = table_of("Pain5000", data)
    victim = vae_of(table, "plain, DP", one_start=True)
    rows, place = table.rows(table.codes), np.arange(len(table.codes))
    alone = RowsWithRecord(rest=rows.take(place > 1), record=rows.take(place == 0))
    whole, victim.steps = victim.steps, 100
    next(victim.fitted([(alone, 0)]))
    victim.steps = whole
    clock, processor = time.perf_counter(), time.process_time()
    for seed in range(1, trainings + 1):
        next(victim.fitted([(alone, seed)]))
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    total = trainings * whole
    return {"steps_per_second": total / clock, "steps_per_cpu_second": total / processor}


def game(data: Path) -> dict[str, Any]:
    """Play the game and return how long it took."""
    from _paper import outlier_game, table_of, vae_of
    from joblib.externals.loky import get_reusable_executor

    table = table_of("Pain5000", data)
    victim = vae_of(table, "plain, DP", one_start=True)
    clock, processor = time.perf_counter(), _processor()
    found = outlier_game(victim, table, shadows=SHADOWS, trials=TRIALS, jobs=PROCESSES)
    took = time.perf_counter() - clock
    get_reusable_executor().shutdown(wait=True)  # so that its processor time is counted
    return {
        "seconds": took,
        "cpu_seconds": _processor() - processor,
        "fits": SHADOWS + found.targets[0].audit.runs,
        "steps": victim.steps,
        "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "data": table.data,
        "verdict": found.verdict,
    }


def _processor() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def one(method: str, data: Path, python: str | None) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, __file__, "--data", str(data), "--one", method]
    if method in ("ghost", "hooks"):
        peer = Path(__file__).with_name("peer_shadows.py")
        command = [str(python), str(peer), method, "cpu", str(STEPS[method])]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **THREADS})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def page(payload: Mapping[str, Any]) -> str:
    """Return the measurements as Markdown."""
    facts, rates, played = payload["setting"], payload["best"], payload["game"]
    lines = [
        "# Shadow models on a processor",
        "",
        f"{facts['date']}, commit {facts['commit']}. {facts['processor']}, {facts['cores']} cores (shared), load "
        f"{facts['load_at_end']:.1f}. Python {facts['python']}. Made by `python benchmarks/shadows.py`, which says "
        "what is compared.",
        "",
    ]
    if "ghost" in rates:
        ratio = rates["escudo"] / rates["ghost"]
        lines += [
            "| target | measured | met |",
            "|---|---:|---|",
            f"| model-steps per second: ≥ {TARGET:g} × Opacus ghost in a loop | {ratio:.1f} × | "
            f"{'yes' if ratio >= TARGET else '**no**'} |",
            "",
        ]
    lines += ["| | steps per second of processor time, one thread |", "|---|---:|"]
    lines += [f"| {TITLES[method]} | {rate:,.0f} |" for method, rate in rates.items()]
    if played:
        lines += [
            "",
            f"**The game with {played['fits']} shadows** ({played['fits'] * played['steps']:,} model-steps; "
            f"{played['data']}) took {played['seconds']:.0f} s by the clock in {PROCESSES} processes, and "
            f"{played['cpu_seconds']:.0f} s of processor time: {played['cpu_seconds'] / PROCESSES:.0f} s on two cores "
            f"that do nothing else. At most {played['peak_mb']:.0f} MB in a process. What it found: "
            f"{played['verdict']}",
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, and write the results."""
    from wide import setting

    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options.add_argument("--opacus", help="a Python with Opacus")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--only", choices=("rates", "game"), help="leave the other as it was")
    options.add_argument("--one", choices=("escudo", "game"))
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(steps_alone(chosen.data, STEPS["escudo"]) if chosen.one == "escudo" else game(chosen.data)))
        return
    known = RESULTS / "shadows.json"
    payload: dict[str, Any] = {"best": {}, "game": None, "runs": []}
    if known.exists():
        payload |= json.loads(known.read_text(encoding="utf-8"))
    if chosen.only != "game":
        methods = ["escudo", *(["ghost", "hooks"] if chosen.opacus else [])]
        payload["runs"] = []
        for _ in range(chosen.rounds):
            for method in methods:
                payload["runs"].append({"method": method, **one(method, chosen.data, chosen.opacus)})
                print(json.dumps(payload["runs"][-1]), flush=True)
        payload["best"] = {
            method: max(run["steps_per_cpu_second"] for run in payload["runs"] if run["method"] == method)
            for method in methods
        }
    if chosen.only != "rates":
        payload["game"] = one("game", chosen.data, None)
        print(json.dumps(payload["game"]), flush=True)
    payload["setting"] = setting()
    RESULTS.mkdir(exist_ok=True)
    known.write_text(json.dumps(payload, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "shadows.md").write_text(page(payload), encoding="utf-8")


if __name__ == "__main__":
    main()
