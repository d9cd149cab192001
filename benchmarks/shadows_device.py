"""The full membership game on Pain5000, on an accelerator: a thousand shadow VAEs of each model, and Opacus beside it.

Run on the machine with the accelerator, from the repository's root; it needs jax, numpy, scipy, scikit-learn and joblib
beside escudo's source (with narwhals and dp-accounting)::

    PYTHONPATH=src python3 benchmarks/shadows_device.py --data DIR [--opacus FOLDER] --out DIR

``--data`` holds ``neuropathic_pain``; ``--opacus`` a folder with the package ``opacus`` (and ``opt_einsum``), whose
steps are then timed on the same device. Writes ``shadows_device.json``; ``--page FILE`` writes ``benchmarks/results``
from such a file, and ``experiments/membership.py --shadows FILE`` shows what the attacks found.

**The game** is :func:`escudo.attack` with 500 shadows and up to 500 trials, on the person furthest from their
neighbours, with all other rows fixed, and nobody in the place otherwise. Training is the paper's (``_paper.py``):
samples of 100, 100 epochs, Adam at 1e-3, latent of 10, three layers, with noise for ε = 5.62 at δ = 1e-5 (add/remove),
or without clipping and noise; one public start for all. Each shadow makes 5,000 synthetic rows.

**What is timed.** *Training*: 1,000 models from rows and seeds to parameters, after one call to compile. *Game*: all of
:func:`escudo.attack`, with compiling, drawing synthetic rows and looking at them; the first game of a process also
waits for the device and the processes to start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
sys.path.insert(0, str(ROOT / "experiments"))

COPIES, SHADOWS, TRIALS = 1000, 500, 500
TARGET_SECONDS, TARGET_RATIO = 60, 1000
OPACUS_STEPS = 600
MET = {True: "yes", False: "**no**", None: ""}


def trained_alone(victim: Any, table: Any, copies: int) -> float:
    """Return the seconds that many trainings take, from rows and seeds to parameters."""
    from escudo.attacks._victims import RowsWithRecord

    rows, place = table.rows(table.codes), np.arange(len(table.codes))
    alone = RowsWithRecord(rest=rows.take(place > 1), record=rows.take(place == 0))  # as large as in the game
    began = time.perf_counter()
    made = list(victim.fitted([(alone, seed) for seed in range(copies)]))
    took = time.perf_counter() - began
    assert all(np.isfinite(one.parameters["base"]["b"]).all() for one in made)
    return took


def game(table: Any, model: str, copies: int, jobs: int) -> dict[str, Any]:
    """Attack one model, then train as many alone, with everything compiled."""
    from _paper import outlier_game, vae_of

    victim = vae_of(table, model, one_start=True)
    began = time.perf_counter()
    found = outlier_game(victim, table, shadows=copies // 2, trials=copies // 2, jobs=jobs)
    whole, fits = time.perf_counter() - began, victim.fits
    training = trained_alone(victim, table, copies)
    return {
        "shadows": found.shadows,
        "trials": found.targets[0].audit.runs,
        "fits": fits,
        "steps": victim.steps,
        "noise_multiplier": victim.noise,
        "game_seconds": whole,
        "training_copies": copies,
        "training_seconds": training,
        "model_steps_per_second": copies * victim.steps / training,
        "epsilon": None if victim.claim is None else victim.claim.epsilon,
        "epsilon_lower": found.epsilon_lower,
        "violated": found.violated,
        "confidence": found.confidence,
        "ceiling": None if found.ceiling is None else found.ceiling.to_json(),
        "scores": [score.to_json() for score in found.overall],
    }


def opacus(folder: Path, steps: int) -> dict[str, Any]:
    """Return Opacus' steps per second on the same device."""
    found = {}
    for method in ("ghost", "hooks"):
        command = [sys.executable, str(Path(__file__).with_name("peer_shadows.py")), method, "cuda", str(steps)]
        paths = os.pathsep.join([str(folder.resolve()), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
        )
        if done.returncode:
            print(method, "failed:", done.stderr[-1500:], flush=True)
            continue
        found[method] = json.loads(done.stdout.splitlines()[-1])
        print("Opacus", method, found[method], flush=True)
    return found


def measured(data: Path, folder: Path | None, copies: int, jobs: int, out: Path) -> None:
    """Play the game with all models and write the report after each."""
    import jax
    from _paper import MODELS, SEED, table_of

    out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": os.environ.get("ESCUDO_COMMIT", "none"),  # the sources may be a copy without their history
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "cores": os.cpu_count(),
        "jobs": jobs,
        "seed": SEED,
        "opacus": {} if folder is None else opacus(folder, OPACUS_STEPS),
        "models": {},
    }
    table = table_of("Pain5000", data)
    report["data"] = table.data
    for model in MODELS:
        report["models"][model] = game(table, model, copies, jobs)
        kept = {name: value for name, value in report["models"][model].items() if name != "scores"}
        print(model, json.dumps(kept), flush=True)
        memory = jax.devices()[0].memory_stats() or {}
        report["peak_gb"] = memory.get("peak_bytes_in_use", 0) / 2**30
        (out / "shadows_device.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def page(report: Mapping[str, Any]) -> str:
    """Return the speed as Markdown."""
    models, peers = report["models"], report["opacus"]
    slowest = max(part["training_seconds"] * COPIES / part["training_copies"] for part in models.values())
    first, *later = (part["game_seconds"] for part in models.values())
    whole = max(later or [first])
    plain = models["plain, DP"]["model_steps_per_second"]  # the network that Opacus trains
    rows: list[tuple[str, str, str, bool | None]] = [
        (
            "1,000 shadow VAEs of Pain5000 trained",
            f"< {TARGET_SECONDS} s",
            f"{slowest:.1f} s",
            slowest < TARGET_SECONDS,
        ),
        ("the whole game, with compiling", f"< {TARGET_SECONDS} s", f"{whole:.1f} s", whole < TARGET_SECONDS),
        ("the first game, with starting everything", "", f"{first:.1f} s", None),
    ]
    if peers:
        name, best = max(
            ((name, peer["steps_per_second"]) for name, peer in peers.items()), key=lambda one: float(one[1])
        )
        aim = f"≥ {TARGET_RATIO:,} × Opacus ({name})"
        rows.append(("model-steps per second, plain VAE", aim, f"{plain / best:,.0f} ×", plain >= TARGET_RATIO * best))
    lines = [
        "# Shadow models on an accelerator",
        "",
        f"{report['date']}, commit {report['commit']}, {report['device']}, jax {report['jax']}, {report['cores']} "
        f"processor cores of its machine, {report['jobs']} processes, seed {report['seed']}; {report['data']}; peak "
        f"{report['peak_gb']:.1f} GB on the "
        "device. Made by `benchmarks/shadows_device.py`, which says what is timed.",
        "",
        "| what | target | measured | met |",
        "|---|---|---:|---|",
        *(f"| {what} | {aim} | {got} | {MET[met]} |" for what, aim, got, met in rows),
        "",
        "| model | trained | seconds | model-steps/s | the whole game: fits | seconds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for model, part in models.items():
        lines.append(
            f"| {model} | {part['training_copies']:,} × {part['steps']:,} steps | {part['training_seconds']:.1f} "
            f"| {part['model_steps_per_second']:,.0f} | {part['fits']:,} | {part['game_seconds']:.1f} |"
        )
    if peers:
        lines += ["", "Opacus 1.6 on the same device, plain VAE, one model at a time: "]
        lines[-1] += "; ".join(f"{name} {peer['steps_per_second']:.0f} steps/s" for name, peer in peers.items()) + "."
    if "note" in report:
        lines += ["", report["note"]]
    lines += ["", "What the attacks found is in `experiments/results/membership.md`.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure, or write the page of what was measured."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options.add_argument("--opacus", type=Path, help="a folder with the package opacus")
    options.add_argument("--out", type=Path, default=Path("device-data"))
    options.add_argument("--copies", type=int, default=COPIES)
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--page", type=Path, help="write the page from this file, and measure nothing")
    chosen = options.parse_args()
    if chosen.page is None:
        measured(chosen.data, chosen.opacus, chosen.copies, chosen.jobs, chosen.out)
        return
    text = chosen.page.read_text(encoding="utf-8")
    (RESULTS / "shadows_device.json").write_text(text, encoding="utf-8")
    (RESULTS / "shadows_device.md").write_text(page(json.loads(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
