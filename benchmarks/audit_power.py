"""How many runs an audit needs: betting after every run, against split-sample Clopper-Pearson at a fixed number.

Run ``python benchmarks/audit_power.py`` from the repository's root; it takes about five minutes on one core and writes
``benchmarks/results/audit_power.json`` and ``audit_power.md``. Four mechanisms break their claims: Laplace and
randomised response of ε = 1 that claim 0.5, Laplace noise redrawn until the answer is not negative (ε = 1.49, claims
1), and Gaussian noise of μ = 1 that claims (1, 0.01). For Clopper-Pearson half of the runs choose a threshold, told in
which direction to look, and half bound it; the smallest number of runs (both datasets) that rejects in 80 % of repeats
is found on a grid. The audit is ``escudo.audit`` as it comes, told nothing; its 50 % and 80 % quantiles are given. The
80 % quantile must be at most half of what split Clopper-Pearson needs, here and in the study that set this target (with
a coarser choice of thresholds than the one measured here). At the truth it must not reject more often than 5 %. Speed:
scalar trials a second of a batched mechanism, which must be a million. Exits with 1 if any of this fails.

Options: ``--repeats N``; ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from escudo.auditing import audit
from escudo.privacy import Guarantee, gdp_to_delta

SEED = 20_261_117
REPEATS, ALPHA = 120, 0.05
RESULTS = Path(__file__).parent / "results"
Batch = Callable[[float, int, np.random.Generator], NDArray[np.float64]]


@dataclass(frozen=True)
class Problem:
    """A mechanism with a claim it does not keep, and the claim that it just keeps."""

    draw: Batch
    claim: Guarantee
    truth: Guarantee
    likelier: int  # the dataset under which large outputs are likelier, or 0 with small outputs
    small: bool
    start: int
    before: int  # what split Clopper-Pearson needed in the study that set the target

    def __call__(self, dataset: float, rng: np.random.Generator) -> float:
        """Return one output."""
        return float(self.draw(dataset, 1, rng)[0])

    def batch(self, dataset: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return many outputs."""
        return self.draw(dataset, count, rng)


def laplace(dataset: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return dataset + rng.laplace(size=count)


def coin(dataset: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.where(rng.random(count) < 1 / (1 + math.exp(-1)), dataset, 1 - dataset)


def redraw(dataset: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    outputs = dataset + rng.laplace(size=count)
    while (low := outputs < 0).any():
        outputs[low] = dataset + rng.laplace(size=int(low.sum()))
    return outputs


def normal(dataset: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return dataset + rng.normal(size=count)


REDRAWN = math.log(2 * math.e * (1 - 0.5 * math.exp(-1)))
PROBLEMS = {
    "Laplace, ε = 1, claims 0.5": Problem(laplace, Guarantee(epsilon=0.5), Guarantee(epsilon=1.0), 1, False, 400, 2670),
    "randomised response, ε = 1, claims 0.5": Problem(
        coin, Guarantee(epsilon=0.5), Guarantee(epsilon=1.0), 1, False, 150, 594
    ),
    "redrawn Laplace, ε = 1.49, claims 1": Problem(
        redraw, Guarantee(epsilon=1.0), Guarantee(epsilon=REDRAWN), 0, True, 4000, 21_830
    ),
    "Gaussian, μ = 1, claims (1, 0.01)": Problem(
        normal,
        Guarantee(epsilon=1.0, delta=0.01),
        Guarantee(epsilon=1.0, delta=gdp_to_delta(1.0, 1.0)),
        1,
        False,
        800,
        4868,
    ),
}


def split_rejects(problem: Problem, runs: int, rng: np.random.Generator) -> bool:
    """Return whether split-sample Clopper-Pearson rejects: half of the runs choose the threshold, half bound it."""
    each = runs // 4
    samples = [problem.draw(float(d), 2 * each, rng) for d in (0, 1)]
    sign = -1.0 if problem.small else 1.0
    likely, other = (sign * samples[d] for d in (problem.likelier, 1 - problem.likelier))
    cuts = np.unique(np.quantile(np.concatenate([likely[:each], other[:each]]), np.linspace(0.002, 0.998, 250)))
    bounds = [_bound(likely[:each] >= cut, other[:each] >= cut, problem.claim.delta) for cut in cuts]
    best = cuts[int(np.argmax(bounds))]
    return _bound(likely[each:] >= best, other[each:] >= best, problem.claim.delta) > (problem.claim.epsilon or 0)


def _bound(likely: NDArray[np.bool_], other: NDArray[np.bool_], delta: float) -> float:
    hits, size = int(likely.sum()), likely.size
    misses, others = int(other.sum()), other.size
    low = special.betaincinv(hits, size - hits + 1, ALPHA / 2) if hits else 0.0
    high = special.betaincinv(misses + 1, others - misses, 1 - ALPHA / 2) if misses < others else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


def runs_of_split(problem: Problem, repeats: int) -> int:
    """Return the runs at which the power passes 80 %, between two points of the grid."""
    runs, before = float(problem.start), (0.0, 0.0)
    while True:
        rng = np.random.default_rng([SEED, int(runs)])
        power = np.mean([split_rejects(problem, int(runs), rng) for _ in range(repeats)])
        if power >= 0.8:
            share = (0.8 - before[1]) / max(power - before[1], 1e-9)
            return int(before[0] + (runs - before[0]) * share) if before[0] else int(runs)
        before, runs = (runs, float(power)), runs * 1.25


def runs_of_audit(problem: Problem, repeats: int, most: int) -> list[int]:
    found = [
        audit(problem, claim=problem.claim, pairs=[(0.0, 1.0)], max_runs=most, seed=s, last_bits=False, progress=False)
        for s in range(SEED, SEED + repeats)
    ]
    return [f.runs if f.violated else 10**9 for f in found]


def false_alarms(problem: Problem, repeats: int, most: int) -> int:
    return sum(
        audit(
            problem, claim=problem.truth, pairs=[(0.0, 1.0)], max_runs=most, seed=s, last_bits=False, progress=False
        ).violated
        for s in range(SEED, SEED + repeats)
    )


def trials_a_second(runs: int) -> float:
    problem = PROBLEMS["Laplace, ε = 1, claims 0.5"]
    start = time.process_time()
    audit(
        problem,
        claim=Guarantee(epsilon=1.0),
        pairs=[(0.0, 1.0)],
        max_runs=runs,
        stop_early=False,
        seed=SEED,
        last_bits=False,
        progress=False,
    )
    return runs / (time.process_time() - start)


def commit() -> str:
    """Return the commit that was measured, or "uncommitted" if the package has changes that are in none."""

    def git(*arguments: str) -> str:
        root = RESULTS.parent.parent
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=root, check=False)
        return done.stdout.strip() if done.returncode == 0 else "?"

    return "uncommitted" if git("status", "--porcelain", "--", "src/escudo/auditing") else git("rev-parse", "HEAD")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    repeats = 6 if options.quick else options.repeats
    rows, failed = [], False
    for name, problem in PROBLEMS.items():
        split = runs_of_split(problem, repeats)
        stops = runs_of_audit(problem, repeats, 2 * split)
        half, most = (int(np.quantile(stops, q, method="higher")) for q in (0.5, 0.8))
        alarms = false_alarms(problem, repeats, split)
        row: dict[str, Any] = {
            "problem": name,
            "split_80": split,
            "audit_50": half,
            "audit_80": most,
            "split_80_before": problem.before,
            "ratio": most / split,
            "ratio_before": most / problem.before,
            "false_alarms": alarms,
            "repeats": repeats,
        }
        failed |= max(row["ratio"], row["ratio_before"]) > 0.5 or alarms > special.bdtrik(0.999, repeats, ALPHA) + 1
        rows.append(row)
        print(
            f"{name:42} split CP {split:7,}   audit {half:7,} / {most:7,}   {row['ratio']:.2f}   {alarms} alarms",
            flush=True,
        )
    speed = trials_a_second(200_000 if options.quick else 10_000_000)
    print(f"{speed:,.0f} scalar trials a second")
    failed |= speed < 1e6
    if options.quick:
        return 0
    record = {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": SEED,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "rows": rows,
        "trials_a_second": speed,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audit_power.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "audit_power.md").write_text(markdown(record))
    return 1 if failed else 0


def markdown(record: dict[str, Any]) -> str:
    lines = [
        "# Runs that an audit needs",
        "",
        f"{record['date'][:10]}, commit {record['commit'][:12]}, seed {record['seed']}. {record['machine']}.",
        "",
        "Runs (both datasets) to reject a false claim at 95 % confidence. Clopper-Pearson: half of the runs choose",
        "a threshold in a direction that is told, half bound it; the number at which it rejects in 80 % of repeats.",
        "Audit: `escudo.audit`, told nothing, stopping when it has seen enough. False alarms: repeats at the truth.",
        "",
        "| problem | split Clopper-Pearson | in the study | audit, 50 % | audit, 80 % | share of runs | false alarms |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r['problem']} | {r['split_80']:,} | {r['split_80_before']:,} | {r['audit_50']:,} | {r['audit_80']:,} | "
        f"{r['ratio']:.2f}, {r['ratio_before']:.2f} | "
        f"{r['false_alarms']} of {r['repeats']} |"
        for r in record["rows"]
    ]
    lines += ["", f"Speed: {record['trials_a_second'] / 1e6:.1f} million scalar trials a second of CPU time.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
