"""The museum of broken mechanisms, audited whole: every fault caught, no twin accused, and how long it took.

Run ``python benchmarks/audit_museum.py`` (a few minutes on one core); it writes
``benchmarks/results/audit_museum.json`` and ``audit_museum.md`` and ends with 1 if anything came out unexpected. The
visits are repeated with several seeds, so that the runs to a verdict are known with their spread, and so that a method
that accuses correct mechanisms now and then would show.

Options: ``--visit K`` makes one of the visits only, which then replaces its earlier result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from escudo.auditing.museum import exhibits, visit
from escudo.effects import show_epsilon

SEED = 20_261_115
VISITS = 5
CONFIDENCE = 0.95
KEPT = ("exhibit", "piece", "broken", "caught", "as_expected", "epsilon_lower", "true_epsilon", "runs", "seconds")
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def measure(number: int) -> dict[str, Any]:
    """Return what one visit found, and how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = [one.to_json() for one in visit(confidence=CONFIDENCE, seed=SEED + 1000 * number)]
    return {
        "visit": number,
        "findings": [{key: one[key] for key in KEPT} | {"claim": claim_of(one)} for one in found],
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }


def machine() -> dict[str, object]:
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }


def commit() -> str:
    """Return the commit that was measured, and whether the working tree differs from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--", "src/escudo/auditing", "benchmarks/audit_museum.py")
    return (git("rev-parse", "--short", "HEAD") or "uncommitted") + (" with uncommitted changes" if changed else "")


def claim_of(row: dict[str, Any]) -> str:
    claim = row["claim"]
    for name, sign in (("epsilon", "ε"), ("mu", "μ"), ("rho", "ρ")):
        if name in claim:
            return f"{sign} = {claim[name]:.3g}"
    return "a curve"


def markdown(result: dict[str, Any]) -> str:
    facts = ", ".join(f"{key}: {value}" for key, value in result["machine"].items())
    visits = result["visits"]
    audits = [one for each in visits for one in each["findings"]]
    wall, cpu = (statistics.median(each[key] for each in visits) for key in ("wall_s", "cpu_s"))
    lines = [
        "# The museum of broken mechanisms, audited",
        "",
        f"{facts}, seed: {result['seed']}.",
        "",
        f"{len(visits)} visits, each at confidence {result['confidence']} over all of its {len(visits[0]['findings'])} "
        f"audits together. One visit: {wall:.0f} s of wall time on a busy machine, {cpu:.0f} s of CPU. Unexpected "
        f"verdicts: {result['unexpected']} of {len(audits)}.",
        "",
        "| exhibit | what is wrong | claim | true ε | caught | runs (median) | twin accused |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for room in exhibits():
        broken = [one for one in audits if one["exhibit"] == room.name and one["broken"]]
        twins = [one for one in audits if one["exhibit"] == room.name and not one["broken"]]
        at = f" at δ = {room.mechanism.delta:g}" if room.mechanism.delta else ""
        lines.append(
            f"| {room.name} | {room.bug} ({room.source}) | {broken[0]['claim']} | "
            f"{show_epsilon(room.true_epsilon)}{at} | "
            f"{sum(one['caught'] for one in broken)} of {len(broken)} | "
            f"{statistics.median(one['runs'] for one in broken):,.0f} | "
            f"{sum(one['caught'] for one in twins)} of {len(twins)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visit", type=int, choices=range(VISITS))
    options = parser.parse_args()
    file = RESULTS / "audit_museum.json"
    earlier = json.loads(file.read_text(encoding="utf-8")) if options.visit is not None and file.exists() else {}
    known = {one["visit"]: one for one in earlier.get("visits", [])}
    for number in range(VISITS) if options.visit is None else (options.visit,):
        known[number] = measure(number)
        print(f"visit {number}: {known[number]['wall_s']:.0f} s wall, {known[number]['cpu_s']:.0f} s CPU", flush=True)
    visits = [known[number] for number in sorted(known)]
    unexpected = sum(not one["as_expected"] for each in visits for one in each["findings"])
    full = {
        "seed": SEED,
        "machine": machine(),
        "confidence": CONFIDENCE,
        "unexpected": unexpected,
        "visits": visits,
    }
    RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(full, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "audit_museum.md").write_text(markdown(full), encoding="utf-8")
    print(markdown(full))
    sys.exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
